// test_tp: how a model is cut over ranks: activations of tensor-parallel ranks against the formula, the vocabulary,
// rows of divided experts, and what is refused. (Bits, bytes sent: test_layouts; rounding: test_dump.)
#include "test/test.h"

#include "base/rng.h"
#include "expect_die.h"
#include "parallel/parts.h"
#include "net/experts.h"
#include "parallel/ep.h"

enum { T = 8 };

static const ModelShape gpt = { // a vocabulary that no number of ranks divides
    .layers = 2, .channels = 12, .heads = 4, .kv_heads = 4, .head_size = 4, .ffn = 24, .vocab = 31, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = { // 4 ranks: two of them to a key/value head
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 33, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};
static const ModelShape *const families[] = {&gpt, &llama};

// The streams, what joins them, and the statistics of norms are of N / p rows.
TEST(test_activations_shrink)
{
    const RecomputeMode modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    for (int k = 0; k < 24; k++) {
        const ModelShape *s = families[k / 2 % 2];
        RecomputePolicy policy = {.mode = modes[k / 4 % 3], .compress = k >= 12};
        Comm tp = {.size = 2 + 2 * (k % 2), .rank = 1}; // nothing is sent
        size_t held[2], N = 2 * T, R = N / (size_t)tp.size, L = s->layers;
        for (int sequence = 0; sequence < 2; sequence++) {
            Dev *dev = dev_cpu_create(1);
            Mem mem = {0};
            PartsSettings parts = {.tp = &tp, .sequence = sequence};
            ModelOptions options = {.parts = parts_make(parts), .sequences = 8, .recompute = policy};
            Model *m = model_allocate_with(s, dev, &mem, 2, T, true, options);
            ModelShape part = tp_shape(s, 1, tp.size, sequence);
            held[sequence] = mem.tag_bytes[MEM_ACTS];
            assert_int_equal(held[sequence], recompute_bytes(&part, dev, policy, 2, T));
            end_model(m, &mem, dev);
        }
        if (policy.mode == RECOMPUTE_NONE && !policy.compress)
            assert_int_equal(held[0] - held[1], (N - R) * 4 * (s->channels * (L + 1 + L) + 2 * (2 * L + 1)));
        assert_true(held[1] < held[0]);
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

TEST(test_refusals)
{
    ModelShape s = gpt;
    tp_check(&s, 4, true, T);
    tp_check(&llama, 4, true, T); // two ranks to a key/value head
    s.heads = s.kv_heads = 6;
    expect_dies("model.heads", tp_check(&s, 4, false, T));
    s = gpt, s.ffn = 18;
    expect_dies("model.ffn", tp_check(&s, 4, false, T));
    s = llama, s.experts = (ModelExperts){.n = 4, .k = 2, .ffn = 26, .every = 1};
    expect_dies("model.experts_ffn", tp_check(&s, 4, false, T));
    s.experts.ffn = 24, s.experts.shared = 6;
    expect_dies("model.experts_shared", tp_check(&s, 4, false, T));
    s = gpt, s.heads = 12, s.kv_heads = 6;
    expect_dies("model.kv_heads = 6, parallel.tp = 4: neither divides the other", tp_check(&s, 4, false, T));
    s = gpt, s.vocab = 3;
    expect_dies("model.vocab = 3, parallel.tp = 4: every rank needs a token", tp_check(&s, 4, false, T));
    expect_dies("parallel.sp: rows of 10 tokens cannot be shared by parallel.tp = 4 ranks",
                tp_check(&gpt, 4, true, 10));
}

// ---- ep: how many rows the experts of a rank may get, where ranks divide them, and what is refused. (Bits,
// with ranks that get no rows: test_layouts.)

// Rows per token: those of all ranks, each of which may want every expert that one has; or as many as `room` says.
TEST(test_room)
{
    ModelExperts x = {.n = 8, .k = 2};
    assert_int_equal(experts_rows(&x), 2);
    x.ranks = 4;
    assert_int_equal(experts_rows(&x), 8); // 4 ranks, 2 experts here
    x.ranks = 8;
    assert_int_equal(experts_rows(&x), 8); // 8 ranks, 1 expert here
    x.room = 1.5;
    assert_int_equal(experts_rows(&x), 3);
    x.room = 100;
    assert_int_equal(experts_rows(&x), 8);
}

TEST(test_refused)
{
    expect_dies("model.experts = 5", ep_shape(&(ModelShape){.experts = {.n = 5, .k = 2, .ffn = 9, .every = 1}}, 0, 2));
}

TESTS(NULL, NULL)
