// test_offload_faults: an offload store on a disk that fails, is full or is changed by others, and a store that is
// used wrongly. Each case runs in a child, which must end with one line that says what, where and what to try.
#include "expect_die.h"
#include "offload_case.h"

#include <signal.h>
#include <sys/resource.h>

static int read_fails(void *arg)
{
    Bench *b = arg;
    bench_open(b, 4, 5000, 2);
    b->hook.reads_fail = true;
    offload_fetch(b->o, 2); // in the background
    while (offload_count(b->o).reads < 1) usleep(1000);
    offload_wait(b->o, 2);
    return 0;
}

// Written in the background, noticed at the next call, whichever it is: flush, fetch, wait for something else.
static void write_badly(Bench *b)
{
    bench_open(b, 4, 5000, 2);
    offload_wait(b->o, 1);
    b->hook.writes_fail = true;
    offload_release(b->o, 1, true);
}

static int write_fails_then_flush(void *arg)
{
    Bench *b = arg;
    write_badly(b);
    offload_flush(b->o);
    return 0;
}

static int write_fails_then_fetch(void *arg)
{
    Bench *b = arg;
    bench_open(b, 4, 5000, 2);
    offload_fetch(b->o, 3);
    offload_wait(b->o, 1);
    b->hook.writes_fail = true;
    offload_release(b->o, 1, true);
    while (offload_count(b->o).writes < 1) usleep(1000);
    offload_fetch(b->o, 3); // it is there already
    return 0;
}

static int write_fails_then_wait(void *arg)
{
    Bench *b = arg;
    write_badly(b);
    offload_wait(b->o, 3); // its read comes after the write
    return 0;
}

static int write_at_once_fails(void *arg)
{
    Bench *b = arg;
    static char item[5000];
    bench_open(b, 4, sizeof item, 2);
    b->hook.writes_fail = true;
    offload_write(b->o, 3, 0, item, sizeof item);
    return 0;
}

static int write_takes_nothing(void *arg)
{
    Bench *b = arg;
    bench_open(b, 4, 5000, 2);
    offload_wait(b->o, 0);
    b->hook.nothing = true;
    offload_release(b->o, 0, true);
    offload_flush(b->o);
    return 0;
}

// Item 2 of 2 blocks is in bytes 16384 to 24576.
static int cut_short(void *arg)
{
    Bench *b = arg;
    bench_open(b, 4, 5000, 2);
    if (ftruncate(b->hook.fd, 20480) < 0) return 98;
    offload_wait(b->o, 2);
    return 0;
}

static int cut_within_a_block(void *arg)
{
    Bench *b = arg;
    bench_open(b, 4, 5000, 2);
    if (ftruncate(b->hook.fd, 20481) < 0) return 98;
    char last;
    offload_read(b->o, 2, 4999, &last, 1);
    return 0;
}

