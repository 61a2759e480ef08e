// plan_traffic: the bytes of a step, and the time they take by the alpha-beta model. See plan_job.h.
//
// doc/plan_traffic.md has the formulas of each group (tp, cp, pp, ends, ep, dp) and of what goes to the host and back;
// a flow's text has them too. Formulas of modules are called, not written again: cp_bytes, sharding_traffic,
// sharding_gathered, recompute_host_bytes, whole_plan_bytes.
//
// Seconds, on a group of n ranks of which k are on each node: a ring takes collectives_seconds with the slower of the
// node's link and k network cards; a tree takes fewer messages, each of all bytes; recursive halving takes few messages
// too; the hierarchical way reduces in the node first, so that each card carries 1 / k of the bytes between n / k
// nodes. The fastest is taken, as a library would. all_to_all: a rank sends an equal part to each other rank; those on
// its node by the node's link, at the same time the others by its own card.
//
// Groups are placed in mesh.h's order: tp innermost, then cp, pp, dp. So the ranks of a tp group are neighbours, and
// a dp group has a second rank on the node only where a whole model is smaller than a node. An ep group lies along cp,
// then dp: with a pipeline between them its ranks are usually on different nodes.
//
// The invariant: sums over all ranks are whole numbers and equal to what the trainer's groups count.
//
// Rejected: a bandwidth curve over message sizes. alpha accounts for small messages; what remains is less than the
// difference between two clusters.
#include "dev/plan/plan_job.h"

#include "base/check.h"
#include "comm/collectives.h"
#include "parallel/cp.h"
#include "parallel/pipeline.h"
#include "parallel/pipeline_check.h"
#include "parallel/zero.h"
#include "src/check/sharding.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int at_least_one(int a)
{
    return a < 1 ? 1 : a;
}

// Ranks of a group on one node: `cp` of a sequence's ranks, `step` ranks apart, times `dp` replicas, `stride` apart.
static int inside_of(int node, int cp, int step, int dp, int stride)
{
    int inside = least(cp, at_least_one(node / step));
    return inside == cp ? inside * least(dp, at_least_one(node / stride)) : inside;
}

PlanGroup plan_traffic_group(const PlanJob *job, MeshGroup group)
{
    const PlanLayout *l = &job->layout;
    RooflineConstants k = roofline_constants();
    PlanGroup g = {.size = 1, .inside = 1, .in = job->machine.inside, .out = job->machine.between};
    int node = job->machine.node, model = l->tp * l->cp * l->pp;
    int cp = least(l->cp, l->ep), dp = l->ep / cp; // ep ranks along cp, then along dp
    int cut = at_least_one(least(l->cp, l->shard)); // and those of a shard
    if (g.in.source) g.in.bandwidth *= k.inside;
    if (g.out.source) g.out.bandwidth *= k.between;
    switch (group) {
    case MESH_TP: g.size = l->tp, g.inside = least(l->tp, node); break;
    case MESH_CP: g.size = l->cp, g.inside = least(l->cp, at_least_one(node / l->tp)); break;
    case MESH_PP: g.size = l->pp, g.inside = model <= node ? l->pp : 1; break;
    case MESH_EP: g.size = l->ep, g.inside = inside_of(node, cp, l->tp, dp, model); break;
    case MESH_EXPERT_REPLICAS:
        g.size = l->dp * l->cp / l->ep;
        g.inside = inside_of(node, l->cp / cp, l->tp * cp, l->dp / dp, model * dp);
        break;
    case MESH_SHARDS:
        g.size = l->shard;
        g.inside = inside_of(node, cut, l->tp, l->shard / cut, model);
        break;
    case MESH_EXPERT_SHARDS:
        g.size = l->shard / l->ep;
        g.inside = inside_of(node, cut / cp, l->tp * cp, l->shard / cut / dp, model * dp);
        break;
    case MESH_COPIES:
        g.size = l->dp * l->cp / l->shard;
        g.inside = inside_of(node, l->cp / cut, l->tp * cut, l->dp / (l->shard / cut), model * (l->shard / cut));
        break;
    default: // replicas
        g.size = l->dp * l->cp;
        g.inside = inside_of(node, l->cp, l->tp, l->dp, model);
    }
    return g;
}

// ---- seconds

static void try(double *best, const char **name, double seconds, const char *way)
{
    if (*best >= 0 && *best <= seconds) return;
    *best = seconds;
    if (name) *name = way;
}

