// matmul: the five matrix products of training, on the CPU.
//
//   forward          out    (N, OC) = inp  (N, C)   weight (OC, C)^T + bias      2 N C OC flops
//   backward_input   dinp   (N, C)  = dout (N, OC)  weight (OC, C)               2 N C OC
//   backward_weight  dweight(OC, C)+= dout (N, OC)^T inp   (N, C)                2 N C OC
//
// The output is cut into tiles, each tile is one single-threaded product, and the bias or GELU is applied to a tile
// while it is still in cache. The invariant: the bits of the result do not depend on the number of threads. (OpenBLAS'
// own threading cuts by the thread count and changes bits with it; it also cannot run the epilogue.)
//
// Large products are OpenBLAS' sgemm: its bits may depend on the tile, so the grid follows from the shape alone. Tiles
// are large because it copies (packs) both operands of every call: a (m, n) tile packs (m + n) k numbers for 2 m n k
// flops. There are enough of them to keep threads busy when one is late.
//
// Small products are gemm.c's, which copies less and does not pass over C to set it to zero. Its bits do not depend on
// the tile, so the grid may follow from the number of threads. A deterministic device uses it for all products: with
// OpenBLAS a row's bits depend on how many rows the batch has. So does one that rounds operands to TF32 (dev->tf32),
// which gemm.c does where it packs them. The router's products are never rounded: a choice of experts hangs on their
// last bits, and they are small.
#include "ops/dev_cpu.h"

#include "base/check.h"
#include "ops/gemm.h"
#include "ops/activation.h"

#include <cblas.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_ROWS = 512, TILE_COLS = 1024, MIN_TILES = 8, MIN_SIDE = 96, SHORT_SUM = 640, NARROW = 640 };

typedef struct {
    size_t M, N, rows, cols, n_rows, n_cols; // tiles are (rows, cols); n_rows x n_cols of them
    Gemm *gemm;                              // computes a tile
} Grid;

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

// Tiles of OpenBLAS: their bits depend on the tile, so the grid follows from the shape alone.
static Grid grid_blas(size_t M, size_t N)
{
    Grid g = {.M = M, .N = N, .n_rows = (M + TILE_ROWS - 1) / TILE_ROWS, .n_cols = (N + TILE_COLS - 1) / TILE_COLS,
              .gemm = matmul_gemm};
    while (g.n_rows * g.n_cols < MIN_TILES) {
        size_t height = M / g.n_rows, width = N / g.n_cols;
        if (height >= width && height >= 2 * MIN_SIDE) g.n_rows++;
        else if (width >= 2 * MIN_SIDE) g.n_cols++;
        else break;
    }
    g.rows = round_up((M + g.n_rows - 1) / g.n_rows, 16);
    g.cols = round_up((N + g.n_cols - 1) / g.n_cols, 16);
    g.n_rows = (M + g.rows - 1) / g.rows;
    g.n_cols = (N + g.cols - 1) / g.cols;
    return g;
}

// Tiles of gemm.c: their bits depend on nothing, so the grid may follow from the number of threads too.
static Grid grid_ours(const Dev *dev, size_t M, size_t N)
{
    GemmTile tile = gemm_tile(M, N, dev->threads);
    return (Grid){.M = M, .N = N, .rows = tile.h, .cols = tile.w, .n_rows = (M + tile.h - 1) / tile.h,
                  .n_cols = (N + tile.w - 1) / tile.w, .gemm = dev->tf32 ? gemm_tf32 : gemm_serial};
}

// The product of an output (M, N) whose elements are sums of K terms. With short sums, or short rows, gemm.c is faster
// (doc/performance.md).
static Grid grid_make(const Dev *dev, size_t M, size_t N, size_t K)
{
    bool small = gemm_has_vectors() && (K <= SHORT_SUM || N <= NARROW);
    return dev->deterministic || dev->tf32 || small ? grid_ours(dev, M, N) : grid_blas(M, N);
}

