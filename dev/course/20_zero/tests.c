#define RANKS_BODY
#include "../ranks.h"

#include "../grade.h"

#include "zero.h"

static void judge_range(size_t n, int N)
{
    size_t size = (n + (size_t)N - 1) / (size_t)N, got = shard_size(n, N);
    expect(got == size, "shard_size of %zu elements over %d ranks: expected %zu, got %zu%s", n, N, size, got,
           got == n / (size_t)N ? ": rounded down, so the last elements belong to nobody" : "");
    for (int r = 0; r < N; r++) {
        size_t begin = (size_t)r * size, end = begin + size, b = 77, e = 77;
        begin = begin < n ? begin : n;
        shard_range(n, N, r, &b, &e);
        expect(b == begin && (e == (end < n ? end : n)),
               "%zu elements over %d ranks: rank %d owns %zu to before %zu; got %zu to before %zu%s", n, N, r, begin,
               end < n ? end : n, b, e, e > n ? ": that is padding, beyond the last element" : "");
    }
}

typedef struct {
    size_t n, bucket;
    int times;
    float *grads[16], *own[16];
    size_t sent[16]; // the most floats that a rank may send
} Job;

static void body(Link *link, void *arg)
{
    Job *job = arg;
    int r = link_rank(link);
    for (int t = 0; t < job->times; t++)
        for (size_t end = job->n; end > 0;) { // from the last bucket to the first
            size_t count = (end - 1) % job->bucket + 1;
            float *part = malloc(count * sizeof *part);
            memcpy(part, job->grads[r] + end - count, count * sizeof *part);
            reduce_bucket(link, job->n, end - count, part, count, job->own[r]);
            free(part);
            end -= count;
        }
}

static void judge_buckets(int N, size_t n, size_t bucket, int times)
{
    Job job = {.n = n, .bucket = bucket, .times = times};
    size_t size = (n + (size_t)N - 1) / (size_t)N;
    double *sum = calloc(size * (size_t)N, sizeof *sum), *mine = calloc(size, sizeof *mine);
    double *set = calloc(size, sizeof *set), *mean = calloc(size, sizeof *mean), *want = calloc(size, sizeof *want);
    LinkCount count[16];
    for (int r = 0; r < N; r++) {
        job.grads[r] = random_floats(n, 3 + (uint64_t)r), job.own[r] = equal_floats(size, 4);
        for (size_t i = 0; i < n; i++) sum[i] += job.grads[r][i];
    }
    ranks_run(N, body, &job, count);
    for (int r = 0; r < N; r++) {
        size_t begin = (size_t)r * size, have = begin >= n ? 0 : n - begin < size ? n - begin : size;
        for (size_t i = 0; i < size; i++) {
            double s = i < have ? sum[begin + i] : 0, g = i < have ? job.grads[r][begin + i] : 0;
            want[i] = 4 + times * s, set[i] = i < have ? s : 4, mean[i] = 4 + times * s / N, mine[i] = 4 + times * g;
        }
        char what[128];
        snprintf(what, sizeof what, "%d ranks, %zu elements in buckets of %zu: the shard of rank %d (it held 4s "
                "before)", N, n, bucket, r);
        expect_array(what, job.own[r], want, 1, size, 2e-6 * N * times,
                     (Mistake[]){{set, "the sums were set, not added to what was there"},
                                 {mean, "divided by the number of ranks"},
                                 {mine, "only the rank's own gradients are in it"}}, N > 1 ? 3 : 1);
        size_t most = (size_t)times * (n - have) * sizeof(float);
        expect(count[r].bytes <= most, "%d ranks, %zu elements in buckets of %zu: rank %d sends %zu bytes; "
               "the elements that others own are %zu bytes%s", N, n, bucket, r, count[r].bytes, most,
               count[r].bytes >= (size_t)(N - 1) * n * sizeof(float) ? ": whole buckets go to every rank" : "");
    }
}

