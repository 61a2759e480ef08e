// With the trainer's ops, which write the gradients of activations and add to those of parameters.
#include "block.h"

#include "ops/dev_cpu.h"

static Dev *dev;

static X *matmul_back(float *grad, const X *dout, const float *inp, const float *w, size_t T, size_t I, size_t O)
{
    X *dinp = (X *)zeros(T * I);
    dev->matmul_backward_input(dev, dinp, dout, (const X *)w, T, I, O, -1);
    dev->matmul_backward_weight(dev, grad, NULL, dout, (const X *)inp, T, I, O, -1);
    return dinp;
}

void block_backward(float *dx, float *const *grad, const float *dy, const float *x, float *const *w,
                    const BlockSaved *s, BlockShape b)
{
    if (!dev) dev = dev_cpu_create(1);
    size_t T = b.T, C = b.C, F = b.F;
    AttnShape shape = {.B = 1, .Tq = T, .Tk = T, .H = 1, .G = 1, .D = C, .ldq = C, .ldkv = C};
    float *lse = zeros(T);
    X *a = (X *)zeros(T * C), *du = (X *)zeros(T * F), *dr = (X *)zeros(T * C), *d[3], *dn[3];
    const X *q = (const X *)s->q, *k = (const X *)s->k, *v = (const X *)s->v;
    dev->matmul_gelu_backward_input(dev, du, (const X *)dy, (const X *)w[W2], (const X *)s->u, T, F, C, -1);
    dev->matmul_backward_weight(dev, grad[W2], NULL, (const X *)dy, (const X *)s->h, T, F, C, -1);
    X *dn2 = matmul_back(grad[W1], du, s->n2, w[W1], T, C, F);
    dev->norm_backward(dev, dr, grad[NORM2], NULL, dn2, (const X *)dy, (const X *)s->r, NULL, s->rstd2,
                       (const X *)w[NORM2], T, C, NORM_RMSNORM);
    X *da = matmul_back(grad[WO], dr, s->a, w[WO], T, C, C);
    dev->attention_forward(dev, a, lse, q, k, v, shape);
    for (int i = 0; i < 3; i++) d[i] = (X *)zeros(T * C);
    dev->attention_backward(dev, d[0], d[1], d[2], da, a, lse, q, k, v, shape);
    for (int i = 0; i < 3; i++) dn[i] = matmul_back(grad[WQ + i], d[i], s->n1, w[WQ + i], T, C, C);
    for (int i = 1; i < 3; i++) dev->add(dev, dn[0], dn[0], dn[i], T * C);
    dev->norm_backward(dev, (X *)dx, grad[NORM1], NULL, dn[0], dr, (const X *)x, NULL, s->rstd1, (const X *)w[NORM1],
                       T, C, NORM_RMSNORM);
    for (int i = 0; i < 3; i++) free(d[i]), free(dn[i]);
    free(lse), free(a), free(du), free(dr), free(dn2), free(da);
}
