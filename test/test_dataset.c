// test_dataset: the format byte by byte, files of nanoGPT and Megatron, what is refused, the order of training, and
// mixtures of several sources.
#include "test/test.h"

#include "expect_die.h"
#include "temp_dir.h"
#include "dataset_case.h"
#include "parallel/ddp.h"
#include "text/sources.h"
#include "base/rng.h"

#include <fcntl.h>

// The bytes that llm.c reads: 20240520 = 0x0134D888, 20240801 = 0x0134D9A1.
TEST_IN_DIR(test_format)
{
    uint8_t want[1024 + 12] = {0};
    const int32_t ids[3] = {0, 258, 65534};
    DatasetWriter *w = dataset_writer_open(in_dir("x.bin"), 65535, DATASET_AUTO);
    dataset_writer_append(w, ids, 3);
    assert_int_equal(access(in_dir("x.bin"), F_OK), -1); // not there before it is whole
    dataset_writer_finish(w);
    memcpy(want, "\x88\xD8\x34\x01\x01\x00\x00\x00\x03\x00\x00\x00", 12);
    memcpy(want + 1024, "\x00\x00\x02\x01\xFE\xFF", 6);
    has_bytes("x.bin", want, 1024 + 6);
    put_tokens("x.bin", 65536, DATASET_AUTO, ids, 3);
    memcpy(want, "\xA1\xD9\x34\x01\x07\x00\x00\x00", 8);
    memcpy(want + 1024, "\x00\x00\x00\x00\x02\x01\x00\x00\xFE\xFF\x00\x00", 12);
    has_bytes("x.bin", want, 1024 + 12);
}

// Spans over shards of different types and sizes, one of them longer than a read at a time, one empty.
TEST_IN_DIR(test_spans)
{
    enum { N = 10 + 0 + 9000 };
    put_count("a_0.bin", 100, DATASET_U16, 0, 10);
    put_count("a_1.bin", 100, DATASET_U32, 10, 0);
    put_count("a_2.bin", 100, DATASET_U32, 10, 9000);
    OWN(Dataset) *ds = dataset_open(in_dir("a_*.bin"), 100);
    assert_int_equal(dataset_tokens(ds), N);
    static int32_t out[N + 1];
    for (int first = 0; first < N; first += first < 20 ? 1 : 997)
        for (int n = 0; n <= N - first; n += n < 20 ? 1 : 1499) {
            out[n] = -7;
            dataset_span(ds, first, n, out);
            for (int i = 0; i < n; i++) assert_int_equal(out[i], (first + i) % 100);
            assert_int_equal(out[n], -7);
        }
    int32_t token_bytes[100];
    for (int i = 0; i < 100; i++) token_bytes[i] = i;
    assert_int_equal(dataset_text_bytes(ds, 0, N, token_bytes), 90 * 4950 + 45); // 90 rounds of 0..99, then 0..9
    assert_int_equal(dataset_text_bytes(ds, 98, 4, token_bytes), 98 + 99 + 0 + 1);
    put_count("a_[01].bin", 100, DATASET_AUTO, 0, 3); // a name that reads as a pattern
    OWN(Dataset) *one = dataset_open(in_dir("a_0.bin"), 10), *odd = dataset_open(in_dir("a_[01].bin"), 100);
    assert_true(dataset_tokens(one) == 10 && dataset_tokens(odd) == 3);
    assert_int_equal(mkdir(in_dir("f[x]*"), 0777), 0); // a folder with such a name
    put_count("f[x]*/b_0.bin", 100, DATASET_AUTO, 0, 4);
    OWN(Dataset) *inside = dataset_open(in_dir("f[x]*/b_[0-9].bin"), 100);
    assert_int_equal(dataset_tokens(inside), 4);
}

