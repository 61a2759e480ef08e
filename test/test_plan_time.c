// test_plan_time: seconds and bytes of a plan: a step is the sum of its parts, traffic against the modules' own
// formulas and the alpha-beta model, single operations against numbers worked out by hand.
#include "dev/plan/plan_job.h"
#include "plan_case.h"
#include "base/rng.h"
#include "comm/collectives.h"
#include "parallel/cp.h"
#include "parallel/pipeline_check.h"
#include "expect_die.h"
#include "net/model.h"
#include "parallel/tp.h"

static const ModelShape llama = {.layers = 32, .channels = 4096, .heads = 32, .kv_heads = 32, .head_size = 128,
                                 .ffn = 11008, .vocab = 32000, .context = 4096, .norm = NORM_RMSNORM,
                                 .swiglu = true, .rope = true};

static PlanJob job_of(int dp, int tp, int pp, int chunks, long batch)
{
    return plan_job_chunks(plan_job(&llama, "H100", batch, dp, tp, 1, pp), chunks);
}

static double sum(const Roofline *r)
{
    return r->seconds[0] + r->seconds[1] + r->seconds[2];
}

// One accelerator: operations and update, nothing else. MFU is the definition.
TEST(test_one_rank_is_the_roofline)
{
    PlanJob job = job_of(1, 1, 1, 1, 5);
    PlanTime t = plan_time(&job, true);
    double micro = 32 * sum(&t.block) + sum(&t.embedding) + sum(&t.head), P = (double)plan_layout_params(&job, 0);
    near(t.step, 5 * micro + roofline_adamw(&job.machine, P, 2), 1e-12);
    near(t.mfu, 5 * 4096 * model_flops_per_token(&llama, 4096) / (t.step * 989.4e12), 1e-12);
    near(t.hfu, t.mfu, 1e-12);
    near(t.tokens_second, 5 * 4096 / t.step, 1e-12);
    job.layout.recompute = RECOMPUTE_FULL;
    PlanTime again = plan_time(&job, true);
    assert_true(again.hfu > 1.2 * again.mfu && again.mfu < t.mfu);
}

// (p - 1) / (m + p - 1), and a v-th of it with chunks, when messages and the ends cost nothing.
TEST(test_bubbles)
{
    for (int chunks = 1; chunks <= 4; chunks *= 2) {
        PlanJob job = job_of(1, 1, 4, chunks, 12);
        job.machine.inside.alpha = 0, job.machine.inside.bandwidth = 1e30;
        PlanTime t = plan_time(&job, true), by_formula = plan_time(&job, false);
        near(t.bubble, 3.0 / (chunks * 12 + 3), 1e-9);
        near(t.pipeline, by_formula.pipeline, 1e-9);
    }
    // Longer than the table that a pipeline may have: each further micro-batch lasts a stage's time.
    PlanJob many = job_of(1, 1, 4, 1, 1024), more = job_of(1, 1, 4, 1, 1028);
    many.machine.inside.alpha = 0, many.machine.inside.bandwidth = 1e30;
    more.machine.inside = many.machine.inside;
    PlanTime a = plan_time(&many, true), b = plan_time(&more, true);
    near(b.pipeline - a.pipeline, 4 * (a.chunk[0] + a.chunk[1] + a.chunk[2] + a.ends), 1e-9);
    // A V is ranked by a short simulation and what its last micro-batches add: exact once they repeat.
    PlanJob half = job_of(1, 1, 4, 2, 64);
    half.layout.schedule = PIPELINE_V_HALF;
    near(plan_time(&half, false).pipeline, plan_time(&half, true).pipeline, 1e-9);
}

