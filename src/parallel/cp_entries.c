// cp_entries: the entries of the network's table (linear.h) that context parallelism changes. See cp.h.
//
// Attention goes around the ring (cp.c); masks and experts see the positions of the whole sequence. In deterministic
// mode (cp_keep_order) rank 0 computes every sum over tokens, the gradients of weights, from the rows of all ranks.
// The invariant: a collected row goes to its position in the sequence, whatever the order of arrival.
#include "parallel/parts.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_ROWS = 2 };

// ---- entries of the table

static Cp *cp_of(const UnitContext *ctx)
{
    return ((const Parts *)ctx->linear->parts)->cp;
}

// The table without cp: the local entries.
static const Linear *alone(const UnitContext *ctx)
{
    return &((const Parts *)ctx->linear->parts)->under_cp;
}

// Sampling: every rank has the whole sequence, in its cache.
static void attention_forward(const UnitContext *ctx, X *out, float *lse, const X *q, const X *k, const X *v,
                              AttnShape s)
{
    if (ctx->cache) alone(ctx)->attention_forward(ctx, out, lse, q, k, v, s);
    else cp_forward(cp_of(ctx), out, lse, q, k, v, s);
}

static void attention_backward(const UnitContext *ctx, X *dq, X *dk, X *dv, const X *dout, const X *out,
                               const float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    cp_backward(cp_of(ctx), dq, dk, dv, dout, out, lse, q, k, v, s);
}

// The mask of a row is that of its position in the whole sequence.
static Dropout dropout(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site)
{
    Cp *cp = cp_of(ctx);
    size_t C = ctx->shape->channels, T = batch->T * (size_t)cp->size;
    Dropout drop = unit_dropout(unit, batch, site, T * C);
    if (drop.p > 0) drop.row = cp_rows(cp, T), drop.width = C;
    return drop;
}

// ---- experts: what couples the tokens of a sequence

// Slots of whole sequences (B, T, k) on the host, from this rank's; 4 bytes each.
static void gather_slots(const UnitContext *ctx, char *whole, const void *own, const Batch *batch)
{
    Cp *cp = cp_of(ctx);
    size_t each = ctx->shape->experts.k * 4, n_bytes = batch->N * each, n = (size_t)cp->size, counts[n];
    char *mine = malloc(n_bytes * (n + 1)), *all = mine + n_bytes;
    if (!mine) die("cp: no memory for the experts of %zu tokens", batch->N * n);
    ctx->dev->to_host(ctx->dev, mine, own, n_bytes);
    for (size_t r = 0; r < n; r++) counts[r] = n_bytes;
    CommRequest request = comm_all_gather(comm_host(cp->comm), all, mine, counts, COMM_BYTE);
    comm_wait(comm_host(cp->comm), &request);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < batch->N; i++) {
            size_t at = cp_position(cp->set.assign, batch->T * n, (int)r, cp->size, i % batch->T);
            memcpy(whole + (i / batch->T * batch->T * n + at) * each, all + r * n_bytes + i * each, each);
        }
    free(mine);
}

static void slots_whole(const UnitContext *ctx, int32_t *choice, float *gate, const int32_t *own_choice,
                        const float *own_gate, const Batch *batch)
{
    size_t n_bytes = batch->N * (size_t)cp_of(ctx)->size * ctx->shape->experts.k * 4;
    char *whole = malloc(n_bytes);
    if (!whole) die("cp: no memory for %zu bytes of experts' slots", n_bytes);
    gather_slots(ctx, whole, own_choice, batch);
    ctx->dev->to_device(ctx->dev, choice, whole, n_bytes);
    gather_slots(ctx, whole, own_gate, batch);
    ctx->dev->to_device(ctx->dev, gate, whole, n_bytes);
    free(whole);
}

