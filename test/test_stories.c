// Tales and rhymes: their probability is exact, they have the form that they claim, and build/stories writes what it
// says.
#define _GNU_SOURCE // memmem
#include "data/stories/stories.h"

#include "test/test.h"
#include <ctype.h>

#define PROGRAM "stories"
#include "program.h"
#include "base/words.h"
#include "json_has.h"

static Grammar *kinds[2];

static int set_up(void **state)
{
    kinds[STORIES_TALES] = stories_load(STORIES_TALES);
    kinds[STORIES_RHYMES] = stories_load(STORIES_RHYMES);
    return program_set_up(state);
}

static int tear_down(void **state)
{
    grammar_free(kinds[1]);
    return temp_dir_remove(state);
}

static void end_text(GrammarText *text)
{
    free(text->bytes);
}

// The words that a word list of the grammar is written with, as one string "|Anna|Bella|...|".
static char *word_list(const char *name)
{
    for (size_t r = 0; r < stories_n_words; r++)
        if (!strcmp(stories_words[r].name, name)) {
            char *s = zeroed(strlen(stories_words[r].body) + 3);
            sprintf(s, "|%s|", stories_words[r].body);
            return s;
        }
    fail_msg("no list %s", name);
    return NULL;
}

static bool in_list(const char *list, const char *word, size_t n)
{
    char entry[64];
    snprintf(entry, sizeof entry, "|%.*s|", (int)n, word);
    return strstr(list, entry) != NULL;
}

// The next word at *at or behind it: where it begins, and its letters. False when there is none.
static bool next_word(const GrammarText *text, size_t *at, size_t *n)
{
    while (*at < text->n_bytes && !isalpha((unsigned char)text->bytes[*at])) ++*at;
    for (*n = 0; *at + *n < text->n_bytes && isalpha((unsigned char)text->bytes[*at + *n]);) ++*n;
    return *n > 0;
}

// Every story is read back in exactly one way, with exactly the probability that the writer reported (the
// same sums in the same order, hence ==). So the reported entropy is the entropy, not a bound. No tale is
// a rhyme, and no rhyme a tale: --check may ask for one after the other.
TEST(test_one_derivation)
{
    ENDED(end_text) GrammarText text = {0};
    for (uint64_t i = 0; i < 800; i++) {
        grammar_write(kinds[i % 2], 11, i, &text);
        GrammarScore score = grammar_score(kinds[i % 2], text.bytes, text.n_bytes);
        assert_int_equal(score.derivations, 1);
        assert_true(score.nats == text.nats);
        assert_int_equal(score.reached, text.n_bytes);
        assert_int_equal(grammar_score(kinds[1 - i % 2], text.bytes, text.n_bytes).derivations, 0);
    }
}

TEST(test_same_seed_same_story)
{
    ENDED(end_text) GrammarText a = {0}, b = {0};
    Grammar *g = kinds[STORIES_TALES];
    size_t n_equal = 0;
    for (uint64_t i = 50; i-- > 0;) { // backwards here, alone below: the order does not matter
        grammar_write(g, 3, i, &a);
        Grammar *fresh = i % 10 ? g : stories_load(STORIES_TALES);
        grammar_write(fresh, 3, i, &b);
        same_bytes(a.bytes, a.n_bytes, b.bytes, b.n_bytes);
        grammar_write(fresh, 4, i, &b);
        n_equal += a.n_bytes == b.n_bytes && !memcmp(a.bytes, b.bytes, a.n_bytes);
        grammar_write(fresh, 3, STORIES_VAL_FIRST + i, &b);
        n_equal += a.n_bytes == b.n_bytes && !memcmp(a.bytes, b.bytes, a.n_bytes);
        if (fresh != g) grammar_free(fresh);
    }
    assert_int_equal(n_equal, 0); // other seeds and the validation tales are other tales
}

