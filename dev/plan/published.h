// published: training runs that papers report, and what the plan predicts for them.
#ifndef PUBLISHED_H
#define PUBLISHED_H
#include "dev/plan/layout_search.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// What the paper reports, and which operations it counts.
typedef enum {
    PUBLISHED_STEP,       // seconds of a step
    PUBLISHED_HOURS,      // accelerator hours of the whole run
    PUBLISHED_WALL,       // hours of the whole run
    PUBLISHED_TFLOPS,     // TFLOP/s an accelerator, needed operations with half of T x T
    PUBLISHED_TFLOPS_ALL, // with all of T x T, and a whole second forward (arXiv 2104.04473, equation 3)
    PUBLISHED_TFLOPS_SQUARE, // with all of T x T
    PUBLISHED_MFU_ALL     // percent of the peak, with all of T x T (arXiv 2205.05198, equation 7)
} PublishedUnit;

// What the paper does not say is searched: the plan takes the fastest.
typedef struct {
    const char *name, *source, *machine, *between; // between: link between nodes; NULL: the machine's
    struct {
        size_t layers, channels, heads, kv_heads, ffn, vocab, T; // kv_heads 0: heads; ffn 0: 4 channels
        bool llama, nemotron; // nemotron: rotary positions, no biases, a head of its own, no gate
        size_t experts, active; // networks of width ffn in each layer, of which a token uses so many; 0: one network
    } model;
    long batch;       // sequences
    int gpus, tp, pp; // tp 0: not said, nor is anything else of the layout
    int chunks;       // 0: not said
    int cp, ep;       // 0: 1
    long micro;       // 0: not said
    int zero;
    bool sp, plain, serial; // plain: no fused attention; serial: gradients not overlapped with backward
    bool eager;             // the code published with it has no fused loops
    bool overlap_tp;        // matmuls in pieces, which hide a tp group's sums
    RecomputeMode recompute;
    double tokens;    // of the whole run, for hours
    PublishedUnit unit;
    double reported;
    bool held_out;    // added after the constants of roofline.c, which were fitted to the other rows
    const char *assumed; // what is not in the source; NULL: nothing
} PublishedRun;

typedef struct {
    PlanJob job;
    PlanTime time;
    double predicted, error; // in the reported unit; predicted / reported - 1
} PublishedGuess;

int published_count(void);
const PublishedRun *published_run(int i);
PublishedGuess published_guess(const PublishedRun *run);
const char *published_unit(PublishedUnit unit);
// The table as markdown, and below it the median and the largest error.
void published_print(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
