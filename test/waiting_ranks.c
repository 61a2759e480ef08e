// waiting_ranks: MPICH that sleeps where it would spin, for LD_PRELOAD (run.sh). Where tests share the cores, ranks
// that spin in a blocking call (MPI_Init, MPI_Comm_split, MPI_Finalize) keep those from working that they wait for:
// starting 4 ranks on 2 cores took 1.9 s of processors, and takes 0.3. Of use where MPICH sends by UCX.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

enum { PATIENCE = 20, PAUSE = 50000 }; // rounds without progress before the first pause; nanoseconds

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*progress)(void *);
    static int idle;
    if (!progress) progress = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
    unsigned n = progress(worker);
    idle = n ? 0 : idle + 1;
    if (idle > PATIENCE) idle = PATIENCE, nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    return n;
}
