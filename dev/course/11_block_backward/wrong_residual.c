// says: is still 0
#include "block.h"

// Passes the gradient on as if there were no branches.
void block_backward(float *dx, float *const *grad, const float *dy, const float *x, float *const *weight,
                    const BlockSaved *s, BlockShape b)
{
    (void)grad, (void)x, (void)weight, (void)s;
    memcpy(dx, dy, b.T * b.C * sizeof *dx);
}
