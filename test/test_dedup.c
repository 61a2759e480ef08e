// test_dedup: planted duplicates are found as the S-curve says, clusters are those of comparing all pairs, memory and
// threads change nothing, hostile corpora take linear time. (The program: test_dedup_program.)
#include "test/test.h"

#include "expect_die.h"
#include "base/rng.h"
#include "dedup_case.h"
#include "data/prep/shingle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#ifdef __SANITIZE_ADDRESS__
enum { LIMITS = false }; // its shadow memory is part of the address space
#else
enum { LIMITS = true };
#endif

// ---- corpora in memory

typedef struct {
    char **text;
    size_t n, cap;
} Texts;

static void add_text(Texts *t, const char *text)
{
    if (t->n == t->cap) t->text = realloc(t->text, (t->cap = 2 * t->cap + 64) * sizeof *t->text);
    t->text[t->n++] = strdup(text);
}

static bool read_from_texts(void *arg, size_t i, DedupText *text)
{
    const Texts *t = arg;
    text->n_bytes = strlen(t->text[i]);
    dedup_text_room(text, text->n_bytes);
    memcpy(text->bytes, t->text[i], text->n_bytes);
    return true;
}

static DedupSource source_of(Texts *t)
{
    return (DedupSource){t->n, read_from_texts, fail_never, t};
}

static void free_texts(Texts *t)
{
    for (size_t i = 0; i < t->n; i++) free(t->text[i]);
    free(t->text);
}

// n words of document `doc`, the last `changed` of them (odd versions: the first) drawn anew for `version`.
static void draw_text(char *out, uint32_t doc, uint32_t version, size_t n, size_t changed)
{
    Rng old = rng_make(doc, "words", 0), new = rng_make(doc, "changed", version);
    for (size_t i = 0; i < n; i++)
        out += sprintf(out, "%s%x", i ? " " : "",
                       (unsigned)rng_u64((version % 2 ? i : n - 1 - i) < changed ? new : old, i));
}

static void add_drawn(Texts *t, uint32_t doc, uint32_t version, size_t n, size_t changed)
{
    char text[200 * 10];
    assert_true(n <= 200);
    draw_text(text, doc, version, n, changed);
    add_text(t, text);
}

// ---- planted pairs

enum { GRAMS = 100, WORDS = GRAMS + 12, PAIRS = 400 };

// Changing the first k words changes the first k of GRAMS n-grams: J = (GRAMS - k) / (GRAMS + k), exactly. Pairs of one
// J stand 1 to PAIRS documents apart. Verified: those below the threshold are never joined, the others as often as the
// curve says; not verified, all follow the curve.
TEST(test_planted_pairs)
{
    const size_t changed[] = {0, 1, 3, 5, 8, 11, 12, 14, 18, 22, 28, 33};
    enum { LEVELS = sizeof changed / sizeof *changed };
    char text[WORDS * 10];
    ENDED(free_texts) Texts t = {0};
    for (uint32_t level = 0; level < LEVELS; level++)
        for (uint32_t half = 0; half < 2; half++)
            for (uint32_t pair = 0; pair < PAIRS; pair++) {
                draw_text(text, level * PAIRS + pair, half, WORDS, half ? changed[level] : 0);
                if (half && changed[level] == 0) strcat(text, "\n");
                add_text(&t, text);
            }
    DedupSource source = source_of(&t);
    for (int verify = 0; verify < 2; verify++) {
        DedupOptions o = dedup_defaults();
        o.verify = verify;
        o.seed = 11;
        ENDED(dedup_free) DedupResult r = dedup_run(&source, o);
        assert_int_equal(r.options.bands.bands, 9);
        assert_int_equal(r.n_unique, t.n - PAIRS); // level 0
        for (size_t level = 0; level < LEVELS; level++) {
            double s = (double)(GRAMS - changed[level]) / (double)(GRAMS + changed[level]);
            double p = minhash_curve(r.options.bands, s), found = 0;
            for (size_t pair = 0; pair < PAIRS; pair++) {
                size_t a = level * 2 * PAIRS + pair, b = a + PAIRS;
                assert_int_equal(r.keep[a], a); // keep-first, and nothing is joined that was not planted
                assert_true(r.keep[b] == a || r.keep[b] == b);
                found += (double)(r.keep[b] == a) / PAIRS;
            }
            if (verify && s < o.threshold) p = 0;
            if (!(fabs(found - p) <= (p > 0 ? bound(p, PAIRS) : 0)))
                fail_msg("J %.4f verify %d: %.4f of the pairs, expected %.4f", s, verify, found, p);
        }
        // Pairs 11 and 12 lie at 0.8018 and 0.7857: each compared pair stands in the bin of its exact J.
        if (verify) assert_true(r.bin[15] > 0 && r.bin[16] > 0 && r.bin[DEDUP_BINS] == 0);
        assert_int_equal(r.n_compared, verify ? r.n_candidates : 0);
    }
}

