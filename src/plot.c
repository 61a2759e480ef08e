// plot: draws loss.svg from metrics.jsonl. See plot.h for the contract.
//
// The invariant: every mark stands at the value the file has; the one derived curve is the smoothed
// one, a centred mean over up to 1/80 of the run on each side, taken twice. It never reaches further
// than the distance to the first step, so the steep start is not smeared, and it is centred, so it does
// not lag behind as an exponential mean would.
//
// The vertical range answers "how far from the floor?": it goes from just below the floor (or the
// lowest loss) to the highest smoothed loss after the first 5% of the run. A loss that starts at
// log(vocabulary) would otherwise take nine tenths of the picture for its first seconds; the part above
// is clipped, and a note says where it began. Rejected: a logarithmic loss axis (distances to the floor
// cannot be read off it) and one on log(loss - floor) (needs a floor).
//
// A run of any length gives a picture of bounded size: with more steps than columns, each column of the
// raw curve is drawn from its lowest to its highest value, which looks exactly like the full curve.
//
// Plain shapes and generic font names only, a fixed light background: it looks the same in a browser,
// in GitHub's light and dark themes and in an image viewer.
#include "plot.h"

#include "check.h"
#include "metrics.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 960, HEIGHT = 600 };
#define INK "#1f2933"
#define GREY "#66727f"
#define GRID "#e7eaee"
#define AXIS "#b8c0c8"
#define BLUE "#2563a8"
#define ORANGE "#d1571b"
#define GREEN "#2f7d4f"
#define RED "#c62828"

// A rectangle of the picture and the range of values it shows; y grows downwards in SVG.
typedef struct {
    double x, y, w, h;
    double x0, x1, y0, y1; // none of them negative, and x0 is 0
} Panel;

typedef struct {
    size_t n;
    double *x, *y;
} Series;

static double px(const Panel *p, double x)
{
    return p->x + (x - p->x0) / (p->x1 - p->x0) * p->w;
}

static double py(const Panel *p, double y)
{
    return p->y + (p->y1 - y) / (p->y1 - p->y0) * p->h;
}

// ---- series

static Series series_make(size_t n)
{
    Series s = {0, malloc((n + 1) * sizeof(double)), malloc((n + 1) * sizeof(double))};
    if (!s.x || !s.y) die("plot: no memory for %zu points", n);
    return s;
}

static void series_free(Series *s)
{
    free(s->x);
    free(s->y);
}

// One field of the lines of one event, over tokens (or steps, when no tokens are known).
static Series series_of(const MetricsLog *log, MetricsEvent event, size_t offset, bool over_tokens)
{
    Series s = series_make(log->n_rows);
    for (size_t i = 0; i < log->n_rows; i++) {
        const MetricsRow *row = &log->row[i];
        if (row->event != event) continue;
        s.x[s.n] = (double)(over_tokens ? row->tokens : row->step);
        s.y[s.n++] = *(const double *)((const char *)row + offset);
    }
    return s;
}

// One pass: centred mean of the finite values, by prefix sums.
static Series smooth_once(const Series *raw)
{
    Series s = series_make(raw->n);
    double *sum = calloc(raw->n + 1, sizeof *sum), *count = calloc(raw->n + 1, sizeof *count);
    if (!sum || !count) die("plot: no memory for %zu points", raw->n);
    for (size_t i = 0; i < raw->n; i++) {
        sum[i + 1] = sum[i] + (isfinite(raw->y[i]) ? raw->y[i] : 0);
        count[i + 1] = count[i] + isfinite(raw->y[i]);
    }
    size_t reach = raw->n / 80;
    for (size_t i = 0; i < raw->n; i++) {
        size_t half = i < reach ? i : reach, begin = i - half, end = i + half + 1;
        if (end > raw->n) end = raw->n;
        s.x[i] = raw->x[i];
        s.y[i] = isfinite(raw->y[i]) ? (sum[end] - sum[begin]) / (count[end] - count[begin]) : NAN;
    }
    s.n = raw->n;
    free(sum);
    free(count);
    return s;
}

static Series smooth(const Series *raw)
{
    Series once = smooth_once(raw), twice = smooth_once(&once);
    series_free(&once);
    return twice;
}

// Lowest and highest finite value at x >= from, widening *low and *high.
static void series_range(const Series *s, double from, double *low, double *high)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->x[i] < from || !isfinite(s->y[i])) continue;
        if (!(s->y[i] >= *low)) *low = s->y[i];
        if (!(s->y[i] <= *high)) *high = s->y[i];
    }
}

static double last_finite(const Series *s)
{
    for (size_t i = s->n; i-- > 0;)
        if (isfinite(s->y[i])) return s->y[i];
    return NAN;
}

