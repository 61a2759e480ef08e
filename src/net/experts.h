// experts: the second half of a block whose feed-forward network is many small ones, of which each token uses k.
//
//   z = router(x)   E scores, in fp32        choice, gate = the best k and their weights
//   y = sum over the k chosen, in order, of gate_e down_e(silu(gate_e x) * up_e x)    [ + shared(x) ]
//
// Formulas, conventions and what the balance losses do: doc/experts.md.
#ifndef EXPERTS_H
#define EXPERTS_H
#include "net/linear.h"
#ifdef __cplusplus
extern "C" {
#endif

// What a layer's experts keep from step to step; arrays on the device.
typedef struct ExpertState {
    float *count; // (E + 1) slots of this rank's tokens by expert in this step (loads.h), last those that were dropped
    float *bias;  // (E) added to the scores when experts are chosen; NULL: none
    float *load;  // (E) each expert's share of the slots of the last step, over all ranks; NULL: not used
    double *sum;  // on the host: (EXPERTS_SUMS) over the tokens of backward, in 2^-20; NULL: nobody asks (loads.h)
} ExpertState;

// Tokens; the largest weight of each; E sum f P and lse^2, whose means times their coefficients are the losses.
enum { EXPERTS_TOKENS, EXPERTS_LARGEST, EXPERTS_BALANCE, EXPERTS_Z, EXPERTS_SUMS };

// Slots that an expert takes of T tokens, rounded up; 0: all.
size_t experts_capacity(const ModelExperts *x, size_t T);

// Appends what a block with experts saves beside what every block does; and the scratch of N rows.
void experts_saved(BufferList *list, const Dev *dev, const ModelShape *shape, size_t N);
void experts_scratch(BufferList *list, const Dev *dev, const ModelShape *shape, size_t N);
enum {
    EXPERTS_LOGITS, EXPERTS_CHOICE, EXPERTS_GATE, EXPERTS_PRE, EXPERTS_ACT, EXPERTS_IN, EXPERTS_GATES, EXPERTS_SAVED
};
// Rows for which buffers are made, per token of this rank: its slots or, where ranks divide the experts, the rows that
// may come from all of them.
size_t experts_rows(const ModelExperts *x);

// Forward, backward, and a shared expert's between their calls: where ranks divide the experts, rows are on their way
// after the first call, and after the second. `saved` begins with the experts' own buffers. Between the calls of one
// pass SCRATCH_ROWS, SCRATCH_ROWS_WIDE, SCRATCH_ROUTE and SCRATCH_ORDER must stay.
//
// x (N, C) is the norm's output. They fill `saved`; out (N, C) = the experts' output. wanted: the third call follows.
void experts_forward_begin(const UnitContext *ctx, const Unit *unit, const X *x, void *const *saved,
                           const Batch *batch);
void experts_forward(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch, bool wanted);
void experts_forward_end(const UnitContext *ctx, const Unit *unit, X *out, const Batch *batch);
// After a forward, while the scratch is as that left it, for dumps: each slot's row (N k), -1: dropped; and the rows of
// `down`, (N k, C). On the device.
const int32_t *experts_slot_rows(const Dev *dev, const ModelShape *shape, void *const *scratch, const Batch *batch,
                                 const X **rows);
// Fills the act of `saved` again.
void experts_restore(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch);
// The first call alone reads dout (N, C), the third alone writes dx (N, C): they may be one array.
void experts_backward_begin(const UnitContext *ctx, const Unit *unit, const X *dout, void *const *saved,
                            const Batch *batch);
void experts_backward(const UnitContext *ctx, const Unit *unit, const X *x, void *const *saved, const Batch *batch);
void experts_backward_end(const UnitContext *ctx, const Unit *unit, X *dx, const X *x, void *const *saved,
                          const Batch *batch);
// dx += the gradient of a shared expert's input, in SCRATCH_ROWS, which is lost: dx then goes to the norm's backward.
void experts_add_shared(const UnitContext *ctx, X *dx, size_t N);

#ifdef __cplusplus
}
#endif
#endif
