#include "answers.h"

TEST(all_there, 1, "every problem has one number")
{
    static const char *const NAMES[] = {
        "parameters", "bytes_per_parameter", "zero1_gb", "zero3_gb", "activations_gb", "activations_parallel_gb",
        "gflop_per_token", "mfu_percent", "bubble_percent", "interleaved_percent", "all_reduce_gb", "training_days"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) answer(NAMES[i]);
}
