// gpu: CUDA for the files src/*/*.cu: its own headers under nvcc, dev/cuda_on_cpu under g++ and clang++; then sums over
// warps and blocks, memory, and marks for profilers.
//
// Each wrapper has both sides next to each other. PTX, __CUDA_ARCH__ and CUDA-only headers are here and nowhere
// else; so a kernel file compiles unmodified with nvcc (sm_80 and later) and as C++17 without any CUDA.
//
//   LAUNCH(kernel, grid, block, shared_bytes, stream, args...)
//                            kernel<<<...>>>(args...); dies when the launch fails. Put a template with commas in
//                            parentheses; write a null pointer as `nullptr`.
//   LAUNCH_COOP(...)         the same, with all blocks resident: GRID_SYNC() works
//   LAUNCH_TRY(...)          LAUNCH that returns the cudaError_t
//   SHARED(float, tile, [32][33]);    __shared__ float tile[32][33]
//   SHARED16(...)            the same, aligned to 16 bytes: for vector loads, cp_async16 and ldmatrix
//   DYN_SHARED(float, buffer);        the launch's shared_bytes, as float *
//   GPU_CHECK(call)          dies with file, line and CUDA's own message unless the call returns cudaSuccess
//
// Rejected: the <<<>>> syntax on both sides (only a rewriting step in the build would give it to g++); plain
// `static` as shared memory on the CPU (no red zones, no limits, one block at a time).
#ifndef GPU_H
#define GPU_H
#ifdef __cplusplus
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#ifdef __CUDACC__
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#define GPU_SITE // the caller's place: a parameter on the CPU side
#define GPU_PASS
#define GPU_FIRST
#define GPU_NO_UNROLL _Pragma("unroll 1") // in front of a loop whose body is long enough once
#define SHARED(type, name, ...) __shared__ type name __VA_ARGS__
#define SHARED16(type, name, ...) __shared__ __align__(16) type name __VA_ARGS__
#define DYN_SHARED(type, name)                                                                           \
    extern __shared__ __align__(16) unsigned char gpu_dynamic_shared[];                                  \
    type *name = reinterpret_cast<type *>(gpu_dynamic_shared)
#define LAUNCH_TRY(kernel, grid, block, shared_bytes, stream, ...)                                       \
    ([&] {                                                                                               \
        (kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__);                            \
        return cudaGetLastError();                                                                       \
    }())
