// recompute: keeps less between forward and backward, and makes the rest again.
//
// Of L blocks, each with its input stream (N, C) and its saved buffers:
//
//   none        every stream and every saved buffer is kept
//   selective   outputs of norms and activation functions are one buffer for all blocks; each block's
//               `restore` fills it again before its backward. Cost: reading and writing, no matmul
//   segments    of S blocks (full: 1; sqrt: ceil(sqrt L); every: given). Kept are the streams at the starts of
//               segments; S sets of saved buffers and S - 1 inner streams serve all segments in turn. Before
//               a segment's backward its blocks run forward again. The last segment has just run: not again
//
// The invariant: what backward reads is what forward wrote, to the bit, because it is made from the same inputs
// by the same calls; dropout masks are functions of (seed, site, step, element) and not of a generator's
// state. So gradients are the same in all modes, and no mode needs a tolerance.
//
// The last block of a segment runs again without its output (forward with out NULL): the next segment's
// start is kept. That saves a block's down-projection, a third of its matmul in GPT's shape, where the textbook
// counts a whole forward.
//
// Compression is orthogonal: units work in one set of full buffers, and what is kept of each block waits as
// 8-bit copies. (It is not bit-identical: see compress.c.)
//
// Rejected: dropping the attention core, the "selective" of Korthikanti et al. (arXiv 2205.05198): the
// T x T matrix that it saves is never stored here. Segments that include embedding and head: the embedding keeps
// nothing, and the head runs back right behind its forward. Choosing buffer by buffer under a memory budget:
// twelve switches nobody can predict.
#include "recompute.h"

#include "check.h"

#include <math.h>
#include <stdlib.h>

// ---- what a policy means

size_t recompute_segment(RecomputePolicy policy, size_t layers)
{
    size_t n = 0;
    if (policy.mode == RECOMPUTE_FULL) n = 1;
    if (policy.mode == RECOMPUTE_EVERY) n = policy.every ? policy.every : 1;
    if (policy.mode == RECOMPUTE_SQRT)
        while (n * n < layers) n++;
    return n < layers ? n : layers;
}

// Groups that share a scale in a row of w elements.
static size_t groups_of(size_t w)
{
    return (w + DEV_GROUP - 1) / DEV_GROUP;
}

size_t recompute_bytes(const ModelShape *s, const Dev *dev, RecomputePolicy policy, size_t B, size_t T)
{
    size_t L = s->layers, C = s->channels, H = s->heads, G = s->kv_heads, D = s->head_size, F = s->ffn;
    size_t N = B * T, x = dev->x_bytes, qkv = (H + 2 * G) * D, segment = recompute_segment(policy, L);
    size_t R = s->cut.rows > 1 ? N / s->cut.rows : N; // rows of the stream
    size_t sets = segment ? segment : L, streams = segment ? (L + segment - 1) / segment + segment : L + 1;
    bool drop = policy.mode == RECOMPUTE_SELECTIVE;
    // widths of a block's saved activations: qkv, attn, resid, pre; then the cheap ones
    size_t width[8] = {qkv, H * D, C, F * (s->swiglu ? 2 : 1), C, C, F, s->qk_norm ? qkv : 0};
    size_t statistics = 4 * N * (H + (s->qk_norm ? H + G : 0)) + 4 * R * 4, kept = 0, shared = 0;
    for (int i = 0; i < 8; i++) {
        bool keep = i < 4 || !drop;
        size_t rows = i == 2 ? R : N; // resid
        if (!keep || policy.compress) shared += rows * x * width[i];
        if (keep) kept += rows * (policy.compress ? width[i] + 4 * groups_of(width[i]) : x * width[i]);
    }
    return sets * (kept + statistics) + shared + streams * R * x * C + N * x * C + R * 8; // + the head's norm
}

double recompute_extra_flops(const ModelShape *s, RecomputePolicy policy, size_t T)
{
    size_t L = s->layers, segment = recompute_segment(policy, L);
    if (!segment) return 0;
    double C = (double)s->channels, D = (double)s->head_size, H = (double)s->heads, G = (double)s->kv_heads;
    double down = 2 * (double)s->ffn * C, attention = 2 * H * D * (double)T;
    double block = 2 * C * D * (2 * H + 2 * G) + down * (s->swiglu ? 3 : 2) + attention;
    size_t segments = (L + segment - 1) / segment, again = (segments - 1) * segment; // blocks: all but the last's
    return (double)again * block - (double)(segments - 1) * down;
}

