// guides: judges and prints the rows of guides_table.c. See guides.h.
//
// The invariant: no row says what its verdict is. A formula that changes its value changes the verdict with it.
#include "dev/plan/guides.h"

#include "base/check.h"
#include "base/words.h"
#include "base/config.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *command, *chapter;
} topic[GUIDES_TOPICS] = {
    [GUIDES_LAW] = {"build/plan scaling --flops 5.88e23 --explain", "scaling_laws"},
    [GUIDES_FLOPS] = {"build/plan flops llama2-7b --explain", "plan"},
    [GUIDES_COST] = {"build/plan time llama2-7b --gpus 256 --zero 1 --tokens 2e12 --explain", "plan_time"},
    [GUIDES_MACHINE] = {"build/plan machines", "plan_time"},
    [GUIDES_STATE] = {"build/plan memory llama2-7b", "plan"},
    [GUIDES_ZERO] = {"build/show zero holds gpt2-124m --ranks 4", "zero"},
    [GUIDES_RING] = {"build/show collectives cost 8 5e-6 1e-10", "collectives"},
    [GUIDES_TP] = {"build/show tp tiny 4", "tp"},
    [GUIDES_BUBBLE] = {"build/show pipeline compare --stages 4 --micro 8", "pipeline"},
    [GUIDES_CUT] = {"build/plan layout llama2-70b --gpus 256", "layout_search"},
    [GUIDES_ACTS] = {"build/plan table llama2-7b", "plan"},
    [GUIDES_AGAIN] = {"build/plan recompute llama2-7b", "recompute"},
    [GUIDES_FLASH] = {"build/plan time llama2-7b --gpus 8 --explain", "flash"},
    [GUIDES_FORMAT] = {"build/plan formats", "formats"},
    [GUIDES_RATE] = {"build/plan schedule gpt3-175b", "schedule"},
    [GUIDES_OPTIM] = {"build/plan optimizers", "optim"},
    [GUIDES_CLIP] = {"build/plan noise", "clip"},
    [GUIDES_BATCH] = {"build/plan traffic gpt3-175b --gpus 512 --tp 8 --pp 16", "train"},
    [GUIDES_RECIPE] = {"build/plan recipe", "plan"},
    [GUIDES_DATA] = {"build/prepare --help", "mixture"},
    [GUIDES_FAILS] = {"build/plan cluster llama3-405b --gpus 16384 --tokens 15.6e12", "plan_cluster"}};

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
    if (x->n && *unit) fprintf(out, " %s", unit);
}

static void print_verdict(const GuideRow *row, FILE *out)
{
    GuideVerdict verdict = guides_verdict(row);
    fputs(verdict_text[verdict], out);
    if (verdict == GUIDES_LOOSE) {
        fputs(" (so with ", out);
        print_values(&row->other, "", out);
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
    if (row->ours.n) print_formula("", row->formula, out);
    if (row->other.n) {
        fputs("  other      ", out);
        print_values(&row->other, row->unit, out);
        fputs("\n", out);
        print_formula("", row->other_formula, out);
    }
    fprintf(out, "  tolerance  %g%%\n  verdict    ", row->percent);
    print_verdict(row, out);
    fprintf(out, "\n  more       %s; doc/%s.md\n", topic[row->topic].command, topic[row->topic].chapter);
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
