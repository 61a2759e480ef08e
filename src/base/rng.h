// rng: the counter random number generator.
//
// A random number is a function of (seed, name, step, index) and of nothing else: not of rank, thread
// or call order. So initial weights, dropout masks, data order and samples are bitwise the same on every
// layout, and any of them can be computed again later or elsewhere.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the 64-bit key is
// the seed; the 128-bit counter is (index: 64 bits, step: 32 bits, hash of the name: 32 bits).
#ifndef RNG_H
#define RNG_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint64_t seed;
    uint32_t name; // FNV-1a hash of the name
    uint32_t step;
} Rng;

Rng rng_make(uint64_t seed, const char *name, uint32_t step);

// Four 32-bit words for counter `index`.
void rng_words(Rng rng, uint64_t index, uint32_t out[4]);
// The same for counters index .. index + n - 1, several at a time in vector registers: out has 4 n words.
void rng_words_many(Rng rng, uint64_t index, size_t n, uint32_t *out);
// 64 random bits; uniform in [0, 1) with 53 bits; an integer in [0, n), n > 0 (bias below n / 2^64).
uint64_t rng_u64(Rng rng, uint64_t index);
double rng_uniform(Rng rng, uint64_t index);
uint64_t rng_below(Rng rng, uint64_t index, uint64_t n);
// Standard normal by Box-Muller from the four words of `index`.
double rng_normal(Rng rng, uint64_t index);

// A random bijection of [0, n) without a table: the image of i, in O(1) time and memory (a Feistel
// network with cycle walking). Shuffles an epoch of any size, from any position.
uint64_t rng_permute(Rng rng, uint64_t i, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
