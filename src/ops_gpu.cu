// ops_gpu: the CUDA device's scratch. See ops_gpu.h.
//
// The invariant: one buffer, used by one op at a time, in the order of the stream; so it needs no lock and no event. It
// grows when an op asks for more, waits then for those that still use it, and is kept.
#include "ops_gpu.h"

#include "check.h"

void *ops_gpu_scratch(DevCuda *d, size_t n_bytes)
{
    if (n_bytes <= d->scratch_bytes) return d->scratch;
    GPU_CHECK(cudaStreamSynchronize(d->stream));
    GPU_CHECK(cudaFree(d->scratch));
    d->scratch = nullptr, d->scratch_bytes = 0;
    if (cudaMalloc(&d->scratch, n_bytes) != cudaSuccess)
        die("cuda: no %.1f MiB of scratch left on GPU %d (try a smaller batch.micro or model)",
            (double)n_bytes / 1048576, d->options.device);
    d->scratch_bytes = n_bytes;
    return d->scratch;
}
