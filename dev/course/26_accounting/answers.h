// answers: reads answers.txt, lines `name = number`; # begins a remark.
#ifndef ANSWERS_H
#define ANSWERS_H
#include "../grade.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline double answer(const char *name)
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
#endif
