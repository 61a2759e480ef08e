// test_plan_layout: parts of a layout add up to the whole model; what a rank holds falls as it should; every refusal.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pipeline_check.h"
#include "plan_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ModelShape llama = {.layers = 80, .channels = 8192, .heads = 64, .kv_heads = 8, .head_size = 128,
                                 .ffn = 28672,
                                 .vocab = 32000, .context = 4096, .norm = NORM_RMSNORM, .swiglu = true, .rope = true};
static const ModelShape gpt = {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64, .ffn = 3072,
                               .vocab = 50257, .context = 1024, .bias = true, .tie = true};

static PlanJob job_of(const ModelShape *s, int dp, int tp, int pp, int chunks)
{
    PlanJob job = {.shape = *s, .T = s->context, .batch = 64, .x_bytes = 2, .machine = machines_find("A100-80"),
                   .layout = plan_layout_default()};
    PlanLayout *l = &job.layout;
    l->dp = dp, l->tp = tp, l->pp = pp, l->chunks = chunks, l->gpus = dp * tp * pp;
    l->schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    return job;
}

static size_t whole(const ModelShape *s)
{
    Params params;
    Unit *unit;
    model_describe(s, &params, &unit);
    size_t n = params.n_elems;
    free(unit);
    params_free(&params);
    return n;
}

// Stages have all layers and units between them, whatever is left over.
static void test_stages_add_up(void **state)
{
    (void)state;
    const struct {
        size_t layers;
        int pp, chunks;
    } cases[] = {{80, 4, 5}, {126, 16, 1}, {126, 16, 4}, {79, 8, 1}, {12, 2, 3}, {7, 2, 1}};
    for (int i = 0; i < 6; i++) {
        for (int tie = 0; tie < 2; tie++) {
            ModelShape s = llama;
            s.layers = cases[i].layers, s.tie = tie;
            PlanJob job = job_of(&s, 1, 1, cases[i].pp, cases[i].chunks);
            char why[400] = "";
            if (plan_layout_check(&job, false, why, sizeof why)) fail_msg("%s", why);
            size_t layers = 0, params = 0;
            for (int stage = 0; stage < cases[i].pp; stage++) {
                layers += plan_layout_layers(&job, stage), params += plan_layout_params(&job, stage);
                assert_true(plan_layout_layers(&job, stage) + 1 >= plan_layout_chunk(&job) * (size_t)cases[i].chunks);
            }
            assert_int_equal(layers, s.layers);
            // a copy of the embedding at the end
            assert_int_equal(params, whole(&s) + (tie ? s.vocab * s.channels : 0));
        }
    }
    PlanJob one = job_of(&gpt, 1, 1, 1, 1);
    assert_int_equal(plan_layout_params(&one, 0), 124439808); // GPT-2's, and once
}

// What is held in flight is what the schedules' proofs count.
static void test_held_is_proved(void **state)
{
    (void)state;
    const PipelineSchedule schedules[] = {PIPELINE_GPIPE, PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZB_H1,
                                          PIPELINE_ZB_V};
    for (int i = 0; i < 5; i++) {
        int v = schedules[i] == PIPELINE_INTERLEAVED ? 3 : schedules[i] == PIPELINE_ZB_V ? 2 : 1;
        PlanJob job = job_of(&gpt, 1, 1, 4, v);
        job.batch = 8, job.layout.schedule = schedules[i];
        PipelineTable *t = pipeline_table_make(schedules[i], 4, 8, v);
        PipelineProof proof;
        char why[200];
        assert_true(pipeline_check(t, &proof, why, sizeof why));
        int most = 0;
        for (int stage = 0; stage < 4; stage++) {
            int n = t->split ? proof.held[stage] : proof.active[stage];
            most = n > most ? n : most;
        }
        if (!(fabs(plan_layout_held(&job) - (double)most / v) <= 1e-12))
            fail_msg("%s: %g, proved %g", pipeline_table_name(schedules[i]), plan_layout_held(&job), (double)most / v);
        pipeline_table_free(t);
    }
}

