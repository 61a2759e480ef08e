// attention_gpu: what the attention kernels share: where a row lies, which keys a query sees, dropout's mask.
//
// Only attention*.cu and flash.cu include it. The mask is a function of the element's index (dev.h), so both devices
// drop the same elements.
#ifndef ATTENTION_GPU_H
#define ATTENTION_GPU_H
#ifdef __cplusplus
#include "ops/dev.h"
#include "base/gpu.h"
#include "ops/rng_gpu.h"

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

// How many of n rows, of which row i stands at start + i, from `cut` on at start + i + jump, stand before pos.
__device__ inline size_t attention_gpu_before(size_t pos, size_t start, size_t cut, size_t jump, size_t n)
{
    size_t i = pos > start ? pos - start : 0;
    if (jump && i > cut) i = i > cut + jump ? i - jump : cut;
    return i < n ? i : n;
}

// Where query t and key j stand. PART: in a piece of a sequence.
template <bool PART = false> __device__ inline size_t attention_gpu_position(const AttnShape &s, size_t t)
{
    return s.q_start + t + (PART && t >= s.q_cut ? s.q_jump : 0);
}
__device__ inline size_t attention_gpu_key_position(const AttnShape &s, size_t j)
{
    return s.k_start + j + (j >= s.k_cut ? s.k_jump : 0);
}

// Query t sees keys first .. end - 1.
template <bool PART = false> __device__ inline int attention_gpu_first(const AttnShape &s, size_t b, size_t t)
{
    int pos = s.first ? s.first[b * s.Tq + t] : 0;
    return PART ? (int)attention_gpu_before((size_t)pos, s.k_start, s.k_cut, s.k_jump, s.Tk) : pos;
}
template <bool PART = false> __device__ inline int attention_gpu_end(const AttnShape &s, size_t t)
{
    size_t pos = attention_gpu_position<PART>(s, t) + 1;
    return (int)(PART ? attention_gpu_before(pos, s.k_start, s.k_cut, s.k_jump, s.Tk) : pos);
}
// The first query that may see key j.
template <bool PART> __device__ inline size_t attention_gpu_first_query(const AttnShape &s, size_t j)
{
    if (!PART) return j;
    return attention_gpu_before(attention_gpu_key_position(s, j), s.q_start, s.q_cut, s.q_jump, s.Tq);
}

// What dropout multiplies the probability of query t and key j by: 0 or 1 / (1 - p).
template <bool PART = false>
__device__ inline float attention_gpu_keep(const AttnShape &s, size_t b, size_t h, size_t t, size_t j)
{
    size_t Tq = PART ? s.T : s.Tq, Tk = PART ? s.T : s.Tk;
    if (PART) t = attention_gpu_position<true>(s, t), j = attention_gpu_key_position(s, j);
    uint64_t at = (((s.drop.first + b) * s.H + h) * Tq + t) * Tk + j;
    uint32_t c0, c1, c2, c3;
    rng_gpu_words(s.drop.rng, at / 4, c0, c1, c2, c3);
    uint32_t word = at % 4 == 0 ? c0 : at % 4 == 1 ? c1 : at % 4 == 2 ? c2 : c3;
    return word >= rng_gpu_limit(s.drop.p) ? 1 / (1 - s.drop.p) : 0;
}

// The shape as kernels want it: with its scale. Stops on one that dev.h does not allow. `part`: of a piece.
inline AttnShape attention_gpu_shape(AttnShape s, bool part = false)
{
    bool good = s.D > 0 && s.G > 0 && s.H % s.G == 0 && s.drop.p >= 0 && s.drop.p < 1;
    bool whole = s.q_start + s.Tq <= s.Tk && !s.q_jump && !s.k_start && !s.k_jump;
    bool ordered = !s.T || (s.T == s.Tq && s.T == s.Tk); // by blocks: here every order is the same every time
    GPU_CHECK(good && (part ? s.T > 0 : whole && ordered) ? cudaSuccess : cudaErrorInvalidValue);
    if (!(s.scale > 0)) s.scale = 1 / sqrtf((float)s.D);
    return s;
}
#endif
#endif
