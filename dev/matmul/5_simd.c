// Rung 5: rung 4 with the sums held in as many vector registers as there are, by name.
//
// MR x VECS vectors of C and VECS of B: all in registers, so that a step of k loads MR numbers of A and
// a row of the tile for MR * VECS multiply-adds, and touches C only before and after. The sums that hang
// over the edge of C are computed on a copy and thrown away.
#include "ladder.h"

#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, MR = 12 };
#elif defined(__AVX__)
enum { LANES = 8, MR = 6 };
#else
enum { LANES = 4, MR = 6 };
#endif
enum { KT = 256, VECS = 2, NR = VECS * LANES, MC = MR * 20 };
typedef float Vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static void pack_a(float *panel, const float *A, size_t lda, size_t mc, size_t kc)
{
    for (size_t m0 = 0; m0 < mc; m0 += MR)
        for (size_t k = 0; k < kc; k++)
            for (size_t r = 0; r < MR; r++) *panel++ = m0 + r < mc ? A[(m0 + r) * lda + k] : 0;
}

static void pack_b(float *tile, const float *B, size_t ldb, size_t kc, size_t nc)
{
    for (size_t k = 0; k < kc; k++)
        for (size_t n = 0; n < NR; n++) *tile++ = n < nc ? B[k * ldb + n] : 0;
}

// C (mc <= MR, nc <= NR) += panel tile
static void register_tile(float *C, size_t ldc, const float *panel, const float *tile, size_t mc, size_t nc, size_t kc)
{
    float edge[MR * NR] = {0}, *c = mc == MR && nc == NR ? C : edge;
    size_t ld = c == C ? ldc : NR;
    Vec sum[MR][VECS];
    for (size_t r = 0; c == edge && r < mc; r++) memcpy(edge + r * NR, C + r * ldc, nc * sizeof *C);
    for (size_t r = 0; r < MR; r++)
        for (size_t v = 0; v < VECS; v++) sum[r][v] = *(Vec *)(c + r * ld + v * LANES);
    for (size_t k = 0; k < kc; k++)
        for (size_t r = 0; r < MR; r++)
            for (size_t v = 0; v < VECS; v++)
                sum[r][v] += panel[k * MR + r] * *(const Vec *)(tile + k * NR + v * LANES);
    for (size_t r = 0; r < MR; r++)
        for (size_t v = 0; v < VECS; v++) *(Vec *)(c + r * ld + v * LANES) = sum[r][v];
    for (size_t r = 0; c == edge && r < mc; r++) memcpy(C + r * ldc, edge + r * NR, nc * sizeof *C);
}

void ladder_simd(float *C, const float *A, const float *B, size_t M, size_t N, size_t K, int threads)
{
    (void)threads;
    float panels[MC * KT], tile[KT * NR];
    memset(C, 0, M * N * sizeof *C);
    for (size_t m0 = 0; m0 < M; m0 += MC)
        for (size_t k0 = 0; k0 < K; k0 += KT) {
            size_t mc = ladder_min(M - m0, MC), kc = ladder_min(K - k0, KT);
            pack_a(panels, A + m0 * K + k0, K, mc, kc);
            for (size_t n0 = 0; n0 < N; n0 += NR) {
                size_t nc = ladder_min(N - n0, NR);
                pack_b(tile, B + k0 * N + n0, N, kc, nc);
                for (size_t m = 0; m < mc; m += MR)
                    register_tile(C + (m0 + m) * N + n0, N, panels + m * kc, tile, ladder_min(mc - m, MR), nc, kc);
            }
        }
}
