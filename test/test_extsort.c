// test_extsort: sorted output against qsort, for any memory, number of words and order of the input; and its errors.
#define _GNU_SOURCE // qsort_r
#include "test/test.h"

#include "expect_die.h"
#include "data/prep/extsort.h"
#include "base/rng.h"

#include <signal.h>
#include <sys/resource.h>

OWNER(Extsort, extsort_close)

enum { N = 9000 };

static int by_words(const void *a, const void *b, void *n_words)
{
    const uint64_t *x = a, *y = b;
    for (size_t w = 0; w < *(size_t *)n_words; w++)
        if (x[w] != y[w]) return x[w] < y[w] ? -1 : 1;
    return 0;
}

// kind 0: random; 1: all equal; 2: two values; 3: descending; 4: they differ in the lowest byte alone
static uint64_t value(int kind, size_t i, size_t w)
{
    uint64_t bits = rng_u64(rng_make(5, "sort", (uint32_t)w), i);
    switch (kind) {
    case 0: return bits;
    case 1: return 77;
    case 2: return bits & 1 ? UINT64_MAX : 0;
    case 3: return UINT64_MAX - i;
    default: return (UINT64_C(0x0102030405060700)) | (bits & 255);
    }
}

static void sort_and_compare(int kind, size_t n, size_t n_words, size_t memory, const uint64_t *sorted)
{
    uint64_t record[EXTSORT_MAX_WORDS];
    OWN(Extsort) *s = extsort_open(NULL, n_words, memory);
    for (size_t i = 0; i < n; i++) {
        for (size_t w = 0; w < n_words; w++) record[w] = value(kind, i, w);
        extsort_add(s, record);
    }
    extsort_finish(s);
    for (size_t i = 0; i < n; i++) {
        assert_true(extsort_next(s, record));
        assert_memory_equal(record, sorted + i * n_words, n_words * sizeof *record);
    }
    assert_false(extsort_next(s, record));
    assert_false(extsort_next(s, record)); // and again
    assert_int_equal(extsort_spilled_bytes(s) > 0, n * n_words * sizeof *record > memory);
}

// 4096 bytes: more runs than one pass merges, so several passes. The last: all in memory. Also none and one.
TEST(test_any_memory)
{
    const size_t memory[] = {EXTSORT_MIN_BYTES, 50000, 100000, 8 * N, 16 * N, 24 * N, 24 * N - 1, 1 << 20};
    for (int kind = 0; kind < 5; kind++)
        for (size_t n_words = 1; n_words <= 3; n_words++) {
            size_t n = kind == 0 ? N : N / 9;
            FREED uint64_t *sorted = zeroed(n * n_words * sizeof *sorted);
            for (size_t i = 0; i < n * n_words; i++) sorted[i] = value(kind, i / n_words, i % n_words);
            qsort_r(sorted, n, n_words * sizeof *sorted, by_words, &n_words);
            for (size_t k = 0; k < sizeof memory / sizeof *memory; k++)
                sort_and_compare(kind, n, n_words, memory[k], sorted);
            sort_and_compare(kind, 0, n_words, EXTSORT_MIN_BYTES, sorted);
            for (size_t w = 0; w < n_words; w++) sorted[w] = value(kind, 0, w);
            sort_and_compare(kind, 1, n_words, EXTSORT_MIN_BYTES, sorted);
        }
}

static void add_many(const char *folder)
{
    Extsort *s = extsort_open(folder, 1, EXTSORT_MIN_BYTES);
    for (uint64_t i = 0; i < EXTSORT_MIN_BYTES; i++) extsort_add(s, &i);
}

TEST(test_errors)
{
    expect_dies("sort: /nowhere/at/all: No such file or directory (name a folder", add_many("/nowhere/at/all"));
    const struct rlimit least = {10000, 10000};
    expect_dies("File too large (name a folder with more room)", signal(SIGXFSZ, SIG_IGN),
                setrlimit(RLIMIT_FSIZE, &least), add_many(NULL)); // stands for a full disk: write fails
}

TESTS(NULL, NULL)
