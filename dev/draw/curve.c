// curve: reads a loss curve as the guides do. See curve.h.
//
//     gain    (mean of the window before - mean of this one) / mean of the window before
//     still   |gain| < plateau (0.01): one window may be noise, two in a row are a plateau
//     worse   gain <= -plateau: the loss rises, which the guides' rule calls a plateau too, and advises a higher rate
//     spike   z > 3 against the accepted steps before (monitor.h), for loss and gradient norm
//
// The monitor itself finds the spikes, run over the file: the list is what `monitor.skip_z` with this z would have
// skipped, even if the run had no monitor. Of normal numbers one in 740 exceeds 3 standard deviations by chance alone;
// that is good for inspection, but a run should use 6.
//
// A gain is noisy: two means of n losses with standard deviation s differ by about s sqrt(2 / n) by chance. The table
// prints s, so that a reader can judge; the verdicts ignore it, as the guides' rule does.
//
// The invariant: a file that is still being written, was truncated, or has NaNs gives a table; numbers that are not
// finite are counted, not averaged.
//
// Rejected: fitting a power law (two parameters from a noisy curve, and an exponent that the schedule bends).
#include "dev/draw/curve.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>

static void *allocate(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) die("curve: no memory for %zu lines", n);
    return p;
}

static size_t count_train(const MetricsLog *log)
{
    size_t n = 0;
    for (size_t i = 0; i < log->n_rows; i++) n += log->row[i].event == METRICS_TRAIN;
    return n;
}

// Mean and std of the finite losses of the n train lines from log line `at` on.
static CurveWindow measure(const MetricsRow *const *row, size_t n)
{
    CurveWindow w = {.first = row[0]->step, .last = row[n - 1]->step, .gain = NAN};
    double count = 0, norms = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(row[i]->loss) || !isfinite(row[i]->grad_norm)) w.bad++;
        if (isfinite(row[i]->loss)) w.mean += row[i]->loss, count++;
        if (isfinite(row[i]->grad_norm)) w.norm += row[i]->grad_norm, norms++;
    }
    w.mean /= count; // NAN without any
    w.norm /= norms;
    for (size_t i = 0; i < n; i++)
        if (isfinite(row[i]->loss)) squares += (row[i]->loss - w.mean) * (row[i]->loss - w.mean);
    w.std = count > 1 ? sqrt(squares / (count - 1)) : 0;
    return w;
}

static void find_spikes(Curve *c, const MetricsRow *const *row)
{
    Monitor monitor = monitor_create(c->set.spike_window, c->set.spike_z, 1000000);
    for (size_t i = 0; i < c->n_steps; i++) {
        MonitorVerdict v = monitor_judge(&monitor, row[i]->loss, row[i]->grad_norm);
        if (v.reason != MONITOR_SPIKE) continue;
        c->spike[c->n_spikes] = v;
        c->spike_step[c->n_spikes++] = row[i]->step;
        c->window[i / c->set.window < c->n_windows ? i / c->set.window : c->n_windows - 1].spikes++;
    }
    monitor_free(&monitor);
}

Curve curve_read(const MetricsLog *log, CurveSettings set)
{
    size_t n = count_train(log), at = 0;
    if (!set.window) set.window = n / 20 > 10 ? n / 20 : 10;
    if (!set.spike_window) set.spike_window = set.window > 32 ? set.window : 32;
    check(set.window >= 2 && set.spike_z > 0);
    Curve c = {.set = set, .n_steps = n, .n_windows = (n + set.window - 1) / set.window,
               .spike = allocate(n, sizeof *c.spike), .spike_step = allocate(n, sizeof *c.spike_step)};
    size_t rest = n % set.window;
    if (c.n_windows > 1 && rest && rest < set.window / 2 + 1) c.n_windows--; // the rest joins the last window
    c.window = allocate(c.n_windows, sizeof *c.window);
    const MetricsRow **row = allocate(n, sizeof *row);
    for (size_t i = 0; i < log->n_rows; i++) {
        c.events[log->row[i].event]++;
        if (log->row[i].event == METRICS_TRAIN) row[at++] = &log->row[i];
    }
    for (size_t w = 0; w < c.n_windows; w++) {
        size_t first = w * set.window, end = w + 1 == c.n_windows ? n : first + set.window;
        c.window[w] = measure(row + first, end - first);
        if (!w) continue;
        c.window[w].gain = (c.window[w - 1].mean - c.window[w].mean) / c.window[w - 1].mean;
        c.window[w].worse = c.window[w].gain <= -set.plateau;
        c.window[w].still = !(c.window[w].gain >= set.plateau) && !c.window[w].worse; // true for NAN too
    }
    if (n) find_spikes(&c, row);
    free(row);
    return c;
}

