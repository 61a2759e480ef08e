// filter: what quality rules would remove from a corpus, and why; with --out, the documents that they keep.
//
//     build/filter INPUT... [--rules guide,gopher] [--report F.html] [--out kept.jsonl]
//
// Without --out it is a dry run. Inputs are files, folders and "-" (see corpus.h), or the sources of a manifest. The
// output is JSONL with the fields text, source and index, and appears under its name when it is complete.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "data/prep/corpus.h"
#include "base/disk.h"
#include "data/prep/filter.h"
#include "data/prep/filter_rules.h"
#include "text/tokenizer.h"
#include "base/words.h"

typedef struct {
    const char **input; // (n_inputs)
    size_t n_inputs, cap_inputs;
    const char **set; // (n_sets)
    size_t n_sets, cap_sets;
    const char *rules, *report, *out, *manifest, *bad_words, *examples;
    CorpusOptions corpus;
} Options;

static void print_help(void)
{
    printf("usage: filter INPUT... [--option VALUE]...\n\n"
           "INPUT: text or JSONL files (.gz, .zst), folders, or - (standard input)\n\n"
           "  --rules LIST          sets and rules: guide, c4, gopher, repeat, gopher.words, ... [guide,gopher]\n"
           "  --set RULE.min=N      a threshold; also RULE.max\n"
           "  --bad-words FILE      the list for c4.bad_words\n"
           "  --report FILE.html    counts and examples as a page\n"
           "  --examples N          so many of each rule in the page, at most 2 in the table [3]\n"
           "  --out FILE.jsonl      write what is kept; without it nothing is written\n"
           "  --manifest FILE       read the sources of a manifest too\n"
           "  --format NAME         auto (by name), text or jsonl\n"
           "  --field NAME          of JSONL [text]\n"
           "  --separator TEXT      between documents of a text file [" TOKENIZER_EOT "]\n"
           "  --separator-line TEXT instead: a line that is this alone\n"
           "  --strict              a bad line of JSONL is an error\n"
           "  --list                print all rules\n\n"
           "example: filter corpus.jsonl.gz --rules c4,gopher --report filter.html\n");
}

static void add(const char ***list, size_t *n, size_t *cap, const char *value)
{
    *list = words_grow(*list, cap, *n + 1, sizeof **list);
    (*list)[(*n)++] = value;
}

static Options parse(int argc, char **argv)
{
    Options o = {.rules = "guide,gopher", .examples = "3", .corpus = {.log = stderr, .max_bytes = UINT32_MAX}};
    const char *format = "auto", *set;
    const struct {
        const char *name, **to;
    } table[] = {{"--rules", &o.rules}, {"--report", &o.report}, {"--out", &o.out}, {"--manifest", &o.manifest},
                 {"--bad-words", &o.bad_words}, {"--examples", &o.examples}, {"--format", &format},
                 {"--field", &o.corpus.field}, {"--separator", &o.corpus.separator},
                 {"--separator-line", &o.corpus.line}, {"--set", &set}};
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        if (strncmp(argv[i], "--", 2) != 0) {
            add(&o.input, &o.n_inputs, &o.cap_inputs, argv[i]);
            continue;
        }
        if (strcmp(argv[i], "--strict") == 0) {
            o.corpus.strict = true;
            continue;
        }
        while (k < sizeof table / sizeof *table && strcmp(table[k].name, argv[i]) != 0) k++;
        if (k == sizeof table / sizeof *table) die_usage("filter: '%s': no such option (see --help)", argv[i]);
        if (i + 1 == argc) die_usage("filter: %s: takes a value (see --help)", argv[i]);
        *table[k].to = argv[++i];
        if (table[k].to == &set) add(&o.set, &o.n_sets, &o.cap_sets, set);
    }
    if (!o.n_inputs && !o.manifest) die_usage("filter: no input (files, folders, - or --manifest; see --help)");
    if (o.corpus.separator && o.corpus.line) die_usage("filter: --separator and --separator-line (choose one)");
    if (!o.corpus.separator && !o.corpus.line) o.corpus.separator = TOKENIZER_EOT; // as build/prepare
    o.corpus.format = sources_format(format);
    return o;
}

// What would have no effect, or keep nothing, is not what was meant. (filter_set and filter_bad_words see to the rest.)
static void check_effect(const Filter *f, const Options *o)
{
    for (int i = 0; i < filter_n_rules; i++) {
        const char *rule = filter_rules[i].name;
        const FilterState *s = filter_state(f, i);
        if (s->on && s->min > s->max)
            die_usage("filter: --set: %s.min is %g, above its max %g: nothing passes", rule, s->min, s->max);
    }
    if (o->corpus.field && !o->manifest && !corpus_any_jsonl(o->input, o->n_inputs, o->corpus))
        die_usage("filter: --field: no input is JSONL (by its name, or --format jsonl)");
}

static void run(Filter *f, const char *const *path, size_t n, CorpusOptions options, DiskOut *out)
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
}

static void run_manifest(Filter *f, const Options *o, DiskOut *out)
{
    Sources list = sources_read(o->manifest);
    for (size_t i = 0; i < list.n; i++) {
        const Source *s = &list.source[i];
        CorpusOptions options = o->corpus;
        options.format = s->format;
        if (s->field) options.field = s->field;
        if (s->separator || s->line) options.separator = s->separator, options.line = s->line;
        printf("%s: ", s->name);
        run(f, (const char *const *)&s->path, 1, options, out);
    }
    sources_free(&list);
}

// Before the work begins, and kept open: nobody else writes it meanwhile.
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

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); // past ulimit -f a write fails, and is reported
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return print_help(), 0;
        if (strcmp(argv[i], "--list") == 0) return filter_print_rules(stdout), 0;
    }
    Options o = parse(argc, argv);
    char *end;
    long examples = strtol(o.examples, &end, 10);
    if (*end || end == o.examples || examples < 0 || examples > 1000)
        die("filter: --examples: '%s' (a whole number from 0 to 1000)", o.examples);
    Filter *f = filter_new(o.rules, (int)examples);
    for (size_t i = 0; i < o.n_sets; i++) filter_set(f, o.set[i]);
    check_effect(f, &o);
    if (o.bad_words) filter_bad_words(f, o.bad_words);
    if (o.out && (!sources_is_jsonl(o.out) || sources_is_packed(o.out)) && !disk_is_special(o.out))
        die("filter: --out: '%s' (plain JSONL is written: let the name end in .jsonl)", o.out);
    DiskOut *out = open_output(&o, o.out), *report = open_output(&o, o.report);
    if (o.n_inputs) run(f, o.input, o.n_inputs, o.corpus, out);
    if (o.manifest) run_manifest(f, &o, out);
    filter_print(f, stdout);
    if (out) disk_out_commit(out);
    if (report) filter_html(f, report->f), disk_out_commit(report);
    free(o.input);
    free(o.set);
    filter_free(f);
    return 0;
}
