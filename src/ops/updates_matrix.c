// updates_matrix: optimizers that update a matrix as a whole, Adafactor, Muon and NorMuon, on the CPU. Each formula
// stands above its code.
//
// The invariant: a whole tensor at a time; no bit of a sum or a product depends on threads.
//
// Rejected: Adafactor's optional first moment (4 bytes per parameter, and saving memory is its purpose); for Muon, an
// exact decomposition (ten times the cost, and exact small singular values gain nothing).
#include "ops/dev_cpu.h"

#include "formats/formats.h"
#include "ops/gemm.h"
#include "formats/gemm_bf16.h"

#include <math.h>
#include <string.h>

// ---- Adafactor
//
// Adafactor (Shazeer & Stern, arXiv 1804.04235; the constants and the order are those of Transformers' Adafactor) is
// Adam's division by the root of the mean square, with that mean kept for rows and columns only:
//
//   s_ij = g_ij^2 + 1e-30;    b = 1 - t^-0.8
//   row_i = b row_i + (1 - b) mean_j s_ij;    col_j = b col_j + (1 - b) mean_i s_ij
//   u_ij = g_ij / sqrt(row_i col_j / mean(row));     u /= max(1, rms(u))
//   w -= a (u + decay w),    a = lr max(1e-3, rms(w))
//
// A (R, C) matrix keeps R + C numbers: row_i col_j / mean(row) is the best rank-one guess, in the sense of the
// I-divergence, of the R C means that Adam would keep. A vector keeps one number per element. There is no first
// moment. For stability, an update whose rms is above 1 is scaled down to 1, and its size is relative to the rms of
// the tensor's weights. b grows with t and is 0 at t = 1, so no bias correction is needed. grad holds u between the
// passes, so no scratch is needed.

static const double EPS_SQUARE = 1e-30, EPS_SIZE = 1e-3;

// grad becomes the scaled gradient; row takes in the means of its squares along C.
static void update_rows(Dev *dev, float *row, float *grad, size_t R, size_t C, double keep, float grad_scale)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < R; i++) {
        double sum = 0;
        float *g = grad + i * C;
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < C; j++) {
            g[j] *= grad_scale;
            sum += (double)g[j] * g[j];
        }
        row[i] = (float)(keep * row[i] + (1 - keep) * (sum / (double)C + EPS_SQUARE));
    }
}

static void update_cols(Dev *dev, float *col, const float *grad, size_t R, size_t C, double keep)
{
    enum { WIDTH = 64 };
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t begin = 0; begin < C; begin += WIDTH) {
        double sum[WIDTH] = {0};
        size_t n = C - begin < WIDTH ? C - begin : WIDTH;
        for (size_t i = 0; i < R; i++) {
            const float *g = grad + i * C + begin;
            for (size_t j = 0; j < n; j++) sum[j] += (double)g[j] * g[j];
        }
        for (size_t j = 0; j < n; j++)
            col[begin + j] = (float)(keep * col[begin + j] + (1 - keep) * (sum[j] / (double)R + EPS_SQUARE));
    }
}

static void adafactor(Dev *dev, float *weight, float *row, float *col, float *grad, size_t R, size_t C, Update u)
{
    double keep = 1 - pow(u.step, -0.8), n = (double)(R * C), mean = 0;
    if (col) {
        update_rows(dev, row, grad, R, C, keep, u.grad_scale);
        update_cols(dev, col, grad, R, C, keep);
        for (size_t i = 0; i < R; i++) mean += row[i];
        mean /= (double)R;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
        for (size_t i = 0; i < R; i++) {
            float of_row = (float)(row[i] / mean), *g = grad + i * C;
#pragma omp simd
            for (size_t j = 0; j < C; j++) g[j] /= sqrtf(of_row) * sqrtf(col[j]);
        }
    } else {
        float b = (float)keep, rest = (float)(1 - keep);
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
        for (size_t i = 0; i < R * C; i++) {
            float g = grad[i] * u.grad_scale;
            row[i] = b * row[i] + rest * (g * g + (float)EPS_SQUARE);
            grad[i] = g / sqrtf(row[i]);
        }
    }
    double rms_update = sqrt(dev->sum_squares(dev, grad, R * C) / n);
    double rms_weight = sqrt(dev->sum_squares(dev, weight, R * C) / n);
    double step = u.lr * (rms_weight > EPS_SIZE ? rms_weight : EPS_SIZE);
    float shrink = (float)(1 - step * u.weight_decay), scale = (float)(step / (rms_update > 1 ? rms_update : 1));
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < R * C; i++) {
        weight[i] = fmaf(weight[i], shrink, -(scale * grad[i]));
        grad[i] = 0;
    }
}

