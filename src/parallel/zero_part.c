// zero_part: a rank's part of a checkpoint: which elements of which tensors, and where the rank keeps them; and
// its initial weights.
//
// A checkpoint describes the whole model (ckpt.h). A rank has some rows of the table, of each row the part that tensor
// parallelism gave it, of that the range that ZeRO gave it, all in memory or in a store. This file converts one into
// the other:
//
//                writes                                              needs
//   row          those it owns (Param.owned)                         all it has
//   units        of hybrid sharding's copies each in turn            all
//   elements     stages 1 to 3: its range                            its range; others come with zero_share_weights
//                stage 0: of what all replicas have the share that   all
//                a range of stage 1 would be
//
// So the ranks write each element of weights and state once, and in equal shares.
//
// The invariant: piece (row, elements) of an array of the optimizer is what the update of these elements reads and
// writes, as optim_range_elems says. Where the array has an element for each weight, it is cut as the weights are.
// Where it has not (a scale for a block, a mean for a row), it is cut as ranges are. Of a tensor that tensor-parallel
// ranks bring together (whole.c) the owner has all, and the others nothing.
//
// Rejected: rank 0 alone writing what all replicas have (it would write for as long as all together).
#include "parallel/zero.h"

#include "base/check.h"
#include "formats/formats.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Zero *zero;
    const Optim *optim;
    Params whole;
} Owner;

static const Params *table(const Zero *z)
{
    return &z->model->params;
}

// Between buf and where this rank keeps the piece.
static void move_piece(void *self, const CkptPiece *piece, void *buf, bool out)
{
    const Owner *o = self;
    Zero *z = o->zero;
    const Optim *optim = o->optim;
    Dev *dev = z->model->dev;
    bool weights = piece->array < 0;
    int u = piece->unit, s = weights ? optim->kind->n_states : piece->array;
    size_t n_bytes = (piece->slice.to - piece->slice.from) *
                     (weights ? sizeof(float) : safetensors_dtype_bytes(optim->state[s].dtype));
    size_t at = piece->at, unused;
    char *there = weights ? (char *)z->range[u].weight : z->state ? NULL : optim->state[s].data;
    if (there) {
        if (!weights && optim->at) at += optim_place_of(optim, optim_table(optim, z->model), u, s, &unused);
        if (out) dev->to_host(dev, buf, there + at, n_bytes);
        else dev->to_device(dev, there + at, buf, n_bytes);
        return;
    }
    bool apart = weights && z->store && dev->x_type == X_FP32; // what units read is the weights
    Offload *store = apart ? z->store : z->state;
    if (!apart) at += optim_place_of(optim, optim_table(optim, z->model), u, s, &unused);
    if (out) offload_read(store, u, at, buf, n_bytes);
    else offload_write(store, u, at, buf, n_bytes);
}

// Elements [begin, end) of a row's unit, of the flat order, that a rank writes or needs.
typedef struct {
    size_t begin, end;
} Share;

static Share *share_of(const Zero *z, const Optim *optim, bool writes, int replica, int replicas)
{
    size_t n = (size_t)z->cut.n_units;
    Share *s = calloc(n, sizeof *s);
    if (!s) die("zero: no memory for the shares of %zu units", n);
    for (size_t u = 0; u < n; u++) s[u] = (Share){z->range[u].begin, z->range[u].end};
    if (!writes || replicas == 1) return s;
    if (z->cut.size > 1) {
        size_t copies = (size_t)(replicas / z->cut.size), copy = (size_t)(replica / z->cut.size);
        for (size_t u = 0; u < n; u++)
            if (u % copies != copy) s[u].end = s[u].begin;
        return s;
    }
    OptimCut where = zero_where(optim->kind, false, z->tp ? z->tp->size : 1);
    ZeroCut cut = zero_cut(table(z), where, 1, replica, replicas);
    for (size_t u = 0; u < n; u++)
        s[u] = (Share){cut.begin[u], cut.begin[u] + cut.at[u + 1] - cut.at[u]};
    zero_cut_free(&cut);
    return s;
}

// The part of a row that this rank has; a cut that leaves it whole is none.
static CkptSlice slice_of_row(const Param *row)
{
    bool whole = row->cut < 0 || row->dim[row->cut] == row->whole[row->cut];
    return (CkptSlice){.cut = whole ? -1 : row->cut, .first = whole ? 0 : row->first,
                       .dim = {row->dim[0], row->dim[1]}};
}

// The whole row's shape of an array: its elements, 0 for none.
static size_t whole_elems(const CkptArray *array, const Params *whole, int row, size_t dim[PARAM_DIMS])
{
    int ndim = array->shape(whole, &whole->row[row], dim);
    for (int d = ndim; d < PARAM_DIMS; d++) dim[d] = 1;
    return ndim ? dim[0] * dim[1] : 0;
}

static bool comes_whole(const Optim *optim, long row)
{
    return optim->whole.owner && optim->whole.owner[row] >= 0;
}

