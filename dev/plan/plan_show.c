// plan_show: the plans about machines, as reports: traffic, time, layouts, scaling laws, recipes and clusters.
//
// Each number is handed to the report with the formula that made it, so that --explain can show every step from the
// machine's table to the cost.
//
// The invariant: nothing is computed here that another plan needs too; only sums, ratios and unit changes for the
// reader.
//
// The three rules for a budget stand side by side because guides mix them: 20 tokens a parameter, the fit of
// Chinchilla's third approach (as printed, with all digits, and fitted again), and Kaplan's. Each row has 6 N D = C, so
// rows of one budget can be compared. Rejected: a recommendation. Which rule to follow depends on what the model is
// for, and inference often decides.

#include "base/check.h"
#include "dev/plan/plan_show.h"
#include "dev/plan/plan.h"
#include "train/run.h"
#include "dev/plan/scaling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void show_job(Report *r, const PlanJob *job)
{
    report_section(r, "layout");
    report_text(r, "cut", "%s", plan_layout_text(job).s);
    report_text(r, "on", "%d %s, %d a node: %s inside, %s between", job->layout.gpus, job->machine.name,
                job->machine.node, job->machine.inside.name, job->machine.between.name);
    report_value(r, "micro-batches", (double)plan_layout_micros(job), "of a step, on each replica",
                 "batch / (dp micro) = %ld / (%d * %ld)", job->batch, job->layout.dp, job->layout.micro);
    PlanBytes b = plan_layout_bytes(job);
    report_value(r, "memory", b.total / 1e9, "GB on the fullest rank",
                 "weights %.3g + gradients %.3g + optimizer %.3g + activations %.3g + scratch %.3g + "
                 "communication %.3g GB (stage %d)", b.parameters / 1e9, b.gradients / 1e9, b.optimizer / 1e9,
                 b.activations / 1e9, b.scratch / 1e9, b.communication / 1e9, b.stage);
}

// ---- traffic

static void show_moves(Report *r, const PlanJob *job)
{
    PlanHost h = plan_traffic_host(job);
    const struct { const char *what; const PlanMove *move; bool in; } row[] = {
        {"activations", &h.acts[0], false}, {"activations", &h.acts[1], true}, {"update", &h.update[0], false},
        {"update", &h.update[1], true}, {"gathers of weights", &h.gathers, true}};
    if (!job->layout.offload && !job->layout.offload_acts) return;
    report_table(r, "host", "group|kind|what|link|bytes a rank|bytes, all ranks|ms a step");
    for (int i = 0; i < (int)(sizeof row / sizeof *row); i++) {
        if (!row[i].move->all) continue;
        report_row(r, "%s|%s|%s|%s|%.0f|%.0f|%.4g", "host", row[i].in ? "in" : "out", row[i].what,
                   job->machine.host.name, row[i].move->rank, (double)row[i].move->all,
                   1e3 * row[i].move->rank / h.bandwidth);
    }
}

static void show_traffic(const PlanOptions *o, FILE *out)
{
    const PlanJob *job = &o->job;
    plan_layout_must(job, false);
    PlanTraffic t = plan_traffic(job);
    PlanTime time = plan_time(job, true);
    Report *r = report_begin(out, o->json, o->explain);
    show_job(r, job);
    report_table(r, "flows", "group|kind|ranks|on a node|link|calls a rank|bytes a call|bytes, all ranks|ms a step|"
                 "way|formula, all ranks");
    for (int i = 0; i < t.n; i++) {
        const PlanFlow *f = &t.flow[i];
        bool near = f->where.inside == f->where.size;
        report_row(r, "%s|%s|%.0f|%.0f|%s|%.6g|%.0f|%.0f|%.4g|%s|%s", f->group, comm_kind_name(f->kind),
                   (double)f->where.size, (double)f->where.inside, near ? f->where.in.name : f->where.out.name,
                   f->calls, f->payload, (double)f->all, 1e3 * f->seconds, f->algorithm, f->formula);
    }
    show_moves(r, job);
    report_section(r, "what hides");
    report_value(r, "all bytes", (double)t.all, "sent by all ranks in a step", NULL);
    report_value(r, "tp, exposed", 1e3 * (time.tensor[0] + time.tensor[1]), "ms a block and micro-batch", NULL);
    report_value(r, "cp, exposed", 1e3 * (time.context[0] + time.context[1]), "ms a block and micro-batch", NULL);
    if (job->layout.ep > 1)
        report_value(r, "ep, exposed", 1e3 * (time.experts[0] + time.experts[1]), "ms a block and micro-batch",
                     "of %.4g ms; the shared expert hides the rest", 1e3 * (time.rows[0] + time.rows[1]));
    report_value(r, "window of gradients", 1e3 * time.window, "ms: the backward of one micro-batch", NULL);
    report_value(r, "dp, hidden", 1e3 * time.hidden, "ms a step", NULL);
    report_value(r, "dp, exposed", 1e3 * (time.grads + time.weights), "ms a step", "gradients %.4g + weights %.4g ms",
                 1e3 * time.grads, 1e3 * time.weights);
    if (o->explain)
        report_text(r, "letters",
                    "R replicas = dp cp, m micro-batches, L layers, x %zu bytes, N tokens of a micro-batch, C "
                    "channels, s elements whose gradients a tp group adds, B sequences, T tokens, G D a rank's keys, "
                    "k of E experts for a token; of dp P parameters of a rank, Px of them divided experts",
                    job->x_bytes);
    report_end(r);
}

