// cuda_on_cpu: what a kernel file sees in place of CUDA when it is compiled for the CPU. Included by src/base/gpu.h
// alone.
//
// A CUDA thread runs as a plain call until it waits (README.md). Every function that waits, or that can be wrong,
// takes the caller's file and line as default arguments, so that reports name the line of the kernel without debug
// information.
// Left out on purpose: `__shared__` is not defined, so that shared memory outside SHARED does not compile; lock-step
// execution of a warp, which no CUDA since Volta promises.
#ifndef CUDA_ON_CPU_H
#define CUDA_ON_CPU_H
#ifndef __cplusplus
#error "cuda_on_cpu.h is C++17, as kernels are"
#endif
#include "types.h"

#include <cassert>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// ---- where a thread is. Variables, so that a debugger shows them; written by the scheduler alone.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emu {

struct Site {
    const char *file;
    int line;
};

// ---- block.cc
int barrier(int id, int threads, int predicate, const char *op, Site site);
void grid_barrier(Site site);
unsigned lane();
// One warp operation over the lanes of `mask`: each brings `arg`; the last one runs `finish` for all.
struct Lanes {
    unsigned mask; // those that take part: named by the mask, and not returned
    void *arg[32];
    const char *op;
    Site site;
};
void collective(unsigned mask, const char *op, void *arg, void (*finish)(Lanes *), Site site);
void atomic_begin(const void *p, size_t bytes, Site site);
void fence();

// ---- warp.cc
struct Shuffle {
    enum Kind { INDEX, UP, DOWN, XOR } kind;
    int lane, width;
    uint64_t value, result;
};
uint64_t shuffle(unsigned mask, Shuffle s, const char *op, Site site);
unsigned vote(unsigned mask, int kind, int predicate, const char *op, Site site); // 0 all, 1 any, 2 ballot
unsigned match_any(unsigned mask, uint64_t value, const char *op, Site site);
unsigned match_all(unsigned mask, uint64_t value, int *all, Site site);
int64_t reduce(unsigned mask, int kind, int64_t value, const char *op, Site site);
enum { REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, REDUCE_AND, REDUCE_OR, REDUCE_XOR };
void mma(float *d, const uint32_t *a, const uint32_t *b, const float *c, bool bf16, Site site);
void ldmatrix(uint32_t *out, int matrices, const void *row, bool transposed, Site site);
void copy_async(void *shared_dst, const void *src, unsigned bytes, unsigned from_src, Site site);
void copy_commit();
void copy_wait(unsigned newest); // all but the `newest` groups have landed

// ---- memory.cc
void *shared(const void *tag, size_t bytes, size_t align, const char *name, Site site);
void *dynamic_shared(Site site);

template <class T> inline uint64_t word(T v)
{
    static_assert(sizeof v <= 8, "a shuffle moves at most 8 bytes");
    uint64_t w = 0;
    __builtin_memcpy(&w, &v, sizeof v);
    return w;
}
template <class T> inline T unword(uint64_t w)
{
    T v;
    __builtin_memcpy(&v, &w, sizeof v);
    return v;
}

} // namespace emu

// ---- barriers and fences
inline void __syncthreads(EMU_SITE) { emu::barrier(0, 0, 0, "__syncthreads", {file, line}); }
inline int __syncthreads_count(int p, EMU_SITE)
{
    return emu::barrier(0, 0, p != 0, "__syncthreads_count", {file, line});
}
inline int __syncthreads_and(int p, EMU_SITE)
{
    return emu::barrier(0, 0, p == 0, "__syncthreads_and", {file, line}) == 0;
}
inline int __syncthreads_or(int p, EMU_SITE)
{
    return emu::barrier(0, 0, p != 0, "__syncthreads_or", {file, line}) != 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE)
{
    emu::collective(mask, "__syncwarp", nullptr, [](emu::Lanes *) {}, {file, line});
}
inline void __threadfence() { emu::fence(); }
inline void __threadfence_system() { emu::fence(); }
inline void __threadfence_block() {}

