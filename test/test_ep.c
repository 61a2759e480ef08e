// test_ep: ranks that divide the experts, played by threads, against one process that has them all: the same bits of
// losses and gradients on a deterministic device. Loads are even, uneven and on one rank alone; slots are dropped or
// not. (Sums in any order: parity.c, with its bound.)
#include "step_run.h"

#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "net/experts.h"
#include "ops/dev_cpu.h"
#include "ops/narrow.h"
#include "parallel/parts.h"

#include <string.h>

enum { MOST = 8, SEQUENCES = 8 };

typedef enum { EVEN, UNEVEN, ONE_RANK } Load;

typedef struct {
    int ranks;
    Load load;
    double capacity, room;
    bool narrow, full, shared;
    size_t k;
} Case;

typedef struct {
    const Case *c;
    ModelShape shape;
    float *weights;       // of the whole model
    float *grads[MOST];   // of each rank's table
    Params params[MOST];
    double loss[MOST];
} World;

static ModelShape shape_of(const Case *c)
{
    ModelShape s = moe;
    s.experts.n = 8, s.experts.k = c->k, s.experts.capacity = c->capacity, s.experts.room = c->room;
    s.experts.shared = c->shared ? 14 : 0;
    return s;
}

// Weights whose routers choose all experts, some of them, or those of the first rank alone.
static void make_weights(const Case *c, Model *m)
{
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        size_t C = m->shape.channels;
        if (!strstr(row->name, "router") || c->load == EVEN) continue;
        // equal scores: the lower number; ONE_RANK: the first k, which the first rank has
        for (size_t e = 0; e < 8; e++)
            for (size_t j = 0; j < C; j++) {
                float *w = m->weights + row->offset + e * C + j;
                if (c->load == ONE_RANK || e > 2) *w = 0;
            }
    }
    model_weights_changed(m);
}

static Dev *device_of(const Case *c, Dev **cpu)
{
    *cpu = dev_cpu_create(1);
    (*cpu)->deterministic = true;
    return c->narrow ? narrow_create(*cpu, (NarrowOptions){.x_type = X_BF16}) : *cpu;
}

// Two micro-batches of a rank's sequences.
static double train(Model *m, size_t first, size_t share)
{
    Step step = {.dropout = 0.1f, .step = 3, .documents = true};
    run_batch(m, &step, first, share - share / 2, T);
    if (share / 2) run_batch(m, &step, first + share - share / 2, share / 2, T);
    return model_step_finish(m);
}

static void rank_of(Comm *world, void *arg)
{
    World *w = arg;
    const Case *c = w->c;
    Mem mem = {0};
    Dev *cpu, *dev = device_of(c, &cpu);
    size_t share = SEQUENCES / (size_t)world->size;
    ModelOptions options = {.sequences = SEQUENCES, .parts = parts_make((PartsSettings){.ep = world})};
    if (c->full) options.recompute.mode = RECOMPUTE_FULL;
    Model *m = model_allocate_with(&w->shape, dev, &mem, share, T, true, options);
    Params whole;
    Unit *unit;
    model_describe(&w->shape, &whole, &unit);
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        memcpy(m->weights + row->offset, w->weights + whole.row[params_find(&whole, row->name)].offset,
               row->n_elems * sizeof(float));
    }
    model_weights_changed(m);
    w->loss[world->rank] = train(m, (size_t)world->rank * share, share);
    w->grads[world->rank] = zeroed(m->params.n_elems * sizeof(float));
    memcpy(w->grads[world->rank], m->grads, m->params.n_elems * sizeof(float));
    w->params[world->rank] = m->params, m->params = (Params){0};
    free(unit);
    params_free(&whole);
    model_free(m);
    mem_free_all(&mem);
    if (dev != cpu) narrow_free(dev);
    dev_cpu_free(cpu);
}

