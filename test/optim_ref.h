// optim_ref: the optimizers again, in double and in plain loops, each with the error that fp32 may make. Tests only.
//
// One update from a given state. The letters and the rules of the bounds are those of ops_ref.h; AdamW is there.
// Arrays are whole tensors: w, s0, s1 hold the state before and after, and each has a second array for its error.
#ifndef OPTIM_REF_H
#define OPTIM_REF_H
#include "ops_ref.h"

// ---- SGD; m NULL: no momentum. err: of w and m.
static inline void ref_sgd(double *w, double *m, double err[2], double grad, Update u)
{
    double size = fabs(grad * u.grad_scale) + fabs(u.weight_decay * *w);
    double d = grad * u.grad_scale + u.weight_decay * *w, d_err = 3 * U * size;
    if (m) {
        size = fabs(u.beta1 * *m) + fabs(d);
        d = *m = u.beta1 * *m + d;
        d_err += 2 * U * size;
    }
    *w -= u.lr * d;
    err[0] = u.lr * (d_err + U * fabs(d)) + U * fabs(*w);
    err[1] = d_err;
}

// ---- Lion. Where fp32 cannot determine the sign of c, any of the three signs is right.
static inline void ref_lion(double *w, double *m, double err[2], double grad, Update u)
{
    double g = grad * u.grad_scale, c = u.beta1 * *m + (1 - (double)u.beta1) * g;
    double c_err = 3 * U * (fabs(u.beta1 * *m) + fabs((1 - (double)u.beta1) * g));
    double sign = (c > 0) - (c < 0), m_size = fabs(u.beta2 * *m) + fabs((1 - (double)u.beta2) * g);
    *m = u.beta2 * *m + (1 - (double)u.beta2) * g;
    err[1] = 3 * U * m_size;
    err[0] = 3 * U * fabs(*w) + 2 * U * u.lr + (c_err > 0 && fabs(c) <= c_err ? 2 * u.lr : 0);
    *w = *w * (1 - (double)u.lr * u.weight_decay) - u.lr * sign;
    err[0] += U * fabs(*w);
}

// ---- by the name of the rule; err: of w, m and v
static inline void ref_update(OptimName rule, double *w, double *m, double *v, double err[3], double grad, Update u)
{
    if (rule == OPTIM_SGD || rule == OPTIM_MOMENTUM) ref_sgd(w, rule == OPTIM_SGD ? NULL : m, err, grad, u);
    else if (rule == OPTIM_LION) ref_lion(w, m, err, grad, u);
    else ref_adamw(w, m, v, err, grad, u, rule == OPTIM_ADAM);
}

// A root of a mean of squares: sum_squares adds spans of up to 1024 floats.
static inline double ref_rms_err(size_t n)
{
    return gam((n < 1024 ? n : 1024) + 1) / 2 + 3 * U;
}

// ---- Adafactor. All terms of the means are positive, so their errors are relative: g^2 3 u, a mean in double 1 u,
// the coefficient, product and sum 3 u. u = g / sqrt(row col / mean): half of three such errors, two roots,
// four products. col NULL: a vector, whose mean square per element is in row.
enum { REF_MEAN = 8 };

