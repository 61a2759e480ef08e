// Tests of check: what die() prints, whatever the message holds.

#include "test/test.h"

#include "base/check.h"
#include "expect_die.h"

#include <jansson.h>
#include <pthread.h>
#include <sys/mman.h>

static int die_with(void *arg)
{
    die("x: %s: no good", (char *)arg);
}

static int die_usage_with(void *arg)
{
    die_usage("x: %s: no good", (char *)arg);
}

static int warn_of(void *arg)
{
    check_warn("x: %s: no good", (char *)arg);
    return 3;
}

TEST(test_one_line)
{
    char plain[] = "caf\xC3\xA9";
    assert_true(ends_with_error(die_with, plain, 1, "error: x: caf\xC3\xA9: no good [test_check.c:", true));
    assert_true(ends_with_error(die_usage_with, plain, 2, "error: x: caf\xC3\xA9: no good", true));
}

// Messages quote what files say. A file must not be able to write a line of its own, nor to command the terminal.
TEST(test_no_control)
{
    char hostile[] = "a\nerror: b\r\x1B[2J\x7F\tc";
    assert_true(ends_with_error(die_with, hostile, 1, "x: a?error: b??[2J?\tc: no good", true));
    assert_true(ends_with_error(die_usage_with, hostile, 2, "x: a?error: b??[2J?\tc: no good", true));
    char text[200];
    Child c = child_begin();
    if (c.pid == 0) exit(warn_of(hostile));
    assert_int_equal(child_end(c, text, sizeof text), 3);
    assert_string_equal(text, "warning: x: a?error: b??[2J?\tc: no good\n");
}

static void *fail_together(void *barrier)
{
    pthread_barrier_wait(barrier);
    die("thread: no good");
}

static int die_in_threads(void *arg)
{
    pthread_barrier_t barrier;
    pthread_t thread[8];
    (void)arg;
    pthread_barrier_init(&barrier, NULL, 8);
    for (int i = 0; i < 8; i++)
        if (pthread_create(&thread[i], NULL, fail_together, &barrier)) return 98;
    for (int i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    return 97;
}

// Several threads fail at once, as they do without memory: one line, and the end.
TEST(test_threads)
{
    for (int i = 0; i < 20; i++) expect_die(die_in_threads, NULL, "error: thread: no good");
}

#ifndef __has_feature
#define __has_feature(what) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 }; // its allocator ends the program itself
#else
enum { SANITIZED = 0 };
#endif

static int die_without_memory(void *arg)
{
    json_malloc_t allocate;
    json_free_t release;
    (void)arg;
    json_get_alloc_funcs(&allocate, &release);
    return allocate(SIZE_MAX / 2) != NULL;
}

TEST(test_json_without_memory)
{
    if (SANITIZED) skip();
    expect_die(die_without_memory, NULL, "memory: no room for 9223372036854775807 bytes of a JSON text");
}

// A rank names itself in a job of several, whichever launcher started it; a process alone does not.
TEST(test_ranks)
{
    const char *name[][2] = {{"PMI_RANK", "PMI_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                             {"RANK", "WORLD_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
    char text[300];
    for (int i = 0; i < 4; i++) unsetenv(name[i][0]), unsetenv(name[i][1]);
    for (int i = 0; i < 4; i++)
        for (int size = 1; size <= 3; size++) {
            char number[12];
            snprintf(number, sizeof number, "%d", size);
            setenv(name[i][0], "0", 1);
            setenv(name[i][1], number, 1);
            assert_int_equal(run_child(die_with, "a", text, sizeof text), 1);
            assert_true((strstr(text, "rank 0") != NULL) == (size > 1));
            unsetenv(name[i][1]); // a rank of nothing
            assert_int_equal(run_child(die_with, "a", text, sizeof text), 1);
            assert_null(strstr(text, "rank 0"));
            unsetenv(name[i][0]);
        }
}

// Ranks that share a voice: the first one prints, whichever it is; each ends with its own status.
TEST(test_one_voice)
{
    char text[300];
    for (int first = 0; first < 2; first++) {
        int *voice = mmap(NULL, sizeof *voice, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(voice != MAP_FAILED);
        check_share_voice(voice);
        setenv("PMI_SIZE", "2", 1);
        setenv("PMI_RANK", first ? "1" : "0", 1);
        assert_int_equal(run_child(die_with, "a", text, sizeof text), 1);
        assert_non_null(strstr(text, first ? "rank 1: error: x: a" : "rank 0: error: x: a"));
        setenv("PMI_RANK", first ? "0" : "1", 1);
        assert_int_equal(run_child(die_usage_with, "b", text, sizeof text), 2);
        assert_string_equal(text, "");
        check_share_voice(NULL);
        munmap(voice, sizeof *voice);
    }
    unsetenv("PMI_RANK"), unsetenv("PMI_SIZE");
}

TESTS(NULL, NULL)
