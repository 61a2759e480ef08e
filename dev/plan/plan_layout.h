// plan_layout: how a model and its batch are cut over accelerators, and what each of them then holds.
#ifndef PLAN_LAYOUT_H
#define PLAN_LAYOUT_H
#include "dev/plan/machines.h"
#include "comm/mesh.h"
#include "net/model.h"
#include "parallel/pipeline_table.h"
#include "net/recompute.h"
#include "parallel/tp.h"

#include <stdbool.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int gpus, dp, tp, pp, cp; // gpus = dp tp pp cp
    int ep;                   // ranks of dp cp that have a layer's experts between them (mesh.h); 1: each has all
    bool sp;                  // sequence parallelism, with tp
    int zero;                 // stage, over the dp cp replicas
    int shard;                // of them, that cut what it cuts (parallel.shard); 0: all
    bool reshard;
    long prefetch, keep;      // stage 3: units gathered ahead; units with fewer parameters stay gathered
    PipelineSchedule schedule;
    int chunks;               // of a stage
    long micro;               // sequences of a micro-batch
    RecomputeMode recompute;
    bool fused_attention;     // no T x T matrix
    bool eager;               // loops are not fused (roofline.h)
    bool overlap_tp, overlap_pp, overlap_dp;
    bool scatter;             // without sp, a tp group sends one copy of the stream to the next stage, not tp copies
    bool offload, host_updates, offload_acts; // memory.offload, and offload_update=cpu; memory.offload_acts
    size_t grad_bytes;        // of a gradient element when it is sent
} PlanLayout;

typedef struct {
    ModelShape shape;
    size_t T;      // tokens of a sequence
    long batch;    // sequences of a step
    OptimName optim;
    bool agc;      // adaptive clipping, by unit
    ClipUnit agc_unit;
    size_t x_bytes;
    bool embed_fp32; // numerics.embed_dtype
    Machine machine;
    PlanLayout layout;
} PlanJob;

// Why a layout is refused, for counts of the reasons.
typedef enum {
    PLAN_LAYOUT_FITS, PLAN_LAYOUT_RANKS, PLAN_LAYOUT_HEADS, PLAN_LAYOUT_EXPERTS, PLAN_LAYOUT_SEQUENCE,
    PLAN_LAYOUT_SHARD, PLAN_LAYOUT_LAYERS, PLAN_LAYOUT_BATCH, PLAN_LAYOUT_SCHEDULE, PLAN_LAYOUT_MEMORY,
    PLAN_LAYOUT_REASONS
} PlanLayoutReason;

// Parameters that one rank of a tp group (the one with the most) holds of each unit. block: with one network; routed:
// with experts, and with these themselves only where ep is 1; else they are apart, in `experts`.
typedef struct {
    size_t embedding, block, routed, experts, head, positions;
} PlanUnits;

// Bytes of the rank that needs the most, by purpose.
typedef struct {
    int stage;
    double parameters, gradients, optimizer, activations, scratch, communication, total;
} PlanBytes;

// The part of an accelerator's memory that training may use; the rest is the driver's context, communication buffers
// and fragmentation.
#define PLAN_LAYOUT_USABLE 0.92

// One accelerator, everything of size 1, bf16, selective recomputation, everything overlapped.
PlanLayout plan_layout_default(void);
const char *plan_layout_reason(PlanLayoutReason reason);
// Whether the layout is possible; if not, `why` gives the reason in one line. Memory is checked last, and only with
// `memory`.
PlanLayoutReason plan_layout_check(const PlanJob *job, bool memory, char *why, size_t n_why);
// The same; dies with the reason if it is not.
void plan_layout_must(const PlanJob *job, bool memory);

// Ranks that cut what ZeRO cuts; and how often that is there: 1 without hybrid sharding.
int plan_layout_shards(const PlanLayout *l);
int plan_layout_copies(const PlanLayout *l);
long plan_layout_micros(const PlanJob *job);        // micro-batches of a step, on each replica
size_t plan_layout_layers(const PlanJob *job, int stage);
size_t plan_layout_chunk(const PlanJob *job);       // layers of the largest chunk
ModelPiece plan_layout_piece(const PlanJob *job, int stage, int chunk); // its slots are not set
// The shape of what rank `rank` of a tp group and any of an ep group holds.
ModelShape plan_layout_part(const PlanJob *job, int rank);
size_t plan_layout_mixed(const ModelShape *shape);   // layers with experts, of the whole model
PlanUnits plan_layout_units(const PlanJob *job);
// Parameters of a rank of a stage: all; those of experts that ep ranks divide (0 with ep 1), which it shares with
// dp cp / ep ranks instead of dp cp.
size_t plan_layout_params(const PlanJob *job, int stage);
size_t plan_layout_experts(const PlanJob *job, int stage);
size_t plan_layout_routed(const PlanJob *job, int stage); // layers with experts
// Of the units' sizes that of one layer: of its experts that ep ranks divide, or of all else.
size_t plan_layout_block(const PlanJob *job, const PlanUnits *u, size_t layer, bool experts);
// Elements of the copy of a tied head on another stage than the embedding; it has a gradient but no optimizer state.
size_t plan_layout_tied(const PlanJob *job, int stage);
// Micro-batches whose activations a chunk of the first or the last stage has room for, as pipeline_stage says.
size_t plan_layout_slots(const PlanJob *job, int stage, int chunk);
PlanBytes plan_layout_bytes(const PlanJob *job);
// Units with fewer parameters than this stay gathered for a step; 0 where weights are not cut, or all stay. And the
// parameters of such units of a stage: of the experts that ep ranks divide, or of all else. less: what a tp rank lacks
// of the largest part of the vocabulary.
size_t plan_layout_keep(const PlanLayout *l);
size_t plan_layout_kept(const PlanJob *job, int stage, bool experts, size_t less);
// "dp 64 tp 8 pp 16 v 4 ..."
void plan_layout_text(const PlanJob *job, char *text, size_t n);

#ifdef __cplusplus
}
#endif
#endif
