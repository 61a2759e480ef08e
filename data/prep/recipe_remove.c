// recipe_remove: the stages that take documents away: exact and near duplicates, and pieces of an evaluation set.
//
// Invariant: no text is moved. A stage leaves a list, removed.tsv, and the documents that are left are those on no
// list. A line says which document, why (the document that is kept instead, or the evaluation example), and where
// both came from, so that every removal can be inspected:
//
//     17	3	/data/web/b.jsonl:18	/data/web/a.jsonl:4
//
// Names are valid UTF-8 (a bad byte is U+FFFD), and tab, line end, return and backslash are written as \t \n \r \\.
//
// A stage sees the documents that the stages before left, under new numbers 0, 1, 2, ...; 4 bytes each. Near duplicates
// are looked for after exact ones are removed, so the first pass over texts is cheap and the second has less to read. A
// stage is one unit of work: after a kill it begins again. Exact takes one reading of the corpus, near two or three.
// Several ranks read, and compare, a part of the documents each; all have the result, and rank 0 writes the list.
//
// Rejected: writing the corpus again after each stage (it takes disk and time, and a list says the same), and removing
// near duplicates separately in each source (a page is in several crawls; here the first source that has it keeps it).
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "data/prep/contamination.h"
#include "base/disk.h"
#include "data/prep/recipe_stage.h"
#include "tokenizer/tokenizer.h"

typedef struct {
    RecipeRun *run;
    uint32_t *number; // (n) of the documents that are left
    size_t n;
    uint64_t n_bytes;
    RecipeProgress progress;
} Left;

static Left find_left(RecipeRun *run, const char *what)
{
    recipe_stage_documents(run);
    size_t n_docs = documents_count(run->docs);
    Left left = {.run = run, .number = malloc((n_docs + 1) * sizeof *left.number)};
    if (!left.number) die("memory: no room for the numbers of %zu documents", n_docs);
    for (size_t i = 0; i < n_docs; i++) {
        if (run->removed[i]) continue;
        left.number[left.n++] = (uint32_t)i;
        left.n_bytes += documents_size(run->docs, i);
    }
    left.progress = recipe_stage_progress(run, what, 0, left.n_bytes / (uint64_t)run->ranks);
    return left;
}

static bool read_left(void *arg, size_t i, DedupText *text)
{
    Left *left = arg;
    size_t n = documents_size(left->run->docs, left->number[i]);
    dedup_text_room(text, n + 1);
    text->n_bytes = n;
    if (!documents_read(left->run->docs, left->number[i], text->bytes)) return false;
    #pragma omp critical(recipe_progress)
    recipe_stage_advance(&left->progress, n);
    return true;
}

static void fail_left(void *arg, size_t i)
{
    Left *left = arg;
    die("%s/documents: document %u cannot be read: %s", left->run->dir, left->number[i], strerror(errno));
}

// FILE:LINE where a document came from. The names of the files are in the record of the first stage; sources follow
// each other there as their files do.
typedef struct {
    const RecipeRun *run;
    char **name;   // of all files
    size_t *first; // (n_sources) the first file of a source
    size_t n;
} Origins;

static Origins find_origins(const RecipeRun *run)
{
    Origins o = {.run = run, .first = calloc(run->n_sources + 1, sizeof *o.first)};
    json_t *files = json_object_get(json_array_get(run->stages, 0), "files");
    o.n = json_array_size(files);
    o.name = calloc(o.n + 1, sizeof *o.name);
    if (!o.first || !o.name) die("memory: no room for file names");
    for (size_t i = o.n; i-- > 0;) {
        const json_t *file = json_array_get(files, i);
        o.name[i] = (char *)json_string_value(json_object_get(file, "path"));
        size_t source = (size_t)json_integer_value(json_object_get(file, "source"));
        check(o.name[i] && source < run->n_sources);
        o.first[source] = i;
    }
    return o;
}

// A name may contain bytes that end a field or a line.
static void print_name(const char *name, FILE *out)
{
    static const char special[] = "\t\n\r\\", letter[] = "tnr\\";
    for (; *name; name++) {
        const char *found = strchr(special, *name);
        if (found) fputc('\\', out);
        fputc(found ? letter[found - special] : *name, out);
    }
}

