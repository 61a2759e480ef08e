// plan_print: the tables of a plan: memory, parameters, operations. See plan.h.
//
// The invariant: what a table adds up is compared with what the program itself counts (the door's bytes,
// model_flops_per_token) before it is printed, and the program ends when they differ.
#include "dev/plan/plan.h"

#include "dev/plan/report.h"

#include "base/check.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

// The sizes: letters without a digit behind them.
static void print_sizes(const PlanLetters *l, FILE *out)
{
    int column = 0;
    for (int i = 0; i < l->n; i++) {
        const PlanLetter *letter = &l->letter[i];
        if (letter->is_formula || letter->name[1]) continue;
        int n = snprintf(NULL, 0, "%s %zu %s", letter->name, letter->value, letter->means);
        if (column + n > 100) column = 0 * fputc('\n', out);
        column += fprintf(out, "%s%s %zu %s", column ? ", " : "", letter->name, letter->value, letter->means);
    }
    fputs("\n\n", out);
}

static bool mentions(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += n)
        if ((at == text || !isalpha((unsigned char)at[-1])) && !isalnum((unsigned char)at[n]) && at[n] != '(')
            return true;
    return false;
}

// What the letters of the formulas stand for, where they are not sizes of the model.
static void print_meanings(const PlanLetters *l, char (*text)[160], FILE *out)
{
    bool used[PLAN_LETTERS] = {false};
    for (int i = l->n - 1; i >= 0; i--) { // a letter is made of those before it
        for (int tag = 0; tag < MEM_TAGS; tag++) used[i] |= mentions(text[tag], l->letter[i].name);
        for (int j = i + 1; j < l->n; j++)
            used[i] |= used[j] && l->letter[j].is_formula && mentions(l->letter[j].means, l->letter[i].name);
    }
    fputc('\n', out);
    for (int i = 0; i < l->n; i++) {
        const PlanLetter *letter = &l->letter[i];
        if (!used[i]) continue;
        if (letter->is_formula) fprintf(out, "%-2s = %s = %zu\n", letter->name, letter->means, letter->value);
        else if (letter->name[1])
            fprintf(out, "%-2s = %zu %s\n", letter->name, letter->value, letter->means);
    }
}

// Buffers of equal tag, name and size are one row.
static bool same_buffer(const MemBlock *a, const MemBlock *b)
{
    return a->tag == b->tag && a->n_bytes == b->n_bytes && !strcmp(a->what, b->what);
}

static void print_buffers(const Mem *mem, FILE *out)
{
    fprintf(out, "\n%-13s %-18s %6s %18s %18s\n", "tag", "buffer", "count", "bytes each", "bytes");
    for (int tag = 0; tag < MEM_TAGS; tag++) {
        for (size_t i = 0; i < mem->n_blocks; i++) {
            const MemBlock *b = &mem->block[i];
            size_t count = 0, first = 0;
            while (!same_buffer(&mem->block[first], b)) first++;
            if ((int)b->tag != tag || first != i) continue;
            for (size_t j = i; j < mem->n_blocks; j++) count += same_buffer(&mem->block[j], b);
            fprintf(out, "%-13s %-18s %6zu %18zu %18zu\n", mem_tag_name(b->tag), b->what, count, b->n_bytes,
                    count * b->n_bytes);
        }
    }
}

void plan_print_memory(const Run *run, FILE *out)
{
    const Mem *mem = &run->mem;
    PlanLetters letters = plan_letters(run);
    char text[MEM_TAGS][160];
    if (run->replicas.size > 1) fprintf(out, "rank %d of %d\n\n", run->replicas.rank, run->replicas.size);
    print_sizes(&letters, out);
    fprintf(out, "%-13s %18s %12s  %s\n", "tag", "bytes", "MB", "formula");
    for (int tag = 0; tag < MEM_TAGS; tag++) {
        PlanFormula f = plan_checked(run, (MemTag)tag);
        bool fits = strlen(f.numbers) < 30; // beside the symbols, or on a line of its own
        memcpy(text[tag], f.symbols, sizeof text[tag]);
        fprintf(out, "%-13s %18zu %12.1f  %s", mem_tag_name((MemTag)tag), f.n_bytes, (double)f.n_bytes / 1e6,
                f.symbols);
        if (strcmp(f.symbols, f.numbers)) fprintf(out, fits ? "%*s = %s" : "\n%*s= %s", fits ? 0 : 47, "", f.numbers);
        fputc('\n', out);
    }
    fprintf(out, "%-13s %18zu %12.1f\n", "total", mem->bytes, (double)mem->bytes / 1e6);
    print_meanings(&letters, text, out);
    print_buffers(mem, out);
}

// ---- parameters

void plan_print_params(const Run *run, FILE *out)
{
    const Model *m = run->model;
    size_t decayed = 0;
    int width = 4;
    for (int i = 0; i < m->params.n_rows; i++)
        if ((int)strlen(m->params.row[i].name) > width) width = (int)strlen(m->params.row[i].name);
    fprintf(out, "%-*s %18s %14s  %-5s  %-9s %4s %15s\n", width, "name", "shape", "elements", "decay", "unit", "",
            "offset");
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        char shape[48];
        if (row->ndim == 2) snprintf(shape, sizeof shape, "(%zu, %zu)", row->dim[0], row->dim[1]);
        else snprintf(shape, sizeof shape, "(%zu)", row->dim[0]);
        fprintf(out, "%-*s %18s %14zu  %-5s  %-9s %4d %15zu\n", width, row->name, shape, row->n_elems,
                row->decay ? "yes" : "no", m->unit[row->unit].kind->name, row->unit, row->offset);
        if (row->decay) decayed += row->n_elems;
    }
    fprintf(out, "\n%16zu  parameters in %d tensors\n", m->params.n_elems, m->params.n_rows);
    fprintf(out, "%16zu  with weight decay (matrices)\n", decayed);
    fprintf(out, "%16zu  without (norms and biases)\n", m->params.n_elems - decayed);
    fprintf(out, "%16.0f  in matmuls (matrices but the embeddings; a tied head counts)\n",
            model_matmul_params(&m->shape));
}

