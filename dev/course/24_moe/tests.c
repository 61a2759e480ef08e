#include "../grade.h"

#include "moe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *softmax_of(const float *z, int E, const int *chosen, int k, bool over_all)
{
    double *w = calloc((size_t)k, sizeof *w), sum = 0, top = z[chosen[0]];
    for (int j = 0; j < k; j++) w[j] = exp(z[chosen[j]] - top), sum += over_all ? 0 : w[j];
    for (int e = 0; over_all && e < E; e++) sum += exp(z[e] - top);
    for (int j = 0; j < k; j++) w[j] /= sum;
    return w;
}

// large: logits are up to that from shift. equal: they are whole numbers, so that many are equal.
static void judge_route(int T, int E, int k, float large, bool equal, float shift)
{
    float *z = random_floats((size_t)(T * E), 3), *weight = equal_floats((size_t)(T * k), 7);
    int *choice = malloc((size_t)(T * k) * sizeof *choice);
    for (int i = 0; i < T * E; i++) z[i] = shift + (equal ? roundf(z[i] * large) : z[i] * large);
    for (int i = 0; i < T * k; i++) choice[i] = -7;
    route(T, E, k, z, choice, weight);
    for (int t = 0; t < T; t++) {
        const float *own = z + t * E;
        for (int j = 0; j < k; j++) {
            int got = choice[t * k + j], want = -1;
            for (int e = 0; e < E && want < 0; e++) { // the one that j others come before
                int before = 0;
                for (int o = 0; o < E; o++) before += own[o] > own[e] || (own[o] == own[e] && o < e);
                if (before == j) want = e;
            }
            expect(got >= 0 && got < E, "token %d, choice %d: %d is not one of %d experts", t, j, got, E);
            expect(j == 0 || got != choice[t * k], "token %d chooses expert %d twice", t, got);
            expect(got == want, "token %d, choice %d: expected expert %d (%g), got expert %d (%g)%s", t, j, want,
                   own[want], got, own[got], own[want] == own[got] ? ": of equal ones the lower number comes first"
                   : "");
        }
        double *all = softmax_of(own, E, choice + t * k, k, true);
        expect_array("the weights of a token", weight + t * k, softmax_of(own, E, choice + t * k, k, false), 1,
                     (size_t)k, 1e-5, (Mistake[]){{all, "the softmax over all experts; "
                                                "over the chosen ones weights sum to 1"}}, E > k);
    }
}

static void judge_capacity(int T, int E, int k, double factor)
{
    int want = 0, got = expert_capacity(T, E, k, factor);
    while (want < factor * T * k / E) want++;
    expect(got == want, "the capacity of %d tokens, %d experts, k = %d, factor %g: expected %d, got %d%s", T, E, k,
           factor, want, got, got == want - 1 ? ": rounded down" : got == T * k ? ": factor and E are missing" : "");
}

// Choices that favour the first experts.
static int *choices(int T, int E, int k, uint64_t seed)
{
    int *choice = malloc((size_t)(T * k) * sizeof *choice);
    for (int t = 0; t < T; t++)
        for (int j = 0; j < k; j++) {
            bool again = true;
            while (again) {
                int a = (int)random_below(&seed, (uint64_t)E), b = (int)random_below(&seed, (uint64_t)E);
                choice[t * k + j] = a < b ? a : b, again = false;
                for (int i = 0; i < j; i++) again = again || choice[t * k + i] == choice[t * k + j];
            }
        }
    return choice;
}

static bool kept(const int *choice, int k, int T, int capacity, int slot) // how many come before it?
{
    int before = 0;
    for (int i = 0; i < T * k; i++)
        before += choice[i] == choice[slot] && (i % k < slot % k || (i % k == slot % k && i / k < slot / k));
    return before < capacity;
}

static void judge_dispatch(int T, int E, int k, int capacity)
{
    int *choice = choices(T, E, k, 5), *counts = malloc((size_t)E * sizeof *counts), total = 0;
    int *row = malloc((size_t)(T * k) * sizeof *row), *want = calloc((size_t)E, sizeof *want);
    bool *taken = calloc((size_t)(T * k + 1), sizeof *taken);
    for (int i = 0; i < T * k; i++) row[i] = 12345, want[choice[i]] += kept(choice, k, T, capacity, i);
    for (int e = 0; e < E; e++) counts[e] = 123456, total += want[e];
    int rows = dispatch(T, E, k, choice, capacity, counts, row);
    for (int e = 0; e < E; e++)
        expect(counts[e] == want[e], "%d tokens, %d experts, capacity %d: expert %d has %d rows; got %d%s", T, E,
               capacity, e, want[e], counts[e], counts[e] > capacity && counts[e] <= T * k ? ": dropped choices were "
                       "counted" : "");
    expect(rows == total, "%d tokens, %d experts, capacity %d: %d rows in all; got %d", T, E, capacity, total, rows);
    for (int i = 0; i < T * k; i++) {
        int first = 0, e = choice[i];
        for (int o = 0; o < e; o++) first += want[o];
        if (!kept(choice, k, T, capacity, i)) {
            expect(row[i] == -1, "choice %d of token %d is dropped (expert %d is full), its row is -1; got %d%s",
                   i % k, i / k, e, row[i], k > 1 ? ": first choices come before second ones, then tokens in order"
                   : "");
            continue;
        }
        expect(row[i] != -1, "choice %d of token %d was dropped; expert %d has room: first choices come before "
               "second ones, then tokens in order", i % k, i / k, e);
        expect(row[i] >= first && row[i] < first + want[e], "choice %d of token %d: expert %d has rows %d to %d; "
               "got row %d%s",
               i % k, i / k, e, first, first + want[e] - 1, row[i],
               row[i] >= 0 && row[i] < want[e] ? ": the rows of the experts before are not counted" : "");
        expect(!taken[row[i]], "row %d was given to two choices", row[i]);
        taken[row[i]] = true;
    }
}

