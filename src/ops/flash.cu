// flash: attention on tensor cores, forward and backward, for bf16 and fp16. The same functions as attention.cu,
// whose formulas stand in attention.c (Dao et al., arXiv 2205.14135; Dao, arXiv 2307.08691).
//
// A block owns 16 rows for each of its warps and passes over the columns in tiles of N. Tiles are double-buffered in
// shared memory: while one is used, cp.async fetches the next. There is one barrier per tile: after it the tile is
// complete for all threads, and the buffer of the tile before is free.
//
//   forward          rows: queries    S = Q K^T, online softmax, O += P V
//   backward, dq     rows: queries    S = Q K^T,    dP = dO V^T,    dQ += dS K
//   backward, dk dv  rows: keys       S^T = K Q^T,  dP^T = V dO^T,  dK += dS^T Q,  dV += P^T dO
//
// The two kernels of backward are one template: the roles of the operands change, the arithmetic does not. P and dS are
// accumulators of one product and operands of the next. Both have the same layout (gpu.h), so the values stay in their
// lane; they are rounded to X there, and all sums are fp32. An operand of a product is 16 bytes of shared memory a lane,
// as much time as two products take: so the rows' operands stay in registers, and a warp may have 32 rows instead of 16.
// A tile's row is stored in pieces of 8 numbers (16 bytes), permuted by the row's number (a swizzle), so that the 8
// rows that ldmatrix reads at once lie in 8 different groups of 4 banks.
// The invariant: P = 0 exactly for keys that a query does not see, and keys beyond the last one in use are zero, so no
// tail needs code of its own. A row's sums run in one order: same bits every time.
// Rejected: dQ by atomics in the dk dv kernel (5 products instead of 7, but bits that differ from run to run).
#include "ops/dev_cuda.h"

#include "base/check.h"

#include <cstring>

enum { MOST_WARPS = 4, LANES = 32, MOST_THREADS = MOST_WARPS * LANES };
static constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

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
    const int pieces = D / 8, number = (int)threadIdx.x % pieces; // the same in all of the thread's rows
    if (number * 8 >= (int)width) valid = 0;
    for (int row = (int)threadIdx.x / pieces; row < rows; row += (int)blockDim.x / pieces) {
        bool there = row < valid;
        cp_async16(tile + piece<D>(row, number), from + (there ? (size_t)row * ld + (size_t)number * 8 : 0),
                   there ? 16 : 0);
    }
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

// First key that any of the queries t0 .. t0 + n - 1 sees.
template <bool PART> __device__ inline int lowest_first(const AttnShape &s, size_t b, size_t t0, int n, int lane)
{
    if (!s.first) return attention_window<PART>(s, t0);
    int low = 0x7fffffff;
    for (int i = lane; i < n; i += LANES) low = min(low, attention_first<PART>(s, b, t0 + (size_t)i));
    return __reduce_min_sync(0xffffffffu, low);
}

// ---- forward
// Row r (0 or 1) of the lane, g + 8 r: scores to probabilities, masked to keys first .. end - 1. m and l are the
// running maximum and denominator, m in units of S, before the scale. Returns the factor for the sums so far.
template <int N>
__device__ inline float softmax_row(float score[N / 8][4], int r, float &m, float &l, float scale, int k0, int first,
                                    int end)
{
    float top = m, sum = 0;
    int column = k0 + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int j = column + n * 8 + i;
            float &x = score[n][2 * r + i];
            if (j < first || j >= end) x = -INFINITY;
            top = fmaxf(top, x);
        }
    for (int by = 1; by < 4; by *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, by)); // a row is 4 lanes
    float base = top == -INFINITY ? 0 : top * scale; // nothing seen yet: all become 0
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float &x = score[n][2 * r + i];
            x = exp2f(fmaf(x, scale, -base));
            sum += x;
        }
    for (int by = 1; by < 4; by *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    float shrink = exp2f(fmaf(m, scale, -base));
    m = top, l = l * shrink + sum;
    return shrink;
}

