// plan_show: prints traffic, time and layouts. See plan_show.h. (plan_show_more.c has scaling, recipes and clusters.)
//
// Each number is handed to the report with the formula that made it, so that --explain can show every step from the
// machine's table to the cost.
//
// The invariant: nothing is computed here that another plan needs too; only sums, ratios and unit changes for the
// reader.
#include "dev/plan/plan_show.h"

#include "base/check.h"
#include "base/config.h"
#include "dev/plan/plan_cluster.h"
#include "dev/plan/published.h"
#include "dev/plan/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void show_job(Report *r, const PlanJob *job)
{
    char text[160];
    plan_layout_text(job, text, sizeof text);
    report_section(r, "layout");
    report_text(r, "cut", "%s", text);
    report_text(r, "on", "%d %s, %d a node: %s inside, %s between", job->layout.gpus, job->machine.name,
                job->machine.node,
                job->machine.inside.name, job->machine.between.name);
    report_value(r, "micro-batches", (double)plan_layout_micros(job), "of a step, on each replica",
                 "batch / (dp micro) = %ld / (%d * %ld)", job->batch, job->layout.dp, job->layout.micro);
    PlanBytes b = plan_layout_bytes(job);
    report_value(r, "memory", b.total / 1e9, "GB on the fullest rank",
                 "weights %.3g + gradients %.3g + optimizer %.3g + activations %.3g + scratch %.3g + "
                 "communication %.3g GB "
                 "(stage %d)", b.parameters / 1e9, b.gradients / 1e9, b.optimizer / 1e9, b.activations / 1e9,
                 b.scratch / 1e9, b.communication / 1e9, b.stage);
}

// ---- traffic

void plan_show_traffic(const PlanOptions *o, FILE *out)
{
    static const char *const columns[] = {"group", "kind", "ranks", "on a node", "link", "calls a rank", "bytes a call",
                                          "bytes, all ranks", "ms a step", "way", "formula, all ranks", NULL};
    const PlanJob *job = &o->job;
    plan_layout_must(job, false);
    PlanTraffic t = plan_traffic(job);
    PlanTime time = plan_time(job, true);
    Report *r = report_begin(out, o->json, o->explain);
    show_job(r, job);
    report_table(r, "flows", columns);
    for (int i = 0; i < t.n; i++) {
        const PlanFlow *f = &t.flow[i];
        bool near = f->where.inside == f->where.size;
        report_word(r, f->group);
        report_word(r, comm_kind_name(f->kind));
        report_cell(r, f->where.size, "%.0f");
        report_cell(r, f->where.inside, "%.0f");
        report_word(r, near ? f->where.in.name : f->where.out.name);
        report_cell(r, f->calls, "%.6g");
        report_cell(r, f->payload, "%.0f");
        report_cell(r, (double)f->all, "%.0f");
        report_cell(r, 1e3 * f->seconds, "%.4g");
        report_word(r, f->algorithm);
        report_word(r, f->formula);
    }
    report_section(r, "what hides");
    report_value(r, "all bytes", (double)t.all, "sent by all ranks in a step", NULL);
    report_value(r, "tp, exposed", 1e3 * (time.tensor[0] + time.tensor[1]), "ms a block and micro-batch", NULL);
    report_value(r, "cp, exposed", 1e3 * (time.context[0] + time.context[1]), "ms a block and micro-batch", NULL);
    report_value(r, "window of gradients", 1e3 * time.window, "ms: the backward of one micro-batch", NULL);
    report_value(r, "dp, hidden", 1e3 * time.hidden, "ms a step", NULL);
    report_value(r, "dp, exposed", 1e3 * (time.grads + time.weights), "ms a step", "gradients %.4g + weights %.4g ms",
                 1e3 * time.grads, 1e3 * time.weights);
    if (o->explain)
        report_text(r, "letters",
                    "R replicas = dp cp, m micro-batches, L layers, x %zu bytes, N tokens of a micro-batch, C "
                    "channels, s elements whose gradients a tp group adds, B sequences, T tokens, G D a rank's keys",
                    job->x_bytes);
    report_end(r);
}

// ---- time

