// svg: pictures of curves: panels with axes, series of points, labels.
//
// Plain shapes and generic font names only, on a light background: the same in a browser, in GitHub's light
// and dark themes and in an image viewer.
#ifndef SVG_H
#define SVG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

#define SVG_INK "#1f2933"
#define SVG_GREY "#66727f"
#define SVG_GRID "#e7eaee"
#define SVG_AXIS "#b8c0c8"
#define SVG_BLUE "#2563a8"
#define SVG_ORANGE "#d1571b"
#define SVG_GREEN "#2f7d4f"
#define SVG_RED "#c62828"

// Writes a picture to path: calls draw(f, arg) between the opening and the closing tag, and puts the result in place in
// one step (a viewer never sees half a picture). The locale does not matter. Dies when the file cannot be written.
void svg_write(const char *path, int width, int height, const char *title, void (*draw)(FILE *f, void *arg),
               void *arg);

// A rectangle of the picture and the range of values it shows; y grows downwards in SVG.
typedef struct {
    double x, y, w, h;
    double x1, y0, y1; // x from 0 on; none of them negative
} SvgPanel;

double svg_px(const SvgPanel *p, double x); // the position of a value
double svg_py(const SvgPanel *p, double y);

typedef struct {
    size_t n;
    double *x, *y;
} SvgSeries;

SvgSeries svg_series(size_t n); // empty, with room for n + 1 points
void svg_series_free(SvgSeries *s);
// Centred means over up to 1/80 of the points on each side, twice; see svg.c.
SvgSeries svg_smooth(const SvgSeries *raw);
// Lowest and highest finite value at x >= from, widening *low and *high (NAN at first: nothing yet).
void svg_range(const SvgSeries *s, double from, double *low, double *high);
double svg_last(const SvgSeries *s); // the last finite value, else NAN

void svg_count(char out[32], double v); // 1.23M
// anchor: start, middle, end
void svg_text(FILE *f, double x, double y, const char *anchor, double size, const char *color, bool bold,
              const char *text);
// dashes: as in stroke-dasharray, or NULL
void svg_line(FILE *f, double x0, double y0, double x1, double y1, const char *color, double width,
              const char *dashes);
// Grid, titles of the axes, and about x_ticks and y_ticks ticks.
void svg_frame(FILE *f, const SvgPanel *p, int x_ticks, int y_ticks, const char *x_title, const char *y_title);
// Defines a clip: shapes drawn with its id are cut off at the panel's edge.
void svg_clip(FILE *f, const SvgPanel *p, const char *id);
// A gap where the value is not finite or x goes back. With more points than columns, each column is drawn
// from its lowest to its highest value.
void svg_curve(FILE *f, const SvgPanel *p, const char *clip, const SvgSeries *s, const char *color, double width,
               double opacity);

typedef struct {
    double value, y; // y: where the label stands after making room
    const char *color;
    char head[80], detail[80];
} SvgLabel;

// Labels at the right edge, beside the end of what they name; pushed apart, half each, where they would
// overlap. They are sorted in place, top first.
void svg_labels(FILE *f, const SvgPanel *p, SvgLabel *label, int n);

#ifdef __cplusplus
}
#endif
#endif
