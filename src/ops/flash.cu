// flash: attention on tensor cores, forward and backward, for bf16 and fp16. The same functions as attention.cu,
// whose formulas stand in attention.c (Dao et al., arXiv 2205.14135; Dao, arXiv 2307.08691).
//
// A block has 4 warps of 16 M rows each and passes over the columns in tiles of N. Tiles are double-buffered in shared
// memory: while one is used, cp.async fetches the next. There is one barrier per tile: after it all threads have the
// whole tile, and the buffer of the tile before is free.
//
//   forward          rows: queries    S = Q K^T, online softmax, O += P V
//   backward, dq     rows: queries    S = Q K^T,    dP = dO V^T,    dQ += dS K
//   backward, dk dv  rows: keys       S^T = K Q^T,  dP^T = V dO^T,  dK += dS^T Q,  dV += P^T dO
//
// The two kernels of backward are one template: the roles of the operands change, the arithmetic does not. P and dS are
// accumulators of one product and operands of the next. Both have the same layout (gpu.h), so the values stay in their
// lane; they are rounded to X there; all sums are fp32. An operand of a product is 16 bytes of shared memory a lane,
// as much time as two products take: the rows' operands stay in registers, and each of the columns' serves M products.
// A tile's row is stored in pieces of 8 numbers (16 bytes), permuted by the row's number (a swizzle), so that the 8
// rows that ldmatrix reads at once lie in 8 different groups of 4 banks.
// The invariant: P = 0 exactly for keys that a query does not see, and keys beyond the last one in use are zero, so no
// tail needs code of its own. A row's sums run in one order: same bits every time.
// Rejected: dQ by atomics in the dk dv kernel (5 products instead of 7, but bits that differ from run to run).
#include "ops/dev_cuda.h"

#include "base/check.h"

#include <cstring>

enum { WARPS = 4, LANES = 32, THREADS = WARPS * LANES, N = 64 };
static constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f, LAZY = 8;

__device__ inline void mma(float *d, const uint32_t *a, const uint32_t *b, __nv_bfloat16)
{
    mma_m16n8k16_bf16(d, a, b, d);
}
__device__ inline void mma(float *d, const uint32_t *a, const uint32_t *b, __half)
{
    mma_m16n8k16_fp16(d, a, b, d);
}