// tp: each rank has a share of the matrices; its sums are waited for.
TEST(test_tensor_parallel)
{
    PlanJob one = job_of(1, 1, 1, 1, 8), four = job_of(1, 4, 1, 1, 8);
    four.layout.sp = true;
    PlanTime a = plan_time(&one, true), b = plan_time(&four, true);
    assert_true(b.step < a.step / 2.5 && b.step > a.step / 4);
    double stream = 2.0 * 4096 * 4096, rate = 450e9 * roofline_constants().inside;
    double ring = 3 * 1.5e-6 + 0.75 * stream / rate;
    near(b.tensor[0], 4 * ring, 1e-12); // two all-gathers, two reduce-scatters
    near(b.tensor[1], 4 * ring, 1e-12);
    four.layout.overlap_tp = true;
    near(plan_time(&four, true).tensor[0], 2 * ring, 1e-12);
    four.layout.overlap_tp = false, four.layout.sp = false;
    near(plan_time(&four, true).tensor[0], 4 * ring, 1e-12); // an all-reduce is both
}

// Data parallelism: what a step's last backward cannot hide is paid for; what it hides costs its contention.
TEST(test_gradients_hide)
{
    for (int zero = 0; zero < 4; zero++) {
        PlanJob job = job_of(64, 1, 1, 1, 256);
        job.layout.zero = zero;
        PlanTime t = plan_time(&job, true);
        job.layout.overlap_dp = false;
        PlanTime naive = plan_time(&job, true);
        assert_true(fabs(naive.hidden) <= 1e-12 * naive.step);
        near(t.hidden + t.grads + t.weights, naive.grads + naive.weights, 1e-12);
        near(t.contention, roofline_constants().contention * t.hidden, 1e-12);
        near(t.step, t.pipeline + t.grads + t.weights + t.contention + t.optimizer, 1e-12);
        assert_true(t.step < naive.step && t.pipeline == naive.pipeline);
        job.layout.overlap_dp = true;
        job.machine.between.bandwidth /= 1000; // nothing hides behind so little
        PlanTime slow = plan_time(&job, true);
        assert_true(slow.hidden < 0.05 * (slow.grads + slow.weights));
        assert_true(slow.step > 10 * t.step);
    }
}

// Behind nothing: a collective of all gradients in 4 bytes, one of all weights in 2; a rank updates its shard.
TEST(test_gradients_by_hand)
{
    PlanJob job = job_of(64, 1, 1, 1, 64);
    double P = (double)plan_layout_params(&job, 0), cards = 8 * 50e9 * roofline_constants().between;
    double slower = fmin(cards, 450e9 * roofline_constants().inside), around = 63 / 64.0;
    job.layout.overlap_dp = false;
    for (int zero = 0; zero < 2; zero++) {
        job.layout.zero = zero;
        PlanTime t = plan_time(&job, true);
        // The ring's 63 steps of alpha and the rounding of bytes are below 1e-2 of it.
        near(t.grads, (zero ? 1 : 2) * around * 4 * P / slower, 1e-2);
        if (zero) near(t.weights, around * 2 * P / slower, 1e-2);
        else assert_true(t.weights == 0);
        near(t.optimizer, roofline_adamw(&job.machine, zero ? P / 64 : P, 2), 1e-12);
    }
}

// cp: travelling keys hide behind attention, unless the link is slow; and attention is shared.
TEST(test_context_parallel)
{
    PlanJob job = job_of(1, 1, 1, 1, 8);
    job.T = 65536, job.shape.context = 65536, job.layout.cp = 8, job.layout.gpus = 8;
    PlanTime t = plan_time(&job, true);
    assert_true(t.context[0] == 0 && t.context[1] == 0);
    job.machine.inside.bandwidth /= 1000;
    t = plan_time(&job, true);
    assert_true(t.context[0] > 0 && t.context[1] > t.context[0]);
}

