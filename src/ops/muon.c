// muon: momentum, made orthogonal, on the CPU.
//
//   m = b m + (1 - b) g;    O = orthogonal((1 - b) g + b m);    w -= lr (0.2 sqrt(max(R, C)) O + decay w)
//
// (Jordan 2024, kellerjordan.github.io/posts/muon; scale and decay of Liu et al., arXiv 2502.16982.)
// orthogonal(U S V^T) is about U V^T: all singular values of the update become alike, so directions that
// the gradient shows rarely are learnt as fast as the frequent ones. It is computed without a decomposition, by
// five steps of an odd polynomial that pulls every singular value in (0, 1] to somewhere in 0.7 .. 1.2:
//
//   X = G / (|G| + 1e-7);    five times:  A = X X^T,  X = 3.4445 X - 4.7750 A X + 2.0315 A A X
//
// (1 - b) g + b m is Nesterov's look-ahead. Entries of O have an rms of about 1 / sqrt(max(R, C)); with the
// factor it is 0.2, about that of AdamW's update, so that AdamW's lr and decay may be kept. The method is for
// matrices that map one hidden space to another; embeddings, head and vectors are left to AdamW (optim_kinds.c).
// q, k and v are matrices of their own here, whatever the number of matmuls that use them.
//
// The invariant: a whole matrix at a time; bits do not depend on threads, for tiles are cut by the shape.
// A is min(R, C) on a side: for a tall matrix X^T X, from the other side.
//
// Rejected: bf16 for the products (Jordan's choice on GPUs; fp32 is as fast here), an exact decomposition
// (the convergence of the smallest singular values buys nothing and costs ten times as much).
#include "ops/dev_cpu.h"

#include <math.h>

enum { STEPS = 5, TILES = 4, TILE_MIN = 16, TILE_MAX = 64 };
static const float COEF_1 = 3.4445f, COEF_3 = -4.7750f, COEF_5 = 2.0315f;

// Rows of a tile, from the shape alone: a multiple of 16, and tiles enough that few threads share them evenly.
static size_t tile_rows(size_t rows)
{
    size_t tile = (rows + TILES * TILE_MIN - 1) / (TILES * TILE_MIN) * TILE_MIN;
    return tile < TILE_MAX ? tile : TILE_MAX;
}

// One step of the polynomial: Y from X, both (R, C); A and B hold k * k each.
static void polynomial(Dev *dev, float *Y, const float *X, float *A, float *B, size_t R, size_t C)
{
    bool tall = R > C;
    size_t k = tall ? C : R, tile = tile_rows(k), tall_tile = tile_rows(R);
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t r = 0; r < k; r += tile) {
        size_t h = k - r < tile ? k - r : tile;
        if (tall) matmul_gemm(true, false, h, k, R, 1, X + r, C, X, C, 0, A + r * k, k);
        else matmul_gemm(false, true, h, k, C, 1, X + r * C, C, X, C, 0, A + r * k, k);
    }
    // B = c1 + c3 A + c5 A A, so that Y is B X, or X B
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t r = 0; r < k; r += tile) {
        size_t h = k - r < tile ? k - r : tile;
        matmul_gemm(false, false, h, k, k, COEF_5, A + r * k, k, A, k, 0, B + r * k, k);
        for (size_t i = r * k; i < (r + h) * k; i++) B[i] += COEF_3 * A[i];
        for (size_t i = r; i < r + h; i++) B[i * k + i] += COEF_1;
    }
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t r = 0; r < R; r += tall_tile) {
        size_t h = R - r < tall_tile ? R - r : tall_tile;
        if (tall) matmul_gemm(false, false, h, C, k, 1, X + r * C, C, B, k, 0, Y + r * C, C);
        else matmul_gemm(false, false, h, C, k, 1, B + r * k, k, X, C, 0, Y + r * C, C);
    }
}

static void muon(Dev *dev, float *weight, float *m, float *grad, float *scratch, size_t R, size_t C, Update u)
{
    size_t n = R * C, k = R < C ? R : C;
    float b = u.beta1;
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * u.grad_scale;
        m[i] = b * m[i] + (1 - b) * g;
        grad[i] = (1 - b) * g + b * m[i];
    }
    float to_one = (float)(1 / (sqrt(dev->sum_squares(dev, grad, n)) + 1e-7));
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) grad[i] *= to_one;
    float *from = grad, *to = scratch, *A = scratch + n, *B = A + k * k;
    for (int i = 0; i < STEPS; i++) {
        polynomial(dev, to, from, A, B, R, C);
        float *old = from;
        from = to;
        to = old;
    }
    float shrink = 1 - u.lr * u.weight_decay, scale = u.lr * 0.2f * sqrtf((float)(R > C ? R : C));
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        weight[i] = weight[i] * shrink - scale * from[i];
        grad[i] = 0;
    }
}

void muon_cpu_fill(Dev *dev)
{
    dev->muon = muon;
}
