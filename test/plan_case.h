// plan_case: what the tests of build/plan share: a job on so many ranks, numbers beside numbers, the program's JSON.
#ifndef TEST_PLAN_CASE_H
#define TEST_PLAN_CASE_H
#include "dev/plan/plan_job.h"
#include "test/test.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const ModelShape gpt2_124m = {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64,
                                     .ffn = 3072, .vocab = 50257, .context = 1024, .bias = true, .tie = true};

// Of whole sequences in 2 bytes, without recomputation.
static inline PlanJob plan_job(const ModelShape *s, const char *machine, long batch, int dp, int tp, int cp, int pp)
{
    PlanJob job = {.shape = *s, .T = s->context, .batch = batch, .x_bytes = 2, .machine = machines_find(machine),
                   .layout = plan_layout_default()};
    PlanLayout *l = &job.layout;
    l->dp = dp, l->tp = tp, l->cp = cp, l->pp = pp, l->gpus = dp * tp * cp * pp, l->recompute = RECOMPUTE_NONE;
    return job;
}

// The same with a pipeline of so many chunks a stage.
static inline PlanJob plan_job_chunks(PlanJob job, int chunks)
{
    job.layout.chunks = chunks;
    job.layout.schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    return job;
}

// a is b within a part `by`.
static inline void near(double a, double b, double by)
{
    if (!(fabs(a - b) <= by * fabs(b))) fail_msg("%.15g is not %.15g within %g", a, b, by);
}

static inline double number(json_t *root, const char *section, const char *key)
{
    json_t *value = json_object_get(json_object_get(root, section), key);
    if (!json_is_number(value)) fail_msg("%s, %s is no number", section, key);
    return json_number_value(value);
}

#ifdef PROGRAM
#include "program.h"

// The program's whole output parsed; the caller frees it.
static inline json_t *json_of(const char *arguments)
{
    json_error_t error;
    if (run(arguments)) fail_msg("%s: %s", arguments, output);
    json_t *root = json_loads(output, JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("%s: %s in %s", arguments, error.text, output);
    return root;
}

// One number of it.
static inline double number_of(const char *arguments, const char *section, const char *key)
{
    json_t *root = json_of(arguments);
    double value = number(root, section, key);
    json_decref(root);
    return value;
}
#endif
#endif
