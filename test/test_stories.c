// test_stories: tales, rhymes and gossip: their probability is exact, they have the form that they claim, and
// build/stories writes what it says; and the engine of grammars, on ones so small that every text can be written down.
#define _GNU_SOURCE // memmem
#include "test/test.h"
#define PROGRAM "stories"

#include "data/stories/stories.h"
#include "program.h"
#include "base/words.h"
#include "json_has.h"
#include "data/stories/gossip.h"
#include "data/stories/grammar.h"
#include "expect_die.h"

#include <ctype.h>
#include <jansson.h>
#include <sys/wait.h>

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

// ---- gossip: people are mentioned as often as Zipf's law says, facts do not change, and every text is read back with
// exactly the probability with which it was written.

enum { DRAWN = 40000 };

// The rank of a text follows from its probability: log of verbs and numbers - log p(k), and p falls with k.
static size_t rank_of(const double *p, double nats)
{
    double probability = GOSSIP_VERBS * GOSSIP_NUMBERS * exp(-nats);
    size_t low = 0, high = GOSSIP_PEOPLE - 1;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (p[mid] > probability * (1 + 1e-6)) low = mid + 1;
        else high = mid;
    }
    return low;
}

// p(k) by the formula of gossip.h, summed from the smallest: another way than that of gossip.c.
static void zipf(double p[GOSSIP_PEOPLE])
{
    double sum = 0;
    for (size_t k = GOSSIP_PEOPLE; k-- > 0;) sum += p[k] = exp(-GOSSIP_ZIPF * log((double)k + 1));
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) p[k] /= sum;
}

// Counts of ranks lie within 5 standard deviations of DRAWN p; so does the mean of the self-information of the entropy,
// which the formula gives again.
TEST(test_zipf)
{
    static double p[GOSSIP_PEOPLE];
    static size_t count[GOSSIP_PEOPLE];
    Gossip *g = gossip_load();
    GrammarText text = {0};
    double sum = 0, squares = 0, entropy = log(GOSSIP_VERBS * GOSSIP_NUMBERS), tail = 0;
    size_t n_tail = 0;
    zipf(p);
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) entropy -= p[k] * log(p[k]);
    assert_true(fabs(gossip_entropy(g) / entropy - 1) < 1e-9);
    for (uint64_t i = 0; i < DRAWN; i++) {
        gossip_write(g, 3, i, &text);
        count[rank_of(p, text.nats)]++;
        sum += text.nats, squares += text.nats * text.nats;
    }
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) {
        if (DRAWN * p[k] < 30) tail += p[k], n_tail += count[k]; // together
        else if (fabs((double)count[k] - DRAWN * p[k]) > 5 * sqrt(DRAWN * p[k]))
            fail_msg("rank %zu: %zu times, expected %g", k, count[k], DRAWN * p[k]);
    }
    assert_true(fabs((double)n_tail - DRAWN * tail) < 5 * sqrt(DRAWN * tail));
    double mean = sum / DRAWN, deviation = sqrt(squares / DRAWN - mean * mean);
    assert_true(fabs(mean - entropy) < 5 * deviation / sqrt(DRAWN));
    free(text.bytes);
    gossip_free(g);
}

typedef struct {
    char first[20], last[20], verb[20], number[20], thing[20];
} TextWords;

static TextWords words_of(const GrammarText *text)
{
    char line[128];
    TextWords w;
    assert_true(text->n_bytes < sizeof line);
    memcpy(line, text->bytes, text->n_bytes);
    line[text->n_bytes] = 0;
    assert_int_equal(sscanf(line, "%19s %19s %19s %19s %19[^.].", w.first, w.last, w.verb, w.number, w.thing), 5);
    return w;
}

// One derivation, of exactly the writer's probability; and what goes with a person and a verb never changes, whatever
// the number.
TEST(test_facts)
{
    enum { N = 300 };
    static TextWords w[N];
    Gossip *g = gossip_load();
    GrammarText text = {0};
    size_t again = 0, other_number = 0;
    for (uint64_t i = 0; i < N; i++) {
        gossip_write(g, 5, i, &text);
        GrammarScore score = gossip_score(g, text.bytes, text.n_bytes);
        assert_int_equal(score.derivations, 1);
        assert_true(score.nats == text.nats && score.reached == text.n_bytes);
        w[i] = words_of(&text);
        for (uint64_t j = 0; j < i; j++) {
            bool same = !strcmp(w[i].first, w[j].first) && !strcmp(w[i].last, w[j].last);
            if (!same || strcmp(w[i].verb, w[j].verb)) continue;
            assert_string_equal(w[i].thing, w[j].thing);
            again++;
            other_number += strcmp(w[i].number, w[j].number) != 0;
        }
    }
    assert_true(again > 100 && other_number > again / 2);
    free(text.bytes);
    gossip_free(g);
}

