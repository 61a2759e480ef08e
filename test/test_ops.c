// test_ops: every op of the table, against PyTorch's numbers and within a derived bound, at any number of
// threads.
//
// One row per op and size. Rows with a fixture use the inputs and results of dev/reference/make_ops.py;
// rows without one are larger, so that the work is really cut into tiles, blocks and threads. The bounds
// are in ops_ref.h. Every row runs with one, two and three threads and must give the same bits. An op
// without a row fails the suite.
#include "ops_rows.h"
#include "acts_rows.h"
#include "experts_rows.h"
#include "expect_die.h"
#include "optim_rows.h"
#include "part_rows.h"

#include "ops/activation.h"
#include "ops/update_rules.h"
#include "base/vmath.h"

#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    const char *op;
    size_t slot; // offset of the entry in Dev
    const char *file, *prefix; // NULL: random inputs
    void (*run)(Run *);
    size_t dim[OPS_DIMS];
} Row;

#define ROW(op, file, prefix, ...) {#op, offsetof(Dev, op), file, prefix, row_##op, {__VA_ARGS__}}
#define ADAMW(file, prefix, ...) {"update", offsetof(Dev, update), file, prefix, row_adamw, {__VA_ARGS__}}
#define MEMORY(op) {#op, offsetof(Dev, op), NULL, "", row_memory, {3000001}}
static const Row rows[] = {
    // N, C, OC
    ROW(matmul_forward, "ops_matmul", "matmul", 7, 13, 19),
    ROW(matmul_forward, NULL, NULL, 201, 97, 333),
    ROW(matmul_gelu_forward, "ops_matmul", "matmul_gelu", 7, 13, 19),
    ROW(matmul_gelu_forward, NULL, NULL, 201, 97, 333),
    ROW(matmul_backward_input, "ops_matmul", "matmul", 7, 13, 19),
    ROW(matmul_backward_input, NULL, NULL, 201, 333, 97),
    ROW(matmul_gelu_backward_input, "ops_matmul", "matmul_gelu", 7, 13, 19),
    ROW(matmul_gelu_backward_input, NULL, NULL, 201, 333, 97),
    ROW(matmul_backward_weight, "ops_matmul", "matmul", 7, 13, 19),
    ROW(matmul_backward_weight, NULL, NULL, 97, 201, 333),
    // N, C, OC, parts
    ROW(matmul_parts_forward, NULL, NULL, 201, 97, 333, 8),
    ROW(matmul_parts_forward, NULL, NULL, 7, 13, 19, 3),
    ROW(matmul_parts_backward_input, NULL, NULL, 201, 333, 97, 8),
    ROW(matmul_parts_backward_input, NULL, NULL, 7, 19, 13, 1),
    // N, F
    ROW(swiglu_forward, "ops_matmul", "swiglu", 7, 11),
    ROW(swiglu_forward, NULL, NULL, 65, 257),
    ROW(swiglu_backward, "ops_matmul", "swiglu", 7, 11),
    ROW(swiglu_backward, NULL, NULL, 65, 257),
    ROW(add, "ops_matmul", "add", 47), // n
    ROW(add, NULL, NULL, 300007),
    ROW(copy, NULL, NULL, 7, 13, 17, 19), // rows, width, elements from one row to the next: out, inp
    ROW(copy, NULL, NULL, 201, 64, 64, 192),
    ROW(dropout, NULL, NULL, 300007), // n
    // n, kind
#define ACTIVATION(KIND, name) ROW(act_forward, NULL, NULL, 1003, KIND), ROW(act_backward, NULL, NULL, 1003, KIND),
    ACTIVATIONS(ACTIVATION)
    ROW(compress, NULL, NULL, 7, 19), // N, w
    ROW(compress, NULL, NULL, 131, 3 * DEV_GROUP),
    ROW(compress, NULL, NULL, 131, DEV_GROUP + 1),
    ROW(decompress, NULL, NULL, 131, 2 * DEV_GROUP + 5),
    ROW(accumulate, NULL, NULL, 300007), // n
    ROW(to_x, NULL, NULL, 1003), // n
    ROW(from_x, NULL, NULL, 1003),
    // N, C, V, T
    ROW(embed_forward, "ops_matmul", "embed", 21, 13, 17, 9),
    ROW(embed_forward, NULL, NULL, 301, 195, 17, 101),
    ROW(embed_backward, "ops_matmul", "embed", 21, 13, 17, 9),
    ROW(embed_backward, NULL, NULL, 301, 195, 17, 101),
    // N, C, kind
    ROW(norm_forward, "ops_norm", "layernorm", 7, 37, NORM_LAYERNORM),
    ROW(norm_forward, "ops_norm", "rmsnorm", 7, 37, NORM_RMSNORM),
    ROW(norm_forward, NULL, NULL, 131, 259, NORM_LAYERNORM),
    ROW(norm_forward, NULL, NULL, 131, 259, NORM_RMSNORM),
    ROW(norm_backward, "ops_norm", "layernorm", 7, 37, NORM_LAYERNORM),
    ROW(norm_backward, "ops_norm", "rmsnorm", 7, 37, NORM_RMSNORM),
    ROW(norm_backward, NULL, NULL, 131, 259, NORM_LAYERNORM),
    ROW(norm_backward, NULL, NULL, 131, 259, NORM_RMSNORM),
    // N, heads, D, ld
    ROW(head_norm_forward, "ops_norm", "head_norm", 7, 3, 10, 41),
    ROW(head_norm_forward, NULL, NULL, 131, 5, 64, 400),
    ROW(head_norm_forward, NULL, NULL, 61, 1, 1037, 1100),
    ROW(head_norm_backward, "ops_norm", "head_norm", 7, 3, 10, 41),
    ROW(head_norm_backward, NULL, NULL, 131, 5, 64, 400),
    ROW(head_norm_backward, NULL, NULL, 61, 1, 1037, 1100),
    ROW(rope_forward, "ops_norm", "rope", 7, 3, 10, 41),
    ROW(rope_forward, NULL, NULL, 131, 5, 64, 400),
    ROW(rope_backward, "ops_norm", "rope", 7, 3, 10, 41),
    ROW(rope_backward, NULL, NULL, 131, 5, 64, 400),
    // B, Tq, Tk, H, G, D, DOCUMENTS and DROPPED or none, window or none
    ROW(attention_forward, "ops_attention", "grouped", 2, 7, 7, 6, 2, 10),
    ROW(attention_forward, "ops_attention", "cached", 2, 3, 11, 6, 2, 10),
    ROW(attention_forward, "ops_attention", "one", 1, 1, 75, 2, 1, 10),
    ROW(attention_forward, "ops_attention_long", "long", 1, 150, 150, 2, 1, 6),
    ROW(attention_forward, "ops_attention_wide", "wide", 1, 19, 19, 2, 2, 64),
    ROW(attention_forward, NULL, NULL, 2, 613, 613, 3, 1, 18),
    ROW(attention_forward, NULL, NULL, 3, 67, 600, 4, 2, 32),
    ROW(attention_forward, "ops_attention_documents", "documents", 2, 23, 23, 4, 2, 6, DOCUMENTS),
    ROW(attention_forward, NULL, NULL, 2, 613, 613, 3, 1, 18, DOCUMENTS),
    ROW(attention_forward, NULL, NULL, 2, 301, 301, 3, 1, 18, DROPPED),
    ROW(attention_forward, NULL, NULL, 3, 133, 301, 4, 2, 9, DOCUMENTS | DROPPED),
    ROW(attention_forward, NULL, NULL, 1, 23, 23, 4, 2, 6, 0, 1),
    ROW(attention_forward, NULL, NULL, 2, 301, 301, 3, 1, 18, 0, 64),
    ROW(attention_forward, NULL, NULL, 2, 613, 613, 3, 1, 18, DOCUMENTS | DROPPED, 257),
    ROW(attention_forward, NULL, NULL, 3, 67, 600, 4, 2, 32, 0, 100),
    ROW(attention_backward, "ops_attention", "grouped", 2, 7, 7, 6, 2, 10),
    ROW(attention_backward, "ops_attention_long", "long", 1, 150, 150, 2, 1, 6),
    ROW(attention_backward, "ops_attention_wide", "wide", 1, 19, 19, 2, 2, 64),
    ROW(attention_backward, NULL, NULL, 2, 613, 613, 3, 1, 18),
    ROW(attention_backward, "ops_attention_documents", "documents", 2, 23, 23, 4, 2, 6, DOCUMENTS),
    ROW(attention_backward, NULL, NULL, 2, 613, 613, 3, 1, 18, DOCUMENTS),
    ROW(attention_backward, NULL, NULL, 2, 301, 301, 3, 1, 18, DROPPED),
    ROW(attention_backward, NULL, NULL, 3, 133, 133, 4, 2, 9, DOCUMENTS | DROPPED),
    ROW(attention_backward, NULL, NULL, 1, 23, 23, 4, 2, 6, 0, 1),
    ROW(attention_backward, NULL, NULL, 2, 301, 301, 3, 1, 18, 0, 64),
    ROW(attention_backward, NULL, NULL, 2, 613, 613, 3, 1, 18, DOCUMENTS | DROPPED, 257),
    // B, T, H, G, D, ranks, flags, window or none; B, T, H, D
    ROW(attention_part_forward, NULL, NULL, 2, 72, 4, 2, 6, 2, 0),
    ROW(attention_part_forward, NULL, NULL, 1, 268, 2, 1, 5, 2, DOCUMENTS | DROPPED),
    ROW(attention_part_forward, NULL, NULL, 1, 280, 3, 3, 7, 4, DOCUMENTS | DROPPED | BLOCKS),
    ROW(attention_part_forward, NULL, NULL, 2, 72, 4, 2, 6, 2, 0, 20),
    ROW(attention_part_forward, NULL, NULL, 1, 280, 3, 3, 7, 4, DOCUMENTS | DROPPED | BLOCKS, 50),
    ROW(attention_merge, NULL, NULL, 3, 37, 4, 5),
    ROW(attention_part_backward, NULL, NULL, 2, 72, 4, 2, 6, 2, 0),
    ROW(attention_part_backward, NULL, NULL, 1, 268, 2, 1, 5, 2, DOCUMENTS | DROPPED),
    ROW(attention_part_backward, NULL, NULL, 1, 280, 3, 3, 7, 4, DOCUMENTS | DROPPED | BLOCKS),
    ROW(attention_part_backward, NULL, NULL, 2, 72, 4, 2, 6, 2, 0, 20),
    ROW(attention_part_backward, NULL, NULL, 1, 280, 3, 3, 7, 4, DOCUMENTS | DROPPED | BLOCKS, 50),
    // N, C, E; N, E, k, flags, groups, best
    ROW(router_forward, NULL, NULL, 201, 97, 33),
    ROW(router_backward, NULL, NULL, 201, 97, 33),
    ROW(route_forward, NULL, NULL, 501, 8, 2, 0),
    ROW(route_forward, NULL, NULL, 501, 33, 4, RENORM | BIASED),
    ROW(route_forward, NULL, NULL, 501, 64, 6, BIASED, 8, 3),
    ROW(route_forward, NULL, NULL, 501, 64, 8, SIGMOID | RENORM | BIASED, 8, 4),
    ROW(route_forward, NULL, NULL, 300, 7, 7, SIGMOID),
    ROW(route_backward, NULL, NULL, 500, 8, 2, 0),
    ROW(route_backward, NULL, NULL, 500, 33, 4, RENORM | BALANCED | Z_LOSS),
    ROW(route_backward, NULL, NULL, 500, 33, 4, SIGMOID | BALANCED),
    ROW(route_backward, NULL, NULL, 500, 64, 8, SIGMOID | RENORM | Z_LOSS),
    // N, T, k, E, cap, BY_GATE or none
    ROW(experts_sort, NULL, NULL, 600, 300, 2, 8, 0),
    ROW(experts_sort, NULL, NULL, 600, 100, 3, 8, 20),
    ROW(experts_sort, NULL, NULL, 600, 100, 3, 8, 20, BY_GATE),
    ROW(experts_count, NULL, NULL, 600, 100, 3, 8, 20),
    ROW(experts_gather, NULL, NULL, 600, 100, 3, 8, 20),
    ROW(experts_combine, NULL, NULL, 600, 100, 3, 8, 20),
    ROW(experts_pick, NULL, NULL, 600, 100, 3, 8, 20),
    ROW(experts_swiglu_forward, NULL, NULL, 600, 100, 3, 8, 20),
    ROW(experts_swiglu_backward, NULL, NULL, 600, 100, 3, 8, 20),
    // R, C, OC, E
    ROW(experts_forward, NULL, NULL, 701, 97, 133, 5, 1, 0),
    ROW(experts_forward, NULL, NULL, 701, 97, 133, 3, 4, 4),
    ROW(experts_forward, NULL, NULL, 301, 97, 133, 5, 1, 7),
    ROW(experts_backward_input, NULL, NULL, 701, 133, 97, 5, 1, 0),
    ROW(experts_backward_input, NULL, NULL, 701, 133, 97, 3, 4, 4),
    ROW(experts_backward_input, NULL, NULL, 301, 133, 97, 5, 1, 7),
    ROW(experts_backward_weight, NULL, NULL, 701, 97, 133, 5, 1, 0),
    ROW(experts_backward_weight, NULL, NULL, 701, 97, 133, 3, 4, 0),
    ROW(softmax_xent, "ops_loss", "xent", 9, 31), // N, V
    ROW(softmax_xent, NULL, NULL, 67, 1031),
    ROW(softmax_xent, NULL, NULL, 67, 517, 2), // N, V, cap
    ROW(xent_max, NULL, NULL, 9, 31), // N, V
    ROW(xent_sum, NULL, NULL, 67, 1031),
    ROW(xent_sum, NULL, NULL, 67, 517, 2),
    ROW(xent_loss, NULL, NULL, 131, 517),
    ROW(xent_loss, NULL, NULL, 131, 517, 1),
    ROW(sum_squares, "ops_matmul", "sum_squares", 1003), // n
    ROW(sum_squares, NULL, NULL, 300007),
    ROW(sum_squares_exact, NULL, NULL, 300007),
    ROW(subtract, NULL, NULL, 300007), // n
    ROW(clip_units, NULL, NULL, 131, 2100), // R, C
    ROW(clip_units, NULL, NULL, 1, 300007),
    ADAMW("ops_loss", "adamw_first", 29, 1, 1), // n, step, ten times the decay
    ADAMW("ops_loss", "adamw_later", 29, 10, 0),
    ADAMW(NULL, NULL, 10007, 1000, 1),
#define RULE(KIND, name, moments) ROW(update, NULL, NULL, 10007, KIND), // n, rule
    UPDATE_RULES(RULE)
    ROW(adamw8bit, NULL, NULL, 4 * UPDATE_BLOCK + 7),
    ROW(adafactor, NULL, NULL, 131, 259, 1), // R, C, factored
    ROW(adafactor, NULL, NULL, 1, 10007, 0),
    ROW(muon, NULL, NULL, 20, 150), // R, C
    ROW(muon, NULL, NULL, 150, 20),
    ROW(muon, NULL, NULL, 80, 70),
    ROW(muon, NULL, NULL, 70, 80),
    ROW(muon, NULL, NULL, 20, 150, 1),
    ROW(muon, NULL, NULL, 80, 70, 1),
    MEMORY(to_device), MEMORY(to_host), MEMORY(zero),
};
enum { N_ROWS = sizeof rows / sizeof *rows, THREADS = 3 };