static void show_roofline(Report *r, const char *key, const Roofline *roof, const Machine *m)
{
    static const char *const columns[] = {"operation", "GFLOP forward", "MB forward", "ms forward", "ms backward",
                                          "ms weights", "of the peak", NULL};
    report_table(r, key, columns);
    for (int i = 0; i < roof->n; i++) {
        const RooflineOp *op = &roof->op[i];
        double flops = op->flops[0] + op->flops[1] + op->flops[2], s = op->seconds[0] + op->seconds[1] + op->seconds[2];
        report_word(r, op->name);
        report_cell(r, op->flops[ROOFLINE_F] / 1e9, "%.4g");
        report_cell(r, op->bytes[ROOFLINE_F] / 1e6, "%.4g");
        for (int way = 0; way < ROOFLINE_WAYS; way++) report_cell(r, 1e3 * op->seconds[way], "%.4g");
        report_cell(r, 100 * flops / s / m->peak, "%.1f%%");
    }
}

static void show_step(Report *r, const PlanJob *job, const PlanTime *t)
{
    double m = (double)plan_layout_micros(job), stage = t->chunk[0] + t->chunk[1] + t->chunk[2];
    report_section(r, "step");
    report_value(r, "pipeline", t->pipeline, "s",
                 "m %.0f micro-batches of %.4g s (%d chunks of %.4g) and ends %.4g s, bubble "
                 "%.1f%%", m, stage * job->layout.chunks, job->layout.chunks, stage, t->ends, 100 * t->bubble);
    report_value(r, "bubble", 100 * t->bubble, "% of the pipeline's time", NULL);
    report_value(r, "gradients, exposed", t->grads, "s", "beyond a window of %.4g s", t->window);
    report_value(r, "weights, exposed", t->weights, "s", NULL);
    report_value(r, "optimizer", t->optimizer, "s", "30 bytes a parameter of the rank's shard (28 + x)");
    report_value(r, "contention", t->contention, "s", "%.3g * %.4g s of hidden communication",
                 roofline_constants().contention, t->hidden);
    report_value(r, "step", t->step, "s", "%.4g + %.4g + %.4g + %.4g + %.4g", t->pipeline, t->grads, t->weights,
                 t->contention, t->optimizer);
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
    double goodput = plan_time_goodput(daly, o->save, o->restart, o->mean), hours = seconds / 3600 / goodput;
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
                 "t / ((M + r) (e^((t + d) / M) - 1)) = %.4g / ((%.4g + %.4g) (e^((%.4g + %.4g) / %.4g) - 1))", daly,
                 o->mean, o->restart, daly, o->save, o->mean);
    report_value(r, "days", hours / 24, "with failures", NULL);
    report_value(r, "accelerator hours", hours * gpus, "", NULL);
    report_value(r, "cost", hours * gpus * o->price, "dollars", "%.4g hours * %.0f * %.4g dollars", hours, gpus,
                 o->price);
}

void plan_show_time(const PlanOptions *o, FILE *out)
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

static void write_key(Config *cfg, const char *key, const char *value)
{
    if (config_table_find(key) >= 0) config_set(cfg, key, value, "plan layout");
}

// The configuration with the layout's keys. Those of a size 1 are left out; those that this program's configuration
// does not have stand in a comment.
static void write_config(const PlanOptions *o, const PlanJob *job)
{
    static const char *const mode[] = {"none", "selective", "sqrt", "every", "full"};
    static Config cfg; // large
    const PlanLayout *l = &job->layout;
    struct { const char *key; long value; bool needed; } size[] = {
        {"parallel.tp", l->tp, l->tp > 1}, {"parallel.cp", l->cp, l->cp > 1}, {"parallel.pp", l->pp, l->pp > 1},
        {"parallel.chunks", l->chunks, l->chunks > 1}, {"parallel.zero", l->zero, l->zero > 0},
        {"batch.micro", l->micro, true}, {"batch.tokens", job->batch * (long)job->T, true}};
    cfg = o->cfg;
    char number[24], absent[600] = "";
    for (int i = 0; i < (int)(sizeof size / sizeof *size); i++) {
        snprintf(number, sizeof number, "%ld", size[i].value);
        size_t at = strlen(absent);
        if (size[i].needed && config_table_find(size[i].key) < 0)
            snprintf(absent + at, sizeof absent - at, "# %s = %s\n", size[i].key, number);
        if (size[i].needed) write_key(&cfg, size[i].key, number);
    }
    if (l->sp) write_key(&cfg, "parallel.sp", "true");
    if (l->pp > 1) write_key(&cfg, "parallel.schedule", pipeline_table_name(l->schedule));
    write_key(&cfg, "memory.recompute", mode[l->recompute]);
    write_key(&cfg, "numerics.dtype", job->x_bytes == 2 ? "bf16" : "fp32");
    config_set_derived(&cfg, "parallel.ranks", l->gpus);
    if (!*absent) config_resolve(&cfg); // what train would refuse is not written
    config_write(&cfg, o->write);
    if (!*absent) return;
    FILE *file = fopen(o->write, "a");
    if (!file) die("--write: %s cannot be written", o->write);
    fprintf(file, "\n# Not keys of this version:\n%s", absent);
    if (fclose(file)) die("--write: %s cannot be written", o->write);
}

