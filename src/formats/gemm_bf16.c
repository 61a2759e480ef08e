// gemm_bf16: the structure of gemm.c (its opening comment explains blocks, panels and edges), on pairs of bf16 numbers.
//
//   vdpbf16ps c, x, y:   c = fma(x.high, y.high, c), then c = fma(x.low, y.low, c)      in each of 16 lanes
//
// The instruction takes two steps of the chain, each rounded to nearest; denormal inputs and results are zero for it.
// It begins with the upper halves. So a panel stores k in the upper half of a 32-bit unit and k + 1 in the lower one,
// and the chain is that of gemm.c: k ascending, one fused multiply-add a step. (Intel's manual defines this order; the
// test compares bits.) A product of two bf16 numbers needs 16 bits, so it is exact, and a step rounds once.
//
//   registers   c[r][v] (12 x 2 vectors of 16 floats) += unit of A[r], broadcast, times 16 units of B, for v = 0, 1
//
// An odd K ends with a unit of one number. Its lower halves are -0 in A and +0 in B: c + (-0) is c, whatever c is.
//
// Rejected: order within a pair as memory has it (k + 1 before k: packing along k would save one rotation a vector, but
// no other processor's product would have these bits); a packed copy of the weights kept for a step (what packing costs
// is in doc/gemm.md); AMX, whose tiles need leave of the operating system and more code than this file, and BFMMLA and
// BFDOT, which round otherwise.
#include "formats/gemm_bf16.h"

#include "base/check.h"

#if defined(__x86_64__)
#include <assert.h>
#include <immintrin.h>
#include <string.h>

enum { LANES = 16, MR = GEMM_BF16_MR, NR = GEMM_BF16_NR, MC = GEMM_BF16_MC, VECS = NR / LANES };
enum { KC = 256 }; // units, of two k each
static_assert(NR % LANES == 0 && MC % MR == 0, "tiles are whole vectors, blocks whole panels");
enum { STACK = (MC * KC + KC * NR + MR * NR) * 4 + 4096 };
static_assert(STACK <= 320 * 1024, "gemm_bf16.h promises how much stack");

#define TARGET GEMM_BF16_TARGET
#define INLINE TARGET static inline __attribute__((always_inline))

bool gemm_bf16_runs(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

// A mask of the first n of `lanes` lanes.
static uint32_t first_lanes(size_t n, size_t lanes)
{
    return n < lanes ? (1u << n) - 1 : lanes == 32 ? ~0u : (1u << lanes) - 1;
}

// c + x y over a pair of k: upper halves first.
INLINE __m512 pair(__m512 c, __m512i x, __m512i y)
{
    return _mm512_dpbf16_ps(c, (__m512bh)x, (__m512bh)y);
}

// Panels. Unit dst[u * width + r] holds the elements (r, 2u) and (r, 2u + 1), r < n; 0 for n <= r < width. `pad`: the
// element (r, K) of an odd K.

// The first `n` of a vector of units: all, or the MR of a narrow panel.
INLINE void store_units(uint32_t *to, __m512i v, size_t n)
{
    if (n >= LANES) _mm512_storeu_si512(to, v);
    else {
        static_assert(MR == 12, "8 and 4: two stores are faster than one with a mask");
        _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(v));
        _mm_storeu_si128((__m128i *)(to + 8), _mm512_extracti32x4_epi32(v, 2));
    }
}

// Element (r, k) is src[k * ld + r]. n may need several panels, `stride` units apart. GROUP vectors of a row of src are
// packed together, so that a cache line and a page of src are visited once and not for every panel.
INLINE void pack_across(uint32_t *dst, size_t width, size_t stride, const uint16_t *src, size_t ld, size_t n, size_t kc,
                        uint16_t pad)
{
    enum { GROUP = 4 };
    size_t each = min_size(width, LANES), per_panel = ceil_div(width, LANES), units = ceil_div(kc, 2);
    size_t n_vectors = ceil_div(n, width) * per_panel;
    const __m512i pads = _mm512_set1_epi32(pad);
    for (size_t v = 0; v < n_vectors; v += GROUP) {
        size_t in_group = min_size(n_vectors - v, GROUP);
        uint32_t *to[GROUP];
        __mmask16 lanes[GROUP];
        for (size_t i = 0; i < in_group; i++) {
            size_t r = (v + i) * each;
            to[i] = dst + (v + i) / per_panel * stride + (v + i) % per_panel * LANES;
            lanes[i] = (__mmask16)first_lanes(n > r ? n - r : 0, each);
        }
        const uint16_t *from = src + v * each;
        for (size_t u = 0; u < units; u++, from += 2 * ld)
            for (size_t i = 0; i < in_group; i++) {
                __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes[i], from + i * each)), low = pads;
                if (2 * u + 1 < kc)
                    low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes[i], from + ld + i * each));
                store_units(to[i] + u * width, _mm512_or_si512(_mm512_slli_epi32(high, 16), low), each);
            }
    }
}

