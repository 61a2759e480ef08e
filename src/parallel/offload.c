// offload: items in host memory or in a file, used through a few slots. See offload.h.
//
// Jobs (read an item into a slot, write a slot back) are numbered in the order in which the caller requests them, and
// the store's thread does them in that order. The invariant: the caller owns the bytes of a slot from the moment when
// `n_done` reaches the slot's last job until it requests the next job for the slot; at other times the thread owns
// them. So a slot may be assigned to the next item while the old one is still being written, and an item that is
// fetched again after its own write has the new bytes. With two slots:
//
//     caller   wait 0 | work on 0 | work on 1       | work on 2       | work on 3 | flush
//     thread   read 0 | read 1    | write 0, read 2 | write 1, read 3 | write 2   | write 3
//     slot A   (  0  )|     0     |(  0  ) (   2   )|        2        |(   2   )  |         |
//     slot B          | (   1   ) |        1        |(  1  ) (   3   )|     3     |(   3   )|     ( ) the thread's
//
// So the caller waits for the first read and the last write; between them it waits only where the read and write of an
// item take longer than the work on one.
//
// In host memory a job is a copy, and the caller makes it at once: there is nothing to overlap on a CPU. Slots in
// another device's memory are filled through `stage`, host memory of the same layout, by the caller's own copies, so
// that the thread never touches the device.
//
// Where the host itself updates items, they are lent in place: it works on the store's own bytes, without slots. A slot
// that holds such an item, fetched ahead, is dropped, so that the next reader finds the new bytes.
//
// Rejected: mmap (a failing disk is a SIGBUS, and the kernel decides the time of read-ahead and write-back); io_uring
// (many requests in flight matter for small ones; items are megabytes); fsync (the file does not outlive the process).
#define _GNU_SOURCE // O_DIRECT, fallocate
#include "parallel/offload.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { JOBS = 4 * OFFLOAD_MAX_SLOTS }; // three a slot can wait: its write, a read, and the read that replaces it

typedef struct {
    bool write;
    int slot, item;
} Job;

typedef struct {
    char *data;   // lent
    char *host;   // what the thread reads and writes: the stage's part, or data itself
    int item;     // -1: free, or free when `job` is done
    uint64_t job; // number of its last one; 0: none so far
    int lent;
    bool dirty, arrived; // arrived: data holds the item
} Slot;

typedef struct {
    size_t n_bytes, at; // at: where it begins in the file or in `store`
    uint64_t sum;
    bool has_sum;
} Item;

typedef struct {
    int fd;
    bool direct; // O_DIRECT: past the page cache
    const char *path;
    OffloadIo io;
} File;

struct Offload {
    OffloadMode mode;
    int n_items, n_slots;
    Item *item;
    Slot slot[OFFLOAD_MAX_SLOTS];
    size_t n_bytes, slot_bytes; // of all items; of a slot
    char *path, *store; // store: OFFLOAD_CPU, all items back to back
    void *slots, *stage;
    Mem *mem, *host;
    Dev *dev;
    File file;
    bool checked, threaded;
    pthread_t thread;
    // shared with the thread; the lock guards it
    pthread_mutex_t lock;
    pthread_cond_t handed_in, finished;
    Job job[JOBS]; // number n is in job[n % JOBS]
    uint64_t n_jobs, n_done;
    bool stop, failed;
    char error[1024];
    OffloadCount count;
};

// ---- the file
//
// In the file, items begin at multiples of OFFLOAD_BLOCK and are transferred in whole blocks; bytes after an item's end
// are ignored. The file is unlinked as soon as it is open: its contents are useless after the run, a crash leaves no
// file, and no other program can remove, truncate or overwrite it by its name. Its blocks are reserved before the first
// step, so "no space left on device" comes at the start of a run and not in its middle.
//
// O_DIRECT is used where the file system allows it (ext4, XFS, most of them). Else every byte would also be in the page
// cache, in the memory that offloading is to save, and be copied once more. O_DIRECT requires addresses, offsets and
// lengths in whole blocks; 4096 bytes suit every disk. Where the flag is refused, when the file is opened or at the
// first read, posix_fadvise drops the pages after each transfer, and starts to write dirty ones. A transfer that
// returns true has moved every byte: short reads and writes continue where they ended, under O_DIRECT from the last
// whole block.

