// test_cp_model: models whose sequences are cut over 2 and 4 ranks (threads), against one rank: loss, every gradient,
// evaluation and sampling; also with tensor and sequence parallelism and replicas; bit for bit on a deterministic
// device, otherwise within the bound for another order of sums. Bytes sent and held against the formulas.
// deeper: both ways and both dealings, with and without dropout, on 2 and on 4 ranks
#define CASE_T 16
#include "deeper.h"
#include "dev/check/comm_threads.h"
#include "tp_case.h"

#include "expect_die.h"

static const ModelShape bare = { // no biases, learned positions, an untied head
    .layers = 2, .channels = 8, .heads = 4, .kv_heads = 2, .head_size = 2, .ffn = 12, .vocab = 37, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f};
static const ModelShape whole = { // queries of a token that are normalised together, more of them than 2 C; as in OLMo 2
    .layers = 2, .channels = 8, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 12, .vocab = 37, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true,
    .qk_norm = QK_NORM_WHOLE, .norm_place = NORM_OF_OUTPUT};
static const ModelShape *const shapes[] = {&gpt, &llama, &bare, &whole};
enum { SHAPES = 4, CUT_SHAPES = 3, BLOCKS = 16 }; // the last one's heads cannot be cut

static void expect_same(const Case *c, const Outcome *r, const Outcome *one)
{
    assert_memory_equal(r->weights, one->weights, one->n * sizeof *one->weights);
    if (!same(r, one))
        fail_msg("%zu layers, %s, %d x %d ranks, dp %d, sp %d, recompute %d, micro %zu: other bits: loss %.17g, one "
                 "rank %.17g; evaluated %.17g, %.17g; gradients %g apart; logits %g, %g", c->shape->layers,
                 c->set.way == CP_RING ? "ring" : "gather", c->cp, c->ranks, c->dp, c->sequence, (int)c->recompute.mode,
                 c->micro, r->loss, one->loss, r->eval_loss, one->eval_loss, apart(r->grads, one->grads, one->n),
                 apart(r->logits[0], one->logits[0], c->shape->vocab),
                 apart(r->logits[1], one->logits[1], c->shape->vocab));
}

// ---- bit for bit

TEST(test_deterministic_is_one_rank)
{
    const RecomputeMode modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_SQRT};
    for (int f = 0; f < SHAPES; f++) {
        Case c = {.shape = shapes[f], .ranks = 1, .micro = 2, .deterministic = true, .dropout = 0.2f,
                  .documents = f != 2, .positions = f == 0, .set.blocks = BLOCKS};
        Outcome one = run(c);
        assert_true(one.loss > 0.1 && one.eval_loss > 0.1 && one.logit_norm > 0.1);
        for (c.cp = 2; c.cp <= 4; c.cp *= 2)
            for (int k = 0; k < 4; k++) {
                c.set.way = k % 2 ? CP_GATHER : CP_RING;
                c.micro = k < 2 ? 2 : 4;
                c.recompute = (RecomputePolicy){.mode = modes[k]};
                Outcome r = run(c);
                expect_same(&c, &r, &one);
                release(&r);
            }
        release(&one);
    }
}

