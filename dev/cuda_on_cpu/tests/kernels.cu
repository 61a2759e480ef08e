// kernels: the kernels of src/*.cu against sums in double and against their twins of dev_cpu, at odd sizes and several
// block sizes. Builds with nvcc unmodified.
//
// Bounds. u = 2^-24 for fp32. A sum of n terms in any order errs by at most n u sum |term| (Higham, Accuracy and
// Stability of Numerical Algorithms, 4.2), a stored bf16 by another 2^-8 of its size; what else is added stands
// with each op. The twin has the same bound, so twice that lies between the two.
#include "compare.h"
#include "ops/dev_cpu.h"
#include "ops/dev_cuda.h"

#include <cmath>
#include <cstring>
#include <vector>

extern "C" float *dev_cpu_scratch(Dev *, size_t n) // for norm.c
{
    static std::vector<float> scratch;
    scratch.resize(n);
    return scratch.data();
}

static Dev twin()
{
    Dev dev;
    memset((void *)&dev, 0, sizeof dev);
    dev.threads = 1;
    norm_cpu_fill(&dev);
    elements_cpu_fill(&dev);
    loss_cpu_fill(&dev);
    updates_cpu_fill(&dev);
    return dev;
}

template <class T> static void fill(Array<T> &a, float low, float high)
{
    for (T &v : a.host) v = T(uniform(low, high));
    a.up();
}
template <class T> static std::vector<float> wide(const Array<T> &a)
{
    std::vector<float> out;
    for (T v : a.host) out.push_back((float)v);
    return out;
}
template <class T> static double store() // error of storing, relative
{
    return sizeof(T) == 2 ? ldexp(1, -8) : U;
}
static X *x_of(std::vector<float> &v) { return (X *)v.data(); }

// x - mean errs by (C + 2) u max|x|, rstd by (C + 4) u relative, and both meet w.
template <class T> static void norm_case(int N, int C, int rows, bool centred, bool residual, bool with_bias)
{
    size_t n = (size_t)N * (size_t)C;
    Array<T> a(n), b(n), out(n), sum(n), w((size_t)C), bias((size_t)C);
    Array<float> mean((size_t)N), rstd((size_t)N);
    fill(a, -1, 2), fill(b, -1, 1), fill(w, 0.5f, 1.5f), fill(bias, -1, 1);
    norm_forward_cuda<T>(out.device, residual ? sum.device : nullptr, mean.device, rstd.device, a.device,
                         residual ? b.device : nullptr, w.device, with_bias ? bias.device : nullptr, N, C, centred,
                         1e-5f, rows, nullptr);
    out.down(), rstd.down();
    if (centred) mean.down();
    if (residual) sum.down();
    for (size_t i = 0; residual && i < n; i++) EXPECT((float)sum[i] == (float)T((float)a[i] + (float)b[i]));
    std::vector<float> x = residual ? wide(sum) : wide(a), wf = wide(w), bf = wide(bias);
    std::vector<float> y(n), m2((size_t)N), r2((size_t)N);
    Dev dev = twin();
    dev.norm_forward(&dev, x_of(y), nullptr, m2.data(), r2.data(), x_of(x), nullptr, x_of(wf),
                     with_bias ? x_of(bf) : nullptr, (size_t)N, (size_t)C, centred ? NORM_LAYERNORM : NORM_RMSNORM,
                     1e-5f);
    for (size_t r = 0; r < (size_t)N; r++) {
        const float *row = &x[r * (size_t)C];
        double m = 0, s = 0, most = 0;
        for (int c = 0; c < C; c++) m += row[c], most = fmax(most, fabs((double)row[c]));
        m = centred ? m / C : 0;
        for (int c = 0; c < C; c++) s += (row[c] - m) * (row[c] - m);
        double inverse = 1 / sqrt(s / C + 1e-5f);
        EXPECT(fabs(rstd[r] - inverse) <= (3 * C + 8) * U * inverse * (1 + most * most * inverse * inverse));
        if (centred) EXPECT(fabs(mean[r] - m) <= (C + 2) * U * most);
        for (int c = 0; c < C; c++) {
            double hat = (row[c] - m) * inverse, want = wf[(size_t)c] * hat + (with_bias ? bf[(size_t)c] : 0);
            double bound = (3 * C + 16) * U * (fabs((double)wf[(size_t)c]) * (most * inverse + fabs(hat)) + 1);
            float got = (float)out[r * (size_t)C + (size_t)c];
            EXPECT(fabs(got - want) <= bound + store<T>() * (fabs(want) + bound));
            EXPECT(fabs(got - y[r * (size_t)C + (size_t)c]) <= 2 * bound + store<T>() * (fabs(want) + bound));
        }
    }
}
template <class T> static void test_norm()
{
    norm_case<T>(0, 96, 1, true, true, true); // no row, no launch
    const int sizes[] = {1, 31, 96, 300};
    for (int C : sizes)
        for (int rows = 1; rows <= 4; rows += 3) {
            norm_case<T>(5, C, rows, true, true, true);
            norm_case<T>(3, C, rows, false, true, false);
            norm_case<T>(1, C, rows, true, false, true);
        }
}

