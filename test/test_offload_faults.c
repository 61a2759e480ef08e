// test_offload_faults: an offload store on a disk that fails, is full or is changed by others, and a store that is
// used wrongly. Each case runs in a child, which must end with one line that says what, where and what to try.
#include "expect_die.h"
#include "offload_case.h"

#include <signal.h>
#include <sys/resource.h>

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
    expect_die(memory_is_damaged, NULL, "offload: host memory: item 3, bytes 4096 to 8192, is not what was written");
    snprintf(words, sizeof words, "offload: %s: no room for 32768 bytes: File too large (make room on that disk", path);
    expect_die(no_room, &b, words);
    snprintf(words, sizeof words, "offload: %s: cannot be made: File exists (remove it; the store needs a file of its "
             "own)", path);
    expect_die(exists, &b, words);
    assert_int_equal(unlink(path), 0);
    expect_die(no_such_directory, &b, "/no/such: cannot be made: No");
    expect_die(plan_is_used, NULL, "broken invariant");
}

TESTS(make_directory, remove_directory)