// ---- buffers

// Of N rows of a micro-batch, how many buffer i of unit u has.
static size_t rows_held(const Activations *acts, int u, int i, size_t N)
{
    return acts->row[u].shared[i] ? N / acts->sharers : N;
}

// The unit whose buffers unit u shares; u itself when they are its own.
static int owner_of(const Activations *acts, int u, bool train)
{
    if (u == 0 || u == acts->n_units - 1) return u;
    if (!train) return 1;
    return acts->segment ? 1 + (u - 1) % (int)acts->segment : u;
}

// A stream that is kept for backward: what segments start from, and the head's input.
static bool keeps_stream(const Activations *acts, int u)
{
    return !acts->segment || u == acts->n_units - 1 || (u - 1) % (int)acts->segment == 0;
}

// The first of the units whose input goes into the same buffer as that of unit u >= 1. Inner streams of a
// segment are shared as the saved buffers are; in inference all are one, since a block may write over its input.
static int stream_owner(const Activations *acts, int u, bool train)
{
    if (!train) return 1;
    return keeps_stream(acts, u) ? u : owner_of(acts, u, train);
}

static bool is_block(const Activations *acts, int u)
{
    return u > 0 && u < acts->n_units - 1;
}

static void allocate_saved(Activations *acts, int u, Mem *mem, bool train)
{
    RecomputePolicy policy = acts->policy;
    const BufferList *row = &acts->row[u];
    int owner = owner_of(acts, u, train);
    for (int i = 0; i < row->n; i++) {
        size_t N = rows_held(acts, u, i, acts->max_rows);
        bool block = train && is_block(acts, u), cheap = row->kind[i] == BUFFER_CHEAP;
        bool dropped = block && cheap && policy.mode == RECOMPUTE_SELECTIVE;
        bool packed = block && policy.compress && row->kind[i] != BUFFER_STAT && !dropped;
        int from = dropped || packed ? 1 : owner; // the first block's serve all
        acts->saved[u][i] = from == u ? mem_alloc(mem, MEM_ACTS, N * row->n_bytes[i], row->name[i])
                                      : acts->saved[from][i];
        if (!packed) continue;
        size_t width = row->n_bytes[i] / acts->x_bytes, n_bytes = N * groups_of(width) * sizeof(float);
        bool own = owner == u;
        acts->scale[u][i] = own ? (float *)mem_alloc(mem, MEM_ACTS, n_bytes, "8-bit scales") : acts->scale[owner][i];
        acts->packed[u][i] = own ? (int8_t *)mem_alloc(mem, MEM_ACTS, N * width, "8-bit copy") : acts->packed[owner][i];
    }
}

Activations recompute_allocate(const Unit *unit, int n_units, const Dev *dev, const ModelShape *shape, Mem *mem,
                               size_t B, size_t T, bool train, RecomputePolicy policy)
{
    size_t n = (size_t)n_units, sharers = shape->cut.rows > 1 ? shape->cut.rows : 1;
    size_t stream_bytes = B * T / sharers * shape->channels * dev->x_bytes;
    Activations acts = {.policy = policy, .unit = unit, .n_units = n_units, .max_rows = B * T, .x_bytes = dev->x_bytes,
                        .stream_row = shape->channels * dev->x_bytes, .sharers = sharers};
    acts.segment = train ? recompute_segment(policy, shape->layers) : 0;
    acts.row = calloc(n, sizeof *acts.row);
    acts.stream = calloc(n, sizeof *acts.stream);
    acts.saved = calloc(n, sizeof *acts.saved);
    acts.packed = calloc(n, sizeof *acts.packed);
    acts.scale = calloc(n, sizeof *acts.scale);
    if (!acts.row || !acts.stream || !acts.saved || !acts.packed || !acts.scale)
        die("model: no memory for %d units", n_units);
    for (int u = 0; u < n_units; u++) {
        int from = u > 0 ? stream_owner(&acts, u, train) : 0;
        if (u > 0)
            acts.stream[u] = from == u ? (X *)mem_alloc(mem, MEM_ACTS, stream_bytes, "stream") : acts.stream[from];
        acts.row[u] = unit[u].kind->saved(dev, shape, 1, 1);
        allocate_saved(&acts, u, mem, train);
    }
    return acts;
}

