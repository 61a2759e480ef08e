#include "lr.h"

#include <math.h>

double learning_rate(const LrSchedule *s, long step)
{
    //[
    //+ (void)s, (void)step; // write this
    //+ return 0;
    long W = s->warmup, start = W;
    if (step < W) return s->peak * (double)(step + 1) / (double)W;
    if (s->kind == LR_INVSQRT) return s->peak * sqrt((double)(W > 0 ? W : 1) / (double)(step + 1));
    if (s->kind == LR_WSD && s->decay_start > W) start = s->decay_start;
    if (step >= s->end) return s->least;
    if (step <= start) return s->peak;
    double p = (double)(step - start) / (double)(s->end - start);
    double left = s->kind == LR_COSINE ? 0.5 * (1 + cos(acos(-1) * p)) : 1 - p;
    return s->least + (s->peak - s->least) * left;
    //]
}
