#include "block.h"

void block_backward(float *dx, float *const *grad, const float *dy, const float *x, float *const *weight,
                    const BlockSaved *s, BlockShape b)
{
    //[
    //+ (void)dx, (void)grad, (void)dy, (void)x, (void)weight, (void)s, (void)b; // write this
    size_t T = b.T, C = b.C, F = b.F;
    float *dh = zeros(T * F), *du = zeros(T * F), *dn2 = zeros(T * C), *dr = zeros(T * C), *da = zeros(T * C);
    float *dq = zeros(T * C), *dk = zeros(T * C), *dv = zeros(T * C), *dn1 = zeros(T * C);

    matmul_backward(dh, grad[W2], dy, s->h, weight[W2], T, F, C);
    gelu_backward(du, dh, s->u, T * F);
    matmul_backward(dn2, grad[W1], du, s->n2, weight[W1], T, C, F);
    memcpy(dr, dy, T * C * sizeof *dr); // the path around the feed-forward network
    rmsnorm_backward(dr, grad[NORM2], dn2, s->r, s->rstd2, weight[NORM2], T, C);

    matmul_backward(da, grad[WO], dr, s->a, weight[WO], T, C, C);
    attention_backward(dq, dk, dv, da, s->p, s->q, s->k, s->v, T, C);
    matmul_backward(dn1, grad[WQ], dq, s->n1, weight[WQ], T, C, C);
    matmul_backward(dn1, grad[WK], dk, s->n1, weight[WK], T, C, C);
    matmul_backward(dn1, grad[WV], dv, s->n1, weight[WV], T, C, C);
    memcpy(dx, dr, T * C * sizeof *dx); // the path around attention
    rmsnorm_backward(dx, grad[NORM1], dn1, x, s->rstd1, weight[NORM1], T, C);

    free(dh), free(du), free(dn2), free(dr), free(da), free(dq), free(dk), free(dv), free(dn1);
    //]
}
