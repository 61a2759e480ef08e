// blas_bugs: one short program per mistake that people make with cuBLAS. `blas_bugs list` prints, for each, the
// kind of the report, the settings, and what else it must say; `blas_bugs NAME` makes the mistake. As in bugs.cu,
// "wrong-result" is a program that notices for itself.
#include "base/gpu.h"

#include <cstring>
#include <cublasLt.h>
#include <cublas_v2.h>

static cublasHandle_t h;
static const float one = 1, zero = 0;
static float *ones(size_t n)
{
    float *x, host[256];
    for (float &v : host) v = 1;
    GPU_CHECK(cudaMalloc(&x, n * sizeof *x));
    GPU_CHECK(cudaMemcpy(x, host, n * sizeof *x, cudaMemcpyHostToDevice));
    return x;
}
static void blas(cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "cublas-error: %s\n", cublasGetStatusName(status));
    exit(3);
}
static void expect(bool good)
{
    if (good) return;
    fprintf(stderr, "wrong-result\n");
    exit(3);
}
// C (m, n) = A (m, k) B (k, n)
static void product(int m, int n, int k, const float *a, int lda, const float *b, int ldb, float *c, int ldc)
{
    blas(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, lda, b, ldb, &zero, c, ldc));
    GPU_CHECK(cudaDeviceSynchronize());
}

