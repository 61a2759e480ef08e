// Tests of disk.h's DiskOut: what is there before, during and after; links, pipes, devices; two writers; what a killed
// writer leaves.
#include "base/disk.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "expect_die.h"

#include "temp_dir.h"

static void put(const char *name, const char *text)
{
    assert_true(disk_write_file(in_dir(name), text, strlen(text)));
}

static void has(const char *name, const char *text)
{
    size_t n;
    char *got = disk_read_file(in_dir(name), &n, 1000);
    assert_non_null(got);
    assert_string_equal(got, text);
    free(got);
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

static void test_whole_or_not(void **state)
{
    (void)state;
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

static void test_links(void **state)
{
    (void)state;
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

static void test_no_plain_file(void **state)
{
    (void)state;
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

static void test_standard_output(void **state)
{
    (void)state;
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
static void test_two_writers(void **state)
{
    (void)state;
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

static void test_apart(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(test_whole_or_not), IN_DIR(test_links), IN_DIR(test_standard_output), IN_DIR(test_no_plain_file),
        IN_DIR(test_two_writers),  IN_DIR(test_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
