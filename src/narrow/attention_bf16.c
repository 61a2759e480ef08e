// attention_bf16: attention.c on bf16 arrays, with all seven products of a tile by the processor's bf16 instruction.
//
//   S = Q K^T,  P = exp(scale S - m),  l = rowsum P,  O = round(P) V / l
//   dP = dO V^T,  dS = P (dP - delta),  dV = round(P)^T dO,  dQ = scale round(dS) K,  dK = scale round(dS)^T Q
//
// The formulas, documents, windows and dropout are attention.c's. S, m, l, delta, dP and all sums are fp32; P (with
// dropout P * K) and dS are rounded to bf16, because the instruction wants both operands so (a denormal one becomes 0,
// as the instruction would take it). That is the difference from the widening device: 2^-8 of each term of a sum, which
// dev_check_matmul.c has in its bounds.
//
//   forward    S^T = K Q^T,  O^T += V^T P^T            a panel is 32 queries wide, m and l are vectors of queries
//   backward   S = Q K^T,  dP = dO V^T,  dV^T += dO^T P,  dK^T += Q^T dS      a panel is 32 keys wide
//              dQ += dS K                                                     dS alone is packed, a tile at a time
//
// Blocks of queries and tiles of keys are counted from the start of the document, so a packed row gives the bits that
// its documents give alone. Panels that no query of a block sees are left out.
//
// The invariant: memory is, for each thread, K and V of one kv head as panels (in backward also K a second time, and
// fp32 sums of dK and dV), and arrays of a block of queries and a tile of keys (attention_bf16_room; 100 KiB of stack).
// Nothing is widened. No result depends on the number of threads.
//
// Rejected: l of the rounded P (O would be a convex combination of rows of V, but lse would carry the roundings into
// backward, which does not have them); K and V packed for each block of queries, and P as a matrix (packing took the
// same share of each product for a short tile as for a long one).
#include "ops/attn.h"
#include "formats/gemm_bf16.h"
#include "narrow/narrow.h"

#include "base/check.h"

#if defined(__x86_64__)
#include "formats/formats.h"

#include <immintrin.h>
#include <omp.h>
#include <string.h>

#define TARGET GEMM_BF16_TARGET
#define INLINE TARGET static inline __attribute__((always_inline))

enum { MR = GEMM_BF16_MR, NR = GEMM_BF16_NR, LANES = 16 };
enum { FORWARD_QUERIES = 2 * NR, FORWARD_KEYS = 21 * MR, BACKWARD_QUERIES = 5 * MR, BACKWARD_KEYS = 8 * NR };

typedef struct {
    AttnShape s;
    const uint16_t *q, *k, *v, *dout, *y;
    uint16_t *out, *dq, *dk, *dv;
    float *lse, *room;
    size_t n_room; // floats a thread
} Call;

static inline size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
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

// vmath_exp of 16 numbers.
INLINE __m512 exp_lanes(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-87.3f), x); // NaN, as the second operand, stays
    x = _mm512_min_ps(_mm512_set1_ps(88.3f), x);
    const __m512 magic = _mm512_set1_ps(12582912.0f);
    __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504088896341f), magic), magic);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(1.9875691500e-4f), r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r), _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n); // p 2^n
}

INLINE __m512i lane_numbers(void)
{
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

// Units of a panel: the numbers of `high` rounded to bf16 in their upper halves, those of `low` in the lower ones.
INLINE __m512i unit_lanes(__m512 high, __m512 low)
{
    __m512i i = lane_numbers(); // unit i: number i of `high` and number i of `low`, the 16 + i-th of both
    __m512i order = _mm512_or_si512(_mm512_slli_epi32(i, 16), _mm512_add_epi32(i, _mm512_set1_epi32(LANES)));
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(low, high));
}

// The blocks of a head: row t is in the document whose first key is `doc`; a block ends with its document.
static AttnBlock block_at(AttnShape s, size_t b, size_t h, size_t t, size_t most)
{
    size_t doc = attn_first_key(s, b, t), rows = 1;
    while (rows < most && t + rows < s.Tq && attn_first_key(s, b, t + rows) == doc) rows++;
    check(doc <= s.q_start + t); // a query sees itself
    return (AttnBlock){.b = b, .h = h, .q0 = t, .rows = rows, .pos = s.q_start + t, .doc = doc};
}