// bf16 with AdamW: 18 bytes a parameter, less by each stage of ZeRO; activations shrink with tp, and stages hold fewer.
static void test_bytes(void **state)
{
    (void)state;
    double P = (double)whole(&llama), N = 64;
    const double state_bytes[] = {18 * P, 6 * P + 12 * P / N, 2 * P + 16 * P / N, 18 * P / N};
    for (int zero = 0; zero < 4; zero++) {
        PlanJob job = job_of(&llama, 64, 1, 1, 1);
        job.layout.zero = zero;
        PlanBytes b = plan_layout_bytes(&job);
        double sum = b.parameters + b.gradients + b.optimizer;
        assert_true(fabs(sum - state_bytes[zero]) <= 1e-9 * sum);
        assert_true((b.gathered > 0) == (zero >= 2));
        assert_true(fabs(b.total - (sum + b.activations + b.scratch + b.gathered)) <= 1e-9 * b.total);
    }
    PlanJob one = job_of(&llama, 1, 1, 1, 1), eight = job_of(&llama, 1, 8, 1, 1), stages = job_of(&llama, 1, 1, 8, 1);
    eight.layout.sp = true;
    PlanBytes a = plan_layout_bytes(&one), b = plan_layout_bytes(&eight), c = plan_layout_bytes(&stages);
    assert_true(b.activations < a.activations / 6 && b.activations > a.activations / 8.5);
    assert_true(fabs(c.activations / a.activations - 1) < 0.05); // 1f1b: 1/8 of the layers, 8 micro-batches
    one.layout.recompute = RECOMPUTE_NONE;
    PlanBytes none = plan_layout_bytes(&one);
    one.layout.recompute = RECOMPUTE_FULL;
    PlanBytes full = plan_layout_bytes(&one);
    assert_true(full.activations < a.activations && a.activations < none.activations);
    one.layout.recompute = RECOMPUTE_NONE, one.layout.eager = true;
    assert_true(plan_layout_bytes(&one).activations > 1.3 * none.activations);
}

// ---- refusals

static void refused(PlanJob job, PlanLayoutReason reason, const char *words)
{
    char why[400] = "";
    PlanLayoutReason got = plan_layout_check(&job, true, why, sizeof why);
    if (got != reason || !strstr(why, words)) fail_msg("'%s' (%s), expected '%s'", why, plan_layout_reason(got), words);
    assert_null(strchr(why, '\n'));
}

static void test_refusals(void **state)
{
    (void)state;
    PlanJob job = job_of(&llama, 8, 3, 1, 1);
    refused(job, PLAN_LAYOUT_HEADS, "--tp 3");
    job = job_of(&llama, 8, 8, 1, 1), job.layout.gpus = 0;
    refused(job, PLAN_LAYOUT_RANKS, "--gpus 0");
    job = job_of(&llama, 8, 8, 3, 1);
    job.shape.layers = 82; // lacks two: allowed
    job.layout.zero = 1;
    refused(job, PLAN_LAYOUT_FITS, "");
    job.shape.layers = 80, job.layout.pp = 7, job.layout.gpus = 8 * 8 * 7;
    refused(job, PLAN_LAYOUT_LAYERS, "--pp 7"); // 12 * 7 = 84 lacks four
    job = job_of(&llama, 8, 8, 1, 1), job.layout.cp = 3, job.layout.gpus *= 3;
    refused(job, PLAN_LAYOUT_SEQUENCE, "--cp 3");
    job = job_of(&llama, 8, 8, 1, 1), job.layout.sp = true, job.T = 4100;
    refused(job, PLAN_LAYOUT_SEQUENCE, "--sp");
    job = job_of(&llama, 7, 8, 1, 1);
    refused(job, PLAN_LAYOUT_BATCH, "--batch 64");
    job = job_of(&llama, 8, 8, 4, 1), job.layout.zero = 2;
    refused(job, PLAN_LAYOUT_ZERO, "--zero 2 with --pp 4");
    job = job_of(&llama, 32, 1, 4, 2);
    refused(job, PLAN_LAYOUT_SCHEDULE, "interleaved: 2 micro-batches");
    job = job_of(&llama, 8, 8, 4, 1), job.layout.chunks = 2, job.layout.schedule = PIPELINE_1F1B;
    refused(job, PLAN_LAYOUT_SCHEDULE, "--vpp 2");
    job = job_of(&llama, 8, 8, 1, 1), job.layout.chunks = 2, job.layout.schedule = PIPELINE_INTERLEAVED;
    refused(job, PLAN_LAYOUT_SCHEDULE, "chunks are of a pipeline");
    job = job_of(&llama, 8, 1, 1, 1);
    refused(job, PLAN_LAYOUT_MEMORY, "A100-80 has 80");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stages_add_up), cmocka_unit_test(test_held_is_proved),
                                       cmocka_unit_test(test_bytes), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
