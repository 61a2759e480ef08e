// show_scaling: fits a scaling law to a ladder of trained runs, and says what it makes of a larger one.
//
// The intervals hold 90% of the fits to bootstrap samples: runs drawn with replacement.
#include "dev/show/show.h"
#include "base/check.h"
#include "dev/plan/scaling.h"
#include "tools/svg.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 256, NAME = 48, CURVE = 80, BUDGETS = 6 };

typedef struct {
    const char *path, *held_out, *svg;
    double floor, N, D, measured, delta, below;
    size_t resamples;
    uint64_t seed;
    ScalingPoint run[MAX_RUNS];
    char name[MAX_RUNS][NAME];
    size_t n, n_fitted; // those that are not fitted stand last
    ScalingLaw law;
} Scaling;

static const char help[] =
    "usage: show scaling LADDER [--floor L] [--held-out WORD] [--predict N D [--measured L]] [--svg FILE]\n"
    "               [--below X] [--delta X] [--resamples N] [--seed S]\n"
    "  LADDER           a line a run: NAME PARAMETERS TOKENS LOSS (scripts/scaling.sh writes it)\n"
    "  --floor L        the entropy of the validation text, to compare with the fitted E\n"
    "  --held-out WORD  runs whose names begin with WORD are not fitted\n"
    "  --below X        nor are runs above X times the least loss\n"
    "  --predict N D    the loss of N parameters after D tokens; --measured L: what it was\n"
    "  --svg FILE       isoFLOP curves: the law's loss over N at 6 N D = C, for the C of the ladder, whose runs\n"
    "                   are the dots (hollow: not fitted)\n"
    "  --delta X        of Huber's loss, --resamples N and --seed S of the intervals\n"
    "  exit             0, 1 for a ladder that cannot be fitted, 2 usage\n";

static double number(const char *option, const char *text)
{
    char *end = NULL;
    double x = text ? strtod(text, &end) : 0;
    if (!text || end == text || *end || !(x > 0 && x < 1e30)) die_usage("scaling: %s: a positive number", option);
    return x;
}

static void read_ladder(Scaling *s)
{
    FILE *in = fopen(s->path, "r");
    char line[256], rest[2];
    if (!in) die("%s: %s (scripts/scaling.sh writes it)", s->path, strerror(errno));
    for (int at = 1; fgets(line, sizeof line, in); at++) {
        ScalingPoint run = {0};
        char name[NAME];
        if (s->n == MAX_RUNS) die("%s:%d: more than %d runs", s->path, at, MAX_RUNS);
        if (sscanf(line, "%47s %lf %lf %lf %1s", name, &run.N, &run.D, &run.loss, rest) != 4)
            die("%s:%d: is not 'NAME PARAMETERS TOKENS LOSS'", s->path, at);
        if (s->held_out && !strncmp(name, s->held_out, strlen(s->held_out))) continue;
        run.C = 6 * run.N * run.D;
        s->run[s->n] = run;
        memcpy(s->name[s->n++], name, NAME);
    }
    if (ferror(in) || fclose(in)) die("%s: cannot be read", s->path);
}

// Puts the runs that are not fitted after the others, and keeps the order otherwise.
static void split(Scaling *s)
{
    static ScalingPoint run[MAX_RUNS];
    static char name[MAX_RUNS][NAME];
    bool fitted[MAX_RUNS];
    size_t at = 0;
    s->n_fitted = scaling_fit_below(s->run, s->n, s->below > 0 ? s->below : INFINITY, fitted);
    for (int rest = 0; rest < 2; rest++) {
        for (size_t i = 0; i < s->n; i++) {
            if (fitted[i] == (rest == 1)) continue;
            run[at] = s->run[i];
            memcpy(name[at++], s->name[i], NAME);
        }
    }
    memcpy(s->run, run, s->n * sizeof *run);
    memcpy(s->name, name, s->n * sizeof *name);
}

// ---- in words

