// mup: maximal update parametrisation: learning rates that stay right as the model gets wider.
#ifndef MUP_H
#define MUP_H
#include "net/unit.h"
#ifdef __cplusplus
extern "C" {
#endif

// Dies where ModelShape.mup_base is set and cannot work: a tied head, or an optimizer (its name, as in optim.name)
// whose steps the table below is not made for.
void mup_check(const ModelShape *shape, const char *optimizer);
// Rewrites init_std and lr_scale of the table's matrices for the shape's width; nothing where mup_base is 0.
void mup_apply(const ModelShape *shape, Params *params);
// AttnShape.scale: sqrt(mup_base_head) / head_size; 0, which stands for 1 / sqrt(head_size), where muP is off or
// mup_base_head is 0.
float mup_attention_scale(const ModelShape *shape);

#ifdef __cplusplus
}
#endif
#endif
