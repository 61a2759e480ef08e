// attention: causal attention with grouped queries, on the CPU, without the T x T matrix.
//
// For a block of queries the keys come in tiles. With m the running maximum and l the running
// denominator of a row,
//
//   S = scale Q K^T,  m' = max(m, rowmax S),  P = exp(S - m'),  l' = l e^(m - m') + rowsum P,  O' = O e^(m - m') + P V
//
// and at the end O / l, lse = m + log l (Dao et al., arXiv 2205.14135, algorithm 1). Backward recomputes
// P = exp(S - lse):
//
//   delta = rowsum(dO * O),  dV += P^T dO,  dP = dO V^T,  dS = scale P (dP - delta),  dQ += dS K,  dK += dS^T Q
//
// The invariant: scratch is one (Q_BLOCK, K_TILE) tile or two per thread, whatever T is. A tile ends at
// the last key that the block may see, so the causal half that is never needed is not computed, but for
// the triangle on the diagonal. A forward task is a (batch, head, query block); a backward task is a
// (batch, kv head) and owns its dK and dV, so nothing is summed across threads. Tile products are
// single-threaded sgemm calls. The naive twin at the end keeps the whole matrix, in double; tests
// compare the two.
#include "dev_cpu.h"

#include "vmath.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q_BLOCK = 64, K_TILE = 256 };

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Number of keys that row r of a block starting at query q0 sees within a tile of w keys starting at k0.
static size_t visible(AttnShape s, size_t q0, size_t r, size_t k0, size_t w)
{
    size_t end = s.q_start + q0 + r + 1;
    return end <= k0 ? 0 : min_size(end - k0, w);
}

// One row of online softmax: S row -> P row; returns the factor by which what was summed so far shrinks.
static float softmax_row(float *row, size_t n, size_t w, float *m, float *l)
{
    float top = *m, sum = 0;
#pragma omp simd reduction(max : top)
    for (size_t j = 0; j < n; j++) top = row[j] > top ? row[j] : top;
    for (size_t j = 0; j < n; j++)
        if (row[j] != row[j]) top = row[j]; // max() drops NaN; a NaN score must not vanish
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < n; j++) {
        row[j] = vmath_exp(row[j] - top);
        sum += row[j];
    }
    for (size_t j = n; j < w; j++) row[j] = 0;
    float shrink = *m == -INFINITY ? 0.0f : vmath_exp(*m - top);
    *l = *l * shrink + sum;
    *m = top;
    return shrink;
}

static void forward_block(float *out, float *lse, const float *q, const float *k, const float *v, AttnShape s,
                          size_t q0)
{
    size_t H = s.H, D = s.D, rows = min_size(Q_BLOCK, s.Tq - q0), ldo = H * D;
    float tile[Q_BLOCK * K_TILE] __attribute__((aligned(64))), m[Q_BLOCK], l[Q_BLOCK], scale = 1 / sqrtf((float)D);
    for (size_t r = 0; r < rows; r++) m[r] = -INFINITY, l[r] = 0;
    size_t n_keys = min_size(s.q_start + q0 + rows, s.Tk);
    for (size_t k0 = 0; k0 < n_keys; k0 += K_TILE) {
        size_t w = min_size(K_TILE, n_keys - k0);
        matmul_gemm(false, true, rows, w, D, scale, q, s.ldq, k + k0 * s.ldkv, s.ldkv, 0, tile, K_TILE);
        for (size_t r = 0; r < rows; r++) {
            size_t n = visible(s, q0, r, k0, w);
            float shrink = n ? softmax_row(tile + r * K_TILE, n, w, &m[r], &l[r]) : 1;
            if (!n) memset(tile + r * K_TILE, 0, w * sizeof *tile);
            if (k0 == 0) continue; // nothing summed yet: the product below writes
            for (size_t d = 0; d < D; d++) out[r * ldo + d] *= shrink;
        }
        matmul_gemm(false, false, rows, D, w, 1, tile, K_TILE, v + k0 * s.ldkv, s.ldkv, k0 == 0 ? 0 : 1, out, ldo);
    }
    for (size_t r = 0; r < rows; r++) {
        float inverse = 1 / l[r];
        for (size_t d = 0; d < D; d++) out[r * ldo + d] *= inverse;
        if (lse) lse[r] = m[r] + logf(l[r]);
    }
}

static void attention_forward(Dev *dev, X *out_, float *lse, const X *q_, const X *k_, const X *v_, AttnShape s)
{
    float *out = (float *)out_;
    const float *q = (const float *)q_, *k = (const float *)k_, *v = (const float *)v_;
    size_t n_blocks = (s.Tq + Q_BLOCK - 1) / Q_BLOCK, n_tasks = s.B * s.H * n_blocks;
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < n_tasks; i++) {
        size_t block = n_blocks - 1 - i / (s.B * s.H); // the long rows first
        size_t b = i % (s.B * s.H) / s.H, h = i % s.H, g = h / (s.H / s.G), q0 = block * Q_BLOCK;
        size_t row = b * s.Tq + q0, kv = b * s.Tk * s.ldkv + g * s.D;
        forward_block(out + row * s.H * s.D + h * s.D, lse ? lse + (b * s.H + h) * s.Tq + q0 : NULL,
                      q + row * s.ldq + h * s.D, k + kv, v + kv, s, q0);
    }
}

