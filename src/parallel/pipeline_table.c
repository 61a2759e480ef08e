// pipeline_table: the published pipeline schedules, one function each. See pipeline_table.h for the contract.
//
// The invariant: a schedule is an order per stage and nothing else. No times, no ranks, no messages: the
// engine, the checker, the simulator and the drawing all read the same table, so what is drawn is what runs.
//
// p stages, m micro-batches, v chunks, s the stage; each function writes one stage:
//
//   gpipe        all F, then all B                                            Huang et al., arXiv:1811.06965
//   1f1b         p-1-s F ahead, then F and B in turn                          Narayanan et al., arXiv:2006.09503
//   interleaved  the same over chunks, 2(p-1-s) + (v-1)p ahead                Narayanan et al., arXiv:2104.04473, 2.2
//   zb-h1        1f1b with W put off by s micro-batches                       Qi et al., arXiv:2401.10241
//   zb-v         chunk 0 goes down the stages, chunk 1 comes back up          Qi et al., arXiv:2401.10241, 2405.15362
//
// B runs in rising order of micro-batches everywhere. GPipe's own figure runs it backwards; the idle time is
// the same, and rising order is the order in which one rank alone adds the gradients.
//
// Rejected: schedules as loops inside the engine (each would be an engine of its own, and none could be
// checked before it hangs), and a solver that searches for an order (the zero-bubble papers have one; the two
// schedules here are the ones that can be written down).
#include "parallel/pipeline_table.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

static int min(int a, int b)
{
    return a < b ? a : b;
}

// ---- the schedules

static void gpipe(PipelineTable *t, int s)
{
    for (int k = 0; k < t->m; k++) pipeline_table_add(t, s, PIPELINE_F, k, 0);
    for (int k = 0; k < t->m; k++) pipeline_table_add(t, s, PIPELINE_B, k, 0);
}

// Warm-up, steady state, cool-down: stage s is p-1-s forwards ahead of its backwards, as many as there are
// stages behind it, so that it holds p-s activations and never more.
static void one_f_one_b(PipelineTable *t, int s)
{
    int ahead = min(t->p - 1 - s, t->m);
    for (int k = 0; k < ahead; k++) pipeline_table_add(t, s, PIPELINE_F, k, 0);
    for (int k = 0; k < t->m; k++) {
        if (ahead + k < t->m) pipeline_table_add(t, s, PIPELINE_F, ahead + k, 0);
        pipeline_table_add(t, s, PIPELINE_B, k, 0);
    }
}

// The k-th forward of every stage: p micro-batches through chunk 0, the same p through chunk 1, ..., then the
// next p. Backwards the same with the chunks from the last to the first.
static void interleaved_add(PipelineTable *t, int s, PipelineOp op, int k)
{
    int round = k / (t->p * t->v), chunk = k / t->p % t->v, micro = round * t->p + k % t->p;
    pipeline_table_add(t, s, op, micro, op == PIPELINE_F ? chunk : t->v - 1 - chunk);
}

// Ahead by two forwards for each stage behind it: one would be enough if messages took no time, and would hold fewer
// activations; with two a message may be under way while its reader works on something else.
static void interleaved(PipelineTable *t, int s)
{
    int total = t->m * t->v, ahead = min(2 * (t->p - 1 - s) + (t->v - 1) * t->p, total);
    for (int k = 0; k < ahead; k++) interleaved_add(t, s, PIPELINE_F, k);
    for (int k = 0; k < total; k++) {
        if (ahead + k < total) interleaved_add(t, s, PIPELINE_F, ahead + k);
        interleaved_add(t, s, PIPELINE_B, k);
    }
}

// 1F1B whose B hands its gradient on before W. W of a micro-batch waits for s more of them: late stages use
// the time in which they would idle, and every stage holds p activations, as stage 0 of 1F1B does.
static void zb_h1(PipelineTable *t, int s)
{
    int ahead = min(t->p - 1 - s, t->m);
    for (int k = 0; k < ahead; k++) pipeline_table_add(t, s, PIPELINE_F, k, 0);
    for (int k = 0; k < t->m; k++) {
        if (ahead + k < t->m) pipeline_table_add(t, s, PIPELINE_F, ahead + k, 0);
        pipeline_table_add(t, s, PIPELINE_B, k, 0);
        if (k >= s) pipeline_table_add(t, s, PIPELINE_W, k - s, 0);
    }
    for (int k = t->m > s ? t->m - s : 0; k < t->m; k++) pipeline_table_add(t, s, PIPELINE_W, k, 0);
}

