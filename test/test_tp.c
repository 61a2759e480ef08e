// test_tp: models cut over 2 and 4 ranks (threads) against one rank: loss, every gradient, evaluation and sampling,
// with and without sequence parallelism; bit for bit on a deterministic device, otherwise within the bound for another
// order of sums. Bytes sent and held against the formulas.
#include "tp_case.h"

#include "expect_die.h"

// ---- bit for bit

// 1, 2, 4 ranks; sequence parallelism; recomputation; micro-batches; dropout; documents. Not where ranks share a
// key/value head.
TEST(test_deterministic_is_one_rank)
{
    ModelShape outputs = moe;
    outputs.norm_place = NORM_OF_OUTPUT;
    for (int f = 0; f < 5; f++) {
        Case c = {.shape = f < 3 ? families[f] : f == 3 ? &wide : &outputs, .ranks = 1, .micro = 2,
                  .deterministic = true, .dropout = 0.2f, .documents = true};
        Outcome one = run(c);
        assert_true(one.loss > 0.1 && one.eval_loss > 0.1 && one.logit_norm > 0.1);
        for (c.ranks = f == 3 ? 8 : 2; c.ranks <= (int)c.shape->kv_heads; c.ranks *= 2)
            for (int k = 0; k < (f == 3 ? 2 : 6); k++) {
                c.sequence = k % 2;
                c.micro = k < 4 ? 2 : 4;
                c.recompute = (RecomputePolicy){.mode = k < 2 ? RECOMPUTE_NONE : k < 4 ? RECOMPUTE_SELECTIVE
                                                                                       : RECOMPUTE_FULL};
                Outcome r = run(c);
                assert_memory_equal(r.weights, one.weights, one.n * sizeof *one.weights);
                if (!same(&r, &one))
                    fail_msg("family %d, %d ranks, sp %d, recompute %d, micro %zu: other bits: loss %.17g, one rank "
                             "%.17g; evaluated %.17g, %.17g; gradients %g apart; logits %g, %g", f, c.ranks, c.sequence,
                             (int)c.recompute.mode, c.micro, r.loss, one.loss, r.eval_loss, one.eval_loss,
                             apart(r.grads, one.grads, one.n), apart(r.logits[0], one.logits[0], c.shape->vocab),
                             apart(r.logits[1], one.logits[1], c.shape->vocab));
                release(&r);
            }
        release(&one);
    }
}

// Two replicas of two ranks: gradients go over the data-parallel group at the borders of units, complete.
TEST(test_replicas)
{
    for (int f = 0; f < 3; f++) {
        Case c = {.shape = families[f], .ranks = 1, .micro = 2, .deterministic = true, .dropout = 0.2f};
        Outcome one = run(c);
        c.ranks = c.dp = 2;
        for (int k = 0; k < 2; k++) {
            c.sequence = k;
            Outcome r = run(c);
            assert_true(same(&r, &one));
            release(&r);
        }
        release(&one);
    }
}

// ---- within the bound

TEST(test_fast_is_close)
{
    const ModelShape *shapes[] = {&gpt, &llama, &biased, &moe};
    for (int f = 0; f < 4; f++)
        for (int drop = 0; drop < 2; drop++) {
            Case c = {.shape = shapes[f], .ranks = 1, .micro = 2, .dropout = drop ? 0.2f : 0, .documents = drop};
            double bound = 2 * chain(&c) * (FLT_EPSILON / 2) * sum_of_norms(&c);
            Outcome one = run(c);
            assert_true(bound < 0.01 * sqrt(one.squares)); // small enough to see any tensor that is missing
            for (c.ranks = 2; c.ranks <= 4; c.ranks *= 2)
                for (int k = 0; k < 3; k++) {
                    c.sequence = k > 0;
                    c.dp = k == 2 && c.ranks == 2 ? 2 : 1; // overlapping
                    c.recompute = (RecomputePolicy){.mode = k < 2 ? RECOMPUTE_NONE : drop ? RECOMPUTE_SELECTIVE
                                                                                          : RECOMPUTE_FULL};
                    Outcome r = run(c);
                    assert_memory_equal(r.weights, one.weights, one.n * sizeof *one.weights);
                    check_close(&c, &r, &one, bound);
                    release(&r);
                }
            release(&one);
        }
}

// 16-bit storage, where the ranks' sums are rounded before they travel: no farther from one rank's gradient than four
// times what rounding alone moves that.
TEST(test_narrow_is_close)
{
    for (int f = 0; f < 3; f++) {
        Case c = {.shape = families[f], .ranks = 1, .micro = 2};
        Outcome exact = run(c);
        c.x_type = X_BF16;
        Outcome one = run(c);
        double moved = apart(one.grads, exact.grads, one.n);
        assert_true(moved < 0.1 * sqrt(exact.squares));
        for (int k = 0; k < 4; k++) {
            c.ranks = 2 + 2 * (k / 2), c.sequence = k % 2;
            Outcome r = run(c);
            assert_true(apart(r.grads, exact.grads, one.n) <= 4 * moved);
            assert_true(fabs(r.loss - exact.loss) <= 0.02 * exact.loss);
            release(&r);
        }
        release(&one);
        release(&exact);
    }
}

// ---- bytes

