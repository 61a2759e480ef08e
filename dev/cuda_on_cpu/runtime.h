// runtime: the part of CUDA's host interface that exists here, by CUDA's own names. The contracts are CUDA's.
//
// Where CUDA leaves freedom, EMU_STREAMS chooses among the legal orders (stream.cc). Errors that a program may
// handle come back as cudaError_t; what can only be a bug (a copy past the end of an allocation, a double free) stops
// the program with a report.
#ifndef CUDA_ON_CPU_RUNTIME_H
#define CUDA_ON_CPU_RUNTIME_H
#include <cstddef>

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorNotSupported = 801,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered,
    cudaMemoryTypeHost,
    cudaMemoryTypeDevice,
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0 };
struct cudaUUID_t {
    char bytes[16];
};
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor;
};
namespace emu {
struct Stream;
struct Event;
} // namespace emu
using cudaStream_t = emu::Stream *;
using cudaEvent_t = emu::Event *;

#define EMU_FROM const char *file = __builtin_FILE(), int line = __builtin_LINE()
cudaError_t emu_malloc(void **p, size_t bytes);
cudaError_t emu_malloc_host(void **p, size_t bytes);
template <class T> inline cudaError_t cudaMalloc(T **p, size_t bytes) { return emu_malloc((void **)p, bytes); }
template <class T> inline cudaError_t cudaMallocHost(T **p, size_t bytes)
{
    return emu_malloc_host((void **)p, bytes);
}
template <class T> inline cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned)
{
    return emu_malloc_host((void **)p, bytes);
}
cudaError_t cudaFree(void *p, EMU_FROM);
cudaError_t cudaFreeHost(void *p, EMU_FROM);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);

cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, cudaMemcpyKind kind, EMU_FROM);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind kind, cudaStream_t stream = nullptr,
                            EMU_FROM);
cudaError_t cudaMemset(void *dst, int value, size_t n, EMU_FROM);
cudaError_t cudaMemsetAsync(void *dst, int value, size_t n, cudaStream_t stream = nullptr, EMU_FROM);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream, EMU_FROM);
cudaError_t cudaStreamSynchronize(cudaStream_t stream, EMU_FROM);
cudaError_t cudaStreamQuery(cudaStream_t stream, EMU_FROM);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0, EMU_FROM);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data, EMU_FROM);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr, EMU_FROM);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from,
                                 cudaEvent_t to); // of the emulation: no measure of a GPU
cudaError_t cudaDeviceSynchronize(EMU_FROM);

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t emu_func_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);
template <class K> inline cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute attribute, int value)
{
    return emu_func_set_attribute((const void *)kernel, attribute, value);
}
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
#undef EMU_FROM
#endif