static void print_runs(const Scaling *s)
{
    double sum = 0;
    printf("%-14s %12s %12s %10s %9s %9s %8s\n", "run", "parameters", "tokens", "FLOPs", "loss", "law", "error");
    for (size_t i = 0; i < s->n; i++) {
        const ScalingPoint *r = &s->run[i];
        double law = scaling_laws_loss(&s->law, r->N, r->D), error = 100 * (law / r->loss - 1);
        printf("%-14s %12.0f %12.0f %10.2e %9.4f %9.4f %7.2f%%%s\n", s->name[i], r->N, r->D, r->C, r->loss, law, error,
               i < s->n_fitted ? "" : "  not fitted");
        if (i < s->n_fitted) sum += fabs(error) / (double)s->n_fitted;
    }
    printf("mean error of the %zu fitted runs %.2f%%", s->n_fitted, sum);
    if (s->below > 0) printf("; %zu are above %g times the least loss", s->n - s->n_fitted, s->below);
    printf("\n\n");
}

static void interval(double *value, size_t n, double *low, double *high)
{
    *low = scaling_fit_quantile(value, n, 0.05), *high = scaling_fit_quantile(value, n, 0.95);
}

static void print_law(const Scaling *s, const ScalingLaw *drawn, double *value)
{
    const char *const name[] = {"E", "A", "alpha", "B", "beta"};
    const double fitted[] = {s->law.E, s->law.A, s->law.alpha, s->law.B, s->law.beta};
    double low, high;
    printf("L(N, D) = E + A / N^alpha + B / D^beta, in nats a token; 90%% of %zu resampled fits\n", s->resamples);
    for (int k = 0; k < 5; k++) {
        for (size_t i = 0; i < s->resamples; i++) {
            const double of[] = {drawn[i].E, drawn[i].A, drawn[i].alpha, drawn[i].B, drawn[i].beta};
            value[i] = of[k];
        }
        interval(value, s->resamples, &low, &high);
        printf("  %-6s %12.5g   %.5g to %.5g\n", name[k], fitted[k], low, high);
    }
    double a = s->law.beta / (s->law.alpha + s->law.beta);
    printf("  a budget of C: N ~ C^%.3f, D ~ C^%.3f\n", a, 1 - a);
    if (s->floor > 0) {
        double best = INFINITY; // of the ladder: the naive guess of E
        for (size_t i = 0; i < s->n_fitted; i++) best = fmin(best, s->run[i].loss);
        printf("floor      %.4f, exact; fitted E is %+.1f%% from it, the best run %+.1f%%\n", s->floor,
               100 * (s->law.E / s->floor - 1), 100 * (best / s->floor - 1));
    }
}

static void print_prediction(const Scaling *s, const ScalingLaw *drawn, double *value)
{
    double low, high, loss = scaling_laws_loss(&s->law, s->N, s->D);
    for (size_t i = 0; i < s->resamples; i++) value[i] = scaling_laws_loss(&drawn[i], s->N, s->D);
    interval(value, s->resamples, &low, &high);
    printf("predicted  %.4f for %.0f parameters and %.0f tokens (%.4f to %.4f)\n", loss, s->N, s->D, low, high);
    if (s->measured > 0) {
        printf("measured   %.4f: the prediction is %+.2f%% from it\n", s->measured, 100 * (loss / s->measured - 1));
        if (s->floor > 0)
            printf("           above the floor: predicted %.4f, measured %.4f\n", loss - s->floor,
                   s->measured - s->floor);
    }
}

