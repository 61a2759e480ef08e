// show_pipeline: draws a pipeline's schedule, proves it, and sets what it costs beside the papers' formulas.
#include "dev/show/show.h"
#include "base/check.h"
#include "parallel/pipeline_check.h"
#include "src/check/pipeline_draw.h"
#include "parallel/pipeline_table.h"
#include "parallel/pipeline_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 400 }; // the widest grid that is printed

static const char help[] =
    "usage: show pipeline SCHEDULE --stages P --micro M [--chunks V] [--times F,B,W,P2P] [--check] [--csv F] [--svg F]\n"
    "                [--trace F]\n"
    "       show pipeline FILE.csv [--times ...] [--check] [--csv F] [--svg F] [--trace F]   a table of your own\n"
    "       show pipeline compare --stages P --micro M [--svg F]                             all published schedules\n"
    "       show pipeline exchange --stages P --micro M --exchange E      how far all_to_alls inside F and B are hidden\n"
    "  SCHEDULE     gpipe, 1f1b, interleaved (with --chunks V), zb-h1, zb-v, v-half, v-min: the grid, and a summary\n"
    "  --times T    F,B,W,P2P of a whole stage (1,1,1,0); an action on one of v chunks takes 1/v of it; a\n"
    "               B that is not split takes B + W\n"
    "  --exchange E the all_to_alls of a whole stage's F, and as much of its B, in the units of --times\n"
    "  --check      what was proved, stage by stage\n"
    "  --csv F, --svg F, --trace F   the table, a drawing, a trace for a browser\n";

typedef struct {
    const char *what, *csv, *svg, *trace;
    int p, m, v; // 0: not given
    bool check;
    PipelineTimes times; // of a stage; exchange 0: not given
} Options;

typedef struct {
    PipelineTable *table;
    PipelineProof proof;
    PipelineTimes times; // of an action
    PipelineTimeline line;
} Study;

static int number(const char *option, const char *text, int most)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > most) die_usage("pipeline: %s %s (1 to %d)", option, text, most);
    return (int)n;
}

static PipelineTimes times_of(const char *text)
{
    double x[4] = {0};
    int n = 0;
    for (const char *at = text; n < 4; at++) {
        char *end;
        x[n] = strtod(at, &end);
        if (end == at || !(x[n] >= 0) || !(x[n] < 1e9)) break;
        n++;
        at = end;
        if (*at != ',') {
            if (*at) n = 0;
            break;
        }
        if (n == 4) n = 0; // a comma after the fourth
    }
    if (n < 3 || !(x[0] > 0) || !(x[1] > 0))
        die_usage("pipeline: --times %s (F,B,W or F,B,W,P2P: numbers of 0 or more, F and B above 0)", text);
    return (PipelineTimes){x[0], x[1], x[2], x[3], 0};
}

static double time_of(const char *text)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x > 0) || !(x < 1e9)) die_usage("pipeline: --exchange %s (a time above 0)", text);
    return x;
}

static Options read_options(int argc, char **argv)
{
    Options o = {.times = {1, 1, 1, 0, 0}};
    double exchange = 0;
    if (argc < 2 || argv[1][0] == '-') die_usage("pipeline: which schedule? (try --help)");
    o.what = argv[1];
    for (int i = 2; i < argc; i++) {
        const char *key = argv[i];
        if (!strcmp(key, "--check")) {
            o.check = true;
            continue;
        }
        const char *value = i + 1 < argc ? argv[++i] : NULL;
        if (!value) die_usage("pipeline: %s: unknown, or without a value (try --help)", key);
        if (!strcmp(key, "--stages")) o.p = number(key, value, PIPELINE_MAX_STAGES);
        else if (!strcmp(key, "--micro")) o.m = number(key, value, PIPELINE_MAX_MICRO);
        else if (!strcmp(key, "--chunks")) o.v = number(key, value, PIPELINE_MAX_CHUNKS);
        else if (!strcmp(key, "--times")) o.times = times_of(value);
        else if (!strcmp(key, "--exchange")) exchange = time_of(value);
        else if (!strcmp(key, "--csv")) o.csv = value;
        else if (!strcmp(key, "--svg")) o.svg = value;
        else if (!strcmp(key, "--trace")) o.trace = value;
        else die_usage("pipeline: no option '%s' (try --help)", key);
    }
    o.times.exchange = exchange;
    return o;
}

