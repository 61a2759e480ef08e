// pipeline: the engine: a stage executes its list of actions in order; messages connect the stages.
//
//   F   take a slot; input from the stage with the piece before, or the embedding; forward; output to the next stage
//   B   gradient of the output from the next stage, or the loss; backward; gradient of the input to the stage before
//   W   gradients of the weights, from what B has left
//
// The invariant: an action waits only for its own input. So what pipeline_check proved for the table, with buffered
// sends, holds for the engine, and no table that passes can deadlock. Why no send is ever waited for:
//
//   - an output stays in a buffer of its slot until the slot is used again. That is after B, whose gradient cannot
//     arrive before the output was received.
//   - a gradient finds its receive posted: the reader posts it when its own F ends, before the writer's F. It goes into
//     a buffer of the reader's slot; backward works in place there, and the result is sent from there.
//   - gradients of a tied head have as many buffers as micro-batches can be in flight on the way (see "a tied head apart from its embedding").
//
// Deterministic mode: a chunk adds the gradients of its sequences in the tree of model_run.c, in ascending order,
// whatever other chunks do meanwhile. So any table whose chunks keep that order gives the bits of one rank.
//
// Rejected: a function for each schedule (it could not be checked before it hangs); MPI_Sendrecv pairs, as in
// Megatron-LM (interleaved and Vs deadlock).
#include "parallel/pipeline.h"

#include "base/check.h"
#include "base/clock.h"
#include "parallel/ddp.h"
#include "parallel/pipeline_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- which stage has which layers
//
// What a stage has:
//
//   piece q of Q    floor(L / Q) layers; L mod Q of the pieces, in the middle, have one more
//   bytes           sum over chunks c of peak(c) slot_c + late(c) late_c, and what all share (recompute.h)
//
// peak(c) comes from the table alone: the most micro-batches that are between the start of F and the end of B in chunk
// c, or the end of W where W reads F's activations (pipeline_check_peak). Model, plan and engine all call the functions
// of this file, so they agree on the number of buffers.

size_t pipeline_layers(size_t layers, int pieces, int piece, size_t *first)
{
    size_t n = (size_t)pieces, q = (size_t)piece, each = layers / n, rest = layers % n, middle = (n - rest) / 2;
    size_t before = q > middle ? q - middle : 0; // pieces in front of it that may have one more
    *first = q * each + (before < rest ? before : rest);
    return each + (q >= middle && q < middle + rest);
}

// The most micro-batches of a chunk in flight at once; full, kept: whether they count until B, and until W.
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
        die("parallel.schedule = %s: no such schedule (gpipe, 1f1b, interleaved, zb-h1, zb-v, v-half, v-min, or a file "
            "FILE.csv)", path);
    PipelineTable *t = pipeline_table_read(path);
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

