// run_dump: what run.dump adds to a step: weights, gradients and state of this rank into the dump (dump.h).
//
// The model is listened to for activations; the rest is read here, where a run keeps it: each unit's range that this
// rank owns (zero.h), in memory or in a store (offload.h). Replicas that are not sharded own alike, and the first one
// writes. Nothing travels between ranks: the whole is put together by whoever reads the files.
//
// The invariant: reading changes nothing, so a dumped run is the run that it would have been.
//
// Of the optimizer's arrays those are dumped that have a float for each element. Codes and scales of 8-bit moments and
// Adafactor's sums of rows are in checkpoints, and mean nothing element by element.
#include "train/run.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

// A copy of this rank's part of unit u of the optimizer's array s, on the host; s = n_states: the weights. NULL: none.
static char *piece(Run *run, int u, int s)
{
    const Optim *optim = &run->optim;
    const Params *params = &run->model->params;
    const OptimRange *range = &run->zero->range[u];
    bool weights = s == optim->kind->n_states;
    const CkptArray *array = weights ? NULL : &optim->state[s];
    size_t n_bytes = weights ? (range->end - range->begin) * sizeof(float)
                             : optim_range_elems(array, params, range->begin, range->end) *
                                   safetensors_dtype_bytes(array->dtype), all = n_bytes, at = 0;
    if (!n_bytes) return NULL;
    char *copy = malloc(n_bytes);
    if (!copy) die("run.dump: no memory for %zu bytes", n_bytes);
    if (weights && range->weight) {
        run->dev->to_host(run->dev, copy, range->weight, n_bytes);
        return copy;
    }
    Offload *store = weights && run->zero->store && run->dev->x_type == X_FP32 ? run->zero->store : optim->store;
    if (!weights || store != run->zero->store) {
        if (optim->at) at = optim_place_of(optim, params, u, s, &all);
        else at = optim_range_elems(array, params, 0, range->begin) * safetensors_dtype_bytes(array->dtype);
    }
    check(all == n_bytes);
    if (store) offload_read(store, u, at, copy, n_bytes);
    else run->dev->to_host(run->dev, copy, (const char *)array->data + at, n_bytes);
    return copy;
}

// Elements [*from, *to) of the flat order that both the row and the range have.
static bool meet(const Param *row, const OptimRange *range, size_t *from, size_t *to)
{
    *from = row->offset > range->begin ? row->offset : range->begin;
    *to = row->offset + row->n_elems < range->end ? row->offset + row->n_elems : range->end;
    return row->owned && *from < *to;
}

// The rows of a unit, from this rank's part of it: weights, gradients or array s.
static void add_rows(Run *run, DumpKind kind, int u, int s, const char *part, double scale)
{
    const Params *params = &run->model->params;
    const OptimRange *range = &run->zero->range[u];
    const CkptArray *array = kind == DUMP_STATE ? &run->optim.state[s] : NULL;
    SafeDtype dtype = array ? array->dtype : ST_F32;
    size_t from, to;
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        if (row->unit != u || !meet(row, range, &from, &to)) continue;
        if (array && optim_kind_elems(array, params, row) != row->n_elems) continue;
        size_t at = array ? optim_range_elems(array, params, range->begin, from) : from - range->begin;
        dump_row(run->dump, kind, array ? array->prefix : NULL, row, from - row->offset, to - row->offset, dtype,
                 part + at * safetensors_dtype_bytes(dtype), scale);
    }
}

static void add_arrays(Run *run, DumpKind kind, int s)
{
    const Zero *zero = run->zero;
    if (zero->cut.size == 1 && zero->control && zero->control->rank > 0) return; // replica 0 has the same
    for (int u = 0; u < run->model->n_units; u++) {
        char *copy = piece(run, u, s);
        if (copy) add_rows(run, kind, u, s, copy, 1);
        free(copy);
    }
}

// "dp 2, tp 2, sp, ZeRO 1": what of it there is.
static void name_layout(Run *run)
{
    const MeshShape *s = &run->shape;
    const struct {
        const char *name;
        int value;
    } part[] = {{"dp ", s->dp}, {", pp ", s->pp}, {", cp ", s->cp}, {", tp ", s->tp},
                {", ZeRO ", run->zero->set.stage}};
    size_t at = 0, room = sizeof run->dump_layout;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].value > (i > 0 && i < 4)) // a stage of 0 and sizes of 1 go without saying; dp does not
            at += (size_t)snprintf(run->dump_layout + at, room - at, "%s%d", part[i].name, part[i].value);
    snprintf(run->dump_layout + at, room - at, "%s%s", run->cfg.parallel.sp ? ", sp" : "",
             run->cfg.numerics.deterministic ? ", deterministic" : "");
}

void run_dump_begin(Run *run, long step)
{
    static const char *const dtype[] = {[CONFIG_DTYPE_FP32] = "fp32", [CONFIG_DTYPE_BF16] = "bf16",
                                        [CONFIG_DTYPE_FP16] = "fp16", [CONFIG_DTYPE_FP8] = "fp8"};
    const Config *cfg = &run->cfg;
    OptimName optim = run->optim.set.name;
    RampStep batch = ramp_at(&run->ramp, step);
    name_layout(run);
    if (run->rank == 0) dump_make_dir(run->dir, step + 1);
    run_wait(run);
    run->dump = dump_watch(run->model, (DumpPlace){
        .rank = run->rank, .ranks = run->ranks, .update = step + 1, .first = (size_t)batch.before,
        .samples = (size_t)batch.sequences, .context = (size_t)cfg->model.context, .dtype = dtype[cfg->numerics.dtype],
        .layout = run->dump_layout, .fp8 = cfg->numerics.dtype == CONFIG_DTYPE_FP8,
        .by_sign = optim == OPTIM_LION || optim == OPTIM_MUON || optim == OPTIM_ADAM,
        .inverse = 1 / (double)run->scaler.scale});
    add_arrays(run, DUMP_WEIGHT, run->optim.kind->n_states);
}

void run_dump_grads(Run *run)
{
    if (!run->dump) return;
    const Zero *zero = run->zero;
    dump_unwatch(run->dump);
    if (zero->cut.size == 1 && zero->control && zero->control->rank > 0) return;
    for (int u = 0; u < run->model->n_units; u++) {
        const OptimRange *range = &zero->range[u];
        size_t n_bytes = (range->end - range->begin) * sizeof(float);
        char *copy = malloc(n_bytes ? n_bytes : 1);
        if (!copy) die("run.dump: no memory for %zu bytes of gradients", n_bytes);
        run->dev->to_host(run->dev, copy, range->grad, n_bytes);
        add_rows(run, DUMP_GRAD, u, 0, copy, run->optim.grad_scale);
        free(copy);
    }
}

void run_dump_end(Run *run)
{
    if (!run->dump) return;
    const OptimKind *kind = run->optim.kind;
    for (int s = 0; s < kind->n_states; s++)
        if (kind->state[s].dtype == ST_F32 || kind->state[s].dtype == ST_BF16) add_arrays(run, DUMP_STATE, s);
    add_arrays(run, DUMP_UPDATED, kind->n_states);
    dump_write(run->dump, run->dir);
    dump_free(run->dump);
    run->dump = NULL;
}
