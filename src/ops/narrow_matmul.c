// narrow_matmul: the five matrix products of the narrow device, with their fp8 form.
//
//   out = round(widen(inp) widen(weight)^T + bias)             and likewise the two products of backward
//   fp8:  x -> e(x) / s,  e(x) = saturate(round(x s)) in E4M3 (inp, weight) or E5M2 (dout),  s = scale of fp8.h
//
// A tensor core would multiply the 8-bit numbers e(x) and divide the sum by both scales; here each operand
// is divided on its way in, which differs by an fp32 rounding of each operand. Sums are fp32 (cuBLASLt's
// fp8 kernels keep about 14 bits unless told to promote).
//
// The invariant: products are cut into (rows of inp) x (rows of weight), and the cut of weight follows from
// its shape alone. An output of forward is one inner product, never split; backward_input sums over rows of
// weight, and its pieces are added in order, whatever N is; a gradient of a weight adds piece by piece in
// fp32, as it does over micro-batches (adding them up in bf16 would lose what is smaller than 2^-9 of the
// sum).
//
// GELU is taken of its input as stored, see narrow.c. Rejected: quantising into an array of bytes first
// (a copy of the tensor that is read once); weights widened once a step (4 more bytes a parameter).
#include "ops/narrow.h"

#include "ops/vmath.h"

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
        size_t w = n_elems - i < NARROW_PIECE ? n_elems - i : NARROW_PIECE;
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
    for (size_t i = 0; i < n_elems; i++) d[i] *= vmath_gelu_grad(pre[i]);
}

static void forward(Narrow *n, X *out, X *pre, const X *inp, const X *weight, const X *bias,
                    size_t N, size_t C, size_t OC, int site, bool with_gelu)
{
    Cast x_cast = cast_for(n, site, FP8_INP, inp, N * C), w_cast = cast_for(n, site, FP8_WEIGHT, weight, OC * C);
    size_t rows, cols;
    cut(n, N, C, OC, &rows, &cols);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *x = operand(n, 0, narrow_at(inp, r * C), h, C, C, x_cast);
        for (size_t c = 0; c < OC; c += cols) {
            size_t w = OC - c < cols ? OC - c : cols;
            float *weight_part = operand(n, 1, narrow_at(weight, c * C), w, C, C, w_cast);
            float *b = narrow_read(n, 2, narrow_at(bias, c), 1, w, w), *y = narrow_room(n, 3, h * w);
            n->inner->matmul_forward(n->inner, (X *)y, (X *)x, (X *)weight_part, (X *)b, h, C, w, site);
            if (with_gelu) { // of the rounded pre, whether it is kept or not: `out` holds it for a moment
                X *keep = narrow_to(pre ? pre : out, r * OC + c);
                narrow_write(n, keep, y, h, w, OC);
                y = narrow_read(n, 3, keep, h, w, OC);
                float *act = narrow_room(n, 4, h * w);
                n->inner->gelu_forward(n->inner, (X *)act, (X *)y, h * w);
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
    Dev *inner = n->inner;
    Cast dy_cast = cast_for(n, site, FP8_DOUT, dout, N * OC), w_cast = cast_for(n, site, FP8_WEIGHT, weight, OC * C);
    size_t rows, cols;
    cut(n, N, C, OC, &rows, &cols);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *dx = narrow_room(n, 0, h * C);
        for (size_t c = 0; c < OC; c += cols) {
            size_t w = OC - c < cols ? OC - c : cols;
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
    Dev *inner = n->inner;
    Cast dy_cast = cast_for(n, site, FP8_DOUT, dout, N * OC), x_cast = cast_for(n, site, FP8_INP, inp, N * C);
    size_t rows, cols;
    cut(n, N, C, OC, &rows, &cols);
    for (size_t r = 0; r < N; r += rows) {
        size_t h = N - r < rows ? N - r : rows;
        float *x = operand(n, 0, narrow_at(inp, r * C), h, C, C, x_cast);
        for (size_t c = 0; c < OC; c += cols) {
            size_t w = OC - c < cols ? OC - c : cols;
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

// Sums in parts keep no bits here, where what travels between ranks is rounded anyway.
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

void narrow_matmul_fill(Dev *dev)
{
    dev->matmul_parts_forward = matmul_parts_forward;
    dev->matmul_parts_backward_input = matmul_parts_backward_input;
    dev->matmul_forward = matmul_forward;
    dev->matmul_gelu_forward = matmul_gelu_forward;
    dev->matmul_backward_input = matmul_backward_input;
    dev->matmul_gelu_backward_input = matmul_gelu_backward_input;
    dev->matmul_backward_weight = matmul_backward_weight;
}
