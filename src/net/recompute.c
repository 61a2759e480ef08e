// recompute: keeps fewer activations between forward and backward, and recomputes the rest.
//
// For L blocks, each with its input stream (N, C) and its saved buffers:
//
//   none        every stream and every saved buffer is kept
//   selective   outputs of norms and activation functions are one buffer for all blocks; each block's
//               `restore` fills it again before its backward. Cost: reading and writing, no matmul
//   attention   the same of q, k, v and the output of attention, which `restore` recomputes from the block's input.
//               Cost: the product that makes q, k, v, and attention forward
//   segments    of S blocks (full: 1; sqrt: ceil(sqrt L); every: given). The streams at the starts of segments are
//               kept; S sets of saved buffers and S - 1 inner streams serve all segments in turn. Before a segment's
//               backward its blocks run forward again, except for the last segment, whose forward has just run
//
// The invariant: backward reads exactly the bits that forward wrote, because they are computed from the same inputs by
// the same calls; dropout masks are functions of (seed, site, step, element), not of a generator's state. So gradients
// are the same in all modes, and no mode needs a tolerance.
//
// Rejected: recomputing the attention core alone, the "selective" of Korthikanti et al. (arXiv 2205.05198): the T x T
// matrix that it saves is never stored here, and what is left, the output, is a third of what q, k and v are. Segments
// that include embedding and head: the embedding keeps nothing, and the head's backward runs right after its forward. A
// choice for each buffer under a memory budget: twelve switches whose combinations are hard to predict.
#include "net/model.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>

// ---- bytes and operations of a policy

const char *recompute_name(RecomputeMode mode)
{
    static const char *const name[] = {"none", "selective", "attention", "sqrt", "every", "full"};
    check(mode < sizeof name / sizeof *name);
    return name[mode];
}

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

// Whether a block's buffer is recomputed, so that blocks share it; and whether an 8-bit copy is kept of it, so that
// they share the full one.
static bool is_dropped(BufferKind kind, RecomputePolicy policy)
{
    return (kind == BUFFER_CHEAP && recompute_restores(policy.mode)) ||
        (kind == BUFFER_ATTENTION && policy.mode == RECOMPUTE_ATTENTION);
}

// Whether a copy of it in host memory waits for backward, so that blocks share the buffer. Those of a segment do not
// wait.
static bool is_away(BufferKind kind, RecomputePolicy policy, size_t segment)
{
    return policy.offload && !segment && !is_dropped(kind, policy);
}

static bool is_packed(BufferKind kind, RecomputePolicy policy)
{
    return policy.compress && kind != BUFFER_STAT && !is_dropped(kind, policy);
}

// Bytes that are kept of a block with those buffers; *work: bytes of the one set of buffers that all blocks share;
// *away: of the copies in host memory, or NULL.
static size_t block_bytes(const BufferList *list, const ModelShape *s, const Dev *dev, RecomputePolicy policy,
                          size_t segment, size_t N, size_t *work, size_t *away)
{
    size_t kept = 0, none;
    *work = 0;
    *(away ? away : &none) = 0;
    for (int i = 0; i < list->n; i++) {
        size_t rows = list->shared[i] ? N / unit_sharers(s) : N, width = list->n_bytes[i] / dev->x_bytes;
        bool dropped = is_dropped(list->kind[i], policy), packed = is_packed(list->kind[i], policy);
        bool host = is_away(list->kind[i], policy, segment);
        if (dropped || packed || host) *work += rows * list->n_bytes[i];
        if (host && away) *away += rows * list->n_bytes[i];
        if (!dropped && !host) kept += rows * (packed ? width + 4 * groups_of(width) : list->n_bytes[i]);
    }
    return kept;
}

size_t recompute_slot_bytes(const ModelShape *s, const Dev *dev, RecomputePolicy policy, size_t segment, size_t first,
                            size_t layers, bool head, size_t N)
{
    size_t x = dev->x_bytes, R = N / unit_sharers(s), C = s->channels, work, blocks = 0;
    for (size_t l = first; !segment && l < first + layers; l++) {
        BufferList list = unit_kind_of(s, l)->saved(dev, s, 1, 1);
        blocks += block_bytes(&list, s, dev, policy, segment, N, &work, NULL);
    }
    size_t streams = (policy.offload ? first > 0 : segment ? (layers + segment - 1) / segment : layers) + head;
    return blocks + streams * R * x * C + (head ? N * x * C + R * 8 : 0); // the head's norm
}