// ---- the papers' formulas
//
// With F B W the times of a stage's whole share of the layers (v actions), m micro-batches, p2p 0, and for zb-v, v-half
// and v-min F = B = W:
//
//                  length m (F+B+W) and                     most activations, of a stage's share    where
//   gpipe          (p-1) (F+B+W)                            m                                       1811.06965
//   1f1b           (p-1) (F+B+W)                            min(m, p)                               2104.04473, 2.2
//   interleaved    (p-1) (F+B+W) / v                        min(m, p + (p-1) / v)                   2104.04473, 2.2
//   zb-h1          (p-1) (F+B-W), m >= p, W <= F <= B       min(m, p)                               2401.10241, table 1
//   zb-v           (p-1) F/2,     m >= p                    min(m, p)                               2405.15362, table 1
//   v-half         (3p-4) F/2,    2 m > p > 2               min(m, floor((p+2) / 2))                2405.15362, table 1
//   v-min          (4p-5) F/2,    m > 1 or 3 no factor      min(m, floor((p+4) / 3))                2405.15362, table 1
//                  of p > 1; F more where 3 divides p
//
// For v-half and v-min the paper has the activations exactly and the idle time as "about" 3p F/2 and 4p F/2. NAN where
// nothing is known.

static double formula_length(const PipelineTable *t, const PipelineTimes *times)
{
    double p = t->p, m = t->m, v = t->v, F = v * times->f, B = v * times->b, W = v * times->w, all = F + B + W;
    bool even = F == B && B == W;
    if (times->p2p != 0 || times->exchange != 0) return NAN;
    switch (t->schedule) {
    case PIPELINE_GPIPE:
    case PIPELINE_1F1B:
    case PIPELINE_INTERLEAVED: return m * all + (p - 1) * (all / v);
    case PIPELINE_ZB_H1: return m >= p && W <= F && F <= B ? m * all + (p - 1) * (F + B - W) : NAN;
    case PIPELINE_ZB_V: return even && m >= p ? m * all + (p - 1) * times->f : NAN;
    case PIPELINE_V_HALF: return even && p > 2 && 2 * m > p ? m * all + (3 * p - 4) * times->f : NAN;
    case PIPELINE_V_MIN:
        return even && p > 1 && (m > 1 || t->p % 3) ? m * all + (4 * p - (t->p % 3 ? 5 : 3)) * times->f : NAN;
    default: return NAN;
    }
}

static double formula_bubble(const PipelineTable *t, const PipelineTimes *times)
{
    return 1 - t->m * t->v * (times->f + times->b + times->w) / formula_length(t, times);
}

static double formula_held(const PipelineTable *t)
{
    double p = t->p, m = t->m, v = t->v;
    switch (t->schedule) {
    case PIPELINE_GPIPE: return m;
    case PIPELINE_1F1B:
    case PIPELINE_ZB_H1:
    case PIPELINE_ZB_V: return fmin(m, p);
    case PIPELINE_INTERLEAVED: return fmin(m, p + (p - 1) / v);
    case PIPELINE_V_HALF: return fmin(m, floor((p + 2) / 2));
    case PIPELINE_V_MIN: return fmin(m, floor((p + 4) / 3));
    default: return NAN;
    }
}

// ---- one schedule

static void must_be(const char *file, const char *option, int given, int found)
{
    if (given && given != found) die("%s: the table has %d, not %s %d", file, found, option, given);
}

static PipelineTable *table_of(const Options *o)
{
    PipelineSchedule schedule = pipeline_table_find(o->what);
    if (schedule < PIPELINE_USER) {
        if (!o->p || !o->m) die_usage("pipeline: %s needs --stages and --micro", o->what);
        return pipeline_table_make(schedule, o->p, o->m, o->v);
    }
    if (!strchr(o->what, '.') && !strchr(o->what, '/'))
        die_usage("pipeline: no schedule '%s' (gpipe, 1f1b, interleaved, zb-h1, zb-v, v-half, v-min, compare, "
                  "exchange, or a file FILE.csv)", o->what);
    PipelineTable *t = pipeline_table_read(o->what);
    must_be(o->what, "--stages", o->p, t->p);
    must_be(o->what, "--micro", o->m, t->m);
    must_be(o->what, "--chunks", o->v, t->v);
    return t;
}

