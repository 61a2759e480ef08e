// comm_mpi: the ranks of `mpiexec -n N`, on host memory; and one process alone, without a launcher.
//
// The invariant: only start, split and stop block. Every wait is comm.c's loop of MPI_Test and short sleeps, because
// MPI's own waits spin: four ranks on two cores take turns at spinning (see doc/comm.md).
//
// Ranks of one machine do not talk through MPI but through shared memory (comm_shared.c): in a group whose ranks are
// all there, every call; in one that spans machines, the messages between two of one machine. MPI carries the rest: it
// starts the ranks, splits groups, and connects machines. With PRETRAIN_COMM=mpi in the environment it carries all.
// What MPI has accepted to send may still be in its buffers, and leaves them only when MPI is called. So ranks that
// wait in shared memory call it whenever they are driven (mpi_watch), or the receiver would wait for ever.
//
// A group has three communicators, one for each channel: messages of the program and native collectives; messages of
// the collectives of collectives.c, tagged with the call's number; checks. So none can be mistaken for another.
//
// Threads. Ranks on one machine share its cores, so each may use cores / ranks of them. Only ranks with the same set of
// allowed cores count (a launcher that binds ranks gives each its own). The wait loop tests a few times before its
// first sleep only when every rank has a core of its own.
//
// Rejected: MPI_THREAD_MULTIPLE (a lock in every call, for nothing); MPI_Comm_spawn.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getaffinity
#endif
#include "comm/comm.h"

#include "base/check.h"
#include "comm/comm_shared.h"
#include "comm/supervisor.h"

#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { CHANNELS = 3, SPINS = 20, LAST_WORDS = 200000 }; // LAST_WORDS: microseconds
#define NAP 2e-5 // seconds between two questions to MPI

typedef struct {
    MPI_Comm channel[CHANNELS];
    SharedGroup *shared;      // NULL: everything goes through MPI
    Shared *segment;          // of the family, whose world closes it
    bool *here;               // (size) which ranks are on this machine; NULL without shared
    bool world;
    bool several;             // machines have the job's ranks
    bool shares;              // some machine has a segment
    int neighbours, cores;    // of the world
} State;

static void must(const Comm *comm, int code, const char *call)
{
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    if (comm) die("group %s, rank %d of %d: %s: %s", comm->name, comm->rank, comm->size, call, text);
    die("%s: %s", call, text);
}

#if MPI_VERSION >= 4
typedef MPI_Count Count;
#define LARGE(call) call##_c
#else
typedef int Count;
#define LARGE(call) call
#endif

static int as_int(const Comm *comm, size_t n)
{
    if (n > INT_MAX)
        die("group %s: %zu elements or bytes in one message; this MPI takes %d (try MPICH 4, or more ranks)",
            comm->name, n, INT_MAX);
    return (int)n;
}

static Count as_count(const Comm *comm, size_t n)
{
    return sizeof(Count) > sizeof(int) ? (Count)n : (Count)as_int(comm, n);
}

// ---- tickets

static void keep(CommTicket *ticket, MPI_Request request)
{
    _Static_assert(sizeof request <= sizeof ticket->handle, "an MPI_Request fits into a ticket");
    memcpy(&ticket->handle, &request, sizeof request);
}

static void mpi_send(Comm *comm, CommTicket *ticket, const void *buf, size_t n_bytes, int to, int tag, int channel)
{
    const State *state = comm->state;
    if (state->shared && state->here[to]) {
        comm_shared_send(state->shared, ticket, buf, n_bytes, to, tag, channel);
        ticket->expect = state->shared;
        return;
    }
    MPI_Request request;
    Count n = as_count(comm, n_bytes);
    must(comm, LARGE(MPI_Isend)(buf, n, MPI_BYTE, to, tag, state->channel[channel], &request), "send");
    *ticket = (CommTicket){0};
    keep(ticket, request);
}