static ssize_t plain_read(void *self, int fd, void *data, size_t n_bytes, off_t at)
{
    (void)self;
    return pread(fd, data, n_bytes, at);
}

static ssize_t plain_write(void *self, int fd, const void *data, size_t n_bytes, off_t at)
{
    (void)self;
    return pwrite(fd, data, n_bytes, at);
}

// Whole blocks between memory (aligned to OFFLOAD_BLOCK) and the file from `at` on. False: `error` says what is wrong
// with `item`, the path, and what to try.
static bool move_blocks(const File *f, bool write, int item, char *data, size_t n_bytes, size_t at,
                       char *error, size_t n_error)
{
    for (size_t n = 0; n < n_bytes;) {
        size_t part = n_bytes - n < (size_t)1 << 30 ? n_bytes - n : (size_t)1 << 30; // Linux moves 2 GiB at most
        ssize_t got = write ? f->io.write(f->io.self, f->fd, data + n, part, (off_t)(at + n))
                            : f->io.read(f->io.self, f->fd, data + n, part, (off_t)(at + n));
        if (got < 0 && errno == EINTR) continue;
        if (got > 0 && f->direct) got -= got % OFFLOAD_BLOCK; // continue from a whole block
        if (got > 0) {
            n += (size_t)got;
            continue;
        }
        if (got == 0 && !write)
            snprintf(error, n_error, "offload: %s: item %d ends at byte %zu of the file and not at %zu: the file was "
                                     "cut short while in use (by something else; start the run again)",
                     f->path, item, at + n, at + n_bytes);
        else
            snprintf(error, n_error, "offload: %s: item %d cannot be %s at byte %zu of the file: %s (%s, put run.dir "
                                     "on another, or set memory.offload=cpu)", f->path, item,
                     write ? "written" : "read", at + n, got ? strerror(errno) : "nothing was taken",
                     write ? "make room on that disk" : "look after that disk");
        return false;
    }
#ifdef POSIX_FADV_DONTNEED
    if (!f->direct) posix_fadvise(f->fd, (off_t)at, (off_t)n_bytes, POSIX_FADV_DONTNEED); // starts to write dirty pages
#endif
    return true;
}

// Space for n bytes, so that a full disk is found here. File systems that cannot reserve find it when they write.
static bool reserve(int fd, size_t n_bytes)
{
    if (n_bytes == 0) return true;
#ifdef __linux__
    int failed;
    do failed = fallocate(fd, 0, 0, (off_t)n_bytes);
    while (failed && errno == EINTR);
    if (!failed) return true;
    if (errno != EOPNOTSUPP) return false;
#endif
    return ftruncate(fd, (off_t)n_bytes) == 0;
}

// A file of n_bytes, a multiple of OFFLOAD_BLOCK, all zero, whose space is reserved. The path must not exist, and does
// not when this returns. `block`: OFFLOAD_BLOCK bytes to try a read with; may be NULL where n_bytes is 0.
static File open_file(const char *path, size_t n_bytes, const OffloadIo *io, void *block)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    File f = {.fd = -1, .path = path, .io = {plain_read, plain_write, NULL}};
    if (io) f.io = *io;
#ifdef O_DIRECT
    f.fd = open(path, flags | O_DIRECT, 0600);
    f.direct = f.fd >= 0;
    if (f.fd < 0 && errno == EINVAL) unlink(path); // some file systems make it first and refuse it then
