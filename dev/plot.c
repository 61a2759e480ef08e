// plot: draws the loss picture of a run again, of one that is running, was killed, or came from elsewhere.
//
// The trainer draws the same picture at every evaluation; this is the same function.
#include "base/check.h"
#include "train/metrics.h"

#include <stdio.h>

static const char help[] =
    "usage: plot RUN_DIRECTORY [OUT.svg]\n"
    "  reads RUN_DIRECTORY/metrics.jsonl, writes RUN_DIRECTORY/loss.svg or OUT.svg\n";

int main(int argc, char **argv)
{
    check_help(argc, argv, help);
    char metrics[4096], svg[4096];
    if (argc < 2 || argc > 3 || argv[1][0] == '-') die_usage("plot: name a run (plot RUN_DIRECTORY [OUT.svg])");
    if (snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", argv[1]) >= (int)sizeof metrics)
        die("plot: path too long: %s", argv[1]);
    snprintf(svg, sizeof svg, "%s/loss.svg", argv[1]);
    const char *out = argc == 3 ? argv[2] : svg;
    metrics_plot_loss(metrics, out, NULL, 0);
    printf("%s\n", out);
    return 0;
}
