// narrow: a device that stores weights and activations in 2 bytes, over another one that computes in fp32.
//
//
// Every op widens its inputs to fp32, calls the inner device and rounds its outputs to nearest even. So
// rounding happens where an op stores, and nowhere else: where a fused GPU kernel would round too. With fp8
// the storage is bf16, and the operands of the matmuls that fp8.h names are cast to 8 bits on their way in.
#ifndef NARROW_H
#define NARROW_H
#include "ops/dev.h"
#include "base/formats.h"
#include "ops/fp8.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    XType x_type;          // X_BF16 or X_FP16; fp8 asks for X_BF16
    bool fp8;
    Fp8Scaling scaling;    // of fp8
    int history;           // steps of amax, for FP8_DELAYED
    size_t chunk_floats;   // a scratch buffer's size; 0: 2^21
} NarrowOptions;

// `inner` is a device in host memory with fp32 storage; it stays the caller's and must live longer. The
// scratch grows on first use and is kept: at most 8 buffers, each of chunk_floats or of one row (attention:
// one sequence) where that is more.
Dev *narrow_create(Dev *inner, NarrowOptions options);
void narrow_free(Dev *dev);
// The scales of an fp8 device; NULL for others. Give it its sites once the parameter table is known.
Fp8 *narrow_fp8(Dev *dev);

// ---- for the files that fill the table (narrow.c, narrow_ops.c, narrow_matmul.c)
enum { NARROW_ROOMS = 8, NARROW_PIECE = 4096 };
typedef struct {
    Dev dev; // first: a Dev * is a Narrow *
    Dev *inner;
    Format format;
    Fp8 *fp8;
    size_t chunk_floats;
    float *room[NARROW_ROOMS];
    size_t n_room[NARROW_ROOMS]; // floats
    int32_t *count;              // 0, 1, 2, ...
    size_t n_count;
} Narrow;

// Scratch buffer `room`, at least n floats; what it held is lost when it grows.
float *narrow_room(Narrow *n, int room, size_t n_floats);
// How many of `rows` rows of `width` elements fit a buffer: at least 1.
size_t narrow_rows(const Narrow *n, size_t rows, size_t width);
// (rows, cols) elements, `ld` apart, widened into scratch buffer `room` without gaps. NULL stays NULL.
float *narrow_read(Narrow *n, int room, const X *in, size_t rows, size_t cols, size_t ld);
// The way back, rounded.
void narrow_write(Narrow *n, X *out, const float *in, size_t rows, size_t cols, size_t ld);
// The largest magnitude; NaN when there is one.
float narrow_amax(const Narrow *n, const X *in, size_t n_elems);
void narrow_ops_fill(Dev *dev);
void narrow_matmul_fill(Dev *dev);

static inline const X *narrow_at(const X *x, size_t i)
{
    return x ? (const X *)((const char *)x + 2 * i) : x;
}

static inline X *narrow_to(X *x, size_t i)
{
    return x ? (X *)((char *)x + 2 * i) : x;
}

#ifdef __cplusplus
}
#endif
#endif