// (8, 8) all, with an epilogue whose pointers are `bias` and `aux`.
static void matmul(int32_t epilogue, const void *bias, const void *aux, size_t workspace = 0)
{
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t l;
    int64_t ld = 8;
    blas(cublasLtCreate(&lt));
    blas(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    blas(cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, 8, 8, 8));
    blas(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    blas(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    blas(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
    blas(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld));
    float *d = ones(64);
    blas(cublasLtMatmul(lt, desc, &one, ones(64), l, ones(64), l, &zero, d, l, d, l, nullptr, ones(4), workspace,
                        nullptr));
}

struct Bug {
    const char *name, *kind, *settings, *says;
    void (*run)();
};
static const Bug BUGS[] = {
    {"m_and_n_swapped", "out-of-bounds", "",
     "blas_bugs.cu:[0-9]+: cublasSgemm: A, fp32, 5 x 4 with leading dimension 5: 80 bytes at byte 0 of the 48",
     [] { product(5, 3, 4, ones(3 * 4), 5, ones(4 * 5), 4, ones(3 * 5), 5); }},
    {"leading_dimension_of_the_other", "out-of-bounds", "", "B, fp32, 4 x 5 with leading dimension 5",
     [] { product(3, 5, 4, ones(3 * 4), 3, ones(4 * 5), 5, ones(3 * 5), 3); }},
    {"result_too_small", "out-of-bounds", "", "cublasSgemm: C, fp32, 3 x 5",
     [] { product(3, 5, 4, ones(12), 3, ones(20), 4, ones(14), 3); }},
    {"batch_stride_in_bytes", "out-of-bounds", "", "cublasGemmStridedBatchedEx: A, fp32, 4 x 4 .*2 times",
     [] {
         blas(cublasGemmStridedBatchedEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, ones(32), CUDA_R_32F, 4,
                                         16 * sizeof(float), ones(32), CUDA_R_32F, 4, 16, &zero, ones(32), CUDA_R_32F,
                                         4, 16, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
     }},
    {"half_as_float", "out-of-bounds", "", "cublasGemmEx: A, fp32",
     [] {
         blas(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, ones(8), CUDA_R_32F, 4, ones(16), CUDA_R_32F, 4,
                           &zero, ones(16), CUDA_R_32F, 4, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
     }},
    {"host_matrix", "foreign-pointer", "", "cublasSgemm: B",
     [] {
         float b[16] = {};
         product(4, 4, 4, ones(16), 4, b, 4, ones(16), 4);
     }},
    {"alpha_on_the_device", "host-access", "", "cublasSgemm: alpha is device memory",
     [] {
         blas(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, ones(1), ones(16), 4, ones(16), 4, &zero, ones(16), 4));
     }},
    {"bias_too_short", "out-of-bounds", "", "cublasLtMatmul: BIAS_POINTER",
     [] { matmul(CUBLASLT_EPILOGUE_BIAS, ones(7), nullptr); }},
    {"aux_not_set", "foreign-pointer", "", "cublasLtMatmul: EPILOGUE_AUX_POINTER",
     [] { matmul(CUBLASLT_EPILOGUE_GELU_AUX, nullptr, nullptr); }},
    {"workspace_too_small", "out-of-bounds", "", "cublasLtMatmul: workspace",
     [] { matmul(CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 64); }},
    {"unsupported_epilogue", "cublas-error", "", "CUBLAS_STATUS_NOT_SUPPORTED",
     [] { matmul(CUBLASLT_EPILOGUE_RELU, nullptr, nullptr); }},
    {"pointer_mode_device", "cublas-error", "", "CUBLAS_STATUS_NOT_SUPPORTED",
     [] { blas(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE)); }},
    {"leading_dimension_too_small", "cublas-error", "", "CUBLAS_STATUS_INVALID_VALUE",
     [] { product(4, 4, 4, ones(16), 3, ones(16), 4, ones(16), 4); }},
    {"fresh_memory_added", "wrong-result", "", "",
     [] { // beta 1 on memory that was never written
         float *c, host[16];
         GPU_CHECK(cudaMalloc(&c, sizeof host));
         blas(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, ones(16), 4, ones(16), 4, &one, c, 4));
         GPU_CHECK(cudaMemcpy(host, c, sizeof host, cudaMemcpyDeviceToHost));
         for (float v : host) expect(v == 4);
     }},
    {"streams_not_ordered", "wrong-result", "EMU_STREAMS=late", "",
     [] {
         cudaStream_t work, copies;
         GPU_CHECK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
         GPU_CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
         float *a = ones(16), *b = ones(16), *c = ones(16), host[16];
         GPU_CHECK(cudaDeviceSynchronize());
         blas(cublasSetStream(h, work));
         blas(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a, 4, b, 4, &zero, c, 4));
         GPU_CHECK(cudaMemcpyAsync(host, c, sizeof host, cudaMemcpyDeviceToHost, copies)); // no event between the two
         GPU_CHECK(cudaStreamSynchronize(copies));
         for (float v : host) expect(v == 4);
     }},
    {"host_reads_too_early", "wrong-result", "EMU_STREAMS=late", "",
     [] {
         float *host;
         GPU_CHECK(cudaMallocHost(&host, 64));
         memset(host, 0, 64);
         float *c = ones(16);
         blas(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, ones(16), 4, ones(16), 4, &zero, c, 4));
         GPU_CHECK(cudaMemcpyAsync(host, c, 64, cudaMemcpyDeviceToHost, nullptr)); // and no synchronisation
         expect(host[0] == 4);
     }},
    {"nothing_wrong", "nothing", "EMU_STREAMS=late", "",
     [] {
         float host[15], *c = ones(15);
         product(3, 5, 4, ones(12), 3, ones(20), 4, c, 3);
         GPU_CHECK(cudaMemcpy(host, c, sizeof host, cudaMemcpyDeviceToHost));
         for (float v : host) expect(v == 4);
     }},
};

int main(int argc, char **argv)
{
    for (const Bug &b : BUGS) {
        if (argc == 2 && !strcmp(argv[1], "list")) printf("%s|%s|%s|%s\n", b.name, b.kind, b.settings, b.says);
        if (argc != 2 || strcmp(argv[1], b.name)) continue;
        blas(cublasCreate(&h));
        b.run();
        return 0;
    }
    return argc == 2 && !strcmp(argv[1], "list") ? 0 : 2;
}
