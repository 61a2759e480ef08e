// plan_layout: a model cut over tensor, context, pipeline and data parallel ranks, as arithmetic. See plan_job.h.
//
// What a rank holds, in bytes (x: of a weight; P: parameters of its stage and its part of each matrix; N = dp cp):
//
//     weights, gradients, AdamW      x P + 4 P + 12 P, divided by N from ZeRO's stage 3, 2 and 1 on (doc/zero.md);
//                                    experts that ep ranks divide by N / ep
//     activations                    what a chunk saves for one micro-batch (recompute_slot_bytes) * its slots
//     slots                          gpipe m; 1f1b p - s; interleaved 2 p or p (below); others as their table says
//
// The sizes are the trainer's: the parameters of a part come from model_describe on tp_shape and ep_shape, activations
// from recompute_bytes, sharded state from sharding_memory. Only scratch is estimated: one set of a micro-batch's
// widest buffers. Rows of other ranks' tokens have the room that the trainer gives them: for all that can come, or
// moe.room.
//
// All stages have the same number of layers, except that the first and the last chunk may have one less, to make room
// for embedding and head (LLaMA-3's 126 layers on 16 stages are 128 less two).
//
// The invariant: plan_layout_check checks everything that the other functions here divide by or rely on, and they are
// called only after it.
//
// Rejected: layouts with uneven stages. Choosing which stage gets less is a search of its own, and hides a bad
// choice of p.
#include "dev/plan/plan_job.h"

#include "base/check.h"
#include "net/experts.h"
#include "parallel/ep.h"
#include "parallel/pipeline.h"
#include "src/check/sharding.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LOGIT_ROWS = 640 }; // rows of logits that the head makes at a time (doc/plan.md, J)

PlanLayout plan_layout_default(void)
{
    return (PlanLayout){.gpus = 1, .dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1, .reshard = true, .prefetch = 1,
                        .schedule = PIPELINE_1F1B, .chunks = 1, .micro = 1,
                        .recompute = RECOMPUTE_SELECTIVE, .fused_attention = true,
                        .overlap_pp = true, .overlap_dp = true, .grad_bytes = 4};
}

const char *plan_layout_reason(PlanLayoutReason reason)
{
    static const char *const text[PLAN_LAYOUT_REASONS] = {
        [PLAN_LAYOUT_FITS] = "fits",
        [PLAN_LAYOUT_RANKS] = "sizes do not multiply to the number of accelerators",
        [PLAN_LAYOUT_HEADS] = "tp does not divide heads, ffn or kv_heads",
        [PLAN_LAYOUT_EXPERTS] = "ep does not divide experts or dp cp, or tp their width",
        [PLAN_LAYOUT_SHARD] = "shard does not divide the replicas, or ep does not divide it",
        [PLAN_LAYOUT_SEQUENCE] = "cp or sp does not divide the sequence",
        [PLAN_LAYOUT_LAYERS] = "layers do not divide over stages and chunks",
        [PLAN_LAYOUT_BATCH] = "the batch does not divide over replicas and micro-batches",
        [PLAN_LAYOUT_SCHEDULE] = "the schedule is not defined for these sizes",
        [PLAN_LAYOUT_MEMORY] = "does not fit into memory"};
    return text[reason];
}

// ---- cuts

int plan_layout_shards(const PlanLayout *l)
{
    int replicas = l->dp * l->cp;
    return l->zero && l->shard && l->shard < replicas ? l->shard : replicas;
}

int plan_layout_copies(const PlanLayout *l)
{
    return l->dp * l->cp / plan_layout_shards(l);
}

long plan_layout_micros(const PlanJob *job)
{
    return job->batch / (job->layout.dp * job->layout.micro);
}

static size_t pieces(const PlanJob *job)
{
    return (size_t)job->layout.pp * (size_t)job->layout.chunks;
}

