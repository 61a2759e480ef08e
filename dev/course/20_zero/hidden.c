#define GRADE_HIDDEN
#include "../grade.h"

void judge_range(size_t n, int N); // of tests.c
void judge_buckets(int N, size_t n, size_t bucket, int times);
void judge_plan(int units);

TEST(all_ranges, 2, "shards of 0 to 40 elements over 1 to 9 ranks")
{
    for (size_t n = 0; n <= 40; n++)
        for (int N = 1; N <= 9; N++) judge_range(n, N);
}

TEST(uneven, 2, "padded shards, small and large buckets, two micro-batches")
{
    judge_buckets(3, 25, 7, 2);
    judge_buckets(4, 25, 1, 1);
    judge_buckets(5, 1003, 1003, 1);
}

TEST(few, 2, "ranks that own nothing, and a single rank")
{
    judge_buckets(6, 3, 2, 1);
    judge_buckets(4, 9, 2, 1); // shards of 3, 3, 3 and nothing
    judge_buckets(1, 9, 4, 2);
}

TEST(all_plans, 3, "the plans of 1 to 30 units")
{
    for (int units = 1; units <= 30; units++) judge_plan(units);
}
