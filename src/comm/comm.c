// comm: makes groups of ranks, starts their calls, drives them, waits for them and counts. See comm.h.
//
// All groups that were split from one world are a family. The family owns what calls use (slots, scratch, the clock of
// the slow link), because a rank that waits for a call of one group must also drive the calls of the others. comm_free
// of the world frees the family. A group owns its counts, its algorithms and its backend's state.
//
// The invariant: a call makes progress only inside start, comm_progress and comm_wait, on the caller's thread. Each of
// the three drives every call of the family that is in flight; the last two also drive those of its partner (where a
// device's memory goes through the host's groups). So a rank that waits for one call still does its part of the others,
// and waits may come in any order without deadlock. But a rank that computes for long without calling comm_progress
// delays its neighbours.
//
// A call in flight is a Slot. Slots are reused, lowest first, and each keeps its scratch, which only grows: after the
// first step of a regular program nothing is allocated, and scratch is the same on every run. A collective
// of collectives.c is a list of steps over the backend's send and receive; its messages carry
// the call's number as their tag, because two collectives in flight may advance in different order on different ranks.
//
// Rejected: a progress thread (needs a thread-safe MPI, and a core); completion callbacks (the order of sums would
// depend on arrival); wrappers that count or slow down another Comm (every group would exist twice).
#include "comm/comm.h"

#include "base/clock.h"
#include "base/check.h"
#include "comm/collectives.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAP = 20000, LONG_NAP = 20000000 }; // nanoseconds between tests; where other ranks end the sleep

typedef struct {
    bool used, done, native; // native: the backend's own call, or a single message
    unsigned serial;
    Comm *comm;
    Collective run;
    CollectiveStep step;
    int k, steps;
    CommTicket sending, receiving; // native: in `receiving`
    bool sent, received;           // or absent
    int tag;
    unsigned number; // of the group's collective calls
    size_t *numbers; // (4 * size) counts, offsets, in_counts, in_offsets
    int *work;       // (4 * size) for the backend
    int room;        // the size they are made for
    char *scratch;
    size_t n_scratch;
    double begin, ready; // seconds; ready: when the slow link lets the call end
} Slot;

struct CommFamily {
    Slot **slot; // calls in flight, and those that may be used again
    unsigned n_slots, serial;
    Mem mem;    // for their scratch
    bool checked;
    double alpha, beta, link_free, waited;
    CommTrace trace;
    void *trace_arg;
    int spins;
    CommFamily *partner;
    Heartbeat *beat;
    Comm *first, *last;
};

static void sleep_s(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&t, NULL);
}

// n elements of so many bytes, zeroed, for free(); dies without memory.
static void *allocate(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes);
    if (!p) die("comm: no memory for %zu x %zu bytes", n, bytes);
    return p;
}

// ---- names and sizes

typedef struct {
    const char *name;
    size_t bytes;
} TypeRow;

static const TypeRow TYPE[COMM_TYPES] = {
    [COMM_FP32] = {"fp32", 4}, [COMM_BF16] = {"bf16", 2}, [COMM_FP16] = {"fp16", 2}, [COMM_FP64] = {"fp64", 8},
    [COMM_INT32] = {"int32", 4}, [COMM_INT64] = {"int64", 8}, [COMM_BYTE] = {"bytes", 1},
};
static const char *const KIND[COMM_KINDS] = {
    [COMM_ALL_REDUCE] = "all_reduce", [COMM_ALL_GATHER] = "all_gather", [COMM_REDUCE_SCATTER] = "reduce_scatter",
    [COMM_BROADCAST] = "broadcast", [COMM_ALL_TO_ALL] = "all_to_all", [COMM_SEND] = "send", [COMM_RECV] = "recv",
    [COMM_BARRIER] = "barrier",
};
static const char *const ALGORITHM[COMM_ALGORITHMS] = {
    [COMM_NATIVE] = "native", [COMM_RING] = "ring", [COMM_TREE] = "tree", [COMM_HALVING] = "halving",
    [COMM_HIERARCHICAL] = "hierarchical", [COMM_DIRECT] = "direct",
};

size_t comm_type_bytes(CommType type)
{
    check(type < COMM_TYPES);
    return TYPE[type].bytes;
}

