// plan_time: a step's time from its parts. See plan_job.h, and doc/plan_time.md for each part and for failures.
//
//     step = pipeline + exposed gradients + exposed weights + contention + optimizer + offload
//
// pipeline   the schedule's table (pipeline_table.h) simulated by pipeline_time_run, the very code that checks and
//            draws schedules. An action's time is its chunk's layers times roofline's time of a block, plus the
//            communication inside the block that nothing hides: tp's four sums, cp's exchange where it is longer
//            than attention, and ep's rows where they take longer than the expert that all tokens use: its first
//            product hides the way there, its last one the way back. Loads of experts are taken as equal. Embedding and
//            head make one stage slower, and all others wait for it in each micro-batch.
// gradients  with overlap: what is longer than the backward of the last micro-batch, because gradients become complete
//            only during it. Without: all of it. ZeRO 2 and 3 exchange gradients in each micro-batch.
//
// The invariant: with all groups of size 1 the step is the sum of the roofline's operations and the update, nothing
// else.
//
// Rejected: one exponent or factor for "communication overhead". It would have to be fitted anew for each cluster, and
// does not say what to change.
#include "dev/plan/plan_job.h"

#include "base/check.h"
#include "parallel/pipeline_time.h"

#include <math.h>
#include <string.h>

// With overlap_tp, matmuls cut into pieces hide this part of a tp group's sums (Wang et al., ASPLOS 2023: half to two
// thirds).
static const double tensor_hidden = 0.5;

static double beyond(double a, double b)
{
    return fmax(a - b, 0);
}

// ---- one block

static RooflineCase rank_case(const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    return (RooflineCase){.machine = &job->machine, .part = plan_layout_part(job, l->tp - 1),
                          .B = (size_t)l->micro, .T = job->T, .cp = (size_t)l->cp, .x_bytes = job->x_bytes,
                          .fused_attention = l->fused_attention, .eager = l->eager, .recompute = l->recompute};
}

static double micro_tokens(const PlanJob *job)
{
    return (double)job->layout.micro * (double)job->T / job->layout.cp;
}

static void tensor_times(const PlanJob *job, PlanTime *t)
{
    const PlanLayout *l = &job->layout;
    if (l->tp == 1) return;
    PlanGroup where = plan_traffic_group(job, MESH_TP);
    double stream = (double)job->x_bytes * micro_tokens(job) * (double)job->shape.channels;
    double sum = plan_traffic_seconds(&where, COMM_ALL_REDUCE, stream, NULL);
    double gather = plan_traffic_seconds(&where, COMM_ALL_GATHER, stream, NULL);
    double scatter = plan_traffic_seconds(&where, COMM_REDUCE_SCATTER, stream, NULL);
    double one = l->sp ? gather + scatter : sum;
    t->tensor[0] = 2 * one;
    t->tensor[1] = 2 * one;
    const ModelExperts *x = &job->shape.experts;
    double layers = (double)plan_layout_mixed(&job->shape) / (double)job->shape.layers; // a block is the mean of all
    if (x->shared) t->tensor[0] += layers * (l->sp ? scatter : sum);
    double gates = 4 * micro_tokens(job) * (double)x->k;
    if (x->n) t->tensor[1] += layers * plan_traffic_seconds(&where, COMM_ALL_REDUCE, gates, NULL);
    // recomputation repeats the forward sums except the last
    if (l->recompute >= RECOMPUTE_SQRT) t->tensor[1] += l->sp ? 2 * gather + scatter : sum;
    if (recompute_restores(l->recompute) && l->sp && l->fused_attention) t->tensor[1] += 2 * gather;
    for (int i = 0; i < 2; i++) t->tensor[i] *= l->overlap_tp ? 1 - tensor_hidden : 1;
}

