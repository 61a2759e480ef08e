#define GRADE_HIDDEN
#include "../grade.h"

void judge_blocks(int Tq, int Tk, int D, int block, int q_first, int k_first, float large, bool backward); // of tests.c
void judge_ring(int N, int T, int D);

TEST(large, 2, "scores of several hundred")
{
    judge_blocks(3, 9, 4, 3, 9, 0, 800, false);
    judge_blocks(3, 9, 4, 3, 9, 0, 800, true);
}

TEST(unseen, 2, "queries that see no key of a block")
{
    judge_blocks(4, 4, 3, 2, 10, 12, 2, true);
    judge_blocks(4, 6, 3, 1, 2, 0, 2, true);
    judge_blocks(4, 7, 3, 3, 5, 1, 2, false);
}

TEST(many_ranks, 3, "the output on 5 ranks, and a token a rank, within the bytes")
{
    judge_ring(5, 15, 3);
    judge_ring(8, 8, 2);
}

TEST(one_rank, 1, "one rank")
{
    judge_ring(1, 6, 4);
}
