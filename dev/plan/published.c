// published: the plan against what others measured. See plan_show.h.
//
// Each row is a run from a paper: model, batch, machine, layout, and one reported number. The plan gets the inputs and
// predicts the number, in the paper's unit and with the paper's count of operations. Counts differ: Megatron-LM counts
// all T x T products of causal attention, half of which are not needed, and its 2021 paper the second forward too.
//
// The invariant: no row has a factor of its own. Rows with held_out were added after the constants of roofline.c were
// fixed, and no constant was changed for them: they are the held-out test. What a paper leaves out is not chosen by
// hand but searched: the micro-batch and the number of chunks, or the whole layout, that the plan predicts to be
// fastest. `assumed` says so in the table.
//
// Rejected: rows whose inputs are known only from hearsay. Megatron-LM's README has a table from 2 to 462 billion
// parameters on H100, but only as a picture, so only the sentences around it are used here. Runs in fp8, of which
// NVIDIA publishes more than in bf16: the plan knows what a matmul reaches on each machine only in bf16.
#include "dev/plan/plan_show.h"
#include "dev/plan/scaling.h"

#include "base/check.h"
#include "parallel/pipeline_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const PublishedRun runs[] = {
#include "dev/plan/published.inc" // published.tsv, by table.awk
};
enum { RUNS = sizeof runs / sizeof *runs };

int published_count(void)
{
    return RUNS;
}

const PublishedRun *published_run(int i)
{
    check(i >= 0 && i < RUNS);
    return &runs[i];
}

const char *published_unit(PublishedUnit unit)
{
    static const char *const text[] = {"s a step", "GPU hours", "hours", "TFLOP/s", "TFLOP/s, all T x T, run again",
                                       "TFLOP/s, all T x T", "% MFU, all T x T"};
    return text[unit];
}

static PlanJob job_of(const PublishedRun *r)
{
    PlanJob job = {.T = r->model.T, .batch = r->batch, .x_bytes = 2, .machine = machines_find(r->machine),
                   .layout = plan_layout_default()};
    if (r->between) job.machine.between = machines_link(r->between);
    bool llama = r->model.llama, rope = llama || r->model.nemotron;
    size_t C = r->model.channels, H = r->model.heads;
    job.shape = (ModelShape){.layers = r->model.layers, .channels = C, .heads = H,
                             .kv_heads = r->model.kv_heads ? r->model.kv_heads : H, .head_size = C / H,
                             .ffn = r->model.ffn ? r->model.ffn : 4 * C, .vocab = r->model.vocab, .context = r->model.T,
                             .norm = llama ? NORM_RMSNORM : NORM_LAYERNORM, .swiglu = llama, .rope = rope,
                             .bias = !rope, .tie = !rope,
                             .experts = {.n = r->model.experts, .k = r->model.active, .ffn = r->model.ffn, .every = 1}};
    PlanLayout *l = &job.layout;
    l->gpus = r->gpus, l->tp = r->tp ? r->tp : 1, l->pp = r->pp ? r->pp : 1, l->cp = r->cp ? r->cp : 1, l->sp = r->sp;
    l->ep = r->ep ? r->ep : 1;
    l->zero = r->zero, l->recompute = r->recompute, l->fused_attention = !r->plain, l->eager = r->eager;
    l->overlap_dp = l->overlap_pp = !r->plain, l->overlap_tp = r->overlap_tp;
    l->scatter = true; // arXiv 2104.04473, section 4.1, and all since
    l->micro = r->micro ? r->micro : 1, l->chunks = r->chunks ? r->chunks : 1;
    l->schedule = l->chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    l->dp = l->gpus / (l->tp * l->pp * l->cp);
    l->grad_bytes = r->plain ? 2 : 4; // mixed precision of 2021 sent gradients in fp16
    return job;
}

// Operations of a step as Megatron-LM counts them: 24 B T L C^2 (1 + T / 6 C + V / 16 L C) for each of forward, second
// forward, and twice for backward; without the second forward V's part is over 12.
static double counted(const PublishedRun *r, bool again)
{
    double B = (double)r->batch, T = (double)r->model.T, L = (double)r->model.layers, C = (double)r->model.channels;
    double V = (double)r->model.vocab;
    if (again) return 96 * B * T * L * C * C * (1 + T / (6 * C) + V / (16 * L * C));
    return 72 * B * T * L * C * C * (1 + T / (6 * C) + V / (12 * L * C));
}