__device__ inline uint32_t pack(float low, float high, __nv_bfloat16)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}
__device__ inline uint32_t pack(float low, float high, __half)
{
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

// ---- tiles of rows of D numbers in shared memory
template <int D> __device__ inline int piece(int row, int number)
{
    const int pieces = D / 8, apart = pieces < 8 ? 8 / pieces : 1; // rows within 128 bytes, the width of the banks
    return row * D + (number ^ (row / apart % (pieces < 8 ? pieces : 8))) * 8;
}

// Piece 2 k + number (0 or 1) of row `row + below`, where row is a multiple of 16. The address is that of piece(), with
// all that depends on the lane in one number, so that the 64 addresses of a tile need few registers.
template <int D, class X> __device__ inline X *piece_below(X *tile, int row, int below, int k, int number)
{
    return tile + row * D + (piece<D>(below, number) ^ 16 * k);
}

// The block copies `rows` rows of `width` numbers, ld apart. The rest of each row becomes zero, and so do the rows from
// `valid` on. The caller commits.
template <int D, class X>
__device__ inline void load_tile(X *tile, const X *from, size_t ld, int rows, int valid, size_t width)
{
    const int pieces = D / 8, by = THREADS / pieces, number = (int)threadIdx.x % pieces; // the same in each of its rows
    if (number * 8 >= (int)width) valid = 0;
    int row = (int)threadIdx.x / pieces;
    const X *at = from + (size_t)row * ld + number * 8;
    X *to = tile + piece<D>(row, number); // by rows further on the swizzle is the same
    if (valid >= rows)
        for (; row < rows; row += by, at += by * ld, to += by * D) cp_async16(to, at, 16);
    else
        for (; row < rows; row += by, at += by * ld, to += by * D)
            cp_async16(to, row < valid ? at : from, row < valid ? 16 : 0);
}

// ---- operands. The left one: 16 rows, numbers 16 k .. 16 k + 15.
template <int D, class X> __device__ inline void left(uint32_t *a, X *tile, int row, int k, int lane)
{
    ldmatrix_x4(a, piece_below<D>(tile, row, lane % 16, k, lane / 16));
}
// The right one of a product over D: columns are 16 rows of the tile, 8 and 8, the same numbers of each.
template <int D, class X> __device__ inline void right(uint32_t *b, X *tile, int row, int k, int lane)
{
    ldmatrix_x4(b, piece_below<D>(tile, row, lane % 8 + lane / 16 * 8, k, lane / 8 % 2));
}
// The right one of a product over 16 rows of the tile: columns are its numbers 16 k .. 16 k + 15, 8 and 8.
template <int D, class X> __device__ inline void right_over_rows(uint32_t *b, X *tile, int row, int k, int lane)
{
    ldmatrix_x4_trans(b, piece_below<D>(tile, row, lane % 16, k, lane / 16));
}

// c (16 rows, 16 columns as two accumulators) rounded to X, as a left operand.
template <class X> __device__ inline void round_to_left(uint32_t *a, const float c[2][4])
{
    a[0] = pack(c[0][0], c[0][1], X()), a[1] = pack(c[0][2], c[0][3], X());
    a[2] = pack(c[1][0], c[1][1], X()), a[3] = pack(c[1][2], c[1][3], X());
}

// M times: sum (16, D) += a (16, 16) rows row .. row + 15 of the tile
template <int D, int M, class X>
__device__ inline void add_product(float sum[][D / 8][4], const uint32_t a[][4], X *tile, int row, int lane)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t b[4];
        right_over_rows<D>(b, tile, row, k, lane);
#pragma unroll
        for (int m = 0; m < M; m++) mma(sum[m][2 * k], a[m], b, X()), mma(sum[m][2 * k + 1], a[m], b + 2, X());
    }
}

// Two neighbours in one store: of 4 bytes, or of 8.
template <class X> __device__ inline void store_pair(X *to, float low, float high)
{
    *(uint32_t *)to = pack(low, high, X());
}
template <> __device__ inline void store_pair(float *to, float low, float high)
{
    *(float2 *)to = make_float2(low, high);
}

// An accumulator's two rows of the lane, g and g + 8, to rows of `width` numbers.
template <int D, class O>
__device__ inline void store_half(O *to, const float sum[D / 8][4], int half, float factor, int lane, size_t width)
{
#pragma unroll
    for (int k = 0; k < D / 8; k++)
        if (k * 8 < (int)width)
            store_pair(to + k * 8 + lane % 4 * 2, sum[k][2 * half] * factor, sum[k][2 * half + 1] * factor);
}

// Of the n queries from t0 on: each sees keys first .. end - 1, and none a key outside of any .. most - 1. What a query
// sees begins and ends no earlier than what the one before it sees.
struct Keys {
    int any, most, first, end;
};
template <bool PART> __device__ inline Keys keys_of(const AttnShape &s, size_t b, int t0, int n)
{
    if (n <= 0) return {0, 0, 0, 0};
    size_t low = (size_t)t0, high = (size_t)(t0 + n - 1);
    return {attention_first<PART>(s, b, low), attention_end<PART>(s, high), attention_first<PART>(s, b, high),
            attention_end<PART>(s, low)};
}

// ---- forward
// Row r (0 or 1) of a lane's piece, g + 8 r: scores to probabilities. m is the row's maximum so far, unscaled, or up to
// LAZY powers of 2 less, so that the sums are seldom multiplied; l is the lane's share of the denominator.
// Returns the factor for the sums so far.
template <int W> __device__ inline float softmax_row(float score[W / 8][4], int r, float &m, float &l, float scale)
{
    float top = m, sum = 0;
#pragma unroll
    for (int n = 0; n < W / 8; n++) top = fmaxf(top, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
    for (int by = 1; by < 4; by *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, by)); // a row is 4 lanes
    if (!((top - m) * scale > LAZY)) top = m;
    float base = top == -INFINITY ? 0 : top * scale; // nothing seen yet: all become 0
#pragma unroll
    for (int n = 0; n < W / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float &x = score[n][2 * r + i];
            x = exp2_approx(fmaf(x, scale, -base));
            sum += x;
        }
    float shrink = exp2_approx(fmaf(m, scale, -base));
    m = top, l = l * shrink + sum;
    return shrink;
}

