// Tests of tokenizer with several threads, of its files in other formats (vocab.c), and of all its parsers on
// damaged input. In GPT-2's order of bytes 'a' is 64, a space 220, and merges start at 256.

#include "test/test.h"

#include "base/disk.h"
#include "expect_die.h"
#include "base/rng.h"
#include "temp_dir.h"
#include "tokenizer_case.h"

// Words from few letters, so that they repeat and their pairs tie, with bytes of any value between.
static void fill(char *text, size_t n, uint32_t seed)
{
    Rng rng = rng_make(21, "text", seed);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = rng_u64(rng, i);
        text[i] = r % 64 == 0 ? (char)(r >> 32) : "abcab aab \n!1\xC3\xA9"[(r >> 8) % 15];
    }
}

// ---- threads
enum { N_TEXT = 700000, N_TEXTS = 9 };

static char *many_texts(TokenizerText *text) // one large, one empty, one of a letter, the others small
{
    char *bytes = zeroed(N_TEXT);
    fill(bytes, N_TEXT, 1);
    const size_t n[N_TEXTS] = {5000, 0, 600000, 1, 20000, 20000, 0, 300, N_TEXT - 645301};
    for (size_t i = 0, at = 0; i < N_TEXTS; at += n[i++]) text[i] = (TokenizerText){bytes + at, n[i]};
    return bytes;
}

TEST_IN_DIR(test_training_threads)
{
    TokenizerText text[N_TEXTS];
    FREED char *bytes = many_texts(text), *first = NULL;
    size_t n_first = 0;
    for (int threads = 0; threads <= 5; threads++) { // 0: one text after another
        TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
        for (int i = 0; i < N_TEXTS && !threads; i++) tokenizer_trainer_add(trainer, text[i].bytes, text[i].n);
        if (threads) tokenizer_trainer_add_texts(trainer, text, N_TEXTS, threads);
        OWN(Tokenizer) *t = tokenizer_trainer_finish(trainer, 700);
        assert_int_equal(tokenizer_vocab_size(t), 700);
        tokenizer_save(t, dir);
        size_t n;
        char *json = take_file("tokenizer.json", &n);
        if (!threads) first = json, n_first = n;
        same_bytes(json, n, first, n_first);
        if (threads) free(json);
    }
}

TEST(test_encoding_threads)
{
    TokenizerText text[N_TEXTS];
    FREED char *bytes = many_texts(text);
    OWN(Tokenizer) *t = train(bytes, N_TEXT / 4, 600, "gpt2");
    ENDED(token_ids_free) TokenIds want = {0};
    size_t want_end[N_TEXTS], end[N_TEXTS];
    token_ids_push(&want, -1); // what is in the list stays there
    for (int i = 0; i < N_TEXTS; i++) tokenizer_encode(t, text[i].bytes, text[i].n, &want), want_end[i] = want.n;
    for (int threads = 1; threads <= 5; threads++) {
        ENDED(token_ids_free) TokenIds ids = {0};
        token_ids_push(&ids, -1);
        memset(end, 0xff, sizeof end); // nothing is left of the last round
        tokenizer_encode_texts(t, text, N_TEXTS, threads, &ids, end);
        assert_int_equal(ids.n, want.n);
        assert_memory_equal(ids.id, want.id, want.n * sizeof *want.id);
        assert_memory_equal(end, want_end, sizeof end);
        tokenizer_encode_texts(t, text, 0, threads, &ids, NULL);
        assert_int_equal(ids.n, want.n);
    }
}

// A word of a million letters that never repeats a pair for long, and one of a single letter: no n^2 anywhere.
TEST(test_huge_words)
{
    enum { N = 1 << 20 };
    FREED char *text = zeroed(2 * N);
    Rng rng = rng_make(22, "huge", 0);
    for (size_t i = 0; i < N; i++) text[i] = "ab"[rng_below(rng, i, 2)], text[N + i] = 'a';
    for (int one = 0; one < 2; one++) {
        OWN(Tokenizer) *t = train(text + one * N, N, 300, "gpt2");
        expect_round_trip(t, text + one * N, N);
    }
}

