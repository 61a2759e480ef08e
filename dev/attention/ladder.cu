// ladder: climbs the rungs of attention's forward pass, from three plain kernels to the one that training uses.
//
// (scripts/attention_ladder.sh builds and starts it.) First every rung is held against sums in double, on lengths with
// edges everywhere. Then, on a GPU, each is timed on one shape, where a few rows are checked again. On the emulation
// (dev/cuda_on_cpu) times mean nothing: the table comes only when a shape is asked for.
//
// The bound, with u = 2^-24, r = 2^-8, n keys, s the largest sum |q k| / sqrt(D) of the row. Sums of products on a
// tensor core: 2 u a term, for it may cut instead of rounding.
//   score         (2 D + 16) u s, and so is p relatively, with 8 u for exp
//   running sums  (s + 8) 2 u each time the maximum moves: at most once in 32 keys, and at the first
//   out           sum p |v| times: that twice (p and l), r where P is rounded for tensor cores, (6 n + 32) u for sums
// and r of the result itself, which is stored in bf16.
//
// Bytes a pair: what blocks fetch and store for one query and one key beside what they must (q, k, v and out once
// each); a block that shares what it fetches among R queries fetches 2 D / R bytes of k for a pair, and as much of
// v.
#include "../cuda_on_cpu/tests/compare.h"
#include "ladder.h"

#include <cerrno>
#include <cstdlib>

struct Step {
    const char *name, *idea;
    Rung *run;
    bool rounds_p;
    double fixed, share; // bytes a pair: fixed + 4 D / share
};
static const Step STEPS[] = {
    {"1 naive", "three kernels, scores in memory", ladder_naive, false, 28, 16. / 9},
    {"2 fused", "one kernel, a row of scores in shared memory", ladder_fused, false, 0, 4},
    {"3 online", "online softmax: one pass over the keys", ladder_online, false, 0, 32},
    {"4 tensor", "tensor cores", ladder_tensor, true, 0, 64},
    {"5 async", "copies beside the products, swizzled tiles", ladder_async, true, 0, 64},
    {"6 flash", "src/ops/flash.cu", ladder_flash, true, 0, 64},
};

struct Problem {
    LadderShape s;
    Array<B16> q, k, v, out;
    explicit Problem(LadderShape shape) : s(shape), q(size()), k(size()), v(size()), out(size())
    {
        for (size_t i = 0; i < size(); i++)
            q.host[i] = B16(uniform(-2, 2)), k.host[i] = B16(uniform(-2, 2)), v.host[i] = B16(uniform(-2, 2));
        q.up(), k.up(), v.up();
    }
    size_t size() const { return (size_t)s.B * (size_t)s.T * (size_t)s.H * (size_t)s.D; }
    double pairs() const { return (double)s.B * s.H * s.T * (s.T + 1) / 2; }
    void forget() // what a rung does not write stays NaN
    {
        out.host.assign(size(), B16(NAN));
        out.up();
    }
    bool row_within(const Step &step, int b, int h, int t) const;
};

// Query t of head h of sequence b: is the output within its bound? Prints the first number that is not.
bool Problem::row_within(const Step &step, int b, int h, int t) const
{
    std::vector<double> p((size_t)t + 1);
    const size_t at = ladder_row(s, b, h, t), D = (size_t)s.D;
    double top = -INFINITY, most = 0, sum = 0, n = t + 1;
    for (int j = 0; j <= t; j++) {
        double score = 0, size = 0;
        for (size_t d = 0; d < D; d++) {
            double term = (double)(float)q[at + d] * (double)(float)k[ladder_row(s, b, h, j) + d];
            score += term, size += fabs(term);
        }
        p[(size_t)j] = score / sqrt((double)s.D);
        top = fmax(top, p[(size_t)j]), most = fmax(most, size / sqrt((double)s.D));
    }
    for (double &x : p) sum += x = exp(x - top);
    const double r = 0x1p-8, moves = n / 32 + 2;
    const double error = ((2. * s.D + 16) * most + 8 + moves * 2 * (most + 8)) * U;
    for (size_t d = 0; d < D; d++) {
        double want = 0, size = 0, got = (double)(float)out[at + d];
        for (int j = 0; j <= t; j++) {
            double x = (double)(float)v[ladder_row(s, b, h, j) + d];
            want += p[(size_t)j] / sum * x, size += p[(size_t)j] / sum * fabs(x);
        }
        double bound = size * (2 * error + (step.rounds_p ? r : 0) + (6 * n + 32) * U);
        bound += r * (fabs(want) + bound);
        if (fabs(got - want) <= bound) continue;
        failures++;
        printf("not ok %s: B %d T %d H %d D %d: out[%d][%d][%d][%d] = %.9g, not %.9g (bound %.2g)\n", step.name, s.B,
               s.T, s.H, s.D, b, t, h, (int)d, got, want, bound);
        return false;
    }
    return true;
}

