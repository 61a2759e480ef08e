// nvToolsExt: the part of NVTX that exists here, by NVTX's own names. Ranges go into the log (EMU_LOG).
#ifndef CUDA_ON_CPU_NVTX_H
#define CUDA_ON_CPU_NVTX_H
namespace emu {
int log_range(const char *name); // nullptr: the innermost ends. Gives its depth, from 0, or -1: none is open
}
inline int nvtxRangePushA(const char *name)
{
    return emu::log_range(name);
}
inline int nvtxRangePop()
{
    return emu::log_range(nullptr);
}
#endif