// ---- formats
static void expect_alike(Tokenizer *a, Tokenizer *b)
{
    static char text[20000];
    fill(text, sizeof text, 2);
    expect_same(a, b, text, sizeof text);
}

TEST_IN_DIR(test_conversions)
{
    enum { N = 30000 };
    static char text[N];
    fill(text, N, 2);
    OWN(Tokenizer) *a = train(text, N, 500, "gpt2");
    vocab_save_ranks(tokenizer_vocab(a), in_dir("ranks"));
    OWN(Tokenizer) *b = tokenizer_load_ranks(in_dir("ranks"), "gpt2");
    expect_alike(a, b);
    vocab_save_gpt2(tokenizer_vocab(b), dir);
    OWN(Tokenizer) *c = tokenizer_load(dir);
    expect_alike(a, c);
    size_t n_first, n_again;
    FREED char *first = take_file("ranks", &n_first);
    vocab_save_ranks(tokenizer_vocab(c), in_dir("again"));
    FREED char *again = take_file("again", &n_again);
    same_bytes(first, n_first, again, n_again);
    // The first lines by hand: '!' is 0x21, '"' 0x22; the file ends with the last merge, without <|endoftext|>.
    assert_memory_equal(first, "IQ== 0\nIg== 1\n", 14);
    assert_memory_equal(first + n_first - 5, " 498\n", 5);
}

// Every named pattern passes through tokenizer.json, smollm as [Digits; ByteLevel].
TEST_IN_DIR(test_patterns)
{
    static const char *const names[] = {"gpt2", "smollm", "cl100k", "llama3", "qwen2"};
    for (int i = 0; i < 5; i++) {
        OWN(Tokenizer) *a = train("a 12 12 12 12 b\n\n  ", 19, 270, names[i]), *b;
        tokenizer_save(a, dir);
        b = tokenizer_load(dir);
        assert_string_equal(tokenizer_pattern(b), names[i]);
        expect_alike(a, b);
        FREED char *json = take_file("tokenizer.json", NULL);
        assert_int_equal(strstr(json, "\"Digits\"") != NULL, i == 1);
        assert_int_equal(strstr(json, "\"Split\"") != NULL, i > 1);
    }
}

// ---- errors
static char *append_base64(char *at, uint32_t value, int n) // of n bytes, up to 3
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int k = 0; k < 4; k++) *at++ = k > n ? '=' : digits[value << 8 * (3 - n) >> (18 - 6 * k) & 63];
    return at;
}

// The line `first` or none, the 256 lines of the bytes, and `more`: loaded as GPT-2's.
static Tokenizer *load_ranks(const char *first, const char *more)
{
    char text[8192], *at = stpcpy(text, first);
    for (uint32_t b = 0; b < 256; b++) at += sprintf(append_base64(at, b, 1), " %u\n", b + (*first != 0)) + 4;
    strcpy(at, more);
    return tokenizer_load_ranks(put_text("ranks", text), "gpt2");
}

