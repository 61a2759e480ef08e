// test_pipeline_run: models on 1 to 4 stages (threads) against one rank, for every schedule: loss, every gradient,
// evaluation and sampling; bit for bit on a deterministic device, otherwise within the bound for another order of sums.
#include "pipeline_run.h"
#include "temp_dir.h"

#include <unistd.h>

static void must_be_same(const Case *c, const Outcome *r, const Outcome *one)
{
    Params params;
    Unit *unit;
    if (same(r, one)) return;
    model_describe(c->shape, &params, &unit);
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i];
        double d = apart(r->grads + row->offset, one->grads + row->offset, row->n_elems);
        if (!(d == 0)) print_message("%s: %g apart\n", row->name, d);
    }
    fail_msg("%s, %d stages, %d chunks, tp %d, sp %d, micro %zu, recompute %d: other bits: loss %.17g, one rank %.17g; "
             "evaluated %.17g, %.17g; logits %g, %g", c->schedule, c->p, c->v, c->tp, c->sequence, c->micro,
             (int)c->recompute.mode, r->loss, one->loss, r->eval_loss, one->eval_loss,
             apart(r->logits[0], one->logits[0], c->shape->vocab),
             apart(r->logits[1], one->logits[1], c->shape->vocab));
}

// ---- bit for bit

static void test_deterministic_is_one_rank(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f, .documents = true};
        Outcome one = run(c);
        assert_true(one.loss > 0.1 && one.eval_loss > 0.1);
        for (int k = 0; k < LAYOUTS; k++) {
            lay_out(&c, k);
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

// Tensor and sequence parallelism inside: 2 stages of 2 ranks.
static void test_tensor_parallel_inside(void **state)
{
    (void)state;
    const char *const schedules[] = {"1f1b", "interleaved", "v-half"};
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f, .documents = true};
        Outcome one = run(c);
        for (int k = 0; k < 6; k++) {
            c.schedule = schedules[k / 2], c.p = 2, c.tp = 2, c.sequence = k % 2;
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

// Context parallelism inside, where its sums have the order of one rank: 2 stages of 2 ranks, and of 2 x 2.
static void test_context_parallel_inside(void **state)
{
    (void)state;
    const char *const schedules[] = {"1f1b", "interleaved", "zb-v"};
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .blocks = true, .dropout = 0.2f,
                  .documents = true};
        Outcome one = run(c);
        for (int k = 0; k < 6; k++) {
            c.schedule = schedules[k % 3], c.p = 2, c.cp = 2, c.tp = 1 + k / 3, c.sequence = k / 3;
            c.recompute.mode = k % 2 ? RECOMPUTE_SELECTIVE : RECOMPUTE_FULL;
            Outcome r = run(c);
            memcpy(r.losses, one.losses, sizeof r.losses); // each rank has its own tokens'
            must_be_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

// What is kept between F, B and W in another form, or made again, is the same; and a second step is like the first.
static void test_recomputation(void **state)
{
    (void)state;
    const char *const schedules[] = {"gpipe", "interleaved", "zb-h1", "v-min"};
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f};
        Outcome one = run(c);
        for (int k = 0; k < 16; k++) {
            c.schedule = schedules[k % 4], c.p = 2, c.tp = k >= 12 ? 2 : 1, c.sequence = k >= 12;
            c.recompute = (RecomputePolicy){.mode = (RecomputeMode)(1 + k / 4 % 4), .every = 2};
            c.steps = 1 + (k < 4);
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
        }
        c = (Case){.shape = families[f], .micro = 2, .deterministic = true, .recompute = {.compress = true}};
        Outcome packed = run(c);
        for (int k = 0; k < 8; k++) {
            lay_out(&c, 4 + k), c.recompute.mode = k % 2 ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
            if (k == 1) {
                release(&packed);
                c.schedule = NULL, c.p = 0;
                packed = run(c);
                lay_out(&c, 4 + k);
            }
            if (k % 2 != 1 && k > 0) continue;
            Outcome r = run(c);
            must_be_same(&c, &r, &packed);
            release(&r);
        }
        release(&packed);
        release(&one);
    }
}

// ---- a table of one's own

// 1f1b upside down: the first piece is on the last stage.
static PipelineTable *upside_down(int p, int m)
{
    PipelineTable *t = pipeline_table_new(PIPELINE_USER, p, m, 1, false);
    PipelineTable *like = pipeline_table_make(PIPELINE_1F1B, p, m, 1);
    for (int s = 0; s < p; s++) {
        t->piece[s][0] = p - 1 - s;
        for (int i = 0; i < like->n[p - 1 - s]; i++) {
            PipelineAction a = like->action[p - 1 - s][i];
            pipeline_table_add(t, s, a.op, a.micro, 0);
        }
    }
    pipeline_table_free(like);
    return t;
}

// Everything in turn: F of all, B of all, W of all; the pieces of stage 0 are the middle two, or the outer two.
static PipelineTable *in_turn(int m, bool outer)
{
    PipelineTable *t = pipeline_table_new(PIPELINE_USER, 2, m, 2, true);
    const int piece[2][2] = {{1, 2}, {0, 3}};
    for (int s = 0; s < 2; s++) {
        for (int c = 0; c < 2; c++) t->piece[s][c] = piece[outer ? 1 - s : s][1 - c]; // the later piece is chunk 0
        for (int op = 0; op < PIPELINE_OPS; op++)
            for (int c = 0; c < 2; c++)
                for (int k = 0; k < m; k++) pipeline_table_add(t, s, (PipelineOp)op, k, op == PIPELINE_F ? 1 - c : c);
    }
    return t;
}

static void test_own_tables(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f};
        Outcome one = run(c);
        for (int k = 0; k < 3; k++) {
            PipelineTable *t = k == 0 ? upside_down(3, 4) : in_turn(4, k == 2);
            c.schedule = in_dir("table.csv"), c.p = t->p;
            pipeline_table_write(t, c.schedule);
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
            pipeline_table_free(t);
        }
        release(&one);
    }
}

