// tp: tensor and sequence parallelism.
//
//   column-parallel  weight (OC / tp, C): out = f(inp) weight^T            q, k, v; gate, up; the head
//   row-parallel     weight (OC, C / tp): out = g(inp weight^T) + bias     attention's out; down
//   embedding        tokens (V / tp, C):  out = g(lookup)                  a token of another rank: a row of zeros
//   loss             logits (N, V / tp):  log sum exp(z - m) + m - z_t     three all-reduces of N numbers
//
// f and g are each other's backward: where one is the identity, the other sums over the ranks. A block has two of each,
// so it costs two all-reduces of (N, C) in forward and two in backward. With sequence parallelism the residual stream
// between g and f has N / tp rows on each rank: norms, dropout and the residual sum run on those, f is an all-gather
// and g a reduce-scatter. A ring all-reduce consists of these two, so the bytes are the same. The output of f's gather
// is kept for backward (Korthikanti et al. gather it a second time, which keeps less and sends more).
//
// tp_fill puts this into the table that units call (linear.h): f is part of the norms' entries, g of forward and of
// gather. For the local part it calls the entries that were there before (under_tp).
//
// The invariant: a unit's gradients are complete when its backward returns. Rows of which a rank has only a part of the
// gradient (norms of its own rows, QK-norms of its own heads, key/value heads that neighbours share) are collected
// separately, and summed over the ranks before they are added to the others. So accumulation, data parallelism and
// ZeRO, which run between units, do not depend on tp. The loss and the gradients of row-parallel biases are the same on
// all ranks: summing those would count them tp times.
//
// On a deterministic device the ranks' sums are the branches of a tree whose leaves are the parts of linear.c, so any
// number of ranks gives the same bits. Rejected: padding the vocabulary to a multiple of tp (every softmax must then
// leave the padding out).
#include "parallel/parts.h"

#include "base/check.h"
#include "parallel/mesh.h"

// ---- f and g of Shoeybi et al. (arXiv 1909.08053), in place on whole (N, C). Before a column-parallel matmul f does
// nothing forward, and adds the ranks' gradients in backward; after a row-parallel one g adds the ranks' sums
// forward, and does nothing in backward. With sequence parallelism (Korthikanti et al., arXiv 2205.05198) nothing
// becomes an all-gather of the ranks' rows, and the sum a reduce-scatter that leaves this rank's rows at linear_own.
// Here f is norm_forward's gather and norm_backward's sum_ranks, g is forward's sum_ranks.

static Parts *parts_of(const UnitContext *ctx)
{
    return ctx->linear->parts;
}

static const Tp *tp_of(const UnitContext *ctx)
{
    return &parts_of(ctx)->tp;
}

// The table without tp: the local entries.
static const Linear *alone(const UnitContext *ctx)
{
    return &parts_of(ctx)->under_tp;
}

static bool rows_are_shared(const UnitContext *ctx)
{
    return ctx->shape->cut.rows > 1;
}

// Every rank's share of N rows, in elements.
static void shares(const UnitContext *ctx, size_t N, size_t *counts)
{
    check(N % ctx->shape->cut.rows == 0);
    for (int r = 0; r < tp_of(ctx)->group->size; r++) counts[r] = linear_rows(ctx, N) * ctx->shape->channels;
}

// Every rank's rows become all rows; nothing where all ranks have them.
static void gather(const UnitContext *ctx, X *x, size_t N)
{
    if (!rows_are_shared(ctx)) return;
    Comm *group = tp_of(ctx)->group;
    size_t counts[group->size];
    shares(ctx, N, counts);
    CommRequest request = comm_all_gather(group, x, linear_own(ctx, x, N), counts, comm_type_of(ctx->dev->x_type));
    comm_wait(group, &request);
}

// The sum over ranks: of this rank's rows, or of all.
static void sum_ranks(const UnitContext *ctx, X *x, size_t N)
{
    Comm *group = tp_of(ctx)->group;
    CommRequest request;
    size_t counts[group->size];
    if (rows_are_shared(ctx)) {
        shares(ctx, N, counts);
        request = comm_reduce_scatter(group, linear_own(ctx, x, N), x, counts, comm_type_of(ctx->dev->x_type),
                                      COMM_SUM);
    } else {
        request = comm_all_reduce(group, x, x, N * ctx->shape->channels, comm_type_of(ctx->dev->x_type), COMM_SUM);
    }
    comm_wait(group, &request);
}

