// monitor: z-scores against a window of accepted steps. See monitor.h.
//
//   z = (x - mean) / max(std, floor)        mean, std (n - 1) over the last `window` accepted values
//   skip when z > skip_z                    x = loss, and x = ln |g|
//
// Only high values are spikes. A norm varies by factors, so its logarithm is judged: ten times as much is then as far
// off as a tenth. A steady trend is no spike: the value that follows n values on a straight line up has
// z = sqrt(3 (n + 1) / n), less than 2 from n = 4 on, however steep the line is.
//
// The invariant: a value that was skipped has never been in a window, so it cannot raise the std by which the next
// spike is measured. (With k spikes of one height among n values, the next such spike has at most
// z = sqrt((n - k) (n - 1) / (n k)), however high it is: 4 of them among 128 hide all others at skip_z = 6.) Nor does
// half a step enter: where the loss is a spike, its ordinary norm stays out too.
//
// Until a window holds `window` values everything finite is accepted; what stands there by then is taken for usual.
//
// After max_skips spikes in a row the batches are not to blame: the data has changed, or the model, and skipping
// would never end, since nothing new enters the windows. The next spike is accepted as the new level, and both windows
// begin again with it: what was usual before says nothing now. Numbers that are not finite are outside of this: they
// are always skipped, and do not count.
//
// A window is a flat array that moves up by one for each value; mean and std are made from it anew, in two passes, in
// the order of age. So a verdict is a function of the window alone. Rejected: running sums. They carry rounding of
// values that have left, which a resumed run would have to inherit, and they cancel where std is small beside the mean;
// the 2 x 128 additions that they save are nothing beside a step. Rejected: a ring with an index, which a damaged
// checkpoint could point anywhere. Rejected: median and MAD, which survive spikes in the window; here none are in it.
#include "monitor.h"

#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const signal_name[MONITOR_SIGNALS] = {"loss", "gradient norm"};

static size_t state_size(size_t window)
{
    return 1 + MONITOR_SIGNALS * window;
}

Monitor monitor_create(size_t window, double skip_z, long max_skips)
{
    check(window >= 2 && skip_z >= 0 && max_skips >= 0);
    Monitor m = {.window = window, .skip_z = skip_z, .max_skips = max_skips};
    m.state = calloc(state_size(window), sizeof *m.state);
    if (!m.state) die("monitor.window: no memory for %zu steps", window);
    m.skips = m.state;
    for (int s = 0; s < MONITOR_SIGNALS; s++) m.past[s] = m.state + 1 + (size_t)s * window;
    monitor_reset(&m);
    return m;
}

void monitor_free(Monitor *m)
{
    free(m->state);
    *m = (Monitor){0};
}

void monitor_reset(Monitor *m)
{
    *m->skips = 0;
    for (size_t i = 1; i < state_size(m->window); i++) m->state[i] = NAN;
}

double *monitor_state(Monitor *m, size_t *n)
{
    *n = state_size(m->window);
    return m->state;
}

// The scale on which a signal is judged. A norm of 0 has no logarithm: NAN, which is never a spike.
static double scaled(MonitorSignal signal, double value)
{
    if (signal == MONITOR_LOSS) return value;
    return value > 0 ? log(value) : NAN;
}

// Newest last. A norm of 0 says nothing about norms and stays out.
static void enter(Monitor *m, MonitorSignal signal, double value)
{
    double *past = m->past[signal], x = scaled(signal, value);
    if (isnan(x)) return;
    memmove(past, past + 1, (m->window - 1) * sizeof *past);
    past[m->window - 1] = x;
}

// z of a value, with the mean and std behind it; false: no full window, or no z.
static bool score(const Monitor *m, MonitorSignal signal, double value, MonitorVerdict *v)
{
    const double *past = m->past[signal];
    double mean = 0, squares = 0, x = scaled(signal, value);
    for (size_t i = 0; i < m->window; i++) mean += past[i];
    mean /= (double)m->window;
    for (size_t i = 0; i < m->window; i++) squares += (past[i] - mean) * (past[i] - mean);
    double std = sqrt(squares / (double)(m->window - 1)); // NAN while a value is missing
    if (isnan(std) || isnan(x)) return false;
    if (std < MONITOR_STD_FLOOR) std = MONITOR_STD_FLOOR;
    *v = (MonitorVerdict){.reason = MONITOR_USUAL, .signal = signal, .value = value, .z = (x - mean) / std,
                          .mean = mean, .std = std};
    return true;
}

static MonitorVerdict judge(const Monitor *m, const double value[MONITOR_SIGNALS])
{
    MonitorVerdict worst = {.reason = MONITOR_FILLING, .z = -INFINITY}, v;
    for (int s = 0; s < MONITOR_SIGNALS; s++)
        if (!isfinite(value[s]))
            return (MonitorVerdict){.action = MONITOR_SKIP, .reason = MONITOR_NOT_FINITE, .signal = (MonitorSignal)s,
                                    .value = value[s]};
    for (int s = 0; s < MONITOR_SIGNALS && m->skip_z > 0; s++)
        if (score(m, (MonitorSignal)s, value[s], &v) && v.z > worst.z) worst = v;
    if (worst.reason == MONITOR_FILLING) worst.z = 0;
    if (worst.reason == MONITOR_USUAL && worst.z > m->skip_z) {
        worst.reason = *m->skips < (double)m->max_skips ? MONITOR_SPIKE : MONITOR_NEW_LEVEL;
        worst.action = worst.reason == MONITOR_SPIKE ? MONITOR_SKIP : MONITOR_ACCEPT;
    }
    return worst;
}

MonitorVerdict monitor_judge(Monitor *m, double loss, double grad_norm)
{
    const double value[MONITOR_SIGNALS] = {[MONITOR_LOSS] = loss, [MONITOR_GRAD_NORM] = grad_norm};
    MonitorVerdict v = judge(m, value);
    if (v.reason == MONITOR_NEW_LEVEL) monitor_reset(m);
    if (v.action == MONITOR_ACCEPT) {
        *m->skips = 0;
        for (int s = 0; s < MONITOR_SIGNALS; s++) enter(m, (MonitorSignal)s, value[s]);
    } else if (v.reason == MONITOR_SPIKE) {
        *m->skips += 1;
    }
    return v;
}

void monitor_explain(const Monitor *m, MonitorVerdict v, char *text, size_t n_text)
{
    const char *name = signal_name[v.signal];
    if (v.reason == MONITOR_NOT_FINITE) {
        snprintf(text, n_text, "%s %g", name, isnan(v.value) ? NAN : v.value); // without a NaN's sign
        return;
    }
    char spread[80];
    if (v.signal == MONITOR_LOSS) snprintf(spread, sizeof spread, "%.4g (%.2g each)", v.mean, v.std);
    else snprintf(spread, sizeof spread, "%.4g (a factor of %.3g each)", exp(v.mean), exp(v.std));
    snprintf(text, n_text, "%s %.4g is %.3g standard deviations above the mean of the last %zu steps, %s%s", name,
             v.value, v.z, m->window, spread, v.reason == MONITOR_NEW_LEVEL ? ", as were those before it" : "");
}
