// adamw8bit: AdamW with its two moments in one byte each, on the CPU.
//
//   m, v = code[m8] m_scale[block], code[v8] v_scale[block]       a block is 2048 elements of one tensor
//   the update of adamw.c, in fp32, on those;
//   m_scale[block] = max |m|, m8 = the code nearest to m / m_scale; v likewise
//
// (Dettmers et al., arXiv 2110.02861.) 2 bytes and 8/2048 a parameter instead of 8. The 256 codes are a
// dynamic tree: seven decades from 1e-7 to 1, each with twice as many codes as the one below, so that the
// relative error is about 1% near the block's maximum and grows for what is far below it. Both books hold 0 and
// 1; that of m holds both signs (not -1), that of v has twice as many codes a decade instead.
// One outlier spoils the scale of its own block only, and blocks need no talk with each other.
//
// The invariant: what is stored is the nearest code, and the weight moves by the unrounded m and v of its
// step. One exception: a v above 0 is never stored as 0. Rounded to 0 it would leave m / eps at the next small
// gradient, a step thousands of times too large; rounded up to the smallest code it only shortens the step.
//
// Rejected: linear codes (most of v lies below 1/128 of its block's maximum, so it would be 0), quantiles of
// the data as codes (a sort each step), stochastic rounding.
#include "ops/dev_cpu.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void adamw8bit_codes(bool with_sign, float code[256])
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
    adamw8bit_codes(with_sign, book->code);
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
    bool keep = book->code[0] == 0; // no sign: above 0 stays above 0
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
    float c1 = (float)(1 / (1 - pow(u.beta1, u.step))), c2 = (float)(1 / (1 - pow(u.beta2, u.step)));
    float b1 = u.beta1, b2 = u.beta2, shrink = 1 - u.lr * u.weight_decay;
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
            m[j] = b1 * (m_book.code[m8[i]] * m_scale[b]) + (1 - b1) * g;
            v[j] = b2 * (v_book.code[v8[i]] * v_scale[b]) + (1 - b2) * g * g;
            weight[i] = weight[i] * shrink - u.lr * (m[j] * c1) / (sqrtf(v[j] * c2) + u.eps);
            grad[i] = 0;
        }
        m_scale[b] = encode(m8 + at, m, n_block, &m_book);
        v_scale[b] = encode(v8 + at, v, n_block, &v_book);
    }
}

void adamw8bit_cpu_fill(Dev *dev)
{
    dev->adamw8bit = adamw8bit;
}
