#include "../grade.h"

#include "scaling.h"

#include <math.h>

TEST(unscaled, 1, "the gradient is divided by the scale")
{
    LossScale s = {1024, 100, 0};
    float w[2] = {1, 1}, g[2] = {2 * 1024, -1024};
    double norm = NAN;
    Step step = scaled_step(&s, w, g, 2, 0.125f, 0, &norm);
    expect(step == STEP_MADE, "a finite gradient: STEP_MADE was expected");
    double want[2] = {0.75, 1.125};
    expect_array("weights of 1 after the gradient 1024 * (2, -1), scale 1024, lr 0.125", w, want, 1, 2, 1e-6,
                 (Mistake[]){{(double[]){1 - 256, 1 + 128}, "the gradient was not divided by the scale"},
                             {(double[]){1 - 256. * 1024, 1 + 128. * 1024}, "multiplied by the scale"},
                             {(double[]){1, 1}, "no update was made"},
                             {(double[]){1.25, 0.875}, "the step goes uphill"}}, 4);
    double scaled = 1024 * sqrt(5), square = 5;
    expect_number("the norm", norm, sqrt(5), 1e-6,
                  (Mistake[]){{&scaled, "the norm of the scaled gradient"}, {&square, "the root is missing"}}, 2);
}

TEST(clipped, 2, "clipping comes after unscaling")
{
    LossScale s = {1024, 100, 0};
    float w[2] = {0, 0}, g[2] = {3 * 1024, 4 * 1024}, short_one[2] = {0.3f * 1024, 0.4f * 1024};
    double norm = NAN, d = 1024;
    scaled_step(&s, w, g, 2, 1, 1, &norm);
    expect_array("weights of 0 after the gradient 1024 * (3, 4), clip 1, lr 1", w, (double[]){-0.6, -0.8}, 1, 2, 1e-5,
                 (Mistake[]){{(double[]){-0.6 / d, -0.8 / d}, "clipped before it was divided by the scale"},
                             {(double[]){-3, -4}, "not clipped"},
                             {(double[]){-3 / d / 5, -4 / d / 5}, "clipped before it was divided by the scale"},
                             {(double[]){-15, -20}, "multiplied by norm / clip"}}, 4);
    expect_number("the norm", norm, 5, 1e-6, NULL, 0);
    w[0] = w[1] = 0;
    scaled_step(&s, w, short_one, 2, 1, 1, &norm);
    expect_array("weights of 0 after the gradient 1024 * (0.3, 0.4), clip 1", w, (double[]){-0.3, -0.4}, 1, 2, 1e-5,
                 (Mistake[]){{(double[]){-0.6, -0.8}, "a short gradient was made longer"},
                             {(double[]){-0.6 / d, -0.8 / d}, "clipped before it was divided by the scale"}}, 2);
}

TEST(skipped, 2, "a gradient with an infinite or a NaN element is skipped")
{
    static const char *const what[4] = {"infinity first", "infinity last", "NaN in the middle",
                                         "-infinity and infinity"};
    for (int i = 0; i < 4; i++) {
        float g[3] = {1, 2, 3}, w[3] = {1, 2, 3};
        g[i == 1 ? 2 : i == 2 ? 1 : 0] = i == 2 ? NAN : INFINITY;
        if (i == 3) g[1] = -INFINITY;
        LossScale s = {256, 100, 0};
        double norm, same = 256, twice = 512;
        Step step = scaled_step(&s, w, g, 3, 1, 1, &norm);
        for (int e = 0; e < 3; e++)
            expect(w[e] == (float)(e + 1), "%s: weight %d was changed from %d to %g; the step must be skipped before "
                   "any weight changes", what[i], e, e + 1, (double)w[e]);
        expect(step == STEP_SKIPPED, "%s: STEP_SKIPPED was expected, not %s", what[i],
               step == STEP_MADE ? "STEP_MADE" : "STEP_FAILED");
        expect_number("the scale of 256 after an overflow", s.scale, 128, 0,
                      (Mistake[]){{&same, "the scale was not halved"}, {&twice, "the scale was doubled"}}, 2);
    }
}

TEST(growth, 2, "the scale over ten steps, of which steps 5 and 6 overflow")
{
    enum { STEPS = 10 };
    LossScale s = {64, 3, 0};
    float got[STEPS];
    for (int t = 0; t < STEPS; t++) {
        float w[1] = {0}, g[1] = {t == 5 || t == 6 ? INFINITY : 1};
        double norm;
        scaled_step(&s, w, g, 1, 0, 0, &norm);
        got[t] = s.scale;
    }
    expect_array("the scale after steps 0 to 9, from 64, interval 3", got,
                 (double[]){64, 64, 128, 128, 128, 64, 32, 32, 32, 64}, 1, STEPS, 0,
                 (Mistake[]){{(double[]){64, 64, 128, 128, 128, 64, 32, 64, 64, 64},
                              "an overflow must begin the count again"},
                             {(double[]){64, 64, 64, 128, 128, 64, 32, 32, 32, 32}, "doubled after interval + 1 steps"},
                             {(double[]){64, 128, 128, 256, 256, 128, 64, 64, 128, 128},
                              "doubled after interval - 1 steps"},
                             {(double[]){64, 64, 128, 256, 512, 256, 128, 128, 128, 256},
                              "doubling must begin the count again"},
                             {(double[]){64, 64, 128, 128, 128, 128, 128, 128, 128, 256}, "the scale is never halved"},
                             {(double[]){64, 64, 64, 64, 64, 32, 16, 16, 16, 16}, "the scale is never doubled"}}, 6);
}

#include "../hidden.h"

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
