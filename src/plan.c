// plan: memory, parameters and floating-point operations of a run, from its configuration alone. See plan.h.
//
// Memory is not estimated here. The plan makes the very calls by which a run gets its memory
// (run_allocate), with a door whose raw_alloc hands out no memory: the door's table then holds every
// buffer, with its tag, name and size. So plan and run agree to the byte because they are the same code,
// and a buffer added to the model tomorrow is in the plan at once. A model of 405 billion parameters is
// planned in milliseconds on a laptop.
//
// Beside the sum of the buffers stand the formulas that the guides teach, in their symbols:
//
//     parameters 4 P    gradients 4 P    optimizer 8 P
//     activations 4 N (L A + 2 C + 2),   A = 4 C + (2H + 2G) D + 2 F + H + 4
//     scratch     4 (N (2 C + (2H + 2G) D + F + 4) + R V + 2 S + 2 L T G D)
//
// Everything is fp32. With a gate matrix F is 3 F in scratch, 2 F is 3 F in A; QK-norm adds (H + 2G) D +
// H + G to A. N = B T tokens of a micro-batch, S tokens of a step, R rows of logits at a time. The
// invariant: each formula gives the sum of its buffers exactly, or the program ends. A formula in a
// table that nobody checks is wrong after the next change.
//
// Not in the plan, because it does not come through the door: the CPU device's packing buffers, OpenBLAS'
// own, the tokenizer, the mapped token files, code and stack. They do not grow with the model's depth.
//
// Rejected: a planner with arithmetic of its own, as most are. It is an opinion about the allocator, and
// the two drift apart.
#include "plan.h"

#include "check.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

// ---- the door that counts

// The one address that it hands out, never read or written: the table of the door is the result.
static void *no_memory(size_t n_bytes)
{
    static const char nowhere;
    (void)n_bytes;
    return (void *)(uintptr_t)&nowhere;
}

static void free_nothing(void *ptr)
{
    (void)ptr;
}

void plan_vocab(Config *cfg)
{
    if (cfg->model.vocab) return;
    const char *dir = cfg->data.tokenizer;
    if (!*dir) die("model.vocab is not known (set --model.vocab=N, or --data.tokenizer=DIR)");
    if (access(dir, R_OK))
        die("data.tokenizer: %s is not there, so the vocabulary is not known (set --model.vocab=N)", dir);
    Tokenizer *tokenizer = tokenizer_load(dir);
    config_set_derived(cfg, "model.vocab", tokenizer_vocab_size(tokenizer));
    config_resolve(cfg);
    tokenizer_free(tokenizer);
}

void plan_open(Run *run, const Config *cfg, Dev *dev)
{
    *run = (Run){.cfg = *cfg, .dev = dev, .mem = {.raw_alloc = no_memory, .raw_free = free_nothing}};
    run_allocate(run);
}

void plan_close(Run *run)
{
    mem_free_all(&run->mem);
    model_free(run->model);
}

// ---- memory

typedef struct {
    size_t P, L, C, H, G, D, F, V, T, N, S, R; // the glossary's letters, and those of the opening comment
    size_t gate;                               // 1 with a gate matrix (swiglu)
    bool qk_norm;
} Sizes;

static Sizes sizes_of(const Run *run)
{
    const Model *m = run->model;
    const ModelShape *s = &m->shape;
    size_t N = m->max_batch * m->max_tokens;
    return (Sizes){.P = m->params.n_elems, .L = s->layers, .C = s->channels, .H = s->heads, .G = s->kv_heads,
                   .D = s->head_size, .F = s->ffn, .V = s->vocab, .T = s->context, .N = N,
                   .S = (size_t)run->cfg.batch.tokens, .R = unit_head_chunk(s, N), .gate = s->swiglu,
                   .qk_norm = s->qk_norm};
}

static PlanFormula activations(Sizes z)
{
    PlanFormula f;
    size_t qk_norm = z.qk_norm ? (z.H + 2 * z.G) * z.D + z.H + z.G : 0;
    size_t A = 4 * z.C + (2 * z.H + 2 * z.G) * z.D + (2 + z.gate) * z.F + z.H + 4 + qk_norm;
    f.n_bytes = 4 * z.N * (z.L * A + 2 * z.C + 2);
    snprintf(f.symbols, sizeof f.symbols, "4 N (L A + 2 C + 2), A = 4 C + (2H + 2G) D + %zu F + H + 4%s",
             2 + z.gate, z.qk_norm ? " + (H + 2G) D + H + G" : "");
    snprintf(f.numbers, sizeof f.numbers, "4 * %zu * (%zu * %zu + 2 * %zu + 2), A = %zu", z.N, z.L, A, z.C, A);
    return f;
}

static PlanFormula scratch(Sizes z)
{
    PlanFormula f;
    size_t row = 2 * z.C + (2 * z.H + 2 * z.G) * z.D + (1 + 2 * z.gate) * z.F + 4;
    f.n_bytes = 4 * (z.N * row + z.R * z.V + 2 * z.S + 2 * z.L * z.T * z.G * z.D);
    snprintf(f.symbols, sizeof f.symbols, "4 (N (2 C + (2H + 2G) D + %sF + 4) + R V + 2 S + 2 L T G D)",
             z.gate ? "3 " : "");
    snprintf(f.numbers, sizeof f.numbers, "4 * (%zu * %zu + %zu * %zu + 2 * %zu + 2 * %zu * %zu * %zu * %zu)",
             z.N, row, z.R, z.V, z.S, z.L, z.T, z.G, z.D);
    return f;
}

