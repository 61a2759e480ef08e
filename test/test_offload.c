// test_offload: the store against a copy in memory over random traffic; who waits for whom; slots, memory and counts;
// and a disk that fails, is full or is changed by others.
//
// Overlap is not timed: the hook does not finish a transfer before the caller has reached the work that should hide it,
// so a store that read or wrote in the caller's thread would block (and fail after PATIENCE seconds).
#define _GNU_SOURCE // fallocate
#include "test/test.h"

#include "base/rng.h"
#include "expect_die.h"
#include "temp_dir.h"
#include "parallel/offload.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>

// Items of awkward sizes, a hook between store and file that counts, holds back, cuts short and fails, and a directory.
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
static void await(Hook *h, const int *value, int wanted)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    while (*value < wanted && !h->late)
        if (pthread_cond_timedwait(&h->changed, &h->lock, &until)) h->late = true;
}

static void set(Hook *h, int *value, int to)
{
    *value = to;
    pthread_cond_broadcast(&h->changed);
}

// How many bytes of a transfer happen; -1: errno says what went wrong.
static ssize_t allowed(Hook *h, bool write, size_t n_bytes)
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

static ssize_t hook_read(void *self, int fd, void *data, size_t n_bytes, off_t at)
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

static ssize_t hook_write(void *self, int fd, const void *data, size_t n_bytes, off_t at)
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

static Hook new_hook(void)
{
    return (Hook){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .fd = -1, .working = -1,
                  .read_to = -1, .written_to = -1};
}

static OffloadIo io_of(Hook *h)
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

static void bench_open(Bench *b, int n_items, size_t n_bytes, int n_slots)
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

static void bench_close(Bench *b)
{
    offload_free(b->o);
    mem_free_all(&b->mem);
}

static void one_pass(Offload *o, bool dirty)
{
    for (int i = 0; i < N; i++) {
        offload_wait(o, i);
        if (i + 1 < N) offload_fetch(o, i + 1);
        offload_release(o, i, dirty);
    }
    offload_flush(o);
}

static int make_directory(void **state)
{
    if (temp_dir_make(state) != 0) return -1;
    snprintf(path, sizeof path, "%s/store", dir);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(dir); // every store has left it empty
}

// ---- a device whose memory is not the host's: bytes there are the complement

static void there(Dev *dev, void *dst, const void *src, size_t n)
{
    (void)dev;
    for (size_t i = 0; i < n; i++) ((char *)dst)[i] = (char)~((const char *)src)[i];
}

static Dev elsewhere = {.name = "elsewhere", .to_device = there, .to_host = there};

// ---- random traffic

typedef struct {
    Offload *o;
    Dev *dev;
    unsigned char shadow[N][MOST];
    unsigned char buffer[MOST];
    int lent[N], n_lent; // times; items
    bool dirty[N];
    unsigned char *at[N];
    Rng rng;
    uint64_t drawn;
} Traffic;

static size_t draw(Traffic *t, size_t below)
{
    return rng_below(t->rng, t->drawn++, below);
}

static void assert_bytes(Traffic *t, int i, const unsigned char *data)
{
    unsigned char flip = t->dev ? 0xff : 0;
    for (size_t k = 0; k < sizes[i]; k++)
        if ((data[k] ^ flip) != t->shadow[i][k])
            fail_msg("item %d, byte %zu: %02x, not %02x", i, k, data[k] ^ flip, t->shadow[i][k]);
}

// New bytes in a random part of the item, or nothing.
static bool scribble(Traffic *t, int i)
{
    if (sizes[i] == 0 || draw(t, 3) == 0) return draw(t, 4) == 0;
    size_t from = draw(t, sizes[i]), to = from + 1 + draw(t, sizes[i] - from);
    for (size_t k = from; k < to; k++) {
        t->shadow[i][k] = (unsigned char)draw(t, 256);
        t->at[i][k] = t->shadow[i][k] ^ (t->dev ? 0xff : 0);
    }
    return true;
}