// ep: rows go there and back in either direction; the expert that all tokens use hides what it takes as long as.
TEST(test_expert_parallel)
{
    PlanJob job = job_of(8, 1, 1, 1, 8);
    job.shape.experts = (ModelExperts){.n = 8, .k = 2, .ffn = 4096, .every = 1};
    PlanTime one = plan_time(&job, true);
    assert_true(one.experts[0] == 0 && one.rows[1] == 0);
    job.layout.ep = 8;
    PlanTime t = plan_time(&job, true);
    // 4096 tokens send 2 rows of 4096 elements in 2 bytes, 7/8 of them to the 7 others; and as many weights in 4.
    double rate = 450e9 * roofline_constants().inside, sent = 4096 * 2 * 0.875;
    double call = 7 * 1.5e-6, rows = call + sent * 8192 / rate, weights = call + sent * 4 / rate;
    double numbers = call + 7 * 4 / rate;
    for (int back = 0; back < 2; back++) near(t.experts[back], 2 * rows + weights + numbers, 1e-6);
    near(t.chunk[ROOFLINE_F], 32 * (t.block.seconds[ROOFLINE_F] + t.experts[0]), 1e-12);
    near(t.chunk[ROOFLINE_B], 32 * (t.block.seconds[ROOFLINE_B] + t.experts[1]), 1e-12);
    // Half of the layers: half of the rows.
    job.shape.experts.every = 2;
    near(plan_time(&job, true).experts[0], t.experts[0] / 2, 1e-9);
    job.shape.experts.every = 1;
    // A block that runs again sends its rows again.
    job.layout.recompute = RECOMPUTE_FULL;
    near(plan_time(&job, true).experts[1], t.experts[1] + t.experts[0], 1e-9);
    job.layout.recompute = RECOMPUTE_NONE;
    job.shape.experts.shared = 4096; // longer than the rows, on these links
    PlanTime hidden = plan_time(&job, true);
    near(hidden.experts[0], numbers, 1e-6);
    near(hidden.rows[0], t.rows[0], 1e-12);
    job.machine.inside.bandwidth /= 1000;
    PlanTime slow = plan_time(&job, true);
    assert_true(slow.experts[0] < slow.rows[0] && slow.experts[0] > 0.95 * slow.rows[0]);
}

// What goes to the host and back: streams of recomputed blocks, in each action; state beside the update; gradients,
// weights and the processors' own update one after the other; in stage 3 a shard before each gather.
TEST(test_offload)
{
    PlanJob job = job_of(1, 1, 1, 1, 5);
    job.layout.recompute = RECOMPUTE_FULL;
    PlanTime base = plan_time(&job, true);
    double rate = 63e9 * roofline_constants().between, P = (double)plan_layout_params(&job, 0);
    job.layout.offload_acts = true;
    PlanTime t = plan_time(&job, true);
    double stream = 4096 * 4096 * 2 * 32.0; // of 32 blocks
    near(t.step - base.step, 5 * 2 * stream / rate, 1e-9);
    near(t.chunk[ROOFLINE_F] - base.chunk[ROOFLINE_F], stream / rate, 1e-9);
    job.layout.offload_acts = false, job.layout.offload = true;
    t = plan_time(&job, true);
    near(t.step - base.step, 2 * 12 * P / rate - base.optimizer, 1e-6); // arrays begin at multiples of 16 bytes
    job.layout.host_updates = true;
    t = plan_time(&job, true);
    near(t.step - base.step, 6 * P / rate + 30 * P / (roofline_constants().memory * 76.8e9) - base.optimizer, 1e-9);
    PlanJob cut = job_of(8, 1, 1, 1, 8);
    cut.layout.zero = 3, cut.layout.prefetch = 0;
    base = plan_time(&cut, true);
    cut.layout.offload = cut.layout.host_updates = true;
    t = plan_time(&cut, true);
    near(t.weights - base.weights, 2 * P / 8 / rate, 1e-6);
    near(t.offload, 4 * P / 8 / rate, 1e-6);
    assert_true(plan_layout_bytes(&cut).optimizer == 0);
}

// A rank updates all that is not divided, and its experts; with ZeRO a part of each.
TEST(test_experts_are_updated)
{
    PlanJob job = job_of(8, 1, 1, 1, 8);
    job.shape.experts = (ModelExperts){.n = 8, .k = 2, .ffn = 4096, .every = 1}, job.layout.ep = 4;
    double P = (double)plan_layout_params(&job, 0), Px = (double)plan_layout_experts(&job, 0);
    near(Px, 32 * 2 * 3 * 4096.0 * 4096, 0);
    near(plan_time(&job, true).optimizer, roofline_adamw(&job.machine, P, 2), 1e-12);
    job.layout.zero = 1;
    near(plan_time(&job, true).optimizer, roofline_adamw(&job.machine, (P - Px) / 8 + Px / 2, 2), 1e-12);
}

