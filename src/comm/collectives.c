// collectives: the algorithms as lists of steps, the arithmetic between the steps, and the cost formulas.
//
// The invariant: collectives_step(c, k) depends on c and k alone, and when rank a's step sends n elements to b, b has
// a step that receives n elements from a, in the same order over all messages between the two.
//
// ring, reduce_scatter: a partial sum of shard s starts at rank s + 1 and goes once around: each rank adds its
//     own part and passes it on; after N - 1 steps it arrives at its owner s. Two shards of scratch; `in` is kept.
// ring, all_gather: every shard goes once around. ring, all_reduce: reduce_scatter, then all_gather.
// tree: with distance 1, 2, 4, ... the upper rank of a pair sends its sum to the lower and is done; rank 0 has the
//     total after L = ceil(log2 N) rounds. The same rounds in reverse broadcast it. Few messages, but each has all n
//     bytes: for short vectors.
// halving (Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 2005):
//     with distance 1, 2, 4, ... partners swap halves of what they still hold and add; after log2 N rounds each rank
//     owns 1/N of the total; the same rounds in reverse gather it. Few messages and few bytes, but N must be a power of
//     two. Otherwise let P be the power of two below N: N - P ranks first send their vector to a neighbour and get the
//     total back at the end, which costs 2 (alpha + n beta) more.
// hierarchical: three rings one after another. In a node of k ranks a reduce_scatter, after which each has n / k; an
//     all_reduce of these with the ranks of that place on the other nodes; an all_gather in the node. Between nodes go
//     n / k bytes a rank in place of n, over all of the node's network cards, and 2 (N/k - 1) messages follow each other
//     in place of 2 (N - 1).
// direct: every rank sends shard s to its owner s, which adds all N of them: a ring's bytes, N - 1 messages to N - 1
//     different ranks, N - 1 shards of scratch. It is the only algorithm that can add in any chosen order, and that can
//     send bf16 in 16 bits, add in fp32 and round once.
//
// Rejected: bf16 rings that send partial sums as fp32 (1.5 times the bytes of direct).
#include "comm/collectives.h"

#include "base/check.h"
#include "formats/formats.h"

#include <math.h>
#include <string.h>

static int log2_up(int size) // ceil(log2 size)
{
    int rounds = 0;
    while (1 << rounds < size) rounds++;
    return rounds;
}

static int power_below(int size) // the highest power of two that is at most size
{
    int rounds = log2_up(size);
    return 1 << rounds == size ? size : 1 << (rounds - 1);
}

static size_t total(const size_t *counts, int size)
{
    size_t sum = 0;
    for (int r = 0; r < size; r++) sum += counts[r];
    return sum;
}

