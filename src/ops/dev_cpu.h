// dev_cpu: the CPU's side of the op table: OpenBLAS' kernels, their speed and room, and what the files that fill it
// share.
//
// Each op is in the file of its kind (matmul.c, attention.c, norm.c, ...), which has a function that fills its entries;
// dev_cpu.c calls these. The contracts are in dev.h. Storage is fp32: X is float.
#ifndef DEV_CPU_H
#define DEV_CPU_H
#include "ops/dev.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- OpenBLAS: which sgemm kernels it uses, and how fast they are

// Call first thing in main. If OpenBLAS runs kernels below what the processor has (it does not know
// processors newer than itself, or OPENBLAS_CORETYPE is preset low), starts the program again with
// OPENBLAS_CORETYPE corrected. Also has idle OpenMP threads sleep instead of spin. PRETRAIN_BLAS=keep in
// the environment prevents both.
void dev_cpu_choose_blas(char **argv);
// Dies when there is no room for what OpenBLAS asks for with `threads` threads of ours (0: one a core): as many more
// threads (ulimit -u), and the addresses of its buffers (ulimit -v). OpenBLAS has its buffers after the call. Before
// the first product; with `peak` also before dev_cpu_peak, in which OpenBLAS starts threads of its own.
void dev_cpu_blas_room(int threads, bool peak);
// The kernel set in use ("SkylakeX"), and who chose it.
const char *dev_cpu_blas(void);
const char *dev_cpu_blas_reason(void);

typedef struct {
    size_t M, N, K;
} MatmulShape;
// Best sgemm rate in GFLOP/s over n shapes, each timed a few times with OpenBLAS' own threading: all
// their flops by the sum of their best times. About `seconds` long.
double dev_cpu_peak(const MatmulShape *shape, size_t n, int threads, double seconds);

// ---- for the files that fill the table

// Scratch that ops share, at least n floats, 64-byte aligned. It grows on first use and is kept; one op
// runs at a time.
float *dev_cpu_scratch(Dev *dev, size_t n_floats);

// C (M, N) = alpha * op(A) op(B) + beta * C on the calling thread; row-major with leading dimensions; op
// is transposition.
void matmul_gemm(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda,
                 const float *B, size_t ldb, float beta, float *C, size_t ldc);

// The threads that n elements are worth: to start them takes about as long as a few thousand elements.
static inline int dev_cpu_team(const Dev *dev, size_t n)
{
    return n < 8192 ? 1 : dev->threads;
}

// An element is dropped when its random word is below this: p 2^32.
static inline uint32_t dev_cpu_dropout_limit(Dropout drop)
{
    return (uint32_t)((double)drop.p * 4294967296.0);
}

// Of the backward pass of a norm (norm.c), whose sums over rows are sums of NORM_BLOCKS ranges of rows. One row: dinp =
// its dx (+ dresid, if not NULL), dw += and db += (if not NULL) its part. Then grad[c] += the sum of the ranges, in order.
enum { NORM_BLOCKS = 64 };
void norm_cpu_backward_row(float *dinp, float *dw, float *db, const float *dout, const float *dresid, const float *inp,
                           float mean, float rstd, const float *w, size_t C, NormKind kind);
void norm_cpu_add_partials(float *grad, const float *partial, size_t n_blocks, size_t stride, size_t C);

void elements_cpu_fill(Dev *dev);
void matmul_cpu_fill(Dev *dev);
void attention_cpu_fill(Dev *dev);
void norm_cpu_fill(Dev *dev);
void embed_cpu_fill(Dev *dev);
void loss_cpu_fill(Dev *dev);
void experts_cpu_fill(Dev *dev);
void updates_cpu_fill(Dev *dev);
void updates_matrix_cpu_fill(Dev *dev);

// The op muon, whose products are of fp32 operands; of operands rounded to bf16; or of those by the processor's
// instruction (gemm_bf16.h).
typedef enum { MUON_FP32, MUON_ROUNDED, MUON_BF16 } MuonProducts;
void updates_matrix_muon(Dev *dev, MuonProducts products, float *weight, float *m, float *row, float *grad,
                         float *scratch, size_t R, size_t C, Update u);

// The 256 values, ascending, that a code of adamw8bit stands for; with a sign for m, without for v.
void updates_8bit_codes(bool with_sign, float code[256]);

// The naive twin of attention_forward: the whole (Tq, Tk) matrix, in double. The oracle of the tests.
void attention_forward_naive(float *out, float *lse, const float *q, const float *k, const float *v, AttnShape shape);

// ---- the product of a few rows with a weight matrix, at the speed of memory
//
//   out (N, OC) = inp (N, C) weight (OC, C)^T + bias,   N at most FEW_ROWS
//
// Where text is written a token at a time N is 1: each weight is read for 2 flops, so the time is that of reading the
// weights once. A gemm copies (packs) its operands into another order first, which helps when each number is used many
// times. Here a thread reads its rows of the weight as they stand in memory, one after another: the order that the
// processor's prefetcher follows best. FEW_SUMS partial sums, because one addition waits for the one before it. Further
// rows of inp find the row of the weight in the cache.
//
// The bits of an output depend neither on the number of threads nor on N.
enum { FEW_SUMS = 64 };

static inline float few_rows_fp32(float w)
{
    return w;
}

static inline float few_rows_bf16(uint16_t w)
{
    union { uint32_t bits; float number; } x = {(uint32_t)w << 16};
    return x.number;
}

// few_rows_of_NUMBER, for weights of a type that few_rows_NUMBER turns into a float.
#define FEW_ROWS_OF(number, Weight)                                                                                    \
    static inline float few_rows_dot_##number(const float *restrict x, const Weight *restrict w, size_t C)             \
    {                                                                                                                  \
        float part[FEW_SUMS] = {0}, sum = 0;                                                                           \
        size_t c = 0;                                                                                                  \
        for (; c + FEW_SUMS <= C; c += FEW_SUMS) {                                                                     \
            _Pragma("omp simd") for (size_t i = 0; i < FEW_SUMS; i++)                                                  \
                part[i] += x[c + i] * few_rows_##number(w[c + i]);                                                     \
        }                                                                                                              \
        for (size_t i = 0; c + i < C; i++) part[i] += x[c + i] * few_rows_##number(w[c + i]);                          \
        _Pragma("omp simd reduction(+ : sum)") for (size_t i = 0; i < FEW_SUMS; i++) sum += part[i];                   \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static inline void few_rows_of_##number(int threads, float *out, const float *inp, const Weight *weight,           \
                                            const float *bias, size_t N, size_t C, size_t OC)                          \
    {                                                                                                                  \
        _Pragma("omp parallel for schedule(static) num_threads(threads)") for (size_t o = 0; o < OC; o++)              \
            for (size_t n = 0; n < N; n++)                                                                             \
                out[n * OC + o] = few_rows_dot_##number(inp + n * C, weight + o * C, C) + (bias ? bias[o] : 0);        \
    }

#ifdef __cplusplus
}
#endif
#endif
