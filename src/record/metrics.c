// metrics: writes, reads and draws metrics.jsonl. See metrics.h for the format and the contract.
//
// The invariant: every complete line of the file is one JSON object, and no (event, step) of train or
// val is there twice, however often the run was killed and resumed. A line has reached the kernel when
// metrics_write returns; a kill can cut only the line being written, and metrics_open drops a cut line
// before it appends.
//
// Resuming drops the lines after the checkpoint, because those updates will be made again: afterwards the file reads as
// if the run had never stopped, except for a `resume` line where it did. Rejected: keeping both and letting every
// reader decide which is valid; each plotting script would have to do it. `end` lines are dropped too (that of a
// finished run becomes a `val` line): a resumed run has not ended, so a file has at most one, and it is last.
//
// The table `fields` is the schema: key, place in MetricsRow, type, events. A key new to the
// project is one row there. Numbers are written by jansson, which undoes the locale's decimal comma;
// 9 significant digits give back any float exactly.
#include "record/metrics.h"

#include "base/check.h"
#include "base/disk.h"
#include "tools/svg.h"
#include "base/words.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *event_names[METRICS_EVENTS] = {
    [METRICS_START] = "start", [METRICS_TRAIN] = "train", [METRICS_VAL] = "val",
    [METRICS_SAMPLE] = "sample", [METRICS_SAVE] = "save", [METRICS_RESUME] = "resume",
    [METRICS_SKIP] = "skip", [METRICS_ROLLBACK] = "rollback",
    [METRICS_WARN] = "warn", [METRICS_END] = "end",
    [METRICS_SET] = "set", [METRICS_TASK] = "task", [METRICS_EXPERTS] = "experts",
    [METRICS_PACE] = "pace",
};

enum {
    START = 1 << METRICS_START | 1 << METRICS_RESUME,
    TRAIN = 1 << METRICS_TRAIN,
    VAL = 1 << METRICS_VAL | 1 << METRICS_END,
    SET = 1 << METRICS_SET,
    TASK = 1 << METRICS_TASK,
    EXPERTS = 1 << METRICS_EXPERTS,
    PACE = 1 << METRICS_PACE,
    TEXT = 1 << METRICS_SAMPLE | 1 << METRICS_SAVE | 1 << METRICS_SKIP | 1 << METRICS_ROLLBACK |
           1 << METRICS_WARN,
    ALL = START | TRAIN | VAL | SET | TASK | EXPERTS | PACE | TEXT
};

// COUNT and NUMBER are always written; BYTES (a count, too) and KNOWN only when they are not 0; TIME, rounded to microseconds, unless
// it is NAN.
typedef enum { COUNT, BYTES, NUMBER, KNOWN, TIME, FLAG, STRING } Type;

