// scaler: the dynamic loss scale of fp16 training, as a state machine.
//
// fp16 has no number between 0 and 2^-24, and most gradients of a language model are smaller. The gradient
// is linear in the loss, so the loss is multiplied by a scale before backward and the gradient divided by it
// after (Micikevicius et al., arXiv 1710.03740).
#ifndef SCALER_H
#define SCALER_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

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
LossScaler scaler_create(float initial, int interval);
// The scale of a run that does not need one: 1, fixed.
LossScaler scaler_none(void);
// After a step's gradients are known: `finite` is whether all of them are. True: make the update; false: skip
// it, the scale has gone down. Dies when gradients overflow at the smallest scale. With interval 0 the scale
// stays and an overflow is only skipped.
bool scaler_update(LossScaler *scaler, bool finite);

#ifdef __cplusplus
}
#endif
#endif
