// dev_cuda: the CUDA device: opens the GPU and fills the op table from the files that hold the ops.
//
// The invariant: everything goes through one stream, in the order of the calls. So an op may reuse the scratch of the
// op before it, and no op reads a buffer that another is still writing. A copy to the host waits for the stream; a copy
// from the host first copies its source to pinned memory (elements.cu). So a host buffer may be reused when the call
// returns.
//
// The source of a copy to the device may be device memory too: a key/value cache is filled from activations.
//
// Rejected: several streams with events inside an op (one op fills the GPU); memory from cudaMallocAsync's pool
// (training allocates nothing after its first step).
#include "ops/dev_cuda.h"

#include "base/check.h"

void dev_cuda_set_watch(Dev *dev, void (*watch)(void *arg), void *arg)
{
    DevCuda *d = dev_cuda(dev);
    d->watch = watch, d->watch_arg = arg;
}

void *dev_cuda_stream(Dev *dev)
{
    return dev_cuda(dev)->stream;
}

template <class E> static void fill(Dev *dev)
{
    elements_cuda_fill<E>(dev);
    matmul_cuda_fill<E>(dev);
    embed_cuda_fill<E>(dev);
    norm_cuda_fill<E>(dev);
    attention_cuda_fill<E>(dev);
    loss_cuda_fill<E>(dev);
    experts_cuda_fill<E>(dev);
}

__global__ void nothing()
{
}

int dev_cuda_count(void)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0)
        die("cuda: no GPU found: %s (try nvidia-smi; build/train runs without one)",
            error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error));
    return n;
}

DevCudaId dev_cuda_id(int device)
{
    cudaDeviceProp prop;
    DevCudaId id = {};
    GPU_CHECK(cudaGetDeviceProperties(&prop, device));
    for (size_t i = 0; i < sizeof prop.uuid.bytes; i++)
        snprintf(id.text + 2 * i, 3, "%02x", (unsigned char)prop.uuid.bytes[i]);
    return id;
}

static void check_gpu(int device, bool fp8)
{
    int n = dev_cuda_count(), major = 0, minor = 0;
    if (device < 0 || device >= n) die("cuda: GPU %d: there are %d here, from 0", device, n);
    GPU_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    GPU_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    if (major < 8)
        die("cuda: GPU %d has compute capability %d.%d, and 8.0 is needed (Ampere or later)", device, major, minor);
    if (fp8 && 10 * major + minor < 89)
        die("cuda: GPU %d has compute capability %d.%d, and fp8 needs 8.9 (Ada, Hopper or later; try bf16)", device,
            major, minor);
}

Dev *dev_cuda_create(DevCudaOptions o)
{
    check(o.threads % 32 == 0 && o.threads >= 0 && o.threads <= 1024 && (!o.fp8 || o.x_type == X_BF16) &&
          (!o.tf32 || o.x_type == X_FP32));
    check_gpu(o.device, o.fp8);
    GPU_CHECK(cudaSetDevice(o.device));
    if (LAUNCH_TRY(nothing, 1, 1, 0, nullptr) != cudaSuccess)
        die("cuda: GPU %d does not run the kernels that this program was built with (try: make gpu GPU_ARCH=native)",
            o.device);
    DevCuda *d = new DevCuda{};
    Dev *dev = &d->dev;
    d->options = o;
    d->threads = o.threads ? o.threads : 256;
    GPU_CHECK(cudaDeviceGetAttribute(&d->processors, cudaDevAttrMultiProcessorCount, o.device));
    GPU_CHECK(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
    dev->name = o.fp8 ? "cuda fp8" : o.tf32 ? "cuda tf32" : o.x_type == X_FP32 ? "cuda" : o.x_type == X_BF16 ? "cuda bf16" : "cuda fp16";
    dev->x_type = o.x_type;
    dev->x_bytes = o.x_type == X_FP32 ? 4 : 2;
    dev->threads = o.cpu_threads ? o.cpu_threads : 1;
    dev->state = d;
    matmul_cuda_open(dev);
    if (o.fp8) fp8_cuda_open(d, o.scaling, o.history);
    dev->fp8_error = GPU_FP8_ERROR;
    dev->dgelu_error = GPU_DGELU_ERROR;
    dev->tf32 = o.tf32;
    dev->tf32_error = GPU_TF32_ERROR;
    dev->raw_alloc = gpu_alloc;
    dev->raw_free = gpu_release;
    dev->wait = dev_cuda_wait;
    dev->mark = gpu_mark;
    (o.x_type == X_FP32 ? fill<float> : o.x_type == X_BF16 ? fill<__nv_bfloat16> : fill<__half>)(dev);
    sums_cuda_fill(dev);
    updates_cuda_fill(dev);
    updates_matrix_cuda_fill(dev);
    dev_check_complete(dev);
    return dev;
}

void dev_cuda_free(Dev *dev)
{
    if (!dev) return;
    DevCuda *d = dev_cuda(dev);
    GPU_CHECK(cudaStreamSynchronize(d->stream));
    matmul_cuda_close(dev);
    fp8_cuda_close(d);
    for (Upload &u : d->upload) {
        GPU_CHECK(cudaFreeHost(u.pinned));
        if (u.pinned) GPU_CHECK(cudaEventDestroy(u.over));
    }
    GPU_CHECK(cudaFree(d->scratch));
    GPU_CHECK(cudaFree(d->books));
    GPU_CHECK(cudaStreamDestroy(d->stream));
    delete d;
}
