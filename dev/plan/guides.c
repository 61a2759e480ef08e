// guides: computes, judges and prints the rows of guides.tsv. See plan_show.h.
//
// The guides are public articles on pretraining, named G0 to G4. `build/plan guides ID` shows `ours` of a row as it
// stands there, so each value is one expression over the functions below, which call the planner's and the trainer's.
// Sizes of models come from scripts/presets.
//
// The invariant: no row says what its verdict is. A formula that changes its value changes the verdict with it.
#include "base/check.h"
#include "base/words.h"
#include "comm/collectives.h"
#include "dev/plan/plan.h"
#include "dev/plan/plan_show.h"
#include "dev/plan/scaling.h"
#include "src/check/noise.h"
#include "src/check/sharding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GIGA 1e9
#define TERA 1e12
#define DEAR 4.0 // dollars an A100 hour at the dear end of the market; machines.c has 1.8

// ---- models

static const Config *preset(const char *name)
{
    static Config cfg[10]; // large
    static const char *of[10];
    int i = 0;
    while (i < 10 && of[i] && strcmp(of[i], name)) i++;
    check(i < 10);
    if (!of[i]) plan_preset(&cfg[i], of[i] = name);
    return &cfg[i];
}

static ModelShape shape(const char *name) { return run_shape(preset(name)); }
static double layers(const char *name) { return (double)shape(name).layers; }
static double width(const char *name) { return (double)shape(name).channels; }
static double vocab(const char *name) { return (double)shape(name).vocab; }

static PlanJob job(ModelShape s, size_t T, int dp, int tp, int pp)
{
    PlanJob j = {.shape = s, .T = T, .batch = dp, .x_bytes = 2, .machine = machines_find("A100"),
                 .layout = plan_layout_default()};
    j.layout.dp = dp, j.layout.tp = tp, j.layout.pp = pp, j.layout.gpus = dp * tp * pp;
    j.layout.recompute = RECOMPUTE_NONE;
    return j;
}

// The same, or a model's shape, as an argument: they stay until the next one.
static const PlanJob *at(PlanJob j)
{
    static PlanJob kept;
    kept = j;
    return &kept;
}

static const ModelShape *shape_at(const char *name)
{
    static ModelShape kept;
    kept = shape(name);
    return &kept;
}

static double params(const char *name) { return (double)plan_layout_params(at(job(shape(name), 1, 1, 1, 1)), 0); }

// With gated networks of this width and another vocabulary, embedding and head tied.
static double params_with(const char *name, size_t ffn, size_t words)
{
    PlanJob j = job(shape(name), 1, 1, 1, 1);
    j.shape.ffn = ffn, j.shape.vocab = words, j.shape.tie = true;
    return (double)plan_layout_params(&j, 0);
}

// Of one rank of tp; of a preset's run; of a stage; operations of a token, and for each parameter of a matrix.
static ModelShape part(const char *name, int tp) { return plan_layout_part(at(job(shape(name), 1, 1, tp, 1)), 0); }
static double tokens(const char *name) { return plan_tokens(preset(name), preset(name)->run.steps); }
static double stage_layers(const char *name, int pp)
{
    return (double)plan_layout_layers(at(job(shape(name), 1, 1, 1, pp)), 0);
}
static double flops(const char *name, size_t T) { return model_flops_per_token(shape_at(name), T); }
static double flops_each(const char *name, size_t T) { return flops(name, T) / model_matmul_params(shape_at(name)); }

// ---- laws, machines, time and money

static double chinchilla(double N) { return scaling_laws_twenty(6 * N * 20 * N).D; } // tokens
static double peak(const char *machine) { return machines_find(machine).peak; }
static double memory(const char *machine) { return machines_find(machine).memory; }
static double link(const char *name) { return machines_link(name).bandwidth; }
// Accelerator hours of C operations at this share of the peak.
static double hours(double C, const char *machine, double mfu) { return C / (mfu * peak(machine)) / 3600; }

static const PublishedRun *published(const char *name, int gpus)
{
    for (int i = 0; i < published_count(); i++)
        if (!strcmp(published_run(i)->name, name) && published_run(i)->gpus == gpus) return published_run(i);
    die("plan guides: %s on %d is no published run of the table", name, gpus);
}

