// progress_line: how a run's numbers are written for people. See the last part of progress.h.
//
// The invariant: the live line never takes more columns than it was given minus one, whatever the
// numbers, because a line that wraps cannot be redrawn with a carriage return (and some terminals wrap
// already at the last column).
//
// It narrows in three steps: all fields in their long form and a bar of 12 to 28 columns; all in a
// short form (one space between them, fewer digits, a bar of at least 4), which fits 80 columns for runs
// under 10,000 steps; then fields are dropped by rank, the learning rate first and the step last. No
// cleverness between those: a line whose fields come and go with each digit cannot be read.
//
// Columns are counted as bytes: every value and label is ASCII, and only the bar has wider characters.
#include "train/progress.h"

#include <math.h>
#include <string.h>

enum { PLAIN_LINES = 50 }; // of a run, about

// ---- numbers for people

void progress_time(char out[32], double seconds)
{
    if (!(seconds >= 0 && seconds < 1e9)) snprintf(out, 32, "?");
    else if (seconds < 0.9995) snprintf(out, 32, "%.0f ms", seconds * 1000);
    else if (seconds < 59.5) snprintf(out, 32, "%.0fs", seconds);
    else {
        long s = lround(seconds);
        if (s < 3600) snprintf(out, 32, "%ldm%02lds", s / 60, s % 60);
        else if (s < 100 * 3600) snprintf(out, 32, "%ldh%02ldm", s / 3600, s / 60 % 60);
        else snprintf(out, 32, "%ldd%02ldh", s / 86400, s / 3600 % 24);
    }
}

void progress_count(char out[32], double count)
{
    const char *unit[] = {"", "k", "M", "B", "T"};
    int u = 0;
    while (count >= 999.5 && u < 4) count /= 1000, u++;
    int digits = u == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2; // three significant digits
    snprintf(out, 32, "%.*f%s", digits, count, unit[u]);
}

int64_t progress_interval(int64_t steps, int64_t log_every)
{
    const int64_t nice[] = {1, 2, 5};
    if (log_every < 1) log_every = 1;
    for (int64_t scale = 1;; scale *= 10)
        for (int i = 0; i < 3; i++)
            if (steps / (nice[i] * scale * log_every) <= PLAIN_LINES) return nice[i] * scale * log_every;
}

// ---- the live line

typedef struct {
    const char *label;
    char value[40];
    const char *color; // of the value
    int rank;          // 0 stays longest; -1: not shown
} Field;
enum { FIELDS = 8 };

// 3.0e-4, not 3.0e-04: two columns count here.
static void short_exponent(char out[40], double x)
{
    snprintf(out, 40, "%.1e", x);
    char *e = strstr(out, "e-0");
    if (e) memmove(e + 2, e + 3, strlen(e + 3) + 1);
}

// In the order of the line. `tight` takes the short form of each.
static void fill_fields(Field field[FIELDS], const ProgressView *v, bool tight)
{
    const char *red = "\x1b[31m", *bold = "\x1b[1m", *green = "\x1b[32m", *none = "";
    const Field blank[FIELDS] = {
        {"step ", "", bold, 0}, {"loss ", "", isfinite(v->loss) ? bold : red, 1},
        {"floor ", "", green, v->floor > 0 ? 4 : -1}, {"|g| ", "", isfinite(v->grad_norm) ? none : red, 6},
        {"lr ", "", none, 7}, {"", "", none, 3}, {"mfu ", "", none, isfinite(v->mfu) ? 5 : -1},
        {"ETA ", "", none, isfinite(v->eta) ? 2 : -1},
    };
    memcpy(field, blank, sizeof blank);
    if (tight) field[0].label = "", field[3].label = "g ";
    if (v->steps > 0) snprintf(field[0].value, 40, "%lld/%lld", (long long)v->step, (long long)v->steps);
    else snprintf(field[0].value, 40, "%lld", (long long)v->step);
    snprintf(field[1].value, 40, "%.*f", tight ? 3 : 4, v->loss);
    snprintf(field[2].value, 40, "%.*f", tight ? 2 : 4, v->floor);
    snprintf(field[3].value, 40, "%.2f", v->grad_norm);
    short_exponent(field[4].value, v->lr);
    char text[32];
    progress_count(text, v->tok_s);
    snprintf(field[5].value, 40, "%s%s", text, tight ? "/s" : " tok/s");
    snprintf(field[6].value, 40, "%.0f%%", 100 * v->mfu);
    progress_time(text, v->eta);
    snprintf(field[7].value, 40, "%s", text);
}

static int fields_width(const Field field[FIELDS], int gap)
{
    int width = 0;
    for (int f = 0; f < FIELDS; f++)
        if (field[f].rank >= 0) width += gap + (int)(strlen(field[f].label) + strlen(field[f].value));
    return width;
}

// Appends to a string of n_bytes; what does not fit is cut.
static void append(char *out, size_t n_bytes, const char *text)
{
    size_t used = strlen(out);
    if (used + 1 < n_bytes) snprintf(out + used, n_bytes - used, "%s", text);
}

static void append_bar(char *out, size_t n_bytes, double done, int width, bool utf8, bool color)
{
    int full = (int)(done * width); // whole columns that are done
    if (color) append(out, n_bytes, "\x1b[36m");
    for (int i = 0; i < full; i++) append(out, n_bytes, utf8 ? "━" : "#");
    if (color) append(out, n_bytes, "\x1b[0m\x1b[2m");
    for (int i = full; i < width; i++) append(out, n_bytes, utf8 ? (color ? "━" : "─") : "-");
    if (color) append(out, n_bytes, "\x1b[0m");
}

int progress_line(char *out, size_t n_bytes, const ProgressView *view, int columns, bool utf8, bool color)
{
    Field field[FIELDS];
    int gap = 2, bar = view->steps > 0 ? 12 : 0, room = columns - 1;
    fill_fields(field, view, false);
    if (bar + fields_width(field, gap) > room) {
        gap = 1;
        bar = view->steps > 0 ? 4 : 0;
        fill_fields(field, view, true);
    }
    for (int rank = FIELDS; rank >= 0 && bar + fields_width(field, gap) > room; rank--)
        for (int f = 0; f < FIELDS; f++)
            if (field[f].rank == rank) field[f].rank = -1;
    int width = fields_width(field, gap);
    if (bar) bar = room - width < 28 ? room - width : 28;
    if (bar < 3) bar = 0;
    out[0] = '\0';
    double done = view->steps > 0 ? (double)view->step / (double)view->steps : 0;
    if (bar) append_bar(out, n_bytes, done < 1 ? done : 1, bar, utf8, color);
    else if (width) width -= gap; // no gap before the first field then
    for (int f = 0; f < FIELDS; f++) {
        if (field[f].rank < 0) continue;
        if (out[0]) append(out, n_bytes, gap == 2 ? "  " : " ");
        if (color) append(out, n_bytes, "\x1b[2m");
        append(out, n_bytes, field[f].label);
        if (color) append(out, n_bytes, "\x1b[0m");
        if (color) append(out, n_bytes, field[f].color);
        append(out, n_bytes, field[f].value);
        if (color) append(out, n_bytes, "\x1b[0m");
    }
    return bar + width;
}
