// monitor: z-scores and ratios against a window of accepted steps. See monitor.h.
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
// Until a window holds `window` values, every finite value is accepted, and those values are taken as normal.
//
// After max_skips spikes in a row single batches are not the cause: the data or the model has changed, and skipping
// would never end, since no new value enters the windows. The next spike is accepted as the new level, and both windows
// start again with it, because the old values are no longer normal. Numbers that are not finite are not part of this:
// they are always skipped, and do not count.
//
// A window is a flat array that is shifted by one for each value; mean and std are recomputed from it in two passes,
// in the order of age. So a verdict is a function of the window alone. Rejected: running sums (they keep rounding
// errors of values that have left the window, which a resumed run would have to restore); median and MAD (robust
// against spikes in the window, but here none are in it).
#include "train/monitor.h"

#include "base/check.h"
#include "formats/formats.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const signal_name[MONITOR_SIGNALS] = {"loss", "gradient norm"};

// Doubles of a checkpoint's "monitor"; the plateau's follow them.
static size_t state_size(size_t window)
{
    return 1 + MONITOR_SIGNALS * window;
}

Monitor monitor_create(size_t window, double skip_z, long max_skips)
{
    check(window >= 2 && skip_z >= 0 && max_skips >= 0);
    Monitor m = {.window = window, .skip_z = skip_z, .max_skips = max_skips};
    m.state = calloc(state_size(window) + MONITOR_PROGRESS, sizeof *m.state);
    if (!m.state) die("monitor.window: no memory for %zu steps", window);
    m.rules = (MonitorRules){.on_spike = MONITOR_SKIP, .on_not_finite = MONITOR_SKIP};
    m.skips = m.state, m.progress = m.state + state_size(window);
    for (int s = 0; s < MONITOR_SIGNALS; s++) m.past[s] = m.state + 1 + (size_t)s * window;
    monitor_reset(&m);
    return m;
}

void monitor_free(Monitor *m)
{
    free(m->state);
    *m = (Monitor){0};
}

void monitor_set_rules(Monitor *m, MonitorRules rules)
{
    m->rules = rules;
}

bool monitor_active(const Monitor *m)
{
    bool active = m->skip_z > 0;
    for (int i = 0; i < m->rules.n; i++) active = active || m->rules.rule[i].kind != MONITOR_OF_CLIP;
    return active;
}

const MonitorRule *monitor_plateau(const Monitor *m)
{
    for (int i = 0; i < m->rules.n; i++)
        if (m->rules.rule[i].kind == MONITOR_OF_PLATEAU) return &m->rules.rule[i];
    return NULL;
}

static int place_of(const char *word, const char *const *words, int n)
{
    int i = 0;
    while (i < n && strcmp(word, words[i])) i++;
    return i;
}

void monitor_parse_rules(const char *text, MonitorRules *rules)
{
    static const char *const kinds[MONITOR_KINDS] = {"loss", "norm", "clip", "plateau"};
    static const char *const actions[] = {"none", "warn", "cool", "skip", "rollback"};
    rules->n = 0;
    for (int used = 0; text[strspn(text, " ")]; text += used + (text[used] == ',')) {
        char kind[16] = "", action[16] = "";
        double limit = 0;
        int words = sscanf(text, " %15[a-z]:%lf:%15[a-z]%n", kind, &limit, action, &used);
        int k = place_of(kind, kinds, MONITOR_KINDS), a = place_of(action, actions, MONITOR_ROLLBACK + 1);
        bool flat = k == MONITOR_OF_PLATEAU, right = flat ? limit > 0 && limit < 1 && a <= MONITOR_COOL : limit > 1;
        if (words != 3 || k == MONITOR_KINDS || a > MONITOR_ROLLBACK || !right || (text[used] && text[used] != ','))
            die("monitor.rules: %s (loss, norm or clip, a number above 1, and warn, cool, skip or rollback; or plateau, "
                "a part below 1, and warn or cool: loss:1.5:warn,norm:3:skip,plateau:0.01:cool)", text);
        if (rules->n == MONITOR_RULES) die("monitor.rules: more than %d", MONITOR_RULES);
        if (a) rules->rule[rules->n++] = (MonitorRule){(MonitorKind)k, limit, (MonitorAction)a};
    }
}

