// narrow_ops: the narrow device's ops but for the matmuls: chunks of rows through the inner device's fp32 op.
//
//   for each chunk:  widen the inputs, inner op, round the outputs
//
// The invariant: a chunk reads all that it needs of its rows before it writes any, so whatever may overlap
// in the op table (an output that is an input, dresid that is dinp) may overlap here. Rows of an activation
// do not depend on each other, so the chunks leave no mark on them. Gradients of parameters add up over
// rows in fp32, and there the chunks decide the order of the sum: by the shape alone, so that bits do not
// depend on threads.
//
// `sum` of norm_forward is rounded before the norm is taken of it. The other choice, the norm of the
// unrounded sum, would be a little more precise, but backward reads the stored sum: its mean and rstd would
// then belong to numbers that no longer exist, and a norm that recomputation makes again from `sum` would
// differ from the first.
#include "ops/narrow.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

// ---- element-wise

static void add(Dev *dev, X *out, const X *a, const X *b, size_t n_elems)
{
    Narrow *n = (Narrow *)dev;
    size_t chunk = narrow_rows(n, n_elems, 1);
    for (size_t i = 0; i < n_elems; i += chunk) {
        size_t w = n_elems - i < chunk ? n_elems - i : chunk;
        float *x = narrow_read(n, 0, narrow_at(a, i), 1, w, w), *y = narrow_read(n, 1, narrow_at(b, i), 1, w, w);
        n->inner->add(n->inner, (X *)x, (X *)x, (X *)y, w);
        narrow_write(n, narrow_to(out, i), x, 1, w, w);
    }
}

static void dropout(Dev *dev, X *out, const X *inp, size_t n_elems, Dropout drop)
{
    Narrow *n = (Narrow *)dev;
    size_t width = drop.row ? drop.width : 1, chunk = narrow_rows(n, n_elems / width, width) * width;
    uint64_t first = drop.first;
    const int32_t *row = drop.row;
    for (size_t i = 0; i < n_elems; i += chunk) {
        size_t w = n_elems - i < chunk ? n_elems - i : chunk;
        float *x = narrow_read(n, 0, narrow_at(inp, i), 1, w, w);
        if (row) drop.row = row + i / width;
        else drop.first = first + i;
        n->inner->dropout(n->inner, (X *)x, (X *)x, w, drop);
        narrow_write(n, narrow_to(out, i), x, 1, w, w);
    }
}

static void gelu_forward(Dev *dev, X *out, const X *pre, size_t n_elems)
{
    Narrow *n = (Narrow *)dev;
    size_t chunk = narrow_rows(n, n_elems, 1);
    for (size_t i = 0; i < n_elems; i += chunk) {
        size_t w = n_elems - i < chunk ? n_elems - i : chunk;
        float *x = narrow_read(n, 0, narrow_at(pre, i), 1, w, w), *y = narrow_room(n, 1, w);
        n->inner->gelu_forward(n->inner, (X *)y, (X *)x, w);
        narrow_write(n, narrow_to(out, i), y, 1, w, w);
    }
}

static void swiglu_forward(Dev *dev, X *out, const X *gate_up, size_t N, size_t F)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, 2 * F);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *g = narrow_read(n, 0, narrow_at(gate_up, r * 2 * F), h, 2 * F, 2 * F), *y = narrow_room(n, 1, h * F);
        n->inner->swiglu_forward(n->inner, (X *)y, (X *)g, h, F);
        narrow_write(n, narrow_to(out, r * F), y, h, F, F);
    }
}

static void swiglu_backward(Dev *dev, X *dgate_up, const X *dout, const X *gate_up, size_t N, size_t F)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, 2 * F);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *g = narrow_read(n, 0, narrow_at(gate_up, r * 2 * F), h, 2 * F, 2 * F);
        float *dy = narrow_read(n, 1, narrow_at(dout, r * F), h, F, F), *dg = narrow_room(n, 2, h * 2 * F);
        n->inner->swiglu_backward(n->inner, (X *)dg, (X *)dy, (X *)g, h, F);
        narrow_write(n, narrow_to(dgate_up, r * 2 * F), dg, h, 2 * F, 2 * F);
    }
}

