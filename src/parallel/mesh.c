// mesh: ranks, coordinates and groups.
//
// The invariant: rank -> place -> rank is the identity, and every kind of group cuts the ranks into disjoint sets of
// equal size (MESH_ENDS: of those it covers). The table VARIES alone says which coordinates vary within a group.
//
//     rank = ((dp * PP + pp) * CP + cp) * TP + tp          0 <= dp < DP, ...
//
// The groups over which gradients are added. Ranks that differ in dp or cp have the same weights and other tokens:
// MESH_REPLICAS, numbered by q = dp * CP + cp. An expert's weights exist once per block of EP ranks along q:
// MESH_EXPERT_REPLICAS, of DP * CP / EP ranks. For experts a token is a token, whichever sequence it is of, so a block
// may have parts of one sequence or several sequences. Ranks that differ in tp or pp hold other weights, so no
// gradients are added; but the squares of all of them belong to one gradient norm: MESH_MODEL. Hybrid sharding
// makes a grid of MESH_REPLICAS, whose rows are MESH_SHARDS and whose columns are MESH_COPIES.
//
// Rejected: ep as a fifth factor of the world (Megatron's first layout: dense layers would idle or be replicated);
// experts over dp alone (long sequences need cp, which leaves few dp ranks for many experts); orders chosen by an
// option, as Megatron allows: a reader would have to know the option to read a rank.
#include "parallel/mesh.h"

#include "base/check.h"

#include <string.h>

typedef enum { FIXED, ALL, IN_BLOCK, OF_BLOCKS, ENDS } Varies; // IN_BLOCK, OF_BLOCKS: of EP or SHARD ranks along q

typedef struct {
    const char *name;
    Varies dp, pp, cp, tp, ep, shard; // ep and shard restrict dp and cp together, by blocks of q
} GroupRow;

static const GroupRow VARIES[MESH_GROUPS] = {
    [MESH_TP] = {"tp", FIXED, FIXED, FIXED, ALL, ALL, ALL},
    [MESH_CP] = {"cp", FIXED, FIXED, ALL, FIXED, ALL, ALL},
    [MESH_PP] = {"pp", FIXED, ALL, FIXED, FIXED, ALL, ALL},
    [MESH_DP] = {"dp", ALL, FIXED, FIXED, FIXED, ALL, ALL},
    [MESH_EP] = {"ep", ALL, FIXED, ALL, FIXED, IN_BLOCK, ALL},
    [MESH_REPLICAS] = {"replicas", ALL, FIXED, ALL, FIXED, ALL, ALL},
    [MESH_EXPERT_REPLICAS] = {"expert_replicas", ALL, FIXED, ALL, FIXED, OF_BLOCKS, ALL},
    [MESH_MODEL] = {"model", FIXED, ALL, FIXED, ALL, ALL, ALL},
    [MESH_ENDS] = {"ends", FIXED, ENDS, FIXED, FIXED, ALL, ALL},
    [MESH_SHARDS] = {"shards", ALL, FIXED, ALL, FIXED, ALL, IN_BLOCK},
    [MESH_EXPERT_SHARDS] = {"expert_shards", ALL, FIXED, ALL, FIXED, OF_BLOCKS, IN_BLOCK},
    [MESH_COPIES] = {"copies", ALL, FIXED, ALL, FIXED, ALL, OF_BLOCKS},
};

const char *mesh_group_name(MeshGroup group)
{
    return VARIES[group].name;
}

bool mesh_hybrid(MeshShape s)
{
    return s.shard > 0 && s.shard < s.dp * s.cp;
}

int mesh_shards(MeshShape s)
{
    return mesh_hybrid(s) ? s.shard : s.dp * s.cp;
}

int mesh_size(MeshShape s)
{
    return s.dp * s.pp * s.cp * s.tp;
}

int mesh_rank(MeshShape s, MeshPlace p)
{
    return ((p.dp * s.pp + p.pp) * s.cp + p.cp) * s.tp + p.tp;
}

