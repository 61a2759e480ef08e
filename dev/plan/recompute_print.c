// recompute_print: what each mode of recomputation costs and saves, beside what the textbooks say. See recompute.h.
//
// Bytes are counted, not computed: each mode's buffers are asked for from a door that hands out no memory, and
// compared with the formula; the program ends when they differ. Operations come from the formula, which
// test_recompute compares with the operations that really run.
//
// The textbook: recomputing everything repeats forward, 2 P of the 6 P operations a token, +33%; segments of
// sqrt(L) layers keep 2 sqrt(L) layers' worth instead of L.
#include "base/check.h"
#include "net/model.h"

#include <math.h>
#include <stdlib.h>

static void print_mode(const ModelShape *s, Dev *dev, Mem door, size_t B, size_t T, const char *name,
                       RecomputePolicy policy, size_t none_bytes, FILE *out)
{
    Params params;
    Unit *unit;
    model_describe(s, &params, &unit);
    RecomputePool pool = recompute_pool(s->layers, true, policy);
    Activations acts = model_activations(&pool, 0, unit, params.n_units, dev, s, &door, B, T);
    size_t n_bytes = door.tag_bytes[MEM_ACTS], formula = recompute_bytes(s, dev, policy, B, T), L = s->layers;
    if (n_bytes != formula)
        die("recompute: %s: the buffers hold %zu bytes, the formula says %zu (a bug of the program)", name, n_bytes,
            formula);
    size_t segment = acts.segment, again = segment ? (L + segment - 1) / segment * segment - segment : 0;
    double extra = recompute_extra_flops(s, policy, T) / model_flops_per_token(s, T);
    fprintf(out, "%-18s %8zu %8zu %16zu %7.1f%% %7zu %7.1f%%\n", name, segment ? segment : L,
            segment ? (L + segment - 1) / segment + segment : L + 1, n_bytes,
            100.0 * (double)n_bytes / (double)none_bytes, again, 100 * extra);
    mem_free_all(&door);
    model_activations_free(&acts);
    recompute_pool_free(&pool);
    params_free(&params);
    free(unit);
}

void recompute_print(const ModelShape *s, Dev *dev, const Mem *counting, size_t B, size_t T, FILE *out)
{
    Mem door = {.raw_alloc = counting->raw_alloc, .raw_free = counting->raw_free};
    size_t L = s->layers, none = recompute_bytes(s, dev, (RecomputePolicy){0}, B, T);
    RecomputePolicy sqrt_policy = {.mode = RECOMPUTE_SQRT};
    fprintf(out, "%zu layers, micro-batches of %zu x %zu tokens, %zu bytes an activation\n\n", L, B, T, dev->x_bytes);
    fprintf(out, "%-18s %8s %8s %16s %8s %7s %8s\n", "mode", "sets", "streams", "bytes", "of none", "again",
            "+ FLOPs");
    for (int compress = 0; compress < 2; compress++) {
        const struct {
            const char *name[2];
            RecomputePolicy policy;
        } row[] = {
            {{"none", "int8"}, {.mode = RECOMPUTE_NONE}},
            {{"selective", "selective, int8"}, {.mode = RECOMPUTE_SELECTIVE}},
            {{"every 2", "every 2, int8"}, {.mode = RECOMPUTE_EVERY, .every = 2}},
            {{"sqrt", "sqrt, int8"}, sqrt_policy},
            {{"full", "full, int8"}, {.mode = RECOMPUTE_FULL}},
        };
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            RecomputePolicy policy = row[i].policy;
            policy.compress = compress;
            print_mode(s, dev, door, B, T, row[i].name[compress], policy, none, out);
        }
    }
    double layers = 2 * sqrt((double)L) / (double)L;
    fprintf(out, "\nTextbook: sqrt keeps 2 sqrt(L) = %.1f layers of %zu, %.1f%%; running forward twice is +33.3%%.\n",
            2 * sqrt((double)L), L, 100 * layers);
    fprintf(out, "Here sqrt is segments of %zu blocks; the last segment is not run again, nor the last projection\n"
                 "of a block whose output is kept.\n", recompute_segment(sqrt_policy, L));
}
