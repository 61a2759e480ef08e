// narrow: bf16 and fp16 storage on the CPU, with fp32 arithmetic.
//
//   op on X arrays = round(inner op(widen(inputs)))
//   a product      = round(widen(inp) widen(weight)^T + bias)                 and likewise the two products of backward
//   fp8:  x -> e(x) / s,  e(x) = saturate(round(x s)) in E4M3 (inp, weight) or E5M2 (dout),  s = scale of fp8.h
//
// The invariant: a stored number is rounded once, from the fp32 result of the op that stores it, and every later
// reader sees the rounded one. That holds within a fused op too: where the op stores an intermediate (`sum` of the
// norm, `pre` of the GELU), the rest is computed from the stored number. So backward is the derivative of the function
// that forward computed, a dropped buffer can be recomputed to the bit from a kept one, and mean and rstd belong to the
// `sum` that backward reads. (llm.c's fused residual kernel does the same.)
//
// Statistics (mean, rstd, lse), losses and all gradients of parameters stay fp32, and so do master weights and
// optimizer state, whose ops are the inner device's own; but Muon's products read bf16 operands on a bf16 device.
//
// Work is done in chunks of rows, so that the fp32 copies stay small however long the batch is: small enough for a
// thread's cache in the ops that take most time (Lanes). A chunk reads all that
// it needs of its rows before it writes any, so arrays that may overlap in the op table (an output that is an input,
// dresid that is dinp) may overlap here. Rows of an activation do not depend on each other, so the chunks do not change
// their bits. Gradients of parameters are summed over rows in fp32, and there the chunks set the order of the sum; they
// follow from the shape alone, so bits do not depend on threads.
//
// Rejected: conversion inside each CPU op (every loop would exist three times); whole arrays widened at once (the
// logits alone would take more than all weights); fp16 that saturates: overflow must become Inf, or the loss scaler
// would not see it.
#include "narrow/narrow.h"

#include "base/check.h"
#include "ops/dev_cpu.h"
#include "formats/gemm_bf16.h"
#include "ops/activation.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { NARROW_PIECE = 4096 }; // elements that a thread converts at a time

static inline const X *narrow_at(const X *x, size_t i)
{
    return x ? (const X *)((const char *)x + 2 * i) : x;
}

static inline X *narrow_to(X *x, size_t i)
{
    return x ? (X *)((char *)x + 2 * i) : x;
}

// How many of the n rows from `at` on a chunk of up to `most` has; 0 after the last one.
static size_t part_of(size_t n, size_t at, size_t most)
{
    return n - at < most ? n - at : most;
}

// ---- conversion and scratch

// Scratch buffer `room`, at least n floats; what it held is lost when it grows.
static float *narrow_room(Narrow *n, int room, size_t n_floats)
{
    if (n_floats > n->n_room[room]) {
        free(n->room[room]);
        n->room[room] = (float *)aligned_alloc(64, (n_floats * sizeof(float) + 63) / 64 * 64);
        if (!n->room[room]) die("%s: no memory for %zu floats of scratch", n->dev.name, n_floats);
        n->n_room[room] = n_floats;
    }
    return n->room[room];
}

// How many of `rows` rows of `width` elements fit a buffer: at least 1.
static size_t narrow_rows(const Narrow *n, size_t rows, size_t width)
{
    size_t fit = n->chunk_floats / width;
    return fit < 1 ? 1 : fit < rows ? fit : rows;
}

// Pieces that the threads share: a row is cut so that a flat array, one long row, is shared too.
static size_t pieces(size_t *rows, size_t *cols, size_t *ld)
{
    if (*ld == *cols) *cols = *ld = *rows * *cols, *rows = 1;
    return (*cols + NARROW_PIECE - 1) / NARROW_PIECE;
}

static void widen(const Narrow *n, float *out, const X *in, size_t rows, size_t cols, size_t ld)
{
    size_t per_row = pieces(&rows, &cols, &ld);
#pragma omp parallel for schedule(static) num_threads(n->dev.threads) if (rows * cols > 4 * NARROW_PIECE)
    for (size_t i = 0; i < rows * per_row; i++) {
        size_t r = i / per_row, c = i % per_row * NARROW_PIECE, w = cols - c < NARROW_PIECE ? cols - c : NARROW_PIECE;
        formats_to_float(out + r * cols + c, n->format, narrow_at(in, r * ld + c), w);
    }
}

// (rows, cols) elements, `ld` apart, widened into scratch buffer `room` without gaps. NULL stays NULL.
static float *narrow_read(Narrow *n, int room, const X *in, size_t rows, size_t cols, size_t ld)
{
    if (!in) return NULL;
    float *out = narrow_room(n, room, rows * cols);
    widen(n, out, in, rows, cols, ld);
    return out;
}

// The way back, rounded.
static void narrow_write(Narrow *n, X *out, const float *in, size_t rows, size_t cols, size_t ld)
{
    size_t per_row = pieces(&rows, &cols, &ld);
#pragma omp parallel for schedule(static) num_threads(n->dev.threads) if (rows * cols > 4 * NARROW_PIECE)
    for (size_t i = 0; i < rows * per_row; i++) {
        size_t r = i / per_row, c = i % per_row * NARROW_PIECE, w = cols - c < NARROW_PIECE ? cols - c : NARROW_PIECE;
        formats_from_float(narrow_to(out, r * ld + c), n->format, in + r * cols + c, w, false);
    }
}

// Pieces of rows that a thread widens, computes and rounds while they are in its cache. `room` r of a thread has `each`
// floats, enough for a piece.
enum { LANE_FLOATS = 1 << 14 };
typedef struct {
    size_t rows, each; // of a piece
    float *room[4];
} Lanes;

