// supervisor: the parent process of each rank, which reports how the rank ended, and ends it when it hangs.
//
// The rank writes what it does into a Heartbeat in shared memory; the supervisor only reads. A beat costs a few stores.
#ifndef SUPERVISOR_H
#define SUPERVISOR_H
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// HUNG: the exit status of a rank that was ended for it. PATH: characters of a file's name
enum { SUPERVISOR_NAME = 16, SUPERVISOR_HUNG = 124, SUPERVISOR_PATH = 640 };

// The state of a rank. Written by the rank; `stopped` and `stale` by its supervisor.
typedef struct {
    uint64_t progress;     // grows with every call and phase that begins or ends
    uint64_t pulse;        // grows while the rank waits for others, too
    int64_t step;          // updates finished
    double timeout;        // the job is ended after this many seconds without progress; 0: never
    int32_t rank, process; // process 0: not there
    int32_t leaving;       // 1 + exit status once the rank ends before its time
    bool done;             // the program ended normally
    bool waiting;          // for others, in the call below
    bool stopped;          // by a signal
    bool stale;            // no pulse for a second
    char phase[SUPERVISOR_NAME], group[SUPERVISOR_NAME], kind[SUPERVISOR_NAME];
    unsigned number;       // of the group's collective calls
    char file[SUPERVISOR_PATH]; // where the supervisor writes its report for programs; empty: nowhere
} Heartbeat;

// Forks when a launcher started this process as one of several (call it before MPI, which forbids forks). Returns in
// the child, with its heartbeat; the parent stays here until the child has ended, and ends with it. NULL: no launcher,
// no Linux, or no memory to share; then nothing was forked.
Heartbeat *supervisor_start(void);

// All of these take NULL and do nothing.

// The rank enters a phase, after `step` updates (-1: the program has no steps): progress.
void supervisor_phase(Heartbeat *beat, int64_t step, const char *phase);
// A call of a group begins; the rank waits for it; the rank continues: progress.
void supervisor_call(Heartbeat *beat, const char *group, const char *kind, unsigned number);
void supervisor_wait(Heartbeat *beat, const char *group, const char *kind, unsigned number);
void supervisor_go_on(Heartbeat *beat);
// A piece of a long computation is done: progress. The rank is alive but waits: a pulse, no progress.
void supervisor_progress(Heartbeat *beat);
void supervisor_pulse(Heartbeat *beat);
// Seconds without progress after which the job is ended; 0: never.
void supervisor_timeout(Heartbeat *beat, double seconds);
// The file for the report of a failure (supervisor_record); the first report stays, so the caller removes an old one.
void supervisor_file(Heartbeat *beat, const char *path);
// The rank ends early, with this status. / The program is over.
void supervisor_leaving(Heartbeat *beat, int status);
void supervisor_done(Heartbeat *beat);

// ---- the messages, for tests: pure functions of what is known

// How rank `beat` ended, by waitpid's status: one line. Empty: it has reported the end itself (die), or succeeded.
void supervisor_explain(const Heartbeat *beat, int status, const char *host, char *line, int n_line);
// The same for a hang: beat[n] are the ranks of this machine, `mine` is the one whose supervisor asks.
void supervisor_explain_hang(const Heartbeat *beat, int n, int mine, const char *host, double seconds, char *line,
                             int n_line);
// The report for programs, a JSON object of one line: which rank, process and host, why, after how many updates and in
// which phase. why: signal or exit (number: which), error (die has said it), hang; waits: the rank waits for one of
// another machine, which is the cause. status: waitpid's, for the first three; for a hang -1, with the arguments of
// supervisor_explain_hang.
void supervisor_record(const Heartbeat *beat, int n, int mine, int status, const char *host, char *line, int n_line);
// The exit status that stands for a rank's end: 0 only for a program that was over and succeeded.
int supervisor_status(const Heartbeat *beat, int status);

#ifdef __cplusplus
}
#endif
#endif
