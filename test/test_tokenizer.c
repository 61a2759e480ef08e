// Tests of tokenizer and vocab. The vocabularies are trained here, so that every id is known by hand: in
// GPT-2's order 'a' is 64 ('!' is 0), a space is 220, and merges start at 256.

#include "test/test.h"

#include "expect_die.h"
#include "temp_dir.h"
#include "base/rng.h"
#include "tokenizer_case.h"
#include "json_has.h"

// The merges of this text are derived in test_bpe.c: aa 256, ab 257, aaab 258, ac 259.
static const char classic[] = "aaabdaaabac";

TEST(test_ids)
{
    OWN(Tokenizer) *t = train(classic, sizeof classic - 1, 261, "gpt2");
    assert_int_equal(tokenizer_vocab_size(t), 261);
    assert_int_equal(tokenizer_eot(t), 260);
    assert_string_equal(tokenizer_pattern(t), "gpt2");
    IDS(t, "aaabd", 258, 67);
    IDS(t, "aaaa", 256, 256);
    IDS(t, "aaa aab ac", 256, 64, 220, 256, 65, 220, 259);
    IDS(t, "abaac", 257, 256, 66); // (a,a) has the lowest rank: ab aa c, and not ab a ac
    IDS(t, "!~\xC2\xA1\xC2\xAD\n\x7F", 0, 93, 126, 94, 126, 255, 198, 221);
    IDS(t, "<|endoftext|>", 27, 91, 68, 77, 67, 78, 69, 83, 68, 87, 83, 91, 29); // text stays text
    size_t n;
    assert_memory_equal(tokenizer_decode(t, 258, &n), "aaab", 4);
    assert_int_equal(n, 4);
    assert_memory_equal(tokenizer_decode(t, 260, &n), TOKENIZER_EOT, 13);
    assert_int_equal(tokenizer_text_bytes(t, 260), 0);
    assert_int_equal(tokenizer_text_bytes(t, 258), 4);
}

TEST(test_round_trip)
{
    enum { N = 60000 };
    static char text[N];
    Rng rng = rng_make(3, "bytes", 0);
    for (size_t i = 0; i < N; i++) {
        uint64_t r = rng_u64(rng, i);
        text[i] = r & 256 ? (char)r : "etaoin  \n\xC3"[(r >> 9) % 10];
    }
    for (int k = 0; k < 2; k++) {
        OWN(Tokenizer) *t = train(text, N / 2, 600, k ? "cl100k" : "gpt2");
        expect_round_trip(t, text, N); // half of it not seen in training, all of it not UTF-8
        expect_round_trip(t, "", 0);
        expect_round_trip(t, "\0", 1);
    }
}

// Words count as often as they occur: pq 3 times against xy twice.
TEST(test_word_counts)
{
    OWN(Tokenizer) *t = train("xyxy pq pq pq", 13, 258, "gpt2"), *u = train("ab ab", 5, 1000, "gpt2");
    IDS(t, "xypq", 87, 88, 256);
    assert_int_equal(tokenizer_vocab_size(u), 259); // (a,b), then (space, ab): nothing is left
    IDS(u, "ab ab", 256, 257);
}

static void write_json(const char *name, json_t *json) // takes it
{
    FREED char *text = json_dumps(json, 0);
    put_text(name, text);
    json_decref(json);
}

static const char sample[] =
    "It's the cat, the hat; the caf\xC3\xA9: 12 345 \xE4\xBD\xA0\xE5\xA5\xBD\n\n  the end's near.\xFF ";

// What the directory holds is t.
static void expect_saved(Tokenizer *t)
{
    OWN(Tokenizer) *back = tokenizer_load(dir);
    expect_same(t, back, sample, sizeof sample - 1);
}

TEST_IN_DIR(test_save_load)
{
    for (int k = 0; k < 2; k++) {
        OWN(Tokenizer) *a = train(sample, sizeof sample - 1, 300, k ? "cl100k" : "gpt2");
        tokenizer_save(a, dir);
        expect_saved(a);
        // The form that Hugging Face reads.
        json_t *j = json_file("tokenizer.json"), *model = json_object_get(j, "model");
        json_has(j, "{'version': '1.0'}");
        assert_int_equal(json_object_size(json_object_get(model, "vocab")), tokenizer_vocab_size(a));
        assert_int_equal(json_array_size(json_object_get(model, "merges")), tokenizer_vocab_size(a) - 257);
        json_has(json_object_get(model, "vocab"), "{'\u0120': 220}");
        json_has(json_object_get(j, "pre_tokenizer"), k ? "{'type': 'Sequence'}" : "{'type': 'ByteLevel'}");
        // Merges as "a b", written before 2024.
        json_t *merges = json_object_get(model, "merges"), *m;
        size_t i;
        json_array_foreach(merges, i, m) {
            const char *left = json_string_value(json_array_get(m, 0));
            json_array_set_new(merges, i, json_sprintf("%s %s", left, json_string_value(json_array_get(m, 1))));
        }
        write_json("tokenizer.json", j);
        expect_saved(a);
    }
    OWN(json_t) *config = json_file("tokenizer_config.json");
    json_has(config, "{'eos_token': '" TOKENIZER_EOT "'}");
}

