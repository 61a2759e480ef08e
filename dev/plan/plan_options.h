// plan_options: the command line of the plans that are about machines: which job, on what, cut how.
#ifndef PLAN_OPTIONS_H
#define PLAN_OPTIONS_H
#include "base/config.h"
#include "dev/plan/layout_search.h"
#include "dev/plan/plan_for.h"
#include "dev/plan/plan_prepare.h"

#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Config cfg;
    const char *config;          // the configuration's file or preset; NULL: none was given
    PlanJob job;
    LayoutSearchFree is_free;    // what the command line leaves open
    bool json, explain;
    double price, tokens;        // dollars an accelerator hour; of the run
    // seconds: a checkpoint, a restart; between failures (0: by plan_time_between_failures)
    double save, restart, mean;
    double interval;             // seconds of training between checkpoints; 0: Daly's
    double budget, params, served, loss, mfu; // plan scaling; 0: not given, but for mfu
    double jitter, days;
    uint64_t seed;
    const char *write;           // a file for the found layout's settings
    PlanPrepare prepare;
    PlanFor model;               // plan for
} PlanOptions;

// The options that plan_options_read knows, as text for --help.
extern const char *const plan_options_help;
// argv as build/plan got it; argv[1] is the plan's name. Dies, with one line, for what it does not know or cannot be.
// needs_config: a configuration must be given, and the job is made of it; else none may be. An option that has no
// effect on the plan is an error.
void plan_options_read(PlanOptions *o, int argc, char **argv, bool needs_config);

#ifdef __cplusplus
}
#endif
#endif