// Bytes of a chunk's slot, and of what is kept until W.
static void chunk_bytes(const ModelPiece *c, const ModelShape *part, const Dev *dev, RecomputePolicy policy,
                        size_t segment, size_t N, size_t *slot, size_t *late)
{
    *slot = recompute_slot_bytes(part, dev, policy, segment, c->first, c->layers, c->head, N);
    *late = c->late ? recompute_late_bytes(part, dev, segment, c->first, c->layers, N) : 0;
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

// ---- a tied head apart from its embedding
//
// A tied head on another stage than its embedding: that stage keeps a copy of the weights, renewed after every update,
// and an array for the gradient. The gradient is sent to the embedding's stage and added to the embedding's own, once
// per step. On a deterministic device this happens for every sequence, into the zeroed gradient, before the embedding
// adds its own: the order in which one rank adds, head first. At the end of a step the whole gradient is in the
// embedding's row, and the copy's is zero, so norm, optimizer, ZeRO and checkpoints use only that row. The head may
// also be on the embedding's stage, in another chunk (a V). It then reads the embedding itself, and only a
// deterministic device sends the gradient through a buffer, because the head may have processed later sequences before
// the embedding reaches the first. The number of gradients in flight is at most the number of sequences between the
// embedding's F and B: a gradient that the head has computed and the embedding has not added belongs to one of them. So
// a send never waits for a buffer that only this stage could free.

static size_t vocab_elems(const Pipeline *p)
{
    return p->model->local.vocab * p->model->local.channels;
}

// Finds the other end's rank, and allocates buffers for the messages.
static void tied_create(Pipeline *p)
{
    Model *m = p->model;
    const PipelineTable *t = p->table;
    PipelinePlace home = pipeline_table_place(t, 0), head = pipeline_table_place(t, t->p * t->v - 1);
    bool each = m->dev->deterministic, together = home.stage == head.stage;
    p->tied_peer = -1;
    if (!m->shape.tie || (together && (!each || home.chunk == head.chunk))) return;
    if (!together && abs(home.stage - head.stage) != t->p - 1)
        die("parallel.table: the first piece of the model is on stage %d and the last on %d, but model.tie = true "
            "needs them on the first and the last stage, or on one", home.stage, head.stage);
    p->tied_embedding = p->stage == home.stage;
    p->tied_head = p->stage == head.stage;
    if (!p->tied_embedding && !p->tied_head) return;
    if (!together) p->tied_peer = p->tied_embedding == (home.stage < head.stage); // of two in the order of stages
    check(together || !p->pp || (p->ends && p->ends->size == 2));
    ModelStage of_home = pipeline_stage(t, home.stage, m->shape.layers, NULL);
    if (each && p->tied_head) p->n_tied = of_home.chunk[home.chunk].active * (int)m->max_batch;
    if (!each && p->tied_embedding) p->n_tied = 1;
    size_t n = (size_t)p->n_tied;
    if (n) p->tied_buffer = mem_alloc(m->mem, MEM_COMM, n * vocab_elems(p) * sizeof(float), "tied head's gradient");
    p->tied_request = calloc(n + 1, sizeof *p->tied_request);
    if (!p->tied_request) die("pipeline: no memory for %zu messages", n);
}

static float *embedding_grad(Pipeline *p)
{
    const Model *m = p->model;
    const Unit *unit = &m->unit[0];
    const Param *row = &m->params.row[unit->row[W_TOKENS]];
    return m->unit_grad[unit->home] + (row->offset - m->unit_begin[unit->home]);
}

// On a deterministic device: before the embedding's backward of a sequence.
static void tied_receive(Pipeline *p)
{
    size_t n = vocab_elems(p);
    if (p->tied_peer < 0) {
        size_t at = p->tied_taken++ % (size_t)p->n_tied;
        p->model->dev->accumulate(p->model->dev, embedding_grad(p), p->tied_buffer + at * n, n);
        return;
    }
    CommRequest request = comm_recv(p->ends, embedding_grad(p), n, COMM_FP32, p->tied_peer, 0);
    comm_wait(p->ends, &request);
}

// And after the head's.
static void tied_send(Pipeline *p)
{
    Dev *dev = p->model->dev;
    size_t n = vocab_elems(p), at = p->tied_sent++ % (size_t)p->n_tied;
    float *buffer = p->tied_buffer + at * n;
    if (p->tied_peer >= 0) comm_wait(p->ends, &p->tied_request[at]);
    dev->zero(dev, buffer, n * sizeof *buffer);
    dev->accumulate(dev, buffer, p->model->tied_grad, n); // which is left zero
    if (p->tied_peer < 0) return;
    p->tied_request[at] = comm_send(p->ends, buffer, n, COMM_FP32, p->tied_peer, 0);
}

// The embedding's weights are about to be read, or its gradient to be added to, between two actions: with ZeRO they
// must be here.
static void around_embedding(const Pipeline *p, UnitPass pass, bool begin)
{
    const UnitHooks *hooks = &p->model->hooks;
    void (*hook)(void *, int, UnitPass) = begin ? hooks->before : hooks->after;
    if (p->tied_embedding && hook) hook(hooks->self, 0, pass);
}

// At a step's end: all has been sent, or on another device is sent now.
static void tied_finish(Pipeline *p)
{
    Model *m = p->model;
    size_t n = vocab_elems(p);
    if (p->tied_peer < 0) return;
    for (int i = 0; i < p->n_tied; i++) comm_wait(p->ends, &p->tied_request[i]);
    if (m->dev->deterministic) return;
    if (p->tied_embedding) {
        CommRequest request = comm_recv(p->ends, p->tied_buffer, n, COMM_FP32, p->tied_peer, 0);
        comm_wait(p->ends, &request);
        around_embedding(p, PASS_LATER, true);
        m->dev->accumulate(m->dev, embedding_grad(p), p->tied_buffer, n);
        around_embedding(p, PASS_LATER, false);
    } else {
        CommRequest request = comm_send(p->ends, m->tied_grad, n, COMM_FP32, p->tied_peer, 0);
        comm_wait(p->ends, &request);
        m->dev->zero(m->dev, m->tied_grad, n * sizeof *m->tied_grad);
    }
}

void pipeline_share_tied(Pipeline *p)
{
    const Model *m = p->model;
    if (p->tied_peer < 0) return;
    CommType type = comm_type_of(m->dev->x_type);
    size_t n = vocab_elems(p);
    around_embedding(p, PASS_FORWARD, true);
    size_t at = p->tied_embedding ? m->params.row[m->unit[0].row[W_TOKENS]].offset - m->unit_begin[0] : 0;
    const char *embedding = (const char *)m->unit_weight[0] + at * m->dev->x_bytes;
    CommRequest request = p->tied_embedding ? comm_send(p->ends, embedding, n, type, p->tied_peer, 0)
                                            : comm_recv(p->ends, m->tied_weight, n, type, p->tied_peer, 0);
    comm_wait(p->ends, &request);
    around_embedding(p, PASS_FORWARD, false);
}

// ---- buffers
//
// A batch that grows (batch.ramp_from) has a table for each number of micro-batches. The buffers are those of the full
// batch: in every published schedule a table of fewer micro-batches has no more of them in flight in any chunk
// (test_pipeline_engine).

static void *allocate(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) die("pipeline: no memory for %zu entries", n);
    return p;
}

