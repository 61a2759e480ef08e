// cublas: the calls of cuBLAS and cuBLASLt, which all become one Product (blas.cc).
//
// A handle keeps its stream and math mode, a description its attributes, a layout a shape; nothing else happens before
// the product itself. An attribute that is not here is refused by SetAttribute, unless it is set to what holds anyway.
#include "blas.h"

using namespace emu;
using namespace emu::blas;

struct cublasContext {
    cudaStream_t stream;
    cublasMath_t math;
};
struct cublasLtContext {
    int unused;
};
struct cublasLtMatmulPreferenceOpaque_t {
    int unused;
};
struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType type;
    int32_t order, batch;
    uint64_t rows, cols;
    int64_t ld, stride;
};
struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cudaDataType scale;
    int32_t transa, transb, epilogue, bias_type, aux_type;
    void *bias, *aux;
    int64_t bias_stride, aux_ld, aux_stride;
    const float *a_scale, *b_scale;
};

namespace {

float scalar(const void *p, const char *call, const char *argument, Site site)
{
    if (memory_is_device(p))
        report("host-access", site, "%s: %s is device memory, and the pointer mode is the host's", call, argument);
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

cublasStatus_t gemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                    const void *alpha, Matrix a, Matrix b, const void *beta, Matrix c, int batch,
                    cublasComputeType_t compute, const char *call, Site site)
{
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || !alpha || !beta || (unsigned)ta > CUBLAS_OP_C || (unsigned)tb > CUBLAS_OP_C)
        return CUBLAS_STATUS_INVALID_VALUE;
    Product p = {};
    p.ta = ta != CUBLAS_OP_N, p.tb = tb != CUBLAS_OP_N;
    a.rows = p.ta ? k : m, a.cols = p.ta ? m : k;
    b.rows = p.tb ? n : k, b.cols = p.tb ? k : n;
    c.rows = m, c.cols = n;
    p.a = a, p.b = b, p.c = p.d = c;
    p.tf32 = a.type == CUDA_R_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
             (compute == CUBLAS_COMPUTE_32F_FAST_TF32 || h->math == CUBLAS_TF32_TENSOR_OP_MATH);
    p.m = m, p.n = n, p.k = k, p.batch = batch;
    p.alpha = scalar(alpha, call, "alpha", site), p.beta = scalar(beta, call, "beta", site);
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (is_fp8(a.type)) return CUBLAS_STATUS_NOT_SUPPORTED; // cublasLt's alone
    return submit(p, compute, call, h->stream, site);
}

Matrix columns(const void *p, int type, int64_t ld, int64_t stride)
{
    return {(char *)p, type, false, 0, 0, ld, stride};
}

Matrix matrix_of(cublasLtMatrixLayout_t l, const void *p)
{
    return {(char *)p, l->type, l->order == CUBLASLT_ORDER_ROW, (int64_t)l->rows, (int64_t)l->cols, l->ld, l->stride};
}

