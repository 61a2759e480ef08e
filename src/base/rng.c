// rng: Philox4x32-10 as a function of (seed, name, step, index). See rng.h.
//
// The invariant: nothing here has state. Two calls with the same arguments give the same bits, on any
// rank, thread and machine and in any order. So a run can be divided over ranks, resumed, or replayed on another
// device, and no generator state is saved or sent.
//
// Rejected: xorshift or PCG streams (a position in a stream depends on who drew before), and hashing the
// index with a fast mixer (no published test results; Philox passes BigCrush).
#include "base/rng.h"

#include <math.h>
#include <string.h>

static uint32_t fnv1a(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

Rng rng_make(uint64_t seed, const char *name, uint32_t step)
{
    return (Rng){.seed = seed, .name = fnv1a(name), .step = step};
}

void rng_words(Rng rng, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = rng.step, c3 = rng.name;
    uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u; // the golden ratio and sqrt(3) - 1: Weyl sequences of the key
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

enum { LANES = 8 };
typedef uint64_t Lanes __attribute__((vector_size(8 * LANES))); // one register of AVX-512, or several smaller ones

// One counter a lane. A word is the lower half of its lane; what the upper half holds is never used.
static void words_of_lanes(Rng rng, uint64_t index, uint32_t out[4 * LANES])
{
    const Lanes low = (Lanes){0} + 0xffffffffu, at = (Lanes){0, 1, 2, 3, 4, 5, 6, 7} + index;
    Lanes c0 = at, c1 = at >> 32, c2 = (Lanes){0} + rng.step, c3 = (Lanes){0} + rng.name;
    uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        Lanes p0 = (c0 & low) * 0xD2511F53u, p1 = (c2 & low) * 0xCD9E8D57u;
        c0 = p1 >> 32 ^ c1 ^ k0, c2 = p0 >> 32 ^ c3 ^ k1;
        c1 = p1, c3 = p0;
    }
    for (int i = 0; i < LANES; i++)
        out[4 * i] = (uint32_t)c0[i], out[4 * i + 1] = (uint32_t)c1[i], out[4 * i + 2] = (uint32_t)c2[i],
                out[4 * i + 3] = (uint32_t)c3[i];
}

void rng_words_many(Rng rng, uint64_t index, size_t n, uint32_t *out)
{
    uint32_t last[4 * LANES];
    for (; n >= LANES; n -= LANES, index += LANES, out += 4 * LANES) words_of_lanes(rng, index, out);
    if (n == 0) return;
    words_of_lanes(rng, index, last);
    memcpy(out, last, n * 4 * sizeof *out);
}

uint64_t rng_u64(Rng rng, uint64_t index)
{
    uint32_t w[4];
    rng_words(rng, index, w);
    return (uint64_t)w[1] << 32 | w[0];
}

double rng_uniform(Rng rng, uint64_t index)
{
    return (double)(rng_u64(rng, index) >> 11) * 0x1p-53;
}

uint64_t rng_below(Rng rng, uint64_t index, uint64_t n)
{
    return (uint64_t)((unsigned __int128)rng_u64(rng, index) * n >> 64);
}

double rng_normal(Rng rng, uint64_t index)
{
    uint32_t w[4];
    rng_words(rng, index, w);
    uint64_t a = (uint64_t)w[1] << 32 | w[0], b = (uint64_t)w[3] << 32 | w[2];
    double u = ((double)(a >> 11) + 1) * 0x1p-53; // in (0, 1]: log is finite
    double v = (double)(b >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

// A balanced Feistel network on 2k bits, the smallest 2k with 2^2k >= n, is a bijection of [0, 2^2k). Applying it again
// until the value is below n (cycle walking) makes it a bijection of [0, n). On average that takes fewer than 4
// applications.
uint64_t rng_permute(Rng rng, uint64_t i, uint64_t n)
{
    int half = 1;
    while (half < 32 && (1ull << (2 * half)) < n) half++;
    uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ (rng_u64(rng, round << 32 | right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