size_t recompute_pool_bytes(const ModelShape *s, const Dev *dev, RecomputePolicy policy, size_t segment, size_t N)
{
    BufferList widest = unit_widest_saved(dev, s);
    size_t work, block = block_bytes(&widest, s, dev, policy, segment, N, &work, NULL);
    size_t streams = (segment ? segment - 1 : 0) + (policy.offload ? 2 : 0);
    return (segment ? segment * block : 0) + work + streams * (N / unit_sharers(s)) * dev->x_bytes * s->channels;
}

size_t recompute_host_bytes(const ModelShape *s, const Dev *dev, RecomputePolicy policy, size_t segment, size_t first,
                            size_t layers, size_t N)
{
    size_t sum = 0, streams = (segment ? (layers + segment - 1) / segment : layers) - (first > 0);
    for (size_t l = first; policy.offload && l < first + layers; l++) {
        BufferList list = unit_kind_of(s, l)->saved(dev, s, 1, 1);
        size_t work, away;
        block_bytes(&list, s, dev, policy, segment, N, &work, &away);
        sum += away;
    }
    return policy.offload ? sum + streams * (N / unit_sharers(s)) * dev->x_bytes * s->channels : 0;
}

size_t recompute_late_bytes(const ModelShape *s, const Dev *dev, size_t segment, size_t first, size_t layers, size_t N)
{
    size_t sum = 0;
    for (size_t l = first; l < first + layers; l++) {
        const UnitKind *kind = unit_kind_of(s, l);
        BufferList grads = linear_later(kind, dev, s, N), list = kind->saved(dev, s, 1, 1);
        unsigned reads = linear_later_reads(kind, s);
        for (int i = 0; i < grads.n; i++) sum += grads.n_bytes[i];
        for (int i = 0; segment && i < list.n; i++)
            if (reads >> i & 1) sum += N * list.n_bytes[i];
    }
    return sum;
}

size_t recompute_bytes(const ModelShape *s, const Dev *dev, RecomputePolicy policy, size_t B, size_t T)
{
    size_t L = s->layers, N = B * T, segment = recompute_segment(policy, L);
    return recompute_slot_bytes(s, dev, policy, segment, 0, L, true, N) +
        recompute_pool_bytes(s, dev, policy, segment, N);
}

double recompute_extra_flops(const ModelShape *s, RecomputePolicy policy, size_t T)
{
    size_t L = s->layers, segment = recompute_segment(policy, L);
    double flops = 0, H = (double)s->heads, D = (double)s->head_size, G = (double)s->kv_heads;
    bool attention = policy.mode == RECOMPUTE_ATTENTION;
    for (size_t l = 0; attention && l < L - !policy.compress; l++) // without compression the last block's are unchanged
        flops += 2 * (H + 2 * G) * D * (double)s->channels + 2 * H * D * unit_window_keys(s, l, T);
    if (!segment) return flops;
    size_t segments = (L + segment - 1) / segment, again = (segments - 1) * segment; // blocks: all but the last's
    for (size_t l = 0; l < again; l++) {
        flops += 2 * model_layer_params(s, l) + 2 * H * D * unit_window_keys(s, l, T);
        if ((l + 1) % segment || unit_norms_outputs(s)) continue;
        const ModelExperts *x = &s->experts; // the last block of a segment runs without its output
        flops -= 2 * (double)(unit_has_experts(s, l) ? x->shared + x->k * x->ffn : s->ffn) * (double)s->channels;
    }
    return flops;
}

// ---- buffers
//
// Compression is independent of the mode: units work in one set of full buffers, and the kept activations of each block
// are stored as 8-bit copies. (Gradients are then not bit-identical: see elements.c.)
//
// Offload is independent of the mode too: the same shared set of full buffers, and what is kept of each block (its
// input, and the saved buffers that are not recomputed) waits as a copy in host memory, written after its forward and
// fetched before its backward: torch's save_on_cpu around each block. The head's buffers stay, because its backward
// comes at once; so does the input of a stage's first block, which another rank sends.

static bool is_block(const Activations *acts, int u)
{
    return unit_is_block(acts->unit[u].kind);
}

// A block's number in its list.
static size_t number_of(const Activations *acts, int u)
{
    return (size_t)u - (acts->unit[0].kind == &unit_embedding);
}

// Whether unit u's input is kept for backward: the inputs of segments, and of the head. In inference one stream serves
// all units, since a block may overwrite its input.
static bool keeps_stream(const Activations *acts, int u)
{
    if (!acts->pool->train) return false;
    return !is_block(acts, u) || !acts->segment || number_of(acts, u) % acts->segment == 0;
}

