// comm_family: what the groups split from one world share.
//
// For comm.c (their calls) and comm_group.c (the groups themselves).
#ifndef COMM_FAMILY_H
#define COMM_FAMILY_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

struct CommSlot; // a call in flight: comm.c

struct CommFamily {
    struct CommSlot **slot; // calls in flight, and those that may be used again
    unsigned n_slots, serial;
    Mem *mem, own_mem;
    bool checked;
    double alpha, beta, link_free;
    CommTrace trace;
    void *trace_arg;
    int spins;
    CommFamily *partner;
    Heartbeat *beat;
    Comm *first, *last;
};

// n elements of so many bytes, zeroed, for free(); dies without memory.
void *comm_allocate(size_t n, size_t bytes);
// Frees what calls have used; dies when one of them is in flight.
void comm_family_end_calls(CommFamily *f);

#ifdef __cplusplus
}
#endif
#endif
