// observers: code that watches a training step: profiler marks, faults, the noise scale, norms, a dump, agreement. See
// observers.h.
//
// The invariant: an observer only reads. A run with all of them (except faults) goes through the same states, bit for
// bit, as one with none.
//
// The dump gets activations from the model's hooks. The rest is read here from the run's own arrays: of each unit the
// range that this process owns, in memory or in a store (offload.h). Replicas that are not sharded own the same, and
// the first one writes. Processes exchange nothing: the reader of the files joins the parts. Of the optimizer's arrays
// only those with a float for each element are dumped; codes and scales of 8-bit moments and Adafactor's sums of rows,
// which are in checkpoints, have no meaning for a single element.
//
// Rejected: calls of each of them in the step itself. Many trainers grow into that, and half of the step's lines then
// do not train.
#include "src/check/observers.h"

#include "base/check.h"
#include "src/check/dump.h"
#include "src/check/fault.h"
#include "src/check/noise.h"
#include "train/grads.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool due(long every, long update)
{
    return every > 0 && update % every == 0;
}

static void *new_state(size_t n_bytes)
{
    void *state = calloc(1, n_bytes);
    if (!state) die("run: no memory for an observer");
    return state;
}

// ---- marks

static void mark_update(void *self, Run *run, long step)
{
    (void)self, (void)step;
    dev_mark(run->dev, "update");
}

static void mark_optimizer(void *self, Run *run, long step, const StepResult *result)
{
    (void)self, (void)step, (void)result;
    dev_mark(run->dev, "optimizer");
}

static void mark_end(void *self, Run *run, long step)
{
    (void)self, (void)step;
    dev_mark(run->dev, NULL);
    dev_mark(run->dev, NULL);
}

Observer observers_marks(void)
{
    return (Observer){.before = mark_update, .gradients = mark_optimizer, .updated = mark_end};
}

// ---- faults

typedef struct {
    Faults all;
    long reached; // updates made at least once
} FaultState;

// A process fault of this update. In a resumed run there are none: it has to get past the place; nor a second time in
// an update that is repeated after a rollback.
static const Fault *process_fault(const FaultState *s, const Run *run, FaultKind kind, long step)
{
    return run->first_step > 0 ? NULL : fault_at(&s->all, kind, run->replicas.rank, step + 1);
}

static const Param *row_of(const Run *run, const Fault *f)
{
    const Params *p = &run->model->params;
    int i = params_find(p, f->tensor);
    if (i < 0) die("run.fault: no such tensor: %s", f->tensor);
    if ((size_t)f->index >= p->row[i].n_elems)
        die("run.fault: %s has %zu elements, index is %ld", f->tensor, p->row[i].n_elems, f->index);
    return &p->row[i];
}

// The fp32 number of a row, with `of` as a fault has it: of the weights, the gradients, or an array of the optimizer.
static float *number_of(Run *run, const Fault *f, const Param *row)
{
    Model *m = run->model;
    OptimRange range;
    size_t at = row->offset + (size_t)f->index;
    if (!strcmp(f->of, "weight") && m->weights && !m->shard.weights) return m->weights + at;
    replicas_range(&run->replicas, row->unit, &range);
    if (!strcmp(f->of, "weight") && range.weight && at >= range.begin && at < range.end)
        return range.weight + (at - range.begin);
    if (!strcmp(f->of, "gradient") && m->grads && !m->shard.grads && !m->dev->deterministic) return m->grads + at;
    for (int s = 0; s < run->optim.kind->n_states && !run->optim.range; s++) {
        const CkptArray *state = &run->optim.state[s];
        if (!strcmp(f->of, state->prefix) && state->dtype == ST_F32 && state->data &&
            state->n_bytes == m->params.n_elems * sizeof(float))
            return (float *)state->data + at;
    }
    die("run.fault: of=%s: not here: weight, gradient, or an array of the optimizer, which ranks hold whole "
        "(parallel.zero=0); or a weight of this rank's shard", f->of);
}

