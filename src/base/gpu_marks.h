// gpu_marks: names of what the host asks a GPU for, for profilers (nsys, ncu): NVTX where the toolkit has it, else
// nothing.
//
// NVTX is headers alone: without a profiler a mark costs a few nanoseconds, and nothing is linked. Of CUDA's picture it
// needs no more than ranges of the host's thread; a profiler shows them over the kernels that were launched within.
#ifndef GPU_MARKS_H
#define GPU_MARKS_H
#ifdef __cplusplus
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

// A range by this name begins within those that are open; NULL: the innermost ends.
inline void gpu_mark(const char *name)
{
#if __has_include(<nvtx3/nvToolsExt.h>)
    if (name) nvtxRangePushA(name);
    else nvtxRangePop();
#else
    (void)name;
#endif
}
#endif
#endif
