// attn: what attention on fp32 arrays (attention.c) and on bf16 arrays (attention_bf16.c) share: blocks of queries, the
// keys that they see, and the softmax of a row.
#ifndef ATTN_H
#define ATTN_H
#include "ops/dev_cpu.h"

#include "base/check.h"
#include "base/vmath.h"

#include <math.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { ATTN_QUERIES = 60, ATTN_KEYS = 256 }; // of a block, at most (whole panels of gemm's kernels); of a tile

static inline size_t attn_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

// ---- positions of queries and keys, and the mask
//
// Row r of a piece has position start + r, and from row `cut` on start + r + jump: two runs without gaps. The code
// below uses positions in the sequence and never rows, so it serves a piece and a whole sequence alike.

// Queries q0 .. q0 + rows - 1 of head h of sequence b, all of one document, one run and one of s.blocks, so that they
// see keys of the same document. pos: the position of query q0; doc: that of the document's first key; first: the first
// key of the piece that any of them sees.
typedef struct {
    size_t b, h, q0, rows, pos, doc, first;
} AttnBlock;

// The first position of the document of row t of sequence b.
static inline size_t attn_first_key(AttnShape s, size_t b, size_t t)
{
    return s.first ? (size_t)s.first[b * s.Tq + t] : 0;
}

static inline size_t attn_position(AttnShape s, size_t t)
{
    return s.q_start + t + (t >= s.q_cut ? s.q_jump : 0);
}

// The first position that the query at pos sees; doc: its document's first.
static inline size_t attn_lowest(AttnShape s, size_t doc, size_t pos)
{
    size_t low = s.window && pos + 1 > s.window ? pos + 1 - s.window : 0;
    return low > doc ? low : doc;
}

// How many of n rows have positions before pos. Row i has position start + i, from `cut` on start + i + jump.
static inline size_t attn_before(size_t pos, size_t start, size_t cut, size_t jump, size_t n)
{
    size_t i = pos > start ? pos - start : 0;
    if (jump && i > cut) i = i > cut + jump ? i - jump : cut;
    return attn_min(i, n);
}

// The number of keys, and of queries, of the piece that lie before a position.
static inline size_t attn_keys_before(AttnShape s, size_t pos)
{
    return attn_before(pos, s.k_start, s.k_cut, s.k_jump, s.Tk);
}

static inline size_t attn_rows_before(AttnShape s, size_t pos)
{
    return attn_before(pos, s.q_start, s.q_cut, s.q_jump, s.Tq);
}

// Where block c of s.blocks begins in the sequence.
static inline size_t attn_block_start(AttnShape s, size_t c)
{
    return c * s.T / (size_t)s.blocks;
}

// The first row of the run without gaps that row t is in, or of its block of s.blocks.
static inline size_t attn_stretch_start(AttnShape s, size_t t)
{
    if (!s.blocks) return s.q_jump && t >= s.q_cut ? s.q_cut : 0;
    size_t pos = attn_position(s, t), c = pos * (size_t)s.blocks / s.T;
    while (attn_block_start(s, c + 1) <= pos) c++;
    return t - attn_min(t, pos - attn_block_start(s, c));
}

// Whether row t begins a block of queries. Blocks begin every ATTN_QUERIES queries, counted from the first query of the
// run or, within it, of the document, and where `first` changes.
static inline bool attn_starts_block(AttnShape s, size_t b, size_t t)
{
    size_t first = attn_first_key(s, b, t), stretch = attn_stretch_start(s, t), pos = attn_position(s, stretch);
    size_t start = stretch + (first > pos ? first - pos : 0);
    return t == stretch || (t - start) % ATTN_QUERIES == 0 || first != attn_first_key(s, b, t - 1);
}

static inline AttnBlock attn_block_at(AttnShape s, size_t b, size_t h, size_t q0)
{
    bool cuts = s.first || s.q_jump || s.blocks;
    size_t most = attn_min(ATTN_QUERIES, s.Tq - q0), rows = cuts ? 1 : most, pos = attn_position(s, q0);
    while (rows < most && !attn_starts_block(s, b, q0 + rows)) rows++;
    size_t doc = attn_first_key(s, b, q0);
    check(doc <= pos); // a query sees itself
    return (AttnBlock){.b = b, .h = h, .q0 = q0, .rows = rows, .pos = pos, .doc = doc,
                       .first = attn_keys_before(s, attn_lowest(s, doc, pos))};
}

// Offsets of the block's first row in q, in out and dout, and in lse; and of row 0 of its keys.
static inline size_t attn_q_offset(AttnShape s, AttnBlock blk)
{
    return (blk.b * s.Tq + blk.q0) * s.ldq + blk.h * s.D;
}

static inline size_t attn_out_offset(AttnShape s, AttnBlock blk)
{
    return ((blk.b * s.Tq + blk.q0) * s.H + blk.h) * s.D;
}

static inline size_t attn_lse_offset(AttnShape s, AttnBlock blk)
{
    return (blk.b * s.H + blk.h) * s.Tq + blk.q0;
}