// Rows of 16 numbers of 32 bits become columns: zips row r with row r + 8, four times.
INLINE void transpose(__m512i *v)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512i w[LANES];
#pragma GCC unroll 4
    for (size_t stage = 1; stage < LANES; stage *= 2) {
#pragma GCC unroll 16
        for (size_t r = 0; r < LANES / 2; r++) {
            w[2 * r] = _mm512_permutex2var_epi32(v[r], low, v[r + LANES / 2]);
            w[2 * r + 1] = _mm512_permutex2var_epi32(v[r], high, v[r + LANES / 2]);
        }
        memcpy(v, w, sizeof w);
    }
}

// Element (r, k) is src[r * ld + k], of one panel: transposes blocks of LANES x LANES units.
INLINE void pack_along(uint32_t *dst, size_t width, const uint16_t *src, size_t ld, size_t n, size_t kc, uint16_t pad)
{
    const __m512i pads = _mm512_set1_epi16((short)pad);
    size_t units = ceil_div(kc, 2);
    for (size_t r0 = 0; r0 < width; r0 += LANES) {
        for (size_t u = 0; u < units; u += LANES) {
            __m512i v[LANES];
            size_t rows = n > r0 ? min_size(n - r0, LANES) : 0;
            __mmask32 there = first_lanes(kc - 2 * u, 2 * LANES);
#pragma GCC unroll 16
            for (size_t r = 0; r < LANES; r++) {
                v[r] = _mm512_setzero_si512();
                if (r < rows) v[r] = _mm512_mask_loadu_epi16(pads, there, src + (r0 + r) * ld + 2 * u);
                v[r] = _mm512_rol_epi32(v[r], 16);
            }
            transpose(v);
#pragma GCC unroll 16
            for (size_t r = 0; r < LANES; r++)
                if (u + r < units) store_units(dst + (u + r) * width + r0, v[r], width - r0);
        }
    }
}

// Panels of rows (of A, with padding of -0) or of columns (of B, of +0), `stride` units apart.
INLINE void pack_panels(uint32_t *to, size_t width, size_t stride, bool along, const uint16_t *from, size_t ld,
                        size_t n, size_t kc, uint16_t pad)
{
    if (!along) pack_across(to, width, stride, from, ld, n, kc, pad);
    else
        for (size_t r = 0; r < n; r += width)
            pack_along(to + r / width * stride, width, from + r * ld, ld, min_size(n - r, width), kc, pad);
}

// C (rows, NR) = [C +] a b over `units` pairs of terms; rows is a constant, at most MR.
INLINE void kernel(const size_t rows, float *C, size_t ldc, const uint32_t *a, const uint32_t *b, size_t units,
                   bool add)
{
    __m512 c[MR][VECS];
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < VECS; v++)
            c[r][v] = add ? _mm512_loadu_ps(C + r * ldc + v * LANES) : _mm512_setzero_ps();
    for (size_t u = 0; u < units; u++, a += MR, b += NR) {
        __m512i row[VECS];
#pragma GCC unroll 4
        for (size_t v = 0; v < VECS; v++) row[v] = _mm512_loadu_si512(b + v * LANES);
#pragma GCC unroll 16
        for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (size_t v = 0; v < VECS; v++) c[r][v] = pair(c[r][v], _mm512_set1_epi32((int)a[r]), row[v]);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < VECS; v++) _mm512_storeu_ps(C + r * ldc + v * LANES, c[r][v]);
}

// A tile of `rows` rows, rounded up to a multiple of 4.
TARGET static void kernel_rows(size_t rows, float *C, size_t ldc, const uint32_t *a, const uint32_t *b, size_t units,
                               bool add)
{
    static_assert(MR == 12, "three kernels");
    if (rows > 8) kernel(12, C, ldc, a, b, units, add);
    else if (rows > 4) kernel(8, C, ldc, a, b, units, add);
    else kernel(4, C, ldc, a, b, units, add);
}

