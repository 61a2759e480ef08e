// pipeline_table: the published pipeline schedules. See pipeline_table.h for the contract.
//
// The invariant: a schedule is an order per stage and nothing else. No times, no ranks, no messages: the
// engine, the checker, the simulator and the drawing all read the same table, so what is drawn is what runs.
//
// p stages, m micro-batches, v chunks, s the stage; one function each, which writes one stage, except for the Vs:
//
//   gpipe        all F, then all B                                            Huang et al., arXiv:1811.06965
//   1f1b         p-1-s F ahead, then F and B in turn                          Narayanan et al., arXiv:2006.09503
//   interleaved  the same over chunks, 2(p-1-s) + (v-1)p ahead                Narayanan et al., arXiv:2104.04473, 2.2
//   zb-h1        1f1b with W put off by s micro-batches                       Qi et al., arXiv:2401.10241
//   zb-v, v-half, v-min   chunk 0 goes down the stages, chunk 1 comes back up. Qi et al., arXiv:2405.15362
//
// B runs in rising order of micro-batches everywhere. GPipe's own figure runs it backwards; the idle time is
// the same, and rising order is the order in which one rank alone adds the gradients.
//
// Rejected: schedules as loops inside the engine (each would be an engine of its own, and none could be
// checked before it hangs), and a solver that searches for an order by measured times (the zero-bubble papers have
// one): the schedules here are those for F = B = W, which follow from a few numbers.
#include "parallel/pipeline_table.h"

#include "base/check.h"
#include "base/disk.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
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
// stages after it, so that it holds p-s activations and never more.
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

// Ahead by two forwards for each stage after it: one would be enough if messages took no time, and would hold fewer
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

// ---- schedules in the shape of a V

// A micro-batch goes down the stages as chunk 0 and up as chunk 1; its gradient goes down as chunk 1 and up as chunk 0.
// The four ways, and when they begin, are the building block. Micro-batch k repeats the block 6 k later: F, B and W of
// two chunks keep a stage busy for 6 units of time.
enum { WAYS = 4, PERIOD = 6, WEIGHT = WAYS, IDLE };
static const PipelineOp WAY_OP[WAYS] = {PIPELINE_F, PIPELINE_F, PIPELINE_B, PIPELINE_B};
static const int WAY_CHUNK[WAYS] = {0, 1, 1, 0};

typedef struct {
    int step[WAYS];  // units of time from one stage to the next
    int turn;        // the way before which the block pauses, where it has to
    int plus, share; // a stage holds at most 2 ((p + plus) / share) activations of a chunk
    int late;        // an F waits while as many W do
    bool early;      // a stage that would idle takes a later F of chunk 0, if it has room
} Vee;

// When a way of micro-batch 0 begins on a stage.
static int block_time(const Vee *v, int p, int pause, int stage, int way)
{
    int at = 0;
    for (int i = 0; i < way; i++) at += v->step[i] * (p - 1) + 1 + (i + 1 == v->turn ? pause : 0);
    return at + v->step[way] * (way % 2 ? p - 1 - stage : stage);
}

// The shortest pause with which no stage has two of its four ways in one unit of the period.
static int block_pause(const Vee *v, int p)
{
    for (int pause = 0;; pause++) {
        bool clash = false;
        for (int s = 0; s < p; s++)
            for (int i = 0, taken = 0; i < WAYS; i++) {
                int unit = 1 << block_time(v, p, pause, s, i) % PERIOD;
                clash |= (taken & unit) != 0;
                taken |= unit;
            }
        if (!clash) return pause;
    }
}

typedef struct {
    PipelineTable *t;
    const Vee *v;
    int most;
    int begin[PIPELINE_MAX_STAGES][WAYS];    // block_time
    int done[PIPELINE_MAX_STAGES][WAYS + 1]; // micro-batches of each way; and how many W
    int weight[PIPELINE_MAX_STAGES];         // in the stage's order: the B whose W comes next
} Squeeze;

// The way of a stage that the repeated blocks have next; WAYS: none is left.
static int next_way(const Squeeze *q, int stage)
{
    int best = WAYS, earliest = 0;
    for (int i = 0; i < WAYS; i++) {
        int k = q->done[stage][i], time = q->begin[stage][i] + PERIOD * k;
        if (k < q->t->m && (best == WAYS || time < earliest)) best = i, earliest = time;
    }
    return best;
}

