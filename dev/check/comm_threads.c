// comm_threads: every rank of a job as a thread of one process, so that tests need no launcher.
//
// The invariant: whenever the network's lock is free, no waiting send matches a waiting receive. Of a send and its
// receive, the one posted second finds the first in the queue, copies the bytes and marks both done. The queue is
// searched from the oldest, so messages of one pair, group, channel and tag arrive in order. A send is finished only
// when its receive has been posted: a program that relies on buffering stops here, as it would where a network's
// buffers are full: when every rank waits for another, the process dies.
//
// There are no native collectives: every call uses the algorithms of collectives.c, for any number of ranks.
//
// Rejected: a queue per pair and a condition variable per rank (one lock is enough for tests; waiting is comm.c's).
#include "dev/check/comm_threads.h"

#include "base/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Message {
    const void *from_buf; // a send
    void *to_buf;         // a receive
    size_t n_bytes;
    uint64_t group;
    int from, to, tag, channel; // ranks of the group
    bool done;
    struct Message *next;
} Message;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t news; // a message has met its receive
    uint64_t n_met;      // that have
    int size, asleep, gone; // ranks: all; that wait, and have looked at all that has met; that are done
    Message *waiting;    // oldest first
} Network;

typedef struct {
    Network *network;
    uint64_t group; // the same number on all ranks of a group, and of no other group
    uint64_t seen;  // n_met when this rank last woke; of the world
} State;

static void *allocate(size_t n_bytes)
{
    void *p = calloc(1, n_bytes);
    if (!p) die("comm_threads: no memory for %zu bytes", n_bytes);
    return p;
}

static bool match(const Message *a, const Message *b)
{
    return a->group == b->group && a->channel == b->channel && a->tag == b->tag && a->from == b->from &&
           a->to == b->to && !a->from_buf != !b->from_buf;
}

static void post(Comm *comm, CommTicket *ticket, Message message)
{
    State *state = comm->state;
    Message *mine = allocate(sizeof *mine), **at = &state->network->waiting;
    *mine = message;
    mine->group = state->group;
    ticket->handle.pointer = mine;
    pthread_mutex_lock(&state->network->lock);
    while (*at && !match(*at, mine)) at = &(*at)->next;
    Message *other = *at;
    if (other) {
        *at = other->next;
        Message *out = mine->from_buf ? mine : other, *in = mine->from_buf ? other : mine;
        if (out->n_bytes != in->n_bytes)
            die("group %s: rank %d expected %zu bytes from rank %d and was sent %zu", comm->name, in->to, in->n_bytes,
                in->from, out->n_bytes);
        if (in->n_bytes) memcpy(in->to_buf, out->from_buf, in->n_bytes);
        mine->done = other->done = true;
        state->network->n_met++, state->network->asleep = 0;
        pthread_cond_broadcast(&state->network->news);
    } else {
        *at = mine;
    }
    pthread_mutex_unlock(&state->network->lock);
}

static const char EMPTY[1]; // stands for the buffer of a message without bytes

static void threads_send(Comm *comm, CommTicket *ticket, const void *buf, size_t n_bytes, int to, int tag, int channel)
{
    post(comm, ticket, (Message){.from_buf = buf ? buf : EMPTY, .n_bytes = n_bytes, .from = comm->rank, .to = to,
                                .tag = tag, .channel = channel});
}

static void threads_recv(Comm *comm, CommTicket *ticket, void *buf, size_t n_bytes, int from, int tag, int channel)
{
    post(comm, ticket, (Message){.to_buf = buf, .n_bytes = n_bytes, .from = from, .to = comm->rank, .tag = tag,
                                .channel = channel});
}

static bool threads_test(Comm *comm, CommTicket *ticket)
{
    State *state = comm->state;
    Message *message = ticket->handle.pointer;
    pthread_mutex_lock(&state->network->lock);
    bool done = message->done;
    pthread_mutex_unlock(&state->network->lock);
    if (done) free(message);
    return done;
}

static void look_for_a_deadlock(const Network *n)
{
    if (n->asleep && n->asleep + n->gone == n->size) die("comm_threads: every rank waits for another, for ever");
}

static bool threads_doze(Comm *root, double seconds)
{
    State *state = root->state;
    Network *n = state->network;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(1e9 * seconds);
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&n->lock);
    if (n->n_met == state->seen) {
        n->asleep++;
        look_for_a_deadlock(n);
        while (n->n_met == state->seen && pthread_cond_timedwait(&n->news, &n->lock, &until) == 0) {}
        if (n->n_met == state->seen) n->asleep--;
    }
    state->seen = n->n_met;
    pthread_mutex_unlock(&n->lock);
    return true;
}

static bool threads_split(Comm *comm, Comm *child, int color, int key)
{
    const State *parent = comm->state;
    size_t N = (size_t)comm->size, counts[N];
    int32_t mine[2] = {color, key}, all[N][2];
    uint64_t number = parent->group * 1000003 + comm->sequence; // calls so far: the same on all ranks
    for (size_t r = 0; r < N; r++) counts[r] = 2;
    CommRequest gather = comm_all_gather(comm, all, mine, counts, COMM_INT32);
    comm_wait(comm, &gather);
    if (color < 0) return false;
    child->rank = 0, child->size = 0;
    for (int r = 0; r < comm->size; r++) {
        if (all[r][0] != color) continue;
        child->size++;
        if (all[r][1] < key || (all[r][1] == key && r < comm->rank)) child->rank++;
    }
    State *state = child->state = allocate(sizeof *state);
    *state = (State){.network = parent->network, .group = number * 1000003 + (uint64_t)color + 1};
    return true;
}

static void threads_free(Comm *comm)
{
    free(comm->state);
}

static const CommOps THREADS = {
    .name = "threads", .split = threads_split, .send = threads_send, .recv = threads_recv, .test = threads_test,
    .doze = threads_doze, .free = threads_free,
};

typedef struct {
    Network *network;
    int rank, size;
    void (*body)(Comm *, void *);
    void *arg;
} Thread;

static void *run_rank(void *p)
{
    Thread *t = p;
    Comm *comm = comm_create(&THREADS, "world");
    State *state = allocate(sizeof *state);
    state->network = t->network;
    comm->rank = t->rank, comm->size = t->size, comm->state = state;
    t->body(comm, t->arg);
    comm_free(comm);
    pthread_mutex_lock(&t->network->lock);
    t->network->gone++;
    look_for_a_deadlock(t->network);
    pthread_mutex_unlock(&t->network->lock);
    return NULL;
}

void comm_threads_run(int n, void (*body)(Comm *comm, void *arg), void *arg)
{
    Network network = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER, .size = n};
    Thread thread[n];
    pthread_t id[n];
    for (int r = 0; r < n; r++) {
        thread[r] = (Thread){&network, r, n, body, arg};
        if (pthread_create(&id[r], NULL, run_rank, &thread[r]) != 0)
            die("comm_threads: cannot start thread %d of %d", r, n);
    }
    for (int r = 0; r < n; r++) pthread_join(id[r], NULL);
    check(!network.waiting); // a message that was never received
}
