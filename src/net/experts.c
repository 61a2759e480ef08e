// experts: the ops of a layer's experts in order, forward and backward.
//
// A slot is one choice of a token: N tokens make N k slots. They are sorted by expert into rows, so that each expert's
// rows are neighbours and its matrices are one product each. The weight of a slot multiplies the input of `down`, not
// its output. Both are the same function, since `down` is linear without a bias; but then backward needs no output of
// any expert: the gradient of the weight is <dout down, silu(gate) up>, and both factors are there anyway.
//
// The invariant: which rows a token has depends on `choice` alone, so backward and recomputation sort again instead of
// keeping the order, and nothing but choice, gate, logits and the inputs of SwiGLU is saved. Counts enter the state
// in backward alone, once per token and step, however often forward runs (evaluation, recomputation).
//
// Tensor parallelism: a rank has some columns of every expert; the router, and what it chooses, are whole and the same
// on all ranks. So a rank's outputs, dgate and dx are parts of sums over the ranks. A fast device combines rows first,
// and then sums (N, C): in forward at once, dx together with all else that the norm's backward sums, for which the
// router's share of it comes from rank 0 alone. A deterministic one sums rows (R, C) over the ranks, in the parts of
// linear.c, and then combines them: so either sum has one order, whatever the number of ranks. dx is whole after that,
// and rank 0 alone hands it to the norm's backward. This sends k times as much and more, in the mode that is not for
// speed.
//
// Rejected: a buffer for each expert of a fixed size (a model without drops would need the worst case); one tensor for
// all experts of a layer (Muon, Adafactor and norms would take them for one matrix; a file for Transformers has one
// each).
#include "net/experts.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>

size_t experts_capacity(const ModelExperts *x, size_t T)
{
    double slots = x->capacity * (double)(T * x->k) / (double)x->n;
    return x->capacity > 0 ? (size_t)ceilf((float)slots) : 0; // 22.000000000000004 are 22
}

size_t experts_rows(const ModelExperts *x)
{
    size_t own = unit_own_experts(x), most = (size_t)x->ranks * (own < x->k ? own : x->k);
    size_t room = (size_t)ceilf((float)(x->room * (double)x->k));
    return x->ranks <= 1 ? x->k : x->room > 0 && room < most ? room : most;
}

void experts_saved(BufferList *list, const Dev *dev, const ModelShape *s, size_t N)
{
    const ModelExperts *x = &s->experts;
    size_t R = N * experts_rows(x), away = x->ranks > 1 ? R : 0;
    unit_list_add(list, "router", BUFFER_STAT, N * x->n, sizeof(float));
    unit_list_add(list, "choice", BUFFER_STAT, N * x->k, sizeof(int32_t));
    unit_list_add(list, "gate", BUFFER_STAT, N * x->k, sizeof(float));
    unit_list_add(list, "experts_pre", BUFFER_ACT, R * 2 * x->ffn, dev->x_bytes);
    unit_list_add(list, "experts_act", BUFFER_CHEAP, R * x->ffn, dev->x_bytes);
    unit_list_add(list, "experts_in", BUFFER_ACT, away * s->channels, dev->x_bytes);
    unit_list_add(list, "gates of rows", BUFFER_STAT, away, sizeof(float));
}

// Slots of whole sequences, where ranks share the tokens of each: of N tokens here, N sharers in all. `ordered`: all that
// the gradients of weights need, on the first of these ranks.
typedef struct {
    size_t N, R, n_bytes;
    int32_t *offset, *row, *slot, *choice;
    float *gate;
    float *gates, *dlogits, *dweight; // ordered: by row; (N, E); (E, C) that is not used
    X *x, *dout, *pre, *act, *in;     // ordered: (N, C) twice; the buffers that experts_saved lists
} Whole;

static char *next(char **at, size_t n_bytes)
{
    char *here = *at;
    *at += (n_bytes + 63) / 64 * 64;
    return here;
}

