// systematic: tests for errors that rounding does not make.
//
// Rounding errors have either sign, whatever the numbers are. A bug often has not: it multiplies everything by
// 1.0001, adds a little everywhere, or grows along a sequence. Such an error may be far below the bound of a single
// element and still stand out of N of them, as the mean of N random numbers is sqrt(N) times closer to 0 than one of
// them. For each pattern f of SystematicKind the tensor's difference d = a - b is fitted,
//
//     d = x f + rest,     x = sum(d f) / sum(f f)
//
// and |x| is compared with
//
//     limit = t s + floor,    floor = shared + 4 part / sqrt(terms) + 4 part^2,    part = rms(d) / rms(b)
//
// s: the standard error of x. Rounding errors are not independent: an error of a token's norm moves its whole row, one
// of a weight a whole column. So rows and columns are clusters (Cameron, Gelbach and Miller, Journal of Business &
// Economic Statistics 29, 2011), and s^2 is the sum over both ways, each by leaving one cluster out (the jackknife):
//
//     x_(g) = x without cluster g,    s^2 = (G - 1) / G sum over g of (x_(g) - x)^2
//
// That holds whatever the errors in a cluster have in common, and is a little too large where they have nothing.
//
// t: of Student's distribution, so that the chance of a false alarm in all tests of all tensors is SYSTEMATIC_ALARM.
// Its degrees of freedom are those of the effective number of clusters, (sum w)^2 / sum w^2 with w = sum(f f) of a
// cluster (Carter, Schnepel and Steigerwald, Review of Economics and Statistics 99, 2017): where one row holds most of
// the sum, its error is the sum's, and nothing can be told.
//
// floor: what clusters cannot show, because all elements have it in common. `shared`: roundings of 1 / N, of the clip
// coefficient, of the learning rate. part / sqrt(terms): in a gradient each token's own factor is averaged over the
// tokens, of which some count more than others. part^2: noise on a number that is divided by its size (a norm, Adam)
// makes the result shrink by part^2 / 2.
//
// The invariant: x and its limit do not change when a and b are multiplied by the same number, nor by the order of rows
// or columns, but for the two patterns that are about that order.
//
// Rejected: to ask whether one row's relative error stands out from the median row's. In honest pairs of a trained
// model one token in a thousand has fifty times the median's, in 16 bits one flipped element is a row's whole error,
// and a column may be small by cancellation. What is left of such a test with room for these, the bound of single
// elements finds too.
#include "dev/check/systematic.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_CLUSTERS = 4 };

double systematic_t(double p, double freedom)
{
    double low = 0, high = 40; // z, of the normal distribution
    for (int i = 0; i < 60; i++) {
        double z = (low + high) / 2;
        *(erfc(z / sqrt(2)) > p ? &low : &high) = z;
    }
    double part = (8 * freedom + 3) / (8 * freedom + 1);
    return sqrt(freedom * expm1(high * high / freedom * part * part));
}

// ---- one pattern, one way of clusters

typedef struct {
    double dot, square; // sum of d f, of f f
} Sums;

// Adds the clusters' standard error to *variance; returns the effective number of clusters.
static double jackknife(const Sums *g, size_t n, Sums all, double *variance)
{
    double squares = 0, sum = 0, x = all.dot / all.square;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (g[i].square == 0) continue;
        double left = all.square - g[i].square;
        double gap = left > 1e-12 * all.square ? (all.dot - g[i].dot) / left - x : INFINITY;
        sum += gap * gap;
        squares += g[i].square * g[i].square;
        used++;
    }
    *variance += used > 1 ? (double)(used - 1) / (double)used * sum : INFINITY;
    return squares > 0 ? all.square * all.square / squares : 0;
}

static double pattern(SystematicKind kind, double b, double rms, double p, double c)
{
    switch (kind) {
    case SYSTEMATIC_SCALE: return b;
    case SYSTEMATIC_SHIFT: return rms;
    case SYSTEMATIC_SIZE: return fabs(b);
    case SYSTEMATIC_POSITION: return p * b;
    default: return c * b;
    }
}

// From -1 to 1.
static double place(size_t i, size_t n)
{
    return n > 1 ? 2 * (double)i / (double)(n - 1) - 1 : 0;
}

