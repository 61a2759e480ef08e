// dedup: finds exact and near duplicates among the documents of text and JSONL files, or pieces of an evaluation set.
//
//     build/dedup corpus.jsonl                                 how much is duplicate, and a report
//     build/dedup --write clean.jsonl --clusters c.jsonl --removed r.txt a.jsonl b.jsonl
//     build/dedup --evaluation test.jsonl --write clean.jsonl corpus.jsonl     leaves out what holds pieces of it
//     build/dedup --threshold 0.7 --curve curve.svg            bands, rows and the S-curve of a threshold
//     build/dedup --show 17 corpus.jsonl                       the text of document 17
//
// Documents are numbered from 0 in the order of the files. In FILE.jsonl (.ndjson, .json) each line is an object with a
// member "text"; any other file is text, with "<|endoftext|>" between documents. Documents are read again by their
// place in the file, so input must be files that do not change meanwhile, and memory does not hold their texts: 24
// bytes a document for the places, and what --memory says.
#define _GNU_SOURCE // memmem
#include "check.h"
#include "contamination.h"
#include "dedup.h"
#include "svg.h"
#include "tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- documents of files

enum { OPEN_FILES = 256 }; // of more files, the others are opened for each document

typedef struct {
    uint64_t at, line;
    uint64_t n_bytes : 40, file : 24;
} Place;

typedef struct {
    const char *path;
    bool json;
    int fd; // -1: opened when needed
} File;

typedef struct {
    const char *field, *separator;
    File *file;
    size_t n_files;
    Place *place;
    size_t n, cap;
} Documents;

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && !strcmp(path + n - m, end);
}

static bool blank(const char *s, size_t n)
{
    while (n && (*s == ' ' || (*s >= '\t' && *s <= '\r'))) s++, n--;
    return !n;
}

static void add_place(Documents *d, Place place)
{
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 1024;
        d->place = realloc(d->place, d->cap * sizeof *d->place);
        if (!d->place) die("dedup: no memory for the places of %zu documents", d->cap);
    }
    d->place[d->n++] = place;
}

// A file that is read once, from front to end: bytes [from, n) of the buffer are the next ones.
typedef struct {
    const char *path;
    int fd;
    char *buffer;
    size_t from, n, cap;
    bool end;
} Reader;

static void read_more(Reader *r)
{
    r->n -= r->from;
    memmove(r->buffer, r->buffer + r->from, r->n);
    r->from = 0;
    if (r->n == r->cap && !(r->buffer = realloc(r->buffer, r->cap *= 2)))
        die("dedup: %s: no memory for a document of %zu bytes", r->path, r->cap / 2);
    ssize_t got = read(r->fd, r->buffer + r->n, r->cap - r->n);
    if (got < 0 && errno != EINTR) die("dedup: %s: %s", r->path, strerror(errno));
    r->end = got == 0;
    if (got > 0) r->n += (size_t)got;
}

// The length of the next document, and of what ends it.
static size_t next_length(Reader *r, const char *between, size_t *n_between)
{
    size_t n = strlen(between), searched = 0;
    for (;;) {
        char *begin = r->buffer + r->from, *found = memmem(begin + searched, r->n - r->from - searched, between, n);
        *n_between = found ? n : 0;
        if (found || r->end) return found ? (size_t)(found - begin) : r->n - r->from;
        searched = r->n - r->from < n ? 0 : r->n - r->from - n + 1;
        read_more(r);
    }
}

// Finds where documents begin and end; what holds nothing but white space is none.
static void index_file(Documents *d, size_t which)
{
    File *file = &d->file[which];
    Reader r = {.path = file->path, .fd = open(file->path, O_RDONLY | O_CLOEXEC), .cap = 1 << 18};
    uint64_t at = 0, line = 1;
    struct stat st;
    if (r.fd < 0) die("dedup: %s: %s", file->path, strerror(errno));
    if (fstat(r.fd, &st) || !S_ISREG(st.st_mode)) die("dedup: %s: not a file that can be read twice", file->path);
    r.buffer = malloc(r.cap);
    if (!r.buffer) die("dedup: no memory");
    while (!r.end || r.from < r.n) {
        size_t n_between, length = next_length(&r, file->json ? "\n" : d->separator, &n_between);
        const char *text = r.buffer + r.from, *stop = text + length + n_between;
        if (!blank(text, length)) add_place(d, (Place){at, line, length & ((1ull << 40) - 1), which & 0xffffff});
        for (const char *c = text; (c = memchr(c, '\n', (size_t)(stop - c))); c++) line++;
        at += length + n_between;
        r.from += length + n_between;
    }
    free(r.buffer);
    file->fd = which < OPEN_FILES ? r.fd : -1;
    if (file->fd < 0) close(r.fd);
}

