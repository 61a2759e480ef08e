// dev_cpu: the CPU device: creates the op table and fills it from the files that hold the ops.
//
// The invariant: every entry is filled, and none gives different bits for different thread counts.
// OpenBLAS is held to one thread; all parallelism is OpenMP's, over tiles and rows that are cut by shape
// (see matmul.c).
//
// Which sgemm kernels OpenBLAS uses is decided when it is loaded, from the processor's name. A library
// older than the processor guesses low: 0.3.21 takes several AVX-512 machines for Haswell and runs at
// half speed. blas.c corrects that.
#include "ops/dev_cpu.h"

#include "base/check.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

void openblas_set_num_threads(int threads); // OpenBLAS' own call; not in every cblas.h

typedef struct {
    float *scratch;
    size_t n_scratch; // floats
} CpuState;

float *dev_cpu_scratch(Dev *dev, size_t n_floats)
{
    CpuState *state = (CpuState *)dev->state;
    if (n_floats > state->n_scratch) {
        free(state->scratch);
        size_t n_bytes = (n_floats * sizeof(float) + 63) / 64 * 64;
        state->scratch = (float *)aligned_alloc(64, n_bytes);
        if (!state->scratch) die("cpu: no memory for %zu bytes of scratch", n_bytes);
        state->n_scratch = n_floats;
    }
    return state->scratch;
}

static void copy(Dev *dev, void *dst, const void *src, size_t n_bytes)
{
    (void)dev;
    memcpy(dst, src, n_bytes);
}

static void add(Dev *dev, X *out_, const X *a_, const X *b_, size_t n)
{
    float *out = (float *)out_;
    const float *a = (const float *)a_, *b = (const float *)b_;
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

// Elements [4 g, 4 g + 4) from the one with global index `first` rounded down to a multiple of 4, those of the n that
// are there.
static void drop_four(float *out, const float *inp, size_t n, size_t g, uint64_t first, Dropout drop)
{
    float scale = 1 / (1 - drop.p);
    uint32_t word[4], limit = dev_cpu_dropout_limit(drop);
    rng_words(drop.rng, first / 4 + g, word);
    for (size_t w = 0; w < 4; w++) {
        size_t i = 4 * g + w - (size_t)(first % 4); // wraps below 0: then it is not < n
        if (i < n) out[i] = word[w] >= limit ? inp[i] * scale : 0;
    }
}

static size_t fours(uint64_t first, size_t n)
{
    return ((size_t)(first % 4) + n + 3) / 4;
}

static void dropout(Dev *dev, X *out_, const X *inp_, size_t n, Dropout drop)
{
    float *out = (float *)out_;
    const float *inp = (const float *)inp_;
    size_t w = drop.width, rows = drop.row ? n / w : 0;
    check(!drop.row || n == rows * w);
    if (!drop.row) {
#pragma omp parallel for schedule(static) num_threads(dev->threads)
        for (size_t g = 0; g < fours(drop.first, n); g++) drop_four(out, inp, n, g, drop.first, drop);
    }
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t r = 0; r < rows; r++) {
        uint64_t first = drop.first + (uint64_t)drop.row[r] * w;
        for (size_t g = 0; g < fours(first, w); g++) drop_four(out + r * w, inp + r * w, w, g, first, drop);
    }
}

static void accumulate(Dev *dev, float *sum, float *part, size_t n)
{
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        sum[i] += part[i];
        part[i] = 0;
    }
}

static void subtract(Dev *dev, float *out, const float *a, const float *b, size_t n)
{
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) out[i] = b ? a[i] - b[i] : a[i];
}

static void to_x(Dev *dev, X *out, const float *inp, size_t n)
{
    (void)dev;
    memcpy(out, inp, n * sizeof *inp);
}

static void from_x(Dev *dev, float *out, const X *inp, size_t n)
{
    (void)dev;
    memcpy(out, inp, n * sizeof *out);
}

static void zero(Dev *dev, void *dst, size_t n_bytes)
{
    char *bytes = (char *)dst;
    enum { PAGE = 1 << 20 };
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n_bytes; i += PAGE) memset(bytes + i, 0, n_bytes - i < PAGE ? n_bytes - i : PAGE);
}

void dev_check_complete(const Dev *dev)
{
#define OP(entry) (dev->entry ? (void)0 : die("device %s has no op '%s'", dev->name, #entry))
    OP(matmul_forward), OP(matmul_gelu_forward), OP(matmul_backward_input), OP(matmul_gelu_backward_input);
    OP(matmul_parts_forward), OP(matmul_parts_backward_input), OP(xent_max), OP(xent_sum), OP(xent_loss);
    OP(matmul_backward_weight), OP(swiglu_forward), OP(swiglu_backward), OP(add), OP(embed_forward), OP(embed_backward);
    OP(norm_forward), OP(norm_backward), OP(head_norm_forward), OP(head_norm_backward), OP(rope_forward);
    OP(rope_backward), OP(attention_forward), OP(attention_backward), OP(softmax_xent), OP(sum_squares);
    OP(sum_squares_exact), OP(adamw);
    OP(attention_part_forward), OP(attention_part_backward), OP(attention_merge);
    OP(sgd), OP(adamw8bit), OP(lion), OP(adafactor), OP(muon);
    OP(to_device), OP(to_host), OP(zero), OP(dropout), OP(to_x), OP(from_x);
    OP(gelu_forward), OP(compress), OP(decompress), OP(accumulate), OP(subtract);
    OP(clip_units);
#undef OP
}

Dev *dev_cpu_create(int threads)
{
    Dev *dev = (Dev *)calloc(1, sizeof *dev);
    if (dev) dev->state = calloc(1, sizeof(CpuState));
    if (!dev || !dev->state) die("cpu: no memory for the device");
    dev->name = "cpu";
    dev->x_type = X_FP32;
    dev->x_bytes = sizeof(float);
    dev->threads = threads > 0 ? threads : omp_get_num_procs();
    openblas_set_num_threads(1);
    dev->add = add;
    dev->to_device = copy;
    dev->to_host = copy;
    dev->zero = zero;
    dev->dropout = dropout;
    dev->to_x = to_x;
    dev->from_x = from_x;
    dev->accumulate = accumulate;
    dev->subtract = subtract;
    matmul_cpu_fill(dev);
    attention_cpu_fill(dev);
    norm_cpu_fill(dev);
    ffn_cpu_fill(dev);
    compress_cpu_fill(dev);
    rope_cpu_fill(dev);
    embed_cpu_fill(dev);
    loss_cpu_fill(dev);
    sgd_cpu_fill(dev);
    adamw_cpu_fill(dev);
    agc_cpu_fill(dev);
    adamw8bit_cpu_fill(dev);
    lion_cpu_fill(dev);
    adafactor_cpu_fill(dev);
    muon_cpu_fill(dev);
    dev_check_complete(dev);
    return dev;
}

void dev_cpu_free(Dev *dev)
{
    if (!dev) return;
    free(((CpuState *)dev->state)->scratch);
    free(dev->state);
    free(dev);
}
