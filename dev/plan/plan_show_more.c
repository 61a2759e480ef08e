// plan_show_more: prints scaling laws, recipes and clusters. See plan_show.h.
//
// The three rules for a budget stand side by side because guides mix them: 20 tokens a parameter, the fit of
// Chinchilla's third approach (as printed, with all digits, and fitted again), and Kaplan's.
//
// The invariant: each row has 6 N D = C, so rows of one budget can be compared.
//
// Rejected: a recommendation. Which rule to follow depends on what the model is for, and inference often decides.
#include "dev/plan/plan_show.h"

#include "base/check.h"
#include "dev/plan/plan_cluster.h"
#include "dev/plan/report.h"
#include "train/run.h"
#include "dev/plan/scaling_laws.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- scaling

static void show_point(Report *r, const char *rule, ScalingPoint p, const PlanOptions *o)
{
    double hours = p.C / (0.4 * o->job.machine.peak) / 3600;
    report_word(r, rule);
    report_cell(r, p.N, "%.4g");
    report_cell(r, p.D, "%.4g");
    report_cell(r, p.D / p.N, "%.3g");
    report_cell(r, p.loss, "%.4f");
    report_cell(r, p.C, "%.3g");
    report_cell(r, hours, "%.4g");
    report_cell(r, hours * o->price, "%.4g");
}

