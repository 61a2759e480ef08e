// pipeline_draw: draws timelines. See pipeline_draw.h for the contract.
//
// The invariant: every mark is drawn where its span is; nothing here knows a schedule. The picture is to scale for any
// times. The text has columns, whose unit is the greatest common divisor of all starts and ends, found by Euclid's
// algorithm with a tolerance, because one of three chunks lasts 1/3. Where the divisor is too small (a real run), the
// unit is the shortest action, and marks are rounded to it, each at least one column after the last.
//
// Rejected: a drawing in colours of the terminal (it does not survive a pipe into a file), and one line per
// unit of time, as some papers print it (a page holds fewer micro-batches).
#include "src/check/pipeline_draw.h"

#include "base/check.h"
#include "base/disk.h"
#include "tools/svg.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// What the labels need: the largest numbers that occur.
typedef struct {
    int digits; // of a micro-batch
    int chunks;
    bool split;
    double start, end;
} Extent;

static Extent extent_of(const PipelineTimeline *l)
{
    Extent e = {1, 1, false, INFINITY, -INFINITY};
    int micro = 0;
    for (size_t i = 0; i < l->begin[l->p]; i++) {
        const PipelineSpan *s = &l->span[i];
        check(isfinite(s->start) && isfinite(s->end) && s->end >= s->start);
        if (s->action.micro > micro) micro = s->action.micro;
        if (s->action.chunk >= e.chunks) e.chunks = s->action.chunk + 1;
        e.split |= s->action.op == PIPELINE_W;
        e.start = fmin(e.start, s->start), e.end = fmax(e.end, s->end);
    }
    for (; micro >= 10; micro /= 10) e.digits++;
    if (!(e.end > e.start)) e.start = 0, e.end = 1; // no action, or none that takes time
    return e;
}

// ---- text

static double divisor(double a, double b, double tolerance)
{
    while (b > tolerance) {
        double rest = fabs(remainder(a, b)); // to the nearest multiple, so that slightly less than one counts as one
        a = b, b = rest;
    }
    return a;
}

static double column_unit(const PipelineTimeline *l, const Extent *e)
{
    double unit = 0, shortest = INFINITY, tolerance = 1e-9 * (e->end - e->start);
    for (size_t i = 0; i < l->begin[l->p]; i++) {
        const PipelineSpan *s = &l->span[i];
        if (s->end - s->start > tolerance) shortest = fmin(shortest, s->end - s->start);
        unit = divisor(fmax(unit, s->start - e->start), fmin(unit, s->start - e->start), tolerance);
        unit = divisor(fmax(unit, s->end - e->start), fmin(unit, s->end - e->start), tolerance);
    }
    if (!isfinite(shortest)) return e->end - e->start;
    return unit < shortest / 8 ? shortest : unit;
}

static size_t cell_width(const Extent *e)
{
    return (size_t)e->digits + (e->chunks > 1) + 2; // the op before, a blank after
}

size_t pipeline_draw_columns(const PipelineTimeline *line)
{
    Extent e = extent_of(line);
    return 12 + (size_t)lround((e.end - e.start) / column_unit(line, &e)) * cell_width(&e);
}

static size_t put_cell(FILE *out, const PipelineSpan *s, const Extent *e, size_t columns)
{
    char label[32];
    int n = snprintf(label, sizeof label, "%s%d", pipeline_table_op(s->action.op), s->action.micro);
    if (e->chunks > 1) n += snprintf(label + n, sizeof label - (size_t)n, "%c", 'a' + s->action.chunk);
    size_t width = columns * cell_width(e), at = (size_t)n;
    fputs(label, out);
    if (columns > 1)
        for (; at + 1 < width; at++) fputc('-', out);
    for (; at < width; at++) fputc(' ', out);
    return columns;
}

