// page_data: metrics.jsonl as the page needs it. See page.h.
//
// Any key of a train, val or end line that has numbers becomes a series, so a new measurement is shown without a change
// here. Memory does not grow with the length of the run: a series has at most PAGE_BUCKETS buckets, and when it is
// full, pairs of neighbours are merged and the stride doubles. A bucket keeps the lowest and the highest of its
// numbers, so no spike disappears from a curve, and their mean, which the smoothed curve is made from.
//
// The invariant: sum, count, last, low and high are of all numbers, not of those that are kept.
#include "record/page.h"

#include "base/check.h"
#include "base/words.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *copy(const char *text)
{
    char *c = text ? strdup(text) : NULL;
    if (text && !c) die("page: no memory for a text of %zu bytes", strlen(text));
    return c;
}

// ---- series

static PageBucket join(PageBucket a, PageBucket b)
{
    double step[4] = {a.step[0], a.step[1], b.step[0], b.step[1]}, low = NAN, high = NAN;
    double value[4] = {a.value[0], a.value[1], b.value[0], b.value[1]};
    int at_low = 0, at_high = 0;
    for (int i = 0; i < 4; i++) {
        if (isnan(value[i])) continue;
        if (!(value[i] >= low)) low = value[i], at_low = i;
        if (!(value[i] <= high)) high = value[i], at_high = i;
    }
    int first = at_low < at_high ? at_low : at_high, second = at_low < at_high ? at_high : at_low;
    return (PageBucket){{step[first], step[second]}, {value[first], value[second]}, a.from, b.to, a.sum + b.sum,
                        a.count + b.count};
}

static void halve(PageSeries *s)
{
    for (size_t i = 0; i < s->n / 2; i++) s->bucket[i] = join(s->bucket[2 * i], s->bucket[2 * i + 1]);
    s->n /= 2, s->stride *= 2, s->in_last = s->stride;
}

static void add(PageSeries *s, double step, double value, double ms)
{
    bool finite = !isnan(value);
    PageBucket one = {{step, step}, {value, value}, step, step, finite ? value : 0, finite};
    if (s->n && s->in_last < s->stride) {
        s->bucket[s->n - 1] = join(s->bucket[s->n - 1], one);
        s->in_last++;
    } else {
        if (s->n == PAGE_BUCKETS) halve(s);
        s->bucket[s->n++] = one;
        s->in_last = 1;
    }
    s->bad += !finite;
    if (!finite) return;
    s->sum += value, s->count++, s->by_time += value * ms;
    s->last = value, s->last_step = step;
    if (!(value >= s->low)) s->low = value, s->low_step = step;
    if (!(value <= s->high)) s->high = value, s->high_step = step;
}

const PageSeries *page_find(const PageRun *run, const char *key)
{
    for (size_t i = 0; i < run->n_series; i++)
        if (!strcmp(run->series[i].key, key)) return &run->series[i];
    return NULL;
}

static PageSeries *series_of(PageRun *run, const char *key, bool val)
{
    PageSeries *s = (PageSeries *)page_find(run, key);
    if (s || run->n_series == 70 || strlen(key) >= PAGE_KEY) return s; // a page of bounded size
    run->series = words_grow(run->series, &run->cap_series, run->n_series + 1, sizeof *run->series);
    s = &run->series[run->n_series++];
    *s = (PageSeries){.val = val, .stride = 1, .bucket = malloc(PAGE_BUCKETS * sizeof *s->bucket),
                      .last = NAN, .low = NAN, .high = NAN};
    if (!s->bucket) die("page: no memory for %d points", PAGE_BUCKETS);
    strcpy(s->key, key);
    return s;
}

// ---- experts

const char *const page_figure[PAGE_FIGURES] = {
    "experts.load_max", "experts.load_min", "experts.idle", "experts.entropy", "experts.dropped", "experts.gate_max",
    "experts.balance_loss", "experts.z_loss", "experts.bias_min", "experts.bias_max"};

// The worst of the layers of one step becomes a point of each series.
static void end_layers(PageRun *run)
{
    for (int i = 0; i < PAGE_FIGURES; i++) {
        if (isnan(run->worst[i])) continue;
        PageSeries *s = series_of(run, page_figure[i], false);
        if (s) s->experts = true, add(s, run->worst_step, run->worst[i], 0);
        run->worst[i] = NAN;
    }
}

