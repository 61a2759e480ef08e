// plan_job: a model on accelerators: machines, layouts, and the bytes and seconds that follow; the search of layouts.
#ifndef PLAN_JOB_H
#define PLAN_JOB_H
#include "comm/comm.h"
#include "parallel/mesh.h"
#include "net/model.h"
#include "net/recompute.h"
#include "net/unit.h"
#include "parallel/pipeline_table.h"
#include "parallel/tp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// ---- machines: accelerators and links as numbers: peak rates, memory, what connects them, what an hour costs.
//
// The plan's only facts about hardware. Each row names where its numbers come from. Rates in FLOP/s of dense bf16 with
// fp32 sums (fp16 on V100, fp32 on this CPU), sizes in bytes, bandwidths in bytes/s in one direction, prices in US
// dollars for one hour of one accelerator.

typedef struct {
    const char *name, *what;
    double alpha, bandwidth; // seconds a message; bytes/s of one accelerator
    const char *source; // NULL: measured; bandwidth is what messages reach, and not a data sheet's
} MachineLink;

typedef struct {
    const char *name;
    double peak, reachable;   // of the data sheet; the best measured for one large matmul
    double tf32;              // the data sheet's peak for fp32 operands rounded to TF32; 0: not in the table
    double memory, bandwidth; // of the accelerator
    int cores;                // that share a matmul's tiles: streaming multiprocessors
    int node;                 // accelerators a node
    MachineLink inside, between, host; // host: to the memory of its node's processors
    double host_memory;                // bytes/s of that memory, one accelerator's share
    double price;
    const char *source;
} Machine;

enum { MACHINES_CPU_SECONDS = 2 };

// A copy of the row of that name, in upper or lower case; "A100" is A100-80, the first row with that name before the
// memory; "cpu" measures this machine (machines_measure). Dies for names that the table does not have, and suggests the
// nearest one.
Machine machines_find(const char *name);
// The same accelerator with both rates those of TF32; dies where the table has none.
Machine machines_tf32(Machine machine);
MachineLink machines_link(const char *name);
// Replaces machine's links inside and between nodes by those that the file has, which comm.measure wrote: {"inside":
// {"alpha": seconds, "bandwidth": bytes/s}, "between": {...}}, one of them at least. Dies for any other file.
void machines_links(Machine *machine, const char *path);
// Dollars an hour of the accelerator, by its full name, at a cloud (aws, gcp, azure, lambda); dies where none is known.
double machines_price(const char *cloud, const char *machine);
// This CPU: the best sgemm (dev_cpu_peak of square matrices) and a copy of memory, `seconds` each.
Machine machines_measure(double seconds);
// All tables, as markdown.
void machines_print(FILE *out);

// ---- roofline: how long each operation of a unit takes on an accelerator: for its arithmetic or its bytes

// The constants of the model, the same for every machine, model and layout; see roofline.c for where they come from.
typedef struct {
    double sustained;      // matmuls of a training run reach this part of the machine's `reachable`
    double depth;          // a matmul of depth K loses the time that `depth` more columns would take
    double memory;         // part of the memory's bandwidth that loops over activations reach
    double attention[2];   // fused attention's part of `reachable`: forward, backward
    double launch;         // seconds between two kernels
    double inside, between; // part of a link's bandwidth that collectives reach: in the node, over the network
    double contention;     // part of hidden communication's time that is lost all the same: it takes cores and memory
} RooflineConstants;
RooflineConstants roofline_constants(void);

// One rank's part of a micro-batch.
typedef struct {
    const Machine *machine;
    ModelShape part;      // tp_shape
    size_t B, T, cp;      // sequences, their whole length, ranks that share a sequence: N = B T / cp tokens
    size_t x_bytes;
    bool fused_attention; // no T x T matrix in memory
    bool eager;           // loops run as a framework's operations, one by one
    RecomputeMode recompute;
} RooflineCase;

// Directions: F forward, B the gradient of the inputs with recomputation, W the gradient of the weights.
typedef enum { ROOFLINE_F, ROOFLINE_B, ROOFLINE_W, ROOFLINE_WAYS } RooflineWay;

typedef struct {
    const char *name;
    double flops[ROOFLINE_WAYS], bytes[ROOFLINE_WAYS], seconds[ROOFLINE_WAYS];
} RooflineOp;

enum { ROOFLINE_OPS = 16 };

typedef struct {
    RooflineOp op[ROOFLINE_OPS];
    int n;
    double flops, seconds[ROOFLINE_WAYS]; // flops: of matmuls and attention, in all directions
} Roofline;

// out (M, N) += a (M, K) b (K, N), x bytes an element.
double roofline_matmul(const Machine *machine, double M, double N, double K, double x);
// A loop that moves this many bytes.
double roofline_loop(const Machine *machine, double bytes);
Roofline roofline_block(const RooflineCase *c);
Roofline roofline_embedding(const RooflineCase *c);
Roofline roofline_head(const RooflineCase *c); // with the loss
// AdamW on n parameters: fp32 gradients, moments and weights, and a copy of the weights in x bytes.
double roofline_adamw(const Machine *machine, double n, double x);

// ---- plan_layout: how a model and its batch are cut over accelerators, and what each of them then holds.

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
    bool eager;               // loops are not fused (roofline.c)
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
typedef struct {
    char s[200];
} PlanText;
PlanText plan_layout_text(const PlanJob *job);

// ---- plan_traffic: what a layout sends in a step: by group and kind, in bytes and in seconds.