// ---- numbers and text

// 1, 2 or 5 times a power of ten, for about `count` ticks.
static double nice_step(double range, int count)
{
    double raw = range / count, power = pow(10, floor(log10(raw))), lead = raw / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

static void count_label(char out[32], double v)
{
    const char *unit = "";
    if (v >= 1e12) v /= 1e12, unit = "T";
    else if (v >= 1e9) v /= 1e9, unit = "B";
    else if (v >= 1e6) v /= 1e6, unit = "M";
    else if (v >= 1e3) v /= 1e3, unit = "k";
    snprintf(out, 32, "%.3g%s", v, unit);
}

// A tick's value with the decimals that its step needs; 0.0003 as 3e-4.
static void tick_label(char out[32], double v, double step)
{
    int e = v > 0 ? (int)floor(log10(v) + 1e-9) : 0, decimals = (int)ceil(-log10(step) - 1e-9);
    if (e < -2) snprintf(out, 32, "%.3ge%d", v / pow(10, e), e);
    else if (e > 5) snprintf(out, 32, "%.3g", v);
    else snprintf(out, 32, "%.*f", v > 0 && decimals > 0 ? decimals : 0, fabs(v));
}

// Text into XML: & < > " escaped, control characters left out. Bytes beyond ASCII are UTF-8 from the
// reader.
static void put_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '&') fputs("&amp;", f);
        else if (*text == '<') fputs("&lt;", f);
        else if (*text == '>') fputs("&gt;", f);
        else if (*text == '"') fputs("&quot;", f);
        else if ((unsigned char)*text >= 0x20) fputc(*text, f);
    }
}

// anchor: start, middle, end
static void text_at(FILE *f, double x, double y, const char *anchor, double size, const char *color,
                    bool bold, const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%g\" fill=\"%s\"%s>", x, y, anchor,
            size, color, bold ? " font-weight=\"600\"" : "");
    put_text(f, text);
    fputs("</text>\n", f);
}

static void line_at(FILE *f, double x0, double y0, double x1, double y1, const char *color, double width,
                    const char *dashes)
{
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%g\"", x0,
            y0, x1, y1, color, width);
    if (dashes) fprintf(f, " stroke-dasharray=\"%s\"", dashes);
    fputs("/>\n", f);
}

// ---- panels and curves

static void draw_frame(FILE *f, const Panel *p, int x_ticks, int y_ticks, const char *x_title,
                       const char *y_title)
{
    char label[32];
    double step = nice_step(p->y1 - p->y0, y_ticks);
    for (double k = fmax(0, ceil(p->y0 / step - 1e-9)); k * step <= p->y1 + 1e-9 * step; k++) {
        line_at(f, p->x, py(p, k * step), p->x + p->w, py(p, k * step), GRID, 1, NULL);
        tick_label(label, k * step, step);
        text_at(f, p->x - 8, py(p, k * step) + 4, "end", 12, GREY, false, label);
    }
    step = nice_step(p->x1 - p->x0, x_ticks);
    for (double k = 0; k * step <= p->x1 + 1e-9 * step; k++) {
        line_at(f, px(p, k * step), p->y + p->h, px(p, k * step), p->y + p->h + 4, AXIS, 1, NULL);
        count_label(label, k * step);
        text_at(f, px(p, k * step), p->y + p->h + 18, "middle", 12, GREY, false, label);
    }
    line_at(f, p->x, p->y + p->h, p->x + p->w, p->y + p->h, AXIS, 1, NULL);
    text_at(f, p->x + p->w, p->y + p->h + 34, "end", 12, GREY, false, x_title);
    text_at(f, p->x - 8, p->y - 12, "start", 12, INK, true, y_title);
}

static void path_point(FILE *f, bool *pen_down, double x, double y)
{
    fprintf(f, "%c%.1f %.1f", *pen_down ? 'L' : 'M', x, y);
    *pen_down = true;
}

// Values far outside would make coordinates that some viewers cannot hold; the clip hides the difference.
static double py_near(const Panel *p, double y)
{
    return fmax(p->y - 4 * p->h, fmin(p->y + 5 * p->h, py(p, y)));
}