// ---- failures

TEST(test_failures)
{
    near(plan_time_between_failures(1) / 3600, 50677, 1e-5); // hours: LLaMA-3
    near(plan_time_between_failures(16384) / 3600, 54 * 24 / 419.0, 1e-12);
    near(plan_time_young(30, 11136), sqrt(2 * 30 * 11136.0), 1e-15);
    // Daly's interval is where the goodput has its maximum, found here in steps of 1%; Young's is longer.
    const double saves[] = {5, 60, 300}, means[] = {3600, 10800, 86400};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            double best = 0, at = 0, daly = plan_time_daly(saves[i], means[k]);
            for (double t = 1; t < 40000; t *= 1.01) {
                double g = plan_time_goodput(t, saves[i], 600, means[k]);
                if (g > best) best = g, at = t;
            }
            assert_true(plan_time_goodput(daly, saves[i], 600, means[k]) > 0.9999 * best);
            assert_true(fabs(daly / at - 1) < 0.05);
            assert_true(plan_time_young(saves[i], means[k]) > daly * 0.9);
        }
    }
    assert_true(plan_time_daly(100, 40) == 40); // saving takes longer than living
}

// ---- plan traffic: the plan's bytes of context and pipeline parallelism and of experts against the
// formulas and tables of their modules; and seconds against the alpha-beta model by hand. (What runs send:
// test_layouts.)

enum { T = 8 };

static const ModelShape gpt = { // a vocabulary that no number of ranks divides
    .layers = 2, .channels = 12, .heads = 4, .kv_heads = 4, .head_size = 4, .ffn = 24, .vocab = 31, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape traffic_llama = { // 4 ranks: two of them to a key/value head
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 33, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};
static const ModelShape wide = { // for 8 ranks
    .layers = 1, .channels = 10, .heads = 8, .kv_heads = 8, .head_size = 2, .ffn = 16, .vocab = 53, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};

static PlanJob job_on(const ModelShape *shape, size_t tokens, int tp, int pp, int cp, int dp)
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
        PlanJob job = job_on(&traffic_llama, 64, 1, 1, cp, 1);
        job.batch = 6, job.layout.micro = 2;
        PlanTraffic t = plan_traffic(&job);
        size_t each = cp_bytes(cp, 4, 2, 64, 2, 6, false) + cp_bytes(cp, 4, 2, 64, 2, 6, true);
        assert_int_equal(sent(&t, "cp", COMM_SEND), (size_t)cp * 3 * traffic_llama.layers * each);
        size_t again = cp_bytes(cp, 4, 2, 64, 2, 6, false) * (traffic_llama.layers - 1); // all but the last block
        job.layout.recompute = RECOMPUTE_ATTENTION;
        PlanTraffic more = plan_traffic(&job);
        assert_int_equal(sent(&more, "cp", COMM_SEND), (size_t)cp * 3 * (traffic_llama.layers * each + again));
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
        PlanJob job = job_on(&s, T, 2, cases[i].p, 1, 1);
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
    PlanJob job = job_on(&s, 16, 1, 1, 1, 4);
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
    PlanJob job = job_on(&wide, 64, 8, 1, 1, 16);
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
    PlanJob flat = job_on(&wide, 64, 1, 1, 1, 16);
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
        PlanJob job = job_on(&wide, 64, tp, pp, cp, dp);
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
    PlanJob two = job_on(&wide, 64, 2, 2, 1, 4), one = job_on(&wide, 64, 8, 2, 1, 4); // models, or a stage, on a node
    assert_int_equal(plan_traffic_group(&two, MESH_PP).inside, 2);
    assert_int_equal(plan_traffic_group(&one, MESH_PP).inside, 1);
}