// One query block of one head. q, dq, out, dout point at row q0 of the head; k, v, dk, dv at row 0 of
// the kv head.
static void backward_block(float *dq, float *dk, float *dv, const float *dout, const float *out, const float *lse,
                           const float *q, const float *k, const float *v, AttnShape s, size_t q0)
{
    size_t D = s.D, rows = min_size(Q_BLOCK, s.Tq - q0), ldo = s.H * D;
    float p[Q_BLOCK * K_TILE] __attribute__((aligned(64))), dp[Q_BLOCK * K_TILE] __attribute__((aligned(64)));
    float delta[Q_BLOCK], scale = 1 / sqrtf((float)D);
    for (size_t r = 0; r < rows; r++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t d = 0; d < D; d++) sum += dout[r * ldo + d] * out[r * ldo + d];
        delta[r] = sum;
    }
    size_t n_keys = min_size(q0 + rows, s.Tk);
    for (size_t k0 = 0; k0 < n_keys; k0 += K_TILE) {
        size_t w = min_size(K_TILE, n_keys - k0), kv = k0 * s.ldkv;
        matmul_gemm(false, true, rows, w, D, scale, q, s.ldq, k + kv, s.ldkv, 0, p, K_TILE);
        matmul_gemm(false, true, rows, w, D, 1, dout, ldo, v + kv, s.ldkv, 0, dp, K_TILE);
        for (size_t r = 0; r < rows; r++) {
            size_t n = visible(s, q0, r, k0, w);
            float *p_row = p + r * K_TILE, *ds_row = dp + r * K_TILE, row_lse = lse[r], row_delta = delta[r];
#pragma omp simd
            for (size_t j = 0; j < n; j++) {
                p_row[j] = vmath_exp(p_row[j] - row_lse);
                ds_row[j] = scale * p_row[j] * (ds_row[j] - row_delta);
            }
            for (size_t j = n; j < w; j++) p_row[j] = ds_row[j] = 0;
        }
        matmul_gemm(true, false, w, D, rows, 1, p, K_TILE, dout, ldo, 1, dv + kv, s.ldkv);
        matmul_gemm(true, false, w, D, rows, 1, dp, K_TILE, q, s.ldq, 1, dk + kv, s.ldkv);
        matmul_gemm(false, false, rows, D, w, 1, dp, K_TILE, k + kv, s.ldkv, k0 == 0 ? 0 : 1, dq, s.ldq);
    }
}

static void attention_backward(Dev *dev, X *dq_, X *dk_, X *dv_, const X *dout_, const X *out_, const float *lse,
                               const X *q_, const X *k_, const X *v_, AttnShape s)
{
    float *dq = (float *)dq_, *dk = (float *)dk_, *dv = (float *)dv_;
    const float *dout = (const float *)dout_, *out = (const float *)out_;
    const float *q = (const float *)q_, *k = (const float *)k_, *v = (const float *)v_;
    size_t D = s.D, per_group = s.H / s.G;
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < s.B * s.G; i++) {
        size_t b = i / s.G, g = i % s.G, kv = b * s.Tk * s.ldkv + g * D;
        for (size_t t = 0; t < s.Tk; t++) {
            memset(dk + kv + t * s.ldkv, 0, D * sizeof *dk);
            memset(dv + kv + t * s.ldkv, 0, D * sizeof *dv);
        }
        for (size_t h = g * per_group; h < (g + 1) * per_group; h++)
            for (size_t q0 = 0; q0 < s.Tq; q0 += Q_BLOCK) {
                size_t row = b * s.Tq + q0, o = row * s.H * D + h * D, at = row * s.ldq + h * D;
                backward_block(dq + at, dk + kv, dv + kv, dout + o, out + o, lse + (b * s.H + h) * s.Tq + q0,
                               q + at, k + kv, v + kv, s, q0);
            }
    }
}

// One query of one head with its whole row of scores: what the tiled version must agree with.
static void naive_row(float *out, float *lse, const float *q, const float *k, const float *v, size_t n_keys,
                      AttnShape s)
{
    double *score = malloc(n_keys * sizeof *score), top = -INFINITY, sum = 0;
    if (!score) abort();
    for (size_t j = 0; j < n_keys; j++) {
        score[j] = 0;
        for (size_t d = 0; d < s.D; d++) score[j] += (double)q[d] * k[j * s.ldkv + d];
        score[j] /= sqrt((double)s.D);
        if (score[j] > top) top = score[j];
    }
    for (size_t j = 0; j < n_keys; j++) sum += score[j] = exp(score[j] - top);
    for (size_t d = 0; d < s.D; d++) {
        double o = 0;
        for (size_t j = 0; j < n_keys; j++) o += score[j] / sum * v[j * s.ldkv + d];
        out[d] = (float)o;
    }
    if (lse) *lse = (float)(top + log(sum));
    free(score);
}

void attention_forward_naive(float *out, float *lse, const float *q, const float *k, const float *v, AttnShape s)
{
    for (size_t b = 0; b < s.B; b++)
        for (size_t h = 0; h < s.H; h++)
            for (size_t t = 0; t < s.Tq; t++) {
                size_t kv = b * s.Tk * s.ldkv + h / (s.H / s.G) * s.D, row = b * s.Tq + t;
                naive_row(out + (row * s.H + h) * s.D, lse ? lse + (b * s.H + h) * s.Tq + t : NULL,
                          q + row * s.ldq + h * s.D, k + kv, v + kv, s.q_start + t + 1, s);
            }
}

void attention_cpu_fill(Dev *dev)
{
    dev->attention_forward = attention_forward;
    dev->attention_backward = attention_backward;
}