size_t plan_layout_chunk(const PlanJob *job)
{
    return (job->shape.layers + pieces(job) - 1) / pieces(job);
}

// How many layers the first and the last chunk lack, together.
static size_t lacking(const PlanJob *job)
{
    return plan_layout_chunk(job) * pieces(job) - job->shape.layers;
}

static bool has_last_piece(const PlanLayout *l, int stage)
{
    return stage == (pipeline_table_is_vee(l->schedule) ? 0 : l->pp - 1); // a V ends where it began
}

ModelPiece plan_layout_piece(const PlanJob *job, int stage, int chunk)
{
    const PlanLayout *l = &job->layout;
    size_t p = (size_t)l->pp, s = (size_t)stage, c = (size_t)chunk, most = plan_layout_chunk(job), lack = lacking(job);
    size_t piece = pipeline_table_is_vee(l->schedule) && c ? 2 * p - 1 - s : c * p + s;
    ModelPiece is = {.embedding = piece == 0, .head = piece == pieces(job) - 1};
    is.first = piece * most - (piece > 0 && lack > 1);
    is.layers = most - (is.head && lack > 0) - (is.embedding && lack > 1);
    return is;
}

size_t plan_layout_layers(const PlanJob *job, int stage)
{
    const PlanLayout *l = &job->layout;
    size_t layers = plan_layout_chunk(job) * (size_t)l->chunks, lack = lacking(job);
    if (has_last_piece(l, stage) && lack > 0) layers--;
    if (stage == 0 && lack > 1) layers--;
    return layers;
}

ModelShape plan_layout_part(const PlanJob *job, int rank)
{
    const PlanLayout *l = &job->layout;
    ModelShape part = tp_shape(&job->shape, rank, l->tp, l->sp);
    return l->ep > 1 ? ep_shape(&part, 0, l->ep) : part;
}

// Elements of the embedding, of a block with one expert or without, of the head, and of that expert alone. (A layer may
// have hundreds, and the search asks often.)
static void count_units(ModelShape one, bool experts, size_t n[4])
{
    Params params;
    Unit *unit;
    one.layers = 1;
    one.experts.n = experts, one.experts.ranks = 1, one.experts.dense = 0, one.experts.every = 1;
    model_describe(&one, &params, &unit);
    for (int i = 0; i < 3; i++) {
        size_t begin, end;
        params_unit_range(&params, i, &begin, &end);
        n[i] = end - begin;
    }
    n[3] = 0;
    for (int i = 0; experts && i < 3; i++) n[3] += params.row[unit[1].row[W_EXPERTS_IN] + i].n_elems; // gate, up, down
    free(unit);
    params_free(&params);
}

size_t plan_layout_mixed(const ModelShape *s)
{
    size_t layers = 0;
    for (size_t l = 0; l < s->layers; l++) layers += unit_has_experts(s, l);
    return layers;
}

PlanUnits plan_layout_units(const PlanJob *job)
{
    ModelShape one = plan_layout_part(job, job->layout.tp - 1); // the last part is the largest
    size_t n[4];
    PlanUnits u = {.positions = one.rope ? 0 : one.context * one.channels};
    count_units(one, false, n);
    u.embedding = n[0], u.block = n[1], u.head = n[2];
    if (!one.experts.n) return u;
    count_units(one, true, n);
    size_t experts = unit_own_experts(&one.experts) * n[3];
    u.routed = n[1] - n[3] + (one.experts.n - 1) * one.channels; // the router has a row for each
    if (job->layout.ep > 1) u.experts = experts;
    else u.routed += experts;
    return u;
}

size_t plan_layout_block(const PlanJob *job, const PlanUnits *u, size_t layer, bool experts)
{
    bool routed = unit_has_experts(&job->shape, layer);
    if (experts) return routed ? u->experts : 0;
    return routed ? u->routed : u->block;
}

