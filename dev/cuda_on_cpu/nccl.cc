// nccl: NCCL's collectives and messages between processes, on MPI; a process is a rank.
//
// A call becomes an operation of its streams (stream.cc), which also comes after the process' NCCL operation before
// it: so every process runs them in the order of its calls, whatever EMU_STREAMS chooses. When it runs, it
//
//     announces  counts itself on the board, memory that all ranks see
//     meets      every rank of a collective gets the calls of all; kind, count, type, operation and root must be
//                the same. A send brings its call to the receive. Both calls are shown where they differ
//     moves      MPI carries bytes; numbers are added here, in the order of the ranks, rounded after each addition to
//                the type of the data:  ((x_0 + x_1) + x_2) + ...;  average: of floats sum(x_r * 1/n), of integers
//                sum / n
//
// An ungrouped send is over when its receive has been met, as NCCL may have it: eager sends would hide the bug.
// Rejected: MPI_Allreduce (its order of addition is MPI's own, and it knows no bf16); sums in fp32 for 16-bit
// numbers (NCCL passes on, from GPU to GPU, numbers of the data's type). Waiting, and its end in a deadlock, is in
// ranks.cc.
#include "ranks.h"

#include <algorithm>
#include <csignal>
#include <type_traits>

namespace emu {
using namespace ranks;
namespace {
struct State {
    int groups;              // open ncclGroupStart
    std::vector<Item> group; // calls of theirs
    std::vector<cudaStream_t> streams;
    std::vector<ncclComm *> live;
    std::string error;
    ~State()
    {
        if (groups) fprintf(stderr, "cuda_on_cpu: warning: the program ends between ncclGroupStart and ncclGroupEnd\n");
    }
};
State state;

ncclResult_t fail(ncclResult_t result, std::string why)
{
    state.error = std::move(why);
    return result;
}

void compare(const Item &i, const std::vector<Call> &calls)
{
    for (size_t r = 1; r < calls.size(); r++) {
        const Call &a = calls[0], &b = calls[r];
        if (a.kind != b.kind || a.count != b.count || a.type != b.type || a.op != b.op || a.root != b.root)
            mismatch(i.comm, 0, a, (int)r, b);
    }
}

// ---- numbers
template <class T> T combine(int op, T a, T b)
{
    if constexpr (std::is_integral_v<T>) {
        using U = std::make_unsigned_t<T>; // overflow wraps
        switch (op) {
        case ncclProd: return (T)((U)a * (U)b);
        case ncclMax: return a < b ? b : a;
        case ncclMin: return b < a ? b : a;
        default: return (T)((U)a + (U)b);
        }
    } else {
        using F = std::conditional_t<std::is_same_v<T, double>, double, float>;
        switch (op) {
        case ncclProd: return a * b;
        case ncclMax: return T(std::fmax((F)a, (F)b));
        case ncclMin: return T(std::fmin((F)a, (F)b));
        default: return a + b;
        }
    }
}

template <class T> void reduce_as(int op, size_t count, int ranks, const char *all, char *out)
{
    auto at = [&](int r, size_t i) {
        T v;
        memcpy((void *)&v, all + ((size_t)r * count + i) * sizeof(T), sizeof v);
        if constexpr (!std::is_integral_v<T>)
            if (op == ncclAvg) v = v * T(1.0 / ranks);
        return v;
    };
    for (size_t i = 0; i < count; i++) {
        T sum = at(0, i);
        for (int r = 1; r < ranks; r++) sum = combine<T>(op, sum, at(r, i));
        if constexpr (std::is_integral_v<T>)
            if (op == ncclAvg) sum = (T)(sum / (T)ranks);
        memcpy(out + i * sizeof(T), (void *)&sum, sizeof sum);
    }
}

void reduce(const Call &c, int ranks, const char *all, void *out)
{
    static void (*const by_type[])(int, size_t, int, const char *, char *) = {
        reduce_as<int8_t>, reduce_as<uint8_t>, reduce_as<int32_t>, reduce_as<uint32_t>, reduce_as<int64_t>,
        reduce_as<uint64_t>, reduce_as<__half>, reduce_as<float>, reduce_as<double>, reduce_as<__nv_bfloat16>};
    by_type[c.type](c.op, c.count, ranks, all, (char *)out);
}

// ---- running
void wrote(const Item &i, size_t bytes)
{
    if (machine().hooks.host_write) machine().hooks.host_write(i.recv, bytes);
}

// The bytes of a collective, once all ranks are in it.
void move(const Item &i, const std::vector<Item> &items)
{
    const ncclComm *c = i.comm;
    size_t n = (size_t)c->size, bytes = i.call.count * TYPES[i.call.type].bytes;
    bool root = i.call.root == c->rank;
    std::vector<char> all(i.call.kind == BROADCAST ? bytes : i.call.kind == REDUCE && !root ? 0 : n * bytes);
    std::vector<MPI_Request> request(1);
    int b = (int)bytes;
    switch (i.call.kind) {
    case ALL_REDUCE:
    case ALL_GATHER: MPI_Iallgather(i.send, b, MPI_BYTE, all.data(), b, MPI_BYTE, c->mpi, &request[0]); break;
    case REDUCE: MPI_Igather(i.send, b, MPI_BYTE, all.data(), b, MPI_BYTE, i.call.root, c->mpi, &request[0]); break;
    case REDUCE_SCATTER: MPI_Ialltoall(i.send, b, MPI_BYTE, all.data(), b, MPI_BYTE, c->mpi, &request[0]); break;
    case BROADCAST:
        if (root) memcpy(all.data(), i.send, bytes);
        MPI_Ibcast(all.data(), b, MPI_BYTE, i.call.root, c->mpi, &request[0]);
        break;
    default: return;
    }
    wait_all(items, request);
    if (i.call.kind == REDUCE && !root) return;
    if (i.call.kind == ALL_GATHER || i.call.kind == BROADCAST) memcpy(i.recv, all.data(), all.size());
    else reduce(i.call, c->size, all.data(), i.recv);
    wrote(i, i.call.kind == ALL_GATHER ? n * bytes : bytes);
}

void run(std::vector<Item> items)
{
    items.erase(std::remove_if(items.begin(), items.end(), [](const Item &i) { return i.comm->aborted; }), items.end());
    if (items.empty()) return;
    if (!running())
        report("nccl", {items[0].call.file, items[0].call.line}, "%s runs after MPI_Finalize",
               KINDS[items[0].call.kind]);
    // In a group, collectives of several communicators go on in one order that all ranks have.
    std::stable_sort(items.begin(), items.end(),
                     [](const Item &a, const Item &b) { return a.call.comm < b.call.comm; });
    announce(items);
    std::vector<MPI_Request> meet, messages;
    auto next = [](std::vector<MPI_Request> &v) { return &v.emplace_back(); };
    std::vector<std::vector<Call>> calls(items.size());
    for (size_t k = 0; k < items.size(); k++) {
        Item &i = items[k];
        int bytes = (int)(i.call.count * TYPES[i.call.type].bytes), size = (int)sizeof(Call);
        calls[k].resize(i.call.kind == SEND || i.call.kind == RECV ? 1 : (size_t)i.comm->size);
        if (i.call.kind == SEND) {
            MPI_Issend(&i.call, size, MPI_BYTE, i.call.root, 0, i.comm->mpi, next(messages));
            MPI_Isend(i.send, bytes, MPI_BYTE, i.call.root, 1, i.comm->mpi, next(messages));
        } else if (i.call.kind == RECV) {
            MPI_Irecv(calls[k].data(), size, MPI_BYTE, i.call.root, 0, i.comm->mpi, next(meet));
        } else {
            MPI_Iallgather(&i.call, size, MPI_BYTE, calls[k].data(), size, MPI_BYTE, i.comm->mpi, next(meet));
        }
    }
    wait_all(items, meet);
    for (size_t k = 0; k < items.size(); k++) {
        Item &i = items[k];
        size_t bytes = i.call.count * TYPES[i.call.type].bytes;
        const Call &theirs = calls[k][0];
        if (i.call.kind != RECV) compare(i, calls[k]);
        else if (theirs.count != i.call.count || theirs.type != i.call.type)
            mismatch(i.comm, i.call.root, theirs, i.comm->rank, i.call);
        else MPI_Irecv(i.recv, (int)bytes, MPI_BYTE, i.call.root, 1, i.comm->mpi, next(messages));
    }
    for (const Item &i : items) move(i, items);
    wait_all(items, messages);
    for (const Item &i : items)
        if (i.call.kind == RECV) wrote(i, i.call.count * TYPES[i.call.type].bytes);
}

void enqueue(std::vector<Item> items, const std::vector<cudaStream_t> &streams, Site site)
{
    const char *what = items.size() == 1 ? KINDS[items[0].call.kind] : "a group of NCCL calls";
    stream_library_call(streams, what, site, true, [items] { run(items); });
}

// ---- calls
ncclComm *comm_of(ncclComm_t c, Site site)
{
    if (std::find(state.live.begin(), state.live.end(), c) == state.live.end())
        report("bad-handle", site, "communicator %p does not exist", (void *)c);
    return c;
}

// What a call that makes or ends something says: of a communicator that does not block, "in progress".
ncclResult_t later(ncclComm *c)
{
    if (!c || c->blocking) return ncclSuccess;
    c->pending = 2;
    return ncclInProgress;
}

// EMU_NCCL_FAIL=R:N: on rank R of mpiexec, the N-th call from 1 is one that another rank, or the network, breaks. With
// :stuck behind it the call never ends, and the error is told to whoever asks a thousand times, as those who wait do;
// with :killed it is this process that is gone.
void fail_now(ncclComm *c)
{
    static int calls;
    int rank, n, own;
    char how[8] = "";
    const char *text = getenv("EMU_NCCL_FAIL");
    if (!text || sscanf(text, "%d:%d:%7s", &rank, &n, how) < 2) return;
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    if (rank != own || ++calls != n) return;
    if (!strcmp(how, "killed")) raise(SIGKILL);
    if (!strcmp(how, "stuck")) stream_stuck(true), c->untold = 1000;
    else c->error = ncclRemoteError;
}

// Where do bytes [p, p + n) and [q, q + m) overlap?
bool overlap(const void *p, size_t n, const void *q, size_t m)
{
    return (const char *)p < (const char *)q + m && (const char *)q < (const char *)p + n;
}

void check_buffers(const Item &i, Site site)
{
    const char *name = KINDS[i.call.kind];
    size_t n = (size_t)i.comm->size, bytes = i.call.count * TYPES[i.call.type].bytes, at = (size_t)i.comm->rank * bytes;
    bool root = i.call.root == i.comm->rank;
    size_t in = i.call.kind == REDUCE_SCATTER                                ? n * bytes
                : i.call.kind == RECV || (i.call.kind == BROADCAST && !root) ? 0
                                                                             : bytes;
    size_t out = i.call.kind == ALL_GATHER                                 ? n * bytes
                 : i.call.kind == SEND || (i.call.kind == REDUCE && !root) ? 0
                                                                           : bytes;
    if (n * bytes > INT_MAX)
        report("nccl", site, "%s: %zu bytes in one call; at most %d here", name, n * bytes, INT_MAX);
    auto need = [&](const void *p, size_t size, const char *which) {
        std::string who = format("%s: %s: count %zu of %s", name, which, i.call.count, TYPES[i.call.type].name);
        if (size) memory_need(p, size, who.c_str(), site);
    };
    need(i.send, in, "sendbuff");
    need(i.recv, out, "recvbuff");
    const char *send = (const char *)i.send, *recv = (const char *)i.recv;
    bool in_place = i.call.kind == ALL_GATHER       ? send == recv + at
                    : i.call.kind == REDUCE_SCATTER ? recv == send + at
                                                    : send == recv;
    if (!in_place && overlap(send, in, recv, out))
        report("nccl", site, "%s: sendbuff and recvbuff overlap, and not in the way that means in place", name);
}

ncclResult_t submit(Kind kind, const void *send, void *recv, size_t count, int type, int op, int root,
                    ncclComm_t handle, cudaStream_t stream, Site site)
{
    ncclComm *c = comm_of(handle, site);
    if (c->finalized || c->aborted)
        return fail(ncclInvalidUsage, format("%s: the communicator was finalized or aborted", KINDS[kind]));
    if (c->pending)
        return fail(ncclInvalidUsage, format("%s: the communicator is still busy (ncclInProgress)", KINDS[kind]));
    fail_now(c);
    if (type < 0 || type >= ncclNumTypes)
        return fail(ncclInvalidArgument, format("%s: no such type: %d", KINDS[kind], type));
    if (op < -1 || op >= ncclNumOps)
        return fail(ncclInvalidArgument, format("%s: no such operation: %d", KINDS[kind], op));
    if (op >= 0 && type >= ncclFloat8e4m3)
        return fail(ncclInvalidArgument, format("%s: %s is moved here, not reduced", KINDS[kind], TYPES[type].name));
    if (root < -1 || root >= c->size ||
        (root < 0 && (kind == REDUCE || kind == BROADCAST || kind == SEND || kind == RECV)))
        return fail(ncclInvalidArgument, format("%s: rank %d of %d", KINDS[kind], root, c->size));
    Item item = {make_call(kind, count, type, op, root, c->id, site), c, send, recv, 0};
    check_buffers(item, site);
    if (!state.groups) return enqueue({item}, {stream}, site), ncclSuccess;
    state.group.push_back(item);
    if (std::find(state.streams.begin(), state.streams.end(), stream) == state.streams.end())
        state.streams.push_back(stream);
    return ncclSuccess;
}

void release(ncclComm *c)
{
    int done = 0;
    MPI_Finalized(&done);
    if (!done) MPI_Comm_free(&c->mpi);
    state.live.erase(std::find(state.live.begin(), state.live.end(), c));
    delete c;
}

} // namespace
} // namespace emu

