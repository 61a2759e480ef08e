// recipe_report: what went in, what came out and why, as text, as report.json and as a page; and train.toml, what the
// trainer opens.
//
// Invariant: the report is a function of the stages' records, and those are a function of recipe and input: no times,
// no machine, no order of threads. So the report, too, has the same bytes after a kill.
//
// Tokens are counted when they are made, at the end. For the stages before the tokenizer they are estimated
// from the bytes, with the bytes per token of the encoded documents, and marked with ~.
//
// Nothing from the input gets into the page except names of sources, which are letters, digits, _ and -
// (recipe.c), and names of rules. The page loads nothing.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/disk.h"
#include "data/prep/recipe_stage.h"

enum { ROWS = 8, REASONS = 3 };

typedef struct {
    const char *name;
    uint64_t documents, bytes, tokens;
    bool estimated;
    char why[200]; // the reasons that removed most
} Row;

typedef struct {
    Row row[ROWS];
    size_t n;
    char note[160];  // examples that were not looked for; "": none
    json_t *examples; // {"all", "too_short", "ngram"} of the evaluation set; NULL: none was asked for
    json_t *sources; // (n_sources) {"name", "weight", "share", "in", "left", "train", "val"}
    double bytes_per_token;
    CorpusCounts counts; // of all files, as far as corpus_judge asks
} Report;

static const json_t *find_stage(const RecipeRun *run, const char *name)
{
    size_t i;
    json_t *stage;
    json_array_foreach(run->stages, i, stage)
        if (strcmp(json_string_value(json_object_get(stage, "stage")), name) == 0) return stage;
    return NULL;
}

static uint64_t number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static Row *add_row(Report *r, const char *name, const json_t *counts)
{
    Row *row = &r->row[r->n++];
    *row = (Row){.name = name, .documents = number(counts, "documents"), .bytes = number(counts, "bytes")};
    row->estimated = !json_object_get(counts, "tokens");
    row->tokens = number(counts, "tokens");
    if (row->estimated && r->bytes_per_token > 0)
        row->tokens = (uint64_t)((double)row->bytes / r->bytes_per_token + 0.5);
    return row;
}

// The rules that removed most documents, or what was wrong with the input.
static void say_reasons(Row *row, const json_t *counts, bool in_arrays)
{
    uint64_t below = UINT64_MAX;
    const char *name, *last = "";
    json_t *value;
    size_t n = 0;
    for (int k = 0; k < REASONS; k++) {
        uint64_t most = 0;
        const char *best = NULL;
        json_object_foreach((json_t *)counts, name, value) {
            uint64_t count = (uint64_t)json_integer_value(in_arrays ? json_array_get(value, 0) : value);
            bool next = count < below || (count == below && strcmp(name, last) > 0);
            if (next && (count > most || (count && count == most && strcmp(name, best) < 0))) most = count, best = name;
        }
        if (!best) return;
        n += (size_t)snprintf(row->why + n, sizeof row->why - n, "%s%s %llu", n ? ", " : "", best,
                              (unsigned long long)most);
        if (n >= sizeof row->why) return;
        below = most, last = best;
    }
}

static json_t *add_up_faults(const json_t *files)
{
    const char *kind[] = {"bad_utf8", "nul", "bad_lines", "empty", "too_long", "no_text", "damaged"};
    json_t *sum = json_object(), *file;
    size_t i;
    for (int k = 0; k < 7; k++) {
        json_int_t n = 0;
        json_array_foreach(files, i, file) n += json_integer_value(json_object_get(file, kind[k]));
        json_object_set_new(sum, kind[k], json_integer(n));
    }
    return sum;
}

// train + val of all sources, or one of the two.
static json_t *add_up_shards(const json_t *sources, const char *split)
{
    uint64_t documents = 0, bytes = 0, tokens = 0;
    json_t *source;
    size_t i;
    json_array_foreach(sources, i, source)
        for (int k = 0; k < 2; k++) {
            if (split && strcmp(split, recipe_encode_splits[k]) != 0) continue;
            const json_t *counts = json_object_get(source, recipe_encode_splits[k]);
            documents += number(counts, "documents"), bytes += number(counts, "bytes");
            tokens += number(counts, "tokens");
        }
    return json_pack("{s:I, s:I, s:I}", "documents", (json_int_t)documents, "bytes", (json_int_t)bytes, "tokens",
                     (json_int_t)tokens);
}

