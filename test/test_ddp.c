// test_ddp: N ranks, played by threads, against one: the same samples give the same loss, gradients and weights. Bit
// for bit on a deterministic device, within a derived bound else; with the bytes that the formula says.
#include "step_run.h"

#include "ddp.h"
#include "expect_die.h"
#include "optim.h"

#include <float.h>

enum { SAMPLES = 24, STEPS = 3 };

typedef struct {
    int ranks;
    const ModelShape *shape;
    size_t samples, micro; // sequences of a step, and of a micro-batch (0: a rank's share)
    bool deterministic, overlap;
    size_t bucket;      // bytes
    OptimName optim;
    float dropout, clip;
    int steps;
} Case;

typedef struct {
    const Case *c;
    float *grads, *weights; // of rank 0; gradients of the first step
    double loss, norm;
    size_t n, sent;         // bytes of gradients that rank 0 sent in all steps
    size_t calls;
    bool agree[8];
} Outcome;

// Sample i of step k: valid tokens differ much between samples, and so between ranks.
static void sample(size_t i, size_t k, int32_t *token, int32_t *target, int32_t *first)
{
    sequence(i + k * SAMPLES, T, token, target, first);
    for (size_t t = 0; t < T; t++)
        if (t > 1 + i % 9) target[t] = -1;
}

static double one_step(Model *m, Ddp *ddp, Comm *control, const Case *c, size_t micro, size_t step)
{
    int32_t token[SAMPLES * T], target[SAMPLES * T], first[SAMPLES * T];
    size_t begin, share = ddp_share(c->samples, control->rank, control->size, &begin);
    int64_t valid = 0;
    for (size_t i = 0; i < share; i++)
        sample(begin + i, step, token + i * T, target + i * T, first + i * T);
    for (size_t n = 0; n < share * T; n++) valid += target[n] >= 0;
    valid = ddp_sum_int(control, valid);
    for (size_t i = 0; i < share; i += micro) {
        ddp_micro(ddp, i + micro >= share);
        model_set_batch(m, token + i * T, NULL, target + i * T, micro, T);
        model_set_documents(m, first + i * T);
        model_set_dropout(m, c->dropout, 5, (uint32_t)step, step * c->samples + begin + i);
        model_forward_backward(m, 1 / (float)valid);
    }
    double loss = ddp_sum(control, model_step_finish(m)) / (double)valid;
    ddp_finish(ddp);
    return loss;
}

static void play(Comm *world, void *arg)
{
    Outcome *out = arg;
    const Case *c = out->c;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = c->deterministic;
    comm_set_ordered(world, c->deterministic);
    Comm *group = comm_split(world, 0, world->rank, "dp"), *control = comm_split(world, 0, world->rank, "sums");
    size_t micro = c->micro ? c->micro : c->samples / (size_t)c->ranks;
    Model *m = model_allocate_with(c->shape, dev, &mem, micro, T, true, (ModelOptions){.sequences = c->samples});
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    Ddp *ddp = ddp_create(m, group, c->overlap, c->bucket);
    Optim optim = optim_create(m, (OptimSettings){.name = c->optim, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                                  .weight_decay = 0.1f, .clip = c->clip});
    size_t n = m->params.n_elems;
    for (int k = 0; k < c->steps; k++) {
        double loss = one_step(m, ddp, control, c, micro, (size_t)k);
        if (world->rank == 0 && k == 0) {
            out->loss = loss;
            memcpy(out->grads, m->grads, n * sizeof(float));
        }
        double norm = optim_step(&optim, m, 0.01);
        if (world->rank == 0 && k == 0) out->norm = norm;
    }
    const CommCount *count = &group->count[COMM_ALL_REDUCE];
    if (world->rank == 0) {
        memcpy(out->weights, m->weights, n * sizeof(float));
        out->sent = count->sent;
        out->calls = count->calls;
    }
    out->agree[world->rank] = ddp_agree(group, m->weights, n);
    if (world->rank == world->size - 1) m->weights[n - 1] = nextafterf(m->weights[n - 1], 1e9f);
    if (world->size > 1) out->agree[world->rank] &= !ddp_agree(group, m->weights, n);
    ddp_free(ddp);
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
}

static Outcome run(Case c)
{
    Params params;
    Unit *unit;
    model_describe(c.shape, &params, &unit);
    Outcome out = {.c = &c, .n = params.n_elems};
    out.grads = malloc(out.n * sizeof *out.grads);
    out.weights = malloc(out.n * sizeof *out.weights);
    assert_true(out.grads && out.weights);
    free(unit);
    params_free(&params);
    comm_threads_run(c.ranks, play, &out);
    for (int r = 0; r < c.ranks; r++) assert_true(out.agree[r]);
    out.c = NULL;
    return out;
}

static void release(Outcome *o)
{
    free(o->grads), free(o->weights);
}