TEST_IN_DIR(test_rank_errors)
{
    expect_dies("/nowhere/at/all: No such file", tokenizer_load_ranks("/nowhere/at/all", "gpt2"));
    static const char *const bad[][2] = {
        {"", "byte 0x00 has no token"},      {"IQ==", ":1: not base64"},       {"IQ== \n", ":1: not base64"},
        {"\n", ":1: not base64"},            {" 0\n", ":1: not base64"},       {"IQ 0\n", ":1: not base64"},
        {"I=== 0\n", ":1: not base64"},      {"IR== 0\n", ":1: not base64"},   {"IQ==IQ== 0\n", ":1: not base64"},
        {"I*== 0\n", ":1: not base64"},      {"IQ== -1\n", ":1: not base64"},  {"IQ== 0 \n", ":1: not base64"},
        {"IQ== 9999999999\n", ":1: not base64"}, {"IQ== 1\n", ":1: rank 1, expected 0"},
        {"IQ== 0\nIQ== 1\n", ":2: the same token"}, {"IQ== 0\nIg== 2\n", ":2: rank 2, expected 1"},
        {"IQ== 0\n", "byte 0x00 has no token"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_dies(bad[i][1], tokenizer_load_ranks(put_text("ranks", bad[i][0]), "gpt2"));
    expect_dies("ranks:257: the token is not two tokens of lower rank joined, but 3",
                load_ranks("", "YWJj 256\n")); // abc, without ab or bc before
    expect_dies("ranks:1: the token is not two tokens of lower rank joined, but 8",
                load_ranks("YWFhYWFhYWE= 0\n", "")); // the longest token is the first
    OWN(Tokenizer) *t = load_ranks("", "YWI= 256\nYWJj 257\n");
    assert_int_equal(tokenizer_eot(t), 258);
    expect_dies("/dev/null/ranks: ", vocab_save_ranks(tokenizer_vocab(t), "/dev/null/ranks"));
    expect_dies("/dev/null/vocab.json: ", vocab_save_gpt2(tokenizer_vocab(t), "/dev/null"));
    expect_dies("'gpt5'", tokenizer_load_ranks(in_dir("ranks"), "gpt5"));
}

// A file with cl100k_base's number of ranks has <|endoftext|> behind a hole, where tiktoken's cl100k_base has it; and
// not with one rank less, or another pattern. The tokens: all pairs of bytes, and as many triples as are needed.
TEST_IN_DIR(test_cl100k_base_end)
{
    enum { BASE = 100256, PAIRS = 1 << 16 };
    FREED char *text = zeroed(16 * BASE);
    char *at = text, *last = at;
    for (uint32_t rank = 0; rank < BASE; rank++) {
        int n = rank < 256 ? 1 : rank < 256 + PAIRS ? 2 : 3;
        last = at;
        at = append_base64(at, rank - (n > 1) * 256u - (n > 2) * (uint32_t)PAIRS, n);
        at += sprintf(at, " %u\n", rank);
    }
    put_bytes("ranks", text, (size_t)(at - text));
    OWN(Tokenizer) *t = tokenizer_load_ranks(in_dir("ranks"), "cl100k"),
        *g = tokenizer_load_ranks(in_dir("ranks"), "gpt2");
    assert_int_equal(tokenizer_eot(t), BASE + 1);
    assert_int_equal(tokenizer_vocab_size(t), BASE + 2);
    assert_int_equal(tokenizer_text_bytes(t, BASE), 0); // nobody's
    assert_int_equal(tokenizer_text_bytes(t, BASE + 1), 0);
    assert_int_equal(tokenizer_eot(g), BASE);
    ENDED(token_ids_free) TokenIds ids = {0};
    tokenizer_encode(t, "<|unused|><|endoftext|>", 23, &ids);
    for (size_t i = 0; i < ids.n; i++) assert_true(ids.id[i] < BASE); // text stays text
    vocab_save_ranks(tokenizer_vocab(t), in_dir("again"));
    size_t n_again;
    FREED char *again = take_file("again", &n_again);
    same_bytes(again, n_again, text, at - text);
    OWN(Tokenizer) *less = tokenizer_load_ranks(put_bytes("ranks", text, (size_t)(last - text)), "cl100k");
    assert_int_equal(tokenizer_eot(less), BASE - 1);
}

// What a format cannot say is refused: a pattern in vocab.json, an order of merges that is not that of ids in ranks.
TEST_IN_DIR(test_refused_conversions)
{
    OWN(Tokenizer) *t = train("aaabdaaabac", 11, 259, "cl100k"), *other; // aa 256, ab 257
    expect_dies("cannot say the pattern", vocab_save_gpt2(tokenizer_vocab(t), "/dev/null"));
    tokenizer_save(t, dir);
    FREED char *json = take_file("tokenizer.json", NULL);
    memcpy(strstr(json, "\"aa\": 256"), "\"aa\": 257", 9);
    memcpy(strstr(json, "\"ab\": 257"), "\"ab\": 256", 9);
    put_text("tokenizer.json", json);
    other = tokenizer_load(dir);
    expect_dies("merge 1 makes token 256 after token 257", vocab_save_ranks(tokenizer_vocab(other), "/dev/null/ranks"));
}

// Both tokens of a merge, and the one that they make, must be in the vocabulary.
TEST_IN_DIR(test_merges_without_tokens)
{
    OWN(Tokenizer) *t = train("aaabdaaabac", 11, 259, "gpt2"); // aa 256, ab 257
    vocab_save_gpt2(tokenizer_vocab(t), dir);
    FREED char *json = take_file("vocab.json", NULL);
    char *ab = strstr(json, "\"ab\":"), changed[20000];
    snprintf(changed, sizeof changed, "%.*s\"abc\":%s", (int)(ab - json), json, ab + 5); // abc, and no ab
    put_text("vocab.json", changed);
    static const char *const bad[][2] = {
        {"#version: 0.2\na b\n", "merges.txt: merge 2: 'a' and 'b' do not join to a token"},
        {"ab c\n", "merges.txt: merge 1: 'ab' and 'c' do not join to a token"},
        {"a a\n\na bc", "merges.txt: merge 3: 'a' and 'bc' do not join to a token"},
        {"a a\nab\n", "merges.txt:2: not two tokens with a space between: 'ab'"}};
    for (int i = 0; i < 4; i++) expect_dies(bad[i][1], tokenizer_load((put_text("merges.txt", bad[i][0]), dir)));
    put_text("merges.txt", "a a\n");
    OWN(Tokenizer) *good = tokenizer_load(dir);
    assert_int_equal(tokenizer_vocab_size(good), 259);
}

// A good file with a few bytes changed, or cut short: loaded or refused in one line, never a crash. Under the
// sanitizers of `make asan` also: no byte read outside.
static void damage(const char *name)
{
    enum { ROUNDS = 60 };
    size_t n;
    FREED char *good = take_file(name, &n), *bad = zeroed(n);
    char text[4096];
    int refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        Rng rng = rng_make(23, name, (uint32_t)round);
        memcpy(bad, good, n);
        size_t left = round % 3 ? n : rng_below(rng, 0, n);
        for (uint64_t k = 0; k < 1 + (uint64_t)round % 4 && left; k++)
            bad[rng_below(rng, 2 * k + 1, left)] = round % 2 ? (char)rng_u64(rng, 2 * k + 2) : " \n\"=0,"[round % 6];
        put_bytes(name, bad, left);
        Child child = child_begin();
        if (!child.pid && strcmp(name, "ranks")) exit(!tokenizer_load(dir));
        if (!child.pid) exit(!tokenizer_load_ranks(in_dir(name), "gpt2"));
        int status = child_end(child, text, sizeof text);
        bool one_line = strncmp(text, "error: ", 7) == 0 && strchr(text, '\n') == strrchr(text, '\n');
        if (status != 0 && (status != 1 || !one_line))
            fail_msg("%s, round %d: status %d, '%s'", name, round, status, text);
        refused += status != 0;
    }
    assert_true(refused > ROUNDS / 4);
    unlink(in_dir(name));
}

// A tokenizer.json of 129 MiB, of which the disk holds nothing, and one whose expression is not translated: the error
// names the file.
TEST_IN_DIR(test_refused_json)
{
    put_text("tokenizer.json", "{}");
    assert_int_equal(truncate(in_dir("tokenizer.json"), 129 << 20), 0);
    expect_dies("at most 128 MiB are read", tokenizer_load(dir));
    put_text("tokenizer.json",
             "{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"pre_tokenizer\": {\"type\": "
             "\"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\\\\Kb\"}, "
             "\"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
             "\"use_regex\": false}]}}");
    expect_dies("tokenizer.json: its regular expression has '\\K' at byte 1", tokenizer_load(dir));
}

TEST_IN_DIR(test_random_damage)
{
    char text[3000];
    fill(text, sizeof text, 3);
    OWN(Tokenizer) *t = train(text, sizeof text, 290, "gpt2");
    vocab_save_ranks(tokenizer_vocab(t), in_dir("ranks"));
    damage("ranks");
    tokenizer_save(t, dir);
    damage("tokenizer.json");
    vocab_save_gpt2(tokenizer_vocab(t), dir);
    damage("vocab.json");
    vocab_save_gpt2(tokenizer_vocab(t), dir);
    damage("merges.txt");
}

TESTS(NULL, NULL)