// Without launch bounds nvcc spills registers to fit one more block per multiprocessor, for which shared memory has no
// space. DROP: with dropout; a template parameter, because drawing the mask needs registers that the kernel without it
// does not spend. O: X, or float when the keys are a piece of a sequence, where a row may see none of them.
template <class X, class O, int D, int N, bool DROP>
__global__ void __launch_bounds__(MOST_THREADS, D == 128 ? 2 : 3)
    flash_forward_kernel(O *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    constexpr bool PART = sizeof(O) == sizeof(float);
    DYN_SHARED(X, memory); // Q (rows, D), and twice K and V (N, D)
    int lane = (int)threadIdx.x % LANES, rows = (int)blockDim.x / 2, row = (int)threadIdx.x / LANES * 16,
        g = lane / 4;
    size_t b = blockIdx.z, h = blockIdx.y, t0 = (size_t)(gridDim.x - 1 - blockIdx.x) * (size_t)rows; // long ones first
    int valid = (int)min((size_t)rows, s.Tq - t0), first = lowest_first<PART>(s, b, t0, valid, lane);
    int end = attention_end<PART>(s, t0 + (size_t)valid - 1); // of the keys that some row sees
    X *const tile = memory + rows * D;
    int row_first[2], row_end[2];
#pragma unroll
    for (int r = 0; r < 2; r++) { // a row beyond the last query sees nothing
        int i = row + g + 8 * r;
        row_first[r] = i < valid ? attention_first<PART>(s, b, t0 + (size_t)i) : 0;
        row_end[r] = i < valid ? attention_end<PART>(s, t0 + (size_t)i) : 0;
    }
    q += attention_q(s, b, h, t0), k += attention_kv(s, b, h, 0), v += attention_kv(s, b, h, 0);
    if (first < end) {
        load_tile<D>(memory, q, s.ldq, rows, valid, s.D);
        load_tile<D>(tile, k + (size_t)first * s.ldkv, s.ldkv, N, end - first, s.D);
        load_tile<D>(tile + N * D, v + (size_t)first * s.ldkv, s.ldkv, N, end - first, s.D);
        cp_async_commit();
    }

    float sum[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
    const float scale = s.scale * LOG2_E;
    GPU_NO_UNROLL
    for (int k0 = first, now = 0; k0 < end; k0 += N, now ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        X *keys = tile + now * 2 * N * D, *next = tile + (now ^ 1) * 2 * N * D;
        if (k0 + N < end) {
            size_t behind = (size_t)(k0 + N) * s.ldkv;
            load_tile<D>(next, k + behind, s.ldkv, N, end - k0 - N, s.D);
            load_tile<D>(next + N * D, v + behind, s.ldkv, N, end - k0 - N, s.D);
            cp_async_commit();
        }
        if (k0 >= attention_end<PART>(s, t0 + (size_t)row + 15) ||
            k0 + N <= attention_window<PART>(s, t0 + (size_t)row))
            continue; // the warp sees nothing of this tile
        float score[N / 8][4] = {};
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint32_t a[4], x[4];
            left<D>(a, memory, row, i, lane);
#pragma unroll
            for (int n = 0; n < N / 16; n++) {
                right<D>(x, keys, n * 16, i, lane);
                mma(score[2 * n], a, x, X()), mma(score[2 * n + 1], a, x + 2, X());
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float shrink = softmax_row<N>(score, r, m[r], l[r], scale, k0, row_first[r], row_end[r]);
#pragma unroll
            for (int d = 0; d < D / 8; d++) sum[d][2 * r] *= shrink, sum[d][2 * r + 1] *= shrink;
        }
        if (DROP)
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    score[n][i] *= attention_keep<PART>(s, b, h, t0 + (size_t)(row + g + i / 2 * 8),
                                                      (size_t)(k0 + n * 8 + lane % 4 * 2 + i % 2));
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t p[1][4];
            round_to_left<X>(p[0], score + 2 * n);
            add_product<D, 1>(&sum, p, keys + N * D, n * 16, lane);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = row + g + 8 * r;
        if (i >= valid) continue;
        size_t t = t0 + (size_t)i;
        float factor = PART && l[r] == 0 ? 0 : 1 / l[r];
        store_half<D>(out + attention_out(s, b, h, t), sum, r, factor, lane, s.D);
        if (lse && lane % 4 == 0) lse[attention_stat(s, b, h, t)] = m[r] * s.scale + LN_2 * log2f(l[r]);
    }
}

// ---- backward
// Of the pairs of a lane's piece: log2 of the softmax's denominator, and delta times the scale. They belong to the
// query: to the lane's two rows, or to its four columns (KEYS).
template <bool KEYS> struct Query {
    float lse[KEYS ? 4 : 2], delta[KEYS ? 4 : 2];
};

// 16 rows by 16 columns, as two accumulators: S and dP to P (with dropout: P * K) and dS. Every pair is one that its
// query sees.
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

// The same where a query may not see a key, and with dropout.
template <bool KEYS, bool PART>
__device__ inline void backward_edge(float p[2][4], float ds[2][4], const Query<KEYS> &of, const AttnShape &s, size_t b,
                                     size_t h, int row, int column)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int r = row + i % 4 / 2 * 8, c = column + i / 4 * 8 + i % 2, t = KEYS ? c : r, j = KEYS ? r : c;
        const int at = KEYS ? i / 4 * 2 + i % 2 : i % 4 / 2;
        float &pi = p[i / 4][i % 4], &di = ds[i / 4][i % 4];
        if (t >= (int)s.Tq || !attention_sees<PART>(s, b, t, j)) {
            pi = di = 0;
            continue;
        }
        float keep = s.drop.p > 0 ? attention_keep<PART>(s, b, h, (size_t)t, (size_t)j) : 1;
        float e = exp2_approx(fmaf(pi, s.scale * LOG2_E, -of.lse[at]));
        pi = e * keep;
        di = e * (di * keep * s.scale - of.delta[at]);
    }
}

