#include "flash.h"

//[
enum { LANES = 32, QUERIES = 8, KEYS = 32, MOST = 64 }; // QUERIES: warps of a block, each with a query

static __device__ float across(float v, bool largest) // all lanes get the largest or the sum
{
    for (int by = 16; by > 0; by /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, v, by);
        v = largest ? fmaxf(v, other) : v + other;
    }
    return v;
}

static __global__ void flash_kernel(float *out, float *lse, Matrix q, Matrix k, Matrix v, int T, int D)
{
    SHARED(float, query, [QUERIES][MOST]);
    SHARED(float, keys, [KEYS][MOST + 1]); // 1 more: the lanes' rows begin in different banks
    SHARED(float, values, [KEYS][MOST]);
    int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES;
    int t0 = (int)blockIdx.x * QUERIES, t = t0 + warp, end = min(t0 + QUERIES, T);
    size_t head = (size_t)blockIdx.y * (size_t)T; // its first row
    float m = -INFINITY, l = 0, sum[MOST / LANES] = {};
    for (int d = lane; d < D; d += LANES) query[warp][d] = t < T ? q[(head + (size_t)t) * (size_t)D + (size_t)d] : 0;
    for (int j0 = 0; j0 < end; j0 += KEYS) {
        __syncthreads(); // the last tile has been used
        for (int i = (int)threadIdx.x; i < KEYS * D; i += (int)blockDim.x) {
            bool there = j0 + i / D < T;
            size_t at = (head + (size_t)j0) * (size_t)D + (size_t)i;
            keys[i / D][i % D] = there ? k[at] : 0;
            values[i / D][i % D] = there ? v[at] : 0;
        }
        __syncthreads(); // this one is there
        if (j0 > t) continue; // a lane has key j0 + lane; key j0 is one that the query sees
        float s = 0;
        for (int d = 0; d < D; d++) s += query[warp][d] * keys[lane][d];
        s = j0 + lane <= t ? s / sqrtf((float)D) : -INFINITY;
        float top = fmaxf(m, across(s, true)), shrink = expf(m - top), p = expf(s - top);
        l = l * shrink + across(p, false);
        m = top;
        for (int i = 0; i < D / LANES; i++) {
            sum[i] *= shrink;
            for (int j = 0; j < KEYS; j++) sum[i] += __shfl_sync(0xffffffffu, p, j) * values[j][i * LANES + lane];
        }
    }
    if (t >= T) return;
    for (int i = 0; i < D / LANES; i++)
        out[(head + (size_t)t) * (size_t)D + (size_t)(i * LANES + lane)] = sum[i] / l;
    if (lane == 0) lse[head + (size_t)t] = m + logf(l);
}
//]

void flash_attention(float *out, float *lse, Matrix q, Matrix k, Matrix v, int heads, int T, int D)
{
    //[
    //+ (void)out, (void)lse, (void)q, (void)k, (void)v, (void)heads, (void)T, (void)D; // write this
    dim3 grid((unsigned)(T + QUERIES - 1) / QUERIES, (unsigned)heads);
    LAUNCH(flash_kernel, grid, QUERIES * LANES, 0, nullptr, out, lse, q, k, v, T, D);
    //]
}