static void test_row(void **state)
{
    const Row *row = *state;
    Fixture *fx = row->file ? fixture_open(row->file) : NULL;
    Run first = {0};
    for (int threads = 1; threads <= THREADS; threads++) {
        Run run = {.dev = dev_cpu_create(threads), .fx = fx, .prefix = row->prefix, .dim = row->dim};
        row->run(&run);
        dev_cpu_free(run.dev);
        if (threads == 1) {
            first = run;
            continue;
        }
        assert_int_equal(run.n_trace, first.n_trace);
        for (size_t i = 0; i < run.n_trace; i++)
            if (run.trace[i] != first.trace[i])
                fail_msg("%s: byte %zu differs with %d threads", row->op, i, threads);
        run_free(&run);
    }
    run_free(&first);
    fixture_close(fx);
}

// vmath.h promises 2 ULP; ops_ref.h counts on 4. 2 ULP is at most 4 u of the value.
TEST(test_exp_is_within_two_ulp)
{
    for (int i = 0; i <= 400000; i++) {
        float x = -87.3f + (float)i * (175.59f / 400000), got = vmath_exp(x);
        double want = exp((double)x);
        if (!(fabs(got - want) <= 4 * U * want)) fail_msg("exp(%.9g) is %.9g, should be %.9g", x, got, want);
    }
    assert_true(isnan(vmath_exp(NAN)));
    assert_true(vmath_exp(-INFINITY) < 2e-38f && vmath_exp(-INFINITY) >= 0 && vmath_exp(INFINITY) > 1e38f);
}