size_t plan_layout_routed(const PlanJob *job, int stage)
{
    size_t n = 0;
    for (int c = 0; job->shape.experts.n && c < job->layout.chunks; c++) {
        ModelPiece piece = plan_layout_piece(job, stage, c);
        for (size_t i = 0; i < piece.layers; i++) n += unit_has_experts(&job->shape, piece.first + i);
    }
    return n;
}

size_t plan_layout_experts(const PlanJob *job, int stage)
{
    return job->layout.ep > 1 ? plan_layout_routed(job, stage) * plan_layout_units(job).experts : 0;
}

size_t plan_layout_params(const PlanJob *job, int stage)
{
    PlanUnits u = plan_layout_units(job);
    const PlanLayout *l = &job->layout;
    size_t routed = plan_layout_routed(job, stage);
    size_t n = (plan_layout_layers(job, stage) - routed) * u.block + routed * (u.routed + u.experts);
    if (stage == 0) n += u.embedding;
    if (has_last_piece(l, stage)) n += u.head;
    return n;
}

size_t plan_layout_keep(const PlanLayout *l)
{
    return l->zero == 3 && l->reshard ? (size_t)l->keep : 0;
}

size_t plan_layout_kept(const PlanJob *job, int stage, bool experts, size_t less)
{
    ShardingCase is = {.keep = plan_layout_keep(&job->layout)};
    PlanUnits u = plan_layout_units(job);
    size_t head = u.head - (job->shape.tie ? 0 : less), kept = 0;
    for (int c = 0; c < job->layout.chunks; c++) {
        ModelPiece p = plan_layout_piece(job, stage, c);
        size_t end[2] = {p.embedding ? u.embedding - less : 0, p.head ? head : 0};
        for (int i = 0; i < 2 && !experts; i++) kept += end[i] - sharding_streamed(&is, end[i]);
        for (size_t i = 0; i < p.layers; i++) {
            size_t n = plan_layout_block(job, &u, p.first + i, experts);
            kept += n - sharding_streamed(&is, n);
        }
    }
    return kept;
}

size_t plan_layout_tied(const PlanJob *job, int stage)
{
    const PlanLayout *l = &job->layout;
    if (!job->shape.tie || stage == 0 || !has_last_piece(l, stage)) return 0;
    PlanUnits u = plan_layout_units(job);
    return u.embedding - u.positions;
}

// ---- bytes

// Interleaved: a chunk is filled in groups of p micro-batches. Early chunks get a second group before the first one
// comes back, late ones do not; a middle chunk, where v is odd or the stage is the last, gets part of one.
static size_t interleaved_slots(size_t p, size_t v, bool last, size_t chunk)
{
    size_t half = v / 2, middle = v % 2 ? half : last ? half - 1 : v;
    if (last && chunk == v - 1) return 1;
    if (chunk == middle) return last ? (v % 2 ? p : p + 1) : 2 * p - 1;
    return chunk < half ? 2 * p : p;
}

size_t plan_layout_slots(const PlanJob *job, int stage, int chunk)
{
    const PlanLayout *l = &job->layout;
    size_t m = (size_t)plan_layout_micros(job), p = (size_t)l->pp, n = m;
    check(stage == 0 || stage == l->pp - 1);
    if (p == 1) return 1;
    if (l->schedule == PIPELINE_1F1B) n = p - (size_t)stage;
    if (l->schedule == PIPELINE_INTERLEAVED) n = interleaved_slots(p, (size_t)l->chunks, stage > 0, (size_t)chunk);
    return n < m ? n : m;
}

// What a framework without fused kernels saves in addition, per token and block: scores, or the intermediate results
// of loops.
static double more_saved(const PlanJob *job, const ModelShape *part)
{
    const PlanLayout *l = &job->layout;
    if (l->recompute != RECOMPUTE_NONE) return 0;
    size_t own = part->channels / (l->sp ? (size_t)l->tp : 1);
    size_t turned = (part->heads + part->kv_heads) * part->head_size;
    double more = 0;
    if (!l->fused_attention) more += (2 * (double)job->x_bytes + 1) * (double)(job->T * part->heads); // with a mask
    if (l->eager && part->swiglu) more += (double)(2 * (4 + 4 + 2) * own + 2 * 4 * turned + 2 * part->ffn);
    return more;
}

