#define GRADE_HIDDEN
#include "../grade.h"

void tp_whole(int N, int T, int C, int F); // of tests.c: everything

TEST(one, 2, "one rank has the whole MLP") { tp_whole(1, 3, 4, 6); }
TEST(six, 3, "six ranks, 7 tokens, 5 channels, 18 hidden") { tp_whole(6, 7, 5, 18); }
TEST(thin, 3, "a column a rank") { tp_whole(8, 2, 3, 8); }
TEST(large, 2, "four ranks, 33 tokens, 20 channels, 64 hidden") { tp_whole(4, 33, 20, 64); }
