// train_gpu: trains a language model on NVIDIA GPUs.
//
//   build/train_gpu presets/tiny.toml --data.train='DIR/train_*.bin' --data.val='DIR/val_*.bin' --data.tokenizer=DIR
//
// The loop is train.c's (train_loop.c); what differs is the device (dev_cuda.h). build/train_gpu_on_cpu is this program
// in the emulation of dev/cuda_on_cpu. Ranks take this machine's GPUs in turn; there may be more ranks than GPUs.
#include "check.h"
#include "dev_cuda.h"
#include "train_loop.h"

static Dev *open_gpu(const Config *cfg, int device, bool shared, int threads)
{
    DevCudaOptions options = {};
    options.device = device;
    options.fp8 = cfg->numerics.dtype == CONFIG_DTYPE_FP8;
    options.scaling = cfg->numerics.fp8_scaling == CONFIG_FP8_CURRENT ? FP8_CURRENT : FP8_DELAYED;
    options.history = (int)cfg->numerics.amax_history;
    options.x_type = cfg->numerics.dtype == CONFIG_DTYPE_BF16 || options.fp8 ? X_BF16
                     : cfg->numerics.dtype == CONFIG_DTYPE_FP16 ? X_FP16 : X_FP32;
    options.cpu_threads = threads;
    options.shared = shared;
    return dev_cuda_create(options);
}

int main(int argc, char **argv)
{
    const TrainDevice gpu = {"GPU", dev_cuda_count, open_gpu, dev_cuda_free};
    return train_loop_run(argc, argv, &gpu);
}