CommType comm_type_of(XType x)
{
    return x == X_FP32 ? COMM_FP32 : x == X_BF16 ? COMM_BF16 : COMM_FP16;
}

const char *comm_type_name(CommType type)
{
    return type < COMM_TYPES ? TYPE[type].name : "?";
}

const char *comm_kind_name(CommKind kind)
{
    return kind < COMM_KINDS ? KIND[kind] : "?";
}

const char *comm_algorithm_name(CommAlgorithm algorithm)
{
    return algorithm < COMM_ALGORITHMS ? ALGORITHM[algorithm] : "?";
}

void comm_even(size_t *counts, size_t n, int size)
{
    size_t N = (size_t)size;
    for (size_t r = 0; r < N; r++) counts[r] = n / N + (r < n % N);
}

// ---- groups

static bool self_split(Comm *comm, Comm *child, int color, int key)
{
    (void)key;
    child->rank = 0, child->size = comm->size;
    return color >= 0;
}

// A group of one never reaches its backend: start() copies, and there is no other rank to send to.
static const CommOps SELF = {.name = "self", .split = self_split};

Comm *comm_self(void)
{
    Comm *comm = comm_create(&SELF, "world");
    comm->size = 1;
    return comm;
}

static void join(Comm *comm, CommFamily *f, const char *name)
{
    comm->family = f;
    snprintf(comm->name, sizeof comm->name, "%s", name);
    if (f->last) f->last->next = comm;
    else f->first = comm;
    f->last = comm;
}

Comm *comm_create(const CommOps *ops, const char *name)
{
    Comm *comm = allocate(1, sizeof *comm);
    CommFamily *f = allocate(1, sizeof *f);
    comm->ops = ops, comm->share = 1;
    f->mem = (Mem){.raw_alloc = ops->alloc, .raw_free = ops->release, .device = ops->alloc != NULL};
    join(comm, f, name);
    return comm;
}

Comm *comm_split(Comm *comm, int color, int key, const char *name)
{
    Comm *child = allocate(1, sizeof *child);
    child->ops = comm->ops, child->ordered = comm->ordered, child->share = comm->share, child->machine = comm->machine;
    child->family = comm->family; // a backend may die while it splits
    memcpy(child->algorithm, comm->algorithm, sizeof child->algorithm);
    if (comm->ops->split(comm, child, color, key)) {
        join(child, comm->family, name);
        return child;
    }
    free(child);
    return NULL;
}

Comm *comm_host(Comm *comm)
{
    return comm && comm->host ? comm->host : comm;
}

Comm *comm_root(const Comm *comm)
{
    return comm->family->first;
}

void comm_hosts(Comm *comm, int *host)
{
    int N = comm->size, n_hosts = 0;
    int32_t own = comm->machine, all[N];
    size_t one[N];
    for (int r = 0; r < N; r++) one[r] = 1;
    CommRequest gather = comm_all_gather(comm, all, &own, one, COMM_INT32);
    comm_wait(comm, &gather);
    for (int r = 0; r < N; r++) {
        int first = 0;
        while (all[first] != all[r]) first++;
        host[r] = first < r ? host[first] : n_hosts++;
    }
}

int comm_host_ranks(const int *host, int n)
{
    int each = 0;
    while (each < n && host[each] == 0) each++;
    for (int r = 0; r < n; r++)
        if (host[r] != r / each || n % each) return 0;
    return each;
}

void comm_free(Comm *comm)
{
    if (!comm) return;
    CommFamily *f = comm->family;
    for (unsigned i = 0; i < f->n_slots; i++) {
        Slot *s = f->slot[i];
        if (s->used) die("group %s: freed while a %s is in flight", s->comm->name, comm_kind_name(s->run.call.kind));
        free(s->numbers), free(s->work), free(s);
    }
    free(f->slot);
    for (Comm *c = f->first, *next; c; c = next) {
        next = c->next;
        if (c->ops->free) c->ops->free(c);
        free(c);
    }
    mem_free_all(&f->mem); // the scratch of the slots
    if (f->partner) f->partner->partner = NULL;
    free(f);
}

