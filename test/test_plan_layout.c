// test_plan_layout: parts of a layout add up to the whole model; what a rank holds falls as it should; every refusal;
// and the search over layouts finds what plain loops find.
#include "plan_case.h"
#include "base/rng.h"
#include "dev/plan/plan.h"
#include "src/check/sharding.h"
#include "parallel/pipeline.h"
#include "dev/plan/plan_job.h"

static const ModelShape llama = {.layers = 80, .channels = 8192, .heads = 64, .kv_heads = 8, .head_size = 128,
                                 .ffn = 28672, .vocab = 32000, .context = 4096, .norm = NORM_RMSNORM,
                                 .swiglu = true, .rope = true};

static PlanJob job_of(const ModelShape *s, int dp, int tp, int pp, int chunks)
{
    PlanJob job = plan_job_chunks(plan_job(s, "A100-80", 64, dp, tp, 1, pp), chunks);
    job.layout.recompute = plan_layout_default().recompute;
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
TEST(test_stages_add_up)
{
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
            assert_int_equal(params, whole(&s));
            assert_int_equal(plan_layout_tied(&job, cases[i].pp - 1), tie ? s.vocab * s.channels : 0);
        }
    }
    PlanJob one = job_of(&gpt2_124m, 1, 1, 1, 1);
    assert_int_equal(plan_layout_params(&one, 0), 124439808); // GPT-2's, and once
}

// The slots of the first and the last stage are those that the trainer's own count finds in the table.
TEST(test_slots_are_the_tables)
{
    for (int i = 0; i < 7 * 7 * 5; i++) {
        int p = 2 + i % 7, v = 1 + i / 7 % 7, m = p * (1 + i / 49);
        PipelineTable *t = pipeline_table_make(v > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B, p, m, v);
        PlanJob job = job_of(&gpt2_124m, 1, 1, p, v);
        job.batch = m;
        for (int stage = 0; stage < p; stage += p - 1) {
            ModelStage s = pipeline_stage(t, stage, (size_t)(p * v), NULL);
            for (int c = 0; c < v; c++)
                if (plan_layout_slots(&job, stage, c) != (size_t)s.chunk[c].active)
                    fail_msg("p %d m %d v %d, stage %d, chunk %d: %zu slots, the table has %d", p, m, v, stage, c,
                             plan_layout_slots(&job, stage, c), s.chunk[c].active);
        }
        pipeline_table_free(t);
    }
}

// ---- against the run's own buffers

static Config cfg; // large: not on the stack
static Run planned;

static void configure(const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    const ModelShape *s = &job->shape;
    const ModelExperts *e = &s->experts;
    const bool piped = l->pp > 1, routed = e->n > 0;
    const struct {
        const char *key;
        long value;
        bool set;
    } numbers[] = {
        {"run.steps", 2, true}, {"model.layers", (long)s->layers, true}, {"model.channels", (long)s->channels, true},
        {"model.heads", (long)s->heads, true}, {"model.kv_heads", (long)s->kv_heads, true},
        {"model.ffn", (long)s->ffn, true}, {"model.vocab", (long)s->vocab, true},
        {"model.context", (long)s->context, true}, {"batch.micro", l->micro, true},
        {"batch.tokens", job->batch * (long)job->T, true}, {"parallel.tp", l->tp, true}, {"parallel.cp", l->cp, true},
        {"parallel.pp", l->pp, true}, {"parallel.zero", l->zero, true}, {"parallel.chunks", l->chunks, piped},
        {"model.experts", (long)e->n, routed}, {"model.experts_active", (long)e->k, routed},
        {"model.experts_ffn", (long)e->ffn, routed}, {"model.experts_shared", (long)e->shared, routed},
        {"model.experts_dense", (long)e->dense, routed}, {"model.experts_every", (long)e->every, routed},
        {"parallel.ep", l->ep, routed}};
    const struct {
        const char *key, *value;
        bool set;
    } words[] = {{"parallel.sp", "true", l->sp}, {"parallel.schedule", pipeline_table_name(l->schedule), piped},
                 {"model.bias", "false", routed}, {"moe.room", "1.5", routed && e->room > 0},
                 {"model.tie", "false", !s->tie}, {"model.activation", "swiglu", s->swiglu},
                 {"numerics.dtype", job->x_bytes == 2 ? "bf16" : "fp32", true},
                 {"memory.recompute", recompute_name(l->recompute), true}};
    config_defaults(&cfg);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].set) config_set(&cfg, numbers[i].key, formatted("%ld", numbers[i].value), "test");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].set) config_set(&cfg, words[i].key, words[i].value, "test");
    config_set_derived(&cfg, "parallel.ranks", l->gpus);
    config_resolve(&cfg);
}

