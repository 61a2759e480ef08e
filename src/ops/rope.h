// rope: the angles of rotary positions, and their scaling to contexts longer than that of training.
//
// Pair i of a head of D elements is rotated by pos * f_i, where f_i = theta^(-2i/D), so within a context of L tokens it
// makes r_i = L f_i / 2 pi turns. A context s times as long has positions that training never saw. Pairs that make many
// turns encode distances of a few tokens; pairs that make less than one turn encode where in the context a token is.
//
//   linear   f_i / s                       every position between two that were trained (arXiv 2306.15595)
//   ntk      theta s^(D/(D-2)) for theta   the fastest pair as it was, the slowest divided by s (arXiv 2309.00071, 3.1)
//   yarn     between f_i / s and f_i       by a ramp over i, from where a pair makes `slow` turns in L to where it
//                                          makes `fast`; queries and keys times 0.1 ln s + 1 (the same, 3.2 to 3.4)
//   llama3   the same                      by a ramp over r_i, from `slow` to `fast` (Llama 3.1; arXiv 2407.21783)
//
// YaRN's paper has the ramp over r_i; its code, and all code since, has it over i between whole numbers. It is so here
// too, because other programs must be able to read the weights. Host and device compile the same code.
#ifndef ROPE_H
#define ROPE_H
#include "base/config.h"

#include <math.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define ROPE_INLINE static inline __host__ __device__
#else
#define ROPE_INLINE static inline
#endif

typedef struct {
    float theta;      // base of the frequencies
    RopeKind kind;    // of stretching
    float factor;     // s >= 1
    float original;   // L in tokens; yarn, llama3
    float slow, fast; // turns, slow < fast; yarn, llama3
} Rope;

#define ROPE_PI 3.14159265358979323846

// The (fractional) index of the pair that makes `turns` turns in L tokens.
ROPE_INLINE double rope_pair(const Rope *r, double turns, size_t D)
{
    return (double)D * log((double)r->original / (2 * ROPE_PI * turns)) / (2 * log((double)r->theta));
}

// f_i in radians a token.
ROPE_INLINE double rope_frequency(const Rope *r, size_t i, size_t D)
{
    double theta = r->theta, s = r->factor, stretched = 1; // of the way from f_i to f_i / s
    if (r->kind == ROPE_NTK) theta *= pow(s, (double)D / ((double)D - 2));
    double f = pow(theta, -2.0 * (double)i / (double)D);
    if (r->kind == ROPE_NONE || r->kind == ROPE_NTK) return f;
    if (r->kind == ROPE_YARN) {
        double low = fmax(floor(rope_pair(r, r->fast, D)), 0.0);
        double high = fmin(ceil(rope_pair(r, r->slow, D)), (double)D - 1);
        stretched = ((double)i - low) / (low == high ? 1e-3 : high - low);
    } else if (r->kind == ROPE_LLAMA3) {
        double turns = r->original * f / (2 * ROPE_PI);
        stretched = (r->fast - turns) / ((double)r->fast - r->slow);
    }
    stretched = fmin(fmax(stretched, 0.0), 1.0);
    return (1 - stretched) * f + stretched * (f / s);
}

// What queries and keys are multiplied by: the temperature of attention, which has more keys to spread over.
ROPE_INLINE double rope_amplitude(const Rope *r)
{
    return r->kind == ROPE_YARN ? 0.1 * log((double)r->factor) + 1 : 1;
}

#ifdef __cplusplus
}
#endif
#endif