void monitor_reset(Monitor *m)
{
    *m->skips = 0;
    for (int i = 0; i < MONITOR_PROGRESS; i++) m->progress[i] = 0;
    for (size_t i = 1; i < state_size(m->window); i++) m->state[i] = NAN;
}

double *monitor_state(Monitor *m, size_t *n)
{
    *n = state_size(m->window);
    return m->state;
}

double *monitor_progress(Monitor *m)
{
    return m->progress;
}

// The scale on which a signal is judged. A norm of 0 has no logarithm: NAN, which is never a spike.
static double scaled(MonitorSignal signal, double value)
{
    if (signal == MONITOR_LOSS) return value;
    return value > 0 ? log(value) : NAN;
}

// Appends a value. A norm of 0 has no logarithm and is left out.
static void enter(Monitor *m, MonitorSignal signal, double value)
{
    double *past = m->past[signal], x = scaled(signal, value);
    if (isnan(x)) return;
    memmove(past, past + 1, (m->window - 1) * sizeof *past);
    past[m->window - 1] = x;
}

// z of a value, with its mean and std; false: no full window, or no z.
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

// The mean of a window in the signal's own unit; NAN while it is filling.
static double plain_mean(const Monitor *m, MonitorSignal signal)
{
    double sum = 0;
    for (size_t i = 0; i < m->window; i++) sum += signal == MONITOR_LOSS ? m->past[signal][i] : exp(m->past[signal][i]);
    return sum / (double)m->window;
}

// Rules of thumb of guides to pretraining are ratios: loss / mean above 1.5, 2, 3, norm / mean above 3, norm / optim.clip
// above 3. A ratio ignores the noise: it misses a spike of ten std where the loss is steady, and gives false alarms
// where a norm varies by factors. z is better once there is a full window. Both may be on; the more severe action wins.
//
// A rule of a ratio, where it applies and its action is heavier than what is known.
static void judge_ratio(const Monitor *m, const MonitorRule *rule, const double value[MONITOR_SIGNALS],
                        MonitorVerdict *v)
{
    MonitorSignal signal = rule->kind == MONITOR_OF_LOSS ? MONITOR_LOSS : MONITOR_GRAD_NORM;
    bool clip = rule->kind == MONITOR_OF_CLIP;
    double mean = clip ? m->rules.clip : plain_mean(m, signal);
    if (rule->kind == MONITOR_OF_PLATEAU || rule->action <= v->action || !(value[signal] > rule->limit * mean)) return;
    *v = (MonitorVerdict){.action = rule->action, .reason = clip ? MONITOR_CLIP : MONITOR_RATIO, .signal = signal,
                          .value = value[signal], .z = value[signal] / mean, .mean = mean};
}

static MonitorVerdict judge(const Monitor *m, const double value[MONITOR_SIGNALS])
{
    const MonitorRules *r = &m->rules;
    MonitorVerdict worst = {.reason = MONITOR_FILLING, .z = -INFINITY}, v;
    for (int s = 0; s < MONITOR_SIGNALS; s++)
        if (!isfinite(value[s]))
            return (MonitorVerdict){.action = r->on_not_finite, .reason = MONITOR_NOT_FINITE,
                                    .signal = (MonitorSignal)s, .value = value[s]};
    for (int s = 0; s < MONITOR_SIGNALS && m->skip_z > 0; s++)
        if (score(m, (MonitorSignal)s, value[s], &v) && v.z > worst.z) worst = v;
    if (worst.reason == MONITOR_FILLING) worst.z = 0;
    if (worst.reason == MONITOR_USUAL && worst.z > m->skip_z) worst.reason = MONITOR_SPIKE, worst.action = r->on_spike;
    for (int i = 0; i < r->n; i++) judge_ratio(m, &r->rule[i], value, &worst);
    if (worst.action >= MONITOR_SKIP && !(*m->skips < (double)m->max_skips))
        worst.level_of = worst.reason, worst.reason = MONITOR_NEW_LEVEL, worst.action = MONITOR_ACCEPT;
    return worst;
}

