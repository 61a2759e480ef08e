// Four rows and four columns of out at once in local variables: 8 reads for 16 products.
#include "fast.h"

static void block(float *out, const float *a, const float *b, int rows, int cols, int n, int k)
{
    float sum[4][4] = {{0}};
    for (int i = 0; i < k; i++) {
        float x[4], y[4];
        for (int r = 0; r < rows; r++) x[r] = a[r * k + i];
        for (int c = 0; c < cols; c++) y[c] = b[i * n + c];
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < cols; c++) sum[r][c] += x[r] * y[c];
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) out[r * n + c] = sum[r][c];
}

void fast_matmul(float *out, const float *a, const float *b, int m, int n, int k)
{
    for (int r = 0; r < m; r += 4)
        for (int c = 0; c < n; c += 4)
            block(out + r * n + c, a + r * k, b + c, m - r < 4 ? m - r : 4, n - c < 4 ? n - c : 4, n, k);
}