double plan_traffic_seconds(const PlanGroup *w, CommKind kind, double n_bytes, const char **algorithm)
{
    size_t n = (size_t)n_bytes;
    double best = -1, in = 1 / w->in.bandwidth, out = 1 / w->out.bandwidth;
    if (algorithm) *algorithm = "none";
    if (w->size == 1 || n == 0) return 0;
    if (kind == COMM_SEND) {
        if (algorithm) *algorithm = "direct";
        bool near = w->inside == w->size;
        return near ? w->in.alpha + n_bytes * in : w->out.alpha + n_bytes * out;
    }
    if (kind == COMM_ALL_TO_ALL) { // n_bytes: what a rank sends to all
        double others = w->size - 1, far = w->size - w->inside, here = others - far;
        double near = here * w->in.alpha + n_bytes * here / others * in;
        double away = far * w->out.alpha + n_bytes * far / others * out;
        if (algorithm) *algorithm = "direct";
        return near > away ? near : away;
    }
    bool reduce = kind == COMM_ALL_REDUCE;
    if (w->inside == w->size) {
        try(&best, algorithm, collectives_seconds(kind, COMM_RING, w->size, n, w->in.alpha, in), "ring");
        if (reduce) try(&best, algorithm, collectives_seconds(kind, COMM_TREE, w->size, n, w->in.alpha, in), "tree");
        return best;
    }
    double cards = w->inside * w->out.bandwidth, ring = 1 / (cards < w->in.bandwidth ? cards : w->in.bandwidth);
    int nodes = (w->size + w->inside - 1) / w->inside;
    try(&best, algorithm, collectives_seconds(kind, COMM_RING, w->size, n, w->out.alpha, ring), "ring");
    if (reduce) try(&best, algorithm, collectives_seconds(kind, COMM_TREE, w->size, n, w->out.alpha, ring), "tree");
    if (w->inside > 1) {
        CommKind part = reduce ? COMM_REDUCE_SCATTER : kind;
        double local = collectives_seconds(part, COMM_RING, w->inside, n, w->in.alpha, in) * (reduce ? 2 : 1);
        size_t rest = n / (size_t)w->inside;
        try(&best, algorithm, local + collectives_seconds(kind, COMM_RING, nodes, rest, w->out.alpha, out),
            "hierarchical");
        if (reduce) {
            double halves = local + collectives_seconds(kind, COMM_HALVING, nodes, rest, w->out.alpha, out);
            try(&best, algorithm, halves, "hierarchical, halving");
        }
    } else if (reduce) {
        try(&best, algorithm, collectives_seconds(kind, COMM_HALVING, nodes, n, w->out.alpha, out), "halving");
    }
    return best;
}

// ---- flows

__attribute__((format(printf, 8, 9)))
static void add(PlanTraffic *t, const char *group, const PlanGroup *where, CommKind kind, double calls, double payload,
                size_t all, const char *formula, ...)
{
    check(t->n < PLAN_FLOWS);
    PlanFlow *f = &t->flow[t->n++];
    va_list args;
    va_start(args, formula);
    vsnprintf(f->formula, sizeof f->formula, formula, args);
    va_end(args);
    f->group = group, f->where = *where, f->kind = kind, f->calls = calls, f->payload = payload, f->all = all;
    f->seconds = calls * plan_traffic_seconds(where, kind, payload, &f->algorithm);
}

// What a stage recomputes in a step, over all its micro-batches: blocks run forward again; of those, ends of segments,
// which skip their last matmul (not where a norm reads it); blocks some of whose buffers are restored.
typedef struct {
    size_t blocks, ends, restored;
} AgainCount;
typedef struct {
    AgainCount all, routed; // routed: of blocks with experts
} Again;

static void add_block(Again *again, const PlanJob *job, size_t layer, AgainCount one)
{
    AgainCount *count[] = {&again->all, &again->routed};
    for (int i = 0; i < 1 + unit_has_experts(&job->shape, layer); i++)
        count[i]->blocks += one.blocks, count[i]->ends += one.ends, count[i]->restored += one.restored;
}

// fresh: nothing else ran between the chunk's forward and its backward, so its last segment is still in memory.
static void add_again(Again *again, const PlanJob *job, ModelPiece p, size_t segment, bool fresh)
{
    size_t last = segment ? (p.layers - 1) / segment * segment : 0; // where the last segment begins
    bool restores = recompute_restores(job->layout.recompute), skips = !unit_norms_outputs(&job->shape);
    for (size_t i = 0; i < p.layers; i++) {
        bool runs = segment && (!fresh || i < last), behind = i + 1 == p.layers;
        add_block(again, job, p.first + i, (AgainCount){.blocks = runs, .restored = restores && !(fresh && behind),
                                                        .ends = skips && runs && ((i + 1) % segment == 0 || behind)});
    }
}

