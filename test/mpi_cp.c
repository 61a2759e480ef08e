// mpi_cp: ring attention over real ranks, run by test_cp.sh: mpiexec -n N build/test/mpi_cp.
//
// Each rank computes its part. The ranks' results are added (a rank's other elements are zero) and compared bit for bit
// with those of one rank alone.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dev/check/comm_threads.h"
#include "cp_run.h"

static bool together(Comm *world, const char *what, float *ours, const float *want, size_t n)
{
    CommRequest r = comm_all_reduce(world, ours, ours, n, COMM_FP32, COMM_SUM);
    comm_wait(world, &r);
    size_t i = 0;
    while (i < n && (ours[i] == want[i] || isnan(want[i]))) i++; // NaN: gaps between rows
    if (i < n && world->rank == 0) printf("%s[%zu] is %.9g, on one rank %.9g\n", what, i, ours[i], want[i]);
    return i == n;
}

int main(void)
{
    Comm *world = comm_mpi_start();
    bool well = true;
    for (CpWay way = CP_RING; way <= CP_GATHER; way++) {
        Spec spec = {.set = {.way = way, .blocks = 16}, .ranks = 1, .B = 1, .T = 1040, .H = 4, .G = 2, .D = 16,
                     .kind = DOCUMENTS | DROPPED};
        Case *one = case_make(spec);
        run_one_rank(one);
        spec.ranks = world->size;
        Case *c = case_make(spec);
        play(world, c);
        well &= together(world, "out", c->out, one->out, c->rows * c->width[0]);
        well &= together(world, "lse", c->lse, one->lse, c->rows * spec.H);
        well &= together(world, "dq", c->d[0], one->d[0], c->rows * c->width[0]);
        well &= together(world, "dk", c->d[1], one->d[1], c->rows * c->width[1]);
        well &= together(world, "dv", c->d[2], one->d[2], c->rows * c->width[2]);
        case_free(one), case_free(c);
    }
    if (world->rank == 0 && well) printf("%d ranks give the bits of one\n", world->size);
    comm_mpi_stop(world);
    return !well;
}