// The first tile of a block begins with a whole panel of keys.
static size_t first_tile(AttnShape s, AttnBlock blk, size_t panel)
{
    size_t low = attn_lowest(s, blk.doc, blk.pos);
    return blk.doc + (low - blk.doc) / panel * panel;
}

// The first row from t on, at most `end`, that is of another document.
static size_t document_end(AttnShape s, size_t b, size_t t, size_t end)
{
    size_t e = t;
    while (e < end && attn_first_key(s, b, e) == attn_first_key(s, b, t)) e++;
    return e;
}

// ---- forward
//
// Operands are packed for the kernel once (gemm_bf16.h): K and V of a document and kv head, Q and dO of a block of
// queries. P and dS are not packed but written as panels where they are computed. A unit of a panel is a pair of steps
// of the sum: of keys for O and dQ, of queries for dV and dK. So each pass computes the transpose that has such a pair
// in neighbouring rows, and 16 units are two vectors, interleaved:

// What a thread has in its room. Panels: k (keys, D), v (D, keys), q (D, FORWARD_QUERIES); sum: O^T.
typedef struct {
    uint32_t *k, *v, *q;
    float *sum, *row;
    size_t k_stride, v_stride, q_stride, sum_stride;
    size_t base; // the first key that is packed
} Forward;

static size_t forward_arrays(AttnShape s, float *room, Forward *f)
{
    size_t keys = round_up(s.Tk, MR), units = (s.D + 1) / 2;
    f->k_stride = units * MR, f->v_stride = keys / 2 * MR, f->q_stride = units * NR;
    f->sum_stride = round_up(s.D, 4) * NR;
    size_t n_k = keys / MR * f->k_stride, n_v = round_up(s.D, MR) / MR * f->v_stride;
    size_t n_q = FORWARD_QUERIES / NR * f->q_stride, n_sum = FORWARD_QUERIES / NR * f->sum_stride, n_row = NR * s.D;
    if (room) {
        f->k = (uint32_t *)room, f->v = f->k + n_k, f->q = f->v + n_v;
        f->sum = (float *)(f->q + n_q), f->row = f->sum + n_sum;
    }
    return n_k + n_v + n_q + n_sum + n_row;
}

// Keys of a tile, counted from its first, that each query of a vector sees: [low, high).
typedef struct {
    __m512i low, high;
    bool all; // of the tile's keys, all of them see all
} Seen;

INLINE Seen seen_by(AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t w)
{
    long pos = (long)(blk.pos + r) - (long)k0, doc = (long)blk.doc - (long)k0, last_low = doc;
    __m512i at = _mm512_add_epi32(_mm512_set1_epi32((int)pos), lane_numbers());
    Seen seen = {.high = _mm512_add_epi32(at, _mm512_set1_epi32(1)), .low = _mm512_set1_epi32((int)doc)};
    if (s.window) {
        last_low = pos + LANES - (long)s.window;
        seen.low = _mm512_max_epi32(seen.low, _mm512_sub_epi32(seen.high, _mm512_set1_epi32((int)s.window)));
    }
    seen.all = pos + 1 >= (long)w && last_low <= 0;
    return seen;
}

INLINE __mmask16 sees(Seen seen, size_t key)
{
    __m512i k = _mm512_set1_epi32((int)key);
    return seen.all ? 0xffff : _mm512_cmpgt_epi32_mask(seen.high, k) & _mm512_cmple_epi32_mask(seen.low, k);
}