// A plateau compares means of blocks:
//
//     (mean of the block before - mean of this one) / mean of the block before < plateau
//
// One more accepted loss. True when a block is full and no better than the one before; *gain: by how much it is.
static bool stands_still(Monitor *m, double loss, double *gain)
{
    double *sum = &m->progress[0], *n = &m->progress[1], *before = &m->progress[2];
    const MonitorRule *rule = monitor_plateau(m);
    if (!rule) return false;
    *sum += loss, *n += 1;
    if (*n < (double)m->rules.plateau_steps) return false;
    double mean = *sum / *n, last = *before;
    *sum = *n = 0, *before = mean;
    *gain = (last - mean) / last;
    return last > 0 && *gain < rule->limit;
}

MonitorVerdict monitor_judge(Monitor *m, double loss, double grad_norm)
{
    const double value[MONITOR_SIGNALS] = {[MONITOR_LOSS] = loss, [MONITOR_GRAD_NORM] = grad_norm};
    MonitorVerdict v = judge(m, value);
    if (v.reason == MONITOR_NEW_LEVEL) monitor_reset(m);
    if (v.action < MONITOR_SKIP) {
        double gain;
        *m->skips = 0;
        for (int s = 0; s < MONITOR_SIGNALS; s++) enter(m, (MonitorSignal)s, value[s]);
        if (stands_still(m, loss, &gain) && monitor_plateau(m)->action > v.action)
            v = (MonitorVerdict){.action = monitor_plateau(m)->action, .reason = MONITOR_PLATEAU, .signal = MONITOR_LOSS,
                                 .value = gain, .mean = m->progress[2]};
    } else if (v.action == MONITOR_SKIP && v.reason != MONITOR_NOT_FINITE) {
        *m->skips += 1;
    }
    return v;
}

const char *monitor_advice(MonitorVerdict v)
{
    switch (v.reason) {
    case MONITOR_NOT_FINITE:
        return "look at these samples and for an overflow; bf16 has the range that fp16 lacks, and a lower learning "
               "rate keeps weights small";
    case MONITOR_SPIKE: case MONITOR_RATIO: case MONITOR_CLIP:
        return v.signal == MONITOR_LOSS
            ? "look at these samples; if spikes come back on others, lower the peak learning rate or lengthen the "
              "warm-up"
            : "if it comes back, clip lower (optim.clip), lower the peak learning rate or lengthen the warm-up";
    case MONITOR_PLATEAU:
        return "if the schedule has not ended, try another learning rate; else more data or a larger model";
    case MONITOR_NEW_LEVEL:
        return "if the data has not changed here, go back to a checkpoint before it and lower the learning rate";
    default: return "";
    }
}

