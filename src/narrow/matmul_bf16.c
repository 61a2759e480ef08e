// matmul_bf16: tiles of a product, each by one thread, rounded while they are in its cache.
//
// A tile of sums (fp32) is in the thread's part of the room. When all k have been added, its rows are finished: bias,
// GELU or its slope, one rounding to bf16 at each place where the widening device rounds (narrow.c). So no fp32 array
// of the size of an activation is ever written. A gradient of a weight is fp32, and its tiles are summed in place.
//
// Every element is one chain of gemm_bf16.h, so the grid of tiles changes no bits and may depend on the threads.
#include "narrow/narrow.h"

#include "base/check.h"
#include "formats/formats.h"
#include "ops/gemm.h"
#include "formats/gemm_bf16.h"
#include "ops/activation.h"

#include <omp.h>

enum { MOST_COLS = 512, WEIGHT_COLS = 1024 };
static const GemmTile least = {GEMM_BF16_MR, GEMM_BF16_NR};

typedef struct {
    size_t M, N, n_rows, n_tiles;
    GemmTile tile;
} Grid;

static Grid grid_make(size_t M, size_t N, int threads, GemmTile most)
{
    Grid g = {.M = M, .N = N};
    if (M == 0 || N == 0) return g;
    g.tile = gemm_cut(M, N, (size_t)threads, least, most);
    g.n_rows = (M + g.tile.h - 1) / g.tile.h;
    g.n_tiles = g.n_rows * ((N + g.tile.w - 1) / g.tile.w);
    return g;
}

// Tile i covers rows [r, r + h) and columns [c, c + w).
typedef struct {
    size_t r, h, c, w;
} Part;

static Part grid_part(Grid g, size_t i)
{
    Part p = {.r = i % g.n_rows * g.tile.h, .c = i / g.n_rows * g.tile.w};
    p.h = g.M - p.r < g.tile.h ? g.M - p.r : g.tile.h;
    p.w = g.N - p.c < g.tile.w ? g.N - p.c : g.tile.w;
    return p;
}

size_t matmul_bf16_room(int threads, size_t most)
{
    size_t want = (size_t)threads * GEMM_BF16_MC * MOST_COLS, need = (size_t)threads * least.h * least.w;
    return most < need ? need : most < want ? most : want;
}

// The largest tile that fits a thread's part of the room.
static GemmTile tile_most(MatmulRoom room)
{
    size_t part = room.n_floats / (size_t)room.threads, w = part / least.h / least.w * least.w;
    w = w < MOST_COLS ? w : MOST_COLS;
    check(w >= least.w);
    size_t h = part / w / least.h * least.h;
    return (GemmTile){h < GEMM_BF16_MC ? h : GEMM_BF16_MC, w};
}

static inline float wide(uint16_t x)
{
    return formats_decode(FORMAT_BF16, x);
}

static inline uint16_t rounded(float x)
{
    return (uint16_t)formats_encode(FORMAT_BF16, x, false);
}

// A row of sums after its last term. pre may be NULL.
static void finish_row(uint16_t *restrict out, uint16_t *restrict pre, float *restrict sum,
                       const uint16_t *restrict bias, size_t w, bool gelu)
{
    if (bias) {
#pragma omp simd
        for (size_t c = 0; c < w; c++) sum[c] += wide(bias[c]);
    }
    if (!gelu) {
#pragma omp simd
        for (size_t c = 0; c < w; c++) out[c] = rounded(sum[c]);
        return;
    }
    // Three loops: one that rounds, multiplies and rounds takes longer than loops of one kind of arithmetic.
    uint16_t *stored = pre ? pre : out;
#pragma omp simd
    for (size_t c = 0; c < w; c++) stored[c] = rounded(sum[c]);
#pragma omp simd
    for (size_t c = 0; c < w; c++) sum[c] = act_gelu(wide(stored[c]));
#pragma omp simd
    for (size_t c = 0; c < w; c++) out[c] = rounded(sum[c]);
}

