// ranks: what several processes add to a run: groups, the share of a batch, exchange, agreement. See ranks.h.
//
//   shape of the model -> this rank's part of every layer (tp) -> its layers (pp) -> a table of parameters
//   table -> the elements that this rank owns (ZeRO over dp x cp) -> buffers of model, optimizer, messages
//
// Every rank runs the same loop on its part of each batch. Rank 0 prints and writes the logs; checkpoints, dumps and
// offloaded state are written by each rank for its part. Values that decide the next action are first made equal on all
// ranks.
//
// The invariant: between two collective calls no rank takes a branch that another does not take. Loss, number of valid
// tokens and norm are sums over all ranks before any code uses them; a stop signal, which reaches the ranks at
// different times, takes effect at the end of a step, when all have been asked; clocks and files are rank 0's.
//
// Groups come from the mesh. Those of the mesh carry gradients, weights and activations, where the device has them, so
// their counters are the guides' traffic; numbers go through groups of their own, of the host's memory (comm_host).
// There sums are always ordered (comm.h): the same bits on every rank. In the mesh's they are where
// numerics.deterministic is set, and there the losses of ranks continue the tree of their sequences, as gradients do: N
// ranks give the bits of one.
//
//     XXH3 of each row of the table, in the weights, what units read of them, and the optimizer's state
//     -> all_gather over the replicas (rows x 8 bytes a rank) -> the first row on which ranks differ
//
// Rejected: a stop by one rank's own decision (the others would wait for it for ever). Parts made where they are used:
// which parts exist, and how they nest, would stand in five files. Comparing sums (two errors cancel, NaN compares with
// nothing), and repair by majority (a machine that erred once errs again).
#include "parallel/ranks.h"

#include "base/check.h"
#include "comm/supervisor.h"
#include "narrow/narrow.h"
#include "parallel/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// ---- allocation: this rank's part

// Which elements of its part of the model this rank owns.
static ZeroCut cut_of(const Ranks *r, const Config *cfg, const ModelShape *shape, const ModelStage *stage)
{
    int ranks = mesh_shards(r->shape);
    ModelShape part = *shape;
    if (r->shape.ep > 1) part = ep_shape(&part, mesh_replica(r->shape, r->place) % r->shape.ep, r->shape.ep);
    if (r->shape.tp > 1) part = tp_shape(&part, r->place.tp, r->shape.tp, cfg->parallel.sp);
    Params params;
    Unit *unit;
    model_describe_stage(&part, stage, &params, &unit);
    OptimCut where = zero_where(optim_kind(cfg->optim.name), cfg->optim.agc > 0, r->shape.tp);
    ZeroCut cut = zero_cut(&params, where, (int)cfg->parallel.zero, mesh_replica(r->shape, r->place) % ranks, ranks);
    params_free(&params);
    free(unit);
    return cut;
}

// The device that updates what the store has in host memory: this one, where its arrays are host memory.
static Dev *host_of(Ranks *r, const Config *cfg, Dev *dev)
{
    if (cfg->memory.offload != OFFLOAD_CPU || cfg->memory.offload_update != OFFLOAD_CPU) return NULL;
    if (!dev->raw_alloc) return dev;
    r->host[0] = dev_cpu_create(dev->threads);
    if (dev->x_type != X_FP32) r->host[1] = narrow_create(r->host[0], (NarrowOptions){.x_type = dev->x_type});
    return r->host[1] ? r->host[1] : r->host[0];
}

static ZeroSettings zero_settings(const Config *cfg, const OffloadSettings *store, Dev *host)
{
    bool several = cfg->parallel.dp * cfg->parallel.cp > 1;
    return (ZeroSettings){
        .stage = (int)cfg->parallel.zero, .overlap = cfg->parallel.overlap && cfg->parallel.pp == 1,
        .reshard = cfg->parallel.reshard, .keep = (size_t)cfg->parallel.keep,
        .prefetch = (int)cfg->parallel.prefetch, .bucket_bytes = (size_t)cfg->comm.bucket,
        .narrow = several && cfg->parallel.reduce_dtype == CONFIG_REDUCE_STORAGE,
        .store = store->mode == OFFLOAD_NONE ? NULL : store, .host = host};
}

