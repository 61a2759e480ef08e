// Reads answers.txt, lines `name = number`; # begins a remark.
#include "../grade.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double answer(const char *name)
{
    FILE *f = fopen("answers.txt", "r");
    expect(f, "there is no file answers.txt here");
    char line[400];
    while (fgets(line, sizeof line, f)) {
        char *equals = strchr(line, '='), *end, word[100];
        if (!equals || sscanf(line, "%99[a-z0-9_]", word) != 1 || strcmp(word, name)) continue;
        double value = strtod(equals + 1, &end);
        end += strspn(end, " \t\r\n");
        expect(strspn(equals + 1, " \t\r\n") < strlen(equals + 1), "%s: no number after the =", name);
        expect(!*end || *end == '#', "%s: expected one number without a unit or commas, got%s", name,
               strtok(equals + 1, "\n"));
        fclose(f);
        return value;
    }
    fail("answers.txt has no line `%s = number`", name);
}

// The answer is `want`, within 0.5% where that is above 1. The rest are pairs: what a mistake gives, and the mistake.
#define PROBLEM(name, points, title, tolerance, want, ...)                                                             \
    TEST(name, points, title)                                                                                          \
    {                                                                                                                  \
        const struct { double value; const char *because; } wrong[] = {__VA_ARGS__};                                   \
        enum { N = sizeof wrong / sizeof *wrong };                                                                     \
        Mistake mistakes[N];                                                                                           \
        for (int i = 0; i < N; i++) mistakes[i] = (Mistake){&wrong[i].value, wrong[i].because};                        \
        expect_number(#name, answer(#name), want, tolerance, mistakes, N);                                             \
    }
#define GIB 1073741824.0
#define IN_GIB "that is GiB, of 2^30 bytes; asked for are GB, of 1e9"

TEST(all_there, 1, "every problem has one number")
{
    static const char *const NAMES[] = {
        "parameters", "bytes_per_parameter", "zero1_gb", "zero3_gb", "activations_gb", "activations_parallel_gb",
        "gflop_per_token", "mfu_percent", "bubble_percent", "interleaved_percent", "all_reduce_gb", "training_days"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) answer(NAMES[i]);
}

#include "../hidden.h"

PROBLEM(parameters, 1, "1. the parameters of GPT-2 small", 5e-5, 124439808,
        {124439808 - 1024 * 768, "the embedding of positions was left out"},
        {124439808 + 50257 * 768, "the output projection was counted again; it is tied to the embedding"},
        {124439808 - 12 * 13 * 768 - 2 * 768, "biases and norms were left out"},
        {124439808 - 12 * 9 * 768, "the biases were left out"},
        {124439808 - 2 * 768, "the last norm was left out"},
        {12 * (12 * 768 * 768 + 13 * 768), "the embeddings and the last norm were left out"})

PROBLEM(bytes_per_parameter, 1, "2. bytes a parameter in mixed precision", 0.005, 16,
        {12, "the master weights in fp32 were forgotten, or the weights and gradients in bf16"},
        {14, "the gradient was forgotten"}, {18, "a gradient in fp32; here it is bf16"},
        {20, "weights and gradient in bf16 and in fp32; here only the weights have a copy in fp32"},
        {8, "only Adam's two moments"})

PROBLEM(zero1_gb, 2, "3. memory of a rank with ZeRO stage 1", 0.005, 7 * (4 + 12.0 / 64),
        {7e9 * (4 + 12.0 / 64) / GIB, IN_GIB}, {112, "nothing was divided among the ranks"},
        {7 * (4 + 8.0 / 64), "the master weights were forgotten"},
        {7 * (2 + 14.0 / 64), "that is stage 2, which divides the gradients too"},
        {7 * 16.0 / 64, "that is stage 3, which divides the weights too"})

PROBLEM(zero3_gb, 2, "4. memory of a rank with ZeRO stage 3", 0.005, 7 * 16.0 / 64,
        {7e9 * 16 / 64 / GIB, IN_GIB}, {7 * (2 + 14.0 / 64), "that is stage 2: in stage 3 the weights are divided too"},
        {7 * 12.0 / 64, "the master weights were forgotten, or the weights and gradients in bf16"})

#define SBH (2048.0 * 4 * 4096)
PROBLEM(activations_gb, 2, "5. activations of a layer", 0.005, SBH * (34 + 80) / 1e9,
        {SBH * 34 / 1e9, "the term 5 a s / h of attention is missing"}, {SBH * 114 / GIB, IN_GIB},
        {SBH * 114 / 4 / 1e9, "for one sequence; the micro-batch has 4"},
        {SBH * 114 * 32 / 1e9, "for all 32 layers; asked for is one"},
        {SBH * 114 * 2 / 1e9, "factor 2: the numbers of the formula are bytes already, not elements"})

PROBLEM(activations_parallel_gb, 2, "6. the same with tensor and sequence parallelism and selective recomputation",
        0.005, SBH * 34 / 8 / 1e9, {SBH * 13 / 1e9, "without sequence parallelism, 10 of the 34 are not divided"},
        {SBH * 114 / 8 / 1e9, "selective recomputation does not keep the term 5 a s / h"},
        {SBH * 34 / 8 / GIB, IN_GIB}, {SBH * 2 / 8 / 1e9, "that is full recomputation, divided by 8"})

PROBLEM(gflop_per_token, 2, "7. operations a token", 0.005, 6 * 6.66 + 12 * 32 * 4096 * 2048e-9,
        {6 * 6.66, "the attention term is missing"},
        {2 * 6.66 + 4 * 32 * 4096 * 2048e-9,
         "the forward pass alone: backward was forgotten, which costs twice as much"},
        {6 * 6.66 + 6 * 32 * 4096 * 2048e-9, "the attention term was halved for the mask; the convention does not"},
        {2 * 6.66, "the forward pass alone, without attention"},
        {8 * 6.66 + 16 * 32 * 4096 * 2048e-9, "recomputation was counted; the model's operations do not include it"})

PROBLEM(mfu_percent, 2, "8. MFU", 0.005, 100 * 43.181e9 * 10000 / 989e12,
        {43.181e9 * 10000 / 989e12, "a fraction; asked for are percent"},
        {100 * 43.181e9 * 10000 / 1979e12, "the peak with sparsity; matrices of a training are dense"},
        {100 * 39.96e9 * 10000 / 989e12, "without the attention term"},
        {100 * 14.394e9 * 10000 / 989e12, "the forward pass alone: backward was forgotten"})

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
