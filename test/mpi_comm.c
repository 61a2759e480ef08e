// mpi_comm: what test_comm.sh runs under mpiexec: every call over real ranks, a mesh of them, and ways to fail.
//
// usage: mpi_comm everything | mesh PP CP EP TP | places | die | all | late | exit | usage | kill | short | differ | unlike | loop
#include "comm_case.h"

#include "base/check.h"
#include "parallel/mesh.h"
#include "dev/draw/mesh_print.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void run_mesh(CommCase *cc, Comm *world, char **size)
{
    MeshShape s = mesh_shape(world->size, atoi(size[0]), atoi(size[1]), atoi(size[2]), atoi(size[3]));
    Mesh mesh = mesh_create(world, s);
    expect(cc, world, mesh_rank(s, mesh.place) == world->rank);
    for (int g = 0; g < MESH_GROUPS; g++) {
        int members[world->size], n = mesh_members(s, world->rank, (MeshGroup)g, members);
        int32_t all[world->size];
        size_t one[world->size];
        Comm *group = mesh.group[g];
        expect(cc, world, (group == NULL) == (n == 0));
        if (!group) continue;
        expect(cc, group, group->size == n && members[group->rank] == world->rank);
        for (int r = 0; r < n; r++) one[r] = 1;
        CommRequest q = comm_all_gather(group, all, &world->rank, one, COMM_INT32);
        comm_wait(group, &q);
        for (int r = 0; r < n; r++) expect(cc, group, all[r] == members[r]);
    }
    if (world->rank == 0) mesh_print(s, stdout);
}

// More than 2^31 bytes in one message, one broadcast and one gather.
static void run_large(CommCase *cc, Comm *world)
{
    size_t n = ((size_t)1 << 31) + 4099, N = (size_t)world->size, counts[N];
    bool first = world->rank == 0;
    uint8_t *x = calloc(n, 1);
    if (!x) die("mpi_comm: no memory for %zu bytes", n);
    for (size_t i = 0; first && i < n; i += 4099) x[i] = (uint8_t)(i / 4099 % 251 + 1);
    CommRequest q = comm_broadcast(world, x, n, COMM_BYTE, 0);
    comm_wait(world, &q);
    for (int way = 0; way < 3; way++) {
        for (size_t i = 0; !first && i < n; i += 4099) {
            expect(cc, world, x[i] == (uint8_t)(i / 4099 % 251 + 1));
            x[i] = 0;
        }
        if (way == 0) {
            q = first ? comm_send(world, x, n, COMM_BYTE, 1, 0) : comm_recv(world, x, n, COMM_BYTE, 0, 0);
            comm_wait(world, &q);
        } else if (way == 1) {
            comm_even(counts, n, world->size); // of rank 0 nearly all
            for (size_t r = 1; r < N; r++) counts[0] += counts[r] - 1, counts[r] = 1;
            if (!first) x[n - 1] = (uint8_t)((n - 1) / 4099 % 251 + 1); // its shard
            q = comm_all_gather(world, x, first ? x : x + n - 1, counts, COMM_BYTE);
            comm_wait(world, &q);
        }
    }
    free(x);
}

// In place, with every rank's buffer at one address, as without address space randomization: another rank's memory is
// another place all the same.
static void run_one_address(CommCase *cc, Comm *world)
{
    enum { EACH = 100 };
    size_t n = (size_t)world->size * EACH, counts[world->size], own = (size_t)world->rank * EACH;
    int32_t *x = mmap((void *)0x200000000000, n * sizeof *x, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x == MAP_FAILED) die("mpi_comm: no memory for %zu numbers", n);
    for (int r = 0; r < world->size; r++) counts[r] = EACH;
    for (size_t i = 0; i < EACH; i++) x[own + i] = case_value(world->rank, i);
    CommRequest q = comm_all_gather(world, x, x + own, counts, COMM_INT32);
    comm_wait(world, &q);
    for (size_t i = 0; i < n; i++) expect(cc, world, x[i] == case_value((int)(i / EACH), i % EACH));
    for (size_t i = 0; i < n; i++) x[i] = case_value(world->rank, i);
    q = comm_all_reduce(world, x, x, n, COMM_INT32, COMM_SUM);
    comm_wait(world, &q);
    for (size_t i = 0; i < n; i++) expect(cc, world, x[i] == case_total(world->size, i, COMM_SUM));
    munmap(x, n * sizeof *x);
}