#endif
    if (f.fd < 0) f.fd = open(path, flags, 0600);
    if (f.fd < 0)
        die("offload: %s: cannot be made: %s (%s)", path, strerror(errno),
            errno == EEXIST ? "remove it; the store needs a file of its own"
                            : "choose another run.dir, or set memory.offload=cpu");
    if (unlink(path) < 0) die("offload: %s: cannot be unlinked: %s (choose another run.dir)", path, strerror(errno));
    if (!reserve(f.fd, n_bytes))
        die("offload: %s: no room for %zu bytes: %s (make room on that disk, put run.dir on another, or set "
            "memory.offload=cpu)", path, n_bytes, strerror(errno));
#ifdef O_DIRECT
    // Some file systems take the flag and refuse the reads.
    if (f.direct && n_bytes && f.io.read(f.io.self, f.fd, block, OFFLOAD_BLOCK, 0) < 0 && errno == EINVAL) {
        f.direct = false;
        if (fcntl(f.fd, F_SETFL, 0) < 0) die("offload: %s: fcntl: %s", path, strerror(errno));
    }
#endif
    return f;
}

// ---- blocks

static size_t in_blocks(size_t n_bytes)
{
    check(n_bytes <= SIZE_MAX - OFFLOAD_BLOCK);
    return (n_bytes + OFFLOAD_BLOCK - 1) / OFFLOAD_BLOCK * OFFLOAD_BLOCK;
}

static char *aligned(void *ptr)
{
    return (char *)(((uintptr_t)ptr + OFFLOAD_BLOCK - 1) / OFFLOAD_BLOCK * OFFLOAD_BLOCK);
}

// ---- errors: the first one is kept for the caller

static bool fail(Offload *o, const char *error)
{
    pthread_mutex_lock(&o->lock);
    if (!o->failed) snprintf(o->error, sizeof o->error, "%s", error);
    o->failed = true;
    pthread_mutex_unlock(&o->lock);
    return false;
}

static void die_if_failed(Offload *o)
{
    pthread_mutex_lock(&o->lock);
    bool failed = o->failed;
    pthread_mutex_unlock(&o->lock);
    if (failed) die("%s", o->error); // no longer changes
}

static bool transfer(Offload *o, bool write, int i, char *data, size_t n_bytes, size_t at)
{
    char error[sizeof o->error];
    return move_blocks(&o->file, write, i, data, n_bytes, at, error, sizeof error) || fail(o, error);
}

// ---- checksums

static void remember(Offload *o, int i, const char *data)
{
    o->item[i].has_sum = o->checked;
    if (o->checked) o->item[i].sum = XXH3_64bits(data, o->item[i].n_bytes);
}

static bool verify(Offload *o, int i, const char *data)
{
    const Item *item = &o->item[i];
    uint64_t sum = o->checked && item->has_sum ? XXH3_64bits(data, item->n_bytes) : item->sum;
    if (sum == item->sum) return true;
    char error[sizeof o->error];
    snprintf(error, sizeof error, "offload: %s: item %d, bytes %zu to %zu, is not what was written: checksum %016llx "
                                  "instead of %016llx (memory or disk is damaged, or something else wrote there; start "
                                  "the run from its last checkpoint)", o->path, i, item->at, item->at + item->n_bytes,
             (unsigned long long)sum, (unsigned long long)item->sum);
    return fail(o, error);
}

// ---- jobs

static void copy(Offload *o, bool to_slot, char *slot, char *host, size_t n_bytes)
{
    if (n_bytes == 0) return;
    if (!o->dev) memcpy(to_slot ? slot : host, to_slot ? host : slot, n_bytes);
    else if (to_slot) o->dev->to_device(o->dev, slot, host, n_bytes);
    else o->dev->to_host(o->dev, host, slot, n_bytes);
}