// Token values are positions (vocab > N), so a window tells where it was cut.
TEST_IN_DIR(test_order)
{
    enum { N = 1003, T = 10, W = N / T, EPOCHS = 5 };
    put_count("x.bin", N, DATASET_AUTO, 0, N);
    OWN(Dataset) *ds = dataset_open(in_dir("x.bin"), N);
    assert_int_equal(dataset_windows(ds, T), W);
    int32_t in[T], target[T], start[EPOCHS][W];
    int seen_twice = 0, moved = 0, borders[T] = {0}, n_borders = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        int used[N] = {0}, in_place = 0;
        for (int w = 0; w < W; w++) {
            dataset_window(ds, epoch * W + w, T, 42, true, in, target);
            for (int i = 0; i < T; i++) {
                assert_int_equal(in[i], (in[0] + i) % N); // consecutive on the ring
                assert_int_equal(target[i], (in[i] + 1) % N);
                seen_twice += used[target[i]]++;
            }
            start[epoch][w] = in[0];
            if (w > 0 && in[0] == (start[epoch][w - 1] + T) % N) in_place++;
        }
        assert_int_equal(seen_twice, 0); // each token at most once: W T of them, all but N mod T
        // In a random order a window follows its left neighbour with probability 1/W: 1 expected, and more
        // than 12 of 100 has probability below 1/12! = 2e-9.
        assert_true(in_place <= 12);
        if (epoch > 0)
            for (int w = 0; w < W; w++) moved += start[epoch][w] != start[0][w];
        if (!borders[start[epoch][0] % T]++) n_borders++;
    }
    assert_true(moved > (EPOCHS - 1) * W * 9 / 10); // another order
    // The borders differ: 5 offsets that all agree modulo T = 10 would have probability about 1e-4; the seed
    // is fixed, so this cannot fail by chance.
    assert_true(n_borders >= 2);
    // A sample is a function of its number: asked again, in another order, it is the same.
    for (int w = W - 1; w >= 0; w -= 7) {
        dataset_window(ds, 3 * W + w, T, 42, true, in, target);
        assert_int_equal(in[0], start[3][w]);
    }
    int other = 0;
    for (int w = 0; w < W; w++) {
        dataset_window(ds, w, T, 43, true, in, target);
        other += in[0] != start[0][w];
    }
    assert_true(other > W * 9 / 10); // another seed
}

// Not shuffled: the first epoch is the text from token 0 on, window after window, over the border between two
// shards; later ones go once around the ring, from another place each.
TEST_IN_DIR(test_file_order)
{
    enum { N = 1003, T = 10, W = N / T, EPOCHS = 4 };
    put_count("a_0.bin", N, DATASET_AUTO, 0, 501);
    put_count("a_1.bin", N, DATASET_AUTO, 501, N - 501);
    OWN(Dataset) *ds = dataset_open(in_dir("a_*.bin"), N);
    int32_t in[T], target[T], offset[EPOCHS];
    for (int sample = EPOCHS * W; sample-- > 0;) { // backwards: a sample is a function of its number
        dataset_window(ds, sample - sample % W, T, 42, false, in, target);
        int32_t first = offset[sample / W] = in[0];
        dataset_window(ds, sample, T, 42, false, in, target);
        for (int i = 0; i < T; i++) {
            assert_int_equal(in[i], (first + sample % W * T + i) % N);
            assert_int_equal(target[i], (in[i] + 1) % N);
        }
    }
    assert_int_equal(offset[0], 0);
    // Three offsets in 0 .. N - 1: that two agree has probability about 3/N, and the seed is fixed.
    assert_true(offset[1] != offset[2] && offset[2] != offset[3] && offset[3] != offset[1]);
    dataset_window(ds, W, T, 43, false, in, target);
    assert_true(in[0] != offset[1]); // another seed
}

// The smallest dataset: context + 1 tokens are one window; the shortest context is 1.
TEST_IN_DIR(test_smallest)
{
    put_count("x.bin", 100, DATASET_AUTO, 0, 6);
    OWN(Dataset) *ds = dataset_open(in_dir("x.bin"), 100);
    int32_t in[5], target[5];
    assert_true(dataset_windows(ds, 5) == 1 && dataset_windows(ds, 6) == 0);
    for (int s = 0; s < 20; s++) {
        dataset_window(ds, s, 5, 1, true, in, target);
        for (int i = 0; i < 5; i++) assert_int_equal(target[i], (in[0] + i + 1) % 6);
        dataset_window(ds, s, 1, 1, true, in, target);
        assert_int_equal(target[0], (in[0] + 1) % 6);
    }
}

