// launch: one process, or the ranks of mpiexec, with the same binary.
//
// The rule: MPI is started when one of these environment variables is set, as launchers do for their processes:
//
//     PMI_RANK               Hydra (MPICH's and Intel's mpiexec), srun --mpi=pmi2
//     PMIX_RANK              srun --mpi=pmix, PRRTE
//     OMPI_COMM_WORLD_SIZE   Open MPI's mpirun
//
// Without them there is one process, and MPI is not initialised, which would take time and open sockets. mpiexec -n 1
// counts as launched, and gives the same results as no launcher.
//
// The invariant: processes that were launched together never run as separate single processes, which would all train in
// the same directory. That happens where srun starts the program N times without MPI, and where the launcher is another
// MPI's than the one that the program is linked to: its MPI then finds nobody to talk to, and is a group of one. The
// environment has how many were started; more than one in a group of one is refused.
//
// Rejected: always calling MPI_Init (its cost; and a machine whose MPI is broken could not train on one process
// either); an option that says "use MPI" (the environment already shows it, and the two could disagree).
#include "comm/launch.h"

#include "base/check.h"
#include "base/stop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool launched(void)
{
    return getenv("PMI_RANK") || getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_SIZE");
}

static bool supervised(char **argv)
{
    for (char **arg = argv + 1; *arg; arg++)
        if (!strcmp(*arg, "--run.supervisor=false")) return false;
    return true;
}

// This process is a group of one. Dies where its launcher started several: the first one says why.
static void refuse_strangers(Comm *world)
{
    static const struct {
        const char *size, *rank, *launcher, *mpi; // mpi: whose launcher it is; NULL: SLURM starts programs of any
    } known[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpiexec", "Open MPI"},
                 {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun", NULL},
                 {"PMI_SIZE", "PMI_RANK", "MPICH's mpiexec", "MPICH"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *size = getenv(known[i].size), *rank = getenv(known[i].rank);
        if (!size || atol(size) < 2 || (known[i].mpi && !rank)) continue;
        launch_stop(world); // nobody is to be ended by this process
        if (rank && atol(rank) > 0) usleep(300000), exit(1);
        if (known[i].mpi)
            die("launch: %s started %s processes, and none of them knows of the others: this program is linked to %s "
                "(try that MPI's mpiexec, or make B=build/other MPICC=... with %s's compiler)",
                known[i].launcher, size, comm_mpi_library(), known[i].mpi);
        die("launch: srun started %s processes, and none of them knows of the others (try srun --mpi=pmi2, --mpi=pmix "
            "with Open MPI, or mpiexec)", size);
    }
}

Comm *launch_start(char **argv)
{
    Comm *world = !launched() ? comm_self() : supervised(argv) ? comm_mpi_start() : comm_mpi_start_bare();
    if (world->size == 1) refuse_strangers(world);
    stop_as_started(); // before the first update nothing can be saved: a signal ends the job
    return world;
}

static bool may_differ(const char *key)
{
    static const char *const local[] = {"data.", "eval.sets", "eval.tasks", "run.dir", "run.threads", "run.device",
                                        "run.peak", "comm.slow_"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (!strncmp(key, local[i], strlen(local[i]))) return true;
    return false;
}

void launch_agree(Comm *world, const Config *cfg)
{
    int n_keys;
    const ConfigKey *key = config_table(&n_keys);
    char mine[CONFIG_TEXT], theirs[CONFIG_TEXT];
    if (world->size == 1) return;
    Config *first = malloc(sizeof *first);
    if (!first) die("launch: no memory for the settings of rank 0");
    *first = *cfg;
    CommRequest request = comm_broadcast(world, first, sizeof *first, COMM_BYTE, 0);
    comm_wait(world, &request);
    for (int i = 0; i < n_keys; i++) {
        config_table_format(&key[i], cfg, mine, sizeof mine);
        config_table_format(&key[i], first, theirs, sizeof theirs);
        bool follows = cfg->origin[i].source == CONFIG_DERIVED && first->origin[i].source == CONFIG_DERIVED;
        if (strcmp(mine, theirs) && !follows && !may_differ(key[i].name))
            die("%s is %s on this rank, and %s on rank 0 (start all ranks with the same settings and files)",
                key[i].name, *mine ? mine : "empty", *theirs ? theirs : "empty");
    }
    free(first);
    request = comm_barrier(world); // a rank that has died ends the job before another finds something else
    comm_wait(world, &request);
}

int launch_threads(const Comm *world, long asked)
{
    return asked || world->size == 1 ? (int)asked : comm_mpi_threads(world);
}

int launch_device(const int *host, int rank, const char *list, int n)
{
    enum { MOST = 64 };
    int device[MOST], n_devices = 0, before = 0; // ranks of this machine before this one
    char *end;
    for (const char *p = list; *list; p = end + 1) {
        long k = strtol(p, &end, 10);
        if (end == p || k < 0 || k >= n || n_devices == MOST || (*end && *end != ','))
            die("run.device = %s: wants numbers of devices with commas, from 0; this machine has %d", list, n);
        device[n_devices++] = (int)k;
        if (!*end) break;
    }
    for (int r = 0; r < rank; r++) before += host[r] == host[rank];
    return n_devices ? device[before % n_devices] : before % n;
}

bool launch_own_device(Comm *world, const char *id)
{
    enum { LONGEST = 64 };
    int N = world->size;
    size_t counts[N];
    char mine[LONGEST] = "", *all = calloc((size_t)N, LONGEST);
    if (!all) die("launch: no memory for the devices of %d ranks", N);
    snprintf(mine, LONGEST, "%s", id);
    for (int r = 0; r < N; r++) counts[r] = LONGEST;
    CommRequest request = comm_all_gather(world, all, mine, counts, COMM_BYTE);
    comm_wait(world, &request);
    bool own = true;
    for (int a = 0; a < N; a++)
        for (int b = 0; b < a; b++)
            if (!strcmp(all + a * LONGEST, all + b * LONGEST)) own = false;
    free(all);
    return own;
}

void launch_places(Comm *world, FILE *out)
{
    if (world->size > 1 && launched()) comm_mpi_places(world, out); // threads (tests) have none
}

void launch_stop(Comm *world)
{
    if (launched()) comm_mpi_stop(world);
    else comm_free(world);
}
