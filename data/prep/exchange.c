// exchange: the ranks of a preparation. See exchange.h.
//
// Documents, runs and shards go from rank to rank through the run's folder, which all ranks share: whoever needs a
// unit reads its file. What goes over the network is small: counts, records of a stage, decisions.
//
// Records. A rank collects them in one buffer with a part for each owner. When one part is full, it begins a round:
//
//     1. all ranks tell each other how many records they have for whom, and whether they will have more
//     2. the records go (all_to_all); each rank hands what came to its sort
//
// A rank that is not in a round yet comes to it when one of its own parts is full, or when it has no more records; then
// it goes on with empty parts until all ranks have none. Parts are small, so a rank waits for another as long as the
// other takes to fill one.
//
// The invariant: which records a rank receives depends on the records and the number of ranks, and their order does not
// matter, because they are sorted. So what is computed from them does not depend on rounds.
//
// Dealing. The largest unit first, to the rank with the least so far (Graham, "Bounds on multiprocessing timing
// anomalies", 1969): no rank gets more than 4/3 of what the best deal would give it. It is decided before the work
// begins. Rejected: dealing when a rank becomes free, which evens out units that take longer than their size says, but
// needs a rank that answers while it works.
#include "data/prep/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { STRIPE = 64 /* documents */, PIECE = 1 << 20 /* numbers of one sum */ };

int exchange_rank(const Comm *world)
{
    return world ? world->rank : 0;
}

int exchange_size(const Comm *world)
{
    return world ? world->size : 1;
}

void *exchange_room(size_t n, size_t size)
{
    void *ptr = calloc(n ? n : 1, size);
    if (!ptr) die("memory: no room for %zu times %zu bytes", n, size);
    return ptr;
}

static void finish(Comm *world, CommRequest request)
{
    comm_wait(world, &request);
}

void exchange_wait(Comm *world)
{
    if (exchange_size(world) > 1) finish(world, comm_barrier(world));
}

static void reduce(Comm *world, uint64_t *number, size_t n, CommOp op)
{
    for (size_t at = 0; exchange_size(world) > 1 && at < n; at += PIECE) {
        size_t take = n - at < PIECE ? n - at : PIECE;
        finish(world, comm_all_reduce(world, number + at, number + at, take, COMM_INT64, op));
    }
}

void exchange_sum(Comm *world, uint64_t *number, size_t n)
{
    reduce(world, number, n, COMM_SUM);
}

void exchange_max(Comm *world, uint64_t *number, size_t n)
{
    reduce(world, number, n, COMM_MAX);
}

void exchange_share(Comm *world, int from, void *buf, size_t n_bytes)
{
    if (exchange_size(world) > 1 && n_bytes) finish(world, comm_broadcast(world, buf, n_bytes, COMM_BYTE, from));
}

char *exchange_text(Comm *world, char *text)
{
    uint64_t n = text ? strlen(text) + 1 : 0;
    exchange_share(world, 0, &n, sizeof n);
    if (exchange_rank(world) > 0) text = n ? exchange_room(n, 1) : NULL;
    exchange_share(world, 0, text, n);
    return text;
}

void *exchange_gather(Comm *world, const void *mine, size_t n, size_t n_bytes, size_t *n_all)
{
    int N = exchange_size(world);
    uint64_t *count = exchange_room((size_t)N, sizeof *count);
    size_t *bytes = exchange_room((size_t)N, sizeof *bytes);
    count[exchange_rank(world)] = n;
    exchange_sum(world, count, (size_t)N);
    *n_all = 0;
    for (int r = 0; r < N; r++) bytes[r] = count[r] * n_bytes, *n_all += count[r];
    void *all = exchange_room(*n_all, n_bytes);
    if (N > 1) finish(world, comm_all_gather(world, all, mine, bytes, COMM_BYTE));
    else if (n) memcpy(all, mine, n * n_bytes);
    free(count);
    free(bytes);
    return all;
}

void exchange_send(Comm *world, int to, const void *buf, size_t n_bytes)
{
    if (n_bytes) finish(world, comm_send(world, buf, n_bytes, COMM_BYTE, to, 0));
}