static double mfu(const char *name, int dp, int tp, int pp, long batch)
{
    PlanJob j = job(shape(name), shape(name).context, dp, tp, pp);
    j.batch = batch, j.layout.zero = 1, j.layout.sp = tp > 1, j.layout.recompute = RECOMPUTE_SELECTIVE;
    return plan_time(&j, true).mfu;
}

// ---- memory, in bytes: P parameters, n replicas, ZeRO stage; weights of x bytes, gradients of g, state of s

static double tag_bytes(MemTag tag, double P, int n, int stage, size_t x, double s)
{
    ShardingCase is = {.ranks = (size_t)n, .params = (size_t)P, .stage = stage, .x_bytes = x, .state = (size_t)(s * P)};
    return (double)sharding_memory(&is, tag).all / n;
}

static double weights(double P, size_t x) { return tag_bytes(MEM_PARAMS, P, 1, 0, x, 0); }
static double grads(double P, double g) { return tag_bytes(MEM_GRADS, P, 1, 0, 2, 0) * g / 4; } // ours have 4 bytes
static double state(double P, double s) { return tag_bytes(MEM_OPTIM, P, 1, 0, 2, s); }
// Of one replica: bf16 weights, bf16 gradients as guides count them, fp32 master weights and two moments.
static double held(double P, int n, int stage)
{
    return tag_bytes(MEM_PARAMS, P, n, stage, 2, 12) + tag_bytes(MEM_GRADS, P, n, stage, 2, 12) / 2 +
           tag_bytes(MEM_OPTIM, P, n, stage, 2, 12);
}
static double times_less(int stage, int n) { return held(1e9, 1, 0) / held(1e9, n, stage); }

// Tags that a ZeRO stage divides by n.
static double divided(int stage)
{
    int n = 0;
    for (int tag = 0; tag < MEM_TAGS; tag++)
        n += tag_bytes((MemTag)tag, 1e9, 64, stage, 2, 12) < tag_bytes((MemTag)tag, 1e9, 64, 0, 2, 12);
    return n;
}

static double fits(double P, int dp, int cut) // 1: an A100 has room for a part of `cut`; 0: it has none
{
    return held(P / cut, dp, 0) <= memory("A100");
}

static double state_each(OptimName name) // bytes of state a parameter, of GPT-2
{
    Params p = {0};
    Unit *unit;
    model_describe(shape_at("gpt2-124m"), &p, &unit);
    double bytes = (double)optim_state_bytes(name, &p) / (double)p.n_elems;
    free(unit);
    params_free(&p);
    return bytes;
}

// Activations of micro-batches of `micro` sequences.
static double acts(const char *name, size_t T, long micro, bool fused, RecomputeMode mode)
{
    PlanJob j = job(shape(name), T, 1, 1, 1);
    j.batch = j.layout.micro = micro, j.layout.fused_attention = fused, j.layout.recompute = mode;
    return plan_layout_bytes(&j).activations;
}

// Operations that are done again, as a part of the forward's.
static double again(const char *name, RecomputeMode mode, size_t T)
{
    return recompute_extra_flops(shape_at(name), (RecomputePolicy){.mode = mode}, T) / (flops(name, T) / 3);
}

static Roofline block(const char *name, size_t T, bool fused)
{
    Machine m = machines_find("A100");
    RooflineCase c = {.machine = &m, .part = shape(name), .B = 1, .T = T, .cp = 1, .x_bytes = 2,
                      .fused_attention = fused};
    return roofline_block(&c);
}

// The forward's operations, of all that a block needs.
static double forward_part(const char *name, size_t T)
{
    Roofline r = block(name, T, true);
    double forward = 0;
    for (int i = 0; i < r.n; i++) forward += r.op[i].flops[ROOFLINE_F];
    return forward / r.flops;
}

static double attention_seconds(const char *name, size_t T, bool fused)
{
    Roofline r = block(name, T, fused);
    double s = 0;
    for (int i = 0; i < r.n; i++)
        if (!strncmp(r.op[i].name, "attention, ", 11)) s += r.op[i].seconds[ROOFLINE_F] + r.op[i].seconds[ROOFLINE_B];
    return s;
}

// ---- communication