static size_t largest(const size_t *counts, int size)
{
    size_t most = 0;
    for (int r = 0; r < size; r++) most = counts[r] > most ? counts[r] : most;
    return most;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

typedef struct {
    size_t first, n; // elements
} Range;

bool collectives_exists(CommKind kind, CommAlgorithm algorithm)
{
    switch (kind) {
    case COMM_ALL_REDUCE: return algorithm < COMM_ALGORITHMS;
    case COMM_REDUCE_SCATTER: return algorithm == COMM_NATIVE || algorithm == COMM_RING || algorithm == COMM_DIRECT;
    case COMM_ALL_GATHER: return algorithm == COMM_NATIVE || algorithm == COMM_RING;
    case COMM_ALL_TO_ALL: return algorithm == COMM_NATIVE || algorithm == COMM_DIRECT;
    case COMM_BROADCAST:
    case COMM_BARRIER: return algorithm == COMM_NATIVE || algorithm == COMM_TREE;
    default: return algorithm == COMM_NATIVE;
    }
}

// ---- addresses

static char *out_at(const Collective *c, size_t element)
{
    return (char *)c->call.out + element * c->bytes;
}

static const char *in_at(const Collective *c, size_t element)
{
    return (const char *)c->call.in + element * c->bytes;
}

static int wrap(const Collective *c, int rank) // rank may be negative, above -2 size
{
    return (rank + 2 * c->size) % c->size;
}

static CollectiveStep idle(void)
{
    return (CollectiveStep){.send_to = -1, .recv_from = -1};
}

static void send_part(CollectiveStep *step, int to, const void *data, size_t n)
{
    if (n) step->send_to = to, step->send = data, step->n_send = n;
}

static void recv_part(CollectiveStep *step, int from, void *data, size_t n)
{
    if (n) step->recv_from = from, step->recv = data, step->n_recv = n;
}

static void add(CollectiveStep *step, void *sum, const void *left, const void *right, size_t n)
{
    step->action = COLLECTIVES_ADD;
    step->sum = sum, step->left = left, step->right = right, step->n = n;
}

// Destination of this rank's reduced shard: its place in out; for a reduce_scatter out is the shard.
static char *own_shard(const Collective *c)
{
    return c->call.kind == COMM_REDUCE_SCATTER ? c->call.out : out_at(c, c->call.offsets[c->rank]);
}

// ---- steps

// A ring of ranks first, first + stride, ..., of which this is number `at`. Its shard i is `per` shards of the call,
// from number base + i per on.
typedef struct {
    int at, size, first, stride, base, per;
} Ring;

static Range ring_shard(const CommCall *call, Ring g, int i)
{
    int from = g.base + (i + 2 * g.size) % g.size * g.per; // i may be negative, above -2 size
    return (Range){call->offsets ? call->offsets[from] : 0, total(call->counts + from, g.per)};
}

static int ring_rank(Ring g, int i)
{
    return g.first + (i + g.size) % g.size * g.stride;
}

// All ranks of the group. hierarchical: those of this rank's node; and those that have its place on the other nodes,
// for the shards that the node's ring gave it.
static Ring ring_all(int rank, int size)
{
    return (Ring){.at = rank, .size = size, .stride = 1, .per = 1};
}

static Ring ring_inside(int rank, int size, int node)
{
    return (Ring){.at = rank % node, .size = node, .first = rank / node * node, .stride = 1, .per = size / node};
}

static Ring ring_between(int rank, int size, int node)
{
    int nodes = size / node, place = rank % node;
    return (Ring){.at = rank / node, .size = nodes, .first = place, .stride = node, .base = place * nodes, .per = 1};
}

// from: in or out, where this rank's own numbers are. The last step writes the reduced shard to `own`.
static CollectiveStep ring_reduce(const Collective *c, Ring g, int k, const void *from, void *own)
{
    Range going = ring_shard(&c->call, g, g.at - k - 1), coming = ring_shard(&c->call, g, g.at - k - 2);
    size_t room = 0;
    for (int i = 0; i < g.size; i++) room = max_size(room, ring_shard(&c->call, g, i).n * c->bytes);
    char *old = c->scratch + (size_t)((k + 1) % 2) * room, *new = c->scratch + (size_t)(k % 2) * room;
    const char *data = from;
    CollectiveStep step = idle();
    send_part(&step, ring_rank(g, g.at + 1), k == 0 ? data + going.first * c->bytes : old, going.n);
    recv_part(&step, ring_rank(g, g.at - 1), new, coming.n);
    add(&step, k == g.size - 2 ? own : new, new, data + coming.first * c->bytes, coming.n);
    return step;
}

static CollectiveStep ring_gather(const Collective *c, Ring g, int k)
{
    Range going = ring_shard(&c->call, g, g.at - k), coming = ring_shard(&c->call, g, g.at - k - 1);
    CollectiveStep step = idle();
    send_part(&step, ring_rank(g, g.at + 1), out_at(c, going.first), going.n);
    recv_part(&step, ring_rank(g, g.at - 1), out_at(c, coming.first), coming.n);
    return step;
}

static CollectiveStep hierarchical_step(const Collective *c, int k)
{
    Ring in = ring_inside(c->rank, c->size, c->call.node), out = ring_between(c->rank, c->size, c->call.node);
    int near = in.size - 1, far = out.size - 1;
    if (k < near) return ring_reduce(c, in, k, c->call.in, out_at(c, ring_shard(&c->call, in, in.at).first));
    if (k < near + far) { // a node of one rank has not copied its numbers to out yet
        const void *from = near ? c->call.out : c->call.in;
        return ring_reduce(c, out, k - near, from, out_at(c, ring_shard(&c->call, out, out.at).first));
    }
    return k < near + 2 * far ? ring_gather(c, out, k - near - far) : ring_gather(c, in, k - near - 2 * far);
}

static CollectiveStep direct_reduce(const Collective *c, int k)
{
    const size_t *counts = c->call.counts, *offsets = c->call.offsets;
    size_t own = counts[c->rank];
    int to = wrap(c, c->rank + k + 1);
    CollectiveStep step = idle();
    send_part(&step, to, in_at(c, offsets[to]), counts[to]);
    recv_part(&step, wrap(c, c->rank - k - 1), c->scratch + (size_t)k * own * c->bytes, own);
    if (k == c->size - 2) step.action = COLLECTIVES_FOLD;
    return step;
}

static CollectiveStep direct_exchange(const Collective *c, int k)
{
    const CommCall *call = &c->call;
    int to = wrap(c, c->rank + k + 1), from = wrap(c, c->rank - k - 1);
    CollectiveStep step = idle();
    send_part(&step, to, in_at(c, call->offsets[to]), call->counts[to]);
    recv_part(&step, from, out_at(c, call->in_offsets[from]), call->in_counts[from]);
    return step;
}

static CollectiveStep tree_reduce(const Collective *c, int round)
{
    int distance = 1 << round, place = c->rank % (2 * distance);
    CollectiveStep step = idle();
    if (place == distance) send_part(&step, c->rank - distance, c->call.out, c->call.n);
    if (place == 0 && c->rank + distance < c->size) {
        recv_part(&step, c->rank + distance, c->scratch, c->call.n);
        add(&step, c->call.out, c->call.out, c->scratch, c->call.n);
    }
    return step;
}

static CollectiveStep tree_spread(const Collective *c, int round, int root)
{
    int distance = 1 << (log2_up(c->size) - 1 - round), rank = wrap(c, c->rank - root), place = rank % (2 * distance);
    CollectiveStep step = idle();
    if (place == 0 && rank + distance < c->size)
        send_part(&step, wrap(c, c->rank + distance), c->call.out, c->call.n);
    if (place == distance) recv_part(&step, wrap(c, c->rank - distance), c->call.out, c->call.n);
    return step;
}

// Dissemination barrier: after round j every rank has heard, directly or not, from the 2^(j+1) - 1 ranks below it.
static CollectiveStep barrier_round(const Collective *c, int round)
{
    return (CollectiveStep){.send_to = wrap(c, c->rank + (1 << round)), .recv_from = wrap(c, c->rank - (1 << round)),
                            .send = c->scratch, .recv = c->scratch};
}

// halving: the rank's number among the P that take part; -1: a neighbour has its vector.
static int halving_id(int rank, int size)
{
    int extra = size - power_below(size);
    if (rank >= 2 * extra) return rank - extra;
    return rank % 2 == 0 ? rank / 2 : -1;
}

static int halving_rank(int id, int size) // its inverse
{
    int extra = size - power_below(size);
    return id < extra ? 2 * id : id + extra;
}

// What participant `id` still holds after `rounds` rounds.
static Range halving_range(int id, int rounds, size_t n)
{
    Range range = {0, n};
    for (int j = 0; j < rounds; j++) {
        size_t lower = range.n / 2;
        if (id >> j & 1) range.first += lower, range.n -= lower;
        else range.n = lower;
    }
    return range;
}

static CollectiveStep halving_step(const Collective *c, int k)
{
    int extra = c->size - power_below(c->size), rounds = log2_up(power_below(c->size));
    int id = halving_id(c->rank, c->size), last = 2 * rounds + 1;
    size_t n = c->call.n;
    CollectiveStep step = idle();
    if (!extra) k++; // there is no first and last step then
    if (k == 0 && id < 0) send_part(&step, c->rank - 1, c->call.out, n);
    if (k == 0 && id >= 0 && c->rank < 2 * extra) {
        recv_part(&step, c->rank + 1, c->scratch, n);
        add(&step, c->call.out, c->call.out, c->scratch, n);
    }
    if (k == last && id < 0) recv_part(&step, c->rank - 1, c->call.out, n);
    if (k == last && id >= 0 && c->rank < 2 * extra) send_part(&step, c->rank + 1, c->call.out, n);
    if (id < 0 || k == 0 || k == last) return step;
    bool gather = k > rounds;
    int j = gather ? 2 * rounds - k : k - 1, partner = id ^ (1 << j), peer = halving_rank(partner, c->size);
    Range mine = halving_range(id, j + 1, n), theirs = halving_range(partner, j + 1, n);
    if (gather) {
        send_part(&step, peer, out_at(c, mine.first), mine.n);
        recv_part(&step, peer, out_at(c, theirs.first), theirs.n);
    } else {
        send_part(&step, peer, out_at(c, theirs.first), theirs.n);
        recv_part(&step, peer, c->scratch, mine.n);
        add(&step, out_at(c, mine.first), out_at(c, mine.first), c->scratch, mine.n);
    }
    return step;
}

int collectives_steps(const Collective *c)
{
    int rounds = log2_up(c->size);
    if (c->size == 1) return 0;
    switch (c->call.kind) {
    case COMM_ALL_REDUCE:
        if (c->algorithm == COMM_TREE) return 2 * rounds;
        if (c->algorithm == COMM_HIERARCHICAL) return 2 * (c->call.node - 1 + c->size / c->call.node - 1);
        if (c->algorithm != COMM_HALVING) return 2 * (c->size - 1);
        return power_below(c->size) == c->size ? 2 * rounds : 2 * log2_up(power_below(c->size)) + 2;
    case COMM_BROADCAST:
    case COMM_BARRIER: return rounds;
    default: return c->size - 1;
    }
}

CollectiveStep collectives_step(const Collective *c, int k)
{
    int half = c->call.kind == COMM_ALL_REDUCE ? collectives_steps(c) / 2 : 0;
    Ring all = ring_all(c->rank, c->size);
    switch (c->call.kind) {
    case COMM_ALL_REDUCE:
        if (c->algorithm == COMM_HALVING) return halving_step(c, k);
        if (c->algorithm == COMM_TREE) return k < half ? tree_reduce(c, k) : tree_spread(c, k - half, 0);
        if (c->algorithm == COMM_HIERARCHICAL) return hierarchical_step(c, k);
        if (k >= half) return ring_gather(c, all, k - half);
        return c->algorithm == COMM_RING ? ring_reduce(c, all, k, c->call.in, own_shard(c)) : direct_reduce(c, k);
    case COMM_REDUCE_SCATTER:
        return c->algorithm == COMM_RING ? ring_reduce(c, all, k, c->call.in, own_shard(c)) : direct_reduce(c, k);
    case COMM_ALL_GATHER: return ring_gather(c, all, k);
    case COMM_BROADCAST: return tree_spread(c, k, c->call.peer);
    case COMM_ALL_TO_ALL: return direct_exchange(c, k);
    case COMM_BARRIER: return barrier_round(c, k);
    default: die("collectives: %s has no steps", comm_kind_name(c->call.kind));
    }
}

// ---- arithmetic

// Adds the N contributions to this rank's shard in the tree order, a block of elements at a time: level[j] holds the
// sum of 2^j ranks while bit j of the ranks seen so far is set. Type is the type of the sums.
#define FOLD(name, Type, LOAD, STORE)                                                                         \
    static void name(const Collective *c, size_t first, size_t n)                                             \
    {                                                                                                         \
        Type level[32][BLOCK], leaf[BLOCK];                                                                   \
        bool maximum = c->call.op == COMM_MAX;                                                                \
        for (int rank = 0; rank < c->size; rank++) {                                                          \
            const char *from = contribution(c, rank) + first * c->bytes;                                      \
            LOAD(leaf, from, n);                                                                              \
            int j = 0;                                                                                        \
            for (; rank >> j & 1; j++)                                                                        \
                for (size_t i = 0; i < n; i++) leaf[i] = JOIN(level[j][i], leaf[i]);                          \
            memcpy(level[j], leaf, n * sizeof *leaf);                                                         \
        }                                                                                                     \
        bool some = false;                                                                                    \
        for (int j = 0; c->size >> j; j++) {                                                                  \
            if (!(c->size >> j & 1)) continue;                                                                \
            for (size_t i = 0; i < n; i++) leaf[i] = some ? JOIN(level[j][i], leaf[i]) : level[j][i];         \
            some = true;                                                                                      \
        }                                                                                                     \
        STORE(own_shard(c) + first * c->bytes, leaf, n);                                                      \
    }
enum { BLOCK = 128 };
// NaN wins: a > b is false for a NaN in b, and a != a finds it in a. For integers the last test is always false.
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define JOIN(a, b) (maximum ? LARGER(a, b) : (a) + (b))

// The input of `rank` to this rank's shard: its own is in `in`, the others arrived in the order of direct_reduce.
static const char *contribution(const Collective *c, int rank)
{
    if (rank == c->rank) return in_at(c, c->call.offsets[rank]);
    return c->scratch + (size_t)(wrap(c, c->rank - rank) - 1) * c->call.counts[c->rank] * c->bytes;
}

#define COPY_IN(to, from, n) memcpy(to, from, (n) * sizeof *(to))
#define COPY_OUT(to, from, n) memcpy(to, from, (n) * sizeof *(from))
FOLD(fold_float, float, COPY_IN, COPY_OUT)
FOLD(fold_double, double, COPY_IN, COPY_OUT)
FOLD(fold_int32, int32_t, COPY_IN, COPY_OUT)
FOLD(fold_int64, int64_t, COPY_IN, COPY_OUT)
#define WIDEN(to, from, n)                                                                                    \
    for (size_t i_ = 0; i_ < (n); i_++) {                                                                     \
        uint16_t bits;                                                                                        \
        memcpy(&bits, (from) + 2 * i_, sizeof bits);                                                          \
        (to)[i_] = formats_decode(c->call.type == COMM_BF16 ? FORMAT_BF16 : FORMAT_FP16, bits);               \
    }
#define ROUND(to, from, n)                                                                                    \
    for (size_t i_ = 0; i_ < (n); i_++) {                                                                     \
        uint16_t bits = (uint16_t)formats_encode(c->call.type == COMM_BF16 ? FORMAT_BF16 : FORMAT_FP16,       \
                                                 (from)[i_], false);                                          \
        memcpy((to) + 2 * i_, &bits, sizeof bits);                                                            \
    }
FOLD(fold_narrow, float, WIDEN, ROUND)

static void fold(const Collective *c)
{
    size_t n = c->call.counts[c->rank];
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t some = n - first < BLOCK ? n - first : BLOCK;
        switch (c->call.type) {
        case COMM_FP32: fold_float(c, first, some); break;
        case COMM_FP64: fold_double(c, first, some); break;
        case COMM_INT32: fold_int32(c, first, some); break;
        case COMM_INT64: fold_int64(c, first, some); break;
        default: fold_narrow(c, first, some);
        }
    }
}