static Whole whole_of(void *scratch, const Dev *dev, const ModelShape *s, size_t N)
{
    const ModelExperts *x = &s->experts;
    char *at = scratch;
    Whole w = {.N = N * x->sharers, .R = N * x->sharers * x->k};
    size_t C = s->channels, rows = w.N * experts_rows(x), b = dev->x_bytes;
    w.offset = (int32_t *)next(&at, (x->n + 1) * sizeof *w.offset);
    w.row = (int32_t *)next(&at, w.R * sizeof *w.row);
    w.slot = (int32_t *)next(&at, w.R * sizeof *w.slot);
    w.choice = (int32_t *)next(&at, w.R * sizeof *w.choice);
    w.gate = (float *)next(&at, w.R * sizeof *w.gate);
    if (x->ordered) {
        w.gates = (float *)next(&at, rows * sizeof *w.gates);
        w.dlogits = (float *)next(&at, w.N * x->n * sizeof *w.dlogits);
        w.dweight = (float *)next(&at, x->n * C * sizeof *w.dweight);
        w.x = (X *)next(&at, w.N * C * b), w.dout = (X *)next(&at, w.N * C * b);
        w.pre = (X *)next(&at, rows * 2 * x->ffn * b), w.act = (X *)next(&at, rows * x->ffn * b);
        w.in = (X *)next(&at, x->ranks > 1 ? rows * C * b : 0);
    }
    w.n_bytes = (size_t)(at - (char *)scratch);
    return w;
}

// Rows of C elements: of the shared expert, of the slots, and those that other ranks sent; the gradients of SwiGLU's
// output and input; those of gates and logits, counts, gates by row, and gradients of gates by row; offsets, the row of
// each slot, the slot of each row, offsets of what came.
void experts_scratch(BufferList *list, const Dev *dev, const ModelShape *s, size_t N)
{
    const ModelExperts *x = &s->experts;
    size_t here = N; // tokens of this rank
    if (x->sharers > 1 && x->ordered) N *= x->sharers;
    size_t R = N * x->k, E = x->n, sum = x->shared ? N : 0, rows = N * experts_rows(x), away = x->ranks > 1 ? rows : 0;
    size_t gates = away ? R + away : 0;
    unit_list_add(list, "experts' rows", BUFFER_ACT, (R + sum + away) * s->channels, dev->x_bytes);
    unit_list_add(list, "experts' wide rows", BUFFER_ACT, rows * 3 * x->ffn, dev->x_bytes);
    unit_list_add(list, "routing", BUFFER_STAT, R + N * E + (N + 1) * (E + 1) + gates, sizeof(float));
    unit_list_add(list, "order of slots", BUFFER_STAT, E + 1 + 2 * R + (away ? E + 1 : 0), sizeof(int32_t));
    if (x->sharers > 1) unit_list_add(list, "slots of sequences", BUFFER_STAT, whole_of(NULL, dev, s, here).n_bytes, 1);
}

// A batch's slots, sorted, and the rows that this rank's experts process: the slots' own or, where ranks divide the
// experts, those that came from all of them; and the scratch of both.
typedef struct {
    const ModelExperts *x;
    size_t N, R, C, F, came;
    bool away;
    int32_t *offset, *row, *slot, *there;
    X *rows, *others; // (R, C) of the slots; (came, C)
    X *dpre, *dact;
    float *dgate, *dlogits, *count, *gates, *dgates;
    DevExperts experts;
} Slots;

// Whether sums over columns have one order, whatever the number of ranks. (16-bit numbers have none: linear.c.)
static bool ordered(const UnitContext *ctx)
{
    return ctx->dev->deterministic && ctx->dev->x_type == X_FP32;
}

static bool first_rank(const UnitContext *ctx)
{
    return ctx->shape->cut.rank == 0;
}

// The product whose terms are the columns of `segments` matrices side by side.
static DevExperts over_columns(const UnitContext *ctx, const Slots *s, size_t segments, DevRange *range)
{
    const size_t width[] = {s->F, s->F};
    DevExperts x = s->experts;
    if (ordered(ctx)) x.parts = linear_cut(ctx, range, width, segments, s->F);
    return x;
}

// Rows (came, C) of which this rank has the sums over its columns.
static void complete_rows(const UnitContext *ctx, const Slots *s)
{
    if (ordered(ctx)) ctx->linear->complete_floats(ctx, (float *)s->others, s->came * s->C);
}

