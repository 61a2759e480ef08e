// plan_tool: what a rank of a training run holds, for a page of the book: the sums are those of build/plan time.
//
// size_t has 64 bits here, as in the programs, though addresses have 32 (tools.sh).
#include "dev/plan/plan_layout.h"

#include "base/check.h"

#define EXPORT(name) __attribute__((export_name(name)))

// In this order in plan_tool.js.
enum {
    LAYERS, CHANNELS, HEADS, KV_HEADS, FFN, VOCAB, CONTEXT, RMSNORM, SWIGLU, ROPE, BIAS, TIE, GPUS, TP, PP, CP, SP, SCHEDULE, CHUNKS,
    ZERO, MICRO, BATCH, RECOMPUTE, X_BYTES, SETTINGS
};
static double set[SETTINGS];
static double result[9]; // stage, parameters, gradients, optimizer, activations, scratch, communication, total; of the whole model: parameters

EXPORT("settings") double *settings(void)
{
    return set;
}

static size_t whole(int i)
{
    return (size_t)set[i];
}

EXPORT("compute") double *compute(void)
{
    static const RecomputeMode mode[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_ATTENTION, RECOMPUTE_SQRT, RECOMPUTE_FULL};
    static PlanJob job;
    job.shape = (ModelShape){
        .layers = whole(LAYERS), .channels = whole(CHANNELS), .heads = whole(HEADS), .kv_heads = whole(KV_HEADS),
        .head_size = whole(CHANNELS) / whole(HEADS), .ffn = whole(FFN), .vocab = whole(VOCAB), .context = whole(CONTEXT),
        .norm = set[RMSNORM] ? NORM_RMSNORM : NORM_LAYERNORM, .swiglu = set[SWIGLU] != 0, .rope = set[ROPE] != 0, .bias = set[BIAS] != 0,
        .tie = set[TIE] != 0};
    job.T = whole(CONTEXT), job.batch = (long)set[BATCH], job.x_bytes = whole(X_BYTES);
    PlanLayout *l = &job.layout;
    *l = plan_layout_default();
    l->gpus = (int)set[GPUS], l->tp = (int)set[TP], l->pp = (int)set[PP], l->cp = (int)set[CP];
    if (l->gpus % (l->tp * l->pp * l->cp))
        die("--gpus %d: is not a multiple of tp %d * pp %d * cp %d, or not dp times it", l->gpus, l->tp, l->pp, l->cp);
    l->dp = l->gpus / (l->tp * l->pp * l->cp);
    l->sp = l->tp > 1 && set[SP];
    l->schedule = (PipelineSchedule)set[SCHEDULE], l->chunks = (int)set[CHUNKS];
    l->zero = (int)set[ZERO], l->micro = (long)set[MICRO], l->recompute = mode[(int)set[RECOMPUTE]];
    plan_layout_must(&job, false);
    PlanBytes b = plan_layout_bytes(&job);
    double out[] = {b.stage, b.parameters, b.gradients, b.optimizer, b.activations, b.scratch, b.communication, b.total, 0};
    for (int i = 0; i < 8; i++) result[i] = out[i];
    job.layout.tp = job.layout.pp = job.layout.cp = job.layout.chunks = 1, job.layout.sp = false, job.layout.schedule = PIPELINE_1F1B;
    result[8] = (double)plan_layout_params(&job, 0);
    return result;
}
