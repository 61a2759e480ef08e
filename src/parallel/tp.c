// tp: tensor and sequence parallelism.
//
//   column-parallel  weight (OC / tp, C): out = f(inp) weight^T            q, k, v; gate, up; the head
//   row-parallel     weight (OC, C / tp): out = g(inp weight^T) + bias     attention's out; down
//   embedding        tokens (V / tp, C):  out = g(lookup)                  a token of another rank: a row of zeros
//   loss             logits (N, V / tp):  log sum exp(z - m) + m - z_t     three all-reduces of N numbers
//
// f and g are each other's backward: where one does nothing the other adds over the ranks. A block has two of each,
// so it costs two all-reduces of (N, C) forward and two back. With sequence parallelism the stream between g and f
// lives in N / tp rows: norms, dropout and the residual sum run on those, f gathers and g reduce-scatters. A ring
// does an all-reduce as these two, so the bytes are the same. What f gathered is kept for backward (the paper
// gathers it a second time, which keeps less and sends more).
//
// The invariant: a unit's gradients are complete when its backward returns. Rows whose gradient a rank knows only
// in part (norms of its own rows, QK-norms of its own heads, key/value heads that neighbours share) are collected
// apart and added over the ranks before they join the others. So accumulation, data parallelism and ZeRO, which
// listen at the borders of units, need not know. Loss and the row-parallel biases' gradients are the same on all
// ranks: adding those would count them tp times.
//
// On a deterministic device every sum over something that tp cuts (columns of a row-parallel matmul's input,
// outputs of a column-parallel one, vocabulary, rows of a norm) is cut into PARTS parts on any number of ranks, one
// among them, and the parts are added in the tree in which `ordered` groups add ranks. A rank's parts are a
// subtree, so 1, 2, 4 and 8 ranks give the same bits. Not where parts do not divide: key/value heads that are not a
// multiple of tp, a rank count that is no power of two.
//
// Rejected: padding the vocabulary to a multiple of tp (its rows must then be kept out of every softmax); reducing
// shared gradients once a step, which sends less, but every owner of gradients would have to know of it; the gathered
// softmax (N V numbers travel and not 3 N).
#include "parallel/tp.h"

#include "base/check.h"
#include "parallel/cp.h"
#include "comm/mesh.h"

enum { PARTS = 8, MAX_SEGMENTS = 3, MAX_LEVELS = 4 };

// ---- who has what

int tp_copies(const ModelShape *s)
{
    return s->cut.size > (int)s->cut.kv_heads ? s->cut.size / (int)s->cut.kv_heads : 1;
}

void tp_check(const ModelShape *s, int size, bool sequence, size_t T)
{
    size_t tp = (size_t)size;
    mesh_must_divide("model.heads", s->heads, "parallel.tp", size);
    mesh_must_divide("model.ffn", s->ffn, "parallel.tp", size);
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
                       .kv_heads = whole->kv_heads, .ffn = whole->ffn, .vocab = whole->vocab};
    s.heads = whole->heads / tp;
    s.kv_heads = whole->kv_heads > tp ? whole->kv_heads / tp : 1;
    s.ffn = whole->ffn / tp;
    s.vocab = tp_first(whole->vocab, rank + 1, size) - tp_first(whole->vocab, rank, size);
    return s;
}

Tp tp_create(Comm *group, const ModelShape *part)
{
    int copies = tp_copies(part);
    check(group->size == part->cut.size && group->rank == part->cut.rank && group->size > 1);
    Tp tp = {.group = group};
    if (copies > 1 && group->ops) tp.neighbours = comm_split(group, group->rank / copies, group->rank, "tp kv");
    return tp;
}

