// test_plan_cluster: simulated time is accounted for to the second; goodput against the formula; the slowest of n nodes
// against the normal distribution's maximum; the same seed gives the same weeks.
#include "test/test.h"

#include "dev/plan/plan_show.h"

static double all(const PlanClusterResult *r)
{
    return r->useful + r->waiting + r->saving + r->again + r->restarting;
}

TEST(test_nothing_is_lost)
{
    for (uint64_t seed = 1; seed < 30; seed++) {
        PlanCluster c = plan_cluster_default();
        c.nodes = 64, c.seed = seed, c.mean = 900.0 * (double)seed, c.interval = 1500, c.save = 40, c.restart = 250;
        c.seconds = 1e6;
        PlanClusterResult r = plan_cluster(&c);
        // A sum of some thousand events, each rounded.
        if (!(fabs(all(&r) - c.seconds) <= 1e-9 * c.seconds)) fail_msg("%.9g of %.9g seconds", all(&r), c.seconds);
        assert_true(r.useful > 0 && r.waiting > 0 && r.again > 0 && r.restarting > 0 && r.failures > 0);
        PlanClusterResult same = plan_cluster(&c);
        assert_memory_equal(&r, &same, sizeof r);
    }
}

TEST(test_no_failures)
{
    PlanCluster c = plan_cluster_default();
    c.jitter = 0, c.slow_nodes = 0, c.seconds = 36300, c.interval = 3600, c.save = 30;
    PlanClusterResult r = plan_cluster(&c);
    assert_int_equal(r.checkpoints, 10);
    assert_true(fabs(r.useful - 36000) <= 1e-9 * 36000 && r.saving == 300 && r.again == 0 && r.waiting == 0);
    assert_int_equal(r.steps, 36000);
}

// Many failures: the mean is the formula's. n failures leave a relative error of about 1 / sqrt(n); four of those.
TEST(test_goodput)
{
    const double saves[] = {10, 60, 200}, means[] = {2000, 10000};
    for (int i = 0; i < 6; i++) {
        PlanCluster c = plan_cluster_default();
        c.jitter = 0, c.slow_nodes = 0, c.save = saves[i % 3], c.mean = means[i / 3], c.restart = 300;
        c.interval = plan_time_daly(c.save, c.mean), c.seconds = 4000 * c.mean, c.seed = (uint64_t)i + 9;
        PlanClusterResult r = plan_cluster(&c);
        double formula = plan_time_goodput(c.interval, c.save, c.restart, c.mean), lost = 1 - formula;
        assert_true(r.failures > 3000);
        if (!(fabs(r.goodput - formula) <= 4 / sqrt((double)r.failures) * lost))
            fail_msg("played %.5f, formula %.5f", r.goodput, formula);
    }
}

// The expected maximum of n normal numbers, by integrating 1 - Phi^n.
static double normal_maximum(double n)
{
    double sum = 0, h = 1e-3;
    for (double z = -8; z < 8; z += h) {
        double phi = 0.5 * erfc(-z / sqrt(2)), p = pow(phi, n);
        sum += h * (z >= 0 ? 1 - p : -p);
    }
    return sum;
}

TEST(test_stragglers)
{
    const int nodes[] = {8, 128, 2048};
    for (int i = 0; i < 3; i++) {
        PlanCluster c = plan_cluster_default();
        c.nodes = nodes[i], c.jitter = 0.01, c.slow_nodes = 0, c.seconds = 1;
        double expected = 1 + 0.01 * normal_maximum(nodes[i]);
        // The mean of 200 maxima, each with a deviation below one jitter: four of 0.01 / sqrt(200).
        assert_true(fabs(plan_cluster(&c).step - expected) <= 4 * 0.01 / sqrt(200));
    }
    PlanCluster c = plan_cluster_default();
    c.nodes = 100, c.jitter = 0, c.slow_nodes = 1, c.slow = 0.25, c.seconds = 1;
    assert_true(fabs(plan_cluster(&c).step - 1.25) <= 1e-12);
}

TESTS(NULL, NULL)