// Row r of a lane's piece of the tile from key k0 on: no score outside of keys first .. end - 1.
template <int W> __device__ inline void mask_row(float score[W / 8][4], int r, int k0, int first, int end)
{
    int column = k0 + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < W / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int j = column + n * 8 + i;
            if (j < first || j >= end) score[n][2 * r + i] = -INFINITY;
        }
}

// DROP: with dropout; a template parameter, because drawing the mask needs registers that the kernel without it does
// not spend. O: X, or float when the keys are a piece of a sequence, where a row may see none of them.
template <class X, class O, int D, int M, bool DROP>
__global__ void __launch_bounds__(THREADS, 2)
    flash_forward_kernel(O *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    constexpr bool PART = sizeof(O) == sizeof(float), HELD = D <= 64; // the rows' operands stay in registers
    constexpr int W = HELD ? N : 32; // columns at a time, as many as leave registers
    DYN_SHARED(X, memory); // Q (rows, D), and twice K and V (N, D)
    const int rows = 16 * WARPS * M, row = (int)threadIdx.x / LANES * 16 * M;
    int lane = (int)threadIdx.x % LANES;
    size_t b = blockIdx.z, h = blockIdx.x, t0 = (size_t)(gridDim.y - 1 - blockIdx.y) * (size_t)rows; // long ones first
    int valid = (int)min((size_t)rows, s.Tq - t0);
    Keys block = keys_of<PART>(s, b, (int)t0, valid),
         own = keys_of<PART>(s, b, (int)t0 + row, min(16 * M, valid - row));
    X *const tile = memory + rows * D;
    size_t kv = attention_kv(s, b, h, (size_t)block.any);
    auto load_keys = [&](int k0, int now) {
        size_t behind = kv + (size_t)(k0 - block.any) * s.ldkv;
        load_tile<D>(tile + now * 2 * N * D, k + behind, s.ldkv, N, block.most - k0, s.D);
        load_tile<D>(tile + now * 2 * N * D + N * D, v + behind, s.ldkv, N, block.most - k0, s.D);
        cp_async_commit();
    };
    if (block.any < block.most) {
        load_tile<D>(memory, q + attention_q(s, b, h, t0), s.ldq, rows, valid, s.D);
        load_keys(block.any, 0);
    }

    float sum[M][D / 8][4] = {}, m[2 * M], l[2 * M] = {};
    uint32_t held[HELD ? D / 16 : 1][M][4];
    for (int r = 0; r < 2 * M; r++) m[r] = -INFINITY;
    const float scale = s.scale * LOG2_E;
    GPU_NO_UNROLL
    for (int k0 = block.any, now = 0; k0 < block.most; k0 += N, now ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        gpu_forget(lane);
        X *keys = tile + now * 2 * N * D;
        if (k0 + N < block.most) load_keys(k0 + N, now ^ 1);
        if (HELD && k0 == block.any)
#pragma unroll
            for (int i = 0; i < M * (D / 16); i++) left<D>(held[i / M][i % M], memory, row + 16 * (i % M), i / M, lane);
        if (k0 >= own.most || k0 + N <= own.any) continue; // the warp sees nothing of this tile
        GPU_NO_UNROLL
        for (int w = 0; w < N; w += W) {
            float score[M][W / 8][4] = {}, shrink[2 * M];
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                uint32_t a[M][4], x[4];
#pragma unroll
                for (int j = 0; !HELD && j < M; j++) left<D>(a[j], memory, row + 16 * j, i, lane);
#pragma unroll
                for (int n = 0; n < W / 16; n++) {
                    right<D>(x, keys, w + n * 16, i, lane);
#pragma unroll
                    for (int j = 0; j < M; j++) {
                        const uint32_t *rows_q = HELD ? held[HELD ? i : 0][j] : a[j];
                        mma(score[j][2 * n], rows_q, x, X()), mma(score[j][2 * n + 1], rows_q, x + 2, X());
                    }
                }
            }
            if (k0 + w < own.first || k0 + w + W > own.end)
#pragma unroll
                for (int r = 0; r < 2 * M; r++) {
                    size_t t = t0 + (size_t)min(row + lane / 4 + 8 * r, valid - 1);
                    mask_row<W>(score[r / 2], r % 2, k0 + w, attention_first<PART>(s, b, t), attention_end<PART>(s, t));
                }
            bool moved = false;
#pragma unroll
            for (int r = 0; r < 2 * M; r++) {
                shrink[r] = softmax_row<W>(score[r / 2], r % 2, m[r], l[r], scale);
                moved |= shrink[r] != 1;
            }
            if (__any_sync(0xffffffffu, moved))
#pragma unroll
                for (int i = 0; i < M * D / 2; i++)
                    sum[i / 4 % M][i / 4 / M][i % 4] *= shrink[i / 4 % M * 2 + i % 4 / 2];
            gpu_forget(lane);
            if (DROP)
#pragma unroll
                for (int i = 0; i < M * W / 2; i++) {
                    int n = i / 4 % (W / 8), j = i / 4 / (W / 8);
                    size_t t = t0 + (size_t)(row + 16 * j + lane / 4 + i % 4 / 2 * 8);
                    size_t key = (size_t)(k0 + w + n * 8 + lane % 4 * 2 + i % 2);
                    score[j][n][i % 4] *= attention_keep<PART>(s, b, h, t, key);
                }
#pragma unroll
            for (int n = 0; n < W / 16; n++) {
                uint32_t p[M][4];
#pragma unroll
                for (int j = 0; j < M; j++) round_to_left<X>(p[j], score[j] + 2 * n);
                add_product<D, M>(sum, p, keys + N * D, w + n * 16, lane);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        int i = row + lane / 4 + 8 * r;
        for (int by = 1; by < 4; by *= 2) l[r] += __shfl_xor_sync(0xffffffffu, l[r], by);
        if (i >= valid) continue;
        size_t t = t0 + (size_t)i;
        float factor = PART && l[r] == 0 ? 0 : 1 / l[r];
        store_half<D>(out + attention_out(s, b, h, t), sum[r / 2], r % 2, factor, lane, s.D);
        if (lse && lane % 4 == 0) lse[attention_stat(s, b, h, t)] = m[r] * s.scale + LN_2 * log2f(l[r]);
    }
}

// ---- backward
// Of the pairs of a lane's piece: log2 of the softmax's denominator, and delta times the scale. They belong to the
// query: to the lane's two rows, or to its four columns (KEYS).
template <bool KEYS> struct Query {
    float lse[KEYS ? 4 : 2], delta[KEYS ? 4 : 2];
};

// 16 rows by 16 columns, as two accumulators: S and dP to P and dS.
template <bool KEYS>
__device__ inline void backward_piece(float p[2][4], float ds[2][4], const Query<KEYS> &of, float scale)
{
    const float by = scale * LOG2_E;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = KEYS ? i / 4 * 2 + i % 2 : i % 4 / 2;
        float &pi = p[i / 4][i % 4], &di = ds[i / 4][i % 4];
        pi = exp2_approx(fmaf(pi, by, -of.lse[at]));
        di = pi * fmaf(di, scale, -of.delta[at]);
    }
}

