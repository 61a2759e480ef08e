// optim_kinds: the table of optimizers. See optim.h.
//
// It says which array has how many elements for a row of the parameter table, and which op of the
// device updates them; the formulas stand in the files of the ops (update_rules.h, updates.c, updates_matrix.c).
//
// An array is laid out in table order, back to back, with as many elements for a row as its
// `shape` says. For an optimizer with OPTIM_ELEMENT that is the layout of the weights, so element i of the weights
// has element i of each array.
//
// Names of arrays are PyTorch's (exp_avg, exp_avg_sq, momentum_buffer) or Transformers' (exp_avg_sq_row). An array
// that has nothing for a row stores nothing for it, also in the checkpoint.
//
// Rejected: a state struct per optimizer with functions of its own to allocate, save and shard it, as in
// most frameworks: nine times four functions that do the same.
#include "train/optim.h"

#include "base/check.h"

#include <math.h>

// ---- shapes of the arrays, for a row of the table

// bitsandbytes keeps tensors below 4096 elements in fp32: there is little to save, and norms are delicate.
enum { SMALLEST_IN_8BIT = 4096 };

static int shape_same(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    for (int d = 0; d < row->ndim; d++) dim[d] = row->dim[d];
    return row->ndim;
}

// The whole tensor decides, so that every layout decides alike.
static bool large(const Param *row)
{
    return row->whole[0] * row->whole[1] >= SMALLEST_IN_8BIT;
}

static int shape_large(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    return large(row) ? shape_same(params, row, dim) : 0;
}

static int shape_small(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    return large(row) ? 0 : shape_same(params, row, dim);
}

static int shape_blocks(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    dim[0] = (row->dim[0] * row->dim[1] + UPDATE_BLOCK - 1) / UPDATE_BLOCK;
    return large(row) ? 1 : 0;
}

static int shape_rows(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    dim[0] = row->dim[0];
    return row->ndim == 2 ? 1 : 0;
}

static int shape_cols(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    dim[0] = row->dim[row->ndim - 1];
    return row->ndim == 2 ? 1 : 0;
}

static int shape_vector(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    return row->ndim == 2 ? 0 : shape_same(params, row, dim);
}

// Matrices of the blocks: not of the embedding, nor of the head.
static bool hidden(const Params *params, const Param *row)
{
    return row->ndim == 2 && params_place(params, row) == PARAM_OF_BLOCK;
}

static int shape_hidden(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    return hidden(params, row) ? shape_same(params, row, dim) : 0;
}

static int shape_hidden_rows(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    return hidden(params, row) ? shape_rows(params, row, dim) : 0;
}

static int shape_not_hidden(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    return hidden(params, row) ? 0 : shape_same(params, row, dim);
}

// ---- calls of the ops

// By a rule for elements: moments lie as the weights do.
static void update_elements(Optim *o, Dev *dev, const Params *params, OptimPiece p, Update u)
{
    (void)params;
    float *m = o->kind->n_states > 0 ? (float *)p.state[0] + p.first : NULL;
    float *v = o->kind->n_states > 1 ? (float *)p.state[1] + p.first : NULL;
    dev->update(dev, o->set.name, p.weight, m, v, p.grad, p.n, u);
}

static void update_adafactor(Optim *o, Dev *dev, const Params *params, OptimPiece p, Update u)
{
    (void)params;
    const Param *row = p.row;
    if (o->set.relative_step) u.lr = (float)fmin(1e-2, 1 / sqrt(u.step));
    if (row->ndim == 2)
        dev->adafactor(dev, p.weight, p.state[0], p.state[1], p.grad, row->dim[0], row->dim[1], u);
    else dev->adafactor(dev, p.weight, p.state[2], NULL, p.grad, 1, row->dim[0], u);
}

