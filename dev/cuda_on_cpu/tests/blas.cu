// blas: what programs may rely on of cuBLAS and cuBLASLt: every transposition, type, order and epilogue, odd sizes,
// gaps between columns, batches, against sums in double. Builds with nvcc and NVIDIA's libraries too, where
// NOT_SUPPORTED for an odd size counts as skipped.
//
// The bound. Inputs are exact in double. A sum of k products in fp32, in any order, is off by at most k * 2^-24 * S
// with S = |alpha| * sum |a b|; the few operations after it, by 4 more roundings of what they hold; TF32 by 2^-11
// for each of the two factors of a product; GELU (slope at most 1.13, |x gelu''| < 2) by as much again and tanhf's
// own rounding; the result is rounded to its type, 2^-8 or 2^-11.
#include "base/gpu.h"

#include <cmath>
#include <cstring>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <vector>

static int failures, skipped, done;
#define EXPECT(condition)                                                                                \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            printf("not ok %s:%d: %s\n", __FILE__, __LINE__, #condition);                                \
            failures++;                                                                                  \
        }                                                                                                \
    } while (0)
#define BLAS(call) EXPECT((call) == CUBLAS_STATUS_SUCCESS)

static unsigned seed = 1;
static float noise() // in [-1, 1), the same in every run
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 8388608.0f - 1;
}
static size_t size_of(cudaDataType type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 1;
}
static double rounding(cudaDataType type)
{
    return type == CUDA_R_32F ? 0x1p-24 : type == CUDA_R_16F ? 0x1p-11 : 0x1p-8;
}