// No stage holds more than the one that is planned.
static void must_be_fullest(const PlanBytes *b, Dev *dev, MeshShape mesh, const PlanLayout *l)
{
    const MemTag tags[] = {MEM_PARAMS, MEM_GRADS, MEM_OPTIM, MEM_ACTS, MEM_COMM};
    for (int stage = 0; stage < l->pp; stage++) {
        double all = 0;
        plan_open(&planned, &cfg, dev, mesh_rank(mesh, (MeshPlace){.pp = stage, .tp = l->tp - 1}));
        for (int k = 0; k < 5; k++) all += (double)planned.mem.tag_bytes[tags[k]];
        plan_close(&planned);
        assert_true(all <= b->total - b->scratch);
    }
}

typedef struct {
    double state[3], activations, communication; // state: of all replicas
} Held;

// What the replicas of the last part of the planned stage hold, which must be what was planned.
static Held hold(const PlanJob *job, const PlanBytes *b, Dev *dev, MeshShape mesh, const char *name)
{
    const PlanLayout *l = &job->layout;
    const double bytes[] = {b->parameters, b->gradients, b->optimizer};
    const MemTag tags[] = {MEM_PARAMS, MEM_GRADS, MEM_OPTIM};
    Held h = {.activations = NAN};
    for (int rank = 0; rank < l->gpus; rank++) {
        MeshPlace at = mesh_place(mesh, rank);
        if (at.pp != b->stage || at.tp != l->tp - 1) continue;
        plan_open(&planned, &cfg, dev, rank);
        for (int k = 0; k < 3; k++) h.state[k] += (double)planned.mem.tag_bytes[tags[k]];
        h.activations = (double)planned.mem.tag_bytes[MEM_ACTS];
        h.communication = (double)planned.mem.tag_bytes[MEM_COMM];
        plan_close(&planned);
        if (b->activations != h.activations)
            fail_msg("%s: activations: planned %.0f, held %.0f", name, b->activations, h.activations);
    }
    for (int k = 0; k < 3; k++) // a quotient of whole numbers, rounded
        if (!(fabs(bytes[k] * l->dp * l->cp - h.state[k]) <= 1e-9 * h.state[k]))
            fail_msg("%s: %s: planned %.1f, held %.1f", name, mem_tag_name(tags[k]), bytes[k] * l->dp * l->cp,
                     h.state[k]);
    return h;
}

// Layouts drawn at random, on up to 8 ranks: what build/plan memory counts, and a run holds, by tag.
TEST(test_bytes_are_the_runs)
{
    static const RecomputeMode modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_SQRT, RECOMPUTE_FULL};
    static const PipelineSchedule schedules[] = {PIPELINE_GPIPE, PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZB_H1,
                                                 PIPELINE_ZB_V, PIPELINE_V_HALF, PIPELINE_V_MIN};
    Rng rng = rng_make(11, "memory", 0);
    int compared = 0;
    for (uint64_t i = 0; compared < 72 && i < 2000; i++) {
        uint32_t r[8];
        rng_words(rng, 2 * i, r), rng_words(rng, 2 * i + 1, r + 4);
        ModelShape s = {.layers = 4 + r[0] % 9, .channels = 64, .heads = 8, .kv_heads = r[1] % 2 ? 8 : 4,
                        .head_size = 8, .ffn = 96, .vocab = 101, .context = 32,
                        .bias = true, .tie = r[1] / 2 % 2, .swiglu = r[1] / 4 % 2};
        PlanJob job = job_of(&s, 1 << r[2] % 4, 1 << r[3] % 3, 1 << r[4] % 3, 1);
        PlanLayout *l = &job.layout;
        l->cp = 1 << r[5] % 2, l->gpus *= l->cp, l->sp = l->tp > 1 && r[5] / 2 % 2, l->zero = (int)(r[5] / 4 % 4);
        l->recompute = modes[r[6] % 4], l->micro = 1 + r[6] / 4 % 2, job.x_bytes = r[6] / 8 % 2 ? 2 : 4;
        l->schedule = l->pp > 1 ? schedules[r[7] % 7] : PIPELINE_1F1B;
        l->chunks = l->schedule == PIPELINE_INTERLEAVED ? 2 + (int)(r[7] / 8 % 2)
                    : pipeline_table_chunks(l->schedule);
        job.batch = l->dp * l->micro * l->pp * (1 + (long)(r[7] / 16 % 4));
        char why[400];
        if (l->gpus > 8 || plan_layout_check(&job, false, why, sizeof why)) continue;
        configure(&job);
        Dev *cpu = dev_cpu_create(1), *dev = run_device(&cfg, cpu);
        PlanBytes b = plan_layout_bytes(&job);
        MeshShape mesh = mesh_shape(l->gpus, l->pp, l->cp, 1, l->tp);
        snprintf(why, sizeof why, "%s", plan_layout_text(&job).s);
        Held held = hold(&job, &b, dev, mesh, why);
        if (l->cp == 1 && l->zero < 2 && b.communication != held.communication)
            fail_msg("%s: communication: planned %.0f, held %.0f", why, b.communication, held.communication);
        if (pipeline_table_is_vee(l->schedule) && l->cp == 1 && l->zero == 0) must_be_fullest(&b, dev, mesh, l);
        run_device_free(dev, cpu);
        compared++;
    }
    assert_int_equal(compared, 72);
}