// The bytes of document i as they stand in its file.
static bool read_raw(const Documents *d, size_t i, DedupText *text)
{
    Place place = d->place[i];
    int fd = d->file[place.file].fd;
    bool keep = fd >= 0;
    dedup_text_room(text, place.n_bytes + 1);
    if (!keep) fd = open(d->file[place.file].path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t got = 0;
    while (got < place.n_bytes) {
        ssize_t k = pread(fd, text->bytes + got, place.n_bytes - got, (off_t)(place.at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        got += (size_t)k;
    }
    if (!keep) close(fd);
    text->n_bytes = place.n_bytes;
    return got == place.n_bytes;
}

// The text of document i, or false and a sentence.
static bool read_text(const Documents *d, size_t i, DedupText *text, char *why, size_t n_why)
{
    json_error_t error;
    if (!read_raw(d, i, text)) {
        snprintf(why, n_why, "cannot be read again (did the file change?)");
        return false;
    }
    if (!d->file[d->place[i].file].json) return true;
    json_t *object = json_loadb(text->bytes, text->n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    json_t *string = json_object_get(object, d->field);
    if (!object) snprintf(why, n_why, "column %d: %.100s", error.column, error.text);
    else if (!json_is_string(string)) snprintf(why, n_why, "no string \"%.100s\" (name the member: --field)", d->field);
    else { // never longer than it was written
        text->n_bytes = json_string_length(string);
        memcpy(text->bytes, json_string_value(string), text->n_bytes);
    }
    bool ok = json_is_string(string);
    json_decref(object);
    return ok;
}

static bool read_doc(void *arg, size_t i, DedupText *text)
{
    char why[256];
    return read_text(arg, i, text, why, sizeof why);
}

static void fail_doc(void *arg, size_t i)
{
    Documents *d = arg;
    DedupText text = {0};
    char why[256] = "cannot be read";
    read_text(d, i, &text, why, sizeof why);
    die("dedup: %s:%" PRIu64 ": %s", d->file[d->place[i].file].path, d->place[i].line, why);
}

static DedupSource open_documents(Documents *d, char **path, size_t n)
{
    d->file = calloc(n, sizeof *d->file);
    if (!d->file) die("dedup: no memory for %zu files", n);
    for (size_t i = d->n_files = 0; i < n; i++, d->n_files++) {
        bool json = ends_with(path[i], ".jsonl") || ends_with(path[i], ".ndjson") || ends_with(path[i], ".json");
        d->file[i] = (File){path[i], json, -1};
        index_file(d, i);
    }
    return (DedupSource){d->n, read_doc, fail_doc, d};
}

static void close_documents(Documents *d)
{
    for (size_t i = 0; i < d->n_files; i++)
        if (d->file[i].fd >= 0) close(d->file[i].fd);
    free(d->file);
    free(d->place);
}

// ---- what is written

typedef struct {
    const char *path;
    char aside[4096];
    FILE *f;
} Output;

// Written aside and put in place when it is whole: an output may even be one of the inputs.
static Output open_output(const char *path)
{
    Output o = {.path = path};
    if (snprintf(o.aside, sizeof o.aside, "%s.tmp", path) >= (int)sizeof o.aside) die("dedup: %s: too long", path);
    o.f = fopen(o.aside, "wb");
    if (!o.f) die("dedup: %s: %s", o.aside, strerror(errno));
    return o;
}

// Before the work begins: can it be written?
static void try_output(const char *path)
{
    if (!path) return;
    Output o = open_output(path);
    fclose(o.f);
    unlink(o.aside);
}

static void close_output(Output *o)
{
    bool bad = ferror(o->f) != 0;
    if (fclose(o->f) || bad || rename(o->aside, o->path))
        die("dedup: cannot write %s: %s (is the disk full?)", o->path, strerror(errno));
}

// Documents that stay, as they are in their files, each with what stands between documents there; and a line PATH:LINE
// for each of the others.
static void write_documents(const Documents *d, const bool *removed, const char *keep_path, const char *list_path)
{
    DedupText text = {0};
    if (keep_path) {
        Output o = open_output(keep_path);
        for (size_t i = 0; i < d->n; i++) {
            if (removed[i]) continue;
            if (!read_raw(d, i, &text)) fail_doc((void *)d, i);
            fwrite(text.bytes, 1, text.n_bytes, o.f);
            fputs(d->file[d->place[i].file].json ? "\n" : d->separator, o.f);
        }
        close_output(&o);
    }
    if (list_path) {
        Output o = open_output(list_path);
        for (size_t i = 0; i < d->n; i++)
            if (removed[i]) fprintf(o.f, "%s:%" PRIu64 "\n", d->file[d->place[i].file].path, d->place[i].line);
        close_output(&o);
    }
    free(text.bytes);
}

// The curve that was asked for, last and on top, beside those of other thresholds.
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
    const char *write, *clusters, *removed, *evaluation, *curve;
    size_t min_grams, show;
    bool bench, showing;
    char **path;
    size_t n_paths;
} Options;

static const char help[] =
    "usage: dedup [options] FILE...        find duplicates; FILE.jsonl: a document a line, else text\n"
    "       dedup --curve FILE.svg [options]   bands, rows and the S-curve; draws it\n"
    "what counts as a duplicate\n"
    "  --exact            only documents whose normalized texts are the same\n"
    "  --threshold T      Jaccard similarity of the sets of n-grams, 0 to 1 (default 0.8)\n"
    "  --ngram N          words of an n-gram (default 13)\n"
    "  --permutations N   numbers of a signature (default 128)\n"
    "  --bands B --rows R instead of those derived from the threshold\n"
    "  --no-verify        believe the bands: candidates are not compared\n"
    "  --seed S           of the permutations (default 0)\n"
    "contamination\n"
    "  --evaluation FILE  look for its n-grams instead of duplicates; --write and --removed take the hits out\n"
    "  --min-grams N      n-grams that make a hit (default 1)\n"
    "input and output\n"
    "  --field NAME       member of a JSON line that is the text (default text)\n"
    "  --separator TEXT   what stands between the documents of a text file (default <|endoftext|>)\n"
    "  --write FILE       the documents that stay, as they were\n"
    "  --removed FILE     PATH:LINE of the others\n"
    "  --clusters FILE    a JSON line for each cluster of several: what is kept, what is removed\n"
    "  --show N           print the text of document N and nothing else\n"
    "resources\n"
    "  --memory MIB       for records; the rest is sorted in files (default 256)\n"
    "  --folder DIR       of these files (default $TMPDIR, else /tmp); they have no names\n"
    "  --threads N        (default: OpenMP's)\n"
    "  --bench            seconds and documents a second, per stage\n";

static size_t whole(const char *option, const char *value, size_t least)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno || n < least || n > SIZE_MAX >> 21)
        die_usage("dedup: %s: %s: not a whole number from %zu on (try --help)", option, value, least);
    return (size_t)n;
}

// Options with a value.
static void set(Options *o, const char *name, const char *value)
{
    DedupOptions *d = &o->dedup;
    char *end;
    if (!strcmp(name, "--threshold")) {
        d->threshold = strtod(value, &end);
        if (end == value || *end || !(d->threshold > 0 && d->threshold <= 1))
            die_usage("dedup: %s: %s: not above 0 and up to 1", name, value);
    } else if (!strcmp(name, "--ngram")) d->ngram = whole(name, value, 1);
    else if (!strcmp(name, "--permutations")) d->n_perm = whole(name, value, 1);
    else if (!strcmp(name, "--bands")) d->bands.bands = whole(name, value, 1);
    else if (!strcmp(name, "--rows")) d->bands.rows = whole(name, value, 1);
    else if (!strcmp(name, "--seed")) d->seed = whole(name, value, 0);
    else if (!strcmp(name, "--memory")) d->memory_bytes = whole(name, value, 1) << 20;
    else if (!strcmp(name, "--threads")) d->threads = (int)(whole(name, value, 1) & 0xffff);
    else if (!strcmp(name, "--folder")) d->folder = value;
    else if (!strcmp(name, "--field")) o->corpus.field = value;
    else if (!strcmp(name, "--separator")) o->corpus.separator = value;
    else if (!strcmp(name, "--write")) o->write = value;
    else if (!strcmp(name, "--removed")) o->removed = value;
    else if (!strcmp(name, "--clusters")) o->clusters = value;
    else if (!strcmp(name, "--evaluation")) o->evaluation = value;
    else if (!strcmp(name, "--min-grams")) o->min_grams = whole(name, value, 1);
    else if (!strcmp(name, "--show")) o->show = whole(name, value, 0), o->showing = true;
    else if (!strcmp(name, "--curve")) o->curve = value;
    else die_usage("dedup: %s: no such option (try --help)", name);
}

static Options parse(int argc, char **argv)
{
    Options o = {.dedup = dedup_defaults(), .corpus = {.field = "text", .separator = TOKENIZER_EOT}, .min_grams = 1};
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(help, stdout);
            exit(0);
        }
        if (!strcmp(argv[i], "--exact")) o.dedup.exact_only = true;
        else if (!strcmp(argv[i], "--no-verify")) o.dedup.verify = false;
        else if (!strcmp(argv[i], "--bench")) o.bench = true;
        else if (i + 1 < argc) set(&o, argv[i], argv[i + 1]), i++;
        else die_usage("dedup: %s: no such option, or its value is missing (try --help)", argv[i]);
    }
    o.path = argv + i;
    o.n_paths = (size_t)(argc - i);
    DedupOptions *d = &o.dedup;
    if (d->n_perm > MINHASH_MAX) die_usage("dedup: --permutations %zu: more than %d", d->n_perm, MINHASH_MAX);
    if (!d->bands.bands != !d->bands.rows) die_usage("dedup: --bands and --rows go together");
    if (d->bands.bands > MINHASH_MAX || d->bands.rows > MINHASH_MAX || d->bands.bands * d->bands.rows > d->n_perm)
        die_usage("dedup: %zu bands of %zu rows: more than the %zu permutations (try --permutations)", d->bands.bands,
                  d->bands.rows, d->n_perm);
    if (!*o.corpus.separator) die_usage("dedup: --separator: empty");
    if (o.evaluation && o.clusters) die_usage("dedup: --clusters does not go with --evaluation");
    if (!o.n_paths && !o.curve) die_usage("dedup: name at least one file (try --help)");
    return o;
}

