// shards: loads a rank's part of a tensor from the files of any number of other ranks.
#ifndef SHARDS_H
#define SHARDS_H
#include <stdbool.h>
#include <stddef.h>

// A line of the manifest: elements begin to begin + count - 1 of a tensor are in a file, from its element `at` on.
// Lines are in no particular order. count may be 0.
typedef struct {
    const char *tensor;
    size_t begin, count;
    int file;
    size_t at;
} Piece;

typedef struct {
    const Piece *piece;
    int n;
    struct Files *files;
} Checkpoint;

// Reads count elements of a file from element `at` on into out. Returns how many there were: fewer where the file ends
// too early, 0 where there is no such file. The grader has it.
size_t shard_read(struct Files *files, int file, size_t at, float *out, size_t count);

// Elements begin to end - 1 of a tensor into out (end - begin). True when all of them were read. Otherwise false, and
// in why (why_size bytes) a line with the tensor's name, the number of the first element concerned, and a word of
// these:
//
//     missing      no piece has the element
//     overlap      two pieces have the element
//     truncated    its file ends before the element, or is not there
//
// Elements outside of begin to end - 1 are the matter of other ranks: they are not read, and not checked.
bool load_slice(const Checkpoint *c, const char *tensor, size_t begin, size_t end, float *out, char *why,
                size_t why_size);

// Columns begin to end - 1 of a matrix (rows, cols), which the manifest describes row after row, into out
// (rows, end - begin). The result and why as above; elements are numbered as in the manifest.
bool load_columns(const Checkpoint *c, const char *tensor, size_t rows, size_t cols, size_t begin, size_t end,
                  float *out, char *why, size_t why_size);
#endif
