// says: serves all its threads
// Right, but every thread reads a whole row and a whole column.
#include "matmul.h"

static __global__ void naive_kernel(float *out, Matrix a, Matrix b, int m, int n, int k)
{
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x) / n, col = (int)(blockIdx.x * blockDim.x + threadIdx.x) % n;
    float sum = 0;
    for (int i = 0; row < m && i < k; i++) sum += a[(size_t)(row * k + i)] * b[(size_t)(i * n + col)];
    if (row < m) out[row * n + col] = sum;
}

void matmul(float *out, Matrix a, Matrix b, int m, int n, int k)
{
    LAUNCH(naive_kernel, (m * n + 127) / 128, 128, 0, nullptr, out, a, b, m, n, k);
}
