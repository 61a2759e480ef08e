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
#include "ops/gemm_bf16.h"

#include "base/check.h"

#if defined(__x86_64__)
#include <assert.h>
#include <immintrin.h>
#include <string.h>

enum { LANES = 16, MR = GEMM_BF16_MR, NR = GEMM_BF16_NR, MC = GEMM_BF16_MC, VECS = NR / LANES };
enum { KC = 256 }; // units, of two k each
static_assert(NR % LANES == 0 && MC % MR == 0, "tiles are whole vectors, blocks whole panels");
enum { STACK = (MC * KC + LANES + KC * NR + MR * NR) * 4 + 4096 };
static_assert(STACK <= 320 * 1024, "gemm_bf16.h promises how much stack");

// The rest of the build may be for an older processor.
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
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
// element (r, K) of an odd K. Each store writes LANES units, beyond a narrower panel where the next one is written
// afterwards (after the last one, spare room).

// Element (r, k) is src[k * ld + r].
INLINE void pack_across(uint32_t *dst, size_t width, const uint16_t *src, size_t ld, size_t n, size_t kc, uint16_t pad)
{
    for (size_t k = 0; k < kc; k += 2, dst += width, src += 2 * ld)
        for (size_t r = 0; r < width; r += LANES) {
            __mmask16 lanes = (__mmask16)first_lanes(n > r ? n - r : 0, LANES);
            __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, src + r));
            __m512i low = _mm512_set1_epi32(pad);
            if (k + 1 < kc) low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, src + ld + r));
            _mm512_storeu_si512(dst + r, _mm512_or_si512(_mm512_slli_epi32(high, 16), low));
        }
}

// Element (r, k) is src[r * ld + k]: transposes blocks of LANES x LANES units, as gemm.c does.
INLINE void pack_along(uint32_t *dst, size_t width, const uint16_t *src, size_t ld, size_t n, size_t kc, uint16_t pad)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8)), pads = _mm512_set1_epi16((short)pad);
    size_t units = ceil_div(kc, 2);
    for (size_t r0 = 0; r0 < width; r0 += LANES)
        for (size_t u = 0; u < units; u += LANES) {
            __m512i v[LANES], w[LANES];
            size_t rows = n > r0 ? min_size(n - r0, LANES) : 0;
            __mmask32 there = first_lanes(kc - 2 * u, 2 * LANES);
#pragma GCC unroll 16
            for (size_t r = 0; r < LANES; r++) {
                v[r] = _mm512_setzero_si512();
                if (r < rows) v[r] = _mm512_mask_loadu_epi16(pads, there, src + (r0 + r) * ld + 2 * u);
                v[r] = _mm512_rol_epi32(v[r], 16);
            }
#pragma GCC unroll 4
            for (size_t stage = 1; stage < LANES; stage *= 2) {
#pragma GCC unroll 16
                for (size_t r = 0; r < LANES / 2; r++) {
                    w[2 * r] = _mm512_permutex2var_epi32(v[r], low, v[r + LANES / 2]);
                    w[2 * r + 1] = _mm512_permutex2var_epi32(v[r], high, v[r + LANES / 2]);
                }
                memcpy(v, w, sizeof v);
            }
#pragma GCC unroll 16
            for (size_t r = 0; r < LANES; r++)
                if (u + r < units) _mm512_storeu_si512(dst + (u + r) * width + r0, v[r]);
        }
}

// C (MR, NR) = [C +] a b over `units` pairs of terms.
INLINE void kernel(float *C, size_t ldc, const uint32_t *a, const uint32_t *b, size_t units, bool add)
{
    __m512 c[MR][VECS];
#pragma GCC unroll 16
    for (size_t r = 0; r < MR; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < VECS; v++)
            c[r][v] = add ? _mm512_loadu_ps(C + r * ldc + v * LANES) : _mm512_setzero_ps();
    for (size_t u = 0; u < units; u++, a += MR, b += NR) {
        __m512i row[VECS];
#pragma GCC unroll 4
        for (size_t v = 0; v < VECS; v++) row[v] = _mm512_loadu_si512(b + v * LANES);
#pragma GCC unroll 16
        for (size_t r = 0; r < MR; r++)
#pragma GCC unroll 4
            for (size_t v = 0; v < VECS; v++) c[r][v] = pair(c[r][v], _mm512_set1_epi32((int)a[r]), row[v]);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < MR; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < VECS; v++) _mm512_storeu_ps(C + r * ldc + v * LANES, c[r][v]);
}

// A tile of C of which only (rows, cols) exist: the whole kernel on a copy.
TARGET static void kernel_edge(float *C, size_t ldc, const uint32_t *a, const uint32_t *b, size_t units, bool add,
                               size_t rows, size_t cols)
{
    float whole[MR * NR] __attribute__((aligned(64))) = {0};
    for (size_t r = 0; add && r < rows; r++) memcpy(whole + r * NR, C + r * ldc, cols * sizeof *C);
    kernel(whole, NR, a, b, units, add);
    for (size_t r = 0; r < rows; r++) memcpy(C + r * ldc, whole + r * NR, cols * sizeof *C);
}

TARGET void gemm_bf16_serial(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, const uint16_t *A, size_t lda,
                             const uint16_t *B, size_t ldb, bool add, float *C, size_t ldc)
{
    enum { MINUS_0 = 0x8000 };
    uint32_t a_pack[MC * KC + LANES] __attribute__((aligned(64))), b_pack[KC * NR] __attribute__((aligned(64)));
    size_t height = M ? ceil_div(ceil_div(M, ceil_div(M, MC)), MR) * MR : 1; // blocks of about equal height
    for (size_t i0 = 0; i0 < M; i0 += height)
        for (size_t k0 = 0; k0 == 0 || k0 < K; k0 += 2 * KC) { // once for K = 0, too
            size_t m = min_size(M - i0, height), kc = min_size(K - k0, 2 * KC), units = ceil_div(kc, 2);
            for (size_t i = 0; i < m; i += MR) {
                uint32_t *to = a_pack + i * units;
                if (trans_a) pack_across(to, MR, A + k0 * lda + i0 + i, lda, min_size(m - i, MR), kc, MINUS_0);
                else pack_along(to, MR, A + (i0 + i) * lda + k0, lda, min_size(m - i, MR), kc, MINUS_0);
            }
            for (size_t j = 0; j < N; j += NR) {
                size_t n = min_size(N - j, NR);
                if (trans_b) pack_along(b_pack, NR, B + j * ldb + k0, ldb, n, kc, 0);
                else pack_across(b_pack, NR, B + k0 * ldb + j, ldb, n, kc, 0);
                for (size_t i = 0; i < m; i += MR) {
                    float *c = C + (i0 + i) * ldc + j;
                    if (m - i >= MR && n == NR) kernel(c, ldc, a_pack + i * units, b_pack, units, add || k0);
                    else kernel_edge(c, ldc, a_pack + i * units, b_pack, units, add || k0, min_size(m - i, MR), n);
                }
            }
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
