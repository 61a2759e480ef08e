// published: the plan against what others measured. See published.h.
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
#include "dev/plan/published.h"

#include "base/check.h"
#include "parallel/pipeline_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEGATRON1 "arXiv 2104.04473, table 1"
#define MEGATRON2 "arXiv 2104.04473, table 2"
#define KORTHIKANTI "arXiv 2205.05198, table 5"
#define LLAMA3 "arXiv 2407.21783, table 4"
#define DGXC "NVIDIA/dgxc-benchmarking, "
#define NODES "400 Gbit/s are a node's"
#define FIT_BC "micro-batch, chunks: fastest"
#define FIT_ALL "layout: fastest"

// Megatron-LM's models: L layers of C channels, H heads.
#define M21(b, L, C, H, t, p, n, B, y)                                                                                \
    {.name = "GPT " b "B", .source = MEGATRON1, .machine = "A100-80", .model = {L, C, H, 0, 0, 51200, 2048, false},  \
     .batch = B, .gpus = n, .tp = t, .pp = p, .plain = true, .serial = true, .recompute = RECOMPUTE_FULL,            \
     .unit = PUBLISHED_TFLOPS_ALL, .reported = y, .assumed = FIT_BC}
#define PTD(b, L, C, H, t, p, n, B, y)                                                                                \
    {.name = "GPT " b "B", .source = MEGATRON2, .machine = "A100-80", .model = {L, C, H, 0, 0, 51200, 2048, false},  \
     .batch = B, .gpus = n, .tp = t, .pp = p, .micro = 1, .plain = true, .serial = true,                             \
     .recompute = RECOMPUTE_FULL, .unit = PUBLISHED_TFLOPS_ALL, .reported = y, .assumed = "chunks: fastest"}
#define SEL(b, note, L, C, H, t, p, v, n, B, mb, mode, is_sp, y)                                                      \
    {.name = "GPT " b "B" note, .source = KORTHIKANTI, .machine = "A100-80",                                         \
     .model = {L, C, H, 0, 0, 51200, 2048, false},                                                                   \
     .batch = B, .gpus = n, .tp = t, .pp = p, .chunks = v, .micro = mb, .plain = true, .serial = true, .sp = is_sp,  \
     .recompute = mode, .unit = PUBLISHED_STEP, .reported = y}

// NVIDIA's recipes: bf16, distributed optimizer, sequence parallelism, overlap of tp (their configurations say so).
#define RECIPE(b, from, n, t, p, c, v, mb, B, y, ...)                                                                 \
    {.name = b, .source = DGXC from, .machine = "H100", .model = {__VA_ARGS__}, .batch = B, .gpus = n, .tp = t,      \
     .pp = p, .cp = c, .chunks = v, .micro = mb, .zero = 1, .sp = t > 1, .overlap_tp = t > 1,                        \
     .recompute = RECOMPUTE_NONE, .unit = PUBLISHED_STEP, .reported = y, .held_out = true}
#define L8(n, B, y) RECIPE("LLaMA-3 8B", "llama3.1", n, 1, 1, 2, 1, 1, B, y, 32, 4096, 32, 8, 14336, 128256, 8192, true)
#define L70(n, B, y)                                                                                                  \
    RECIPE("LLaMA-3 70B", "llama3.1", n, 4, 4, 2, 5, 1, B, y, 80, 8192, 64, 8, 28672, 128256, 8192, true)
#define L405(n, B, y)                                                                                                 \
    RECIPE("LLaMA-3 405B", "llama3.1", n, 8, 8, 2, 8, 1, B, y, 126, 16384, 128, 8, 53248, 128256, 8192, true)
#define G175(n, B, y)                                                                                                 \
    RECIPE("GPT 175B", "nemo_megatron", n, 4, 8, 1, 12, 1, B, y, 96, 12288, 96, 0, 0, 51200, 2048, false)
#define N15(n, B, y)                                                                                                  \
    RECIPE("Nemotron-4 15B", "nemotron", n, 4, 1, 1, 1, 4, B, y, 32, 6144, 48, 8, 0, 256000, 4096, false, true)
#define N340(n, B, y)                                                                                                 \
    RECIPE("Nemotron-4 340B", "nemotron", n, 8, 8, 1, 12, 1, B, y, 96, 18432, 96, 8, 0, 256000, 4096, false, true)

// IBM and PyTorch: FSDP in bf16 on 128 A100, b sequences an accelerator, y tokens a second of each.
#define FSDP(b, micro_, mode, y, note, ...)                                                                           \
    {.name = "LLaMA-2 " b ", FSDP", .source = "foundation-model-stack/fms-fsdp, README", .machine = "A100-80",       \
     .between = "eth50", .model = {__VA_ARGS__, 32000, 4096, true}, .batch = 128 * micro_, .gpus = 128, .tp = 1,      \
     .pp = 1, .chunks = 1, .micro = micro_, .zero = 3, .eager = true, .recompute = mode, .unit = PUBLISHED_STEP,      \
     .reported = micro_ * 4096.0 / y, .held_out = true, .assumed = note}

