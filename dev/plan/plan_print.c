// plan_print: the tables of a plan: memory, parameters, operations, formats. See plan.h.
//
// The invariant: what a table adds up is compared with what the program itself counts (the allocator's bytes,
// model_flops_per_token) before it is printed, and the program ends when they differ.
//
// In the tables of other settings, and of what fits into an accelerator, each number is a plan of its own: the run's
// allocations with these settings, through the allocator that only counts, each tag compared with its formula. Nothing
// else of the configuration changes. So the largest micro-batch is one that a run with exactly these settings can use:
// it divides the sequences that a replica has of a step, and a pipeline needs a multiple of its stages of
// micro-batches. Bytes grow with it, so the first that does not fit ends the search. A run may use PLAN_LAYOUT_USABLE
// of an accelerator's memory. Rejected: dividing what is left by the bytes of a token (scratch has parts that do not
// grow, and pipelines hold several micro-batches).
//
// Modes of recomputation (recompute.h, doc/recompute.md): their bytes are counted the same way; operations come from
// the formula, which test_recompute compares with those that really run.
#include "dev/plan/plan.h"

#include "dev/plan/plan_show.h"

#include "base/check.h"
#include "base/rng.h"
#include "src/check/sharding.h"
#include "net/model.h"
#include "src/check/noise.h"
#include "train/optim.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The sizes: letters without a digit after them.
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
    for (int i = l->n - 1; i >= 0; i--) { // a letter's formula has only letters before it
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
typedef struct {
    const MemBlock *first;
    size_t count;
} SameBuffers;

static int count_buffers(const Mem *mem, SameBuffers *row)
{
    int n = 0;
    for (const MemBlock *b = mem->block; b < mem->block + mem->n_blocks; b++) {
        int i = 0;
        while (i < n && (row[i].first->tag != b->tag || row[i].first->n_bytes != b->n_bytes ||
                         strcmp(row[i].first->what, b->what))) i++;
        if (i == n) row[n++].first = b;
        row[i].count++;
    }
    return n;
}

static void print_buffers(const Mem *mem, FILE *out)
{
    SameBuffers *row = calloc(mem->n_blocks + 1, sizeof *row);
    if (!row) die("plan: no memory for %zu buffers", mem->n_blocks);
    int n = count_buffers(mem, row);
    fprintf(out, "\n%-13s %-18s %6s %18s %18s\n", "tag", "buffer", "count", "bytes each", "bytes");
    for (int tag = 0; tag < MEM_TAGS; tag++)
        for (int i = 0; i < n; i++) {
            const MemBlock *b = row[i].first;
            if ((int)b->tag != tag) continue;
            fprintf(out, "%-13s %-18s %6zu %18zu %18zu\n", mem_tag_name(b->tag), b->what, row[i].count, b->n_bytes,
                    row[i].count * b->n_bytes);
        }
    free(row);
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
        bool fits = strlen(f.numbers) < 30; // beside the symbols; else on a line of its own
        memcpy(text[tag], f.symbols, sizeof text[tag]);
        fprintf(out, "%-13s %18zu %12.1f  %s", mem_tag_name((MemTag)tag), f.n_bytes, (double)f.n_bytes / 1e6,
                f.symbols);
        if (strcmp(f.symbols, f.numbers)) fprintf(out, fits ? "%*s = %s" : "\n%*s= %s", fits ? 0 : 47, "", f.numbers);
        fputc('\n', out);
    }
    fprintf(out, "%-13s %18zu %12.1f\n", "total", mem->bytes, (double)mem->bytes / 1e6);
    PlanMoved moved = plan_moved(run);
    if (moved.out)
        fprintf(out, "\na step moves %zu bytes of activations to host memory, and %zu back\n", moved.out, moved.in);
    ShardingMoved update = sharding_update_moved(run);
    if (update.out)
        fprintf(out, "\nan update moves %zu bytes out of device memory, and %zu into it\n", update.out, update.in);
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
    const Model *m = run->model;
    Report *r = report_begin(out, true, false);
    report_table(r, "tensors", "name|rows|columns|elements|decay|unit|offset");
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        report_row(r, "%s|%.0f|%.0f|%.0f|%.0f|%.0f|%.0f", row->name, (double)row->dim[0],
                   row->ndim == 2 ? (double)row->dim[1] : 1, (double)row->n_elems, (double)row->decay,
                   (double)row->unit, (double)row->offset);
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
enum { TERMS = 5 };

// What a token costs, term by term, `n` of them; dies when the sum is not model_flops_per_token.
static double terms_of(const Run *run, const PlanLetters *l, Term term[TERMS], int *n)
{
    const Model *m = run->model;
    bool windows = plan_has_windows(&m->shape);
    double total = model_flops_per_token(&m->shape, m->max_tokens), sum = 0;
    const Term is[TERMS] = {{"q, k, v and output matrices", "6 L C D (2H + 2G)", 0},
                            {"feed-forward", m->shape.experts.n ? "6 C (3 (L - Lx) F + Lx (3 (k Fx + Fs) + X))" :
                             m->shape.swiglu ? "6 L 3 C F" : "6 L 2 C F", 0},
                            {"head", "6 V C", 0},
                            {"attention, T x T", windows ? "6 (L - Lw) H D T" : "6 L H D T", 0},
                            {"attention, windows", "6 Lw H D Kw", 0}};
    memcpy(term, is, sizeof is);
    *n = windows ? TERMS : TERMS - 1;
    for (int i = 0; i < *n; i++) sum += term[i].flops = (double)plan_evaluate(l, term[i].formula, NULL, 0);
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
    int n;
    double total = terms_of(run, &letters, term, &n), step = total * (double)run->cfg.batch.tokens;
    print_sizes(&letters, out);
    fprintf(out, "A matmul of n parameters costs a token 2 n forward and 4 n backward.\n"
                 "Causal attention needs half of the T * T products.\n");
    if (n == TERMS)
        fprintf(out, "Lw = %zu layers have a window of w tokens: Kw = ceil(w (2 T - w) / T) = %zu stands for T.\n",
                plan_evaluate(&letters, "Lw", NULL, 0), plan_evaluate(&letters, "Kw", NULL, 0));
    fputc('\n', out);
    fprintf(out, "%-28s %-22s %18s\n", "term", "formula", "FLOPs per token");
    for (int i = 0; i < n; i++) print_term(out, term[i].what, term[i].formula, term[i].flops);
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
    else fprintf(out, "%-28s %-22ld %18.4g\n", "the run: run.steps", steps,
                 total * plan_tokens(&run->cfg, steps));
}

void plan_report_flops(const Run *run, bool json, FILE *out)
{
    const Model *m = run->model;
    PlanLetters letters = plan_letters(run);
    Term term[TERMS];
    int n;
    double total = terms_of(run, &letters, term, &n), tokens = (double)run->cfg.batch.tokens;
    double P = (double)m->params.n_elems, steps = (double)run->cfg.run.steps;
    double again = recompute_extra_flops(&m->shape, m->acts.policy, m->max_tokens);
    Report *r = report_begin(out, json, true);
    report_section(r, "FLOPs of a token");
    for (int i = 0; i < n; i++) {
        char numbers[200];
        plan_evaluate(&letters, term[i].formula, numbers, sizeof numbers);
        report_value(r, term[i].what, term[i].flops, "", "%s = %s", term[i].formula, numbers);
    }
    report_value(r, "a token", total, "", "their sum: 6 P times %.4g, with P = %.0f", total / (6 * P), P);
    if (again > 0) report_value(r, "done again", again, "", "forward operations of what recomputation did not keep");
    report_section(r, "FLOPs of the run");
    report_value(r, "a step", total * tokens, "", "%.6g * %.0f tokens", total, tokens);
    double all = plan_tokens(&run->cfg, (long)steps);
    if (steps > 0) report_value(r, "the run", total * all, "", "%.6g * %.6g tokens of %.0f steps", total, all, steps);
    report_end(r);
}

// ---- other settings side by side

static const char *const dtype_name[] = {"fp32", "bf16", "fp16", "fp8"}; // in the order of CONFIG_DTYPE_*; tf32 is as fp32
enum { DTYPES = sizeof dtype_name / sizeof *dtype_name };

typedef struct {
    size_t tag_bytes[MEM_TAGS], n_params, n_tokens;
} Count;

static Count count(const Config *cfg, int rank)
{
    static Run run; // large: not on the stack
    Dev *cpu = dev_cpu_create(1), *dev = run_device(cfg, cpu);
    plan_open(&run, cfg, dev, rank);
    Count c = {.n_params = run.model->params.n_elems, .n_tokens = run.model->max_batch * run.model->max_tokens};
    for (int tag = 0; tag < MEM_TAGS; tag++) c.tag_bytes[tag] = plan_checked(&run, (MemTag)tag).n_bytes;
    plan_close(&run);
    run_device_free(dev, cpu);
    return c;
}

// Prints a quotient, without decimals where it is whole.
static void print_each(FILE *out, const char *before, size_t n_bytes, size_t n, const char *after)
{
    char text[32];
    snprintf(text, sizeof text, "%.2f", (double)n_bytes / (double)n);
    if (n_bytes % n == 0) *strchr(text, '.') = 0;
    fprintf(out, "%s%s%s", before, text, after);
}

static void print_head(FILE *out, const char *first)
{
    fprintf(out, "| %s |", first);
    for (int d = 0; d < DTYPES; d++) fprintf(out, " %s |", dtype_name[d]);
    fprintf(out, "\n|---|");
    for (int d = 0; d < DTYPES; d++) fprintf(out, "---:|");
    fputc('\n', out);
}

static void print_optimizers(Config *cfg, FILE *out)
{
    static const MemTag tags[] = {MEM_PARAMS, MEM_GRADS, MEM_OPTIM};
    Count c = {.n_params = 0};
    size_t adamw[DTYPES] = {0};
    print_head(out, "`optim.name`");
    for (int name = 0; name < OPTIM_NAMES; name++) {
        fprintf(out, "| `%s` |", optim_kind((OptimName)name)->name);
        for (int d = 0; d < DTYPES; d++) {
            size_t sum = 0;
            cfg->optim.name = name;
            cfg->numerics.dtype = d;
            c = count(cfg, 0);
            for (int i = 0; i < 3; i++) {
                print_each(out, i ? "+ " : " ", c.tag_bytes[tags[i]], c.n_params, " ");
                sum += c.tag_bytes[tags[i]];
            }
            print_each(out, "= **", sum, c.n_params, "** |");
            if (name == OPTIM_ADAMW) adamw[d] = sum;
        }
        fputc('\n', out);
    }
    if (adamw[0] == 16 * c.n_params && adamw[1] == 18 * c.n_params) // false with deterministic sums
        fprintf(out, "\nThe guides' 16 bytes: `adamw` in fp32. In mixed precision they count 2 + 2 + 12, with\n"
                     "gradients in 2 bytes; here gradients are fp32, so it is 2 + 4 + 12 = 18.\n");
}

static void print_activations(Config *cfg, FILE *out)
{
    print_head(out, "`memory.recompute`");
    for (int compress = 0; compress < 2; compress++) {
        for (int mode = 0; mode <= RECOMPUTE_FULL; mode++) {
            char every[24] = "";
            if (mode == RECOMPUTE_EVERY) snprintf(every, sizeof every, " %ld", cfg->memory.recompute_every);
            fprintf(out, "| `%s`%s%s |", recompute_name((RecomputeMode)mode), every,
                    compress ? ", `memory.compress` = `int8`" : "");
            for (int d = 0; d < DTYPES; d++) {
                cfg->numerics.dtype = d;
                cfg->memory.recompute = mode;
                cfg->memory.compress = compress ? CONFIG_COMPRESS_INT8 : CONFIG_COMPRESS_NONE;
                Count c = count(cfg, 0);
                print_each(out, " ", c.tag_bytes[MEM_ACTS], c.n_tokens, " |");
            }
            fputc('\n', out);
        }
    }
}

void plan_print_table(const Config *cfg, FILE *out)
{
    static Config large; // not on the stack
    Config *copy = &large;
    *copy = *cfg;
    copy->optim.mup_base = 0; // refused with some optimizers, and it changes no size
    Count c = count(copy, 0);
    fprintf(out, "Bytes per parameter, of %zu: weights + gradients + optimizer (with the fp32 master weights).\n\n",
            c.n_params);
    print_optimizers(copy, out);
    copy->optim.name = cfg->optim.name;
    fprintf(out, "\nBytes of activations per token of a micro-batch, %ld layers of %ld channels.\n\n",
            cfg->model.layers, cfg->model.channels);
    print_activations(copy, out);
}

// ---- what fits

typedef struct {
    long micro;
    size_t n_bytes; // of the fullest rank, on the device
} Fit;

static size_t fullest(const Config *cfg)
{
    size_t most = 0;
    for (int r = 0; r < (int)cfg->parallel.ranks; r++) {
        Count c = count(cfg, r);
        size_t n_bytes = 0;
        for (int tag = 0; tag < MEM_TAGS; tag++) n_bytes += tag == MEM_HOST ? 0 : c.tag_bytes[tag];
        if (n_bytes > most) most = n_bytes;
    }
    return most;
}

// The largest micro-batch within `limit`; 0: none.
static Fit largest(Config *cfg, double limit)
{
    long share = cfg->batch.tokens / cfg->model.context / cfg->parallel.dp, pp = cfg->parallel.pp;
    Fit best = {0, 0};
    for (long micro = 1; micro <= share; micro++) {
        if (share % micro || (pp > 1 && share / micro % pp)) continue;
        cfg->batch.micro = micro, cfg->batch.accum = share / micro;
        size_t n_bytes = fullest(cfg);
        if (!((double)n_bytes <= limit)) break;
        best = (Fit){micro, n_bytes};
    }
    return best;
}

void plan_print_fits(const Config *cfg, const Machine *machine, FILE *out)
{
    double limit = PLAN_LAYOUT_USABLE * machine->memory;
    static Config large; // not on the stack
    Config *copy = &large;
    fprintf(out, "\n%s has %.0f GB, of which a run may use %.1f. Bytes of the fullest of %ld rank%s:\n\n"
            "| memory.recompute | GB with batch.micro %ld | fits | largest batch.micro | its GB |\n"
            "|---|---:|---|---:|---:|\n",
            machine->name, machine->memory / 1e9, limit / 1e9, cfg->parallel.ranks, cfg->parallel.ranks > 1 ? "s" : "",
            cfg->batch.micro);
    for (RecomputeMode mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
        if (mode == RECOMPUTE_EVERY && cfg->memory.recompute != mode) continue;
        *copy = *cfg;
        copy->memory.recompute = mode;
        size_t own = fullest(copy);
        Fit fit = largest(copy, limit);
        fprintf(out, "| %s | %.3f | %s |", recompute_name(mode), (double)own / 1e9,
                (double)own <= limit ? "yes" : "no");
        if (fit.micro) fprintf(out, " %ld | %.3f |\n", fit.micro, (double)fit.n_bytes / 1e9);
        else fprintf(out, " none | |\n");
    }
}

// ---- modes of recomputation

static void print_mode(const ModelShape *s, Dev *dev, Mem door, size_t B, size_t T, const char *name,
                       RecomputePolicy policy, size_t none_bytes, FILE *out)
{
    Params params;
    Unit *unit;
    model_describe(s, &params, &unit);
    RecomputePool pool = recompute_pool(s->layers, true, policy);
    Activations acts = model_activations(&pool, 0, unit, params.n_units, dev, s, &door, B, T);
    size_t n_bytes = door.tag_bytes[MEM_ACTS], formula = recompute_bytes(s, dev, policy, B, T), L = s->layers;
    if (n_bytes != formula)
        die("recompute: %s: the buffers hold %zu bytes, the formula says %zu (a bug of the program)", name, n_bytes,
            formula);
    size_t segment = acts.segment, again = segment ? (L + segment - 1) / segment * segment - segment : 0;
    double extra = recompute_extra_flops(s, policy, T) / model_flops_per_token(s, T);
    fprintf(out, "%-18s %8zu %8zu %16zu %7.1f%% %7zu %7.1f%%\n", name, segment ? segment : L,
            segment ? (L + segment - 1) / segment + segment : L + 1, n_bytes,
            100.0 * (double)n_bytes / (double)none_bytes, again, 100 * extra);
    mem_free_all(&door);
    model_activations_free(&acts);
    recompute_pool_free(&pool);
    params_free(&params);
    free(unit);
}

void recompute_print(const ModelShape *s, Dev *dev, const Mem *counting, size_t B, size_t T, FILE *out)
{
    Mem door = {.raw_alloc = counting->raw_alloc, .raw_free = counting->raw_free};
    size_t L = s->layers, none = recompute_bytes(s, dev, (RecomputePolicy){0}, B, T);
    RecomputePolicy sqrt_policy = {.mode = RECOMPUTE_SQRT};
    fprintf(out, "%zu layers, micro-batches of %zu x %zu tokens, %zu bytes an activation\n\n", L, B, T, dev->x_bytes);
    fprintf(out, "%-18s %8s %8s %16s %8s %7s %8s\n", "mode", "sets", "streams", "bytes", "of none", "again",
            "+ FLOPs");
    for (int compress = 0; compress < 2; compress++) {
        const struct {
            const char *name[2];
            RecomputePolicy policy;
        } row[] = {
            {{"none", "int8"}, {.mode = RECOMPUTE_NONE}},
            {{"selective", "selective, int8"}, {.mode = RECOMPUTE_SELECTIVE}},
            {{"attention", "attention, int8"}, {.mode = RECOMPUTE_ATTENTION}},
            {{"every 2", "every 2, int8"}, {.mode = RECOMPUTE_EVERY, .every = 2}},
            {{"sqrt", "sqrt, int8"}, sqrt_policy},
            {{"full", "full, int8"}, {.mode = RECOMPUTE_FULL}},
        };
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            RecomputePolicy policy = row[i].policy;
            policy.compress = compress;
            print_mode(s, dev, door, B, T, row[i].name[compress], policy, none, out);
        }
    }
    double layers = 2 * sqrt((double)L) / (double)L;
    fprintf(out, "\nTextbook: sqrt keeps 2 sqrt(L) = %.1f layers of %zu, %.1f%%; running forward twice is +33.3%%.\n",
            2 * sqrt((double)L), L, 100 * layers);
    fprintf(out, "Here sqrt is segments of %zu blocks; the last segment is not run again, nor the last projection\n"
                 "of a block whose output is kept. Which mode is the fastest on N accelerators: plan layout, --gpus N.\n",
            recompute_segment(sqrt_policy, L));
}