// ---- embedding. The rows that the tokens ask for are widened, not the table: so the inner op gets a small
// table whose row i is for row i.

static const int32_t *counting(Narrow *n, size_t n_elems)
{
    if (n_elems > n->n_count) {
        free(n->count);
        n->count = (int32_t *)malloc(n_elems * sizeof *n->count);
        if (!n->count) die("%s: no memory for %zu rows", n->dev.name, n_elems);
        n->n_count = n_elems;
        for (size_t i = 0; i < n_elems; i++) n->count[i] = (int32_t)i;
    }
    return n->count;
}

static float *lookup(Narrow *n, int room, const X *table, const int32_t *index, size_t rows, size_t C)
{
    if (!table) return NULL;
    float *out = narrow_room(n, room, rows * C);
#pragma omp parallel for schedule(static) num_threads(n->dev.threads)
    for (size_t r = 0; r < rows; r++) {
        if (index[r] < 0) memset(out + r * C, 0, C * sizeof *out); // another rank's
        else formats_to_float(out + r * C, n->format, narrow_at(table, (size_t)index[r] * C), C);
    }
    return out;
}

static void embed_forward(Dev *dev, X *out, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe,
                          size_t N, size_t C)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, C);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        const int32_t *i = counting(n, h);
        float *t = lookup(n, 0, wte, token + r, h, C), *p = lookup(n, 1, wpe, wpe ? pos + r : NULL, h, C);
        float *y = narrow_room(n, 2, h * C);
        n->inner->embed_forward(n->inner, (X *)y, i, i, (X *)t, (X *)p, h, C);
        for (size_t k = 0; k < h; k++)
            if (token[r + k] < 0) memset(y + k * C, 0, C * sizeof *y);
        narrow_write(n, narrow_to(out, r * C), y, h, C, C);
    }
}

static void embed_backward(Dev *dev, float *dwte, float *dwpe, const X *dout, const int32_t *token,
                           const int32_t *pos, size_t N, size_t C, size_t V)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, C);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *dy = narrow_read(n, 0, narrow_at(dout, r * C), h, C, C);
        n->inner->embed_backward(n->inner, dwte, dwpe, (X *)dy, token + r, dwpe ? pos + r : NULL, h, C, V);
    }
}

// ---- norms

static void norm_forward(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                         const X *bias, size_t N, size_t C, NormKind kind, float eps)
{
    Narrow *n = (Narrow *)dev;
    Dev *inner = n->inner;
    size_t rows = narrow_rows(n, N, C);
    float *w = narrow_read(n, 0, weight, 1, C, C), *shift = narrow_read(n, 1, bias, 1, C, C);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *x = narrow_read(n, 2, narrow_at(a, r * C), h, C, C), *y = narrow_room(n, 3, h * C);
        if (b) {
            float *z = narrow_read(n, 4, narrow_at(b, r * C), h, C, C);
            inner->add(inner, (X *)x, (X *)x, (X *)z, h * C);
            narrow_write(n, narrow_to(sum, r * C), x, h, C, C);
            x = narrow_read(n, 2, narrow_at(sum, r * C), h, C, C); // the norm is of what was stored
        }
        inner->norm_forward(inner, (X *)y, NULL, mean ? mean + r : NULL, rstd + r, (X *)x, NULL, (X *)w, (X *)shift,
                            h, C, kind, eps);
        narrow_write(n, narrow_to(out, r * C), y, h, C, C);
    }
}

static void norm_backward(Dev *dev, X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, const X *weight,
                          size_t N, size_t C, NormKind kind)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, C);
    float *w = narrow_read(n, 0, weight, 1, C, C);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *dy = narrow_read(n, 1, narrow_at(dout, r * C), h, C, C);
        float *skip = narrow_read(n, 2, narrow_at(dresid, r * C), h, C, C);
        float *x = narrow_read(n, 3, narrow_at(inp, r * C), h, C, C), *dx = narrow_room(n, 4, h * C);
        n->inner->norm_backward(n->inner, (X *)dx, dweight, dbias, (X *)dy, (X *)skip, (X *)x, mean ? mean + r : NULL,
                                rstd + r, (X *)w, h, C, kind);
        narrow_write(n, narrow_to(dinp, r * C), dx, h, C, C);
    }
}