// A matrix on the device and what it holds, in double; (rows, cols), `gap` unused numbers after each column (or row).
struct Matrix {
    cudaDataType type;
    int rows, cols, ld, batch;
    bool by_rows;
    long long stride;
    std::vector<double> x;      // with the gaps
    std::vector<char> bytes;
    char *p;
    Matrix(cudaDataType t, int r, int c, int gap = 0, bool rows_first = false, int n = 1)
        : type(t), rows(r), cols(c), ld((rows_first ? c : r) + gap), batch(n), by_rows(rows_first), p(nullptr)
    {
        stride = (long long)ld * (rows_first ? r : c) + 5;
        x.resize((size_t)(stride * batch));
        bytes.resize(x.size() * size_of(t));
        GPU_CHECK(cudaMalloc(&p, bytes.size()));
        for (double &v : x) v = noise();
        up();
    }
    Matrix(const Matrix &) = delete;
    ~Matrix() { GPU_CHECK(cudaFree(p)); }
    size_t at(int i, int j, int b = 0) const { return (size_t)(b * stride + (by_rows ? i * ld + j : i + j * ld)); }
    double get(size_t i) const
    {
        const char *from = &bytes[i * size_of(type)];
        if (type == CUDA_R_32F) { float v; memcpy(&v, from, 4); return v; }
        if (type == CUDA_R_16F) { __half v; memcpy((void *)&v, from, 2); return (double)(float)v; }
        if (type == CUDA_R_16BF) { __nv_bfloat16 v; memcpy((void *)&v, from, 2); return (double)(float)v; }
        if (type == CUDA_R_8F_E5M2) { __nv_fp8_e5m2 v; memcpy((void *)&v, from, 1); return (double)(float)v; }
        __nv_fp8_e4m3 v;
        memcpy((void *)&v, from, 1);
        return (double)(float)v;
    }
    void put(size_t i, float f)
    {
        char *to = &bytes[i * size_of(type)];
        if (type == CUDA_R_32F) memcpy(to, &f, 4);
        else if (type == CUDA_R_16F) { __half v(f); memcpy(to, (void *)&v, 2); }
        else if (type == CUDA_R_16BF) { __nv_bfloat16 v(f); memcpy(to, (void *)&v, 2); }
        else if (type == CUDA_R_8F_E5M2) { __nv_fp8_e5m2 v(f); memcpy(to, (void *)&v, 1); }
        else { __nv_fp8_e4m3 v(f); memcpy(to, (void *)&v, 1); }
    }
    void up()
    {
        for (size_t i = 0; i < x.size(); i++) put(i, (float)x[i]), x[i] = get(i);
        GPU_CHECK(cudaMemcpy(p, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    }
    void down() { GPU_CHECK(cudaMemcpy(bytes.data(), p, bytes.size(), cudaMemcpyDeviceToHost)); }
    // Is element (i, j) now within `bound` of `want`, besides its own rounding?
    bool near(int i, int j, int b, double want, double bound) const
    {
        return std::fabs(get(at(i, j, b)) - want) <= bound + (std::fabs(want) + bound) * rounding(type);
    }
    bool gaps_whole() const // nothing was written outside of the matrix
    {
        std::vector<bool> inside(x.size());
        for (int b = 0; b < batch; b++)
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < cols; j++) inside[at(i, j, b)] = true;
        for (size_t i = 0; i < x.size(); i++)
            if (!inside[i] && !(get(i) == x[i])) return false;
        return true;
    }
};

static double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x)
{
    double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

// alpha * op(A) op(B) at (i, j) and the sum of the sizes of its terms.
static double dot(const Matrix &a, bool ta, const Matrix &b, bool tb, int i, int j, int k, int t, double alpha,
                  double *size)
{
    double sum = 0;
    *size = 0;
    for (int l = 0; l < k; l++) {
        double term = alpha * a.x[ta ? a.at(l, i, t) : a.at(i, l, t)] * b.x[tb ? b.at(j, l, t) : b.at(l, j, t)];
        sum += term;
        *size += std::fabs(term);
    }
    return sum;
}

static const struct { cudaDataType in, out; } PAIRS[] = {{CUDA_R_32F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_16BF},
    {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16F, CUDA_R_16F}, {CUDA_R_16F, CUDA_R_32F}};
static const int SIZES[][3] = {{1, 1, 1}, {7, 5, 3}, {16, 24, 33}, {40, 9, 17}};

// ---- cuBLAS
static void check(const Matrix &a, bool ta, const Matrix &b, bool tb, const Matrix &c, int k, float alpha, float beta,
                  double extra)
{
    int bad = 0;
    for (int t = 0; t < c.batch; t++)
        for (int i = 0; i < c.rows; i++)
            for (int j = 0; j < c.cols; j++) {
                double size, v = dot(a, ta, b, tb, i, j, k, t, alpha, &size),
                             old = beta == 0 ? 0 : beta * c.x[c.at(i, j, t)];
                bad += !c.near(i, j, t, v + old, (k + 4) * 0x1p-24 * (size + std::fabs(old)) + extra * size);
            }
    EXPECT(bad == 0);
    EXPECT(c.gaps_whole());
    done++;
}

static void test_gemm(cublasHandle_t h)
{
    for (auto &s : SIZES)
        for (auto &pair : PAIRS)
            for (int way = 0; way < 4; way++)
                for (float beta : {0.0f, -0.5f}) {
                    int m = s[0], n = s[1], k = s[2];
                    bool ta = way & 1, tb = way & 2;
                    float alpha = 1.5f;
                    Matrix a(pair.in, ta ? k : m, ta ? m : k, way), b(pair.in, tb ? n : k, tb ? k : n, 2),
                        c(pair.out, m, n, 3);
                    cublasOperation_t opa = ta ? CUBLAS_OP_T : CUBLAS_OP_N, opb = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
                    if (pair.in == CUDA_R_32F)
                        BLAS(cublasSgemm(h, opa, opb, m, n, k, &alpha, (float *)a.p, a.ld, (float *)b.p, b.ld, &beta,
                                         (float *)c.p, c.ld));
                    else
                        BLAS(cublasGemmEx(h, opa, opb, m, n, k, &alpha, a.p, a.type, a.ld, b.p, b.type, b.ld, &beta,
                                          c.p, c.type, c.ld, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
                    c.down();
                    check(a, ta, b, tb, c, k, alpha, beta, 0);
                }
}

static void test_batches(cublasHandle_t h)
{
    const int m = 6, n = 4, k = 9, batch = 3;
    const float alpha = 0.25f, beta = 2;
    for (auto &pair : PAIRS) {
        Matrix a(pair.in, k, m, 1, false, batch), b(pair.in, k, n, 0, false, batch), c(pair.out, m, n, 2, false, batch);
        BLAS(cublasGemmStridedBatchedEx(h, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &alpha, a.p, a.type, a.ld, a.stride, b.p,
                                        b.type, b.ld, b.stride, &beta, c.p, c.type, c.ld, c.stride, batch,
                                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        c.down();
        check(a, true, b, false, c, k, alpha, beta, 0);
    }
}

static void test_corners(cublasHandle_t h)
{
    float one = 1, zero = 0, half = 0.5f;
    const int n = 5;
    Matrix a(CUDA_R_32F, n, n), b(CUDA_R_32F, n, n), c(CUDA_R_32F, n, n);
    float *A = (float *)a.p, *B = (float *)b.p, *C = (float *)c.p;
    GPU_CHECK(cudaMemset(c.p, 0xff, c.bytes.size())); // NaN: with beta 0 it is not read
    BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, A, n, B, n, &zero, C, n));
    int bad = 0;
    c.down();
    for (int i = 0; i < n * n; i++) bad += !(c.get(c.at(i % n, i / n)) == c.get(c.at(i % n, i / n)));
    EXPECT(bad == 0);
    c.up();
    BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, 0, &one, A, n, B, n, &half, C, n)); // k 0: C times beta
    c.down();
    for (int i = 0; i < n * n; i++) bad += !(c.get(c.at(i % n, i / n)) == 0.5 * c.x[c.at(i % n, i / n)]);
    EXPECT(bad == 0);
    BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 0, n, n, &one, A, n, B, n, &half, C, n));
    EXPECT(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, A, n - 1, B, n, &zero, C, n) ==
           CUBLAS_STATUS_INVALID_VALUE);
    EXPECT(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, -1, n, n, &one, A, n, B, n, &zero, C, n) ==
           CUBLAS_STATUS_INVALID_VALUE);
    EXPECT(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, A, CUDA_R_32F, n, B, CUDA_R_16BF, n, &zero, C,
                        CUDA_R_32F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT(!strcmp(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED"));

    BLAS(cublasSetMathMode(h, CUBLAS_TF32_TENSOR_OP_MATH)); // 10 bits of each factor
    c.up();
    BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, A, n, B, n, &zero, C, n));
    c.down();
    check(a, false, b, false, c, n, 1, 0, 0x1p-9);
    BLAS(cublasSetMathMode(h, CUBLAS_DEFAULT_MATH));
}

