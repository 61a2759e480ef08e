// pipeline_table: the schedule of a pipeline as data: what each stage does, in order.
//
// p stages hold p*v pieces of the model, v chunks each. Piece 0 has the first layers; a micro-batch goes
// through pieces 0 to p*v-1 and its gradient back. Which stage holds which piece is part of the table. Times
// are not: an action begins when its stage is free and its input is there (pipeline_time.h).
#ifndef PIPELINE_TABLE_H
#define PIPELINE_TABLE_H
#include "base/config.h"

#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
    PIPELINE_MAX_STAGES = 64,
    PIPELINE_MAX_MICRO = 1024,
    PIPELINE_MAX_CHUNKS = 16,
    PIPELINE_MAX_PIECES = PIPELINE_MAX_STAGES * PIPELINE_MAX_CHUNKS
};

// F: forward. B: the gradient of the inputs and, in a table that does not split, of the weights. W: the
// gradient of the weights, in a table that splits.
typedef enum { PIPELINE_F, PIPELINE_B, PIPELINE_W, PIPELINE_OPS } PipelineOp;

typedef struct {
    PipelineOp op;
    int micro, chunk;
    int slot; // its number in the stage's order, for messages: rises, need not be dense
} PipelineAction;

typedef struct {
    PipelineSchedule schedule;
    int p, m, v; // stages, micro-batches, chunks a stage
    bool split;  // B and W apart
    PipelineAction *action[PIPELINE_MAX_STAGES];
    int n[PIPELINE_MAX_STAGES], room[PIPELINE_MAX_STAGES];
    int piece[PIPELINE_MAX_STAGES][PIPELINE_MAX_CHUNKS];
} PipelineTable;

// A chunk of a stage; stage -1: none.
typedef struct {
    int stage, chunk;
} PipelinePlace;

// gpipe, 1f1b, interleaved, zb-h1, zb-v, v-half, v-min, user. Find: PIPELINE_SCHEDULES when there is none of that name.
const char *pipeline_table_name(PipelineSchedule schedule);
PipelineSchedule pipeline_table_find(const char *name);
// How many chunks a stage has in it; 0: any number.
int pipeline_table_chunks(PipelineSchedule schedule);
// Whether its second chunks go back up the stages, so that the last piece is on the first stage.
bool pipeline_table_is_vee(PipelineSchedule schedule);
// F, B or W.
const char *pipeline_table_op(PipelineOp op);

// The table of a published schedule. v 0: what the schedule needs (2 for interleaved and in a V, else 1).
// Dies, with the reason, for sizes that the schedule is not defined for. Freed with pipeline_table_free.
PipelineTable *pipeline_table_make(PipelineSchedule schedule, int p, int m, int v);
// No actions; pieces dealt out in a loop: stage s holds s, p+s, 2p+s, ...
PipelineTable *pipeline_table_new(PipelineSchedule schedule, int p, int m, int v, bool split);
// Appends an action to a stage, in the slot after its last.
void pipeline_table_add(PipelineTable *t, int stage, PipelineOp op, int micro, int chunk);
void pipeline_table_free(PipelineTable *t);

// Where a piece lives; stage -1 for a piece that is nowhere.
PipelinePlace pipeline_table_place(const PipelineTable *t, int piece);
// Whose output an action reads, and who reads its output: the same op and micro-batch in the neighbouring
// piece. The same stage: nothing is sent. Stage -1: an end of the model, or W. The first layer's B and the
// last layer's F feed nothing; the last B reads its own F, as every B does.
PipelinePlace pipeline_table_source(const PipelineTable *t, int stage, PipelineAction a);
PipelinePlace pipeline_table_reader(const PipelineTable *t, int stage, PipelineAction a);

// Positions in the stages' orders: index[pipeline_table_key(t, stage, op, micro, chunk)], -1 where there is
// none, the first where there are several. free() it.
int *pipeline_table_index(const PipelineTable *t);
size_t pipeline_table_key(const PipelineTable *t, int stage, PipelineOp op, int micro, int chunk);

// A table in a text file: a line "stage,slot,action,micro,chunk", then one such line an action, in any order;
// slots of a stage need not be dense. A sixth column, piece, where the chunks are not dealt out in a loop.
// Empty lines and lines that begin with # are skipped. Sizes follow from the largest numbers, split from
// whether there is a W. Reading dies with FILE:LINE at the first line that cannot be meant; whether the
// schedule works is for pipeline_check. Writing replaces the file in one step.
PipelineTable *pipeline_table_read(const char *path);
void pipeline_table_write(const PipelineTable *t, const char *path);

#ifdef __cplusplus
}
#endif
#endif
