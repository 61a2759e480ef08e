// update_rules: the optimizers that update element by element, each as one rule: from a weight w, its moments m and v,
// and the gradient g of this step to the new w, m and v. The CPU and CUDA share this file; their loops are in updates.c
// and updates.cu. To add one: a row of UPDATE_RULES, its rule and its bound here, its name in base/config.h and
// config_table.c, its arrays in train/optim_kinds.c.
#ifndef UPDATE_RULES_H
#define UPDATE_RULES_H
#include "ops/dev.h"

#include <math.h>

#if defined GPU_H && defined __cplusplus // a CUDA source
#define UPDATE_RULE static __device__ inline Element
#else
#define UPDATE_RULE static inline Element
#endif

// name, rule, moments: m and v, m alone, or none
#define UPDATE_RULES(ROW) \
    ROW(OPTIM_ADAMW, adamw, 2) \
    ROW(OPTIM_ADAM, adam, 2) \
    ROW(OPTIM_SGD, sgd, 0) \
    ROW(OPTIM_MOMENTUM, momentum, 1) \
    ROW(OPTIM_LION, lion, 1)

static inline bool update_has_rule(OptimName name)
{
#define IS(KIND, rule, moments) if (name == KIND) return true;
    UPDATE_RULES(IS)
#undef IS
    return false;
}

typedef struct {
    float w, m, v;
} Element;

// ---- AdamW (Loshchilov & Hutter, arXiv 1711.05101; PyTorch's form)
//
//   m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2,   w -= lr (mhat / (sqrt(vhat) + eps) + decay w)
//   mhat = m / (1 - b1^t),   vhat = v / (1 - b2^t)
//
// The decay acts on the weight itself (decoupled weight decay). Cautious (arXiv 2510.12402): it is left out where
// m w < 0, that is, where the update makes |w| larger.

UPDATE_RULE rule_adamw(Element x, float g, Update u, UpdateFactors f)
{
    x.m = f.beta1 * x.m + f.rest1 * g;
    x.v = f.beta2 * x.v + f.rest2 * g * g;
    float shrink = 1 - u.lr * u.weight_decay, apart = u.cautious ? 1 : shrink, keep = x.m * x.w < 0 ? apart : shrink;
    x.w = x.w * keep - u.lr * (x.m * f.correct1) / (sqrtf(x.v * f.correct2) + u.eps);
    return x;
}

// ---- Adam with L2 (Kingma & Ba, arXiv 1412.6980): g + decay w replaces g, and there is no other decay. Then the decay
// is divided by sqrt(vhat) like the gradient, and a weight with large gradients hardly decays.

UPDATE_RULE rule_adam(Element x, float g, Update u, UpdateFactors f)
{
    g += u.weight_decay * x.w;
    u.weight_decay = 0;
    return rule_adamw(x, g, u, f);
}

// ---- SGD
//
//   d = g + decay w;    w -= lr d                                    (no momentum)
//   d = g + decay w;    m = b1 m + d;    w -= lr m                   (momentum; PyTorch's, dampening 0)
//
// The decay is added to the gradient (L2), as in PyTorch's SGD. Nothing divides it afterwards, so here L2 is weight
// decay, which it is not in Adam. The step is proportional to the gradient: a tensor whose gradients are a hundred
// times smaller moves a hundred times less. Tensors of a transformer differ by that much, so SGD does not suit it.

UPDATE_RULE rule_sgd(Element x, float g, Update u, UpdateFactors f)
{
    (void)f;
    x.w -= u.lr * (g + u.weight_decay * x.w);
    return x;
}

UPDATE_RULE rule_momentum(Element x, float g, Update u, UpdateFactors f)
{
    x.m = f.beta1 * x.m + (g + u.weight_decay * x.w);
    x.w -= u.lr * x.m;
    return x;
}