// One step of online softmax for 16 queries: S^T (w, .) -> P^T as units; returns the factors e^(m - m') for the sums so
// far. keep: dropout's factors, or NULL. Rows of tile and keep are NR apart.
INLINE __m512 softmax_lanes(uint32_t *units, const float *tile, const float *keep, size_t w, Seen seen, float scale,
                            float *m, float *l)
{
    const __m512 least = _mm512_set1_ps(-INFINITY), times = _mm512_set1_ps(scale);
    __m512 top = least, old = _mm512_loadu_ps(m), sum = _mm512_setzero_ps();
    for (size_t j = 0; j < w; j++) // a NaN is passed over here; it comes back in the sum
        top = _mm512_mask_max_ps(top, sees(seen, j), _mm512_loadu_ps(tile + j * NR), top);
    top = _mm512_max_ps(_mm512_mul_ps(top, times), old);
    for (size_t j = 0; j < w; j += 2) {
        __m512 p[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; i++) {
            if (j + i >= w) break;
            __m512 x = _mm512_fmsub_ps(_mm512_loadu_ps(tile + (j + i) * NR), times, top);
            p[i] = _mm512_maskz_mov_ps(sees(seen, j + i), exp_lanes(x));
            sum = _mm512_add_ps(sum, p[i]);
            if (keep) p[i] = _mm512_mul_ps(p[i], _mm512_loadu_ps(keep + (j + i) * NR));
        }
        _mm512_storeu_si512(units + j / 2 * NR, unit_lanes(p[0], p[1]));
    }
    __mmask16 begun = _mm512_cmp_ps_mask(old, least, _CMP_NEQ_UQ);
    __m512 shrink = _mm512_maskz_mov_ps(begun, exp_lanes(_mm512_sub_ps(old, top)));
    _mm512_storeu_ps(l, _mm512_fmadd_ps(_mm512_loadu_ps(l), shrink, sum));
    _mm512_storeu_ps(m, top);
    return shrink;
}

// Dropout's factors (w, NR) of the NR queries from r on.
static void keep_panel(float *keep, AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t w)
{
    float row[FORWARD_KEYS];
    for (size_t i = 0; i < NR && r + i < blk.rows; i++) {
        attn_keep_row(row, s, blk, r + i, k0, w);
        for (size_t j = 0; j < w; j++) keep[j * NR + i] = row[j];
    }
}

// A tile of w keys from k0 on, and the NR queries from r on.
TARGET static void forward_tile(const Forward *f, AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t w, bool first,
                                float *m, float *l)
{
    float tile[FORWARD_KEYS * NR] __attribute__((aligned(64))), keep[FORWARD_KEYS * NR], scale = attn_scale_of(s);
    uint32_t p[(FORWARD_KEYS + 1) / 2 * NR] __attribute__((aligned(64)));
    size_t panel = r / NR, at = k0 - f->base, units = (s.D + 1) / 2;
    float *sum = f->sum + panel * f->sum_stride;
    gemm_bf16_panel(w, units, f->k + at / MR * f->k_stride, f->k_stride, f->q + panel * f->q_stride, false, tile);
    if (s.drop.p > 0) memset(keep, 0, sizeof keep), keep_panel(keep, s, blk, r, k0, w);
    for (size_t c = 0; c < NR; c += LANES) {
        __m512 shrink = softmax_lanes(p + c, tile + c, s.drop.p > 0 ? keep + c : NULL, w, seen_by(s, blk, r + c, k0, w),
                                      scale, m + r + c, l + r + c);
        if (first || !_mm512_cmp_ps_mask(shrink, _mm512_set1_ps(1), _CMP_NEQ_UQ)) continue;
        for (float *x = sum + c; x < sum + s.D * NR; x += NR)
            _mm512_storeu_ps(x, _mm512_mul_ps(_mm512_loadu_ps(x), shrink));
    }
    gemm_bf16_panel(s.D, (w + 1) / 2, f->v + at / 2 * MR, f->v_stride, p, !first, sum);
}

static void forward_block(const Call *c, const Forward *f, AttnBlock blk)
{
    AttnShape s = c->s;
    float m[FORWARD_QUERIES], l[FORWARD_QUERIES];
    size_t first = first_tile(s, blk, MR), out = attn_out_offset(s, blk), lse = attn_lse_offset(s, blk);
    gemm_bf16_pack_b(true, blk.rows, s.D, c->q + attn_q_offset(s, blk), s.ldq, f->q, f->q_stride);
    for (size_t r = 0; r < FORWARD_QUERIES; r++) m[r] = -INFINITY, l[r] = 0;
    for (size_t r = 0; r < blk.rows; r += NR) {
        size_t end = blk.pos + attn_min(r + NR, blk.rows);
        for (size_t k0 = first; k0 < end; k0 += FORWARD_KEYS)
            forward_tile(f, s, blk, r, k0, attn_min(FORWARD_KEYS, end - k0), k0 == first, m, l);
        gemm_bf16_transpose(f->row, s.D, f->sum + r / NR * f->sum_stride, NR, s.D, NR);
        for (size_t i = r; i < r + NR && i < blk.rows; i++) { // every query sees itself
            rounded(c->out + out + i * s.H * s.D, f->row + (i - r) * s.D, 1 / l[i], s.D);
            if (c->lse) c->lse[lse + i] = m[i] + logf(l[i]);
        }
    }
}

