#include "../grade.h"

#include "norm_backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPS 1e-5

typedef struct {
    size_t N, C;
    bool center; // LayerNorm
    float *x, *w, *dy, *mean, *rstd;
} Case;

static void statistics(const double *x, size_t C, bool center, double *mean, double *rstd)
{
    double sum = 0, squares = 0;
    for (size_t c = 0; c < C; c++) sum += center ? x[c] : 0;
    *mean = sum / (double)C;
    for (size_t c = 0; c < C; c++) squares += (x[c] - *mean) * (x[c] - *mean);
    *rstd = 1 / sqrt(squares / (double)C + EPS);
}

// Rows of about `spread` around `offset`.
static Case make_case(size_t N, size_t C, bool center, float spread, float offset, uint64_t seed)
{
    Case s = {N, C, center, random_floats(N * C, seed), random_floats(C, seed + 1), random_floats(N * C, seed + 2),
              equal_floats(N, 0), equal_floats(N, 0)};
    double row[C];
    for (size_t n = 0; n < N; n++) {
        for (size_t c = 0; c < C; c++) row[c] = s.x[n * C + c] = s.x[n * C + c] * spread + offset;
        double mean, rstd;
        statistics(row, C, center, &mean, &rstd);
        s.mean[n] = (float)mean, s.rstd[n] = (float)rstd;
    }
    return s;
}

// sum of dy y of one row, whose derivative is dx.
static double row_loss(const Case *s, const double *x, const float *dy)
{
    double mean, rstd, loss = 0;
    statistics(x, s->C, s->center, &mean, &rstd);
    for (size_t c = 0; c < s->C; c++) loss += dy[c] * s->w[c] * (x[c] - mean) * rstd;
    return loss;
}

static double *differences(const Case *s)
{
    double *want = doubles(s->N * s->C, NULL), x[s->C], h = 1e-6;
    for (size_t n = 0; n < s->N; n++)
        for (size_t c = 0; c < s->C; c++) {
            for (size_t k = 0; k < s->C; k++) x[k] = s->x[n * s->C + k];
            x[c] += h;
            double up = row_loss(s, x, s->dy + n * s->C);
            x[c] -= 2 * h;
            want[n * s->C + c] = (up - row_loss(s, x, s->dy + n * s->C)) / (2 * h);
        }
    return want;
}

enum { NO_MEAN, NO_PRODUCT, NO_RSTD, NO_WEIGHT, SUMS, MEAN_TOO, DX_MISTAKES };
// dx with one mistake.
static const double *wrong_dx(const Case *s, int mistake)
{
    size_t C = s->C;
    double *dx = doubles(s->N * C, NULL);
    for (size_t n = 0; n < s->N; n++) {
        double g[C], norm[C], a = 0, b = 0, by = mistake == SUMS ? 1 : (double)C;
        for (size_t c = 0; c < C; c++) {
            norm[c] = ((double)s->x[n * C + c] - s->mean[n]) * s->rstd[n];
            g[c] = s->dy[n * C + c] * (mistake == NO_WEIGHT ? 1.0 : s->w[c]);
            a += g[c] / by, b += g[c] * norm[c] / by;
        }
        if (mistake == NO_MEAN || (!s->center && mistake != MEAN_TOO)) a = 0;
        if (mistake == NO_PRODUCT) b = 0;
        for (size_t c = 0; c < C; c++) dx[n * C + c] = (mistake == NO_RSTD ? 1 : s->rstd[n]) * (g[c] - a - norm[c] * b);
    }
    return dx;
}

// A mean of C products of at most about rstd |g| |n| in float, by rstd, twice: well below C 2^-24 10 for rows of
// spread 1, where the mistakes are of size 0.01 and more.
static void expect_dx(const Case *s, const float *dx, const char *what, double tolerance)
{
    Mistake known[] = {
        {wrong_dx(s, NO_MEAN), "the term mean(g) is missing: the row's mean depends on x too"},
        {wrong_dx(s, NO_PRODUCT), "the term n mean(g n) is missing: rstd depends on x too"},
        {wrong_dx(s, NO_RSTD), "not multiplied by rstd"},
        {wrong_dx(s, NO_WEIGHT), "g is dy times the weight, here the weight is missing"},
        {wrong_dx(s, SUMS), "sums in place of means: not divided by C"},
        {wrong_dx(s, MEAN_TOO), "RMSNorm subtracts no mean, so it has no term mean(g)"},
    };
    int first = s->center ? 0 : 1; // MEAN_TOO of LayerNorm is right
    expect_array(what, dx, differences(s), s->N, s->C, tolerance, known + first,
                 s->center ? MEAN_TOO : DX_MISTAKES - 1);
}

// dw (0) or with a mistake: (1) not normalised, (2) of the last row, (3) with the weight in it, (4) divided by the
// number of rows, (5) written in place of added; `before` is what was there.
static const double *sum_dw(const Case *s, int mistake, double before)
{
    double *dw = doubles(s->C, NULL);
    for (size_t c = 0; c < s->C; c++) {
        for (size_t n = mistake == 2 ? s->N - 1 : 0; n < s->N; n++) {
            double x = s->x[n * s->C + c], norm = (x - s->mean[n]) * s->rstd[n];
            dw[c] += s->dy[n * s->C + c] * (mistake == 1 ? x : norm) * (mistake == 3 ? s->w[c] : 1.0);
        }
        dw[c] = (mistake == 4 ? dw[c] / (double)s->N : dw[c]) + (mistake == 5 ? 0 : before);
    }
    return dw;
}

