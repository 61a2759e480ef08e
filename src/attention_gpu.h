// attention_gpu: what the attention kernels share: where a row lies, which keys a query sees, dropout's mask. Layer 2.
//
// Only attention.cu and flash.cu include it. The mask is a function of the element's index (dev.h), drawn here with the
// same Philox4x32-10 as rng_words in rng.c, so both devices drop the same elements.
#ifndef ATTENTION_GPU_H
#define ATTENTION_GPU_H
#ifdef __cplusplus
#include "dev.h"
#include "gpu.h"

// Row (b, t) of head h in q, in out, in k and v; and in the statistics lse and delta (B, H, Tq).
__device__ inline size_t attention_gpu_q(const AttnShape &s, size_t b, size_t h, size_t t)
{
    return (b * s.Tq + t) * s.ldq + h * s.D;
}
__device__ inline size_t attention_gpu_out(const AttnShape &s, size_t b, size_t h, size_t t)
{
    return ((b * s.Tq + t) * s.H + h) * s.D;
}
__device__ inline size_t attention_gpu_kv(const AttnShape &s, size_t b, size_t h, size_t j)
{
    return (b * s.Tk + j) * s.ldkv + h / (s.H / s.G) * s.D;
}
__device__ inline size_t attention_gpu_stat(const AttnShape &s, size_t b, size_t h, size_t t)
{
    return (b * s.H + h) * s.Tq + t;
}

// Query t sees keys first .. end - 1.
__device__ inline int attention_gpu_first(const AttnShape &s, size_t b, size_t t)
{
    return s.first ? s.first[b * s.Tq + t] : 0;
}
__device__ inline int attention_gpu_end(const AttnShape &s, size_t t)
{
    return (int)(s.q_start + t + 1);
}

// What dropout multiplies the probability of query t and key j by: 0 or 1 / (1 - p).
__device__ inline float attention_gpu_keep(const AttnShape &s, size_t b, size_t h, size_t t, size_t j)
{
    uint64_t at = (((s.drop.first + b) * s.H + h) * s.Tq + t) * s.Tk + j, index = at / 4;
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = s.drop.rng.step, c3 = s.drop.rng.name;
    uint32_t k0 = (uint32_t)s.drop.rng.seed, k1 = (uint32_t)(s.drop.rng.seed >> 32);
    GPU_NO_UNROLL // the callers' loops are unrolled
    for (int round = 0; round < 10; round++) {
        uint32_t n0 = __umulhi(0xCD9E8D57u, c2) ^ c1 ^ k0, n2 = __umulhi(0xD2511F53u, c0) ^ c3 ^ k1;
        c1 = 0xCD9E8D57u * c2, c3 = 0xD2511F53u * c0;
        c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    uint32_t word = at % 4 == 0 ? c0 : at % 4 == 1 ? c1 : at % 4 == 2 ? c2 : c3;
    return word >= (uint32_t)((double)s.drop.p * 4294967296.0) ? 1 / (1 - s.drop.p) : 0;
}

// The shape as kernels want it: with its scale. Stops on one that dev.h does not allow.
inline AttnShape attention_gpu_shape(AttnShape s)
{
    bool good = s.D > 0 && s.G > 0 && s.H % s.G == 0 && s.drop.p >= 0 && s.drop.p < 1 && s.q_start + s.Tq <= s.Tk;
    GPU_CHECK(good ? cudaSuccess : cudaErrorInvalidValue);
    if (!(s.scale > 0)) s.scale = 1 / sqrtf((float)s.D);
    return s;
}
#endif
#endif