static void create_flow(Pipeline *p, int chunk)
{
    Model *m = p->model;
    PipelineFlow *f = &p->flow[chunk];
    PipelineAction forward = {.op = PIPELINE_F, .chunk = chunk};
    size_t n = (size_t)m->chunk[chunk].n_slots;
    size_t n_bytes = model_stream_rows(m, m->max_batch, m->max_tokens) * m->acts.stream_row;
    f->source = pipeline_table_source(p->table, p->stage, forward);
    f->reader = pipeline_table_reader(p->table, p->stage, forward);
    f->n_slots = (int)n, f->n_late = m->chunk[chunk].n_late;
    f->micro = allocate(n, sizeof *f->micro);
    f->late = allocate((size_t)f->n_late, sizeof *f->late);
    f->out = allocate(n, sizeof *f->out), f->grad = allocate(n, sizeof *f->grad);
    PipelineMessage **message[] = {&f->in_f, &f->out_f, &f->in_b, &f->out_b};
    for (int i = 0; i < 4; i++) *message[i] = allocate(n, sizeof **message[i]);
    for (size_t i = 0; i < n; i++) {
        f->micro[i] = -1;
        if (!m->chunk[chunk].piece.head) f->out[i] = (X *)mem_alloc(m->mem, MEM_COMM, n_bytes, "output of a chunk");
        f->grad[i] = (X *)mem_alloc(m->mem, MEM_COMM, n_bytes, "gradient of a chunk");
    }
    for (int i = 0; i < f->n_late; i++) f->late[i] = -1;
}

Pipeline *pipeline_create(Model *model, const PipelineTable *table, int stage, Comm *pp, Comm *ends)
{
    Pipeline *p = allocate(1, sizeof *p);
    *p = (Pipeline){.model = model, .table = table, .stage = stage, .pp = pp, .ends = ends};
    check(model->n_chunks == table->v && (!pp || (pp->size == table->p && pp->rank == stage)));
    for (int c = 0; c < table->v; c++) create_flow(p, c);
    tied_create(p);
    return p;
}