TEST(test_not_gossip)
{
    Gossip *g = gossip_load();
    GrammarText text = {0};
    gossip_write(g, 5, 0, &text);
    char changed[200];
    for (size_t n = 0; n < text.n_bytes; n++) // each part of it, each letter changed
        assert_int_equal(gossip_score(g, text.bytes, n).derivations, 0);
    for (size_t i = 0; i < text.n_bytes; i++) {
        memcpy(changed, text.bytes, text.n_bytes);
        changed[i] = '#';
        GrammarScore score = gossip_score(g, changed, text.n_bytes);
        assert_true(!score.derivations && isinf(score.nats) && score.reached <= i);
    }
    memcpy(changed, text.bytes, text.n_bytes);
    changed[text.n_bytes] = '\n';
    assert_int_equal(gossip_score(g, changed, text.n_bytes + 1).derivations, 0);
    free(text.bytes);
    gossip_free(g);
}

// The program's files (their form: above): train.txt begins with text 0 and val.txt with STORIES_VAL_FIRST, and all of
// their texts are gossip.
TEST(test_corpus)
{
    const char *const name[] = {"train", "val"};
    Gossip *g = gossip_load();
    GrammarText text = {0};
    char line[200];
    assert_int_equal(run("--gossip --bytes 20000 --val-bytes 5000 --seed 8 --out new"), 0);
    for (int f = 0; f < 2; f++) {
        size_t n, good, all;
        snprintf(line, sizeof line, "new/%s.txt", name[f]);
        FREED char *file = take_file(line, &n);
        gossip_write(g, 8, f ? STORIES_VAL_FIRST : 0, &text);
        assert_memory_equal(file, text.bytes, text.n_bytes);
        snprintf(line, sizeof line, "--check new/%s.txt | tail -n 1", name[f]);
        assert_int_equal(run(line), 0);
        assert_int_equal(sscanf(output, "%zu of %zu texts are stories", &good, &all), 2);
        assert_true(good == all && all >= (f ? 100 : 400));
    }
    free(text.bytes);
    gossip_free(g);
}

// ---- grammar: The grammar engine, on grammars so small that every text and its probability can be written down.

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct {
    const char *text;
    double p;
    int derivations;
} Row;

// Scores every text of the table, whose probabilities must add up to 1; then draws N texts: only these
// come, as often as they should, and the mean of what the writer reports is the entropy of its derivations.
static void check_language(const GrammarRule *rules, size_t n_rules, const Row *rows, size_t n_rows,
                           double entropy)
{
    enum { N = 20000 };
    Grammar *g = grammar_load(rules, n_rules);
    double total = 0, sum = 0, squares = 0;
    size_t *seen = zeroed(n_rows * sizeof *seen);
    for (size_t i = 0; i < n_rows; i++) {
        GrammarScore score = grammar_score(g, rows[i].text, strlen(rows[i].text));
        assert_int_equal(score.derivations, rows[i].derivations);
        // Fewer than 10 choices and merges, each rounded to half an ulp of a number below 8.
        assert_true(fabs(score.nats + log(rows[i].p)) <= 20 * 8 * 1.2e-16);
        total += exp(-score.nats);
    }
    assert_true(fabs(total - 1) <= 1e-13);
    GrammarText text = {0};
    for (uint64_t i = 0; i < N; i++) {
        grammar_write(g, 42, i, &text);
        size_t r = 0;
        while (r < n_rows && (strlen(rows[r].text) != text.n_bytes ||
                              memcmp(rows[r].text, text.bytes, text.n_bytes)))
            r++;
        if (r == n_rows) fail_msg("not a text of the table: %.*s", (int)text.n_bytes, text.bytes);
        seen[r]++;
        sum += text.nats;
        squares += text.nats * text.nats;
    }
    for (size_t i = 0; i < n_rows; i++) // five standard deviations of a binomial count
        assert_true(fabs((double)seen[i] - N * rows[i].p) <= 5 * sqrt(N * rows[i].p * (1 - rows[i].p)));
    double mean = sum / N, error = sqrt(fmax(squares / N - mean * mean, 0) / N);
    assert_true(fabs(mean - entropy) <= 5 * error + 1e-12);
    free(text.bytes);
    free(seen);
    grammar_free(g);
}

TEST(test_weights_and_ambiguity)
{
    const GrammarRule rules[] = {{"s", "[part][part]."}, {"part", "a | 3* aa"}};
    const Row rows[] = {{"aa.", 1. / 16, 1}, {"aaa.", 6. / 16, 2}, {"aaaa.", 9. / 16, 1}};
    double h = -2 * (0.25 * log(0.25) + 0.75 * log(0.75)); // of the derivations: more than that of the texts
    check_language(rules, COUNT(rules), rows, COUNT(rows), h);
}