static Lanes lanes_make(Narrow *n, size_t N, size_t width, int rooms)
{
    size_t share = n->chunk_floats / (size_t)n->dev.threads, most = share < LANE_FLOATS ? share : LANE_FLOATS;
    size_t fit = width < most ? most / width : 1;
    Lanes l = {.rows = fit < N || N == 0 ? fit : N};
    l.each = (l.rows * width + 15) / 16 * 16;
    for (int r = 0; r < rooms; r++) l.room[r] = narrow_room(n, r, (size_t)n->dev.threads * l.each);
    return l;
}

static float *lane(const Lanes *l, int room)
{
    return l->room[room] + (size_t)omp_get_thread_num() * l->each;
}

// The same with n_elems elements of `in`, widened.
static float *lane_read(const Narrow *n, const Lanes *l, int room, const X *in, size_t at, size_t n_elems)
{
    if (!in) return NULL;
    formats_to_float(lane(l, room), n->format, narrow_at(in, at), n_elems);
    return lane(l, room);
}

static void lane_write(const Narrow *n, X *out, size_t at, const float *x, size_t n_elems)
{
    formats_from_float(narrow_to(out, at), n->format, x, n_elems, false);
}

// Without the sign the patterns of both formats are ordered as their
// numbers are: 0 < finite < Inf < NaN.
float narrow_amax(const Narrow *n, const X *in_, size_t n_elems)
{
    const uint16_t *in = (const uint16_t *)in_;
    uint16_t top = 0;
#pragma omp parallel for simd reduction(max : top) schedule(static) num_threads(n->dev.threads) if (n_elems > 65536)
    for (size_t i = 0; i < n_elems; i++) {
        uint16_t size = in[i] & 0x7fff;
        top = size > top ? size : top;
    }
    return formats_decode(n->format, top);
}

// ---- between fp32 and X

static void to_x(Dev *dev, X *out, const float *inp, size_t n)
{
    narrow_write((Narrow *)dev, out, inp, 1, n, n);
}

static void from_x(Dev *dev, float *out, const X *inp, size_t n)
{
    widen((Narrow *)dev, out, inp, 1, n, n);
}

// ---- element-wise

static void add(Dev *dev, X *out, const X *a, const X *b, size_t n_elems)
{
    Narrow *n = (Narrow *)dev;
    Lanes l = lanes_make(n, n_elems, 1, 2);
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, n_elems))
    for (size_t i = 0; i < n_elems; i += l.rows) {
        size_t w = part_of(n_elems, i, l.rows);
        float *x = lane_read(n, &l, 0, a, i, w), *y = lane_read(n, &l, 1, b, i, w);
        n->inner->add(n->inner, (X *)x, (X *)x, (X *)y, w);
        lane_write(n, out, i, x, w);
    }
}

static void dropout(Dev *dev, X *out, const X *inp, size_t n_elems, Dropout drop)
{
    Narrow *n = (Narrow *)dev;
    size_t width = drop.row ? drop.width : 1, chunk = narrow_rows(n, n_elems / width, width) * width;
    uint64_t first = drop.first;
    const int32_t *row = drop.row;
    for (size_t i = 0, w; (w = part_of(n_elems, i, chunk)); i += w) {
        float *x = narrow_read(n, 0, narrow_at(inp, i), 1, w, w);
        if (row) drop.row = row + i / width;
        else drop.first = first + i;
        n->inner->dropout(n->inner, (X *)x, (X *)x, w, drop);
        narrow_write(n, narrow_to(out, i), x, 1, w, w);
    }
}

static void act_forward(Dev *dev, X *out, const X *pre, size_t n_elems, ActKind kind)
{
    Narrow *n = (Narrow *)dev;
    size_t chunk = narrow_rows(n, n_elems, 1);
    for (size_t i = 0, w; (w = part_of(n_elems, i, chunk)); i += w) {
        float *x = narrow_read(n, 0, narrow_at(pre, i), 1, w, w);
        n->inner->act_forward(n->inner, (X *)x, (X *)x, w, kind);
        narrow_write(n, narrow_to(out, i), x, 1, w, w);
    }
}

static void act_backward(Dev *dev, X *dpre, const X *dout, const X *pre, size_t n_elems, ActKind kind)
{
    Narrow *n = (Narrow *)dev;
    size_t chunk = narrow_rows(n, n_elems, 1);
    for (size_t i = 0, w; (w = part_of(n_elems, i, chunk)); i += w) {
        float *x = narrow_read(n, 0, narrow_at(pre, i), 1, w, w), *dy = narrow_read(n, 1, narrow_at(dout, i), 1, w, w);
        n->inner->act_backward(n->inner, (X *)dy, (X *)dy, (X *)x, w, kind);
        narrow_write(n, narrow_to(dpre, i), dy, 1, w, w);
    }
}

static void swiglu_forward(Dev *dev, X *out, const X *gate_up, size_t N, size_t F)
{
    Narrow *n = (Narrow *)dev;
    Lanes l = lanes_make(n, N, 2 * F, 2);
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, N * F))
    for (size_t r = 0; r < N; r += l.rows) {
        size_t h = part_of(N, r, l.rows);
        float *g = lane_read(n, &l, 0, gate_up, r * 2 * F, h * 2 * F), *y = lane(&l, 1);
        n->inner->swiglu_forward(n->inner, (X *)y, (X *)g, h, F);
        lane_write(n, out, r * F, y, h * F);
    }
}

static void swiglu_backward(Dev *dev, X *dgate_up, const X *dout, const X *gate_up, size_t N, size_t F)
{
    Narrow *n = (Narrow *)dev;
    Lanes l = lanes_make(n, N, 2 * F, 3);
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, N * F))
    for (size_t r = 0; r < N; r += l.rows) {
        size_t h = part_of(N, r, l.rows);
        float *g = lane_read(n, &l, 0, gate_up, r * 2 * F, h * 2 * F), *dy = lane_read(n, &l, 1, dout, r * F, h * F);
        float *dg = lane(&l, 2);
        n->inner->swiglu_backward(n->inner, (X *)dg, (X *)dy, (X *)g, h, F);
        lane_write(n, dgate_up, r * 2 * F, dg, h * 2 * F);
    }
}