static void update_adamw8bit(Optim *o, Dev *dev, const Params *params, OptimPiece p, Update u)
{
    (void)o, (void)params;
    size_t block = p.first / UPDATE_BLOCK;
    if (!large(p.row))
        dev->update(dev, OPTIM_ADAMW, p.weight, (float *)p.state[4] + p.first, (float *)p.state[5] + p.first, p.grad,
                    p.n, u);
    else
        dev->adamw8bit(dev, p.weight, (uint8_t *)p.state[0] + p.first, (float *)p.state[1] + block,
                       (uint8_t *)p.state[2] + p.first, (float *)p.state[3] + block, p.grad, p.n, u);
}

static void update_muon(Optim *o, Dev *dev, const Params *params, OptimPiece p, Update u)
{
    if (!hidden(params, p.row)) {
        dev->update(dev, OPTIM_ADAMW, p.weight, p.state[1], p.state[2], p.grad, p.n, u);
        return;
    }
    u.beta1 = o->set.momentum;
    u.beta2 = o->set.row_beta2;
    if (o->set.matrix_lr > 0) u.lr *= o->set.matrix_lr;
    float *row = o->set.name == OPTIM_NORMUON ? p.state[3] : NULL;
    dev->muon(dev, p.weight, p.state[0], row, p.grad, o->scratch, p.row->dim[0], p.row->dim[1], u);
}

#define EXP_AVG {.prefix = "exp_avg", .dtype = ST_F32, .shape = shape_same}
#define EXP_AVG_SQ {.prefix = "exp_avg_sq", .dtype = ST_F32, .shape = shape_same}
#define MOMENTUM {.prefix = "momentum_buffer", .dtype = ST_F32, .shape = shape_same}
#define MUON_STATES {.prefix = "momentum_buffer", .dtype = ST_F32, .shape = shape_hidden}, \
                    {.prefix = "exp_avg", .dtype = ST_F32, .shape = shape_not_hidden}, \
                    {.prefix = "exp_avg_sq", .dtype = ST_F32, .shape = shape_not_hidden}

static const OptimKind TABLE[OPTIM_NAMES] = {
    [OPTIM_ADAMW] = {"adamw", "8", OPTIM_ELEMENT, 2, {EXP_AVG, EXP_AVG_SQ}, update_elements},
    [OPTIM_ADAM] = {"adam", "8", OPTIM_ELEMENT, 2, {EXP_AVG, EXP_AVG_SQ}, update_elements},
    [OPTIM_SGD] = {"sgd", "0", OPTIM_ELEMENT, 0, {{0}}, update_elements},
    [OPTIM_MOMENTUM] = {"momentum", "4", OPTIM_ELEMENT, 1, {MOMENTUM}, update_elements},
    [OPTIM_ADAFACTOR] = {"adafactor", "4 (R + C) / (R C), about 0", OPTIM_TENSOR, 3,
                         {{.prefix = "exp_avg_sq_row", .dtype = ST_F32, .shape = shape_rows},
                          {.prefix = "exp_avg_sq_col", .dtype = ST_F32, .shape = shape_cols},
                          {.prefix = "exp_avg_sq", .dtype = ST_F32, .shape = shape_vector}},
                         update_adafactor},
    [OPTIM_LION] = {"lion", "4", OPTIM_ELEMENT, 1, {EXP_AVG}, update_elements},
    [OPTIM_ADAMW8BIT] = {"adamw8bit", "2", OPTIM_BLOCK, 6,
                         {{.prefix = "exp_avg_code", .dtype = ST_U8, .shape = shape_large},
                          {.prefix = "exp_avg_scale", .dtype = ST_F32, .shape = shape_blocks},
                          {.prefix = "exp_avg_sq_code", .dtype = ST_U8, .shape = shape_large},
                          {.prefix = "exp_avg_sq_scale", .dtype = ST_F32, .shape = shape_blocks},
                          {.prefix = "exp_avg", .dtype = ST_F32, .shape = shape_small},
                          {.prefix = "exp_avg_sq", .dtype = ST_F32, .shape = shape_small}},
                         update_adamw8bit},
    [OPTIM_MUON] = {"muon", "4 for hidden matrices, else 8", OPTIM_TENSOR, 3, {MUON_STATES}, update_muon},
    [OPTIM_NORMUON] = {"normuon", "4 and 4 / C for hidden matrices, else 8", OPTIM_TENSOR, 4,
                       {MUON_STATES, {.prefix = "exp_avg_sq_row", .dtype = ST_F32, .shape = shape_hidden_rows}},
                       update_muon},
};

