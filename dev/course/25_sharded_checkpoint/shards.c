#include "shards.h"

#include <stdio.h>
#include <string.h>

// One error line, for example "wte: element 12 is missing". Returns false.
static bool say(char *why, size_t why_size, const char *tensor, size_t element, const char *what)
{
    snprintf(why, why_size, "%s: element %zu is %s", tensor, element, what);
    return false;
}

bool load_slice(const Checkpoint *c, const char *tensor, size_t begin, size_t end, float *out, char *why,
                size_t why_size)
{
    //[
    //+ (void)c, (void)tensor, (void)begin, (void)end, (void)out, (void)why, (void)why_size, (void)say; // write this
    //+ return false;
    for (size_t at = begin; at < end;) {
        const Piece *own = NULL;
        size_t stop = end; // up to here nothing changes: the piece goes on, and no other one begins
        for (int i = 0; i < c->n; i++) {
            const Piece *p = &c->piece[i];
            if (strcmp(p->tensor, tensor) != 0 || p->begin + p->count <= at) continue;
            if (p->begin > at) {
                stop = p->begin < stop ? p->begin : stop;
                continue;
            }
            if (own) return say(why, why_size, tensor, at, "in two pieces, which overlap");
            own = p;
            stop = p->begin + p->count < stop ? p->begin + p->count : stop;
        }
        if (!own) return say(why, why_size, tensor, at, "missing: no piece has it");
        size_t got = shard_read(c->files, own->file, own->at + (at - own->begin), out + (at - begin), stop - at);
        if (got < stop - at) return say(why, why_size, tensor, at + got, "not in its file, which is truncated");
        at = stop;
    }
    return true;
    //]
}

bool load_columns(const Checkpoint *c, const char *tensor, size_t rows, size_t cols, size_t begin, size_t end,
                  float *out, char *why, size_t why_size)
{
    //[
    //+ (void)c, (void)tensor, (void)rows, (void)cols, (void)begin, (void)end, (void)out, (void)why, (void)why_size;
    //+ return false;
    bool ok = true;
    for (size_t r = 0; r < rows && ok; r++) {
        float *row = out + r * (end - begin);
        ok = load_slice(c, tensor, r * cols + begin, r * cols + end, row, why, why_size);
    }
    return ok;
    //]
}
