// zero_whole: first weights of a sharded run, and all of it on one rank, for dumps and tests.
//
// Rank 0 collects the pieces, one unit and one array at a time, by send and receive, and deals them out again in
// the same order. (A checkpoint does without: zero_part.c.)
//
// The invariant: piece (rank, unit, array) is the same range of the whole array in both directions, and the pieces of
// all ranks cover the array.
//
// The price is that rank 0 holds all of weights and state for a moment, in ordinary memory.
#include "parallel/zero.h"

#include "base/check.h"
#include "base/formats.h"

#include <stdlib.h>
#include <string.h>

static int ranks(const Zero *z)
{
    return z->control ? z->control->size : 1;
}

static int own_rank(const Zero *z)
{
    return z->control ? z->control->rank : 0;
}

// Elements [*begin, *end) of the flat order that a rank owns of a unit.
static void owned(const Zero *z, int rank, int unit, size_t *begin, size_t *end)
{
    params_unit_range(&z->model->params, unit, begin, end);
    if (z->cut.size == 1) return;
    const size_t *count = z->cut.count + (size_t)unit * (size_t)z->cut.size;
    for (int r = 0; r < rank; r++) *begin += count[r];
    *end = *begin + count[rank];
}

// A piece: one array of one unit of one rank. s = n_states: the weights.
typedef struct {
    size_t at, n_bytes; // in the whole array
} Piece;

static Piece piece_of(const Zero *z, const Optim *optim, int rank, int unit, int s)
{
    const Params *params = &z->model->params;
    size_t begin, end;
    owned(z, rank, unit, &begin, &end);
    if (s == optim->kind->n_states) return (Piece){begin * sizeof(float), (end - begin) * sizeof(float)};
    const CkptArray *array = &optim->state[s];
    size_t bytes = safetensors_dtype_bytes(array->dtype);
    return (Piece){bytes * optim_range_elems(array, params, 0, begin),
                   bytes * optim_range_elems(array, params, begin, end)};
}

// Where this rank keeps its piece in memory; NULL: in the store.
static char *home(const Zero *z, const Optim *optim, int unit, int s)
{
    size_t n_bytes;
    if (s == optim->kind->n_states) return (char *)z->range[unit].weight;
    if (z->state) return NULL;
    char *data = optim->state[s].data;
    if (!optim->at) return data ? data + piece_of(z, optim, own_rank(z), unit, s).at : NULL;
    return data ? data + optim_place_of(optim, &z->model->params, unit, s, &n_bytes) : NULL;
}

// This rank's piece between its home and buf.
static void move(const Zero *z, const Optim *optim, int unit, int s, void *buf, size_t n_bytes, bool out)
{
    size_t store_bytes = n_bytes;
    char *there = home(z, optim, unit, s);
    if (!n_bytes) return;
    if (there) {
        if (out) z->model->dev->to_host(z->model->dev, buf, there, n_bytes);
        else z->model->dev->to_device(z->model->dev, there, buf, n_bytes);
        return;
    }
    bool weights = s == optim->kind->n_states && z->store && z->model->dev->x_type == X_FP32;
    Offload *store = weights ? z->store : z->state;
    size_t at = weights ? 0 : optim_place_of(optim, &z->model->params, unit, s, &store_bytes);
    check(store_bytes == n_bytes);
    if (out) offload_read(store, unit, at, buf, n_bytes);
    else offload_write(store, unit, at, buf, n_bytes);
}

static void *room(size_t n_bytes)
{
    void *buf = malloc(n_bytes ? n_bytes : 1);
    if (!buf) die("zero: no memory for %zu bytes of the whole model on one rank", n_bytes);
    return buf;
}

// The largest piece of this rank.
static size_t largest(const Zero *z, const Optim *optim)
{
    size_t most = 0;
    for (int u = 0; u < z->model->n_units; u++)
        for (int s = 0; s <= optim->kind->n_states; s++) {
            size_t n_bytes = piece_of(z, optim, own_rank(z), u, s).n_bytes;
            if (n_bytes > most) most = n_bytes;
        }
    return most;
}

static char *whole_array(const ZeroWhole *whole, const Optim *optim, int s)
{
    return s == optim->kind->n_states ? (char *)whole->weights : whole->state[s].data;
}

static bool in_memory(const Zero *z)
{
    return z->cut.size == 1 && !z->state;
}

ZeroWhole zero_whole(Zero *z, const Optim *optim)
{
    ZeroWhole whole = {0};
    const Params *params = &z->model->params;
    if (own_rank(z) > 0) return whole;
    memcpy(whole.state, optim->state, sizeof whole.state);
    whole.weights = z->model->weights;
    if (in_memory(z)) return whole;
    whole.own = true;
    whole.weights = room(params->n_elems * sizeof *whole.weights);
    for (int s = 0; s < optim->kind->n_states; s++) {
        CkptArray *array = &whole.state[s];
        array->n_bytes = optim_range_elems(array, params, 0, params->n_elems) * safetensors_dtype_bytes(array->dtype);
        array->data = room(array->n_bytes);
    }
    return whole;
}

