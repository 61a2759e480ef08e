// Rung 1: the formula, a kernel for each of its three steps, with the scores in memory between them.
//
// A thread has one score, a warp one row of the softmax, a thread one number of the output. The scores take 4 B H
// T T bytes, and 28 bytes pass for each pair: written, by the softmax read three times and written twice, read at
// the end. That is more than all the other numbers together as soon as T is a few times D. And each row of q, k
// and v is fetched by many blocks: 16 queries by 16 keys share what they fetch for the scores, one query shares
// nothing for the output.
#include "ladder.h"

enum { TILE = 16, ROWS = 4, LANES = 32 };

__global__ void scores_kernel(float *score, const B16 *q, const B16 *k, LadderShape s)
{
    int j = (int)(blockIdx.x * TILE + threadIdx.x), t = (int)(blockIdx.y * TILE + threadIdx.y);
    int b = (int)blockIdx.z / s.H, h = (int)blockIdx.z % s.H;
    if (t >= s.T || j > t) return;
    float sum = 0;
    for (int d = 0; d < s.D; d++) sum += (float)q[ladder_row(s, b, h, t) + d] * (float)k[ladder_row(s, b, h, j) + d];
    score[((size_t)blockIdx.z * s.T + t) * s.T + j] = sum / sqrtf((float)s.D);
}

__global__ void softmax_kernel(float *score, LadderShape s)
{
    int t = (int)(blockIdx.x * ROWS + threadIdx.y), lane = (int)threadIdx.x;
    if (t >= s.T) return; // the whole warp
    float *row = score + ((size_t)blockIdx.z * s.T + t) * s.T, top = -INFINITY, sum = 0;
    for (int j = lane; j <= t; j += LANES) top = fmaxf(top, row[j]);
    top = warp_max(top);
    for (int j = lane; j <= t; j += LANES) sum += row[j] = expf(row[j] - top);
    sum = warp_sum(sum);
    for (int j = lane; j <= t; j += LANES) row[j] /= sum;
}

__global__ void values_kernel(B16 *out, const float *p, const B16 *v, LadderShape s)
{
    int t = (int)blockIdx.x, d = (int)threadIdx.x, b = (int)blockIdx.z / s.H, h = (int)blockIdx.z % s.H;
    const float *row = p + ((size_t)blockIdx.z * s.T + t) * s.T;
    float sum = 0;
    for (int j = 0; j <= t; j++) sum += row[j] * (float)v[ladder_row(s, b, h, j) + d];
    out[ladder_row(s, b, h, t) + d] = B16(sum);
}

bool ladder_naive(B16 *out, const B16 *q, const B16 *k, const B16 *v, float *score, LadderShape s,
                  cudaStream_t stream)
{
    unsigned T = (unsigned)s.T, heads = (unsigned)(s.B * s.H), tiles = (T + TILE - 1) / TILE;
    if (!score) return false;
    LAUNCH(scores_kernel, dim3(tiles, tiles, heads), dim3(TILE, TILE), 0, stream, score, q, k, s);
    LAUNCH(softmax_kernel, dim3((T + ROWS - 1) / ROWS, 1, heads), dim3(LANES, ROWS), 0, stream, score, s);
    LAUNCH(values_kernel, dim3(T, 1, heads), (unsigned)s.D, 0, stream, out, score, v, s);
    return true;
}
