// stories: writes a corpus of short English stories and its exact entropy, and reads it back.
//
//   build/stories --bytes 20000000 --primer 3500000 --out DIR   DIR/train.txt, DIR/val.txt and DIR/floor.json
//   build/stories --count 3                                     three tales on the screen; --rhymes: rhymes
//   build/stories --check FILE                                  is each text in FILE a tale, a rhyme or gossip?
//
// train.txt is --primer bytes of rhymes, then tales up to --bytes in all; val.txt is tales. With --gossip both are
// gossip (gossip.h). Layout of a file: story, "<|endoftext|>", story, "<|endoftext|>", ... with nothing between or
// after; newlines are the stories' own. Story i of a seed is always the same. Tales to train on are numbers 0, 1, 2,
// ..., tales to validate on 2^40, 2^40 + 1, ..., rhymes 2^41, 2^41 + 1, ...: no number is used twice. (The same short
// rhyme may be drawn for two numbers.)
//
// floor.json: for "train" and "val" the number of stories, their bytes (separators not counted), words (runs of
// letters), nats (exact: the sum of -log p(story)) and bits_per_byte = nats / (ln 2 * bytes); in "train", "primer" has
// the same for the rhymes alone. Divide nats by the number of tokens for the floor in nats per token.
#define _GNU_SOURCE // asprintf
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tools/disk_folder.h"
#include "tools/options.h"
#include "data/prep/corpus.h"
#include "data/stories/gossip.h"
#include "data/stories/stories.h"

typedef struct {
    size_t bytes, primer, val_bytes, seed, count;
    const char *out, *check;
    bool rhymes, gossip;
} Options;

typedef struct {
    uint64_t stories, bytes, words;
    double nats;
} Totals;

static const char help[] =
    "usage: stories --bytes N [--primer N | --gossip] [--val-bytes N] [--seed S] --out DIR   write a corpus into DIR\n"
    "       stories --count N [--rhymes | --gossip] [--seed S]      print N tales, or rhymes, or texts of gossip\n"
    "       stories --check FILE                         read stories back\n"
    "A story is a tale, a rhyme or gossip on one line. In a file each is followed by <|endoftext|> and nothing else.\n"
    "DIR has train.txt, val.txt and floor.json; in N bytes only the stories' own are counted.\n";

static Options parse(int argc, char **argv)
{
    Options o = {.seed = 1};
    Option row[] = {
        OPTION(SIZE, "--bytes", "N", "stop the training text at the first story that ends at or after N bytes",
               &o.bytes),
        OPTION(SIZE, "--primer", "N", "begin it with rhymes, until N bytes of it are written (default 0); the rest is "
               "tales", &o.primer),
        OPTION(SIZE, "--val-bytes", "N", "tales to validate on (default: a twentieth of --bytes)", &o.val_bytes),
        OPTION(SWITCH, "--gossip", NULL, "not tales but facts about people, some of whom are talked about more than "
               "others", &o.gossip),
        OPTION(SIZE, "--seed", "S", "which corpus (default 1); the same seed gives the same bytes", &o.seed),
        OPTION(TEXT, "--out", "DIR", "where to", &o.out),
        OPTION(SIZE, "--count", "N", "print so many instead", &o.count),
        OPTION(SWITCH, "--rhymes", NULL, "rhymes, not tales", &o.rhymes),
        OPTION(TEXT, "--check", "FILE", "for each text between separators: derivations, nats, words, where it leaves "
               "the grammar", &o.check)};
    OptionSet set = {"stories", help, row, sizeof row / sizeof *row, .missing = "needs a value"};
    if (options_read(&set, argc, argv)) die_usage("stories: %s: no such option (try --help)", argv[1]);
    if ((o.bytes > 0) + (o.count > 0) + (o.check != NULL) != 1)
        die_usage("stories: give one of --bytes N, --count N and --check FILE, N above 0 (try --help)");
    if (!!o.bytes != !!o.out) die_usage("stories: --bytes N and --out DIR go together (try --help)");
    if (o.rhymes && !o.count) die_usage("stories: --rhymes goes with --count N (try --help)");
    if (o.gossip && (o.rhymes || o.primer || o.check))
        die_usage("stories: --gossip: a corpus of its own, without --rhymes, --primer or --check (try --help)");
    if (o.primer > o.bytes)
        die_usage("stories: --primer %zu: more than --bytes %zu (the primer is a part of it)", o.primer, o.bytes);
    if (!options_given(&set, "--val-bytes")) o.val_bytes = o.bytes / 20;
    return o;
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (!file) die("stories: %s: %s (check the path and its permissions)", path, strerror(errno));
    return file;
}