// ---- settings
//
// The slow link (a simulated network). Each call occupies the link for collectives_seconds(...) from its start or from
// the end of the call before, whichever is later; comm_wait sleeps until then. The data itself moves as fast as it can,
// so a result is complete before the link's time, never after it. A rank that starts late does not delay the clocks of
// the others, and a send costs nothing: its time is charged to the receiver.

Mem *comm_mem(Comm *comm)
{
    return &comm->family->mem;
}

void comm_set_algorithm(Comm *comm, CommKind kind, CommAlgorithm algorithm)
{
    if (!collectives_exists(kind, algorithm))
        die("group %s: %s has no algorithm '%s'", comm->name, comm_kind_name(kind), comm_algorithm_name(algorithm));
    if (comm->ops->direct && algorithm != COMM_NATIVE && algorithm != COMM_DIRECT)
        die("group %s: %s over %s has no algorithm '%s' (native)", comm->name, comm_kind_name(kind), comm->ops->name,
            comm_algorithm_name(algorithm));
    comm->algorithm[kind] = algorithm;
}

void comm_set_node(Comm *comm, int node)
{
    if (node < 1 || comm->size % node)
        die("group %s: nodes of %d ranks do not divide its %d", comm->name, node, comm->size);
    comm->node = node;
}

void comm_set_ordered(Comm *comm, bool ordered)
{
    comm->ordered = ordered;
}

void comm_set_checked(Comm *comm, bool checked)
{
    comm->family->checked = checked;
}

void comm_set_slow(Comm *comm, double alpha, double beta)
{
    comm->family->alpha = alpha, comm->family->beta = beta;
}

void comm_set_trace(Comm *comm, CommTrace trace, void *arg)
{
    comm->family->trace = trace, comm->family->trace_arg = arg;
}

void comm_set_spins(Comm *comm, int spins)
{
    comm->family->spins = spins;
}

void comm_set_partner(Comm *comm, Comm *other)
{
    comm->family->partner = other->family, other->family->partner = comm->family;
}

void comm_set_heartbeat(Comm *comm, Heartbeat *beat)
{
    comm->family->beat = beat;
}

Heartbeat *comm_heartbeat(const Comm *comm)
{
    return comm ? comm->family->beat : NULL;
}

double comm_waited(const Comm *comm)
{
    const CommFamily *partner = comm->family->partner;
    return comm->family->waited + (partner ? partner->waited : 0);
}

void comm_reset_counts(Comm *comm)
{
    const CommFamily *both[] = {comm->family, comm->family->partner};
    for (int i = 0; i < 2 && both[i]; i++)
        for (Comm *c = both[i]->first; c; c = c->next) memset(c->count, 0, sizeof c->count);
}

CommAlgorithm comm_algorithm(const Comm *comm, CommKind kind, CommType type, CommOp op)
{
    CommAlgorithm a = comm->algorithm[kind];
    bool native = a == COMM_NATIVE, all_reduce = kind == COMM_ALL_REDUCE;
    bool narrow = type == COMM_BF16 || type == COMM_FP16, real = narrow || type == COMM_FP32 || type == COMM_FP64;
    if (kind == COMM_SEND || kind == COMM_RECV) return COMM_NATIVE;
    if ((all_reduce || kind == COMM_REDUCE_SCATTER) && comm->size > 1) {
        bool power = (comm->size & (comm->size - 1)) == 0, tree = a == COMM_TREE || (a == COMM_HALVING && power);
        if (narrow) return COMM_DIRECT;
        if (comm->ordered && real && op == COMM_SUM) return tree ? a : COMM_DIRECT;
        if (native && real && op == COMM_MAX) return all_reduce && !comm->ops->direct && !comm->shared ? COMM_TREE : COMM_DIRECT;
    }
    if (a == COMM_HIERARCHICAL && (comm->node <= 1 || comm->node == comm->size)) return COMM_RING; // which it is then
    if (!native || (comm->ops->native && comm->size > 1)) return a;
    if (kind == COMM_BROADCAST || kind == COMM_BARRIER) return COMM_TREE;
    return kind == COMM_ALL_TO_ALL ? COMM_DIRECT : COMM_RING;
}

