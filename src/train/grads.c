// grads: what is measured of a gradient and done to it between backward and update. See grads.h.
//
//   clipping      bounds on the gradient before the optimizer reads it
//   loss scale    fp16's: grow, back off, skip
//   norms         of weights, gradients and updates, tensor by tensor
//
// The invariant: nothing here changes a weight. Each part below states what else holds of it.
#include "train/grads.h"

#include "base/check.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the global norm, clipping by it, and adaptive clipping per output unit
//
//   global:    g *= min(1, clip / |g|)                             one number for the whole model
//   adaptive:  g_i *= min(1, lambda max(|w_i|, eps) / |g_i|)       one for each output unit i of each matrix
//
// Global clipping keeps the gradient's direction and needs a threshold that fits the model: the usual norm depends on
// its size, the batch and the loss. Adaptive clipping compares the gradient with the weights that it changes, so lambda
// is a pure number (the paper: 0.01 for large batches); it changes the direction.
//
// The invariant: the norm has the same bits for any number of threads, and on a deterministic device on any layout:
// there the squares are added without rounding (formats.c), so ranks may hold any parts of any tensor.
//
// Which unit: a matrix is (out, in), so its rows are output units. In the token embedding, whose input is a one-hot
// vector, a row is a token's vector: the unit that one token's gradient reaches. Norms' weights and biases are one unit
// each, as in the paper's code. The classifier is exempt, as the paper says; a tied embedding is the classifier.
//
// Rejected: global clipping as a pass over the gradients. Every update multiplies its gradients by a number anyway
// (grad_scale), so the factor is part of that number and costs nothing.

void grads_clip_add(Dev *dev, ClipSum *sum, const float *grads, size_t n)
{
    if (dev->deterministic) dev->sum_squares_exact(dev, &sum->exact, grads, n);
    else sum->rounded += dev->sum_squares(dev, grads, n);
}

double grads_clip_root(const Dev *dev, const ClipSum *sum, double grad_scale)
{
    double squares = dev->deterministic ? formats_sum_value(&sum->exact) : sum->rounded;
    return squares > FLT_MAX ? INFINITY : grad_scale * sqrt(squares); // an optimizer squares elements in float
}

double grads_norm(Dev *dev, const Params *params, const float *grads, double grad_scale)
{
    ClipSum sum = {0};
    for (int r = 0; r < params->n_rows; r++)
        if (params->row[r].owned) grads_clip_add(dev, &sum, grads + params->row[r].offset, params->row[r].n_elems);
    return grads_clip_root(dev, &sum, grad_scale);
}

double grads_clip_factor(double norm, double clip)
{
    return clip > 0 && norm > clip ? clip / norm : 1;
}

int grads_clip_classifier(const Params *params, bool tied)
{
    return params_find(params, tied ? "embed.tokens.weight" : "head.weight");
}

void grads_clip_agc(Dev *dev, const Param *row, const float *weight, float *grad, double grad_scale, double lambda,
                    ClipUnit unit)
{
    size_t units = unit == CLIP_ROW && row->ndim == 2 ? row->dim[0] : 1;
    dev->clip_units(dev, grad, weight, units, row->dim[0] * row->dim[1] / units, (float)(lambda / grad_scale),
                    CLIP_AGC_EPS);
}

void grads_clip_agc_range(Dev *dev, const Params *params, bool tied, const float *weights, float *grads, size_t begin,
                          size_t end, double grad_scale, double lambda, ClipUnit unit, const int *owner)
{
    int classifier = grads_clip_classifier(params, tied);
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        if (r == classifier || row->offset < begin || row->offset >= end || (owner && owner[r] >= 0)) continue;
        check(row->offset + row->n_elems <= end);
        grads_clip_agc(dev, row, weights + (row->offset - begin), grads + (row->offset - begin), grad_scale, lambda,
                       unit);
    }
}

bool grads_clip_needs_whole(const Param *row, ClipUnit unit, int ranks)
{
    if (row->cut < 0 || row->dim[row->cut] == row->whole[row->cut]) return false;
    bool rows = unit == CLIP_ROW && row->ndim == 2 && row->cut == 0;
    return !rows || row->whole[0] < 2 * (size_t)ranks;
}

// ---- the dynamic loss scale of fp16 training
//
//   not finite            scale = scale * backoff, good_steps = 0, the update is skipped
//   finite                good_steps + 1; when that reaches `interval`: scale = scale * growth, good_steps = 0
//
// So the scale grows until a gradient overflows; that update is lost, and the scale stays for `interval` steps at half
// of the value that overflowed. About one update in `interval` is lost, and the gradients use the upper end of fp16's
// range.
//
// The invariant: the scale is always a power of two within [min, max]. Scaling and unscaling then only move
// the exponent, and a run whose gradients neither overflow nor underflow gives the same bits at any scale.
//
// Growing past `max` would gain nothing: 2^24 times the smallest denormal, 2^-24, is 1. At `min`, 1, the model's own
// gradients overflow, so that is an error and not one more skip.
//
// Rejected: looking at the largest gradient and choosing the scale from it (it needs a pass of its own and
// a margin, and one outlier moves it); counting overflows within a window (two more settings).

static const float SCALE_MIN = 1, SCALE_MAX = 0x1p24f;

