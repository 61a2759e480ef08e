// ladder: climbs the rungs of a matrix product, from three loops to the one that training uses.
//
//   build/matmul_ladder [--threads N] [--rows N]     (scripts/matmul_ladder.sh builds and starts it)
//
// First every rung is held against a product in double, on sizes with edges everywhere. The bound is
// gamma(K) sum_k |a_k b_k| with gamma(n) = n u / (1 - n u), u = 2^-24 (Higham, section 3.1), for sums in any
// order. Then each is timed on one shape, and its bits are compared with those of the naive loops. Last,
// src/gemm against OpenBLAS on the products of GPT-2 124M, forward and backward.
//
// Times are the best of a few. The two libraries take turns, because machines drift, with a pause between:
// OpenBLAS' threads spin for a while after a call and would take a core from ours. Exit status 1 when a rung
// is out of its bound, or src/gemm does not have the bits of the naive loops.
#include "ladder.h"
#include "base/clock.h"

#include "ops/dev_cpu.h"
#include "base/check.h"
#include "ops/gemm.h"
#include "base/rng.h"

#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void openblas_set_num_threads(int threads);

typedef struct {
    const char *name, *idea;
    Rung *run;
    bool threads;
} Step;

static const Step steps[] = {
    {"0 openblas", "the library", ladder_openblas, true},
    {"1 naive", "a dot product an element", ladder_naive, false},
    {"2 reordered", "n innermost: vectors", ladder_reordered, false},
    {"3 tiled", "a tile of B stays in cache", ladder_tiled, false},
    {"4 packed", "tiles are copied: fixed lengths, no gaps", ladder_packed, false},
    {"5 simd", "sums in vector registers", ladder_simd, false},
    {"6 threaded", "src/ops/gemm.c", ladder_threaded, true},
};
enum { N_STEPS = sizeof steps / sizeof *steps, PAUSE_US = 250000 };

static float *floats(size_t n, const char *name)
{
    float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
    if (!x) die("ladder: no memory for %zu numbers", n);
    Rng rng = rng_make(1, name, 0);
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_uniform(rng, i) - 0.5f;
    return x;
}

// Is every element within its bound of the product in double? Prints the first that is not.
static bool within_bound(const Step *s, size_t M, size_t N, size_t K)
{
    float *A = floats(M * K, "a"), *B = floats(K * N, "b"), *C = floats(M * N, "c");
    double gamma = (double)K * 0x1p-24 / (1 - (double)K * 0x1p-24);
    bool ok = true;
    s->run(C, A, B, M, N, K, 2);
    for (size_t m = 0; m < M; m++)
        for (size_t n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < K; k++) {
                double term = (double)A[m * K + k] * (double)B[k * N + n];
                sum += term;
                size += fabs(term);
            }
            if (fabs((double)C[m * N + n] - sum) <= gamma * size) continue;
            if (ok)
                printf("%s: %zu x %zu x %zu: C[%zu][%zu] = %.9g, not %.9g\n", s->name, M, N, K, m, n,
                       (double)C[m * N + n], sum);
            ok = false;
        }
    free(A), free(B), free(C);
    return ok;
}