void pipeline_use(Pipeline *p, const PipelineTable *table)
{
    const Model *m = p->model;
    if (table == p->table) return;
    check(table->p == p->table->p && table->v == p->table->v && table->split == p->table->split);
    check(!memcmp(table->piece, p->table->piece, sizeof table->piece));
    ModelStage need = pipeline_stage(table, p->stage, m->shape.layers, NULL);
    for (int c = 0; c < table->v; c++) {
        const ModelPiece *piece = &need.chunk[c];
        check((m->pool.segment ? piece->active : piece->held) <= p->flow[c].n_slots);
        check(piece->late <= p->flow[c].n_late);
    }
    p->table = table;
}

void pipeline_free(Pipeline *p)
{
    if (!p) return;
    for (int c = 0; c < p->table->v; c++) {
        PipelineFlow *f = &p->flow[c];
        void *own[] = {f->micro, f->late, f->out, f->grad, f->in_f, f->out_f, f->in_b, f->out_b};
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    }
    free(p->tied_request);
    free(p->span);
    free(p);
}

// ---- messages
//
// Receives of inputs are posted as soon as a slot is free, before the action that needs them.

static size_t elems_of(const Pipeline *p, const PipelineMicro *micro)
{
    return model_stream_rows(p->model, micro->B, micro->T) * p->model->shape.channels;
}

// Names an action among all that may be on their way between two stages.
static int tag_of(const Pipeline *p, PipelineOp op, int micro, int reader_chunk)
{
    _Static_assert(2 * PIPELINE_MAX_CHUNKS * PIPELINE_MAX_MICRO - 1 <= COMM_MAX_TAG, "a tag for each action");
    return ((op == PIPELINE_B) * p->table->v + reader_chunk) * PIPELINE_MAX_MICRO + micro % PIPELINE_MAX_MICRO;
}

static void message_wait(Pipeline *p, PipelineMessage *message)
{
    if (!p->pp) return;
    comm_wait(p->pp, &message->data);
    comm_wait(comm_host(p->pp), &message->time);
}

static void message_send(Pipeline *p, PipelineMessage *message, const X *x, size_t n, int to, int tag)
{
    message->data = comm_send(p->pp, x, n, comm_type_of(p->model->dev->x_type), to, tag);
    message->sent = p->clock;
    if (p->recording && p->times) message->time = comm_send(comm_host(p->pp), &message->sent, 1, COMM_FP64, to, tag);
}

static void message_receive(Pipeline *p, PipelineMessage *message, X *x, size_t n, int from, int tag)
{
    message->data = comm_recv(p->pp, x, n, comm_type_of(p->model->dev->x_type), from, tag);
    if (p->recording && p->times) message->time = comm_recv(comm_host(p->pp), &message->sent, 1, COMM_FP64, from, tag);
}

static void copy(Pipeline *p, X *out, const X *in, size_t n)
{
    p->model->dev->dropout(p->model->dev, out, in, n, (Dropout){.p = 0});
}

// ---- slots

static int slot_of(const Pipeline *p, int chunk, int micro)
{
    const PipelineFlow *f = &p->flow[chunk];
    for (int i = 0; i < f->n_slots; i++)
        if (f->micro[i] == micro) return i;
    return -1;
}

static bool is_remote(const Pipeline *p, PipelinePlace place)
{
    return place.stage >= 0 && place.stage != p->stage;
}

// Gives a micro-batch a slot, if one is free, and posts the receive of its input.
static bool open_slot(Pipeline *p, int chunk, int micro, const PipelineMicro *batch)
{
    PipelineFlow *f = &p->flow[chunk];
    int slot = slot_of(p, chunk, -1);
    if (slot < 0) return false;
    f->micro[slot] = micro;
    if (is_remote(p, f->source))
        message_receive(p, &f->in_f[slot], model_chunk_input(p->model, chunk, slot), elems_of(p, batch),
                        f->source.stage, tag_of(p, PIPELINE_F, micro, chunk));
    return true;
}

