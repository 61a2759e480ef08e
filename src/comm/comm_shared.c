// comm_shared: messages and collectives of ranks on one machine, without MPI.
//
// MPI copies what is sent through buffers, and has to be asked again and again whether something has come. With more
// ranks than cores both cost time that another rank would compute in. Here a rank that waits sleeps until another one
// wakes it (a futex), and data is copied once, by its reader, out of the other process' memory (process_vm_readv). A
// segment of shared memory (System V) has only what says where the data is:
//
//   places   one a rank: its process, and its bell: a number that grows when something has changed for this rank
//   boxes    one for each pair of ranks: letters, each with the address of a message; up to SMALL bytes are in it
//   meetings DEPTH for each group, which its calls take in turn: an entry for each rank, and two counters
//
//                     bytes read, a rank of N          messages in turn      with the ring of collectives.c
//   all_reduce        n + (N-1)/N n                    2 meetings            4 n and more, 2 (N-1) in turn
//   reduce_scatter, all_gather     n, (N-1)/N n        1                     3 n, n; N-1
//
// The invariant: a counter never falls. Use u of a meeting begins when DONE = 2 u N, as nobody reads its entries any
// more, and adds N to ARRIVED and 2 N to DONE, whatever the call. So nothing has to be reset.
//
// It is what ranks of one machine use: all calls of a group that is on one machine, and the messages between its ranks
// of a group that is not. Where the kernel refuses to read another process (seccomp, another user namespace), with more
// than MOST ranks on the machine, or with PRETRAIN_COMM=mpi in the environment, they use MPI. A rank that cannot be
// read later has ended; its supervisor ends the job, and its reader waits for that.
//
// Rejected: gradients in shared memory (nothing to copy, but no huge pages either, and the allocator of large memory
// would have to know of ranks); a copy into the segment and one out of it (twice the bytes); a thread that copies.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // process_vm_readv
#endif
#include "comm/comm_shared.h"

#include "base/check.h"
#include "comm/collectives.h"

#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, BOX = 16, DEPTH = 8, SMALL = 256, SCRATCH = 256 << 10, HEAP = 16 << 20 };
enum { EMPTY, POSTED, TAKEN };                // a letter
enum { ARRIVED, DONE, COUNTERS };             // of a call
enum { ENTER, WORK, SPREAD, LEAVE };          // where a rank is in it

typedef struct {
    _Alignas(64) uint32_t bell, asleep;
    int32_t process;
    const void *probe;
} Place;

typedef struct {
    _Alignas(64) uint32_t state;
    uint32_t group;
    int32_t channel, tag;
    uint64_t number; // of the sender's messages
    size_t n_bytes;
    const void *from;
    char data[SMALL];
} Letter;

typedef struct {
    uint32_t full; // the sender waits for an empty letter
    Letter letter[BOX];
} Box;

typedef struct {
    uint64_t used; // bytes of the segment
    Place place[MOST];
    Box box[]; // (size, size): from, to
} Segment;

typedef struct {
    _Alignas(64) const char *in;
    char *out;
    const size_t *offsets; // of an all_to_all
    size_t n_bytes;
    int32_t kind;
    char data[SMALL];
} Entry;

typedef struct {
    _Alignas(64) uint32_t count[COUNTERS];
    Entry entry[]; // (size)
} Meeting;

typedef enum { SEND, RECV, CALL } OpKind;
typedef struct Op { // a message or call of this rank
    struct Op *next;
    SharedGroup *group;
    OpKind kind;
    bool done;
    // a message
    void *buf;
    size_t n_bytes;
    int peer, tag, channel;
    uint64_t number;
    Letter *letter; // NULL: not posted yet
    // a call
    CommCall call;
    Meeting *meeting;
    uint32_t use; // of the meeting
    int phase;  // ENTER ... LEAVE
    bool small;
} Op;

struct Shared {
    Segment *segment;
    int rank, size;
    uint32_t heard; // of the own bell
    uint64_t sent;
    Op *unsent, *expected, *spare; // messages without a letter, in order; receives, in order; free
    char *scratch;
};

struct SharedGroup {
    Shared *shared;
    const Comm *comm;
    uint64_t room;
    uint32_t calls;
    int *rank; // of the segment; -1: on another machine
};

// ---- the segment

static size_t segment_bytes(int size)
{
    return sizeof(Segment) + (size_t)size * (size_t)size * sizeof(Box) + HEAP;
}

