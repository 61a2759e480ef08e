// attention_bf16: attention.c on bf16 arrays, with all seven products of a tile by the processor's bf16 instruction.
//
//   S = Q K^T,  P = exp(scale S - m),  l = rowsum P,  O = round(P) V / l
//   dP = dO V^T,  dS = P (dP - delta),  dV = round(P)^T dO,  dQ = scale round(dS) K,  dK = scale round(dS)^T Q
//
// The formulas, blocks, documents, windows and dropout are attention.c's. S, m, l, delta, dP and all sums are fp32;
// P (with dropout P * K) and dS are rounded to bf16, because the instruction wants both operands so. That is the
// difference from the widening device: 2^-8 of each term of a sum, which dev_check_matmul.c has in its bounds.
//
// The invariant: memory is a (ATTN_QUERIES, ATTN_KEYS) tile or two of a thread, fp32 sums of a block's O or dQ, and in
// backward those of dK and dV of one kv head. Nothing is widened. A task is that of attention.c, so no result depends
// on the number of threads.
//
// Rejected: l of the rounded P (O would be a convex combination of rows of V, but lse would carry the roundings into
// backward, which does not have them).
#include "ops/attn.h"
#include "ops/gemm_bf16.h"
#include "ops/narrow.h"

#include "base/formats.h"

#include <omp.h>

enum { TILE = ATTN_QUERIES * ATTN_KEYS };

typedef struct {
    AttnShape s;
    const uint16_t *q, *k, *v, *dout, *y;
    uint16_t *out, *dq, *dk, *dv;
    float *lse, *room;
    size_t n_room; // floats a thread
} Call;

static float *room_of_thread(const Call *c)
{
    return c->room + (size_t)omp_get_thread_num() * c->n_room;
}

static inline float wide(uint16_t x)
{
    return formats_decode(FORMAT_BF16, x);
}

// out = round(scale x)
static void rounded(uint16_t *restrict out, const float *restrict x, float scale, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = (uint16_t)formats_encode(FORMAT_BF16, scale * x[i], false);
}

// Elements [from, n) of a row of w, rounded; the others are keys that the row does not see.
static void rounded_row(uint16_t *out, const float *x, size_t from, size_t n, size_t w)
{
    memset(out, 0, from * sizeof *out), memset(out + n, 0, (w - n) * sizeof *out);
    rounded(out + from, x + from, 1, n - from);
}

// ---- forward

static void forward_block(const void *arg, AttnBlock blk)
{
    const Call *c = arg;
    AttnShape s = c->s;
    float tile[TILE] __attribute__((aligned(64))), m[ATTN_QUERIES], l[ATTN_QUERIES], keep[ATTN_KEYS];
    uint16_t p[TILE] __attribute__((aligned(64)));
    size_t D = s.D, kv = attn_kv_offset(s, blk.b, blk.h), end = attn_keys_before(s, blk.pos + blk.rows);
    float *sum = room_of_thread(c), scale = attn_scale_of(s);
    for (size_t r = 0; r < blk.rows; r++) m[r] = -INFINITY, l[r] = 0;
    for (size_t k0 = blk.first; k0 < end; k0 += ATTN_KEYS) {
        size_t w = attn_min(ATTN_KEYS, end - k0), at = kv + k0 * s.ldkv;
        gemm_bf16_serial(false, true, blk.rows, w, D, c->q + attn_q_offset(s, blk), s.ldq, c->k + at, s.ldkv, false,
                         tile, ATTN_KEYS);
        for (size_t r = 0; r < blk.rows; r++) {
            size_t from, n = attn_visible(s, blk, r, k0, w, &from);
            float *row = tile + r * ATTN_KEYS, shrink = 1;
            if (n) shrink = attn_softmax_row(row + from, n - from, scale, &m[r], &l[r]);
            if (s.drop.p > 0) attn_keep_row(keep, s, blk, r, k0, n);
            for (size_t j = from; s.drop.p > 0 && j < n; j++) row[j] *= keep[j];
            rounded_row(p + r * ATTN_KEYS, row, from, n, w);
            for (size_t d = 0; k0 > blk.first && shrink != 1 && d < D; d++) sum[r * D + d] *= shrink;
        }
        gemm_bf16_serial(false, false, blk.rows, D, w, p, ATTN_KEYS, c->v + at, s.ldkv, k0 > blk.first, sum, D);
    }
    for (size_t r = 0; r < blk.rows; r++) { // every query sees itself
        rounded(c->out + attn_out_offset(s, blk) + r * s.H * D, sum + r * D, 1 / l[r], D);
        if (c->lse) c->lse[attn_lse_offset(s, blk) + r] = m[r] + logf(l[r]);
    }
}

// ---- backward

