// train_gpu: trains a language model on NVIDIA GPUs.
//
//   build/train_gpu presets/tiny.toml --data.train='DIR/train_*.bin' --data.val='DIR/val_*.bin' --data.tokenizer=DIR
//
// The program is train.c, compiled with -DTRAIN_GPU; this file has what differs: the device (dev_cuda.h) and what
// carries messages. build/train_gpu_on_cpu is this program in the emulation of dev/cuda_on_cpu. Ranks take this
// machine's GPUs in turn; there may be more ranks than GPUs. What they exchange goes from GPU to GPU over NCCL where
// each has its own, else through the host (comm.backend).
#include "base/check.h"
#include "comm/comm.h"
#include "comm/comm_staged.h"
#include "src/check/override.h"
#include "ops/dev_cuda.h"
#include "comm/launch.h"
#include "train/run.h"

static Dev *open_gpu(const Config *cfg, int device, int threads)
{
    DevCudaOptions options = {};
    options.device = device;
    options.fp8 = cfg->numerics.dtype == CONFIG_DTYPE_FP8;
    options.tf32 = cfg->numerics.dtype == CONFIG_DTYPE_TF32;
    options.scaling = cfg->numerics.fp8_scaling;
    options.history = (int)cfg->numerics.amax_history;
    options.x_type = cfg->numerics.dtype == CONFIG_DTYPE_BF16 || options.fp8 ? X_BF16
                     : cfg->numerics.dtype == CONFIG_DTYPE_FP16 ? X_FP16 : X_FP32;
    options.cpu_threads = threads;
    Dev *dev = dev_cuda_create(options);
    dev->embed_fp32 = options.x_type != X_FP32 && cfg->numerics.embed_dtype == CONFIG_EMBED_FP32;
    return dev;
}

// While the host waits for the GPU, which may wait for another rank.
static void watch_ranks(void *arg)
{
    comm_progress((Comm *)arg);
}

static Comm *join_ranks(const Config *cfg, Comm *world, int device, Dev *dev)
{
    bool own = launch_own_device(world, dev_cuda_id(device).text), nccl = cfg->comm.backend == CONFIG_BACKEND_NCCL;
    if (cfg->comm.backend == CONFIG_BACKEND_AUTO) nccl = own && comm_nccl_built();
    Comm *ranks = nccl ? comm_nccl_start(world, device) : comm_staged_start(world, device);
    comm_staged_order(ranks, dev_cuda_stream(dev));
    dev_cuda_set_watch(dev, watch_ranks, ranks);
    return ranks;
}

static void part_ranks(Dev *dev, Comm *ranks)
{
    dev_cuda_set_watch(dev, nullptr, nullptr);
    comm_free(ranks);
}

const RunDevice run_device_gpu = {OVERRIDE_TARGET, dev_cuda_count, open_gpu, dev_cuda_free, join_ranks, part_ranks};