// "3,4,4,3" as layers of each piece. False: the text is empty. Dies where it does not add up.
static bool layers_listed(const char *text, int pieces, size_t layers, size_t *counts)
{
    size_t sum = 0;
    int n = 0;
    char *end;
    if (!*text) return false;
    for (const char *p = text;; p = end + 1) {
        long count = strtol(p, &end, 10);
        if (end == p || count < 1 || n == pieces || (*end && *end != ','))
            die("parallel.layers = %s: wants %d numbers above 0 with commas, one for each piece (try an empty one)",
                text, pieces);
        counts[n++] = (size_t)count;
        sum += (size_t)count;
        if (!*end) break;
    }
    if (n != pieces || sum != layers)
        die("parallel.layers = %s: %d pieces of %zu layers together; the model has %zu, to be cut into %d pieces", text,
            n, sum, layers, pieces);
    return true;
}

// The schedule of a pipeline for a step of m micro-batches, proved.
static PipelineTable *make_table(const Config *cfg, int m)
{
    bool user = cfg->parallel.schedule == PIPELINE_USER;
    const char *schedule = user ? cfg->parallel.table : pipeline_table_name(cfg->parallel.schedule);
    if (user && !*schedule)
        die("parallel.schedule = user: parallel.table names no file (build/show pipeline writes one to begin with)");
    return pipeline_choose(schedule, (int)cfg->parallel.pp, m, (int)cfg->parallel.chunks, (size_t)cfg->model.layers,
                           cfg->numerics.deterministic);
}

// A batch that grows has a table for each of its sizes. All are proved before the first step.
static void prove_ramp(const Config *cfg)
{
    long all = cfg->batch.micro * cfg->parallel.dp * cfg->model.context, m = cfg->batch.ramp_from / all; // micro-batches
    long by = cfg->batch.ramp_by / all; // 0: the run's schedule refuses it
    bool grows = cfg->batch.ramp_from && cfg->batch.ramp_tokens && by && m;
    for (; grows && m < cfg->batch.accum; m += by) pipeline_table_free(make_table(cfg, (int)m));
}

// The pipeline goes on with the table of m micro-batches. That of the full batch is kept, and the last other one.
static void use_table(Ranks *r, int m)
{
    PipelineTable *old = r->smaller;
    bool full = m == r->table->m;
    if (!full && (!old || old->m != m)) r->smaller = make_table(&r->cfg, m);
    pipeline_use(r->pipeline, full ? r->table : r->smaller);
    if (r->smaller != old) pipeline_table_free(old);
}

// The table of a full batch, and what this rank has of the layers. False: there is no pipeline.
static bool choose_stage(Ranks *r, const Config *cfg, const ModelShape *shape, ModelStage *stage)
{
    size_t counts[PIPELINE_MAX_PIECES];
    if (r->shape.pp == 1) return false;
    r->table = make_table(cfg, (int)cfg->batch.accum);
    bool listed = layers_listed(cfg->parallel.layers, r->shape.pp * r->table->v, shape->layers, counts);
    *stage = pipeline_stage(r->table, r->place.pp, shape->layers, listed ? counts : NULL);
    r->loss_stage = pipeline_table_place(r->table, r->shape.pp * r->table->v - 1).stage;
    return true;
}

// A group of the mesh; in a plan one that knows this rank's place in it and nothing else.
static Comm *group_of(Ranks *r, const Replicas *all, MeshGroup group)
{
    if (r->mesh.group[group]) return r->mesh.group[group];
    int member[all->size], n = mesh_members(r->shape, all->rank, group, member);
    Comm *comm = &r->planned[group];
    for (int i = 0; i < n; i++)
        if (member[i] == all->rank) comm->rank = i;
    comm->size = n;
    comm->ordered = r->cfg.numerics.deterministic;
    return comm;
}

