// attention_tree: the order in which partial results of attention are joined, and how two of them are.
//
// Outputs O_a, O_b of one query over disjoint sets of keys, with lse = log sum exp(score) of each, give that over
// both sets:
//
//   top = max(lse_a, lse_b),  w = exp(lse - top),  O = (w_a O_a + w_b O_b) / (w_a + w_b),  lse = top + log(w_a + w_b)
//
// No exponent is above 0, so nothing overflows, and w_a + w_b is at least 1. A set without keys (lse = -inf) leaves the
// other's bits alone; a NaN spreads. Gradients are plain sums.
//
// The invariant: n leaves wait as branches of the sizes of n's binary digits, the largest first. The left branch is
// always the one of the earlier leaves: w_a O_a + w_b O_b is rounded once where the compiler fuses it, and then which
// comes first shows in the last bit.
//
// Rejected: running sums in the order of arrival (they differ from rank to rank); O kept unnormalised with its maximum
// (backward needs lse, not the maximum, and two numbers a row would travel).
#include "ops/attention_tree.h"

#include "ops/vmath.h"

#include <math.h>
#include <string.h>

float *attention_tree_leaf(AttnTree *t)
{
    return t->at + t->held * t->each;
}

static void join_last(AttnTree *t)
{
    t->held--;
    t->join(t->at + (t->held - 1) * t->each, t->at + t->held * t->each, t->rows, t->D);
}

void attention_tree_push(AttnTree *t)
{
    t->held++;
    for (size_t bit = t->n++; bit & 1; bit >>= 1) join_last(t);
}

const float *attention_tree_root(AttnTree *t)
{
    while (t->held > 1) join_last(t);
    return t->at;
}

void attention_tree_sum(float *a, const float *b, size_t rows, size_t D)
{
    for (size_t i = 0; i < rows * D; i++) a[i] += b[i];
}

void attention_tree_merge(float *a, float *lse_a, const float *b, float lse_b, size_t D)
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

void attention_tree_softmax(float *a, const float *b, size_t rows, size_t D)
{
    for (size_t r = 0; r < rows; r++) attention_tree_merge(a + r * D, a + rows * D + r, b + r * D, b[rows * D + r], D);
}
