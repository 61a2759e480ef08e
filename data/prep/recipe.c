// recipe: the file that says how a corpus becomes shards, and the order of the stages.
//
//     [recipe]
//     out = "runs/web/data"
//     [source.web]
//     path = "web"                   # files, folders, .jsonl, .parquet, .warc, .gz, .zst: see doc/corpus.md
//     weight = 3
//     [filter]
//     rules = "guide,gopher"
//     [dedup]
//     near = true
//     [tokenizer]
//     vocab = 32_000
//
// Invariant: what a stage does is a function of its settings and of what the stage before left, and both are in its key
// (recipe_stage.c). So a finished stage is used again exactly when running it again would give the same files, and if a
// recipe is changed in the middle, it runs again from there. How a path was spelled, and from which folder, does not
// matter: paths of input are made absolute, without ".." and without links to folders, when the recipe has been read.
//
// A key of the recipe is a row of the table below, and the parser, the check of values, the options of the command line
// and the table in the chapter all walk it. The trainer's parser (config.h) parses values, and the corpus manifest's
// reader (sources.c) reads sources: a recipe without its other sections is such a manifest.
//
// Rejected: a graph of stages that the user wires together (there is one sensible order: cheap before expensive, whole
// pages before pairs of pages, text before tokens).
#define _GNU_SOURCE // asprintf
#include "data/prep/recipe.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "comm/launch.h"
#include "data/prep/recipe_stage.h"
#include "text/dataset.h"
#include "base/disk.h"
#include "data/prep/shingle.h"
#include "tokenizer/pretoken.h"
#include "tokenizer/tokenizer.h"

#define ROW(section, key, type, def, allowed, unit, help) \
    {#section "." #key, CONFIG_##type, offsetof(Recipe, section##_##key), def, allowed, unit, "", help}
static const ConfigKey rows[] = {
    ROW(recipe, out, STRING, "", "", "", "the folder to write to"),
    ROW(recipe, seed, INTEGER, "0", "[0, inf)", "", "of the order of the documents"),
    ROW(recipe, threads, INTEGER, "0", "[0, 1024]", "", "0: all; changes no byte"),
    ROW(recipe, unit, NUMBER, "128", "[0.01, 4096]", "MiB", "text read before it is safe from a kill"),
    ROW(recipe, max_document, INTEGER, "64", "[1, 4095]", "MiB",
        "a longer line of JSONL or row of Parquet is left out, a longer text is an error"),
    ROW(recipe, memory, INTEGER, "256", "[1, 1048576]", "MiB", "for sorting in [dedup]; changes no byte"),
    ROW(filter, rules, STRING, "", "", "", "rules and sets of build/prepare filter --list; none: no filter"),
    ROW(filter, set, STRING, "", "", "", "thresholds: \"gopher.words.min=60, gopher.words.max=1e5\""),
    ROW(filter, bad_words, STRING, "", "", "", "the list of c4.bad_words"),
    ROW(dedup, exact, BOOL, "false", "", "", "remove documents with the same normalized text"),
    ROW(dedup, near, BOOL, "false", "", "", "remove near duplicates (MinHash)"),
    ROW(dedup, threshold, NUMBER, "0.8", "(0, 1]", "", "Jaccard similarity from which on documents are duplicates"),
    ROW(dedup, ngram, INTEGER, "13", "[1, 1000]", "words", "of an n-gram"),
    ROW(dedup, permutations, INTEGER, "128", "[1, 1024]", "", "numbers of a signature"),
    ROW(contamination, evaluation, STRING, "", "", "", "a file or folder: documents that hold pieces of it go"),
    ROW(contamination, field, STRING, "text", "", "", "of its JSONL or Parquet"),
    ROW(contamination, ngram, INTEGER, "13", "[1, 1000]", "words", "of a piece"),
    ROW(contamination, min_grams, INTEGER, "1", "[1, inf)", "", "pieces that make a hit"),
    ROW(tokenizer, path, STRING, "", "", "", "one to use: its folder, tokenizer.json or *.model; none: train it"),
    ROW(tokenizer, eot, STRING, "", "", "", "the special token of it that documents start with; none: it says"),
    ROW(tokenizer, vocab, INTEGER, "4096", "[257, 16777216]", "tokens", "of the vocabulary to train"),
    ROW(tokenizer, pattern, STRING, "gpt2", "", "", "how text is cut into words: " PRETOKEN_NAMES),
    ROW(tokenizer, min_frequency, INTEGER, "1", "[1, inf)", "", "the fewest times that a merged pair is seen"),
    ROW(tokenizer, sample, NUMBER, "1", "(0, 1]", "", "part of the training documents that it is trained on"),
    ROW(shards, val, NUMBER, "0.01", "[0, 1)", "", "part of the documents kept for validation"),
    ROW(shards, dtype, CHOICE, "auto", "auto|uint16|uint32", "", "of a token"),
    ROW(shards, tokens, INTEGER, "100000000", "[1, 2147483647]", "tokens", "the most in one file"),
};
#undef ROW
enum { N_ROWS = sizeof rows / sizeof *rows };

typedef struct {
    Recipe *r;
    const char *path;
    int seen[N_ROWS]; // line; -1: the command line
} Reader;

static int find_row(const char *section, size_t n_section, const char *key)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strncmp(rows[i].name, section, n_section) == 0 && rows[i].name[n_section] == '.' &&
            strcmp(rows[i].name + n_section + 1, key) == 0)
            return i;
    return -1;
}