// ---- time

static void show_roofline(Report *r, const char *key, const Roofline *roof, const Machine *m)
{
    report_table(r, key, "operation|GFLOP forward|MB forward|ms forward|ms backward|ms weights|of the peak");
    for (int i = 0; i < roof->n; i++) {
        const RooflineOp *op = &roof->op[i];
        double flops = op->flops[0] + op->flops[1] + op->flops[2], s = op->seconds[0] + op->seconds[1] + op->seconds[2];
        report_row(r, "%s|%.4g|%.4g|%.4g|%.4g|%.4g|%.1f%%", op->name, op->flops[ROOFLINE_F] / 1e9,
                   op->bytes[ROOFLINE_F] / 1e6, 1e3 * op->seconds[0], 1e3 * op->seconds[1], 1e3 * op->seconds[2],
                   100 * flops / s / m->peak);
    }
}

static void show_step(Report *r, const PlanJob *job, const PlanTime *t)
{
    double m = (double)plan_layout_micros(job), stage = t->chunk[0] + t->chunk[1] + t->chunk[2];
    report_section(r, "step");
    report_value(r, "pipeline", t->pipeline, "s",
                 "m %.0f micro-batches of %.4g s (%d chunks of %.4g) and ends %.4g s, bubble "
                 "%.1f%%", m, stage * job->layout.chunks, job->layout.chunks, stage, t->ends, 100 * t->bubble);
    double p = job->layout.pp, slots = m * job->layout.chunks + p - 1;
    report_value(r, "bubble", 100 * t->bubble, "% of the pipeline's time",
                 "1F1B with equal stages: (p - 1) / (v m + p - 1) = %.0f / %.0f = %.1f%% (arXiv 2104.04473, 2.2); the "
                 "more micro-batches m or chunks v, the less", p - 1, slots, 100 * (p - 1) / slots);
    if (job->layout.ep > 1)
        report_value(r, "rows to experts, exposed", m * (double)plan_layout_chunk(job) * job->layout.chunks *
                     (t->experts[0] + t->experts[1]), "s of the pipeline",
                     "m %.0f * %d chunks of %zu blocks * (%.4g + %.4g) s, of %.4g + %.4g", m, job->layout.chunks,
                     plan_layout_chunk(job), t->experts[0], t->experts[1], t->rows[0], t->rows[1]);
    report_value(r, "gradients, exposed", t->grads, "s", "beyond a window of %.4g s", t->window);
    report_value(r, "weights, exposed", t->weights, "s", NULL);
    report_value(r, "optimizer", t->optimizer, "s", "%zu bytes a parameter of the rank's shard (28, and x "
                 "of a copy in fewer than 4)%s", 28 + (job->x_bytes < 4 ? job->x_bytes : 0),
                 job->layout.host_updates ? ", of the host's memory" : "");
    report_value(r, "contention", t->contention, "s", "%.3g * %.4g s of hidden communication",
                 roofline_constants().contention, t->hidden);
    if (job->layout.offload_acts)
        report_value(r, "activations to the host", m * job->layout.chunks * (t->acts[0] + t->acts[1]),
                     "s of the pipeline", "m %.0f * %d chunks * (%.4g + %.4g) s", m, job->layout.chunks, t->acts[0],
                     t->acts[1]);
    if (job->layout.offload)
        report_value(r, "offload, exposed", t->offload, "s", job->layout.host_updates ?
                     "gradients to the host, weights back" : "state comes and goes beside the update");
    report_value(r, "step", t->step, "s", "%.4g + %.4g + %.4g + %.4g + %.4g%s", t->pipeline, t->grads, t->weights,
                 t->contention, t->optimizer, job->layout.offload ? " + offload" : "");
    report_value(r, "tokens/s", t->tokens_second, "", "%ld * %zu / %.4g", job->batch, job->T, t->step);
    report_value(r, "tokens/s an accelerator", t->tokens_second / job->layout.gpus, "", NULL);
    report_value(r, "TFLOP/s an accelerator", t->model_flops / t->step / job->layout.gpus / 1e12, "needed ones", NULL);
    report_value(r, "MFU", 100 * t->mfu, "%", "%.4g FLOPs / (%.4g s * %d * %.4g)", t->model_flops, t->step,
                 job->layout.gpus, job->machine.peak);
    report_value(r, "HFU", 100 * t->hfu, "%", "%.4g FLOPs with those done again", t->hardware_flops);
}