// GPT-2's layout, made from tokenizer.json.
TEST_IN_DIR(test_gpt2_layout)
{
    OWN(Tokenizer) *a = train(sample, sizeof sample - 1, 300, "gpt2");
    tokenizer_save(a, dir);
    json_t *j = json_file("tokenizer.json"), *model = json_object_get(j, "model"), *m;
    size_t i;
    FILE *f = fopen(in_dir("merges.txt"), "wb");
    fputs("#version: 0.2\n", f);
    json_array_foreach(json_object_get(model, "merges"), i, m) fprintf(
        f, "%s %s\n", json_string_value(json_array_get(m, 0)), json_string_value(json_array_get(m, 1)));
    assert_int_equal(fclose(f), 0);
    write_json("vocab.json", json_incref(json_object_get(model, "vocab")));
    json_decref(j);
    unlink(in_dir("tokenizer.json"));
    expect_saved(a);
}

// A custom pattern survives saving, and a word that is a token wins before merging when ignore_merges says so.
TEST_IN_DIR(test_custom)
{
    OWN(Tokenizer) *a = train(classic, sizeof classic - 1, 261, "cl100k");
    tokenizer_save(a, dir);
    json_t *j = json_file("tokenizer.json"), *model = json_object_get(j, "model");
    json_t *split = json_array_get(json_object_get(json_object_get(j, "pre_tokenizer"), "pretokenizers"), 0);
    json_object_set_new(json_object_get(split, "pattern"), "Regex", json_string("\\s|\\S+"));
    json_array_remove(json_object_get(model, "merges"), 2); // aaab: merged from aa and ab no more
    write_json("tokenizer.json", json_incref(j));
    OWN(Tokenizer) *b = tokenizer_load(dir);
    assert_string_equal(tokenizer_pattern(b), "custom");
    IDS(b, "aaab aaabd", 256, 257, 220, 256, 257, 67);
    json_object_set_new(model, "ignore_merges", json_true());
    write_json("tokenizer.json", j);
    TWICE(t, tokenizer_load(dir)) {
        IDS(t, "aaab aaabd", 258, 220, 256, 257, 67);
        // Not so a part of a long word, though no merge joins anything to it (seams.h).
        IDS(t, "xxxxxxxxxxxxaaabxx", 87, 87, 87, 87, 87, 87, 87, 87, 87, 87, 87, 87, 256, 257, 87, 87);
    }
}

// ---- errors ----
TEST(test_errors)
{
    OWN(Tokenizer) *t = train(classic, sizeof classic - 1, 261, "gpt2");
    size_t n;
    expect_dies("token 261: not in 0..260", tokenizer_decode(t, 261, &n));
    expect_dies("token -1", tokenizer_decode(t, -1, &n));
    expect_dies("256 tokens", train("text", 4, 256, "gpt2"));
    expect_dies("no text", train("", 0, 300, "gpt2"));
    expect_dies("'gpt5'", train("text", 4, 300, "gpt5"));
    expect_dies("/dev/null/x/tokenizer.json", tokenizer_save(t, "/dev/null/x"));
}

TEST_IN_DIR(test_damaged_files)
{
    expect_dies("/nowhere/at/all: no tokenizer.json", tokenizer_load("/nowhere/at/all"));
    static const char *const bad[][2] = {{"{\"model\": ", "tokenizer.json:1:"}, {"", "tokenizer.json"},
                                         {"[]", "not a JSON object"}};
    for (int i = 0; i < 3; i++) expect_dies(bad[i][1], tokenizer_load((put_text("tokenizer.json", bad[i][0]), dir)));
    unlink(in_dir("tokenizer.json"));
    put_text("vocab.json", "{\"a\": 0}");
    expect_dies("merges.txt", tokenizer_load(dir));
    put_text("merges.txt", "#version: 0.2\nab\n");
    expect_dies("merges.txt:2: not two tokens", tokenizer_load(dir));
}

TESTS(NULL, NULL)
