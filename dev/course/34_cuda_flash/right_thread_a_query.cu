// A thread has a query in registers, one key after another, 16 keys in shared memory; a maximum is taken key
// by key.
#include "flash.h"

template <int D>
static __global__ void kernel(float *out, float *lse, Matrix q, Matrix k, Matrix v, int T)
{
    SHARED(float, keys, [16][D]);
    SHARED(float, values, [16][D]);
    int t0 = (int)blockIdx.x * 32, t = t0 + (int)threadIdx.x;
    size_t head = (size_t)blockIdx.y * (size_t)T * D;
    float own[D], sum[D], m = 0, l = 0;
    for (int d = 0; d < D; d++) own[d] = t < T ? q[head + (size_t)(t * D + d)] : 0, sum[d] = 0;
    for (int j0 = 0; j0 < min(t0 + 32, T); j0 += 16) {
        for (int i = (int)threadIdx.x; i < 16 * D; i += 32) {
            size_t at = head + (size_t)(j0 * D + i);
            keys[i / D][i % D] = j0 + i / D < T ? k[at] : 0;
            values[i / D][i % D] = j0 + i / D < T ? v[at] : 0;
        }
        __syncwarp();
        for (int j = 0; j < 16 && j0 + j <= t; j++) {
            float s = 0;
            for (int d = 0; d < D; d++) s += own[d] * keys[j][d];
            s *= 1 / sqrtf((float)D);
            if (l == 0 || s > m) { // what has been summed shrinks
                float shrink = l == 0 ? 0 : expf(m - s);
                l *= shrink, m = s;
                for (int d = 0; d < D; d++) sum[d] *= shrink;
            }
            float p = expf(s - m);
            l += p;
            for (int d = 0; d < D; d++) sum[d] += p * values[j][d];
        }
        __syncwarp();
    }
    for (int d = 0; d < D && t < T; d++) out[head + (size_t)(t * D + d)] = sum[d] * (1 / l);
    if (t < T) lse[head / D + (size_t)t] = logf(l) + m;
}

void flash_attention(float *out, float *lse, Matrix q, Matrix k, Matrix v, int heads, int T, int D)
{
    dim3 grid((unsigned)(T + 31) / 32, (unsigned)heads);
    if (D == 32) LAUNCH((kernel<32>), grid, 32, 0, nullptr, out, lse, q, k, v, T);
    else LAUNCH((kernel<64>), grid, 32, 0, nullptr, out, lse, q, k, v, T);
}

// bf16: tiles in shared memory, read by ldmatrix; scores and weights go through shared memory too, where a lane has a
// row; the weights are summed as they were rounded.
static __global__ void tensor(float *out, float *lse, const B16 *q, const B16 *k, const B16 *v, int T)
{
    SHARED16(B16, tile, [4][16][16]); // queries, keys, values, weights
    SHARED(float, s, [16][17]);
    SHARED(float, shrink, [16]);
    int lane = (int)threadIdx.x, t0 = (int)blockIdx.x * 16, row = lane / 4, column = lane % 4 * 2;
    size_t head = (size_t)blockIdx.y * (size_t)T;
    const B16 *from[] = {q + head * 16, k + head * 16, v + head * 16};
    uint32_t a[4], b[4];
    float m = -INFINITY, l = 0, sum[8] = {};
    for (int j0 = 0; j0 <= t0; j0 += 16) {
        for (int i = lane; i < 3 * 256; i += 32) {
            int r = (i < 256 ? t0 : j0) + i / 16 % 16;
            tile[i / 256][i / 16 % 16][i % 16] = r < T ? from[i / 256][r * 16 + i % 16] : B16(0.0f);
        }
        __syncwarp();
        ldmatrix_x4(a, &tile[0][lane % 16][lane / 16 * 8]);
        ldmatrix_x4(b, &tile[1][lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
        for (int n = 0; n < 2; n++) {
            float c[4] = {};
            mma_m16n8k16_bf16(c, a, b + 2 * n, c);
            for (int i = 0; i < 4; i++) s[row + i / 2 * 8][8 * n + column + i % 2] = c[i] * 0.25f;
        }
        __syncwarp();
        if (lane < 16) {
            float top = m;
            for (int j = 0; j < 16 && j0 + j <= t0 + lane; j++) top = fmaxf(top, s[lane][j]);
            shrink[lane] = expf(m - top), m = top, l *= shrink[lane];
            for (int j = 0; j < 16; j++) {
                tile[3][lane][j] = __float2bfloat16(j0 + j <= t0 + lane ? expf(s[lane][j] - top) : 0);
                l += (float)tile[3][lane][j];
            }
        }
        __syncwarp();
        ldmatrix_x4(a, &tile[3][lane % 16][lane / 16 * 8]);
        ldmatrix_x4_trans(b, &tile[2][lane % 16][lane / 16 * 8]);
        for (int i = 0; i < 8; i++) sum[i] *= shrink[row + i / 2 % 2 * 8];
        for (int n = 0; n < 2; n++) mma_m16n8k16_bf16(sum + 4 * n, a, b + 2 * n, sum + 4 * n);
        __syncwarp();
    }
    if (lane < 16) shrink[lane] = l;
    __syncwarp();
    for (int i = 0; i < 8; i++) {
        int r = row + i / 2 % 2 * 8;
        if (t0 + r < T) out[(head + (size_t)(t0 + r)) * 16 + (size_t)(i / 4 * 8 + column + i % 2)] = sum[i] / shrink[r];
    }
    if (lane < 16 && t0 + lane < T) lse[head + (size_t)(t0 + lane)] = m + logf(l);
}

void flash_attention_bf16(float *out, float *lse, const B16 *q, const B16 *k, const B16 *v, int heads, int T)
{
    LAUNCH(tensor, dim3((unsigned)(T + 15) / 16, (unsigned)heads), 32, 0, nullptr, out, lse, q, k, v, T);
}