#define REDUCE(Type)                                                                                          \
    do {                                                                                                      \
        Type *o = out;                                                                                        \
        const Type *x = a, *y = b;                                                                            \
        if (maximum) for (size_t i = 0; i < n; i++) o[i] = LARGER(x[i], y[i]);                                \
        else for (size_t i = 0; i < n; i++) o[i] = x[i] + y[i];                                               \
    } while (0)

// out = a op b; out may equal either. (bf16 and fp16 are added in a fold alone.)
static void reduce(void *out, const void *a, const void *b, size_t n, CommType type, CommOp op)
{
    bool maximum = op == COMM_MAX;
    switch (type) {
    case COMM_FP32: REDUCE(float); break;
    case COMM_FP64: REDUCE(double); break;
    case COMM_INT32: REDUCE(int32_t); break;
    case COMM_INT64: REDUCE(int64_t); break;
    default: die("collectives: %s cannot be added step by step", comm_type_name(type));
    }
}

void collectives_act(const Collective *c, const CollectiveStep *step)
{
    if (step->action == COLLECTIVES_FOLD) fold(c);
    if (step->action == COLLECTIVES_ADD && step->n)
        reduce(step->sum, step->left, step->right, step->n, c->call.type, c->call.op);
}

void collectives_begin(const Collective *c)
{
    const CommCall *call = &c->call;
    size_t own = call->kind == COMM_ALL_TO_ALL ? call->in_offsets[c->rank] : 0, n = call->n;
    const char *from = call->in;
    char *to = call->out;
    switch (call->kind) {
    case COMM_ALL_GATHER: to = out_at(c, call->offsets[c->rank]), n = call->counts[c->rank]; break;
    case COMM_ALL_TO_ALL:
        to = out_at(c, own), from = in_at(c, call->offsets[c->rank]), n = call->counts[c->rank];
        break;
    case COMM_REDUCE_SCATTER:
        if (c->size > 1) return;
        n = call->counts[0];
        break;
    case COMM_ALL_REDUCE: // ring and direct read `in` and write `out` once
        if (c->size == 1 || c->algorithm == COMM_TREE || c->algorithm == COMM_HALVING) break;
        return;
    default: return;
    }
    if (n && to != from) memcpy(to, from, n * c->bytes);
}