static void show_budget(Report *r, const PlanOptions *o, double C)
{
    static const char *const columns[] = {"rule", "parameters", "tokens", "tokens a parameter", "loss", "FLOPs",
                                          "accelerator hours at 40% MFU", "dollars", NULL};
    report_table(r, "budget", columns);
    show_point(r, "20 tokens a parameter", scaling_laws_twenty(C), o);
    for (int i = 0; i < SCALING_LAWS; i++)
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

void plan_show_scaling(const PlanOptions *o, FILE *out)
{
    const ScalingLaw *law = scaling_laws_law(SCALING_LAWS_BESIROGLU);
    double C = o->budget;
    if (!(C > 0) && o->params > 0) C = 6 * o->params * (o->tokens > 0 ? o->tokens : 20 * o->params);
    if (!(C > 0)) die("plan scaling: no budget (write --flops 5.76e23, or --params 70e9 and --tokens 1.4e12)");
    Report *r = report_begin(out, o->json, o->explain);
    show_budget(r, o, C);
    show_law(r, o, law, C);
    if (o->params > 0) {
        double D = C / (6 * o->params), loss = scaling_laws_loss(law, o->params, D);
        ScalingPoint best = scaling_laws_optimum(law, C);
        report_section(r, "this model");
        report_value(r, "parameters", o->params, "", NULL);
        report_value(r, "tokens", D, "", "C / (6 N) = %.3g / (6 * %.4g)", C, o->params);
        report_value(r, "tokens a parameter", D / o->params, "", NULL);
        report_value(r, "loss", loss, "nats a token", "%.4g above the optimum's", loss - best.loss);
        report_value(r, "loss by Kaplan", scaling_laws_kaplan_loss(o->params, D), "nats a token, another corpus", NULL);
    }
    report_end(r);
}

// ---- recipes

static const char *const recipes[] = {
    "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1.5b", "gpt3-125m", "gpt3-350m", "gpt3-760m", "gpt3-1.3b", "gpt3-2.7b",
    "gpt3-6.7b", "gpt3-13b", "gpt3-175b", "llama2-7b", "llama2-13b", "llama2-70b", "mistral-7b", "llama3-8b",
    "llama3-70b", "llama3-405b"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

static void read_recipe(Config *cfg, const char *name)
{
    char copy[64], program[] = "plan", *argv[] = {program, copy};
    snprintf(copy, sizeof copy, "%s", name);
    config_defaults(cfg);
    config_parse(cfg, 2, argv);
    config_resolve(cfg);
}

static void list_recipes(FILE *out)
{
    static Config cfg; // large
    fputs("| recipe | parameters | layers | channels | heads | context | batch, tokens | peak lr | tokens | FLOPs | "
          "tokens a parameter |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n", out);
    for (int i = 0; i < RECIPES; i++) {
        read_recipe(&cfg, recipes[i]);
        PlanJob job = {.shape = run_shape(&cfg), .layout = plan_layout_default()};
        double P = (double)plan_layout_params(&job, 0), tokens = (double)cfg.run.steps * (double)cfg.batch.tokens;
        double flops = tokens * model_flops_per_token(&job.shape, (size_t)cfg.model.context);
        fprintf(out, "| %s | %.4g | %ld | %ld | %ld | %ld | %ld | %g | %.4g | %.3g | %.3g |\n", recipes[i], P,
                cfg.model.layers, cfg.model.channels, cfg.model.heads, cfg.model.context, cfg.batch.tokens,
                cfg.optim.lr, tokens, flops, tokens / P);
    }
}

void plan_show_recipe(const char *name, FILE *out)
{
    static Config cfg; // large
    if (!name) {
        list_recipes(out);
        return;
    }
    bool known = false;
    for (int i = 0; i < RECIPES; i++) known |= !strcmp(name, recipes[i]);
    if (!known) die("plan recipe: '%s' is none (plan recipe lists them)", name);
    read_recipe(&cfg, name);
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

// How the numbers of the last row came to be; played and by formula differ by the luck of the failures.
static void explain_cluster(Report *r, const PlanOptions *o, const PlanCluster *c, const PlanClusterResult *played)
{
    double good = plan_time_goodput(c->interval, c->save, c->restart, c->mean), n = c->nodes;
    report_section(r, "the last row");
    report_value(r, "with stragglers", played->step, "s",
                 "%.4g s * the mean of 200 steps' slowest of %d nodes (1 + s sqrt(2 ln n) = %.4g, and slow ones)",
                 c->step, c->nodes, 1 + c->jitter * sqrt(2 * log(n)));
    report_value(r, "failure every", c->mean / 3600, "h", "%.4g h of one accelerator / %d", c->mean / 3600 * c->gpus,
                 c->gpus);
    report_value(r, "checkpoint every", c->interval, "s", "Daly's: near sqrt(2 * save %.4g * %.4g) = %.4g", c->save,
                 c->mean, plan_time_young(c->save, c->mean));
    report_value(r, "goodput, by formula", 100 * good * c->step / played->step, "%",
                 "t / ((M + r) (e^((t + d) / M) - 1)) = %.4g, of steps that are %.4g of their ideal", good,
                 played->step / c->step);
    report_value(r, "goodput, played", 100 * played->goodput, "%",
                 "of %.0f days: %.4g waited, %.4g saved, %.4g done again, %.4g restarted", o->days,
                 played->waiting / 86400, played->saving / 86400, played->again / 86400, played->restarting / 86400);
}

// The same model on 1, 8, 64, ... up to the given number of accelerators, with a batch that is kept.
void plan_show_cluster(PlanOptions *o, FILE *out)
{
    static const char *const columns[] = {"accelerators", "layout", "step, s", "MFU", "with stragglers, s",
                                          "failure every, h", "checkpoint every, s", "failures", "goodput, played",
                                          "by formula", "days", "dollars", NULL};
    int most = o->job.layout.gpus;
    double one = o->mean * most; // seconds between failures of one accelerator
    PlanCluster last = {0};
    PlanClusterResult last_played = {0};
    Report *r = report_begin(out, o->json, o->explain);
    report_table(r, "cluster", columns);
    for (int gpus = 1; gpus <= most; gpus = gpus * 8 > most && gpus < most ? most : gpus * 8) {
        PlanJob job = o->job;
        job.layout.gpus = gpus;
        LayoutSearch s = layout_search(&job, o->is_free);
        if (!s.n) continue;
        char text[160];
        PlanTime t = plan_time(&s.best[0].job, true);
        PlanCluster c = plan_cluster_default();
        int node = job.machine.node;
        c.step = t.step, c.gpus = gpus, c.nodes = (gpus + node - 1) / node, c.jitter = o->jitter, c.seed = o->seed;
        c.mean = one / gpus, c.save = o->save, c.restart = o->restart, c.seconds = o->days * 86400;
        c.interval = fmax(1, plan_time_daly(c.save, c.mean));
        PlanClusterResult played = plan_cluster(&c);
        last = c, last_played = played;
        double days = o->tokens / t.tokens_second / 86400 / played.goodput;
        plan_layout_text(&s.best[0].job, text, sizeof text);
        report_cell(r, gpus, "%.0f");
        report_word(r, text);
        report_cell(r, t.step, "%.4g");
        report_cell(r, 100 * t.mfu, "%.1f%%");
        report_cell(r, played.step, "%.4g");
        report_cell(r, c.mean / 3600, "%.4g");
        report_cell(r, c.interval, "%.0f");
        report_cell(r, (double)played.failures, "%.0f");
        report_cell(r, 100 * played.goodput, "%.1f%%");
        report_cell(r, 100 * plan_time_goodput(c.interval, c.save, c.restart, c.mean) * t.step / played.step, "%.1f%%");
        report_cell(r, o->tokens > 0 ? days : NAN, "%.4g");
        report_cell(r, o->tokens > 0 ? days * 24 * gpus * o->price : NAN, "%.4g");
    }
    if (o->explain && last.gpus) explain_cluster(r, o, &last, &last_played);
    report_section(r, "assumed");
    report_value(r, "days played", o->days, "", NULL);
    report_value(r, "jitter of a node", 100 * o->jitter, "% of a step", NULL);
    report_value(r, "seed", (double)o->seed, "", NULL);
    report_end(r);
}