static void head_norm_forward(Dev *dev, X *out, float *rstd, const X *inp, const X *weight, size_t N, size_t heads,
                              size_t D, size_t ld, float eps)
{
    Narrow *n = (Narrow *)dev;
    size_t used = heads * D, rows = narrow_rows(n, N, used);
    float *w = narrow_read(n, 0, weight, 1, D, D);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *x = narrow_read(n, 1, narrow_at(inp, r * ld), h, used, ld);
        n->inner->head_norm_forward(n->inner, (X *)x, rstd + r * heads, (X *)x, (X *)w, h, heads, D, used, eps);
        narrow_write(n, narrow_to(out, r * ld), x, h, used, ld);
    }
}

static void head_norm_backward(Dev *dev, X *dinp, float *dweight, const X *dout, const X *inp, const float *rstd,
                               const X *weight, size_t N, size_t heads, size_t D, size_t ld)
{
    Narrow *n = (Narrow *)dev;
    size_t used = heads * D, rows = narrow_rows(n, N, used);
    float *w = narrow_read(n, 0, weight, 1, D, D);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *dy = narrow_read(n, 1, narrow_at(dout, r * ld), h, used, ld);
        float *x = narrow_read(n, 2, narrow_at(inp, r * ld), h, used, ld);
        n->inner->head_norm_backward(n->inner, (X *)dy, dweight, (X *)dy, (X *)x, rstd + r * heads, (X *)w, h, heads,
                                     D, used);
        narrow_write(n, narrow_to(dinp, r * ld), dy, h, used, ld);
    }
}

// ---- rope, in place

static void rotate(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope,
                   bool forward)
{
    Narrow *n = (Narrow *)dev;
    Dev *inner = n->inner;
    size_t used = heads * D, rows = narrow_rows(n, N, used);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *y = narrow_read(n, 0, narrow_at(x, r * ld), h, used, ld);
        (forward ? inner->rope_forward : inner->rope_backward)(inner, (X *)y, pos + r, h, heads, D, used, rope);
        narrow_write(n, narrow_to(x, r * ld), y, h, used, ld);
    }
}

static void rope_forward(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld,
                         Rope rope)
{
    rotate(dev, x, pos, N, heads, D, ld, rope, true);
}

static void rope_backward(Dev *dev, X *dx, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld,
                          Rope rope)
{
    rotate(dev, dx, pos, N, heads, D, ld, rope, false);
}

// ---- attention, whole sequences at a time

// The shape of sequences [b, b + *B) with q, k, v packed without gaps.
static AttnShape sequences(const Narrow *n, AttnShape s, size_t b, size_t *B)
{
    size_t q = s.Tq * s.H * s.D, kv = s.Tk * s.G * s.D, most = narrow_rows(n, s.B, q > kv ? q : kv);
    *B = s.B - b < most ? s.B - b : most;
    s.B = *B;
    s.ldq = s.H * s.D;
    s.ldkv = s.G * s.D;
    if (s.first) s.first += b * s.Tq;
    s.drop.first += b;
    return s;
}

static void attention_forward(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Narrow *n = (Narrow *)dev;
    size_t hd = s.H * s.D, gd = s.G * s.D;
    for (size_t b = 0, B; b < s.B; b += B) {
        AttnShape part = sequences(n, s, b, &B);
        float *wide_q = narrow_read(n, 0, narrow_at(q, b * s.Tq * s.ldq), B * s.Tq, hd, s.ldq);
        float *wide_k = narrow_read(n, 1, narrow_at(k, b * s.Tk * s.ldkv), B * s.Tk, gd, s.ldkv);
        float *wide_v = narrow_read(n, 2, narrow_at(v, b * s.Tk * s.ldkv), B * s.Tk, gd, s.ldkv);
        float *y = narrow_room(n, 3, B * s.Tq * hd);
        n->inner->attention_forward(n->inner, (X *)y, lse ? lse + b * s.H * s.Tq : NULL, (X *)wide_q, (X *)wide_k,
                                    (X *)wide_v, part);
        narrow_write(n, narrow_to(out, b * s.Tq * hd), y, B * s.Tq, hd, hd);
    }
}