static void show_refused(Report *r, const LayoutSearch *s)
{
    static const char *const columns[] = {"layouts", "why", NULL};
    report_table(r, "tried", columns);
    for (int i = 0; i < PLAN_LAYOUT_REASONS; i++) {
        if (!s->refused[i]) continue;
        report_cell(r, (double)s->refused[i], "%.0f");
        report_word(r, plan_layout_reason((PlanLayoutReason)i));
    }
}

static void show_best(Report *r, const LayoutSearch *s)
{
    static const char *const columns[] = {"step, s", "MFU", "GB", "layout", NULL};
    report_table(r, "best", columns);
    for (int i = 0; i < s->n; i++) {
        char text[160];
        PlanTime t = plan_time(&s->best[i].job, true);
        plan_layout_text(&s->best[i].job, text, sizeof text);
        report_cell(r, s->best[i].seconds, "%.4g");
        report_cell(r, 100 * t.mfu, "%.1f%%");
        report_cell(r, plan_layout_bytes(&s->best[i].job).total / 1e9, "%.1f");
        report_word(r, text);
    }
}

void plan_show_layout(PlanOptions *o, FILE *out)
{
    LayoutSearch s = layout_search(&o->job, o->is_free);
    if (!s.n) {
        int most = PLAN_LAYOUT_RANKS;
        for (int i = 1; i < PLAN_LAYOUT_REASONS; i++) most = s.refused[i] > s.refused[most] ? i : most;
        // the others cannot be helped by a better accelerator
        if (s.refused[PLAN_LAYOUT_MEMORY]) most = PLAN_LAYOUT_MEMORY;
        die("plan layout: none of %ld layouts on %d %s: %s, in %ld of them (try more accelerators, or others)", s.tried,
            o->job.layout.gpus, o->job.machine.name, plan_layout_reason((PlanLayoutReason)most), s.refused[most]);
    }
    char *paragraph = NULL;
    size_t n;
    FILE *text = open_memstream(&paragraph, &n);
    if (!text) die("plan: no memory");
    layout_search_explain(&s, text);
    if (fclose(text)) die("plan: no memory");
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

// ---- which one

bool plan_show(int argc, char **argv, FILE *out)
{
    static PlanOptions o; // large
    const char *what = argc > 1 ? argv[1] : "";
    bool is_layout = !strcmp(what, "layout"), is_cluster = !strcmp(what, "cluster");
    if (!strcmp(what, "machines") || !strcmp(what, "published")) {
        if (argc > 2) die_usage("%s: plan %s takes no argument", argv[2], what);
        if (what[0] == 'm') machines_print(out);
        else published_print(out);
    } else if (!strcmp(what, "recipe")) {
        if (argc > 3) die_usage("%s: plan recipe takes one name", argv[3]);
        plan_show_recipe(argc > 2 ? argv[2] : NULL, out);
    } else if (!strcmp(what, "traffic") || !strcmp(what, "time") || is_layout || is_cluster) {
        plan_options_read(&o, argc, argv, true);
        if (is_layout) plan_show_layout(&o, out);
        else if (is_cluster) plan_show_cluster(&o, out);
        else if (!strcmp(what, "time")) plan_show_time(&o, out);
        else plan_show_traffic(&o, out);
    } else if (!strcmp(what, "scaling")) {
        plan_options_read(&o, argc, argv, false);
        plan_show_scaling(&o, out);
    } else return false;
    return true;
}
