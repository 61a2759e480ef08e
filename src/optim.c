// optim: one optimizer step over the parameter table: norm, clip, update.
//
//   norm, adaptive and global clipping as clip.c has them;  g *= grad_scale, and the factor of the global one;
//   then the update of the optimizer (adamw.c, sgd.c, ...), row by row
//
// The invariant: every element is updated exactly once per step with the decay and the lr_scale of its row,
// however the range is cut. Neighbouring rows that agree in both form one run where the optimizer looks at single
// elements, so that a step is a few long passes and not a call per tensor.
//
// Decay acts on a weight by lr decay, so it would shrink with lr_scale (muP, mup.c). It is divided by lr_scale: the
// pull towards zero is the same at all widths, as in the muP authors' own code.
//
// The factor of clipping is not applied by a pass of its own; each update multiplies by it as it reads g.
// Where weights are stored in less than fp32, the storage copy is renewed behind each update.
#include "optim.h"

#include "check.h"

#include <math.h>
#include <stdlib.h>

Optim optim_create(const Model *model, OptimSettings set)
{
    Optim o = {.set = set, .kind = optim_kind(set.name), .grad_scale = 1};
    for (int s = 0; s < o.kind->n_states; s++) {
        CkptArray *array = &o.state[s];
        size_t n = 0;
        *array = o.kind->state[s];
        for (int r = 0; r < model->params.n_rows; r++)
            n += optim_kind_elems(array, &model->params, &model->params.row[r]);
        n *= safetensors_dtype_bytes(array->dtype);
        if (n) array->data = mem_alloc(model->mem, MEM_OPTIM, n, array->prefix);
        array->n_bytes = n;
    }
    size_t n_scratch = optim_scratch_bytes(set.name, &model->params);
    if (n_scratch) o.scratch = mem_alloc(model->mem, MEM_SCRATCH, n_scratch, "optimizer");
    return o;
}

void optim_reset(Optim *o, Model *model)
{
    for (int s = 0; s < o->kind->n_states; s++)
        if (o->state[s].n_bytes) model->dev->zero(model->dev, o->state[s].data, o->state[s].n_bytes);
    o->step = 0;
}

// Whether an update may begin or end at element `at` of a row.
static bool may_cut(OptimCut cut, const Param *row, size_t at)
{
    if (at == 0 || at == row->n_elems || cut == OPTIM_ELEMENT) return true;
    return cut == OPTIM_BLOCK && at % UPDATE_BLOCK == 0;
}

// Whether one call may update both rows.
static bool alike(const Param *a, const Param *b)
{
    return a->decay == b->decay && a->lr_scale == b->lr_scale;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void optim_update(Optim *o, Model *model, double lr, double grad_scale, size_t begin, size_t end)
{
    const Params *params = &model->params;
    Dev *dev = model->dev;
    OptimPiece piece = {0};
    Update u = {.beta1 = o->set.beta1, .beta2 = o->set.beta2, .eps = o->set.eps,
                .grad_scale = (float)grad_scale, .step = o->step};
    for (int s = 0; s < o->kind->n_states; s++) piece.state[s] = o->state[s].data;
    for (int i = 0, next; i < params->n_rows; i = next) {
        const Param *row = &params->row[i], *last = row;
        next = i + 1;
        if (o->kind->cut == OPTIM_ELEMENT)
            for (; next < params->n_rows && alike(row, &params->row[next]); next++) last = &params->row[next];
        size_t from = row->offset > begin ? row->offset : begin, to = smaller(last->offset + last->n_elems, end);
        if (from < to) {
            check(may_cut(o->kind->cut, row, from - row->offset) && may_cut(o->kind->cut, row, to - row->offset));
            piece.row = row;
            piece.first = from - row->offset;
            piece.n = to - from;
            piece.weight = model->weights + from;
            piece.grad = model->grads + from;
            u.lr = (float)(lr * row->lr_scale);
            u.weight_decay = row->decay ? o->set.weight_decay / row->lr_scale : 0;
            o->kind->update(o, dev, params, piece, u);
            if (dev->x_type != X_FP32)
                dev->to_x(dev, (X *)((char *)model->x_weights + from * dev->x_bytes), piece.weight, piece.n);
        }
        for (int s = 0; s < o->kind->n_states; s++)
            for (int r = i; r < next; r++)
                piece.state[s] = (char *)piece.state[s] + optim_kind_elems(&o->state[s], params, &params->row[r]) *
                                                              safetensors_dtype_bytes(o->state[s].dtype);
    }
}

double optim_norm(const Optim *o, const Model *model)
{
    return clip_norm(model->dev, &model->params, model->grads, o->grad_scale);
}

void optim_drop(Model *model)
{
    model->dev->zero(model->dev, model->grads, model->params.n_elems * sizeof(float));
}

void optim_apply(Optim *o, Model *model, double norm, double lr)
{
    check(isfinite(norm));
    if (o->set.agc > 0) {
        clip_agc(model->dev, &model->params, model->weights, model->grads, o->grad_scale, o->set.agc, o->set.agc_unit);
        norm = optim_norm(o, model);
    }
    o->step++;
    optim_update(o, model, lr, o->grad_scale * clip_factor(norm, o->set.clip), 0, model->params.n_elems);
}

double optim_step(Optim *o, Model *model, double lr)
{
    double norm = optim_norm(o, model);
    if (isfinite(norm)) optim_apply(o, model, norm, lr);
    else optim_drop(model);
    return norm;
}

void optim_print(FILE *out)
{
    static const ModelShape gpt2 = {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64,
                                    .ffn = 3072, .vocab = 50257, .context = 1024, .norm = NORM_LAYERNORM,
                                    .norm_eps = 1e-5f, .bias = true, .tie = true};
    static const char *const cut[] = {"any element", "blocks of 2048", "tensors"};
    Params params = {0};
    Unit *unit;
    model_describe(&gpt2, &params, &unit);
    fprintf(out, "| `optim.name` | arrays | may be cut at | state, bytes per parameter | the guides' figure |\n"
                 "|---|---|---|---:|---|\n");
    for (int i = 0; i < OPTIM_NAMES; i++) {
        const OptimKind *kind = optim_kind((OptimName)i);
        fprintf(out, "| `%s` | ", kind->name);
        for (int s = 0; s < kind->n_states; s++) fprintf(out, "%s%s", s ? ", " : "", kind->state[s].prefix);
        fprintf(out, "%s | %s | %.4f | %s |\n", kind->n_states ? "" : "none", cut[kind->cut],
                (double)optim_state_bytes((OptimName)i, &params) / (double)params.n_elems, kind->guide);
    }
    free(unit);
    params_free(&params);
}
