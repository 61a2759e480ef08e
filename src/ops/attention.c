// attention: causal attention with grouped queries, on the CPU, without the T x T matrix.
//
// For a block of queries the keys come in tiles. With m the running maximum and l the running denominator of a row,
//
//   S = scale Q K^T,  m' = max(m, rowmax S),  P = exp(S - m'),  l' = l e^(m - m') + rowsum P,  O' = O e^(m - m') + P V
//
// and at the end O / l, lse = m + log l (Dao et al., arXiv 2205.14135; in this form Dao, arXiv 2307.08691, algorithm
// 1). Backward recomputes P = exp(S - lse):
//
//   delta = rowsum(dO * O),  dV += P^T dO,  dP = dO V^T,  dS = scale P (dP - delta),  dQ += dS K,  dK += dS^T Q
//
// The invariant: scratch is one or two (ATTN_QUERIES, ATTN_KEYS) tiles a thread, whatever T is (with AttnShape.blocks
// also the leaves of its tree). A tile ends at the last key that the block may see, so of the causal half that is not
// needed only the triangle on the diagonal is computed. A forward task is a (batch, head, run of ATTN_QUERIES
// queries) and computes the blocks that start in it. A backward task is a (batch, kv head) and owns its dK and dV, so
// nothing is summed across threads. Tile products are single-threaded sgemm calls. The naive twin at the end keeps
// the whole matrix, in double; tests compare the two. After forward_range: the tree that fixes the order of sums, and
// pieces of a sequence (for cp.c).
#include "ops/attn.h"
#include "ops/gemm.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

// ---- a call

// The arrays of one call: forward writes out and lse, backward reads them.
typedef struct {
    Dev *dev;
    AttnShape s;
    Gemm *gemm;
    const float *q, *k, *v, *dout;
    float *out, *lse, *dq, *dk, *dv;
    size_t lddq, lddkv; // elements from one row of dq, of dk and dv, to the next
    float *scratch;     // of the trees
    size_t n_scratch;   // floats, a thread
} Pass;

// Only the first thread of the team may drive messages: it is the caller's thread.
static void let_messages_move(const Pass *p)
{
    if (p->dev->meanwhile && p->s.T && omp_get_thread_num() == 0) p->dev->meanwhile(p->dev->meanwhile_arg);
}

// ---- forward

// Documents (AttnShape.first): a block of queries never crosses from one document into the next. Blocks and their key
// tiles are counted from the start of the document. So a block computes the same products of the same numbers wherever
// its document lies in the row: a packed row gives, bit for bit, what its documents give alone, and keys of other
// documents are not even read. (Rejected: tiles at fixed positions of the row with a mask. They compute scores that the
// mask discards, and the bits depend on where a document lies, as they do with
// AttnShape.blocks.)
//
// Windows (AttnShape.window, W): the query at position p sees positions p - W + 1 .. p of its document (arXiv
// 2310.06825). A block reads the tiles from the first key that its first query sees, so the work is O(T W), and masks
// the corner of that tile that its later queries no longer see.
//
// Dropout (AttnShape.drop): with K = 0 or 1 / (1 - p), O = (P * K) V after the softmax of the whole row, so lse does
// not depend on K. Backward: dV += (P * K)^T dO and dP = (dO V^T) * K. The softmax's own term is
// rowsum(P * dP) = rowsum((P * K) * dO V^T) = rowsum(dO * O), so delta does not change. K is drawn again from the
// counter RNG.