// ---- clusters

static const uint32_t CORPUS_SEED = 900000;

// Families of documents at all distances, exact copies in other spelling, chains, empty and short documents.
static Texts mixed_corpus(size_t n)
{
    Texts t = {0};
    char text[600 * 10];
    Rng rng = rng_make(4, "mixed", 0);
    for (uint64_t i = 0; t.n < n; i++) {
        uint32_t family = CORPUS_SEED + (uint32_t)rng_below(rng, 4 * i, n / 4);
        uint32_t kind = (uint32_t)rng_below(rng, 4 * i + 1, 16);
        size_t n_words = 60 + family % 200;
        draw_text(text, family, (uint32_t)i, n_words, kind < 12 ? (size_t)rng_below(rng, 4 * i + 2, 20) : 0);
        if (kind == 12) text[0] = 0;
        if (kind == 13) text[20] = 0; // two or three words
        if (kind == 14)
            for (char *c = text; *c; c++) *c = *c >= 'a' && *c <= 'f' ? (char)(*c - 32) : *c == ' ' ? '\t' : *c;
        add_text(&t, text);
    }
    return t;
}

static uint32_t root(const uint32_t *parent, uint32_t i)
{
    while (parent[i] != i) i = parent[i];
    return i;
}

// With one row a band, nearly every pair of similar documents is a candidate (missed with probability 0.2^128): so the
// clusters are those of all pairs, each compared with each. Chains are in it: a is like b, b like c, a not like c.
TEST(test_clusters_of_all_pairs)
{
    enum { N = 260, NGRAM = 4 };
    ENDED(free_texts) Texts t = mixed_corpus(N);
    Shingles set[N] = {0};
    uint32_t parent[N];
    size_t chained = 0, related = 0; // pairs that share an n-gram
    for (uint32_t i = 0; i < N; i++) {
        shingle_make(&set[i], t.text[i], strlen(t.text[i]), NGRAM);
        parent[i] = i;
    }
    for (uint32_t j = 0; j < N; j++)
        for (uint32_t i = 0; i < j; i++) {
            double s = shingle_jaccard(set[i].gram, set[i].n_grams, set[j].gram, set[j].n_grams);
            bool same = s >= 0.8;
            related += s > 0;
            uint32_t x = root(parent, i), y = root(parent, j);
            if (same && x != y) parent[x > y ? x : y] = x > y ? y : x;
        }
    for (uint32_t j = 0; j < N; j++) {
        const Shingles *kept = &set[root(parent, j)];
        chained += shingle_jaccard(set[j].gram, set[j].n_grams, kept->gram, kept->n_grams) < 0.8;
    }
    assert_true(chained > 3); // documents that only a chain joins to what is kept

    DedupSource source = source_of(&t);
    DedupOptions o = dedup_defaults();
    o.ngram = NGRAM;
    o.bands = (MinHashBands){128, 1};
    ENDED(dedup_free) DedupResult r = dedup_run(&source, o);
    size_t kept = 0, several = 0;
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(r.keep[i], root(parent, i));
        kept += r.keep[i] == i;
    }
    assert_int_equal(r.n_kept, kept);
    assert_true(r.n_candidates <= related && r.n_candidates > related / 2); // each pair once, though bands share it
    uint64_t clusters[DEDUP_SIZES] = {0};
    for (uint32_t i = 0; i < N; i++) {
        size_t size = 0;
        for (uint32_t j = 0; j < N; j++) size += r.keep[j] == i;
        if (size) clusters[(int)log2((double)size)]++;
        several += size > 2;
    }
    assert_memory_equal(r.cluster, clusters, sizeof clusters);
    assert_true(several > 5);
    for (size_t i = 0; i < N; i++) shingle_free(&set[i]);
}