// The blocks of head h of sequence b that begin at rows [t, end).
static void forward_rows(const Call *c, size_t b, size_t h, size_t t, size_t end)
{
    AttnShape s = c->s;
    Forward f = {0};
    forward_arrays(s, c->room + (size_t)omp_get_thread_num() * c->n_room, &f);
    size_t packed = SIZE_MAX, kv = attn_kv_offset(s, b, h); // of the document that is packed, the first key
    while (t < end) {
        AttnBlock blk = block_at(s, b, h, t, FORWARD_QUERIES);
        size_t begin = blk.doc > s.q_start ? blk.doc - s.q_start : 0, into = (t - begin) % FORWARD_QUERIES;
        if (into) { // within a block that another task has
            t = attn_min(t + attn_min(blk.rows, FORWARD_QUERIES - into), end);
            continue;
        }
        if (packed != blk.doc) {
            size_t last = document_end(s, b, t, attn_min(s.Tq, end + FORWARD_QUERIES)), n;
            packed = blk.doc, f.base = first_tile(s, blk, MR), n = s.q_start + last - f.base;
            gemm_bf16_pack_a(false, n, s.D, c->k + kv + f.base * s.ldkv, s.ldkv, f.k, f.k_stride);
            gemm_bf16_pack_a(true, s.D, n, c->v + kv + f.base * s.ldkv, s.ldkv, f.v, f.v_stride);
        }
        forward_block(c, &f, blk);
        t += blk.rows;
    }
}

// ---- backward

// What a thread has in its room. Panels: kt, vt (D, keys), k (keys, D); q, dout (queries, D), qt, dout_t (D, queries).
// dk, dv: the sums (D, NR) of each panel of keys; dq: those (queries, NR) of each panel of D.
typedef struct {
    uint32_t *kt, *vt, *k, *q, *dout, *qt, *dout_t;
    float *dk, *dv, *dq, *row;
    size_t kt_stride, k_stride, q_stride, qt_stride, dk_stride, dq_stride;
    size_t base; // the first key that is packed: that of the document
} Backward;

static size_t backward_arrays(AttnShape s, float *room, Backward *g)
{
    size_t keys = round_up(s.Tk, NR), units = (s.D + 1) / 2;
    g->kt_stride = units * NR, g->k_stride = keys / 2 * NR, g->q_stride = units * MR;
    g->qt_stride = BACKWARD_QUERIES / 2 * MR, g->dq_stride = BACKWARD_QUERIES * NR;
    g->dk_stride = round_up(s.D, 4) * NR;
    size_t n_kt = keys / NR * g->kt_stride, n_k = round_up(s.D, NR) / NR * g->k_stride;
    size_t n_q = BACKWARD_QUERIES / MR * g->q_stride, n_qt = round_up(s.D, MR) / MR * g->qt_stride;
    size_t n_dk = keys / NR * g->dk_stride, n_dq = round_up(s.D, NR) / NR * g->dq_stride, n_row = NR * s.D;
    if (room) {
        g->kt = (uint32_t *)room, g->vt = g->kt + n_kt, g->k = g->vt + n_kt, g->q = g->k + n_k, g->dout = g->q + n_q;
        g->qt = g->dout + n_q, g->dout_t = g->qt + n_qt;
        g->dk = (float *)(g->dout_t + n_qt), g->dv = g->dk + n_dk, g->dq = g->dv + n_dk, g->row = g->dq + n_dq;
    }
    return 2 * n_kt + n_k + 2 * n_q + 2 * n_qt + 2 * n_dk + n_dq + n_row;
}

// A block of queries, as backward needs it.
typedef struct {
    AttnBlock blk;
    float lse[BACKWARD_QUERIES], delta[BACKWARD_QUERIES], scale;
    uint16_t ds[BACKWARD_QUERIES * BACKWARD_KEYS]; // round(dS) of a tile
} Rows;

