// adamw8bit: AdamW with its two moments in one byte each, on the GPU. The twin of adamw8bit.c, where format and
// formulas are.
//
// A block of threads has one block of 2048 elements. The moments stay in registers between the update and the search
// for their codes, which has to know the largest of them first. The two books of codes, and the middles between codes,
// are made by adamw8bit_codes once, and copied to shared memory by every block.
// The invariant: the same arithmetic as on the CPU; which code is nearest is asked of the same middles.
#include "ops/dev_cpu.h"
#include "ops/ops_gpu.h"

#include <cmath>

namespace {

enum { CODES = 256, BOOK = 2 * CODES, THREADS = 256, EACH = UPDATE_BLOCK / THREADS };

__device__ inline unsigned nearest(const float *middle, float x)
{
    unsigned i = 0;
    for (unsigned step = CODES / 2; step; step /= 2) i += x > middle[i + step - 1] ? step : 0;
    return i;
}

// Codes of x (EACH a thread), which belong to elements t, t + THREADS, ...; the block's scale is returned.
__device__ inline float encode(uint8_t *out, const float *x, const float *book, int n, bool keep)
{
    float scale = 0;
    int t = (int)threadIdx.x;
    for (int k = 0; k < EACH; k++)
        if (t + k * THREADS < n) scale = fmaxf(scale, fabsf(x[k]));
    scale = block_max(scale);
    for (int k = 0; k < EACH; k++)
        if (t + k * THREADS < n) {
            unsigned c = nearest(book + CODES, scale > 0 ? x[k] / scale : 0);
            out[t + k * THREADS] = (uint8_t)(keep && c == 0 && x[k] > 0 ? 1 : c);
        }
    return scale;
}

// books: codes of m, their middles, codes of v, their middles
__global__ void __launch_bounds__(THREADS)
    adamw8bit_kernel(float *weight, uint8_t *m8, float *m_scale, uint8_t *v8, float *v_scale, float *grad,
                     const float *books, size_t n, Update u, float c1, float c2)
{
    SHARED(float, book, [2 * BOOK]);
    int t = (int)threadIdx.x;
    for (int i = t; i < 2 * BOOK; i += THREADS) book[i] = books[i];
    __syncthreads();
    size_t at = (size_t)blockIdx.x * UPDATE_BLOCK, left = n - at;
    int n_block = left < UPDATE_BLOCK ? (int)left : UPDATE_BLOCK;
    float m[EACH], v[EACH], old_m = m_scale[blockIdx.x], old_v = v_scale[blockIdx.x];
    float shrink = 1 - u.lr * u.weight_decay;
    for (int k = 0; k < EACH; k++) {
        m[k] = v[k] = 0;
        if (t + k * THREADS >= n_block) continue;
        size_t i = at + (size_t)(t + k * THREADS);
        float g = grad[i] * u.grad_scale;
        m[k] = u.beta1 * (book[m8[i]] * old_m) + (1 - u.beta1) * g;
        v[k] = u.beta2 * (book[BOOK + v8[i]] * old_v) + (1 - u.beta2) * g * g;
        weight[i] = weight[i] * shrink - u.lr * (m[k] * c1) / (sqrtf(v[k] * c2) + u.eps);
        grad[i] = 0;
    }
    float new_m = encode(m8 + at, m, book, n_block, false);
    float new_v = encode(v8 + at, v, book + BOOK, n_block, book[BOOK] == 0);
    if (t == 0) m_scale[blockIdx.x] = new_m, v_scale[blockIdx.x] = new_v; // behind barriers: all have read the old
}

void adamw8bit(Dev *dev, float *weight, uint8_t *m, float *m_scale, uint8_t *v, float *v_scale, float *grad, size_t n,
               Update u)
{
    DevCuda *d = ops_gpu(dev);
    float c1 = (float)(1 / (1 - pow(u.beta1, u.step))), c2 = (float)(1 / (1 - pow(u.beta2, u.step)));
    if (n == 0) return;
    if (!d->books) {
        float books[2 * BOOK];
        for (int i = 0; i < 2; i++) {
            float *code = books + i * BOOK;
            adamw8bit_codes(i == 0, code);
            for (int k = 0; k + 1 < CODES; k++) code[CODES + k] = (code[k] + code[k + 1]) / 2;
            code[BOOK - 1] = 0; // there is one middle less
        }
        GPU_CHECK(cudaMalloc(&d->books, sizeof books));
        dev->to_device(dev, d->books, books, sizeof books);
    }
    LAUNCH(adamw8bit_kernel, (unsigned)((n + UPDATE_BLOCK - 1) / UPDATE_BLOCK), (unsigned)THREADS, 0, d->stream, weight,
           m, m_scale, v, v_scale, grad, (const float *)d->books, n, u, c1, c2);
}

} // namespace

void adamw8bit_cuda_fill(Dev *dev)
{
    dev->adamw8bit = adamw8bit;
}
