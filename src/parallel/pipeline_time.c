// pipeline_time: simulates a table with given times. See pipeline_time.h for the contract.
//
// The invariant: an action begins at the latest of three moments: its stage is free, its input has arrived,
// and what it follows on its own stage (F before B before W) is done. No choice is left, so the timeline is a
// function of the table and the times, and a table that cannot be finished here cannot be finished by any
// engine that keeps its order.
//
// How sends wait (PipelineSends) changes which tables finish. With blocking sends 1f1b deadlocks: two neighbours both
// send to each other first. So engines combine the send with the next receive, which suffices for 1f1b and zb-h1 but
// not for interleaved and the Vs, or send without waiting, which suffices for all.
//
// Rejected: a table of start times instead of an order (true for one set of times only), and a discrete-event
// queue (the stages' orders leave nothing to sort).
#include "parallel/pipeline_time.h"

#include "base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const PipelineTable *t;
    const PipelineTimes *times;
    PipelineSends sends;
    PipelineTimeline *line;
    int *index;                                // pipeline_table_index
    PipelinePlace place[PIPELINE_MAX_PIECES];  // of a piece
    double *opened;                            // by span: when its stage began to wait for its input; NAN: not yet
    int next[PIPELINE_MAX_STAGES];             // the action a stage waits to begin
    PipelineSpan *missed[PIPELINE_MAX_STAGES]; // what it waits for; NULL: not in the table
    double network[PIPELINE_MAX_STAGES];       // when a stage's last exchange is over
    bool sending[PIPELINE_MAX_STAGES];         // it waits for the taker of its last output, not for an input
} Play;

double pipeline_time_lasts(const PipelineTable *t, const PipelineTimes *times, PipelineOp op)
{
    double b = times->b + (t->split ? 0 : times->w);
    return op == PIPELINE_F ? times->f : op == PIPELINE_B ? b : times->w;
}

// ---- the play

static PipelineSpan *find(const Play *y, int stage, PipelineOp op, int micro, int chunk)
{
    int i = y->index[pipeline_table_key(y->t, stage, op, micro, chunk)];
    return i < 0 ? NULL : y->line->span + y->line->begin[stage] + i;
}

// The same op and micro-batch, `step` pieces further; NULL: an end of the model, or not in the table.
static PipelineSpan *neighbour(const Play *y, const PipelineSpan *s, int step, bool *wanted)
{
    const PipelineAction *a = &s->action;
    int piece = y->t->piece[s->stage][a->chunk] + (a->op == PIPELINE_F ? step : -step);
    *wanted = a->op != PIPELINE_W && piece >= 0 && piece < y->t->p * y->t->v;
    if (!*wanted || y->place[piece].stage < 0) return NULL;
    return find(y, y->place[piece].stage, a->op, a->micro, y->place[piece].chunk);
}

static bool wait_for(Play *y, int stage, PipelineSpan *what, bool sending)
{
    y->missed[stage] = what;
    y->sending[stage] = sending;
    return false;
}

static bool open_receive(Play *y, size_t i, double time)
{
    if (!isnan(y->opened[i])) return false;
    y->opened[i] = time;
    return true;
}

// What must be done on the same stage: F before B, B before W. W does not wait for B's exchange.
static bool follows(Play *y, PipelineSpan *now, double *start)
{
    const PipelineAction *a = &now->action;
    if (a->op == PIPELINE_F) return true;
    PipelineSpan *own = find(y, now->stage, a->op == PIPELINE_B ? PIPELINE_F : PIPELINE_B, a->micro, a->chunk);
    if (!own || isnan(own->end)) return wait_for(y, now->stage, own, false);
    if (a->op == PIPELINE_B) *start = fmax(*start, own->ready);
    return true;
}

// Advances a stage by one action if it can. True when anything changed, even if only a receive was opened.
static bool advance(Play *y, int stage)
{
    PipelineTimeline *line = y->line;
    size_t i = line->begin[stage] + (size_t)y->next[stage];
    if (i == line->begin[stage + 1]) return false;
    PipelineSpan *now = &line->span[i], *before = i > line->begin[stage] ? now - 1 : NULL, *other;
    double done = before ? before->end : 0, start = done;
    bool wanted, changed = false;
    other = before && y->sends != PIPELINE_BUFFERED ? neighbour(y, before, 1, &wanted) : NULL;
    if (other && other->stage != stage) {
        double taken = y->opened[other - line->span];
        if (y->sends == PIPELINE_PAIRED) changed = open_receive(y, i, done);
        if (isnan(taken)) return wait_for(y, stage, other, true) || changed;
        start = fmax(done, taken) + y->times->p2p;
    }
    changed |= open_receive(y, i, y->sends == PIPELINE_BLOCKING ? start : done);
    other = neighbour(y, now, -1, &wanted);
    if (wanted && (!other || isnan(other->end))) return wait_for(y, stage, other, false) || changed;
    if (!follows(y, now, &start)) return changed;
    if (other && other->stage == stage) start = fmax(start, other->ready);
    if (other && other->stage != stage) {
        double ready = y->sends == PIPELINE_BUFFERED ? other->ready : fmax(other->ready, y->opened[i]);
        start = fmax(start, ready + y->times->p2p);
    }
    now->start = start;
    now->end = now->ready = start + pipeline_time_lasts(y->t, y->times, now->action.op);
    if (now->action.op != PIPELINE_W) {
        now->ready = fmax(now->end, y->network[stage]) + y->times->exchange;
        y->network[stage] = now->ready;
    }
    y->next[stage]++;
    return true;
}

