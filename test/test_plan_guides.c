// test_plan_guides: the numbers that guides to large-scale training work out by hand, from the plan's functions.
// Where a guide's number is inexact, the test has the right one and says how far off the guide is (doc/plan_guides.md).
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/collectives.h"
#include "dev/plan/plan_time.h"
#include "dev/plan/plan_traffic.h"
#include "dev/plan/sharding.h"
#include "dev/plan/scaling.h"

#include <math.h>

static const ModelShape gpt3 = {.layers = 96, .channels = 12288, .heads = 96, .kv_heads = 96, .head_size = 128,
                                .ffn = 49152,
                                .vocab = 50257, .context = 2048, .bias = true, .tie = true};
static const ModelShape gpt2 = {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64,
                                .ffn = 3072,
                                .vocab = 50257, .context = 1024, .bias = true, .tie = true};

// a is b to the digits that the guide prints: within half of its last one.
static void printed(double a, double b, double half)
{
    if (!(fabs(a - b) <= half)) fail_msg("%.6g is printed as %.6g", a, b);
}

// "70B with Adam in mixed precision: 16 P = 1120 GB." With gradients in fp32, as sums of micro-batches need: 18 P.
static void test_state_of_70b(void **state)
{
    (void)state;
    ShardingCase is = {.ranks = 1, .params = 70000000000, .stage = 0, .x_bytes = 2, .state = 12 * (size_t)70000000000};
    double held = 0;
    for (int tag = 0; tag < MEM_TAGS; tag++) held += (double)sharding_memory(&is, (MemTag)tag).all;
    printed(held / 1e9, 1260, 0);
    printed((held - 2 * 70e9) / 1e9, 1120, 0); // the guide's: 2-byte gradients
    is.ranks = 64, is.stage = 3;
    double each = 0;
    for (int tag = 0; tag < MEM_TAGS; tag++) each += (double)sharding_memory(&is, (MemTag)tag).all / 64;
    printed(each / 1e9, 19.69, 0.005); // ZeRO-3 on 64: not 17.5
}

// ZeRO's own example (arXiv 1910.02054, figure 1): 7.5 billion on 64 GPUs: 120, 31.4, 16.6, 1.9 GB, with 2-byte
// gradients.
static void test_zero_figure(void **state)
{
    (void)state;
    const double paper[] = {120, 31.4, 16.6, 1.9};
    for (int stage = 0; stage < 4; stage++) {
        ShardingCase is = {.ranks = 64, .params = 7500000000, .stage = stage, .x_bytes = 2, .state = 12 *
                           (size_t)7500000000};
        double held = 0, gradients = (double)sharding_memory(&is, MEM_GRADS).all / 64 / 2; // two bytes, not four
        held = (double)sharding_memory(&is, MEM_PARAMS).all / 64 + gradients;
        held += (double)sharding_memory(&is, MEM_OPTIM).all / 64;
        printed(held / 1e9, paper[stage], 0.051);
    }
}

// "GPT-3: 6 * 175e9 * 300e9 = 3.14e23" is 3.15e23; with 174.6 billion it is 3.14e23. Attention's T x T adds 2.7%, and
// embeddings, which the rule counts, do no matmul (a tied head does).
static void test_gpt3_flops(void **state)
{
    (void)state;
    printed(6 * 174.6e9 * 300e9 / 1e23, 3.14, 0.005);
    printed(6 * 175e9 * 300e9 / 1e23, 3.15, 0.0001);
    PlanJob job = {.shape = gpt3, .layout = plan_layout_default()};
    double P = (double)plan_layout_params(&job, 0);
    printed(P / 1e9, 174.6, 0.05);
    printed(model_flops_per_token(&gpt3, 2048) * 300e9 / 1e23, 3.18, 0.01);
    printed(12.0 * 96 * 12288 * 12288 / 1e9, 173.9, 0.1); // 12 L C^2
}

static void test_chinchilla(void **state)
{
    (void)state;
    printed(scaling_laws_twenty(6 * 70e9 * 1.4e12).N / 1e9, 70, 1e-9);
    printed(6 * 70e9 * 1.4e12 / 1e23, 5.88, 1e-9); // the paper's budget, Gopher's, is 5.76
    printed(1.4e12 / 70e9, 20, 0);
    printed(300e9 / 175e9, 1.7, 0.05); // GPT-3 had 1.7 tokens a parameter
    printed(15.6e12 / 405e9, 38.5, 0.05);
}