static void show_run(Report *r, const PlanOptions *o, const PlanTime *t)
{
    double gpus = o->job.layout.gpus, seconds = o->tokens / t->tokens_second;
    double young = plan_time_young(o->save, o->mean), daly = plan_time_daly(o->save, o->mean);
    double interval = o->interval > 0 ? o->interval : daly;
    double goodput = plan_time_goodput(interval, o->save, o->restart, o->mean), hours = seconds / 3600 / goodput;
    report_section(r, "run");
    report_value(r, "tokens", o->tokens, "", NULL);
    report_value(r, "FLOPs", t->model_flops / ((double)o->job.batch * (double)o->job.T) * o->tokens, "", NULL);
    report_value(r, "days without failures", seconds / 86400, "", "%.4g tokens / %.4g a second / 86400", o->tokens,
                 t->tokens_second);
    report_value(r, "hours between failures", o->mean / 3600, "of the whole cluster",
                 "54 days * 24 * 16384 / 419 interruptions / %.0f (arXiv 2407.21783), or --mtbf", gpus);
    report_value(r, "checkpoint every (Young)", young, "s", "sqrt(2 * save %.4g * %.4g)", o->save, o->mean);
    report_value(r, "checkpoint every (Daly)", daly, "s", "Young's with higher-order terms, less the save itself");
    report_value(r, "goodput", 100 * goodput, "% of the time trains",
                 "t / ((M + r) (e^((t + d) / M) - 1)) = %.4g / ((%.4g + %.4g) (e^((%.4g + %.4g) / %.4g) - 1))", interval,
                 o->mean, o->restart, interval, o->save, o->mean);
    report_value(r, "days", hours / 24, "with failures", NULL);
    report_value(r, "accelerator hours", hours * gpus, "", NULL);
    report_value(r, "price", o->price, "dollars an hour of an accelerator, or --price", NULL);
    report_value(r, "cost", hours * gpus * o->price, "dollars", "%.4g hours * %.0f * %.4g dollars", hours, gpus,
                 o->price);
}

static void show_time(const PlanOptions *o, FILE *out)
{
    const PlanJob *job = &o->job;
    plan_layout_must(job, true);
    PlanTime t = plan_time(job, true);
    Report *r = report_begin(out, o->json, o->explain);
    show_job(r, job);
    show_roofline(r, "block", &t.block, &job->machine);
    show_roofline(r, "head", &t.head, &job->machine);
    show_step(r, job, &t);
    if (o->tokens > 0) show_run(r, o, &t);
    report_end(r);
}

// ---- layout

