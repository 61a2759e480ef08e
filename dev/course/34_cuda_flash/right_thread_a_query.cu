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