void pipeline_draw_text(const PipelineTimeline *line, FILE *out)
{
    Extent e = extent_of(line);
    double unit = column_unit(line, &e);
    for (int s = 0; s < line->p; s++) {
        size_t at = 0; // columns written
        fprintf(out, "stage %-2d  |", s);
        for (size_t i = line->begin[s]; i < line->begin[s + 1]; i++) {
            const PipelineSpan *span = &line->span[i];
            size_t from = (size_t)lround((span->start - e.start) / unit);
            size_t to = (size_t)lround((span->end - e.start) / unit);
            if (!(span->end > span->start)) continue;
            if (from > at) fprintf(out, "%*s", (int)((from - at) * cell_width(&e)), ""), at = from;
            at += put_cell(out, span, &e, to > at ? to - at : 1);
        }
        size_t all = (size_t)lround((e.end - e.start) / unit);
        fprintf(out, "%*s|\n", at < all ? (int)((all - at) * cell_width(&e)) : 0, "");
    }
}

// ---- picture

enum { WIDTH = 960, LEFT = 76, RIGHT = 20, TOP = 66, HEAD = 28, GAP = 16, FOOT = 42 };

typedef struct {
    const PipelineDrawing *drawing;
    int n;
    const char *unit;
    double length, row; // of the axis; height of a stage
    int chunks;
    bool split;
} Sheet;

// Chunk 0 has the full colour; the last one has two fifths of it, mixed with white.
static double strength(int chunk, int chunks)
{
    return chunks > 1 ? 1 - 0.6 * chunk / (chunks - 1) : 1;
}

static void put_box(FILE *f, double x, double y, double w, double h, PipelineOp op, double strong)
{
    static const unsigned COLOR[PIPELINE_OPS][3] = {{0x25, 0x63, 0xa8}, {0x2f, 0x7d, 0x4f}, {0xd1, 0x57, 0x1b}};
    unsigned c[3];
    for (int i = 0; i < 3; i++) c[i] = (unsigned)lround(COLOR[op][i] * strong + 255 * (1 - strong));
    fprintf(f, "<rect x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%g\" fill=\"#%02x%02x%02x\"/>\n", x, y,
            w < 3 ? w : w - 0.8, h, c[0], c[1], c[2]); // a gap to the next
}

static void put_legend(FILE *f, const Sheet *sheet)
{
    static const char *const WHAT[PIPELINE_OPS] = {"forward", "backward", "backward, weights"};
    double x = LEFT;
    for (int op = 0; op < (sheet->split ? PIPELINE_OPS : PIPELINE_W); op++) {
        for (int c = 0; c < sheet->chunks; c++, x += 14)
            put_box(f, x, 36, 14, 14, (PipelineOp)op, strength(c, sheet->chunks));
        svg_text(f, x + 6, 47, "start", 12, SVG_GREY, false, WHAT[op]);
        x += 24 + 6.5 * (double)strlen(WHAT[op]);
    }
    if (sheet->chunks > 1) svg_text(f, x, 47, "start", 12, SVG_GREY, false, "chunks from dark to light");
}

static double put_timeline(FILE *f, const Sheet *sheet, const PipelineDrawing *d, double y)
{
    Extent e = extent_of(d->line);
    double scale = (WIDTH - LEFT - RIGHT) / sheet->length, size = fmin(11, sheet->row - 5);
    char label[32];
    svg_text(f, LEFT, y + 18, "start", 13, SVG_INK, true, d->title);
    double behind = LEFT + 16 + 7.6 * (double)strlen(d->title);
    if (d->note) svg_text(f, behind, y + 18, "start", 12, SVG_GREY, false, d->note);
    y += HEAD;
    for (int s = 0; s < d->line->p; s++, y += sheet->row) {
        snprintf(label, sizeof label, "stage %d", s);
        svg_text(f, LEFT - 8, y + sheet->row / 2 + 4, "end", fmin(12, sheet->row), SVG_GREY, false, label);
        svg_line(f, LEFT, y + sheet->row - 0.5, WIDTH - RIGHT, y + sheet->row - 0.5, SVG_GRID, 1, NULL);
        for (size_t i = d->line->begin[s]; i < d->line->begin[s + 1]; i++) {
            const PipelineSpan *span = &d->line->span[i];
            double x = LEFT + (span->start - e.start) * scale, w = (span->end - span->start) * scale;
            double strong = strength(span->action.chunk, e.chunks);
            int n = snprintf(label, sizeof label, "%d", span->action.micro);
            put_box(f, x, y + 1, w, sheet->row - 3, span->action.op, strong);
            if (size >= 7 && w >= 0.6 * size * n + 2)
                svg_text(f, x + w / 2, y + sheet->row / 2 + 0.33 * size, "middle", size,
                         strong > 0.6 ? "#ffffff" : SVG_INK, false, label);
        }
    }
    return y + GAP;
}

