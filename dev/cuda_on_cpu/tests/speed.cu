// speed: what the kernels reach on a GPU, at the sizes of GPT-2 124M: GB/s of the memory that they must move, TFLOP/s
// of the products that they must make. For scripts/gpu_check.sh. It runs on the emulation too, where its times
// mean nothing.
//
// usage: speed [small]      small: sizes for a test of this program
//
// A line is "NAME|MILLISECONDS|AMOUNT|UNIT", the best of five runs of a number of launches. Bytes: each array once,
// those that are read and written twice. Products of attention: the causal half, forward 2, backward 5 of them
// (7 are made, see flash.cu).
#include "compare.h"
#include "kernels.h"

#include <cstring>

typedef __nv_bfloat16 B16;

static int launches = 20;
static void *room(size_t bytes, float value) // bf16 or fp32 numbers, all the same
{
    void *p;
    GPU_CHECK(cudaMalloc(&p, bytes));
    std::vector<B16> host(bytes / sizeof(B16), B16(value));
    GPU_CHECK(cudaMemcpy(p, host.data(), host.size() * sizeof(B16), cudaMemcpyHostToDevice));
    return p;
}

template <class F> static void timed(const char *name, double work, const char *unit, F f)
{
    cudaEvent_t begin, end;
    float best = 1e30f, ms;
    GPU_CHECK(cudaEventCreate(&begin));
    GPU_CHECK(cudaEventCreate(&end));
    f();
    for (int i = 0; i < 5; i++) {
        GPU_CHECK(cudaEventRecord(begin, nullptr));
        for (int n = 0; n < launches; n++) f();
        GPU_CHECK(cudaEventRecord(end, nullptr));
        GPU_CHECK(cudaEventSynchronize(end));
        GPU_CHECK(cudaEventElapsedTime(&ms, begin, end));
        best = fminf(best, ms / (float)launches);
    }
    printf("%s|%.4f|%.2f|%s\n", name, best, work / best, unit);
    GPU_CHECK(cudaEventDestroy(begin));
    GPU_CHECK(cudaEventDestroy(end));
}

static void rows(int N, int C, int V)
{
    size_t n = (size_t)N * (size_t)C, v = (size_t)N * (size_t)V;
    B16 *a = (B16 *)room(n * 2, 1), *b = (B16 *)room(n * 2, 2);
    B16 *out = (B16 *)room(n * 2, 0), *sum = (B16 *)room(n * 2, 0);
    B16 *weight = (B16 *)room((size_t)C * 2, 1), *bias = (B16 *)room((size_t)C * 2, 0), *z = (B16 *)room(v * 2, 1);
    float *mean = (float *)room((size_t)N * 4, 0), *rstd = (float *)room((size_t)N * 4, 0);
    float *loss = (float *)room((size_t)N * 4, 0);
    int32_t *target = (int32_t *)room((size_t)N * 4, 0);
    timed("residual + layernorm bf16", (double)n * 8 * 1e-6, "GB/s", [&] {
        norm_forward_cuda<B16>(out, sum, mean, rstd, a, b, weight, bias, N, C, true, 1e-5f, 4, nullptr);
    });
    timed("gelu bf16", (double)n * 4 * 1e-6, "GB/s",
          [&] { gelu_forward_cuda<B16>(out, a, n, (int)((n / 8 + 255) / 256), 256, nullptr); });
    timed("softmax + cross-entropy bf16", (double)v * 4 * 1e-6, "GB/s",
          [&] { softmax_xent_cuda<B16>(loss, z, z, target, N, V, 1e-4f, 512, nullptr); });
    for (void *p : {(void *)a, (void *)b, (void *)out, (void *)sum, (void *)weight, (void *)bias, (void *)z,
                    (void *)mean, (void *)rstd, (void *)loss, (void *)target})
        GPU_CHECK(cudaFree(p));
}

static void update(size_t n)
{
    float *w = (float *)room(n * 4, 1), *m = (float *)room(n * 4, 0), *v = (float *)room(n * 4, 0);
    float *g = (float *)room(n * 4, 1);
    B16 *copy = (B16 *)room(n * 2, 0);
    Update u = {};
    u.lr = 1e-4f, u.beta1 = 0.9f, u.beta2 = 0.95f, u.eps = 1e-8f, u.weight_decay = 0.1f, u.grad_scale = 1, u.step = 1;
    timed("adamw", (double)n * 34 * 1e-6, "GB/s",
          [&] { adamw_cuda<B16>(w, copy, m, v, g, n, u, (int)((n + 1023) / 1024), 256, nullptr); });
    for (void *p : {(void *)w, (void *)m, (void *)v, (void *)g, (void *)copy}) GPU_CHECK(cudaFree(p));
}

static void attention(size_t batch, size_t T, size_t heads, size_t D)
{
    AttnShape s = {};
    s.B = batch, s.Tq = s.Tk = T, s.H = s.G = heads, s.D = D, s.ldq = s.ldkv = 3 * heads * D;
    size_t n = batch * T * heads * D, stats = batch * heads * T;
    B16 *qkv = (B16 *)room(3 * n * 2, 0.1f), *dqkv = (B16 *)room(3 * n * 2, 0), *out = (B16 *)room(n * 2, 0);
    B16 *dout = (B16 *)room(n * 2, 0.1f), *k = qkv + heads * D, *v = k + heads * D, *dk = dqkv + heads * D;
    float *lse = (float *)room(stats * 4, 0), *delta = (float *)room(stats * 4, 0);
    double product = (double)stats * (double)T * (double)D * 1e-9; // 2 T T D / 2, in units of 1e9 a millisecond
    char name[80];
    snprintf(name, sizeof name, "flash forward bf16 D=%d", (int)D);
    timed(name, 2 * product, "TFLOP/s", [&] { flash_forward_cuda<B16>(out, lse, qkv, k, v, s, 4, 64, nullptr); });
    snprintf(name, sizeof name, "flash backward bf16 D=%d", (int)D);
    timed(name, 5 * product, "TFLOP/s", [&] {
        flash_backward_cuda<B16>(dqkv, dk, dk + heads * D, delta, dout, out, lse, qkv, k, v, s, 4, 64, nullptr);
    });
    int all = launches;
    launches = 1;
    snprintf(name, sizeof name, "plain attention forward bf16 D=%d", (int)D);
    timed(name, 2 * product, "TFLOP/s", [&] { attention_forward_cuda<B16>(out, lse, qkv, k, v, s, 4, nullptr); });
    launches = all;
    for (void *p : {(void *)qkv, (void *)dqkv, (void *)out, (void *)dout, (void *)lse, (void *)delta})
        GPU_CHECK(cudaFree(p));
}

int main(int argc, char **argv)
{
    bool small = argc > 1 && !strcmp(argv[1], "small");
    if (small) {
        launches = 1;
        rows(4, 64, 64), update(1000), attention(1, 32, 1, 64);
    } else {
        rows(8192, 768, 50304), update(124000000), attention(8, 1024, 12, 64), attention(4, 2048, 16, 128);
    }
    return 0;
}