static const void *gather_bytes(const UnitContext *ctx, void *to, const void *own, size_t rows, size_t n_bytes)
{
    if (!rows_are_shared(ctx)) return own;
    Comm *group = tp_of(ctx)->group;
    size_t counts[group->size];
    for (int r = 0; r < group->size; r++) counts[r] = rows * n_bytes;
    CommRequest request = comm_all_gather(group, to, own, counts, COMM_BYTE);
    comm_wait(group, &request);
    return to;
}

// ---- entries of the table

// Row-parallel: each rank has the sum over its own columns of inp, and g adds them. The bias joins rank 0's.
static void forward(const UnitContext *ctx, const LinearMatrix *m, X *out, const X *inp, size_t N)
{
    LinearMatrix own = *m;
    bool row_parallel = m->is.way == MATRIX_TO_STREAM;
    if (row_parallel && tp_of(ctx)->group->rank > 0) own.bias = NULL; // once
    alone(ctx)->forward(ctx, &own, out, inp, N);
    if (row_parallel) sum_ranks(ctx, out, N);
}

static void norm_forward(const UnitContext *ctx, const LinearNorm *norm, X *out, X *sum, float *mean, float *rstd,
                         const X *a, const X *b, size_t N)
{
    X *own = norm->of_output ? out : linear_own(ctx, out, N);
    alone(ctx)->norm_forward(ctx, norm, own, sum, mean, rstd, a, b, linear_rows(ctx, N));
    if (!norm->of_output) gather(ctx, out, N);
}

static void norm_backward(const UnitContext *ctx, const LinearNorm *norm, X *dinp, X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, size_t N)
{
    if (!norm->of_output) sum_ranks(ctx, dout, N);
    X *own = norm->of_output ? dout : linear_own(ctx, dout, N);
    alone(ctx)->norm_backward(ctx, norm, dinp, own, dresid, inp, mean, rstd, linear_rows(ctx, N));
}

static const X *at(const UnitContext *ctx, const X *x, size_t i)
{
    return (const X *)((const char *)x + i * ctx->dev->x_bytes);
}

static X *at_mutable(const UnitContext *ctx, X *x, size_t i)
{
    return (X *)((char *)x + i * ctx->dev->x_bytes);
}

// Sequence b alone. A rank numbers its H / tp heads of sequence b as if they were those of sequence b tp + rank of a
// model that has no others: then dropout's masks, which count (sequence, head), are those of the whole model.
static AttnShape sequence_of(const UnitContext *ctx, AttnShape s, size_t b)
{
    const ModelCut *cut = &ctx->shape->cut;
    s.B = 1;
    if (s.first) s.first += b * s.Tq;
    s.drop.first = (s.drop.first + b) * (uint64_t)cut->size + (uint64_t)cut->rank;
    return s;
}

static void attention_forward(const UnitContext *ctx, X *out, float *lse, const X *q, const X *k, const X *v,
                              AttnShape s)
{
    if (s.drop.p == 0) {
        alone(ctx)->attention_forward(ctx, out, lse, q, k, v, s);
        return;
    }
    for (size_t b = 0; b < s.B; b++) {
        size_t row = b * s.Tq;
        alone(ctx)->attention_forward(ctx, at_mutable(ctx, out, row * s.H * s.D), lse + row * s.H,
                                      at(ctx, q, row * s.ldq), at(ctx, k, row * s.ldkv), at(ctx, v, row * s.ldkv),
                                      sequence_of(ctx, s, b));
    }
}

static void attention_backward(const UnitContext *ctx, X *dq, X *dk, X *dv, const X *dout, const X *out,
                               const float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    if (s.drop.p == 0) {
        alone(ctx)->attention_backward(ctx, dq, dk, dv, dout, out, lse, q, k, v, s);
        return;
    }
    for (size_t b = 0; b < s.B; b++) {
        size_t row = b * s.Tq, hd = row * s.H * s.D, q_at = row * s.ldq, k_at = row * s.ldkv;
        alone(ctx)->attention_backward(ctx, at_mutable(ctx, dq, q_at), at_mutable(ctx, dk, k_at),
                                       at_mutable(ctx, dv, k_at), at(ctx, dout, hd), at(ctx, out, hd),
                                       lse + row * s.H, at(ctx, q, q_at), at(ctx, k, k_at), at(ctx, v, k_at),
                                       sequence_of(ctx, s, b));
    }
}

