// bench: how fast is a training step, as a fraction of what the machine's matmul can do?
//
// Measures the machine's sgemm peak over the very matmul shapes of the model (OpenBLAS, its own
// threading), then times whole training steps (forward, backward, gradient norm, clip, AdamW) on random
// tokens. The fraction is
//
//   flops per token (model_flops_per_token) x tokens per second / peak
//
// Peak and steps are measured in turn in one run, because machines drift. The median of the steps is
// quoted. Each case runs in a process of its own, so that the peak memory of the process (RSS) is the
// case's.
//
// With --ops a table follows each case: the steps' time by op, each beside its roofline,
//
//   seconds >= max(flops / sgemm peak, bytes / memory rate)
//
// with the flops that count (doc/performance.md), each array read or written once, and the rate at which `add` streams
// arrays that no cache holds. A device whose entries call those of the CPU's measures it, so ops that an op calls
// are part of that op. What a cache holds from the op before may be faster than its roofline.
//
// Then text is written, a token at a time, by a model of SmolLM2-135M's shape. A token reads every weight once, so its
// limit is not the matmul but the memory:
//
//   bytes of the weights x tokens per second / bytes per second of a sum over the same array, the medians of both
//
// Then the products of mixture of experts, with the rows sorted by expert, beside one sgemm of the same rows.
//
// Then attention by length, tiled (attention.c) and with the whole T x T matrix of each head, made of this library's
// products: forward and backward, and what is kept between them.
//
// Then bf16: its products by the processor's instruction (gemm_bf16.h) as a fraction of what a loop of that instruction
// alone does, and beside the fp32 device's and the widened ones; and whole steps on the three devices. All take
// turns, and times are of processors, all threads together.
#include "ops/dev_cpu.h"
#include "base/clock.h"
#include "base/check.h"
#include "tools/options.h"
#include "net/model.h"
#include "formats/gemm_bf16.h"
#include "narrow/narrow.h"
#include "train/optim.h"
#include "train/run.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    const char *name;
    ModelShape shape;
    size_t B, T;
    int steps;
    OptimName optim;  // AdamW, unless it says otherwise
    size_t documents; // tokens of a document on average, with masks between documents; 0: no masks
} Case;

enum { PEAKS = 12, MOST_STEPS = 1000 }; // measurements of the peak, at most; timed steps

static const Case cases[] = {
    {"gpt2-1024", {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64, .ffn = 3072,
                   .vocab = 50257, .context = 1024, .norm_eps = 1e-5f, .bias = true, .tie = true},
     .B = 4, .T = 1024, .steps = 3},
    {"gpt2-64", {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64, .ffn = 3072,
                 .vocab = 50257, .context = 1024, .norm_eps = 1e-5f, .bias = true, .tie = true},
     .B = 4, .T = 64, .steps = 12},
    {"demo", {.layers = 6, .channels = 256, .heads = 4, .kv_heads = 4, .head_size = 64, .ffn = 1024, .vocab = 4096,
              .context = 256, .norm_eps = 1e-5f, .bias = true, .tie = true}, .B = 16, .T = 256, .steps = 20},
    // scripts/presets/stories.toml, what `make run` trains
    {"stories", {.layers = 2, .channels = 192, .heads = 4, .kv_heads = 4, .head_size = 48, .ffn = 192, .vocab = 3000,
                 .context = 256, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rope = true, .rotary.theta = 1e4f,
                 .swiglu = true, .qk_norm = QK_NORM_HEAD, .tie = true}, .B = 8, .T = 256, .steps = 100,
     .optim = OPTIM_NORMUON, .documents = 128},
    // as many operations a token: one network of 704, or 2 of 8 experts of 352
    {"swiglu", {.layers = 6, .channels = 256, .heads = 4, .kv_heads = 4, .head_size = 64, .ffn = 704, .vocab = 4096,
               .context = 256, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rope = true, .rotary.theta = 1e4f,
               .swiglu = true}, .B = 16, .T = 256, .steps = 20},
    {"moe", {.layers = 6, .channels = 256, .heads = 4, .kv_heads = 4, .head_size = 64, .ffn = 704, .vocab = 4096,
                 .context = 256, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rope = true, .rotary.theta = 1e4f,
                 .swiglu = true, .experts = {.n = 8, .k = 2, .ffn = 352, .every = 1, .renorm = true, .scale = 1,
                                             .balance = MOE_BALANCE_SEQUENCE, .balance_coef = 0.01f}},
     .B = 16, .T = 256, .steps = 20},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

// Seconds of processors, of all threads: other programs on the machine change them little. But a thread that waits for
// one that was interrupted may spin: on a busy machine measure with --threads 1.
static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Of the instruction alone, a processor: multiplications and additions a second.
static double bf16_peak(int threads)
{
    double sum = 0, t = processor_seconds();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    sum += gemm_bf16_loop(50000);
    return sum / (processor_seconds() - t);
}

// The five forward matmuls of one micro-batch, and three of the backward pass, which exchanges the roles of
// M, N and K. bf16, where the processor multiplies it: the instruction alone.
static double case_peak(const Case *c, ConfigDtype dtype, int threads, double seconds)
{
    if (dtype == CONFIG_DTYPE_BF16 && gemm_bf16_runs()) return 1e-9 * threads * bf16_peak(threads);
    const ModelShape *s = &c->shape;
    size_t N = c->B * c->T, C = s->channels, head = N < 1024 ? N : 1024;
    size_t qkv = (s->heads + 2 * s->kv_heads) * s->head_size;
    MatmulShape shape[] = {{N, qkv, C}, {N, C, s->heads * s->head_size}, {N, s->ffn, C}, {N, C, s->ffn},
                         {head, s->vocab, C}, {N, C, qkv}, {qkv, C, N}, {s->ffn, C, N}};
    double peak = dev_cpu_peak(shape, sizeof shape / sizeof *shape, threads, seconds);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); // OpenBLAS' threads spin for a while after a product
    return peak;
}

