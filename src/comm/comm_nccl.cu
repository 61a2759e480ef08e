// comm_nccl: collectives by NCCL, on GPU memory; each rank has a GPU of its own.
//
// Streams. A group has a stream, in which its calls run in the order in which they are made. At the start of a call it
// waits, by an event, for the work that is in the caller's stream; the caller's stream waits for it only at comm_wait.
// In between both run: the gradients of a DDP bucket are sent during the backward of the next layers, and an FSDP unit
// is gathered while the unit before it computes. The host waits for neither.
//
// The invariant: a sum that comm.h promises bit for bit is never NCCL's. NCCL adds around rings and trees of its own
// choice, rounds 16-bit numbers after each addition and drops NaN in a maximum. So `ordered` sums, bf16 and fp16, and
// floating-point maxima go like comm.h's direct algorithm: shard j of every rank to rank j (grouped sends), one kernel
// that adds them in the tree (r0 + r1) + (r2 + r3), in fp32 for 16 bits, rounded once, and an all_gather. That moves as
// many bytes as a ring. What remains NCCL's own sums: fp32 and fp64 without `ordered`; and integers.
//
//     all_reduce      AllReduce               | exchange, fold, gather
//     reduce_scatter  ReduceScatter, uneven shards: a group of Reduce | exchange, fold
//     all_gather      AllGather, uneven shards: a group of Broadcast
//     all_to_all      a group of Send and Recv
//     barrier         the host's group, once the caller's stream has come so far
//
// Rejected: ncclSend for single messages. NCCL has no tags, and a communicator runs its calls in the order of issue. A
// pipeline stage that posts a receive early, or sends what its neighbour takes later, would block both ends. Such
// messages go through the host instead, which costs a pass over PCIe.
// Where the compiler finds no nccl.h the program is built without NCCL, and comm_nccl_start dies with that message.
#include "comm/comm.h"

#include "base/check.h"
#include "comm/comm_staged.h"
#include "base/gpu.h"

#if __has_include(<nccl.h>)

#include <cstring>
#include <nccl.h>
#include <time.h>

enum { THREADS = 256, LEVELS = 31 };
static const size_t MOST_BLOCKS = 1024;

static ncclComm_t nccl_of(const Comm *comm)
{
    return (ncclComm_t)staged_group(comm)->nccl;
}

// ---- errors
//
// Errors. Communicators do not block: a call returns at once. Errors, here or on another rank, are polled whenever a
// call starts, is tested or waited for, and while the host waits for a message or for the GPU. On any error the
// communicators are aborted, so that no kernel waits for a rank that is gone, and the process dies with NCCL's own
// message, which ends all ranks.

static void abort_all(const Comm *comm)
{
    for (Comm *c = comm_root(comm); c; c = c->next) {
        if (nccl_of(c)) ncclCommAbort(nccl_of(c));
        staged_group(c)->nccl = nullptr;
    }
}

[[noreturn]] static void fail(Comm *comm, ncclResult_t result, const char *call)
{
    char text[256];
    const char *last = ncclGetLastError(nccl_of(comm));
    snprintf(text, sizeof text, "%s%s%s", ncclGetErrorString(result), last && *last ? ": " : "", last ? last : "");
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    abort_all(comm);
    die("group %s, rank %d of %d: %s: %s (NCCL_DEBUG=WARN says more)", comm->name, comm->rank, comm->size, call, text);
}

// Dies on an error. A call of a non-blocking communicator may still be in progress: then it polls.
static void must(Comm *comm, ncclResult_t result, const char *call)
{
    while (result == ncclInProgress) {
        struct timespec t = {0, 20000};
        nanosleep(&t, nullptr);
        supervisor_pulse(comm_heartbeat(comm));
        ncclResult_t asked = ncclCommGetAsyncError(nccl_of(comm), &result);
        if (asked != ncclSuccess) result = asked;
    }
    if (result != ncclSuccess) fail(comm, result, call);
}

// Dies when the communicator has had an error since, on any rank.
static void look(Comm *comm)
{
    ncclResult_t result = ncclSuccess;
    if (!nccl_of(comm)) return;
    ncclResult_t asked = ncclCommGetAsyncError(nccl_of(comm), &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclSuccess && result != ncclInProgress) fail(comm, result, "an earlier call");
}

// ---- sums in the order of comm.h

// Rank r's contribution to this rank's shard: its own is in `own`, the others arrived in the order of collectives.c.
template <class T> struct Contributions {
    const T *own, *others;
    int rank, size;
    size_t n;
};