// 1F1B: (p - 1) / (m + p - 1). Papers' (p - 1) / m is idle time over ideal time.
static void test_bubble(void **state)
{
    (void)state;
    const struct {
        int p, m;
        double bubble;
    } guide[] = {{4, 8, 0.2727}, {8, 32, 0.1795}, {16, 64, 0.1899}};
    for (int i = 0; i < 3; i++) {
        PlanJob job = {.shape = gpt2, .T = 1024, .batch = guide[i].m, .x_bytes = 2, .machine = machines_find("H100"),
                       .layout = plan_layout_default()};
        job.shape.layers = 16;
        job.layout.pp = job.layout.gpus = guide[i].p;
        job.machine.inside = job.machine.between = (MachineLink){.alpha = 0, .bandwidth = 1e30};
        printed(plan_time(&job, true).bubble, guide[i].bubble, 5e-5);
    }
}

// A ring's all-reduce sends 2 (N - 1) / N of the bytes from each rank: 14 GB of 7 billion gradients in 2 bytes
// become 24.5 GB on 8 ranks, and take 82 ms at NVLink's 300 GB/s.
static void test_ring(void **state)
{
    (void)state;
    ShardingCase is = {.ranks = 8, .params = 7000000000, .stage = 0, .x_bytes = 2, .g_bytes = 2, .micro = 1,
                       .batch = 1};
    printed((double)sharding_traffic(&is, COMM_ALL_REDUCE).all / 8 / 1e9, 24.5, 1e-9);
    printed(1e3 * collectives_seconds(COMM_ALL_REDUCE, COMM_RING, 8, 14000000000, 0, 1 / 300e9), 81.7, 0.05);
    is.stage = 3, is.ranks = 64, is.reshard = true; // "FSDP is 1.5 times": gathers twice, reduces once
    double fsdp = (double)sharding_traffic(&is, COMM_ALL_GATHER).all;
    fsdp += (double)sharding_traffic(&is, COMM_REDUCE_SCATTER).all;
    is.stage = 0;
    printed(fsdp / (double)sharding_traffic(&is, COMM_ALL_REDUCE).all, 1.5, 0);
}

// Tensor parallelism: four all-reduces of B T C a layer and micro-batch.
static void test_tensor_parallel(void **state)
{
    (void)state;
    PlanJob job = {.shape = gpt3, .T = 2048, .batch = 1, .x_bytes = 2, .machine = machines_find("A100-80"),
                   .layout = plan_layout_default()};
    job.layout.tp = job.layout.gpus = 8, job.layout.recompute = RECOMPUTE_NONE;
    PlanTraffic t = plan_traffic(&job);
    double stream = 2.0 * 2048 * 12288, blocks = 4.0 * 96 + 2; // and the embedding's and the head's
    printed(stream / 1e6, 50.3, 0.05);
    printed((double)t.flow[0].all, 2 * 7 * (blocks * stream + 12 * 2048), 0);
}

// LLaMA-3: an interruption every 3 hours on 16,384; at 30 s a checkpoint, Young says every 13 to 14 minutes.
static void test_failures(void **state)
{
    (void)state;
    double mean = plan_time_between_failures(16384);
    printed(mean / 3600, 3.1, 0.05);
    printed(plan_time_young(30, mean) / 60, 13.6, 0.05);
    printed(plan_time_between_failures(1) / 3600, 50677, 0.5);
}

// "405B at 400 TFLOP/s on 16,384 H100": 3.8e25 FLOPs take 67 days without failures; the paper's 54-day window is of
// a part.
static void test_llama3_days(void **state)
{
    (void)state;
    double C = 6 * 405e9 * 15.6e12;
    printed(C / 1e25, 3.79, 0.005);
    printed(C / (400e12 * 16384) / 86400, 66.9, 0.05);
    printed(400e12 / 989.4e12, 0.404, 0.0005); // MFU "41%" is of 400 with more digits
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_of_70b),    cmocka_unit_test(test_zero_figure), cmocka_unit_test(test_gpt3_flops),
        cmocka_unit_test(test_chinchilla),      cmocka_unit_test(test_bubble),      cmocka_unit_test(test_ring),
        cmocka_unit_test(test_tensor_parallel), cmocka_unit_test(test_failures),    cmocka_unit_test(test_llama3_days),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
