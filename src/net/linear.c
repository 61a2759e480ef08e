// linear: the plain entries of the table (linear.h), and those of a deterministic device.
//
// A plain entry is one op. The functions that units call look a tensor up by its role and call the entry.
//
// The order of sums. On a deterministic device every sum over a dimension that ranks may divide (columns of the input
// of a TO_STREAM matrix, outputs of a FROM_STREAM one, the columns of experts, the vocabulary, the rows of a norm) is
// split into PARTS parts, whatever the number of ranks (also on one), and the parts are added in the same tree as
// `ordered` groups add ranks. A rank's parts are a subtree, so 1, 2, 4 and 8 ranks give the same bits. This does not
// hold where parts do not divide: key/value heads that are not a multiple of the ranks, or a number of ranks that is no
// power of two.
//
// The invariant: no function here sends or waits. A rank's share of a matrix follows from shape->cut alone; tp.c and
// cp_entries.c add the messages around these entries.
#include "net/linear.h"

#include "base/check.h"

enum { PARTS = LINEAR_PARTS, MAX_LEVELS = 4, AT_ONCE = 256 };

// ---- the plain form: the ops

static void plain_forward(const UnitContext *ctx, const LinearMatrix *m, X *out, const X *inp, size_t N)
{
    ctx->dev->matmul_forward(ctx->dev, out, inp, m->weight, m->bias, N, m->is.in, m->is.out, m->site);
}

static void plain_backward_input(const UnitContext *ctx, const LinearMatrix *m, X *dinp, const X *dout, size_t N)
{
    ctx->dev->matmul_backward_input(ctx->dev, dinp, dout, m->weight, N, m->is.in, m->is.out, m->site);
}

static void plain_backward_weight(const UnitContext *ctx, const LinearMatrix *m, const X *dout, const X *inp, size_t N)
{
    ctx->dev->matmul_backward_weight(ctx->dev, m->dweight, m->dbias, dout, inp, N, m->is.in, m->is.out, m->site);
}

static void plain_norm_forward(const UnitContext *ctx, const LinearNorm *norm, X *out, X *sum, float *mean, float *rstd,
                               const X *a, const X *b, size_t N)
{
    const ModelShape *s = ctx->shape;
    ctx->dev->norm_forward(ctx->dev, out, sum, mean, rstd, a, b, norm->weight, norm->bias, N, s->channels, s->norm,
                           s->norm_eps);
}

static void plain_norm_backward(const UnitContext *ctx, const LinearNorm *norm, X *dinp, X *dout, const X *dresid,
                                const X *inp, const float *mean, const float *rstd, size_t N)
{
    ctx->dev->norm_backward(ctx->dev, dinp, norm->dweight, norm->dbias, dout, dresid, inp, mean, rstd, norm->weight, N,
                            ctx->shape->channels, ctx->shape->norm);
}

static void plain_head_norm_backward(const UnitContext *ctx, const LinearNorm *norm, X *dinp, const X *inp,
                                     const float *rstd, size_t N, size_t heads, size_t D, size_t ld)
{
    ctx->dev->head_norm_backward(ctx->dev, dinp, norm->dweight, dinp, inp, rstd, norm->weight, N, heads, D, ld);
}

// With a key/value cache (sampling) keys of one sequence arrive in any pieces, so there are no blocks.
static AttnShape with_blocks(const UnitContext *ctx, AttnShape s)
{
    if (ctx->linear->blocks && !ctx->cache) s.T = s.Tq, s.blocks = ctx->linear->blocks;
    return s;
}

static void plain_attention_forward(const UnitContext *ctx, X *out, float *lse, const X *q, const X *k, const X *v,
                                    AttnShape shape)
{
    ctx->dev->attention_forward(ctx->dev, out, lse, q, k, v, with_blocks(ctx, shape));
}

static void plain_attention_backward(const UnitContext *ctx, X *dq, X *dk, X *dv, const X *dout, const X *out,
                                     const float *lse, const X *q, const X *k, const X *v, AttnShape shape)
{
    ctx->dev->attention_backward(ctx->dev, dq, dk, dv, dout, out, lse, q, k, v, with_blocks(ctx, shape));
}

static void plain_embed_forward(const UnitContext *ctx, X *out, const X *wte, const X *wpe, const Batch *batch)
{
    ctx->dev->embed_forward(ctx->dev, out, batch->token, batch->pos, wte, wpe, batch->N, ctx->shape->channels);
}

