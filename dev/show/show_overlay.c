// show_overlay: the training losses of several runs in one picture.
#include "dev/show/show.h"
#include "base/check.h"
#include "record/metrics.h"

#include <stdio.h>
#include <string.h>

enum { RUNS = 8 };

static const char help[] =
    "usage: show overlay OUT.svg TITLE RUN_DIRECTORY...\n"
    "  RUN_DIRECTORY  1 to 8 of them; each curve is named after its directory. A run that is still in\n"
    "                 progress, or stopped early, has a shorter curve\n";

int show_overlay(int argc, char **argv)
{
    check_help(argc, argv, help);
    static char file[RUNS][4096];
    const char *path[RUNS], *name[RUNS];
    int n = argc - 3;
    if (n < 1 || n > RUNS || argv[1][0] == '-') die_usage("overlay: OUT.svg TITLE and 1 to 8 runs (try --help)");
    for (int i = 0; i < n; i++) {
        char *dir = argv[i + 3];
        size_t length = strlen(dir);
        while (length > 1 && dir[length - 1] == '/') dir[--length] = 0;
        if (snprintf(file[i], sizeof file[i], "%s/metrics.jsonl", dir) >= (int)sizeof file[i])
            die("overlay: path too long: %s", dir);
        const char *slash = strrchr(dir, '/');
        name[i] = slash && slash[1] ? slash + 1 : dir;
        path[i] = file[i];
    }
    metrics_plot_overlay(path, name, n, argv[1], argv[2]);
    printf("%s\n", argv[1]);
    return 0;
}