static void fault_before(void *self, Run *run, long step)
{
    const FaultState *s = self;
    const Fault *f;
    if (step < s->reached) return;
    if ((f = process_fault(s, run, FAULT_KILL, step)) || (f = process_fault(s, run, FAULT_EXIT, step)) ||
        (f = process_fault(s, run, FAULT_HANG, step)))
        fault_end_process(f);
    if (!(f = process_fault(s, run, FAULT_NAN, step))) return;
    const Param *row = row_of(run, f);
    float bad = NAN;
    run->dev->to_device(run->dev, number_of(run, f, row), &bad, sizeof bad);
    if (!strcmp(f->of, "weight")) model_weights_changed(run->model);
}

static void fault_after(void *self, Run *run, long step)
{
    FaultState *s = self;
    const Fault *f = step >= s->reached ? process_fault(s, run, FAULT_FLIP, step) : NULL;
    if (step >= s->reached) s->reached = step + 1;
    if (!f) return;
    float x, *at = number_of(run, f, row_of(run, f));
    run->dev->to_host(run->dev, &x, at, sizeof x);
    fault_flip(&x, 0, f->bit);
    run->dev->to_device(run->dev, at, &x, sizeof x);
    if (!strcmp(f->of, "weight")) model_weights_changed(run->model);
}

// spike: random tokens in place of a sample's, in a resumed run too.
static void fault_sample(void *self, Run *run, int64_t sample, int32_t *token, int32_t *target)
{
    const Faults *all = &((const FaultState *)self)->all;
    for (int i = 0; i < all->n; i++) {
        const Fault *f = &all->fault[i];
        if (f->kind != FAULT_SPIKE || sample < schedule_ramp_at(&run->ramp, f->step - 1).before ||
            sample >= schedule_ramp_at(&run->ramp, f->step - 1 + f->steps).before)
            continue;
        fault_poison(token, target, (size_t)run->cfg.model.context, sample, run->data.vocab);
    }
}

// enospc and slowdisk: while a checkpoint is saved.
static void fault_save(void *self, Run *run, long step, bool begins)
{
    const Faults *all = &((const FaultState *)self)->all;
    int rank = run->replicas.rank;
    if (rank || run->first_step > 0) return; // a resumed run has to get past the place
    const Fault *full = fault_at(all, FAULT_ENOSPC, rank, step);
    const Fault *slow = fault_at(all, FAULT_SLOWDISK, rank, step);
    if (full) fault_limit_files(begins ? full->bytes : 0);
    if (!slow || !begins) return;
    for (double left = slow->seconds; left > 0; left -= 0.1) { // a slow disk writes, too
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * fmin(left, 0.1))}, NULL);
        replicas_alive(&run->replicas);
    }
}

static void fault_announce(void *self, Run *run)
{
    const Faults *all = &((const FaultState *)self)->all;
    for (int i = 0; i < all->n; i++)
        if (all->fault[i].rank >= run->replicas.size)
            progress_note(run->progress, "run.fault: rank=%ld: the run has ranks 0 to %d, so nothing will happen",
                          all->fault[i].rank, run->replicas.size - 1);
}

Observer observers_faults(const Config *cfg)
{
    FaultState *s = new_state(sizeof *s);
    s->all = fault_parse(cfg->run.fault);
    for (int i = 0; i < s->all.n && cfg->ckpt.async; i++)
        if (s->all.fault[i].kind == FAULT_SLOWDISK)
            die("run.fault: slowdisk: not with ckpt.async, which writes at another time");
    return (Observer){.self = s, .before = fault_before, .updated = fault_after, .announce = fault_announce,
                      .sample = fault_sample, .save = fault_save, .free = free};
}

// ---- loads of experts

static void loads_before(void *self, Run *run, long step)
{
    (void)self;
    loads_watch(&run->loads, run->model, due(run->cfg.run.eval_every, step + 1) || step + 1 == run->last_step);
}

static void loads_updated(void *self, Run *run, long step)
{
    char text[LOADS_TEXT];
    (void)self;
    for (size_t i = 0; i < run->loads.layers; i++)
        if (loads_judge(&run->loads, i, run->cfg.monitor.experts_steps, run->cfg.monitor.experts_entropy, text))
            progress_event(run->progress, METRICS_WARN, step + 1, "%s; raise moe.balance_coef or moe.bias_rate, or "
                           "lower the learning rate", text);
}

