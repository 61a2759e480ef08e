// Experts by qsort; rows sorted backwards within an expert; an index of the slot of each row; backward row by row.
#include "moe.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    float z;
    int number;
} Keyed;

static int falling(const void *a, const void *b)
{
    const Keyed *x = a, *y = b;
    return x->z != y->z ? (x->z < y->z) - (x->z > y->z) : x->number - y->number;
}

void route(int T, int E, int k, const float *logits, int *choice, float *weight)
{
    Keyed *key = malloc((size_t)E * sizeof *key);
    for (int t = 0; t < T; t++) {
        for (int e = 0; e < E; e++) key[e] = (Keyed){logits[t * E + e], e};
        qsort(key, (size_t)E, sizeof *key, falling);
        double sum = 0;
        for (int j = 0; j < k; j++) choice[t * k + j] = key[j].number, sum += exp((double)key[j].z - key[0].z);
        for (int j = 0; j < k; j++) weight[t * k + j] = (float)(exp((double)key[j].z - key[0].z) / sum);
    }
    free(key);
}

int expert_capacity(int T, int E, int k, double factor)
{
    double exact = factor * T * k / E;
    return (int)exact + (exact > (int)exact);
}

int dispatch(int T, int E, int k, const int *choice, int capacity, int *counts, int *row)
{
    int rows = 0;
    for (int e = 0; e < E; e++) {
        counts[e] = 0;
        for (int j = 0; j < k; j++)
            for (int t = 0; t < T; t++) {
                int i = t * k + j;
                if (choice[i] != e) continue;
                row[i] = counts[e] < capacity ? rows + counts[e]++ : -1;
            }
        for (int i = 0; i < T * k; i++)
            if (choice[i] == e && row[i] >= 0) row[i] = rows + counts[e] - 1 - (row[i] - rows);
        rows += counts[e];
    }
    return rows;
}

void gather_rows(int T, int k, int D, const float *x, const int *row, float *rows)
{
    for (int d = 0; d < D; d++)
        for (int t = T - 1; t >= 0; t--)
            for (int j = 0; j < k; j++)
                if (row[t * k + j] != -1) rows[row[t * k + j] * D + d] = x[t * D + d];
}

void combine(int T, int k, int D, const float *out, const int *row, const float *weight, float *y)
{
    for (int t = 0; t < T; t++)
        for (int d = 0; d < D; d++) {
            double sum = 0;
            for (int j = k - 1; j >= 0; j--)
                if (row[t * k + j] != -1) sum += (double)weight[t * k + j] * out[row[t * k + j] * D + d];
            y[t * D + d] = (float)sum;
        }
}

void combine_backward(int T, int k, int D, const float *dy, const float *out, const int *row, const float *weight,
                      float *dout, float *dweight)
{
    int rows = 0;
    for (int i = 0; i < T * k; i++) rows += row[i] != -1, dweight[i] = 0;
    int *slot = malloc((size_t)(rows + 1) * sizeof *slot);
    for (int i = 0; i < T * k; i++)
        if (row[i] != -1) slot[row[i]] = i;
    for (int d = 0; d < D; d++)
        for (int r = 0; r < rows; r++) {
            int i = slot[r];
            dout[r * D + d] = dy[i / k * D + d] * weight[i], dweight[i] += dy[i / k * D + d] * out[r * D + d];
        }
    free(slot);
}