// What a model gets wrong must not pass: another name at the end, a cut story, a word too many.
TEST(test_not_a_story)
{
    ENDED(end_text) GrammarText text = {0};
    FREED char *girls = word_list("girl"), *boys = word_list("boy");
    size_t n_swapped = 0;
    for (uint64_t i = 0; i < 60; i++) {
        const Grammar *g = kinds[i % 2];
        grammar_write(g, 5, i, &text);
        assert_int_equal(grammar_score(g, text.bytes, text.n_bytes - 1).derivations, 0);
        FREED char *copy = zeroed(text.n_bytes + 8);
        memcpy(copy, text.bytes, text.n_bytes);
        memcpy(copy + text.n_bytes, "The end\n", 8);
        assert_int_equal(grammar_score(g, copy, text.n_bytes + 8).derivations, 0);
        for (size_t k = text.n_bytes - 6; k-- > 0;) { // a name that came before becomes another
            size_t n = 0;
            while (k + n < text.n_bytes && isalpha((unsigned char)copy[k + n])) n++;
            if (n < 3 || isalpha((unsigned char)copy[k ? k - 1 : 0])) continue;
            char *list = in_list(girls, copy + k, n) ? girls : in_list(boys, copy + k, n) ? boys : NULL;
            if (!list || !memmem(copy, k, copy + k, n)) continue;
            char other[16] = {0};
            for (char *s = list; (s = strchr(s, '|')) && s[1]; s++)
                if (strcspn(s + 1, "|") == n && memcmp(s + 1, copy + k, n)) memcpy(other, s + 1, n);
            if (!*other) break;
            memcpy(copy + k, other, n);
            GrammarScore score = grammar_score(g, copy, text.n_bytes);
            assert_int_equal(score.derivations, 0);
            assert_true(isinf(score.nats));
            assert_true(score.reached >= k && score.reached < k + n);
            n_swapped++;
            break;
        }
    }
    assert_true(n_swapped > 40);
}

// Where the last sentence but one begins: after the second end of a sentence, from the text's end, that has
// something behind it.
static size_t last_two_sentences(const GrammarText *text)
{
    int ends = 0;
    for (size_t k = text->n_bytes - 1; k > 4; k--) {
        const char *s = text->bytes + k; // at the space in `. He`, `." He` or `. "He`
        const char *end = s[-1] == '"' ? s - 2 : s - 1;
        bool title = s[-1] == '.' && (!memcmp(s - 3, "Mr", 2) || !memcmp(s - 4, "Mrs", 3));
        if (*s == ' ' && strchr(".!?", *end) && !title && ++ends == 2) return k + 1;
    }
    return 0;
}

// The hero is the first child of the story, and named more than once; at most one other appears, of the
// other sex; those that a rhyme calls (`come, Anna`) are others. The hero of a tale is named again in one of its last
// two sentences.
TEST(test_names_are_kept)
{
    ENDED(end_text) GrammarText text = {0};
    FREED char *girls = word_list("girl"), *boys = word_list("boy");
    for (uint64_t i = 0; i < 600; i++) {
        bool tale = i % 2 == 0;
        grammar_write(kinds[i % 2], 6, i, &text);
        char names[2][16] = {{0}}, last[16] = {0};
        size_t last_hero = 0, n_hero = 0;
        for (size_t k = 0, n; next_word(&text, &k, &n); k += n) {
            if (n < 2 || n > 15 || (k > 6 && !memcmp(text.bytes + k - 5, "ome, ", 5))) continue;
            if (!in_list(girls, text.bytes + k, n) && !in_list(boys, text.bytes + k, n)) continue;
            memset(last, 0, sizeof last);
            memcpy(last, text.bytes + k, n);
            int who = !*names[0] || !strcmp(names[0], last) ? 0 : 1;
            if (who == 1 && *names[1]) assert_string_equal(names[1], last);
            strcpy(names[who], last);
            if (who == 0) last_hero = k, n_hero++;
        }
        assert_true(n_hero > 1);
        if (tale) assert_true(last_hero >= last_two_sentences(&text));
        bool girl = in_list(girls, names[0], strlen(names[0]));
        if (*names[1]) assert_true(girl != in_list(girls, names[1], strlen(names[1])));
    }
}