// ---- slots
//
// Waiting. A library that spins occupies the core that the other rank needs: four MPI ranks on two cores become a
// hundred times slower. So all waiting here tests, and sleeps between tests: for NAP, or, where the backend can tell
// (comm_shared), until another rank has done something.

static Slot *take_slot(Comm *comm)
{
    CommFamily *f = comm->family;
    unsigned i = 0;
    while (i < f->n_slots && f->slot[i]->used) i++;
    if (i == f->n_slots) {
        f->slot = realloc(f->slot, (i + 1) * sizeof *f->slot);
        if (!f->slot) die("comm: no memory for %u calls in flight", i + 1);
        f->slot[f->n_slots++] = allocate(1, sizeof(Slot));
    }
    Slot *s = f->slot[i];
    if (s->room < comm->size) {
        free(s->numbers), free(s->work);
        s->numbers = allocate((size_t)comm->size, 4 * sizeof *s->numbers);
        s->work = allocate((size_t)comm->size, 4 * sizeof *s->work);
        s->room = comm->size;
    }
    s->used = true, s->done = s->native = false;
    if (!++f->serial) f->serial = 1;
    s->serial = f->serial, s->comm = comm;
    s->begin = clock_seconds(), s->ready = 0;
    return s;
}

static void need_scratch(Slot *s, size_t n_bytes)
{
    CommFamily *f = s->comm->family;
    if (n_bytes > s->n_scratch) {
        mem_free(&f->mem, s->scratch);
        s->scratch = mem_alloc(&f->mem, MEM_COMM, n_bytes, "scratch of a collective");
        s->n_scratch = n_bytes;
    }
    s->run.scratch = s->scratch;
}

// counts and where each begins, copied, so that the caller's array may go.
static void copy_counts(Slot *s, int which, const size_t *counts, const size_t **to, const size_t **offsets)
{
    size_t N = (size_t)s->comm->size, *own = s->numbers + (size_t)which * 2 * N, at = 0;
    for (size_t r = 0; r < N; r++) {
        own[r] = counts[r], own[N + r] = at;
        at += counts[r];
    }
    *to = own, *offsets = own + N;
}

// ---- one call

static void post(Slot *s)
{
    const Collective *c = &s->run;
    Comm *comm = s->comm;
    CommCount *count = &comm->count[c->call.kind];
    s->step = collectives_step(c, s->k);
    s->sent = s->step.send_to < 0, s->received = s->step.recv_from < 0;
    size_t n_out = s->step.n_send * c->bytes, n_in = s->step.n_recv * c->bytes;
    if (!s->received) comm->ops->recv(comm, &s->receiving, s->step.recv, n_in, s->step.recv_from, s->tag, 1);
    if (!s->sent) comm->ops->send(comm, &s->sending, s->step.send, n_out, s->step.send_to, s->tag, 1);
    count->sent += n_out, count->received += n_in;
}

// Advances a call as far as it goes without blocking; true when done.
static bool advance(Slot *s)
{
    const CommOps *ops = s->comm->ops;
    if (s->native) return s->done || (s->done = ops->test(s->comm, &s->receiving));
    while (!s->done) {
        if (!s->received) s->received = ops->test(s->comm, &s->receiving);
        if (!s->sent) s->sent = ops->test(s->comm, &s->sending);
        if (!s->received || !s->sent) return false;
        collectives_act(&s->run, &s->step);
        s->done = ++s->k == s->steps;
        if (!s->done) post(s);
    }
    return s->done;
}

// Drives every call of the family, but not those of its partner: a backend that is driven here may itself make calls
// (comm_staged), and these must not come back to the partner.
static bool drive(CommFamily *f)
{
    bool done = true;
    for (unsigned i = 0; i < f->n_slots; i++)
        if (f->slot[i]->used && !advance(f->slot[i])) done = false;
    for (unsigned i = 0; done && f->beta + f->alpha > 0 && i < f->n_slots; i++)
        if (f->slot[i]->used && f->slot[i]->ready > clock_seconds()) done = false;
    return done;
}

static void watch(const CommFamily *f)
{
    if (f->first->ops->watch) f->first->ops->watch(f->first);
}