// The least memory that is accepted sorts everything in files, several passes over.
TEST(test_memory_and_threads_change_nothing)
{
    enum { N = 3000, LEAST = N * 4 + 83000 };
    ENDED(free_texts) Texts t = mixed_corpus(N);
    DedupSource source = source_of(&t);
    FREED char *expected = NULL;
    const struct { size_t memory; int threads; } run[] = {
        {64 << 20, 1}, {64 << 20, 2}, {LEAST, 1}, {LEAST, 5}, {200000, 2}};
    for (size_t k = 0; k < sizeof run / sizeof *run; k++) {
        DedupOptions o = dedup_defaults();
        o.memory_bytes = run[k].memory;
        o.threads = run[k].threads;
        ENDED(dedup_free) DedupResult r = dedup_run(&source, o);
        FREED char *text = PRINTED(f, dedup_write_clusters(&r, f), dedup_print(&r, f)); // no seconds in it
        assert_int_equal(r.spilled_bytes > 0, run[k].memory < 1 << 20);
        assert_true(r.n_unique < N && r.n_kept < r.n_unique && r.n_empty > 10 && r.n_compared > 100);
        assert_true(r.n_compared < r.n_candidates); // pairs that are joined already are not compared
        if (!expected) expected = strdup(text);
        assert_string_equal(text, expected);
    }
}

// ---- hostile corpora

TEST(test_small_corpora)
{
    const char *const text[] = {"", "word", " \n\t", "Word", "word word", "WORD  word ", "", "another"};
    const uint32_t keep[] = {0, 1, 0, 1, 4, 4, 0, 7};
    for (size_t n = 0; n <= 8; n++) {
        ENDED(free_texts) Texts t = {0};
        for (size_t i = 0; i < n; i++) add_text(&t, text[i]);
        DedupSource source = source_of(&t);
        ENDED(dedup_free) DedupResult r = dedup_run(&source, dedup_defaults());
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(r.keep[i], keep[i]);
            kept += keep[i] == i;
        }
        assert_int_equal(r.n_kept, kept);
        assert_int_equal(r.n_unique, kept);
    }
}

// At the threshold to the bit: 102 words, 90 n-grams, 10 of them changed: 80 / 100. Nothing else is joined.
TEST(test_threshold_is_included)
{
    const double threshold[] = {0.8, nextafter(0.8, 1)};
    for (int k = 0; k < 2; k++) {
        ENDED(free_texts) Texts t = {0};
        for (uint32_t version = 0; version < 2; version++) add_drawn(&t, 1, version, 102, version * 10);
        DedupSource source = source_of(&t);
        DedupOptions o = dedup_defaults();
        o.bands = (MinHashBands){128, 1};
        o.threshold = threshold[k];
        ENDED(dedup_free) DedupResult r = dedup_run(&source, o);
        assert_true(r.n_compared == 1 && r.bin[16] == 1);
        assert_int_equal(r.n_kept, k == 0 ? 1 : 2);
    }
}

// One band of one row, and a word in all documents that has the smallest image: one bucket, no two documents alike.
TEST(test_one_bucket)
{
    enum { N = 3000, WINDOW = 32 };
    MinHash m = minhash_make(1, 0);
    ENDED(free_texts) Texts t = {0};
    char common[20] = "", text[200];
    uint32_t least = UINT32_MAX, image;
    for (unsigned i = 0, tried = 0; t.n < N; i++) { // the first word with an image in the lowest 1/16, then words above
        static char line[200], word[20];
        ENDED(shingle_free) Shingles s = {0};
        sprintf(word, "w%u", i);
        shingle_make(&s, word, strlen(word), 1);
        minhash_signature(&m, s.gram, 1, &image);
        if (!*common) {
            if (image < UINT32_MAX / 16) strcpy(common, word), least = image;
        } else if (image > least) {
            strcat(strcat(line, " "), word);
            if (++tried % 5 == 0) {
                snprintf(text, sizeof text, "%.20s%.170s", common, line);
                add_text(&t, text);
                *line = 0;
            }
        }
    }
    DedupSource source = source_of(&t);
    DedupOptions o = dedup_defaults();
    o.ngram = 1;
    o.bands = (MinHashBands){1, 1};
    ENDED(dedup_free) DedupResult r = dedup_run(&source, o);
    uint64_t pairs = (uint64_t)N * (N - 1) / 2, all_near = (uint64_t)WINDOW * (WINDOW + 1) / 2;
    assert_int_equal(r.largest_bucket, N);
    assert_int_equal(r.n_kept, N);
    assert_int_equal(r.n_candidates, all_near + (uint64_t)(N - WINDOW - 1) * (WINDOW + 1)); // linear in N
    assert_int_equal(r.n_candidates + r.n_left_out, pairs);
    assert_int_equal(r.n_compared, r.n_candidates);
    assert_int_equal(r.bin[1], r.n_compared); // J = 1 / 11
}

