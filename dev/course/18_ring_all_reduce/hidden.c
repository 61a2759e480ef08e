#define GRADE_HIDDEN
#include "../grade.h"

#include "ring.h"

void hidden_traffic(int N, size_t n); // of tests.c

TEST(odd, 1, "1,003 elements over seven ranks, within the bytes")
{
    hidden_traffic(7, 1003);
    hidden_traffic(5, 13);
}
TEST(fewer, 2, "fewer elements than ranks, none, and one rank, which sends nothing")
{
    hidden_traffic(6, 2);
    hidden_traffic(3, 0);
    hidden_traffic(1, 10);
}
TEST(many, 1, "16 ranks") { hidden_traffic(16, 100); }