#define LAUNCH_COOP(kernel, grid, block, shared_bytes, stream, ...)                                      \
    gpu_check(gpu_launch_coop((kernel), (grid), (block), (shared_bytes), (stream), ##__VA_ARGS__),         \
              "launch of " #kernel, __FILE__, __LINE__)
#define GRID_SYNC() cooperative_groups::this_grid().sync()
template <class... P, class... A>
inline cudaError_t gpu_launch_coop(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                                   cudaStream_t stream, A... args)
{
    void *pointers[sizeof...(P)];
    int n = 0;
    // The parameters' own types: the kernel reads as many bytes as it declares.
    return [&](P... converted) {
        ((pointers[n++] = (void *)&converted), ...);
        return cudaLaunchCooperativeKernel((const void *)kernel, grid, block, pointers, shared_bytes, stream);
    }(static_cast<P>(args)...);
}
#else
#include "../../dev/cuda_on_cpu/cuda_on_cpu.h"
#define GPU_SITE , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define GPU_PASS , file, line
#define GPU_FIRST file, line
#define GPU_NO_UNROLL
#define GPU_SHARED(align, type, name, ...)                                                               \
    using name##_shared = type __VA_ARGS__;                                                              \
    static char name##_tag;                                                                              \
    auto &name = *(name##_shared *)emu::shared(&name##_tag, sizeof(name##_shared), align, #name,         \
                                               {__FILE__, __LINE__})
#define SHARED(type, name, ...) GPU_SHARED(alignof(name##_shared), type, name, __VA_ARGS__)
#define SHARED16(type, name, ...) GPU_SHARED(16, type, name, __VA_ARGS__)
#define DYN_SHARED(type, name) type *name = (type *)emu::dynamic_shared({__FILE__, __LINE__})
#define LAUNCH_TRY(kernel, grid, block, shared_bytes, stream, ...)                                       \
    emu::launch_kernel(#kernel, {__FILE__, __LINE__}, false, kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)
#define LAUNCH_COOP(kernel, grid, block, shared_bytes, stream, ...)                                      \
    gpu_check(emu::launch_kernel(#kernel, {__FILE__, __LINE__}, true, kernel, grid, block, shared_bytes, stream, \
                                 ##__VA_ARGS__),                                                           \
              "launch of " #kernel, __FILE__, __LINE__)
#define GRID_SYNC() emu::grid_barrier({__FILE__, __LINE__})
#endif

inline void gpu_check(cudaError_t error, const char *what, const char *file, int line)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "error: %s: %s (%s) [%s:%d]\n", what, cudaGetErrorString(error), cudaGetErrorName(error), file,
            line);
    exit(1);
}
#define GPU_CHECK(call) gpu_check((call), #call, __FILE__, __LINE__)
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                           \
    gpu_check(LAUNCH_TRY(kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__), "launch of " #kernel, \
              __FILE__, __LINE__)

// Bound on the extra error of a sum of 8-bit products, beyond that of fp32, relative to sum |a b|. Hopper's tensor
// cores align the 33 terms of an instruction to the largest one and keep 13 bits below it (arXiv 2412.19437, 3.3.2,
// says about 14 in all). Unless told to be fast, cuBLASLt adds the results of 4 instructions in fp32. So each of 4 * 33
// terms is truncated by at most 2^-13 of sum |a b|. The emulation adds in fp32 and has no such error.
#ifdef __CUDACC__
#define GPU_FP8_ERROR (4 * 33 * 0x1p-13)
#else
#define GPU_FP8_ERROR 0
#endif

// Bound on the error of gelu' in cuBLASLt's DGELU: its tanh is not correctly rounded. Measured by
// dev/cuda_on_cpu/tests/blas.cu on an H100 (cuBLAS 13.1): 2^-16.0 at 3.5; GELU itself 2^-17.5. Both bounds are twice
// that. The emulation has an error of the same size.
#define GPU_DGELU_ERROR 0x1p-15
#define GPU_GELU_ERROR 0x1p-16

// The same of TF32. The specification rounds an operand x to nearest even; a tensor core may cut x off instead, which
// is at most a unit of the last of 10 bits apart, 2^-10 |x|: so a product is at most 2 2^-10 + 2^-19 of |a b| apart.
// The emulation rounds as the specification does.
#ifdef __CUDACC__
#define GPU_TF32_ERROR (2 * 0x1p-10 + 0x1p-19)
#else
#define GPU_TF32_ERROR 0
#endif

#ifdef __CUDACC__
#define GPU_SHARED_ADDRESS(p) ((unsigned)__cvta_generic_to_shared(p))
#endif

// ---- a barrier among `threads` threads of the block (a multiple of 32), by number: 1 to 15
__device__ inline void named_barrier(int id, int threads GPU_SITE)
{
#ifdef __CUDACC__
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
    emu::barrier(id, threads, 0, "named_barrier", {file, line});
#endif
}

// ---- asynchronous copies of 16 bytes from device to shared memory, both aligned to 16. The thread that copied sees
// the data after cp_async_wait<N>, which waits for all but the N newest groups; other threads need a barrier after
// that. Only from_src of the 16 bytes are read; the others become zero.
__device__ inline void cp_async16(void *shared_dst, const void *src, unsigned from_src = 16 GPU_SITE)
{
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(GPU_SHARED_ADDRESS(shared_dst)), "l"(src),
                 "r"(from_src)
                 : "memory");
#else
    emu::copy_async(shared_dst, src, 16, from_src, {file, line});
#endif
}

// The same of 4 bytes, aligned to 4; `there`: false: zero.
__device__ inline void cp_async4(void *shared_dst, const void *src, bool there GPU_SITE)
{
#ifdef __CUDACC__
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(GPU_SHARED_ADDRESS(shared_dst)), "l"(src),
                 "r"(there ? 4 : 0)
                 : "memory");
#else
    emu::copy_async(shared_dst, src, 4, there ? 4 : 0, {file, line});
#endif
}

__device__ inline void cp_async_commit()
{
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emu::copy_commit();
#endif
}

template <int N> __device__ inline void cp_async_wait()
{
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#else
    emu::copy_wait(N);
#endif
}

// ---- tensor cores. d = a b + c over one warp: a (16, 16) rows, b (16, 8), c and d (16, 8) fp32. With g = lane / 4 and
// t = lane % 4, a lane holds (two 16-bit numbers a word, the left one low)
//   a[0] = a(g, 2t..), a[1] = a(g + 8, 2t..), a[2] = a(g, 2t + 8..), a[3] = a(g + 8, 2t + 8..)
//   b[0] = b(2t.., g), b[1] = b(2t + 8.., g);  c[0..1] = c(g, 2t..), c[2..3] = c(g + 8, 2t..)
// On the CPU the 16 products are added in order of k, in fp32, to c. A GPU adds in another order.
__device__ inline void mma_m16n8k16_bf16(float *d, const uint32_t *a, const uint32_t *b, const float *c GPU_SITE)
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
                   "f"(c[3]));
