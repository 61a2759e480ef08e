// train: trains a language model.
//
//   build/train presets/tiny.toml --data.train='DIR/train_*.bin' --data.val='DIR/val_*.bin' --data.tokenizer=DIR
//
// This file is the program from top to bottom: the step, the loop, and what is set up around them. Where to look next:
//
//   net/block.c       one transformer layer, forward and backward      ops/dev.h      the operations it is made of
//   net/model_run.c   the list of layers, forward and backward         train/optim.c  the update
//   base/config.c     every setting                                    train/run.h    what a run consists of
//
// A step is a function of (config, step, weights, optimizer state, scales, the monitor's windows), and nothing else is
// carried from step to step; so a run that was stopped and resumed goes through the same states, bit for bit, as one
// that was not.
//
// The loss of a step is the sum of token losses over the number of valid tokens of the whole batch. That number is
// known before the first micro-batch runs, and every micro-batch scales its gradient by it; averaging the averages of
// micro-batches would weigh tokens unequally when their valid counts differ.
//
// With mpiexec -n N in front, N processes run this same loop, each on its share of every batch; what differs is behind
// replicas.h. On a GPU it is the same program again, with the device of train_gpu.cu (compiled with -DTRAIN_GPU). With
// numerics.check every op is done twice and compared (dev_check.h): on a GPU against the CPU, on the CPU against a CPU
// that adds in another order. The run continues with the results that it would have had without.
//
// Rejected: a device by its name in the configuration, which would link CUDA into a program that must run without.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/stop.h"
#include "comm/launch.h"
#include "src/check/links.h"
#include "src/check/dev_check.h"
#include "src/check/override.h"
#include "ops/dev_cpu.h"
#include "parallel/ranks.h"
#include "src/check/sharding.h"
#include "train/run.h"
#include "src/check/observers.h"

enum { MAX_SKIPPED = 10 }; // updates in a row that may fail to be finite

// ---- one update: data, micro-batches forward and backward, norm, verdict, clip, update

// Forward and backward of this process' micro-batches. Returns the sum of all token losses; gradients are complete.
static double forward_backward(Run *run, long step, int64_t rows, float scale)
{
    int64_t B = run->cfg.batch.micro;
    for (int64_t row = 0; row < rows; row += B) {
        Micro micro = run_micro(run, step, row);
        replicas_forward_backward(&run->replicas, &micro, scale, row + B >= rows);
    }
    return replicas_finish(&run->replicas);
}

// The global norm of the gradient, by which it is judged and clipped. In fp16 the loss was multiplied by the loss scale
// S (grads.h), so the gradient is multiplied by 1 / S first.
static double grad_norm(Optim *optim, Model *model, const RunScales *scales, Replicas *all)
{
    Fp8 *fp8 = scales->fp8;
    optim->grad_scale = 1 / (double)scales->scaler.scale;
    if (fp8) replicas_share_scales(all, fp8);
    if (fp8 && !fp8_step_end(fp8)) optim->grad_scale = NAN; // a saturating cast hid an overflow
    return optim_norm(optim, model);
}

// Update number step + 1.
static StepResult run_step(Run *run, long step)
{
    double begin = clock_seconds();
    Phases *phases = &run->phases; // the clock that says where the time goes
    Observer *o = run->observer, *end = o + run->n_observers;
    replicas_phase(&run->replicas, step, "training");
    run->optim.set.momentum = schedule_momentum(&run->schedule, step);
    phases_step(phases);
    for (; o < end; o++)
        if (o->before) o->before(o->self, run, step);

    StepResult r = {.lr = schedule_lr_ramped(&run->schedule, &run->ramp, step) * run_cool(run, step),
                    .tokens = run_samples(run, step).sequences * run->cfg.model.context};
    phases_enter(phases, PHASES_DATA);
    int64_t rows = run_load_step(run, step, &r.valid);
    phases_enter(phases, PHASES_FORWARD); // the model's units switch to PHASES_BACKWARD and back
    if (run->scales.fp8) fp8_step_begin(run->scales.fp8);
    for (o = run->observer; o < end; o++)
        if (o->loaded) o->loaded(o->self, run, step, rows);
    float loss_scale = run->scales.scaler.scale;
    r.loss = forward_backward(run, step, rows, loss_scale / (float)r.valid) / (double)r.valid;
    phases_enter(phases, PHASES_OPTIM);
    r.grad_norm = grad_norm(&run->optim, run->model, &run->scales, &run->replicas);
    phases_enter(phases, PHASES_OTHER);
    r.verdict = run_judge(run, step, r.loss, r.grad_norm);
    for (o = run->observer; o < end; o++)
        if (o->gradients) o->gradients(o->self, run, step, &r);

    // A batch that is skipped is gone: its samples count as taken, its gradient is zeroed, and neither weights nor
    // moments nor the optimizer's count of updates change.
    phases_enter(phases, PHASES_OPTIM);
    if (run->loads.E) loads_step(&run->loads, run->model, &run->replicas, r.verdict.action < MONITOR_SKIP);
    if (r.verdict.action < MONITOR_SKIP) optim_apply(&run->optim, run->model, r.grad_norm, r.lr);
    else optim_drop(run->model);
    replicas_updated(&run->replicas);
    phases_enter(phases, PHASES_OTHER);
    for (o = run->observer; o < end; o++)
        if (o->updated) o->updated(o->self, run, step);

    grads_scaler_update(&run->scales.scaler, isfinite(r.grad_norm));
    r.rescaled = run->scales.scaler.scale < loss_scale;
    r.seconds = clock_seconds() - begin;
    run->seconds += r.seconds;
    return r;
}