// Dies with a list of the valid names.
__attribute__((noreturn)) static void die_unknown(const char *where, const char *section, size_t n_section,
                                                  const char *key)
{
    char known[1024] = "";
    size_t n = 0;
    for (int i = 0; i < N_ROWS; i++)
        if (strncmp(rows[i].name, section, n_section) == 0 && rows[i].name[n_section] == '.')
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", rows[i].name + n_section + 1);
    if (n) die("%s: unknown key '%.*s.%s' (%s)", where, (int)n_section, section, key, known);
    die("%s: unknown section [%.*s] (recipe, source.NAME, filter, dedup, contamination, tokenizer, shards)", where,
        (int)n_section, section);
}

static void set_value(Reader *in, int row, const char *where, const char *value, bool quoted)
{
    char why[512];
    // The trainer's parser knows types and offsets, but not the struct to which the offsets belong.
    if (!config_table_parse(&rows[row], (Config *)(void *)in->r, value, quoted, why, sizeof why))
        die("%s: %s", where, why);
}

static void read_setting(void *arg, int line, const char *section, const char *key, const char *value, bool quoted)
{
    Reader *in = arg;
    char where[CONFIG_TEXT + 32];
    snprintf(where, sizeof where, "%s:%d", in->path, line);
    int row = find_row(section, strlen(section), key);
    if (row < 0) die_unknown(where, section, strlen(section), key);
    if (in->seen[row]) die("%s: %s is already set on line %d", where, rows[row].name, in->seen[row]);
    in->seen[row] = line;
    bool is_path = strstr("recipe.out filter.bad_words contamination.evaluation tokenizer.path", rows[row].name);
    char *behind = is_path && *value ? sources_path(in->path, value) : NULL;
    set_value(in, row, where, behind ? behind : value, quoted);
    free(behind);
}

static void read_option(Reader *in, const char *option)
{
    const char *name = option + 2, *equals = strchr(option, '='), *dot = strchr(option, '.');
    if (strncmp(option, "--", 2) != 0 || !equals || !dot || dot > equals)
        die_usage("prepare: '%s': not an option of a recipe (--section.key=value)", option);
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(equals - dot - 1), dot + 1);
    int row = find_row(name, (size_t)(dot - name), key);
    if (row < 0) die_unknown(option, name, (size_t)(dot - name), key);
    set_value(in, row, option, equals + 1, false);
    in->seen[row] = -1;
}

