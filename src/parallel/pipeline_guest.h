// pipeline_guest: a tied head that stands apart from its embedding: its weights and its gradient.
//
// For pipeline.c; who trains calls pipeline_share_guest (pipeline.h). None of it does anything where there is no such
// head.
#ifndef PIPELINE_GUEST_H
#define PIPELINE_GUEST_H
#include "parallel/pipeline.h"
#ifdef __cplusplus
extern "C" {
#endif

// Who is at the other end, and buffers for what travels.
void pipeline_guest_create(Pipeline *pipeline);
// On a deterministic device: before the embedding's backward of a sequence, and after the head's.
void pipeline_guest_receive(Pipeline *pipeline);
void pipeline_guest_send(Pipeline *pipeline);
// At a step's end: all has been sent, or on another device is sent now.
void pipeline_guest_finish(Pipeline *pipeline);

#ifdef __cplusplus
}
#endif
#endif
