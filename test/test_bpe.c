// Tests of bpe and words: hand-made merges, and slow twins that follow the definition word by word.

#include "test/test.h"

#include "tokenizer/bpe.h"
#include "base/rng.h"

enum { MOST = 400 };

static void byte_ids(int32_t *byte_id)
{
    for (int b = 0; b < 256; b++) byte_id[b] = b;
}

// The classic: aaabdaaabac. aa 4 times; then (a, b) and (aa, a) twice, the smaller left id first; then (aa,
// ab).
TEST(test_by_hand)
{
    int32_t byte_id[256];
    byte_ids(byte_id);
    Words words = {0};
    words_add(&words, "aaabdaaabac", 11);
    int64_t count = 1;
    BpeMerge merge[16];
    assert_int_equal(bpe_train(&words, &count, byte_id, 256, 4, 1, merge), 4);
    const BpeMerge want[4] = {{'a', 'a', 256}, {'a', 'b', 257}, {256, 257, 258}, {'a', 'c', 259}};
    assert_memory_equal(merge, want, sizeof want);
    // To the end: the word becomes one token and training stops by itself. 11 bytes are merged away by the 4
    // merges above to aaab d aaab ac; three more join them.
    assert_int_equal(bpe_train(&words, &count, byte_id, 256, 16, 1, merge), 7);
    words_free(&words);
}

// Counts decide: a rare long word loses against a frequent short one.
TEST(test_counts)
{
    int32_t byte_id[256];
    byte_ids(byte_id);
    Words words = {0};
    words_add(&words, "xyxyxy", 6); // (x, y) 3 times
    words_add(&words, "pq", 2);
    int64_t count[2] = {2, 7};
    BpeMerge merge[2], long_list[16];
    bpe_train(&words, count, byte_id, 256, 2, 1, merge);
    assert_int_equal(merge[0].left, 'p');
    assert_int_equal(merge[1].left, 'x');
    // (p, q) 7 times, (x, y) 6, then (xy, xy) 4.
    const size_t n_merges[] = {3, 2, 2, 1, 0};
    for (int64_t least = 4; least <= 8; least++)
        assert_int_equal(bpe_train(&words, count, byte_id, 256, 16, least, long_list), n_merges[least - 4]);
    words_free(&words);
}

// Twin of bpe_train: counts every pair anew in every round.
typedef struct {
    int32_t s[16];
    int n;
    int64_t count;
} SlowWord;

static BpeMerge slow_round(SlowWord *word, size_t n_words, int32_t new_id)
{
    static int64_t count[MOST][MOST];
    memset(count, 0, sizeof count);
    BpeMerge best = {-1, -1, new_id};
    int64_t most = 0;
    for (size_t w = 0; w < n_words; w++)
        for (int i = 0; i + 1 < word[w].n; i++) count[word[w].s[i]][word[w].s[i + 1]] += word[w].count;
    for (int l = 0; l < MOST; l++)
        for (int r = 0; r < MOST; r++)
            if (count[l][r] > most) most = count[l][r], best.left = l, best.right = r;
    for (size_t w = 0; w < n_words; w++) {
        int n = 0;
        for (int i = 0; i < word[w].n; i++) {
            bool here = i + 1 < word[w].n && word[w].s[i] == best.left && word[w].s[i + 1] == best.right;
            word[w].s[n++] = here ? new_id : word[w].s[i];
            i += here;
        }
        word[w].n = n;
    }
    return best;
}