// The other forms, each with its constants under Kaplan's names, on the runs that it fits: L(N) takes the best run of
// each N, L(D) of each D.
static void print_forms(const Scaling *s)
{
    static const char *const name[SCALING_FORMS] = {
        [SCALING_FORM_CHINCHILLA] = "chinchilla", [SCALING_FORM_KAPLAN] = "((Nc/N)^(aN/aD) + Dc/D)^aD",
        [SCALING_FORM_SIZE] = "L(N) = (Nc/N)^aN", [SCALING_FORM_DATA] = "L(D) = (Dc/D)^aD"};
    printf("other forms (Kaplan et al., arXiv 2001.08361, equations 1.1, 1.2, 1.5)\n"
           "%-28s %5s %9s %10s %9s %10s %11s%s\n", "", "runs", "aN", "Nc", "aD", "Dc", "mean error",
           s->N > 0 ? "  predicted" : "");
    for (int form = SCALING_FORM_KAPLAN; form < SCALING_FORMS; form++) {
        ScalingPoint best[MAX_RUNS];
        bool keep[MAX_RUNS], both = form == SCALING_FORM_KAPLAN;
        size_t n = 0;
        if (!both) scaling_fit_best(s->run, s->n_fitted, (ScalingForm)form, keep);
        for (size_t i = 0; i < s->n_fitted; i++)
            if (both || keep[i]) best[n++] = s->run[i];
        ScalingLaw law = scaling_fit(best, n, (ScalingForm)form, s->delta, NULL);
        double error = 0, power = both ? law.power : 1;
        for (size_t i = 0; i < n; i++)
            error += 100 * fabs(scaling_laws_loss(&law, best[i].N, best[i].D) / best[i].loss - 1) / (double)n;
        printf("%-28s %5zu", name[form], n);
        if (form == SCALING_FORM_DATA) printf(" %9s %10s", "", "");
        else printf(" %9.4g %10.3g", law.alpha * power, pow(law.A, 1 / law.alpha));
        if (form == SCALING_FORM_SIZE) printf(" %9s %10s", "", "");
        else printf(" %9.4g %10.3g", law.beta * power, pow(law.B, 1 / law.beta));
        printf(" %10.2f%%", error);
        if (s->N > 0) printf(" %10.4f", scaling_laws_loss(&law, s->N, s->D));
        printf("\n");
    }
}

// ---- as a picture

// Budgets, evenly spaced in log C over the ladder's range.
typedef struct {
    double C[BUDGETS], ratio, N0, N1, least, most; // smallest and largest N and loss
} Budgets;

static Budgets budgets_of(const Scaling *s)
{
    double low = INFINITY, high = 0;
    Budgets b = {.N0 = INFINITY, .least = INFINITY};
    for (size_t i = 0; i < s->n; i++) {
        low = fmin(low, s->run[i].C), high = fmax(high, s->run[i].C);
        b.least = fmin(b.least, s->run[i].loss), b.most = fmax(b.most, s->run[i].loss);
        b.N0 = fmin(b.N0, s->run[i].N), b.N1 = fmax(b.N1, s->run[i].N);
    }
    b.ratio = pow(high / low, 1.0 / BUDGETS);
    for (int k = 0; k < BUDGETS; k++) b.C[k] = low * pow(b.ratio, k + 0.5);
    return b;
}

// A budget's losses over N, with a cross at the optimum where the panel shows it.
static SvgLabel draw_curve(FILE *f, const SvgPanel *p, const Scaling *s, double C, double N0, const char *color)
{
    SvgSeries series = svg_series(CURVE);
    ScalingPoint best = scaling_laws_optimum(&s->law, C);
    double at = log10(best.N / N0);
    for (int i = 0; i < CURVE; i++) {
        double x = p->x1 * i / (CURVE - 1), N = N0 * pow(10, x);
        series.x[i] = x, series.y[i] = scaling_laws_loss(&s->law, N, C / (6 * N));
    }
    series.n = CURVE;
    svg_curve(f, p, "panel", &series, color, 1.6, 0.9);
    if (at >= 0 && at <= p->x1 && best.loss < p->y1)
        svg_text(f, svg_px(p, at), svg_py(p, best.loss) + 4, "middle", 13, color, true, "+");
    SvgLabel label = {.value = svg_last(&series), .color = color};
    snprintf(label.head, sizeof label.head, "%.1e FLOPs", C);
    snprintf(label.detail, sizeof label.detail, "best N %.2g", best.N);
    svg_series_free(&series);
    return label;
}