// The product that a description and four layouts mean.
cublasStatus_t describe(Product &p, cublasLtMatmulDesc_t desc, const Matrix &a, const Matrix &b, const Matrix &c,
                        const Matrix &d, int64_t batch)
{
    p = {};
    p.a = a, p.b = b, p.c = c, p.d = d;
    p.ta = desc->transa != CUBLAS_OP_N, p.tb = desc->transb != CUBLAS_OP_N;
    p.m = p.ta ? a.cols : a.rows, p.k = p.ta ? a.rows : a.cols, p.n = p.tb ? b.rows : b.cols;
    p.batch = batch;
    p.tf32 = desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F;
    if ((p.tb ? b.cols : b.rows) != p.k || d.rows != p.m || d.cols != p.n || c.rows != p.m || c.cols != p.n)
        return CUBLAS_STATUS_INVALID_VALUE;
    p.epilogue = desc->epilogue;
    p.a_scale = desc->a_scale, p.b_scale = desc->b_scale;
    if ((p.a_scale || p.b_scale) && !is_fp8(a.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    int usual = is_fp8(a.type) && d.type == CUDA_R_32F ? CUDA_R_16BF : d.type;
    int64_t biases = desc->epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
    p.bias = {(char *)desc->bias, desc->bias_type < 0 ? usual : desc->bias_type, false, biases, 1, biases,
              desc->bias_stride};
    p.aux = {(char *)desc->aux, desc->aux_type < 0 ? d.type : desc->aux_type, false, p.m, p.n, desc->aux_ld,
             desc->aux_stride};
    return supported(p, desc->compute);
}

cublasStatus_t from_layouts(Product &p, cublasLtMatmulDesc_t desc, const void *A, cublasLtMatrixLayout_t a,
                            const void *B, cublasLtMatrixLayout_t b, const void *C, cublasLtMatrixLayout_t c, void *D,
                            cublasLtMatrixLayout_t d)
{
    if (!desc || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
    if (a->batch != d->batch || b->batch != d->batch || c->batch != d->batch) return CUBLAS_STATUS_INVALID_VALUE;
    return describe(p, desc, matrix_of(a, A), matrix_of(b, B), matrix_of(c, C), matrix_of(d, D), d->batch);
}

// Copies an attribute's value, if it has the right size.
template <class T> cublasStatus_t take(T &to, const void *value, size_t bytes)
{
    if (!value || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&to, value, sizeof to);
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t only(T wanted, const void *value, size_t bytes)
{
    T given;
    cublasStatus_t status = take(given, value, bytes);
    return status ? status : given == wanted ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

} // namespace

#define FROM const char *file, int line

// ---- cuBLAS
cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    machine();
    *handle = new cublasContext{nullptr, CUBLAS_DEFAULT_MATH};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    cudaDeviceSynchronize(); // as cuBLAS does
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t *stream)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    int kind = mode & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION; // sums are never narrower than fp32 here
    if (kind != CUBLAS_DEFAULT_MATH && kind != CUBLAS_PEDANTIC_MATH && kind != CUBLAS_TF32_TENSOR_OP_MATH)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    handle->math = (cublasMath_t)kind;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes, FROM)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (bytes) memory_need(workspace, bytes, "cublasSetWorkspace", {file, line});
    return CUBLAS_STATUS_SUCCESS;
}

static const struct { cublasStatus_t status; const char *name, *text;
} STATUSES[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the requested functionality is not supported"},
};

const char *cublasGetStatusName(cublasStatus_t status)
{
    for (auto &s : STATUSES)
        if (s.status == status) return s.name;
    return "unknown status";
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    for (auto &s : STATUSES)
        if (s.status == status) return s.text;
    return "unknown status";
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                           int k, const float *alpha, const float *A, int lda, const float *B, int ldb,
                           const float *beta, float *C, int ldc, FROM)
{
    return gemm(handle, transa, transb, m, n, k, alpha, columns(A, CUDA_R_32F, lda, 0), columns(B, CUDA_R_32F, ldb, 0),
                beta, columns(C, CUDA_R_32F, ldc, 0), 1, CUBLAS_COMPUTE_32F, "cublasSgemm", {file, line});
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void *alpha, const void *A, cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta, void *C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t, FROM)
{
    return gemm(handle, transa, transb, m, n, k, alpha, columns(A, Atype, lda, 0), columns(B, Btype, ldb, 0), beta,
                columns(C, Ctype, ldc, 0), 1, compute, "cublasGemmEx", {file, line});
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const void *alpha, const void *A, cudaDataType Atype,
                                          int lda, long long strideA, const void *B, cudaDataType Btype, int ldb,
                                          long long strideB, const void *beta, void *C, cudaDataType Ctype, int ldc,
                                          long long strideC, int batchCount, cublasComputeType_t compute,
                                          cublasGemmAlgo_t, FROM)
{
    return gemm(handle, transa, transb, m, n, k, alpha, columns(A, Atype, lda, strideA),
                columns(B, Btype, ldb, strideB), beta, columns(C, Ctype, ldc, strideC), batchCount, compute,
                "cublasGemmStridedBatchedEx", {file, line});
}

// ---- cuBLASLt
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    machine();
    *handle = new cublasLtContext{};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType scale)
{
    *desc = new cublasLtMatmulDescOpaque_t{
        compute, scale, 0, 0, CUBLASLT_EPILOGUE_DEFAULT, -1, -1, nullptr, nullptr, 0, 0, 0, nullptr, nullptr};
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    if (!d) return CUBLAS_STATUS_INVALID_VALUE;
    int32_t number;
    int8_t small;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return only<int32_t>(CUBLASLT_POINTER_MODE_HOST, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(d->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(d->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC: return only<int32_t>(CUBLAS_OP_N, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return take(d->bias_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(d->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return take(d->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return take(d->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return take(d->aux_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return take(d->aux_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(d->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(d->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return take(number, value, bytes); // both are about speed
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return take(small, value, bytes);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER: return only<void *>(nullptr, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    *layout = new cublasLtMatrixLayoutOpaque_t{type, CUBLASLT_ORDER_COL, 1, rows, cols, ld, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    if (!l) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER: {
        int32_t order;
        cublasStatus_t status = take(order, value, bytes);
        if (status || (order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW))
            return status ? status : CUBLAS_STATUS_NOT_SUPPORTED;
        l->order = order;
        return CUBLAS_STATUS_SUCCESS;
    }
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return take(l->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return take(l->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return take(l->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return take(l->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(l->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return take(l->stride, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new cublasLtMatmulPreferenceOpaque_t{};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t, const void *value, size_t)
{
    return preference && value ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

enum { REFUSED = 7 }; // in an algorithm that cublasLtMatmul does not take
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                              cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                              cublasLtMatmulPreference_t, int requested,
                                              cublasLtMatmulHeuristicResult_t *results, int *returned)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested < 1 || !results || !returned) return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    Product p;
    cublasStatus_t status = from_layouts(p, desc, nullptr, Adesc, nullptr, Bdesc, nullptr, Cdesc, nullptr, Ddesc);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    uint64_t seed = machine().set.blas;
    int chance = seed ? (int)((seed * 0x9e3779b97f4a7c15u + (uint64_t)(p.m + 3 * p.n + 7 * p.k + p.epilogue)) >> 13) % 4 : -1;
    if (chance > 0 && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return chance == 1   ? CUBLAS_STATUS_NOT_SUPPORTED
               : chance == 2 ? CUBLAS_STATUS_INVALID_VALUE
                             : CUBLAS_STATUS_SUCCESS; // and none
    if (chance > 1 && requested > 1) results[*returned] = {}, results[(*returned)++].algo.data[0] = REFUSED;
    results[(*returned)++] = {};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc,
                              const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream, FROM)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
    Product p;
    cublasStatus_t status = from_layouts(p, desc, A, Adesc, B, Bdesc, C, Cdesc, D, Ddesc);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (algo && algo->data[0] == REFUSED) return CUBLAS_STATUS_NOT_SUPPORTED;
    p.alpha = scalar(alpha, "cublasLtMatmul", "alpha", {file, line});
    p.beta = scalar(beta, "cublasLtMatmul", "beta", {file, line});
    if (workspace_bytes) memory_need(workspace, workspace_bytes, "cublasLtMatmul: workspace", {file, line});
    return submit(p, desc->compute, "cublasLtMatmul", stream, {file, line});
}