// The gradient of a tensor over the ranks: the tree of their sums, or that of the only rank which has it.
static void gradient_of(const World *w, const Param *row, float *out)
{
    const float *part[MOST];
    int n = 0;
    for (int r = 0; r < w->c->ranks; r++) {
        int i = params_find(&w->params[r], row->name);
        if (i >= 0) part[n++] = w->grads[r] + w->params[r].row[i].offset;
    }
    bool expert = strstr(row->name, "experts.") != NULL;
    assert_int_equal(n, expert ? 1 : w->c->ranks);
    for (size_t j = 0; j < row->n_elems; j++) {
        float sum[MOST] = {0};
        for (int r = 0; r < n; r++) sum[r] = part[r][j];
        for (int step = 1; step < n; step *= 2)
            for (int r = 0; r + step < n; r += 2 * step) sum[r] += sum[r + step];
        out[j] = sum[0];
    }
}

static double norm_of(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += pow((double)a[i] - (b ? b[i] : 0), 2);
    return sqrt(sum);
}

static void expect_same(const Case *c)
{
    World *w = calloc(1, sizeof *w);
    Mem mem = {0};
    Dev *cpu, *dev = device_of(c, &cpu);
    double loss;
    assert_non_null(w);
    w->c = c, w->shape = shape_of(c);
    Model *one = model_allocate_with(&w->shape, dev, &mem, SEQUENCES, T, true, (ModelOptions){.sequences = SEQUENCES});
    make_weights(c, one);
    w->weights = one->weights;
    loss = train(one, 0, SEQUENCES);
    comm_threads_run(c->ranks, rank_of, w);
    float *got = zeroed(one->params.n_elems * sizeof *got);
    for (int i = 0; i < one->params.n_rows; i++) {
        const Param *row = &one->params.row[i];
        const float *want = one->grads + row->offset;
        gradient_of(w, row, got);
        if (memcmp(got, want, row->n_elems * sizeof *got))
            fail_msg("%s on %d ranks: %g apart of %g", row->name, c->ranks, norm_of(got, want, row->n_elems),
                     norm_of(want, NULL, row->n_elems));
    }
    for (int step = 1; step < c->ranks; step *= 2) // the tree of the ranks' sums
        for (int r = 0; r + step < c->ranks; r += 2 * step) w->loss[r] += w->loss[r + step];
    assert_true(w->loss[0] == loss);
    for (int r = 0; r < c->ranks; r++) free(w->grads[r]), params_free(&w->params[r]);
    free(got);
    free(w);
    model_free(one);
    mem_free_all(&mem);
    if (dev != cpu) narrow_free(dev);
    dev_cpu_free(cpu);
}

TEST(test_same_bits)
{
    static const Case cases[] = {
        {.ranks = 2, .load = EVEN, .k = 2, .shared = true},
        {.ranks = 4, .load = EVEN, .k = 2, .capacity = 1.2},
        {.ranks = 8, .load = EVEN, .k = 3, .shared = true},
        {.ranks = 4, .load = UNEVEN, .k = 2},
        {.ranks = 4, .load = ONE_RANK, .k = 2},
        {.ranks = 8, .load = ONE_RANK, .k = 1, .capacity = 1},
        {.ranks = 2, .load = UNEVEN, .k = 2, .capacity = 1.2, .full = true, .shared = true},
        {.ranks = 4, .load = EVEN, .k = 8}, // every expert
        {.ranks = 4, .load = UNEVEN, .k = 2, .shared = true, .narrow = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_same(&cases[i]);
}

// Rows per token: those of all ranks, each of which may want every expert that one has; or as many as `room` says.
TEST(test_room)
{
    ModelExperts x = {.n = 8, .k = 2};
    assert_int_equal(experts_rows(&x), 2);
    x.ranks = 4;
    assert_int_equal(experts_rows(&x), 8); // 4 ranks, 2 experts here
    x.ranks = 8;
    assert_int_equal(experts_rows(&x), 8); // 8 ranks, 1 expert here
    x.room = 1.5;
    assert_int_equal(experts_rows(&x), 3);
    x.room = 100;
    assert_int_equal(experts_rows(&x), 8);
}

static int divided_badly(void *arg)
{
    (void)arg;
    ep_shape(&moe, 0, 2); // of 5 experts
    return 0;
}

TEST(test_refused)
{
    expect_die(divided_badly, NULL, "model.experts = 5");
}

TESTS(NULL, NULL)
