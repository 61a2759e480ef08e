// test_plan_time: a step is the sum of its parts; the pipeline's bubble is the guides'; what overlaps is hidden and
// no more; checkpoints and goodput against Young, Daly and a search.
#include "dev/plan/plan_job.h"
#include "plan_case.h"

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

TESTS(NULL, NULL)
