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
// Then text is written, a token at a time, by a model of SmolLM2-135M's shape. A token reads every weight once, so its
// limit is not the matmul but the memory:
//
//   bytes of the weights x tokens per second / bytes per second of a sum over the same array, the medians of both
//
// Then the products of mixture of experts, with the rows sorted by expert, beside one sgemm of the same rows.
//
// Then bf16: its products by the processor's instruction (gemm_bf16.h) as a fraction of what a loop of that instruction
// alone does, and beside the fp32 device's and the widened ones; and whole steps on the three devices. All take
// turns, and times are of processors, all threads together.
#include "ops/dev_cpu.h"
#include "base/clock.h"
#include "base/check.h"
#include "base/options.h"
#include "net/model.h"
#include "ops/gemm_bf16.h"
#include "ops/narrow.h"
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
} Case;

static const Case cases[] = {
    {"gpt2-1024", {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64, .ffn = 3072,
                   .vocab = 50257, .context = 1024, .norm_eps = 1e-5f, .bias = true, .tie = true}, 4, 1024, 3},
    {"gpt2-64", {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64, .ffn = 3072,
                 .vocab = 50257, .context = 1024, .norm_eps = 1e-5f, .bias = true, .tie = true}, 4, 64, 12},
    {"demo", {.layers = 6, .channels = 256, .heads = 4, .kv_heads = 4, .head_size = 64, .ffn = 1024, .vocab = 4096,
              .context = 256, .norm_eps = 1e-5f, .bias = true, .tie = true}, 16, 256, 20},
    // as many operations a token: one network of 704, or 2 of 8 experts of 352
    {"swiglu", {.layers = 6, .channels = 256, .heads = 4, .kv_heads = 4, .head_size = 64, .ffn = 704, .vocab = 4096,
               .context = 256, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rope = true, .rotary.theta = 1e4f,
               .swiglu = true}, 16, 256, 20},
    {"moe", {.layers = 6, .channels = 256, .heads = 4, .kv_heads = 4, .head_size = 64, .ffn = 704, .vocab = 4096,
                 .context = 256, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rope = true, .rotary.theta = 1e4f,
                 .swiglu = true, .experts = {.n = 8, .k = 2, .ffn = 352, .every = 1, .renorm = true, .scale = 1,
                                             .balance = MOE_BALANCE_SEQUENCE, .balance_coef = 0.01f}}, 16, 256, 20},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The five forward matmuls of one micro-batch, and three of the backward pass, which exchanges the roles of
// M, N and K.
static double case_peak(const Case *c, int threads)
{
    const ModelShape *s = &c->shape;
    size_t N = c->B * c->T, C = s->channels, head = N < 1024 ? N : 1024;
    size_t qkv = (s->heads + 2 * s->kv_heads) * s->head_size;
    MatmulShape shape[] = {{N, qkv, C}, {N, C, s->heads * s->head_size}, {N, s->ffn, C}, {N, C, s->ffn},
                         {head, s->vocab, C}, {N, C, qkv}, {qkv, C, N}, {s->ffn, C, N}};
    return dev_cpu_peak(shape, sizeof shape / sizeof *shape, threads, 2.0);
}

static void run_case(const Case *c, int threads, int steps)
{
    Mem mem = {0};
    dev_cpu_blas_room(threads, true);
    Dev *dev = dev_cpu_create(threads);
    Model *model = model_create(&c->shape, dev, &mem, c->B, c->T, 1, true);
    Optim optim = optim_create(model, (OptimSettings){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                                      .weight_decay = 0.1f, .clip = 1});
    size_t N = c->B * c->T;
    int32_t *token = malloc(2 * N * sizeof *token);
    double *time = malloc((size_t)steps * sizeof *time);
    if (!token || !time) die("bench: no memory for %zu tokens", N);
    Rng rng = rng_make(1, "bench", 0);
    for (size_t i = 0; i < 2 * N; i++) token[i] = (int32_t)rng_below(rng, i, c->shape.vocab);
    double loss = 0;
    for (int i = -1; i < steps; i++) { // the first is the warm-up
        double t = clock_seconds();
        model_set_batch(model, token, NULL, token + N, c->B, c->T);
        loss = model_forward_backward(model, 1 / (float)N) / (double)N;
        optim_step(&optim, model, 1e-4);
        if (i >= 0) time[i] = clock_seconds() - t;
    }
    qsort(time, (size_t)steps, sizeof *time, by_value);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double median = time[steps / 2], peak = case_peak(c, dev->threads);
    double rate = (double)N / median, gflops = model_flops_per_token(&c->shape, c->T) * rate / 1e9;
    printf("| %-9s | %2zu x %4zu | %9.1f | %9.0f | %8.0f | %10.0f | %6.1f%% | %10.0f | %8.0f | %7.4f |\n", c->name,
           c->B, c->T, median * 1e3, rate, gflops, peak, 100 * gflops / peak, (double)mem.peak / 1e6,
           (double)usage.ru_maxrss / 1e3, loss);
    fflush(stdout);
    free(token), free(time);
    mem_free_all(&mem);
    model_free(model);
    dev_cpu_free(dev);
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

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

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

static void bf16_tables(int threads, int steps)
{
    if (!gemm_bf16_runs()) {
        printf("\nbf16: this processor has no instruction for its products\n");
        return;
    }
    products_table(threads);
    printf("\n| model     |   B x T   | bf16 ms | fp32 ms | widened | fp32 / bf16 | widened / bf16 |\n"
           "|---|---|---|---|---|---|---|\n");
    for (size_t c = 1; c < 3; c++) steps_row(&cases[c], threads, steps > 0 ? steps : 5);
}

// Runs a case in a child process; returns whether it succeeded.
static bool run_apart(const Case *c, int threads, int steps)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) die("bench: cannot fork");
    if (pid == 0) {
        run_case(c, threads, steps);
        exit(0);
    }
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char help[] =
    "usage: bench [gpt2-1024] [gpt2-64] [demo] [swiglu] [moe] [decode] [experts] [bf16] [--steps N] [--threads N]\n"
    "Times training steps of these models on random tokens, and the machine's matmul on their shapes; decode: the\n"
    "writing of text, and the machine's memory; experts: products of mixture of experts; bf16: products and steps in\n"
    "bf16 beside fp32. Without a name: all.\n";

int main(int argc, char **argv)
{
    int threads = 0, steps = 0;
    Option row[] = {OPTION(INT, "--steps", "N", "of each (a few, by the size of the model)", &steps, .least = 1),
                    OPTION(INT, "--threads", "N", "(all cores)", &threads, .least = 1, .most = 1024)};
    OptionSet set = {"bench", help, row, sizeof row / sizeof *row, .where = 0};
    bool wanted[sizeof cases / sizeof *cases] = {false}, decode = false, experts = false;
    bool bf16 = false, ok = true;
    size_t models = 0;
    dev_cpu_choose_blas(argv); // before options_read reorders argv
    size_t n_words = options_read(&set, argc, argv);
    for (size_t i = 1; i <= n_words; i++) {
        size_t c = 0;
        if (strcmp(argv[i], "decode") == 0) { decode = true; continue; }
        if (strcmp(argv[i], "experts") == 0) { experts = true; continue; }
        if (strcmp(argv[i], "bf16") == 0) { bf16 = true; continue; }
        while (c < sizeof cases / sizeof *cases && strcmp(argv[i], cases[c].name)) c++;
        if (c == sizeof cases / sizeof *cases) die_usage("bench: '%s' (try --help)", argv[i]);
        wanted[c] = true, models++;
    }
    printf("OpenBLAS kernels: %s (%s)\n\n", dev_cpu_blas(), dev_cpu_blas_reason());
    if (models || !n_words)
        printf("| model     |   B x T   |   ms/step |  tokens/s | GFLOP/s  | sgemm peak | of peak | buffers MB | RSS MB   "
               "| loss    |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        if (!n_words || wanted[c]) ok = run_apart(&cases[c], threads, steps > 0 ? steps : cases[c].steps) && ok;
    if (!n_words || decode) decode_table(threads, steps > 0 ? steps : 100);
    if (!n_words || experts) experts_table(threads);
    if (!n_words || bf16) bf16_tables(threads, steps);
    return ok ? 0 : 1;
}
