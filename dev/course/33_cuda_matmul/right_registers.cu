// A block of 128 threads computes 32 rows and 32 columns, a thread 8 elements of one column; from the last tile to the
// first; the left tile is kept transposed.
#include "matmul.h"

static __global__ void matmul_kernel(float *out, Matrix a, Matrix b, int m, int n, int k)
{
    SHARED(float, left, [8][33]);
    SHARED(float, right, [8][32]);
    int t = (int)threadIdx.x, row0 = (int)blockIdx.x * 32, col0 = (int)blockIdx.y * 32;
    float sum[8] = {};
    for (int from = (k - 1) / 8 * 8; from >= 0; from -= 8) {
        for (int j = t; j < 256; j += 128) {
            int i = from + j % 8, row = row0 + j / 8, col = col0 + j % 32, i2 = from + j / 32;
            left[j % 8][j / 8] = i < k && row < m ? a[(size_t)(row * k + i)] : 0;
            right[j / 32][j % 32] = i2 < k && col < n ? b[(size_t)(i2 * n + col)] : 0;
        }
        __syncthreads();
        for (int i = 0; i < 8; i++)
            for (int r = 0; r < 8; r++) sum[r] = fmaf(left[i][t / 32 * 8 + r], right[i][t % 32], sum[r]);
        __syncthreads();
    }
    for (int r = 0; r < 8; r++) {
        int row = row0 + t / 32 * 8 + r, col = col0 + t % 32;
        if (row < m && col < n) out[row * n + col] = sum[r];
    }
}

void matmul(float *out, Matrix a, Matrix b, int m, int n, int k)
{
    LAUNCH(matmul_kernel, dim3((unsigned)(m + 31) / 32, (unsigned)(n + 31) / 32), 128, 0, nullptr, out, a, b, m, n, k);
}
