#include "dev/course/grade_gpu.cuh"
#include "flash.h"

#include <utility>
#include <vector>

#ifdef __CUDACC__
static unsigned long long matrix_loads; // nothing is counted there
#endif

typedef std::vector<double> Numbers;
struct Attention {
    Numbers out, lse;
};

// In double, by the definition: query t sees the keys 0 .. t + more - 1.
static Attention attend(const float *q, const float *k, const float *v, int heads, int T, int D, double scale,
                               int more, bool divide, bool first_head)
{
    Attention a = {Numbers((size_t)(heads * T * D)), Numbers((size_t)(heads * T))};
    for (int h = 0; h < heads; h++)
        for (int t = 0; t < T; t++) {
            int row = (h * T + t) * D, kv = first_head ? 0 : h * T * D, end = t + more < T ? t + more : T;
            double top = -INFINITY, sum = 0, s[200];
            for (int j = 0; j < end; j++) {
                s[j] = 0;
                for (int d = 0; d < D; d++) s[j] += (double)q[row + d] * k[kv + j * D + d] * scale;
                top = fmax(top, s[j]);
            }
            for (int j = 0; j < end; j++) sum += exp(s[j] - top);
            a.lse[(size_t)(h * T + t)] = top + log(sum);
            for (int j = 0; j < end; j++)
                for (int d = 0; d < D; d++)
                    a.out[(size_t)(row + d)] += exp(s[j] - top) / (divide ? sum : 1) * v[kv + j * D + d];
        }
    return a;
}

// max_loads 0: not judged. no_room: of the GPU's memory only half of what the scores would need is free.
static void check(const char *name, const float *q, const float *k, int heads, int T, int D,
                         unsigned long long max_loads, bool no_room = false)
{
    size_t n = (size_t)(heads * T * D), rows = (size_t)(heads * T);
    float *v = random_floats(n, 77), *gpu = gpu_untouched(n), *gpu_lse = gpu_untouched(rows);
    Matrix gpu_q(gpu_floats(q, n)), gpu_k(gpu_floats(k, n)), gpu_v(gpu_floats(v, n));
    double scale = 1 / sqrt(D);
    size_t room, all;
    void *filler;
    GPU_CHECK(cudaMemGetInfo(&room, &all));
    if (no_room) GPU_CHECK(cudaMalloc(&filler, room - rows * (size_t)T * sizeof(float) / 2));
    matrix_loads = 0;
    flash_attention(gpu, gpu_lse, gpu_q, gpu_k, gpu_v, heads, T, D);
    float *got = gpu_fetch(gpu, n), *lse = gpu_fetch(gpu_lse, rows);
    char what[200];
    snprintf(what, sizeof what, "%s, %d head%s, T %d, D %d: out", name, heads, heads > 1 ? "s" : "", T, D);
    expect_all_written(what, got, n, "every head, every query, and all D numbers of each");
    for (size_t i = 0; i < n; i++)
        expect(!std::isnan(got[i]),
               "%s, query %zu is NaN: subtract the largest score before exp; a query always sees itself; and exp of "
               "(-INFINITY) - (-INFINITY) is NaN",
               what, i / (size_t)D % (size_t)T);
    Attention want = attend(q, k, v, heads, T, D, scale, 1, true, false);
    Numbers no_mask = attend(q, k, v, heads, T, D, scale, T, true, false).out;
    Numbers no_scale = attend(q, k, v, heads, T, D, 1, 1, true, false).out;
    Numbers by_d = attend(q, k, v, heads, T, D, 1.0 / D, 1, true, false).out;
    Numbers undivided = attend(q, k, v, heads, T, D, scale, 1, false, false).out;
    Numbers one_head = attend(q, k, v, heads, T, D, scale, 1, true, true).out;
    Mistake mistakes[] = {{no_mask.data(), "queries see later keys: the causal mask is missing"},
                          {no_scale.data(), "the scores were not divided by sqrt(D)"},
                          {by_d.data(), "the scores were divided by D, not by its square root"},
                          {undivided.data(), "not divided by the sum of the weights"},
                          {one_head.data(), "all heads used the keys and values of the first head"}};
    expect_array(what, got, want.out.data(), rows, (size_t)D, 2e-5, mistakes, 5);
    expect_all_written("lse", lse, rows, "one number for each query");
    expect_array("lse: the largest score plus the logarithm of the sum", lse, want.lse.data(), 1, rows, 2e-5, nullptr,
                 0);
    expect(!max_loads || matrix_loads <= max_loads,
           "%s: %llu elements of q, k and v were read, at most %llu were expected: a key that a block has read into "
           "shared memory serves all its queries",
           what, matrix_loads, max_loads);
}

// The score of key j is j * step for every query.
static float *ones(int T, int D) { return equal_floats((size_t)(T * D), 1); }
static float *growing(int T, int D, double step)
{
    float *k = ones(T, D);
    for (int i = 0; i < T * D; i++) k[i] = (float)(i / D * step / sqrt(D));
    return k;
}