// Writes the configuration with the layout's keys. Keys of a size of 1 are left out.
static void write_config(const PlanOptions *o, const PlanJob *job)
{
    static Config cfg; // large
    const PlanLayout *l = &job->layout;
    bool tf32 = o->cfg.numerics.dtype == CONFIG_DTYPE_TF32;
    char room[24];
    const struct { const char *key; long value; bool needed; } size[] = {
        {"parallel.tp", l->tp, l->tp > 1}, {"parallel.cp", l->cp, l->cp > 1}, {"parallel.pp", l->pp, l->pp > 1},
        {"parallel.ep", l->ep, l->ep > 1}, {"parallel.chunks", l->chunks, l->chunks > 1},
        {"parallel.zero", l->zero, l->zero > 0}, {"parallel.shard", l->shard, plan_layout_copies(l) > 1},
        {"batch.micro", l->micro, true}, {"batch.tokens", job->batch * (long)job->T, true}};
    const struct { const char *key, *value; bool needed; } word[] = {
        {"moe.room", room, l->ep > 1 && job->shape.experts.room > 0}, {"parallel.sp", "true", l->sp},
        {"parallel.schedule", pipeline_table_name(l->schedule), l->pp > 1},
        {"memory.recompute", recompute_name(l->recompute), true},
        {"numerics.dtype", job->x_bytes == 2 ? "bf16" : tf32 ? "tf32" : "fp32", true}};
    snprintf(room, sizeof room, "%g", job->shape.experts.room);
    cfg = o->cfg;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        char number[24];
        snprintf(number, sizeof number, "%ld", size[i].value);
        if (size[i].needed) config_set(&cfg, size[i].key, number, "plan layout");
    }
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (word[i].needed) config_set(&cfg, word[i].key, word[i].value, "plan layout");
    config_set_derived(&cfg, "parallel.ranks", l->gpus);
    config_resolve(&cfg); // dies, before anything is written, where train would refuse
    config_write(&cfg, o->write);
}

static void show_refused(Report *r, const LayoutSearch *s)
{
    report_table(r, "tried", "layouts|why");
    for (int i = 0; i < PLAN_LAYOUT_REASONS; i++) {
        if (!s->refused[i]) continue;
        report_row(r, "%.0f|%s", (double)s->refused[i], plan_layout_reason((PlanLayoutReason)i));
    }
}

static void show_best(Report *r, const LayoutSearch *s)
{
    report_table(r, "best", "step, s|MFU|GB|layout");
    for (int i = 0; i < s->n; i++) {
        const PlanJob *job = &s->best[i].job;
        report_row(r, "%.4g|%.1f%%|%.1f|%s", s->best[i].seconds, 100 * plan_time(job, true).mfu,
                   plan_layout_bytes(job).total / 1e9, plan_layout_text(job).s);
    }
}

static void show_layout(PlanOptions *o, FILE *out)
{
    LayoutSearch s = layout_search(&o->job, o->is_free);
    if (!s.n) {
        int most = PLAN_LAYOUT_RANKS;
        for (int i = 1; i < PLAN_LAYOUT_REASONS; i++) most = s.refused[i] > s.refused[most] ? i : most;
        // only this refusal can be helped by a better accelerator
        if (s.refused[PLAN_LAYOUT_MEMORY]) most = PLAN_LAYOUT_MEMORY;
        die("plan layout: none of %ld layouts on %d %s: %s, in %ld of them (try more accelerators, or others)", s.tried,
            o->job.layout.gpus, o->job.machine.name, plan_layout_reason((PlanLayoutReason)most), s.refused[most]);
    }
    char *paragraph = NULL;
    size_t n;
    FILE *text = open_memstream(&paragraph, &n);
    if (!text) die("plan: no memory");
    layout_search_explain(&s, text);
    if (fclose(text) || !paragraph) die("plan: no memory");
    paragraph[strcspn(paragraph, "\n")] = 0;
    Report *r = report_begin(out, o->json, o->explain);
    show_refused(r, &s);
    show_best(r, &s);
    report_section(r, "winner");
    report_text(r, "why", "%s", paragraph);
    free(paragraph);
    PlanTime t = plan_time(&s.best[0].job, true);
    show_step(r, &s.best[0].job, &t);
    o->job = s.best[0].job;
    if (o->tokens > 0) show_run(r, o, &t);
    if (o->write) {
        write_config(o, &s.best[0].job);
        report_section(r, "file");
        report_text(r, "written", "%s", o->write);
    }
    report_end(r);
}

// ---- scaling

static void show_point(Report *r, const char *rule, ScalingPoint p, const PlanOptions *o)
{
    double hours = p.C / (o->mfu * o->job.machine.peak) / 3600;
    report_row(r, "%s|%.4g|%.4g|%.3g|%.4f|%.3g|%.4g|%.4g|%.4g", rule, p.N, p.D, p.D / p.N, p.loss, p.C, hours,
               hours * o->price, hours / o->job.layout.gpus / 24);
}

