// ops_trace: one function for each op that a dense model calls in a step. Each notes its arguments, then calls the
// op of the device inside, so that what this one calls in turn is not noted.
//
// Rejected: guessing the arrays from their contents before and after; and a second description of the ops as text,
// which could disagree with ops/dev.h. Here the compiler compares each function with its entry.
#include "dev/draw/ops_trace.h"

#include "base/check.h"
#include "train/optim.h"

#include <stdlib.h>
#include <string.h>

static OpsTrace *begin(Dev *dev, const char *op)
{
    OpsTrace *t = (OpsTrace *)dev;
    if (t->n == OPS_TRACE_CALLS) die("ops_trace: more than %d calls", OPS_TRACE_CALLS);
    t->call[t->n++] = (OpsTraceCall){.op = op, .unit = t->unit, .pass = t->pass};
    return t;
}

static void note(OpsTrace *t, OpsTraceWay way, const void *array, bool is_x)
{
    OpsTraceCall *c = &t->call[t->n - 1];
    if (!array) return;
    check(c->n < OPS_TRACE_USES);
    c->use[c->n++] = (OpsTraceUse){array, way, is_x};
}

#define IS_X(p) _Generic((p), X *: true, const X *: true, float *: false, const float *: false)
#define BEGIN(op) OpsTrace *t = begin(dev, #op); Dev *in = t->inner
#define READ(p) note(t, OPS_TRACE_READ, p, IS_X(p))
#define WRITE(p) note(t, OPS_TRACE_WRITE, p, IS_X(p))
#define ADD(p) note(t, OPS_TRACE_ADD, p, IS_X(p))

// ---- products

static void matmul_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C,
                           size_t OC, int site)
{
    BEGIN(matmul_forward);
    READ(inp), READ(weight), READ(bias), WRITE(out);
    in->matmul_forward(in, out, inp, weight, bias, N, C, OC, site);
}

static void matmul_gelu_forward(Dev *dev, X *out, X *pre, const X *inp, const X *weight, const X *bias, size_t N,
                                size_t C, size_t OC, int site)
{
    BEGIN(matmul_gelu_forward);
    READ(inp), READ(weight), READ(bias), WRITE(pre), WRITE(out);
    in->matmul_gelu_forward(in, out, pre, inp, weight, bias, N, C, OC, site);
}

static void matmul_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC,
                                  int site)
{
    BEGIN(matmul_backward_input);
    READ(dout), READ(weight), WRITE(dinp);
    in->matmul_backward_input(in, dinp, dout, weight, N, C, OC, site);
}

static void matmul_gelu_backward_input(Dev *dev, X *dpre, const X *dout, const X *weight, const X *pre, size_t N,
                                       size_t C, size_t OC, int site)
{
    BEGIN(matmul_gelu_backward_input);
    READ(dout), READ(weight), READ(pre), WRITE(dpre);
    in->matmul_gelu_backward_input(in, dpre, dout, weight, pre, N, C, OC, site);
}

static void matmul_backward_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t N,
                                   size_t C, size_t OC, int site)
{
    BEGIN(matmul_backward_weight);
    READ(dout), READ(inp), ADD(dweight), ADD(dbias);
    in->matmul_backward_weight(in, dweight, dbias, dout, inp, N, C, OC, site);
}

// ---- rows

static void swiglu_forward(Dev *dev, X *out, const X *gate_up, size_t N, size_t F)
{
    BEGIN(swiglu_forward);
    READ(gate_up), WRITE(out);
    in->swiglu_forward(in, out, gate_up, N, F);
}

static void swiglu_backward(Dev *dev, X *dgate_up, const X *dout, const X *gate_up, size_t N, size_t F)
{
    BEGIN(swiglu_backward);
    READ(dout), READ(gate_up), WRITE(dgate_up);
    in->swiglu_backward(in, dgate_up, dout, gate_up, N, F);
}

static void add(Dev *dev, X *out, const X *a, const X *b, size_t n)
{
    BEGIN(add);
    READ(a), READ(b), WRITE(out);
    in->add(in, out, a, b, n);
}

static void norm_forward(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                         const X *bias, size_t N, size_t C, NormKind kind, float eps)
{
    BEGIN(norm_forward);
    READ(a), READ(b), READ(weight), READ(bias);
    if (b) WRITE(sum);
    if (kind == NORM_LAYERNORM) WRITE(mean);
    WRITE(rstd), WRITE(out);
    in->norm_forward(in, out, sum, mean, rstd, a, b, weight, bias, N, C, kind, eps);
}

static void norm_backward(Dev *dev, X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, const X *weight, size_t N, size_t C,
                          NormKind kind)
{
    BEGIN(norm_backward);
    READ(dout), READ(dresid), READ(inp), READ(rstd), READ(weight);
    if (kind == NORM_LAYERNORM) READ(mean);
    WRITE(dinp), ADD(dweight), ADD(dbias);
    in->norm_backward(in, dinp, dweight, dbias, dout, dresid, inp, mean, rstd, weight, N, C, kind);
}

static void rope_forward(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    BEGIN(rope_forward);
    READ(x), WRITE(x);
    in->rope_forward(in, x, pos, N, heads, D, ld, rope);
}

