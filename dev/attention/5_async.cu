// Rung 5: copies that run beside the multiplying, and tiles that do not stand in each other's way.
//
// cp.async copies 16 bytes from memory to shared memory without a register, and the thread continues at once. Keys
// and values have two places: while one tile is multiplied, the next one is on its way to the other. One barrier a
// tile does for both directions: after it the copies of all warps have landed, and all warps are done with the
// tile before, whose place the next copies take. The pieces of a row, 16 bytes each, are swapped by the row's
// number, number ^ row % 8: the 8 rows that ldmatrix reads at once lie in 8 different groups of 4 banks, and no
// one waits. (Rows that are 16 bytes longer would do too, for a sixteenth more memory at D = 128, an eighth at
// 64.) What is left for src/ops/flash.cu: tiles that a warp's queries do not see, the scale and the base 2 within one
// multiply-add, documents, grouped heads, dropout, and backward.
#include "ladder.h"

enum { WARPS = 4, ROWS = WARPS * 16, TILE = 64, LANES = 32 };

// Where piece `number` (8 numbers, 16 bytes) of a row lies in its tile. Piece 2 i + number lies at that ^ 16 i, so
// what depends on the lane is computed once, and the many places of a tile cost few registers.
template <int D> static __device__ inline int piece(int row, int number)
{
    return row * D + (number ^ row % 8) * 8;
}

// 64 rows from j0 on; those from s.T on are zeros. They are there when the caller has committed and waited.
template <int D>
static __device__ inline void load_tile(B16 *tile, const B16 *from, LadderShape s, int b, int h, int j0)
{
    GPU_NO_UNROLL
    for (int i = (int)threadIdx.x; i < TILE * D / 8; i += (int)blockDim.x) {
        int j = i / (D / 8), number = i % (D / 8);
        bool there = j0 + j < s.T;
        cp_async16(tile + piece<D>(j, number), from + (there ? ladder_row(s, b, h, j0 + j) + number * 8 : 0),
                   there ? 16 : 0);
    }
}

// Row r (0 or 1) of the lane, query t: scores to probabilities. By how much shrinks what has been summed.
static __device__ inline float softmax_row(float score[TILE / 8][4], int r, float &m, float &l, float scale, int j0,
                                           int t)
{
    float top = m, sum = 0;
    int column = j0 + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < TILE / 4; n++) {
        float &x = score[n / 2][2 * r + n % 2];
        x = column + n / 2 * 8 + n % 2 <= t ? x * scale : -INFINITY;
        top = fmaxf(top, x);
    }
    for (int by = 1; by < 4; by *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, by));
#pragma unroll
    for (int n = 0; n < TILE / 4; n++) sum += score[n / 2][2 * r + n % 2] = expf(score[n / 2][2 * r + n % 2] - top);
    for (int by = 1; by < 4; by *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    float shrink = expf(m - top);
    m = top, l = l * shrink + sum;
    return shrink;
}

template <int D>
__global__ void __launch_bounds__(WARPS *LANES)
    async_kernel(B16 *out, const B16 *q, const B16 *k, const B16 *v, LadderShape s)
{
    DYN_SHARED(B16, query); // Q (64, D), and twice K and V
    B16 *const tiles = query + ROWS * D;
    int lane = (int)threadIdx.x % LANES, row = (int)threadIdx.x / LANES * 16;
    int b = (int)blockIdx.z, h = (int)blockIdx.y;
    int t0 = ladder_first_query(ROWS), end = ladder_min(t0 + ROWS, s.T), own = t0 + row + lane / 4;
    const int left = piece<D>(row + lane % 16, lane / 16), across = piece<D>(lane % 16, lane / 16);
    const int right = piece<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    float sum[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {}, scale = 1 / sqrtf((float)D);
    load_tile<D>(query, q, s, b, h, t0);
    load_tile<D>(tiles, k, s, b, h, 0);
    load_tile<D>(tiles + TILE * D, v, s, b, h, 0);
    cp_async_commit();

    GPU_NO_UNROLL
    for (int j0 = 0, now = 0; j0 < end; j0 += TILE, now ^= 1) {
        B16 *const keys = tiles + now * 2 * TILE * D, *const values = keys + TILE * D;
        B16 *const next = tiles + (now ^ 1) * 2 * TILE * D;
        cp_async_wait<0>();
        __syncthreads(); // this tile is there for all, and the one before is done with
        if (j0 + TILE < end) {
            load_tile<D>(next, k, s, b, h, j0 + TILE);
            load_tile<D>(next + TILE * D, v, s, b, h, j0 + TILE);
            cp_async_commit();
        }
        float score[TILE / 8][4] = {};
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint32_t a[4], x[4];
            ldmatrix_x4(a, query + (left ^ 16 * i));
#pragma unroll
            for (int n = 0; n < TILE / 16; n++) {
                ldmatrix_x4(x, keys + n * 16 * D + (right ^ 16 * i));
                mma_m16n8k16_bf16(score[2 * n], a, x, score[2 * n]);
                mma_m16n8k16_bf16(score[2 * n + 1], a, x + 2, score[2 * n + 1]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float shrink = softmax_row(score, r, m[r], l[r], scale, j0, own + 8 * r);
#pragma unroll
            for (int d = 0; d < D / 8; d++) sum[d][2 * r] *= shrink, sum[d][2 * r + 1] *= shrink;
        }
#pragma unroll
        for (int n = 0; n < TILE / 16; n++) {
            const float(*c)[4] = score + 2 * n;
            uint32_t p[4] = {ladder_pack(c[0][0], c[0][1]), ladder_pack(c[0][2], c[0][3]),
                             ladder_pack(c[1][0], c[1][1]), ladder_pack(c[1][2], c[1][3])}, x[4];
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                ldmatrix_x4_trans(x, values + n * 16 * D + (across ^ 16 * i));
                mma_m16n8k16_bf16(sum[2 * i], p, x, sum[2 * i]);
                mma_m16n8k16_bf16(sum[2 * i + 1], p, x + 2, sum[2 * i + 1]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        for (int d = 0; d < D / 8 && own + 8 * r < s.T; d++)
            *(uint32_t *)(out + ladder_row(s, b, h, own + 8 * r) + d * 8 + lane % 4 * 2) =
                ladder_pack(sum[d][2 * r] / l[r], sum[d][2 * r + 1] / l[r]);
}

template <int D>
static bool async(B16 *out, const B16 *q, const B16 *k, const B16 *v, LadderShape s, cudaStream_t stream)
{
    int bytes = (ROWS + 4 * TILE) * D * (int)sizeof(B16);
    GPU_CHECK(cudaFuncSetAttribute(async_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    LAUNCH((async_kernel<D>), ladder_grid(s, ROWS), WARPS * LANES, (size_t)bytes, stream, out, q, k, v, s);
    return true;
}

bool ladder_async(B16 *out, const B16 *q, const B16 *k, const B16 *v, float *, LadderShape s, cudaStream_t stream)
{
    return s.D == 64 ? async<64>(out, q, k, v, s, stream) : async<128>(out, q, k, v, s, stream);
}
