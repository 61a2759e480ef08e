// test_deterministic: on a deterministic device the gradients and the loss of a step do not depend on the cut into
// micro-batches, the number of threads, or recomputation; and the trees in which they are added.
#include "step_run.h"

#include "expect_die.h"

enum { SEQUENCES = 8 };

// The gradient and loss of sequences [0, n) in micro-batches of `rows`.
static Result run_split(const ModelShape *shape, size_t n, size_t rows, int threads, RecomputePolicy policy)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(threads);
    dev->deterministic = true;
    Model *m = model_allocate_with(shape, dev, &mem, rows, T, true,
                                   (ModelOptions){.recompute = policy, .sequences = n});
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    Result r = {.n = m->params.n_elems};
    Step step = {.dropout = 0.2f, .step = 4, .documents = true};
    for (int twice = 0; twice < 2; twice++) { // a step leaves nothing for the next
        dev->zero(dev, m->grads, r.n * sizeof *m->grads);
        for (size_t i = 0; i < n; i += rows) run_batch(m, &step, i, n - i < rows ? n - i : rows, T);
        r.loss = model_step_finish(m);
    }
    r.grads = zeroed(r.n * sizeof *r.grads);
    memcpy(r.grads, m->grads, r.n * sizeof *r.grads);
    r.grad_bytes = mem.tag_bytes[MEM_GRADS];
    end_model(m, &mem, dev);
    return r;
}

TEST(test_splits_agree_bit_for_bit)
{
    const ModelShape *families[] = {&gpt, &llama};
    for (int f = 0; f < 2; f++) {
        Result one = run_split(families[f], SEQUENCES, 1, 1, (RecomputePolicy){0});
        assert_int_equal(one.grad_bytes, 4 * one.n * (1 + 4)); // the gradient; parts for bits 0 .. 3 of 8
        assert_true(distance(&one, NULL) > 0.1);
        for (size_t rows = 1; rows <= SEQUENCES; rows *= 2)
            for (int threads = 1; threads <= 2; threads++)
                for (int i = 0; i < 2; i++) {
                    RecomputePolicy policy = {.mode = i ? RECOMPUTE_EVERY : RECOMPUTE_NONE, .every = 2};
                    Result r = run_split(families[f], SEQUENCES, rows, threads, policy);
                    if (!same_bits(&r, &one))
                        fail_msg("micro-batches of %zu on %d threads differ by %g, loss by %g", rows, threads,
                                 distance(&r, &one), r.loss - one.loss);
                    free(r.grads);
                }
        free(one.grads);
    }
}

// g0 .. g4 alone, added by hand: a remainder is folded smallest first.
TEST(test_tree_order)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = true;
    Model *m = model_create(&gpt, dev, &mem, 1, T, 1, true);
    make_weights_lively(m);
    size_t n = m->params.n_elems;
    float *g = calloc(5 * n, sizeof *g), *tree = calloc(n, sizeof *tree);
    double loss[5];
    assert_true(g && tree);
    for (size_t i = 0; i < 5; i++) {
        run_batch(m, &(Step){.dropout = 0.2f, .step = 4, .documents = true}, i, 1, T);
        loss[i] = model_step_finish(m);
        dev->accumulate(dev, g + i * n, m->grads, n);
    }
    for (size_t j = 0; j < n; j++)
        tree[j] = g[4 * n + j] + ((g[j] + g[n + j]) + (g[2 * n + j] + g[3 * n + j]));
    Result r = run_split(&gpt, 5, 2, 2, (RecomputePolicy){0});
    for (size_t j = 0; j < n; j++) assert_true(r.grads[j] == tree[j]);
    assert_true(r.loss == loss[4] + ((loss[0] + loss[1]) + (loss[2] + loss[3])));
    assert_int_equal(r.grad_bytes, 4 * n * (1 + 3));
    free(g), free(tree), free(r.grads);
    end_model(m, &mem, dev);
}

// The gradient of the weight that 12 heads share: four ranks with three heads each, whose sums are added in the tree of
// comm.h, have the bits of one rank with all heads.
TEST(test_heads_of_several_ranks)
{
    enum { ROWS = 70, HEADS = 12, D = 5, LD = HEADS * D, RANKS = 4 };
    static float inp[ROWS * LD], dout[ROWS * LD], dinp[2][ROWS * LD], out[ROWS * LD], rstd[ROWS * HEADS];
    float weight[D], whole[D] = {0}, part[RANKS][D] = {{0}};
    for (size_t i = 0; i < ROWS * LD; i++) {
        inp[i] = (float)rng_normal(rng_make(1, "inp", 0), i);
        dout[i] = (float)rng_normal(rng_make(1, "dout", 0), i);
    }
    for (size_t d = 0; d < D; d++) weight[d] = (float)rng_normal(rng_make(1, "weight", 0), d);
    Dev *dev = dev_cpu_create(2);
    dev->deterministic = true;
    dev->head_norm_forward(dev, (X *)out, rstd, (X *)inp, (X *)weight, ROWS, HEADS, D, LD, 1e-5f);
    dev->head_norm_backward(dev, (X *)dinp[0], whole, (X *)dout, (X *)inp, rstd, (X *)weight, ROWS, HEADS, D, LD);
    for (int r = 0; r < RANKS; r++) {
        size_t at = (size_t)r * HEADS / RANKS * D, heads = HEADS / RANKS;
        dev->head_norm_forward(dev, (X *)(out + at), rstd, (X *)(inp + at), (X *)weight, ROWS, heads, D, LD, 1e-5f);
        dev->head_norm_backward(dev, (X *)(dinp[1] + at), part[r], (X *)(dout + at), (X *)(inp + at), rstd,
                                (X *)weight, ROWS, heads, D, LD);
    }
    for (size_t d = 0; d < D; d++) assert_true(whole[d] == (part[0][d] + part[1][d]) + (part[2][d] + part[3][d]));
    assert_memory_equal(dinp[0], dinp[1], sizeof dinp[0]);
    dev_cpu_free(dev);
}

static int too_many(void *arg)
{
    (void)arg;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = true;
    Model *m = model_create(&gpt, dev, &mem, 1, T, 1, true);
    for (size_t i = 0; i < 2; i++) run_batch(m, &(Step){0}, i, 1, T);
    return 0;
}

TEST_FIRST(test_too_many_sequences)
{
    expect_die(too_many, NULL, "more than 1 sequences in a step");
}

TESTS(NULL, NULL)