void tp_localise(const ModelShape *s, int32_t *token, int32_t *target, size_t n)
{
    if (s->cut.size <= 1) return;
    int32_t first = (int32_t)tp_first(s->cut.vocab, s->cut.rank, s->cut.size), count = (int32_t)s->vocab;
    for (size_t i = 0; token && i < n; i++) {
        int32_t own = token[i] - first;
        token[i] = own >= 0 && own < count ? own : -1;
    }
    for (size_t i = 0; target && i < n; i++) {
        int32_t own = target[i] - first;
        if (target[i] >= 0) target[i] = own >= 0 && own < count ? own : count;
    }
}

// ---- f and g

static size_t sharers(const UnitContext *ctx)
{
    return ctx->shape->cut.rows > 1 ? ctx->shape->cut.rows : 1;
}

size_t tp_rows(const UnitContext *ctx, size_t N)
{
    return N / sharers(ctx);
}

X *tp_own(const UnitContext *ctx, X *whole, size_t N)
{
    size_t first = sharers(ctx) > 1 ? (size_t)ctx->shape->cut.rank * tp_rows(ctx, N) : 0;
    return (X *)((char *)whole + first * ctx->shape->channels * ctx->dev->x_bytes);
}

Dropout tp_dropout(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site)
{
    size_t C = ctx->shape->channels, T = batch->T * (ctx->cp ? (size_t)ctx->cp->size : 1);
    size_t skip = sharers(ctx) > 1 ? (size_t)ctx->shape->cut.rank * tp_rows(ctx, batch->N) : 0;
    Dropout drop = unit_dropout(unit, batch, site, T * C);
    if (drop.p == 0) return drop;
    if (T == batch->T) drop.first += (uint64_t)skip * C;
    else drop.row = cp_rows(ctx->cp, T) + skip, drop.width = C;
    return drop;
}

// Every rank's share of N rows, in elements.
static void shares(const UnitContext *ctx, size_t N, size_t *counts)
{
    check(N % sharers(ctx) == 0);
    for (int r = 0; r < ctx->tp->group->size; r++) counts[r] = tp_rows(ctx, N) * ctx->shape->channels;
}

// Every rank's rows become all rows; nothing where all ranks have them.
static void spread(const UnitContext *ctx, X *x, size_t N)
{
    if (!ctx->tp || sharers(ctx) == 1) return;
    size_t counts[ctx->tp->group->size];
    shares(ctx, N, counts);
    CommRequest request = comm_all_gather(ctx->tp->group, x, tp_own(ctx, x, N), counts, comm_type_of(ctx->dev->x_type));
    comm_wait(ctx->tp->group, &request);
}

// The sum over ranks: of this rank's rows, or of all.
static void sum_ranks(const UnitContext *ctx, X *x, size_t N)
{
    if (!ctx->tp) return;
    Comm *group = ctx->tp->group;
    CommRequest request;
    size_t counts[group->size];
    if (sharers(ctx) > 1) {
        shares(ctx, N, counts);
        request = comm_reduce_scatter(group, tp_own(ctx, x, N), x, counts, comm_type_of(ctx->dev->x_type), COMM_SUM);
    } else {
        request = comm_all_reduce(group, x, x, N * ctx->shape->channels, comm_type_of(ctx->dev->x_type), COMM_SUM);
    }
    comm_wait(group, &request);
}

void tp_f_forward(const UnitContext *ctx, X *x, size_t N)
{
    spread(ctx, x, N);
}

void tp_f_backward(const UnitContext *ctx, X *dx, size_t N)
{
    sum_ranks(ctx, dx, N);
}

void tp_g_forward(const UnitContext *ctx, X *sum, size_t N)
{
    sum_ranks(ctx, sum, N);
}

void tp_g_backward(const UnitContext *ctx, X *dout, size_t N)
{
    spread(ctx, dout, N);
}

// ---- sums in parts

// How many of the parts of `whole` things are on one of `size` ranks.
static size_t parts_of(size_t whole, size_t size)
{
    size_t n = 1;
    while (n < PARTS && whole % (2 * n) == 0) n *= 2;
    return n % size == 0 ? n / size : 1;
}