using namespace emu;
#define FROM const char *file, int line

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t)
{
    return state.error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    FILE *f = fopen("/dev/urandom", "rb");
    bool good = f && fread(id->internal, 8, 1, f) == 1;
    if (f) fclose(f);
    id->internal[0] |= 1; // the board has 0 for "none"
    return good ? ncclSuccess : fail(ncclSystemError, "ncclGetUniqueId: /dev/urandom cannot be read");
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, FROM)
{
    Site site = {file, line};
    if (rank < 0 || rank >= nranks)
        return fail(ncclInvalidArgument, format("ncclCommInitRank: rank %d of %d", rank, nranks));
    start(site);
    if (nranks > processes())
        return fail(ncclInvalidUsage,
                    format("ncclCommInitRank: %d ranks, and mpiexec runs %d processes (a process is a rank)", nranks,
                           processes()));
    stream_library_flush(); // while the host waits here, a GPU goes on with what it was given
    uint64_t key;
    memcpy(&key, id.internal, sizeof key);
    if (!key) return fail(ncclInvalidArgument, "ncclCommInitRank: the id is not from ncclGetUniqueId");
    *comm = join(key, rank, nranks, site);
    state.live.push_back(*comm);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config, FROM)
{
    ncclResult_t result = ncclCommInitRank(comm, nranks, id, rank, file, line);
    if (result != ncclSuccess) return result;
    (*comm)->blocking = !config || config->blocking;
    return later(*comm);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist, FROM)
{
    if (ndev != 1 || (devlist && devlist[0] != 0))
        return fail(ncclInvalidUsage,
                    "ncclCommInitAll: a process has one device, number 0 (start a process a rank with mpiexec)");
    ncclUniqueId id;
    ncclResult_t result = ncclGetUniqueId(&id);
    return result ? result : ncclCommInitRank(comms, 1, id, 0, file, line);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config, FROM)
{
    ncclComm *c = comm_of(comm, {file, line});
    if (config) return fail(ncclInvalidArgument, "ncclCommSplit: config: only nullptr here");
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return fail(ncclInvalidArgument, format("ncclCommSplit: color %d", color));
    if (c->finalized || c->aborted)
        return fail(ncclInvalidUsage, "ncclCommSplit: the communicator was finalized or aborted");
    if (c->pending || c->promise)
        return fail(ncclInvalidArgument, "ncclCommSplit: the communicator is still busy (ncclInProgress)");
    stream_library_flush();
    run({{make_call(SPLIT, 0, 0, -1, -1, c->id, {file, line}), c, nullptr, nullptr, 0}});
    MPI_Comm mpi;
    MPI_Comm_split(c->mpi, color < 0 ? MPI_UNDEFINED : color, key, &mpi);
    ncclComm *made = new_comm(mpi, c->mpi, {file, line});
    if (made) state.live.push_back(made), made->blocking = c->blocking;
    later(made);
    *newcomm = c->blocking ? made : nullptr;
    c->promised = made, c->promise = c->blocking ? nullptr : newcomm;
    later(c);
    return ncclSuccess; // not "in progress" (seen with NCCL 2.28): the parent must be asked, which is when the child comes
}

