// Not online: the maxima and sums first, the values in a second pass; 32 queries a block, scores of one tile in shared
// memory.
#include "flash.h"

static __global__ void kernel(float *out, float *lse, Matrix q, Matrix k, Matrix v, int T, int D)
{
    SHARED(float, s, [32][33]);
    SHARED(float, rows, [2][32][64]); // queries, and keys or values
    int x = (int)threadIdx.x, y = (int)threadIdx.y, t0 = (int)blockIdx.x * 32, t = t0 + x, own = y * 32 + x;
    size_t head = (size_t)blockIdx.y * (size_t)T;
    float top = -INFINITY, l = 0, sum[8] = {};
    for (int i = own; i < 32 * D; i += 256)
        rows[0][i / D][i % D] = t0 + i / D < T ? q[(head + (size_t)t0) * (size_t)D + (size_t)i] : 0;
    for (int pass = 0; pass < 2; pass++)
        for (int j0 = 0; j0 <= t0; j0 += 32) {
            size_t at = (head + (size_t)j0) * (size_t)D;
            __syncthreads();
            for (int i = own; i < 32 * D; i += 256) rows[1][i / D][i % D] = j0 + i / D < T ? k[at + (size_t)i] : 0;
            __syncthreads();
            for (int j = y; j < 32; j += 8) {
                float dot = 0;
                for (int d = 0; d < D; d++) dot += rows[0][x][d] * rows[1][j][d];
                s[x][j] = j0 + j <= t ? dot / sqrtf((float)D) : -INFINITY;
            }
            __syncthreads();
            if (pass == 0) {
                float before = top;
                for (int j = 0; j < 32; j++) top = fmaxf(top, s[x][j]);
                l *= expf(before - top);
                for (int j = 0; j < 32; j++) l += expf(s[x][j] - top);
                continue;
            }
            for (int i = own; i < 32 * D; i += 256) rows[1][i / D][i % D] = j0 + i / D < T ? v[at + (size_t)i] : 0;
            __syncthreads();
            for (int j = 0; j < 32; j++)
                for (int d = y; d < D; d += 8) sum[d / 8] += expf(s[x][j] - top) / l * rows[1][j][d];
        }
    for (int d = y; d < D && t < T; d += 8) out[(head + (size_t)t) * (size_t)D + (size_t)d] = sum[d / 8];
    if (t < T && y == 0) lse[head + (size_t)t] = top + logf(l);
}

void flash_attention(float *out, float *lse, Matrix q, Matrix k, Matrix v, int heads, int T, int D)
{
    LAUNCH(kernel, dim3((unsigned)(T + 31) / 32, (unsigned)heads), dim3(32, 8), 0, nullptr, out, lse, q, k, v, T, D);
}

// bf16: a thread a query, the products in fp32; nothing is rounded.
static __global__ void row16(float *out, float *lse, const B16 *q, const B16 *k, const B16 *v, int T)
{
    int t = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    size_t head = (size_t)blockIdx.y * (size_t)T;
    if (t >= T) return;
    q += (head + (size_t)t) * 16, k += head * 16, v += head * 16, out += (head + (size_t)t) * 16;
    float m = -INFINITY, l = 0, sum[16] = {};
    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j <= t; j++) {
            float s = 0;
            for (int d = 0; d < 16; d++) s += (float)q[d] * (float)k[j * 16 + d];
            if (pass == 0) m = fmaxf(m, s / 4);
            else l += s = expf(s / 4 - m);
            for (int d = 0; d < 16 && pass == 1; d++) sum[d] += s * (float)v[j * 16 + d];
        }
    for (int d = 0; d < 16; d++) out[d] = sum[d] / l;
    lse[head + (size_t)t] = m + logf(l);
}

void flash_attention_bf16(float *out, float *lse, const B16 *q, const B16 *k, const B16 *v, int heads, int T)
{
    LAUNCH(row16, dim3((unsigned)(T + 31) / 32, (unsigned)heads), 32, 0, nullptr, out, lse, q, k, v, T);
}
