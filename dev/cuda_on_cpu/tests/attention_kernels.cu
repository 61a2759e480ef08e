// attention_kernels: the kernels of attention.cu and flash.cu against sums in double and against their twin of
// dev_cpu, at sizes that are no multiple of anything, with small and with whole tiles. Builds with nvcc unmodified.
//
// usage: attention_kernels [NAME]      only the tests whose names begin so; "stops": a call that must end badly
//
// Bounds. u = 2^-24, r the roundoff of X (2^-8, 2^-11; fp16 also errs by 2^-25 near 0), n keys, s a score and |s| the
// same with absolute values. Sums of products on a tensor core: 2 u a term, for it may cut instead of rounding.
//   score          (2 D + 16) u |s|             and so is p relatively, with 8 u for exp
//   running sums   (|s| + 8) 2 u each time that the maximum moves, at most once in 16 keys
//   out            that twice (p and l), r more on tensor cores where P is rounded, (6 n + 32) u for the sums
//   dS = c P (dP - delta)      c P times the errors of all three, (|dP| + |delta|) times that of P; r more there too
//   dq, dk, dv     sums of dS and P with these errors, and 2 n u
// X's own rounding of what is stored comes on top. The twin has the same bounds, so twice that lies between the two.
#include "compare.h"
#include "ops/dev_cpu.h"
#include "ops/dev_cuda.h"

#include <cstring>

typedef std::vector<double> Doubles;

