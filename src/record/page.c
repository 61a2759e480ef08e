// page: writes report.html. See metrics.h.
//
// The template (report.html beside this file) is compiled in. Its element "data" gets the run's files: the lines of
// metrics.jsonl as they stand, the text of config.toml, trace.json. The script of the template does the rest.
//
// A run may have a million lines; the page stays small. Train lines are taken in groups of successive ones. Of each
// group the page gets those with the least and the greatest loss, the greatest gradient norm and the longest time, so
// that no spike is lost, and the last; and the means of all. When there are PAGE_GROUPS groups, neighbours are joined
// in pairs. So are val lines. Of other lines the newest stay.
//
// The invariant: every byte of a run's files is valid JSON without "<" in the page, and the script writes it as text.
#include "record/metrics.h"

#include "base/check.h"
#include "base/config.h"
#include "base/disk.h"
#include "base/words.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The assembler reads the file: from the root of the tree, or by -I.
__asm__(".pushsection .rodata\npage_template:\n.incbin \"src/record/report.html\"\n.byte 0\n.popsection");
extern const char page_template[];

enum { FILE_BYTES = 1 << 21, LINE_BYTES = 1 << 16, TEXT_BYTES = 6000, KEYS = 64, KEY_BYTES = 48 };

// ---- one line, and groups of them

enum { LOW_LOSS, HIGH_LOSS, HIGH_NORM, HIGH_TIME, LAST_LINE, EXTREMES }; // what a group keeps a line for

typedef struct {
    size_t at;                // its number in the file
    double extreme[EXTREMES]; // the line with the greatest is kept; -INFINITY: has no such number
    char *text;
} Line;

typedef struct {
    double count, bad, sum, timed; // finite numbers and others; sum of them, and of each times its line's dt_ms
} Sum;

typedef struct {
    Line line[EXTREMES];
    int n;
    double from, to; // its steps
    Sum sum[KEYS];
} Group;

// All lines of one kind.
typedef struct {
    Line *line; // those that are kept one by one
    size_t n, cap, bytes, lines; // lines: of the file
    Group *group; // each of stride lines, the last one of in_last
    size_t n_groups, stride, in_last;
    int n_keys;
    char key[KEYS][KEY_BYTES];
    double last[KEYS]; // finite ones
} Kind;

static const struct {
    const char *event;
    size_t bytes; // 0: as groups; of others the newest, of so many bytes in all
} kinds[] = {{"train", 0},          {"val", 0},       {"set", 1000000},  {"task", 1000000},
             {"experts", 4000000},  {"sample", 400000}, {"save", 50000}, {"start", 50000},
             {"resume", 50000},     {"pace", 1000},   {"other", 400000}};
enum { KINDS = sizeof kinds / sizeof *kinds, OTHERS = KINDS - 1 };

static void add_sum(Sum *to, const Sum *s)
{
    to->count += s->count, to->bad += s->bad, to->sum += s->sum, to->timed += s->timed;
}

// Appends b to a. Of all their lines those with an extreme stay.
static void join(Group *a, const Group *b)
{
    Line all[2 * EXTREMES];
    bool keep[2 * EXTREMES] = {false};
    int n = a->n + b->n;
    memcpy(all, a->line, (size_t)a->n * sizeof *all), memcpy(all + a->n, b->line, (size_t)b->n * sizeof *all);
    for (int e = 0; e < EXTREMES; e++) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if (all[i].extreme[e] > all[best].extreme[e]) best = i;
        keep[best] = true;
    }
    a->n = 0;
    for (int i = 0; i < n; i++)
        if (keep[i]) a->line[a->n++] = all[i];
        else free(all[i].text);
    a->to = b->to;
    for (int k = 0; k < KEYS; k++) add_sum(&a->sum[k], &b->sum[k]);
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

// -INFINITY: there is none. null is as high as can be: it was not finite.
static double extreme(const json_t *value, double sign)
{
    return json_is_number(value) ? sign * json_number_value(value) : value && sign > 0 ? INFINITY : -INFINITY;
}