static void show_budget(Report *r, const PlanOptions *o, double C)
{
    report_table(r, "budget", "rule|parameters|tokens|tokens a parameter|loss|FLOPs|accelerator hours at %.3g%% MFU|"
                 "dollars|days on %d", 100 * o->mfu, o->job.layout.gpus);
    show_point(r, "20 tokens a parameter", scaling_laws_twenty(C), o);
    show_point(r, "0.1174 C^0.4999", scaling_laws_power(C), o);
    for (int i = 0; i < SCALING_LAWS_KAPLAN; i++)
        show_point(r, scaling_laws_law(i)->name, scaling_laws_optimum(scaling_laws_law(i), C), o);
    show_point(r, "kaplan", scaling_laws_kaplan(C), o);
}

static void show_law(Report *r, const PlanOptions *o, const ScalingLaw *law, double C)
{
    double a = law->alpha, b = law->beta, G = pow(a * law->A / (b * law->B), 1 / (a + b));
    ScalingPoint p = scaling_laws_optimum(law, C);
    report_section(r, "fit");
    report_text(r, "law", "L = %.5g + %.5g / N^%.4g + %.5g / D^%.4g (%s)", law->E, law->A, a, law->B, b, law->source);
    report_value(r, "parameters", p.N, "", "G (C / 6)^(beta / (alpha + beta)) = %.4g * (%.3g / 6)^%.4g, G = (alpha A / "
                 "(beta B))^(1 / (alpha + beta))", G, C, b / (a + b));
    report_value(r, "tokens", p.D, "", "C / (6 N) = %.3g / (6 * %.4g)", C, p.N);
    report_value(r, "loss", p.loss, "nats a token", "%.5g + %.4g + %.4g", law->E, law->A * pow(p.N, -a),
                 law->B * pow(p.D, -b));
    if (!(o->served > 0)) return;
    double loss = o->loss > 0 ? o->loss : p.loss;
    if (!(loss > law->E)) die("--loss: %g: the law's floor is %g nats", loss, law->E);
    ScalingPoint s = scaling_laws_served(law, loss, o->served), t = {.N = p.N};
    t.D = scaling_laws_tokens(law, p.N, loss);
    double small = 6 * s.N * s.D + 2 * s.N * o->served, large = 6 * t.N * t.D + 2 * t.N * o->served;
    report_section(r, "served");
    report_value(r, "served tokens", o->served, "", NULL);
    report_value(r, "loss kept", loss, "nats a token", NULL);
    report_value(r, "parameters", s.N, "",
                 "the minimum of 6 N D(N) + 2 N S, D(N) = (B / (loss - E - A / N^alpha))^(1 / beta)");
    report_value(r, "tokens", s.D, "", NULL);
    report_value(r, "tokens a parameter", s.D / s.N, "", NULL);
    report_value(r, "training FLOPs", 6 * s.N * s.D, "", "%.4g times the optimum's", 6 * s.N * s.D / (6 * t.N * t.D));
    report_value(r, "all FLOPs", small, "training and inference", "6 * %.4g * %.4g + 2 * %.4g * %.4g", s.N, s.D, s.N,
                 o->served);
    report_value(r, "saved", 100 * (1 - small / large), "% of what the training optimum would cost", NULL);
}

// One of budget, parameters and tokens gives the others with 20 tokens a parameter, two give the third; all are set.
static void two_of_three(double *C, double *N, double *D)
{
    if (*C > 0 && *N > 0 && *D > 0) die("plan scaling: --flops, --params and --tokens: C = 6 N D (give two of them)");
    if (!(*C > 0) && *N > 0 && !(*D > 0)) *D = 20 * *N;
    if (!(*C > 0) && *D > 0 && !(*N > 0)) *N = *D / 20;
    if (!(*C > 0)) *C = 6 * *N * *D;
    if (!(*C > 0)) die("plan scaling: no budget (write --flops 5.76e23, --tokens 1.4e12, or --params 70e9)");
    if (!(*N > 0)) *N = *D > 0 ? *C / (6 * *D) : scaling_laws_twenty(*C).N;
    *D = *C / (6 * *N);
}

