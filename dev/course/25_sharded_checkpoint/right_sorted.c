// Sorts the parts of the slice by their beginning, checks that each begins where the one before ends, then reads.
#include "shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t from, to, at;
    int file;
} Part;

static int by_begin(const void *a, const void *b)
{
    const Part *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

bool load_slice(const Checkpoint *c, const char *tensor, size_t begin, size_t end, float *out, char *why,
                size_t why_size)
{
    Part *part = malloc((size_t)(c->n + 1) * sizeof *part);
    size_t n = 0, at = begin;
    const char *wrong = NULL;
    for (const Piece *p = c->piece; p < c->piece + c->n; p++) {
        if (strcmp(p->tensor, tensor) != 0 || p->begin >= end || p->begin + p->count <= begin || !p->count) continue;
        size_t skip = p->begin < begin ? begin - p->begin : 0, left = p->begin + p->count;
        part[n++] = (Part){p->begin + skip, left < end ? left : end, p->at + skip, p->file};
    }
    qsort(part, n, sizeof *part, by_begin);
    for (size_t i = 0; i < n && !wrong; at = wrong ? at : part[i++].to) {
        if (part[i].from > at) wrong = "missing";
        else if (part[i].from < at) wrong = "overlap", at = part[i].from;
    }
    if (!wrong && at < end) wrong = "missing";
    for (size_t i = 0; i < n && !wrong; i++) {
        size_t want = part[i].to - part[i].from;
        size_t got = shard_read(c->files, part[i].file, part[i].at, out + (part[i].from - begin), want);
        if (got != want) wrong = "truncated", at = part[i].from + got;
    }
    if (wrong) snprintf(why, why_size, "tensor %s, element %zu: %s", tensor, at, wrong);
    free(part);
    return !wrong;
}

bool load_columns(const Checkpoint *c, const char *tensor, size_t rows, size_t cols, size_t begin, size_t end,
                  float *out, char *why, size_t why_size)
{
    bool ok = true;
    for (size_t r = 0; r < rows && ok; r++, out += end - begin)
        ok = load_slice(c, tensor, begin + r * cols, end + r * cols, out, why, why_size);
    return ok;
}