// out (rows, D), ldo apart, and lse (rows) of keys lo .. hi - 1 of the piece.
static void forward_range(const Pass *p, AttnBlock blk, size_t lo, size_t hi, float *out, size_t ldo, float *lse)
{
    AttnShape s = p->s;
    size_t D = s.D, rows = blk.rows, kv = attn_kv_offset(s, blk.b, blk.h);
    float tile[ATTN_QUERIES * ATTN_KEYS] __attribute__((aligned(64))), m[ATTN_QUERIES], l[ATTN_QUERIES];
    float keep[ATTN_KEYS], scale = attn_scale_of(s);
    const float *q = p->q + attn_q_offset(s, blk), *k = p->k + kv, *v = p->v + kv;
    for (size_t r = 0; r < rows; r++) m[r] = -INFINITY, l[r] = 0;
    for (size_t k0 = lo; k0 < hi; k0 += ATTN_KEYS) {
        size_t w = attn_min(ATTN_KEYS, hi - k0);
        p->gemm(false, true, rows, w, D, scale, q, s.ldq, k + k0 * s.ldkv, s.ldkv, 0, tile, ATTN_KEYS);
        for (size_t r = 0; r < rows; r++) {
            size_t from, n = attn_visible(s, blk, r, k0, w, &from);
            float *row = tile + r * ATTN_KEYS, shrink = 1;
            if (n) shrink = attn_softmax_row(row + from, n - from, 1, &m[r], &l[r]);
            memset(row, 0, from * sizeof *row), memset(row + n, 0, (w - n) * sizeof *row);
            if (s.drop.p > 0) {
                attn_keep_row(keep, s, blk, r, k0, n);
                for (size_t j = 0; j < n; j++) row[j] *= keep[j];
            }
            if (k0 == lo) continue; // no sum yet: the product below writes
            for (size_t d = 0; d < D; d++) out[r * ldo + d] *= shrink;
        }
        p->gemm(false, false, rows, D, w, 1, tile, ATTN_KEYS, v + k0 * s.ldkv, s.ldkv, k0 == lo ? 0 : 1, out, ldo);
    }
    for (size_t r = 0; r < rows; r++) {
        float inverse = 1 / l[r];
        if (m[r] == -INFINITY && l[r] == 0) memset(out + r * ldo, 0, D * sizeof *out); // sees none of the keys
        else
            for (size_t d = 0; d < D; d++) out[r * ldo + d] *= inverse;
        if (lse) lse[r] = m[r] + logf(l[r]);
    }
}

// ---- the tree of sums: the order in which partial results are joined, and how two are joined
//
// Blocks (AttnShape.blocks, C): the sequence is cut into C blocks, and sums over keys (O, dQ) and over queries (dK, dV)
// get an order that does not depend on how the sequence is divided over ranks. Leaf i of C / 2 is block i and then
// block C - 1 - i, and leaves are joined in a binary tree. A rank of a zig-zag ring (cp.h) holds neighbouring leaves,
// so its sum is a branch of the tree. The products are gemm.c's, whose bits do not depend on the shape.
//
// Leaves are joined as a binary counter counts: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). 2^k neighbours that begin at
// a multiple of 2^k are a branch. So ranks that each join their own branch, and then join the branches, get the bits of
// one rank that joins all leaves. After n leaves the branches that wait have the sizes of n's binary digits, the
// largest first. The left branch always has the earlier leaves: the compiler may fuse w_a O_a + w_b O_b into one
// rounding less, and then the order of the two operands changes the last bit.

enum { MOST_BLOCKS = 512, LEAVES = 11 }; // 2^8 leaves: 9 wait, one is joined, one is computed

typedef struct {
    float *at;           // LEAVES of `each` floats
    size_t each, rows, D;
    size_t held, n;      // branches that wait; leaves so far
    void (*join)(float *a, const float *b, size_t rows, size_t D); // a = a with b
} AttnTree;

// Memory for the next leaf; the memory after it is free too.
static float *tree_leaf(AttnTree *t)
{
    return t->at + t->held * t->each;
}

static void join_last(AttnTree *t)
{
    t->held--;
    t->join(t->at + (t->held - 1) * t->each, t->at + t->held * t->each, t->rows, t->D);
}

// Call it when the leaf is filled: joins all complete pairs of branches.
static void tree_push(AttnTree *t)
{
    t->held++;
    for (size_t bit = t->n++; bit & 1; bit >>= 1) join_last(t);
}

// Joins all leaves and returns the sum; there must be at least one.
static const float *tree_root(AttnTree *t)
{
    while (t->held > 1) join_last(t);
    return t->at;
}