static void allocate(Replicas *all, const Config *cfg, Dev *dev, Mem *mem, const char *dir)
{
    Ranks *r = all->self;
    ModelShape shape = run_shape(cfg);
    r->cfg = *cfg;
    char path[700];
    snprintf(path, sizeof path, "%s/offload_%d.tmp", dir, all->rank);
    OffloadSettings store = {.mode = cfg->memory.offload, .n_slots = 2,
                             .dev = dev->raw_alloc ? dev : NULL,
                             .path = dir[0] ? path : NULL}; // none in a plan
    ZeroSettings zero = zero_settings(cfg, &store, host_of(r, cfg, dev));
    ModelStage stage;
    bool staged = choose_stage(r, cfg, &shape, &stage);
    if (staged && (r->mesh.world || all->rank == 0)) prove_ramp(cfg); // a plan opens rank after rank
    ZeroCut cut = cut_of(r, cfg, &shape, staged ? &stage : NULL);
    ModelOptions options = run_model_options(cfg);
    options.shard = zero_shard(&cut, dev, zero.stage, zero.store != NULL);
    options.stage = staged ? &stage : NULL;
    options.parts = parts_make((PartsSettings){
        .ep = group_of(r, all, MESH_EP), .tp = group_of(r, all, MESH_TP), .sequence = cfg->parallel.sp, .cp = group_of(r, all, MESH_CP),
        .cp_set = {.assign = cfg->parallel.cp_assign, .way = cfg->parallel.cp_way,
                   .blocks = cfg->numerics.deterministic ? cp_blocks(shape.context) : 0}});
    all->model = model_allocate_with(&shape, dev, mem, (size_t)cfg->batch.micro, shape.context, true, options);
    ZeroGroups group = {.dp = r->mesh.group[MESH_REPLICAS], .control = r->replicas, .parts = r->parts,
                        .ep = r->mesh.world ? r->ep : NULL, .experts = r->mesh.group[MESH_EXPERT_REPLICAS],
                        .tp = group_of(r, all, MESH_TP)};
    if (mesh_hybrid(r->shape))
        group.dp = r->mesh.group[MESH_SHARDS], group.experts = r->mesh.group[MESH_EXPERT_SHARDS];
    group.copies = r->mesh.group[MESH_COPIES];
    r->zero = zero_create(all->model, zero, cut, group);
    if (staged)
        r->pipeline = pipeline_create(all->model, r->table, r->place.pp, r->mesh.group[MESH_PP],
                                      r->mesh.group[MESH_ENDS]);
    *all->optim = zero_optim(r->zero, run_optim_settings(cfg));
    if (staged) r->micro = calloc((size_t)cfg->batch.accum, sizeof *r->micro);
    if (staged && !r->micro) die("run: no memory for %ld micro-batches", cfg->batch.accum);
}

static void give_back(Replicas *all)
{
    Ranks *r = all->self;
    if (r->pipeline) pipeline_free(r->pipeline);
    zero_free(r->zero);
    narrow_free(r->host[1]);
    if (r->host[0]) dev_cpu_free(r->host[0]);
    if (r->table) pipeline_table_free(r->table);
    if (r->smaller) pipeline_table_free(r->smaller);
    free(r->micro);
    r->host[0] = r->host[1] = NULL;
    r->pipeline = NULL, r->zero = NULL, r->table = r->smaller = NULL, r->micro = NULL;
}

// ---- weights

// Stages that hold a copy of the embedding for a tied head get it.
static void share_copies(Ranks *r)
{
    if (r->pipeline) pipeline_share_tied(r->pipeline);
}

static void init_weights(Replicas *all, uint64_t seed)
{
    Ranks *r = all->self;
    zero_init_weights(r->zero, all->optim, seed);
    share_copies(r);
}

static void weights_loaded(Replicas *all)
{
    Ranks *r = all->self;
    zero_renew(r->zero, all->optim);
    share_copies(r);
}

// ---- a step

static size_t share(const Replicas *all, size_t sequences, size_t *first)
{
    const Ranks *r = all->self;
    return ddp_share(sequences, r->place.dp, r->shape.dp, first);
}

// A stage collects the step's micro-batches, and runs them when the last one has come.
static void run_stages(Replicas *all, const Micro *micro, float scale, bool last)
{
    Ranks *r = all->self;
    r->micro[r->n_micro++] = (PipelineMicro){
        .token = micro->token, .target = micro->target, .pos = micro->pos, .first = micro->first, .B = micro->B,
        .T = micro->T, .dropout = micro->dropout, .seed = micro->seed, .step = micro->step, .sample = micro->sample,
        .each = micro->each};
    if (!last) return;
    use_table(r, r->n_micro);
    r->n_micro = 0;
    zero_micro(r->zero, true);
    r->stage_loss = pipeline_step(r->pipeline, r->micro, scale);
}

