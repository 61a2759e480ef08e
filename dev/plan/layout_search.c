// layout_search: all layouts, their refusals by reason, the fastest that fit. See plan_job.h.
//
// The sizes are few: tp a power of two within a node, pp a divisor of the rest up to 64 stages, cp a power of two where
// sequences are long, ep a power of two where the model has experts, ZeRO's stages, chunks, micro-batches,
// recomputation. Some 10^4 to 10^5 combinations, each a few microseconds of arithmetic: so all are tried, and the
// answer to "why not another one?" is a count or a time, not a rule of thumb. Of the rules that the guides teach one is
// built in, tp within a node; the others (pp only when needed, the smallest tp that fits) are not, and where the
// prediction agrees with them, that is a result.
//
// Ranking is by 1f1b's or interleaved's formula; those in the shape of a V are simulated with a few micro-batches. The
// ten best are then simulated from their schedules' tables, with all of them.
//
// The invariant: every combination is counted in `refused` under exactly one reason, or was timed.
//
// Rejected: simulated annealing, integer programming. In so small a space they only add doubt whether the optimum was
// found.
#include "dev/plan/plan_job.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

LayoutSearchFree layout_search_all(void)
{
    return (LayoutSearchFree){.tp = true, .pp = true, .cp = true, .ep = true, .zero = true, .chunks = true,
                              .vees = true, .micro = true, .recompute = true};
}

static void keep(LayoutSearch *s, const PlanJob *job, double seconds)
{
    int at = s->n;
    while (at > 0 && s->best[at - 1].seconds > seconds) at--;
    if (at == LAYOUT_SEARCH_BEST) return;
    int last = s->n < LAYOUT_SEARCH_BEST ? s->n++ : LAYOUT_SEARCH_BEST - 1;
    memmove(&s->best[at + 1], &s->best[at], (size_t)(last - at) * sizeof *s->best);
    s->best[at] = (LayoutFound){.job = *job, .seconds = seconds};
}

static void try_one(LayoutSearch *s, const PlanJob *job, LayoutSearchFree is_free)
{
    char why[400];
    PlanLayoutReason reason = plan_layout_check(job, !is_free.any_memory, why, sizeof why);
    s->tried++;
    s->refused[reason]++;
    if (reason == PLAN_LAYOUT_FITS) keep(s, job, plan_time(job, false).step);
}

// ---- the loops, from the inside out

static void try_recompute(LayoutSearch *s, PlanJob job, LayoutSearchFree is_free)
{
    static const RecomputeMode modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    for (int i = 0; i < (is_free.recompute ? 3 : 1); i++) {
        if (is_free.recompute) job.layout.recompute = modes[i];
        try_one(s, &job, is_free);
    }
}

static void try_micro(LayoutSearch *s, PlanJob job, LayoutSearchFree is_free)
{
    long share = job.batch / job.layout.dp, most = is_free.micro ? share < 64 ? share : 64 : 1;
    for (long b = 1; b == 1 || b <= most; b *= 2) {
        if (is_free.micro && share >= 1) job.layout.micro = b; // else: tried only to count the refusal
        try_recompute(s, job, is_free);
    }
}

static void try_chunks(LayoutSearch *s, PlanJob job, LayoutSearchFree is_free)
{
    int most = is_free.chunks && job.layout.pp > 1 ? PIPELINE_MAX_CHUNKS : 1;
    if (!is_free.chunks) {
        try_micro(s, job, is_free);
        return;
    }
    for (int v = 1; v <= most; v++) {
        if (v > 1 && (size_t)(v * job.layout.pp) > job.shape.layers + 2) break;
        job.layout.chunks = v;
        job.layout.schedule = v > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
        try_micro(s, job, is_free);
        if (v != 2 || !is_free.vees) continue;
        for (PipelineSchedule k = PIPELINE_ZB_V; k <= PIPELINE_V_MIN; k++) {
            job.layout.schedule = k;
            try_micro(s, job, is_free);
        }
    }
}

static void try_zero(LayoutSearch *s, PlanJob job, LayoutSearchFree is_free)
{
    int least = is_free.zero ? 0 : job.layout.zero, most = is_free.zero ? 3 : job.layout.zero;
    if (job.layout.dp * job.layout.cp == 1) most = least; // no rank to share with
    for (job.layout.zero = least; job.layout.zero <= most; job.layout.zero++) try_chunks(s, job, is_free);
}

// Powers of two that the experts and the ranks allow; others would only be refused.
static void try_experts(LayoutSearch *s, PlanJob job, LayoutSearchFree is_free)
{
    size_t E = job.shape.experts.n, replicas = (size_t)(job.layout.dp * job.layout.cp);
    bool open = is_free.ep && E;
    for (size_t ep = 1; ep == 1 || (open && E % ep == 0 && replicas % ep == 0); ep *= 2) {
        if (open) job.layout.ep = (int)ep;
        try_zero(s, job, is_free);
    }
}

