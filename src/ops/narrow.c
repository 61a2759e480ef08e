// narrow: bf16 and fp16 storage on the CPU, with fp32 arithmetic: the device and its conversions. The ops
// are in narrow_ops.c and narrow_matmul.c.
//
//   op on X arrays = round(inner op(widen(inputs)))
//
// The invariant: a stored number is rounded once, from the fp32 result of the op that stores it, and every
// later reader sees the rounded one. That holds within a fused op too: where the op stores an intermediate
// (`sum` of the norm, `pre` of the GELU), what follows is computed from the stored number. So backward is
// the derivative of what forward did, a buffer that was dropped can be made again to the bit from one that
// was kept, and mean and rstd belong to the `sum` that backward reads. (llm.c's fused residual kernel does
// the same.)
//
// Statistics (mean, rstd, lse), losses and all gradients of parameters stay fp32, and so do master weights
// and optimizer state, whose ops go through to the inner device untouched.
//
// Work is cut into chunks of rows, so that the fp32 copies stay small however long the batch is.
//
// Rejected: conversion inside each CPU op (every loop would exist three times); whole arrays widened at
// once (the logits alone would take more than all weights); fp16 that saturates: overflow must become Inf,
// or the loss scaler would not see it.
#include "ops/narrow.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

// ---- conversion and scratch

float *narrow_room(Narrow *n, int room, size_t n_floats)
{
    if (n_floats > n->n_room[room]) {
        free(n->room[room]);
        n->room[room] = (float *)aligned_alloc(64, (n_floats * sizeof(float) + 63) / 64 * 64);
        if (!n->room[room]) die("%s: no memory for %zu floats of scratch", n->dev.name, n_floats);
        n->n_room[room] = n_floats;
    }
    return n->room[room];
}

size_t narrow_rows(const Narrow *n, size_t rows, size_t width)
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

float *narrow_read(Narrow *n, int room, const X *in, size_t rows, size_t cols, size_t ld)
{
    if (!in) return NULL;
    float *out = narrow_room(n, room, rows * cols);
    widen(n, out, in, rows, cols, ld);
    return out;
}

void narrow_write(Narrow *n, X *out, const float *in, size_t rows, size_t cols, size_t ld)
{
    size_t per_row = pieces(&rows, &cols, &ld);
#pragma omp parallel for schedule(static) num_threads(n->dev.threads) if (rows * cols > 4 * NARROW_PIECE)
    for (size_t i = 0; i < rows * per_row; i++) {
        size_t r = i / per_row, c = i % per_row * NARROW_PIECE, w = cols - c < NARROW_PIECE ? cols - c : NARROW_PIECE;
        formats_from_float(narrow_to(out, r * ld + c), n->format, in + r * cols + c, w, false);
    }
}

// Without the sign the patterns of both formats are ordered as their numbers are: 0 < finite < Inf < NaN.
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

// ---- what is fp32, or plain bytes, on any device: through to the inner one

static Dev *inner_of(Dev *dev)
{
    return ((Narrow *)dev)->inner;
}

static double sum_squares(Dev *dev, const float *x, size_t n)
{
    return inner_of(dev)->sum_squares(inner_of(dev), x, n);
}

static void sum_squares_exact(Dev *dev, ExactSum *sum, const float *x, size_t n)
{
    inner_of(dev)->sum_squares_exact(inner_of(dev), sum, x, n);
}

static void sgd(Dev *dev, float *weight, float *m, float *grad, size_t n, Update u)
{
    inner_of(dev)->sgd(inner_of(dev), weight, m, grad, n, u);
}

static void adamw(Dev *dev, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    inner_of(dev)->adamw(inner_of(dev), weight, m, v, grad, n, u);
}

static void adamw8bit(Dev *dev, float *weight, uint8_t *m, float *m_scale, uint8_t *v, float *v_scale, float *grad,
                      size_t n, Update u)
{
    inner_of(dev)->adamw8bit(inner_of(dev), weight, m, m_scale, v, v_scale, grad, n, u);
}

static void lion(Dev *dev, float *weight, float *m, float *grad, size_t n, Update u)
{
    inner_of(dev)->lion(inner_of(dev), weight, m, grad, n, u);
}

static void adafactor(Dev *dev, float *weight, float *row, float *col, float *grad, size_t R, size_t C, Update u)
{
    inner_of(dev)->adafactor(inner_of(dev), weight, row, col, grad, R, C, u);
}

static void muon(Dev *dev, float *weight, float *m, float *grad, float *scratch, size_t R, size_t C, Update u)
{
    inner_of(dev)->muon(inner_of(dev), weight, m, grad, scratch, R, C, u);
}

static void accumulate(Dev *dev, float *sum, float *part, size_t n)
{
    inner_of(dev)->accumulate(inner_of(dev), sum, part, n);
}

static void subtract(Dev *dev, float *out, const float *a, const float *b, size_t n)
{
    inner_of(dev)->subtract(inner_of(dev), out, a, b, n);
}

static void clip_units(Dev *dev, float *grad, const float *weight, size_t R, size_t C, float limit, float least)
{
    inner_of(dev)->clip_units(inner_of(dev), grad, weight, R, C, limit, least);
}

static void to_device(Dev *dev, void *dst, const void *src, size_t n_bytes)
{
    inner_of(dev)->to_device(inner_of(dev), dst, src, n_bytes);
}

static void to_host(Dev *dev, void *dst, const void *src, size_t n_bytes)
{
    inner_of(dev)->to_host(inner_of(dev), dst, src, n_bytes);
}

static void zero(Dev *dev, void *dst, size_t n_bytes)
{
    inner_of(dev)->zero(inner_of(dev), dst, n_bytes);
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

// ---- the device

static void fill(Dev *dev)
{
    dev->sum_squares = sum_squares;
    dev->sum_squares_exact = sum_squares_exact;
    dev->sgd = sgd;
    dev->adamw = adamw;
    dev->adamw8bit = adamw8bit;
    dev->lion = lion;
    dev->adafactor = adafactor;
    dev->muon = muon;
    dev->accumulate = accumulate;
    dev->subtract = subtract;
    dev->clip_units = clip_units;
    dev->to_device = to_device;
    dev->to_host = to_host;
    dev->zero = zero;
    dev->to_x = to_x;
    dev->from_x = from_x;
    narrow_ops_fill(dev);
    narrow_matmul_fill(dev);
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
    if (o.fp8) n->fp8 = fp8_create(o.scaling, o.history);
    n->dev.name = o.fp8 ? "cpu fp8" : o.x_type == X_BF16 ? "cpu bf16" : "cpu fp16";
    n->dev.x_type = o.x_type;
    n->dev.x_bytes = formats_bytes(n->format);
    n->dev.threads = inner->threads;
    n->dev.deterministic = inner->deterministic;
    n->dev.state = n;
    n->dev.fp8 = n->fp8;
    fill(&n->dev);
    dev_check_complete(&n->dev);
    return &n->dev;
}

Fp8 *narrow_fp8(Dev *dev)
{
    return ((Narrow *)dev)->fp8;
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
