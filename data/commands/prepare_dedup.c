// prepare_dedup: finds exact and near duplicates among the documents of text and JSONL files, or pieces of an evaluation
// set.
//
//     build/prepare dedup corpus.jsonl                                 how much is duplicate, and a report
//     build/prepare dedup --write clean.jsonl --clusters c.jsonl --removed r.txt a.jsonl b.jsonl
//     build/prepare dedup --evaluation test.jsonl --write clean.jsonl corpus.jsonl     leaves out what holds pieces of it
//     build/prepare dedup --threshold 0.7 --curve curve.svg            bands, rows and the S-curve of a threshold
//     build/prepare dedup --show 17 corpus.jsonl                       the text of document 17
//
// Documents are numbered from 0 in the order of the input, which is whatever corpus_open reads: text and JSONL, packed
// or not, folders, standard input. The input is read once. But documents are compared several times and in any order,
// which standard input and packed files do not allow; so their texts are kept in a temporary file without a name, and
// with --write FILE.jsonl the whole JSON lines in a second one. Memory holds no texts, only 16 bytes a document for its
// place (24 with FILE.jsonl), and what --memory says.
#define _GNU_SOURCE // memmem
#include "data/commands/prepare.h"
#include "base/check.h"
#include "data/prep/contamination.h"
#include "data/prep/corpus.h"
#include "data/prep/dedup.h"
#include "tools/options.h"
#include "base/disk.h"
#include "tools/svg.h"
#include "tokenizer/tokenizer.h"
#include "base/words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- documents

typedef struct {
    uint64_t line : 40, file : 24;
} Place;

typedef struct {
    CorpusOptions options;
    CorpusReader *reader; // kept for the names of its files
    CorpusStore *text, *json; // json: the JSON lines, empty for text files; NULL without --write FILE.jsonl
    Place *place;         // (n)
    size_t n, cap;
} Documents;

static bool read_doc(void *arg, size_t i, DedupText *text)
{
    const Documents *d = arg;
    text->n_bytes = corpus_store_size(d->text, i);
    dedup_text_room(text, text->n_bytes + 1);
    return corpus_store_read(d->text, i, text->bytes);
}

static const char *file_name(const Documents *d, size_t i)
{
    size_t n;
    return corpus_files(d->reader, &n)[d->place[i].file].path;
}

static void fail_doc(void *arg, size_t i)
{
    const Documents *d = arg;
    die("prepare dedup: %s:%" PRIu64 ": cannot be read back from the temporary file", file_name(d, i),
        (uint64_t)d->place[i].line);
}

// Reads everything; with `counts`, prints what was read.
static DedupSource open_documents(Documents *d, const char *const *path, size_t n_paths, const char *folder,
                                  bool keep_json, bool counts)
{
    CorpusRecord doc;
    d->reader = corpus_open(path, n_paths, d->options);
    d->text = corpus_store_open(folder);
    d->json = keep_json ? corpus_store_open(folder) : NULL;
    while (corpus_next(d->reader, &doc)) {
        size_t file;
        corpus_files(d->reader, &file);
        if (file >> 24 || doc.line >> 40) die("prepare dedup: %s: too many files, or lines in one", doc.path);
        d->place = words_grow(d->place, &d->cap, d->n + 1, sizeof *d->place);
        d->place[d->n++] = (Place){doc.line & 0xffffffffff, file & 0xffffff};
        corpus_store_add(d->text, doc.text, doc.n_bytes);
        if (d->json) corpus_store_add(d->json, doc.json ? doc.json : "", doc.n_json);
    }
    corpus_store_finish(d->text);
    if (d->json) corpus_store_finish(d->json);
    CorpusCounts c = corpus_counts(d->reader);
    if (counts) corpus_print(&c, stdout);
    return (DedupSource){d->n, read_doc, fail_doc, d};
}

static void close_documents(Documents *d)
{
    corpus_close(d->reader);
    corpus_store_close(d->text);
    corpus_store_close(d->json);
    free(d->place);
}

// ---- what is written

// Opened before the work begins and kept open, so that no other program writes the file meanwhile.
static DiskOut *open_output(const char *path, const char *const *input, size_t n_inputs)
{
    if (!path) return NULL;
    if (sources_is_packed(path))
        die("prepare dedup: %s: what is written is not packed (leave .gz or .zst off, and pack it later)", path);
    for (size_t i = 0; i < n_inputs; i++) disk_out_apart(path, input[i]);
    return disk_out_open(path);
}

