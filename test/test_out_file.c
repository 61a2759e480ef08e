// Tests of disk.h's DiskOut: what is there before, during and after; links, pipes, devices; two writers; what a killed
// writer leaves. And that calls of the system that do less than was asked are repeated.
#include "base/disk.h"

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

static void put(const char *name, const char *text)
{
    assert_true(disk_write_file(in_dir(name), text, strlen(text)));
}

static void has(const char *name, const char *text)
{
    size_t n;
    FREED char *got = disk_read_file(in_dir(name), &n, 1000);
    assert_non_null(got);
    assert_string_equal(got, text);
}

static bool there(const char *name)
{
    struct stat info;
    return lstat(in_dir(name), &info) == 0;
}

static int open_and_commit(void *path)
{
    DiskOut *out = disk_out_open(path);
    fputs("mine\n", out->f);
    disk_out_commit(out);
    return 0;
}

// A child that begins an output and ends without it.
static void begin_and_leave(const char *path)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        fputs("half", disk_out_open(path)->f);
        exit(1);
    }
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
ssize_t read(int fd, void *data, size_t n)
{
    return act(SYS_read, fd, (intptr_t)data, n, 0);
}
ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    return act(SYS_pread64, fd, (intptr_t)data, n, at);
}
ssize_t write(int fd, const void *data, size_t n)
{
    return act(SYS_write, fd, (intptr_t)data, n, 0);
}

TEST_IN_DIR(test_short_calls)
{
    char got[7] = "";
    size_t n = 99;
    put("a", "abcdef");
    acts = "i2i2i2";
    has("a", "abcdef");
    acts = "i20"; // the file has become shorter
    has("a", "ab");
    acts = "2x";
    assert_null(disk_read_file(in_dir("a"), &n, 1000));
    assert_true(errno == ENXIO && n == 99);
    int fd = open(in_dir("a"), O_RDWR);
    acts = "i2i";
    assert_true(disk_read_at(fd, got, 4, 1));
    assert_string_equal(got, "bcde"); // no more than was asked for
    acts = "20";
    assert_false(disk_read_at(fd, got, 5, 1));
    assert_int_equal(errno, EIO);
    acts = "2x";
    assert_false(disk_read_at(fd, got, 5, 1));
    assert_int_equal(errno, ENXIO);
    assert_false(disk_read_at(fd, got, 5, 2)); // it ends before
    acts = "i2i2i";
    assert_true(disk_write(fd, "ghijkl", 6));
    has("a", "ghijkl");
    acts = "20";
    assert_false(disk_write(fd, "mnop", 4));
    assert_int_equal(errno, EIO);
    acts = "2x";
    assert_false(disk_write(fd, "mnop", 4));
    assert_int_equal(errno, ENXIO);
    close(fd);
}

TEST_IN_DIR(test_whole_or_not)
{
    put("a", "old\n");
    DiskOut *out = disk_out_open(in_dir("a"));
    fputs("new\n", out->f);
    fflush(out->f);
    has("a", "old\n");
    disk_out_commit(out);
    has("a", "new\n");
    begin_and_leave(in_dir("a"));
    has("a", "new\n");
    open_and_commit(in_dir("b")); // was not there
    has("b", "mine\n");
    out = disk_out_open(in_dir("c"));
    begin_and_leave(in_dir("a"));
    has("a", "new\n");
    assert_true(there("c.tmp")); // what its parent writes is not the child's
    disk_out_commit(out);
    expect_die(open_and_commit, "", "an output file has an empty name");
    assert_false(there("a.tmp") || there("b.tmp"));
}

// A whole file in the place of another, which whoever has it open still reads.
TEST_IN_DIR(test_replace)
{
    char got[9] = "";
    put("a", "long old");
    int fd = open(in_dir("a"), O_RDONLY);
    assert_true(disk_replace_file(in_dir("a"), "new", 3));
    has("a", "new");
    assert_true(read(fd, got, 8) == 8 && !strcmp(got, "long old"));
    close(fd);
    assert_true(disk_replace_file(in_dir("b"), "first", 5)); // was not there
    has("b", "first");
    assert_false(disk_replace_file(dir, "new", 3)); // a folder
    assert_true(disk_is_special("/dev/null") && !disk_is_special(dir) && !disk_is_special(in_dir("a")));
    assert_false(disk_is_special(in_dir("nothing")));
}

TEST_IN_DIR(test_links)
{
    put("a", "old\n");
    assert_int_equal(symlink("a", in_dir("link")), 0);
    open_and_commit(in_dir("link"));
    struct stat info;
    assert_true(lstat(in_dir("link"), &info) == 0 && S_ISLNK(info.st_mode));
    has("a", "mine\n");
    assert_int_equal(symlink("nowhere", in_dir("broken")), 0);
    expect_die(open_and_commit, in_dir("broken"), "broken: is a link to nowhere (remove it, or write elsewhere)");
    put("victim", "safe\n"); // a link in the place of the file aside
    assert_int_equal(symlink("victim", in_dir("b.tmp")), 0);
    open_and_commit(in_dir("b"));
    has("victim", "safe\n");
    has("b", "mine\n");
}

