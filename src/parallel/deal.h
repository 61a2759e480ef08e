// deal: the sequences of a step over ranks, and the sum of their gradients, such that no bit depends on how many ranks
// there are.
#ifndef DEAL_H
#define DEAL_H
#include "parallel/zero.h"
#ifdef __cplusplus
extern "C" {
#endif

// The number within the step of sequence i of the n that each of `ranks` ranks has: i + n * rank where n is a power of
// two.
size_t deal_sequence(size_t i, size_t n, int rank, int ranks);
// The additions that join the ranks' sums: first those of all ranks for the highest bit of n, then for the next one,
// numbered so. Addition j is: sum pair[j][0] += sum pair[j][1]; sum 0 is the total. Returns how many, one less than
// there are sums.
size_t deal_additions(size_t n, int ranks, size_t (*pair)[2]);

typedef struct {
    Model *model;
    ZeroCut cut;          // the elements that this rank adds up
    Comm *group, *experts, *control;
    bool whole, joined;   // whole: every rank gets all sums. joined: the gradients of this step are
    float *room;          // the ranks' parts of what this rank adds up of one unit; n_room floats
    size_t n_room;
} Deal;

// For model_step_finish of a deterministic device. The groups: as in ZeroGroups, NULL in a plan. whole: as without
// ZeRO; else a rank gets the sums of its own elements. Takes the cut.
Deal *deal_create(Model *model, ZeroCut cut, ZeroGroups group, bool whole);
void deal_free(Deal *deal);
// Whether model_step_finish has added the ranks' gradients since the last call, so that no other sum over them is due.
bool deal_joined(Deal *deal);

#ifdef __cplusplus
}
#endif
#endif