static void slots_own(const UnitContext *ctx, int32_t *own_row, const int32_t *row, const Batch *batch)
{
    Cp *cp = cp_of(ctx);
    size_t k = ctx->shape->experts.k, R = batch->N * k, n = (size_t)cp->size;
    int32_t *own = malloc(R * (n + 1) * sizeof *own), *whole = own + R;
    if (!own) die("cp: no memory for the experts of %zu tokens", batch->N * n);
    ctx->dev->to_host(ctx->dev, whole, row, R * n * sizeof *whole);
    for (size_t i = 0; i < batch->N; i++) {
        size_t at = cp_position(cp->set.assign, batch->T * n, cp->rank, cp->size, i % batch->T);
        memcpy(own + i * k, whole + (i / batch->T * batch->T * n + at) * k, k * sizeof *own);
    }
    ctx->dev->to_device(ctx->dev, own_row, own, R * sizeof *own);
    free(own);
}

// ---- room for rows of a whole sequence

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Widest row of activations, and floats of statistics of a row.
static size_t widest(const ModelShape *s)
{
    size_t qkv = (s->heads + 2 * s->kv_heads) * s->head_size;
    return largest(largest(s->channels, qkv), s->ffn * (s->swiglu ? 2 : 1));
}

static size_t unused_floats(const ModelShape *s)
{
    return largest(2 * s->channels, s->qk_norm == QK_NORM_WHOLE ? s->heads * s->head_size : s->head_size);
}

static size_t whole_bytes(size_t x_bytes, size_t T, const ModelShape *s)
{
    return (T * widest(s) * x_bytes + 63) / 64 * 64;
}

static size_t stat_floats(size_t T, const ModelShape *s)
{
    return (T * s->heads + 15) / 16 * 16;
}

void cp_keep_order(Cp *cp, const ModelShape *s)
{
    size_t n_bytes = whole_bytes(cp->dev->x_bytes, cp->T, s), n_stat = stat_floats(cp->T, s);
    check(cp->set.blocks && cp->dev->deterministic && !cp->ordered);
    cp->ordered = true;
    char *whole = mem_alloc(cp->mem, MEM_COMM, 3 * n_bytes, "rows of a whole sequence");
    float *stat = mem_alloc(cp->mem, MEM_COMM, (2 * n_stat + unused_floats(s)) * sizeof *stat, "statistics of rows");
    if (!whole || !stat) return; // an allocator that only counts
    for (int i = 0; i < 3; i++) cp->whole[i] = (X *)(whole + (size_t)i * n_bytes);
    for (int i = 0; i < 2; i++) cp->stat[i] = stat + (size_t)i * n_stat;
    cp->unused = stat + 2 * n_stat;
}

// ---- rows to rank 0

// Copies rows of n_bytes, `stride` bytes apart, to rows without gaps. With gaps the elements are of type X.
static void close_up(const Cp *cp, void *to, const void *from, size_t rows, size_t n_bytes, size_t stride)
{
    size_t x = cp->dev->x_bytes;
    if (stride == n_bytes) cp->dev->to_device(cp->dev, to, from, rows * n_bytes);
    else cp->dev->copy(cp->dev, (X *)to, (const X *)from, rows, n_bytes / x, n_bytes / x, stride / x);
}

static void send_bytes(const Cp *cp, const void *from, size_t n)
{
    CommRequest request = comm_send(cp->comm, from, n, COMM_BYTE, 0, TAG_ROWS);
    comm_wait(cp->comm, &request);
}

static void receive_bytes(const Cp *cp, void *to, size_t n, int owner)
{
    CommRequest request = comm_recv(cp->comm, to, n, COMM_BYTE, owner, TAG_ROWS);
    comm_wait(cp->comm, &request);
}

bool cp_collect(Cp *cp, void *to, const void *rows, size_t N, size_t n_bytes, size_t stride)
{
    size_t half = N / 2 * n_bytes;
    if (cp->rank > 0) {
        if (stride != n_bytes) close_up(cp, cp->whole[2], rows, N, n_bytes, stride);
        const char *from = stride != n_bytes ? (const char *)cp->whole[2] : rows;
        for (size_t k = 0; k < 2; k++) send_bytes(cp, from + k * half, half);
        return false;
    }
    for (int r = 0; r < cp->size; r++)
        for (int k = 0; k < 2; k++) {
            char *place = (char *)to + cp_chunk(cp->set.assign, r, cp->size, k) * half;
            if (r) receive_bytes(cp, place, half, r);
            else close_up(cp, place, (const char *)rows + (size_t)k * (N / 2) * stride, N / 2, n_bytes, stride);
        }
    return true;
}