TEST(test_memory_and_forms)
{
    const GrammarRule rules[] = {
        {"s", "[hero=name] saw [friend=hero.other]. “Hi,” said [friend.he] to [hero.him]."},
        {"name", "[girl]|[boy]"}, {"girl", "Ann|Eve"},     {"boy", "Bob"},         {"other.girl", "[boy]"},
        {"other.boy", "[girl]"},  {"he.girl", "she"},      {"he.boy", "he"},       {"him", "them"},
        {"him.girl", "her"},
    };
    const Row rows[] = {
        {"Ann saw Bob. \"Hi,\" said he to her.", 1. / 3, 1},    // three names, equally likely
        {"Eve saw Bob. \"Hi,\" said he to her.", 1. / 3, 1},
        {"Bob saw Ann. \"Hi,\" said she to them.", 1. / 6, 1},
        {"Bob saw Eve. \"Hi,\" said she to them.", 1. / 6, 1},
    };
    check_language(rules, COUNT(rules), rows, COUNT(rows), log(3) + log(2) / 3);
    Grammar *g = grammar_load(rules, COUNT(rules));
    assert_int_equal(grammar_score(g, "Ann saw Bob. \"Hi,\" said she to her.", 36).derivations, 0);
    assert_int_equal(grammar_score(g, "", 0).derivations, 0);
    grammar_free(g);
}

// Two names never hold one word; articles and capitals fit.
TEST(test_no_word_twice)
{
    const GrammarRule rules[] = {
        {"s", "[A] [x=pet] and [a] [y=pet]. [X]!_[more]"},
        {"pet", "owl|cat|unicorn"},
        {"more", "|Yes."}, // nothing, or a word
    };
    const Row rows[] = {
        {"An owl and a cat. Owl! ", 1. / 12, 1},
        {"An owl and a cat. Owl! Yes.", 1. / 12, 1},
        {"An owl and a unicorn. Owl! ", 1. / 12, 1},
        {"An owl and a unicorn. Owl! Yes.", 1. / 12, 1},
        {"A cat and an owl. Cat! ", 1. / 12, 1},
        {"A cat and an owl. Cat! Yes.", 1. / 12, 1},
        {"A cat and a unicorn. Cat! ", 1. / 12, 1},
        {"A cat and a unicorn. Cat! Yes.", 1. / 12, 1},
        {"A unicorn and a cat. Unicorn! ", 1. / 12, 1},
        {"A unicorn and a cat. Unicorn! Yes.", 1. / 12, 1},
        {"A unicorn and an owl. Unicorn! ", 1. / 12, 1},
        {"A unicorn and an owl. Unicorn! Yes.", 1. / 12, 1},
    };
    check_language(rules, COUNT(rules), rows, COUNT(rows), log(12));
    Grammar *g = grammar_load(rules, COUNT(rules));
    assert_int_equal(grammar_score(g, "An owl and an owl. Owl! ", 24).derivations, 0);
    assert_int_equal(grammar_score(g, "A owl and a cat. Owl! ", 22).derivations, 0);
    grammar_free(g);
}

TEST(test_errors)
{
    const struct { GrammarRule rules[4]; size_t n; const char *words; } bad[] = {
        {{{"s", "[x]"}}, 1, "rule s: [x]: no rule x"},
        {{{"s", "[s2]"}, {"s2", "b[s]"}}, 2, "contains itself"},
        {{{"s", "[w]"}, {"w", "a"}, {"w", "b"}}, 3, "rule w: given twice"},
        {{{"s", "[w]."}, {"w", "a|b|a"}}, 2, "rule w: a: given twice"},
        {{{"s", "[w]."}, {"w", "[v]|b"}, {"v", "a|b"}}, 3, "rule w: b: given twice"},
        {{{"s", "[w"}, {"w", "a"}}, 2, "no ]"},
        {{{"s", "[]"}}, 1, "a name of 1 to"},
        {{{"s", "[x=w]"}, {"w", "a [v]"}, {"v", "b"}}, 3, "x= needs a word list"},
        {{{"s", "[x=w] [y=x]"}, {"w", "a"}}, 2, "y= needs a word list"},
        {{{"s", "[x=w] [y=x.f]"}, {"w", "a"}, {"f.w", "b [w]"}}, 3, "y= needs a word list"},
        {{{"s", "[w=w]"}, {"w", "a"}}, 2, "both a rule and a remembered word"},
        {{{"s", "[x.f]"}, {"f", "a"}}, 2, "nothing is remembered as x"},
        {{{"s", "[x=w]"}, {"w", "a"}, {"f.v", "b"}, {"t", "[x.f]"}}, 4, "rule f.v: no rule v"},
        {{{"s", "a|b"}}, 1, "the first rule needs one alternative"},
        {{{"s", "[x] [x=w]"}, {"w", "a"}}, 2, "[x] comes before it is chosen"},
        {{{"s", "[x=w] [x.f]"}, {"w", "a"}}, 2, "no rule f.w"},
        {{{"s", "[x=w] [y=w]"}, {"w", "a"}}, 2, "every word is in use"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) expect_dies(bad[i].words, {
        Grammar *g = grammar_load(bad[i].rules, bad[i].n);
        GrammarText text = {0};
        grammar_write(g, 1, 1, &text);
        free(text.bytes);
        grammar_free(g);
    });
}

TESTS(set_up, tear_down)
