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