static void show_scaling(const PlanOptions *o, FILE *out)
{
    const ScalingLaw *law = scaling_laws_law(SCALING_LAWS_BESIROGLU);
    double C = o->budget, N = o->params, D = o->tokens;
    two_of_three(&C, &N, &D);
    if (o->loss > 0 && !(o->served > 0)) die("--loss: has no effect without --served");
    Report *r = report_begin(out, o->json, o->explain);
    show_budget(r, o, C);
    show_law(r, o, law, C);
    if (o->params > 0 || o->tokens > 0) {
        double loss = scaling_laws_loss(law, N, D);
        report_section(r, "this model");
        report_value(r, "parameters", N, "", "C / (6 D) = %.3g / (6 * %.4g)", C, D);
        report_value(r, "tokens", D, "", "C / (6 N) = %.3g / (6 * %.4g)", C, N);
        report_value(r, "tokens a parameter", D / N, "", NULL);
        report_value(r, "times optimal", D / (20 * N), "of 20 tokens a parameter", "D / (20 N) = %.4g / %.4g", D,
                     20 * N);
        report_value(r, "loss", loss, "nats a token", "%.4g above the optimum's",
                     loss - scaling_laws_optimum(law, C).loss);
        report_value(r, "loss by Kaplan", scaling_laws_loss(scaling_laws_law(SCALING_LAWS_KAPLAN), N, D),
                     "nats a token, another corpus", "((6.4e13 / N)^(0.076 / 0.103) + 1.8e13 / D)^0.103");
        report_value(r, "with endless data", scaling_laws_kaplan_size(N), "nats a token", "L(N) = (8.8e13 / N)^0.076");
        report_value(r, "with endless parameters", scaling_laws_kaplan_data(D), "nats a token",
                     "L(D) = (5.4e13 / D)^0.095");
    }
    report_end(r);
}

// ---- approaches

// A table that guides end with: how many parameters, what to use, on how many accelerators. Beside each of its rows, at
// both ends of its range, the layout that the search finds, and the fewest accelerators whose memory holds the state.
static void show_approach(bool json, FILE *out)
{
    static const struct {
        const char *size, *words, *model, *gpu;
        int gpus[2];
    } row[] = {{"below 1B", "one GPU, AMP", "gpt2-774m", "A100-80", {1, 0}},
               {"1 to 7B", "FSDP, stage 2 or 3", "llama2-7b", "A100-80", {4, 8}},
               {"7 to 70B", "TP and FSDP", "llama2-70b", "A100-80", {16, 128}},
               {"70 to 400B", "3D", "gpt3-175b", "H100", {256, 2048}},
               {"above 400B", "3D and experts", "llama3-405b", "H100", {2048, 0}}};
    static PlanOptions o; // large
    Report *r = report_begin(out, json, false);
    report_table(r, "approach", "parameters|the guide|accelerators|model|hold its state|fastest layout|GB|MFU");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        for (int end = 0; end < 2 && row[i].gpus[end]; end++) {
            char gpus[12], copy[7][20], *argv[7];
            snprintf(gpus, sizeof gpus, "%d", row[i].gpus[end]);
            const char *const words[] = {"plan", "layout", row[i].model, "--gpus", gpus, "--gpu", row[i].gpu};
            for (int k = 0; k < 7; k++) snprintf(argv[k] = copy[k], sizeof copy[k], "%s", words[k]);
            plan_options_read(&o, 7, argv, true);
            LayoutSearch s = layout_search(&o.job, o.is_free);
            char on[40];
            snprintf(on, sizeof on, "%s %s", gpus, row[i].gpu);
            PlanJob whole = o.job, *best = &s.best[0].job;
            whole.layout = plan_layout_default();
            double least = ceil(18.0 * (double)plan_layout_params(&whole, 0) / o.job.machine.memory);
            report_row(r, "%s|%s|%s|%s|%.0f|%s|%.1f|%.1f%%", row[i].size, row[i].words, on, row[i].model, least,
                       s.n ? plan_layout_text(best).s : "none fits", s.n ? plan_layout_bytes(best).total / 1e9 : NAN,
                       s.n ? 100 * plan_time(best, true).mfu : NAN);
        }
    }
    report_end(r);
}

// ---- recipes

