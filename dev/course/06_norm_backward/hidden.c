#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

TEST(in_place, 1, "dx may be the array dy")
{
    for (int center = 0; center < 2; center++) {
        Case s = make_case(4, 16, center, 1, 0.25f, 5);
        float *dx = equal_floats(64, 0), *dw = equal_floats(16, -2), *db = equal_floats(16, -2);
        memcpy(dx, s.dy, 64 * sizeof *dx);
        run_case(&s, dx, dw, db, dx);
        expect_dx(&s, dx, center ? "LayerNorm where dx and dy are one array (is dy read after dx is written?), dx"
                                 : "RMSNorm where dx and dy are one array (is dy read after dx is written?), dx", 1e-4);
        expect_dw(&s, dw, -2);
        if (center) expect_db(&s, db, -2);
    }
}

TEST(small_variance, 1, "rows of small variance, where eps counts")
{
    for (int center = 0; center < 2; center++) {
        Case s = make_case(2, 16, center, 0.004f, 0, 6);
        float *dx = equal_floats(32, 7), *dw = equal_floats(16, 1), *db = equal_floats(16, 1);
        run_case(&s, dx, dw, db, s.dy);
        expect_dx(&s, dx, "dx of a row of variance 5e-6, eps 1e-5", 3e-3); // rstd is 250
        expect_dw(&s, dw, 1);
    }
}

TEST(shapes, 1, "rows of 1, 2 and 65 elements")
{
    for (int i = 0; i < 6; i++) {
        size_t C = (size_t[]){1, 2, 65}[i / 2], N = i / 2 == 1 ? 1 : 7;
        Case s = make_case(N, C, i % 2, 1, 0.5f, 7 + (uint64_t)i);
        float *dx = equal_floats(N * C, 7), *dw = equal_floats(C, 1), *db = equal_floats(C, 1);
        run_case(&s, dx, dw, db, s.dy);
        expect_dx(&s, dx, i % 2 ? "dx of LayerNorm" : "dx of RMSNorm", C == 2 ? 1e-3 : 1e-4);
        expect_dw(&s, dw, 1);
        if (i % 2) expect_db(&s, db, 1);
    }
}