static const PublishedRun runs[] = {
    M21("1.7", 24, 2304, 24, 1, 1, 32, 512, 137),
    M21("3.6", 30, 3072, 32, 2, 1, 64, 512, 138),
    M21("7.5", 36, 4096, 32, 4, 1, 128, 512, 142),
    M21("18.4", 40, 6144, 48, 8, 1, 256, 1024, 135),
    M21("39.1", 48, 8192, 64, 8, 2, 512, 1536, 138),
    M21("76.1", 60, 10240, 80, 8, 4, 1024, 1792, 140),
    M21("145.6", 80, 12288, 96, 8, 8, 1536, 2304, 148),
    M21("310.1", 96, 16384, 128, 8, 16, 1920, 2160, 155),
    M21("529.6", 105, 20480, 128, 8, 35, 2520, 2520, 163),
    M21("1008", 128, 25600, 160, 8, 64, 3072, 3072, 163),
    PTD("174.6", 96, 12288, 96, 8, 12, 384, 1536, 153),
    PTD("174.6", 96, 12288, 96, 8, 12, 768, 1536, 149),
    PTD("174.6", 96, 12288, 96, 8, 12, 1536, 1536, 141),
    PTD("529.6", 105, 20480, 128, 8, 35, 560, 2240, 171),
    PTD("529.6", 105, 20480, 128, 8, 35, 1120, 2240, 167),
    PTD("529.6", 105, 20480, 128, 8, 35, 2240, 2240, 159),
    SEL("22", ", all run again", 48, 6144, 64, 8, 1, 1, 8, 4, 4, RECOMPUTE_FULL, false, 1.42),
    SEL("22", "", 48, 6144, 64, 8, 1, 1, 8, 4, 4, RECOMPUTE_SELECTIVE, true, 1.10),
    SEL("175", ", all run again", 96, 12288, 96, 8, 8, 3, 64, 64, 1, RECOMPUTE_FULL, false, 18.13),
    SEL("175", "", 96, 12288, 96, 8, 8, 3, 64, 64, 1, RECOMPUTE_SELECTIVE, true, 13.75),
    SEL("530", ", all run again", 105, 20480, 128, 8, 35, 3, 280, 280, 1, RECOMPUTE_FULL, false, 49.05),
    SEL("530", "", 105, 20480, 128, 8, 35, 3, 280, 280, 1, RECOMPUTE_SELECTIVE, true, 37.83),
    SEL("1008", ", all run again", 128, 25600, 160, 8, 64, 1, 512, 512, 1, RECOMPUTE_FULL, false, 94.42),
    SEL("1008", "", 128, 25600, 160, 8, 64, 1, 512, 512, 1, RECOMPUTE_SELECTIVE, true, 71.49),
    {.name = "LLaMA-3 405B", .source = LLAMA3, .machine = "H100", .eager = true,
     .model = {126, 16384, 128, 8, 53248, 128256, 8192, true}, .batch = 64 * 32, .gpus = 8192, .tp = 8, .pp = 16,
     .micro = 1, .zero = 1, .sp = true, .recompute = RECOMPUTE_NONE, .unit = PUBLISHED_TFLOPS, .reported = 430,
     .assumed = "chunks: fastest; half of T x T"},
    {.name = "LLaMA-3 405B", .source = LLAMA3, .machine = "H100", .eager = true,
     .model = {126, 16384, 128, 8, 53248, 128256, 8192, true}, .batch = 128 * 16, .gpus = 16384, .tp = 8, .pp = 16,
     .micro = 1, .zero = 1, .sp = true, .recompute = RECOMPUTE_NONE, .unit = PUBLISHED_TFLOPS, .reported = 400,
     .assumed = "chunks: fastest; half of T x T"},
    {.name = "GPT 175B", .source = "Megatron-LM, README", .machine = "H100",
     .model = {96, 12288, 96, 0, 0, 131072, 4096, false}, .batch = 1152, .gpus = 96, .unit = PUBLISHED_MFU_ALL,
     .reported = 47, .assumed = FIT_ALL},
    {.name = "GPT 175B", .source = "Megatron-LM, README", .machine = "H100",
     .model = {96, 12288, 96, 0, 0, 131072, 4096, false}, .batch = 1152, .gpus = 4608, .unit = PUBLISHED_MFU_ALL,
     .reported = 42, .assumed = FIT_ALL},
    {.name = "LLaMA 13B", .source = "arXiv 2302.13971, table 15", .machine = "A100-80", .eager = true,
     .model = {40, 5120, 40, 0, 13824, 32000, 2048, true}, .batch = 2048, .gpus = 1024, .tokens = 1e12,
     .unit = PUBLISHED_HOURS, .reported = 135168, .assumed = "1024 GPUs; " FIT_ALL},
    {.name = "LLaMA 65B", .source = "arXiv 2302.13971, table 15", .machine = "A100-80", .eager = true,
     .model = {80, 8192, 64, 0, 22016, 32000, 2048, true}, .batch = 2048, .gpus = 2048, .tokens = 1.4e12,
     .unit = PUBLISHED_HOURS, .reported = 1022362, .assumed = FIT_ALL},
    {.name = "LLaMA 13B, layouts", .source = "arXiv 2311.05610, abstract", .machine = "A100-80",
     .model = {40, 5120, 40, 0, 13824, 32000, 2048, true}, .batch = 2048, .gpus = 64, .unit = PUBLISHED_MFU_ALL,
     .reported = 70.5, .assumed = "64 GPUs; " FIT_ALL},
    {.name = "LLaMA-2 7B", .source = "arXiv 2307.09288, table 2", .machine = "A100-80", .eager = true,
     .model = {32, 4096, 32, 0, 11008, 32000, 4096, true}, .batch = 1024, .gpus = 1024, .tokens = 2e12,
     .unit = PUBLISHED_HOURS, .reported = 184320, .assumed = "1024 GPUs; " FIT_ALL},
    {.name = "LLaMA-2 70B", .source = "arXiv 2307.09288, table 2", .machine = "A100-80", .eager = true,
     .model = {80, 8192, 64, 8, 28672, 32000, 4096, true}, .batch = 1024, .gpus = 1024, .tokens = 2e12,
     .unit = PUBLISHED_HOURS, .reported = 1720320, .assumed = "1024 GPUs; " FIT_ALL},
    {.name = "GPT-2 1.5B", .source = "llm.c, discussion 677", .machine = "H100",
     .model = {48, 1600, 25, 0, 0, 50304, 1024, false}, .batch = 1024, .gpus = 8, .tp = 1, .pp = 1, .micro = 16,
     .zero = 1, .recompute = RECOMPUTE_SELECTIVE, .tokens = 32000 * 1048576.0, .unit = PUBLISHED_WALL, .reported = 24},
    {.name = "GPT-2 124M", .source = "llm.c, discussion 481", .machine = "A100-80",
     .model = {12, 768, 12, 0, 0, 50304, 1024, false}, .batch = 512, .gpus = 8, .tp = 1, .pp = 1, .micro = 64,
     .zero = 1, .recompute = RECOMPUTE_SELECTIVE, .tokens = 1e10, .unit = PUBLISHED_WALL, .reported = 1.5},
    L8(8, 128, 12.27),
    L8(128, 2048, 12.33),
    L70(64, 128, 14.66),
    L70(2048, 4096, 14.66),
    L405(512, 256, 19.78),
    L405(2048, 1024, 19.87),
    G175(128, 256, 8.309),
    G175(2048, 4096, 8.49),
    N15(16, 64, 2.812),
    N15(2048, 8192, 2.887),
    N340(128, 32, 4.61),
    N340(2048, 512, 4.84),
    FSDP("7B", 2, RECOMPUTE_NONE, 3760, NODES "; cut within nodes only: as zero 3", 32, 4096, 32, 0, 11008),
    FSDP("13B", 1, RECOMPUTE_NONE, 1700, NODES "; cut within nodes only: as zero 3", 40, 5120, 40, 0, 13824),
    FSDP("34B", 8, RECOMPUTE_FULL, 772, NODES, 48, 8192, 64, 8, 22016),
    FSDP("70B", 6, RECOMPUTE_FULL, 380, NODES, 80, 8192, 64, 8, 28672),
    {.name = "Mixtral 8x7B", .source = "Megatron-LM, core/transformer/moe/README.md", .machine = "H100",
     .model = {32, 4096, 32, 8, 14336, 32000, 4096, true, false, 8, 2}, .batch = 256, .gpus = 64, .tp = 1, .pp = 4,
     .ep = 8, .chunks = 8, .micro = 1, .zero = 1, .recompute = RECOMPUTE_NONE, .unit = PUBLISHED_TFLOPS_SQUARE,
     .reported = 468, .held_out = true, .assumed = "rate of release 0.9, layout of 0.8; equal loads"},
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
    l->overlap_dp = l->overlap_pp = !r->serial, l->overlap_tp = r->overlap_tp;
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

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median, the largest, and the number within 15%.
static void print_errors(FILE *out, double *size, int n)
{
    int within = 0;
    qsort(size, (size_t)n, sizeof *size, by_size);
    while (within < n && size[within] <= 0.15) within++;
    fprintf(out, "median error %.1f%%, largest %.1f%%, %d within 15%%\n",
            100 * (n % 2 ? size[n / 2] : (size[n / 2] + size[n / 2 - 1]) / 2), 100 * size[n - 1], within);
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