// ---- memory

enum { BIG = 8000, BIG_WORDS = 300, ALLOWED = 5 << 20 };

// Texts that are drawn when they are read: every fifth is a near copy of the one before.
static bool read_drawn(void *arg, size_t i, DedupText *text)
{
    (void)arg;
    dedup_text_room(text, BIG_WORDS * 10);
    draw_text(text->bytes, (uint32_t)(i - (i % 5 == 4)), 0, BIG_WORDS, i % 5 == 4 ? 2 : 0);
    text->n_bytes = strlen(text->bytes);
    return true;
}

static int within_limit(void *arg)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu", &pages) != 1) return 90;
    fclose(f);
    rlim_t limit = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ALLOWED;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit})) return 91;
    DedupOptions o = dedup_defaults();
    o.memory_bytes = 1 << 20;
    o.threads = 1;
    DedupSource source = {BIG, read_drawn, fail_never, NULL};
    DedupResult r = dedup_run(&source, o);
    if (r.n_bytes < 4 * ALLOWED || !r.spilled_bytes) return 92;
    return memcmp(r.keep, arg, BIG * sizeof *r.keep) ? 93 : 0;
}

// A corpus of more than four times the memory that the process may take for it, with the result of one that has enough.
TEST_FIRST(test_address_space_limit)
{
    DedupSource source = {BIG, read_drawn, fail_never, NULL};
    DedupOptions o = dedup_defaults();
    o.threads = 1;
    ENDED(dedup_free) DedupResult r = dedup_run(&source, o);
    assert_int_equal(r.spilled_bytes, 0);
    for (uint32_t i = 0; i < BIG; i++) assert_true(r.keep[i] == i || (i % 5 == 4 && r.keep[i] == i - 1));
    assert_true(r.n_kept < BIG - BIG / 6); // J = 286 / 290: nearly all of the fifth
    if (LIMITS) {
        char text[4096];
        int status = run_child(within_limit, r.keep, text, sizeof text);
        if (status) fail_msg("status %d: %s", status, text);
    }
}

// A source that breaks: document `doc` cannot be read the n-th time.
typedef struct {
    Texts texts;
    size_t doc, nth, n_reads;
} Breaking;

static bool read_breaking(void *arg, size_t i, DedupText *text)
{
    Breaking *b = arg;
    return read_from_texts(&b->texts, i, text) && !(i >= b->doc && ++b->n_reads >= b->nth);
}

static void fail_on_request(void *arg, size_t i)
{
    (void)arg;
    fprintf(stderr, "error: document %zu\n", i);
    exit(1);
}

TEST(test_errors)
{
    ENDED(free_texts) Texts t = {0};
    for (uint32_t i = 0; i < 4; i++) add_drawn(&t, i / 2, i, 100, i % 2); // 1 and 3 are near copies of 0 and 2
    DedupSource source = source_of(&t), breaking = {t.n, read_breaking, fail_on_request, NULL};
    DedupOptions one = dedup_defaults(), little = one;
    one.threads = little.threads = 1;
    little.memory_bytes = 10000;
    expect_dies("dedup: memory of 10000 bytes: 4 documents need at least ", dedup_run(&source, little));
    const struct { size_t doc, nth; const char *words; } row[] = {
        {1, 1, "document 1"}, // the first of those that cannot be read
        {3, 2, "document 3"}, // when signatures are made
        {3, 3, "document 3"}, // when candidates are compared: the second of a pair
        {2, 6, "document 3"}, {2, 5, "document 2"}}; // and the first
    for (int i = 0; i < 5; i++) {
        Breaking b = {t, row[i].doc, row[i].nth, 0};
        breaking.arg = &b;
        expect_dies(row[i].words, dedup_run(&breaking, one));
    }
}

TESTS(NULL, NULL)
