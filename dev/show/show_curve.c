// show_curve: a run's loss in numbers: means by windows, progress, spikes, standstill.
#include "dev/show/show.h"
#include "base/check.h"
#include "base/options.h"
#include "dev/draw/curve.h"

static const char help[] =
    "usage: show curve METRICS.jsonl [--window N] [--z Z] [--plateau P]\n"
    "METRICS.jsonl: of any run, even one still in progress: runs/stories/metrics.jsonl\n";

int show_curve(int argc, char **argv)
{
    CurveSettings set = {.spike_z = 3, .plateau = 0.01};
    Option row[] = {
        OPTION(SIZE, "--window", "N", "steps of a window (a twentieth of the run)", &set.window, .least = 2),
        OPTION(NUMBER, "--z", "Z", "standard deviations that make a spike (3)", &set.spike_z, .least = 0.1),
        OPTION(NUMBER, "--plateau", "P", "gain from window to window below which a run stands still (0.01)",
               &set.plateau)};
    OptionSet options = {"curve", help, row, sizeof row / sizeof *row, .where = 0};
    if (options_read(&options, argc, argv) != 1) die_usage("curve: name one run (curve METRICS.jsonl; try --help)");
    const char *path = argv[1];
    MetricsLog log = metrics_read(path);
    Curve curve = curve_read(&log, set);
    curve_print(&curve, path, stdout);
    curve_free(&curve);
    metrics_log_free(&log);
    return 0;
}