// Rows from the grader, so that a wrong dispatch does not matter here; about a third is dropped where dropped is set.
static void judge_combine(int T, int k, int D, bool dropped)
{
    int n = T * k, rows = 0, *row = malloc((size_t)n * sizeof *row);
    for (int i = n; i-- > 0;) row[i] = dropped && (i * 7 + i / 3) % 3 == 0 ? -1 : rows++;
    size_t TD = (size_t)(T * D), RD = (size_t)(rows * D), N = (size_t)n;
    float *x = random_floats(TD, 1), *out = random_floats(RD, 2), *weight = random_floats(N, 3);
    float *dy = random_floats(TD, 4);
    float *in = equal_floats(RD, 9), *y = equal_floats(TD, 9), *dout = equal_floats(RD, 9);
    float *dweight = equal_floats(N, 9);
    double *win = calloc(RD, sizeof *win), *wy = calloc(TD, sizeof *wy), *last = calloc(TD, sizeof *last);
    double *plain = calloc(TD, sizeof *plain), *scaled = calloc(TD, sizeof *scaled), *nine = calloc(TD, sizeof *nine);
    double *wdout = calloc(RD, sizeof *wdout), *bare = calloc(RD, sizeof *bare);
    double *wdweight = calloc(N, sizeof *wdweight);
    for (int i = 0; i < n; i++) weight[i] = 0.1f + 0.4f * fabsf(weight[i]);
    for (int t = 0; t < T; t++)
        for (int d = 0; d < D; d++) {
            double sum = 0, *at = &wy[t * D + d];
            for (int j = 0; j < k; j++) {
                int i = t * k + j, o = row[i] * D + d;
                if (row[i] < 0) continue;
                win[o] = x[t * D + d], *at += (double)weight[i] * out[o], last[t * D + d] = (double)weight[i] * out[o];
                plain[t * D + d] += out[o], sum += weight[i];
                wdout[o] = (double)weight[i] * dy[t * D + d], bare[o] = dy[t * D + d];
                wdweight[i] += (double)out[o] * dy[t * D + d];
            }
            scaled[t * D + d] = sum > 0 ? *at / sum : 0, nine[t * D + d] = *at + 9;
        }
    gather_rows(T, k, D, x, row, in);
    expect_array("the rows that gather makes", in, win, (size_t)rows, (size_t)D, 0, NULL, 0);
    combine(T, k, D, out, row, weight, y);
    expect_array("y of combine", y, wy, (size_t)T, (size_t)D, 1e-5,
                 (Mistake[]){{plain, "the weights are missing"},
                             {last, "only the last choice of each token is in it"},
                             {nine, "added to the 9s that were there"},
                             {scaled, "divided by the sum of the weights that were kept"}}, k > 1 ? 4 : 1);
    combine_backward(T, k, D, dy, out, row, weight, dout, dweight);
    expect_array("dout", dout, wdout, (size_t)rows, (size_t)D, 1e-5, (Mistake[]){{bare, "the weights are missing"}}, 1);
    expect_array("dweight", dweight, wdweight, (size_t)T, (size_t)k, 1e-5, NULL, 0);
}

TEST(chosen, 3, "choices and weights: 2 of 4 experts") { judge_route(5, 4, 2, 2, false, 0); }
TEST(capacities, 1, "the capacity is rounded up")
{
    judge_capacity(8, 4, 2, 1.25);
    judge_capacity(5, 2, 1, 1);
}
TEST(all_kept, 3, "dispatch where there is room for all") { judge_dispatch(6, 3, 2, 12); }
TEST(some_dropped, 2, "dispatch where experts are full") { judge_dispatch(9, 3, 2, 4); }
TEST(back, 3, "gather, combine and its backward") { judge_combine(5, 2, 3, false); }

#include "../hidden.h"

TEST(large, 1, "logits around 600 and -600")
{
    judge_route(20, 8, 3, 30, false, 600);
    judge_route(20, 8, 3, 30, false, -600);
}

TEST(equal, 2, "equal logits, one expert, all experts")
{
    judge_route(30, 6, 2, 2, true, 0);
    judge_route(4, 5, 5, 3, false, 0);
    judge_route(4, 1, 1, 3, false, 0);
}

TEST(sizes, 3, "dispatch of many sizes, down to capacity 0")
{
    for (int T = 1; T <= 40; T += 3)
        for (int E = 2; E <= 8; E += 2)
            for (int k = 1; k <= 2; k++)
                for (int capacity = 0; capacity <= T; capacity += 1 + T / 4) judge_dispatch(T, E, k, capacity);
}

TEST(dropped, 2, "gather, combine and backward with dropped choices")
{
    judge_combine(11, 3, 4, true);
    judge_combine(7, 1, 5, true);
    for (int T = 1; T < 9; T++) judge_capacity(T, 3, 2, 1.5);
}
