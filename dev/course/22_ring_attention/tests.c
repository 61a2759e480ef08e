#define RANKS_BODY
#include "../ranks.h"

#include "../grade.h"

#include "ring_attention.h"

#include <math.h>

// Attention as it is defined, in double, and with the mistakes that one can make.
enum { RIGHT, NO_SCALE, NO_MASK, NOT_ITSELF, BLOCK_POSITIONS, STALE, MEAN, OWN, MODES };
static const char *because[MODES] = {
    "", "the scores are not divided by sqrt(D)", "queries see keys of later positions",
    "a query does not see the key of its own position", "positions are counted within the block, not in the sequence",
    "l and o were not corrected when the maximum grew", "the outputs of the blocks were averaged; their sums l differ",
    "only the rank's own block was seen"};

// Keys in blocks, at positions from k_first on; out (Tq, D), lse (Tq) or NULL.
static void define(int mode, int Tq, int Tk, int D, int block, const float *q, const float *k, const float *v,
                   int q_first, int k_first, double *out, double *lse)
{
    for (int i = 0; i < Tq; i++) {
        double all = 0, top = -INFINITY;
        for (int d = 0; d < D; d++) out[i * D + d] = 0;
        for (int pass = 0; pass < 2; pass++) { // first the maximum
            double stale = -INFINITY;
            for (int b = 0; b < Tk; b += block) {
                double l = 0, *o = calloc((size_t)D, sizeof *o);
                for (int j = b; j < b + block && j < Tk; j++) {
                    int at = q_first + i, key = k_first + j;
                    bool see = mode == NO_MASK || (mode == NOT_ITSELF ? key < at : key <= at);
                    if (mode == BLOCK_POSITIONS) see = j - b <= i;
                    if (mode == OWN) see = see && key >= q_first;
                    double s = 0;
                    for (int d = 0; d < D; d++) s += (double)q[i * D + d] * k[j * D + d];
                    if (mode != NO_SCALE) s /= sqrt(D);
                    if (!see) continue;
                    if (pass == 0) top = fmax(top, s);
                    stale = fmax(stale, s);
                    double p = exp(s - top);
                    l += p;
                    for (int d = 0; d < D; d++) o[d] += p * v[j * D + d];
                }
                double weight = mode == STALE ? exp(top - stale) : mode == MEAN && l > 0 ? 1 / l : 1;
                for (int d = 0; pass == 1 && d < D; d++) out[i * D + d] += o[d] * weight;
                if (pass == 1) all += l * weight;
                free(o);
            }
        }
        for (int d = 0; d < D; d++) out[i * D + d] /= all;
        if (lse) lse[i] = top + log(all);
    }
}

static void compare(const char *what, const float *got, const double *want, int Tq, int Tk, int D, int block,
                    const float *q, const float *k, const float *v, int q_first, int k_first, double tolerance,
                            int modes)
{
    Mistake list[MODES];
    int n = 0;
    for (int mode = 1; mode < modes; mode++) {
        double *wrong = calloc((size_t)(Tq * D), sizeof *wrong), differ = 0;
        define(mode, Tq, Tk, D, block, q, k, v, q_first, k_first, wrong, NULL);
        for (int i = 0; i < Tq * D; i++) differ += fabs(wrong[i] - want[i]);
        if (differ > 1e-3 || isnan(differ)) list[n++] = (Mistake){wrong, because[mode]};
    }
    expect_array(what, got, want, (size_t)Tq, (size_t)D, tolerance, list, n);
}

