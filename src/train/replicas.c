// replicas: the operations of a training step that depend on the number of processes, for one process; see replicas.h.
//
// Each function does the operation for one process, or calls the entry of r->kind for several.
//
// The invariant: for one process the operation costs nothing, and gives the same result as the general one for a group
// of one.
//
// Rejected: `if (ranks > 1)` at each place of the step, as in most trainers (whoever reads the step for one process
// then reads all parallelism with it); a group of one rank everywhere (the same, one level down).
#include "train/replicas.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/supervisor.h"
#include "train/run.h"

#include <stdio.h>
#include <stdlib.h>

#define SEVERAL(r, entry) ((r)->kind && (r)->kind->entry)

Replicas replicas_alone(Comm *world)
{
    return (Replicas){.size = 1, .cores = 1, .world = world};
}

bool replicas_plain(const Config *cfg)
{
    return cfg->memory.offload == OFFLOAD_NONE && !cfg->numerics.deterministic && !cfg->run.account;
}

void replicas_allocate(Replicas *r, Optim *optim, const Config *cfg, Dev *dev, Mem *mem, const char *dir)
{
    r->optim = optim;
    if (SEVERAL(r, allocate)) {
        r->kind->allocate(r, cfg, dev, mem, dir);
        return;
    }
    ModelShape shape = run_shape(cfg);
    r->model = model_allocate_with(&shape, dev, mem, (size_t)cfg->batch.micro, shape.context, true,
                                   run_model_options(cfg));
    *optim = optim_create(r->model, run_optim_settings(cfg));
}

void replicas_free(Replicas *r)
{
    if (SEVERAL(r, free)) r->kind->free(r);
}

// ---- weights

void replicas_init_weights(Replicas *r, uint64_t seed)
{
    Model *m = r->model;
    if (SEVERAL(r, init_weights)) {
        r->kind->init_weights(r, seed);
        return;
    }
    if (m->dev->raw_alloc) { // memory of a device: by way of the host
        float *host = malloc(m->params.n_elems * sizeof *host);
        if (!host) die("run: no memory for the initial weights, %zu bytes", m->params.n_elems * sizeof *host);
        params_init(&m->params, seed, host);
        m->dev->to_device(m->dev, m->weights, host, m->params.n_elems * sizeof *host);
        free(host);
    } else {
        params_init(&m->params, seed, m->weights);
    }
    model_weights_changed(m);
}

void replicas_weights_loaded(Replicas *r)
{
    if (SEVERAL(r, weights_loaded)) r->kind->weights_loaded(r);
    else model_weights_changed(r->model);
}

// ---- a step

size_t replicas_share(const Replicas *r, size_t sequences, size_t *first)
{
    *first = 0;
    return SEVERAL(r, share) ? r->kind->share(r, sequences, first) : sequences;
}

void replicas_run_micro(Replicas *r, const Micro *micro, float scale)
{
    Model *m = r->model;
    dev_mark(m->dev, "micro-batch");
    model_set_batch(m, micro->token, micro->pos, micro->target, micro->B, micro->T);
    if (micro->first) model_set_documents(m, micro->first);
    model_set_dropout(m, micro->dropout, micro->seed, micro->step, micro->sample);
    model_set_each(m, micro->each);
    model_forward_backward(m, scale);
    dev_mark(m->dev, NULL);
}

void replicas_forward_backward(Replicas *r, const Micro *micro, float scale, bool last)
{
    if (SEVERAL(r, forward_backward)) r->kind->forward_backward(r, micro, scale, last);
    else replicas_run_micro(r, micro, scale);
    replicas_alive(r);
}

double replicas_finish(Replicas *r)
{
    return SEVERAL(r, finish) ? r->kind->finish(r) : model_step_finish(r->model);
}

void replicas_updated(Replicas *r)
{
    if (SEVERAL(r, updated)) r->kind->updated(r);
}

void replicas_share_scales(Replicas *r, Fp8 *fp8)
{
    if (SEVERAL(r, share_scales)) r->kind->share_scales(r, fp8);
}

// ---- agreement

int64_t replicas_sum_targets(Replicas *r, int64_t x)
{
    return SEVERAL(r, sum_targets) ? r->kind->sum_targets(r, x) : x;
}

double replicas_sum(Replicas *r, double x)
{
    return SEVERAL(r, sum) ? r->kind->sum(r, x) : x;
}

void replicas_add(Replicas *r, void *x, size_t n, CommType type)
{
    if (r->size == 1) return;
    CommRequest request = comm_all_reduce(r->world, x, x, n, type, COMM_SUM);
    comm_wait(r->world, &request);
}

bool replicas_any(Replicas *r, bool flag)
{
    return SEVERAL(r, any) ? r->kind->any(r, flag) : flag;
}

