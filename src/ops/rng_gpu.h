// rng_gpu: rng_words of rng.h on the GPU: the same bits.
#ifndef RNG_GPU_H
#define RNG_GPU_H
#ifdef __cplusplus
#include "base/gpu.h"
#include "base/rng.h"

// Philox4x32-10. The four words of counter `index`.
__device__ inline void rng_gpu_words(const Rng &rng, uint64_t index, uint32_t &c0, uint32_t &c1, uint32_t &c2,
                                     uint32_t &c3)
{
    c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = rng.step, c3 = rng.name;
    uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
    GPU_NO_UNROLL // the callers' loops are unrolled
    for (int round = 0; round < 10; round++) {
        uint32_t n0 = __umulhi(0xCD9E8D57u, c2) ^ c1 ^ k0, n2 = __umulhi(0xD2511F53u, c0) ^ c3 ^ k1;
        c1 = 0xCD9E8D57u * c2, c3 = 0xD2511F53u * c0;
        c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

// Dropout keeps an element whose word is at least this (dev.h).
inline __host__ __device__ uint32_t rng_gpu_limit(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}
#endif
#endif
