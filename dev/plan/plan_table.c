// plan_table: what a run would hold with other precisions, optimizers and recomputation, side by side. See plan.h.
//
// Every number is a plan of its own: the run's allocations with these settings, through the door that counts,
// each tag compared with its formula. The invariant: nothing else of the configuration changes.
//
// The guides' 16 bytes a parameter come out of it once: fp32 with AdamW holds 4 + 4 + 8. Mixed precision holds
// 2 + 4 + (4 + 8) = 18 here, because gradients are summed in fp32; the guides' 2 + 2 + 12 keeps them in 2 bytes.
//
// Rejected: a row for every pair of recomputation and optimizer. Neither changes the other's bytes, which the
// formulas say already.
#include "dev/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static const char *const dtype_name[] = {"fp32", "bf16", "fp16", "fp8"}; // in the order of CONFIG_DTYPE_*
enum { DTYPES = sizeof dtype_name / sizeof *dtype_name };

typedef struct {
    size_t tag_bytes[MEM_TAGS], n_params, n_tokens;
} Count;

static Count count(const Config *cfg)
{
    Run *run = malloc(sizeof *run); // large: not on the stack
    if (!run) die("plan: no memory for a run's description");
    Dev *cpu = dev_cpu_create(1), *dev = run_device(cfg, cpu);
    plan_open(run, cfg, dev, 0);
    Count c = {.n_params = run->model->params.n_elems, .n_tokens = run->model->max_batch * run->model->max_tokens};
    for (int tag = 0; tag < MEM_TAGS; tag++) c.tag_bytes[tag] = plan_checked(run, (MemTag)tag).n_bytes;
    plan_close(run);
    run_device_free(dev, cpu);
    free(run);
    return c;
}

// A quotient without decimals where it has none.
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
            c = count(cfg);
            for (int i = 0; i < 3; i++) {
                print_each(out, i ? "+ " : " ", c.tag_bytes[tags[i]], c.n_params, " ");
                sum += c.tag_bytes[tags[i]];
            }
            print_each(out, "= **", sum, c.n_params, "** |");
            if (name == OPTIM_ADAMW) adamw[d] = sum;
        }
        fputc('\n', out);
    }
    if (adamw[0] == 16 * c.n_params && adamw[1] == 18 * c.n_params) // not so with deterministic sums
        fprintf(out, "\nThe guides' 16 bytes: `adamw` in fp32. In mixed precision they count 2 + 2 + 12, with\n"
                     "gradients in 2 bytes; here gradients are fp32, so it is 2 + 4 + 12 = 18.\n");
}

static void print_activations(Config *cfg, FILE *out)
{
    static const char *const name[] = {"none", "selective", "sqrt", "every", "full"}; // as RECOMPUTE_*
    print_head(out, "`memory.recompute`");
    for (int compress = 0; compress < 2; compress++) {
        for (int mode = 0; mode < 5; mode++) {
            char every[24] = "";
            if (mode == RECOMPUTE_EVERY) snprintf(every, sizeof every, " %ld", cfg->memory.recompute_every);
            fprintf(out, "| `%s`%s%s |", name[mode], every, compress ? ", `memory.compress` = `int8`" : "");
            for (int d = 0; d < DTYPES; d++) {
                cfg->numerics.dtype = d;
                cfg->memory.recompute = mode;
                cfg->memory.compress = compress ? CONFIG_COMPRESS_INT8 : CONFIG_COMPRESS_NONE;
                Count c = count(cfg);
                print_each(out, " ", c.tag_bytes[MEM_ACTS], c.n_tokens, " |");
            }
            fputc('\n', out);
        }
    }
}

void plan_print_table(const Config *cfg, FILE *out)
{
    Config *copy = malloc(sizeof *copy);
    if (!copy) die("plan: no memory for the settings");
    *copy = *cfg;
    copy->optim.mup_base = 0; // refused with some optimizers, and of no size
    Count c = count(copy);
    fprintf(out, "Bytes per parameter, of %zu: weights + gradients + optimizer (with the fp32 master weights).\n\n",
            c.n_params);
    print_optimizers(copy, out);
    copy->optim.name = cfg->optim.name;
    fprintf(out, "\nBytes of activations per token of a micro-batch, %ld layers of %ld channels.\n\n",
            cfg->model.layers, cfg->model.channels);
    print_activations(copy, out);
    free(copy);
}
