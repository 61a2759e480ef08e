// plan: what a run will need, from its configuration alone: memory to the byte, parameters, operations.
//
//   build/plan memory CONFIG [--section.key=value ...] [--json]
//   build/plan params CONFIG [--section.key=value ...]
//   build/plan flops  CONFIG [--section.key=value ...]
//
// CONFIG and the keys are those of build/train, and what train would refuse is refused here. Nothing is
// allocated, so any preset can be planned on any machine. --json prints what the run itself writes to
// account.json with --run.account=true.
//
// Exit status: 0, 1 for a configuration that cannot be planned, 2 for a wrong command line.
#include "account.h"
#include "check.h"
#include "plan.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: plan memory|params|flops CONFIG [--section.key=value ...] [--json]\n"
    "  memory  bytes that a training run holds, by tag, with their formulas; --json: as account.json has them\n"
    "  params  the parameter table and its totals\n"
    "  flops   floating-point operations per token, step and run\n"
    "  CONFIG  a file or preset, and keys, as for build/train (build/train --help lists them)\n";

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool memory = !strcmp(what, "memory"), params = !strcmp(what, "params"), flops = !strcmp(what, "flops");
    bool json = false;
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc < 3 && (memory || params || flops || argc < 2)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!memory && !params && !flops)
        die_usage("%s: not a plan (try: plan memory, plan params or plan flops; --help)", what);
    int n = 1;
    argv[1] = argv[0];
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) json = true;
        else argv[1 + n++] = argv[i];
    }
    if (json && !memory) die_usage("--json: only for plan memory");

    static Config cfg;
    static Run run;
    config_defaults(&cfg);
    config_parse(&cfg, n, argv + 1);
    config_resolve(&cfg);
    plan_vocab(&cfg);
    Dev *dev = dev_cpu_create(1);
    plan_open(&run, &cfg, dev);
    if (json) account_print(&run.mem, stdout);
    else if (memory) plan_print_memory(&run, stdout);
    else if (params) plan_print_params(&run, stdout);
    else plan_print_flops(&run, stdout);
    if (fflush(stdout)) die("plan: cannot write the table");
    plan_close(&run);
    dev_cpu_free(dev);
    return 0;
}
