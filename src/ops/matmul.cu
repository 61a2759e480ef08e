// matmul: the matrix products of training on the GPU, by cuBLASLt. The twin of matmul.c.
//
//   forward          out    (N, OC) = inp  (N, C)   weight (OC, C)^T + bias      bias: cuBLASLt's epilogue
//   backward_input   dinp   (N, C)  = dout (N, OC)  weight (OC, C)               gelu'(pre): its DGELU, or a kernel
//   backward_weight  dweight(OC, C)+= dout (N, OC)^T inp   (N, C)                fp32 sums; dbias: sums.cu
//
// cuBLASLt stores matrices by columns, and a row-major Z = X Y is Z^T = Y^T X^T by columns: so Y is its A, X its B.
// Sums are fp32. The algorithm for a shape is chosen once (by cuBLASLt's heuristic) and kept. The request states the
// alignment of the pointers (a bias or a slice of a weight may begin anywhere), and forbids partial sums in less than
// fp32.
//
// GELU forward is a kernel of our own after the product. cuBLASLt has an epilogue for it, but that applies GELU to the
// sum before rounding. Ours must be the GELU of `pre` as it is stored, to the bit, because recomputation computes the
// output from it again (recompute.h). The price: `pre` is read once more, about 1% of a step.
//
// fp8: casts.cu casts and transposes the operands, with k innermost in both, in multiples of 16; cuBLASLt multiplies the
// sum by 1 / scale of both. Its D scale and amax are not used, because D has 16 or 32 bits. cuBLAS has no E5M2 x E5M2
// product, and backward never needs one.
//
// TF32 (options.tf32): the operands of fp32 products are rounded by the tensor cores. Not those of the router and of
// Muon, which stay fp32 as on the CPU.
//
// The invariant: one workspace, used by one stream, so the same call gives the same bits. When cuBLASLt has no
// algorithm for an epilogue, a kernel does it, with one more rounding.
// Rejected: cublasGemmEx (no epilogues, no choice of reduction); fp16 or bf16 sums.
#include "ops/dev_cuda.h"

#include "ops/activation.h"

#include "base/check.h"

#include <cublasLt.h>
#include <array>
#include <map>
#include <vector>

typedef std::array<int64_t, 16> Shape;
struct MatmulCuda {
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    std::map<Shape, std::vector<cublasLtMatmulAlgo_t>> *choices; // the best first; none: no algorithm
    void *bias; // room for a bias that has to be moved
    size_t bias_bytes;
};
static const size_t WORKSPACE = (size_t)32 << 20;

static void blas_check(cublasStatus_t status, const char *what, int line)
{
    if (status == CUBLAS_STATUS_SUCCESS) return;
    check_die(__FILE__, line, "cuBLASLt: %s: %s", what, cublasGetStatusString(status));
}
#define BLAS_CHECK(call) blas_check((call), #call, __LINE__)

// D (m, n) = epilogue(alpha op(A) op(B) + beta C), in columns, k terms; C lies as D does.
struct Product {
    cudaDataType in, in_b, to; // of A, of B; of C and D
    bool ta, tb;
    size_t m, n, k;
    const void *a, *b, *c;
    void *d;
    size_t lda, ldb, ldd;
    float alpha, beta;
    cublasLtEpilogue_t epilogue;
    const void *bias, *aux; // aux (m, n), ld m
    bool exact; // fp32 operands are never rounded to TF32
    const float *scale_a, *scale_b; // on the GPU, of fp8: what A and B are multiplied by
};

static int64_t alignment(const void *p)
{
    int64_t n = 256;
    while ((uintptr_t)p % (uintptr_t)n) n /= 2;
    return n;
}

struct Description {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
};

template <class T> static void set(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t name, T value)
{
    BLAS_CHECK(cublasLtMatmulDescSetAttribute(op, name, &value, sizeof value));
}

static Description describe(const Product &p, bool tf32)
{
    Description x;
    BLAS_CHECK(cublasLtMatmulDescCreate(&x.op, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(x.op, CUBLASLT_MATMUL_DESC_TRANSA, (int32_t)(p.ta ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(x.op, CUBLASLT_MATMUL_DESC_TRANSB, (int32_t)(p.tb ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(x.op, CUBLASLT_MATMUL_DESC_EPILOGUE, (int32_t)p.epilogue);
    if (p.bias) set(x.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.aux) {
        set(x.op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
        set(x.op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)p.m);
    }
    if (p.scale_a) {
        set(x.op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scale_a);
        set(x.op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scale_b);
    }
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&x.a, p.in, p.ta ? p.k : p.m, p.ta ? p.m : p.k, (int64_t)p.lda));
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&x.b, p.in_b, p.tb ? p.n : p.k, p.tb ? p.k : p.n, (int64_t)p.ldb));
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&x.d, p.to, p.m, p.n, (int64_t)p.ldd));
    return x;
}