// Walks through a stage's schedule, and keeps recompute.c's `fresh`: whose forward used the pool of buffers last.
static void play_again(Again *again, const PlanJob *job, const PipelineTable *t, int stage)
{
    int micro = -1, chunk = -1;
    size_t most = 0;
    for (int c = 0; c < t->v; c++) {
        size_t layers = plan_layout_piece(job, stage, c).layers;
        most = layers > most ? layers : most;
    }
    size_t segment = recompute_segment((RecomputePolicy){.mode = job->layout.recompute}, most);
    bool restores = recompute_restores(job->layout.recompute);
    for (int i = 0; i < t->n[stage]; i++) {
        const PipelineAction *a = &t->action[stage][i];
        ModelPiece p = plan_layout_piece(job, stage, a->chunk);
        bool fresh = a->micro == micro && a->chunk == chunk;
        if (a->op == PIPELINE_F) micro = a->micro, chunk = a->chunk;
        if (a->op == PIPELINE_B) add_again(again, job, p, segment, fresh);
        for (size_t k = 0; a->op == PIPELINE_W && restores && k < p.layers; k++)
            add_block(again, job, p.first + k, (AgainCount){.restored = 1});
        if (a->op == PIPELINE_B ? !fresh : a->op == PIPELINE_W && restores) micro = chunk = -1;
    }
}

// For all stages; free() it.
static Again *run_again(const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    size_t segment = recompute_segment((RecomputePolicy){.mode = l->recompute}, job->shape.layers);
    Again *again = calloc((size_t)l->pp, sizeof *again);
    if (!again) die("plan: no memory for %d stages", l->pp);
    if (l->recompute == RECOMPUTE_NONE) return again;
    if (l->pp == 1)
        for (long m = 0; m < plan_layout_micros(job); m++)
            add_again(again, job, plan_layout_piece(job, 0, 0), segment, true);
    if (l->pp == 1) return again;
    PipelineTable *t = pipeline_table_make(l->schedule, l->pp, (int)plan_layout_micros(job), l->chunks);
    for (int stage = 0; stage < l->pp; stage++) play_again(&again[stage], job, t, stage);
    pipeline_table_free(t);
    return again;
}

// Whether the schedule has backward of weights as an action of its own.
static bool is_split(const PlanLayout *l)
{
    return l->pp > 1 && (l->schedule == PIPELINE_ZB_H1 || pipeline_table_is_vee(l->schedule));
}

// Elements whose gradients are added over a tp group, and over the copies of a key/value head. A block with two actions
// adds them in each.
static void sums_of(const PlanJob *job, size_t *all, size_t *neighbours, int *copies)
{
    Params params;
    Unit *unit;
    ModelShape part = plan_layout_part(job, 0);
    *copies = unit_cut_copies(&part), *all = 0, *neighbours = 0;
    model_describe(&part, &params, &unit);
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i];
        bool block = row->unit > 0 && row->unit < params.n_units - 1;
        size_t n = row->n_elems * (block && is_split(&job->layout) ? 2 : 1);
        if (row->sum == PARAM_SUM_ALL) *all += n;
        if (row->sum == PARAM_SUM_NEIGHBOURS) *neighbours += n;
    }
    free(unit);
    params_free(&params);
}

static void tensor_flows(PlanTraffic *t, const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    const ModelShape *s = &job->shape;
    PlanGroup where = plan_traffic_group(job, MESH_TP);
    size_t p = (size_t)l->tp, m = (size_t)plan_layout_micros(job), R = (size_t)(l->dp * l->cp), groups = R * m;
    size_t N = (size_t)l->micro * job->T / (size_t)l->cp, stream = job->x_bytes * N * s->channels, sum, near;
    int copies;
    sums_of(job, &sum, &near, &copies);
    sum += plan_layout_mixed(s) * s->experts.k * N;
    size_t gather = 2 * m, scatter = 2 * m; // the embedding and the head; streams of the whole model for a step
    size_t outputs = 0;                     // of layers with experts, also of those that run again
    size_t busy = 0;                        // blocks' sums on the busiest stage
    Again *again = run_again(job);
    for (int stage = 0; stage < l->pp; stage++) {
        size_t layers = plan_layout_layers(job, stage), forward = 2 * again[stage].all.blocks - again[stage].all.ends;
        size_t norms = l->sp ? 2 * again[stage].all.blocks : forward;
        // the norms' outputs are gathered again, except a last block's that is still in memory
        if (l->sp && recompute_restores(l->recompute)) norms = 2 * again[stage].all.restored;
        gather += 4 * m * layers + norms, scatter += 4 * m * layers + forward;
        outputs += m * plan_layout_routed(job, stage) + again[stage].routed.blocks - again[stage].routed.ends;
        size_t own = 4 * m * layers + (norms + forward) / 2;
        busy = own > busy ? own : busy;
    }
    free(again);
    size_t shared = s->experts.shared ? outputs : 0;
    scatter += shared, gather += l->sp ? 0 : shared;
    size_t numbers = 3 * 4 * N + 4 * sum; // of a micro-batch: the loss', and gradients that ranks share
    double calls = (double)busy;
    if (!l->sp) {
        add(t, "tp", &where, COMM_ALL_REDUCE, calls, (double)stream,
            R * 2 * (p - 1) * ((gather + scatter) / 2 * stream + m * numbers),
            "R 2 (tp-1) (%zu x N C + m (12 N + 4 s))", (gather + scatter) / 2);
    } else {
        add(t, "tp", &where, COMM_ALL_GATHER, calls, (double)stream, R * (p - 1) * gather * stream,
            "R (tp-1) %zu x N C", gather);
        add(t, "tp", &where, COMM_REDUCE_SCATTER, calls, (double)stream, R * (p - 1) * scatter * stream,
            "R (tp-1) %zu x N C", scatter);
        add(t, "tp", &where, COMM_ALL_REDUCE, (double)m, (double)numbers, groups * 2 * (p - 1) * numbers,
            "R m 2 (tp-1) (12 N + 4 s)");
    }
    if (copies == 1) return;
    PlanGroup pair = where;
    pair.size = copies, pair.inside = least(copies, where.inside);
    add(t, "tp kv", &pair, COMM_ALL_REDUCE, (double)m, 4 * (double)near,
        groups * (p / (size_t)copies) * 2 * (size_t)(copies - 1) * 4 * near, "R m tp 2 (k-1) / k 4 s");
}

