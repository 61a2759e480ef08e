// schedule_print: the learning rate and the batch of a whole run, as a table, as a drawing in characters, and
// as a picture (SVG). What `build/plan schedule` shows.
//
// Every value comes from schedule_lr_ramped, schedule_momentum and schedule_ramp_at, the functions that the run itself
// calls for each step; nothing here knows a formula. So what is drawn is what will be trained.
//
// The table has the steps at which something begins or ends (marks), each with a note: a table of every hundredth
// step would miss them all. In the drawing a column shows one step of its share of the run; in the picture the marks
// are points of the curve too, so that its corners are exact.
//
// The drawing runs over steps, the picture over tokens: while the batch grows they are not the same, and a
// budget is in tokens.
//
// Rejected: the axes of metrics.c with round numbers. Here the axis shows the peak, the final rate and the batch sizes
// instead.
#include "train/schedule.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/disk.h"

enum { MAX_MARKS = 16, NOTE = 96, COLUMNS = 72, ROWS = 10, SAMPLES = 480 };

typedef struct {
    long step;
    char note[NOTE];
} Mark;

// What is drawn, and the marks in the order of their steps.
typedef struct {
    const Schedule *schedule;
    const Ramp *ramp;
    long steps;
    Mark mark[MAX_MARKS];
    int n_marks;
} Sheet;

static double lr_of(const Sheet *s, long step)
{
    return schedule_lr_ramped(s->schedule, s->ramp, step);
}

static double momentum_of(const Sheet *s, long step)
{
    return schedule_momentum(s->schedule, step);
}

static double batch_of(const Sheet *s, long step)
{
    return (double)(schedule_ramp_at(s->ramp, step).sequences * s->ramp->context);
}

static double tokens_before(const Sheet *s, long step)
{
    return (double)schedule_ramp_at(s->ramp, step).before * (double)s->ramp->context;
}

static bool ramps(const Ramp *r)
{
    return r->tokens > 0 && r->from < r->to;
}

// ---- marks

// Inserts a note in the order of steps; a step that has one gets both. Steps outside the run are ignored.
static void add_mark(Sheet *s, long step, const char *note)
{
    if (step < 0 || step >= s->steps) return;
    int i = s->n_marks;
    while (i > 0 && s->mark[i - 1].step > step) i--;
    if (i > 0 && s->mark[i - 1].step == step) {
        char *text = s->mark[i - 1].note;
        size_t n = strlen(text);
        snprintf(text + n, NOTE - n, ", %s", note);
        return;
    }
    check(s->n_marks < MAX_MARKS);
    memmove(s->mark + i + 1, s->mark + i, (size_t)(s->n_marks - i) * sizeof *s->mark);
    s->mark[i].step = step;
    snprintf(s->mark[i].note, NOTE, "%s", note);
    s->n_marks++;
}

static long decay_begins(const Schedule *s)
{
    return s->kind == SCHEDULE_WSD && s->decay_start > (double)s->warmup ? (long)s->decay_start : s->warmup;
}

static void mark_decay(Sheet *s)
{
    const Schedule *schedule = s->schedule;
    long begin = decay_begins(schedule), end = schedule->decay_steps;
    if (schedule->kind == SCHEDULE_CONSTANT) return;
    if (schedule->kind == SCHEDULE_INVSQRT) {
        add_mark(s, 4 * (schedule->warmup > 0 ? schedule->warmup : 1) - 1, "half of the peak");
        return;
    }
    if (end > begin) add_mark(s, begin, "decay begins");
    if (end - begin > 1) add_mark(s, begin + (end - begin) / 2, "half of the decay");
    add_mark(s, end > begin ? end : begin, "decay done");
}