// Tile i covers rows [r0, r0 + h) and columns [c0, c0 + w).
static void grid_tile(Grid g, size_t i, size_t *r0, size_t *h, size_t *c0, size_t *w)
{
    *r0 = i % g.n_rows * g.rows;
    *c0 = i / g.n_rows * g.cols;
    *h = g.M - *r0 < g.rows ? g.M - *r0 : g.rows;
    *w = g.N - *c0 < g.cols ? g.N - *c0 : g.cols;
}

void matmul_gemm(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda,
                 const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, (int)M, (int)N,
                (int)K, alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
}

// One row of a tile after its gemm: add the bias, keep the pre-activation, apply GELU.
static void epilogue_row(float *out, float *pre, const float *bias, size_t w, bool gelu)
{
    if (bias) {
#pragma omp simd
        for (size_t c = 0; c < w; c++) out[c] += bias[c];
    }
    if (!gelu) return;
    if (pre) {
#pragma omp simd
        for (size_t c = 0; c < w; c++) {
            pre[c] = out[c];
            out[c] = act_gelu(out[c]);
        }
    } else {
#pragma omp simd
        for (size_t c = 0; c < w; c++) out[c] = act_gelu(out[c]);
    }
}

FEW_ROWS_OF(fp32, float)

static void forward(Dev *dev, float *out, float *pre, const float *inp, const float *weight, const float *bias,
                    size_t N, size_t C, size_t OC, bool gelu)
{
    if (N <= FEW_ROWS && !dev->deterministic && !dev->tf32) {
        few_rows_of_fp32(dev->threads, out, inp, weight, bias, N, C, OC);
        if (gelu) epilogue_row(out, pre, NULL, N * OC, true);
        return;
    }
    Grid g = grid_make(dev, N, OC, C);
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < g.n_rows * g.n_cols; i++) {
        size_t r0, h, c0, w;
        grid_tile(g, i, &r0, &h, &c0, &w);
        g.gemm(false, true, h, w, C, 1, inp + r0 * C, C, weight + c0 * C, C, 0, out + r0 * OC + c0, OC);
        for (size_t r = r0; r < r0 + h; r++)
            epilogue_row(out + r * OC + c0, pre ? pre + r * OC + c0 : NULL, bias ? bias + c0 : NULL, w, gelu);
    }
}

static void matmul_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias,
                           size_t N, size_t C, size_t OC, int site)
{
    (void)site;
    forward(dev, (float *)out, NULL, (const float *)inp, (const float *)weight, (const float *)bias, N, C, OC, false);
}

static void matmul_gelu_forward(Dev *dev, X *out, X *pre, const X *inp, const X *weight, const X *bias,
                                size_t N, size_t C, size_t OC, int site)
{
    (void)site;
    forward(dev, (float *)out, (float *)pre, (const float *)inp, (const float *)weight, (const float *)bias,
            N, C, OC, true);
}

static void backward_input(Dev *dev, float *dinp, const float *dout, const float *weight, const float *pre,
                           size_t N, size_t C, size_t OC)
{
    Grid g = grid_make(dev, N, C, OC);
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < g.n_rows * g.n_cols; i++) {
        size_t r0, h, c0, w;
        grid_tile(g, i, &r0, &h, &c0, &w);
        g.gemm(false, false, h, w, OC, 1, dout + r0 * OC, OC, weight + c0, C, 0, dinp + r0 * C + c0, C);
        for (size_t r = r0; pre && r < r0 + h; r++) {
            float *d = dinp + r * C + c0;
            const float *p = pre + r * C + c0;
#pragma omp simd
            for (size_t c = 0; c < w; c++) d[c] *= act_gelu_slope(p[c]);
        }
    }
}

static void matmul_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight,
                                  size_t N, size_t C, size_t OC, int site)
{
    (void)site;
    backward_input(dev, (float *)dinp, (const float *)dout, (const float *)weight, NULL, N, C, OC);
}