// ---- cuBLASLt
struct Lt {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
};

static cublasLtMatrixLayout_t layout(const Matrix &x)
{
    cublasLtMatrixLayout_t l;
    int32_t order = x.by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL, batch = x.batch;
    int64_t stride = x.stride;
    BLAS(cublasLtMatrixLayoutCreate(&l, x.type, (uint64_t)x.rows, (uint64_t)x.cols, x.ld));
    BLAS(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
    BLAS(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    BLAS(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return l;
}

template <class T> static void set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, T value)
{
    BLAS(cublasLtMatmulDescSetAttribute(d, attribute, &value, sizeof value));
}

// One product with an epilogue; D apart from C. `scales`: of fp8, on the device. in: of A; of B it is in_b.
static void two_types(Lt lt, cudaDataType in, cudaDataType in_b, cudaDataType out, int m, int n, int k, bool ta,
                      bool tb, bool ra, bool rb, bool rd, int32_t epilogue, float beta, int batch = 1,
                      const Matrix *scales = nullptr)
{
    float alpha = 0.75f;
    int aux_ld = (m + 7) / 8 * 8 + 8;
    bool fp8 = in == CUDA_R_8F_E4M3 || in == CUDA_R_8F_E5M2, bgradb = epilogue == CUBLASLT_EPILOGUE_BGRADB;
    Matrix a(in, ta ? k : m, ta ? m : k, fp8 ? 16 : 1, ra, batch),
        b(in_b, tb ? n : k, tb ? k : n, fp8 ? 0 : 2, rb, batch);
    Matrix c(out, m, n, fp8 ? 16 : 1, rd, batch), d(out, m, n, fp8 ? 32 : 2, rd, batch);
    Matrix bias(fp8 && out == CUDA_R_32F ? CUDA_R_16BF : out, bgradb ? n : m, 1, 0, false, batch),
        aux(out, m, n, aux_ld - m, false, batch);
    aux.stride = (aux.stride + 7) / 8 * 8;
    Matrix roomy(out, (int)aux.stride, batch, 0, false, 1); // aux with a stride that is a multiple of 8
    int32_t bias_type = bias.type;

    cublasLtMatmulDesc_t desc;
    BLAS(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, (int32_t)(ta ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, (int32_t)(tb ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (epilogue & ~(128 | 64 | 32 | 2 | 1)) { // bias: cuBLAS refuses the attributes to other epilogues
        set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.p);
        set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type);
        if (batch > 1) set(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, (int64_t)bias.stride);
    }
    if (epilogue & 128) {
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, roomy.p);
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)aux_ld);
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, (int64_t)aux.stride);
    }
    double scale = 1;
    if (scales) {
        set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, (float *)scales->p);
        set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, (float *)scales->p + 4); // at multiples of 16 bytes
        scale = scales->x[0] * scales->x[4];
    }
    cublasLtMatrixLayout_t la = layout(a), lb = layout(b), lc = layout(c), ld = layout(d);
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(lt.handle, desc, la, lb, lc, ld, lt.preference, 1, &result, &found);
#ifdef __CUDACC__
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) skipped++; // refused later
    else
