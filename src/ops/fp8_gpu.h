// fp8_gpu: operands of 8-bit products on the GPU.
//
// matmul.cu makes products of them, dev_cuda.cu opens them; scales and their history are fp8.h's.
#ifndef FP8_GPU_H
#define FP8_GPU_H
#ifdef __cplusplus
#include "ops/fp8.h"
#include "base/gpu.h"

struct DevCuda;

// Gives the device its scales, dev->fp8; and frees them.
void fp8_gpu_open(DevCuda *d, Fp8Scaling scaling, int history);
void fp8_gpu_close(DevCuda *d);
bool fp8_gpu_runs(const DevCuda *d, int site);
// Rows are filled up to this many.
inline size_t fp8_gpu_padded(size_t n)
{
    return (n + 15) / 16 * 16;
}
// out = x (rows, cols) in 8 bits, rows as they are (cols a multiple of 16); or, turn: (cols, fp8_gpu_padded(rows)),
// where zeros follow. `number`: 0 and 1, the two operands of a product. Returns 1 / scale, in device memory until the
// next product.
const float *fp8_gpu_operand(DevCuda *d, void *out, int number, int site, Fp8Role role, const __nv_bfloat16 *x,
                             size_t rows, size_t cols, bool turn);
#endif
#endif