// ---- Muon
//
// Muon (Jordan 2024, kellerjordan.github.io/posts/muon; scale and decay of Liu et al., arXiv 2502.16982) is momentum,
// made orthogonal:
//
//   m = b m + (1 - b) g;    O = orthogonal((1 - b) g + b m);    w -= lr (0.2 sqrt(max(R, C)) O + decay w)
//
// orthogonal(U S V^T) is about U V^T: all singular values of the update become about equal, so rare directions of the
// gradient are learnt as fast as frequent ones. It is computed without a decomposition, by five steps of an odd
// polynomial that moves every singular value in (0, 1] to between 0.7 and 1.2:
//
//   X = G / (|G| + 1e-7);    five times:  A = X X^T,  X = 3.4445 X - 4.7750 A X + 2.0315 A A X
//
// (1 - b) g + b m is Nesterov's look-ahead. Entries of O have an rms of about 1 / sqrt(max(R, C)); with the factor it
// is 0.2, about that of AdamW's update, so that AdamW's lr and decay may be kept. The method is for matrices that map
// one hidden space to another; embeddings, head and vectors are left to AdamW (optim_kinds.c). q, k and v are separate
// matrices here, although one matmul uses all three. A is square with side min(R, C): for a tall matrix it is X^T X,
// and multiplies from the right.
//
// A and B = -4.7750 A + 2.0315 A A are symmetric, so half of their products is enough: 3 k n + k^3 + O(k^2) flops a
// step instead of 4 k n + 2 k^3, for n elements and k = min(R, C). X = 3.4445 X + B X is added in place.
//
// Where training stores bf16, the products read operands rounded to bf16 (X, A and B), and sums stay fp32 (Jordan's
// choice on GPUs is bf16 throughout). The term 3.4445 X is not rounded: it carries the small singular values, for
// which B X, of third order, is nothing yet. The last X is fp32. On a processor with the bf16 instruction the
// operands are bf16 arrays (gemm_bf16.h); on others fp32 arrays of the same numbers, with the same bits as long as no
// sum is a denormal number and gemm.c has vectors.

enum { STEPS = 5, TILE = 64 };
static const float COEF_1 = 3.4445f, COEF_3 = -4.7750f, COEF_5 = 2.0315f;

static Gemm *product(void)
{
    return gemm_has_vectors() ? gemm_serial : matmul_gemm;
}

// An iteration's operands: X (R, C), A and B (k, k), in fp32 or bf16.
typedef struct {
    Dev *dev;
    MuonProducts products;
    size_t R, C, k;
    void *X, *A, *B;
} Iteration;

// n numbers become those of an operand from `at` on.
static void store(MuonProducts products, void *operand, size_t at, const float *x, size_t n)
{
    float *wide = (float *)operand + at;
    uint16_t *narrow = (uint16_t *)operand + at;
    if (products == MUON_FP32) memcpy(wide, x, n * sizeof *x);
    else if (products == MUON_ROUNDED) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) wide[i] = formats_decode(FORMAT_BF16, formats_encode(FORMAT_BF16, x[i], false));
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) narrow[i] = (uint16_t)formats_encode(FORMAT_BF16, x[i], false);
    }
}