// A tile of C of which only (rows, cols) exist: the kernel on a copy.
TARGET static void kernel_edge(float *C, size_t ldc, const uint32_t *a, const uint32_t *b, size_t units, bool add,
                               size_t rows, size_t cols)
{
    float whole[MR * NR] __attribute__((aligned(64))) = {0};
    for (size_t r = 0; add && r < rows; r++) memcpy(whole + r * NR, C + r * ldc, cols * sizeof *C);
    kernel_rows(rows, whole, NR, a, b, units, add);
    for (size_t r = 0; r < rows; r++) memcpy(C + r * ldc, whole + r * NR, cols * sizeof *C);
}

enum { MINUS_0 = 0x8000, PLUS_0 = 0 };

TARGET void gemm_bf16_serial(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, const uint16_t *A, size_t lda,
                             const uint16_t *B, size_t ldb, bool add, float *C, size_t ldc)
{
    uint32_t a_pack[MC * KC] __attribute__((aligned(64))), b_pack[KC * NR] __attribute__((aligned(64)));
    size_t height = M ? ceil_div(ceil_div(M, ceil_div(M, MC)), MR) * MR : 1; // blocks of about equal height
    for (size_t i0 = 0; i0 < M; i0 += height)
        for (size_t k0 = 0; k0 == 0 || k0 < K; k0 += 2 * KC) { // once for K = 0, too
            size_t m = min_size(M - i0, height), kc = min_size(K - k0, 2 * KC), units = ceil_div(kc, 2);
            pack_panels(a_pack, MR, units * MR, !trans_a, trans_a ? A + k0 * lda + i0 : A + i0 * lda + k0, lda, m, kc,
                        MINUS_0);
            for (size_t j = 0; j < N; j += NR) {
                size_t n = min_size(N - j, NR);
                pack_panels(b_pack, NR, 0, trans_b, trans_b ? B + j * ldb + k0 : B + k0 * ldb + j, ldb, n, kc, PLUS_0);
                for (size_t i = 0; i < m; i += MR) {
                    float *c = C + (i0 + i) * ldc + j;
                    if (m - i >= MR && n == NR) kernel(MR, c, ldc, a_pack + i * units, b_pack, units, add || k0);
                    else kernel_edge(c, ldc, a_pack + i * units, b_pack, units, add || k0, min_size(m - i, MR), n);
                }
            }
        }
}

TARGET void gemm_bf16_pack_a(bool trans, size_t M, size_t K, const uint16_t *A, size_t lda, uint32_t *to, size_t stride)
{
    pack_panels(to, MR, stride, !trans, A, lda, M, K, MINUS_0);
}

TARGET void gemm_bf16_pack_b(bool trans, size_t N, size_t K, const uint16_t *B, size_t ldb, uint32_t *to, size_t stride)
{
    pack_panels(to, NR, stride, trans, B, ldb, N, K, PLUS_0);
}

TARGET void gemm_bf16_panel(size_t M, size_t units, const uint32_t *a, size_t stride, const uint32_t *b, bool add,
                            float *C)
{
    for (size_t i = 0; i < M; i += MR, a += stride) kernel_rows(min_size(M - i, MR), C + i * NR, NR, a, b, units, add);
}

TARGET void gemm_bf16_transpose(float *out, size_t ld_out, const float *in, size_t ld_in, size_t rows, size_t cols)
{
    for (size_t r0 = 0; r0 < rows; r0 += LANES)
        for (size_t c0 = 0; c0 < cols; c0 += LANES) {
            __m512i v[LANES];
            __mmask16 across = (__mmask16)first_lanes(cols - c0, LANES);
            __mmask16 down = (__mmask16)first_lanes(rows - r0, LANES);
#pragma GCC unroll 16
            for (size_t r = 0; r < LANES; r++)
                v[r] = _mm512_maskz_loadu_epi32(r < rows - r0 ? across : 0, in + (r0 + r) * ld_in + c0);
            transpose(v);
#pragma GCC unroll 16
            for (size_t c = 0; c < LANES; c++)
                if (c < cols - c0) _mm512_mask_storeu_epi32(out + (c0 + c) * ld_out + r0, down, v[c]);
        }
}

