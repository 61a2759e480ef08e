// lr: the learning rate of each update.
#ifndef LR_H
#define LR_H

typedef enum { LR_COSINE, LR_WSD, LR_INVSQRT } LrKind;
typedef struct {
    LrKind kind;
    double peak, least; // the largest rate; the one at the end (not read by LR_INVSQRT). 0 <= least <= peak
    long warmup;        // W: updates of linear warm-up, may be 0
    long decay_start;   // LR_WSD alone: the first update of the decay; one within the warm-up counts as W
    long end;           // E: from this update on the rate is least (not read by LR_INVSQRT); may be W or less
} LrSchedule;

// The rate of update `step`, counted from 0; step may be larger than 2^31 and after the end. A function of its
// arguments alone: it is called for any step, in any order.
double learning_rate(const LrSchedule *s, long step);
#endif
