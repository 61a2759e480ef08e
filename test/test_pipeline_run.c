// test_pipeline_run: models on 2, 3 and 4 stages, played by threads, against one rank, for every schedule: loss, every
// gradient, evaluation and sampling; bit for bit on a deterministic device.
#include "pipeline_run.h"

static const struct {
    const char *schedule;
    int p, v;
    size_t samples, micro;
} layouts[] = {
    {"gpipe", 2, 0, 8, 2},       {"1f1b", 2, 0, 8, 2},   {"1f1b", 4, 0, 8, 2},  {"1f1b", 3, 0, 8, 2},
    {"interleaved", 2, 2, 8, 2}, {"interleaved", 4, 2, 8, 2}, {"interleaved", 2, 3, 8, 1},
    {"zb-h1", 2, 0, 8, 2},       {"zb-h1", 3, 0, 8, 1},  {"zb-v", 2, 0, 8, 2},  {"zb-v", 4, 0, 8, 1},
    {"zb-v", 3, 0, 8, 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void must_be_same(const Case *c, const Outcome *r, const Outcome *one)
{
    Params params;
    Unit *unit;
    if (same(r, one)) return;
    model_describe(c->shape, &params, &unit);
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i];
        double d = apart(r->grads + row->offset, one->grads + row->offset, row->n_elems);
        if (d != 0) print_message("%s: %g apart\n", row->name, d);
    }
    fail_msg("%s, %d stages, %d chunks, tp %d, micro %zu, recompute %d: other bits: loss %.17g, one rank %.17g; evaluated "
             "%.17g, %.17g; logits %g, %g", c->schedule, c->p, c->v, c->tp, c->micro, (int)c->recompute.mode, r->loss,
             one->loss, r->eval_loss, one->eval_loss, apart(r->logits[0], one->logits[0], c->shape->vocab),
             apart(r->logits[1], one->logits[1], c->shape->vocab));
}

static void test_deterministic_is_one_rank(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f, .documents = true};
        Outcome one = run(c);
        assert_true(one.loss > 0.1 && one.eval_loss > 0.1);
        for (int k = 0; k < LAYOUTS; k++) {
            c.schedule = layouts[k].schedule, c.p = layouts[k].p, c.v = layouts[k].v;
            c.samples = layouts[k].samples, c.micro = layouts[k].micro;
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deterministic_is_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