static void forward_backward(Replicas *all, const Micro *micro, float scale, bool last)
{
    Ranks *r = all->self;
    if (r->pipeline) {
        run_stages(all, micro, scale, last);
        return;
    }
    zero_micro(r->zero, last);
    replicas_run_micro(all, micro, scale);
}

static double finish(Replicas *all)
{
    Ranks *r = all->self;
    double loss = r->pipeline ? r->stage_loss : model_step_finish(all->model);
    zero_reduce(r->zero);
    if (all->size == 1) return loss;
    loss = ddp_sum(r->replicas, loss);
    CommRequest request = comm_broadcast(r->parts, &loss, 1, COMM_FP64, r->loss_stage * r->shape.tp);
    comm_wait(r->parts, &request);
    return loss;
}

static void updated(Replicas *all)
{
    Ranks *r = all->self;
    zero_end(r->zero);
    share_copies(r);
}

// ---- agreeing

static double sum(Replicas *all, double x)
{
    const Ranks *r = all->self;
    return all->size == 1 ? x : ddp_sum(r->control, x);
}

// Ranks with other tokens are in `replicas`: those of one sequence, which have all counted it, are cp of them.
static int64_t sum_targets(Replicas *all, int64_t x)
{
    const Ranks *r = all->self;
    return all->size == 1 ? x : ddp_sum_int(r->replicas, x) / r->shape.cp;
}

static bool any(Replicas *all, bool flag)
{
    const Ranks *r = all->self;
    return all->size > 1 && ddp_sum_int(r->control, flag) > 0 ? true : flag;
}

static void tell(Replicas *all, void *data, size_t n_bytes)
{
    const Ranks *r = all->self;
    if (all->size == 1 || !n_bytes) return;
    CommRequest request = comm_broadcast(r->control, data, n_bytes, COMM_BYTE, 0);
    comm_wait(r->control, &request);
}

static void wait_all(Replicas *all)
{
    const Ranks *r = all->self;
    if (all->size == 1) return;
    CommRequest request = comm_barrier(r->control);
    comm_wait(r->control, &request);
}

static void share_scales(Replicas *all, Fp8 *fp8)
{
    const Ranks *r = all->self;
    if (all->size == 1) return;
    fp8_collect(fp8);
    size_t n = (size_t)fp8->n_sites * FP8_ROLES;
    Comm *same[] = {r->mesh.group[MESH_REPLICAS], r->mesh.group[MESH_TP]}; // ranks with the same tensors
    for (int i = 0; i < 2; i++) {
        CommRequest request = comm_all_reduce(comm_host(same[i]), fp8->now, fp8->now, n, COMM_FP32, COMM_MAX);
        comm_wait(comm_host(same[i]), &request);
    }
    fp8->bad = any(all, fp8->bad);
}

// ---- agreement
//
// Agreement (monitor.agree_every). Weights that every rank has are the same by construction: the same gradients, the
// same update. A bit that flips in one rank's memory, or a processor that errs, breaks that in silence, and from then
// on the average of gradients belongs to no model at all. So ranks compare hashes, one for each tensor:
//
// With three ranks or more the one that differs from most others is named. Two can only disagree. Which of the two is
// right is not known, and a checkpoint is; so the run ends, and resumes from there. What is cut over ranks
// (parallel.zero) has no copy and is not compared, except that hybrid sharding has copies of each shard: one hash for
// all that a rank has of an array. The optimizer's state in a store is not compared.

// What ranks hold alike: an array over the whole table, or this rank's shard of one.
typedef struct {
    const char *what, *data;
    size_t elem_bytes; // 0: one hash for all of it
    size_t n_bytes;
} Replica;

// Those that are cut, or (shards = false) those that are not.
static int arrays_of(const Replicas *all, bool shards, Replica r[OPTIM_STATES + 2])
{
    const Model *m = all->model;
    const Optim *optim = all->optim;
    size_t n = shards ? m->shard.n : m->params.n_elems, x = m->dev->x_bytes;
    int used = 0;
    if (m->weights && m->shard.weights == shards)
        r[used++] = (Replica){"weights", (const char *)m->weights, shards ? 0 : sizeof(float), n * sizeof(float)};
    if (m->x_weights && m->shard.x_weights == shards && (const void *)m->x_weights != (const void *)m->weights)
        r[used++] = (Replica){"weights as units read them", (const char *)m->x_weights, shards ? 0 : x, n * x};
    for (int s = 0; s < optim->kind->n_states && (optim->range != NULL) == shards; s++) {
        const CkptArray *state = &optim->state[s];
        bool by_row = !shards && state->n_bytes == n * sizeof(float) && !optim->whole.table;
        if (state->data) r[used++] = (Replica){state->prefix, state->data, by_row ? 4 : 0, state->n_bytes};
    }
    return used;
}