// 4 ranks on a node and 4 on another: 3/7 of the bytes by the node's link, meanwhile 4/7 by the card.
TEST(test_all_to_all_by_hand)
{
    PlanJob job = job_on(&wide, 64, 2, 1, 1, 8);
    job.layout.ep = 8;
    RooflineConstants k = roofline_constants();
    PlanGroup g = plan_traffic_group(&job, MESH_EP);
    assert_int_equal(g.inside, 4);
    near(plan_traffic_seconds(&g, COMM_ALL_TO_ALL, 7e8, NULL), 4 * 5e-6 + 4e8 / (25e9 * k.between), 1e-12);
    g.out.bandwidth *= 1000;
    near(plan_traffic_seconds(&g, COMM_ALL_TO_ALL, 7e8, NULL), 3 * 1.5e-6 + 3e8 / (300e9 * k.inside), 1e-12);
}

// ---- roofline: times of single operations against tiles, depth and bytes worked out by hand; sums of
// operations against model_flops_per_token.

static const ModelShape a_gpt = {.layers = 1, .channels = 1024, .heads = 16, .kv_heads = 16, .head_size = 64,
                                 .ffn = 4096, .vocab = 50304, .context = 1024, .bias = true, .tie = true};
static const ModelShape gqa = {.layers = 1, .channels = 2048, .heads = 16, .kv_heads = 4, .head_size = 128,
                               .ffn = 5632, .vocab = 32000, .context = 2048, .swiglu = true, .rope = true};

// Exactly one wave of the largest tiles: nothing is lost but the depth, `sustained` and the launch.
TEST(test_matmul_of_one_wave)
{
    Machine m = machines_find("A100-80");
    RooflineConstants k = roofline_constants();
    double M = 256 * 12, N = 128 * 9, K = 8192; // 108 tiles on 108 cores
    near(roofline_matmul(&m, M, N, K, 2), 2 * M * N * (K + k.depth) / (k.sustained * m.reachable) + k.launch, 1e-12);
    // One row of tiles more is a second wave. Smaller tiles waste less of it, but run at a lower rate: 128 x 64 at
    // 0.8, in five waves for four, cost 5/4 / 0.8 = 1.56. Sums that are cut cost their addition. Nothing is below 1.3.
    double more = roofline_matmul(&m, M + 1, N, K, 2);
    assert_true(more > 1.3 * roofline_matmul(&m, M, N, K, 2));
    assert_true(more <= 2 * roofline_matmul(&m, M, N, K, 2));
}

// One row times a matrix is a walk over the matrix.
TEST(test_matmul_of_one_row)
{
    Machine m = machines_find("H100");
    RooflineConstants k = roofline_constants();
    double bytes = 2 * (1 * 65536.0 + 65536.0 * 65536 + 1 * 65536);
    near(roofline_matmul(&m, 1, 65536, 65536, 2), bytes / (k.memory * m.bandwidth) + k.launch, 1e-12);
    near(roofline_loop(&m, 1e9), 1e9 / (k.memory * m.bandwidth) + k.launch, 1e-12);
    assert_true(roofline_loop(&m, 0) == 0);
}

// A small output of a long sum is cut along the sum: faster than on one core, but not as fast as a large output.
TEST(test_long_sums_are_cut)
{
    Machine m = machines_find("A100-80");
    RooflineConstants k = roofline_constants();
    double whole = 2 * 256 * 256 * 65536.0 / (k.sustained * m.reachable), t = roofline_matmul(&m, 256, 256, 65536, 2);
    assert_true(t > whole);
    assert_true(t < whole * 108 / 2); // two tiles of 108 cores
}