static uint64_t count_words(const char *s, size_t n)
{
    uint64_t words = 0;
    for (size_t i = 0; i < n; i++)
        words += isalpha((unsigned char)s[i]) && (i == 0 || !isalpha((unsigned char)s[i - 1]));
    return words;
}

// Where stories of one kind come from: a grammar, or gossip when there is none.
typedef struct {
    Grammar *grammar;
    Gossip *gossip;
} Writer;

static Writer open_source(StoriesKind kind, bool gossip)
{
    return gossip ? (Writer){.gossip = gossip_load()} : (Writer){.grammar = stories_load(kind)};
}

static void write_story(Writer s, uint64_t seed, uint64_t index, GrammarText *text)
{
    if (s.grammar) grammar_write(s.grammar, seed, index, text);
    else gossip_write(s.gossip, seed, index, text);
}

static void close_source(Writer s)
{
    if (s.grammar) grammar_free(s.grammar);
    gossip_free(s.gossip);
}

// Appends stories of a source, from number `first` on, until they are at least `bytes` long. Memory does
// not depend on how many.
static Totals write_stories(Writer source, uint64_t seed, uint64_t first, uint64_t bytes, FILE *file, const char *path)
{
    GrammarText text = {0};
    Totals t = {0};
    while (t.bytes < bytes) {
        write_story(source, seed, first + t.stories, &text);
        if (fwrite(text.bytes, 1, text.n_bytes, file) != text.n_bytes || fputs(STORIES_SEPARATOR, file) < 0)
            die("stories: %s: %s (is the disk full?)", path, strerror(errno));
        t.stories++;
        t.bytes += text.n_bytes;
        t.words += count_words(text.bytes, text.n_bytes);
        t.nats += text.nats;
    }
    free(text.bytes);
    return t;
}

static Totals sum(Totals a, Totals b)
{
    return (Totals){a.stories + b.stories, a.bytes + b.bytes, a.words + b.words, a.nats + b.nats};
}

static void close_file(FILE *file, const char *path)
{
    if (fclose(file)) die("stories: %s: %s (is the disk full?)", path, strerror(errno));
}

static double bits_per_byte(Totals t)
{
    return t.bytes ? t.nats / log(2) / (double)t.bytes : 0;
}

static json_t *totals_json(Totals t)
{
    json_t *object = json_pack("{s:I, s:I, s:I, s:f, s:f}", "stories", (json_int_t)t.stories, //
                               "bytes", (json_int_t)t.bytes, "words", (json_int_t)t.words,    //
                               "nats", t.nats, "bits_per_byte", bits_per_byte(t));
    if (!object) die("stories: out of memory");
    return object;
}

static void write_corpus(Options o)
{
    disk_folder_make(o.out, "--out");
    char *train_path, *val_path, *json_path;
    if (asprintf(&train_path, "%s/train.txt", o.out) < 0 || asprintf(&val_path, "%s/val.txt", o.out) < 0 ||
        asprintf(&json_path, "%s/floor.json", o.out) < 0)
        die("stories: out of memory");
    Writer rhymes = open_source(STORIES_RHYMES, false), tales = open_source(STORIES_TALES, o.gossip);
    FILE *file = open_file(train_path, "wb");
    Totals primer = write_stories(rhymes, o.seed, STORIES_RHYME_FIRST, o.primer, file, train_path);
    uint64_t rest = o.bytes > primer.bytes ? o.bytes - primer.bytes : 0;
    Totals train = sum(primer, write_stories(tales, o.seed, 0, rest, file, train_path));
    close_file(file, train_path);
    file = open_file(val_path, "wb");
    Totals val = write_stories(tales, o.seed, STORIES_VAL_FIRST, o.val_bytes, file, val_path);
    close_file(file, val_path);
    close_source(rhymes);
    close_source(tales);

    json_t *train_json = totals_json(train);
    json_t *json = json_pack("{s:I, s:o, s:o}", "seed", (json_int_t)o.seed, "train", train_json, "val",
                             totals_json(val));
    if (!json || json_object_set_new(train_json, "primer", totals_json(primer)) ||
        json_dump_file(json, json_path, JSON_INDENT(2)))
        die("stories: %s: cannot write it (is the disk full?)", json_path);
    json_decref(json);
    const char *line = "%s: %" PRIu64 " %s, %" PRIu64 " words, floor %.4f bits per byte\n";
    if (primer.stories)
        printf(line, train_path, primer.stories, "rhymes to begin with", primer.words, bits_per_byte(primer));
    const char *kind = o.gossip ? "texts of gossip" : "tales";
    printf(line, train_path, train.stories, primer.stories ? "stories in all" : kind, train.words,
           bits_per_byte(train));
    printf(line, val_path, val.stories, kind, val.words, bits_per_byte(val));
    free(train_path);
    free(val_path);
    free(json_path);
}