#endif
    {
        BLAS(status);
        EXPECT(found == 1);
        status = cublasLtMatmul(lt.handle, desc, &alpha, a.p, la, b.p, lb, &beta, c.p, lc, d.p, ld, &result.algo, nullptr,
                                0, nullptr);
        BLAS(status);
        std::vector<double> preset = roomy.x;
        d.down(), bias.down(), roomy.down();
        int bad = 0, bad_aux = 0, bad_bias = 0;
        std::vector<double> sums((size_t)(m * batch)), bounds(sums.size());
        for (int t = 0; t < batch; t++)
            for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j++) {
                    double size, v = dot(a, ta, b, tb, i, j, k, t, alpha * scale, &size),
                                 old = beta == 0 ? 0 : beta * c.x[c.at(i, j, t)];
                    bool biased = epilogue & 4;
                    double shift = biased ? bias.x[bias.at(i, 0, t)] : 0;
                    double bound = (k + 8) * 0x1p-24 * (size + std::fabs(old) + std::fabs(shift));
                    if (fp8) bound += GPU_FP8_ERROR * size;
                    // Some of cuBLAS' kernels round to D's type before C is added, and again before the epilogue.
                    if (beta != 0 || epilogue & (32 | 64))
                        bound += 2 * rounding(out) * (std::fabs(v) + std::fabs(old) + std::fabs(shift));
                    v += old + shift;
                    size_t where = (size_t)(t * aux.stride + i + (long long)j * aux_ld);
                    if (epilogue & 128 && epilogue & 32) // GELU's input
                        bad_aux += !(std::fabs(roomy.get(where) - v) <= bound + (std::fabs(v) + bound) * rounding(out));
                    if (epilogue & 32) v = gelu(v), bound = 1.13 * bound + GPU_GELU_ERROR;
                    if (epilogue & 64) {
                        double x = preset[where], slope = gelu_slope(x);
                        bound = bound * std::fabs(slope) + GPU_DGELU_ERROR * std::fabs(v);
                        v *= slope;
                    }
                    bad += !d.near(i, j, t, v, bound);
                    sums[(size_t)(t * m + i)] += v;
                    bounds[(size_t)(t * m + i)] += bound + n * 0x1p-24 * std::fabs(v);
                }
        for (int t = 0; t < batch; t++)
            for (int i = 0; i < (bgradb ? n : m); i++) {
                if (epilogue < 256 && !(epilogue & 16)) { // read only
                    bad_bias += !(bias.get(bias.at(i, 0, t)) == bias.x[bias.at(i, 0, t)]);
                    continue;
                }
                double sum = sums[(size_t)(t * m + (bgradb ? 0 : i))],
                       bound = bounds[(size_t)(t * m + (bgradb ? 0 : i))];
                if (epilogue >= 256) {
                    sum = bound = 0;
                    for (int l = 0; l < k; l++) {
                        double v =
                            bgradb ? b.x[tb ? b.at(i, l, t) : b.at(l, i, t)] : a.x[ta ? a.at(l, i, t) : a.at(i, l, t)];
                        sum += v;
                        bound += k * 0x1p-24 * std::fabs(v);
                    }
                }
                bad_bias += !bias.near(i, 0, t, sum, bound);
            }
        EXPECT(bad == 0);
        EXPECT(bad_aux == 0);
        EXPECT(bad_bias == 0);
        EXPECT(d.gaps_whole());
        EXPECT(bias.gaps_whole());
        if (bad || bad_aux || bad_bias)
            printf("  in %d out %d, %d x %d x %d, transposed %d %d, by rows %d %d %d, epilogue %d, beta %g, "
                   "batch %d\n", in, out, m, n, k, ta,
                   tb, ra, rb, rd, epilogue, (double)beta, batch);
        done++;
    }
    for (cublasLtMatrixLayout_t l : {la, lb, lc, ld}) BLAS(cublasLtMatrixLayoutDestroy(l));
    BLAS(cublasLtMatmulDescDestroy(desc));
}

