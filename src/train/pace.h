// pace: how a run that is given minutes (run.minutes) ends when they are over, whatever the machine does meanwhile.
#ifndef PACE_H
#define PACE_H
#include "train/schedule.h"
#ifdef __cplusplus
extern "C" {
#endif

// From update `step` on the run is planned to have `steps` updates in all.
typedef struct {
    long step, steps;
} PaceMark;

typedef struct {
    double budget;            // seconds; 0: the run has a number of steps, and no pace
    long steps;               // as planned now
    double spent, begun;      // seconds of earlier processes; when this one began to train, by its clock
    double next;              // seconds: the next look at the clock
    double trained;           // seconds of updates since the last look
    long from;                // updates before it
    double all_trained;       // seconds of updates of this process
    double seconds;           // an update
    double end;               // that the last evaluation will take
    int tenth;                // tenths of the budget, or of the recorded steps, that are over
    PaceMark *recorded;       // run.pace: what another run decided
    int n_recorded;
    long eval_tokens;         // that it scored; 0: all
} Pace;

// From now on, by the clock, after `done` updates of the pace->steps that are planned. A run that was over goes on for
// the time that it is given more.
void pace_begin(Pace *pace, double minutes, long done);
// Takes the decisions of the metrics.jsonl at `path` in place of the clock's: its start, its resumptions and its pace
// lines. Dies with a line where it has none.
void pace_read(Pace *pace, const char *path);
void pace_free(Pace *pace);

// What a checkpoint holds of it, and of the schedule that it has moved.
enum { PACE_SECONDS, PACE_STEPS, PACE_DECAY_START, PACE_DECAY_STEPS, PACE_STATE };
void pace_save(const Pace *pace, const Schedule *schedule, double state[PACE_STATE]);
void pace_load(Pace *pace, Schedule *schedule, const double state[PACE_STATE]);

// Seconds of the run so far: evaluations, samples and saves included.
double pace_elapsed(const Pace *pace);

// After update `step` (counted from 1), which took so many seconds: how many updates the run shall have. It looks at
// the clock at each hundredth of the budget, and at each tenth of the updates that were left then.
long pace_steps(Pace *pace, long step, double seconds);

// The number of the tenth of the run that was over since the last call, 0: none.
int pace_tenth(Pace *pace, long step);

#ifdef __cplusplus
}
#endif
#endif