Observer observers_loads(void)
{
    return (Observer){.before = loads_before, .updated = loads_updated};
}

// ---- the gradient noise scale, batches in tokens

typedef struct {
    Noise noise;
    double squares; // |mean gradient of the small batch|^2
    size_t valid;   // its targets that count; 0: not measured
} NoiseState;

// The small batch: of every data rank the first micro-batch (the first few, where a pipeline takes no fewer). It is run
// like a step of its own, whose gradient is then dropped: so any layout measures the norm as it measures every norm.
static void noise_loaded(void *self, Run *run, long step, int64_t all)
{
    NoiseState *s = self;
    int64_t B = run->cfg.batch.micro, rows = B * config_micro_grain(&run->cfg), counted = 0;
    float scale = run->scales.scaler.scale;
    s->valid = 0;
    if (!due(run->cfg.run.noise_every, step + 1) || all <= rows) return;
    for (int64_t i = 0; i < rows * run->cfg.model.context; i++) counted += run->data.target[i] >= 0;
    s->valid = (size_t)replicas_sum_targets(&run->replicas, counted);
    if (!s->valid) return;
    float each = scale / (float)replicas_sum_targets(&run->replicas, rows); // a sequence's part in losses of experts
    for (int64_t row = 0; row < rows; row += B) {
        Micro micro = run_micro(run, step, row);
        micro.each = each;
        replicas_forward_backward(&run->replicas, &micro, scale / (float)s->valid, row + B >= rows);
    }
    replicas_finish(&run->replicas);
    run->optim.grad_scale = 1 / (double)scale;
    double norm = optim_norm(&run->optim, run->model);
    s->squares = norm * norm;
    optim_drop(run->model);
    if (run->loads.E) loads_step(&run->loads, run->model, &run->replicas, false); // these slots do not count
    if (run->scales.fp8) fp8_step_begin(run->scales.fp8);                         // nor do these magnitudes
}

static void noise_gradients(void *self, Run *run, long step, const StepResult *r)
{
    NoiseState *s = self;
    if (!s->valid || s->valid >= r->valid) return; // the rest of the batch has no targets
    noise_add(&s->noise, s->squares, (double)s->valid, r->grad_norm * r->grad_norm, (double)r->valid);
    run->noise_scale = noise_scale(&s->noise);
    progress_note(run->progress, "noise    step %ld: B_simple %.4g tokens (tr Sigma %.4g, |G|^2 %.4g; this batch %zu)",
                  step + 1, run->noise_scale, noise_trace(&s->noise),
                  noise_signal(&s->noise), r->valid);
}

Observer observers_noise(void)
{
    NoiseState *s = new_state(sizeof *s);
    s->noise = noise_create(0.9);
    return (Observer){.self = s, .loaded = noise_loaded, .gradients = noise_gradients, .free = free};
}

// ---- norms of each tensor

// Adds what this process represents of every tensor.
static void norms_add(Run *run, bool updated)
{
    OptimRange range;
    size_t at = 0;
    for (int u = 0; u < run->model->params.n_units; u++, at += range.end - range.begin)
        if (replicas_range(&run->replicas, u, &range))
            grads_norms_add(&run->norms, run->model, (NormsPart){.begin = range.begin, .end = range.end, .at = at,
                            .weight = range.weight, .grad = updated ? NULL : range.grad});
}

static void norms_gradients(void *self, Run *run, long step, const StepResult *result)
{
    (void)self, (void)result;
    if (!due(run->cfg.run.norms_every, step + 1)) return;
    grads_norms_begin(&run->norms);
    norms_add(run, false);
}

