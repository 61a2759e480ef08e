// updates: optimizers that update element by element or block by block, and the clipping of rows, on the GPU. The
// twin of updates.c; the formulas are in update_rules.h, the updates of whole matrices are in updates_matrix.cu.
//
//   update             one pass over memory by elements() of dev_cuda.h. Any cut over elements gives the same bits
//   adamw8bit          a block of threads has one block of 2048 elements: the moments stay in registers between the
//                      update and the search for their codes, which has to know the largest of them first
//   clip_units         a row is cut into P pieces, from the shape alone: many for one long row, one where there are
//                      several. One kernel sums the squares of each piece; then every block adds its row's pieces
//                      in order, and scales its piece. So nothing goes to the host
//
// The invariant: the same arithmetic as on the CPU where no sum is taken; the nearest code is found with the same
// middles between codes. Sums of squares are fp32 within a thread over at most 32 of them, and double above that; their
// order follows from the shape. A row within the limit is not written.
#include "base/check.h"
#include "ops/dev_cpu.h"
#include "ops/dev_cuda.h"
#include "ops/update_rules.h"

#include <cmath>

namespace {

// ---- element by element (update_rules.h)

#define RULE(KIND, name, moments) \
    struct name##_rule { \
        enum { MOMENTS = moments }; \
        static __device__ Element run(Element x, float g, const Update &u, const UpdateFactors &f) \
        { \
            return rule_##name(x, g, u, f); \
        } \
    };
UPDATE_RULES(RULE)

template <class Rule, class E> struct Updated {
    float *weight, *m, *v, *grad; // moments that the rule has not are null
    E *copy; // may be null
    Update u;
    UpdateFactors f;
    template <int W> __device__ void run(size_t i) const
    {
        float w[W], mi[W] = {}, vi[W] = {}, g[W];
        load<W>(w, weight + i), load<W>(g, grad + i);
        if (Rule::MOMENTS > 0) load<W>(mi, m + i);
        if (Rule::MOMENTS > 1) load<W>(vi, v + i);
        for (int k = 0; k < W; k++) {
            Element x = Rule::run({w[k], mi[k], vi[k]}, g[k] * u.grad_scale, u, f);
            w[k] = x.w, mi[k] = x.m, vi[k] = x.v, g[k] = 0;
        }
        if (Rule::MOMENTS > 0) store<W>(m + i, mi);
        if (Rule::MOMENTS > 1) store<W>(v + i, vi);
        store<W>(weight + i, w), store<W>(grad + i, g);
        if (copy) store<W>(copy + i, w);
    }
};

template <class Rule>
void update_by(Dev *dev, float *weight, float *m, float *v, float *grad, size_t n, const Update &u)
{
    elements<4>(dev_cuda(dev), n, aligned(weight, m, v, grad),
                Updated<Rule, float>{weight, m, v, grad, nullptr, u, update_factors(u)});
    if (u.copy) dev->to_x(dev, u.copy, weight, n);
}

void update(Dev *dev, OptimName rule, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    check(update_has_rule(rule));
#define CASE(KIND, name, moments) \
    if (rule == KIND) update_by<name##_rule>(dev, weight, m, v, grad, n, u);
    UPDATE_RULES(CASE)
}

// ---- AdamW in 8 bits

enum { CODES = 256, BOOK = 2 * CODES, THREADS = 256, EACH = UPDATE_BLOCK / THREADS };

__device__ inline unsigned nearest(const float *middle, float x)
{
    unsigned i = 0;
    for (unsigned step = CODES / 2; step; step /= 2) i += x > middle[i + step - 1] ? step : 0;
    return i;
}

// Codes of x (EACH a thread), which belong to elements t, t + THREADS, ...; the block's scale is returned.
__device__ inline float encode(uint8_t *out, const float *x, const float *book, int n, bool keep)
{
    float scale = 0;
    int t = (int)threadIdx.x;
    for (int k = 0; k < EACH; k++)
        if (t + k * THREADS < n) scale = fmaxf(scale, fabsf(x[k]));
    scale = block_max(scale);
    for (int k = 0; k < EACH; k++)
        if (t + k * THREADS < n) {
            unsigned c = nearest(book + CODES, scale > 0 ? x[k] / scale : 0);
            out[t + k * THREADS] = (uint8_t)(keep && c == 0 && x[k] > 0 ? 1 : c);
        }
    return scale;
}

