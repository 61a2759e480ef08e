// says: averaged; their sums l differ
// Each block's own output, averaged over the blocks.
#include "ring_attention.h"

#include <math.h>

void attend_block(int Tq, int Tk, int D, const float *q, const float *k, const float *v, int q_first, int k_first,
                  float *m, float *l, float *o)
{
    for (int i = 0; i < Tq; i++) {
        float sum = 0, out[64] = {0};
        for (int j = 0; j < Tk && k_first + j <= q_first + i; j++) {
            float s = 0;
            for (int d = 0; d < D; d++) s += q[i * D + d] * k[j * D + d];
            s = expf(s / sqrtf((float)D)), sum += s;
            for (int d = 0; d < D; d++) out[d] += s * v[j * D + d];
        }
        if (sum == 0) continue;
        for (int d = 0; d < D; d++) o[i * D + d] += out[d] / sum;
        l[i] += 1, m[i] = 0;
    }
}

void ring_attention(Link *link, int T, int D, const float *q, const float *k, const float *v, float *out)
{
    (void)link, (void)T, (void)D, (void)q, (void)k, (void)v, (void)out;
}
