#define RANKS_BODY
#include "../ranks.h"

#include "../grade.h"

#include "ring.h"

#include <math.h>

typedef struct {
    size_t n;
    float *x[64];
} Job;

static void body(Link *link, void *arg)
{
    Job *job = arg;
    ring_all_reduce(link, job->x[link_rank(link)], job->n);
}

// Draws the ranks' arrays, runs the answer, and compares every rank with the sums in double.
static void sums(int N, size_t n, LinkCount *count)
{
    Job job = {.n = n};
    LinkCount own_count[64];
    size_t sent = 0, least = 2 * (size_t)(N - 1) * n * sizeof(float);
    if (!count) count = own_count;
    double *want = calloc(n + 1, sizeof *want), *own = calloc(n + 1, sizeof *own), *mean = calloc(n + 1, sizeof *mean);
    float *first[64];
    for (int r = 0; r < N; r++) {
        job.x[r] = random_floats(n, 7 + (uint64_t)r), first[r] = random_floats(n, 7 + (uint64_t)r);
        for (size_t i = 0; i < n; i++) want[i] += first[r][i];
    }
    for (size_t i = 0; i < n; i++) mean[i] = want[i] / N;
    ranks_run(N, body, &job, count);
    for (int r = 0; r < N; r++) sent += count[r].bytes;
    bool added = N == 1 || n == 0;
    for (size_t i = 0; i < n * (size_t)N; i++) {
        bool copy = false;
        for (int r = 0; r < N; r++) copy = copy || job.x[i / n][i % n] == first[r][i % n];
        added = added || !copy;
    }
    if (!added && memcmp(job.x[0], first[0], n * sizeof(float)))
        fail("%d ranks: each element, on all ranks, is that of a single rank: nothing was added, or the sums were "
             "overwritten", N);
    for (int r = 0; r < N; r++) {
        char what[96];
        snprintf(what, sizeof what, "the sum of %zu elements over %d ranks, on rank %d", n, N, r);
        for (size_t i = 0; i < n; i++) own[i] = first[r][i];
        for (size_t i = 0; i < n && sent && sent < least; i++)
            if (!(fabs(job.x[r][i] - want[i]) <= 1e-6 * N))
                fail("%s, element %zu: expected %.6g, got %.6g; all ranks together sent %zu bytes, and a sum needs "
                     "2 (N-1) n floats, %zu bytes: link_send counts bytes, not elements; or a step is missing", what, i, want[i],
                     job.x[r][i], sent, least);
        expect_array(what, job.x[r], want, 1, n, 1e-6 * N,
                     (Mistake[]){{own, "it is still the rank's own array: nothing was added"},
                                 {mean, "this is the mean, not the sum"}}, N > 1 ? 2 : 0);
        for (size_t i = 0; i < n; i++)
            if (job.x[r][i] != job.x[0][i])
                fail("element %zu is %.9g on rank 0 and %.9g on rank %d: all ranks need the same bits", i, job.x[0][i],
                     job.x[r][i], r);
    }
}

static void traffic(int N, size_t n)
{
    LinkCount count[64];
    sums(N, n, count);
    size_t most = 2 * (size_t)(N - 1) * ((n + (size_t)N - 1) / (size_t)N) * sizeof(float);
    for (int r = 0; r < N; r++)
        if (count[r].bytes > most)
            fail("%d ranks, %zu floats: rank %d sends %zu bytes; 2 (N-1) chunks of n/N floats are %zu bytes%s", N, n, r,
                 count[r].bytes, most, count[r].bytes >= (size_t)(N - 1) * n * sizeof(float)
                 ? ": it sends the whole array to each of the others" : "");
}

TEST(two, 1, "the sum over two ranks") { sums(2, 2, NULL); }
TEST(four, 2, "the sum over four ranks of an array of 8 elements") { sums(4, 8, NULL); }
TEST(bytes, 2, "each of four ranks sends 2 (N-1)/N n elements") { traffic(4, 400); }
TEST(uneven, 1, "five elements over three ranks") { sums(3, 5, NULL); }

#include "../hidden.h"

TEST(odd, 1, "1,003 elements over seven ranks, within the bytes")
{
    traffic(7, 1003);
    traffic(5, 13);
}
TEST(fewer, 2, "fewer elements than ranks, none, and one rank, which sends nothing")
{
    traffic(6, 2);
    traffic(3, 0);
    traffic(1, 10);
}
TEST(many, 1, "16 ranks") { traffic(16, 100); }