static const char *const recipes[] = {
    "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1.5b", "gpt3-125m", "gpt3-350m", "gpt3-760m", "gpt3-1.3b", "gpt3-2.7b",
    "gpt3-6.7b", "gpt3-13b", "gpt3-175b", "chinchilla-70b", "llama2-7b", "llama2-13b", "llama2-70b", "mistral-7b",
    "llama3-8b", "llama3-70b", "llama3-405b", "olmoe-1b-7b", "mixtral-8x7b", "qwen3-30b-a3b"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

void plan_preset(Config *cfg, const char *name)
{
    char copy[64], program[] = "plan", *argv[] = {program, copy};
    snprintf(copy, sizeof copy, "%s", name);
    config_defaults(cfg);
    config_parse(cfg, 2, argv);
    config_resolve(cfg);
}

double plan_tokens(const Config *cfg, long steps)
{
    Ramp ramp = schedule_ramp_make(cfg->batch.ramp_from, cfg->batch.tokens, cfg->batch.ramp_by, cfg->batch.ramp_tokens,
                                   cfg->model.context, false);
    long full = schedule_reaches(&ramp, ramp.to), grown = steps < full ? steps : full; // then in double: steps may be many
    double tokens = (double)schedule_ramp_at(&ramp, grown).before * (double)cfg->model.context;
    return tokens + ((double)steps - (double)grown) * (double)cfg->batch.tokens;
}

static void list_recipes(FILE *out)
{
    static Config cfg; // large
    fputs("| recipe | parameters | layers | channels | heads | context | batch, tokens | peak lr | tokens | FLOPs | "
          "tokens a parameter |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n", out);
    for (int i = 0; i < RECIPES; i++) {
        plan_preset(&cfg, recipes[i]);
        PlanJob job = {.shape = run_shape(&cfg), .layout = plan_layout_default()};
        double P = (double)plan_layout_params(&job, 0), tokens = plan_tokens(&cfg, cfg.run.steps);
        double flops = tokens * model_flops_per_token(&job.shape, (size_t)cfg.model.context);
        fprintf(out, "| %s | %.4g | %ld | %ld | %ld | %ld | %ld | %g | %.4g | %.3g | %.3g |\n", recipes[i], P,
                cfg.model.layers, cfg.model.channels, cfg.model.heads, cfg.model.context, cfg.batch.tokens,
                cfg.optim.lr, tokens, flops, tokens / P);
    }
}

static void show_recipe(const char *name, FILE *out)
{
    static Config cfg; // large
    if (!name) {
        list_recipes(out);
        return;
    }
    bool known = false;
    for (int i = 0; i < RECIPES; i++) known |= !strcmp(name, recipes[i]);
    if (!known) die("plan recipe: '%s' is none (plan recipe lists them)", name);
    plan_preset(&cfg, name);
    char path[] = "/tmp/plan.XXXXXX", buffer[4096];
    int fd = mkstemp(path);
    if (fd < 0) die("plan recipe: no file in /tmp");
    config_write(&cfg, path);
    FILE *file = fopen(path, "r");
    if (!file) die("plan recipe: %s cannot be read", path);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;)
        if (fwrite(buffer, 1, n, out) != n) die("plan recipe: cannot write");
    if (ferror(file) || fclose(file) || close(fd) || unlink(path)) die("plan recipe: %s cannot be read", path);
}

// ---- clusters

// The formulas of the last row's numbers. Simulation and formula differ because the failures are drawn at random.
static void explain_cluster(Report *r, const PlanOptions *o, const PlanCluster *c, const PlanClusterResult *played)
{
    double good = plan_time_goodput(c->interval, c->save, c->restart, c->mean), n = c->nodes;
    report_section(r, "the last row");
    report_value(r, "with stragglers", played->step, "s",
                 "%.4g s * the mean of 200 steps' slowest of %d nodes (1 + s sqrt(2 ln n) = %.4g, and slow ones)",
                 c->step, c->nodes, 1 + c->jitter * sqrt(2 * log(n)));
    report_value(r, "failure every", c->mean / 3600, "h", "%.4g h of one accelerator / %d", c->mean / 3600 * c->gpus,
                 c->gpus);
    report_value(r, "checkpoint every", c->interval, "s", "%s sqrt(2 * save %.4g * %.4g) = %.4g",
                 o->interval > 0 ? "--interval; Young's would be" : "Daly's: near", c->save, c->mean,
                 plan_time_young(c->save, c->mean));
    report_value(r, "goodput, by formula", 100 * good * c->step / played->step, "%",
                 "t / ((M + r) (e^((t + d) / M) - 1)) = %.4g, of steps that are %.4g of their ideal", good,
                 played->step / c->step);
    report_value(r, "goodput, played", 100 * played->goodput, "%",
                 "of %.0f days: %.4g waited, %.4g saved, %.4g done again, %.4g restarted", o->days,
                 played->waiting / 86400, played->saving / 86400, played->again / 86400, played->restarting / 86400);
}