static void print_origin(const Origins *o, size_t i, FILE *out)
{
    DocumentRow row = documents_row(o->run->docs, i);
    size_t file = o->first[documents_source(o->run->docs, documents_part_of(o->run->docs, i))] + row.file;
    check(file < o->n);
    fputc('\t', out);
    print_name(o->name[file], out);
    fprintf(out, ":%llu", (unsigned long long)row.line);
}

// The list, on rank 0; NULL on the others.
static FILE *open_list(const RecipeRun *run, const RecipeStage *stage)
{
    char path[PATH_MAX];
    if (run->rank > 0) return NULL;
    snprintf(path, sizeof path, "%s/removed.tsv.tmp", stage->dir);
    FILE *f = fopen(path, "w");
    if (!f) die("%s: %s", path, strerror(errno));
    return f;
}

static void close_list(const RecipeStage *stage, FILE *list)
{
    char aside[PATH_MAX], path[PATH_MAX];
    snprintf(aside, sizeof aside, "%s/removed.tsv.tmp", stage->dir);
    snprintf(path, sizeof path, "%s/removed.tsv", stage->dir);
    bool ok = !ferror(list) && fflush(list) == 0 && fsync(fileno(list)) == 0;
    if (fclose(list) != 0 || !ok || rename(aside, path) != 0 || !disk_sync_parent(path))
        die("%s: %s (is the disk full?)", path, strerror(errno));
}

// Gives the list its name, marks what is on it as removed, and ends the stage.
static void finish(RecipeRun *run, RecipeStage *stage, FILE *list, json_t *about)
{
    if (list) close_list(stage, list);
    exchange_wait(run->world); // until the list is there
    recipe_stage_remove_listed(run, stage->name);
    json_object_set_new(about, "out", recipe_stage_counts(run));
    recipe_stage_end(run, stage, about);
}

// ---- duplicates
static void remove_duplicates(RecipeRun *run, RecipeStage *stage, DedupOptions options)
{
    Left left = find_left(run, stage->name);
    options.threads = run->threads;
    options.memory_bytes = (size_t)run->recipe->recipe_memory << 20;
    options.folder = stage->dir;
    options.world = run->world;
    DedupSource source = {left.n, read_left, fail_left, &left};
    DedupResult result = dedup_run(&source, options);
    Origins origins = find_origins(run);
    FILE *list = open_list(run, stage);
    for (size_t i = 0; list && i < left.n; i++) {
        if (result.keep[i] == i) continue;
        fprintf(list, "%u\t%u", left.number[i], left.number[result.keep[i]]);
        print_origin(&origins, left.number[i], list);
        print_origin(&origins, left.number[result.keep[i]], list);
        fputc('\n', list);
    }
    json_t *about = json_pack("{s:I}", "removed", (json_int_t)(left.n - result.n_kept));
    if (!options.exact_only) {
        json_object_set_new(about, "bands", json_integer((json_int_t)result.options.bands.bands));
        json_object_set_new(about, "rows", json_integer((json_int_t)result.options.bands.rows));
        json_object_set_new(about, "candidates", json_integer((json_int_t)result.n_candidates));
        json_object_set_new(about, "compared", json_integer((json_int_t)result.n_compared));
        json_object_set_new(about, "similar", json_integer((json_int_t)result.n_similar));
    }
    dedup_free(&result);
    free(origins.name);
    free(origins.first);
    free(left.number);
    finish(run, stage, list, about);
}

void recipe_remove_exact(RecipeRun *run)
{
    RecipeStage stage = recipe_stage_begin(run, "exact", "");
    if (stage.done) return;
    DedupOptions options = dedup_defaults();
    options.exact_only = true;
    remove_duplicates(run, &stage, options);
}