// ---- the loop

static bool due(long every, long step)
{
    return every > 0 && step % every == 0;
}

// A run of so many minutes evaluates at each tenth of them, and draws a sample in the middle.
static bool evaluates(const Run *run, long step, int tenth)
{
    return run_by_tenths(run) ? tenth > 0 : due(run->cfg.run.eval_every, step);
}
static bool samples(const Run *run, long step, int tenth)
{
    bool middle = run->pace.budget > 0 && !config_is_set(&run->cfg, "run.sample_every");
    return middle ? tenth == 5 : due(run->cfg.run.sample_every, step);
}

static void report_step(Run *run, long step, const StepResult *r)
{
    const ModelShape *shape = &run->model->shape;
    Phases *phases = &run->phases;
    double rate = (double)r->tokens / r->seconds, flops = model_flops_per_token(shape, shape->context) * rate;
    if (flops > run->peak) run->peak = flops, run->beaten = true;
    phases_enter(phases, PHASES_OTHER);
    progress_step(run->progress, &(MetricsRow){.step = step, .tokens = run_tokens(run, step), .loss = r->loss,
                  .lr = r->lr, .grad_norm = r->grad_norm, .dt_ms = 1e3 * r->seconds, .tok_s = rate,
                  .mfu = flops / run->peak,
                  .samples_s = rate / (double)shape->context, .data_ms = phases_take(phases, PHASES_DATA),
                  .forward_ms = phases_take(phases, PHASES_FORWARD),
                  .backward_ms = phases_take(phases, PHASES_BACKWARD), .comm_ms = phases_take(phases, PHASES_COMM),
                  .optim_ms = phases_take(phases, PHASES_OPTIM), .save_ms = phases_take(phases, PHASES_SAVE),
                  .eval_ms = phases_take(phases, PHASES_EVAL), .noise_scale = run->noise_scale,
                  .screened = (int64_t)run->data.screened,
                  .spikes = r->verdict.reason >= MONITOR_SPIKE && r->verdict.reason <= MONITOR_RATIO});
    run->noise_scale = 0;
}

// Returns the number of updates made; *stopped: a signal ended it.
static long loop(Run *run, bool *stopped)
{
    long step = run->first_step, *harmed = &run->saves.harmed;
    while (step < run->last_step && !(*stopped = replicas_any(&run->replicas, stop_asked))) {
        StepResult r = run_step(run, step++); // from here on `step` counts finished updates
        mem_seal(&run->mem);

        phases_enter(&run->phases, PHASES_SAVE);
        run_poll_saves(run);
        run_verdict(run, step, &r);
        bool finite = r.verdict.reason != MONITOR_NOT_FINITE;
        *harmed = finite || r.rescaled ? 0 : *harmed + 1; // the scaler has a limit of its own
        long reached = step;
        if (r.verdict.action == MONITOR_ROLLBACK) step = run_rollback(run, step, &r);
        if (step < reached) continue;
        if (*harmed == MAX_SKIPPED)
            die("step %ld: %ld updates in a row had no finite loss and gradient norm (try a lower --optim.lr)", step,
                *harmed);
        int tenth = run_pace(run, step, r.seconds);
        report_step(run, step, &r);
        if (step >= run->last_step) break;
        phases_enter(&run->phases, PHASES_EVAL);
        if (evaluates(run, step, tenth)) run_eval(run, step);
        if (due(run->cfg.eval.tasks_every, step)) run_tasks(run, step);
        if (samples(run, step, tenth)) run_sample(run, step);
        phases_enter(&run->phases, PHASES_SAVE);
        if (due(run->cfg.run.save_every, step)) run_save(run, step);
    }
    return step;
}