// The tensors of a stage that come together, over all replicas: bytes, and rounds of the busiest tp group.
static size_t whole_bytes(const PlanJob *job, const Params *params, bool agc, int *rounds)
{
    const PlanLayout *l = &job->layout;
    const OptimKind *kind = optim_kind(job->optim);
    WholeNeed need = {.kind = kind, .agc = agc, .tied = job->shape.tie, .unit = job->agc_unit};
    int replicas = l->dp * l->cp, parts = l->zero ? plan_layout_shards(l) : 1, n_units = params->n_units;
    OptimRange range[n_units];
    size_t all = 0;
    for (int r = 0; r < parts; r++) {
        ZeroCut cut = zero_cut(params, zero_where(kind, job->agc, l->tp), l->zero, r, parts);
        for (int u = 0; u < n_units; u++)
            range[u] = (OptimRange){.begin = cut.begin[u], .end = cut.begin[u] + cut.at[u + 1] - cut.at[u]};
        WholePlan plan = whole_plan(params, need, parts > 1 ? range : NULL, n_units, l->tp);
        all += whole_plan_bytes(&plan, params);
        int n = plan.owner ? plan.first[parts > 1 ? n_units : 1] : 0;
        *rounds = n > *rounds ? n : *rounds;
        whole_plan_free(&plan);
        zero_cut_free(&cut);
    }
    return all * (size_t)(replicas / parts);
}

static void whole_flows(PlanTraffic *t, const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    bool update = optim_kind(job->optim)->cut != OPTIM_ELEMENT;
    if (!update && !job->agc) return; // nothing comes together
    PlanGroup where = plan_traffic_group(job, MESH_TP);
    ModelShape part = plan_layout_part(job, 0);
    PipelineTable *table = l->pp > 1 ? pipeline_table_make(l->schedule, l->pp, (int)plan_layout_micros(job), l->chunks)
                                     : NULL;
    size_t all = 0;
    int most = 0;
    for (int i = 0; i < l->pp; i++) {
        ModelStage stage;
        Params params;
        Unit *unit;
        int rounds[2] = {0, 0};
        if (table) stage = pipeline_stage(table, i, job->shape.layers, NULL);
        model_describe_stage(&part, table ? &stage : NULL, &params, &unit);
        if (update) all += whole_bytes(job, &params, false, &rounds[0]);
        if (job->agc) all += whole_bytes(job, &params, true, &rounds[1]);
        if (rounds[0] + rounds[1] > most) most = rounds[0] + rounds[1];
        params_free(&params);
        free(unit);
    }
    if (table) pipeline_table_free(table);
    if (!all) return;
    double calls = 3.0 * most, ranks = (double)l->tp * l->pp * (l->zero ? plan_layout_copies(l) : l->dp * l->cp);
    add(t, "tp", &where, COMM_ALL_TO_ALL, calls, (double)all / ranks / calls, all,
        "%s12 (tp-1) / tp n, n elements of tensors that come together",
        !l->zero ? "R " : plan_layout_copies(l) > 1 ? "C " : "");
}

PlanRows plan_traffic_rows(const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    const ModelExperts *e = &job->shape.experts;
    double slots = (double)l->micro * (double)job->T / l->cp * (double)e->k, others = (l->ep - 1.0) / l->ep;
    return (PlanRows){.rows = others * slots * (double)(job->x_bytes * job->shape.channels),
                      .weights = others * slots * sizeof(float), .numbers = others * (double)e->n * sizeof(int32_t)};
}