static bool is_muon(const OptimKind *kind)
{
    return kind->update == update_muon;
}

const OptimKind *optim_kind(OptimName name)
{
    return &TABLE[name];
}

// May stay in parts: what is updated element by element, and blocks of 8 bits where all ranks' rows begin with a block.
bool optim_needs_whole(const OptimKind *kind, const Params *params, const Param *row, int ranks)
{
    if (row->cut < 0 || row->dim[row->cut] == row->whole[row->cut] || kind->cut == OPTIM_ELEMENT) return false;
    bool even = row->whole[0] % (size_t)ranks == 0 && row->dim[0] * row->dim[1] % UPDATE_BLOCK == 0;
    if (kind->cut == OPTIM_BLOCK)
        return large(row) && (row->cut == 1 || !(even || row->dim[1] % UPDATE_BLOCK == 0));
    return !is_muon(kind) || hidden(params, row);
}

double optim_cost(const OptimKind *kind, const Params *params, const Param *row)
{
    double n = (double)(row->whole[0] * row->whole[1]), k = (double)(row->whole[0] < row->whole[1] ? row->whole[0] : row->whole[1]);
    return is_muon(kind) && hidden(params, row) ? 5 * (4 * k * n + 2 * k * k * k) : n;
}

const Params *optim_table(const Optim *o, const Model *model)
{
    return o->whole.table ? o->whole.table : &model->params;
}

size_t optim_kind_elems(const CkptArray *array, const Params *params, const Param *row)
{
    size_t dim[PARAM_DIMS], n = 1;
    int ndim = array->shape(params, row, dim);
    for (int d = 0; d < ndim; d++) n *= dim[d];
    return ndim ? n : 0;
}

// Elements of the array for n elements of a row from `first` on.
static size_t piece_elems(const CkptArray *array, const Params *params, const Param *row, size_t first, size_t n)
{
    size_t whole = optim_kind_elems(array, params, row);
    if (n == row->n_elems || whole == 0) return whole;
    if (whole == row->n_elems) return n;
    return (first + n + UPDATE_BLOCK - 1) / UPDATE_BLOCK - first / UPDATE_BLOCK; // one number a block
}

size_t optim_range_elems(const CkptArray *array, const Params *params, size_t begin, size_t end)
{
    size_t sum = 0;
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        size_t from = row->offset > begin ? row->offset : begin;
        size_t to = row->offset + row->n_elems < end ? row->offset + row->n_elems : end;
        if (from < to) sum += piece_elems(array, params, row, from - row->offset, to - from);
    }
    return sum;
}

size_t optim_state_bytes(OptimName name, const Params *params)
{
    const OptimKind *kind = optim_kind(name);
    size_t n_bytes = 0;
    for (int s = 0; s < kind->n_states; s++)
        for (int r = 0; r < params->n_rows; r++)
            n_bytes += optim_kind_elems(&kind->state[s], params, &params->row[r]) *
                       safetensors_dtype_bytes(kind->state[s].dtype);
    return n_bytes;
}

// The scratch of the op muon, for the largest row.
size_t optim_scratch_bytes(OptimName name, const Params *params)
{
    size_t most = 0;
    for (int r = 0; r < params->n_rows && is_muon(optim_kind(name)); r++) {
        const Param *row = &params->row[r];
        size_t side = row->dim[0] < row->dim[1] ? row->dim[0] : row->dim[1], n = row->dim[0] * row->dim[1] + 2 * side * side;
        if (hidden(params, row) && n > most) most = n;
    }
    return most * sizeof(float);
}