// Refuses keys that were set and change nothing, and values that would fail much later.
static void check_settings(const Reader *in)
{
    const Recipe *r = in->r;
    static const struct {
        const char *key, *needs;
    } pairs[] = {{"filter.set", "filter.rules"},
                 {"filter.bad_words", "filter.rules"},
                 {"dedup.threshold", "dedup.near"},
                 {"dedup.ngram", "dedup.near"},
                 {"dedup.permutations", "dedup.near"},
                 {"contamination.field", "contamination.evaluation"},
                 {"contamination.ngram", "contamination.evaluation"},
                 {"contamination.min_grams", "contamination.evaluation"},
                 {"tokenizer.eot", "tokenizer.path"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t n_key = strcspn(pairs[i].key, "."), n_needs = strcspn(pairs[i].needs, ".");
        int key = find_row(pairs[i].key, n_key, pairs[i].key + n_key + 1);
        int needed = find_row(pairs[i].needs, n_needs, pairs[i].needs + n_needs + 1);
        if (in->seen[key] && !*((const char *)r + rows[needed].offset)) // an empty string, or false
            die("%s: %s has no effect: %s is not set", in->path, pairs[i].key, pairs[i].needs);
    }
    const char *trained[] = {"vocab", "pattern", "min_frequency", "sample"};
    for (int i = 0; i < 4; i++)
        if (*r->tokenizer_path && in->seen[find_row("tokenizer", 9, trained[i])])
            die("%s: tokenizer.%s has no effect: tokenizer.path gives one that is trained", in->path, trained[i]);
    if (!pretoken_regex(r->tokenizer_pattern))
        die("%s: tokenizer.pattern: '%s' (" PRETOKEN_NAMES ")", in->path, r->tokenizer_pattern);
    if (!*r->recipe_out) die("%s: recipe.out is not set (the folder to write to)", in->path);
    for (size_t i = 0; i < r->sources.n; i++) {
        const Source *s = &r->sources.source[i];
        size_t n = strlen(s->name);
        if (strspn(s->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != n || n > 60)
            die("%s: [source.%s]: a name is letters, digits, _ and -, 60 at most (it becomes a folder)", in->path,
                s->name);
        if (strcmp(s->path, "-") == 0)
            die("%s: [source.%s]: standard input cannot be read again after a kill (write it to a file)", in->path,
                s->name);
    }
}

// One name for a file or folder, however it was spelled and from whichever folder: free() it. A file's own name stays,
// even if it is a link, because its ending says what is in it.
static char *real_name(const char *path)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("."), *real, *full = NULL;
    if (!folder) die("memory: no room for a file name");
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) full = realpath(path, NULL);
    else if ((real = realpath(folder, NULL))) {
        const char *name = slash ? slash + 1 : path, *between = strcmp(real, "/") == 0 ? "" : "/";
        if (asprintf(&full, "%s%s%s", real, between, name) < 0) die("memory: no room for a file name");
        free(real);
    }
    free(folder);
    if (!full && !(full = strdup(path))) die("memory: no room for a file name"); // the call that opens it reports why
    return full;
}

static void resolve_paths(Reader *in)
{
    static const char *const keys[] = {"bad_words", "evaluation", "path"};
    Recipe *r = in->r;
    char *text[] = {r->filter_bad_words, r->contamination_evaluation, r->tokenizer_path};
    for (int i = 0; i < 3; i++) {
        char *real = *text[i] ? real_name(text[i]) : NULL;
        if (real && snprintf(text[i], CONFIG_TEXT, "%s", real) >= CONFIG_TEXT)
            die("%s: %s: more than %d bytes (%s)", real, keys[i], CONFIG_TEXT - 1, in->path);
        free(real);
    }
    for (size_t i = 0; i < r->sources.n; i++) {
        char *real = real_name(r->sources.source[i].path);
        free(r->sources.source[i].path);
        r->sources.source[i].path = real;
    }
}

Recipe *recipe_load(const char *path, char *const *option, int n_options)
{
    Reader in = {.r = calloc(1, sizeof *in.r), .path = path};
    if (!in.r) die("memory: no room for a recipe");
    for (int i = 0; i < N_ROWS; i++) set_value(&in, i, rows[i].name, rows[i].def, false);
    in.r->sources = sources_read_and(path, read_setting, &in);
    for (int i = 0; i < n_options; i++) read_option(&in, option[i]);
    check_settings(&in);
    resolve_paths(&in);
    return in.r;
}

void recipe_free(Recipe *r)
{
    sources_free(&r->sources);
    free(r);
}

