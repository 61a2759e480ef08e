// A power failure. The disk then holds what was fsynced, and any part of the rest: a file that was written but not
// synced is whole, empty, truncated, or full of zeros; after a rename whose directory was not synced, the name is the
// new one or the old one. (POSIX promises no more; "All file systems are not created equal", Pillai et al., OSDI 2014,
// found file systems that do no more, and programs that relied on more.)
//
// The system calls of several saves are recorded. A state is an instant between two of them, and a choice for
// everything that was not synced by then. It is put on disk, and the run is resumed from it: it must find the newest
// checkpoint whose save had returned, or the one that was being made, with all bits right; and it must save again.
//
// usage: test_ckpt_power [STATES]     1000 for each of the two tests
#define _GNU_SOURCE
#include "dev/check/comm_threads.h"
#include "layout_case.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>

// ---- the record

typedef enum { WRITE, NAME, UNNAME, EXCHANGE, SYNC } Kind;
typedef struct {
    Kind kind;
    int inode;      // WRITE, SYNC: whose; NAME: that gets the name
    int dir, other; // NAME, UNNAME, EXCHANGE: in this directory; other: that had the other name
    char name[64], from[64]; // NAME: from: the name that it had before in the same directory, or ""
    size_t at, n;   // WRITE: n bytes of `data`, at `at` in the file
    char *data;
} Call;

enum { CALLS = 4000, INODES = 400, FDS = 256, NAMES = 400 };
static struct {
    pthread_mutex_t lock;
    bool on;
    char root[300];
    Call call[CALLS];
    int n, inodes;
    bool is_dir[INODES];
    size_t size[INODES];
    int fd_inode[FDS];
    size_t fd_at[FDS];
    struct {
        int dir, inode;
        char name[64];
    } entry[NAMES]; // what the names stand for now
    int entries;
} rec;

static int *look_up(int dir, const char *name)
{
    for (int i = 0; i < rec.entries; i++)
        if (rec.entry[i].dir == dir && !strcmp(rec.entry[i].name, name)) return &rec.entry[i].inode;
    return NULL;
}

static void set_name(int dir, const char *name, int inode) // -1: none
{
    int *there = look_up(dir, name);
    if (there) {
        *there = inode;
        if (inode >= 0) return;
        int i = (int)((size_t)((char *)there - (char *)rec.entry) / sizeof *rec.entry);
        rec.entry[i] = rec.entry[--rec.entries];
    } else if (inode >= 0) {
        if (rec.entries == NAMES) abort();
        rec.entry[rec.entries].dir = dir;
        rec.entry[rec.entries].inode = inode;
        snprintf(rec.entry[rec.entries++].name, 64, "%s", name);
    }
}

// The inode of a path below the root (inode 0), -1: none; sets dir and name for its last part.
static int resolve(const char *path, int *dir, char name[64])
{
    size_t n = strlen(rec.root);
    if (!rec.on || strncmp(path, rec.root, n)) return -1;
    int at = 0;
    *dir = -1;
    snprintf(name, 64, "%s", "");
    for (path += n; *path;) {
        while (*path == '/') path++;
        size_t len = strcspn(path, "/");
        if (!len) break;
        *dir = at;
        snprintf(name, 64, "%.*s", (int)len, path);
        path += len;
        int *next = at >= 0 ? look_up(at, name) : NULL;
        at = next ? *next : -1;
    }
    return at;
}

static Call *note(Kind kind)
{
    if (rec.n == CALLS) abort();
    rec.call[rec.n] = (Call){.kind = kind};
    return &rec.call[rec.n++];
}

static int new_inode(bool is_dir)
{
    if (rec.inodes == INODES) abort();
    rec.is_dir[rec.inodes] = is_dir;
    return rec.inodes++;
}

static void note_name(int dir, const char *name, int inode, const char *from)
{
    Call *c = note(NAME);
    c->dir = dir, c->inode = inode;
    snprintf(c->name, 64, "%s", name);
    snprintf(c->from, 64, "%s", from);
    if (*from) set_name(dir, from, -1);
    set_name(dir, name, inode);
}