// The seconds of a block's operation, forward, back of inputs, of weights; 0 where it has none whose name begins so.
static const double *op_seconds(const Roofline *block, const char *name)
{
    static const double none[ROOFLINE_WAYS];
    for (int i = 0; i < block->n; i++)
        if (!strncmp(block->op[i].name, name, strlen(name))) return block->op[i].seconds;
    return none;
}

// The next block of keys and values is received while attention on the current one is computed.
static void context_times(const PlanJob *job, PlanTime *t)
{
    const PlanLayout *l = &job->layout;
    if (l->cp == 1) return;
    PlanGroup where = plan_traffic_group(job, MESH_CP);
    ModelShape part = plan_layout_part(job, 0);
    double kv = 2 * micro_tokens(job) * (double)(part.kv_heads * part.head_size), steps = l->cp - 1;
    double forward = steps * plan_traffic_seconds(&where, COMM_SEND, kv * (double)job->x_bytes, NULL);
    double back = steps * plan_traffic_seconds(&where, COMM_SEND, kv * (double)(job->x_bytes + 4), NULL);
    double part_hidden = steps / l->cp; // a rank's own block is not sent to it, so it hides nothing
    t->context[0] = beyond(forward, part_hidden * op_seconds(&t->block, "attention,")[ROOFLINE_F]);
    t->context[1] = beyond(back, part_hidden * op_seconds(&t->block, "attention,")[ROOFLINE_B]);
    // choices and weights of experts, before slots are sorted; in backward too, and where the order is restored
    double slots = 4 * micro_tokens(job) * l->cp * (double)job->shape.experts.k;
    double share = (double)plan_layout_mixed(&job->shape) / (double)job->shape.layers;
    double whole = 2 * share * plan_traffic_seconds(&where, COMM_ALL_GATHER, slots, NULL);
    t->context[0] += whole;
    t->context[1] += whole * (l->recompute == RECOMPUTE_NONE ? 1 : 2);
}

static void expert_times(const PlanJob *job, PlanTime *t)
{
    const PlanLayout *l = &job->layout;
    if (l->ep == 1) return;
    PlanGroup where = plan_traffic_group(job, MESH_EP);
    PlanRows one = plan_traffic_rows(job);
    double share = (double)plan_layout_mixed(&job->shape) / (double)job->shape.layers;
    double rows = plan_traffic_seconds(&where, COMM_ALL_TO_ALL, one.rows, NULL);
    double weights = plan_traffic_seconds(&where, COMM_ALL_TO_ALL, one.weights, NULL);
    double numbers = plan_traffic_seconds(&where, COMM_ALL_TO_ALL, one.numbers, NULL); // waited for at once
    for (int back = 0; back < 2; back++) {
        double there = share * (rows + (back ? 0 : weights)), home = share * (rows + (back ? weights : 0));
        const double *a = op_seconds(&t->block, "shared gate, up"), *b = op_seconds(&t->block, "shared down");
        double in = back ? a[ROOFLINE_B] + a[ROOFLINE_W] : a[ROOFLINE_F];
        double down = back ? b[ROOFLINE_B] + b[ROOFLINE_W] : b[ROOFLINE_F];
        t->rows[back] = there + home + share * numbers;
        // backward meets the last product first
        t->experts[back] = share * numbers + beyond(there, back ? down : in) + beyond(home, back ? in : down);
    }
    if (recompute_restores(l->recompute)) t->experts[1] += share * numbers, t->rows[1] += share * numbers;
    if (l->recompute >= RECOMPUTE_SQRT) t->experts[1] += t->experts[0], t->rows[1] += t->rows[0];
}

// ---- the pipeline

static double simulated(const PlanLayout *l, const PipelineTimes *times, int m)
{
    PipelineTable *table = pipeline_table_make(l->schedule, l->pp, m, l->chunks);
    PipelineTimeline line;
    char why[200];
    if (!pipeline_time_run(&line, table, times, why, sizeof why)) die("plan: %s", why);
    double length = pipeline_time_length(&line);
    pipeline_time_free(&line);
    pipeline_table_free(table);
    return length;
}

