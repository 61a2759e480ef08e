// test_pipeline_run: models on 1 to 4 stages, played by threads, against one rank, for every schedule: loss, every
// gradient, evaluation and sampling; bit for bit on a deterministic device, within the bound of the order of sums else.
// Times, messages and activations against what the table says.
#include "pipeline_run.h"

#include "expect_die.h"
#include "pipeline_draw.h"

#include <unistd.h>

static const struct {
    const char *schedule;
    int p, v;
    size_t micro;
} layouts[] = {
    {"gpipe", 2, 0, 2},       {"1f1b", 2, 0, 2},        {"1f1b", 3, 0, 2},        {"1f1b", 4, 0, 1},
    {"interleaved", 2, 2, 2}, {"interleaved", 2, 3, 1}, {"interleaved", 4, 2, 2}, {"zb-h1", 2, 0, 2},
    {"zb-h1", 3, 0, 1},       {"zb-v", 2, 0, 2},        {"zb-v", 3, 0, 2},        {"zb-v", 4, 0, 1},
    {"interleaved", 1, 3, 2}, {"1f1b", 1, 0, 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void lay_out(Case *c, int k)
{
    c->schedule = layouts[k].schedule, c->p = layouts[k].p, c->v = layouts[k].v, c->micro = layouts[k].micro;
}

static void must_be_same(const Case *c, const Outcome *r, const Outcome *one)
{
    Params params;
    Unit *unit;
    if (same(r, one)) return;
    model_describe(c->shape, &params, &unit);
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i];
        double d = apart(r->grads + row->offset, one->grads + row->offset, row->n_elems);
        if (!(d == 0)) print_message("%s: %g apart\n", row->name, d);
    }
    fail_msg("%s, %d stages, %d chunks, tp %d, sp %d, micro %zu, recompute %d: other bits: loss %.17g, one rank %.17g; "
             "evaluated %.17g, %.17g; logits %g, %g", c->schedule, c->p, c->v, c->tp, c->sequence, c->micro,
             (int)c->recompute.mode, r->loss, one->loss, r->eval_loss, one->eval_loss,
             apart(r->logits[0], one->logits[0], c->shape->vocab),
             apart(r->logits[1], one->logits[1], c->shape->vocab));
}

// ---- bit for bit

static void test_deterministic_is_one_rank(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f, .documents = true};
        Outcome one = run(c);
        assert_true(one.loss > 0.1 && one.eval_loss > 0.1);
        for (int k = 0; k < LAYOUTS; k++) {
            lay_out(&c, k);
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

// Tensor and sequence parallelism inside: 2 stages of 2 ranks.
static void test_tensor_parallel_inside(void **state)
{
    (void)state;
    const char *const schedules[] = {"1f1b", "interleaved", "zb-v"};
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f, .documents = true};
        Outcome one = run(c);
        for (int k = 0; k < 6; k++) {
            c.schedule = schedules[k / 2], c.p = 2, c.tp = 2, c.sequence = k % 2;
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

// Context parallelism inside, where its sums have the order of one rank: 2 stages of 2 ranks, and of 2 x 2.
static void test_context_parallel_inside(void **state)
{
    (void)state;
    const char *const schedules[] = {"1f1b", "interleaved", "zb-v"};
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .blocks = true, .dropout = 0.2f,
                  .documents = true};
        Outcome one = run(c);
        for (int k = 0; k < 6; k++) {
            c.schedule = schedules[k % 3], c.p = 2, c.cp = 2, c.tp = 1 + k / 3, c.sequence = k / 3;
            c.recompute.mode = k % 2 ? RECOMPUTE_SELECTIVE : RECOMPUTE_FULL;
            Outcome r = run(c);
            memcpy(r.losses, one.losses, sizeof r.losses); // each rank has its own tokens'
            must_be_same(&c, &r, &one);
            release(&r);
        }
        release(&one);
    }
}

// What is kept between F, B and W in another form, or made again, is the same; and a second step is like the first.
static void test_recomputation(void **state)
{
    (void)state;
    const char *const schedules[] = {"gpipe", "interleaved", "zb-h1", "zb-v"};
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f};
        Outcome one = run(c);
        for (int k = 0; k < 16; k++) {
            c.schedule = schedules[k % 4], c.p = 2, c.tp = k >= 12 ? 2 : 1, c.sequence = k >= 12;
            c.recompute = (RecomputePolicy){.mode = (RecomputeMode)(1 + k / 4 % 4), .every = 2};
            c.steps = 1 + (k < 4);
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
        }
        c = (Case){.shape = families[f], .micro = 2, .deterministic = true, .recompute = {.compress = true}};
        Outcome packed = run(c);
        for (int k = 0; k < 8; k++) {
            lay_out(&c, 4 + k), c.recompute.mode = k % 2 ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
            if (k == 1) {
                release(&packed);
                c.schedule = NULL, c.p = 0;
                packed = run(c);
                lay_out(&c, 4 + k);
            }
            if (k % 2 != 1 && k > 0) continue;
            Outcome r = run(c);
            must_be_same(&c, &r, &packed);
            release(&r);
        }
        release(&packed);
        release(&one);
    }
}