static json_t *gather_sources(const RecipeRun *run, const json_t *read, const json_t *shards)
{
    json_t *all = json_array();
    double sum = 0;
    for (size_t s = 0; s < run->n_sources; s++) sum += run->source[s].weight;
    for (size_t s = 0; s < run->n_sources; s++) {
        const json_t *in = json_array_get(json_object_get(json_object_get(read, "out"), "sources"), s);
        const json_t *out = json_array_get(json_object_get(shards, "sources"), s);
        double weight = run->source[s].weight;
        json_t *one = json_pack("{s:s, s:f, s:f, s:I, s:I, s:O, s:O}", "name", run->source[s].name, "weight", weight,
                                "share", weight / sum, "documents_in", (json_int_t)number(in, "documents_in"),
                                "bytes_in", (json_int_t)number(in, "bytes_in"), "train", json_object_get(out, "train"),
                                "val", json_object_get(out, "val"));
        json_array_append_new(all, one);
    }
    return all;
}

// Examples that could not be looked for: without this note the corpus would seem clean of them.
static void say_examples(Report *r, const RecipeRun *run)
{
    const json_t *stage = find_stage(run, "contamination");
    uint64_t all = number(stage, "examples"), too_short = number(stage, "too_short");
    long ngram = run->recipe->contamination_ngram;
    if (!stage) return;
    r->examples = json_pack("{s:I, s:I, s:I}", "all", (json_int_t)all, "too_short", (json_int_t)too_short, "ngram",
                            (json_int_t)ngram);
    if (too_short)
        snprintf(r->note, sizeof r->note, "%llu of %llu evaluation examples are shorter than %ld words and were not "
                 "looked for.", (unsigned long long)too_short, (unsigned long long)all, ngram);
}

static Report make_report(const RecipeRun *run)
{
    Report r = {0};
    const json_t *read = find_stage(run, "documents"), *shards = find_stage(run, "shards"), *stage;
    const json_t *sources = json_object_get(shards, "sources");
    json_t *both = add_up_shards(sources, NULL), *faults = add_up_faults(json_object_get(read, "files"));
    if (number(both, "tokens")) r.bytes_per_token = (double)number(both, "bytes") / (double)number(both, "tokens");
    r.counts = (CorpusCounts){.documents = number(json_object_get(read, "in"), "documents"), .bad_lines = number(faults,
        "bad_lines"), .too_long = number(faults, "too_long"), .damaged = number(faults, "damaged")};
    json_object_del(faults, "damaged"); // by its documents; bad_utf8 says it
    say_reasons(add_row(&r, "read", json_object_get(read, "in")), faults, false);
    if (*run->recipe->filter_rules)
        say_reasons(add_row(&r, "filter", json_object_get(read, "out")), json_object_get(read, "rules"), true);
    const char *removing[] = {"exact", "near", "contamination"};
    for (int k = 0; k < 3; k++) {
        if (!(stage = find_stage(run, removing[k]))) continue;
        Row *row = add_row(&r, removing[k], json_object_get(stage, "out"));
        snprintf(row->why, sizeof row->why, "removed %llu", (unsigned long long)number(stage, "removed"));
    }
    for (int k = 0; k < 2; k++) {
        json_t *counts = add_up_shards(sources, recipe_encode_splits[k]);
        add_row(&r, recipe_encode_splits[k], counts);
        json_decref(counts);
    }
    say_examples(&r, run);
    r.sources = gather_sources(run, read, shards);
    json_decref(both);
    json_decref(faults);
    return r;
}

// ---- the three forms
static void print_text(const Report *r, const RecipeRun *run, FILE *out)
{
    size_t i;
    json_t *s;
    fprintf(out, "%-14s %12s %15s %15s   %s\n", "after", "documents", "bytes", "tokens", "most frequent");
    for (i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        char tokens[32];
        snprintf(tokens, sizeof tokens, "%s%llu", row->estimated ? "~" : "", (unsigned long long)row->tokens);
        fprintf(out, "%-14s %12llu %15llu %15s%s%s\n", row->name, (unsigned long long)row->documents,
                (unsigned long long)row->bytes, tokens, *row->why ? "   " : "", row->why);
    }
    if (*r->note) fprintf(out, "\n%s\n", r->note);
    fprintf(out, "\n%-14s %12s %12s %15s %15s\n", "source", "share", "documents", "train tokens", "val tokens");
    json_array_foreach(r->sources, i, s)
        fprintf(out, "%-14s %11.2f%% %12llu %15llu %15llu\n", json_string_value(json_object_get(s, "name")),
                100 * json_real_value(json_object_get(s, "share")),
                (unsigned long long)(number(json_object_get(s, "train"), "documents") +
                                     number(json_object_get(s, "val"), "documents")),
                (unsigned long long)number(json_object_get(s, "train"), "tokens"),
                (unsigned long long)number(json_object_get(s, "val"), "tokens"));
    fprintf(out, "\n%.3f bytes a token. To train on it:\n  --data.tokenizer=%s/tokenizer --data.train=%s/train.toml",
            r->bytes_per_token, run->dir, run->dir);
    if (run->recipe->shards_val > 0) fprintf(out, " '--data.val=%s/shards/*/val_*.bin'", run->dir);
    fputc('\n', out);
}