// ---- embedding. The rows that the tokens ask for are widened, not the table: so the inner op gets a small
// table whose row i is for row i. A table in fp32 (Dev.embed_fp32) is copied.

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

static float *lookup(Narrow *n, int room, const X *table, const int32_t *index, size_t rows, size_t C, bool fp32)
{
    if (!table) return NULL;
    float *out = narrow_room(n, room, rows * C);
#pragma omp parallel for schedule(static) num_threads(n->dev.threads)
    for (size_t r = 0; r < rows; r++) {
        if (index[r] < 0) memset(out + r * C, 0, C * sizeof *out); // another rank's
        else if (fp32) memcpy(out + r * C, (const float *)table + (size_t)index[r] * C, C * sizeof *out);
        else formats_to_float(out + r * C, n->format, narrow_at(table, (size_t)index[r] * C), C);
    }
    return out;
}

static void embed_forward(Dev *dev, X *out, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe,
                          size_t N, size_t C)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, C);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        const int32_t *i = counting(n, h);
        float *t = lookup(n, 0, wte, token + r, h, C, dev->embed_fp32);
        float *p = lookup(n, 1, wpe, wpe ? pos + r : NULL, h, C, dev->embed_fp32);
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
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
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
    Lanes l = lanes_make(n, N, C, 2);
    float *w = narrow_read(n, 2, weight, 1, C, C), *shift = narrow_read(n, 3, bias, 1, C, C);
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, N * C))
    for (size_t r = 0; r < N; r += l.rows) {
        size_t h = part_of(N, r, l.rows);
        float *x = lane_read(n, &l, 0, a, r * C, h * C), *y = lane_read(n, &l, 1, b, r * C, h * C);
        if (b) {
            inner->add(inner, (X *)x, (X *)x, (X *)y, h * C);
            lane_write(n, sum, r * C, x, h * C);
            x = lane_read(n, &l, 0, sum, r * C, h * C); // the norm is of what was stored
        }
        y = lane(&l, 1);
        inner->norm_forward(inner, (X *)y, NULL, mean ? mean + r : NULL, rstd + r, (X *)x, NULL, (X *)w, (X *)shift,
                            h, C, kind, eps);
        lane_write(n, out, r * C, y, h * C);
    }
}

// Blocks of rows and the order of the sums over them are norm.c's.
static void norm_backward(Dev *dev, X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, const X *weight,
                          size_t N, size_t C, NormKind kind)
{
    Narrow *n = (Narrow *)dev;
    size_t n_blocks = N < NORM_BLOCKS ? N : NORM_BLOCKS;
    Lanes l = lanes_make(n, 1, C, 4);
    float *w = narrow_read(n, 4, weight, 1, C, C), *partial = dev_cpu_scratch(n->inner, n_blocks * 2 * C);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n_blocks; i++) {
        float *dw = partial + i * 2 * C;
        memset(dw, 0, 2 * C * sizeof *dw);
        for (size_t r = i * N / n_blocks; r < (i + 1) * N / n_blocks; r++) {
            float *dy = lane_read(n, &l, 0, dout, r * C, C), *skip = lane_read(n, &l, 1, dresid, r * C, C);
            float *x = lane_read(n, &l, 2, inp, r * C, C), *dx = lane(&l, 3);
            norm_cpu_backward_row(dx, dw, dbias ? dw + C : NULL, dy, skip, x, kind == NORM_LAYERNORM ? mean[r] : 0,
                                  rstd[r], w, C, kind);
            lane_write(n, dinp, r * C, dx, C);
        }
    }
    norm_cpu_add_partials(dweight, partial, n_blocks, 2 * C, C);
    if (dbias) norm_cpu_add_partials(dbias, partial + C, n_blocks, 2 * C, C);
}