// ---- a table of one's own

static void write_table(const PipelineTable *t, char *path, size_t n_path, const char *dir)
{
    snprintf(path, n_path, "%s/table.csv", dir);
    pipeline_csv_write(t, path);
}

// 1f1b upside down: the first piece is on the last stage.
static PipelineTable *upside_down(int p, int m)
{
    PipelineTable *t = pipeline_table_new(PIPELINE_USER, p, m, 1, false);
    PipelineTable *like = pipeline_table_make(PIPELINE_1F1B, p, m, 1);
    for (int s = 0; s < p; s++) {
        t->piece[s][0] = p - 1 - s;
        for (int i = 0; i < like->n[p - 1 - s]; i++) {
            PipelineAction a = like->action[p - 1 - s][i];
            pipeline_table_add(t, s, a.op, a.micro, 0);
        }
    }
    pipeline_table_free(like);
    return t;
}

// Everything in turn: F of all, B of all, W of all; the pieces of stage 0 are the middle two, or the outer two.
static PipelineTable *in_turn(int m, bool outer)
{
    PipelineTable *t = pipeline_table_new(PIPELINE_USER, 2, m, 2, true);
    const int piece[2][2] = {{1, 2}, {0, 3}};
    for (int s = 0; s < 2; s++) {
        for (int c = 0; c < 2; c++) t->piece[s][c] = piece[outer ? 1 - s : s][1 - c]; // the later piece is chunk 0
        for (int op = 0; op < PIPELINE_OPS; op++)
            for (int c = 0; c < 2; c++)
                for (int k = 0; k < m; k++) pipeline_table_add(t, s, (PipelineOp)op, k, op == PIPELINE_F ? 1 - c : c);
    }
    return t;
}

static void test_own_tables(void **state)
{
    (void)state;
    char dir[] = "/tmp/pipeline_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    for (int f = 0; f < 2; f++) {
        Case c = {.shape = families[f], .micro = 2, .deterministic = true, .dropout = 0.2f};
        Outcome one = run(c);
        for (int k = 0; k < 3; k++) {
            PipelineTable *t = k == 0 ? upside_down(3, 4) : in_turn(4, k == 2);
            write_table(t, path, sizeof path, dir);
            c.schedule = path, c.p = t->p;
            Outcome r = run(c);
            must_be_same(&c, &r, &one);
            release(&r);
            pipeline_table_free(t);
        }
        release(&one);
    }
    unlink(path);
    rmdir(dir);
}

// ---- within the bound

// Sum over the tokens of the norm of their gradients of embedding and head, which are two tensors here.
static double tied_terms(const Case *c)
{
    double sum = 0;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    ModelShape twin = *c->shape;
    twin.tie = false;
    Model *m = model_allocate(&twin, dev, &mem, 1, T, true);
    params_init(&m->params, 1, m->weights);
    make_lively(m);
    const Param *embed = &m->params.row[params_find(&m->params, "embed.tokens.weight")];
    const Param *head = &m->params.row[params_find(&m->params, "head.weight")];
    memcpy(m->weights + head->offset, m->weights + embed->offset, embed->n_elems * sizeof(float));
    Data d;
    float losses[SAMPLES * T];
    Case one = *c;
    one.samples = 8, one.micro = 1;
    make_data(&d, &one, losses);
    for (int i = 0; i < d.m; i++)
        for (size_t t = 0; t < T; t++) {
            const PipelineMicro *b = &d.micro[i];
            int32_t target[T]; // the gradient of one token's loss
            for (size_t s = 0; s < T; s++) target[s] = s == t ? b->target[s] : -1;
            dev->zero(dev, m->grads, m->params.n_elems * sizeof(float));
            model_set_batch(m, b->token, NULL, target, 1, T);
            if (b->first) model_set_documents(m, b->first);
            model_set_dropout(m, b->dropout, b->seed, b->step, b->sample);
            model_forward_backward(m, 1 / (float)d.valid);
            sum += sqrt(dev->sum_squares(dev, m->grads + embed->offset, embed->n_elems));
            sum += sqrt(dev->sum_squares(dev, m->grads + head->offset, head->n_elems));
        }
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    return sum;
}