// How often a rank of each stage exchanges what in a step, of all stages together and of the busiest. Rows: dispatch
// and combine of a block's forward, and again what recomputation runs of it (the last block of a segment without its
// combine); of its backward the same. Slots are sorted before each dispatch, and where the order alone is restored.
typedef struct {
    double rows, weights, sorts, busy_rows, busy_small, busy_sorts;
} Exchanges;

static Exchanges expert_exchanges(const PlanJob *job)
{
    double m = (double)plan_layout_micros(job);
    Exchanges e = {0};
    Again *again = run_again(job);
    for (int stage = 0; stage < job->layout.pp; stage++) {
        AgainCount more = again[stage].routed;
        double runs = m * (double)plan_layout_routed(job, stage), blocks = (double)more.blocks;
        double rows = 4 * runs + 2 * blocks - (double)more.ends, sorts = 2 * runs + blocks + (double)more.restored;
        e.rows += rows, e.sorts += sorts, e.weights += 2 * runs + blocks;
        if (rows > e.busy_rows) e.busy_rows = rows, e.busy_sorts = sorts, e.busy_small = 2 * runs + blocks + sorts;
    }
    free(again);
    return e;
}

static void expert_flows(PlanTraffic *t, const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    PlanGroup where = plan_traffic_group(job, MESH_EP);
    PlanRows one = plan_traffic_rows(job);
    Exchanges e = expert_exchanges(job);
    double ranks = (double)l->dp * l->cp * l->tp, bytes = e.weights * one.weights + e.sorts * one.numbers;
    add(t, "ep", &where, COMM_ALL_TO_ALL, e.busy_rows, one.rows, (size_t)llround(ranks * e.rows * one.rows),
        "R tp %.0f N k (ep-1)/ep x C", e.rows);
    add(t, "ep", &where, COMM_ALL_TO_ALL, e.busy_small, bytes / (e.weights + e.sorts), (size_t)llround(ranks * bytes),
        "R tp (ep-1)/ep 4 (%.0f N k + %.0f E)", e.weights, e.sorts);
}

// Capacity and balance are of whole sequences: before slots are sorted, choices and weights of all parts come together.
static void slot_flows(PlanTraffic *t, const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    PlanGroup where = plan_traffic_group(job, MESH_CP);
    Exchanges e = expert_exchanges(job);
    double slots = (double)l->micro * (double)job->T * (double)job->shape.experts.k; // of all parts
    add(t, "cp", &where, COMM_ALL_GATHER, 2 * e.busy_sorts, 4 * slots,
        (size_t)llround((double)(l->dp * l->tp) * (l->cp - 1) * e.sorts * 8 * slots), "R tp (cp-1) %.0f 8 N k",
        e.sorts);
}

static void context_flows(PlanTraffic *t, const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    ModelShape part = plan_layout_part(job, 0);
    PlanGroup where = plan_traffic_group(job, MESH_CP);
    size_t m = (size_t)plan_layout_micros(job), L = job->shape.layers, again = 0;
    Again *of_stage = run_again(job);
    bool attention = l->recompute == RECOMPUTE_ATTENTION;
    for (int stage = 0; stage < l->pp; stage++)
        again += attention ? of_stage[stage].all.restored : of_stage[stage].all.blocks;
    free(of_stage);
    size_t B = (size_t)l->micro;
    size_t forward = cp_bytes(l->cp, job->x_bytes, B, job->T, part.kv_heads, part.head_size, false);
    size_t back = cp_bytes(l->cp, job->x_bytes, B, job->T, part.kv_heads, part.head_size, true);
    size_t one = m * L * (forward + back) + again * forward; // a rank's, of all stages
    double stage = (double)one / (double)l->pp / (double)m;
    double steps = 2 * (double)(l->cp - 1) * (double)plan_layout_layers(job, 0);
    if (where.inside < where.size) where.inside = 1; // a ring waits for its slowest link
    add(t, "cp", &where, COMM_SEND, (double)m * steps, stage / steps, (size_t)(l->dp * l->cp * l->tp) * one,
        "R m tp L (cp-1) 2 B T/cp G D (2 x + 4)");
}

static void stage_flows(PlanTraffic *t, const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    PlanGroup where = plan_traffic_group(job, MESH_PP);
    size_t m = (size_t)plan_layout_micros(job), N = (size_t)l->micro * job->T / (size_t)l->cp;
    size_t borders = (size_t)(l->pp * l->chunks) - 1 - pipeline_table_is_vee(l->schedule); // turns within a stage
    size_t stream = job->x_bytes * N * job->shape.channels, shared = l->sp || l->scatter ? (size_t)l->tp : 1;
    double calls = 2 * (double)m * l->chunks;
    add(t, "pp", &where, COMM_SEND, calls, (double)stream / (double)shared,
        (size_t)(l->dp * l->cp) * (size_t)l->tp * 2 * m * borders * (stream / shared), "R tp/%zu 2 m %zu x N C",
        shared, borders);
}