template <class A> __device__ inline A join(A a, A b, bool maximum)
{
    if (!maximum) return a + b;
    return a > b || a != a ? a : b; // NaN wins
}

// A binary counter, as in collectives.c: level[j] holds the sum of 2^j ranks while bit j of the ranks seen is set.
template <class T, class A> __global__ void fold_kernel(T *out, Contributions<T> in, bool maximum)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < in.n; i += step) {
        A level[LEVELS], sum = A();
        for (int r = 0; r < in.size; r++) {
            int back = (in.rank - r + in.size) % in.size, j = 0;
            sum = (A)(back == 0 ? in.own[i] : in.others[(size_t)(back - 1) * in.n + i]);
            for (; r >> j & 1; j++) sum = join(level[j], sum, maximum);
            level[j] = sum;
        }
        bool some = false;
        for (int j = 0; in.size >> j; j++) {
            if (!(in.size >> j & 1)) continue;
            sum = some ? join(level[j], sum, maximum) : level[j];
            some = true;
        }
        out[i] = (T)sum;
    }
}

template <class T, class A>
static void fold_as(const Comm *comm, const CommCall *call, void *out, size_t first, cudaStream_t stream)
{
    size_t n = call->counts[comm->rank], blocks = (n + THREADS - 1) / THREADS;
    Contributions<T> in = {(const T *)call->in + first, (const T *)call->scratch, comm->rank, comm->size, n};
    LAUNCH((fold_kernel<T, A>), (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), THREADS, 0, stream, (T *)out,
           in, call->op == COMM_MAX);
}

static void fold(const Comm *comm, const CommCall *call, void *out, size_t first, cudaStream_t stream)
{
    if (call->counts[comm->rank] == 0) return;
    switch (call->type) {
    case COMM_FP32: fold_as<float, float>(comm, call, out, first, stream); break;
    case COMM_FP64: fold_as<double, double>(comm, call, out, first, stream); break;
    case COMM_INT32: fold_as<int32_t, int32_t>(comm, call, out, first, stream); break;
    case COMM_INT64: fold_as<int64_t, int64_t>(comm, call, out, first, stream); break;
    case COMM_BF16: fold_as<__nv_bfloat16, float>(comm, call, out, first, stream); break;
    case COMM_FP16: fold_as<__half, float>(comm, call, out, first, stream); break;
    default: check(!"numbers");
    }
}

// ---- collectives
//
// The scratch of the exchange belongs to a call's slot in comm.c. Another call, even of another group, may take the
// slot when the wait is over for the host, although not yet for the GPU. That is safe: the new call's stream waits for
// the caller's stream, which waits for the end of the old call.

static ncclDataType_t type_of(CommType type)
{
    switch (type) {
    case COMM_FP32: return ncclFloat32;
    case COMM_BF16: return ncclBfloat16;
    case COMM_FP16: return ncclFloat16;
    case COMM_FP64: return ncclFloat64;
    case COMM_INT32: return ncclInt32;
    case COMM_INT64: return ncclInt64;
    default: return ncclUint8;
    }
}

// The arguments that the steps of one call share.
typedef struct {
    Comm *comm;
    const CommCall *call;
    ncclComm_t nccl;
    ncclDataType_t type;
    ncclRedOp_t op;
    cudaStream_t stream;
    size_t bytes;
    int rank, size;
} Talk;

static const char *in_at(const Talk *t, size_t element)
{
    return (const char *)t->call->in + element * t->bytes;
}

static char *out_at(const Talk *t, size_t element)
{
    return (char *)t->call->out + element * t->bytes;
}

static bool equal_shards(const Talk *t)
{
    for (int r = 1; r < t->size; r++)
        if (t->call->counts[r] != t->call->counts[0]) return false;
    return true;
}

static void group_start(const Talk *t)
{
    must(t->comm, ncclGroupStart(), "ncclGroupStart");
}

static void group_end(const Talk *t)
{
    must(t->comm, ncclGroupEnd(), "ncclGroupEnd");
}

// All-gather: every rank's shard, from `own`, to its place in out. Empty shards are not sent.
static void gather(const Talk *t, const void *own)
{
    const CommCall *c = t->call;
    if (equal_shards(t)) {
        if (c->counts[0])
            must(t->comm, ncclAllGather(own, c->out, c->counts[0], t->type, t->nccl, t->stream), "ncclAllGather");
        return;
    }
    group_start(t);
    for (int r = 0; r < t->size; r++) {
        char *to = out_at(t, c->offsets[r]);
        const void *from = r == t->rank ? own : to;
        if (c->counts[r])
            must(t->comm, ncclBroadcast(from, to, c->counts[r], t->type, r, t->nccl, t->stream), "ncclBroadcast");
    }
    group_end(t);
}