// Adds to dk and dv (Tk, D) of the block's head; writes its dq.
static void backward_block(const Call *c, AttnBlock blk, float *dk, float *dv, float *dq)
{
    AttnShape s = c->s;
    float tile[TILE] __attribute__((aligned(64))), dp[TILE] __attribute__((aligned(64)));
    float delta[ATTN_QUERIES], keep[ATTN_KEYS], scale = attn_scale_of(s);
    uint16_t p[TILE] __attribute__((aligned(64))), ds[TILE] __attribute__((aligned(64)));
    size_t D = s.D, rows = blk.rows, ldo = s.H * D, end = attn_keys_before(s, blk.pos + rows);
    size_t kv = attn_kv_offset(s, blk.b, blk.h), at_out = attn_out_offset(s, blk), at_q = attn_q_offset(s, blk);
    const uint16_t *q = c->q + at_q, *dout = c->dout + at_out, *y = c->y + at_out;
    const float *lse = c->lse + attn_lse_offset(s, blk);
    for (size_t r = 0; r < rows; r++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t d = 0; d < D; d++) sum += wide(dout[r * ldo + d]) * wide(y[r * ldo + d]);
        delta[r] = sum;
    }
    for (size_t k0 = blk.first; k0 < end; k0 += ATTN_KEYS) {
        size_t w = attn_min(ATTN_KEYS, end - k0);
        const uint16_t *k = c->k + kv + k0 * s.ldkv, *v = c->v + kv + k0 * s.ldkv;
        gemm_bf16_serial(false, true, rows, w, D, q, s.ldq, k, s.ldkv, false, tile, ATTN_KEYS);
        gemm_bf16_serial(false, true, rows, w, D, dout, ldo, v, s.ldkv, false, dp, ATTN_KEYS);
        for (size_t r = 0; r < rows; r++) {
            size_t from, n = attn_visible(s, blk, r, k0, w, &from), at = r * ATTN_KEYS;
            if (s.drop.p > 0) attn_keep_row(keep, s, blk, r, k0, n);
            attn_backward_row(tile + at + from, dp + at + from, n - from, lse[r], delta[r], scale, 1,
                              s.drop.p > 0 ? keep + from : NULL);
            rounded_row(p + at, tile + at, from, n, w), rounded_row(ds + at, dp + at, from, n, w);
        }
        gemm_bf16_serial(true, false, w, D, rows, p, ATTN_KEYS, dout, ldo, true, dv + k0 * D, D);
        gemm_bf16_serial(true, false, w, D, rows, ds, ATTN_KEYS, q, s.ldq, true, dk + k0 * D, D);
        gemm_bf16_serial(false, false, rows, D, w, ds, ATTN_KEYS, k, s.ldkv, k0 > blk.first, dq, D);
    }
    for (size_t r = 0; r < rows; r++) rounded(c->dq + at_q + r * s.ldq, dq + r * D, scale, D);
}

// All heads of kv head g of sequence b.
static void backward_group(const Call *c, size_t b, size_t g)
{
    AttnShape s = c->s;
    size_t D = s.D, n = s.Tk * D, per_group = s.H / s.G, kv = attn_kv_offset(s, b, g * per_group);
    float *dk = room_of_thread(c), *dv = dk + n, *dq = dv + n;
    memset(dk, 0, 2 * n * sizeof *dk);
    for (size_t h = g * per_group; h < (g + 1) * per_group; h++)
        for (size_t t = 0; t < s.Tq;) {
            AttnBlock blk = attn_block_at(s, b, h, t);
            backward_block(c, blk, dk, dv, dq);
            t += blk.rows;
        }
    for (size_t j = 0; j < s.Tk; j++) {
        rounded(c->dk + kv + j * s.ldkv, dk + j * D, attn_scale_of(s), D);
        rounded(c->dv + kv + j * s.ldkv, dv + j * D, 1, D);
    }
}

// ---- the calls

size_t attention_bf16_room(AttnShape s, bool backward)
{
    return ((backward ? 2 * s.Tk : 0) + ATTN_QUERIES) * s.D;
}

void attention_bf16_forward(int threads, float *room, uint16_t *out, float *lse, const uint16_t *q, const uint16_t *k,
                            const uint16_t *v, AttnShape s)
{
    Call c = {.s = s, .q = q, .k = k, .v = v, .out = out, .lse = lse, .room = room,
              .n_room = attention_bf16_room(s, false)};
    check(!s.T && s.drop.p >= 0 && s.drop.p < 1);
    attn_each_block(s, threads, forward_block, &c);
}

void attention_bf16_backward(int threads, float *room, uint16_t *dq, uint16_t *dk, uint16_t *dv, const uint16_t *dout,
                             const uint16_t *out, const float *lse, const uint16_t *q, const uint16_t *k,
                             const uint16_t *v, AttnShape s)
{
    Call c = {.s = s, .q = q, .k = k, .v = v, .dout = dout, .y = out, .dq = dq, .dk = dk, .dv = dv,
              .lse = (float *)lse, .room = room, .n_room = attention_bf16_room(s, true)};
    check(!s.T && !s.q_start && s.drop.p >= 0 && s.drop.p < 1);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (size_t i = 0; i < s.B * s.G; i++) backward_group(&c, i / s.G, i % s.G);
}
