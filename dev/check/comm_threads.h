// comm_threads: ranks as threads of one process: a transport for tests, which then need no launcher.
#ifndef COMM_THREADS_H
#define COMM_THREADS_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

// Runs body(comm, arg) on n threads, each with its own rank of a "world"; returns when all have returned.
void comm_threads_run(int n, void (*body)(Comm *comm, void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
