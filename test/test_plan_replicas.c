// test_plan_replicas: the plan's bytes of data parallelism, and what it says a rank holds, against what threads
// count and hold when they train, for every stage of ZeRO and layouts drawn at random. (test_plan_traffic has the
// other groups.)
#include "replica_run.h"

#include "dev/plan/plan_traffic.h"

static PlanJob job_of(const Case *c, size_t micro)
{
    PlanJob job = {.shape = *c->shape, .T = T, .batch = (long)c->samples, .x_bytes = c->x_type == X_FP32 ? 4 : 2,
                   .machine = machines_find("A100-80"), .layout = plan_layout_default()};
    PlanLayout *l = &job.layout;
    l->dp = l->gpus = c->ranks, l->zero = c->stage, l->shard = c->shard;
    l->reshard = c->reshard, l->prefetch = 1 + c->deeper, l->keep = (long)c->keep, l->micro = (long)micro;
    l->recompute = c->recompute.mode, l->grad_bytes = c->narrow ? 2 : 4;
    return job;
}

static void test_bytes_are_counted(void **state)
{
    (void)state;
    Rng rng = rng_make(3, "layouts", 0);
    for (uint64_t i = 0; i < 32; i++) {
        int ranks = 2 + (int)rng_below(rng, 4 * i, 3);
        size_t share = SAMPLES / (size_t)ranks, micro = rng_below(rng, 4 * i + 1, 2) ? share : share / 2;
        bool narrow = rng_below(rng, 4 * i + 2, 2);
        Case c = {.ranks = ranks, .shape = i % 2 ? &gpt : &llama, .samples = SAMPLES, .micro = micro,
                  .stage = (int)(i / 2 % 4), .shard = ranks == 4 && i % 16 > 1 ? 2 : 0,
                  .overlap = true, .reshard = rng_below(rng, 4 * i + 3, 2), .narrow = narrow, .bucket = 400,
                  .x_type = narrow ? X_BF16 : X_FP32, .optim = OPTIM_ADAMW, .steps = STEPS,
                  .deeper = (int)(i / 8) - 1, .keep = i % 16 > 7 ? 315 : i % 16 > 5 ? 4700 : 0,
                  .recompute = {.mode = (RecomputeMode[]){RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_SQRT}[i % 3]}};
        Outcome r = run(c);
        PlanJob job = job_of(&c, micro);
        PlanTraffic t = plan_traffic(&job);
        for (int k = 0; k < COMM_KINDS; k++) {
            size_t counted = 0, planned = 0;
            for (int rank = 0; rank < ranks; rank++) counted += r.count[rank][k].sent + r.copies[rank][k].sent;
            for (int f = 0; f < t.n; f++) planned += (int)t.flow[f].kind == k ? t.flow[f].all : 0;
            if (planned * STEPS != counted)
                fail_msg("layout %d: %d ranks, stage %d, micro %zu: %s: planned %zu, counted %zu", (int)i, ranks,
                         c.stage,
                         micro, comm_kind_name((CommKind)k), planned * STEPS, counted);
        }
        // Held: the plan has the mean over ranks, the ranks the whole.
        const MemTag tags[] = {MEM_PARAMS, MEM_GRADS, MEM_OPTIM};
        PlanBytes b = plan_layout_bytes(&job);
        const double planned[] = {b.parameters, b.gradients, b.optimizer};
        for (int k = 0; k < 3; k++) {
            double held = 0;
            for (int rank = 0; rank < ranks; rank++) held += (double)r.tag[rank][tags[k]];
            assert_true(fabs(planned[k] * ranks - held) <= 1e-9 * held); // a quotient of whole numbers, rounded
        }
        assert_true(b.activations == (double)r.tag[0][MEM_ACTS]);
        release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
