// part_rows: what test_ops does with attention of pieces. Tests only.
//
// All ranks of a zig-zag cut are computed one after the other: every rank's queries with every rank's keys. The sum of
// the pieces is compared with attention over whole rows in double.
#ifndef PART_ROWS_H
#define PART_ROWS_H
#include "parallel/cp.h"
#include "ops_rows.h"

enum { BLOCKS = 4 }; // beside DOCUMENTS and DROPPED

typedef struct {
    AttnShape s;      // of whole rows
    size_t size, own; // ranks; rows of one
    const float *in[3];
    double *wide[3];
    size_t width[3];
} Pieces;

// B, T, H, G, D, ranks, flags, window
static Pieces pieces_inputs(Run *r)
{
    const size_t *d = r->dim;
    static const char *const name[] = {"q", "k", "v"};
    Pieces p = {.size = d[5], .own = d[1] / d[5], .width = {d[2] * d[4], d[3] * d[4], d[3] * d[4]}};
    p.s = (AttnShape){.B = d[0], .Tq = d[1], .Tk = d[1], .H = d[2], .G = d[3], .D = d[4], .ldq = p.width[0],
                      .ldkv = p.width[1], .window = d[7]};
    if (d[6] & DOCUMENTS) p.s.first = run_documents(r, p.s.B, p.s.Tq, 0);
    if (d[6] & DROPPED) p.s.drop = (Dropout){.p = 0.3f, .rng = rng_make(5, "dropped", 9), .first = 11};
    for (int i = 0; i < 3; i++) {
        size_t n = d[0] * d[1] * p.width[i];
        p.in[i] = run_in(r, name[i], n);
        p.wide[i] = run_wide(r, p.in[i], n);
    }
    return p;
}

static float *piece_rows(Run *r, const Pieces *p, const float *whole, size_t width, size_t rank)
{
    float *out = run_out(r, p->s.B * p->own * width);
    cp_cut(out, whole, width * sizeof *out, p->s.B, CP_ZIGZAG, p->s.Tq, (int)rank, (int)p->size);
    return out;
}

static AttnShape piece_shape(Run *r, const Pieces *p, size_t rank, size_t owner)
{
    AttnShape s = p->s;
    size_t T = s.Tq, length = p->own / 2;
    s.Tq = s.Tk = p->own, s.T = T, s.blocks = r->dim[6] & BLOCKS ? 8 : 0;
    s.q_start = rank * length, s.q_cut = length, s.q_jump = 2 * (p->size - 1 - rank) * length;
    s.k_start = owner * length, s.k_cut = length, s.k_jump = 2 * (p->size - 1 - owner) * length;
    if (s.first) {
        int32_t *first = (int32_t *)run_room(r, s.B * p->own * sizeof *first);
        cp_cut(first, p->s.first, sizeof *first, s.B, CP_ZIGZAG, T, (int)rank, (int)p->size);
        s.first = first;
    }
    return s;
}