// A tied head's gradient to the embedding's stage, the new weights back, once a step.
static void tied_flows(PlanTraffic *t, const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    PlanGroup where = plan_traffic_group(job, MESH_PP);
    size_t tied = plan_layout_tied(job, l->pp - 1), all = job->shape.vocab * job->shape.channels;
    if (!tied) return;
    double payload = (double)(tied * (4 + job->x_bytes)) / 2;
    add(t, "ends", &where, COMM_SEND, 2, payload, (size_t)(l->dp * l->cp) * all * (4 + job->x_bytes), "R V C (4 + x)");
}

static bool tied_away(const PlanJob *job, int stage)
{
    return stage == 0 && plan_layout_tied(job, job->layout.pp - 1) > 0;
}

// What the chunks of a stage add to the formulas of ZeRO.
static void stage_extras(const PlanJob *job, int stage, ShardingCase *is)
{
    const PlanLayout *l = &job->layout;
    size_t units = 0, first = 0, most = plan_layout_chunk(job), block[most], experts[most];
    size_t ahead = (size_t)l->prefetch;
    bool overlap = l->overlap_dp && l->pp == 1;
    bool split = is_split(l);
    size_t segment = recompute_segment((RecomputePolicy){.mode = l->recompute}, most);
    PlanUnits u = plan_layout_units(job);
    for (int c = 0; c < l->chunks; c++) {
        ModelPiece p = plan_layout_piece(job, stage, c);
        units += p.layers + p.embedding + p.head;
    }
    is->again = is->later = is->experts_again = is->experts_later = 0;
    for (int c = 0; c < l->chunks; c++) {
        ModelPiece p = plan_layout_piece(job, stage, c);
        ShardingChunk chunk = {.first = first, .n = p.layers + p.embedding + p.head, .units = units,
                               .slots = ahead + 1, .ahead = overlap ? ahead : 0,
                               .embedding = p.embedding, .head = p.head};
        for (size_t i = 0; i < p.layers; i++) {
            size_t own = plan_layout_block(job, &u, p.first + i, false);
            size_t apart = plan_layout_block(job, &u, p.first + i, true);
            if (split) is->later += own, is->experts_later += apart;
            block[i] = sharding_streamed(is, own), experts[i] = sharding_streamed(is, apart);
            bool read = split && l->zero == 3 && recompute_restores(l->recompute); // computed again in W
            if (read) is->again += block[i], is->experts_again += experts[i];
        }
        first += chunk.n, chunk.block = block;
        if (l->zero == 3) is->again += sharding_again(chunk, segment);
        chunk.block = experts, chunk.apart = true;
        if (l->zero == 3) is->experts_again += sharding_again(chunk, segment);
    }
}

// Gradients and weights over the replicas; of the experts that ep ranks divide, or of all else.
static ShardingCase replica_case(const PlanJob *job, bool experts)
{
    const PlanLayout *l = &job->layout;
    MeshGroup every = experts ? MESH_EXPERT_REPLICAS : MESH_REPLICAS, row = experts ? MESH_EXPERT_SHARDS : MESH_SHARDS;
    bool copies = plan_layout_copies(l) > 1; // of a stage and a tp rank
    return (ShardingCase){.ranks = (size_t)plan_traffic_group(job, every).size,
                          .shard = copies ? (size_t)plan_traffic_group(job, row).size : 0,
                          .stage = l->dp * l->cp > 1 ? l->zero : 0, .reshard = l->reshard,
                          .keep = plan_layout_keep(l), .x_bytes = job->x_bytes, .g_bytes = l->grad_bytes,
                          .micro = (size_t)plan_layout_micros(job), .batch = (size_t)l->micro};
}

// Sets what differs between the parts of a stage: of its largest part with `largest` parameters, tp rank r's has some
// rows of the vocabulary less.
static void part_case(const PlanJob *job, bool experts, int stage, int r, size_t largest, ShardingCase *is)
{
    const PlanLayout *l = &job->layout;
    ModelShape part = tp_shape(&job->shape, r, l->tp, false), last = tp_shape(&job->shape, l->tp - 1, l->tp, false);
    bool ends = stage == 0, tail = stage == (pipeline_table_is_vee(l->schedule) ? 0 : l->pp - 1);
    size_t rows = experts ? 0 : (size_t)ends + (size_t)(tail && !job->shape.tie);
    size_t less = (last.vocab - part.vocab) * job->shape.channels;
    size_t embedding = part.vocab * part.channels + plan_layout_units(job).positions;
    is->params = largest - rows * less;
    is->kept = plan_layout_kept(job, stage, experts, less);
    is->tied = tied_away(job, stage) && !experts ? embedding : 0;
    is->embed = job->embed_fp32 && ends && !experts ? embedding : 0;
}

