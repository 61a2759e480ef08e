// test_pipeline_engine: the engine of a pipeline does what the table says, when the table says it; which layers are
// where, and what is refused. (Bits, bytes held and bytes sent: test_layouts.)
#include "test/test.h"

#include "base/rng.h"
#include "dev/check/comm_threads.h"
#include "src/check/pipeline_draw.h"
#include "expect_die.h"
#include "ops/dev_cpu.h"
#include "parallel/pipeline.h"
#include "parallel/pipeline_check.h"
#include "temp_dir.h"

// ---- time

enum { T = 8, SAMPLES = 8, MAX_RANKS = 4 };

static const ModelShape llama = {
    .layers = 8, .channels = 6, .heads = 4, .kv_heads = 2, .head_size = 4, .ffn = 10, .vocab = 23, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};

static const struct {
    const char *schedule;
    int p, v;
    size_t micro;
} layouts[] = {
    {"gpipe", 2, 1, 2},       {"1f1b", 2, 1, 2},        {"1f1b", 3, 1, 2},        {"1f1b", 4, 1, 1},
    {"interleaved", 2, 2, 2}, {"interleaved", 2, 3, 1}, {"interleaved", 4, 2, 2}, {"zb-h1", 2, 1, 2},
    {"zb-h1", 3, 1, 1},       {"zb-v", 2, 2, 2},        {"zb-v", 3, 2, 2},        {"zb-v", 4, 2, 1},
    {"v-half", 2, 2, 1},      {"v-half", 3, 2, 2},      {"v-min", 3, 2, 1},       {"v-min", 4, 2, 1},
    {"interleaved", 1, 3, 2}, {"1f1b", 1, 1, 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct {
    PipelineTable *table;
    size_t micro;
    const PipelineTimes *times; // NULL: by the clock
    PipelineTimeline line;
    int in_flight[MAX_RANKS];
} Play;

// Two steps on the stages, which are threads; the second one's times.
static void play_stage(Comm *world, void *arg)
{
    Play *p = arg;
    int stage = world->rank, m = p->table->m;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Comm *pp = comm_split(world, 0, stage, "pp");
    Comm *ends = comm_split(world, stage == 0 || stage == world->size - 1 ? 0 : -1, stage, "ends");
    ModelStage have = pipeline_stage(p->table, stage, llama.layers, NULL);
    ModelOptions options = {.sequences = SAMPLES, .stage = &have};
    Model *model = model_allocate_with(&llama, dev, &mem, p->micro, T, true, options);
    params_init(&model->params, 1, model->weights);
    Pipeline *pipe = pipeline_create(model, p->table, stage, pp, ends);
    int32_t token[SAMPLES * T];
    float loss[SAMPLES * T];
    PipelineMicro micro[SAMPLES];
    for (int i = 0; i < SAMPLES * T; i++) token[i] = i % 23;
    for (int i = 0; i < m; i++) {
        size_t at = (size_t)i * p->micro * T;
        micro[i] = (PipelineMicro){.token = token + at, .target = token + at, .B = p->micro, .T = T, .loss = loss + at};
    }
    pipeline_share_tied(pipe);
    pipeline_record(pipe, p->times);
    for (int k = 0; k < 2; k++) pipeline_step(pipe, micro, 1);
    p->in_flight[stage] = pipe->most_in_flight;
    PipelineTimeline line = pipeline_timeline(pipe);
    if (stage == 0) p->line = line;
    else pipeline_time_free(&line);
    pipeline_free(pipe);
    end_model(model, &mem, dev);
}

static Play play(int k, const PipelineTimes *times)
{
    size_t micro = layouts[k].micro;
    PipelineSchedule schedule = pipeline_table_find(layouts[k].schedule);
    Play p = {.micro = micro, .times = times,
              .table = pipeline_table_make(schedule, layouts[k].p, (int)(SAMPLES / micro), layouts[k].v)};
    comm_threads_run(layouts[k].p, play_stage, &p);
    return p;
}

static void release(Play *p)
{
    pipeline_time_free(&p->line);
    pipeline_table_free(p->table);
}

// The engine's own actions, on a clock that the messages carry, begin and end when the simulator says: so its order is
// the table's, every action waits for its input, and for nothing else. As many activations are in flight as is proved.
TEST(test_made_up_times)
{
    const PipelineTimes all[] = {{1, 1, 1, 0, 0}, {1, 1.5, 0.75, 0.125, 0}};
    for (int k = 0; k < LAYOUTS; k++)
        for (int i = 0; i < 2; i++) {
            char why[512];
            PipelineTimeline paper;
            PipelineProof proof;
            Play r = play(k, &all[i]);
            const PipelineTable *t = r.table;
            assert_true(pipeline_time_run(&paper, t, &all[i], why, sizeof why));
            assert_int_equal(r.line.begin[t->p], paper.begin[t->p]);
            for (size_t j = 0; j < paper.begin[t->p]; j++)
                if (r.line.span[j].start != paper.span[j].start || r.line.span[j].end != paper.span[j].end)
                    fail_msg("%s: stage %d, action %zu: from %g to %g, by the table from %g to %g", layouts[k].schedule,
                             paper.span[j].stage, j, r.line.span[j].start, r.line.span[j].end, paper.span[j].start,
                             paper.span[j].end);
            assert_true(pipeline_check(t, &proof, why, sizeof why));
            for (int s = 0; s < t->p; s++)
                assert_int_equal(r.in_flight[s], t->split ? proof.held[s] : proof.active[s]);
            pipeline_time_free(&paper);
            release(&r);
        }
}

// By the clock: no action begins before its stage is free and before its input was made.
TEST_IN_DIR(test_trace)
{
    for (int k = 4; k < LAYOUTS; k += 3) {
        Play r = play(k, NULL);
        const PipelineTable *t = r.table;
        int *index = pipeline_table_index(t);
        for (int s = 0; s < t->p; s++)
            for (size_t i = r.line.begin[s]; i < r.line.begin[s + 1]; i++) {
                const PipelineSpan *now = &r.line.span[i];
                assert_true(now->end >= now->start && now->start >= (i > r.line.begin[s] ? now[-1].end : 0));
                PipelinePlace source = pipeline_table_source(t, s, now->action);
                if (source.stage < 0) continue;
                size_t key = pipeline_table_key(t, source.stage, now->action.op, now->action.micro, source.chunk);
                assert_true(now->start >= r.line.span[r.line.begin[source.stage] + (size_t)index[key]].end);
            }
        pipeline_draw_trace(&r.line, 1e6, in_dir("trace.json"));
        assert_int_equal(unlink(in_dir("trace.json")), 0);
        free(index);
        release(&r);
    }
}

// ---- bytes

static void *nowhere(size_t n_bytes)
{
    static char here;
    (void)n_bytes;
    return &here;
}

static void forget(void *ptr)
{
    (void)ptr;
}

// The formula for activations, for every schedule and way to recompute, against what a model asks for.
TEST(test_activations)
{
    Dev *dev = dev_cpu_create(1);
    for (int i = 0; i < LAYOUTS * 9; i++) {
        int k = i / 9, mode = i % 9;
        RecomputePolicy policy = {.mode = (RecomputeMode)(mode % 6), .every = 2, .compress = mode == 6,
                                  .offload = mode > 6};
        size_t micro = layouts[k].micro;
        PipelineSchedule schedule = pipeline_table_find(layouts[k].schedule);
        PipelineTable *t = pipeline_table_make(schedule, layouts[k].p, (int)(SAMPLES / micro), layouts[k].v);
        for (int s = 0; s < t->p; s++) {
            size_t held, bytes = pipeline_bytes(t, s, NULL, &llama, dev, policy, micro, T, &held);
            Mem door = {.raw_alloc = nowhere, .raw_free = forget};
            ModelStage have = pipeline_stage(t, s, llama.layers, NULL);
            Model *m = model_allocate_with(&llama, dev, &door, micro, T, true,
                                           (ModelOptions){.recompute = policy, .stage = &have});
            Pipeline *pipe = pipeline_create(m, t, s, NULL, NULL);
            assert_int_equal(door.tag_bytes[MEM_ACTS], bytes);
            assert_true(held <= bytes);
            if (t->v == 1 && !t->split && mode == 0) assert_int_equal(held, bytes); // nothing else is there
            pipeline_free(pipe);
            model_free(m);
            mem_free_all(&door);
        }
        pipeline_table_free(t);
    }
    dev_cpu_free(dev);
}

// ---- who has what

TEST(test_layers)
{
    for (int pieces = 1; pieces <= 16; pieces++)
        for (size_t L = (size_t)pieces; L < 70; L++) {
            size_t next = 0, first, n = 0, ends[2] = {0};
            for (int q = 0; q < pieces; q++) {
                n = pipeline_layers(L, pieces, q, &first);
                assert_int_equal(first, next);
                assert_true(n >= L / (size_t)pieces && n <= L / (size_t)pieces + 1);
                if (q == 0) ends[0] = n;
                next += n;
            }
            ends[1] = n;
            assert_int_equal(next, L);
            size_t rest = L % (size_t)pieces;
            assert_int_equal(ends[1], L / (size_t)pieces); // the head's piece has never more
            if (rest + 2 <= (size_t)pieces) assert_int_equal(ends[0], L / (size_t)pieces);
        }
}

// Any number of layers for each piece.
TEST(test_layers_of_ones_own)
{
    const size_t counts[4] = {1, 5, 2, 1};
    PipelineTable *t = pipeline_table_make(PIPELINE_ZB_V, 2, 4, 2);
    ModelStage s = pipeline_stage(t, 0, 9, counts);
    assert_true(s.chunk[0].first == 0 && s.chunk[0].layers == 1 && s.chunk[1].first == 8 && s.chunk[1].layers == 1);
    assert_true(s.chunk[0].embedding && !s.chunk[0].head && s.chunk[1].head && !s.chunk[1].embedding);
    s = pipeline_stage(t, 1, 9, counts);
    assert_true(s.chunk[0].first == 1 && s.chunk[0].layers == 5 && s.chunk[1].first == 6 && s.chunk[1].layers == 2);
    pipeline_table_free(t);
}

// A batch that grows: in no chunk of a stage has a table of fewer micro-batches more of them in flight.
TEST(test_fewer_need_no_more)
{
    for (int schedule = 0; schedule < PIPELINE_USER; schedule++)
        for (int p = 1; p <= 9; p++)
            for (int v = 1; v <= 4; v++) {
                bool loops = schedule == PIPELINE_INTERLEAVED;
                int grain = loops ? p : 1;
                if (loops ? v < 2 : v != pipeline_table_chunks(schedule)) continue;
                for (int m = grain, before[9][4][3] = {0}; m <= 40; m += grain) {
                    PipelineTable *t = pipeline_table_make((PipelineSchedule)schedule, p, m, v);
                    for (int s = 0; s < p; s++) {
                        ModelStage need = pipeline_stage(t, s, (size_t)(p * v), NULL);
                        for (int c = 0; c < v; c++) {
                            const ModelPiece *q = &need.chunk[c];
                            int *b = before[s][c];
                            assert_true(q->active >= b[0] && q->held >= b[1] && q->late >= b[2]);
                            b[0] = q->active, b[1] = q->held, b[2] = q->late;
                        }
                    }
                    pipeline_table_free(t);
                }
            }
}

static void choose(const char *schedule, int p, int m, int v, size_t layers, bool deterministic)
{
    pipeline_table_free(pipeline_choose(schedule, p, m, v, layers, deterministic));
}

TEST_IN_DIR(test_refusals)
{
    char words[500];
    expect_dies("parallel.pp = 4, chunks = 1: 4 pieces, but the model has 3 layers", choose("1f1b", 4, 8, 0, 3, true));
    expect_dies("parallel.pp = 4, chunks = 2: 8 pieces, but the model has 7 layers",
                choose("interleaved", 4, 8, 2, 7, true));
    expect_dies("2 micro-batches on 4 stages: fewer than stages", choose("interleaved", 4, 2, 2, 8, true));
    expect_dies("(take 4 or 8 micro-batches)", choose("interleaved", 4, 6, 2, 8, true));
    expect_dies("parallel.schedule = 1f2b: no such schedule", choose("1f2b", 4, 6, 0, 8, true));
    char *path = in_dir("table.csv");
    PipelineTable *t = pipeline_table_make(PIPELINE_GPIPE, 2, 3, 1);
    pipeline_table_write(t, path);
    choose(path, 2, 3, 0, 8, true);
    expect_dies("the file has 2 stages, parallel.pp = 3", choose(path, 3, 3, 0, 8, true));
    expect_dies("the file has 3 micro-batches, a step has 4", choose(path, 2, 4, 0, 8, true));
    expect_dies("the file has 1 chunks, parallel.chunks = 2", choose(path, 2, 3, 2, 8, true));
    PipelineAction swap = t->action[1][3]; // B of 0 and of 1
    t->action[1][3].micro = 1, t->action[1][4].micro = 0;
    pipeline_table_write(t, path);
    expect_dies("stage 1 slot 3: B of micro-batch 1 of chunk 0 does not follow that of 0",
                choose(path, 2, 3, 0, 8, true));
    choose(path, 2, 3, 0, 8, false); // a table that runs
    swap.slot = 4, t->action[1][4] = swap, t->action[1][4].micro = 1; // twice, and not that of 0
    pipeline_table_write(t, path);
    snprintf(words, sizeof words,
             "parallel.table = %s: stage 1 slot 4: B of micro-batch 1, chunk 0: a second time", path);
    expect_dies(words, choose(path, 2, 3, 0, 8, false));
    pipeline_table_free(t);
}

TESTS(NULL, NULL)
