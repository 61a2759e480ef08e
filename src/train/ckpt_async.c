// ckpt_async: checkpoints that are written while training goes on. See ckpt_async.h.
//
// Training stands still for a copy in memory; the disk works beside it. Of each save, on each rank:
//
//     trains      begin | copy |  step  | poll | step | poll: collect | step | poll: end
//     its thread               | write, fsync         |               | commit (rank 0)
//
// The steps are those of any save (ckpt_job.c), so the files are the same bytes. Ranks talk at the borders of steps
// alone, where all of them are: the thread makes no call of comm, and a poll asks no more than whether everybody
// has got so far. When rank 0 knows that all have written, its thread commits; the verdict comes with a later poll.
//
// The invariant: a snapshot is written by the training thread while its slot is new, and read by the thread until
// the slot is idle again; the lock passes it from one to the other. One thread writes, so there are never two
// writers, and saves are committed in the order in which they were begun.
//
// Two saves may be on their way. A third waits for the first, and says for how long: a disk that is slower than the
// run's saves has to be seen. An error is an error of that save alone: what was committed before stays, and the
// next one tries again.
//
// Rejected: a child process that inherits the memory (fork in a process that holds MPI and a GPU is not allowed);
// writing from the weights themselves while the next forward runs (the update must then wait for the disk); a queue
// without a bound (it hides a slow disk until memory ends).
#include "train/ckpt_async.h"

#include "base/check.h"
#include "train/ckpt_job.h"
#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { IDLE, WRITE, COMMIT } Task;

typedef struct {
    enum { FREE, WRITING, COMMITTING } phase; // for the training thread; the same on all ranks
    Task task;                                // what the thread is to do, or does; behind the lock
    long serial;
    char *data; // the snapshot
    CkptJob job;
    CkptExtra *extra;
    double seconds, busy, stalled;
} Slot;

struct CkptAsync {
    CkptRun run;
    const CkptPart *part;
    size_t n_bytes;
    Slot slot[CKPT_ASYNC_SAVES];
    long serial; // of the next save
    bool threaded, stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

size_t ckpt_async_bytes(const CkptPart *part)
{
    return ckpt_job_snapshot_bytes(part);
}

CkptAsync *ckpt_async_create(const CkptRun *run, const CkptPart *part, Mem *host)
{
    CkptAsync *a = calloc(1, sizeof *a);
    if (!a) die("ckpt: no memory");
    a->run = *run, a->part = part;
    for (int i = 0; i < part->n; i++) a->n_bytes += ckpt_job_piece_bytes(part, &part->piece[i]);
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++)
        a->slot[i].data = mem_alloc(host, MEM_HOST, ckpt_async_bytes(part), "a checkpoint's snapshot");
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    return a;
}

// ---- the thread

// The next slot with something to do: a commit before a write, for it belongs to an older save.
static Slot *next_task(CkptAsync *a)
{
    Slot *next = NULL;
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++) {
        Slot *s = &a->slot[i];
        if (s->task != IDLE && (!next || s->serial < next->serial)) next = s;
    }
    return next;
}

// Seconds of a processor that this thread has had.
static double busy_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *work(void *arg)
{
    CkptAsync *a = arg;
    pthread_mutex_lock(&a->lock);
    while (true) {
        Slot *s = next_task(a);
        if (!s && a->stop) break;
        if (!s) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        Task task = s->task;
        pthread_mutex_unlock(&a->lock);
        double begin = clock_seconds(), busy = busy_seconds();
        if (task == WRITE) ckpt_job_write(&s->job, s->data);
        else ckpt_job_commit(&s->job);
        s->seconds += clock_seconds() - begin;
        s->busy += busy_seconds() - busy;
        pthread_mutex_lock(&a->lock);
        s->task = IDLE;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

// Signals are for the thread that trains.
static void start_thread(CkptAsync *a)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&a->thread, NULL, work, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) die("ckpt.async: no thread: %s (try --ckpt.async=false)", strerror(error));
    a->threaded = true;
}