PlanFormula plan_formula(const Run *run, MemTag tag)
{
    Sizes z = sizes_of(run);
    PlanFormula f = {0};
    if (tag == MEM_ACTS) return activations(z);
    if (tag == MEM_SCRATCH) return scratch(z);
    size_t each = tag == MEM_OPTIM ? 8 : tag == MEM_PARAMS || tag == MEM_GRADS ? 4 : 0;
    f.n_bytes = each * z.P;
    snprintf(f.symbols, sizeof f.symbols, each ? "%zu P" : "0 (one process)", each);
    if (each) snprintf(f.numbers, sizeof f.numbers, "%zu * %zu", each, z.P);
    return f;
}

static double mb(size_t n_bytes)
{
    return (double)n_bytes / 1e6;
}

static void print_letters(const Run *run, FILE *out)
{
    Sizes z = sizes_of(run);
    fprintf(out, "P %zu parameters: L %zu layers, C %zu channels, H %zu heads, G %zu kv_heads, D %zu head_size,\n",
            z.P, z.L, z.C, z.H, z.G, z.D);
    fprintf(out, "F %zu ffn, V %zu vocab, T %zu context; N %zu tokens a micro-batch (batch.micro * T),\n",
            z.F, z.V, z.T, z.N);
    fprintf(out, "S %zu tokens a step, R %zu rows of logits at a time\n\n", z.S, z.R);
}

// Buffers of equal tag, name and size are one row.
static bool same_buffer(const MemBlock *a, const MemBlock *b)
{
    return a->tag == b->tag && a->n_bytes == b->n_bytes && !strcmp(a->what, b->what);
}

static void print_buffers(const Mem *mem, FILE *out)
{
    fprintf(out, "\n%-13s %-16s %6s %18s %18s\n", "tag", "buffer", "count", "bytes each", "bytes");
    for (int tag = 0; tag < MEM_TAGS; tag++) {
        for (size_t i = 0; i < mem->n_blocks; i++) {
            const MemBlock *b = &mem->block[i];
            size_t count = 0, first = 0;
            while (!same_buffer(&mem->block[first], b)) first++;
            if ((int)b->tag != tag || first != i) continue;
            for (size_t j = i; j < mem->n_blocks; j++) count += same_buffer(&mem->block[j], b);
            fprintf(out, "%-13s %-16s %6zu %18zu %18zu\n", mem_tag_name(b->tag), b->what, count, b->n_bytes,
                    count * b->n_bytes);
        }
    }
}

void plan_print_memory(const Run *run, FILE *out)
{
    const Mem *mem = &run->mem;
    print_letters(run, out);
    fprintf(out, "%-13s %18s %12s  %s\n", "tag", "bytes", "MB", "formula");
    for (int tag = 0; tag < MEM_TAGS; tag++) {
        PlanFormula f = plan_formula(run, (MemTag)tag);
        const char *name = mem_tag_name((MemTag)tag);
        if (f.n_bytes != mem->tag_bytes[tag])
            die("plan: %s: the formula %s gives %zu bytes, the buffers hold %zu (a bug of the program)",
                name, f.symbols, f.n_bytes, mem->tag_bytes[tag]);
        bool fits = strlen(f.numbers) < 30; // beside the symbols, or on a line of its own
        fprintf(out, "%-13s %18zu %12.1f  %s", name, f.n_bytes, mb(f.n_bytes), f.symbols);
        if (*f.numbers) fprintf(out, fits ? "%*s = %s" : "\n%*s= %s", fits ? 0 : 47, "", f.numbers);
        fputc('\n', out);
    }
    fprintf(out, "%-13s %18zu %12.1f\n", "total", mem->bytes, mb(mem->bytes));
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

// ---- floating-point operations

static double print_term(FILE *out, const char *what, const char *formula, double flops)
{
    fprintf(out, "%-28s %-22s %18.0f\n", what, formula, flops);
    return flops;
}

void plan_print_flops(const Run *run, FILE *out)
{
    Sizes z = sizes_of(run);
    const double L = (double)z.L, C = (double)z.C, H = (double)z.H, G = (double)z.G, D = (double)z.D;
    double total = model_flops_per_token(&run->model->shape, z.T), step = total * (double)z.S, sum = 0;
    print_letters(run, out);
    fprintf(out, "A matmul of n parameters costs a token 2 n forward and 4 n backward.\n"
                 "Causal attention needs half of the T * T products.\n\n");
    fprintf(out, "%-28s %-22s %18s\n", "term", "formula", "FLOPs per token");
    sum += print_term(out, "q, k, v and output matrices", "6 L C D (2H + 2G)", 6 * L * C * D * (2 * H + 2 * G));
    sum += print_term(out, "feed-forward", z.gate ? "6 L 3 C F" : "6 L 2 C F",
                      6 * L * (double)(2 + z.gate) * C * (double)z.F);
    sum += print_term(out, "head", "6 V C", 6 * (double)z.V * C);
    sum += print_term(out, "attention, T x T", "6 L H D T", 6 * L * H * D * (double)z.T);
    if (!(fabs(sum - total) <= 1e-14 * total)) // both round a few times, by 2^-53 each
        die("plan: the terms add up to %.0f, model_flops_per_token says %.0f (a bug of the program)",
            sum, total);
    print_term(out, "a token", "", total);
    fprintf(out, "%-28s %-22s %18.3f\n\n", "", "of 6 P", total / (6 * (double)z.P));
    fprintf(out, "%-28s %-22s %18.4g\n", "a step", "S tokens", step);
    long steps = run->cfg.run.steps;
    if (!steps) fprintf(out, "the run: run.minutes decides how many steps it has (set --run.steps=N)\n");
    else fprintf(out, "%-28s %-22ld %18.4g\n", "the run: run.steps", steps, step * (double)steps);
}
