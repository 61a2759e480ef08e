// ranks: what nccl.cc knows of the other processes: calls as they are shown and compared, communicators, and waiting
// that ends in a report when the others cannot arrive. See ranks.cc.
#ifndef CUDA_ON_CPU_RANKS_H
#define CUDA_ON_CPU_RANKS_H
#define MPICH_SKIP_MPICXX 1
#define OMPI_SKIP_MPICXX 1
#include "include/nccl.h"
#include "machine.h"

#include <mpi.h>

struct ncclComm {
    int id, rank, size;
    MPI_Comm mpi;
    std::vector<int> world; // of each, its rank in mpiexec
    unsigned collectives;
    std::vector<unsigned> sent, received; // by peer
    bool finalized, aborted;
    bool blocking; // false: `pending` more questions are answered by ncclInProgress, and calls until then are wrong
    int pending;
    ncclComm **promise, *promised; // a child that ncclCommSplit has made, and where it is written when `pending` is over
    ncclResult_t error; // that ncclCommGetAsyncError gives
    int untold;         // after so many more questions
};

namespace emu {
namespace ranks {

enum Kind : int { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV, SPLIT, JOIN };
extern const char *const KINDS[];
extern const struct TypeName { const char *name; size_t bytes; } TYPES[ncclNumTypes];

struct Call { // what ranks compare and show: plain bytes
    int kind, type, op, root; // root: of REDUCE and BROADCAST, the peer of SEND and RECV
    size_t count;
    int comm, line;
    char file[96];
};
struct Item { // a call and what only its own rank knows
    Call call;
    ncclComm *comm;
    const void *send;
    void *recv;
    unsigned number; // of its kind on its communicator, from 1
};

std::string describe(const Call &c);
Call make_call(int kind, size_t count, int type, int op, int root, int comm, Site site);
[[noreturn]] void mismatch(const ncclComm *c, int a, const Call &x, int b, const Call &y); // of ranks a and b

void start(Site site); // MPI and the board, once; every process of mpiexec must come
int processes();       // of mpiexec
bool running();        // between start and MPI_Finalize
// Joins the processes that bring the same key, until `of` have come.
ncclComm *join(uint64_t key, int rank, int of, Site site);
// A communicator for one of MPI, or nullptr for MPI_COMM_NULL; collective over `parent`, which all get the same
// number from.
ncclComm *new_comm(MPI_Comm mpi, MPI_Comm parent, Site site);

void announce(std::vector<Item> &items); // numbers them, and shows the others that this rank is there
void wait_all(const std::vector<Item> &items, std::vector<MPI_Request> &requests); // or reports; empties `requests`

} // namespace ranks
} // namespace emu
#endif