// ---- time by op

typedef struct {
    char name[40];
    const char *phase;
    double seconds, flops, bytes;
    long calls;
} OpRow;

enum { OP_ROWS = 64 };
typedef struct {
    Dev dev; // first, so that a Dev * can be cast to a Timed *
    Dev *cpu;
    OpRow row[OP_ROWS];
    size_t n_rows;
} Timed;

// C, OC: the sizes of a matrix, which has a row of its own; 0: none.
static void op_add(Timed *t, const char *op, const char *phase, size_t C, size_t OC, double begin, double flops,
                   double n_bytes)
{
    double seconds = clock_seconds() - begin;
    char name[sizeof t->row->name];
    if (C) snprintf(name, sizeof name, "%s, %zu to %zu", op, C, OC);
    else snprintf(name, sizeof name, "%s", op);
    size_t i = 0;
    while (i < t->n_rows && strcmp(t->row[i].name, name)) i++;
    check(i < OP_ROWS);
    if (i == t->n_rows) {
        memcpy(t->row[i].name, name, sizeof name);
        t->row[t->n_rows++].phase = phase;
    }
    t->row[i].seconds += seconds, t->row[i].flops += flops, t->row[i].bytes += n_bytes;
    t->row[i].calls++;
}

// An entry of the table that calls the CPU's: `params` after Dev *, the names of these parameters, what the rows of one
// matrix share, and flops and bytes of a call (each: of an element of X).
#define UNPACK(...) __VA_ARGS__
#define TIMED(op, phase, C, OC, flops, n_bytes, params, names) \
    static void timed_##op(Dev *dev, UNPACK params) \
    { \
        Timed *t = (Timed *)dev; \
        size_t each = t->cpu->x_bytes; \
        double begin = clock_seconds(); \
        t->cpu->op(t->cpu, UNPACK names); \
        (void)each, op_add(t, #op, phase, C, OC, begin, (double)(flops), (double)(n_bytes)); \
    }

TIMED(matmul_forward, "forward", C, OC, 2 * N * C * OC, each * (N * C + C * OC + N * OC),
      (X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC, int site),
      (out, inp, weight, bias, N, C, OC, site))
TIMED(matmul_gelu_forward, "forward", C, OC, 2 * N * C * OC, each * (N * C + C * OC + (pre ? 2 : 1) * N * OC),
      (X *out, X *pre, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC, int site),
      (out, pre, inp, weight, bias, N, C, OC, site))
TIMED(matmul_backward_input, "backward", OC, C, 2 * N * C * OC, each * (N * C + C * OC + N * OC),
      (X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC, int site),
      (dinp, dout, weight, N, C, OC, site))
TIMED(matmul_gelu_backward_input, "backward", OC, C, 2 * N * C * OC, each * (2 * N * C + C * OC + N * OC),
      (X *dpre, const X *dout, const X *weight, const X *pre, size_t N, size_t C, size_t OC, int site),
      (dpre, dout, weight, pre, N, C, OC, site))
TIMED(matmul_backward_weight, "backward", C, OC, 2 * N * C * OC, each * (N * C + N * OC) + 8 * C * OC,
      (float *dweight, float *dbias, const X *dout, const X *inp, size_t N, size_t C, size_t OC, int site),
      (dweight, dbias, dout, inp, N, C, OC, site))
TIMED(act_forward, "forward", 0, 0, 0, each * 2 * n, (X *out, const X *pre, size_t n, ActKind kind), (out, pre, n, kind))
TIMED(act_backward, "backward", 0, 0, 0, each * 3 * n, (X *dpre, const X *dout, const X *pre, size_t n, ActKind kind),
      (dpre, dout, pre, n, kind))
TIMED(swiglu_forward, "forward", 0, 0, 0, each * 3 * N * F, (X *out, const X *gate_up, size_t N, size_t F),
      (out, gate_up, N, F))
TIMED(swiglu_backward, "backward", 0, 0, 0, each * 5 * N * F,
      (X *dgate_up, const X *dout, const X *gate_up, size_t N, size_t F), (dgate_up, dout, gate_up, N, F))
TIMED(add, "forward", 0, 0, 0, each * 3 * n, (X *out, const X *a, const X *b, size_t n), (out, a, b, n))
TIMED(embed_forward, "forward", 0, 0, 0, each * (wpe ? 3 : 2) * N * C,
      (X *out, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe, size_t N, size_t C),
      (out, token, pos, wte, wpe, N, C))
TIMED(embed_backward, "backward", 0, 0, 0, (each + (dwpe ? 16 : 8)) * N * C,
      (float *dwte, float *dwpe, const X *dout, const int32_t *token, const int32_t *pos, size_t N, size_t C, size_t V),
      (dwte, dwpe, dout, token, pos, N, C, V))
TIMED(norm_forward, "forward", 0, 0, 0, each * (b ? 4 : 2) * N * C,
      (X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight, const X *bias, size_t N,
       size_t C, NormKind kind, float eps), (out, sum, mean, rstd, a, b, weight, bias, N, C, kind, eps))
TIMED(norm_backward, "backward", 0, 0, 0, each * (dresid ? 4 : 3) * N * C,
      (X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid, const X *inp, const float *mean,
       const float *rstd, const X *weight, size_t N, size_t C, NormKind kind),
      (dinp, dweight, dbias, dout, dresid, inp, mean, rstd, weight, N, C, kind))
TIMED(head_norm_forward, "forward", 0, 0, 0, each * 2 * N * heads * D,
      (X *out, float *rstd, const X *inp, const X *weight, size_t N, size_t heads, size_t D, size_t ld, float eps),
      (out, rstd, inp, weight, N, heads, D, ld, eps))
TIMED(head_norm_backward, "backward", 0, 0, 0, each * 3 * N * heads * D,
      (X *dinp, float *dweight, const X *dout, const X *inp, const float *rstd, const X *weight, size_t N, size_t heads,
       size_t D, size_t ld), (dinp, dweight, dout, inp, rstd, weight, N, heads, D, ld))
TIMED(rope_forward, "forward", 0, 0, 0, each * 2 * N * heads * D,
      (X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope),
      (x, pos, N, heads, D, ld, rope))
TIMED(rope_backward, "backward", 0, 0, 0, each * 2 * N * heads * D,
      (X *dx, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope),
      (dx, pos, N, heads, D, ld, rope))
TIMED(softmax_xent, "backward", 0, 0, 0, each * (dlogits ? 2 : 1) * N * V, // the loss is in the head's backward pass
      (float *loss, X *dlogits, const X *logits, const int32_t *target, size_t N, size_t V, float scale, float cap),
      (loss, dlogits, logits, target, N, V, scale, cap))
TIMED(copy, "other", 0, 0, 0, each * 2 * rows * width,
      (X *out, const X *inp, size_t rows, size_t width, size_t ld_out, size_t ld_inp),
      (out, inp, rows, width, ld_out, ld_inp))
TIMED(update, "optimizer", 0, 0, 0, (sizeof(float) * (4 + 2 * (m != NULL) + 2 * (v != NULL)) + (u.copy ? each : 0)) * n,
      (OptimName rule, float *weight, float *m, float *v, float *grad, size_t n, Update u),
      (rule, weight, m, v, grad, n, u))

// The polynomial's products, of which two of three are symmetric, so that half of each is enough.
static double muon_flops(size_t R, size_t C)
{
    double n = (double)(R * C), k = (double)(R < C ? R : C);
    return 5 * (3 * k * n + k * k * k);
}

TIMED(muon, "optimizer", R, C, muon_flops(R, C), sizeof(float) * 6 * R * C,
      (float *weight, float *m, float *row, float *grad, float *scratch, size_t R, size_t C, Update u),
      (weight, m, row, grad, scratch, R, C, u))

static double timed_sum_squares(Dev *dev, const float *x, size_t n)
{
    Timed *t = (Timed *)dev;
    double begin = clock_seconds(), sum = t->cpu->sum_squares(t->cpu, x, n);
    op_add(t, "sum_squares", "optimizer", 0, 0, begin, 0, (double)(sizeof *x * n));
    return sum;
}

// Pairs of a query and a key that it sees: half of T x T without documents, as model_flops_per_token counts.
static double attention_pairs(AttnShape s)
{
    if (!s.first) return 0.5 * (double)(s.B * s.Tq) * (double)s.Tk;
    double pairs = 0;
    for (size_t i = 0; i < s.B * s.Tq; i++) pairs += (double)(i % s.Tq + 1) - s.first[i];
    return pairs;
}

TIMED(attention_forward, "forward", 0, 0, 4 * (double)(s.H * s.D) * attention_pairs(s),
      each * s.B * (2 * s.Tq * s.H + 2 * s.Tk * s.G) * s.D,
      (X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s), (out, lse, q, k, v, s))
TIMED(attention_backward, "backward", 0, 0, 8 * (double)(s.H * s.D) * attention_pairs(s),
      each * s.B * (4 * s.Tq * s.H + 4 * s.Tk * s.G) * s.D,
      (X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q, const X *k, const X *v,
       AttnShape s), (dq, dk, dv, dout, out, lse, q, k, v, s))

TIMED(to_x, "other", 0, 0, 0, (each + sizeof(float)) * n, (X *out, const float *inp, size_t n), (out, inp, n))
TIMED(from_x, "other", 0, 0, 0, (each + sizeof(float)) * n, (float *out, const X *inp, size_t n), (out, inp, n))

static Timed timed_create(Dev *cpu)
{
    Timed t = {.dev = *cpu, .cpu = cpu};
#define ENTRY(op) t.dev.op = timed_##op
    ENTRY(matmul_forward), ENTRY(matmul_gelu_forward), ENTRY(matmul_backward_input);
    ENTRY(matmul_gelu_backward_input), ENTRY(matmul_backward_weight), ENTRY(swiglu_forward), ENTRY(swiglu_backward);
    ENTRY(act_forward), ENTRY(act_backward);
    ENTRY(add), ENTRY(embed_forward), ENTRY(embed_backward), ENTRY(norm_forward), ENTRY(norm_backward);
    ENTRY(head_norm_forward), ENTRY(head_norm_backward), ENTRY(rope_forward), ENTRY(rope_backward);
    ENTRY(softmax_xent), ENTRY(copy), ENTRY(update), ENTRY(muon), ENTRY(sum_squares);
    ENTRY(attention_forward), ENTRY(attention_backward), ENTRY(to_x), ENTRY(from_x);
#undef ENTRY
    return t;
}

// Bytes a second of `add` over arrays of 64 MiB.
static double memory_rate(Dev *cpu)
{
    enum { TIMES = 7 };
    size_t n = (size_t)1 << 24;
    float *a = calloc(3 * n, sizeof *a);
    double best = INFINITY;
    if (!a) die("bench: no memory for 3 arrays of %zu bytes", n * sizeof *a);
    for (int i = 0; i < TIMES; i++) {
        double t = clock_seconds();
        cpu->add(cpu, (X *)a, (X *)(a + n), (X *)(a + 2 * n), n);
        t = clock_seconds() - t;
        if (t < best) best = t;
    }
    free(a);
    return 3 * (double)(n * sizeof *a) / best;
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const OpRow *)a)->seconds, y = ((const OpRow *)b)->seconds;
    return (x < y) - (x > y);
}

