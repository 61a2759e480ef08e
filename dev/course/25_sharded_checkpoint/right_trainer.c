// The trainer's slices: a rank's part is a tensor of its own, which the pieces must tile. Where they do not, the search
// for the first element concerned is not the trainer's: it refuses the checkpoint whole.
#include "shards.h"

#include "ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool say(char *why, size_t why_size, const char *tensor, size_t element, const char *what)
{
    snprintf(why, why_size, "%s: element %zu is %s", tensor, element, what);
    return false;
}

// The pieces' elements of [begin, end), counted from begin, in ascending order. Returns how many there are.
static int slices_of(const Checkpoint *c, const char *tensor, size_t begin, size_t end, CkptSlice *slice, const Piece **from)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const Piece *p = &c->piece[i];
        size_t low = p->begin > begin ? p->begin : begin, high = p->begin + p->count < end ? p->begin + p->count : end;
        if (strcmp(p->tensor, tensor) || low >= high) continue;
        int at = n++;
        for (; at > 0 && slice[at - 1].from > low - begin; at--) slice[at] = slice[at - 1], from[at] = from[at - 1];
        slice[at] = (CkptSlice){.cut = -1, .dim = {end - begin, 1}, .from = low - begin, .to = high - begin};
        from[at] = p;
    }
    return n;
}

bool load_slice(const Checkpoint *c, const char *tensor, size_t begin, size_t end, float *out, char *why, size_t why_size)
{
    size_t shape[2] = {end - begin, 1}, next = 0;
    CkptSlice whole = ckpt_slice_whole(shape), *slice = malloc((size_t)(c->n + 1) * sizeof *slice);
    const Piece **from = malloc((size_t)(c->n + 1) * sizeof *from);
    int n = slices_of(c, tensor, begin, end, slice, from);
    bool ok = true, tiles = ckpt_slice_tiles(slice, n, shape);
    for (int i = 0; i < n && ok; i++) {
        size_t count = slice[i].to - slice[i].from;
        if (!tiles && slice[i].from != next) {
            bool gap = slice[i].from > next;
            ok = say(why, why_size, tensor, begin + (gap ? next : slice[i].from), gap ? "missing" : "in two pieces: overlap");
            break;
        }
        if (i + 1 < n && slice[i + 1].from < slice[i].to) count = slice[i + 1].from - slice[i].from; // up to the overlap
        float *part = malloc(count * sizeof *part);
        size_t got = shard_read(c->files, from[i]->file, from[i]->at + (begin + slice[i].from - from[i]->begin), part, count);
        if (got < count) ok = say(why, why_size, tensor, begin + slice[i].from + got, "truncated");
        else if (tiles) ckpt_slice_copy(shape, &whole, out, &slice[i], part, sizeof *part);
        next = slice[i].to;
        free(part);
    }
    if (ok && !tiles) ok = say(why, why_size, tensor, begin + next, "missing");
    free(slice), free(from);
    return ok;
}

bool load_columns(const Checkpoint *c, const char *tensor, size_t rows, size_t cols, size_t begin, size_t end, float *out,
                  char *why, size_t why_size)
{
    size_t n = end - begin;
    Param part = {.ndim = 2, .cut = 1, .first = begin, .dim = {rows, n}, .whole = {rows, cols}};
    for (size_t r = 0; r < rows && n; r++) {
        size_t at = params_whole_index(&part, r * n);
        if (!load_slice(c, tensor, at, at + n, out + r * n, why, why_size)) return false;
    }
    return true;
}
