// Checkpoints written in the background: the same bytes as those that training waits for; what training changes
// meanwhile is not in them; at most two at a time, committed in order; an error affects only its own save.
#include "dev/check/comm_threads.h"
#include "ckpt/ckpt.h"
#include "base/clock.h"
#include "layout_case.h"

#include <pthread.h>

// ---- fsync: nothing, or a disk that hangs while the gate is closed, or one that fails on one file

static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool closed;
    const char *fails; // end of a file's name
    int calls;
} disk = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, NULL, 0};

int fsync(int fd)
{
    char link[64], path[600] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return -1;
    pthread_mutex_lock(&disk.lock);
    disk.calls++;
    while (disk.closed && strstr(path, ".safetensors")) pthread_cond_wait(&disk.opened, &disk.lock);
    bool fails = disk.fails && strstr(path, disk.fails);
    pthread_mutex_unlock(&disk.lock);
    errno = EIO;
    return fails ? -1 : 0;
}

static void gate(bool closed)
{
    pthread_mutex_lock(&disk.lock);
    disk.closed = closed;
    pthread_cond_broadcast(&disk.opened);
    pthread_mutex_unlock(&disk.lock);
}

static void fail_on(const char *name)
{
    pthread_mutex_lock(&disk.lock);
    disk.fails = name;
    pthread_mutex_unlock(&disk.lock);
}

// ---- one rank

typedef struct {
    Rank rank;
    CkptRun run;
    CkptPart part;
    CkptAsync *async;
    double number;
    bool first; // rank 0, which alone may look at the outside
    Comm *world;
} Writer;

static void writer_open(Writer *w, Comm *world, const Play *p)
{
    *w = (Writer){.world = world, .first = world->rank == 0,
                  .run = {.run_dir = p->run_dir, .world = world, .keep = p->keep ? p->keep : 9}};
    rank_open(&w->rank, p->layout, world->rank, p->optim, p->shape);
    rank_walk(&w->rank, true);
    w->part = zero_part(&w->rank.zero, &w->rank.optim, true, w->rank.replica, p->layout->replicas);
    if (w->part.n) w->part.piece = realloc(w->part.piece, (size_t)w->part.n * sizeof *w->part.piece); // none to spare
    assert_non_null(w->part.piece);
    w->async = ckpt_async_create(&w->run, &w->part, &w->rank.mem);
}

static void writer_close(Writer *w)
{
    ckpt_async_free(w->async);
    zero_part_free(&w->part);
    rank_close(&w->rank);
}

static void save_async(Writer *w, long step)
{
    w->number = (double)step / 3;
    CkptExtra extra = {"number", 1, &w->number};
    CkptState state = {.step = step, .sample = (uint64_t)step * 8, .best_val = INFINITY,
                       .optim = w->rank.optim.kind->name, .extra = &extra, .n_extra = 1};
    ckpt_async_save(w->async, &state);
    w->number = -1; // the run goes on
}

static void barrier(Writer *w)
{
    CommRequest request = comm_barrier(w->world);
    comm_wait(w->world, &request);
}

// For all ranks in turn: what only one may do.
static void set_gate(Writer *w, bool closed)
{
    barrier(w);
    if (w->first) gate(closed);
    barrier(w);
}

#define EXPECT(p, w, condition) \
    do { \
        if (!(condition) && !(p)->wrong[(w)->world->rank]) (p)->wrong[(w)->world->rank] = __LINE__; \
    } while (0)

static void play(Case *c, void (*body)(Comm *, void *), Play *p)
{
    p->run_dir = c->run, p->optim = OPTIM_ADAMW, p->shape = &llama;
    comm_threads_run(world_of(p->layout), body, p);
    for (int r = 0; r < world_of(p->layout); r++)
        if (p->wrong[r]) fail_msg("rank %d: the expectation of line %d", r, p->wrong[r]);
}

static const Layout four = {2, 1, 2, 1, false, false, 0};

static long newest(Case *c, const Layout *l)
{
    Play load = {.layout = l, .run_dir = c->run, .optim = OPTIM_ADAMW, .shape = &llama};
    comm_threads_run(world_of(l), play_load, &load);
    for (int r = 0; r < world_of(l); r++) assert_int_equal(load.wrong[r], 0);
    assert_true(load.step < 0 || load.extra[0] == (double)load.step / 3);
    return load.step;
}

// ---- tests

static void play_one(Comm *world, void *arg)
{
    double began = clock_seconds();
    Play *p = arg;
    Writer w;
    CkptDone done;
    writer_open(&w, world, p);
    EXPECT(p, &w, !ckpt_async_poll(w.async, true, &done));
    save_async(&w, p->step);
    EXPECT(p, &w, ckpt_async_poll(w.async, true, &done));
    EXPECT(p, &w, done.ok && done.step == p->step && done.n_bytes > 0 && done.seconds > 0 && done.stalled > 0);
    EXPECT(p, &w, done.seconds < clock_seconds() - began && done.stalled < clock_seconds() - began);
    EXPECT(p, &w, done.busy > 0 && done.busy <= done.seconds + 1e-3); // read one behind the other
    EXPECT(p, &w, !ckpt_async_poll(w.async, false, &done));
    EXPECT(p, &w, w.rank.mem.tag_bytes[MEM_HOST] >= CKPT_ASYNC_SAVES * ckpt_async_bytes(&w.part));
    writer_close(&w);
}

// File by file.
static void expect_same_directory(Case *c, const char *a, const char *b)
{
    char command[1400], path[600];
    snprintf(path, sizeof path, "%s", path_of(c, ""));
    snprintf(command, sizeof command, "diff -r '%s/../../%s' '%s/../../%s'", path, a, path, b);
    assert_int_equal(system(command), 0);
}