// Sends shard r of `in` to rank r, all at once; then adds the received shards into `out`.
static void exchange_and_fold(const Talk *t, void *out)
{
    const CommCall *c = t->call;
    size_t own = c->counts[t->rank];
    group_start(t);
    for (int k = 1; k < t->size; k++) {
        int to = (t->rank + k) % t->size, from = (t->rank - k + t->size) % t->size;
        char *place = (char *)c->scratch + (size_t)(k - 1) * own * t->bytes;
        if (c->counts[to])
            must(t->comm, ncclSend(in_at(t, c->offsets[to]), c->counts[to], t->type, to, t->nccl, t->stream), "ncclSend");
        if (own) must(t->comm, ncclRecv(place, own, t->type, from, t->nccl, t->stream), "ncclRecv");
    }
    group_end(t);
    fold(t->comm, c, out, c->offsets[t->rank], t->stream);
}

static void all_reduce(const Talk *t)
{
    const CommCall *c = t->call;
    if (c->algorithm == COMM_DIRECT) {
        char *own = out_at(t, c->offsets[t->rank]);
        exchange_and_fold(t, own);
        gather(t, own);
    } else if (c->n) {
        must(t->comm, ncclAllReduce(c->in, c->out, c->n, t->type, t->op, t->nccl, t->stream), "ncclAllReduce");
    }
}

static void reduce_scatter(const Talk *t)
{
    const CommCall *c = t->call;
    if (c->algorithm == COMM_DIRECT) return exchange_and_fold(t, c->out);
    if (equal_shards(t)) {
        if (c->counts[0])
            must(t->comm, ncclReduceScatter(c->in, c->out, c->counts[0], t->type, t->op, t->nccl, t->stream),
                 "ncclReduceScatter");
        return;
    }
    group_start(t);
    for (int r = 0; r < t->size; r++)
        if (c->counts[r])
            must(t->comm, ncclReduce(in_at(t, c->offsets[r]), r == t->rank ? c->out : nullptr, c->counts[r], t->type,
                                     t->op, r, t->nccl, t->stream), "ncclReduce");
    group_end(t);
}

static void copy(void *to, const void *from, size_t n_bytes, cudaStream_t stream)
{
    if (n_bytes && to != from) GPU_CHECK(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToDevice, stream));
}

static void all_to_all(const Talk *t)
{
    const CommCall *c = t->call;
    group_start(t);
    for (int k = 1; k < t->size; k++) {
        int to = (t->rank + k) % t->size, from = (t->rank - k + t->size) % t->size;
        if (c->counts[to])
            must(t->comm, ncclSend(in_at(t, c->offsets[to]), c->counts[to], t->type, to, t->nccl, t->stream), "ncclSend");
        if (c->in_counts[from])
            must(t->comm, ncclRecv(out_at(t, c->in_offsets[from]), c->in_counts[from], t->type, from, t->nccl,
                                   t->stream), "ncclRecv");
    }
    group_end(t);
    copy(out_at(t, c->in_offsets[t->rank]), in_at(t, c->offsets[t->rank]), c->counts[t->rank] * t->bytes, t->stream);
}

// In a group of one every call is a copy.
static void alone(const Talk *t)
{
    const CommCall *c = t->call;
    size_t n = c->counts ? c->counts[0] : c->n;
    if (c->kind != COMM_BROADCAST) copy(c->out, c->in, n * t->bytes, t->stream);
}

static void nccl_native(Comm *comm, CommTicket *ticket, const CommCall *call, int *work)
{
    StagedGroup *g = staged_group(comm);
    if (call->kind == COMM_BARRIER) return comm_staged_native(comm, ticket, call, work);
    look(comm);
    Talk t = {comm, call, nccl_of(comm), type_of(call->type), call->op == COMM_MAX ? ncclMax : ncclSum, g->talk,
              comm_type_bytes(call->type), comm->rank, comm->size};
    StagedJob *j = comm_staged_job(comm, ticket, call);
    char text[64];
    snprintf(text, sizeof text, "%s %s", comm_kind_name(call->kind), comm->name);
    gpu_mark(text);
    comm_staged_after(g->family, g->talk);
    if (comm->size == 1) alone(&t);
    else switch (call->kind) {
    case COMM_ALL_REDUCE: all_reduce(&t); break;
    case COMM_ALL_GATHER: gather(&t, call->in); break;
    case COMM_REDUCE_SCATTER: reduce_scatter(&t); break;
    case COMM_ALL_TO_ALL: all_to_all(&t); break;
    case COMM_BROADCAST:
        if (call->n)
            must(comm, ncclBroadcast(call->in, call->out, call->n, t.type, call->peer, t.nccl, t.stream),
                 "ncclBroadcast");
        break;
    default: check(!"a collective");
    }
    GPU_CHECK(cudaEventRecord(j->event, g->talk));
    gpu_mark(nullptr);
}

