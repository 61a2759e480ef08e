// mixture: a fixed order of sources in which each has its share after any number of samples, not only on average.
//
// If each sample draws its source at random with shares w_i, the count of a source is off by about sqrt(n w (1 - w))
// after n samples: by 46 of 10,000 at w = 0.3. A fixed order keeps the error below one sample:
//
//     | count_i(n) - n w_i | <= 1 - 1 / (2 k - 2) < 1          for k sources, every i and every n
//
// by R. Tijdeman's algorithm ("The chairman assignment problem", Discrete Mathematics 32, 1980). For sample number n,
// counted from 1, with x_i samples given to source i so far: of the sources that are due a sample, those with
// n w_i - x_i >= 1 / (2 k - 2), take the one whose deadline comes first, that is, with the smallest
//
//     (1 - 1 / (2 k - 2) - (n w_i - x_i)) / w_i          the smaller index when two are equal
//
// Invariant: shares are fractions W_i / D, so after D samples every count is exact and the order repeats. The order of
// one period is computed in integers when the mixture is opened. Any sample is then found in one step, from
//
//     sample = q D + r:   source = slot[r],   number in its source = q W_source + rank[r]
//
// so no state is kept from one sample to the next: the position of the run is the number of its sample.
//
// D is the sum of the weights as integers without a common factor, if that is at most 2^20: 3 : 1 has D = 4. Otherwise
// shares are rounded to multiples of 2^-20 by largest remainders, so each share is off by less than 2^-20.
//
// Rejected: a random draw (see above); for each source a running sum of its share, with a sample at each carry (the
// errors of several sources add up); shares of tokens per batch (they depend on the size of a batch).
#include "text/sources.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Weights as whole numbers, if they are that in millionths and the period is short enough. Returns the period, or 0.
static uint64_t whole_parts(const double *weight, size_t k, uint64_t *part)
{
    uint64_t common = 0, sum = 0;
    for (size_t i = 0; i < k; i++) {
        double millionths = weight[i] * 1e6;
        if (!(millionths < 0x1p52) || fabs(millionths - rint(millionths)) > 1e-9 * millionths) return 0;
        part[i] = (uint64_t)rint(millionths);
        if (!part[i]) return 0;
        common = gcd(part[i], common);
    }
    for (size_t i = 0; i < k; i++) {
        part[i] /= common;
        if ((sum += part[i]) > MIXTURE_PERIOD) return 0;
    }
    return sum;
}

// Multiples of 1 / MIXTURE_PERIOD: rounded down; the rest goes to the largest remainders.
static void rounded_parts(const double *weight, size_t k, uint64_t *part)
{
    double sum = 0, largest = 0, *rest = calloc(k, sizeof *rest);
    uint64_t given = 0;
    if (!rest) die("memory: no room for a mixture of %zu sources", k);
    for (size_t i = 0; i < k; i++) largest = fmax(largest, weight[i]);
    for (size_t i = 0; i < k; i++) sum += weight[i] / largest; // at most k, so the sum cannot overflow
    for (size_t i = 0; i < k; i++) {
        double share = weight[i] / largest / sum * MIXTURE_PERIOD;
        part[i] = (uint64_t)share;
        rest[i] = share - (double)part[i];
        given += part[i];
    }
    for (; given < MIXTURE_PERIOD; given++) {
        size_t most = 0;
        for (size_t i = 1; i < k; i++)
            if (rest[i] > rest[most]) most = i;
        part[most]++;
        rest[most] = -1;
    }
    free(rest);
    for (size_t i = 0; i < k; i++)
        if (!part[i])
            die("mixture: a weight of %g of %g: the share is below 1 in %d", weight[i], sum * largest, MIXTURE_PERIOD);
}

// Sample n of the period, counted from 1, by Tijdeman's rule; all times D (2 k - 2).
static size_t choose(const Mixture *m, const uint64_t *x, uint64_t n)
{
    __int128 D = m->period, K = 2 * (__int128)m->n_sources - 2, best_late = 0;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < m->n_sources; i++) {
        __int128 W = m->part[i], due = (W * n - D * x[i]) * K;
        if (due < D) continue;
        __int128 late = D * (K - 1) - due; // late / W is the deadline
        if (best == SIZE_MAX || late * m->part[best] < best_late * W) best = i, best_late = late;
    }
    check(best != SIZE_MAX); // the sum of all n w - x is 1
    return best;
}

Mixture mixture_make(const double *weight, size_t n_sources)
{
    Mixture m = {.n_sources = n_sources, .part = calloc(n_sources, sizeof *m.part)};
    uint64_t *x = calloc(n_sources, sizeof *x);
    check(n_sources > 0);
    if (!m.part || !x) die("memory: no room for a mixture of %zu sources", n_sources);
    for (size_t i = 0; i < n_sources; i++)
        if (!(weight[i] > 0) || isinf(weight[i])) die("mixture: a weight of %g (a number above 0)", weight[i]);
    m.period = (int64_t)whole_parts(weight, n_sources, m.part);
    if (!m.period) {
        rounded_parts(weight, n_sources, m.part);
        m.period = MIXTURE_PERIOD;
    }
    m.slot = calloc((size_t)m.period, sizeof *m.slot);
    m.rank = calloc((size_t)m.period, sizeof *m.rank);
    if (!m.slot || !m.rank) die("memory: no room for a mixture of %zu sources", n_sources);
    for (int64_t s = 0; s < m.period; s++) {
        size_t i = n_sources == 1 ? 0 : choose(&m, x, (uint64_t)s + 1);
        m.slot[s] = (uint32_t)i;
        m.rank[s] = (uint32_t)x[i]++;
    }
    for (size_t i = 0; i < n_sources; i++) check(x[i] == m.part[i]);
    free(x);
    return m;
}

void mixture_free(Mixture *m)
{
    free(m->part);
    free(m->slot);
    free(m->rank);
    *m = (Mixture){0};
}

size_t mixture_source(const Mixture *m, int64_t sample, int64_t *index)
{
    int64_t q = sample / m->period, r = sample % m->period;
    size_t i = m->slot[r];
    *index = q * (int64_t)m->part[i] + m->rank[r];
    return i;
}