void replicas_tell(Replicas *r, void *data, size_t n_bytes)
{
    if (SEVERAL(r, tell)) r->kind->tell(r, data, n_bytes);
}

void replicas_wait(Replicas *r)
{
    if (SEVERAL(r, wait)) r->kind->wait(r);
}

void replicas_agree(Replicas *r, long step)
{
    if (SEVERAL(r, agree)) r->kind->agree(r, step);
}

void replicas_phase(const Replicas *r, long step, const char *phase)
{
    supervisor_phase(comm_heartbeat(r->world), step, phase);
    if (r->rank == 0) doing(strcmp(phase, "training") ? phase : step ? NULL : "the first update");
}

void replicas_alive(const Replicas *r)
{
    supervisor_progress(comm_heartbeat(r->world));
}

// ---- access to the state

// Between buf and where this process keeps a piece: `at` bytes into the weights, or into an array of the optimizer.
static void move_piece(void *self, const CkptPiece *piece, void *buf, bool out)
{
    const Replicas *r = self;
    const CkptArray *array = piece->array < 0 ? NULL : &r->optim->state[piece->array];
    size_t each = array ? safetensors_dtype_bytes(array->dtype) : sizeof(float);
    char *at = (array ? (char *)array->data : (char *)r->model->weights) + piece->at;
    size_t n_bytes = (piece->slice.to - piece->slice.from) * each;
    Dev *dev = r->model->dev;
    if (out) dev->to_host(dev, buf, at, n_bytes);
    else dev->to_device(dev, at, buf, n_bytes);
}

// All rows of the table, whole: of the weights, then of each array of the optimizer.
static CkptPart whole_checkpoint(Replicas *r)
{
    const Params *params = &r->model->params;
    CkptPart part = {.whole = params, .array = r->optim->state, .n_arrays = r->optim->kind->n_states,
                     .move = move_piece, .self = r};
    part.piece = calloc((size_t)((part.n_arrays + 1) * params->n_rows), sizeof *part.piece);
    if (!part.piece) die("run: no memory for the table of a checkpoint");
    for (int a = -1; a < part.n_arrays; a++) {
        const CkptArray *array = a < 0 ? NULL : &part.array[a];
        for (int i = 0; i < params->n_rows; i++) {
            const Param *row = &params->row[i];
            CkptPiece piece = {.array = a, .row = i, .unit = row->unit,
                               .slice = {.cut = -1, .dim = {row->dim[0], row->dim[1]}, .to = row->n_elems},
                               .at = row->offset * sizeof(float)};
            if (array) {
                int n = array->shape(params, row, piece.slice.dim);
                for (int d = n; d < PARAM_DIMS; d++) piece.slice.dim[d] = 1;
                piece.slice.to = n ? piece.slice.dim[0] * piece.slice.dim[1] : 0;
                piece.at = optim_range_elems(array, params, 0, row->offset) * safetensors_dtype_bytes(array->dtype);
            }
            if (piece.slice.to) part.piece[part.n++] = piece;
        }
    }
    return part;
}

CkptPart replicas_checkpoint(Replicas *r, bool writes)
{
    return SEVERAL(r, checkpoint) ? r->kind->checkpoint(r, writes) : whole_checkpoint(r);
}

void replicas_checkpoint_free(const Replicas *r, CkptPart *part)
{
    if (SEVERAL(r, checkpoint_free)) r->kind->checkpoint_free(part);
    else free(part->piece);
}

bool replicas_range(const Replicas *r, int unit, OptimRange *range)
{
    const Model *m = r->model;
    if (SEVERAL(r, range)) return r->kind->range(r, unit, range);
    *range = (OptimRange){.weight = m->weights, .grad = m->grads};
    params_unit_range(&m->params, unit, &range->begin, &range->end);
    range->weight += range->begin, range->grad += range->begin;
    return true;
}

void replicas_read_weights(const Replicas *r, int unit, void *copy)
{
    OptimRange range;
    if (SEVERAL(r, read_weights)) {
        r->kind->read_weights(r, unit, copy);
        return;
    }
    replicas_range(r, unit, &range);
    r->model->dev->to_host(r->model->dev, copy, range.weight, (range.end - range.begin) * sizeof(float));
}

const EvalRanks *replicas_evaluation(Replicas *r)
{
    return SEVERAL(r, evaluation) ? r->kind->evaluation(r) : NULL;
}

SampleForward replicas_sampling(Replicas *r, bool *takes_part)
{
    *takes_part = r->rank == 0;
    return SEVERAL(r, sampling) ? r->kind->sampling(r, takes_part) : (SampleForward){0};
}

void replicas_describe(const Replicas *r, char *layout, size_t n)
{
    if (SEVERAL(r, describe)) r->kind->describe(r, layout, n);
    else snprintf(layout, n, "dp 1");
}