// One part without a merge must be attention over the keys that it has: the double version of the whole row, with the
// other keys taken out, is the same sum over fewer terms; their shares are exp(lse of the part - lse of the row). So
// sum over parts of share * out is the row's out. Both are formed in double here, so that only the op's errors remain:
// those of ref_attention, once for each part, and the share's error, which is that of the part's lse.
static void row_attention_part_forward(Run *r)
{
    Pieces p = pieces_inputs(r);
    size_t n = p.s.B * p.s.Tq * p.width[0], n_lse = p.s.B * p.s.H * p.s.Tq, n_own = n / p.size, l_own = n_lse / p.size;
    double *ref = run_zeros(r, n), *err = run_zeros(r, n);
    double *lse_ref = run_zeros(r, n_lse), *lse_err = run_zeros(r, n_lse);
    ref_attention(ref, err, lse_ref, lse_err, p.wide[0], p.wide[1], p.wide[2], p.s);
    double v_max = 0, joins = p.size + (r->dim[6] & BLOCKS ? 8 : 0);
    for (size_t i = 0; i < p.s.B * p.s.Tk * p.width[2]; i++) v_max = fmax(v_max, fabs(p.wide[2][i]));
    if (p.s.drop.p > 0) v_max /= 1 - (double)p.s.drop.p;
    for (size_t rank = 0; rank < p.size; rank++) {
        double *sum = run_zeros(r, n_own), *share = run_zeros(r, l_own);
        for (size_t owner = 0; owner < p.size; owner++) {
            float *out = run_out(r, n_own), *lse = run_out(r, l_own);
            r->dev->attention_part_forward(r->dev, out, lse, XC(piece_rows(r, &p, p.in[0], p.width[0], rank)),
                                           XC(piece_rows(r, &p, p.in[1], p.width[1], owner)),
                                           XC(piece_rows(r, &p, p.in[2], p.width[2], owner)),
                                           piece_shape(r, &p, rank, owner));
            run_record(r, out, n_own * sizeof *out), run_record(r, lse, l_own * sizeof *lse);
            for (size_t i = 0; i < n_own; i++) {
                size_t h = i / p.s.D % p.s.H, t = i / p.width[0] % p.own, b = i / p.width[0] / p.own;
                size_t stat = (b * p.s.H + h) * p.own + t;
                size_t at = (b * p.s.H + h) * p.s.Tq + cp_position(CP_ZIGZAG, p.s.Tq, (int)rank, (int)p.size, t);
                double w = exp(lse[stat] - lse_ref[at]);
                sum[i] += w * out[i];
                if (i % p.s.D == 0) share[stat] += w;
                if (lse[stat] == -INFINITY) assert_true(out[i] == 0);
            }
        }
        for (size_t i = 0; i < n_own; i++) {
            size_t h = i / p.s.D % p.s.H, t = i / p.width[0] % p.own, b = i / p.width[0] / p.own;
            size_t pos = cp_position(CP_ZIGZAG, p.s.Tq, (int)rank, (int)p.size, t);
            size_t stat = (b * p.s.H + h) * p.s.Tq + pos;
            size_t at = ((b * p.s.Tq + pos) * p.s.H + h) * p.s.D + i % p.s.D;
            // a join of leaves: see test_cp
            double one = lse_err[stat] + joins * U * (5 * (fabs(lse_ref[stat]) + 10) + 2 * FN + 6);
            assert_true(within(share[(b * p.s.H + h) * p.own + t], 1, 2 * one));
            assert_true(within(sum[i], ref[at], 2 * err[at] + 2 * one * v_max));
        }
    }
}

// e^a + e^b: exponents a - top are rounded once (u each), exp errs by FN u, then an addition, a division, two products
// and their addition. A set without keys leaves the other's bits unchanged, and NaN is kept.
static void row_attention_merge(Run *r)
{
    size_t B = r->dim[0], T = r->dim[1], H = r->dim[2], D = r->dim[3], n = B * T * H * D, n_lse = B * H * T;
    const float *a = run_in(r, "a", n), *b = run_in(r, "b", n);
    const float *la = run_in(r, "la", n_lse), *lb = run_in(r, "lb", n_lse);
    float *out = run_copy(r, a, n), *lse = run_copy(r, la, n_lse), *part = run_copy(r, lb, n_lse);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n);
    double *lse_ref = run_zeros(r, n_lse), *lse_err = run_zeros(r, n_lse);
    for (size_t i = 0; i < n_lse; i++) {
        part[i] = i % 7 == 3 ? -INFINITY : 30 * lb[i];
        if (i % 5 == 2 && i % 7 != 3) lse[i] = -INFINITY;
    }
    float *before = run_copy(r, lse, n_lse);
    for (size_t i = 0; i < n; i++) {
        size_t h = i / D % H, t = i / D / H % T, stat = (i / D / H / T * H + h) * T + t;
        double top = fmax(before[stat], part[stat]), wa = exp(before[stat] - top), wb = exp(part[stat] - top);
        double e = FN * U + 6 * U + U * fmax(fabs(before[stat] - top) * (wa > 0), fabs(part[stat] - top) * (wb > 0));
        ref[i] = (wa * a[i] + wb * b[i]) / (wa + wb);
        err[i] = 2 * e * (wa * fabs(a[i]) + wb * fabs(b[i])) / (wa + wb);
        lse_ref[stat] = top + log(wa + wb);
        lse_err[stat] = 2 * e + U * fabs(lse_ref[stat]);
    }
    r->dev->attention_merge(r->dev, out, lse, b, part, B, T, H, D);
    expect_ref(r, "out", out, ref, err, n);
    expect_ref(r, "lse", lse, lse_ref, lse_err, n_lse);
    for (size_t i = 0; i < n; i++) {
        size_t stat = (i / D / H / T * H + i / D % H) * T + i / D / H % T;
        if (part[stat] == -INFINITY) assert_true(out[i] == a[i] && lse[stat] == before[stat]);
        if (before[stat] == -INFINITY) assert_true(out[i] == b[i] && lse[stat] == part[stat]);
    }
    lse[0] = NAN, part[1] = NAN;
    r->dev->attention_merge(r->dev, out, lse, b, part, B, T, H, D);
    assert_true(isnan(lse[0]) && isnan(lse[1]) && isnan(out[0]) && isnan(out[H * D]));
}

