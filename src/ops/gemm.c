// gemm: matrix product in a fixed order of additions, about as fast as a BLAS.
//
// The invariant: an element of C is one chain of fused multiply-adds, k ascending, one rounding a step.
// Everything that makes the product fast leaves that chain alone:
//
//   registers  a tile of (MR, NR) elements of C is in flight at once. They are different chains, so a
//              processor overlaps them, and vectors hold neighbours in n. No chain is ever split.
//   packing    copies. A panel is MR rows of op(A) (or NR columns of op(B)), k after k, padded with zeros,
//              so that the inner loop reads memory from front to back whatever the transposition.
//              Where few panels of B would use the copy, A is read where it is.
//   k blocks   after KC steps the chain is stored in C and later continued from there: an fp32 number that is
//              stored and loaded is the same number.
//   edges      a tile at the edge is computed on a copy by the same loop, and its padding is discarded.
//   threads    share out elements, never the terms of an element.
//
// One panel of B (KC x NR) is packed into the first-level cache and used at once by all rows of the block
// of A (MC x KC), which stays in the second level. The k loop costs MR + NR / LANES loads for
// MR * NR / LANES multiply-adds, packing B one copy for 2 MC flops.
//
// Rejected: a sum in several partial chains (pairs, or lanes along k), the usual way to make a single dot
// product fast, because its order would depend on the vector width; threads that share packed panels,
// which saves copies but needs barriers; a scratch buffer given by the caller or kept per thread, because
// ops would have to pass it down to every tile and the stack does as well. `c += a * b` on vectors is
// fused or not as -ffp-contract says, so the multiply-add is written with the processor's own intrinsic,
// and where there is none with fmaf, which is right everywhere and slow.
#include "ops/gemm.h"

#include "formats/formats.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

// What depends on the processor: lanes in a vector, the register tile, and one fused multiply-add a lane.
#if defined(__AVX512F__)
#include <immintrin.h>
#define KERNEL "AVX-512, 12 x 32"
enum { VECTORS = 1, LANES = 16, MR = 12, NR = 32, MC = 264 };
typedef __m512 Vec;
static inline Vec fma_lanes(float a, Vec b, Vec c)
{
    return _mm512_fmadd_ps(_mm512_set1_ps(a), b, c);
}
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define KERNEL "AVX2, 6 x 16"
enum { VECTORS = 1, LANES = 8, MR = 6, NR = 16, MC = 264 };
typedef __m256 Vec;
static inline Vec fma_lanes(float a, Vec b, Vec c)
{
    return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c);
}
#elif defined(__aarch64__)
#include <arm_neon.h>
#define KERNEL "NEON, 8 x 12"
enum { VECTORS = 1, LANES = 4, MR = 8, NR = 12, MC = 264 };
typedef float32x4_t Vec;
static inline Vec fma_lanes(float a, Vec b, Vec c)
{
    return vfmaq_n_f32(c, b, a);
}
#else
#define KERNEL "no vectors, 4 x 8"
enum { VECTORS = 0, LANES = 4, MR = 4, NR = 8, MC = 264 };
typedef float Vec __attribute__((vector_size(16)));
static inline Vec fma_lanes(float a, Vec b, Vec c)
{
    for (int l = 0; l < LANES; l++) c[l] = __builtin_fmaf(a, b[l], c[l]);
    return c;
}
#endif
enum { KC = 256, NC = 1024, VECS = NR / LANES, COPY = 12, MAX_MORE = 16, FEW_PANELS = 4 };
static_assert(NR % LANES == 0, "a row of the register tile is whole vectors");
static_assert(MR % LANES == 0 || MR < LANES, "what pack_along writes beyond a panel is overwritten");
static_assert(MC % MR == 0, "a block of A is whole panels");
enum { STACK = (MC * KC + LANES + KC * NR + MR * NR) * sizeof(float) + 4096 };
static_assert(STACK <= 320 * 1024, "gemm.h promises how much stack");

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// (a0 b0 a1 b1 ...) from the first halves of two vectors, or from the second halves.
#ifdef __clang__
#define ZIP(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int Lanes __attribute__((vector_size(LANES * 4)));
#define ZIP(a, b, ...) __builtin_shuffle(a, b, (Lanes){__VA_ARGS__})
#endif