// Which of the pool's sets a block works in; -1: it has buffers of its own.
static int set_of(const Activations *acts, int u)
{
    if (!acts->pool->sets || !is_block(acts, u)) return -1;
    return (int)(number_of(acts, u) % acts->pool->sets);
}

RecomputePool recompute_pool(size_t layers, bool train, RecomputePolicy policy)
{
    RecomputePool pool = {.policy = train ? policy : (RecomputePolicy){0}, .train = train, .fresh = -1};
    pool.segment = train ? recompute_segment(policy, layers) : 0;
    pool.all_kept = train && policy.mode == RECOMPUTE_NONE && !policy.compress && !policy.offload;
    pool.sets = train ? pool.segment : 1;
    size_t n = pool.sets ? pool.sets : 1;
    pool.inner = calloc(n, sizeof *pool.inner);
    pool.saved = calloc(n, sizeof *pool.saved);
    pool.packed = calloc(n, sizeof *pool.packed);
    pool.scale = calloc(n, sizeof *pool.scale);
    if (!pool.inner || !pool.saved || !pool.packed || !pool.scale) die("model: no memory for %zu buffer sets", n);
    return pool;
}

void recompute_pool_free(RecomputePool *pool)
{
    void *own[] = {pool->inner, pool->saved, pool->packed, pool->scale};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
}

// A shared buffer is allocated by its first user. shared NULL: the buffer is not shared.
static void *once(void **shared, Mem *mem, size_t n_bytes, const char *what)
{
    if (shared && *shared) return *shared;
    void *buffer = mem_alloc(mem, MEM_ACTS, n_bytes, what);
    if (shared) *shared = buffer;
    return buffer;
}

// A buffer that blocks share is as large as the largest of them wants it.
static void place_saved(Activations *acts, int u, Mem *mem)
{
    RecomputePolicy policy = acts->policy;
    RecomputePool *pool = acts->pool;
    const BufferList *row = &acts->row[u], *wide = is_block(acts, u) ? &acts->widest : row;
    int set = set_of(acts, u);
    for (int i = 0; i < wide->n; i++) {
        bool dropped = is_block(acts, u) && is_dropped(wide->kind[i], policy);
        bool packed = is_block(acts, u) && is_packed(wide->kind[i], policy);
        bool away = is_block(acts, u) && pool->train && is_away(wide->kind[i], policy, acts->segment);
        void **shared = dropped || packed || away ? &pool->work[i] : set >= 0 ? &pool->saved[set][i] : NULL;
        size_t N = model_rows_held(acts, u, i, acts->max_rows);
        size_t own = i < row->n ? row->n_bytes[i] : 0, n_bytes = shared ? wide->n_bytes[i] : own;
        if (n_bytes) acts->saved[u][i] = once(shared, mem, N * n_bytes, wide->name[i]);
        acts->pitch[u][i] = n_bytes;
        if (away && own) acts->host[u][i] = mem_alloc(mem, MEM_HOST, N * own, wide->name[i]);
        n_bytes = set >= 0 ? wide->n_bytes[i] : own;
        if (!packed || !n_bytes) continue;
        size_t width = n_bytes / acts->x_bytes;
        acts->scale[u][i] = (float *)once(set >= 0 ? (void **)&pool->scale[set][i] : NULL, mem,
                                          N * groups_of(width) * sizeof(float), "8-bit scales");
        acts->packed[u][i] = (int8_t *)once(set >= 0 ? (void **)&pool->packed[set][i] : NULL, mem, N * width,
                                            "8-bit copy");
    }
}

// Which of the pool's two inputs a block's kept input is in while it works; -1: its stream is its own.
static int input_of(const Activations *acts, int u)
{
    if (!acts->policy.offload || !acts->pool->train || u == 0 || !is_block(acts, u) || !keeps_stream(acts, u)) return -1;
    return (int)(number_of(acts, u) / (acts->segment ? acts->segment : 1) % 2);
}

void recompute_place(Activations *acts, int u, Mem *mem)
{
    size_t n_bytes = acts->max_rows / acts->sharers * acts->stream_row;
    int set = acts->pool->train ? set_of(acts, u) : 0, input = input_of(acts, u);
    X **inputs = acts->pool->input;
    for (int i = 0; i < 2 && acts->policy.offload && acts->pool->train; i++)
        if (!inputs[i]) inputs[i] = (X *)mem_alloc(mem, MEM_ACTS, n_bytes, "stream");
    if (input >= 0) {
        acts->stream[u] = inputs[input];
        acts->host_stream[u] = mem_alloc(mem, MEM_HOST, n_bytes, "stream");
    } else if (acts->unit[u].kind != &unit_embedding)
        acts->stream[u] = (X *)once(keeps_stream(acts, u) ? NULL : (void **)&acts->pool->inner[set], mem, n_bytes,
                                    "stream");
    place_saved(acts, u, mem);
}

