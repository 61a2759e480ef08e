// plan_time: how long a step of a layout takes, and what follows: utilisation, days, money, lost work.
#ifndef PLAN_TIME_H
#define PLAN_TIME_H
#include "dev/plan/plan_layout.h"
#include "dev/plan/plan_traffic.h"
#include "dev/plan/roofline.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