static inline size_t attn_kv_offset(AttnShape s, size_t b, size_t h)
{
    return b * s.Tk * s.ldkv + h / (s.H / s.G) * s.D;
}

// 1 / sqrt(D), unless the shape says otherwise.
static inline float attn_scale_of(AttnShape s)
{
    return s.scale > 0 ? s.scale : 1 / sqrtf((float)s.D);
}

// Row r of the block sees keys [*from, n) of a tile of w keys starting at k0; returns n. None: both are 0.
static inline size_t attn_visible(AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t w, size_t *from)
{
    size_t end = attn_keys_before(s, blk.pos + r + 1), n = end <= k0 ? 0 : attn_min(end - k0, w);
    size_t low = s.window ? attn_keys_before(s, attn_lowest(s, blk.doc, blk.pos + r)) : 0; // else the block's first
    *from = low > k0 ? low - k0 : 0;
    if (*from >= n) *from = n = 0;
    return n;
}

// What dropout multiplies the probabilities of row r and keys k0 .. k0 + n - 1 by: 0 or 1 / (1 - p).
static inline void attn_keep_row(float *keep, AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t n)
{
    size_t Tq = s.T ? s.T : s.Tq, Tk = s.T ? s.T : s.Tk, row = s.T ? blk.pos + r : blk.q0 + r;
    uint64_t at = (((s.drop.first + blk.b) * s.H + blk.h) * Tq + row) * Tk + s.k_start;
    uint32_t words[ATTN_KEYS + 8], limit = dev_cpu_dropout_limit(s.drop); // 8: of counters that a run begins or ends in
    float kept = 1 / (1 - s.drop.p);
    for (size_t j = 0; j < n;) { // runs of keys without gaps
        bool second = s.k_jump && k0 + j >= s.k_cut;
        size_t end = second || !s.k_jump ? n : attn_min(n, s.k_cut - k0);
        uint64_t i = at + k0 + j + (second ? s.k_jump : 0);
        const uint32_t *word = words + i % 4;
        rng_words_many(s.drop.rng, i / 4, (size_t)((i % 4 + end - j + 3) / 4), words);
        for (; j < end; j++) keep[j] = *word++ >= limit ? kept : 0;
    }
}

// Calls `block` for every block of queries, by threads that take runs of ATTN_QUERIES queries of a head and all blocks
// that begin there.
static inline void attn_each_block(AttnShape s, int threads, void (*block)(const void *arg, AttnBlock blk),
                                   const void *arg)
{
    size_t n_parts = (s.Tq + ATTN_QUERIES - 1) / ATTN_QUERIES, n_tasks = s.B * s.H * n_parts;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (size_t i = 0; i < n_tasks; i++) {
        size_t part = n_parts - 1 - i / (s.B * s.H); // the long rows first
        size_t b = i % (s.B * s.H) / s.H, h = i % s.H, t = part * ATTN_QUERIES;
        size_t end = attn_min(t + ATTN_QUERIES, s.Tq);
        while (t < end && !attn_starts_block(s, b, t)) t++; // without documents t does, and is the only one
        while (t < end) {
            AttnBlock blk = attn_block_at(s, b, h, t);
            block(arg, blk);
            t += blk.rows;
        }
    }
}

// ---- rows of a tile

// One row of online softmax: the scores are scale times row (n); row -> P; returns the factor e^(m - m') for the sums
// so far.
static inline float attn_softmax_row(float *row, size_t n, float scale, float *m, float *l)
{
    float top = -INFINITY, sum = 0;
    int nan = 0;
#pragma omp simd reduction(max : top) reduction(| : nan)
    for (size_t j = 0; j < n; j++) {
        top = row[j] > top ? row[j] : top;
        nan |= row[j] != row[j]; // max() drops it; a NaN score must not vanish
    }
    top *= scale;
    top = nan ? NAN : top > *m ? top : *m;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < n; j++) {
        row[j] = vmath_exp(row[j] * scale - top);
        sum += row[j];
    }
    float shrink = *m == -INFINITY ? 0.0f : vmath_exp(*m - top);
    *l = *l * shrink + sum;
    *m = top;
    return shrink;
}

// Q K^T (n) and dO V^T (n) of one row -> P, with dropout P * K, and dS; both times what the two products lack.
static inline void attn_backward_row(float *p, float *ds, size_t n, float lse, float delta, float scale_p,
                                     float scale_ds, const float *keep)
{
    if (keep) {
        for (size_t j = 0; j < n; j++) {
            float e = vmath_exp(p[j] * scale_p - lse);
            p[j] = e * keep[j];
            ds[j] = scale_ds * e * (ds[j] * keep[j] - delta);
        }
        return;
    }
#pragma omp simd
    for (size_t j = 0; j < n; j++) {
        p[j] = vmath_exp(p[j] * scale_p - lse);
        ds[j] = scale_ds * p[j] * (ds[j] - delta);
    }
}

#ifdef __cplusplus
}
#endif
#endif