static double played(const PlanJob *job, const PlanTime *t, bool simulate, double *bubble)
{
    const PlanLayout *l = &job->layout;
    int m = (int)plan_layout_micros(job), most = simulate ? PIPELINE_MAX_MICRO / l->pp * l->pp : 4 * l->pp;
    PipelineTimes times = {.f = t->chunk[ROOFLINE_F], .b = t->chunk[ROOFLINE_B], .w = t->chunk[ROOFLINE_W],
                           .p2p = t->send};
    double stage = (times.f + times.b + times.w) * l->chunks, busy = m * stage, length;
    if (!simulate && !pipeline_table_is_vee(l->schedule)) {
        // 1f1b's and interleaved's length, and the sends of one micro-batch's way down and back
        length = busy + (l->pp - 1) * (stage / l->chunks + 2 * t->send);
    } else if (m <= most) {
        length = simulated(l, &times, m);
    } else { // each micro-batch more takes as long as the last p of these do on average
        double all = simulated(l, &times, most), less = simulated(l, &times, most - l->pp);
        length = all + (m - most) * (all - less) / l->pp;
    }
    *bubble = 1 - busy / length;
    return length;
}

static double sum_of(const Roofline *r)
{
    return r->seconds[ROOFLINE_F] + r->seconds[ROOFLINE_B] + r->seconds[ROOFLINE_W];
}

static void pipeline_times(const PlanJob *job, const PlanHost *host, PlanTime *t, bool simulate)
{
    const PlanLayout *l = &job->layout;
    double m = (double)plan_layout_micros(job), layers = (double)plan_layout_chunk(job);
    for (int way = 0; way < ROOFLINE_WAYS; way++) t->chunk[way] = layers * t->block.seconds[way];
    t->chunk[ROOFLINE_F] += layers * (t->tensor[0] + t->context[0] + t->experts[0]);
    t->chunk[ROOFLINE_B] += layers * (t->tensor[1] + t->context[1] + t->experts[1]);
    for (int in = 0; in < 2; in++) t->acts[in] = host->chunk[in] / host->bandwidth;
    t->chunk[ROOFLINE_F] += t->acts[0], t->chunk[ROOFLINE_B] += t->acts[0];
    t->chunk[ROOFLINE_W] += t->acts[1] - t->acts[0]; // once more for weights' gradients that come later
    // The first and the last stage's embedding or head, less the blocks that they lack.
    double block = t->chunk[ROOFLINE_F] + t->chunk[ROOFLINE_B] + t->chunk[ROOFLINE_W];
    double whole = layers * l->chunks, one = block / layers;
    double first = sum_of(&t->embedding) - one * (whole - (double)plan_layout_layers(job, 0));
    double last = sum_of(&t->head) - one * (whole - (double)plan_layout_layers(job, l->pp - 1));
    t->ends = l->pp == 1 ? sum_of(&t->embedding) + sum_of(&t->head) : fmax(0, fmax(first, last));
    double compute = sum_of(&t->block) * whole;
    t->compute = m * (compute + (l->pp == 1 ? t->ends : 0));
    if (l->pp == 1) {
        t->pipeline = m * (block + t->ends);
        return;
    }
    PlanGroup where = plan_traffic_group(job, MESH_PP);
    double stream = (double)job->x_bytes * micro_tokens(job) * (double)job->shape.channels;
    t->send = plan_traffic_seconds(&where, COMM_SEND, stream / (l->sp || l->scatter ? l->tp : 1), NULL);
    if (!l->overlap_pp) { // a stage is idle while its output, and the next input, are sent
        t->chunk[ROOFLINE_F] += t->send, t->chunk[ROOFLINE_B] += t->send;
        t->send = 0;
    }
    t->pipeline = played(job, t, simulate, &t->bubble) + m * t->ends;
}

// ---- replicas