int comm_shared_create(int size)
{
    const char *mode = getenv("PRETRAIN_COMM");
    if (mode && *mode && strcmp(mode, "mpi")) die("PRETRAIN_COMM = %s: wants mpi, or nothing", mode);
    return size > MOST || (mode && *mode) ? -1 : shmget(IPC_PRIVATE, segment_bytes(size), 0600);
}

void comm_shared_remove(int id)
{
    shmctl(id, IPC_RMID, NULL);
}

Shared *comm_shared_attach(int id, int rank, int size)
{
    Segment *segment = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
    if (segment == (void *)-1) return NULL;
    Shared *s = calloc(1, sizeof *s);
    char *scratch = malloc(SCRATCH);
    if (!s || !scratch) die("comm_shared: no memory for %d bytes", SCRATCH);
    *s = (Shared){.segment = segment, .rank = rank, .size = size, .scratch = scratch};
    Place *own = &segment->place[rank];
    own->process = getpid(), own->probe = s;
    if (rank == 0) segment->used = segment_bytes(size) - HEAP;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); // where Yama limits who may read whom
    return s;
}

static ssize_t read_once(const Shared *s, int rank, void *to, const void *from, size_t n)
{
    struct iovec here = {to, n}, there = {(void *)from, n};
    return process_vm_readv(s->segment->place[rank].process, &here, 1, &there, 1, 0);
}

bool comm_shared_reads(const Shared *s)
{
    Shared other;
    int next = (s->rank + 1) % s->size;
    return read_once(s, next, &other, s->segment->place[next].probe, sizeof other) == sizeof other &&
           other.rank == next;
}

int comm_shared_rank(const Shared *s)
{
    return s->rank;
}

void comm_shared_close(Shared *s)
{
    if (!s) return;
    for (Op *op = s->spare, *next; op; op = next) next = op->next, free(op);
    shmdt(s->segment);
    free(s->scratch);
    free(s);
}

// Copies out of a rank's memory.
static void pull(const Shared *s, int rank, void *to, const void *from, size_t n)
{
    if (rank == s->rank && n) memmove(to, from, n);
    for (size_t done = 0; rank != s->rank && done < n;) {
        ssize_t got = read_once(s, rank, (char *)to + done, (const char *)from + done, n - done);
        if (got > 0) done += (size_t)got;
        else
            sleep(10), die("cannot read the memory of process %d, a rank: %s", s->segment->place[rank].process,
                           strerror(errno));
    }
}

// ---- bells