void plan_print_optimizers(FILE *out)
{
    static const ModelShape gpt2 = {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64,
                                    .ffn = 3072, .vocab = 50257, .context = 1024, .norm = NORM_LAYERNORM,
                                    .norm_eps = 1e-5f, .bias = true, .tie = true};
    static const char *const cut[] = {"any element", "blocks of 2048", "tensors"};
    Params params = {0};
    Unit *unit;
    model_describe(&gpt2, &params, &unit);
    fprintf(out, "| `optim.name` | arrays | may be cut at | state, bytes per parameter | the guides' figure |\n"
                 "|---|---|---|---:|---|\n");
    for (int i = 0; i < OPTIM_NAMES; i++) {
        const OptimKind *kind = optim_kind((OptimName)i);
        fprintf(out, "| `%s` | ", kind->name);
        for (int s = 0; s < kind->n_states; s++) fprintf(out, "%s%s", s ? ", " : "", kind->state[s].prefix);
        fprintf(out, "%s | %s | %.4f | %s |\n", kind->n_states ? "" : "none", cut[kind->cut],
                (double)optim_state_bytes((OptimName)i, &params) / (double)params.n_elems, kind->guide);
    }
    free(unit);
    params_free(&params);
}

// ---- both estimators on synthetic gradients: |G|^2 = 1, so B_simple = tr(Sigma)

