// comm_staged: communication of GPU memory between ranks, through host memory.
//
//     the caller's stream ──event──> copies: GPU to pinned memory ──event──> the host's call ──> copies: back to the GPU
//
// A call in flight is a job. Its host call starts when its copy to the host is complete, but not before the host calls
// of all earlier jobs: all ranks of a group must start calls in one order, and which copy completes first depends on
// timing. The invariant: host calls start in the order of the program.
//
// Copies have a stream of their own, which waits only for the caller's stream. So a collective in flight does not delay
// a message that another rank needs before it joins that collective.
//
// Checks of calls (comm_set_checked) are in host memory, and go through the host's group directly.
//
// Bytes that the host's group moves are counted there too, under the same name. Pinned memory grows to the largest call
// that was in flight. It is not in the allocator's table, because it is host memory and the caller's allocator is the
// GPU's.
//
// Rejected: cudaLaunchHostFunc that calls MPI (not on the caller's thread; a call may not block a stream that another
// call needs); MPI that takes device pointers (comes with few installations, and not where ranks share a GPU).
#include "comm/comm_staged.h"

#include "base/check.h"
#include "base/gpu.h"

#include <cstring>

static const char MARK = 0; // its address in CommTicket.expect marks a ticket of this file

// ---- jobs

static bool is_staged(const CommTicket *ticket)
{
    return ticket->expect == &MARK;
}

StagedJob *comm_staged_job(Comm *comm, CommTicket *ticket, const CommCall *call)
{
    StagedFamily *f = staged_group(comm)->family;
    size_t i = 0;
    while (i < f->jobs.size() && f->jobs[i]->used) i++;
    if (i == f->jobs.size()) {
        f->jobs.push_back(new StagedJob{});
        GPU_CHECK(cudaEventCreateWithFlags(&f->jobs[i]->event, cudaEventDisableTiming));
    }
    StagedJob *j = f->jobs[i];
    j->used = true, j->staged = j->queued = j->arrived = false;
    j->comm = comm, j->call = *call, j->request = CommRequest{};
    j->algorithm = comm->algorithm[call->kind], j->in_order = comm->ordered;
    *ticket = CommTicket{};
    ticket->handle.pointer = j, ticket->expect = &MARK;
    return j;
}

void comm_staged_after(StagedFamily *f, cudaStream_t stream)
{
    if (!f->ordered) return;
    GPU_CHECK(cudaEventRecord(f->ready, f->order));
    GPU_CHECK(cudaStreamWaitEvent(stream, f->ready, 0));
}

static size_t sum(const size_t *counts, int n)
{
    size_t total = 0;
    for (int r = 0; r < n; r++) total += counts[r];
    return total;
}

// Bytes that the call reads and writes on this rank.
static void sizes(const Comm *comm, const CommCall *call, size_t *in, size_t *out)
{
    size_t bytes = comm_type_bytes(call->type), all = call->counts ? sum(call->counts, comm->size) : 0;
    size_t own = call->counts ? call->counts[comm->rank] : 0;
    bool root = call->peer == comm->rank;
    *in = *out = call->n;
    switch (call->kind) {
    case COMM_ALL_GATHER: *in = own, *out = all; break;
    case COMM_REDUCE_SCATTER: *in = all, *out = own; break;
    case COMM_ALL_TO_ALL: *in = all, *out = sum(call->in_counts, comm->size); break;
    case COMM_BROADCAST: *in = root ? call->n : 0, *out = root ? 0 : call->n; break;
    case COMM_SEND: *out = 0; break;
    case COMM_RECV: *in = 0; break;
    default: break;
    }
    *in *= bytes, *out *= bytes;
}

