// test_ddp: N ranks (threads) against one: the same samples give the same loss, gradients and weights, bit for bit on a
// deterministic device, otherwise within a derived bound; and the bytes sent are those of the formula.
// deeper: 6 shares of 2 to 8 ranks for each of two models, not 3
#include "deeper.h"
#include "replica_run.h"

#include "expect_die.h"

TEST(test_deterministic_ranks_are_one)
{
    const ModelShape *families[] = {&gpt, &llama};
    const OptimName optim[] = {OPTIM_ADAMW, OPTIM_MUON};
    for (int f = 0; f < 2; f++) {
        Case c = {.ranks = 1, .shape = families[f], .deterministic = true, .overlap = true,
                  .optim = optim[f], .dropout = 0.2f, .clip = 0.5f, .steps = STEPS};
        const struct { int ranks; size_t samples, micro; } rows[] = {
            {2, 16, 1}, {4, 16, 1}, {8, 16, 0}, {2, 16, 0}, {4, 16, 2}, {8, 16, 1}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            if (!deeper() && (int)i % 2 != f) continue;
            c.ranks = rows[i].ranks, c.micro = rows[i].micro, c.samples = rows[i].samples;
            Case single = c;
            single.ranks = 1, single.micro = 1;
            Outcome one = run(single);
            assert_true(one.norm > 0 && one.loss > 0);
            Outcome r = run(c);
            assert_true(r.loss == one.loss && r.norm == one.norm);
            assert_memory_equal(r.grads, one.grads, one.n * sizeof *one.grads);
            assert_memory_equal(r.weights, one.weights, one.n * sizeof *one.weights);
            release(&r), release(&one);
        }
    }
}

TEST(test_fast_ranks_are_close)
{
    const ModelShape *families[] = {&gpt, &llama};
    for (int f = 0; f < 2; f++) {
        Case c = {.ranks = 1, .shape = families[f], .samples = SAMPLES, .optim = OPTIM_SGD, .dropout = 0.2f,
                  .steps = 1};
        double bound = fast_bound(c);
        Outcome one = run(c);
        for (c.ranks = 1; c.ranks <= 4; c.ranks++)
            for (c.micro = 0; c.micro < 3; c.micro++)
                for (int overlap = 0; overlap < 2; overlap++) {
                    c.overlap = overlap, c.bucket = 4000;
                    Outcome r = run(c);
                    double diff = apart(r.grads, one.grads, one.n);
                    if (!(diff <= bound) || !(bound < 0.1 * one.norm))
                        fail_msg("%d ranks, micro-batches of %zu: gradients differ by %g, bound %g, norm %g", c.ranks,
                                 c.micro, diff, bound, one.norm);
                    assert_true(fabs(r.loss - one.loss) <= fast_terms(&c) * FLT_EPSILON * one.loss);
                    release(&r);
                }
        release(&one);
    }
}

// Accumulation or not, 2 (N - 1) / N of the gradients go out once a step, in as many calls as there are buckets.
TEST(test_traffic)
{
    for (int ranks = 2; ranks <= 4; ranks++)
        for (size_t micro = 0; micro < 2; micro++) {
            Case c = {.ranks = ranks, .shape = &gpt, .samples = SAMPLES, .micro = micro, .overlap = true,
                      .bucket = 1, .optim = OPTIM_SGD, .steps = STEPS};
            Outcome units = run(c);
            assert_int_equal(units.count[0][COMM_ALL_REDUCE].calls, STEPS * (gpt.layers + 2)); // each unit alone
            c.bucket = 1 << 30;
            Outcome all = run(c);
            assert_int_equal(all.count[0][COMM_ALL_REDUCE].calls, STEPS);
            c.overlap = false;
            Outcome naive = run(c);
            assert_int_equal(naive.count[0][COMM_ALL_REDUCE].calls, STEPS);
            size_t sent = all.count[0][COMM_ALL_REDUCE].sent;
            assert_int_equal(naive.count[0][COMM_ALL_REDUCE].sent, sent);
            size_t left = all.n % (size_t)ranks; // comm_even: the first ranks' shards have an element more
            double exact = STEPS * 2.0 * 4 * (double)all.n * (ranks - 1) / ranks;
            assert_true(left ? fabs((double)sent - exact) < STEPS * 2.0 * 4 : (double)sent == exact);
            release(&units), release(&all), release(&naive);
        }
}

// A bucket is sent as soon as it holds as many bytes as asked for. Head: 24 gradients (it is tied); five blocks of
// 1184. Blocks a call, the last call with the embedding: 1 2 2 0 when head and block fill a bucket; 2 2 1 when a float
// more is asked for.
TEST(test_buckets)
{
    const size_t bucket[] = {4 * 24, 4 * 24 + 4, 4 * (24 + 1184), 4 * (24 + 1184) + 3, 4 * (24 + 1184) + 4},
                 calls[] = {7, 6, 4, 4, 3};
    for (int i = 0; i < 5; i++) {
        Outcome r = run((Case){.ranks = 2, .shape = &gpt, .samples = 4, .overlap = true, .bucket = bucket[i],
                               .optim = OPTIM_SGD, .steps = 1});
        assert_int_equal(r.count[0][COMM_ALL_REDUCE].calls, calls[i]);
        release(&r);
    }
}

TEST(test_narrow_reduction)
{
    for (int i = 0; i < 4; i++) // one bucket, and each unit alone
        check_narrow_reduction((Case){.ranks = 2, .shape = i % 2 ? &llama : &gpt, .samples = SAMPLES, .micro = 4,
                                      .overlap = true, .bucket = i / 2 ? 1 : 1 << 30, .x_type = i % 2 ? X_FP16 : X_BF16,
                                      .optim = OPTIM_SGD, .steps = 1});
}

typedef struct {
    int64_t whole[3];
    double real[3];
    CommCount count[3];
} Sums;

static void sum_numbers(Comm *world, void *arg)
{
    Sums *s = arg;
    int rank = world->rank;
    s->whole[rank] = ddp_sum_int(world, (int64_t)1 << (40 + rank));
    s->real[rank] = ddp_sum(world, 1 + ldexp(1, -30 - rank));
    s->count[rank] = world->count[COMM_ALL_REDUCE];
}

// Valid tokens and losses of a step: a call for each, of one number of 64 bits.
TEST(test_sums)
{
    Sums s;
    comm_threads_run(3, sum_numbers, &s);
    for (int r = 0; r < 3; r++) {
        assert_true(s.whole[r] == 7ll << 40 && s.real[r] == 3 + ldexp(7, -32));
        assert_int_equal(s.count[r].calls, 2);
        assert_int_equal(s.count[r].payload, 2 * 8);
    }
}

static int uneven_share(void *arg)
{
    (void)arg;
    size_t begin;
    ddp_share(10, 0, 4, &begin);
    return 0;
}

// The shares cover every sample once (all ranks played here).
TEST_FIRST(test_share)
{
    for (int size = 1; size <= 6; size++) {
        size_t next = 0, begin;
        for (int rank = 0; rank < size; rank++) {
            size_t n = ddp_share(60, rank, size, &begin);
            assert_int_equal(begin, next);
            next = begin + n;
        }
        assert_int_equal(next, 60);
    }
    expect_die(uneven_share, NULL, "broken invariant");
}

TESTS(NULL, NULL)