// Zeros where the query does not see the key.
template <bool KEYS, bool PART>
__device__ inline void mask_piece(float p[2][4], float ds[2][4], const AttnShape &s, size_t b, int row, int column)
{
    int first[4], end[4], Tq = (int)s.Tq;
#pragma unroll
    for (int i = 0; i < (KEYS ? 4 : 2); i++) {
        int t = KEYS ? column + i / 2 * 8 + i % 2 : row + 8 * i;
        size_t there = (size_t)min(t, Tq - 1);
        first[i] = attention_first<PART>(s, b, there), end[i] = t < Tq ? attention_end<PART>(s, there) : 0;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = KEYS ? i / 4 * 2 + i % 2 : i % 4 / 2;
        int j = KEYS ? row + i % 4 / 2 * 8 : column + i / 4 * 8 + i % 2;
        if (j < first[at] || j >= end[at]) p[i / 4][i % 4] = ds[i / 4][i % 4] = 0;
    }
}

// x times what dropout multiplies P by.
template <bool KEYS, bool PART>
__device__ inline void drop_piece(float x[2][4], const AttnShape &s, size_t b, size_t h, int row, int column)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int r = row + i % 4 / 2 * 8, c = column + i / 4 * 8 + i % 2;
        x[i / 4][i % 4] *= attention_keep<PART>(s, b, h, (size_t)(KEYS ? c : r), (size_t)(KEYS ? r : c));
    }
}