static void plain_embed_backward(const UnitContext *ctx, float *dwte, float *dwpe, const X *dout, const Batch *batch)
{
    ctx->dev->embed_backward(ctx->dev, dwte, dwpe, dout, batch->token, batch->pos, batch->N, ctx->shape->channels,
                             ctx->shape->vocab);
}

static Dropout plain_dropout(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site)
{
    return unit_dropout(unit, batch, site, batch->T * ctx->shape->channels);
}

static void plain_gather(const UnitContext *ctx, X *x, size_t N)
{
    (void)ctx, (void)x, (void)N;
}

static const void *plain_gather_bytes(const UnitContext *ctx, void *to, const void *own, size_t rows, size_t n_bytes)
{
    (void)ctx, (void)to, (void)rows, (void)n_bytes;
    return own;
}

static void plain_complete(const UnitContext *ctx, X *x, size_t N)
{
    (void)ctx, (void)x, (void)N;
}

static void plain_complete_floats(const UnitContext *ctx, float *x, size_t n)
{
    (void)ctx, (void)x, (void)n;
}

static void plain_xent(const UnitContext *ctx, float *loss, X *dlogits, const X *logits, const int32_t *target,
                       size_t rows, float scale)
{
    ctx->dev->softmax_xent(ctx->dev, loss, dlogits, logits, target, rows, ctx->shape->vocab, scale,
                           ctx->shape->logit_cap);
}

static size_t plain_head_rows(const UnitContext *ctx, size_t n0, size_t N, size_t chunk)
{
    (void)ctx;
    return N - n0 < chunk ? N - n0 : chunk;
}

static void plain_head_backward_weight(const UnitContext *ctx, const LinearMatrix *m, X *dlogits, const X *inp,
                                       size_t n0, size_t n, size_t chunk, size_t N)
{
    (void)n0, (void)chunk, (void)N;
    ctx->dev->matmul_backward_weight(ctx->dev, m->dweight, NULL, dlogits, inp, n, m->is.in, m->is.out, m->site);
}

static double plain_sum_losses(const UnitContext *ctx, const float *all, size_t B, size_t T)
{
    double sum = 0;
    float loss[AT_ONCE];
    for (size_t n = 0; n < B * T; n++) {
        size_t left = B * T - n;
        if (n % AT_ONCE == 0)
            ctx->dev->to_host(ctx->dev, loss, all + n, (left < AT_ONCE ? left : AT_ONCE) * sizeof *loss);
        sum += loss[n % AT_ONCE];
    }
    return sum;
}

static float *plain_grad(const UnitContext *ctx, int row)
{
    const Param *param = &ctx->params->row[row];
    float *unit = ctx->grad ? ctx->grad[param->unit] : NULL; // NULL: made for inference
    return unit ? unit + (param->offset - ctx->begin[param->unit]) : NULL;
}

static void plain_end_backward(const UnitContext *ctx, const Unit *unit)
{
    (void)ctx, (void)unit;
}

const Linear linear_plain = {
    .forward = plain_forward, .backward_input = plain_backward_input, .backward_weight = plain_backward_weight,
    .norm_forward = plain_norm_forward, .norm_backward = plain_norm_backward,
    .head_norm_backward = plain_head_norm_backward, .attention_forward = plain_attention_forward,
    .attention_backward = plain_attention_backward, .embed_forward = plain_embed_forward,
    .embed_backward = plain_embed_backward, .dropout = plain_dropout, .gather = plain_gather,
    .gather_bytes = plain_gather_bytes, .complete = plain_complete, .complete_floats = plain_complete_floats,
    .xent = plain_xent, .head_rows = plain_head_rows, .head_backward_weight = plain_head_backward_weight,
    .sum_losses = plain_sum_losses, .grad = plain_grad, .end_backward = plain_end_backward,
};

// ---- what units call

LinearMatrix linear_matrix(const UnitContext *ctx, const Unit *unit, UnitRole weight)
{
    UnitMatrix list[UNIT_MAX_MATRICES];
    int n = unit->kind->matrices(ctx->shape, list), i = 0;
    while (i < n && list[i].weight != weight) i++;
    check(i < n);
    return (LinearMatrix){.is = list[i], .weight = unit_weight(ctx, unit, weight),
                          .bias = unit_weight(ctx, unit, list[i].bias), .dweight = unit_grad(ctx, unit, weight),
                          .dbias = unit_grad(ctx, unit, list[i].bias), .site = unit->row[weight]};
}