static void note_unname(int dir, const char *name)
{
    Call *c = note(UNNAME);
    c->dir = dir;
    snprintf(c->name, 64, "%s", name);
    set_name(dir, name, -1);
}

// ---- the system calls: done, and noted where they succeed below the root

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    char name[64];
    int dir, fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    pthread_mutex_lock(&rec.lock);
    if (fd >= 0 && fd < FDS) {
        int inode = resolve(path, &dir, name);
        if (inode < 0 && rec.on && (flags & O_CREAT) && !strncmp(path, rec.root, strlen(rec.root))) {
            inode = new_inode(false);
            note_name(dir, name, inode, "");
        }
        rec.fd_inode[fd] = inode;
        rec.fd_at[fd] = 0;
    }
    pthread_mutex_unlock(&rec.lock);
    return fd;
}

ssize_t write(int fd, const void *data, size_t n)
{
    ssize_t done = syscall(SYS_write, fd, data, n);
    pthread_mutex_lock(&rec.lock);
    if (rec.on && done > 0 && fd < FDS && rec.fd_inode[fd] > 0) {
        Call *c = note(WRITE);
        c->inode = rec.fd_inode[fd], c->at = rec.fd_at[fd], c->n = (size_t)done;
        c->data = malloc(c->n);
        if (!c->data) abort();
        memcpy(c->data, data, c->n);
        rec.fd_at[fd] += c->n;
    }
    pthread_mutex_unlock(&rec.lock);
    return done;
}

int close(int fd)
{
    pthread_mutex_lock(&rec.lock);
    if (fd >= 0 && fd < FDS) rec.fd_inode[fd] = -1;
    pthread_mutex_unlock(&rec.lock);
    return (int)syscall(SYS_close, fd);
}

int fsync(int fd) // not done: nothing is lost here but what we take away
{
    pthread_mutex_lock(&rec.lock);
    if (rec.on && fd < FDS && rec.fd_inode[fd] >= 0) note(SYNC)->inode = rec.fd_inode[fd];
    pthread_mutex_unlock(&rec.lock);
    return 0;
}

int mkdir(const char *path, mode_t mode)
{
    char name[64];
    int dir, status = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    pthread_mutex_lock(&rec.lock);
    if (rec.on && status == 0 && !strncmp(path, rec.root, strlen(rec.root))) {
        resolve(path, &dir, name);
        note_name(dir, name, new_inode(true), "");
    }
    pthread_mutex_unlock(&rec.lock);
    return status;
}

static int moved(const char *from, const char *to, unsigned flags)
{
    char name[64], old[64];
    int dir, old_dir, status = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
    pthread_mutex_lock(&rec.lock);
    int inode = resolve(from, &old_dir, old), other = resolve(to, &dir, name);
    if (status == 0 && inode >= 0) {
        if (dir != old_dir) abort(); // a checkpoint moves within its directory alone
        if (flags) {
            Call *c = note(EXCHANGE);
            c->dir = dir, c->inode = inode, c->other = other;
            snprintf(c->name, 64, "%s", name);
            snprintf(c->from, 64, "%s", old);
            set_name(dir, name, inode);
            set_name(dir, old, other);
        } else note_name(dir, name, inode, old);
    }
    pthread_mutex_unlock(&rec.lock);
    return status;
}
int rename(const char *from, const char *to)
{
    return moved(from, to, 0);
}
int renameat2(int fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    (void)fd, (void)to_fd;
    return moved(from, to, flags);
}

