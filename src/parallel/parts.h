// parts: a rank's part of a model whose layers (tp) or sequences (cp) several ranks share, for model_allocate_with.
//
// The invariant: the network depends on ranks only through ModelParts (model.h) and the table of entries that it calls
// (linear.h). Both are filled here, for tp, for cp and for both together.
#ifndef PARTS_H
#define PARTS_H
#include "net/model.h"
#include "parallel/cp.h"
#include "parallel/ep.h"
#include "parallel/tp.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Comm *ep;      // ranks that have the experts between them; NULL or of one rank: none
    Comm *tp;      // tensor-parallel group; NULL or of one rank: none
    bool sequence; // with it: the ranks share the rows of the stream
    // Context-parallel group: its ranks share the tokens of every sequence. NULL or of one rank: none. cp_set.blocks
    // (cp_blocks) gives attention one order of sums on any number of ranks, one among them.
    Comm *cp;
    CpSettings cp_set;
} PartsSettings;

struct Parts {
    PartsSettings set; // groups of one rank: NULL
    ModelShape part;   // of every layer
    Tp tp;
    Cp *cp;                    // NULL: none
    Ep *ep;                    // NULL: none
    Linear under_tp, under_cp; // the tables as they were before
};

// For ModelOptions.parts, of one model; model_free frees it.
ModelParts parts_make(PartsSettings settings);

#ifdef __cplusplus
}
#endif
#endif