// Joins: a += b over (rows, D).
static void tree_sum(float *a, const float *b, size_t rows, size_t D)
{
    for (size_t i = 0; i < rows * D; i++) a[i] += b[i];
}

// One row: merges out (D) and lse over keys b into those over keys a. lse = -inf: no keys.
//
//   top = max(lse_a, lse_b),  w = exp(lse - top),  O = (w_a O_a + w_b O_b) / (w_a + w_b),  lse = top + log(w_a + w_b)
//
// No exponent is above 0, so nothing overflows, and w_a + w_b is at least 1. Merging with a set without keys does not
// change the other's bits; a NaN spreads.
//
// Rejected: running sums in the order of arrival (they differ from rank to rank); O kept unnormalised with its maximum
// (backward needs lse, not the maximum, and two numbers a row would be sent).
static void tree_merge(float *a, float *lse_a, const float *b, float lse_b, size_t D)
{
    if (lse_b == -INFINITY) return;
    if (*lse_a == -INFINITY) {
        memcpy(a, b, D * sizeof *a);
        *lse_a = lse_b;
        return;
    }
    float top = *lse_a > lse_b ? *lse_a : lse_b, w_a = vmath_exp(*lse_a - top), w_b = vmath_exp(lse_b - top);
    float sum = w_a + w_b;
    w_a /= sum, w_b /= sum;
    for (size_t d = 0; d < D; d++) a[d] = w_a * a[d] + w_b * b[d];
    *lse_a = top + logf(sum);
}

// (rows, D) of attention's output, then (rows) of its lse: merged row by row.
static void tree_softmax(float *a, const float *b, size_t rows, size_t D)
{
    for (size_t r = 0; r < rows; r++) tree_merge(a + r * D, a + rows * D + r, b + r * D, b[rows * D + r], D);
}

// ---- pieces (attention_part_*): queries and keys are rows of a longer sequence, two runs of neighbours each, and the
// mask follows from their positions in that sequence

static void attention_merge(Dev *dev, float *out, float *lse, const float *part_out, const float *part_lse, size_t B,
                            size_t T, size_t H, size_t D)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < B * T * H; i++) {
        size_t stat = (i / H / T * H + i % H) * T + i / H % T;
        tree_merge(out + i * D, lse + stat, part_out + i * D, part_lse[stat], D);
    }
}

// A piece has both blocks of a leaf or none.
static bool has_leaf(AttnShape s, size_t i, size_t (*count)(AttnShape, size_t))
{
    return count(s, attn_block_start(s, i + 1)) > count(s, attn_block_start(s, i));
}

// Keys [*lo, *hi) of block c that queries which see keys [first, end) of the piece see.
static void keys_of_block(AttnShape s, size_t c, size_t first, size_t end, size_t *lo, size_t *hi)
{
    *lo = attn_keys_before(s, attn_block_start(s, c));
    *hi = attn_min(attn_keys_before(s, attn_block_start(s, c + 1)), end);
    if (*lo < first) *lo = first;
}

// ---- forward of a block, of a whole call, of a piece

static void forward_block(const void *arg, AttnBlock blk)
{
    const Pass *p = arg;
    AttnShape s = p->s;
    let_messages_move(p);
    size_t D = s.D, ldo = s.H * D, end = attn_keys_before(s, blk.pos + blk.rows), lo, hi;
    float *out = p->out + attn_out_offset(s, blk), *lse = p->lse ? p->lse + attn_lse_offset(s, blk) : NULL;
    if (!s.blocks) {
        forward_range(p, blk, blk.first, end, out, ldo, lse);
        return;
    }
    AttnTree t = {.at = p->scratch + (size_t)omp_get_thread_num() * p->n_scratch, .each = blk.rows * (D + 1),
                  .rows = blk.rows, .D = D, .join = tree_softmax};
    for (size_t i = 0, C = (size_t)s.blocks; i < C / 2; i++) {
        if (!has_leaf(s, i, attn_keys_before)) continue;
        float *leaf = tree_leaf(&t), *other = leaf + t.each;
        keys_of_block(s, i, blk.first, end, &lo, &hi);
        forward_range(p, blk, lo, hi, leaf, D, leaf + blk.rows * D);
        keys_of_block(s, C - 1 - i, blk.first, end, &lo, &hi);
        forward_range(p, blk, lo, hi, other, D, other + blk.rows * D);
        tree_softmax(leaf, other, blk.rows, D);
        tree_push(&t);
    }
    const float *root = tree_root(&t);
    for (size_t r = 0; r < blk.rows; r++) memcpy(out + r * ldo, root + r * D, D * sizeof *out);
    if (lse) memcpy(lse, root + blk.rows * D, blk.rows * sizeof *lse);
}