// Parts are added up in double.
static void row_attention_part_backward(Run *r)
{
    static const char *const name[] = {"dq", "dk", "dv"};
    Pieces p = pieces_inputs(r);
    size_t n[3], n_lse = p.s.B * p.s.H * p.s.Tq, rows = p.s.B * p.s.Tq;
    for (int i = 0; i < 3; i++) n[i] = rows * p.width[i];
    const float *dout = run_in(r, "dout", n[0]);
    double *out = run_zeros(r, n[0]), *lse = run_zeros(r, n_lse), *ref[3], *err[3], *sum[3];
    for (int i = 0; i < 3; i++) ref[i] = run_zeros(r, n[i]), err[i] = run_zeros(r, n[i]), sum[i] = run_zeros(r, n[i]);
    ref_attention(out, NULL, lse, NULL, p.wide[0], p.wide[1], p.wide[2], p.s);
    ref_attention_back(ref[0], ref[1], ref[2], err[0], err[1], err[2], run_wide(r, dout, n[0]), p.wide[0], p.wide[1],
                       p.wide[2], p.s);
    const float *y = run_narrow(r, out, n[0]);
    for (size_t rank = 0; rank < p.size; rank++)
        for (size_t owner = 0; owner < p.size; owner++) {
            float *d[3], *stat = run_out(r, n_lse / p.size);
            for (int i = 0; i < 3; i++) d[i] = run_out(r, n[i] / p.size);
            for (size_t i = 0; i < n_lse / p.size; i++)
                stat[i] = (float)lse[i / p.own * p.s.Tq +
                                     cp_position(CP_ZIGZAG, p.s.Tq, (int)rank, (int)p.size, i % p.own)];
            r->dev->attention_part_backward(r->dev, d[0], d[1], d[2], XC(piece_rows(r, &p, dout, p.width[0], rank)),
                                            XC(piece_rows(r, &p, y, p.width[0], rank)), stat,
                                            XC(piece_rows(r, &p, p.in[0], p.width[0], rank)),
                                            XC(piece_rows(r, &p, p.in[1], p.width[1], owner)),
                                            XC(piece_rows(r, &p, p.in[2], p.width[2], owner)),
                                            piece_shape(r, &p, rank, owner));
            for (int i = 0; i < 3; i++) {
                run_record(r, d[i], n[i] / p.size * sizeof(float));
                for (size_t j = 0; j < n[i] / p.size; j++) {
                    size_t t = j / p.width[i] % p.own, b = j / p.width[i] / p.own;
                    size_t at = cp_position(CP_ZIGZAG, p.s.Tq, (int)(i ? owner : rank), (int)p.size, t);
                    sum[i][(b * p.s.Tq + at) * p.width[i] + j % p.width[i]] += d[i][j];
                }
            }
        }
    for (int i = 0; i < 3; i++)
        for (size_t j = 0; j < n[i]; j++)
            if (!within(sum[i][j], ref[i][j], err[i][j] + UNDERFLOW))
                fail_msg("%s[%zu]: parts give %.9g, should be %.9g within %.3g", name[i], j, sum[i][j], ref[i][j],
                         err[i][j]);
}

#endif