// books: codes of m, their middles, codes of v, their middles
__global__ void __launch_bounds__(THREADS)
    adamw8bit_kernel(float *weight, uint8_t *m8, float *m_scale, uint8_t *v8, float *v_scale, float *grad,
                     const float *books, size_t n, Update u, UpdateFactors f)
{
    SHARED(float, book, [2 * BOOK]);
    int t = (int)threadIdx.x;
    for (int i = t; i < 2 * BOOK; i += THREADS) book[i] = books[i];
    __syncthreads();
    size_t at = (size_t)blockIdx.x * UPDATE_BLOCK, left = n - at;
    int n_block = left < UPDATE_BLOCK ? (int)left : UPDATE_BLOCK;
    float m[EACH], v[EACH], old_m = m_scale[blockIdx.x], old_v = v_scale[blockIdx.x];
    float shrink = 1 - u.lr * u.weight_decay;
    for (int k = 0; k < EACH; k++) {
        m[k] = v[k] = 0;
        if (t + k * THREADS >= n_block) continue;
        size_t i = at + (size_t)(t + k * THREADS);
        float g = grad[i] * u.grad_scale;
        m[k] = f.beta1 * (book[m8[i]] * old_m) + f.rest1 * g;
        v[k] = f.beta2 * (book[BOOK + v8[i]] * old_v) + f.rest2 * g * g;
        weight[i] = weight[i] * shrink - u.lr * (m[k] * f.correct1) / (sqrtf(v[k] * f.correct2) + u.eps);
        grad[i] = 0;
    }
    float new_m = encode(m8 + at, m, book, n_block, false);
    float new_v = encode(v8 + at, v, book + BOOK, n_block, book[BOOK] == 0);
    if (t == 0) m_scale[blockIdx.x] = new_m, v_scale[blockIdx.x] = new_v; // after a barrier: the old ones were read
}

void adamw8bit(Dev *dev, float *weight, uint8_t *m, float *m_scale, uint8_t *v, float *v_scale, float *grad, size_t n,
               Update u)
{
    DevCuda *d = dev_cuda(dev);
    unsigned blocks = (unsigned)((n + UPDATE_BLOCK - 1) / UPDATE_BLOCK);
    if (blocks == 0) return;
    if (!d->books) {
        float books[2 * BOOK];
        for (int i = 0; i < 2; i++) {
            float *code = books + i * BOOK;
            updates_8bit_codes(i == 0, code);
            for (int k = 0; k + 1 < CODES; k++) code[CODES + k] = (code[k] + code[k + 1]) / 2;
            code[BOOK - 1] = 0; // there is one middle less
        }
        GPU_CHECK(cudaMalloc(&d->books, sizeof books));
        dev->to_device(dev, d->books, books, sizeof books);
    }
    LAUNCH(adamw8bit_kernel, blocks, (unsigned)THREADS, 0, d->stream, weight, m, m_scale, v, v_scale, grad,
           (const float *)d->books, n, u, update_factors(u));
}

// ---- clipping of rows

enum { PIECE_LEAST = 4096, PIECES_MOST = 256 };

// partial (R, P, 2)
__global__ void clip_squares_kernel(double *partial, const float *grad, const float *weight, size_t C, unsigned P)
{
    size_t p = blockIdx.x % P, row = blockIdx.x / P, begin = p * C / P, end = (p + 1) * C / P;
    double of_grad = block_sum_double(thread_squares(grad + row * C, begin, end));
    double of_weight = block_sum_double(thread_squares(weight + row * C, begin, end));
    if (threadIdx.x > 0) return;
    partial[(size_t)blockIdx.x * 2] = of_grad;
    partial[(size_t)blockIdx.x * 2 + 1] = of_weight;
}

__global__ void clip_scale_kernel(float *grad, const double *partial, size_t C, unsigned P, float limit, float least)
{
    size_t p = blockIdx.x % P, row = blockIdx.x / P, end = (p + 1) * C / P;
    double squares[2] = {0, 0};
    for (unsigned i = 0; i < P; i++)
        for (int k = 0; k < 2; k++) squares[k] += partial[(row * P + i) * 2 + (size_t)k];
    double norm = sqrt(squares[0]), most = limit * fmax(sqrt(squares[1]), (double)least);
    float factor = norm > most ? (float)(most / norm) : 1;
    if (factor == 1) return;
    for (size_t i = p * C / P + threadIdx.x; i < end; i += blockDim.x) grad[row * C + i] *= factor;
}

void clip_units(Dev *dev, float *grad, const float *weight, size_t R, size_t C, float limit, float least)
{
    DevCuda *d = dev_cuda(dev);
    if (R == 0 || C == 0) return;
    size_t P = C / PIECE_LEAST;
    unsigned threads = power_of_two(d->threads);
    P = P < 1 || R > 1 ? 1 : P < PIECES_MOST ? P : (size_t)PIECES_MOST;
    double *partial = (double *)dev_cuda_scratch(d, R * P * 2 * sizeof *partial);
    LAUNCH(clip_squares_kernel, (unsigned)(R * P), threads, 0, d->stream, partial, grad, weight, C, (unsigned)P);
    LAUNCH(clip_scale_kernel, (unsigned)(R * P), threads, 0, d->stream, grad, partial, C, (unsigned)P, limit, least);
}

} // namespace

void updates_cuda_fill(Dev *dev)
{
    dev->update = update;
    dev->adamw8bit = adamw8bit;
    dev->clip_units = clip_units;
}
