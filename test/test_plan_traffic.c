// test_plan_traffic: the plan's bytes of tensor parallelism against what threads count when they run the model, for
// layouts drawn at random; those of context, pipeline and data parallelism against the formulas and tables of their
// modules; and seconds against the alpha-beta model by hand. (test_plan_replicas does the first for data parallelism.)
#include "tp_case.h"

#include "comm/collectives.h"
#include "parallel/cp.h"
#include "parallel/pipeline_check.h"
#include "dev/plan/plan_traffic.h"
#include "base/rng.h"
#include "dev/plan/roofline.h"

static PlanJob job_of(const ModelShape *shape, size_t tokens, int tp, int pp, int cp, int dp)
{
    PlanJob job = {.shape = *shape, .T = tokens, .batch = dp, .x_bytes = 4, .machine = machines_find("A100-80"),
                   .layout = plan_layout_default()};
    job.layout.tp = tp, job.layout.pp = pp, job.layout.cp = cp, job.layout.dp = dp, job.layout.gpus = tp * pp * cp * dp;
    job.layout.recompute = RECOMPUTE_NONE;
    return job;
}

static size_t sent(const PlanTraffic *t, const char *group, CommKind kind)
{
    size_t sum = 0;
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->flow[i].group, group) && t->flow[i].kind == kind) sum += t->flow[i].all;
    return sum;
}

// A step of SAMPLES sequences in micro-batches, on ranks of one tp group. To the byte.
static void test_tensor_bytes_are_counted(void **state)
{
    (void)state;
    const ModelShape *const shapes[] = {&gpt, &llama, &wide, &biased};
    const RecomputeMode modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_SQRT, RECOMPUTE_FULL};
    Rng rng = rng_make(7, "layouts", 0);
    for (uint64_t i = 0; i < 40; i++) {
        const ModelShape *s = shapes[rng_below(rng, 4 * i, 4)];
        int ranks = rng_below(rng, 4 * i + 1, 2) ? 2 : s == &wide ? 8 : 4;
        size_t micro = (size_t)1 << rng_below(rng, 4 * i + 2, 3);
        ModelShape deep = *s;
        deep.layers = 1 + i % 4;
        Case c = {.shape = &deep, .ranks = ranks, .micro = micro, .sequence = rng_below(rng, 4 * i + 3, 2),
                  .recompute = {.mode = modes[i % 4]}};
        Outcome r = run(c);
        PlanJob job = job_of(&deep, T, ranks, 1, 1, 1);
        job.batch = SAMPLES, job.layout.micro = (long)micro, job.layout.sp = c.sequence;
        job.layout.recompute = modes[i % 4];
        PlanTraffic t = plan_traffic(&job);
        for (int k = 0; k < COMM_KINDS; k++) {
            if (sent(&t, "tp", (CommKind)k) != r.count[k].sent)
                fail_msg("layout %d: %d ranks, %zu layers, micro %zu, %s, mode %d: %s: planned %zu, counted %zu",
                         (int)i,
                         ranks, deep.layers, micro, c.sequence ? "sp" : "no sp", (int)modes[i % 4],
                         comm_kind_name((CommKind)k), sent(&t, "tp", (CommKind)k), r.count[k].sent);
        }
        release(&r);
    }
}

// In two bytes, on several replicas: the streams halve, the numbers of the loss stay fp32, and replicas add up.
static void test_tensor_bytes_scale(void **state)
{
    (void)state;
    PlanJob one = job_of(&gpt, T, 2, 1, 1, 1), two = job_of(&gpt, T, 2, 1, 1, 2);
    PlanTraffic a = plan_traffic(&one), b = plan_traffic(&two);
    assert_int_equal(2 * sent(&a, "tp", COMM_ALL_REDUCE), sent(&b, "tp", COMM_ALL_REDUCE));
    one.x_bytes = 2;
    PlanTraffic c = plan_traffic(&one);
    size_t numbers = 2 * 12 * T; // 2 (p - 1) of three fp32 numbers a token
    assert_int_equal(2 * (sent(&c, "tp", COMM_ALL_REDUCE) - numbers), sent(&a, "tp", COMM_ALL_REDUCE) - numbers);
}

// ---- cp, pp, dp against their modules

static void test_context_bytes(void **state)
{
    (void)state;
    for (int cp = 2; cp <= 4; cp *= 2) {
        PlanJob job = job_of(&llama, 64, 1, 1, cp, 1);
        job.batch = 6, job.layout.micro = 2;
        PlanTraffic t = plan_traffic(&job);
        size_t each = cp_bytes(cp, 4, 2, 64, 2, 6, false) + cp_bytes(cp, 4, 2, 64, 2, 6, true);
        assert_int_equal(sent(&t, "cp", COMM_SEND), (size_t)cp * 3 * llama.layers * each);
        assert_true(sent(&t, "dp", COMM_ALL_REDUCE) > 0); // the ranks of a sequence are replicas too
    }
}

