// metrics: writes and reads metrics.jsonl. See metrics.h for the format and the contract.
//
// The invariant: every complete line of the file is one JSON object, and no (event, step) of train or
// val is there twice, however often the run was killed and resumed. A line has reached the kernel when
// metrics_write returns; a kill can cut only the line being written, and metrics_open drops a cut line
// before it appends.
//
// Resuming drops what lies beyond the checkpoint, because those updates will be done again: after it the
// file reads as if the run had never stopped, but for a `resume` line where it did. Rejected: keeping
// both and letting every reader sort out which is valid; each plotting script would have to know. `end`
// lines go too: a run that goes on has not ended, so a file has at most one, and it is last.
//
// The table `fields` is the schema: key, place in MetricsRow, type, events. A key new to the
// project is one row there. Numbers are written by jansson, which undoes the locale's decimal comma;
// 9 significant digits give back any float exactly.
#include "train/metrics.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *event_names[METRICS_EVENTS] = {
    [METRICS_START] = "start", [METRICS_TRAIN] = "train", [METRICS_VAL] = "val",
    [METRICS_SAMPLE] = "sample", [METRICS_SAVE] = "save", [METRICS_RESUME] = "resume",
    [METRICS_SKIP] = "skip", [METRICS_ROLLBACK] = "rollback",
    [METRICS_WARN] = "warn", [METRICS_END] = "end",
};

enum {
    START = 1 << METRICS_START | 1 << METRICS_RESUME,
    TRAIN = 1 << METRICS_TRAIN,
    VAL = 1 << METRICS_VAL | 1 << METRICS_END,
    TEXT = 1 << METRICS_SAMPLE | 1 << METRICS_SAVE | 1 << METRICS_SKIP | 1 << METRICS_ROLLBACK |
           1 << METRICS_WARN,
    ALL = START | TRAIN | VAL | TEXT
};

// NUMBER is always written; KNOWN only when it is not 0.
typedef enum { COUNT, NUMBER, KNOWN, FLAG, STRING } Type;

static const struct {
    const char *key;
    size_t offset;
    Type type;
    int events;
} fields[] = {
#define FIELD(name, type, events) {#name, offsetof(MetricsRow, name), type, events}
    FIELD(step, COUNT, ALL),
    FIELD(name, STRING, START),
    FIELD(text, STRING, START | TEXT),
    FIELD(params, COUNT, START),
    FIELD(steps, COUNT, START),
    FIELD(batch_tokens, COUNT, START),
    FIELD(tokens, COUNT, TRAIN | VAL),
    FIELD(loss, NUMBER, TRAIN),
    FIELD(lr, NUMBER, TRAIN),
    FIELD(grad_norm, NUMBER, TRAIN),
    FIELD(dt_ms, NUMBER, TRAIN),
    FIELD(tok_s, NUMBER, TRAIN),
    FIELD(mfu, NUMBER, TRAIN),
    FIELD(val_loss, NUMBER, VAL),
    FIELD(val_bpb, NUMBER, VAL),
    FIELD(floor_loss, KNOWN, START | VAL),
    FIELD(floor_bpb, KNOWN, START | VAL),
    FIELD(floor_is_bound, FLAG, START),
    FIELD(seconds, NUMBER, VAL),
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

struct Metrics {
    FILE *file;
    char *path;
};

const char *metrics_event_name(MetricsEvent event)
{
    return event_names[event];
}

// ---- writing

// Length of the valid UTF-8 sequence at s (no overlong forms, no surrogates), or 0.
static int words_utf8_length(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
          : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)) return 0;
    return n;
}

// A sample may end in the middle of a character: bytes that are not UTF-8 become U+FFFD.
static json_t *json_text(const char *text)
{
    char *clean = malloc(3 * strlen(text) + 1), *to = clean;
    if (!clean) die("metrics: no memory for a text of %zu bytes", strlen(text));
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = words_utf8_length(s);
        memcpy(to, n ? (const char *)s : "\xef\xbf\xbd", n ? n : 3);
        to += n ? n : 3;
        s += n ? n : 1;
    }
    *to = '\0';
    json_t *json = json_string(clean);
    free(clean);
    return json;
}

static void put(json_t *object, const char *key, const char *suffix, json_t *value)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", key, suffix);
    if (!value || json_object_set_new(object, name, value)) die("metrics: no memory for key %s", name);
}

static void put_number(json_t *object, const char *key, double value)
{
    if (isfinite(value)) {
        put(object, key, "", json_real(value));
        return;
    }
    put(object, key, "", json_null());
    put(object, key, "_nan", json_true());
    if (isinf(value)) put(object, key, "_inf", json_integer(value > 0 ? 1 : -1));
}

static void put_field(json_t *object, int f, const MetricsRow *row)
{
    const char *at = (const char *)row + fields[f].offset, *key = fields[f].key;
    double number = fields[f].type == NUMBER || fields[f].type == KNOWN ? *(const double *)at : 0;
    switch (fields[f].type) {
    case COUNT:
        put(object, key, "", json_integer(*(const int64_t *)at));
        break;
    case NUMBER:
        put_number(object, key, number);
        break;
    case KNOWN:
        if (number != 0 && !isnan(number)) put_number(object, key, number);
        break;
    case FLAG:
        if (*(const bool *)at) put(object, key, "", json_true());
        break;
    case STRING:
        if (*(char *const *)at) put(object, key, "", json_text(*(char *const *)at));
        break;
    }
}

