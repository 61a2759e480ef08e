#include "../grade.h"

#include "ddp.h"

#include <stdlib.h>

// Buckets by definition: a parameter begins one where those after it in its bucket leave no room.
static void judge_buckets(int params, const size_t *n, size_t limit)
{
    int *got = malloc((size_t)params * sizeof *got), *want = malloc((size_t)params * sizeof *want), buckets = 0;
    for (int p = 0; p < params; p++) got[p] = -1;
    for (int p = params - 1; p >= 0; p--) {
        size_t sum = n[p];
        for (int o = p + 1; o < params && want[o] == buckets - 1; o++) sum += n[o];
        if (p == params - 1 || sum > limit) buckets++;
        want[p] = buckets - 1;
    }
    int count = make_buckets(params, n, limit, got);
    for (int p = params - 1; p >= 0; p--)
        expect(got[p] == want[p], "%d parameters, limit %zu: parameter %d of %zu elements is in bucket %d; got %d%s",
               params, limit, p, n[p], want[p], got[p],
               p == params - 1 && got[0] == 0 ? ": the last parameter's gradient is ready first, so it is in bucket 0"
               : got[p] < 0 ? ": never set"
               : got[p] < want[p] ? ": the bucket has more elements than the limit"
               : ": it still fits into the bucket of the one after it");
    expect(count == buckets, "%d parameters, limit %zu: there are %d buckets; got %d", params, limit, buckets, count);
}

// What happened on a rank: the time is the number of gradients that are ready.
typedef struct {
    Ddp *d; // all that the answer is given of this
    int now, starts, *started; // (buckets): the time; -1: not yet
    int *ready_at;             // (params): params + 1: at the end
} Rank;

static Rank *running;

void ddp_start(void *arg, int b)
{
    Rank *r = running;
    expect(arg == r->d->arg, "ddp_start got another arg than that of Ddp");
    expect(b >= 0 && b < r->d->buckets, "bucket %d was started; there are buckets 0 to %d", b, r->d->buckets - 1);
    expect(r->started[b] < 0, "bucket %d was started twice in a step", b);
    expect(b == r->starts, "bucket %d was started where bucket %d is next: another rank may start them in another "
           "order, and every rank waits", b, r->starts);
    r->starts++, r->started[b] = r->now;
    for (int p = 0; p < r->d->params; p++) {
        if (r->d->bucket_of[p] != b) continue;
        bool unused = r->ready_at[p] > r->d->params;
        expect(r->ready_at[p] <= r->now, "bucket %d was started when the gradient of parameter %d was not ready", b, p);
        for (size_t i = 0; i < r->d->n[p]; i++)
            expect(r->d->grad[p][i] == (unused ? 0 : (float)(p + 1)), "bucket %d is started with %g in the gradient of "
                   "parameter %d; expected %d%s", b, r->d->grad[p][i], p, unused ? 0 : p + 1,
                   unused ? ": it was not used, and holds the last step's" : "");
    }
}

static Rank *rank_new(int params, const size_t *n, int buckets, const int *bucket_of)
{
    Rank *r = calloc(1, sizeof *r);
    size_t P = (size_t)params, B = (size_t)buckets;
    r->d = malloc(sizeof(Ddp));
    *r->d = (Ddp){.params = params, .buckets = buckets, .n = n, .bucket_of = bucket_of, .arg = malloc(1)};
    r->d->grad = calloc(P, sizeof *r->d->grad), r->d->ready = malloc(P * sizeof *r->d->ready);
    r->d->missing = malloc(B * sizeof *r->d->missing), r->started = malloc(B * sizeof *r->started);
    r->ready_at = malloc(P * sizeof *r->ready_at);
    for (int p = 0; p < params; p++) r->d->ready[p] = true, r->d->grad[p] = equal_floats(n[p], 77);
    for (int b = 0; b < buckets; b++) r->d->missing[b] = 5;
    r->d->next = 3;
    return r;
}

// Backward with gradients in this order; the rest of the parameters is not used.
static void step(Rank *r, const int *order, int used)
{
    Ddp *d = r->d;
    for (int p = 0; p < d->params; p++) r->ready_at[p] = d->params + 1;
    for (int b = 0; b < d->buckets; b++) r->started[b] = -1;
    for (int i = 0; i < used; i++) r->ready_at[order[i]] = i + 1;
    running = r, r->now = r->starts = 0;
    ddp_begin(d);
    for (int i = 0; i < used; i++) {
        for (size_t e = 0; e < d->n[order[i]]; e++) d->grad[order[i]][e] = (float)(order[i] + 1);
        r->now = i + 1;
        ddp_ready(d, order[i]);
    }
    r->now = d->params + 1;
    ddp_end(d);
    int could = 0;
    for (int b = 0; b < d->buckets; b++) {
        for (int p = 0; p < d->params; p++)
            if (d->bucket_of[p] == b && r->ready_at[p] > could) could = r->ready_at[p];
        expect(r->started[b] >= 0, "bucket %d was never started: the other ranks wait for it%s", b,
               could > d->params ? "; it has a parameter that was not used" : "");
        expect(r->started[b] <= could, "bucket %d could start with gradient %d of %d, and was started %s%s", b, could,
               used, r->started[b] > d->params ? "at the end of backward" : "with a later one",
               r->started[b] > d->params ? ": its sum is not hidden" : "");
    }
}

static void judge_steps(int params, int buckets, int steps, bool shuffle, bool unused)
{
    size_t *n = malloc((size_t)params * sizeof *n);
    int *of = malloc((size_t)params * sizeof *of), *order = malloc((size_t)params * sizeof *order);
    uint64_t seed = 11;
    for (int p = 0; p < params; p++)
        n[p] = 1 + (size_t)random_below(&seed, 3), of[p] = (params - 1 - p) * buckets / params;
    Rank *r = rank_new(params, n, buckets, of);
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < params; i++) order[i] = params - 1 - i;
        for (int i = params - 1; shuffle && i > 0; i--) {
            int o = (int)random_below(&seed, (uint64_t)i + 1), was = order[i];
            order[i] = order[o], order[o] = was;
        }
        for (int i = 0; unused && i < params / 2; i++) { // the last of the order are not used
            int o = (int)random_below(&seed, (uint64_t)params), was = order[params - 1];
            order[params - 1] = order[o], order[o] = was;
        }
        step(r, order, unused ? params - 1 - (int)random_below(&seed, (uint64_t)params) : params);
    }
}

TEST(buckets, 2, "buckets of five parameters") { judge_buckets(5, (size_t[]){4, 2, 3, 6, 1}, 6); }
TEST(overlap, 2, "each bucket starts with its last gradient") { judge_steps(6, 3, 1, false, false); }
TEST(order, 1, "gradients in another order: buckets still start in theirs") { judge_steps(8, 4, 4, true, false); }
TEST(not_used, 2, "parameters that are not used") { judge_steps(8, 4, 1, false, true); }

#include "../hidden.h"

TEST(limits, 1, "limits from 1 element to all")
{
    size_t n[9] = {5, 100, 1, 1, 1, 20, 3, 0, 7};
    for (size_t limit = 1; limit < 150; limit++) judge_buckets(9, n, limit);
    judge_buckets(1, n, 2);
}

TEST(many, 1, "many orders") { judge_steps(30, 7, 50, true, false); }

TEST(steps, 1, "steps that leave out other parameters each time")
{
    judge_steps(12, 5, 60, true, true);
    judge_steps(1, 1, 5, false, true);
}
