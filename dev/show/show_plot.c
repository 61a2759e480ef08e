// show_plot: draws the loss picture of a run again, or makes its page: of one that is running, was killed, or came from
// elsewhere.
//
// The trainer does the same at every evaluation, by the same functions.
#include "dev/show/show.h"
#include "base/check.h"
#include "record/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: show plot RUN_DIRECTORY [OUT.svg]\n"
    "       show plot RUN_DIRECTORY --html [OUT.html]\n"
    "  reads RUN_DIRECTORY/metrics.jsonl, writes RUN_DIRECTORY/loss.svg or OUT.svg\n"
    "  --html: reads config.toml and trace.json too, writes RUN_DIRECTORY/report.html or OUT.html\n";

static int page(const char *dir, const char *out)
{
    struct stat st;
    if (stat(dir, &st) || !S_ISDIR(st.st_mode)) die("plot: %s: no such folder (name a run's, runs/NAME)", dir);
    if (!page_write(dir, out))
        die("plot: cannot write %s: %s (is the disk full?)", out ? out : "report.html", strerror(errno));
    if (out) printf("%s\n", out);
    else printf("%s/report.html\n", dir);
    return 0;
}

int show_plot(int argc, char **argv)
{
    check_help(argc, argv, help);
    char metrics[4096], svg[4096];
    bool html = argc > 2 && !strcmp(argv[2], "--html");
    if (argc < 2 || argc > 3 + html || argv[1][0] == '-')
        die_usage("plot: name a run (plot RUN_DIRECTORY [--html] [OUT])");
    if (html) return page(argv[1], argc == 4 ? argv[3] : NULL);
    if (snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", argv[1]) >= (int)sizeof metrics)
        die("plot: path too long: %s", argv[1]);
    snprintf(svg, sizeof svg, "%s/loss.svg", argv[1]);
    const char *out = argc == 3 ? argv[2] : svg;
    metrics_plot_loss(metrics, out, NULL, 0);
    printf("%s\n", out);
    return 0;
}
