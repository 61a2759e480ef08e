// Rung 4: the two products on tensor cores.
//
// A warp has 16 queries and multiplies by mma.m16n8k16: 16 by 16 numbers with 16 by 8, 4096 operations an
// instruction, of which each lane holds certain numbers (gpu.h). A block has 64 queries; keys and values come in
// tiles of 64.
//
//   S (16, 64) = Q (16, D) K^T        left: ldmatrix of Q's rows; right: of K's rows
//   O (16, D) += P (16, 64) V         left: P, from S where it is; right: ldmatrix of V's rows, transposed
//
// The sum of S has the layout of the left operand of the next product: P is rounded to bf16 in its lane, and never
// moves. A row of S belongs to 4 lanes, so its maximum and its sum are two shuffles each. The online softmax is
// rung 3's, for 2 rows a lane. What is left: the rows of a tile are D numbers apart, 64 or 128, and so all of them
// begin in the same bank: of the 8 rows that ldmatrix reads at once each waits for the one before. And while a
// tile is copied nobody multiplies.
#include "ladder.h"

enum { WARPS = 4, ROWS = WARPS * 16, TILE = 64, LANES = 32 };

// Where piece `number` (8 numbers, 16 bytes) of a row lies in its tile. Piece 2 i + number lies at that ^ 16 i, so
// what depends on the lane is computed once, and the many places of a tile cost few registers.
template <int D> static __device__ inline int piece(int row, int number)
{
    return row * D + number * 8;
}

// 64 rows from j0 on; those from s.T on are zeros.
template <int D>
static __device__ inline void load_tile(B16 *tile, const B16 *from, LadderShape s, int b, int h, int j0)
{
    GPU_NO_UNROLL
    for (int i = (int)threadIdx.x; i < TILE * D / 8; i += (int)blockDim.x) {
        int j = i / (D / 8), number = i % (D / 8);
        uint4 eight = {};
        if (j0 + j < s.T) eight = *(const uint4 *)(from + ladder_row(s, b, h, j0 + j) + number * 8);
        *(uint4 *)(tile + piece<D>(j, number)) = eight;
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
    tensor_kernel(B16 *out, const B16 *q, const B16 *k, const B16 *v, LadderShape s)
{
    DYN_SHARED(B16, query); // Q, K and V, (64, D) each
    B16 *const keys = query + ROWS * D, *const values = keys + TILE * D;
    int lane = (int)threadIdx.x % LANES, row = (int)threadIdx.x / LANES * 16;
    int b = (int)blockIdx.z, h = (int)blockIdx.y;
    int t0 = ladder_first_query(ROWS), end = ladder_min(t0 + ROWS, s.T), own = t0 + row + lane / 4;
    const int left = piece<D>(row + lane % 16, lane / 16), across = piece<D>(lane % 16, lane / 16);
    const int right = piece<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    float sum[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {}, scale = 1 / sqrtf((float)D);
    load_tile<D>(query, q, s, b, h, t0);

    GPU_NO_UNROLL
    for (int j0 = 0; j0 < end; j0 += TILE) {
        __syncthreads(); // the tiles before are done with
        load_tile<D>(keys, k, s, b, h, j0);
        load_tile<D>(values, v, s, b, h, j0);
        __syncthreads();
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
static bool tensor(B16 *out, const B16 *q, const B16 *k, const B16 *v, LadderShape s, cudaStream_t stream)
{
    int bytes = (ROWS + 2 * TILE) * D * (int)sizeof(B16);
    GPU_CHECK(cudaFuncSetAttribute(tensor_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    LAUNCH((tensor_kernel<D>), ladder_grid(s, ROWS), WARPS * LANES, (size_t)bytes, stream, out, q, k, v, s);
    return true;
}

bool ladder_tensor(B16 *out, const B16 *q, const B16 *k, const B16 *v, float *, LadderShape s, cudaStream_t stream)
{
    return s.D == 64 ? tensor<64>(out, q, k, v, s, stream) : tensor<128>(out, q, k, v, s, stream);
}