// seconds: of all steps together; peak in flops a second.
static void ops_table(Timed *t, Dev *cpu, const char *name, int steps, double seconds, double peak)
{
    static const char *const phases[] = {"forward", "backward", "optimizer", "other"};
    double memory = memory_rate(cpu), ops = 0, all = 0;
    qsort(t->row, t->n_rows, sizeof *t->row, by_seconds);
    printf("\n%s, by op, a step; memory %.1f GB/s\n\n| op | phase | calls | ms | share | GFLOP | MB | roofline ms | of "
           "roofline |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n", name, memory / 1e9);
    for (size_t i = 0; i < t->n_rows; i++) {
        const OpRow *r = &t->row[i];
        double least = fmax(r->flops / peak, r->bytes / memory);
        printf("| %s | %s | %.0f | %.3f | %.1f%% | %.4f | %.1f | %.3f | %.0f%% |\n", r->name, r->phase,
               (double)r->calls / steps, 1e3 * r->seconds / steps, 100 * r->seconds / seconds, r->flops / steps / 1e9,
               r->bytes / steps / 1e6, 1e3 * least / steps, 100 * least / r->seconds);
        ops += r->seconds, all += least;
    }
    for (size_t p = 0; p < sizeof phases / sizeof *phases; p++) {
        double in = 0, least = 0;
        for (size_t i = 0; i < t->n_rows; i++)
            if (!strcmp(t->row[i].phase, phases[p])) {
                in += t->row[i].seconds;
                least += fmax(t->row[i].flops / peak, t->row[i].bytes / memory);
            }
        if (in > 0)
            printf("| **all** | %s | | %.3f | %.1f%% | | | %.3f | %.0f%% |\n", phases[p], 1e3 * in / steps,
                   100 * in / seconds, 1e3 * least / steps, 100 * least / in);
    }
    printf("| **between the ops** | | | %.3f | %.1f%% | | | | |\n| **the step** | | | %.3f | 100%% | | | %.3f | %.0f%% |"
           "\n", 1e3 * (seconds - ops) / steps, 100 * (1 - ops / seconds), 1e3 * seconds / steps, 1e3 * all / steps,
           100 * all / seconds);
}

