// account: what the ranks of a run hold and send, as JSON.
//
// "host" is what went out of device memory to the host's memory, or a file, and came in: state, weights, activations.
//
// The plan (build/plan memory --json) and the run (account.json) write the same object with the same keys,
// so that the two can be compared by a program.
//
//   {"memory": {"0": {"parameters": BYTES, ..., "total": BYTES, "peak": BYTES}, "1": ...},
//    "traffic": {"0": {"dp": {"all_reduce": {"calls": 1, "payload": BYTES, "sent": BYTES, "received": BYTES, "waited":
//                SECONDS}}, "control": ..., "host": {"out": {"sent": BYTES}, "in": {"sent": BYTES}}}, "1": ...}}
#ifndef ACCOUNT_H
#define ACCOUNT_H
#include "comm/comm.h"
#include "base/mem.h"
#include "parallel/mesh.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// Traffic by purpose: gradients and weights over the replicas (dp, and cp), and over those with the same experts where
// ep ranks divide them; with hybrid sharding over those that cut them, and then over their copies; activations over tp,
// cp and pp; rows on their way to experts (ep); a tied embedding; control numbers.
enum { ACCOUNT_DP, ACCOUNT_EXPERTS, ACCOUNT_COPIES, ACCOUNT_TP, ACCOUNT_CP, ACCOUNT_EP, ACCOUNT_PP, ACCOUNT_ENDS,
       ACCOUNT_CONTROL, ACCOUNT_GROUPS };

// One rank's counters: the bytes held by tag, their sum, and the highest sum so far; and the counts of its groups.
typedef struct {
    size_t bytes[MEM_TAGS], total, peak;
    CommCount count[ACCOUNT_GROUPS][COMM_KINDS];
    size_t update[2], moved[2]; // out of device memory to a store, and in: of an update by formula; counted
    size_t acts[2];             // of activations, to host memory, and back
} AccountRank;

// The counters now. mesh and control may be NULL: no traffic.
AccountRank account_rank(const Mem *mem, const Mesh *mesh, const Comm *control);
// Adds what another communicator of a group (ACCOUNT_CONTROL: of numbers) has counted.
void account_add(AccountRank *rank, int group, const Comm *comm);
// The object "memory" of n ranks, and a newline.
void account_print(const AccountRank *rank, int n, FILE *out);
// A line for each kind of call over tp, cp, ep, pp and a tied embedding: what all n ranks sent.
void account_print_traffic(const AccountRank *rank, int n, FILE *out);
// Writes memory and traffic to path; dies when that fails.
void account_write(const AccountRank *rank, int n, const char *path);

#ifdef __cplusplus
}
#endif
#endif