static void forward(const Pass *p)
{
    check(p->s.drop.p >= 0 && p->s.drop.p < 1);
    attn_each_block(p->s, p->dev->threads, forward_block, p);
}

// Picks the product, and makes room for the trees of all threads: `each` floats a leaf.
static void make_room(Pass *p, size_t each)
{
    check((p->s.T || !p->s.blocks) && p->s.blocks >= 0 && p->s.blocks % 2 == 0 && p->s.blocks <= MOST_BLOCKS);
    p->gemm = p->s.blocks || gemm_has_vectors() ? gemm_serial : matmul_gemm;
    p->n_scratch = p->s.blocks ? LEAVES * each : 0;
    p->scratch = p->n_scratch ? dev_cpu_scratch(p->dev, (size_t)p->dev->threads * p->n_scratch) : NULL;
}

// Of all keys at once: no pieces, but perhaps an order of sums.
static bool is_whole(AttnShape s)
{
    return !s.q_jump && !s.k_start && !s.k_jump && (s.blocks ? s.T == s.Tq && s.T == s.Tk && !s.q_start : !s.T);
}

static void attention_forward(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    check(is_whole(s));
    Pass p = {.dev = dev, .s = s, .out = (float *)out, .lse = lse, .q = (const float *)q, .k = (const float *)k,
              .v = (const float *)v};
    make_room(&p, ATTN_QUERIES * (s.D + 1));
    forward(&p);
}

static void attention_part_forward(Dev *dev, float *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Pass p = {.dev = dev, .s = s, .out = out, .lse = lse, .q = (const float *)q, .k = (const float *)k,
              .v = (const float *)v};
    check(s.T);
    make_room(&p, ATTN_QUERIES * (s.D + 1));
    forward(&p);
}

// ---- backward

// Destinations of a block's gradients: dq (rows, D), ldq apart; dk and dv of the piece's key 0, ldkv apart.
typedef struct {
    float *dq, *dk, *dv;
    size_t ldq, ldkv;
} Grads;

// Keys lo .. hi - 1 of the piece: adds to dk and dv; dq is written, or added to.
static void backward_range(const Pass *p, AttnBlock blk, const float *delta, size_t lo, size_t hi, Grads g, bool add)
{
    AttnShape s = p->s;
    size_t D = s.D, rows = blk.rows, ldo = s.H * D, kv0 = attn_kv_offset(s, blk.b, blk.h);
    float p_tile[ATTN_QUERIES * ATTN_KEYS] __attribute__((aligned(64)));
    float dp[ATTN_QUERIES * ATTN_KEYS] __attribute__((aligned(64)));
    float keep[ATTN_KEYS], scale = attn_scale_of(s);
    const float *q = p->q + attn_q_offset(s, blk), *dout = p->dout + attn_out_offset(s, blk);
    const float *lse = p->lse + attn_lse_offset(s, blk);
    for (size_t r = 0; !add && r < rows && lo >= hi; r++) memset(g.dq + r * g.ldq, 0, D * sizeof *g.dq);
    for (size_t k0 = lo; k0 < hi; k0 += ATTN_KEYS) {
        size_t w = attn_min(ATTN_KEYS, hi - k0), kv = kv0 + k0 * s.ldkv;
        float *dk = g.dk + k0 * g.ldkv, *dv = g.dv + k0 * g.ldkv, sum = k0 > lo || add;
        p->gemm(false, true, rows, w, D, scale, q, s.ldq, p->k + kv, s.ldkv, 0, p_tile, ATTN_KEYS);
        p->gemm(false, true, rows, w, D, 1, dout, ldo, p->v + kv, s.ldkv, 0, dp, ATTN_KEYS);
        for (size_t r = 0; r < rows; r++) {
            size_t from, n = attn_visible(s, blk, r, k0, w, &from), at = r * ATTN_KEYS;
            if (s.drop.p > 0) attn_keep_row(keep, s, blk, r, k0, n);
            attn_backward_row(p_tile + at + from, dp + at + from, n - from, lse[r], delta[r], 1, scale,
                              s.drop.p > 0 ? keep + from : NULL);
            memset(p_tile + at, 0, from * sizeof *p_tile), memset(p_tile + at + n, 0, (w - n) * sizeof *p_tile);
            memset(dp + at, 0, from * sizeof *dp), memset(dp + at + n, 0, (w - n) * sizeof *dp);
        }
        p->gemm(true, false, w, D, rows, 1, p_tile, ATTN_KEYS, dout, ldo, 1, dv, g.ldkv);
        p->gemm(true, false, w, D, rows, 1, dp, ATTN_KEYS, q, s.ldq, 1, dk, g.ldkv);
        p->gemm(false, false, rows, D, w, 1, dp, ATTN_KEYS, p->k + kv, s.ldkv, sum, g.dq, g.ldq);
    }
}