// ---- whole steps

// Random tokens and targets (B, T), and where documents begin (first (B, T)).
static void random_batch(const Case *c, int32_t *token, int32_t *target, int32_t *first)
{
    Rng rng = rng_make(1, "bench", 0), cuts = rng_make(1, "bench documents", 0);
    size_t N = c->B * c->T;
    for (size_t i = 0; i < N; i++) token[i] = (int32_t)rng_below(rng, i, c->shape.vocab);
    for (size_t i = 0; i < N; i++) target[i] = (int32_t)rng_below(rng, N + i, c->shape.vocab);
    for (size_t i = 0; i < N && c->documents; i++) {
        bool begins = i % c->T == 0 || rng_below(cuts, i, c->documents) == 0;
        first[i] = begins ? (int32_t)(i % c->T) : first[i - 1];
    }
}

static void run_case(const Case *c, ConfigDtype dtype, int threads, int steps, bool ops)
{
    Mem mem = {0};
    dev_cpu_blas_room(threads, true);
    Config numerics = {.numerics.dtype = dtype};
    Dev *cpu = dev_cpu_create(threads), *dev = run_device(&numerics, cpu);
    Timed timed = timed_create(dev);
    Model *model = model_create(&c->shape, ops ? &timed.dev : dev, &mem, c->B, c->T, 1, true);
    Optim optim = optim_create(model, (OptimSettings){.name = c->optim, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                                      .weight_decay = 0.1f, .clip = 1, .momentum = 0.95f,
                                                      .row_beta2 = 0.95f});
    size_t N = c->B * c->T;
    int32_t *token = malloc(3 * N * sizeof *token), *target = token + N, *first = token + 2 * N;
    double time[MOST_STEPS], peak[PEAKS], part[PEAKS], all = 0, loss = 0, flops = model_flops_per_token(&c->shape, c->T);
    struct rusage usage = {0};
    int n_peaks = 0, every = (steps + PEAKS - 1) / PEAKS;
    if (!token) die("bench: no memory for %zu tokens", N);
    random_batch(c, token, target, first);
    for (int i = -1; i < steps; i++) { // the first is the warm-up
        if (i == 0) timed.n_rows = 0, memset(timed.row, 0, sizeof timed.row);
        double t = clock_seconds();
        model_set_batch(model, token, NULL, target, c->B, c->T);
        if (c->documents) model_set_documents(model, first);
        loss = model_forward_backward(model, 1 / (float)N) / (double)N;
        optim_step(&optim, model, 1e-4);
        if (i < 0) continue;
        all += time[i] = clock_seconds() - t;
        if (i == 0) getrusage(RUSAGE_SELF, &usage); // before the peak's matrices
        if (i % every) continue;
        peak[n_peaks] = case_peak(c, dtype, dev->threads, fmin(2, fmax(0.2, time[i])));
        part[n_peaks] = 1e-9 * flops * (double)N / time[i] / peak[n_peaks], n_peaks++;
    }
    double rate = (double)N / median(time, steps), top = median(peak, n_peaks);
    printf("| %-9s | %2zu x %4zu | %9.1f | %9.0f | %8.0f | %10.0f | %6.1f%% | %10.0f | %8.0f | %7.4f |\n", c->name,
           c->B, c->T, 1e3 * (double)N / rate, rate, 1e-9 * flops * rate, top, 100 * median(part, n_peaks),
           (double)mem.peak / 1e6, (double)usage.ru_maxrss / 1e3, loss);
    if (ops) ops_table(&timed, cpu, c->name, steps, all, 1e9 * top);
    fflush(stdout);
    free(token);
    mem_free_all(&mem);
    model_free(model);
    run_device_free(dev, cpu);
}

// ---- writing text

static const ModelShape writer = {.layers = 30, .channels = 576, .heads = 9, .kv_heads = 3, .head_size = 64,
                                  .ffn = 1536, .vocab = 49152, .context = 512, .norm_eps = 1e-5f, .norm = NORM_RMSNORM,
                                  .swiglu = true, .rope = true, .rotary = {.theta = 1e5f}, .tie = true};