static DevRouter router_of(const ModelExperts *x)
{
    return (DevRouter){.E = x->n, .k = x->k, .groups = x->groups, .best = x->best, .sigmoid = x->sigmoid,
                       .renorm = x->renorm, .scale = x->scale};
}

static X *rows_at(const UnitContext *ctx, X *x, size_t row, size_t width)
{
    return (X *)((char *)x + row * width * ctx->dev->x_bytes);
}

// Tokens for which a call has room, of which batch->N are there. In evaluation other ranks of a group may have larger
// batches than this one, and their rows must find room here.
static size_t most_tokens(const UnitContext *ctx, const Batch *batch)
{
    return batch->train ? batch->B * batch->T : ctx->most_rows;
}

static Slots slots_of(const UnitContext *ctx, const Unit *unit, const Batch *batch)
{
    const ModelExperts *x = &ctx->shape->experts;
    size_t N = most_tokens(ctx, batch);
    check(batch->N <= N);
    Slots s = {.x = x, .N = batch->N, .R = N * x->k, .C = ctx->shape->channels, .F = x->ffn, .away = x->ranks > 1};
    s.offset = (int32_t *)ctx->scratch[SCRATCH_ORDER], s.row = s.offset + x->n + 1, s.slot = s.row + s.R;
    s.there = s.away ? s.slot + s.R : s.offset;
    s.rows = rows_at(ctx, (X *)ctx->scratch[SCRATCH_ROWS], x->shared ? N : 0, s.C);
    s.others = s.away ? rows_at(ctx, s.rows, s.R, s.C) : s.rows;
    s.came = s.away ? ctx->linear->experts_came(ctx) : 0;
    s.dpre = (X *)ctx->scratch[SCRATCH_ROWS_WIDE];
    s.dact = rows_at(ctx, s.dpre, N * experts_rows(x), 2 * s.F);
    s.dgate = (float *)ctx->scratch[SCRATCH_ROUTE], s.dlogits = s.dgate + s.R, s.count = s.dlogits + N * x->n;
    s.gates = s.count + (N + 1) * (x->n + 1), s.dgates = s.gates + s.R;
    s.R = s.N * x->k;
    if (!s.away) s.came = s.R;
    // An expert's rows of the table follow each other: gate, up, down, then those of the next expert.
    s.experts = (DevExperts){.offset = s.there, .E = unit_own_experts(x), .R = s.came, .stride = 3 * s.F * s.C,
                             .sources = s.away ? (size_t)x->ranks : 1};
    check(unit->row[W_EXPERTS_DOWN] == unit->row[W_EXPERTS_IN] + 2);
    return s;
}

static size_t sharers_of(const ModelExperts *x)
{
    return x->sharers > 1 ? x->sharers : 1;
}

// Which slots of whole sequences are dropped is known when all ranks' are there: this rank's come to s->row.
static Whole sort_whole(const UnitContext *ctx, const Slots *s, void *const *saved, const Batch *batch, size_t cap)
{
    Whole w = whole_of(ctx->scratch[SCRATCH_WHOLE], ctx->dev, ctx->shape, batch->B * batch->T);
    ctx->linear->slots_whole(ctx, w.choice, w.gate, (int32_t *)saved[EXPERTS_CHOICE], (float *)saved[EXPERTS_GATE],
                             batch);
    if (!cap) return w;
    ctx->dev->experts_sort(ctx->dev, w.offset, w.row, w.slot, w.choice, w.gate, w.N, batch->T * s->x->sharers, s->x->k,
                           s->x->n, cap, s->x->by_gate);
    ctx->linear->slots_own(ctx, s->row, w.row, batch);
    return w;
}

// Slots, sorted, with what capacity leaves of them; and the numbers of rows that go to each rank, and come.
static Slots sort_with(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch, size_t cap)
{
    Slots s = slots_of(ctx, unit, batch);
    ctx->dev->experts_sort(ctx->dev, s.offset, s.row, s.slot, (int32_t *)saved[EXPERTS_CHOICE],
                           (float *)saved[EXPERTS_GATE], s.N, batch->T, s.x->k, s.x->n, cap, s.x->by_gate);
    size_t room = most_tokens(ctx, batch) * experts_rows(s.x);
    if (s.away) s.experts.R = s.came = ctx->linear->experts_meet(ctx, s.there, s.offset, room);
    return s;
}

