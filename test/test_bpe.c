// test_bpe: bpe and words: hand-made merges, and slow twins that follow the definition word by word; the cache of
// words; and the parts into which a long word is split.
#include "test/test.h"

#include "tokenizer/bpe.h"
#include "base/rng.h"
#include "tokenizer/word_cache.h"

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

// ---- word cache: a lookup gives what was stored, or nothing if it was evicted, and nothing for other words.

enum { MOST_IDS = 30 };

// The ids of a word here: 1 to MOST_IDS of them, another list for every word.
static size_t ids_of(const char *word, size_t n, int32_t *id)
{
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < n; i++) sum = (sum ^ (uint8_t)word[i]) * 16777619u;
    size_t n_ids = 1 + sum % MOST_IDS;
    for (size_t i = 0; i < n_ids; i++) id[i] = (int32_t)((sum >> 4) + 3 * i + n);
    return n_ids;
}

// Asks as tokenizer.c does; puts the word there when it is missing. Returns whether it was known.
static bool ask(WordCache *cache, const char *word, size_t n, size_t n_readable)
{
    int32_t want[MOST_IDS];
    size_t n_want = ids_of(word, n, want);
    TokenIds out = {0};
    token_ids_push(&out, 77); // appended to what is there
    WordLook look;
    word_cache_look(cache, &look, word, n, n_readable);
    word_cache_look_again(cache, &look);
    bool known = word_cache_get(cache, &look, &out);
    assert_int_equal(out.id[0], 77);
    assert_int_equal(out.n, known ? 1 + n_want : 1);
    if (known) assert_memory_equal(out.id + 1, want, n_want * sizeof *want);
    else word_cache_put(cache, &look, want, n_want);
    token_ids_free(&out);
    return known;
}

// All lengths, read with and without text behind; words that differ only in zero bytes at the end, in the first byte,
// in the last one.
TEST(test_lengths)
{
    enum { N = 80, KEPT = 64 };
    WordCache cache = {0};
    char text[N + 64];
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 1; n <= N; n++) {
            memset(text, kind == 0 ? 0 : 'x', sizeof text);
            if (kind == 2) text[0] = 'y';
            if (kind == 3) text[n - 1] = 'y';
            bool seen = kind == 3 && n == 1; // "y", of kind 2
            assert_int_equal(ask(&cache, text, n, n), seen);
            memset(text + n, '!', sizeof text - n); // not a part of the word
            assert_int_equal(ask(&cache, text, n, sizeof text), n <= KEPT);
            char *alone = malloc(n); // nothing may be read behind it
            assert_non_null(alone);
            memcpy(alone, text, n);
            assert_int_equal(ask(&cache, alone, n, n), n <= KEPT);
            free(alone);
        }
    word_cache_free(&cache);
}

// More words than lines: a word that another one has pushed out of the front is known all the same. More than the table
// holds: it forgets, and is right about those that come back.
TEST(test_forgetting)
{
    enum { FEW = 200000, MANY = (1 << 20) + 5 };
    WordCache cache = {0};
    char word[32];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < FEW; i++) {
            size_t n = (size_t)snprintf(word, sizeof word, "%d", i * 7);
            assert_int_equal(ask(&cache, word, n, sizeof word), round);
        }
    int known = 0;
    for (int i = FEW; i < MANY; i++) {
        size_t n = (size_t)snprintf(word, sizeof word, "%d", i * 7);
        assert_false(ask(&cache, word, n, sizeof word));
    }
    for (int i = 0; i < FEW; i++) {
        size_t n = (size_t)snprintf(word, sizeof word, "%d", i * 7);
        known += ask(&cache, word, n, sizeof word);
    }
    assert_in_range(known, 0, FEW / 2);
    word_cache_free(&cache);
}

