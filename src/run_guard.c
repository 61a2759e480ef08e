// run_guard: what keeps a run alive and honest: its lock, its supervisors' view.
#include "run.h"

#include "check.h"
#include "lock.h"

void run_lock(Run *run)
{
    run->lock = run->rank == 0 ? lock_take(run->dir) : -1;
}

void run_watched(Run *run)
{
    const Config *cfg = &run->cfg;
    Heartbeat *beat = comm_heartbeat(run->world);
    if (beat && !cfg->run.supervisor)
        die("run.supervisor = false: in a file it comes too late: the supervisors are there before files are read (try "
            "--run.supervisor=false)");
    supervisor_timeout(beat, cfg->run.hang_timeout);
}

void run_phase(Run *run, long step, const char *phase)
{
    supervisor_phase(comm_heartbeat(run->world), step, phase);
}