static void head_norm_forward(Dev *dev, X *out, float *rstd, const X *inp, const X *weight, size_t N, size_t heads,
                              size_t D, size_t ld, float eps)
{
    Narrow *n = (Narrow *)dev;
    size_t used = heads * D, rows = narrow_rows(n, N, used);
    float *w = narrow_read(n, 0, weight, 1, D, D);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
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
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
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
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
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

// Sequences b .. b + s.B - 1 of a call, with q, k and v widened into the first three buffers, packed without gaps. at_:
// where they begin in the arrays of the call.
typedef struct {
    AttnShape s;
    size_t rows, keys, at_q, at_kv, at_out, at_lse, at_part_kv;
    const X *q, *k, *v;
} Sequences;

static Sequences sequences(Narrow *n, AttnShape s, size_t b, const X *q, const X *k, const X *v)
{
    size_t hd = s.H * s.D, gd = s.G * s.D, most = s.Tq * hd > s.Tk * gd ? s.Tq * hd : s.Tk * gd;
    Sequences t = {.s = s, .at_q = b * s.Tq * s.ldq, .at_kv = b * s.Tk * s.ldkv, .at_out = b * s.Tq * hd,
                   .at_lse = b * s.H * s.Tq, .at_part_kv = b * s.Tk * gd};
    t.s.B = part_of(s.B, b, narrow_rows(n, s.B, most));
    t.s.ldq = hd, t.s.ldkv = gd;
    if (s.first) t.s.first += b * s.Tq;
    t.s.drop.first += b;
    t.rows = t.s.B * s.Tq, t.keys = t.s.B * s.Tk;
    t.q = (X *)narrow_read(n, 0, narrow_at(q, t.at_q), t.rows, hd, s.ldq);
    t.k = (X *)narrow_read(n, 1, narrow_at(k, t.at_kv), t.keys, gd, s.ldkv);
    t.v = (X *)narrow_read(n, 2, narrow_at(v, t.at_kv), t.keys, gd, s.ldkv);
    return t;
}

// Whether all products of attention are bf16. In deterministic mode, and in pieces, P stays fp32 (attention_bf16.c).
static bool rounds_p(const Narrow *n, AttnShape s)
{
    return n->hardware && !n->inner->deterministic && !s.T;
}

static float *attention_room(Narrow *n, AttnShape s, bool backward)
{
    return dev_cpu_scratch(n->inner, (size_t)n->dev.threads * attention_bf16_room(s, backward));
}

static void attention_forward(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Narrow *n = (Narrow *)dev;
    size_t hd = s.H * s.D;
    if (rounds_p(n, s)) {
        attention_bf16_forward(dev->threads, attention_room(n, s, false), (uint16_t *)out, lse, (const uint16_t *)q,
                               (const uint16_t *)k, (const uint16_t *)v, s);
        return;
    }
    for (size_t b = 0, B; b < s.B; b += B) {
        Sequences t = sequences(n, s, b, q, k, v);
        float *y = narrow_room(n, 3, t.rows * hd);
        n->inner->attention_forward(n->inner, (X *)y, lse ? lse + t.at_lse : NULL, t.q, t.k, t.v, t.s);
        narrow_write(n, narrow_to(out, t.at_out), y, t.rows, hd, hd);
        B = t.s.B;
    }
}

static void attention_backward(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse,
                               const X *q, const X *k, const X *v, AttnShape s)
{
    Narrow *n = (Narrow *)dev;
    size_t hd = s.H * s.D, gd = s.G * s.D;
    if (rounds_p(n, s)) {
        attention_bf16_backward(dev->threads, attention_room(n, s, true), (uint16_t *)dq, (uint16_t *)dk,
                                (uint16_t *)dv, (const uint16_t *)dout, (const uint16_t *)out, lse, (const uint16_t *)q,
                                (const uint16_t *)k, (const uint16_t *)v, s);
        return;
    }
    for (size_t b = 0, B; b < s.B; b += B) {
        Sequences t = sequences(n, s, b, q, k, v);
        float *y = narrow_read(n, 3, narrow_at(out, t.at_out), t.rows, hd, hd);
        float *dy = narrow_read(n, 4, narrow_at(dout, t.at_out), t.rows, hd, hd);
        float *gq = narrow_room(n, 5, t.rows * hd), *gk = narrow_room(n, 6, t.keys * gd);
        float *gv = narrow_room(n, 7, t.keys * gd);
        n->inner->attention_backward(n->inner, (X *)gq, (X *)gk, (X *)gv, (X *)dy, (X *)y, lse + t.at_lse, t.q, t.k,
                                     t.v, t.s);
        narrow_write(n, narrow_to(dq, t.at_q), gq, t.rows, hd, s.ldq);
        narrow_write(n, narrow_to(dk, t.at_kv), gk, t.keys, gd, s.ldkv);
        narrow_write(n, narrow_to(dv, t.at_kv), gv, t.keys, gd, s.ldkv);
        B = t.s.B;
    }
}

// Pieces: what is not X is fp32 on both sides, so only the inputs are widened. Rows of dq, dk, dv have no gaps.
static void attention_part_forward(Dev *dev, float *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Narrow *n = (Narrow *)dev;
    n->inner->meanwhile = dev->meanwhile, n->inner->meanwhile_arg = dev->meanwhile_arg;
    for (size_t b = 0, B; b < s.B; b += B) {
        Sequences t = sequences(n, s, b, q, k, v);
        n->inner->attention_part_forward(n->inner, out + t.at_out, lse + t.at_lse, t.q, t.k, t.v, t.s);
        B = t.s.B;
    }
}

static void attention_part_backward(Dev *dev, float *dq, float *dk, float *dv, const X *dout, const X *out,
                                    const float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Narrow *n = (Narrow *)dev;
    size_t hd = s.H * s.D;
    n->inner->meanwhile = dev->meanwhile, n->inner->meanwhile_arg = dev->meanwhile_arg;
    for (size_t b = 0, B; b < s.B; b += B) {
        Sequences t = sequences(n, s, b, q, k, v);
        float *y = narrow_read(n, 3, narrow_at(out, t.at_out), t.rows, hd, hd);
        float *dy = narrow_read(n, 4, narrow_at(dout, t.at_out), t.rows, hd, hd);
        n->inner->attention_part_backward(n->inner, dq + t.at_out, dk + t.at_part_kv, dv + t.at_part_kv, (X *)dy,
                                          (X *)y, lse + t.at_lse, t.q, t.k, t.v, t.s);
        B = t.s.B;
    }
}

// ---- softmax and cross-entropy

static void softmax_xent(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target,
                         size_t N, size_t V, float scale, float cap)
{
    Narrow *n = (Narrow *)dev;
    Lanes l = lanes_make(n, N, V, 1);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t r = 0; r < N; r += l.rows) {
        size_t h = part_of(N, r, l.rows);
        float *z = lane_read(n, &l, 0, logits, r * V, h * V);
        n->inner->softmax_xent(n->inner, loss + r, dlogits ? (X *)z : NULL, (X *)z, target + r, h, V, scale, cap);
        if (dlogits) lane_write(n, dlogits, r * V, z, h * V);
    }
}

static void xent_max(Dev *dev, float *top, const X *logits, size_t N, size_t V)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, V);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        n->inner->xent_max(n->inner, top + r, (X *)narrow_read(n, 0, narrow_at(logits, r * V), h, V, V), h, V);
    }
}

static void xent_sum(Dev *dev, float *total, float *hit, const X *logits, const int32_t *target, const float *top,
                     size_t N, size_t V, DevParts parts, float cap)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, V);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *z = narrow_read(n, 0, narrow_at(logits, r * V), h, V, V);
        n->inner->xent_sum(n->inner, total + r, hit + r, (X *)z, target + r, top + r, h, V, parts, cap);
    }
}

