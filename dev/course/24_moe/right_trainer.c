// The trainer's ops. It drops the choices with the smallest weights, so first choices get 0 for one here, second ones
// -1.
#include "moe.h"

#include "ops/dev.h"

#include <math.h>
#include <stdlib.h>

static Dev *device(void)
{
    static Dev *dev;
    if (!dev) dev = dev_cpu_create(1);
    return dev;
}

void route(int T, int E, int k, const float *logits, int *choice, float *weight)
{
    DevRouter router = {.E = (size_t)E, .k = (size_t)k, .renorm = true, .scale = 1};
    device()->route_forward(device(), choice, weight, logits, NULL, (size_t)T, router);
}

int expert_capacity(int T, int E, int k, double factor) { return (int)ceil(factor * T * k / E); }

int dispatch(int T, int E, int k, const int *choice, int capacity, int *counts, int *row)
{
    size_t n = (size_t)(T * k);
    int *offset = malloc((size_t)(E + 1) * sizeof *offset), *slot = malloc(n * sizeof *slot), rows;
    float *gate = malloc(n * sizeof *gate);
    for (int i = 0; i < T * k; i++) gate[i] = (float)-(i % k), row[i] = -1;
    device()->experts_sort(device(), offset, row, slot, choice, gate, (size_t)T, (size_t)T, (size_t)k, (size_t)E,
                           capacity ? (size_t)capacity : DEV_ROWS_GIVEN, true); // 0: all are dropped already
    for (int e = 0; e < E; e++) counts[e] = offset[e + 1] - offset[e];
    rows = offset[E];
    free(offset), free(slot), free(gate);
    return rows;
}

void gather_rows(int T, int k, int D, const float *x, const int *row, float *rows)
{
    int n = 0, *slot = malloc((size_t)(T * k) * sizeof *slot);
    for (int i = 0; i < T * k; i++)
        if (row[i] >= 0) slot[row[i]] = i, n++;
    device()->experts_gather(device(), (X *)rows, (const X *)x, slot, (size_t)n, (size_t)k, (size_t)D);
    free(slot);
}

void combine(int T, int k, int D, const float *out, const int *row, const float *weight, float *y)
{
    int n = 0;
    for (int i = 0; i < T * k; i++) n += row[i] >= 0;
    float *weighted = malloc((size_t)(n * D + 1) * sizeof *weighted);
    for (int i = 0; i < T * k; i++)
        for (int d = 0; d < D && row[i] >= 0; d++) weighted[row[i] * D + d] = weight[i] * out[row[i] * D + d];
    device()->experts_combine(device(), (X *)y, (const X *)weighted, row, (size_t)T, (size_t)k, (size_t)D);
    free(weighted);
}

void combine_backward(int T, int k, int D, const float *dy, const float *out, const int *row, const float *weight,
                      float *dout, float *dweight)
{
    gather_rows(T, k, D, dy, row, dout); // combine's backward, but for the weights
    for (int i = 0; i < T * k; i++) {
        dweight[i] = 0;
        for (int d = 0; d < D && row[i] >= 0; d++) {
            dweight[i] += dout[row[i] * D + d] * out[row[i] * D + d];
            dout[row[i] * D + d] *= weight[i];
        }
    }
}
