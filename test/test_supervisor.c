// test_supervisor: the words for every way in which a rank can end, who is to blame for a hang, and real processes
// under a supervisor: it outlives them, names them once, passes signals on, and never leaves one running.
// (test_supervisor.sh: the same for build/train on several ranks.)

#include "test/test.h"

#include "expect_die.h"
#include "temp_dir.h"
#include "base/disk.h"
#include "comm/supervisor.h"

#include <dirent.h>
#include <signal.h>
#include <time.h>

static int killed(int number)
{
    return number; // as waitpid gives it
}

static int left_with(int status)
{
    return status << 8;
}

TEST(test_words)
{
    const struct {
        int status, leaving;
        bool done;
        const char *phase, *line;
        int exit;
        bool stepless;
    } rows[] = {
        {.status = killed(9), .phase = "exact", .exit = 137, .stepless = true,
         .line = "rank 3: error: process 77 on a was killed by signal 9 (Killed), in exact\n"},
        {killed(9), 0, false, "training",
         "rank 3: error: process 77 on a was killed by signal 9 (Killed), at step 31 (training)\n", 137, false},
        {killed(11), 0, false, "",
         "rank 3: error: process 77 on a was killed by signal 11 (Segmentation fault), at the start\n", 139, false},
        {killed(6), 0, true, "the end",
         "rank 3: error: process 77 on a was killed by signal 6 (Aborted), at step 31 (the end)\n", 134, false},
        {left_with(3), 4, false, "training",
         "rank 3: error: process 77 on a ended with exit status 3 before the run did, at step 31 (training)\n", 3, false},
        {left_with(0), 1, false, "training",
         "rank 3: error: process 77 on a ended with exit status 0 before the run did, at step 31 (training)\n", 1, false},
        {left_with(0), 0, false, "training",
         "rank 3: error: process 77 on a ended with exit status 0 before the run did, at step 31 (training)\n", 1, false},
        {left_with(1), 2, false, "training", "", 1, false}, // die() has spoken
        {left_with(2), 3, false, "", "", 2, false},
        {left_with(0), 0, true, "the end", "", 0, false},
        {left_with(1), 0, true, "the end", "", 1, false}, // the last checkpoint was not written: the run has said so
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Heartbeat b = {.rank = 3, .process = 77, .step = rows[i].stepless ? -1 : 30, .leaving = rows[i].leaving,
                       .done = rows[i].done};
        char line[400];
        snprintf(b.phase, sizeof b.phase, "%s", rows[i].phase);
        supervisor_explain(&b, rows[i].status, "a", line, sizeof line);
        assert_string_equal(line, rows[i].line);
        assert_int_equal(supervisor_status(&b, rows[i].status), rows[i].exit);
    }
}

// Ranks 4 to 7 of a machine, as a hang may find them: w waits with a pulse, s waits without, c computes (no pulse),
// - none.
static void assert_blame_of(const char *who, int mine, bool hosts, const char *words)
{
    Heartbeat beat[4] = {0};
    char line[600];
    for (int i = 0; i < 4; i++) {
        Heartbeat *b = &beat[i];
        if (who[i] == '-') continue;
        b->rank = 4 + i, b->process = 70 + i;
        supervisor_phase(b, 11, "training");
        if (who[i] == 'c') supervisor_call(b, "dp", "all_reduce", 8);
        else supervisor_wait(b, "dp", "all_reduce", 9);
        b->stale = who[i] != 'w';
    }
    supervisor_explain_hang(beat, 4, mine, hosts, "a", 60.4, line, sizeof line);
    if (strcmp(line, words)) fail_msg("%s: %s", who, line);
}

static void assert_blame(const char *who, int mine, const char *words)
{
    assert_blame_of(who, mine, false, words);
}

TEST(test_blame)
{
    const char *other = "rank 6: error: process 72 on a hangs and did not reach all_reduce 9 of group dp, in which "
                        "rank 4 waits; no progress for 60 s, at step 12 (training) (run.hang_timeout)\n";
    assert_blame("wwcw", 2, other); // its own supervisor
    assert_blame("wwcw", 0, other); // and another that is as late
    assert_blame("wws-", 1, "rank 6: error: process 72 on a hangs in all_reduce 9 of group dp; no progress for "
                            "60 s, at step 12 (training) (run.hang_timeout)\n");
    assert_blame("w-ww", 3, "rank 7: error: process 73 on a waits in all_reduce 9 of group dp for a rank that has not "
                            "come; no progress for 60 s, at step 12 (training) (run.hang_timeout)\n");
    assert_blame_of("w-ww", 3, true,
                    "rank 7: error: process 73 on a waits in all_reduce 9 of group dp for a rank that has not come, on "
                    "another host (is it up, and the network?); no progress for 60 s, at step 12 (training) "
                    "(run.hang_timeout)\n");
    assert_blame_of("wwcw", 2, true, other); // the one that hangs is here
    assert_blame("cccc", 1, "rank 5: error: process 71 on a hangs, after all_reduce 8 of group dp; no progress for "
                            "60 s, at step 12 (training); so do 3 others (run.hang_timeout)\n");
    assert_blame("wcww", 1, "rank 5: error: process 71 on a hangs and did not reach all_reduce 9 of group dp, in which "
                            "rank 4 waits; no progress for 60 s, at step 12 (training) (run.hang_timeout)\n");
}

