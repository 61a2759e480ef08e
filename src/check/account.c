// account: the counters of the allocator and of the groups of ranks, as JSON. See account.h.
//
// A run writes them once, after its first step. By then the allocator is sealed and holds everything that it ever will,
// so one number per tag is complete, and needs no sampling over time. Traffic is that of exactly this one step: its
// micro-batches, its update, and the numbers on which ranks agree during it. The counters are reset when the step
// begins, so earlier traffic (initial weights, a checkpoint, measurements) is not in them.
//
// As in the plan, "memory" does not contain the scratch of collectives.c and the memory of MPI: neither comes from the
// run's allocator.
//
// The invariant: every tag is in the object under the name that mem_tag_name gives it, also those with 0 bytes, so a
// reader may subtract two accounts key by key. Bytes are JSON integers, exact up to 2^63. In traffic, kinds that were
// not called are left out; a single process has none.
//
// Rejected: reading the peak from the operating system (VmHWM). It holds libraries, page rounding and
// whatever the allocator keeps, and no plan can predict it to the byte.
#include "src/check/account.h"

#include "base/check.h"
#include "base/disk.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const group_name[ACCOUNT_GROUPS] = {
    [ACCOUNT_DP] = "dp", [ACCOUNT_EXPERTS] = "experts", [ACCOUNT_COPIES] = "copies", [ACCOUNT_TP] = "tp",
    [ACCOUNT_CP] = "cp", [ACCOUNT_EP] = "ep", [ACCOUNT_PP] = "pp", [ACCOUNT_ENDS] = "ends",
    [ACCOUNT_CONTROL] = "control"};
static const MeshGroup group_of[ACCOUNT_CONTROL] = {
    [ACCOUNT_DP] = MESH_REPLICAS, [ACCOUNT_EXPERTS] = MESH_EXPERT_REPLICAS, [ACCOUNT_COPIES] = MESH_COPIES,
    [ACCOUNT_TP] = MESH_TP,
    [ACCOUNT_CP] = MESH_CP, [ACCOUNT_EP] = MESH_EP, [ACCOUNT_PP] = MESH_PP, [ACCOUNT_ENDS] = MESH_ENDS};

AccountRank account_rank(const Mem *mem, const Mesh *mesh, const Comm *control)
{
    AccountRank rank = {.total = mem->bytes, .peak = mem->peak};
    memcpy(rank.bytes, mem->tag_bytes, sizeof rank.bytes);
    if (mesh && mesh->group[MESH_SHARDS]) account_add(&rank, ACCOUNT_DP, mesh->group[MESH_SHARDS]);
    if (mesh && mesh->group[MESH_EXPERT_SHARDS]) account_add(&rank, ACCOUNT_EXPERTS, mesh->group[MESH_EXPERT_SHARDS]);
    for (int g = 0; mesh && g < ACCOUNT_CONTROL; g++) {
        const Comm *group = mesh->group[group_of[g]];
        if (group) account_add(&rank, g, group);
        if (group && group->host) account_add(&rank, g, group->host); // numbers that its ranks exchange
    }
    if (control) account_add(&rank, ACCOUNT_CONTROL, control);
    return rank;
}

void account_add(AccountRank *rank, int group, const Comm *comm)
{
    for (int k = 0; k < COMM_KINDS; k++) {
        CommCount *to = &rank->count[group][k];
        const CommCount *from = &comm->count[k];
        to->calls += from->calls, to->payload += from->payload;
        to->sent += from->sent, to->received += from->received;
        to->waited += from->waited, to->seconds += from->seconds;
    }
}

// object[name] = value; takes the value.
static void set(json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value)) die("account: no memory for the table");
}

static void set_size(json_t *object, const char *name, size_t value)
{
    set(object, name, json_integer((json_int_t)value));
}

static json_t *memory(const AccountRank *rank)
{
    json_t *object = json_object();
    for (int tag = 0; tag < MEM_TAGS; tag++) set_size(object, mem_tag_name((MemTag)tag), rank->bytes[tag]);
    set_size(object, "total", rank->total);
    set_size(object, "peak", rank->peak);
    return object;
}

static json_t *kind(const CommCount *c)
{
    json_t *object = json_object();
    set_size(object, "calls", c->calls);
    set_size(object, "payload", c->payload);
    set_size(object, "sent", c->sent);
    set_size(object, "received", c->received);
    set(object, "waited", json_real(c->waited));
    return object;
}

static json_t *host(const AccountRank *rank)
{
    static const char *const way[] = {"out", "in"};
    json_t *object = json_object();
    for (int in = 0; in < 2; in++) {
        size_t n = rank->moved[in] + rank->acts[in];
        json_t *bytes = json_object();
        set_size(bytes, "sent", n);
        if (n) set(object, way[in], bytes);
        else json_decref(bytes);
    }
    return object;
}

static json_t *traffic(const AccountRank *rank)
{
    json_t *object = json_object();
    for (int g = 0; g < ACCOUNT_GROUPS; g++) {
        json_t *group = json_object();
        for (int k = 0; k < COMM_KINDS; k++)
            if (rank->count[g][k].calls) set(group, comm_kind_name((CommKind)k), kind(&rank->count[g][k]));
        if (json_object_size(group)) set(object, group_name[g], group);
        else json_decref(group);
    }
    json_t *moved = host(rank);
    if (json_object_size(moved)) set(object, "host", moved);
    else json_decref(moved);
    return object;
}

static json_t *by_rank(const AccountRank *rank, int n, json_t *(*of)(const AccountRank *rank))
{
    json_t *object = json_object();
    for (int r = 0; r < n; r++) {
        char name[16];
        snprintf(name, sizeof name, "%d", r);
        set(object, name, of(&rank[r]));
    }
    return object;
}

// As text with a newline at its end; takes ownership of the object.
static char *text_of(json_t *object)
{
    char *json = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    char *text = json ? malloc(strlen(json) + 2) : NULL;
    if (!text) die("account: no memory for the table");
    sprintf(text, "%s\n", json);
    free(json);
    json_decref(object);
    return text;
}

void account_print(const AccountRank *rank, int n, FILE *out)
{
    char *text = text_of(by_rank(rank, n, memory));
    fputs(text, out);
    free(text);
}

void account_print_traffic(const AccountRank *rank, int n, FILE *out)
{
    for (int g = ACCOUNT_TP; g <= ACCOUNT_ENDS; g++)
        for (int k = 0; k < COMM_KINDS; k++) {
            size_t calls = 0, sent = 0;
            for (int r = 0; r < n; r++) calls += rank[r].count[g][k].calls, sent += rank[r].count[g][k].sent;
            if (sent)
                fprintf(out, "  %s %s: %zu bytes sent by all ranks, in %zu calls\n", group_name[g],
                        comm_kind_name((CommKind)k), sent, calls);
        }
}

void account_write(const AccountRank *rank, int n, const char *path)
{
    json_t *root = json_object();
    set(root, "memory", by_rank(rank, n, memory));
    set(root, "traffic", by_rank(rank, n, traffic));
    char *text = text_of(root);
    if (!disk_replace_file(path, text, strlen(text))) die("%s: cannot be written: %s", path, strerror(errno));
    free(text);
}