static void mark_ramp(Sheet *s)
{
    const Ramp *r = s->ramp;
    if (!ramps(r)) return;
    add_mark(s, schedule_reaches(r, r->from + 1), "batch begins to grow");
    long half = schedule_reaches(r, (r->from + r->to + 1) / 2);
    if ((r->to - r->from) / r->by > 2) add_mark(s, half, "half of the ramp");
    add_mark(s, schedule_reaches(r, r->to), "batch full");
}

static Sheet make_sheet(const Schedule *schedule, const Ramp *ramp, long steps)
{
    check(steps > 0);
    Sheet s = {.schedule = schedule, .ramp = ramp, .steps = steps};
    add_mark(&s, 0, "first step");
    if (schedule->warmup > 0) add_mark(&s, schedule->warmup - 1, "warm-up done");
    if (schedule->momentum_warmup > 0) add_mark(&s, schedule->momentum_warmup, "momentum full");
    mark_ramp(&s);
    mark_decay(&s);
    add_mark(&s, steps - 1, "last step");
    return s;
}

// ---- words

static void describe_lr(const Schedule *s, char *text, size_t n_text)
{
    const char *shape[] = {[SCHEDULE_SHAPE_LINEAR] = "linear", [SCHEDULE_SHAPE_COSINE] = "cosine",
                           [SCHEDULE_SHAPE_EXPONENTIAL] = "exponential", [SCHEDULE_SHAPE_SQRT] = "1-sqrt"};
    int n = s->warmup ? snprintf(text, n_text, "warm-up over %ld steps to %.4g, ", s->warmup, s->lr)
                      : snprintf(text, n_text, "from %.4g without warm-up, ", s->lr);
    char *end = text + n;
    n_text -= (size_t)n;
    ScheduleShape fall = s->kind == SCHEDULE_COSINE ? SCHEDULE_SHAPE_COSINE
                         : s->kind == SCHEDULE_LINEAR ? SCHEDULE_SHAPE_LINEAR : s->shape;
    if (s->kind == SCHEDULE_CONSTANT) snprintf(end, n_text, "then constant");
    else if (s->kind == SCHEDULE_INVSQRT) snprintf(end, n_text, "then as 1 / sqrt(step)");
    else snprintf(end, n_text, "%s decay from step %ld to %.4g at step %ld", shape[fall], decay_begins(s),
                  s->min_lr, s->decay_steps);
}

static void describe_batch(const Ramp *r, char *text, size_t n_text)
{
    long long full = r->to * r->context, from = r->from * r->context;
    if (!ramps(r)) snprintf(text, n_text, "%lld tokens (%lld sequences) at each step", full, (long long)r->to);
    else snprintf(text, n_text, "%lld to %lld tokens over the first %lld tokens, in steps of %lld%s", from, full,
                  (long long)r->tokens, (long long)(r->by * r->context),
                  r->scale_lr ? "; learning rate times sqrt(batch / full)" : "");
}

// 1500000 as 1.5M
static void short_count(char text[32], double v)
{
    const char *unit[] = {"", "k", "M", "B", "T"};
    int i = 0;
    for (; i < 4 && v >= 999.5; i++) v /= 1000;
    snprintf(text, 32, "%.3g%s", v, unit[i]);
}

// ---- the drawing in characters