static void hand(CkptAsync *a, Slot *s, Task task)
{
    pthread_mutex_lock(&a->lock);
    s->task = task;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

// Whether the thread is done with the slot.
static bool idle(CkptAsync *a, const Slot *s, bool wait)
{
    pthread_mutex_lock(&a->lock);
    while (wait && s->task != IDLE) pthread_cond_wait(&a->changed, &a->lock);
    bool is = s->task == IDLE;
    pthread_mutex_unlock(&a->lock);
    return is;
}

// ---- saves

static void release(Slot *s)
{
    for (int i = 0; s->extra && i < s->job.state.n_extra; i++) free(s->extra[i].value);
    free(s->extra);
    s->extra = NULL;
    s->phase = FREE;
}

// The numbers of a state may change before they are written.
static CkptState own_state(Slot *s, const CkptState *state)
{
    CkptState own = *state;
    s->extra = calloc((size_t)state->n_extra + 1, sizeof *s->extra);
    if (!s->extra) die("ckpt: no memory");
    for (int i = 0; i < state->n_extra; i++) {
        const CkptExtra *extra = &state->extra[i];
        s->extra[i] = *extra;
        s->extra[i].value = malloc((extra->n + 1) * sizeof *extra->value);
        if (!s->extra[i].value) die("ckpt: no memory for %zu numbers", extra->n);
        memcpy(s->extra[i].value, extra->value, extra->n * sizeof *extra->value);
    }
    own.extra = s->extra;
    return own;
}

bool ckpt_async_full(const CkptAsync *a, long step)
{
    bool full = true;
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++) {
        if (a->slot[i].phase == FREE) full = false;
        else if (a->slot[i].job.state.step == step) return true;
    }
    return full;
}

void ckpt_async_save(CkptAsync *a, const CkptState *state)
{
    double begin = clock_seconds();
    int i = 0;
    check(!ckpt_async_full(a, state->step));
    while (a->slot[i].phase != FREE) i++;
    Slot *s = &a->slot[i];
    if (!a->threaded) start_thread(a);
    CkptState own = own_state(s, state);
    ckpt_job_begin(&s->job, &a->run, &own, a->part);
    size_t at = 0;
    for (int k = 0; k < a->part->n; k++) {
        const CkptPiece *piece = &a->part->piece[k];
        a->part->move(a->part->self, piece, s->data + at, true);
        at += (ckpt_job_piece_bytes(a->part, piece) + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN;
    }
    s->phase = WRITING;
    s->serial = a->serial++;
    s->seconds = s->busy = 0;
    hand(a, s, WRITE);
    s->stalled = clock_seconds() - begin;
}

static Slot *oldest(CkptAsync *a)
{
    Slot *found = NULL;
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++) {
        Slot *s = &a->slot[i];
        if (s->phase != FREE && (!found || s->serial < found->serial)) found = s;
    }
    return found;
}

// Whether the threads of all ranks are done with a slot.
static bool all_idle(CkptAsync *a, const Slot *s, bool wait)
{
    char unused[8];
    return ckpt_agree(a->run.world, idle(a, s, wait), (CkptFailure){unused, sizeof unused});
}

// As far as the oldest save gets now. True: to its end.
static bool advance(CkptAsync *a, Slot *s, bool wait, CkptDone *done)
{
    if (s->phase == WRITING) {
        if (!all_idle(a, s, wait)) return false;
        ckpt_job_collect(&s->job);
        s->phase = COMMITTING;
        if (s->job.rank == 0) hand(a, s, COMMIT);
    }
    if (!all_idle(a, s, wait)) return false;
    done->ok = ckpt_job_end(&s->job, done->error, sizeof done->error);
    return true;
}

bool ckpt_async_poll(CkptAsync *a, bool wait, CkptDone *done)
{
    Slot *s = oldest(a);
    if (!s) return false;
    double begin = clock_seconds();
    *done = (CkptDone){.step = s->job.state.step};
    bool ended = advance(a, s, wait, done);
    s->stalled += clock_seconds() - begin;
    if (!ended) return false;
    done->n_bytes = a->n_bytes, done->seconds = s->seconds, done->stalled = s->stalled;
    done->busy = s->busy;
    release(s);
    return true;
}

void ckpt_async_free(CkptAsync *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->threaded) pthread_join(a->thread, NULL);
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++) {
        if (a->slot[i].phase == FREE) continue;
        free(a->slot[i].job.record), free(a->slot[i].job.report);
        release(&a->slot[i]);
    }
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a);
}