// ---- formulas
//
// Order of sums. tree and, for N a power of two, halving add as (r0 + r1) + (r2 + r3) by construction; direct
// adds so by choice (fold). A ring adds shard s in the order s+1, s+2, ..., s, which differs from shard to shard. So
// comm_algorithm() replaces ring and native by direct where the order matters (`ordered`) or where partial
// sums would have to be rounded (bf16, fp16), and native by tree or direct for the maximum of floats, because MPI
// does not define it for NaN.

// The largest shard of a node's ring.
static size_t hierarchical_room(const CommCall *call, int size)
{
    size_t most = 0;
    for (int i = 0; i < call->node; i++) most = max_size(most, ring_shard(call, ring_inside(0, size, call->node), i).n);
    return most;
}

// What a rank sends and receives in a ring's reduction and the gathering after it, of the ring's shards.
static void ring_elements(const CommCall *call, Ring g, size_t *sent, size_t *received)
{
    size_t n = 0, own = ring_shard(call, g, g.at).n;
    for (int i = 0; i < g.size; i++) n += ring_shard(call, g, i).n;
    if (g.size == 1) return;
    *sent += 2 * n - own - ring_shard(call, g, g.at + 1).n;
    *received += 2 * n - own - ring_shard(call, g, g.at - 1).n;
}