// A norm's bias has the role that follows its weight's; norms of heads have none.
LinearNorm linear_norm(const UnitContext *ctx, const Unit *unit, UnitRole weight)
{
    UnitRole bias = weight == W_Q_NORM || weight == W_K_NORM ? UNIT_ROLES : weight + 1;
    return (LinearNorm){.weight = unit_weight(ctx, unit, weight), .bias = unit_weight(ctx, unit, bias),
                        .dweight = unit_grad(ctx, unit, weight), .dbias = unit_grad(ctx, unit, bias),
                        .of_output = unit_norm_of_output(ctx->shape, weight)};
}

void linear_forward(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *out, const X *inp, size_t N)
{
    LinearMatrix m = linear_matrix(ctx, unit, weight);
    ctx->linear->forward(ctx, &m, out, inp, N);
}

void linear_backward_input(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *dinp, const X *dout, size_t N)
{
    LinearMatrix m = linear_matrix(ctx, unit, weight);
    ctx->linear->backward_input(ctx, &m, dinp, dout, N);
}

void linear_backward_weight(const UnitContext *ctx, const Unit *unit, UnitRole weight, const X *dout,
                            void *const *saved, size_t N)
{
    LinearMatrix m = linear_matrix(ctx, unit, weight);
    X *kept = linear_dout(ctx, unit, weight, NULL);
    if (!kept) ctx->linear->backward_weight(ctx, &m, dout, (X *)saved[m.is.input], N);
    else if (kept != dout) ctx->dev->copy(ctx->dev, kept, dout, N, m.is.out, m.is.out, m.is.out);
}

void linear_norm_forward(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *out, X *sum, float *mean,
                         float *rstd, const X *a, const X *b, size_t N)
{
    LinearNorm norm = linear_norm(ctx, unit, weight);
    ctx->linear->norm_forward(ctx, &norm, out, sum, mean, rstd, a, b, N);
}

void linear_norm_backward(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *dinp, X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, size_t N)
{
    LinearNorm norm = linear_norm(ctx, unit, weight);
    ctx->linear->norm_backward(ctx, &norm, dinp, dout, dresid, inp, mean, rstd, N);
}

// ---- branches

size_t linear_rows(const UnitContext *ctx, size_t N)
{
    return N / unit_sharers(ctx->shape);
}

X *linear_own(const UnitContext *ctx, X *whole, size_t N)
{
    size_t first = unit_sharers(ctx->shape) > 1 ? (size_t)ctx->shape->cut.rank * linear_rows(ctx, N) : 0;
    return (X *)((char *)whole + first * ctx->shape->channels * ctx->dev->x_bytes);
}

X *linear_branch(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site, X *sum)
{
    X *own = linear_own(ctx, sum, batch->N);
    Dropout drop = ctx->linear->dropout(ctx, unit, batch, site);
    if (drop.p > 0) ctx->dev->dropout(ctx->dev, own, own, linear_rows(ctx, batch->N) * ctx->shape->channels, drop);
    return own;
}

const X *linear_branch_backward(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site,
                                X *whole, X *stream)
{
    size_t N = batch->N, rows = linear_rows(ctx, N);
    Dropout drop = ctx->linear->dropout(ctx, unit, batch, site);
    size_t C = ctx->shape->channels;
    X *own = linear_own(ctx, whole, N);
    if (rows == N && drop.p == 0) return stream;
    if (drop.p > 0) ctx->dev->dropout(ctx->dev, own, stream, rows * C, drop);
    else if (own != stream) ctx->dev->copy(ctx->dev, own, stream, rows, C, C, C);
    ctx->linear->gather(ctx, whole, N);
    return whole;
}

// ---- deferred weight gradients

// The unit's matrices whose inputs are kept; returns how many.
static int that_can_wait(const UnitKind *kind, const ModelShape *shape, UnitMatrix *list)
{
    int n = kind->matrices ? kind->matrices(shape, list) : 0, kept = 0;
    for (int i = 0; i < n; i++)
        if (list[i].input >= 0) list[kept++] = list[i];
    return kept;
}

X *linear_dout(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *scratch)
{
    UnitMatrix list[UNIT_MAX_MATRICES];
    int n = ctx->later ? that_can_wait(unit->kind, ctx->shape, list) : 0;
    for (int i = 0; i < n; i++)
        if (list[i].weight == weight) return (X *)ctx->later[i];
    return scratch;
}

