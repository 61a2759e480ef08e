// linear: the interface through which units call matrices, norms, attention, the embedding and the loss.
//
// It separates the network from the code that runs it on several ranks. A unit calls the linear_ functions below. They
// look up the tensors and call an entry of the table `Linear` in the context. linear_plain fills every entry with the
// op of the device, so in one process linear_forward calls dev->matmul_forward, with nothing in between.
//
// These replace some of the entries, and call the previous entries for the rest:
//
//   linear_keep_order   a deterministic device: sums over columns, rows and the vocabulary in one canonical order
//   tp.c                every matrix is divided over ranks, and so may be the rows of the residual stream
//   cp.c                the tokens of a sequence are divided over ranks
//
// The invariant: an entry gives the whole model's result on every rank that calls it. So a unit is written once, for
// one process, and depends neither on ranks nor on an order of sums. "All rows" are the N rows of the micro-batch;
// "rows of the stream" are the linear_rows of them that this rank has, which is N unless ranks share the stream.
#ifndef LINEAR_H
#define LINEAR_H
#include "net/unit.h"
#ifdef __cplusplus
extern "C" {
#endif

// A matrix of a unit, found by linear_matrix; a norm of a unit.
typedef struct {
    UnitMatrix is;
    const X *weight, *bias; // (out, in), (out); bias NULL: none
    float *dweight, *dbias;
    int site; // dev.h
} LinearMatrix;
typedef struct {
    const X *weight, *bias;
    float *dweight, *dbias;
    bool of_output; // of what a branch gives: all its arrays are rows of the stream
} LinearNorm;

struct Linear {
    void *parts; // state of the code that replaced entries
    int blocks;  // AttnShape.blocks of attention over whole sequences; 0: sums in any order

    // ---- matrices
    // out (N, out) = inp (N, in) weight^T + bias, all rows. TO_STREAM: complete at linear_own, the rows of the stream.
    void (*forward)(const UnitContext *ctx, const LinearMatrix *m, X *out, const X *inp, size_t N);
    // dinp (N, in) = dout (N, out) weight, all rows. Not TO_STREAM: norm_backward completes it.
    void (*backward_input)(const UnitContext *ctx, const LinearMatrix *m, X *dinp, const X *dout, size_t N);
    // dweight += dout^T inp, dbias += column sums of dout
    void (*backward_weight)(const UnitContext *ctx, const LinearMatrix *m, const X *dout, const X *inp, size_t N);

    // ---- norms: norm_forward and norm_backward of dev.h over C channels
    // a, b, sum, mean, rstd: rows of the stream; out: all rows.
    void (*norm_forward)(const UnitContext *ctx, const LinearNorm *norm, X *out, X *sum, float *mean, float *rstd,
                         const X *a, const X *b, size_t N);
    // dout: all rows, as backward_input wrote it (it is overwritten); the others: rows of the stream.
    void (*norm_backward)(const UnitContext *ctx, const LinearNorm *norm, X *dinp, X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, size_t N);
    // head_norm_backward of dev.h, in place: dinp is dout.
    void (*head_norm_backward)(const UnitContext *ctx, const LinearNorm *norm, X *dinp, const X *inp,
                               const float *rstd, size_t N, size_t heads, size_t D, size_t ld);

    // ---- attention: attention_forward and attention_backward of dev.h, of this process's heads of whole sequences
    void (*attention_forward)(const UnitContext *ctx, X *out, float *lse, const X *q, const X *k, const X *v,
                              AttnShape shape);
    void (*attention_backward)(const UnitContext *ctx, X *dq, X *dk, X *dv, const X *dout, const X *out,
                               const float *lse, const X *q, const X *k, const X *v, AttnShape shape);

    // ---- the stream
    // out: rows of the stream = tokens' and positions' embeddings.
    void (*embed_forward)(const UnitContext *ctx, X *out, const X *wte, const X *wpe, const Batch *batch);
    // dout: all rows.
    void (*embed_backward)(const UnitContext *ctx, float *dwte, float *dwpe, const X *dout, const Batch *batch);
    // The dropout mask of rows of the stream: a function of their place in the data.
    Dropout (*dropout)(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site);
    // x (N, C), of which the rows of the stream are filled at linear_own: all rows.
    void (*gather)(const UnitContext *ctx, X *x, size_t N);
    // Gathers `rows` rows of the stream, of n_bytes each: returns all rows, in `to` or, when this rank has all, `own`.
    const void *(*gather_bytes)(const UnitContext *ctx, void *to, const void *own, size_t rows, size_t n_bytes);

    // ---- experts that ranks divide (ep.h); NULL: this one has all
    // offset (E + 1): of this rank's rows, sorted by expert. Every rank's rows for this one's experts are as many as
    // there (sources own + 1) says, as DevExperts has it. Returns how many in all; dies where they are more than `room`.
    size_t (*experts_meet)(const UnitContext *ctx, int32_t *there, const int32_t *offset, size_t room);
    // That number again.
    size_t (*experts_came)(const UnitContext *ctx);
    // Starts to send the rows, n_bytes each, to the ranks of their experts, or back; experts_wait: all are there.
    void (*experts_send)(const UnitContext *ctx, void *to, const void *from, size_t n_bytes, bool back);
    void (*experts_wait)(const UnitContext *ctx);

    // ---- experts where ranks share the tokens of every sequence (cp.h); NULL: they do not
    // choice and gate (B, T, k) of whole sequences, in the order of positions, from this rank's.
    void (*slots_whole)(const UnitContext *ctx, int32_t *choice, float *gate, const int32_t *own_choice,
                        const float *own_gate, const Batch *batch);
    // The inverse: this rank's of row (B, T, k).
    void (*slots_own)(const UnitContext *ctx, int32_t *own_row, const int32_t *row, const Batch *batch);
    // NULL, or on a deterministic device: on the first rank `to` becomes all rows of a sequence, in order, n_bytes each,
    // of which this rank has N; returns whether this is the first.
    bool (*rows_whole)(const UnitContext *ctx, void *to, const void *rows, size_t N, size_t n_bytes);

    // ---- experts, of each of which this rank may have some columns only (experts.c)
    // x (N, C), this rank's part of a sum: complete at linear_own, the rows of the stream.
    void (*complete)(const UnitContext *ctx, X *x, size_t N);
    // n numbers, this rank's parts of sums: complete.
    void (*complete_floats)(const UnitContext *ctx, float *x, size_t n);

    // ---- the head: logits and loss, a few rows at a time
    // softmax_xent of dev.h with the shape's cap, over the whole vocabulary; logits (rows, V) are those of this rank's
    // part of it.
    void (*xent)(const UnitContext *ctx, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t rows,
                 float scale);
    // The number of rows, `chunk` at most, that the head processes together from row n0 of N on.
    size_t (*head_rows)(const UnitContext *ctx, size_t n0, size_t N, size_t chunk);
    // dweight += dlogits^T inp of rows [n0, n0 + n); dlogits is overwritten.
    void (*head_backward_weight)(const UnitContext *ctx, const LinearMatrix *m, X *dlogits, const X *inp, size_t n0,
                                 size_t n, size_t chunk, size_t N);
    // Sum of the losses of B sequences of T tokens, in double, in order.
    double (*sum_losses)(const UnitContext *ctx, const float *loss, size_t B, size_t T);

    // ---- gradients
    // Where the gradient of a row of the table is added.
    float *(*grad)(const UnitContext *ctx, int row);
    // Ends a unit's backward: from here on its gradients are complete.
    void (*end_backward)(const UnitContext *ctx, const Unit *unit);
};

extern const Linear linear_plain;
// Replaces the entries whose sums a deterministic device computes in parts, in an order that is the same on any number
// of ranks.
void linear_keep_order(Linear *linear);

// ---- what units call

LinearMatrix linear_matrix(const UnitContext *ctx, const Unit *unit, UnitRole weight);
LinearNorm linear_norm(const UnitContext *ctx, const Unit *unit, UnitRole weight);
// These call the entry of the same name for a unit's matrix or norm.
void linear_forward(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *out, const X *inp, size_t N);
void linear_backward_input(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *dinp, const X *dout, size_t N);
// The matrix' input is the buffer of `saved` that the unit's table of matrices names. When weight gradients are
// deferred (ctx->later), dout is kept and nothing is added yet.
void linear_backward_weight(const UnitContext *ctx, const Unit *unit, UnitRole weight, const X *dout,
                            void *const *saved, size_t N);
// Where to write the gradient of a matrix's output: `scratch`, or the buffer that keeps it for linear_backward_later.
X *linear_dout(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *scratch);
void linear_norm_forward(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *out, X *sum, float *mean,
                         float *rstd, const X *a, const X *b, size_t N);
void linear_norm_backward(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *dinp, X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, size_t N);

// The number of rows of the stream that this rank has of N; and where they begin in all rows (N, C).
size_t linear_rows(const UnitContext *ctx, size_t N);
X *linear_own(const UnitContext *ctx, X *whole, size_t N);
// The addend of a branch ("attn", "ffn", "embed") to the stream: the rows of the stream of `sum` (N, C), after dropout.
X *linear_branch(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site, X *sum);
// Its backward: the gradient of a branch in all rows, from that of the stream. In `whole`, or the stream itself.
const X *linear_branch_backward(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site,
                                X *whole, X *stream);

// ---- deferred weight gradients, for zero-bubble pipelines (arXiv 2401.10241). backward computes only the gradient of
// a unit's input; linear_backward_later computes those of the matrices of the unit's table. The bits are the same,
// since nothing else adds to them.

// One buffer for each matrix that can wait, for B sequences of T tokens; the bits of `saved` that it will read.
BufferList linear_later(const UnitKind *kind, const Dev *dev, const ModelShape *shape, size_t N);
unsigned linear_later_reads(const UnitKind *kind, const ModelShape *shape);
// Whether linear_backward_later makes the gradient of that row of the unit.
bool linear_is_later(const Unit *unit, const ModelShape *shape, int row);
void linear_backward_later(const UnitContext *ctx, const Unit *unit, void *const *saved, void *const *later, size_t N);

// ---- sums in parts, for code that replaces entries, and for experts.c

enum { LINEAR_PARTS = 8 };
// The parts, at most LINEAR_PARTS, in which a deterministic device adds terms that ranks divide by `grain` heads or
// columns of this one's: part i has the i-th piece of every segment. range: room for LINEAR_PARTS n_segments.
DevParts linear_cut(const UnitContext *ctx, DevRange *range, const size_t *width, size_t n_segments, size_t grain);

// dev->norm_backward of `rows` rows in n parts, whose gradients of weight and bias are added in a tree.
void linear_norm_parts(const UnitContext *ctx, const LinearNorm *norm, X *dinp, const X *dout, const X *dresid,
                       const X *inp, const float *mean, const float *rstd, size_t rows, size_t n);
// The number of parts on one of `size` ranks, when `whole` heads, columns or rows are divided.
size_t linear_parts(size_t whole, size_t size);
// The loss in three steps, over ranks in between: combine(ctx, x, n, true) makes x the ranks' maxima, false their sums;
// NULL: there is one rank.
void linear_xent_steps(const UnitContext *ctx, float *loss, X *dlogits, const X *logits, const int32_t *target,
                       size_t rows, float scale, void (*combine)(const UnitContext *ctx, float *x, size_t n, bool max));

#ifdef __cplusplus
}
#endif
#endif