static const struct {
    const char *key;
    size_t offset;
    Type type;
    int events;
} fields[] = {
#define FIELD(name, type, events) {#name, offsetof(MetricsRow, name), type, events}
    FIELD(step, COUNT, ALL),
    FIELD(name, STRING, START | SET | TASK | EXPERTS),
    FIELD(text, STRING, START | TEXT | EXPERTS),
    FIELD(params, COUNT, START),
    FIELD(steps, COUNT, START | PACE),
    FIELD(eval_tokens, BYTES, START),
    FIELD(batch_tokens, COUNT, START),
    FIELD(tokens, COUNT, TRAIN | VAL | SET | TASK | EXPERTS),
    FIELD(loss, NUMBER, TRAIN),
    FIELD(lr, NUMBER, TRAIN),
    FIELD(grad_norm, NUMBER, TRAIN),
    FIELD(dt_ms, NUMBER, TRAIN),
    FIELD(tok_s, NUMBER, TRAIN),
    FIELD(mfu, NUMBER, TRAIN),
    FIELD(val_loss, NUMBER, VAL | SET),
    FIELD(val_bpb, NUMBER, VAL | SET),
    FIELD(floor_loss, KNOWN, START | VAL),
    FIELD(floor_bpb, KNOWN, START | VAL),
    FIELD(floor_is_bound, FLAG, START),
    FIELD(seconds, NUMBER, VAL | PACE),
    FIELD(items, COUNT, TASK),
    FIELD(acc, NUMBER, TASK),
    FIELD(acc_norm, NUMBER, TASK),
    FIELD(acc_token, NUMBER, TASK),
    FIELD(centred, NUMBER, TASK),
    FIELD(perplexity, NUMBER, TASK),
    FIELD(load_max, NUMBER, EXPERTS),
    FIELD(load_min, NUMBER, EXPERTS),
    FIELD(max_vio, NUMBER, EXPERTS),
    FIELD(share_max, NUMBER, EXPERTS),
    FIELD(share_min, NUMBER, EXPERTS),
    FIELD(idle, COUNT, EXPERTS),
    FIELD(entropy, NUMBER, EXPERTS),
    FIELD(entropy_nats, NUMBER, EXPERTS),
    FIELD(dropped, NUMBER, EXPERTS),
    FIELD(gate_max, KNOWN, EXPERTS),
    FIELD(balance_loss, KNOWN, EXPERTS),
    FIELD(z_loss, KNOWN, EXPERTS),
    FIELD(bias_min, KNOWN, EXPERTS),
    FIELD(bias_max, KNOWN, EXPERTS),
    FIELD(val_ppl, NUMBER, VAL | SET),
    FIELD(ppl, NUMBER, TRAIN),
    FIELD(samples_s, NUMBER, TRAIN),
    FIELD(data_ms, TIME, TRAIN),
    FIELD(forward_ms, TIME, TRAIN),
    FIELD(backward_ms, TIME, TRAIN),
    FIELD(comm_ms, TIME, TRAIN),
    FIELD(optim_ms, TIME, TRAIN),
    FIELD(save_ms, TIME, TRAIN),
    FIELD(eval_ms, TIME, TRAIN),
    FIELD(noise_scale, KNOWN, TRAIN),
    FIELD(screened, BYTES, TRAIN),
    FIELD(spikes, COUNT, TRAIN),
    FIELD(skips, COUNT, TRAIN),
#undef FIELD
#define HELD(tag, name) {"mem_" name, offsetof(MetricsRow, mem[tag]), BYTES, START}
    HELD(MEM_PARAMS, "parameters"), HELD(MEM_GRADS, "gradients"), HELD(MEM_OPTIM, "optimizer"),
    HELD(MEM_ACTS, "activations"), HELD(MEM_COMM, "communication"),
    HELD(MEM_SCRATCH, "scratch"), HELD(MEM_HOST, "host"),
#undef HELD
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

// A sample may end in the middle of a character.
static json_t *json_text(const char *text)
{
    char *clean = words_utf8_copy(text);
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
    bool real = fields[f].type == NUMBER || fields[f].type == KNOWN || fields[f].type == TIME;
    double number = real ? *(const double *)at : NAN;
    switch (fields[f].type) {
    case BYTES:
        if (!*(const int64_t *)at) break;
        // fall through
    case COUNT:
        put(object, key, "", json_integer(*(const int64_t *)at));
        break;
    case TIME:
        if (!isnan(number)) put_number(object, key, round(1000 * number) / 1000);
        break;
    case KNOWN:
        if (number != 0 && !isnan(number)) put_number(object, key, number);
        break;
    case NUMBER:
        put_number(object, key, number);
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
        case COUNT:
        case BYTES: *(int64_t *)at = json_integer_value(value); break;
        case TIME:
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

// Copies the lines that a run resumed after update resume_step keeps, byte for byte. Where it had made all its steps
// (and was given more since), the validation of its end becomes one on the way.
static void copy_kept_lines(FILE *to, FILE *from, int64_t resume_step, int64_t steps)
{
    char *line = NULL;
    const char end[] = "{\"event\":\"end\"";
    int64_t validated = -1, planned = -1;
    for (size_t cap = 0; getline(&line, &cap, from) >= 0;) {
        int event = -1;
        json_t *object = parse_line(line, &event);
        int64_t step = json_integer_value(json_object_get(object, "step"));
        bool keep = object && step <= resume_step;
        const char *rest = line;
        if (event == METRICS_VAL) validated = step;
        if (json_object_get(object, "steps")) planned = json_integer_value(json_object_get(object, "steps"));
        if (keep && event == METRICS_END) {
            keep = step == planned && step < steps && step != validated && json_is_number(json_object_get(object, "val_loss")) &&
                   !strncmp(line, end, sizeof end - 1);
            rest += sizeof end - 1;
            if (keep) fputs("{\"event\":\"val\"", to);
        }
        if (keep) fprintf(to, "%s%s", rest, strchr(line, '\n') ? "" : "\n"); // errors stay in ferror(to)
        json_decref(object);
    }
    free(line);
}

static void drop_undone_lines(const char *path, int64_t resume_step, int64_t steps)
{
    FILE *from = fopen(path, "r");
    if (!from && errno == ENOENT) return; // someone deleted it: begin anew
    if (!from) die("metrics: cannot open %s: %s", path, strerror(errno));
    DiskOut *to = disk_out_open(path);
    copy_kept_lines(to->f, from, resume_step, steps);
    if (!feof(from)) die("metrics: cannot read %s: %s", path, strerror(errno));
    disk_out_commit(to);
    fclose(from);
}

// Lines are appended, so that a file which somebody empties during the run gets no gap of zero bytes.
Metrics *metrics_open(const char *path, int64_t resume_step, int64_t steps)
{
    if (resume_step > 0) drop_undone_lines(path, resume_step, steps);
    else fclose(open_file(path, "w"));
    Metrics *metrics = malloc(sizeof *metrics);
    if (!metrics) die("metrics: no memory");
    *metrics = (Metrics){.file = open_file(path, "a"), .path = copy_text(path)};
    return metrics;
}

// ---- loss.svg
//
// Pictures: every mark stands at the value the file has; the one derived curve is the smoothed one (svg.h).
//
// The vertical range answers "how far from the floor?": it goes from just below the floor (or the
// lowest loss) to the highest smoothed loss after the first 5% of the run. A loss that starts at
// log(vocabulary) would otherwise take nine tenths of the picture for its first seconds; the part above
// is clipped, and a note says where it began. Rejected: a logarithmic loss axis (distances to the floor
// cannot be read off it) and one on log(loss - floor) (needs a floor).

enum { WIDTH = 960, HEIGHT = 600 };

// One field of the lines of one event, over tokens (or steps, when no tokens are known).
static SvgSeries series_of(const MetricsLog *log, MetricsEvent event, size_t offset, bool over_tokens)
{
    SvgSeries s = svg_series(log->n_rows);
    for (size_t i = 0; i < log->n_rows; i++) {
        const MetricsRow *row = &log->row[i];
        if (row->event != event) continue;
        s.x[s.n] = (double)(over_tokens ? row->tokens : row->step);
        s.y[s.n++] = *(const double *)((const char *)row + offset);
    }
    return s;
}

// What the picture is made of, gathered once.
typedef struct {
    SvgSeries train, mean, val, lr, norm;
    double x1;             // where the axis of tokens ends
    double floor;          // 0: not known
    bool floor_is_bound, over_tokens;
    double val_bpb;        // at the last evaluation
    const MetricsRow *start, *last, *end; // of the run; the last train line; the end line or NULL
    const char *title;
} Run;

// Root mean square of the raw losses around the smoothed curve.
static double noise(const Run *run, double from)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < run->train.n; i++) {
        double d = run->train.y[i] - run->mean.y[i];
        if (run->train.x[i] >= from && isfinite(d)) sum += d * d, count++;
    }
    return count ? sqrt(sum / count) : 0;
}

// See the top of the file; and wide enough for nearly all of the raw curve's noise.
static void loss_range(const Run *run, double *low, double *high)
{
    double from = run->train.n < 40 ? 0 : run->train.x[0] + 0.05 * (run->x1 - run->train.x[0]);
    double low_mean = NAN, high_mean = NAN;
    svg_range(&run->mean, from, &low_mean, &high_mean);
    *low = *high = run->floor > 0 ? run->floor : NAN;
    svg_range(&run->mean, from, low, high);
    svg_range(&run->val, from, low, high);
    if (isnan(*low)) *low = 0, *high = 1; // no finite loss at all
    double pad = fmax(0.07 * (*high - *low), 1e-3 * fabs(*high) + 1e-6), band = 2.5 * noise(run, from);
    *low = fmax(0, fmin(*low - pad, isnan(low_mean) ? *low : low_mean - band));
    *high += fmax(pad, band);
}

static void draw_val_points(FILE *f, const SvgPanel *p, const SvgSeries *val)
{
    for (size_t i = 0; i < val->n && val->n <= 60; i++)
        if (isfinite(val->y[i]) && val->y[i] <= p->y1)
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.4\" fill=\"" SVG_ORANGE "\" stroke=\"#fff\"/>\n",
                    svg_px(p, val->x[i]), svg_py(p, val->y[i]));
}