// sum_k x[k] w[k], in PARTS vectors of partial sums: an addition waits for the one before it.
INLINE float dot(const uint16_t *x, const uint16_t *w, size_t K)
{
    enum { PARTS = 4 };
    __m512 part[PARTS] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    size_t k = 0;
    for (; k + PARTS * 2 * LANES <= K; k += PARTS * 2 * LANES)
#pragma GCC unroll 4
        for (size_t p = 0; p < PARTS; p++) {
            size_t at = k + p * 2 * LANES;
            part[p] = pair(part[p], _mm512_loadu_si512(x + at), _mm512_loadu_si512(w + at));
        }
#pragma GCC unroll 4
    for (size_t p = 0; p < PARTS; p++, k += 2 * LANES) {
        __mmask32 there = first_lanes(k < K ? K - k : 0, 2 * LANES);
        part[p] = pair(part[p], _mm512_maskz_loadu_epi16(there, x + k), _mm512_maskz_loadu_epi16(there, w + k));
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(part[0], part[1]), _mm512_add_ps(part[2], part[3])));
}

TARGET static void few_outputs(float *out, const uint16_t *inp, const uint16_t *weight, size_t N, size_t C, size_t OC)
{
    for (size_t n = 0; n < N; n++) out[n * OC] = dot(inp + n * C, weight, C);
}

void gemm_bf16_few_rows(int threads, float *out, const uint16_t *inp, const uint16_t *weight, size_t N, size_t C,
                        size_t OC)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t o = 0; o < OC; o++) few_outputs(out + o, inp, weight + o * C, N, C, OC);
}

TARGET double gemm_bf16_loop(size_t times)
{
    enum { CHAINS = 24, ROUNDS = 10 };
    __m512 c[CHAINS];
    __m512i x = _mm512_set1_epi32(0x3f803f80); // ones
    for (int i = 0; i < CHAINS; i++) c[i] = _mm512_setzero_ps();
    for (size_t k = 0; k < times * ROUNDS; k++) {
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) c[i] = pair(c[i], x, x);
        __asm__ volatile("" : "+v"(x)); // not known beforehand
    }
    for (int i = 1; i < CHAINS; i++) c[0] = _mm512_add_ps(c[0], c[i]);
    check(times == 0 || _mm512_reduce_add_ps(c[0]) > 0);
    return 4.0 * LANES * CHAINS * ROUNDS * (double)times;
}

#else

bool gemm_bf16_runs(void)
{
    return false;
}

void gemm_bf16_serial(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, const uint16_t *A, size_t lda,
                      const uint16_t *B, size_t ldb, bool add, float *C, size_t ldc)
{
    (void)trans_a, (void)trans_b, (void)M, (void)N, (void)K, (void)A, (void)lda, (void)B, (void)ldb, (void)add, (void)C;
    (void)ldc;
    check(gemm_bf16_runs());
}

void gemm_bf16_pack_a(bool trans, size_t M, size_t K, const uint16_t *A, size_t lda, uint32_t *to, size_t stride)
{
    (void)trans, (void)M, (void)K, (void)A, (void)lda, (void)to, (void)stride;
    check(gemm_bf16_runs());
}

void gemm_bf16_pack_b(bool trans, size_t N, size_t K, const uint16_t *B, size_t ldb, uint32_t *to, size_t stride)
{
    (void)trans, (void)N, (void)K, (void)B, (void)ldb, (void)to, (void)stride;
    check(gemm_bf16_runs());
}

void gemm_bf16_panel(size_t M, size_t units, const uint32_t *a, size_t stride, const uint32_t *b, bool add, float *C)
{
    (void)M, (void)units, (void)a, (void)stride, (void)b, (void)add, (void)C;
    check(gemm_bf16_runs());
}

void gemm_bf16_transpose(float *out, size_t ld_out, const float *in, size_t ld_in, size_t rows, size_t cols)
{
    (void)out, (void)ld_out, (void)in, (void)ld_in, (void)rows, (void)cols;
    check(gemm_bf16_runs());
}

void gemm_bf16_few_rows(int threads, float *out, const uint16_t *inp, const uint16_t *weight, size_t N, size_t C,
                        size_t OC)
{
    (void)threads, (void)out, (void)inp, (void)weight, (void)N, (void)C, (void)OC;
    check(gemm_bf16_runs());
}

double gemm_bf16_loop(size_t times)
{
    (void)times;
    check(gemm_bf16_runs());
    return 0;
}

#endif
