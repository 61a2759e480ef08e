// updates: optimizers that update element by element or block by block, the squared norm of a gradient, and the
// clipping of rows, on the CPU. The formulas of AdamW, SGD and Lion are in update_rules.h, the updates of whole
// matrices in updates_matrix.c.
//
// The invariant: updates are element-wise, or by fixed blocks, so ZeRO may split a range at their borders. An update
// is one pass over memory, which also zeroes g for the next step. Squares are added in spans of fixed length, in
// double: a row by one thread, a whole array in fixed ranges in a fixed order. The shape decides which, so the bits
// of the norm do not depend on threads.
#include "ops/dev_cpu.h"

#include "base/check.h"
#include "formats/formats.h"
#include "ops/update_rules.h"

#include <math.h>
#include <stdlib.h>

// ---- element by element (update_rules.h)

enum { PIECE = 8192 }; // elements whose new weights are in cache when they are rounded

// One loop a rule, which a compiler vectorises: n elements. (As an omp simd loop it would keep an array of x.)
#define LOOP(KIND, name, moments) \
    static void name##_piece(float *restrict weight, float *restrict m, float *restrict v, float *restrict grad, \
                             size_t n, Update u, UpdateFactors f) \
    { \
        for (size_t i = 0; i < n; i++) { \
            Element x = {weight[i], moments > 0 ? m[i] : 0, moments > 1 ? v[i] : 0}; \
            x = rule_##name(x, grad[i] * u.grad_scale, u, f); \
            if (moments > 0) m[i] = x.m; \
            if (moments > 1) v[i] = x.v; \
            weight[i] = x.w; \
            grad[i] = 0; \
        } \
    }
UPDATE_RULES(LOOP)

static void update(Dev *dev, OptimName rule, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    const UpdateFactors f = update_factors(u);
    check(update_has_rule(rule));
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t at = 0; at < n; at += PIECE) {
        size_t w = n - at < PIECE ? n - at : PIECE;
#define CALL(KIND, name, moments) \
    if (rule == KIND) \
        name##_piece(weight + at, moments > 0 ? m + at : NULL, moments > 1 ? v + at : NULL, grad + at, w, u, f);
        UPDATE_RULES(CALL)
        if (u.copy)
            formats_from_float((uint16_t *)u.copy + at, dev->x_type == X_BF16 ? FORMAT_BF16 : FORMAT_FP16, weight + at,
                               w, false);
    }
}

// ---- AdamW in 8 bits (Dettmers et al., arXiv 2110.02861): the same on m, v = code[m8] m_scale[block], code[v8]
// v_scale[block], where a block is 2048 elements of one tensor; then m_scale = max |m|, m8 = the code nearest to m /
// m_scale; v likewise. 2 bytes and 8/2048 a parameter instead of 8.
//
// The 256 codes are a dynamic tree: seven decades from 1e-7 to 1, each with twice as many codes as the one below, so
// that the relative error is about 1% near the block's maximum and grows for elements far below it. Both code books
// hold 0 and 1. That of m holds both signs (but not -1); that of v has twice as many codes a decade instead. An
// outlier affects only the scale of its own block. The nearest code is stored; the weight is updated with the
// unrounded m and v of the step. One exception: a v above 0 is never stored as 0. Rounded to 0 it would give an
// update of m / eps at the next small gradient, thousands of times too large; rounded up to the smallest code it only
// shortens the update. Rejected: linear codes (most of v lies below 1/128 of its block's maximum, so it would be 0),
// quantiles of the data (a sort each step).

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void updates_8bit_codes(bool with_sign, float code[256])
{
    enum { DECADES = 7 };
    int n = 0;
    for (int i = 0; i < DECADES; i++) {
        // 0.1 .. 1 in equal parts; the codes are their middles, times 10^(i - 6)
        int parts = with_sign ? 1 << i : 2 << i;
        double decade = pow(10, i - (DECADES - 1));
        for (int k = 0; k < parts; k++) {
            float middle = (float)(decade * (0.1 + 0.9 * (k + 0.5) / parts));
            code[n++] = middle;
            if (with_sign) code[n++] = -middle;
        }
    }
    code[n++] = 0;
    code[n++] = 1;
    qsort(code, 256, sizeof *code, ascending);
}

typedef struct {
    float code[256], middle[255]; // middle[i] lies between codes i and i + 1
} Book;

static void book_make(Book *book, bool with_sign)
{
    updates_8bit_codes(with_sign, book->code);
    for (int i = 0; i < 255; i++) book->middle[i] = (book->code[i] + book->code[i + 1]) / 2;
}

// Index of the nearest code: how many middles lie below x. Eight halvings, no branch.
static inline unsigned nearest(const float *middle, float x)
{
    unsigned i = 0;
    for (unsigned step = 128; step; step /= 2) i += x > middle[i + step - 1] ? step : 0;
    return i;
}