static uint64_t hash_of(Dev *dev, const char *data, size_t n_bytes)
{
    if (!dev->raw_alloc) return XXH3_64bits(data, n_bytes);
    char *copy = malloc(n_bytes + 1);
    if (!copy) die("monitor.agree_every: no memory for a copy of %zu bytes", n_bytes);
    dev->to_host(dev, copy, data, n_bytes);
    uint64_t hash = XXH3_64bits(copy, n_bytes);
    free(copy);
    return hash;
}

typedef enum { AGREE_ROWS, AGREE_EXPERTS, AGREE_SHARDS } AgreeOn;

// Of the experts that ranks divide, or of all other rows; 0 for the rest. An array without rows is whole, or not
// compared where experts are divided; a shard has one hash.
static void hash_rows(Dev *dev, const Params *p, const Replica *r, AgreeOn on, uint64_t *hash)
{
    const size_t b = r->elem_bytes;
    for (int i = 0; i < p->n_rows; i++) {
        hash[i] = 0;
        if (b && p->row[i].expert == (on == AGREE_EXPERTS))
            hash[i] = hash_of(dev, r->data + p->row[i].offset * b, p->row[i].n_elems * b);
        if (!b && i == 0 && (p->ep <= 1 || on == AGREE_SHARDS)) hash[i] = hash_of(dev, r->data, r->n_bytes);
    }
}

// The rank whose hash the fewest others have; -1: all have the same.
static int odd_one(const uint64_t *all, int n_ranks, size_t stride)
{
    int odd = -1, fewest = n_ranks;
    for (int a = 0; a < n_ranks; a++) {
        int same = 0;
        for (int b = 0; b < n_ranks; b++) same += all[(size_t)b * stride] == all[(size_t)a * stride];
        if (same < fewest || (same == fewest && same < n_ranks)) fewest = same, odd = a;
    }
    return fewest == n_ranks ? -1 : odd;
}

// Over a group of ranks with the same tensors: experts that ranks divide, or all others; or with the same shards.
static void agree_over(Replicas *all, Comm *group, AgreeOn on, long step)
{
    const Params *p = &all->model->params;
    Replica r[OPTIM_STATES + 2];
    int n = arrays_of(all, on == AGREE_SHARDS, r), N = group ? group->size : 1;
    if (N == 1 || !n) return;
    // and after the hashes who has them: the group's ranks have numbers of their own
    size_t rows = (size_t)p->n_rows, each = (size_t)n * rows + 1, counts[N];
    uint64_t *mine = malloc(each * sizeof *mine), *theirs = malloc((size_t)N * each * sizeof *theirs);
    if (!mine || !theirs) die("monitor.agree_every: no memory for %zu hashes", each);
    for (int k = 0; k < n; k++) hash_rows(all->model->dev, p, &r[k], on, mine + (size_t)k * rows);
    mine[each - 1] = (uint64_t)all->rank;
    for (int i = 0; i < N; i++) counts[i] = each;
    CommRequest q = comm_all_gather(group, theirs, mine, counts, COMM_INT64);
    comm_wait(group, &q);
    for (size_t i = 0; i + 1 < each; i++) {
        int odd = odd_one(theirs + i, N, each);
        if (odd < 0) continue;
        const Replica *where = &r[i / rows];
        const char *name = where->elem_bytes ? p->row[i % rows].name : on == AGREE_SHARDS ? "its shard" : "something";
        int first = (int)theirs[each - 1], who = (int)theirs[(size_t)(odd + 1) * each - 1];
        char between[48];
        if (N > 2) snprintf(between, sizeof between, "on rank %d", who);
        else snprintf(between, sizeof between, "between ranks %d and %d", first, who);
        if (all->rank == first)
            die("step %ld: the ranks' %s are not the same: %s differs %s (a machine that errs, or a bug; go on from a "
                "checkpoint with --ckpt.resume=true)", step, where->what, name, between);
        q = comm_barrier(group); // for ever: that rank ends the job
        comm_wait(group, &q);
    }
    free(mine);
    free(theirs);
}

