// train: trains a language model.
//
//   build/train presets/tiny.toml --data.train='DIR/train_*.bin' --data.val='DIR/val_*.bin' --data.tokenizer=DIR
//
// This is the whole loop. Where to look next: run_step.c for what a step does, model.c and block.c for the
// network, dev.h for the operations, optim.c and schedule.c for the update. Every setting is a row of
// config_keys.c. With mpiexec -n N in front every rank runs this loop on its share of each batch (run_ranks.c).
#include "blas.h"
#include "check.h"
#include "launch.h"
#include "run.h"

#include <signal.h>
#include <stdlib.h>

enum { MAX_SKIPPED = 10 };

// Set by a signal: finish this step, save, and leave. A second one ends the program at once. (SIGUSR1: SLURM's warning.)
static volatile sig_atomic_t stop_requested;

static void on_signal(int number)
{
    (void)number;
    stop_requested = 1;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
}

static bool due(long every, long step)
{
    return every > 0 && step % every == 0;
}

int main(int argc, char **argv)
{
    blas_choose(argv);
    static Config cfg;
    static Run run;
    Comm *world = launch_start(argv);
    config_defaults(&cfg);
    config_set_derived(&cfg, "parallel.ranks", world->size);
    config_parse(&cfg, argc, argv);
    config_resolve(&cfg);
    Dev *cpu = dev_cpu_create(launch_threads(world, cfg.run.threads)), *dev = run_device(&cfg, cpu);
    run_open(&run, &cfg, dev, world);
    launch_places(world, stdout);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);

    const double flops_per_token = model_flops_per_token(&run.model->shape, run.model->shape.context);
    long step = run.first_step;
    int skipped = 0; // updates in a row that were not finite
    bool stopped = false;
    while (step < run.last_step && !(stopped = run_any(&run, stop_requested))) {
        StepResult r = run_step(&run, step++); // from here on `step` counts finished updates
        if (run.cfg.run.account && step == run.first_step + 1) run_account(&run);
        mem_seal(&run.mem);

        run_saves(&run);
        run_verdict(&run, step, &r);
        if (r.verdict.action == MONITOR_ROLLBACK) {
            long back = run_rollback(&run, step, &r);
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
        progress_step(run.progress, &(MetricsRow){.step = step, .tokens = run_tokens(&run, step), .loss = r.loss,
                      .lr = r.lr, .grad_norm = r.grad_norm, .dt_ms = 1e3 * r.seconds, .tok_s = rate,
                      .mfu = flops_per_token * rate / run.peak});
        if (step == run.last_step) break;
        if (due(run.cfg.run.eval_every, step)) run_eval(&run, step);
        if (due(run.cfg.run.sample_every, step)) run_sample(&run, step);
        if (due(run.cfg.run.save_every, step)) run_save(&run, step);
    }

    bool saved = run_saved(&run, step);
    if (!stopped) run_sample(&run, step);
    run_end(&run, step, stopped);
    run_close(&run);
    run_device_free(dev, cpu);
    launch_stop(world);
    return saved ? 0 : 1;
}