static void print_speed(const char *stage, double seconds, size_t n_docs, uint64_t n_bytes)
{
    printf("%-8s %9.3f s %12.0f documents/s %9.1f MB/s\n", stage, seconds, (double)n_docs / seconds,
           (double)n_bytes / seconds / 1e6);
}

static void find_duplicates(Options *o, const DedupSource *source, bool *removed)
{
    DedupResult r = dedup_run(source, o->dedup);
    dedup_print(&r, stdout);
    for (size_t i = 0; i < r.n_docs; i++) removed[i] = r.keep[i] != i;
    if (o->clusters) {
        Output out = open_output(o->clusters);
        dedup_write_clusters(&r, out.f);
        close_output(&out);
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

static void find_contamination(Options *o, const DedupSource *source, bool *removed)
{
    Documents evaluation = o->corpus;
    evaluation.place = NULL;
    evaluation.n = evaluation.cap = 0;
    char *path[] = {(char *)o->evaluation};
    ContaminationOptions options = {.ngram = o->dedup.ngram, .min_grams = o->min_grams, .threads = o->dedup.threads};
    DedupSource examples = open_documents(&evaluation, path, 1);
    Contamination c = contamination_find(source, &examples, options);
    contamination_print(&c, options, stdout);
    for (size_t i = 0; i < c.n_hits; i++) removed[c.hit[i].doc] = true;
    contamination_free(&c);
    close_documents(&evaluation);
}

static void show(Options *o, const DedupSource *source)
{
    DedupText text = {0};
    if (o->show >= source->n_docs) die("dedup: --show %zu: there are %zu documents", o->show, source->n_docs);
    if (!source->read(source->arg, o->show, &text)) source->fail(source->arg, o->show);
    fwrite(text.bytes, 1, text.n_bytes, stdout);
    putchar('\n');
    free(text.bytes);
}

int main(int argc, char **argv)
{
    Options o = parse(argc, argv);
    if (o.curve) {
        dedup_print_curve(&o.dedup, stdout);
        svg_write(o.curve, 690, 366, "The S-curve of MinHash bands", draw_curve, &o.dedup);
    }
    if (!o.n_paths) return 0;
    try_output(o.write);
    try_output(o.removed);
    try_output(o.clusters);
    DedupSource source = open_documents(&o.corpus, o.path, o.n_paths);
    bool *removed = calloc(source.n_docs + 1, sizeof *removed);
    if (!removed) die("dedup: no memory for %zu documents", source.n_docs);
    if (o.showing) show(&o, &source);
    else if (o.evaluation) find_contamination(&o, &source, removed);
    else find_duplicates(&o, &source, removed);
    write_documents(&o.corpus, removed, o.write, o.removed);
    free(removed);
    close_documents(&o.corpus);
    if (fflush(stdout) || ferror(stdout)) die("dedup: cannot write to the screen: %s", strerror(errno));
    return 0;
}