// ---- Lion (Chen et al., arXiv 2302.06675, algorithm 2; sign(0) = 0): one moment instead of two
//
//   c = b1 m + (1 - b1) g;    w -= lr (sign(c) + decay w);    m = b2 m + (1 - b2) g
//
// The update uses a mean with more weight on the newest gradient (b1 = 0.9); the stored mean decays more slowly (b2 =
// 0.99). Every element moves by exactly lr, so lr is 3 to 10 times smaller than AdamW's and decay as much larger, for
// the same lr * decay. Rejected: the sign of m itself (signSGD with momentum; the paper's search found that two betas
// matter).
//
// fmaf says which product of a b - c d is fused into the difference: gcc on AArch64 fuses one in vectors and the
// other in what is left over, and the bits would depend on where a range is cut.

UPDATE_RULE rule_lion(Element x, float g, Update u, UpdateFactors f)
{
    float c = f.beta1 * x.m + f.rest1 * g, sign = (c > 0 ? 1.0f : 0.0f) - (c < 0 ? 1.0f : 0.0f);
    x.m = f.beta2 * x.m + f.rest2 * g;
    x.w = fmaf(x.w, 1 - u.lr * u.weight_decay, -(u.lr * sign));
    return x;
}

// ---- bounds: how far the fp32 results of a rule may be from the exact ones (numerics.check). x is the element before
// the update, g its gradient, grad_scale applied; E = 2^-24.

typedef struct {
    double w, m, v;
} ElementError;

#define UPDATE_E 0x1p-24

static inline ElementError bound_adamw(Element x, double g, double g_error, Update u)
{
    const double E = UPDATE_E, c1 = 1 / (1 - pow(u.beta1, u.step)), c2 = 1 / (1 - pow(u.beta2, u.step));
    double m = u.beta1 * x.m + (1 - u.beta1) * g, v = u.beta2 * x.v + (1 - u.beta2) * g * g;
    ElementError e = {0, 6 * E * (fabs(u.beta1 * x.m) + fabs((1 - u.beta1) * g)) + (1 - u.beta1) * g_error,
                      8 * E * v + (1 - u.beta2) * (2 * fabs(g) * g_error + g_error * g_error)};
    double root = sqrt(v * c2), below = root + u.eps, move = u.lr * m * c1 / below;
    double root_error = (root > 0 ? c2 * e.v / (2 * root) : sqrt(c2 * e.v)) + 3 * E * root;
    e.w = 4 * E * (fabs((double)x.w) + fabs(move)) + u.lr * c1 * e.m / below +
          fabs(move) * (root_error / below + 4 * E);
    if (u.cautious && fabs(m) <= e.m) e.w += u.lr * u.weight_decay * fabs((double)x.w); // its sign may be either
    return e;
}

static inline ElementError bound_adam(Element x, double g, double g_error, Update u)
{
    double pull = (double)u.weight_decay * x.w;
    u.weight_decay = 0;
    return bound_adamw(x, g + pull, g_error + 3 * UPDATE_E * fabs(pull), u);
}

static inline ElementError bound_sgd(Element x, double g, double g_error, Update u)
{
    double pull = (double)u.weight_decay * x.w, d = fabs(g + pull);
    double d_error = g_error + 3 * UPDATE_E * fabs(pull);
    ElementError e = {u.lr * (d_error + UPDATE_E * d) + 2 * UPDATE_E * (fabs((double)x.w) + u.lr * d), d_error, 0};
    return e;
}

static inline ElementError bound_momentum(Element x, double g, double g_error, Update u)
{
    double old = u.beta1 * x.m, pull = (double)u.weight_decay * x.w;
    return bound_sgd(x, g + old, g_error + 3 * UPDATE_E * (fabs(old) + fabs(g + pull)), u);
}

// Where fp32 cannot determine the sign of c, any of the three signs may result, twice lr apart.
static inline ElementError bound_lion(Element x, double g, double g_error, Update u)
{
    double c = u.beta1 * x.m + (1 - u.beta1) * g;
    double c_error = 6 * UPDATE_E * (fabs(u.beta1 * x.m) + fabs((1 - u.beta1) * g));
    ElementError e = {4 * UPDATE_E * (fabs((double)x.w) + u.lr),
                      6 * UPDATE_E * (fabs(u.beta2 * x.m) + fabs((1 - u.beta2) * g)), 0};
    (void)g_error; // within the sixes
    if (c_error > 0 && fabs(c) <= c_error) e.w += u.lr;
    return e;
}
#endif