// Posts the receives of the inputs that come next, of each chunk one.
static void look_ahead(Pipeline *p, int from, const PipelineMicro *batch)
{
    const PipelineAction *action = p->table->action[p->stage];
    bool seen[PIPELINE_MAX_CHUNKS] = {false};
    for (int i = from, found = 0; i < p->table->n[p->stage] && found < p->table->v; i++) {
        const PipelineAction *a = &action[i];
        if (a->op != PIPELINE_F || seen[a->chunk]) continue;
        seen[a->chunk] = true, found++;
        if (slot_of(p, a->chunk, a->micro) < 0) open_slot(p, a->chunk, a->micro, &batch[a->micro]);
    }
}

static void set_batch(Pipeline *p, const PipelineMicro *b)
{
    model_set_batch(p->model, b->token, b->pos, b->target, b->B, b->T);
    if (b->first) model_set_documents(p->model, b->first);
    model_set_dropout(p->model, b->dropout, b->seed, b->step, b->sample);
    model_set_each(p->model, b->each);
}

static void keep_losses(Pipeline *p, int chunk, const PipelineMicro *b)
{
    Model *m = p->model;
    if (b->loss && m->chunk[chunk].piece.head)
        m->dev->to_host(m->dev, b->loss, m->loss, m->batch.N * sizeof *b->loss);
}

// ---- actions

// The input of a forward is there: from another stage, or from a chunk of this one.
static void take_input(Pipeline *p, int chunk, int slot, int source_slot, size_t n)
{
    PipelineFlow *f = &p->flow[chunk];
    if (is_remote(p, f->source)) {
        message_wait(p, &f->in_f[slot]);
    } else if (f->source.stage >= 0) {
        copy(p, model_chunk_input(p->model, chunk, slot), p->flow[f->source.chunk].out[source_slot], n);
    }
}

// The output is on its way; `clock` was read when it was made.
static void give_output(Pipeline *p, int chunk, int slot, int micro, size_t n)
{
    PipelineFlow *f = &p->flow[chunk];
    if (is_remote(p, f->reader))
        message_send(p, &f->out_f[slot], f->out[slot], n, f->reader.stage,
                     tag_of(p, PIPELINE_F, micro, f->reader.chunk));
}

// Begins an action whose input came with `message` (NULL, or nothing in it: from this stage), in time.
static double begin(Pipeline *p, const PipelineMessage *message)
{
    if (p->recording && p->times) return message ? fmax(p->clock, message->sent + p->times->p2p) : p->clock;
    return p->recording ? clock_seconds() : 0;
}

static void end(Pipeline *p, int i, double start)
{
    if (!p->recording) return;
    p->clock = p->times ? start + pipeline_time_lasts(p->table, p->times, p->table->action[p->stage][i].op)
                        : clock_seconds();
    p->span[2 * i] = start, p->span[2 * i + 1] = p->clock;
}

static void run_forward(Pipeline *p, int i, PipelineAction a, const PipelineMicro *b)
{
    PipelineFlow *f = &p->flow[a.chunk];
    size_t n = elems_of(p, b);
    int slot = slot_of(p, a.chunk, a.micro);
    check(slot >= 0);
    take_input(p, a.chunk, slot, f->source.stage == p->stage ? slot_of(p, f->source.chunk, a.micro) : -1, n);
    message_wait(p, &f->out_f[slot]);
    double start = begin(p, is_remote(p, f->source) ? &f->in_f[slot] : NULL);
    if (++p->in_flight > p->most_in_flight) p->most_in_flight = p->in_flight;
    set_batch(p, b);
    model_chunk_forward(p->model, a.chunk, slot, f->out[slot], true);
    end(p, i, start);
    give_output(p, a.chunk, slot, a.micro, n);
    message_wait(p, &f->out_b[slot]); // the buffer's last gradient
    if (is_remote(p, f->reader))
        message_receive(p, &f->in_b[slot], f->grad[slot], n, f->reader.stage, tag_of(p, PIPELINE_B, a.micro, a.chunk));
}