static std::vector<cublasLtMatmulAlgo_t> choose(MatmulCuda *m, const Description &x, const Shape &shape,
                                                cublasLtEpilogue_t epilogue)
{
    const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (int i = 0; i < 4; i++) {
        uint32_t bytes = (uint32_t)shape[(size_t)i];
        BLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(m->preference, names[i], &bytes, sizeof bytes));
    }
    enum { MOST = 8 };
    cublasLtMatmulHeuristicResult_t result[MOST];
    int n = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(m->lt, x.op, x.a, x.b, x.d, x.d, m->preference, MOST, result,
                                                           &n);
    // Whatever it says of an epilogue that it does not have for this shape and type: a kernel takes its place.
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && epilogue == CUBLASLT_EPILOGUE_DEFAULT) BLAS_CHECK(status);
    std::vector<cublasLtMatmulAlgo_t> algos;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < n; i++)
        if (result[i].state == CUBLAS_STATUS_SUCCESS) algos.push_back(result[i].algo);
    return algos;
}

// Returns false without doing anything when cuBLASLt has no algorithm. The heuristic also offers algorithms that
// cublasLtMatmul then refuses (seen on an H100, with 8-bit operands): the next one is taken, from then on.
static bool product(DevCuda *dev, const Product &p)
{
    if (p.m == 0 || p.n == 0) return true;
    MatmulCuda *m = dev->matmul;
    bool tf32 = dev->options.tf32 && p.in == CUDA_R_32F && !p.exact, done = false;
    const void *c = p.beta != 0 ? p.c : p.d;
    Shape shape = {alignment(p.a), alignment(p.b), alignment(c), alignment(p.d),
                   (int64_t)p.m, (int64_t)p.n, (int64_t)p.k, (int64_t)p.lda, (int64_t)p.ldb, (int64_t)p.ldd,
                   p.in + 100 * p.in_b + 10000 * tf32, p.to, p.ta + 2 * p.tb, p.beta != 0, p.epilogue, 0};
    // The bias and the matrix beside it are part of the choice too.
    shape[15] = alignment(p.bias) * 1000 + alignment(p.aux);
    Description x = describe(p, tf32);
    auto found = m->choices->find(shape);
    if (found == m->choices->end()) found = m->choices->emplace(shape, choose(m, x, shape, p.epilogue)).first;
    for (auto &algos = found->second; !done && !algos.empty();) {
        cublasStatus_t status = cublasLtMatmul(m->lt, x.op, &p.alpha, p.a, x.a, p.b, x.b, &p.beta, c, x.d, p.d, x.d,
                                               &algos[0], m->workspace, WORKSPACE, dev->stream);
        done = status == CUBLAS_STATUS_SUCCESS;
        if (done) break;
        if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) BLAS_CHECK(status);
        algos.erase(algos.begin());
    }
    BLAS_CHECK(cublasLtMatrixLayoutDestroy(x.a));
    BLAS_CHECK(cublasLtMatrixLayoutDestroy(x.b));
    BLAS_CHECK(cublasLtMatrixLayoutDestroy(x.d));
    BLAS_CHECK(cublasLtMatmulDescDestroy(x.op));
    return done;
}

static void product_or_stop(DevCuda *dev, const Product &p)
{
    if (product(dev, p)) return;
    die("cuBLASLt: no algorithm for a product of %zu x %zu x %zu (N x OC x C; try other widths in [model])", p.n, p.m,
        p.k);
}

template <class E> static cudaDataType type_of()
{
    return sizeof(E) == 4 ? CUDA_R_32F : std::is_same<E, __half>::value ? CUDA_R_16F : CUDA_R_16BF;
}

