// config_run: what test_config and test_config_file share: scratch files, and runs that may end in die().
#ifndef CONFIG_RUN_H
#define CONFIG_RUN_H
#include "test/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "temp_dir.h"

enum { OUTPUT = 1 << 16 };

// What a child process did.
typedef struct {
    int status; // exit status, or 1000 + signal
    char out[OUTPUT], err[OUTPUT];
} Outcome;

static Config cfg;      // large: not on the stack
static Outcome outcome; // of the last run_words()
static int launched;    // ranks of the job that run_words() plays; 0: no launcher

static inline void read_output(FILE *file, char *out)
{
    rewind(file);
    size_t n = fread(out, 1, OUTPUT - 1, file);
    out[n] = 0;
    fclose(file);
}

// Runs parse(arguments), which are separated by '|', and resolve, in a child process: it may end in die().
static inline void run_words(const char *words)
{
    char copy[1024], *argv[16] = {"train"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, "|"); word; word = strtok(NULL, "|")) argv[argc++] = word;
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out && err);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        config_defaults(&cfg);
        config_parse(&cfg, argc, argv);
        if (launched) config_set_derived(&cfg, "parallel.ranks", launched);
        config_resolve(&cfg);
        config_print(&cfg, stdout, 70);
        exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    read_output(out, outcome.out);
    read_output(err, outcome.err);
}

static inline void load_file(const char *path)
{
    config_defaults(&cfg);
    config_load_file(&cfg, path);
}

// Defaults, then these {key, value} pairs.
static inline void set_all(const char *const (*pairs)[2], size_t n)
{
    config_defaults(&cfg);
    for (size_t i = 0; i < n; i++) config_set(&cfg, pairs[i][0], pairs[i][1], "test");
}
#define SET(...) \
    set_all((const char *const[][2]){__VA_ARGS__}, \
            sizeof((const char *const[][2]){__VA_ARGS__}) / sizeof(char *[2]))

// Otherwise a launcher's rank would be in every message.
static inline int forget_the_launcher(void **state)
{
    (void)state;
    const char *names[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK", "SLURM_PROCID"};
    for (int i = 0; i < 4; i++) unsetenv(names[i]);
    return 0;
}
#endif