// Where the run was resumed, rolled back, warned of, or had a loss that is not a number.
static void draw_incidents(FILE *f, const SvgPanel *p, const MetricsLog *log, const Run *run)
{
    double x = 0; // events carry a step only; they stand where the train line before them stands
    int bad = 0;
    for (size_t i = 0; i < log->n_rows; i++) {
        const MetricsRow *row = &log->row[i];
        if (row->event == METRICS_TRAIN) x = (double)(run->over_tokens ? row->tokens : row->step);
        bool wrong = row->event == METRICS_SKIP || row->event == METRICS_ROLLBACK
                     || (row->event == METRICS_TRAIN && !isfinite(row->loss));
        if (row->event == METRICS_RESUME) {
            svg_line(f, svg_px(p, x), p->y, svg_px(p, x), p->y + p->h, SVG_AXIS, 1, "2 3");
            svg_text(f, svg_px(p, x) + 4, p->y + 11, "start", 11, SVG_GREY, false, "resumed");
        }
        if (row->event == METRICS_ROLLBACK) {
            svg_line(f, svg_px(p, x), p->y, svg_px(p, x), p->y + p->h, SVG_RED, 1, "2 3");
            svg_text(f, svg_px(p, x) + 4, p->y + 25, "start", 11, SVG_RED, false, "rolled back");
        }
        if (row->event == METRICS_WARN)
            svg_line(f, svg_px(p, x), p->y, svg_px(p, x), p->y + 8, SVG_ORANGE, 1.5, NULL);
        if (wrong && bad++ < 500) svg_line(f, svg_px(p, x), p->y, svg_px(p, x), p->y + 8, SVG_RED, 1.5, NULL);
    }
    char text[80];
    snprintf(text, sizeof text, "%d bad step%s (not finite, skipped or rolled back)", bad,
             bad == 1 ? "" : "s");
    if (bad) svg_text(f, p->x + p->w, p->y - 12, "end", 12, SVG_RED, false, text);
}