// A gap where the value is not finite or the run went back (a rollback).
static void draw_curve(FILE *f, const Panel *p, const char *clip, const Series *s, const char *color,
                       double width, double opacity)
{
    bool pen_down = false, dense = s->n > 2 * p->w;
    fprintf(f, "<path clip-path=\"url(#%s)\" fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" "
            "stroke-opacity=\"%g\" stroke-linejoin=\"round\" d=\"", clip, color, width, opacity);
    for (size_t i = 0; i < s->n;) {
        double x = px(p, s->x[i]), low = NAN, high = NAN;
        if (!isfinite(s->y[i]) || (i && s->x[i] < s->x[i - 1])) pen_down = false;
        size_t begin = i; // the points of this column: all of it when dense, else one
        do {
            if (isfinite(s->y[i])) low = fmin(low, s->y[i]), high = fmax(high, s->y[i]);
            i++;
        } while (dense && i < s->n && s->x[i] >= s->x[i - 1] && px(p, s->x[i]) < x + 1);
        if (isnan(low)) continue;
        path_point(f, &pen_down, x, py_near(p, i - begin > 1 ? high : low));
        if (i - begin > 1) path_point(f, &pen_down, x, py_near(p, low));
    }
    fputs("\"/>\n", f);
}

static void draw_clip(FILE *f, const Panel *p, const char *id)
{
    fprintf(f, "<clipPath id=\"%s\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></clipPath>\n",
            id, p->x, p->y, p->w + 4, p->h);
}

// ---- the main panel

typedef struct {
    double value, y; // y: where the label stands after making room
    const char *color;
    char head[80], detail[80];
} Label;

// Labels at the right edge, beside the end of what they name; pushed apart, half each, where they would
// overlap.
static void draw_labels(FILE *f, const Panel *p, Label *label, int n)
{
    const double space = 34;
    for (int i = 1; i < n; i++) // insertion sort, top first
        for (int j = i; j > 0 && label[j].value > label[j - 1].value; j--) {
            Label swap = label[j];
            label[j] = label[j - 1];
            label[j - 1] = swap;
        }
    for (int i = 0; i < n; i++) label[i].y = fmax(p->y, fmin(p->y + p->h, py(p, label[i].value)));
    for (int round = 0; round < 30; round++)
        for (int i = 0; i + 1 < n; i++) {
            double push = (space - (label[i + 1].y - label[i].y)) / 2;
            if (push <= 0) continue;
            label[i].y -= push;
            label[i + 1].y += push;
        }
    for (int i = 0; i < n; i++) {
        double end = p->x + p->w, y = fmax(p->y, fmin(p->y + p->h, py(p, label[i].value)));
        line_at(f, end + 5, y, end + 16, label[i].y, label[i].color, 1, NULL);
        text_at(f, end + 21, label[i].y + 2, "start", 13, label[i].color, true, label[i].head);
        text_at(f, end + 21, label[i].y + 17, "start", 11.5, GREY, false, label[i].detail);
    }
}

// What the picture is made of, gathered once.
typedef struct {
    Series train, mean, val, lr, norm;
    double x1;             // where the axis of tokens ends
    double floor;          // 0: not known
    bool floor_is_bound, over_tokens;
    double val_bpb;        // at the last evaluation
    const MetricsRow *start, *last, *end; // of the run; the last train line; the end line or NULL
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
    series_range(&run->mean, from, &low_mean, &high_mean);
    *low = *high = run->floor > 0 ? run->floor : NAN;
    series_range(&run->mean, from, low, high);
    series_range(&run->val, from, low, high);
    if (isnan(*low)) *low = 0, *high = 1; // no finite loss at all
    double pad = fmax(0.07 * (*high - *low), 1e-3 * fabs(*high) + 1e-6), band = 2.5 * noise(run, from);
    *low = fmax(0, fmin(*low - pad, isnan(low_mean) ? *low : low_mean - band));
    *high += fmax(pad, band);
}

static void draw_val_points(FILE *f, const Panel *p, const Series *val)
{
    for (size_t i = 0; i < val->n && val->n <= 60; i++)
        if (isfinite(val->y[i]) && val->y[i] <= p->y1)
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.4\" fill=\"" ORANGE "\" stroke=\"#fff\"/>\n",
                    px(p, val->x[i]), py(p, val->y[i]));
}

// Where the run was resumed, rolled back, or had a loss that is not a number.
static void draw_incidents(FILE *f, const Panel *p, const MetricsLog *log, const Run *run)
{
    double x = p->x0; // events carry a step only; they stand where the train line before them stands
    int bad = 0;
    for (size_t i = 0; i < log->n_rows; i++) {
        const MetricsRow *row = &log->row[i];
        if (row->event == METRICS_TRAIN) x = (double)(run->over_tokens ? row->tokens : row->step);
        bool wrong = row->event == METRICS_SKIP || row->event == METRICS_ROLLBACK
                     || (row->event == METRICS_TRAIN && !isfinite(row->loss));
        if (row->event == METRICS_RESUME) {
            line_at(f, px(p, x), p->y, px(p, x), p->y + p->h, AXIS, 1, "2 3");
            text_at(f, px(p, x) + 4, p->y + 11, "start", 11, GREY, false, "resumed");
        }
        if (wrong && bad++ < 500) line_at(f, px(p, x), p->y, px(p, x), p->y + 8, RED, 1.5, NULL);
    }
    char text[80];
    snprintf(text, sizeof text, "%d bad step%s (not finite, skipped or rolled back)", bad,
             bad == 1 ? "" : "s");
    if (bad) text_at(f, p->x + p->w, p->y - 12, "end", 12, RED, false, text);
}