static size_t group_size(const UnitContext *ctx)
{
    return ctx->tp ? (size_t)ctx->tp->group->size : 1;
}

// n parts, each with its n-th of every segment.
static DevParts cut_segments(DevRange *range, const size_t *width, size_t n_segments, size_t n)
{
    check(n <= PARTS && n_segments <= MAX_SEGMENTS);
    for (size_t p = 0; p < n; p++) {
        size_t at = 0;
        for (size_t i = 0; i < n_segments; at += width[i++])
            range[p * n_segments + i] = (DevRange){at + width[i] * p / n, at + width[i] * (p + 1) / n};
    }
    return (DevParts){.range = range, .n = n, .each = n_segments};
}

// The vocabulary is cut where PARTS ranks would cut it.
static DevParts cut_vocab(const UnitContext *ctx, DevRange *range)
{
    const ModelShape *s = ctx->shape;
    size_t size = group_size(ctx), n = PARTS % size == 0 ? PARTS / size : 1;
    size_t whole = size > 1 ? s->cut.vocab : s->vocab, rank = size > 1 ? (size_t)s->cut.rank : 0;
    size_t first = whole * rank / size, all = n * size, at = rank * n;
    for (size_t p = 0; p < n; p++)
        range[p] = (DevRange){whole * (at + p) / all - first, whole * (at + p + 1) / all - first};
    return (DevParts){.range = range, .n = n, .each = 1};
}

void tp_row_parallel(const UnitContext *ctx, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t K,
                     size_t OC, size_t whole_units, int site)
{
    Dev *dev = ctx->dev;
    DevRange range[PARTS];
    if (ctx->tp && ctx->tp->group->rank > 0) bias = NULL; // once
    if (!dev->deterministic) {
        dev->matmul_forward(dev, out, inp, weight, bias, N, K, OC, site);
        return;
    }
    DevParts parts = cut_segments(range, &K, 1, parts_of(whole_units, group_size(ctx)));
    dev->matmul_parts_forward(dev, out, inp, weight, bias, N, K, OC, parts, site);
}

void tp_column_backward_input(const UnitContext *ctx, X *dinp, const X *dout, const X *weight, size_t N, size_t C,
                              const size_t *width, size_t n, size_t whole_units, int site)
{
    Dev *dev = ctx->dev;
    DevRange range[PARTS * MAX_SEGMENTS];
    size_t OC = 0;
    for (size_t i = 0; i < n; i++) OC += width[i];
    if (!dev->deterministic) {
        dev->matmul_backward_input(dev, dinp, dout, weight, N, C, OC, site);
        return;
    }
    DevParts parts = cut_segments(range, width, n, parts_of(whole_units, group_size(ctx)));
    dev->matmul_parts_backward_input(dev, dinp, dout, weight, N, C, OC, parts, site);
}

void tp_head_backward_input(const UnitContext *ctx, X *dinp, const X *dlogits, const X *weight, size_t N, int site)
{
    Dev *dev = ctx->dev;
    DevRange range[PARTS];
    size_t C = ctx->shape->channels, V = ctx->shape->vocab;
    if (!dev->deterministic) dev->matmul_backward_input(dev, dinp, dlogits, weight, N, C, V, site);
    else dev->matmul_parts_backward_input(dev, dinp, dlogits, weight, N, C, V, cut_vocab(ctx, range), site);
}

static void reduce_rows(const UnitContext *ctx, float *x, size_t n, CommOp op)
{
    if (!ctx->tp) return;
    CommRequest request = comm_all_reduce(ctx->tp->group, x, x, n, COMM_FP32, op);
    comm_wait(ctx->tp->group, &request);
}