// Counts the time since `start`, spent by the caller or for it, and what was moved.
static void charge(Offload *o, bool write, double start, bool waited, size_t n_bytes, int n_jobs)
{
    double seconds = clock_seconds() - start;
    pthread_mutex_lock(&o->lock);
    *(write ? &o->count.writes : &o->count.reads) += (uint64_t)n_jobs;
    *(write ? &o->count.bytes_written : &o->count.bytes_read) += n_bytes;
    *(write ? &o->count.write_seconds : &o->count.read_seconds) += seconds;
    if (waited) o->count.waited_seconds += seconds;
    pthread_mutex_unlock(&o->lock);
}

static void do_job(Offload *o, Job job)
{
    const Item *item = &o->item[job.item];
    const Slot *slot = &o->slot[job.slot];
    double start = clock_seconds();
    if (o->mode == OFFLOAD_CPU) {
        char *home = o->store + item->at;
        if (job.write) {
            copy(o, false, slot->data, home, item->n_bytes);
            remember(o, job.item, home);
        } else if (verify(o, job.item, home)) copy(o, true, slot->data, home, item->n_bytes);
    } else if (job.write) {
        remember(o, job.item, slot->host);
        transfer(o, true, job.item, slot->host, in_blocks(item->n_bytes), item->at);
    } else if (transfer(o, false, job.item, slot->host, in_blocks(item->n_bytes), item->at))
        verify(o, job.item, slot->host);
    charge(o, job.write, start, o->mode == OFFLOAD_CPU, item->n_bytes, 1);
}

