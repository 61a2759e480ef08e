// pipeline_tool: schedules of a pipeline for a page of the book: tables, proof and times are those of build/pipeline.
#include "base/check.h"
#include "parallel/pipeline_check.h"
#include "parallel/pipeline_table.h"
#include "parallel/pipeline_time.h"

#include <math.h>

#define EXPORT(name) __attribute__((export_name(name)))

static PipelineTimeline line;
static double result[6]; // length, bubble, gaps, activations of a stage's share, sends, chunks

// The schedule's number is that of its name in pipeline_table.h. v 0: what it needs. Times are of a whole stage.
EXPORT("compute") double *compute(int schedule, int p, int m, int v, double f, double b, double w, double p2p)
{
    char why[1600];
    PipelineTable *t = pipeline_table_make((PipelineSchedule)schedule, p, m, v);
    PipelineProof proof;
    const PipelineTimes times = {f / t->v, b / t->v, w / t->v, p2p, 0};
    int held = 0, sent = 0;
    if (!pipeline_check(t, &proof, why, sizeof why) || !pipeline_time_run(&line, t, &times, why, sizeof why)) die("%s", why);
    for (int i = 0; i < p; i++) {
        held = proof.held[i] > held ? proof.held[i] : held;
        sent += proof.sent[i];
    }
    result[0] = pipeline_time_length(&line);
    result[1] = pipeline_time_bubble(&line);
    result[2] = pipeline_time_gaps(&line);
    result[3] = held / (double)t->v;
    result[4] = sent;
    result[5] = t->v;
    return result;
}

EXPORT("spans") int spans(void)
{
    return (int)line.begin[line.p];
}

// stage, op, micro-batch, chunk, start, end
EXPORT("span") double *span(int i)
{
    static double out[6];
    const PipelineSpan *s = &line.span[i];
    out[0] = s->stage, out[1] = s->action.op, out[2] = s->action.micro, out[3] = s->action.chunk;
    out[4] = s->start, out[5] = s->end;
    return out;
}