void tp_xent(const UnitContext *ctx, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t rows,
             float scale)
{
    Dev *dev = ctx->dev;
    size_t V = ctx->shape->vocab;
    if (!ctx->tp && !dev->deterministic) {
        dev->softmax_xent(dev, loss, dlogits, logits, target, rows, V, scale);
        return;
    }
    DevRange range[PARTS];
    float *top = (float *)ctx->scratch[SCRATCH_LOSS], *total = top + rows, *hit = total + rows;
    dev->xent_max(dev, top, logits, rows, V);
    reduce_rows(ctx, top, rows, COMM_MAX);
    dev->xent_sum(dev, total, hit, logits, target, top, rows, V, cut_vocab(ctx, range));
    reduce_rows(ctx, total, rows, COMM_SUM);
    reduce_rows(ctx, hit, rows, COMM_SUM); // one rank has it
    dev->xent_loss(dev, loss, dlogits, logits, target, top, total, hit, rows, V, scale);
}

// ---- gradients of rows that ranks share

// dev->norm_backward in n parts of the rows, whose gradients of weight and bias are added in a tree.
static void norm_parts(const UnitContext *ctx, float *dw, float *db, X *dinp, const X *dout, const X *dresid,
                       const X *inp, const float *mean, const float *rstd, const X *weight, size_t rows, size_t n)
{
    Dev *dev = ctx->dev;
    size_t C = ctx->shape->channels, level = 0;
    if (!dev->deterministic || n == 1) {
        dev->norm_backward(dev, dinp, dw, db, dout, dresid, inp, mean, rstd, weight, rows, C, ctx->shape->norm);
        return;
    }
    float *spare = (float *)ctx->scratch[SCRATCH_NORM_PARTS], *leaf = spare + 2 * C * MAX_LEVELS; // all zero
    for (size_t p = 0; p < n; p++) {
        size_t r0 = rows * p / n, at = r0 * C * dev->x_bytes;
        const X *dy = (const X *)((const char *)dout + at), *x = (const X *)((const char *)inp + at);
        dev->norm_backward(dev, (X *)((char *)dinp + at), leaf, db ? leaf + C : NULL, dy,
                           dresid ? (const X *)((const char *)dresid + at) : NULL, x, mean + r0,
                           rstd + r0, weight, rows * (p + 1) / n - r0, C, ctx->shape->norm);
        float *from = leaf;
        for (level = 0;; level++) { // as a binary counter counts: parts 2^level together
            float *to = spare + 2 * C * level;
            dev->accumulate(dev, to, from, 2 * C);
            if (!(p >> level & 1)) break;
            from = to;
        }
    }
    float *sum = spare + 2 * C * level; // n is a power of two: all of them
    dev->accumulate(dev, dw, sum, C);
    if (db) dev->accumulate(dev, db, sum + C, C);
}

// The rows of all ranks that share them, in `to`; or where they are, when they are all.
static const void *all_rows(const UnitContext *ctx, void *to, const void *own, size_t rows, size_t n_bytes)
{
    if (sharers(ctx) == 1) return own;
    Comm *group = ctx->tp->group;
    size_t counts[group->size];
    for (int r = 0; r < group->size; r++) counts[r] = rows * n_bytes;
    CommRequest request = comm_all_gather(group, to, own, counts, COMM_BYTE);
    comm_wait(group, &request);
    return to;
}

