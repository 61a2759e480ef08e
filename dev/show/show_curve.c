// show_curve: a run's loss in numbers: means by windows, progress, spikes, standstill.
#include "dev/show/show.h"
#include "base/check.h"
#include "tools/options.h"
#include "dev/draw/curve.h"

#include <stdio.h>
#include <sys/stat.h>

static const char help[] =
    "usage: show curve RUN [--window N] [--z Z] [--plateau P]\n"
    "RUN: a run's folder, or its metrics.jsonl, even while it goes on: runs/stories\n";

int show_curve(int argc, char **argv)
{
    CurveSettings set = {.spike_z = 3, .plateau = 0.01};
    Option row[] = {
        OPTION(SIZE, "--window", "N", "steps of a window (a twentieth of the run)", &set.window, .least = 2),
        OPTION(NUMBER, "--z", "Z", "standard deviations that make a spike (3)", &set.spike_z, .least = 0.1),
        OPTION(NUMBER, "--plateau", "P", "gain from window to window below which a run stands still (0.01)",
               &set.plateau)};
    OptionSet options = {"curve", help, row, sizeof row / sizeof *row, .where = 0};
    if (options_read(&options, argc, argv) != 1) die_usage("curve: name one run (curve runs/NAME; try --help)");
    char path[4096];
    struct stat st;
    bool folder = stat(argv[1], &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(path, sizeof path, "%s%s", argv[1], folder ? "/metrics.jsonl" : "");
    MetricsLog log = metrics_read(path);
    Curve curve = curve_read(&log, set);
    curve_print(&curve, path, stdout);
    curve_free(&curve);
    metrics_log_free(&log);
    return 0;
}