// run.minutes: the median time of a few updates of the fresh model, by rank 0's clock.
static double time_steps(Run *run)
{
    enum { TRIES = 50 };
    double time[TRIES], spent = 0; // in ascending order
    int n = 0;
    if (run->replicas.rank == 0) doing("timing a few updates");
    for (int i = 0; n < TRIES && (n < 1 || spent < 1); i++) {
        double seconds = run_step(run, i).seconds;
        replicas_tell(&run->replicas, &seconds, sizeof seconds);
        spent += seconds;
        if (i == 0) continue; // it touches the memory
        int at = n++;
        for (; at > 0 && time[at - 1] > seconds; at--) time[at] = time[at - 1];
        time[at] = seconds;
    }
    return time[n / 2];
}

// ---- devices

#ifdef TRAIN_GPU
static const RunDevice *const device_kind = &run_device_gpu;
#else
static const RunDevice *const device_kind; // NULL: the CPU
#endif

typedef struct {
    Dev *cpu, *own;                 // own: the device that computes; on the CPU it wraps `cpu`
    Dev *second, *reference, *both; // numerics.check: what it is compared with; the device that does both
    Comm *ranks;                    // for the memory of `own`
} Devices;

static Devices open_devices(const Config *cfg, Comm *world)
{
    const RunDevice *kind = device_kind;
    int threads = launch_threads(world, cfg->run.threads);
    if (!kind && cfg->run.device[0])
        die("run.device = %s: this program computes on the CPU (try build/train_gpu)", cfg->run.device);
    if (!kind && cfg->comm.backend != CONFIG_BACKEND_AUTO)
        die("comm.backend: this program computes on the CPU, and its ranks talk by MPI (try build/train_gpu)");
    dev_cpu_blas_room(threads, !kind && !cfg->run.peak);
    Devices d = {.cpu = dev_cpu_create(threads), .ranks = world};
    if (kind) {
        int host[world->size];
        comm_hosts(world, host);
        int number = launch_device(host, world->rank, cfg->run.device, kind->count());
        d.own = kind->open(cfg, number, d.cpu->threads);
        d.own->deterministic = cfg->numerics.deterministic;
        if (world->size > 1) d.ranks = kind->ranks(cfg, world, number, d.own);
    } else {
        d.own = run_device(cfg, d.cpu);
    }
    const char *override = cfg->numerics.override;
    if (*override) override_apply(d.own, override, kind ? kind->target : OVERRIDE_TARGET);
    if (!cfg->numerics.check) return d;
    Config other = *cfg; // the other order of sums
    if (!kind) other.numerics.deterministic = !cfg->numerics.deterministic;
    other.numerics.bf16_products = PRODUCTS_WIDENED; // the specification
    d.second = dev_cpu_create(threads);
    d.reference = run_device(&other, d.second);
    d.both = dev_check_create(d.own, d.reference);
    return d;
}

static void close_devices(const Devices *d, const Comm *world)
{
    if (d->ranks != world) device_kind->part(d->own, d->ranks);
    if (d->both) dev_check_free(d->both);
    if (d->second) run_device_free(d->reference, d->second);
    if (!device_kind) {
        run_device_free(d->own, d->cpu);
        return;
    }
    device_kind->close(d->own);
    dev_cpu_free(d->cpu);
}

// The table of numerics.check: of every rank on which an op left its bound, of rank 0 in any case. Collective; whether
// all ops of all ranks are within theirs, and those of numerics.override were called.
static bool within_bounds(Run *run, const Devices *d)
{
    Replicas *all = &run->replicas;
    if (!d->both) return true;
    bool within = dev_check_worst(d->both) <= 1;
    if (all->rank == 0) dev_check_print(d->both, progress_log(run->progress));
    for (int r = 0; r < all->size; r++) { // one after another
        if (r == all->rank && (r == 0 || !within)) {
            if (r) printf("rank %d:\n", r);
            dev_check_print(d->both, stdout);
            fflush(stdout);
        }
        replicas_wait(all);
    }
    if (!within)
        fprintf(stderr, "error: numerics.check: rank %d: an op left its bound (the table names it and the element)\n",
                all->rank);
    bool judged = override_judged(d->both, run->cfg.numerics.override, all);
    return !replicas_any(all, !within) && judged;
}

