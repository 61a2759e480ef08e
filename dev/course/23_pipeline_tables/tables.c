#include "tables.h"

int gpipe(int stage, int p, int m, Action *out)
{
    //[
    //+ (void)stage, (void)p, (void)m, (void)out; // write this
    //+ return 0;
    (void)stage, (void)p;
    for (int k = 0; k < m; k++) out[k] = (Action){'F', k, 0}, out[m + k] = (Action){'B', k, 0};
    return 2 * m;
    //]
}

int one_f_one_b(int stage, int p, int m, Action *out)
{
    //[
    //+ (void)stage, (void)p, (void)m, (void)out; // write this
    //+ return 0;
    int n = 0, ahead = p - 1 - stage < m ? p - 1 - stage : m;
    for (int k = 0; k < ahead; k++) out[n++] = (Action){'F', k, 0};
    for (int k = 0; k < m; k++) {
        if (ahead + k < m) out[n++] = (Action){'F', ahead + k, 0};
        out[n++] = (Action){'B', k, 0};
    }
    return n;
    //]
}

int interleaved(int stage, int p, int m, int v, Action *out)
{
    //[
    //+ (void)stage, (void)p, (void)m, (void)v, (void)out; // write this
    //+ return 0;
    int n = 0, all = m * v, ahead = 2 * (p - 1 - stage) + (v - 1) * p;
    if (ahead > all) ahead = all;
    for (int i = 0; i < all + ahead; i++) { // F number i, then B number i - ahead
        int b = i - ahead; // p micro-batches with chunk 0, the same p with chunk 1, ...
        if (i < all) out[n++] = (Action){'F', i / (p * v) * p + i % p, i / p % v};
        if (b >= 0) out[n++] = (Action){'B', b / (p * v) * p + b % p, v - 1 - b / p % v};
    }
    return n;
    //]
}

int zero_bubble(int stage, int p, int m, Action *out)
{
    //[
    //+ (void)stage, (void)p, (void)m, (void)out; // write this
    //+ return 0;
    int n = 0, ahead = p - 1 - stage;
    for (int k = 0; k < ahead; k++) out[n++] = (Action){'F', k, 0};
    for (int k = 0; k < m + stage; k++) {
        if (ahead + k < m) out[n++] = (Action){'F', ahead + k, 0};
        if (k < m) out[n++] = (Action){'B', k, 0};
        if (k >= stage) out[n++] = (Action){'W', k - stage, 0}; // late by as many as the stage held less than stage 0
    }
    return n;
    //]
}
