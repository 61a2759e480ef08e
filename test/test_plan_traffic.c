// test_plan_traffic: the plan's bytes of context and pipeline parallelism and of experts against the formulas and
// tables of their modules; and seconds against the alpha-beta model by hand. (What runs send:
// test_layouts.)
#include "plan_case.h"

#include "base/rng.h"
#include "comm/collectives.h"
#include "dev/plan/plan_job.h"
#include "parallel/cp.h"
#include "parallel/pipeline_check.h"

enum { T = 8 };

static const ModelShape gpt = { // a vocabulary that no number of ranks divides
    .layers = 2, .channels = 12, .heads = 4, .kv_heads = 4, .head_size = 4, .ffn = 24, .vocab = 31, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = { // 4 ranks: two of them to a key/value head
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 33, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};
static const ModelShape wide = { // for 8 ranks
    .layers = 1, .channels = 10, .heads = 8, .kv_heads = 8, .head_size = 2, .ffn = 16, .vocab = 53, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};

static PlanJob job_of(const ModelShape *shape, size_t tokens, int tp, int pp, int cp, int dp)
{
    PlanJob job = plan_job(shape, "A100-80", dp, dp, tp, cp, pp);
    job.T = tokens, job.x_bytes = 4;
    return job;
}

static size_t sent(const PlanTraffic *t, const char *group, CommKind kind)
{
    size_t sum = 0;
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->flow[i].group, group) && t->flow[i].kind == kind) sum += t->flow[i].all;
    return sum;
}

// ---- cp, pp, dp against their modules

TEST(test_context_bytes)
{
    for (int cp = 2; cp <= 4; cp *= 2) {
        PlanJob job = job_of(&llama, 64, 1, 1, cp, 1);
        job.batch = 6, job.layout.micro = 2;
        PlanTraffic t = plan_traffic(&job);
        size_t each = cp_bytes(cp, 4, 2, 64, 2, 6, false) + cp_bytes(cp, 4, 2, 64, 2, 6, true);
        assert_int_equal(sent(&t, "cp", COMM_SEND), (size_t)cp * 3 * llama.layers * each);
        size_t again = cp_bytes(cp, 4, 2, 64, 2, 6, false) * (llama.layers - 1); // all but the last block
        job.layout.recompute = RECOMPUTE_ATTENTION;
        PlanTraffic more = plan_traffic(&job);
        assert_int_equal(sent(&more, "cp", COMM_SEND), (size_t)cp * 3 * (llama.layers * each + again));
        assert_true(sent(&t, "dp", COMM_ALL_REDUCE) > 0); // the ranks of a sequence are replicas too
    }
}

