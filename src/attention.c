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
// Documents (AttnShape.first): a block of queries never crosses from one document into the next, blocks are
// counted from the start of the document, and so are their key tiles. So a block is the same products of the
// same numbers wherever its document lies in the row: a packed row gives, bit for bit, what its documents give
// alone, and keys of other documents are not even read. (Rejected: tiles at fixed places of the row with a mask.
// It computes what the mask throws away, and where a document lies shows in the bits.)
//
// Dropout (AttnShape.drop): with K = 0 or 1 / (1 - p), O = (P * K) V after the softmax of the whole row, so lse
// does not know of it. Backward: dV += (P * K)^T dO and dP = (dO V^T) * K. The softmax's own term is
// rowsum(P * dP) = rowsum((P * K) * dO V^T) = rowsum(dO * O): delta stays what it was. K is drawn again from
// the counter RNG.
//
// The invariant: scratch is one (Q_BLOCK, K_TILE) tile or two per thread, whatever T is. A tile ends at
// the last key that the block may see, so the causal half that is never needed is not computed, but for
// the triangle on the diagonal. A forward task is a (batch, head, stretch of Q_BLOCK queries) and runs the
// blocks that start in it; a backward task is a (batch, kv head) and owns its dK and dV, so nothing is summed
// across threads. Tile products are single-threaded sgemm calls. The naive twin at the end keeps the whole
// matrix, in double; tests compare the two.
#include "dev_cpu.h"

#include "check.h"
#include "vmath.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q_BLOCK = 64, K_TILE = 256 };

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Queries q0 .. q0 + rows - 1 of head h of sequence b, all of one document, whose first key is `first`.
typedef struct {
    size_t b, h, q0, rows, first;
} Block;

static size_t first_key(AttnShape s, size_t b, size_t t)
{
    return s.first ? (size_t)s.first[b * s.Tq + t] : 0;
}

// Blocks are cut every Q_BLOCK queries from the document's first query, and where `first` changes.
static bool starts_block(AttnShape s, size_t b, size_t t)
{
    size_t first = first_key(s, b, t), start = first > s.q_start ? first - s.q_start : 0;
    return t == 0 || (t - start) % Q_BLOCK == 0 || first != first_key(s, b, t - 1);
}

static Block block_at(AttnShape s, size_t b, size_t h, size_t q0)
{
    size_t most = min_size(Q_BLOCK, s.Tq - q0), rows = s.first ? 1 : most;
    while (rows < most && !starts_block(s, b, q0 + rows)) rows++;
    Block blk = {.b = b, .h = h, .q0 = q0, .rows = rows, .first = first_key(s, b, q0)};
    check(blk.first <= s.q_start + q0); // a query sees itself
    return blk;
}

// Where the block's first row starts in q and dq, in out and dout, in lse; and row 0 of its keys.
static size_t q_offset(AttnShape s, Block blk)
{
    return (blk.b * s.Tq + blk.q0) * s.ldq + blk.h * s.D;
}

static size_t out_offset(AttnShape s, Block blk)
{
    return ((blk.b * s.Tq + blk.q0) * s.H + blk.h) * s.D;
}

static size_t lse_offset(AttnShape s, Block blk)
{
    return (blk.b * s.H + blk.h) * s.Tq + blk.q0;
}

static size_t kv_offset(AttnShape s, size_t b, size_t h)
{
    return b * s.Tk * s.ldkv + h / (s.H / s.G) * s.D;
}

static float scale_of(AttnShape s)
{
    return s.scale > 0 ? s.scale : 1 / sqrtf((float)s.D);
}

// Number of keys that row r of the block sees within a tile of w keys starting at k0.
static size_t visible(AttnShape s, Block blk, size_t r, size_t k0, size_t w)
{
    size_t end = s.q_start + blk.q0 + r + 1;
    return end <= k0 ? 0 : min_size(end - k0, w);
}