CKPT_TEST(test_same_bytes)
{
    static const Layout layouts[] = {{1, 1, 1, 0, false, false, 0}, {2, 2, 2, 1, false, false, 0},
                                     {1, 1, 3, 3, true, false, 0}};
    Case *c = *state;
    char root[256], whole[320];
    snprintf(root, sizeof root, "%s", c->root);
    snprintf(whole, sizeof whole, "%s", c->run);
    for (int i = 0; i < 3; i++) {
        Play p = {.layout = &layouts[i], .step = 4 + i};
        snprintf(c->run, sizeof c->run, "%.250s/beside", root);
        play(c, play_one, &p);
        snprintf(c->run, sizeof c->run, "%.250s/waited", root);
        Play q = {.layout = &layouts[i], .step = 4 + i};
        play(c, play_save, &q);
        assert_true(q.ok[0]);
        assert_int_equal(newest(c, &four), 4 + i);
        expect_same_directory(c, "beside/checkpoints", "waited/checkpoints");
    }
}

// The disk hangs. Training goes on and changes everything; a second save is taken, a third has to wait. Then all
// come to an end, in order, with what was there when they began.
static void play_slow_disk(Comm *world, void *arg)
{
    Play *p = arg;
    Writer w;
    CkptDone done;
    writer_open(&w, world, p);
    set_gate(&w, true);
    save_async(&w, 1);
    for (int i = 0; i < 5; i++) EXPECT(p, &w, !ckpt_async_poll(w.async, false, &done));
    EXPECT(p, &w, !ckpt_async_full(w.async, 2) && ckpt_async_full(w.async, 1)); // one of a step at a time
    save_async(&w, 2);
    for (int i = 0; i < 5; i++) EXPECT(p, &w, !ckpt_async_poll(w.async, false, &done));
    EXPECT(p, &w, ckpt_async_full(w.async, 3));
    for (int u = 0; u < w.rank.model.n_units; u++) { // an update
        const OptimRange *range = &w.rank.zero.range[u];
        memset(range->weight, 0x55, (range->end - range->begin) * sizeof *range->weight);
    }
    set_gate(&w, false);
    EXPECT(p, &w, ckpt_async_poll(w.async, true, &done) && done.ok && done.step == 1);
    EXPECT(p, &w, !ckpt_async_full(w.async, 3));
    rank_walk(&w.rank, true);
    save_async(&w, 3);
    while (!ckpt_async_poll(w.async, false, &done)) continue; // without waiting, too
    EXPECT(p, &w, done.ok && done.step == 2);
    EXPECT(p, &w, ckpt_async_poll(w.async, true, &done) && done.ok && done.step == 3);
    EXPECT(p, &w, !ckpt_async_poll(w.async, true, &done));
    writer_close(&w);
}

CKPT_TEST(test_slow_disk)
{
    Case *c = *state;
    Play p = {.layout = &four};
    play(c, play_slow_disk, &p);
    for (long step = 3; step >= 1; step--) {
        assert_int_equal(newest(c, &four), step); // the bits of before the update
        char command[700];
        snprintf(command, sizeof command, "rm -r '%s/checkpoints/step_%08ld'", c->run, step);
        assert_int_equal(system(command), 0);
    }
}

// One rank's disk fails in one of two saves: that one is not committed, and says on which rank; the others are.
static void play_failing_disk(Comm *world, void *arg)
{
    Play *p = arg;
    Writer w;
    CkptDone done;
    writer_open(&w, world, p);
    if (w.first) fail_on("step_00000002.tmp/optim_00003");
    barrier(&w);
    save_async(&w, 1);
    save_async(&w, 2);
    EXPECT(p, &w, ckpt_async_poll(w.async, true, &done) && done.ok && done.step == 1);
    EXPECT(p, &w, ckpt_async_poll(w.async, true, &done) && !done.ok && done.step == 2);
    EXPECT(p, &w, strstr(done.error, "rank 3: ") && strstr(done.error, "optim_00003.safetensors: cannot fsync: "));
    barrier(&w);
    if (w.first) fail_on("step_00000003.tmp/manifest");
    barrier(&w);
    save_async(&w, 3);
    EXPECT(p, &w, ckpt_async_poll(w.async, true, &done) && !done.ok);
    EXPECT(p, &w, strstr(done.error, "manifest.json: cannot write"));
    barrier(&w);
    if (w.first) fail_on(NULL);
    barrier(&w);
    save_async(&w, p->step);
    EXPECT(p, &w, ckpt_async_poll(w.async, true, &done) && done.ok);
    writer_close(&w);
}

CKPT_TEST(test_failing_disk)
{
    Case *c = *state;
    Play p = {.layout = &four, .step = 2};
    play(c, play_failing_disk, &p);
    assert_int_equal(newest(c, &four), 2);
    assert_true(exists(c, "step_00000001"));
    assert_false(exists(c, "step_00000002.tmp") || exists(c, "step_00000003.tmp") || exists(c, "step_00000003"));
}

// A run that ends with a save on its way: nothing hangs, nothing is half there.
static void play_left(Comm *world, void *arg)
{
    Play *p = arg;
    Writer w;
    writer_open(&w, world, p);
    save_async(&w, 1);
    save_async(&w, 2);
    writer_close(&w);
    p->ok[world->rank] = true;
}

CKPT_TEST(test_not_waited_for)
{
    Case *c = *state;
    Play p = {.layout = &four};
    play(c, play_left, &p);
    assert_int_equal(newest(c, &four), -1);
    assert_false(exists(c, "step_00000001") || exists(c, "step_00000001.tmp"));
}

TESTS(NULL, NULL)