static Slots sort(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch)
{
    const ModelExperts *x = &ctx->shape->experts;
    size_t cap = batch->train ? experts_capacity(x, batch->T * sharers_of(x)) : 0; // evaluation drops nothing
    if (batch->train && sharers_of(x) > 1) {
        Slots s = slots_of(ctx, unit, batch);
        sort_whole(ctx, &s, saved, batch, cap);
        if (cap) cap = DEV_ROWS_GIVEN;
    }
    return sort_with(ctx, unit, saved, batch, cap);
}

// The rows of x (N, C) that the slots want go to their experts: to `to`, where ranks divide the experts.
static void dispatch(const UnitContext *ctx, const Slots *s, X *to, const X *x)
{
    ctx->dev->experts_gather(ctx->dev, s->rows, x, s->slot, s->R, s->x->k, s->C);
    if (s->away) ctx->linear->experts_send(ctx, to, s->rows, s->C * ctx->dev->x_bytes, false);
}

static void dispatch_gates(const UnitContext *ctx, const Slots *s, void *const *saved)
{
    if (!s->away) return;
    ctx->dev->experts_pick(ctx->dev, s->gates, (float *)saved[EXPERTS_GATE], s->slot, s->R);
    ctx->linear->experts_send(ctx, saved[EXPERTS_GATES], s->gates, sizeof(float), false);
}

// What the experts made of the rows goes back to the slots.
static void send_back(const UnitContext *ctx, const Slots *s, void *to, const void *from, size_t n_bytes)
{
    if (s->away) ctx->linear->experts_send(ctx, to, from, n_bytes, true);
}

static void arrive(const UnitContext *ctx, const Slots *s)
{
    if (s->away) ctx->linear->experts_wait(ctx);
}

// The weights of the rows that this rank's experts process, and how the rows name them.
static const float *gates_of(const Slots *s, void *const *saved)
{
    return (const float *)saved[s->away ? EXPERTS_GATES : EXPERTS_GATE];
}

void experts_forward_begin(const UnitContext *ctx, const Unit *unit, const X *x, void *const *saved, const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelExperts *e = &ctx->shape->experts;
    float *logits = (float *)saved[EXPERTS_LOGITS], *gate = (float *)saved[EXPERTS_GATE];
    dev->router_forward(dev, logits, x, unit_weight(ctx, unit, W_ROUTER), batch->N, ctx->shape->channels, e->n);
    dev->route_forward(dev, (int32_t *)saved[EXPERTS_CHOICE], gate, logits,
                       ctx->experts ? ctx->experts[unit->index].bias : NULL, batch->N, router_of(e));
    Slots s = sort(ctx, unit, saved, batch);
    dispatch(ctx, &s, (X *)saved[EXPERTS_IN], x);
    dispatch_gates(ctx, &s, saved);
}

void experts_forward(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch, bool wanted)
{
    Dev *dev = ctx->dev;
    Slots s = slots_of(ctx, unit, batch);
    X *pre = (X *)saved[EXPERTS_PRE], *act = (X *)saved[EXPERTS_ACT];
    arrive(ctx, &s);
    dev->experts_forward(dev, pre, s.away ? (X *)saved[EXPERTS_IN] : s.rows, unit_weight(ctx, unit, W_EXPERTS_IN), s.C,
                         2 * s.F, s.experts);
    dev->experts_swiglu_forward(dev, act, pre, gates_of(&s, saved), s.away ? NULL : s.slot, s.came, s.F);
    if (!wanted) return;
    DevRange range[LINEAR_PARTS];
    dev->experts_forward(dev, s.others, act, unit_weight(ctx, unit, W_EXPERTS_DOWN), s.F, s.C,
                         over_columns(ctx, &s, 1, range));
    complete_rows(ctx, &s);
    send_back(ctx, &s, s.rows, s.others, s.C * dev->x_bytes);
}

void experts_forward_end(const UnitContext *ctx, const Unit *unit, X *out, const Batch *batch)
{
    Slots s = slots_of(ctx, unit, batch);
    arrive(ctx, &s);
    ctx->dev->experts_combine(ctx->dev, out, s.rows, s.row, s.N, s.x->k, s.C);
    if (!ordered(ctx)) ctx->linear->complete(ctx, out, s.N);
}

