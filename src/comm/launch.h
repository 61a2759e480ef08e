// launch: the ranks of this program: those that a launcher started, or one.
#ifndef LAUNCH_H
#define LAUNCH_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

// The ranks of the job (comm_mpi_start) when an MPI launcher started this process, else a group of one, which costs
// nothing. Dies when several processes were started that do not know of each other: by srun without MPI, or by the
// launcher of another MPI than this program's. Searches the arguments for --run.supervisor=false,
// because the supervisor is forked before any setting is read.
Comm *launch_start(char **argv);
// Dies on the first rank whose settings are not rank 0's, naming the key and both values. Keys that may differ from
// machine to machine are not compared: where files are, threads, devices, speeds. Collective.
void launch_agree(Comm *world, const Config *cfg);
// Threads of this rank: `asked`, or where that is 0 its part of the machine's cores; 0: all (dev_cpu_create).
int launch_threads(const Comm *world, long asked);
// Which of its machine's n devices the rank takes: ranks of one machine take the entries of `list` ("0,2"; empty: all)
// in turn, however the launcher has numbered them. host: of comm_hosts. Dies where the list names other devices.
int launch_device(const int *host, int rank, const char *list, int n);
// Whether every rank has a device of its own. id: of this rank's, the same on two ranks only where the device is; a
// number is not, for each rank may see another one as its device 0. Collective.
bool launch_own_device(Comm *world, const char *id);
// On rank 0 of several one line for each: its process and machine. Collective.
void launch_places(Comm *world, FILE *out);
// Ends what launch_start began. Collective.
void launch_stop(Comm *world);

#ifdef __cplusplus
}
#endif
#endif
