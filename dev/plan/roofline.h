// roofline: how long each operation of a unit takes on an accelerator: the longer of the times for its arithmetic and
// its bytes.
#ifndef ROOFLINE_H
#define ROOFLINE_H
#include "dev/plan/machines.h"
#include "net/recompute.h"
#include "net/unit.h"
#ifdef __cplusplus
extern "C" {
#endif

// The constants of the model, the same for every machine, model and layout; see roofline.c for where they come from.
typedef struct {
    double sustained;      // matmuls of a training run reach this part of the machine's `reachable`
    double depth;          // a matmul of depth K loses the time that `depth` more columns would take
    double memory;         // part of the memory's bandwidth that loops over activations reach
    double attention[2];   // fused attention's part of `reachable`: forward, backward
    double launch;         // seconds between two kernels
    double inside, between; // part of a link's bandwidth that collectives reach: in the node, over the network
    double contention;     // part of hidden communication's time that is lost all the same: it takes cores and memory
} RooflineConstants;
RooflineConstants roofline_constants(void);

// One rank's part of a micro-batch.
typedef struct {
    const Machine *machine;
    ModelShape part;      // tp_shape
    size_t B, T, cp;      // sequences, their whole length, ranks that share a sequence: N = B T / cp tokens
    size_t x_bytes;
    bool fused_attention; // no T x T matrix in memory
    bool eager;           // loops run as a framework's operations, one by one
    RecomputeMode recompute;
} RooflineCase;

// Directions: F forward, B the gradient of the inputs with recomputation, W the gradient of the weights.
typedef enum { ROOFLINE_F, ROOFLINE_B, ROOFLINE_W, ROOFLINE_WAYS } RooflineWay;

typedef struct {
    const char *name;
    double flops[ROOFLINE_WAYS], bytes[ROOFLINE_WAYS], seconds[ROOFLINE_WAYS];
} RooflineOp;

enum { ROOFLINE_OPS = 16 };

typedef struct {
    RooflineOp op[ROOFLINE_OPS];
    int n;
    double flops, seconds[ROOFLINE_WAYS]; // flops: of matmuls and attention, in all directions
} Roofline;

// out (M, N) += a (M, K) b (K, N), x bytes an element.
double roofline_matmul(const Machine *machine, double M, double N, double K, double x);
// A loop that moves this many bytes.
double roofline_loop(const Machine *machine, double bytes);
Roofline roofline_block(const RooflineCase *c);
Roofline roofline_embedding(const RooflineCase *c);
Roofline roofline_head(const RooflineCase *c); // with the loss
// AdamW on n parameters: fp32 gradients, moments and weights, and a copy of the weights in x bytes.
double roofline_adamw(const Machine *machine, double n, double x);

#ifdef __cplusplus
}
#endif
#endif