// ---- which stage waits for which

static int say(char *text, size_t n, const PipelineSpan *s)
{
    return snprintf(text, n, "stage %d slot %d (%s of micro-batch %d, chunk %d)", s->stage, s->action.slot,
                    pipeline_table_op(s->action.op), s->action.micro, s->action.chunk);
}

// Follows, from a stage that waits, the stage that each one waits for, until a stage repeats.
static void explain(const Play *y, char *why, size_t n_why)
{
    bool seen[PIPELINE_MAX_STAGES] = {false};
    int stage = 0, told = 0;
    size_t n = 0;
    while (y->next[stage] == y->t->n[stage]) stage++;
    for (; !seen[stage] && told < 6 && n + 1 < n_why; told++) {
        const PipelineSpan *now = y->line->span + y->line->begin[stage] + y->next[stage], *what = y->missed[stage];
        const char *lead = told ? "; " : "";
        char a[128], b[128];
        say(a, sizeof a, now);
        seen[stage] = true;
        if (!what) {
            snprintf(why + n, n_why - n, "%s%s waits for an action that is not in the table", lead, a);
            return;
        }
        say(b, sizeof b, what);
        n += (size_t)snprintf(why + n, n_why - n, "%s%s waits for %s%s", lead, a, b,
                              y->sending[stage] ? " to take the output of the one before it"
                              : what->stage == stage ? ", which comes later there" : "");
        stage = what->stage;
    }
    if (told > 1 && seen[stage] && n < n_why) snprintf(why + n, n_why - n, ": a circle, nothing moves");
}

bool pipeline_time_run(PipelineTimeline *out, const PipelineTable *t, const PipelineTimes *times,
                       PipelineSends sends, char *why, size_t n_why)
{
    Play y = {.t = t, .times = times, .sends = sends, .line = out, .index = pipeline_table_index(t)};
    *out = (PipelineTimeline){.p = t->p};
    for (int s = 0; s < t->p; s++) out->begin[s + 1] = out->begin[s] + (size_t)t->n[s];
    size_t n = out->begin[t->p];
    out->span = malloc((n + 1) * sizeof *out->span);
    y.opened = malloc((n + 1) * sizeof *y.opened);
    if (!out->span || !y.opened) die("pipeline: no memory for %zu actions", n);
    for (int s = 0; s < t->p; s++)
        for (int i = 0; i < t->n[s]; i++) {
            size_t k = out->begin[s] + (size_t)i;
            out->span[k] = (PipelineSpan){.stage = s, .action = t->action[s][i], .start = NAN, .end = NAN};
            y.opened[k] = NAN;
        }
    for (int q = 0; q < t->p * t->v; q++) y.place[q] = pipeline_table_place(t, q);
    bool moved = true, finished = true;
    while (moved) {
        moved = false;
        for (int s = 0; s < t->p; s++)
            while (advance(&y, s)) moved = true;
    }
    for (int s = 0; s < t->p; s++) finished &= y.next[s] == t->n[s];
    if (!finished) explain(&y, why, n_why);
    free(y.opened), free(y.index);
    return finished;
}

void pipeline_time_free(PipelineTimeline *line)
{
    free(line->span);
    line->span = NULL;
}

// ---- measures of a timeline

static double first_start(const PipelineTimeline *l, int s)
{
    return l->begin[s] < l->begin[s + 1] ? l->span[l->begin[s]].start : 0;
}

static double last_end(const PipelineTimeline *l, int s)
{
    return l->begin[s] < l->begin[s + 1] ? l->span[l->begin[s + 1] - 1].end : 0;
}

double pipeline_time_length(const PipelineTimeline *line)
{
    double start = INFINITY, end = 0;
    for (int s = 0; s < line->p; s++) start = fmin(start, first_start(line, s)), end = fmax(end, last_end(line, s));
    return end - start;
}

double pipeline_time_busy(const PipelineTimeline *line, int stage)
{
    double sum = 0;
    for (size_t i = line->begin[stage]; i < line->begin[stage + 1]; i++)
        sum += line->span[i].end - line->span[i].start;
    return sum;
}

double pipeline_time_span(const PipelineTimeline *line, int stage)
{
    return last_end(line, stage) - first_start(line, stage);
}

double pipeline_time_bubble(const PipelineTimeline *line)
{
    double busy = 0;
    for (int s = 0; s < line->p; s++) busy += pipeline_time_busy(line, s);
    return 1 - busy / (line->p * pipeline_time_length(line));
}

double pipeline_time_gaps(const PipelineTimeline *line)
{
    double most = 0;
    for (int s = 0; s < line->p; s++)
        most = fmax(most, 1 - pipeline_time_busy(line, s) / pipeline_time_span(line, s));
    return most;
}