static void check_rung(const Step &step)
{
    const LadderShape shapes[] = {{1, 1, 1, 64}, {2, 37, 2, 64}, {1, 65, 1, 128}, {1, 150, 1, 64}, {2, 64, 1, 128}};
    for (LadderShape s : shapes) {
        Problem p(s);
        Array<float> score((size_t)s.B * (size_t)s.H * (size_t)s.T * (size_t)s.T);
        p.forget();
        if (!step.run(p.out.device, p.q.device, p.k.device, p.v.device, score.device, s, nullptr)) {
            failures++;
            printf("not ok %s: does not take T = %d, D = %d\n", step.name, s.T, s.D);
            return;
        }
        GPU_CHECK(cudaStreamSynchronize(nullptr));
        p.out.down();
        for (int b = 0; b < s.B; b++)
            for (int h = 0; h < s.H; h++)
                for (int t = 0; t < s.T; t++)
                    if (!p.row_within(step, b, h, t)) return;
    }
    printf("ok %s: within its bound of sums in double\n", step.name);
}

// Milliseconds of one launch: best of five runs, each of several launches where they are short.
static float time_of(const Step &step, Problem &p, float *score)
{
    cudaEvent_t begin, end;
    float best = 1e30f, ms = 0;
    GPU_CHECK(cudaEventCreate(&begin));
    GPU_CHECK(cudaEventCreate(&end));
    for (int i = 0, launches = 1; i < 6; i++) { // the first says how many launches there are in a run
        GPU_CHECK(cudaEventRecord(begin, nullptr));
        for (int n = 0; n < launches; n++)
            step.run(p.out.device, p.q.device, p.k.device, p.v.device, score, p.s, nullptr);
        GPU_CHECK(cudaEventRecord(end, nullptr));
        GPU_CHECK(cudaEventSynchronize(end));
        GPU_CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i > 0) best = fminf(best, ms / (float)launches);
        else launches = ms < 2 ? 20 : ms < 20 ? 5 : 1;
    }
    GPU_CHECK(cudaEventDestroy(begin));
    GPU_CHECK(cudaEventDestroy(end));
    return best;
}

static void climb(LadderShape s)
{
    Problem p(s);
    float *score = nullptr, naive = 0;
    if (cudaMalloc(&score, (size_t)s.B * (size_t)s.H * (size_t)s.T * (size_t)s.T * sizeof *score) != cudaSuccess) {
        cudaGetLastError();
        score = nullptr;
    }
    printf("B %d, T %d, H %d, D %d, bf16, causal: %.1f GFLOP\n\n", s.B, s.T, s.H, s.D, 4e-9 * s.D * p.pairs());
    printf("| rung | idea | bytes a pair | ms | TFLOP/s | GB/s | times naive |\n|---|---|--:|--:|--:|--:|--:|\n");
    for (const Step &step : STEPS) {
        double bytes = step.fixed + 4 * s.D / step.share;
        p.forget();
        if (!step.run(p.out.device, p.q.device, p.k.device, p.v.device, score, s, nullptr)) {
            printf("| %s | %s | %.0f | its scores do not fit | | | |\n", step.name, step.idea, bytes);
            fflush(stdout);
            continue;
        }
        float ms = time_of(step, p, score);
        p.out.down();
        for (int i = 0; i < 8; i++) // rows from the first to the last
            p.row_within(step, i % s.B, i % s.H, (int)((long long)(s.T - 1) * i / 7));
        if (&step == STEPS) naive = ms;
        char times[32] = "";
        if (naive > 0) snprintf(times, sizeof times, "%.1f", (double)(naive / ms));
        double all = bytes * p.pairs() + 8. * (double)p.size(), flop = 4. * s.D * p.pairs();
        printf("| %s | %s | %.0f | %.3f | %.1f | %.0f | %s |\n", step.name, step.idea, bytes, (double)ms,
               1e-9 * flop / (double)ms, 1e-6 * all / (double)ms, times);
        fflush(stdout);
    }
    GPU_CHECK(cudaFree(score));
}

static const char help[] =
    "usage: attention_ladder [--B N] [--T N] [--H N] [--D 64|128]\n"
    "       attention_ladder check\n"
    "  checks every rung; then, on a GPU, times each on one shape (2, 4096, 16, 128)\n";

// This program stands alone, without the library's way to end.
static int end(int status)
{
    if (!fflush(stdout) && !ferror(stdout)) return status;
    fprintf(stderr, "error: standard output: %s (is the disk full?)\n", strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) return fputs(help, stdout), end(0);
    LadderShape s = {2, 4096, 16, 128};
    bool only_check = argc == 2 && !strcmp(argv[1], "check"), asked = argc > 1 && !only_check;
    for (int i = 1; i < argc && !only_check; i += 2) {
        const char *a = argv[i];
        int *value = !strcmp(a, "--B") ? &s.B : !strcmp(a, "--T") ? &s.T : !strcmp(a, "--H") ? &s.H
                     : !strcmp(a, "--D") ? &s.D : nullptr;
        if (value && i + 1 < argc) *value = atoi(argv[i + 1]);
        if (!value || i + 1 >= argc || *value < 1 || *value > 1 << 20 || s.D % 64 || s.D > 128) {
            fprintf(stderr, "error: attention_ladder: '%s' (try: check, or --B N --T N --H N, at least 1, --D 64 or "
                            "128; --help)\n", a);
            return 2;
        }
    }
    for (const Step &step : STEPS) check_rung(step);
#ifdef __CUDACC__
    asked = !only_check;
#endif
    if (!failures && asked) {
        printf("\n");
        climb(s);
    }
    return end(failures != 0);
}
