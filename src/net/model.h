// model: the list of units, their memory, training (forward and backward) and inference.
//
// A rank may have a part of the model: a part of every layer or of every sequence (ModelParts), or some of the layers
// (a stage of a pipeline).
#ifndef MODEL_H
#define MODEL_H
#include "base/mem.h"
#include "net/linear.h"
#include "net/recompute.h"
#ifdef __cplusplus
extern "C" {
#endif

// Which of the flat arrays hold only this rank's shard of n elements (zero.h). All false: none.
typedef struct {
    bool weights, x_weights, grads;
    // `weights`, `x_weights` are not allocated, because they are in a store (offload.h). In fp32 both or none.
    bool stored, x_stored;
    size_t n;
} ModelShard;

typedef struct Model Model;

// How several ranks share every layer or every sequence of a model (parallel/parts.h fills it). All zero: one process
// has the whole model. A function that is NULL is not called.
typedef struct {
    void *self;
    size_t sharers; // ranks that share the tokens of every sequence; 0, 1: not shared
    struct Comm *neighbours; // ranks with the same key/value heads, once there is a model; NULL: none
    // This rank's part of a shape, for sequences of T tokens; dies when the shape cannot be divided.
    ModelShape (*shape)(void *self, const ModelShape *whole, size_t T);
    // Called when the table of parameters is complete: allocates buffers, and replaces entries of model->linear.
    void (*fill)(void *self, Model *model);
    // Dies where sequences of T tokens cannot be shared.
    void (*check_tokens)(void *self, size_t T);
    // Host arrays: own (B, T / sharers) = this rank's tokens of whole (B, T). Then: the position of its token i.
    void (*deal)(void *self, int32_t *own, const int32_t *whole, size_t B, size_t T);
    size_t (*position)(void *self, size_t T, size_t i);
    // Tokens and targets (n, on the host) counted from this rank's first of the vocabulary (Batch); either may be NULL.
    void (*localise)(void *self, int32_t *token, int32_t *target, size_t n);
    // A row of logits, whole vocabulary on the host, in which this rank has filled its own.
    void (*gather_logits)(void *self, float *row);
    void (*release)(void *self); // with the model
} ModelParts;

enum { MODEL_MAX_CHUNKS = 16 };

// A run of layers on one rank, and the number of micro-batches in flight in it.
typedef struct {
    size_t first, layers; // of the whole model's
    bool embedding, head; // before them, after them
    int active;           // micro-batches with forward begun and backward not ended, at most
    int held;             // the same until linear_backward_later has ended
    int late;             // with backward begun and linear_backward_later not ended; 0: backward does all
} ModelPiece;

// The part of the model on a stage of a pipeline (pipeline_stage makes it).
typedef struct {
    int n_chunks;
    ModelPiece chunk[MODEL_MAX_CHUNKS];
} ModelStage;

// Options of a model beside its shape. All zero: all activations are kept, one document per row.
typedef struct {
    RecomputePolicy recompute;
    bool documents;   // model_set_documents will be called (else its first call makes the buffer)
    size_t sequences; // of a step, at most: sizes the tree of gradients of a deterministic device; 0: B
    ModelShard shard;
    ModelParts parts; // of a model that ranks share; `shape` is that of the whole model
    const ModelStage *stage; // NULL: all layers
} ModelOptions;

enum { MODEL_MAX_LEVELS = 40 };

// A deterministic device's sums over sequences, of some ranges of the gradients: see model_run.c.
typedef struct {
    size_t (*range)[2]; // begin, end
    int n_ranges;
    size_t n_sequences; // of this step so far
    double part_loss[MODEL_MAX_LEVELS];
} ModelTree;

// A run of units with its buffers. A whole model is one chunk with one slot.
typedef struct {
    ModelPiece piece;
    int first, n_units; // in the list of units
    Activations *slot;
    RecomputeLate *late;
    int n_slots, n_late;
    ModelTree tree[2]; // of the gradients that backward adds, and of those that linear_backward_later adds
} ModelChunk;

struct Model {
    ModelShape shape; // of the whole model
    ModelShape local; // this rank's part of it: the shape of the table and of the units
    ModelParts parts;
    Linear linear;    // what units call
    Params params;
    Unit *unit; // n_units: layers + 2; on a stage, the units that it has
    int n_units;      // in this list; params.n_units: in the table
    Dev *dev;
    Mem *mem;
    size_t max_batch, max_tokens; // B and T of the buffers; this rank has T / sharers of T

    float *weights, *grads;       // flat, params.n_elems each, or the shard; grads NULL when made for inference
    X *x_weights;                 // what the units read: weights in the storage type (fp32: weights itself)
    float *table;                 // what the lookup reads (Dev.embed_fp32): the first unit's weights; else NULL
    X **unit_weight;              // by unit of the table, into x_weights; of a shard: set when it is gathered (zero.h)
    float **unit_grad;            // (sources, units of the table)
    // Expert parallelism on a deterministic device: each of its ranks' tokens have a tree of experts' gradients of their
    // own. Those of source s > 0 are in grads from element n_elems + (s - 1) source_elems on. Else 1 and 0.
    size_t sources, source_elems;
    ModelShard shard;
    size_t *unit_begin;           // by unit of the table
    UnitHooks hooks;              // called around each unit, for ddp.h and zero.h; none at first
    X *tied_weight;              // of a head that is tied to another stage's embedding, or NULL
    float *tied_grad;            // its gradient; on a deterministic device also of one tied to another chunk's
    ModelChunk *chunk;
    int n_chunks;
    RecomputePool pool;
    Activations acts;             // streams and saved buffers: those of chunk 0, slot 0
    X *dstream;                   // (N, C); NULL of a stage
    void *scratch[UNIT_MAX_SCRATCH];
    struct ExpertState *experts;   // by unit; NULL: no block has experts
    int32_t *token, *pos, *target; // (N)
    float *loss;                   // (N)
    int32_t *first;                // (N) starts of documents; NULL until they are set
    int32_t *own_token, *own_target; // (N) on the host: results of parts.localise; NULL for a whole model
    int32_t *own_place;            // (N) on the host: positions, starts of documents; NULL for whole sequences
    Batch batch;                   // this rank's part of the arguments of the model_set_ functions
    double step_loss;              // sum since model_step_finish

    float *part[MODEL_MAX_LEVELS]; // deterministic device: gradients of 2^level sequences
    int n_levels;
};

// The parameter table and the units of a shape, whole or a rank's part (ModelParts.shape). Costs no memory but the
// table.
void model_describe(const ModelShape *shape, Params *params, Unit **unit);
// The same for a stage: units and rows in the order of the layers. NULL: the whole model.
void model_describe_stage(const ModelShape *shape, const ModelStage *stage, Params *params, Unit **unit);
// Where a chunk's units are in that list, and how many.
int model_chunk_units(const ModelStage *stage, int chunk, int *n_units);
// Floating-point operations of one training token in a sequence of T: 6 per matmul parameter (2 forward,
// 4 backward) and 6 H D T a layer for causal attention (half of the T x T products, which is what is
// needed; with a window unit_window_keys for T).
double model_flops_per_token(const ModelShape *shape, size_t T);
// Number of parameters that take part in a token's matmuls (all matrices but the embeddings; a tied head counts; of
// experts those that a token uses); and those of one layer (0: the first of the network).
double model_matmul_params(const ModelShape *shape);
double model_layer_params(const ModelShape *shape, size_t layer);

// Buffers for micro-batches of up to B sequences of T tokens, zeroed. train: with gradients. It does not touch them, so
// with an allocator that only counts (plan.h) it needs no memory.
Model *model_allocate(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, bool train);
Model *model_allocate_with(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, bool train,
                           ModelOptions options);
// As model_allocate, with the weights initialised from seed.
Model *model_create(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, uint64_t seed, bool train);
// Ranks that share the tokens of a sequence; rows that this one has of the largest micro-batch.
static inline size_t model_sharers(const Model *model)
{
    return model->parts.sharers > 1 ? model->parts.sharers : 1;
}
static inline size_t model_max_rows(const Model *model)
{
    return model->max_batch * model->max_tokens / model_sharers(model);
}
// The activations of one micro-batch of B sequences of T tokens: the streams between units, and the saved buffers of
// each. The pool must not move.
Activations model_activations(RecomputePool *pool, int slot, const Unit *unit, int n_units, const Dev *dev,
                              const ModelShape *shape, Mem *mem, size_t B, size_t T);
void model_activations_free(Activations *acts);
// Row `row` of a stream (max_rows, C), of which ranks may share the rows; NULL stays NULL.
X *model_stream_at(const Activations *acts, X *stream, size_t row);
// The number of rows, of N of a micro-batch, in buffer i of unit u; and the unit's saved buffers from row `row` on.
size_t model_rows_held(const Activations *acts, int u, int i, size_t N);
void model_saved_at(const Activations *acts, int u, size_t row, void **saved);
// Elements of `weights` and `grads` that this rank has.
size_t model_weights_held(const Model *model);
size_t model_grads_held(const Model *model);
// Call it after `weights` were written by other code than the optimizer: updates x_weights. Both whole, or both shards.
void model_weights_changed(Model *model);
void model_free(Model *model);

// Host arrays of B*T tokens, positions (NULL: 0..T-1 in every row) and targets.
void model_set_batch(Model *model, const int32_t *token, const int32_t *pos, const int32_t *target, size_t B, size_t T);
// After model_set_batch, for this batch: host array of B*T indices within the row at which the token's document
// starts (non-decreasing along a row). A token sees its own document only.
void model_set_documents(Model *model, const int32_t *first);
// For the batches that follow: dropout p (0: off) of embedding, attention and branches, in training. The masks are a
// function of seed, step and of the global index of the sequence: `sample` is that of the batch's first one.
void model_set_dropout(Model *model, float p, uint64_t seed, uint32_t step, uint64_t sample);
// The weight of each sequence in losses that are means over sequences (Batch.each): those that balance experts.
void model_set_each(Model *model, float each);
// Sum of token losses in nats over targets >= 0 of the current batch; adds the gradient of (scale * that
// sum) to grads.
double model_forward_backward(Model *model, float scale);
// Ends the micro-batches of a step: from here on grads holds the whole gradient (a deterministic device keeps it in
// parts until then). Returns the sum of their losses. In deterministic mode neither depends on how the step was split
// into micro-batches.
double model_step_finish(Model *model);
// The same sum, without gradients. Per-token losses stay in model->loss.
double model_evaluate(Model *model);
// The sum of N token losses from row n0 on, in double, in order.
double model_sum_losses(const Model *model, size_t n0, size_t N);
// Ranks that share a model all make the same calls with the same arguments (whole arrays). Ranks that share its layers
// get the same losses and logits. Ranks that share sequences each get the sum of losses of their own tokens; on a
// deterministic device the first gets the sum of all, in one order, and the others 0. `loss` has the losses of a rank's
// own tokens in the order of parts.position. Every rank samples by itself.
// Logits (V) on the host after the last of n more tokens of one sequence whose keys and values are in cache.
void model_next_logits(Model *model, KvCache *cache, const int32_t *token, size_t n, float *logits);
// The same for one more token of each of B sequences, at most FEW_ROWS (dev.h) and at most the rows of the model's
// buffers: logits (B, V). With the fp32 and bf16 numbers of the CPU they have the bits that each sequence gets alone.
void model_next_logits_each(Model *model, KvCache *const *cache, const int32_t *token, size_t B, float *logits);
// A cache of the whole context; of at most `room` tokens. It lives as long as the model's memory, or until it is freed.
KvCache model_cache_create(Model *model);
KvCache model_cache_for(Model *model, size_t room);
void model_cache_free(Model *model, KvCache *cache);
// All logits (N, V) of the current batch, on the host; with shared sequences those of this rank's tokens. For tests.
void model_logits(Model *model, float *logits);

// ---- by chunk, for pipelines (pipeline.h). The batch is that of the last model_set_ calls; out, stream and the slots'
// streams are (rows of this rank, C). Each call does the work of a function above for one chunk.

// Rows of a stream for B whole sequences of T tokens.
size_t model_stream_rows(const Model *model, size_t B, size_t T);
// The buffer for a chunk's input in a slot; NULL when the chunk begins with the embedding.
X *model_chunk_input(Model *model, int chunk, int slot);
// out NULL where the chunk ends with the head. Returns the sum of losses when not in training, 0 without the head.
double model_chunk_forward(Model *model, int chunk, int slot, X *out, bool train);
// The number of parts in which backward takes a batch: its sequences on a deterministic device, else 1.
size_t model_parts(const Model *model);
// stream: of the whole batch; the gradient of out on entry, of the input on return, in the part's rows. late: the set
// that keeps what model_chunk_weight needs, -1 where the chunk has none. Returns the part's sum of losses.
double model_chunk_backward(Model *model, int chunk, int slot, int late, X *stream, float scale, size_t part);
void model_chunk_weight(Model *model, int chunk, int slot, int late, float scale);
// The next `rows` tokens (B, rows) of each of B sequences, as model_next_logits has them, at most model_next_rows of
// them; after all chunks model_cache_advance counts them. Then, where the head is, the logits (n, V) of the last n rows.
size_t model_next_rows(const Model *model);
void model_next_forward(Model *model, int chunk, KvCache *const *cache, size_t B, const int32_t *token, size_t rows,
                        X *out);
void model_cache_advance(const Model *model, KvCache *cache, size_t rows);
void model_last_logits(Model *model, size_t rows, size_t n, float *logits);

#ifdef __cplusplus
}
#endif
#endif
