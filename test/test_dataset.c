// Tests of dataset: the format byte by byte, what is refused, and the order of training.

#include "test/test.h"

#include "expect_die.h"
#include "temp_dir.h"
#include "dataset_case.h"

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
    // The file is cut under an open dataset: an error, not SIGBUS. (Written over: test_dataset_file.)
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

TESTS(NULL, NULL)
