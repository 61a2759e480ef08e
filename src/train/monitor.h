// monitor: detects a bad batch before the optimizer uses it: a spike of the loss or of the gradient norm.
//
// A state machine over two numbers per step. It does not depend on the model; ranks that give it the same numbers
// (those of the global batch) get the same verdicts. Rules define what is unusual, and the action to take.
#ifndef MONITOR_H
#define MONITOR_H
#include "base/config.h"

#include <stdbool.h>
#include <stddef.h>
#include "comm/comm.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

// Why: nothing unusual; too few values yet, or switched off; a number that is not finite; a spike by its z; max_skips
// spikes have been skipped in a row and this is one more, so it is the new level: accepted, and the windows begin
// with it; a multiple of the window's mean, or of optim.clip; a plateau; asked for (monitor.rollback_at).
typedef enum {
    MONITOR_USUAL, MONITOR_FILLING, MONITOR_NOT_FINITE, MONITOR_SPIKE, MONITOR_NEW_LEVEL, MONITOR_RATIO,
    MONITOR_CLIP, MONITOR_PLATEAU, MONITOR_DRILL
} MonitorReason;
typedef enum { MONITOR_LOSS, MONITOR_GRAD_NORM, MONITOR_SIGNALS } MonitorSignal;

// The verdict on one step. What follows `reason` belongs to the signal that decided: the one with the larger z,
// or the one that is not finite. The gradient norm is judged by its logarithm; mean and std are of that.
typedef struct {
    MonitorAction action;
    MonitorReason reason;
    MonitorSignal signal;
    double value;        // as monitor_judge got it; of a plateau the improvement, 0.01: one percent
    double z, mean, std; // z = (value or its log - mean) / std; all 0 while there is no full window
    MonitorReason level_of; // of a new level: why the values before it were skipped
} MonitorVerdict;

enum { MONITOR_RULES = 8, MONITOR_PROGRESS = 3 };

// What a rule compares: the loss or the gradient norm with its window's mean, the norm with optim.clip, which needs no
// window, or the mean loss of so many steps with that of as many before (a plateau: it is not lower by this part).
typedef enum { MONITOR_OF_LOSS, MONITOR_OF_NORM, MONITOR_OF_CLIP, MONITOR_OF_PLATEAU, MONITOR_KINDS } MonitorKind;
typedef struct {
    MonitorKind kind;
    double limit; // the value is above so many times what it is compared with; of a plateau the part
    MonitorAction action;
} MonitorRule;

// Rules and actions. MONITOR_ACCEPT: off.
typedef struct {
    MonitorAction on_spike, on_not_finite;  // SKIP or ROLLBACK for what is not finite
    MonitorRule rule[MONITOR_RULES];        // (n) beside z
    int n;
    double clip;                            // optim.clip
    long plateau_steps;
} MonitorRules;

typedef struct {
    size_t window;    // accepted values that the next one is compared with
    double skip_z;    // a spike is a z above this; 0: only numbers that are not finite are skipped
    long max_skips;   // spikes skipped in a row
    double *skips;    // so far in a row
    double *past[MONITOR_SIGNALS]; // (window) each, oldest first; NAN: nothing yet
    double *state;    // all of the above that changes, in one piece
    MonitorRules rules;
    double *progress; // (MONITOR_PROGRESS) sum and number of losses since the last comparison; the mean before
} Monitor;

#define MONITOR_STD_FLOOR 1e-4 // least std that is believed, in nats of loss or of log norm

// window >= 2, skip_z >= 0, max_skips >= 0. Spikes by z and what is not finite are skipped; no other rule.
Monitor monitor_create(size_t window, double skip_z, long max_skips);
void monitor_free(Monitor *monitor);
// monitor.rules: "loss:1.5:warn, norm:3:skip, clip:3:warn, plateau:0.01:cool" becomes rules->rule. Dies of other words.
void monitor_parse_rules(const char *text, MonitorRules *rules);
// The rule of a plateau; NULL: none.
const MonitorRule *monitor_plateau(const Monitor *monitor);
// For the steps that follow.
void monitor_set_rules(Monitor *monitor, MonitorRules rules);
// Whether any rule needs the windows.
bool monitor_active(const Monitor *monitor);
// As created: empty windows.
void monitor_reset(Monitor *monitor);
// Judges one step by its loss and its gradient norm before clipping. From MONITOR_SKIP on: make no update from this
// batch. What is skipped does not enter the windows; what is accepted does. Allocates nothing.
MonitorVerdict monitor_judge(Monitor *monitor, double loss, double grad_norm);
// One line of words for any verdict but MONITOR_USUAL and MONITOR_FILLING: "loss 9.31 is 8.4 standard deviations above
// the mean of the last 128 steps, 3.1 (0.74 each)".
void monitor_explain(const Monitor *monitor, MonitorVerdict verdict, char *text, size_t n_text);
// What the guides advise for such a verdict, in one sentence.
const char *monitor_advice(MonitorVerdict verdict);
// All that a checkpoint must keep: n doubles, some of them NAN, which may be overwritten in place by saved ones of a
// monitor with the same window.
double *monitor_state(Monitor *monitor, size_t *n);
// The same for the plateau: MONITOR_PROGRESS doubles.
double *monitor_progress(Monitor *monitor);

#ifdef __cplusplus
}
#endif
#endif
