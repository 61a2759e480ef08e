#include "flash.h"

//[
enum { LANES = 32, QUERIES = 8, KEYS = 32, MOST = 64 }; // QUERIES: warps of a block, each with a query

// All lanes get the largest or the sum; from 2: of their own four neighbours.
static __device__ float across(float v, bool largest, int from = 16)
{
    for (int by = from; by > 0; by /= 2) {
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

//[
enum { TILE = 16 }; // queries of a warp, and keys at a time

// Numbers `column` and the next one of a row, as one word; zeros behind the last row.
static __device__ uint32_t along_row(const B16 *x, int row, int column, int T)
{
    return row < T ? *(const uint32_t *)(x + (size_t)row * TENSOR_D + column) : 0;
}
// The same number of a row and of the next one.
static __device__ uint32_t along_column(const B16 *x, int row, int column, int T)
{
    const B16 *at = x + (size_t)row * TENSOR_D + column;
    return pack_bf16(row < T ? (float)at[0] : 0, row + 1 < T ? (float)at[TENSOR_D] : 0);
}

static __global__ void tensor_kernel(float *out, float *lse, const B16 *q, const B16 *k, const B16 *v, int T)
{
    int g = (int)threadIdx.x / 4, t2 = (int)threadIdx.x % 4 * 2, t0 = (int)blockIdx.x * TILE;
    size_t head = (size_t)blockIdx.y * (size_t)T;
    q += head * TENSOR_D, k += head * TENSOR_D, v += head * TENSOR_D;
    uint32_t query[4], b[2];
    for (int i = 0; i < 4; i++) query[i] = along_row(q, t0 + g + i % 2 * 8, t2 + i / 2 * 8, T);
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {}, sum[2][4] = {};
    for (int j0 = 0; j0 <= t0; j0 += TILE) {
        float s[2][4] = {}; // s[n]: keys j0 + 8 n .. j0 + 8 n + 7
        for (int n = 0; n < 2; n++) {
            for (int i = 0; i < 2; i++) b[i] = along_row(k, j0 + 8 * n + g, t2 + 8 * i, T);
            mma_m16n8k16_bf16(s[n], query, b, s[n]);
        }
        for (int r = 0; r < 2; r++) { // query t0 + g + 8 r
            float top = m[r], part = 0;
            for (int c = 0; c < 4; c++) {
                float &x = s[c / 2][2 * r + c % 2];
                int j = j0 + c / 2 * 8 + t2 + c % 2;
                x = j <= t0 + g + 8 * r ? x / sqrtf(TENSOR_D) : -INFINITY;
                top = fmaxf(top, x);
            }
            top = across(top, true, 2);
            for (int c = 0; c < 4; c++) part += s[c / 2][2 * r + c % 2] = expf(s[c / 2][2 * r + c % 2] - top);
            float shrink = expf(m[r] - top);
            l[r] = l[r] * shrink + across(part, false, 2);
            m[r] = top;
            for (int i = 0; i < 4; i++) sum[i / 2][2 * r + i % 2] *= shrink;
        }
        // Where a lane has sums of the first product is where it has to have the second one's left operand.
        uint32_t p[4];
        for (int i = 0; i < 4; i++) p[i] = pack_bf16(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
        for (int n = 0; n < 2; n++) {
            for (int i = 0; i < 2; i++) b[i] = along_column(v, j0 + t2 + 8 * i, 8 * n + g, T);
            mma_m16n8k16_bf16(sum[n], p, b, sum[n]);
        }
    }
    for (int r = 0; r < 2 && t0 + g + 8 * r < T; r++) {
        size_t row = head + (size_t)(t0 + g + 8 * r);
        for (int i = 0; i < 4; i++)
            out[row * TENSOR_D + (size_t)(i / 2 * 8 + t2 + i % 2)] = sum[i / 2][2 * r + i % 2] / l[r];
        if (t2 == 0) lse[row] = m[r] + logf(l[r]);
    }
}
//]

void flash_attention_bf16(float *out, float *lse, const B16 *q, const B16 *k, const B16 *v, int heads, int T)
{
    //[
    //+ (void)out, (void)lse, (void)q, (void)k, (void)v, (void)heads, (void)T; // write this
    dim3 grid((unsigned)(T + TILE - 1) / TILE, (unsigned)heads);
    LAUNCH(tensor_kernel, grid, LANES, 0, nullptr, out, lse, q, k, v, T);
    //]
}
