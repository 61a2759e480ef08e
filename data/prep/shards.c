// shards: tokens go into numbered files, and a new one begins when the last is full.
//
// Invariant: the files in the order of their names hold the tokens that were added, in their order, and nothing else
// that a pattern NAME_*.bin would find. A document may continue in the next file: the reader takes all of them as one
// sequence (dataset.c), so where the borders lie never changes what is trained on.
//
// A run with fewer tokens than the one before it leaves fewer files; those after the last one must be removed, because
// a pattern would find them. They are deleted up to the first number that is not there.
//
// Rejected: one file of any size (the header of the format counts tokens in 31 bits), and shards that end with a
// document (their sizes would differ, and a document larger than a shard would need an answer).
#include "data/prep/shards.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

struct Shards {
    char dir[PATH_MAX], path[PATH_MAX + 64];
    const char *name;
    int vocab, n; // files so far
    DatasetType type;
    int64_t most, in_shard, n_tokens;
    DatasetWriter *w; // of file n - 1; NULL: the next token begins a new one
    bool alone;       // nobody else writes files of this name
};

static void name_file(Shards *s, int number)
{
    if (snprintf(s->path, sizeof s->path, "%s/%s_%06d.bin", s->dir, s->name, number) >= PATH_MAX)
        die("%s: the name is too long", s->dir);
}

Shards *shards_open(const char *dir, const char *name, int vocab, DatasetType type, int64_t most)
{
    Shards *s = calloc(1, sizeof *s);
    if (!s) die("memory: no room to write shards");
    if (snprintf(s->dir, sizeof s->dir, "%s", dir) >= PATH_MAX) die("%s: the name is too long", dir);
    s->name = name;
    s->vocab = vocab;
    s->type = type;
    s->most = most;
    s->alone = true;
    return s;
}

Shards *shards_resume(const char *dir, const char *name, int vocab, int token_bytes, int64_t most, int first, int end)
{
    Shards *s = shards_open(dir, name, vocab, token_bytes == 2 ? DATASET_U16 : DATASET_U32, most);
    struct stat st;
    s->alone = false;
    for (s->n = first; s->n < end; s->n++) { // a file gets its name when it is whole
        name_file(s, s->n);
        if (stat(s->path, &st) != 0 || st.st_size != DATASET_HEADER_BYTES + most * token_bytes) break;
    }
    s->n_tokens = s->n * most;
    return s;
}

void shards_add(Shards *s, const int32_t *id, size_t n)
{
    s->n_tokens += (int64_t)n;
    for (size_t at = 0, take; at < n; at += take) {
        if (s->w && s->in_shard == s->most) {
            dataset_writer_finish(s->w);
            s->w = NULL;
        }
        if (!s->w) {
            name_file(s, s->n++);
            s->w = dataset_writer_open(s->path, s->vocab, s->type);
            s->in_shard = 0;
        }
        int64_t room = s->most - s->in_shard;
        take = n - at < (size_t)room ? n - at : (size_t)room;
        dataset_writer_append(s->w, id + at, take);
        s->in_shard += (int64_t)take;
    }
}

int64_t shards_tokens(const Shards *s)
{
    return s->n_tokens;
}

int shards_close(Shards *s)
{
    int n = s->n, old = s->n;
    if (s->w) dataset_writer_finish(s->w);
    if (s->alone) do name_file(s, old++);
    while (unlink(s->path) == 0);
    free(s);
    return n;
}
