// nccl: the part of NCCL that exists here, by NCCL's own names and numbers (2.28). A process is a rank: start it with
// `mpiexec -n N`. The contracts are NCCL's; what is ours is in nccl.cc.
//
// #include <nccl.h> finds this file under g++ (build.sh) and NVIDIA's under nvcc. Every call carries its place in the
// source as default arguments, for reports that show the calls of two ranks.
#ifndef CUDA_ON_CPU_NCCL_H
#define CUDA_ON_CPU_NCCL_H
#include "base/gpu.h"

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 0
#define NCCL_VERSION_CODE 22800
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_SPLIT_NOCOLOR -1

typedef struct ncclComm *ncclComm_t;
typedef struct {
    int blocking; // 0: calls that make or end a communicator, and ends of groups, say ncclInProgress first
} ncclConfig_t; // of ncclCommInitRankConfig; ncclCommSplit takes none but nullptr: the parent's
#define NCCL_CONFIG_INITIALIZER {1}
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
} ncclResult_t;
typedef enum {
    ncclInt8 = 0, ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2, ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6, ncclHalf = 6,
    ncclFloat32 = 7, ncclFloat = 7,
    ncclFloat64 = 8, ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10, // both are moved, not reduced
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps } ncclRedOp_t;

#define EMU_FROM const char *file = __builtin_FILE(), int line = __builtin_LINE()
ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm); // of the process; comm may be nullptr

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
// The first one of a program returns when all processes of mpiexec have called it; later ones need their nranks alone.
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, EMU_FROM);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config,
                                    EMU_FROM);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist,
                             EMU_FROM); // ndev 1: a process has one device
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config, EMU_FROM);
ncclResult_t ncclCommFinalize(ncclComm_t comm, EMU_FROM);
ncclResult_t ncclCommDestroy(ncclComm_t comm, EMU_FROM);
ncclResult_t ncclCommAbort(ncclComm_t comm, EMU_FROM); // what has not run never will
ncclResult_t ncclCommCount(ncclComm_t comm, int *count, EMU_FROM);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank, EMU_FROM);
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device, EMU_FROM);
// ncclInProgress for a while after a call that said so; errors: EMU_NCCL_FAIL. Others are reports that stop the
// program.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error, EMU_FROM);

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream, EMU_FROM);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream, EMU_FROM);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream, EMU_FROM);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream, EMU_FROM);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream, EMU_FROM);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream, EMU_FROM);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream,
                      EMU_FROM);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd(EMU_FROM);
#undef EMU_FROM
#endif
