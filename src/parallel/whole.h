// whole: updates that need whole tensors, where tensor parallelism has cut them: each tensor is brought together on one
// rank of the group, its owner, which updates it and gives everyone's part back.
#ifndef WHOLE_H
#define WHOLE_H
#include "comm/comm.h"
#include "train/optim.h"
#ifdef __cplusplus
extern "C" {
#endif

// Which rank has which row, and in which order they come: a function of a table, the ranges and the size of the group.
// All ranks of the group find the same.
typedef struct {
    int size;
    int *owner; // (n_rows) as OptimWhole has it
    int *round; // (n_rounds, size): the row that each rank works on; -1: none
    int *first; // (n_ranges + 1): rounds of each range
} WholePlan;

// What needs it: an optimizer's update, or (agc) adaptive clipping by that unit.
typedef struct {
    const OptimKind *kind;
    bool agc, tied;
    ClipUnit unit;
} WholeNeed;

// range NULL: one of everything. No row needs it: all NULL.
WholePlan whole_plan(const Params *params, WholeNeed need, const OptimRange *range, int n_ranges, int size);
void whole_plan_free(WholePlan *plan);
// Bytes that the whole group sends in one visit of every range.
size_t whole_plan_bytes(const WholePlan *plan, const Params *params);

typedef struct Whole Whole;
// For a model whose tensors `group` shares; in a plan the group has no ops.
Whole *whole_create(Model *model, Comm *group, OptimSettings set, const OptimRange *range, int n_ranges);
void whole_free(Whole *whole); // NULL is allowed
OptimWhole whole_of_update(Whole *whole);
OptimWhole whole_of_agc(Whole *whole);

#ifdef __cplusplus
}
#endif
#endif
