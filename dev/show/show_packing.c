// show_packing: what packing whole documents into rows saves and costs on a token file, beside cutting the stream of
// tokens.
//
// For each way to make rows of T tokens: how many rows, how much of them is text, how many documents are cut, and how
// many keys a query attends to on average, which is what attention costs. Or, for several T, how much of padded rows (a
// document in each) is text, and of packed ones.
#include "dev/show/show.h"
#include "base/check.h"
#include "text/dataset.h"
#include "text/packing.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t n, T, n_tokens;
    size_t *length; // (n)
} Documents;

static size_t number(const char *text, long least, const char *what)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > INT_MAX)
        die("packing: %s: %s (a whole number, at least %ld)", what, text, least);
    return (size_t)value;
}

// Every document starts with end-of-text, so the first token says which id that is.
static Documents read_documents(const char *path)
{
    enum { PART = 1 << 20 };
    Dataset *ds = dataset_open(path, INT_MAX);
    int64_t n_tokens = dataset_tokens(ds);
    int32_t *part = malloc(PART * sizeof *part), eot = -1;
    Documents docs = {.n_tokens = (size_t)n_tokens, .length = malloc((size_t)(n_tokens + 1) * sizeof *docs.length)};
    if (!part || !docs.length) die("packing: %s: no memory for %lld tokens", path, (long long)n_tokens);
    for (int64_t from = 0; from < n_tokens; from += PART) {
        int64_t n = n_tokens - from < PART ? n_tokens - from : PART;
        dataset_span(ds, from, n, part);
        if (from == 0) eot = part[0];
        for (int64_t i = 0; i < n; i++) {
            if (part[i] == eot) docs.length[docs.n++] = 0;
            docs.length[docs.n - 1]++;
        }
    }
    free(part);
    dataset_close(ds);
    return docs;
}

static void print_row(const char *name, size_t n_rows, size_t T, double used, size_t n_cut, size_t n, double keys)
{
    printf("| %-26s | %8zu | %6.2f %% | %8.2f %% | %10.1f | %8.3f |\n", name, n_rows, 100 * used,
           n ? 100.0 * (double)n_cut / (double)n : 0, keys, keys / (0.5 * (double)(T + 1)));
}

// Documents cut by the edges of rows, and the mean number of keys when each query sees its own document.
static void cut_stream(const Documents *d, size_t T, size_t *n_cut, double *keys)
{
    double pairs = 0;
    *n_cut = 0;
    for (size_t i = 0, at = 0; i < d->n; at += d->length[i++]) {
        *n_cut += at / T != (at + d->length[i] - 1) / T;
        for (size_t from = at, end = at + d->length[i], w; from < end; from += w) {
            w = T - from % T < end - from ? T - from % T : end - from;
            pairs += 0.5 * (double)w * (double)(w + 1);
        }
    }
    *keys = pairs / (double)d->n_tokens;
}

static void pack(const Documents *d, size_t T, size_t window)
{
    char name[64];
    Packing p = packing_make(d->length, d->n, T, window);
    double pairs = (double)(p.n_rows * T - p.n_tokens); // a padding token sees itself
    for (size_t i = 0; i < p.n_pieces; i++) {
        double w = (double)p.piece[i].length;
        pairs += 0.5 * w * (w + 1);
    }
    if (window) snprintf(name, sizeof name, "packed, %zu at a time", window);
    else snprintf(name, sizeof name, "packed, all at once");
    print_row(name, p.n_rows, T, packing_efficiency(&p), p.n_cut, d->n, pairs / (double)p.n_tokens);
    packing_free(&p);
}

// Rows of T tokens with one document each, or a piece of one that is longer.
static size_t padded_rows(const Documents *d, size_t T)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) n += (d->length[i] + T - 1) / T;
    return n;
}

// What a step of so many rows trains on grows by padded / packed rows: both hold the same tokens.
static void compare_padded(const Documents *d, int n_T, char **T)
{
    printf("| %8s | %11s | %8s | %11s | %8s | %21s |\n", "T", "padded rows", "text", "packed rows", "text", "tokens of a step");
    printf("|---:|---:|---:|---:|---:|---:|\n");
    for (int i = 0; i < n_T; i++) {
        size_t t = number(T[i], 1, "T"), padded = padded_rows(d, t);
        Packing p = packing_make(d->length, d->n, t, 0);
        printf("| %8zu | %11zu | %6.2f %% | %11zu | %6.2f %% | %+19.1f %% |\n", t, padded,
               100 * (double)d->n_tokens / ((double)padded * (double)t), p.n_rows, 100 * packing_efficiency(&p),
               100 * ((double)padded / (double)p.n_rows - 1));
        packing_free(&p);
    }
}

static const char help[] =
    "usage: show packing FILE.bin T [WINDOW...]\n"
    "       show packing FILE.bin padded T...\n"
    "  FILE.bin  a token file: runs/stories/data/train_000000.bin\n"
    "  T         tokens of a row\n"
    "  WINDOW    documents packed at a time; 0: all (0)\n"
    "  padded    how much more text a step of packed rows has than one of padded rows, with a document in each\n";

int show_packing(int argc, char **argv)
{
    check_help(argc, argv, help);
    if (argc < 3 || argv[1][0] == '-') die_usage("packing: FILE.bin T [WINDOW...] (try --help)");
    bool padded = strcmp(argv[2], "padded") == 0;
    if (padded && argc < 4) die_usage("packing: padded: which T? (try packing FILE.bin padded 256 1024)");
    size_t T = padded ? 0 : number(argv[2], 1, "T"), n_cut;
    double keys;
    Documents d = read_documents(argv[1]);
    if (!d.n) die("packing: %s: no tokens", argv[1]);
    printf("%zu documents, %zu tokens, %.1f a document\n\n", d.n, d.n_tokens, (double)d.n_tokens / (double)d.n);
    if (padded) {
        compare_padded(&d, argc - 3, argv + 3);
        free(d.length);
        return 0;
    }
    printf("| %-26s | %8s | %8s | %10s | %10s | %8s |\n", "rows", "number", "tokens", "docs cut", "keys", "of rows'");
    printf("|---|---|---|---|---|---|\n");
    cut_stream(&d, T, &n_cut, &keys);
    print_row("cut, one document", (d.n_tokens + T - 1) / T, T, 1, n_cut, d.n, 0.5 * (double)(T + 1));
    print_row("cut, documents masked", (d.n_tokens + T - 1) / T, T, 1, n_cut, d.n, keys);
    for (int i = 3; i < argc; i++) pack(&d, T, number(argv[i], 0, "WINDOW"));
    if (argc == 3) pack(&d, T, 0);
    free(d.length);
    return 0;
}