static void agree(Replicas *all, long step)
{
    const Ranks *r = all->self;
    agree_over(all, r->replicas, AGREE_ROWS, step);
    if (r->shape.ep > 1) agree_over(all, comm_host(r->mesh.group[MESH_EXPERT_REPLICAS]), AGREE_EXPERTS, step);
    if (mesh_hybrid(r->shape)) agree_over(all, comm_host(r->mesh.group[MESH_COPIES]), AGREE_SHARDS, step);
}

// ---- access to the state

static CkptPart checkpoint(Replicas *all, bool writes)
{
    const Ranks *r = all->self;
    return zero_part(r->zero, all->optim, writes, mesh_replica(r->shape, r->place), r->shape.dp * r->shape.cp);
}

static bool range_of(const Replicas *all, int unit, OptimRange *range)
{
    const Ranks *r = all->self;
    const Zero *zero = r->zero;
    *range = zero->range[unit];
    bool expert = params_unit_expert(&all->model->params, unit);
    int replica = mesh_replica(r->shape, r->place) / (expert && zero->cut.size == 1 ? r->shape.ep : 1);
    return !zero->control || replica / zero->cut.size == 0;
}

static void read_weights(const Replicas *all, int unit, void *copy)
{
    const Ranks *r = all->self;
    const Zero *zero = r->zero;
    const OptimRange *range = &zero->range[unit];
    const Optim *optim = all->optim;
    Dev *dev = all->model->dev;
    size_t n_bytes = (range->end - range->begin) * sizeof(float), at = 0, unused;
    bool apart = zero->store && dev->x_type == X_FP32; // what units read is the weights
    if (range->weight) {
        dev->to_host(dev, copy, range->weight, n_bytes);
        return;
    }
    if (!apart) at = optim_place_of(optim, optim_table(optim, all->model), unit, optim->kind->n_states, &unused);
    offload_read(apart ? zero->store : zero->state, unit, at, copy, n_bytes);
}

static const EvalRanks *evaluation(Replicas *all)
{
    Ranks *r = all->self;
    if (all->size == 1) return NULL;
    // The losses count once: on the last stage, of the ranks that have the same ones on the first.
    r->eval = (EvalRanks){.all = r->control, .replica = r->place.dp, .replicas = r->shape.dp,
                          .forward = pipeline_forward(r->pipeline),
                          .counts = r->place.pp == r->loss_stage && r->place.tp == 0};
    return &r->eval;
}

static SampleForward sampling(Replicas *all, bool *takes_part)
{
    const Ranks *r = all->self;
    bool together = all->model->shard.x_weights || r->shape.dp < all->size || r->shape.ep > 1;
    *takes_part = all->rank == 0 || together;
    return pipeline_sampling(r->pipeline);
}

// What there is of "dp 2, tp 2, ZeRO 1, sp".
static void describe(const Replicas *all, char *layout, size_t room)
{
    const Ranks *r = all->self;
    const MeshShape *s = &r->shape;
    const struct {
        const char *name;
        int value;
    } part[] = {{"dp ", s->dp}, {", pp ", s->pp}, {", cp ", s->cp}, {", tp ", s->tp}, {", ep ", s->ep},
                {", ZeRO ", r->zero->set.stage}, {" among ", mesh_hybrid(*s) ? s->shard : 0}};
    size_t at = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].value > (i > 0 && i < 5)) // a stage of 0 and sizes of 1 go without saying; dp does not
            at += (size_t)snprintf(layout + at, room - at, "%s%d", part[i].name, part[i].value);
    if (r->cfg.parallel.sp) snprintf(layout + at, room - at, ", sp");
}

static const ReplicasKind several = {
    .allocate = allocate, .free = give_back, .init_weights = init_weights, .weights_loaded = weights_loaded,
    .share = share, .forward_backward = forward_backward, .finish = finish, .updated = updated,
    .share_scales = share_scales, .sum_targets = sum_targets, .sum = sum, .any = any, .tell = tell, .wait = wait_all,
    .agree = agree, .checkpoint = checkpoint, .checkpoint_free = zero_part_free, .range = range_of,
    .read_weights = read_weights, .evaluation = evaluation, .sampling = sampling, .describe = describe};