// ---- warp operations
#define EMU_SHUFFLE(name, kind_)                                                                         \
    template <class T> inline T name(unsigned mask, T v, int by, int width = 32, EMU_SITE)               \
    {                                                                                                    \
        emu::Shuffle s = {emu::Shuffle::kind_, by, width, emu::word(v), 0};                              \
        return emu::unword<T>(emu::shuffle(mask, s, #name, {file, line}));                               \
    }
EMU_SHUFFLE(__shfl_sync, INDEX)
EMU_SHUFFLE(__shfl_up_sync, UP)
EMU_SHUFFLE(__shfl_down_sync, DOWN)
EMU_SHUFFLE(__shfl_xor_sync, XOR)
#undef EMU_SHUFFLE
inline int __all_sync(unsigned mask, int p, EMU_SITE)
{
    return (int)emu::vote(mask, 0, p, "__all_sync", {file, line});
}
inline int __any_sync(unsigned mask, int p, EMU_SITE)
{
    return (int)emu::vote(mask, 1, p, "__any_sync", {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int p, EMU_SITE)
{
    return emu::vote(mask, 2, p, "__ballot_sync", {file, line});
}
// Only what CUDA promises: the lane itself.
inline unsigned __activemask() { return 1u << emu::lane(); }
template <class T> inline unsigned __match_any_sync(unsigned mask, T v, EMU_SITE)
{
    return emu::match_any(mask, emu::word(v), "__match_any_sync", {file, line});
}
template <class T> inline unsigned __match_all_sync(unsigned mask, T v, int *all, EMU_SITE)
{
    return emu::match_all(mask, emu::word(v), all, {file, line});
}
#define EMU_REDUCE(name, T, kind)                                                                        \
    inline T name(unsigned mask, T v, EMU_SITE) { return (T)emu::reduce(mask, emu::kind, v, #name, {file, line}); }
EMU_REDUCE(__reduce_add_sync, int, REDUCE_ADD)
EMU_REDUCE(__reduce_min_sync, int, REDUCE_MIN)
EMU_REDUCE(__reduce_max_sync, int, REDUCE_MAX)
EMU_REDUCE(__reduce_add_sync, unsigned, REDUCE_ADD)
EMU_REDUCE(__reduce_min_sync, unsigned, REDUCE_MIN)
EMU_REDUCE(__reduce_max_sync, unsigned, REDUCE_MAX)
EMU_REDUCE(__reduce_and_sync, unsigned, REDUCE_AND)
EMU_REDUCE(__reduce_or_sync, unsigned, REDUCE_OR)
EMU_REDUCE(__reduce_xor_sync, unsigned, REDUCE_XOR)
#undef EMU_REDUCE

// ---- atomics: one OS thread runs all CUDA threads, so a plain update is one; others may run just before it.
// The checker must not take the update for a plain access.
#define EMU_ATOMIC inline __attribute__((no_sanitize("thread"), noinline))
#define EMU_UPDATE(name, expression)                                                                     \
    template <class T, class V> EMU_ATOMIC T name(T *p, V value_, EMU_SITE)                              \
    {                                                                                                    \
        emu::atomic_begin(p, sizeof *p, {file, line});                                                   \
        T value = (T)value_, old = *p;                                                                   \
        *p = (T)(expression);                                                                            \
        return old;                                                                                      \
    }
EMU_UPDATE(atomicAdd, old + value)
EMU_UPDATE(atomicSub, old - value)
EMU_UPDATE(atomicMin, value < old ? value : old)
EMU_UPDATE(atomicMax, old < value ? value : old)
EMU_UPDATE(atomicExch, value)
EMU_UPDATE(atomicAnd, old &value)
EMU_UPDATE(atomicOr, old | value)
EMU_UPDATE(atomicXor, old ^ value)
EMU_UPDATE(atomicInc, old >= value ? 0 : old + 1)
EMU_UPDATE(atomicDec, old == 0 || old > value ? value : old - 1)
template <class T, class A, class B> EMU_ATOMIC T atomicCAS(T *p, A compare, B value, EMU_SITE)
{
    emu::atomic_begin(p, sizeof *p, {file, line});
    T old = *p;
    if (old == (T)compare) *p = (T)value;
    return old;
}
#undef EMU_UPDATE

// ---- loads and stores with a caching hint: plain ones here
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldca(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T v) { *p = v; }
template <class T> inline void __stcg(T *p, T v) { *p = v; }

// ---- arithmetic. glibc has functions of some of these names: macros.
#define __expf(x) expf(x)
#define __exp2f(x) exp2f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float rsqrtf(float a) { return 1 / sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __brev(unsigned v)
{
    unsigned out = 0;
    for (int i = 0; i < 32; i++) out |= (v >> i & 1) << (31 - i);
    return out;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b)
{
    using T = std::common_type_t<A, B>;
    return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b)
{
    using T = std::common_type_t<A, B>;
    return (T)a < (T)b ? (T)b : (T)a;
}

#include "runtime.h"

// ---- launches
namespace emu {
cudaError_t launch(const char *name, Site site, const void *kernel, void (*invoke)(const void *, void *),
                   const void *args, size_t args_bytes, dim3 grid, dim3 block, size_t dynamic, cudaStream_t stream,
                   bool cooperative);
// A debugger's backtrace ends here, so that a kernel has two frames of the emulator above it.
#ifdef __x86_64__
#define EMU_OUTERMOST __asm__ volatile(".cfi_undefined %rip")
#else
#define EMU_OUTERMOST __asm__ volatile(".cfi_undefined x30")
#endif
template <class... P> struct Invoke {
    using Args = std::tuple<P...>;
    template <size_t... I>
    static inline __attribute__((always_inline)) void call(void (*k)(P...), Args &a, std::index_sequence<I...>)
    {
        k(std::get<I>(a)...);
    }
    static void run(const void *k, void *args)
    {
        EMU_OUTERMOST;
        call((void (*)(P...))k, *(Args *)args, std::index_sequence_for<P...>());
    }
};
// Arguments are converted and copied now: a late stream must not see what the caller does to them afterwards.
template <class... P, class... A>
cudaError_t launch_kernel(const char *name, Site site, bool cooperative, void (*kernel)(P...), dim3 grid, dim3 block,
                          size_t dynamic, cudaStream_t stream, A... args)
{
    static_assert((std::is_trivially_copyable_v<P> && ...), "kernel arguments are copied byte by byte");
    static_assert(sizeof...(P) == sizeof...(A), "the kernel takes another number of arguments");
    std::tuple<P...> values((P)args...);
    cudaError_t error = launch(name, site, (const void *)kernel, Invoke<P...>::run, &values, sizeof values, grid,
                               block, dynamic, stream, cooperative);
    cudaGetLastError(); // handed on, and so no longer the last one
    return error;
}
} // namespace emu

#endif
