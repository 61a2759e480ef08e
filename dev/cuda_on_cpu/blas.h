// blas: one matrix product, as all calls of cublas.cc mean it. See blas.cc.
#ifndef CUDA_ON_CPU_BLAS_H
#define CUDA_ON_CPU_BLAS_H
#include "include/cublasLt.h"
#include "machine.h"

namespace emu {
namespace blas {

struct Matrix {
    char *p;
    int type;
    bool rows_first; // in rows, not in columns
    int64_t rows, cols, ld, stride;
    size_t at(int64_t i, int64_t j, int64_t batch) const
    {
        return (size_t)(batch * stride + (rows_first ? i * ld + j : i + j * ld));
    }
};
struct Product {
    Matrix a, b, c, d, aux, bias; // bias: one column
    bool ta, tb, tf32;
    int64_t m, n, k, batch;
    float alpha, beta;
    int epilogue;
    const float *a_scale, *b_scale;
};

inline bool is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
// Is this product here, and does cuBLAS have it?
cublasStatus_t supported(const Product &p, cublasComputeType_t compute);
// Checks what it touches, and gives it to the stream.
cublasStatus_t submit(const Product &p, cublasComputeType_t compute, const char *call, cudaStream_t stream, Site site);

} // namespace blas
} // namespace emu
#endif