static float encode(uint8_t *out, const float *x, size_t n, const Book *book)
{
    float scale = 0;
    for (size_t i = 0; i < n; i++) scale = fabsf(x[i]) > scale ? fabsf(x[i]) : scale;
    bool keep = book->code[0] == 0; // the codes without sign, of v: a value above 0 stays above 0
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        unsigned c = nearest(book->middle, scale > 0 ? x[i] / scale : 0);
        out[i] = (uint8_t)(keep && c == 0 && x[i] > 0 ? 1 : c);
    }
    return scale;
}

static void adamw8bit(Dev *dev, float *weight, uint8_t *m8, float *m_scale, uint8_t *v8, float *v_scale, float *grad,
                      size_t n, Update u)
{
    const UpdateFactors f = update_factors(u);
    float shrink = 1 - u.lr * u.weight_decay;
    Book m_book, v_book;
    book_make(&m_book, true);
    book_make(&v_book, false);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t b = 0; b < (n + UPDATE_BLOCK - 1) / UPDATE_BLOCK; b++) {
        float m[UPDATE_BLOCK], v[UPDATE_BLOCK];
        size_t at = b * UPDATE_BLOCK, n_block = n - at < UPDATE_BLOCK ? n - at : UPDATE_BLOCK;
#pragma omp simd
        for (size_t j = 0; j < n_block; j++) {
            size_t i = at + j;
            float g = grad[i] * u.grad_scale;
            m[j] = f.beta1 * (m_book.code[m8[i]] * m_scale[b]) + f.rest1 * g;
            v[j] = f.beta2 * (v_book.code[v8[i]] * v_scale[b]) + f.rest2 * g * g;
            weight[i] = weight[i] * shrink - u.lr * (m[j] * f.correct1) / (sqrtf(v[j] * f.correct2) + u.eps);
            grad[i] = 0;
        }
        m_scale[b] = encode(m8 + at, m, n_block, &m_book);
        v_scale[b] = encode(v8 + at, v, n_block, &v_book);
    }
}

// ---- sums of squares

// Squares of x in spans of a fixed length, which are added in double.
static double squares_of(const float *x, size_t n)
{
    enum { SPAN = 1024 };
    double sum = 0;
    for (size_t begin = 0; begin < n; begin += SPAN) {
        size_t stop = begin + SPAN < n ? begin + SPAN : n;
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (size_t j = begin; j < stop; j++) part += x[j] * x[j];
        if (part > 1e-30f) sum += part;
        else for (size_t j = begin; j < stop; j++) sum += (double)x[j] * x[j]; // too small for a float
    }
    return sum;
}

static double sum_squares(Dev *dev, const float *x, size_t n)
{
    enum { RANGES = 256 };
    double partial[RANGES], total = 0;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < RANGES; i++) {
        size_t begin = i * n / RANGES, end = (i + 1) * n / RANGES;
        partial[i] = squares_of(x + begin, end - begin);
    }
    for (size_t i = 0; i < RANGES; i++) total += partial[i];
    return total;
}

static void sum_squares_exact(Dev *dev, ExactSum *sum, const float *x, size_t n)
{
    (void)dev;
    formats_sum_squares(sum, x, n);
}

// ---- clipping of units (Brock et al., arXiv 2102.06171, equation 3)
//
//   grad_i *= min(1, limit max(|weight_i|, least) / |grad_i|)
//
// grads.c decides what a unit is and which tensors are clipped; here a unit is a row, and a whole tensor is a matrix
// of one row. A row within the limit is not written.

// The factor of a row's gradient; 1 when it is within the limit, or zero.
static float factor(double grad_squares, double weight_squares, float limit, float least)
{
    double norm = sqrt(grad_squares), most = limit * fmax(sqrt(weight_squares), least);
    return norm > most ? (float)(most / norm) : 1;
}

static void clip_units(Dev *dev, float *grad, const float *weight, size_t R, size_t C, float limit, float least)
{
    if (R == 1) {
        float f = factor(dev->sum_squares(dev, grad, C), dev->sum_squares(dev, weight, C), limit, least);
        if (f == 1) return;
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
        for (size_t j = 0; j < C; j++) grad[j] *= f;
        return;
    }
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < R; i++) {
        float *g = grad + i * C, f = factor(squares_of(g, C), squares_of(weight + i * C, C), limit, least);
        if (f == 1) continue;
#pragma omp simd
        for (size_t j = 0; j < C; j++) g[j] *= f;
    }
}

void updates_cpu_fill(Dev *dev)
{
    dev->sum_squares = sum_squares;
    dev->sum_squares_exact = sum_squares_exact;
    dev->update = update;
    dev->adamw8bit = adamw8bit;
    dev->clip_units = clip_units;
}
