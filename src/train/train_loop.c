// train_loop: the program that trains: parse, open, loop, save, close.
//
// train.c and train_gpu.cu are this loop on two devices. Where to look next: run_step.c for what a step does, model.c
// and block.c for the network, dev.h for the operations, optim.c and schedule.c for the update. Every setting is a row
// of config_table.c. With mpiexec -n N in front every rank runs this loop on its share of each batch (run_ranks.c).
//
// With numerics.check every op of the run is done twice, and compared (dev_check.h): on a GPU against the CPU; on the
// CPU against a CPU that adds in another order, our own matmul against OpenBLAS. The run goes on with the results of
// the device that it would have had without.
//
// The invariant: the device is chosen here and nowhere else. Everything behind run_open is the same code.
//
// Rejected: a device by its name in the configuration, which would link CUDA into a program that must run without.
#include "train/train_loop.h"

#include "ops/blas.h"
#include "base/check.h"
#include "dev/check/dev_check.h"
#include "comm/launch.h"
#include "train/run.h"

#include <signal.h>
#include <stdlib.h>

enum { MAX_SKIPPED = 10 };

// Set by a signal: finish this step, save, and leave. A second one ends the program at once. (SIGUSR1: SLURM's
// warning.)
static volatile sig_atomic_t stop_requested;

static void on_signal(int number)
{
    (void)number;
    stop_requested = 1;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
}

static void listen_to_signals(void)
{
    signal(SIGXFSZ, SIG_IGN); // past ulimit -f a write fails, and is reported
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);
}

static bool due(long every, long step)
{
    return every > 0 && step % every == 0;
}

// ---- devices

typedef struct {
    const TrainDevice *kind;
    int number;                     // of the kind's, on this machine
    Dev *cpu, *own;               // what computes: own; over cpu, where it is not the kind's
    Dev *second, *reference, *both; // numerics.check: what it is compared with; the device that does both
    Comm *ranks;                    // for the memory of `own`
} Devices;

static Devices open_devices(const Config *cfg, Comm *world, const TrainDevice *kind)
{
    int threads = launch_threads(world, cfg->run.threads);
    if (!kind && cfg->run.device[0])
        die("run.device = %s: this program computes on the CPU (try build/train_gpu)", cfg->run.device);
    if (!kind && cfg->comm.backend != CONFIG_BACKEND_AUTO)
        die("comm.backend: this program computes on the CPU, and its ranks talk by MPI (try build/train_gpu)");
    Devices d = {.kind = kind, .cpu = dev_cpu_create(threads), .ranks = world};
    if (kind) {
        d.number = launch_device(world, cfg->run.device, kind->count());
        d.own = kind->open(cfg, d.number, d.cpu->threads);
        d.own->deterministic = cfg->numerics.deterministic;
        if (world->size > 1) d.ranks = kind->ranks(cfg, world, d.number, d.own);
    } else {
        d.own = run_device(cfg, d.cpu);
    }
    if (!cfg->numerics.check) return d;
    Config other = *cfg; // the other order of sums
    if (!kind) other.numerics.deterministic = !cfg->numerics.deterministic;
    d.second = dev_cpu_create(threads);
    d.reference = run_device(&other, d.second);
    d.both = dev_check_create(d.own, d.reference);
    return d;
}

static Dev *used(const Devices *d)
{
    return d->both ? d->both : d->own;
}

static void close_devices(const Devices *d, const Comm *world)
{
    if (d->ranks != world) d->kind->part(d->own, d->ranks);
    dev_check_free(d->both);
    if (d->second) run_device_free(d->reference, d->second);
    if (!d->kind) {
        run_device_free(d->own, d->cpu);
        return;
    }
    d->kind->close(d->own);
    dev_cpu_free(d->cpu);
}

// The table of numerics.check: of every rank on which an op left its bound, of rank 0 in any case. Collective; whether
// all ops of all ranks are within theirs.
static bool agreed(Run *run, const Devices *d)
{
    if (!d->both) return true;
    bool within = dev_check_worst(d->both) <= 1;
    if (run->rank == 0) dev_check_print(d->both, progress_log(run->progress));
    for (int r = 0; r < run->ranks; r++) { // one behind the other
        if (r == run->rank && (r == 0 || !within)) {
            if (r) printf("rank %d:\n", r);
            dev_check_print(d->both, stdout);
            fflush(stdout);
        }
        run_wait(run);
    }
    if (!within)
        fprintf(stderr, "error: numerics.check: rank %d: an op left its bound (the table names it and the element)\n",
                run->rank);
    return !run_any(run, !within);
}

// ---- the loop

// Returns the number of updates made; *stopped: a signal ended it.
static long loop(Run *run, bool *stopped)
{
    const double flops_per_token = model_flops_per_token(&run->model->shape, run->model->shape.context);
    long step = run->first_step;
    int skipped = 0; // updates in a row that were not finite
    while (step < run->last_step && !(*stopped = run_any(run, stop_requested))) {
        StepResult r = run_step(run, step++); // from here on `step` counts finished updates
        if (run->cfg.run.account && step == run->first_step + 1) run_account(run);
        mem_seal(&run->mem);

        run_saves(run);
        run_verdict(run, step, &r);
        if (r.verdict.action == MONITOR_ROLLBACK) {
            long back = run_rollback(run, step, &r);
            if (back < step) skipped = 0;
            step = back;
            continue;
        }
        bool finite = r.verdict.reason != MONITOR_NOT_FINITE;
        skipped = finite || r.rescaled ? 0 : skipped + 1; // the scaler has a limit of its own
        if (skipped == MAX_SKIPPED)
            die("step %ld: %d updates in a row had no finite loss and gradient norm (try a lower --optim.lr)", step,
                skipped);

        double rate = (double)r.tokens / r.seconds;
        progress_step(run->progress, &(MetricsRow){.step = step, .tokens = run_tokens(run, step), .loss = r.loss,
                      .lr = r.lr, .grad_norm = r.grad_norm, .dt_ms = 1e3 * r.seconds, .tok_s = rate,
                      .mfu = flops_per_token * rate / run->peak});
        if (step == run->last_step) break;
        if (due(run->cfg.run.eval_every, step)) run_eval(run, step);
        if (due(run->cfg.run.sample_every, step)) run_sample(run, step);
        if (due(run->cfg.run.save_every, step)) run_save(run, step);
    }
    return step;
}

int train_loop_run(int argc, char **argv, const TrainDevice *device)
{
    blas_choose(argv);
    static Config cfg;
    static Run run;
    config_help(argc, argv); // before there are ranks, who would miss one that leaves
    Comm *world = launch_start(argv);
    config_defaults(&cfg);
    config_set_derived(&cfg, "parallel.ranks", world->size);
    config_parse(&cfg, argc, argv);
    config_resolve(&cfg);
    Devices devices = open_devices(&cfg, world, device);
    run_open(&run, &cfg, used(&devices), devices.ranks);
    launch_places(world, stdout);
    listen_to_signals();

    bool stopped = false;
    long step = loop(&run, &stopped);

    bool saved = run_saved(&run, step);
    if (!stopped) run_sample(&run, step);
    bool right = agreed(&run, &devices);
    run_end(&run, step, stopped);
    run_close(&run);
    close_devices(&devices, world);
    launch_stop(world);
    return saved && right ? 0 : 1;
}