// One column per share of the steps; rows from 0 to the highest value. A steep rise fills all its rows.
static void draw_rows(const Sheet *s, double (*value)(const Sheet *, long), bool counts, const char *title,
                      FILE *out)
{
    int n = s->steps < COLUMNS ? (int)s->steps : COLUMNS, row[COLUMNS];
    double v[COLUMNS], high = 0;
    for (int c = 0; c < n; c++) {
        long step = n > 1 ? (long)((double)c * (double)(s->steps - 1) / (n - 1) + 0.5) : 0;
        v[c] = value(s, step);
        high = fmax(high, v[c]);
    }
    for (int c = 0; c < n; c++) row[c] = high > 0 ? (int)lround(v[c] / high * (ROWS - 1)) : 0;
    char top[32];
    if (counts) short_count(top, high);
    else snprintf(top, sizeof top, "%.4g", high);
    fprintf(out, "\n%s\n", title);
    for (int r = ROWS - 1; r >= 0; r--) {
        char line[COLUMNS + 1];
        int end = 0; // after the last mark of the line
        for (int c = 0; c < n; c++) {
            int before = c ? row[c - 1] : row[c];
            bool here = r == row[c] || (r > before && r < row[c]) || (r < before && r > row[c]);
            line[c] = here ? '*' : ' ';
            if (here) end = c + 1;
        }
        line[end] = 0;
        fprintf(out, "%12s |%s\n", r == ROWS - 1 ? top : r ? "" : "0", line);
    }
    fprintf(out, "%12s +", "");
    for (int c = 0; c < n; c++) fputc('-', out);
    fprintf(out, "\n%14sstep 0%*ld\n", "", n > 9 ? n - 6 : 3, s->steps - 1);
}

void schedule_print(const Schedule *schedule, const Ramp *ramp, long steps, FILE *out)
{
    Sheet s = make_sheet(schedule, ramp, steps);
    char text[256];
    describe_lr(schedule, text, sizeof text);
    fprintf(out, "learning rate: %s\n", text);
    describe_batch(ramp, text, sizeof text);
    fprintf(out, "batch: %s\n", text);
    if (schedule->momentum_warmup > 0)
        fprintf(out, "momentum: %.4g to %.4g over the first %ld steps\n", schedule->momentum_start, schedule->momentum,
                schedule->momentum_warmup);
    fprintf(out, "run: %ld steps, %.0f tokens\n\n", steps, tokens_before(&s, steps));
    fprintf(out, "%10s %18s %12s %14s\n", "step", "tokens before", "batch", "learning rate");
    for (int i = 0; i < s.n_marks; i++) {
        long step = s.mark[i].step;
        fprintf(out, "%10ld %18.0f %12.0f %14.6g  %s\n", step, tokens_before(&s, step), batch_of(&s, step),
                lr_of(&s, step), s.mark[i].note);
    }
    draw_rows(&s, lr_of, false, "learning rate", out);
    if (schedule->momentum_warmup > 0) draw_rows(&s, momentum_of, false, "momentum", out);
    if (ramps(ramp)) draw_rows(&s, batch_of, true, "batch, tokens", out);
}

// ---- the picture

typedef struct {
    double y, h, high; // of the panel; high: the value at its top
} Panel;

static const double left = 96, width = 830;

static double px(const Sheet *s, double tokens)
{
    return left + width * tokens / tokens_before(s, s->steps);
}

static double py(const Panel *p, double value)
{
    return p->y + p->h * (1 - (p->high > 0 ? value / p->high : 0));
}

static void put_text(FILE *f, double x, double y, const char *anchor, const char *color, const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, color,
            text);
}

static void put_level(FILE *f, const Panel *p, double value, const char *label)
{
    fprintf(f, "<path stroke=\"#e7eaee\" d=\"M%.1f %.1fh%.1f\"/>\n", left, py(p, value), width);
    put_text(f, left - 8, py(p, value) + 4, "end", "#66727f", label);
}

static int compare_steps(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

// The steps that are drawn: evenly spaced ones, and the marks.
static int choose_steps(const Sheet *s, long step[SAMPLES + MAX_MARKS])
{
    int n = s->steps < SAMPLES ? (int)s->steps : SAMPLES;
    for (int i = 0; i < n; i++)
        step[i] = n > 1 ? (long)((double)i * (double)(s->steps - 1) / (n - 1)) : 0;
    for (int i = 0; i < s->n_marks; i++) step[n++] = s->mark[i].step;
    qsort(step, (size_t)n, sizeof *step, compare_steps);
    return n;
}

// A step is as wide as its tokens: its point is where it begins, and the curve ends where the last step does.
static void put_curve(FILE *f, const Sheet *s, const Panel *p, double (*value)(const Sheet *, long), bool stairs,
                      const char *color)
{
    long step[SAMPLES + MAX_MARKS];
    int n = choose_steps(s, step);
    fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\" d=\"", color);
    for (int i = 0; i < n; i++) {
        double x = px(s, tokens_before(s, step[i])), y = py(p, value(s, step[i]));
        if (i && stairs) fprintf(f, "H%.1f", x);
        fprintf(f, "%c%.1f %.1f", i ? 'L' : 'M', x, y);
    }
    fprintf(f, "H%.1f\"/>\n", px(s, tokens_before(s, s->steps)));
}

