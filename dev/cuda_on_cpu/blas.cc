// blas: cuBLAS's and cuBLASLt's matrix products, on OpenBLAS or, without it, on loops.
//
// Every call becomes one Product, checked at the call and computed when its stream runs it:
//
//     D = epilogue(alpha * s_A s_B * op(A) op(B) + beta * C)        s: the scales of fp8 numbers, otherwise 1
//
// A and B are copied out as fp32 without gaps, whatever their type, order and transposition; the product is one sgemm;
// the rest is done in fp32, and rounded once to D's type. With TF32 allowed, fp32 inputs are rounded to TF32 first, as
// tensor cores see them.
//
// The invariant: a result is right, or the call says NOT_SUPPORTED (INVALID_VALUE where cuBLAS says so), and
// nothing outside of one allocation is touched: each matrix with its leading dimension, batches included, is
// measured at the call, and a report names the argument and its shape. What cuBLAS leaves open is taken strictly: C
// is not read if beta is 0, and A and B are not if alpha is 0 or k is 0. Epilogues ask for matrices in columns;
// E5M2 times E5M2, 8-bit outputs and fp16 sums are not here. Rejected: handing transposes and leading dimensions to
// sgemm for fp32 (a second path to test, for speed nobody needs).
#include "blas.h"

#include <algorithm>

#ifdef WITH_OPENBLAS
#include <cblas.h>
extern "C" void openblas_set_num_threads(int);
#endif

