// No failure and no kill at any system call of a save costs the checkpoint before it. The system calls are
// replaced below, so that the n-th can fail, and so that their order can be read.
#define _GNU_SOURCE
#include "dev/check/comm_threads.h"
#include "layout_case.h"

#include <fcntl.h>
#include <sys/syscall.h>

// ---- the system calls of a save, with faults on demand

typedef enum { NO_FAULT, FAIL_ONCE, KILL, SHORT_AND_EINTR } Fault;
static struct {
    Fault fault;
    int countdown; // FAIL_ONCE and KILL: the call at which it reaches 0
    int calls, error;
} fault;

// "fsync FILE", "rename TO": what a save did, in order, by base name.
static struct {
    char text[2000];
    size_t n;
} trace;

static void note(const char *call, const char *path)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    trace.n += (size_t)snprintf(trace.text + trace.n, sizeof trace.text - trace.n, "%s %s\n", call, base);
    if (trace.n > 1900) trace.n = 0;
}

// True when this call is to fail; errno says how.
static bool struck(void)
{
    if (fault.fault != FAIL_ONCE && fault.fault != KILL) return false;
    __atomic_fetch_add(&fault.calls, 1, __ATOMIC_RELAXED); // ranks are threads
    if (__atomic_sub_fetch(&fault.countdown, 1, __ATOMIC_RELAXED) != 0) return false;
    if (fault.fault == KILL) _exit(77);
    errno = fault.error;
    return true;
}

