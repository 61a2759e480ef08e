// curve: a run's loss in numbers: means by windows, progress, spikes, standstill.
#include "base/check.h"
#include "dev/draw/curve.h"

#include <stdlib.h>
#include <string.h>

static double number(const char *option, const char *text, double least)
{
    char *end = NULL;
    double x = text ? strtod(text, &end) : 0;
    if (!text || end == text || *end || !(x >= least && x <= 1e9))
        die_usage("curve: %s: a number from %g on", option, least);
    return x;
}

static const char help[] =
    "usage: curve METRICS.jsonl [--window N] [--z Z] [--plateau P]\n"
    "  METRICS.jsonl  of any run, also one that is still going: runs/stories/metrics.jsonl\n"
    "  --window N     steps of a window (a twentieth of the run)\n"
    "  --z Z          standard deviations that make a spike (3)\n"
    "  --plateau P    gain from window to window below which a run stands still (0.01)\n";

int main(int argc, char **argv)
{
    check_help(argc, argv, help);
    CurveSettings set = {.spike_z = 3, .plateau = 0.01};
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--window")) set.window = (size_t)number(argv[i], argv[i + 1], 2), i++;
        else if (!strcmp(argv[i], "--z")) set.spike_z = number(argv[i], argv[i + 1], 0.1), i++;
        else if (!strcmp(argv[i], "--plateau")) set.plateau = number(argv[i], argv[i + 1], 0), i++;
        else if (argv[i][0] == '-' || path) die_usage("curve: '%s' (try --help)", argv[i]);
        else path = argv[i];
    }
    if (!path) die_usage("curve: of which run? (curve METRICS.jsonl; try --help)");
    MetricsLog log = metrics_read(path);
    Curve curve = curve_read(&log, set);
    curve_print(&curve, path, stdout);
    curve_free(&curve);
    metrics_log_free(&log);
    return 0;
}
