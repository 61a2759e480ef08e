// comm_group: groups of ranks: made, split, set up, freed; and the group of one. See comm.h.
//
// All groups that were split from one world are a family. It owns what calls use (slots, scratch, the clock of the slow
// link), for a rank that waits for a call of one group carries on those of the others; the world's comm_free ends
// it. A group owns its counts, its algorithms and what its backend needs.
#include "comm/comm_family.h"

#include "base/check.h"
#include "comm/collectives.h"

#include <stdlib.h>
#include <string.h>

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
    Comm *comm = comm_allocate(1, sizeof *comm);
    CommFamily *f = comm_allocate(1, sizeof *f);
    comm->ops = ops, comm->share = 1;
    f->mem = &f->own_mem;
    f->own_mem.raw_alloc = ops->alloc, f->own_mem.raw_free = ops->release, f->own_mem.device = ops->alloc != NULL;
    join(comm, f, name);
    return comm;
}

Comm *comm_split(Comm *comm, int color, int key, const char *name)
{
    Comm *child = comm_allocate(1, sizeof *child);
    child->ops = comm->ops, child->ordered = comm->ordered, child->share = comm->share;
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

void comm_free(Comm *comm)
{
    if (!comm) return;
    CommFamily *f = comm->family;
    comm_family_end_calls(f);
    for (Comm *c = f->first, *next; c; c = next) {
        next = c->next;
        if (c->ops->free) c->ops->free(c);
        free(c);
    }
    mem_free_all(&f->own_mem);
    if (f->partner) f->partner->partner = NULL;
    free(f);
}

// ---- settings

void comm_set_mem(Comm *comm, Mem *mem)
{
    check(comm->family->mem == &comm->family->own_mem && comm->family->own_mem.bytes == 0);
    comm->family->mem = mem;
}

const Mem *comm_mem(const Comm *comm)
{
    return comm->family->mem;
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
        if (native && real && op == COMM_MAX) return all_reduce && !comm->ops->direct ? COMM_TREE : COMM_DIRECT;
    }
    if (!native || (comm->ops->native && comm->size > 1)) return a;
    if (kind == COMM_BROADCAST || kind == COMM_BARRIER) return COMM_TREE;
    return kind == COMM_ALL_TO_ALL ? COMM_DIRECT : COMM_RING;
}