void metrics_write(Metrics *metrics, const MetricsRow *row)
{
    check(row->event >= 0 && row->event < METRICS_EVENTS);
    json_t *object = json_object();
    if (!object) die("metrics: no memory for a line");
    put(object, "event", "", json_string(event_names[row->event]));
    for (int f = 0; f < FIELDS; f++)
        if (fields[f].events & 1 << row->event) put_field(object, f, row);
    put(object, "t", "", json_integer((json_int_t)time(NULL)));
    char *line = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!line) die("metrics: no memory for a line");
    if (fprintf(metrics->file, "%s\n", line) < 0 || fflush(metrics->file))
        die("metrics: cannot write %s: %s (is the disk full?)", metrics->path, strerror(errno));
    free(line);
    json_decref(object);
}

void metrics_close(Metrics *metrics)
{
    if (!metrics) return;
    if (fclose(metrics->file))
        die("metrics: cannot write %s: %s (is the disk full?)", metrics->path, strerror(errno));
    free(metrics->path);
    free(metrics);
}

// ---- reading

// The line's object and its event (-1: unknown to us); NULL when it is none. A cut line lacks its
// brace, so is none.
static json_t *parse_line(const char *line, int *event)
{
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    const char *name = json_string_value(json_object_get(object, "event"));
    if (!name) {
        json_decref(object);
        return NULL;
    }
    *event = -1;
    for (int e = 0; e < METRICS_EVENTS; e++)
        if (!strcmp(name, event_names[e])) *event = e;
    return object;
}

static char *copy_text(const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy) die("metrics: no memory for a text of %zu bytes", strlen(text));
    return copy;
}

static MetricsRow row_of(const json_t *object, MetricsEvent event)
{
    MetricsRow row = {.event = event};
    for (int f = 0; f < FIELDS; f++) {
        char *at = (char *)&row + fields[f].offset;
        const json_t *value = json_object_get(object, fields[f].key);
        switch (fields[f].type) {
        case COUNT: *(int64_t *)at = json_integer_value(value); break;
        case NUMBER: *(double *)at = json_is_number(value) ? json_number_value(value) : NAN; break;
        case KNOWN: *(double *)at = json_number_value(value); break;
        case FLAG: *(bool *)at = json_is_true(value); break;
        case STRING: *(char **)at = copy_text(json_string_value(value)); break;
        }
    }
    return row;
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (!file) die("metrics: cannot open %s: %s", path, strerror(errno));
    return file;
}

MetricsLog metrics_read(const char *path)
{
    MetricsLog log = {0};
    FILE *file = open_file(path, "r");
    char *line = NULL;
    for (size_t cap = 0, rows_cap = 0; getline(&line, &cap, file) >= 0;) {
        int event = -1;
        json_t *object = parse_line(line, &event);
        if (!object) log.n_bad++;
        if (event >= 0) {
            if (log.n_rows == rows_cap) {
                rows_cap = rows_cap ? 2 * rows_cap : 256;
                log.row = realloc(log.row, rows_cap * sizeof *log.row);
                if (!log.row) die("metrics: no memory for the %zu lines of %s", rows_cap, path);
            }
            log.row[log.n_rows++] = row_of(object, event);
        }
        json_decref(object);
    }
    if (!feof(file)) die("metrics: cannot read %s: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return log;
}

void metrics_log_free(MetricsLog *log)
{
    for (size_t i = 0; i < log->n_rows; i++) {
        free((char *)log->row[i].name);
        free((char *)log->row[i].text);
    }
    free(log->row);
    *log = (MetricsLog){0};
}

// ---- opening

// Copies the lines that a run resumed after update resume_step keeps, byte for byte.
static void copy_kept_lines(FILE *to, FILE *from, int64_t resume_step)
{
    char *line = NULL;
    for (size_t cap = 0; getline(&line, &cap, from) >= 0;) {
        int event;
        json_t *object = parse_line(line, &event);
        bool keep = object && event != METRICS_END
                    && json_integer_value(json_object_get(object, "step")) <= resume_step;
        if (keep) fprintf(to, "%s%s", line, strchr(line, '\n') ? "" : "\n"); // errors stay in ferror(to)
        json_decref(object);
    }
    free(line);
}

static void sync_directory_of(const char *path)
{
    char *copy = copy_text(path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fsync(fd) || close(fd))
        die("metrics: cannot sync the directory of %s: %s", path, strerror(errno));
    free(copy);
}

static void drop_undone_lines(const char *path, int64_t resume_step)
{
    FILE *from = fopen(path, "r");
    if (!from && errno == ENOENT) return; // someone deleted it: begin anew
    if (!from) die("metrics: cannot open %s: %s", path, strerror(errno));
    char aside[4096];
    if (snprintf(aside, sizeof aside, "%s.tmp", path) >= (int)sizeof aside)
        die("metrics: path too long: %s", path);
    unlink(aside); // it may be a link to something else
    FILE *to = open_file(aside, "w");
    copy_kept_lines(to, from, resume_step);
    if (!feof(from)) die("metrics: cannot read %s: %s", path, strerror(errno));
    if (ferror(to) || fflush(to) || fsync(fileno(to)) || fclose(to) || rename(aside, path))
        die("metrics: cannot rewrite %s through %s: %s (is the disk full?)", path, aside, strerror(errno));
    fclose(from);
    sync_directory_of(path);
}

Metrics *metrics_open(const char *path, int64_t resume_step)
{
    if (resume_step > 0) drop_undone_lines(path, resume_step);
    Metrics *metrics = malloc(sizeof *metrics);
    if (!metrics) die("metrics: no memory");
    *metrics = (Metrics){.file = open_file(path, resume_step > 0 ? "a" : "w"), .path = copy_text(path)};
    return metrics;
}
