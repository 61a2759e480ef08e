// test_roofline: times of single operations against tiles, depth and bytes worked out by hand; sums of operations
// against model_flops_per_token.
#include "plan_case.h"

#include "expect_die.h"
#include "net/model.h"
#include "parallel/tp.h"
#include "dev/plan/plan_job.h"

static const ModelShape gpt = {.layers = 1, .channels = 1024, .heads = 16, .kv_heads = 16, .head_size = 64, .ffn = 4096,
                               .vocab = 50304, .context = 1024, .bias = true, .tie = true};
static const ModelShape llama = {.layers = 1, .channels = 2048, .heads = 16, .kv_heads = 4, .head_size = 128,
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
    ModelShape windows = llama;
    windows.window = 300;
    const ModelShape *const shapes[] = {&gpt, &llama, &windows};
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
    RooflineCase c = {.machine = &m, .part = llama, .B = 8, .T = 2048, .cp = 1, .x_bytes = 2, .fused_attention = true};
    double one = roofline_block(&c).seconds[0];
    c.cp = 2;
    double half = roofline_block(&c).seconds[0];
    assert_true(half > 0.49 * one && half < 0.6 * one);
    c.cp = 1, c.part = tp_shape(&llama, 0, 2, true);
    half = roofline_block(&c).seconds[0];
    assert_true(half > 0.49 * one && half < 0.6 * one);
}

TEST(test_slower_kinds)
{
    Machine m = machines_find("A100-80");
    RooflineCase c = {.machine = &m, .part = llama, .B = 4, .T = 2048, .cp = 1, .x_bytes = 2, .fused_attention = true};
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

static int find_gpu(void *name) { return machines_find(name).node > 99; }
static int tf32_of(void *name) { return machines_tf32(machines_find(name)).node > 99; }
static int find_link(void *name) { return machines_link(name).bandwidth < 0; }

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
    expect_die(tf32_of, "V100", "no TF32 rate in the table");
    assert_string_equal(machines_find("A100").name, "A100-80"); // without the memory: the first
    assert_string_equal(machines_find("a100-40").name, "A100-40");
    expect_die(find_gpu, "H1000", "did you mean H100?");
    expect_die(find_gpu, "H20", "is no accelerator"); // not the beginning of H200
    expect_die(find_gpu, "A100-", "is no accelerator");
    expect_die(find_gpu, "", "is no accelerator");
    expect_die(find_link, "infiniband", "is no link");
    Machine here = machines_measure(0.05);
    assert_true(here.peak > 1e8 && here.bandwidth > 1e7 && here.memory > 1e6 && here.cores >= 1);
}

TESTS(NULL, NULL)
