// pipeline: runs a stage of a model by a schedule's table: receive, forward or backward, send.
//
// Every stage is a rank of the group `pp`; its number is its rank there. All stages make the same calls with the same
// arrays, and each uses its part. tp, sp and cp are inside the units; no code here depends on them.
#ifndef PIPELINE_H
#define PIPELINE_H
#include "comm/comm.h"
#include "net/model.h"
#include "eval/sample.h"
#include "parallel/pipeline_table.h"
#include "parallel/pipeline_time.h"
#include "eval/eval.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- which stage has which layers

// Layers of one of `pieces` pieces, the first of which is *first: as many as of any other, or one more for those in the
// middle, since the ends have embedding and head beside.
size_t pipeline_layers(size_t layers, int pieces, int piece, size_t *first);
// A stage's part of a model. counts: layers of each piece, at least one, or NULL: pipeline_layers.
ModelStage pipeline_stage(const PipelineTable *table, int stage, size_t layers, const size_t *counts);
// The table of a schedule (name, or a file NAME.csv) for p stages, m micro-batches and v chunks (0: what the schedule
// needs), proved. Dies, with one sentence, where it does not hold or the model has fewer layers than pieces, and where
// the mode is deterministic and a stage takes the micro-batches of a chunk in another order than 0, 1, 2 ...
PipelineTable *pipeline_choose(const char *schedule, int p, int m, int v, size_t layers, bool deterministic);
// Bytes tagged MEM_ACTS of a stage's model, from the table alone, for micro-batches of B sequences of T tokens (with
// cp: that this rank has). *in_flight, unless NULL: the most that micro-batches occupy at once, all chunks together
// (pipeline_check_peak).
size_t pipeline_bytes(const PipelineTable *table, int stage, const size_t *counts, const ModelShape *part,
                      const Dev *dev, RecomputePolicy policy, size_t B, size_t T, size_t *in_flight);

// ---- running

// A micro-batch: what the model_set_ functions take. pos and first may be NULL. loss: NULL, or where the stage with the
// head writes the losses of its tokens.
typedef struct {
    const int32_t *token, *pos, *target, *first;
    size_t B, T;
    float dropout;
    uint64_t seed, sample;
    uint32_t step;
    float each;
    float *loss;
} PipelineMicro;

// A message, and, where times are made up, the sender's clock after it.
typedef struct {
    CommRequest data, time;
    double sent; // the sender's clock
} PipelineMessage;

// What runs through a chunk. Arrays by slot.
typedef struct {
    PipelinePlace source, reader; // of forward; stage -1: an end of the model
    int n_slots, n_late;
    int *micro;                   // which has the slot; -1: none
    X **out, **grad;              // (rows, C) output of forward; gradient of it, then of the input. NULL: not needed
    PipelineMessage *in_f, *out_f, *in_b, *out_b;
    int *late; // by late set: which micro-batch has it; -1: none
} PipelineFlow;

typedef struct {
    Model *model;
    const PipelineTable *table;
    int stage;
    Comm *pp, *ends;
    PipelineFlow flow[PIPELINE_MAX_CHUNKS];
    // A tied head apart from the embedding: whether this stage has the embedding, the head; the other one's rank in
    // ends, -1: it is this stage.
    bool tied_embedding, tied_head;
    int tied_peer;
    float *tied_buffer;    // its gradient on the way: (n_tied, vocab, C)
    CommRequest *tied_request;
    int n_tied;
    size_t tied_sent, tied_taken;
    const UnitHooks *hooks; // the model's, while a step runs
    // The last step's actions in time: see pipeline_record.
    bool recording;
    const PipelineTimes *times;
    double clock, zero;
    double *span; // (actions, 2) start, end
    int in_flight, most_in_flight; // (micro-batch, chunk) with F begun and B, or W, not ended
} Pipeline;

// The model was allocated with pipeline_stage(table, stage, ...) in its options. ends: the group of the first and of
// the last piece's stage, in the order of stages; needed where the head is tied and they differ, else NULL. pp and ends
// may be NULL in a plan. The table stays the caller's.
Pipeline *pipeline_create(Model *model, const PipelineTable *table, int stage, Comm *pp, Comm *ends);
void pipeline_free(Pipeline *pipeline);
// From the next step on this table, of the same schedule and sizes but with fewer micro-batches, or the first one
// again. It needs no buffer that the first one does not need.
void pipeline_use(Pipeline *pipeline, const PipelineTable *table);
// Forward and backward of the table's m micro-batches; then model->grads has this stage's gradient. As
// model_forward_backward of each and model_step_finish: returns the sum of losses, 0 on stages without the head.
double pipeline_step(Pipeline *pipeline, const PipelineMicro *micro, float scale);
// Sum of the losses of n micro-batches, without gradients; 0 on stages without the head.
double pipeline_evaluate(Pipeline *pipeline, const PipelineMicro *micro, int n);
// As model_next_logits; the logits come to all stages.
void pipeline_next_logits(Pipeline *pipeline, KvCache *cache, const int32_t *token, size_t n, float *logits);
// Both for evaluation (eval.h) and sampling (sample.h); all zero for NULL.
EvalForward pipeline_forward(Pipeline *pipeline);
SampleForward pipeline_sampling(Pipeline *pipeline);
// After the weights have changed (made, loaded, updated): a tied head on another stage gets the embedding's.
void pipeline_share_tied(Pipeline *pipeline);

// From the next step on the actions' times are recorded. times NULL: real times, from a barrier at the start of the
// step. Else no clock is read: an action has the duration in `times`, and begins when the one before it has ended and
// its input has arrived, by the times in the messages. So the result is exact, and depends only on the order of
// messages.
void pipeline_record(Pipeline *pipeline, const PipelineTimes *times);
// The last step's, of all stages. Collective over pp. Freed with pipeline_time_free.
PipelineTimeline pipeline_timeline(Pipeline *pipeline);

#ifdef __cplusplus
}
#endif
#endif