ssize_t write(int fd, const void *data, size_t n)
{
    if (struck()) return -1;
    if (fault.fault == SHORT_AND_EINTR) {
        if (++fault.calls % 2) {
            errno = EINTR;
            return -1;
        }
        n = n > 100 ? 100 : n;
    }
    return syscall(SYS_write, fd, data, n);
}
// Only noted, not done: a kill does not lose what the kernel holds, and the real one is slow.
int fsync(int fd)
{
    char link[64], path[600] = "";
    if (struck()) return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return -1;
    note("fsync", path);
    return 0;
}
int mkdir(const char *path, mode_t mode)
{
    return struck() ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
int rename(const char *from, const char *to)
{
    if (struck()) return -1;
    note("rename", to);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat2(int fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (struck()) return -1;
    note("exchange", to);
    return (int)syscall(SYS_renameat2, fd, from, to_fd, to, flags);
}
int unlinkat(int fd, const char *path, int flags)
{
    return struck() ? -1 : (int)syscall(SYS_unlinkat, fd, path, flags);
}
int rmdir(const char *path)
{
    return struck() ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

// ---- tests

// What a kill cannot show and a power loss would: each file is durable before it gets its name, and the
// name after.
CKPT_TEST(test_order_of_a_commit)
{
    Case *c = *state;
    char expected[600];
    memset(&trace, 0, sizeof trace);
    assert_true(save(c, 1, 1));
    snprintf(expected, sizeof expected, "fsync %s\n%s", strrchr(c->root, '/') + 1,
             "fsync run\nfsync model.safetensors\nfsync optim.safetensors\nfsync manifest.json\n"
             "fsync step_00000001.tmp\nrename step_00000001\nfsync checkpoints\n"
             "fsync latest.tmp\nrename latest\nfsync checkpoints\n");
    assert_string_equal(trace.text, expected);
    memset(&trace, 0, sizeof trace);
    assert_true(save(c, 1, 1));
    assert_non_null(
        strstr(trace.text, "fsync step_00000001.tmp\nexchange step_00000001\nfsync checkpoints\n"));
    memset(&trace, 0, sizeof trace);
    assert_true(save(c, 2, 1)); // the old one goes last
    assert_non_null(strstr(trace.text, "rename latest\nfsync checkpoints\nrename step_00000001.tmp\n"));
}

CKPT_TEST(test_short_writes)
{
    Case *c = *state;
    fault.fault = SHORT_AND_EINTR;
    assert_true(save(c, 1, 1));
    assert_true(fault.calls > 20);
    fault.fault = NO_FAULT;
    assert_int_equal(load(c), 1);
}

// Step 1 is there. Step `second` is saved with the n-th system call failing, for n = 1, 2, ... until none
// fails. A save that reports failure leaves step 1; one that reports success left step 2; the save after
// it works.
static void fail_each_call(Case *c, long second)
{
    static const int errors[] = {ENOSPC, EIO};
    int n = 1;
    for (bool fired = true; fired; n++) {
        char command[500];
        fault.fault = NO_FAULT;
        snprintf(command, sizeof command, "rm -rf '%s'", c->run);
        assert_int_equal(system(command), 0);
        assert_true(save(c, 1, 2));
        fill(c, second);
        c->state.tokens = 99; // tells a replaced step 1 from the first
        fault = (typeof(fault)){.fault = FAIL_ONCE, .countdown = n, .error = errors[n % 2]};
        char error[1024] = "";
        bool ok =
            save_as_is(c, 1, error, sizeof error);
        fired = fault.countdown <= 0;
        fault.fault = NO_FAULT;
        assert_int_equal(ok, error[0] == 0);
        assert_true(load_newest(c));
        if (ok != (c->state.tokens == 99))
            fail_msg("call %d fails: save says %s, step %ld comes back: %s", n, ok ? "saved" : "failed",
                     c->state.step, error);
        assert_int_equal(c->state.step, ok ? second : 1);
        assert_true(save(c, second + 1, 1));
        assert_int_equal(load(c), second + 1);
    }
    assert_true(n > 15); // the faults really happened
}

CKPT_TEST(test_each_call_fails)
{
    Case *c = *state;
    char path[400];
    snprintf(path, sizeof path, "%s/warnings",
             c->root); // a failure behind the commit is a warning: not shown here
    fflush(stderr);
    int saved = dup(2);
    assert_non_null(freopen(path, "w", stderr));
    fail_each_call(c, 2);
    fail_each_call(c, 1); // replaces the checkpoint of the same step
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
}

// The same with the process killed at the n-th call: what was there, or the new one, but always one.
CKPT_TEST(test_killed_at_each_call)
{
    Case *c = *state;
    int old = 0, new = 0;
    for (long second = 1; second <= 2; second++) {
        int status = 77;
        for (int n = 1; status == 77; n++) {
            char command[500];
            snprintf(command, sizeof command, "rm -rf '%s'", c->run);
            assert_int_equal(system(command), 0);
            assert_true(save(c, 1, 1));
            pid_t pid = fork();
            if (pid == 0) {
                char error[1024];
                fill(c, second);
                c->state.tokens = 99;
                fault = (typeof(fault)){.fault = KILL, .countdown = n};
                _exit(!save_as_is(c, 1, error, sizeof error));
            }
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_true(WIFEXITED(status));
            status = WEXITSTATUS(status);
            assert_true(status == 77 || status == 0);
            assert_true(load_newest(c));
            bool is_new = c->state.tokens == 99;
            assert_int_equal(c->state.step, is_new ? second : 1);
            *(is_new ? &new : &old) += 1;
            assert_false(exists(c, "step_00000001.tmp") || exists(c, "step_00000002.tmp"));
        }
    }
    assert_true(old > 10 && new > 5);
}

// Two ranks, either of which meets a call that fails, or is the last before both are killed.
static const Layout two = {1, 1, 2, 1, false, false, 0};
static const ModelShape tiny = {.layers = 1, .channels = 2, .heads = 1, .kv_heads = 1, .head_size = 2, .ffn = 2,
                                .vocab = 3, .context = 2, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .tie = true};

static Play play_step(Case *c, long step)
{
    return (Play){.run_dir = c->run, .layout = &two, .optim = OPTIM_LION, .shape = &tiny, .step = step, .keep = 1};
}

static void save_step(Case *c, long step)
{
    char command[500];
    snprintf(command, sizeof command, "rm -rf '%s'", c->run);
    assert_int_equal(system(command), 0);
    Play p = play_step(c, step);
    comm_threads_run(2, play_save, &p);
    assert_true(p.ok[0]);
}

static long load_step(Case *c)
{
    Play p = play_step(c, 0);
    comm_threads_run(2, play_load, &p);
    for (int r = 0; r < 2; r++) assert_true(p.ok[r] && !p.wrong[r]);
    return p.step;
}

CKPT_TEST(test_each_call_of_ranks_fails)
{
    Case *c = *state;
    char path[400];
    snprintf(path, sizeof path, "%s/warnings", c->root);
    fflush(stderr);
    int saved = dup(2), n = 1;
    assert_non_null(freopen(path, "w", stderr));
    for (bool fired = true; fired; n++) {
        fault.fault = NO_FAULT;
        save_step(c, 1);
        Play p = play_step(c, 2);
        fault = (typeof(fault)){.fault = FAIL_ONCE, .countdown = n, .error = n % 2 ? EIO : ENOSPC};
        comm_threads_run(2, play_save, &p);
        fired = fault.countdown <= 0;
        fault.fault = NO_FAULT;
        for (int r = 0; r < 2; r++) { // the same verdict, with a reason
            assert_int_equal(p.ok[r], p.ok[0]);
            assert_int_equal(p.ok[r], p.error[r][0] == 0);
        }
        long step = load_step(c);
        if (step != (p.ok[0] ? 2 : 1)) fail_msg("call %d fails: saved %d, step %ld comes back", n, p.ok[0], step);
    }
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    assert_true(n > 30);
}

CKPT_TEST(test_ranks_killed_at_each_call)
{
    Case *c = *state;
    int status = 77, old = 0, new = 0;
    for (int n = 1; status == 77; n++) {
        save_step(c, 1);
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            Play p = play_step(c, 2);
            fault = (typeof(fault)){.fault = KILL, .countdown = n};
            comm_threads_run(2, play_save, &p);
            _exit(!p.ok[0]);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        status = WEXITSTATUS(status);
        assert_true(status == 77 || status == 0);
        long step = load_step(c);
        assert_true(step == 1 || step == 2);
        *(step == 2 ? &new : &old) += 1;
        assert_false(exists(c, "step_00000001.tmp") || exists(c, "step_00000002.tmp"));
    }
    assert_true(old > 20 && new > 5);
}

TESTS(NULL, NULL)