static inline void ref_adafactor(double *w, double *row, double *col, double *w_err, double *row_err, double *col_err,
                                 const float *grad, size_t R, size_t C, Update u)
{
    double keep = 1 - pow(u.step, -0.8), mean = 0, squares = 0, weights = 0;
    size_t n = R * C;
    double *d = (double *)calloc(n, sizeof *d);
    if (!d) abort();
    for (size_t i = 0; i < (col ? R : n); i++) row[i] *= keep;
    for (size_t j = 0; col && j < C; j++) col[j] *= keep;
    for (size_t i = 0; i < n; i++) {
        double g = (double)grad[i] * u.grad_scale, s = (1 - keep) * (g * g + 1e-30);
        row[col ? i / C : i] += s / (double)(col ? C : 1);
        if (col) col[i % C] += s / (double)R;
        weights += w[i] * w[i];
    }
    for (size_t i = 0; i < R && col; i++) mean += row[i] / (double)R;
    for (size_t i = 0; i < n; i++) {
        d[i] = (double)grad[i] * u.grad_scale / sqrt(col ? row[i / C] * col[i % C] / mean : row[i]);
        squares += d[i] * d[i];
    }
    double rms = sqrt(squares / (double)n), size = sqrt(weights / (double)n);
    double step = u.lr * (size > 1e-3 ? size : 1e-3);
    double d_err = (1.5 * REF_MEAN + 2 * FN + 4) * U, step_err = ref_rms_err(n) + 2 * U;
    for (size_t i = 0; i < n; i++) {
        d[i] /= rms > 1 ? rms : 1;
        w_err[i] = 2 * U * fabs(w[i]) + step_err * step * u.weight_decay * fabs(w[i]) +
                   step * fabs(d[i]) * (2 * d_err + ref_rms_err(n) + step_err + 2 * U);
        w[i] = w[i] * (1 - step * u.weight_decay) - step * d[i];
        w_err[i] += U * fabs(w[i]);
    }
    for (size_t i = 0; i < (col ? R : n); i++) row_err[i] = REF_MEAN * U * row[i];
    for (size_t j = 0; col && j < C; j++) col_err[j] = REF_MEAN * U * col[j];
    free(d);
}

// ---- Muon. Errors of the polynomial are bounded in the Frobenius norm F, which bounds every element.
//
// f(s) = 3.4445 s - 4.7750 s^3 + 2.0315 s^5 maps [0, 1.21] into itself, and |f'| < 4.25 there. The map X -> f(X)
// on singular values, as an odd function of a symmetric matrix (0 X; X^T 0), has f's Lipschitz constant in F.
// So e' = 4.25 e + local, with the errors of the three products, of (M, K) (K, N): gam(K) |A|_F |B|_F.
static inline double ref_frobenius(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

// Y = X made one step more orthogonal; returns the local error. X is (R, C), R <= C after the caller's transposition.
static inline double ref_polynomial(double *X, size_t R, size_t C)
{
    const double a = 3.4445f, b = -4.7750f, c = 2.0315f, top = 1.21;
    double *A = (double *)calloc(2 * R * R + R * C, sizeof *A), *B = A + R * R, *Y = B + R * R;
    if (!A) abort();
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < R; j++)
            for (size_t k = 0; k < C; k++) A[i * R + j] += X[i * C + k] * X[j * C + k];
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < R; j++) {
            for (size_t k = 0; k < R; k++) B[i * R + j] += c * A[i * R + k] * A[k * R + j];
            B[i * R + j] += b * A[i * R + j];
        }
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < C; j++) {
            Y[i * C + j] = a * X[i * C + j];
            for (size_t k = 0; k < R; k++) Y[i * C + j] += B[i * R + k] * X[k * C + j];
        }
    double nx = ref_frobenius(X, R * C), na = ref_frobenius(A, R * R), nb = ref_frobenius(B, R * R);
    double a_err = gam(C) * nx * nx;
    double b_err = (gam(R) + 3 * U) * c * na * na + 3 * U * (fabs(b) * na + nb) +
                   a_err * (2 * c * top * top + fabs(b));
    double err = gam(R + 1) * (nb + a) * nx + b_err * top;
    memcpy(X, Y, R * C * sizeof *X);
    free(A);
    return err;
}

// NorMuon's rows of X (R, C), which is off by e in F; x_err (R): of the elements of each row, afterwards. A root of
// means of squares is a norm, so it is off by no more than sqrt(1 - b) e / sqrt(C).
static inline void ref_rows(double *X, double *row, double *row_err, double *x_err, double e, size_t R, size_t C,
                            Update u)
{
    double before = ref_frobenius(X, R * C), b = u.beta2, worst = 0;
    for (size_t i = 0; i < R; i++) {
        double x = ref_frobenius(X + i * C, C), root_err;
        row[i] = b * row[i] + (1 - b) * x * x / (double)C;
        double root = sqrt(row[i]);
        root_err = sqrt((1 - b) / (double)C) * e + 6 * U * root;
        row_err[i] = 2 * root * root_err + root_err * root_err;
        x_err[i] = e / (root + u.eps) + x * (root_err / (root + u.eps) + 6 * U) / (root + u.eps);
        worst = fmax(worst, x_err[i]);
        for (size_t j = 0; j < C; j++) X[i * C + j] /= root + u.eps;
    }
    double after = ref_frobenius(X, R * C), factor = before / after;
    double rel = e / before + worst * sqrt((double)R) / after + 2 * ref_rms_err(R * C);
    for (size_t i = 0; i < R; i++) x_err[i] = factor * (x_err[i] + ref_frobenius(X + i * C, C) * rel) * (1 + rel);
    for (size_t i = 0; i < R * C; i++) X[i] *= factor;
}

