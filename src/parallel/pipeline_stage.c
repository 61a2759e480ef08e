// pipeline_stage: which layers a stage has, which table runs, and how many bytes of activations that takes.
//
//   piece q of Q    floor(L / Q) layers; L mod Q of the pieces, in the middle, have one more
//   bytes           sum over chunks c of peak(c) slot_c + late(c) late_c, and what all share (recompute.h)
//
// peak(c) comes from the table alone: the most micro-batches that are between the start of F and the end of B in chunk
// c, or the end of W where W reads what F left (pipeline_check_peak).
//
// The invariant: model, plan and engine ask the functions of this file, so none of them can hold another number of
// buffers than the table needs.
//
// Rejected: one pool of slots for all chunks of a stage. It would hold what is in flight at the moment when most is,
// a little less than the sum of the chunks' own peaks; but chunks differ in size (uneven layers, the head), and which
// of them holds a buffer would depend on the order of actions.
#include "parallel/pipeline.h"

#include "base/check.h"
#include "parallel/pipeline_check.h"

#include <stdlib.h>
#include <string.h>

size_t pipeline_layers(size_t layers, int pieces, int piece, size_t *first)
{
    size_t n = (size_t)pieces, q = (size_t)piece, each = layers / n, rest = layers % n, middle = (n - rest) / 2;
    size_t before = q > middle ? q - middle : 0; // pieces in front of it that may have one more
    *first = q * each + (before < rest ? before : rest);
    return each + (q >= middle && q < middle + rest);
}

// The most of a chunk's micro-batches at once; full, kept: whether they count until B, and until W.
static int in_flight(const PipelineTable *t, int stage, int chunk, bool full, bool kept)
{
    size_t until_b[PIPELINE_MAX_CHUNKS] = {0}, until_w[PIPELINE_MAX_CHUNKS] = {0};
    until_b[chunk] = full, until_w[chunk] = kept;
    return (int)pipeline_check_peak(t, stage, until_b, until_w);
}

ModelStage pipeline_stage(const PipelineTable *t, int stage, size_t layers, const size_t *counts)
{
    _Static_assert((int)MODEL_MAX_CHUNKS == (int)PIPELINE_MAX_CHUNKS, "a stage holds all chunks of a table");
    ModelStage s = {.n_chunks = t->v};
    int pieces = t->p * t->v;
    for (int c = 0; c < t->v; c++) {
        ModelPiece *p = &s.chunk[c];
        int q = t->piece[stage][c];
        p->layers = pipeline_layers(layers, pieces, q, &p->first);
        if (counts) {
            p->layers = counts[q], p->first = 0;
            for (int i = 0; i < q; i++) p->first += counts[i];
        }
        check(p->layers > 0 && p->first + p->layers <= layers);
        p->embedding = q == 0;
        p->head = q == pieces - 1;
        check(!p->head || p->first + p->layers == layers);
        p->active = in_flight(t, stage, c, true, false);
        p->held = in_flight(t, stage, c, true, true);
        p->late = t->split ? in_flight(t, stage, c, false, true) : 0;
    }
    return s;
}

static void must_be_in_order(const PipelineTable *t, const char *name)
{
    for (int s = 0; s < t->p; s++) {
        int last[PIPELINE_OPS][PIPELINE_MAX_CHUNKS];
        memset(last, -1, sizeof last);
        for (int i = 0; i < t->n[s]; i++) {
            const PipelineAction *a = &t->action[s][i];
            if (a->micro != last[a->op][a->chunk] + 1)
                die("parallel.table = %s: stage %d slot %d: %s of micro-batch %d of chunk %d does not follow that "
                    "of %d, but numerics.deterministic adds gradients in the order of samples (reorder the file, "
                    "or set numerics.deterministic = false)", name, s, a->slot,
                    pipeline_table_op(a->op), a->micro, a->chunk,
                    a->micro - 1);
            last[a->op][a->chunk] = a->micro;
        }
    }
}