static void attention_backward(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse,
                               const X *q, const X *k, const X *v, AttnShape s)
{
    Narrow *n = (Narrow *)dev;
    size_t hd = s.H * s.D, gd = s.G * s.D;
    for (size_t b = 0, B; b < s.B; b += B) {
        AttnShape part = sequences(n, s, b, &B);
        size_t rows = B * s.Tq, keys = B * s.Tk, at_q = b * s.Tq * s.ldq, at_kv = b * s.Tk * s.ldkv;
        float *wide_q = narrow_read(n, 0, narrow_at(q, at_q), rows, hd, s.ldq);
        float *wide_k = narrow_read(n, 1, narrow_at(k, at_kv), keys, gd, s.ldkv);
        float *wide_v = narrow_read(n, 2, narrow_at(v, at_kv), keys, gd, s.ldkv);
        float *y = narrow_read(n, 3, narrow_at(out, b * s.Tq * hd), rows, hd, hd);
        float *dy = narrow_read(n, 4, narrow_at(dout, b * s.Tq * hd), rows, hd, hd);
        float *gq = narrow_room(n, 5, rows * hd), *gk = narrow_room(n, 6, keys * gd);
        float *gv = narrow_room(n, 7, keys * gd);
        n->inner->attention_backward(n->inner, (X *)gq, (X *)gk, (X *)gv, (X *)dy, (X *)y, lse + b * s.H * s.Tq,
                                     (X *)wide_q, (X *)wide_k, (X *)wide_v, part);
        narrow_write(n, narrow_to(dq, at_q), gq, rows, hd, s.ldq);
        narrow_write(n, narrow_to(dk, at_kv), gk, keys, gd, s.ldkv);
        narrow_write(n, narrow_to(dv, at_kv), gv, keys, gd, s.ldkv);
    }
}

// Pieces: what is not X is fp32 on both sides, so only the inputs are widened. Rows of dq, dk, dv have no gaps.
static void attention_part_forward(Dev *dev, float *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Narrow *n = (Narrow *)dev;
    size_t hd = s.H * s.D, gd = s.G * s.D;
    n->inner->meanwhile = dev->meanwhile, n->inner->meanwhile_arg = dev->meanwhile_arg;
    for (size_t b = 0, B; b < s.B; b += B) {
        AttnShape part = sequences(n, s, b, &B);
        float *wide_q = narrow_read(n, 0, narrow_at(q, b * s.Tq * s.ldq), B * s.Tq, hd, s.ldq);
        float *wide_k = narrow_read(n, 1, narrow_at(k, b * s.Tk * s.ldkv), B * s.Tk, gd, s.ldkv);
        float *wide_v = narrow_read(n, 2, narrow_at(v, b * s.Tk * s.ldkv), B * s.Tk, gd, s.ldkv);
        n->inner->attention_part_forward(n->inner, out + b * s.Tq * hd, lse + b * s.H * s.Tq, (X *)wide_q, (X *)wide_k,
                                         (X *)wide_v, part);
    }
}

static void attention_merge(Dev *dev, float *out, float *lse, const float *part_out, const float *part_lse, size_t B,
                            size_t T, size_t H, size_t D)
{
    Narrow *n = (Narrow *)dev;
    n->inner->attention_merge(n->inner, out, lse, part_out, part_lse, B, T, H, D);
}

