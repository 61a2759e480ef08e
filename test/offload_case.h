// offload_case: what the tests of the offload store share: items of awkward sizes, a hook between store and file that
// counts, holds back, cuts short and fails, and a directory.
#ifndef TEST_OFFLOAD_CASE_H
#define TEST_OFFLOAD_CASE_H
#include "test/test.h"

#include "parallel/offload.h"
#include "temp_dir.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N = 12, MOST = 20000, PATIENCE = 10 }; // seconds
static const size_t sizes[N] = {0, 1, 4095, 4096, 4097, 8192, 12289, 3, MOST, 0, 777, 16384};
static char path[300]; // of every store here

// ---- the hook

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd;
    bool reads_fail, writes_fail; // from now on: EIO, ENOSPC
    bool nothing;                 // writes take 0 bytes
    bool refuse_direct;           // EINVAL at the first read
    bool pieces;                  // short, with EINTR between
    int slow_ms;                  // a read takes at least this
    int calls, reads, writes;
    // of the test of overlap
    bool gated, late;
    int working, read_to, written_to; // the item in work; items read and written so far, the last one
    size_t item_bytes;
} Hook;

// Waits for *value >= wanted; the lock is held. A timeout fails the test.
static inline void await(Hook *h, const int *value, int wanted)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    while (*value < wanted && !h->late)
        if (pthread_cond_timedwait(&h->changed, &h->lock, &until)) h->late = true;
}

static inline void set(Hook *h, int *value, int to)
{
    *value = to;
    pthread_cond_broadcast(&h->changed);
}

// How many bytes of a transfer happen; -1: errno says what went wrong.
static inline ssize_t allowed(Hook *h, bool write, size_t n_bytes)
{
    int call = h->calls++;
    if (write ? h->writes_fail : h->reads_fail) {
        errno = write ? ENOSPC : EIO;
        return -1;
    }
    if (h->refuse_direct && call == 0) {
        errno = EINVAL;
        return -1;
    }
    if (!h->pieces) return (ssize_t)n_bytes;
    if (call % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return (ssize_t)(n_bytes > 6000 ? 6000 : n_bytes); // not whole blocks
}

static inline ssize_t hook_read(void *self, int fd, void *data, size_t n_bytes, off_t at)
{
    Hook *h = self;
    pthread_mutex_lock(&h->lock);
    h->fd = fd;
    h->reads++;
    int item = h->gated ? (int)((size_t)at / h->item_bytes) : 0;
    if (h->gated && item) await(h, &h->working, item - 1);
    if (h->slow_ms) usleep((useconds_t)h->slow_ms * 1000);
    ssize_t n = allowed(h, false, n_bytes);
    if (n > 0) {
        // Under O_DIRECT only whole blocks can be read; the rest of what was asked for is then left out.
        char block[65536] __attribute__((aligned(OFFLOAD_BLOCK)));
        ssize_t got = pread(fd, block, n_bytes < sizeof block ? n_bytes : sizeof block, at);
        if (got < n) n = got;
        if (n > 0) memcpy(data, block, (size_t)n);
    }
    if (h->gated) set(h, &h->read_to, item);
    pthread_mutex_unlock(&h->lock);
    return n;
}

static inline ssize_t hook_write(void *self, int fd, const void *data, size_t n_bytes, off_t at)
{
    Hook *h = self;
    pthread_mutex_lock(&h->lock);
    h->writes++;
    int item = h->gated ? (int)((size_t)at / h->item_bytes) : 0;
    if (h->gated) await(h, &h->working, item + 1);
    ssize_t n = h->nothing ? 0 : allowed(h, true, n_bytes);
    if (n > 0) {
        size_t whole = ((size_t)n + OFFLOAD_BLOCK - 1) / OFFLOAD_BLOCK * OFFLOAD_BLOCK;
        ssize_t got = pwrite(fd, data, whole < n_bytes ? whole : n_bytes, at);
        if (got < n) n = got;
    }
    if (h->gated) set(h, &h->written_to, item);
    pthread_mutex_unlock(&h->lock);
    return n;
}

static inline Hook new_hook(void)
{
    return (Hook){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .fd = -1, .working = -1,
                  .read_to = -1, .written_to = -1};
}

static inline OffloadIo io_of(Hook *h)
{
    return (OffloadIo){hook_read, hook_write, h};
}

// A store of equal items behind a hook.
typedef struct {
    Mem mem;
    Hook hook;
    OffloadIo io;
    size_t each[OFFLOAD_MAX_SLOTS + 1];
    Offload *o;
} Bench;

static inline void bench_open(Bench *b, int n_items, size_t n_bytes, int n_slots)
{
    b->hook = new_hook();
    b->hook.item_bytes = n_bytes;
    b->io = io_of(&b->hook);
    b->mem = (Mem){0};
    for (int i = 0; i < n_items; i++) b->each[i] = n_bytes;
    OffloadSettings s = {.mode = OFFLOAD_DISK, .path = path, .sizes = b->each, .n_items = n_items, .n_slots = n_slots,
                         .mem = &b->mem, .tag = MEM_OPTIM, .io = &b->io};
    b->o = offload_create(&s);
}

static inline void bench_close(Bench *b)
{
    offload_free(b->o);
    mem_free_all(&b->mem);
}

static inline void one_pass(Offload *o, bool dirty)
{
    for (int i = 0; i < N; i++) {
        offload_wait(o, i);
        if (i + 1 < N) offload_fetch(o, i + 1);
        offload_release(o, i, dirty);
    }
    offload_flush(o);
}

static inline int make_directory(void **state)
{
    if (temp_dir_make(state) != 0) return -1;
    snprintf(path, sizeof path, "%s/store", dir);
    return 0;
}

static inline int remove_directory(void **state)
{
    (void)state;
    return rmdir(dir); // every store has left it empty
}
#endif
