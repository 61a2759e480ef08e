// Piece by piece as the manifest has them, with a count for each element of the slice; columns element by element.
#include "shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool load_slice(const Checkpoint *c, const char *tensor, size_t begin, size_t end, float *out, char *why,
                size_t why_size)
{
    size_t n = end - begin;
    unsigned char *have = calloc(n + 1, 1), *lost = calloc(n + 1, 1);
    for (int i = 0; i < c->n; i++) {
        const Piece *p = &c->piece[i];
        for (size_t e = p->begin; !strcmp(p->tensor, tensor) && e < p->begin + p->count; e++)
            if (e >= begin && e < end) have[e - begin] += have[e - begin] < 2;
    }
    for (int i = 0; i < c->n && !memchr(have, 2, n); i++) {
        const Piece *p = &c->piece[i];
        size_t from = p->begin > begin ? p->begin : begin, to = p->begin + p->count < end ? p->begin + p->count : end;
        if (strcmp(p->tensor, tensor) || from >= to) continue;
        size_t got = shard_read(c->files, p->file, p->at + from - p->begin, &out[from - begin], to - from);
        for (size_t e = from + got; e < to; e++) lost[e - begin] = 1;
    }
    const char *what = NULL;
    size_t at = 0;
    for (; at < n && !what; at++)
        what = have[at] == 0 ? "missing" : have[at] == 2 ? "overlap" : lost[at] ? "truncated" : NULL;
    if (what) snprintf(why, why_size, "%s at %zu of %s", what, begin + at - 1, tensor);
    free(have), free(lost);
    return !what;
}

bool load_columns(const Checkpoint *c, const char *tensor, size_t rows, size_t cols, size_t begin, size_t end,
                  float *out, char *why, size_t why_size)
{
    for (size_t k = begin; k < end; k++)
        for (size_t r = 0; r < rows; r++) {
            size_t e = r * cols + k;
            if (!load_slice(c, tensor, e, e + 1, &out[r * (end - begin) + k - begin], why, why_size)) return false;
        }
    return true;
}
