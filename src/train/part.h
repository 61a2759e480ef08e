// part: which elements of a whole tensor an array holds.
//
// Seen as a matrix of `width` columns (its leading axes are the rows), a tensor is cut into ranges of rows and of
// columns; the part is every chosen row's chosen columns, in the order of the ranges. No layout needs more:
//
//   tensor parallelism     columns: heads of q, gate and up
//   sequence, context      rows: tokens, row sample * T + position
//   data parallelism       rows: samples
//   ZeRO                   width 1: elements
#ifndef PART_H
#define PART_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/safetensors.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PART_DIMS = 4 };

typedef struct {
    size_t first, count;
} PartRange;

typedef struct {
    PartRange *range;
    size_t n, held; // ranges, and what they add up to
} PartList;

typedef struct {
    int ndim;
    size_t shape[PART_DIMS], width; // of the whole
    PartList rows, columns;
    // Beside where: when it was computed, and how exactly.
    long at;          // ascends in the order of execution
    double error;     // what rounding alone is expected to do to it, relative to its size; 0: not known
    SafeDtype stored; // the type it was rounded to when it was stored, be the file's what it may
} Part;

// Of `shape`; no rows and no columns yet.
Part part_make(int ndim, const size_t *shape, size_t width);
// Appends a range, joining it to the last one where they touch.
void part_rows(Part *part, size_t first, size_t count);
void part_columns(Part *part, size_t first, size_t count);
size_t part_elems(const Part *part);       // that it holds
size_t part_whole_elems(const Part *part); // of the whole tensor
void part_free(Part *part);

// As JSON, for a file's metadata. free() it.
char *part_text(const Part *part);
// The way back. False: the text is not such a part, or reaches beyond the whole.
bool part_parse(Part *part, const char *text);

// Puts data (part_elems elements of n_bytes each) where it belongs in whole. seen (part_whole_elems) counts, up to 255,
// how often each element has come. False: an element that had come before has another value now.
bool part_place(const Part *part, void *whole, uint8_t *seen, const void *data, size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