static void embed_forward(const UnitContext *ctx, X *out, const X *wte, const X *wpe, const Batch *batch)
{
    size_t N = batch->N, rows = linear_rows(ctx, N), C = ctx->shape->channels;
    X *sum = rows < N ? (X *)ctx->scratch[SCRATCH_NORM] : out; // (N, C)
    alone(ctx)->embed_forward(ctx, sum, wte, wpe, batch);
    sum_ranks(ctx, sum, N);
    if (rows < N) ctx->dev->copy(ctx->dev, out, linear_own(ctx, sum, N), rows, C, C, C);
}

// Over this rank's rows of the stream: the mask is a function of a row's place in the data.
static Dropout dropout(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site)
{
    Dropout drop = alone(ctx)->dropout(ctx, unit, batch, site);
    size_t skip = rows_are_shared(ctx) ? (size_t)ctx->shape->cut.rank * linear_rows(ctx, batch->N) : 0;
    if (drop.p == 0) return drop;
    if (drop.row) drop.row += skip;
    else drop.first += (uint64_t)skip * ctx->shape->channels;
    return drop;
}

static void combine(const UnitContext *ctx, float *x, size_t n, bool max)
{
    Comm *group = tp_of(ctx)->group;
    CommRequest request = comm_all_reduce(group, x, x, n, COMM_FP32, max ? COMM_MAX : COMM_SUM);
    comm_wait(group, &request);
}

static void complete_floats(const UnitContext *ctx, float *x, size_t n)
{
    combine(ctx, x, n, false);
}

static void xent(const UnitContext *ctx, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t rows,
                 float scale)
{
    linear_xent_steps(ctx, loss, dlogits, logits, target, rows, scale, combine);
}

// ---- gradients of rows that ranks share

// Rows of a matmul stand together, so q waits where its neighbours k and v do.
static bool is_staged(const Params *params, int i)
{
    const Param *row = &params->row[i];
    if (row->sum != PARAM_COMPLETE) return true;
    return i + 1 < params->n_rows && row[1].unit == row->unit && row[1].sum == PARAM_SUM_NEIGHBOURS;
}

size_t tp_stage_floats(const Params *params)
{
    size_t most = 0, n = 0;
    for (int i = 0; i < params->n_rows; i++) {
        if (i > 0 && params->row[i].unit != params->row[i - 1].unit) n = 0;
        if (is_staged(params, i)) n += params->row[i].n_elems;
        if (n > most) most = n;
    }
    return most;
}

// Where the gradient of row i waits for end_backward; NULL: it is complete where it is added.
static float *stage_of(const UnitContext *ctx, int i)
{
    const Params *params = ctx->params;
    if (!is_staged(params, i)) return NULL;
    size_t at = 0;
    for (int j = i - 1; j >= 0 && params->row[j].unit == params->row[i].unit; j--)
        if (is_staged(params, j)) at += params->row[j].n_elems;
    return tp_of(ctx)->stage + at;
}

static float *grad(const UnitContext *ctx, int row)
{
    float *stage = stage_of(ctx, row);
    return stage ? stage : alone(ctx)->grad(ctx, row);
}

// Adds, over the ranks that share them, the gradients of rows that are not complete.
static void end_backward(const UnitContext *ctx, const Unit *unit)
{
    const Params *params = ctx->params;
    for (int i = 0, next; i < params->n_rows; i = next) { // a run of rows that wait together for the same ranks
        const Param *row = &params->row[i];
        size_t n = row->n_elems;
        next = i + 1;
        if (row->unit != unit->home || row->sum == PARAM_COMPLETE) continue;
        for (; next < params->n_rows && row->unit == params->row[next].unit; next++) {
            if (!is_staged(params, next)) continue;
            if (params->row[next].sum != row->sum) break;
            n += params->row[next].n_elems;
        }
        float *stage = stage_of(ctx, i);
        Comm *over = row->sum == PARAM_SUM_ALL ? tp_of(ctx)->group : tp_of(ctx)->neighbours;
        CommRequest request = comm_all_reduce(over, stage, stage, n, COMM_FP32, COMM_SUM);
        comm_wait(over, &request);
    }
    for (int i = 0; i < params->n_rows; i++) {
        const Param *row = &params->row[i];
        if (row->unit != unit->home || !is_staged(params, i)) continue;
        ctx->dev->accumulate(ctx->dev, alone(ctx)->grad(ctx, i), stage_of(ctx, i), row->n_elems);
    }
}

