// test_fault: run.fault's syntax, when a fault acts, and the parts that need no run; the lock on a directory.

#include "test/test.h"

#include "expect_die.h"
#include "src/check/fault.h"
#include "base/disk.h"
#include "temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

TEST(test_language)
{
    assert_int_equal(fault_parse("").n, 0);
    Faults f = fault_parse("kill:rank=2,step=30; exit:step=4,status=3;"
                           "nan:tensor=final_norm.weight,step=1,of=gradient,index=7;"
                           "flip:step=9,rank=1,tensor=a,bit=31;enospc:step=5;slowdisk:step=6,seconds=0.25,steps=2;"
                           "hang:step=8;spike:step=10,steps=3");
    assert_int_equal(f.n, 8);
    assert_true(f.fault[0].kind == FAULT_KILL && f.fault[0].rank == 2 &&
                f.fault[0].step == 30 && f.fault[0].signal == SIGKILL);
    assert_true(f.fault[1].kind == FAULT_EXIT && f.fault[1].rank == 0 && f.fault[1].status == 3);
    assert_string_equal(f.fault[2].tensor, "final_norm.weight");
    assert_string_equal(f.fault[2].of, "gradient");
    assert_int_equal(f.fault[2].index, 7);
    assert_string_equal(f.fault[3].of, "weight");
    assert_int_equal(f.fault[3].bit, 31);
    assert_int_equal(f.fault[4].bytes, 65536);
    assert_true(f.fault[5].seconds == 0.25 && f.fault[5].steps == 2);
    const struct { const char *text, *words; } wrong[] = {
        {"kil:step=1", "no such fault: kil (kill, exit"}, {"kill", "kill needs step=N"},
        {"kill:rank=1", "kill needs step=N"},
        {"nan:step=1", "nan needs tensor=NAME"}, {"kill:step=0", "step=0 (a whole number >= 1)"},
        {"kill:step=1x", "step=1x (a whole number"}, {"kill:step=99999999999999999999", "a whole number"},
        {"kill:step=1,status=2", "kill does not take status"}, {"exit:step=1,ste=2", "exit does not take ste"},
        {"kill:step=1,of=x", "kill does not take of"}, {"nan:step=1,tensor=a,ab=x", "nan does not take ab"},
        {"nan:step=1,tensor=a,off=x", "nan does not take off"}, {"nan:step=1,tensor=a,o=x", "nan does not take o"},
        {"kill:step=1,tensor=a", "kill does not take tensor"}, {"nan:step=1,tensos=a", "nan does not take tensos"},
        {"kill:step=1,seconds=1", "kill does not take seconds"}, {"slowdisk:step=1,secondz=1", "not take secondz"},
        {"slowdisk:step=1,seconds=1x", "seconds=1x (seconds)"},
        {"slowdisk:step=1,seconds=1e6", "seconds=1e6 (seconds)"},
        {"kill:step=1,step=2", "step=2 is there twice"}, {"kill:step", "step is not key=value"},
        {"kill:step=", "step= is not key=value"}, {"slowdisk:step=1,seconds=nan", "seconds=nan (seconds)"},
        {"flip:step=1,tensor=a,bit=32", "bits go to 31"}, {"kill:step=1,signal=65", "signals to 64"},
        {"hang:step=1;hang:step=2;hang:step=3;hang:step=4;hang:step=5;hang:step=6;hang:step=7;hang:step=8;hang:step=9",
         "more than 8 faults"},
        {"nan:step=1,tensor=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "is too long"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) expect_dies(wrong[i].words, fault_parse(wrong[i].text));
}

TEST(test_when)
{
    Faults f = fault_parse("spike:step=10,steps=3;kill:rank=2,step=30");
    for (long step = 1; step < 40; step++) {
        assert_true((fault_at(&f, FAULT_SPIKE, 0, step) != NULL) == (step >= 10 && step < 13));
        for (long rank = 0; rank < 4; rank++)
            assert_true((fault_at(&f, FAULT_KILL, rank, step) != NULL) == (rank == 2 && step == 30));
        assert_null(fault_at(&f, FAULT_HANG, 0, step));
    }
}

TEST(test_flip_and_poison)
{
    float x[3] = {1, 1, 1};
    fault_flip(x, 1, 31);
    assert_true(x[0] == 1 && x[1] == -1 && x[2] == 1);
    fault_flip(x, 1, 31);
    assert_true(x[1] == 1);
    int32_t token[2][64], target[2][64];
    fault_poison(token[0], target[0], 64, 5, 300), fault_poison(token[1], target[1], 64, 5, 300);
    assert_memory_equal(token[0], token[1], sizeof token[0]);
    for (int i = 0; i < 64; i++) assert_true(token[0][i] >= 0 && token[0][i] < 300);
    for (int i = 0; i < 63; i++) assert_int_equal(target[0][i], token[0][i + 1]);
    fault_poison(token[1], target[1], 64, 6, 300);
    assert_true(memcmp(token[0], token[1], sizeof token[0]) != 0);
}

static int full_disk(void *arg)
{
    (void)arg;
    char block[4096] = {0};
    fault_limit_files(6000);
    int fd = open(in_dir("full"), O_CREAT | O_WRONLY, 0600);
    if (write(fd, block, 4096) != 4096 || write(fd, block, 4096) != 1904 ||
        write(fd, block, 1) != -1 || errno != EFBIG) return 2;
    fault_limit_files(0);
    return write(fd, block, 4096) == 4096 ? 0 : 3;
}

TEST(test_full_disk)
{
    char text[100];
    assert_int_equal(run_child(full_disk, NULL, text, sizeof text), 0);
}

// ---- the lock

static int take(void *arg)
{
    disk_lock_take(arg);
    return 0;
}

static void read_lock(char text[200])
{
    FILE *f = fopen(in_dir("lock"), "r");
    assert_non_null(f);
    size_t n = fread(text, 1, 199, f);
    text[n] = '\0';
    fclose(f);
}

TEST(test_lock)
{
    char words[160], text[200], host[64] = "";
    gethostname(host, sizeof host - 1);
    DiskLock lock = disk_lock_take(dir);
    snprintf(words, sizeof words, "another run is in this directory: %s, process %ld, since 20", host, (long)getpid());
    expect_die(take, dir, words);
    disk_lock_release(lock);
    read_lock(text);
    assert_string_equal(text, "");
    lock = disk_lock_take(dir);
    assert_int_equal(unlink(in_dir("lock")), 0);
    expect_die(take, dir, "another run is in this directory: it has not said which"); // the folder itself is locked
    disk_lock_release(lock);
    assert_int_equal(run_child(take, dir, text, sizeof text), 0); // free again; and left behind by that child
    read_lock(text);
    assert_non_null(strstr(text, "process"));
    lock = disk_lock_take(dir); // which is dead
    read_lock(text);
    snprintf(words, sizeof words, "process %ld,", (long)getpid());
    assert_non_null(strstr(text, words));
    disk_lock_release(lock);
    disk_lock_release((DiskLock){-1, -1});
    expect_die(take, (char *)"/tmp/no/such/directory", "No such file");
}

TESTS(temp_dir_make, temp_dir_remove)