// A table with the same slots as the job's; the last one is kept, as a search asks for it again and again.
static const PipelineTable *table_of(const PlanJob *job)
{
    static PipelineTable *last;
    const PlanLayout *l = &job->layout;
    int m = (int)plan_layout_micros(job), most = 4 * l->pp; // as many as fill the pipeline
    if (m > most && l->schedule != PIPELINE_GPIPE) m = most;
    if (last && last->schedule == l->schedule && last->p == l->pp && last->m == m && last->v == l->chunks) return last;
    pipeline_table_free(last);
    last = pipeline_table_make(l->schedule, l->pp, m, l->chunks);
    return last;
}

// The slots of all chunks, what the slots share, and the streams between chunks.
static void activation_bytes(const PlanJob *job, int stage, PlanBytes *b)
{
    const PlanLayout *l = &job->layout;
    ModelShape part = plan_layout_part(job, l->tp - 1);
    RecomputePolicy policy = {.mode = l->recompute, .offload = l->offload_acts};
    Dev dev = {.x_bytes = job->x_bytes}; // the only member that those functions read
    size_t B = (size_t)l->micro, T = job->T / (size_t)l->cp, N = B * T, v = (size_t)l->chunks, all = 0;
    size_t stream = N / (l->sp ? (size_t)l->tp : 1) * job->x_bytes * part.channels;
    size_t segment = recompute_segment(policy, plan_layout_chunk(job));
    bool simple = l->pp == 1 || l->schedule == PIPELINE_1F1B || l->schedule == PIPELINE_INTERLEAVED;
    for (size_t c = 0; simple && c < v; c++) {
        ModelPiece p = plan_layout_piece(job, stage, (int)c);
        size_t slots = plan_layout_slots(job, stage, (int)c);
        all += slots * recompute_slot_bytes(&part, &dev, policy, segment, p.first, p.layers, p.head, N);
        b->activations += (double)(slots * p.layers * N) * more_saved(job, &part);
        if (l->pp > 1) b->communication += (double)(slots * stream * (p.head ? 1 : 2));
    }
    if (simple) b->activations += (double)(all + recompute_pool_bytes(&part, &dev, policy, segment, N));
    if (simple) return;
    const PipelineTable *t = table_of(job);
    b->activations = (double)pipeline_bytes(t, stage, NULL, &part, &dev, policy, B, T, NULL);
    ModelStage s = pipeline_stage(t, stage, job->shape.layers, NULL);
    for (int c = 0; c < s.n_chunks; c++) {
        int slots = segment ? s.chunk[c].active : s.chunk[c].held;
        b->activations += (double)((size_t)slots * s.chunk[c].layers * N) * more_saved(job, &part);
        b->communication += (double)((size_t)slots * stream) * (s.chunk[c].head ? 1 : 2);
    }
}

// With memory.offload: two slots, of a unit's state each, instead of all state; nothing where the host makes the
// update. In stage 3 slots of the weights of a shard's units instead of all of them.
static void stored_bytes(const PlanJob *job, size_t unit, size_t N, PlanBytes *b)
{
    const PlanLayout *l = &job->layout;
    bool cut = N > 1 && l->zero;
    double own = (double)unit / (cut ? plan_layout_shards(l) : 1), turns = (double)l->prefetch + 2;
    double state = 2 * own * (job->x_bytes < 4 ? 12 : 8), weights = turns * own * (double)job->x_bytes;
    b->optimizer = l->host_updates ? 0 : state < b->optimizer ? state : b->optimizer;
    if (cut && l->zero == 3 && weights < b->parameters) b->parameters = weights;
}

