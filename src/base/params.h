// params: the parameter table.
//
// One row per tensor. Initialisation, optimizer groups, tensor-parallel slices, ZeRO ranges, checkpoint names
// and memory planning all walk this one table; no index literal ever means a parameter. The rows are laid
// out back to back in one flat fp32 buffer, in table order, which is the order of the units (embedding,
// blocks, head). So a unit is one contiguous range, and so is any run of rows within it (q, k and v are neighbours, so
// one matmul computes all three).
#ifndef PARAMS_H
#define PARAMS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { PARAM_NAME = 64, PARAM_DIMS = 2 };

// The tensor-parallel ranks over which a row's gradient still has to be summed: none; those that share a key/value
// head; all.
typedef enum { PARAM_COMPLETE, PARAM_SUM_NEIGHBOURS, PARAM_SUM_ALL } ParamSum;

typedef struct {
    char name[PARAM_NAME]; // as in Transformers' LLaMA, without the "model." prefix: layers.3.attn.q.weight
    int ndim;
    size_t dim[PARAM_DIMS]; // matrices are (out, in), as nn.Linear keeps them
    size_t n_elems;
    size_t offset;          // elements from the start of the flat buffer
    float init_mean, init_std; // normal(mean, std); std 0 gives the constant
    float lr_scale;         // factor of the learning rate: 1, except under muP
    bool decay;             // weight decay applies (matrices) or not (vectors)
    int unit;               // in this table's list: 0 embedding, then the blocks, last the head; see Params. Where ranks
                            // divide the experts, a block's experts are a unit of their own after it
    int cut;                // axis that tensor parallelism splits: 0 rows (column-parallel), 1 columns, -1 replicated
    // The part that this rank holds (tp.h). In an undivided table: whole = dim, first = 0, owned, PARAM_COMPLETE.
    size_t whole[PARAM_DIMS]; // dim of the whole tensor
    size_t first;             // index along `cut` of this part's first element
    bool owned;               // of the ranks that hold the same elements, this one counts them
    ParamSum sum;             // what this rank's gradient is a part of
    bool expert;              // of an expert that other ranks do not have (expert parallelism)
} Param;

typedef struct {
    Param *row;
    int n_rows, n_units;
    size_t n_elems;
    int ep;                     // ranks that divide the experts, whose replicas are then every ep-th rank; 0, 1: none do
    bool no_embedding, no_head; // a pipeline's stage that has neither of them, or one: all its other units are blocks
} Params;

typedef enum { PARAM_OF_EMBEDDING, PARAM_OF_BLOCK, PARAM_OF_HEAD } ParamPlace;

// Appends a row (returns its index); names are unique within a unit, or it dies.
int params_add(Params *params, int unit, const char *name, int ndim, size_t dim0, size_t dim1,
               float init_mean, float init_std, bool decay, int cut);
// The kind of unit that a row belongs to.
ParamPlace params_place(const Params *params, const Param *row);
// The row of that name, or -1.
int params_find(const Params *params, const char *name);
// Elements [*begin, *end) of the flat buffer that a unit owns.
void params_unit_range(const Params *params, int unit, size_t *begin, size_t *end);
// Whether a unit is a block's experts, which other ranks do not have.
bool params_unit_expert(const Params *params, int unit);
// Index in the whole tensor of element j of a row's part.
size_t params_whole_index(const Param *row, size_t j);
// Fills flat (n_elems) from the table; element i of whole tensor NAME is a function of (seed, NAME, i) alone.
void params_init(const Params *params, uint64_t seed, float *flat);
// Elements [begin, end) of the same, into out (end - begin).
void params_init_range(const Params *params, uint64_t seed, size_t begin, size_t end, float *out);
void params_free(Params *params);

#ifdef __cplusplus
}
#endif
#endif