// The floor, and a tint below it where no model can get.
static void draw_floor(FILE *f, const SvgPanel *p, double floor)
{
    double y = svg_py(p, floor);
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"" SVG_GREEN "\" "
            "fill-opacity=\"0.07\"/>\n", p->x, y, p->w, p->y + p->h - y);
    svg_line(f, p->x, y, p->x + p->w, y, SVG_GREEN, 1.8, "7 5");
}

// Says where the clipped start began, beside the point where the curve comes into view.
static void draw_begin(FILE *f, const SvgPanel *p, const Run *run)
{
    size_t i = 0;
    while (i < run->mean.n && !(run->mean.y[i] <= p->y1)) i++;
    if (i == 0 || i == run->mean.n) return;
    char text[64];
    snprintf(text, sizeof text, "↑ from %.2f at the first step", run->train.y[0]);
    svg_text(f, svg_px(p, run->mean.x[i]) + 14, p->y + 12, "start", 11.5, SVG_GREY, false, text);
}

static void draw_loss_labels(FILE *f, const SvgPanel *p, const Run *run)
{
    SvgLabel label[3];
    int n = 0;
    double train = svg_last(&run->mean), val = svg_last(&run->val);
    if (isfinite(train)) {
        label[n] = (SvgLabel){.value = train, .color = SVG_BLUE, .detail = "smoothed"};
        snprintf(label[n++].head, 80, "training %.3f", train);
    }
    if (isfinite(val)) {
        label[n] = (SvgLabel){.value = val, .color = SVG_ORANGE};
        snprintf(label[n].head, 80, "validation %.3f", val);
        if (isfinite(run->val_bpb)) snprintf(label[n].detail, 80, "%.3f bits per byte", run->val_bpb);
        n++;
    }
    if (run->floor > 0) {
        label[n] = (SvgLabel){.value = run->floor, .color = SVG_GREEN};
        const char *what = run->floor_is_bound ? "floor, at most" : "entropy floor";
        snprintf(label[n].head, 80, "%s %.3f", what, run->floor);
        double above = 100 * (val / run->floor - 1);
        if (isfinite(val))
            snprintf(label[n].detail, 80, "validation is %.1f%% %s", fabs(above),
                     above < 0 ? "below" : "above");
        n++;
    }
    svg_labels(f, p, label, n);
}

