// pipeline_time: when each action of a pipeline's table runs.
//
// Times are in any unit, as long as it is one. A timeline may come from here or from the clock of a real run:
// what reads it does not ask.
#ifndef PIPELINE_TIME_H
#define PIPELINE_TIME_H
#include "parallel/pipeline_table.h"

#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// Of one action, that is of one chunk. In a table that does not split, a B lasts b + w. p2p: from the end of
// an action to its output's arrival on another stage; nothing within a stage. exchange: communication inside F and B
// (the all_to_alls of experts) beside which the stage computes on, as far as it has work. It counts as if it came after
// the action's own computation, and a stage does one at a time. Without such overlap it is a part of f and b. Handed
// over by address: gcc 12 with AVX-512 makes {1, 1, 1, 1} of a literal {1, 1, 1, 0} that is passed by value.
typedef struct {
    double f, b, w, p2p, exchange;
} PipelineTimes;

typedef struct {
    int stage;
    PipelineAction action;
    double start, end, ready; // ready: its exchange is over, so its output is there
} PipelineSpan;

// Spans by stage, in the order in which they run: those of stage s are begin[s] .. begin[s + 1] - 1.
typedef struct {
    int p;
    PipelineSpan *span;
    size_t begin[PIPELINE_MAX_STAGES + 1];
} PipelineTimeline;

// What an action takes of these times.
double pipeline_time_lasts(const PipelineTable *t, const PipelineTimes *times, PipelineOp op);
// Plays the table from time 0: every action as early as its stage and its input allow. False where
// no stage can advance; then `why` says which stage waits for which. An action missing from the table is never found:
// pipeline_check finds that first. Freed with pipeline_time_free in either case.
bool pipeline_time_run(PipelineTimeline *out, const PipelineTable *t, const PipelineTimes *times, char *why,
                       size_t n_why);
void pipeline_time_free(PipelineTimeline *line);

double pipeline_time_length(PipelineTimeline const *line);         // from the first start to the last end
double pipeline_time_busy(const PipelineTimeline *line, int stage); // sum of its spans
double pipeline_time_span(const PipelineTimeline *line, int stage); // from its first start to its last end
// The bubble: the share of the length in which a stage idles; the mean over stages.
double pipeline_time_bubble(const PipelineTimeline *line);
// The same within the stages' own spans: starting late and ending early do not count. The largest of the
// stages. This is what a zero-bubble schedule brings to zero; the rest hides behind the neighbouring steps
// unless steps wait for each other.
double pipeline_time_gaps(const PipelineTimeline *line);

#ifdef __cplusplus
}
#endif
#endif