// ---- the program

static void add_observers(Run *run)
{
    const Config *cfg = &run->cfg;
    if (run->dev->mark) run_observe(run, observers_marks());
    if (*cfg->run.fault) run_observe(run, observers_faults(cfg));
    if (cfg->monitor.locate) run_observe(run, locate_observer(run->model));
    if (cfg->run.account) run_observe(run, sharding_account());
    if (cfg->run.trace) run_observe(run, trace_observer());
    if (cfg->run.noise_every) run_observe(run, observers_noise());
    if (cfg->run.dump) run_observe(run, observers_dump()); // after the noise scale, which runs micro-batches too
    if (run->loads.E) run_observe(run, observers_loads());
    if (cfg->run.norms_every) run_observe(run, observers_norms());
    if (cfg->monitor.agree_every) run_observe(run, observers_agree());
}

// The command that goes on with the run, for a shell.
static void going_on(const Run *run, int argc, char **argv, char *out, size_t size)
{
    const char *plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=,:+-%@";
    size_t n = 0;
    if (run->replicas.size > 1) n += (size_t)snprintf(out, size, "mpiexec -n %d ", run->replicas.size);
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "--ckpt.resume=", 14) || !strncmp(argv[i], "--run.name=", 11)) continue;
        if (n + 4 * strlen(argv[i]) + 2 * CONFIG_TEXT > size) { // too long to be shown
            n = (size_t)snprintf(out, size, "THE SAME COMMAND ");
            break;
        }
        bool quoted = argv[i][strspn(argv[i], plain)] || !*argv[i];
        if (quoted) out[n++] = '\'';
        for (const char *c = argv[i]; *c; c++)
            n += (size_t)snprintf(out + n, size - n, *c == '\'' ? "'\\'%c" : "%c", *c);
        n += (size_t)snprintf(out + n, size - n, quoted ? "' " : " ");
    }
    snprintf(out + n, size - n, "--run.name=%s --ckpt.resume=true", run->cfg.run.name);
}

// One process that holds everything is alone.
static Replicas join(const Config *cfg, Comm *ranks)
{
    bool alone = ranks->size == 1 && replicas_plain(cfg);
    return alone ? replicas_alone(comm_host(ranks)) : ranks_join(cfg, ranks, 0);
}

static void close_run(Run *run)
{
    run_close(run);
    if (run->replicas.kind) ranks_part(&run->replicas);
}

// What each rank of `world` does; the exit status. (Ranks may be threads: test/layouts.c.)
static int train(Comm *world, int argc, char **argv)
{
    static _Thread_local Config cfg;
    static _Thread_local Run run;
    config_defaults(&cfg);
    config_set_derived(&cfg, "parallel.ranks", world->size);
    config_parse(&cfg, argc, argv);
    config_resolve(&cfg);
    stop_listen_to_pipes();
    launch_agree(world, &cfg);
    Devices devices = open_devices(&cfg, world);
    Link link[LINKS_KINDS];
    if (cfg.comm.measure) links_measure(world, link); // before comm.slow_alpha is in front of the ranks
    Dev *dev = devices.both ? devices.both : devices.own;
    run_open(&run, &cfg, dev, join(&cfg, devices.ranks));
    if (run_wants_timing(&run)) { // and begins anew: nothing of the updates that were timed is left
        run_plan(&run, time_steps(&run));
        cfg = run.cfg;
        close_run(&run);
        run_open(&run, &cfg, dev, join(&cfg, devices.ranks));
    }
    add_observers(&run);
    run_begin(&run);
    launch_places(world, stdout);
    if (cfg.comm.measure && world->rank == 0) links_report(link, run.dir);
    stop_listen();

    bool stopped = false;
    long step = loop(&run, &stopped);
    if (stop_unread && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) clearerr(stdout);

    bool saved = run_saved(&run, step);
    if (!stopped) run_sample(&run, step);
    bool right = within_bounds(&run, &devices);
    char command[4096];
    going_on(&run, argc, argv, command, sizeof command);
    run_end(&run, step, stopped, command);
    close_run(&run);
    close_devices(&devices, world);
    return saved && right ? 0 : 1;
}

int main(int argc, char **argv)
{
    dev_cpu_choose_blas(argv);
    config_help(argc, argv); // before there are ranks, who would miss one that leaves
    Comm *world = launch_start(argv);
    int status = train(world, argc, argv);
    launch_stop(world);
    return status;
}