static void matmul_gelu_backward_input(Dev *dev, X *dpre, const X *dout, const X *weight, const X *pre,
                                       size_t N, size_t C, size_t OC, int site)
{
    (void)site;
    backward_input(dev, (float *)dpre, (const float *)dout, (const float *)weight, (const float *)pre, N, C, OC);
}

// ---- sums in parts

enum { MAX_DEPTH = 8 }; // of the tree: 2^8 parts

// What a tile of a product in parts needs: the operands of its terms k begin at a + k * a_step and b + k * b_step.
typedef struct {
    DevParts parts;
    bool trans_b;
    Gemm *gemm;
    const float *a, *b, *bias; // of the tile's first row and column; bias may be NULL
    size_t lda, ldb, b_step, h, w;
} PartsTile;

// out (h, w; ld) = parts [p, p + n), by their tree. `spare` holds (h, w) a level.
static void sum_parts(PartsTile t, size_t p, size_t n, float *out, size_t ld, float *spare)
{
    if (n == 1) {
        const DevRange *range = t.parts.range + p * t.parts.each;
        for (size_t i = 0; i < t.parts.each; i++, range++)
            t.gemm(false, t.trans_b, t.h, t.w, range->end - range->begin, 1, t.a + range->begin, t.lda,
                   t.b + range->begin * t.b_step, t.ldb, i > 0, out, ld);
        for (size_t r = 0; p == 0 && t.bias && r < t.h; r++) epilogue_row(out + r * ld, NULL, t.bias, t.w, false);
        return;
    }
    size_t left = 1;
    while (2 * left < n) left *= 2;
    sum_parts(t, p, left, out, ld, spare);
    sum_parts(t, p + left, n - left, spare, t.w, spare + t.h * t.w);
    for (size_t r = 0; r < t.h; r++)
        for (size_t c = 0; c < t.w; c++) out[r * ld + c] += spare[r * t.w + c];
}

static size_t parts_depth(DevParts parts)
{
    size_t depth = 0;
    check(parts.n <= (size_t)1 << MAX_DEPTH);
    while ((size_t)1 << depth < parts.n) depth++;
    return depth;
}

// out (N, W) = a (N, K) b, with b (W, K) transposed or (K, W).
static void matmul_parts(Dev *dev, float *out, const float *a, const float *b, bool trans_b, const float *bias,
                         size_t N, size_t K, size_t W, DevParts parts)
{
    check(parts.n >= 1);
    Grid g = grid_ours(dev, N, W);
    size_t room = parts_depth(parts) * g.rows * g.cols;
    float *spare = room ? dev_cpu_scratch(dev, (size_t)dev->threads * room) : NULL;
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < g.n_rows * g.n_cols; i++) {
        size_t r0, h, c0, w;
        grid_tile(g, i, &r0, &h, &c0, &w);
        PartsTile t = {.parts = parts, .trans_b = trans_b, .gemm = g.gemm, .a = a + r0 * K,
                       .b = trans_b ? b + c0 * K : b + c0, .bias = bias ? bias + c0 : NULL, .lda = K, .ldb = trans_b ? K : W,
                       .b_step = trans_b ? 1 : W, .h = h, .w = w};
        sum_parts(t, 0, parts.n, out + r0 * W + c0, W, room ? spare + (size_t)omp_get_thread_num() * room : NULL);
    }
}

static void matmul_parts_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C,
                                 size_t OC, DevParts parts, int site)
{
    (void)site;
    matmul_parts(dev, (float *)out, (const float *)inp, (const float *)weight, true, (const float *)bias, N, C, OC,
                 parts);
}

static void matmul_parts_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C,
                                        size_t OC, DevParts parts, int site)
{
    (void)site;
    matmul_parts(dev, (float *)dinp, (const float *)dout, (const float *)weight, false, NULL, N, OC, C, parts);
}