static PlanBytes stage_bytes(const PlanJob *job, int stage)
{
    const PlanLayout *l = &job->layout;
    size_t P = plan_layout_params(job, stage), x = job->x_bytes, N = (size_t)l->dp * (size_t)l->cp;
    size_t master = x < 4 ? 4 : 0; // beside narrow weights
    size_t S = plan_layout_copies(l) > 1 ? (size_t)l->shard : 0;
    ShardingCase is = {.ranks = N, .shard = S, .params = P, .experts = plan_layout_experts(job, stage),
                       .ep = (size_t)l->ep, .stage = N > 1 ? l->zero : 0, .x_bytes = x, .state = (8 + master) * P};
    PlanBytes b = {.stage = stage};
    b.parameters = (double)sharding_memory(&is, MEM_PARAMS).all / (double)N;
    b.gradients = (double)sharding_memory(&is, MEM_GRADS).all / (double)N;
    b.optimizer = (double)sharding_memory(&is, MEM_OPTIM).all / (double)N;
    activation_bytes(job, stage, &b);
    size_t tied = plan_layout_tied(job, stage);
    b.parameters += (double)(x * tied), b.gradients += (double)(4 * tied);
    if (stage == 0) b.communication += (double)(4 * plan_layout_tied(job, l->pp - 1)); // where its gradient arrives

    ModelShape part = plan_layout_part(job, l->tp - 1);
    double wide = (double)(2 * part.channels + (2 * part.heads + 2 * part.kv_heads) * part.head_size +
                           unit_widest_ffn(&part) * (part.swiglu ? 3 : 1));
    if (part.experts.n) {
        size_t own = part.experts.k, came = experts_rows(&part.experts); // of a token: rows of slots; and to this rank
        wide += (double)((own + (l->ep > 1 ? came : 0)) * part.channels + came * 3 * part.experts.ffn);
    }
    double rows = (double)l->micro * (double)job->T / l->cp;
    b.scratch = rows * ((double)x * wide + 16) + (double)(x * LOGIT_ROWS * part.vocab);
    PlanUnits u = plan_layout_units(job);
    size_t block = u.block > u.routed ? u.block : u.routed, unit = block > u.embedding ? block : u.embedding;
    if (l->offload) stored_bytes(job, unit + u.experts, N, &b);
    size_t slots = 4 * unit + 2 * u.experts, turns = (size_t)l->prefetch + 1; // doc/zero.md
    size_t gathered = (2 + turns) * unit + turns * u.experts;
    gathered += plan_layout_kept(job, stage, false, 0) + plan_layout_kept(job, stage, true, 0);
    if (!l->reshard || gathered > P) gathered = P;
    if (N > 1 && l->zero == 3) b.communication += (double)(x * gathered);
    if (N > 1 && l->zero >= 1 && stage == 0 && job->embed_fp32) b.communication += (double)(4 * u.embedding);
    if (N > 1 && l->zero >= 2) b.communication += (double)(l->grad_bytes * slots);
    b.total = b.parameters + b.gradients + b.optimizer + b.activations + b.scratch + b.communication;
    return b;
}

PlanBytes plan_layout_bytes(const PlanJob *job)
{
    int last = job->layout.pp - 1;
    if (pipeline_table_is_vee(job->layout.schedule)) { // all but stage 0 differ in their activations alone
        double most = 0;
        for (int s = 1; s < job->layout.pp; s++) {
            PlanBytes b = {.stage = s};
            activation_bytes(job, s, &b);
            if (b.activations + b.communication > most) most = b.activations + b.communication, last = s;
        }
    }
    PlanBytes first = stage_bytes(job, 0), other = stage_bytes(job, last);
    return first.total >= other.total ? first : other;
}

// ---- refusals