// After an error jobs are skipped: the caller ends the program at its next call.
static void *work(void *arg)
{
    Offload *o = arg;
    pthread_mutex_lock(&o->lock);
    while (!o->stop) {
        if (o->n_done == o->n_jobs) {
            pthread_cond_wait(&o->handed_in, &o->lock);
            continue;
        }
        Job job = o->job[(o->n_done + 1) % JOBS];
        bool failed = o->failed;
        pthread_mutex_unlock(&o->lock);
        if (!failed) do_job(o, job);
        pthread_mutex_lock(&o->lock);
        o->n_done++;
        pthread_cond_broadcast(&o->finished);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

static void hand_in(Offload *o, bool write, int slot, int item)
{
    Job job = {.write = write, .slot = slot, .item = item};
    pthread_mutex_lock(&o->lock);
    check(o->n_jobs - o->n_done < JOBS);
    o->slot[slot].job = ++o->n_jobs;
    o->job[o->n_jobs % JOBS] = job;
    if (o->threaded) pthread_cond_signal(&o->handed_in);
    else o->n_done++;
    pthread_mutex_unlock(&o->lock);
    if (!o->threaded) do_job(o, job);
    die_if_failed(o);
}

static void wait_for(Offload *o, uint64_t job)
{
    pthread_mutex_lock(&o->lock);
    while (o->n_done < job) {
        double start = clock_seconds();
        pthread_cond_wait(&o->finished, &o->lock);
        o->count.waited_seconds += clock_seconds() - start;
    }
    pthread_mutex_unlock(&o->lock);
    die_if_failed(o);
}

// ---- slots

// The slot that holds the item or will, or -1.
static int slot_of(const Offload *o, int item)
{
    check(item >= 0 && item < o->n_items && (o->mode == OFFLOAD_CPU || o->threaded));
    for (int s = 0; s < o->n_slots; s++)
        if (o->slot[s].item == item) return s;
    return -1;
}

// A slot for the next job: one that is free or will be; else, with `evict`, one that was fetched ahead; else -1.
static int find_slot(const Offload *o, bool evict)
{
    for (int s = 0; s < o->n_slots; s++)
        if (o->slot[s].item < 0) return s;
    for (int s = 0; evict && s < o->n_slots; s++)
        if (!o->slot[s].lent) return s;
    return -1;
}

static void start_read(Offload *o, int slot, int item)
{
    o->slot[slot].item = item;
    o->slot[slot].arrived = o->slot[slot].dirty = false;
    hand_in(o, false, slot, item);
}

bool offload_fetch(Offload *o, int item)
{
    die_if_failed(o);
    if (slot_of(o, item) >= 0) return true;
    int s = find_slot(o, false);
    if (s >= 0) start_read(o, s, item);
    return s >= 0;
}

// A stage's copies, which belong to the read or write they end or begin.
static void copy_staged(Offload *o, bool to_slot, Slot *slot)
{
    if (slot->host == slot->data || o->mode == OFFLOAD_CPU) return;
    double start = clock_seconds();
    copy(o, to_slot, slot->data, slot->host, o->item[slot->item].n_bytes);
    charge(o, !to_slot, start, true, 0, 0);
}

void *offload_wait(Offload *o, int item)
{
    int s = slot_of(o, item);
    if (s < 0) {
        s = find_slot(o, true);
        if (s < 0)
            die("offload: item %d is asked for while all %d slots are lent (a bug of the program)", item, o->n_slots);
        start_read(o, s, item);
    }
    Slot *slot = &o->slot[s];
    wait_for(o, slot->job);
    if (!slot->arrived) copy_staged(o, true, slot);
    slot->arrived = true;
    slot->lent++;
    return slot->data;
}

void offload_release(Offload *o, int item, bool dirty)
{
    int s = slot_of(o, item);
    check(s >= 0 && o->slot[s].lent > 0);
    Slot *slot = &o->slot[s];
    slot->dirty |= dirty;
    if (--slot->lent) return;
    if (slot->dirty) copy_staged(o, false, slot);
    slot->item = -1;
    if (slot->dirty) hand_in(o, true, s, item);
}

void offload_flush(Offload *o)
{
    wait_for(o, o->n_jobs);
}

static void *lend(void *self, int item, int next)
{
    void *bytes = offload_wait(self, item);
    if (next >= 0) offload_fetch(self, next);
    return bytes;
}

static void give_back(void *self, int item, bool dirty)
{
    offload_release(self, item, dirty);
}

static void read_item(void *self, int item, size_t at, void *host, size_t n_bytes)
{
    offload_read(self, item, at, host, n_bytes);
}

OptimStore offload_lender(Offload *o)
{
    return o ? (OptimStore){.lend = lend, .give_back = give_back, .read = read_item, .self = o} : (OptimStore){0};
}

// No slot holds the item, so that the next one that reads it finds what the host has written.
static void drop_slot(Offload *o, int item)
{
    int s = slot_of(o, item);
    check(s < 0 || !o->slot[s].lent);
    if (s >= 0) o->slot[s].item = -1;
}

static void *lend_in_place(void *self, int item, int next)
{
    Offload *o = self;
    (void)next;
    drop_slot(o, item);
    char *home = o->store + o->item[item].at;
    if (!verify(o, item, home)) die_if_failed(o);
    return home;
}

static void give_back_in_place(void *self, int item, bool dirty)
{
    Offload *o = self;
    if (dirty) remember(o, item, o->store + o->item[item].at);
}

OptimStore offload_lender_in_place(Offload *o)
{
    check(!o || o->mode == OFFLOAD_CPU);
    return o ? (OptimStore){.lend = lend_in_place, .give_back = give_back_in_place, .read = read_item, .self = o}
             : (OptimStore){0};
}

// ---- parts of items

// Host memory with the blocks [*first, *first + *n) of an item that cover a range of it, or with all of it where a
// checksum needs that. `old`: with what is stored. Takes a slot from those fetched ahead, but for host memory.
static char *blocks_of(Offload *o, int i, size_t at, size_t n_bytes, bool old, size_t *first, size_t *n)
{
    bool whole = o->checked || o->mode == OFFLOAD_CPU;
    int s = find_slot(o, true);
    if (s < 0 && o->n_slots)
        die("offload: item %d is looked into while all %d slots are lent (a bug of the program)", i, o->n_slots);
    *first = whole ? 0 : at / OFFLOAD_BLOCK * OFFLOAD_BLOCK;
    *n = in_blocks(whole ? o->item[i].n_bytes : at + n_bytes) - *first;
    char *host = o->mode == OFFLOAD_CPU ? o->store + o->item[i].at : o->slot[s].host;
    if (o->mode == OFFLOAD_DISK) o->slot[s].item = -1;
    if (old && o->mode == OFFLOAD_DISK) transfer(o, false, i, host, *n, o->item[i].at + *first);
    if (old) verify(o, i, host);
    die_if_failed(o);
    return host;
}

// What both begin with. False: there is nothing to do.
static bool range_is_ready(Offload *o, int i, size_t at, size_t n_bytes)
{
    int s = slot_of(o, i);
    check(at <= o->item[i].n_bytes && n_bytes <= o->item[i].n_bytes - at && (s < 0 || !o->slot[s].lent));
    offload_flush(o);
    return n_bytes > 0;
}

void offload_read(Offload *o, int i, size_t at, void *host_dst, size_t n_bytes)
{
    if (!range_is_ready(o, i, at, n_bytes)) return;
    size_t first, n;
    memcpy(host_dst, blocks_of(o, i, at, n_bytes, true, &first, &n) + at - first, n_bytes);
}

void offload_write(Offload *o, int i, size_t at, const void *host_src, size_t n_bytes)
{
    if (!range_is_ready(o, i, at, n_bytes)) return;
    int ahead = slot_of(o, i);
    if (ahead >= 0) o->slot[ahead].item = -1; // fetched ahead: it would be old
    const Item *item = &o->item[i];
    size_t first, n, end = at + n_bytes;
    bool blocks = at % OFFLOAD_BLOCK == 0 && (end == item->n_bytes || end % OFFLOAD_BLOCK == 0);
    bool old = n_bytes < item->n_bytes && (o->checked || !blocks);
    char *host = blocks_of(o, i, at, n_bytes, old, &first, &n);
    memcpy(host + at - first, host_src, n_bytes);
    remember(o, i, host);
    if (o->mode == OFFLOAD_DISK && !transfer(o, true, i, host, n, item->at + first)) die_if_failed(o);
}

void offload_set_checked(Offload *o, bool checked)
{
    offload_flush(o);
    o->checked = checked; // what is written without one loses its checksum
}

// ---- sizes and counts

static size_t largest(const size_t *sizes, int n_items)
{
    size_t most = 0;
    for (int i = 0; i < n_items; i++)
        if (sizes[i] > most) most = sizes[i];
    return in_blocks(most);
}

size_t offload_slot_bytes(const size_t *sizes, int n_items, int n_slots)
{
    size_t most = largest(sizes, n_items);
    check(n_slots >= 0 && n_slots <= OFFLOAD_MAX_SLOTS && most <= (SIZE_MAX - OFFLOAD_BLOCK) / OFFLOAD_MAX_SLOTS);
    return n_slots ? (size_t)n_slots * most + OFFLOAD_BLOCK : 0;
}

size_t offload_host_bytes(const OffloadSettings *set)
{
    if (set->mode == OFFLOAD_DISK) return set->dev ? offload_slot_bytes(set->sizes, set->n_items, set->n_slots) : 0;
    size_t sum = 0;
    for (int i = 0; i < set->n_items; i++) {
        check(set->sizes[i] <= SIZE_MAX - sum);
        sum += set->sizes[i];
    }
    return sum;
}

OffloadCount offload_count(Offload *o)
{
    pthread_mutex_lock(&o->lock);
    OffloadCount count = o->count;
    pthread_mutex_unlock(&o->lock);
    return count;
}

double offload_hidden(const OffloadCount *count)
{
    double busy = count->read_seconds + count->write_seconds, hidden = busy - count->waited_seconds;
    return busy > 0 && hidden > 0 ? hidden / busy : 0; // waiting for the thread to wake up is not the store's time
}

void offload_describe(const Offload *o, char *text, size_t n_text)
{
    snprintf(text, n_text, "%d items, %.1f MiB, %s, %d slot%s of %.1f MiB", o->n_items, (double)o->n_bytes / 1048576,
             o->mode == OFFLOAD_CPU ? "in host memory" : o->file.direct ? "in a file with O_DIRECT"
                                                                   : "in a file, through the page cache",
             o->n_slots, o->n_slots == 1 ? "" : "s", (double)o->slot_bytes / 1048576);
}

// ---- creation

// The thread blocks all signals, which are for the main thread. (A write beyond a limit is then an error, not SIGXFSZ.)
static void start_thread(Offload *o)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&o->thread, NULL, work, o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) die("offload: no thread for the file: %s (raise the limit of processes, or set memory.offload=cpu)",
                    strerror(failed));
    o->threaded = true;
}