const int32_t *experts_slot_rows(const Dev *dev, const ModelShape *shape, void *const *scratch, const Batch *batch,
                                 const X **rows)
{
    UnitContext ctx = {.dev = (Dev *)dev}; // for rows_at
    size_t first = shape->experts.shared ? batch->B * batch->T : 0;
    *rows = rows_at(&ctx, (X *)scratch[SCRATCH_ROWS], first, shape->channels);
    return (const int32_t *)scratch[SCRATCH_ORDER] + shape->experts.n + 1;
}

void experts_restore(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch)
{
    Slots s = sort(ctx, unit, saved, batch);
    ctx->dev->experts_swiglu_forward(ctx->dev, (X *)saved[EXPERTS_ACT], (X *)saved[EXPERTS_PRE], gates_of(&s, saved),
                                     s.away ? NULL : s.slot, s.came, s.F);
}

void experts_backward_begin(const UnitContext *ctx, const Unit *unit, const X *dout, void *const *saved,
                            const Batch *batch)
{
    Slots s = sort(ctx, unit, saved, batch);
    dispatch(ctx, &s, s.others, dout);
    if (!ctx->linear->rows_whole) return;
    Whole w = whole_of(ctx->scratch[SCRATCH_WHOLE], ctx->dev, ctx->shape, batch->B * batch->T);
    ctx->linear->rows_whole(ctx, w.dout, dout, batch->N, s.C * ctx->dev->x_bytes);
}

// The gradient of the experts' weights: on a deterministic device each source's rows are added to a gradient of their
// own (model.h).
static void weight_gradient(const UnitContext *ctx, const Unit *unit, const Slots *s, UnitRole role, const X *dout,
                            const X *inp, size_t C, size_t OC)
{
    const Params *params = ctx->params;
    const Param *row = &params->row[unit->row[role]];
    DevExperts some = s->experts;
    if (s->experts.sources == 1 || !ctx->dev->deterministic) {
        ctx->dev->experts_backward_weight(ctx->dev, unit_grad(ctx, unit, role), dout, inp, C, OC, some);
        return;
    }
    some.sources = 1;
    for (size_t i = 0; i < s->experts.sources; i++, some.offset += some.E) {
        float *unit_of_source = ctx->grad[i * (size_t)params->n_units + (size_t)row->unit];
        ctx->dev->experts_backward_weight(ctx->dev, unit_of_source + (row->offset - ctx->begin[row->unit]), dout, inp, C,
                                          OC, some);
    }
}

// weights: with the gradients of the experts' weights.
static void backward_rows(const UnitContext *ctx, const Unit *unit, const X *x, void *const *saved, const Batch *batch,
                          bool weights)
{
    Dev *dev = ctx->dev;
    Slots s = slots_of(ctx, unit, batch);
    X *in = s.away ? (X *)saved[EXPERTS_IN] : s.rows;
    float *dgates = s.away ? s.dgates : s.dgate;
    arrive(ctx, &s);
    if (weights)
        weight_gradient(ctx, unit, &s, W_EXPERTS_DOWN, s.others, (X *)saved[EXPERTS_ACT], s.F, s.C);
    dev->experts_backward_input(dev, s.dact, s.others, unit_weight(ctx, unit, W_EXPERTS_DOWN), s.F, s.C, s.experts);
    dev->zero(dev, dgates, s.came * sizeof *dgates); // a dropped slot has no part in the output
    dev->experts_swiglu_backward(dev, s.dpre, dgates, s.dact, (X *)saved[EXPERTS_PRE], gates_of(&s, saved),
                                 s.away ? NULL : s.slot, s.came, s.F);
    send_back(ctx, &s, s.gates, dgates, sizeof *dgates);
    if (!s.away) dev->experts_gather(dev, in, x, s.slot, s.R, s.x->k, s.C);
    if (weights) weight_gradient(ctx, unit, &s, W_EXPERTS_IN, s.dpre, in, s.C, 2 * s.F);
    DevRange range[2 * LINEAR_PARTS];
    dev->experts_backward_input(dev, s.others, s.dpre, unit_weight(ctx, unit, W_EXPERTS_IN), s.C, 2 * s.F,
                                over_columns(ctx, &s, 2, range));
    complete_rows(ctx, &s);
    send_back(ctx, &s, s.rows, s.others, s.C * dev->x_bytes);
}