// What the schedules' own tables send, times a stream.
static void test_pipeline_bytes(void **state)
{
    (void)state;
    const struct {
        PipelineSchedule schedule;
        int p, m, v;
    } cases[] = {{PIPELINE_GPIPE, 4, 6, 1}, {PIPELINE_1F1B, 3, 5, 1}, {PIPELINE_INTERLEAVED, 2, 4, 3},
                 {PIPELINE_ZB_H1, 4, 8, 1}, {PIPELINE_ZB_V, 3, 8, 2}, {PIPELINE_V_MIN, 3, 8, 2}};
    for (int i = 0; i < 6; i++) {
        ModelShape s = gpt;
        s.layers = 12;
        PlanJob job = job_of(&s, T, 2, cases[i].p, 1, 1);
        job.batch = cases[i].m, job.layout.schedule = cases[i].schedule, job.layout.chunks = cases[i].v;
        job.layout.scatter = false;
        char why[400];
        assert_int_equal(plan_layout_check(&job, false, why, sizeof why), PLAN_LAYOUT_FITS);
        PipelineTable *table = pipeline_table_make(cases[i].schedule, cases[i].p, cases[i].m, cases[i].v);
        PipelineProof proof;
        assert_true(pipeline_check(table, &proof, why, sizeof why));
        size_t sends = 0;
        for (int stage = 0; stage < cases[i].p; stage++) sends += (size_t)proof.sent[stage];
        PlanTraffic t = plan_traffic(&job);
        // both tp ranks, each a whole stream
        assert_int_equal(sent(&t, "pp", COMM_SEND), 2 * sends * 4 * T * s.channels);
        job.layout.scatter = true;
        PlanTraffic shared = plan_traffic(&job);
        assert_int_equal(2 * sent(&shared, "pp", COMM_SEND), sent(&t, "pp", COMM_SEND));
        pipeline_table_free(table);
    }
}

// All-reduce of all gradients: 2 (N - 1) times the parameters that the stages and parts hold. A tied head's copy on
// the last stage is none: its gradient goes to the first, and the weights come back.
static void test_replica_bytes(void **state)
{
    (void)state;
    for (int pp = 1; pp <= 2; pp++) {
        for (int tp = 1; tp <= 4; tp *= 2) {
            PlanJob job = job_of(&gpt, T, tp, pp, 1, 3);
            job.batch = 3 * pp;
            size_t held = 0;
            for (int r = 0; r < tp; r++) {
                Params params;
                Unit *unit;
                ModelShape part = tp_shape(&gpt, r, tp, false);
                model_describe(&part, &params, &unit);
                held += params.n_elems;
                free(unit);
                params_free(&params);
            }
            PlanTraffic t = plan_traffic(&job);
            assert_int_equal(sent(&t, "dp", COMM_ALL_REDUCE), 2 * 2 * 4 * held);
            assert_int_equal(sent(&t, "ends", COMM_SEND), pp > 1 ? 3 * gpt.vocab * gpt.channels * (4 + 4) : 0);
        }
    }
}

// ---- seconds

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * fabs(b))) fail_msg("%.15g is not %.15g", a, b);
}

static void test_seconds_by_hand(void **state)
{
    (void)state;
    PlanJob job = job_of(&wide, 64, 8, 1, 1, 16);
    RooflineConstants k = roofline_constants();
    PlanGroup tp = plan_traffic_group(&job, MESH_TP), dp = plan_traffic_group(&job, MESH_REPLICAS);
    assert_int_equal(tp.inside, 8);
    assert_int_equal(dp.inside, 1); // each node is one model
    assert_int_equal(dp.size, 16);
    const char *way;
    // A ring of 8 in the node: 2 * 7 steps, 7/8 of the bytes twice.
    near(plan_traffic_seconds(&tp, COMM_ALL_REDUCE, 8e8, &way), 14 * 1.5e-6 + 2 * 0.875 * 8e8 / (300e9 * k.inside));
    assert_string_equal(way, "ring");
    // 16 ranks with a card each: halving has 2 * 4 messages, and the ring's bytes.
    near(plan_traffic_seconds(&dp, COMM_ALL_REDUCE, 8e8, &way), 8 * 5e-6 + 2 * (15 / 16.0) * 8e8 / (25e9 * k.between));
    assert_string_equal(way, "halving");
    // All 8 of each of two nodes are replicas: 8 cards between the nodes, as a ring or by the hierarchy.
    PlanJob flat = job_of(&wide, 64, 1, 1, 1, 16);
    PlanGroup g = plan_traffic_group(&flat, MESH_REPLICAS);
    assert_int_equal(g.inside, 8);
    double ring = 30 * 5e-6 + 2 * (15 / 16.0) * 8e8 / (8 * 25e9 * k.between);
    double tiers = 2 * (7 * 1.5e-6 + 0.875 * 8e8 / (300e9 * k.inside)) + 2 * 5e-6 + 1e8 / (25e9 * k.between);
    near(plan_traffic_seconds(&g, COMM_ALL_REDUCE, 8e8, &way), fmin(ring, tiers));
    assert_true(ring < tiers);
    // A few bytes: the fewest messages win.
    near(plan_traffic_seconds(&dp, COMM_ALL_REDUCE, 16, &way), 8 * 5e-6 + 2 * (15 / 16.0) * 16 / (25e9 * k.between));
    assert_true(plan_traffic_seconds(&tp, COMM_ALL_REDUCE, 0, NULL) == 0);
}

static void test_groups_on_nodes(void **state)
{
    (void)state;
    PlanJob job = job_of(&wide, 64, 2, 2, 1, 4); // two models a node
    assert_int_equal(plan_traffic_group(&job, MESH_PP).inside, 2);
    assert_int_equal(plan_traffic_group(&job, MESH_REPLICAS).inside, 2);
    job = job_of(&wide, 64, 8, 2, 1, 4);
    assert_int_equal(plan_traffic_group(&job, MESH_PP).inside, 1);
    job = job_of(&wide, 64, 2, 1, 4, 2); // a model and its sequence fill the node
    assert_int_equal(plan_traffic_group(&job, MESH_CP).inside, 4);
    assert_int_equal(plan_traffic_group(&job, MESH_REPLICAS).inside, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_bytes_are_counted), cmocka_unit_test(test_tensor_bytes_scale),
        cmocka_unit_test(test_context_bytes),            cmocka_unit_test(test_pipeline_bytes),
        cmocka_unit_test(test_replica_bytes),            cmocka_unit_test(test_seconds_by_hand),
        cmocka_unit_test(test_groups_on_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
