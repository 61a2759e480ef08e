// routing: tokens of a model with experts that chose others in A than in B, and what can still be compared after that.
#ifndef ROUTING_H
#define ROUTING_H
#include "dev/check/judge.h"

#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// What became of the choices of a layer.
typedef struct {
    const DiffTensor *choice; // forward.layers.N.choice of A
    size_t layer, tokens, k;
    size_t other, order;      // tokens that chose other experts; that chose the same ones in another order
    size_t far;               // of both: those whose choices are too far from a tie for rounding
    unsigned char *differs;   // (tokens) 0: equal; 1: in their order; 2: other experts
    double *ratio;            // (tokens) how far from a tie, as a part of what rounding may do; 0: equal
} RoutingLayer;

typedef struct {
    RoutingLayer *layer;
    int n;
    size_t other; // of all layers
} Routing;

// Of two dumps, or other programs' files with the same names.
Routing routing_read(const DiffSide *a, const DiffSide *b);
void routing_free(Routing *routing);
// The layer whose choices these are; NULL: it is another tensor.
const RoutingLayer *routing_layer(const Routing *routing, const DiffTensor *a);
// The judgement on choices: out where a token chose otherwise that was not near a tie.
Judgement routing_judge(const RoutingLayer *layer, const DiffTensor *a, const DiffTensor *b);
// NULL, or why a tensor says nothing: it is a sum over tokens of which some chose otherwise.
const char *routing_lacks(const Routing *routing, const DiffTensor *a);
// A copy, to be freed, of t in which 0 stands for what follows from a choice that differs; NULL: there is nothing.
void *routing_masked(const Routing *routing, const DiffTensor *t);

#ifdef __cplusplus
}
#endif
#endif
