// nccl_bugs: one short program per mistake that people make with NCCL. `nccl_bugs list` prints, for each, the kind
// of the report it must give, the settings, and what else the report must say; `nccl_bugs NAME` makes the mistake,
// under `mpiexec -n 2`. On GPUs most of these hang, or continue with wrong numbers.
#include "base/gpu.h"

#include <cstring>
#include <mpi.h>
#include <nccl.h>
#include <unistd.h>

static int rank, ranks;
static ncclComm_t comm;
static void nccl(ncclResult_t result)
{
    if (result == ncclSuccess) return;
    fprintf(stderr, "nccl-error: %s: %s\n", ncclGetErrorString(result), ncclGetLastError(comm));
    exit(3);
}
static float *device_floats(size_t n)
{
    float *x;
    GPU_CHECK(cudaMalloc(&x, n * sizeof *x));
    GPU_CHECK(cudaMemset(x, 0, n * sizeof *x));
    return x;
}
static ncclComm_t join(int as, int of)
{
    ncclUniqueId id;
    ncclComm_t c;
    if (rank == 0) nccl(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    nccl(ncclCommInitRank(&c, of, id, as));
    return c;
}
__global__ static void set_kernel(float *x, float v) { x[threadIdx.x] = v; }
static void reduce(float *x, size_t n, ncclDataType_t type = ncclFloat, ncclRedOp_t op = ncclSum)
{
    nccl(ncclAllReduce(x, x, n, type, op, comm, nullptr));
    GPU_CHECK(cudaDeviceSynchronize());
}

struct Bug {
    const char *name, *kind, *settings, *says; // says: extended regular expressions, separated by &
    void (*run)();
};
static const Bug BUGS[] = {
    // ---- ranks that do not agree
    {"wrong_count", "nccl-mismatch", "",
     "rank 0: ncclAllReduce.count 8,.* at .*nccl_bugs.cu:[0-9]+&rank 1: ncclAllReduce.count 9,",
     [] { reduce(device_floats(16), rank ? 9 : 8); }},
    {"wrong_count_late", "nccl-mismatch", "EMU_STREAMS=late",
     "rank 0: ncclAllReduce.count 8,&rank 1: ncclAllReduce.count 9,", [] { reduce(device_floats(16), rank ? 9 : 8); }},
    {"bytes_as_elements_on_one_rank", "nccl-mismatch", "",
     "rank 0: ncclAllReduce.count 4,&rank 1: ncclAllReduce.count 16,",
     [] { reduce(device_floats(16), rank ? 4 * sizeof(float) : 4); }},
    {"wrong_type", "nccl-mismatch", "", "rank 0: .*ncclFloat32&rank 1: .*ncclInt32",
     [] { reduce(device_floats(4), 4, rank ? ncclInt32 : ncclFloat32); }},
    {"wrong_operation", "nccl-mismatch", "", "rank 0: .*ncclSum&rank 1: .*ncclAvg",
     [] { reduce(device_floats(4), 4, ncclFloat, rank ? ncclAvg : ncclSum); }},
    {"wrong_root", "nccl-mismatch", "", "rank 0: ncclBroadcast.*root 0&rank 1: ncclBroadcast.*root 1",
     [] {
         float *x = device_floats(4);
         nccl(ncclBroadcast(x, x, 4, ncclFloat, rank, comm, nullptr));
     }},
    {"other_collective", "nccl-mismatch", "", "rank 0: ncclAllReduce&rank 1: ncclReduceScatter",
     [] {
         float *x = device_floats(8);
         if (rank == 0) reduce(x, 4);
         else nccl(ncclReduceScatter(x, x + 4, 4, ncclFloat, ncclSum, comm, nullptr));
     }},
    {"send_longer_than_receive", "nccl-mismatch", "", "rank 0: ncclSend.count 4,&rank 1: ncclRecv.count 3,",
     [] {
         float *x = device_floats(4);
         if (rank == 0) nccl(ncclSend(x, 4, ncclFloat, 1, comm, nullptr));
         else nccl(ncclRecv(x, 3, ncclFloat, 0, comm, nullptr));
     }},
    {"joined_twice_as_one_rank", "nccl-mismatch", "", "as rank 0 of 2 and as rank 0 of 2", [] { join(0, 2); }},
    // ---- ranks that wait for ever
    {"sends_without_group", "deadlock", "", "rank 0 waits in ncclSend.*peer 1&rank 1 waits in ncclSend.*peer 0",
     [] {
         float *x = device_floats(8);
         nccl(ncclSend(x, 4, ncclFloat, 1 - rank, comm, nullptr));
         nccl(ncclRecv(x + 4, 4, ncclFloat, 1 - rank, comm, nullptr));
         GPU_CHECK(cudaDeviceSynchronize());
     }},
    {"sends_without_group_late", "deadlock", "EMU_STREAMS=late", "rank 0 waits in ncclSend&rank 1 waits in ncclSend",
     [] {
         float *x = device_floats(8);
         nccl(ncclSend(x, 4, ncclFloat, 1 - rank, comm, nullptr));
         nccl(ncclRecv(x + 4, 4, ncclFloat, 1 - rank, comm, nullptr));
         GPU_CHECK(cudaDeviceSynchronize());
     }},
    {"send_to_oneself_without_group", "deadlock", "", "waits in ncclSend.*peer",
     [] {
         float *x = device_floats(8);
         nccl(ncclSend(x, 4, ncclFloat, rank, comm, nullptr));
         nccl(ncclRecv(x + 4, 4, ncclFloat, rank, comm, nullptr));
     }},
    {"wrong_communicator", "deadlock", "",
     "rank 0 waits in ncclAllReduce.*communicator 0&rank 1 waits in ncclAllReduce.*communicator 1",
     [] {
         ncclComm_t other;
         nccl(ncclCommSplit(comm, 0, rank, &other, nullptr));
         float *x = device_floats(4);
         nccl(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, rank ? other : comm, nullptr));
     }},
    {"two_communicators_in_two_orders", "deadlock", "",
     "rank 0 waits in .*communicator 0&rank 1 waits in .*communicator 1",
     [] {
         ncclComm_t other;
         nccl(ncclCommSplit(comm, 0, rank, &other, nullptr));
         float *x = device_floats(4);
         nccl(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, rank ? other : comm, nullptr));
         nccl(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, rank ? comm : other, nullptr));
     }},
    {"collective_against_send", "deadlock", "", "rank 0 waits in ncclAllReduce&rank 1 waits in ncclSend",
     [] {
         float *x = device_floats(4);
         if (rank == 0) reduce(x, 4);
         else nccl(ncclSend(x, 4, ncclFloat, 0, comm, nullptr));
     }},
    {"one_rank_leaves_it_out", "deadlock", "", "rank 0 waits in ncclAllReduce&rank 1 has ended",
     [] {
         if (rank == 0) reduce(device_floats(4), 4);
     }},
    {"one_rank_never_waits", "deadlock", "EMU_STREAMS=late", "rank 0 waits in ncclAllReduce&rank 1 has ended",
     [] {
         float *x = device_floats(4);
         nccl(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comm, nullptr));
         if (rank == 0) GPU_CHECK(cudaDeviceSynchronize());
     }},
    {"join_alone", "deadlock", "", "rank 0 waits in ncclCommInitRank.rank 0 of 2&rank 1 has ended",
     [] {
         ncclUniqueId id;
         ncclComm_t c;
         nccl(ncclGetUniqueId(&id));
         if (rank == 0) nccl(ncclCommInitRank(&c, 2, id, 0));
     }},
    {"host_waits_in_mpi", "timeout", "EMU_TIMEOUT=3", "rank 0 waits in ncclAllReduce&rank 1 waits in no NCCL call",
     [] {
         if (rank == 0) reduce(device_floats(4), 4);
         else MPI_Recv(nullptr, 0, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
     }},
    // ---- buffers
    {"bytes_as_elements", "out-of-bounds", "",
     "ncclAllReduce: sendbuff: count 16 of ncclFloat32: 64 bytes at byte 0 of the 16 of device allocation",
     [] { reduce(device_floats(4), 4 * sizeof(float)); }},
    {"gather_into_a_part", "out-of-bounds", "", "ncclAllGather: recvbuff: count 4 of ncclFloat32: 32 bytes",
     [] { nccl(ncclAllGather(device_floats(4), device_floats(4), 4, ncclFloat, comm, nullptr)); }},
    {"host_buffer", "foreign-pointer", "", "ncclAllReduce: sendbuff.*neither device nor shared",
     [] {
         float x[4] = {};
         reduce(x, 4);
     }},
    {"freed_buffer", "out-of-bounds", "", "freed device allocation",
     [] {
         float *x = device_floats(4);
         GPU_CHECK(cudaFree(x));
         reduce(x, 4);
     }},
    {"buffers_overlap", "nccl", "", "sendbuff and recvbuff overlap",
     [] {
         float *x = device_floats(8);
         nccl(ncclAllReduce(x, x + 1, 4, ncclFloat, ncclSum, comm, nullptr));
     }},
    {"in_place_from_the_start", "nccl", "", "ncclAllGather: sendbuff and recvbuff overlap",
     [] {
         float *x = device_floats(8); // right on rank 0 alone
         nccl(ncclAllGather(x, x, 4, ncclFloat, comm, nullptr));
     }},
    // ---- streams
    {"gradient_not_waited_for", "wrong-result", "EMU_STREAMS=late", "",
     [] {
         cudaStream_t work, talk;
         GPU_CHECK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
         GPU_CHECK(cudaStreamCreateWithFlags(&talk, cudaStreamNonBlocking));
         float *x = device_floats(32), got = 0;
         GPU_CHECK(cudaDeviceSynchronize());
         LAUNCH(set_kernel, 1, 32, 0, work, x, 2.0f); // talk does not wait for work
         nccl(ncclAllReduce(x, x, 32, ncclFloat, ncclSum, comm, talk));
         GPU_CHECK(cudaStreamSynchronize(talk));
         GPU_CHECK(cudaMemcpyAsync(&got, x, sizeof got, cudaMemcpyDeviceToHost, talk));
         if (got == 4) return;
         fprintf(stderr, "wrong-result\n");
         usleep(100000); // the launcher ends before it has passed on what was just written
         MPI_Abort(MPI_COMM_WORLD, 3);
     }},
    {"dead_communicator", "bad-handle", "", "communicator .* does not exist",
     [] {
         nccl(ncclCommDestroy(comm));
         reduce(device_floats(4), 4);
     }},
    {"after_finalize", "nccl", "EMU_STREAMS=late", "ncclAllReduce runs after MPI_Finalize",
     [] {
         float *x = device_floats(4);
         nccl(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comm, nullptr));
         MPI_Finalize();
         GPU_CHECK(cudaDeviceSynchronize());
     }},
    {"group_never_ends", "between ncclGroupStart and ncclGroupEnd", "", "",
     [] {
         float *x = device_floats(4);
         nccl(ncclGroupStart());
         nccl(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comm, nullptr));
     }},
    {"used_while_in_progress", "nccl-error", "", "ncclAllReduce: the communicator is still busy",
     [] {
         ncclUniqueId id;
         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
         config.blocking = 0;
         if (rank == 0) nccl(ncclGetUniqueId(&id));
         MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
         if (ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress) reduce(device_floats(4), 4);
     }},
    {"more_ranks_than_processes", "nccl-error", "", "3 ranks, and mpiexec runs 2", [] { join(rank, 3); }},
};

int main(int argc, char **argv)
{
    for (const Bug &b : BUGS) {
        if (argc == 2 && !strcmp(argv[1], "list")) {
            printf("%s|%s|%s|%s\n", b.name, b.kind, b.settings, b.says);
            continue;
        }
        if (argc != 2 || strcmp(argv[1], b.name)) continue;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        comm = join(rank, ranks);
        b.run();
        int done;
        MPI_Finalized(&done);
        return done ? 0 : MPI_Finalize();
    }
    return argc == 2 && !strcmp(argv[1], "list") ? 0 : 2;
}