static size_t largest_part(const PlanJob *job, bool experts, int stage)
{
    size_t apart = plan_layout_experts(job, stage);
    return experts ? apart : plan_layout_params(job, stage) - apart;
}

static void replica_flows(PlanTraffic *t, const PlanJob *job, bool experts)
{
    const PlanLayout *l = &job->layout;
    size_t groups = experts ? (size_t)l->ep : 1, C = (size_t)plan_layout_copies(l);
    ShardingCase is = replica_case(job, experts);
    PlanGroup cut = plan_traffic_group(job, C > 1 ? experts ? MESH_EXPERT_SHARDS : MESH_SHARDS
                                                  : experts ? MESH_EXPERT_REPLICAS : MESH_REPLICAS);
    const CommKind kinds[] = {COMM_ALL_REDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER};
    for (int k = 0; k < 3; k++) {
        size_t all = 0, most = 0;
        ShardingFormula f = {.all = 0};
        for (int stage = 0; stage < l->pp; stage++) {
            size_t largest = largest_part(job, experts, stage);
            most = largest > most ? largest : most;
            stage_extras(job, stage, &is);
            if (experts) is.again = is.experts_again, is.later = is.experts_later;
            for (int r = 0; r < l->tp; r++) { // parts of the vocabulary differ by a row
                part_case(job, experts, stage, r, largest, &is);
                f = sharding_traffic(&is, kinds[k]);
                all += groups * f.all;
            }
        }
        if (!all) continue;
        is.params = most;
        f = sharding_traffic(&is, kinds[k]);
        bool gather = kinds[k] == COMM_ALL_GATHER, reduce = kinds[k] == COMM_ALL_REDUCE, between = reduce && C > 1;
        PlanGroup where = between ? plan_traffic_group(job, MESH_COPIES) : cut;
        double payload = (double)(gather ? is.x_bytes : between ? 4 : is.g_bytes) * (double)most;
        if (between) payload /= cut.size;
        double ranks = between ? cut.size : (double)C; // that many groups like this one
        double times = (double)f.all / (ranks * (where.size - 1) * payload) / (reduce ? 2 : 1);
        double calls = ceil(times - 1e-6); // of the mean size, where some send a part (parallel.keep, recomputation)
        payload *= times / calls;
        add(t, between ? "copies" : experts ? "experts" : "dp", &where, kinds[k], calls, payload, all,
            "%s = %d: %s on each rank", between ? "C" : C > 1 ? "S" : "N", where.size, f.text);
    }
}

// ---- between a rank and its host

// Bytes of activations of one micro-batch of a chunk, which wait in host memory; the same on all tp ranks.
static size_t chunk_away(const PlanJob *job, int stage, int chunk)
{
    const PlanLayout *l = &job->layout;
    ModelShape part = plan_layout_part(job, l->tp - 1);
    RecomputePolicy policy = {.mode = l->recompute, .offload = l->offload_acts};
    Dev dev = {.x_bytes = job->x_bytes};
    ModelPiece p = plan_layout_piece(job, stage, chunk);
    return recompute_host_bytes(&part, &dev, policy, recompute_segment(policy, plan_layout_chunk(job)), p.first,
                                p.layers, (size_t)l->micro * job->T / (size_t)l->cp);
}

static void acts_moved(const PlanJob *job, PlanHost *h)
{
    const PlanLayout *l = &job->layout;
    size_t micros = (size_t)plan_layout_micros(job), ranks = (size_t)(l->dp * l->cp * l->tp);
    size_t segment = recompute_segment((RecomputePolicy){.mode = l->recompute}, plan_layout_chunk(job));
    bool twice = is_split(l) && !segment;
    for (int stage = 0; stage < l->pp; stage++) {
        size_t n = 0;
        for (int c = 0; c < l->chunks; c++) {
            size_t away = chunk_away(job, stage, c);
            n += away;
            if ((double)away > h->chunk[0]) h->chunk[0] = (double)away, h->chunk[1] = (double)away * (twice ? 2 : 1);
        }
        PlanMove one[] = {{(double)(n * micros), ranks * n * micros},
                          {(double)(n * micros * (twice ? 2 : 1)), ranks * n * micros * (twice ? 2 : 1)}};
        for (int in = 0; in < 2; in++) {
            PlanMove *m = &h->acts[in];
            m->all += one[in].all;
            m->rank = one[in].rank > m->rank ? one[in].rank : m->rank;
        }
    }
}

