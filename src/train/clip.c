// clip: bounds on the gradient before the optimizer reads it. See clip.h.
//
//   global:    g *= min(1, clip / |g|)                             one number for the whole model
//   adaptive:  g_i *= min(1, lambda max(|w_i|, eps) / |g_i|)       one for each output unit i of each matrix
//
// Global clipping keeps the gradient's direction and needs a threshold that fits the model: the usual norm depends
// on its size, the batch and the loss. Adaptive clipping asks instead how large a step would be beside the weights
// that it changes, so lambda is a pure number (the paper: 0.01 for large batches); it bends the direction.
//
// The invariant: the norm has the same bits for any number of threads, and on a deterministic device on any layout:
// there the squares are added without rounding (formats.c), so ranks may hold any parts of any tensor.
//
// Which unit: a matrix is (out, in), so its rows are output units. In the token embedding, whose input is a one-hot
// vector, a row is a token's vector: the unit that one token's gradient reaches. Norms' weights and biases are one unit
// each, as in the paper's code. The classifier is exempt, as the paper says; a tied embedding is the classifier.
//
// Rejected: global clipping as a pass over the gradients. Every update multiplies its gradients by a number anyway
// (grad_scale), so the factor rides along and costs nothing.
#include "train/clip.h"

#include "base/check.h"

#include <math.h>

void clip_add(Dev *dev, ClipSum *sum, const float *grads, size_t n)
{
    if (dev->deterministic) dev->sum_squares_exact(dev, &sum->exact, grads, n);
    else sum->rounded += dev->sum_squares(dev, grads, n);
}

double clip_root(const Dev *dev, const ClipSum *sum, double grad_scale)
{
    return grad_scale * sqrt(dev->deterministic ? formats_sum_value(&sum->exact) : sum->rounded);
}

double clip_norm(Dev *dev, const Params *params, const float *grads, double grad_scale)
{
    ClipSum sum = {0};
    for (int r = 0; r < params->n_rows; r++)
        if (params->row[r].owned) clip_add(dev, &sum, grads + params->row[r].offset, params->row[r].n_elems);
    return clip_root(dev, &sum, grad_scale);
}

double clip_factor(double norm, double clip)
{
    return clip > 0 && norm > clip ? clip / norm : 1;
}

int clip_classifier(const Params *params)
{
    int head = params_find(params, "head.weight");
    return head >= 0 ? head : params_find(params, "embed.tokens.weight");
}

void clip_agc(Dev *dev, const Params *params, const float *weights, float *grads, double grad_scale, double lambda,
              ClipUnit unit)
{
    clip_agc_range(dev, params, weights, grads, 0, params->n_elems, grad_scale, lambda, unit);
}

void clip_agc_range(Dev *dev, const Params *params, const float *weights, float *grads, size_t begin, size_t end,
                    double grad_scale, double lambda, ClipUnit unit)
{
    int classifier = clip_classifier(params);
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        if (r == classifier || row->offset < begin || row->offset >= end) continue;
        check(row->offset + row->n_elems <= end);
        size_t at = row->offset - begin;
        size_t units = unit == CLIP_ROW && row->ndim == 2 ? row->dim[0] : 1;
        dev->clip_units(dev, grads + at, weights + at, units, row->n_elems / units,
                        (float)(lambda / grad_scale), CLIP_AGC_EPS);
    }
}