// KEYS: rows are keys of one key/value head, columns the queries of all heads of its group, one head after the other.
// Otherwise rows are queries of one head, and columns keys. O as above: gradients of pieces have no gaps between rows.
template <class X, class O, int D, int M, bool KEYS>
__global__ void __launch_bounds__(THREADS, 2)
    flash_backward_kernel(O *dq, O *dk, O *dv, const X *dout, const float *lse, const float *delta, const X *q,
                          const X *k, const X *v, AttnShape s)
{
    constexpr bool PART = sizeof(O) == sizeof(float), HELD = D <= 64 || !KEYS;
    DYN_SHARED(X, memory); // the rows of Q and dO (K and V), twice N of K and V (Q and dO), with lse and delta of these
    const int rows = 16 * WARPS * M, row = (int)threadIdx.x / LANES * 16 * M;
    int lane = (int)threadIdx.x % LANES;
    size_t b = blockIdx.z, group = KEYS ? s.H / s.G : 1, h = blockIdx.x * group, ldo = s.H * s.D;
    int r0 = (int)(KEYS ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * rows,
        valid = min(rows, (int)(KEYS ? s.Tk : s.Tq) - r0);
    Keys block = {}, own = {};
    if (!KEYS) block = keys_of<PART>(s, b, r0, valid), own = keys_of<PART>(s, b, r0 + row, min(16 * M, valid - row));
    int c0 = KEYS ? (int)attention_first_query<PART>(s, (size_t)r0) : block.any; // columns c0 .. c1 - 1
    int c1 = KEYS ? (int)attention_end_query<PART>(s, (size_t)(r0 + valid - 1)) : block.most;
    X *const mine[2] = {memory, memory + rows * D}, *const tile = memory + 2 * rows * D;
    float *const stats = (float *)(tile + 4 * N * D);

    // The next tile of columns to load: of a head, from column c on; x, y, stat: where it lies.
    const X *x = NULL, *y = NULL;
    size_t ldx = KEYS ? s.ldq : s.ldkv, ldy = KEYS ? ldo : s.ldkv, stat = 0;
    int next = c0, next_head = (int)h, last = c0 < c1 ? (int)(h + group) : 0; // 0: no query sees these keys
    auto begin_head = [&] {
        size_t t = (size_t)c0;
        size_t head = (size_t)next_head;
        x = KEYS ? q + attention_q(s, b, head, t) : k + attention_kv(s, b, head, t);
        y = KEYS ? dout + attention_out(s, b, head, t) : v + attention_kv(s, b, head, t);
        stat = attention_stat(s, b, head, t);
    };
    auto load_columns = [&](int now) {
        X *to = tile + now * 2 * N * D;
        int left_over = c1 - next, i = (int)threadIdx.x;
        load_tile<D>(to, x, ldx, N, left_over, s.D), load_tile<D>(to + N * D, y, ldy, N, left_over, s.D);
        if (KEYS && i < N) {
            size_t at = stat + (size_t)(i < left_over ? i : 0);
            cp_async4(stats + 2 * N * now + i, lse + at, i < left_over);
            cp_async4(stats + 2 * N * now + N + i, delta + at, i < left_over);
        }
        cp_async_commit();
        next += N, x += N * ldx, y += N * ldy, stat += N;
        if (next < c1) return;
        next = c0, next_head++;
        if (KEYS) begin_head();
    };
    size_t kv = attention_kv(s, b, h, (size_t)r0), qo = attention_q(s, b, h, (size_t)r0);
    uint32_t held[2][M][D / 16][4]; // the rows' operands, where registers are left
    if (c0 < c1) {
        load_tile<D>(mine[0], KEYS ? k + kv : q + qo, KEYS ? s.ldkv : s.ldq, rows, valid, s.D);
        load_tile<D>(mine[1], KEYS ? v + kv : dout + attention_out(s, b, h, (size_t)r0), KEYS ? s.ldkv : ldo, rows,
                     valid, s.D);
        begin_head(), load_columns(0);
        cp_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (int i = 0; HELD && i < M * (D / 16); i++) {
            int m = i % M, k = i / M;
            left<D>(held[0][m][k], mine[0], row + 16 * m, k, lane);
            left<D>(held[1][m][k], mine[1], row + 16 * m, k, lane);
        }
    }
    Query<KEYS> of[KEYS ? 1 : M];
#pragma unroll
    for (int i = 0; !KEYS && i < 2 * M; i++) {
        int t = row + lane / 4 + 8 * i;
        size_t at = attention_stat(s, b, h, (size_t)(r0 + (t < valid ? t : 0)));
        of[i / 2].lse[i % 2] = LOG2_E * lse[at], of[i / 2].delta[i % 2] = s.scale * delta[at];
    }

    float sum_s[M][D / 8][4] = {}, sum_p[KEYS ? M : 1][D / 8][4] = {}; // dK (dQ); dV
    GPU_NO_UNROLL
    for (int head = (int)h, c = c0, now = 0; head < last; now ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        gpu_forget(lane);
        X *columns = tile + now * 2 * N * D;
        if (next_head < last) load_columns(now ^ 1);
        if (KEYS) own = keys_of<PART>(s, b, c, min(N, (int)s.Tq - c)); // of the columns
        int key = KEYS ? r0 + row : c, keys = KEYS ? 16 * M : N;
        bool whole = (KEYS ? c + N <= (int)s.Tq : row + 16 * M <= valid) && key >= own.first && key + keys <= own.end;
        GPU_NO_UNROLL
        for (int n = 0; n < N; n += 16) {
            // Above the diagonal, for the whole warp.
            if (!whole && (KEYS ? c + n + 15 < (int)attention_first_query<PART>(s, (size_t)(r0 + row))
                                : c + n >= own.most))
                continue;
            if (!HELD) gpu_forget(lane);
            float p[M][2][4] = {}, ds[M][2][4] = {};
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                uint32_t x[4], y[4];
                right<D>(x, columns, n, i, lane), right<D>(y, columns + N * D, n, i, lane);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    uint32_t a[4];
                    if (!HELD) left<D>(a, mine[0], row + 16 * m, i, lane);
                    const uint32_t *rows_s = HELD ? held[0][m][i] : a;
                    mma(p[m][0], rows_s, x, X()), mma(p[m][1], rows_s, x + 2, X());
                    if (!HELD) left<D>(a, mine[1], row + 16 * m, i, lane);
                    const uint32_t *rows_p = HELD ? held[1][m][i] : a;
                    mma(ds[m][0], rows_p, y, X()), mma(ds[m][1], rows_p, y + 2, X());
                }
            }
            if constexpr (KEYS)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *at = stats + 2 * N * now + n + lane % 4 * 2 + i / 2 * 8 + i % 2;
                    of[0].lse[i] = LOG2_E * at[0], of[0].delta[i] = s.scale * at[N];
                }
            uint32_t to_s[M][4], to_p[M][4];
#pragma unroll
            for (int m = 0; m < M; m++) {
                int line = r0 + row + 16 * m + lane / 4, column = c + n + lane % 4 * 2;
                bool drop = s.drop.p > 0;
                if (drop) drop_piece<KEYS, PART>(ds[m], s, b, (size_t)head, line, column);
                backward_piece<KEYS>(p[m], ds[m], of[KEYS ? 0 : m], s.scale);
                if (KEYS && drop) drop_piece<KEYS, PART>(p[m], s, b, (size_t)head, line, column);
                if (!whole) mask_piece<KEYS, PART>(p[m], ds[m], s, b, line, column);
                round_to_left<X>(to_s[m], ds[m]);
                if (KEYS) round_to_left<X>(to_p[m], p[m]);
            }
            add_product<D, M>(sum_s, to_s, columns, n, lane);
            if constexpr (KEYS) add_product<D, M>(sum_p, to_p, columns + N * D, n, lane);
        }
        c += N;
        if (c >= c1) c = c0, head++;
    }
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int line = row + lane / 4 + 8 * i;
        if (line >= valid) continue;
        size_t t = (size_t)(r0 + line), at = KEYS ? attention_kv(s, b, h, t) : attention_q(s, b, h, t);
        if (PART) at = KEYS ? ((b * s.Tk + t) * s.G + blockIdx.x) * s.D : attention_out(s, b, h, t);
        store_half<D>((KEYS ? dk : dq) + at, sum_s[i / 2], i % 2, 1, lane, s.D);
        if constexpr (KEYS) store_half<D>(dv + at, sum_p[i / 2], i % 2, 1, lane, s.D);
    }
}

