// show: one idea at a time, drawn or printed: who holds what, who sends what, what a schedule looks like.
//
//   build/show                                      what there is
//   build/show zero holds gpt2-124m --ranks 4       one of them; build/show zero --help
//
// Each idea is a file of dev/show, and computes with the functions that training uses.
#include "dev/show/show.h"

#include "base/check.h"
#include "ops/dev_cpu.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} parts[] = {
    {"collectives", "the steps of a collective, what it costs by formula, and over real ranks", show_collectives},
    {"mesh", "the mesh of a job: which rank stands where, and in which groups", show_mesh},
    {"zero", "who holds what of a sharded run, and how much of its communication hides behind its work", show_zero},
    {"tp", "what each rank of a tensor-parallel group has of a layer, and what a layer sends", show_tp},
    {"cp", "which chunks of a sequence each rank has, and who computes what in each step of the ring", show_cp},
    {"pipeline", "a pipeline's schedule, drawn, proved, and beside the papers' formulas", show_pipeline},
    {"offload", "what an offload store moves, how fast it is here, and who waits for whom", show_offload},
    {"draw", "the pictures of the chapters: a block, casts, state, recomputation, experts, slices, tiles", show_draw},
    {"optimizers", "one small model trained by every optimizer; weight decay in Adam and in AdamW", show_optimizers},
    {"scaling", "a scaling law fitted to a ladder of trained runs, and what it says of a larger one", show_scaling},
    {"packing", "what packing whole documents into rows saves and costs on a token file", show_packing},
    {"loader", "how many tokens a second the dataset gives, beside how many training takes", show_loader},
    {"curve", "a run's loss in numbers: means by windows, progress, spikes, standstill", show_curve},
    {"plot", "a run's picture of the loss, or its page, again: of one that is running or was killed too", show_plot},
    {"overlay", "the training losses of several runs in one picture", show_overlay},
    {"gradients", "how far the gradients of one dump are from those of another, in norm", show_gradients},
};
enum { PARTS = sizeof parts / sizeof *parts };

static void print_parts(void)
{
    printf("usage: show WHAT ...          show WHAT --help says what it takes\n\n");
    for (int i = 0; i < PARTS; i++) printf("  %-12s %s\n", parts[i].name, parts[i].what);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "--help";
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        print_parts();
        return 0;
    }
    dev_cpu_choose_blas(argv); // may start the program again
    for (int i = 0; i < PARTS; i++)
        if (!strcmp(what, parts[i].name)) return parts[i].run(argc - 1, argv + 1);
    die_usage("show: '%s': there is no such part (build/show lists them)", what);
}
