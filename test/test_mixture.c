// Tests of mixture: the share of every source after any number of samples, and datasets of several sources: every
// sample once per epoch, whatever the layout and however often the run is resumed.

#include "test/test.h"

#include "parallel/ddp.h"
#include "expect_die.h"
#include "text/sources.h"
#include "base/rng.h"
#include "temp_dir.h"
#include "dataset_case.h"

enum { MOST = 9 };

// Tijdeman's bound after every sample, in whole numbers: |x D - n W| (2k - 2) <= D (2k - 3). And the index of a sample
// is how many of its source came before.
static void check_order(const Mixture *m, int64_t n_samples)
{
    int64_t x[MOST] = {0}, index, K = 2 * (int64_t)m->n_sources - 2;
    for (int64_t n = 1; n <= n_samples; n++) {
        size_t i = mixture_source(m, n - 1, &index);
        assert_true(i < m->n_sources);
        assert_int_equal(index, x[i]);
        x[i]++;
        for (size_t k = 0; k < m->n_sources; k++) {
            int64_t off = x[k] * m->period - n * (int64_t)m->part[k];
            if (!(llabs(off) * K <= m->period * (K - 1)) && m->n_sources > 1)
                fail_msg("source %zu of %zu: %lld samples of %lld, its share is %g", k, m->n_sources, (long long)x[k],
                         (long long)n, (double)m->part[k] / (double)m->period);
        }
    }
}

TEST(test_within_one)
{
    Rng rng = rng_make(5, "test", 0);
    for (uint64_t row = 0; row < 60; row++) {
        double weight[MOST];
        size_t k = 1 + row % MOST;
        for (size_t i = 0; i < k; i++) weight[i] = 1 + (double)rng_below(rng, row * 16 + i, row < 40 ? 9 : 400);
        ENDED(mixture_free) Mixture m = mixture_make(weight, k);
        check_order(&m, 2 * m.period + 3);
    }
}

TEST(test_shares)
{
    const struct { double weight[3]; int64_t period; uint64_t part[3]; } rows[] = {
        {{3, 1, 2}, 6, {3, 1, 2}}, {{0.75, 0.25, 1}, 8, {3, 1, 4}}, {{2.5, 2.5, 5}, 4, {1, 1, 2}},
        {{0.7, 0.2, 0.1}, 10, {7, 2, 1}}, {{1e5, 2e5, 3e5}, 6, {1, 2, 3}}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ENDED(mixture_free) Mixture m = mixture_make(rows[r].weight, 3);
        assert_int_equal(m.period, rows[r].period);
        assert_memory_equal(m.part, rows[r].part, sizeof rows[r].part);
    }
    // Shares that are no such fractions: multiples of 2^-20, off by less than that, and all samples are given.
    const double weight[] = {3.14159265358979, 2.71828182845905, 0.5772156649};
    ENDED(mixture_free) Mixture m = mixture_make(weight, 3);
    assert_int_equal(m.period, MIXTURE_PERIOD);
    assert_int_equal(m.part[0] + m.part[1] + m.part[2], MIXTURE_PERIOD);
    for (int i = 0; i < 3; i++) {
        double share = weight[i] / (weight[0] + weight[1] + weight[2]);
        assert_true(fabs((double)m.part[i] / MIXTURE_PERIOD - share) < 0x1p-20);
    }
    check_order(&m, 20000);
}

// ---- datasets of several sources: a token is its own position, behind those of the sources before
enum { T = 7, N_A = 400, N_B = 150, N_C = 64, N = N_A + N_B + N_C };
static const int first_of[4] = {0, N_A, N_A + N_B, N};

static void write_sources(const double weight[3])
{
    static const char *const name[] = {"a.bin", "b.bin", "c.bin"};
    char text[300], *at = text;
    for (int s = 0; s < 3; s++) {
        put_count(name[s], N, DATASET_AUTO, first_of[s], (size_t)(first_of[s + 1] - first_of[s]));
        at += sprintf(at, "[source.%.1s]\npath = \"%s\"\nweight = %g\n", name[s], name[s], weight[s]);
    }
    put_text("mix.toml", text);
}

// The source of a window, which must be one of it alone, and the position of its first target there.
static int place(const int32_t *in, const int32_t *target, int *position)
{
    int s = 0;
    while (target[0] >= first_of[s + 1]) s++;
    int n = first_of[s + 1] - first_of[s];
    *position = target[0] - first_of[s];
    for (int i = 0; i < T; i++) {
        assert_int_equal(target[i], first_of[s] + (*position + i) % n);
        assert_int_equal(in[i], first_of[s] + (*position + i - 1 + n) % n);
    }
    return s;
}