static uint32_t look(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void ring(const Shared *s, int rank)
{
    Place *p = &s->segment->place[rank];
    __atomic_add_fetch(&p->bell, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&p->asleep, __ATOMIC_SEQ_CST)) syscall(SYS_futex, &p->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

// The caller has looked at everything since the last call. What has changed in the meantime has rung the bell.
void comm_shared_doze(Shared *s, double seconds)
{
    Place *own = &s->segment->place[s->rank];
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    __atomic_store_n(&own->asleep, 1, __ATOMIC_SEQ_CST);
    uint32_t now = __atomic_load_n(&own->bell, __ATOMIC_SEQ_CST);
    if (now == s->heard) syscall(SYS_futex, &own->bell, FUTEX_WAIT, now, &t, NULL, 0);
    __atomic_store_n(&own->asleep, 0, __ATOMIC_SEQ_CST);
    s->heard = look(&own->bell);
}

// ---- messages
//
// A message. The sender puts a letter into the box and rings; the receiver takes the oldest letter of its group,
// channel and tag, copies, marks it as taken, and rings. A small message is sent as soon as it is in the letter.

static Op *take_op(SharedGroup *g, CommTicket *ticket, Op values)
{
    Shared *s = g->shared;
    Op *op = s->spare;
    if (op) s->spare = op->next;
    else if (!(op = malloc(sizeof *op))) die("group %s: no memory for a call", g->comm->name);
    *op = values;
    op->group = g;
    *ticket = (CommTicket){.handle.pointer = op};
    return op;
}

static void append(Op **list, Op *op)
{
    while (*list) list = &(*list)->next;
    *list = op;
}

static Box *box(const Shared *s, int from, int to)
{
    return &s->segment->box[from * s->size + to];
}

// Puts a message into a letter. False: none is empty.
static bool post(Shared *s, Op *op)
{
    int to = op->group->rank[op->peer];
    Box *b = box(s, s->rank, to);
    for (int i = 0; i < BOX; i++) {
        Letter *l = &b->letter[i];
        if (look(&l->state) != EMPTY) continue;
        l->group = (uint32_t)op->group->room, l->channel = op->channel, l->tag = op->tag, l->number = op->number;
        l->n_bytes = op->n_bytes, l->from = op->buf;
        if (op->n_bytes <= SMALL && op->n_bytes) memcpy(l->data, op->buf, op->n_bytes);
        op->letter = l, op->done = op->n_bytes <= SMALL;
        __atomic_store_n(&l->state, POSTED, __ATOMIC_RELEASE);
        ring(s, to);
        return true;
    }
    __atomic_store_n(&b->full, 1, __ATOMIC_SEQ_CST);
    return false;
}

// Whether a is to wait for b, which was started before it.
static bool behind(const Op *a, const Op *b)
{
    if (a->group->rank[a->peer] != b->group->rank[b->peer]) return false;
    return a->kind == SEND || (a->group == b->group && a->channel == b->channel && a->tag == b->tag);
}

// The oldest letter for a receive, or NULL. Letters are posted in order, so whoever sees one of them POSTED sees those
// before it, if it looks once more: a first look may pass a place just before an older letter comes there.
static Letter *oldest(Box *b, const Op *op)
{
    Letter *first = NULL, *found;
    do {
        found = first;
        for (int i = 0; i < BOX; i++) {
            Letter *l = &b->letter[i];
            if (look(&l->state) == POSTED && l->group == (uint32_t)op->group->room && l->channel == op->channel &&
                l->tag == op->tag && (!first || l->number < first->number))
                first = l;
        }
    } while (first != found);
    return first;
}

// Receives a message if its letter is there.
static bool take(Shared *s, Op *op)
{
    SharedGroup *g = op->group;
    int from = g->rank[op->peer];
    Box *b = box(s, from, s->rank);
    Letter *first = oldest(b, op);
    if (!first) return false;
    if (first->n_bytes != op->n_bytes)
        die("group %s: rank %d expected %zu bytes from rank %d and was sent %zu", g->comm->name, g->comm->rank,
            op->n_bytes, op->peer, first->n_bytes);
    bool small = op->n_bytes <= SMALL;
    if (small && op->n_bytes) memcpy(op->buf, first->data, op->n_bytes);
    if (!small) pull(s, from, op->buf, first->from, op->n_bytes);
    __atomic_store_n(&first->state, small ? EMPTY : TAKEN, __ATOMIC_SEQ_CST);
    if (!small || __atomic_exchange_n(&b->full, 0, __ATOMIC_SEQ_CST)) ring(s, from);
    op->done = true;
    return true;
}

// Goes through a list in its order; what has moved leaves it.
static void move_list(Shared *s, Op **list, bool (*move)(Shared *, Op *))
{
    for (Op **at = list; *at;) {
        Op *op = *at, *before = *list;
        while (before != op && !behind(op, before)) before = before->next;
        if (before == op && move(s, op)) *at = op->next, op->next = NULL;
        else at = &op->next;
    }
}

void comm_shared_send(SharedGroup *g, CommTicket *ticket, const void *buf, size_t n_bytes, int to, int tag, int channel)
{
    Shared *s = g->shared;
    Op *op = take_op(g, ticket, (Op){.kind = SEND, .buf = (void *)buf, .n_bytes = n_bytes, .peer = to, .tag = tag,
                                     .channel = channel, .number = s->sent++});
    append(&s->unsent, op);
    move_list(s, &s->unsent, post);
}

void comm_shared_recv(SharedGroup *g, CommTicket *ticket, void *buf, size_t n_bytes, int from, int tag, int channel)
{
    Op *op = take_op(g, ticket, (Op){.kind = RECV, .buf = buf, .n_bytes = n_bytes, .peer = from, .tag = tag,
                                     .channel = channel});
    append(&g->shared->expected, op);
}

// ---- collectives
//
// A collective. Each rank enters its addresses; when all have ARRIVED, each does its part: it adds up its own shard of
// a sum, block by block, out of the inputs of all; or it copies what it gets. Of an all_reduce, when all are DONE with
// that, it copies the shards of the others. When all are DONE for the second time the buffers are free again. Small
// sums and broadcasts are in the entries, so nobody waits for that. The last rank to reach a counter wakes the others.
//
// Sums are those of the algorithm `direct`: the fixed tree over ranks, 16-bit numbers rounded once.

static size_t meeting_bytes(int size)
{
    return sizeof(Meeting) + (size_t)size * sizeof(Entry);
}

uint64_t comm_shared_room(Shared *s, int size)
{
    uint64_t need = DEPTH * meeting_bytes(size), at = __atomic_fetch_add(&s->segment->used, need, __ATOMIC_RELAXED);
    if (at + need > segment_bytes(s->size))
        die("comm_shared: no room for more groups (try PRETRAIN_COMM=mpi)");
    return at;
}

SharedGroup *comm_shared_group(Shared *s, const Comm *comm, uint64_t room, const int *ranks)
{
    SharedGroup *g = calloc(1, sizeof *g);
    int *rank = calloc((size_t)comm->size, sizeof *rank);
    if (!g || !rank) die("group %s: no memory for a group", comm->name);
    memcpy(rank, ranks, (size_t)comm->size * sizeof *rank);
    *g = (SharedGroup){.shared = s, .comm = comm, .room = room, .rank = rank};
    return g;
}

void comm_shared_group_free(SharedGroup *g)
{
    if (!g) return;
    free(g->rank);
    free(g);
}

// Whether all ranks have reached a counter `times` times in this use; 0: in the one before.
static bool reached(const Op *op, int counter, uint32_t times)
{
    uint32_t want = (op->use * (counter == DONE ? 2 : 1) + times) * (uint32_t)op->group->comm->size;
    return (int32_t)(look(&op->meeting->count[counter]) - want) >= 0;
}

static void count(const Op *op, int counter, uint32_t times)
{
    const SharedGroup *g = op->group;
    uint32_t now = __atomic_add_fetch(&op->meeting->count[counter], times, __ATOMIC_ACQ_REL);
    for (int r = 0; now % (uint32_t)g->comm->size == 0 && r < g->comm->size; r++)
        if (r != g->comm->rank) ring(g->shared, g->rank[r]);
}

// What must be the same on all ranks; an all_to_all's may differ.
static size_t length(const CommCall *call, int size)
{
    size_t n = call->n;
    bool shards = call->kind == COMM_ALL_GATHER || call->kind == COMM_REDUCE_SCATTER;
    for (int r = 0; shards && r < size; r++) n += call->counts[r];
    return n * comm_type_bytes(call->type);
}

static void enter(Op *op)
{
    const Comm *comm = op->group->comm;
    Entry *e = &op->meeting->entry[comm->rank];
    e->in = op->call.in, e->out = op->call.out, e->offsets = op->call.offsets, e->kind = op->call.kind;
    e->n_bytes = length(&op->call, comm->size);
    if (op->small && e->n_bytes && op->call.in) memcpy(e->data, op->call.in, e->n_bytes);
}

static void agree(const Op *op)
{
    const Comm *comm = op->group->comm;
    const Entry *all = op->meeting->entry, *own = &all[comm->rank];
    for (int r = 0; r < comm->size; r++)
        if (all[r].kind != own->kind || all[r].n_bytes != own->n_bytes)
            die("group %s: %s of %zu bytes on rank %d, %s of %zu bytes on rank %d (every rank of a group makes the same "
                "calls in the same order)", comm->name, comm_kind_name((CommKind)own->kind), own->n_bytes, comm->rank,
                comm_kind_name((CommKind)all[r].kind), all[r].n_bytes, r);
}

// out (n) = op over ranks of elements `first` to first + n - 1 of their inputs.
static void fold(const Op *op, char *out, size_t first, size_t n)
{
    const SharedGroup *g = op->group;
    const Entry *all = op->meeting->entry;
    int N = g->comm->size, rank = g->comm->rank;
    size_t bytes = comm_type_bytes(op->call.type), most = SCRATCH / bytes / (size_t)N, counts[N], offsets[N], some;
    for (size_t at = 0; at < n; at += some) {
        some = n - at < most ? n - at : most;
        for (int k = 0; k < N - 1; k++) { // in the order that COLLECTIVES_FOLD wants
            int r = (rank - k - 1 + N) % N;
            char *to = g->shared->scratch + (size_t)k * some * bytes;
            if (op->small) memcpy(to, all[r].data + (first + at) * bytes, some * bytes);
            else pull(g->shared, g->rank[r], to, all[r].in + (first + at) * bytes, some * bytes);
        }
        Collective c = {.call = op->call, .algorithm = COMM_DIRECT, .rank = rank, .size = N, .bytes = bytes,
                        .scratch = g->shared->scratch};
        counts[rank] = some, offsets[rank] = 0;
        c.call.kind = COMM_REDUCE_SCATTER, c.call.counts = counts, c.call.offsets = offsets;
        c.call.in = (const char *)op->call.in + (first + at) * bytes, c.call.out = out + at * bytes;
        collectives_act(&c, &(CollectiveStep){.action = COLLECTIVES_FOLD});
    }
}

// Each rank's shard: from its shard (all_gather), from its place in its output (after REDUCED), or what it has for this
// rank (all_to_all).
static void collect(const Op *op)
{
    const SharedGroup *g = op->group;
    const CommCall *call = &op->call;
    const Entry *all = op->meeting->entry;
    size_t bytes = comm_type_bytes(call->type);
    int N = g->comm->size;
    for (int k = 0; k < N; k++) {
        int r = (g->comm->rank + k) % N; // not all from the same rank at once
        bool exchange = call->kind == COMM_ALL_TO_ALL;
        size_t n = exchange ? call->in_counts[r] : call->counts[r], at = 0;
        char *to = (char *)call->out + (exchange ? call->in_offsets[r] : call->offsets[r]) * bytes;
        const char *from = all[r].in;
        if (call->kind == COMM_ALL_REDUCE) from = all[r].out + call->offsets[r] * bytes;
        if (exchange && n) pull(g->shared, g->rank[r], &at, all[r].offsets + g->comm->rank, sizeof at);
        bool there = r == g->comm->rank && to == from + at * bytes; // in another process it is another place
        if (n && !there) pull(g->shared, g->rank[r], to, from + at * bytes, n * bytes);
    }
}

// This rank's part, when all have arrived.
static void work(Op *op)
{
    const CommCall *call = &op->call;
    int rank = op->group->comm->rank;
    size_t bytes = comm_type_bytes(call->type), n = length(call, op->group->comm->size);
    const Entry *root = &op->meeting->entry[call->peer];
    switch (call->kind) {
    case COMM_ALL_REDUCE:
        if (op->small) fold(op, call->out, 0, call->n);
        else fold(op, (char *)call->out + call->offsets[rank] * bytes, call->offsets[rank], call->counts[rank]);
        break;
    case COMM_REDUCE_SCATTER: fold(op, call->out, call->offsets[rank], call->counts[rank]); break;
    case COMM_BROADCAST:
        if (op->small && n) memcpy(call->out, root->data, n);
        if (!op->small && rank != call->peer) pull(op->group->shared, op->group->rank[call->peer], call->out, root->in, n);
        break;
    case COMM_ALL_GATHER:
    case COMM_ALL_TO_ALL: collect(op); break;
    default: break; // a barrier
    }
}

// Advances a call as far as it goes without waiting; true when done.
static bool advance(Op *op)
{
    bool reduces = op->call.kind == COMM_ALL_REDUCE && !op->small;
    if (op->phase == ENTER) {
        if (!reached(op, DONE, 0)) return false;
        enter(op);
        count(op, ARRIVED, 1);
        op->phase = WORK;
    }
    if (op->phase == WORK) {
        if (!reached(op, ARRIVED, 1)) return false;
        agree(op);
        work(op);
        count(op, DONE, reduces ? 1 : 2);
        op->phase = reduces ? SPREAD : LEAVE;
    }
    if (op->phase == SPREAD) {
        if (!reached(op, DONE, 1)) return false;
        collect(op);
        count(op, DONE, 1);
        op->phase = LEAVE;
    }
    return op->small || reached(op, DONE, 2);
}

void comm_shared_native(SharedGroup *g, CommTicket *ticket, const CommCall *call)
{
    bool fits = length(call, g->comm->size) <= SMALL;
    bool small = fits && (call->kind == COMM_ALL_REDUCE || call->kind == COMM_BROADCAST || call->kind == COMM_BARRIER);
    char *meetings = (char *)g->shared->segment + g->room;
    uint32_t number = g->calls++;
    take_op(g, ticket, (Op){.kind = CALL, .call = *call, .small = small, .phase = ENTER,
                            .use = number / DEPTH,
                            .meeting = (Meeting *)(meetings + number % DEPTH * meeting_bytes(g->comm->size))});
}

bool comm_shared_test(SharedGroup *g, CommTicket *ticket)
{
    Shared *s = g->shared;
    Op *op = ticket->handle.pointer;
    if (!op) return true;
    move_list(s, &s->unsent, post);
    move_list(s, &s->expected, take);
    if (op->kind == CALL) op->done = advance(op);
    if (op->kind == SEND && !op->done && op->letter && look(&op->letter->state) == TAKEN) {
        __atomic_store_n(&op->letter->state, EMPTY, __ATOMIC_RELEASE);
        op->done = true;
    }
    if (!op->done) return false;
    op->next = s->spare, s->spare = op;
    ticket->handle.pointer = NULL;
    return true;
}
#else // no such kernel: MPI does it
int comm_shared_create(int size) { (void)size; return -1; }
#endif
