// says: serves all its queries
// Right, and keeps no scores, but every query reads all its keys and values itself.
#include "flash.h"

static __global__ void row(float *out, float *lse, Matrix q, Matrix k, Matrix v, int T, int D)
{
    size_t head = (size_t)blockIdx.y * (size_t)T, n = (size_t)D, row = head + blockIdx.x, d = threadIdx.x;
    float m = -INFINITY, l = 0, sum = 0;
    for (size_t j = head; j <= row; j++) {
        float s = 0;
        for (size_t i = 0; i < n; i++) s += q[row * n + i] * k[j * n + i] / sqrtf((float)D);
        float top = fmaxf(m, s), p = expf(s - top), shrink = expf(m - top);
        l = l * shrink + p, sum = sum * shrink + p * v[j * n + d], m = top;
    }
    out[row * n + d] = sum / l;
    if (d == 0) lse[row] = m + logf(l);
}

void flash_attention(float *out, float *lse, Matrix q, Matrix k, Matrix v, int heads, int T, int D)
{
    LAUNCH(row, dim3((unsigned)T, (unsigned)heads), (unsigned)D, 0, nullptr, out, lse, q, k, v, T, D);
}

void flash_attention_bf16(float *, float *, const B16 *, const B16 *, const B16 *, int, int) {}
