// overlay: the training losses of several runs in one picture.
//
//     build/overlay OUT.svg TITLE RUN_DIRECTORY...      each run is called as its directory
//
// Reads RUN_DIRECTORY/metrics.jsonl of 1 to 8 runs; one that is still running, or stopped early, has a shorter curve.
#include "check.h"
#include "plot.h"

#include <stdio.h>
#include <string.h>

enum { RUNS = 8 };

int main(int argc, char **argv)
{
    static char file[RUNS][4096];
    const char *path[RUNS], *name[RUNS];
    int n = argc - 3;
    if (n < 1 || n > RUNS || argv[1][0] == '-') die_usage("usage: overlay OUT.svg TITLE RUN_DIRECTORY... (1 to 8)");
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
    plot_overlay_svg(path, name, n, argv[1], argv[2]);
    printf("%s\n", argv[1]);
    return 0;
}
