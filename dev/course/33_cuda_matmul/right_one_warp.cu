// Blocks of one warp that go on to other tiles; a tile of 8 rows and 32 columns; rows of a are handed on by shuffles.
#include "matmul.h"

static __global__ void matmul_kernel(float *out, Matrix a, Matrix b, int m, int n, int k)
{
    int lane = (int)threadIdx.x, across = (n + 31) / 32, tiles = across * ((m + 7) / 8);
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        int row0 = tile / across * 8, col = tile % across * 32 + lane;
        float sum[8] = {};
        for (int from = 0; from < k; from += 32) {
            float right[32] = {};
            for (int i = 0; i < 32 && from + i < k && col < n; i++) right[i] = b[(size_t)((from + i) * n + col)];
            for (int r = 0; r < 8; r++) {
                float left = row0 + r < m && from + lane < k ? a[(size_t)((row0 + r) * k + from + lane)] : 0;
                for (int i = 0; i < 32; i++) sum[r] += __shfl_sync(0xffffffffu, left, i) * right[i];
            }
        }
        for (int r = 0; r < 8; r++)
            if (row0 + r < m && col < n) out[(row0 + r) * n + col] = sum[r];
    }
}

void matmul(float *out, Matrix a, Matrix b, int m, int n, int k)
{
    LAUNCH(matmul_kernel, 3, 32, 0, nullptr, out, a, b, m, n, k);
}