// Seconds in which `threads` read an array.
static double read_time(const float *a, size_t n, int threads)
{
    float sum = 0;
    double t = clock_seconds();
#pragma omp parallel for simd schedule(static) reduction(+ : sum) num_threads(threads)
    for (size_t k = 0; k < n; k++) sum += a[k];
    if (!(sum < INFINITY)) die("bench: the sum of the weights is not finite");
    return clock_seconds() - t;
}

static void run_decode(ConfigDtype dtype, int threads, int tokens)
{
    enum { PROMPT = 16 };
    Mem mem = {0};
    Config numerics = {.numerics.dtype = dtype};
    Dev *cpu = dev_cpu_create(threads), *dev = run_device(&numerics, cpu);
    Model *model = model_create(&writer, dev, &mem, 1, PROMPT, 1, false);
    KvCache cache = model_cache_create(model);
    int32_t token[PROMPT] = {0};
    float *logits = malloc(writer.vocab * sizeof *logits);
    double *time = malloc(2 * (size_t)tokens * sizeof *time), *memory = time + tokens;
    if (!logits || !time) die("bench: no memory for %zu logits", writer.vocab);
    model_next_logits(model, &cache, token, PROMPT, logits);
    for (int i = 0; i < tokens; i++) { // in turn, because machines drift
        double t = clock_seconds();
        model_next_logits(model, &cache, token + i % PROMPT, 1, logits);
        time[i] = clock_seconds() - t;
        memory[i] = read_time(model->weights, model->params.n_elems, cpu->threads);
    }
    qsort(time, (size_t)tokens, sizeof *time, by_value);
    qsort(memory, (size_t)tokens, sizeof *memory, by_value);
    double median = time[tokens / 2], bytes = (double)(model->params.n_elems * dev->x_bytes);
    double rate = (double)(model->params.n_elems * sizeof *model->weights) / memory[tokens / 2];
    printf("| %-8s | %8.2f | %9.1f | %4.0f | %9.1f | %11.1f | %8.1f%% |\n", dev->name, median * 1e3, 1 / median,
           bytes / 1e6, bytes / median / 1e9, rate / 1e9, 100 * bytes / median / rate);
    free(logits), free(time);
    mem_free_all(&mem);
    model_free(model);
    run_device_free(dev, cpu);
}

static void decode_table(int threads, int tokens)
{
    printf("\n| dtype    | ms/token | tokens/s  |  MB  | GB/s read | memory GB/s | of memory |\n|---|---|---|---|---|---|---|\n");
    run_decode(CONFIG_DTYPE_FP32, threads, tokens);
    run_decode(CONFIG_DTYPE_BF16, threads, tokens);
}

// ---- products of experts

enum { EXPERTS = 8, ROWS = 512 };

typedef struct {
    float *weight, *rows, *wide; // (EXPERTS, OC, C), (EXPERTS ROWS, C), (EXPERTS ROWS, OC)
    size_t C, OC;
    DevExperts experts;
} ExpertArrays;

static void expert_product(Dev *dev, const ExpertArrays *a, int which)
{
    X *weight = (X *)a->weight, *rows = (X *)a->rows, *wide = (X *)a->wide;
    if (which == 0) dev->experts_forward(dev, wide, rows, weight, a->C, a->OC, a->experts);
    if (which == 1) dev->experts_backward_input(dev, rows, wide, weight, a->C, a->OC, a->experts);
    if (which == 2) dev->experts_backward_weight(dev, a->weight, wide, rows, a->C, a->OC, a->experts);
}

static void experts_row(Dev *dev, size_t C, size_t OC)
{
    static const char *const name[] = {"forward", "backward, input", "backward, weight"};
    enum { TIMES = 9 };
    int32_t offset[EXPERTS + 1];
    for (int e = 0; e <= EXPERTS; e++) offset[e] = e * ROWS;
    size_t R = EXPERTS * ROWS;
    ExpertArrays a = {calloc(EXPERTS * OC * C, 4), calloc(R * C, 4), calloc(R * OC, 4), C, OC,
                      {.offset = offset, .E = EXPERTS, .R = R, .stride = OC * C, .sources = 1}};
    if (!a.weight || !a.rows || !a.wide) die("bench: no memory for %d experts of %zu x %zu", EXPERTS, OC, C);
    for (size_t i = 0; i < EXPERTS * OC * C; i++) a.weight[i] = 1e-3f * (float)(i % 7);
    for (size_t i = 0; i < R * C; i++) a.rows[i] = 1e-3f * (float)(i % 5);
    MatmulShape shape[] = {{R, OC, C}, {R, C, OC}, {OC, C, R}};
    for (int which = 0; which < 3; which++) {
        double time[TIMES], peak = dev_cpu_peak(shape + which, 1, dev->threads, 1.0);
        expert_product(dev, &a, which);
        for (int i = 0; i < TIMES; i++) {
            double t = clock_seconds();
            expert_product(dev, &a, which);
            time[i] = clock_seconds() - t;
        }
        qsort(time, TIMES, sizeof *time, by_value);
        double gflops = 2e-9 * (double)(R * C * OC) / time[TIMES / 2];
        printf("| %d x %d | %4zu | %4zu | %-16s | %8.2f | %8.0f | %10.0f | %6.1f%% |\n", EXPERTS, ROWS, C, OC,
               name[which], 1e3 * time[TIMES / 2], gflops, peak, 100 * gflops / peak);
        fflush(stdout);
    }
    free(a.weight), free(a.rows), free(a.wide);
}

static void experts_table(int threads)
{
    dev_cpu_blas_room(threads, true);
    Dev *dev = dev_cpu_create(threads);
    printf("\n| experts |  C   |  OC  | product          |    ms    | GFLOP/s  | sgemm peak | of peak |\n"
           "|---|---|---|---|---|---|---|---|\n");
    experts_row(dev, 1024, 2048);
    experts_row(dev, 1024, 768);
    dev_cpu_free(dev);
}