static void add_to_group(Kind *kind, json_t *object, Line line, double step)
{
    const json_t *loss = json_object_get(object, "loss");
    if (!loss) loss = json_object_get(object, "val_loss");
    line.extreme[LOW_LOSS] = extreme(loss, -1), line.extreme[HIGH_LOSS] = extreme(loss, 1);
    line.extreme[HIGH_NORM] = extreme(json_object_get(object, "grad_norm"), 1);
    line.extreme[HIGH_TIME] = extreme(json_object_get(object, "dt_ms"), 1), line.extreme[LAST_LINE] = (double)line.at;
    Group one = {.line = {line}, .n = 1, .from = step, .to = step};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        int k = 0;
        if (!(json_is_number(value) || json_is_null(value)) || strlen(key) >= KEY_BYTES) continue;
        while (k < kind->n_keys && strcmp(kind->key[k], key)) k++;
        if (k == KEYS) continue; // a page of bounded size
        if (k == kind->n_keys) strcpy(kind->key[kind->n_keys++], key), kind->last[k] = NAN;
        double x = json_number_value(value);
        if (json_is_null(value)) one.sum[k].bad = 1;
        else one.sum[k] = (Sum){1, 0, x, x * number(object, "dt_ms")}, kind->last[k] = x;
    }
    if (!kind->group) kind->group = malloc(PAGE_GROUPS * sizeof *kind->group), kind->stride = 1;
    if (!kind->group) die("page: no memory for %d groups", PAGE_GROUPS);
    if (kind->n_groups && kind->in_last < kind->stride) {
        join(&kind->group[kind->n_groups - 1], &one), kind->in_last++;
        return;
    }
    if (kind->n_groups == PAGE_GROUPS) {
        for (size_t i = 0; i < PAGE_GROUPS / 2; i++) {
            join(&kind->group[2 * i], &kind->group[2 * i + 1]);
            kind->group[i] = kind->group[2 * i];
        }
        kind->n_groups /= 2, kind->stride *= 2;
    }
    kind->group[kind->n_groups++] = one, kind->in_last = 1;
}

// Where the lines get more than most_bytes, the older half goes.
static void add_line(Kind *kind, size_t most_bytes, Line line)
{
    kind->line = words_grow(kind->line, &kind->cap, kind->n + 1, sizeof *kind->line);
    kind->line[kind->n++] = line, kind->bytes += strlen(line.text);
    if (kind->bytes <= most_bytes) return;
    size_t half = kind->n / 2;
    for (size_t i = 0; i < half; i++) kind->bytes -= strlen(kind->line[i].text), free(kind->line[i].text);
    kind->n -= half;
    memmove(kind->line, kind->line + half, kind->n * sizeof *kind->line);
}

// ---- the file

typedef struct {
    Kind kind[KINDS];
    size_t lines, bad; // of the file; of them cut or no event
} Run;

static void take(Run *run, char *text)
{
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *event = json_string_value(json_object_get(object, "event"));
    const char *words = json_string_value(json_object_get(object, "text"));
    double step = number(object, "step");
    char *own = NULL;
    int k = 0;
    while (event && k < OTHERS && strcmp(event, kinds[k].event)) k++;
    if (words && strlen(words) > TEXT_BYTES && strcmp(kinds[k].event, "experts")) {
        size_t n = words_utf8_border(words, strlen(words), TEXT_BYTES);
        json_object_set_new(object, "text", json_sprintf("%.*s ...", (int)n, words));
        own = json_dumps(object, JSON_COMPACT);
    } else {
        text[strcspn(text, "\n")] = '\0';
        own = strdup(text);
    }
    if (!own) die("page: no memory for a line");
    run->lines++;
    if (!event || fabs(step) >= 1e15 || strlen(own) > LINE_BYTES) { // a larger step has no exact place
        run->bad++;
        free(own);
    } else {
        Line line = {.at = run->lines, .text = own};
        run->kind[k].lines++;
        if (kinds[k].bytes) add_line(&run->kind[k], kinds[k].bytes, line);
        else add_to_group(&run->kind[k], object, line, step);
    }
    json_decref(object);
}

static void read_run(Run *run, const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT) return;
    if (!file) die("page: cannot open %s: %s", path, strerror(errno));
    char *line = NULL;
    for (size_t cap = 0; getline(&line, &cap, file) >= 0;) take(run, line);
    if (!feof(file)) die("page: cannot read %s: %s", path, strerror(errno));
    free(line);
    fclose(file);
}

// ---- into the page. What is valid JSON has "<" only in its strings.

static void put_json(FILE *f, const char *json)
{
    for (; *json; json++)
        if (*json == '<') fputs("\\u003c", f);
        else fputc(*json, f);
}