static void lend(Traffic *t, int i, int n_slots)
{
    if (!t->lent[i] && t->n_lent == n_slots) return;
    unsigned char *data = offload_wait(t->o, i);
    assert_int_equal((uintptr_t)data % OFFLOAD_BLOCK, 0);
    if (t->lent[i]) assert_ptr_equal(data, t->at[i]);
    t->n_lent += t->lent[i]++ == 0;
    t->at[i] = data;
    assert_bytes(t, i, data);
}

static void give_back(Traffic *t, int i)
{
    if (!t->lent[i]) return;
    bool dirty = scribble(t, i);
    t->n_lent -= --t->lent[i] == 0;
    offload_release(t->o, i, dirty);
}

// Part of an item past the slots, both ways.
static void look_into(Traffic *t, int i, int n_slots)
{
    if (t->lent[i] || t->n_lent == n_slots) return;
    size_t from = draw(t, sizes[i] + 1), n = draw(t, sizes[i] - from + 1);
    if (draw(t, 4) == 0) n = sizes[i] - (from = 0);
    if (sizes[i] >= OFFLOAD_BLOCK && draw(t, 3) == 0) { // whole blocks
        from = draw(t, sizes[i] / OFFLOAD_BLOCK) * OFFLOAD_BLOCK;
        n = (1 + draw(t, (sizes[i] - from) / OFFLOAD_BLOCK)) * OFFLOAD_BLOCK;
    }
    if (draw(t, 2)) {
        offload_read(t->o, i, from, t->buffer, n);
        assert_true(n == 0 || memcmp(t->buffer, t->shadow[i] + from, n) == 0);
    } else {
        for (size_t k = 0; k < n; k++) t->shadow[i][from + k] = (unsigned char)draw(t, 256);
        offload_write(t->o, i, from, t->shadow[i] + from, n);
    }
}

static void run_traffic(OffloadMode mode, int n_slots, Dev *dev, const OffloadIo *io, bool checked, int rounds)
{
    static Traffic t;
    Mem mem = {0}, host = {0};
    memset(&t, 0, sizeof t);
    t.dev = dev;
    t.rng = rng_make(7, "offload", (uint32_t)(n_slots * 8 + mode * 4 + (dev ? 2 : 0) + checked));
    OffloadSettings s = {.mode = mode, .path = path, .sizes = sizes, .n_items = N, .n_slots = n_slots, .mem = &mem,
                         .tag = MEM_OPTIM, .host = &host, .dev = dev, .io = io};
    t.o = offload_create(&s);
    mem_seal(&mem); // nothing is allocated from here on
    mem_seal(&host);
    if (checked) offload_set_checked(t.o, true);
    for (int round = 0; round < rounds; round++) {
        int i = (int)draw(&t, N);
        switch (draw(&t, 8)) {
        case 0: case 1: offload_fetch(t.o, i); break;
        case 2: case 3: lend(&t, i, n_slots); break;
        case 4: case 5: case 6: // one of those lent
            for (int k = 0; k < N; k++)
                if (t.lent[(i + k) % N]) {
                    give_back(&t, (i + k) % N);
                    break;
                }
            break;
        default: look_into(&t, i, n_slots);
        }
    }
    for (int i = 0; i < N; i++)
        while (t.lent[i]) give_back(&t, i);
    for (int i = 0; i < N; i++) { // a last look at all, in order
        lend(&t, i, n_slots);
        if (i + 1 < N) offload_fetch(t.o, i + 1);
        give_back(&t, i);
    }
    offload_flush(t.o);
    for (int i = 0; i < N; i++) {
        offload_read(t.o, i, 0, t.buffer, sizes[i]);
        assert_memory_equal(t.buffer, t.shadow[i], sizes[i]);
    }
    offload_free(t.o);
    assert_int_equal(mem.bytes + host.bytes, 0);
    mem_free_all(&mem);
    mem_free_all(&host);
}

TEST(test_traffic)
{
    for (int n_slots = 1; n_slots <= 4; n_slots++)
        for (int mode = OFFLOAD_CPU; mode <= OFFLOAD_DISK; mode++)
            for (int away = 0; away < 2; away++)
                for (int checked = 0; checked < 2; checked++)
                    run_traffic((OffloadMode)mode, n_slots, away ? &elsewhere : NULL, NULL, checked, 600);
}