// The same call of the host's group, from and to pinned memory.
static void start_on_host(StagedJob *j)
{
    Comm *comm = j->comm, *host = staged_group(comm)->host;
    const CommCall *c = &j->call;
    CommRequest *q = &j->request;
    memcpy(host->name, comm->name, sizeof host->name);
    host->algorithm[c->kind] = j->algorithm, host->ordered = j->in_order;
    switch (c->kind) {
    case COMM_ALL_REDUCE: *q = comm_all_reduce(host, j->out, j->pinned, c->n, c->type, c->op); break;
    case COMM_ALL_GATHER: *q = comm_all_gather(host, j->out, j->pinned, c->counts, c->type); break;
    case COMM_REDUCE_SCATTER: *q = comm_reduce_scatter(host, j->out, j->pinned, c->counts, c->type, c->op); break;
    case COMM_BROADCAST: {
        char *buf = c->peer == comm->rank ? j->pinned : j->out;
        *q = comm_broadcast(host, buf, c->n, c->type, c->peer);
        break;
    }
    case COMM_ALL_TO_ALL: *q = comm_all_to_all(host, j->out, j->pinned, c->counts, c->in_counts, c->type); break;
    case COMM_SEND: *q = comm_send(host, j->pinned, c->n, c->type, c->peer, c->tag); break;
    case COMM_RECV: *q = comm_recv(host, j->out, c->n, c->type, c->peer, c->tag); break;
    case COMM_BARRIER: *q = comm_barrier(host); break;
    default: check(!"a kind of call");
    }
    j->queued = false;
}

static bool is_over(cudaEvent_t event)
{
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaErrorNotReady) return false;
    GPU_CHECK(error);
    return true;
}

static void start_queued(StagedFamily *f)
{
    while (!f->queue.empty() && is_over(f->queue.front()->event)) {
        StagedJob *j = f->queue.front();
        f->queue.pop_front();
        start_on_host(j);
    }
}

static void stage(Comm *comm, CommTicket *ticket, const CommCall *call)
{
    StagedFamily *f = staged_group(comm)->family;
    StagedJob *j = comm_staged_job(comm, ticket, call);
    sizes(comm, call, &j->n_in, &j->n_out);
    size_t first = (j->n_in + 63) / 64 * 64, room = first + j->n_out + 64;
    if (room > j->room) {
        GPU_CHECK(cudaFreeHost(j->pinned));
        j->pinned = nullptr, j->room = 0;
        if (cudaMallocHost(&j->pinned, room) != cudaSuccess)
            die("group %s: no %.1f MiB of the host's memory can be pinned for a %s (try ulimit -l, or a smaller "
                "comm.bucket)", comm->name, (double)room / 1048576, comm_kind_name(call->kind));
        j->room = room;
    }
    j->out = j->pinned + first;
    j->staged = j->queued = true;
    char text[64];
    snprintf(text, sizeof text, "%s %s", comm_kind_name(call->kind), comm->name);
    gpu_mark(text);
    comm_staged_after(f, f->copies);
    if (j->n_in) GPU_CHECK(cudaMemcpyAsync(j->pinned, call->in, j->n_in, cudaMemcpyDeviceToHost, f->copies));
    GPU_CHECK(cudaEventRecord(j->event, f->copies));
    if (call->kind == COMM_RECV) start_on_host(j); // nothing of it comes from the GPU
    else f->queue.push_back(j);
    gpu_mark(nullptr);
}

bool comm_staged_test(Comm *comm, CommTicket *ticket)
{
    StagedGroup *g = staged_group(comm);
    if (!is_staged(ticket)) return g->host->ops->test(g->host, ticket);
    StagedJob *j = (StagedJob *)ticket->handle.pointer;
    start_queued(g->family);
    if (j->staged && !j->arrived) {
        if (j->queued || !comm_done(g->host, &j->request)) return false;
        comm_wait(g->host, &j->request);
        if (j->n_out)
            GPU_CHECK(cudaMemcpyAsync(j->call.out, j->out, j->n_out, cudaMemcpyHostToDevice, g->family->copies));
        GPU_CHECK(cudaEventRecord(j->event, g->family->copies));
        j->arrived = true;
    }
    if (!is_over(j->event)) return false;
    j->used = false;
    return true;
}

void comm_staged_native(Comm *comm, CommTicket *ticket, const CommCall *call, int *work)
{
    (void)work;
    stage(comm, ticket, call);
}

