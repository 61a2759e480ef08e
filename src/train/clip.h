// clip: the global gradient norm, clipping by it, and adaptive clipping per output unit.
#ifndef CLIP_H
#define CLIP_H
#include "ops/dev.h"
#include "base/config.h"
#include "base/params.h"
#ifdef __cplusplus
extern "C" {
#endif

// |g| over all elements of grad_scale * grads, of a part of a model those that count here (Param.owned): of tensors'
// sums of squares, by dev->sum_squares, in table order. On a deterministic device it is exact but for its last
// rounding (formats.h), so neither order nor layout shows in it. Not finite when any element is not, or when the
// sum of the squares is too large for a double.
double clip_norm(Dev *dev, const Params *params, const float *grads, double grad_scale);
// What to multiply the gradient by so that its norm is at most `clip` (Pascanu et al., arXiv 1211.5063): clip / norm
// where norm > clip > 0, else 1.
double clip_factor(double norm, double clip);
// Adaptive clipping (Brock et al., arXiv 2102.06171, section 4.1), in place on grads: for each unit with weights w and
// gradient g = grad_scale * grads, g *= min(1, lambda max(|w|, CLIP_AGC_EPS) / |g|). Vectors are one unit each; the
// classifier is left alone. Gradients must be finite.
void clip_agc(Dev *dev, const Params *params, const float *weights, float *grads, double grad_scale, double lambda,
              ClipUnit unit);
// The same for the tensors in [begin, end) of the flat range, which must be whole; weights and grads start at `begin`.
void clip_agc_range(Dev *dev, const Params *params, const float *weights, float *grads, size_t begin, size_t end,
                    double grad_scale, double lambda, ClipUnit unit);
// The row of the table that makes logits: head.weight, or where it is tied embed.tokens.weight; -1: none.
int clip_classifier(const Params *params);

// The same piece by piece, for whoever has the gradient in parts: an empty sum is all zero.
typedef struct {
    double rounded;
    ExactSum exact; // on a deterministic device this one
} ClipSum;
// sum += the squares of n elements.
void clip_add(Dev *dev, ClipSum *sum, const float *grads, size_t n);
// |g| of grad_scale * the gradient whose squares are in sum.
double clip_root(const Dev *dev, const ClipSum *sum, double grad_scale);

#define CLIP_AGC_EPS 1e-3f // least norm that weights count with: weights that begin at zero can then move

#ifdef __cplusplus
}
#endif
#endif
