// show_draw: the pictures of the chapters that show one idea each, from the functions and tables that training uses.
#include "dev/show/show.h"
#include "base/check.h"
#include "base/config.h"
#include "dev/draw/pictures.h"
#include "ops/dev_cpu.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: show draw PICTURE [CONFIG [--section.key=value ...]] FILE.svg\n"
    "  block CONFIG       a block forward and backward, op by op: what each op reads and writes, what has to be kept\n"
    "  casts CONFIG       a step with 16-bit numbers: which arrays are 16 bits, which are fp32\n"
    "  state CONFIG       bytes of a parameter, by precision and optimizer\n"
    "  recompute CONFIG   what each mode of memory.recompute keeps\n"
    "  tiles              the tiles that attention computes: causal, with a window, with documents\n"
    "  experts CONFIG     where tokens go in a layer with experts\n"
    "  slices CONFIG      which elements of a tensor each rank's checkpoint file has, and who reads them in another\n"
    "                     layout; --tensor NAME, --from LAYOUT, --to LAYOUT: ranks=4,tp=2,zero=1 (keys of [parallel])\n"
    "  CONFIG is a file or preset, as for build/train.\n";

static void load(Config *cfg, const char *name)
{
    config_defaults(cfg);
    config_load_file(cfg, name);
}

static void finish(Config *cfg)
{
    if (!cfg->model.vocab) config_set_derived(cfg, "model.vocab", 4096);
    config_resolve(cfg);
}

// "ranks=4,tp=2,zero=1"
static void set_layout(Config *cfg, const char *layout)
{
    char text[400], *rest = text;
    if (strlen(layout) >= sizeof text) die_usage("draw: a layout of %zu characters", strlen(layout));
    strcpy(text, layout);
    for (char *word; (word = strsep(&rest, ","));) {
        char key[80], *value = strchr(word, '=');
        if (!value || value - word > 40) die_usage("draw: layout '%s': '%s' is not key=value", layout, word);
        *value++ = '\0';
        snprintf(key, sizeof key, "parallel.%s", word);
        char *end;
        long ranks = strtol(value, &end, 10);
        if (strcmp(word, "ranks")) config_set(cfg, key, value, "--from or --to");
        else if (*end || end == value || ranks < 1) die_usage("draw: layout '%s': ranks=%s", layout, value);
        else config_set_derived(cfg, key, ranks);
    }
}

int show_draw(int argc, char **argv)
{
    static Config cfg, other;
    const char *tensor = "layers.0.ffn.up.weight", *from = "ranks=4,tp=2,zero=1", *to = "ranks=8,zero=3";
    check_help(argc, argv, help);
    const char *what = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[argc - 1] : "";
    static const char *const name[] = {"block", "casts", "state", "recompute", "experts", "slices", "tiles"};
    int k = 0;
    while (k < 7 && strcmp(what, name[k])) k++;
    if (k == 7) die_usage("draw: '%s' is no picture (try --help)", what);
    if (!*path || *path == '-') die_usage("draw: %s: the last word is the file to write (try --help)", what);
    if (k == 6) {
        if (argc != 3) die_usage("draw: tiles FILE.svg");
        pictures_tiles(path);
        return 0;
    }
    if (argc < 4) die_usage("draw: %s CONFIG FILE.svg (try --help)", what);
    load(&cfg, argv[2]);
    for (int i = 3; i < argc - 1; i++) {
        const char *option = argv[i];
        char *value = strchr(option, '=');
        const char **text = !strcmp(option, "--tensor") ? &tensor : !strcmp(option, "--from") ? &from
            : !strcmp(option, "--to") ? &to : NULL;
        if (text && k == 5 && i + 2 < argc) {
            *text = argv[++i];
            continue;
        }
        if (strncmp(option, "--", 2) || !strchr(option, '.') || !value) die_usage("draw: no option '%s'", option);
        char key[80];
        snprintf(key, sizeof key, "%.*s", (int)(value - option - 2), option + 2);
        config_set(&cfg, key, value + 1, "the command line");
    }
    other = cfg;
    if (k == 5) set_layout(&cfg, from), set_layout(&other, to), finish(&other);
    finish(&cfg);
    if (k == 0) pictures_block(&cfg, path);
    if (k == 1) pictures_casts(&cfg, path);
    if (k == 2) pictures_state(&cfg, path);
    if (k == 3) pictures_recompute(&cfg, path);
    if (k == 4) pictures_experts(&cfg, path);
    if (k == 5) pictures_slices(&cfg, &other, tensor, path);
    return 0;
}