static SystematicTest fit(const double *d, const double *b, const SystematicModel *m, SystematicKind kind, double rms,
                          double floor, Sums *sums)
{
    Sums all = {0, 0}, *row = sums, *column = sums + m->rows;
    memset(sums, 0, (m->rows + m->columns) * sizeof *sums);
    for (size_t r = 0; r < m->rows; r++) {
        double p = place(r % m->period, m->period);
        for (size_t c = 0; c < m->columns; c++) {
            size_t i = r * m->columns + c;
            double f = pattern(kind, b[i], rms, p, place(c, m->columns));
            row[r].dot += d[i] * f, row[r].square += f * f;
            column[c].dot += d[i] * f, column[c].square += f * f;
        }
        all.dot += row[r].dot, all.square += row[r].square;
    }
    SystematicTest t = {.error = INFINITY, .limit = INFINITY};
    if (!(all.square > 0) || !isfinite(all.dot)) return t;
    double variance = 0, clusters = INFINITY;
    if (m->rows > 1) clusters = fmin(clusters, jackknife(row, m->rows, all, &variance));
    if (m->columns > 1) clusters = fmin(clusters, jackknife(column, m->columns, all, &variance));
    t.x = all.dot / all.square;
    if (!(clusters >= LEAST_CLUSTERS) || !isfinite(clusters)) return t;
    t.error = sqrt(variance);
    t.limit = systematic_t(SYSTEMATIC_ALARM / m->tests, clusters - 1) * t.error + floor;
    return t;
}

// ---- all of them

static double floor_of(const SystematicModel *m, double part)
{
    return m->shared + 4 * part / sqrt(m->terms) + 4 * part * part;
}

// With a chance of 97.7 %: the estimate may fall 2 s short. A factor y makes part larger, and the floor with it, so it
// is the solution of y = noise + c sqrt(part^2 + y^2) + 4 (part^2 + y^2); INFINITY: every y is below that.
static double seen_from(const SystematicModel *m, const SystematicTest *scale, double part)
{
    double c = 4 / sqrt(m->terms), noise = scale->limit + 2 * scale->error - c * part, y = 0;
    if (!(c < 1) || !isfinite(noise)) return INFINITY;
    for (int i = 0; i < 100 && y < 0.5; i++) {
        double n = noise + 4 * y * y; // then y - n = c sqrt(part^2 + y^2), a quadratic equation
        y = (n + c * sqrt(n * n + (1 - c * c) * part * part)) / (1 - c * c);
    }
    return y < 0.5 ? y : INFINITY;
}

Systematic systematic(const double *d, const double *b, SystematicModel m)
{
    Systematic s = {.seen = INFINITY};
    double dd = 0, bb = 0, n = (double)(m.rows * m.columns);
    for (size_t i = 0; i < m.rows * m.columns; i++) dd += d[i] * d[i], bb += b[i] * b[i];
    for (int k = 0; k < SYSTEMATIC_KINDS; k++) s.test[k] = (SystematicTest){.error = INFINITY, .limit = INFINITY};
    if (!(bb > 0) || !isfinite(bb) || !isfinite(dd)) return s;
    s.part = sqrt(dd / bb);
    if (dd == 0) {
        s.seen = 0;
        return s;
    }
    double *room = malloc(2 * (m.rows + m.columns) * sizeof *room), rms = sqrt(bb / n);
    if (!room) die("diff: no memory for %zu rows", m.rows);
    double floor = floor_of(&m, s.part);
    for (int k = 0; k < SYSTEMATIC_KINDS; k++)
        if ((k != SYSTEMATIC_POSITION || m.period > 1) && (k != SYSTEMATIC_COLUMN || m.columns > 1))
            s.test[k] = fit(d, b, &m, (SystematicKind)k, rms, floor, (Sums *)(void *)room);
    s.seen = seen_from(&m, &s.test[SYSTEMATIC_SCALE], s.part);
    free(room);
    return s;
}

int systematic_worst(const Systematic *s)
{
    int worst = -1;
    double most = 1;
    for (int k = 0; k < SYSTEMATIC_KINDS; k++) {
        double part = s->test[k].limit < INFINITY ? fabs(s->test[k].x) / s->test[k].limit : 0;
        if (part > most) most = part, worst = k;
    }
    return worst;
}

const char *systematic_name(int kind)
{
    static const char *const name[] = {"scale", "shift", "size", "position", "column"};
    return kind < 0 ? "" : name[kind];
}
