// test_cp_model: parts of a model whose sequences are cut over ranks: batches of another length, rows of dropout, the
// head's gradient in chunks; bytes held against the formulas. (Bits, bytes sent and recomputation: test_layouts.)
#include "test/test.h"

#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "narrow/narrow.h"
#include "parallel/parts.h"
#include "whole_case.h"

enum { T = 16 };

static const ModelShape gpt = {
    .layers = 2, .channels = 12, .heads = 4, .kv_heads = 4, .head_size = 4, .ffn = 24, .vocab = 31, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = {
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 33, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};
static const ModelShape whole = { // queries that are normalised together, more of them than 2 C; as in OLMo 2
    .layers = 2, .channels = 8, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 12, .vocab = 37, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true,
    .qk_norm = QK_NORM_WHOLE, .norm_place = NORM_OF_OUTPUT};
static const ModelShape *const shapes[] = {&gpt, &llama, &whole}; // the last one's heads cannot be cut

// A model made for T tokens, given T, T / 2 and T again: losses of each step.
static void shorter_steps(Comm *world, void *arg)
{
    double *loss = arg;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = true;
    comm_set_ordered(world, true);
    PartsSettings parts = {.cp = world, .cp_set.blocks = 4};
    ModelOptions options = {.parts = parts_make(parts), .sequences = 2};
    Model *m = model_allocate_with(&gpt, dev, &mem, 2, T, true, options);
    params_init(&m->params, 1, m->weights);
    make_lively(m);
    for (uint32_t step = 0; step < 3; step++) {
        int32_t token[2 * T], target[2 * T];
        size_t rows = step == 1 ? T / 2 : T;
        for (size_t i = 0; i < 2 * T; i++) token[i] = (int32_t)(5 * i % gpt.vocab), target[i] = (int32_t)(7 * i % 31);
        model_set_batch(m, token, NULL, target, 2, rows);
        model_set_dropout(m, 0.2f, 5, step, 3);
        model_forward_backward(m, 1);
        double own = model_step_finish(m);
        if (world->rank == 0) loss[step] = own;
        else assert_true(own == 0);
        for (size_t i = 0; i < m->params.n_elems; i++) { // the second step's gradient changes the third's loss
            if (world->rank == 0) m->weights[i] -= 0.01f * m->grads[i];
            else assert_true(m->grads[i] == 0);
            m->grads[i] = 0;
        }
        CommRequest request = comm_broadcast(world, m->weights, m->params.n_elems, COMM_FP32, 0);
        comm_wait(world, &request);
        model_weights_changed(m);
    }
    end_model(m, &mem, dev);
}

TEST(test_shorter_sequences)
{
    double one[3] = {0}, two[3] = {0};
    comm_threads_run(1, shorter_steps, one);
    comm_threads_run(2, shorter_steps, two);
    assert_memory_equal(one, two, sizeof one);
    assert_true(one[1] > 0 && one[2] != one[0]);
}

// ---- bytes

// The rows of a whole sequence that rank 0 collects, in fp32: three of the widest activation, two of statistics of all
// heads; and room for gradients that nobody reads.
static size_t order_memory(const ModelShape *s)
{
    size_t qkv = (s->heads + 2 * s->kv_heads) * s->head_size, hidden = s->ffn * (s->swiglu ? 2 : 1);
    size_t wide = qkv > hidden ? qkv : hidden;
    size_t unused = s->qk_norm == QK_NORM_WHOLE ? s->heads * s->head_size : 2 * s->channels;
    assert_true(wide > s->channels && unused >= 2 * s->channels && 2 * s->channels > s->head_size);
    return 3 * ((T * wide + 15) / 16 * 64) + 2 * ((T * s->heads + 15) / 16 * 64) + unused * 4;
}

// Activations of T / N tokens a sequence; buffers as cp_memory and order_memory say. Nothing is sent.
TEST(test_bytes_held)
{
    for (int k = 0; k < 2 * 17; k++) {
        const ModelShape *shape = k < 32 ? shapes[k / 2 % 2] : &whole;
        int tp = k < 32 ? 1 + k / 4 % 2 : 1, size = 2 + k / 8 % 2 * 2;
        bool ordered = k >= 16;
        Dev *dev = dev_cpu_create(1);
        dev->deterministic = ordered;
        Comm tensor = {.size = tp, .rank = tp - 1}, context = {.size = size, .rank = k % 2, .ordered = ordered};
        CpSettings set = {.blocks = ordered ? 16 : 0, .way = k / 3 % 2 ? CP_GATHER : CP_RING};
        RecomputePolicy policy = {.mode = k % 3 ? RECOMPUTE_NONE : RECOMPUTE_FULL};
        ModelOptions options = {.parts = parts_make((PartsSettings){.tp = &tensor, .cp = &context, .cp_set = set}),
                                .sequences = 8, .recompute = policy};
        Mem mem = {0};
        Model *m = model_allocate_with(shape, dev, &mem, 2, T, true, options);
        ModelShape part = tp_shape(shape, tp - 1, tp, false);
        assert_int_equal(mem.tag_bytes[MEM_ACTS], recompute_bytes(&part, dev, policy, 2, T / (size_t)size));
        assert_int_equal(mem.tag_bytes[MEM_COMM],
                         cp_memory(set, size, 4, 2, T, part.heads, part.kv_heads, part.head_size) +
                             (ordered ? order_memory(&part) : 0));
        end_model(m, &mem, dev);
    }
}

// ---- parts

// Rows of dropout that stand anywhere in the whole array are rows of it; in both storage types, in small pieces.
TEST(test_dropout_of_rows)
{
    enum { ROWS = 24, WIDTH = 7 };
    static const int32_t place[] = {3, 4, 5, 17, 0, 23, 11, 12};
    enum { OWN = sizeof place / sizeof *place };
    Dev *cpu = dev_cpu_create(2), *narrow = narrow_create(cpu, (NarrowOptions){.x_type = X_BF16, .chunk_floats = 20});
    Dev *const devs[] = {cpu, narrow};
    for (int d = 0; d < 2; d++)
        for (uint64_t first = 40; first < 45; first++) {
            Dev *dev = devs[d];
            float ones[ROWS * WIDTH], whole[ROWS * WIDTH], own[OWN * WIDTH];
            char x[2][sizeof ones];
            Dropout drop = {.p = 0.4f, .rng = rng_make(2, "rows", 1), .first = first};
            int kept = 0;
            for (int i = 0; i < ROWS * WIDTH; i++) ones[i] = 1;
            dev->to_x(dev, (X *)x[0], ones, ROWS * WIDTH);
            dev->dropout(dev, (X *)x[1], (X *)x[0], ROWS * WIDTH, drop);
            dev->from_x(dev, whole, (X *)x[1], ROWS * WIDTH);
            drop.row = place, drop.width = WIDTH;
            dev->dropout(dev, (X *)x[1], (X *)x[0], OWN * WIDTH, drop);
            dev->from_x(dev, own, (X *)x[1], OWN * WIDTH);
            for (int r = 0; r < OWN; r++)
                assert_memory_equal(own + r * WIDTH, whole + place[r] * WIDTH, WIDTH * sizeof *own);
            for (int i = 0; i < ROWS * WIDTH; i++) kept += whole[i] > 0;
            assert_true(kept > 0 && kept < ROWS * WIDTH);
        }
    narrow_free(narrow);
    dev_cpu_free(cpu);
}

// The head's gradient in chunks that end where a stretch of rows does: the product of all rows at once.
enum { N_ROWS = 24, IN = 3, OUT = 5, CHUNK = 4 };

static void fill(float *to, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = (float)rng_normal(rng_make(6, name, 0), i);
}

static void head_of_a_rank(Comm *world, void *arg)
{
    float *sum = arg, dlogits[N_ROWS * OUT], inp[N_ROWS * IN], grad[OUT * IN] = {0};
    fill(dlogits, "dlogits", N_ROWS * OUT);
    fill(inp, "inp", N_ROWS * IN);
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = true;
    Mem mem = {0};
    size_t N = N_ROWS / (size_t)world->size, n;
    CpSettings set = {.blocks = 4};
    Cp *cp = cp_create(world, dev, &mem, set, 1, N_ROWS, 1, 1, 2);
    ModelShape shape = {.channels = IN, .heads = 1, .kv_heads = 1, .head_size = 2, .ffn = OUT};
    cp_keep_order(cp, &shape);
    for (size_t n0 = 0; n0 < N; n0 += n) {
        float part[CHUNK * OUT], rows[CHUNK * IN];
        n = cp_head_rows(cp, n0, N, CHUNK);
        assert_true(n >= 1 && n <= CHUNK && (n0 >= N / 2 || n0 + n <= N / 2));
        for (size_t i = 0; i < n; i++) {
            size_t at = cp_position(CP_ZIGZAG, N_ROWS, world->rank, world->size, n0 + i);
            memcpy(part + i * OUT, dlogits + at * OUT, sizeof *part * OUT);
            memcpy(rows + i * IN, inp + at * IN, sizeof *rows * IN);
        }
        cp_head_backward_weight(cp, grad, (X *)part, (X *)rows, n0, n, CHUNK, N, IN, OUT, -1);
    }
    memcpy(sum + (size_t)world->rank * OUT * IN, grad, sizeof grad);
    free(cp);
    mem_free_all(&mem);
    dev_cpu_free(dev);
}

TEST(test_head_in_chunks)
{
    float dlogits[N_ROWS * OUT], inp[N_ROWS * IN], want[OUT * IN] = {0}, got[2][OUT * IN], none[OUT * IN] = {0};
    fill(dlogits, "dlogits", N_ROWS * OUT);
    fill(inp, "inp", N_ROWS * IN);
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = true;
    dev->matmul_backward_weight(dev, want, NULL, (X *)dlogits, (X *)inp, N_ROWS, IN, OUT, -1);
    comm_threads_run(2, head_of_a_rank, got);
    assert_memory_equal(got[0], want, sizeof want);
    assert_memory_equal(got[1], none, sizeof none); // the sum over ranks is that of the first
    dev_cpu_free(dev);
}

TEST(test_blocks)
{
    static const int want[][2] = {{1, 0}, {7, 0}, {2, 2}, {12, 4}, {16, 16}, {24, 8}, {1024, 16}, {1000, 8}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(cp_blocks((size_t)want[i][0]), want[i][1]);
}

// ---- refused

static int shorter_batch(void *arg)
{
    size_t rows = *(size_t *)arg;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Comm pair = {.size = 2}; // nothing of it is called
    ModelParts parts = parts_make((PartsSettings){.cp = &pair});
    Model *m = model_allocate_with(&llama, dev, &mem, 1, T, true, (ModelOptions){.parts = parts});
    int32_t token[T] = {0};
    model_set_batch(m, token, NULL, token, 1, rows);
    end_model(m, &mem, dev);
    return 0;
}

TEST(test_refusals)
{
    size_t rows = 12; // a shorter one is taken
    assert_int_equal(shorter_batch(&rows), 0);
    rows = 10;
    expect_die(shorter_batch, &rows, "10 tokens in 2 x 2 equal chunks");
}

TESTS(NULL, NULL)