// ---- bf16

enum { ON_HARDWARE, ON_FP32, ON_WIDENED, DEVICES, TURNS = 5 };

// hardware, fp32, widened
static void devices_open(Dev **dev, Dev *cpu)
{
    dev[ON_HARDWARE] = narrow_create(cpu, (NarrowOptions){.x_type = X_BF16, .products = PRODUCTS_HARDWARE});
    dev[ON_FP32] = cpu;
    dev[ON_WIDENED] = narrow_create(cpu, (NarrowOptions){.x_type = X_BF16, .products = PRODUCTS_WIDENED});
}

// ---- attention

enum { HEADS = 4, HEAD = 64, ARRAYS = 8 };

// (HEADS, T, HEAD) each; p and dp (HEADS, T, T) and (T, T), lse (HEADS, T).
typedef struct {
    float *q, *k, *v, *out, *dout, *dq, *dk, *dv, *p, *dp, *lse;
    size_t T;
} Heads;

// Causal softmax of rows of scores; backward: p becomes the scores' gradient from dp, that of the probabilities.
static void softmax_rows(float *p, float *dp, size_t T)
{
    const float scale = 1 / sqrtf(HEAD);
#pragma omp parallel for schedule(static, 8)
    for (size_t t = 0; t < T; t++) {
        float *row = p + t * T, *d = dp ? dp + t * T : NULL, top = -INFINITY, sum = 0;
        for (size_t j = 0; d && j <= t; j++) sum += row[j] * d[j];
        for (size_t j = 0; d && j < T; j++) d[j] = j <= t ? scale * row[j] * (d[j] - sum) : 0;
        if (d) continue;
        for (size_t j = 0; j <= t; j++) top = fmaxf(top, row[j]);
        for (size_t j = 0; j <= t; j++) sum += row[j] = expf(scale * (row[j] - top));
        for (size_t j = 0; j < T; j++) row[j] = j <= t ? row[j] / sum : 0;
    }
}

// S = Q K^T, P = softmax S, O = P V; dV = P^T dO, dP = dO V^T, dQ = dS K, dK = dS^T Q. The whole square is computed,
// as by a framework without a kernel for attention.
static void attend_naive(Dev *dev, const Heads *a)
{
    size_t T = a->T, n = T * HEAD;
    for (size_t h = 0; h < HEADS; h++) {
        X *p = (X *)(a->p + h * T * T);
        dev->matmul_forward(dev, p, (X *)(a->q + h * n), (X *)(a->k + h * n), NULL, T, HEAD, T, -1);
        softmax_rows((float *)p, NULL, T);
        dev->matmul_backward_input(dev, (X *)(a->out + h * n), p, (X *)(a->v + h * n), T, HEAD, T, -1);
    }
    memset(a->dk, 0, HEADS * n * sizeof *a->dk), memset(a->dv, 0, HEADS * n * sizeof *a->dv);
    for (size_t h = 0; h < HEADS; h++) {
        X *p = (X *)(a->p + h * T * T), *dp = (X *)a->dp, *dout = (X *)(a->dout + h * n);
        dev->matmul_backward_weight(dev, a->dv + h * n, NULL, p, dout, T, HEAD, T, -1);
        dev->matmul_forward(dev, dp, dout, (X *)(a->v + h * n), NULL, T, HEAD, T, -1);
        softmax_rows((float *)p, a->dp, T);
        dev->matmul_backward_input(dev, (X *)(a->dq + h * n), dp, (X *)(a->k + h * n), T, HEAD, T, -1);
        dev->matmul_backward_weight(dev, a->dk + h * n, NULL, dp, (X *)(a->q + h * n), T, HEAD, T, -1);
    }
}

static void attend_tiled(Dev *dev, const Heads *a)
{
    AttnShape s = {.B = HEADS, .Tq = a->T, .Tk = a->T, .H = 1, .G = 1, .D = HEAD, .ldq = HEAD, .ldkv = HEAD};
    X *q = (X *)a->q, *k = (X *)a->k, *v = (X *)a->v, *out = (X *)a->out;
    dev->attention_forward(dev, out, a->lse, q, k, v, s);
    dev->attention_backward(dev, (X *)a->dq, (X *)a->dk, (X *)a->dv, (X *)a->dout, out, a->lse, q, k, v, s);
}

static void attention_row(Dev *dev, size_t T)
{
    size_t n = HEADS * T * HEAD;
    float *all = malloc((ARRAYS * n + (HEADS + 1) * T * T + HEADS * T) * sizeof *all), *x = all;
    double naive[TURNS], tiled[TURNS], times[TURNS];
    if (!all) die("bench: no memory for %d heads of %zu x %zu", HEADS, T, T);
    Heads a = {.T = T, .q = x, .k = x + n, .v = x + 2 * n, .dout = x + 3 * n, .out = x + 4 * n, .dq = x + 5 * n,
               .dk = x + 6 * n, .dv = x + 7 * n, .p = x + ARRAYS * n, .dp = x + ARRAYS * n + HEADS * T * T};
    a.lse = a.dp + T * T;
    Rng rng = rng_make(1, "bench", 0);
    for (size_t i = 0; i < 4 * n; i++) x[i] = (float)rng_below(rng, i, 2001) / 1000 - 1;
    float *first = malloc(4 * n * sizeof *first), worst = 0; // out, dq, dk, dv of the naive way
    if (!first) die("bench: no memory for %zu numbers", 4 * n);
    for (int i = -1; i < TURNS; i++) { // the first is the warm-up
        double begin = processor_seconds();
        attend_naive(dev, &a);
        double between = processor_seconds();
        if (i < 0) memcpy(first, a.out, 4 * n * sizeof *first);
        double again = processor_seconds();
        attend_tiled(dev, &a);
        if (i >= 0) naive[i] = between - begin, tiled[i] = processor_seconds() - again, times[i] = naive[i] / tiled[i];
    }
    for (size_t i = 0; i < 4 * n; i++) worst = fmaxf(worst, fabsf(first[i] - a.out[i]));
    if (!(worst <= 1e-4f)) die("bench: the two attentions differ by %g at length %zu", (double)worst, T);
    printf("| %5zu | %8.1f | %8.1f | %5.2f | %8.3f | %8.3f |\n", T, 1e3 * median(naive, TURNS),
           1e3 * median(tiled, TURNS), median(times, TURNS), 4e-6 * (double)(HEADS * T * T),
           4e-6 * (double)(HEADS * T));
    fflush(stdout);
    free(all), free(first);
}