// The report for programs: what a death by waitpid's status, and a hang by the ranks of a machine, are called.
TEST(test_record)
{
    const struct {
        int status, leaving;
        const char *why, *number;
    } rows[] = {{killed(9), 0, "signal", "9"}, {killed(11), 2, "signal", "11"}, {left_with(3), 4, "exit", "3"},
                {left_with(0), 1, "exit", "0"}, {left_with(1), 2, "error", "1"}, {left_with(2), 3, "error", "2"}};
    char line[400], want[400];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Heartbeat b = {.rank = 3, .process = 77, .leaving = rows[i].leaving};
        supervisor_phase(&b, 30, "training");
        supervisor_record(&b, 1, 0, rows[i].status, "a", line, sizeof line);
        snprintf(want, sizeof want, "{\"rank\":3,\"process\":77,\"host\":\"a\",\"why\":\"%s\",\"number\":%s,"
                 "\"step\":30,\"phase\":\"training\"}\n", rows[i].why, rows[i].number);
        assert_string_equal(line, want);
    }
    Heartbeat beat[2] = {{.rank = 4, .process = 70, .step = 11}, {.rank = 5, .process = 71, .step = 11}};
    supervisor_record(beat, 2, 0, -1, "a", line, sizeof line); // both have a pulse: the cause is elsewhere
    assert_non_null(strstr(line, "\"rank\":4,\"process\":70,\"host\":\"a\",\"why\":\"waits\",\"number\":0,"));
    beat[1].stale = true;
    supervisor_record(beat, 2, 0, -1, "a", line, sizeof line);
    assert_non_null(strstr(line, "\"rank\":5,\"process\":71,\"host\":\"a\",\"why\":\"hang\","));
}

TEST(test_nobody_listens)
{
    supervisor_phase(NULL, 1, "x"), supervisor_call(NULL, "a", "b", 1), supervisor_wait(NULL, "a", "b", 1);
    supervisor_go_on(NULL), supervisor_pulse(NULL), supervisor_progress(NULL), supervisor_timeout(NULL, 1);
    supervisor_leaving(NULL, 1), supervisor_done(NULL);
    unsetenv("PMI_RANK");
    assert_null(supervisor_start()); // no launcher
    Heartbeat b = {0};
    supervisor_pulse(&b);
    assert_true(b.progress == 0 && b.pulse == 1); // alive is not busy
    supervisor_wait(&b, "a-group-with-a-very-long-name", "all_reduce", 1);
    assert_true(b.waiting && b.progress == 1 && strlen(b.group) == SUPERVISOR_NAME - 1);
    supervisor_go_on(&b);
    assert_true(!b.waiting && b.progress == 2 && b.pulse == 3);
}

// ---- real processes

typedef enum { WELL, KILLED, LEAVES, DIES, STOPS, LOOPS, RESTS, WAITS_FOR_TERM, TELLS_ITS_PROCESS } How;

static volatile sig_atomic_t asked;

static void on_term(int number)
{
    (void)number;
    asked++;
}

// A rank: what a program under a launcher does.
static int rank_body(void *arg)
{
    How how = *(How *)arg;
    signal(SIGTERM, on_term); // inherited by the rank, passed over by the supervisor
    Heartbeat *b = supervisor_start();
    if (!b) return 50;
    supervisor_timeout(b, how == RESTS ? 0 : 1);
    if (getenv("TEST_RECORD")) supervisor_file(b, getenv("TEST_RECORD"));
    supervisor_phase(b, 4, "training");
    if (how == KILLED) raise(SIGKILL);
    if (how == LEAVES) supervisor_leaving(b, 0), _exit(0);
    if (how == DIES) {
        fprintf(stderr, "error: it was said\n");
        supervisor_leaving(b, 1);
        _exit(1);
    }
    if (how == STOPS) raise(SIGSTOP);
    if (how == LOOPS) for (;;) pause();
    if (how == RESTS) usleep(1500000);
    if (how == TELLS_ITS_PROCESS) {
        fprintf(stderr, "%ld\n", (long)getpid());
        for (int i = 0; i < 100; i++) supervisor_progress(b), usleep(100000);
    }
    if (how == WAITS_FOR_TERM) {
        kill(getppid(), SIGTERM);
        for (int i = 0; i < 50 && !asked; i++) supervisor_progress(b), usleep(20000);
        usleep(50000);
        if (asked != 1) return 51;
    }
    supervisor_done(b);
    return 7 * (how == TELLS_ITS_PROCESS);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void launcher_of(const char *rank, const char *local, const char *n_local)
{
    setenv("PMI_RANK", rank, 1);
    setenv("MPI_LOCALRANKID", local, 1);
    setenv("MPI_LOCALNRANKS", n_local, 1);
}

TEST(test_processes)
{
    const struct {
        How how;
        int status;
        const char *words;
        double least;
    } rows[] = {
        {WELL, 0, NULL, 0}, {KILLED, 137, "was killed by signal 9 (Killed), at step 5 (training)", 0},
        {LEAVES, 1, "ended with exit status 0 before the run did, at step 5 (training)", 0},
        {DIES, 1, "it was said", 0},
        {STOPS, 137, "is stopped by a signal; no progress for 1 s, at step 5 (training)", 1},
        {LOOPS, 137, "hangs; no progress for 1 s, at step 5 (training)", 1}, {WAITS_FOR_TERM, 0, NULL, 0},
        {RESTS, 0, NULL, 1}, // without run.hang_timeout
    };
    launcher_of("2", "0", "1");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1000];
        How how = rows[i].how;
        double begin = seconds();
        int status = run_child(rank_body, &how, text, sizeof text);
        if (status != rows[i].status || (rows[i].words ? !strstr(text, rows[i].words) : *text))
            fail_msg("row %zu: status %d, %s", i, status, text);
        assert_true(seconds() - begin >= rows[i].least && seconds() - begin <= rows[i].least + 5);
        if (rows[i].words) assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); // one line
        if (rows[i].words && how != DIES) assert_memory_equal(text, "rank 2: error: process ", 23);
    }
}

