// Rung 3: the softmax in one pass over the keys, so that no row of scores is kept anywhere.
//
// The maximum m, the denominator l and the unfinished output o of a query are carried from tile to tile; when a
// tile moves the maximum, what is there shrinks (Milakov & Gimelshein, arXiv 1805.02867):
//
//   m' = max(m, scores),  p = exp(score - m'),  l = l e^(m - m') + sum p,  o = o e^(m - m') + p v;  out = o / l
//
// Shared memory no longer grows with T: it holds a tile of keys and one of values, and there is room for 32
// queries, 8 a warp, that share them. So of k and v an eighth of rung 2's bytes are fetched. What is left: each
// multiply-add needs a number of its own from shared memory, and a warp starts 32 of them at a time. That is a
// small part of what the tensor cores can do.
#include "ladder.h"

enum { WARPS = 4, EACH = 8, ROWS = WARPS * EACH, TILE = 32, LANES = 32 };

// Rows j0 .. j0 + 31 of k or v; those from s.T on are zeros.
template <int D>
static __device__ inline void load_tile(B16 (*tile)[D + 2], const B16 *from, LadderShape s, int b, int h, int j0)
{
    for (int i = (int)threadIdx.x; i < TILE * D / 2; i += (int)blockDim.x) {
        int j = i / (D / 2), d = i % (D / 2) * 2;
        uint32_t two = 0;
        if (j0 + j < s.T) two = *(const uint32_t *)(from + ladder_row(s, b, h, j0 + j) + d);
        *(uint32_t *)&tile[j][d] = two;
    }
}

template <int D>
__global__ void __launch_bounds__(WARPS *LANES)
    online_kernel(B16 *out, const B16 *q, const B16 *k, const B16 *v, LadderShape s)
{
    SHARED16(B16, keys, [TILE][D + 2]);
    SHARED16(B16, values, [TILE][D + 2]);
    SHARED(float, query, [ROWS][D]);
    int lane = (int)threadIdx.x % LANES, row = (int)threadIdx.x / LANES * EACH;
    int b = (int)blockIdx.z, h = (int)blockIdx.y;
    int t0 = ladder_first_query(ROWS), end = ladder_min(t0 + ROWS, s.T);
    float m[EACH], l[EACH] = {}, o[EACH][D / LANES] = {}, scale = 1 / sqrtf((float)D);
    for (int r = 0; r < EACH; r++) m[r] = -INFINITY;
    for (int i = (int)threadIdx.x; i < ROWS * D; i += (int)blockDim.x)
        query[i / D][i % D] = t0 + i / D < s.T ? (float)q[ladder_row(s, b, h, t0 + i / D) + i % D] : 0;

    for (int j0 = 0; j0 < end; j0 += TILE) {
        __syncthreads(); // the tiles before are done with
        load_tile<D>(keys, k, s, b, h, j0);
        load_tile<D>(values, v, s, b, h, j0);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            int t = t0 + row + r;
            float score = j0 + lane <= t ? scale * ladder_dot(query[row + r], keys[lane], D) : -INFINITY;
            float top = fmaxf(m[r], warp_max(score)), p = expf(score - top), shrink = expf(m[r] - top);
            m[r] = top, l[r] = l[r] * shrink + warp_sum(p);
            for (int n = 0; n < D / LANES; n++) o[r][n] *= shrink;
            for (int i = 0; i < TILE; i++) {
                float pi = __shfl_sync(0xffffffffu, p, i);
                for (int n = 0; n < D / LANES; n++) o[r][n] += pi * (float)values[i][lane + LANES * n];
            }
        }
    }
    for (int r = 0; r < EACH && t0 + row + r < s.T; r++)
        for (int n = 0; n < D / LANES; n++)
            out[ladder_row(s, b, h, t0 + row + r) + lane + LANES * n] = B16(o[r][n] / l[r]);
}

bool ladder_online(B16 *out, const B16 *q, const B16 *k, const B16 *v, float *, LadderShape s, cudaStream_t stream)
{
    auto kernel = s.D == 64 ? online_kernel<64> : online_kernel<128>;
    LAUNCH(kernel, ladder_grid(s, ROWS), WARPS * LANES, 0, stream, out, q, k, v, s);
    return true;
}