// The gradient of the input goes to where the input came from.
static void give_gradient(Pipeline *p, int chunk, int slot, int micro, size_t n)
{
    PipelineFlow *f = &p->flow[chunk];
    if (is_remote(p, f->source)) {
        message_send(p, &f->out_b[slot], f->grad[slot], n, f->source.stage,
                     tag_of(p, PIPELINE_B, micro, f->source.chunk));
    } else if (f->source.stage >= 0) {
        PipelineFlow *to = &p->flow[f->source.chunk];
        copy(p, to->grad[slot_of(p, f->source.chunk, micro)], f->grad[slot], n);
    }
}

static void run_backward(Pipeline *p, int i, PipelineAction a, const PipelineMicro *b, float scale)
{
    Model *m = p->model;
    PipelineFlow *f = &p->flow[a.chunk];
    const ModelPiece *piece = &m->chunk[a.chunk].piece;
    int slot = slot_of(p, a.chunk, a.micro), late = -1;
    bool each = m->dev->deterministic, home = each && p->tied_embedding && piece->embedding;
    bool away = each && p->tied_head && piece->head;
    if (is_remote(p, f->reader)) message_wait(p, &f->in_b[slot]);
    double start = begin(p, is_remote(p, f->reader) ? &f->in_b[slot] : NULL);
    if (p->table->split) {
        for (late = 0; f->late[late] >= 0;) late++;
        f->late[late] = a.micro;
    }
    set_batch(p, b);
    for (size_t part = 0; part < model_parts(m); part++) {
        if (home) tied_receive(p);
        model_chunk_backward(m, a.chunk, slot, late, f->grad[slot], scale, part);
        if (away) tied_send(p);
    }
    end(p, i, start);
    keep_losses(p, a.chunk, b);
    give_gradient(p, a.chunk, slot, a.micro, elems_of(p, b));
    if (!p->table->split) p->in_flight--;
    if (!p->table->split || m->pool.segment) f->micro[slot] = -1;
}

static void run_weight(Pipeline *p, int i, PipelineAction a, const PipelineMicro *b, float scale)
{
    PipelineFlow *f = &p->flow[a.chunk];
    bool here = !p->model->pool.segment; // what it reads is still in the slot
    int slot = here ? slot_of(p, a.chunk, a.micro) : 0, late = 0;
    while (f->late[late] != a.micro) late++;
    double start = begin(p, NULL);
    set_batch(p, b);
    model_chunk_weight(p->model, a.chunk, slot, late, scale);
    end(p, i, start);
    f->late[late] = -1;
    if (here) f->micro[slot] = -1;
    p->in_flight--;
}

// Time 0 of the step. Ranks of one machine share a clock: it is the time at which the first left the barrier. Clocks of
// different machines are not comparable: each rank takes its own time after the barrier, so stages are off by the
// duration of a barrier.
static double common_zero(Pipeline *p, double now)
{
    double both[2] = {now, -now}, most[2];
    CommRequest request = comm_all_reduce(comm_host(p->pp), most, both, 2, COMM_FP64, COMM_MAX);
    comm_wait(comm_host(p->pp), &request);
    return most[0] + most[1] < 1 ? -most[1] : now;
}

static void start_clock(Pipeline *p)
{
    p->clock = p->zero = 0;
    if (!p->recording) return;
    p->span = realloc(p->span, 2 * (size_t)p->table->n[p->stage] * sizeof *p->span);
    if (!p->span) die("pipeline: no memory for %d spans", p->table->n[p->stage]);
    CommRequest request = comm_barrier(comm_host(p->pp));
    comm_wait(comm_host(p->pp), &request);
    if (!p->times) p->zero = common_zero(p, clock_seconds());
}

// Drives messages between units.
static void before_unit(void *self, int unit, UnitPass pass)
{
    const Pipeline *p = self;
    if (p->hooks->before) p->hooks->before(p->hooks->self, unit, pass);
}