// Experts that ranks divide: the sum over the replicas of the stage, and a rank's rows for those of others.
TEST(test_divided_experts_are_the_runs)
{
    static const struct {
        int dp, cp, pp, ep, zero;
        double room;
        RecomputeMode recompute;
    } cases[] = {{2, 1, 1, 2, 0, 0, RECOMPUTE_NONE},      {4, 1, 1, 2, 1, 0, RECOMPUTE_SELECTIVE},
                 {8, 1, 1, 4, 2, 1.5, RECOMPUTE_NONE},    {4, 1, 2, 4, 3, 0, RECOMPUTE_FULL},
                 {2, 2, 1, 4, 1, 0, RECOMPUTE_SELECTIVE}, {2, 2, 2, 2, 3, 1.5, RECOMPUTE_NONE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ModelShape s = {.layers = 6, .channels = 64, .heads = 8, .kv_heads = 8, .head_size = 8,
                        .ffn = 96, .vocab = 101, .context = 32, .swiglu = true,
                        .experts = {.n = 8, .k = 2, .ffn = 24, .shared = 16 * (i % 2), .dense = 1, .every = 1 + i % 2,
                                    .room = cases[i].room}};
        PlanJob job = job_of(&s, cases[i].dp, 1, cases[i].pp, 1);
        PlanLayout *l = &job.layout;
        l->cp = cases[i].cp, l->gpus *= l->cp, l->ep = cases[i].ep, l->zero = cases[i].zero;
        l->recompute = cases[i].recompute;
        plan_layout_must(&job, false);
        configure(&job);
        Dev *cpu = dev_cpu_create(1), *dev = run_device(&cfg, cpu);
        PlanBytes b = plan_layout_bytes(&job);
        hold(&job, &b, dev, mesh_shape(l->gpus, l->pp, l->cp, l->ep, 1), "experts");
        run_device_free(dev, cpu);
    }
}

// Nine blocks between embedding and head, in segments of three. Blocks that run again evict the first of a segment from
// its slot, and it is gathered once more; divided experts only where blocks with experts do so.
TEST(test_experts_in_slots)
{
    size_t all[9], some[9];
    for (int i = 0; i < 9; i++) all[i] = 7, some[i] = i % 3 ? 0 : 7;
    ShardingChunk c = {.n = 11, .units = 11, .slots = 2, .embedding = true, .head = true, .block = all};
    assert_int_equal(sharding_again(c, 3), 2 * 7); // the last segment has just run
    c.slots = 1; // the first two of a segment
    assert_int_equal(sharding_again(c, 3), 4 * 7);
    c.slots = 3, c.ahead = 2; // a segment has room
    assert_int_equal(sharding_again(c, 3), 0);
    c.slots = 2, c.ahead = 0, c.apart = true;
    assert_int_equal(sharding_again(c, 3), 2 * 7);
    c.block = some; // one block of each segment
    assert_int_equal(sharding_again(c, 3), 0);
    c.apart = false; // the others stay gathered
    assert_int_equal(sharding_again(c, 3), 0);
}

// In a V the fullest stage may be in the middle: with fewer layers on stage 0, and a slot more on stage 2 than on 3.
TEST(test_fullest_stage)
{
    ModelShape s = {.layers = 14, .channels = 64, .heads = 8, .kv_heads = 8, .head_size = 8, .ffn = 256, .vocab = 101,
                    .context = 512, .swiglu = true};
    PlanJob job = job_of(&s, 1, 1, 4, 2);
    job.layout.schedule = PIPELINE_V_MIN, job.layout.recompute = RECOMPUTE_NONE;
    assert_int_equal(plan_layout_bytes(&job).stage, 2);
    job.layout.schedule = PIPELINE_INTERLEAVED;
    assert_int_equal(plan_layout_bytes(&job).stage, 0);
}

// bf16 with AdamW: 18 bytes a parameter, less by each stage of ZeRO; activations shrink with tp, and stages hold fewer.
TEST(test_bytes)
{
    double P = (double)whole(&llama), N = 64;
    const double state_bytes[] = {18 * P, 6 * P + 12 * P / N, 2 * P + 16 * P / N, 18 * P / N};
    for (int zero = 0; zero < 4; zero++) {
        PlanJob job = job_of(&llama, 64, 1, 1, 1);
        job.layout.zero = zero;
        PlanBytes b = plan_layout_bytes(&job);
        double sum = b.parameters + b.gradients + b.optimizer;
        assert_true(fabs(sum - state_bytes[zero]) <= 1e-9 * sum);
        assert_true((b.communication > 0) == (zero >= 2));
        assert_true(fabs(b.total - (sum + b.activations + b.scratch + b.communication)) <= 1e-9 * b.total);
    }
    PlanJob one = job_of(&llama, 1, 1, 1, 1), eight = job_of(&llama, 1, 8, 1, 1), stages = job_of(&llama, 1, 1, 8, 1);
    eight.layout.sp = true;
    PlanBytes a = plan_layout_bytes(&one), b = plan_layout_bytes(&eight), c = plan_layout_bytes(&stages);
    assert_true(b.activations < a.activations / 6 && b.activations > a.activations / 8.5);
    assert_true(fabs(c.activations / a.activations - 1) < 0.1); // 1f1b: 1/8 of the layers, 8 micro-batches
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

TEST(test_refusals)
{
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
    job = job_of(&llama, 32, 1, 4, 2);
    refused(job, PLAN_LAYOUT_SCHEDULE, "interleaved: 2 micro-batches");
    job = job_of(&llama, 8, 8, 4, 1), job.layout.chunks = 2, job.layout.schedule = PIPELINE_1F1B;
    refused(job, PLAN_LAYOUT_SCHEDULE, "--vpp 2");
    job = job_of(&llama, 8, 8, 1, 1), job.layout.chunks = 2, job.layout.schedule = PIPELINE_INTERLEAVED;
    refused(job, PLAN_LAYOUT_SCHEDULE, "chunks are of a pipeline");
    job = job_of(&llama, 8, 1, 1, 1);
    refused(job, PLAN_LAYOUT_MEMORY, "A100-80 has 80");
    job.layout.ep = 2;
    refused(job, PLAN_LAYOUT_EXPERTS, "--ep 2: does not divide the model's 0 experts (try --ep 1)");
    job.shape.experts = (ModelExperts){.n = 6, .k = 2, .ffn = 4096, .every = 1};
    refused(job, PLAN_LAYOUT_MEMORY, "--moe.room=2");
    job.layout.ep = 4;
    refused(job, PLAN_LAYOUT_EXPERTS, "--ep 4: does not divide the model's 6 experts (try --ep 2)");
    job.layout.ep = 6;
    refused(job, PLAN_LAYOUT_EXPERTS, "--ep 6: does not divide dp 8 * cp 1 ranks, over which experts are spread (try "
            "--ep 2)");
    job.layout.ep = 1, job.layout.tp = 8, job.layout.gpus = 64, job.shape.experts.shared = 12;
    refused(job, PLAN_LAYOUT_EXPERTS, "--tp 8: does not divide the width of experts, 4096, and of shared ones, 12");
}

// ---- layout search: the search finds what plain loops over everything find, counts every refusal
// once, and respects what is fixed.

static const ModelShape small = {.layers = 6, .channels = 512, .heads = 8, .kv_heads = 8, .head_size = 64, .ffn = 2048,
                                 .vocab = 50304, .context = 1024, .bias = true, .tie = true};
static PlanJob search_job_of(const ModelShape *s, const char *machine, int gpus, long batch)
{
    PlanJob job = plan_job(s, machine, batch, 1, 1, 1, 1);
    job.layout = plan_layout_default();
    job.layout.gpus = gpus;
    return job;
}

// The fastest that fits, by eight nested loops over more than the search tries; *n: those that fit.
static double fastest(PlanJob job, const RecomputeMode *modes)
{
    double best = INFINITY;
    char why[400];
    int gpus = job.layout.gpus;
    PlanLayout *l = &job.layout;
    for (l->tp = 1; l->tp <= 8; l->tp++)
        for (l->pp = 1; l->pp <= gpus; l->pp++)
            for (l->dp = 1; l->dp <= gpus; l->dp++)
                for (l->zero = 0; l->zero < 4; l->zero++)
                    for (l->chunks = 1; l->chunks <= 6; l->chunks++)
                        for (l->micro = 1; l->micro <= 64; l->micro *= 2)
                            for (int mode = 0; mode < 3; mode++) {
                                l->sp = l->tp > 1, l->recompute = modes[mode];
                                l->schedule = l->chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
                                if (l->tp & (l->tp - 1)) continue; // the search has powers of two
                                if (plan_layout_check(&job, true, why, sizeof why)) continue;
                                best = fmin(best, plan_time(&job, false).step);
                            }
    return best;
}

TEST(test_nothing_is_missed)
{
    const RecomputeMode modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    const char *const machines[] = {"A10G", "H100"};
    for (int i = 0; i < 2; i++) {
        PlanJob job = search_job_of(&small, machines[i], 12, 96);
        if (i == 0) job.machine.memory = 1.5e9; // so that some do not fit
        LayoutSearch s = layout_search(&job, layout_search_all());
        assert_true(s.n > 0);
        double best = INFINITY;
        long sum = 0;
        for (int k = 0; k < s.n; k++) {
            best = fmin(best, plan_time(&s.best[k].job, false).step);
            assert_true(s.best[k].seconds == plan_time(&s.best[k].job, true).step);
            assert_true(k == 0 || s.best[k].seconds >= s.best[k - 1].seconds);
        }
        assert_true(best == fastest(job, modes));
        for (int k = 0; k < PLAN_LAYOUT_REASONS; k++) sum += s.refused[k];
        assert_int_equal(sum, s.tried);
        assert_true((s.refused[PLAN_LAYOUT_MEMORY] > 0) == (i == 0));
    }
}

TEST(test_fixed_stays)
{
    PlanJob job = search_job_of(&small, "H100", 8, 64);
    job.layout.tp = 2, job.layout.zero = 1, job.layout.sp = false;
    LayoutSearch s = layout_search(&job, (LayoutSearchFree){.pp = true, .micro = true});
    assert_true(s.n > 0);
    for (int k = 0; k < s.n; k++) {
        const PlanLayout *l = &s.best[k].job.layout;
        assert_true(l->tp == 2 && l->zero == 1 && !l->sp && l->chunks == 1 && l->cp == 1 && l->gpus == 8);
        assert_int_equal(l->recompute, RECOMPUTE_SELECTIVE);
        assert_int_equal(l->dp * l->tp * l->pp, 8);
    }
    job.machine.memory = 1e6;
    assert_int_equal(layout_search(&job, layout_search_all()).n, 0);
}

// Ranks divide the experts where that is open, in powers of two; else they stay as given.
TEST(test_experts_are_divided)
{
    ModelShape s = small;
    s.bias = false, s.tie = false, s.swiglu = true, s.rope = true;
    s.experts = (ModelExperts){.n = 16, .k = 2, .ffn = 2048, .every = 1, .room = 2};
    PlanJob job = search_job_of(&s, "H100", 16, 64);
    job.machine.memory = 4e9;
    LayoutSearchFree free_ones = layout_search_all();
    LayoutSearch all = layout_search(&job, free_ones);
    int most = 1;
    for (int i = 0; i < all.n; i++) {
        const PlanLayout *l = &all.best[i].job.layout;
        assert_int_equal(l->dp * l->cp % l->ep, 0);
        most = l->ep > most ? l->ep : most;
    }
    assert_true(most > 1);
    free_ones.ep = false;
    for (job.layout.ep = 1; job.layout.ep <= 4; job.layout.ep *= 4) {
        LayoutSearch given = layout_search(&job, free_ones);
        for (int i = 0; i < given.n; i++) assert_int_equal(given.best[i].job.layout.ep, job.layout.ep);
        assert_true(all.tried > given.tried && (!given.n || all.best[0].seconds <= given.best[0].seconds));
        if (job.layout.ep == 4) assert_true(given.n > 0 && given.refused[PLAN_LAYOUT_EXPERTS] > 0); // below 4 replicas
    }
}

TESTS(NULL, NULL)
