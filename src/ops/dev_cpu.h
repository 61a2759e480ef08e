// dev_cpu: the CPU's side of the op table, shared by the files that fill it.
//
// Each op lives in the file of its idea (matmul.c, attention.c, norm.c, ...) and is declared here once;
// dev_cpu.c puts them into the table. The contracts stand in dev.h. Storage is fp32: X is float.
#ifndef DEV_CPU_H
#define DEV_CPU_H
#include "ops/dev.h"
#ifdef __cplusplus
extern "C" {
#endif

// Scratch that ops share, at least n floats, 64-byte aligned. It grows on first use and is kept; one op
// runs at a time.
float *dev_cpu_scratch(Dev *dev, size_t n_floats);

// C (M, N) = alpha * op(A) op(B) + beta * C on the calling thread; row-major with leading dimensions; op
// is transposition.
void matmul_gemm(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda,
                 const float *B, size_t ldb, float beta, float *C, size_t ldc);

// An element is dropped when its random word is below this: p 2^32.
static inline uint32_t dev_cpu_dropout_limit(Dropout drop)
{
    return (uint32_t)((double)drop.p * 4294967296.0);
}

void matmul_cpu_fill(Dev *dev);
void attention_cpu_fill(Dev *dev);
void norm_cpu_fill(Dev *dev);
void ffn_cpu_fill(Dev *dev);
void compress_cpu_fill(Dev *dev);
void rope_cpu_fill(Dev *dev);
void embed_cpu_fill(Dev *dev);
void loss_cpu_fill(Dev *dev);
void sgd_cpu_fill(Dev *dev);
void adamw_cpu_fill(Dev *dev);
void agc_cpu_fill(Dev *dev);
void adamw8bit_cpu_fill(Dev *dev);
void lion_cpu_fill(Dev *dev);
void adafactor_cpu_fill(Dev *dev);
void muon_cpu_fill(Dev *dev);

// The 256 values, ascending, that a code of adamw8bit stands for; with a sign for m, without for v.
void adamw8bit_codes(bool with_sign, float code[256]);

// The naive twin of attention_forward: the whole (Tq, Tk) matrix, in double. The oracle of the tests.
void attention_forward_naive(float *out, float *lse, const float *q, const float *k, const float *v, AttnShape shape);

#ifdef __cplusplus
}
#endif
#endif
