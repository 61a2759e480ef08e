#define GRADE_HIDDEN
#include "../grade.h"

void pipe_judge(int which, int p, int m, int v); // of tests.c

TEST(all_forward_sizes, 1, "gpipe of 1 to 6 stages and 1 to 8 micro-batches")
{
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 8; m++) pipe_judge(0, p, m, 1);
}

TEST(in_turn_sizes, 3, "one_f_one_b of 1 to 8 stages and 1 to 12 micro-batches")
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 12; m++) pipe_judge(1, p, m, 1);
}

TEST(chunks_sizes, 2, "interleaved of 2 to 5 stages and 2 to 4 chunks")
{
    for (int p = 2; p <= 5; p++)
        for (int rounds = 1; rounds <= 3; rounds++)
            for (int v = 2; v <= 4; v++) pipe_judge(2, p, rounds * p, v);
}

TEST(split_sizes, 3, "zero_bubble of 1 to 8 stages and up to 16 micro-batches")
{
    for (int p = 1; p <= 8; p++)
        for (int m = p; m <= 16; m++) pipe_judge(3, p, m, 1);
}
