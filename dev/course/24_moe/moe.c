#include "moe.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

void route(int T, int E, int k, const float *logits, int *choice, float *weight)
{
    //[
    //+ (void)T, (void)E, (void)k, (void)logits, (void)choice, (void)weight; // write this
    for (int t = 0; t < T; t++) {
        const float *z = logits + t * E;
        float sum = 0;
        for (int j = 0; j < k; j++) {
            int best = -1;
            for (int e = 0; e < E; e++) {
                bool taken = false;
                for (int i = 0; i < j; i++) taken = taken || choice[t * k + i] == e;
                if (!taken && (best < 0 || z[e] > z[best])) best = e;
            }
            choice[t * k + j] = best;
            weight[t * k + j] = expf(z[best] - z[choice[t * k]]); // the first one is the maximum
            sum += weight[t * k + j];
        }
        for (int j = 0; j < k; j++) weight[t * k + j] /= sum;
    }
    //]
}

int expert_capacity(int T, int E, int k, double factor)
{
    //[
    //+ return 0 * T * E * k * (int)factor;
    return (int)ceil(factor * T * k / E);
    //]
}

int dispatch(int T, int E, int k, const int *choice, int capacity, int *counts, int *row)
{
    //[
    //+ (void)T, (void)E, (void)k, (void)choice, (void)capacity, (void)counts, (void)row;
    //+ return 0;
    memset(counts, 0, (size_t)E * sizeof *counts);
    for (int j = 0; j < k; j++) // first choices first; row is the place within the expert for now
        for (int t = 0; t < T; t++) {
            int e = choice[t * k + j];
            row[t * k + j] = counts[e] < capacity ? counts[e]++ : -1;
        }
    int rows = 0;
    for (int e = 0; e < E; e++) {
        for (int i = 0; i < T * k; i++)
            if (choice[i] == e && row[i] >= 0) row[i] += rows;
        rows += counts[e];
    }
    return rows;
    //]
}

void gather_rows(int T, int k, int D, const float *x, const int *row, float *rows)
{
    //[
    //+ (void)T, (void)k, (void)D, (void)x, (void)row, (void)rows;
    for (int i = 0; i < T * k; i++)
        if (row[i] >= 0) memcpy(rows + row[i] * D, x + i / k * D, (size_t)D * sizeof *rows);
    //]
}

void combine(int T, int k, int D, const float *out, const int *row, const float *weight, float *y)
{
    //[
    //+ (void)T, (void)k, (void)D, (void)out, (void)row, (void)weight, (void)y;
    memset(y, 0, (size_t)(T * D) * sizeof *y);
    for (int i = 0; i < T * k; i++)
        for (int d = 0; row[i] >= 0 && d < D; d++) y[i / k * D + d] += weight[i] * out[row[i] * D + d];
    //]
}

void combine_backward(int T, int k, int D, const float *dy, const float *out, const int *row, const float *weight,
                      float *dout, float *dweight)
{
    //[
    //+ (void)T, (void)k, (void)D, (void)dy, (void)out, (void)row, (void)weight, (void)dout, (void)dweight;
    for (int i = 0; i < T * k; i++) {
        dweight[i] = 0;
        for (int d = 0; row[i] >= 0 && d < D; d++) {
            dout[row[i] * D + d] = weight[i] * dy[i / k * D + d];
            dweight[i] += out[row[i] * D + d] * dy[i / k * D + d];
        }
    }
    //]
}