// row NULL: Muon, else NorMuon
static inline void ref_muon(double *w, double *m, double *row, double *w_err, double *m_err, double *row_err,
                            const float *grad, size_t R, size_t C, Update u)
{
    size_t n = R * C, small = R < C ? R : C, large = R < C ? C : R;
    double *X = (double *)calloc(2 * n + R, sizeof *X), *O = X + n, *x_err = O + n, e = 0, norm, b = u.beta1;
    if (!X) abort();
    for (size_t i = 0; i < n; i++) {
        double g = (double)grad[i] * u.grad_scale, m_size = fabs(b * m[i]) + fabs((1 - b) * g);
        m[i] = b * m[i] + (1 - b) * g;
        m_err[i] = 3 * U * m_size;
        double d = (1 - b) * g + b * m[i], d_err = 3 * U * (fabs((1 - b) * g) + fabs(b * m[i])) + b * m_err[i];
        X[R > C ? i % C * R + i / C : i] = d;
        e += d_err * d_err;
    }
    norm = ref_frobenius(X, n);
    e = sqrt(e) / norm + ref_rms_err(n) + 2 * U;
    for (size_t i = 0; i < n; i++) X[i] /= norm + 1e-7;
    for (int i = 0; i < 5; i++) e = 4.25 * e + ref_polynomial(X, small, large);
    double scale = u.lr * 0.2 * sqrt((double)large);
    for (size_t i = 0; i < n; i++) O[i] = X[R > C ? i % C * R + i / C : i];
    for (size_t i = 0; i < R; i++) x_err[i] = e;
    if (row) ref_rows(O, row, row_err, x_err, e, R, C, u);
    for (size_t i = 0; i < n; i++) {
        double o_err = x_err[i / C] + 4 * U * fabs(O[i]), decay = (double)u.lr * u.weight_decay;
        w_err[i] = 3 * U * fabs(w[i]) + scale * o_err;
        if (u.cautious && fabs(O[i]) <= o_err) w_err[i] += decay * fabs(w[i]); // its sign may be either
        w[i] = w[i] * (u.cautious && O[i] * w[i] < 0 ? 1 : 1 - decay) - scale * O[i];
        w_err[i] += U * fabs(w[i]);
    }
    free(X);
}

// ---- codes of adamw8bit: the stored scale must be the largest |x| of each block, each code the nearest of the book
// (keep: above 0 only codes above 0). Returns the first element that is wrong, or n.
static inline size_t ref_codes(const uint8_t *code, const float *scale, const double *x, const double *err, size_t n,
                               const float book[256], bool keep)
{
    for (size_t i = 0; i < n; i++) {
        size_t block = i / UPDATE_BLOCK;
        double top = 0, top_err = 0, s = scale[block];
        for (size_t j = block * UPDATE_BLOCK; j < n && j < (block + 1) * UPDATE_BLOCK && i % UPDATE_BLOCK == 0; j++) {
            if (fabs(x[j]) > top) top = fabs(x[j]);
            if (err[j] > top_err) top_err = err[j];
        }
        if (i % UPDATE_BLOCK == 0 && !(fabs(s - top) <= top_err)) return i;
        double y = s > 0 ? x[i] / s : 0, y_err = s > 0 ? err[i] / s + 2 * U * fabs(y) : 0;
        int c = code[i];
        if (keep && x[i] > 0 && c == 0) return i;
        double below = c > 0 ? ((double)book[c - 1] + book[c]) / 2 : -INFINITY;
        double above = c < 255 ? ((double)book[c] + book[c + 1]) / 2 : INFINITY;
        if (keep && c == 1 && x[i] > 0) below = 0;
        if (!(y >= below - y_err - U * fabs(below))) return i; // NaN too
        if (!(y <= above + y_err + U * fabs(above))) return i;
    }
    return n;
}
#endif