// One line of plain ASCII that ends where the text ends, with sentences that begin and end as they should.
static void check_line(const GrammarText *text)
{
    size_t quotes = 0;
    assert_true(isupper((unsigned char)*text->bytes));
    for (size_t k = 0; k < text->n_bytes; k++) {
        char c = text->bytes[k], next = k + 1 < text->n_bytes ? text->bytes[k + 1] : 0;
        quotes += c == '"';
        assert_true((c == '\n') == (k == text->n_bytes - 1));
        assert_true(c == '\n' || (c >= ' ' && c <= 'z' && !strchr("[]|_<>=*", c)));
        assert_false(c == ' ' && strchr(" \n.,", next)); // the end of the text, too
        assert_false(strchr(".!?", c) && islower((unsigned char)next)); // a sentence that was never begun
    }
    assert_true(quotes % 2 == 0);
}

// `bytes` of one kind, each text of the right length; returns the number of distinct words in them.
static size_t read_kind(StoriesKind kind, size_t bytes, size_t shortest, size_t longest)
{
    ENDED(end_text) GrammarText text = {0};
    ENDED(words_free) Words distinct = {0};
    size_t n_bytes = 0;
    for (uint64_t i = 0; n_bytes < bytes; i++) {
        size_t n_words = 0;
        grammar_write(kinds[kind], 1, i, &text);
        check_line(&text);
        n_bytes += text.n_bytes;
        for (size_t k = 0, n; next_word(&text, &k, &n); k += n, n_words++) {
            text.bytes[k] = (char)tolower((unsigned char)text.bytes[k]);
            words_add(&distinct, text.bytes + k, n);
        }
        assert_in_range(n_words, shortest, longest);
    }
    return distinct.n;
}

TEST(test_words_and_lengths)
{
    size_t tales = read_kind(STORIES_TALES, 3000000, 90, 190);
    size_t rhymes = read_kind(STORIES_RHYMES, 500000, 70, 190);
    printf("distinct words: %zu in 3 MB of tales, %zu in 0.5 MB of rhymes\n", tales, rhymes);
    assert_true(tales >= 2000);
}

// ---- The program ----

typedef struct {
    size_t stories, bytes;
    double nats;
} Sums;

// From *pos on the file holds stories first, first + 1, ... of one kind with separators, byte for byte,
// until they are at least `bytes` long and no longer.
static Sums check_part(const char *file, size_t n, size_t *pos, StoriesKind kind, uint64_t first, size_t bytes)
{
    Grammar *g = kinds[kind];
    ENDED(end_text) GrammarText text = {0};
    Sums sums = {0};
    for (; sums.bytes < bytes; sums.stories++) {
        grammar_write(g, 8, first + sums.stories, &text);
        assert_true(*pos + text.n_bytes + 13 <= n);
        assert_memory_equal(file + *pos, text.bytes, text.n_bytes);
        assert_memory_equal(file + *pos + text.n_bytes, "<|endoftext|>", 13);
        *pos += text.n_bytes + 13;
        sums.bytes += text.n_bytes;
        sums.nats += text.nats;
    }
    return sums;
}

static void check_sums(const json_t *part, Sums sums)
{
    char sum[200];
    snprintf(sum, sizeof sum, "{'stories': %zu, 'bytes': %zu, 'nats': %.17g}", sums.stories, sums.bytes, sums.nats);
    json_has(part, sum); // 17 digits: nothing is lost
    double bpb = json_real_value(json_object_get(part, "bits_per_byte"));
    double expected = sums.bytes ? sums.nats / log(2) / (double)sums.bytes : 0;
    assert_true(fabs(bpb - expected) <= 4 * 2.3e-16 * expected); // three roundings
}

// train.txt is rhymes, then tales, val.txt is tales, and floor.json has the sums over both files and the
// rhymes.
static void check_corpus(size_t bytes, size_t primer_bytes, size_t val_bytes)
{
    size_t n, pos = 0;
    FREED char *file = take_file("new/corpus/train.txt", &n);
    Sums primer = check_part(file, n, &pos, STORIES_RHYMES, STORIES_RHYME_FIRST, primer_bytes);
    Sums tales = check_part(file, n, &pos, STORIES_TALES, 0, bytes > primer.bytes ? bytes - primer.bytes : 0);
    assert_int_equal(pos, n);
    FREED char *val_file = take_file("new/corpus/val.txt", &n);
    pos = 0;
    Sums val = check_part(val_file, n, &pos, STORIES_TALES, STORIES_VAL_FIRST, val_bytes);
    assert_int_equal(pos, n);
    OWN(json_t) *json = json_file("new/corpus/floor.json");
    json_t *train = json_object_get(json, "train");
    Sums both = {primer.stories + tales.stories, primer.bytes + tales.bytes, primer.nats + tales.nats};
    check_sums(train, both);
    check_sums(json_object_get(train, "primer"), primer);
    check_sums(json_object_get(json, "val"), val);
}