// What the schedules' own tables send, times a stream.
TEST(test_pipeline_bytes)
{
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

// ---- experts

// 3 layers, of which the last 2 have experts; 4 replicas of one sequence of 16 tokens a micro-batch, 3 of them.
static PlanJob routed_job(void)
{
    ModelShape s = {.layers = 3, .channels = 12, .heads = 2, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 31,
                    .context = 16, .swiglu = true, .rope = true,
                    .experts = {.n = 8, .k = 2, .ffn = 10, .dense = 1, .every = 1}};
    PlanJob job = job_of(&s, 16, 1, 1, 1, 4);
    job.batch = 12, job.layout.ep = 4;
    return job;
}

// A rank sends 32 rows of 48 bytes, their weights, or the numbers of rows of 8 experts; 3/4 of them to others.
TEST(test_expert_bytes_by_hand)
{
    PlanJob job = routed_job();
    PlanTraffic t = plan_traffic(&job);
    size_t row = 32 * 48, weights = 32 * 4, numbers = 8 * 4, calls = 4 * 3 * 2; // ranks, micro-batches, layers
    assert_int_equal(sent(&t, "ep", COMM_ALL_TO_ALL), calls * 3 * (4 * row + 2 * weights + 2 * numbers) / 4);
    // of a layer with experts: 4 * 12 * 12 of attention, 2 norms, a router of 8 rows; 3 matrices of each of 2 experts
    size_t attn = 4 * 12 * 12 + 2 * 12, experts = 2 * 3 * 10 * 12;
    size_t P = 2 * 31 * 12 + 12 + 3 * attn + 3 * 20 * 12 + 2 * 8 * 12;
    assert_int_equal(plan_layout_experts(&job, 0), 2 * experts);
    assert_int_equal(plan_layout_params(&job, 0), P + 2 * experts);
    assert_int_equal(sent(&t, "dp", COMM_ALL_REDUCE), 2 * 3 * 4 * P);
    assert_int_equal(sent(&t, "experts", COMM_ALL_REDUCE), 0); // each has its own
    job.layout.ep = 2;
    t = plan_traffic(&job);
    assert_int_equal(sent(&t, "ep", COMM_ALL_TO_ALL), calls * (4 * row + 2 * weights + 2 * numbers) / 2);
    assert_int_equal(sent(&t, "experts", COMM_ALL_REDUCE), 2 * 2 * 1 * 4 * 2 * 2 * experts); // 2 groups of 2 ranks
    // Again: the first of the two layers. The other, the last block of all, is still in memory.
    job.layout.recompute = RECOMPUTE_FULL;
    t = plan_traffic(&job);
    assert_int_equal(sent(&t, "ep", COMM_ALL_TO_ALL),
                     (calls * (4 * row + 2 * weights + 2 * numbers) + 4 * 3 * (row + weights + numbers)) / 2);
    job.layout.recompute = RECOMPUTE_SELECTIVE; // the first of the two sorts its slots again
    t = plan_traffic(&job);
    assert_int_equal(sent(&t, "ep", COMM_ALL_TO_ALL),
                     (calls * (4 * row + 2 * weights + 2 * numbers) + 4 * 3 * numbers) / 2);
}

// tp ranks each send all rows, and have a slice of each expert. cp ranks have a part of each sequence: its rows.
TEST(test_expert_bytes_scale)
{
    PlanJob job = routed_job();
    job.layout.ep = 2;
    PlanTraffic one = plan_traffic(&job);
    size_t experts = plan_layout_experts(&job, 0);
    job.layout.tp = 2, job.layout.gpus = 8;
    PlanTraffic t = plan_traffic(&job);
    assert_int_equal(sent(&t, "ep", COMM_ALL_TO_ALL), 2 * sent(&one, "ep", COMM_ALL_TO_ALL));
    assert_int_equal(sent(&t, "experts", COMM_ALL_REDUCE), sent(&one, "experts", COMM_ALL_REDUCE));
    assert_int_equal(2 * plan_layout_experts(&job, 0), experts);
    job.layout.tp = 1, job.layout.cp = 2, job.layout.dp = 2, job.layout.gpus = 4, job.layout.micro = 2;
    t = plan_traffic(&job);
    assert_int_equal(sent(&t, "ep", COMM_ALL_TO_ALL), sent(&one, "ep", COMM_ALL_TO_ALL));
    assert_int_equal(sent(&t, "experts", COMM_ALL_REDUCE), sent(&one, "experts", COMM_ALL_REDUCE));
    // two sorts of 3 micro-batches' 2 layers; each rank sends the choices and weights of 32 slots
    assert_int_equal(sent(&t, "cp", COMM_ALL_GATHER), 4 * 2 * 3 * 2 * 2 * 4 * 16 * 2);
}

// With backward of weights apart, a block adds the gradients of its two norms twice.
TEST(test_split_blocks_add_twice)
{
    PlanJob job = routed_job();
    job.shape.experts = (ModelExperts){.n = 0}, job.layout.ep = 1;
    job.layout.tp = 2, job.layout.sp = true, job.layout.pp = 3, job.layout.dp = 1, job.layout.gpus = 6;
    PlanTraffic one = plan_traffic(&job);
    job.layout.schedule = PIPELINE_ZB_H1;
    PlanTraffic two = plan_traffic(&job);
    size_t norms = 3 * 2 * 12; // of 3 layers; 12 micro-batches
    assert_int_equal(sent(&two, "tp", COMM_ALL_REDUCE), sent(&one, "tp", COMM_ALL_REDUCE) + 12 * 2 * 4 * norms);
    assert_int_equal(sent(&two, "tp", COMM_ALL_GATHER), sent(&one, "tp", COMM_ALL_GATHER));
}

// ---- seconds

TEST(test_seconds_by_hand)
{
    PlanJob job = job_of(&wide, 64, 8, 1, 1, 16);
    RooflineConstants k = roofline_constants();
    PlanGroup tp = plan_traffic_group(&job, MESH_TP), dp = plan_traffic_group(&job, MESH_REPLICAS);
    assert_int_equal(tp.inside, 8);
    assert_int_equal(dp.inside, 1); // each node is one model
    assert_int_equal(dp.size, 16);
    const char *way;
    // A ring of 8 in the node: 2 * 7 steps, 7/8 of the bytes twice.
    near(plan_traffic_seconds(&tp, COMM_ALL_REDUCE, 8e8, &way),
         14 * 1.5e-6 + 2 * 0.875 * 8e8 / (300e9 * k.inside), 1e-12);
    assert_string_equal(way, "ring");
    // 16 ranks with a card each: halving has 2 * 4 messages, and the ring's bytes.
    near(plan_traffic_seconds(&dp, COMM_ALL_REDUCE, 8e8, &way),
         8 * 5e-6 + 2 * (15 / 16.0) * 8e8 / (25e9 * k.between), 1e-12);
    assert_string_equal(way, "halving");
    // All 8 of each of two nodes are replicas: 8 cards between the nodes, as a ring or by the hierarchy.
    PlanJob flat = job_of(&wide, 64, 1, 1, 1, 16);
    PlanGroup g = plan_traffic_group(&flat, MESH_REPLICAS);
    assert_int_equal(g.inside, 8);
    double ring = 30 * 5e-6 + 2 * (15 / 16.0) * 8e8 / (8 * 25e9 * k.between);
    double tiers = 2 * (7 * 1.5e-6 + 0.875 * 8e8 / (300e9 * k.inside)) + 2 * 5e-6 + 1e8 / (25e9 * k.between);
    near(plan_traffic_seconds(&g, COMM_ALL_REDUCE, 8e8, &way), fmin(ring, tiers), 1e-12);
    assert_true(ring < tiers);
    // A few bytes: the fewest messages win.
    near(plan_traffic_seconds(&dp, COMM_ALL_REDUCE, 16, &way),
         8 * 5e-6 + 2 * (15 / 16.0) * 16 / (25e9 * k.between), 1e-12);
    assert_true(plan_traffic_seconds(&tp, COMM_ALL_REDUCE, 0, NULL) == 0);
}

// Every group of replicas, experts and sequences, on nodes of 8, as the mesh has it: rank 0's members among 8 ranks.
TEST(test_groups_are_the_meshs)
{
    const MeshGroup groups[] = {MESH_EP, MESH_EXPERT_REPLICAS, MESH_REPLICAS, MESH_CP};
    int tried = 0, split = 0;
    for (int i = 0; i < 4 * 4 * 3 * 5 * 8; i++) {
        int tp = 1 << i % 4, cp = 1 << i / 4 % 4, pp = 1 << i / 16 % 3, dp = 1 << i / 48 % 5, ep = 1 << i / 240;
        if (ep > dp * cp) continue;
        PlanJob job = job_of(&wide, 64, tp, pp, cp, dp);
        job.layout.ep = ep;
        MeshShape mesh = mesh_shape(job.layout.gpus, pp, cp, ep, tp);
        int members[mesh_size(mesh)];
        for (int g = 0; g < 4; g++, tried++) {
            PlanGroup where = plan_traffic_group(&job, groups[g]);
            int n = mesh_members(mesh, 0, groups[g], members), inside = 0;
            for (int k = 0; k < n; k++) inside += members[k] < 8;
            assert_true(where.size == n && where.inside == inside);
            split += inside > 1 && inside < n;
        }
    }
    assert_true(tried > 1000 && split > 50);
    PlanJob two = job_of(&wide, 64, 2, 2, 1, 4), one = job_of(&wide, 64, 8, 2, 1, 4); // models, or a stage, on a node
    assert_int_equal(plan_traffic_group(&two, MESH_PP).inside, 2);
    assert_int_equal(plan_traffic_group(&one, MESH_PP).inside, 1);
}

// 4 ranks on a node and 4 on another: 3/7 of the bytes by the node's link, meanwhile 4/7 by the card.
TEST(test_all_to_all_by_hand)
{
    PlanJob job = job_of(&wide, 64, 2, 1, 1, 8);
    job.layout.ep = 8;
    RooflineConstants k = roofline_constants();
    PlanGroup g = plan_traffic_group(&job, MESH_EP);
    assert_int_equal(g.inside, 4);
    near(plan_traffic_seconds(&g, COMM_ALL_TO_ALL, 7e8, NULL), 4 * 5e-6 + 4e8 / (25e9 * k.between), 1e-12);
    g.out.bandwidth *= 1000;
    near(plan_traffic_seconds(&g, COMM_ALL_TO_ALL, 7e8, NULL), 3 * 1.5e-6 + 3e8 / (300e9 * k.inside), 1e-12);
}

TESTS(NULL, NULL)