static void draw_loss(FILE *f, const Run *run, const MetricsLog *log, const char *x_title)
{
    SvgPanel p = {.x = 64, .y = 106, .w = 690, .h = 294, .x1 = run->x1};
    loss_range(run, &p.y0, &p.y1);
    svg_clip(f, &p, "loss");
    svg_frame(f, &p, 8, 7, x_title, "loss, nats per token");
    draw_incidents(f, &p, log, run);
    if (run->floor > 0) draw_floor(f, &p, run->floor);
    svg_curve(f, &p, "loss", &run->train, SVG_BLUE, 1, 0.3);
    svg_curve(f, &p, "loss", &run->mean, SVG_BLUE, 2.2, 1);
    svg_curve(f, &p, "loss", &run->val, SVG_ORANGE, 1.4, run->val.n <= 60 ? 0.55 : 1);
    draw_val_points(f, &p, &run->val);
    draw_begin(f, &p, run);
    draw_loss_labels(f, &p, run);
}

// ---- the small panels and the whole

static void draw_small(FILE *f, const char *clip, double x, double w, const Run *run, const SvgSeries *s,
                       const char *x_title, const char *title)
{
    SvgPanel p = {.x = x, .y = 472, .w = w, .h = 76, .x1 = run->x1};
    double low = NAN, early = NAN;
    p.y1 = NAN;
    svg_range(s, s->n < 40 ? 0 : 0.05 * run->x1, &low, &p.y1);
    svg_range(s, 0, &low, &early);
    if (early < 1.3 * p.y1) p.y1 = early; // the start hardly higher: show it all
    if (!(p.y1 > 0)) p.y1 = 1;
    p.y1 *= 1.08;
    svg_clip(f, &p, clip);
    svg_frame(f, &p, 5, 3, x_title, title);
    SvgSeries mean = svg_smooth(s);
    bool noisy = s == &run->norm;
    svg_curve(f, &p, clip, s, SVG_BLUE, noisy ? 1 : 2, noisy ? 0.35 : 1);
    if (noisy) svg_curve(f, &p, clip, &mean, SVG_BLUE, 1.8, 1);
    svg_series_free(&mean);
}