// Writes the block's dq, adds to dk and dv. room: scratch of a tree of dq.
static void backward_block(const Pass *p, AttnBlock blk, Grads g, float *room)
{
    AttnShape s = p->s;
    let_messages_move(p);
    size_t D = s.D, rows = blk.rows, ldo = s.H * D, end = attn_keys_before(s, blk.pos + rows), lo, hi;
    const float *dout = p->dout + attn_out_offset(s, blk), *out = p->out + attn_out_offset(s, blk);
    float delta[ATTN_QUERIES];
    for (size_t r = 0; r < rows; r++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t d = 0; d < D; d++) sum += dout[r * ldo + d] * out[r * ldo + d];
        delta[r] = sum;
    }
    float *dq = p->dq + (blk.b * s.Tq + blk.q0) * p->lddq + blk.h * D;
    if (!s.blocks) {
        g.dq = dq, g.ldq = p->lddq;
        backward_range(p, blk, delta, blk.first, end, g, false);
        return;
    }
    AttnTree t = {.at = room, .each = rows * D, .rows = rows, .D = D, .join = tree_sum};
    g.ldq = D;
    for (size_t i = 0, C = (size_t)s.blocks; i < C / 2; i++) {
        if (!has_leaf(s, i, attn_keys_before)) continue;
        g.dq = tree_leaf(&t);
        keys_of_block(s, i, blk.first, end, &lo, &hi);
        backward_range(p, blk, delta, lo, hi, g, false);
        keys_of_block(s, C - 1 - i, blk.first, end, &lo, &hi);
        backward_range(p, blk, delta, lo, hi, g, true);
        tree_push(&t);
    }
    const float *root = tree_root(&t);
    for (size_t r = 0; r < rows; r++) memcpy(dq + r * p->lddq, root + r * D, D * sizeof *dq);
}

// All heads of kv head g of sequence b, rows [from, to): adds to dk and dv.
static void backward_rows(const Pass *p, size_t b, size_t g, size_t from, size_t to, Grads grads, float *room)
{
    size_t per_group = p->s.H / p->s.G;
    for (size_t h = g * per_group; h < (g + 1) * per_group; h++)
        for (size_t t = from; t < to;) {
            AttnBlock blk = attn_block_at(p->s, b, h, t);
            backward_block(p, blk, grads, room);
            t += blk.rows;
        }
}