static cudaDataType type_of(Fp8Role role)
{
    return fp8_format(role) == FORMAT_E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

// The same product in fp8, where the site runs in it: of casts of A and B, in which k is innermost. A and B have no
// gaps.
template <class E> static void in_fp8(DevCuda *d, Product &p, int site, Fp8Role role_a, Fp8Role role_b)
{
    if constexpr (std::is_same<E, __nv_bfloat16>::value) {
        if (!fp8_cuda_runs(d, site) || p.n == 0) return;
        bool turn_a = !p.ta, turn_b = p.tb;
        if (p.m % 16 || (p.k % 16 && !(turn_a && turn_b)))
            die("cuda: fp8: a matrix of %zu x %zu: both must be multiples of 16 (try numerics.fp8_keep, or other "
                "widths in [model])", p.m, p.k);
        size_t k = fp8_cuda_padded(p.k), bytes = (p.m * k + 255) / 256 * 256;
        char *a = (char *)dev_cuda_scratch(d, bytes + p.n * k), *b = a + bytes;
        const E *x = (const E *)p.a, *y = (const E *)p.b;
        p.scale_a = fp8_cuda_operand(d, a, 0, site, role_a, x, turn_a ? p.k : p.m, turn_a ? p.m : p.k, turn_a);
        p.scale_b = fp8_cuda_operand(d, b, 1, site, role_b, y, turn_b ? p.k : p.n, turn_b ? p.n : p.k, turn_b);
        p.in = type_of(role_a), p.in_b = type_of(role_b), p.ta = true, p.tb = false, p.a = a, p.b = b;
        p.lda = p.ldb = p.k = k;
    }
}

void matmul_cuda_rows(DevCuda *dev, bool tx, bool ty, size_t M, size_t N, size_t K, float alpha, const float *x,
                      const float *y, float beta, const float *c, float *z)
{
    Product p = {};
    p.in = p.in_b = p.to = CUDA_R_32F, p.ta = ty, p.tb = tx, p.m = N, p.n = M, p.k = K, p.a = y, p.b = x;
    p.c = c, p.d = z;
    p.lda = ty ? K : N, p.ldb = tx ? M : K, p.ldd = N, p.alpha = alpha, p.beta = beta;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT, p.exact = true;
    product_or_stop(dev, p);
}

namespace {

// dpre = round(dinp) gelu'(pre), where dinp is already there
template <class E> struct GeluSlope {
    E *dpre;
    const E *pre;
    template <int W> __device__ void run(size_t i) const
    {
        float d[W], x[W];
        load<W>(d, dpre + i), load<W>(x, pre + i);
        for (int k = 0; k < W; k++) d[k] *= act_gelu_slope(x[k]);
        store<W>(dpre + i, d);
    }
};

// x = x + bias[column], for products without the epilogue
template <class E> struct AddBias {
    E *x;
    const E *bias;
    size_t width;
    template <int W> __device__ void run(size_t i) const
    {
        float v[W];
        load<W>(v, x + i);
        for (int k = 0; k < W; k++) v[k] += (float)bias[(i + (size_t)k) % width];
        store<W>(x + i, v);
    }
};

// A copy that begins at a multiple of 16 bytes. The heuristic knows no alignment of a bias, and its kernels may read 16
// bytes at a time.
const void *moved_bias(DevCuda *d, const X *bias, size_t n_bytes)
{
    MatmulCuda *m = d->matmul;
    if (m->bias_bytes < n_bytes) {
        dev_cuda_wait(&d->dev);
        GPU_CHECK(cudaFree(m->bias));
        if (cudaMalloc(&m->bias, n_bytes) != cudaSuccess)
            die("cuda: no %zu bytes left on GPU %d for a bias", n_bytes, d->options.device);
        m->bias_bytes = n_bytes;
    }
    GPU_CHECK(cudaMemcpyAsync(m->bias, bias, n_bytes, cudaMemcpyDeviceToDevice, d->stream));
    return m->bias;
}

template <class E>
void matmul_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC,
                    int site)
{
    DevCuda *d = dev_cuda(dev);
    Product p = {};
    p.in = p.in_b = p.to = type_of<E>(), p.ta = true, p.m = OC, p.n = N, p.k = C;
    p.a = weight, p.b = inp, p.d = out, p.lda = C, p.ldb = C, p.ldd = OC, p.alpha = 1;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    in_fp8<E>(d, p, site, FP8_WEIGHT, FP8_INP);
    if (bias) {
        p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = aligned(bias) ? bias : moved_bias(d, bias, OC * sizeof(E));
        if (product(d, p)) return;
        p.epilogue = CUBLASLT_EPILOGUE_DEFAULT, p.bias = nullptr;
    }
    product_or_stop(d, p);
    if (bias) elements<WIDE<E>>(d, N * OC, aligned(out), AddBias<E>{ops_as<E>(out), ops_as<E>(bias), OC});
}

template <class E>
void matmul_gelu_forward(Dev *dev, X *out, X *pre, const X *inp, const X *weight, const X *bias, size_t N, size_t C,
                         size_t OC, int site)
{
    X *kept = pre ? pre : out;
    matmul_forward<E>(dev, kept, inp, weight, bias, N, C, OC, site);
    dev->act_forward(dev, out, kept, N * OC, ACT_GELU);
}

template <class E> Product backward_product(X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC)
{
    Product p = {};
    p.in = p.in_b = p.to = type_of<E>(), p.m = C, p.n = N, p.k = OC;
    p.a = weight, p.b = dout, p.d = dinp, p.lda = C, p.ldb = OC, p.ldd = C, p.alpha = 1;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return p;
}

template <class E>
void matmul_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC, int site)
{
    DevCuda *d = dev_cuda(dev);
    Product p = backward_product<E>(dinp, dout, weight, N, C, OC);
    in_fp8<E>(d, p, site, FP8_WEIGHT, FP8_DOUT);
    product_or_stop(d, p);
}