void experts_backward(const UnitContext *ctx, const Unit *unit, const X *x, void *const *saved, const Batch *batch)
{
    backward_rows(ctx, unit, x, saved, batch, !ctx->linear->rows_whole);
}

// On a deterministic device, where ranks share the tokens of a sequence: the gradients of weights add tokens in the
// order of the sequence. The first of these ranks has the rows of all, and computes what the gradients are made of once
// more; the others take part without a row of their own, for the ranks that divide the experts.
static void whole_gradients(const UnitContext *ctx, const Unit *unit, const Slots *own, const X *x, const Batch *batch)
{
    Whole w = whole_of(ctx->scratch[SCRATCH_WHOLE], ctx->dev, ctx->shape, batch->B * batch->T);
    Batch whole = *batch;
    void *saved[EXPERTS_SAVED] = {[EXPERTS_CHOICE] = w.choice, [EXPERTS_GATE] = w.gate, [EXPERTS_PRE] = w.pre,
                                  [EXPERTS_ACT] = w.act, [EXPERTS_IN] = w.in, [EXPERTS_GATES] = w.gates};
    size_t C = own->C, E = own->x->n;
    bool first = ctx->linear->rows_whole(ctx, w.x, x, batch->N, C * ctx->dev->x_bytes);
    ctx->linear->rows_whole(ctx, w.dlogits, own->dlogits, batch->N, E * sizeof *w.dlogits);
    whole.T *= own->x->sharers, whole.N = first ? whole.T : 0;
    Slots s = sort_with(ctx, unit, saved, &whole, experts_capacity(own->x, whole.T));
    dispatch(ctx, &s, w.in, w.x);
    dispatch_gates(ctx, &s, saved);
    experts_forward(ctx, unit, saved, &whole, false);
    dispatch(ctx, &s, s.others, w.dout);
    backward_rows(ctx, unit, w.x, saved, &whole, true);
    arrive(ctx, &s);
    if (first)
        ctx->dev->router_backward(ctx->dev, w.dout, unit_grad(ctx, unit, W_ROUTER), w.dlogits, w.x,
                                  unit_weight(ctx, unit, W_ROUTER), whole.N, C, E);
}

// Adds n tokens to the sums that the metrics want. even (E): share of each expert times `slots`; NULL: there is none.
// Each term is rounded to a multiple of 2^-20, so that sums are exact and the same whatever the order and the ranks.
static void add_sums(Dev *dev, double *sum, const float *logits, const float *gate, const float *even, double slots,
                     size_t n, const ModelExperts *x)
{
    size_t E = x->n, k = x->k;
    float *z = malloc((n * (E + k) + E) * sizeof *z), *g = z + n * E, *f = g + n * k;
    if (!z) die("experts: no memory for the scores of %zu tokens", n);
    dev->to_host(dev, z, logits, n * E * sizeof *z);
    dev->to_host(dev, g, gate, n * k * sizeof *g);
    if (even) dev->to_host(dev, f, even, E * sizeof *f);
    for (size_t i = 0; i < n; i++, z += E, g += k) {
        double top = z[0], exps = 0, scores = 0, along = 0, largest = 0;
        for (size_t e = 0; e < E; e++) top = fmax(top, z[e]);
        for (size_t e = 0; e < E; e++) {
            double s = x->sigmoid ? 1 / (1 + exp(-z[e])) : exp(z[e] - top);
            exps += exp(z[e] - top), scores += s;
            if (even) along += f[e] * s;
        }
        for (size_t j = 0; j < k; j++) largest = fmax(largest, g[j]);
        double term[EXPERTS_SUMS] = {1, largest, (double)E * along / (slots * scores), pow(top + log(exps), 2)};
        for (int t = 0; t < EXPERTS_SUMS; t++) sum[t] += rint(term[t] * 0x1p20);
    }
    free(z - n * E);
}

