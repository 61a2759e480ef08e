// grads: measurements and changes of the gradient between backward and update: the loss scale, the global norm,
// clipping, and on request the norms of every tensor.
#ifndef GRADS_H
#define GRADS_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/config.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- the global norm, clipping by it, and adaptive clipping per output unit

// |g| over all elements of grad_scale * grads, of a part of a model those that count here (Param.owned): of tensors'
// sums of squares, by dev->sum_squares, in table order. On a deterministic device it is exact but for its last
// rounding (formats.h), so neither order nor layout shows in it. Not finite when any element is not, or when the
// sum of the squares is too large for a float: an optimizer's own squares would be.
double grads_norm(Dev *dev, const Params *params, const float *grads, double grad_scale);
// What to multiply the gradient by so that its norm is at most `clip` (Pascanu et al., arXiv 1211.5063): clip / norm
// where norm > clip > 0, else 1.
double grads_clip_factor(double norm, double clip);
// Adaptive clipping (Brock et al., arXiv 2102.06171, section 4.1), in place on grads: for each unit with weights w and
// gradient g = grad_scale * grads, g *= min(1, lambda max(|w|, CLIP_AGC_EPS) / |g|). Vectors are one unit each; the
// classifier is left alone. Gradients must be finite.
// For the tensors in [begin, end) of the flat range, which must be whole, but for rows with owner >= 0 (optim.h; NULL:
// none); weights and grads start at `begin`.
void grads_clip_agc_range(Dev *dev, const Params *params, bool tied, const float *weights, float *grads, size_t begin,
                          size_t end, double grad_scale, double lambda, ClipUnit unit, const int *owner);
// The same for one row.
void grads_clip_agc(Dev *dev, const Param *row, const float *weight, float *grad, double grad_scale, double lambda,
                    ClipUnit unit);
// Whether clipping a part of the row, cut over `ranks` ranks, needs the rest of it. Rows of a part of two rows or more
// have the bits of the whole.
bool grads_clip_needs_whole(const Param *row, ClipUnit unit, int ranks);
// The row of the table that makes logits: head.weight, or where the model's is tied embed.tokens.weight; -1: it is not
// here, but on another stage of a pipeline.
int grads_clip_classifier(const Params *params, bool tied);

// The same piece by piece, when ranks have the gradient in parts: an empty sum is all zero.
typedef struct {
    double rounded;
    ExactSum exact; // on a deterministic device this one
} ClipSum;
// sum += the squares of n elements.
void grads_clip_add(Dev *dev, ClipSum *sum, const float *grads, size_t n);
// |g| of grad_scale * the gradient whose squares are in sum.
double grads_clip_root(const Dev *dev, const ClipSum *sum, double grad_scale);

#define CLIP_AGC_EPS 1e-3f // least norm that weights count with: weights that begin at zero can then move

// ---- the dynamic loss scale of fp16 training

// fp16 has no number between 0 and 2^-24, and most gradients of a language model are smaller. The gradient
// is linear in the loss, so the loss is multiplied by a scale before backward and the gradient divided by it
// after (Micikevicius et al., arXiv 1710.03740).

// The whole state is in `scale` and `good_steps`: save and restore these two with a checkpoint.
typedef struct {
    float scale;           // multiply Batch.scale by it; multiply the gradient by 1 / scale before norm and clip
    int good_steps;        // finite steps since the scale last changed
    int interval;          // finite steps in a row before it grows; 0: the scale is fixed
    float growth, backoff; // factors
    float min, max;        // it stays within [min, max]
} LossScaler;

// Growth 2, backoff 1/2, range [1, 2^24]. `initial` is a power of two in that range, or it dies (powers of
// two make scaling exact).
LossScaler grads_scaler_create(float initial, int interval);
// The scale of a run that does not need one: 1, fixed.
LossScaler grads_scaler_none(void);
// After a step's gradients are known: `finite` is whether all of them are. True: make the update; false: skip
// it, the scale has gone down. Dies when gradients overflow at the smallest scale. With interval 0 the scale
// stays and an overflow is only skipped.
bool grads_scaler_update(LossScaler *scaler, bool finite);

// ---- norms of weights, gradients and updates, tensor by tensor

enum { NORMS_EACH = 3 }; // weight, gradient, update

typedef struct {
    char path[800];
    FILE *file;
    Params whole; // the table of the whole model
    float *old;   // weights before the update: this process' parts, back to back
    ClipSum *sum; // (whole.n_rows, NORMS_EACH) of squares
} Norms;

// Elements [begin, end) of the process' flat order, where they stand, and at which element of `old`.
typedef struct {
    size_t begin, end, at;
    const float *weight, *grad;
} NormsPart;

// The buffers; n: elements that this process has, all parts together. Takes the table `whole`. `old` is scratch of the
// memory allocator's.
Norms grads_norms_create(const Model *model, Params whole, size_t n);
// Opens `dir`/norms.csv for appending; a new file gets the line of column names.
void grads_norms_open(Norms *norms, const char *dir);
// Before the optimizer's step: begin, then add every part, which keeps its weights. After it: add every part again,
// with grad NULL. Then `sum` is added over the processes, which have each element once, and written.
void grads_norms_begin(Norms *norms);
void grads_norms_add(Norms *norms, const Model *model, NormsPart part);
// One line a tensor: step, tensor, weight, grad, update, update / weight. `weight` is before the update, `grad` is that
// of grad_scale * the gradient, before clipping.
void grads_norms_write(Norms *norms, const Dev *dev, double grad_scale, long step);
void grads_norms_close(Norms *norms);

#ifdef __cplusplus
}
#endif
#endif
