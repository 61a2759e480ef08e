// test_muon: what Muon's orthogonal matrix is like when its products read bf16 (updates_matrix.c). A bound for each
// element says nothing there, because an error may grow 4.25 times in each of five iterations; so the test looks at
// what the method needs: the singular values, the angle to the matrix in fp32, and small singular values. The op in
// fp32, element by element: test_optim, test_ops.
#include "test/test.h"

#include "formats/formats.h"
#include "base/rng.h"
#include "ops/dev_cpu.h"
#include "ops/gemm.h"
#include "formats/gemm_bf16.h"

static const struct { size_t R, C; } SHAPE[] = {{192, 192}, {576, 192}, {192, 512}, {100, 37}, {1, 5}};
enum { SHAPES = sizeof SHAPE / sizeof *SHAPE };

static float *room(size_t n)
{
    float *x = zeroed((n + 1) * sizeof *x);
    return x;
}

// As gradients are: some directions stand out of noise.
static float *gradient(size_t R, size_t C)
{
    enum { STRONG = 12 };
    float *g = room(R * C);
    Rng noise = rng_make(3, "noise", 0), left = rng_make(3, "left", 0), right = rng_make(3, "right", 0);
    for (size_t i = 0; i < R * C; i++) g[i] = 0.02f * (float)rng_normal(noise, i);
    for (size_t k = 0; k < STRONG; k++)
        for (size_t i = 0; i < R; i++)
            for (size_t j = 0; j < C; j++)
                g[i * C + j] += (float)(rng_normal(left, k * R + i) * rng_normal(right, k * C + j) / (1 + (double)k));
    return g;
}

