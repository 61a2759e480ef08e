#define GRADE_HIDDEN
#include "../grade.h"

void judge_buckets(int params, const size_t *n, size_t limit); // of tests.c
void judge_steps(int params, int buckets, int steps, bool shuffle, bool unused);

TEST(limits, 1, "limits from 1 element to all")
{
    size_t n[9] = {5, 100, 1, 1, 1, 20, 3, 0, 7};
    for (size_t limit = 1; limit < 150; limit++) judge_buckets(9, n, limit);
    judge_buckets(1, n, 2);
}

TEST(many, 1, "many orders") { judge_steps(30, 7, 50, true, false); }

TEST(steps, 1, "steps that leave out other parameters each time")
{
    judge_steps(12, 5, 60, true, true);
    judge_steps(1, 1, 5, false, true);
}