// ---- weights' gradients later

RecomputeLate recompute_allocate_late(const Activations *acts, const Dev *dev, const ModelShape *shape, Mem *mem)
{
    size_t n = (size_t)acts->n_units, N = acts->max_rows;
    RecomputeLate late = {.row = calloc(n, sizeof *late.row), .late = calloc(n, sizeof *late.late),
                          .read = calloc(n, sizeof *late.read)};
    if (!late.row || !late.late || !late.read) die("model: no memory for %d units", acts->n_units);
    for (int u = 0; u < acts->n_units; u++) {
        const UnitKind *kind = acts->unit[u].kind;
        unsigned reads = linear_later_reads(kind, shape);
        late.row[u] = linear_later(kind, dev, shape, 1);
        for (int i = 0; i < late.row[u].n; i++)
            late.late[u][i] = mem_alloc(mem, MEM_ACTS, N * late.row[u].n_bytes[i], late.row[u].name[i]);
        for (int i = 0; acts->segment && i < acts->row[u].n; i++)
            if (reads >> i & 1)
                late.read[u][i] = mem_alloc(mem, MEM_ACTS, N * acts->row[u].n_bytes[i], acts->row[u].name[i]);
    }
    return late;
}

void recompute_late_free(RecomputeLate *late)
{
    free(late->row);
    free(late->late);
    free(late->read);
}

void *const *recompute_late_at(const RecomputeLate *late, int u, size_t row, void **out)
{
    for (int i = 0; i < late->row[u].n; i++) out[i] = (char *)late->late[u][i] + row * late->row[u].n_bytes[i];
    return late->row[u].n ? out : NULL;
}

// ---- forward and back
//
// The last block of a segment runs again without its output (forward with out NULL), because the start of the next
// segment was kept. That saves a block's down-projection, a third of its matmul in GPT's shape; the textbook counts a
// whole forward. (A norm of outputs reads that projection's in backward, so there it is not saved.)

// N rows between the full buffers and their 8-bit copies.
static void convert(const Activations *acts, Dev *dev, int u, size_t row, size_t N, void *const *saved, bool pack)
{
    for (int i = 0; i < acts->row[u].n; i++) {
        if (!acts->packed[u][i]) continue;
        size_t width = acts->row[u].n_bytes[i] / acts->x_bytes, first = model_rows_held(acts, u, i, row);
        size_t n = model_rows_held(acts, u, i, N);
        size_t pitch = set_of(acts, u) >= 0 ? acts->widest.n_bytes[i] / acts->x_bytes : width;
        int8_t *q = acts->packed[u][i] + first * pitch;
        float *scale = acts->scale[u][i] + first * groups_of(pitch);
        if (pack) dev->compress(dev, q, scale, (const X *)saved[i], n, width);
        else dev->decompress(dev, (X *)saved[i], q, scale, n, width);
    }
}

static void transfer(const Activations *acts, Dev *dev, char *host, void *buffer, size_t n_bytes, bool out)
{
    if (out) dev->to_host(dev, host, buffer, n_bytes);
    else dev->to_device(dev, buffer, host, n_bytes);
    *(out ? &acts->pool->bytes_out : &acts->pool->bytes_in) += n_bytes;
}

// N rows of what unit u keeps in host memory, there or back. Its input: also where only that is kept, for its segment.
static void move(const Activations *acts, Dev *dev, int u, size_t row, size_t N, void *const *saved, bool out)
{
    if (acts->host_stream[u])
        transfer(acts, dev, acts->host_stream[u] + row / acts->sharers * acts->stream_row,
                 model_stream_at(acts, acts->stream[u], row), N / acts->sharers * acts->stream_row, out);
    for (int i = 0; i < acts->row[u].n; i++) {
        size_t width = acts->row[u].n_bytes[i];
        if (!acts->host[u][i]) continue;
        transfer(acts, dev, (char *)acts->host[u][i] + model_rows_held(acts, u, i, row) * width, saved[i],
                 model_rows_held(acts, u, i, N) * width, out);
    }
}

void recompute_keep(const Activations *acts, Dev *dev, int u, size_t row, size_t N, void *const *saved)
{
    convert(acts, dev, u, row, N, saved, true);
    move(acts, dev, u, row, N, saved, true);
}

static bool is_last_block(const Activations *acts, int u)
{
    return u + 1 == acts->n_units || !is_block(acts, u + 1);
}

