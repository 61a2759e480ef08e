#define GRADE_HIDDEN
#include "../grade.h"

void judge_reshard(int M, int N, size_t total); // of tests.c
void judge_columns(int M, int N, size_t rows, size_t cols);
void judge_errors(int which);

TEST(many, 3, "1 to 16 ranks loaded by 1 to 12, no more read than is needed")
{
    for (int M = 1; M <= 16; M++)
        for (int N = 1; N <= 12; N++) judge_reshard(M, N, 53);
    judge_reshard(9, 9, 5); // some have nothing
}

TEST(many_columns, 2, "columns that cross the pieces in every row")
{
    for (int M = 1; M <= 8; M++)
        for (int N = 1; N <= 5; N++) judge_columns(M, N, 7, 5);
}

TEST(edges, 3, "errors at the edges of slices, and none for what other ranks read") { judge_errors(3); }