// Elements [low, high), of the flat order, of a row, for an array of the optimizer (-1: the weights). False: there
// are none.
static bool make_piece(const Zero *z, const Optim *optim, const Params *whole, CkptPiece *piece, const Param *row,
                       size_t low, size_t high)
{
    const OptimRange *range = &z->range[piece->unit];
    piece->slice = slice_of_row(row);
    piece->slice.from = low - row->offset, piece->slice.to = high - row->offset;
    piece->at = (low - range->begin) * sizeof(float);
    if (piece->array < 0) return true;
    const CkptArray *array = &optim->state[piece->array];
    const Params *kept = optim_table(optim, z->model);
    size_t dim[PARAM_DIMS], own = optim_kind_elems(array, kept, &kept->row[row - table(z)->row]);
    size_t all = whole_elems(array, whole, piece->row, dim);
    if (!own) return false;
    piece->at = optim_range_elems(array, kept, optim->at ? range->begin : 0, low) *
                safetensors_dtype_bytes(array->dtype);
    bool each = own == row->n_elems && dim[0] == row->whole[0] && dim[1] == row->whole[1]; // one for each weight
    if (each && !comes_whole(optim, row - table(z)->row)) return true;
    // all of it, or blocks that begin at a row
    size_t first = own == all ? 0 : row->first * row->dim[1] / UPDATE_BLOCK;
    check(own == all || (row->cut == 0 && optim->kind->cut == OPTIM_BLOCK));
    first += optim_range_elems(array, kept, row->offset, low);
    piece->slice = (CkptSlice){.cut = -1, .dim = {dim[0], dim[1]}, .from = first,
                               .to = first + optim_range_elems(array, kept, low, high)};
    return piece->slice.to > piece->slice.from;
}

CkptPart zero_part(Zero *z, Optim *optim, bool writes, int replica, int replicas)
{
    const Params *own = table(z);
    Owner *owner = calloc(1, sizeof *owner);
    Unit *units;
    size_t n_most = (size_t)(optim->kind->n_states + 1) * (size_t)own->n_rows + 1;
    CkptPart part = {.array = optim->state, .n_arrays = optim->kind->n_states, .move = move_piece, .self = owner,
                     .piece = calloc(n_most, sizeof *part.piece)};
    if (!owner || !part.piece) die("zero: no memory for the tables of a checkpoint");
    *owner = (Owner){.zero = z, .optim = optim};
    model_describe(&z->model->shape, &owner->whole, &units);
    free(units);
    part.whole = &owner->whole;
    Share *share = share_of(z, optim, writes, replica, replicas);
    for (int a = -1; a < part.n_arrays; a++)
        for (int r = 0; r < own->n_rows; r++) {
            const Param *row = &own->row[r];
            bool moved = a >= 0 && comes_whole(optim, r); // to its owner, who may hold a copy of the part
            if (writes && !row->owned && !moved) continue;
            for (int u = 0; u < z->cut.n_units; u++) {
                size_t low = row->offset > share[u].begin ? row->offset : share[u].begin;
                size_t end = row->offset + row->n_elems, high = end < share[u].end ? end : share[u].end;
                if (low >= high) continue;
                CkptPiece *piece = &part.piece[part.n];
                *piece = (CkptPiece){.array = a, .row = params_find(part.whole, row->name), .unit = u};
                check(piece->row >= 0);
                part.n += make_piece(z, optim, part.whole, piece, row, low, high);
            }
        }
    free(share);
    return part;
}

void zero_part_free(CkptPart *part)
{
    Owner *owner = part->self;
    params_free(&owner->whole);
    free(owner);
    free(part->piece);
    *part = (CkptPart){0};
}

// ---- first weights, and what the units read

// What this rank owns of a unit's weights, in fp32.
static void move_weights(Zero *z, const Optim *optim, int unit, float *buf, bool out)
{
    const OptimRange *range = &z->range[unit];
    CkptPiece all = {.array = -1, .unit = unit, .slice = {.cut = -1, .to = range->end - range->begin}};
    if (all.slice.to) move_piece(&(Owner){.zero = z, .optim = optim}, &all, buf, out);
}

static float *room_for_unit(const Zero *z)
{
    size_t most = 1;
    for (int u = 0; u < z->model->params.n_units; u++) {
        size_t n = z->range[u].end - z->range[u].begin;
        if (n > most) most = n;
    }
    float *buf = malloc(most * sizeof *buf);
    if (!buf) die("zero: no memory for %zu weights of a unit", most);
    return buf;
}

void zero_renew(Zero *z, const Optim *optim)
{
    Model *m = z->model;
    bool fp32 = m->dev->x_type == X_FP32;
    if (!fp32 || (z->set.host && !z->store)) {
        float *buf = room_for_unit(z);
        X *narrow = fp32 ? NULL : (X *)room_for_unit(z), *now = fp32 ? (X *)buf : narrow;
        Format format = m->dev->x_type == X_BF16 ? FORMAT_BF16 : FORMAT_FP16;
        for (int u = 0; u < m->params.n_units; u++) {
            const OptimRange *range = &z->range[u];
            size_t n = range->end - range->begin;
            move_weights(z, optim, u, buf, true);
            if (!fp32) formats_from_float(narrow, format, buf, n, false); // to_x, in the host's memory
            if (z->store && n) offload_write(z->store, u, 0, now, n * m->dev->x_bytes);
            else m->dev->to_device(m->dev, range->x_weight, now, n * m->dev->x_bytes);
        }
        free(narrow);
        free(buf);
    }
    zero_share_weights(z);
}

void zero_init_weights(Zero *z, Optim *optim, uint64_t seed)
{
    Model *m = z->model;
    if (m->weights && !m->shard.weights && !m->dev->raw_alloc && !z->set.host) {
        params_init(&m->params, seed, m->weights);
        model_weights_changed(m);
        return;
    }
    float *buf = room_for_unit(z);
    for (int u = 0; u < m->params.n_units; u++) {
        params_init_range(&m->params, seed, z->range[u].begin, z->range[u].end, buf);
        move_weights(z, optim, u, buf, false);
    }
    free(buf);
    zero_renew(z, optim);
}
