// guides_table: the rows of guides.h: what five guides print, and the line of C that computes it.
//
// The guides are public articles on pretraining, named G0 to G4; an id is guide, section, letter. P: figures that
// papers print and guides repeat. The last argument but one of a row is shown by `build/plan guides ID` as it stands
// here, so each is one expression over the functions below, which call the planner's and the trainer's. Sizes of models
// come from scripts/presets. Numbers in a formula are the guide's premises (so many tokens, accelerators, dollars),
// never its results.
//
//     ROW(topic, id, what, unit, tolerance in percent, guide's values, ours, why)
//     TWO(... ours, ours under another reading of the guide's words, why)
//
// V: values. R: from, to. LOST: the guide has no value, mostly because its formula is missing from the text. A
// tolerance is as wide as the digits that the guide prints: 1% for three digits, 5% where "7B" stands for 6.74 billion.
#include "dev/plan/guides.h"

#include "base/check.h"
#include "comm/collectives.h"
#include "dev/plan/plan.h"
#include "dev/plan/plan_time.h"
#include "dev/plan/published.h"
#include "dev/plan/scaling.h"
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

static double params(const char *name)
{
    PlanJob j = job(shape(name), 1, 1, 1, 1);
    return (double)plan_layout_params(&j, 0);
}

// With gated networks of this width and another vocabulary, embedding and head tied.
static double params_with(const char *name, size_t ffn, size_t words)
{
    PlanJob j = job(shape(name), 1, 1, 1, 1);
    j.shape.ffn = ffn, j.shape.vocab = words, j.shape.tie = true;
    return (double)plan_layout_params(&j, 0);
}

static ModelShape part(const char *name, int tp) // of one rank of tp
{
    PlanJob j = job(shape(name), 1, 1, tp, 1);
    return plan_layout_part(&j, 0);
}

static double tokens(const char *name)
{
    return plan_tokens(preset(name), preset(name)->run.steps);
}

static double stage_layers(const char *name, int pp)
{
    PlanJob j = job(shape(name), 1, 1, 1, pp);
    return (double)plan_layout_layers(&j, 0);
}

static double flops(const char *name, size_t T) // of a token
{
    ModelShape s = shape(name);
    return model_flops_per_token(&s, T);
}

static double flops_each(const char *name, size_t T) // for each parameter of a matrix
{
    ModelShape s = shape(name);
    return flops(name, T) / model_matmul_params(&s);
}

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
    ModelShape s = shape("gpt2-124m");
    Params p = {0};
    Unit *unit;
    model_describe(&s, &p, &unit);
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
    ModelShape s = shape(name);
    return recompute_extra_flops(&s, (RecomputePolicy){.mode = mode}, T) / (model_flops_per_token(&s, T) / 3);
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

static FormatInfo format(Format f) { return formats_table_info(f); }

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
    NoiseEstimate e = grads_noise_estimate(signal + noise / 64, 64, signal + noise / 1024, 1024);
    return e.noise / e.signal;
}

// ---- the rows

typedef struct {
    GuideRow *row;
    int n;
} Table;

static GuideValues values(const double *v, size_t n, bool range)
{
    GuideValues x = {.n = (int)n, .range = range};
    check(n <= GUIDES_VALUES);
    memcpy(x.v, v, n * sizeof *v);
    return x;
}

static void add(Table *t, GuideRow row)
{
    check(t->n < GUIDES_ROWS);
    t->row[t->n++] = row;
}