void monitor_explain(const Monitor *m, MonitorVerdict v, char *text, size_t n_text)
{
    const char *name = signal_name[v.signal], *level = v.reason == MONITOR_NEW_LEVEL ? ", as were those before it" : "";
    if (*level) v.reason = v.level_of;
    if (v.reason == MONITOR_NOT_FINITE) {
        snprintf(text, n_text, "%s %g", name, isnan(v.value) ? NAN : v.value); // without a NaN's sign
        return;
    }
    if (v.reason == MONITOR_PLATEAU) {
        snprintf(text, n_text, "the mean loss of %ld steps, %.4g, is %.2g%% %s that of as many before",
                 m->rules.plateau_steps, v.mean, 100 * fabs(v.value), v.value < 0 ? "above" : "below");
        return;
    }
    if (v.reason == MONITOR_RATIO) {
        snprintf(text, n_text, "%s %.4g is %.3g times the mean of the last %zu steps, %.4g%s", name, v.value,
                 v.z, m->window, v.mean, level);
        return;
    }
    if (v.reason == MONITOR_CLIP) {
        snprintf(text, n_text, "%s %.4g is %.3g times optim.clip, %.4g%s", name, v.value, v.z, v.mean, level);
        return;
    }
    if (v.reason == MONITOR_DRILL) {
        snprintf(text, n_text, "asked for (monitor.rollback_at)");
        return;
    }
    char spread[80];
    if (v.signal == MONITOR_LOSS) snprintf(spread, sizeof spread, "%.4g (%.2g each)", v.mean, v.std);
    else snprintf(spread, sizeof spread, "%.4g (a factor of %.3g each)", exp(v.mean), exp(v.std));
    snprintf(text, n_text, "%s %.4g is %.3g standard deviations above the mean of the last %zu steps, %s%s", name,
             v.value, v.z, m->window, spread, level);
}

// ---- where the first number that is not finite came from
//
// Finds the tensor and the rank in which a NaN or infinity first appeared. One NaN in one gradient is in every gradient
// after the ranks have added them, and in every weight one update later. When the norm is not finite, the origin is no
// longer visible. So each unit's output is checked after its forward, and each unit's gradient after its backward, both
// before anything is sent: this hook runs before those of ddp.c and zero.c.
//
//     order of events    weights of the table | outputs and gradients in the order in which units ran in this step
//
// The first event of each rank is compared over the ranks: the earliest wins, then the lowest rank. A weight that is
// not finite explains everything after it, so it comes first.
//
// What it costs: one look at each number that was just written, an integer compare of its exponent: for a block of
// width C about 1 part in 12 C of its operations, and nothing is allocated or sent while numbers are finite.
//
// On a device apart from the host (a GPU) one look is one wait for the device; there losses, weights and the gradients
// of a whole unit are looked at, and a unit's rows only when it is not finite; outputs are not.
//
// Looking only reads. A run with it and one without are the same, bit for bit.
//
// Rejected: running the step again to look (a memory error is not there the second time); feenableexcept (threads
// and libraries raise invalid operations on purpose).

bool monitor_locate_finite_x(const Dev *dev, const X *x, size_t n)
{
    if (dev->x_type == X_FP32) return formats_finite((const float *)x, n);
    const char *at = (const char *)x;
    uint16_t mask = dev->x_type == X_BF16 ? 0x7f80 : 0x7c00, bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, at + 2 * i, sizeof bits);
        bad |= (bits & mask) == mask;
    }
    return !bad;
}

// The same of memory that the host does not read: squares of fp32 numbers are finite in double, and so is their sum.
static bool finite_on(Dev *dev, const float *x, size_t n)
{
    return dev->raw_alloc ? isfinite(dev->sum_squares(dev, x, n)) : formats_finite(x, n);
}

static void note(Locate *l, const char *what, const char *name)
{
    l->found = l->calls;
    snprintf(l->what, sizeof l->what, "%s%s", what, name);
}

static void look_at_output(Locate *l, int unit)
{
    const Model *m = l->model;
    const size_t N = m->batch.B * m->batch.T;
    char name[32];
    if (m->n_chunks > 1 || m->n_units != (int)m->shape.layers + 2) return; // a stage: gradients and weights say enough
    if (unit == m->n_units - 1) {
        if (!finite_on(m->dev, m->loss, N)) note(l, "the losses", "");
        return;
    }
    if (m->dev->raw_alloc) return;
    if (monitor_locate_finite_x(m->dev, m->acts.stream[unit + 1], N / m->acts.sharers * m->local.channels)) return;
    if (unit) snprintf(name, sizeof name, "block %d", unit - 1);
    else snprintf(name, sizeof name, "the embedding");
    note(l, "the output of ", name);
}