// All floats of an exponent's range in steps; the bound on both sides of the seam at 0.625 is 2 ULP, 4 u.
TEST(test_tanh_is_within_two_ulp)
{
    for (int i = 0; i <= 1000000; i++)
        for (int far = 0; far < 2; far++) {
            float x = far ? -10 + (float)i * 2e-5f : (float)pow(2, -30 + (double)i * 3.2e-5), got = vmath_tanh(x);
            double want = tanh((double)x);
            if (!(fabs(got - want) <= 4 * U * fabs(want))) fail_msg("tanh(%.9g) is %.9g, should be %.9g", x, got, want);
        }
    assert_true(isnan(vmath_tanh(NAN)));
    assert_true(vmath_tanh(INFINITY) == 1 && vmath_tanh(-INFINITY) == -1 && vmath_tanh(0) == 0);
}

TEST(test_every_op_has_a_row)
{
    for (size_t slot = offsetof(Dev, matmul_forward); slot < sizeof(Dev); slot += sizeof(void (*)(void))) {
        bool found = false;
        for (size_t i = 0; i < N_ROWS; i++) found = found || rows[i].slot == slot;
        if (!found) fail_msg("the entry at offset %zu of Dev has no row here: add one", slot);
    }
}

TEST(test_comparison_sees_nan)
{
    float inp[4] = {1, 2, NAN, 4}, weight[2] = {1, 1}, out[2];
    double want[2] = {3, 6}, err[2] = {1e30, 1e30};
    Dev *dev = dev_cpu_create(1);
    dev->matmul_forward(dev, XM(out), XC(inp), XC(weight), NULL, 2, 2, 1, -1);
    dev_cpu_free(dev);
    assert_int_equal(first_bad(out, want, err, 2), 1);
    float numbers[2] = {3, 6}, infinite[2] = {3, INFINITY};
    assert_int_equal(first_bad(numbers, want, err, 2), 2);
    assert_int_equal(first_bad(infinite, want, err, 2), 1);
    err[0] = NAN;
    assert_int_equal(first_bad(numbers, want, err, 2), 0);
    err[0] = INFINITY;
    assert_int_equal(first_bad(numbers, want, err, 2), 0);
}

