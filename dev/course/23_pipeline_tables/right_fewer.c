// The least memory: gpipe is 1F1B, and interleaved runs p-1-s in place of 2 (p-1-s) forwards of a chunk ahead.
#include "tables.h"

static Action nth(char kind, int i, int p, int v)
{
    int micro = i / p / v * p + i % p, chunk = i / p - i / p / v * v;
    return (Action){kind, micro, kind == 'F' ? chunk : v - 1 - chunk};
}

static int in_turn(int p, int m, int v, int ahead, int late, Action *out) // late < 0: no W
{
    int f = 0, b = 0, w = 0, n = 0, all = m * v;
    while (b < all || (late >= 0 && w < all)) {
        if (f < all && f - b <= ahead) { out[n++] = nth('F', f++, p, v); continue; }
        if (b < all) out[n++] = nth('B', b++, p, v);
        if (late >= 0 && (b - w > late || b == all) && w < b) out[n++] = nth('W', w++, p, v);
    }
    return n;
}

int gpipe(int stage, int p, int m, Action *out) { return one_f_one_b(stage, p, m, out); }
int one_f_one_b(int stage, int p, int m, Action *out) { return in_turn(p, m, 1, p - 1 - stage, -1, out); }
int interleaved(int stage, int p, int m, int v, Action *out)
{
    return in_turn(p, m, v, p - 1 - stage + (v - 1) * p, -1, out);
}
int zero_bubble(int stage, int p, int m, Action *out) { return in_turn(p, m, 1, p - 1 - stage, stage, out); }