// dbias[c] += sum over rows of dout[., c]: a strip of columns a task, rows in ascending order. Strips are as wide as
// the threads allow, so that a row is read in long runs; the bits do not depend on their width.
static void bias_backward(Dev *dev, float *dbias, const float *dout, size_t N, size_t OC)
{
    enum { MOST = 1024 };
    size_t threads = (size_t)dev->threads, even = round_up((OC + threads - 1) / threads, 16);
    size_t strip = even < MOST ? even : MOST;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t c0 = 0; c0 < OC; c0 += strip) {
        size_t w = OC - c0 < strip ? OC - c0 : strip;
        float sum[MOST] = {0};
        for (size_t n = 0; n < N; n++) {
            const float *row = dout + n * OC + c0;
#pragma omp simd
            for (size_t c = 0; c < w; c++) sum[c] += row[c];
        }
        for (size_t c = 0; c < w; c++) dbias[c0 + c] += sum[c];
    }
}

static void matmul_backward_weight(Dev *dev, float *dweight, float *dbias, const X *dout_, const X *inp_,
                                   size_t N, size_t C, size_t OC, int site)
{
    (void)site;
    const float *dout = (const float *)dout_, *inp = (const float *)inp_;
    Grid g = grid_make(dev, OC, C, N);
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < g.n_rows * g.n_cols; i++) {
        size_t r0, h, c0, w;
        grid_tile(g, i, &r0, &h, &c0, &w);
        g.gemm(true, false, h, w, N, 1, dout + r0, OC, inp + c0, C, 1, dweight + r0 * C + c0, C);
    }
    if (dbias) bias_backward(dev, dbias, dout, N, OC);
}

// ---- products of experts: the rows of each with its own weight

// The tiles of all groups' outputs (a group: the rows of a source for an expert) in one list, so that threads share
// them however uneven the groups are.
typedef struct {
    Grid *grid;    // (groups)
    size_t *first; // (groups + 1) number of the first tile of each
    size_t most;   // elements of the largest tile
} ExpertGrids;

static ExpertGrids expert_grids(const Dev *dev, DevExperts x, size_t cols, size_t K)
{
    size_t groups = x.sources * x.E;
    ExpertGrids all = {.grid = malloc(groups * sizeof *all.grid), .first = malloc((groups + 1) * sizeof *all.first)};
    if (!all.grid || !all.first) die("cpu: no memory for %zu experts", groups);
    all.first[0] = all.most = 0;
    for (size_t g = 0; g < groups; g++) {
        size_t n = (size_t)(x.offset[g + 1] - x.offset[g]);
        all.grid[g] = n ? grid_make(dev, n, cols, K) : (Grid){0};
        all.first[g + 1] = all.first[g] + all.grid[g].n_rows * all.grid[g].n_cols;
        if (all.grid[g].rows * all.grid[g].cols > all.most) all.most = all.grid[g].rows * all.grid[g].cols;
    }
    return all;
}

static size_t group_of(const ExpertGrids *all, size_t tile)
{
    size_t g = 0;
    while (all->first[g + 1] <= tile) g++;
    return g;
}

// out rows (., W) = a rows (., K) b_e, with b_e (W, K) transposed or (K, W).
static void experts_rows(Dev *dev, float *out, const float *a, const float *b, bool trans_b, size_t K, size_t W,
                         DevExperts x)
{
    ExpertGrids all = expert_grids(dev, x, W, K);
    size_t groups = x.sources * x.E, held = (size_t)x.offset[groups], room = parts_depth(x.parts) * all.most;
    float *spare = room ? dev_cpu_scratch(dev, (size_t)dev->threads * room) : NULL;
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < all.first[groups]; i++) {
        size_t g = group_of(&all, i), first = (size_t)x.offset[g], r0, h, c0, w;
        grid_tile(all.grid[g], i - all.first[g], &r0, &h, &c0, &w);
        const float *rows = a + (first + r0) * K, *weight = b + g % x.E * x.stride + (trans_b ? c0 * K : c0);
        PartsTile t = {.parts = x.parts, .trans_b = trans_b, .gemm = dev->tf32 ? gemm_tf32 : gemm_serial, .a = rows,
                       .b = weight, .lda = K, .ldb = trans_b ? K : W, .b_step = trans_b ? 1 : W, .h = h, .w = w};
        float *to = out + (first + r0) * W + c0;
        if (x.parts.n) sum_parts(t, 0, x.parts.n, to, W, room ? spare + (size_t)omp_get_thread_num() * room : NULL);
        else all.grid[g].gemm(false, trans_b, h, w, K, 1, rows, K, weight, t.ldb, 0, to, W);
    }
    memset(out + held * W, 0, (x.R - held) * W * sizeof *out);
    free(all.grid);
    free(all.first);
}

