#define GRADE_HIDDEN
#include "../grade.h"

#include "block.h"

// tests.c
typedef struct {
    BlockShape b;
    size_t n[PARAMS];
    float *weight[PARAMS], *grad[PARAMS], *dy, *xf;
    double *w[PARAMS], *x[4];
} Block;
Block block_of(size_t T, size_t C, size_t F, uint64_t seed, int off);
float *block_answer(Block *k);
double *block_differences(const Block *k, double *const *at, int from, int to, size_t n, bool half);
void block_params(const Block *k, int first, int last, double times);

TEST(micro_batches, 2, "two micro-batches: gradients of parameters add up")
{
    Block k = block_of(3, 2, 4, 500, -1);
    block_answer(&k);
    float *dx = block_answer(&k);
    block_params(&k, NORM1, W2, 2);
    expect_array("dx of the second", dx, block_differences(&k, k.x, 0, 4, 6, false), 3, 2, 3e-5, NULL, 0);
}

TEST(shapes, 3, "other shapes: T, C, F = 1, 4, 3; 7, 3, 11; 6, 8, 2")
{
    static const size_t shape[3][3] = {{1, 4, 3}, {7, 3, 11}, {6, 8, 2}};
    for (int i = 0; i < 3; i++) {
        size_t T = shape[i][0], C = shape[i][1];
        Block k = block_of(T, C, shape[i][2], 600 + 30 * (uint64_t)i, -1);
        float *dx = block_answer(&k);
        expect_array("dx", dx, block_differences(&k, k.x, 0, 4, T * C, false), T, C, 1e-4, NULL, 0);
        block_params(&k, NORM1, W2, 1);
    }
}