// Of n elements that one rank has of a unit: out of the device, and into it. In a store each array of AdamW's state,
// and of the weights, begins at a multiple of 16 bytes.
static void unit_moved(const PlanJob *job, int zero, size_t n, size_t moved[2])
{
    const PlanLayout *l = &job->layout;
    size_t x = job->x_bytes, array = (4 * n + 15) / 16 * 16;
    moved[0] = l->host_updates ? 4 * n : (x < 4 ? 3 : 2) * array + (zero == 3 ? x * n : 0);
    moved[1] = l->host_updates ? (zero == 3 ? 0 : x * n) : moved[0];
    if (job->agc && !l->host_updates) moved[1] += moved[0]; // clipping reads them too
}

// The update of one tp rank's part of a stage; *most: of the rank that has the most.
static void part_moved(const PlanJob *job, const Params *params, PlanMove sum[2], size_t most[2])
{
    const PlanLayout *l = &job->layout;
    size_t N = (size_t)(l->dp * l->cp);
    int zero = N > 1 ? l->zero : 0;
    most[0] = most[1] = 0;
    for (int u = 0; u < params->n_units; u++) {
        size_t begin, end, S = zero ? (size_t)plan_layout_shards(l) : 1, moved[2];
        params_unit_range(params, u, &begin, &end);
        if (zero && params_unit_expert(params, u)) S /= (size_t)l->ep;
        size_t n = end - begin, rest = n % S;
        for (int more = 1; more >= 0; more--) { // the first ranks have one element more
            unit_moved(job, zero, n / S + (size_t)more, moved);
            for (int in = 0; in < 2; in++) sum[in].all += N / S * (more ? rest : S - rest) * moved[in];
            for (int in = 0; in < 2 && more == (rest > 0); in++) most[in] += moved[in];
        }
    }
}

static void update_moved(const PlanJob *job, PlanHost *h)
{
    const PlanLayout *l = &job->layout;
    PipelineTable *table = l->pp > 1 ? pipeline_table_make(l->schedule, l->pp, (int)plan_layout_micros(job), l->chunks)
                                     : NULL;
    for (int i = 0; i < l->pp * l->tp; i++) {
        ModelStage stage;
        ModelShape part = plan_layout_part(job, i % l->tp);
        Params params;
        Unit *unit;
        size_t most[2];
        if (table) stage = pipeline_stage(table, i / l->tp, job->shape.layers, NULL);
        model_describe_stage(&part, table ? &stage : NULL, &params, &unit);
        part_moved(job, &params, h->update, most);
        for (int in = 0; in < 2; in++)
            if ((double)most[in] > h->update[in].rank) h->update[in].rank = (double)most[in];
        params_free(&params);
        free(unit);
    }
    if (table) pipeline_table_free(table);
}

// Stage 3: every gather reads a rank's own part from the store.
static void gathers_moved(const PlanJob *job, bool experts, PlanHost *h)
{
    const PlanLayout *l = &job->layout;
    ShardingCase is = replica_case(job, experts);
    double most = 0;
    if (is.stage < 3 || !largest_part(job, experts, 0)) return;
    for (int stage = 0; stage < l->pp; stage++) {
        stage_extras(job, stage, &is);
        if (experts) is.again = is.experts_again;
        for (int r = 0; r < l->tp; r++) {
            part_case(job, experts, stage, r, largest_part(job, experts, stage), &is);
            size_t n = job->x_bytes * sharding_gathered(&is, is.params), S = sharding_ranks(&is);
            h->gathers.all += is.ranks / S * n * (experts ? (size_t)l->ep : 1);
            most = (double)(n / S) > most ? (double)(n / S) : most;
        }
    }
    h->gathers.rank += most;
}

PlanHost plan_traffic_host(const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    PlanHost h = {.bandwidth = job->machine.host.bandwidth * roofline_constants().between};
    if (l->offload_acts) acts_moved(job, &h);
    if (!l->offload) return h;
    update_moved(job, &h);
    gathers_moved(job, false, &h);
    if (l->ep > 1) gathers_moved(job, true, &h);
    return h;
}

PlanTraffic plan_traffic(const PlanJob *job)
{
    const PlanLayout *l = &job->layout;
    PlanTraffic t = {.n = 0};
    if (l->tp > 1) tensor_flows(&t, job);
    if (l->tp > 1) whole_flows(&t, job);
    if (l->cp > 1) context_flows(&t, job);
    if (l->cp > 1 && job->shape.experts.n) slot_flows(&t, job);
    if (l->pp > 1) stage_flows(&t, job);
    if (l->pp > 1) tied_flows(&t, job);
    if (l->ep > 1) expert_flows(&t, job);
    if (l->dp * l->cp > 1) replica_flows(&t, job, false);
    if (l->ep > 1 && l->dp * l->cp > l->ep) replica_flows(&t, job, true);
    for (int i = 0; i < t.n; i++) t.all += t.flow[i].all;
    return t;
}