// A ring over p ranks sends, from all of them together, 2 (p - 1) n for a sum of n, (p - 1) n for a gather or a
// scatter.
TEST(test_bytes_sent)
{
    for (int k = 0; k < 8; k++) {
        const ModelShape *s = k < 4 ? &gpt : &moe;
        Case c = {.shape = s, .ranks = 2 + 2 * (k / 2 % 2), .micro = 2, .sequence = k % 2};
        Outcome r = run(c);
        size_t p = (size_t)c.ranks, L = s->layers, C = s->channels, N = c.micro * T, micros = SAMPLES / c.micro;
        size_t stream = 4 * N * C, loss = 3 * 4 * N, norms = 4 * (s->bias ? 2 : 1) * C; // bytes; norms: of one
        size_t sums = 2 * L + 2 * L + 2; // two a block and way; the embedding's, forward; the head's, back
        size_t shared = s->experts.n ? L : 0, gates = shared * 4 * N * s->experts.k; // calls; bytes
        const CommCount *n = r.count;
        if (!c.sequence) {
            assert_int_equal(n[COMM_ALL_REDUCE].calls, p * micros * (sums + shared + 3 + shared));
            assert_int_equal(n[COMM_ALL_REDUCE].sent,
                             micros * 2 * (p - 1) * ((sums + shared) * stream + loss + gates));
            assert_int_equal(n[COMM_ALL_GATHER].calls + n[COMM_REDUCE_SCATTER].calls, 0);
        } else {
            assert_int_equal(n[COMM_ALL_GATHER].calls, p * micros * sums);
            assert_int_equal(n[COMM_REDUCE_SCATTER].calls, p * micros * (sums + shared));
            assert_int_equal(n[COMM_ALL_GATHER].sent + n[COMM_REDUCE_SCATTER].sent,
                             micros * (p - 1) * (2 * sums + shared) * stream); // those of the sums above
            assert_int_equal(n[COMM_ALL_REDUCE].calls, p * micros * (3 + L + 1 + shared));
            assert_int_equal(n[COMM_ALL_REDUCE].sent, micros * 2 * (p - 1) * (loss + (2 * L + 1) * norms + gates));
        }
        release(&r);
    }
}

// The streams, what joins them, and the statistics of norms are of N / p rows.
TEST(test_activations_shrink)
{
    const RecomputeMode modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    for (int k = 0; k < 24; k++) {
        Case c = {.shape = families[k / 2 % 2], .ranks = 2 + 2 * (k % 2), .micro = 2, .idle = true,
                  .recompute = {.mode = modes[k / 4 % 3], .compress = k >= 12}};
        const ModelShape *s = c.shape;
        Outcome tp = run(c);
        c.sequence = true;
        Outcome sp = run(c);
        Dev *dev = dev_cpu_create(1);
        size_t N = c.micro * T, R = N / (size_t)c.ranks, L = s->layers;
        for (int r = 0; r < c.ranks; r++) {
            ModelShape part = tp_shape(s, r, c.ranks, true), flat = tp_shape(s, r, c.ranks, false);
            assert_int_equal(sp.acts[r], recompute_bytes(&part, dev, c.recompute, c.micro, T));
            assert_int_equal(tp.acts[r], recompute_bytes(&flat, dev, c.recompute, c.micro, T));
            if (c.recompute.mode == RECOMPUTE_NONE && !c.recompute.compress)
                assert_int_equal(tp.acts[r] - sp.acts[r],
                                 (N - R) * 4 * (s->channels * (L + 1 + L) + 2 * (2 * L + 1)));
            assert_true(sp.acts[r] < tp.acts[r]);
        }
        dev_cpu_free(dev);
        release(&tp);
        release(&sp);
    }
}

// ---- who has what

TEST(test_vocabulary_is_cut_whole)
{
    ModelShape s = gpt;
    for (s.vocab = 8; s.vocab < 70; s.vocab++)
        for (int size = 1; size <= 8; size++) {
            size_t next = 0;
            for (int r = 0; r < size; r++) {
                ModelShape part = tp_shape(&s, r, size, false);
                assert_int_equal(unit_cut_first(s.vocab, r, size), next);
                assert_true(part.vocab >= 1 && part.vocab <= (s.vocab + (size_t)size - 1) / (size_t)size);
                int32_t token[2] = {(int32_t)next, (int32_t)(next + part.vocab)}, target[3] = {token[0], token[1], -1};
                if (size > 1) {
                    tp_localise(&part, token, target, 2);
                    tp_localise(&part, NULL, target + 2, 1);
                    assert_true(token[0] == 0 && token[1] == -1 && target[0] == 0 && target[2] == -1);
                    assert_int_equal(target[1], part.vocab);
                }
                next += part.vocab;
            }
            assert_int_equal(next, s.vocab);
        }
}

typedef struct {
    ModelShape shape;
    int size;
    bool sequence;
    size_t T;
} Refused;

static int refuse(void *arg)
{
    const Refused *r = arg;
    tp_check(&r->shape, r->size, r->sequence, r->T);
    return 0;
}

TEST(test_refusals)
{
    Refused r = {.shape = gpt, .size = 4, .T = T};
    tp_check(&r.shape, 4, true, T);
    tp_check(&llama, 4, true, T); // two ranks to a key/value head
    r.shape.heads = r.shape.kv_heads = 6;
    expect_die(refuse, &r, "model.heads");
    r.shape = gpt, r.shape.ffn = 18;
    expect_die(refuse, &r, "model.ffn");
    r.shape = moe, r.shape.experts.ffn = 26;
    expect_die(refuse, &r, "model.experts_ffn");
    r.shape = moe, r.shape.experts.shared = 6;
    expect_die(refuse, &r, "model.experts_shared");
    r.shape = gpt, r.shape.heads = 12, r.shape.kv_heads = 6;
    expect_die(refuse, &r, "model.kv_heads = 6, parallel.tp = 4: neither divides the other");
    r.shape = gpt, r.shape.vocab = 3;
    expect_die(refuse, &r, "model.vocab = 3, parallel.tp = 4: every rank needs a token");
    r.shape = gpt, r.sequence = true, r.T = 10;
    expect_die(refuse, &r, "parallel.sp: rows of 10 tokens cannot be shared by parallel.tp = 4 ranks");
}

TESTS(NULL, NULL)
