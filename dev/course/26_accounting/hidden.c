#define GRADE_HIDDEN
#include "answers.h"

PROBLEM(bubble_percent, 1, "9. the bubble of 1F1B", 0.005, 100 * 7.0 / 39, {100 * 7.0 / 32,
        "relative to the time without a bubble, not to all of the time"},
        {7.0 / 39, "a fraction; asked for are percent"}, {100 * 8.0 / 40, "p - 1 slots stand idle, not p"})

PROBLEM(interleaved_percent, 1, "10. the bubble with 4 chunks a stage", 0.005, 100 * 7.0 / 135,
        {100 * 7.0 / 128, "relative to the time without a bubble, not to all of the time"},
        {100 * 7.0 / 39, "chunks make the bubble smaller"}, {7.0 / 135, "a fraction; asked for are percent"},
        {100 * 7.0 / 39 / 4,
         "the idle time is divided by 4; the share of all time is not exactly, as that shrinks too"})

PROBLEM(all_reduce_gb, 2, "11. traffic of an all_reduce", 0.005, 14 * 2 * 63.0 / 64,
        {14 * 63.0 / 64, "factor 2: that is the reduce_scatter alone; the all_gather sends as much again"},
        {14, "the size of the gradient; a ring sends nearly twice that"},
        {28, "without the factor (n - 1) / n"}, {56 * 63.0 / 64, "a gradient in fp32; here it is bf16"},
        {14e9 * 2 * 63 / 64 / GIB, IN_GIB}, {14 * 2 * 63, "of all ranks together; asked for is one"})

#define DAYS (43.181e9 * 2e12 / (1024 * 989e12 * 0.4) / 86400)
PROBLEM(training_days, 2, "12. days of a training", 0.005, DAYS,
        {DAYS / 3, "the forward pass alone: backward was forgotten"},
        {DAYS * 0.4, "as if the MFU were 100%"}, {DAYS * 24, "hours; asked for are days"},
        {DAYS * 39.96 / 43.181, "without the attention term"}, {DAYS * 1024, "with one GPU; there are 1024"})