void recipe_remove_near(RecipeRun *run)
{
    const Recipe *r = run->recipe;
    char settings[256];
    snprintf(settings, sizeof settings, "%.17g %ld %ld", r->dedup_threshold, r->dedup_ngram, r->dedup_permutations);
    RecipeStage stage = recipe_stage_begin(run, "near", settings);
    if (stage.done) return;
    DedupOptions options = dedup_defaults();
    options.threshold = r->dedup_threshold;
    options.ngram = (size_t)r->dedup_ngram;
    options.n_perm = (size_t)r->dedup_permutations;
    remove_duplicates(run, &stage, options);
}

// ---- contamination
static bool read_example(void *arg, size_t i, DedupText *text)
{
    CorpusStore *store = arg;
    text->n_bytes = corpus_store_size(store, i);
    dedup_text_room(text, text->n_bytes + 1);
    return corpus_store_read(store, i, text->bytes);
}

__attribute__((noreturn)) static void fail_example(void *arg, size_t i)
{
    (void)arg;
    die("contamination: evaluation example %zu cannot be read back: %s", i, strerror(errno));
}

CorpusOptions recipe_remove_options(const Recipe *r)
{
    return (CorpusOptions){.field = r->contamination_field, .log = stderr, .separator = TOKENIZER_EOT,
                           .max_bytes = (size_t)r->recipe_max_document << 20, .raise = "recipe.max_document"};
}

// files: the lines of the files that are read (recipe_stage_files).
static CorpusStore *read_examples(const Recipe *r, const char *folder, const char *files)
{
    size_t n;
    const char *path = r->contamination_evaluation;
    CorpusRecord doc;
    CorpusStore *store = corpus_store_open(folder);
    CorpusReader *reader = corpus_open(&path, 1, recipe_remove_options(r));
    while (corpus_next(reader, &doc)) corpus_store_add(store, doc.text, doc.n_bytes);
    const CorpusFile *file = corpus_files(reader, &n);
    for (size_t i = 0; i < n; i++) recipe_stage_check_file(&files, file[i].path);
    corpus_close(reader);
    corpus_store_finish(store);
    return store;
}

void recipe_remove_contaminated(RecipeRun *run)
{
    const Recipe *r = run->recipe;
    char *settings, *files = recipe_stage_files(r->contamination_evaluation);
    size_t n;
    FILE *f = open_memstream(&settings, &n);
    if (!f) die("memory: no room for settings");
    fprintf(f, "%ld %ld %s\n%s", r->contamination_ngram, r->contamination_min_grams, r->contamination_field, files);
    if (fclose(f) != 0 || !settings) die("memory: no room for settings");
    RecipeStage stage = recipe_stage_begin(run, "contamination", settings);
    free(settings);
    if (stage.done) {
        free(files);
        return;
    }
    CorpusStore *store = read_examples(r, stage.dir, files);
    free(files);
    Left left = find_left(run, stage.name);
    DedupSource corpus = {left.n, read_left, fail_left, &left};
    DedupSource evaluation = {corpus_store_count(store), read_example, fail_example, store};
    ContaminationOptions options = {.ngram = (size_t)r->contamination_ngram, .threads = run->threads,
                                    .min_grams = (size_t)r->contamination_min_grams, .world = run->world};
    Contamination c = contamination_find(&corpus, &evaluation, options);
    if (c.n_short == c.n_examples) // recipe.c saw a longer one: the set has changed
        die("contamination.evaluation: %s: no example that can be looked for (%zu, all shorter than %ld words)",
            r->contamination_evaluation, c.n_examples, r->contamination_ngram);
    Origins origins = find_origins(run);
    FILE *list = open_list(run, &stage);
    for (size_t i = 0; list && i < c.n_hits; i++) {
        size_t number = left.number[c.hit[i].doc];
        fprintf(list, "%zu\t%zu", number, c.hit[i].example);
        print_origin(&origins, number, list);
        fprintf(list, "\t%zu of %zu n-grams\n", c.hit[i].n_found, c.hit[i].n_grams);
    }
    json_t *about = json_pack("{s:I, s:I, s:I}", "removed", (json_int_t)c.n_hits, "examples", (json_int_t)c.n_examples,
                              "too_short", (json_int_t)c.n_short);
    contamination_free(&c);
    corpus_store_close(store);
    free(origins.name);
    free(origins.first);
    free(left.number);
    finish(run, &stage, list, about);
}
