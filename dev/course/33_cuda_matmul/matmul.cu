#include "matmul.h"

//[
enum { TILE = 16 };

// A block computes a tile of out, a thread one element of it.
static __global__ void matmul_kernel(float *out, Matrix a, Matrix b, int m, int n, int k)
{
    SHARED(float, left, [TILE][TILE]);
    SHARED(float, right, [TILE][TILE]);
    int x = (int)threadIdx.x, y = (int)threadIdx.y;
    int row = (int)blockIdx.y * TILE + y, col = (int)blockIdx.x * TILE + x;
    float sum = 0;
    for (int from = 0; from < k; from += TILE) {
        left[y][x] = row < m && from + x < k ? a[(size_t)row * (size_t)k + (size_t)(from + x)] : 0;
        right[y][x] = from + y < k && col < n ? b[(size_t)(from + y) * (size_t)n + (size_t)col] : 0;
        __syncthreads(); // both tiles are there
        for (int i = 0; i < TILE; i++) sum += left[y][i] * right[i][x];
        __syncthreads(); // both tiles have been used, and may be overwritten
    }
    if (row < m && col < n) out[(size_t)row * (size_t)n + (size_t)col] = sum;
}
//]

void matmul(float *out, Matrix a, Matrix b, int m, int n, int k)
{
    //[
    //+ (void)out, (void)a, (void)b, (void)m, (void)n, (void)k; // write this
    dim3 grid((unsigned)(n + TILE - 1) / TILE, (unsigned)(m + TILE - 1) / TILE);
    LAUNCH(matmul_kernel, grid, dim3(TILE, TILE), 0, nullptr, out, a, b, m, n, k);
    //]
}
