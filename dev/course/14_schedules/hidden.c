#define GRADE_HIDDEN
#include "../grade.h"

#include "lr.h"

#include <math.h>

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