static void xent_loss(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, const float *top,
                      const float *total, const float *hit, size_t N, size_t V, float scale, float cap)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, V);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *z = narrow_read(n, 0, narrow_at(logits, r * V), h, V, V);
        n->inner->xent_loss(n->inner, loss + r, dlogits ? (X *)z : NULL, (X *)z, target + r, top + r, total + r,
                            hit + r, h, V, scale, cap);
        if (dlogits) narrow_write(n, narrow_to(dlogits, r * V), z, h, V, V);
    }
}

// ---- saved activations in 8 bits

static void compress(Dev *dev, int8_t *q, float *scale, const X *inp, size_t N, size_t w)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, w), groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *x = narrow_read(n, 0, narrow_at(inp, r * w), h, w, w);
        n->inner->compress(n->inner, q + r * w, scale + r * groups, (X *)x, h, w);
    }
}

static void decompress(Dev *dev, X *out, const int8_t *q, const float *scale, size_t N, size_t w)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, N, w), groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *x = narrow_room(n, 0, h * w);
        n->inner->decompress(n->inner, (X *)x, q + r * w, scale + r * groups, h, w);
        narrow_write(n, narrow_to(out, r * w), x, h, w, w);
    }
}

// ---- matrix products
//
// Products are split into (rows of inp) x (rows of weight), and the split of weight follows from its shape alone. An
// output of forward is one inner product, never split. backward_input sums over rows of weight, and its pieces are
// added in order, whatever N is. A gradient of a weight is added piece by piece in fp32, as over micro-batches (a sum
// in bf16 would lose what is smaller than 2^-9 of it). In fp8 a tensor core would multiply the
// 8-bit numbers e(x) and divide the sum by both scales; here each operand is divided on its way in, which differs by
// an fp32 rounding of each operand. Sums are fp32 (cuBLASLt's fp8 kernels keep about 14 bits unless told to promote).

// How an operand becomes 8 bits; scale 0: it does not.
typedef struct {
    Format format;
    float scale;
} Cast;

static Cast cast_for(Narrow *n, int site, Fp8Role role, const X *tensor, size_t n_elems)
{
    if (!n->fp8 || !fp8_runs(n->fp8, site)) return (Cast){FORMAT_BF16, 0};
    return (Cast){fp8_format(role), fp8_scale(n->fp8, site, role, narrow_amax(n, tensor, n_elems))};
}

// Inlined, so that `format` is a constant and the loop vectorises.
static inline __attribute__((always_inline)) void quantise_piece(float *x, size_t n_elems, Format format, float scale)
{
    float inverse = 1 / scale;
#pragma omp simd
    for (size_t i = 0; i < n_elems; i++)
        x[i] = formats_decode(format, formats_encode(format, x[i] * scale, true)) * inverse;
}

static void quantise(const Narrow *n, float *x, size_t n_elems, Cast cast)
{
    if (cast.scale == 0) return;
#pragma omp parallel for schedule(static) num_threads(n->dev.threads)
    for (size_t i = 0; i < n_elems; i += NARROW_PIECE) {
        size_t w = part_of(n_elems, i, NARROW_PIECE);
        if (cast.format == FORMAT_E4M3) quantise_piece(x + i, w, FORMAT_E4M3, cast.scale);
        else quantise_piece(x + i, w, FORMAT_E5M2, cast.scale);
    }
}

// (rows, cols) of a matmul operand in fp32.
static float *operand(Narrow *n, int room, const X *in, size_t rows, size_t cols, size_t ld, Cast cast)
{
    float *x = narrow_read(n, room, in, rows, cols, ld);
    quantise(n, x, rows * cols, cast);
    return x;
}

// Rows of weight that one product takes, and rows of inp: buffers of (w, C), (h, C) and (h, w) all fit.
static void cut(const Narrow *n, size_t N, size_t C, size_t OC, size_t *h, size_t *w)
{
    *w = narrow_rows(n, OC, C);
    *h = narrow_rows(n, N, C > *w ? C : *w);
}

// d *= gelu'(pre)
static void gelu_slope(const Narrow *n, float *d, const float *pre, size_t n_elems)
{
#pragma omp parallel for simd schedule(static) num_threads(n->dev.threads)
    for (size_t i = 0; i < n_elems; i++) d[i] *= act_gelu_slope(pre[i]);
}

FEW_ROWS_OF(bf16, uint16_t)

// y (h, w) = x (h, C) weight (w, C)^T + b
static void product(Narrow *n, float *y, const float *x, const X *weight, const float *b, size_t h, size_t C, size_t w,
                    Cast cast, int site)
{
    if (h <= FEW_ROWS && n->format == FORMAT_BF16 && !n->fp8 && !n->inner->deterministic) { // not widened in memory
        few_rows_of_bf16(n->dev.threads, y, x, (const uint16_t *)weight, b, h, C, w);
        return;
    }
    const float *wide = operand(n, 1, weight, w, C, C, cast);
    n->inner->matmul_forward(n->inner, (X *)y, (const X *)x, (const X *)wide, (const X *)b, h, C, w, site);
}

static MatmulRoom hardware_room(Narrow *n)
{
    MatmulRoom room = {.threads = n->dev.threads, .n_floats = matmul_bf16_room(n->dev.threads, n->chunk_floats)};
    room.sums = narrow_room(n, 0, room.n_floats);
    return room;
}