static bool has_input(const Squeeze *q, int stage, int way)
{
    int from = stage + (way % 2 ? 1 : -1), k = q->done[stage][way];
    if (from < 0 || from == q->t->p) return way == 0 || q->done[stage][way - 1] > k; // where the V turns
    return q->done[from][way] > k;
}

static int choose(const Squeeze *q, int stage)
{
    const int *done = q->done[stage];
    int way = next_way(q, stage), late = done[2] + done[3] - done[WEIGHT], held = done[0] + done[1] - done[WEIGHT];
    bool full = way < 2 && (held >= q->most || late >= q->v->late);
    if (way < WAYS && !full && has_input(q, stage, way)) return way;
    if (late) return WEIGHT;
    return q->v->early && done[0] < q->t->m && held < q->most && has_input(q, stage, 0) ? 0 : IDLE;
}

static void act(Squeeze *q, int stage, int what)
{
    if (what == WEIGHT) {
        const PipelineAction *a = q->t->action[stage];
        int *b = &q->weight[stage];
        while (a[*b].op != PIPELINE_B) ++*b;
        pipeline_table_add(q->t, stage, PIPELINE_W, a[*b].micro, a[*b].chunk), ++*b;
    } else {
        pipeline_table_add(q->t, stage, WAY_OP[what], q->done[stage][what], WAY_CHUNK[what]);
    }
    q->done[stage][what]++;
}

// Keeps the order of F and B that the repeated blocks have on each stage, and begins each as soon as its input is there
// and its activation has room; W fills what is left. Every action lasts one unit.
static void squeeze(PipelineTable *t, const Vee *v)
{
    Squeeze q = {.t = t, .v = v, .most = 2 * ((t->p + v->plus) / v->share)};
    int pause = block_pause(v, t->p);
    for (int s = 0; s < t->p; s++)
        for (int i = 0; i < WAYS; i++) q.begin[s][i] = block_time(v, t->p, pause, s, i);
    for (int left = PERIOD * t->p * t->m, what[PIPELINE_MAX_STAGES], moved; left; left -= moved) {
        moved = 0;
        for (int s = 0; s < t->p; s++) what[s] = choose(&q, s);
        for (int s = 0; s < t->p; s++)
            if (what[s] != IDLE) act(&q, s, what[s]), moved++;
        check(moved);
    }
}

// ---- the table

typedef struct {
    const char *name;
    void (*stage)(PipelineTable *t, int s); // NULL: a V
    bool split;
    int v; // chunks when nothing is said
    Vee vee;
} Schedule;

static const Schedule SCHEDULE[PIPELINE_SCHEDULES] = {
    [PIPELINE_GPIPE] = {"gpipe", gpipe, false, 1},
    [PIPELINE_1F1B] = {"1f1b", one_f_one_b, false, 1},
    [PIPELINE_INTERLEAVED] = {"interleaved", interleaved, false, 2},
    [PIPELINE_ZB_H1] = {"zb-h1", zb_h1, true, 1},
    [PIPELINE_ZB_V] = {"zb-v", NULL, true, 2, {{4, 2, 4, 2}, 0, 0, 1, 1, true}},
    [PIPELINE_V_HALF] = {"v-half", NULL, true, 2, {{2, 1, 2, 1}, 3, 2, 2, 2, false}},
    [PIPELINE_V_MIN] = {"v-min", NULL, true, 2, {{1, 1, 1, 1}, 2, 4, 3, 3, false}},
    [PIPELINE_USER] = {"user", NULL, false, 1},
};

const char *pipeline_table_name(PipelineSchedule schedule)
{
    check(schedule < PIPELINE_SCHEDULES);
    return SCHEDULE[schedule].name;
}

int pipeline_table_chunks(PipelineSchedule schedule)
{
    check(schedule < PIPELINE_SCHEDULES);
    return schedule == PIPELINE_INTERLEAVED ? 0 : SCHEDULE[schedule].v;
}

bool pipeline_table_is_vee(PipelineSchedule schedule)
{
    return schedule < PIPELINE_USER && SCHEDULE[schedule].vee.share;
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
        if (k->vee.share) t->piece[s][1] = 2 * p - 1 - s; // the way back up
        else k->stage(t, s);
    }
    if (k->vee.share) squeeze(t, &k->vee);
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