bool comm_progress(Comm *comm)
{
    CommFamily *f = comm->family;
    if (f->partner) drive(f->partner), watch(f->partner);
    watch(f);
    return drive(f);
}

static void nap(const CommFamily *f, int *tries)
{
    Comm *root = f->first;
    supervisor_pulse(f->beat);
    if (++*tries <= f->spins) return;
    if (!f->partner && root->ops->doze && root->ops->doze(root, 1e-9 * LONG_NAP)) return;
    sleep_s(1e-9 * NAP);
}

// The signature of a call, on which all ranks of the group must agree.
typedef struct {
    int64_t kind, type, op, algorithm, n, peer, hash;
} Signature;

static void describe(char *text, size_t size, const Signature *g)
{
    snprintf(text, size, "%s%s of %lld %s%s", comm_kind_name((CommKind)g->kind), g->op == COMM_MAX ? " (max)" : "",
             (long long)g->n, comm_type_name((CommType)g->type), g->hash ? " in shards" : "");
}

// Exchanges signatures with every rank. The lowest rank that disagrees with rank 0 reports it and ends the job; the
// others see the disagreement too, and wait for that.
static void compare(Comm *comm, const CommCall *call, CommAlgorithm algorithm)
{
    int N = comm->size, odd = 1;
    Signature all[N], *mine = &all[comm->rank];
    *mine = (Signature){call->kind, call->type, call->op, algorithm, (int64_t)call->n, call->peer, 0};
    bool shards = call->kind == COMM_ALL_GATHER || call->kind == COMM_REDUCE_SCATTER;
    for (int r = 0; shards && r < N; r++) {
        mine->n += (int64_t)call->counts[r];
        mine->hash = (mine->hash * 1000003 + (int64_t)call->counts[r] + 1) & INT32_MAX;
    }
    for (int k = 1; k < N; k++) {
        int to = (comm->rank + k) % N, from = (comm->rank - k + N) % N, tries = 0;
        CommTicket in, out;
        comm->ops->recv(comm, &in, &all[from], sizeof *all, from, 0, 2);
        comm->ops->send(comm, &out, mine, sizeof *mine, to, 0, 2);
        while (!comm->ops->test(comm, &in)) drive(comm->family), nap(comm->family, &tries);
        while (!comm->ops->test(comm, &out)) drive(comm->family), nap(comm->family, &tries);
    }
    while (odd < N && !memcmp(&all[odd], &all[0], sizeof *all)) odd++;
    if (odd == N) return;
    if (comm->rank != odd) sleep_s(1.5);
    char here[96], there[96];
    describe(here, sizeof here, &all[odd]), describe(there, sizeof there, &all[0]);
    die("group %s: %s on rank %d, %s on rank 0 (every rank of a group makes the same calls in the same order)",
        comm->name, here, odd, there);
}

// Whether the output shard overlaps the input, which MPI does not allow.
static bool in_place(const Comm *comm, const CommCall *call)
{
    size_t before = 0;
    for (int r = 0; r < comm->rank; r++) before += call->counts[r];
    return call->out == (const char *)call->in + before * comm_type_bytes(call->type);
}

static void start_native(Slot *s)
{
    Comm *comm = s->comm;
    CommCall *call = &s->run.call;
    call->algorithm = s->run.algorithm;
    if (comm->ops->direct && call->algorithm == COMM_DIRECT) {
        need_scratch(s, collectives_scratch(call, COMM_DIRECT, comm->rank, comm->size));
        call->scratch = s->scratch;
    }
    comm->ops->native(comm, &s->receiving, call, s->work);
}