// Rows without gaps, `width` of X or of 4 bytes each.
static bool collect_x(Cp *cp, X *to, const X *rows, size_t N, size_t width)
{
    return cp_collect(cp, to, rows, N, width * cp->dev->x_bytes, width * cp->dev->x_bytes);
}

static bool collect_4(Cp *cp, void *to, const void *rows, size_t N, size_t width)
{
    return cp_collect(cp, to, rows, N, 4 * width, 4 * width);
}

// ---- the head, a few rows at a time

size_t cp_head_rows(const Cp *cp, size_t n0, size_t N, size_t chunk)
{
    size_t end = cp->ordered && n0 < N / 2 ? N / 2 : N;
    return end - n0 < chunk ? end - n0 : chunk;
}

// On rank 0, between its own two chunks: the rows of all other ranks, which lie between them.
static void head_of_others(const Cp *cp, float *dweight, X *dlogits, size_t chunk, size_t N, size_t C, size_t V,
                           int site)
{
    Dev *dev = cp->dev;
    for (size_t k = 1; k + 1 < 2 * (size_t)cp->size; k++) {
        size_t own;
        int owner = cp_rank(CP_ZIGZAG, 2 * (size_t)cp->size, cp->size, k, &own); // of single tokens: of chunks
        for (size_t i = 0, rows; i < N / 2; i += rows) {
            rows = cp_head_rows(cp, i, N, chunk);
            receive_bytes(cp, dlogits, rows * V * dev->x_bytes, owner);
            receive_bytes(cp, cp->whole[1], rows * C * dev->x_bytes, owner);
            dev->matmul_backward_weight(dev, dweight, NULL, dlogits, cp->whole[1], rows, C, V, site);
        }
    }
}

void cp_head_backward_weight(const Cp *cp, float *dweight, X *dlogits, const X *inp, size_t n0, size_t n, size_t chunk,
                             size_t N, size_t C, size_t V, int site)
{
    Dev *dev = cp->dev;
    if (cp->ordered && cp->rank > 0) {
        send_bytes(cp, dlogits, n * V * dev->x_bytes);
        send_bytes(cp, inp, n * C * dev->x_bytes);
        return;
    }
    dev->matmul_backward_weight(dev, dweight, NULL, dlogits, inp, n, C, V, site);
    if (cp->ordered && n0 + n == N / 2) head_of_others(cp, dweight, dlogits, chunk, N, C, V, site);
}

double cp_sum_losses(Cp *cp, const float *loss, size_t B, size_t N)
{
    double sum = 0;
    size_t T = N * (size_t)cp->size;
    float *all = malloc(T * sizeof *all);
    if (!all) die("cp: no memory for %zu losses", T);
    for (size_t b = 0; b < B; b++) {
        if (!collect_4(cp, cp->stat[0], loss + b * N, N, 1)) continue;
        cp->dev->to_host(cp->dev, all, cp->stat[0], T * sizeof *all);
        for (size_t t = 0; t < T; t++) sum += all[t];
    }
    free(all);
    return sum;
}

// ---- gradients that rank 0 adds, in the order of the sequence

static void backward_weight(const UnitContext *ctx, const LinearMatrix *m, const X *dout, const X *inp, size_t N)
{
    Cp *cp = cp_of(ctx);
    collect_x(cp, cp->whole[0], dout, N, m->is.out);
    if (!collect_x(cp, cp->whole[1], inp, N, m->is.in)) return;
    alone(ctx)->backward_weight(ctx, m, cp->whole[0], cp->whole[1], N * (size_t)cp->size);
}

static void embed_backward(const UnitContext *ctx, float *dwte, float *dwpe, const X *dout, const Batch *batch)
{
    Cp *cp = cp_of(ctx);
    size_t N = batch->N;
    collect_x(cp, cp->whole[0], dout, N, ctx->shape->channels);
    collect_4(cp, cp->stat[0], batch->token, N, 1);
    if (!collect_4(cp, cp->stat[1], batch->pos, N, 1)) return;
    Batch whole = *batch;
    whole.N *= (size_t)cp->size;
    whole.token = (const int32_t *)cp->stat[0], whole.pos = (const int32_t *)cp->stat[1];
    alone(ctx)->embed_backward(ctx, dwte, dwpe, cp->whole[0], &whole);
}

