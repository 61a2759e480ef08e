// unit: the interface that embedding, blocks and head share.
//
// The network is a list of units. Each reads the residual stream (N, C), writes the stream (N, C), and
// keeps in its own saved buffers what its backward needs. A unit is the granularity of recomputation, sharding,
// pipeline split points, offload and checkpoints; code for one of those needs only this interface.
//
// Weights are found by role, through the parameter table and a base pointer per unit. So they may lie anywhere: in the
// whole flat buffer, or in a gathered copy of one unit.
#ifndef UNIT_H
#define UNIT_H
#include "ops/dev.h"
#include "base/params.h"
#ifdef __cplusplus
extern "C" {
#endif

// A rank's part of a model whose layers are divided over ranks: which part, and the sizes of the whole. All zero: the
// whole model.
typedef struct {
    int rank, size;
    size_t rows;                         // sequence parallelism: ranks that share the rows of the stream; 0, 1: none
    size_t heads, kv_heads, ffn, vocab;  // of the whole
    size_t expert, shared;               // widths of an expert, and of the one that all tokens use
} ModelCut;

// The first of `whole` heads, columns or rows that a rank has: floor(whole rank / size). It has all up to the next
// rank's first.
static inline size_t unit_cut_first(size_t whole, int rank, int size)
{
    return whole * (size_t)rank / (size_t)size;
}

// The experts of a model: the [moe] section of the config. n 0: none.
typedef struct {
    size_t n, k, ffn, shared; // experts of a layer; that a token uses; width of each, of the one that all tokens use
    size_t dense, every;      // the first `dense` layers have none, of the others every `every`-th
    size_t groups, best;      // DevRouter
    bool sigmoid, renorm;
    float scale;
    MoeBalance balance;
    float balance_coef, z_coef, bias_rate;
    double capacity; // slots that an expert takes of a sequence, as a multiple of the even load T k / n; 0: all
    bool by_gate;   // which ones: the largest weights, else the first
    double room;    // rows for which a rank has memory where ranks divide the experts, as a multiple of its tokens' own
                    // slots; 0: for all that can come
    size_t sharers; // context parallelism: ranks that share the tokens of every sequence; 0, 1: none
    bool ordered;   // with them, on a deterministic device: gradients of weights add tokens in the order of the sequence
    int rank, ranks; // expert parallelism: which n / ranks neighbours of the n this rank has; ranks 0, 1: all
} ModelExperts;

// The shape of the model: the [model] section of the config, resolved. In a part, heads, kv_heads, ffn, vocab and the
// widths of experts are those that this rank holds.
typedef struct {
    size_t layers, channels, heads, kv_heads, head_size, ffn, vocab, context;
    NormKind norm;
    float norm_eps;
    Rope rotary; // where rope is
    bool swiglu; // the feed-forward network has a gate; otherwise `act` is its activation
    ActKind act;
    bool rope, bias, tie;
    bool zero_init; // projections into the residual stream start at 0
    QkNorm qk_norm;
    NormPlace norm_place;
    float logit_cap; // logits become cap tanh(z / cap); 0: they stay as they are
    size_t window; // keys that a query of a sliding layer sees, itself the last of them; 0: all
    char window_pattern[CONFIG_TEXT]; // of the layers, repeated: s sliding, f full; "": all slide
    size_t mup_base, mup_base_head; // channels and head size of the base model (mup.c); 0: off, head_size
    ModelExperts experts;
    ModelCut cut;
} ModelShape;

// Whether a layer (0: the first of the network) has experts instead of one feed-forward network.
static inline bool unit_has_experts(const ModelShape *shape, size_t layer)
{
    const ModelExperts *x = &shape->experts;
    return x->n > 0 && layer >= x->dense && (layer - x->dense + 1) % x->every == 0;
}

// ---- windows of attention, by layer (0: the first of the network)

// AttnShape.window of that layer; 0: a query sees all keys before it.
size_t unit_window(const ModelShape *shape, size_t layer);
// Twice the mean number of keys that a query sees in a sequence of T: T, or rounded up W (2 T - W) / T. (Of a key and
// its own query half is counted.)
double unit_window_keys(const ModelShape *shape, size_t layer, size_t T);
// Sampling: with a window, at most so many tokens go through the network at once; and so many tokens' keys a layer
// caches (KvCache).
size_t unit_window_step(const ModelShape *shape);
size_t unit_window_cache(const ModelShape *shape, size_t layer);

// The widest feed-forward network that all tokens of some layer use: the layers' own, or beside experts the shared one.
size_t unit_widest_ffn(const ModelShape *shape);

// Experts of a layer that this rank has.
static inline size_t unit_own_experts(const ModelExperts *x)
{
    return x->ranks > 1 ? x->n / (size_t)x->ranks : x->n;
}

// Ranks that hold the same key/value heads: 1, unless there are more ranks than such heads.
static inline int unit_cut_copies(const ModelShape *part)
{
    return part->cut.size > (int)part->cut.kv_heads ? part->cut.size / (int)part->cut.kv_heads : 1;
}

// Ranks that share the rows of the stream (sequence parallelism).
static inline size_t unit_sharers(const ModelShape *part)
{
    return part->cut.rows > 1 ? part->cut.rows : 1;
}

// ---- muP (mup.c): learning rates that stay right as the model gets wider

// Dies when mup_base is set and cannot work: with a tied head, or with an optimizer (by its optim.name) for which the
// table in mup.c does not hold.
void mup_check(const ModelShape *shape, const char *optimizer);
// Rewrites init_std and lr_scale of the table's matrices for the shape's width; nothing where mup_base is 0.
void mup_apply(const ModelShape *shape, Params *params);
// AttnShape.scale: sqrt(mup_base_head) / head_size; 0, which stands for 1 / sqrt(head_size), where muP is off or
// mup_base_head is 0.
float mup_attention_scale(const ModelShape *shape);

// ---- units

// The tensors of a unit by role; absent ones (no bias, no gate) have row -1. A head that is tied to the embedding of
// another stage has UNIT_TIED: its weights are not in this rank's table.
enum { UNIT_ABSENT = -1, UNIT_TIED = -2 };
typedef enum {
    W_TOKENS, W_POSITIONS,                           // embedding
    W_ATTN_NORM, B_ATTN_NORM, W_QKV, B_QKV,          // block; QKV: the row of q, followed by k and v
    W_Q_NORM, W_K_NORM, W_ATTN_OUT, B_ATTN_OUT,
    W_FFN_NORM, B_FFN_NORM, W_FFN_IN, B_FFN_IN,      // FFN_IN: gate followed by up, or up alone
    W_FFN_DOWN, B_FFN_DOWN,                          // in a block with experts: of the expert that all tokens use
    W_ROUTER, W_EXPERTS_IN, W_EXPERTS_DOWN,          // the rows of expert 0: gate (followed by up), down
    W_FINAL_NORM, B_FINAL_NORM, W_HEAD,              // head; W_HEAD is W_TOKENS' row when tied
    UNIT_ROLES
} UnitRole;

// Whether the norms of a block are of what its branches read, of what they give (model.norm_place), and which are.
static inline bool unit_norms_inputs(const ModelShape *s)
{
    return s->norm_place == NORM_OF_INPUT;
}
static inline bool unit_norms_outputs(const ModelShape *s)
{
    return s->norm_place == NORM_OF_OUTPUT;
}
static inline bool unit_norm_of_output(const ModelShape *s, UnitRole norm)
{
    return unit_norms_outputs(s) && norm != W_FINAL_NORM;
}

// The description of each matrix of a unit: one row of a small table (UnitKind.matrices), which linear.c uses.
// FROM_STREAM: reads all channels of the stream, after a norm; its outputs are independent heads or columns. TO_STREAM:
// reads those, and its output is added to the stream. TO_LOGITS: the head's.
typedef enum { MATRIX_FROM_STREAM, MATRIX_TO_STREAM, MATRIX_TO_LOGITS } MatrixWay;
enum { UNIT_MAX_MATRICES = 4, UNIT_MAX_SEGMENTS = 3 };
typedef struct {
    UnitRole weight, bias; // bias UNIT_ROLES: none
    MatrixWay way;
    int input;             // which buffer of `saved` is its input; -1: none keeps it
    const char *dout;      // the name of a buffer that keeps the gradient of its output
    size_t in, out;        // elements of a row of its input, of its output
    size_t grain;          // number of heads or columns in the output (FROM_STREAM) or the input (TO_STREAM)
    size_t n_segments, segment[UNIT_MAX_SEGMENTS]; // FROM_STREAM: widths of the outputs side by side: q, k, v; gate, up
} UnitMatrix;

// One micro-batch. Arrays are on the device, N = B*T rows. Where the vocabulary is cut, tokens and targets count from
// this rank's first one: a token < 0 and a target >= shape->vocab are another rank's.
typedef struct {
    size_t B, T, N;
    const int32_t *token, *pos, *target; // target < 0: not counted
    float *loss;                         // (N) nats, written by the head
    float scale;                         // of the gradient: 1 / valid tokens of the global batch
    bool train;                          // a backward follows
    const int32_t *first;                // (N) index in its row at which a token's document starts; NULL: 0
    float dropout;                       // in training; 0: none. The masks follow from:
    uint64_t seed, sample;               // sample: global index of the first of the B sequences
    uint32_t step;
    float each; // weight of a sequence in losses that are means over sequences: 1 / sequences of the global batch,
                // times the loss scale (experts.h); 0: none of them
} Batch;

// Keys and values of one sequence's tokens so far, for sampling: for each layer (rows, kv_heads, head_size), of all
// tokens, or with a window of those from `start` on (model_cache_advance). rows: `room`, or unit_window_cache if less.
typedef struct {
    X *k, *v;
    size_t room;          // for so many tokens
    size_t length, start; // tokens so far
} KvCache;

enum { UNIT_MAX_SAVED = 24, UNIT_MAX_SCRATCH = 12 };

// BUFFER_STAT: fp32 numbers of a row. BUFFER_ACT: activations, in the storage type. BUFFER_CHEAP: activations
// that the unit's `restore` recomputes from the others, without a matmul or attention. BUFFER_ATTENTION: those of the
// attention branch, which it recomputes on request from the unit's input.
typedef enum { BUFFER_STAT, BUFFER_ACT, BUFFER_CHEAP, BUFFER_ATTENTION } BufferKind;

// Names, kinds and sizes (bytes for N rows) of n buffers, which the planner counts and the model allocates; one of 0
// bytes is not there. shared: the buffer holds N / shape->cut.rows rows.
typedef struct {
    const char *name[UNIT_MAX_SAVED];
    BufferKind kind[UNIT_MAX_SAVED];
    size_t n_bytes[UNIT_MAX_SAVED];
    bool shared[UNIT_MAX_SAVED];
    int n;
} BufferList;

typedef struct Unit Unit;
typedef struct Linear Linear; // linear.h

// Why a unit runs: forward, forward again within the backward pass (recomputation), backward, or for the gradients of
// weights that backward has put off (linear_backward_later), which reads no weights.
typedef enum { PASS_FORWARD, PASS_AGAIN, PASS_BACKWARD, PASS_LATER } UnitPass;

// Called before and after every unit, so that weights and gradients can be sent to other ranks (ddp.h, zero.h).
// `before`: the unit is about to read its weights (in PASS_LATER only where
// recompute_restores) and, in PASS_BACKWARD and PASS_LATER, to add to
// its gradients; for a tied head also those of the embedding. `after`: it has. NULL: no hook.
typedef struct {
    void *self;
    void (*before)(void *self, int unit, UnitPass pass);
    void (*after)(void *self, int unit, UnitPass pass);
    // A second hook, which sees what was computed (dump.h). After a forward (PASS_FORWARD or PASS_AGAIN) `stream` is
    // the unit's output (NULL when it has none), and `saved` its saved buffers; after a backward `stream` is the
    // gradient of its input.
    void *watcher;
    void (*saw)(void *watcher, const Unit *unit, UnitPass pass, const X *stream, void *const *saved,
                const Batch *batch);
} UnitHooks;

// The arguments that all units share.
typedef struct {
    Dev *dev;
    const ModelShape *shape;
    const Params *params;
    X *const *weight;      // by unit of the table: where its weights start
    float *const *grad;    // by unit of the table: where its gradients start
    const size_t *begin;   // by unit of the table: its first element in the flat order
    void *const *scratch;  // buffers of unit_scratch, shared by all units, undefined between calls
    KvCache *const *cache; // sampling: of each of the batch's B sequences; else NULL
    const UnitHooks *hooks; // NULL: none
    const Linear *linear;  // the table for matrices, norms, attention, embedding and loss
    void *const *later;    // buffers for deferred weight gradients (linear_backward_later); NULL: not deferred
    struct ExpertState *experts; // by unit (experts.h); NULL: no block has experts
    size_t most_rows;     // of a batch
    const float *table;   // of the embedding, where the lookup reads fp32 (Dev.embed_fp32); else NULL
    const X *tied_weight; // of UNIT_TIED: a copy of the embedding
    float *tied_grad;     // where the gradient of a tied W_HEAD is added; NULL: to the embedding's
} UnitContext;

typedef struct {
    const char *name;
    // Its matrices, at most UNIT_MAX_MATRICES; returns how many. NULL: it has none.
    int (*matrices)(const ModelShape *shape, UnitMatrix *list);
    // What forward keeps for backward, for B sequences of T tokens. The stream below is (N / rows, C) where
    // sequence parallelism shares its rows.
    BufferList (*saved)(const Dev *dev, const ModelShape *shape, size_t B, size_t T);
    // out (N, C) = unit(inp (N, C)); fills `saved`. The embedding ignores inp, the head ignores out. out NULL:
    // only `saved` is wanted (recomputation).
    void (*forward)(const UnitContext *ctx, const Unit *unit, X *out, const X *inp, void *const *saved,
                    const Batch *batch);
    // stream (N, C): the gradient of out on entry, of inp on return. Adds to the unit's gradients.
    void (*backward)(const UnitContext *ctx, const Unit *unit, X *stream, const X *inp, void *const *saved,
                     const Batch *batch);
    // Recomputes the BUFFER_CHEAP ones of `saved`, and with `attention` the BUFFER_ATTENTION ones, to the bit, from inp
    // and the others. NULL: it has none.
    void (*restore)(const UnitContext *ctx, const Unit *unit, const X *inp, void *const *saved, const Batch *batch,
                    bool attention);
} UnitKind;

struct Unit {
    const UnitKind *kind;
    int index; // in this rank's list
    int home;  // in its parameter table: the unit of its tensors
    bool apart; // those of its experts are there unit home + 1 (expert parallelism)
    int place; // in the whole network: 0 embedding, 1 + i block i, last the head
    int row[UNIT_ROLES];
    size_t before[2]; // of a block: this rank's blocks before it that see all keys, and those with a window
};

// unit_block: a layer with one feed-forward network; unit_experts: one with experts.
extern const UnitKind unit_embedding, unit_block, unit_experts, unit_head;
// Of a layer. Each saved buffer of a block in its largest size, of the kinds of block that a shape has; the bytes of
// one row.
const UnitKind *unit_kind_of(const ModelShape *shape, size_t layer);
BufferList unit_widest_saved(const Dev *dev, const ModelShape *shape);
static inline bool unit_is_block(const UnitKind *kind)
{
    return kind == &unit_block || kind == &unit_experts;
}

// The row at which a block begins in a cache for `room` tokens, and how many rows it has.
size_t unit_cache_first(const ModelShape *shape, const Unit *block, size_t room);
size_t unit_cache_rows(const ModelShape *shape, const Unit *block, size_t room);

// Scratch that any unit may use; the indices below.
enum {
    SCRATCH_NORM, SCRATCH_QKV, SCRATCH_ATTN, SCRATCH_WIDE, SCRATCH_LOGITS, SCRATCH_LOSS, SCRATCH_NORM_PARTS,
    SCRATCH_ROWS, SCRATCH_ROWS_WIDE, SCRATCH_ROUTE, SCRATCH_ORDER, SCRATCH_WHOLE
};
BufferList unit_scratch(const Dev *dev, const ModelShape *shape, size_t N);
// Rows of logits that the head makes at a time.
size_t unit_head_chunk(const ModelShape *shape, size_t N);

// The tensor of a role; NULL where the unit has none.
X *unit_weight(const UnitContext *ctx, const Unit *unit, UnitRole role);
// Where its gradient is added (Linear.grad).
float *unit_grad(const UnitContext *ctx, const Unit *unit, UnitRole role);
// The unit's forward with the hooks' calls around it.
void unit_forward(const UnitContext *ctx, const Unit *unit, UnitPass pass, X *out, const X *inp, void *const *saved,
                  const Batch *batch);
// Call the hooks, if there are any.
void unit_before(const UnitContext *ctx, const Unit *unit, UnitPass pass);
void unit_after(const UnitContext *ctx, const Unit *unit, UnitPass pass);
void unit_saw(const UnitContext *ctx, const Unit *unit, UnitPass pass, const X *stream, void *const *saved,
              const Batch *batch);
// Appends a buffer of n_elems elements of `elem_bytes`.
void unit_list_add(BufferList *list, const char *name, BufferKind kind, size_t n_elems, size_t elem_bytes);
// The same for a buffer whose rows sequence parallelism shares.
void unit_list_add_shared(BufferList *list, const char *name, BufferKind kind, size_t n_elems, size_t elem_bytes);
// The dropout of one site in this batch: `site` names it within the unit, `each` is the number of elements of a
// sequence (attention: 1, its index counts sequences). Off in evaluation. It depends on the unit's place, not on
// where the unit runs, so forward, backward and recomputation get the same mask on every layout.
Dropout unit_dropout(const Unit *unit, const Batch *batch, const char *site, size_t each);

#ifdef __cplusplus
}
#endif
#endif