static PipelineTable *read_table(const char *path, int p, int m, int v)
{
    if (!strchr(path, '.') && !strchr(path, '/'))
        die("parallel.schedule = %s: no such schedule (gpipe, 1f1b, interleaved, zb-h1, zb-v, or a file FILE.csv)",
            path);
    PipelineTable *t = pipeline_csv_read(path);
    if (t->p != p) die("parallel.table = %s: the file has %d stages, parallel.pp = %d", path, t->p, p);
    if (t->m != m)
        die("parallel.table = %s: the file has %d micro-batches, a step has %d of them on each replica (change "
            "batch.tokens or batch.micro)", path, t->m, m);
    if (v && t->v != v) die("parallel.table = %s: the file has %d chunks, parallel.chunks = %d", path, t->v, v);
    return t;
}

PipelineTable *pipeline_choose(const char *name, int p, int m, int v, size_t layers, bool deterministic)
{
    PipelineSchedule schedule = pipeline_table_find(name);
    bool user = schedule >= PIPELINE_USER;
    PipelineTable *t = user ? read_table(name, p, m, v) : pipeline_table_make(schedule, p, m, v);
    PipelineProof proof;
    char why[1600];
    if ((size_t)(t->p * t->v) > layers)
        die("parallel.pp = %d, chunks = %d: %d pieces, but the model has %zu layers (take fewer stages or chunks)",
            t->p, t->v, t->p * t->v, layers);
    if (!pipeline_check(t, &proof, why, sizeof why))
        die("parallel.%s = %s: %s", user ? "table" : "schedule", name, why);
    if (deterministic) must_be_in_order(t, name);
    return t;
}

// Of a chunk's slot, and of what stays until W.
static void chunk_bytes(const ModelPiece *c, const ModelShape *part, const Dev *dev, RecomputePolicy policy,
                        size_t segment, size_t N, size_t *slot, size_t *late)
{
    *slot = recompute_slot_bytes(part, dev, policy, segment, c->layers, c->head, N);
    *late = c->late ? recompute_late_bytes(part, dev, segment, c->layers, N) : 0;
}

size_t pipeline_bytes(const PipelineTable *t, int stage, const size_t *counts, const ModelShape *part, const Dev *dev,
                      RecomputePolicy policy, size_t B, size_t T, size_t *in_flight)
{
    ModelStage s = pipeline_stage(t, stage, part->layers, counts);
    size_t full[PIPELINE_MAX_CHUNKS], kept[PIPELINE_MAX_CHUNKS], most = 0, sum = 0;
    for (int c = 0; c < s.n_chunks; c++)
        if (s.chunk[c].layers > most) most = s.chunk[c].layers;
    size_t segment = recompute_segment(policy, most);
    for (int c = 0; c < s.n_chunks; c++) {
        size_t slot, late;
        const ModelPiece *piece = &s.chunk[c];
        chunk_bytes(piece, part, dev, policy, segment, B * T, &slot, &late);
        sum += slot * (size_t)(segment ? piece->active : piece->held) + late * (size_t)piece->late;
        full[c] = slot, kept[c] = late + (segment ? 0 : slot);
    }
    if (in_flight) *in_flight = pipeline_check_peak(t, stage, full, kept);
    return sum + recompute_pool_bytes(part, dev, policy, segment, B * T);
}

size_t pipeline_sent_bytes(const PipelineTable *t, int stage, const Model *m, size_t B, size_t T)
{
    size_t n = 0, bytes = model_stream_rows(m, B, T) * m->shape.channels * m->dev->x_bytes;
    for (int i = 0; i < t->n[stage]; i++) {
        PipelinePlace reader = pipeline_table_reader(t, stage, t->action[stage][i]);
        n += reader.stage >= 0 && reader.stage != stage;
    }
    return n * bytes;
}