// P (with dropout P * K) and dS of row r and 16 keys, `from` .. `end` - 1 of which it sees; the others are 0.
INLINE void backward_lanes(__m512 *p, __m512 *ds, const Rows *rows, size_t r, const float *s, const float *dp,
                           const float *keep, long from, long end)
{
    __m512i key = lane_numbers();
    __mmask16 seen = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32((int)end), key) &
                     _mm512_cmple_epi32_mask(_mm512_set1_epi32((int)from), key);
    __m512 x = _mm512_fmsub_ps(_mm512_loadu_ps(s), _mm512_set1_ps(rows->scale), _mm512_set1_ps(rows->lse[r]));
    __m512 e = _mm512_maskz_mov_ps(seen, exp_lanes(x)), d = _mm512_loadu_ps(dp);
    __m512 kept = keep ? _mm512_maskz_loadu_ps(seen, keep) : _mm512_set1_ps(1);
    *p = keep ? _mm512_mul_ps(e, kept) : e;
    *ds = _mm512_maskz_mul_ps(seen, e, _mm512_fmsub_ps(d, kept, _mm512_set1_ps(rows->delta[r])));
}

// P and dS of rows [r0, ...) and of a panel of keys: units of panels, and rows of dS. k0: of the tile, j: of the panel
// in it.
INLINE void backward_elements(uint32_t *p, uint32_t *ds, Rows *rows, AttnShape s, size_t r0, size_t k0, size_t j,
                              const float *tile, const float *dp)
{
    float keep[2][NR];
    const bool drop = s.drop.p > 0;
    for (size_t r = r0; r < rows->blk.rows; r += 2) {
        size_t from[2] = {0, 0}, end[2] = {0, 0};
        for (size_t i = 0; i < 2 && r + i < rows->blk.rows; i++) {
            end[i] = attn_visible(s, rows->blk, r + i, k0 + j, NR, &from[i]);
            if (drop) attn_keep_row(keep[i], s, rows->blk, r + i, k0 + j, end[i]);
        }
        for (size_t c = 0; c < NR; c += LANES) {
            __m512 e[2], d[2];
#pragma GCC unroll 2
            for (size_t i = 0; i < 2; i++) {
                size_t at = (r + i) * NR + c;
                backward_lanes(&e[i], &d[i], rows, r + i, tile + at, dp + at, drop ? keep[i] + c : NULL,
                               (long)from[i] - (long)c, (long)end[i] - (long)c);
                _mm256_storeu_si256((__m256i *)(rows->ds + (r + i) * BACKWARD_KEYS + j + c),
                                    (__m256i)_mm512_cvtneps_pbh(d[i]));
            }
            _mm512_storeu_si512(p + r / 2 * NR + c, unit_lanes(e[0], e[1]));
            _mm512_storeu_si512(ds + r / 2 * NR + c, unit_lanes(d[0], d[1]));
        }
    }
}

// Panel j of the tile from k0 on: P and dS, and what they add to dV and dK.
TARGET static void backward_panel(const Backward *g, AttnShape s, Rows *rows, size_t k0, size_t j)
{
    enum { SIZE = BACKWARD_QUERIES * NR };
    float tile[SIZE] __attribute__((aligned(64))), dp[SIZE] __attribute__((aligned(64)));
    uint32_t p[SIZE / 2] __attribute__((aligned(64))), ds[SIZE / 2] __attribute__((aligned(64)));
    size_t panel = (k0 + j - g->base) / NR, units = (s.D + 1) / 2, n = rows->blk.rows;
    size_t before = k0 + j > rows->blk.pos ? k0 + j - rows->blk.pos : 0; // queries that see none of these keys
    size_t r0 = before / MR * MR, u0 = r0 / 2, a = r0 / MR * g->q_stride;
    gemm_bf16_panel(n - r0, units, g->q + a, g->q_stride, g->kt + panel * g->kt_stride, false, tile + r0 * NR);
    gemm_bf16_panel(n - r0, units, g->dout + a, g->q_stride, g->vt + panel * g->kt_stride, false, dp + r0 * NR);
    for (size_t r = 0; r < r0; r++) memset(rows->ds + r * BACKWARD_KEYS + j, 0, NR * sizeof *rows->ds);
    backward_elements(p, ds, rows, s, r0, k0, j, tile, dp);
    gemm_bf16_panel(s.D, (n + 1) / 2 - u0, g->dout_t + u0 * MR, g->qt_stride, p + u0 * NR, true,
                    g->dv + panel * g->dk_stride);
    gemm_bf16_panel(s.D, (n + 1) / 2 - u0, g->qt + u0 * MR, g->qt_stride, ds + u0 * NR, true,
                    g->dk + panel * g->dk_stride);
}