LossScaler grads_scaler_create(float initial, int interval)
{
    int exponent;
    if (!(initial >= SCALE_MIN && initial <= SCALE_MAX) || frexpf(initial, &exponent) != 0.5f)
        die("loss scale: %g is not a power of two from %g to %g (65536 is usual)", (double)initial, (double)SCALE_MIN,
            (double)SCALE_MAX);
    if (interval < 0) die("loss scale: growth interval %d is negative (0 keeps the scale fixed)", interval);
    return (LossScaler){.scale = initial, .interval = interval, .growth = 2, .backoff = 0.5f, .min = SCALE_MIN,
                        .max = SCALE_MAX};
}

LossScaler grads_scaler_none(void)
{
    return grads_scaler_create(1, 0);
}

bool grads_scaler_update(LossScaler *s, bool finite)
{
    if (s->interval == 0) return finite;
    if (!finite) {
        if (s->scale * s->backoff < s->min)
            die("loss scale: the gradients overflow even at the smallest scale, %g (lower the learning rate, or use "
                "bf16, whose range is fp32's)", (double)s->scale);
        s->scale *= s->backoff;
        s->good_steps = 0;
        return false;
    }
    if (++s->good_steps >= s->interval) {
        s->good_steps = 0;
        if (s->scale * s->growth <= s->max) s->scale *= s->growth;
    }
    return true;
}

// ---- norms of weights, gradients and updates, tensor by tensor
//
//   weight |w|,   grad |g|,   update |w_after - w_before|,   and update / weight
//
// The last one is the relative change per step: with AdamW it is near lr / rms(w) at the start. A tensor whose ratio is
// orders of magnitude from its neighbours' has a wrong initialisation, a wrong learning rate or no gradient.
//
// The invariant: `update` is the actual change of the weights, with decay and clipping, because it is computed from the
// weights and not from the optimizer's formula. It needs a copy of the weights that the process owns (4 bytes each),
// which is allocated at creation; a run without norms needs no memory for it. Ranks may have any parts of a tensor:
// each adds the squares of what it owns, and the sums are added over all ranks, on a deterministic device without
// rounding.
//
// Rejected: norms inside the optimizers' loops (the same code eight times); a line in metrics.jsonl (a hundred numbers
// per step would hide the few that matter most).

Norms grads_norms_create(const Model *model, Params whole, size_t n)
{
    Norms norms = {.whole = whole};
    norms.old = mem_alloc(model->mem, MEM_SCRATCH, n * sizeof(float), "old weights");
    norms.sum = calloc((size_t)norms.whole.n_rows, NORMS_EACH * sizeof *norms.sum);
    if (!norms.sum) die("norms: no memory for %d tensors", norms.whole.n_rows);
    return norms;
}

void grads_norms_open(Norms *n, const char *dir)
{
    int length = snprintf(n->path, sizeof n->path, "%s/norms.csv", dir);
    if (length < 0 || length >= (int)sizeof n->path) die("norms: %s: longer than %zu characters", dir, sizeof n->path);
    n->file = fopen(n->path, "a");
    if (!n->file || fseek(n->file, 0, SEEK_END)) die("norms: cannot open %s: %s", n->path, strerror(errno));
    if (ftell(n->file) == 0 && fputs("step,tensor,weight,grad,update,update/weight\n", n->file) < 0)
        die("norms: cannot write %s: %s (is the disk full?)", n->path, strerror(errno));
}

void grads_norms_begin(Norms *n)
{
    memset(n->sum, 0, (size_t)n->whole.n_rows * NORMS_EACH * sizeof *n->sum);
}

void grads_norms_add(Norms *n, const Model *model, NormsPart part)
{
    Dev *dev = model->dev;
    const Params *params = &model->params;
    float *old = n->old + part.at;
    dev->subtract(dev, old, part.weight, part.grad ? NULL : old, part.end - part.begin);
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        size_t from = row->offset > part.begin ? row->offset : part.begin;
        size_t to = row->offset + row->n_elems < part.end ? row->offset + row->n_elems : part.end;
        if (!row->owned || from >= to) continue;
        int whole = params_find(&n->whole, row->name);
        check(whole >= 0);
        ClipSum *sum = n->sum + NORMS_EACH * whole;
        grads_clip_add(dev, &sum[part.grad ? 0 : 2], old + (from - part.begin), to - from);
        if (part.grad) grads_clip_add(dev, &sum[1], part.grad + (from - part.begin), to - from);
    }
}

void grads_norms_write(Norms *n, const Dev *dev, double grad_scale, long step)
{
    bool good = true;
    for (int r = 0; r < n->whole.n_rows && good; r++) {
        const ClipSum *sum = n->sum + NORMS_EACH * r;
        double weight = grads_clip_root(dev, &sum[0], 1), update = grads_clip_root(dev, &sum[2], 1);
        good = fprintf(n->file, "%ld,%s,%.6g,%.6g,%.6g,%.6g\n", step, n->whole.row[r].name, weight,
                       grads_clip_root(dev, &sum[1], grad_scale), update, weight > 0 ? update / weight : NAN) >= 0;
    }
    if (!good || fflush(n->file)) die("norms: cannot write %s: %s (is the disk full?)", n->path, strerror(errno));
}

void grads_norms_close(Norms *n)
{
    if (n->file && fclose(n->file)) die("norms: cannot write %s: %s (is the disk full?)", n->path, strerror(errno));
    params_free(&n->whole);
    free(n->sum);
    *n = (Norms){0}; // `old` is the memory allocator's
}