// Parameters of the stage that has the most: of experts that ep ranks divide, and all others.
typedef struct {
    double others, experts;
    int stage;
} Fullest;

static Fullest fullest_stage(const PlanJob *job)
{
    Fullest f = {0};
    for (int stage = 0; stage < job->layout.pp; stage++) {
        double held = (double)plan_layout_params(job, stage), experts = (double)plan_layout_experts(job, stage);
        if (held > f.others + f.experts) f = (Fullest){held - experts, experts, stage};
    }
    return f;
}

// One call for all of them, each part over its own group.
static double exchange(const PlanJob *job, CommKind kind, double n_bytes, Fullest f)
{
    bool hybrid = plan_layout_copies(&job->layout) > 1;
    PlanGroup all = plan_traffic_group(job, hybrid ? MESH_SHARDS : MESH_REPLICAS);
    PlanGroup same = plan_traffic_group(job, hybrid ? MESH_EXPERT_SHARDS : MESH_EXPERT_REPLICAS);
    return plan_traffic_seconds(&all, kind, n_bytes * f.others, NULL) +
           plan_traffic_seconds(&same, kind, n_bytes * f.experts, NULL);
}

// Of hybrid sharding, once a step: the sum over the copies of a rank's ranges.
static double between_copies(const PlanJob *job, Fullest f)
{
    const PlanLayout *l = &job->layout;
    if (plan_layout_copies(l) == 1) return 0;
    PlanGroup column = plan_traffic_group(job, MESH_COPIES);
    return plan_traffic_seconds(&column, COMM_ALL_REDUCE, 4 * (f.others + l->ep * f.experts) / l->shard, NULL);
}

static void replica_times(const PlanJob *job, const PlanHost *host, PlanTime *t)
{
    const PlanLayout *l = &job->layout;
    if (l->dp * l->cp == 1) return;
    Fullest P = fullest_stage(job);
    double m = (double)plan_layout_micros(job);
    double reduce = exchange(job, l->zero ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE, (double)l->grad_bytes, P);
    Fullest kept = {(double)plan_layout_kept(job, P.stage, false, 0),
                    (double)plan_layout_kept(job, P.stage, true, 0), 0};
    Fullest streamed = {P.others - kept.others, P.experts - kept.experts, 0};
    double gather = exchange(job, COMM_ALL_GATHER, (double)job->x_bytes, streamed);
    double once = kept.others + kept.experts > 0 ? exchange(job, COMM_ALL_GATHER, (double)job->x_bytes, kept) : 0;
    double reads = l->reshard ? 2 * m : 1; // from the store, before each gather
    gather += host->gathers.rank / reads / host->bandwidth;
    double column = between_copies(job, P), ends = l->pp == 1 ? t->ends / 3 : 0;
    double forward = t->chunk[ROOFLINE_F] * l->chunks + ends;
    double back = (t->chunk[ROOFLINE_B] + t->chunk[ROOFLINE_W]) * l->chunks + 2 * ends;
    double times = l->zero > 1 ? m : 1, all = 0;
    t->window = back;
    bool overlap = l->overlap_dp && !(l->pp > 1 && l->zero > 1); // between a pipeline's actions all is waited for
    if (l->zero == 3) { // both weights and gradients, for each micro-batch
        double before = l->reshard ? m : 1, again = l->reshard ? gather : 0; // in forward; in backward
        bool ahead = overlap && l->prefetch > 0;
        t->weights = (before - 1) * (ahead ? beyond(gather, forward) : gather);
        t->weights += ahead ? beyond(gather + once, forward) : gather + once;
        double both = reduce + (ahead ? again : 0); // what is gathered when it is needed is waited for
        t->grads = (m - 1) * (overlap ? beyond(both, back) : both) + (ahead ? 0 : m * again);
        t->grads += overlap ? beyond(both + column, back) : both + column; // with the last micro-batch
        all = before * gather + once + m * (reduce + again) + column;
    } else {
        t->grads = (times - 1) * (overlap ? beyond(reduce, back) : reduce);
        t->grads += overlap ? beyond(reduce + column, back) : reduce + column;
        if (l->zero) t->weights = overlap ? beyond(gather, forward) : gather;
        all = times * reduce + column + (l->zero ? gather : 0);
    }
    t->hidden = all - t->grads - t->weights;
}

