// comm_print: the words of comm.h, and its counters as a table and as JSON.
//
// A row is one group and one kind of call on this rank. `sent` and `received` are what this rank put on the wire and
// took from it. Over all ranks of a group the two sums agree, which a test asserts; on one rank they may differ (the
// last shard is shorter, a tree's root sends more).
//
// Rejected: bandwidths in the table (bytes / seconds waited is no bandwidth when calls overlap with work).
#include "comm/comm.h"

#include "base/check.h"

#include <string.h>

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
    [COMM_DIRECT] = "direct",
};

size_t comm_type_bytes(CommType type)
{
    check(type < COMM_TYPES);
    return TYPE[type].bytes;
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

CommAlgorithm comm_algorithm_find(const char *name)
{
    if (!strcmp(name, "mpi")) return COMM_NATIVE;
    int a = 0;
    while (a < COMM_ALGORITHMS && strcmp(name, ALGORITHM[a])) a++;
    return (CommAlgorithm)a;
}

void comm_even(size_t *counts, size_t n, int size)
{
    size_t N = (size_t)size;
    for (size_t r = 0; r < N; r++) counts[r] = n / N + (r < n % N);
}

void comm_print(const Comm *comm, FILE *out)
{
    fprintf(out, "%-16s %5s %-14s %8s %14s %14s %14s %9s\n", "group", "ranks", "call", "calls", "payload", "sent",
            "received", "waited s");
    for (comm = comm_root(comm); comm; comm = comm->next)
        for (int k = 0; k < COMM_KINDS; k++) {
            const CommCount *c = &comm->count[k];
            if (!c->calls) continue;
            fprintf(out, "%-16s %5d %-14s %8zu %14zu %14zu %14zu %9.3f\n", comm->name, comm->size, KIND[k], c->calls,
                    c->payload, c->sent, c->received, c->waited);
        }
}

void comm_print_json(const Comm *comm, FILE *out, const char *lead)
{
    const char *group_end = "";
    fprintf(out, "{");
    for (comm = comm_root(comm); comm; comm = comm->next) {
        const char *row_end = "";
        fprintf(out, "%s\n%s  \"%s\": {", group_end, lead, comm->name);
        for (int k = 0; k < COMM_KINDS; k++) {
            const CommCount *c = &comm->count[k];
            if (!c->calls) continue;
            fprintf(out, "%s\n%s    \"%s\": {\"calls\": %zu, \"payload\": %zu, \"sent\": %zu, \"received\": %zu, "
                    "\"waited\": %.6f}", row_end, lead, KIND[k], c->calls, c->payload, c->sent, c->received, c->waited);
            row_end = ",";
        }
        if (*row_end) fprintf(out, "\n%s  ", lead);
        fprintf(out, "}");
        group_end = ",";
    }
    fprintf(out, "\n%s}", lead);
}