static void norms_updated(void *self, Run *run, long step)
{
    (void)self;
    if (!due(run->cfg.run.norms_every, step + 1)) return;
    norms_add(run, true);
    size_t n = (size_t)run->norms.whole.n_rows * NORMS_EACH * sizeof(ClipSum) / sizeof(int64_t);
    replicas_add(&run->replicas, run->norms.sum, n, run->dev->deterministic ? COMM_INT64 : COMM_FP64);
    if (run->replicas.rank == 0) grads_norms_write(&run->norms, run->dev, run->optim.grad_scale, step + 1);
}

Observer observers_norms(void)
{
    return (Observer){.gradients = norms_gradients, .updated = norms_updated};
}

// ---- the dump of one update

typedef struct {
    Dump *dump; // while that update is made
    char layout[64];
} DumpState;

// A copy, on the host, of what this process has of unit u in the optimizer's array s (n_states: the weights). NULL:
// none.
static char *piece(Run *run, int u, int s, const OptimRange *range)
{
    const Optim *optim = &run->optim;
    const Params *params = optim_table(optim, run->model);
    bool weights = s == optim->kind->n_states;
    const CkptArray *array = weights ? NULL : &optim->state[s];
    size_t n_bytes = weights ? (range->end - range->begin) * sizeof(float)
                             : optim_range_elems(array, params, range->begin, range->end) *
                                   safetensors_dtype_bytes(array->dtype);
    if (!n_bytes) return NULL;
    char *copy = malloc(n_bytes);
    if (!copy) die("run.dump: no memory for %zu bytes", n_bytes);
    if (weights) {
        replicas_read_weights(&run->replicas, u, copy);
        return copy;
    }
    size_t all = n_bytes, at;
    if (optim->at) at = optim_place_of(optim, params, u, s, &all);
    else at = optim_range_elems(array, params, 0, range->begin) * safetensors_dtype_bytes(array->dtype);
    check(all == n_bytes);
    if (optim->store.read) optim->store.read(optim->store.self, u, at, copy, n_bytes);
    else run->dev->to_host(run->dev, copy, (const char *)array->data + at, n_bytes);
    return copy;
}

// Elements [*from, *to) of the flat order that both the row and the range have.
static bool meet(const Param *row, const OptimRange *range, size_t *from, size_t *to)
{
    *from = row->offset > range->begin ? row->offset : range->begin;
    *to = row->offset + row->n_elems < range->end ? row->offset + row->n_elems : range->end;
    return *from < *to;
}

// The rows of a unit, from this process' part of it: weights, gradients or array s.
static void add_rows(Run *run, Dump *dump, DumpKind kind, int u, int s, const OptimRange *range, const char *part,
                     double scale)
{
    const Params *params = &run->model->params, *kept = optim_table(&run->optim, run->model);
    const CkptArray *array = kind == DUMP_STATE || kind == DUMP_BEFORE ? &run->optim.state[s] : NULL;
    SafeDtype dtype = array ? array->dtype : ST_F32;
    size_t from, to;
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        const Param *own = array ? &kept->row[r] : row; // of its state this process has all, or nothing
        size_t n = own->dim[0] * own->dim[1];
        bool moved = n != row->n_elems;
        if (row->unit != u || !meet(row, range, &from, &to) || !(moved || row->owned)) continue;
        if (array && (!n || optim_kind_elems(array, kept, own) != n)) continue;
        size_t at = array ? optim_range_elems(array, kept, range->begin, from) : from - range->begin;
        from -= row->offset, to -= row->offset;
        dump_row(dump, kind, array ? array->prefix : NULL, own, moved ? 0 : from, moved ? n : to, dtype,
                 part + at * safetensors_dtype_bytes(dtype), scale);
    }
}

static void add_arrays(Run *run, Dump *dump, DumpKind kind, int s)
{
    OptimRange range;
    for (int u = 0; u < run->model->params.n_units; u++) {
        if (!replicas_range(&run->replicas, u, &range)) continue;
        char *copy = piece(run, u, s, &range);
        if (copy) add_rows(run, dump, kind, u, s, &range, copy, 1);
        free(copy);
    }
}

