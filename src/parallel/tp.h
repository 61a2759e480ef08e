// tp: tensor and sequence parallelism: one layer's matrices cut over a group of ranks.
//
// The units are written once, for any group: they call the functions below, which do nothing, or the plain operation,
// where there is no group.
#ifndef TP_H
#define TP_H
#include "comm/comm.h"
#include "net/unit.h"
#ifdef __cplusplus
extern "C" {
#endif

struct Tp {
    Comm *group;      // the ranks that hold a layer between them: 2 or more
    Comm *neighbours; // those of them that hold the same key/value heads; NULL: every head is on one rank
    float *stage;     // tp_stage_floats: gradients of a unit that are not complete yet
};

// ---- who has what

// First of `whole` things that this rank has: floor(whole rank / size). It has all up to the next rank's first.
static inline size_t tp_first(size_t whole, int rank, int size)
{
    return whole * (size_t)rank / (size_t)size;
}
// Ranks that hold the same key/value heads: 1, but for a group that is larger than the number of these heads.
int tp_copies(const ModelShape *part);
// Dies, with one sentence, where a shape cannot be cut over `size` ranks; sequence: with rows of T tokens shared too.
void tp_check(const ModelShape *whole, int size, bool sequence, size_t T);
// What one rank has of a shape. size 1: the shape itself. To be given to model_describe.
ModelShape tp_shape(const ModelShape *whole, int rank, int size, bool sequence);
// The groups for a part. Collective over `group`, which must have two ranks or more, or in a plan has no ops.
Tp tp_create(Comm *group, const ModelShape *part);
size_t tp_stage_floats(const Params *params);
// Tokens and targets (n, on the host) as Batch wants them: counted from this rank's first. Either may be NULL.
void tp_localise(const ModelShape *part, int32_t *token, int32_t *target, size_t n);

// ---- inside a unit. N: rows of the micro-batch. A "whole" array has N rows; this rank's share of the stream is N /
// cut.rows of them, and its place in a whole array begins at tp_own.

size_t tp_rows(const UnitContext *ctx, size_t N);
X *tp_own(const UnitContext *ctx, X *whole, size_t N);
// unit_dropout over this rank's rows of the stream: the mask is a function of a row's place in the data.
Dropout tp_dropout(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site);
// f and g of Shoeybi et al. (arXiv 1909.08053), in place on whole (N, C). Before a column-parallel matmul f does
// nothing forward, and adds the ranks' gradients on the way back; behind a row-parallel one g adds the ranks' sums
// forward, and does nothing on the way back. With sequence parallelism (Korthikanti et al., arXiv 2205.05198)
// nothing becomes an all-gather of the ranks' rows, and the sum a reduce-scatter that leaves this rank's rows at
// tp_own.
void tp_f_forward(const UnitContext *ctx, X *x, size_t N);
void tp_f_backward(const UnitContext *ctx, X *dx, size_t N);
void tp_g_forward(const UnitContext *ctx, X *sum, size_t N);
void tp_g_backward(const UnitContext *ctx, X *dout, size_t N);

// out (N, OC) = this rank's part of inp weight^T + bias, to be added over the ranks by g; the bias joins rank 0's.
// inp (N, K), K = `units` things of one size on this rank, of which the whole has `whole_units`.
void tp_row_parallel(const UnitContext *ctx, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t K,
                     size_t OC, size_t whole_units, int site);
// dinp (N, C) = this rank's part of dout weight, to be added over the ranks by f. The columns of dout are `n`
// segments of these widths, each cut as `whole_units` things are.
void tp_column_backward_input(const UnitContext *ctx, X *dinp, const X *dout, const X *weight, size_t N, size_t C,
                              const size_t *width, size_t n, size_t whole_units, int site);
// The same where dout are the gradients of this rank's logits.
void tp_head_backward_input(const UnitContext *ctx, X *dinp, const X *dlogits, const X *weight, size_t N, int site);
// Softmax and cross-entropy of `rows` rows of logits; see dev.h. loss is that of the whole vocabulary on all ranks.
void tp_xent(const UnitContext *ctx, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t rows,
             float scale);
// dev->norm_backward of `rows` rows; on a deterministic device in parts of rows.
void tp_norm_backward(const UnitContext *ctx, const Unit *unit, UnitRole w_role, UnitRole b_role, X *dinp,
                      const X *dout, const X *dresid, const X *inp, const float *mean, const float *rstd, size_t rows);
// Where the gradient of row i waits for tp_finish_grads; NULL: it is complete where it is added.
float *tp_stage(const UnitContext *ctx, int row);
// Ends a unit's backward: adds, over the ranks that share them, the gradients of rows that are not complete.
void tp_finish_grads(const UnitContext *ctx, const Unit *unit);

// ---- around the model

// One row of logits (whole vocabulary) from each rank's part of it; both on the host, part in its place in row.
void tp_gather_logits(const Tp *tp, const ModelShape *part, float *row);

#ifdef __cplusplus
}
#endif
#endif
