// Rung 4: the tiles are copied first, and a small block of sums is finished before the next.
//
// The rows of a tile of B lie N numbers apart: other pages, and for some N all in the same few sets of the
// cache. The copy has no gaps. A is copied as well, in panels of MR rows, so that the numbers that one step
// of k needs are neighbours. Past the edges the copies hold zeros: the inner loops have fixed lengths.
// The sums are an ordinary array: whether they stay in registers is up to the compiler. 4 rows are few: a
// step of k has more loads than multiply-adds.
#include "ladder.h"

#include <math.h>
#include <string.h>

enum { KT = 256, MR = 4, NR = 32, MC = MR * 60 };

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
static void small_tile(float *C, size_t ldc, const float *panel, const float *tile, size_t mc, size_t nc, size_t kc)
{
    float sum[MR][NR] = {0};
    for (size_t r = 0; r < mc; r++) memcpy(sum[r], C + r * ldc, nc * sizeof *C);
    for (size_t k = 0; k < kc; k++)
        for (size_t r = 0; r < MR; r++)
            for (size_t n = 0; n < NR; n++) sum[r][n] = fmaf(panel[k * MR + r], tile[k * NR + n], sum[r][n]);
    for (size_t r = 0; r < mc; r++) memcpy(C + r * ldc, sum[r], nc * sizeof *C);
}

void ladder_packed(float *C, const float *A, const float *B, size_t M, size_t N, size_t K, int threads)
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
                    small_tile(C + (m0 + m) * N + n0, N, panels + m * kc, tile, ladder_min(mc - m, MR), nc, kc);
            }
        }
}