static void experts_forward(Dev *dev, X *out, const X *inp, const X *weight, size_t C, size_t OC, DevExperts x)
{
    experts_rows(dev, (float *)out, (const float *)inp, (const float *)weight, true, C, OC, x);
}

static void experts_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t C, size_t OC,
                                   DevExperts x)
{
    experts_rows(dev, (float *)dinp, (const float *)dout, (const float *)weight, false, OC, C, x);
}

static void experts_backward_weight(Dev *dev, float *dweight, const X *dout, const X *inp, size_t C, size_t OC,
                                    DevExperts x)
{
    Grid grid = grid_make(dev, OC, C, x.R / x.E);
    size_t tiles = grid.n_rows * grid.n_cols;
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < x.E * tiles; i++) {
        size_t e = i / tiles, r0, h, c0, w;
        grid_tile(grid, i % tiles, &r0, &h, &c0, &w);
        for (size_t g = e; g < x.sources * x.E; g += x.E) {
            size_t first = (size_t)x.offset[g], n = (size_t)x.offset[g + 1] - first;
            if (n)
                grid.gemm(true, false, h, w, n, 1, (const float *)dout + first * OC + r0, OC,
                               (const float *)inp + first * C + c0, C, 1, dweight + e * x.stride + r0 * C + c0, C);
        }
    }
}

// ---- the router's: fp32, whatever X is

static void router_forward(Dev *dev, float *logits, const X *inp, const X *weight, size_t N, size_t C, size_t E)
{
    Dev exact = *dev;
    exact.tf32 = false;
    matmul_forward(&exact, (X *)logits, inp, weight, NULL, N, C, E, -1);
}

static void router_backward(Dev *dev, X *dinp, float *dweight, const float *dlogits, const X *inp, const X *weight,
                            size_t N, size_t C, size_t E)
{
    Dev exact = *dev;
    exact.tf32 = false;
    Grid g = grid_make(&exact, N, C, E);
#pragma omp parallel for schedule(dynamic) num_threads(dev->threads)
    for (size_t i = 0; i < g.n_rows * g.n_cols; i++) {
        size_t r0, h, c0, w;
        grid_tile(g, i, &r0, &h, &c0, &w);
        g.gemm(false, false, h, w, E, 1, dlogits + r0 * E, E, (const float *)weight + c0, C, 1,
                       (float *)dinp + r0 * C + c0, C);
    }
    matmul_backward_weight(&exact, dweight, NULL, (const X *)dlogits, inp, N, C, E, -1);
}

void matmul_cpu_fill(Dev *dev)
{
    dev->experts_forward = experts_forward;
    dev->experts_backward_input = experts_backward_input;
    dev->experts_backward_weight = experts_backward_weight;
    dev->router_forward = router_forward;
    dev->router_backward = router_backward;
    dev->matmul_forward = matmul_forward;
    dev->matmul_gelu_forward = matmul_gelu_forward;
    dev->matmul_backward_input = matmul_backward_input;
    dev->matmul_gelu_backward_input = matmul_gelu_backward_input;
    dev->matmul_backward_weight = matmul_backward_weight;
    dev->matmul_parts_forward = matmul_parts_forward;
    dev->matmul_parts_backward_input = matmul_parts_backward_input;
}