BufferList linear_later(const UnitKind *kind, const Dev *dev, const ModelShape *shape, size_t N)
{
    UnitMatrix list[UNIT_MAX_MATRICES];
    int n = that_can_wait(kind, shape, list);
    BufferList buffers = {.n = 0};
    for (int i = 0; i < n; i++) unit_list_add(&buffers, list[i].dout, BUFFER_ACT, N * list[i].out, dev->x_bytes);
    return buffers;
}

unsigned linear_later_reads(const UnitKind *kind, const ModelShape *shape)
{
    UnitMatrix list[UNIT_MAX_MATRICES];
    int n = that_can_wait(kind, shape, list);
    unsigned reads = 0;
    for (int i = 0; i < n; i++) reads |= 1u << list[i].input;
    return reads;
}

// Rows of one matrix are neighbours (q, k and v): a row belongs to the last role that begins at it or before it.
bool linear_is_later(const Unit *unit, const ModelShape *shape, int row)
{
    UnitMatrix list[UNIT_MAX_MATRICES];
    int n = that_can_wait(unit->kind, shape, list), begin = -1;
    bool later = false;
    for (int r = 0; r < UNIT_ROLES; r++) {
        if (unit->row[r] < 0 || unit->row[r] > row || unit->row[r] <= begin) continue;
        begin = unit->row[r], later = false;
        for (int i = 0; i < n; i++) later |= list[i].weight == (UnitRole)r || list[i].bias == (UnitRole)r;
    }
    return later;
}

void linear_backward_later(const UnitContext *ctx, const Unit *unit, void *const *saved, void *const *later, size_t N)
{
    UnitMatrix list[UNIT_MAX_MATRICES];
    for (int i = that_can_wait(unit->kind, ctx->shape, list) - 1; i >= 0; i--) {
        LinearMatrix m = linear_matrix(ctx, unit, list[i].weight);
        ctx->linear->backward_weight(ctx, &m, (X *)later[i], (X *)saved[list[i].input], N);
    }
    ctx->linear->end_backward(ctx, unit);
}

// ---- sums in parts

static size_t cut_size(const UnitContext *ctx)
{
    return ctx->shape->cut.size > 1 ? (size_t)ctx->shape->cut.size : 1;
}

size_t linear_parts(size_t whole, size_t size)
{
    size_t n = 1;
    while (n < PARTS && whole % (2 * n) == 0) n *= 2;
    return n % size == 0 ? n / size : 1;
}

DevParts linear_cut(const UnitContext *ctx, DevRange *range, const size_t *width, size_t n_segments, size_t grain)
{
    size_t n = linear_parts(grain * cut_size(ctx), cut_size(ctx));
    check(n <= PARTS && n_segments <= UNIT_MAX_SEGMENTS);
    for (size_t p = 0; p < n; p++) {
        size_t at = 0;
        for (size_t i = 0; i < n_segments; at += width[i++])
            range[p * n_segments + i] = (DevRange){at + width[i] * p / n, at + width[i] * (p + 1) / n};
    }
    return (DevParts){.range = range, .n = n, .each = n_segments};
}

// The vocabulary is split where PARTS ranks would divide it.
static DevParts cut_vocab(const UnitContext *ctx, DevRange *range)
{
    const ModelShape *s = ctx->shape;
    size_t size = cut_size(ctx), n = PARTS % size == 0 ? PARTS / size : 1;
    size_t whole = size > 1 ? s->cut.vocab : s->vocab, rank = size > 1 ? (size_t)s->cut.rank : 0;
    size_t first = whole * rank / size, all = n * size, at = rank * n;
    for (size_t p = 0; p < n; p++)
        range[p] = (DevRange){whole * (at + p) / all - first, whole * (at + p + 1) / all - first};
    return (DevParts){.range = range, .n = n, .each = 1};
}

static void ordered_forward(const UnitContext *ctx, const LinearMatrix *m, X *out, const X *inp, size_t N)
{
    DevRange range[PARTS];
    if (m->is.way != MATRIX_TO_STREAM) {
        plain_forward(ctx, m, out, inp, N);
        return;
    }
    DevParts parts = linear_cut(ctx, range, &m->is.in, 1, m->is.grain);
    ctx->dev->matmul_parts_forward(ctx->dev, out, inp, m->weight, m->bias, N, m->is.in, m->is.out, parts, m->site);
}

