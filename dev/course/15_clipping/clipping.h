// clipping: the gradient's global norm.
#ifndef CLIPPING_H
#define CLIPPING_H
#include <stddef.h>

// grads: `tensors` arrays, grads[t] of n[t] floats. Scales all of them, in place, so that their norm together is at most
// clip (0: as they are). Returns the norm before that.
double clip_by_global_norm(float **grads, const size_t *n, int tensors, double clip);
#endif
