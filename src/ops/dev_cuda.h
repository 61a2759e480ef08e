// dev_cuda: the op table on one NVIDIA GPU.
//
// All arrays of the table's entries are device memory, but where dev.h says host; ops are put into one stream in the
// order of the calls, and to_host, from_x and sum_squares wait for it. Under dev/cuda_on_cpu the same sources run
// on the CPU. The files that fill the table share ops_gpu.h.
#ifndef DEV_CUDA_H
#define DEV_CUDA_H
#include "ops/dev.h"
#include "ops/fp8.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int device;      // which GPU, from 0
    XType x_type;    // how activations and weights are stored
    bool tf32;       // fp32 only: matmuls on tensor cores, which see 10 bits of mantissa
    bool plain;      // attention by the plain kernels alone, not by tensor cores
    int threads;     // of a block, where nothing else decides; 0: 256. A multiple of 32
    int cpu_threads; // what dev->threads says to code that works on the CPU beside the device; 0: one
    bool fp8;        // X_BF16, with the products that dev->fp8 names in 8 bits (fp8.h)
    Fp8Scaling scaling; // of fp8
    int history;        // steps of amax, for FP8_DELAYED
} DevCudaOptions;

// GPUs of this machine; dies with a line when there is none.
int dev_cuda_count(void);
// Stops with a line when there is no such GPU, or one before compute capability 8.0 (fp8: 8.9).
Dev *dev_cuda_create(DevCudaOptions options);
void dev_cuda_free(Dev *dev);

// Waits until all ops so far are done.
void dev_cuda_wait(Dev *dev);
// watch(arg) is called again and again while the host waits for the GPU: for messages that must move on, and for errors
// of calls that the GPU waits for. NULL: nothing is.
void dev_cuda_set_watch(Dev *dev, void (*watch)(void *arg), void *arg);
// The stream (a cudaStream_t) that all ops go into.
void *dev_cuda_stream(Dev *dev);

#ifdef __cplusplus
}
#endif
#endif