// ---- the host's side
bool flash_takes(const void *q, const void *k, const void *v, AttnShape s)
{
    bool aligned = ((uintptr_t)q | (uintptr_t)k | (uintptr_t)v) % 16 == 0 && s.ldq % 8 == 0 && s.ldkv % 8 == 0;
    return aligned && s.D % 8 == 0 && s.D <= 128;
}

static AttnShape flash_shape(const void *q, const void *k, const void *v, AttnShape s, bool part = false)
{
    if (!flash_takes(q, k, v, s))
        die("cuda: attention: no kernel on tensor cores for head size %zu, rows %zu and %zu apart (try the plain "
            "kernels)", s.D, s.ldq, s.ldkv);
    return attention_shape(s, part);
}

// M: of the kernel. The heads of a tile are neighbours: so the longest blocks come first.
static dim3 grid_of(size_t n, int M, size_t heads, size_t B)
{
    size_t rows = (size_t)(16 * WARPS * M);
    return dim3((unsigned)heads, (unsigned)((n + rows - 1) / rows), (unsigned)B);
}

template <class X, class O, int D>
static void forward(O *out, float *lse, const X *q, const X *k, const X *v, AttnShape s, cudaStream_t stream)
{
    constexpr int M = D > 64 && sizeof(O) == sizeof(float) ? 1 : 2; // as many as leave registers
    bool drop = s.drop.p > 0;
    int m = drop ? 1 : M, bytes = (16 * WARPS * m + 4 * N) * D * (int)sizeof(X);
    auto kernel = drop ? flash_forward_kernel<X, O, D, 1, true> : flash_forward_kernel<X, O, D, M, false>;
    GPU_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    LAUNCH(kernel, grid_of(s.Tq, m, s.H, s.B), THREADS, (size_t)bytes, stream, out, lse, q, k, v, s);
}