// The operations of a block and a head, forward and back, are those that the trainer counts.
TEST(test_flops_are_the_models)
{
    ModelShape windows = gqa;
    windows.window = 300;
    const ModelShape *const shapes[] = {&a_gpt, &gqa, &windows};
    for (int i = 0; i < 3; i++) {
        Machine m = machines_find("A100-80");
        RooflineCase c = {.machine = &m, .part = *shapes[i], .B = 3, .T = shapes[i]->context, .cp = 1, .x_bytes = 2,
                          .fused_attention = true};
        double tokens = 3 * (double)c.T, sum = roofline_block(&c).flops + roofline_head(&c).flops;
        near(sum, tokens * model_flops_per_token(shapes[i], c.T), 1e-12);
        c.recompute = RECOMPUTE_FULL; // a whole forward of the block more
        double head = 6 * tokens * (double)(c.part.vocab * c.part.channels);
        near(roofline_block(&c).flops + roofline_head(&c).flops, sum + (sum - head) / 3, 1e-12);
    }
}

// Half the sequence on each of two ranks, half the heads on each of two: half the time or a little more.
TEST(test_cuts_halve)
{
    Machine m = machines_find("H100");
    RooflineCase c = {.machine = &m, .part = gqa, .B = 8, .T = 2048, .cp = 1, .x_bytes = 2, .fused_attention = true};
    double one = roofline_block(&c).seconds[0];
    c.cp = 2;
    double half = roofline_block(&c).seconds[0];
    assert_true(half > 0.49 * one && half < 0.6 * one);
    c.cp = 1, c.part = tp_shape(&gqa, 0, 2, true);
    half = roofline_block(&c).seconds[0];
    assert_true(half > 0.49 * one && half < 0.6 * one);
}

TEST(test_slower_kinds)
{
    Machine m = machines_find("A100-80");
    RooflineCase c = {.machine = &m, .part = gqa, .B = 4, .T = 2048, .cp = 1, .x_bytes = 2, .fused_attention = true};
    Roofline fused = roofline_block(&c);
    c.eager = true;
    Roofline eager = roofline_block(&c);
    c.eager = false, c.fused_attention = false;
    Roofline plain = roofline_block(&c);
    for (int way = 0; way < 2; way++) {
        assert_true(eager.seconds[way] > fused.seconds[way]);
        assert_true(plain.seconds[way] > fused.seconds[way]);
        assert_true(eager.seconds[ROOFLINE_W] == fused.seconds[ROOFLINE_W]);
    }
    near(eager.op[0].bytes[0], fused.op[0].bytes[0] * 42 / 8, 1e-12); // norms: bytes an element, forward
    near(eager.op[0].bytes[1], fused.op[0].bytes[1] * 86 / 8, 1e-12);
}

// ---- machines

TEST(test_machines)
{
    Machine a = machines_find("a100-80"), h = machines_find("H100");
    assert_string_equal(a.name, "A100-80");
    assert_true(a.peak == 312e12 && h.peak == 989.4e12);
    assert_true(a.inside.bandwidth == 300e9 && h.between.bandwidth == 50e9);
    const char *const names[] = {"A100-80", "A100-40", "H100", "H200", "B200", "V100", "A10G"};
    for (int i = 0; i < 7; i++) {
        Machine m = machines_find(names[i]);
        assert_true(m.reachable < m.peak && m.reachable > 0.7 * m.peak && m.memory >= 24e9 && m.node == 8
                    && m.price > 0);
    }
    Machine t = machines_tf32(h);
    assert_true(t.peak == 494.7e12 && machines_tf32(a).peak == 156e12);
    near(t.reachable / t.peak, h.reachable / h.peak, 1e-12);
    expect_dies("no TF32 rate in the table", machines_tf32(machines_find("V100")));
    assert_string_equal(machines_find("A100").name, "A100-80"); // without the memory: the first
    assert_string_equal(machines_find("a100-40").name, "A100-40");
    expect_dies("did you mean H100?", machines_find("H1000"));
    expect_dies("is no accelerator", machines_find("H20")); // not the beginning of H200
    expect_dies("is no accelerator", machines_find("A100-"));
    expect_dies("is no accelerator", machines_find(""));
    expect_dies("is no link", machines_link("infiniband"));
    Machine here = machines_measure(0.05);
    assert_true(here.peak > 1e8 && here.bandwidth > 1e7 && here.memory > 1e6 && here.cores >= 1);
}

TESTS(NULL, NULL)