// dQ (rows, .) [+]= dS K over the tile of w keys from k0 on.
static void backward_queries(const Backward *g, AttnShape s, const Rows *rows, size_t k0, size_t w, bool add)
{
    uint32_t ds[BACKWARD_QUERIES / MR * MR * BACKWARD_KEYS / 2] __attribute__((aligned(64)));
    size_t stride = BACKWARD_KEYS / 2 * MR, at = (k0 - g->base) / 2 * NR;
    gemm_bf16_pack_a(false, rows->blk.rows, w, rows->ds, BACKWARD_KEYS, ds, stride);
    for (size_t r = 0; r < rows->blk.rows; r += MR) {
        size_t seen = rows->blk.pos + r + MR > k0 ? attn_min(w, rows->blk.pos + r + MR - k0) : 0; // of no row, the rest
        for (size_t d = 0; d < s.D; d += NR)
            gemm_bf16_panel(attn_min(MR, rows->blk.rows - r), (seen + 1) / 2, ds + r / MR * stride, stride,
                            g->k + d / NR * g->k_stride + at, add, g->dq + d / NR * g->dq_stride + r * NR);
    }
}

// Adds to the sums of dK and dV; writes the block's dq.
static void backward_block(const Call *c, const Backward *g, AttnBlock blk)
{
    AttnShape s = c->s;
    Rows rows = {.blk = blk, .scale = attn_scale_of(s)};
    size_t D = s.D, ldo = s.H * D, at_out = attn_out_offset(s, blk), at_q = attn_q_offset(s, blk);
    const uint16_t *q = c->q + at_q, *dout = c->dout + at_out, *y = c->y + at_out;
    for (size_t r = 0; r < blk.rows; r++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t d = 0; d < D; d++) sum += wide(dout[r * ldo + d]) * wide(y[r * ldo + d]);
        rows.delta[r] = sum, rows.lse[r] = c->lse[attn_lse_offset(s, blk) + r];
    }
    gemm_bf16_pack_a(false, blk.rows, D, q, s.ldq, g->q, g->q_stride);
    gemm_bf16_pack_a(false, blk.rows, D, dout, ldo, g->dout, g->q_stride);
    gemm_bf16_pack_a(true, D, blk.rows, q, s.ldq, g->qt, g->qt_stride);
    gemm_bf16_pack_a(true, D, blk.rows, dout, ldo, g->dout_t, g->qt_stride);
    size_t first = first_tile(s, blk, NR), end = blk.pos + blk.rows;
    for (size_t k0 = first; k0 < end; k0 += BACKWARD_KEYS) {
        size_t w = attn_min(BACKWARD_KEYS, end - k0);
        for (size_t j = 0; j < w; j += NR) backward_panel(g, s, &rows, k0, j);
        backward_queries(g, s, &rows, k0, w, k0 != first);
    }
    for (size_t r = 0; r < blk.rows; r++)
        for (size_t d = 0; d < D; d += NR)
            rounded(c->dq + at_q + r * s.ldq + d, g->dq + d / NR * g->dq_stride + r * NR, rows.scale,
                    attn_min(NR, D - d));
}

// out (n, D), `ld` apart = round(scale sums^T), of panels (D, NR).
static void write_sums(uint16_t *out, size_t ld, const Backward *g, const float *sums, float scale, size_t n, size_t D)
{
    for (size_t j = 0; j < n; j++) {
        if (j % NR == 0) gemm_bf16_transpose(g->row, D, sums + j / NR * g->dk_stride, NR, D, NR);
        rounded(out + j * ld, g->row + j % NR * D, scale, D);
    }
}

