// monitor: sees a bad batch before the optimizer does: a spike of the loss or of the gradient norm. Layer 5.
//
// A state machine over two numbers a step. It knows nothing of the model; ranks that give it the same numbers (those of
// the global batch) come to the same verdicts.
#ifndef MONITOR_H
#define MONITOR_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum { MONITOR_ACCEPT, MONITOR_SKIP } MonitorAction;
// Why: nothing unusual; too few values yet, or switched off; a number that is not finite; a spike; max_skips spikes
// have been skipped in a row and this is one more, so it is the new level: accepted, and the windows begin with it.
typedef enum {
    MONITOR_USUAL, MONITOR_FILLING, MONITOR_NOT_FINITE, MONITOR_SPIKE, MONITOR_NEW_LEVEL
} MonitorReason;
typedef enum { MONITOR_LOSS, MONITOR_GRAD_NORM, MONITOR_SIGNALS } MonitorSignal;

// The verdict on one step. What stands behind `reason` belongs to the signal that decided: the one with the larger z,
// or the one that is not finite. The gradient norm is judged by its logarithm; mean and std are of that.
typedef struct {
    MonitorAction action;
    MonitorReason reason;
    MonitorSignal signal;
    double value;        // as monitor_judge got it
    double z, mean, std; // z = (value or its log - mean) / std; all 0 while there is no full window
} MonitorVerdict;

typedef struct {
    size_t window;    // accepted values that the next one is compared with
    double skip_z;    // a spike is a z above this; 0: only numbers that are not finite are skipped
    long max_skips;   // spikes skipped in a row
    double *skips;    // so far in a row
    double *past[MONITOR_SIGNALS]; // (window) each, oldest first; NAN: nothing yet
    double *state;    // all of the above that changes, in one piece
} Monitor;

#define MONITOR_STD_FLOOR 1e-4 // least std that is believed, in nats of loss or of log norm

// window >= 2, skip_z >= 0, max_skips >= 0.
Monitor monitor_create(size_t window, double skip_z, long max_skips);
void monitor_free(Monitor *monitor);
// As created: empty windows.
void monitor_reset(Monitor *monitor);
// Judges one step by its loss and its gradient norm before clipping. MONITOR_SKIP: make no update from this batch.
// What is skipped does not enter the windows; what is accepted does. Allocates nothing.
MonitorVerdict monitor_judge(Monitor *monitor, double loss, double grad_norm);
// One line of words for any verdict but MONITOR_USUAL and MONITOR_FILLING: "loss 9.31 is 8.4 standard deviations above
// the mean of the last 128 steps, 3.1 (0.74 each)".
void monitor_explain(const Monitor *monitor, MonitorVerdict verdict, char *text, size_t n_text);
// All that a checkpoint must keep: n doubles, some of them NAN, which may be overwritten in place by saved ones of a
// monitor with the same window.
double *monitor_state(Monitor *monitor, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
