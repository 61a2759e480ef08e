// pipeline_time: simulates a table with given times. See pipeline_time.h for the contract.
//
// The invariant: an action begins at the latest of three moments: its stage is free, its input has arrived,
// and what it follows on its own stage (F before B before W) is done. No choice is left, so the timeline is a
// function of the table and the times, and a table that cannot be finished here cannot be finished by any
// engine that keeps its order.
//
// Sends do not wait for their receiver here. If they did, 1f1b would deadlock, as two neighbours both send to each
// other first; with a receive opened beside each send, interleaved and zb-v still would.
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
    PipelineTimeline *line;
    int *index;                                // pipeline_table_index
    PipelinePlace place[PIPELINE_MAX_PIECES];  // of a piece
    double network[PIPELINE_MAX_STAGES];       // when a stage's last exchange is over
    int next[PIPELINE_MAX_STAGES];             // the action a stage waits to begin
    PipelineSpan *missed[PIPELINE_MAX_STAGES]; // what it waits for; NULL: not in the table
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

// The same op and micro-batch in the piece before; NULL: an end of the model, or not in the table.
static PipelineSpan *input_of(const Play *y, const PipelineSpan *s, bool *wanted)
{
    const PipelineAction *a = &s->action;
    int piece = y->t->piece[s->stage][a->chunk] + (a->op == PIPELINE_F ? -1 : 1);
    *wanted = a->op != PIPELINE_W && piece >= 0 && piece < y->t->p * y->t->v;
    if (!*wanted || y->place[piece].stage < 0) return NULL;
    return find(y, y->place[piece].stage, a->op, a->micro, y->place[piece].chunk);
}

// What must be done on the same stage: F before B, B before W.
static PipelineSpan *own_of(const Play *y, const PipelineSpan *s, bool *wanted)
{
    const PipelineAction *a = &s->action;
    *wanted = a->op != PIPELINE_F;
    return *wanted ? find(y, s->stage, a->op == PIPELINE_B ? PIPELINE_F : PIPELINE_B, a->micro, a->chunk) : NULL;
}

// Advances a stage by one action if it can.
static bool advance(Play *y, int stage)
{
    PipelineTimeline *line = y->line;
    size_t i = line->begin[stage] + (size_t)y->next[stage];
    if (i == line->begin[stage + 1]) return false;
    PipelineSpan *now = &line->span[i];
    bool wants_input, wants_own;
    PipelineSpan *input = input_of(y, now, &wants_input), *own = own_of(y, now, &wants_own);
    double start = i > line->begin[stage] ? now[-1].end : 0;
    if (wants_input && (!input || isnan(input->end))) return y->missed[stage] = input, false;
    if (wants_own && (!own || isnan(own->end))) return y->missed[stage] = own, false;
    if (input) start = fmax(start, input->ready + (input->stage != stage ? y->times->p2p : 0));
    if (now->action.op == PIPELINE_B) start = fmax(start, own->ready); // W does not wait for B's exchange
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
                              what->stage == stage ? ", which comes later there" : "");
        stage = what->stage;
    }
    if (told > 1 && seen[stage] && n < n_why) snprintf(why + n, n_why - n, ": a circle, nothing moves");
}

bool pipeline_time_run(PipelineTimeline *out, const PipelineTable *t, const PipelineTimes *times, char *why,
                       size_t n_why)
{
    Play y = {.t = t, .times = times, .line = out, .index = pipeline_table_index(t)};
    *out = (PipelineTimeline){.p = t->p};
    for (int s = 0; s < t->p; s++) out->begin[s + 1] = out->begin[s] + (size_t)t->n[s];
    size_t n = out->begin[t->p];
    out->span = malloc((n + 1) * sizeof *out->span);
    if (!out->span) die("pipeline: no memory for %zu actions", n);
    for (int s = 0; s < t->p; s++)
        for (int i = 0; i < t->n[s]; i++) {
            size_t k = out->begin[s] + (size_t)i;
            out->span[k] = (PipelineSpan){.stage = s, .action = t->action[s][i], .start = NAN, .end = NAN};
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
    free(y.index);
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
