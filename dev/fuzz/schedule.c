// Fuzzes the reader of pipeline schedules, the checker that proves them, and the writer of files.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline_check.h"
#include "parallel/pipeline_table.h"

void fuzz_seeds(void)
{
    const PipelineSchedule schedule[] = {PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZB_V};
    for (int i = 0; i < 3; i++) {
        char path[300], bytes[8192];
        PipelineTable *t = pipeline_table_make(schedule[i], 2, 4, 0);
        snprintf(path, sizeof path, "%s/%s", fuzz_dir(), pipeline_table_name(schedule[i]));
        pipeline_table_write(t, path);
        FILE *f = fopen(path, "rb");
        size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
        if (f) fclose(f);
        fuzz_seed(pipeline_table_name(schedule[i]), bytes, n);
        pipeline_table_free(t);
    }
}

void fuzz_one(const uint8_t *data, size_t n)
{
    char why[400] = "", out[300];
    PipelineProof proof;
    PipelineTable *t = pipeline_table_read(fuzz_file("x.csv", data, n));
    bool sound = pipeline_check(t, &proof, why, sizeof why);
    fuzz_check(sound || *why);
    snprintf(out, sizeof out, "%s/out.csv", fuzz_dir());
    pipeline_table_write(t, out);
    fuzz_must_take();
    PipelineTable *again = pipeline_table_read(out);
    fuzz_check(again->p == t->p && again->m == t->m && again->v == t->v && again->split == t->split);
    for (int s = 0; s < t->p; s++) fuzz_check(again->n[s] == t->n[s]);
    fuzz_check(pipeline_check(again, &proof, why, sizeof why) == sound);
    pipeline_table_free(again);
    pipeline_table_free(t);
}