// The same model and batch on 1, 8, 64, ... up to the given number of accelerators.
static void show_cluster(PlanOptions *o, FILE *out)
{
    int most = o->job.layout.gpus;
    double one = o->mean * most; // seconds between failures of one accelerator
    PlanCluster last = {0};
    PlanClusterResult last_played = {0};
    Report *r = report_begin(out, o->json, o->explain);
    report_table(r, "cluster", "accelerators|layout|step, s|MFU|with stragglers, s|failure every, h|"
                 "checkpoint every, s|failures|goodput, played|by formula|days|dollars");
    for (int gpus = 1; gpus <= most; gpus = gpus * 8 > most && gpus < most ? most : gpus * 8) {
        PlanJob job = o->job;
        job.layout.gpus = gpus;
        LayoutSearch s = layout_search(&job, o->is_free);
        if (!s.n) continue;
        PlanTime t = plan_time(&s.best[0].job, true);
        PlanCluster c = plan_cluster_default();
        int node = job.machine.node;
        c.step = t.step, c.gpus = gpus, c.nodes = (gpus + node - 1) / node, c.jitter = o->jitter;
        c.seed = (uint64_t)o->seed;
        c.mean = one / gpus, c.save = o->save, c.restart = o->restart, c.seconds = o->days * 86400;
        c.interval = o->interval > 0 ? o->interval : fmax(1, plan_time_daly(c.save, c.mean));
        PlanClusterResult played = plan_cluster(&c);
        last = c, last_played = played;
        double days = o->tokens / t.tokens_second / 86400 / played.goodput;
        report_row(r, "%.0f|%s|%.4g|%.1f%%|%.4g|%.4g|%.0f|%.0f|%.1f%%|%.1f%%|%.4g|%.4g", (double)gpus,
                   plan_layout_text(&s.best[0].job).s, t.step, 100 * t.mfu, played.step, c.mean / 3600, c.interval,
                   (double)played.failures, 100 * played.goodput,
                   100 * plan_time_goodput(c.interval, c.save, c.restart, c.mean) * t.step / played.step,
                   o->tokens > 0 ? days : NAN, o->tokens > 0 ? days * 24 * gpus * o->price : NAN);
    }
    if (o->explain && last.gpus) explain_cluster(r, o, &last, &last_played);
    report_section(r, "assumed");
    report_value(r, "days played", o->days, "", NULL);
    report_value(r, "jitter of a node", 100 * o->jitter, "% of a step", NULL);
    report_value(r, "seed", (double)o->seed, "", NULL);
    report_end(r);
}

// ---- dispatch

bool plan_show(int argc, char **argv, FILE *out)
{
    static PlanOptions o; // large
    const char *what = argc > 1 ? argv[1] : "";
    bool is_layout = !strcmp(what, "layout"), is_cluster = !strcmp(what, "cluster");
    if (!strcmp(what, "machines") || !strcmp(what, "published")) {
        if (argc > 2) die_usage("%s: plan %s takes no argument", argv[2], what);
        if (what[0] == 'm') machines_print(out);
        else published_print(out);
    } else if (!strcmp(what, "guides")) {
        if (argc > 3) die_usage("%s: plan guides takes one name", argv[3]);
        guides_print(argc > 2 ? argv[2] : NULL, out);
    } else if (!strcmp(what, "recipe")) {
        if (argc > 3) die_usage("%s: plan recipe takes one name", argv[3]);
        show_recipe(argc > 2 ? argv[2] : NULL, out);
    } else if (!strcmp(what, "traffic") || !strcmp(what, "time") || is_layout || is_cluster) {
        plan_options_read(&o, argc, argv, true);
        if (is_layout) show_layout(&o, out);
        else if (is_cluster) show_cluster(&o, out);
        else if (!strcmp(what, "time")) show_time(&o, out);
        else show_traffic(&o, out);
    } else if (!strcmp(what, "scaling") || !strcmp(what, "approach")) {
        plan_options_read(&o, argc, argv, false);
        if (what[0] == 's') show_scaling(&o, out);
        else show_approach(o.json, out);
    } else if (!strcmp(what, "prepare")) {
        plan_options_read(&o, argc, argv, false);
        plan_prepare_print(&o.prepare, o.json, o.explain, out);
    } else if (!strcmp(what, "for")) {
        plan_options_read(&o, argc, argv, false);
        plan_for_print(&o.model, out);
    } else return false;
    return true;
}