size_t collectives_scratch(const CommCall *call, CommAlgorithm algorithm, int rank, int size)
{
    size_t bytes = comm_type_bytes(call->type);
    bool reduces = call->kind == COMM_ALL_REDUCE || call->kind == COMM_REDUCE_SCATTER;
    if (size == 1 || !reduces) return 0;
    switch (algorithm) {
    case COMM_RING: return (size == 2 ? 1 : 2) * largest(call->counts, size) * bytes;
    case COMM_HIERARCHICAL: // as a ring's within the node; the shards between nodes are smaller
        return (call->node == 2 ? 1 : 2) * hierarchical_room(call, size) * bytes;
    case COMM_DIRECT: return (size_t)(size - 1) * call->counts[rank] * bytes;
    case COMM_TREE: return call->n * bytes;
    case COMM_HALVING: return (power_below(size) == size ? call->n - call->n / 2 : call->n) * bytes;
    default: return 0;
    }
}

// Elements that a rank of the halving algorithm sends, which are as many as it receives.
static size_t halving_elements(size_t n, int rank, int size)
{
    int id = halving_id(rank, size), rounds = log2_up(power_below(size)), extra = size - power_below(size);
    if (id < 0) return n;
    size_t kept = 0; // the sum of what it keeps in each round: received on the way down, sent on the way up
    for (int j = 1; j <= rounds; j++) kept += halving_range(id, j, n).n;
    size_t given = n - halving_range(id, rounds, n).n;
    return kept + given + (rank < 2 * extra ? n : 0);
}