TEST(test_train_against_twin)
{
    enum { N = 400, MERGES = 120 };
    int32_t byte_id[256];
    byte_ids(byte_id);
    // 2, 3, 4 letters: ties and runs of one letter everywhere. After that a few words each, merged until no pair is
    // left.
    for (uint32_t trial = 0; trial < 40; trial++) {
        const uint64_t n_words = trial < 3 ? N : 1 + trial % 7, letters = 2 + trial % 3;
        Rng rng = rng_make(11, "bpe", trial);
        Words words = {0};
        static SlowWord slow[N];
        static int64_t count[N];
        for (uint64_t i = 0; i < n_words; i++) {
            char text[16];
            size_t n = 1 + rng_below(rng, i * 100, 12);
            for (size_t k = 0; k < n; k++) text[k] = (char)('a' + rng_below(rng, i * 100 + 1 + k, letters));
            size_t known = words.n;
            uint32_t w = words_add(&words, text, n);
            if (w == known) {
                count[w] = 0;
                slow[w].n = (int)n;
                for (size_t k = 0; k < n; k++) slow[w].s[k] = text[k];
            }
            count[w] += 1 + (int64_t)rng_below(rng, i * 100 + 50, 3);
        }
        for (size_t w = 0; w < words.n; w++) slow[w].count = count[w];
        BpeMerge merge[MERGES];
        size_t n = bpe_train(&words, count, byte_id, 256, MERGES, 1, merge);
        assert_true(trial >= 3 || n == MERGES);
        for (size_t i = 0; i < n; i++) {
            BpeMerge want = slow_round(slow, words.n, 256 + (int32_t)i);
            if (memcmp(&want, &merge[i], sizeof want) != 0)
                fail_msg("trial %u, merge %zu: (%d, %d), the twin has (%d, %d)", trial, i, merge[i].left,
                         merge[i].right, want.left, want.right);
        }
        if (n < MERGES) assert_int_equal(slow_round(slow, words.n, 0).left, -1);
        words_free(&words);
    }
}

// Twin of bpe_apply: the lowest rank, leftmost, found by looking at everything.
static size_t slow_apply(const BpeMerge *merge, size_t n_merges, int32_t *ids, size_t n)
{
    for (;;) {
        size_t rank = n_merges, at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t m = 0; m < rank; m++)
                if (merge[m].left == ids[i] && merge[m].right == ids[i + 1]) rank = m, at = i;
        if (rank == n_merges) return n;
        ids[at] = merge[rank].result;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

TEST(test_apply_against_twin)
{
    enum { MERGES = 60, N = 520 };
    for (uint32_t trial = 0; trial < 20; trial++) {
        Rng rng = rng_make(12, "apply", trial);
        BpeMerge merge[MERGES]; // random pairs of letters and earlier results: also ones no training would
                                // give
        for (uint64_t i = 0; i < MERGES; i++) {
            int32_t l = (int32_t)rng_below(rng, 2 * i, 3 + i), r = (int32_t)rng_below(rng, 2 * i + 1, 3 + i);
            merge[i] = (BpeMerge){l, r, 3 + (int32_t)i};
        }
        Bpe bpe = bpe_index(merge, MERGES);
        for (size_t n = 0; n <= N; n = n < 70 || (n >= 250 && n < 260) ? n + 1 : n < 250 ? n + 45 : n * 2) {
            int32_t fast[N], slow[N]; // n: on both sides of SHORT
            for (size_t i = 0; i < n; i++)
                fast[i] = slow[i] = (int32_t)rng_below(rng, 1000 + n * 1000 + i, 3);
            size_t n_fast = bpe_apply(&bpe, fast, n), n_slow = slow_apply(merge, MERGES, slow, n);
            assert_int_equal(n_fast, n_slow);
            if (n_slow) assert_memory_equal(fast, slow, n_slow * sizeof *slow);
        }
        bpe_free(&bpe);
    }
}

// Numbers in order of appearance, over many growths of the table, and bytes of any value.
TEST(test_words)
{
    Words words = {0};
    assert_int_equal(words_find(&words, "a", 1), -1);
    assert_int_equal(words_add(&words, "", 0), 0); // before there are any bytes
    assert_int_equal(words_add(&words, "", 0), 0);
    words_free(&words);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 20000; i++) {
            assert_int_equal(words_add(&words, (const char *)&i, sizeof i), i);
            if (i % 2) assert_int_equal(words_find(&words, (const char *)&i, sizeof i), i);
        }
        assert_int_equal(words.n, 20000);
    }
    assert_int_equal(words_find(&words, "\0\0\0\0\0", 5), -1);
    assert_int_equal(words_find(&words, "", 0), -1);
    words_clear(&words);
    assert_int_equal(words_find(&words, "\0\0\0\0", 4), -1);
    assert_int_equal(words_add(&words, "", 0), 0);
    assert_int_equal(words_find(&words, "", 0), 0);
    words_free(&words);
}

TESTS(NULL, NULL)