// Words looked at together, as tokenizer.c does: the same twice, and one that takes a line between look and get.
TEST(test_together)
{
    enum { WORDS = 150000, AHEAD = 16 };
    static char word[WORDS][8];
    WordCache cache = {0};
    TokenIds out = {0};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < WORDS; i += AHEAD) {
            WordLook look[AHEAD];
            int32_t want[MOST_IDS];
            int k_end = WORDS - i < AHEAD ? WORDS - i : AHEAD;
            for (int k = 0; k < k_end; k++) {
                size_t n = (size_t)snprintf(word[i + k], sizeof word[0], "%d", (i + k) * 13 % (k % 2 ? 40000 : 99991));
                word_cache_look(&cache, &look[k], word[i + k], n, 8);
            }
            for (int k = 0; k < k_end; k++) word_cache_look_again(&cache, &look[k]);
            for (int k = 0; k < k_end; k++) {
                out.n = 0;
                size_t n_want = ids_of(look[k].bytes, look[k].n, want);
                if (!word_cache_get(&cache, &look[k], &out)) word_cache_put(&cache, &look[k], want, n_want);
                else {
                    assert_int_equal(out.n, n_want);
                    assert_memory_equal(out.id, want, n_want * sizeof *want);
                }
            }
        }
    token_ids_free(&out);
    word_cache_free(&cache);
}

// ---- split: the parts of a word, encoded one by one, give the ids of the word, whatever the merges and the bytes; and
// which points are split points, by hand.

enum { MOST_MERGES = 400, MOST_BYTES = 100 };

// A vocabulary: the 256 bytes, and merges.
typedef struct {
    Words token;
    BpeMerge merge[MOST_MERGES];
    size_t n;
    Bpe bpe;
    Splits splits;
} Small;

static void begin(Small *v)
{
    *v = (Small){0};
    for (int b = 0; b < 256; b++) assert_int_equal(words_add(&v->token, (char[]){(char)b}, 1), b);
}

static void join(Small *v, int32_t left, int32_t right)
{
    char bytes[2 * MOST_BYTES];
    Word l = v->token.word[left], r = v->token.word[right];
    assert_true(l.n + r.n <= sizeof bytes);
    memcpy(bytes, v->token.bytes + l.at, l.n);
    memcpy(bytes + l.n, v->token.bytes + r.at, r.n);
    v->merge[v->n++] = (BpeMerge){left, right, (int32_t)words_add(&v->token, bytes, (size_t)l.n + r.n)};
}

// The merge of two tokens by their bytes.
static void join_bytes(Small *v, const char *left, const char *right)
{
    int64_t l = words_find(&v->token, left, strlen(left)), r = words_find(&v->token, right, strlen(right));
    assert_true(l >= 0 && r >= 0);
    join(v, (int32_t)l, (int32_t)r);
}

static void index_all(Small *v)
{
    v->bpe = bpe_index(v->merge, v->n);
    v->splits = split_make(&v->token, v->merge, v->n);
}

static void end(Small *v)
{
    words_free(&v->token);
    bpe_free(&v->bpe);
    split_free(&v->splits);
}

static size_t encode(const Small *v, const char *word, size_t n, int32_t *ids)
{
    for (size_t i = 0; i < n; i++) ids[i] = (uint8_t)word[i];
    return bpe_apply(&v->bpe, ids, n);
}

// Returns how many parts there are.
static int check_word(const Small *v, const char *word, size_t n)
{
    int32_t whole[MOST_BYTES], part[MOST_BYTES];
    size_t n_whole = encode(v, word, n, whole), n_parts = 0;
    int parts = 0;
    for (size_t at = 0, to; at < n; at = to, parts++) {
        to = split_next(&v->splits, word, n, at);
        assert_true(to > at && to <= n);
        n_parts += encode(v, word + at, to - at, part + n_parts);
    }
    assert_int_equal(n_parts, n_whole);
    assert_memory_equal(part, whole, n_whole * sizeof *whole);
    return parts;
}

static const char *const letters[] = {"a", "b", "-", "\xC3\xA9", "\xC3\xAA", "\xCE\xA9", "\xE0\xB8\x81", "\xE0\xB8\x82",
                                      "\xE0\xB9\x80", "\xE4\xB8\x80", "\xE4\xB8\x81", "\xE4\xB9\x80",
                                      "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x81"};
// Bytes that stand where no whole character does.
static const char *const broken[] = {"\x80", "\x81", "\xE0", "\xE0\xB8", "\xF0\x9F", "\xFF", "\xC3"};
enum { LETTERS = sizeof letters / sizeof *letters, BROKEN = sizeof broken / sizeof *broken };