#define V(...) values((const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double), false)
#define R(from, to) values((const double[]){from, to}, 2, true)
#define LOST (GuideValues){.n = 0}
#define ROW(topic, id, what, unit, percent, guide, ours, why)                                                          \
    add(t, (GuideRow){GUIDES_##topic, id, what, unit, percent, guide, ours, LOST, #ours, NULL, why})
#define TWO(topic, id, what, unit, percent, guide, ours, other, why)                                                   \
    add(t, (GuideRow){GUIDES_##topic, id, what, unit, percent, guide, ours, other, #ours, #other, why})
#define WORDS(topic, id, what, why)                                                                                    \
    add(t, (GuideRow){GUIDES_##topic, id, what, "", 0, LOST, LOST, LOST, "", NULL, why})

static void guide_0(Table *t)
{
    ROW(LAW, "G0-1.1-a", "Kaplan's loss of 175 billion parameters on endless data", "nats", 1, LOST,
        V(scaling_laws_kaplan_size(params("gpt3-175b"))),
        "no constants are given: Nc 8.8e13, alpha 0.076, without embeddings (arXiv 2001.08361, equation 1.1)");
    ROW(LAW, "G0-1.1-b", "GPT-3: tokens a parameter, FLOPs", "", 1, V(1.71, 3.15e23),
        V(300e9 / params("gpt3-175b"), 6 * params("gpt3-175b") * 300e9), NULL);
    ROW(LAW, "G0-1.2-a", "FLOPs of Gopher, of Chinchilla, ratio", "", 1, V(5.04e23, 5.88e23, 1.17),
        V(6 * 280e9 * 300e9, 6 * 70e9 * 1.4e12, 70e9 * 1.4e12 / (280e9 * 300e9)),
        "Chinchilla was to match Gopher's budget, 5.76e23 in its paper");
    ROW(LAW, "G0-1.2-b", "0.1174 C^0.4999 parameters, 1.6972 C^0.5001 tokens, at 5.88e23", "", 1,
        V(scaling_laws_power(5.88e23).N, scaling_laws_power(5.88e23).D),
        V(scaling_laws_twenty(5.88e23).N, scaling_laws_twenty(5.88e23).D),
        "6 N D is 1.2 C and D / N 14.6; with 20: N = (C / 120)^0.5 (arXiv 2203.15556, tables 2 and 3)");
    ROW(LAW, "G0-1.2-c", "tokens a parameter; exponent of N in C", "", 1, V(20, 0.5),
        V(chinchilla(1e9) / 1e9, log10(scaling_laws_twenty(1e24).N / scaling_laws_twenty(1e22).N) / 2), NULL);
    ROW(LAW, "G0-1.2-d", "tokens for 7 and 70 billion", "", 1, V(140e9, 1.4e12), V(chinchilla(7e9), chinchilla(70e9)),
        "but the optimum for training's compute, not a minimum");
    TWO(FLOPS, "G0-1.3-b", "FLOPs of a token a parameter (LLaMA 7B, 2048 tokens)", "", 1, V(6),
        V(flops_each("llama2-7b", 2048)), V(flops_each("llama2-7b", 1)),
        "6 leaves attention's T x T out: 4% here, 8% where all of T x T is counted (arXiv 2001.08361, table 1)");
    ROW(FLOPS, "G0-1.3-a", "FLOPs of 7B on 2T without backward", "", 5, V(8.40e22), V(2 * params("llama2-7b") * 2e12),
        "its include_backward=False is never read: forward alone is 2 N D (arXiv 2001.08361, table 1)");
    ROW(FLOPS, "G0-1.3-c", "FLOPs of LLaMA-2 7B on 2T", "", 5, V(8.40e22), V(6 * params("llama2-7b") * 2e12),
        "7B is 6.74 billion");
    ROW(COST, "G0-1.3-d", "that on A100 at 50% MFU: hours, on 1000", "", 1, V(149573, 149.6),
        V(hours(6 * 7e9 * 2e12, "A100", 0.5), hours(6 * 7e9 * 2e12, "A100", 0.5) / 1000), NULL);
    ROW(LAW, "G0-1.4-a", "LLaMA-3 8B on 15T, of Chinchilla's tokens", "times", 10, V(100),
        V(15e12 / chinchilla(params("llama3-8b"))), "1,868 tokens a parameter");
    WORDS(DATA, "G0-2.1-a", "six sources of text and their quality", "Books3 was taken down over copyright");
    ROW(DATA, "G0-2.1-b", "sum of the mixture's shares", "", 0.1, V(1),
        V(0.67 + 0.14 + 0.045 + 0.045 + 0.025 + 0.025 + 0.02), "a weight of 0.03 is missing; LLaMA's are 0.67, 0.15, "
        "0.045, 0.045, 0.045, 0.025, 0.02 (arXiv 2302.13971, table 1), LLaMA-2's were not published");
    ROW(TP, "G0-3.2-a", "GPT-3 on tp 8: columns of Q, heads, columns of the first FFN matrix", "", 1, V(1536, 12, 6144),
        V(part("gpt3-175b", 8).heads * part("gpt3-175b", 8).head_size, part("gpt3-175b", 8).heads,
        part("gpt3-175b", 8).ffn), NULL);
    ROW(TP, "G0-3.3-a", "sequence parallelism: gathers, scatters of a layer, forward and backward", "", 1, V(2, 2),
        V(tp_calls("gpt3-175b", true, COMM_ALL_GATHER), tp_calls("gpt3-175b", true, COMM_REDUCE_SCATTER)),
        "attention and FFN have each their own pair, forward and again backward (arXiv 2205.05198, 4.2.2); what "
        "shrinks is the norms' activations, not their parameters");
    ROW(CUT, "G0-3.4-b", "GPT-3, tp 8 pp 16 dp 4: parameters, tokens a step, micro-batches, bubble %, GB a GPU", "", 1,
        V(174.6e9, 3145728, 384, 3.76, 21.9), V(params("gpt3-175b"), preset("gpt3-175b")->batch.tokens,
        micros(1536, 1, 4), bubble(16, 384, 1), held(params("gpt3-175b") / 128, 1, 0) / GIGA), NULL);
    ROW(RECIPE, "G0-3.4-c", "steps of batches of 1536 for GPT-3's 300B tokens", "", 1, V(300000),
        V(300e9 / (double)preset("gpt3-175b")->batch.tokens),
        "300,000 steps read 944B tokens (arXiv 2005.14165, table 2.1: 300B)");
    ROW(TP, "G0-4.1-a", "all-reduces of tensor parallelism in a layer", "", 1, LOST,
        V(tp_calls("gpt3-175b", false, COMM_ALL_REDUCE)), "no number is given: two forward and two backward");
    ROW(CUT, "G0-4.2-b", "of the five best layouts of GPT-3 on 512, those that fit 80 GB; the last one's bubble, %", "",
        1, V(5, 5.88), V(fits(params("gpt3-175b"), 512, 1) + fits(params("gpt3-175b"), 256, 2) +
        fits(params("gpt3-175b"), 128, 4) + fits(params("gpt3-175b"), 64, 8) + fits(params("gpt3-175b"), 32, 16),
        bubble(2, 16, 1)), "they hold 2800, 1400, 700, 350 and 175 GB: memory was never asked. tp 8 pp 8 dp 8 holds 44 "
        "(16 bytes a parameter: arXiv 1910.02054, 3.1)");
    ROW(BUBBLE, "G0-4.2-c", "(p-1) / (m+p-1), p 8, m 32", "%", 1, V(100 * 7 / 39.0), V(bubble(8, 32, 1)), NULL);
    ROW(RING, "G0-4.4-b", "what ZeRO-3 sends, of what data parallelism does", "times", 1, R(0, 1),
        V(moved(3, 64, NULL) / moved(0, 64, NULL)),
        "ZeRO saves memory, not traffic: stages 1 and 2 send the same, stage 3 half more (arXiv 1910.02054, 7)");
    ROW(MACHINE, "G0-4.4-a", "NVLink 3 both ways, InfiniBand HDR one way", "GB/s", 1, V(600, 25),
        V(2 * link("nvlink3") / GIGA, link("hdr") / GIGA), NULL);
    ROW(CLIP, "G0-5.1-c", "3 times the mean: the mean loss above which even chance, ln 32000, is no spike", "nats", 1,
        LOST, V(log(vocab("llama2-7b")) / 3), "too blunt: a jump from 2 to 4 passes");
    ROW(CLIP, "G0-5.2-c", "tr(S) / g^2 where tr(S) is 4096 and g^2 is 1", "", 1, V(4096), V(noise_ratio(1, 4096)),
        "from two batch sizes (arXiv 1812.06162, appendix A.1)");
    ROW(BATCH, "G0-5.4-b", "GPT-3's full batch, tokens", "", 2, V(4e6), V(preset("gpt3-175b")->batch.tokens),
        "3.2M, after a ramp from 32k over 4 to 12 billion tokens, not 1.2 (arXiv 2005.14165, table 2.1, appendix B)");
    ROW(FLOPS, "G0-8.2-b", "300,000 steps of 2048 x 2048: tokens; OLMo's parameters with mlp_ratio 8/3", "", 6,
        V(1.258e12, 7e9), V(300000.0 * 2048 * 2048, params_with("llama2-7b", 10922, 50280)),
        "7B only if three matrices have that width; OLMo's code halves it: 4.5B");
    ROW(BATCH, "G0-8.3-b", "8 sequences of 8192: tokens a step, in 10,000 steps", "", 1, V(65536, 655.4e6),
        V(8 * shape("llama3-8b").context, 10000.0 * 8 * (double)shape("llama3-8b").context), NULL);
    ROW(COST, "G0-9.1-b", "7B on 2T, 256 A100 at 45%: FLOPs, hours, days, GPU hours, dollars at 1.99", "", 1,
        V(8.40e22, 649.2, 27.0, 166192, 330722), V(6 * 7e9 * 2e12, hours(6 * 7e9 * 2e12, "A100", 0.45) / 256,
        hours(6 * 7e9 * 2e12, "A100", 0.45) / 256 / 24, hours(6 * 7e9 * 2e12, "A100", 0.45),
        hours(6 * 7e9 * 2e12, "A100", 0.45) * 1.99), NULL);
    ROW(COST, "G0-9.1-c", "the same: dollars on A100 at 3.97; on H100 hours, GPU hours, dollars at 3.29", "", 1,
        V(659782, 204.8, 52429, 172490), V(hours(8.4e22, "A100", 0.45) * 3.97, hours(8.4e22, "H100", 0.45) / 256,
        hours(8.4e22, "H100", 0.45), hours(8.4e22, "H100", 0.45) * 3.29), NULL);
    ROW(MACHINE, "G0-9.1-d", "bf16 peaks of A100, H100, A10G, V100", "TFLOP/s", 1, V(312, 989, 125, 130),
        V(peak("A100") / TERA, peak("H100") / TERA, peak("A10G") / TERA, peak("V100") / TERA),
        "125 is the A10's; a V100 has 125 in fp16 and no bf16 (NVIDIA's data sheets)");
    ROW(MACHINE, "G0-9.1-e", "dollars an hour of A100 and H100, cheapest", "", 15, V(1.99, 3.29),
        V(machines_find("A100").price, machines_find("H100").price), "undated, and half of what clouds list");
    ROW(COST, "G0-9.1-f", "MFU (LLaMA-2 70B, tp 8, on 256 A100)", "%", 1, R(35, 55),
        V(100 * mfu("llama2-70b", 8, 8, 4, 1024)), NULL);
    ROW(COST, "G0-9.2-a", "MFU of 7B, 2,097,152 tokens in 10 s on 256 A100", "", 1, V(28.23),
        V(6 * 7e9 * 2097152 / 10 / (256 * peak("A100"))),
        "its function leaves out the number of GPUs (definition: arXiv 2204.02311, appendix B)");
    TWO(AGAIN, "G0-9.3-a", "throughput that full recomputation costs", "%", 12, V(30),
        V(100 * (1 - 1 / (1 + forward_part("llama2-7b", 2048)))), V(100 * forward_part("llama2-7b", 2048)),
        "a third more time is a quarter less throughput; ZeRO-2's 5% is none, it sends what DDP does");
    ROW(RATE, "G0-10-b", "rate after 10M, 20M, 265M, 510M, 755M, 1B tokens", "", 1,
        V(1.5e-4, 3e-4, 2.605e-4, 1.65e-4, 6.954e-5, 3e-5), V(3e-4 * rate(SCHEDULE_COSINE, 20000, 1000000, 0.1, 9999),
        3e-4 * rate(SCHEDULE_COSINE, 20000, 1000000, 0.1, 19999),
        3e-4 * rate(SCHEDULE_COSINE, 20000, 1000000, 0.1, 265000),
        3e-4 * rate(SCHEDULE_COSINE, 20000, 1000000, 0.1, 510000),
        3e-4 * rate(SCHEDULE_COSINE, 20000, 1000000, 0.1, 755000),
        3e-4 * rate(SCHEDULE_COSINE, 20000, 1000000, 0.1, 1000000)), NULL);
    ROW(BATCH, "G0-10-c", "accumulation of 1024 sequences, 4 at a time, on 32", "", 1, V(8), V(micros(1024, 4, 32)),
        "on 48 its division rounds to a batch of 960; the trainer refuses");
}

static void guide_1(Table *t)
{
    ROW(LAW, "G1-02-a", "GPT-3: PF-days", "", 1, V(3640), V(6 * params("gpt3-175b") * 300e9 / 1e15 / 86400), NULL);
    ROW(COST, "G1-02-b", "GPT-3's cost: V100 at 28 TFLOP/s, 1.5 dollars", "dollars", 2, V(4.6e6),
        V(1.5 * hours(6 * params("gpt3-175b") * 300e9, "V100", 28 * TERA / peak("V100"))),
        "a third party's estimate, not a bill");
    TWO(COST, "G1-02-c", "what a tenth more efficiency saves of that", "dollars", 1, V(460000), V(4.6e6 - 4.6e6 / 1.1),
        V(0.1 * 4.6e6), "a tenth more speed is a tenth less cost only nearly");
    ROW(COST, "G1-02-d", "512 A100: dollars an hour; 7B on 1T at 50% MFU: dollars", "", 10, V(20480, 10e6),
        V(512 * DEAR, DEAR * hours(6 * 7e9 * 1e12, "A100", 0.5)),
        "20,480 an hour are 40 a GPU; at 4 it is 0.3 million, and even at 40 it is 3 (6 N D: arXiv 2001.08361, 2.1)");
    ROW(COST, "G1-02-e", "a night of 10 hours on 512 A100", "dollars", 10, V(500000), V(10 * 512 * DEAR),
        "204,800 even at its own 20,480 an hour; 4 dollars a GPU here");
    ROW(STATE, "G1-03-a", "70B in fp32; an A100", "GB", 1, V(280, 80),
        V(weights(70e9, 4) / GIGA, memory("A100") / GIGA), NULL);
    ROW(STATE, "G1-03-b", "7B in fp32: weights, Adam, gradients, together", "GB", 1, V(28, 56, 28, 112),
        V(weights(7e9, 4) / GIGA, state(7e9, 8) / GIGA, grads(7e9, 4) / GIGA,
        (weights(7e9, 4) + state(7e9, 8) + grads(7e9, 4)) / GIGA), NULL);
    ROW(STATE, "G1-05-b", "largest model under data parallelism on 80 GB", "parameters", 10, V(7e9),
        V(memory("A100") / held(1, 1, 0)), "at 16 bytes 7B need 112 GB (arXiv 1910.02054, 3.1), as its section 3 says");
    ROW(TP, "G1-06-a", "columns of Q that a rank of 8 has, LLaMA 7B", "", 1, LOST,
        V(part("llama2-7b", 8).heads * part("llama2-7b", 8).head_size), "the formulas are missing");
    TWO(TP, "G1-06-b", "all-reduces a layer; NVLink 3, PCIe 4, GB/s", "", 2, V(2, 600, 32),
        V(tp_calls("llama2-7b", false, COMM_ALL_REDUCE), link("nvlink3") / GIGA, link("pcie4") / GIGA),
        V(tp_calls("llama2-7b", false, COMM_ALL_REDUCE) / 2, 2 * link("nvlink3") / GIGA, link("pcie4") / GIGA),
        "forward alone; NVLink both ways beside PCIe one way");
    ROW(BUBBLE, "G1-07-a", "bubble of p 4 with m 1, 4, 32", "%", 1, LOST,
        V(bubble(4, 1, 1), bubble(4, 4, 1), bubble(4, 32, 1)),
        "the formula is missing: (p-1) / (m+p-1) of all time, (p-1) / m of useful time");
    ROW(FORMAT, "G1-08-a", "fp16: exponent, mantissa, max; bf16: exponent, mantissa", "", 1, V(5, 10, 65504, 8, 7),
        V(format(FORMAT_FP16).exponent, format(FORMAT_FP16).mantissa, format(FORMAT_FP16).max,
        format(FORMAT_BF16).exponent, format(FORMAT_BF16).mantissa), "the ranges are missing");
    TWO(MACHINE, "G1-08-b", "an A100's 16-bit rate, of its 19.5 TFLOP/s in fp32", "times", 1, R(2, 4),
        V(peak("A100") / (19.5 * TERA)), V(peak("A100") / (156 * TERA)), "2 is against TF32");
    TWO(ACTS, "G1-09-a", "activations of LLaMA 70B, 2 x 2048 tokens", "GB", 1, V(5.37),
        V(acts("llama2-70b", 2048, 2, true, RECOMPUTE_NONE) / GIGA),
        V(layers("llama2-70b") * 2 * 2048 * width("llama2-70b") * 2 / GIGA),
        "that is each layer's input, all that full recomputation keeps");
    ROW(ACTS, "G1-09-b", "all of them, without fused attention", "GB", 1, R(200, 400),
        V(acts("llama2-70b", 2048, 2, false, RECOMPUTE_NONE) / GIGA), NULL);
    ROW(AGAIN, "G1-09-c", "forward FLOPs that full recomputation adds", "%", 5, V(33),
        V(100 * again("llama2-70b", RECOMPUTE_FULL, 2048)),
        "a third of all, 6 N to 8 N, is the whole forward; ours spares the FFN's last product (arXiv 1604.06174, 4.3)");
    ROW(BATCH, "G1-10-a", "16 x 2048 tokens; 32 times; times for 3.2M", "", 1, V(32768, 1048576, 98),
        V(16 * shape("gpt3-175b").context, 32 * 16 * shape("gpt3-175b").context,
        ceil(3.2e6 / (16 * (double)shape("gpt3-175b").context))), NULL);
    ROW(BATCH, "G1-10-b", "batch: micro 4, 32 GPUs, accumulated 8 times", "", 1, V(4 * 32 * 8),
        V(4 * 32 * micros(1024, 4, 32)), NULL);
    TWO(STATE, "G1-11-a", "Adam's state of 70B", "GB", 1, V(840), V(state(70e9, 8) / GIGA), V(state(70e9, 12) / GIGA),
        "840 has the fp32 weights in it; the moments are 560");
    TWO(ZERO, "G1-11-b", "ZeRO 1, 2, 3 on 64: times less", "", 1, V(4, 8, 64),
        V(times_less(1, 64), times_less(2, 64), times_less(3, 64)),
        V(times_less(1, 1 << 20), times_less(2, 1 << 20), times_less(3, 64)), "4 and 8 are the limits of many GPUs");
    ROW(ZERO, "G1-11-c", "70B, ZeRO-3 on 64", "GB", 1, V(17.5), V(held(70e9, 64, 3) / GIGA),
        "19.7 with our fp32 gradients");
    ROW(FLASH, "G1-12-a", "activations of LLaMA 7B, 8192 tokens: T x T kept, of none kept", "times", 1, LOST,
        V(acts("llama2-7b", 8192, 1, false, RECOMPUTE_NONE) / acts("llama2-7b", 8192, 1, true, RECOMPUTE_NONE)),
        "the formulas are missing: T^2 against T");
    ROW(FLASH, "G1-12-b", "8192 x 8192 scores: MB a head; GB of LLaMA 70B", "", 1, V(134, 688),
        V(2 * 8192.0 * 8192 / 1e6, 2 * 8192.0 * 8192 * (double)shape("llama2-70b").heads * layers("llama2-70b") / GIGA),
        NULL);
    ROW(FLASH, "G1-12-c", "fused attention, of T x T in memory (LLaMA 7B, 2048 tokens)", "times faster", 20, R(2, 4),
        V(attention_seconds("llama2-7b", 2048, false) / attention_seconds("llama2-7b", 2048, true)),
        "by the roofline; exact, though not bit for bit");
    TWO(DATA, "G1-13-a", "the Pile", "GB", 1, V(825), V(825 * 1073741824.0 / GIGA), V(825),
        "GiB (arXiv 2101.00027); Falcon's 1T tokens are the 40B's");
    ROW(DATA, "G1-13-b", "RedPajama: sum of its parts", "B tokens", 1, V(1210), V(878 + 175 + 59 + 26 + 28 + 24 + 20),
        NULL);
    ROW(COST, "G1-15-a", "GPT-3's cost, as G1-02-b", "dollars", 2, V(4.6e6),
        V(1.5 * hours(6 * params("gpt3-175b") * 300e9, "V100", 28 * TERA / peak("V100"))), "not OpenAI's figure");
    ROW(COST, "G1-15-b", "LLaMA-2 70B on 2T: its reported hours at 4 dollars", "dollars", 1, R(10e6, 15e6),
        V(DEAR * published("LLaMA-2 70B", 1024)->reported), "1,720,320 A100 hours (arXiv 2307.09288, table 2)");
    WORDS(COST, "G1-15-c", "GPT-4: 50 to 100 million dollars", "nothing is published to compute it from");
    ROW(COST, "G1-15-d", "7B on 1T, 512 A100 at 50% MFU", "dollars", 1, R(1e6, 2e6),
        V(DEAR * hours(6 * 7e9 * 1e12, "A100", 0.5)),
        "74,786 GPU hours: 1 to 2 million are 13 to 27 dollars an hour (6 N D: arXiv 2001.08361, 2.1)");
    ROW(COST, "G1-15-e", "7B on 100B", "dollars", 1, R(150e3, 250e3), V(DEAR * hours(6 * 7e9 * 100e9, "A100", 0.5)),
        "7,479 GPU hours: five to ten times too high (6 N D: arXiv 2001.08361, 2.1)");
    ROW(BATCH, "G1-16-b", "steps of 1T tokens in batches of 1,048,576; a hundredth", "", 1, V(953674, 9537),
        V(1e12 / (512.0 * (double)shape("gpt3-175b").context), 1e10 / (512.0 * (double)shape("gpt3-175b").context)),
        NULL);
    ROW(COST, "G1-21-a", "MFU to aim for: what one large matmul reaches of an A100", "%", 1, V(90),
        V(100 * machines_find("A100").reachable / peak("A100")), "a whole step reaches 40 to 60, as its section 30 "
        "says (52 at best in arXiv 2104.04473, table 1); 90 is a GPU's utilization, the time in which any kernel runs");
    ROW(ZERO, "G1-24-a", "ZeRO-3 on 64: times less; HDR, GB/s", "", 1, V(64, 25),
        V(times_less(3, 64), link("hdr") / GIGA), "backward gathers again; tp over slow links is worse, not better");
    ROW(AGAIN, "G1-26-a", "all FLOPs with a second forward", "times", 1, V(4 / 3.0),
        V(1 + forward_part("llama2-70b", 2048)), "1.24 here, where a block's last FFN product is not repeated");
    ROW(LAW, "G1-27-a", "tokens for 7 and 70 billion", "", 1, V(140e9, 1.4e12), V(chinchilla(7e9), chinchilla(70e9)),
        "the exponents are missing (0.5), and it is an optimum, not a minimum");
    ROW(CUT, "G1-28-a", "70B on 256, tp 8 pp 4: dp, B parameters a rank, layers a stage", "", 2, V(8, 2.19, 20),
        V(256 / (8 * 4), params("llama2-70b") / 32 / GIGA, stage_layers("llama2-70b", 4)), NULL);
    ROW(BATCH, "G1-28-c", "its batch: micro 1, dp 8, accumulated 32 times", "sequences", 1, V(1024), V(8 * 1 * 32),
        "pp is no factor: 1024 need 128 micro-batches (arXiv 2104.04473, 2.2)");
    ROW(ZERO, "G1-28-e", "a rank's state there: alone, ZeRO-3 over dp 8", "GB", 1, V(58.3, 31.7),
        V(held(70e9 / 32, 8, 0) / GIGA, held(70e9 / 32, 8, 3) / GIGA),
        "its code prints 35.0 and 12.0, for it divides only Adam's state; stage 3 divides all (arXiv 1910.02054, 5)");
    TWO(COST, "G1-29-a", "tokens a second of 70B on 256 A100", "", 1, V(183000),
        V(256 * 0.5 * peak("A100") / (6 * 70e9)), V(256 * 300 * TERA / (6 * 70e9)),
        "300 TFLOP/s are an MFU of 96%; at 50% it is half");
    ROW(DATA, "G1-29-b", "1 MB/s of text at 4 bytes a token: tokens/s; such disks for 183,000 a second", "", 1,
        V(300, 600), V(1e6 / 4, ceil(183000 * 4 / 1e6)), "300 would be 3,333 bytes a token");
    ROW(DATA, "G1-29-e", "largest vocabulary whose ids fit uint16", "", 0, V(65535), V(UINT16_MAX + 1.0),
        "ids are 0 to 65,535 (our shards keep one for a separator)");
    ROW(MACHINE, "G1-30-a", "peaks of A100, H100, TFLOP/s; PaLM's MFU, %", "", 2, V(312, 989, 46.2),
        V(peak("A100") / TERA, peak("H100") / TERA, 100 * 6 * 540.35e9 * 238.3e3 / (6144 * 275 * TERA)),
        "46.2 has attention in it, 45.7 without (arXiv 2204.02311, 4.1)");
    ROW(COST, "G1-30-b", "LLaMA-3's MFU on 16,384 H100", "%", 2, V(43),
        V(100 * published("LLaMA-3 405B", 16384)->reported * TERA / peak("H100")),
        "400 TFLOP/s; 43% is on 8,192 (arXiv 2407.21783, table 4; not by Touvron)");
    ROW(COST, "G1-30-c", "tokens a second on 256 A100 at 50%: 70B, 7B", "", 1, LOST,
        V(256 * 0.5 * peak("A100") / (6 * 70e9), 256 * 0.5 * peak("A100") / (6 * 7e9)),
        "formula and result are missing");
    ROW(FORMAT, "G1-33-b", "LLaMA-3 has a norm of queries and keys: 1, it has none: 0", "", 1, V(1),
        V(shape("llama3-8b").qk_norm != QK_NORM_NONE),
        "arXiv 2407.21783, table 3 and 3.2, name none; OLMo 2, Qwen3, Gemma 3 have it");
    ROW(LAW, "G1-34-b", "(C / 6 / 20)^0.5 parameters at 5.88e23", "", 1, V(sqrt(5.88e23 / 6 / 20)),
        V(scaling_laws_twenty(5.88e23).N), "follows from C = 6 N D and D = 20 N; the paper does not print it");
    ROW(LAW, "G1-34-d", "6e23 FLOPs: parameters, tokens", "", 10, V(10e9, 200e9),
        V(scaling_laws_twenty(6e23).N, scaling_laws_twenty(6e23).D), "10B on 200B are 1.2e22; nor is it GPT-3's "
        "budget, 3.15e23 (arXiv 2203.15556, table 3: 67B for Gopher's 5.76e23)");
    ROW(LAW, "G1-34-e", "1e24 FLOPs: parameters, tokens", "", 10, V(13e9, 260e9),
        V(scaling_laws_twenty(1e24).N, scaling_laws_twenty(1e24).D),
        "13B on 260B are 2e22; LLaMA-2 70B had 8.3e23 (arXiv 2307.09288, table 1)");
    ROW(LAW, "G1-35-a", "LLaMA 7B on 1T, of Chinchilla's tokens", "times", 5, V(5), V(1e12 / chinchilla(7e9)),
        "more than the optimum, so not undertrained; the LLaMA that beats GPT-3 is 13B (arXiv 2302.13971, abstract)");
    ROW(RECIPE, "G1-35-b", "LLaMA-3 8B: tokens", "", 1, V(15e12),
        V(tokens("llama3-8b")), NULL);
    ROW(FORMAT, "G1-37-a", "fp16, bf16: largest number", "", 1, V(65504, 3.4e38),
        V(format(FORMAT_FP16).max, format(FORMAT_BF16).max), NULL);
    ROW(AGAIN, "G1-38-a", "how often forward is computed with full recomputation", "times", 2, V(1.33),
        V(1 + again("llama2-70b", RECOMPUTE_FULL, 2048)),
        "twice, but for the FFN's last product here; 1.33 is of all the work, 8 N for 6 N (arXiv 1604.06174, 4.1)");
}

static void guide_2(Table *t)
{
    ROW(STATE, "G2-05-a", "an A100, small and large; 7B: weights, gradients in 2 bytes", "GB", 1, V(40, 80, 14, 14),
        V(memory("A100-40") / GIGA, memory("A100") / GIGA, weights(7e9, 2) / GIGA, grads(7e9, 2) / GIGA), NULL);
    ROW(STATE, "G2-05-b", "7B: Adam's two moments", "GB", 1, V(28), V(state(7e9, 8) / GIGA),
        "in fp32, and 84 with master weights (arXiv 1910.02054, 3.1); 28 is moments of 16 bits");
    ROW(CUT, "G2-14-a", "175B, tp 8 pp 12 dp 32: GPUs, layers a stage, B parameters a rank", "", 1, V(3072, 8, 1.82),
        V(8 * 12 * 32, stage_layers("gpt3-175b", 12), params("gpt3-175b") / 96 / GIGA), NULL);
}

static void guide_3(Table *t)
{
    ROW(COST, "G3-01-a", "GPT-3's energy: V100 at 24.6 TFLOP/s, 330 W, PUE 1.1", "MWh", 1, LOST,
        V(hours(6 * params("gpt3-175b") * 300e9, "V100", 24.6 * TERA / peak("V100")) * 330 * 1.1 / 1e6),
        "'megawatt-hours' is a thousand times too little (arXiv 2104.10350, table 4: 1,287)");
    ROW(FLOPS, "G3-02-a", "the loss of a uniform guess over GPT-2's vocabulary", "nats", 1, LOST,
        V(log(vocab("gpt2-124m"))), "the formulas are missing: -(1/T) sum log p(x_t given all before)");
    ROW(OPTIM, "G3-04-a", "SGD: state", "bytes a parameter", 1, LOST, V(state_each(OPTIM_SGD)),
        "the formula is missing");
    ROW(OPTIM, "G3-05-a", "Adam's betas and eps for LLaMA-2", "", 1, LOST,
        V(preset("llama2-7b")->optim.beta1, preset("llama2-7b")->optim.beta2, preset("llama2-7b")->optim.eps),
        "the formulas are missing");
    ROW(OPTIM, "G3-06-a", "AdamW: part of a weight that a step at the peak takes away, LLaMA-2 7B", "", 1, LOST,
        V(preset("llama2-7b")->optim.lr * preset("llama2-7b")->optim.weight_decay), "the formulas are missing");
    ROW(STATE, "G3-07-a", "70B: one fp32 array, AdamW's two", "GB", 1, V(280, 560),
        V(state(70e9, 4) / GIGA, state(70e9, 8) / GIGA), NULL);
    ROW(OPTIM, "G3-07-b", "state of SGD, momentum, Adam, Adafactor, Lion, 8-bit Adam", "bytes a parameter", 2,
        V(0, 4, 8, 4, 4, 2), V(state_each(OPTIM_SGD), state_each(OPTIM_MOMENTUM), state_each(OPTIM_ADAM),
        state_each(OPTIM_ADAFACTOR), state_each(OPTIM_LION), state_each(OPTIM_ADAMW8BIT)),
        "Adafactor keeps rows and columns; 4 are its optional momentum (arXiv 1804.04235, 3)");
    ROW(RATE, "G3-09-a", "warm-up: part of the peak at half of 2000 steps", "", 1, LOST,
        V(rate(SCHEDULE_COSINE, 2000, 100000, 0.1, 999)), "the formula is missing");
    ROW(RATE, "G3-09-b", "warm-up: LLaMA's steps; GPT-3's, % of its tokens", "", 1, V(2000, 0.125),
        V(preset("llama2-7b")->optim.warmup,
        100 * (double)preset("gpt3-175b")->optim.warmup_tokens / tokens("gpt3-175b")), NULL);
    ROW(RATE, "G3-10-a", "cosine to a tenth at 0, 1/4, 1/2, 3/4, 1", "of the peak", 1, LOST,
        V(rate(SCHEDULE_COSINE, 0, 1000, 0.1, 0), rate(SCHEDULE_COSINE, 0, 1000, 0.1, 250),
        rate(SCHEDULE_COSINE, 0, 1000, 0.1, 500), rate(SCHEDULE_COSINE, 0, 1000, 0.1, 750),
        rate(SCHEDULE_COSINE, 0, 1000, 0.1, 1000)), "the formula is missing");
    ROW(RATE, "G3-10-b", "time between a quarter and three quarters of the peak: cosine, of linear", "times", 1,
        R(1, INFINITY), V(middle(SCHEDULE_COSINE) / middle(SCHEDULE_LINEAR)),
        "the other way round: cosine lingers at both ends (arXiv 1608.03983, equation 5)");
    ROW(RATE, "G3-11-a", "linear decay at half", "of the peak", 1, LOST, V(rate(SCHEDULE_LINEAR, 0, 1000, 0, 500)),
        "the formula is missing");
    ROW(RECIPE, "G3-13-a", "GPT-3: lr, warm-up, batch, tokens; LLaMA-2 70B: lr, warm-up, batch, tokens", "", 5,
        V(0.6e-4, 375e6, 3.2e6, 300e9, 1.5e-4, 2000, 4e6, 2e12), V(preset("gpt3-175b")->optim.lr,
        preset("gpt3-175b")->optim.warmup_tokens, preset("gpt3-175b")->batch.tokens, tokens("gpt3-175b"),
        preset("llama2-70b")->optim.lr, preset("llama2-70b")->optim.warmup, preset("llama2-70b")->batch.tokens,
        tokens("llama2-70b")),
        "GPT-3's cosine ends after 260B");
    ROW(RECIPE, "G3-13-b", "Chinchilla: parameters, tokens", "", 1, V(70e9, 1.4e12), V(70e9, chinchilla(70e9)),
        "its batch doubles from 1.5M midway; the column for Mistral was never published");
    ROW(CLIP, "G3-14-a", "factor at norms 0.5, 5, 20, clipped at 1", "", 1, LOST,
        V(grads_clip_factor(0.5, 1), grads_clip_factor(5, 1), grads_clip_factor(20, 1)), "the formula is missing");
    ROW(FORMAT, "G3-16-a", "mantissa bits of fp32, tf32, bf16, fp16, E4M3, E5M2", "", 1, V(23, 10, 7, 10, 3, 2),
        V(format(FORMAT_FP32).mantissa, format(FORMAT_TF32).mantissa, format(FORMAT_BF16).mantissa,
        format(FORMAT_FP16).mantissa, format(FORMAT_E4M3).mantissa, format(FORMAT_E5M2).mantissa),
        "the column of ranges is missing");
    ROW(FORMAT, "G3-17-a", "fp16: whole decimal digits, max; bf16: digits", "", 1, V(3, 65504, 2),
        V(floor(format(FORMAT_FP16).digits), format(FORMAT_FP16).max, floor(format(FORMAT_BF16).digits)), NULL);
    TWO(MACHINE, "G3-18-a", "an A100's bf16 rate, of its 19.5 TFLOP/s in fp32", "times", 1, V(2),
        V(peak("A100") / (19.5 * TERA)), V(peak("A100") / (156 * TERA)), "2 is against TF32");
    ROW(STATE, "G3-19-a", "training in fp32, in mixed precision", "bytes a parameter", 1, V(16, 16),
        V(weights(1, 4) + grads(1, 4) + state(1, 8), held(1, 1, 0)), "18 with our fp32 gradients");
    ROW(ACTS, "G3-21-a", "70B, layer inputs: 1 x 4096, 4 x 4096, 8 x 2048 tokens", "GB", 1, LOST,
        V(2 * layers("llama2-70b") * 1 * 4096 * width("llama2-70b") / GIGA,
        2 * layers("llama2-70b") * 4 * 4096 * width("llama2-70b") / GIGA,
        2 * layers("llama2-70b") * 8 * 2048 * width("llama2-70b") / GIGA), "formula and result are missing: 2 L b s h");
    ROW(ACTS, "G3-21-b", "70B, 1 x 4096 tokens: all activations, without fused attention", "GB", 1, R(100, INFINITY),
        V(acts("llama2-70b", 4096, 1, false, RECOMPUTE_NONE) / GIGA), "not 'several times' the layer inputs' 5.4");
    ROW(AGAIN, "G3-23-a", "compute with a checkpoint at each layer", "times", 2, V(2),
        V(1 + forward_part("llama2-70b", 4096)),
        "forward doubles, all of it grows by a third; memory is L layer inputs, not O(1) (arXiv 1604.06174, 4)");
    ROW(AGAIN, "G3-23-b", "overhead with one at each sqrt(L) layers", "%", 15, V(50),
        V(100 * again("llama2-70b", RECOMPUTE_SQRT, 4096) / 3),
        "one more forward at most, a third of all; the last segment is spared (arXiv 1604.06174, 4.3)");
    ROW(AGAIN, "G3-23-c", "forwards: none, sqrt, every layer, selective", "times", 5, V(1, 1.5, 2, 1.3), V(1,
        1 + again("llama2-70b", RECOMPUTE_SQRT, 4096), 1 + again("llama2-70b", RECOMPUTE_FULL, 4096),
        1 + again("llama2-70b", RECOMPUTE_SELECTIVE, 4096)), "sqrt runs nearly all again; selective repeats no matmul "
        "here, and attention's core is 2.7% of GPT-3's FLOPs (arXiv 2205.05198, 5)");
    ROW(AGAIN, "G3-23-d", "overhead in practice", "%", 1, R(30, 40), V(100 * forward_part("llama2-70b", 4096)),
        "that is the theory; bandwidth is not needed to explain it");
    ROW(STATE, "G3-24-a", "70B in fp32", "GB", 1, V(280), V(weights(70e9, 4) / GIGA), NULL);
    ROW(STATE, "G3-25-b", "70B, AdamW, on each GPU of DDP", "TB", 2, V(1.1), V(held(70e9, 8, 0) / 1e12), NULL);
    ROW(ZERO, "G3-27-a", "70B on 8: weights, gradients, Adam, master, together; together under FSDP", "GB", 1,
        V(140, 140, 560, 280, 1120, 140), V(weights(70e9, 2) / GIGA, grads(70e9, 2) / GIGA, state(70e9, 8) / GIGA,
        state(70e9, 4) / GIGA, held(70e9, 8, 0) / GIGA, held(70e9, 8, 3) / GIGA), NULL);
    ROW(ZERO, "G3-27-b", "A100 of 80 GB that hold it", "GPUs", 1, V(8), V(ceil(held(70e9, 1, 0) / memory("A100"))),
        "8 have 140 GB each by its own table; 14 is before any activation (arXiv 1910.02054, 3.1)");
    ROW(TP, "G3-28-a", "all-reduces of one pair of matrices, forward", "", 1, LOST,
        V(tp_calls("llama2-70b", false, COMM_ALL_REDUCE) / 4),
        "the formula is missing; columns then rows need no gather between");
    ROW(MACHINE, "G3-28-b", "GPUs a node; NVLink 4 both ways, GB/s", "", 1, V(8, 900),
        V(machines_find("H100").node, 2 * link("nvlink4") / GIGA), NULL);
    ROW(CUT, "G3-29-a", "80 layers over 4 stages", "", 1, V(20), V(stage_layers("llama2-70b", 4)), NULL);
    ROW(BUBBLE, "G3-29-b", "bubble: p 4 m 4, p 4 m 32, p 8 m 8, p 8 m 32", "%", 1, LOST,
        V(bubble(4, 4, 1), bubble(4, 32, 1), bubble(8, 8, 1), bubble(8, 32, 1)),
        "the formula is missing: (p-1) / (m+p-1)");
    ROW(CUT, "G3-30-a", "GPUs of dp 32, tp 8, pp 4", "", 1, LOST, V(job(shape("gpt3-175b"), 1, 32, 8, 4).layout.gpus),
        "the formula is missing: dp tp pp");
    ROW(CUT, "G3-30-b", "175B on tp 8 pp 4 dp 32: GPUs", "", 1, V(1024),
        V(job(shape("gpt3-175b"), 1, 32, 8, 4).layout.gpus), "but 87 GB of state a GPU; ZeRO-1 makes it 24");
    ROW(MACHINE, "G3-30-c", "largest tp: GPUs a node", "", 1, R(2, 8), V(machines_find("H100").node), NULL);
    ROW(RECIPE, "G3-31-a", "betas, weight decay, clip; lr of 7B, 70B; batch", "", 5,
        V(0.9, 0.95, 0.1, 1, 3e-4, 1.5e-4, 4e6), V(preset("llama2-7b")->optim.beta1, preset("llama2-7b")->optim.beta2,
        preset("llama2-7b")->optim.weight_decay, preset("llama2-7b")->optim.clip, preset("llama2-7b")->optim.lr,
        preset("llama2-70b")->optim.lr, preset("llama2-7b")->batch.tokens), NULL);
    TWO(RATE, "G3-31-b", "warm-up, of LLaMA-2's steps; of 100,000 steps", "%", 1, R(1, 2),
        V(100.0 * (double)preset("llama2-7b")->optim.warmup / (double)preset("llama2-7b")->run.steps),
        V(100 * 2000 / 100000.0), "its 2000 steps are that of short runs alone; G3-09 has 0.1 to 2");
}

static void guide_4(Table *t)
{
    ROW(STATE, "G4-1.1-a", "weights, gradients, Adam with master weights, together", "bytes a parameter", 1,
        V(2, 2, 12, 16), V(weights(1, 2), grads(1, 2), state(1, 12), held(1, 1, 0)), "18 with our fp32 gradients");
    ROW(STATE, "G4-1.1-b", "7B", "GB", 1, V(112), V(held(7e9, 1, 0) / GIGA),
        "with gradients, which its words leave out");
    TWO(RING, "G4-1.2-a", "all-reduce, all-gather, reduce-scatter of one element, 8 ranks", "elements", 1, V(2, 1, 1),
        V(sent(COMM_ALL_REDUCE, COMM_RING, 8), sent(COMM_ALL_GATHER, COMM_RING, 8),
        sent(COMM_REDUCE_SCATTER, COMM_RING, 8)), V(sent(COMM_ALL_REDUCE, COMM_RING, 1024),
        sent(COMM_ALL_GATHER, COMM_RING, 1024), sent(COMM_REDUCE_SCATTER, COMM_RING, 1024)), "times (N-1) / N");
    ROW(ZERO, "G4-2.2-a", "ZeRO 1, 2, 3 on 64: bytes a parameter; sent, by stage", "", 2,
        V(4 + 12 / 64.0, 2 + 14 / 64.0, 16 / 64.0, 2, 2, 3), V(held(1e9, 64, 1) / 1e9, held(1e9, 64, 2) / 1e9,
        held(1e9, 64, 3) / 1e9, moved(1, 64, NULL), moved(2, 64, NULL), moved(3, 64, NULL)), NULL);
    ROW(ZERO, "G4-2.2-b", "7B, ZeRO 1, 2, 3: on 8, on 64; 70B on 64", "GB", 1,
        V(38.5, 26.25, 14.0, 29.3, 15.5, 1.75, 293, 155, 17.5), V(held(7e9, 8, 1) / GIGA, held(7e9, 8, 2) / GIGA,
        held(7e9, 8, 3) / GIGA, held(7e9, 64, 1) / GIGA, held(7e9, 64, 2) / GIGA, held(7e9, 64, 3) / GIGA,
        held(70e9, 64, 1) / GIGA, held(70e9, 64, 2) / GIGA, held(70e9, 64, 3) / GIGA), NULL);
    ROW(TP, "G4-3.1-a", "columns of A that each of 8 has, GPT-3", "", 1, LOST, V(part("gpt3-175b", 8).ffn),
        "the whole formula is missing: GeLU(X A) B");
    TWO(TP, "G4-3.1-b", "all-reduces of a layer", "", 1, V(2), V(tp_calls("gpt3-175b", false, COMM_ALL_REDUCE)),
        V(tp_calls("gpt3-175b", false, COMM_ALL_REDUCE) / 2), "forward alone");
    ROW(CUT, "G4-4.1-a", "32 layers over 4 stages", "", 1, V(8), V(stage_layers("llama2-7b", 4)), NULL);
    ROW(BUBBLE, "G4-4.2-a", "bubble of GPipe, p 4 m 4", "%", 1, LOST, V(bubble(4, 4, 1)),
        "the formula is missing: (p-1) / (m+p-1)");
    ROW(BUBBLE, "G4-4.2-b", "GPipe, p 4 m 4: idle slots between forward and backward, by stage", "", 1, V(4, 3, 2, 1),
        V(gpipe_gap(4, 4, 0), gpipe_gap(4, 4, 1), gpipe_gap(4, 4, 2), gpipe_gap(4, 4, 3)),
        "with equal slots; each stage idles in 6 of 14 (arXiv 1811.06965, figure 2)");
    ROW(BUBBLE, "G4-4.3-a", "1F1B, p 4 m 4: forwards before the first backward, by stage", "", 1, V(4, 3, 2, 1),
        V(warm_up(4, 4, 0), warm_up(4, 4, 1), warm_up(4, 4, 2), warm_up(4, 4, 3)),
        "the idle slots are not drawn: GPipe's bubble, 42.9%");
    ROW(BUBBLE, "G4-4.4-a", "interleaved, 32 layers on 4: first layers of GPU 0's chunks", "", 1, V(1, 9, 17, 25),
        V(first_layer("llama2-7b", 4, 4, 0), first_layer("llama2-7b", 4, 4, 1), first_layer("llama2-7b", 4, 4, 2),
        first_layer("llama2-7b", 4, 4, 3)), "a bubble of 3/19 instead of 3/7, and 4 times the messages");
    TWO(CUT, "G4-5-a", "LLaMA 65B: GPUs", "", 1, V(1024), V(published("LLaMA 65B", 2048)->gpus), V(8 * 8 * 16),
        "its layout was not published; it had 2048 (arXiv 2302.13971, 2.4)");
    ROW(FORMAT, "G4-6.1-a", "largest of fp32, fp16, bf16, E4M3, E5M2", "", 1, V(3.4e38, 65504, 3.4e38, 448, 57344),
        V(format(FORMAT_FP32).max, format(FORMAT_FP16).max, format(FORMAT_BF16).max, format(FORMAT_E4M3).max,
        format(FORMAT_E5M2).max), NULL);
    ROW(FORMAT, "G4-6.1-b", "bf16's step at 1, of fp16's", "times", 1, R(0, 1),
        V(format(FORMAT_BF16).epsilon / format(FORMAT_FP16).epsilon), "it ranks bf16 as the more precise; fp16 has 10 "
        "bits, bf16 7, as its 6.3 says (IEEE 754; arXiv 1905.12322, table 1)");
    ROW(MACHINE, "G4-6.3-a", "fp16 matmuls before the A100: V100", "TFLOP/s", 1, V(0), V(peak("V100") / TERA),
        "tensor cores for fp16 came with the V100, bf16 with the A100 (data sheets)");
    ROW(AGAIN, "G4-7.1-a", "compute with nothing kept, with sqrt(L) layers kept (L 80)", "times", 3, V(2, 1.33),
        V(1 + (layers("llama2-70b") - 1) / 2 / 3, 1 + forward_part("llama2-70b", 4096)),
        "with nothing kept, layer i runs again for each later one: L (L-1) / 2 layers (arXiv 1604.06174, 4.4)");
    ROW(ZERO, "G4-8.1-a", "of weights, gradients and state: divided by ZeRO 1, 2, 3", "", 1, V(1, 2, 3),
        V(divided(1), divided(2), divided(3)), NULL);
    ROW(RING, "G4-9.1-a", "kinds of collectives in a step: DDP, FSDP", "", 1, V(1, 2), V(kinds(0), kinds(3)), NULL);
    ROW(RING, "G4-9.2-a", "ring all-reduce of 8, 64, 1024", "of the bytes", 1, V(1.75, 1.969, 1.998),
        V(sent(COMM_ALL_REDUCE, COMM_RING, 8), sent(COMM_ALL_REDUCE, COMM_RING, 64),
        sent(COMM_ALL_REDUCE, COMM_RING, 1024)), NULL);
    ROW(RING, "G4-9.2-b", "tree all-reduce of 8, 1024: time, of sending the bytes once", "times", 1,
        V(2 * log2(8), 2 * log2(1024)), V(sent(COMM_ALL_REDUCE, COMM_TREE, 8), sent(COMM_ALL_REDUCE, COMM_TREE, 1024)),
        "of a tree whose messages are whole; in pieces, as libraries send, about 2");
    ROW(MACHINE, "G4-9.2-c", "NVLink on H100, both ways", "GB/s", 1, V(600), V(2 * link("nvlink4") / GIGA),
        "600 is the A100's (data sheets)");
    ROW(MACHINE, "G4-9.2-d", "InfiniBand HDR", "Gbit/s", 1, V(400), V(8 * link("hdr") / GIGA),
        "400 is NDR (InfiniBand Trade Association's roadmap)");
    WORDS(CLIP, "G4-10.1-a", "causes and cures of divergence, spikes, overflow",
        "doc/monitor.md and doc/clip.md try them");
    ROW(ZERO, "G4-11-a", "state with ZeRO-3 at its smallest: 7B on 4, 70B on 16", "GB a GPU", 1, LOST,
        V(held(7e9, 4, 3) / GIGA, held(70e9, 16, 3) / GIGA),
        "no memory is given: 70 of 80 GB leave no room for activations; experts need a model that has them");
}

static void papers(Table *t)
{
    ROW(ZERO, "P-zero", "ZeRO's figure 1: 7.5B on 64, stages 0 to 3 (arXiv 1910.02054)", "GB", 2,
        V(120, 31.4, 16.6, 1.9),
        V(held(7.5e9, 64, 0) / GIGA, held(7.5e9, 64, 1) / GIGA, held(7.5e9, 64, 2) / GIGA, held(7.5e9, 64, 3) / GIGA),
        NULL);
    ROW(FLOPS, "P-12LCC", "GPT-3: 12 L C^2 parameters", "", 1, V(12.0 * 96 * 12288 * 12288), V(params("gpt3-175b")),
        "without embeddings, biases, norms: 0.4% less");
    ROW(FLOPS, "P-attention", "GPT-3's FLOPs with attention (arXiv 2005.14165, table D.1: 3.14e23 without)", "", 2,
        V(3.14e23), V(flops("gpt3-175b", 2048) * 300e9), "causal attention adds 1.4%");
    ROW(RING, "P-ring", "7B gradients in 2 bytes, ring of 8: GB from each; ms over NVLink 3", "", 1, V(24.5, 82),
        V(14 * sent(COMM_ALL_REDUCE, COMM_RING, 8), 14e9 * sent(COMM_ALL_REDUCE, COMM_RING, 8) / link("nvlink3") * 1e3),
        NULL);
    ROW(FAILS, "P-failures", "LLaMA-3: hours between failures on 16,384; minutes between checkpoints of 30 s", "", 4,
        V(3, 13.6),
        V(plan_time_between_failures(16384) / 3600, plan_time_young(30, plan_time_between_failures(16384)) / 60),
        "arXiv 2407.21783, 3.3.4; sqrt(2 d M)");
    ROW(COST, "P-llama3", "LLaMA-3: tokens a parameter; days of 16,384 at 400 TFLOP/s", "", 2, V(38, 67),
        V(15.6e12 / params("llama3-405b"), 6 * params("llama3-405b") * 15.6e12 / (400 * TERA * 16384) / 86400),
        "without a failure");
}

int guides_rows(GuideRow *row)
{
    Table t = {.row = row};
    guide_0(&t), guide_1(&t), guide_2(&t), guide_3(&t), guide_4(&t), papers(&t);
    return t.n;
}
