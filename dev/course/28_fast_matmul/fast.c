#include "fast.h"

#include <string.h>

enum { TILE = 32 };

static int smaller(int a, int b) { return a < b ? a : b; }

void fast_matmul(float *out, const float *a, const float *b, int m, int n, int k)
{
    //[
    //+ (void)out, (void)a, (void)b, (void)m, (void)n, (void)k, (void)smaller; // write this
    memset(out, 0, (size_t)m * (size_t)n * sizeof *out);
    for (int first = 0; first < k; first += TILE)
        for (int r = 0; r < m; r++) {
            float *row = out + r * n;
            for (int i = first; i < smaller(first + TILE, k); i++) {
                float x = a[r * k + i];
                for (int c = 0; c < n; c++) row[c] += x * b[i * n + c]; // b and out in the order in which they lie
            }
        }
    //]
}
