// test_exchange: ranks (threads here) tell each other the same, no unit is dealt twice or not at all, records arrive
// where they belong whatever the buffers hold, and duplicates and contamination are those of one process; and sorting
// with little memory.
#define _GNU_SOURCE // qsort_r
#include "test/test.h"

#include "base/rng.h"
#include "data/prep/contamination.h"
#include "data/prep/dedup.h"
#include "data/prep/exchange.h"
#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "data/prep/extsort.h"

#include <signal.h>
#include <sys/resource.h>

enum { MOST = 5 }; // ranks

// ---- what ranks tell each other. A thread returns what it saw; cmocka's assertions are for the main thread.

typedef struct {
    uint64_t sum[2], max;
    char text[16], none;
    size_t n_all;
    int list[64], owner[9], own[400];
} Heard;

static void tell(Comm *world, void *arg)
{
    Heard *h = (Heard *)arg + world->rank;
    uint64_t r = (uint64_t)world->rank, weight[9] = {5, 9, 1, 1, 7, 1, 3, 0, 2};
    h->sum[0] = r + 1, h->sum[1] = r == 1 ? UINT64_C(1) << 40 : 0, h->max = 10 + 3 * r;
    exchange_sum(world, h->sum, 2);
    exchange_max(world, &h->max, 1);
    char *text = exchange_text(world, r == 0 ? strdup("of rank 0") : NULL), *none = exchange_text(world, NULL);
    snprintf(h->text, sizeof h->text, "%s", text);
    h->none = none == NULL;
    int mine[4] = {10 * (int)r, 10 * (int)r + 1, 10 * (int)r + 2};
    int *all = exchange_gather(world, mine, (size_t)(r % 3), sizeof *mine, &h->n_all); // 0, 1, 2, 0, 1
    memcpy(h->list, all, h->n_all * sizeof *all);
    if (r > 0) memset(weight, 1, sizeof weight); // only rank 0's count
    int *owner = exchange_deal(world, weight, 9);
    memcpy(h->owner, owner, sizeof h->owner);
    for (size_t i = 0; i < 400; i++) h->own[i] = exchange_owns(world, i);
    free(text), free(all), free(owner);
}

TEST(test_agreement)
{
    static const uint64_t weight[9] = {5, 9, 1, 1, 7, 1, 3, 0, 2};
    static const int gathered[] = {10, 20, 21, 40};
    for (int n = 1; n <= MOST; n++) {
        Heard heard[MOST] = {0};
        uint64_t load[MOST] = {0};
        comm_threads_run(n, tell, heard);
        size_t n_all = n < 2 ? 0 : n < 3 ? 1 : n < 5 ? 3 : 4;
        for (int r = 0; r < n; r++) {
            Heard *h = &heard[r];
            assert_int_equal(h->sum[0], n * (n + 1) / 2);
            assert_int_equal(h->sum[1], n > 1 ? UINT64_C(1) << 40 : 0);
            assert_int_equal(h->max, 10 + 3 * (n - 1));
            assert_string_equal(h->text, "of rank 0");
            assert_true(h->none);
            assert_int_equal(h->n_all, n_all);
            assert_memory_equal(h->list, gathered, n_all * sizeof *gathered);
            assert_memory_equal(h->owner, heard[0].owner, sizeof h->owner);
        }
        for (size_t i = 0; i < 400; i++) {
            int owners = 0;
            for (int r = 0; r < n; r++) owners += heard[r].own[i];
            assert_int_equal(owners, 1);
        }
        for (int i = 0; i < 9; i++) load[heard[0].owner[i]] += weight[i];
        uint64_t most = 0, whole = 29;
        for (int r = 0; r < n; r++) most = load[r] > most ? load[r] : most;
        assert_true(most * 3 * (uint64_t)n <= (whole + 9 * (uint64_t)n) * 4); // Graham's bound: 4/3 of the best
        if (n == 2) assert_int_equal(most, 15);
    }
}

// ---- records

typedef struct {
    size_t memory, n[MOST]; // records that each rank adds
    uint64_t sum[MOST], n_got[MOST], disorder[MOST], strangers[MOST];
} Records;

static void trade(Comm *world, void *arg)
{
    Records *c = arg;
    int r = world->rank;
    Extsort *s = extsort_open(NULL, 3, 1 << 16);
    Exchange *x = exchange_open(world, s, 3, c->memory);
    Rng rng = rng_make(7, "records", (uint64_t)r);
    for (size_t i = 0; i < c->n[r]; i++) {
        uint64_t key = rng_u64(rng, i);
        exchange_add(x, (int)(key % (uint64_t)world->size), (uint64_t[]){key, (uint64_t)r, i});
    }
    exchange_close(x);
    extsort_finish(s);
    uint64_t now[3], last = 0;
    while (extsort_next(s, now)) {
        c->disorder[r] += now[0] < last;
        c->strangers[r] += now[0] % (uint64_t)world->size != (uint64_t)r;
        c->sum[r] += now[0] ^ (now[1] << 32) ^ now[2];
        c->n_got[r]++;
        last = now[0];
    }
    extsort_close(s);
}

