// Tests of disk.h's DiskOut: what is there before, during and after; links, pipes, devices; two writers; what a killed
// writer leaves. And that calls of the system that do less than was asked are repeated.
#include "base/disk.h"
#include "tools/disk_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/test.h"

#include "expect_die.h"

#include "temp_dir.h"

static void write_mine(const char *path)
{
    DiskOut *out = disk_out_open(path);
    fputs("mine\n", out->f);
    disk_out_commit(out);
}

// The type of what has this name in the directory: S_IFREG, S_IFLNK, ...; 0: nothing.
static mode_t there(const char *name)
{
    struct stat info;
    return lstat(in_dir(name), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

// A child that begins an output and ends without it.
static void begin_and_leave(const char *path)
{
    int status;
    pid_t child = fork(); // no child of expect_die.h, which leaves without what is done at exit
    if (child == 0) fputs("half", disk_out_open(path)->f), exit(1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

// ---- what the next calls of read, pread and write do, a letter each; then they are the system's again
//   i: interrupted (EINTR)   2: at most two bytes   0: none, and errno is of an earlier call   x: fails (ENXIO)
static const char *acts = "";

static ssize_t act(long number, int fd, intptr_t data, size_t n, off_t at)
{
    char now = *acts ? *acts++ : 'n';
    if (now == 'i' || now == 'x' || now == '0') {
        errno = now == 'x' ? ENXIO : EINTR;
        return now == '0' ? 0 : -1;
    }
    return syscall(number, fd, data, now == '2' && n > 2 ? 2 : n, at);
}
ssize_t read(int fd, void *data, size_t n) { return act(SYS_read, fd, (intptr_t)data, n, 0); }
ssize_t pread(int fd, void *data, size_t n, off_t at) { return act(SYS_pread64, fd, (intptr_t)data, n, at); }
ssize_t write(int fd, const void *data, size_t n) { return act(SYS_write, fd, (intptr_t)data, n, 0); }

static void reads(const char *actions, const char *text)
{
    size_t n;
    acts = actions;
    FREED char *got = disk_read_file(in_dir("a"), &n, 1000);
    assert_string_equal(got, text);
}

TEST_IN_DIR(test_short_calls)
{
    char got[7] = "";
    size_t n = 99;
    put_text("a", "abcdef");
    reads("i2i2i2", "abcdef");
    reads("i20", "ab"); // the file has become shorter
    acts = "2x";
    assert_null(disk_read_file(in_dir("a"), &n, 1000));
    assert_true(errno == ENXIO && n == 99);
    int fd = open(in_dir("a"), O_RDWR);
    acts = "i2i";
    assert_true(disk_read_at(fd, got, 4, 1));
    assert_string_equal(got, "bcde"); // no more than was asked for
    assert_false(disk_read_at(fd, got, 5, 2)); // it ends before
    acts = "i2i2i";
    assert_true(disk_write(fd, "ghijkl", 6));
    reads("", "ghijkl");
    for (int i = 0; i < 2; i++) {
        acts = i ? "2x" : "20";
        assert_true(!disk_read_at(fd, got, 5, 1) && errno == (i ? ENXIO : EIO));
        acts = i ? "2x" : "20";
        assert_true(!disk_write(fd, "mnop", 4) && errno == (i ? ENXIO : EIO));
    }
    close(fd);
}

TEST_IN_DIR(test_whole_or_not)
{
    put_text("a", "old\n");
    DiskOut *out = disk_out_open(in_dir("a"));
    fputs("new\n", out->f);
    fflush(out->f);
    has_text("a", "old\n");
    disk_out_commit(out);
    has_text("a", "new\n");
    begin_and_leave(in_dir("a"));
    has_text("a", "new\n");
    write_mine(in_dir("b")); // was not there
    has_text("b", "mine\n");
    out = disk_out_open(in_dir("c"));
    begin_and_leave(in_dir("a"));
    has_text("a", "new\n");
    assert_true(there("c.tmp")); // what its parent writes is not the child's
    disk_out_commit(out);
    expect_dies("an output file has an empty name", write_mine(""));
    assert_false(there("a.tmp") || there("b.tmp"));
}

// A whole file in the place of another, which whoever has it open still reads.
TEST_IN_DIR(test_replace)
{
    char got[9] = "";
    put_text("a", "long old");
    int fd = open(in_dir("a"), O_RDONLY);
    assert_true(disk_replace_file(in_dir("a"), "new", 3));
    has_text("a", "new");
    assert_true(read(fd, got, 8) == 8 && !strcmp(got, "long old"));
    close(fd);
    assert_true(disk_replace_file(in_dir("b"), "first", 5)); // was not there
    has_text("b", "first");
    assert_false(disk_replace_file(dir, "new", 3)); // a folder
    assert_true(disk_is_special("/dev/null") && !disk_is_special(dir) && !disk_is_special(in_dir("a")));
    assert_false(disk_is_special(in_dir("nothing")));
}

TEST_IN_DIR(test_links)
{
    put_text("a", "old\n");
    assert_int_equal(symlink("a", in_dir("link")), 0);
    write_mine(in_dir("link"));
    assert_int_equal(there("link"), S_IFLNK);
    has_text("a", "mine\n");
    assert_int_equal(symlink("nowhere", in_dir("broken")), 0);
    expect_dies("broken: is a link to nowhere (remove it, or write elsewhere)", write_mine(in_dir("broken")));
    put_text("victim", "safe\n"); // a link in the place of the file aside
    assert_int_equal(symlink("victim", in_dir("b.tmp")), 0);
    write_mine(in_dir("b"));
    has_text("victim", "safe\n");
    has_text("b", "mine\n");
}

TEST_IN_DIR(test_no_plain_file)
{
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    int reader = open(in_dir("pipe"), O_RDONLY | O_NONBLOCK);
    write_mine(in_dir("pipe"));
    char got[6] = "";
    assert_int_equal(read(reader, got, 5), 5);
    assert_string_equal(got, "mine\n");
    assert_true(disk_replace_file(in_dir("pipe"), "again", 5));
    assert_int_equal(read(reader, got, 5), 5);
    assert_string_equal(got, "again");
    close(reader);
    assert_int_equal(there("pipe"), S_IFIFO);
    assert_false(there("pipe.tmp"));
    int ends[2]; // a link whose end has no name
    assert_int_equal(pipe(ends), 0);
    char link[40];
    snprintf(link, sizeof link, "/dev/fd/%d", ends[1]);
    write_mine(link);
    assert_int_equal(read(ends[0], got, 5), 5);
    assert_string_equal(got, "mine\n");
    close(ends[0]), close(ends[1]);
    expect_dies(": is a folder (give the name of a file)", write_mine(dir));
    expect_dies("/dev/full: cannot write: No space left on device (is the disk full?)", write_mine("/dev/full"));
}

// Standard output as the shell has opened it, to the file `out`: what is in the file stays, and what is printed beside.
static void print_and_write(const char *name, int append)
{
    dup2(open(in_dir("out"), O_WRONLY | (append ? O_APPEND : O_TRUNC)), STDOUT_FILENO);
    printf("one ");
    fflush(stdout);
    DiskOut *out = disk_out_open(name);
    fputs("two ", out->f);
    disk_out_commit(out);
    printf("three");
    fflush(stdout);
}

TEST_IN_DIR(test_standard_output)
{
    char said[400];
    const char *const name[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    for (int i = 0; i < 6; i++) {
        put_text("out", "old ");
        Child child = child_begin();
        if (!child.pid) print_and_write(name[i / 2], i % 2), exit(0);
        assert_int_equal(child_end(child, said, sizeof said), 0);
        has_text("out", i % 2 ? "old one two three" : "one two three");
    }
    expect_dies("out: is where standard output goes too (give another name)", print_and_write(in_dir("out"), 0));
}

// Two programs with one name: the second is told; one that was killed does not stand in the way.
TEST_IN_DIR(test_two_writers)
{
    put_text("a", "old\n");
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t writer = fork();
    if (writer == 0) {
        DiskOut *out = disk_out_open(in_dir("a"));
        fputs("half", out->f);
        fflush(out->f);
        if (write(ready[1], "x", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    expect_dies("a: is being written already (by another program, or it was given twice)", write_mine(in_dir("a")));
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    assert_true(there("a.tmp"));
    has_text("a", "old\n");
    write_mine(in_dir("a"));
    has_text("a", "mine\n");
    DiskOut *first = disk_out_open(in_dir("b"));
    expect_dies("b: is being written already", write_mine(in_dir("b")));
    disk_out_commit(first);
    close(ready[0]), close(ready[1]);
}

TEST_IN_DIR(test_apart)
{
    char beside[400];
    assert_int_equal(mkdir(in_dir("inner"), 0700), 0);
    expect_dies("lies in the input folder", disk_out_apart(in_dir("a"), dir));
    expect_dies("lies in the input folder", disk_out_apart(in_dir("inner/a"), dir));
    snprintf(beside, sizeof beside, "%s-beside", dir);
    disk_out_apart(beside, dir);
    put_text("a", "old\n");
    disk_out_apart(in_dir("a"), in_dir("a")); // a file that is input itself
    put_text("b.tmp", "the input\n");
    expect_dies("b.tmp first, which is the input (write it elsewhere)", disk_out_apart(in_dir("b"), in_dir("b.tmp")));
    char link[420];
    snprintf(link, sizeof link, "%s-link", dir);
    assert_int_equal(symlink(in_dir("a"), link), 0);
    expect_dies("lies in the input folder", disk_out_apart(link, dir));
    unlink(link);
    unlink(in_dir("b.tmp"));
}

TEST_IN_DIR(test_folder)
{
    disk_folder_make(in_dir("a/b//c"), "--out");
    assert_int_equal(there("a/b/c"), S_IFDIR);
    disk_folder_make(in_dir("a/b"), "--out"); // is there
    put_text("file", "x");
    expect_dies("--out: an empty name", disk_folder_make("", "--out"));
    expect_dies("file: not a folder (--out is the folder to write to)", disk_folder_make(in_dir("file"), "--out"));
    expect_dies("file/a: Not a directory (--out is the folder to write to)",
                disk_folder_make(in_dir("file/a"), "--out"));
    char name[PATH_MAX + 1]; // dir/./././.: one character more than there is room for
    size_t n = (size_t)snprintf(name, sizeof name, "%s", dir);
    for (; n < PATH_MAX; n++) name[n] = (PATH_MAX - n) % 2 ? '.' : '/';
    name[n] = 0;
    if (name[strlen(dir)] == '.') name[strlen(dir)] = '/';
    expect_dies(dir, disk_folder_make(name, "--out"));
    name[n - 1] = 0;
    disk_folder_make(name, "--out");
}

static bool is_text(const char *name)
{
    return strstr(name, ".txt") != NULL;
}

// New files in the place of old ones of their kind; others stay.
TEST_IN_DIR(test_folder_replaced)
{
    put_text("a.txt", "old"), put_text("b.txt", "old"), put_text("other", "stays");
    FREED char *fresh = disk_folder_begin(dir);
    assert_true(there("a.txt") && there("new.tmp"));
    put_text("new.tmp/a.txt", "new"), put_text("new.tmp/c.txt", "new");
    disk_folder_check_old(dir, is_text);
    disk_folder_replace(dir, is_text);
    has_text("a.txt", "new"), has_text("c.txt", "new"), has_text("other", "stays");
    assert_false(there("b.txt") || there("new.tmp") || there("unfinished"));
    disk_folder_check(dir);
    disk_folder_check_file(in_dir("a.txt"));
}

TESTS(NULL, NULL)