void collectives_bytes(const CommCall *call, CommAlgorithm algorithm, int rank, int size, size_t *sent,
                       size_t *received)
{
    const size_t *counts = call->counts;
    size_t bytes = comm_type_bytes(call->type), n = call->n, out = 0, in = 0;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    bool native = algorithm == COMM_NATIVE, last_direct = algorithm == COMM_DIRECT;
    if (call->kind == COMM_SEND) out = n;
    else if (call->kind == COMM_RECV) in = n;
    else if (size > 1 && call->kind == COMM_ALL_GATHER) {
        out = total(counts, size) - counts[next], in = total(counts, size) - counts[rank];
    } else if (size > 1 && call->kind == COMM_REDUCE_SCATTER) {
        out = total(counts, size) - counts[rank];
        in = last_direct ? (size_t)(size - 1) * counts[rank] : total(counts, size) - counts[before];
    } else if (size > 1 && call->kind == COMM_ALL_TO_ALL) {
        out = total(counts, size) - counts[rank], in = total(call->in_counts, size) - call->in_counts[rank];
    } else if (size > 1 && call->kind == COMM_BROADCAST) {
        int place = (rank - call->peer + size) % size;
        for (int d = 1; d < size; d *= 2) out += place % (2 * d) == 0 && place + d < size ? n : 0;
        in = place ? n : 0;
    } else if (size > 1 && call->kind == COMM_ALL_REDUCE && algorithm == COMM_TREE) {
        for (int d = 1; d < size; d *= 2) out += rank % (2 * d) == 0 && rank + d < size ? n : 0;
        out += rank ? n : 0, in = out;
    } else if (size > 1 && call->kind == COMM_ALL_REDUCE && algorithm == COMM_HALVING) {
        out = in = halving_elements(n, rank, size);
    } else if (size > 1 && call->kind == COMM_ALL_REDUCE && algorithm == COMM_HIERARCHICAL) {
        ring_elements(call, ring_inside(rank, size, call->node), &out, &in);
        ring_elements(call, ring_between(rank, size, call->node), &out, &in);
    } else if (size > 1 && call->kind == COMM_ALL_REDUCE && (native || algorithm == COMM_RING || last_direct)) {
        out = 2 * n - counts[rank] - counts[next];
        in = last_direct ? (size_t)(size - 1) * counts[rank] + n - counts[rank] : 2 * n - counts[before] - counts[rank];
    }
    *sent = out * bytes, *received = in * bytes;
}