// A tied head's gradient goes to the embedding's stage, and the new weights come back; nothing is left to hide them.
static void tied_times(const PlanJob *job, PlanTime *t)
{
    PlanGroup where = plan_traffic_group(job, MESH_PP);
    double tied = (double)plan_layout_tied(job, job->layout.pp - 1);
    t->grads += plan_traffic_seconds(&where, COMM_SEND, 4 * tied, NULL);
    t->weights += plan_traffic_seconds(&where, COMM_SEND, (double)job->x_bytes * tied, NULL);
}

// On the host 28 + x bytes a parameter go through its memory: gradient, m, v and weight are read, the last three and x
// written.
static void update_times(const PlanJob *job, const PlanHost *host, PlanTime *t)
{
    const PlanLayout *l = &job->layout;
    double shards = l->zero ? plan_layout_shards(l) : 1, moved = host->update[0].rank + host->update[1].rank;
    Fullest P = fullest_stage(job);
    double own = (P.others + (l->zero ? l->ep : 1) * P.experts) / shards;
    double copy = job->x_bytes < 4 ? (double)job->x_bytes : 0; // of the weights; else there is none
    t->optimizer = roofline_adamw(&job->machine, own, copy);
    if (l->host_updates) t->optimizer = own * (28 + copy) / (roofline_constants().memory * job->machine.host_memory);
    t->offload = l->host_updates ? moved / host->bandwidth : beyond(moved / host->bandwidth, t->optimizer);
}

static double again_flops(const PlanJob *job)
{
    RecomputePolicy policy = {.mode = job->layout.recompute};
    return recompute_extra_flops(&job->shape, policy, job->T);
}

PlanTime plan_time(const PlanJob *job, bool simulate)
{
    const PlanLayout *l = &job->layout;
    RooflineCase c = rank_case(job);
    PlanTime t = {.block = roofline_block(&c), .embedding = roofline_embedding(&c), .head = roofline_head(&c)};
    tensor_times(job, &t);
    context_times(job, &t);
    expert_times(job, &t);
    PlanHost host = plan_traffic_host(job);
    pipeline_times(job, &host, &t, simulate);
    replica_times(job, &host, &t);
    tied_times(job, &t);
    update_times(job, &host, &t);
    t.contention = roofline_constants().contention * t.hidden;
    t.step = t.pipeline + t.grads + t.weights + t.contention + t.optimizer + t.offload;
    double tokens = (double)job->batch * (double)job->T;
    t.model_flops = tokens * model_flops_per_token(&job->shape, job->T);
    t.hardware_flops = t.model_flops + tokens * again_flops(job);
    t.tokens_second = tokens / t.step;
    t.mfu = t.model_flops / (t.step * l->gpus * job->machine.peak);
    t.hfu = t.hardware_flops / (t.step * l->gpus * job->machine.peak);
    return t;
}

// ---- failures

double plan_time_between_failures(double n)
{
    // 419 unexpected interruptions; 54 days * 24 hours * 16,384 accelerators: one in 50,677 accelerator hours.
    return 54 * 24 * 16384.0 / 419 * 3600 / n;
}

double plan_time_young(double save, double mean)
{
    return sqrt(2 * save * mean);
}

double plan_time_daly(double save, double mean)
{
    if (save >= 2 * mean) return mean;
    double r = save / (2 * mean);
    return sqrt(2 * save * mean) * (1 + sqrt(r) / 3 + r / 9) - save;
}

double plan_time_goodput(double interval, double save, double restart, double mean)
{
    return interval / ((mean + restart) * expm1((interval + save) / mean));
}