TEST_IN_DIR(test_no_plain_file)
{
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    int reader = open(in_dir("pipe"), O_RDONLY | O_NONBLOCK);
    open_and_commit(in_dir("pipe"));
    char got[6] = "";
    assert_int_equal(read(reader, got, 5), 5);
    assert_string_equal(got, "mine\n");
    assert_true(disk_replace_file(in_dir("pipe"), "again", 5));
    assert_int_equal(read(reader, got, 5), 5);
    assert_string_equal(got, "again");
    close(reader);
    struct stat info;
    assert_true(lstat(in_dir("pipe"), &info) == 0 && S_ISFIFO(info.st_mode));
    assert_false(there("pipe.tmp"));
    int ends[2]; // a link whose end has no name
    assert_int_equal(pipe(ends), 0);
    char link[40];
    snprintf(link, sizeof link, "/dev/fd/%d", ends[1]);
    open_and_commit(link);
    assert_int_equal(read(ends[0], got, 5), 5);
    assert_string_equal(got, "mine\n");
    close(ends[0]), close(ends[1]);
    expect_die(open_and_commit, dir, ": is a folder (give the name of a file)");
    expect_die(open_and_commit, "/dev/full", "/dev/full: cannot write: No space left on device (is the disk full?)");
}

// Standard output as the shell has opened it: what is in the file stays, what is printed beside it too.
static int print_and_write(void *path)
{
    const char **names = path; // the file behind standard output; the output's name
    int fd = open(names[0], O_WRONLY | (names[2] ? O_APPEND : O_TRUNC));
    dup2(fd, STDOUT_FILENO);
    printf("one ");
    fflush(stdout);
    DiskOut *out = disk_out_open(names[1]);
    fputs("two ", out->f);
    disk_out_commit(out);
    printf("three");
    fflush(stdout);
    return 0;
}

TEST_IN_DIR(test_standard_output)
{
    char path[400], said[400];
    snprintf(path, sizeof path, "%s", in_dir("out"));
    const char *const name[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    for (int i = 0; i < 3; i++)
        for (int append = 0; append < 2; append++) {
            const char *names[] = {path, name[i], append ? "yes" : NULL};
            put("out", "old ");
            assert_int_equal(run_child(print_and_write, names, said, sizeof said), 0);
            has("out", append ? "old one two three" : "one two three");
        }
    const char *names[] = {path, path, NULL};
    expect_die(print_and_write, names, "out: is where standard output goes too (give another name)");
}

// Two programs with one name: the second is told; one that was killed does not stand in the way.
TEST_IN_DIR(test_two_writers)
{
    put("a", "old\n");
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
    expect_die(open_and_commit, in_dir("a"), "a: is being written already (by another program, or it was given twice)");
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    assert_true(there("a.tmp"));
    has("a", "old\n");
    open_and_commit(in_dir("a"));
    has("a", "mine\n");
    DiskOut *first = disk_out_open(in_dir("b"));
    expect_die(open_and_commit, in_dir("b"), "b: is being written already");
    disk_out_commit(first);
    close(ready[0]), close(ready[1]);
}

static int apart_from_dir(void *path)
{
    disk_out_apart(path, dir);
    return 0;
}

static int apart_from_tmp(void *path)
{
    disk_out_apart(path, in_dir("b.tmp"));
    return 0;
}

TEST_IN_DIR(test_apart)
{
    char beside[400];
    assert_int_equal(mkdir(in_dir("inner"), 0700), 0);
    expect_die(apart_from_dir, in_dir("a"), "lies in the input folder");
    expect_die(apart_from_dir, in_dir("inner/a"), "lies in the input folder");
    snprintf(beside, sizeof beside, "%s-beside", dir);
    apart_from_dir(beside);
    put("a", "old\n");
    disk_out_apart(in_dir("a"), in_dir("a")); // a file that is input itself
    put("b.tmp", "the input\n");
    expect_die(apart_from_tmp, in_dir("b"), "b.tmp first, which is the input (write it elsewhere)");
    char link[420];
    snprintf(link, sizeof link, "%s-link", dir);
    assert_int_equal(symlink(in_dir("a"), link), 0);
    expect_die(apart_from_dir, link, "lies in the input folder");
    unlink(link);
    unlink(in_dir("b.tmp"));
}

static int make_folder(void *path)
{
    disk_folder_make(path, "--out");
    return 0;
}

TEST_IN_DIR(test_folder)
{
    struct stat info;
    make_folder(in_dir("a/b//c"));
    assert_true(stat(in_dir("a/b/c"), &info) == 0 && S_ISDIR(info.st_mode));
    make_folder(in_dir("a/b")); // is there
    put("file", "x");
    expect_die(make_folder, "", "--out: an empty name");
    expect_die(make_folder, in_dir("file"), "file: not a folder (--out is the folder to write to)");
    expect_die(make_folder, in_dir("file/a"), "file/a: Not a directory (--out is the folder to write to)");
    char name[PATH_MAX + 1]; // dir/./././.: one character more than there is room for
    size_t n = (size_t)snprintf(name, sizeof name, "%s", dir);
    for (; n < PATH_MAX; n++) name[n] = (PATH_MAX - n) % 2 ? '.' : '/';
    name[n] = 0;
    if (name[strlen(dir)] == '.') name[strlen(dir)] = '/';
    assert_true(ends_with_error(make_folder, name, 1, dir, true));
    name[n - 1] = 0;
    make_folder(name);
}

static bool is_text(const char *name)
{
    return strstr(name, ".txt") != NULL;
}

// New files in the place of old ones of their kind; others stay.
TEST_IN_DIR(test_folder_replaced)
{
    put("a.txt", "old"), put("b.txt", "old"), put("other", "stays");
    FREED char *fresh = disk_folder_begin(dir);
    assert_true(there("a.txt") && there("new.tmp"));
    put("new.tmp/a.txt", "new"), put("new.tmp/c.txt", "new");
    disk_folder_check_old(dir, is_text);
    disk_folder_replace(dir, is_text);
    has("a.txt", "new"), has("c.txt", "new"), has("other", "stays");
    assert_false(there("b.txt") || there("new.tmp") || there("unfinished"));
    disk_folder_check(dir);
    disk_folder_check_file(in_dir("a.txt"));
}

TESTS(NULL, NULL)