// The optimizer's arrays that have a number for each element.
static void add_states(Run *run, Dump *dump, DumpKind kind)
{
    const OptimKind *optim = run->optim.kind;
    for (int s = 0; s < optim->n_states; s++)
        if (optim->state[s].dtype == ST_F32 || optim->state[s].dtype == ST_BF16) add_arrays(run, dump, kind, s);
}

// Watches from here: what the noise scale measured before is no part of the step.
static void dump_loaded(void *self, Run *run, long step, int64_t rows)
{
    static const char *const dtype[] = {[CONFIG_DTYPE_FP32] = "fp32", [CONFIG_DTYPE_BF16] = "bf16",
                                        [CONFIG_DTYPE_FP16] = "fp16", [CONFIG_DTYPE_FP8] = "fp8",
                                        [CONFIG_DTYPE_TF32] = "tf32"};
    DumpState *d = self;
    const Config *cfg = &run->cfg;
    OptimName optim = run->optim.set.name;
    RampStep batch = run_samples(run, step);
    if (step + 1 != cfg->run.dump) return;
    replicas_describe(&run->replicas, d->layout, sizeof d->layout);
    if (cfg->numerics.deterministic) strncat(d->layout, ", deterministic", sizeof d->layout - strlen(d->layout) - 1);
    if (run->replicas.rank == 0) dump_make_dir(run->dir, step + 1);
    replicas_wait(&run->replicas);
    d->dump = dump_watch(run->model, (DumpPlace){
        .rank = run->replicas.rank, .ranks = run->replicas.size, .update = step + 1, .first = (size_t)batch.before,
        .samples = (size_t)batch.sequences, .context = (size_t)cfg->model.context, .dtype = dtype[cfg->numerics.dtype],
        .layout = d->layout, .fp8 = cfg->numerics.dtype == CONFIG_DTYPE_FP8,
        .by_sign = optim == OPTIM_LION || optim == OPTIM_MUON || optim == OPTIM_NORMUON || optim == OPTIM_ADAM ||
                   cfg->optim.cautious_decay,
        .inverse = 1 / (double)run->scales.scaler.scale});
    for (int64_t row = 0; row < rows; row += cfg->batch.micro) {
        Micro micro = run_micro(run, step, row);
        dump_input(d->dump, micro.token, micro.target, micro.B, micro.sample);
    }
    add_states(run, d->dump, DUMP_BEFORE);
    add_arrays(run, d->dump, DUMP_WEIGHT, run->optim.kind->n_states);
}

static void dump_gradients(void *self, Run *run, long step, const StepResult *result)
{
    DumpState *d = self;
    OptimRange range;
    (void)step, (void)result;
    if (!d->dump) return;
    dump_unwatch(d->dump);
    for (int u = 0; u < run->model->params.n_units; u++) {
        if (!replicas_range(&run->replicas, u, &range)) continue;
        size_t n_bytes = (range.end - range.begin) * sizeof(float);
        char *copy = malloc(n_bytes ? n_bytes : 1);
        if (!copy) die("run.dump: no memory for %zu bytes of gradients", n_bytes);
        run->dev->to_host(run->dev, copy, range.grad, n_bytes);
        add_rows(run, d->dump, DUMP_GRAD, u, 0, &range, copy, run->optim.grad_scale);
        free(copy);
    }
}

static void dump_updated(void *self, Run *run, long step)
{
    DumpState *d = self;
    (void)step;
    if (!d->dump) return;
    add_states(run, d->dump, DUMP_STATE);
    add_arrays(run, d->dump, DUMP_UPDATED, run->optim.kind->n_states);
    dump_write(d->dump, run->dir);
    dump_free(d->dump);
    d->dump = NULL;
}

Observer observers_dump(void)
{
    return (Observer){.self = new_state(sizeof(DumpState)), .loaded = dump_loaded, .gradients = dump_gradients,
                      .updated = dump_updated, .free = free};
}

// ---- agreement of replicas

static void agree_updated(void *self, Run *run, long step)
{
    (void)self;
    if (due(run->cfg.monitor.agree_every, step + 1)) replicas_agree(&run->replicas, step + 1);
}

Observer observers_agree(void)
{
    return (Observer){.updated = agree_updated};
}