// Queries at q_first, and Tk keys at k_first that come in blocks, from the last one to the first if backward. Scores
// are up to about `large`.
static void judge_blocks(int Tq, int Tk, int D, int block, int q_first, int k_first, float large, bool backward)
{
    size_t n = (size_t)(Tq * D);
    float *q = random_floats(n, 1), *k = random_floats((size_t)(Tk * D), 2), *v = random_floats((size_t)(Tk * D), 3);
    float *m = equal_floats((size_t)Tq, -INFINITY), *l = equal_floats((size_t)Tq, 0), *o = equal_floats(n, 0);
    double *want = calloc(n, sizeof *want), *lse = calloc((size_t)Tq, sizeof *lse);
    for (size_t i = 0; i < n; i++) q[i] *= large;
    define(RIGHT, Tq, Tk, D, block, q, k, v, q_first, k_first, want, lse);
    int blocks = (Tk + block - 1) / block;
    for (int b = 0; b < blocks; b++) {
        int from = (backward ? blocks - 1 - b : b) * block, count = Tk - from < block ? Tk - from : block;
        size_t size = (size_t)(count * D) * sizeof(float);
        float *kb = malloc(size), *vb = malloc(size);
        memcpy(kb, k + from * D, size), memcpy(vb, v + from * D, size);
        attend_block(Tq, count, D, q, kb, vb, q_first, k_first + from, m, l, o);
        free(kb), free(vb);
    }
    char what[128];
    snprintf(what, sizeof what, "o / l of %d queries at %d and %d keys at %d in blocks of %d", Tq, q_first, Tk,
            k_first, block);
    for (int i = 0; i < Tq; i++) {
        if (isinf(lse[i]) && !(m[i] == -INFINITY && l[i] == 0))
            fail("query %d sees no key: its m should still be -inf and its l 0; got %g and %g", i, m[i], l[i]);
        if (isinf(lse[i])) { // no key: nothing to divide
            for (int d = 0; d < D; d++)
                expect(o[i * D + d] == 0, "query %d sees no key; its o should be 0, got %g", i, o[i * D + d]);
            l[i] = 1;
            for (int d = 0; d < D; d++) want[i * D + d] = 0;
            continue;
        }
        for (int d = 0; d < D; d++) o[i * D + d] /= l[i];
    }
    compare(what, o, want, Tq, Tk, D, block, q, k, v, q_first, k_first, 1e-5 * (1 + large), MODES - 1);
    for (int i = 0; i < Tq; i++)
        if (!isinf(lse[i])) expect_number("m + log(l)", m[i] + log(l[i]), lse[i], 1e-5 * (1 + large), NULL, 0);
}

typedef struct {
    int T, D;
    float *q, *k, *v, *out;
} Job;

static void body(Link *link, void *arg)
{
    Job *job = arg;
    size_t n = (size_t)(job->T / link_size(link) * job->D), at = n * (size_t)link_rank(link), size = n * sizeof(float);
    float *part[4] = {malloc(size), malloc(size), malloc(size), equal_floats(n, 5)};
    memcpy(part[0], job->q + at, size), memcpy(part[1], job->k + at, size), memcpy(part[2], job->v + at, size);
    ring_attention(link, job->T, job->D, part[0], part[1], part[2], part[3]);
    memcpy(job->out + at, part[3], size);
    for (int i = 0; i < 4; i++) free(part[i]);
}

static void judge_ring(int N, int T, int D)
{
    size_t n = (size_t)(T * D);
    Job job = {T, D, random_floats(n, 4), random_floats(n, 5), random_floats(n, 6), equal_floats(n, 0)};
    double *want = calloc(n, sizeof *want);
    LinkCount count[64];
    for (size_t i = 0; i < n; i++) job.q[i] *= 3;
    ranks_run(N, body, &job, count);
    int block = T / N;
    for (int r = 0; r < N; r++) {
        char what[64];
        int at = r * block * D;
        define(RIGHT, block, T, D, block, job.q + at, job.k, job.v, r * block, 0, want, NULL);
        snprintf(what, sizeof what, "%d ranks, %d tokens: the output of rank %d", N, T, r);
        compare(what, job.out + at, want, block, T, D, block, job.q + at, job.k, job.v, r * block, 0, 3e-5, MODES);
        size_t most = (size_t)(N - 1) * 2 * (size_t)(block * D) * sizeof(float);
        expect(count[r].bytes <= most, "rank %d of %d sends %zu bytes; N-1 blocks of keys and values are %zu", r, N,
               count[r].bytes, most);
    }
}

TEST(one_block, 3, "the state after one block that all queries see") { judge_blocks(3, 5, 4, 5, 4, 0, 2, false); }
TEST(four_blocks, 3, "the state after four blocks") { judge_blocks(3, 16, 4, 4, 16, 0, 4, false); }
TEST(causal, 3, "a block of which queries see only a part") { judge_blocks(4, 4, 4, 4, 0, 0, 2, false); }
TEST(ring, 3, "the output on two ranks") { judge_ring(2, 8, 4); }

#include "../hidden.h"

TEST(large, 2, "scores of several hundred")
{
    judge_blocks(3, 9, 4, 3, 9, 0, 800, false);
    judge_blocks(3, 9, 4, 3, 9, 0, 800, true);
}

TEST(unseen, 2, "queries that see no key of a block")
{
    judge_blocks(4, 4, 3, 2, 10, 12, 2, true);
    judge_blocks(4, 6, 3, 1, 2, 0, 2, true);
    judge_blocks(4, 7, 3, 3, 5, 1, 2, false);
}

TEST(many_ranks, 3, "the output on 5 ranks, and a token a rank, within the bytes")
{
    judge_ring(5, 15, 3);
    judge_ring(8, 8, 2);
}

TEST(one_rank, 1, "one rank")
{
    judge_ring(1, 6, 4);
}