// ---- groups

// A group's ranks once more, for the host's numbers: always ordered.
static Comm *again(Comm *group, const char *name)
{
    Comm *comm = comm_split(comm_host(group), 0, group->rank, name);
    comm_set_ordered(comm, true);
    return comm;
}

// The replicas of a node: as many as are on each host, unless the configuration says. Collective.
static int node_of(const Config *cfg, Comm *replicas)
{
    int n = replicas->size, node = (int)cfg->comm.node, host[n], on_first = 0;
    if (node && n % node)
        die("comm.node = %d does not divide the %d replicas of the model (try another number)", node, n);
    if (node) return node;
    comm_hosts(comm_host(replicas), host);
    node = comm_host_ranks(host, n);
    for (int r = 0; r < n; r++) on_first += host[r] == 0;
    if (!node)
        die("comm.all_reduce=hierarchical: hosts do not have equal numbers of neighbouring replicas: of %d the first "
            "has %d (start as many ranks on each host, or set comm.node, or another algorithm)", n, on_first);
    return node;
}

// Says which of the groups that communicate in every layer have ranks on several hosts. Collective.
static void look_at_hosts(MeshShape shape, Comm *world)
{
    static const MeshGroup inner[] = {MESH_TP, MESH_CP};
    int host[world->size], members[world->size];
    comm_hosts(comm_host(world), host);
    for (size_t g = 0; world->rank == 0 && g < sizeof inner / sizeof *inner; g++)
        for (int r = 0; r < world->size; r++) {
            int n = mesh_members(shape, r, inner[g], members), other = 0;
            while (other < n && host[members[other]] == host[members[0]]) other++;
            if (other == n) continue;
            const char *name = mesh_group_name(inner[g]);
            check_warn("%s group of ranks %d to %d spans hosts (ranks %d and %d): what every layer "
                       "exchanges goes over the network (try a parallel.%s that divides the ranks of a host)", name,
                       members[0], members[n - 1], members[other - 1], members[other], name);
            break; // the others of its kind are alike
        }
}

// Compared and slowed down are the calls that carry arrays.
static void make_groups(Ranks *r, Comm *world)
{
    const Config *cfg = &r->cfg;
    comm_set_checked(world, cfg->comm.checked);
    comm_set_slow(world, cfg->comm.slow_alpha, cfg->comm.slow_beta);
    r->mesh = mesh_create(world, r->shape);
    for (int g = 0; g < MESH_GROUPS; g++)
        if (r->mesh.group[g]) comm_set_ordered(r->mesh.group[g], cfg->numerics.deterministic);
    Comm *replicas = r->mesh.group[MESH_REPLICAS];
    if (world->size > 1) look_at_hosts(r->shape, world);
    if (cfg->comm.all_reduce == COMM_HIERARCHICAL) comm_set_node(replicas, node_of(cfg, replicas));
    comm_set_algorithm(replicas, COMM_ALL_REDUCE, cfg->comm.all_reduce);
    r->control = again(world, "control");
    r->replicas = again(r->mesh.group[MESH_REPLICAS], "control replicas");
    r->parts = again(r->mesh.group[MESH_MODEL], "control parts");
    r->ep = again(r->mesh.group[MESH_EP], "control ep");
}

Replicas ranks_join(const Config *cfg, Comm *world, int rank)
{
    Ranks *r = calloc(1, sizeof *r);
    if (!r) die("run: no memory for its groups");
    int size = (int)cfg->parallel.ranks;
    check(!world || world->size == size);
    r->cfg = *cfg;
    r->shape = mesh_shape(size, (int)cfg->parallel.pp, (int)cfg->parallel.cp, (int)cfg->parallel.ep,
                          (int)cfg->parallel.tp);
    r->shape.shard = (int)cfg->parallel.shard;
    Replicas all = {.kind = &several, .self = r, .rank = world ? world->rank : rank, .size = size, .cores = 1};
    r->place = mesh_place(r->shape, all.rank);
    if (!world) return all;
    make_groups(r, world);
    Comm *host = comm_host(world);
    all.world = r->control;
    all.cores = host->share;
    if (r->mesh.world != host) all.transport = r->mesh.world->ops->name;
    return all;
}

void ranks_part(Replicas *all)
{
    if (all->kind) free(all->self);
    *all = replicas_alone(NULL);
}
