// run_model: what a rank has of a run: its part of the model, of the optimizer, and of the exchange between ranks.
//
//   shape of the model -> this rank's part of every layer (tp) -> its layers (pp) -> a table of parameters
//   table -> the elements that this rank owns (ZeRO over dp x cp) -> buffers of model, optimizer, messages
//
// The invariant: everything that a rank asks of the memory door is asked here, in this order, from configuration and
// rank alone. So build/plan plays every rank with a door that only counts, and is right to the byte.
//
// Rejected: parts made where they are used. Which parts exist, and how they nest, would stand in five files.
#include "train/run.h"

#include "base/check.h"
#include "net/mup.h"
#include "ops/narrow.h"

#include <stdio.h>
#include <stdlib.h>

ModelShape run_shape(const Config *cfg)
{
    return (ModelShape){
        .layers = (size_t)cfg->model.layers, .channels = (size_t)cfg->model.channels,
        .heads = (size_t)cfg->model.heads, .kv_heads = (size_t)cfg->model.kv_heads,
        .head_size = (size_t)cfg->model.head_size, .ffn = (size_t)cfg->model.ffn,
        .vocab = (size_t)cfg->model.vocab, .context = (size_t)cfg->model.context,
        .norm = cfg->model.norm,
        .norm_eps = (float)cfg->model.norm_eps,
        .rotary = {.theta = (float)cfg->model.rope_theta, .kind = cfg->model.rope_scaling,
                   .factor = (float)cfg->model.rope_factor, .original = (float)cfg->model.rope_original,
                   .slow = (float)cfg->model.rope_slow, .fast = (float)cfg->model.rope_fast},
        .swiglu = cfg->model.activation == CONFIG_ACTIVATION_SWIGLU,
        .rope = cfg->model.position == CONFIG_POSITION_ROPE,
        .bias = cfg->model.bias, .tie = cfg->model.tie, .qk_norm = cfg->model.qk_norm,
        .mup_base = (size_t)cfg->optim.mup_base, .mup_base_head = (size_t)cfg->optim.mup_base_head,
    };
}

Dev *run_device(const Config *cfg, Dev *cpu)
{
    cpu->deterministic = cfg->numerics.deterministic;
    if (cfg->numerics.dtype == CONFIG_DTYPE_FP32) return cpu;
    return narrow_create(cpu, (NarrowOptions){
        .x_type = cfg->numerics.dtype == CONFIG_DTYPE_FP16 ? X_FP16 : X_BF16,
        .fp8 = cfg->numerics.dtype == CONFIG_DTYPE_FP8,
        .scaling = cfg->numerics.fp8_scaling,
        .history = (int)cfg->numerics.amax_history});
}

void run_device_free(Dev *dev, Dev *cpu)
{
    if (dev != cpu) narrow_free(dev);
    dev_cpu_free(cpu);
}

static OptimSettings optim_settings(const Config *cfg)
{
    return (OptimSettings){
        .name = cfg->optim.name, .beta1 = (float)cfg->optim.beta1, .beta2 = (float)cfg->optim.beta2,
        .eps = (float)cfg->optim.eps, .weight_decay = (float)cfg->optim.weight_decay,
        .momentum = (float)cfg->optim.momentum, .matrix_lr = (float)cfg->optim.matrix_lr,
        .relative_step = cfg->optim.relative_step, .clip = (float)cfg->optim.clip,
        .agc = (float)cfg->optim.agc, .agc_unit = cfg->optim.agc_unit};
}

// Which elements of its part of the model this rank owns.
static ZeroCut cut_of(const Run *run, const ModelShape *shape, const ModelStage *stage)
{
    const Config *cfg = &run->cfg;
    ModelShape part = tp_shape(shape, run->place.tp, run->shape.tp, cfg->parallel.sp);
    Params params;
    Unit *unit;
    model_describe_stage(&part, stage, &params, &unit);
    ZeroCut cut = zero_cut(&params, optim_kind(cfg->optim.name), cfg->optim.agc > 0, (int)cfg->parallel.zero,
                           run->place.dp * run->shape.cp + run->place.cp, run->shape.dp * run->shape.cp);
    params_free(&params);
    free(unit);
    return cut;
}