static void print_stories(Options o)
{
    Writer source = open_source(o.rhymes ? STORIES_RHYMES : STORIES_TALES, o.gossip);
    GrammarText text = {0};
    for (uint64_t i = 0; i < o.count; i++) {
        write_story(source, o.seed, i + (o.rhymes ? STORIES_RHYME_FIRST : 0), &text);
        fwrite(text.bytes, 1, text.n_bytes, stdout);
        puts(STORIES_SEPARATOR);
    }
    if (fflush(stdout) || ferror(stdout)) die("stories: cannot write to the screen: %s", strerror(errno));
    free(text.bytes);
    close_source(source);
}

// One line about one text: is it a story, or where does it stop being one?
static void print_score(size_t number, const char *s, size_t n, GrammarScore score)
{
    printf("%zu: derivations %" PRIu64 " nats %.4f words %" PRIu64, number, score.derivations, score.nats,
           count_words(s, n));
    if (!score.derivations) {
        size_t from = score.reached > 30 ? score.reached - 30 : 0;
        size_t to = n - score.reached < 30 ? n : score.reached + 30;
        printf(" left the grammar at byte %zu: ", score.reached);
        for (size_t i = from; i <= to; i++) {
            if (i == score.reached) fputs(" >>> ", stdout);
            if (i < to) putchar(s[i] == '\n' ? ' ' : s[i]);
        }
    }
    putchar('\n');
}

// As a tale, else as a rhyme, else as gossip; what is none of them left its grammar where the longest match ends.
static GrammarScore score_any(const Writer kind[3], const char *s, size_t n)
{
    GrammarScore best = {.nats = INFINITY};
    for (int k = 0; k < 3 && !best.derivations; k++) {
        const Grammar *g = kind[k].grammar;
        GrammarScore score = g ? grammar_score(g, s, n) : gossip_score(kind[k].gossip, s, n);
        if (score.derivations || score.reached > best.reached) best = score;
    }
    return best;
}

// Newlines before a text are skipped, so that --check reads what --count printed. Texts that are no
// stories are counted, and are no error.
static void check_file(const char *path)
{
    Writer kind[] = {open_source(STORIES_TALES, false), open_source(STORIES_RHYMES, false), open_source(0, true)};
    size_t n, n_texts = 0, n_stories = 0;
    char *bytes = corpus_read(path, &n, (CorpusOptions){.max_bytes = SIZE_MAX / 2});
    double nats = 0;
    for (const char *s = bytes, *end = bytes + n; s < end;) {
        while (s < end && *s == '\n') s++;
        const char *stop = s;
        while (stop < end && strncmp(stop, STORIES_SEPARATOR, strlen(STORIES_SEPARATOR))) stop++;
        if (stop > s) {
            GrammarScore score = score_any(kind, s, (size_t)(stop - s));
            print_score(n_texts++, s, (size_t)(stop - s), score);
            n_stories += score.derivations > 0;
            nats += score.derivations ? score.nats : 0;
        }
        s = stop < end ? stop + strlen(STORIES_SEPARATOR) : end;
    }
    if (!n_texts) die("stories: %s: no text in it", path);
    printf("%zu of %zu texts are stories of the grammar; %.4f nats in these\n", n_stories, n_texts, nats);
    free(bytes);
    for (int k = 0; k < 3; k++) close_source(kind[k]);
}

int main(int argc, char **argv)
{
    Options o = parse(argc, argv);
    if (o.check) check_file(o.check);
    else if (o.count) print_stories(o);
    else write_corpus(o);
    return 0;
}