static void one_matmul(Lt lt, cudaDataType in, cudaDataType out, int m, int n, int k, bool ta, bool tb, bool ra,
                       bool rb, bool rd, int32_t epilogue, float beta, int batch = 1)
{
    two_types(lt, in, in, out, m, n, k, ta, tb, ra, rb, rd, epilogue, beta, batch);
}

static const int32_t EPILOGUES[] = {
    CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_GELU,  CUBLASLT_EPILOGUE_GELU_BIAS,
    CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD,
    CUBLASLT_EPILOGUE_BGRADA,   CUBLASLT_EPILOGUE_BGRADB};

static void test_epilogues(Lt lt)
{
    for (auto &s : SIZES)
        for (auto &pair : PAIRS)
            for (int way = 0; way < 4; way++)
                for (int32_t epilogue : EPILOGUES)
                    one_matmul(lt, pair.in, pair.out, s[0], s[1], s[2], way & 1, way & 2, false, false, false, epilogue,
                               way % 2 ? 0.5f : 0);
    for (int32_t epilogue : EPILOGUES)
        one_matmul(lt, CUDA_R_16BF, CUDA_R_16BF, 8, 6, 10, true, false, false, false, false, epilogue, 1, 3);
}

static void test_orders(Lt lt)
{
    for (int orders = 0; orders < 8; orders++)
        for (int way = 0; way < 4; way++)
            for (auto &pair : PAIRS)
                one_matmul(lt, pair.in, pair.out, 7, 5, 3, way & 1, way & 2, orders & 1, orders & 2, orders & 4,
                           CUBLASLT_EPILOGUE_DEFAULT, 0.5f);
}

static void test_eight_bits(Lt lt)
{
    Matrix scales(CUDA_R_32F, 8, 1);
    const cudaDataType e4m3 = CUDA_R_8F_E4M3, e5m2 = CUDA_R_8F_E5M2;
    const cudaDataType pairs[][2] = {{e4m3, e4m3}, {e4m3, e5m2}, {e5m2, e4m3}};
    for (auto &in : pairs)
        for (cudaDataType out : {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F})
            for (int32_t epilogue : {(int32_t)CUBLASLT_EPILOGUE_DEFAULT, (int32_t)CUBLASLT_EPILOGUE_BIAS})
                for (float beta : {0.0f, 1.0f}) // 1: a gradient that adds up
                    two_types(lt, in[0], in[1], out, 32, 48, 64, true, false, false, false, false, epilogue, beta, 1,
                              &scales);
    two_types(lt, e4m3, e5m2, CUDA_R_32F, 16, 7, 16, true, false, false, false, false, CUBLASLT_EPILOGUE_DEFAULT, 0, 1,
              &scales); // n is no multiple of anything
}