// Counts, and starts.
static CommRequest start(Comm *comm, CommCall call)
{
    CommFamily *f = comm->family;
    CommAlgorithm algorithm = comm_algorithm(comm, call.kind, call.type, call.op);
    CommCount *count = &comm->count[call.kind];
    bool message = call.kind == COMM_SEND || call.kind == COMM_RECV;
    supervisor_call(f->beat, comm->name, comm_kind_name(call.kind), comm->sequence);
    if (f->checked && comm->size > 1 && !message) compare(comm, &call, algorithm);
    Slot *s = take_slot(comm);
    if (algorithm == COMM_NATIVE && call.kind == COMM_REDUCE_SCATTER && !comm->ops->direct && !comm->shared &&
        in_place(comm, &call))
        algorithm = COMM_RING;
    size_t bytes = comm_type_bytes(call.type), sent, received, n = call.n, n_in = 0, even[comm->size];
    call.node = comm->node;
    if (call.kind == COMM_ALL_REDUCE) comm_even(even, call.n, comm->size), call.counts = even;
    if (call.counts) copy_counts(s, 0, call.counts, &call.counts, &call.offsets);
    if (call.in_counts) copy_counts(s, 1, call.in_counts, &call.in_counts, &call.in_offsets);
    for (int r = 0; call.kind != COMM_ALL_REDUCE && call.counts && r < comm->size; r++) n += call.counts[r];
    for (int r = 0; call.in_counts && r < comm->size; r++) n_in += call.in_counts[r];
    n = n > n_in ? n : n_in;
    bool alike = call.kind != COMM_ALL_TO_ALL && !message; // n is the same on all ranks
    bool limited = alike && !comm->ops->device && !comm->shared;
    if (algorithm == COMM_NATIVE && limited && n * bytes > INT_MAX)
        algorithm = call.kind == COMM_BROADCAST ? COMM_TREE : COMM_RING; // in messages of any length
    count->calls++, count->payload += n * bytes;
    if (f->alpha + f->beta > 0 && comm->size > 1 && call.kind != COMM_SEND) {
        double from = f->link_free > s->begin ? f->link_free : s->begin;
        s->ready = f->link_free =
            from + (algorithm == COMM_HIERARCHICAL
                ? collectives_hierarchical_seconds(comm->node, comm->size / comm->node, n * bytes, f->alpha,
                                                   f->beta)
                : collectives_seconds(call.kind, algorithm, comm->size, n * bytes, f->alpha, f->beta));
        if (f->trace) f->trace(f->trace_arg, comm, call.kind, from, s->ready);
    }
    s->run = (Collective){.call = call, .algorithm = algorithm, .rank = comm->rank, .size = comm->size, .bytes = bytes};
    bool native = algorithm == COMM_NATIVE || (algorithm == COMM_DIRECT && comm->shared);
    s->native = comm->ops->device || (comm->size > 1 && native);
    s->tag = (int)(comm->sequence % (COMM_MAX_TAG + 1u)), s->number = comm->sequence;
    if (!message) comm->sequence++;
    if (s->native) {
        collectives_bytes(&call, algorithm, comm->rank, comm->size, &sent, &received);
        count->sent += sent, count->received += received;
        if (call.kind == COMM_SEND)
            comm->ops->send(comm, &s->receiving, call.in, call.n * bytes, call.peer, call.tag, 0);
        else if (call.kind == COMM_RECV)
            comm->ops->recv(comm, &s->receiving, call.out, call.n * bytes, call.peer, call.tag, 0);
        else start_native(s);
    } else if (comm->size == 1) { // nothing to exchange
        if (n && call.out != call.in) memcpy(call.out, call.in, n * bytes);
        s->done = true;
    } else {
        need_scratch(s, collectives_scratch(&call, algorithm, comm->rank, comm->size));
        collectives_begin(&s->run);
        s->k = 0, s->steps = collectives_steps(&s->run);
        s->done = s->steps == 0;
        if (!s->done) post(s);
    }
    drive(f);
    unsigned at = 0;
    while (f->slot[at] != s) at++;
    return (CommRequest){.slot = at, .serial = s->serial};
}

bool comm_done(Comm *comm, const CommRequest *request)
{
    CommFamily *f = comm->family;
    if (!request->serial) return true;
    Slot *s = request->slot < f->n_slots ? f->slot[request->slot] : NULL;
    check(s && s->used && s->serial == request->serial);
    return advance(s) && s->ready <= clock_seconds();
}