static Study study(const char *name, PipelineTable *t, const PipelineTimes *of_stage)
{
    char why[1600];
    double v = t->v;
    Study s = {.table = t, .times = {of_stage->f / v, of_stage->b / v, of_stage->w / v, of_stage->p2p,
                                          of_stage->exchange / v}};
    if (!pipeline_check(t, &s.proof, why, sizeof why)) die("%s: %s", name, why);
    check(pipeline_time_run(&s.line, t, &s.times, why, sizeof why));
    return s;
}

static void study_free(Study *s)
{
    pipeline_time_free(&s->line);
    pipeline_table_free(s->table);
}

// The most activations that any stage holds at a time, in units of one stage's.
static double most_held(const Study *s)
{
    int most = 0;
    for (int i = 0; i < s->table->p; i++) most = s->proof.held[i] > most ? s->proof.held[i] : most;
    return most / (double)s->table->v;
}

// "x (formula y)", or x alone where there is no formula.
static void beside(char out[64], double x, double formula)
{
    if (isnan(formula)) snprintf(out, 64, "%.4g", x);
    else snprintf(out, 64, "%.4g (formula %.4g)", x, formula);
}

static void print_summary(const char *name, const Study *s)
{
    const PipelineTable *t = s->table;
    char length[64], bubble[64], held[64];
    beside(length, pipeline_time_length(&s->line), formula_length(t, &s->times));
    beside(bubble, pipeline_time_bubble(&s->line), formula_bubble(t, &s->times));
    beside(held, most_held(s), formula_held(t));
    printf("%s: %d stages, %d micro-batches, %d chunk%s: length %s, bubble %s, between a stage's first and last "
           "action %.4g, activations %s\n", name, t->p, t->m, t->v, t->v > 1 ? "s" : "", length, bubble,
           fabs(pipeline_time_gaps(&s->line)) < 1e-12 ? 0 : pipeline_time_gaps(&s->line), held);
}

static void print_proof(const Study *s)
{
    const PipelineTable *t = s->table;
    int actions = 0;
    for (int i = 0; i < t->p; i++) actions += t->n[i];
    printf("proved: %d actions, each once, in an order that ends\n", actions);
    printf("%5s  %-12s %8s %8s %8s %8s %8s\n", "stage", "pieces", "actions", "active", "held", "sends", "idle");
    for (int i = 0; i < t->p; i++) {
        char pieces[128] = "";
        for (int c = 0, n = 0; c < t->v; c++)
            n += snprintf(pieces + n, sizeof pieces - (size_t)n, "%s%d", c ? "," : "", t->piece[i][c]);
        printf("%5d  %-12s %8d %8d %8d %8d %8.4f\n", i, pieces, t->n[i], s->proof.active[i], s->proof.held[i],
               s->proof.sent[i], 1 - pipeline_time_busy(&s->line, i) / pipeline_time_length(&s->line));
    }
}

static void note_of(char out[160], const Study *s)
{
    snprintf(out, 160, "length %.4g, bubble %.1f%%, activations %.3g", pipeline_time_length(&s->line),
             100 * pipeline_time_bubble(&s->line), most_held(s));
}

static const char AXIS[] = "time, in units of --times";

static void one(const Options *o)
{
    PipelineTable *t = table_of(o);
    Study s = study(o->what, t, &o->times);
    char note[160];
    note_of(note, &s);
    size_t columns = pipeline_draw_columns(&s.line);
    if (columns <= WIDEST) pipeline_draw_text(&s.line, stdout);
    else printf("(the grid would be %zu columns wide: --svg FILE draws it)\n", columns);
    if (o->check) print_proof(&s);
    print_summary(o->what, &s);
    if (o->csv) pipeline_table_write(t, o->csv);
    if (o->svg) pipeline_draw_svg(&(PipelineDrawing){o->what, note, &s.line}, 1, AXIS, o->svg);
    if (o->trace) pipeline_draw_trace(&s.line, 1000, o->trace);
    study_free(&s);
}

