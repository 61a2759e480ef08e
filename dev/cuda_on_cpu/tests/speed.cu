// speed: what the CUDA device's ops reach on a GPU: GB/s of the memory that they must move, TFLOP/s of the products
// that they must make; first what the machine itself gives: a copy within its memory, a large matmul. For
// scripts/bench_gpu.sh. It runs on the emulation too, where its times mean nothing.
//
// A line is "NAME|MILLISECONDS|AMOUNT|UNIT", the best of five runs of a number of launches. Bytes: each array once,
// those that are read and written twice. Products of attention: the causal half, forward 2, backward 5 of them
// (7 are made, see flash.cu). Arrays are larger than the GPU's cache. They hold noise: on equal numbers a GPU takes
// less power, and is faster than in training.
#include "base/check.h"
#include "compare.h"
#include "ops/dev_cuda.h"

#include <cstring>

typedef __nv_bfloat16 B16;

struct Speed {
    Dev *dev;
    int launches;
    std::vector<void *> held; // of one group of ops

    // Noise between low and high, or zeros.
    template <class T> T *room(size_t n, float low = 0, float high = 0)
    {
        std::vector<T> host(n < 1 << 20 ? n : 1 << 20); // and again from its start
        for (T &x : host) x = T(uniform(low, high));
        T *p = (T *)gpu_alloc(n * sizeof(T));
        if (!p) {
            fprintf(stderr, "error: speed: no %.1f GB left on the GPU\n", (double)(n * sizeof(T)) * 1e-9);
            exit(1);
        }
        for (size_t at = 0; low != high && at < n; at += host.size())
            GPU_CHECK(cudaMemcpy(p + at, host.data(), (n - at < host.size() ? n - at : host.size()) * sizeof(T),
                                 cudaMemcpyHostToDevice));
        held.push_back(p);
        return p;
    }
    X *x(size_t n, float most = 1) { return (X *)room<B16>(n, -most, most); }
    X *out(size_t n) { return (X *)room<B16>(n); }
    void free_all()
    {
        for (void *p : held) gpu_release(p);
        held.clear();
    }
    template <class F> void timed(const char *name, double work, const char *unit, F f)
    {
        cudaStream_t stream = dev_cuda(dev)->stream;
        cudaEvent_t begin, end;
        float best = 1e30f, ms;
        GPU_CHECK(cudaEventCreate(&begin));
        GPU_CHECK(cudaEventCreate(&end));
        f();
        for (int i = 0; i < 5; i++) {
            GPU_CHECK(cudaEventRecord(begin, stream));
            for (int n = 0; n < launches; n++) f();
            GPU_CHECK(cudaEventRecord(end, stream));
            GPU_CHECK(cudaEventSynchronize(end));
            GPU_CHECK(cudaEventElapsedTime(&ms, begin, end));
            best = fminf(best, ms / (float)launches);
        }
        printf("%s|%.4f|%.6g|%s\n", name, (double)best, work / (double)best, unit);
        fflush(stdout);
        GPU_CHECK(cudaEventDestroy(begin));
        GPU_CHECK(cudaEventDestroy(end));
    }

    void machine(size_t bytes, size_t n);
    void rows(size_t N, size_t C, size_t F, size_t V);
    void update(size_t n);
    void attention(size_t batch, size_t T, size_t heads, size_t D, bool plain);
};

void Speed::machine(size_t bytes, size_t n)
{
    char *from = room<char>(bytes), *to = room<char>(bytes);
    timed("copy", (double)bytes * 2e-6, "GB/s", [&] {
        GPU_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, dev_cuda(dev)->stream));
    });
    X *inp = x(n * n), *weight = x(n * n), *product = out(n * n);
    timed("matmul bf16", 2e-9 * (double)(n * n) * (double)n, "TFLOP/s",
          [&] { dev->matmul_forward(dev, product, inp, weight, nullptr, n, n, n, -1); });
    free_all();
}

void Speed::rows(size_t N, size_t C, size_t F, size_t V)
{
    size_t n = N * C, f = N * F;
    double mb = (double)n * 1e-6, mf = (double)f * 1e-6;
    X *a = x(n), *b = x(n), *sum = out(n), *y = out(n), *weight = x(C), *bias = x(C);
    float *mean = room<float>(N), *rstd = room<float>(N, 0.5f, 2), *dweight = room<float>(C), *dbias = room<float>(C);
    int32_t *pos = room<int32_t>(N);
    timed("residual + layernorm bf16", mb * 8, "GB/s", [&] {
        dev->norm_forward(dev, y, sum, mean, rstd, a, b, weight, bias, N, C, NORM_LAYERNORM, 1e-5f);
    });
    timed("layernorm backward bf16", mb * 8, "GB/s", [&] {
        dev->norm_backward(dev, y, dweight, dbias, a, b, sum, mean, rstd, weight, N, C, NORM_LAYERNORM);
    });
    timed("residual + rmsnorm bf16", mb * 8, "GB/s", [&] {
        dev->norm_forward(dev, y, sum, nullptr, rstd, a, b, weight, nullptr, N, C, NORM_RMSNORM, 1e-5f);
    });
    timed("add bf16", mb * 6, "GB/s", [&] { dev->add(dev, y, a, b, n); });
    Rope rope{};
    rope.theta = 1e4f;
    timed("rope bf16", mb * 4, "GB/s", [&] { dev->rope_forward(dev, a, pos, N, C / 64, 64, C, rope); });
    free_all();
    X *wide = x(2 * f), *dwide = out(2 * f), *dact = x(f), *act = out(f);
    timed("gelu bf16", mf * 4, "GB/s", [&] { dev->act_forward(dev, act, dact, f, ACT_GELU); });
    timed("swiglu bf16", mf * 6, "GB/s", [&] { dev->swiglu_forward(dev, act, wide, N, F); });
    timed("swiglu backward bf16", mf * 10, "GB/s", [&] { dev->swiglu_backward(dev, dwide, dact, wide, N, F); });
    free_all();
    N /= 4;
    X *z = x(N * V), *dz = out(N * V);
    float *loss = room<float>(N);
    int32_t *target = room<int32_t>(N);
    timed("softmax + cross-entropy bf16", (double)(N * V) * 4e-6, "GB/s",
          [&] { dev->softmax_xent(dev, loss, dz, z, target, N, V, 1e-4f, 0); });
    free_all();
}

