// svg: draws panels, curves and labels into an SVG file. See svg.h for the contract.
//
// The invariant: every mark stands at the value it was given; the one derived curve is the smoothed one, a
// centred mean over up to 1/80 of the points on each side, taken twice. Its window never reaches beyond the first
// point, so a steep start is not smeared; it is centred, so it does not lag as an exponential mean would.
//
// A series of any length gives a picture of bounded size: with more points than columns, each column of a
// curve is drawn from its lowest to its highest value, which looks exactly like the full curve.
//
// Rejected: scripts and style sheets (some viewers show neither), and a plotting program (one more thing to install).
#include "tools/svg.h"

#include "base/check.h"
#include "base/disk.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Text into XML: & < > " escaped, control characters left out. Bytes beyond ASCII are UTF-8 from the reader.
static void put_escaped(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '&') fputs("&amp;", f);
        else if (*text == '<') fputs("&lt;", f);
        else if (*text == '>') fputs("&gt;", f);
        else if (*text == '"') fputs("&quot;", f);
        else if ((unsigned char)*text >= 0x20) fputc(*text, f);
    }
}

void svg_write(const char *path, int width, int height, const char *title, void (*draw)(FILE *f, void *arg),
               void *arg)
{
    char real[PATH_MAX], *text = NULL;
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes);
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); // decimal points, whatever the user's language
    if (!f || !c) die("svg: no memory for %s", path);
    locale_t before = uselocale(c);
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, "
            "sans-serif\">\n", width, height, width, height);
    fputs("<title>", f);
    put_escaped(f, title);
    fputs("</title>\n", f);
    fprintf(f, "<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#ffffff\" "
            "stroke=\"#d7dce1\"/>\n", width - 1, height - 1);
    draw(f, arg);
    fputs("</svg>\n", f);
    uselocale(before);
    freelocale(c);
    if (ferror(f) || fclose(f) || !text) die("svg: no memory for %s", path);
    if (!disk_is_special(path) && realpath(path, real)) path = real; // a link is followed
    if (!disk_replace_file(path, text, n_bytes))
        die("svg: cannot write %s: %s (is the disk full?)", path, strerror(errno));
    free(text);
}

double svg_px(const SvgPanel *p, double x)
{
    return p->x + x / p->x1 * p->w;
}

double svg_py(const SvgPanel *p, double y)
{
    return p->y + (p->y1 - y) / (p->y1 - p->y0) * p->h;
}

// ---- series

SvgSeries svg_series(size_t n)
{
    SvgSeries s = {0, malloc((n + 1) * sizeof(double)), malloc((n + 1) * sizeof(double))};
    if (!s.x || !s.y) die("svg: no memory for %zu points", n);
    return s;
}

void svg_series_free(SvgSeries *s)
{
    free(s->x);
    free(s->y);
}

// One pass: centred mean of the finite values, by prefix sums.
static SvgSeries smooth_once(const SvgSeries *raw)
{
    SvgSeries s = svg_series(raw->n);
    double *sum = calloc(raw->n + 1, sizeof *sum), *count = calloc(raw->n + 1, sizeof *count);
    if (!sum || !count) die("svg: no memory for %zu points", raw->n);
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

SvgSeries svg_smooth(const SvgSeries *raw)
{
    SvgSeries once = smooth_once(raw), twice = smooth_once(&once);
    svg_series_free(&once);
    return twice;
}

void svg_range(const SvgSeries *s, double from, double *low, double *high)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->x[i] < from || !isfinite(s->y[i])) continue;
        if (!(s->y[i] >= *low)) *low = s->y[i];
        if (!(s->y[i] <= *high)) *high = s->y[i];
    }
}

double svg_last(const SvgSeries *s)
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

void svg_count(char out[32], double v)
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

void svg_text(FILE *f, double x, double y, const char *anchor, double size, const char *color,
                    bool bold, const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%g\" fill=\"%s\"%s>", x, y, anchor,
            size, color, bold ? " font-weight=\"600\"" : "");
    put_escaped(f, text);
    fputs("</text>\n", f);
}

void svg_line(FILE *f, double x0, double y0, double x1, double y1, const char *color, double width,
                    const char *dashes)
{
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%g\"", x0,
            y0, x1, y1, color, width);
    if (dashes) fprintf(f, " stroke-dasharray=\"%s\"", dashes);
    fputs("/>\n", f);
}

// ---- panels and curves