// If a segment ends with block u, runs it again, unless its buffers are unchanged since its forward (the last segment
// of the last forward).
static void run_segment(const Activations *acts, const UnitContext *ctx, int u, size_t row, const Batch *batch)
{
    if (!acts->segment || !is_block(acts, u)) return;
    size_t segment = acts->segment, k = number_of(acts, u);
    if (is_last_block(acts, u) ? acts->pool->fresh == acts->slot : (k + 1) % segment != 0) return;
    for (int v = u - (int)(k % segment); v <= u; v++) {
        void *saved[UNIT_MAX_SAVED];
        model_saved_at(acts, v, row, saved);
        unit_forward(ctx, &acts->unit[v], PASS_AGAIN, v < u ? model_stream_at(acts, acts->stream[v + 1], row) : NULL,
                     model_stream_at(acts, acts->stream[v], row), saved, batch);
        if (batch->train) convert(acts, ctx->dev, v, row, batch->N, saved, true);
    }
}

// What unit u's backward needs from host memory; with segments, at a segment's last block, what its first one keeps.
static void fetch(const Activations *acts, Dev *dev, int u, size_t row, size_t N, void *const *saved)
{
    if (!acts->policy.offload || !is_block(acts, u)) return;
    size_t segment = acts->segment, k = number_of(acts, u);
    if (!segment) move(acts, dev, u, row, N, saved, false);
    else if (is_last_block(acts, u) || (k + 1) % segment == 0)
        move(acts, dev, u - (int)(k % segment), row, N, saved, false);
}

void recompute_again(Activations *acts, const UnitContext *ctx, int u, size_t row, void *const *saved,
                     const Batch *batch)
{
    if (acts->pool->fresh != acts->slot) acts->pool->fresh = -1;
    fetch(acts, ctx->dev, u, row, batch->N, saved);
    run_segment(acts, ctx, u, row, batch);
    convert(acts, ctx->dev, u, row, batch->N, saved, false);
}

void recompute_restore(const Activations *acts, const UnitContext *ctx, int u, size_t row, void *const *saved,
                       const Batch *batch)
{
    if (!recompute_restores(acts->policy.mode) || !is_block(acts, u)) return;
    // with compression restore runs anyway: the last block's buffers hold exact values, not the 8-bit ones
    if (is_last_block(acts, u) && acts->pool->fresh == acts->slot && !acts->policy.compress) return;
    acts->unit[u].kind->restore(ctx, &acts->unit[u], model_stream_at(acts, acts->stream[u], row), saved, batch,
                                acts->policy.mode == RECOMPUTE_ATTENTION);
}

void recompute_keep_reads(const Activations *acts, Dev *dev, int u, const RecomputeLate *late, size_t row, size_t N,
                          void *const *saved)
{
    for (int i = 0; i < acts->row[u].n; i++) {
        size_t n_bytes = acts->row[u].n_bytes[i];
        if (!late->read[u][i]) continue;
        size_t width = n_bytes / acts->x_bytes;
        dev->copy(dev, (X *)((char *)late->read[u][i] + row * n_bytes), (X *)saved[i], N, width, width, width);
    }
}

void recompute_backward_later(Activations *acts, const UnitContext *ctx, size_t row, const RecomputeLate *late,
                              const Batch *batch)
{
    bool drop = recompute_restores(acts->policy.mode), attention = acts->policy.mode == RECOMPUTE_ATTENTION;
    if (drop) acts->pool->fresh = -1;
    for (int u = acts->n_units - 1; u >= 0; u--) {
        const Unit *unit = &acts->unit[u];
        void *saved[UNIT_MAX_SAVED], *kept[UNIT_MAX_SAVED];
        if (!recompute_late_at(late, u, row, kept)) continue;
        model_saved_at(acts, u, row, saved);
        unit_before(ctx, unit, PASS_LATER);
        if (acts->segment) {
            for (int i = 0; i < acts->row[u].n; i++)
                saved[i] = late->read[u][i] ? (char *)late->read[u][i] + row * acts->row[u].n_bytes[i] : NULL;
        } else {
            convert(acts, ctx->dev, u, row, batch->N, saved, false);
            fetch(acts, ctx->dev, u, row, batch->N, saved);
            const X *inp = model_stream_at(acts, acts->stream[u], row);
            if (drop) unit->kind->restore(ctx, unit, inp, saved, batch, attention);
        }
        linear_backward_later(ctx, unit, saved, kept, batch->N);
        unit_after(ctx, unit, PASS_LATER);
    }
}