static void mpi_recv(Comm *comm, CommTicket *ticket, void *buf, size_t n_bytes, int from, int tag, int channel)
{
    const State *state = comm->state;
    if (state->shared && state->here[from]) {
        comm_shared_recv(state->shared, ticket, buf, n_bytes, from, tag, channel);
        ticket->expect = state->shared;
        return;
    }
    MPI_Request request;
    Count n = as_count(comm, n_bytes);
    must(comm, LARGE(MPI_Irecv)(buf, n, MPI_BYTE, from, tag, state->channel[channel], &request), "recv");
    *ticket = (CommTicket){.expect = state, .n_bytes = n_bytes, .peer = from};
    keep(ticket, request);
}

static bool mpi_test(Comm *comm, CommTicket *ticket)
{
    const State *state = comm->state;
    bool local = comm->shared || (state->shared && ticket->expect == state->shared);
    if (local) return comm_shared_test(state->shared, ticket);
    MPI_Request request;
    MPI_Status status;
    int done = 0;
    Count got = 0;
    memcpy(&request, &ticket->handle, sizeof request);
    must(comm, MPI_Test(&request, &done, &status), ticket->expect ? "receive" : "collective or send");
    keep(ticket, request);
    if (!done || !ticket->expect) return done;
    must(comm, LARGE(MPI_Get_count)(&status, MPI_BYTE, &got), "receive");
    if ((size_t)got != ticket->n_bytes)
        die("group %s: rank %d expected %zu bytes from rank %d and was sent %zu", comm->name, comm->rank,
            ticket->n_bytes, ticket->peer, (size_t)got);
    return true;
}

// ---- MPI's own collectives
//
// Counts. MPI 4 has a second form of its calls, NAME_c, which counts in 64 bits: a message may have 2^31 bytes and
// more. With an older MPI, which counts in int, such a message is refused. MPI's own collectives are not given more
// than 2^31 bytes (comm.c): those of MPICH 4.0 fail there ("Invalid communicator").

static MPI_Datatype mpi_type(CommType type)
{
    switch (type) {
    case COMM_FP32: return MPI_FLOAT;
    case COMM_FP64: return MPI_DOUBLE;
    case COMM_INT32: return MPI_INT32_T;
    case COMM_INT64: return MPI_INT64_T;
    case COMM_BYTE: return MPI_BYTE;
    default: return MPI_UINT16_T; // bf16, fp16: only moved
    }
}

// counts and offsets as ints, in two rows of work.
static int *ints(const Comm *comm, int *row, const size_t *counts, const size_t *offsets)
{
    for (int r = 0; r < comm->size; r++) {
        row[r] = as_int(comm, counts[r]);
        row[comm->size + r] = as_int(comm, offsets[r]);
    }
    return row;
}

static void mpi_native(Comm *comm, CommTicket *ticket, const CommCall *call, int *work)
{
    const State *state = comm->state;
    if (comm->shared) {
        comm_shared_native(state->shared, ticket, call);
        return;
    }
    const MPI_Comm group = state->channel[0];
    const MPI_Datatype type = mpi_type(call->type);
    const MPI_Op op = call->op == COMM_MAX ? MPI_MAX : MPI_SUM;
    const void *in = call->in == call->out ? MPI_IN_PLACE : call->in;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS, N = comm->size, *to, *from, n = as_int(comm, call->n);
    switch (call->kind) {
    case COMM_ALL_REDUCE: code = MPI_Iallreduce(in, call->out, n, type, op, group, &request); break;
    case COMM_ALL_GATHER:
        to = ints(comm, work, call->counts, call->offsets);
        if ((const char *)call->out + call->offsets[comm->rank] * comm_type_bytes(call->type) == call->in)
            in = MPI_IN_PLACE;
        else in = call->in;
        code = MPI_Iallgatherv(in, to[comm->rank], type, call->out, to, to + N, type, group, &request);
        break;
    case COMM_REDUCE_SCATTER:
        to = ints(comm, work, call->counts, call->offsets);
        code = MPI_Ireduce_scatter(call->in, call->out, to, type, op, group, &request);
        break;
    case COMM_BROADCAST: code = MPI_Ibcast(call->out, n, type, call->peer, group, &request); break;
    case COMM_ALL_TO_ALL:
        to = ints(comm, work, call->counts, call->offsets);
        from = ints(comm, work + 2 * N, call->in_counts, call->in_offsets);
        code = MPI_Ialltoallv(call->in, to, to + N, type, call->out, from, from + N, type, group, &request);
        break;
    case COMM_BARRIER: code = MPI_Ibarrier(group, &request); break;
    default: die("group %s: %s is no collective", comm->name, comm_kind_name(call->kind));
    }
    must(comm, code, comm_kind_name(call->kind));
    *ticket = (CommTicket){0};
    keep(ticket, request);
}