void zero_whole_free(ZeroWhole *whole)
{
    if (whole->own) {
        free(whole->weights);
        for (int s = 0; s < OPTIM_STATES; s++) free(whole->state[s].data);
    }
    *whole = (ZeroWhole){0};
}

static void transfer(Zero *z, void *buf, size_t n_bytes, int peer, bool send)
{
    if (!n_bytes) return;
    CommRequest request = send ? comm_send(z->control, buf, n_bytes, COMM_BYTE, peer, 0)
                               : comm_recv(z->control, buf, n_bytes, COMM_BYTE, peer, 0);
    comm_wait(z->control, &request);
}

void zero_gather_whole(Zero *z, const Optim *optim, ZeroWhole *whole)
{
    if (in_memory(z)) return;
    int n_arrays = optim->kind->n_states + 1, rank = own_rank(z), n_units = z->model->n_units;
    char *buf = rank ? room(largest(z, optim)) : NULL;
    for (int u = 0; u < n_units; u++)
        for (int s = 0; s < n_arrays; s++) {
            Piece own = piece_of(z, optim, rank, u, s);
            char *to = rank ? buf : whole_array(whole, optim, s) + own.at;
            if (rank && z->cut.size == 1) continue; // rank 0 has the same
            move(z, optim, u, s, to, own.n_bytes, true);
            if (rank) transfer(z, buf, own.n_bytes, 0, true);
            for (int r = 1; !rank && r < z->cut.size; r++) {
                Piece piece = piece_of(z, optim, r, u, s);
                transfer(z, whole_array(whole, optim, s) + piece.at, piece.n_bytes, r, false);
            }
        }
    free(buf);
}

// What this rank's units read, from its weights.
void zero_renew(Zero *z, const Optim *optim)
{
    Model *m = z->model;
    if (m->dev->x_type != X_FP32) {
        float *buf = room(largest(z, optim));
        X *narrow = room(largest(z, optim));
        Format format = m->dev->x_type == X_BF16 ? FORMAT_BF16 : FORMAT_FP16;
        for (int u = 0; u < m->n_units; u++) {
            const OptimRange *range = &z->range[u];
            size_t n = range->end - range->begin;
            move(z, optim, u, optim->kind->n_states, buf, n * sizeof *buf, true);
            formats_from_float(narrow, format, buf, n, false); // to_x, in the host's memory
            if (z->store && n) offload_write(z->store, u, 0, narrow, n * m->dev->x_bytes);
            else m->dev->to_device(m->dev, range->x_weight, narrow, n * m->dev->x_bytes);
        }
        free(narrow);
        free(buf);
    }
    zero_share_weights(z);
}

void zero_scatter_whole(Zero *z, Optim *optim, const ZeroWhole *whole)
{
    int n_arrays = optim->kind->n_states + 1, rank = own_rank(z), n_units = z->model->n_units;
    char *buf = rank ? room(largest(z, optim)) : NULL;
    for (int u = 0; u < n_units; u++)
        for (int s = 0; s < n_arrays; s++) {
            Piece own = piece_of(z, optim, rank, u, s);
            if (rank) transfer(z, buf, own.n_bytes, 0, false);
            for (int r = 1; !rank && r < ranks(z); r++) {
                Piece piece = piece_of(z, optim, r, u, s);
                transfer(z, whole_array(whole, optim, s) + piece.at, piece.n_bytes, r, true);
            }
            char *from = rank ? buf : whole_array(whole, optim, s) + own.at;
            if (rank || !in_memory(z)) move(z, optim, u, s, from, own.n_bytes, false);
        }
    free(buf);
    zero_renew(z, optim);
}

void zero_init_weights(Zero *z, Optim *optim, uint64_t seed)
{
    Model *m = z->model;
    if (m->weights && !m->shard.weights && !m->dev->raw_alloc) {
        params_init(&m->params, seed, m->weights);
        model_weights_changed(m);
        return;
    }
    float *buf = room(largest(z, optim));
    for (int u = 0; u < m->n_units; u++) {
        const OptimRange *range = &z->range[u];
        params_init_range(&m->params, seed, range->begin, range->end, buf);
        move(z, optim, u, optim->kind->n_states, buf, (range->end - range->begin) * sizeof *buf, false);
    }
    free(buf);
    zero_renew(z, optim);
}

void zero_gather_grads(Zero *z, float *grads)
{
    int rank = own_rank(z);
    for (int u = 0; u < z->model->n_units; u++) {
        size_t begin, end;
        owned(z, rank, u, &begin, &end);
        float *own = z->range[u].grad;
        if (rank == 0) z->model->dev->to_host(z->model->dev, grads + begin, own, (end - begin) * sizeof *own);
        else if (z->cut.size > 1) {
            float *copy = room((end - begin) * sizeof *own);
            z->model->dev->to_host(z->model->dev, copy, own, (end - begin) * sizeof *own);
            transfer(z, copy, (end - begin) * sizeof *own, 0, true);
            free(copy);
        }
        for (int r = 1; rank == 0 && r < z->cut.size; r++) {
            owned(z, r, u, &begin, &end);
            transfer(z, grads + begin, (end - begin) * sizeof *own, r, false);
        }
    }
}