// C (M, N) = op(P) op(Q) [+ C], where P and Q are operands, used from p and q on.
static void multiply(MuonProducts products, bool trans_p, bool trans_q, size_t M, size_t N, size_t K, const void *P,
                     size_t p, size_t ldp, const void *Q, size_t q, size_t ldq, bool add, float *C, size_t ldc)
{
    if (products == MUON_BF16)
        gemm_bf16_serial(trans_p, trans_q, M, N, K, (const uint16_t *)P + p, ldp, (const uint16_t *)Q + q, ldq, add, C,
                         ldc);
    else
        product()(trans_p, trans_q, M, N, K, 1, (const float *)P + p, ldp, (const float *)Q + q, ldq, add, C, ldc);
}

// Tile i of those on or below the diagonal: rows and columns in units of TILE.
static void triangle_tile(size_t i, size_t *row, size_t *col)
{
    for (*row = 0; i > *row; ++*row) i -= *row + 1;
    *col = i;
}

// sum (h, w) becomes c3 A + c5 sum, for the part of A from `at` on.
static void add_cubic(const Iteration *it, float *sum, size_t at, size_t h, size_t w)
{
    for (size_t i = 0; i < h; i++, at += it->k)
#pragma omp simd
        for (size_t j = 0; j < w; j++) {
            float a = it->products == MUON_BF16 ? formats_decode(FORMAT_BF16, ((const uint16_t *)it->A)[at + j])
                                                : ((const float *)it->A)[at + j];
            sum[i * w + j] = COEF_5 * sum[i * w + j] + COEF_3 * a;
        }
}

// A = X X^T, or X^T X for a tall X; or (`second`) B = c3 A + c5 A A. Both are symmetric: only tiles on or below the
// diagonal are computed; the others are their mirror images.
static void symmetric(const Iteration *it, bool second)
{
    size_t R = it->R, C = it->C, k = it->k, side = (k + TILE - 1) / TILE;
    void *to = second ? it->B : it->A;
#pragma omp parallel for schedule(dynamic) num_threads(it->dev->threads)
    for (size_t tile = 0; tile < side * (side + 1) / 2; tile++) {
        float sum[TILE * TILE], mirror[TILE * TILE];
        size_t row, col;
        triangle_tile(tile, &row, &col);
        size_t r = row * TILE, c = col * TILE, h = k - r < TILE ? k - r : TILE, w = k - c < TILE ? k - c : TILE;
        if (second) {
            multiply(it->products, false, false, h, w, k, it->A, r * k, k, it->A, c, k, false, sum, w);
            add_cubic(it, sum, r * k + c, h, w);
        } else if (R > C) multiply(it->products, true, false, h, w, R, it->X, r, C, it->X, c, C, false, sum, w);
        else multiply(it->products, false, true, h, w, C, it->X, r * C, C, it->X, c * C, C, false, sum, w);
        for (size_t i = 0; i < h; i++) store(it->products, to, (r + i) * k + c, sum + i * w, w);
        if (r == c) continue;
        for (size_t i = 0; i < h; i++)
            for (size_t j = 0; j < w; j++) mirror[j * h + i] = sum[i * w + j];
        for (size_t j = 0; j < w; j++) store(it->products, to, (c + j) * k + r, mirror + j * h, h);
    }
}

// x (R, C) = c1 x + B x, or c1 x + x B, where x is multiplied by `factor` first.
static void iterate(const Iteration *it, float *x, float factor)
{
    enum { PIECE = 2048 };
    size_t R = it->R, C = it->C, k = it->k;
#pragma omp parallel for schedule(static) num_threads(it->dev->threads)
    for (size_t at = 0; at < R * C; at += PIECE) {
        size_t n = R * C - at < PIECE ? R * C - at : PIECE;
#pragma omp simd
        for (size_t i = at; i < at + n; i++) x[i] *= factor;
        store(it->products, it->X, at, x + at, n);
#pragma omp simd
        for (size_t i = at; i < at + n; i++) x[i] *= COEF_1;
    }
    symmetric(it, false);
    symmetric(it, true);
    bool tiled = it->products == MUON_BF16 || gemm_has_vectors();
    GemmTile t = tiled ? gemm_tile(R, C, it->dev->threads) : (GemmTile){TILE, C};
    size_t n_rows = (R + t.h - 1) / t.h, n_cols = (C + t.w - 1) / t.w;
#pragma omp parallel for schedule(dynamic) num_threads(it->dev->threads)
    for (size_t i = 0; i < n_rows * n_cols; i++) {
        size_t r = i % n_rows * t.h, c = i / n_rows * t.w;
        size_t h = R - r < t.h ? R - r : t.h, w = C - c < t.w ? C - c : t.w;
        float *to = x + r * C + c;
        if (R > C) multiply(it->products, false, false, h, w, k, it->X, r * C, C, it->B, c, k, true, to, C);
        else multiply(it->products, false, false, h, w, k, it->B, r * k, k, it->X, c, C, true, to, C);
    }
}