namespace emu {
namespace blas {
namespace {

enum : int { BIAS = 4, BGRAD = 16, GELU = 32, DGELU = 64, AUX = 128 }; // bits of cublasLtEpilogue_t

size_t size_of(int type)
{
    switch (type) {
    case CUDA_R_32F: return 4;
    case CUDA_R_16F: case CUDA_R_16BF: return 2;
    case CUDA_R_8F_E4M3: case CUDA_R_8F_E5M2: return 1;
    }
    return 0;
}

const char *name_of(int type)
{
    return type == CUDA_R_32F ? "fp32" : type == CUDA_R_16F ? "fp16" : type == CUDA_R_16BF ? "bf16" : "fp8";
}

float load(const Matrix &x, size_t i)
{
    const char *p = x.p + i * size_of(x.type);
    uint16_t h = 0;
    float f;
    switch (x.type) {
    case CUDA_R_32F: memcpy(&f, p, 4); return f;
    case CUDA_R_16F: memcpy(&h, p, 2); return formats_decode(FORMAT_FP16, h);
    case CUDA_R_16BF: memcpy(&h, p, 2); return formats_decode(FORMAT_BF16, h);
    case CUDA_R_8F_E4M3: return formats_decode(FORMAT_E4M3, (uint8_t)*p);
    default: return formats_decode(FORMAT_E5M2, (uint8_t)*p);
    }
}

void store(const Matrix &x, size_t i, float v)
{
    char *p = x.p + i * size_of(x.type);
    if (x.type == CUDA_R_32F) {
        memcpy(p, &v, 4);
        return;
    }
    uint16_t h = x.type == CUDA_R_16F ? narrow16<FORMAT_FP16>(v) : narrow16<FORMAT_BF16>(v);
    memcpy(p, &h, 2);
}

// ---- checks
void need(const Matrix &x, int64_t batch, const char *call, const char *argument, Site site)
{
    if (x.rows == 0 || x.cols == 0) return;
    size_t bytes = (x.at(x.rows - 1, x.cols - 1, batch - 1) + 1) * size_of(x.type);
    std::string who = format("%s: %s, %s, %lld x %lld with leading dimension %lld%s", call, argument, name_of(x.type),
                             (long long)x.rows, (long long)x.cols, (long long)x.ld,
                             batch > 1 ? format(", %lld times", (long long)batch).c_str() : "");
    memory_need(x.p, bytes, who.c_str(), site);
}

bool valid(const Matrix &x)
{
    return x.rows >= 0 && x.cols >= 0 && x.ld >= std::max<int64_t>(1, x.rows_first ? x.cols : x.rows);
}

// ---- the arithmetic
// op(x) in columns, (rows, cols) of the result.
void unpack(float *out, const Matrix &x, bool transposed, int64_t rows, int64_t cols, int64_t batch, bool tf32)
{
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++) {
            float v = load(x, transposed ? x.at(j, i, batch) : x.at(i, j, batch));
            out[i + j * rows] = tf32 ? formats_decode(FORMAT_TF32, formats_encode(FORMAT_TF32, v, false)) : v;
        }
}

void multiply(float *out, const float *a, const float *b, int64_t m, int64_t n, int64_t k) // (m, k) (k, n), in columns
{
#ifdef WITH_OPENBLAS
    openblas_set_num_threads(1); // one OS thread runs everything
    cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, 1, a, (int)m, b, (int)k, 0, out,
                (int)m);
#else
    for (int64_t j = 0; j < n; j++) {
        std::fill_n(out + j * m, m, 0.0f);
        for (int64_t l = 0; l < k; l++)
            for (int64_t i = 0; i < m; i++) out[i + j * m] += a[i + l * m] * b[l + j * k];
    }
#endif
}

float gelu_inner(float x) { return 0.7978845608f * (x + 0.044715f * x * x * x); } // sqrt(2 / pi)
// cuBLAS' tanh is not correctly rounded: on an H100 GELU is off by up to 2^-17.5 and its slope by 2^-16.0. Here a wave
// of that size stands for it.
float wave(float x, float size) { return size * sinf(97 * x); }
float gelu(float x) { return 0.5f * x * (1 + tanhf(gelu_inner(x))) + wave(x, 0x1p-18f); }
float gelu_slope(float x)
{
    float t = tanhf(gelu_inner(x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x) + wave(x, 0x1p-16f);
}

void finish(const Product &p, std::vector<float> &x, int64_t batch) // x (m, n): op(A) op(B)
{
    float alpha = p.alpha * (p.a_scale ? *p.a_scale : 1) * (p.b_scale ? *p.b_scale : 1);
    for (int64_t j = 0; j < p.n; j++)
        for (int64_t i = 0; i < p.m; i++) {
            float &v = x[(size_t)(i + j * p.m)];
            v *= alpha;
            if (p.beta != 0) v += p.beta * load(p.c, p.c.at(i, j, batch));
            if (p.epilogue & BIAS) v += load(p.bias, p.bias.at(i, 0, batch));
            if (p.epilogue & AUX && p.epilogue & GELU) store(p.aux, p.aux.at(i, j, batch), v);
            if (p.epilogue & GELU) v = gelu(v);
            if (p.epilogue & DGELU) v *= gelu_slope(load(p.aux, p.aux.at(i, j, batch)));
            store(p.d, p.d.at(i, j, batch), v);
        }
}

// Sums of rows of an (m, n) matrix in columns, or of its columns.
void sum_up(const Product &p, const std::vector<float> &x, int64_t m, int64_t n, bool of_rows, int64_t batch)
{
    for (int64_t i = 0; i < (of_rows ? m : n); i++) {
        float sum = 0;
        for (int64_t j = 0; j < (of_rows ? n : m); j++) sum += x[(size_t)(of_rows ? i + j * m : j + i * m)];
        store(p.bias, p.bias.at(i, 0, batch), sum);
    }
}

void tell_checker(const Matrix &x, int64_t batch)
{
    if (!machine().hooks.host_write || !x.p) return;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t j = 0; j < (x.rows_first ? x.rows : x.cols); j++) {
            size_t at = x.rows_first ? x.at(j, 0, b) : x.at(0, j, b), n = (size_t)(x.rows_first ? x.cols : x.rows);
            machine().hooks.host_write(x.p + at * size_of(x.type), n * size_of(x.type));
        }
}

void run(const Product &p)
{
    bool zero = p.alpha == 0 || p.k == 0;
    std::vector<float> a((size_t)(p.m * p.k)), b((size_t)(p.k * p.n)), x((size_t)(p.m * p.n));
    for (int64_t t = 0; t < p.batch; t++) {
        if (!zero || p.epilogue == CUBLASLT_EPILOGUE_BGRADA) unpack(a.data(), p.a, p.ta, p.m, p.k, t, p.tf32);
        if (!zero || p.epilogue == CUBLASLT_EPILOGUE_BGRADB) unpack(b.data(), p.b, p.tb, p.k, p.n, t, p.tf32);
        if (zero) std::fill(x.begin(), x.end(), 0.0f);
        else multiply(x.data(), a.data(), b.data(), p.m, p.n, p.k);
        finish(p, x, t);
        if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA) sum_up(p, a, p.m, p.k, true, t);
        else if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_up(p, b, p.k, p.n, false, t);
        else if (p.epilogue & BGRAD) sum_up(p, x, p.m, p.n, true, t);
    }
    tell_checker(p.d, p.batch);
    if (p.epilogue & AUX && p.epilogue & GELU) tell_checker(p.aux, p.batch);
    if (p.epilogue & BGRAD || p.epilogue >= CUBLASLT_EPILOGUE_BGRADA) tell_checker(p.bias, p.batch);
}

} // namespace