TEST(test_program_corpus)
{
    assert_int_equal(run("--bytes 50000 --primer 10000 --val-bytes 19000 --seed 8 --out new/corpus"), 0);
    check_corpus(50000, 10000, 19000);
    const char *files[] = {"--check new/corpus/train.txt | tail -n 1", "--check new/corpus/val.txt | tail -n 1"};
    for (int f = 0; f < 2; f++) { // both kinds, and tales alone
        size_t good, all;
        assert_int_equal(run(files[f]), 0);
        assert_int_equal(sscanf(output, "%zu of %zu texts are stories", &good, &all), 2);
        assert_true(good == all && all >= (f ? 20 : 60));
    }
    assert_int_equal(run("--bytes 20000 --seed 8 --out new/corpus"), 0);
    check_corpus(20000, 0, 1000); // without a primer; the validation text is a twentieth
    assert_int_equal(run("--bytes 9000 --primer 9000 --seed 8 --out new/corpus"), 0);
    check_corpus(9000, 9000, 450); // nothing but rhymes to train on
}

TEST(test_program_screen)
{
    assert_int_equal(run("--count 4 --seed 8 >seven.txt"), 0);
    assert_int_equal(run("--count 3 --rhymes --seed 8 >>seven.txt && head -c 60 seven.txt >cut.txt"), 0);
    expect_run("--check seven.txt", 0, "7 of 7 texts");
    for (int i = 0; i < 7; i++) { // tales, then rhymes: both grammars are asked, each number is a line
        size_t number, words;
        const char *line = strstr(output, (const char[]){'0' + (char)i, ':', 0});
        assert_non_null(line);
        assert_int_equal(sscanf(line, "%zu: derivations 1 nats %*f words %zu", &number, &words), 2);
        assert_true(words >= (i < 4 ? 90 : 70) && words <= 190);
    }
    expect_run("--check cut.txt", 0, "0: derivations 0 nats inf");
    says("left the grammar at byte 60");
    says("0 of 1 texts");
    assert_int_equal(run("--count 1 --rhymes --seed 8 | head -c 40 >cut.txt"), 0);
    assert_int_equal(run("--check cut.txt"), 0); // a rhyme that breaks off is reported as far as it went
    says("left the grammar at byte 40");
}

TEST(test_program_errors)
{
    const struct { const char *arguments, *words; int status; } rows[] = {
        {"--byte 3", "--byte: no such option", 2},
        {"--count", "--count: needs a value", 2},
        {"--count 3x", "3x: not a whole number", 2},
        {"", "give one of", 2},
        {"--count 0", "give one of", 2},
        {"--count 1 --check x", "give one of", 2},
        {"--bytes 100", "--out DIR go together", 2},
        {"--bytes 100 --primer 101 --out x", "--primer 101: more than --bytes 100", 2},
        {"--count 3 --primer 10", "--primer 10: more than --bytes 0", 2},
        {"--rhymes --bytes 10 --out x", "--rhymes goes with --count", 2},
        {"--gossip --rhymes --count 3", "--gossip: a corpus of its own", 2},
        {"--gossip --primer 5 --bytes 10 --out x", "--gossip: a corpus of its own", 2},
        {"--check none.txt", "none.txt: cannot read: No such file", 1},
        {"--check .", "Is a directory", 1},
        {"--check /dev/null", "no text in it", 1},
        {"--bytes 100 --out /dev/null/x", "/dev/null/x: Not a directory", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = run(rows[i].arguments);
        const char *end = strchr(output, '\n');
        bool one_line = !strncmp(output, "error: ", 7) && end && !end[1];
        if (status != rows[i].status || !one_line || !strstr(output, rows[i].words))
            fail_msg("stories %s: status %d, %s", rows[i].arguments, status, output);
    }
    expect_run("--help", 0, "--val-bytes");
}

TESTS(set_up, tear_down)
