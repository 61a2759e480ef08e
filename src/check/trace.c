// trace: records one update of a pipeline and writes trace.json: the stages of rank 0's model. See observers.h.
//
// The invariant: the recorded schedule is the one that runs; recording only adds a barrier before the update. (Each
// stage's times are of its own machine's clock.)
#include "src/check/observers.h"

#include "src/check/pipeline_draw.h"
#include "parallel/ranks.h"

#include <stdio.h>

static Pipeline *traced(const Run *run, long step)
{
    const Ranks *ranks = ranks_of(&run->replicas);
    return ranks && step + 1 == run->cfg.run.trace ? ranks->pipeline : NULL;
}

static void before(void *self, Run *run, long step)
{
    Pipeline *pipeline = traced(run, step);
    (void)self;
    if (pipeline) pipeline_record(pipeline, NULL);
}

static void gradients(void *self, Run *run, long step, const StepResult *result)
{
    char path[700];
    Pipeline *pipeline = traced(run, step);
    (void)self, (void)result;
    if (!pipeline) return;
    PipelineTimeline line = pipeline_timeline(pipeline);
    snprintf(path, sizeof path, "%s/trace.json", run->dir);
    if (run->replicas.rank == 0) pipeline_draw_trace(&line, 1e6, path);
    progress_note(run->progress, "trace    %s: update %ld, %.1f%% of the stages' time idle (ui.perfetto.dev opens it)",
                  path, step + 1, 100 * pipeline_time_bubble(&line));
    pipeline_time_free(&line);
    pipeline->recording = false;
}

Observer trace_observer(void)
{
    return (Observer){.before = before, .gradients = gradients};
}
