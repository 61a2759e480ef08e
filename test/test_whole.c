// test_whole: tensors that tensor-parallel ranks (threads) hold in parts come together on their owners and go back:
// each element once, in its place, for uneven vocabularies and for key/value heads with copies; who owns what; bytes
// sent.
#include "dev/check/comm_threads.h"
#include "ops/dev_cpu.h"
#include "parallel/tp.h"
#include "parallel/zero.h"

#include <stdlib.h>
#include "test/test.h"

static const ModelShape gpt = {.layers = 2, .channels = 24, .heads = 6, .kv_heads = 6, .head_size = 4, .ffn = 96,
                               .vocab = 700, .context = 117, .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};
// Two key/value heads: of four ranks two and two have the same.
static const ModelShape llama = {.layers = 4, .channels = 64, .heads = 4, .kv_heads = 2, .head_size = 16, .ffn = 192,
                                 .vocab = 701, .context = 8, .norm = NORM_RMSNORM, .norm_eps = 1e-5f,
                                 .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};

enum { ROWS = 64, RANKS = 4 };

typedef struct {
    const ModelShape *shape;
    OptimName name;
    bool agc;
    ClipUnit unit;
    int worked[RANKS][ROWS], n_rows; // how often each rank worked on each row
    bool moved[ROWS];
    size_t sent[RANKS], planned;
} Play;

typedef struct {
    Play *play;
    const Params *params;
    int rank;
} Worker;

// Of element i of row r's tensor; exact.
static float value(int r, size_t i)
{
    return (float)(((size_t)r * 100003 + i) % 4000000);
}

static void work(void *arg, int r, float *weight, float *grad)
{
    Worker *w = arg;
    const Param *row = &w->params->row[r];
    for (size_t i = 0; i < row->whole[0] * row->whole[1]; i++) {
        if (weight[i] != value(r, i) || grad[i] != -value(r, i))
            fail_msg("%s: element %zu is %g, its gradient %g", row->name, i, (double)weight[i], (double)grad[i]);
        if (w->play->agc) grad[i] = value(r, i) + 1;
        else weight[i] = value(r, i) + 1;
    }
    w->play->worked[w->rank][r]++;
}

static bool in_parts(const Param *row)
{
    return row->cut >= 0 && row->dim[row->cut] != row->whole[row->cut];
}

static void play(Comm *world, void *arg)
{
    Play *p = arg;
    ModelShape part = tp_shape(p->shape, world->rank, world->size, false);
    Model m = {.shape = *p->shape, .local = part, .dev = dev_cpu_create(1)};
    Mem mem = {0};
    Unit *units;
    m.mem = &mem;
    model_describe(&part, &m.params, &units);
    size_t n = m.params.n_elems;
    float *weight = malloc(n * sizeof *weight), *grad = malloc(n * sizeof *grad);
    if (!weight || !grad) abort();
    assert_true(m.params.n_rows <= ROWS);
    for (int r = 0; r < m.params.n_rows; r++)
        for (size_t j = 0; j < m.params.row[r].n_elems; j++) {
            float v = value(r, params_whole_index(&m.params.row[r], j));
            weight[m.params.row[r].offset + j] = v, grad[m.params.row[r].offset + j] = -v;
        }
    OptimSettings set = {.name = p->name, .agc = p->agc ? 0.1f : 0, .agc_unit = p->unit};
    Whole *whole = whole_create(&m, world, set, NULL, 0);
    OptimWhole is = p->agc ? whole_of_agc(whole) : whole_of_update(whole);
    Worker worker = {p, &m.params, world->rank};
    OptimRange all = {.end = n, .weight = weight, .grad = grad};
    is.visit(is.self, 0, &all, p->agc, work, &worker);
    for (int r = 0; r < m.params.n_rows; r++) {
        const Param *row = &m.params.row[r];
        bool moved = is.owner[r] >= 0;
        if (world->rank == 0) p->moved[r] = moved;
        for (size_t j = 0; j < row->n_elems; j++) {
            float v = value(r, params_whole_index(row, j)), now = v + (float)moved;
            assert_true(weight[row->offset + j] == (p->agc ? v : now));
            assert_true(grad[row->offset + j] == (p->agc && moved ? now : -v));
        }
        assert_true(!moved || in_parts(row));
        if (!is.table) continue;
        const Param *kept = &is.table->row[r];
        size_t want = !moved ? row->n_elems : is.owner[r] == world->rank ? row->whole[0] * row->whole[1] : 0;
        assert_int_equal(kept->dim[0] * kept->dim[1], want);
    }
    p->n_rows = m.params.n_rows;
    p->sent[world->rank] = world->count[COMM_ALL_TO_ALL].sent;
    WholeNeed need = {.kind = optim_kind(p->name), .agc = p->agc, .unit = p->unit};
    WholePlan plan = whole_plan(&m.params, need, NULL, 0, world->size);
    if (world->rank == 0) p->planned = whole_plan_bytes(&plan, &m.params);
    whole_plan_free(&plan);
    whole_free(whole);
    mem_free_all(&mem);
    params_free(&m.params);
    dev_cpu_free(m.dev);
    free(units), free(weight), free(grad);
}

