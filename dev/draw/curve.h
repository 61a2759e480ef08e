// curve: what a loss curve says: means over windows, progress, spikes, plateaus.
#ifndef CURVE_H
#define CURVE_H
#include "record/metrics.h"
#include "train/monitor.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    size_t window;       // steps of a window; 0: a twentieth of the run, 10 at least
    size_t spike_window; // accepted steps with which a step is compared; 0: a window's, 32 at least
    double spike_z;      // standard deviations; 3 is usual
    double plateau;      // a gain, or a loss, below this is a plateau; 0.01 is usual
} CurveSettings;

// One window of train lines.
typedef struct {
    int64_t first, last;    // steps
    double mean, std, norm; // of finite losses (n - 1); mean gradient norm
    double gain;            // (mean of the window before - mean) / mean of the window before; NAN: the first
    int spikes, bad;        // losses or norms that are spikes, or not finite
    bool still, worse;
} CurveWindow;

typedef struct {
    CurveSettings set; // with the chosen windows filled in
    CurveWindow *window;
    size_t n_windows, n_steps;
    MonitorVerdict *spike; // in order of steps; of the first n_spikes
    int64_t *spike_step;
    size_t n_spikes;
    int events[METRICS_EVENTS];
} Curve;

// Reads the train lines of a log. Spikes are those that a monitor with that window and z would have skipped.
Curve curve_read(const MetricsLog *log, CurveSettings set);
void curve_free(Curve *curve);
// The table, the spikes, the plateaus, the run's events.
void curve_print(const Curve *curve, const char *name, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