static ZeroSettings zero_settings(const Config *cfg, const OffloadSettings *store)
{
    bool several = cfg->parallel.dp * cfg->parallel.cp > 1;
    return (ZeroSettings){
        .stage = (int)cfg->parallel.zero, .overlap = cfg->parallel.overlap && cfg->parallel.pp == 1,
        .reshard = cfg->parallel.reshard, .bucket_bytes = (size_t)cfg->comm.bucket,
        .narrow = several && cfg->parallel.reduce_dtype == CONFIG_REDUCE_STORAGE,
        .store = store->mode == OFFLOAD_NONE ? NULL : store};
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

// The schedule of a pipeline, proved; and what this rank has of the layers. False: there is no pipeline.
static bool choose_stage(Run *run, const ModelShape *shape, ModelStage *stage)
{
    const Config *cfg = &run->cfg;
    size_t counts[PIPELINE_MAX_PIECES];
    if (run->shape.pp == 1) return false;
    bool user = cfg->parallel.schedule == PIPELINE_USER;
    const char *schedule = user ? cfg->parallel.table : pipeline_table_name(cfg->parallel.schedule);
    if (user && !*schedule)
        die("parallel.schedule = user: parallel.table names no file (build/pipeline writes one to begin with)");
    run->table = pipeline_choose(schedule, run->shape.pp, (int)cfg->batch.accum, (int)cfg->parallel.chunks,
                                 shape->layers, cfg->numerics.deterministic);
    bool listed = layers_listed(cfg->parallel.layers, run->shape.pp * run->table->v, shape->layers, counts);
    *stage = pipeline_stage(run->table, run->place.pp, shape->layers, listed ? counts : NULL);
    run->loss_stage = pipeline_table_place(run->table, run->shape.pp * run->table->v - 1).stage;
    return true;
}

// A group of the mesh; in a plan one that knows this rank's place in it and nothing else.
static Comm *group_of(Run *run, MeshGroup group)
{
    if (run->mesh.group[group]) return run->mesh.group[group];
    int member[run->ranks], n = mesh_members(run->shape, run->rank, group, member);
    Comm *comm = &run->planned[group];
    for (int i = 0; i < n; i++)
        if (member[i] == run->rank) comm->rank = i;
    comm->size = n;
    comm->ordered = run->cfg.numerics.deterministic;
    return comm;
}

void run_allocate(Run *run)
{
    const Config *cfg = &run->cfg;
    ModelShape shape = run_shape(cfg);
    mup_check(&shape, optim_kind(cfg->optim.name)->name);
    run_place(run);
    char path[700];
    snprintf(path, sizeof path, "%s/offload_%d.tmp", run->dir, run->rank);
    OffloadSettings store = {.mode = cfg->memory.offload, .n_slots = 2,
                             .dev = run->dev->raw_alloc ? run->dev : NULL,
                             .path = run->dir[0] ? path : NULL}; // none in a plan
    size_t n = (size_t)(cfg->batch.tokens / cfg->parallel.dp), T = shape.context;
    ZeroSettings zero = zero_settings(cfg, &store);
    ModelStage stage;
    bool staged = choose_stage(run, &shape, &stage);
    ZeroCut cut = cut_of(run, &shape, staged ? &stage : NULL);
    ModelOptions options = {
        .recompute = {.mode = cfg->memory.recompute, .every = (size_t)cfg->memory.recompute_every,
                      .compress = cfg->memory.compress == CONFIG_COMPRESS_INT8},
        .documents = cfg->data.document_mask, .sequences = n / T,
        .shard = zero_shard(&cut, run->dev, zero.stage, zero.store != NULL),
        .stage = staged ? &stage : NULL,
        .tp = group_of(run, MESH_TP), .sequence = cfg->parallel.sp, .cp = group_of(run, MESH_CP),
        .cp_set = {.assign = cfg->parallel.cp_assign, .way = cfg->parallel.cp_way,
                   .blocks = cfg->numerics.deterministic ? cp_blocks(T) : 0}};
    run->model = model_allocate_with(&shape, run->dev, &run->mem, (size_t)cfg->batch.micro, T, true, options);
    run->zero = zero_create(run->model, zero, cut, (ZeroGroups){.dp = run->mesh.group[MESH_REPLICAS],
                                                                .control = run->replicas, .parts = run->parts});
    if (staged)
        run->pipeline = pipeline_create(run->model, run->table, run->place.pp, run->mesh.group[MESH_PP],
                                        run->mesh.group[MESH_ENDS]);
    run->optim = zero_optim(run->zero, optim_settings(cfg));
    run->cache = model_cache_create(run->model);
    run->token = mem_alloc_host(&run->mem, MEM_SCRATCH, (cfg->data.document_mask ? 4 : 2) * n * sizeof *run->token,
                                "a step's tokens");
    run->target = run->token + n;
    run->pos = cfg->data.document_mask ? run->token + 2 * n : NULL;
    run->first = cfg->data.document_mask ? run->token + 3 * n : NULL;
    if (staged) run->micro = calloc((size_t)cfg->batch.accum, sizeof *run->micro);
    if (staged && !run->micro) die("run: no memory for %ld micro-batches", cfg->batch.accum);
    if (cfg->run.norms_every) run->norms = norms_create(run->model);
    run_ckpt_allocate(run);
}

void run_free(Run *run)
{
    if (run->cfg.run.norms_every) norms_close(&run->norms);
    run_ckpt_free(run);
    optim_free(&run->optim);
    pipeline_free(run->pipeline);
    zero_free(run->zero);
    mem_free_all(&run->mem);
    model_free(run->model);
    if (run->table) pipeline_table_free(run->table);
    free(run->micro);
}