// Bytes that a rank sends for each byte of the buffer; n_bytes as in collectives.h.
static double sent(CommKind kind, CommAlgorithm way, int n)
{
    return collectives_seconds(kind, way, n, (size_t)1 << 40, 0, 1.0 / (double)((size_t)1 << 40));
}

// Elements that a rank of n sends in a step for each parameter, and in how many kinds of calls.
static double moved(int stage, int n, int *kinds)
{
    ShardingCase is = {.ranks = (size_t)n, .params = (size_t)n << 20, .stage = stage, .x_bytes = 2, .g_bytes = 2,
                       .reshard = true, .micro = 1, .batch = 1};
    double all = 0;
    for (int k = 0; k < COMM_KINDS; k++) {
        double bytes = (double)sharding_traffic(&is, (CommKind)k).all;
        all += bytes;
        if (kinds) *kinds += bytes > 0;
    }
    return all / 2 / n / (double)is.params;
}

static double kinds(int stage)
{
    int n = 0;
    moved(stage, 64, &n);
    return n;
}

// Calls of a tp group in a layer and micro-batch, forward and backward.
static double tp_calls(const char *name, bool sp, CommKind kind)
{
    PlanJob j = job(shape(name), shape(name).context, 1, 8, 1);
    j.layout.sp = sp;
    PlanTraffic t = plan_traffic(&j);
    double calls = 0;
    for (int i = 0; i < t.n; i++)
        if (!strcmp(t.flow[i].group, "tp") && t.flow[i].kind == kind) calls += t.flow[i].calls;
    return floor(calls / layers(name));
}

// ---- pipelines: a forward takes 1, a backward 2 (of GPipe's picture, 1)

static PipelineTimeline timeline(const PipelineTable *t, double backward)
{
    PipelineTimes times = {.f = 1, .b = backward / 2, .w = backward / 2};
    PipelineTimeline line;
    char why[200];
    if (!pipeline_time_run(&line, t, &times, why, sizeof why)) die("plan guides: %s", why);
    return line;
}

static double bubble(int p, int m, int chunks) // percent
{
    PipelineTable *t = pipeline_table_make(chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B, p, m, chunks);
    PipelineTimeline line = timeline(t, 2);
    double idle = 100 * pipeline_time_bubble(&line);
    pipeline_time_free(&line);
    pipeline_table_free(t);
    return idle;
}

// Slots in which stage s of GPipe idles between forward and backward.
static double gpipe_gap(int p, int m, int s)
{
    PipelineTable *t = pipeline_table_make(PIPELINE_GPIPE, p, m, 1);
    PipelineTimeline line = timeline(t, 1);
    double idle = pipeline_time_span(&line, s) - pipeline_time_busy(&line, s);
    pipeline_time_free(&line);
    pipeline_table_free(t);
    return idle;
}

// Forwards before the first backward of stage s.
static double warm_up(int p, int m, int s)
{
    PipelineTable *t = pipeline_table_make(PIPELINE_1F1B, p, m, 1);
    int n = 0;
    while (t->action[s][n].op == PIPELINE_F) n++;
    pipeline_table_free(t);
    return n;
}

// The first layer, from 1, of chunk c of stage 0.
static double first_layer(const char *name, int p, int chunks, int c)
{
    PlanJob j = job(shape(name), 1, 1, 1, p);
    j.layout.schedule = PIPELINE_INTERLEAVED, j.layout.chunks = chunks;
    return (double)plan_layout_piece(&j, 0, c).first + 1;
}

static double micros(long batch, long micro, int dp)
{
    PlanJob j = job(shape("tiny"), 1, dp, 1, 1);
    j.batch = batch, j.layout.micro = micro;
    return (double)plan_layout_micros(&j);
}

// ---- formats, schedules

static FormatInfo format(Format f) { return plan_format(f); }

// Parts of the peak rate: at update `step` of `end`.
static double rate(ScheduleKind kind, long warmup, long end, double least, long step)
{
    Schedule s = {.kind = kind, .lr = 1, .min_lr = least, .warmup = warmup, .decay_steps = end};
    return schedule_lr(&s, step);
}

// Percent of the steps with a quarter to three quarters of the peak.
static double middle(ScheduleKind kind)
{
    enum { STEPS = 100000 };
    int n = 0;
    for (long i = 0; i < STEPS; i++) {
        double part = rate(kind, 0, STEPS, 0, i);
        n += part >= 0.25 && part <= 0.75;
    }
    return 100.0 * n / STEPS;
}