// What dropout multiplies the probabilities of row r and keys k0 .. k0 + n - 1 by: 0 or 1 / (1 - p).
static void keep_row(float *keep, AttnShape s, Block blk, size_t r, size_t k0, size_t n)
{
    uint64_t at = (((s.drop.first + blk.b) * s.H + blk.h) * s.Tq + blk.q0 + r) * s.Tk + k0;
    uint32_t word[4], limit = dev_cpu_dropout_limit(s.drop);
    float kept = 1 / (1 - s.drop.p);
    for (size_t j = 0; j < n;) {
        rng_words(s.drop.rng, (at + j) / 4, word);
        for (size_t w = (at + j) % 4; w < 4 && j < n; w++, j++) keep[j] = word[w] >= limit ? kept : 0;
    }
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
                          Block blk)
{
    size_t D = s.D, rows = blk.rows, ldo = s.H * D;
    float tile[Q_BLOCK * K_TILE] __attribute__((aligned(64))), m[Q_BLOCK], l[Q_BLOCK], scale = scale_of(s);
    float keep[K_TILE];
    out += out_offset(s, blk), q += q_offset(s, blk);
    k += kv_offset(s, blk.b, blk.h), v += kv_offset(s, blk.b, blk.h);
    for (size_t r = 0; r < rows; r++) m[r] = -INFINITY, l[r] = 0;
    size_t n_keys = min_size(s.q_start + blk.q0 + rows, s.Tk);
    for (size_t k0 = blk.first; k0 < n_keys; k0 += K_TILE) {
        size_t w = min_size(K_TILE, n_keys - k0);
        matmul_gemm(false, true, rows, w, D, scale, q, s.ldq, k + k0 * s.ldkv, s.ldkv, 0, tile, K_TILE);
        for (size_t r = 0; r < rows; r++) {
            size_t n = visible(s, blk, r, k0, w);
            float *row = tile + r * K_TILE, shrink = n ? softmax_row(row, n, w, &m[r], &l[r]) : 1;
            if (!n) memset(row, 0, w * sizeof *row);
            if (s.drop.p > 0) {
                keep_row(keep, s, blk, r, k0, n);
                for (size_t j = 0; j < n; j++) row[j] *= keep[j];
            }
            if (k0 == blk.first) continue; // nothing summed yet: the product below writes
            for (size_t d = 0; d < D; d++) out[r * ldo + d] *= shrink;
        }
        matmul_gemm(false, false, rows, D, w, 1, tile, K_TILE, v + k0 * s.ldkv, s.ldkv, k0 == blk.first ? 0 : 1, out,
                    ldo);
    }
    for (size_t r = 0; r < rows; r++) {
        float inverse = 1 / l[r];
        for (size_t d = 0; d < D; d++) out[r * ldo + d] *= inverse;
        if (lse) lse[lse_offset(s, blk) + r] = m[r] + logf(l[r]);
    }
}

static void attention_forward(Dev *dev, X *out_, float *lse, const X *q_, const X *k_, const X *v_, AttnShape s)
{
    float *out = (float *)out_;
    const float *q = (const float *)q_, *k = (const float *)k_, *v = (const float *)v_;
    size_t n_parts = (s.Tq + Q_BLOCK - 1) / Q_BLOCK, n_tasks = s.B * s.H * n_parts;
    check(s.drop.p >= 0 && s.drop.p < 1);
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < n_tasks; i++) {
        size_t part = n_parts - 1 - i / (s.B * s.H); // the long rows first
        size_t b = i % (s.B * s.H) / s.H, h = i % s.H, t = part * Q_BLOCK, end = min_size(t + Q_BLOCK, s.Tq);
        while (t < end && !starts_block(s, b, t)) t++; // without documents t does, and is the only one
        while (t < end) {
            Block blk = block_at(s, b, h, t);
            forward_block(out, lse, q, k, v, s, blk);
            t += blk.rows;
        }
    }
}

// S and dO V^T of one row -> P, with dropout P * K, and dS.
static void backward_row(float *p, float *ds, size_t n, size_t w, float lse, float delta, float scale,
                         const float *keep)
{
    if (keep) {
        for (size_t j = 0; j < n; j++) {
            float e = vmath_exp(p[j] - lse);
            p[j] = e * keep[j];
            ds[j] = scale * e * (ds[j] * keep[j] - delta);
        }
    } else {
#pragma omp simd
        for (size_t j = 0; j < n; j++) {
            p[j] = vmath_exp(p[j] - lse);
            ds[j] = scale * p[j] * (ds[j] - delta);
        }
    }
    for (size_t j = n; j < w; j++) p[j] = ds[j] = 0;
}