void recompute_free(Activations *acts)
{
    free(acts->row);
    free(acts->stream);
    free(acts->saved);
    free(acts->packed);
    free(acts->scale);
}

// ---- forward and back

static X *stream_at(const Activations *acts, int u, size_t row)
{
    return u == 0 ? NULL : (X *)((char *)acts->stream[u] + row / acts->sharers * acts->stream_row);
}

// The saved buffers of a unit from a row on.
static void saved_at(const Activations *acts, int u, size_t row, void **saved)
{
    for (int i = 0; i < acts->row[u].n; i++)
        saved[i] = (char *)acts->saved[u][i] + rows_held(acts, u, i, row) * acts->row[u].n_bytes[i];
}

// N rows between the full buffers and their 8-bit copies.
static void convert(const Activations *acts, Dev *dev, int u, size_t row, size_t N, void *const *saved, bool pack)
{
    for (int i = 0; i < acts->row[u].n; i++) {
        if (!acts->packed[u][i]) continue;
        size_t width = acts->row[u].n_bytes[i] / acts->x_bytes, first = rows_held(acts, u, i, row);
        size_t n = rows_held(acts, u, i, N);
        int8_t *q = acts->packed[u][i] + first * width;
        float *scale = acts->scale[u][i] + first * groups_of(width);
        if (pack) dev->compress(dev, q, scale, (const X *)saved[i], n, width);
        else dev->decompress(dev, (X *)saved[i], q, scale, n, width);
    }
}

static void run_unit(const Activations *acts, const UnitContext *ctx, int u, UnitPass pass, bool wants_out, size_t row,
                     const Batch *batch)
{
    void *saved[UNIT_MAX_SAVED];
    saved_at(acts, u, row, saved);
    X *out = wants_out ? stream_at(acts, u + 1, row) : NULL;
    unit_before(ctx, &acts->unit[u], pass);
    acts->unit[u].kind->forward(ctx, &acts->unit[u], out, stream_at(acts, u, row), saved, batch);
    unit_after(ctx, &acts->unit[u], pass);
    if (batch->train) convert(acts, ctx->dev, u, row, batch->N, saved, true);
}

void recompute_forward(Activations *acts, const UnitContext *ctx, const Batch *batch)
{
    for (int u = 0; u < acts->n_units; u++)
        run_unit(acts, ctx, u, PASS_FORWARD, u + 1 < acts->n_units, 0, batch);
}

// The segment that ends with block u runs again, if there is one and its buffers have been used since.
static void run_segment(const Activations *acts, const UnitContext *ctx, int u, size_t row, const Batch *batch)
{
    int segment = (int)acts->segment, layers = acts->n_units - 2;
    if (!segment || u == 0 || u >= layers || u % segment) return;
    for (int v = u - segment + 1; v <= u; v++) run_unit(acts, ctx, v, PASS_AGAIN, v < u, row, batch);
}

void recompute_backward(Activations *acts, const UnitContext *ctx, X *dstream, size_t row, const Batch *batch)
{
    bool drop = acts->policy.mode == RECOMPUTE_SELECTIVE;
    for (int u = acts->n_units - 1; u >= 0; u--) {
        const Unit *unit = &acts->unit[u];
        const X *inp = stream_at(acts, u, row);
        void *saved[UNIT_MAX_SAVED];
        saved_at(acts, u, row, saved);
        run_segment(acts, ctx, u, row, batch);
        convert(acts, ctx->dev, u, row, batch->N, saved, false);
        unit_before(ctx, unit, PASS_BACKWARD);
        // the last block's are still there, exact ones: not what the 8-bit copies say
        if (drop && is_block(acts, u) && (u < acts->n_units - 2 || acts->policy.compress))
            unit->kind->restore(ctx, unit, inp, saved, batch);
        unit->kind->backward(ctx, unit, dstream, inp, saved, batch);
        unit_after(ctx, unit, PASS_BACKWARD);
    }
}