static void after_unit(void *self, int unit, UnitPass pass)
{
    const Pipeline *p = self;
    if (p->hooks->after) p->hooks->after(p->hooks->self, unit, pass);
    comm_progress(p->pp);
}

double pipeline_step(Pipeline *p, const PipelineMicro *micro, float scale)
{
    const PipelineTable *t = p->table;
    start_clock(p);
    p->in_flight = p->most_in_flight = 0;
    UnitHooks hooks = p->model->hooks;
    p->hooks = &hooks;
    p->model->hooks.self = p; // the watcher of the hooks stays
    p->model->hooks.before = before_unit;
    p->model->hooks.after = after_unit;
    for (int i = 0; i < t->n[p->stage]; i++) {
        PipelineAction a = t->action[p->stage][i];
        const PipelineMicro *b = &micro[a.micro];
        look_ahead(p, i, micro);
        if (a.op == PIPELINE_F) run_forward(p, i, a, b);
        else if (a.op == PIPELINE_B) run_backward(p, i, a, b, scale);
        else run_weight(p, i, a, b, scale);
    }
    for (int c = 0; c < t->v; c++)
        for (int i = 0; i < p->flow[c].n_slots; i++) {
            check(p->flow[c].micro[i] < 0);
            message_wait(p, &p->flow[c].out_f[i]);
            message_wait(p, &p->flow[c].out_b[i]);
        }
    p->model->hooks = hooks;
    tied_finish(p);
    for (int i = 0; p->recording && i < 2 * t->n[p->stage]; i++) p->span[i] -= p->zero;
    return model_step_finish(p->model);
}

// ---- without gradients

// A round takes as many micro-batches as every sending chunk has buffers for, and goes through all of a stage's chunks
// before the next round begins. Then everything that a stage waits for comes earlier in the order (round, piece,
// micro-batch), so there is no deadlock.
static int round_length(const Pipeline *p)
{
    const PipelineTable *t = p->table;
    int least = PIPELINE_MAX_MICRO;
    for (int s = 0; s < t->p; s++) {
        ModelStage stage = pipeline_stage(t, s, p->model->shape.layers, NULL);
        for (int c = 0; c < t->v; c++)
            if (!stage.chunk[c].head && stage.chunk[c].active < least) least = stage.chunk[c].active;
    }
    return least;
}

static double evaluate_one(Pipeline *p, int chunk, int k, const PipelineMicro *b)
{
    PipelineFlow *f = &p->flow[chunk];
    int slot = k % f->n_slots;
    size_t n = elems_of(p, b);
    if (is_remote(p, f->source))
        message_receive(p, &f->in_f[slot], model_chunk_input(p->model, chunk, slot), n, f->source.stage,
                        tag_of(p, PIPELINE_F, k, chunk));
    take_input(p, chunk, slot, f->source.stage == p->stage ? k % p->flow[f->source.chunk].n_slots : -1, n);
    message_wait(p, &f->out_f[slot]);
    set_batch(p, b);
    double loss = model_chunk_forward(p->model, chunk, slot, f->out[slot], false);
    keep_losses(p, chunk, b);
    give_output(p, chunk, slot, k, n);
    return loss;
}

// The chunks of this stage from the first layers to the last.
static void sort_chunks(const Pipeline *p, int order[PIPELINE_MAX_CHUNKS])
{
    const int *piece = p->table->piece[p->stage];
    for (int c = 0; c < p->table->v; c++) {
        int i = c;
        for (; i > 0 && piece[order[i - 1]] > piece[c]; i--) order[i] = order[i - 1];
        order[i] = c;
    }
}