// Transfers that stop in the middle of a block, and are interrupted; with O_DIRECT and where it is refused.
TEST(test_short_transfers)
{
    for (int refuse = 0; refuse < 2; refuse++) {
        Hook h = new_hook();
        OffloadIo io = io_of(&h);
        h.refuse_direct = refuse;
        h.calls = refuse ? 0 : 1; // the read in offload_create is not an interrupted one
        h.pieces = true;
        run_traffic(OFFLOAD_DISK, 2, NULL, &io, true, 300);
        assert_true(h.writes > 20);
    }
}

// ---- who waits for whom

// The loop of offload.h. Each read of the next item and write of the one before ends while one is in work.
TEST(test_overlap)
{
    enum { ITEMS = 6, BYTES = 2 * OFFLOAD_BLOCK };
    static Bench b;
    bench_open(&b, ITEMS, BYTES, 2);
    Hook *h = &b.hook;
    Offload *o = b.o;
    h->gated = true;
    for (int i = 0; i < ITEMS; i++) {
        char *data = offload_wait(o, i);
        if (i + 1 < ITEMS) assert_true(offload_fetch(o, i + 1));
        memset(data, i + 1, BYTES);
        pthread_mutex_lock(&h->lock); // work
        assert_true(h->read_to <= i && h->written_to < i);
        set(h, &h->working, i);
        if (i + 1 < ITEMS) await(h, &h->read_to, i + 1);
        if (i) await(h, &h->written_to, i - 1);
        pthread_mutex_unlock(&h->lock);
        assert_false(h->late);
        offload_release(o, i, true);
    }
    pthread_mutex_lock(&h->lock);
    set(h, &h->working, ITEMS);
    pthread_mutex_unlock(&h->lock);
    offload_flush(o);
    assert_false(h->late);
    assert_int_equal(h->written_to, ITEMS - 1);
    h->gated = false;
    for (int i = 0; i < ITEMS; i++) {
        char data[BYTES];
        offload_read(o, i, 0, data, BYTES);
        for (int k = 0; k < BYTES; k++) assert_int_equal(data[k], i + 1);
    }
    bench_close(&b);
}

// A pass reads the sum of the sizes once and writes it once, whatever the slots; nothing else is counted.
TEST(test_counts)
{
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) sum += sizes[i];
    for (int mode = OFFLOAD_CPU; mode <= OFFLOAD_DISK; mode++)
        for (int n_slots = 1; n_slots <= 3; n_slots++) {
            Mem mem = {0};
            OffloadSettings s = {.mode = (OffloadMode)mode, .path = path, .sizes = sizes, .n_items = N,
                                 .n_slots = n_slots, .mem = &mem, .tag = MEM_OPTIM};
            Offload *o = offload_create(&s);
            one_pass(o, true);
            one_pass(o, false);
            char byte = 1;
            offload_write(o, 1, 0, &byte, 1);
            offload_read(o, 1, 0, &byte, 1);
            OffloadCount c = offload_count(o);
            assert_int_equal(c.reads, 2 * N);
            assert_int_equal(c.writes, N);
            assert_int_equal(c.bytes_read, 2 * sum);
            assert_int_equal(c.bytes_written, sum);
            assert_true(c.read_seconds > 0 && c.write_seconds > 0);
            // In host memory the caller makes all copies: it stood still for each second of them, summed in another
            // order (3 N additions, each within 2^-53 of its result).
            double busy = c.read_seconds + c.write_seconds, bound = 2 * 3 * N * 0x1p-53 * busy;
            if (mode == OFFLOAD_CPU) assert_true(busy - c.waited_seconds <= bound && c.waited_seconds - busy <= bound);
            // What has arrived is not waited for.
            offload_fetch(o, 8);
            offload_flush(o);
            double waited = offload_count(o).waited_seconds;
            offload_wait(o, 8);
            assert_true(offload_count(o).waited_seconds == waited);
            offload_release(o, 8, false);
            offload_free(o);
            mem_free_all(&mem);
        }
    assert_true(offload_hidden(&(OffloadCount){.read_seconds = 3, .write_seconds = 1, .waited_seconds = 1}) == 0.75);
    assert_true(offload_hidden(&(OffloadCount){.read_seconds = 1, .waited_seconds = 1.5}) == 0);
    assert_true(offload_hidden(&(OffloadCount){.waited_seconds = 1}) == 0);
}