double collectives_seconds(CommKind kind, CommAlgorithm algorithm, int size, size_t n_bytes, double alpha, double beta)
{
    double N = size, n = (double)n_bytes, L = log2_up(size), P = power_below(size);
    double around = (N - 1) * alpha + (N - 1) / N * n * beta; // every shard goes once around
    if (kind == COMM_SEND || kind == COMM_RECV) return alpha + n * beta;
    switch (kind) {
    case COMM_ALL_REDUCE:
        if (algorithm == COMM_TREE) return 2 * L * (alpha + n * beta);
        if (algorithm != COMM_HALVING) return 2 * around;
        return 2 * log2(P) * alpha + 2 * (P - 1) / P * n * beta + (P < N ? 2 * (alpha + n * beta) : 0);
    case COMM_BROADCAST: return L * (alpha + n * beta);
    case COMM_BARRIER: return L * alpha;
    default: return around;
    }
}

double collectives_hierarchical_seconds(int node, int nodes, size_t n_bytes, double alpha, double beta)
{
    double inside = collectives_seconds(COMM_REDUCE_SCATTER, COMM_RING, node, n_bytes, alpha, beta); // and all_gather
    return 2 * inside + collectives_seconds(COMM_ALL_REDUCE, COMM_RING, nodes, n_bytes / (size_t)node, alpha, beta);
}
