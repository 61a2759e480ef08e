// The trainer's matrix products and cut. Its matrices are (out, in), so the parts are turned; its GELU is the tanh form,
// so that of tp.h is used.
#include "tp.h"

#include "base/params.h"
#include "ops/dev.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // ranks are threads here, and share the device
static Dev *dev;

static void begin(void)
{
    pthread_mutex_lock(&lock);
    if (!dev) dev = dev_cpu_create(1);
}

static void end(void) { pthread_mutex_unlock(&lock); }

float gelu(float z) { return 0.5f * z * (1 + erff(z * 0.70710678f)); }
float gelu_slope(float z) { return 0.5f * (1 + erff(z * 0.70710678f)) + z * 0.39894228f * expf(-0.5f * z * z); }

// (rows, cols) becomes (cols, rows).
static X *turned(const float *x, int rows, int cols)
{
    float *to = malloc((size_t)(rows * cols) * sizeof *to + 1);
    for (int i = 0; i < rows * cols; i++) to[i % cols * rows + i / cols] = x[i];
    return (X *)to;
}

void tp_cut(int rank, int size, const float *w1, const float *b1, const float *w2, Shard *shard)
{
    size_t C = (size_t)shard->C, F = (size_t)shard->F, f = F / (size_t)size, first = f * (size_t)rank;
    Param columns = {.cut = 1, .first = first, .dim = {C, f}, .whole = {C, F}};
    Param rows = {.cut = 0, .first = first, .dim = {f, C}, .whole = {F, C}};
    Param bias = {.cut = 0, .first = first, .dim = {f, 1}, .whole = {F, 1}};
    for (size_t i = 0; i < C * f; i++) shard->w1[i] = w1[params_whole_index(&columns, i)];
    for (size_t i = 0; i < f * C; i++) shard->w2[i] = w2[params_whole_index(&rows, i)];
    for (size_t i = 0; i < f; i++) shard->b1[i] = b1[params_whole_index(&bias, i)];
}

void tp_forward(Link *link, const Shard *s, const float *x, float *z, float *y)
{
    int T = s->T, C = s->C, f = s->F / link_size(link);
    X *w1 = turned(s->w1, C, f), *w2 = turned(s->w2, f, C);
    float *h = malloc((size_t)(T * f) * sizeof *h + 1);
    begin();
    dev->matmul_forward(dev, (X *)z, (const X *)x, w1, (const X *)s->b1, (size_t)T, (size_t)C, (size_t)f, -1);
    for (int i = 0; i < T * f; i++) h[i] = gelu(z[i]);
    dev->matmul_forward(dev, (X *)y, (X *)h, w2, NULL, (size_t)T, (size_t)f, (size_t)C, -1);
    end();
    all_reduce(link, y, (size_t)T * (size_t)C);
    for (int i = 0; i < T * C; i++) y[i] += s->b2[i % C];
    free(w1), free(w2), free(h);
}

// dw (in, out), db (out) of out = inp w + b, by the op whose gradient is (out, in).
static void weight_gradient(float *dw, float *db, const float *dout, const float *inp, int T, int in, int out)
{
    float *turn = calloc((size_t)(in * out) + 1, sizeof *turn);
    memset(db, 0, (size_t)out * sizeof *db);
    dev->matmul_backward_weight(dev, turn, db, (const X *)dout, (const X *)inp, (size_t)T, (size_t)in, (size_t)out, -1);
    for (int i = 0; i < in * out; i++) dw[i] = turn[i % out * in + i / out];
    free(turn);
}

void tp_backward(Link *link, const Shard *s, const float *x, const float *z, const float *dy, float *dw1, float *db1,
                 float *dw2, float *db2, float *dx)
{
    int T = s->T, C = s->C, f = s->F / link_size(link);
    X *w1 = turned(s->w1, C, f), *w2 = turned(s->w2, f, C);
    float *h = malloc((size_t)(T * f) * sizeof *h + 1), *dz = malloc((size_t)(T * f) * sizeof *dz + 1);
    for (int i = 0; i < T * f; i++) h[i] = gelu(z[i]);
    begin();
    weight_gradient(dw2, db2, dy, h, T, f, C);
    dev->matmul_backward_input(dev, (X *)dz, (const X *)dy, w2, (size_t)T, (size_t)f, (size_t)C, -1);
    for (int i = 0; i < T * f; i++) dz[i] *= gelu_slope(z[i]);
    weight_gradient(dw1, db1, dz, x, T, C, f);
    dev->matmul_backward_input(dev, (X *)dx, (X *)dz, w1, (size_t)T, (size_t)C, (size_t)f, -1);
    end();
    all_reduce(link, dx, (size_t)T * (size_t)C);
    free(w1), free(w2), free(h), free(dz);
}