// How a group is placed on the nodes, and its ranks' links, with the bandwidths that collectives reach.
typedef struct {
    int size, inside; // ranks; those of them on one node
    MachineLink in, out;
} PlanGroup;

// One kind of call of one group.
typedef struct {
    const char *group;
    CommKind kind;
    PlanGroup where;
    double calls, payload; // of a rank of the busiest stage, in a step; bytes of one call
    size_t all;            // bytes that all ranks together send in a step; rows to experts: when these have equal loads
    double seconds;        // of those calls, one after the other
    const char *algorithm;
    char formula[120];     // of `all`
} PlanFlow;

enum { PLAN_FLOWS = 16 };

typedef struct {
    PlanFlow flow[PLAN_FLOWS];
    int n;
    size_t all;
} PlanTraffic;

PlanGroup plan_traffic_group(const PlanJob *job, MeshGroup group);
// One layer with experts and one micro-batch: bytes that a rank sends to the others of its ep group in one direction,
// each way: rows (of x C bytes), weights of rows or their gradients, and numbers of rows.
typedef struct {
    double rows, weights, numbers;
} PlanRows;
PlanRows plan_traffic_rows(const PlanJob *job);
// Seconds of one call by the fastest of ring, tree, halving and hierarchical (in the node, between nodes, in the node);
// says which. n_bytes as in collectives_seconds: the longer side of the buffers.
double plan_traffic_seconds(const PlanGroup *where, CommKind kind, double n_bytes, const char **algorithm);
// All of a step. Bytes are those that the trainer's own modules count (tp.h, cp.h, account.h), to the byte, except of
// rows to experts: there they are the mean, with equal loads.
PlanTraffic plan_traffic(const PlanJob *job);

// What goes out of a rank's device memory to its host, [0], and comes in, [1]: of the rank that moves the most, and of
// all ranks together, which is what a run counts, to the byte (with AdamW, for which all state is planned).
typedef struct {
    double rank;
    size_t all;
} PlanMove;
typedef struct {
    PlanMove acts[2], update[2]; // memory.offload_acts; memory.offload
    PlanMove gathers;            // in: of stage 3's gathers from the store
    double chunk[2];             // of acts: one micro-batch of the chunk that has the most
    double bandwidth;            // bytes/s that are reached
} PlanHost;
PlanHost plan_traffic_host(const PlanJob *job);

// ---- plan_time: how long a step of a layout takes, and what follows: utilisation, days, money, lost work.

typedef struct {
    Roofline block, embedding, head;
    // exposed seconds of a block's communication, forward and back, of a micro-batch; a block is the mean of the layers
    double tensor[2], context[2], experts[2];
    double rows[2];               // of that, all seconds that rows travel to experts and back, hidden ones too
    double chunk[ROOFLINE_WAYS];  // of one chunk and micro-batch with its communication: the pipeline's input
    double ends;                  // extra for a micro-batch on the slowest stage: embedding or head
    double send;                  // to the next stage
    double compute;               // the busy time of a stage without communication: m micro-batches
    double pipeline, bubble;      // from first to last action; the part of it that a stage idles
    double grads, weights;        // exposed: gradients after the last backward, weights before the next forward
    double window, hidden;        // the backward that can hide gradients; what was hidden of them and of the weights
    double contention;            // the cost of hidden communication: it slows the matmuls
    double optimizer;
    double acts[2];               // of a chunk and micro-batch, activations to the host, and back: in `chunk` too
    double offload;               // of the update's transfers what nothing hides
    double step;                  // the sum
    double model_flops, hardware_flops; // of a step, on all accelerators: needed; executed
    double mfu, hfu, tokens_second;
} PlanTime;

// The layout must have passed plan_layout_check. simulate: from the schedule's own table; else by its formula.
PlanTime plan_time(const PlanJob *job, bool simulate);

// Failures: one in `mean` seconds. The interval between checkpoints that loses least, and the share of the time that is
// left for training, when a checkpoint stops training for `save` seconds and a restart costs `restart`.
double plan_time_young(double save, double mean); // sqrt(2 save mean), Young 1974
double plan_time_daly(double save, double mean);  // with Daly's higher-order terms, 2006
double plan_time_goodput(double interval, double save, double restart, double mean);
// Seconds between interruptions of n accelerators: LLaMA-3's 419 in 54 days of 16,384 (arXiv 2407.21783, 3.3.4).
double plan_time_between_failures(double n);

// ---- layout_search: tries every way to cut a model over accelerators, and ranks those that fit by predicted time.

// What is searched; the rest stays as the job has it. dp = gpus / (tp cp pp).
typedef struct {
    bool tp, pp, cp, ep, zero, chunks, vees, micro, recompute; // vees: the schedules zb-v, v-half and v-min too
    bool any_memory; // what does not fit is not refused
} LayoutSearchFree;

typedef struct {
    PlanJob job;
    double seconds; // of a step
} LayoutFound;

enum { LAYOUT_SEARCH_BEST = 10 };

typedef struct {
    LayoutFound best[LAYOUT_SEARCH_BEST]; // fastest first
    int n;
    long tried, refused[PLAN_LAYOUT_REASONS]; // refused[PLAN_LAYOUT_FITS]: those that fit
} LayoutSearch;

LayoutSearchFree layout_search_all(void);
// The best by their schedules' formulas (Vs: a short simulation), then ordered by simulating their tables. n 0: none
// fits.
LayoutSearch layout_search(const PlanJob *base, LayoutSearchFree is_free);
// A paragraph: why the best layout has its sizes, what limits them, and what the next different one would cost.
void layout_search_explain(const LayoutSearch *s, FILE *out);
#endif