// ---- in a file
//
// In a file, reading what was written gives the same table, and every line that is not understood is
// refused with its number. A line is
//
//   stage,slot,action,micro,chunk      or, with a header that says so,      stage,slot,action,micro,chunk,piece
//
// whole numbers and F, B or W. The sizes are not stated: they are one more than the largest stage,
// micro-batch and chunk. So a file cannot contradict itself there, and what it leaves out (a stage, a B) the
// checker misses by name.
//
// A slot says which action comes first, not when: 0, 1, 2 and 10, 20, 30 are the same order. Two actions of a
// stage in one slot are refused, for neither the first line nor the last should win silently.
//
// Rejected: a quoted CSV dialect (no field can hold a comma), and a header with the sizes (two places that
// can disagree).

enum { FIELDS = 5, MAX_BYTES = 256 << 20, MAX_SLOT = 1000000000 };
static const char HEADER[] = "stage,slot,action,micro,chunk";
static const char HEADER_PIECE[] = "stage,slot,action,micro,chunk,piece";

typedef struct {
    int stage, piece; // piece -1: not said
    PipelineAction action;
    long line;
} Row;

typedef struct {
    const char *path;
    long line;
    bool has_piece;
    Row *row;
    size_t n, room;
} Reader;

// The next field of the line, without blanks around it; NULL when there is none.
static char *field(char **rest)
{
    char *begin = *rest;
    if (!begin) return NULL;
    char *comma = strchr(begin, ',');
    *rest = comma ? comma + 1 : NULL;
    if (comma) *comma = 0;
    while (isspace((unsigned char)*begin)) begin++;
    size_t n = strlen(begin);
    while (n && isspace((unsigned char)begin[n - 1])) begin[--n] = 0;
    return begin;
}

static int number(const Reader *r, const char *name, const char *text, int most)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || n > most)
        die("%s:%ld: %s: '%s' (a whole number from 0 to %d)", r->path, r->line, name, text, most);
    return (int)n;
}

static PipelineOp op_of(const Reader *r, const char *text)
{
    for (int op = 0; op < PIPELINE_OPS; op++)
        if (!strcmp(text, pipeline_table_op((PipelineOp)op))) return (PipelineOp)op;
    die("%s:%ld: action: '%s' (F, B or W)", r->path, r->line, text);
}

static void read_row(Reader *r, char *line)
{
    char *at[FIELDS + 2], *rest = line;
    int n = 0, wanted = r->has_piece ? FIELDS + 1 : FIELDS;
    while (n < FIELDS + 2 && (at[n] = field(&rest))) n++;
    if (n != wanted)
        die("%s:%ld: %d fields%s (%d: %s)", r->path, r->line, n, n > FIELDS + 1 ? " or more" : "", wanted,
            r->has_piece ? HEADER_PIECE : HEADER);
    if (r->n == r->room) {
        r->room = r->room ? 2 * r->room : 256;
        r->row = realloc(r->row, r->room * sizeof *r->row);
        if (!r->row) die("%s: no memory for %zu lines", r->path, r->room);
    }
    Row *row = &r->row[r->n++];
    row->line = r->line;
    row->stage = number(r, "stage", at[0], PIPELINE_MAX_STAGES - 1);
    row->action.slot = number(r, "slot", at[1], MAX_SLOT);
    row->action.op = op_of(r, at[2]);
    row->action.micro = number(r, "micro", at[3], PIPELINE_MAX_MICRO - 1);
    row->action.chunk = number(r, "chunk", at[4], PIPELINE_MAX_CHUNKS - 1);
    row->piece = r->has_piece ? number(r, "piece", at[5], PIPELINE_MAX_PIECES - 1) : -1;
}

// The first line that is not skipped.
static void read_header(Reader *r, char *line)
{
    char squeezed[64] = "";
    size_t n = 0;
    for (const char *c = line; *c && n + 1 < sizeof squeezed; c++)
        if (!isspace((unsigned char)*c)) squeezed[n++] = *c;
    squeezed[n] = 0;
    r->has_piece = !strcmp(squeezed, HEADER_PIECE);
    if (!r->has_piece && strcmp(squeezed, HEADER))
        die("%s:%ld: '%.60s' (the first line is %s, with ,piece behind it if need be)", r->path, r->line, line,
            HEADER);
}