static PageLayer *layer_of(PageRun *run, const char *name, size_t experts)
{
    size_t i = 0;
    while (i < run->n_layers && strcmp(run->layer[i].name, name)) i++;
    if (i < run->n_layers && run->layer[i].experts == experts) return &run->layer[i];
    if (i == run->n_layers && (i == 512 || strlen(name) >= PAGE_KEY)) return NULL; // a page of bounded size
    if (i == run->n_layers) {
        run->layer = words_grow(run->layer, &run->cap_layers, ++run->n_layers, sizeof *run->layer);
        run->layer[i] = (PageLayer){.load = NULL};
    }
    PageLayer *l = &run->layer[i];
    free(l->load);
    *l = (PageLayer){.experts = experts, .stride = 1, .load = calloc(PAGE_COLUMNS * experts, sizeof *l->load)};
    if (!l->load) die("page: no memory for %zu experts", experts);
    strcpy(l->name, name);
    return l;
}

// Where the slots of this line are added.
static double *next_column(PageLayer *l)
{
    if (l->n && l->in_last < l->stride) {
        l->in_last++;
        return l->load + (l->n - 1) * l->experts;
    }
    if (l->n == PAGE_COLUMNS) {
        for (size_t c = 0; c < PAGE_COLUMNS / 2; c++)
            for (size_t e = 0; e < l->experts; e++) {
                const double *from = l->load + 2 * c * l->experts + e;
                l->load[c * l->experts + e] = from[0] + from[l->experts];
            }
        l->n /= 2, l->stride *= 2;
    }
    double *column = l->load + l->n++ * l->experts;
    memset(column, 0, l->experts * sizeof *column);
    l->in_last = 1;
    return column;
}

static void take_experts(PageRun *run, const json_t *object, double step)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *text = json_string_value(json_object_get(object, "text"));
    size_t experts = 0;
    char *end;
    for (const char *at = text; at && (strtod(at, &end), end != at); at = end) experts++;
    PageLayer *l = name && experts && experts <= 4096 ? layer_of(run, name, experts) : NULL;
    if (!l) return;
    double *column = next_column(l);
    for (size_t e = 0; e < experts; e++, text = end) {
        double slots = strtod(text, &end);
        column[e] += slots > 0 && slots < 1e18 ? slots : 0;
    }
    if (step != run->worst_step) end_layers(run);
    run->worst_step = step;
    for (int i = 0; i < PAGE_FIGURES; i++) {
        const json_t *value = json_object_get(object, page_figure[i] + strlen("experts."));
        double x = l->last[i] = json_is_number(value) ? json_number_value(value) : NAN, *worst = &run->worst[i];
        if (i == PAGE_IDLE) *worst = isnan(*worst) ? x : *worst + x; // of all layers
        else if (i == PAGE_LOAD_MIN || i == PAGE_ENTROPY || i == PAGE_BIAS_MIN) *worst = fmin(*worst, x);
        else *worst = fmax(*worst, x);
    }
}

// ---- lines

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static bool is_number(const char *key, const json_t *value)
{
    static const char *const not[] = {"step", "t", "tokens", "seconds", "floor_loss", "floor_bpb"};
    for (size_t i = 0; i < sizeof not / sizeof *not; i++)
        if (!strcmp(key, not[i])) return false;
    size_t n = strlen(key);
    return (json_is_number(value) || json_is_null(value)) && (n < 4 || strcmp(key + n - 4, "_inf")); // a flag
}

static void take_numbers(PageRun *run, json_t *object, double step, bool val)
{
    const char *key;
    json_t *value;
    bool end = !strcmp(json_string_value(json_object_get(object, "event")), "end");
    double ms = number(object, "dt_ms");
    run->step = step;
    if (json_object_get(object, "tokens")) run->tokens = number(object, "tokens");
    if (number(object, "seconds") > 0) run->seconds = number(object, "seconds");
    json_object_foreach(object, key, value) {
        if (!is_number(key, value) || (end && json_is_null(value))) continue; // a stopped run has no last evaluation
        PageSeries *s = series_of(run, key, val);
        if (s && s->val == val) add(s, step, json_is_null(value) ? NAN : json_number_value(value), ms);
    }
}

