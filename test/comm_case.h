// comm_case: tests of comm that every rank runs: on threads (test_comm) and under mpiexec (mpi_comm).
//
// All data are small whole numbers, so sums are exact in every type and any order, and results are compared with ==;
// the order of sums is tested separately, with fractions, bit by bit. A failed expectation prints its rank and line and
// counts; cmocka's own assertions may not be used off the main thread.
#ifndef TEST_COMM_CASE_H
#define TEST_COMM_CASE_H
#include "comm/collectives.h"
#include "comm/comm.h"
#include "formats/formats.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    atomic_int failed, entered;
} CommCase;

#define expect(cc, comm, cond)                                                                                \
    do {                                                                                                      \
        if (!(cond)) {                                                                                        \
            atomic_fetch_add(&(cc)->failed, 1);                                                               \
            printf("%s:%d: rank %d of %d (%s): %s\n", __FILE__, __LINE__, (comm)->rank, (comm)->size,         \
                   (comm)->name, #cond);                                                                      \
        }                                                                                                     \
    } while (0)

enum { CASE_MOST = 64 }; // elements of a rank in these tests, at most
typedef struct {
    _Alignas(8) char bytes[8 * 8 * CASE_MOST];
} CaseData;

static inline void case_put(CaseData *d, CommType type, size_t i, int value)
{
    switch (type) {
    case COMM_FP32: ((float *)d->bytes)[i] = (float)value; break;
    case COMM_FP64: ((double *)d->bytes)[i] = value; break;
    case COMM_INT32: ((int32_t *)d->bytes)[i] = value; break;
    case COMM_INT64: ((int64_t *)d->bytes)[i] = value; break;
    case COMM_BYTE: d->bytes[i] = (char)value; break;
    default:
        ((uint16_t *)d->bytes)[i] =
            (uint16_t)formats_encode(type == COMM_BF16 ? FORMAT_BF16 : FORMAT_FP16, (float)value, false);
    }
}

static inline int case_get(const CaseData *d, CommType type, size_t i)
{
    switch (type) {
    case COMM_FP32: return (int)((const float *)d->bytes)[i];
    case COMM_FP64: return (int)((const double *)d->bytes)[i];
    case COMM_INT32: return ((const int32_t *)d->bytes)[i];
    case COMM_INT64: return (int)((const int64_t *)d->bytes)[i];
    case COMM_BYTE: return d->bytes[i];
    default:
        return (int)formats_decode(type == COMM_BF16 ? FORMAT_BF16 : FORMAT_FP16, ((const uint16_t *)d->bytes)[i]);
    }
}

// Element i of rank r: 0 to 12, so that 8 ranks add up to less than bf16's 256 exact whole numbers.
static inline int case_value(int r, size_t i)
{
    return (int)((size_t)(r * 5) + i * 7) % 13;
}

static inline int case_total(int size, size_t i, CommOp op)
{
    int sum = 0;
    for (int r = 0; r < size; r++) {
        int v = case_value(r, i);
        sum = op == COMM_SUM ? sum + v : v > sum ? v : sum;
    }
    return sum;
}

// The counters since `before` against the formula, and the formula against its text where shards are equal.
static inline void case_bytes(CommCase *cc, Comm *comm, CommKind kind, CommCount before, const CommCall *call,
                              CommAlgorithm algorithm)
{
    size_t sent, received, N = (size_t)comm->size;
    CommCount now = comm->count[kind];
    CommCall whole = *call;
    whole.node = comm->node;
    collectives_bytes(&whole, algorithm, comm->rank, comm->size, &sent, &received);
    expect(cc, comm, now.calls == before.calls + 1);
    expect(cc, comm, now.sent - before.sent == sent);
    expect(cc, comm, now.received - before.received == received);
    size_t n = now.payload - before.payload;
    bool equal = true;
    for (size_t r = 0; call->counts && r < N; r++) equal = equal && call->counts[r] == call->counts[0];
    bool around = kind == COMM_ALL_GATHER || kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_TO_ALL;
    if (equal && around) expect(cc, comm, sent * N == (N - 1) * n && received * N == (N - 1) * n);
    if (equal && kind == COMM_ALL_REDUCE && algorithm != COMM_TREE && algorithm != COMM_HALVING)
        expect(cc, comm, sent * N == 2 * (N - 1) * n && received * N == 2 * (N - 1) * n);
}

static inline void case_all_reduce(CommCase *cc, Comm *comm, CommType type, CommOp op, size_t n, bool in_place)
{
    CaseData in = {0}, out;
    size_t counts[comm->size], offsets[comm->size];
    memset(&out, 77, sizeof out);
    for (size_t i = 0; i < n; i++) case_put(&in, type, i, case_value(comm->rank, i));
    CommCount before = comm->count[COMM_ALL_REDUCE];
    CommRequest q = comm_all_reduce(comm, in_place ? &in : &out, &in, n, type, op);
    comm_wait(comm, &q);
    const CaseData *got = in_place ? &in : &out;
    for (size_t i = 0; i < n; i++) expect(cc, comm, case_get(got, type, i) == case_total(comm->size, i, op));
    if (!in_place) expect(cc, comm, out.bytes[n * comm_type_bytes(type)] == 77);
    comm_even(counts, n, comm->size);
    memset(offsets, 0, sizeof offsets);
    CommCall call = {.kind = COMM_ALL_REDUCE, .type = type, .op = op, .n = n, .counts = counts, .offsets = offsets};
    case_bytes(cc, comm, COMM_ALL_REDUCE, before, &call, comm_algorithm(comm, COMM_ALL_REDUCE, type, op));
}

// Shards as a caller may cut them: even, the last one smaller, the last ones empty, only the last one.
enum { CASE_CUTS = 4 };
static inline size_t case_cut(size_t *counts, int size, int cut)
{
    size_t sum = 0;
    for (int r = 0; r < size; r++) {
        size_t each[CASE_CUTS] = {4, r + 1 == size ? 1 : 5, 2 * r < size ? 3 : 0, r + 1 == size ? 7 : 0};
        sum += counts[r] = each[cut];
    }
    return sum;
}

static inline void case_shards(CommCase *cc, Comm *comm, CommType type, int cut, bool in_place)
{
    size_t counts[comm->size], bytes = comm_type_bytes(type), first = 0;
    size_t sum = case_cut(counts, comm->size, cut), own = counts[comm->rank];
    for (int r = 0; r < comm->rank; r++) first += counts[r];
    CommCall call = {.kind = COMM_REDUCE_SCATTER, .type = type, .counts = counts};
    CaseData whole = {0}, shard, all;
    memset(&shard, 77, sizeof shard), memset(&all, 77, sizeof all);
    for (size_t i = 0; i < sum; i++) case_put(&whole, type, i, case_value(comm->rank, i));
    CommCount before = comm->count[COMM_REDUCE_SCATTER];
    char *to = in_place ? whole.bytes + first * bytes : shard.bytes;
    if (type != COMM_BYTE) {
        CommRequest q = comm_reduce_scatter(comm, to, &whole, counts, type, COMM_SUM);
        comm_wait(comm, &q);
        CommAlgorithm a = comm_algorithm(comm, COMM_REDUCE_SCATTER, type, COMM_SUM);
        case_bytes(cc, comm, COMM_REDUCE_SCATTER, before, &call, a);
        if (in_place) memcpy(&shard, to, own * bytes);
        for (size_t i = 0; i < own; i++)
            expect(cc, comm, case_get(&shard, type, i) == case_total(comm->size, first + i, COMM_SUM));
        expect(cc, comm, shard.bytes[own * bytes] == 77);
        for (size_t i = 0; i < sum; i++) // what went in is kept, but for the shard that came out in place
            expect(cc, comm, (in_place && i >= first && i < first + own) ||
                                 case_get(&whole, type, i) == case_value(comm->rank, i));
    }
    for (size_t i = 0; i < own; i++) case_put(&shard, type, i, case_value(comm->rank, first + i));
    if (in_place) memcpy(all.bytes + first * bytes, &shard, own * bytes);
    before = comm->count[COMM_ALL_GATHER];
    CommRequest q = comm_all_gather(comm, &all, in_place ? all.bytes + first * bytes : shard.bytes, counts, type);
    memset(counts, 0, sizeof counts); // counts were copied
    comm_wait(comm, &q);
    case_cut(counts, comm->size, cut);
    call.kind = COMM_ALL_GATHER;
    case_bytes(cc, comm, COMM_ALL_GATHER, before, &call, comm_algorithm(comm, COMM_ALL_GATHER, type, COMM_SUM));
    int owner = 0;
    for (size_t i = 0, end = counts[0]; i < sum; i++) {
        while (i >= end) end += counts[++owner];
        expect(cc, comm, case_get(&all, type, i) == case_value(owner, i));
    }
    expect(cc, comm, all.bytes[sum * bytes] == 77);
}

static inline void case_exchange(CommCase *cc, Comm *comm, CommType type, bool even)
{
    int N = comm->size, me = comm->rank;
    size_t to[N], from[N], at = 0, got = 0;
    CaseData in = {0}, out;
    memset(to, 0, sizeof to), memset(from, 0, sizeof from);
    for (int r = 0; r < N; r++) {
        to[r] = even ? 3 : (size_t)((me + 2 * r) % 4), from[r] = even ? 3 : (size_t)((r + 2 * me) % 4);
        for (size_t i = 0; i < to[r]; i++) case_put(&in, type, at++, case_value(me * N + r, i));
    }
    CommCount before = comm->count[COMM_ALL_TO_ALL];
    CommRequest q = comm_all_to_all(comm, &out, &in, to, from, type);
    comm_wait(comm, &q);
    CommCall call = {.kind = COMM_ALL_TO_ALL, .type = type, .counts = to, .in_counts = from};
    if (even) case_bytes(cc, comm, COMM_ALL_TO_ALL, before, &call, COMM_DIRECT);
    for (int r = 0; r < N; r++) got += from[r];
    size_t payload = comm->count[COMM_ALL_TO_ALL].payload - before.payload; // of the longer side
    expect(cc, comm, payload == (at > got ? at : got) * comm_type_bytes(type));
    at = 0;
    for (int r = 0; r < N; r++)
        for (size_t i = 0; i < from[r]; i++)
            expect(cc, comm, case_get(&out, type, at++) == case_value(r * N + me, i));
}

static inline void case_broadcast(CommCase *cc, Comm *comm, CommType type, int root, size_t n)
{
    CaseData d = {0};
    for (size_t i = 0; i < n; i++) case_put(&d, type, i, comm->rank == root ? case_value(root, i) : 99);
    CommCount before = comm->count[COMM_BROADCAST];
    CommRequest q = comm_broadcast(comm, &d, n, type, root);
    comm_wait(comm, &q);
    CommCall call = {.kind = COMM_BROADCAST, .type = type, .n = n, .peer = root};
    case_bytes(cc, comm, COMM_BROADCAST, before, &call, COMM_TREE);
    for (size_t i = 0; i < n; i++) expect(cc, comm, case_get(&d, type, i) == case_value(root, i));
}

// Two messages around the ring of ranks, received in order for one tag, and out of order over tags.
static inline void case_messages(CommCase *cc, Comm *comm)
{
    int next = (comm->rank + 1) % comm->size, before = (comm->rank + comm->size - 1) % comm->size;
    int32_t out[3] = {comm->rank, comm->rank + 100, comm->rank + 200}, in[3];
    if (comm->size == 1) return;
    CommRequest s[3], r[3];
    for (int i = 0; i < 3; i++) s[i] = comm_send(comm, &out[i], 1, COMM_INT32, next, i == 2 ? 9 : 4);
    r[2] = comm_recv(comm, &in[2], 1, COMM_INT32, before, 9);
    for (int i = 0; i < 2; i++) r[i] = comm_recv(comm, &in[i], 1, COMM_INT32, before, 4);
    for (int i = 2; i >= 0; i--) comm_wait(comm, &r[i]), comm_wait(comm, &s[i]);
    for (int i = 0; i < 3; i++) expect(cc, comm, in[i] == before + 100 * i);
    expect(cc, comm, s[0].serial == 0);
    expect(cc, comm, comm->count[COMM_SEND].sent >= 12 && comm->count[COMM_RECV].received >= 12);
}

// More messages than a backend has room for, some short and some long, with the receives waited for from the last one.
static inline void case_post(CommCase *cc, Comm *comm)
{
    enum { MESSAGES = 40, LONG = 300 };
    static _Thread_local int32_t out[MESSAGES][LONG], in[MESSAGES][LONG];
    CommRequest s[MESSAGES], r[MESSAGES];
    int next = (comm->rank + 1) % comm->size, before = (comm->rank + comm->size - 1) % comm->size;
    for (int i = 0; comm->size > 1 && i < MESSAGES; i++) {
        size_t n = i % 3 ? LONG : 2;
        out[i][0] = comm->rank, out[i][n - 1] = 1000 * comm->rank + i;
        s[i] = comm_send(comm, out[i], n, COMM_INT32, next, 5);
        r[i] = comm_recv(comm, in[i], n, COMM_INT32, before, 5);
    }
    for (int i = MESSAGES - 1; comm->size > 1 && i >= 0; i--) {
        comm_wait(comm, &r[i]);
        expect(cc, comm, in[i][(i % 3 ? LONG : 2) - 1] == 1000 * before + i);
    }
    for (int i = 0; comm->size > 1 && i < MESSAGES; i++) comm_wait(comm, &s[i]);
}

// Vectors that are added in many blocks.
static inline void case_long(CommCase *cc, Comm *comm)
{
    enum { n = 300007 };
    float *x = malloc(n * sizeof *x);
    if (!x) abort();
    for (size_t i = 0; i < n; i++) x[i] = (float)case_value(comm->rank, i);
    CommRequest q = comm_all_reduce(comm, x, x, n, COMM_FP32, COMM_SUM);
    comm_wait(comm, &q);
    for (size_t i = 0; i < n; i += 101) expect(cc, comm, x[i] == (float)case_total(comm->size, i, COMM_SUM));
    free(x);
}

// Many calls in flight, of different kinds and algorithms, waited for in another order on each rank.
static inline void case_in_flight(CommCase *cc, Comm *comm)
{
    enum { CALLS = 12 };
    CaseData in[CALLS], out[CALLS];
    CommRequest q[CALLS];
    size_t counts[comm->size], total = case_cut(counts, comm->size, 1), first = 0;
    CommAlgorithm kept = comm->algorithm[COMM_ALL_REDUCE];
    for (int r = 0; r < comm->rank; r++) first += counts[r];
    for (int k = 0; k < CALLS; k++) {
        for (size_t i = 0; i < total; i++) case_put(&in[k], COMM_FP32, i, case_value(comm->rank + k, i));
        comm_set_algorithm(comm, COMM_ALL_REDUCE, (CommAlgorithm)(k / 2 % COMM_ALGORITHMS));
        if (k % 2) q[k] = comm_all_reduce(comm, &out[k], &in[k], total, COMM_FP32, COMM_SUM);
        else q[k] = comm_reduce_scatter(comm, &out[k], &in[k], counts, COMM_FP32, COMM_SUM);
    }
    comm_set_algorithm(comm, COMM_ALL_REDUCE, kept);
    for (int j = 0; j < CALLS; j++) {
        int k = comm->rank % 2 ? CALLS - 1 - j : (5 * j + comm->rank) % CALLS;
        comm_wait(comm, &q[k]);
        size_t n = k % 2 ? total : counts[comm->rank];
        for (size_t i = 0; i < n; i++) {
            int want = 0;
            for (int r = 0; r < comm->size; r++) want += case_value(r + k, i + (k % 2 ? 0 : first));
            expect(cc, comm, case_get(&out[k], COMM_FP32, i) == want);
        }
    }
}

// Fractions whose sum depends on the order: the bits must be the tree's, whatever moves the bytes.
static inline float case_fraction(int r, size_t i)
{
    uint32_t h = (uint32_t)(r * 7919 + (int)i * 104729 + 12345) * 2654435761u;
    float x = (float)(h >> 8) / 16777216.0f - 0.5f;
    return r % 3 == 1 ? x * 1e4f : x;
}

static inline float case_tree(const float *leaf, int n) // written differently from the code under test
{
    if (n == 1) return leaf[0];
    int half = 1;
    while (2 * half < n) half *= 2;
    return case_tree(leaf, half) + case_tree(leaf + half, n - half);
}

static inline void case_ordered(CommCase *cc, Comm *comm)
{
    enum { n = 37 };
    float in[n], out[n], leaf[comm->size];
    bool was = comm->ordered;
    CommAlgorithm kept = comm->algorithm[COMM_ALL_REDUCE];
    comm_set_ordered(comm, true);
    for (size_t i = 0; i < n; i++) in[i] = case_fraction(comm->rank, i);
    for (int a = 0; a < COMM_ALGORITHMS; a++) {
        comm_set_algorithm(comm, COMM_ALL_REDUCE, (CommAlgorithm)a);
        CommRequest q = comm_all_reduce(comm, out, in, n, COMM_FP32, COMM_SUM);
        comm_wait(comm, &q);
        for (size_t i = 0; i < n; i++) {
            for (int r = 0; r < comm->size; r++) leaf[r] = case_fraction(r, i);
            expect(cc, comm, out[i] == case_tree(leaf, comm->size));
        }
    }
    comm_set_algorithm(comm, COMM_ALL_REDUCE, kept);
    comm_set_ordered(comm, was);
    // bf16: the tree in fp32, rounded once
    uint16_t narrow[n], sum[n];
    for (size_t i = 0; i < n; i++) narrow[i] = (uint16_t)formats_encode(FORMAT_BF16, in[i], false);
    CommRequest q = comm_all_reduce(comm, sum, narrow, n, COMM_BF16, COMM_SUM);
    comm_wait(comm, &q);
    for (size_t i = 0; i < n; i++) {
        for (int r = 0; r < comm->size; r++)
            leaf[r] = formats_decode(FORMAT_BF16, formats_encode(FORMAT_BF16, case_fraction(r, i), false));
        expect(cc, comm, sum[i] == (uint16_t)formats_encode(FORMAT_BF16, case_tree(leaf, comm->size), false));
    }
}

// 1 on rank 0, half a unit in its last place on the others: a sum that is rounded after each addition stays 1.
static inline void case_rounded_once(CommCase *cc, Comm *comm)
{
    for (int narrow = 0; narrow < 2; narrow++) {
        Format format = narrow ? FORMAT_FP16 : FORMAT_BF16;
        float half = narrow ? 1 / 2048.0f : 1 / 256.0f;
        uint16_t one = (uint16_t)formats_encode(format, comm->rank ? half : 1, false), x[3] = {one, one, one};
        uint16_t want = (uint16_t)formats_encode(format, 1 + (float)(comm->size - 1) * half, false);
        CommRequest q = comm_all_reduce(comm, x, x, 3, narrow ? COMM_FP16 : COMM_BF16, COMM_SUM);
        comm_wait(comm, &q);
        for (int i = 0; i < 3; i++) expect(cc, comm, x[i] == want);
    }
}

// NaN wins the maximum on every rank, whichever rank it comes from.
static inline void case_nan(CommCase *cc, Comm *comm)
{
    for (int from = 0; from < comm->size; from++) {
        float x[2] = {comm->rank == from ? 0.0f / 0.0f : 1e30f, (float)comm->rank};
        CommRequest q = comm_all_reduce(comm, x, x, 2, COMM_FP32, COMM_MAX);
        comm_wait(comm, &q);
        expect(cc, comm, x[0] != x[0]);
        expect(cc, comm, x[1] == (float)(comm->size - 1));
    }
}

static inline void case_split(CommCase *cc, Comm *comm)
{
    Comm *half = comm_split(comm, comm->rank % 2, -comm->rank, "half"); // reversed order
    Comm *even = comm_split(comm, comm->rank % 2 ? -1 : 0, 0, "even");
    int in_half = (comm->size + 1 - comm->rank % 2) / 2, x = comm->rank;
    expect(cc, comm, half->size == in_half && half->rank == in_half - 1 - comm->rank / 2);
    expect(cc, comm, (even == NULL) == (comm->rank % 2 == 1));
    CommRequest q = comm_all_reduce(half, &x, &x, 1, COMM_INT32, COMM_SUM);
    comm_wait(half, &q);
    int want = 0;
    for (int r = comm->rank % 2; r < comm->size; r += 2) want += r;
    expect(cc, comm, x == want);
    x = comm->rank;
    if (even) {
        expect(cc, comm, even->rank == comm->rank / 2 && even->size == (comm->size + 1) / 2);
        q = comm_all_reduce(even, &x, &x, 1, COMM_INT32, COMM_MAX);
        comm_wait(even, &q);
        expect(cc, comm, x == (comm->size - 1) / 2 * 2);
    }
    expect(cc, comm, comm->next == half && !strcmp(half->name, "half") && half->count[COMM_ALL_REDUCE].calls == 1);
}

// Everything once, over the types, sizes, cuts and algorithms.
static inline void case_everything(CommCase *cc, Comm *comm)
{
    static const size_t SIZE[] = {0, 1, 5, 24, 63};
    comm_set_node(comm, comm->size % 3 ? comm->size % 2 ? 1 : 2 : 3); // of 6 ranks 3, of 4 and 8 two
    for (int a = 0; a < COMM_ALGORITHMS; a++) {
        if (comm->ops->direct && a != COMM_NATIVE && a != COMM_DIRECT) continue; // it has no others
        comm_set_algorithm(comm, COMM_ALL_REDUCE, (CommAlgorithm)a);
        if (collectives_exists(COMM_REDUCE_SCATTER, (CommAlgorithm)a))
            comm_set_algorithm(comm, COMM_REDUCE_SCATTER, (CommAlgorithm)a);
        if (a <= COMM_RING) comm_set_algorithm(comm, COMM_ALL_GATHER, (CommAlgorithm)a);
        for (int type = 0; type < COMM_TYPES; type++) {
            if (comm->size > 4 && type % 3 != a % 3) continue; // many ranks: each type with some of the algorithms
            for (size_t s = 0; type != COMM_BYTE && s < sizeof SIZE / sizeof *SIZE; s++) {
                case_all_reduce(cc, comm, (CommType)type, COMM_SUM, SIZE[s], false);
                case_all_reduce(cc, comm, (CommType)type, COMM_MAX, SIZE[s], true);
            }
            for (int cut = 0; cut < CASE_CUTS; cut++) case_shards(cc, comm, (CommType)type, cut, (cut + type) % 2);
        }
    }
    for (int a = 0; a < (comm->ops->direct ? 1 : 2); a++) {
        comm_set_algorithm(comm, COMM_BROADCAST, a ? COMM_TREE : COMM_NATIVE);
        comm_set_algorithm(comm, COMM_ALL_TO_ALL, a ? COMM_DIRECT : COMM_NATIVE);
        comm_set_algorithm(comm, COMM_BARRIER, a ? COMM_TREE : COMM_NATIVE);
        for (int type = 0; type < COMM_TYPES; type++) {
            case_exchange(cc, comm, (CommType)type, type % 2);
            for (int root = 0; root < comm->size; root++) case_broadcast(cc, comm, (CommType)type, root, 11);
        }
        CommRequest q = comm_barrier(comm);
        comm_wait(comm, &q);
    }
    case_messages(cc, comm);
    case_post(cc, comm);
    case_long(cc, comm);
    case_in_flight(cc, comm);
    case_ordered(cc, comm);
    case_rounded_once(cc, comm);
    case_nan(cc, comm);
    case_split(cc, comm);
}
#endif
