#define GRADE_HIDDEN
#include "../grade.h"

#include "scaling.h"

#include <math.h>

TEST(limits, 1, "the scale stays between 1 and 2^24, or as it is with interval 0")
{
    float w[1] = {3}, g[1] = {1};
    double norm;
    LossScale most = {SCALE_MOST, 1, 0}, least = {2, 1, 0}, fixed = {1, 0, 0};
    scaled_step(&most, w, g, 1, 0, 0, &norm);
    double above = 2 * SCALE_MOST;
    expect_number("the scale of 2^24 after a good step, interval 1", most.scale, SCALE_MOST, 0,
                  (Mistake[]){{&above, "the scale has an upper limit, SCALE_MOST"}}, 1);
    g[0] = NAN;
    Step step = scaled_step(&least, w, g, 1, 1, 0, &norm);
    expect(step == STEP_SKIPPED, "an overflow at scale 2: STEP_SKIPPED was expected");
    expect_number("the scale of 2 after an overflow", least.scale, 1, 0, NULL, 0);
    g[0] = NAN;
    step = scaled_step(&least, w, g, 1, 1, 0, &norm);
    expect(step == STEP_FAILED, "an overflow at scale 1: %s came, STEP_FAILED was expected: the scale is not the cause",
           step == STEP_MADE ? "STEP_MADE" : "STEP_SKIPPED");
    expect(least.scale == 1, "an overflow at scale 1: the scale became %g; 1 is the least", (double)least.scale);
    g[0] = NAN;
    step = scaled_step(&fixed, w, g, 1, 1, 0, &norm);
    expect(step == STEP_SKIPPED,
           "interval 0 and an overflow at scale 1: STEP_SKIPPED was expected: a fixed scale never fails");
    fixed.scale = 64;
    g[0] = INFINITY;
    scaled_step(&fixed, w, g, 1, 1, 0, &norm);
    expect_number("a fixed scale of 64 (interval 0) after an overflow", fixed.scale, 64, 0, NULL, 0);
    for (int t = 0; t < 3; t++) g[0] = 1, scaled_step(&fixed, w, g, 1, 0, 0, &norm);
    expect_number("a fixed scale of 64 (interval 0) after three good steps", fixed.scale, 64, 0, NULL, 0);
    expect_number("the weight after all this, with lr 0 or overflows", w[0], 3, 0, NULL, 0);
}

TEST(own_scale, 1, "a gradient is divided by the scale that it was made with")
{
    LossScale s = {4, 1, 0};
    float w[1] = {0};
    double norm, late = -0.5 * 6;
    for (int t = 0; t < 6; t++) {
        float g[1] = {s.scale};
        if (t == 3) g[0] = INFINITY;
        scaled_step(&s, w, g, 1, 1, 0, &norm);
    }
    double late5 = -0.5 * 5;
    expect_number("the weight after five steps of 1 and one overflow, interval 1", w[0], -5, 0,
                  (Mistake[]){{&late, "divided by the new scale"},
                              {&late5, "divided by the doubled scale; that one is for the next gradient"}}, 2);
}

TEST(huge, 1, "finite gradients whose squares do not fit into a float; and tiny ones")
{
    LossScale s = {65536, 100, 0};
    float w[2] = {0, 0}, g[2] = {3e30f, 4e30f}, tiny[2] = {3e-30f, 4e-30f}, v[2] = {0, 0};
    double norm = NAN;
    Step step = scaled_step(&s, w, g, 2, 1, 1, &norm);
    expect(step == STEP_MADE,
           "the gradient (3e30, 4e30) is finite, but the step was skipped: its squares overflow in float");
    expect_array("weights of 0 after the gradient (3e30, 4e30), clip 1, lr 1", w, (double[]){-0.6, -0.8}, 1, 2, 1e-5,
                 (Mistake[]){{(double[]){0, 0}, "the norm is infinite: its squares overflow in float"}}, 1);
    expect_number("its norm, in units of 1e25", norm / 1e25, 5e30 / 65536 / 1e25, 1e-5, NULL, 0);
    scaled_step(&s, v, tiny, 2, 1e30f, 0, &norm);
    double want[2] = {-3. / 65536, -4. / 65536};
    expect_array("weights of 0 after the gradient (3e-30, 4e-30), lr 1e30", v, want, 1, 2, 1e-9, NULL, 0);
}