static void head_norm_backward(const UnitContext *ctx, const LinearNorm *norm, X *dinp, const X *inp,
                               const float *rstd, size_t N, size_t heads, size_t D, size_t ld)
{
    Cp *cp = cp_of(ctx);
    Dev *dev = ctx->dev;
    size_t n_bytes = heads * D * dev->x_bytes, stride = ld * dev->x_bytes;
    cp_collect(cp, cp->whole[0], dinp, N, n_bytes, stride);
    cp_collect(cp, cp->whole[1], inp, N, n_bytes, stride);
    bool all = collect_4(cp, cp->stat[0], rstd, N, heads);
    LinearNorm own = *norm;
    own.dweight = cp->unused;
    alone(ctx)->head_norm_backward(ctx, &own, dinp, inp, rstd, N, heads, D, ld);
    if (all)
        alone(ctx)->head_norm_backward(ctx, norm, cp->whole[0], cp->whole[1], cp->stat[0], N * (size_t)cp->size, heads,
                                       D, heads * D);
}

// `rows`: of the stream, which other ranks of a tensor-parallel group may share. Rank 0 sums over all of the sequence.
static void norm_backward(const UnitContext *ctx, const LinearNorm *norm, X *dinp, X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, size_t rows)
{
    Cp *cp = cp_of(ctx);
    const ModelCut *cut = &ctx->shape->cut;
    size_t C = ctx->shape->channels, shared = unit_sharers(ctx->shape), N = rows * shared;
    size_t T = N * (size_t)cp->size;
    const void *own[] = {dout, inp, mean, rstd};
    void *whole[] = {cp->whole[0], cp->whole[1], cp->stat[0], cp->stat[1]};
    bool all = false;
    for (int i = 0; i < 4; i++) {
        size_t n_bytes = i < 2 ? C * ctx->dev->x_bytes : sizeof(float);
        all = cp_collect(cp, whole[i], ctx->linear->gather_bytes(ctx, cp->whole[2], own[i], rows, n_bytes), N, n_bytes,
                         n_bytes);
    }
    LinearNorm unused = *norm;
    unused.dweight = cp->unused, unused.dbias = norm->dbias ? cp->unused + C : NULL;
    linear_norm_parts(ctx, &unused, dinp, dout, dresid, inp, mean, rstd, rows, 1);
    if (!all || (shared > 1 && cut->rank)) return;
    linear_norm_parts(ctx, norm, cp->whole[2], cp->whole[0], NULL, cp->whole[1], cp->stat[0], cp->stat[1], T,
                      linear_parts(T, 1));
}

static bool rows_whole(const UnitContext *ctx, void *to, const void *rows, size_t N, size_t n_bytes)
{
    return cp_collect(cp_of(ctx), to, rows, N, n_bytes, n_bytes);
}

static size_t head_rows(const UnitContext *ctx, size_t n0, size_t N, size_t chunk)
{
    return cp_head_rows(cp_of(ctx), n0, N, chunk);
}

static void head_backward_weight(const UnitContext *ctx, const LinearMatrix *m, X *dlogits, const X *inp, size_t n0,
                                 size_t n, size_t chunk, size_t N)
{
    cp_head_backward_weight(cp_of(ctx), m->dweight, dlogits, inp, n0, n, chunk, N, m->is.in, m->is.out, m->site);
}

static double sum_losses(const UnitContext *ctx, const float *loss, size_t B, size_t T)
{
    return cp_sum_losses(cp_of(ctx), loss, B, T);
}

void cp_fill(Parts *parts, Linear *linear)
{
    parts->under_cp = *linear;
    linear->attention_forward = attention_forward;
    linear->attention_backward = attention_backward;
    linear->dropout = dropout;
    linear->slots_whole = slots_whole;
    linear->slots_own = slots_own;
    if (!parts->cp->ordered) return;
    linear->rows_whole = rows_whole;
    linear->backward_weight = backward_weight;
    linear->embed_backward = embed_backward;
    linear->head_norm_backward = head_norm_backward;
    linear->norm_backward = norm_backward;
    linear->head_rows = head_rows;
    linear->head_backward_weight = head_backward_weight;
    linear->sum_losses = sum_losses;
}
