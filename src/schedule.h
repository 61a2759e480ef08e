// schedule: the learning rate of each step. Layer 5.
#ifndef SCHEDULE_H
#define SCHEDULE_H
#ifdef __cplusplus
extern "C" {
#endif

typedef enum { SCHEDULE_COSINE, SCHEDULE_CONSTANT } ScheduleKind;

typedef struct {
    ScheduleKind kind;
    double lr, min_lr; // peak and final
    long warmup, decay_steps; // steps of linear warm-up; step at which the decay has ended
} Schedule;

// Learning rate of update `step`, counted from 0. Warm-up: lr (step + 1) / warmup. Cosine (Loshchilov &
// Hutter, arXiv 1608.03983, without restarts): min_lr + (lr - min_lr) (1 + cos(pi p)) / 2, where p runs
// from 0 at the end of the warm-up to 1 at decay_steps, and stays 1 after it.
double schedule_lr(const Schedule *schedule, long step);

#ifdef __cplusplus
}
#endif
#endif
