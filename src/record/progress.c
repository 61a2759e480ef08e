// progress: the live line, the plain lines, log.txt and the closing summary. See progress.h for the
// contract.
//
// The invariant: the lines on the terminal above the live line are those of log.txt, and a file never receives an
// escape sequence: the live line goes to a terminal only. The numbers shown are those of metrics.jsonl, unsmoothed, so
// each one can be found there. One exception, which is labelled: the training loss of the summary is the mean over the
// last steps, because a single batch is too noisy.
//
//     ETA            = wall time per step of this process (evaluations and saves included) x steps left
//     above the floor = 100 (val_loss / floor_loss - 1) percent
//
// The line is redrawn at most 5 times a second: more cannot be read, and over ssh costs more than a small step. The
// width is queried at every redraw, so a resized window needs no signal handler. Rejected: curses (it takes the whole
// screen, without scroll-back), hiding the cursor (it stays hidden after a kill).
#include "record/progress.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/stop.h"
#include "base/words.h"
#include "record/metrics.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

// Steps in the summary's mean loss; steps without which it is not judged; plain lines of a run, about.
enum { LAST = 50, FEW = 10, PLAIN_LINES = 50 };

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
//
// The live line never takes more columns than it was given minus one, whatever the
// numbers, because a line that wraps cannot be redrawn with a carriage return (and some terminals wrap
// already at the last column).
//
// It narrows in three steps: all fields in their long form and a bar of 12 to 28 columns; all in a
// short form (one space between them, fewer digits, a bar of at least 4), which fits 80 columns for runs
// under 10,000 steps; then fields are dropped by rank, the learning rate first and the step last. There are no finer
// steps: a line whose fields appear and disappear with each digit cannot be read.
//
// Columns are counted as bytes: every value and label is ASCII, and only the bar has wider characters.

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
    snprintf(out + used, n_bytes - used, "%s", text);
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

struct Progress {
    ProgressPlan plan; // its strings are our copies
    Metrics *metrics;
    FILE *log;
    bool terminal, utf8, color;
    bool live;                        // a live line stands on the terminal now
    ProgressView view;                // what it shows; step 0: none yet
    double began, drawn, plotted;     // seconds on the monotonic clock; 0: not yet
    double plot_took, paged, page_took; // of loss.svg; of report.html: when, and how long
    bool page_failed;                 // it could not be written
    double last_loss[LAST], first_loss; // first: of update 1, infinity: not known
    int64_t n_losses, step, tokens;   // of this process; the latest
    int64_t spikes, skips;            // of the run so far
    double save_ms, eval_ms;          // since the last train line
    char *saved;                      // the latest checkpoint
};

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---- the terminal

int progress_columns(void)
{
    struct winsize size;
    return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col > 0 ? size.ws_col : 100;
}

static void flush_stdout(void)
{
    if (!fflush(stdout) || errno == EPIPE) return; // a pipe that nobody reads: stop.h
    if (errno == EIO && isatty(STDOUT_FILENO)) stop_unread = stop_asked = 1; // a terminal that was closed
    else die("progress: cannot write standard output: %s", strerror(errno));
}

static void erase_live(Progress *p)
{
    doing(NULL);
    if (p->live) fputs("\r\x1b[K", stdout);
    p->live = false;
}

static void draw_live(Progress *p)
{
    char line[2048];
    doing(NULL);
    progress_line(line, sizeof line, &p->view, progress_columns(), p->utf8, p->color);
    printf("\r%s\x1b[K", line);
    flush_stdout();
    p->live = true;
    p->drawn = now_seconds();
}

// ---- lines that stay: on the screen and in log.txt

// On a terminal no word is cut: a line that is too long goes on in the next one.
static void put_lines(const Progress *p, char *text)
{
    int columns = p->terminal ? progress_columns() : INT_MAX, at = 0;
    char *space = NULL;
    for (char *c = text; *c; c++) {
        if (*c == ' ') space = c;
        at = *c == '\n' ? 0 : at + ((*c & 0xC0) != 0x80); // not the later bytes of a character of UTF-8
        if (*c == '\n') space = NULL;
        if (at < columns || !space) continue;
        *space = '\n';
        at = (int)(c - space), space = NULL;
    }
    puts(text);
}

