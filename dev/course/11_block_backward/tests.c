#include "../grade.h"

#include "block.h"

#include <stdio.h>

static const char *const name[PARAMS] = {"norm1", "wq", "wk", "wv", "wo", "norm2", "w1", "w2"};

// A block with its inputs, in float for the answer, and in double for finite differences. x[0] .. x[2] are what q, k
// and v are made of, x[3] what goes around them: the same numbers, which differences change together or one by one.
typedef struct {
    BlockShape b;
    size_t n[PARAMS];
    float *weight[PARAMS], *grad[PARAMS], *dy, *xf;
    double *w[PARAMS], *x[4];
} Block;

static Block block_of(size_t T, size_t C, size_t F, uint64_t seed, int off) // off: a parameter that is 0; -1: none
{
    Block k = {.b = {T, C, F}, .n = {C, C * C, C * C, C * C, C * C, C, F * C, C * F}};
    for (int i = 0; i < PARAMS; i++) {
        k.weight[i] = i == off ? equal_floats(k.n[i], 0) : random_floats(k.n[i], seed + (uint64_t)i);
        k.w[i] = doubles(k.n[i], k.weight[i]);
        k.grad[i] = equal_floats(k.n[i], 0);
    }
    k.dy = random_floats(T * C, seed + 20), k.xf = random_floats(T * C, seed + 21);
    for (int i = 0; i < 4; i++) k.x[i] = doubles(T * C, k.xf);
    return k;
}

// Runs the given forward pass and the answer. What it returns, dx, was NaN before.
static float *block_answer(Block *k)
{
    size_t T = k->b.T, C = k->b.C, F = k->b.F;
    float *dx = equal_floats(T * C, NAN), *y = zeros(T * C), *dy = zeros(T * C);
    BlockSaved s = {zeros(T * C), zeros(T), zeros(T * C), zeros(T * C), zeros(T * C), zeros(T * T),
                    zeros(T * C), zeros(T * C), zeros(T * C), zeros(T), zeros(T * F), zeros(T * F)};
    float *grad[PARAMS], *weight[PARAMS]; // the answer is given nothing else of k
    memcpy(dy, k->dy, T * C * sizeof *dy);
    memcpy(grad, k->grad, sizeof grad), memcpy(weight, k->weight, sizeof weight);
    block_forward(y, &s, k->xf, k->weight, k->b);
    block_backward(dx, grad, dy, k->xf, weight, &s, k->b);
    return dx;
}

// The norm of row t, in double, times row o of w.
static double product(const Block *k, const double *x, int norm, int w, size_t t, size_t o)
{
    size_t C = k->b.C;
    double squares = 0, sum = 0;
    for (size_t c = 0; c < C; c++) squares += x[t * C + c] * x[t * C + c];
    for (size_t c = 0; c < C; c++) sum += x[t * C + c] * k->w[norm][c] * k->w[w][o * C + c];
    return sum / sqrt(squares / (double)C + 1e-5);
}

// sum of dy y; with `half` sum of dy r. One token after the other.
static double loss(const Block *k, bool half)
{
    size_t T = k->b.T, C = k->b.C, F = k->b.F;
    double total = 0, r[64], p[64], a[64];
    for (size_t t = 0; t < T; t++) {
        double sum = 0;
        for (size_t c = 0; c < C; c++) a[c] = 0;
        for (size_t j = 0; j <= t; j++) {
            double score = 0;
            for (size_t c = 0; c < C; c++)
                score += product(k, k->x[0], NORM1, WQ, t, c) * product(k, k->x[1], NORM1, WK, j, c);
            sum += p[j] = exp(score / sqrt((double)C));
        }
        for (size_t j = 0; j <= t; j++)
            for (size_t c = 0; c < C; c++) a[c] += p[j] / sum * product(k, k->x[2], NORM1, WV, j, c);
        for (size_t c = 0; c < C; c++) {
            r[c] = k->x[3][t * C + c];
            for (size_t i = 0; i < C; i++) r[c] += k->w[WO][c * C + i] * a[i];
            total += k->dy[t * C + c] * r[c];
        }
        for (size_t f = 0; f < F && !half; f++) {
            double u = product(k, r, NORM2, W1, 0, f), z = sqrt(2 / acos(-1)) * (u + 0.044715 * pow(u, 3));
            for (size_t c = 0; c < C; c++)
                total += k->dy[t * C + c] * k->w[W2][c * F + f] * u / (1 + exp(-2 * z)); // gelu, tanh by exp
        }
    }
    return total;
}

// The derivative of the loss by n numbers, which stand in the arrays at[from] .. at[to - 1] alike.
static double *block_differences(const Block *k, double *const *at, int from, int to, size_t n, bool half)
{
    double h = 1e-5, *d = malloc(n * sizeof *d);
    for (size_t i = 0; i < n; i++) {
        double here = at[from][i];
        for (int a = from; a < to; a++) at[a][i] = here + h;
        d[i] = loss(k, half);
        for (int a = from; a < to; a++) at[a][i] = here - h;
        d[i] = (d[i] - loss(k, half)) / (2 * h);
        for (int a = from; a < to; a++) at[a][i] = here;
    }
    return d;
}