static bool nccl_test(Comm *comm, CommTicket *ticket)
{
    look(comm);
    return comm_staged_test(comm, ticket);
}

// The caller's stream waits; the host does not.
static bool nccl_finish(Comm *comm, CommTicket *ticket)
{
    StagedFamily *f = staged_group(comm)->family;
    StagedJob *j = (StagedJob *)ticket->handle.pointer;
    look(comm);
    if (!f->ordered || j->staged) return false;
    GPU_CHECK(cudaStreamWaitEvent(f->order, j->event, 0));
    j->used = false;
    return true;
}

// Polls errors. The query also makes the driver submit pending work.
static void nccl_watch(Comm *root)
{
    StagedFamily *f = staged_group(root)->family;
    for (Comm *c = root; c; c = c->next) look(c);
    if (!f->ordered) return;
    cudaError_t error = cudaStreamQuery(f->order);
    if (error != cudaErrorNotReady) GPU_CHECK(error);
}

// ---- groups

static void open_group(StagedGroup *g)
{
    GPU_CHECK(cudaStreamCreateWithFlags(&g->talk, cudaStreamNonBlocking));
}

static void close_nccl(Comm *comm)
{
    if (!nccl_of(comm)) return;
    must(comm, ncclCommFinalize(nccl_of(comm)), "ncclCommFinalize");
    ncclResult_t result = ncclCommDestroy(nccl_of(comm));
    staged_group(comm)->nccl = nullptr; // so that it is not polled again
    if (result != ncclInProgress) must(comm, result, "ncclCommDestroy");
}

static bool nccl_split(Comm *comm, Comm *child, int color, int key)
{
    ncclComm_t made = nullptr;
    bool member = comm_staged_split(comm, child, color, key);
    if (nccl_of(comm)) {
        // It returns success at once; a thread of NCCL's writes `made` later, before the parent is ready again.
        ncclResult_t result = ncclCommSplit(nccl_of(comm), color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &made, nullptr);
        must(comm, result == ncclSuccess ? ncclInProgress : result, "ncclCommSplit");
        if (!made && color >= 0) fail(comm, ncclInternalError, "ncclCommSplit");
    }
    if (!member) return false;
    StagedGroup *g = staged_group(child);
    open_group(g);
    g->nccl = made;
    snprintf(child->name, sizeof child->name, "%s", comm->name); // until it has its own
    if (made) must(child, ncclInProgress, "ncclCommSplit"); // polls until it is ready
    if (child->size == 1) close_nccl(child); // never used
    return true;
}

static void nccl_free(Comm *comm)
{
    StagedGroup *g = staged_group(comm);
    GPU_CHECK(cudaStreamSynchronize(g->talk));
    close_nccl(comm);
    GPU_CHECK(cudaStreamDestroy(g->talk));
    comm_staged_free(comm);
}

static const CommOps NCCL = {
    "nccl",    nccl_split, comm_staged_send, comm_staged_recv, nccl_test,   nccl_native,
    nccl_free, true,       true,             gpu_alloc,        gpu_release, nccl_finish,
    nullptr,   nccl_watch,
};

Comm *comm_nccl_start(Comm *host, int device)
{
    Comm *world = comm_staged_world(&NCCL, host, device);
    StagedGroup *g = staged_group(world);
    open_group(g);
    if (world->size == 1) return world;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t nccl = nullptr;
    memset(&id, 0, sizeof id);
    if (world->rank == 0) must(world, ncclGetUniqueId(&id), "ncclGetUniqueId");
    CommRequest q = comm_broadcast(host, &id, sizeof id, COMM_BYTE, 0);
    comm_wait(host, &q);
    config.blocking = 0;
    ncclResult_t result = ncclCommInitRankConfig(&nccl, world->size, id, world->rank, &config);
    g->nccl = nccl;
    must(world, result, "ncclCommInitRankConfig");
    return world;
}

bool comm_nccl_built(void)
{
    return true;
}
#else
Comm *comm_nccl_start(Comm *, int)
{
    die("comm.backend = nccl: this program was built without NCCL (install libnccl-dev and make gpu, or try staged)");
}

bool comm_nccl_built(void)
{
    return false;
}
#endif