// ---- all of them

static void compare(const Options *o)
{
    Study s[PIPELINE_USER];
    PipelineDrawing d[PIPELINE_USER];
    char note[PIPELINE_USER][160];
    int n = 0;
    if (!o->p || !o->m) die_usage("pipeline: compare needs --stages and --micro");
    if (o->csv || o->trace || o->check)
        die_usage("pipeline: compare: --csv, --trace and --check are for one schedule");
    printf("| schedule | chunks | length | bubble | by formula | between a stage's first and last action "
           "| activations | by formula | sends of all stages |\n|---|---|---|---|---|---|---|---|---|\n");
    for (int k = 0; k < PIPELINE_USER; k++) {
        int v = k == PIPELINE_INTERLEAVED ? o->v : 0, sent = 0;
        const char *name = pipeline_table_name((PipelineSchedule)k);
        if (k == PIPELINE_INTERLEAVED && (o->m % o->p || v == 1)) continue; // it is not defined there
        s[n] = study(name, pipeline_table_make((PipelineSchedule)k, o->p, o->m, v), &o->times);
        for (int i = 0; i < o->p; i++) sent += s[n].proof.sent[i];
        double formula = formula_bubble(s[n].table, &s[n].times), gaps = pipeline_time_gaps(&s[n].line);
        printf("| %s | %d | %.4g | %.4f | ", name, s[n].table->v, pipeline_time_length(&s[n].line),
               pipeline_time_bubble(&s[n].line));
        if (isnan(formula)) printf("|");
        else printf("%.4f |", formula);
        printf(" %.4f | %.4g | %.4g | %d |\n", fabs(gaps) < 1e-12 ? 0 : gaps, most_held(&s[n]),
               formula_held(s[n].table), sent);
        note_of(note[n], &s[n]);
        d[n] = (PipelineDrawing){name, note[n], &s[n].line};
        n++;
    }
    if (o->svg) pipeline_draw_svg(d, n, AXIS, o->svg);
    for (int i = 0; i < n; i++) study_free(&s[i]);
}

// ---- an exchange inside the actions

// Beside the length without exchanges: with each as a part of its action, and with each beside the stage's next work.
static void exchange(const Options *o)
{
    const PipelineTimes *t = &o->times;
    if (!o->p || !o->m || !(t->exchange > 0)) die_usage("pipeline: exchange needs --stages, --micro and --exchange");
    if (o->csv || o->svg || o->trace || o->check)
        die_usage("pipeline: exchange: --csv, --svg, --trace and --check are for one schedule");
    const PipelineTimes way[3] = {{t->f, t->b, t->w, t->p2p, 0},
                                  {t->f + t->exchange, t->b + t->exchange, t->w, t->p2p, 0}, *t};
    printf("| schedule | activations | length without | exchanged in turn | exchanged beside | exposed | hidden |\n"
           "|---|---|---|---|---|---|---|\n");
    for (int k = 0; k < PIPELINE_USER; k++) {
        double length[3], held = 0;
        const char *name = pipeline_table_name((PipelineSchedule)k);
        if (k == PIPELINE_INTERLEAVED && (o->m % o->p || o->v == 1)) continue; // it is not defined there
        for (int i = 0; i < 3; i++) {
            int v = k == PIPELINE_INTERLEAVED ? o->v : 0;
            Study s = study(name, pipeline_table_make((PipelineSchedule)k, o->p, o->m, v), &way[i]);
            length[i] = 0, held = most_held(&s);
            for (size_t j = 0; j < s.line.begin[o->p]; j++) length[i] = fmax(length[i], s.line.span[j].ready);
            study_free(&s);
        }
        double exposed = length[2] - length[0];
        printf("| %s | %.4g | %.4g | %.4g | %.4g | %.4g | %.0f%% |\n", name, held, length[0], length[1], length[2],
               exposed, 100 * (1 - exposed / (length[1] - length[0])));
    }
}

int show_pipeline(int argc, char **argv)
{
    check_help(argc, argv, help);
    Options o = read_options(argc, argv);
    if (!strcmp(o.what, "compare")) compare(&o);
    else if (!strcmp(o.what, "exchange")) exchange(&o);
    else one(&o);
    return 0;
}
