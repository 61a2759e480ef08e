// narrow: a device that stores weights and activations in 2 bytes, over another one that computes in fp32.
//
// Every op widens its inputs to fp32, calls the inner device and rounds its outputs to nearest even. So
// rounding happens where an op stores, and nowhere else: where a fused GPU kernel would round too. With fp8
// the storage is bf16, and the operands of the matmuls that fp8.h names are cast to 8 bits on their way in.
//
// Where the processor can multiply bf16 numbers, the matmuls of bf16 are not widened: matmul_bf16.c. The widened
// product stays the specification: operands and places of rounding are the same, and sums differ by their order.
// Attention is not widened either (attention_bf16.c), but in pieces and in deterministic mode.
#ifndef NARROW_H
#define NARROW_H
#include "ops/dev.h"
#include "formats/formats.h"
#include "formats/fp8.h"
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
// scratch grows on first use and is kept: at most 8 buffers, each of chunk_floats or of a row for each thread (widened
// attention: one sequence) where that is more.
Dev *narrow_create(Dev *inner, NarrowOptions options);
void narrow_free(Dev *dev);

// Whether a device of X_BF16 multiplies matrices by the processor's bf16 instruction.
bool narrow_hardware(Bf16Products asked);

// ---- the products of the hardware (matmul_bf16.c), on arrays of bf16, by gemm_bf16.h
//
//   forward          out  = round(inp weight^T + bias);  with GELU: pre is that, out = round(gelu(pre))
//   backward_input   dinp = round(dout weight),          with GELU: round(dout weight * gelu'(pre))
//   backward_weight  dweight += dout^T inp,  dbias += sums of columns of dout      (fp32)
//
// Names and shapes as in the op table (dev.h). Bits depend neither on threads nor on `room`; a row's do not depend on
// the number of rows, but forward takes another order of sums for up to `few` rows (dev_cpu.h).

// Room for fp32 sums before they are rounded.
typedef struct {
    int threads;
    float *sums;
    size_t n_floats; // matmul_bf16_room
} MatmulRoom;
// Floats that it should have: as many as help, `most` at most, or the least that it must have where that is more.
size_t matmul_bf16_room(int threads, size_t most);

// pre and bias may be NULL. few: 0, or up to FEW_ROWS.
void matmul_bf16_forward(MatmulRoom room, uint16_t *out, uint16_t *pre, const uint16_t *inp, const uint16_t *weight,
                         const uint16_t *bias, size_t N, size_t C, size_t OC, bool gelu, size_t few);
// pre: NULL without GELU.
void matmul_bf16_backward_input(MatmulRoom room, uint16_t *dinp, const uint16_t *dout, const uint16_t *weight,
                                const uint16_t *pre, size_t N, size_t C, size_t OC);
// dbias may be NULL.
void matmul_bf16_backward_weight(int threads, float *dweight, float *dbias, const uint16_t *dout, const uint16_t *inp,
                                 size_t N, size_t C, size_t OC);

// ---- attention by the same instruction (attention_bf16.c): that of the op table, on arrays of bf16

// Floats of `room` that a thread needs: about T D of them in forward (K and V of one kv head, packed), 3.5 T D in
// backward (K twice, V, and the fp32 sums of dK and dV), and a few blocks of 64 x D.
size_t attention_bf16_room(AttnShape s, bool backward);
void attention_bf16_forward(int threads, float *room, uint16_t *out, float *lse, const uint16_t *q, const uint16_t *k,
                            const uint16_t *v, AttnShape s);
void attention_bf16_backward(int threads, float *room, uint16_t *dq, uint16_t *dk, uint16_t *dv, const uint16_t *dout,
                             const uint16_t *out, const float *lse, const uint16_t *q, const uint16_t *k,
                             const uint16_t *v, AttnShape s);

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