TEST(test_there_and_back)
{
    static const struct {
        const ModelShape *shape;
        int ranks;
        OptimName name;
        bool agc;
        ClipUnit unit;
        int moved; // rows that come together
    } is[] = {{&gpt, 3, OPTIM_ADAFACTOR, false, CLIP_ROW, 2 + 2 * 10},
              {&gpt, 2, OPTIM_MUON, false, CLIP_ROW, 2 * 6},
              {&gpt, 3, OPTIM_ADAMW, true, CLIP_TENSOR, 1 + 2 * 10},
              {&gpt, 2, OPTIM_ADAMW, true, CLIP_ROW, 2 * 6},
              {&llama, 4, OPTIM_MUON, false, CLIP_ROW, 4 * 7},
              {&llama, 4, OPTIM_NORMUON, false, CLIP_ROW, 4 * 7},
              {&llama, 2, OPTIM_ADAFACTOR, false, CLIP_ROW, 30},
              {&llama, 4, OPTIM_ADAMW8BIT, false, CLIP_ROW, 2 + 4 * 5},
              {&llama, 4, OPTIM_LION, true, CLIP_ROW, 4 * 2}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        Play p = {.shape = is[i].shape, .name = is[i].name, .agc = is[i].agc, .unit = is[i].unit};
        comm_threads_run(is[i].ranks, play, &p);
        size_t sent = 0;
        int moved = 0;
        for (int r = 0; r < p.n_rows; r++) {
            int times = 0;
            for (int t = 0; t < is[i].ranks; t++) times += p.worked[t][r];
            assert_int_equal(times, p.moved[r]);
            moved += p.moved[r];
        }
        for (int t = 0; t < is[i].ranks; t++) sent += p.sent[t];
        if (moved != is[i].moved) fail_msg("case %zu: %d tensors came together", i, moved);
        assert_int_equal(sent, p.planned);
    }
}

// Graham: dealt in descending order, each to the idlest, costs differ by one tensor at most. All ranks agree.
TEST(test_balance)
{
    for (int tp = 2; tp <= 4; tp++) {
        double most = 0, least = 0, largest = 0;
        int first[ROWS];
        if (llama.heads % (size_t)tp) continue;
        for (int rank = 0; rank < tp; rank++) {
            ModelShape part = tp_shape(&llama, rank, tp, false);
            Params params;
            Unit *units;
            model_describe(&part, &params, &units);
            WholeNeed need = {.kind = optim_kind(OPTIM_MUON)};
            WholePlan plan = whole_plan(&params, need, NULL, 0, tp);
            double cost[RANKS] = {0};
            for (int r = 0; r < params.n_rows; r++) {
                if (rank == 0) first[r] = plan.owner[r];
                assert_int_equal(plan.owner[r], first[r]);
                if (plan.owner[r] < 0) continue;
                double c = optim_cost(need.kind, &params, &params.row[r]);
                cost[plan.owner[r]] += c;
                if (c > largest) largest = c;
            }
            most = least = cost[0];
            for (int t = 1; t < tp; t++) most = fmax(most, cost[t]), least = fmin(least, cost[t]);
            assert_true(most > 0 && most - least <= largest);
            whole_plan_free(&plan);
            params_free(&params);
            free(units);
        }
    }
    // the products of Newton-Schulz: five times 4 k^2 m + 2 k^3
    Param row = {.ndim = 2, .whole = {8, 3}, .dim = {8, 3}, .unit = 1};
    Params table = {.row = &row, .n_rows = 1, .n_units = 3};
    assert_true(optim_cost(optim_kind(OPTIM_MUON), &table, &row) == 5 * (4.0 * 9 * 8 + 2 * 27));
    assert_true(optim_cost(optim_kind(OPTIM_ADAFACTOR), &table, &row) == 24);
}

// 700 tokens on three ranks are 233, 233 and 234: cut by what a rank has, its embedding of 117 positions would be cut
// elsewhere on the third.
TEST(test_zero_cuts_between_the_same_tensors)
{
    for (int size = 2; size <= 5; size++)
        for (int replica = 0; replica < size; replica++) {
            int first[8];
            for (int rank = 0; rank < 3; rank++) {
                ModelShape part = tp_shape(&gpt, rank, 3, false);
                Params params;
                Unit *units;
                model_describe(&part, &params, &units);
                ZeroCut cut = zero_cut(&params, zero_where(optim_kind(OPTIM_ADAMW8BIT), false, 3), 1, replica, size);
                for (int u = 0; u < params.n_units; u++) {
                    int row = 0;
                    while (row < params.n_rows && params.row[row].offset < cut.begin[u]) row++;
                    assert_true(row == params.n_rows || params.row[row].offset == cut.begin[u]);
                    if (rank == 0) first[u] = row;
                    assert_int_equal(row, first[u]);
                }
                zero_cut_free(&cut);
                params_free(&params);
                free(units);
            }
        }
}

TESTS(NULL, NULL)
