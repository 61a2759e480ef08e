// recipe_check: what is wrong with a recipe and can be known before any work begins.
//
// Invariant: when recipe_check_inputs returns, no stage will refuse a value of the recipe or a file that it names, and
// none of these files is a pipe or lies where a stage empties folders. It runs before any folder is touched, because a
// stage whose settings changed empties its folder: a slip of the pen must not cost what hours have made. What the texts
// themselves say (no document is left, the disk is full) comes later.
//
// Everything is asked of the code that will use it: the filter is made, the sources are listed. So there is no second
// opinion about what is allowed.
//
// Rejected: a check in recipe_load (a recipe can be read, and its keys shown, where its files are not).
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "text/dataset.h"
#include "base/disk.h"
#include "data/prep/recipe_stage.h"
#include "data/prep/shingle.h"
#include "text/tokenizer.h"

// How many of the files below a path are JSONL; *n_files: all of them.
static size_t count_jsonl(const char *path, CorpusOptions options, size_t *n_files)
{
    size_t n = 0;
    CorpusReader *all = corpus_open(&path, 1, options);
    const CorpusFile *file = corpus_all_files(all, n_files);
    for (size_t i = 0; i < *n_files; i++)
        n += options.format == SOURCE_JSONL || (options.format == SOURCE_AUTO && sources_is_jsonl(file[i].path));
    corpus_close(all);
    return n;
}

static void check_source(const Source *source)
{
    size_t n_files, n_jsonl = count_jsonl(source->path, recipe_read_options(source), &n_files);
    if (!n_files) die("%s: no file in it ([source.%s])", source->path, source->name);
    if (source->field && !n_jsonl)
        die("[source.%s]: field has no effect: %s is text, not JSONL (format = jsonl?)", source->name, source->path);
    if ((source->separator || source->line) && n_jsonl == n_files)
        die("[source.%s]: %s has no effect: %s is JSONL, a document a line", source->name,
            source->separator ? "separator" : "line", source->path);
}

// Reads the evaluation set, which is small beside a corpus: an example of fewer words than an n-gram has cannot be
// looked for, and a search for nothing must not look like a clean corpus.
static void check_evaluation(const Recipe *r)
{
    const char *path = r->contamination_evaluation;
    struct stat st;
    Shingles words = {0};
    size_t n = 0, n_found = 0;
    CorpusRecord example;
    if (stat(path, &st) != 0) die("contamination.evaluation: %s: cannot read: %s", path, strerror(errno));
    CorpusOptions options = recipe_remove_options(r);
    if (strcmp(r->contamination_field, "text") != 0 && !count_jsonl(path, options, &n))
        die("contamination.field has no effect: %s is text, not JSONL", path);
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
        if (tokenizer_eot(t) < 0) die("%s: its vocabulary has no " TOKENIZER_EOT " (needed between documents)", path);
        vocab = tokenizer_vocab_size(t);
        tokenizer_free(t);
    }
    if (r->shards_dtype == DATASET_U16 && vocab > UINT16_MAX)
        die("shards.dtype: a vocabulary of %ld tokens does not fit in uint16: at most %d (use uint32)", vocab,
            UINT16_MAX);
}

// A stage whose settings changed empties its folder, also one on another disk behind a link. A link of the input that
// lies there goes, and so does what one elsewhere points to.
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

// Whatever is read is read again: by a check and then by a stage, or after a kill; and what a file held the last time
// is known by its size and time. A folder gives plain files alone (corpus_reader.c).
static void check_plain(const char *where, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return; // whoever reads it says why
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        die("%s: %s: a pipe or a device, which cannot be read twice (write it to a file)", where, path);
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
    }
    for (int i = 0; i < 3; i++) {
        if (!*input[i].path) continue;
        check_plain(input[i].where, input[i].path);
        check_outside(r, input[i].where, input[i].path);
    }
    for (int i = 0; *r->tokenizer_path && i < 3; i++) { // which may be links
        char path[CONFIG_TEXT + 32];
        snprintf(path, sizeof path, "%s/%s", r->tokenizer_path, recipe_encode_given[i]);
        check_outside(r, "tokenizer.path", path);
    }
}

void recipe_check_inputs(const Recipe *r)
{
    check_files(r);
    for (size_t i = 0; i < r->sources.n; i++) check_source(&r->sources.source[i]);
    if (*r->filter_rules) filter_free(recipe_read_filter(r));
    check_tokenizer(r);
    if (*r->contamination_evaluation) check_evaluation(r);
}