void tp_fill(Parts *parts, Linear *linear)
{
    parts->under_tp = *linear;
    linear->forward = forward;
    linear->norm_forward = norm_forward;
    linear->norm_backward = norm_backward;
    linear->attention_forward = attention_forward;
    linear->attention_backward = attention_backward;
    linear->embed_forward = embed_forward;
    linear->dropout = dropout;
    linear->gather = gather;
    linear->gather_bytes = gather_bytes;
    linear->complete = sum_ranks;
    linear->complete_floats = complete_floats;
    linear->xent = xent;
    linear->grad = grad;
    linear->end_backward = end_backward;
}

// ---- around the model

void tp_gather_logits(const Tp *tp, const ModelShape *s, float *row)
{
    int size = s->cut.size;
    size_t counts[size];
    for (int r = 0; r < size; r++)
        counts[r] = unit_cut_first(s->cut.vocab, r + 1, size) - unit_cut_first(s->cut.vocab, r, size);
    float *own = row + unit_cut_first(s->cut.vocab, s->cut.rank, size);
    CommRequest request = comm_all_gather(comm_host(tp->group), row, own, counts, COMM_FP32);
    comm_wait(comm_host(tp->group), &request);
}

// ---- which rank has which part

void tp_check(const ModelShape *s, int size, bool sequence, size_t T)
{
    size_t tp = (size_t)size;
    mesh_must_divide("model.heads", s->heads, "parallel.tp", size);
    mesh_must_divide("model.ffn", s->ffn, "parallel.tp", size);
    if (s->experts.n) {
        mesh_must_divide("model.experts_ffn", s->experts.ffn, "parallel.tp", size);
        mesh_must_divide("model.experts_shared", s->experts.shared, "parallel.tp", size);
    }
    if (s->kv_heads % tp && tp % s->kv_heads)
        die("model.kv_heads = %zu, parallel.tp = %zu: neither divides the other, so the ranks cannot share the heads "
            "evenly (try a tp that divides %zu, or a multiple of it)", s->kv_heads, tp, s->kv_heads);
    if (s->vocab < tp)
        die("model.vocab = %zu, parallel.tp = %zu: every rank needs a token (try a smaller tp)", s->vocab, tp);
    if (sequence && T % tp)
        die("parallel.sp: rows of %zu tokens cannot be shared by parallel.tp = %zu ranks (try a length that %zu "
            "divides, or sp = false)", T, tp, tp);
}

ModelShape tp_shape(const ModelShape *whole, int rank, int size, bool sequence)
{
    ModelShape s = *whole;
    if (size <= 1) return s;
    size_t tp = (size_t)size;
    s.cut = (ModelCut){.rank = rank, .size = size, .rows = sequence ? tp : 1, .heads = whole->heads,
                       .kv_heads = whole->kv_heads, .ffn = whole->ffn, .vocab = whole->vocab,
                       .expert = whole->experts.ffn, .shared = whole->experts.shared};
    s.heads = whole->heads / tp;
    s.kv_heads = whole->kv_heads > tp ? whole->kv_heads / tp : 1;
    s.ffn = whole->ffn / tp;
    s.experts.ffn = whole->experts.ffn / tp;
    s.experts.shared = whole->experts.shared / tp;
    s.vocab = unit_cut_first(whole->vocab, rank + 1, size) - unit_cut_first(whole->vocab, rank, size);
    return s;
}

Tp tp_create(Comm *group, const ModelShape *part)
{
    int copies = unit_cut_copies(part);
    check(group->size == part->cut.size && group->rank == part->cut.rank && group->size > 1);
    Tp tp = {.group = group};
    if (copies > 1 && group->ops) tp.neighbours = comm_split(group, group->rank / copies, group->rank, "tp kv");
    return tp;
}

void tp_localise(const ModelShape *s, int32_t *token, int32_t *target, size_t n)
{
    if (s->cut.size <= 1) return;
    int32_t first = (int32_t)unit_cut_first(s->cut.vocab, s->cut.rank, s->cut.size), count = (int32_t)s->vocab;
    for (size_t i = 0; token && i < n; i++) {
        int32_t own = token[i] - first;
        token[i] = own >= 0 && own < count ? own : -1;
    }
    for (size_t i = 0; target && i < n; i++) {
        int32_t own = target[i] - first;
        if (target[i] >= 0) target[i] = own >= 0 && own < count ? own : count;
    }
}