static void rope_backward(Dev *dev, X *dx, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    BEGIN(rope_backward);
    READ(dx), WRITE(dx);
    in->rope_backward(in, dx, pos, N, heads, D, ld, rope);
}

static void attention_forward(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape)
{
    BEGIN(attention_forward);
    READ(q), READ(k), READ(v), WRITE(lse), WRITE(out);
    in->attention_forward(in, out, lse, q, k, v, shape);
}

static void attention_backward(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse,
                               const X *q, const X *k, const X *v, AttnShape shape)
{
    BEGIN(attention_backward);
    READ(dout), READ(out), READ(lse), READ(q), READ(k), READ(v), WRITE(dq), WRITE(dk), WRITE(dv);
    in->attention_backward(in, dq, dk, dv, dout, out, lse, q, k, v, shape);
}

// ---- the two ends, and the update

static void embed_forward(Dev *dev, X *out, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe,
                          size_t N, size_t C)
{
    BEGIN(embed_forward);
    note(t, OPS_TRACE_READ, wte, !dev->embed_fp32), note(t, OPS_TRACE_READ, wpe, !dev->embed_fp32);
    WRITE(out);
    in->embed_forward(in, out, token, pos, wte, wpe, N, C);
}

static void embed_backward(Dev *dev, float *dwte, float *dwpe, const X *dout, const int32_t *token, const int32_t *pos,
                           size_t N, size_t C, size_t V)
{
    BEGIN(embed_backward);
    READ(dout), ADD(dwte), ADD(dwpe);
    in->embed_backward(in, dwte, dwpe, dout, token, pos, N, C, V);
}

static void softmax_xent(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t N, size_t V,
                         float scale, float cap)
{
    BEGIN(softmax_xent);
    READ(logits), WRITE(loss), WRITE(dlogits);
    in->softmax_xent(in, loss, dlogits, logits, target, N, V, scale, cap);
}

static double sum_squares(Dev *dev, const float *x, size_t n)
{
    BEGIN(sum_squares);
    READ(x);
    return in->sum_squares(in, x, n);
}

static void update(Dev *dev, OptimName rule, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    OpsTrace *t = begin(dev, optim_kind(rule)->name);
    Dev *in = t->inner;
    READ(grad), READ(weight), READ(m), READ(v), WRITE(m), WRITE(v), WRITE(weight), WRITE(grad), WRITE(u.copy);
    in->update(in, rule, weight, m, v, grad, n, u);
}

static void to_x(Dev *dev, X *out, const float *inp, size_t n)
{
    BEGIN(to_x);
    READ(inp), WRITE(out);
    in->to_x(in, out, inp, n);
}

// ---- the device

static void not_known(void)
{
    die("ops_trace: the model calls an op that is not known here (try a dense model without dropout, with AdamW)");
}

// Entries that move bytes without computing: left as they are.
static bool moves(const char *op)
{
    static const char *const name[] = {"to_device", "to_host", "zero", "from_x"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (!strcmp(op, name[i])) return true;
    return false;
}

OpsTrace *ops_trace_create(Dev *inner)
{
    OpsTrace *t = calloc(1, sizeof *t);
    if (!t) die("ops_trace: no memory");
    size_t n;
    const DevOp *op = dev_ops(&n);
    void (*none)(void) = not_known;
    t->dev = *inner, t->inner = inner, t->unit = OPS_TRACE_NO_UNIT;
    for (size_t i = 0; i < n; i++)
        if (!moves(op[i].name)) memcpy((char *)&t->dev + op[i].at, &none, sizeof none);
    Dev *d = &t->dev;
    d->matmul_forward = matmul_forward, d->matmul_gelu_forward = matmul_gelu_forward;
    d->matmul_backward_input = matmul_backward_input, d->matmul_backward_weight = matmul_backward_weight;
    d->matmul_gelu_backward_input = matmul_gelu_backward_input;
    d->swiglu_forward = swiglu_forward, d->swiglu_backward = swiglu_backward, d->add = add;
    d->norm_forward = norm_forward, d->norm_backward = norm_backward;
    d->rope_forward = rope_forward, d->rope_backward = rope_backward;
    d->attention_forward = attention_forward, d->attention_backward = attention_backward;
    d->embed_forward = embed_forward, d->embed_backward = embed_backward, d->softmax_xent = softmax_xent;
    d->sum_squares = sum_squares, d->update = update, d->to_x = to_x;
    return t;
}

void ops_trace_free(OpsTrace *trace)
{
    free(trace);
}

static void unit_begins(void *self, int unit, UnitPass pass)
{
    OpsTrace *t = self;
    t->unit = unit, t->pass = pass;
}

static void unit_ends(void *self, int unit, UnitPass pass)
{
    (void)unit, (void)pass;
    ((OpsTrace *)self)->unit = OPS_TRACE_NO_UNIT;
}

void ops_trace_follow(OpsTrace *trace, Model *model)
{
    check(model->dev == &trace->dev);
    model->hooks = (UnitHooks){.self = trace, .before = unit_begins, .after = unit_ends};
}