// Windows longer than what is read at a time, and around their edges. The ring of 10,000 tokens counts modulo 100.
TEST_IN_DIR(test_long_windows)
{
    static int32_t in[9001], target[9001];
    const int contexts[] = {4094, 4095, 4096, 4097, 8190, 8191, 8192, 9000};
    put_count("x.bin", 100, DATASET_AUTO, 0, 10000);
    OWN(Dataset) *ds = dataset_open(in_dir("x.bin"), 100);
    for (size_t k = 0; k < sizeof contexts / sizeof *contexts; k++) {
        int n = contexts[k];
        in[n] = target[n] = -7; // nobody writes behind the window
        dataset_window(ds, (int64_t)k, n, 1, true, in, target);
        for (int i = 0; i < n; i++) {
            assert_int_equal(in[i], (in[0] + i) % 100);
            assert_int_equal(target[i], (in[0] + i + 1) % 100);
        }
        assert_int_equal(in[n], -7);
        assert_int_equal(target[n], -7);
    }
}

// ---- errors ----
// A shard of 100 tokens with one.
static void write_one(const char *path, int32_t id)
{
    dataset_writer_append(dataset_writer_open(path, 100, DATASET_AUTO), &id, 1);
}

TEST_IN_DIR(test_errors)
{
    char *path = in_dir("x.bin"), words[600];
    expect_dies("/nowhere/x.bin: no such file", dataset_open("/nowhere/x.bin", 100));
    expect_dies("/nowhere/x_*.bin: no such file", dataset_open("/nowhere/x_*.bin", 100));
    expect_dies("not a file", dataset_open(dir, 100));
    expect_dies("65536 tokens does not fit in uint16", dataset_writer_open(path, 65536, DATASET_U16));
    expect_dies("token 100, but the vocabulary has 100", write_one(path, 100));
    expect_dies("token -1", write_one(path, -1));
    expect_dies("/dev/null/x.bin.tmp", write_one("/dev/null/x.bin", 0));

    put_count("x.bin", 100, DATASET_AUTO, 0, 10);
    uint8_t bytes[1024 + 22] = {0}, bad[1024 + 20];
    FREED char *good = take_file("x.bin", NULL);
    memcpy(bytes, good, 1024 + 20);
    for (size_t n = 0; n < 1024 + 20; n += n < 1020 ? 300 : 1) { // cut off anywhere
        snprintf(words, sizeof words, n < 1024 ? "x.bin: %zu bytes, shorter than a shard's header of 1024"
                 : "x.bin: %zu bytes, but its header says 10 tokens = 1044 bytes", n);
        expect_dies(words, dataset_open(put_bytes("x.bin", bytes, n), 100));
    }
    expect_dies("1046 bytes, but its header says 10 tokens = 1044 bytes",
                dataset_open(put_bytes("x.bin", bytes, 1024 + 22), 100));
    const struct { int at; uint8_t value; const char *words; } changes[] = {
        {0, 0x89, "first number 20240521"}, {4, 2, "version 2"}, {11, 0x80, "-2147483638 tokens"},
        {8, 11, "11 tokens = 1046 bytes"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(bad, bytes, sizeof bad);
        bad[changes[i].at] = changes[i].value;
        expect_dies(changes[i].words, dataset_open(put_bytes("x.bin", bad, sizeof bad), 100));
    }
    put_bytes("x.bin", bytes, 1024 + 20); // token 9 is its last
    expect_dies("x.bin: offset 1042: token 9, but the vocabulary has 9", dataset_open(path, 9));

    OWN(Dataset) *ds = dataset_open(path, 10);
    int32_t out[10], target[10];
    expect_dies("tokens 5 to 11 of 10", dataset_span(ds, 5, 6, out));
    expect_dies("10 tokens, fewer than a window of 10 + 1", dataset_window(ds, 0, 10, 1, true, out, target));
    // The file is cut under an open dataset: an error, not SIGBUS. (Written over: test_dataset.)
    assert_int_equal(truncate(path, 1024 + 8), 0);
    expect_dies("x.bin: offset 1024: the file has 1032 bytes, it had 1044", dataset_span(ds, 0, 10, out));
}

// A uint32 token with its highest bit set is out of range, not negative.
TEST_IN_DIR(test_wide_token)
{
    put_count("x.bin", 10, DATASET_U32, 0, 10);
    size_t n;
    FREED char *bytes = take_file("x.bin", &n);
    bytes[1024 + 7] = (char)0x80;
    expect_dies("x.bin: offset 1028: token 2147483649", dataset_open(put_bytes("x.bin", bytes, n), 10));
}

// ---- dataset file: Tests of the files of dataset: files of nanoGPT and Megatron, written here byte by byte, and what
// is refused.

static void expect_tokens(const char *name, int vocab, const int32_t *want, int64_t n)
{
    int32_t got[64];
    OWN(Dataset) *ds = dataset_open(in_dir(name), vocab);
    assert_int_equal(dataset_tokens(ds), n);
    dataset_span(ds, 0, n, got);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
}

// nanoGPT: numbers and nothing else; EOT (here 258) behind each document. A pattern takes all its files.
TEST(test_raw)
{
    const int32_t want[] = {1, 2, 258, 3, 258, 1, 2, 258, 3, 258};
    put_bytes("raw.bin", "\1\0\2\0\2\1\3\0\2\1", 10);
    expect_tokens("raw.bin:uint16", 259, want, 5);
    put_bytes("raw2.bin", "\1\0\2\0\2\1\3\0\2\1", 10);
    expect_tokens("raw*.bin:uint16", 259, want, 10);
    const int32_t wide[] = {131073, 16908291};
    put_bytes("raw.bin", "\1\0\2\0\3\0\2\1", 8);
    expect_tokens("raw.bin:uint32", 16908292, wide, 2);
    expect_dies("raw.bin: 8 bytes, shorter than a shard's header", dataset_open(in_dir("raw.bin"), 259));
    put_bytes("raw.bin", "\1\0\2\0\3", 5);
    expect_dies("raw.bin: 5 bytes, not a multiple of 2", dataset_open(in_dir("raw.bin:uint16"), 259));
    put_bytes("raw.bin", "\1\0\2\0\3\1", 6);
    expect_dies("raw.bin: offset 4: token 259, but the vocabulary has 259",
                dataset_open(in_dir("raw.bin:uint16"), 259));
    put_tokens("s.bin", 259, DATASET_AUTO, want, 5);
    expect_tokens("s.bin", 259, want, 5);
    expect_dies("s.bin: has the header of a shard (leave :uint16 off)", dataset_open(in_dir("s.bin:uint16"), 259));
    uint16_t many[600] = {0};
    put_bytes("raw.bin", many, sizeof many);
    expect_dies("add :uint16 to its name", dataset_open(in_dir("raw.bin"), 259));
    expect_dies("no such file", dataset_open(in_dir("raw.bin:uint64"), 259));
    put_bytes("raw.bin", "\x93NUMPY\1\0\x02\0{}", 12);
    expect_dies("raw.bin: has the header of np.save (write the array with array.tofile",
                dataset_open(in_dir("raw.bin:uint16"), 259));
}

// An index of three sequences, two documents.
static size_t megatron_index(uint8_t *out, uint8_t type, const int32_t length[3], int bytes)
{
    const uint64_t version = 1, n = 3, n_documents = 3;
    const int64_t begin[3] = {0, (int64_t)length[0] * bytes, (int64_t)(length[0] + length[1]) * bytes};
    const int64_t document[3] = {0, 2, 3};
    memcpy(out, "MMIDIDX\0\0", 9);
    memcpy(out + 9, &version, 8);
    out[17] = type;
    memcpy(out + 18, &n, 8);
    memcpy(out + 26, &n_documents, 8);
    memcpy(out + 34, length, 12);
    memcpy(out + 46, begin, 24);
    memcpy(out + 70, document, 24);
    return 94;
}

TEST(test_megatron)
{
    const int32_t length[3] = {2, 0, 3}, want[5] = {7, 300, 5, 6, 299};
    const uint16_t narrow[5] = {7, 300, 5, 6, 299};
    uint8_t idx[100] = {0}, bad[100];
    size_t n = megatron_index(idx, 8, length, 2);
    put_bytes("m.idx", idx, n);
    put_bytes("m.bin", narrow, sizeof narrow);
    expect_tokens("m.idx", 301, want, 5);
    put_bytes("m.idx", idx, n + 3); // with modes, a byte a sequence
    expect_tokens("m.idx", 301, want, 5);
    put_bytes("m.bin", narrow, sizeof narrow - 2);
    expect_dies("m.bin: 8 bytes, but", dataset_open(in_dir("m.idx"), 301));
    const int32_t wide[5] = {7, 300, 5, 6, 299};
    put_bytes("m.bin", wide, sizeof wide);
    n = megatron_index(idx, 4, length, 4);
    put_bytes("m.idx", idx, n);
    expect_tokens("m.idx", 301, want, 5);
    for (size_t cut = 0; cut < n; cut += 7) { // cut off anywhere
        put_bytes("m.idx", idx, cut);
        expect_dies("m.idx: ", dataset_open(in_dir("m.idx"), 301));
    }
    const struct { size_t at; uint8_t value; const char *words; } changes[] = {
        {0, 'X', "not an index of Megatron"},     {9, 2, "version 2"},
        {17, 7, "type 7 of a token"},             {18, 4, "4 sequences and 3 documents"},
        {25, 0x80, "sequences and 3 documents"},  {33, 0x80, "documents (cut off or damaged?)"},
        {34, 3, "sequence 1 begins at byte 8, not 12"}, {54, 9, "offset 54: sequence 1 begins at byte 9"},
        {42, 4, "20 bytes, but"},                 {37, 0x80, "sequence 0"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(bad, idx, n);
        bad[changes[i].at] = changes[i].value;
        put_bytes("m.idx", bad, n);
        expect_dies(changes[i].words, dataset_open(in_dir("m.idx"), 301));
    }
    put_bytes("m.idx", idx, n);
    int32_t negative[5] = {7, -1, 5, 6, 299};
    put_bytes("m.bin", negative, sizeof negative);
    expect_dies("m.bin: offset 4: token 4294967295", dataset_open(in_dir("m.idx"), 301));
    unlink(in_dir("m.bin"));
    expect_dies("m.bin: No such file", dataset_open(in_dir("m.idx"), 301));
}

// The file changes under an open dataset: a line with the offset, not SIGBUS and not a wrong token.
TEST(test_changes_while_open)
{
    const uint16_t good[5] = {1, 2, 3, 4, 5};
    put_bytes("raw.bin", good, sizeof good);
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}}; // a clock moves in steps
    assert_int_equal(utimensat(AT_FDCWD, in_dir("raw.bin"), long_ago, 0), 0);
    OWN(Dataset) *ds = dataset_open(in_dir("raw.bin:uint16"), 10);
    int32_t got[5];
    dataset_span(ds, 0, 5, got);
    assert_int_equal(truncate(in_dir("raw.bin"), 6), 0);
    expect_dies("raw.bin: offset 0: the file has 6 bytes, it had 10 when the run began", dataset_span(ds, 0, 5, got));
    const uint16_t other[5] = {5, 4, 3, 2, 1}; // tokens too, but not those
    put_bytes("raw.bin", other, sizeof other);
    expect_dies("raw.bin: offset 0: somebody wrote to the file during the run", dataset_span(ds, 0, 5, got));
    put_bytes("raw.bin", good, sizeof good);
    OWN(Dataset) *again = dataset_open(in_dir("raw.bin:uint16"), 10);
    assert_int_equal(rename(in_dir("raw.bin"), in_dir("moved.bin")), 0); // who has it open has it
    put_bytes("raw.bin", other, sizeof other);
    dataset_span(again, 0, 5, got);
    assert_int_equal(got[0], 1);
}

// A pipe under the name of a token file is refused; it is not waited for until somebody writes.
TEST(test_pipe)
{
    unlink(in_dir("s.bin"));
    assert_int_equal(mkfifo(in_dir("s.bin"), 0600), 0);
    alarm(10); // waiting forever would be the failure
    expect_dies("s.bin: not a file", dataset_open(in_dir("s.bin"), 10));
    expect_dies("s.bin: not a file", dataset_open(in_dir("s.bin:uint16"), 10));
    alarm(0);
}

// ---- mixture: the share of every source after any number of samples, and datasets of several sources: every sample
// once per epoch, whatever the layout and however often the run is resumed.

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

TEST_IN_DIR(test_mixture_errors)
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
