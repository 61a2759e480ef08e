// weights: how other formats name and lay out the tensors of a model: one table for reading and writing.
//
// Their tensor is made of one of ours, or of several that stand one after another along their outputs: q, k, v; or, in
// GGUF, one of the three matrices of every expert of a layer. It is kept as ours, (out, in), or transposed; and where
// their rotary embedding turns neighbours, element 2j + s of a head is our element s D/2 + j, for ours turns the halves
// of a head against each other. (doc/models.md)
#ifndef WEIGHTS_H
#define WEIGHTS_H
#include "formats/formats.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    WEIGHTS_GPT2, WEIGHTS_LLAMA, WEIGHTS_MIXTRAL,              // Transformers' classes, and those like LLaMA's
    WEIGHTS_GGUF_GPT2, WEIGHTS_GGUF_LLAMA, WEIGHTS_GGUF_QWEN,  // llama.cpp's
    WEIGHTS_STYLES
} WeightsStyle;

// A tensor of theirs.
typedef struct {
    char name[96];
    int ndim;         // 3: a matrix of each expert
    size_t dim[2];    // as it is kept there: the last one is contiguous; dim[1] = 1 of a vector; ndim 3: of all experts
    const Param *first; // ours: the first of `parts` rows of the table, and the distance to the next
    int parts, step;
    bool transposed;
    size_t pairs;     // D of a matrix or bias whose heads have neighbours turned; 0: none
} Weight;

typedef struct {
    Weight *weight;
    int n;
} Weights;

// Every tensor of a whole model, in the order of its units; a tied head has none. In `style` there must be a name for
// each (weights_family).
Weights weights_table(const Model *m, WeightsStyle style);
void weights_free(Weights *w);
const Weight *weights_find(const Weights *w, const char *name); // NULL: none
size_t weights_elems(const Weight *w);
void weights_shape(const Weight *w, size_t shape[3]); // (ndim), the last one contiguous; 1 from ndim on

// theirs (dim[0], dim[1]), fp32, from the model's weights.
void weights_gather(const Model *m, const Weight *w, float *theirs);

// Where tensors are read from.
typedef struct {
    const char *path; // for messages
    // Fills theirs; false: there is none of that name. Dies when it has another shape or type.
    bool (*read)(void *self, const Weight *w, float *theirs);
    void *self;
} WeightsSource;

// Fills a whole model. Dies on a tensor that is missing. A kind of bias that no block has is 0: our blocks have a bias
// on all of their matrices or on none, others only on some.
void weights_load(Model *m, WeightsStyle style, WeightsSource source);

// One of GPT-2's or LLaMA's families: what the classes of other programs can express.
typedef enum {
    WEIGHTS_IS_GPT2, WEIGHTS_IS_LLAMA, WEIGHTS_IS_QWEN3, WEIGHTS_IS_MIXTRAL, WEIGHTS_IS_QWEN3_MOE, WEIGHTS_IS_OLMOE,
    WEIGHTS_IS_OLMO2, WEIGHTS_FAMILIES
} WeightsFamily;
// Dies, naming `path`, when a model is of none of them.
WeightsFamily weights_family(const ModelShape *shape, const char *path);
WeightsStyle weights_hf_style(const ModelShape *shape); // of the class of Transformers for that shape

#ifdef __cplusplus
}
#endif
#endif
