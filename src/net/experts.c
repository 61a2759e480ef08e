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
// Rejected: a buffer for each expert of a fixed size (a model without drops would need the worst case); one tensor for
// all experts of a layer (Muon, Adafactor and norms would take them for one matrix; a file for Transformers has one
// each).
#include "net/experts.h"

#include "base/check.h"

#include <math.h>

size_t experts_capacity(const ModelExperts *x, size_t T)
{
    double slots = x->capacity * (double)(T * x->k) / (double)x->n;
    return x->capacity > 0 ? (size_t)ceilf((float)slots) : 0; // 22.000000000000004 are 22
}

void experts_saved(BufferList *list, const Dev *dev, const ModelShape *s, size_t N)
{
    const ModelExperts *x = &s->experts;
    size_t R = N * x->k;
    unit_list_add(list, "router", BUFFER_STAT, N * x->n, sizeof(float));
    unit_list_add(list, "choice", BUFFER_STAT, R, sizeof(int32_t));
    unit_list_add(list, "gate", BUFFER_STAT, R, sizeof(float));
    unit_list_add(list, "experts_pre", BUFFER_ACT, R * 2 * x->ffn, dev->x_bytes);
    unit_list_add(list, "experts_act", BUFFER_CHEAP, R * x->ffn, dev->x_bytes);
}

// Rows of C elements, and the sum of the experts; the gradients of SwiGLU's output and input; those of gates and
// logits, and counts; offsets, the row of each slot, the slot of each row.
void experts_scratch(BufferList *list, const Dev *dev, const ModelShape *s, size_t N)
{
    const ModelExperts *x = &s->experts;
    size_t R = N * x->k, E = x->n, sum = x->shared ? N : 0;
    unit_list_add(list, "experts' rows", BUFFER_ACT, (R + sum) * s->channels, dev->x_bytes);
    unit_list_add(list, "experts' wide rows", BUFFER_ACT, R * 3 * x->ffn, dev->x_bytes);
    unit_list_add(list, "routing", BUFFER_STAT, R + N * E + (N + 1) * (E + 1), sizeof(float));
    unit_list_add(list, "order of slots", BUFFER_STAT, E + 1 + 2 * R, sizeof(int32_t));
}

// A batch's slots, sorted, and the scratch that backward uses.
typedef struct {
    const ModelExperts *x;
    size_t N, R, C, F;
    int32_t *offset, *row, *slot;
    X *rows, *dpre, *dact;
    float *dgate, *dlogits, *count;
    DevExperts in, down; // of either matrix
} Slots;

static DevRouter router_of(const ModelExperts *x)
{
    return (DevRouter){.E = x->n, .k = x->k, .groups = x->groups, .best = x->best, .sigmoid = x->sigmoid,
                       .renorm = x->renorm, .scale = x->scale};
}

static Slots slots_of(const UnitContext *ctx, const Unit *unit, const Batch *batch)
{
    const ModelExperts *x = &ctx->shape->experts;
    Slots s = {.x = x, .N = batch->N, .R = batch->N * x->k, .C = ctx->shape->channels, .F = x->ffn};
    s.offset = (int32_t *)ctx->scratch[SCRATCH_ORDER], s.row = s.offset + x->n + 1, s.slot = s.row + s.R;
    s.rows = (X *)ctx->scratch[SCRATCH_ROWS];
    s.dpre = (X *)ctx->scratch[SCRATCH_ROWS_WIDE];
    s.dact = (X *)((char *)s.dpre + s.R * 2 * s.F * ctx->dev->x_bytes);
    s.dgate = (float *)ctx->scratch[SCRATCH_ROUTE], s.dlogits = s.dgate + s.R, s.count = s.dlogits + s.N * x->n;
    // An expert's rows of the table follow each other: gate, up, down, then those of the next expert.
    s.in = s.down = (DevExperts){.offset = s.offset, .E = x->n, .R = s.R, .stride = 3 * s.F * s.C};
    check(unit->row[W_EXPERTS_DOWN] == unit->row[W_EXPERTS_IN] + 2);
    return s;
}

static void sort(const UnitContext *ctx, const Slots *s, void *const *saved, const Batch *batch)
{
    size_t cap = batch->train ? experts_capacity(s->x, batch->T) : 0; // evaluation drops nothing
    ctx->dev->experts_sort(ctx->dev, s->offset, s->row, s->slot, (int32_t *)saved[EXPERTS_CHOICE],
                           (float *)saved[EXPERTS_GATE], s->N, batch->T, s->x->k, s->x->n, cap, s->x->by_gate);
}