// ---- inputs, before any work
//
// Before any work recipe_run checks the inputs: after that no stage will refuse a value of the recipe or a file that it
// names, and none of these files is a pipe or lies where a stage empties folders. A stage whose settings changed
// empties its folder, and a typing error must not destroy the work of hours. Each check uses the code that will use the
// value: the filter is made, the sources are listed. Rejected: a check in recipe_load (a recipe can be read, and its
// keys shown, where its files are not).

static void check_source(const Recipe *r, const Source *source)
{
    const char *path = source->path;
    size_t n_text, n_fields = corpus_count_fields(&path, 1, recipe_read_options(r, source), &n_text);
    if (source->field && !n_fields)
        die("[source.%s]: field has no effect: %s is neither JSONL nor Parquet (format = jsonl?)", source->name,
            source->path);
    if ((source->separator || source->line) && !n_text)
        die("[source.%s]: %s has no effect: %s is JSONL, Parquet or WARC, not text", source->name,
            source->separator ? "separator" : "line", source->path);
}

// Reads the evaluation set, which is small compared with a corpus. An example of fewer words than an n-gram has
// cannot be looked for, and a search for nothing must not look like a clean corpus.
static void check_evaluation(const Recipe *r)
{
    const char *path = r->contamination_evaluation;
    struct stat st;
    Shingles words = {0};
    size_t n = 0, n_found = 0;
    CorpusRecord example;
    if (stat(path, &st) != 0) die("contamination.evaluation: %s: cannot read: %s", path, strerror(errno));
    CorpusOptions options = recipe_remove_options(r);
    if (strcmp(r->contamination_field, "text") != 0 && !corpus_count_fields(&path, 1, options, NULL))
        die("contamination.field has no effect: %s is text, not JSONL or Parquet", path);
    options.log = NULL; // the stage will say it
    CorpusReader *reader = corpus_open(&path, 1, options);
    for (n = 0; corpus_next(reader, &example); n++) {
        shingle_normalize(&words, example.text, example.n_bytes);
        n_found += words.n_words >= (size_t)r->contamination_ngram;
    }
    corpus_close(reader);
    shingle_free(&words);
    if (!n) die("contamination.evaluation: %s: no text in it", path);
    if (!n_found)
        die("contamination.evaluation: %s: all %zu examples are shorter than %ld words, so none can be looked for (a "
            "smaller contamination.ngram)", path, n, r->contamination_ngram);
}

static void check_tokenizer(const Recipe *r)
{
    const char *path = r->tokenizer_path;
    struct stat st;
    long vocab = r->tokenizer_vocab;
    if (*path) {
        if (stat(path, &st) != 0) die("tokenizer.path: %s: cannot read: %s", path, strerror(errno));
        Tokenizer *t = tokenizer_load(path);
        tokenizer_set_eot(t, *r->tokenizer_eot ? r->tokenizer_eot : NULL, path);
        vocab = tokenizer_vocab_size(t);
        tokenizer_free(t);
    }
    if (r->shards_dtype == DATASET_U16 && vocab > UINT16_MAX)
        die("shards.dtype: a vocabulary of %ld tokens does not fit in uint16: at most %d (use uint32)", vocab,
            UINT16_MAX);
}

// A stage whose settings changed empties its folder, also one on another disk through a link. So an input that is a
// link in such a folder would be removed, and so would a file in it to which a link elsewhere points.
static void check_outside(const Recipe *r, const char *where, const char *path)
{
    static const char *const stage[] = {"", "documents", "exact", "near", "contamination", "tokenizer", "runs",
                                        "shards"};
    char out[CONFIG_TEXT + 32], *folder = strdup(path), *slash = strrchr(folder ? folder : "", '/');
    if (!folder) die("memory: no room for a file name");
    if (slash) slash[slash == folder] = 0;
    for (int i = 0; i < 8; i++) {
        snprintf(out, sizeof out, "%s/%s", r->recipe_out, stage[i]);
        if (disk_folder_inside(path, out) || (slash && disk_folder_inside(folder, out)))
            die("%s: %s: lies in recipe.out, where folders are emptied (move it, or choose another recipe.out)", where,
                path);
    }
    free(folder);
}

