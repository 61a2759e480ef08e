// cp_grads: what a unit of the network asks of context parallelism beside attention: where its rows stand, and
// gradients of weights that have the bits of one rank.
//
// A gradient of a weight is a sum over tokens, and each rank has tokens of its own. Usually each adds what it has, and
// the ranks' gradients are added with those of the replicas: another order than one rank's, so other bits.
//
// A deterministic device must not show how a sequence was cut. Then (cp_keep_order) rank 0 collects the factors of
// every such sum, row by row from where they are, and adds in one rank's order by one rank's calls:
//
//   dweight += dout^T inp     rows of dout (T, OC) and inp (T, C)
//   head                      the same, a few rows at a time, since all of dout would be (T, V)
//   norms, QK-norm            rows of dout and inp, mean, 1 / std
//   embedding                 rows of dout, tokens, positions
//   losses                    one number a token
//
// The others add nothing, so whoever adds gradients of ranks up needs to know of nothing.
//
// The invariant: a row goes to the place where it stands in the sequence (cp_collect), never behind the one that came
// before it.
//
// The price is one rank's time for these products, room for a whole sequence's rows, and activations on the wire. It
// is a mode for comparing runs. Rejected: a tree over blocks of tokens, as attention has it (attention.c). Each
// rank could do its part; but one rank alone would then hold partial gradients of its largest matrix, one for every
// level, and norms under sequence parallelism (tp.h), whose rows are dealt out otherwise, would need another tree.
// Rejected too: longer sums that are rounded once, which give the same bits nearly always, and so hide what is left.
#include "parallel/cp.h"

#include "base/check.h"

#include <stdlib.h>

#include <string.h>

enum { MAX_BLOCKS = 16, TAG_ROWS = 2 };

// ---- where rows stand

int cp_blocks(size_t T)
{
    int n = 1;
    while (n < MAX_BLOCKS && T % (2 * (size_t)n) == 0) n *= 2;
    return n > 1 ? n : 0;
}

const int32_t *cp_rows(Cp *cp, size_t T)
{
    size_t rows = T / (size_t)cp->size;
    check(cp->size > 1 && T <= cp->T && cp->B * T <= INT32_MAX);
    if (cp->row_T == T) return cp->row;
    int32_t *row = malloc(cp->B * rows * sizeof *row);
    if (!row) die("cp: no memory for the places of %zu rows", cp->B * rows);
    for (size_t b = 0; b < cp->B; b++)
        for (size_t i = 0; i < rows; i++)
            row[b * rows + i] = (int32_t)(b * T + cp_position(cp->set.assign, T, cp->rank, cp->size, i));
    cp->dev->to_device(cp->dev, cp->row, row, cp->B * rows * sizeof *row);
    free(row);
    cp->row_T = T;
    return cp->row;
}

// ---- room

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
    return largest(2 * s->channels, s->head_size);
}

static size_t whole_bytes(size_t x_bytes, size_t T, const ModelShape *s)
{
    return (T * widest(s) * x_bytes + 63) / 64 * 64;
}

static size_t stat_floats(size_t T, const ModelShape *s)
{
    return (T * s->heads + 15) / 16 * 16;
}

size_t cp_order_memory(int size, size_t x_bytes, size_t T, const ModelShape *s)
{
    if (size == 1) return 0;
    return 3 * whole_bytes(x_bytes, T, s) + (2 * stat_floats(T, s) + unused_floats(s)) * sizeof(float);
}

void cp_keep_order(Cp *cp, const ModelShape *s)
{
    size_t n_bytes = whole_bytes(cp->dev->x_bytes, cp->T, s), n_stat = stat_floats(cp->T, s);
    check(cp->set.blocks && cp->dev->deterministic && !cp->ordered);
    if (cp->size == 1) return;
    cp->ordered = true;
    char *whole = mem_alloc(cp->mem, MEM_COMM, 3 * n_bytes, "rows of a whole sequence");
    float *stat = mem_alloc(cp->mem, MEM_COMM, (2 * n_stat + unused_floats(s)) * sizeof *stat, "statistics of rows");
    if (!whole || !stat) return; // a door that only counts
    for (int i = 0; i < 3; i++) cp->whole[i] = (X *)(whole + (size_t)i * n_bytes);
    for (int i = 0; i < 2; i++) cp->stat[i] = stat + (size_t)i * n_stat;
    cp->unused = stat + 2 * n_stat;
}

bool cp_ordered(const UnitContext *ctx)
{
    return ctx->cp && ctx->cp->ordered;
}

// ---- rows to rank 0