// ---- groups

static void adopt(Comm *comm, MPI_Comm group)
{
    State *state = calloc(1, sizeof *state);
    if (!state) die("comm_mpi: no memory for a group");
    comm->state = state;
    state->channel[0] = group;
    for (int i = 0; i < CHANNELS; i++) {
        if (i) must(comm, MPI_Comm_dup(group, &state->channel[i]), "MPI_Comm_dup");
        must(comm, MPI_Comm_set_errhandler(state->channel[i], MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    must(comm, MPI_Comm_rank(group, &comm->rank), "MPI_Comm_rank");
    must(comm, MPI_Comm_size(group, &comm->size), "MPI_Comm_size");
}

// From here on the group's ranks on this machine talk through its segment. The lowest of them asks for the room.
// Collective; segment is NULL on a machine that has none.
static void share(Comm *comm, Shared *segment)
{
    typedef struct {
        int machine, rank; // the job's number of the machine's first rank; the number in the segment, -1: no segment
    } Where;
    State *state = comm->state;
    int N = comm->size, ranks[N], lowest = comm->rank, here = 0;
    uint64_t rooms[N];
    Where all[N], own = {comm->machine, segment ? comm_shared_rank(segment) : -1};
    must(comm, MPI_Allgather(&own, 2, MPI_INT, all, 2, MPI_INT, state->channel[0]), "MPI_Allgather");
    for (int r = N - 1; r >= 0; r--) {
        ranks[r] = all[r].machine == own.machine ? all[r].rank : -1;
        if (ranks[r] >= 0) lowest = r, here++;
    }
    uint64_t room = segment && lowest == comm->rank ? comm_shared_room(segment, here == N ? N : 0) : 0;
    must(comm, MPI_Allgather(&room, 1, MPI_UINT64_T, rooms, 1, MPI_UINT64_T, state->channel[0]), "MPI_Allgather");
    state->segment = segment;
    if (!segment || (here == 1 && N > 1)) return;
    state->here = calloc((size_t)N, sizeof *state->here);
    if (!state->here) die("comm_mpi: no memory for a group");
    for (int r = 0; r < N; r++) state->here[r] = ranks[r] >= 0;
    state->shared = comm_shared_group(segment, comm, rooms[lowest], ranks);
    comm->shared = here == N;
}

static bool mpi_split(Comm *comm, Comm *child, int color, int key)
{
    const State *state = comm->state;
    MPI_Comm group;
    must(comm, MPI_Comm_split(state->channel[0], color < 0 ? MPI_UNDEFINED : color, key, &group), "MPI_Comm_split");
    if (group == MPI_COMM_NULL) return false;
    adopt(child, group);
    State *own = child->state;
    own->shares = state->shares;
    if (own->shares) share(child, state->segment);
    return true;
}

static void mpi_free(Comm *comm)
{
    State *state = comm->state;
    for (int i = 0; i < CHANNELS; i++) must(comm, MPI_Comm_free(&state->channel[i]), "MPI_Comm_free");
    if (state->world) comm_shared_close(state->segment);
    comm_shared_group_free(state->shared);
    free(state->here);
    free(state);
}

// Lets MPI move what it has accepted.
static void mpi_watch(Comm *root)
{
    const State *state = root->state;
    int there;
    if (state->segment && state->several)
        must(root, MPI_Iprobe(MPI_ANY_SOURCE, 0, state->channel[0], &there, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

static bool mpi_doze(Comm *root, double seconds)
{
    const State *state = root->state;
    mpi_watch(root);
    if (state->segment) comm_shared_doze(state->segment, state->several ? NAP : seconds);
    return state->segment != NULL;
}

static const CommOps MPI = {
    .name = "mpi", .split = mpi_split, .send = mpi_send, .recv = mpi_recv, .test = mpi_test, .native = mpi_native,
    .doze = mpi_doze, .watch = mpi_watch, .free = mpi_free,
};

// ---- start and stop
//
// Leaving. A process that ends before comm_mpi_stop, by die() or exit() anywhere, would leave the others waiting. So an
// exit handler asks MPI whether it was finalized, and if not, ends the job on all ranks with this process' status. It
// needs no state of ours. When the rank has a supervisor (supervisor.c), the handler tells it; the supervisor names the
// rank and ends the job by its own exit, as it also does for a process that dies by a signal. A single process, or the
// last rank to leave, has no other rank to end.

static void leave(int status, Heartbeat *beat)
{
    int started = 0, stopped = 0, size = 1;
    MPI_Initialized(&started);
    MPI_Finalized(&stopped);
    if (!stopped) supervisor_leaving(beat, status);
    if (!started || stopped) return;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > 1 || beat) {
        fflush(NULL);
        usleep(LAST_WORDS); // when a process aborts, Hydra drops output of it that was not read yet
        MPI_Abort(MPI_COMM_WORLD, status ? status : 1);
    } else {
        MPI_Finalize();
    }
}

#ifdef __GLIBC__
static void at_exit(int status, void *arg)
{
    leave(status, arg);
}
#else
static void at_exit(void) // atexit does not pass the status
{
    leave(1, NULL);
}
#endif

// The cores that this process may use, as a number that differs when the set does.
static int cores(uint64_t *set_hash)
{
    *set_hash = 0;
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &set)) *set_hash = *set_hash * 1000003 + (uint64_t)i + 1;
        return CPU_COUNT(&set);
    }
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

// The ranks of this machine that may use the same cores.
static int neighbours(const Comm *world, MPI_Comm machine, int here, uint64_t set_hash)
{
    uint64_t all[here];
    int same = 0;
    must(world, MPI_Allgather(&set_hash, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, machine), "MPI_Allgather");
    for (int r = 0; r < here; r++) same += all[r] == set_hash;
    return same;
}

// The segment of this machine's ranks; NULL where it is not to be had on one of them. Collective on the machine.
static Shared *open_segment(const Comm *world, MPI_Comm machine, int here)
{
    int rank, id, well;
    must(world, MPI_Comm_rank(machine, &rank), "MPI_Comm_rank");
    id = rank == 0 && here > 1 ? comm_shared_create(here) : -1;
    must(world, MPI_Bcast(&id, 1, MPI_INT, 0, machine), "MPI_Bcast");
    if (id < 0) return NULL;
    Shared *s = comm_shared_attach(id, rank, here);
    for (int i = 0; i < 2; i++) { // all have attached; all can read
        well = s && (i == 0 || comm_shared_reads(s));
        must(world, MPI_Allreduce(MPI_IN_PLACE, &well, 1, MPI_INT, MPI_MIN, machine), "MPI_Allreduce");
        if (!well) break;
    }
    if (rank == 0) comm_shared_remove(id);
    if (well) return s;
    comm_shared_close(s);
    return NULL;
}

// Who is on this machine, and how its ranks talk. Collective.
static void meet_the_machine(Comm *world)
{
    State *state = world->state;
    MPI_Comm machine;
    uint64_t set_hash;
    int here, any;
    state->cores = cores(&set_hash), state->world = true, world->machine = world->rank;
    must(world, MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine), "machine");
    must(world, MPI_Comm_size(machine, &here), "MPI_Comm_size");
    must(world, MPI_Bcast(&world->machine, 1, MPI_INT, 0, machine), "MPI_Bcast");
    state->several = here < world->size;
    state->neighbours = neighbours(world, machine, here, set_hash);
    Shared *segment = open_segment(world, machine, here);
    any = segment != NULL;
    must(world, MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
    must(world, MPI_Comm_free(&machine), "MPI_Comm_free");
    state->shares = any;
    if (any) share(world, segment);
}

// UCX, which MPICH uses, reads large messages from the other process' memory (CMA) where the kernel allows it. When
// that process was just killed, the read fails and UCX aborts the reader: a second rank dies, and may be named in place
// of the first. So when all ranks are on this machine, UCX may use only shared memory, unless UCX_TLS is set.
// (Excluding only CMA makes UCX use TCP between ranks of one machine, and MPI_Finalize was seen to hang on it.)
//
// There are two kinds: System V's, and POSIX', which takes room in /dev/shm. That is 64 MB in many containers, and
// where it is short MPI_Init fails. So System V's is used where a rank's share can be had. MPICH itself has a page a
// rank in /dev/shm, and dies by a signal when that is full; without /dev/shm, or where it is read-only, it takes a file
// in /tmp.
// The machine's first rank asks for the room of all, and reports. The others, some of which may have taken theirs,
// leave in silence where it must have reported.
static void choose_transport(void)
{
    enum { OF_MPICH = 16384, OF_UCX = 4608 << 10 }; // bytes a rank; UCX 1.13 takes 4212 KiB
    const char *here = getenv("MPI_LOCALNRANKS"), *all = getenv("PMI_SIZE"), *local = getenv("MPI_LOCALRANKID");
    int segment = shmget(IPC_PRIVATE, OF_UCX, 0600);
    bool sysv = segment >= 0 && !shmctl(segment, IPC_RMID, NULL), needed = !sysv && !getenv("UCX_TLS"),
         first = !local || !atoi(local);
    if (here && all && !strcmp(here, all)) setenv("UCX_TLS", sysv ? "sysv,self" : "posix,self", 0);
    struct statvfs shm;
    long long n = here ? atoll(here) : 1, need = n * (!first ? OF_MPICH / 2 : needed ? OF_UCX : OF_MPICH);
    if (statvfs("/dev/shm", &shm)) return;
    if (shm.f_flag & ST_RDONLY) shm.f_bavail = 0;
    long long room = (long long)shm.f_bavail * (long long)shm.f_frsize;
    if (room >= need || (shm.f_flag & ST_RDONLY && !needed)) return;
    if (!first) usleep(LAST_WORDS), exit(1);
    die("/dev/shm: %lld KiB free, and MPI needs %lld KiB for %lld ranks (try a larger one: --shm-size of a container)",
        room >> 10, need >> 10, n);
}

// Restores the default action of signals that UCX handles since it was loaded: its handler would print a backtrace
// before the supervisor's line. Where ranks of several hosts keep CMA, a rank whose neighbour was killed still aborts,
// with one line of UCX in place of thirty.
static void own_crashes(void)
{
#ifndef __SANITIZE_ADDRESS__
    int (*set)(const char *, const char *); // a public function of UCX
    *(void **)&set = dlsym(RTLD_DEFAULT, "ucs_global_opts_set_value");
    if (set && !getenv("UCX_HANDLE_ERRORS")) set("HANDLE_ERRORS", "none");
    const int crash[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof crash / sizeof *crash && !getenv("UCX_ERROR_SIGNALS"); i++) signal(crash[i], SIG_DFL);
#endif
}

static Comm *begin(Heartbeat *beat)
{
    int level, started = 0;
    MPI_Initialized(&started);
    if (started) die("comm_mpi: started twice");
    // In a container without /sys hwloc prints warnings on stderr, and then works. A value that the user set is kept.
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
#ifdef __GLIBC__
    on_exit(at_exit, beat);
#else
    atexit(at_exit);
#endif
    choose_transport();
    must(NULL, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "MPI_Init");
    if (beat) own_crashes();
    Comm *world = comm_create(&MPI, "world");
    MPI_Comm group;
    must(world, MPI_Comm_dup(MPI_COMM_WORLD, &group), "MPI_Comm_dup");
    adopt(world, group);
    const State *state = world->state;
    comm_set_heartbeat(world, beat);
    meet_the_machine(world);
    comm_set_spins(world, state->neighbours <= state->cores ? SPINS : 0);
    if (state->neighbours > state->cores) world->share = (double)state->cores / state->neighbours;
    return world;
}

Comm *comm_mpi_start(void)
{
    return begin(supervisor_start());
}

Comm *comm_mpi_start_bare(void)
{
    return begin(NULL);
}

const char *comm_mpi_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(text, &n);
    text[strcspn(text, ",\n")] = 0; // Open MPI goes on with its package, MPICH with its options
    char *word = strstr(text, " Version:\t"); // MPICH
    if (word) memmove(word + 1, word + 10, strlen(word + 10) + 1);
    return text;
}

static const State *world_state(const Comm *world)
{
    check(world->ops == &MPI && !strcmp(world->name, "world"));
    return world->state;
}

int comm_mpi_neighbours(const Comm *world)
{
    return world_state(world)->neighbours;
}

int comm_mpi_threads(const Comm *world)
{
    const State *state = world_state(world);
    return state->cores > state->neighbours ? state->cores / state->neighbours : 1;
}

void comm_mpi_places(Comm *world, FILE *out)
{
    enum { PLACE = 128 };
    size_t N = (size_t)world->size, counts[N];
    char mine[PLACE] = "", host[64] = "", *all = calloc(N, PLACE);
    if (!all) die("comm_mpi: no memory for %zu names", N);
    gethostname(host, sizeof host - 1);
    snprintf(mine, sizeof mine, "process %ld on %s", (long)getpid(), host);
    for (size_t r = 0; r < N; r++) counts[r] = PLACE;
    CommRequest gather = comm_all_gather(world, all, mine, counts, COMM_BYTE);
    comm_wait(world, &gather);
    for (size_t r = 0; world->rank == 0 && r < N; r++) fprintf(out, "rank %zu: %s\n", r, all + r * PLACE);
    fflush(out); // so that it is printed even if the job is killed later
    free(all);
}

// All ranks are about to leave. Over TCP, MPI_Finalize of MPICH 4.0 asks each rank that was sent something to confirm
// it. A rank whose own questions are answered answers no more, so one that asks later hangs. Two things prevent this.
// Every rank sends something to every other one, so that none is done before all have answered. And between the last
// barrier and MPI_Finalize all sleep, for longer than it takes the last one to come out: then nobody answers who has
// not asked.
static void part(int rank, int n_ranks)
{
    double took = 0;
    for (int k = 1; k < n_ranks; k++) // not MPI_Alltoall, which has few of the pairs talk
        must(NULL, MPI_Sendrecv(NULL, 0, MPI_BYTE, (rank + k) % n_ranks, 0, NULL, 0, MPI_BYTE,
                                (rank + n_ranks - k) % n_ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Sendrecv");
    for (int i = 0; i < 2; i++) { // in the first one ranks also wait for those that have work left
        took = MPI_Wtime();
        must(NULL, MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
        took = MPI_Wtime() - took;
    }
    must(NULL, MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
    must(NULL, MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    usleep((useconds_t)(1e6 * (0.2 + 5 * (took < 2 ? took : 2))));
}

void comm_mpi_stop(Comm *world)
{
    CommRequest last = comm_barrier(world);
    comm_wait(world, &last);
    Heartbeat *beat = comm_heartbeat(world);
    bool several = world_state(world)->several;
    int rank = world->rank, n_ranks = world->size;
    comm_free(world);
    if (several) part(rank, n_ranks);
    must(NULL, MPI_Finalize(), "MPI_Finalize");
    supervisor_done(beat);
}
