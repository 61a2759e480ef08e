// Backward gathers: each row of a table searches its places, from the last one to the first, and sums them in double.
#include "embedding.h"

#include <stdlib.h>
#include <string.h>

void embed_forward(float *out, const int32_t *token, const float *token_table, const float *position_table, size_t B,
                   size_t T, size_t C)
{
    for (size_t t = T; t-- > 0;)
        for (size_t b = B; b-- > 0;) {
            float *o = out + (b * T + t) * C;
            memcpy(o, position_table + t * C, C * sizeof *o);
            for (size_t c = 0; c < C; c++) o[c] += token_table[(size_t)token[b * T + t] * C + c];
        }
}

void embed_backward(float *d_token, float *d_position, const float *dout, const int32_t *token, size_t B, size_t T,
                    size_t C)
{
    char *done = calloc(B * T + 1, 1);
    for (size_t n = 0; n < B * T; n++) {
        for (size_t c = 0; c < C && !done[n]; c++) {
            double sum = 0;
            for (size_t m = B * T; m-- > n;) sum += token[m] == token[n] ? dout[m * C + c] : 0;
            d_token[(size_t)token[n] * C + c] += (float)sum;
        }
        for (size_t m = n; m < B * T; m++) done[m] |= token[m] == token[n];
    }
    for (size_t i = 0; i < T * C; i++) {
        double sum = 0;
        for (size_t b = B; b-- > 0;) sum += dout[b * T * C + i];
        d_position[i] += (float)sum;
    }
    free(done);
}