// Heads and vocabulary cut too, and a rank's rows of the stream; two replicas.
TEST(test_mesh_is_one_rank)
{
    for (int f = 0; f < CUT_SHAPES; f++) {
        Case c = {.shape = shapes[f], .ranks = 1, .micro = 2, .deterministic = true, .dropout = 0.2f,
                  .documents = f != 2, .set.blocks = BLOCKS};
        Outcome one = run(c);
        static const int mesh[][4] = {{1, 2, 2, 0}, {1, 2, 2, 1}, {1, 4, 2, 1}, {2, 2, 1, 0}, {2, 2, 2, 1}};
        for (size_t k = 0; k < sizeof mesh / sizeof *mesh; k++) {
            c.dp = mesh[k][0], c.cp = mesh[k][1], c.ranks = mesh[k][2], c.sequence = mesh[k][3];
            c.recompute = (RecomputePolicy){.mode = k % 2 ? RECOMPUTE_SELECTIVE : RECOMPUTE_FULL};
            Outcome r = run(c);
            expect_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

// What is stored in 16 bits is rounded at the same places.
TEST(test_narrow_is_one_rank)
{
    for (int f = 0; f < SHAPES; f++) {
        Case c = {.shape = shapes[f], .ranks = 1, .micro = 2, .deterministic = true, .dropout = 0.2f,
                  .documents = true, .set.blocks = BLOCKS, .x_type = X_BF16};
        Outcome one = run(c);
        for (c.cp = 2; c.cp <= 4; c.cp *= 2) {
            Outcome r = run(c);
            expect_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

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
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
}

TEST(test_shorter_sequences)
{
    double one[3] = {0}, two[3] = {0};
    comm_threads_run(1, shorter_steps, one);
    comm_threads_run(2, shorter_steps, two);
    assert_memory_equal(one, two, sizeof one);
    assert_true(one[1] > 0 && one[2] != one[0]);
}

// ---- within the bound

TEST(test_fast_is_close)
{
    for (int f = 0; f < CUT_SHAPES; f++)
        for (int drop = 0; drop < 2; drop++) {
            Case c = {.shape = shapes[f], .ranks = 1, .micro = 2, .dropout = drop ? 0.2f : 0, .documents = drop,
                      .positions = drop};
            Outcome one = run(c);
            c.cp = 4;
            double bound = 2 * chain(&c) * (FLT_EPSILON / 2) * sum_of_norms(&c);
            assert_true(bound < 0.02 * sqrt(one.squares)); // small enough to see any tensor that is missing
            for (c.cp = 2; c.cp <= 4; c.cp *= 2)
                for (int k = 0; k < 6; k++) {
                    if (!deeper() && (k + k / 2 + c.cp / 2 + drop) % 2) continue;
                    c.set = (CpSettings){.assign = k % 2 ? CP_CONTIGUOUS : CP_ZIGZAG,
                                         .way = k / 2 % 2 ? CP_GATHER : CP_RING};
                    c.ranks = k < 4 ? 1 : 2, c.sequence = k == 5;
                    c.dp = k == 3 && c.cp == 2 ? 2 : 1;
                    c.recompute = (RecomputePolicy){.mode = k % 3 == 0 ? RECOMPUTE_NONE : k % 3 == 1 ? RECOMPUTE_FULL
                                                                                         : RECOMPUTE_SELECTIVE};
                    Outcome r = run(c);
                    assert_memory_equal(r.weights, one.weights, one.n * sizeof *one.weights);
                    check_close(&c, &r, &one, bound);
                    release(&r);
                }
            release(&one);
        }
}

// ---- bytes

// Each layer once forward and once back, and forward again where it is run again; nothing else is sent.
TEST(test_bytes_sent)
{
    for (int k = 0; k < 12; k++) {
        bool again = k / 2 % 2, gather = k >= 8;
        Case c = {.shape = k % 2 ? &llama : &gpt, .ranks = k / 4 % 2 ? 2 : 1, .cp = k / 4 == 2 ? 4 : 2, .micro = 2,
                  .recompute.mode = again ? RECOMPUTE_FULL : RECOMPUTE_NONE, .set.way = gather ? CP_GATHER : CP_RING};
        Outcome r = run(c);
        size_t L = c.shape->layers, micros = SAMPLES / c.micro, G = c.shape->kv_heads / (size_t)c.ranks;
        size_t forward = cp_bytes(c.cp, 4, c.micro, T, G, c.shape->head_size, false);
        size_t back = cp_bytes(c.cp, 4, c.micro, T, G, c.shape->head_size, true);
        size_t each = micros * (L * (forward + back) + (again ? (L - 1) * forward : 0)), sent = 0;
        for (int kind = 0; kind < COMM_KINDS; kind++) sent += r.cp_count[kind].sent;
        assert_int_equal(sent, each * (size_t)(c.cp * c.ranks));
        assert_int_equal(gather ? r.cp_count[COMM_SEND].calls : r.cp_count[COMM_ALL_GATHER].calls, 0);
        release(&r);
    }
}

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

// Activations of T / N tokens a sequence; buffers as cp_memory and order_memory say.
TEST(test_bytes_held)
{
    Dev *dev = dev_cpu_create(1);
    for (int k = 0; k < 17; k++) {
        Case c = {.shape = k < 16 ? families[k % 2] : &whole, .ranks = 1 + k / 2 % 2, .cp = 2 + k / 4 % 2 * 2,
                  .micro = 2, .idle = true, .deterministic = k >= 8,
                  .set = {.blocks = k >= 8 ? BLOCKS : 0, .way = k / 3 % 2 ? CP_GATHER : CP_RING},
                  .recompute.mode = k % 3 ? RECOMPUTE_NONE : RECOMPUTE_FULL};
        Outcome r = run(c);
        for (int rank = 0; rank < world_size(&c); rank++) {
            ModelShape part = tp_shape(c.shape, rank % c.ranks, c.ranks, false);
            size_t most = cp_memory(c.set, c.cp, 4, c.micro, T, part.heads, part.kv_heads, part.head_size) +
                          (c.deterministic ? order_memory(&part) : 0);
            assert_int_equal(r.acts[rank], recompute_bytes(&part, dev, c.recompute, c.micro, T / (size_t)c.cp));
            assert_int_equal(r.comm[rank], most);
        }
        release(&r);
    }
    dev_cpu_free(dev);
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
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
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