// A pipeline runs each chunk's micro-batches in order, as one rank does, so without determinism too nothing differs but
// one sum: the gradient of a tied embedding. One rank adds that of the head and of the embedding in turn, micro-batch
// by micro-batch; here the head's are added apart. Both add the same terms t, a token's part of either, in some order, so
// they differ by at most 2 gamma(n) sum |t|, gamma(n) = n u / (1 - n u), u = 2^-24, n additions (Higham, Accuracy and
// Stability, section 4.2): two for each token, and those of the micro-batches' sums. The same in norms.
static void test_fast_is_close(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        for (int k = 0; k < LAYOUTS; k++) {
            Case c = {.shape = families[f], .dropout = 0.2f, .documents = true, .micro = layouts[k].micro};
            Outcome one = run(c);
            size_t tokens = c.shape->tie ? c.shape->vocab * c.shape->channels : 0; // elements of the first tensor
            double u = FLT_EPSILON / 2, n = 2 * 8 * T + 2 * (double)(8 / c.micro), norm = 0;
            double bound = tokens ? 2 * n * u / (1 - n * u) * tied_terms(&c) : 0;
            lay_out(&c, k);
            c.steps = 2;
            Outcome r = run(c);
            double d = apart(r.grads, one.grads, tokens);
            for (size_t i = 0; i < tokens; i++) norm += (double)one.grads[i] * one.grads[i];
            if (!(d <= bound)) fail_msg("%s: the tied tensor is %g apart, bound %g", c.schedule, d, bound);
            assert_true(bound <= 1e-3 * sqrt(norm)); // a micro-batch less would be seen
            memcpy(r.grads, one.grads, tokens * sizeof(float));
            must_be_same(&c, &r, &one);
            release(&r);
            release(&one);
        }
    }
}

// Storage in 16 bits: messages carry what a stream holds anyway, so nothing is rounded that was not.
static void test_narrow(void **state)
{
    (void)state;
    Case c = {.shape = &llama, .micro = 2, .x_type = X_BF16};
    Outcome one = run(c);
    for (int k = 0; k < LAYOUTS; k += 3) {
        c.micro = 2;
        lay_out(&c, k);
        if (c.micro != 2) continue;
        Outcome r = run(c);
        must_be_same(&c, &r, &one);
        release(&r);
    }
    release(&one);
}

// ---- time

static PipelineTable *table_of(int k, size_t samples)
{
    PipelineSchedule schedule = pipeline_table_find(layouts[k].schedule);
    return pipeline_table_make(schedule, layouts[k].p, (int)(samples / layouts[k].micro), layouts[k].v);
}

// The engine's own actions, on a clock that the messages carry, begin and end when the simulator says: so its order is
// the table's, every action waits for its input, and for nothing else. Hence the papers' bubble.
static void test_made_up_times(void **state)
{
    (void)state;
    const PipelineTimes all[] = {{1, 1, 1, 0}, {1, 1.5, 0.75, 0.125}};
    for (int k = 0; k < LAYOUTS; k++)
        for (int i = 0; i < 2; i++) {
            char why[512];
            PipelineTimeline paper;
            PipelineTable *t = table_of(k, 8);
            Case c = {.shape = &llama, .times = &all[i], .steps = 2};
            lay_out(&c, k);
            Outcome r = run(c);
            assert_true(pipeline_time_run(&paper, t, &all[i], PIPELINE_BUFFERED, why, sizeof why));
            assert_int_equal(r.line.begin[t->p], paper.begin[t->p]);
            for (size_t j = 0; j < paper.begin[t->p]; j++)
                if (r.line.span[j].start != paper.span[j].start || r.line.span[j].end != paper.span[j].end)
                    fail_msg("%s: stage %d, action %zu: from %g to %g, by the table from %g to %g", c.schedule,
                             paper.span[j].stage, j, r.line.span[j].start, r.line.span[j].end, paper.span[j].start,
                             paper.span[j].end);
            double formula = pipeline_time_formula_bubble(t, &all[i]);
            if (!isnan(formula)) assert_true(fabs(pipeline_time_bubble(&r.line) - formula) <= 1e-12);
            pipeline_time_free(&paper);
            pipeline_table_free(t);
            release(&r);
        }
}