static double in_unit(const PublishedRun *r, const PlanJob *job, const PlanTime *t)
{
    double gpus = r->gpus, steps = r->tokens / ((double)job->batch * (double)job->T);
    switch (r->unit) {
    case PUBLISHED_STEP: return t->step;
    case PUBLISHED_HOURS: return steps * t->step * gpus / 3600;
    case PUBLISHED_WALL: return steps * t->step / 3600;
    case PUBLISHED_TFLOPS: return t->model_flops / t->step / gpus / 1e12;
    case PUBLISHED_TFLOPS_SQUARE: {
        const ModelShape *s = &job->shape;
        double half = 6 * (double)(s->layers * s->heads * s->head_size) * (double)job->T; // that causality leaves out
        double flops = t->model_flops + (double)job->batch * (double)job->T * half;
        return flops / t->step / gpus / 1e12;
    }
    case PUBLISHED_TFLOPS_ALL: return counted(r, true) / t->step / gpus / 1e12;
    default: return 100 * counted(r, false) / t->step / gpus / job->machine.peak;
    }
}

PublishedGuess published_guess(const PublishedRun *r)
{
    PublishedGuess g = {.job = job_of(r)};
    LayoutSearchFree is_free = {.chunks = !r->chunks && r->pp > 1, .micro = !r->micro,
                                .any_memory = r->micro > 0}; // the paper says that it fits
    if (!r->tp) is_free = layout_search_all(), is_free.vees = false; // no published run had one
    if (!r->tp || is_free.chunks || is_free.micro) {
        LayoutSearch s = layout_search(&g.job, is_free);
        if (!s.n) die("plan: %s, %s: no layout fits", r->name, r->source);
        g.job = s.best[0].job;
    }
    plan_layout_must(&g.job, false);
    g.time = plan_time(&g.job, true);
    g.predicted = in_unit(r, &g.job, &g.time);
    g.error = g.predicted / r->reported - 1;
    return g;
}

// The median, the largest, and the number within 15%.
static void print_errors(FILE *out, double *size, int n)
{
    int within = 0;
    for (int i = 0; i < n; i++) within += size[i] <= 0.15;
    fprintf(out, "median error %.1f%%, largest %.1f%%, %d within 15%%\n",
            100 * scaling_fit_quantile(size, (size_t)n, 0.5), 100 * scaling_fit_quantile(size, (size_t)n, 1), within);
}

void published_print(FILE *out)
{
    double size[RUNS], later[RUNS];
    int n_later = 0;
    fprintf(out,
            "| run | machine | accelerators | layout | unit | predicted | reported | error | source | not in it |\n"
                 "|---|---|---:|---|---|---:|---:|---:|---|---|\n");
    for (int i = 0; i < RUNS; i++) {
        const PublishedRun *r = &runs[i];
        PublishedGuess g = published_guess(r);
        const PlanLayout *l = &g.job.layout;
        char cp[32] = "";
        size[i] = fabs(g.error);
        if (r->held_out) later[n_later++] = size[i];
        if (l->cp > 1) snprintf(cp, sizeof cp, " cp %d", l->cp);
        if (l->ep > 1) snprintf(cp + strlen(cp), sizeof cp - strlen(cp), " ep %d", l->ep);
        fprintf(out,
                "| %s | %s | %d | dp %d tp %d%s pp %d v %d%s b %ld zero %d | %s | %.4g | %.4g | %+.1f%% | %s | %s |\n",
                r->name, r->machine, r->gpus, l->dp, l->tp, l->sp ? " sp" : "", l->pp, l->chunks, cp, l->micro, l->zero,
                published_unit(r->unit), g.predicted, r->reported, 100 * g.error, r->source,
                r->assumed ? r->assumed : "");
    }
    fprintf(out, "\n%d rows: ", RUNS);
    print_errors(out, size, RUNS);
    fprintf(out, "%d of them, the last, came when the constants stood: ", n_later);
    print_errors(out, later, n_later);
}
