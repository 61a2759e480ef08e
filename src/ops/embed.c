// embed: token and position embedding, on the CPU.
//
//   out[n] = tokens.weight[token[n]] + positions.weight[pos[n]];  dwte[token[n]] += dout[n],  dwpe[pos[n]] += dout[n]
//
// A token below 0 is in another rank's part of the table (tp.h). Its row is zero, with no position, so that the
// rank that has the token adds both in one place, as one rank alone does, and the sum over ranks only adds zeros.
//
// The invariant: backward adds rows in ascending n for every channel. Threads share out channels, not
// rows, so a token that occurs often needs neither atomics nor sorting, and the bits do not depend on
// the number of threads.
#include "ops/dev_cpu.h"

#include <string.h>

enum { STRIP = 64 };

static void embed_forward(Dev *dev, X *out_, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe,
                          size_t N, size_t C)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        float *out = (float *)out_ + n * C;
        if (token[n] < 0) {
            memset(out, 0, C * sizeof *out);
            continue;
        }
        const float *t = (const float *)wte + (size_t)token[n] * C;
        const float *p = wpe ? (const float *)wpe + (size_t)pos[n] * C : NULL;
        for (size_t c = 0; c < C; c++) out[c] = p ? t[c] + p[c] : t[c];
    }
}

static void embed_backward(Dev *dev, float *dwte, float *dwpe, const X *dout_, const int32_t *token,
                           const int32_t *pos, size_t N, size_t C, size_t V)
{
    (void)V;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t c0 = 0; c0 < C; c0 += STRIP) {
        size_t w = C - c0 < STRIP ? C - c0 : STRIP;
        for (size_t n = 0; n < N; n++) {
            const float *dout = (const float *)dout_ + n * C + c0;
            float *dt = token[n] < 0 ? NULL : dwte + (size_t)token[n] * C + c0;
            float *dp = dwpe ? dwpe + (size_t)pos[n] * C + c0 : NULL;
            for (size_t c = 0; dt && c < w; c++) dt[c] += dout[c];
            for (size_t c = 0; dp && c < w; c++) dp[c] += dout[c];
        }
    }
}

void embed_cpu_fill(Dev *dev)
{
    dev->embed_forward = embed_forward;
    dev->embed_backward = embed_backward;
}