// dlogits, with the losses on the router alone:
//
//   balance    coef E sum_e f_e P_e    f_e the share of expert e in the slots (sum 1), P_e the mean of P over tokens: of
//              each sequence, f_e = count / (T k); or of the whole batch, with the shares of the step before
//   z          z_coef times the mean of lse^2
//
// Each is a mean over tokens, and over the sequences of the global batch.
static void route_backward(const UnitContext *ctx, const Unit *unit, const Slots *s, void *const *saved,
                           const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelExperts *x = s->x;
    const float *logits = (float *)saved[EXPERTS_LOGITS], *load = ctx->experts ? ctx->experts[unit->index].load : NULL;
    const int32_t *choice = (int32_t *)saved[EXPERTS_CHOICE], *all = choice;
    double *sum = ctx->experts ? ctx->experts[unit->index].sum : NULL;
    size_t E = x->n, k = x->k, T = batch->T * sharers_of(x), each = s->N; // tokens of a sequence, of a call
    double mean = batch->each / (double)T, coef = x->balance_coef * (double)E * mean;
    bool balanced = batch->each > 0 && x->balance == MOE_BALANCE_SEQUENCE;
    if (balanced) {
        size_t N = s->N * sharers_of(x);
        if (N > s->N) all = whole_of(ctx->scratch[SCRATCH_WHOLE], dev, ctx->shape, s->N).choice;
        dev->experts_count(dev, s->count, all, NULL, N, T, k, E);
        coef /= (double)(T * k), each = batch->T;
    }
    for (size_t n = 0; n < s->N; n += each) {
        const float *even = balanced ? s->count + n / batch->T * (E + 1) : x->balance == MOE_BALANCE_BATCH ? load : NULL;
        if (sum)
            add_sums(dev, sum, logits + n * E, (float *)saved[EXPERTS_GATE] + n * k, even,
                     balanced ? (double)(T * k) : 1, each, x);
        dev->route_backward(dev, s->dlogits + n * E, s->dgate + n * k, logits + n * E, choice + n * k, even,
                            (float)coef, (float)(x->z_coef * mean), each, each, router_of(x));
    }
}

void experts_backward_end(const UnitContext *ctx, const Unit *unit, X *dx, const X *x, void *const *saved,
                          const Batch *batch)
{
    Dev *dev = ctx->dev;
    Slots s = slots_of(ctx, unit, batch);
    const int32_t *choice = (int32_t *)saved[EXPERTS_CHOICE];
    arrive(ctx, &s);
    if (s.away) dev->experts_pick(dev, s.dgate, s.gates, s.row, s.R);
    if (ctx->experts && first_rank(ctx)) {
        dev->experts_count(dev, s.count, choice, s.row, s.N, s.N, s.x->k, s.x->n);
        dev->accumulate(dev, ctx->experts[unit->index].count, s.count, s.x->n + 1);
    }
    dev->experts_combine(dev, dx, s.rows, s.row, s.N, s.x->k, s.C);
    ctx->linear->complete_floats(ctx, s.dgate, s.R);
    route_backward(ctx, unit, &s, saved, batch);
    float *dweight = unit_grad(ctx, unit, W_ROUTER);
    if (ctx->linear->rows_whole)
        dweight = whole_of(ctx->scratch[SCRATCH_WHOLE], dev, ctx->shape, batch->B * batch->T).dweight;
    X *share = first_rank(ctx) ? dx : s.rows; // else of nobody
    dev->router_backward(dev, share, dweight, s.dlogits, x, unit_weight(ctx, unit, W_ROUTER), s.N, s.C, s.x->n);
    if (ordered(ctx) && !first_rank(ctx)) dev->zero(dev, dx, s.N * s.C * dev->x_bytes);
    if (ctx->linear->rows_whole) whole_gradients(ctx, unit, &s, x, batch);
}

void experts_add_shared(const UnitContext *ctx, X *dx, size_t N)
{
    X *shared = (X *)ctx->scratch[SCRATCH_ROWS];
    size_t n = N * ctx->shape->channels;
    if (ordered(ctx)) ctx->linear->complete_floats(ctx, (float *)shared, n);
    if (!ordered(ctx) || first_rank(ctx)) ctx->dev->add(ctx->dev, dx, dx, shared, n);
}