// Compares the gradients of parameters `first` to `last`, the last one first, as backward finds them. times: how many
// calls they are the sum of.
static void block_params(const Block *k, int first, int last, double times)
{
    for (int i = last; i >= first; i--) {
        double *want = block_differences(k, k->w, i, i + 1, k->n[i], false);
        double *short_way = block_differences(k, k->w, i, i + 1, k->n[i], true), *once = malloc(k->n[i] * sizeof *once);
        for (size_t e = 0; e < k->n[i]; e++) once[e] = want[e], want[e] *= times, short_way[e] *= times;
        int pair = i == WQ ? WK : WQ;
        double *other = block_differences(k, k->w, pair, pair + 1, k->n[pair], false);
        char what[64];
        snprintf(what, sizeof what, "the gradient of %s", name[i]);
        double *none = doubles(k->n[i], NULL);
        expect_array(what, k->grad[i], want, 1, k->n[i], 3e-5,
                     (Mistake[]){{none, "it is still 0"},
                                 {once, "the gradient of the earlier micro-batch was lost: it must be added to (+=)"},
                                 {short_way, "dy came to this half; it must be dr, which has also what comes back "
                                             "through the norm and the feed-forward network"},
                                 {other, "wq and wk are exchanged"}}, i == WQ || i == WK ? 4 : 3);
    }
}

TEST(residual, 2, "both branches off: dx = dy")
{
    Block k = block_of(4, 3, 5, 100, WO);
    memset(k.weight[W2], 0, k.n[W2] * sizeof(float));
    float *dx = block_answer(&k);
    double *want = doubles(12, k.dy), *twice = doubles(12, k.dy), none[12] = {0};
    for (int i = 0; i < 12; i++) twice[i] *= 2;
    expect_array("dx with wo = 0 and w2 = 0", dx, want, 4, 3, 1e-6,
                 (Mistake[]){{none, "no gradient comes along the residual paths"},
                             {twice, "dy arrives twice: y = r + ... and r = x + ... follow each other"}}, 2);
}

TEST(network, 5, "attention off: the feed-forward network")
{
    Block k = block_of(4, 3, 5, 200, WO);
    float *dx = block_answer(&k);
    double *want = block_differences(&k, k.x, 3, 4, 12, false), *around = doubles(12, k.dy), through[12], twice[12];
    for (int i = 0; i < 12; i++) through[i] = want[i] - around[i], twice[i] = want[i] + around[i];
    block_params(&k, NORM2, W2, 1);
    expect_array("dx with wo = 0", dx, want, 4, 3, 3e-5,
                 (Mistake[]){{around, "what comes through the feed-forward network is missing in dx"},
                             {through, "what comes around the feed-forward network, dy, is missing in dx"},
                             {twice, "dy was added twice on the way to dx"}}, 3);
}

TEST(attention, 5, "the feed-forward network off: attention")
{
    Block k = block_of(4, 3, 5, 300, W2);
    float *dx = block_answer(&k);
    double *want = block_differences(&k, k.x, 0, 4, 12, false), *dy = doubles(12, k.dy);
    double *part[4], lacks[4][12], only[4][12];
    for (int i = 0; i < 4; i++) part[i] = block_differences(&k, k.x, i, i + 1, 12, false);
    for (int i = 0; i < 12; i++)
        for (int j = 0; j < 4; j++) lacks[j][i] = want[i] - part[j][i], only[j][i] = part[j][i] + part[3][i];
    block_params(&k, NORM1 + 1, WO, 1);
    expect_array("dx with w2 = 0", dx, want, 4, 3, 3e-5,
                 (Mistake[]){{dy, "what comes through attention is missing in dx"},
                             {lacks[3], "what comes around attention is missing in dx"},
                             {lacks[0], "what comes through q is missing in dx"},
                             {lacks[1], "what comes through k is missing in dx"},
                             {lacks[2], "what comes through v is missing in dx"},
                             {only[2], "dx has what comes through v alone: dn1 is a sum of three"},
                             {only[0], "dx has what comes through q alone: dn1 is a sum of three"}}, 7);
    block_params(&k, NORM1, NORM1, 1);
}

TEST(whole, 3, "the whole block")
{
    Block k = block_of(5, 4, 6, 400, -1);
    float *dx = block_answer(&k);
    double *around = block_differences(&k, k.x, 0, 4, 20, true), *want = block_differences(&k, k.x, 0, 4, 20, false);
    double *branch = block_differences(&k, k.x, 0, 3, 20, false), swapped[20];
    for (int i = 0; i < 20; i++) swapped[i] = branch[i] + k.dy[i];
    block_params(&k, NORM1, W2, 1);
    expect_array("dx", dx, want, 5, 4, 3e-5,
                 (Mistake[]){{around, "what comes through the feed-forward network never reaches attention and x"},
                             {swapped, "dy was passed around attention; it must be dr"}}, 2);
}

#include "../hidden.h"

TEST(micro_batches, 2, "two micro-batches: gradients of parameters add up")
{
    Block k = block_of(3, 2, 4, 500, -1);
    block_answer(&k);
    float *dx = block_answer(&k);
    block_params(&k, NORM1, W2, 2);
    expect_array("dx of the second", dx, block_differences(&k, k.x, 0, 4, 6, false), 3, 2, 3e-5, NULL, 0);
}

TEST(shapes, 3, "other shapes: T, C, F = 1, 4, 3; 7, 3, 11; 6, 8, 2")
{
    static const size_t shape[3][3] = {{1, 4, 3}, {7, 3, 11}, {6, 8, 2}};
    for (int i = 0; i < 3; i++) {
        size_t T = shape[i][0], C = shape[i][1];
        Block k = block_of(T, C, shape[i][2], 600 + 30 * (uint64_t)i, -1);
        float *dx = block_answer(&k);
        expect_array("dx", dx, block_differences(&k, k.x, 0, 4, T * C, false), T, C, 1e-4, NULL, 0);
        block_params(&k, NORM1, W2, 1);
    }
}