// What is not here says so, at the call that asks for it.
static void test_refusals(Lt lt)
{
#ifndef __CUDACC__
    Matrix a(CUDA_R_16BF, 8, 8), b(CUDA_R_16BF, 8, 8), d(CUDA_R_16BF, 8, 8), row(CUDA_R_16BF, 8, 8, 0, true),
        fp32(CUDA_R_32F, 8, 8);
    cublasLtMatrixLayout_t la = layout(a), lb = layout(b), ld = layout(d), lrow = layout(row), lfp32 = layout(fp32);
    cublasLtMatmulDesc_t desc;
    BLAS(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    float alpha = 1, beta = 0;
    auto matmul = [&](cublasLtMatrixLayout_t first, cublasLtMatrixLayout_t last) {
        return cublasLtMatmul(lt.handle, desc, &alpha, a.p, first, b.p, lb, &beta, d.p, last, d.p, last, nullptr,
                              nullptr, 0, nullptr);
    };
    auto refuses = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
        return cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value) == CUBLAS_STATUS_NOT_SUPPORTED;
    };
    BLAS(matmul(la, ld));
    EXPECT(refuses(CUBLASLT_MATMUL_DESC_POINTER_MODE, (int32_t)CUBLASLT_POINTER_MODE_DEVICE));
    EXPECT(refuses(CUBLASLT_MATMUL_DESC_TRANSC, (int32_t)CUBLAS_OP_T));
    EXPECT(refuses(CUBLASLT_MATMUL_DESC_FILL_MODE, (int32_t)1));
    EXPECT(refuses(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, a.p));
    EXPECT(refuses(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, a.p));
    EXPECT(refuses(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER, a.p));
    EXPECT(refuses(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, (int64_t)1));
    int32_t order = CUBLASLT_ORDER_COL32;
    EXPECT(cublasLtMatrixLayoutSetAttribute(la, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order) ==
           CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &order, 1) ==
           CUBLAS_STATUS_INVALID_VALUE);                      // its size
    EXPECT(matmul(lfp32, ld) == CUBLAS_STATUS_NOT_SUPPORTED); // fp32 times bf16
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, (int32_t)CUBLASLT_EPILOGUE_RELU);
    EXPECT(matmul(la, ld) == CUBLAS_STATUS_NOT_SUPPORTED);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, (int32_t)CUBLASLT_EPILOGUE_BIAS);
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, b.p);
    EXPECT(matmul(la, lrow) == CUBLAS_STATUS_NOT_SUPPORTED); // an epilogue by rows
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)CUDA_R_32F);
    EXPECT(matmul(la, ld) == CUBLAS_STATUS_NOT_SUPPORTED);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, (int32_t)CUBLASLT_EPILOGUE_GELU_AUX);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, b.p);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)12); // no multiple of 8
    EXPECT(matmul(la, ld) == CUBLAS_STATUS_NOT_SUPPORTED);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, (int32_t)CUBLASLT_EPILOGUE_DEFAULT);
    set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, (float *)a.p); // scales are for fp8
    EXPECT(matmul(la, ld) == CUBLAS_STATUS_NOT_SUPPORTED);
    BLAS(cublasLtMatmulDescDestroy(desc));
    cublasStatus_t status = cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_16F, CUDA_R_32F);
    BLAS(status);
    EXPECT(matmul(la, ld) == CUBLAS_STATUS_NOT_SUPPORTED);
    for (cublasLtMatrixLayout_t l : {la, lb, ld, lrow, lfp32}) BLAS(cublasLtMatrixLayoutDestroy(l));
    BLAS(cublasLtMatmulDescDestroy(desc));
#else
    (void)lt;
#endif
}

int main()
{
    cublasHandle_t h;
    Lt lt;
    cudaStream_t stream, same;
    GPU_CHECK(cudaStreamCreate(&stream)); // waits for the copies of the default stream
    BLAS(cublasCreate(&h));
    BLAS(cublasSetStream(h, stream));
    BLAS(cublasGetStream(h, &same));
    EXPECT(same == stream);
    void *workspace;
    GPU_CHECK(cudaMalloc(&workspace, 1 << 20));
    BLAS(cublasSetWorkspace(h, workspace, 1 << 20));
    BLAS(cublasLtCreate(&lt.handle));
    BLAS(cublasLtMatmulPreferenceCreate(&lt.preference));
    size_t none = 0;
    BLAS(cublasLtMatmulPreferenceSetAttribute(lt.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &none,
                                              sizeof none));
    test_gemm(h);
    test_batches(h);
    test_corners(h);
    test_epilogues(lt);
    test_orders(lt);
    test_eight_bits(lt);
    test_refusals(lt);
    BLAS(cublasLtMatmulPreferenceDestroy(lt.preference));
    BLAS(cublasLtDestroy(lt.handle));
    BLAS(cublasDestroy(h));
    GPU_CHECK(cudaFree(workspace));
    GPU_CHECK(cudaStreamDestroy(stream));
    printf("%s %d products, %d skipped\n", failures ? "failed:" : "ok", done, skipped);
    return failures != 0;
}
