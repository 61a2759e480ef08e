// No state that runs along: the place of an expert, of a choice and of a row is the number of those that come before
// it.
#include "moe.h"

#include <math.h>

void route(int T, int E, int k, const float *logits, int *choice, float *weight)
{
    for (int t = 0; t < T; t++)
        for (int e = 0; e < E; e++) {
            const float *z = logits + t * E;
            int before = 0;
            for (int o = 0; o < E; o++) before += o < e ? z[o] >= z[e] : z[o] > z[e];
            if (before < k) choice[t * k + before] = e;
        }
    for (int i = 0; i < T * k; i++) {
        const float *z = logits + i / k * E;
        float sum = 0;
        for (int j = 0; j < k; j++) sum += expf(z[choice[i / k * k + j]] - z[choice[i]]);
        weight[i] = 1 / sum; // exp may be infinite here: then the weight is 0
    }
}

int expert_capacity(int T, int E, int k, double factor) { return -(int)floor(-factor * T * k / E); }

int dispatch(int T, int E, int k, const int *choice, int capacity, int *counts, int *row)
{
    int rows = 0;
    for (int e = 0; e < E; e++) counts[e] = 0;
    for (int i = 0; i < T * k; i++) {
        int before = 0;
        for (int o = 0; o < T * k; o++)
            before += choice[o] == choice[i] && (o % k < i % k || (o % k == i % k && o < i));
        row[i] = before < capacity ? before : -1;
        counts[choice[i]] += row[i] >= 0, rows += row[i] >= 0;
    }
    for (int i = 0; i < T * k; i++)
        for (int e = 0; row[i] >= 0 && e < choice[i]; e++) row[i] += counts[e];
    return rows;
}

void gather_rows(int T, int k, int D, const float *x, const int *row, float *rows)
{
    for (int i = 0; i < T * k * D; i++)
        if (row[i / D] >= 0) rows[row[i / D] * D + i % D] = x[i / D / k * D + i % D];
}

void combine(int T, int k, int D, const float *out, const int *row, const float *weight, float *y)
{
    for (int i = 0; i < T * D; i++) y[i] = 0;
    for (int j = 0; j < k; j++)
        for (int i = 0; i < T * D; i++) {
            int slot = i / D * k + j;
            y[i] += row[slot] < 0 ? 0 : out[row[slot] * D + i % D] * weight[slot];
        }
}

void combine_backward(int T, int k, int D, const float *dy, const float *out, const int *row, const float *weight,
                      float *dout, float *dweight)
{
    for (int i = 0; i < T * k; i++) {
        double sum = 0;
        for (int d = 0; d < D && row[i] >= 0; d++) {
            sum += (double)dy[i / k * D + d] * out[row[i] * D + d];
            dout[row[i] * D + d] = dy[i / k * D + d] * weight[i];
        }
        dweight[i] = (float)sum;
    }
}
