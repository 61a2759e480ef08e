// pipeline_check: proves a table before anything runs by it. See pipeline_check.h for the contract.
//
// The invariant: any engine that keeps each stage's order, receives an action's input before it, and sends its output
// without waiting, runs a table that passes to its end, and computes every gradient exactly once.
//
// Why simulating it once is a proof: with buffered sends an action that can begin stays able to begin, whatever else
// happens first. So all orders of events reach the same state, and one that finishes shows that all do.
//
// Rejected: proving an order by topological sort (the simulation does that, and reports which stage waits for which);
// trusting our own generators (training with a wrong table runs, and its loss falls).
#include "parallel/pipeline_check.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
    const PipelineTable *t;
    char *why;
    size_t n_why;
} Report;

static bool wrong_at(const Report *r, int stage, const PipelineAction *a, const char *what, int slot)
{
    int n = snprintf(r->why, r->n_why, "stage %d slot %d: %s of micro-batch %d, chunk %d: %s", stage, a->slot,
                     pipeline_table_op(a->op), a->micro, a->chunk, what);
    if (slot >= 0 && n > 0 && (size_t)n < r->n_why) snprintf(r->why + n, r->n_why - (size_t)n, " in slot %d", slot);
    return false;
}

static bool check_pieces(const Report *r)
{
    const PipelineTable *t = r->t;
    for (int q = 0; q < t->p * t->v; q++)
        if (pipeline_table_place(t, q).stage < 0) {
            snprintf(r->why, r->n_why, "piece %d of the model is on no stage (%d stages with %d chunks hold "
                     "pieces 0 to %d, each once)", q, t->p, t->v, t->p * t->v - 1);
            return false;
        }
    return true;
}

static bool check_action(const Report *r, int stage, int i, const int *index)
{
    const PipelineTable *t = r->t;
    const PipelineAction *a = &t->action[stage][i];
    if (a->op == PIPELINE_W && !t->split) return wrong_at(r, stage, a, "but B includes W in this table", -1);
    int first = index[pipeline_table_key(t, stage, a->op, a->micro, a->chunk)];
    if (first != i) return wrong_at(r, stage, a, "a second time; the first is", t->action[stage][first].slot);
    if (a->op == PIPELINE_F) return true;
    int own = index[pipeline_table_key(t, stage, a->op == PIPELINE_B ? PIPELINE_F : PIPELINE_B, a->micro, a->chunk)];
    if (own > i)
        return wrong_at(r, stage, a, a->op == PIPELINE_B ? "before its F, which is" : "before its B, which is",
                        t->action[stage][own].slot);
    return true;
}

static bool check_stage(const Report *r, int stage, const int *index)
{
    const PipelineTable *t = r->t;
    for (int i = 0; i < t->n[stage]; i++)
        if (!check_action(r, stage, i, index)) return false;
    for (int op = 0; op < (t->split ? PIPELINE_OPS : PIPELINE_W); op++)
        for (int micro = 0; micro < t->m; micro++)
            for (int chunk = 0; chunk < t->v; chunk++)
                if (index[pipeline_table_key(t, stage, (PipelineOp)op, micro, chunk)] < 0) {
                    snprintf(r->why, r->n_why, "stage %d: no %s of micro-batch %d, chunk %d in its %d slots", stage,
                             pipeline_table_op((PipelineOp)op), micro, chunk, t->n[stage]);
                    return false;
                }
    return true;
}

// Numbers that no table of these sizes has; before anything is looked up by them.
static bool check_ranges(const Report *r)
{
    const PipelineTable *t = r->t;
    for (int s = 0; s < t->p; s++)
        for (int i = 0; i < t->n[s]; i++) {
            const PipelineAction *a = &t->action[s][i];
            if (a->micro < 0 || a->micro >= t->m) return wrong_at(r, s, a, "there is no such micro-batch", -1);
            if (a->chunk < 0 || a->chunk >= t->v) return wrong_at(r, s, a, "there is no such chunk", -1);
            if (a->op < PIPELINE_F || a->op >= PIPELINE_OPS) return wrong_at(r, s, a, "there is no such action", -1);
        }
    return true;
}

static void measure(const PipelineTable *t, PipelineProof *proof)
{
    size_t one[PIPELINE_MAX_CHUNKS], none[PIPELINE_MAX_CHUNKS];
    for (int c = 0; c < PIPELINE_MAX_CHUNKS; c++) one[c] = 1, none[c] = 0;
    for (int s = 0; s < t->p; s++) {
        proof->active[s] = (int)pipeline_check_peak(t, s, one, none);
        proof->held[s] = (int)pipeline_check_peak(t, s, one, one);
        proof->sent[s] = 0;
        for (int i = 0; i < t->n[s]; i++) {
            PipelinePlace reader = pipeline_table_reader(t, s, t->action[s][i]);
            proof->sent[s] += reader.stage >= 0 && reader.stage != s;
        }
    }
}

// The stages' orders together come to their end.
static bool check_end(const Report *r)
{
    PipelineTimeline line;
    bool ends = pipeline_time_run(&line, r->t, &(PipelineTimes){1, 1, 1, 0, 0}, r->why, r->n_why);
    pipeline_time_free(&line);
    return ends;
}

bool pipeline_check(const PipelineTable *t, PipelineProof *proof, char *why, size_t n_why)
{
    Report r = {t, why, n_why};
    if (!check_pieces(&r) || !check_ranges(&r)) return false;
    int *index = pipeline_table_index(t);
    bool ok = true;
    for (int s = 0; s < t->p && ok; s++) ok = check_stage(&r, s, index);
    free(index);
    if (!ok || !check_end(&r)) return false;
    measure(t, proof);
    return true;
}

size_t pipeline_check_peak(const PipelineTable *t, int stage, const size_t *full, const size_t *kept)
{
    size_t now = 0, most = 0;
    for (int i = 0; i < t->n[stage]; i++) {
        const PipelineAction *a = &t->action[stage][i];
        if (a->op == PIPELINE_F) now += full[a->chunk];
        if (a->op == PIPELINE_B) now += (t->split ? kept[a->chunk] : 0) - full[a->chunk];
        if (a->op == PIPELINE_W) now -= kept[a->chunk];
        if (now > most) most = now;
    }
    return most;
}