void svg_frame(FILE *f, const SvgPanel *p, int x_ticks, int y_ticks, const char *x_title,
                       const char *y_title)
{
    char label[32];
    double step = nice_step(p->y1 - p->y0, y_ticks);
    for (double k = fmax(0, ceil(p->y0 / step - 1e-9)); k * step <= p->y1 + 1e-9 * step; k++) {
        svg_line(f, p->x, svg_py(p, k * step), p->x + p->w, svg_py(p, k * step), SVG_GRID, 1, NULL);
        tick_label(label, k * step, step);
        svg_text(f, p->x - 8, svg_py(p, k * step) + 4, "end", 12, SVG_GREY, false, label);
    }
    step = nice_step(p->x1, x_ticks);
    for (double k = 0; k * step <= p->x1 + 1e-9 * step; k++) {
        svg_line(f, svg_px(p, k * step), p->y + p->h, svg_px(p, k * step), p->y + p->h + 4, SVG_AXIS, 1, NULL);
        svg_count(label, k * step);
        svg_text(f, svg_px(p, k * step), p->y + p->h + 18, "middle", 12, SVG_GREY, false, label);
    }
    svg_line(f, p->x, p->y + p->h, p->x + p->w, p->y + p->h, SVG_AXIS, 1, NULL);
    svg_text(f, p->x + p->w, p->y + p->h + 34, "end", 12, SVG_GREY, false, x_title);
    svg_text(f, p->x - 8, p->y - 12, "start", 12, SVG_INK, true, y_title);
}

static void path_point(FILE *f, bool *pen_down, double x, double y)
{
    fprintf(f, "%c%.1f %.1f", *pen_down ? 'L' : 'M', x, y);
    *pen_down = true;
}

// Values far outside would make coordinates that some viewers cannot hold; the clip hides the difference.
static double py_near(const SvgPanel *p, double y)
{
    return fmax(p->y - 4 * p->h, fmin(p->y + 5 * p->h, svg_py(p, y)));
}

void svg_curve(FILE *f, const SvgPanel *p, const char *clip, const SvgSeries *s, const char *color,
                       double width, double opacity)
{
    bool pen_down = false, dense = s->n > 2 * p->w;
    fprintf(f, "<path clip-path=\"url(#%s)\" fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" "
            "stroke-opacity=\"%g\" stroke-linejoin=\"round\" d=\"", clip, color, width, opacity);
    for (size_t i = 0; i < s->n;) {
        double x = svg_px(p, s->x[i]), low = NAN, high = NAN;
        if (!isfinite(s->y[i]) || (i && s->x[i] < s->x[i - 1])) pen_down = false;
        size_t begin = i; // the points of this column: all of it when dense, else one
        do {
            if (isfinite(s->y[i])) low = fmin(low, s->y[i]), high = fmax(high, s->y[i]);
            i++;
        } while (dense && i < s->n && s->x[i] >= s->x[i - 1] && svg_px(p, s->x[i]) < x + 1);
        if (isnan(low)) continue;
        path_point(f, &pen_down, x, py_near(p, i - begin > 1 ? high : low));
        if (i - begin > 1) path_point(f, &pen_down, x, py_near(p, low));
    }
    fputs("\"/>\n", f);
}

void svg_clip(FILE *f, const SvgPanel *p, const char *id)
{
    fprintf(f, "<clipPath id=\"%s\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></clipPath>\n",
            id, p->x, p->y, p->w + 4, p->h);
}

void svg_labels(FILE *f, const SvgPanel *p, SvgLabel *label, int n)
{
    const double space = 34;
    for (int i = 1; i < n; i++) // insertion sort, top first
        for (int j = i; j > 0 && label[j].value > label[j - 1].value; j--) {
            SvgLabel swap = label[j];
            label[j] = label[j - 1];
            label[j - 1] = swap;
        }
    for (int i = 0; i < n; i++) label[i].y = fmax(p->y, fmin(p->y + p->h, svg_py(p, label[i].value)));
    for (int round = 0; round < 30; round++)
        for (int i = 0; i + 1 < n; i++) {
            double push = (space - (label[i + 1].y - label[i].y)) / 2;
            if (push <= 0) continue;
            label[i].y -= push;
            label[i + 1].y += push;
        }
    for (int i = 0; i < n; i++) {
        double end = p->x + p->w, y = fmax(p->y, fmin(p->y + p->h, svg_py(p, label[i].value)));
        svg_line(f, end + 5, y, end + 16, label[i].y, label[i].color, 1, NULL);
        svg_text(f, end + 21, label[i].y + 2, "start", 13, label[i].color, true, label[i].head);
        svg_text(f, end + 21, label[i].y + 17, "start", 11.5, SVG_GREY, false, label[i].detail);
    }
}