// Writes a document that stays, number `index` of its file, as a line of JSON: the original line, if it came in one.
static bool write_line(const Documents *d, size_t i, uint64_t index, DedupText *text, FILE *f)
{
    text->n_bytes = corpus_store_size(d->json, i);
    dedup_text_room(text, text->n_bytes + 1);
    if (!corpus_store_read(d->json, i, text->bytes)) fail_doc((void *)d, i);
    if (text->n_bytes)
        return fwrite(text->bytes, 1, text->n_bytes, f) == text->n_bytes && fputc('\n', f) != EOF;
    if (!read_doc((void *)d, i, text)) fail_doc((void *)d, i);
    return corpus_write_json(f, text->bytes, text->n_bytes, file_name(d, i), index);
}

// Does a text (n bytes) hold what would be read back as a border between documents? Lines end as in corpus.h.
static bool holds_border(const char *text, size_t n, const char *separator, const char *line)
{
    size_t k = line ? strlen(line) : strlen(separator);
    const char *end = text + n;
    if (!line) return memmem(text, n, separator, k) != NULL;
    for (const char *at = text, *next; at < end; at = next) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > at && stop[-1] == '\r' && (size_t)(stop - at) > k) stop--;
        if ((size_t)(stop - at) == k && memcmp(at, line, k) == 0) return true;
    }
    return false;
}

// Writes the documents that stay to `keep` (JSONL, or text with the separator after each), and a line PATH:LINE for
// each of the others to `list`.
static void write_documents(const Documents *d, const bool *removed, DiskOut *keep, DiskOut *list)
{
    DedupText text = {0};
    if (keep) {
        const char *line = d->options.line, *separator = line ? line : d->options.separator;
        bool json = sources_is_jsonl(keep->path), ok = true;
        size_t cut = 0;
        for (size_t i = 0, first = 0; ok && i < d->n; i++) {
            if (d->place[i].file != d->place[first].file) first = i;
            if (removed[i]) continue;
            if (json) {
                ok = write_line(d, i, i - first, &text, keep->f);
                continue;
            }
            if (!read_doc((void *)d, i, &text)) fail_doc((void *)d, i);
            cut += holds_border(text.bytes, text.n_bytes, separator, line);
            ok = fwrite(text.bytes, 1, text.n_bytes, keep->f) == text.n_bytes;
            if (line && text.bytes[text.n_bytes - 1] != '\n') fputc('\n', keep->f);
            fputs(separator, keep->f);
            if (line) fputc('\n', keep->f);
        }
        if (!ok) die("prepare dedup: cannot write %s: %s (is the disk full?)", keep->path, strerror(errno));
        if (cut)
            fprintf(stderr, "%s: %zu documents hold the separator '%s' themselves and will be read as several (write "
                            ".jsonl instead)\n", keep->path, cut, separator);
        disk_out_commit(keep);
    }
    if (list) {
        for (size_t i = 0; i < d->n; i++)
            if (removed[i]) fprintf(list->f, "%s:%" PRIu64 "\n", file_name(d, i), (uint64_t)d->place[i].line);
        disk_out_commit(list);
    }
    free(text.bytes);
}

// Draws the curves of other thresholds, then on top of them the one that was asked for.
static void draw_curve(FILE *f, void *arg)
{
    const DedupOptions *o = arg;
    const double others[] = {0.5, 0.7, 0.8, 0.9};
    const char *const colors[] = {SVG_GREEN, SVG_ORANGE, SVG_GREY, SVG_RED, SVG_BLUE};
    SvgPanel p = {.x = 56, .y = 40, .w = 480, .h = 280, .x1 = 1, .y1 = 1};
    char text[120];
    snprintf(text, sizeof text, "Probability that a pair becomes a candidate, %zu permutations", o->n_perm);
    svg_text(f, p.x, 24, "start", 14, SVG_INK, true, text);
    svg_frame(f, &p, 10, 5, "Jaccard similarity of two documents", "");
    svg_clip(f, &p, "panel");
    double x = svg_px(&p, o->threshold), y = 70;
    svg_line(f, x, p.y, x, p.y + p.h, SVG_INK, 1, "4 3");
    for (int k = 0; k <= 4; k++) {
        double threshold = k < 4 ? others[k] : o->threshold, width = k < 4 ? 1.5 : 3;
        if (k < 4 && threshold == o->threshold) continue;
        MinHashBands b = k == 4 && o->bands.bands ? o->bands : minhash_bands(o->n_perm, threshold);
        SvgSeries s = svg_series(201);
        for (s.n = 0; s.n < 201; s.n++) s.x[s.n] = (double)s.n / 200, s.y[s.n] = minhash_curve(b, s.x[s.n]);
        svg_curve(f, &p, "panel", &s, colors[k], width, 1);
        svg_series_free(&s);
        svg_line(f, 552, y - 4, 570, y - 4, colors[k], width, NULL);
        snprintf(text, sizeof text, "threshold %g", threshold);
        svg_text(f, 578, y, "start", 13, colors[k], k == 4, text);
        snprintf(text, sizeof text, "%zu bands of %zu", b.bands, b.rows);
        svg_text(f, 578, y + 16, "start", 12, SVG_GREY, false, text);
        y += 48;
    }
}