// The floor, and a tint below it where no model can get.
static void draw_floor(FILE *f, const Panel *p, double floor)
{
    double y = py(p, floor);
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"" GREEN "\" "
            "fill-opacity=\"0.07\"/>\n", p->x, y, p->w, p->y + p->h - y);
    line_at(f, p->x, y, p->x + p->w, y, GREEN, 1.8, "7 5");
}

// Says where the clipped start began, beside the point where the curve comes into view.
static void draw_begin(FILE *f, const Panel *p, const Run *run)
{
    size_t i = 0;
    while (i < run->mean.n && !(run->mean.y[i] <= p->y1)) i++;
    if (i == 0 || i == run->mean.n) return;
    char text[64];
    snprintf(text, sizeof text, "↑ from %.2f at the first step", run->train.y[0]);
    text_at(f, px(p, run->mean.x[i]) + 14, p->y + 12, "start", 11.5, GREY, false, text);
}

static void draw_loss_labels(FILE *f, const Panel *p, const Run *run)
{
    Label label[3];
    int n = 0;
    double train = last_finite(&run->mean), val = last_finite(&run->val);
    if (isfinite(train)) {
        label[n] = (Label){.value = train, .color = BLUE, .detail = "smoothed"};
        snprintf(label[n++].head, 80, "training %.3f", train);
    }
    if (isfinite(val)) {
        label[n] = (Label){.value = val, .color = ORANGE};
        snprintf(label[n].head, 80, "validation %.3f", val);
        if (isfinite(run->val_bpb)) snprintf(label[n].detail, 80, "%.3f bits per byte", run->val_bpb);
        n++;
    }
    if (run->floor > 0) {
        label[n] = (Label){.value = run->floor, .color = GREEN};
        const char *what = run->floor_is_bound ? "floor, at most" : "entropy floor";
        snprintf(label[n].head, 80, "%s %.3f", what, run->floor);
        double above = 100 * (val / run->floor - 1);
        if (isfinite(val))
            snprintf(label[n].detail, 80, "validation is %.1f%% %s", fabs(above),
                     above < 0 ? "below" : "above");
        n++;
    }
    draw_labels(f, p, label, n);
}

static void draw_loss(FILE *f, const Run *run, const MetricsLog *log, const char *x_title)
{
    Panel p = {.x = 64, .y = 106, .w = 690, .h = 294, .x0 = 0, .x1 = run->x1};
    loss_range(run, &p.y0, &p.y1);
    draw_clip(f, &p, "loss");
    draw_frame(f, &p, 8, 7, x_title, "loss, nats per token");
    draw_incidents(f, &p, log, run);
    if (run->floor > 0) draw_floor(f, &p, run->floor);
    draw_curve(f, &p, "loss", &run->train, BLUE, 1, 0.3);
    draw_curve(f, &p, "loss", &run->mean, BLUE, 2.2, 1);
    draw_curve(f, &p, "loss", &run->val, ORANGE, 1.4, run->val.n <= 60 ? 0.55 : 1);
    draw_val_points(f, &p, &run->val);
    draw_begin(f, &p, run);
    draw_loss_labels(f, &p, run);
}

// ---- the small panels and the whole

static void draw_small(FILE *f, const char *clip, double x, double w, const Run *run, const Series *s,
                       const char *x_title, const char *title)
{
    Panel p = {.x = x, .y = 472, .w = w, .h = 76, .x0 = 0, .x1 = run->x1, .y0 = 0};
    double low = NAN, early = NAN;
    p.y1 = NAN;
    series_range(s, s->n < 40 ? 0 : 0.05 * run->x1, &low, &p.y1);
    series_range(s, 0, &low, &early);
    if (early < 1.3 * p.y1) p.y1 = early; // the start hardly higher: show it all
    if (!(p.y1 > 0)) p.y1 = 1;
    p.y1 *= 1.08;
    draw_clip(f, &p, clip);
    draw_frame(f, &p, 5, 3, x_title, title);
    Series mean = smooth(s);
    bool noisy = s == &run->norm;
    draw_curve(f, &p, clip, s, BLUE, noisy ? 1 : 2, noisy ? 0.35 : 1);
    if (noisy) draw_curve(f, &p, clip, &mean, BLUE, 1.8, 1);
    series_free(&mean);
}