static void attention_table(int threads)
{
    dev_cpu_blas_room(threads, true);
    Dev *dev = dev_cpu_create(threads);
    printf("\nattention of %d heads of %d, forward and backward, in processor time\n\n"
           "| length | T x T, ms | tiled, ms | times | MB kept, T x T | MB kept, tiled |\n"
           "|---:|---:|---:|---:|---:|---:|\n", HEADS, HEAD);
    for (size_t T = 256; T <= 4096; T *= 2) attention_row(dev, T);
    dev_cpu_free(dev);
}

// ---- products in bf16

typedef struct {
    X *inp, *weight, *out;
    float *dweight;
} ProductArrays;

static void run_product(Dev *dev, ProductArrays a, int which, size_t N, size_t C, size_t OC)
{
    if (which == 0) dev->matmul_forward(dev, a.out, a.inp, a.weight, NULL, N, C, OC, -1);
    if (which == 1) dev->matmul_backward_input(dev, a.inp, a.out, a.weight, N, C, OC, -1);
    if (which == 2) dev->matmul_backward_weight(dev, a.dweight, NULL, a.out, a.inp, N, C, OC, -1);
}

// Cells of the three products of a layer: of the peak; times as fast as fp32; times as fast as widened.
static void product_row(const char *model, const char *layer, Dev **dev, size_t N, size_t C, size_t OC)
{
    ProductArrays a = {calloc(N * C, 4), calloc(OC * C, 4), calloc(N * OC, 4), calloc(OC * C, 4)};
    if (!a.inp || !a.weight || !a.out || !a.dweight) die("bench: no memory for %zu x %zu x %zu", N, C, OC);
    printf("| %-9s | %-5s | %4zu, %4zu, %5zu |", model, layer, N, C, OC);
    for (int which = 0; which < 3; which++) {
        double of_peak[TURNS], to[DEVICES][TURNS], time[DEVICES];
        for (int i = -1; i < TURNS; i++) { // the first is the warm-up
            for (int d = 0; d < DEVICES; d++) {
                double t = processor_seconds();
                run_product(dev[d], a, which, N, C, OC);
                time[d] = processor_seconds() - t;
            }
            if (i < 0) continue;
            of_peak[i] = 2.0 * (double)(N * C * OC) / time[ON_HARDWARE] / bf16_peak(dev[ON_FP32]->threads);
            for (int d = 0; d < DEVICES; d++) to[d][i] = time[d] / time[ON_HARDWARE];
        }
        printf(" %3.0f%%, %4.2f, %4.2f |", 100 * median(of_peak, TURNS), median(to[ON_FP32], TURNS),
               median(to[ON_WIDENED], TURNS));
        fflush(stdout);
    }
    printf("\n");
    free(a.inp), free(a.weight), free(a.out), free(a.dweight);
}

static void products_table(int threads)
{
    static const int models[] = {0, 1, 2}; // of `cases`
    dev_cpu_blas_room(threads, false);
    Dev *cpu = dev_cpu_create(threads), *dev[DEVICES];
    devices_open(dev, cpu);
    printf("\nAVX512-BF16: a loop of the instruction alone does %.0f GFLOP/s a processor; threads: %d\n\n"
           "| model     | layer |    N, C, OC     | forward           | backward, input   | backward, weight  |\n"
           "|---|---|---|---|---|---|\n", bf16_peak(cpu->threads) / 1e9, cpu->threads);
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const Case *c = &cases[models[m]];
        const ModelShape *s = &c->shape;
        size_t N = c->B * c->T < 1024 ? c->B * c->T : 1024, C = s->channels, hd = s->heads * s->head_size;
        product_row(c->name, "q,k,v", dev, N, C, (s->heads + 2 * s->kv_heads) * s->head_size);
        product_row(c->name, "out", dev, N, hd, C);
        product_row(c->name, "up", dev, N, C, s->ffn);
        product_row(c->name, "down", dev, N, s->ffn, C);
        product_row(c->name, "head", dev, N, C, s->vocab);
    }
    narrow_free(dev[ON_HARDWARE]), narrow_free(dev[ON_WIDENED]);
    dev_cpu_free(cpu);
}

typedef struct {
    Mem mem;
    Model *model;
    Optim optim;
} Step;

static double run_step(Step *s, const int32_t *token, const Case *c)
{
    size_t N = c->B * c->T;
    double t = processor_seconds();
    model_set_batch(s->model, token, NULL, token + N, c->B, c->T);
    model_forward_backward(s->model, 1 / (float)N);
    optim_step(&s->optim, s->model, 1e-4);
    return processor_seconds() - t;
}