// ---- the command line

typedef struct {
    DedupOptions dedup;
    Documents corpus;
    const char *write, *clusters, *removed, *evaluation, *evaluation_field, *curve;
    size_t min_grams, show;
    bool bench, showing;
    const char *const *path; // (n_paths)
    size_t n_paths;
} Options;

static const char help[] =
    "usage: prepare dedup [options] INPUT...       find duplicates\n"
    "       prepare dedup --curve FILE.svg [options]   bands, rows and the S-curve; draws it\n"
    "INPUT: text, JSONL, WARC (.gz, .zst) or Parquet files, folders, or - (standard input)\n";

static const double ANY = SIZE_MAX >> 21;

// What --memory may ask for: what the machine has, in MiB.
static double most_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (double)((size_t)pages / ((1 << 20) / (size_t)page)) : 1 << 24;
}

// The kinds of run in which an option has an effect.
enum { NEAR = 1, EXACT = 2, EVALUATION = 4, CURVE = 8, SHOW = 16 };

// Refuses options that have no effect in this run.
static void check_effect(const Options *o, const OptionSet *set)
{
    int run = o->showing ? SHOW : o->evaluation ? EVALUATION : o->dedup.exact_only ? EXACT : o->n_paths ? NEAR : 0;
    const char *with = run == SHOW ? "with --show" : run == EVALUATION ? "with --evaluation"
                     : run == EXACT ? "with --exact" : run == NEAR ? "without --evaluation" : "without an input";
    if (o->curve) run |= CURVE;
    for (size_t i = 0; i < set->n; i++)
        if (set->row[i].given && set->row[i].where && !(set->row[i].where & run))
            die_usage("prepare dedup: %s: does nothing %s", set->row[i].name, with);
    CorpusOptions c = o->corpus.options;
    bool other = o->evaluation && corpus_count_fields(&o->evaluation, 1, c, NULL);
    if (o->evaluation_field && !other)
        die_usage("prepare dedup: --evaluation-field: %s is not JSONL or Parquet", o->evaluation);
    if (c.field && o->n_paths && !(other && !o->evaluation_field) &&
        !corpus_count_fields(o->path, o->n_paths, c, NULL))
        die_usage("prepare dedup: --field: no input is JSONL or Parquet (by its name, or --format)");
}

static void check_values(Options *o, const char *threshold, const char *format)
{
    DedupOptions *d = &o->dedup;
    CorpusOptions *c = &o->corpus.options;
    char *end;
    if (threshold) d->threshold = strtod(threshold, &end);
    if (threshold && (end == threshold || *end || !(d->threshold > 0 && d->threshold <= 1)))
        die_usage("prepare dedup: --threshold: %s: not above 0 and up to 1", threshold);
    c->format = sources_format(format);
    if (!c->separator && !c->line) c->separator = TOKENIZER_EOT;
    if (c->separator && !*c->separator) die_usage("prepare dedup: --separator: empty");
    if (c->separator && c->line) die_usage("prepare dedup: --separator and --separator-line (choose one)");
    if (!d->bands.bands != !d->bands.rows) die_usage("prepare dedup: --bands and --rows go together");
    if (d->bands.bands * d->bands.rows > d->n_perm)
        die_usage("prepare dedup: %zu bands of %zu rows: more than the %zu permutations (try --permutations)", d->bands.bands,
                  d->bands.rows, d->n_perm);
    if (o->evaluation && o->clusters) die_usage("prepare dedup: --clusters does not go with --evaluation");
    if (!o->n_paths && !o->curve) die_usage("prepare dedup: name at least one file (try --help)");
}