static void backward_group(const Pass *p, size_t b, size_t g)
{
    AttnShape s = p->s;
    size_t D = s.D, n = s.Tk * D, at = b * s.Tk * p->lddkv + g * D;
    float *dk = p->dk + at, *dv = p->dv + at, *room = p->scratch + (size_t)omp_get_thread_num() * p->n_scratch;
    AttnTree t = {.at = room + LEAVES * ATTN_QUERIES * D, .each = 2 * n, .rows = 2 * s.Tk, .D = D,
                  .join = tree_sum};
    for (size_t j = 0; j < s.Tk; j++) {
        memset(dk + j * p->lddkv, 0, D * sizeof *dk);
        memset(dv + j * p->lddkv, 0, D * sizeof *dv);
    }
    if (!s.blocks) {
        backward_rows(p, b, g, 0, s.Tq, (Grads){.dk = dk, .dv = dv, .ldkv = p->lddkv}, NULL);
        return;
    }
    for (size_t i = 0, C = (size_t)s.blocks; i < C / 2; i++) {
        if (!has_leaf(s, i, attn_rows_before)) continue;
        float *leaf = tree_leaf(&t);
        Grads grads = {.dk = leaf, .dv = leaf + n, .ldkv = D};
        memset(leaf, 0, t.each * sizeof *leaf);
        for (int k = 0; k < 2; k++) {
            size_t c = k ? C - 1 - i : i, from = attn_rows_before(s, attn_block_start(s, c));
            backward_rows(p, b, g, from, attn_rows_before(s, attn_block_start(s, c + 1)), grads, room);
        }
        tree_push(&t);
    }
    const float *root = tree_root(&t);
    for (size_t j = 0; j < s.Tk; j++) {
        memcpy(dk + j * p->lddkv, root + j * D, D * sizeof *dk);
        memcpy(dv + j * p->lddkv, root + n + j * D, D * sizeof *dv);
    }
}

static void backward(const Pass *p)
{
    check(p->s.drop.p >= 0 && p->s.drop.p < 1);
#pragma omp parallel for schedule(dynamic) num_threads(p->dev->threads)
    for (size_t i = 0; i < p->s.B * p->s.G; i++) backward_group(p, i / p->s.G, i % p->s.G);
}

static void attention_backward(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q,
                               const X *k, const X *v, AttnShape s)
{
    check(s.q_start == 0 && is_whole(s));
    Pass p = {.dev = dev, .s = s, .dq = (float *)dq, .dk = (float *)dk, .dv = (float *)dv, .lddq = s.ldq,
              .lddkv = s.ldkv, .dout = (const float *)dout, .out = (float *)out, .lse = (float *)lse,
              .q = (const float *)q, .k = (const float *)k, .v = (const float *)v};
    make_room(&p, (ATTN_QUERIES + 2 * s.Tk) * s.D);
    backward(&p);
}

static void attention_part_backward(Dev *dev, float *dq, float *dk, float *dv, const X *dout, const X *out,
                                    const float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Pass p = {.dev = dev, .s = s, .dq = dq, .dk = dk, .dv = dv, .lddq = s.H * s.D, .lddkv = s.G * s.D,
              .dout = (const float *)dout, .out = (float *)out, .lse = (float *)lse, .q = (const float *)q,
              .k = (const float *)k, .v = (const float *)v};
    make_room(&p, (ATTN_QUERIES + 2 * s.Tk) * s.D);
    backward(&p);
}

// Query t of head h of sequence b with its whole row of scores: the oracle for the tiled version.
static void naive_row(float *out, float *lse, const float *q, const float *k, const float *v, AttnShape s, size_t b,
                      size_t h, size_t t)
{
    size_t n_keys = s.q_start + t + 1, stat = (b * s.H + h) * s.Tq + t, first = attn_first_key(s, b, t);
    if (s.window && n_keys > first + s.window) first = n_keys - s.window;
    double *score = malloc(n_keys * sizeof *score), top = -INFINITY, sum = 0;
    if (!score) abort();
    out += ((b * s.Tq + t) * s.H + h) * s.D, q += (b * s.Tq + t) * s.ldq + h * s.D;
    k += attn_kv_offset(s, b, h), v += attn_kv_offset(s, b, h);
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
    dev->attention_part_forward = attention_part_forward;
    dev->attention_merge = attention_merge;
    dev->attention_part_backward = attention_part_backward;
}
