// matmul_bf16: the matrix products of training on arrays of bf16, by gemm_bf16.h. The narrow device calls them.
//
//   forward          out  = round(inp weight^T + bias);  with GELU: pre is that, out = round(gelu(pre))
//   backward_input   dinp = round(dout weight),          with GELU: round(dout weight * gelu'(pre))
//   backward_weight  dweight += dout^T inp,  dbias += sums of columns of dout      (fp32)
//
// Names and shapes as in the op table (dev.h). Bits depend neither on threads nor on `room`; a row's do not depend on
// the number of rows, but forward takes another order of sums for up to `few` rows (few_rows.h).
#ifndef MATMUL_BF16_H
#define MATMUL_BF16_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