// Whether each of the rows r .. r + n - 1 has a pair with each of the columns c .. c + N - 1. Of the whole warp.
template <bool KEYS, bool PART, int N>
__device__ inline bool all_seen(const AttnShape &s, size_t b, int r, int n, int c, int lane)
{
    int t0 = KEYS ? c : r, queries = KEYS ? N : n, j0 = KEYS ? r : c, keys = KEYS ? n : N;
    bool seen = s.drop.p == 0 && t0 + queries <= (int)s.Tq;
    for (int i = lane; seen && i < queries; i += LANES)
        seen = attention_first<PART>(s, b, (size_t)(t0 + i)) <= j0 && attention_end<PART>(s, (size_t)(t0 + i)) >= j0 + keys;
    return __all_sync(0xffffffffu, seen);
}

// KEYS: rows are keys of one key/value head, columns the queries of all heads of its group, one head after the other.
// Otherwise rows are queries of one head, and columns keys. O as above: gradients of pieces have no gaps between rows.
// A warp has 16 M rows: each operand that it reads of the columns serves M products.
template <class X, class O, int D, int N, int M, bool KEYS>
__global__ void __launch_bounds__(MOST_THREADS, 2)
    flash_backward_kernel(O *dq, O *dk, O *dv, const X *dout, const float *lse, const float *delta, const X *q,
                          const X *k, const X *v, AttnShape s)
{
    constexpr bool PART = sizeof(O) == sizeof(float), HELD = D <= 64; // the rows' operands stay in registers
    DYN_SHARED(X, memory); // the rows of Q and dO (K and V), twice N of K and V (Q and dO), with lse and delta of these
    int lane = (int)threadIdx.x % LANES, rows = (int)blockDim.x / 2 * M, row = (int)threadIdx.x / LANES * 16 * M;
    size_t b = blockIdx.z, group = KEYS ? s.H / s.G : 1, h = blockIdx.y * group, ldo = s.H * s.D;
    int r0 = (int)(KEYS ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * rows,
        valid = min(rows, (int)(KEYS ? s.Tk : s.Tq) - r0);
    int c0 = KEYS ? (int)attention_first_query<PART>(s, (size_t)r0)
                  : lowest_first<PART>(s, b, (size_t)r0, valid, lane); // columns c0 .. c1 - 1
    int c1 = KEYS ? (int)attention_end_query<PART>(s, (size_t)(r0 + valid - 1))
                  : attention_end<PART>(s, (size_t)(r0 + valid - 1));
    int tiles = max(0, (c1 - c0 + N - 1) / N);
    X *const own[2] = {memory, memory + rows * D}, *const tile = memory + 2 * rows * D;
    float *const stats = (float *)(tile + 4 * N * D);

    auto load_columns = [&](int now, int number) {
        size_t head = h + (size_t)(number / tiles);
        int c = c0 + number % tiles * N, left_over = c1 - c;
        size_t kv = attention_kv(s, b, head, (size_t)c), qo = attention_q(s, b, head, (size_t)c);
        X *to = tile + now * 2 * N * D;
        load_tile<D>(to, KEYS ? q + qo : k + kv, KEYS ? s.ldq : s.ldkv, N, left_over, s.D);
        load_tile<D>(to + N * D, KEYS ? dout + attention_out(s, b, head, (size_t)c) : v + kv, KEYS ? ldo : s.ldkv,
                     N, left_over, s.D);
        for (int i = (int)threadIdx.x; KEYS && i < N; i += (int)blockDim.x) {
            size_t at = attention_stat(s, b, head, (size_t)(i < left_over ? c + i : c));
            cp_async4(stats + 2 * N * now + i, lse + at, i < left_over);
            cp_async4(stats + 2 * N * now + N + i, delta + at, i < left_over);
        }
        cp_async_commit();
    };
    size_t kv = attention_kv(s, b, h, (size_t)r0), qo = attention_q(s, b, h, (size_t)r0);
    int all = tiles * (int)group;
    if (all) { // false for keys that no query of this call sees: their gradient is 0
        load_tile<D>(own[0], KEYS ? k + kv : q + qo, KEYS ? s.ldkv : s.ldq, rows, valid, s.D);
        load_tile<D>(own[1], KEYS ? v + kv : dout + attention_out(s, b, h, (size_t)r0), KEYS ? s.ldkv : ldo, rows,
                     valid, s.D);
        load_columns(0, 0);
    }
    Query<KEYS> of[KEYS ? 1 : M];
#pragma unroll
    for (int i = 0; !KEYS && i < 2 * M; i++) {
        int t = row + lane / 4 + 8 * i;
        size_t at = attention_stat(s, b, h, (size_t)(r0 + (t < valid ? t : 0)));
        of[i / 2].lse[i % 2] = LOG2_E * lse[at], of[i / 2].delta[i % 2] = s.scale * delta[at];
    }

    float sum_s[M][D / 8][4] = {}, sum_p[KEYS ? M : 1][D / 8][4] = {}; // dK (dQ); dV
    uint32_t held[2][M][HELD ? D / 16 : 1][4];
    GPU_NO_UNROLL
    for (int number = 0, now = 0; number < all; number++, now ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        X *columns = tile + now * 2 * N * D;
        if (number + 1 < all) load_columns(now ^ 1, number + 1);
        if (HELD && number == 0)
#pragma unroll
            for (int i = 0; i < 2 * M * (D / 16); i++)
                left<D>(held[i % 2][i / 2 % M][i / 2 / M], own[i % 2], row + 16 * (i / 2 % M), i / 2 / M, lane);
        size_t head = h + (size_t)(number / tiles);
        int c = c0 + number % tiles * N;
        bool whole = all_seen<KEYS, PART, N>(s, b, r0 + row, 16 * M, c, lane);
        GPU_NO_UNROLL
        for (int n = 0; n < N; n += 16) {
            // Above the diagonal, for the whole warp.
            if (!whole && (KEYS ? c + n + 15 < (int)attention_first_query<PART>(s, (size_t)(r0 + row))
                                : c + n >= attention_end<PART>(s, (size_t)(r0 + row + 16 * M - 1))))
                continue;
            float p[M][2][4] = {}, ds[M][2][4] = {};
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                uint32_t a[4], x[4], y[4];
                right<D>(x, columns, n, i, lane), right<D>(y, columns + N * D, n, i, lane);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    if (!HELD) left<D>(a, own[0], row + 16 * m, i, lane);
                    const uint32_t *rows_s = HELD ? held[0][m][HELD ? i : 0] : a;
                    mma(p[m][0], rows_s, x, X()), mma(p[m][1], rows_s, x + 2, X());
                    if (!HELD) left<D>(a, own[1], row + 16 * m, i, lane);
                    const uint32_t *rows_p = HELD ? held[1][m][HELD ? i : 0] : a;
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
                const Query<KEYS> &query = of[KEYS ? 0 : m];
                if (whole) backward_piece<KEYS>(p[m], ds[m], query, s.scale);
                else
                    backward_edge<KEYS, PART>(p[m], ds[m], query, s, b, head, r0 + row + 16 * m + lane / 4,
                                              c + n + lane % 4 * 2);
                round_to_left<X>(to_s[m], ds[m]);
                if (KEYS) round_to_left<X>(to_p[m], p[m]);
            }
            add_product<D, M>(sum_s, to_s, columns, n, lane);
            if constexpr (KEYS) add_product<D, M>(sum_p, to_p, columns + N * D, n, lane);
        }
    }
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int line = row + lane / 4 + 8 * i;
        if (line >= valid) continue;
        size_t t = (size_t)(r0 + line), at = KEYS ? attention_kv(s, b, h, t) : attention_q(s, b, h, t);
        if (PART) at = KEYS ? ((b * s.Tk + t) * s.G + blockIdx.y) * s.D : attention_out(s, b, h, t);
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

static AttnShape flash_shape(const void *q, const void *k, const void *v, AttnShape s, int warps, int columns,
                             bool part = false)
{
    bool good = flash_takes(q, k, v, s) && warps >= 1 && warps <= MOST_WARPS && (columns == 16 || columns == 64);
    if (!good)
        die("cuda: attention: no kernel on tensor cores for head size %zu, rows %zu and %zu apart, %d warps, %d "
            "columns (try the plain kernels)", s.D, s.ldq, s.ldkv, warps, columns);
    return attention_shape(s, part);
}

static dim3 grid_of(size_t n, int warps, size_t heads, size_t B)
{
    return dim3((unsigned)((n + (size_t)warps * 16 - 1) / ((size_t)warps * 16)), (unsigned)heads, (unsigned)B);
}

template <class X, class O, int D, int N>
static void forward(O *out, float *lse, const X *q, const X *k, const X *v, AttnShape s, int warps,
                    cudaStream_t stream)
{
    int bytes = (16 * warps + 4 * N) * D * (int)sizeof(X);
    auto kernel = s.drop.p > 0 ? flash_forward_kernel<X, O, D, N, true> : flash_forward_kernel<X, O, D, N, false>;
    GPU_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    LAUNCH(kernel, grid_of(s.Tq, warps, s.H, s.B), (unsigned)(warps * LANES), (size_t)bytes, stream, out, lse, q, k,
           v, s);
}

template <class X, class O, int D, int N>
static void backward(O *dq, O *dk, O *dv, const float *delta, const X *dout, const float *lse, const X *q, const X *k,
                     const X *v, AttnShape s, int warps, cudaStream_t stream)
{
    constexpr int MQ = D <= 64 ? 2 : 1, MK = 1; // as many as leave registers for two blocks a multiprocessor
    int tiles = 4 * N * D * (int)sizeof(X) + 4 * N * (int)sizeof(float), own = 32 * warps * D * (int)sizeof(X);
    unsigned threads = (unsigned)(warps * LANES);
    auto queries = flash_backward_kernel<X, O, D, N, MQ, false>, keys = flash_backward_kernel<X, O, D, N, MK, true>;
    GPU_CHECK(cudaFuncSetAttribute(queries, cudaFuncAttributeMaxDynamicSharedMemorySize, tiles + MQ * own));
    GPU_CHECK(cudaFuncSetAttribute(keys, cudaFuncAttributeMaxDynamicSharedMemorySize, tiles + MK * own));
    if (s.Tq)
        LAUNCH(queries, grid_of(s.Tq, warps * MQ, s.H, s.B), threads, (size_t)(tiles + MQ * own), stream, dq, dk, dv,
               dout, lse, delta, q, k, v, s);
    if (s.Tk)
        LAUNCH(keys, grid_of(s.Tk, warps * MK, s.G, s.B), threads, (size_t)(tiles + MK * own), stream, dq, dk, dv, dout,
               lse, delta, q, k, v, s);
}

// Calls function<X, O, D, N> for the head size and N of the call: D is the next of 32, 64, 128, filled up with zeros.
#define CHOOSE_D(function, O, D, N, ...)                                                                             \
    ((D) <= 32   ? function<X, O, 32, N>(__VA_ARGS__)                                                                \
     : (D) <= 64 ? function<X, O, 64, N>(__VA_ARGS__)                                                                \
                 : function<X, O, 128, N>(__VA_ARGS__))
#define CHOOSE(function, D, N, ...)                                                                                  \
    ((N) == 16 ? CHOOSE_D(function, X, D, 16, __VA_ARGS__) : CHOOSE_D(function, X, D, 64, __VA_ARGS__))

template <class X>
void flash_forward_cuda(X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int warps,
                        int columns, cudaStream_t stream)
{
    AttnShape s = flash_shape(q, k, v, shape, warps, columns);
    if (s.B * s.Tq == 0) return;
    CHOOSE(forward, s.D, columns, out, lse, q, k, v, s, warps, stream);
}

template <class X>
void flash_backward_cuda(X *dq, X *dk, X *dv, float *delta, const X *dout, const X *out, const float *lse, const X *q,
                         const X *k, const X *v, AttnShape shape, int warps, int columns, cudaStream_t stream)
{
    AttnShape s = flash_shape(q, k, v, shape, warps, columns);
    check(s.q_start == 0 && (uintptr_t)dout % 16 == 0);
    if (s.B * s.Tk == 0) return;
    attention_delta_cuda(delta, dout, out, s, MOST_WARPS, stream);
    CHOOSE(backward, s.D, columns, dq, dk, dv, delta, dout, lse, q, k, v, s, warps, stream);
}

// ---- pieces: the same kernels with the piece's positions and fp32 results
enum { PART_COLUMNS = 64 };

template <class X>
void flash_part_forward_cuda(float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int warps,
                             cudaStream_t stream)
{
    AttnShape s = flash_shape(q, k, v, shape, warps, PART_COLUMNS, true);
    if (s.B * s.Tq == 0) return;
    CHOOSE_D(forward, float, s.D, PART_COLUMNS, out, lse, q, k, v, s, warps, stream);
}

template <class X>
void flash_part_backward_cuda(float *dq, float *dk, float *dv, float *delta, const X *dout, const X *out,
                              const float *lse, const X *q, const X *k, const X *v, AttnShape shape, int warps,
                              cudaStream_t stream)
{
    AttnShape s = flash_shape(q, k, v, shape, warps, PART_COLUMNS, true);
    check((uintptr_t)dout % 16 == 0);
    if (s.B == 0) return;
    attention_delta_cuda(delta, dout, out, s, MOST_WARPS, stream);
    CHOOSE_D(backward, float, s.D, PART_COLUMNS, dq, dk, dv, delta, dout, lse, q, k, v, s, warps, stream);
}

#define INSTANTIATE(X)                                                                                               \
    template void flash_forward_cuda<X>(X *, float *, const X *, const X *, const X *, AttnShape, int, int,          \
                                        cudaStream_t);                                                               \
    template void flash_backward_cuda<X>(X *, X *, X *, float *, const X *, const X *, const float *, const X *,     \
                                         const X *, const X *, AttnShape, int, int, cudaStream_t);                   \
    template void flash_part_forward_cuda<X>(float *, float *, const X *, const X *, const X *, AttnShape, int,      \
                                             cudaStream_t);                                                          \
    template void flash_part_backward_cuda<X>(float *, float *, float *, float *, const X *, const X *, const float *,\
                                              const X *, const X *, const X *, AttnShape, int, cudaStream_t);
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