// Reads of 5 ms each, and a caller with nothing else to do.
TEST(test_standing_still_is_counted)
{
    static Bench b;
    bench_open(&b, 4, OFFLOAD_BLOCK, 2);
    b.hook.slow_ms = 5;
    for (int i = 0; i < 4; i++) {
        offload_wait(b.o, i);
        offload_release(b.o, i, false);
    }
    OffloadCount c = offload_count(b.o);
    assert_true(c.waited_seconds > 0);
    assert_true(c.read_seconds >= 0.02);
    bench_close(&b);
}

// ---- slots

TEST(test_slots)
{
    static Bench b;
    bench_open(&b, 6, 100, 2);
    Offload *o = b.o;
    char *zero = offload_wait(o, 0); // as yet unwritten
    for (int k = 0; k < 100; k++) assert_int_equal(zero[k], 0);
    assert_true(offload_fetch(o, 1));
    assert_true(offload_fetch(o, 1)); // on its way: no second read
    assert_true(offload_fetch(o, 0));
    assert_false(offload_fetch(o, 2)); // no slot; a hint may be in vain
    char *two = offload_wait(o, 2);    // takes that of 1, which nobody waited for
    assert_ptr_not_equal(zero, two);
    two[99] = 2;
    assert_ptr_equal(offload_wait(o, 2), two); // lent twice
    offload_release(o, 2, true);               // dirty once is dirty
    offload_release(o, 2, false);
    assert_true(offload_fetch(o, 3)); // the slot is promised while 2 is written
    assert_false(offload_fetch(o, 2));
    offload_release(o, 0, false);
    assert_true(offload_fetch(o, 2)); // its new bytes
    assert_int_equal(((char *)offload_wait(o, 2))[99], 2);
    offload_release(o, 2, false);
    assert_true(offload_fetch(o, 4)); // one that is fetched ahead, then written past the slots, is read again
    offload_flush(o);
    offload_write(o, 4, 99, "x", 1);
    assert_int_equal(((char *)offload_wait(o, 4))[99], 'x');
    offload_release(o, 4, false);
    OffloadCount c = offload_count(o);
    assert_int_equal(c.writes, 1);
    assert_int_equal(c.reads, 7); // 0, 1, 2, 3, 2, 4, 4
    bench_close(&b);
}

TEST(test_memory)
{
    size_t sum = 0;
    for (int i = 0; i < N; i++) sum += sizes[i];
    size_t slots = 3 * 5 * OFFLOAD_BLOCK + OFFLOAD_BLOCK; // 20000 bytes are 5 blocks
    assert_int_equal(offload_slot_bytes(sizes, N, 3), slots);
    assert_int_equal(offload_slot_bytes(sizes, 1, 2), OFFLOAD_BLOCK); // an item of no bytes
    assert_int_equal(offload_slot_bytes(NULL, 0, 1), OFFLOAD_BLOCK);
    for (int mode = OFFLOAD_CPU; mode <= OFFLOAD_DISK; mode++)
        for (int away = 0; away < 2; away++)
            for (int plan = 0; plan < 2; plan++) {
                Mem mem = {0}, host = {0};
                OffloadSettings s = {.mode = (OffloadMode)mode, .path = plan ? NULL : path, .sizes = sizes,
                                     .n_items = N, .n_slots = 3, .mem = &mem, .tag = MEM_PARAMS,
                                     .host = away ? &host : NULL, .dev = away ? &elsewhere : NULL, .what = "master"};
                size_t on_host = mode == OFFLOAD_CPU ? sum : away ? slots : 0;
                assert_int_equal(offload_host_bytes(&s), on_host);
                Offload *o = offload_create(&s);
                assert_int_equal(mem.tag_bytes[MEM_PARAMS], slots);
                assert_int_equal((away ? &host : &mem)->tag_bytes[MEM_HOST], on_host);
                assert_string_equal(mem.block[0].what, "master");
                char text[200];
                offload_describe(o, text, sizeof text);
                assert_non_null(strstr(text, mode == OFFLOAD_CPU ? "in host memory, 3 slots" : "in a file"));
                assert_non_null(strstr(text, "12 items, 0.1 MiB, "));
                offload_free(o);
                assert_int_equal(mem.bytes + host.bytes, 0);
                mem_free_all(&mem);
                mem_free_all(&host);
            }
    offload_free(NULL);
}