// Every input is read more than once: by a check and then by a stage, or after a kill; and size and time say whether
// a file has changed. A folder gives only plain files (corpus.c).
static void check_plain(const char *where, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return; // the code that reads it reports why
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        die("%s: %s: a pipe or a device, which cannot be read twice (write it to a file)", where, path);
}

// The folders of the files of a list.
static void check_listed(const Recipe *r, const char *where, const char *list)
{
    size_t n;
    char *last = NULL;
    CorpusReader *all = corpus_open(&list, 1, (CorpusOptions){0});
    const CorpusFile *file = corpus_all_files(all, &n);
    for (size_t i = 0; i < n; i++) {
        size_t n_folder = (size_t)(strrchr(file[i].path, '/') ? strrchr(file[i].path, '/') - file[i].path : 0);
        if (last && strncmp(last, file[i].path, n_folder) == 0 && !last[n_folder]) continue;
        check_outside(r, where, file[i].path);
        free(last);
        if (!(last = strndup(file[i].path, n_folder))) die("memory: no room for a file name");
    }
    free(last);
    corpus_close(all);
}

static void check_files(const Recipe *r)
{
    const struct {
        const char *where, *path;
    } input[] = {{"filter.bad_words", r->filter_bad_words},
                 {"contamination.evaluation", r->contamination_evaluation},
                 {"tokenizer.path", r->tokenizer_path}};
    for (size_t i = 0; i < r->sources.n; i++) {
        char where[128];
        snprintf(where, sizeof where, "[source.%s]", r->sources.source[i].name);
        check_plain(where, r->sources.source[i].path);
        check_outside(r, where, r->sources.source[i].path);
        if (sources_is_list(r->sources.source[i].path)) check_listed(r, where, r->sources.source[i].path);
    }
    for (int i = 0; i < 3; i++) {
        if (!*input[i].path) continue;
        check_plain(input[i].where, input[i].path);
        check_outside(r, input[i].where, input[i].path);
    }
    for (int i = 0; *r->tokenizer_path && i < RECIPE_ENCODE_GIVEN; i++) { // which may be links
        char path[CONFIG_TEXT + 32];
        snprintf(path, sizeof path, "%s/%s", r->tokenizer_path, recipe_encode_given[i]);
        check_outside(r, "tokenizer.path", path);
    }
}

static void check_inputs(const Recipe *r)
{
    check_files(r);
    for (size_t i = 0; i < r->sources.n; i++) check_source(r, &r->sources.source[i]);
    if (*r->filter_rules) filter_free(recipe_read_filter(r));
    check_tokenizer(r);
    if (*r->contamination_evaluation) check_evaluation(r);
}

// ---- the run

int recipe_run(const Recipe *r, Comm *world, FILE *out)
{
    check_inputs(r);
    exchange_wait(world); // no folder is touched before all ranks have checked
    RecipeRun *run = recipe_stage_open(r, world);
    if (run->ranks > 1) launch_places(world, stderr);
    recipe_read_stage(run);
    if (r->dedup_exact) recipe_remove_exact(run);
    if (r->dedup_near) recipe_remove_near(run);
    if (*r->contamination_evaluation) recipe_remove_contaminated(run);
    recipe_encode_tokenizer(run);
    recipe_encode_shards(run);
    recipe_stage_say_left(run);
    int lost = run->rank == 0 ? recipe_report_write(run, out) : 0;
    recipe_stage_say_work(run);
    recipe_stage_close(run);
    return lost;
}

void recipe_print_keys(FILE *out)
{
    fprintf(out, "| key | default | values | what |\n|---|---|---|---|\n");
    for (int i = 0; i < N_ROWS; i++) {
        char kind[256], range[64];
        config_table_describe(&rows[i], kind, sizeof kind);
        config_table_range(&rows[i], range, sizeof range);
        fprintf(out, "| %s | %s | %s%s%s%s%s | %s |\n", rows[i].name, *rows[i].def ? rows[i].def : "-", kind,
                *range ? " " : "", range, *rows[i].unit ? ", " : "", rows[i].unit, rows[i].help);
    }
}