__attribute__((format(printf, 4, 5)))
static PlanLayoutReason refuse(PlanLayoutReason reason, char *why, size_t n, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    vsnprintf(why, n, text, args);
    va_end(args);
    return reason;
}

// The largest number that divides both.
static int common(int a, int b)
{
    return b ? common(b, a % b) : a;
}

static PlanLayoutReason check_model(const PlanJob *job, char *why, size_t n)
{
    const PlanLayout *l = &job->layout;
    const ModelShape *s = &job->shape;
    size_t tp = (size_t)l->tp, cp = (size_t)l->cp;
    if (s->heads % tp || s->ffn % tp || (s->kv_heads % tp && tp % s->kv_heads) || s->vocab < tp)
        return refuse(PLAN_LAYOUT_HEADS, why, n,
                      "--tp %d: the model has %zu heads, %zu key/value heads and ffn %zu, which "
                      "it must divide (try a power of two up to %zu)", l->tp, s->heads, s->kv_heads, s->ffn, s->heads);
    if (l->ep > 1 && (!s->experts.n || s->experts.n % (size_t)l->ep))
        return refuse(PLAN_LAYOUT_EXPERTS, why, n, "--ep %d: does not divide the model's %zu experts (try --ep %d)",
                      l->ep, s->experts.n, s->experts.n ? common(l->ep, (int)s->experts.n) : 1);
    if (l->ep > 1 && l->dp * l->cp % l->ep)
        return refuse(PLAN_LAYOUT_EXPERTS, why, n, "--ep %d: does not divide dp %d * cp %d ranks, over which experts "
                      "are spread (try --ep %d)", l->ep, l->dp, l->cp, common(l->ep, l->dp * l->cp));
    if (l->zero && l->shard && (l->shard < 2 || l->dp * l->cp % l->shard || l->shard % l->ep))
        return refuse(PLAN_LAYOUT_SHARD, why, n, "--shard %d: 2 or more, divides dp %d * cp %d ranks, and is a "
                      "multiple of ep %d", l->shard, l->dp, l->cp, l->ep);
    if (s->experts.n && (s->experts.ffn % tp || s->experts.shared % tp))
        return refuse(PLAN_LAYOUT_EXPERTS, why, n, "--tp %d: does not divide the width of experts, %zu, and of shared "
                      "ones, %zu", l->tp, s->experts.ffn, s->experts.shared);
    if (job->T % (2 * cp) && cp > 1)
        return refuse(PLAN_LAYOUT_SEQUENCE, why, n, "--cp %d: sequences of %zu tokens are cut into 2 cp pieces (try a "
                      "power of two)", l->cp, job->T);
    if (l->sp && job->T / cp % tp)
        return refuse(PLAN_LAYOUT_SEQUENCE, why, n, "--sp: %zu tokens a rank cannot be shared by --tp %d (try a power "
                      "of two)", job->T / cp, l->tp);
    if (s->layers < pieces(job) || lacking(job) > 2)
        return refuse(PLAN_LAYOUT_LAYERS, why, n, "--pp %d --vpp %d: %zu layers do not divide over %zu chunks (at most "
                      "the first and the last may have one less)", l->pp, l->chunks, s->layers, pieces(job));
    return PLAN_LAYOUT_FITS;
}