// unit: of the table.
static void look_at_gradient(Locate *l, int unit)
{
    const Model *m = l->model;
    const Params *p = &m->params;
    size_t begin, end;
    params_unit_range(p, unit, &begin, &end);
    bool once = m->dev->raw_alloc && m->unit_grad[unit]; // one wait for all rows
    if (once && finite_on(m->dev, m->unit_grad[unit], end - begin)) return;
    for (int i = 0; i < p->n_rows; i++) {
        const Param *row = &p->row[i];
        if (row->unit != unit || !m->unit_grad[unit]) continue;
        if (finite_on(m->dev, m->unit_grad[unit] + (row->offset - m->unit_begin[unit]), row->n_elems)) continue;
        note(l, "the gradient of ", row->name);
        return;
    }
}

static void before(void *self, int unit, UnitPass pass)
{
    const Locate *l = self;
    if (l->inner.before) l->inner.before(l->inner.self, unit, pass);
}

static void after(void *self, int unit, UnitPass pass)
{
    Locate *l = self;
    if (l->found < 0) {
        if (pass == PASS_FORWARD) look_at_output(l, unit);
        const Unit *u = &l->model->unit[unit];
        if (pass >= PASS_BACKWARD) look_at_gradient(l, u->home);
        if (pass == PASS_BACKWARD && u->apart && l->found < 0) look_at_gradient(l, u->home + 1);
    }
    l->calls++;
    if (l->inner.after) l->inner.after(l->inner.self, unit, pass);
}

void monitor_locate_begin(Locate *l, Model *model)
{
    *l = (Locate){.model = model, .inner = model->hooks, .found = -1};
    model->hooks = (UnitHooks){.self = l, .before = before, .after = after};
}

void monitor_locate_step(Locate *l)
{
    l->calls = 0;
    l->found = -1;
}

// Weights that units read, where a rank has them whole.
static int bad_weight(const Locate *l)
{
    const Model *m = l->model;
    for (int i = 0; i < m->params.n_rows && m->x_weights && !m->shard.x_weights; i++) {
        const Param *row = &m->params.row[i];
        const char *at = (const char *)m->x_weights + row->offset * m->dev->x_bytes;
        bool apart = m->dev->raw_alloc != NULL, whole = m->weights && !m->shard.weights;
        bool finite = !apart ? monitor_locate_finite_x(m->dev, (const X *)at, row->n_elems)
                             : !whole || finite_on(m->dev, m->weights + row->offset, row->n_elems);
        if (!finite) return i;
    }
    return -1;
}

bool monitor_locate_first(Locate *l, Comm *ranks, char text[LOCATE_TEXT])
{
    const int size = ranks ? ranks->size : 1, rank = ranks ? ranks->rank : 0, weight = bad_weight(l);
    const int64_t LATE = INT32_MAX, rows = l->model->params.n_rows;
    int64_t event = l->found >= 0 ? rows + l->found : LATE, key, first;
    if (weight >= 0) {
        event = weight;
        snprintf(l->what, sizeof l->what, "weight %s", l->model->params.row[weight].name);
    }
    key = first = -(event * size + rank);
    if (size > 1) {
        CommRequest q = comm_all_reduce(ranks, &first, &key, 1, COMM_INT64, COMM_MAX);
        comm_wait(ranks, &q);
    }
    if (-first / size >= LATE) return false;
    int who = (int)(-first % size);
    memset(text, 0, LOCATE_TEXT);
    if (size == 1) {
        snprintf(text, LOCATE_TEXT, "%s", l->what);
        return true;
    }
    if (rank == who) snprintf(text, LOCATE_TEXT, "rank %d: %.*s", rank, LOCATE_TEXT - 32, l->what);
    CommRequest q = comm_broadcast(ranks, text, LOCATE_TEXT, COMM_BYTE, who);
    comm_wait(ranks, &q);
    return true;
}