static void read_rows(Reader *r, char *text)
{
    bool headed = false;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        r->line++;
        line += strspn(line, " \t\r");
        line[strcspn(line, "\r")] = 0;
        if (!*line || *line == '#') continue;
        if (headed) read_row(r, line);
        else read_header(r, line), headed = true;
    }
    if (!r->n) die("%s: no action in it (a line is %s)", r->path, HEADER);
}

static int in_order(const void *x, const void *y)
{
    const Row *a = x, *b = y;
    if (a->stage != b->stage) return a->stage < b->stage ? -1 : 1;
    if (a->action.slot != b->action.slot) return a->action.slot < b->action.slot ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

// piece[stage][chunk] of the rows that say one; -1 elsewhere.
static void read_pieces(const Reader *r, PipelineTable *t)
{
    for (int s = 0; s < t->p; s++)
        for (int c = 0; c < t->v; c++) t->piece[s][c] = -1;
    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        int *piece = &t->piece[row->stage][row->action.chunk];
        if (row->piece >= t->p * t->v)
            die("%s:%ld: piece: %d (%d stages with %d chunks hold pieces 0 to %d)", r->path, row->line, row->piece,
                t->p, t->v, t->p * t->v - 1);
        if (*piece >= 0 && *piece != row->piece)
            die("%s:%ld: piece: %d, but stage %d has piece %d as its chunk %d in another line", r->path, row->line,
                row->piece, row->stage, *piece, row->action.chunk);
        PipelinePlace other = *piece < 0 ? pipeline_table_place(t, row->piece) : (PipelinePlace){-1, -1};
        if (other.stage >= 0)
            die("%s:%ld: piece: %d is also chunk %d of stage %d (every piece is in one place)", r->path, row->line,
                row->piece, other.chunk, other.stage);
        *piece = row->piece;
    }
}

static PipelineTable *table_of(Reader *r)
{
    int p = 0, m = 0, v = 0;
    bool split = false;
    qsort(r->row, r->n, sizeof *r->row, in_order);
    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        if (row->stage > p)
            die("%s: no action of stage %d, but line %ld is of stage %d (stages are numbered without gaps)",
                r->path, p, row->line, row->stage);
        if (i && row->stage == row[-1].stage && row->action.slot == row[-1].action.slot)
            die("%s:%ld: slot %d of stage %d is taken by line %ld", r->path, row->line, row->action.slot, row->stage,
                row[-1].line);
        p = row->stage + 1;
        if (row->action.micro >= m) m = row->action.micro + 1;
        if (row->action.chunk >= v) v = row->action.chunk + 1;
        split |= row->action.op == PIPELINE_W;
    }
    PipelineTable *t = pipeline_table_new(PIPELINE_USER, p, m, v, split);
    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        pipeline_table_add(t, row->stage, row->action.op, row->action.micro, row->action.chunk);
        t->action[row->stage][t->n[row->stage] - 1].slot = row->action.slot;
    }
    if (r->has_piece) read_pieces(r, t);
    return t;
}

PipelineTable *pipeline_table_read(const char *path)
{
    size_t n_bytes;
    char *text = disk_read_file(path, &n_bytes, MAX_BYTES);
    if (!text) die("%s: cannot be read: %s (a schedule as a CSV file)", path, strerror(errno));
    if (strlen(text) != n_bytes) die("%s: a zero byte in it (a schedule is a text file)", path);
    Reader r = {.path = path};
    read_rows(&r, text);
    PipelineTable *t = table_of(&r);
    free(r.row);
    free(text);
    return t;
}

void pipeline_table_write(const PipelineTable *t, const char *path)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f) die("%s: no memory for the table: %s", path, strerror(errno));
    fprintf(f, "%s\n", HEADER_PIECE);
    for (int s = 0; s < t->p; s++)
        for (int i = 0; i < t->n[s]; i++) {
            const PipelineAction *a = &t->action[s][i];
            fprintf(f, "%d,%d,%s,%d,%d,%d\n", s, a->slot, pipeline_table_op(a->op), a->micro, a->chunk,
                    t->piece[s][a->chunk]);
        }
    if (ferror(f) || fclose(f) || !text) die("%s: no memory for the table", path);
    if (!disk_replace_file(path, text, n_bytes)) die("%s: cannot be written: %s", path, strerror(errno));
    free(text);
}