// tanh errs by 2 u, its argument by 4 u relative (the slope of tanh times its argument is at most 0.45).
template <class T> static void gelu_case(size_t n, size_t offset, int blocks, int threads)
{
    Array<T> pre(n + offset), out(n + offset);
    fill(pre, -6, 6);
    gelu_forward_cuda<T>(out.device + offset, pre.device + offset, n, blocks, threads, nullptr);
    GPU_CHECK(cudaMemcpy(out.host.data() + offset, out.device + offset, n * sizeof(T), cudaMemcpyDeviceToHost));
    std::vector<float> x = wide(pre), y(x.size());
    Dev dev = twin();
    dev.act_forward(&dev, x_of(y), x_of(x), x.size(), ACT_GELU);
    for (size_t i = offset; i < n + offset; i++) {
        double v = x[i], want = 0.5 * v * (1 + tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
        double bound = 8 * U * (fabs(v) + fabs(want));
        EXPECT(fabs((float)out[i] - want) <= bound + store<T>() * (fabs(want) + bound));
        EXPECT(fabs((float)out[i] - y[i]) <= 2 * bound + store<T>() * (fabs(want) + bound));
    }
}
template <class T> static void test_gelu()
{
    gelu_case<T>(1, 0, 1, 32);
    gelu_case<T>(1003, 0, 2, 64);
    gelu_case<T>(1003, 1, 2, 64); // not at a multiple of 16
    gelu_case<T>(64, 0, 4, 128);  // more threads than packs
}

// exp errs by 2 u and, through its argument, by range u; the sum of V by V u; the log makes relative errors absolute. A
// cap's tanh errs by 2 u and by 2 u in quotient and product, its slope by 16 u of at most 1.
template <class T> static void xent_case(int N, int V, int threads, bool gradient, bool in_place, float cap = 0)
{
    const float range = 8, scale = 1.0f / 7;
    Array<T> z((size_t)N * (size_t)V), dz((size_t)N * (size_t)V);
    Array<float> loss((size_t)N);
    Array<int32_t> target((size_t)N);
    fill(z, -range / 2, range / 2);
    for (int i = 0; i < N; i++) target.host[(size_t)i] = i == 1 ? -1 : (i * 37 + 5) % V;
    target.up();
    T *to = !gradient ? nullptr : in_place ? z.device : dz.device;
    softmax_xent_cuda<T>(loss.device, to, z.device, target.device, N, V, scale, cap, threads, nullptr);
    std::vector<float> x = wide(z), dx(x.size()), loss2((size_t)N);
    loss.down();
    if (gradient) GPU_CHECK(cudaMemcpy(dz.host.data(), to, dz.host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    Dev dev = twin();
    dev.softmax_xent(&dev, loss2.data(), x_of(dx), x_of(x), target.host.data(), (size_t)N, (size_t)V, scale, cap);
    double relative = (V + 2 * range + 16 + (cap > 0 ? 4 * range : 0)) * U; // of a cap: 4 u each of z and the maximum
    auto logit = [&](size_t i) { return cap > 0 ? cap * tanh(x[i] / (double)cap) : (double)x[i]; };
    auto slope = [&](size_t i) { return cap > 0 ? 1 - pow(tanh(x[i] / (double)cap), 2) : 1; };
    for (size_t r = 0; r < (size_t)N; r++) {
        double total = 0;
        size_t at = r * (size_t)V;
        int y = target[r];
        for (int v = 0; v < V; v++) total += exp(logit(at + (size_t)v));
        double want = y < 0 ? 0 : log(total) - logit(at + (size_t)y);
        EXPECT(fabs(loss[r] - want) <= relative + 4 * U * (range + fabs(want)));
        EXPECT(fabs(loss[r] - loss2[r]) <= 2 * (relative + 4 * U * (range + fabs(want))));
        for (int v = 0; gradient && v < V; v++) {
            double p = exp(logit(at + (size_t)v)) / total, d = y < 0 ? 0 : scale * (p - (v == y));
            d *= slope(at + (size_t)v);
            double bound = scale * (relative * p + 2 * U + (cap > 0 ? 16 * U : 0)), got = (float)dz[at + (size_t)v];
            EXPECT(fabs(got - d) <= bound + store<T>() * (fabs(d) + bound));
            EXPECT(fabs(got - dx[at + (size_t)v]) <= 2 * bound + store<T>() * (fabs(d) + bound));
        }
    }
}
template <class T> static void test_xent()
{
    xent_case<T>(0, 5, 32, true, false);
    xent_case<T>(3, 5, 32, true, false);   // fewer words than threads
    xent_case<T>(3, 257, 64, true, true);
    xent_case<T>(2, 1000, 256, true, true);
    xent_case<T>(2, 100, 128, false, false);
    xent_case<T>(3, 257, 64, true, true, 2.5f);
    xent_case<T>(3, 257, 64, true, false, 1);
}
static void test_xent_nan()
{
    Array<float> z(64), loss(1);
    Array<int32_t> target(1);
    fill(z, -1, 1);
    z.host[40] = NAN;
    z.up(), target.up();
    softmax_xent_cuda<float>(loss.device, nullptr, z.device, target.device, 1, 64, 1, 0, 32, nullptr);
    loss.down();
    EXPECT(std::isnan(loss[0]));
}

// A dozen roundings, none after a cancellation but that of the sum itself.
template <class T> static void test_adamw()
{
    const size_t n = 1003;
    Update u = {};
    u.lr = 1e-2f, u.beta1 = 0.9f, u.beta2 = 0.95f, u.eps = 1e-8f;
    u.weight_decay = 0.1f, u.grad_scale = 0.5f, u.step = 3;
    Array<float> w(n), m(n), v(n), g(n);
    Array<T> copy(n);
    fill(w, -1, 1), fill(m, -1, 1), fill(v, 0, 1), fill(g, -1, 1);
    std::vector<float> w0 = w.host, m0 = m.host, v0 = v.host, g0 = g.host, w2 = w0, m2 = m0, v2 = v0, g2 = g0;
    adamw_cuda<T>(w.device, copy.device, m.device, v.device, g.device, n, u, 3, 64, nullptr);
    w.down(), m.down(), v.down(), g.down(), copy.down();
    Dev dev = twin();
    dev.update(&dev, OPTIM_ADAMW, w2.data(), m2.data(), v2.data(), g2.data(), n, u);
    for (size_t i = 0; i < n; i++) {
        double d = (double)g0[i] * u.grad_scale;
        double mi = (double)u.beta1 * m0[i] + (1 - (double)u.beta1) * d;
        double vi = (double)u.beta2 * v0[i] + (1 - (double)u.beta2) * d * d;
        double move = u.lr * mi / (1 - pow(u.beta1, 3)) / (sqrt(vi / (1 - pow(u.beta2, 3))) + u.eps);
        double want = w0[i] * (1 - (double)u.lr * u.weight_decay) - move;
        double m_bound = 8 * U * (fabs((double)m0[i]) + fabs(d) + 1), v_bound = 8 * U * (v0[i] + d * d + fabs(d));
        double w_bound = 16 * U * (fabs((double)w0[i]) + fabs(move)) + u.lr * 4 * m_bound / sqrt(vi) +
                         fabs(move) * v_bound / vi;
        EXPECT(fabs(m[i] - mi) <= m_bound && fabs(v[i] - vi) <= v_bound && fabs(w[i] - want) <= w_bound);
        EXPECT(fabs(m[i] - m2[i]) <= 2 * m_bound && fabs(v[i] - v2[i]) <= 2 * v_bound);
        EXPECT(fabs(w[i] - w2[i]) <= 2 * w_bound);
        EXPECT(g[i] == 0 && (float)copy[i] == (float)T(w[i]));
    }
}

int main()
{
    static const struct { const char *name; void (*run)(); } tests[] = {
        {"norm fp32", test_norm<float>}, {"norm bf16", test_norm<__nv_bfloat16>}, {"gelu fp32", test_gelu<float>},
        {"gelu bf16", test_gelu<__nv_bfloat16>}, {"softmax cross-entropy fp32", test_xent<float>},
        {"softmax cross-entropy bf16", test_xent<__nv_bfloat16>}, {"softmax cross-entropy: NaN", test_xent_nan},
        {"adamw fp32", test_adamw<float>}, {"adamw bf16", test_adamw<__nv_bfloat16>},
    };
    for (auto &t : tests) {
        int before = failures;
        t.run();
        printf("%s %s\n", failures == before ? "ok" : "not ok", t.name);
    }
    return failures != 0;
}