static void draw_header(FILE *f, const Run *run, const char *title)
{
    char line[400] = "", number[32];
    const MetricsRow *start = run->start;
    svg_text(f, 24, 36, "start", 20, SVG_INK, true, title);
    if (start && start->text && strlen(start->text) < 150)
        svg_text(f, 24, 56, "start", 12.5, SVG_GREY, false, start->text);
    size_t at = 0;
#define ADD(...) at += (size_t)snprintf(line + at, sizeof line - at, __VA_ARGS__)
    if (start && start->params > 0) {
        svg_count(number, (double)start->params);
        ADD(" · %s parameters", number);
    }
    if (run->last) {
        svg_count(number, (double)run->last->tokens);
        if (run->over_tokens) ADD(" · %s tokens", number);
        ADD(" · %lld steps", (long long)run->last->step);
    }
    if (run->end && isfinite(run->end->seconds)) ADD(" · %.1f minutes", run->end->seconds / 60);
#undef ADD
    const char *separator = " · ";
    if (at) svg_text(f, WIDTH - 24, 36, "end", 12.5, SVG_GREY, false, line + strlen(separator));
}

static Run gather(const MetricsLog *log, double floor)
{
    Run run = {.floor = floor, .val_bpb = NAN};
    for (size_t i = 0; i < log->n_rows; i++) {
        const MetricsRow *row = &log->row[i];
        if (row->event == METRICS_START || row->event == METRICS_RESUME) run.start = row;
        if (row->event == METRICS_TRAIN) run.last = row;
        run.end = row->event == METRICS_END ? row : NULL;
        if (row->event == METRICS_VAL || row->event == METRICS_END) run.val_bpb = row->val_bpb;
        if (!(floor > 0) && row->floor_loss > 0) run.floor = row->floor_loss;
    }
    run.title = run.start && run.start->name && *run.start->name ? run.start->name : "training run";
    run.floor_is_bound = run.start && run.start->floor_is_bound;
    run.over_tokens = run.last && run.last->tokens > 0;
    run.train = series_of(log, METRICS_TRAIN, offsetof(MetricsRow, loss), run.over_tokens);
    run.lr = series_of(log, METRICS_TRAIN, offsetof(MetricsRow, lr), run.over_tokens);
    run.norm = series_of(log, METRICS_TRAIN, offsetof(MetricsRow, grad_norm), run.over_tokens);
    run.val = series_of(log, METRICS_VAL, offsetof(MetricsRow, val_loss), run.over_tokens);
    run.mean = svg_smooth(&run.train);
    for (size_t i = 0; i < run.train.n; i++) run.x1 = fmax(run.x1, run.train.x[i]);
    if (run.end) { // the closing evaluation is a point too; a series has room for every line of the file
        run.val.x[run.val.n] = (double)(run.over_tokens ? run.end->tokens : run.end->step);
        run.val.y[run.val.n++] = run.end->val_loss;
    }
    return run;
}

typedef struct {
    Run run;
    const MetricsLog *log;
} Picture;

static void draw(FILE *f, void *arg)
{
    const Picture *p = arg;
    const Run *run = &p->run;
    draw_header(f, run, run->title);
    const char *x_title = run->over_tokens ? "tokens" : "steps";
    if (!run->train.n) {
        svg_text(f, WIDTH / 2, HEIGHT / 2, "middle", 16, SVG_GREY, false, "no training step yet");
        return;
    }
    draw_loss(f, run, p->log, x_title);
    draw_small(f, "lr", 64, 376, run, &run->lr, x_title, "learning rate");
    draw_small(f, "norm", 548, 376, run, &run->norm, x_title, "gradient norm");
}

static void run_free(Run *run)
{
    SvgSeries *all[] = {&run->train, &run->mean, &run->val, &run->lr, &run->norm};
    for (int i = 0; i < 5; i++) svg_series_free(all[i]);
}