static void forward(Narrow *n, X *out, X *pre, const X *inp, const X *weight, const X *bias,
                    size_t N, size_t C, size_t OC, int site, bool with_gelu)
{
    if (n->hardware) {
        matmul_bf16_forward(hardware_room(n), (uint16_t *)out, (uint16_t *)pre, (const uint16_t *)inp,
                            (const uint16_t *)weight, (const uint16_t *)bias, N, C, OC, with_gelu,
                            n->inner->deterministic ? 0 : FEW_ROWS);
        return;
    }
    Cast x_cast = cast_for(n, site, FP8_INP, inp, N * C), w_cast = cast_for(n, site, FP8_WEIGHT, weight, OC * C);
    size_t rows, cols;
    cut(n, N, C, OC, &rows, &cols);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *x = operand(n, 0, narrow_at(inp, r * C), h, C, C, x_cast);
        for (size_t c = 0, w; (w = part_of(OC, c, cols)); c += w) {
            float *b = narrow_read(n, 2, narrow_at(bias, c), 1, w, w), *y = narrow_room(n, 3, h * w);
            product(n, y, x, narrow_at(weight, c * C), b, h, C, w, w_cast, site);
            if (with_gelu) { // of the rounded pre, whether it is kept or not: `out` holds it for a moment
                X *keep = narrow_to(pre ? pre : out, r * OC + c);
                narrow_write(n, keep, y, h, w, OC);
                y = narrow_read(n, 3, keep, h, w, OC);
                float *act = narrow_room(n, 4, h * w);
                n->inner->act_forward(n->inner, (X *)act, (X *)y, h * w, ACT_GELU);
                y = act;
            }
            narrow_write(n, narrow_to(out, r * OC + c), y, h, w, OC);
        }
    }
}

static void matmul_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias,
                           size_t N, size_t C, size_t OC, int site)
{
    forward((Narrow *)dev, out, NULL, inp, weight, bias, N, C, OC, site, false);
}

static void matmul_gelu_forward(Dev *dev, X *out, X *pre, const X *inp, const X *weight, const X *bias,
                                size_t N, size_t C, size_t OC, int site)
{
    forward((Narrow *)dev, out, pre, inp, weight, bias, N, C, OC, site, true);
}

static void backward_input(Narrow *n, X *dinp, const X *dout, const X *weight, const X *pre,
                           size_t N, size_t C, size_t OC, int site)
{
    if (n->hardware) {
        matmul_bf16_backward_input(hardware_room(n), (uint16_t *)dinp, (const uint16_t *)dout, (const uint16_t *)weight,
                                   (const uint16_t *)pre, N, C, OC);
        return;
    }
    Dev *inner = n->inner;
    Cast dy_cast = cast_for(n, site, FP8_DOUT, dout, N * OC), w_cast = cast_for(n, site, FP8_WEIGHT, weight, OC * C);
    size_t rows, cols;
    cut(n, N, C, OC, &rows, &cols);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *dx = narrow_room(n, 0, h * C);
        for (size_t c = 0, w; (w = part_of(OC, c, cols)); c += w) {
            float *dy = operand(n, 1, narrow_at(dout, r * OC + c), h, w, OC, dy_cast);
            float *weight_part = operand(n, 2, narrow_at(weight, c * C), w, C, C, w_cast);
            float *part = c == 0 ? dx : narrow_room(n, 3, h * C);
            inner->matmul_backward_input(inner, (X *)part, (X *)dy, (X *)weight_part, h, C, w, site);
            if (c > 0) inner->add(inner, (X *)dx, (X *)dx, (X *)part, h * C);
        }
        if (pre) gelu_slope(n, dx, narrow_read(n, 3, narrow_at(pre, r * C), h, C, C), h * C);
        narrow_write(n, narrow_to(dinp, r * C), dx, h, C, C);
    }
}

static void matmul_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight,
                                  size_t N, size_t C, size_t OC, int site)
{
    backward_input((Narrow *)dev, dinp, dout, weight, NULL, N, C, OC, site);
}

static void matmul_gelu_backward_input(Dev *dev, X *dpre, const X *dout, const X *weight, const X *pre,
                                       size_t N, size_t C, size_t OC, int site)
{
    backward_input((Narrow *)dev, dpre, dout, weight, pre, N, C, OC, site);
}

// dbias (w) += column sums of dy (h, w): dy^T times a column of ones.
static void bias_gradient(Narrow *n, float *dbias, const float *dy, size_t h, size_t w, int site)
{
    float *ones = narrow_room(n, 2, h);
    for (size_t i = 0; i < h; i++) ones[i] = 1;
    n->inner->matmul_backward_weight(n->inner, dbias, NULL, (const X *)dy, (X *)ones, h, 1, w, site);
}

static void matmul_backward_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp,
                                   size_t N, size_t C, size_t OC, int site)
{
    Narrow *n = (Narrow *)dev;
    if (n->hardware) {
        matmul_bf16_backward_weight(dev->threads, dweight, dbias, (const uint16_t *)dout, (const uint16_t *)inp, N, C,
                                    OC);
        return;
    }
    Dev *inner = n->inner;
    Cast dy_cast = cast_for(n, site, FP8_DOUT, dout, N * OC), x_cast = cast_for(n, site, FP8_INP, inp, N * C);
    size_t rows, cols;
    cut(n, N, C, OC, &rows, &cols);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *x = operand(n, 0, narrow_at(inp, r * C), h, C, C, x_cast);
        for (size_t c = 0, w; (w = part_of(OC, c, cols)); c += w) {
            float *dy = narrow_read(n, 1, narrow_at(dout, r * OC + c), h, w, OC), *db = dbias ? dbias + c : NULL;
            if (db && dy_cast.scale != 0) { // the bias is no matmul: its gradient sums dout as stored
                bias_gradient(n, db, dy, h, w, site);
                db = NULL;
            }
            quantise(n, dy, h * w, dy_cast);
            inner->matmul_backward_weight(inner, dweight + c * C, db, (X *)dy, (X *)x, h, C, w, site);
        }
    }
}