enum { DIMS = 500, TRIALS = 50, MICRO = 256, TRACE = 4096 };

typedef struct {
    double first, all, spread; // |g|^2 of the first micro-batch, of the mean; variance over the micro-batches, summed
} Made;

// Gradients of b_big / MICRO micro-batches.
static Made make_gradients(Rng rng, size_t n_micro)
{
    Made m = {0};
    double size = sqrt((double)TRACE / DIMS / MICRO);
    for (size_t d = 0; d < DIMS; d++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < n_micro; i++) {
            double noise = size * rng_normal(rng, d * n_micro + i), g = (d == 0) + noise; // G is the first axis
            if (i == 0) m.first += g * g;
            sum += g;
            squares += noise * noise; // about G, so that little cancels
        }
        double mean = sum / (double)n_micro, about = mean - (d == 0);
        m.all += mean * mean;
        m.spread += (squares - (double)n_micro * about * about) / (double)(n_micro - 1);
    }
    return m;
}

void plan_print_noise(FILE *out, uint64_t seed)
{
    fprintf(out, "| batch | two batches | spread of micro-batches / \\|g\\|^2 | its formula |\n"
                 "|---:|---:|---:|---:|\n");
    for (size_t n_micro = 2; n_micro <= 128; n_micro *= 4) {
        double b_big = (double)(n_micro * MICRO), spread = 0, all = 0;
        Noise noise = noise_create(1 - 1e-6); // as good as the plain mean
        for (uint32_t i = 0; i < TRIALS; i++) {
            Made m = make_gradients(rng_make(seed, "noise", i), n_micro);
            noise_add(&noise, m.first, MICRO, m.all, b_big);
            spread += m.spread * MICRO;
            all += m.all;
        }
        fprintf(out, "| %.0f | %.0f | %.0f | %.0f |\n", b_big, noise_scale(&noise), spread / all,
                noise_naive_expected(TRACE, b_big));
    }
}

