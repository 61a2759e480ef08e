// The trainer's own.
#include "draw.h"

#include "net/sample.h"

size_t draw_token(const float *logits, size_t V, double temperature, size_t top_k, double top_p, double u)
{
    SampleRule rule = {.temperature = temperature, .top_k = (long)top_k, .top_p = top_p};
    return (size_t)sample_token(logits, V, rule, u);
}