static double noise_ratio(double signal, double noise) // from the squares of gradients of 64 and 1024 tokens
{
    NoiseEstimate e = noise_estimate(signal + noise / 64, 64, signal + noise / 1024, 1024);
    return e.noise / e.signal;
}

// ---- the rows

static GuideValues values(const double *v, size_t n, bool range)
{
    GuideValues x = {.n = (int)n, .range = range};
    check(n <= GUIDES_VALUES);
    memcpy(x.v, v, n * sizeof *v);
    return x;
}

#define V(...) values((const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double), false)
#define R(from, to) values((const double[]){from, to}, 2, true)

int guides_rows(GuideRow *row)
{
    const GuideRow table[] = {
#include "dev/plan/guides.inc" // guides.tsv, by table.awk
    };
    memcpy(row, table, sizeof table);
    check(sizeof table <= GUIDES_ROWS * sizeof *row);
    return (int)(sizeof table / sizeof *table);
}

// ---- verdicts

static const struct {
    const char *name, *command, *chapter;
} topics[] = {
    {"LAW", "build/plan scaling --flops 5.88e23 --explain", "scaling_laws"},
    {"FLOPS", "build/plan flops llama2-7b --explain", "plan"},
    {"COST", "build/plan time llama2-7b --gpus 256 --zero 1 --tokens 2e12 --explain", "plan_time"},
    {"MACHINE", "build/plan machines", "plan_time"},
    {"STATE", "build/plan memory llama2-7b", "plan"},
    {"ZERO", "build/show zero holds gpt2-124m --ranks 4", "zero"},
    {"RING", "build/show collectives cost 8 5e-6 1e-10", "collectives"},
    {"TP", "build/show tp tiny 4", "tp"},
    {"BUBBLE", "build/show pipeline compare --stages 4 --micro 8", "pipeline"},
    {"CUT", "build/plan layout llama2-70b --gpus 256", "layout_search"},
    {"ACTS", "build/plan table llama2-7b", "plan"},
    {"AGAIN", "build/plan recompute llama2-7b", "recompute"},
    {"FLASH", "build/plan time llama2-7b --gpus 8 --explain", "flash"},
    {"FORMAT", "build/plan formats", "formats"},
    {"RATE", "build/plan schedule gpt3-175b", "schedule"},
    {"OPTIM", "build/plan optimizers", "optim"},
    {"CLIP", "build/plan noise", "clip"},
    {"BATCH", "build/plan traffic gpt3-175b --gpus 512 --tp 8 --pp 16", "train"},
    {"RECIPE", "build/plan recipe", "plan"},
    {"DATA", "build/prepare --help", "mixture"},
    {"FAILS", "build/plan cluster llama3-405b --gpus 16384 --tokens 15.6e12", "plan_cluster"}};

static const char *const verdict_name[GUIDES_VERDICTS] = {"agrees", "loose", "wrong", "missing", "none"};
static const char *const verdict_text[GUIDES_VERDICTS] = {"agrees", "loose", "guide is wrong", "guide has no value",
                                                          "nothing to compute"};

// Within the tolerance; false for what is not a number.
static bool agrees(const GuideValues *guide, const GuideValues *ours, double percent)
{
    double part = percent / 100;
    if (guide->range) return ours->v[0] >= guide->v[0] * (1 - part) && ours->v[0] <= guide->v[1] * (1 + part);
    if (guide->n != ours->n) return false;
    for (int i = 0; i < ours->n; i++)
        if (!(fabs(guide->v[i] - ours->v[i]) <= part * fabs(ours->v[i]))) return false;
    return true;
}

GuideVerdict guides_verdict(const GuideRow *row)
{
    if (!row->ours.n) return GUIDES_NONE;
    if (!row->guide.n) return GUIDES_MISSING;
    if (agrees(&row->guide, &row->ours, row->percent)) return GUIDES_AGREES;
    if (row->other.n && agrees(&row->guide, &row->other, row->percent)) return GUIDES_LOOSE;
    return GUIDES_WRONG;
}

// ---- printing