void curve_free(Curve *c)
{
    free(c->window);
    free(c->spike);
    free(c->spike_step);
    *c = (Curve){0};
}

static void print_rises(const Curve *c, FILE *out)
{
    for (size_t w = 1; w < c->n_windows; w++) {
        size_t end = w;
        while (end < c->n_windows && c->window[end].worse) end++;
        if (end == w) continue;
        double before = c->window[w - 1].mean;
        fprintf(out, "rises from step %lld to %lld: the mean loss is %.2f%% above that of the window before\n",
                (long long)c->window[w].first, (long long)c->window[end - 1].last,
                100 * (c->window[end - 1].mean - before) / before);
        w = end;
    }
}

static void print_standstill(const Curve *c, FILE *out)
{
    size_t found = 0;
    for (size_t w = 1; w < c->n_windows; w++) {
        size_t end = w;
        while (end < c->n_windows && c->window[end].still) end++;
        if (end - w >= 2) {
            fprintf(out, "stands still from step %lld to %lld: %zu windows, each within %g%% of the one before\n",
                    (long long)c->window[w].first, (long long)c->window[end - 1].last, end - w, 100 * c->set.plateau);
            found++;
        }
        w = end > w ? end : w;
    }
    if (!found)
        fprintf(out, "stands still nowhere: no two windows in a row within %g%% of the one before\n",
                100 * c->set.plateau);
}

void curve_print(const Curve *c, const char *name, FILE *out)
{
    enum { SHOWN = 20 };
    char why[300], gain[32], extra[64];
    fprintf(out, "%s: %zu steps, in windows of %zu\n", name, c->n_steps, c->set.window);
    if (!c->n_steps) return;
    fprintf(out, "%15s %10s %8s %10s %10s %7s\n", "steps", "mean loss", "std", "better by", "mean norm", "spikes");
    for (size_t w = 0; w < c->n_windows; w++) {
        const CurveWindow *x = &c->window[w];
        const char *verdict = x->worse ? "  worse" : x->still ? "  still" : "";
        snprintf(gain, sizeof gain, "%.2f%%", 100 * x->gain);
        extra[0] = '\0';
        if (x->bad) snprintf(extra, sizeof extra, "  %d not finite", x->bad);
        fprintf(out, "%7lld-%-7lld %10.4f %8.4f %10s %10.4g %7d%s%s\n", (long long)x->first, (long long)x->last,
                x->mean, x->std, w ? gain : "", x->norm, x->spikes, verdict, extra);
    }
    fprintf(out, "spikes over %g standard deviations: %zu\n", c->set.spike_z, c->n_spikes);
    Monitor words = {.window = c->set.spike_window};
    for (size_t i = 0; i < c->n_spikes && i < SHOWN; i++) {
        monitor_explain(&words, c->spike[i], why, sizeof why);
        fprintf(out, "  step %lld: %s\n", (long long)c->spike_step[i], why);
    }
    if (c->n_spikes > SHOWN) fprintf(out, "  and %zu more\n", c->n_spikes - SHOWN);
    print_rises(c, out);
    print_standstill(c, out);
    for (int e = 0; e < METRICS_EVENTS; e++)
        if (c->events[e] && (e == METRICS_SKIP || e == METRICS_ROLLBACK || e == METRICS_WARN || e == METRICS_RESUME))
            fprintf(out, "%s: %d\n", metrics_event_name((MetricsEvent)e), c->events[e]);
}