static const double *sum_db(const Case *s, int mistake, double before)
{
    double *db = doubles(s->C, NULL);
    for (size_t c = 0; c < s->C; c++) {
        for (size_t n = mistake == 2 ? s->N - 1 : 0; n < s->N; n++)
            db[c] += s->dy[n * s->C + c] * (mistake == 3 ? s->w[c] : 1.0);
        db[c] = (mistake == 4 ? db[c] / (double)s->N : db[c]) + (mistake == 5 ? 0 : before);
    }
    return db;
}

static void expect_dw(const Case *s, const float *dw, double before)
{
    expect_array("dw", dw, sum_dw(s, 0, before), 1, s->C, 1e-4,
                 (Mistake[]){{sum_dw(s, 1, before), "dy times x, where x is not normalised"},
                             {sum_dw(s, 2, before), "only the last row counts"},
                             {sum_dw(s, 3, before), "the weight is in it; dw is dy times n"},
                             {sum_dw(s, 4, before), "divided by the number of rows; the loss has done that"},
                             {sum_dw(s, 5, before), "written in place of added to what was there"}}, before ? 5 : 4);
}

static void expect_db(const Case *s, const float *db, double before)
{
    expect_array("db", db, sum_db(s, 0, before), 1, s->C, 1e-4,
                 (Mistake[]){{sum_db(s, 2, before), "only the last row counts"},
                             {sum_db(s, 3, before), "the weight is in it; the bias is added after the weight"},
                             {sum_db(s, 4, before), "divided by the number of rows; the loss has done that"},
                             {sum_db(s, 5, before), "written in place of added to what was there"}}, before ? 4 : 3);
}

static void run_case(const Case *s, float *dx, float *dw, float *db, const float *dy)
{
    if (s->center) layernorm_backward(dx, dw, db, dy, s->x, s->mean, s->rstd, s->w, s->N, s->C);
    else rmsnorm_backward(dx, dw, dy, s->x, s->rstd, s->w, s->N, s->C);
}

TEST(layernorm_dx, 2, "LayerNorm: dx of three rows against finite differences")
{
    Case s = make_case(3, 8, true, 1, 0.5f, 1);
    float *dx = equal_floats(24, 7), *dw = equal_floats(8, 0), *db = equal_floats(8, 0);
    run_case(&s, dx, dw, db, s.dy);
    expect_dx(&s, dx, "dx of LayerNorm", 1e-4);
}

TEST(layernorm_dw, 2, "LayerNorm: dw and db are sums over the rows")
{
    Case s = make_case(5, 6, true, 1, 0.5f, 2);
    float *dx = equal_floats(30, 7), *dw = equal_floats(6, 0), *db = equal_floats(6, 0);
    run_case(&s, dx, dw, db, s.dy);
    expect_dw(&s, dw, 0);
    expect_db(&s, db, 0);
}

TEST(rmsnorm, 2, "RMSNorm: dx against finite differences, and dw")
{
    Case s = make_case(3, 8, false, 1, 0.5f, 3);
    float *dx = equal_floats(24, 7), *dw = equal_floats(8, 0);
    run_case(&s, dx, dw, NULL, s.dy);
    expect_dx(&s, dx, "dx of RMSNorm", 1e-4);
    expect_dw(&s, dw, 0);
}

TEST(accumulates, 1, "dw and db are added to what is there")
{
    Case s = make_case(2, 4, true, 1, 0.5f, 4);
    float *dx = equal_floats(8, 7), *dw = equal_floats(4, 3), *db = equal_floats(4, 3);
    run_case(&s, dx, dw, db, s.dy);
    expect_dw(&s, dw, 3);
    expect_db(&s, db, 3);
}

#include "../hidden.h"

TEST(in_place, 1, "dx may be the array dy")
{
    for (int center = 0; center < 2; center++) {
        Case s = make_case(4, 16, center, 1, 0.25f, 5);
        float *dx = equal_floats(64, 0), *dw = equal_floats(16, -2), *db = equal_floats(16, -2);
        memcpy(dx, s.dy, 64 * sizeof *dx);
        run_case(&s, dx, dw, db, dx);
        expect_dx(&s, dx, center ? "LayerNorm where dx and dy are one array (is dy read after dx is written?), dx"
                                 : "RMSNorm where dx and dy are one array (is dy read after dx is written?), dx", 1e-4);
        expect_dw(&s, dw, -2);
        if (center) expect_db(&s, db, -2);
    }
}

TEST(small_variance, 1, "rows of small variance, where eps counts")
{
    for (int center = 0; center < 2; center++) {
        Case s = make_case(2, 16, center, 0.004f, 0, 6);
        float *dx = equal_floats(32, 7), *dw = equal_floats(16, 1), *db = equal_floats(16, 1);
        run_case(&s, dx, dw, db, s.dy);
        expect_dx(&s, dx, "dx of a row of variance 5e-6, eps 1e-5", 3e-3); // rstd is 250
        expect_dw(&s, dw, 1);
    }
}

TEST(shapes, 1, "rows of 1, 2 and 65 elements")
{
    for (int i = 0; i < 6; i++) {
        size_t C = (size_t[]){1, 2, 65}[i / 2], N = i / 2 == 1 ? 1 : 7;
        Case s = make_case(N, C, i % 2, 1, 0.5f, 7 + (uint64_t)i);
        float *dx = equal_floats(N * C, 7), *dw = equal_floats(C, 1), *db = equal_floats(C, 1);
        run_case(&s, dx, dw, db, s.dy);
        expect_dx(&s, dx, i % 2 ? "dx of LayerNorm" : "dx of RMSNorm", C == 2 ? 1e-3 : 1e-4);
        expect_dw(&s, dw, 1);
        if (i % 2) expect_db(&s, db, 1);
    }
}
