#define GRADE_HIDDEN
#include "../grade.h"

void judge_route(int T, int E, int k, float large, bool equal, float shift); // of tests.c
void judge_capacity(int T, int E, int k, double factor);
void judge_dispatch(int T, int E, int k, int capacity);
void judge_combine(int T, int k, int D, bool dropped);

TEST(large, 1, "logits around 600 and -600")
{
    judge_route(20, 8, 3, 30, false, 600);
    judge_route(20, 8, 3, 30, false, -600);
}

TEST(equal, 2, "equal logits, one expert, all experts")
{
    judge_route(30, 6, 2, 2, true, 0);
    judge_route(4, 5, 5, 3, false, 0);
    judge_route(4, 1, 1, 3, false, 0);
}

TEST(sizes, 3, "dispatch of many sizes, down to capacity 0")
{
    for (int T = 1; T <= 40; T += 3)
        for (int E = 2; E <= 8; E += 2)
            for (int k = 1; k <= 2; k++)
                for (int capacity = 0; capacity <= T; capacity += 1 + T / 4) judge_dispatch(T, E, k, capacity);
}

TEST(dropped, 2, "gather, combine and backward with dropped choices")
{
    judge_combine(11, 3, 4, true);
    judge_combine(7, 1, 5, true);
    for (int T = 1; T < 9; T++) judge_capacity(T, 3, 2, 1.5);
}