static void removed(int fd, const char *path) // fd: of the directory, or -1
{
    char name[64];
    int dir = -1;
    if (fd >= 0) dir = rec.fd_inode[fd], snprintf(name, 64, "%s", path);
    else if (resolve(path, &dir, name) < 0) return;
    if (rec.on && dir >= 0) note_unname(dir, name);
}
int unlinkat(int fd, const char *path, int flags)
{
    int status = (int)syscall(SYS_unlinkat, fd, path, flags);
    pthread_mutex_lock(&rec.lock);
    if (status == 0 && fd < FDS) removed(fd, path);
    pthread_mutex_unlock(&rec.lock);
    return status;
}
int rmdir(const char *path)
{
    int status = (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
    pthread_mutex_lock(&rec.lock);
    if (status == 0) removed(-1, path);
    pthread_mutex_unlock(&rec.lock);
    return status;
}

static void record(const char *root)
{
    for (int i = 0; i < rec.n; i++) free(rec.call[i].data);
    memset(&rec, 0, sizeof rec);
    pthread_mutex_init(&rec.lock, NULL);
    for (int i = 0; i < FDS; i++) rec.fd_inode[i] = -1;
    snprintf(rec.root, sizeof rec.root, "%s", root);
    rec.inodes = 1;
    rec.is_dir[0] = true;
    rec.on = true;
}

// ---- states

static uint64_t dice;
static unsigned roll(unsigned n)
{
    return (unsigned)(rng_uniform(rng_make(7, "power", 0), dice++) * n);
}

static bool synced(int inode, int from, int end)
{
    for (int i = from; i < end; i++)
        if (rec.call[i].kind == SYNC && rec.call[i].inode == inode) return true;
    return false;
}

// A file's bytes: what was synced, and of the other writes all, some, or zeros in their place, or nothing.
static void put_file(const char *path, int inode, int end, unsigned luck)
{
    static char data[1 << 16];
    size_t size = 0;
    memset(data, 0, sizeof data);
    for (int i = 0; i < end; i++) {
        const Call *c = &rec.call[i];
        if (c->kind != WRITE || c->inode != inode) continue;
        if (c->at + c->n > sizeof data) abort();
        bool whole = synced(inode, i, end) || roll(4) < luck;
        size_t n = whole ? c->n : roll(2) ? roll((unsigned)c->n) : 0;
        if (!n && !roll(2)) continue; // the file did not even grow
        memcpy(data + c->at, c->data, n);
        if (c->at + c->n > size) size = roll(2) || whole ? c->at + c->n : c->at + n > size ? c->at + n : size;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || !disk_write(fd, data, size)) abort();
    close(fd);
}

static void put_dir(const char *path, int dir, int end, unsigned luck)
{
    for (int i = 0; i < rec.entries; i++) {
        if (rec.entry[i].dir != dir) continue;
        char below[PATH_MAX];
        snprintf(below, sizeof below, "%s/%s", path, rec.entry[i].name);
        if (!rec.is_dir[rec.entry[i].inode]) put_file(below, rec.entry[i].inode, end, luck);
        else if (syscall(SYS_mkdirat, AT_FDCWD, below, 0777)) abort();
        else put_dir(below, rec.entry[i].inode, end, luck);
    }
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path);
}

// The root as the disk has it when the power goes behind the first `end` calls. luck, 0 to 4: how much of what was
// not synced is there nevertheless.
static void put_state(const char *root, int end, unsigned luck)
{
    rec.on = false;
    rec.entries = 0;
    for (int i = 0; i < end; i++) {
        const Call *c = &rec.call[i];
        if (c->kind == WRITE || c->kind == SYNC) continue;
        if (!synced(c->dir, i, end) && roll(4) >= luck) continue;
        if (*c->from) set_name(c->dir, c->from, c->kind == EXCHANGE ? c->other : -1);
        set_name(c->dir, c->name, c->kind == UNNAME ? -1 : c->inode);
    }
    if (nftw(root, remove_one, 9, FTW_DEPTH | FTW_PHYS) || syscall(SYS_mkdirat, AT_FDCWD, root, 0777)) abort();
    put_dir(root, 0, end, luck);
}

// ---- tests

static int n_states = 1000;
enum { SAVES = 5 };

