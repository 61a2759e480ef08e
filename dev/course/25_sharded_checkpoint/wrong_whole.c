// says: elements were read; the slice has
// Reads whole pieces, and keeps what it needs.
#include "shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool load_slice(const Checkpoint *c, const char *tensor, size_t begin, size_t end, float *out, char *why,
                size_t why_size)
{
    size_t found = 0;
    for (int i = 0; i < c->n; i++) {
        const Piece *p = &c->piece[i];
        if (strcmp(p->tensor, tensor) != 0) continue;
        float *all = malloc((p->count + 1) * sizeof *all);
        shard_read(c->files, p->file, p->at, all, p->count);
        for (size_t e = 0; e < p->count; e++)
            if (p->begin + e >= begin && p->begin + e < end) out[p->begin + e - begin] = all[e], found++;
        free(all);
    }
    snprintf(why, why_size, "%s: %zu elements", tensor, found);
    return found == end - begin;
}

bool load_columns(const Checkpoint *c, const char *tensor, size_t rows, size_t cols, size_t begin, size_t end,
                  float *out, char *why, size_t why_size)
{
    bool ok = true;
    for (size_t r = 0; r < rows; r++)
        ok = load_slice(c, tensor, r * cols + begin, r * cols + end, out + r * (end - begin), why, why_size) && ok;
    return ok;
}