// The next micro-batch of (op, chunk). The order is made for at least 2p-1 micro-batches, which fill the V;
// those that are not there are left out.
typedef struct {
    PipelineTable *t;
    int stage, next[PIPELINE_OPS][2];
} Vee;

static void vee(Vee *z, PipelineOp op, int chunk)
{
    int micro = z->next[op][chunk]++;
    if (micro < z->t->m) pipeline_table_add(z->t, z->stage, op, micro, chunk);
}

// Stage 0 has the first piece and the last, so the first gradient is made where the first forward was, and B
// of chunk 1 travels down while F of chunk 0 does. In the steady state F B W of one chunk and of the other
// alternate.
static void zb_v(PipelineTable *t, int s)
{
    Vee z = {.t = t, .stage = s};
    int p = t->p, most = t->m > 2 * p - 1 ? t->m : 2 * p - 1;
    for (int k = 0; k < 2 * (p - s) - 1; k++) vee(&z, PIPELINE_F, 0);
    for (int k = 0; k < s; k++) vee(&z, PIPELINE_F, 1), vee(&z, PIPELINE_F, 0);
    for (int k = 0; k < p - s; k++) vee(&z, PIPELINE_F, 1), vee(&z, PIPELINE_B, 1), vee(&z, PIPELINE_W, 1);
    while (z.next[PIPELINE_F][1] < most) {
        if (z.next[PIPELINE_F][0] < most) vee(&z, PIPELINE_F, 0);
        vee(&z, PIPELINE_B, 0), vee(&z, PIPELINE_W, 0);
        vee(&z, PIPELINE_F, 1), vee(&z, PIPELINE_B, 1), vee(&z, PIPELINE_W, 1);
    }
    for (int k = 0; k < s; k++) vee(&z, PIPELINE_B, 0), vee(&z, PIPELINE_B, 1);
    for (int k = 0; k < p - s; k++) vee(&z, PIPELINE_B, 0), vee(&z, PIPELINE_W, 0);
    while (z.next[PIPELINE_W][1] < most) vee(&z, PIPELINE_W, 1);
    while (z.next[PIPELINE_W][0] < most) vee(&z, PIPELINE_W, 0);
}

// ---- the table

typedef struct {
    const char *name;
    void (*stage)(PipelineTable *t, int s);
    bool split;
    int v; // chunks when nothing is said
} Schedule;

static const Schedule SCHEDULE[PIPELINE_SCHEDULES] = {
    [PIPELINE_GPIPE] = {"gpipe", gpipe, false, 1},
    [PIPELINE_1F1B] = {"1f1b", one_f_one_b, false, 1},
    [PIPELINE_INTERLEAVED] = {"interleaved", interleaved, false, 2},
    [PIPELINE_ZB_H1] = {"zb-h1", zb_h1, true, 1},
    [PIPELINE_ZB_V] = {"zb-v", zb_v, true, 2},
    [PIPELINE_USER] = {"user", NULL, false, 1},
};

const char *pipeline_table_name(PipelineSchedule schedule)
{
    check(schedule < PIPELINE_SCHEDULES);
    return SCHEDULE[schedule].name;
}

PipelineSchedule pipeline_table_find(const char *name)
{
    int k = 0;
    while (k < PIPELINE_SCHEDULES && strcmp(SCHEDULE[k].name, name)) k++;
    return (PipelineSchedule)k;
}

const char *pipeline_table_op(PipelineOp op)
{
    static const char *const NAME[PIPELINE_OPS] = {"F", "B", "W"};
    return op < PIPELINE_OPS ? NAME[op] : "?";
}

static void check_sizes(PipelineSchedule schedule, int p, int m, int v)
{
    const char *name = SCHEDULE[schedule].name;
    if (p < 1 || p > PIPELINE_MAX_STAGES)
        die("pipeline: %s: %d stages (1 to %d)", name, p, PIPELINE_MAX_STAGES);
    if (m < 1 || m > PIPELINE_MAX_MICRO)
        die("pipeline: %s: %d micro-batches (1 to %d)", name, m, PIPELINE_MAX_MICRO);
    if (v < 1 || v > PIPELINE_MAX_CHUNKS)
        die("pipeline: %s: %d chunks a stage (1 to %d)", name, v, PIPELINE_MAX_CHUNKS);
    if (schedule == PIPELINE_USER) return;
    if (schedule == PIPELINE_INTERLEAVED && v == 1)
        die("pipeline: interleaved: 1 chunk a stage (take 2 or more, or the schedule 1f1b)");
    if (schedule != PIPELINE_INTERLEAVED && v != SCHEDULE[schedule].v)
        die("pipeline: %s: %d chunks a stage (it has %d; interleaved takes any number)", name, v,
            SCHEDULE[schedule].v);
    if (schedule == PIPELINE_INTERLEAVED && m < p)
        die("pipeline: interleaved: %d micro-batches on %d stages: fewer than stages (take a multiple of %d, or "
            "the schedule 1f1b)", m, p, p);
    if (schedule == PIPELINE_INTERLEAVED && m % p)
        die("pipeline: interleaved: %d micro-batches on %d stages: they go through a chunk in groups of %d (take %d "
            "or %d micro-batches)", m, p, p, m - m % p, m - m % p + p);
}