static void try_pipeline(LayoutSearch *s, PlanJob job, LayoutSearchFree is_free)
{
    int left = job.layout.gpus / (job.layout.tp * job.layout.cp);
    for (int pp = is_free.pp ? 1 : job.layout.pp; pp <= (is_free.pp ? PIPELINE_MAX_STAGES : job.layout.pp); pp++) {
        if (left % pp || pp > left || (is_free.pp && (size_t)pp > job.shape.layers)) continue;
        job.layout.pp = pp, job.layout.dp = left / pp;
        try_experts(s, job, is_free);
    }
}

LayoutSearch layout_search(const PlanJob *base, LayoutSearchFree is_free)
{
    LayoutSearch s = {.n = 0};
    PlanJob job = *base;
    int gpus = base->layout.gpus, most_tp = is_free.tp ? base->machine.node : base->layout.tp;
    if (gpus < 1) die("--gpus: %d: no accelerators (write --gpus 8)", gpus);
    for (int tp = is_free.tp ? 1 : most_tp; tp <= most_tp; tp *= 2) {
        // pieces of 4k and more
        int most_cp = is_free.cp ? (int)(base->T / 4096 ? base->T / 4096 : 1) : base->layout.cp;
        for (int cp = is_free.cp ? 1 : most_cp; cp <= most_cp; cp *= 2) {
            if (gpus % ((long)tp * cp)) continue;
            job.layout.tp = tp, job.layout.cp = cp;
            if (is_free.tp) job.layout.sp = tp > 1;
            try_pipeline(&s, job, is_free);
        }
    }
    LayoutSearch again = s; // ordered by simulation
    again.n = 0;
    for (int i = 0; i < s.n; i++) keep(&again, &s.best[i].job, plan_time(&s.best[i].job, true).step);
    return again;
}

// ---- the paragraph

static void explain_memory(const PlanJob *job, FILE *out)
{
    PlanBytes b = plan_layout_bytes(job);
    double state = b.parameters + b.gradients + b.optimizer;
    PlanJob one = *job;
    one.layout.tp = one.layout.pp = one.layout.cp = one.layout.ep = one.layout.chunks = 1, one.layout.zero = 0;
    one.layout.schedule = PIPELINE_1F1B, one.layout.sp = false;
    one.layout.dp = one.layout.gpus;
    double whole = 0, P = (double)plan_layout_params(&one, 0);
    whole = P * ((double)job->x_bytes + 4 + 8 + (job->x_bytes < 4 ? 4 : 0));
    fprintf(out, "The model's weights, gradients and optimizer are %.0f GB (%.3g parameters); cut so, the fullest "
                 "accelerator holds %.1f GB of them and %.1f GB of activations, of %s's %.0f GB. ", whole / 1e9, P,
            state / 1e9, b.activations / 1e9, job->machine.name, job->machine.memory / 1e9);
}

void layout_search_explain(const LayoutSearch *s, FILE *out)
{
    check(s->n > 0);
    const PlanJob *job = &s->best[0].job;
    const PlanLayout *l = &job->layout;
    PlanTime t = plan_time(job, true);
    fprintf(out, "%s. ", plan_layout_text(job).s);
    explain_memory(job, out);
    if (l->tp == 1) fprintf(out, "No matrix is cut: tp would put its sums (four a layer) in the way of every block. ");
    else fprintf(out, "tp %d stays within the node; its sums take %.1f%% of a block's time. ", l->tp,
                 100 * (t.tensor[0] + t.tensor[1]) / (t.chunk[0] + t.chunk[1] + t.chunk[2]) *
                     (double)plan_layout_chunk(job));
    double rows = t.rows[0] + t.rows[1], waited = t.experts[0] + t.experts[1];
    if (l->ep > 1)
        fprintf(out, "%d ranks have the %zu experts of a layer between them; rows travel for %.2g ms a block and "
                "micro-batch, of which %.2g ms are not hidden. ", l->ep, job->shape.experts.n, 1e3 * rows,
                1e3 * waited);
    if (l->pp == 1) fprintf(out, "No pipeline is needed, so there is no bubble. ");
    else fprintf(out, "%d stages of %d chunks with %ld micro-batches idle for %.1f%% of the step. ", l->pp, l->chunks,
                 plan_layout_micros(job), 100 * t.bubble);
    if (l->dp * l->cp > 1)
        fprintf(out, "Over %d replicas %.0f ms of gradients and weights travel, of which %.0f ms are not hidden. ",
                l->dp * l->cp, 1e3 * (t.hidden + t.grads + t.weights), 1e3 * (t.grads + t.weights));
    fprintf(out, "A step takes %.3g s: MFU %.1f%%. ", t.step, 100 * t.mfu);
    for (int i = 1; i < s->n; i++) {
        const PlanLayout *o = &s->best[i].job.layout;
        if (o->tp == l->tp && o->pp == l->pp && o->cp == l->cp && o->ep == l->ep) continue;
        fprintf(out, "The next that is cut otherwise, %s, takes %.1f%% longer. ", plan_layout_text(&s->best[i].job).s,
                100 * (s->best[i].seconds / s->best[0].seconds - 1));
        break;
    }
    fputc('\n', out);
}