// A sequence that is cut over ranks: rank 0 sums over all its rows (cp_keep_order).
static void norm_ordered(const UnitContext *ctx, float *dw, float *db, X *dinp, const X *dout, const X *dresid,
                         const X *inp, const float *mean, const float *rstd, const X *weight, size_t rows)
{
    Cp *cp = ctx->cp;
    size_t C = ctx->shape->channels, x = C * ctx->dev->x_bytes, N = rows * sharers(ctx), T = N * (size_t)cp->size;
    const void *own[] = {dout, inp, mean, rstd};
    void *whole[] = {cp->whole[0], cp->whole[1], cp->stat[0], cp->stat[1]};
    bool all = false;
    for (int i = 0; i < 4; i++) {
        size_t n_bytes = i < 2 ? x : sizeof(float);
        all = cp_collect(cp, whole[i], all_rows(ctx, cp->whole[2], own[i], rows, n_bytes), N, n_bytes, n_bytes);
    }
    ctx->dev->norm_backward(ctx->dev, dinp, cp->unused, db ? cp->unused + C : NULL, dout, dresid, inp, mean, rstd,
                            weight, rows, C, ctx->shape->norm);
    if (!all || (sharers(ctx) > 1 && ctx->shape->cut.rank)) return;
    norm_parts(ctx, dw, db, cp->whole[2], cp->whole[0], NULL, cp->whole[1], cp->stat[0], cp->stat[1], weight, T,
               parts_of(T, 1));
}

void tp_norm_backward(const UnitContext *ctx, const Unit *unit, UnitRole w_role, UnitRole b_role, X *dinp,
                      const X *dout, const X *dresid, const X *inp, const float *mean, const float *rstd, size_t rows)
{
    float *dw = unit_grad(ctx, unit, w_role), *db = unit_grad(ctx, unit, b_role);
    const X *weight = unit_weight(ctx, unit, w_role);
    if (cp_ordered(ctx)) norm_ordered(ctx, dw, db, dinp, dout, dresid, inp, mean, rstd, weight, rows);
    else
        norm_parts(ctx, dw, db, dinp, dout, dresid, inp, mean, rstd, weight, rows,
                   parts_of(rows * sharers(ctx), sharers(ctx)));
}

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

float *tp_stage(const UnitContext *ctx, int i)
{
    const Params *params = ctx->params;
    if (!ctx->tp || !is_staged(params, i)) return NULL;
    size_t at = 0;
    for (int j = i - 1; j >= 0 && params->row[j].unit == params->row[i].unit; j--)
        if (is_staged(params, j)) at += params->row[j].n_elems;
    return ctx->tp->stage + at;
}

void tp_finish_grads(const UnitContext *ctx, const Unit *unit)
{
    if (!ctx->tp) return;
    const Params *params = ctx->params;
    for (int i = 0, next; i < params->n_rows; i = next) { // a run of rows that wait together for the same ranks
        const Param *row = &params->row[i];
        size_t n = row->n_elems;
        next = i + 1;
        if (row->unit != unit->index || row->sum == PARAM_COMPLETE) continue;
        for (; next < params->n_rows && row->unit == params->row[next].unit; next++) {
            if (!is_staged(params, next)) continue;
            if (params->row[next].sum != row->sum) break;
            n += params->row[next].n_elems;
        }
        float *stage = tp_stage(ctx, i);
        Comm *over = row->sum == PARAM_SUM_ALL ? ctx->tp->group : ctx->tp->neighbours;
        CommRequest request = comm_all_reduce(over, stage, stage, n, COMM_FP32, COMM_SUM);
        comm_wait(over, &request);
    }
    for (int i = 0; i < params->n_rows; i++) {
        const Param *row = &params->row[i];
        if (row->unit != unit->index || !is_staged(params, i)) continue;
        float *grad = ctx->grad[row->unit] + (row->offset - ctx->begin[row->unit]);
        ctx->dev->accumulate(ctx->dev, grad, tp_stage(ctx, i), row->n_elems);
    }
}

// ---- around the model

void tp_gather_logits(const Tp *tp, const ModelShape *s, float *row)
{
    int size = s->cut.size;
    size_t counts[size];
    for (int r = 0; r < size; r++) counts[r] = tp_first(s->cut.vocab, r + 1, size) - tp_first(s->cut.vocab, r, size);
    float *own = row + tp_first(s->cut.vocab, s->cut.rank, size);
    CommRequest request = comm_all_gather(comm_host(tp->group), row, own, counts, COMM_FP32);
    comm_wait(comm_host(tp->group), &request);
}
