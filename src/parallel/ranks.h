// ranks: several processes as a training run sees them (replicas.h): which part of the work each one has.
//
// The configuration's sizes of data, tensor, context and pipeline parallelism make a mesh (mesh.h), a rank's place in
// it determines the rank's part of the model, of the optimizer's state and of each batch.
#ifndef RANKS_H
#define RANKS_H
#include "parallel/mesh.h"
#include "parallel/pipeline.h"
#include "parallel/zero.h"
#include "train/run.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Config cfg;                       // as resolved when the groups were made
    MeshShape shape;                  // how the ranks share the work
    MeshPlace place;                  // this one's part of it
    Mesh mesh;                        // groups for the device's memory: replicas carry gradients and weights; tp, cp
                                      // and pp activations. Empty in a plan, and so are those below
    Comm planned[MESH_GROUPS];        // in a plan: size and place
    // For numbers, on the host: all ranks; the groups MESH_REPLICAS, MESH_MODEL and MESH_EP.
    Comm *control, *replicas, *parts, *ep;
    Dev *host[2];                     // updates of what is in host memory, beside a device with memory of its own; the
                                      // second stores 2 bytes, over the first; NULL: none
    Zero *zero;                       // what of weights, gradients and optimizer this rank has, and their exchange
    PipelineTable *table, *smaller;   // with parallel.pp > 1: the schedule of a full batch; of a batch that grows
    Pipeline *pipeline;               // this rank's stage
    PipelineMicro *micro;             // a step's micro-batches
    int n_micro;                      // of this step so far
    double stage_loss;                // of the step's micro-batches, on the stage with the head
    int loss_stage;                   // the stage that has the head
    EvalRanks eval;
} Ranks;

// The ranks of `world` (comm_self for one that is not replicas_plain), which takes the device's memory and outlives
// them. world NULL: a plan of `rank`, which makes no group and may only be allocated.
Replicas ranks_join(const Config *cfg, Comm *world, int rank);
// Gives back what ranks_join made, after run_close.
void ranks_part(Replicas *replicas);
// NULL: alone.
static inline Ranks *ranks_of(const Replicas *replicas)
{
    return replicas->kind ? (Ranks *)replicas->self : NULL;
}

#ifdef __cplusplus
}
#endif
#endif