template <class X, class O, int D>
static void backward(O *dq, O *dk, O *dv, const float *delta, const X *dout, const float *lse, const X *q, const X *k,
                     const X *v, AttnShape s, cudaStream_t stream)
{
    constexpr int MQ = D <= 64 ? 2 : 1, MK = 1; // as many as leave registers for two blocks a multiprocessor
    int tiles = 4 * N * D * (int)sizeof(X) + 4 * N * (int)sizeof(float), own = 32 * WARPS * D * (int)sizeof(X);
    auto queries = flash_backward_kernel<X, O, D, MQ, false>, keys = flash_backward_kernel<X, O, D, MK, true>;
    GPU_CHECK(cudaFuncSetAttribute(queries, cudaFuncAttributeMaxDynamicSharedMemorySize, tiles + MQ * own));
    GPU_CHECK(cudaFuncSetAttribute(keys, cudaFuncAttributeMaxDynamicSharedMemorySize, tiles + MK * own));
    if (s.Tq)
        LAUNCH(queries, grid_of(s.Tq, MQ, s.H, s.B), THREADS, (size_t)(tiles + MQ * own), stream, dq, dk, dv, dout, lse,
               delta, q, k, v, s);
    if (s.Tk)
        LAUNCH(keys, grid_of(s.Tk, MK, s.G, s.B), THREADS, (size_t)(tiles + MK * own), stream, dq, dk, dv, dout, lse,
               delta, q, k, v, s);
}