// Small messages of one tag, many of them under way at once: they come in the order in which they were sent.
static void run_order(CommCase *cc, Comm *world)
{
    enum { ROUNDS = 4000, EACH = 8 };
    int to = (world->rank + 1) % world->size, from = (world->rank + world->size - 1) % world->size;
    for (int i = 0; world->size > 1 && i < ROUNDS; i++) {
        int32_t sent[EACH], got[EACH];
        CommRequest send[EACH], receive[EACH];
        for (int k = 0; k < EACH; k++) sent[k] = i * EACH + k;
        for (int k = 0; k < EACH; k++) {
            receive[k] = comm_recv(world, &got[k], 1, COMM_INT32, from, 0);
            send[k] = comm_send(world, &sent[k], 1, COMM_INT32, to, 0);
        }
        for (int k = 0; k < EACH; k++) {
            comm_wait(world, &send[k]);
            comm_wait(world, &receive[k]);
            expect(cc, world, got[k] == i * EACH + k);
        }
    }
}

// Ways to fail on the last rank while the others wait for it.
static void fail(Comm *world, const char *how)
{
    float x[8] = {0};
    bool last = world->rank == world->size - 1;
    if (last && !strcmp(how, "die")) die("test: the last rank fails: 3 (try 4)");
    if (!strcmp(how, "late") && world->rank == 0) sleep(20); // as on a machine with other work
    if (!strcmp(how, "all") || !strcmp(how, "late")) die("test: every rank fails");
    if (last && !strcmp(how, "exit")) exit(5);
    if (last && !strcmp(how, "usage")) die_usage("no such option: --x");
    if (last && !strcmp(how, "kill")) raise(SIGKILL);
    comm_set_checked(world, !strcmp(how, "differ"));
    CommRequest q = {0};
    if (!strcmp(how, "short") && world->rank == 0) q = comm_send(world, x, 3, COMM_FP32, world->size - 1, 0);
    else if (!strcmp(how, "short") && last) q = comm_recv(world, x, 8, COMM_FP32, 0, 0);
    else if (!strcmp(how, "unlike")) {
        static float y[800];
        q = comm_all_reduce(world, y, y, last ? 700 : 800, COMM_FP32, COMM_SUM);
    } else q = comm_all_reduce(world, x, x, last && !strcmp(how, "differ") ? 7 : 8, COMM_FP32, COMM_SUM);
    comm_wait(world, &q);
}

int main(int argc, char **argv)
{
    if (argc < 2) die_usage("mpi_comm: what to run?");
    CommCase cc = {0};
    bool bare = argc > 2 && !strcmp(argv[2], "bare");
    Comm *world = bare ? comm_mpi_start_bare() : comm_mpi_start();
    bool everything = !strcmp(argv[1], "everything");
    if (everything) {
        case_everything(&cc, world);
        run_one_address(&cc, world);
        run_order(&cc, world);
        comm_set_checked(world, true);
        case_in_flight(&cc, world);
    } else if (!strcmp(argv[1], "mesh") && argc == 6) run_mesh(&cc, world, argv + 2);
    else if (!strcmp(argv[1], "large") && world->size == 2) run_large(&cc, world);
    else if (!strcmp(argv[1], "loop")) {
        float x[1000] = {0};
        for (int i = 0; i < 100; i++) {
            CommRequest q = comm_all_reduce(world, x, x, 1000, COMM_FP32, COMM_SUM);
            comm_wait(world, &q);
        }
    } else if (!strcmp(argv[1], "places")) {
        comm_mpi_places(world, stdout);
        if (world->rank == 0)
            printf("%d on the same cores, %d threads each\n", comm_mpi_neighbours(world), comm_mpi_threads(world));
        const char *transport = getenv("UCX_TLS");
        if (world->rank == 0) printf("transport: %s\n", transport ? transport : "any");
        if (world->rank == 0) printf("calls: %s\n", world->shared ? "shared memory" : "MPI");
        fflush(stdout);
        if (argc > 2) usleep(300000), fail(world, argv[2]); // the launcher passes the list on first
    } else fail(world, argv[1]);
    int failed = cc.failed;
    CommRequest q = comm_all_reduce(world, &failed, &failed, 1, COMM_INT32, COMM_SUM);
    comm_wait(world, &q);
    if (world->rank == 0) printf("%d ranks: %d failed\n", world->size, failed);
    comm_mpi_stop(world);
    return failed != 0;
}