// What attention.c, on one thread, wants of the rest of dev_cpu.
extern "C" {
void gemm_serial(bool at, bool bt, size_t M, size_t N, size_t K, float alpha, const float *a, size_t lda,
                 const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    for (size_t m = 0; m < M; m++)
        for (size_t n = 0; n < N; n++) {
            float sum = 0;
            for (size_t k = 0; k < K; k++)
                sum += (at ? a[k * lda + m] : a[m * lda + k]) * (bt ? b[n * ldb + k] : b[k * ldb + n]);
            float &out = c[m * ldc + n];
            out = alpha * sum + (beta == 0 ? 0 : beta * out);
        }
}
void matmul_gemm(bool at, bool bt, size_t M, size_t N, size_t K, float alpha, const float *a, size_t lda,
                 const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    gemm_serial(at, bt, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
}
bool gemm_has_vectors(void)
{
    return true;
}
float *dev_cpu_scratch(Dev *, size_t n)
{
    static std::vector<float> scratch;
    if (scratch.size() < n) scratch.resize(n);
    return scratch.data();
}
int omp_get_thread_num()
{
    return 0;
}
}

struct Case {
    int B, Tq, Tk, H, G, D, warps, flash; // warps: rows of a block of the plain kernels
    int document;                           // first query of every third, fifth, ... document; 0: one document
    float scale, drop;
    int window = 0;
};
template <class T> struct Bits {
    static constexpr double round = 0x1p-24, tiny = 0;
};
template <> struct Bits<__nv_bfloat16> {
    static constexpr double round = 0x1p-8, tiny = 0;
};
template <> struct Bits<__half> {
    static constexpr double round = 0x1p-11, tiny = 0x1p-25;
};

// Rows of n numbers, ld apart; what is between is NaN and has to stay so.
template <class T> struct Rows {
    Array<T> array;
    size_t rows, n, ld;
    Rows(size_t rows_, size_t n_, size_t ld_) : array(rows_ * ld_), rows(rows_), n(n_), ld(ld_) {}
    void fill(float most)
    {
        for (size_t i = 0; i < array.host.size(); i++) array.host[i] = T(i % ld < n ? uniform(-most, most) : NAN);
        array.up();
    }
    void down()
    {
        array.down();
        for (size_t i = 0; i < array.host.size(); i++) EXPECT(i % ld < n || std::isnan((float)array[i]));
    }
    std::vector<float> wide() const
    {
        std::vector<float> out;
        for (T v : array.host) out.push_back((float)v);
        return out;
    }
};
static X *x_of(std::vector<float> &v)
{
    return (X *)v.data();
}

// One set of arrays, what the kernels must make of them, and by how much they may be off.
template <class T> struct Problem {
    Case c;
    AttnShape s;
    bool tensor;
    cudaStream_t stream;
    Rows<T> q, kv, out, dout, dq, dkv;
    Array<float> lse, delta;
    Array<int32_t> first;
    Doubles want_out, bound_out, want_lse, bound_lse, want_dq, bound_dq, want_dkv, bound_dkv;

    explicit Problem(Case c_)
        : c(c_), s(), tensor(c.flash != 0), stream(nullptr), q(n(c.B * c.Tq), n(c.H * c.D), n(c.H * c.D + 8)),
          kv(n(c.B * c.Tk), n(2 * c.G * c.D), n(2 * c.G * c.D + 8)), out(q.rows, q.n, q.n), dout(q.rows, q.n, q.n),
          dq(q.rows, q.n, q.ld), dkv(kv.rows, kv.n, kv.ld), lse(q.rows * n(c.H)), delta(lse.host.size()),
          first(q.rows)
    {
        s.B = n(c.B), s.Tq = n(c.Tq), s.Tk = n(c.Tk), s.H = n(c.H), s.G = n(c.G), s.D = n(c.D), s.ldq = q.ld,
        s.ldkv = kv.ld;
        s.q_start = s.Tk - s.Tq, s.scale = c.scale, s.window = n(c.window);
        s.drop.p = c.drop, s.drop.rng = rng_make(7, "attention", 3), s.drop.first = 5;
        q.fill(2), kv.fill(2), dout.fill(1), dq.fill(NAN), dkv.fill(NAN), out.fill(NAN);
        for (int b = 0; b < c.B; b++)
            for (int t = 0, start = 0; t < c.Tq; t++) {
                if (c.document && (t + 3 * b) % c.document == c.document - 1) start = t;
                first.host[n(b * c.Tq + t)] = start;
            }
        first.up();
        if (c.document) s.first = first.device;
        GPU_CHECK(cudaStreamCreate(&stream));
    }
    ~Problem() { GPU_CHECK(cudaStreamDestroy(stream)); }
    static size_t n(int i) { return (size_t)i; }
    size_t q_at(size_t b, size_t h, size_t t) const { return (b * s.Tq + t) * s.ldq + h * s.D; }
    size_t k_at(size_t b, size_t h, size_t j) const { return (b * s.Tk + j) * s.ldkv + h / (s.H / s.G) * s.D; }
    size_t out_at(size_t b, size_t h, size_t t) const { return ((b * s.Tq + t) * s.H + h) * s.D; }
    double keep(size_t b, size_t h, size_t t, size_t j) const
    {
        uint32_t word[4];
        uint64_t at = (((s.drop.first + b) * s.H + h) * s.Tq + t) * s.Tk + j;
        if (!(s.drop.p > 0)) return 1;
        rng_words(s.drop.rng, at / 4, word);
        return word[at % 4] >= s.drop.p * 0x1p32 ? 1 / (1 - (double)s.drop.p) : 0;
    }
    size_t first_key(size_t b, size_t t) const
    {
        size_t start = s.first ? (size_t)first[b * s.Tq + t] : 0, end = s.q_start + t + 1;
        return s.window && start + s.window < end ? end - s.window : start;
    }
    double scale() const { return s.scale > 0 ? (double)s.scale : 1 / sqrt((double)s.D); }
    // Sum of a b over D, and of the absolute values.
    double dot(const Rows<T> &a, size_t i, const Rows<T> &b, size_t j, double *absolute) const
    {
        double sum = 0;
        *absolute = 0;
        for (size_t d = 0; d < s.D; d++) {
            double term = (double)(float)a.array[i + d] * (float)b.array[j + d];
            sum += term, *absolute += fabs(term);
        }
        return sum;
    }
    double stored(double want, double bound) const
    {
        return bound + Bits<T>::round * (fabs(want) + bound) + Bits<T>::tiny;
    }
    double rounding() const { return tensor ? Bits<T>::round : 0; } // of P and dS

    void expect_forward();
    void forward_row(size_t b, size_t h, size_t t);
    void run_forward();
    void expect_backward();
    void backward_row(size_t b, size_t h, size_t t);
    void run_backward();
    void forward();
    void backward();
};

template <class T> void Problem<T>::forward_row(size_t b, size_t h, size_t t)
{
    size_t start = first_key(b, t), end = s.q_start + t + 1,
           stat = (b * s.H + h) * s.Tq + t, keys = end - start;
    Doubles p(keys);
    double top = -INFINITY, most = 0, sum = 0, absolute;
    for (size_t j = 0; j < keys; j++) {
        p[j] = scale() * dot(q, q_at(b, h, t), kv, k_at(b, h, start + j), &absolute);
        top = fmax(top, p[j]), most = fmax(most, scale() * absolute);
    }
    for (double &x : p) sum += x = exp(x - top);
    double moves = (double)(keys / 16 + 2), error = ((2 * c.D + 16) * most + 8 + moves * 2 * (most + 8)) * U;
    want_lse[stat] = top + log(sum);
    bound_lse[stat] = error + ((double)keys + 16 + 4 * (most + fabs(want_lse[stat]))) * U;
    for (size_t d = 0; d < s.D; d++) {
        double o = 0, a = 0, v_sum = 0;
        for (size_t j = 0; j < keys; j++) {
            double v = (float)kv.array[k_at(b, h, start + j) + s.G * s.D + d], k = keep(b, h, t, start + j);
            o += p[j] / sum * k * v, a += p[j] / sum * k * fabs(v), v_sum += k * fabs(v);
        }
        size_t at = out_at(b, h, t) + d;
        want_out[at] = o;
        bound_out[at] =
            a * (2 * error + rounding() + (6 * (double)keys + 32) * U) + (tensor ? Bits<T>::tiny * v_sum : 0);
    }
}

template <class T> void Problem<T>::expect_forward()
{
    want_out.assign(out.array.host.size(), 0), bound_out = want_out;
    want_lse.assign(lse.host.size(), 0), bound_lse = want_lse;
    for (size_t b = 0; b < s.B; b++)
        for (size_t h = 0; h < s.H; h++)
            for (size_t t = 0; t < s.Tq; t++) forward_row(b, h, t);
}

template <class T> void flash_or_stop(Problem<T> &p, bool forward)
{
    const T *k = p.kv.array.device, *v = k + p.s.G * p.s.D;
    T *dk = p.dkv.array.device, *dv = dk + p.s.G * p.s.D;
    if (forward)
        flash_forward_cuda<T>(p.out.array.device, p.lse.device, p.q.array.device, k, v, p.s,                               p.stream);
    else
        flash_backward_cuda<T>(p.dq.array.device, dk, dv, p.delta.device, p.dout.array.device, p.out.array.device,
                               p.lse.device, p.q.array.device, k, v, p.s, p.stream);
}
template <> void flash_or_stop(Problem<float> &, bool)
{
    abort();
}

template <class T> void Problem<T>::run_forward()
{
    const T *k = kv.array.device;
    if (tensor)
        flash_or_stop(*this, true);
    else
        attention_forward_cuda<T>(out.array.device, lse.device, q.array.device, k, k + s.G * s.D, s, c.warps, stream);
    out.down(), lse.down();
}

template <class T> void Problem<T>::forward()
{
    expect_forward();
    run_forward();
    std::vector<float> qf = q.wide(), kf = kv.wide(), twin_out(want_out.size()), twin_lse(want_lse.size());
    Dev dev;
    memset((void *)&dev, 0, sizeof dev);
    dev.threads = 1;
    attention_cpu_fill(&dev);
    AttnShape host = s;
    if (s.first) host.first = first.host.data();
    dev.attention_forward(&dev, x_of(twin_out), twin_lse.data(), x_of(qf), x_of(kf), (X *)(kf.data() + s.G * s.D),
                          host);
    for (size_t i = 0; i < want_out.size(); i++) {
        double got = (float)out.array[i], bound = stored(want_out[i], bound_out[i]);
        EXPECT(fabs(got - want_out[i]) <= bound);
        EXPECT(fabs(got - twin_out[i]) <= bound + bound_out[i]);
    }
    for (size_t i = 0; i < want_lse.size(); i++) {
        EXPECT(fabs(lse[i] - want_lse[i]) <= bound_lse[i]);
        EXPECT(fabs(lse[i] - twin_lse[i]) <= 2 * bound_lse[i]);
    }
}

template <class T> void Problem<T>::backward_row(size_t b, size_t h, size_t t)
{
    size_t at_q = q_at(b, h, t), at_o = out_at(b, h, t), v_at = s.G * s.D;
    double out_abs, l = lse[(b * s.H + h) * s.Tq + t], r = rounding(), tiny = tensor ? Bits<T>::tiny : 0;
    double d_sum = dot(dout, at_o, out, at_o, &out_abs), n_dkv = 2.0 * (double)(s.Tq * s.H / s.G + 2);
    for (size_t j = first_key(b, t); j <= t; j++) {
        size_t at_k = k_at(b, h, j);
        double s_abs, dp_abs, score = scale() * dot(q, at_q, kv, at_k, &s_abs), k = keep(b, h, t, j),
                              p = exp(score - l), dp = 0;
        dp_abs = 0;
        for (size_t d = 0; d < s.D; d++) {
            double term = (double)(float)dout.array[at_o + d] * (float)kv.array[at_k + v_at + d];
            dp += term, dp_abs += fabs(term);
        }
        double e_p = ((2 * c.D + 16) * scale() * s_abs + 4 * fabs(l) + 8) * U, size = fabs(k * dp) + fabs(d_sum);
        double e_dp = k * (2 * c.D + 4) * U * dp_abs, e_delta = (c.D + 4) * U * out_abs;
        double ds = scale() * p * (k * dp - d_sum), e_ds = scale() * p * ((e_p + 8 * U) * size + e_dp + e_delta);
        e_ds += r * (fabs(ds) + e_ds) + tiny;
        double pk = p * k, e_pk = pk * (e_p + 2 * U) * (1 + r) + r * pk + tiny;
        for (size_t d = 0; d < s.D; d++) {
            double qd = (float)q.array[at_q + d], kd = (float)kv.array[at_k + d], dd = (float)dout.array[at_o + d];
            want_dq[at_q + d] += ds * kd,
                bound_dq[at_q + d] += fabs(kd) * (e_ds + 2.0 * ((double)t + 3) * U * fabs(ds));
            want_dkv[at_k + d] += ds * qd, bound_dkv[at_k + d] += fabs(qd) * (e_ds + n_dkv * U * fabs(ds));
            want_dkv[at_k + v_at + d] += pk * dd, bound_dkv[at_k + v_at + d] += fabs(dd) * (e_pk + n_dkv * U * pk);
        }
    }
}

// out and lse are what they should be, rounded: errors of the forward pass do not count here.
template <class T> void Problem<T>::expect_backward()
{
    expect_forward();
    for (size_t i = 0; i < want_out.size(); i++) out.array.host[i] = T((float)want_out[i]);
    for (size_t i = 0; i < want_lse.size(); i++) lse.host[i] = (float)want_lse[i];
    out.array.up(), lse.up();
    want_dq.assign(dq.array.host.size(), 0), bound_dq = want_dq;
    want_dkv.assign(dkv.array.host.size(), 0), bound_dkv = want_dkv;
    for (size_t b = 0; b < s.B; b++)
        for (size_t h = 0; h < s.H; h++)
            for (size_t t = 0; t < s.Tq; t++) backward_row(b, h, t);
}

template <class T> void Problem<T>::run_backward()
{
    const T *k = kv.array.device;
    T *dk = dkv.array.device;
    if (tensor)
        flash_or_stop(*this, false);
    else
        attention_backward_cuda<T>(dq.array.device, dk, dk + s.G * s.D, delta.device, dout.array.device,
                                   out.array.device, lse.device, q.array.device, k, k + s.G * s.D, s, c.warps,
                                   stream);
    dq.down(), dkv.down();
}

template <class T> void Problem<T>::backward()
{
    expect_backward();
    run_backward();
    std::vector<float> qf = q.wide(), kf = kv.wide(), of = out.wide(), df = dout.wide(), dqf(qf.size()),
                       dkvf(kf.size());
    Dev dev;
    memset((void *)&dev, 0, sizeof dev);
    dev.threads = 1;
    attention_cpu_fill(&dev);
    AttnShape host = s;
    if (s.first) host.first = first.host.data();
    size_t v = s.G * s.D;
    dev.attention_backward(&dev, x_of(dqf), x_of(dkvf), (X *)(dkvf.data() + v), x_of(df), x_of(of), lse.host.data(),
                           x_of(qf), x_of(kf), (X *)(kf.data() + v), host);
    for (size_t i = 0; i < dqf.size(); i++) {
        if (i % dq.ld >= dq.n) continue;
        double got = (float)dq.array[i], bound = stored(want_dq[i], bound_dq[i]);
        EXPECT(fabs(got - want_dq[i]) <= bound && fabs(got - dqf[i]) <= bound + bound_dq[i]);
    }
    for (size_t i = 0; i < dkvf.size(); i++) {
        if (i % dkv.ld >= dkv.n) continue;
        double got = (float)dkv.array[i], bound = stored(want_dkv[i], bound_dkv[i]);
        EXPECT(fabs(got - want_dkv[i]) <= bound && fabs(got - dkvf[i]) <= bound + bound_dkv[i]);
    }
}

//                                 B   Tq   Tk  H  G   D  warps flash document scale drop window
static const Case PLAIN_CASES[] = {{2, 1, 1, 4, 1, 16, 2, 0, 0, 0, 0},
                                   {2, 37, 37, 4, 1, 20, 3, 0, 0, 0, 0},
                                   {1, 70, 70, 6, 2, 48, 4, 0, 17, 0.3f, 0},
                                   {1, 35, 35, 2, 2, 128, 1, 0, 0, 0, 0.2f},
                                   {1, 21, 21, 1, 1, 200, 2, 0, 0, 0, 0},
                                   {2, 37, 37, 4, 2, 20, 3, 0, 0, 0, 0, 1},
                                   {1, 70, 70, 2, 1, 16, 4, 0, 17, 0, 0.2f, 12},
                                   {1, 70, 70, 2, 1, 16, 4, 0, 0, 0, 0, 33}};
// A block has 128 rows (64 with dropout), a tile 64 keys.
static const Case FLASH_CASES[] = {
    {2, 1, 1, 4, 1, 32, 1, 1, 0, 0, 0},       {1, 53, 53, 4, 1, 32, 1, 1, 0, 0.3f, 0},
    {2, 61, 61, 6, 2, 64, 1, 1, 23, 0, 0},    {1, 37, 37, 1, 1, 128, 1, 1, 0, 0, 0},
    {1, 41, 41, 2, 1, 32, 1, 1, 11, 0, 0.3f}, {1, 150, 150, 2, 1, 64, 1, 1, 0, 0, 0},
    {1, 139, 139, 1, 1, 128, 1, 1, 67, 0, 0}, {1, 45, 45, 2, 1, 24, 1, 1, 0, 0, 0}, // filled up with zeros
    {1, 70, 70, 1, 1, 80, 1, 1, 0, 0, 0.1f},  {1, 53, 53, 2, 1, 32, 1, 1, 0, 0, 0, 1},
    {1, 61, 61, 2, 1, 64, 1, 1, 23, 0, 0, 17}, {1, 150, 150, 2, 1, 64, 1, 1, 0, 0, 0, 20},
    {1, 200, 200, 1, 1, 32, 1, 1, 0, 0, 0.1f, 65}};
// Fewer queries than keys, as in sampling: forward only. 64 keys: one whole tile.
static const Case LATER_CASES[] = {
    {2, 5, 40, 4, 2, 32, 1, 0, 0, 0, 0}, {2, 5, 40, 4, 2, 32, 1, 1, 0, 0, 0}, {1, 70, 90, 2, 1, 64, 1, 1, 0, 0, 0},
    {1, 5, 16, 2, 1, 32, 1, 1, 0, 0, 0},     {1, 70, 90, 2, 1, 64, 1, 1, 0, 0, 0, 30}};

// No rows, or no queries or keys: nothing is written where there is nothing to write, keys without a query get zeros,
// and CUDA, which refuses empty grids, is not asked.
template <class T> static void test_nothing()
{
    const int shapes[][3] = {{0, 9, 9}, {2, 0, 9}, {2, 0, 0}}; // B, Tq, Tk
    for (int flash = 0; flash <= (sizeof(T) == 2); flash++)
        for (auto &n : shapes) {
            Problem<T> p({n[0], n[1], n[2], 2, 1, 32, 1, flash, 0, 0, 0});
            p.run_forward();
            p.s.q_start = 0; // which backward wants
            p.run_backward();
            for (size_t i = 0; i < p.dkv.array.host.size(); i++)
                EXPECT(i % p.dkv.ld >= p.dkv.n || (float)p.dkv.array[i] == 0);
        }
}

template <class T> static void test_plain_forward()
{
    for (const Case &c : PLAIN_CASES) Problem<T>(c).forward();
    Problem<T>(LATER_CASES[0]).forward();
}
template <class T> static void test_plain_backward()
{
    for (const Case &c : PLAIN_CASES) Problem<T>(c).backward();
}
template <class T> static void test_flash_forward()
{
    for (const Case &c : FLASH_CASES) Problem<T>(c).forward();
    for (int i = 1; i < 5; i++) Problem<T>(LATER_CASES[i]).forward();
}
template <class T> static void test_flash_backward()
{
    for (const Case &c : FLASH_CASES) Problem<T>(c).backward();
}

// A NaN in a query reaches that query alone, one in a key those that see the key. Fewer rows in a block of the plain kernels: same bits.
template <class T> static void nan_case(Case c)
{
    for (int in_key = 0; in_key < 2; in_key++) {
        Problem<T> p(c);
        p.run_forward();
        std::vector<float> clean = p.out.wide();
        p.c.warps = 1;
        p.run_forward();
        std::vector<float> again = p.out.wide();
        EXPECT(!memcmp(clean.data(), again.data(), clean.size() * sizeof(float)));
        const size_t at = 10;
        (in_key ? p.kv : p.q).array.host[in_key ? p.k_at(0, 0, at) : p.q_at(0, 0, at)] = T(NAN);
        p.q.array.up(), p.kv.array.up();
        p.run_forward();
        for (size_t t = 0; t < p.s.Tq; t++)
            for (size_t d = 0; d < p.s.D; d++) {
                size_t i = p.out_at(0, 0, t) + d;
                bool hit = in_key ? t >= at : t == at;
                EXPECT(hit ? std::isnan((float)p.out.array[i]) : (float)p.out.array[i] == clean[i]);
            }
    }
}
static void test_nan()
{
    nan_case<float>({1, 40, 40, 1, 1, 16, 4, 0, 0, 0, 0});
    nan_case<__nv_bfloat16>({1, 40, 40, 1, 1, 32, 1, 1, 0, 0, 0});
}

static void test_takes()
{
    AttnShape s = {};
    s.D = 64, s.ldq = 192, s.ldkv = 192;
    const char *p = (const char *)256;
    EXPECT(flash_takes(p, p + 128, p + 256, s));
    EXPECT(!flash_takes(p, p + 8, p + 256, s));
    s.ldkv = 196;
    EXPECT(!flash_takes(p, p, p, s));
    s.ldkv = 192, s.D = 20;
    EXPECT(!flash_takes(p, p, p, s));
    s.D = 136;
    EXPECT(!flash_takes(p, p, p, s));
    s.D = 48;
    EXPECT(flash_takes(p, p, p, s));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)();
    } tests[] = {
        {"plain forward fp32", test_plain_forward<float>},
        {"plain forward bf16", test_plain_forward<__nv_bfloat16>},
        {"plain forward fp16", test_plain_forward<__half>},
        {"plain backward fp32", test_plain_backward<float>},
        {"plain backward bf16", test_plain_backward<__nv_bfloat16>},
        {"plain backward fp16", test_plain_backward<__half>},
        {"flash forward bf16", test_flash_forward<__nv_bfloat16>},
        {"flash forward fp16", test_flash_forward<__half>},
        {"flash backward bf16", test_flash_backward<__nv_bfloat16>},
        {"flash backward fp16", test_flash_backward<__half>},
        {"nothing to do, fp32", test_nothing<float>},
        {"nothing to do, bf16", test_nothing<__nv_bfloat16>},
        {"NaN and block sizes", test_nan},
        {"what flash takes", test_takes},
    };
    if (argc > 1 && !strcmp(argv[1], "stops")) Problem<__half>({1, 9, 9, 1, 1, 20, 1, 16, 0, 0, 0}).run_forward();
    int ran = 0;
    for (auto &t : tests) {
        if (argc > 1 && strncmp(t.name, argv[1], strlen(argv[1]))) continue;
        int before = failures;
        t.run();
        printf("%s %s\n", failures == before ? "ok" : "not ok", t.name);
        ran++;
    }
    return failures != 0 || !ran;
}