static bool check_all(void)
{
    const size_t sizes[][3] = {{1, 1, 1}, {13, 37, 300}, {97, 131, 301}, {250, 40, 17}, {64, 64, 64}};
    bool ok = true;
    for (size_t i = 0; i < N_STEPS; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
            ok = within_bound(&steps[i], sizes[j][0], sizes[j][1], sizes[j][2]) && ok;
    return ok;
}

// Best of `tries` times; the first is short of a warm cache and rarely the best.
static double best_time(const Step *s, float *C, const float *A, const float *B, size_t M, size_t N, size_t K,
                        int threads, int tries)
{
    double best = 1e30;
    for (int i = 0; i < tries; i++) {
        double t = clock_seconds();
        s->run(C, A, B, M, N, K, threads);
        t = clock_seconds() - t;
        if (t < best) best = t;
    }
    return best;
}

// The table of the rungs; whether the last one has the bits of the naive loops.
static bool climb(size_t M, size_t N, size_t K, int threads)
{
    float *A = floats(M * K, "a"), *B = floats(K * N, "b"), *C = floats(M * N, "c"), *naive = floats(M * N, "naive");
    double gflop = 2e-9 * (double)M * (double)N * (double)K, base = 0, goal = 0;
    bool same = false;
    ladder_naive(naive, A, B, M, N, K, 1);
    printf("C (%zu, %zu) = A (%zu, %zu) B (%zu, %zu), kernel of rung 6: %s\n\n", M, N, M, K, K, N, gemm_kernel());
    printf("| rung | idea | threads | GFLOP/s | times naive | of OpenBLAS, 1 thread | bits of naive |\n");
    printf("|---|---|--:|--:|--:|--:|---|\n");
    for (int pass = 0; pass < 2 && pass < threads; pass++) // one thread each; then all, for those that can
        for (size_t i = 0; i < N_STEPS; i++) {
            if (pass == 1 && !steps[i].threads) continue;
            usleep(PAUSE_US);
            int n = pass == 0 ? 1 : threads;
            double rate = gflop / best_time(&steps[i], C, A, B, M, N, K, n, i == 1 ? 2 : 12);
            if (pass == 0 && i == 0) goal = rate;
            if (i == 1) base = rate;
            same = memcmp(C, naive, M * N * sizeof *C) == 0;
            char times[32] = "";
            if (base > 0) snprintf(times, sizeof times, "%.0f", rate / base);
            printf("| %s | %s | %d | %.1f | %s | %.0f%% | %s |\n", steps[i].name, steps[i].idea, n, rate, times,
                   100 * rate / goal, same ? "yes" : "no");
            fflush(stdout);
        }
    free(A), free(B), free(C), free(naive);
    return same;
}

typedef struct {
    bool trans_a, trans_b;
    size_t M, N, K;
    float beta;
} Product;

static double product_time(Product p, float *C, const float *A, const float *B, int threads, bool ours)
{
    size_t lda = p.trans_a ? p.M : p.K, ldb = p.trans_b ? p.K : p.N;
    openblas_set_num_threads(threads);
    double t = clock_seconds();
    if (ours) gemm(threads, p.trans_a, p.trans_b, p.M, p.N, p.K, 1, A, lda, B, ldb, p.beta, C, p.N);
    else
        cblas_sgemm(CblasRowMajor, p.trans_a ? CblasTrans : CblasNoTrans, p.trans_b ? CblasTrans : CblasNoTrans,
                    (int)p.M, (int)p.N, (int)p.K, 1, A, (int)lda, B, (int)ldb, p.beta, C, (int)p.N);
    return clock_seconds() - t;
}

// Rates of both in GFLOP/s: best of three turns of three calls each.
static void duel(Product p, int threads, double *ours, double *theirs)
{
    float *A = floats(p.M * p.K, "a"), *B = floats(p.K * p.N, "b"), *C = floats(p.M * p.N, "c");
    double gflop = 2e-9 * (double)p.M * (double)p.N * (double)p.K, best[2] = {1e30, 1e30};
    for (int turn = 0; turn < 3; turn++)
        for (int who = 0; who < 2; who++) {
            if (who == 1 && threads > 1) usleep(PAUSE_US); // until OpenBLAS' threads sleep
            for (int i = 0; i < (gflop > 20 ? 1 : 3); i++) {
                double t = product_time(p, C, A, B, threads, who == 1);
                if (t < best[who]) best[who] = t;
            }
        }
    *theirs = gflop / best[0];
    *ours = gflop / best[1];
    free(A), free(B), free(C);
}

static void gpt2(size_t rows, int threads)
{
    const size_t layer[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50257}}; // C, OC
    const char *what[] = {"q, k, v", "attention out", "ffn up", "ffn down", "head"};
    printf("\nGPT-2 124M, %zu rows: src/gemm and OpenBLAS in GFLOP/s\n\n", rows);
    printf("| layer | product | (M, N, K) | threads | gemm | OpenBLAS | gemm / OpenBLAS |\n");
    printf("|---|---|---|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        size_t C = layer[i][0], OC = layer[i][1];
        const Product products[] = {{false, true, rows, OC, C, 0},
                                    {false, false, rows, C, OC, 0},
                                    {true, false, OC, C, rows, 1}};
        const char *name[] = {"forward", "backward, input", "backward, weight"};
        for (int j = 0; j < 3; j++) {
            Product p = products[j];
            double ours, theirs;
            for (int n = 1; n <= threads; n = n == 1 && threads > 1 ? threads : threads + 1) {
                duel(p, n, &ours, &theirs);
                printf("| %s | %s | %zu, %zu, %zu | %d | %.0f | %.0f | %.2f |\n", what[i], name[j], p.M, p.N, p.K, n,
                       ours, theirs, ours / theirs);
                fflush(stdout);
            }
        }
    }
}

int main(int argc, char **argv)
{
    dev_cpu_choose_blas(argv);
    int threads = omp_get_num_procs(), rows = 1024;
    for (int i = 1; i < argc; i += 2) {
        int *value = !strcmp(argv[i], "--threads") ? &threads : !strcmp(argv[i], "--rows") ? &rows : NULL;
        if (!value || i + 1 >= argc || (*value = atoi(argv[i + 1])) < 1)
            die_usage("matmul_ladder: '%s' (try: --threads N --rows N, both at least 1)", argv[i]);
    }
    if (!check_all()) die("matmul_ladder: a rung is wrong; see above");
    printf("OpenBLAS kernels: %s (%s)\n\n", dev_cpu_blas(), dev_cpu_blas_reason());
    bool same = climb(1024, 768, 768, threads);
    gpt2((size_t)rows, threads);
    if (!same) die("matmul_ladder: src/gemm does not give the bits of the naive loops (see gemm.h)");
    return 0;
}