static json_t *to_json(const Report *r)
{
    json_t *stages = json_array();
    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        json_array_append_new(stages, json_pack("{s:s, s:I, s:I, s:I, s:b, s:s}", "after", row->name, "documents",
                                                (json_int_t)row->documents, "bytes", (json_int_t)row->bytes, "tokens",
                                                (json_int_t)row->tokens, "tokens_estimated", row->estimated, "reasons",
                                                row->why));
    }
    json_t *all = json_pack("{s:i, s:o, s:O, s:f}", "version", 1, "stages", stages, "sources", r->sources,
                            "bytes_per_token", r->bytes_per_token);
    if (r->examples) json_object_set(all, "evaluation_examples", r->examples);
    return all;
}

static void print_page(const Report *r, FILE *out)
{
    size_t i;
    json_t *s;
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>preparation</title>\n<style>"
          "body{font:15px sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1f2933}"
          "table{border-collapse:collapse;margin-bottom:2em}"
          "td,th{padding:3px 10px;text-align:right;border-bottom:1px solid #e7eaee}"
          "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}"
          "i{display:inline-block;height:.8em;background:#2f6fb0}</style>\n<h1>preparation</h1>\n"
          "<table><tr><th>after<th>documents<th>bytes<th>tokens<th>most frequent<th>part of the bytes read</tr>\n",
          out);
    double first = r->row[0].bytes ? (double)r->row[0].bytes : 1;
    for (i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        fprintf(out, "<tr><td>%s<td>%llu<td>%llu<td>%s%llu<td>%s<td><i style=\"width:%.1fem\"></i> %.1f%%</tr>\n",
                row->name, (unsigned long long)row->documents, (unsigned long long)row->bytes,
                row->estimated ? "~" : "", (unsigned long long)row->tokens, row->why, 12 * (double)row->bytes / first,
                100 * (double)row->bytes / first);
    }
    fputs("</table>\n", out);
    if (*r->note) fprintf(out, "<p>%s</p>\n", r->note);
    fputs("<table><tr><th>source<th>share<th>train tokens<th>val tokens<th>share of samples</tr>\n", out);
    json_array_foreach(r->sources, i, s) {
        double share = json_real_value(json_object_get(s, "share"));
        fprintf(out, "<tr><td>%s<td>%.2f%%<td>%llu<td>%llu<td><i style=\"width:%.1fem\"></i></tr>\n",
                json_string_value(json_object_get(s, "name")), 100 * share,
                (unsigned long long)number(json_object_get(s, "train"), "tokens"),
                (unsigned long long)number(json_object_get(s, "val"), "tokens"), 12 * share);
    }
    fprintf(out, "</table>\n<p>%.3f bytes a token; ~ estimated from the bytes.</p>\n</html>\n", r->bytes_per_token);
}

static void replace(const RecipeRun *run, const char *name, const char *text, size_t n)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", run->dir, name);
    if (!text || !disk_replace_file(path, text, n)) die("%s: %s (is the disk full?)", path, strerror(errno));
}

int recipe_report_write(RecipeRun *run, FILE *out)
{
    Report r = make_report(run);
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f) die("memory: no room for a report");
    fputs("# The shares of the sources in training: --data.train=THIS_FILE\n", f);
    for (size_t s = 0; s < run->n_sources; s++)
        fprintf(f, "[source.%s]\npath = \"shards/%s/train_*.bin\"\nweight = %.15g\n", run->source[s].name,
                run->source[s].name, run->source[s].weight);
    if (fclose(f) != 0 || !text) die("memory: no room for a report");
    replace(run, "train.toml", text, n);
    free(text);
    if (!(f = open_memstream(&text, &n))) die("memory: no room for a report");
    print_page(&r, f);
    if (fclose(f) != 0 || !text) die("memory: no room for a report");
    replace(run, "report.html", text, n);
    free(text);
    json_t *json = to_json(&r);
    text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    replace(run, "report.json", text, text ? strlen(text) : 0);
    free(text);
    json_decref(json);
    print_text(&r, run, out);
    json_decref(r.sources);
    json_decref(r.examples);
    return corpus_judge(&r.counts, run->dir);
}