// x: log10 N from the smallest on, to 0.3 above the largest.
static void draw(FILE *f, void *arg)
{
    static const char *const color[BUDGETS] = {SVG_BLUE, SVG_GREEN, SVG_ORANGE, SVG_RED, SVG_GREY, SVG_INK};
    const Scaling *s = arg;
    Budgets b = budgets_of(s);
    SvgPanel p = {.x = 70, .y = 50, .w = 560, .h = 360, .x1 = log10(b.N1 / b.N0) + 0.3};
    double low = s->floor > 0 ? fmin(b.least, s->floor) : b.least, room = 0.1 * (b.most - low);
    p.y0 = low - room, p.y1 = b.most + room;
    char text[96];
    SvgLabel label[BUDGETS];
    snprintf(text, sizeof text, "log10 (parameters / %.3g)", b.N0);
    svg_frame(f, &p, 5, 6, text, "validation loss, nats a token");
    svg_clip(f, &p, "panel");
    for (int k = 0; k < BUDGETS; k++) label[k] = draw_curve(f, &p, s, b.C[k], b.N0, color[k]);
    for (size_t i = 0; i < s->n; i++) { // in the colour of the nearest budget
        double k = round(log(s->run[i].C / b.C[0]) / log(b.ratio));
        const char *c = color[(int)fmax(0, fmin(BUDGETS - 1, k))];
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" fill=\"%s\" stroke=\"%s\"/>\n",
                svg_px(&p, log10(s->run[i].N / b.N0)), svg_py(&p, s->run[i].loss), i < s->n_fitted ? c : "none", c);
    }
    if (s->floor > 0) {
        svg_line(f, p.x, svg_py(&p, s->floor), p.x + p.w, svg_py(&p, s->floor), SVG_INK, 1, "5 4");
        svg_text(f, p.x + 6, svg_py(&p, s->floor) - 5, "start", 11, SVG_INK, false, "entropy of the text");
    }
    svg_labels(f, &p, label, BUDGETS);
    svg_text(f, p.x, 18, "start", 15, SVG_INK, true, "Loss over parameters at equal FLOPs: the law and its runs");
}

int show_scaling(int argc, char **argv)
{
    check_help(argc, argv, help);
    static Scaling s = {.delta = SCALING_FIT_DELTA, .resamples = 200, .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (option[0] != '-' && !s.path) s.path = option;
        else if (i + 1 == argc) die_usage("scaling: %s: no such option, or its value is missing (try --help)", option);
        else if (!strcmp(option, "--held-out")) s.held_out = argv[++i];
        else if (!strcmp(option, "--svg")) s.svg = argv[++i];
        else if (!strcmp(option, "--floor")) s.floor = number(option, argv[++i]);
        else if (!strcmp(option, "--measured")) s.measured = number(option, argv[++i]);
        else if (!strcmp(option, "--below")) s.below = number(option, argv[++i]);
        else if (!strcmp(option, "--delta")) s.delta = number(option, argv[++i]);
        else if (!strcmp(option, "--resamples")) s.resamples = (size_t)fmin(1e5, number(option, argv[++i]));
        else if (!strcmp(option, "--seed")) s.seed = (uint64_t)number(option, argv[++i]);
        else if (!strcmp(option, "--predict")) {
            s.N = number(option, argv[++i]);
            s.D = number(option, i + 1 < argc ? argv[++i] : NULL);
        } else die_usage("scaling: %s: no such option (try --help)", option);
    }
    if (!s.path) die_usage("scaling: name a LADDER (try --help)");
    if (s.measured > 0 && !s.N) die_usage("scaling: --measured: of what? (give --predict N D)");
    read_ladder(&s);
    split(&s);
    s.law = scaling_fit(s.run, s.n_fitted, SCALING_FORM_CHINCHILLA, s.delta, NULL);
    ScalingLaw *drawn = calloc(s.resamples + 1, sizeof *drawn);
    double *value = calloc(s.resamples + 1, sizeof *value);
    if (!drawn || !value) die("scaling: no memory for %zu fits", s.resamples);
    scaling_fit_bootstrap(drawn, s.resamples, s.run, s.n_fitted, s.delta, s.seed);
    print_runs(&s);
    print_law(&s, drawn, value);
    if (s.N > 0) print_prediction(&s, drawn, value);
    print_forms(&s);
    if (s.svg) svg_write(s.svg, 800, 460, "isoFLOP curves", draw, &s);
    free(drawn);
    free(value);
    if (fflush(stdout)) die("scaling: cannot write the tables");
    return 0;
}
