// model: the list of units, their memory, and the two things one does with them. Layer 3.
#ifndef MODEL_H
#define MODEL_H
#include "mem.h"
#include "unit.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    ModelShape shape;
    Params params;
    Unit *unit; // n_units = layers + 2
    int n_units;
    Dev *dev;
    Mem *mem;
    size_t max_batch, max_tokens; // B and T the buffers were made for

    float *weights, *grads;       // flat, params.n_elems each; grads NULL when made for inference
    X **unit_weight;              // by unit, into weights (fp32 storage: X is the weight itself)
    float **unit_grad;
    size_t *unit_begin;
    X **stream;                   // by unit: its input (N, C); stream[0] is not used
    X *dstream;                   // (N, C)
    void *(*saved)[UNIT_MAX_SAVED];
    void *scratch[UNIT_MAX_SCRATCH];
    int32_t *token, *pos, *target; // (N)
    float *loss;                   // (N)
    Batch batch;                   // the sizes that model_set_batch was given
} Model;

// The parameter table and the units of a shape. Layout independent; costs no memory but the table.
void model_describe(const ModelShape *shape, Params *params, Unit **unit);
// Floating-point operations of one training token in a sequence of T: 6 per matmul parameter (2 forward,
// 4 backward) and 6 layers H D T for causal attention (half of the T x T products, which is what is
// needed).
double model_flops_per_token(const ModelShape *shape, size_t T);
// Number of parameters that take part in matmuls (all matrices but the embeddings; a tied head counts).
double model_matmul_params(const ModelShape *shape);

// Buffers for micro-batches of up to B sequences of T tokens, zeroed. train: with gradients. Touches
// none of them, so with a door that only counts (plan.h) it costs nothing.
Model *model_allocate(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, bool train);
// The same, with the weights initialised from seed.
Model *model_create(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, uint64_t seed, bool train);
void model_free(Model *model);

// Host arrays of B*T tokens, positions (NULL: 0..T-1 in every row) and targets.
void model_set_batch(Model *model, const int32_t *token, const int32_t *pos, const int32_t *target, size_t B, size_t T);
// Sum of token losses in nats over targets >= 0 of the current batch; adds the gradient of (scale * that
// sum) to grads.
double model_forward_backward(Model *model, float scale);
// The same sum, without gradients. Per-token losses stay in model->loss.
double model_evaluate(Model *model);
// Logits (V) on the host after the last of n more tokens of one sequence whose keys and values are in cache.
void model_next_logits(Model *model, KvCache *cache, const int32_t *token, size_t n, float *logits);
KvCache model_cache_create(Model *model);
// All logits (N, V) of the current batch, on the host. For tests.
void model_logits(Model *model, float *logits);

#ifdef __cplusplus
}
#endif
#endif