void metrics_plot_loss(const char *metrics_path, const char *svg_path, const char *title, double floor)
{
    MetricsLog log = metrics_read(metrics_path);
    Picture p = {gather(&log, floor), &log};
    if (title) p.run.title = title;
    svg_write(svg_path, WIDTH, HEIGHT, p.run.title, draw, &p);
    run_free(&p.run);
    metrics_log_free(&log);
}

// ---- several runs

enum { OVERLAY_HEIGHT = 460, OVERLAY_RUNS = 8 };

typedef struct {
    const char *title, *const *name;
    int n;
    MetricsLog log[OVERLAY_RUNS];
    Run run[OVERLAY_RUNS];
} Overlay;

// From the lowest smoothed loss to the highest after the first 5% of the longest run.
static SvgPanel overlay_panel(const Overlay *o)
{
    SvgPanel p = {.x = 64, .y = 106, .w = 690, .h = 290, .y0 = NAN, .y1 = NAN};
    for (int i = 0; i < o->n; i++) p.x1 = fmax(p.x1, o->run[i].x1);
    for (int i = 0; i < o->n; i++) svg_range(&o->run[i].mean, 0.05 * p.x1, &p.y0, &p.y1);
    if (isnan(p.y0)) p.y0 = 0, p.y1 = 1;
    double pad = fmax(0.05 * (p.y1 - p.y0), 1e-3);
    p.y0 = fmax(0, p.y0 - pad);
    p.y1 += pad;
    return p;
}

static void draw_overlay(FILE *f, void *arg)
{
    static const char *const color[OVERLAY_RUNS] = {SVG_BLUE, SVG_ORANGE, SVG_GREEN, "#7b4ab5", SVG_RED, "#0f8a94",
                                                    "#8a6d1d", SVG_INK};
    const Overlay *o = arg;
    SvgPanel p = overlay_panel(o);
    SvgLabel label[OVERLAY_RUNS];
    int n = 0;
    svg_text(f, 24, 36, "start", 20, SVG_INK, true, o->title);
    svg_text(f, 24, 58, "start", 12.5, SVG_GREY, false,
             "thin: each step; thick: smoothed; labels: the last smoothed value");
    svg_clip(f, &p, "loss");
    svg_frame(f, &p, 8, 7, o->run[0].over_tokens ? "tokens" : "steps", "training loss, nats per token");
    for (int i = 0; i < o->n; i++) svg_curve(f, &p, "loss", &o->run[i].train, color[i], 0.8, 0.25);
    for (int i = 0; i < o->n; i++) {
        svg_curve(f, &p, "loss", &o->run[i].mean, color[i], 1.8, 0.9);
        double last = svg_last(&o->run[i].mean), val = svg_last(&o->run[i].val);
        if (!isfinite(last)) continue;
        label[n] = (SvgLabel){.value = last, .color = color[i]};
        snprintf(label[n].head, 80, "%.60s %.3f", o->name[i], last);
        if (isfinite(val)) snprintf(label[n].detail, 80, "validation %.3f", val);
        n++;
    }
    svg_labels(f, &p, label, n);
}

void metrics_plot_overlay(const char *const *metrics_path, const char *const *name, int n, const char *svg_path,
                          const char *title)
{
    if (n < 1 || n > OVERLAY_RUNS) die("plot: %d runs in one picture (1 to %d)", n, OVERLAY_RUNS);
    Overlay o = {.title = title, .name = name, .n = n};
    for (int i = 0; i < n; i++) {
        o.log[i] = metrics_read(metrics_path[i]);
        o.run[i] = gather(&o.log[i], 0);
    }
    svg_write(svg_path, WIDTH, OVERLAY_HEIGHT, title, draw_overlay, &o);
    for (int i = 0; i < n; i++) {
        run_free(&o.run[i]);
        metrics_log_free(&o.log[i]);
    }
}
