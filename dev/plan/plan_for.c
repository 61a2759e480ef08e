// plan_for: a model for a text and some minutes on this machine. See plan_show.h, doc/scaling_laws.md.
//
//   budget      C = 60 minutes * SPENT * REACHED * peak        what training can compute
//   vocabulary  V = the power of two that is at most sqrt(bytes of text), from 512 to 4096
//   model       of the widths 64, 128, ... with a layer for each 48, the one whose layers have nearest to
//               sqrt(C / 6 / RATIO) parameters; tokens D = C / (6 N), where N counts the embedding too
//   epochs      D / (tokens of the text): dropout 0 up to 4, 0.1 up to 12, 0.2 beyond
//   batch       the power of two that is at most 2 sqrt(D), 2048 to 16384; learning rates grow with its square root
//
// In minutes a smaller model makes more updates but learns less from each, so RATIO is below Chinchilla's 20; it was
// chosen, not fitted. Up to 4 epochs a repeated token is worth about
// as much as a new one (Muennighoff et al., arXiv 2305.16264), and then dropout costs more than it helps.
#include "dev/plan/plan_show.h"

#include "base/clock.h"
#include "ops/dev_cpu.h"
#include "formats/gemm_bf16.h"

#include <math.h>
#include <omp.h>

static const double SPENT = 0.9;   // of the minutes; the rest are evaluations
static const double REACHED = 0.4; // of the peak, by a training step of small matrices
static const double RATIO = 4;     // tokens a parameter
enum { HEAD = 64, WIDEST = 1024 };

static long power_of_two(double least, double most, double x) // at most x
{
    return (long)exp2(floor(log2(fmin(fmax(x, least), most))));
}

static long layers_of(long width)
{
    return (width + 24) / 48;
}

static double layers_params(long width)
{
    double C = (double)width, F = 64 * ceil(C * 8 / 3 / 64);
    return (double)layers_of(width) * (4 * C * C + 3 * C * F);
}

// What the rule says. The batch is in tokens.
typedef struct {
    double budget;                       // FLOP of training
    long vocab, width, layers, batch;
    double params, tokens, unique;       // tokens: that training reads; unique: of the text
    double dropout, lr;                  // lr: of the parameters that are not matrices
} Chosen;

static Chosen model_of(const PlanFor *f)
{
    Chosen m = {.budget = f->minutes * 60 * SPENT * REACHED * f->peak, .width = HEAD};
    m.vocab = power_of_two(512, 4096, sqrt(f->bytes));
    double wanted = sqrt(m.budget / 6 / RATIO);
    for (long width = HEAD; width <= WIDEST; width += HEAD)
        if (fabs(log(layers_params(width) / wanted)) < fabs(log(layers_params(m.width) / wanted))) m.width = width;
    m.layers = layers_of(m.width), m.params = layers_params(m.width) + (double)(m.width * m.vocab);
    m.tokens = m.budget / 6 / m.params;
    m.unique = 0.9 * f->bytes / (0.5 * log2((double)m.vocab) - 2.6); // bytes of a token of V, of prose and programs
    double epochs = m.tokens / m.unique;
    m.dropout = epochs <= 4 ? 0 : epochs <= 12 ? 0.1 : 0.2;
    m.batch = power_of_two(2048, 16384, 2 * sqrt(m.tokens));
    m.lr = 3e-3 * sqrt((double)m.batch / 4096);
    return m;
}

// ---- the report

// One core's best, in products of about a millisecond: where other programs run too, some of these are not interrupted.
// Products on all cores would wait for the core that is.
static double peak_fp32(void)
{
    const MatmulShape shape[] = {{512, 512, 192}, {512, 192, 512}};
    dev_cpu_blas_room(0, true);
    return 1e9 * dev_cpu_peak(shape, sizeof shape / sizeof *shape, 1, 0.5);
}

static double peak_bf16(void)
{
    enum { M = 512, N = 512, K = 192 };
    static uint16_t a[M * K], b[N * K];
    static float c[M * N];
    double best = INFINITY, begin = clock_seconds(), start;
    for (int i = 0; i < M * K; i++) a[i] = 0x3f80, b[i] = 0x3f80; // ones
    for (int i = 0; i < 3 || clock_seconds() - begin < 0.25; i++) {
        start = clock_seconds();
        gemm_bf16_serial(false, true, M, N, K, a, K, b, K, false, c, N);
        best = fmin(best, clock_seconds() - start);
    }
    return 2.0 * M * N * K / best;
}

void plan_for_print(const PlanFor *f, FILE *out)
{
    PlanFor asked = *f;
    double fp32 = asked.peak > 0 ? 0 : peak_fp32(), bf16 = fp32 > 0 && gemm_bf16_runs() ? peak_bf16() : 0;
    bool narrow = bf16 > 1.1 * fp32; // the other ops have more to do in bf16
    if (fp32 > 0) asked.peak = omp_get_num_procs() * (narrow ? bf16 : fp32);
    Chosen m = model_of(&asked);
    double wanted = sqrt(m.budget / 6 / RATIO), times = m.tokens / m.unique, seconds = f->minutes * 60;
    fprintf(out, "for %.3g MB of text and %g minute%s here:\n", f->bytes / 1e6, f->minutes, f->minutes == 1 ? "" : "s");
    if (fp32 > 0)
        fprintf(out, "  numbers        %-11s a core multiplies %.0f GFLOP/s in fp32, %.0f in bf16\n",
                narrow ? "bf16" : "fp32", fp32 / 1e9, bf16 / 1e9);
    fprintf(out, "  FLOP           %-11.3g %g s: %g of them training, at %g of the peak, %.0f GFLOP/s\n", m.budget,
            seconds, SPENT, REACHED, asked.peak / 1e9);
    fprintf(out, "  vocabulary     %-11ld a power of two, at most the square root of the bytes, 512 to 4096\n", m.vocab);
    fprintf(out, "  layers         %-11ld of %ld channels, one for each 48: near sqrt(FLOP / (6 * %g)) = %.3g "
            "parameters\n", m.layers, m.width, RATIO, wanted);
    fprintf(out, "  parameters     %-11.3g %.3g of the layers, the rest of the vocabulary\n", m.params,
            layers_params(m.width));
    fprintf(out, "  tokens         %-11.3g FLOP / (6 * parameters): the text %.3g times\n", m.tokens, times);
    fprintf(out, "  dropout        %-11g 0 up to 4 times, 0.1 up to 12, then 0.2\n", m.dropout);
    fprintf(out, "  batch          %-11ld a power of two, at most 2 sqrt(tokens), 2048 to 16384\n", m.batch);
    fprintf(out, "  learning rate  %-11.3g 0.003 * sqrt(batch / 4096)\n", m.lr);
    fprintf(out, "  settings       --run.minutes=%g --model.layers=%ld --model.channels=%ld --model.heads=%ld "
            "--model.dropout=%g --batch.tokens=%ld --batch.micro=%ld --optim.lr=%.3g --optim.matrix_lr=%.3g%s\n", f->minutes,
            m.layers, m.width, m.width / HEAD, m.dropout, m.batch, m.batch < 4096 ? m.batch / 256 : 16, m.lr,
            m.lr / 3e-3 * 4, narrow ? " --numerics.dtype=bf16" : "");
}
