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
} ExpertState;

// Slots that an expert takes of T tokens, rounded up; 0: all.
size_t experts_capacity(const ModelExperts *x, size_t T);

// Appends what a block with experts saves beside what every block does; and the scratch of N rows.
void experts_saved(BufferList *list, const Dev *dev, const ModelShape *shape, size_t N);
void experts_scratch(BufferList *list, const Dev *dev, const ModelShape *shape, size_t N);
enum { EXPERTS_LOGITS, EXPERTS_CHOICE, EXPERTS_GATE, EXPERTS_PRE, EXPERTS_ACT, EXPERTS_SAVED };

// `saved` begins with the experts' own buffers. x (N, C) is the norm's output.
// Fills `saved`; out (N, C) = the experts' output; NULL: not wanted.
void experts_forward(const UnitContext *ctx, const Unit *unit, X *out, const X *x, void *const *saved,
                     const Batch *batch);
// Fills the act of `saved` again.
void experts_restore(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch);
// Backward in two calls, because dx may be the array of dout: the first reads dout (N, C), the second writes dx (N, C).
// Between them SCRATCH_ROWS_WIDE, SCRATCH_ROUTE and SCRATCH_ORDER must stay.
void experts_backward_down(const UnitContext *ctx, const Unit *unit, const X *dout, void *const *saved,
                           const Batch *batch);
void experts_backward_in(const UnitContext *ctx, const Unit *unit, X *dx, const X *x, void *const *saved,
                         const Batch *batch);

#ifdef __cplusplus
}
#endif
#endif