template <class E>
void matmul_gelu_backward_input(Dev *dev, X *dpre, const X *dout, const X *weight, const X *pre, size_t N, size_t C,
                                size_t OC, int site)
{
    DevCuda *d = dev_cuda(dev);
    Product p = backward_product<E>(dpre, dout, weight, N, C, OC);
    in_fp8<E>(d, p, site, FP8_WEIGHT, FP8_DOUT);
    p.epilogue = CUBLASLT_EPILOGUE_DGELU, p.aux = pre;
    if (C % 8 == 0 && aligned(pre) && product(d, p)) return;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT, p.aux = nullptr;
    product_or_stop(d, p);
    elements<WIDE<E>>(d, N * C, aligned(dpre, pre), GeluSlope<E>{ops_as<E>(dpre), ops_as<E>(pre)});
}

template <class E>
void matmul_backward_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t N, size_t C,
                            size_t OC, int site)
{
    DevCuda *d = dev_cuda(dev);
    if (N == 0) return;
    Product p = {};
    p.in = p.in_b = type_of<E>(), p.to = CUDA_R_32F, p.tb = true, p.m = C, p.n = OC, p.k = N;
    p.a = inp, p.b = dout, p.c = p.d = dweight, p.lda = C, p.ldb = OC, p.ldd = C, p.alpha = p.beta = 1;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    in_fp8<E>(d, p, site, FP8_INP, FP8_DOUT);
    product_or_stop(d, p);
    if (!dbias) return;
    float *scratch = (float *)dev_cuda_scratch(d, sums_columns_room(N, OC) * sizeof *scratch);
    sums_columns(d, dbias, ops_as<E>(dout), N, OC, OC, scratch);
}

// Sums in parts: the order is free here (dev.h), so cuBLAS's own order serves.
template <class E>
void matmul_parts_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC,
                          DevParts, int site)
{
    matmul_forward<E>(dev, out, inp, weight, bias, N, C, OC, site);
}

template <class E>
void matmul_parts_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC,
                                 DevParts, int site)
{
    matmul_backward_input<E>(dev, dinp, dout, weight, N, C, OC, site);
}

// fp32 results of 16-bit operands; the other ops of mixture of experts are in experts.cu.
template <class E>
void router_forward(Dev *dev, float *logits, const X *inp, const X *weight, size_t N, size_t C, size_t n_experts)
{
    Product p = {};
    p.in = p.in_b = type_of<E>(), p.to = CUDA_R_32F, p.ta = true, p.m = n_experts, p.n = N, p.k = C;
    p.a = weight, p.b = inp, p.d = logits, p.lda = C, p.ldb = C, p.ldd = n_experts, p.alpha = 1;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT, p.exact = true;
    product_or_stop(dev_cuda(dev), p);
}

} // namespace

void matmul_cuda_open(Dev *dev)
{
    MatmulCuda *m = new MatmulCuda{};
    uint64_t bytes = WORKSPACE;
    uint32_t reduction = 2; // CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: partial sums stay fp32
    BLAS_CHECK(cublasLtCreate(&m->lt));
    if (cudaMalloc(&m->workspace, WORKSPACE) != cudaSuccess)
        die("cuda: no %d MiB left on GPU %d for the matmuls' workspace (is another program there? nvidia-smi "
            "lists them)",
            (int)(WORKSPACE >> 20), dev_cuda(dev)->options.device);
    BLAS_CHECK(cublasLtMatmulPreferenceCreate(&m->preference));
    BLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(m->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                    sizeof bytes));
    BLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(m->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                    &reduction, sizeof reduction));
    m->choices = new std::map<Shape, std::vector<cublasLtMatmulAlgo_t>>;
    dev_cuda(dev)->matmul = m;
}

void matmul_cuda_close(Dev *dev)
{
    MatmulCuda *m = dev_cuda(dev)->matmul;
    BLAS_CHECK(cublasLtMatmulPreferenceDestroy(m->preference));
    BLAS_CHECK(cublasLtDestroy(m->lt));
    GPU_CHECK(cudaFree(m->workspace));
    GPU_CHECK(cudaFree(m->bias));
    delete m->choices;
    delete m;
}

template <class E> void matmul_cuda_fill(Dev *dev)
{
    dev->matmul_forward = matmul_forward<E>;
    dev->matmul_gelu_forward = matmul_gelu_forward<E>;
    dev->matmul_backward_input = matmul_backward_input<E>;
    dev->matmul_gelu_backward_input = matmul_gelu_backward_input<E>;
    dev->matmul_backward_weight = matmul_backward_weight<E>;
    dev->matmul_parts_forward = matmul_parts_forward<E>;
    dev->matmul_parts_backward_input = matmul_parts_backward_input<E>;
    dev->router_forward = router_forward<E>;
}
DEV_CUDA_FILL(matmul)