ncclResult_t ncclCommFinalize(ncclComm_t comm, FROM)
{
    comm_of(comm, {file, line});
    stream_library_flush();
    comm->finalized = true;
    return later(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm, FROM)
{
    if (!comm) return ncclSuccess;
    if (comm_of(comm, {file, line})->pending)
        return fail(ncclInvalidUsage, "ncclCommDestroy: the communicator is still busy (ncclInProgress)");
    stream_library_flush();
    release(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm, FROM)
{
    comm_of(comm, {file, line})->aborted = true;
    stream_stuck(false);
    stream_library_flush(); // other communicators' operations run, this one's are empty
    release(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *count, FROM)
{
    *count = comm_of(comm, {file, line})->size;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank, FROM)
{
    *rank = comm_of(comm, {file, line})->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device, FROM)
{
    comm_of(comm, {file, line});
    return *device = 0, ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error, FROM)
{
    ncclComm *c = comm_of(comm, {file, line});
    if (c->untold && !--c->untold) c->error = ncclRemoteError;
    *error = c->error ? c->error : c->pending ? ncclInProgress : ncclSuccess;
    if (c->pending) c->pending--;
    else if (c->promise) *c->promise = c->promised, c->promise = nullptr;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream, FROM)
{
    return submit(ALL_REDUCE, send, recv, count, type, op, -1, comm, stream, {file, line});
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream, FROM)
{
    return submit(REDUCE, send, recv, count, type, op, root, comm, stream, {file, line});
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream, FROM)
{
    return submit(BROADCAST, send, recv, count, type, -1, root, comm, stream, {file, line});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream, FROM)
{
    return submit(ALL_GATHER, send, recv, sendcount, type, -1, -1, comm, stream, {file, line});
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream, FROM)
{
    return submit(REDUCE_SCATTER, send, recv, recvcount, type, op, -1, comm, stream, {file, line});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream, FROM)
{
    return submit(SEND, send, nullptr, count, type, -1, peer, comm, stream, {file, line});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream,
                      FROM)
{
    return submit(RECV, nullptr, recv, count, type, -1, peer, comm, stream, {file, line});
}

ncclResult_t ncclGroupStart()
{
    state.groups++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(FROM)
{
    if (!state.groups) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--state.groups || state.group.empty()) return ncclSuccess;
    std::vector<Item> items = std::move(state.group);
    std::vector<cudaStream_t> streams = std::move(state.streams);
    state.group.clear();
    state.streams.clear();
    enqueue(items, streams, {file, line});
    return later(items[0].comm);
}