Offload *offload_create(const OffloadSettings *set)
{
    check(set->mode == OFFLOAD_CPU || set->mode == OFFLOAD_DISK);
    check(set->n_items >= 0 && set->n_slots >= (set->mode == OFFLOAD_DISK) && set->n_slots <= OFFLOAD_MAX_SLOTS);
    const char *what = set->what ? set->what : "offload";
    Offload *o = calloc(1, sizeof *o);
    Item *item = calloc((size_t)set->n_items + 1, sizeof *item);
    char *path = strdup(set->mode == OFFLOAD_DISK && set->path ? set->path : "host memory");
    if (!o || !item || !path) die("offload: no memory for the table of %d items", set->n_items);
    *o = (Offload){.mode = set->mode, .n_items = set->n_items, .n_slots = set->n_slots, .file.fd = -1,
                   .item = item, .path = path, .mem = set->mem, .host = set->host ? set->host : set->mem,
                   .dev = set->dev};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->handed_in, NULL);
    pthread_cond_init(&o->finished, NULL);
    size_t at = 0, n_host = offload_host_bytes(set);
    for (int i = 0; i < set->n_items; i++) {
        item[i] = (Item){.n_bytes = set->sizes[i], .at = at};
        size_t room = set->mode == OFFLOAD_DISK ? in_blocks(set->sizes[i]) : set->sizes[i];
        check(room <= INT64_MAX - at);
        at += room;
        o->n_bytes += set->sizes[i];
    }
    o->slot_bytes = largest(set->sizes, set->n_items);
    size_t n_slots = offload_slot_bytes(set->sizes, set->n_items, set->n_slots);
    if (n_slots) o->slots = mem_alloc(o->mem, set->tag, n_slots, what);
    if (set->mode == OFFLOAD_CPU) o->store = mem_alloc(o->host, MEM_HOST, n_host, what);
    else if (n_host) o->stage = mem_alloc(o->host, MEM_HOST, n_host, what);
    for (int s = 0; s < set->n_slots; s++) {
        Slot *slot = &o->slot[s];
        slot->item = -1;
        slot->data = slot->host = aligned(o->slots) + (size_t)s * o->slot_bytes;
        if (o->stage) slot->host = aligned(o->stage) + (size_t)s * o->slot_bytes;
    }
    if (set->mode == OFFLOAD_DISK && set->path) {
        o->file = open_file(o->path, at, set->io, o->slot[0].host);
        start_thread(o);
    }
    return o;
}

void offload_free(Offload *o)
{
    if (!o) return;
    if (o->threaded) {
        pthread_mutex_lock(&o->lock);
        o->stop = true;
        pthread_cond_signal(&o->handed_in);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
    }
    if (o->file.fd >= 0) close(o->file.fd);
    mem_free(o->mem, o->slots);
    mem_free(o->host, o->store);
    mem_free(o->host, o->stage);
    pthread_cond_destroy(&o->finished);
    pthread_cond_destroy(&o->handed_in);
    pthread_mutex_destroy(&o->lock);
    free(o->item);
    free(o->path);
    free(o);
}