// Who is above the rank ends it, whatever ends that one.
TEST(test_the_rank_dies_with_its_supervisor)
{
    int ends[2];
    char text[64] = "";
    launcher_of("0", "0", "1");
    assert_int_equal(pipe(ends), 0);
    pid_t supervisor = fork();
    if (supervisor == 0) {
        How how = TELLS_ITS_PROCESS;
        dup2(ends[1], STDERR_FILENO);
        _exit(rank_body(&how));
    }
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    pid_t rank = (pid_t)atol(text);
    assert_true(rank > 0 && rank != supervisor && kill(rank, 0) == 0);
    double begin = seconds();
    kill(supervisor, SIGKILL);
    assert_int_equal(waitpid(supervisor, NULL, 0), supervisor);
    close(ends[1]);
    assert_int_equal(read(ends[0], text, 1), 0); // the rank's end of the pipe is closed: it is dead
    assert_true(seconds() - begin <= 3);         // and did not end by itself, which takes 10 s
    close(ends[0]);
}

// Boards of the ranks that this process started, their launcher; other tests have theirs.
static int count_boards(void)
{
    int n = 0;
    char name[40];
    int length = snprintf(name, sizeof name, "pretrain.%ld.", (long)getpid());
    DIR *shm = opendir("/dev/shm");
    for (struct dirent *e; shm && (e = readdir(shm));) n += !strncmp(e->d_name, name, (size_t)length);
    if (shm) closedir(shm);
    return n;
}

// Two ranks of one machine: one is killed; its supervisor speaks, the other ends its rank in silence, though no
// launcher does. The board has no name any more once both are there.
TEST(test_a_machine_speaks_once)
{
    int ends[2], status[2];
    char text[1000] = "", *path = in_dir("failure.jsonl");
    setenv("TEST_RECORD", path, 1);
    pid_t rank[2];
    How how[2] = {KILLED, TELLS_ITS_PROCESS};
    assert_int_equal(pipe(ends), 0);
    double begin = seconds();
    for (int i = 1; i >= 0; i--) {
        launcher_of(i ? "1" : "0", i ? "1" : "0", "2");
        rank[i] = fork();
        if (rank[i]) continue;
        dup2(ends[1], STDERR_FILENO);
        if (!i) usleep(300000);
        _exit(rank_body(&how[i]));
    }
    close(ends[1]);
    for (int i = 0; i < 2; i++) assert_int_equal(waitpid(rank[i], &status[i], 0), rank[i]);
    size_t n = 0;
    for (ssize_t k; (k = read(ends[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)k;
    close(ends[0]);
    for (int i = 0; i < 2; i++) assert_true(WIFSIGNALED(status[i]) && WTERMSIG(status[i]) == SIGKILL); // for Hydra
    assert_true(seconds() - begin <= 4); // 0.3 and 1 s
    char *first = strstr(text, "error: ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "error: "));
    assert_non_null(strstr(text, "rank 0: error: process "));
    assert_int_equal(count_boards(), 0);
    char *record = disk_read_file(path, &n, 1000); // one report, of the rank that failed
    assert_non_null(record);
    assert_non_null(strstr(record, "{\"rank\":0,"));
    assert_non_null(strstr(record, "\"why\":\"signal\",\"number\":9,\"step\":4,\"phase\":\"training\"}\n"));
    free(record);
    unsetenv("TEST_RECORD");
}

TESTS(temp_dir_make, temp_dir_remove)
