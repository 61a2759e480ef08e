// pipeline_guest: moves the weights and the gradient of a tied head that stands apart from its embedding.
//
// A tied head on another stage than the embedding is a guest there: that stage keeps a copy of the weights, made anew
// after every update, and an array for the gradient. That is sent to the embedding's stage and added to the
// embedding's own: once a step; on a deterministic device for every sequence, into the empty gradient, before the
// embedding adds its own: which is the order in which one rank adds, head first.
//
// The head may also be on the embedding's stage, in another chunk (zb-v). It then reads the embedding itself, and only
// a deterministic device needs the detour for the gradient, since the head has been through later sequences already
// when the embedding comes to the first.
//
// The invariant: when a step ends, the whole gradient is in the embedding's row, and the guest's is zero. Who owns
// parameters (norm, optimizer, ZeRO, checkpoints) sees that row and nothing else.
//
// How many gradients can be on their way: as many as there are sequences between the embedding's F and B, for that is
// where a gradient waits that the head has made and the embedding has not taken. So no send finds all buffers taken by
// messages that wait for this very stage.
//
// Rejected: an all-reduce over both ends, as in Megatron-LM (each element would have two owners, to be counted once by
// norm, optimizer and checkpoint), and it adds in another order than one rank.
#include "parallel/pipeline_guest.h"

#include "base/check.h"
#include "parallel/ddp.h"

#include <stdlib.h>

static size_t vocab_elems(const Pipeline *p)
{
    return p->model->local.vocab * p->model->local.channels;
}

void pipeline_guest_create(Pipeline *p)
{
    Model *m = p->model;
    const PipelineTable *t = p->table;
    PipelinePlace home = pipeline_table_place(t, 0), head = pipeline_table_place(t, t->p * t->v - 1);
    bool each = m->dev->deterministic, together = home.stage == head.stage;
    p->guest_peer = -1;
    if (!m->shape.tie || (together && (!each || home.chunk == head.chunk))) return;
    if (!together && abs(home.stage - head.stage) != t->p - 1)
        die("parallel.table: the first piece of the model is on stage %d and the last on %d, but model.tie = true "
            "needs them on the first and the last stage, or on one", home.stage, head.stage);
    p->guest_home = p->stage == home.stage;
    p->guest_away = p->stage == head.stage;
    if (!p->guest_home && !p->guest_away) return;
    if (!together) p->guest_peer = p->guest_home == (home.stage < head.stage); // of two in the order of stages
    check(together || !p->pp || (p->ends && p->ends->size == 2));
    ModelStage of_home = pipeline_stage(t, home.stage, m->shape.layers, NULL);
    if (each && p->guest_away) p->n_guest_mail = of_home.chunk[home.chunk].active * (int)m->max_batch;
    if (!each && p->guest_home) p->n_guest_mail = 1;
    size_t n = (size_t)p->n_guest_mail;
    if (n) p->guest_buffer = mem_alloc(m->mem, MEM_COMM, n * vocab_elems(p) * sizeof(float), "tied head's gradient");
    p->guest_mail = calloc(n + 1, sizeof *p->guest_mail);
    if (!p->guest_mail) die("pipeline: no memory for %zu messages", n);
}

static float *embedding_grad(Pipeline *p)
{
    const Model *m = p->model;
    const Unit *unit = &m->unit[0];
    const Param *row = &m->params.row[unit->row[W_TOKENS]];
    return m->unit_grad[unit->index] + (row->offset - m->unit_begin[unit->index]);
}

void pipeline_guest_receive(Pipeline *p)
{
    size_t n = vocab_elems(p);
    if (p->guest_peer < 0) {
        size_t at = p->guest_taken++ % (size_t)p->n_guest_mail;
        p->model->dev->accumulate(p->model->dev, embedding_grad(p), p->guest_buffer + at * n, n);
        return;
    }
    CommRequest request = comm_recv(p->ends, embedding_grad(p), n, COMM_FP32, p->guest_peer, 0);
    comm_wait(p->ends, &request);
}

void pipeline_guest_send(Pipeline *p)
{
    Dev *dev = p->model->dev;
    size_t n = vocab_elems(p), at = p->guest_sent++ % (size_t)p->n_guest_mail;
    float *buffer = p->guest_buffer + at * n;
    if (p->guest_peer >= 0) comm_wait(p->ends, &p->guest_mail[at]);
    dev->zero(dev, buffer, n * sizeof *buffer);
    dev->accumulate(dev, buffer, p->model->guest_grad, n); // which is left zero
    if (p->guest_peer < 0) return;
    p->guest_mail[at] = comm_send(p->ends, buffer, n, COMM_FP32, p->guest_peer, 0);
}

void pipeline_guest_finish(Pipeline *p)
{
    Model *m = p->model;
    size_t n = vocab_elems(p);
    if (p->guest_peer < 0) return;
    for (int i = 0; i < p->n_guest_mail; i++) comm_wait(p->ends, &p->guest_mail[i]);
    if (m->dev->deterministic) return;
    if (p->guest_home) {
        CommRequest request = comm_recv(p->ends, p->guest_buffer, n, COMM_FP32, p->guest_peer, 0);
        comm_wait(p->ends, &request);
        m->dev->accumulate(m->dev, embedding_grad(p), p->guest_buffer, n);
    } else {
        CommRequest request = comm_send(p->ends, m->guest_grad, n, COMM_FP32, p->guest_peer, 0);
        comm_wait(p->ends, &request);
        m->dev->zero(m->dev, m->guest_grad, n * sizeof *m->guest_grad);
    }
}

void pipeline_share_guest(Pipeline *p)
{
    const Model *m = p->model;
    if (p->guest_peer < 0) return;
    CommType type = comm_type_of(m->dev->x_type);
    size_t n = vocab_elems(p);
    size_t at = p->guest_home ? m->params.row[m->unit[0].row[W_TOKENS]].offset - m->unit_begin[0] : 0;
    CommRequest request =
        p->guest_home ? comm_send(p->ends, (char *)m->unit_weight[0] + at * m->dev->x_bytes, n, type, p->guest_peer, 0)
                      : comm_recv(p->ends, m->guest_weight, n, type, p->guest_peer, 0);
    comm_wait(p->ends, &request);
}
