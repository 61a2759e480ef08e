// test_deal: every sequence goes to one rank, and the additions build the tree of one rank, whatever the number of ranks
// and of sequences; all ranks are played here. (test_layouts: the gradients of a model.)
#include "parallel/deal.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

#include "test/test.h"

enum { RANKS = 9, SHARE = 40, MOST = RANKS * SHARE };

// Every sequence once, in ascending order on each rank; neighbours where a rank's number is a power of two.
TEST(test_every_sequence_once)
{
    for (int ranks = 1; ranks <= RANKS; ranks++)
        for (size_t n = 1; n <= SHARE; n++) {
            bool seen[MOST] = {false};
            for (int r = 0; r < ranks; r++)
                for (size_t i = 0, at, last = 0; i < n; i++, last = at) {
                    at = deal_sequence(i, n, r, ranks);
                    assert_true(at < n * (size_t)ranks && !seen[at] && (i == 0 || at > last));
                    if (!(n & (n - 1))) assert_true(at == n * (size_t)r + i);
                    seen[at] = true;
                }
        }
    assert_int_equal(deal_sequence(2, 3, 1, 4), 9); // the table of deal.c
    assert_int_equal(deal_sequence(1, 3, 2, 4), 5);
}

// A binary counter: what model_run.c does. sum[k]: of 2^k leaves, for each bit k of n; returns the sum of all.
static float count_up(const float *leaf, size_t n, float *sum)
{
    float all = 0;
    bool some = false;
    for (size_t i = 0; i < n; i++) {
        float x = leaf[i];
        int k = 0;
        for (; i >> k & 1; k++) x = sum[k] + x;
        sum[k] = x;
    }
    for (int k = 0; n >> k; k++) {
        if (!(n >> k & 1)) continue;
        all = some ? all + sum[k] : sum[k];
        some = true;
    }
    return all;
}

// The sums of all ranks, numbered as deal_additions has them, give the bits of one rank. Sums of random numbers in
// another order seldom do: the check is done for what a plain sum of the same numbers gives, too.
TEST(test_the_tree_of_one_rank)
{
    int other = 0, cases = 0;
    Rng rng = rng_make(7, "test_deal", 0);
    for (int ranks = 1; ranks <= RANKS; ranks++)
        for (size_t n = 1; n <= SHARE; n++) {
            float leaf[MOST], sum[MOST], part[64], plain = 0;
            size_t all = n * (size_t)ranks, sums = 0, pair[MOST][2];
            for (size_t i = 0; i < all; i++) leaf[i] = (float)rng_normal(rng, n * MOST + i), plain += leaf[i];
            float one = count_up(leaf, all, part);
            for (int k = 6; k >= 0; k--)
                for (int r = 0; n >> k & 1 && r < ranks; r++) {
                    float own[SHARE];
                    for (size_t i = 0; i < n; i++) own[i] = leaf[deal_sequence(i, n, r, ranks)];
                    count_up(own, n, part);
                    sum[sums++] = part[k];
                }
            assert_int_equal(deal_additions(n, ranks, pair), sums - 1);
            for (size_t j = 0; j + 1 < sums; j++) sum[pair[j][0]] += sum[pair[j][1]];
            if (sum[0] != one) fail_msg("%d ranks with %zu sequences: %.9g, one rank %.9g", ranks, n, sum[0], one);
            cases++, other += plain != one;
        }
    assert_true(other > cases / 2);
}

TESTS(NULL, NULL)