static json_t *string(const char *text)
{
    char *clean = words_utf8_copy(text ? text : "");
    json_t *value = json_string(clean);
    free(clean);
    return value;
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

// Of each key: [key, last, count, bad, sum, timed]. Where groups have more than a line, each one's steps and means too.
static json_t *totals(const Kind *kind, json_t *means)
{
    json_t *all = json_array();
    for (int k = 0; k < kind->n_keys; k++) {
        Sum sum = {0};
        for (size_t i = 0; i < kind->n_groups; i++) add_sum(&sum, &kind->group[i].sum[k]);
        json_array_append_new(all, json_pack("[s,o,f,f,o,o]", kind->key[k], real(kind->last[k]), sum.count, sum.bad,
                                             real(sum.sum), real(sum.timed)));
    }
    for (size_t i = 0; kind->stride > 1 && i < kind->n_groups; i++) {
        const Group *g = &kind->group[i];
        json_t *one = json_pack("[f,f]", g->from, g->to);
        for (int k = 0; k < kind->n_keys; k++) json_array_append_new(one, real(g->sum[k].sum / g->sum[k].count));
        json_array_append_new(means, one);
    }
    return all;
}

static int by_place(const void *a, const void *b)
{
    size_t x = ((const Line *)a)->at, y = ((const Line *)b)->at;
    return (x > y) - (x < y);
}

// All lines that are kept, in the order of the file. Frees them.
static void put_lines(FILE *f, Run *run)
{
    Line *all = NULL;
    size_t n = 0, cap = 0;
    for (Kind *kind = run->kind; kind < run->kind + KINDS; kind++) {
        all = words_grow(all, &cap, n + kind->n + kind->n_groups * EXTREMES, sizeof *all);
        for (size_t i = 0; i < kind->n; i++) all[n++] = kind->line[i];
        for (size_t i = 0; i < kind->n_groups; i++)
            for (int k = 0; k < kind->group[i].n; k++) all[n++] = kind->group[i].line[k];
        free(kind->line), free(kind->group);
    }
    if (n) qsort(all, n, sizeof *all, by_place);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ",\n" : "\n", f), put_json(f, all[i].text);
        free(all[i].text);
    }
    free(all);
}

// The settings that this program knows: default, whether it is a number, what it means.
static json_t *settings(void)
{
    int n;
    const ConfigKey *key = config_table(&n);
    json_t *all = json_object();
    for (int i = 0; i < n; i++) {
        bool number = key[i].type == CONFIG_INTEGER || key[i].type == CONFIG_NUMBER;
        json_object_set_new(all, key[i].name, json_pack("[s?,b,s]", key[i].def, number, key[i].help));
    }
    return all;
}

static char *read_file(const char *dir, const char *name)
{
    char path[PATH_MAX];
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return disk_read_file(path, &n_bytes, FILE_BYTES);
}

static void put_data(FILE *f, Run *run, const char *dir)
{
    char *config = read_file(dir, "config.toml"), *trace = read_file(dir, "trace.json");
    json_t *counts = json_object(), *means = json_array(), *sums = totals(&run->kind[0], means);
    for (int k = 0; k < KINDS; k++)
        json_object_set_new(counts, kinds[k].event, json_integer((json_int_t)run->kind[k].lines));
    json_t *rest = json_pack("{s:o, s:I, s:b, s:o, s:o, s:o?, s:I, s:o, s:o, s:o}", "dir", string(dir), "now",
                             (json_int_t)time(NULL), "running", disk_lock_held(dir), "config", string(config),
                             "settings", settings(), "trace", trace ? json_loads(trace, 0, NULL) : NULL, "bad",
                             (json_int_t)run->bad, "counts", counts, "totals", sums, "means", means);
    char *text = json_dumps(rest, JSON_COMPACT | JSON_REAL_PRECISION(10));
    if (!text) die("page: no memory for the data of %s", dir);
    fputs("\n{\"lines\":[", f);
    put_lines(f, run);
    fputs("],\n", f), put_json(f, text + 1), fputs("\n", f);
    json_decref(rest);
    free(text), free(config), free(trace);
}

bool page_write(const char *dir, const char *path)
{
    static const char mark[] = "id=\"data\">";
    char metrics[PATH_MAX], own[PATH_MAX], real_path[PATH_MAX], *text = NULL;
    size_t n_bytes = 0;
    if (strlen(dir) > PATH_MAX - 40) die("page: path too long: %s", dir);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
    snprintf(own, sizeof own, "%s/report.html", dir);
    const char *rest = strstr(page_template, mark) + strlen(mark), *to = path ? path : own;
    Run run = {0};
    read_run(&run, metrics);
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f) die("page: no memory");
    fwrite(page_template, 1, (size_t)(rest - page_template), f);
    put_data(f, &run, dir);
    fputs(rest, f);
    if (ferror(f) || fclose(f) || !text) die("page: no memory");
    if (!disk_is_special(to) && realpath(to, real_path)) to = real_path; // a link is followed
    bool written = disk_replace_file(to, text, n_bytes);
    int error = errno;
    free(text);
    errno = error;
    return written;
}