static void draw_header(FILE *f, const Run *run, const char *title)
{
    char line[400] = "", number[32];
    const MetricsRow *start = run->start;
    text_at(f, 24, 36, "start", 20, INK, true, title);
    if (start && start->text && strlen(start->text) < 150)
        text_at(f, 24, 56, "start", 12.5, GREY, false, start->text);
    size_t at = 0;
#define ADD(...) at += (size_t)snprintf(line + at, sizeof line - at, __VA_ARGS__)
    if (start && start->params > 0) {
        count_label(number, (double)start->params);
        ADD(" · %s parameters", number);
    }
    if (run->last) {
        count_label(number, (double)run->last->tokens);
        if (run->over_tokens) ADD(" · %s tokens", number);
        ADD(" · %lld steps", (long long)run->last->step);
    }
    if (run->end && isfinite(run->end->seconds)) ADD(" · %.1f minutes", run->end->seconds / 60);
#undef ADD
    const char *separator = " · ";
    if (at) text_at(f, WIDTH - 24, 36, "end", 12.5, GREY, false, line + strlen(separator));
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
    run.floor_is_bound = run.start && run.start->floor_is_bound;
    run.over_tokens = run.last && run.last->tokens > 0;
    run.train = series_of(log, METRICS_TRAIN, offsetof(MetricsRow, loss), run.over_tokens);
    run.lr = series_of(log, METRICS_TRAIN, offsetof(MetricsRow, lr), run.over_tokens);
    run.norm = series_of(log, METRICS_TRAIN, offsetof(MetricsRow, grad_norm), run.over_tokens);
    run.val = series_of(log, METRICS_VAL, offsetof(MetricsRow, val_loss), run.over_tokens);
    run.mean = smooth(&run.train);
    for (size_t i = 0; i < run.train.n; i++) run.x1 = fmax(run.x1, run.train.x[i]);
    if (run.end) { // the closing evaluation is a point too; a series has room for every line of the file
        run.val.x[run.val.n] = (double)(run.over_tokens ? run.end->tokens : run.end->step);
        run.val.y[run.val.n++] = run.end->val_loss;
    }
    return run;
}

static void draw(FILE *f, const MetricsLog *log, const char *title, double floor)
{
    Run run = gather(log, floor);
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, "
            "sans-serif\">\n", WIDTH, HEIGHT, WIDTH, HEIGHT);
    if (!title && run.start && run.start->name && *run.start->name) title = run.start->name;
    if (!title) title = "training run";
    fputs("<title>", f);
    put_text(f, title);
    fputs("</title>\n", f);
    fprintf(f, "<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#ffffff\" "
            "stroke=\"#d7dce1\"/>\n", WIDTH - 1, HEIGHT - 1);
    draw_header(f, &run, title);
    const char *x_title = run.over_tokens ? "tokens" : "steps";
    if (run.train.n) {
        draw_loss(f, &run, log, x_title);
        draw_small(f, "lr", 64, 376, &run, &run.lr, x_title, "learning rate");
        draw_small(f, "norm", 548, 376, &run, &run.norm, x_title, "gradient norm");
    } else {
        text_at(f, WIDTH / 2, HEIGHT / 2, "middle", 16, GREY, false, "no training step yet");
    }
    fputs("</svg>\n", f);
    Series *all[] = {&run.train, &run.mean, &run.val, &run.lr, &run.norm};
    for (int i = 0; i < 5; i++) series_free(all[i]);
}

void plot_loss_svg(const char *metrics_path, const char *svg_path, const char *title, double floor)
{
    char aside[4096];
    if (snprintf(aside, sizeof aside, "%s.tmp", svg_path) >= (int)sizeof aside)
        die("plot: path too long: %s", svg_path);
    MetricsLog log = metrics_read(metrics_path);
    FILE *f = fopen(aside, "w");
    if (!f) die("plot: cannot open %s: %s", aside, strerror(errno));
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); // decimal points, whatever the user's language
    if (!c) die("plot: no C locale: %s", strerror(errno));
    locale_t before = uselocale(c);
    draw(f, &log, title, floor);
    uselocale(before);
    freelocale(c);
    if (ferror(f) || fclose(f) || rename(aside, svg_path))
        die("plot: cannot write %s: %s (is the disk full?)", svg_path, strerror(errno));
    metrics_log_free(&log);
}