TEST(test_records)
{
    const size_t memory[] = {1, 2000, 1 << 20}; // a record for each rank; rounds; one round
    for (int n = 1; n <= MOST; n++)
        for (int m = 0; m < 3; m++) {
            Records c = {.memory = memory[m], .n = {0, 3000, 40, 1, 2500}}; // the ranks have very different numbers
            if (n == 1) c.n[0] = 100;
            uint64_t sum = 0, got = 0, all = 0, all_got = 0;
            for (int r = 0; r < n; r++) {
                Rng rng = rng_make(7, "records", (uint64_t)r);
                for (size_t i = 0; i < c.n[r]; i++) sum += rng_u64(rng, i) ^ ((uint64_t)r << 32) ^ i;
                got += c.n[r];
            }
            comm_threads_run(n, trade, &c);
            for (int r = 0; r < n; r++) {
                assert_int_equal(c.disorder[r] + c.strangers[r], 0);
                all += c.sum[r], all_got += c.n_got[r];
            }
            assert_int_equal(all_got, got);
            assert_true(all == sum);
        }
}

// ---- duplicates and contamination

enum { DOCS = 1500, LENGTH = 700 };

typedef struct {
    char text[DOCS][LENGTH];
} Corpus;

// Some repeat an earlier one, some with a changed end, some in a long chain of small changes; some are empty.
static void draw(Corpus *c)
{
    Rng rng = rng_make(3, "corpus", 0);
    for (uint64_t i = 0; i < DOCS; i++) {
        char *out = c->text[i];
        uint64_t kind = rng_u64(rng, 1000000 + i) % 10, from = i ? rng_u64(rng, 2000000 + i) % i : 0;
        if (kind < 4 && i > 20) memcpy(out, c->text[kind < 2 ? from : i - 1], LENGTH);
        else if (kind == 9) *out = 0;
        else
            for (uint64_t w = 0; w < 40; w++)
                out += sprintf(out, "w%x ", (unsigned)(rng_u64(rng, 100 * i + w) % 99991));
        size_t n = strlen(c->text[i]);
        if (kind >= 1 && kind < 4 && n > 60) memcpy(c->text[i] + n - 8 * kind, "changed", 7);
    }
}

static bool read_text(void *arg, size_t i, DedupText *text)
{
    Corpus *c = arg;
    text->n_bytes = strlen(c->text[i]);
    dedup_text_room(text, text->n_bytes + 1);
    memcpy(text->bytes, c->text[i], text->n_bytes);
    return true;
}

static void fail_never(void *arg, size_t i)
{
    (void)arg, (void)i;
    abort();
}

typedef struct {
    DedupSource source, examples;
    DedupResult dedup[MOST];
    Contamination contamination[MOST];
    size_t memory;
} Job;

static void search(Comm *world, void *arg)
{
    Job *job = arg;
    int r = world ? world->rank : 0;
    DedupOptions o = dedup_defaults();
    o.ngram = 3, o.threshold = 0.6, o.threads = 1, o.world = world, o.memory_bytes = job->memory;
    job->dedup[r] = dedup_run(&job->source, o);
    job->contamination[r] = contamination_find(&job->source, &job->examples,
                                               (ContaminationOptions){.ngram = 4, .min_grams = 2, .threads = 1,
                                                                      .world = world});
}

static void same_result(const DedupResult *a, const DedupResult *b)
{
    assert_memory_equal(a->keep, b->keep, DOCS * sizeof *a->keep);
    assert_memory_equal(a->bin, b->bin, sizeof a->bin);
    assert_memory_equal(a->cluster, b->cluster, sizeof a->cluster);
    const uint64_t of_a[] = {a->n_bytes, a->n_empty, a->n_unique, a->n_kept, a->n_buckets, a->largest_bucket,
                             a->n_candidates, a->n_left_out, a->n_compared, a->n_similar},
                   of_b[] = {b->n_bytes, b->n_empty, b->n_unique, b->n_kept, b->n_buckets, b->largest_bucket,
                             b->n_candidates, b->n_left_out, b->n_compared, b->n_similar};
    for (size_t i = 0; i < sizeof of_a / sizeof *of_a; i++) assert_int_equal(of_a[i], of_b[i]);
    for (int i = 0; i <= DEDUP_BINS; i++)
        for (size_t k = 0; k < DEDUP_EXAMPLES && k < a->bin[i]; k++)
            assert_true(a->example[i][k].a == b->example[i][k].a && a->example[i][k].b == b->example[i][k].b);
}

TEST(test_same_as_alone)
{
    static Corpus corpus;
    draw(&corpus);
    Job alone = {.source = {DOCS, read_text, fail_never, &corpus}, .memory = 1 << 22};
    alone.examples = alone.source;
    alone.examples.n_docs = 30;
    search(NULL, &alone);
    assert_true(alone.dedup[0].n_unique < DOCS * 95 / 100 && alone.dedup[0].n_compared > 100);
    assert_true(alone.dedup[0].n_kept < alone.dedup[0].n_unique && alone.contamination[0].n_hits > 20);
    for (int n = 1; n <= MOST; n++) {
        Job job = {.source = alone.source, .examples = alone.examples, .memory = n % 2 ? 1 << 22 : 90000};
        comm_threads_run(n, search, &job);
        for (int r = 0; r < n; r++) {
            Contamination *c = &job.contamination[r], *one = &alone.contamination[0];
            same_result(&job.dedup[r], &alone.dedup[0]);
            assert_int_equal(c->n_hits, one->n_hits);
            assert_memory_equal(c->hit, one->hit, one->n_hits * sizeof *one->hit);
            assert_memory_equal(c->example_found, one->example_found, 30 * sizeof *one->example_found);
            dedup_free(&job.dedup[r]);
            contamination_free(c);
        }
    }
    dedup_free(&alone.dedup[0]);
    contamination_free(&alone.contamination[0]);
}

// ---- extsort: sorted output against qsort, for any memory, number of words and order of the input; and its errors.

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