static void steps_row(const Case *c, int threads, int steps)
{
    size_t N = c->B * c->T;
    Dev *cpu = dev_cpu_create(threads), *dev[DEVICES];
    devices_open(dev, cpu);
    Step step[DEVICES] = {0};
    double *time = malloc(5 * (size_t)steps * sizeof *time), *to[DEVICES], *took[DEVICES];
    int32_t *token = malloc(2 * N * sizeof *token);
    if (!time || !token) die("bench: no memory for %zu tokens", N);
    Rng rng = rng_make(1, "bench", 0);
    for (size_t i = 0; i < 2 * N; i++) token[i] = (int32_t)rng_below(rng, i, c->shape.vocab);
    for (int d = 0; d < DEVICES; d++) {
        took[d] = time + d * steps, to[d] = time + (d == ON_FP32 ? 3 : 4) * steps;
        step[d].model = model_create(&c->shape, dev[d], &step[d].mem, c->B, c->T, 1, true);
        step[d].optim = optim_create(step[d].model, (OptimSettings){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                                                    .weight_decay = 0.1f, .clip = 1});
    }
    for (int i = -1; i < steps; i++) {
        double t[DEVICES];
        for (int d = 0; d < DEVICES; d++) t[d] = run_step(&step[d], token, c);
        for (int d = 0; i >= 0 && d < DEVICES; d++) {
            took[d][i] = t[d];
            if (d != ON_HARDWARE) to[d][i] = t[d] / t[ON_HARDWARE];
        }
    }
    printf("| %-9s | %2zu x %4zu |", c->name, c->B, c->T);
    for (int d = 0; d < DEVICES; d++) printf(" %7.1f |", 1e3 * median(took[d], steps));
    printf(" %4.2f | %4.2f |\n", median(to[ON_FP32], steps), median(to[ON_WIDENED], steps));
    fflush(stdout);
    for (int d = 0; d < DEVICES; d++) {
        mem_free_all(&step[d].mem);
        model_free(step[d].model);
    }
    free(time), free(token);
    narrow_free(dev[ON_HARDWARE]), narrow_free(dev[ON_WIDENED]);
    dev_cpu_free(cpu);
}

static void bf16_tables(bool products, int threads, int steps)
{
    if (!gemm_bf16_runs()) {
        printf("\nbf16: this processor has no instruction for its products\n");
        return;
    }
    if (products) products_table(threads);
    printf("\n| model     |   B x T   | bf16 ms | fp32 ms | widened | fp32 / bf16 | widened / bf16 |\n"
           "|---|---|---|---|---|---|---|\n");
    for (size_t c = 1; c < 3; c++) steps_row(&cases[c], threads, steps > 0 ? steps : 5);
}

// Runs a case in a child process; returns whether it succeeded.
static bool run_apart(const Case *c, ConfigDtype dtype, int threads, int steps, bool ops)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) die("bench: cannot fork");
    if (pid == 0) {
        run_case(c, dtype, threads, steps, ops);
        exit(0);
    }
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char help[] =
    "usage: bench [gpt2-1024] [gpt2-64] [demo] [stories] [swiglu] [moe] [decode] [experts] [attention] [bf16]\n"
    "       [bf16-steps] [--bf16] [--ops] [--steps N] [--threads N]\n"
    "Times training steps of these models on random tokens, and the machine's matmul on their shapes; decode: the\n"
    "writing of text, and the machine's memory; experts: products of mixture of experts; attention: tiled beside\n"
    "the whole matrix, by length; bf16: products and steps in bf16 beside fp32; bf16-steps: the steps alone. Without a\n"
    "name: all.\n";

int main(int argc, char **argv)
{
    int threads = 0, steps = 0;
    bool ops = false, narrow = false;
    Option row[] = {OPTION(INT, "--steps", "N", "of each (a few, by the size of the model)", &steps, .least = 1,
                           .most = MOST_STEPS),
                    OPTION(INT, "--threads", "N", "(all cores)", &threads, .least = 1, .most = 1024),
                    OPTION(SWITCH, "--bf16", NULL, "the models in bf16, beside the peak of its instruction", &narrow),
                    OPTION(SWITCH, "--ops", NULL, "the time of the models' steps by op, beside rooflines", &ops)};
    OptionSet set = {"bench", help, row, sizeof row / sizeof *row, .where = 0};
    bool wanted[sizeof cases / sizeof *cases] = {false}, decode = false, experts = false;
    bool attention = false, bf16 = false, bf16_steps = false, ok = true;
    size_t models = 0;
    dev_cpu_choose_blas(argv); // before options_read reorders argv
    size_t n_words = options_read(&set, argc, argv);
    for (size_t i = 1; i <= n_words; i++) {
        size_t c = 0;
        if (strcmp(argv[i], "decode") == 0) { decode = true; continue; }
        if (strcmp(argv[i], "experts") == 0) { experts = true; continue; }
        if (strcmp(argv[i], "attention") == 0) { attention = true; continue; }
        if (strcmp(argv[i], "bf16") == 0) { bf16 = true; continue; }
        if (strcmp(argv[i], "bf16-steps") == 0) { bf16_steps = true; continue; }
        while (c < sizeof cases / sizeof *cases && strcmp(argv[i], cases[c].name)) c++;
        if (c == sizeof cases / sizeof *cases) die_usage("bench: '%s' (try --help)", argv[i]);
        wanted[c] = true, models++;
    }
    printf("OpenBLAS kernels: %s (%s)\n\n", dev_cpu_blas(), dev_cpu_blas_reason());
    if (models || !n_words)
        printf("| model     |   B x T   |   ms/step |  tokens/s | GFLOP/s  | %s peak | of peak | buffers MB | RSS MB   "
               "| loss    |\n|---|---|---|---|---|---|---|---|---|---|\n",
               narrow && gemm_bf16_runs() ? "bf16 " : "sgemm");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        if (!n_words || wanted[c])
            ok = run_apart(&cases[c], narrow ? CONFIG_DTYPE_BF16 : CONFIG_DTYPE_FP32, threads,
                           steps > 0 ? steps : cases[c].steps, ops) && ok;
    if (!n_words || decode) decode_table(threads, steps > 0 ? steps : 100);
    if (!n_words || experts) experts_table(threads);
    if (!n_words || attention) attention_table(threads);
    if (!n_words || bf16 || bf16_steps) bf16_tables(!n_words || bf16, threads, steps);
    return ok ? 0 : 1;
}