void Speed::update(size_t n)
{
    float *w = room<float>(n, -1, 1), *m = room<float>(n), *v = room<float>(n), *g = room<float>(n, -1, 1);
    X *copy = out(n);
    Update u = {};
    u.lr = 1e-4f, u.beta1 = 0.9f, u.beta2 = 0.95f, u.eps = 1e-8f, u.weight_decay = 0.1f, u.grad_scale = 1, u.step = 1;
    timed("adamw", (double)n * 32e-6, "GB/s", [&] { dev->update(dev, OPTIM_ADAMW, w, m, v, g, n, u); });
    timed("weights to bf16", (double)n * 6e-6, "GB/s", [&] { dev->to_x(dev, copy, w, n); });
    free_all();
}

void Speed::attention(size_t batch, size_t T, size_t heads, size_t D, bool plain)
{
    AttnShape s = {};
    s.B = batch, s.Tq = s.Tk = T, s.H = s.G = heads, s.D = D, s.ldq = s.ldkv = 3 * heads * D;
    size_t n = batch * T * heads * D, stats = batch * heads * T;
    B16 *qkv = room<B16>(3 * n, -2, 2), *dqkv = room<B16>(3 * n), *o = room<B16>(n), *d_o = room<B16>(n, -1, 1);
    B16 *k = qkv + heads * D, *v = k + heads * D, *dk = dqkv + heads * D, *dv = dk + heads * D;
    float *lse = room<float>(stats);
    double product = (double)stats * (double)T * (double)D * 1e-9; // 2 T T D / 2, in units of 1e9 a millisecond
    char name[80];
    auto named = [&](const char *what) {
        snprintf(name, sizeof name, "%s bf16 D=%d T=%d", what, (int)D, (int)T);
        return name;
    };
    timed(named("attention forward"), 2 * product, "TFLOP/s",
          [&] { dev->attention_forward(dev, (X *)o, lse, (X *)qkv, (X *)k, (X *)v, s); });
    timed(named("attention backward"), 5 * product, "TFLOP/s", [&] {
        dev->attention_backward(dev, (X *)dqkv, (X *)dk, (X *)dv, (X *)d_o, (X *)o, lse, (X *)qkv, (X *)k, (X *)v, s);
    });
    int all = launches;
    launches = 1;
    if (plain)
        timed(named("plain attention forward"), 2 * product, "TFLOP/s", [&] {
            attention_forward_cuda<B16>(o, lse, qkv, k, v, s, 4, dev_cuda(dev)->stream);
        });
    launches = all;
    free_all();
}

static const char help[] =
    "usage: speed [small] [machine]\n"
    "  small    sizes for a test of this program\n"
    "  machine  the two yardsticks alone: a copy, a large matmul\n";

int main(int argc, char **argv)
{
    check_help(argc, argv, help);
    bool small = false, machine = false;
    for (int i = 1; i < argc; i++) {
        bool is_small = !strcmp(argv[i], "small"), is_machine = !strcmp(argv[i], "machine");
        if (!is_small && !is_machine) die_usage("speed: '%s' (small or machine; try --help)", argv[i]);
        small |= is_small, machine |= is_machine;
    }
    DevCudaOptions options = {};
    options.x_type = X_BF16;
    Speed speed = {dev_cuda_create(options), small ? 1 : 20, {}};
    speed.machine(small ? 4096 : (size_t)1 << 30, small ? 32 : 8192);
    if (small && !machine) {
        speed.rows(8, 64, 64, 64), speed.update(1000), speed.attention(1, 32, 1, 64, true);
        speed.attention(1, 32, 1, 128, false);
    } else if (!machine) {
        speed.rows(32768, 768, 3072, 50304), speed.update(124000000);
        speed.attention(8, 1024, 12, 64, true), speed.attention(4, 2048, 16, 128, false);
        speed.attention(2, 4096, 16, 128, false);
    }
    dev_cuda_free(speed.dev);
    return 0;
}
