// pipeline_case: for the tests of pipelines: every size that is tested, and tables as words. Include it after cmocka.h.
#ifndef PIPELINE_CASE_H
#define PIPELINE_CASE_H
#include "parallel/pipeline_table.h"

#include <stdio.h>
#include <string.h>

enum { CASE_STAGES = 8, CASE_MICRO = 32, CASE_CHUNKS = 4 };

// All published tables up to 8 stages, 32 micro-batches and 4 chunks; interleaved where it is defined.
// Returns how many.
static inline int each_table(void (*test)(const PipelineTable *t, void *arg), void *arg)
{
    int n = 0;
    for (int k = 0; k < PIPELINE_USER; k++)
        for (int p = 1; p <= CASE_STAGES; p++)
            for (int m = 1; m <= CASE_MICRO; m++)
                for (int v = 1; v <= CASE_CHUNKS; v++) {
                    bool loops = k == PIPELINE_INTERLEAVED;
                    if (loops ? v == 1 || m % p : v != pipeline_table_chunks((PipelineSchedule)k)) continue;
                    PipelineTable *t = pipeline_table_make((PipelineSchedule)k, p, m, v);
                    test(t, arg);
                    pipeline_table_free(t);
                    n++;
                }
    return n;
}

// A stage in words: "F0a F0b B0b B0a"; without the letters where there is one chunk.
static inline const char *words(const PipelineTable *t, int stage, char *out, size_t n_out)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < t->n[stage] && n + 1 < n_out; i++) {
        const PipelineAction *a = &t->action[stage][i];
        char chunk[2] = {t->v > 1 ? (char)('a' + a->chunk) : 0, 0};
        n += (size_t)snprintf(out + n, n_out - n, "%s%s%d%s", i ? " " : "", pipeline_table_op(a->op), a->micro,
                              chunk);
    }
    return out;
}
#endif