static PlanLayoutReason check_schedule(const PlanJob *job, char *why, size_t n)
{
    const PlanLayout *l = &job->layout;
    long m = plan_layout_micros(job);
    bool loops = l->schedule == PIPELINE_INTERLEAVED;
    if (l->pp > PIPELINE_MAX_STAGES || l->chunks > PIPELINE_MAX_CHUNKS)
        return refuse(PLAN_LAYOUT_SCHEDULE, why, n, "--pp %d --vpp %d: at most %d stages of %d chunks", l->pp,
                      l->chunks, PIPELINE_MAX_STAGES, PIPELINE_MAX_CHUNKS);
    if (l->pp == 1 && l->chunks > 1)
        return refuse(PLAN_LAYOUT_SCHEDULE, why, n, "--vpp %d: chunks are of a pipeline's stages (set --pp)",
                      l->chunks);
    if (loops && (l->chunks < 2 || m % l->pp))
        return refuse(PLAN_LAYOUT_SCHEDULE, why, n,
                      "--schedule interleaved: %ld micro-batches and %d chunks on %d stages: "
                      "it needs a multiple of the stages, and 2 chunks or more", m, l->chunks, l->pp);
    if (!loops && l->chunks != pipeline_table_chunks(l->schedule))
        return refuse(PLAN_LAYOUT_SCHEDULE, why, n, "--vpp %d: only interleaved takes any number of chunks (%s has %d)",
                      l->chunks, pipeline_table_name(l->schedule), pipeline_table_chunks(l->schedule));
    return PLAN_LAYOUT_FITS;
}

PlanLayoutReason plan_layout_check(const PlanJob *job, bool memory, char *why, size_t n)
{
    const PlanLayout *l = &job->layout;
    if (l->dp < 1 || l->tp < 1 || l->pp < 1 || l->cp < 1 || l->ep < 1 || l->gpus != l->dp * l->tp * l->pp * l->cp)
        return refuse(PLAN_LAYOUT_RANKS, why, n, "--gpus %d: is not dp %d * tp %d * pp %d * cp %d", l->gpus, l->dp,
                      l->tp, l->pp, l->cp);
    PlanLayoutReason reason = check_model(job, why, n);
    if (reason) return reason;
    if (l->micro < 1 || job->batch < 1 || job->batch % (l->dp * l->micro))
        return refuse(PLAN_LAYOUT_BATCH, why, n,
                      "--batch %ld: sequences cannot be dealt to %d replicas in micro-batches of "
                      "%ld (try a multiple of %ld)", job->batch, l->dp, l->micro, l->dp * l->micro);
    reason = check_schedule(job, why, n);
    if (reason || !memory) return reason;
    PlanBytes b = plan_layout_bytes(job);
    if (b.total > PLAN_LAYOUT_USABLE * job->machine.memory)
        return refuse(PLAN_LAYOUT_MEMORY, why, n,
                      "memory: %.1f GB on stage %d's ranks, %s has %.0f (try more --tp or --pp, "
                      "--zero 1, --recompute full%s; plan layout searches them all)", b.total / 1e9, b.stage, job->machine.name,
                      job->machine.memory / 1e9, l->ep > 1 && !(job->shape.experts.room > 0) ? ", --moe.room=2" : "");
    return PLAN_LAYOUT_FITS;
}

void plan_layout_must(const PlanJob *job, bool memory)
{
    char why[400];
    if (plan_layout_check(job, memory, why, sizeof why) != PLAN_LAYOUT_FITS) die("%s", why);
}

PlanText plan_layout_text(const PlanJob *job)
{
    PlanText text;
    const PlanLayout *l = &job->layout;
    bool said = l->schedule == (l->chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B); // by the chunks
    char ep[24] = "", shard[24] = "", away[40] = "";
    if (l->ep > 1) snprintf(ep, sizeof ep, " ep %d", l->ep);
    if (plan_layout_copies(l) > 1) snprintf(shard, sizeof shard, " shard %d", l->shard);
    if (l->offload) snprintf(away, sizeof away, " offload%s", l->host_updates ? " updates" : "");
    if (l->offload_acts) strcat(away, " offload_acts");
    snprintf(text.s, sizeof text.s, "dp %d tp %d%s pp %d v %d%s%s cp %d%s zero %d%s micro %ld recompute %s%s", l->dp,
             l->tp, l->sp ? " sp" : "", l->pp, l->chunks, said ? "" : " ", said ? "" : pipeline_table_name(l->schedule),
             l->cp, ep, l->zero, shard, l->micro, recompute_name(l->recompute), away);
    return text;
}