// The orthogonal matrix: with weights 0 and lr 1 they become -0.2 sqrt(max(R, C)) O.
static float *orthogonal(MuonProducts products, int threads, const float *g, size_t R, size_t C)
{
    size_t n = R * C, k = R < C ? R : C;
    float *w = room(n), *m = room(n), *grad = room(n), *scratch = room(n + 2 * k * k);
    memcpy(grad, g, n * sizeof *g);
    Dev *dev = dev_cpu_create(threads);
    Update u = {.lr = 1, .beta1 = 0.95f, .grad_scale = 1, .step = 1};
    updates_matrix_muon(dev, products, w, m, NULL, grad, scratch, R, C, u);
    for (size_t i = 0; i < n; i++) w[i] /= -0.2f * sqrtf((float)(R > C ? R : C));
    dev_cpu_free(dev);
    free(m), free(grad), free(scratch);
    return w;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The min(R, C) singular values in ascending order: its shorter lines are rotated in pairs until all are orthogonal
// (one-sided Jacobi); then their lengths are the singular values.
static double *singular_values(const float *x, size_t R, size_t C)
{
    size_t k = R < C ? R : C, L = R < C ? C : R;
    double *v = calloc(k * L + k, sizeof *v), *value = v + k * L, off = 1;
    assert_non_null(v);
    for (size_t i = 0; i < R * C; i++) v[R < C ? i : i % C * R + i / C] = x[i];
    for (int sweep = 0; sweep < 30 && off > 1e-9; sweep++) {
        off = 0;
        for (size_t p = 0; p < k; p++)
            for (size_t q = p + 1; q < k; q++) {
                double pp = 0, qq = 0, pq = 0, *a = v + p * L, *b = v + q * L;
                for (size_t i = 0; i < L; i++) pp += a[i] * a[i], qq += b[i] * b[i], pq += a[i] * b[i];
                if (fabs(pq) <= 1e-12 * sqrt(pp * qq)) continue;
                off = fmax(off, fabs(pq) / sqrt(pp * qq));
                double zeta = (qq - pp) / (2 * pq), t = copysign(1, zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
                double c = 1 / sqrt(1 + t * t), s = c * t;
                for (size_t i = 0; i < L; i++) {
                    double old = a[i];
                    a[i] = c * old - s * b[i], b[i] = s * old + c * b[i];
                }
            }
    }
    for (size_t p = 0; p < k; p++) {
        for (size_t i = 0; i < L; i++) value[p] += v[p * L + i] * v[p * L + i];
        value[p] = sqrt(value[p]);
    }
    qsort(value, k, sizeof *value, ascending);
    memmove(v, value, k * sizeof *v);
    return v;
}

// Five iterations bring singular values of at least 0.0015 |G| to between LOW and HIGH. Rounding moves them by OFF at
// most, which is 4 times the largest that was measured, as is 1 - cosine.
TEST(test_it_stays_orthogonal)
{
    const double LOW = 0.68, HIGH = 1.203, OFF = 0.02, TURN = 7e-5;
    for (int i = 0; i < SHAPES; i++) {
        size_t R = SHAPE[i].R, C = SHAPE[i].C, k = R < C ? R : C;
        float *g = gradient(R, C), *exact = orthogonal(MUON_FP32, 2, g, R, C);
        float *o = orthogonal(MUON_ROUNDED, 2, g, R, C);
        double *want = singular_values(exact, R, C), *got = singular_values(o, R, C), *of = singular_values(g, R, C);
        double dot = 0, a = 0, b = 0, norm = 0;
        for (size_t j = 0; j < R * C; j++)
            dot += (double)exact[j] * o[j], a += (double)exact[j] * exact[j], b += (double)o[j] * o[j];
        for (size_t j = 0; j < k; j++) norm += of[j] * of[j];
        for (size_t j = 0; j < k; j++) {
            assert_true(fabs(got[j] - want[j]) <= OFF);
            assert_true(got[j] <= HIGH + OFF);
            if (of[j] >= 0.0015 * sqrt(norm)) assert_true(got[j] >= LOW - OFF);
        }
        assert_true(1 - dot / sqrt(a * b) <= TURN);
        free(g), free(exact), free(o), free(want), free(got), free(of);
    }
}

// A diagonal G, whose singular values are its elements. While s is small, an iteration makes 3.4445 s of it, without
// rounding to bf16; the term -4.775 s^3 has five roundings of 2^-9 (s three times, A, B). The last iteration begins
// below 141 times the first s, at 0.0142 or less. So relatively the terms err by 1.1 (5 / 2^9) 4.775 0.0142^2 / 3.4.
TEST(test_small_singular_values_are_as_in_fp32)
{
    enum { N = 64, LARGE = 16 };
    float *g = room(N * N);
    for (size_t i = 0; i < N; i++) g[i * N + i] = i < LARGE ? 1 : 1e-4f / (1 + 0.3f * (float)i);
    float *exact = orthogonal(MUON_FP32, 1, g, N, N), *o = orthogonal(MUON_ROUNDED, 1, g, N, N);
    double bound = 1.1 * 5 * 0x1p-9 * 4.775 * 0.0142 * 0.0142 / 3.4 + 40 * 0x1p-24;
    for (size_t i = LARGE; i < N; i++) {
        double want = exact[i * N + i], got = o[i * N + i];
        assert_true(fabs(got - want) <= bound * want);
    }
    free(g), free(exact), free(o);
}

TEST(test_the_instruction_gives_the_same_bits)
{
    if (!gemm_bf16_runs() || !gemm_has_vectors()) skip();
    for (int i = 0; i < SHAPES; i++) {
        size_t R = SHAPE[i].R, C = SHAPE[i].C, n = R * C * sizeof(float);
        float *g = gradient(R, C), *one = orthogonal(MUON_ROUNDED, 1, g, R, C), *o = orthogonal(MUON_BF16, 1, g, R, C),
              *of_three = orthogonal(MUON_BF16, 3, g, R, C);
        assert_memory_equal(o, one, n);
        assert_memory_equal(of_three, one, n);
        free(g), free(one), free(o), free(of_three);
    }
}

TESTS(NULL, NULL)