// Sums in parts do not keep the bits across layouts here: what ranks exchange is rounded anyway.
static void matmul_parts_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C,
                                 size_t OC, DevParts parts, int site)
{
    (void)parts;
    matmul_forward(dev, out, inp, weight, bias, N, C, OC, site);
}

static void matmul_parts_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C,
                                        size_t OC, DevParts parts, int site)
{
    (void)parts;
    matmul_backward_input(dev, dinp, dout, weight, N, C, OC, site);
}

// ---- the device

// ---- mixture of experts: the router in fp32 with the stored numbers; products by expert; rows as they are

static void router_forward(Dev *dev, float *logits, const X *inp, const X *weight, size_t N, size_t C, size_t E)
{
    Narrow *n = (Narrow *)dev;
    float *w = narrow_read(n, 1, weight, E, C, C);
    size_t rows = narrow_rows(n, N, C);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *x = narrow_read(n, 0, narrow_at(inp, r * C), h, C, C);
        n->inner->router_forward(n->inner, logits + r * E, (X *)x, (X *)w, h, C, E);
    }
}

static void router_backward(Dev *dev, X *dinp, float *dweight, const float *dlogits, const X *inp, const X *weight,
                            size_t N, size_t C, size_t E)
{
    Narrow *n = (Narrow *)dev;
    float *w = narrow_read(n, 1, weight, E, C, C);
    size_t rows = narrow_rows(n, N, C);
    for (size_t r = 0, h; (h = part_of(N, r, rows)); r += h) {
        float *x = narrow_read(n, 0, narrow_at(inp, r * C), h, C, C);
        float *dx = narrow_read(n, 2, narrow_at(dinp, r * C), h, C, C);
        n->inner->router_backward(n->inner, (X *)dx, dweight, dlogits + r * E, (X *)x, (X *)w, h, C, E);
        narrow_write(n, narrow_to(dinp, r * C), dx, h, C, C);
    }
}

static void experts_gather(Dev *dev, X *out, const X *inp, const int32_t *slot, size_t R, size_t k, size_t C)
{
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, R * C))
    for (size_t r = 0; r < R; r++) {
        if (slot[r] < 0) memset(narrow_to(out, r * C), 0, 2 * C);
        else memcpy(narrow_to(out, r * C), narrow_at(inp, (size_t)slot[r] / k * C), 2 * C);
    }
}

static void experts_combine(Dev *dev, X *out, const X *inp, const int32_t *row, size_t N, size_t k, size_t C)
{
    enum { PIECE = 256 };
    const Narrow *n = (const Narrow *)dev;
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, N * k * C))
    for (size_t t = 0; t < N; t++)
        for (size_t c = 0; c < C; c += PIECE) {
            size_t w = C - c < PIECE ? C - c : PIECE;
            float sum[PIECE] = {0}, one[PIECE];
            for (size_t j = 0; j < k; j++) {
                if (row[t * k + j] < 0) continue;
                formats_to_float(one, n->format, narrow_at(inp, (size_t)row[t * k + j] * C + c), w);
                for (size_t i = 0; i < w; i++) sum[i] += one[i];
            }
            formats_from_float(narrow_to(out, t * C + c), n->format, sum, w, false);
        }
}

static void experts_swiglu_forward(Dev *dev, X *out, const X *gate_up, const float *gate, const int32_t *slot, size_t R,
                                   size_t F)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, R, 2 * F);
    for (size_t r = 0, h; (h = part_of(R, r, rows)); r += h) {
        float *g = narrow_read(n, 0, narrow_at(gate_up, r * 2 * F), h, 2 * F, 2 * F), *y = narrow_room(n, 1, h * F);
        n->inner->experts_swiglu_forward(n->inner, (X *)y, (X *)g, slot ? gate : gate + r, slot ? slot + r : NULL, h,
                                         F);
        narrow_write(n, narrow_to(out, r * F), y, h, F, F);
    }
}

static void experts_swiglu_backward(Dev *dev, X *dgate_up, float *dgate, const X *dout, const X *gate_up,
                                    const float *gate, const int32_t *slot, size_t R, size_t F)
{
    Narrow *n = (Narrow *)dev;
    size_t rows = narrow_rows(n, R, 2 * F);
    for (size_t r = 0, h; (h = part_of(R, r, rows)); r += h) {
        float *g = narrow_read(n, 0, narrow_at(gate_up, r * 2 * F), h, 2 * F, 2 * F);
        float *dy = narrow_read(n, 1, narrow_at(dout, r * F), h, F, F), *dg = narrow_room(n, 2, h * 2 * F);
        size_t at = slot ? 0 : r;
        n->inner->experts_swiglu_backward(n->inner, (X *)dg, dgate + at, (X *)dy, (X *)g, gate + at,
                                          slot ? slot + r : NULL, h, F);
        narrow_write(n, narrow_to(dgate_up, r * 2 * F), dg, h, 2 * F, 2 * F);
    }
}

// First row and number of rows of expert e.
static size_t rows_of(DevExperts x, size_t group, size_t *first)
{
    *first = (size_t)x.offset[group];
    return (size_t)(x.offset[group + 1] - x.offset[group]);
}

static void experts_rows(Narrow *n, X *out, const X *a, const X *weight, bool back, size_t K, size_t W, DevExperts x)
{
    size_t r, h, groups = x.sources * x.E, held = (size_t)x.offset[groups];
    for (size_t g = 0; g < groups; g++) {
        if (!(h = rows_of(x, g, &r))) continue;
        const X *own = narrow_at(weight, g % x.E * x.stride);
        if (back) backward_input(n, narrow_to(out, r * W), narrow_at(a, r * K), own, NULL, h, W, K, -1);
        else forward(n, narrow_to(out, r * W), NULL, narrow_at(a, r * K), own, NULL, h, K, W, -1, false);
    }
    memset(narrow_to(out, held * W), 0, 2 * (x.R - held) * W);
}

