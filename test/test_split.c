// Tests of split: the parts of a word, encoded one by one, give the ids of the word, whatever the merges and the bytes;
// and which points are split points, by hand.

#include "test/test.h"

#include "base/rng.h"
#include "tokenizer/bpe.h"

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

TEST(test_by_hand)
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
