// experts_ref: the ops of mixture of experts again, in double and in plain loops. Tests only. The errors that fp32 may
// make in the choice and its gradient are derived in src/check/dev_check_experts.c, the others at their rows.
#ifndef EXPERTS_REF_H
#define EXPERTS_REF_H
#include "ops_ref.h"

#include "src/check/dev_check.h"

static inline void ref_scores(double *s, const double *z, DevRouter r)
{
    double sum = 0;
    for (size_t e = 0; e < r.E; e++) sum += s[e] = r.sigmoid ? ref_sigmoid(z[e]) : exp(z[e]);
    for (size_t e = 0; e < r.E && !r.sigmoid; e++) s[e] /= sum;
}

// Is expert i before j: has it the larger key, or the same one and the lower number?
static inline bool ref_before(const double *key, size_t i, size_t j)
{
    return key[i] > key[j] || (key[i] == key[j] && i < j);
}

// choice (k) by ranks: expert e is choice j when j experts of the groups that stay are before it.
static inline void ref_choose(int32_t *choice, const double *z, const float *bias, DevRouter r)
{
    double key[256], value[256];
    ref_scores(key, z, r);
    size_t groups = r.groups ? r.groups : 1, each = r.E / groups;
    for (size_t e = 0; e < r.E; e++) key[e] += bias ? bias[e] : 0;
    for (size_t g = 0; g < groups; g++) {
        value[g] = 0;
        for (size_t i = g * each; i < (g + 1) * each; i++) {
            size_t rank = 0;
            for (size_t j = g * each; j < (g + 1) * each; j++) rank += ref_before(key, j, i);
            if (rank < (r.sigmoid ? 2 : 1)) value[g] += key[i];
        }
    }
    bool stays[256];
    for (size_t g = 0; g < groups; g++) {
        size_t rank = 0;
        for (size_t h = 0; h < groups; h++) rank += ref_before(value, h, g);
        stays[g] = !r.groups || rank < r.best;
    }
    for (size_t e = 0; e < r.E; e++) {
        size_t rank = 0;
        for (size_t i = 0; i < r.E; i++) rank += stays[i / each] && ref_before(key, i, e);
        if (stays[e / each] && rank < r.k) choice[rank] = (int32_t)e;
    }
}

// The definition of dev.h, slot by slot.
static inline void ref_sort(int32_t *offset, int32_t *row, int32_t *slot, const int32_t *choice, const float *gate,
                            size_t N, size_t T, size_t k, size_t E, size_t cap, bool by_gate)
{
    size_t R = N * k, held = 0;
    for (size_t i = 0; i < R; i++) {
        size_t rank = 0, first = i / (T * k) * T * k;
        for (size_t j = first; j < first + T * k; j++)
            rank += choice[j] == choice[i] &&
                    (by_gate && gate[j] != gate[i] ? gate[j] > gate[i] : j < i);
        row[i] = cap && rank >= cap ? -1 : 0;
        slot[i] = -1;
    }
    for (size_t e = 0; e < E; e++) {
        offset[e] = (int32_t)held;
        for (size_t i = 0; i < R; i++)
            if (choice[i] == (int32_t)e && row[i] >= 0) slot[held] = (int32_t)i, row[i] = (int32_t)held++;
    }
    offset[E] = (int32_t)held;
}

// out[r] = gate[slot[r]] silu(g) u. gate: of the slots
static inline void ref_experts_swiglu(double *out, const double *gate_up, const double *gate, const int32_t *slot,
                                      size_t R, size_t F)
{
    for (size_t i = 0; i < R * F; i++) {
        size_t r = i / F;
        double g = gate_up[r * 2 * F + i % F], u = gate_up[r * 2 * F + F + i % F];
        out[i] = slot[r] < 0 ? 0 : gate[slot[r]] * g * ref_sigmoid(g) * u;
    }
}

// k different experts of each token; every one of them is the choice of some token, but the last.
static inline void ref_random_choice(int32_t *choice, size_t N, size_t k, size_t E)
{
    for (size_t n = 0; n < N; n++) {
        size_t first = rng_below(rng_make(1, "first", 0), n, E - 1), step = 1;
        for (size_t j = 0; j < k; j++) choice[n * k + j] = (int32_t)((first + j * step) % (E - 1));
    }
}

#endif