// ---- range and precision of the number formats: what follows from the exponent and mantissa bits of each

static const char *const FORMAT_NAME[FORMAT_COUNT] = {"fp32", "tf32", "bf16", "fp16", "fp8 E4M3", "fp8 E5M2"};
static const char *const FORMAT_USE[FORMAT_COUNT] = {
    "master weights, optimizer, sums",
    "inputs of fp32 matmuls on tensor cores",
    "weights, activations, gradients",
    "the same, with loss scaling",
    "inputs of matmuls: weights, activations",
    "inputs of matmuls: gradients",
};

FormatInfo plan_format(Format f)
{
    check(f >= 0 && f < FORMAT_COUNT);
    const FormatLayout l = FORMATS_LAYOUT[f];
    int bias = formats_bias(f), mantissa = (int)l.mantissa;
    return (FormatInfo){.name = FORMAT_NAME[f], .use = FORMAT_USE[f], .bits = 1 + (int)l.exponent + mantissa,
                        .exponent = (int)l.exponent, .mantissa = mantissa, .bias = bias, .has_inf = l.has_inf,
                        .max = formats_max(f), .min_normal = ldexp(1, 1 - bias),
                        .min_denormal = ldexp(1, 1 - bias - mantissa), .epsilon = ldexp(1, -mantissa),
                        .digits = (mantissa + 1) * log10(2)};
}

void plan_print_formats(FILE *out)
{
    fprintf(out, "%-8s %4s %4s %4s %5s %4s %11s %15s %16s %13s %7s  %s\n", "format", "bits", "exp", "man",
            "bias", "Inf", "max", "min normal", "min denormal", "epsilon", "digits", "used for");
    for (int f = 0; f < FORMAT_COUNT; f++) {
        FormatInfo i = plan_format((Format)f);
        char normal[32], denormal[32], epsilon[32];
        snprintf(normal, sizeof normal, "2^%d %.1e", ilogb(i.min_normal), i.min_normal);
        snprintf(denormal, sizeof denormal, "2^%d %.1e", ilogb(i.min_denormal), i.min_denormal);
        snprintf(epsilon, sizeof epsilon, "2^%d %.1e", ilogb(i.epsilon), i.epsilon);
        fprintf(out, "%-8s %4d %4d %4d %5d %4s %11.6g %15s %16s %13s %7.1f  %s\n", i.name, i.bits, i.exponent,
                i.mantissa, i.bias, i.has_inf ? "yes" : "no", i.max, normal, denormal, epsilon, i.digits,
                i.use);
    }
}