// Which save's the checkpoint is: each has its own number of tokens, and a step that may be there already.
static const long step_of[SAVES + 1] = {0, 1, 2, 3, 3, 4};

static void fill_save(Case *c, int save)
{
    fill(c, step_of[save]);
    c->weights[0] = (float)save; // a step saved twice is two checkpoints
    c->state.tokens = (uint64_t)save;
}

static int loaded_save(Case *c)
{
    c->state = (CkptState){0};
    if (!load_newest(c)) return 0;
    int save = (int)c->state.tokens;
    Case want = *c;
    assert_in_range(save, 1, SAVES + 1);
    if (save > SAVES) return save;
    fill_save(&want, save);
    assert_memory_equal(c->weights, want.weights, sizeof want.weights);
    assert_memory_equal(c->m, want.m, sizeof want.m);
    assert_memory_equal(c->v, want.v, sizeof want.v);
    assert_int_equal(c->state.step, step_of[save]);
    return save;
}

TEST_WITH(test_power_loss, set_up, tear_down)
{
    Case *c = *state;
    int returned[SAVES + 2] = {0}, old = 0, new = 0;
    record(c->root);
    for (int save = 1; save <= SAVES; save++) {
        char error[1024];
        fill_save(c, save);
        assert_true(save_as_is(c, 2, error, sizeof error));
        returned[save] = rec.n;
    }
    int n_calls = rec.n;
    for (int s = 0; s < n_states; s++) {
        int end = (int)roll((unsigned)n_calls + 1), before = 0;
        put_state(c->root, end, roll(5));
        while (before < SAVES && returned[before + 1] <= end) before++;
        int save = loaded_save(c);
        if (save != before && save != before + 1)
            fail_msg("state %d: the power goes behind call %d, save %d had returned, save %d comes back", s, end,
                     before, save);
        *(save == before ? &old : &new) += 1;
        if (s % 10) continue;
        char error[1024]; // and the run goes on
        fill_save(c, SAVES);
        c->state.step = 9, c->state.tokens = SAVES + 1;
        assert_true(save_as_is(c, 2, error, sizeof error));
        assert_int_equal(loaded_save(c), SAVES + 1);
    }
    assert_true(old > n_states / 10 && new > n_states / 100);
}

// Two ranks, each with its files.
TEST_WITH(test_power_loss_of_ranks, set_up, tear_down)
{
    static const Layout two = {1, 1, 2, 1, false, false, 0};
    static const ModelShape tiny = {.layers = 1, .channels = 2, .heads = 1, .kv_heads = 1, .head_size = 2, .ffn = 2,
                                    .vocab = 3, .context = 2, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .tie = true};
    Case *c = *state;
    int returned[5] = {0};
    record(c->root);
    for (int step = 1; step <= 3; step++) {
        Play p = {.run_dir = c->run, .layout = &two, .optim = OPTIM_LION, .shape = &tiny, .step = step, .keep = 1};
        comm_threads_run(2, play_save, &p);
        assert_true(p.ok[0] && p.ok[1]);
        returned[step] = rec.n;
    }
    int n_calls = rec.n;
    for (int s = 0; s < n_states; s++) {
        int end = (int)roll((unsigned)n_calls + 1), before = 0;
        put_state(c->root, end, roll(5));
        while (before < 3 && returned[before + 1] <= end) before++;
        Play p = {.run_dir = c->run, .layout = &two, .optim = OPTIM_LION, .shape = &tiny, .keep = 1};
        comm_threads_run(2, play_load, &p);
        long step = p.step < 0 ? 0 : p.step;
        assert_int_equal(p.wrong[0] + p.wrong[1], 0);
        if (step != before && step != before + 1)
            fail_msg("state %d: the power goes behind call %d, step %d was saved, step %ld comes back", s, end,
                     before, step);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) n_states = atoi(argv[1]);
    return RUN_TESTS(NULL, NULL);
}