MeshPlace mesh_place(MeshShape s, int rank)
{
    check(rank >= 0 && rank < mesh_size(s));
    return (MeshPlace){.tp = rank % s.tp, .cp = rank / s.tp % s.cp, .pp = rank / (s.tp * s.cp) % s.pp,
                       .dp = rank / (s.tp * s.cp * s.pp)};
}

int mesh_replica(MeshShape s, MeshPlace p)
{
    return p.dp * s.cp + p.cp;
}

MeshShape mesh_shape(int world, int pp, int cp, int ep, int tp)
{
    const char *key[] = {"pp", "cp", "ep", "tp"};
    const int size[] = {pp, cp, ep, tp};
    for (int i = 0; i < 4; i++)
        if (size[i] < 1 || size[i] > world)
            die("mesh: parallel.%s = %d on %d ranks (1 to %d)", key[i], size[i], world, world);
    long copy = (long)pp * cp * tp; // ranks of one copy of the model and of its sequence
    if (world % copy)
        die("mesh: %d ranks are not a multiple of pp x cp x tp = %d x %d x %d = %ld (start a multiple of %ld ranks)",
            world, pp, cp, tp, copy, copy);
    int dp = world / (int)copy;
    if (dp * cp % ep)
        die("mesh: parallel.ep = %d does not divide dp x cp = %d x %d = %d: experts are spread over the ranks that "
            "have other tokens", ep, dp, cp, dp * cp);
    return (MeshShape){.dp = dp, .pp = pp, .cp = cp, .ep = ep, .tp = tp};
}

// Whether ranks with coordinates a and b may be in one group, judged by this coordinate alone.
static bool together(Varies varies, int a, int b, int block, int last)
{
    switch (varies) {
    case ALL: return true;
    case IN_BLOCK: return a / block == b / block;
    case OF_BLOCKS: return a % block == b % block;
    case ENDS: return (a == 0 || a == last) && (b == 0 || b == last);
    default: return a == b;
    }
}

int mesh_members(MeshShape s, int rank, MeshGroup group, int *members)
{
    const GroupRow *g = &VARIES[group];
    MeshPlace a = mesh_place(s, rank);
    int n = 0, size = mesh_size(s);
    if (group >= MESH_SHARDS && !mesh_hybrid(s)) return 0;
    for (int r = 0; r < size; r++) {
        MeshPlace b = mesh_place(s, r);
        if (!together(g->dp, a.dp, b.dp, 1, s.dp - 1) || !together(g->pp, a.pp, b.pp, 1, s.pp - 1) ||
            !together(g->cp, a.cp, b.cp, 1, s.cp - 1) || !together(g->tp, a.tp, b.tp, 1, s.tp - 1) ||
            !together(g->ep, mesh_replica(s, a), mesh_replica(s, b), s.ep, 0) ||
            !together(g->shard, mesh_replica(s, a), mesh_replica(s, b), s.shard, 0)) continue;
        if (members) members[n] = r;
        n++;
    }
    return n;
}

Mesh mesh_create(Comm *world, MeshShape shape)
{
    check(mesh_size(shape) == world->size);
    Mesh mesh = {.shape = shape, .world = world, .place = mesh_place(shape, world->rank)};
    int members[world->size]; // the lowest of them numbers the group
    for (int g = 0; g < MESH_GROUPS; g++) {
        int n = mesh_members(shape, world->rank, (MeshGroup)g, members);
        mesh.group[g] = comm_split(world, n ? members[0] : -1, world->rank, VARIES[g].name);
    }
    return mesh;
}

void mesh_must_divide(const char *what, size_t n, const char *key, int size)
{
    char fits[256] = "";
    if (size > 0 && n % (size_t)size == 0) return;
    for (size_t d = 1, at = 0; d <= n && at < sizeof fits - 24; d++)
        if (n % d == 0) at += (size_t)snprintf(fits + at, sizeof fits - at, "%s%zu", at ? ", " : "", d);
    die("mesh: %s = %d does not divide %s = %zu (what does: %s)", key, size, what, n, fits);
}