void plan_report_params(const Run *run, FILE *out)
{
    static const char *const columns[] = {"name", "rows", "columns", "elements", "decay", "unit", "offset", NULL};
    const Model *m = run->model;
    Report *r = report_begin(out, true, false);
    report_table(r, "tensors", columns);
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        report_word(r, row->name);
        report_cell(r, (double)row->dim[0], "%.0f");
        report_cell(r, row->ndim == 2 ? (double)row->dim[1] : 1, "%.0f");
        report_cell(r, (double)row->n_elems, "%.0f");
        report_cell(r, row->decay, "%.0f");
        report_cell(r, row->unit, "%.0f");
        report_cell(r, (double)row->offset, "%.0f");
    }
    report_section(r, "totals");
    report_value(r, "parameters", (double)m->params.n_elems, "", NULL);
    report_value(r, "in matmuls", model_matmul_params(&m->shape), "", NULL);
    report_end(r);
}

// ---- floating-point operations

typedef struct {
    const char *what, *formula; // in letters
    double flops;
} Term;
enum { TERMS = 4 };

// What a token costs, term by term; dies when they are not what the model says of itself.
static double terms_of(const Run *run, const PlanLetters *l, Term term[TERMS])
{
    const Model *m = run->model;
    double total = model_flops_per_token(&m->shape, m->max_tokens), sum = 0;
    const Term is[TERMS] = {{"q, k, v and output matrices", "6 L C D (2H + 2G)", 0},
                            {"feed-forward", m->shape.swiglu ? "6 L 3 C F" : "6 L 2 C F", 0},
                            {"head", "6 V C", 0}, {"attention, T x T", "6 L H D T", 0}};
    memcpy(term, is, sizeof is);
    for (int i = 0; i < TERMS; i++) sum += term[i].flops = (double)plan_evaluate(l, term[i].formula, NULL, 0);
    if (!(fabs(sum - total) <= 1e-14 * total)) // both round a few times, by 2^-53 each
        die("plan: the terms add up to %.0f, model_flops_per_token says %.0f (a bug of the program)", sum, total);
    return total;
}

static double print_term(FILE *out, const char *what, const char *formula, double flops)
{
    fprintf(out, "%-28s %-22s %18.0f\n", what, formula, flops);
    return flops;
}

void plan_print_flops(const Run *run, FILE *out)
{
    const Model *m = run->model;
    PlanLetters letters = plan_letters(run);
    Term term[TERMS];
    double total = terms_of(run, &letters, term), step = total * (double)run->cfg.batch.tokens;
    print_sizes(&letters, out);
    fprintf(out, "A matmul of n parameters costs a token 2 n forward and 4 n backward.\n"
                 "Causal attention needs half of the T * T products.\n\n");
    fprintf(out, "%-28s %-22s %18s\n", "term", "formula", "FLOPs per token");
    for (int i = 0; i < TERMS; i++) print_term(out, term[i].what, term[i].formula, term[i].flops);
    print_term(out, "a token", "", total);
    fprintf(out, "%-28s %-22s %18.3f\n", "", "of 6 P", total / (6 * (double)m->params.n_elems));
    double again = recompute_extra_flops(&m->shape, m->acts.policy, m->max_tokens);
    if (again > 0) {
        print_term(out, "done again (recompute)", "", again);
        fprintf(out, "%-28s %-22s %18.3f\n", "", "of a token", again / total);
    }
    fprintf(out, "\n%-28s %-22s %18.4g\n", "a step", "M N tokens", step);
    long steps = run->cfg.run.steps;
    if (!steps) fprintf(out, "the run: run.minutes decides how many steps it has (set --run.steps=N)\n");
    else fprintf(out, "%-28s %-22ld %18.4g\n", "the run: run.steps", steps, step * (double)steps);
}

void plan_report_flops(const Run *run, bool json, FILE *out)
{
    const Model *m = run->model;
    PlanLetters letters = plan_letters(run);
    Term term[TERMS];
    double total = terms_of(run, &letters, term), tokens = (double)run->cfg.batch.tokens;
    double P = (double)m->params.n_elems, steps = (double)run->cfg.run.steps;
    double again = recompute_extra_flops(&m->shape, m->acts.policy, m->max_tokens);
    Report *r = report_begin(out, json, true);
    report_section(r, "FLOPs of a token");
    for (int i = 0; i < TERMS; i++) {
        char numbers[200];
        plan_evaluate(&letters, term[i].formula, numbers, sizeof numbers);
        report_value(r, term[i].what, term[i].flops, "", "%s = %s", term[i].formula, numbers);
    }
    report_value(r, "a token", total, "", "their sum: 6 P times %.4g, with P = %.0f", total / (6 * P), P);
    if (again > 0) report_value(r, "done again", again, "", "forward operations of what recomputation did not keep");
    report_section(r, "FLOPs of the run");
    report_value(r, "a step", total * tokens, "", "%.6g * %.0f tokens", total, tokens);
    if (steps > 0) report_value(r, "the run", total * tokens * steps, "", "%.6g * %.0f steps", total * tokens, steps);
    report_end(r);
}