// By the clock: no action begins before its stage is free and before its input was made.
static void test_trace(void **state)
{
    (void)state;
    char dir[] = "/tmp/pipeline_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    for (int k = 4; k < LAYOUTS; k += 3) {
        PipelineTable *t = table_of(k, 8);
        Case c = {.shape = &llama, .clock = true};
        lay_out(&c, k);
        Outcome r = run(c);
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
        pipeline_draw_trace(&r.line, 1e6, path);
        assert_int_equal(unlink(path), 0);
        free(index);
        pipeline_table_free(t);
        release(&r);
    }
    rmdir(dir);
}

// ---- bytes

static void test_messages(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++)
        for (int k = 0; k < LAYOUTS; k++) {
            Case c = {.shape = families[f]};
            lay_out(&c, k);
            Outcome r = run(c);
            PipelineTable *t = table_of(k, 8);
            size_t P = (size_t)(t->p * t->v), stream = 4 * c.micro * T * c.shape->channels, sum = 0, borders = P - 1;
            size_t tied = 4 * c.shape->vocab * c.shape->channels;
            if (t->schedule == PIPELINE_ZB_V) borders--; // where the V turns
            if (t->p == 1) borders = 0;
            for (int s = 0; s < t->p; s++) {
                assert_int_equal(r.sent[s], r.formula_sent[s]);
                bool last = t->schedule != PIPELINE_ZB_V && t->p > 1 && s == t->p - 1;
                assert_int_equal(r.guest_sent[s], c.shape->tie && last ? tied : 0);
                sum += r.sent[s];
            }
            assert_int_equal(sum, 2 * borders * (size_t)t->m * stream); // each micro-batch there and back
            pipeline_table_free(t);
            release(&r);
        }
}

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

// Activations: as many in flight as the table proves, in as many bytes as the formula says, for which the door was
// asked; and a door that hands out nothing is asked for the same without any ranks.
static void test_activations(void **state)
{
    (void)state;
    Dev *dev = dev_cpu_create(1);
    for (int k = 0; k < LAYOUTS; k++)
        for (int mode = 0; mode < 6; mode++) {
            Case c = {.shape = families[k % 2]};
            lay_out(&c, k);
            c.recompute = (RecomputePolicy){.mode = (RecomputeMode)(mode % 5), .every = 2, .compress = mode == 5};
            Outcome r = run(c);
            PipelineTable *t = table_of(k, 8);
            PipelineProof proof;
            char why[512];
            assert_true(pipeline_check(t, &proof, why, sizeof why));
            for (int s = 0; s < t->p; s++) {
                size_t held;
                size_t bytes = pipeline_bytes(t, s, NULL, c.shape, dev, c.recompute, c.micro, T, &held);
                assert_int_equal(r.in_flight[s], t->split ? proof.held[s] : proof.active[s]);
                assert_int_equal(r.acts[s], bytes);
                assert_true(held <= bytes);
                if (t->v == 1 && !t->split && mode == 0) assert_int_equal(held, bytes); // nothing else is there
                Mem door = {.raw_alloc = nowhere, .raw_free = forget};
                ModelStage have = pipeline_stage(t, s, c.shape->layers, NULL);
                Model *m = model_allocate_with(c.shape, dev, &door, c.micro, T, true,
                                               (ModelOptions){.recompute = c.recompute, .stage = &have});
                Pipeline *pipe = pipeline_create(m, t, s, NULL, NULL);
                assert_int_equal(door.tag_bytes[MEM_ACTS], bytes);
                assert_int_equal(door.tag_bytes[MEM_COMM], r.comm[s]);
                pipeline_free(pipe);
                model_free(m);
                mem_free_all(&door);
            }
            pipeline_table_free(t);
            release(&r);
        }
    dev_cpu_free(dev);
}

// ---- who has what