// One bit of the last byte of item 1 changes behind the store's back.
static void tear(Bench *b, bool checked)
{
    bench_open(b, 4, 5000, 2);
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

static int torn_then_wait(void *arg)
{
    Bench *b = arg;
    tear(b, true);
    offload_wait(b->o, 1);
    return 0;
}

static int torn_then_read(void *arg)
{
    Bench *b = arg;
    char first;
    tear(b, true);
    offload_read(b->o, 1, 0, &first, 1);
    return 0;
}

// A part of the item is written: what stays of it is looked at.
static int torn_then_written(void *arg)
{
    Bench *b = arg;
    tear(b, true);
    offload_write(b->o, 1, 0, "x", 1);
    return 0;
}

TEST(test_unchecked_is_not_noticed)
{
    static Bench b;
    tear(&b, false);
    offload_set_checked(b.o, true); // of what is written from now on
    assert_int_equal(((char *)offload_wait(b.o, 1))[4999], 65);
    offload_release(b.o, 1, false);
    bench_close(&b);
}

static int memory_is_damaged(void *arg)
{
    Mem mem = {0};
    (void)arg;
    OffloadSettings s = {.mode = OFFLOAD_CPU, .sizes = sizes, .n_items = N, .n_slots = 1, .mem = &mem,
                         .tag = MEM_OPTIM};
    Offload *o = offload_create(&s);
    offload_set_checked(o, true);
    one_pass(o, true);
    ((char *)mem.block[1].ptr)[4096] ^= 1; // of item 3: 0, 1 and 4095 bytes are before it
    offload_wait(o, 2);
    offload_release(o, 2, false);
    offload_wait(o, 3);
    return 0;
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

static int no_such_directory(void *arg)
{
    strcat(path, "/no/such");
    bench_open(arg, 1, 1, 1);
    return 0;
}

static int exists(void *arg)
{
    FILE *f = fopen(path, "w");
    if (!f || fclose(f)) return 98;
    bench_open(arg, 1, 1, 1);
    return 0;
}

static int too_many_lent(void *arg)
{
    Bench *b = arg;
    bench_open(b, 4, 5000, 2);
    offload_wait(b->o, 0);
    offload_wait(b->o, 1);
    offload_wait(b->o, 2);
    return 0;
}

static int released_twice(void *arg)
{
    Bench *b = arg;
    bench_open(b, 4, 5000, 2);
    offload_wait(b->o, 0);
    offload_release(b->o, 0, false);
    offload_fetch(b->o, 0);
    offload_release(b->o, 0, false);
    return 0;
}

static int read_while_lent(void *arg)
{
    Bench *b = arg;
    char byte;
    bench_open(b, 4, 5000, 2);
    offload_wait(b->o, 0);
    offload_read(b->o, 0, 0, &byte, 1);
    return 0;
}

static int read_past_the_end(void *arg)
{
    Bench *b = arg;
    char byte;
    bench_open(b, 4, 5000, 2);
    offload_read(b->o, 0, 5000, &byte, 1);
    return 0;
}

static int plan_is_used(void *arg)
{
    Mem mem = {0};
    (void)arg;
    OffloadSettings s = {.mode = OFFLOAD_DISK, .sizes = sizes, .n_items = N, .n_slots = 1, .mem = &mem,
                         .tag = MEM_OPTIM};
    offload_fetch(offload_create(&s), 1);
    return 0;
}

TEST(test_errors)
{
    static Bench b;
    char words[600];
#define expect_error(call, text)                                                                             \
    do {                                                                                                     \
        snprintf(words, sizeof words, "offload: %s: %s", path, text);                                        \
        expect_die(call, &b, words);                                                                         \
    } while (0)
    expect_error(read_fails, "item 2 cannot be read at byte 16384 of the file: Input/output error (look after");
    const char *full = "item 1 cannot be written at byte 8192 of the file: No space left on device (make room";
    expect_error(write_fails_then_flush, full);
    expect_error(write_fails_then_fetch, full);
    expect_error(write_fails_then_wait, full);
    expect_error(write_at_once_fails, "item 3 cannot be written at byte 24576 of the file: No space left on device");
    expect_error(write_takes_nothing, "item 0 cannot be written at byte 0 of the file: nothing was taken (make room");
    expect_error(cut_short, "item 2 ends at byte 20480 of the file and not at 24576: the file was cut short");
    expect_error(cut_within_a_block, "item 2 ends at byte 2048");
    const char *torn = "item 1, bytes 8192 to 13192, is not what was written: checksum ";
    expect_error(torn_then_wait, torn);
    expect_error(torn_then_read, torn);
    expect_error(torn_then_written, torn);
    expect_die(memory_is_damaged, NULL, "offload: host memory: item 3, bytes 4096 to 8192, is not what was written");
    expect_error(no_room, "no room for 32768 bytes: File too large (make room on that disk");
    expect_error(exists, "cannot be made: File exists (remove it; the store needs a file of its own)");
    assert_int_equal(unlink(path), 0);
    expect_die(no_such_directory, &b, "/no/such: cannot be made: No");
    expect_die(too_many_lent, &b, "offload: item 2 is asked for while all 2 slots are lent");
    expect_die(released_twice, &b, "broken invariant");
    expect_die(read_while_lent, &b, "broken invariant");
    expect_die(read_past_the_end, &b, "broken invariant");
    expect_die(plan_is_used, NULL, "broken invariant");
}

TESTS(make_directory, remove_directory)