// Runs of several ranks that are stopped, go back to their last checkpoint, and go on with another layout. What was
// done since the checkpoint is forgotten. In the end every sample has been trained on once, and so has, in each epoch
// of each source, every window.
TEST(test_once_per_epoch)
{
    enum { SAMPLES = 1200, LAYOUTS = 6 };
    write_sources((double[]){5, 3, 1.5});
    OWN(Dataset) *ds = dataset_open(in_dir("mix.toml"), N);
    assert_int_equal(dataset_tokens(ds), N);
    assert_int_equal(dataset_windows(ds, T), N_A / T + N_B / T + N_C / T);
    for (uint64_t run = 0; run < 20; run++) {
        static int times[SAMPLES], source[SAMPLES], position[SAMPLES], back[SAMPLES];
        Rng rng = rng_make(run, "layouts", 0);
        uint64_t draw = 0;
        int64_t done = 0;
        memset(times, 0, sizeof times);
        while (done < SAMPLES) {
            int ranks = 1 << rng_below(rng, draw++, 4), micro = 1 + (int)rng_below(rng, draw++, 3);
            int accumulate = 1 + (int)rng_below(rng, draw++, 3), steps = 1 + (int)rng_below(rng, draw++, 12);
            int64_t batch = (int64_t)ranks * micro * accumulate, saved = done, at = done;
            int save_at = (int)rng_below(rng, draw++, (uint64_t)steps + 1);
            for (int step = 0; step < steps; step++) {
                if (step == save_at) saved = at;
                for (int r = ranks - 1; r >= 0; r--) { // in any order
                    size_t begin, n = ddp_share((size_t)batch, r, ranks, &begin);
                    for (size_t i = 0; i < n; i++) {
                        int64_t s = at + (int64_t)(begin + i);
                        int32_t in[T], target[T];
                        if (s >= SAMPLES) continue;
                        dataset_window(ds, s, T, 99, true, in, target);
                        times[s]++;
                        source[s] = place(in, target, &position[s]);
                    }
                }
                at += batch;
            }
            for (int64_t s = saved; s < at && s < SAMPLES; s++) times[s]--; // stopped: since the checkpoint, nothing
            done = saved;
        }
        // The samples of a source, in order, are its epochs: of N / T windows each, which never overlap.
        int count[3] = {0};
        memset(back, 0, sizeof back);
        for (int s = 0; s < SAMPLES; s++) {
            assert_int_equal(times[s], 1);
            int n = first_of[source[s] + 1] - first_of[source[s]], windows = n / T;
            int epoch = count[source[s]]++ / windows;
            static int seen[3][N_A];
            static int seen_epoch[3];
            if (!back[source[s]] || seen_epoch[source[s]] != epoch) {
                memset(seen[source[s]], 0, sizeof seen[0]);
                seen_epoch[source[s]] = epoch, back[source[s]] = 1;
            }
            for (int i = 0; i < T; i++) assert_int_equal(seen[source[s]][(position[s] + i) % n]++, 0);
        }
        assert_true(count[2] / (N_C / T) > 10); // the smallest source has gone through many epochs
    }
}

// Each epoch of a source has an order of its own, and so has each source.
TEST(test_orders_differ)
{
    write_sources((double[]){1, 1, 1});
    OWN(Dataset) *ds = dataset_open(in_dir("mix.toml"), N);
    enum { W = N_C / T }; // of c: samples 2, 5, 8, ... in any case one of three
    int order[3][4][N_A / T], n[3] = {0}, same = 0, position;
    for (int64_t s = 0; s < 3 * 4 * W; s++) {
        int32_t in[T], target[T];
        dataset_window(ds, s, T, 99, true, in, target);
        int k = place(in, target, &position);
        order[k][n[k] / W][n[k] % W] = position;
        n[k]++;
    }
    for (int e = 1; e < 4; e++)
        for (int i = 0; i < W; i++) same += order[2][e][i] == order[2][0][i];
    assert_int_equal(n[2], 4 * W);
    assert_true(same < 3 * W / 2); // 27 places, each the same with probability below 1/9 of windows and offsets
}

// Weights whose sum is no double, or nearly nothing: their shares are those of 1 and 3 all the same.
TEST(test_far_weights)
{
    const double far[] = {4e307, 5e-320};
    for (int i = 0; i < 2; i++) {
        const double weight[] = {far[i], 3 * far[i], far[i]};
        ENDED(mixture_free) Mixture m = mixture_make(weight, 3);
        assert_int_equal(m.period, MIXTURE_PERIOD);
        for (int k = 0; k < 3; k++) { // a share is within 2^-20 of its own; a denormal has 4 digits
            double error = (double)m.part[k] / MIXTURE_PERIOD - (k == 1 ? 0.6 : 0.2);
            assert_true(fabs(error) <= 0x1p-20 + (i ? 1e-4 : 0));
        }
    }
}

TEST(test_errors)
{
    write_sources((double[]){1, 1, 1});
    OWN(Dataset) *ds = dataset_open(in_dir("mix.toml"), N);
    assert_int_equal(dataset_windows(ds, 100), 0); // c has less than a window
    int32_t in[100], target[100];
    expect_dies("64 tokens in source c, fewer than a window of 100 + 1",
                for (int64_t s = 3; s-- > 0;) dataset_window(ds, s, 100, 1, true, in, target));
    unlink(in_dir("b.bin"));
    expect_dies("b.bin: no such file", dataset_open(in_dir("mix.toml"), N));
    put_text("mix.toml", "[source.a]\npath = \"a.bin\"\nfield = \"text\"\n");
    expect_dies("[source.a]: format, separator, line and field are for text", dataset_open(in_dir("mix.toml"), N));
    expect_dies("none.toml: cannot read", dataset_open(in_dir("none.toml"), N));
    const double tiny[] = {1, 1e-9}, bad[][2] = {{0, 1}, {1, 0}, {1, -1}, {1, INFINITY}, {INFINITY, 1}, {1, NAN}};
    expect_dies("the share is below 1 in 1048576", mixture_make(tiny, 2));
    for (int i = 0; i < 6; i++) expect_dies("(a number above 0)", mixture_make(bad[i], 2));
}

TESTS(temp_dir_make, temp_dir_remove)
