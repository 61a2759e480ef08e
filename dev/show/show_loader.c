// show_loader: how many tokens a second the dataset gives, beside how many training takes.
//
// One thread reads windows in training's random order, as a rank does between two steps. Three cases are timed: with
// the file's pages dropped from the page cache (where the system does that); the same with 64 windows prefetched at a
// time, as a rank prefetches the next step's (here nothing runs meanwhile, so this is the disk's own speed); and from
// the cache. Training takes FLOP/s / 6N tokens a second with N parameters (plan.md); a rank is a GPU, and reads only
// its own samples.
#include "dev/show/show.h"
#include "base/check.h"
#include "base/clock.h"
#include "text/dataset.h"
#include "base/rng.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS = 64 << 20, VOCAB = 50257 };
static const double gpu = 4e14; // FLOP/s that training reaches on one: 40% of 989e12, an H100's dense bf16

static void make_file(const char *path)
{
    enum { PART = 1 << 16 };
    static int32_t id[PART];
    Rng rng = rng_make(1, "loader", 0);
    DatasetWriter *w = dataset_writer_open(path, VOCAB, DATASET_AUTO);
    for (int64_t at = 0; at < TOKENS; at += PART) {
        for (int i = 0; i < PART; i++) id[i] = (int32_t)(((uint64_t)(at + i) * 2654435761u ^ rng.seed) % VOCAB);
        dataset_writer_append(w, id, PART);
    }
    dataset_writer_finish(w);
}

static void drop_pages(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0) return; // a pattern or a mixture: its pages stay
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void row(const char *what, double tokens, double seconds)
{
    printf("| %s | %.1f M |\n", what, tokens / seconds / 1e6);
}

// Wall-clock time from the disk; processor time from the cache, because other work on the machine changes it less.
static double seconds_of(bool cached)
{
    return cached ? (double)clock() / CLOCKS_PER_SEC : clock_seconds();
}

// Reads windows for at most about two seconds; returns tokens a second.
static double read_windows(const Dataset *ds, int T, int64_t n, bool ahead, bool cached, int32_t *in, int32_t *target)
{
    enum { STEP = 64 };
    double begun = seconds_of(cached), seconds = 0;
    int64_t s = 0;
    while (s < n && seconds < 2) {
        for (int i = 0; ahead && i < STEP; i++) dataset_ahead(ds, s + STEP + i, T, 1, true);
        for (int i = 0; i < STEP && s < n; i++) dataset_window(ds, s++, T, 1, true, in, target);
        seconds = seconds_of(cached) - begun;
    }
    return (double)s * T / seconds;
}

static const char help[] =
    "usage: show loader [PATH [T]]\n"
    "  PATH  a dataset: a file, a pattern, a mixture (64 Mi random tokens in a file that is made under TMPDIR)\n"
    "  T     tokens of a window (1024)\n";

int show_loader(int argc, char **argv)
{
    check_help(argc, argv, help);
    char own[PATH_MAX] = "";
    const char *path = argc > 1 ? argv[1] : own;
    if (argc > 3 || (argc > 1 && argv[1][0] == '-')) die_usage("loader: it takes only [PATH [T]] (try --help)");
    char *end = "";
    long T = argc > 2 ? strtol(argv[2], &end, 10) : 1024;
    if (*end || T < 1 || T > 1 << 24) die("loader: %s: not a length of windows", argv[2]);
    if (argc < 2) {
        const char *tmp = getenv("TMPDIR");
        snprintf(own, sizeof own, "%s/loader_%d.bin", tmp ? tmp : "/tmp", (int)getpid());
        make_file(own);
    }
    int32_t *in = malloc((size_t)T * sizeof *in), *target = malloc((size_t)T * sizeof *target);
    if (!in || !target) die("loader: no memory for windows of %ld tokens", T);
    double begun = seconds_of(true);
    Dataset *ds = dataset_open(path, argc > 1 ? INT_MAX : VOCAB);
    double opening = seconds_of(true) - begun, n = (double)dataset_tokens(ds);
    int64_t windows = dataset_windows(ds, (int)T);
    if (windows < 1) die("%s: %lld tokens, fewer than a window", path, (long long)dataset_tokens(ds));
    drop_pages(path);
    double cold = read_windows(ds, (int)T, windows, false, false, in, target);
    drop_pages(path);
    double ahead = read_windows(ds, (int)T, windows, true, false, in, target);
    double warm = read_windows(ds, (int)T, windows, false, true, in, target);
    printf("| one thread | tokens/s |\n|---|---|\n");
    row("opening: every token is checked, by processor time", n, opening);
    row("windows in random order, pages dropped before", cold, 1);
    row("the same, 64 windows fetched ahead", ahead, 1);
    row("windows in random order, from the page cache, by processor time", warm, 1);
    printf("\n| parameters N | a GPU takes, tokens/s | the loader gives, from the cache |\n|---|---|---|\n");
    const double sizes[] = {124e6, 1.3e9, 7e9, 70e9};
    for (int i = 0; i < 4; i++) {
        double need = gpu / (6 * sizes[i]);
        printf("| %.3g | %.3g | %.0f times that |\n", sizes[i], need, warm / need);
    }
    dataset_close(ds);
    free(in);
    free(target);
    if (*own) unlink(own);
    return 0;
}