static void attention_part_backward(Dev *dev, float *dq, float *dk, float *dv, const X *dout, const X *out,
                                    const float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Narrow *n = (Narrow *)dev;
    size_t hd = s.H * s.D, gd = s.G * s.D;
    n->inner->meanwhile = dev->meanwhile, n->inner->meanwhile_arg = dev->meanwhile_arg;
    for (size_t b = 0, B; b < s.B; b += B) {
        AttnShape part = sequences(n, s, b, &B);
        size_t rows = B * s.Tq, keys = B * s.Tk, at_q = b * s.Tq * s.ldq, at_kv = b * s.Tk * s.ldkv;
        float *wide_q = narrow_read(n, 0, narrow_at(q, at_q), rows, hd, s.ldq);
        float *wide_k = narrow_read(n, 1, narrow_at(k, at_kv), keys, gd, s.ldkv);
        float *wide_v = narrow_read(n, 2, narrow_at(v, at_kv), keys, gd, s.ldkv);
        float *y = narrow_read(n, 3, narrow_at(out, b * s.Tq * hd), rows, hd, hd);
        float *dy = narrow_read(n, 4, narrow_at(dout, b * s.Tq * hd), rows, hd, hd);
        n->inner->attention_part_backward(n->inner, dq + b * s.Tq * hd, dk + b * s.Tk * gd, dv + b * s.Tk * gd, (X *)dy,
                                          (X *)y, lse + b * s.H * s.Tq, (X *)wide_q, (X *)wide_k, (X *)wide_v, part);
    }
}

static void softmax_xent(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target,
                         size_t N, size_t V, float scale)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, V);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *z = narrow_read(n, 0, narrow_at(logits, r * V), h, V, V);
        n->inner->softmax_xent(n->inner, loss + r, dlogits ? (X *)z : NULL, (X *)z, target + r, h, V, scale);
        if (dlogits) narrow_write(n, narrow_to(dlogits, r * V), z, h, V, V);
    }
}

static void xent_max(Dev *dev, float *top, const X *logits, size_t N, size_t V)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, V);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        n->inner->xent_max(n->inner, top + r, (X *)narrow_read(n, 0, narrow_at(logits, r * V), h, V, V), h, V);
    }
}

static void xent_sum(Dev *dev, float *total, float *hit, const X *logits, const int32_t *target, const float *top,
                     size_t N, size_t V, DevParts parts)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, V);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *z = narrow_read(n, 0, narrow_at(logits, r * V), h, V, V);
        n->inner->xent_sum(n->inner, total + r, hit + r, (X *)z, target + r, top + r, h, V, parts);
    }
}

static void xent_loss(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, const float *top,
                      const float *total, const float *hit, size_t N, size_t V, float scale)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, V);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *z = narrow_read(n, 0, narrow_at(logits, r * V), h, V, V);
        n->inner->xent_loss(n->inner, loss + r, dlogits ? (X *)z : NULL, (X *)z, target + r, top + r, total + r,
                            hit + r, h, V, scale);
        if (dlogits) narrow_write(n, narrow_to(dlogits, r * V), z, h, V, V);
    }
}

// ---- saved activations in 8 bits

static void compress(Dev *dev, int8_t *q, float *scale, const X *inp, size_t N, size_t w)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, w), groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *x = narrow_read(n, 0, narrow_at(inp, r * w), h, w, w);
        n->inner->compress(n->inner, q + r * w, scale + r * groups, (X *)x, h, w);
    }
}

static void decompress(Dev *dev, X *out, const int8_t *q, const float *scale, size_t N, size_t w)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, w), groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *x = narrow_room(n, 0, h * w);
        n->inner->decompress(n->inner, (X *)x, q + r * w, scale + r * groups, h, w);
        narrow_write(n, narrow_to(out, r * w), x, h, w, w);
    }
}

void narrow_ops_fill(Dev *dev)
{
    dev->add = add;
    dev->dropout = dropout;
    dev->gelu_forward = gelu_forward;
    dev->swiglu_forward = swiglu_forward;
    dev->swiglu_backward = swiglu_backward;
    dev->embed_forward = embed_forward;
    dev->embed_backward = embed_backward;
    dev->norm_forward = norm_forward;
    dev->norm_backward = norm_backward;
    dev->head_norm_forward = head_norm_forward;
    dev->head_norm_backward = head_norm_backward;
    dev->rope_forward = rope_forward;
    dev->rope_backward = rope_backward;
    dev->attention_forward = attention_forward;
    dev->attention_backward = attention_backward;
    dev->attention_part_forward = attention_part_forward;
    dev->attention_merge = attention_merge;
    dev->attention_part_backward = attention_part_backward;
    dev->softmax_xent = softmax_xent;
    dev->xent_max = xent_max;
    dev->xent_sum = xent_sum;
    dev->xent_loss = xent_loss;
    dev->compress = compress;
    dev->decompress = decompress;
}