// Writes the block's dq, adds to dk and dv.
static void backward_block(float *dq, float *dk, float *dv, const float *dout, const float *out, const float *lse,
                           const float *q, const float *k, const float *v, AttnShape s, Block blk)
{
    size_t D = s.D, rows = blk.rows, ldo = s.H * D, kv0 = kv_offset(s, blk.b, blk.h);
    float p[Q_BLOCK * K_TILE] __attribute__((aligned(64))), dp[Q_BLOCK * K_TILE] __attribute__((aligned(64)));
    float delta[Q_BLOCK], keep[K_TILE], scale = scale_of(s);
    dq += q_offset(s, blk), q += q_offset(s, blk);
    dout += out_offset(s, blk), out += out_offset(s, blk), lse += lse_offset(s, blk);
    for (size_t r = 0; r < rows; r++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t d = 0; d < D; d++) sum += dout[r * ldo + d] * out[r * ldo + d];
        delta[r] = sum;
    }
    size_t n_keys = min_size(blk.q0 + rows, s.Tk);
    for (size_t k0 = blk.first; k0 < n_keys; k0 += K_TILE) {
        size_t w = min_size(K_TILE, n_keys - k0), kv = kv0 + k0 * s.ldkv;
        matmul_gemm(false, true, rows, w, D, scale, q, s.ldq, k + kv, s.ldkv, 0, p, K_TILE);
        matmul_gemm(false, true, rows, w, D, 1, dout, ldo, v + kv, s.ldkv, 0, dp, K_TILE);
        for (size_t r = 0; r < rows; r++) {
            size_t n = visible(s, blk, r, k0, w);
            if (s.drop.p > 0) keep_row(keep, s, blk, r, k0, n);
            backward_row(p + r * K_TILE, dp + r * K_TILE, n, w, lse[r], delta[r], scale, s.drop.p > 0 ? keep : NULL);
        }
        matmul_gemm(true, false, w, D, rows, 1, p, K_TILE, dout, ldo, 1, dv + kv, s.ldkv);
        matmul_gemm(true, false, w, D, rows, 1, dp, K_TILE, q, s.ldq, 1, dk + kv, s.ldkv);
        matmul_gemm(false, false, rows, D, w, 1, dp, K_TILE, k + kv, s.ldkv, k0 == blk.first ? 0 : 1, dq, s.ldq);
    }
}

static void attention_backward(Dev *dev, X *dq_, X *dk_, X *dv_, const X *dout_, const X *out_, const float *lse,
                               const X *q_, const X *k_, const X *v_, AttnShape s)
{
    float *dq = (float *)dq_, *dk = (float *)dk_, *dv = (float *)dv_;
    const float *dout = (const float *)dout_, *out = (const float *)out_;
    const float *q = (const float *)q_, *k = (const float *)k_, *v = (const float *)v_;
    size_t D = s.D, per_group = s.H / s.G;
    check(s.q_start == 0 && s.drop.p >= 0 && s.drop.p < 1);
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < s.B * s.G; i++) {
        size_t b = i / s.G, g = i % s.G, kv = kv_offset(s, b, g * per_group);
        for (size_t t = 0; t < s.Tk; t++) {
            memset(dk + kv + t * s.ldkv, 0, D * sizeof *dk);
            memset(dv + kv + t * s.ldkv, 0, D * sizeof *dv);
        }
        for (size_t h = g * per_group; h < (g + 1) * per_group; h++)
            for (size_t t = 0; t < s.Tq;) {
                Block blk = block_at(s, b, h, t);
                backward_block(dq, dk, dv, dout, out, lse, q, k, v, s, blk);
                t += blk.rows;
            }
    }
}

// Query t of head h of sequence b with its whole row of scores: what the tiled version must agree with.
static void naive_row(float *out, float *lse, const float *q, const float *k, const float *v, AttnShape s, size_t b,
                      size_t h, size_t t)
{
    size_t first = first_key(s, b, t), n_keys = s.q_start + t + 1, stat = (b * s.H + h) * s.Tq + t;
    double *score = malloc(n_keys * sizeof *score), top = -INFINITY, sum = 0;
    if (!score) abort();
    out += ((b * s.Tq + t) * s.H + h) * s.D, q += (b * s.Tq + t) * s.ldq + h * s.D;
    k += kv_offset(s, b, h), v += kv_offset(s, b, h);
    for (size_t j = first; j < n_keys; j++) {
        score[j] = 0;
        for (size_t d = 0; d < s.D; d++) score[j] += (double)q[d] * k[j * s.ldkv + d];
        score[j] *= s.scale > 0 ? (double)s.scale : 1 / sqrt((double)s.D);
        if (score[j] > top) top = score[j];
    }
    for (size_t j = first; j < n_keys; j++) sum += score[j] = exp(score[j] - top);
    if (lse) lse[stat] = (float)(top + log(sum));
    for (size_t j = first; j < n_keys && s.drop.p > 0; j++) {
        uint64_t at = (((s.drop.first + b) * s.H + h) * s.Tq + t) * s.Tk + j;
        uint32_t word[4];
        rng_words(s.drop.rng, at / 4, word);
        score[j] = word[at % 4] >= s.drop.p * 0x1p32 ? score[j] / (1 - (double)s.drop.p) : 0;
    }
    for (size_t d = 0; d < s.D; d++) {
        double o = 0;
        for (size_t j = first; j < n_keys; j++) o += score[j] / sum * v[j * s.ldkv + d];
        out[d] = (float)o;
    }
    free(score);
}

void attention_forward_naive(float *out, float *lse, const float *q, const float *k, const float *v, AttnShape s)
{
    for (size_t b = 0; b < s.B; b++)
        for (size_t h = 0; h < s.H; h++)
            for (size_t t = 0; t < s.Tq; t++) naive_row(out, lse, q, k, v, s, b, h, t);
}

void attention_cpu_fill(Dev *dev)
{
    dev->attention_forward = attention_forward;
    dev->attention_backward = attention_backward;
}
