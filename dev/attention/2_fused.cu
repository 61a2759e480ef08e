// Rung 2: one kernel; the scores never leave the processor.
//
// A block has 4 queries, a warp each, and keeps their scores in shared memory: a whole row, because the softmax
// wants its maximum before the first exp. Keys come in tiles of 32 that the block copies once for its 4 queries, a
// lane a key; then the values in the same way, a lane a few channels. So of the scores nothing passes through
// memory, and of k and v a quarter of what single queries would fetch. What is left: a row of scores is 4 T bytes,
// so the rows that a block can have, and T itself, end with the shared memory; and all of k has been fetched
// before the first value is. A tile's rows are 2 numbers, one bank, longer than they need be: lanes that read one
// column read 32 banks.
#include "ladder.h"

enum { WARPS = 4, TILE = 32, LANES = 32 };

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
    fused_kernel(B16 *out, const B16 *q, const B16 *k, const B16 *v, LadderShape s)
{
    DYN_SHARED(float, scores); // (WARPS, T)
    SHARED16(B16, tile, [TILE][D + 2]);
    SHARED(float, query, [WARPS][D]);
    int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES, b = (int)blockIdx.z, h = (int)blockIdx.y;
    int t0 = ladder_first_query(WARPS), t = t0 + warp, end = ladder_min(t0 + WARPS, s.T);
    float *row = scores + (size_t)warp * s.T, scale = 1 / sqrtf((float)D);
    float top = -INFINITY, sum = 0, o[D / LANES] = {};
    for (int d = lane; d < D; d += LANES) query[warp][d] = t < s.T ? (float)q[ladder_row(s, b, h, t) + d] : 0;

    for (int j0 = 0; j0 < end; j0 += TILE) {
        __syncthreads(); // the tile before is done with
        load_tile<D>(tile, k, s, b, h, j0);
        __syncthreads();
        int j = j0 + lane;
        if (t < s.T && j <= t) top = fmaxf(top, row[j] = scale * ladder_dot(query[warp], tile[lane], D));
    }
    top = warp_max(top);
    for (int j = lane; t < s.T && j <= t; j += LANES) sum += row[j] = expf(row[j] - top);
    sum = warp_sum(sum);
    __syncwarp(); // the lanes see each other's scores

    for (int j0 = 0; j0 < end; j0 += TILE) {
        __syncthreads();
        load_tile<D>(tile, v, s, b, h, j0);
        __syncthreads();
        for (int i = 0; i < TILE && j0 + i <= t && t < s.T; i++)
            for (int n = 0; n < D / LANES; n++) o[n] += row[j0 + i] * (float)tile[i][lane + LANES * n];
    }
    for (int n = 0; n < D / LANES && t < s.T; n++) out[ladder_row(s, b, h, t) + lane + LANES * n] = B16(o[n] / sum);
}

template <int D>
static bool fused(B16 *out, const B16 *q, const B16 *k, const B16 *v, LadderShape s, cudaStream_t stream)
{
    int bytes = WARPS * s.T * (int)sizeof(float), most = 0;
    GPU_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    if (bytes > most - (TILE * (D + 2) * 2 + WARPS * D * 4)) return false;
    GPU_CHECK(cudaFuncSetAttribute(fused_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    LAUNCH((fused_kernel<D>), ladder_grid(s, WARPS), WARPS * LANES, (size_t)bytes, stream, out, q, k, v, s);
    return true;
}

bool ladder_fused(B16 *out, const B16 *q, const B16 *k, const B16 *v, float *, LadderShape s, cudaStream_t stream)
{
    return s.D == 64 ? fused<64>(out, q, k, v, s, stream) : fused<128>(out, q, k, v, s, stream);
}