static CommCall message(CommKind kind, void *out, const void *in, size_t n_bytes, int peer, int tag)
{
    CommCall call = {};
    call.kind = kind, call.type = COMM_BYTE, call.out = out, call.in = in, call.n = n_bytes;
    call.peer = peer, call.tag = tag;
    return call;
}

void comm_staged_send(Comm *comm, CommTicket *ticket, const void *buf, size_t n_bytes, int to, int tag, int channel)
{
    Comm *host = staged_group(comm)->host;
    if (channel == 2) return host->ops->send(host, ticket, buf, n_bytes, to, tag, channel);
    CommCall call = message(COMM_SEND, nullptr, buf, n_bytes, to, tag);
    stage(comm, ticket, &call);
}

void comm_staged_recv(Comm *comm, CommTicket *ticket, void *buf, size_t n_bytes, int from, int tag, int channel)
{
    Comm *host = staged_group(comm)->host;
    if (channel == 2) return host->ops->recv(host, ticket, buf, n_bytes, from, tag, channel);
    CommCall call = message(COMM_RECV, buf, nullptr, n_bytes, from, tag);
    stage(comm, ticket, &call);
}

// ---- groups

static void adopt(Comm *comm, StagedFamily *family, Comm *host, Comm *numbers)
{
    StagedGroup *g = new StagedGroup{};
    g->family = family, g->host = host;
    family->groups++;
    comm->rank = host->rank, comm->size = host->size, comm->state = g, comm->host = numbers;
}

bool comm_staged_split(Comm *comm, Comm *child, int color, int key)
{
    StagedGroup *g = staged_group(comm);
    Comm *host = comm_split(g->host, color, key, comm->name), *numbers = comm_split(comm->host, color, key, comm->name);
    if (host) adopt(child, g->family, host, numbers);
    return host != nullptr;
}

void comm_staged_free(Comm *comm)
{
    StagedGroup *g = staged_group(comm);
    StagedFamily *f = g->family;
    delete g;
    if (--f->groups) return;
    for (StagedJob *j : f->jobs) {
        GPU_CHECK(cudaFreeHost(j->pinned));
        GPU_CHECK(cudaEventDestroy(j->event));
        delete j;
    }
    GPU_CHECK(cudaEventDestroy(f->ready));
    GPU_CHECK(cudaStreamDestroy(f->copies));
    delete f;
}

static StagedFamily *open_device(int device)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0)
        die("comm: no GPU found: %s (try nvidia-smi; build/train runs without one)",
            error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error));
    if (device < 0 || device >= n) die("comm: GPU %d: there are %d here, from 0", device, n);
    GPU_CHECK(cudaSetDevice(device));
    StagedFamily *f = new StagedFamily{};
    f->device = device;
    GPU_CHECK(cudaStreamCreateWithFlags(&f->copies, cudaStreamNonBlocking));
    GPU_CHECK(cudaEventCreateWithFlags(&f->ready, cudaEventDisableTiming));
    return f;
}

Comm *comm_staged_world(const CommOps *ops, Comm *host, int device)
{
    StagedFamily *f = open_device(device);
    Comm *world = comm_create(ops, "world");
    adopt(world, f, comm_split(host, 0, host->rank, "world"), host);
    world->share = host->share;
    comm_set_heartbeat(world, comm_heartbeat(host));
    comm_set_partner(world, host);
    return world;
}

static const CommOps STAGED = {
    "staged",           comm_staged_split, comm_staged_send, comm_staged_recv, comm_staged_test,
    comm_staged_native, comm_staged_free,  true,             false,            gpu_alloc,
    gpu_release,        nullptr,           nullptr,          nullptr,
};

Comm *comm_staged_start(Comm *host, int device)
{
    return comm_staged_world(&STAGED, host, device);
}

void comm_staged_order(Comm *world, void *stream)
{
    StagedFamily *f = staged_group(world)->family;
    f->order = (cudaStream_t)stream, f->ordered = true;
}