// ---- NorMuon
//
// NorMuon (Li et al., arXiv 2510.05491) divides each row of O, which is what one neuron gets, by the root of a
// running mean of its square, so that no neuron moves much more than others:
//
//   row_i = b2 row_i + (1 - b2) mean_j O_ij^2;    O'_ij = O_ij / (sqrt(row_i) + eps);    O = O' |O| / |O'|
//
// The rows of a wide O are already of about equal length, those of a tall one are not. The last step gives the update
// the norm that Muon's has; the paper sets it to 0.2 sqrt(R C) instead, that of an O whose singular values are all 1.
// row begins at 0 without bias correction: 1 - b2^t would be the same factor for all rows, which the last step
// cancels. Decay may be cautious, as in updates.c.
//
// x (R, C) is divided, row by row, by the root of the row's mean square over all steps. Returns the factor that would
// give x its norm back.
static float normalize_rows(Dev *dev, float *x, float *row, size_t R, size_t C, Update u)
{
    float b = (float)u.beta2, rest = (float)(1 - u.beta2);
    double before = dev->sum_squares(dev, x, R * C);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < R; i++) {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < C; j++) sum += (double)x[i * C + j] * x[i * C + j];
        row[i] = b * row[i] + rest * (float)(sum / (double)C);
        float factor = 1 / (sqrtf(row[i]) + u.eps);
#pragma omp simd
        for (size_t j = 0; j < C; j++) x[i * C + j] *= factor;
    }
    double after = dev->sum_squares(dev, x, R * C);
    return after > 0 ? (float)sqrt(before / after) : 0;
}

void updates_matrix_muon(Dev *dev, MuonProducts products, float *weight, float *m, float *row, float *grad,
                         float *scratch, size_t R, size_t C, Update u)
{
    size_t n = R * C, k = R < C ? R : C, each = products == MUON_BF16 ? sizeof(uint16_t) : sizeof(float);
    Iteration it = {.dev = dev, .products = products, .R = R, .C = C, .k = k, .X = scratch};
    it.A = (char *)it.X + n * each, it.B = (char *)it.A + k * k * each;
    float b = (float)u.beta1, rest = (float)(1 - u.beta1);
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * u.grad_scale;
        m[i] = b * m[i] + rest * g;
        grad[i] = rest * g + b * m[i];
    }
    float to_one = (float)(1 / (sqrt(dev->sum_squares(dev, grad, n)) + 1e-7));
    for (int i = 0; i < STEPS; i++) iterate(&it, grad, i == 0 ? to_one : 1);
    float shrink = 1 - u.lr * u.weight_decay, scale = u.lr * 0.2f * sqrtf((float)(R > C ? R : C));
    float apart = u.cautious ? 1 : shrink;
    if (row) scale *= normalize_rows(dev, grad, row, R, C, u);
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        float keep = grad[i] * weight[i] < 0 ? apart : shrink;
        weight[i] = fmaf(weight[i], keep, -(scale * grad[i]));
        grad[i] = 0;
    }
}

static void muon(Dev *dev, float *weight, float *m, float *row, float *grad, float *scratch, size_t R, size_t C,
                 Update u)
{
    updates_matrix_muon(dev, MUON_FP32, weight, m, row, grad, scratch, R, C, u);
}

void updates_matrix_cpu_fill(Dev *dev)
{
    dev->adafactor = adafactor;
    dev->muon = muon;
}
