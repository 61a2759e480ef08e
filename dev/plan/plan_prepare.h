// plan_prepare: what the preparation of a large corpus takes, from the measured work of a small one.
#ifndef PLAN_PREPARE_H
#define PLAN_PREPARE_H
#include <stdbool.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

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

enum { PLAN_PREPARE_STAGES = 7 };

typedef struct {
    const char *name;
    bool begins_again;     // after a failure, from its beginning; otherwise at the unit that was not finished
    double work;           // seconds of one core, measured; 0: the log has no such stage
    double bytes, docs;    // that go in, of the log's corpus
    double reads, writes;  // times `bytes`: of files
    double sent;           // bytes of messages, of the log's corpus
} PlanPrepareStage;

typedef struct {
    PlanPrepareStage stage[PLAN_PREPARE_STAGES];
    double documents, bytes, tokens; // read, before any stage; after all stages
} PlanPrepareSample;

// Dies, with one line, when the log is not that of a whole preparation on several ranks.
PlanPrepareSample plan_prepare_read(const PlanPrepare *p);
// Seconds that `seconds` of work take when one of the hosts fails every `mean` seconds: from the beginning each time,
// or with `again` seconds to do again. `restart` seconds after each failure.
double plan_prepare_expected(double seconds, double mean, double restart, bool begins_again, double again);
void plan_prepare_print(const PlanPrepare *p, bool json, bool explain, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