static Options parse(int argc, char **argv)
{
    Options o = {.dedup = dedup_defaults(), .min_grams = 1};
    DedupOptions *d = &o.dedup;
    CorpusOptions *c = &o.corpus.options;
    const char *threshold = NULL, *format = "auto";
    bool no_verify = false;
    size_t seed = d->seed, mib = d->memory_bytes >> 20;
    size_t max_document = CORPUS_MIB;
    *c = (CorpusOptions){.log = stderr, .raise = "--max-document"};
    Option row[] = {
        OPTION_HEAD("what counts as a duplicate"),
        OPTION(SWITCH, "--exact", NULL, "only documents whose normalized texts are the same", &d->exact_only,
               .where = EXACT),
        OPTION(TEXT, "--threshold", "T", "Jaccard similarity of the sets of n-grams, 0 to 1 (default 0.8)", &threshold,
               .where = NEAR | CURVE),
        OPTION(SIZE, "--ngram", "N", "words of an n-gram (default 13)", &d->ngram, .least = 1, .most = ANY,
               .where = NEAR | EVALUATION),
        OPTION(SIZE, "--permutations", "N", "numbers of a signature (default 128)", &d->n_perm, .least = 1,
               .most = MINHASH_MAX, .where = NEAR | CURVE),
        OPTION(SIZE, "--bands", "B", "with --rows, instead of those derived from the threshold", &d->bands.bands,
               .least = 1, .most = MINHASH_MAX, .where = NEAR | CURVE),
        OPTION(SIZE, "--rows", "R", "of a band", &d->bands.rows, .least = 1, .most = MINHASH_MAX,
               .where = NEAR | CURVE),
        OPTION(SWITCH, "--no-verify", NULL, "believe the bands: candidates are not compared", &no_verify,
               .where = NEAR),
        OPTION(SIZE, "--seed", "S", "of the permutations (default 0)", &seed, .most = ANY, .where = NEAR),
        OPTION_HEAD("contamination"),
        OPTION(TEXT, "--evaluation", "INPUT",
               "look for its n-grams instead of duplicates; --write and --removed take the hits out", &o.evaluation),
        OPTION(TEXT, "--evaluation-field", "NAME",
               "member of its JSON lines that is looked for (default: that of --field)", &o.evaluation_field,
               .where = EVALUATION),
        OPTION(SIZE, "--min-grams", "N", "n-grams that make a hit (default 1)", &o.min_grams, .least = 1, .most = ANY,
               .where = EVALUATION),
        OPTION_HEAD("input and output"),
        PREPARE_CORPUS(c, format, max_document),
        OPTION(TEXT, "--write", "FILE",
               "the documents that stay; FILE.jsonl: as JSON lines, the original ones where there were such", &o.write,
               .where = NEAR | EXACT | EVALUATION),
        OPTION(TEXT, "--removed", "FILE", "PATH:LINE of the others", &o.removed, .where = NEAR | EXACT | EVALUATION),
        OPTION(TEXT, "--clusters", "FILE", "a JSON line for each cluster of several: what is kept, what is removed",
               &o.clusters, .where = NEAR | EXACT),
        OPTION(SIZE, "--show", "N", "print the text of document N and nothing else", &o.show, .most = ANY),
        OPTION(TEXT, "--curve", "FILE.svg", "draw the S-curve", &o.curve),
        OPTION_HEAD("resources"),
        OPTION(SIZE, "--memory", "MIB",
               "for records, up to what the machine has; the rest is sorted in files (default 256)", &mib, .least = 1,
               .most = most_memory()),
        OPTION(TEXT, "--folder", "DIR", "of these files (default $TMPDIR, else /tmp); they have no names", &d->folder),
        OPTION(INT, "--threads", "N", "1 to 1024 (default: OpenMP's)", &d->threads, .least = 1, .most = 1024),
        OPTION(SWITCH, "--bench", NULL, "seconds and documents a second, per stage", &o.bench, .where = NEAR | EXACT)};
    OptionSet set = {"prepare dedup", help, row, sizeof row / sizeof *row,
                     .missing = "no such option, or its value is missing"};
    o.n_paths = options_read(&set, argc, argv);
    o.path = (const char *const *)argv + 1;
    d->verify = !no_verify, d->seed = seed, d->memory_bytes = mib << 20, c->max_bytes = max_document << 20;
    o.showing = options_given(&set, "--show");
    check_values(&o, threshold, format);
    check_effect(&o, &set);
    return o;
}

static void print_speed(const char *stage, double seconds, size_t n_docs, uint64_t n_bytes)
{
    printf("%-8s %9.3f s %12.0f documents/s %9.1f MB/s\n", stage, seconds, (double)n_docs / seconds,
           (double)n_bytes / seconds / 1e6);
}