static void judge_plan(int units)
{
    Step *plan = calloc((size_t)(4 * units), sizeof *plan);
    int n = stage3_plan(units, plan), holds[2] = {-1, -1}, host = 0, network = 0, ready[2] = {0}, done = 0, gathers = 0;
    bool used[2] = {true, true};
    expect(n >= 0 && n <= 4 * units, "%d units: the plan has %d steps; there is room for %d", units, n, 4 * units);
    for (int i = 0; i < n; i++) {
        Step s = plan[i];
        expect(s.kind == 'G' || s.kind == 'F' || s.kind == 'B', "step %d has kind %d, not G, F or B", i, s.kind);
        expect(s.unit >= 0 && s.unit < units, "%d units: step %d, %c, is of unit %d", units, i, s.kind, s.unit);
        expect(s.slot == 0 || s.slot == 1, "step %d uses slot %d; there are slots 0 and 1", i, s.slot);
        if (s.kind == 'G') {
            expect(used[s.slot], "%d units: step %d gathers unit %d into slot %d, which holds unit %d, not used yet",
                   units, i, s.unit, s.slot, holds[s.slot]);
            holds[s.slot] = s.unit, used[s.slot] = false, gathers++;
            network = ready[s.slot] = (host > network ? host : network) + 1;
            continue;
        }
        int unit = done < units ? done : 2 * units - 1 - done;
        expect(done < 2 * units && unit == s.unit && s.kind == (done < units ? 'F' : 'B'),
               "%d units: step %d is %c of unit %d; the next one to compute is %c of unit %d", units, i, s.kind, s.unit,
               done < units ? 'F' : 'B', unit);
        if (holds[s.slot] != s.unit)
            fail("%d units: step %d computes %c of unit %d in slot %d, which holds %s%d%s", units, i, s.kind, s.unit,
                 s.slot, holds[s.slot] < 0 ? "nothing: " : "unit ", holds[s.slot],
                 s.kind == 'B' ? ": overwritten, or not gathered for backward" : "");
        used[s.slot] = true, done++;
        host = (host > ready[s.slot] ? host : ready[s.slot]) + (s.kind == 'F' ? 1 : 2);
    }
    expect(done == 2 * units, "%d units: %d computations are missing", units, 2 * units - done);
    expect(gathers <= 2 * units, "%d units are gathered %d times; twice each is enough", units, gathers);
    expect(host <= 1 + 3 * units, "%d units: the plan takes %d; expected at most %d%s", units, host, 1 + 3 * units,
           host >= 3 * units + gathers ? ": no gather runs while a unit computes" : ": some gathers are not hidden");
}

TEST(ranges, 3, "shards of 10 elements over 4 ranks, and of 8")
{
    judge_range(10, 4);
    judge_range(8, 4);
}

TEST(within, 3, "a bucket a shard") { judge_buckets(2, 8, 4, 1); }
TEST(across, 2, "buckets across shards, within the bytes") { judge_buckets(4, 24, 10, 1); }
TEST(plan, 3, "the plan of four units") { judge_plan(4); }

#include "../hidden.h"

TEST(all_ranges, 2, "shards of 0 to 40 elements over 1 to 9 ranks")
{
    for (size_t n = 0; n <= 40; n++)
        for (int N = 1; N <= 9; N++) judge_range(n, N);
}

TEST(uneven, 2, "padded shards, small and large buckets, two micro-batches")
{
    judge_buckets(3, 25, 7, 2);
    judge_buckets(4, 25, 1, 1);
    judge_buckets(5, 1003, 1003, 1);
}

TEST(few, 2, "ranks that own nothing, and a single rank")
{
    judge_buckets(6, 3, 2, 1);
    judge_buckets(4, 9, 2, 1); // shards of 3, 3, 3 and nothing
    judge_buckets(1, 9, 4, 2);
}

TEST(all_plans, 3, "the plans of 1 to 30 units")
{
    for (int units = 1; units <= 30; units++) judge_plan(units);
}
