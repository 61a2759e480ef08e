// test_published: the plan against the runs that papers report: each within 15% of the reported number, except two
// that are named here; the median within 8%; and each of those added after the constants were fixed within 12%.
#include "test/test.h"

#include "dev/plan/plan_show.h"

static PublishedGuess guess[100];

static int guess_all(void **state)
{
    (void)state;
    if (published_count() > 100) return -1;
    for (int i = 0; i < published_count(); i++) guess[i] = published_guess(published_run(i));
    return 0;
}

// Rows that miss, as doc/published.md says, and by how much at most.
static double allowed(const PublishedRun *r)
{
    if (r->held_out) return 0.12;
    return !strncmp(r->name, "LLaMA-2", 7) ? 0.25 : 0.15; // its hours
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(test_errors)
{
    double size[100];
    int n = published_count(), missed = 0, held_out = 0;
    assert_true(n >= 30 && n <= 100);
    for (int i = 0; i < n; i++) {
        const PublishedRun *r = published_run(i);
        PublishedGuess g = guess[i];
        size[i] = fabs(g.error);
        if (!(size[i] <= allowed(r)))
            fail_msg("%s on %d %s: predicted %.4g %s, reported %.4g", r->name, r->gpus, r->machine, g.predicted,
                     published_unit(r->unit), r->reported);
        missed += size[i] > 0.15;
        held_out += r->held_out;
    }
    qsort(size, (size_t)n, sizeof *size, by_size);
    assert_true(missed <= 2 && held_out >= 16);
    assert_true(size[n / 2] <= 0.08);
}

// The rows are complete, and every layout that a paper gives is one that the plan accepts.
TEST(test_rows)
{
    for (int i = 0; i < published_count(); i++) {
        const PublishedRun *r = published_run(i);
        char why[400];
        PublishedGuess g = guess[i];
        assert_true(r->name && strlen(r->source) > 10 && r->reported > 0 && r->batch > 0);
        assert_int_equal(plan_layout_check(&g.job, false, why, sizeof why), PLAN_LAYOUT_FITS);
        if (r->tp) assert_true(g.job.layout.tp == r->tp && g.job.layout.pp == r->pp);
        if (r->micro) assert_int_equal(g.job.layout.micro, r->micro);
        if (!r->tp || (!r->chunks && r->pp > 1) || !r->micro) assert_non_null(r->assumed); // said in the table
        assert_true(r->unit != PUBLISHED_HOURS || r->tokens > 0);
    }
}

// 174.6 and 1008 billion parameters, by the shapes of the rows.
TEST(test_sizes)
{
    for (int i = 0; i < published_count(); i++) {
        const PublishedRun *r = published_run(i);
        double named = atof(r->name + strcspn(r->name, "0123456789")), P = 0;
        PublishedGuess g = guess[i];
        if (strncmp(r->name, "GPT ", 4)) continue;
        g.job.layout = plan_layout_default();
        P = (double)plan_layout_params(&g.job, 0) / 1e9;
        if (!(fabs(P - named) <= 0.051 + 0.01 * named)) // printed with one decimal, or none
            fail_msg("%s has %.1f billion", r->name, P);
    }
}

TESTS(guess_all, NULL)