// The file has no name; O_DIRECT that is refused at the first read is said.
TEST(test_file)
{
    static Bench b;
    struct stat st;
    char text[200];
    bench_open(&b, 2, OFFLOAD_BLOCK + 1, 1);
    assert_true(access(path, F_OK) < 0 && errno == ENOENT);
    offload_wait(b.o, 0);
    assert_int_equal(fstat(b.hook.fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(st.st_size, 4 * OFFLOAD_BLOCK);
    assert_int_equal(st.st_mode & 077, 0);
#ifdef __linux__
    if (fallocate(b.hook.fd, 0, 0, 1) == 0) // this file system can: all is reserved, though nothing was written
        assert_true((size_t)st.st_blocks * 512 >= 4 * OFFLOAD_BLOCK);
#endif
    bench_close(&b);
    Mem mem = {0};
    Hook h = new_hook();
    OffloadIo io = io_of(&h);
    h.refuse_direct = true;
    OffloadSettings s = {.mode = OFFLOAD_DISK, .path = path, .sizes = sizes, .n_items = N, .n_slots = 2, .mem = &mem,
                         .tag = MEM_OPTIM, .io = &io};
    Offload *o = offload_create(&s);
    offload_describe(o, text, sizeof text);
    assert_non_null(strstr(text, "through the page cache"));
    one_pass(o, true);
    offload_free(o);
    mem_free_all(&mem);
}

// Lent in place: the store's own memory, without slots, copies and counts; a slot that was fetched ahead is read again,
// and what was written has its checksum.
TEST(test_in_place)
{
    for (int n_slots = 0; n_slots <= 2; n_slots++) {
        Mem mem = {0};
        OffloadSettings s = {.mode = OFFLOAD_CPU, .sizes = sizes, .n_items = N, .n_slots = n_slots, .mem = &mem,
                             .tag = MEM_OPTIM};
        Offload *o = offload_create(&s);
        assert_int_equal(mem.tag_bytes[MEM_OPTIM], n_slots ? offload_slot_bytes(sizes, N, n_slots) : 0);
        offload_set_checked(o, true);
        OptimStore store = offload_lender_in_place(o);
        for (int pass = 0; pass < 3; pass++)
            for (int i = 0; i < N; i++) {
                if (n_slots) assert_true(offload_fetch(o, i));
                char *item = store.lend(store.self, i, i + 1 < N ? i + 1 : -1), last[1];
                for (size_t k = 0; k < sizes[i]; k++) {
                    if (pass) assert_int_equal(item[k], (char)(i + (int)k + pass - 1));
                    item[k] = (char)(i + (int)k + pass);
                }
                store.give_back(store.self, i, true);
                if (!sizes[i]) continue;
                store.read(store.self, i, sizes[i] - 1, last, 1);
                assert_int_equal(last[0], item[sizes[i] - 1]);
                if (!n_slots) continue;
                char *slot = offload_wait(o, i); // a unit reads what the host has written
                assert_ptr_not_equal(slot, item);
                assert_memory_equal(slot, item, sizes[i]);
                offload_release(o, i, false);
            }
        assert_int_equal(offload_count(o).writes, 0);
        if (!n_slots) assert_int_equal(offload_count(o).reads, 0);
        offload_write(o, N - 1, 5, "x", 1);
        for (char c = 'x'; c < 'z'; c++) { // each time with a checksum of its own
            char *item = store.lend(store.self, N - 1, -1);
            assert_int_equal(item[5], c);
            item[5]++;
            store.give_back(store.self, N - 1, true);
        }
        offload_free(o);
        mem_free_all(&mem);
    }
}

// As many slots as there may be, all lent: the next item is not fetched before one is back.
TEST(test_most_slots)
{
    static Bench b;
    for (int back = 0; back < OFFLOAD_MAX_SLOTS; back += OFFLOAD_MAX_SLOTS - 1) { // from the first, and from the last
        bench_open(&b, OFFLOAD_MAX_SLOTS + 1, 100, OFFLOAD_MAX_SLOTS);
        for (int i = 0; i < OFFLOAD_MAX_SLOTS; i++) offload_wait(b.o, i);
        assert_false(offload_fetch(b.o, OFFLOAD_MAX_SLOTS));
        offload_release(b.o, back, false);
        assert_true(offload_fetch(b.o, OFFLOAD_MAX_SLOTS));
        for (int i = 0; i < OFFLOAD_MAX_SLOTS; i++)
            if (i != back) offload_release(b.o, i, false);
        bench_close(&b);
    }
}

// A store of nothing, as of an optimizer without state.
TEST(test_nothing)
{
    const size_t none[2] = {0};
    for (int mode = OFFLOAD_CPU; mode <= OFFLOAD_DISK; mode++)
        for (int n = 0; n <= 2; n += 2) {
            Mem mem = {0};
            OffloadSettings s = {.mode = (OffloadMode)mode, .path = path, .sizes = none, .n_items = n, .n_slots = 1,
                                 .mem = &mem, .tag = MEM_OPTIM};
            Offload *o = offload_create(&s);
            offload_flush(o);
            assert_int_equal(offload_count(o).bytes_read + offload_count(o).bytes_written, 0);
            offload_free(o);
            mem_free_all(&mem);
        }
}

// Freed while reads and writes are on their way: the thread ends its transfer and goes.
TEST(test_free_in_the_middle)
{
    static Bench b;
    for (int round = 0; round < 20; round++) {
        bench_open(&b, 4, 60000, 4);
        offload_wait(b.o, 0);
        offload_release(b.o, 0, true);
        for (int i = 1; i < 4; i++) offload_fetch(b.o, i);
        bench_close(&b);
    }
}

// ---- offload faults: an offload store on a disk that fails, is full or is changed by others, and a store that is used
// wrongly. Each case runs in a child, which must end with one line that says what, where and what to try.

// One bit of the last byte of item 1 changes behind the store's back.
static void tear(Bench *b, bool checked)
{
    offload_set_checked(b->o, checked);
    memset(offload_wait(b->o, 1), 1, 5000);
    offload_release(b->o, 1, true);
    offload_flush(b->o);
    char block[OFFLOAD_BLOCK] __attribute__((aligned(OFFLOAD_BLOCK)));
    off_t at = 8192 + 4096;
    if (pread(b->hook.fd, block, sizeof block, at) != sizeof block) _exit(97);
    block[5000 - 4096 - 1] ^= 64;
    if (pwrite(b->hook.fd, block, sizeof block, at) != sizeof block) _exit(97);
}

// What is done to a store of 4 items of 5000 bytes with 2 slots: words of a letter and an item or a number of bytes.
static int perform(void *arg)
{
    static Bench b;
    static char item[5000];
    bench_open(&b, 4, sizeof item, 2);
    for (const char *word = arg; word; word = strchr(word, ' ') ? strchr(word, ' ') + 1 : NULL) {
        int i = atoi(word + 1);
        switch (*word) {
        case 'f': offload_fetch(b.o, i); break;
        case 'w': offload_wait(b.o, i); break;
        case 'r': offload_release(b.o, i, false); break;
        case 'd': offload_release(b.o, i, true); break;
        case 's': offload_flush(b.o); break;
        case 'g': offload_read(b.o, i, 0, item, 1); break;
        case 'e': offload_read(b.o, i, 4999, item, 1); break;
        case 'x': offload_read(b.o, i, 5000, item, 1); break;
        case 'p': offload_write(b.o, i, 0, item, sizeof item); break;
        case 'q': offload_write(b.o, i, 0, "x", 1); break;
        case 'R': b.hook.reads_fail = true; break;
        case 'W': b.hook.writes_fail = true; break;
        case 'N': b.hook.nothing = true; break;
        case 'T': tear(&b, true); break;
        case 'C': // cut
            if (ftruncate(b.hook.fd, i) < 0) return 98;
            break;
        case 'u': // until so many transfers have been made
            while (offload_count(b.o).reads + offload_count(b.o).writes < (uint64_t)i) usleep(1000);
            break;
        default: return 96;
        }
    }
    return 0;
}

TEST(test_unchecked_is_not_noticed)
{
    static Bench b;
    bench_open(&b, 4, 5000, 2);
    tear(&b, false);
    offload_set_checked(b.o, true); // of what is written from now on
    assert_int_equal(((char *)offload_wait(b.o, 1))[4999], 65);
    offload_release(b.o, 1, false);
    bench_close(&b);
}

static int no_room(void *arg)
{
    Bench *b = arg;
    struct rlimit limit = {.rlim_cur = 30000, .rlim_max = 30000};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) < 0) return 98;
    bench_open(b, 4, 5000, 2); // 32768 bytes
    return 0;
}