static void test_deterministic_ranks_are_one(void **state)
{
    (void)state;
    const ModelShape *families[] = {&gpt, &llama};
    const OptimName optim[] = {OPTIM_ADAMW, OPTIM_MUON};
    for (int f = 0; f < 2; f++) {
        Case c = {.ranks = 1, .shape = families[f], .deterministic = true, .overlap = true,
                  .optim = optim[f], .dropout = 0.2f, .clip = 0.5f, .steps = STEPS};
        // every rank's share is a whole subtree: a power of two of sequences, on three ranks too
        for (int i = 0; i < 6; i++) {
            c.ranks = 2 + i % 3, c.micro = i < 3;
            c.samples = c.ranks == 3 ? 24 : 16;
            Case single = c;
            single.ranks = 1, single.micro = 2;
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

// Fast mode. A gradient is the sum of its tokens' gradients, t = 1 .. S, each the result of sums of its own. Both runs
// add the same terms in some order, so each is within gamma(n) sum |term| of the exact sum, gamma(n) = n u / (1 - n u),
// u = 2^-24, n the longest chain of additions that a term goes through (Higham, Accuracy and Stability, section 4.2);
// the two differ by twice that. In norms: sum |term| is at most the sum over tokens of |gradient of the token|, which
// this function computes.
static double sample_norms(Case c)
{
    double sum = 0;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_allocate(c.shape, dev, &mem, 1, T, true);
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    int64_t valid = 0;
    for (int twice = 0; twice < 2; twice++)
        for (size_t i = 0; i < SAMPLES; i++) {
            int32_t token[T], target[T], first[T], one[T];
            sample(i, 0, token, target, first);
            for (size_t t = 0; t < T; t++) {
                if (target[t] < 0) continue;
                if (!twice) { valid++; continue; }
                for (size_t s = 0; s < T; s++) one[s] = s == t ? target[s] : -1; // the gradient of one token's loss
                dev->zero(dev, m->grads, m->params.n_elems * sizeof(float));
                model_set_batch(m, token, NULL, one, 1, T);
                model_set_documents(m, first);
                model_set_dropout(m, c.dropout, 5, 0, i);
                model_forward_backward(m, 1 / (float)valid);
                sum += clip_norm(dev, &m->params, m->grads, 1);
            }
        }
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    return sum;
}

static void test_fast_ranks_are_close(void **state)
{
    (void)state;
    const ModelShape *families[] = {&gpt, &llama};
    for (int f = 0; f < 2; f++) {
        Case c = {.ranks = 1, .shape = families[f], .samples = SAMPLES, .optim = OPTIM_SGD, .dropout = 0.2f,
                  .steps = 1};
        // a token's own gradient is made by sums of at most T rows of max(F, V, C) products each, layer upon layer:
        // its rounding is that of L + 2 units with that many terms each, in both runs
        double terms = SAMPLES * T + (double)(c.shape->layers + 2) * T * 130;
        double bound = 2 * terms * (FLT_EPSILON / 2) * sample_norms(c);
        Outcome one = run(c);
        for (c.ranks = 1; c.ranks <= 4; c.ranks++)
            for (c.micro = 0; c.micro < 3; c.micro++)
                for (int overlap = 0; overlap < 2; overlap++) {
                    c.overlap = overlap, c.bucket = 4000;
                    Outcome r = run(c);
                    double diff = 0;
                    for (size_t i = 0; i < one.n; i++) {
                        double d = (double)r.grads[i] - one.grads[i];
                        diff += d * d;
                    }
                    if (!(sqrt(diff) <= bound) || !(bound < 0.1 * one.norm))
                        fail_msg("%d ranks, micro-batches of %zu: gradients differ by %g, bound %g, norm %g", c.ranks,
                                 c.micro, sqrt(diff), bound, one.norm);
                    assert_true(fabs(r.loss - one.loss) <= terms * FLT_EPSILON * one.loss);
                    release(&r);
                }
        release(&one);
    }
}

// Accumulation or not, 2 (N - 1) / N of the gradients go out once a step, in as many calls as there are buckets.
static void test_traffic(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        for (size_t micro = 0; micro < 2; micro++) {
            Case c = {.ranks = ranks, .shape = &gpt, .samples = SAMPLES, .micro = micro, .overlap = true,
                      .bucket = 1, .optim = OPTIM_SGD, .steps = STEPS};
            Outcome units = run(c);
            assert_int_equal(units.calls, STEPS * (gpt.layers + 2)); // each unit alone
            c.bucket = 1 << 30;
            Outcome all = run(c);
            assert_int_equal(all.calls, STEPS);
            c.overlap = false;
            Outcome naive = run(c);
            assert_int_equal(naive.calls, STEPS);
            assert_int_equal(naive.sent, all.sent);
            size_t left = all.n % (size_t)ranks; // comm_even: the first ranks' shards have an element more
            double exact = STEPS * 2.0 * 4 * (double)all.n * (ranks - 1) / ranks;
            assert_true(left ? fabs((double)all.sent - exact) < STEPS * 2.0 * 4 : (double)all.sent == exact);
            release(&units), release(&all), release(&naive);
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
static void test_share(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share), // forks: before OpenMP has threads
        cmocka_unit_test(test_deterministic_ranks_are_one),
        cmocka_unit_test(test_fast_ranks_are_close),
        cmocka_unit_test(test_traffic),
    };
    return cmocka_run_group_tests_name("ddp", tests, NULL, NULL);
}