// All heads of kv head `group` of sequence b, a document at a time.
static void backward_group(const Call *c, size_t b, size_t group)
{
    AttnShape s = c->s;
    size_t D = s.D, per_group = s.H / s.G, kv = attn_kv_offset(s, b, group * per_group);
    Backward g = {0};
    backward_arrays(s, c->room + (size_t)omp_get_thread_num() * c->n_room, &g);
    for (size_t t = 0, end; t < s.Tq; t = end) {
        end = document_end(s, b, t, s.Tq), g.base = attn_first_key(s, b, t);
        size_t n = end - g.base, at = kv + g.base * s.ldkv, n_sums = (n + NR - 1) / NR * g.dk_stride;
        gemm_bf16_pack_b(true, n, D, c->k + at, s.ldkv, g.kt, g.kt_stride);
        gemm_bf16_pack_b(true, n, D, c->v + at, s.ldkv, g.vt, g.kt_stride);
        gemm_bf16_pack_b(false, D, n, c->k + at, s.ldkv, g.k, g.k_stride);
        memset(g.dk, 0, n_sums * sizeof *g.dk), memset(g.dv, 0, n_sums * sizeof *g.dv);
        for (size_t h = group * per_group; h < (group + 1) * per_group; h++)
            for (size_t q0 = t; q0 < end; q0 += BACKWARD_QUERIES)
                backward_block(c, &g, block_at(s, b, h, q0, BACKWARD_QUERIES));
        write_sums(c->dk + at, s.ldkv, &g, g.dk, attn_scale_of(s), n, D);
        write_sums(c->dv + at, s.ldkv, &g, g.dv, 1, n, D);
    }
    for (size_t j = s.Tq; j < s.Tk; j++) { // keys that no query sees
        memset(c->dk + kv + j * s.ldkv, 0, D * sizeof *c->dk);
        memset(c->dv + kv + j * s.ldkv, 0, D * sizeof *c->dv);
    }
}

// ---- the calls

size_t attention_bf16_room(AttnShape s, bool backward)
{
    Forward f;
    Backward g;
    return round_up(backward ? backward_arrays(s, NULL, &g) : forward_arrays(s, NULL, &f), LANES);
}

// A task has a part of a head's blocks, so that the threads are busy: four tasks each, the long rows first.
void attention_bf16_forward(int threads, float *room, uint16_t *out, float *lse, const uint16_t *q, const uint16_t *k,
                            const uint16_t *v, AttnShape s)
{
    Call c = {.s = s, .q = q, .k = k, .v = v, .out = out, .lse = lse, .room = room,
              .n_room = attention_bf16_room(s, false)};
    check(!s.T && s.drop.p >= 0 && s.drop.p < 1);
    size_t heads = s.B * s.H, parts = heads ? (4 * (size_t)threads + heads - 1) / heads : 1;
    size_t each = round_up((s.Tq + parts - 1) / parts, FORWARD_QUERIES), n_parts = each ? (s.Tq + each - 1) / each : 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (size_t i = 0; i < heads * n_parts; i++) {
        size_t t = (n_parts - 1 - i / heads) * each, head = i % heads;
        forward_rows(&c, head / s.H, head % s.H, t, attn_min(t + each, s.Tq));
    }
}

void attention_bf16_backward(int threads, float *room, uint16_t *dq, uint16_t *dk, uint16_t *dv, const uint16_t *dout,
                             const uint16_t *out, const float *lse, const uint16_t *q, const uint16_t *k,
                             const uint16_t *v, AttnShape s)
{
    Call c = {.s = s, .q = q, .k = k, .v = v, .dout = dout, .y = out, .dq = dq, .dk = dk, .dv = dv,
              .lse = (float *)lse, .room = room, .n_room = attention_bf16_room(s, true)};
    check(!s.T && !s.q_start && s.Tk >= s.Tq && s.drop.p >= 0 && s.drop.p < 1);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (size_t i = 0; i < s.B * s.G; i++) backward_group(&c, i / s.G, i % s.G);
}

#else

size_t attention_bf16_room(AttnShape s, bool backward)
{
    return (void)s, (void)backward, (size_t)0;
}

void attention_bf16_forward(int threads, float *room, uint16_t *out, float *lse, const uint16_t *q, const uint16_t *k,
                            const uint16_t *v, AttnShape s)
{
    (void)threads, (void)room, (void)out, (void)lse, (void)q, (void)k, (void)v, (void)s;
    check(gemm_bf16_runs());
}

void attention_bf16_backward(int threads, float *room, uint16_t *dq, uint16_t *dk, uint16_t *dv, const uint16_t *dout,
                             const uint16_t *out, const float *lse, const uint16_t *q, const uint16_t *k,
                             const uint16_t *v, AttnShape s)
{
    (void)threads, (void)room, (void)dq, (void)dk, (void)dv, (void)dout, (void)out, (void)lse, (void)q, (void)k;
    (void)v, (void)s;
    check(gemm_bf16_runs());
}

#endif