void exchange_receive(Comm *world, int from, void *buf, size_t n_bytes)
{
    if (n_bytes) finish(world, comm_recv(world, buf, n_bytes, COMM_BYTE, from, 0));
}

// ---- dealing

typedef struct {
    uint64_t weight;
    size_t number;
} UnitOfWork;

static int heavier(const void *a, const void *b)
{
    const UnitOfWork *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

int *exchange_deal(Comm *world, const uint64_t *weight, size_t n)
{
    int N = exchange_size(world), *owner = exchange_room(n, sizeof *owner);
    if (exchange_rank(world) == 0) {
        UnitOfWork *unit = exchange_room(n, sizeof *unit);
        uint64_t *load = exchange_room((size_t)N, sizeof *load);
        for (size_t i = 0; i < n; i++) unit[i] = (UnitOfWork){weight[i], i};
        qsort(unit, n, sizeof *unit, heavier);
        for (size_t i = 0; i < n; i++) {
            int least = 0;
            for (int r = 1; r < N; r++)
                if (load[r] < load[least]) least = r;
            owner[unit[i].number] = least;
            load[least] += unit[i].weight;
        }
        free(unit);
        free(load);
    }
    exchange_share(world, 0, owner, n * sizeof *owner);
    return owner;
}

bool exchange_owns(const Comm *world, size_t i)
{
    return !world || (int)(i / STRIPE % (size_t)world->size) == world->rank;
}

// ---- records

struct Exchange {
    Comm *world;
    Extsort *to;
    size_t n_words, cap; // cap: records for one owner
    uint64_t *out, *in;  // (size, cap, n_words) each
    size_t *n;           // (size): records for each owner
};

Exchange *exchange_open(Comm *world, Extsort *to, size_t n_words, size_t memory_bytes)
{
    Exchange *x = exchange_room(1, sizeof *x);
    size_t N = (size_t)exchange_size(world);
    *x = (Exchange){.world = world, .to = to, .n_words = n_words};
    if (N == 1) return x;
    x->cap = memory_bytes / (2 * N * n_words * sizeof *x->out);
    if (!x->cap) x->cap = 1;
    x->out = exchange_room(N * x->cap * n_words, sizeof *x->out);
    x->in = exchange_room(N * x->cap * n_words, sizeof *x->in);
    x->n = exchange_room(N, sizeof *x->n);
    return x;
}

// Moves what was collected. done: this rank has no more. True when no rank has.
static bool round_of(Exchange *x, bool done)
{
    int N = x->world->size, n_done = 0;
    size_t to[N], from[N], two[N], words = 0, n_in = 0;
    uint64_t say[2 * N], heard[2 * N];
    check(N > 1);
    for (int r = 0; r < N; r++) {
        two[r] = 2;
        say[2 * r] = x->n[r], say[2 * r + 1] = done;
        to[r] = x->n[r] * x->n_words;
        memmove(x->out + words, x->out + (size_t)r * x->cap * x->n_words, to[r] * sizeof *x->out);
        words += to[r];
        x->n[r] = 0;
    }
    finish(x->world, comm_all_to_all(x->world, heard, say, two, two, COMM_INT64));
    for (int r = 0; r < N; r++) {
        from[r] = heard[2 * r] * x->n_words;
        n_in += heard[2 * r];
        n_done += heard[2 * r + 1] != 0;
    }
    finish(x->world, comm_all_to_all(x->world, x->in, x->out, to, from, COMM_INT64));
    for (size_t i = 0; i < n_in; i++) extsort_add(x->to, x->in + i * x->n_words);
    return n_done == N;
}

void exchange_add(Exchange *x, int owner, const uint64_t *record)
{
    if (!x->out) {
        extsort_add(x->to, record);
        return;
    }
    if (x->n[owner] == x->cap) round_of(x, false);
    memcpy(x->out + ((size_t)owner * x->cap + x->n[owner]++) * x->n_words, record, x->n_words * sizeof *record);
}

void exchange_close(Exchange *x)
{
    while (x->out && !round_of(x, true))
        continue;
    free(x->out);
    free(x->in);
    free(x->n);
    free(x);
}
