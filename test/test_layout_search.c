// test_layout_search: the search finds what plain loops over everything find, counts every refusal once, and respects
// what is fixed.
#include "dev/plan/plan_job.h"
#include "plan_case.h"

static const ModelShape small = {.layers = 6, .channels = 512, .heads = 8, .kv_heads = 8, .head_size = 64, .ffn = 2048,
                                 .vocab = 50304, .context = 1024, .bias = true, .tie = true};
static PlanJob job_of(const ModelShape *s, const char *machine, int gpus, long batch)
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
        PlanJob job = job_of(&small, machines[i], 12, 96);
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
    PlanJob job = job_of(&small, "H100", 8, 64);
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
    PlanJob job = job_of(&s, "H100", 16, 64);
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