// Prints whole lines to both. A sample may hold any byte: control characters must not reach the terminal.
static void say(Progress *p, const char *text)
{
    char *clean = strdup(text);
    if (!clean) die("progress: no memory for a line of %zu bytes", strlen(text));
    for (char *c = clean; *c; c++)
        if (((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f) *c = '?';
    erase_live(p);
    if (fprintf(p->log, "%s\n", clean) < 0 || fflush(p->log))
        die("progress: cannot write %s/log.txt: %s (is the disk full?)", p->plan.dir, strerror(errno));
    put_lines(p, clean);
    flush_stdout();
    free(clean);
    if (p->terminal && p->view.step > 0) draw_live(p); // and below it again what it replaced
}

static char *format(const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (!text) die("progress: no memory for a line of %d bytes, or not to be formatted", n);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    return text;
}

void progress_note(Progress *p, const char *fmt, ...)
{
    if (!p) return;
    va_list args;
    va_start(args, fmt);
    char *text = format(fmt, args);
    va_end(args);
    say(p, text);
    free(text);
}

// ---- the run

static char *copy_text(const char *text)
{
    char *copy = strdup(text ? text : "");
    if (!copy) die("progress: no memory");
    return copy;
}

// dir/name; the caller frees it.
static char *path_in(const Progress *p, const char *name)
{
    size_t n = strlen(p->plan.dir) + strlen(name) + 2;
    char *path = malloc(n);
    if (!path) die("progress: no memory");
    snprintf(path, n, "%s/%s", p->plan.dir, name);
    return path;
}

static bool utf8_locale(void)
{
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8");
    }
    return false;
}

static void open_metrics(Progress *p, const char *path)
{
    p->metrics = metrics_open(path, p->plan.first_step, p->plan.steps);
}

// What the run had counted when it was resumed.
static void count_again(Progress *p, const char *path)
{
    MetricsLog log = metrics_read(path);
    for (size_t i = 0; i < log.n_rows; i++) {
        if (log.row[i].event == METRICS_SKIP) p->skips++;
        if (log.row[i].event == METRICS_TRAIN) p->spikes = log.row[i].spikes;
        if (log.row[i].event == METRICS_TRAIN && log.row[i].step == 1) p->first_loss = log.row[i].loss;
    }
    metrics_log_free(&log);
}

static void open_files(Progress *p)
{
    char *log = path_in(p, "log.txt"), *metrics = path_in(p, "metrics.jsonl");
    if (p->plan.first_step == 0) truncate(log, 0); // appended to, as metrics.jsonl
    p->log = fopen(log, "a");
    if (!p->log) die("progress: cannot open %s: %s", log, strerror(errno));
    open_metrics(p, metrics);
    if (p->plan.first_step > 0) count_again(p, metrics);
    free(log);
    free(metrics);
}

static void write_start(Progress *p)
{
    const ProgressPlan *plan = &p->plan;
    MetricsRow row = {
        .event = plan->first_step > 0 ? METRICS_RESUME : METRICS_START, .step = plan->first_step,
        .name = plan->name, .text = plan->model, .params = plan->params, .steps = plan->steps,
        .eval_tokens = plan->eval_tokens, .batch_tokens = plan->batch_tokens, .floor_loss = plan->floor_loss,
        .floor_bpb = plan->floor_bpb, .floor_is_bound = plan->floor_is_bound};
    memcpy(row.mem, plan->mem, sizeof row.mem);
    metrics_write(p->metrics, &row);
}

Progress *progress_begin(const ProgressPlan *plan)
{
    Progress *p = calloc(1, sizeof *p);
    if (!p) die("progress: no memory");
    p->plan = *plan;
    p->first_loss = INFINITY;
    p->plan.dir = copy_text(plan->dir);
    p->plan.name = copy_text(plan->name);
    p->plan.model = copy_text(plan->model);
    if (p->plan.log_every < 1) p->plan.log_every = 1;
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    p->terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb");
    p->color = p->terminal && !(no_color && *no_color);
    p->utf8 = utf8_locale();
    open_files(p);
    write_start(p);
    return p;
}

FILE *progress_log(Progress *p)
{
    if (p && p->live) putchar('\n'), p->live = false;
    return p ? p->log : NULL;
}

// Writes report.html again, unless that takes too much of the run's time by now (over 2 percent). A run does not end
// because its page cannot be written.
static void page(Progress *p, bool must)
{
    double began = now_seconds();
    if (!must && began - p->paged < 50 * p->page_took) return;
    bool written = page_write(p->plan.dir, NULL), news = !written && !p->page_failed;
    p->page_failed = !written;
    if (news) progress_note(p, "report.html NOT written: %s; the run goes on", strerror(errno));
    p->paged = now_seconds();
    p->page_took = p->paged - began;
}

void progress_event(Progress *p, MetricsEvent event, int64_t step, const char *fmt, ...)
{
    if (!p) return;
    va_list args;
    va_start(args, fmt);
    char *text = format(fmt, args);
    va_end(args);
    metrics_write(p->metrics, &(MetricsRow){.event = event, .step = step, .text = text});
    if (event == METRICS_SKIP) p->skips++;
    if (event == METRICS_SAMPLE)
        progress_note(p, "---- sample at step %lld\n%s\n----", (long long)step, text);
    else
        progress_note(p, "%-8s step %lld: %s", metrics_event_name(event), (long long)step, text);
    if (event == METRICS_SAVE) {
        page(p, false);
        free(p->saved);
        p->saved = text;
    } else {
        free(text);
    }
}

void progress_pace(Progress *p, int64_t step, int64_t steps, double seconds)
{
    if (!p) return;
    metrics_write(p->metrics, &(MetricsRow){.event = METRICS_PACE, .step = step, .steps = steps, .seconds = seconds});
    p->plan.steps = steps > step ? steps : step;
}

void progress_rollback(Progress *p, int64_t step, const char *fmt, ...)
{
    if (!p) return;
    va_list args;
    va_start(args, fmt);
    char *text = format(fmt, args), *metrics = path_in(p, "metrics.jsonl");
    va_end(args);
    metrics_close(p->metrics);
    p->plan.first_step = step;
    open_metrics(p, metrics);
    p->n_losses = 0; // of the abandoned updates
    p->began = 0;    // and the steps that are made twice do not belong to the time of one
    progress_event(p, METRICS_ROLLBACK, step, "%s", text);
    free(metrics);
    free(text);
}

static double mean_last_loss(const Progress *p)
{
    int64_t n = p->n_losses < LAST ? p->n_losses : LAST;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += p->last_loss[i];
    return n ? sum / (double)n : NAN;
}

static void plain_line(Progress *p, const ProgressView *v)
{
    char line[512], text[32];
    int digits = snprintf(NULL, 0, "%lld", (long long)v->steps);
    snprintf(line, sizeof line, "step %*lld", digits, (long long)v->step);
    char *end = line + strlen(line);
#define ADD(...) end += snprintf(end, sizeof line - (size_t)(end - line), __VA_ARGS__)
    if (v->steps > 0) ADD("/%lld %3lld%%", (long long)v->steps, (long long)(100 * v->step / v->steps));
    ADD("  loss %.4f", v->loss);
    if (v->floor > 0) ADD("  floor %.4f", v->floor);
    ADD("  |g| %.3f  lr %.2e", v->grad_norm, v->lr);
    progress_count(text, v->tok_s);
    ADD("  %5s tok/s", text);
    if (isfinite(v->mfu)) ADD("  mfu %2.0f%%", 100 * v->mfu);
    progress_time(text, v->eta);
    if (isfinite(v->eta)) ADD("  ETA %s", text);
#undef ADD
    if (!p->terminal) {
        say(p, line);
    } else if (fprintf(p->log, "%s\n", line) < 0 || fflush(p->log)) {
        die("progress: cannot write %s/log.txt: %s (is the disk full?)", p->plan.dir, strerror(errno));
    }
}

void progress_step(Progress *p, const MetricsRow *row)
{
    if (!p) return;
    double now = now_seconds();
    int64_t steps = p->plan.steps, done = row->step - p->plan.first_step;
    if (!p->began) p->began = now - 1e-3 * row->dt_ms * (double)done;
    p->step = row->step;
    p->tokens = row->tokens;
    if (row->step == 1) p->first_loss = row->loss;
    p->last_loss[p->n_losses++ % LAST] = row->loss;
    p->spikes += row->spikes;
    p->save_ms += row->save_ms, p->eval_ms += row->eval_ms;

    bool finite = isfinite(row->loss) && isfinite(row->grad_norm), last = row->step == steps;
    if (row->step % p->plan.log_every == 0 || last || !finite) {
        MetricsRow train = *row;
        train.event = METRICS_TRAIN;
        train.ppl = exp(row->loss);
        train.spikes = p->spikes, train.skips = p->skips;
        train.save_ms = p->save_ms, train.eval_ms = p->eval_ms;
        metrics_write(p->metrics, &train);
        p->save_ms = p->eval_ms = 0;
    }
    double eta = (now - p->began) / (double)done * (double)(steps - row->step);
    if (steps <= row->step || done <= 0) eta = NAN;
    ProgressView view = {.step = row->step, .steps = steps, .loss = row->loss, .floor = p->plan.floor_loss,
                         .grad_norm = row->grad_norm, .lr = row->lr, .tok_s = row->tok_s, .mfu = row->mfu,
                         .eta = eta};
    int64_t interval = progress_interval(steps, p->plan.log_every);
    if (row->step % interval == 0 || done == 1 || last) plain_line(p, &view);
    p->view = view;
    if (p->terminal && (now - p->drawn >= 0.2 || last)) draw_live(p);
    if (now - p->paged >= 60) page(p, false); // where nothing is evaluated or saved for long
}

// Redraws loss.svg, unless reading the file takes too much of the run's time by now (over 2 percent).
static void plot(Progress *p, bool last)
{
    double began = now_seconds();
    if (!last && began - p->plotted < 50 * p->plot_took) return;
    char *metrics = path_in(p, "metrics.jsonl"), *svg = path_in(p, "loss.svg");
    metrics_plot_loss(metrics, svg, NULL, 0);
    free(metrics);
    free(svg);
    p->plotted = now_seconds();
    p->plot_took = p->plotted - began;
}

static void write_val(Progress *p, MetricsEvent event, const MetricsRow *row)
{
    MetricsRow val = *row;
    val.event = event;
    val.val_ppl = exp(row->val_loss);
    val.floor_loss = p->plan.floor_loss;
    val.floor_bpb = p->plan.floor_bpb;
    metrics_write(p->metrics, &val);
    plot(p, event == METRICS_END);
    page(p, event == METRICS_END);
}

static void above_floor(const Progress *p, char out[64], double val_loss)
{
    const char *what = p->plan.floor_is_bound ? "upper bound of the floor" : "floor";
    double percent = 100 * (val_loss / p->plan.floor_loss - 1);
    out[0] = '\0';
    if (p->plan.floor_loss > 0)
        snprintf(out, 64, ", %.1f%% %s the %s", fabs(percent), percent < 0 ? "below" : "above", what);
}

void progress_val(Progress *p, const MetricsRow *row)
{
    if (!p) return;
    char above[64];
    above_floor(p, above, row->val_loss);
    progress_note(p, "%-8s step %lld%s: %.4f nats/token = %.4f bits/byte, perplexity %.4g%s", "val",
                  (long long)row->step, row->name ? row->name : "", row->val_loss, row->val_bpb, exp(row->val_loss),
                  above);
    write_val(p, METRICS_VAL, row);
}

void progress_set(Progress *p, const MetricsRow *row)
{
    if (!p) return;
    MetricsRow set = *row;
    set.event = METRICS_SET;
    set.val_ppl = exp(row->val_loss);
    progress_note(p, "%-8s step %lld: %s: %.4f nats/token = %.4f bits/byte, perplexity %.4g", "set", (long long)row->step,
                  row->name, row->val_loss, row->val_bpb, set.val_ppl);
    metrics_write(p->metrics, &set);
}

void progress_task(Progress *p, const MetricsRow *row, const char *text)
{
    if (!p) return;
    MetricsRow task = *row;
    task.event = METRICS_TASK;
    progress_note(p, "%-8s step %lld: %s: %s", "task", (long long)row->step, row->name, text);
    metrics_write(p->metrics, &task);
}

void progress_experts(Progress *p, const MetricsRow *row)
{
    if (!p) return;
    MetricsRow experts = *row;
    experts.event = METRICS_EXPERTS;
    metrics_write(p->metrics, &experts);
}

static void say_path(Progress *p, const char *label, const char *name)
{
    char *path = path_in(p, name);
    if (!access(path, R_OK)) progress_note(p, "%-12s%s", label, path);
    free(path);
}

void progress_end(Progress *p, const MetricsRow *row)
{
    if (!p) return;
    if (p->n_losses >= FEW && !(mean_last_loss(p) <= p->first_loss))
        progress_event(p, METRICS_WARN, row->step, "the training loss is %.4f, and it began at %.4f: this run has not "
                       "learned (try a lower optim.lr, or a longer warm-up)", mean_last_loss(p), p->first_loss);
    write_val(p, METRICS_END, row);
    char count[32], time[32], rate[32], of[40] = "", above[64];
    progress_count(count, (double)row->tokens);
    progress_time(time, row->seconds);
    progress_count(rate, row->seconds > 0 ? (double)row->tokens / row->seconds : 0);
    if (row->step < p->plan.steps) snprintf(of, sizeof of, " of %lld", (long long)p->plan.steps);
    above_floor(p, above, row->val_loss);
    if (p->terminal && p->view.step > 0) {
        draw_live(p);
        putchar('\n'); // the last live line stays
        p->live = false;
        p->view.step = 0;
    }
    progress_note(p, "trained     %lld%s step%s, %s tokens in %s of training (%s tokens/s)",
                  (long long)row->step, of, *of ? "s" : words_s((uint64_t)row->step), count, time, rate);
    if (p->n_losses)
        progress_note(p, "train loss  %.4f nats/token (mean of the last %lld step%s)", mean_last_loss(p),
                      (long long)(p->n_losses < LAST ? p->n_losses : LAST), words_s((uint64_t)p->n_losses));
    if (isfinite(row->val_loss))
        progress_note(p, "validation  %.4f nats/token = %.4f bits/byte, perplexity %.4g%s", row->val_loss, row->val_bpb,
                      exp(row->val_loss), above);
    if (p->plan.floor_loss > 0)
        progress_note(p, "floor       %.4f nats/token = %.4f bits/byte: %s", p->plan.floor_loss,
                      p->plan.floor_bpb, p->plan.floor_is_bound ? "an upper bound of the corpus' entropy"
                      : "the corpus' entropy, which no model can beat");
    say_path(p, "report", "report.html");
    say_path(p, "plot", "loss.svg");
    say_path(p, "samples", "samples.txt");
    if (p->saved) progress_note(p, "checkpoint  %s", p->saved);
    metrics_close(p->metrics);
    if (fclose(p->log)) die("progress: cannot write %s/log.txt: %s", p->plan.dir, strerror(errno));
    free((char *)p->plan.dir);
    free((char *)p->plan.name);
    free((char *)p->plan.model);
    free(p->saved);
    free(p);
}
