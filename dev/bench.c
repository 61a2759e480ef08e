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
#include "ops/dev_cpu.h"
#include "base/clock.h"
#include "base/check.h"
#include "base/options.h"
#include "net/model.h"
#include "train/optim.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
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
    "usage: bench [gpt2-1024] [gpt2-64] [demo] [--steps N] [--threads N]\n"
    "Times training steps of these models on random tokens, and the machine's matmul on their shapes.\n"
    "Without a name: all three.\n";

int main(int argc, char **argv)
{
    int threads = 0, steps = 0;
    Option row[] = {OPTION(INT, "--steps", "N", "of each (a few, by the size of the model)", &steps, .least = 1),
                    OPTION(INT, "--threads", "N", "(all cores)", &threads, .least = 1, .most = 1024)};
    OptionSet set = {"bench", help, row, sizeof row / sizeof *row, .where = 0};
    bool wanted[sizeof cases / sizeof *cases] = {false};
    dev_cpu_choose_blas(argv); // before options_read reorders argv
    size_t n_words = options_read(&set, argc, argv);
    for (size_t i = 1; i <= n_words; i++) {
        size_t c = 0;
        while (c < sizeof cases / sizeof *cases && strcmp(argv[i], cases[c].name)) c++;
        if (c == sizeof cases / sizeof *cases) die_usage("bench: '%s' (try --help)", argv[i]);
        wanted[c] = true;
    }
    printf("OpenBLAS kernels: %s (%s)\n\n", dev_cpu_blas(), dev_cpu_blas_reason());
    printf("| model     |   B x T   |   ms/step |  tokens/s | GFLOP/s  | sgemm peak | of peak | buffers MB | RSS MB   "
           "| loss    |\n");
    printf("|---|---|---|---|---|---|---|---|---|---|\n");
    bool ok = true;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        if (!n_words || wanted[c]) ok = run_apart(&cases[c], threads, steps > 0 ? steps : cases[c].steps) && ok;
    return ok ? 0 : 1;
}