double pipeline_evaluate(Pipeline *p, const PipelineMicro *micro, int n)
{
    int order[PIPELINE_MAX_CHUNKS], length = round_length(p), v = p->table->v;
    bool recording = p->recording;
    double sum = 0;
    sort_chunks(p, order);
    p->recording = false;
    for (int k0 = 0; k0 < n; k0 += length)
        for (int c = 0; c < v; c++)
            for (int k = k0; k < n && k < k0 + length; k++) sum += evaluate_one(p, order[c], k, &micro[k]);
    for (int c = 0; c < v; c++)
        for (int i = 0; i < p->flow[c].n_slots; i++) message_wait(p, &p->flow[c].out_f[i]);
    p->recording = recording;
    return sum;
}

void pipeline_next_logits(Pipeline *p, KvCache *cache, const int32_t *token, size_t n, float *logits)
{
    Model *m = p->model;
    const PipelineTable *t = p->table;
    check(n >= 1 && cache->length + n <= cache->room);
    int order[PIPELINE_MAX_CHUNKS], last = pipeline_table_place(t, t->p * t->v - 1).stage;
    size_t most = model_next_rows(m);
    bool recording = p->recording;
    sort_chunks(p, order);
    p->recording = false;
    for (size_t i = 0, rows; i < n; i += rows) {
        rows = n - i < most ? n - i : most;
        for (int c = 0; c < t->v; c++) {
            PipelineFlow *f = &p->flow[order[c]];
            size_t elems = rows * m->shape.channels;
            if (is_remote(p, f->source))
                message_receive(p, &f->in_f[0], model_chunk_input(m, order[c], 0), elems, f->source.stage,
                                tag_of(p, PIPELINE_F, 0, order[c]));
            take_input(p, order[c], 0, 0, elems);
            model_next_forward(m, order[c], &cache, 1, token + i, rows, f->out[0]);
            give_output(p, order[c], 0, 0, elems);
            message_wait(p, &f->out_f[0]);
        }
        model_cache_advance(m, cache, rows);
        if (i + rows == n && p->stage == last) model_last_logits(m, rows, 1, logits);
    }
    CommRequest request = comm_broadcast(comm_host(p->pp), logits, m->shape.vocab, COMM_FP32, last);
    comm_wait(comm_host(p->pp), &request);
    p->recording = recording;
}

static void batch_losses(void *self, const EvalBatch *b)
{
    pipeline_evaluate(self, &(PipelineMicro){.token = b->token, .pos = b->pos, .target = b->target, .first = b->first,
                                             .B = b->B, .T = b->T}, 1);
}

static void next_logits(void *self, KvCache *cache, const int32_t *token, size_t n, float *logits)
{
    pipeline_next_logits(self, cache, token, n, logits);
}

EvalForward pipeline_forward(Pipeline *p)
{
    return p ? (EvalForward){.losses = batch_losses, .self = p} : (EvalForward){0};
}

SampleForward pipeline_sampling(Pipeline *p)
{
    return p ? (SampleForward){.next_logits = next_logits, .self = p} : (SampleForward){0};
}

// ---- time

void pipeline_record(Pipeline *p, const PipelineTimes *times)
{
    p->recording = true;
    p->times = times;
}

PipelineTimeline pipeline_timeline(Pipeline *p)
{
    const PipelineTable *t = p->table;
    PipelineTimeline line = {.p = t->p};
    size_t counts[PIPELINE_MAX_STAGES];
    for (int s = 0; s < t->p; s++) {
        counts[s] = 2 * (size_t)t->n[s];
        line.begin[s + 1] = line.begin[s] + (size_t)t->n[s];
    }
    size_t n = line.begin[t->p];
    double *all = allocate(2 * n, sizeof *all);
    line.span = allocate(n, sizeof *line.span);
    check(p->span);
    CommRequest request = comm_all_gather(comm_host(p->pp), all, p->span, counts, COMM_FP64);
    comm_wait(comm_host(p->pp), &request);
    for (int s = 0; s < t->p; s++)
        for (int i = 0; i < t->n[s]; i++) {
            size_t k = line.begin[s] + (size_t)i;
            line.span[k] = (PipelineSpan){.stage = s, .action = t->action[s][i], .start = all[2 * k],
                                          .end = all[2 * k + 1]};
        }
    free(all);
    return line;
}
