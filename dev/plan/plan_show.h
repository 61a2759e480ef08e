// plan_show: what is printed beyond the run's own bytes: options, reports, and plans that are tables or simulations.
#ifndef PLAN_SHOW_H
#define PLAN_SHOW_H
#include "base/config.h"
#include "dev/plan/plan_job.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// ---- report: one list of results, printed for people or as JSON, with the formulas on request.

typedef struct Report Report;

// explain: every value is followed by its formula, in letters and in numbers.
Report *report_begin(FILE *out, bool json, bool explain);
// A heading; in JSON an object of that key, which holds all that follows until the next one.
void report_section(Report *r, const char *key);
// A number. formula (a printf format, NULL: none) is how it came to be, with the numbers put in.
void report_value(Report *r, const char *key, double value, const char *unit, const char *formula, ...)
    __attribute__((format(printf, 5, 6)));
void report_text(Report *r, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
// A table: its columns, then rows with a format for each, "%s" of a word or one of a double, with | between them. In
// JSON an array of objects.
void report_table(Report *r, const char *key, const char *columns, ...) __attribute__((format(printf, 3, 4)));
void report_row(Report *r, const char *formats, ...) __attribute__((format(printf, 2, 3)));
// Writes what is left (JSON all at once) and frees; dies when that fails.
void report_end(Report *r);

// ---- plan_for: a model for a text and some minutes on this machine. It is the rule of "make run TEXT=FILE MINUTES=M".

typedef struct {
    double bytes, minutes; // of text; of training
    double peak;           // FLOP/s that large products reach on all cores; 0: measured, in a second
} PlanFor;

// Prints the model and why, a line each; the last one has the settings that make it of the preset text.
void plan_for_print(const PlanFor *f, FILE *out);

// ---- plan_prepare: what the preparation of a large corpus takes, from the measured work of a small one.

// What is not measured. 0 in `mean`: as LLaMA-3's hosts of 8 accelerators; in `bands`: of 128 permutations and 0.8.
typedef struct {
    const char *log;                  // a file: what `mpiexec -n N build/prepare RECIPE.toml` printed, N > 1
    double tokens;                    // of the whole corpus, after everything
    int hosts, cores;                 // cores of a host
    double io, ram;                   // bytes/s between a host and the file system; bytes of memory of a host
    int parts;                        // the corpus is prepared in so many equal parts, one after another
    int bands;                        // of [dedup]
    double unit;                      // bytes: recipe.unit
    double restart, mean;             // seconds: after a failure; between failures of one host
    double price;                     // dollars an hour of a host; 0: not printed
} PlanPrepare;

// Seconds that `seconds` of work take when one of the hosts fails every `mean` seconds: from the beginning each time,
// or with `again` seconds to do again. `restart` seconds after each failure.
double plan_prepare_expected(double seconds, double mean, double restart, bool begins_again, double again);
void plan_prepare_print(const PlanPrepare *p, bool json, bool explain, FILE *out);

// ---- plan_options: the command line of the plans that are about machines: which job, on what, cut how.

// What the command line says of the layout; -1 and NULL: it is left open.
typedef struct {
    int gpus, tp, pp, cp, dp, ep, vpp, zero, shard, micro, batch;
    bool sp, no_sp;
    const char *gpu, *price, *schedule, *recompute, *attention, *overlap, *link, *links;
} PlanGiven;

typedef struct {
    PlanGiven given;
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
    int seed;
    const char *write;           // a file for the found layout's settings
    PlanPrepare prepare;
    PlanFor model;               // plan for
} PlanOptions;

// Prints the options that plan_options_read knows.
void plan_options_help(void);
// argv as build/plan got it; argv[1] is the plan's name. Dies, with one line, for what it does not know or cannot be.
// needs_config: a configuration must be given, and the job is made of it; else none may be. An option that has no
// effect on the plan is an error.
void plan_options_read(PlanOptions *o, int argc, char **argv, bool needs_config);

// ---- plan_cluster: weeks of a run on many accelerators, simulated with stragglers, failures and checkpoints.

typedef struct {
    double step;        // seconds, when all nodes are equally fast
    int nodes, gpus;
    double jitter;      // standard deviation of a node's time for a step, relative to the step
    double slow_nodes, slow; // the fraction of nodes that are always slower, and by which fraction
    double mean;        // seconds between failures of the whole cluster; INFINITY: none
    // seconds that a checkpoint stops training, that a restart takes, between checkpoints
    double save, restart, interval;
    double seconds;     // of wall-clock time to simulate
    uint64_t seed;
} PlanCluster;

typedef struct {
    double step;        // mean seconds of a step, with stragglers
    double useful, waiting, saving, again, restarting; // seconds; again: of work done twice
    long steps, failures, checkpoints; // steps: those not lost
    double goodput;     // useful / all
} PlanClusterResult;

PlanCluster plan_cluster_default(void);
// The result depends only on the argument, its seed included.
PlanClusterResult plan_cluster(const PlanCluster *c);

// ---- published: training runs that papers report, and what the plan predicts for them.

// What the paper reports, and which operations it counts.
typedef enum {
    PUBLISHED_STEP,       // seconds of a step
    PUBLISHED_HOURS,      // accelerator hours of the whole run
    PUBLISHED_WALL,       // hours of the whole run
    PUBLISHED_TFLOPS,     // TFLOP/s an accelerator, needed operations with half of T x T
    PUBLISHED_TFLOPS_ALL, // with all of T x T, and a whole second forward (arXiv 2104.04473, equation 3)
    PUBLISHED_TFLOPS_SQUARE, // with all of T x T
    PUBLISHED_MFU_ALL     // percent of the peak, with all of T x T (arXiv 2205.05198, equation 7)
} PublishedUnit;

// What the paper does not say is searched: the plan takes the fastest.
typedef struct {
    const char *name, *source, *machine, *between; // between: link between nodes; NULL: the machine's
    struct {
        size_t layers, channels, heads, kv_heads, ffn, vocab, T; // kv_heads 0: heads; ffn 0: 4 channels
        bool llama, nemotron; // nemotron: rotary positions, no biases, a head of its own, no gate
        size_t experts, active; // networks of width ffn in each layer, of which a token uses so many; 0: one network
    } model;
    long batch;       // sequences
    int gpus, tp, pp; // tp 0: not said, nor is anything else of the layout
    int chunks;       // 0: not said
    int cp, ep;       // 0: 1
    long micro;       // 0: not said
    int zero;
    bool sp;
    bool plain;             // no fused attention, gradients in 2 bytes and not overlapped with backward
    bool eager;             // the code published with it has no fused loops
    bool overlap_tp;        // matmuls in pieces, which hide a tp group's sums
    RecomputeMode recompute;
    double tokens;    // of the whole run, for hours
    PublishedUnit unit;
    double reported;
    bool held_out;    // added after the constants of roofline.c, which were fitted to the other rows
    const char *assumed; // what is not in the source; NULL: nothing
} PublishedRun;

typedef struct {
    PlanJob job;
    PlanTime time;
    double predicted, error; // in the reported unit; predicted / reported - 1
} PublishedGuess;

int published_count(void);
const PublishedRun *published_run(int i);
PublishedGuess published_guess(const PublishedRun *run);
const char *published_unit(PublishedUnit unit);
// The table as markdown, and below it the median and the largest error.
void published_print(FILE *out);

// ---- guides: the worked numbers of five guides to large-scale pretraining, computed again and judged.
//
// A row has the guide's values, ours, and sometimes ours under another reading of the guide's words. The verdict
// follows from these alone (guides_verdict):
//
//     agrees   each of ours is within the row's tolerance of the guide's
//     loose    only under the other reading is that so
//     wrong    neither
//     missing  the guide gives no value, so that ours has nothing to agree with: mostly its formula is lost
//     none     there is nothing to compute: the row has words alone

enum { GUIDES_VALUES = 9, GUIDES_ROWS = 200 };

typedef struct {
    int n;           // 0: there is no value
    bool range;      // v[0] to v[1], one value
    double v[GUIDES_VALUES];
} GuideValues;

typedef struct {
    const char *topic; // the command that shows more, and the chapter
    const char *id, *what, *unit;
    double percent;                     // tolerance, of our value
    GuideValues guide, ours, other;     // other: n 0, there is no other reading
    const char *ours_text, *other_text; // as C; NULL: there is none
    const char *why;                    // what is wrong or loose, or what to know of a row that agrees; NULL: nothing
} GuideRow;

typedef enum { GUIDES_AGREES, GUIDES_LOOSE, GUIDES_WRONG, GUIDES_MISSING, GUIDES_NONE, GUIDES_VERDICTS } GuideVerdict;

// Computes all rows; row has room for GUIDES_ROWS. Returns their number.
int guides_rows(GuideRow *row);
GuideVerdict guides_verdict(const GuideRow *row);
// All rows as markdown (what NULL), those of a guide ("G1"), of a section ("G1-28") or of a verdict ("wrong"); or one
// row ("G1-28-e") with its formula. Dies, with the nearest ids, when there is nothing of that name.
void guides_print(const char *what, FILE *out);
#endif