PipelineTable *pipeline_table_new(PipelineSchedule schedule, int p, int m, int v, bool split)
{
    check_sizes(schedule, p, m, v);
    PipelineTable *t = calloc(1, sizeof *t);
    if (!t) die("pipeline: no memory for a schedule");
    t->schedule = schedule, t->p = p, t->m = m, t->v = v, t->split = split;
    for (int s = 0; s < p; s++)
        for (int c = 0; c < v; c++) t->piece[s][c] = c * p + s;
    return t;
}

PipelineTable *pipeline_table_make(PipelineSchedule schedule, int p, int m, int v)
{
    check(schedule < PIPELINE_USER);
    const Schedule *k = &SCHEDULE[schedule];
    PipelineTable *t = pipeline_table_new(schedule, p, m, v ? v : k->v, k->split);
    for (int s = 0; s < p; s++) {
        if (schedule == PIPELINE_ZB_V) t->piece[s][1] = 2 * p - 1 - s; // the way back up
        k->stage(t, s);
    }
    return t;
}

void pipeline_table_add(PipelineTable *t, int stage, PipelineOp op, int micro, int chunk)
{
    check(stage >= 0 && stage < t->p);
    int n = t->n[stage];
    if (n == t->room[stage]) {
        t->room[stage] = n ? 2 * n : 64;
        t->action[stage] = realloc(t->action[stage], (size_t)t->room[stage] * sizeof *t->action[stage]);
        if (!t->action[stage]) die("pipeline: no memory for %d actions", t->room[stage]);
    }
    int slot = n ? t->action[stage][n - 1].slot + 1 : 0;
    t->action[stage][n] = (PipelineAction){.op = op, .micro = micro, .chunk = chunk, .slot = slot};
    t->n[stage]++;
}

void pipeline_table_free(PipelineTable *t)
{
    if (!t) return;
    for (int s = 0; s < t->p; s++) free(t->action[s]);
    free(t);
}

PipelinePlace pipeline_table_place(const PipelineTable *t, int piece)
{
    for (int s = 0; s < t->p; s++)
        for (int c = 0; c < t->v; c++)
            if (t->piece[s][c] == piece) return (PipelinePlace){s, c};
    return (PipelinePlace){-1, -1};
}

// The place `step` pieces further on the micro-batch's way.
static PipelinePlace neighbour(const PipelineTable *t, int stage, PipelineAction a, int step)
{
    if (a.op == PIPELINE_W) return (PipelinePlace){-1, -1};
    return pipeline_table_place(t, t->piece[stage][a.chunk] + (a.op == PIPELINE_F ? step : -step));
}

PipelinePlace pipeline_table_source(const PipelineTable *t, int stage, PipelineAction a)
{
    return neighbour(t, stage, a, -1);
}

PipelinePlace pipeline_table_reader(const PipelineTable *t, int stage, PipelineAction a)
{
    return neighbour(t, stage, a, 1);
}

size_t pipeline_table_key(const PipelineTable *t, int stage, PipelineOp op, int micro, int chunk)
{
    return (((size_t)stage * PIPELINE_OPS + op) * (size_t)t->v + (size_t)chunk) * (size_t)t->m + (size_t)micro;
}

int *pipeline_table_index(const PipelineTable *t)
{
    size_t n = (size_t)t->p * PIPELINE_OPS * (size_t)t->v * (size_t)t->m;
    int *index = malloc(n * sizeof *index);
    if (!index) die("pipeline: no memory for %zu positions", n);
    for (size_t i = 0; i < n; i++) index[i] = -1;
    for (int s = 0; s < t->p; s++)
        for (int i = t->n[s] - 1; i >= 0; i--) {
            const PipelineAction *a = &t->action[s][i];
            index[pipeline_table_key(t, s, a->op, a->micro, a->chunk)] = i;
        }
    return index;
}