// A table with a hole ends the program with the name of the op.
TEST(test_missing_op_is_named)
{
    Dev *dev = dev_cpu_create(1);
    for (size_t i = 0; i < N_ROWS; i++) {
        Dev hole = *dev;
        char quoted[64];
        memset((char *)&hole + rows[i].slot, 0, sizeof(void (*)(void)));
        snprintf(quoted, sizeof quoted, "'%s'", rows[i].op);
        expect_dies(quoted, dev_check_complete(&hole));
    }
    dev_cpu_free(dev);
}

// Adding the same number to all logits of a row changes nothing. In eighths, and 512 more, both are exact, so that not
// even a bit may change; without the subtraction of the maximum, e^512 would be infinite.
TEST(test_xent_of_large_logits)
{
    Dev *dev = dev_cpu_create(2);
    enum { N = 3, V = 19 };
    float low[N * V], high[N * V], loss[2][N], dlogits[2][N * V];
    const int32_t target[N] = {0, 7, V - 1};
    for (int i = 0; i < N * V; i++) {
        low[i] = (float)(i * 37 % 101) / 8;
        high[i] = low[i] + 512;
    }
    dev->softmax_xent(dev, loss[0], XM(dlogits[0]), XC(low), target, N, V, 1, 0);
    dev->softmax_xent(dev, loss[1], XM(dlogits[1]), XC(high), target, N, V, 1, 0);
    for (int n = 0; n < N; n++) assert_true(loss[0][n] > 0 && loss[0][n] < 20);
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(dlogits[0], dlogits[1], sizeof dlogits[0]);
    dev_cpu_free(dev);
}

int main(void)
{
    static char names[N_ROWS][64];
    for (size_t i = 0; i < N_ROWS; i++) {
        const Row *row = &rows[i];
        if (row->file) snprintf(names[i], sizeof names[i], "%s, PyTorch's %s", row->op, row->prefix);
        else snprintf(names[i], sizeof names[i], "%s, %zu x %zu", row->op, row->dim[0], row->dim[1]);
        test_list[n_listed++] =
            (struct CMUnitTest){.name = names[i], .test_func = test_row, .initial_state = (void *)row};
    }
    return RUN_TESTS(NULL, NULL);
}