static void ordered_backward_input(const UnitContext *ctx, const LinearMatrix *m, X *dinp, const X *dout, size_t N)
{
    DevRange range[PARTS * UNIT_MAX_SEGMENTS];
    if (m->is.way == MATRIX_TO_STREAM) {
        plain_backward_input(ctx, m, dinp, dout, N);
        return;
    }
    DevParts parts = m->is.way == MATRIX_TO_LOGITS ? cut_vocab(ctx, range) :
        linear_cut(ctx, range, m->is.segment, m->is.n_segments, m->is.grain);
    ctx->dev->matmul_parts_backward_input(ctx->dev, dinp, dout, m->weight, N, m->is.in, m->is.out, parts, m->site);
}

void linear_norm_parts(const UnitContext *ctx, const LinearNorm *norm, X *dinp, const X *dout, const X *dresid,
                       const X *inp, const float *mean, const float *rstd, size_t rows, size_t n)
{
    Dev *dev = ctx->dev;
    size_t C = ctx->shape->channels, level = 0;
    if (n == 1) {
        dev->norm_backward(dev, dinp, norm->dweight, norm->dbias, dout, dresid, inp, mean, rstd, norm->weight, rows, C,
                           ctx->shape->norm);
        return;
    }
    float *spare = (float *)ctx->scratch[SCRATCH_NORM_PARTS], *leaf = spare + 2 * C * MAX_LEVELS; // all zero
    for (size_t p = 0; p < n; p++) {
        size_t r0 = rows * p / n, at = r0 * C * dev->x_bytes;
        const X *dy = (const X *)((const char *)dout + at), *x = (const X *)((const char *)inp + at);
        dev->norm_backward(dev, (X *)((char *)dinp + at), leaf, norm->dbias ? leaf + C : NULL, dy,
                           dresid ? (const X *)((const char *)dresid + at) : NULL, x, mean + r0,
                           rstd + r0, norm->weight, rows * (p + 1) / n - r0, C, ctx->shape->norm);
        float *from = leaf;
        for (level = 0;; level++) { // as a binary counter: sums of 2^level parts
            float *to = spare + 2 * C * level;
            dev->accumulate(dev, to, from, 2 * C);
            if (!(p >> level & 1)) break;
            from = to;
        }
    }
    float *sum = spare + 2 * C * level; // n is a power of two: all of them
    dev->accumulate(dev, norm->dweight, sum, C);
    if (norm->dbias) dev->accumulate(dev, norm->dbias, sum + C, C);
}

// `rows`: of the stream.
static void ordered_norm_backward(const UnitContext *ctx, const LinearNorm *norm, X *dinp, X *dout, const X *dresid,
                                  const X *inp, const float *mean, const float *rstd, size_t rows)
{
    size_t sharers = unit_sharers(ctx->shape);
    linear_norm_parts(ctx, norm, dinp, dout, dresid, inp, mean, rstd, rows, linear_parts(rows * sharers, sharers));
}

void linear_xent_steps(const UnitContext *ctx, float *loss, X *dlogits, const X *logits, const int32_t *target,
                       size_t rows, float scale, void (*combine)(const UnitContext *ctx, float *x, size_t n, bool max))
{
    Dev *dev = ctx->dev;
    size_t V = ctx->shape->vocab;
    float cap = ctx->shape->logit_cap;
    DevRange range[PARTS];
    float *top = (float *)ctx->scratch[SCRATCH_LOSS], *total = top + rows, *hit = total + rows;
    dev->xent_max(dev, top, logits, rows, V);
    if (combine) combine(ctx, top, rows, true);
    dev->xent_sum(dev, total, hit, logits, target, top, rows, V, cut_vocab(ctx, range), cap);
    if (combine) combine(ctx, total, rows, false);
    if (combine) combine(ctx, hit, rows, false); // one rank has it
    dev->xent_loss(dev, loss, dlogits, logits, target, top, total, hit, rows, V, scale, cap);
}

static void ordered_xent(const UnitContext *ctx, float *loss, X *dlogits, const X *logits, const int32_t *target,
                         size_t rows, float scale)
{
    linear_xent_steps(ctx, loss, dlogits, logits, target, rows, scale, NULL);
}

void linear_keep_order(Linear *linear)
{
    linear->forward = ordered_forward;
    linear->backward_input = ordered_backward_input;
    linear->norm_backward = ordered_norm_backward;
    linear->xent = ordered_xent;
}