#else
    emu::mma(d, a, b, c, true, {file, line});
#endif
}

__device__ inline void mma_m16n8k16_fp16(float *d, const uint32_t *a, const uint32_t *b, const float *c GPU_SITE)
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
                   "f"(c[3]));
#else
    emu::mma(d, a, b, c, false, {file, line});
#endif
}

// ---- four 8x8 matrices of 16-bit numbers from shared memory: lane i gives the address of row i % 8 of matrix i / 8
// (16 bytes, aligned), and gets of each matrix row lane / 4, columns 2 (lane % 4) and the next; _trans: of its
// transpose.
__device__ inline void ldmatrix_x4(uint32_t *out, const void *row GPU_SITE)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(GPU_SHARED_ADDRESS(row))
                 : "memory");
#else
    emu::ldmatrix(out, 4, row, false, {file, line});
#endif
}

__device__ inline void ldmatrix_x4_trans(uint32_t *out, const void *row GPU_SITE)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(GPU_SHARED_ADDRESS(row))
                 : "memory");
#else
    emu::ldmatrix(out, 4, row, true, {file, line});
#endif
}

// ---- 2^x by the special function unit: within 2^-22 of it, and 0 below the normal numbers
__device__ inline float exp2_approx(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// ---- the compiler forgets what it has computed from x: where addresses that follow from x would fill registers
__device__ inline void gpu_forget(int &x)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(x));
#else
    (void)x;
#endif
}

// ---- sums and maxima that every lane of a full warp gets
__device__ inline float warp_sum(float v GPU_SITE)
{
    for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by, 32 GPU_PASS);
    return v;
}

__device__ inline float warp_max(float v GPU_SITE)
{
    for (int by = 16; by > 0; by /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, by, 32 GPU_PASS));
    return v;
}

// The same over a block of whole warps. It ends with a barrier, so it may be called in a loop.
__device__ inline float block_sum(float v GPU_SITE)
{
    SHARED(float, parts, [32]);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, warps = (int)blockDim.x / 32;
    v = warp_sum(v GPU_PASS);
    if (lane == 0) parts[warp] = v;
    __syncthreads(GPU_FIRST);
    v = warp_sum(lane < warps ? parts[lane] : 0 GPU_PASS);
    __syncthreads(GPU_FIRST);
    return v;
}

__device__ inline float block_max(float v GPU_SITE)
{
    SHARED(float, parts, [32]);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, warps = (int)blockDim.x / 32;
    v = warp_max(v GPU_PASS);
    if (lane == 0) parts[warp] = v;
    __syncthreads(GPU_FIRST);
    v = warp_max(lane < warps ? parts[lane] : -INFINITY GPU_PASS);
    __syncthreads(GPU_FIRST);
    return v;
}

// ---- memory of the current GPU, in the form that the allocator calls (mem.h: raw_alloc, raw_free)

// Zeroed; the zeros are there for every stream when it returns. NULL: none left.
inline void *gpu_alloc(size_t n_bytes)
{
    void *p = nullptr;
    cudaError_t error = cudaMalloc(&p, n_bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); // clears the error: the caller reports it
        return nullptr;
    }
    GPU_CHECK(error);
    GPU_CHECK(cudaMemset(p, 0, n_bytes));
    GPU_CHECK(cudaDeviceSynchronize()); // no other stream waits for the memset
    return p;
}

// Waits for the device first, as cudaFree does.
inline void gpu_release(void *ptr)
{
    GPU_CHECK(cudaFree(ptr));
}

// ---- marks for profilers (nsys, ncu): named ranges of the host's time, which a profiler shows above the kernels that
// were launched within them. NVTX is header-only: without a profiler a mark costs a few nanoseconds. Without NVTX in
// the toolkit there are no marks.

// Opens a nested range of this name; NULL: closes the innermost one.
inline void gpu_mark(const char *name)
{
#if __has_include(<nvtx3/nvToolsExt.h>)
    if (name) nvtxRangePushA(name);
    else nvtxRangePop();
#else
    (void)name;
#endif
}
#endif // __cplusplus
#endif