static void put_panels(FILE *f, const Sheet *s)
{
    Panel lr = {.y = 118, .h = 210, .high = 0}, batch = {.y = 380, .h = 90, .high = batch_of(s, s->steps - 1)};
    char label[32];
    long step[SAMPLES + MAX_MARKS];
    int n = choose_steps(s, step);
    for (int i = 0; i < n; i++) lr.high = fmax(lr.high, lr_of(s, step[i]));
    put_text(f, left - 8, lr.y - 14, "start", "#1f2933", "learning rate");
    put_text(f, left - 8, batch.y - 14, "start", "#1f2933", "batch, tokens");
    double low_lr = lr_of(s, s->steps - 1), low_batch = batch_of(s, 0);
    put_level(f, &lr, 0, "0");
    put_level(f, &batch, 0, "0");
    snprintf(label, sizeof label, "%.3g", lr.high);
    put_level(f, &lr, lr.high, label);
    snprintf(label, sizeof label, "%.3g", low_lr);
    if (low_lr > 0.06 * lr.high && low_lr < 0.94 * lr.high) put_level(f, &lr, low_lr, label);
    short_count(label, batch.high);
    put_level(f, &batch, batch.high, label);
    short_count(label, low_batch);
    if (low_batch > 0.2 * batch.high && low_batch < 0.8 * batch.high) put_level(f, &batch, low_batch, label);
    for (int i = 0; i <= 4; i++) {
        double tokens = tokens_before(s, s->steps) * i / 4;
        short_count(label, tokens);
        put_text(f, px(s, tokens), batch.y + batch.h + 20, "middle", "#66727f", label);
    }
    put_text(f, left + width, batch.y + batch.h + 38, "end", "#66727f", "tokens");
    put_curve(f, s, &lr, lr_of, false, "#2563a8");
    put_curve(f, s, &batch, batch_of, true, "#d1571b");
}

void schedule_print_svg(const Schedule *schedule, const Ramp *ramp, long steps, const char *path)
{
    Sheet s = make_sheet(schedule, ramp, steps);
    char *text = NULL, line[256];
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f) die("%s: no memory for the picture: %s", path, strerror(errno));
    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 530\" width=\"960\" height=\"530\" "
          "role=\"img\" font-size=\"12\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n"
          "<title>learning rate and batch</title>\n"
          "<rect x=\"0.5\" y=\"0.5\" width=\"959\" height=\"529\" rx=\"8\" fill=\"#ffffff\" "
          "stroke=\"#d7dce1\"/>\n", f);
    describe_lr(schedule, line, sizeof line);
    put_text(f, 24, 34, "start", "#1f2933", line);
    describe_batch(ramp, line, sizeof line);
    put_text(f, 24, 54, "start", "#1f2933", line);
    snprintf(line, sizeof line, "%ld steps, %.0f tokens", steps, tokens_before(&s, steps));
    put_text(f, 24, 74, "start", "#66727f", line);
    put_panels(f, &s);
    fputs("</svg>\n", f);
    if (ferror(f) || fclose(f) || !text) die("%s: no memory for the picture", path);
    if (!disk_replace_file(path, text, n_bytes)) die("%s: cannot be written: %s", path, strerror(errno));
    free(text);
}
