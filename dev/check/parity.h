// parity: the layouts that must agree with one rank, as a list.
//
// Pure functions: what a layout is called, what it asks of build/train, and why one that cannot be is left out.
#ifndef PARITY_H
#define PARITY_H
#include "base/config.h"

#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// Axes of a layout. The value 0 of each is that of one rank that does nothing special.
typedef enum {
    PARITY_DP, PARITY_TP, PARITY_CP, PARITY_PP, PARITY_ZERO, PARITY_RECOMPUTE, PARITY_MICRO, PARITY_DATA, PARITY_DTYPE,
    PARITY_AXES
} ParityAxis;

enum { PARITY_RANKS = 8, PARITY_OPTIONS = 16 };

typedef struct {
    bool llama;                // else GPT
    bool fast;                 // else numerics.deterministic
    int value[PARITY_AXES];    // by axis, an index of parity_values
} ParityLayout;

// All layouts, each once: every value of every axis alone, all pairs of them, and `random` seeded combinations that are
// neither. quick: a selection of them. free() it.
ParityLayout *parity_layouts(bool quick, int *n);
int parity_values(ParityAxis axis);
// Whether a layout can be: NULL, or why not.
const char *parity_refused(const ParityLayout *layout);
int parity_ranks(const ParityLayout *layout);
// "llama dp2 tp2+sp zero1", without what is usual; "one rank" for none.
void parity_name(const ParityLayout *layout, char *name, size_t n_name);
// The same without what several ranks are for: what it is compared with.
ParityLayout parity_reference(const ParityLayout *layout);
// Whether gradients must be equal to the last bit.
bool parity_exact(const ParityLayout *layout);
// Options of build/train; as many as it returns, into room of PARITY_OPTIONS.
int parity_options(const ParityLayout *layout, const char *option[PARITY_OPTIONS]);

#ifdef __cplusplus
}
#endif
#endif