static void print_number(double v, FILE *out)
{
    if (fabs(v) >= 1000 && fabs(v) < 1e7) fprintf(out, "%.0f", v);
    else fprintf(out, "%.4g", v);
}

static void print_values(const GuideValues *x, const char *unit, FILE *out)
{
    if (!x->n) fputs("none", out);
    else if (x->range && isinf(x->v[1])) fputs("over ", out), print_number(x->v[0], out);
    else for (int i = 0; i < x->n; i++) {
        if (i) fputs(x->range ? " to " : ", ", out);
        print_number(x->v[i], out);
    }
    if (x->n && unit) fprintf(out, " %s", unit);
}

static void print_verdict(const GuideRow *row, FILE *out)
{
    GuideVerdict verdict = guides_verdict(row);
    fputs(verdict_text[verdict], out);
    if (verdict == GUIDES_LOOSE) {
        fputs(" (so with ", out);
        print_values(&row->other, NULL, out);
        fputs(")", out);
    }
    if (row->why) fprintf(out, "%s %s", verdict == GUIDES_AGREES ? ";" : ":", row->why);
}

// The formula's text without the V( ) around it.
static void print_formula(const char *name, const char *text, FILE *out)
{
    size_t n = strlen(text);
    bool wrapped = !strncmp(text, "V(", 2);
    fprintf(out, "  %-10s = %.*s\n", name, (int)(wrapped ? n - 3 : n), wrapped ? text + 2 : text);
}

static void print_row(const GuideRow *row, FILE *out)
{
    fprintf(out, "%s: %s\n  the guide  ", row->id, row->what);
    print_values(&row->guide, row->unit, out);
    fputs("\n  computed   ", out);
    print_values(&row->ours, row->unit, out);
    fputs("\n", out);
    if (row->ours.n) print_formula("", row->ours_text, out);
    if (row->other.n) {
        fputs("  other      ", out);
        print_values(&row->other, row->unit, out);
        fputs("\n", out);
        print_formula("", row->other_text, out);
    }
    fprintf(out, "  tolerance  %g%%\n  verdict    ", row->percent);
    print_verdict(row, out);
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        if (!strcmp(topics[i].name, row->topic))
            fprintf(out, "\n  more       %s; doc/%s.md\n", topics[i].command, topics[i].chapter);
}

static void print_line(const GuideRow *row, FILE *out)
{
    fprintf(out, "| %s | %s | ", row->id, row->what);
    print_values(&row->guide, row->unit, out);
    fputs(" | ", out);
    print_values(&row->ours, row->unit, out);
    fputs(" | ", out);
    print_verdict(row, out);
    fputs(" |\n", out);
}

// ---- finding

// Whether `what` is the id or its beginning, up to a hyphen.
static bool begins(const char *id, const char *what)
{
    size_t n = strlen(what);
    return n && !strncmp(id, what, n) && (!id[n] || id[n] == '-');
}

static _Noreturn void unknown(const char *what, const GuideRow *row, int n)
{
    int best[3] = {0}, distance[3] = {1000, 1000, 1000};
    for (int i = 0; i < n; i++) {
        int d = words_distance(what, row[i].id, 1000), at = 3;
        while (at > 0 && d < distance[at - 1]) at--;
        for (int k = 2; k > at; k--) best[k] = best[k - 1], distance[k] = distance[k - 1];
        if (at < 3) best[at] = i, distance[at] = d;
    }
    die_usage("plan guides: '%s' is no guide, row or verdict (nearest: %s, %s, %s; plan guides lists them)", what,
              row[best[0]].id, row[best[1]].id, row[best[2]].id);
}

void guides_print(const char *what, FILE *out)
{
    static GuideRow row[GUIDES_ROWS]; // large
    int n = guides_rows(row), found = 0;
    for (int i = 0; what && i < n; i++) {
        if (strcmp(what, row[i].id)) continue;
        print_row(&row[i], out);
        return;
    }
    for (int i = 0; i < n; i++) {
        bool listed = !what || begins(row[i].id, what) || !strcmp(what, verdict_name[guides_verdict(&row[i])]);
        if (!listed) continue;
        if (!found++) fputs("| row | what | the guide | computed | verdict |\n|---|---|---:|---:|---|\n", out);
        print_line(&row[i], out);
    }
    if (!found) unknown(what, row, n);
}