static int exists(void *arg)
{
    FILE *f = fopen(path, "w");
    if (!f || fclose(f)) return 98;
    bench_open(arg, 1, 1, 1);
    return 0;
}

TEST(test_errors)
{
    static Bench b;
    char words[600];
    const char *full = "item 1 cannot be written at byte 8192 of the file: No space left on device (make room";
    const char *torn = "item 1, bytes 8192 to 13192, is not what was written: checksum ";
    const struct {
        const char *deeds, *words;
    } rows[] = {
        {"R f2 u1 w2", "item 2 cannot be read at byte 16384 of the file: Input/output error (look after"},
        // Written in the background, noticed at the next call, whichever it is.
        {"w1 W d1 s", full}, {"f3 w1 W d1 u3 f3", full}, {"w1 W d1 w3", full},
        {"W p3", "item 3 cannot be written at byte 24576 of the file: No space left on device"},
        {"w0 N d0 s", "item 0 cannot be written at byte 0 of the file: nothing was taken (make room"},
        // Item 2 of 2 blocks is in bytes 16384 to 24576.
        {"C20480 w2", "item 2 ends at byte 20480 of the file and not at 24576: the file was cut short"},
        {"C20481 e2", "item 2 ends at byte 2048"},
        {"T w1", torn}, {"T g1", torn}, {"T q1", torn}, // of a part that is written, what stays is looked at
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(words, sizeof words, "offload: %s: %s", path, rows[i].words);
        expect_die(perform, (void *)(uintptr_t)rows[i].deeds, words);
    }
    static const char *const misuse[] = {"w0 r0 f0 r0", "w0 g0", "x0"}; // released twice; read while lent, past its end
    for (int i = 0; i < 3; i++) expect_die(perform, (void *)(uintptr_t)misuse[i], "broken invariant");
    expect_die(perform, "w0 w1 w2", "offload: item 2 is asked for while all 2 slots are lent");
    expect_dies("offload: host memory: item 3, bytes 4096 to 8192, is not what was written", {
        Mem mem = {0};
        OffloadSettings s = {.mode = OFFLOAD_CPU, .sizes = sizes, .n_items = N, .n_slots = 1, .mem = &mem,
                             .tag = MEM_OPTIM};
        Offload *o = offload_create(&s);
        offload_set_checked(o, true);
        one_pass(o, true);
        ((char *)mem.block[1].ptr)[4096] ^= 1; // of item 3: 0, 1 and 4095 bytes are before it
        offload_wait(o, 2);
        offload_release(o, 2, false);
        offload_wait(o, 3);
    });
    snprintf(words, sizeof words, "offload: %s: no room for 32768 bytes: File too large (make room on that disk", path);
    expect_die(no_room, &b, words);
    snprintf(words, sizeof words, "offload: %s: cannot be made: File exists (remove it; the store needs a file of its "
             "own)", path);
    expect_die(exists, &b, words);
    assert_int_equal(unlink(path), 0);
    expect_dies("/no/such: cannot be made: No", {
        strcat(path, "/no/such");
        bench_open(&b, 1, 1, 1);
    });
    expect_dies("broken invariant", {
        Mem mem = {0};
        OffloadSettings s = {.mode = OFFLOAD_DISK, .sizes = sizes, .n_items = N, .n_slots = 1, .mem = &mem,
                             .tag = MEM_OPTIM};
        offload_fetch(offload_create(&s), 1);
    });
}

TESTS(make_directory, remove_directory)
