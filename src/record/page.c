// page: writes report.html. See page.h.
//
// Everything that can be a table is one, written here; a chart is an empty <figure> and its numbers, as JSON, which the
// script in page_style.c draws. So the page can be read without a script, and charts can be zoomed with one.
//
// The invariant: no byte of a run's files reaches the page but through page_text (HTML) or page_json (inside the JSON).
// Names, samples and settings come from anywhere; the page also forbids itself every load (Content-Security-Policy).
//
// Rejected: a plotting library (a page of megabytes, or a load from a network); pictures drawn here (they cannot be
// zoomed); a server that watches the run (one more process to start, and to secure).
#include "record/page.h"

#include "base/check.h"
#include "base/config.h"
#include "base/disk.h"
#include "base/svg.h"
#include "base/words.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { EVENTS = 200, SAMPLES = 24, SAMPLE_BYTES = 6000, FILE_BYTES = 1 << 24, SPANS = 4000 };

void page_text(FILE *f, const char *text)
{
    char *clean = words_utf8_copy(text);
    for (const char *c = clean; *c; c++) {
        if (*c == '&') fputs("&amp;", f);
        else if (*c == '<') fputs("&lt;", f);
        else if (*c == '>') fputs("&gt;", f);
        else if (*c == '"') fputs("&quot;", f);
        else if (*c == '\'') fputs("&#39;", f);
        else if (((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f) fputs("\xef\xbf\xbd", f);
        else fputc(*c, f);
    }
    free(clean);
}

void page_json(FILE *f, const char *text)
{
    char *clean = words_utf8_copy(text);
    fputc('"', f);
    for (const char *c = clean; *c; c++) {
        bool plain = (unsigned char)*c >= 0x20 && !strchr("\"\\<>&", *c);
        if (plain) fputc(*c, f);
        else fprintf(f, "\\u%04x", (unsigned)*c);
    }
    fputc('"', f);
    free(clean);
}

// ---- numbers for people

static void put_count(FILE *f, double x)
{
    char text[32];
    svg_count(text, x);
    if (isfinite(x) && fabs(x) < 1e3) fprintf(f, x == floor(x) ? "%.0f" : "%.4g", x);
    else fputs(text, f);
}

static void put_time(FILE *f, double s)
{
    bool known = isfinite(s) && s >= 0;
    s = round(s);
    if (!known) fputs("?", f);
    else if (s < 60) fprintf(f, "%.0f s", s);
    else if (s < 3600) fprintf(f, "%.0f min %02.0f s", floor(s / 60), fmod(s, 60));
    else if (s < 86400) fprintf(f, "%.0f h %02.0f min", floor(s / 3600), floor(fmod(s, 3600) / 60));
    else fprintf(f, "%.0f d %02.0f h", floor(s / 86400), floor(fmod(s, 86400) / 3600));
}

static void put_date(FILE *f, double t)
{
    time_t when = (time_t)t;
    struct tm tm;
    char text[64] = "";
    if (t > 0 && localtime_r(&when, &tm)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
    fputs(text, f);
}

static double last_of(const PageRun *run, const char *key)
{
    const PageSeries *s = page_find(run, key);
    return s ? s->last : NAN;
}

static double mean_of(const PageRun *run, const char *key)
{
    const PageSeries *s = page_find(run, key);
    return s && s->count ? s->sum / s->count : NAN;
}

// Of a rate: the mean over the time of the steps, so tokens a second are tokens / seconds.
static double rate_of(const PageRun *run, const char *key)
{
    const PageSeries *s = page_find(run, key), *ms = page_find(run, "dt_ms");
    return s && ms && ms->sum > 0 ? s->by_time / ms->sum : NAN;
}

// ---- the frame of a section

static void section(FILE *f, const char *id, const char *title)
{
    fprintf(f, "<section id=\"%s\">\n<h2>%s</h2>\n", id, title);
}

// The head of a table: titles between |; with # in front a column of numbers.
static void table(FILE *f, const char *titles)
{
    fputs("<div class=\"wide\"><table><thead><tr>", f);
    for (bool more = true; more; titles++) {
        int n = (int)strcspn(titles, "|");
        bool numbers = *titles == '#';
        fprintf(f, "<th%s>%.*s</th>", numbers ? " class=\"n\"" : "", n - numbers, titles + numbers);
        titles += n;
        more = *titles;
    }
    fputs("</tr></thead><tbody>\n", f);
}
#define TABLE_END "</tbody></table></div>\n"

// ---- the head

typedef struct {
    const PageRun *run;
    const char *dir;
    const char *state, *why; // "running", and what that means here
    double now, eta;         // eta NAN: not known
} Page;

static void set_state(Page *p)
{
    const PageRun *r = p->run;
    bool whole = r->steps > 0 && r->step >= r->steps;
    p->eta = NAN;
    if (!r->lines) p->state = "empty", p->why = "there is no metrics.jsonl in this folder, or nothing in it";
    else if (r->ended) p->state = whole ? "finished" : "stopped", p->why = whole ? "all steps are made"
            : "ended before its last step, by a signal or run.stop_at; it can be resumed";
    else if (disk_lock_held(p->dir)) p->state = "running", p->why = "a process is at work on it";
    else p->state = "failed", p->why = "no process is at work on it, and it has not written its end: it was killed or "
            "ended by an error; it can be resumed from its newest checkpoint";
    if (!strcmp(p->state, "running") && r->step > r->process_step && r->process_t)
        p->eta = (r->last_t - r->process_t) / (r->step - r->process_step) * (r->steps - r->step);
}

static void put_head(FILE *f, const Page *p)
{
    const PageRun *r = p->run;
    double done = r->steps > 0 ? fmin(1, r->step / r->steps) : 0;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "script-src 'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>", f);
    page_text(f, r->name ? r->name : p->dir);
    fprintf(f, "</title>\n<style>\n%s</style>\n</head>\n<body data-state=\"%s\" data-now=\"%.0f\">\n<header>\n<h1>",
            page_style, p->state, p->now);
    page_text(f, r->name && *r->name ? r->name : p->dir);
    fprintf(f, " <span class=\"state %s\">%s</span></h1>\n", p->state, p->state);
    if (r->model) fputs("<p class=\"model\">", f), page_text(f, r->model), fputs("</p>\n", f);
    fprintf(f, "<div class=\"bar\" role=\"img\" aria-label=\"%.0f%% of the steps\"><i style=\"width:%.2f%%\"></i>"
            "</div>\n<p class=\"muted\">step <b>%.0f</b> of <b>%.0f</b>, %.1f%%", 100 * done, 100 * done, r->step,
            r->steps, 100 * done);
    if (isfinite(p->eta)) fputs(" · about <b>", f), put_time(f, p->eta), fputs("</b> left", f);
    fputs(" · ", f), page_text(f, p->why);
    fputs("<span id=\"age\"></span></p>\n</header>\n<main>\n", f);
}

static void tile(FILE *f, const char *label, double value, const char *format, const char *unit)
{
    if (!isfinite(value)) return;
    fprintf(f, "<div><dt>%s</dt><dd>", label);
    if (format) fprintf(f, format, value);
    else put_count(f, value);
    fprintf(f, "<small>%s</small></dd></div>\n", unit);
}

static void put_tiles(FILE *f, const PageRun *r)
{
    const PageSeries *val = page_find(r, "val_loss"), *loss = page_find(r, "loss");
    double last = val ? val->last : NAN;
    fputs("<dl class=\"tiles\">\n", f);
    tile(f, "training loss, last step", loss ? loss->last : NAN, "%.4f", "nats a token");
    tile(f, "validation loss", last, "%.4f", "nats a token");
    if (val && val->low < last) tile(f, "lowest validation loss", val->low, "%.4f", "nats a token");
    tile(f, "bits per byte", last_of(r, "val_bpb"), "%.4f", "validation");
    tile(f, "perplexity", exp(last), "%.4g", "validation");
    if (r->floor > 0) tile(f, r->floor_is_bound ? "floor, at most" : "floor", r->floor, "%.4f", "nats a token");
    if (r->floor > 0) tile(f, "above the floor", 100 * (last / r->floor - 1), "%.1f%%", "validation");
    tile(f, "tokens seen", r->tokens ? r->tokens : NAN, NULL, "");
    tile(f, "parameters", r->params ? r->params : NAN, NULL, "");
    tile(f, "speed, mean", rate_of(r, "tok_s"), NULL, "tokens a second");
    tile(f, "sequences, mean", rate_of(r, "samples_s"), "%.4g", "a second");
    tile(f, "MFU, mean", 100 * rate_of(r, "mfu"), "%.1f%%", "of the peak");
    if (r->seconds > 0) {
        fputs("<div><dt>time of training</dt><dd>", f), put_time(f, r->seconds);
        fputs("</dd></div>\n", f);
    }
    tile(f, "skipped updates", last_of(r, "skips"), "%.0f", "");
    tile(f, "spikes", last_of(r, "spikes"), "%.0f", "");
    fputs("</dl>\n", f);
    if (loss && loss->bad)
        fprintf(f, "<p class=\"bad\">The training loss of %.0f step%s was not finite.</p>\n", loss->bad,
                loss->bad == 1 ? "" : "s");
    if (r->bad_lines)
        fprintf(f, "<p class=\"muted\">%.0f line%s of metrics.jsonl could not be read: cut while it was written, or "
                "damaged.</p>\n", r->bad_lines, r->bad_lines == 1 ? "" : "s");
}

// ---- charts

static void chart(FILE *f, const char *title, const char *keys, const char *more)
{
    fputs("<figure data-title=\"", f), page_text(f, title);
    fputs("\" data-keys=\"", f), page_text(f, keys);
    fprintf(f, "\"%s><figcaption>", more), page_text(f, title);
    fputs("</figcaption></figure>\n", f);
}

// Appends to `keys` those of evaluations that begin with `start`.
static void add_keys(char *keys, size_t size, const PageRun *r, const char *start)
{
    for (size_t i = 0; i < r->n_series; i++) {
        const char *key = r->series[i].key;
        size_t n = strlen(keys);
        if (r->series[i].val && !strncmp(key, start, strlen(start)) && !strchr(key, ','))
            snprintf(keys + n, size - n, "%s%s", n ? "," : "", key);
    }
}

static void put_charts(FILE *f, const PageRun *r)
{
    section(f, "loss", "Loss");
    fputs("<p class=\"tools\"><button data-span=\"1\">whole run</button> <button data-span=\"0.5\">last half</button> "
          "<button data-span=\"0.1\">last tenth</button> <label><input type=\"checkbox\" id=\"log\"> logarithmic loss"
          "</label> <span class=\"muted\">Over steps. Drag across a chart to zoom into all, double-click for all steps."
          "</span></p>\n<noscript><p>The charts need the page's own script; loss.svg beside this file shows the loss "
          "without one.</p></noscript>\n", f);
    char keys[1024] = "loss,val_loss";
    add_keys(keys, sizeof keys, r, "val_loss ");
    chart(f, "loss, nats a token", keys, " class=\"tall\" data-late=\"1\" data-floor=\"1\"");
    fputs("<div class=\"two\">\n", f);
    chart(f, "gradient norm, before clipping", "grad_norm", " data-late=\"1\"");
    chart(f, "learning rate", "lr", " data-zero=\"1\"");
    fputs("</div>\n</section>\n", f);
}

static void put_speed(FILE *f, const PageRun *r)
{
    if (!page_find(r, "tok_s")) return;
    section(f, "speed", "Speed");
    fputs("<div class=\"two\">\n", f);
    chart(f, "tokens a second", "tok_s", " data-zero=\"1\"");
    chart(f, "MFU, of the peak", "mfu", " data-zero=\"1\"");
    fputs("</div>\n</section>\n", f);
}

// What has no chart above: every other number of the file.
static void put_others(FILE *f, const PageRun *r)
{
    static const char *const shown[] = {"loss", "val_loss", "val_bpb", "val_ppl", "ppl", "grad_norm", "lr", "tok_s",
                                        "mfu", "samples_s", "dt_ms", "spikes", "skips"};
    bool any = false;
    for (size_t i = 0; i < r->n_series; i++) {
        const char *key = r->series[i].key;
        size_t n = strlen(key);
        bool skip = r->series[i].experts || strchr(key, ',') || (n > 3 && !strcmp(key + n - 3, "_ms"));
        skip |= r->series[i].val && strchr(key, ' '); // of a set or a task
        for (size_t k = 0; k < sizeof shown / sizeof *shown; k++) skip |= !strcmp(key, shown[k]);
        if (skip) continue;
        if (!any) section(f, "others", "Other measurements"), fputs("<div class=\"two\">\n", f), any = true;
        chart(f, strcmp(key, "noise_scale") ? key : "gradient noise scale, tokens", key, "");
    }
    if (any) fputs("</div>\n</section>\n", f);
}

static void put_evaluations(FILE *f, const PageRun *r)
{
    static const char *const figure[][2] = {{"acc ", "accuracy of tasks"},
                                            {"acc_norm ", "accuracy of tasks, by characters"},
                                            {"perplexity ", "perplexity of tasks, a word"}};
    bool any = false;
    for (size_t i = 0; i < r->n_series; i++) any |= r->series[i].val && r->series[i].count;
    if (!any) return;
    section(f, "evaluation", "Evaluation");
    table(f, "measure|#last|#at step|#lowest|#at step|#highest|#at step");
    for (size_t i = 0; i < r->n_series; i++) {
        const PageSeries *s = &r->series[i];
        if (!s->val || !s->count) continue;
        fputs("<tr><td>", f), page_text(f, s->key);
        const double cell[][2] = {{s->last, s->last_step}, {s->low, s->low_step}, {s->high, s->high_step}};
        for (int k = 0; k < 3; k++)
            fprintf(f, "</td><td class=\"n\">%.6g</td><td class=\"n\">%.0f", cell[k][0], cell[k][1]);
        fputs("</td></tr>\n", f);
    }
    fputs(TABLE_END "<div class=\"two\">\n", f);
    for (size_t i = 0; i < sizeof figure / sizeof *figure; i++) {
        char keys[1024] = "";
        add_keys(keys, sizeof keys, r, figure[i][0]);
        if (*keys) chart(f, figure[i][1], keys, "");
    }
    fputs("</div>\n</section>\n", f);
}

// ---- time and memory

static void put_share(FILE *f, const char *color, double share)
{
    fprintf(f, "<td class=\"n\">%.1f%%</td><td class=\"share\"><i class=\"%s\" style=\"width:%.2f%%\"></i></td></tr>\n",
            100 * share, color, 100 * fmax(0, fmin(1, share)));
}

// A phase of a step: its mean over all train lines; a line without it had 0.
static double put_phase(FILE *f, const PageRun *r, const char *name, const char *key, double step_ms)
{
    const PageSeries *s = page_find(r, key), *all = page_find(r, "dt_ms");
    double ms = s && all && all->count ? s->sum / all->count : 0;
    if (!s || !s->sum) return 0; // a process alone waits for nobody
    fprintf(f, "<tr><td>%s</td><td class=\"n\">%.3f</td>", name, ms);
    put_share(f, "a", ms / step_ms);
    return ms;
}

// Between steps; the sum of the file over its steps.
static void put_between(FILE *f, const PageRun *r, const char *name, const char *key, double step_ms)
{
    const PageSeries *s = page_find(r, key);
    if (!s || !s->sum || !(r->step > 0)) return;
    fprintf(f, "<tr><td>%s</td><td class=\"n\">%.3f</td>", name, s->sum / r->step);
    put_share(f, "b", s->sum / r->step / step_ms);
}

static void put_phases(FILE *f, const PageRun *r)
{
    static const char *const phase[][2] = {{"data", "data_ms"}, {"forward", "forward_ms"}, {"backward", "backward_ms"},
                                           {"communication, waited for", "comm_ms"}, {"optimizer", "optim_ms"}};
    double step_ms = mean_of(r, "dt_ms"), sum = 0;
    if (!isfinite(step_ms) || !(step_ms > 0)) return;
    section(f, "time", "Time of a step");
    if (!page_find(r, "data_ms")) {
        fprintf(f, "<p>A step takes <b>%.3f ms</b> in the mean. This run has not recorded its phases.</p>\n"
                "</section>\n", step_ms);
        return;
    }
    table(f, "phase|#ms a step, mean|#of the step|");
    for (size_t i = 0; i < sizeof phase / sizeof *phase; i++) sum += put_phase(f, r, phase[i][0], phase[i][1], step_ms);
    bool host = page_find(r, "forward_ms");
    fprintf(f, "<tr><td>%s</td><td class=\"n\">%.3f</td>",
            host ? "other" : "forward, backward and update, on the device", fmax(0, step_ms - sum));
    put_share(f, "a", 1 - sum / step_ms);
    fprintf(f, "<tr class=\"sum\"><td>step</td><td class=\"n\">%.3f</td><td class=\"n\">100.0%%</td><td></td></tr>\n",
            step_ms);
    put_between(f, r, "saving, between steps", "save_ms", step_ms);
    put_between(f, r, "evaluation and samples, between steps", "eval_ms", step_ms);
    fputs(TABLE_END, f);
    const PageSeries *comm = page_find(r, "comm_ms");
    chart(f, "milliseconds of each step, by phase",
          !host ? "dt_ms,data_ms" : comm && comm->sum ? "dt_ms,data_ms,forward_ms,backward_ms,comm_ms,optim_ms"
          : "dt_ms,data_ms,forward_ms,backward_ms,optim_ms", " data-zero=\"1\" data-late=\"1\"");
    fputs("</section>\n", f);
}

static void put_memory(FILE *f, const PageRun *r)
{
    double all = 0;
    for (int i = 0; i < r->n_memory; i++) all += r->memory[i].n_bytes;
    if (!(all > 0)) return;
    section(f, "memory", "Memory of rank 0");
    table(f, "what|#MB|#of all|");
    for (int i = 0; i < r->n_memory; i++) {
        fputs("<tr><td>", f), page_text(f, r->memory[i].key);
        fprintf(f, "</td><td class=\"n\">%.2f</td>", r->memory[i].n_bytes / 1e6);
        put_share(f, "a", r->memory[i].n_bytes / all);
    }
    fprintf(f, "<tr class=\"sum\"><td>all</td><td class=\"n\">%.2f</td><td class=\"n\">100.0%%</td><td></td></tr>\n"
            TABLE_END "</section>\n", all / 1e6);
}

// ---- experts

enum { MAP_LAYERS = 12, MAP_ROWS = 64, MAP_CLASSES = 5 };

// Of a list of n, at most `most`: the first, the last, and some between.
static bool chosen(size_t i, size_t n, size_t most)
{
    return n <= most || i == n - 1 || i * (most - 1) / (n - 1) != (i ? (i - 1) * (most - 1) / (n - 1) : (size_t)-1);
}

// The class of an expert's load, from its slots and the mean of all: none; below half, up to twice, up to four times
// the mean; more. Of neighbours that share a row the one that is farthest from the mean.
static int class_of(const PageLayer *l, const double *column, size_t first, size_t end)
{
    double mean = 0, far = 1;
    for (size_t e = 0; e < l->experts; e++) mean += column[e] / (double)l->experts;
    for (size_t e = first; mean > 0 && e < end; e++)
        if (fabs(log(column[e] / mean)) > fabs(log(far))) far = column[e] / mean;
    return far == 0 ? 0 : far < 0.5 ? 1 : far <= 2 ? 2 : far <= 4 ? 3 : 4;
}

// A row for each expert, a column for each line (or `stride` of them), and a path for each class of cells.
static void put_map(FILE *f, const PageLayer *l)
{
    size_t each = (l->experts + MAP_ROWS - 1) / MAP_ROWS, rows = (l->experts + each - 1) / each;
    fputs("<div><b>", f), page_text(f, l->name);
    fprintf(f, "</b><svg class=\"map\" viewBox=\"0 0 %zu %zu\" preserveAspectRatio=\"none\" role=\"img\" "
            "aria-label=\"loads of %zu experts\">", l->n, rows, l->experts);
    for (int class = 0; class < MAP_CLASSES; class++) {
        fprintf(f, "<path class=\"l%d\" d=\"", class);
        for (size_t row = 0; row < rows; row++)
            for (size_t c = 0, n = 0; c < l->n; c += n ? n : 1) {
                size_t first = row * each, end = first + each < l->experts ? first + each : l->experts;
                for (n = 0; c + n < l->n && class_of(l, l->load + (c + n) * l->experts, first, end) == class;) n++;
                if (n) fprintf(f, "M%zu %zuh%zuv1h-%zuz", c, row, n, n);
            }
        fputs("\"></path>", f);
    }
    fputs("</svg></div>\n", f);
}

static void put_experts(FILE *f, const PageRun *r)
{
    if (!r->n_layers) return;
    section(f, "experts", "Experts");
    fputs("<p>Look for a largest load that rises while the entropy falls (the router collapses onto a few experts), "
          "for rows that stay <b class=\"l0\">without a token</b> (dead experts), and for drops that do not shrink."
          "</p>\n", f);
    table(f, "layer|#largest load, of the mean|#smallest|#without a token|#entropy, of ln E|#dropped|#largest weight|"
          "#balance loss|#z loss|#lowest bias|#highest|");
    for (size_t i = 0; i < r->n_layers; i++) {
        fputs("<tr><td>", f), page_text(f, r->layer[i].name), fputs("</td>", f);
        for (int k = 0; k < PAGE_FIGURES; k++) {
            fputs("<td class=\"n\">", f);
            if (isfinite(r->layer[i].last[k])) fprintf(f, "%.4g", r->layer[i].last[k]);
            fputs("</td>", f);
        }
        fputs("</tr>\n", f);
    }
    fputs(TABLE_END "<p class=\"muted\">In the charts: the worst layer of each step.</p>\n<div class=\"two\">\n", f);
    chart(f, "load of an expert, of the mean", "experts.load_max,experts.load_min", " data-zero=\"1\"");
    chart(f, "entropy of the loads, of ln E", "experts.entropy", " data-zero=\"1\"");
    chart(f, "experts without a token, all layers", "experts.idle", " data-zero=\"1\"");
    chart(f, "slots dropped, part of all", "experts.dropped", " data-zero=\"1\"");
    chart(f, "losses of the router", "experts.balance_loss,experts.z_loss", " data-zero=\"1\"");
    chart(f, "bias of the choice", "experts.bias_min,experts.bias_max", "");
    fprintf(f, "</div>\n<p class=\"muted\">Loads: a row for each expert, time to the right. <b class=\"l0\">no token"
            "</b>, <b class=\"l1\">less than half</b> of the mean, white: up to twice, <b class=\"l3\">up to four times</b>, "
            "<b class=\"l4\">more</b>.%s</p>\n<div class=\"maps\">\n",
            r->layer[0].experts > MAP_ROWS ? " Neighbours share a row, which shows the one farthest from the mean."
                                           : "");
    for (size_t i = 0; i < r->n_layers; i++)
        if (chosen(i, r->n_layers, MAP_LAYERS)) put_map(f, &r->layer[i]);
    fputs("</div>\n</section>\n", f);
}

// ---- samples and events

static void put_samples(FILE *f, const PageRun *r)
{
    if (!r->n_samples) return;
    section(f, "samples", "Samples");
    if (r->n_samples > SAMPLES)
        fprintf(f, "<p class=\"muted\">%d of %zu, the newest first; samples.txt has all.</p>\n", SAMPLES, r->n_samples);
    for (size_t i = r->n_samples; i-- > 0;) {
        if (!chosen(i, r->n_samples, SAMPLES)) continue;
        const PageEvent *s = &r->sample[i];
        bool cut = strlen(s->text) > SAMPLE_BYTES;
        if (cut) s->text[words_utf8_border(s->text, strlen(s->text), SAMPLE_BYTES)] = '\0';
        fprintf(f, "<details%s><summary>step %.0f</summary><pre>", i + 1 == r->n_samples ? " open" : "", s->step);
        page_text(f, s->text);
        fprintf(f, "%s</pre></details>\n", cut ? " ..." : "");
    }
    fputs("</section>\n", f);
}

static bool is_save(const PageEvent *e)
{
    return !strcmp(e->event, "save");
}

static void put_events(FILE *f, const PageRun *r)
{
    size_t n_saves = 0, saves = 0, others = 0, n_others;
    for (size_t i = 0; i < r->n_events; i++) n_saves += is_save(&r->event[i]);
    n_others = r->n_events - n_saves;
    if (!r->n_events) return;
    section(f, "events", "Events");
    if (n_saves > EVENTS / 4 || n_others > EVENTS)
        fprintf(f, "<p class=\"muted\">The newest %d saves of %zu and %d other events of %zu; log.txt has all.</p>\n",
                EVENTS / 4, n_saves, EVENTS, n_others);
    table(f, "#step|time|event|what");
    for (size_t i = r->n_events; i-- > 0;) {
        const PageEvent *e = &r->event[i];
        if (is_save(e) ? ++saves > EVENTS / 4 : ++others > EVENTS) continue;
        bool bad = !strcmp(e->event, "skip") || !strcmp(e->event, "rollback") || !strcmp(e->event, "warn");
        fprintf(f, "<tr%s><td class=\"n\">%.0f</td><td class=\"t\">", bad ? " class=\"bad\"" : "", e->step);
        put_date(f, e->t);
        fputs("</td><td>", f), page_text(f, e->event), fputs("</td><td>", f);
        page_text(f, e->text), fputs("</td></tr>\n", f);
    }
    fputs(TABLE_END "</section>\n", f);
}

// ---- settings: config.toml

typedef struct {
    char key[128], value[600], where[200];
    int row; // of the table of settings; -1: not a setting of this program
    int rank; // 0: changed, 1: derived, 2: at its default
} Setting;

// A line "key = value  # where", key and value as they stand. False: it is another one.
static bool parse_setting(char *line, const char *section_name, Setting *s)
{
    bool off = line[0] == '#';
    char *equals = strstr(line, " = "), *value, *end, *hash;
    if (!equals) return false;
    *equals = '\0', value = equals + 3;
    char *name = off ? line + 1 + strspn(line + 1, " ") : line;
    if (strchr(name, ' ') || !*name) return false;
    snprintf(s->key, sizeof s->key, "%.60s.%.60s", section_name, name);
    bool quoted = *value == '"';
    for (end = value + quoted; *end && (quoted ? *end != '"' : *end != ' '); end++)
        if (quoted && *end == '\\' && end[1]) end++;
    hash = strchr(end, '#');
    if (hash) snprintf(s->where, sizeof s->where, "%.190s", hash + 1 + strspn(hash + 1, " "));
    else s->where[0] = '\0';
    snprintf(s->value, sizeof s->value, "%.*s", (int)(end - value) - quoted, value + quoted);
    s->row = config_table_find(s->key);
    if (strstr(s->where, "no effect") || (off && s->row >= 0 && config_table(NULL)[s->row].def)) return false;
    return true;
}

static int rank_of(const Setting *s)
{
    const ConfigKey *key = s->row >= 0 ? &config_table(NULL)[s->row] : NULL;
    if (!key || !key->def) return key ? 1 : 0;
    bool number = key->type == CONFIG_INTEGER || key->type == CONFIG_NUMBER;
    bool same = number ? strtod(key->def, NULL) == strtod(s->value, NULL) : !strcmp(key->def, s->value);
    if (!strncmp(s->where, "derived", 7)) return 1;
    return same ? 2 : 0;
}

static void put_setting(FILE *f, const Setting *s)
{
    const ConfigKey *key = s->row >= 0 ? &config_table(NULL)[s->row] : NULL;
    fputs("<tr><td><code>", f), page_text(f, s->key), fputs("</code></td><td><code>", f), page_text(f, s->value);
    fputs("</code></td><td class=\"muted\">", f);
    if (key && key->def) page_text(f, *key->def ? key->def : "\"\"");
    fputs("</td><td class=\"muted\">", f), page_text(f, s->where);
    fputs("</td><td class=\"muted\">", f), page_text(f, key ? key->help : "not a setting of this version");
    fputs("</td></tr>\n", f);
}

static void put_settings(FILE *f, const char *path)
{
    static const char *const title[] = {"Changed from the default", "Derived from others", "At their default"};
    size_t n_bytes, n = 0, cap = 0;
    char *text = disk_read_file(path, &n_bytes, FILE_BYTES), in[64] = "";
    Setting *all = NULL, one;
    if (!text) return;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '[') snprintf(in, sizeof in, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
        else if (parse_setting(line, in, &one)) {
            all = words_grow(all, &cap, n + 1, sizeof *all);
            one.rank = rank_of(&one);
            all[n++] = one;
        }
    }
    section(f, "settings", "Settings");
    for (int rank = 0; rank < 3; rank++) {
        size_t count = 0;
        for (size_t i = 0; i < n; i++) count += all[i].rank == rank;
        if (!count) continue;
        fprintf(f, "<details%s><summary>%s: %zu</summary>", rank ? "" : " open", title[rank], count);
        table(f, "setting|value|default|from|meaning");
        for (size_t i = 0; i < n; i++)
            if (all[i].rank == rank) put_setting(f, &all[i]);
        fputs(TABLE_END "</details>\n", f);
    }
    fputs("</section>\n", f);
    free(all);
    free(text);
}

// ---- the pipeline: trace.json

typedef struct {
    double start, end; // microseconds
    int stage, micro;
    char op; // F, B, W
} Span;

static size_t read_spans(const char *path, Span *span, int *stages)
{
    size_t n_bytes, n = 0;
    char *text = disk_read_file(path, &n_bytes, FILE_BYTES);
    json_t *root = text ? json_loads(text, 0, NULL) : NULL, *list = json_object_get(root, "traceEvents");
    *stages = 0;
    for (size_t i = 0; i < json_array_size(list) && n < SPANS; i++) {
        const json_t *e = json_array_get(list, i), *args = json_object_get(e, "args");
        const char *name = json_string_value(json_object_get(e, "name"));
        const char *kind = json_string_value(json_object_get(e, "ph"));
        double start = json_number_value(json_object_get(e, "ts"));
        double length = json_number_value(json_object_get(e, "dur"));
        json_int_t stage = json_integer_value(json_object_get(e, "tid"));
        int micro = (int)json_integer_value(json_object_get(args, "micro"));
        if (!name || !name[0] || !kind || strcmp(kind, "X") || !strchr("FBW", name[0])) continue; // names of threads
        if (stage < 0 || stage > 255 || !(length >= 0)) continue;
        span[n++] = (Span){start, start + length, (int)stage, micro, name[0]};
        if (stage >= *stages) *stages = (int)stage + 1;
    }
    json_decref(root);
    free(text);
    return n;
}

enum { PIPE_LEFT = 60, PIPE_WIDTH = 1000, PIPE_ROW = 24 };

// One action: a box, and in it the number of its micro-batch.
static void put_span(FILE *f, const Span *s, double x, double w)
{
    int y = s->stage * PIPE_ROW;
    fprintf(f, "<rect class=\"%c\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">", s->op, x, y + 2,
            fmax(0.3, w - 0.6), PIPE_ROW - 4);
    fprintf(f, "<title>%c%d: %.3f ms</title></rect>\n", s->op, s->micro, (s->end - s->start) / 1e3);
    if (w > 16) fprintf(f, "<text class=\"in\" x=\"%.2f\" y=\"%d\">%d</text>\n", x + w / 2, y + 16, s->micro);
}

static void put_pipeline(FILE *f, const char *path)
{
    Span *span = malloc(SPANS * sizeof *span);
    if (!span) die("page: no memory for %d spans", SPANS);
    int stages;
    size_t n = read_spans(path, span, &stages);
    double from = INFINITY, to = -INFINITY, busy = 0;
    for (size_t i = 0; i < n; i++) {
        from = fmin(from, span[i].start), to = fmax(to, span[i].end);
        busy += span[i].end - span[i].start;
    }
    if (n && to > from) {
        double scale = (PIPE_WIDTH - PIPE_LEFT) / (to - from);
        section(f, "pipeline", "Pipeline: one update of all stages");
        fprintf(f, "<p class=\"muted\">%.3f ms; <b class=\"F\">forward</b>, <b class=\"B\">backward</b>, "
                "<b class=\"W\">backward of weights</b>, each with its micro-batch; %.1f%% of the stages' time is idle."
                "</p>\n", (to - from) / 1e3, 100 * (1 - busy / ((to - from) * stages)));
        fprintf(f, "<div class=\"wide\"><svg class=\"pipe\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"timeline\">"
                "\n", PIPE_WIDTH, stages * PIPE_ROW + 4);
        for (int s = 0; s < stages; s++)
            fprintf(f, "<text x=\"0\" y=\"%d\">stage %d</text>\n", s * PIPE_ROW + 16, s);
        for (size_t i = 0; i < n; i++)
            put_span(f, &span[i], PIPE_LEFT + (span[i].start - from) * scale, (span[i].end - span[i].start) * scale);
        fputs("</svg></div>\n</section>\n", f);
    }
    free(span);
}

// ---- the numbers of the charts

static void put_number(FILE *f, double x)
{
    if (isfinite(x)) fprintf(f, "%.6g", x);
    else fputs("null", f);
}

// "loss":[[steps],[values]]; where buckets have several numbers also [middle steps],[means]
static void put_series(FILE *f, const PageSeries *s)
{
    page_json(f, s->key);
    for (int part = 0; part < 2; part++) {
        fputs(part ? "],[" : ":[[", f);
        for (size_t i = 0; i < s->n; i++) {
            const PageBucket *b = &s->bucket[i];
            for (int k = 0; k < (b->step[0] != b->step[1] ? 2 : 1); k++) {
                if (i || k) fputc(',', f);
                if (part) put_number(f, b->value[k]);
                else fprintf(f, "%.0f", b->step[k]);
            }
        }
    }
    for (int part = 0; part < 2 && s->stride > 1; part++) {
        fputs("],[", f);
        for (size_t i = 0; i < s->n; i++) {
            const PageBucket *b = &s->bucket[i];
            if (i) fputc(',', f);
            if (part) put_number(f, b->sum / b->count);
            else fprintf(f, "%.1f", (b->from + b->to) / 2);
        }
    }
    fputs("]]", f);
}

static void put_data(FILE *f, const PageRun *r)
{
    int marks = 0;
    fputs("<script type=\"application/json\" id=\"data\">\n{\"floor\":", f);
    put_number(f, r->floor > 0 ? r->floor : NAN);
    fprintf(f, ",\"step\":%.0f,\"series\":{", r->step);
    for (size_t i = 0; i < r->n_series; i++) fputs(i ? ",\n" : "\n", f), put_series(f, &r->series[i]);
    fputs("},\n\"last\":{", f);
    for (size_t i = 0; i < r->n_series; i++) {
        fputs(i ? "," : "", f), page_json(f, r->series[i].key);
        fputc(':', f), put_number(f, r->series[i].last);
    }
    fputs("},\n\"val\":[", f);
    for (size_t i = 0, n = 0; i < r->n_series; i++)
        if (r->series[i].val || r->series[i].experts) fputs(n++ ? "," : "", f), page_json(f, r->series[i].key);
    fputs("],\n\"marks\":[", f);
    for (size_t i = 0; i < r->n_events && marks < 500; i++) {
        const char *e = r->event[i].event;
        if (strcmp(e, "resume") && strcmp(e, "skip") && strcmp(e, "rollback") && strcmp(e, "warn")) continue;
        fprintf(f, "%s[%.0f,", marks++ ? "," : "", r->event[i].step), page_json(f, e), fputc(']', f);
    }
    fputs("]}\n</script>\n", f);
}

// ---- the whole

static void put_foot(FILE *f, const Page *p)
{
    fputs("</main>\n<footer>written ", f), put_date(f, p->now);
    fputs(" from the files in <code>", f), page_text(f, p->dir);
    fputs("</code>; again by <code>build/show plot ", f), page_text(f, p->dir);
    fputs(" --html</code></footer>\n", f);
}

static void put_page(FILE *f, const Page *p)
{
    char config[PATH_MAX], trace[PATH_MAX];
    snprintf(config, sizeof config, "%s/config.toml", p->dir);
    snprintf(trace, sizeof trace, "%s/trace.json", p->dir);
    put_head(f, p);
    if (p->run->lines) put_tiles(f, p->run);
    if (page_find(p->run, "loss")) put_charts(f, p->run);
    else fputs("<p>No training step yet.</p>\n", f);
    put_evaluations(f, p->run);
    put_speed(f, p->run);
    put_phases(f, p->run);
    put_memory(f, p->run);
    put_experts(f, p->run);
    put_pipeline(f, trace);
    put_others(f, p->run);
    put_samples(f, p->run);
    put_events(f, p->run);
    put_settings(f, config);
    put_foot(f, p);
    put_data(f, p->run);
    fprintf(f, "<script>\n%s</script>\n</body>\n</html>\n", page_script);
}

bool page_write(const char *dir, const char *path)
{
    char metrics[PATH_MAX], own[PATH_MAX], real[PATH_MAX], *text = NULL;
    size_t n_bytes = 0;
    if (strlen(dir) > PATH_MAX - 40) die("page: path too long: %s", dir);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
    snprintf(own, sizeof own, "%s/report.html", dir);
    PageRun run = page_read(metrics);
    Page p = {.run = &run, .dir = dir, .now = (double)time(NULL)};
    set_state(&p);
    FILE *f = open_memstream(&text, &n_bytes);
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); // decimal points, whatever the user's language
    if (!f || !c) die("page: no memory");
    locale_t before = uselocale(c);
    put_page(f, &p);
    uselocale(before);
    freelocale(c);
    if (ferror(f) || fclose(f) || !text) die("page: no memory");
    const char *to = path ? path : own;
    if (!disk_is_special(to) && realpath(to, real)) to = real; // a link is followed
    bool written = disk_replace_file(to, text, n_bytes);
    int error = errno;
    free(text);
    page_free(&run);
    errno = error;
    return written;
}
