// comm_watch: a small process beside each rank that says so when the rank is killed. Layer 1.
#ifndef COMM_WATCH_H
#define COMM_WATCH_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

// Starts a watcher of this process; before MPI, which forbids fork. Gives the handle for comm_watch_end, -1: none (not
// under a launcher with several ranks, or no Linux).
int comm_watch_start(void);
// The process ends by its own will: the watcher goes without a word. `job`: it ends the whole job; the watchers of
// the others, which will be killed, keep quiet too.
void comm_watch_end(int handle, bool job);

#ifdef __cplusplus
}
#endif
#endif
