// mesh: the coordinates of each rank in dp x pp x cp x tp, and the groups that follow from them.
//
// The order is fixed: tp is innermost, because it communicates most and belongs on one machine; dp is outermost,
// because it communicates least:
//
//     rank = ((dp * PP + pp) * CP + cp) * TP + tp
//
// Experts take ranks of dp x cp: with the replica index q = dp * CP + cp, ep divides DP * CP, and the EP neighbours
// q = EP b .. EP b + EP - 1 (same pp, tp) hold the experts between them. So a mesh with experts has no more ranks than
// one without.
//
// ZeRO may cut its states among SHARD neighbours of q instead of all DP * CP (hybrid sharding); the other blocks of
// SHARD then hold copies. DP * CP = 4, SHARD = 2:
//
//     q = 0   q = 1      a row: MESH_SHARDS
//     q = 2   q = 3      a column: MESH_COPIES
//
// All but mesh_create are pure functions of a shape and a rank: a test plays every rank of a mesh in one process.
#ifndef MESH_H
#define MESH_H
#include "comm/comm.h"

#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int dp, pp, cp, ep, tp; // sizes, 1 at least
    int shard;              // of dp x cp, neighbours among which states are cut; 0 or dp cp: all
} MeshShape;

typedef struct {
    int dp, pp, cp, tp; // coordinates
} MeshPlace;

// A group is the set of ranks that differ in some coordinates and agree in the others.
typedef enum {
    MESH_TP,              // tensor parallel: one layer's matrices
    MESH_CP,              // context parallel: one sequence
    MESH_PP,              // pipeline: the stages of one replica
    MESH_DP,              // data parallel: same weights, other samples
    MESH_EP,              // expert parallel: the experts between them
    MESH_REPLICAS,        // dp and cp: gradients of ordinary weights are added over it
    MESH_EXPERT_REPLICAS, // those that hold the same experts: q in steps of EP
    MESH_MODEL,           // pp and tp: one copy of the model
    MESH_ENDS,            // first and last stage: what a tied embedding is added over; none in between
    MESH_SHARDS,          // hybrid sharding alone: what the ranks of MESH_REPLICAS cut is cut over it
    MESH_EXPERT_SHARDS,   // those of them that hold the same experts
    MESH_COPIES,          // those with the same shard: q in steps of SHARD
    MESH_GROUPS
} MeshGroup;

typedef struct {
    MeshShape shape;
    MeshPlace place; // of this rank
    Comm *world;
    Comm *group[MESH_GROUPS]; // NULL where this rank is in none
} Mesh;

bool mesh_hybrid(MeshShape shape);                  // states are cut among some of the replicas, not all
int mesh_shards(MeshShape shape);                   // how many ranks they are cut among
int mesh_replica(MeshShape shape, MeshPlace place); // q = dp * CP + cp; ranks that differ in it have other tokens
// dp is what is left: world / (pp cp tp). Dies, with the reason, where a size is below 1 or does not divide.
MeshShape mesh_shape(int world, int pp, int cp, int ep, int tp);
int mesh_size(MeshShape shape);
MeshPlace mesh_place(MeshShape shape, int rank);
int mesh_rank(MeshShape shape, MeshPlace place);
// The members of the rank's group in ascending order, and how many; members (mesh_size) may be NULL. 0: in none.
int mesh_members(MeshShape shape, int rank, MeshGroup group, int *members);
const char *mesh_group_name(MeshGroup group); // "tp"

// Splits world into this rank's groups; they live as long as world's family. Collective. The ranks of a group are those
// of mesh_members, in that order.
Mesh mesh_create(Comm *world, MeshShape shape);

// Dies unless size divides n: mesh_must_divide("model.heads", 6, "parallel.tp", 4) says which sizes would.
void mesh_must_divide(const char *what, size_t n, const char *key, int size);

#ifdef __cplusplus
}
#endif
#endif