void comm_wait(Comm *comm, CommRequest *request)
{
    CommFamily *f = comm->family;
    if (!request->serial) return;
    Slot *s = request->slot < f->n_slots ? f->slot[request->slot] : NULL;
    if (!s || !s->used || s->serial != request->serial || s->comm != comm)
        die("group %s: a request is waited for twice, or in another group than it was started in", comm->name);
    double begin = clock_seconds(), end;
    supervisor_wait(f->beat, comm->name, comm_kind_name(s->run.call.kind), s->number);
    if (s->native && !s->done && comm->ops->finish) s->done = comm->ops->finish(comm, &s->receiving);
    for (int tries = 0; !advance(s); nap(f, &tries)) comm_progress(comm);
    for (end = clock_seconds(); end < s->ready; end = clock_seconds()) {
        sleep_s(s->ready - end < 1e-3 ? s->ready - end : 1e-3);
        comm_progress(comm);
    }
    supervisor_go_on(f->beat);
    CommCount *count = &comm->count[s->run.call.kind];
    count->waited += end - begin, count->seconds += end - s->begin;
    f->waited += end - begin;
    s->used = false;
    *request = (CommRequest){0};
}

// ---- the ten calls

static void check_type(const Comm *comm, CommKind kind, CommType type)
{
    if ((kind == COMM_ALL_REDUCE || kind == COMM_REDUCE_SCATTER) && type == COMM_BYTE)
        die("group %s: %s of bytes: bytes are only moved (name a number type)", comm->name, comm_kind_name(kind));
}

static void check_peer(const Comm *comm, CommKind kind, int peer, bool other)
{
    if (peer < 0 || peer >= comm->size || (other && peer == comm->rank))
        die("group %s: %s: rank %d with rank %d of %d (another rank of the group)", comm->name, comm_kind_name(kind),
            comm->rank, peer, comm->size);
}

CommRequest comm_all_reduce(Comm *comm, void *out, const void *in, size_t n, CommType type, CommOp op)
{
    check_type(comm, COMM_ALL_REDUCE, type);
    return start(comm, (CommCall){.kind = COMM_ALL_REDUCE, .type = type, .op = op, .out = out, .in = in, .n = n});
}

CommRequest comm_all_gather(Comm *comm, void *out, const void *in, const size_t *counts, CommType type)
{
    return start(comm, (CommCall){.kind = COMM_ALL_GATHER, .type = type, .out = out, .in = in, .counts = counts});
}

CommRequest comm_reduce_scatter(Comm *comm, void *out, const void *in, const size_t *counts, CommType type, CommOp op)
{
    check_type(comm, COMM_REDUCE_SCATTER, type);
    return start(comm, (CommCall){.kind = COMM_REDUCE_SCATTER, .type = type, .op = op, .out = out, .in = in,
                                  .counts = counts});
}

CommRequest comm_broadcast(Comm *comm, void *buf, size_t n, CommType type, int root)
{
    check_peer(comm, COMM_BROADCAST, root, false);
    return start(comm, (CommCall){.kind = COMM_BROADCAST, .type = type, .out = buf, .in = buf, .n = n, .peer = root});
}

CommRequest comm_all_to_all(Comm *comm, void *out, const void *in, const size_t *to, const size_t *from, CommType type)
{
    if (to[comm->rank] != from[comm->rank])
        die("group %s: all_to_all: rank %d sends itself %zu elements and expects %zu", comm->name, comm->rank,
            to[comm->rank], from[comm->rank]);
    return start(comm, (CommCall){.kind = COMM_ALL_TO_ALL, .type = type, .out = out, .in = in, .counts = to,
                                  .in_counts = from});
}

CommRequest comm_send(Comm *comm, const void *buf, size_t n, CommType type, int to, int tag)
{
    check_peer(comm, COMM_SEND, to, true);
    check(tag >= 0 && tag <= COMM_MAX_TAG);
    return start(comm, (CommCall){.kind = COMM_SEND, .type = type, .in = buf, .n = n, .peer = to, .tag = tag});
}

CommRequest comm_recv(Comm *comm, void *buf, size_t n, CommType type, int from, int tag)
{
    check_peer(comm, COMM_RECV, from, true);
    check(tag >= 0 && tag <= COMM_MAX_TAG);
    return start(comm, (CommCall){.kind = COMM_RECV, .type = type, .out = buf, .n = n, .peer = from, .tag = tag});
}

CommRequest comm_barrier(Comm *comm)
{
    return start(comm, (CommCall){.kind = COMM_BARRIER, .type = COMM_BYTE});
}