static void put_axis(FILE *f, const Sheet *sheet, double y)
{
    double step = pow(10, floor(log10(sheet->length / 8)));
    while (sheet->length / step > 16) step *= sheet->length / step > 40 ? 5 : 2;
    for (int i = 0; i * step <= sheet->length * (1 + 1e-9); i++) {
        double x = LEFT + (WIDTH - LEFT - RIGHT) * (i * step / sheet->length);
        char label[32];
        snprintf(label, sizeof label, "%g", i * step);
        svg_line(f, x, y, x, y + 4, SVG_AXIS, 1, NULL);
        svg_text(f, x, y + 17, "middle", 11, SVG_GREY, false, label);
    }
    svg_line(f, LEFT, y, WIDTH - RIGHT, y, SVG_AXIS, 1, NULL);
    svg_text(f, WIDTH - RIGHT, y + 32, "end", 12, SVG_GREY, false, sheet->unit);
}

static void put_sheet(FILE *f, void *arg)
{
    const Sheet *sheet = arg;
    double y = TOP;
    svg_text(f, 20, 26, "start", 15, SVG_INK, true, "pipeline: what each stage does, over time");
    put_legend(f, sheet);
    for (int i = 0; i < sheet->n; i++) y = put_timeline(f, sheet, &sheet->drawing[i], y);
    put_axis(f, sheet, y);
}

void pipeline_draw_svg(const PipelineDrawing *drawing, int n, const char *unit, const char *path)
{
    Sheet sheet = {.drawing = drawing, .n = n, .unit = unit, .chunks = 1};
    int rows = 0;
    for (int i = 0; i < n; i++) {
        Extent e = extent_of(drawing[i].line);
        sheet.length = fmax(sheet.length, e.end - e.start);
        if (e.chunks > sheet.chunks) sheet.chunks = e.chunks;
        sheet.split |= e.split;
        rows += drawing[i].line->p;
    }
    sheet.row = rows > 40 ? 12 : 20;
    int height = (int)(TOP + n * (HEAD + GAP) + rows * sheet.row + FOOT);
    svg_write(path, WIDTH, height, "pipeline schedule", put_sheet, &sheet);
}

// ---- trace

// Microseconds with three decimals, without the locale's decimal point.
static void put_us(FILE *f, const char *key, double us)
{
    int64_t ns = llround(us * 1000);
    fprintf(f, "\"%s\":%lld.%03lld,", key, (long long)(ns / 1000), (long long)(ns % 1000));
}

void pipeline_draw_trace(const PipelineTimeline *line, double us, const char *path)
{
    Extent e = extent_of(line);
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f) die("%s: no memory for the trace: %s", path, strerror(errno));
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
          "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"pipeline\"}}", f);
    for (int s = 0; s < line->p; s++)
        fprintf(f, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%d,"
                "\"args\":{\"name\":\"stage %d\"}}", s, s);
    for (size_t i = 0; i < line->begin[line->p]; i++) {
        const PipelineSpan *s = &line->span[i];
        const char *op = pipeline_table_op(s->action.op);
        fprintf(f, ",\n{\"ph\":\"X\",\"name\":\"%s%d\",\"cat\":\"%s\",", op, s->action.micro, op);
        put_us(f, "ts", (s->start - e.start) * us);
        put_us(f, "dur", (s->end - s->start) * us);
        fprintf(f, "\"pid\":0,\"tid\":%d,\"args\":{\"micro\":%d,\"chunk\":%d,\"slot\":%d}}", s->stage,
                s->action.micro, s->action.chunk, s->action.slot);
    }
    fputs("\n]}\n", f);
    if (ferror(f) || fclose(f) || !text) die("%s: no memory for the trace", path);
    if (!disk_replace_file(path, text, n_bytes)) die("%s: cannot be written: %s", path, strerror(errno));
    free(text);
}