void experts_forward(const UnitContext *ctx, const Unit *unit, X *out, const X *x, void *const *saved,
                     const Batch *batch)
{
    Dev *dev = ctx->dev;
    Slots s = slots_of(ctx, unit, batch);
    float *logits = (float *)saved[EXPERTS_LOGITS], *gate = (float *)saved[EXPERTS_GATE];
    X *pre = (X *)saved[EXPERTS_PRE], *act = (X *)saved[EXPERTS_ACT];
    dev->router_forward(dev, logits, x, unit_weight(ctx, unit, W_ROUTER), s.N, s.C, s.x->n);
    dev->route_forward(dev, (int32_t *)saved[EXPERTS_CHOICE], gate, logits,
                       ctx->experts ? ctx->experts[unit->index].bias : NULL, s.N, router_of(s.x));
    sort(ctx, &s, saved, batch);
    dev->experts_gather(dev, s.rows, x, s.slot, s.R, s.x->k, s.C);
    dev->experts_forward(dev, pre, s.rows, unit_weight(ctx, unit, W_EXPERTS_IN), s.C, 2 * s.F, s.in);
    dev->experts_swiglu_forward(dev, act, pre, gate, s.slot, s.R, s.F);
    if (!out) return;
    dev->experts_forward(dev, s.rows, act, unit_weight(ctx, unit, W_EXPERTS_DOWN), s.F, s.C, s.down);
    dev->experts_combine(dev, out, s.rows, s.row, s.N, s.x->k, s.C);
}

void experts_restore(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch)
{
    Slots s = slots_of(ctx, unit, batch);
    sort(ctx, &s, saved, batch);
    ctx->dev->experts_swiglu_forward(ctx->dev, (X *)saved[EXPERTS_ACT], (X *)saved[EXPERTS_PRE],
                                     (float *)saved[EXPERTS_GATE], s.slot, s.R, s.F);
}

void experts_backward_down(const UnitContext *ctx, const Unit *unit, const X *dout, void *const *saved,
                           const Batch *batch)
{
    Dev *dev = ctx->dev;
    Slots s = slots_of(ctx, unit, batch);
    sort(ctx, &s, saved, batch);
    dev->experts_gather(dev, s.rows, dout, s.slot, s.R, s.x->k, s.C);
    dev->experts_backward_weight(dev, unit_grad(ctx, unit, W_EXPERTS_DOWN), s.rows, (X *)saved[EXPERTS_ACT], s.F, s.C,
                                 s.down);
    dev->experts_backward_input(dev, s.dact, s.rows, unit_weight(ctx, unit, W_EXPERTS_DOWN), s.F, s.C, s.down);
    dev->zero(dev, s.dgate, s.R * sizeof *s.dgate); // a dropped slot has no part in the output
    dev->experts_swiglu_backward(dev, s.dpre, s.dgate, s.dact, (X *)saved[EXPERTS_PRE], (float *)saved[EXPERTS_GATE],
                                 s.slot, s.R, s.F);
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
    const int32_t *choice = (int32_t *)saved[EXPERTS_CHOICE];
    size_t E = x->n, k = x->k, T = batch->T, each = s->N; // tokens of a call
    double mean = batch->each / (double)T, coef = x->balance_coef * (double)E * mean;
    bool balanced = batch->each > 0 && x->balance == MOE_BALANCE_SEQUENCE;
    if (balanced) {
        dev->experts_count(dev, s->count, choice, NULL, s->N, T, k, E);
        coef /= (double)(T * k), each = T;
    }
    for (size_t n = 0; n < s->N; n += each) {
        const float *even = balanced ? s->count + n / T * (E + 1) : x->balance == MOE_BALANCE_BATCH ? load : NULL;
        dev->route_backward(dev, s->dlogits + n * E, s->dgate + n * k, logits + n * E, choice + n * k, even,
                            (float)coef, (float)(x->z_coef * mean), each, each, router_of(x));
    }
}

void experts_backward_in(const UnitContext *ctx, const Unit *unit, X *dx, const X *x, void *const *saved,
                         const Batch *batch)
{
    Dev *dev = ctx->dev;
    Slots s = slots_of(ctx, unit, batch);
    const int32_t *choice = (int32_t *)saved[EXPERTS_CHOICE];
    if (ctx->experts) {
        dev->experts_count(dev, s.count, choice, s.row, s.N, s.N, s.x->k, s.x->n);
        dev->accumulate(dev, ctx->experts[unit->index].count, s.count, s.x->n + 1);
    }
    dev->experts_gather(dev, s.rows, x, s.slot, s.R, s.x->k, s.C);
    dev->experts_backward_weight(dev, unit_grad(ctx, unit, W_EXPERTS_IN), s.dpre, s.rows, s.C, 2 * s.F, s.in);
    dev->experts_backward_input(dev, s.rows, s.dpre, unit_weight(ctx, unit, W_EXPERTS_IN), s.C, 2 * s.F, s.in);
    dev->experts_combine(dev, dx, s.rows, s.row, s.N, s.x->k, s.C);
    route_backward(ctx, unit, &s, saved, batch);
    dev->router_backward(dev, dx, unit_grad(ctx, unit, W_ROUTER), s.dlogits, x, unit_weight(ctx, unit, W_ROUTER), s.N,
                         s.C, s.x->n);
}
