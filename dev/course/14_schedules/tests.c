#include "../grade.h"

#include "lr.h"

#include <math.h>

// The rates of n steps.
static const float *rates(LrSchedule s, const long *step, int n)
{
    float *r = equal_floats((size_t)n, 0);
    for (int i = 0; i < n; i++) r[i] = (float)learning_rate(&s, step[i]);
    return r;
}

TEST(warmup, 2, "linear warm-up")
{
    for (LrKind kind = LR_COSINE; kind <= LR_INVSQRT; kind++) {
        const float *got = rates((LrSchedule){kind, 8, 0, 4, 50, 100}, (long[]){0, 1, 2, 3}, 4);
        expect_array("steps 0 to 3 of a warm-up of 4 to 8", got, (double[]){2, 4, 6, 8}, 1, 4, 1e-6,
                     (Mistake[]){{(double[]){0, 2, 4, 6},
                                  "peak s / W: the first update would do nothing; take (s + 1) / W"},
                                 {(double[]){0, 0, 0, 8}, "a division of integers"},
                                 {(double[]){0, 8. / 3, 16. / 3, 8},
                                  "peak s / (W - 1): the first update would do nothing"},
                                 {(double[]){8, 8, 8, 8}, "there is no warm-up"},
                                 {(double[]){8, 4, 8. / 3, 2}, "upside down: W / (s + 1)"}}, 5);
    }
}

TEST(cosine, 2, "cosine decay")
{
    const float *got = rates((LrSchedule){LR_COSINE, 1, 0.1, 2, 0, 10}, (long[]){2, 4, 6, 9, 10, 11, 18}, 7);
    double want[7], by_end[7], to_zero[7], restarts[7], linear[7], at[7] = {2, 4, 6, 9, 10, 11, 18};
    for (int i = 0; i < 7; i++) {
        double p = (at[i] - 2) / 8, q = fmin(at[i] / 10, 1), c = (1 + cos(M_PI * fmin(p, 1))) / 2;
        want[i] = 0.1 + 0.9 * c, by_end[i] = 0.1 + 0.9 * (1 + cos(M_PI * q)) / 2, to_zero[i] = c;
        restarts[i] = 0.1 + 0.9 * (1 + cos(M_PI * p)) / 2, linear[i] = 0.1 + 0.9 * (1 - fmin(p, 1));
    }
    expect_array("steps 2, 4, 6, 9, 10, 11, 18 of a cosine from 1 at step 2 to 0.1 at step 10", got, want, 1, 7, 1e-6,
                 (Mistake[]){{by_end, "p = s / E: the decay begins at the end of the warm-up, p = (s - W) / (E - W)"},
                             {to_zero, "the decay goes to 0, not to the least rate"},
                             {restarts, "the rate rises again after the end"},
                             {linear, "the decay is linear"}}, 4);
}

TEST(wsd, 2, "warm-up, stable, decay")
{
    const float *got = rates((LrSchedule){LR_WSD, 1, 0.2, 2, 6, 10}, (long[]){2, 5, 6, 7, 8, 10, 20}, 7);
    expect_array("steps 2, 5, 6, 7, 8, 10, 20 of 1 until step 6, then down to 0.2 at step 10", got,
                 (double[]){1, 1, 1, 0.8, 0.6, 0.2, 0.2}, 1, 7, 1e-6,
                 (Mistake[]){{(double[]){1, 1, 0.8, 0.6, 0.4, 0.2, 0.2},
                              "the decay begins a step early: p = 0 at its start"},
                             {(double[]){1, 0.7, 0.6, 0.5, 0.4, 0.2, 0.2}, "the decay begins after the warm-up"},
                             {(double[]){1, 1, 1, 0.8, 0.6, 0.2, -1.8}, "the rate falls on after the end"},
                             {(double[]){1, 1, 1, 0.75, 0.5, 0.2, 0.2}, "the decay goes to 0, not to the least rate"},
                             {(double[]){1, 1, 1, 0.75, 0.5, 0, 0}, "the decay goes to 0, not to the least rate"},
                             {(double[]){1, 1, 1, 1, 1, 0.2, 0.2}, "a division of integers: p is 0 until the end"}}, 6);
}