static size_t draw_word(Rng rng, uint64_t *at, char *word, unsigned one_broken_in)
{
    size_t n = 0, most = 1 + rng_below(rng, (*at)++, 24);
    for (size_t k = 0; k < most; k++) {
        bool bad = one_broken_in && rng_below(rng, (*at)++, one_broken_in) == 0;
        const char *s = bad ? broken[rng_below(rng, (*at)++, BROKEN)] : letters[rng_below(rng, (*at)++, LETTERS)];
        memcpy(word + n, s, strlen(s));
        n += strlen(s);
    }
    return n;
}

// Merges of tokens that stand side by side in some word: within characters, across them, and of parts of characters.
static void draw_merges(Small *v, Rng rng, uint64_t *at, size_t n)
{
    int32_t ids[MOST_BYTES];
    char word[MOST_BYTES];
    while (v->n < n) {
        size_t n_bytes = draw_word(rng, at, word, 8), n_ids;
        v->bpe = bpe_index(v->merge, v->n);
        n_ids = encode(v, word, n_bytes, ids);
        bpe_free(&v->bpe);
        if (n_ids < 2) continue;
        size_t i = rng_below(rng, (*at)++, n_ids - 1);
        join(v, ids[i], ids[i + 1]);
    }
}

TEST(test_random)
{
    int words = 0, cut = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        static Small v;
        Rng rng = rng_make(seed, "splits", 0);
        uint64_t at = 0;
        char word[MOST_BYTES];
        begin(&v);
        draw_merges(&v, rng, &at, 1 + rng_below(rng, at++, 120)); // after 120 nearly everything is joined by something
        index_all(&v);
        for (int i = 0; i < 300; i++, words++)
            cut += check_word(&v, word, draw_word(rng, &at, word, i % 3 ? 0 : 4)) > 1;
        end(&v);
    }
    assert_true(cut > words / 4 && cut < words); // both ways were tried
}

#define GA "\xE0\xB8\x81"
#define KHA "\xE0\xB8\x82"
#define SARA "\xE0\xB9\x80"

static void expect(const Small *v, const char *word, const char *parts)
{
    char got[64] = "";
    for (size_t at = 0, to, n = strlen(word); at < n; at = to) {
        to = split_next(&v->splits, word, n, at);
        sprintf(got + strlen(got), "%s%zu", at ? " " : "", to - at);
    }
    assert_string_equal(got, parts);
}

TEST(test_split_by_hand)
{
    static Small v;
    begin(&v);
    index_all(&v); // no merges: every character is a part
    expect(&v, "ab" GA "\xC3\xA9", "1 1 3 2");
    end(&v);

    begin(&v);
    join_bytes(&v, "\xE0", "\xB8");
    join_bytes(&v, "\xE0\xB8", "\x81"); // within a character: no split point is lost
    join_bytes(&v, "\xE0\xB8", "\x82");
    index_all(&v);
    expect(&v, GA KHA SARA, "3 3 3");
    end(&v);

    begin(&v);
    join_bytes(&v, "\xE0", "\xB8");
    join_bytes(&v, "\xE0\xB8", "\x81");
    join_bytes(&v, "\xE0\xB8", "\x82");
    join_bytes(&v, GA, KHA); // two characters: these, in this order
    index_all(&v);
    expect(&v, GA KHA GA GA KHA KHA, "6 3 6 3");
    end(&v);

    begin(&v);
    join_bytes(&v, "\x81", "\xE0"); // parts of two: all with these bytes
    index_all(&v);
    expect(&v, GA KHA GA SARA KHA "a", "6 6 3 1");
    end(&v);

    begin(&v);
    join_bytes(&v, "\x81", "a"); // a part and a whole character; b begins otherwise
    join_bytes(&v, "b", "\xE0");
    index_all(&v);
    expect(&v, GA "a" GA "b" KHA "a", "4 3 4 1");
    end(&v);

    begin(&v);
    join_bytes(&v, "\x81", "a"); // nothing ill-formed is cut, on either side
    index_all(&v);
    expect(&v, "\xE0\xB8" "b\x81" "b" GA "\xC3", "5 4");
    end(&v);
}

TESTS(NULL, NULL)