static void copy_rows(Dev *dev, void *to, const void *from, size_t rows, size_t n_bytes, size_t stride)
{
    for (size_t r = 0; r < rows; r++)
        dev->to_device(dev, (char *)to + r * n_bytes, (const char *)from + r * stride, n_bytes);
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
        if (stride != n_bytes) copy_rows(cp->dev, cp->whole[2], rows, N, n_bytes, stride);
        const char *from = stride != n_bytes ? (const char *)cp->whole[2] : rows;
        for (size_t k = 0; k < 2; k++) send_bytes(cp, from + k * half, half);
        return false;
    }
    for (int r = 0; r < cp->size; r++)
        for (int k = 0; k < 2; k++) {
            char *place = (char *)to + cp_chunk(cp->set.assign, r, cp->size, k) * half;
            if (r) receive_bytes(cp, place, half, r);
            else copy_rows(cp->dev, place, (const char *)rows + (size_t)k * (N / 2) * stride, N / 2, n_bytes, stride);
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

// ---- gradients

void cp_matmul_backward_weight(const UnitContext *ctx, float *dweight, float *dbias, const X *dout, const X *inp,
                               size_t N, size_t C, size_t OC, int site)
{
    Dev *dev = ctx->dev;
    if (!cp_ordered(ctx)) {
        dev->matmul_backward_weight(dev, dweight, dbias, dout, inp, N, C, OC, site);
        return;
    }
    Cp *cp = ctx->cp;
    collect_x(cp, cp->whole[0], dout, N, OC);
    if (!collect_x(cp, cp->whole[1], inp, N, C)) return;
    dev->matmul_backward_weight(dev, dweight, dbias, cp->whole[0], cp->whole[1], N * (size_t)cp->size, C, OC, site);
}

void cp_embed_backward(const UnitContext *ctx, float *dwte, float *dwpe, const X *dout, const int32_t *token,
                       const int32_t *pos, size_t N, size_t C, size_t V)
{
    Dev *dev = ctx->dev;
    if (!cp_ordered(ctx)) {
        dev->embed_backward(dev, dwte, dwpe, dout, token, pos, N, C, V);
        return;
    }
    Cp *cp = ctx->cp;
    collect_x(cp, cp->whole[0], dout, N, C);
    collect_4(cp, cp->stat[0], token, N, 1);
    if (!collect_4(cp, cp->stat[1], pos, N, 1)) return;
    dev->embed_backward(dev, dwte, dwpe, cp->whole[0], (int32_t *)cp->stat[0], (int32_t *)cp->stat[1],
                        N * (size_t)cp->size, C, V);
}

void cp_head_norm_backward(const UnitContext *ctx, X *dinp, float *dweight, const X *inp, const float *rstd,
                           const X *weight, size_t N, size_t heads, size_t D, size_t ld)
{
    Dev *dev = ctx->dev;
    Cp *cp = ctx->cp;
    if (!cp_ordered(ctx)) {
        dev->head_norm_backward(dev, dinp, dweight, dinp, inp, rstd, weight, N, heads, D, ld);
        return;
    }
    size_t n_bytes = heads * D * dev->x_bytes, stride = ld * dev->x_bytes;
    cp_collect(cp, cp->whole[0], dinp, N, n_bytes, stride);
    cp_collect(cp, cp->whole[1], inp, N, n_bytes, stride);
    bool all = collect_4(cp, cp->stat[0], rstd, N, heads);
    dev->head_norm_backward(dev, dinp, cp->unused, dinp, inp, rstd, weight, N, heads, D, ld);
    if (all)
        dev->head_norm_backward(dev, cp->whole[0], dweight, cp->whole[0], cp->whole[1], cp->stat[0], weight,
                                N * (size_t)cp->size, heads, D, heads * D);
}

// ---- the head, a few rows at a time

size_t cp_head_rows(const UnitContext *ctx, size_t n0, size_t N, size_t chunk)
{
    size_t end = cp_ordered(ctx) && n0 < N / 2 ? N / 2 : N;
    return end - n0 < chunk ? end - n0 : chunk;
}

// Rank 0, between its own two stretches: everyone else's, which stand in between.
static void head_of_others(const UnitContext *ctx, float *dweight, X *dlogits, size_t chunk, size_t N, size_t C,
                           size_t V, int site)
{
    Cp *cp = ctx->cp;
    Dev *dev = ctx->dev;
    for (size_t k = 1; k + 1 < 2 * (size_t)cp->size; k++) {
        size_t own;
        int owner = cp_rank(CP_ZIGZAG, 2 * (size_t)cp->size, cp->size, k, &own); // of single tokens: of chunks
        for (size_t i = 0, rows; i < N / 2; i += rows) {
            rows = cp_head_rows(ctx, i, N, chunk);
            receive_bytes(cp, dlogits, rows * V * dev->x_bytes, owner);
            receive_bytes(cp, cp->whole[1], rows * C * dev->x_bytes, owner);
            dev->matmul_backward_weight(dev, dweight, NULL, dlogits, cp->whole[1], rows, C, V, site);
        }
    }
}

void cp_head_backward_weight(const UnitContext *ctx, float *dweight, X *dlogits, const X *inp, size_t n0, size_t n,
                             size_t chunk, size_t N, size_t C, size_t V, int site)
{
    Cp *cp = ctx->cp;
    Dev *dev = ctx->dev;
    if (cp_ordered(ctx) && cp->rank > 0) {
        send_bytes(cp, dlogits, n * V * dev->x_bytes);
        send_bytes(cp, inp, n * C * dev->x_bytes);
        return;
    }
    dev->matmul_backward_weight(dev, dweight, NULL, dlogits, inp, n, C, V, site);
    if (cp_ordered(ctx) && n0 + n == N / 2) head_of_others(ctx, dweight, dlogits, chunk, N, C, V, site);
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