// ---- bf16, D of 16
typedef double Tile[16][16];

// How far out may be off: a weight is rounded to bf16, by at most 2^-9 of it, in the sum of values, and may be in the
// sum of weights as well; and |v| <= 1. An fp32 sum of 16 products is off by at most 17 2^-24 of the score, here up to
// 300, which changes a weight and the sum of weights by as much.
static const double TENSOR_BOUND = 2 * 0x1p-9 + 2 * 17 * 0x1p-24 * 300;

static B16 *gpu_bf16(float *x, size_t n) // rounds x
{
    B16 *host = (B16 *)equal_floats(n / 2 + 1, 0), *p;
    for (size_t i = 0; i < n; i++) x[i] = (float)(host[i] = __float2bfloat16(x[i]));
    GPU_CHECK(cudaMalloc(&p, n * sizeof *p));
    GPU_CHECK(cudaMemcpy(p, host, n * sizeof *p, cudaMemcpyHostToDevice));
    return p;
}

// What a lane has in a[1] and a[2], exchanged; the two halves of each word, exchanged.
static void exchange_words(Tile x)
{
    for (int i = 0; i < 64; i++) std::swap(x[i / 8][8 + i % 8], x[8 + i / 8][i % 8]);
}
static void exchange_halves(Tile x)
{
    for (int i = 0; i < 128; i++) std::swap(x[i / 8][i % 8 * 2], x[i / 8][i % 8 * 2 + 1]);
}

// One tile, by the definition, with operands of the two products changed.
typedef void Change(Tile);
static Numbers one_tile(const float *q, const float *k, const float *v, Change *query, Change *weight,
                               bool transposed)
{
    Tile left, p = {};
    double l[16] = {};
    Numbers out(256);
    for (int i = 0; i < 256; i++) left[i / 16][i % 16] = q[i];
    if (query) query(left);
    for (int t = 0; t < 16; t++) {
        double s[16] = {}, top = -INFINITY;
        for (int j = 0; j <= t; j++) {
            for (int d = 0; d < 16; d++) s[j] += left[t][d] * k[j * 16 + d] / 4;
            top = fmax(top, s[j]);
        }
        for (int j = 0; j <= t; j++) l[t] += p[t][j] = exp(s[j] - top);
    }
    if (weight) weight(p);
    for (int i = 0; i < 4096; i++) {
        int t = i / 256, j = i / 16 % 16, d = i % 16;
        out[(size_t)(t * 16 + d)] += p[t][j] / l[t] * v[transposed ? d * 16 + j : j * 16 + d];
    }
    return out;
}

static void check_tensor(const char *name, float *q, float *k, int heads, int T)
{
    const int D = TENSOR_D;
    size_t n = (size_t)(heads * T * D), rows = (size_t)(heads * T);
    float *v = random_floats(n, 78), *gpu = gpu_untouched(n), *gpu_lse = gpu_untouched(rows);
    B16 *gpu_q = gpu_bf16(q, n), *gpu_k = gpu_bf16(k, n), *gpu_v = gpu_bf16(v, n);
    flash_attention_bf16(gpu, gpu_lse, gpu_q, gpu_k, gpu_v, heads, T);
    float *got = gpu_fetch(gpu, n), *lse = gpu_fetch(gpu_lse, rows);
    char what[300];
    snprintf(what, sizeof what, "bf16: %s, %d head%s, T %d: out", name, heads, heads > 1 ? "s" : "", T);
    expect_all_written(what, got, n, "every head, every query, and all 16 numbers of each");
    for (size_t i = 0; i < n; i++)
        expect(!std::isnan(got[i]),
               "%s, query %zu is NaN: a query always sees itself; and 0 times what lies behind the last value may be "
               "NaN",
               what, i / (size_t)D % (size_t)T);
    Attention want = attend(q, k, v, heads, T, D, 0.25, 1, true, false);
    Numbers no_mask = attend(q, k, v, heads, T, D, 0.25, T, true, false).out;
    Numbers one_more = attend(q, k, v, heads, T, D, 0.25, 2, true, false).out;
    Numbers no_scale = attend(q, k, v, heads, T, D, 1, 1, true, false).out;
    Numbers one_head = attend(q, k, v, heads, T, D, 0.25, 1, true, true).out;
    std::vector<Mistake> mistakes = {{no_mask.data(), "queries see later keys: the causal mask is missing"},
                                     {one_more.data(), "each query sees the key after its own too"},
                                     {no_scale.data(), "the scores were not divided by sqrt(D)"},
                                     {one_head.data(), "all heads used the keys and values of the first head"}};
    Numbers words, halves, transposed, query;
    if (heads * T == 16) {
        words = one_tile(q, k, v, nullptr, exchange_words, false);
        halves = one_tile(q, k, v, nullptr, exchange_halves, false);
        transposed = one_tile(q, k, v, nullptr, nullptr, true);
        query = one_tile(q, k, v, exchange_words, nullptr, false);
        mistakes.push_back({words.data(), "of the weights, a[1] and a[2] are exchanged: a[1] is of row g + 8, a[2] of "
                                          "columns 2t + 8"});
        mistakes.push_back({halves.data(), "of the weights, the two numbers of each word are exchanged: the left one "
                                           "is in the low half"});
        mistakes.push_back({transposed.data(), "the values were multiplied as their transpose: b[0] is of keys 2t and "
                                               "2t + 1, number g of each"});
        mistakes.push_back({query.data(), "of the queries, a[1] and a[2] are exchanged: a[1] is of row g + 8, a[2] of "
                                          "columns 2t + 8"});
    }
    expect_array(what, got, want.out.data(), rows, (size_t)D, TENSOR_BOUND, mistakes.data(), (int)mistakes.size());
    expect_all_written("bf16: lse", lse, rows, "one number for each query");
    expect_array("bf16: lse: the largest score plus the logarithm of the sum", lse, want.lse.data(), 1, rows,
                 TENSOR_BOUND, nullptr, 0);
}

