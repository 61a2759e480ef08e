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
#include "train/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tools/svg.h"

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
static void draw_panel(FILE *f, const Sheet *s, SvgPanel p, double (*value)(const Sheet *, long), bool stairs,
                       const char *title, const char *color)
{
    long step[SAMPLES + MAX_MARKS];
    int n = choose_steps(s, step);
    const char *id = stairs ? "batch" : "rate";
    SvgSeries curve = svg_series(2 * (size_t)n);
    p.x1 = tokens_before(s, s->steps);
    for (int i = 0; i <= n; i++) {
        double x = i < n ? tokens_before(s, step[i]) : p.x1, y = value(s, step[i < n ? i : n - 1]);
        if (i && stairs) curve.x[curve.n] = x, curve.y[curve.n] = curve.y[curve.n - 1], curve.n++;
        curve.x[curve.n] = x, curve.y[curve.n++] = y;
        p.y1 = fmax(p.y1, y);
    }
    if (!(p.y1 > 0)) p.y1 = 1;
    SvgPanel room = p; // for the whole width of a line at the top
    room.y -= 2, room.h += 4;
    svg_clip(f, &room, id);
    svg_frame(f, &p, 5, stairs ? 3 : 6, "tokens", title);
    svg_curve(f, &p, id, &curve, color, 2, 1);
    svg_series_free(&curve);
}

static void draw_picture(FILE *f, void *arg)
{
    const Sheet *s = arg;
    char line[256];
    describe_lr(s->schedule, line, sizeof line);
    svg_text(f, 24, 34, "start", 12, SVG_INK, false, line);
    describe_batch(s->ramp, line, sizeof line);
    svg_text(f, 24, 54, "start", 12, SVG_INK, false, line);
    snprintf(line, sizeof line, "%ld steps, %.0f tokens", s->steps, tokens_before(s, s->steps));
    svg_text(f, 24, 74, "start", 12, SVG_GREY, false, line);
    draw_panel(f, s, (SvgPanel){.x = 96, .y = 118, .w = 830, .h = 210}, lr_of, false, "learning rate", SVG_BLUE);
    draw_panel(f, s, (SvgPanel){.x = 96, .y = 400, .w = 830, .h = 90}, batch_of, true, "batch, tokens",
               SVG_ORANGE);
}

void schedule_print_svg(const Schedule *schedule, const Ramp *ramp, long steps, const char *path)
{
    Sheet s = make_sheet(schedule, ramp, steps);
    svg_write(path, 960, 540, "learning rate and batch", draw_picture, &s);
}