static void find_duplicates(Options *o, const DedupSource *source, bool *removed, DiskOut *clusters)
{
    DedupResult r = dedup_run(source, o->dedup);
    dedup_print(&r, stdout);
    for (size_t i = 0; i < r.n_docs; i++) removed[i] = r.keep[i] != i;
    if (clusters) {
        dedup_write_clusters(&r, clusters->f);
        disk_out_commit(clusters);
    }
    if (o->bench) {
        printf("\n%" PRIu64 " bytes written to temporary files\n", r.spilled_bytes);
        print_speed("exact", r.exact_seconds, r.n_docs, r.n_bytes);
        if (!o->dedup.exact_only) print_speed("bands", r.bands_seconds, r.n_unique, r.n_bytes);
        if (!o->dedup.exact_only) printf("%-8s %9.3f s %12.0f pairs/s\n", "compare", r.verify_seconds,
                                         (double)r.n_compared / r.verify_seconds);
        print_speed("all", r.exact_seconds + r.bands_seconds + r.verify_seconds, r.n_docs, r.n_bytes);
    }
    dedup_free(&r);
}

// Read before the corpus, and refused when empty: with nothing to look for, every corpus would seem clean.
static DedupSource open_examples(const Options *o, Documents *evaluation)
{
    evaluation->options = o->corpus.options;
    if (o->evaluation_field) evaluation->options.field = o->evaluation_field;
    DedupSource examples = open_documents(evaluation, &o->evaluation, 1, o->dedup.folder, false, false);
    CorpusCounts c = corpus_counts(evaluation->reader);
    if (!examples.n_docs)
        die("prepare dedup: %s: no example in it: %" PRIu64 " bad lines, %" PRIu64 " empty (is '%s' its field? "
            "--evaluation-field)", o->evaluation, c.bad_lines, c.empty,
            evaluation->options.field ? evaluation->options.field : "text");
    return examples;
}

static void find_contamination(const Options *o, const DedupSource *source, const DedupSource *examples, bool *removed)
{
    ContaminationOptions options = {.ngram = o->dedup.ngram, .min_grams = o->min_grams, .threads = o->dedup.threads};
    Contamination c = contamination_find(source, examples, options);
    if (c.n_short == c.n_examples)
        die("prepare dedup: %s: no example to look for: all %zu have fewer than %zu words (try a smaller --ngram)",
            o->evaluation, c.n_short, options.ngram);
    contamination_print(&c, options, stdout);
    for (size_t i = 0; i < c.n_hits; i++) removed[c.hit[i].doc] = true;
    contamination_free(&c);
}

static void show(Options *o, const DedupSource *source)
{
    DedupText text = {0};
    if (o->show >= source->n_docs) die("prepare dedup: --show %zu: there are %zu documents", o->show, source->n_docs);
    if (!source->read(source->arg, o->show, &text)) source->fail(source->arg, o->show);
    fwrite(text.bytes, 1, text.n_bytes, stdout);
    putchar('\n');
    free(text.bytes);
}

int prepare_dedup(int argc, char **argv)
{
    Options o = parse(argc, argv);
    if (o.curve) {
        dedup_print_curve(&o.dedup, stdout);
        svg_write(o.curve, 690, 366, "The S-curve of MinHash bands", draw_curve, &o.dedup);
    }
    if (!o.n_paths) return 0;
    DiskOut *keep = open_output(o.write, o.path, o.n_paths), *list = open_output(o.removed, o.path, o.n_paths),
            *clusters = open_output(o.clusters, o.path, o.n_paths);
    Documents evaluation = {0};
    DedupSource examples = {0};
    if (o.evaluation && !o.showing) examples = open_examples(&o, &evaluation);
    DedupSource source = open_documents(&o.corpus, o.path, o.n_paths, o.dedup.folder,
                                        o.write && sources_is_jsonl(o.write), !o.showing);
    CorpusCounts counts = corpus_counts(o.corpus.reader);
    int status = o.showing ? 0 : corpus_judge(&counts, o.n_paths == 1 ? *o.path : "prepare dedup: the inputs");
    bool *removed = calloc(source.n_docs + 1, sizeof *removed);
    if (!removed) die("prepare dedup: no memory for %zu documents", source.n_docs);
    if (o.showing) show(&o, &source);
    else if (o.evaluation) find_contamination(&o, &source, &examples, removed);
    else find_duplicates(&o, &source, removed, clusters);
    write_documents(&o.corpus, removed, keep, list);
    free(removed);
    close_documents(&o.corpus);
    close_documents(&evaluation);
    if (fflush(stdout) || ferror(stdout)) die("prepare dedup: cannot write to the screen: %s", strerror(errno));
    return status;
}