ALWAYS_INLINE Vec zip_low(Vec a, Vec b)
{
#if defined(__AVX512F__)
    return ZIP(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(__AVX2__) && defined(__FMA__)
    return ZIP(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
    return ZIP(a, b, 0, 4, 1, 5);
#endif
}

ALWAYS_INLINE Vec zip_high(Vec a, Vec b)
{
#if defined(__AVX512F__)
    return ZIP(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__) && defined(__FMA__)
    return ZIP(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    return ZIP(a, b, 2, 6, 3, 7);
#endif
}

ALWAYS_INLINE Vec load(const float *p)
{
    Vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE void store(float *p, Vec v)
{
    memcpy(p, &v, sizeof v);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

// Panels. dst[k * width + r] = alpha * element (r, k), r < n; 0 for n <= r < width.

// Element (r, k) is src[k * ld + r]: each k is a run of neighbours.
ALWAYS_INLINE void pack_across(float *dst, size_t width, const float *src, size_t ld, size_t n, size_t kc,
                               float alpha)
{
    for (size_t k = 0; k < kc; k++, dst += width, src += ld) {
        __builtin_prefetch(src + width); // for the next panel: a hint, which may point anywhere
        __builtin_prefetch(src + width + 16);
        if (n == width) {
            for (size_t r = 0; r < width; r++) dst[r] = alpha * src[r];
        } else {
            for (size_t r = 0; r < width; r++) dst[r] = r < n ? alpha * src[r] : 0;
        }
    }
}

// At most LANES numbers, then zeros.
ALWAYS_INLINE Vec load_some(const float *p, size_t n)
{
    float v[LANES];
    for (size_t l = 0; l < LANES; l++) v[l] = l < n ? p[l] : 0;
    return load(v);
}

// A block of LANES x LANES of a panel, of which only (rows, kc) exist. Zipping row i with row i + LANES / 2,
// log2(LANES) times, is the transposition.
ALWAYS_INLINE void transpose(float *dst, size_t width, const float *src, size_t ld, size_t rows, size_t kc, float alpha)
{
    Vec v[LANES], w[LANES];
#pragma GCC unroll 16
    for (size_t r = 0; r < LANES; r++) {
        v[r] = (Vec){0};
        if (r < rows) v[r] = (kc == LANES ? load(src + r * ld) : load_some(src + r * ld, kc)) * alpha;
    }
#pragma GCC unroll 4
    for (size_t stage = 1; stage < LANES; stage *= 2) {
#pragma GCC unroll 16
        for (size_t r = 0; r < LANES / 2; r++) {
            w[2 * r] = zip_low(v[r], v[r + LANES / 2]);
            w[2 * r + 1] = zip_high(v[r], v[r + LANES / 2]);
        }
        memcpy(v, w, sizeof v);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < LANES; r++)
        if (r < kc) store(dst + r * width, v[r]);
}

// Element (r, k) is src[r * ld + k]: transposes. Each store writes LANES numbers, for a narrower panel beyond this k,
// where the next k is written afterwards (after the last one, the next panel, or spare room).
ALWAYS_INLINE void pack_along(float *dst, size_t width, const float *src, size_t ld, size_t n, size_t kc,
                              float alpha)
{
    for (size_t r0 = 0; r0 < width; r0 += LANES) {
        size_t k = 0, rows = n > r0 ? min_size(n - r0, LANES) : 0;
        for (; k + LANES <= kc; k += LANES)
            transpose(dst + k * width + r0, width, src + r0 * ld + k, ld, rows, LANES, alpha);
        if (k < kc) transpose(dst + k * width + r0, width, src + r0 * ld + k, ld, rows, kc - k, alpha);
    }
}

// C (rows, vecs LANES) = beta * C + a b over kc terms: the chain, one for each element, side by side. rows and vecs are
// constants, at most MR and VECS. Element (r, k) of a is a[r * row + k * step].
ALWAYS_INLINE void kernel(float *C, size_t ldc, const float *a, size_t row, size_t step, const float *b, size_t kc,
                          float beta, size_t rows, size_t vecs)
{
    Vec c[MR][VECS];
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vecs; v++) {
            if (beta == 0) c[r][v] = (Vec){0};
            else if (beta == 1) c[r][v] = load(C + r * ldc + v * LANES);
            else c[r][v] = load(C + r * ldc + v * LANES) * beta;
        }
    for (size_t k = 0; k < kc; k++, a += step, b += NR) {
        Vec of_b[VECS];
#pragma GCC unroll 4
        for (size_t v = 0; v < vecs; v++) of_b[v] = load(b + v * LANES);
#pragma GCC unroll 16
        for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (size_t v = 0; v < vecs; v++) c[r][v] = fma_lanes(a[r * row], of_b[v], c[r][v]);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vecs; v++) store(C + r * ldc + v * LANES, c[r][v]);
}

// A tile of C of which only (rows, cols) exist: the kernel on a copy; a third of its height or one vector wide where
// these hold them.
static void kernel_edge(float *C, size_t ldc, const float *a, const float *b, size_t kc, float beta, size_t rows,
                        size_t cols)
{
    enum { LOW = MR / 3 };
    float whole[MR * NR] __attribute__((aligned(64)));
    if (beta != 0) memset(whole, 0, sizeof whole);
    for (size_t r = 0; beta != 0 && r < rows; r++) memcpy(whole + r * NR, C + r * ldc, cols * sizeof *C);
    if (rows <= LOW && cols <= LANES) kernel(whole, NR, a, 1, MR, b, kc, beta, LOW, 1);
    else if (rows <= LOW) kernel(whole, NR, a, 1, MR, b, kc, beta, LOW, VECS);
    else if (cols <= LANES) kernel(whole, NR, a, 1, MR, b, kc, beta, MR, 1);
    else kernel(whole, NR, a, 1, MR, b, kc, beta, MR, VECS);
    for (size_t r = 0; r < rows; r++) memcpy(C + r * ldc, whole + r * NR, cols * sizeof *C);
}

// A block of A: m rows of kc terms, packed, or where they are: element (r, k) is at[r * row + k * step].
// at NULL: packed.
typedef struct {
    const float *pack, *at;
    size_t row, step, m, kc;
} BlockA;

// One panel of B, packed, against the block of A: m rows and n <= NR columns of C.
static void block_times_panel(float *C, size_t ldc, BlockA a, const float *b_pack, size_t n, float beta)
{
    for (size_t i = 0; i < a.m; i += MR, C += MR * ldc) {
        const float *pack = a.pack + i * a.kc;
        bool whole = a.m - i >= MR && n == NR;
        if (whole && a.at && a.row == 1) kernel(C, ldc, a.at + i, 1, a.step, b_pack, a.kc, beta, MR, VECS);
        else if (whole && a.at) kernel(C, ldc, a.at + i * a.row, a.row, 1, b_pack, a.kc, beta, MR, VECS);
        else if (whole) kernel(C, ldc, pack, 1, MR, b_pack, a.kc, beta, MR, VECS);
        else kernel_edge(C, ldc, pack, b_pack, a.kc, beta, min_size(a.m - i, MR), n);
    }
}

// A packed panel, in place.
static void round_panel(float *panel, size_t n, float alpha)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        panel[i] = alpha * formats_decode(FORMAT_TF32, formats_encode(FORMAT_TF32, panel[i], false));
}

ALWAYS_INLINE void serial(bool tf32, bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha,
                          const float *A, size_t lda, const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    float a_pack[MC * KC + LANES] __attribute__((aligned(64))), b_pack[KC * NR] __attribute__((aligned(64)));
    if (M == 0 || N == 0) return;
    size_t height = ceil_div(ceil_div(M, ceil_div(M, MC)), MR) * MR; // blocks of about equal height
    bool as_it_is = !tf32 && alpha == 1 && (N <= FEW_PANELS * NR || (!trans_a && K <= 64));
    for (size_t i0 = 0; i0 < M; i0 += height) {
        size_t m = min_size(M - i0, height);
        for (size_t k0 = 0; k0 == 0 || k0 < K; k0 += KC) { // once for K = 0, too: C = beta C
            size_t kc = min_size(K - k0, KC);
            const float *at = trans_a ? A + k0 * lda + i0 : A + i0 * lda + k0;
            BlockA a = {a_pack, as_it_is ? at : NULL, trans_a ? 1 : lda, trans_a ? lda : 1, m, kc};
            for (size_t i = 0; i < m; i += MR) {
                size_t n = min_size(m - i, MR);
                if (as_it_is && n == MR && N % NR == 0) continue;
                if (trans_a) pack_across(a_pack + i * kc, MR, at + i, lda, n, kc, tf32 ? 1 : alpha);
                else pack_along(a_pack + i * kc, MR, at + i * lda, lda, n, kc, tf32 ? 1 : alpha);
                if (tf32) round_panel(a_pack + i * kc, MR * kc, alpha);
            }
            for (size_t j = 0; j < N; j += NR) {
                size_t n = min_size(N - j, NR);
                if (trans_b) pack_along(b_pack, NR, B + j * ldb + k0, ldb, n, kc, 1);
                else pack_across(b_pack, NR, B + k0 * ldb + j, ldb, n, kc, 1);
                if (tf32) round_panel(b_pack, NR * kc, 1);
                block_times_panel(C + i0 * ldc + j, ldc, a, b_pack, n, k0 == 0 ? beta : 1);
            }
        }
    }
}

void gemm_serial(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda,
                 const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    serial(false, trans_a, trans_b, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}

void gemm_tf32(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda,
               const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    serial(true, trans_a, trans_b, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}

// The cost: rounds of h w products and COPY (h + w) copies per k.
GemmTile gemm_cut(size_t M, size_t N, size_t threads, GemmTile unit, GemmTile most)
{
    size_t n_rows = ceil_div(M, most.h), n_cols = ceil_div(N, most.w), more = min_size(threads, MAX_MORE);
    size_t best = SIZE_MAX;
    GemmTile tile = most;
    for (size_t i = n_rows; i <= n_rows + more; i++)
        for (size_t j = n_cols; j <= n_cols + more; j++) {
            size_t h = ceil_div(ceil_div(M, i), unit.h) * unit.h, w = ceil_div(ceil_div(N, j), unit.w) * unit.w;
            size_t cost = ceil_div(ceil_div(M, h) * ceil_div(N, w), threads) * (h * w + COPY * (h + w));
            if (cost < best) best = cost, tile = (GemmTile){h, w};
        }
    return tile;
}

GemmTile gemm_tile(size_t M, size_t N, int threads)
{
    return gemm_cut(M, N, (size_t)threads, (GemmTile){MR, NR}, (GemmTile){MC, NC});
}

void gemm(int threads, bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha, const float *A,
          size_t lda, const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    if (M == 0 || N == 0) return;
    if (threads < 1) threads = 1;
    GemmTile tile = gemm_tile(M, N, threads);
    size_t h = tile.h, w = tile.w, n_rows = ceil_div(M, h), n_tiles = n_rows * ceil_div(N, w);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (size_t i = 0; i < n_tiles; i++) {
        size_t r0 = i % n_rows * h, c0 = i / n_rows * w;
        const float *a = A + (trans_a ? r0 : r0 * lda), *b = B + (trans_b ? c0 * ldb : c0);
        gemm_serial(trans_a, trans_b, min_size(M - r0, h), min_size(N - c0, w), K, alpha, a, lda, b, ldb, beta,
                    C + r0 * ldc + c0, ldc);
    }
}

const char *gemm_kernel(void)
{
    return KERNEL;
}

bool gemm_has_vectors(void)
{
    return VECTORS;
}