// Calls function<X, O, D> for the head size of the call: D is the next of 32, 64, 128, filled up with zeros.
#define CHOOSE(function, O, D, ...)                                                                                  \
    ((D) <= 32   ? function<X, O, 32>(__VA_ARGS__)                                                                   \
     : (D) <= 64 ? function<X, O, 64>(__VA_ARGS__)                                                                   \
                 : function<X, O, 128>(__VA_ARGS__))

template <class X>
void flash_forward_cuda(X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, cudaStream_t stream)
{
    AttnShape s = flash_shape(q, k, v, shape);
    if (s.B * s.Tq == 0) return;
    CHOOSE(forward, X, s.D, out, lse, q, k, v, s, stream);
}

template <class X>
void flash_backward_cuda(X *dq, X *dk, X *dv, float *delta, const X *dout, const X *out, const float *lse, const X *q,
                         const X *k, const X *v, AttnShape shape, cudaStream_t stream)
{
    AttnShape s = flash_shape(q, k, v, shape);
    check(s.q_start == 0 && (uintptr_t)dout % 16 == 0);
    if (s.B * s.Tk == 0) return;
    attention_delta_cuda(delta, dout, out, s, WARPS, stream);
    CHOOSE(backward, X, s.D, dq, dk, dv, delta, dout, lse, q, k, v, s, stream);
}

// ---- pieces: the same kernels with the piece's positions and fp32 results
template <class X>
void flash_part_forward_cuda(float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape,
                             cudaStream_t stream)
{
    AttnShape s = flash_shape(q, k, v, shape, true);
    if (s.B * s.Tq == 0) return;
    CHOOSE(forward, float, s.D, out, lse, q, k, v, s, stream);
}

template <class X>
void flash_part_backward_cuda(float *dq, float *dk, float *dv, float *delta, const X *dout, const X *out,
                              const float *lse, const X *q, const X *k, const X *v, AttnShape shape,
                              cudaStream_t stream)
{
    AttnShape s = flash_shape(q, k, v, shape, true);
    check((uintptr_t)dout % 16 == 0);
    if (s.B == 0) return;
    attention_delta_cuda(delta, dout, out, s, WARPS, stream);
    CHOOSE(backward, float, s.D, dq, dk, dv, delta, dout, lse, q, k, v, s, stream);
}

#define INSTANTIATE(X)                                                                                               \
    template void flash_forward_cuda<X>(X *, float *, const X *, const X *, const X *, AttnShape, cudaStream_t);     \
    template void flash_backward_cuda<X>(X *, X *, X *, float *, const X *, const X *, const float *, const X *,     \
                                         const X *, const X *, AttnShape, cudaStream_t);                             \
    template void flash_part_forward_cuda<X>(float *, float *, const X *, const X *, const X *, AttnShape,           \
                                             cudaStream_t);                                                          \
    template void flash_part_backward_cuda<X>(float *, float *, float *, float *, const X *, const X *, const float *,\
                                              const X *, const X *, const X *, AttnShape, cudaStream_t);
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
