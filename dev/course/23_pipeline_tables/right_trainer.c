// The trainer's own tables.
#include "tables.h"

#include "parallel/pipeline_table.h"

static int stage_of(PipelineTable *t, int stage, Action *out)
{
    int n = t->n[stage];
    for (int i = 0; i < n; i++)
        out[i] = (Action){"FBW"[t->action[stage][i].op], t->action[stage][i].micro, t->action[stage][i].chunk};
    pipeline_table_free(t);
    return n;
}

int gpipe(int stage, int p, int m, Action *out)
{
    return stage_of(pipeline_table_make(PIPELINE_GPIPE, p, m, 1), stage, out);
}

int one_f_one_b(int stage, int p, int m, Action *out)
{
    return stage_of(pipeline_table_make(PIPELINE_1F1B, p, m, 1), stage, out);
}

int interleaved(int stage, int p, int m, int v, Action *out)
{
    return stage_of(pipeline_table_make(PIPELINE_INTERLEAVED, p, m, v), stage, out);
}

int zero_bubble(int stage, int p, int m, Action *out)
{
    return stage_of(pipeline_table_make(PIPELINE_ZB_H1, p, m, 1), stage, out);
}
