// plan_fit: what of a run's choices fits into an accelerator's memory, and how large a micro-batch may be. See plan.h.
//
// For each mode of recomputation: the bytes of the fullest rank with the configuration's own micro-batch, and the
// largest micro-batch that still fits, with its bytes. Each number is a plan of its own: the run's allocations through
// the door that counts. So the largest micro-batch is the one that a run with exactly these settings could take, not an
// estimate from bytes per token.
//
// A micro-batch divides the sequences that a replica has of a step, and a pipeline wants a multiple of its stages of
// them; only those are tried, from the smallest on, until one does not fit. Bytes grow with the micro-batch (all
// activations do, and nothing shrinks but a few bytes of bookkeeping), so the first that does not fit ends the search.
//
// The invariant: nothing of the configuration changes but memory.recompute and the cut of a step into micro-batches;
// a step's sequences stay the same, so all of these runs train alike.
//
// What an accelerator has is not all a run's: PLAN_LAYOUT_USABLE of it, as for the search of layouts.
//
// Rejected: dividing what is left by the bytes of a token. Scratch has parts that do not grow (logits are made some
// hundred rows at a time), and pipelines hold several micro-batches.
#include "dev/plan/plan.h"

#include <stdlib.h>

#include "base/check.h"
#include "dev/plan/plan_layout.h"

typedef struct {
    long micro;
    size_t n_bytes; // of the fullest rank, on the device
} Fit;

static size_t fullest(const Config *cfg)
{
    Run *run = malloc(sizeof *run); // large: not on the stack
    if (!run) die("plan: no memory for a run's description");
    Dev *cpu = dev_cpu_create(1), *dev = run_device(cfg, cpu);
    size_t most = 0;
    for (int r = 0; r < (int)cfg->parallel.ranks; r++) {
        size_t n_bytes = 0;
        plan_open(run, cfg, dev, r);
        for (int tag = 0; tag < MEM_TAGS; tag++)
            if (tag != MEM_HOST) n_bytes += plan_checked(run, (MemTag)tag).n_bytes;
        plan_close(run);
        if (n_bytes > most) most = n_bytes;
    }
    run_device_free(dev, cpu);
    free(run);
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
    static const char *const name[] = {"none", "selective", "sqrt", "every", "full"}; // as RECOMPUTE_*
    double limit = PLAN_LAYOUT_USABLE * machine->memory;
    Config *copy = malloc(sizeof *copy);
    if (!copy) die("plan: no memory for the settings");
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
        fprintf(out, "| %s | %.3f | %s |", name[mode], (double)own / 1e9, (double)own <= limit ? "yes" : "no");
        if (fit.micro) fprintf(out, " %ld | %.3f |\n", fit.micro, (double)fit.n_bytes / 1e9);
        else fprintf(out, " none | |\n");
    }
    free(copy);
}