// ---- within the bound

// Sum over the tokens of the norm of their gradients of embedding and head, which are two tensors here.
static double tied_terms(const Case *c)
{
    double sum = 0;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    ModelShape twin = *c->shape;
    twin.tie = false;
    Model *m = model_allocate(&twin, dev, &mem, 1, T, true);
    params_init(&m->params, 1, m->weights);
    make_lively(m);
    const Param *embed = &m->params.row[params_find(&m->params, "embed.tokens.weight")];
    const Param *head = &m->params.row[params_find(&m->params, "head.weight")];
    memcpy(m->weights + head->offset, m->weights + embed->offset, embed->n_elems * sizeof(float));
    Data d;
    float losses[SAMPLES * T];
    Case one = *c;
    one.samples = 8, one.micro = 1;
    make_data(&d, &one, losses);
    for (int i = 0; i < d.m; i++)
        for (size_t t = 0; t < T; t++) {
            const PipelineMicro *b = &d.micro[i];
            int32_t target[T]; // the gradient of one token's loss
            for (size_t s = 0; s < T; s++) target[s] = s == t ? b->target[s] : -1;
            dev->zero(dev, m->grads, m->params.n_elems * sizeof(float));
            model_set_batch(m, b->token, NULL, target, 1, T);
            if (b->first) model_set_documents(m, b->first);
            model_set_dropout(m, b->dropout, b->seed, b->step, b->sample);
            model_forward_backward(m, 1 / (float)d.valid);
            sum += sqrt(dev->sum_squares(dev, m->grads + embed->offset, embed->n_elems));
            sum += sqrt(dev->sum_squares(dev, m->grads + head->offset, head->n_elems));
        }
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    return sum;
}

// A pipeline runs each chunk's micro-batches in order, as one rank does, so without determinism too nothing differs but
// one sum: the gradient of a tied embedding. One rank adds that of the head and of the embedding in turn, micro-batch
// by micro-batch; here the head's are added apart. Both add the same terms t, a token's part of either, in some
// order, so they differ by at most 2 gamma(n) sum |t|, gamma(n) = n u / (1 - n u), u = 2^-24, n additions (Higham,
// Accuracy and Stability, section 4.2): two for each token, and those of the micro-batches' sums. The same in norms.
static void test_fast_is_close(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        for (int k = 0; k < LAYOUTS; k++) {
            Case c = {.shape = families[f], .dropout = 0.2f, .documents = true, .micro = layouts[k].micro};
            Outcome one = run(c);
            size_t tokens = c.shape->tie ? c.shape->vocab * c.shape->channels : 0; // elements of the first tensor
            double u = FLT_EPSILON / 2, n = 2 * 8 * T + 2 * (double)(8 / c.micro), norm = 0;
            double bound = tokens ? 2 * n * u / (1 - n * u) * tied_terms(&c) : 0;
            lay_out(&c, k);
            c.steps = 2;
            Outcome r = run(c);
            double d = apart(r.grads, one.grads, tokens);
            for (size_t i = 0; i < tokens; i++) norm += (double)one.grads[i] * one.grads[i];
            if (!(d <= bound)) fail_msg("%s: the tied tensor is %g apart, bound %g", c.schedule, d, bound);
            assert_true(bound <= 1e-3 * sqrt(norm)); // a micro-batch less would be seen
            memcpy(r.grads, one.grads, tokens * sizeof(float));
            must_be_same(&c, &r, &one);
            release(&r);
            release(&one);
        }
    }
}

// Storage in 16 bits: messages carry what a stream holds anyway, so nothing is rounded that was not.
static void test_narrow(void **state)
{
    (void)state;
    Case c = {.shape = &llama, .micro = 2, .x_type = X_BF16};
    Outcome one = run(c);
    for (int k = 0; k < LAYOUTS; k += 3) {
        c.micro = 2;
        lay_out(&c, k);
        if (c.micro != 2) continue;
        Outcome r = run(c);
        must_be_same(&c, &r, &one);
        release(&r);
    }
    release(&one);
}

// Micro-batches in any order: the same terms in another order of sums.
static void test_any_order(void **state)
{
    (void)state;
    PipelineTable *t = pipeline_table_make(PIPELINE_GPIPE, 2, 4, 1);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 4; i++) t->action[s][4 + i].micro = 3 - i; // as in GPipe's figure
    Case c = {.shape = &llama, .micro = 2};
    Outcome one = run(c);
    c.table = t, c.p = 2;
    Outcome r = run(c);
    assert_true(r.loss == one.loss || fabs(r.loss - one.loss) <= 16 * DBL_EPSILON * one.loss);
    assert_memory_equal(r.losses, one.losses, sizeof r.losses);
    double d = apart(r.grads, one.grads, one.n);
    // three additions of four gradients g, of each of which a quarter of the tokens is a part: gamma(3) sum |g| twice
    assert_true(d <= 2 * 4 * (FLT_EPSILON / 2) * one.micro_norms);
    pipeline_table_free(t);
    release(&r);
    release(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deterministic_is_one_rank), cmocka_unit_test(test_tensor_parallel_inside),
        cmocka_unit_test(test_context_parallel_inside),   cmocka_unit_test(test_recomputation),
        IN_DIR(test_own_tables),
        cmocka_unit_test(test_fast_is_close),             cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
