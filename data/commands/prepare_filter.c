// prepare_filter: what quality rules would remove from a corpus, and why; with --out, the documents that they keep.
//
//     build/prepare filter INPUT... [--rules guide,gopher] [--report F.html] [--out kept.jsonl]
//
// Without --out it is a dry run. Inputs are files, folders and "-" (see corpus.h), or the sources of a manifest. The
// output is JSONL with the fields text, source and index, and appears under its name when it is complete.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/commands/prepare.h"
#include "base/check.h"
#include "data/prep/corpus.h"
#include "base/disk.h"
#include "data/prep/filter.h"
#include "tools/options.h"
#include "tokenizer/tokenizer.h"

typedef struct {
    const char *const *input; // (n_inputs)
    size_t n_inputs;
    OptionList set;
    const char *rules, *report, *out, *manifest, *bad_words, *examples;
    CorpusOptions corpus;
} Options;

static const char help[] = "usage: prepare filter INPUT... [--option VALUE]...\n\n"
                           "INPUT: text, JSONL, WARC (.gz, .zst) or Parquet files, folders, or - (standard input)\n\n";

static Options parse(int argc, char **argv)
{
    Options o = {.rules = "guide,gopher", .examples = "3", .corpus = {.log = stderr, .raise = "--max-document"}};
    const char *format = "auto";
    size_t max_document = CORPUS_MIB;
    bool list = false;
    Option row[] = {
        OPTION(TEXT, "--rules", "LIST", "sets and rules: guide, c4, gopher, repeat, gopher.words, ... [guide,gopher]",
               &o.rules),
        OPTION(LIST, "--set", "RULE.min=N", "a threshold; also RULE.max", &o.set),
        OPTION(TEXT, "--bad-words", "FILE", "the list for c4.bad_words", &o.bad_words),
        OPTION(TEXT, "--report", "FILE.html", "counts and examples as a page", &o.report),
        OPTION(TEXT, "--examples", "N", "examples of each rule in the page; in the table at most 2 [3]", &o.examples),
        OPTION(TEXT, "--out", "FILE.jsonl", "write what is kept; without it nothing is written", &o.out),
        OPTION(TEXT, "--manifest", "FILE", "read the sources of a manifest too", &o.manifest),
        PREPARE_CORPUS(&o.corpus, format, max_document),
        OPTION(SWITCH, "--list", NULL, "print all rules", &list),
        OPTION_HEAD("\nexample: filter corpus.jsonl.gz --rules c4,gopher --report filter.html")};
    OptionSet set = {"prepare filter", help, row, sizeof row / sizeof *row, .quote = "'", .missing = "takes a value"};
    o.n_inputs = options_read(&set, argc, argv);
    o.input = (const char *const *)argv + 1;
    if (list) {
        filter_print_rules(stdout);
        exit(0);
    }
    if (!o.n_inputs && !o.manifest) die_usage("prepare filter: no input (files, folders, - or --manifest; see --help)");
    if (o.corpus.separator && o.corpus.line) die_usage("prepare filter: --separator and --separator-line (choose one)");
    if (!o.corpus.separator && !o.corpus.line) o.corpus.separator = TOKENIZER_EOT; // as build/prepare
    o.corpus.format = sources_format(format);
    o.corpus.max_bytes = max_document << 20;
    return o;
}

// Refuses options that would have no effect or keep nothing. (filter_set and filter_bad_words check the rest.)
static void check_effect(const Filter *f, const Options *o)
{
    for (int i = 0; i < filter_n_rules; i++) {
        const char *rule = filter_rules[i].name;
        const FilterState *s = filter_state(f, i);
        if (s->on && s->min > s->max)
            die_usage("prepare filter: --set: %s.min is %g, above its max %g: nothing passes", rule, s->min, s->max);
    }
    if (o->corpus.field && !o->manifest && !corpus_count_fields(o->input, o->n_inputs, o->corpus, NULL))
        die_usage("prepare filter: --field: no input is JSONL or Parquet (by its name, or --format)");
}

static int run(Filter *f, const char *const *path, size_t n, CorpusOptions options, DiskOut *out)
{
    CorpusReader *r = corpus_open(path, n, options);
    CorpusRecord doc;
    while (corpus_next(r, &doc)) {
        const char *kept;
        size_t n_kept;
        if (filter_document(f, doc.text, doc.n_bytes, doc.path, doc.line, &kept, &n_kept) && out &&
            !corpus_write_json(out->f, kept, n_kept, doc.path, doc.index))
            die("%s: cannot write document %llu of %s: %s", out->path, (unsigned long long)doc.index, doc.path,
                strerror(errno));
    }
    CorpusCounts counts = corpus_counts(r);
    corpus_print(&counts, stdout);
    corpus_close(r);
    return corpus_judge(&counts, n == 1 ? *path : "prepare filter: the inputs");
}

static int run_manifest(Filter *f, const Options *o, DiskOut *out)
{
    int status = 0;
    Sources list = sources_read(o->manifest);
    for (size_t i = 0; i < list.n; i++) {
        const Source *s = &list.source[i];
        CorpusOptions options = o->corpus;
        options.format = s->format;
        if (s->field) options.field = s->field;
        if (s->separator || s->line) options.separator = s->separator, options.line = s->line;
        printf("%s: ", s->name);
        status |= run(f, (const char *const *)&s->path, 1, options, out);
    }
    sources_free(&list);
    return status;
}

// Opened before the work begins and kept open, so that no other program writes the file meanwhile.
static DiskOut *open_output(const Options *o, const char *path)
{
    if (!path) return NULL;
    for (size_t i = 0; i < o->n_inputs; i++) disk_out_apart(path, o->input[i]);
    if (o->manifest) {
        Sources list = sources_read(o->manifest);
        for (size_t i = 0; i < list.n; i++) disk_out_apart(path, list.source[i].path);
        sources_free(&list);
    }
    return disk_out_open(path);
}

int prepare_filter(int argc, char **argv)
{
    Options o = parse(argc, argv);
    int examples = (int)options_count("prepare filter", "examples", o.examples, 0, 1000);
    Filter *f = filter_new(o.rules, examples);
    for (size_t i = 0; i < o.set.n; i++) filter_set(f, o.set.word[i]);
    check_effect(f, &o);
    if (o.bad_words) filter_bad_words(f, o.bad_words);
    if (o.out && (!sources_is_jsonl(o.out) || sources_is_packed(o.out)) && !disk_is_special(o.out))
        die("prepare filter: --out: '%s' (plain JSONL is written: let the name end in .jsonl)", o.out);
    DiskOut *out = open_output(&o, o.out), *report = open_output(&o, o.report);
    int status = o.n_inputs ? run(f, o.input, o.n_inputs, o.corpus, out) : 0;
    if (o.manifest) status |= run_manifest(f, &o, out);
    filter_print(f, stdout);
    if (out) disk_out_commit(out);
    if (report) filter_html(f, report->f), disk_out_commit(report);
    free(o.set.word);
    filter_free(f);
    return status;
}