// A set of text, or a task: its figures, each a series "val_loss NAME". null: a task has no such figure.
static void take_named(PageRun *run, const json_t *object, double step)
{
    static const char *const figure[] = {"val_loss", "val_bpb", "acc", "acc_norm", "perplexity"};
    const char *name = json_string_value(json_object_get(object, "name"));
    for (size_t i = 0; name && i < sizeof figure / sizeof *figure; i++) {
        const json_t *value = json_object_get(object, figure[i]);
        char key[PAGE_KEY + 20];
        if (!value || (json_is_null(value) && i > 1)) continue;
        snprintf(key, sizeof key, "%s %.*s", figure[i], PAGE_KEY, name);
        PageSeries *s = series_of(run, key, true);
        if (s && s->val) add(s, step, json_is_number(value) ? json_number_value(value) : NAN, 0);
    }
}

static void set_text(char **to, const json_t *text)
{
    if (!json_is_string(text)) return;
    free(*to);
    *to = copy(json_string_value(text));
}

static void take_start(PageRun *run, json_t *object, double step, double t)
{
    const char *key;
    json_t *value;
    set_text(&run->name, json_object_get(object, "name"));
    set_text(&run->model, json_object_get(object, "text"));
    run->params = number(object, "params"), run->steps = number(object, "steps");
    run->batch_tokens = number(object, "batch_tokens");
    run->floor = number(object, "floor_loss"), run->floor_bpb = number(object, "floor_bpb");
    run->floor_is_bound = json_is_true(json_object_get(object, "floor_is_bound"));
    run->process_step = step, run->process_t = t;
    run->n_memory = 0;
    json_object_foreach(object, key, value) {
        if (strncmp(key, "mem_", 4) || !json_is_number(value) || run->n_memory == 16) continue;
        PageMemory *m = &run->memory[run->n_memory++];
        snprintf(m->key, sizeof m->key, "%s", key + 4);
        m->n_bytes = json_number_value(value);
    }
}

static void add_event(PageEvent **list, size_t *n, size_t *cap, const char *event, const json_t *object)
{
    const char *text = json_string_value(json_object_get(object, "text"));
    *list = words_grow(*list, cap, *n + 1, sizeof **list);
    PageEvent *e = &(*list)[(*n)++];
    *e = (PageEvent){.text = copy(text ? text : ""), .step = number(object, "step"), .t = number(object, "t")};
    snprintf(e->event, sizeof e->event, "%s", event);
}

static void take(PageRun *run, json_t *object, const char *event)
{
    double step = number(object, "step"), t = number(object, "t");
    bool train = !strcmp(event, "train"), end = !strcmp(event, "end"), val = !strcmp(event, "val") || end;
    bool start = !strcmp(event, "start") || !strcmp(event, "resume");
    bool named = !strcmp(event, "set") || !strcmp(event, "task");
    bool pace = !strcmp(event, "pace");
    if (t > 0 && !run->begin_t) run->begin_t = t;
    if (t > 0) run->last_t = t;
    run->ended = end;
    if (!strcmp(event, "rollback")) run->process_step = step, run->process_t = t; // updates are made again
    if (train || val) take_numbers(run, object, step, val);
    if (named) take_named(run, object, step);
    if (start) take_start(run, object, step, t);
    if (pace) run->steps = number(object, "steps");
    if (!strcmp(event, "experts")) take_experts(run, object, step);
    else if (!strcmp(event, "sample")) add_event(&run->sample, &run->n_samples, &run->cap_samples, event, object);
    else if (end || (!train && !val && !named && !pace)) add_event(&run->event, &run->n_events, &run->cap_events, event, object);
}

PageRun page_read(const char *path)
{
    PageRun run = {0};
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT) return run;
    if (!file) die("page: cannot open %s: %s", path, strerror(errno));
    char *line = NULL;
    for (int i = 0; i < PAGE_FIGURES; i++) run.worst[i] = NAN;
    for (size_t cap = 0; getline(&line, &cap, file) >= 0;) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *event = json_string_value(json_object_get(object, "event"));
        run.lines++;
        if (event && fabs(number(object, "step")) < 1e15) take(&run, object, event); // more has no exact place
        else run.bad_lines++;
        json_decref(object);
    }
    end_layers(&run);
    if (!feof(file)) die("page: cannot read %s: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return run;
}

void page_free(PageRun *run)
{
    for (size_t i = 0; i < run->n_series; i++) free(run->series[i].bucket);
    for (size_t i = 0; i < run->n_events; i++) free(run->event[i].text);
    for (size_t i = 0; i < run->n_samples; i++) free(run->sample[i].text);
    for (size_t i = 0; i < run->n_layers; i++) free(run->layer[i].load);
    free(run->layer), free(run->series), free(run->event), free(run->sample), free(run->name), free(run->model);
    *run = (PageRun){0};
}
