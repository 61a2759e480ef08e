// comm_shared: what ranks of one machine send each other without MPI: they read each other's memory.
//
// comm_mpi uses it between the ranks of a machine where the kernel permits it; see comm_shared.c.
#ifndef COMM_SHARED_H
#define COMM_SHARED_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Shared Shared;           // of a process: its place in the segment of its machine's ranks
typedef struct SharedGroup SharedGroup; // of a group

// A segment for the `size` ranks of a machine, made by one of them; -1: MPI is wanted, or none is to be had. All attach
// to it, then one removes its name; it is gone when the last rank ends, however it ends. rank: among the machine's.
int comm_shared_create(int size);
Shared *comm_shared_attach(int id, int rank, int size); // NULL: not possible
void comm_shared_remove(int id);
// Whether the kernel lets this rank read the memory of the next; after all ranks have attached.
bool comm_shared_reads(const Shared *s);
int comm_shared_rank(const Shared *s); // in the segment
void comm_shared_close(Shared *s); // NULL is allowed

// Room in the segment for the calls of a group of `size`, asked for by one of its ranks; 0: of a group that also has
// ranks elsewhere, and here only messages. Dies when none is left.
uint64_t comm_shared_room(Shared *s, int size);
// ranks (comm->size): the group's, as numbers of the segment; -1: of another machine. comm is for messages of errors.
SharedGroup *comm_shared_group(Shared *s, const Comm *comm, uint64_t room, const int *ranks);
void comm_shared_group_free(SharedGroup *g);

// The entries of CommOps.
void comm_shared_send(SharedGroup *g, CommTicket *ticket, const void *buf, size_t n_bytes, int to, int tag, int channel);
void comm_shared_recv(SharedGroup *g, CommTicket *ticket, void *buf, size_t n_bytes, int from, int tag, int channel);
void comm_shared_native(SharedGroup *g, CommTicket *ticket, const CommCall *call);
bool comm_shared_test(SharedGroup *g, CommTicket *ticket);
// Sleeps until another rank has done something since the last sleep, or for so many seconds.
void comm_shared_doze(Shared *s, double seconds);

#ifdef __cplusplus
}
#endif
#endif