static void test_layers(void **state)
{
    (void)state;
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
static void test_layers_of_ones_own(void **state)
{
    (void)state;
    const size_t counts[4] = {1, 5, 2, 1};
    PipelineTable *t = pipeline_table_make(PIPELINE_ZB_V, 2, 4, 2);
    ModelStage s = pipeline_stage(t, 0, 9, counts);
    assert_true(s.chunk[0].first == 0 && s.chunk[0].layers == 1 && s.chunk[1].first == 8 && s.chunk[1].layers == 1);
    assert_true(s.chunk[0].embedding && !s.chunk[0].head && s.chunk[1].head && !s.chunk[1].embedding);
    s = pipeline_stage(t, 1, 9, counts);
    assert_true(s.chunk[0].first == 1 && s.chunk[0].layers == 5 && s.chunk[1].first == 6 && s.chunk[1].layers == 2);
    pipeline_table_free(t);
}

typedef struct {
    const char *schedule;
    int p, m, v;
    size_t layers;
    bool deterministic;
} Choice;

static int choose(void *arg)
{
    const Choice *c = arg;
    pipeline_table_free(pipeline_choose(c->schedule, c->p, c->m, c->v, c->layers, c->deterministic));
    return 0;
}

static void test_refusals(void **state)
{
    (void)state;
    char dir[] = "/tmp/pipeline_XXXXXX", path[64], words[160];
    assert_non_null(mkdtemp(dir));
    Choice c = {"1f1b", 4, 8, 0, 3, true};
    expect_die(choose, &c, "parallel.pp = 4, chunks = 1: 4 pieces, but the model has 3 layers");
    c = (Choice){"interleaved", 4, 8, 2, 7, true};
    expect_die(choose, &c, "parallel.pp = 4, chunks = 2: 8 pieces, but the model has 7 layers");
    c = (Choice){"interleaved", 4, 2, 2, 8, true};
    expect_die(choose, &c, "2 micro-batches on 4 stages: fewer than stages");
    c = (Choice){"interleaved", 4, 6, 2, 8, true};
    expect_die(choose, &c, "(take 4 or 8 micro-batches)");
    c = (Choice){"1f2b", 4, 6, 0, 8, true};
    expect_die(choose, &c, "parallel.schedule = 1f2b: no such schedule");
    PipelineTable *t = pipeline_table_make(PIPELINE_GPIPE, 2, 3, 1);
    write_table(t, path, sizeof path, dir);
    c = (Choice){path, 2, 3, 0, 8, true};
    assert_int_equal(choose(&c), 0);
    c.p = 3;
    expect_die(choose, &c, "the file has 2 stages, parallel.pp = 3");
    c.p = 2, c.m = 4;
    expect_die(choose, &c, "the file has 3 micro-batches, a step has 4");
    c.m = 3, c.v = 2;
    expect_die(choose, &c, "the file has 1 chunks, parallel.chunks = 2");
    PipelineAction swap = t->action[1][3]; // B of 0 and of 1
    t->action[1][3].micro = 1, t->action[1][4].micro = 0;
    write_table(t, path, sizeof path, dir);
    c = (Choice){path, 2, 3, 0, 8, true};
    expect_die(choose, &c, "stage 1 slot 3: B of micro-batch 1 of chunk 0 does not follow that of 0");
    c.deterministic = false;
    assert_int_equal(choose(&c), 0); // a table that runs
    swap.slot = 4, t->action[1][4] = swap, t->action[1][4].micro = 1; // twice, and not that of 0
    write_table(t, path, sizeof path, dir);
    snprintf(words, sizeof words, "parallel.table = %s: stage 1 slot 4: B of micro-batch 1, chunk 0: a second time", path);
    expect_die(choose, &c, words);
    pipeline_table_free(t);
    unlink(path);
    rmdir(dir);
}

// Micro-batches in any order: the same terms in another order of sums.
static void test_any_order(void **state)
{
    (void)state;
    PipelineTable *t = pipeline_table_make(PIPELINE_GPIPE, 2, 4, 1);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 4; i++) t->action[s][4 + i].micro = 3 - i; // as in GPipe's figure
    Case c = {.shape = &llama, .micro = 2};
    Outcome one = run(c);
    c.table = t, c.p = 2;
    Outcome r = run(c);
    assert_true(r.loss == one.loss || fabs(r.loss - one.loss) <= 16 * DBL_EPSILON * one.loss);
    assert_memory_equal(r.losses, one.losses, sizeof r.losses);
    double d = apart(r.grads, one.grads, one.n);
    // three additions of four gradients g, of each of which a quarter of the tokens is a part: gamma(3) sum |g| twice
    assert_true(d <= 2 * 4 * (FLT_EPSILON / 2) * one.micro_norms);
    pipeline_table_free(t);
    release(&r);
    release(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deterministic_is_one_rank), cmocka_unit_test(test_tensor_parallel_inside),
        cmocka_unit_test(test_context_parallel_inside),   cmocka_unit_test(test_recomputation),             cmocka_unit_test(test_own_tables),
        cmocka_unit_test(test_fast_is_close),             cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_any_order),                 cmocka_unit_test(test_made_up_times),
        cmocka_unit_test(test_trace),                     cmocka_unit_test(test_messages),
        cmocka_unit_test(test_activations),               cmocka_unit_test(test_layers),
        cmocka_unit_test(test_layers_of_ones_own),        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