static void experts_forward(Dev *dev, X *out, const X *inp, const X *weight, size_t C, size_t OC, DevExperts x)
{
    experts_rows((Narrow *)dev, out, inp, weight, false, C, OC, x);
}

static void experts_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t C, size_t OC,
                                   DevExperts x)
{
    experts_rows((Narrow *)dev, dinp, dout, weight, true, OC, C, x);
}

static void experts_backward_weight(Dev *dev, float *dweight, const X *dout, const X *inp, size_t C, size_t OC,
                                    DevExperts x)
{
    for (size_t g = 0, r, h; g < x.sources * x.E; g++)
        if ((h = rows_of(x, g, &r)))
            matmul_backward_weight(dev, dweight + g % x.E * x.stride, NULL, narrow_at(dout, r * OC),
                                   narrow_at(inp, r * C), h, C, OC, -1);
}

// Its arrays are fp32; what its products read is bf16 (updates_matrix.c).
static void muon(Dev *dev, float *weight, float *m, float *row, float *grad, float *scratch, size_t R, size_t C,
                 Update u)
{
    const Narrow *n = (const Narrow *)dev;
    updates_matrix_muon(dev, n->hardware ? MUON_BF16 : MUON_ROUNDED, weight, m, row, grad, scratch, R, C, u);
}

// What is fp32 on all sides, and what moves bytes: the inner device's own functions. They are called with this device,
// of which they read `threads` and `x_bytes`, and call no entry that is not among these.
static void take_over(Dev *dev, const Dev *inner)
{
    dev->sum_squares = inner->sum_squares;
    dev->sum_squares_exact = inner->sum_squares_exact;
    dev->update = inner->update;
    dev->adamw8bit = inner->adamw8bit;
    dev->adafactor = inner->adafactor;
    dev->muon = inner->muon;
    dev->accumulate = inner->accumulate;
    dev->subtract = inner->subtract;
    dev->clip_units = inner->clip_units;
    dev->to_device = inner->to_device;
    dev->to_host = inner->to_host;
    dev->zero = inner->zero;
    dev->copy = inner->copy;
    dev->attention_merge = inner->attention_merge;
    dev->route_forward = inner->route_forward;
    dev->route_backward = inner->route_backward;
    dev->experts_count = inner->experts_count;
    dev->experts_sort = inner->experts_sort;
    dev->experts_pick = inner->experts_pick;
}

static void fill(Dev *dev)
{
    dev->to_x = to_x;
    dev->from_x = from_x;
    dev->matmul_parts_forward = matmul_parts_forward;
    dev->matmul_parts_backward_input = matmul_parts_backward_input;
    dev->matmul_forward = matmul_forward;
    dev->matmul_gelu_forward = matmul_gelu_forward;
    dev->matmul_backward_input = matmul_backward_input;
    dev->matmul_gelu_backward_input = matmul_gelu_backward_input;
    dev->matmul_backward_weight = matmul_backward_weight;
    dev->add = add;
    dev->dropout = dropout;
    dev->act_forward = act_forward;
    dev->act_backward = act_backward;
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
    dev->attention_part_backward = attention_part_backward;
    dev->softmax_xent = softmax_xent;
    dev->xent_max = xent_max;
    dev->xent_sum = xent_sum;
    dev->xent_loss = xent_loss;
    dev->compress = compress;
    dev->decompress = decompress;
    dev->router_forward = router_forward;
    dev->router_backward = router_backward;
    dev->experts_gather = experts_gather;
    dev->experts_combine = experts_combine;
    dev->experts_forward = experts_forward;
    dev->experts_backward_input = experts_backward_input;
    dev->experts_backward_weight = experts_backward_weight;
    dev->experts_swiglu_forward = experts_swiglu_forward;
    dev->experts_swiglu_backward = experts_swiglu_backward;
}

bool narrow_hardware(Bf16Products asked)
{
    return asked != PRODUCTS_WIDENED && gemm_bf16_runs();
}

Dev *narrow_create(Dev *inner, NarrowOptions o)
{
    enum { CHUNK_FLOATS = 1 << 21 };
    check(inner->x_type == X_FP32 && o.x_type != X_FP32 && (!o.fp8 || o.x_type == X_BF16));
    Narrow *n = (Narrow *)calloc(1, sizeof *n);
    if (!n) die("%s: no memory for a device over it", inner->name);
    n->inner = inner;
    n->format = o.x_type == X_BF16 ? FORMAT_BF16 : FORMAT_FP16;
    n->chunk_floats = o.chunk_floats ? o.chunk_floats : CHUNK_FLOATS;
    if (o.products == PRODUCTS_HARDWARE && !gemm_bf16_runs())
        die("%s: numerics.bf16_products = hardware: this processor has no AVX512-BF16 (try auto)", inner->name);
    n->hardware = o.x_type == X_BF16 && !o.fp8 && narrow_hardware(o.products);
    if (o.fp8) n->fp8 = fp8_create(o.scaling, o.history);
    n->dev.name = o.fp8 ? "cpu fp8" : o.x_type == X_BF16 ? "cpu bf16" : "cpu fp16";
    n->dev.x_type = o.x_type;
    n->dev.x_bytes = formats_bytes(n->format);
    n->dev.threads = inner->threads;
    n->dev.deterministic = inner->deterministic;
    n->dev.state = n;
    n->dev.fp8 = n->fp8;
    take_over(&n->dev, inner);
    fill(&n->dev);
    if (n->format == FORMAT_BF16 && !o.fp8) n->dev.muon = muon;
    dev_check_complete(&n->dev);
    return &n->dev;
}

void narrow_free(Dev *dev)
{
    if (!dev) return;
    Narrow *n = (Narrow *)dev;
    for (int i = 0; i < NARROW_ROOMS; i++) free(n->room[i]);
    free(n->count);
    fp8_free(n->fp8);
    free(n);
}