// Is this product here, and does cuBLAS have it?
cublasStatus_t supported(const Product &p, cublasComputeType_t compute)
{
    const int a = p.a.type, b = p.b.type, d = p.d.type;
    bool fp8 = is_fp8(a), with_bias = p.epilogue & BIAS || p.epilogue & BGRAD || p.epilogue >= CUBLASLT_EPILOGUE_BGRADA;
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
        compute != CUBLAS_COMPUTE_32F_FAST_TF32)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!size_of(a) || !size_of(b) || !size_of(d) || is_fp8(d) || p.c.type != d) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (fp8 ? !is_fp8(b) || (a == CUDA_R_8F_E5M2 && b == a) : a != b) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!fp8 && d != CUDA_R_32F && d != a) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!valid(p.a) || !valid(p.b) || !valid(p.c) || !valid(p.d) || p.batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (p.a.stride < 0 || p.b.stride < 0 || p.c.stride < 0 || p.d.stride < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.c.rows_first != p.d.rows_first) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (fp8 && (!p.ta || p.tb || p.a.rows_first || p.b.rows_first || p.d.rows_first || (p.a.ld | p.b.ld) % 16 ||
                p.m % 16 || p.k % 16))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    switch (p.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: break;
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        if (fp8) return CUBLAS_STATUS_NOT_SUPPORTED;
        break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (p.d.rows_first) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (with_bias && p.bias.type != (fp8 && d == CUDA_R_32F ? CUDA_R_16BF : d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.epilogue & AUX && (p.aux.type != d || p.aux.ld % 8 || p.aux.stride % 8)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.epilogue & AUX && (!valid(p.aux) || p.aux.stride < 0)) return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t submit(const Product &p, cublasComputeType_t compute, const char *call, cudaStream_t stream, Site site)
{
    cublasStatus_t status = supported(p, compute);
    if (status != CUBLAS_STATUS_SUCCESS || p.m == 0 || p.n == 0 || p.batch == 0) return status;
    bool with_bias = p.epilogue & (BIAS | BGRAD) || p.epilogue >= CUBLASLT_EPILOGUE_BGRADA;
    // What the heuristic accepts and cublasLtMatmul refuses, as on an H100 with cuBLAS 13.1.
    if (p.bias.p && !with_bias) return CUBLAS_STATUS_INVALID_VALUE;
    if (((uintptr_t)p.a_scale | (uintptr_t)p.b_scale) % 16) return CUBLAS_STATUS_NOT_SUPPORTED;
    // Kernels read 16 bytes of a bias at a time, and the heuristic is not told where it begins.
    if (with_bias && (uintptr_t)p.bias.p % 16)
        report("misaligned", site, "%s: BIAS_POINTER %p: not a multiple of 16", call, (void *)p.bias.p);
    bool zero = p.alpha == 0 || p.k == 0;
    if (!zero || p.epilogue == CUBLASLT_EPILOGUE_BGRADA) need(p.a, p.batch, call, "A", site);
    if (!zero || p.epilogue == CUBLASLT_EPILOGUE_BGRADB) need(p.b, p.batch, call, "B", site);
    if (p.beta != 0) need(p.c, p.batch, call, "C", site);
    need(p.d, p.batch, call, p.c.p == p.d.p ? "C" : "D", site);
    if (p.epilogue & AUX) need(p.aux, p.batch, call, "EPILOGUE_AUX_POINTER", site);
    if (with_bias) need(p.bias, p.batch, call, "BIAS_POINTER", site);
    if (p.a_scale) memory_need(p.a_scale, 4, format("%s: A_SCALE_POINTER", call).c_str(), site);
    if (p.b_scale) memory_need(p.b_scale, 4, format("%s: B_SCALE_POINTER", call).c_str(), site);
    stream_library_call({stream}, call, site, false, [p] { run(p); });
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace blas
} // namespace emu
