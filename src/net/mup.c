// mup: one learning rate for all widths (Yang et al., arXiv 2203.03466).
//
// With r = mup_base / channels, against the model of mup_base channels, for optimizers whose steps have a size of
// their own (Adam's division by sqrt(v), Lion's sign), table 3 of the paper:
//
//                            init std      learning rate     why
//   embeddings, vectors      as they are   as they are       each element meets one input
//   matrices of the blocks   * sqrt(r)     * r               an output adds C inputs: independent at the start,
//                                                            aligned in an update
//   head                     * r           * r               its outputs, the logits, are not followed by a norm
//   scores of attention      q k sqrt(D0) / D                trained q and k are aligned: q k grows with D, not sqrt(D)
//
// So activations and their changes per step keep their size as C grows, and the best learning rate of a small model is
// also that of the wide one. At r = 1 nothing changes: the model of mup_base channels has the usual parameters.
//
// The rule for D: D0 is mup_base_head, the head size of the base model. When width is added as more heads of the same
// size, D0 = D and 1 / sqrt(D) is right: leave mup_base_head at 0. Set it when the number of heads is fixed.
//
// The invariant: muP changes only numbers in the parameter table and in AttnShape; no op and no unit depends on it. The
// fan-in of every matrix of a block is assumed to grow like C: keep ffn / C and heads D / C fixed.
//
// Rejected: output multipliers (the paper's table 8), which would allow a tied head: two more multiplications in the
// head's forward and backward, for models that should rather not be tied. Weight decay: optim.c.
#include "net/unit.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

void mup_check(const ModelShape *s, const char *optimizer)
{
    static const char *const fits[] = {"adamw", "adamw8bit", "lion"};
    if (!s->mup_base) return;
    if (s->tie)
        die("optim.mup_base = %zu: a tied head cannot have a learning rate of its own (try --model.tie=false)",
            s->mup_base);
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++)
        if (!strcmp(optimizer, fits[i])) return;
    die("optim.mup_base = %zu: optim.name = %s scales its steps by another rule (try adamw, adamw8bit or lion)",
        s->mup_base, optimizer);
}

void mup_apply(const ModelShape *s, Params *params)
{
    if (!s->mup_base) return;
    float r = (float)s->mup_base / (float)s->channels;
    for (int i = 0; i < params->n_rows; i++) {
        Param *row = &params->row[i];
        ParamPlace place = params_place(params, row);
        if (row->ndim != 2 || place == PARAM_OF_EMBEDDING) continue;
        row->init_std *= place == PARAM_OF_HEAD ? r : sqrtf(r);
        row->lr_scale = r;
    }
}

float mup_attention_scale(const ModelShape *s)
{
    return s->mup_base && s->mup_base_head ? sqrtf((float)s->mup_base_head) / (float)s->head_size : 0;
}
