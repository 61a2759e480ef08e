// stop: a signal asks the program to end, and it does so where it can: after a step, or a batch of an evaluation.
#ifndef STOP_H
#define STOP_H
#include <signal.h>
#ifdef __cplusplus
extern "C" {
#endif

// Not 0 once a signal has come. stop_unread: nobody reads the output any more (... | head), which asks too.
extern volatile sig_atomic_t stop_asked, stop_unread;

// From now on a broken pipe asks; stop_listen: all other signals too that would end the program by themselves, but for
// those that are ignored (nohup), timers that somebody catches (a profiler), and those of faults. A second signal ends
// the program at once, unless it comes within a second of the first: who stops a job often signals all its processes
// (systemd, some SLURM installations), and then a rank gets the same request from there, from the launcher and from its
// supervisor. Timers and the limit of processor time, which come again by themselves, are no second signal.
void stop_listen_to_pipes(void);
void stop_listen(void);
// Signals end the program, or are ignored, as when it was started: libraries may have taken them.
void stop_as_started(void);

#ifdef __cplusplus
}
#endif
#endif
