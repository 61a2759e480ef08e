// ckpt_slice: which elements of a tensor a piece of it holds.
//
// Tensor parallelism cuts a tensor along one axis into parts; sharding cuts a part, as a row-major list of elements,
// into ranges. A slice says both, so it means the same to every layout.
#ifndef CKPT_SLICE_H
#define CKPT_SLICE_H
#include <stdbool.h>
#include <stddef.h>

#include "base/params.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int cut;                // axis along which the tensor is cut into parts; -1: the part is the tensor
    size_t first;           // index along `cut` of the part's first element
    size_t dim[PARAM_DIMS]; // the part's shape; 1 behind the tensor's dimensions
    size_t from, to;        // elements [from, to) of the part
} CkptSlice;

// All of a tensor; its shape has 1 behind its dimensions.
CkptSlice ckpt_slice_whole(const size_t shape[PARAM_DIMS]);
bool ckpt_slice_is_whole(const CkptSlice *slice, const size_t shape[PARAM_DIMS]);
// Whether a slice can be one of a tensor of this shape (whose number of elements must not overflow).
bool ckpt_slice_fits(const CkptSlice *slice, const size_t shape[PARAM_DIMS], int ndim);
// Whether n slices (each fits) in ascending order of (first, from) hold every element of the tensor exactly once.
bool ckpt_slice_tiles(const CkptSlice *slice, int n, const size_t shape[PARAM_DIMS]);
// False: they share no element. True: they may.
bool ckpt_slice_meets(const CkptSlice *a, const CkptSlice *b);
// Copies the elements that both hold from src, which is all of `have`, to their places in dst, which is all of
// `want`. Returns how many.
size_t ckpt_slice_copy(const size_t shape[PARAM_DIMS], const CkptSlice *want, void *dst, const CkptSlice *have,
                       const void *src, size_t elem_bytes);

#ifdef __cplusplus
}
#endif
#endif