TEST(invsqrt, 1, "inverse square root")
{
    const float *got = rates((LrSchedule){LR_INVSQRT, 2, 0.5, 4, 0, 10}, (long[]){3, 4, 15, 63, 399}, 5);
    expect_array("steps 3, 4, 15, 63, 399 with a peak of 2 and a warm-up of 4", got,
                 (double[]){2, 2 * sqrt(4 / 5.), 1, 0.5, 0.2}, 1, 5, 1e-6,
                 (Mistake[]){{(double[]){2, 2, 2 * sqrt(4 / 15.), 2 * sqrt(4 / 63.), 2 * sqrt(4 / 399.)},
                              "sqrt(W / s): step s is update number s + 1"},
                             {(double[]){2, 2 / sqrt(5), 0.5, 0.25, 0.1},
                              "1 / sqrt(s + 1): the curve must begin at the peak"},
                             {(double[]){2, 2 * sqrt(4 / 5.), 1, 0.5, 0.5}, "this schedule has no least rate"},
                             {(double[]){2, 2 * sqrt(4 / 5.), 0.5, 0.5, 0.5}, "this schedule has no end"},
                             {(double[]){2, 1.6, 0.5, 0.125, 0.02}, "the root is missing"},
                             {(double[]){2, 0, 0, 0, 0}, "a division of integers"}}, 6);
}

#include "../hidden.h"

static void at(const char *what, LrSchedule s, long step, double want, const char *mistake)
{
    double got = learning_rate(&s, step);
    expect(!isnan(got), "%s: NaN, expected %g: 0 / 0", what, want);
    expect_number(what, got, want, 1e-9, (Mistake[]){{&got, mistake}}, mistake != NULL);
}

TEST(no_warmup, 1, "no warm-up")
{
    at("cosine without warm-up, step 0", (LrSchedule){LR_COSINE, 1, 0, 0, 0, 4}, 0, 1, NULL);
    at("cosine without warm-up, step 2 of 4", (LrSchedule){LR_COSINE, 1, 0, 0, 0, 4}, 2, 0.5, NULL);
    at("invsqrt without warm-up, step 0", (LrSchedule){LR_INVSQRT, 1, 0, 0, 0, 0}, 0, 1, "1 stands for W = 0");
    at("invsqrt without warm-up, step 3", (LrSchedule){LR_INVSQRT, 1, 0, 0, 0, 0}, 3, 0.5, "1 stands for W = 0");
}

TEST(short_decay, 1, "a decay that ends with the warm-up, or begins in it")
{
    const char *over = "the decay has ended: least", *from = "a decay_start within the warm-up counts as W";
    for (LrKind kind = LR_COSINE; kind <= LR_WSD; kind++) {
        at("a decay that ends at W, last step of the warm-up", (LrSchedule){kind, 1, 0.25, 4, 4, 4}, 3, 1, NULL);
        at("a decay that ends at W, step W", (LrSchedule){kind, 1, 0.25, 4, 4, 4}, 4, 0.25, over);
        at("a decay that ends before W, within the warm-up", (LrSchedule){kind, 1, 0.25, 4, 1, 2}, 2, 0.75,
           "the warm-up comes first");
        at("a decay that ends before W, step W", (LrSchedule){kind, 1, 0.25, 4, 1, 2}, 4, 0.25, over);
    }
    at("wsd with decay_start 0, W = 4, end 8: step 6", (LrSchedule){LR_WSD, 1, 0, 4, 0, 8}, 6, 0.5, from);
    at("wsd with decay_start 0, W = 4, end 8: step 4", (LrSchedule){LR_WSD, 1, 0, 4, 0, 8}, 4, 1, from);
}

TEST(long_runs, 1, "runs of billions of steps, in any order of steps")
{
    LrSchedule s = {LR_WSD, 1, 0, 2000, 4000000000, 5000000000}, c = {LR_COSINE, 1, 0, 2000, 0, 5000002000};
    const char *narrow = "does a step go through an int or a float?";
    at("wsd at step 4,500,000,000, the decay from 4e9 to 5e9 half done", s, 4500000000, 0.5, narrow);
    at("wsd at step 3e9, before the decay", s, 3000000000, 1, narrow);
    at("wsd at step 999 of a warm-up of 2000", s, 999, 0.5, "the rate must not depend on earlier calls");
    at("wsd at step 4,500,000,000 once more", s, 4500000000, 0.5, "the rate must not depend on earlier calls");
    at("cosine at step 2,500,002,000, half of 5e9 after a warm-up of 2000", c, 2500002000, 0.5, narrow);
    at("cosine at step 7e9, after the end", c, 7000000000, 0, narrow);
}
