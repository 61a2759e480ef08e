// ops_gpu: the CUDA device's scratch, copies to and from the host, and how the host waits. See ops_gpu.h.
//
// The invariant: one buffer, used by one op at a time, in the order of the stream; so it needs no lock and no event. It
// grows when an op asks for more, waits then for those that still use it, and is kept.
#include "ops/ops_gpu.h"

#include "base/check.h"
#include "base/clock.h"

#include <cstring>
#include <time.h>

// cudaStreamSynchronize would wait for ever for a collective whose other ranks are gone. Short waits are spent asking,
// as CUDA itself does; longer ones leave the core to others.
void ops_gpu_wait(DevCuda *d)
{
    if (!d->watch) {
        GPU_CHECK(cudaStreamSynchronize(d->stream));
        return;
    }
    const double spin = 2e-4;
    const struct timespec nap = {0, 20000};
    double begin = clock_seconds();
    cudaError_t error;
    while ((error = cudaStreamQuery(d->stream)) == cudaErrorNotReady) {
        d->watch(d->watch_arg);
        if (clock_seconds() - begin > spin) nanosleep(&nap, nullptr);
    }
    GPU_CHECK(error);
}

// The host's memory is copied aside, into pinned memory that the GPU reads by itself; by when that may be written again
// an event says. So a micro-batch's tokens can be on their way while the one before still computes.
static void upload(DevCuda *d, void *dst, const void *src, size_t n_bytes)
{
    Upload *u = &d->upload[d->uploads++ % OPS_UPLOADS];
    if (!u->pinned) {
        if (cudaMallocHost(&u->pinned, OPS_UPLOAD_BYTES) != cudaSuccess)
            die("cuda: no %d KiB of the host's memory can be pinned (try ulimit -l)", OPS_UPLOAD_BYTES >> 10);
        GPU_CHECK(cudaEventCreateWithFlags(&u->over, cudaEventDisableTiming));
    } else if (cudaEventQuery(u->over) != cudaSuccess) ops_gpu_wait(d);
    memcpy(u->pinned, src, n_bytes);
    GPU_CHECK(cudaMemcpyAsync(dst, u->pinned, n_bytes, cudaMemcpyHostToDevice, d->stream));
    GPU_CHECK(cudaEventRecord(u->over, d->stream));
}

void ops_gpu_to_device(DevCuda *d, void *dst, const void *src, size_t n_bytes)
{
    cudaPointerAttributes from;
    GPU_CHECK(cudaPointerGetAttributes(&from, src));
    if (from.type == cudaMemoryTypeDevice) {
        GPU_CHECK(cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyDeviceToDevice, d->stream));
    } else if (n_bytes <= OPS_UPLOAD_BYTES) upload(d, dst, src, n_bytes);
    else {
        GPU_CHECK(cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyHostToDevice, d->stream));
        ops_gpu_wait(d);
    }
}

void ops_gpu_to_host(DevCuda *d, void *dst, const void *src, size_t n_bytes)
{
    ops_gpu_wait(d); // a copy to memory that is not pinned waits within the call, and nobody watches there
    GPU_CHECK(cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyDefault, d->stream));
    GPU_CHECK(cudaStreamSynchronize(d->stream));
}

void *ops_gpu_scratch(DevCuda *d, size_t n_bytes)
{
    if (n_bytes <= d->scratch_bytes) return d->scratch;
    ops_gpu_wait(d);
    GPU_CHECK(cudaFree(d->scratch));
    d->scratch = nullptr, d->scratch_bytes = 0;
    if (cudaMalloc(&d->scratch, n_bytes) != cudaSuccess)
        die("cuda: no %.1f MiB of scratch left on GPU %d (try a smaller batch.micro or model)",
            (double)n_bytes / 1048576, d->options.device);
    d->scratch_bytes = n_bytes;
    return d->scratch;
}