static void forward_few(MatmulRoom room, uint16_t *out, uint16_t *pre, const uint16_t *inp, const uint16_t *weight,
                        const uint16_t *bias, size_t N, size_t C, size_t OC, bool gelu)
{
    size_t most = room.n_floats / N;
    for (size_t c = 0; c < OC; c += most) {
        size_t w = OC - c < most ? OC - c : most;
        gemm_bf16_few_rows(room.threads, room.sums, inp, weight + c * C, N, C, w);
        for (size_t r = 0; r < N; r++)
            finish_row(out + r * OC + c, pre ? pre + r * OC + c : NULL, room.sums + r * w, bias ? bias + c : NULL, w,
                       gelu);
    }
}

void matmul_bf16_forward(MatmulRoom room, uint16_t *out, uint16_t *pre, const uint16_t *inp, const uint16_t *weight,
                         const uint16_t *bias, size_t N, size_t C, size_t OC, bool gelu, size_t few)
{
    if (N == 0) return;
    if (N <= few) {
        forward_few(room, out, pre, inp, weight, bias, N, C, OC, gelu);
        return;
    }
    Grid g = grid_make(N, OC, room.threads, tile_most(room));
#pragma omp parallel for schedule(dynamic) num_threads(room.threads)
    for (size_t i = 0; i < g.n_tiles; i++) {
        Part p = grid_part(g, i);
        float *sum = room.sums + (size_t)omp_get_thread_num() * g.tile.h * g.tile.w;
        gemm_bf16_serial(false, true, p.h, p.w, C, inp + p.r * C, C, weight + p.c * C, C, false, sum, p.w);
        for (size_t r = 0; r < p.h; r++) {
            size_t at = (p.r + r) * OC + p.c;
            finish_row(out + at, pre ? pre + at : NULL, sum + r * p.w, bias ? bias + p.c : NULL, p.w, gelu);
        }
    }
}

void matmul_bf16_backward_input(MatmulRoom room, uint16_t *dinp, const uint16_t *dout, const uint16_t *weight,
                                const uint16_t *pre, size_t N, size_t C, size_t OC)
{
    Grid g = grid_make(N, C, room.threads, tile_most(room));
#pragma omp parallel for schedule(dynamic) num_threads(room.threads)
    for (size_t i = 0; i < g.n_tiles; i++) {
        Part p = grid_part(g, i);
        float *sum = room.sums + (size_t)omp_get_thread_num() * g.tile.h * g.tile.w;
        gemm_bf16_serial(false, false, p.h, p.w, OC, dout + p.r * OC, OC, weight + p.c, C, false, sum, p.w);
        for (size_t r = 0; r < p.h; r++) {
            float *d = sum + r * p.w;
            if (pre) {
                const uint16_t *at = pre + (p.r + r) * C + p.c;
#pragma omp simd
                for (size_t c = 0; c < p.w; c++) d[c] *= act_gelu_slope(wide(at[c]));
            }
            finish_row(dinp + (p.r + r) * C + p.c, NULL, d, NULL, p.w, false);
        }
    }
}

// dbias[c] += sum over rows of dout[., c]: a strip of columns a task, rows in ascending order.
static void bias_gradient(int threads, float *dbias, const uint16_t *dout, size_t N, size_t OC)
{
    enum { MOST = 1024 }; // wide strips: memory is read along rows
    size_t share = (OC + (size_t)threads - 1) / (size_t)threads, strip = share < MOST ? share : MOST;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t c0 = 0; c0 < OC; c0 += strip) {
        size_t w = OC - c0 < strip ? OC - c0 : strip;
        float sum[MOST] = {0};
        for (size_t n = 0; n < N; n++) {
            const uint16_t *row = dout + n * OC + c0;
#pragma omp simd
            for (size_t c = 0; c < w; c++) sum[c] += wide(row[c]);
        }
        for (size_t c = 0; c < w; c++) dbias[c0 + c] += sum[c];
    }
}

void matmul_bf16_backward_weight(int threads, float *dweight, float *dbias, const uint16_t *dout, const uint16_t *inp,
                                 size_t N, size_t C, size_t OC)
{
    Grid g = grid_make(OC, C, threads, (GemmTile){GEMM_BF16_MC, WEIGHT_COLS});
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (size_t i = 0; i < g.n_tiles; i++) {
        Part p = grid_part(g, i);
        gemm_bf16_serial(true, false, p.h, p.w, N, dout + p.r, OC, inp + p.c, C, true, dweight + p.r * C + p.c, C);
    }
    if (dbias) bias_gradient(threads, dbias, dout, N, OC);
}
