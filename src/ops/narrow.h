// narrow: a device that stores weights and activations in 2 bytes, over another one that computes in fp32.
//
// Every op widens its inputs to fp32, calls the inner device and rounds its outputs to nearest even. So
// rounding happens where an op stores, and nowhere else: where a fused GPU kernel would round too. With fp8
// the storage is bf16, and the operands of the matmuls that fp8.h names are cast to 8 bits on their way in.
//
// Where the processor can multiply bf16 numbers, the matmuls of bf16 are not widened: matmul_bf16.h. The widened
// product stays the specification: operands and places of rounding are the same, and sums differ by their order.
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
    Bf16Products products; // of X_BF16 without fp8; PRODUCTS_HARDWARE dies where the processor has no instruction
} NarrowOptions;

// `inner` is the CPU device (dev_cpu.h), which stores fp32; it stays the caller's and must live longer. The
// scratch grows on first use and is kept: at most 8 buffers, each of chunk_floats or of one row (attention:
// one sequence) where that is more.
Dev *narrow_create(Dev *inner, NarrowOptions options);
void narrow_free(Dev *dev);

// Whether a device of X_BF16 multiplies matrices by the processor's bf16 instruction.
bool narrow_hardware(Bf16Products asked);

// ---- for the tests, which look into the scratch
enum { NARROW_ROOMS = 8 };
typedef struct {
    Dev dev; // first: a Dev * is a Narrow *
    Dev *inner;
    Format format;
    bool hardware; // products by gemm_bf16.h
    Fp8 *fp8;
    size_t chunk_floats;
    float *room[NARROW_ROOMS];
    size_t n_room[NARROW_ROOMS]; // floats
    int32_t *count;              // 0, 1, 2, ...
    size_t n_count;
} Narrow;

// The largest magnitude; NaN when there is one.
float narrow_amax(const Narrow *n, const X *in, size_t n_elems);

#ifdef __cplusplus
}
#endif
#endif