GPU_TEST(small, 3, "one head, 16 queries, D of 32")
{
    check("random numbers", random_floats(16 * 32, 1), random_floats(16 * 32, 2), 1, 16, 32, 0);
}

GPU_TEST(tiles, 3, "many keys: scores that grow, that fall, and at random")
{
    check("scores that grow from key to key (with each larger maximum, what was summed must shrink by exp(old - new): "
          "the sum of weights and the sum of values)", ones(40, 32), growing(40, 32, 0.25), 1, 40, 32, 0);
    check("scores that fall from key to key", ones(40, 32), growing(40, 32, -0.25), 1, 40, 32, 0);
    check("random numbers", random_floats(40 * 32, 3), random_floats(40 * 32, 4), 1, 40, 32, 0);
}

GPU_TEST(heads, 2, "two heads, D of 64, T of 35")
{
    check("random numbers", random_floats(2 * 35 * 64, 5), random_floats(2 * 35 * 64, 6), 2, 35, 64, 0);
}

GPU_TEST(large, 2, "scores up to 300")
{
    check("scores up to 300", ones(40, 64), growing(40, 64, 7.5), 1, 40, 64, 0);
}

GPU_TEST(loads, 3, "keys and values are read through shared memory: T of 48, D of 32")
{
    const int n = 48 * 32;
    check("random numbers", random_floats(n, 7), random_floats(n, 8), 1, 48, 32, 48 * n / 4 + n);
}

GPU_TEST(tensor_tile, 2, "bf16: one head, 16 queries, 16 keys")
{
    check_tensor("random numbers", random_floats(256, 13), random_floats(256, 14), 1, 16);
}

GPU_TEST(tensor_tiles, 1, "bf16: many keys, scores that grow and fall")
{
    check_tensor("scores that grow from key to key (with each larger maximum, both sums must shrink by exp(old - new))",
                 ones(48, 16), growing(48, 16, 0.25), 1, 48);
    check_tensor("scores that fall from key to key", ones(48, 16), growing(48, 16, -0.25), 1, 48);
    check_tensor("random numbers", random_floats(2 * 48 * 16, 15), random_floats(2 * 48 * 16, 16), 2, 48);
}

#include "../hidden.h"

GPU_TEST(sizes, 3, "T of 1, 2 and 33")
{
    for (int T : {1, 2, 33}) {
        size_t n = (size_t)(2 * T * 32);
        check("random numbers", random_floats(n, 9), random_floats(n, 10), 2, T, 32, 0);
    }
}

GPU_TEST(low, 2, "scores down to -300")
{
    check("scores down to -300", ones(33, 32), growing(33, 32, -7.5), 1, 33, 32, 0);
}

GPU_TEST(no_room, 2, "without room for a score of every pair: T of 48")
{
    setenv("EMU_MEMORY", "1", 1); // MiB
    check("random numbers", random_floats(48 * 32, 11), random_floats(48 * 32, 12), 1, 48, 32, 0, true);
}

GPU_TEST(tensor_sizes, 1, "bf16: T of 1, 7 and 33")
{
    for (int T : {1, 7, 33}) {
        size_t n = (size_t)(2 * T * 16);
        check_tensor("random numbers", random_floats(n, 17), random_floats(n, 18), 2, T);
    }
}

GPU_TEST(tensor_large, 1, "bf16: large scores")
{
    float *q = random_floats(48 * 16, 19), *k = random_floats(48 * 16, 20);
    for (int i = 0; i < 48 * 16; i++) q[i] *= 8, k[i] *= 8; // scores up to 16 * 8 * 8 / 4
    check_tensor("large scores (they stay fp32: only the weights are rounded)", q, k, 1, 48);
}
