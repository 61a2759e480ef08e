// twice: the same update by two commands, from the same state.
//
//   A:  state after update U - 1  ->  dump of update U
//   B:  state after update U - 1  ->  dump of update U
//
// Later updates of two runs cannot be compared: each begins with weights of its own, and small differences have grown.
// So B trains alone up to the state before, and both continue from a copy of its checkpoint, which any layout loads.
// To find the first update that differs, B saves every state, and bisection needs two updates for each halving.
//
// The invariant: nothing outside the folder is written, whatever the commands say: run.dir and run.name come last.
#define _GNU_SOURCE // vasprintf
#include "dev/check/twice.h"

#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...)
{
    va_list arguments;
    char *command = NULL;
    va_start(arguments, format);
    int n = vasprintf(&command, format, arguments);
    va_end(arguments);
    if (n < 0) die("diff: no memory for a command");
    int status = system(command);
    free(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

Twice twice_begin(const char *a, const char *b)
{
    Twice t = {.a = a, .b = b};
    const char *tmp = getenv("TMPDIR");
    snprintf(t.dir, sizeof t.dir, "%s/twice.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(t.dir)) die("diff: --twice: %s: cannot make a folder there (try another TMPDIR)", t.dir);
    return t;
}

// Runs a command as run `name` of the folder; what it prints goes to name.out.
static void train(const Twice *t, const char *command, const char *name, const char *more)
{
    int status = shell("%s --run.dir='%s' --run.name=%s --sample.count=0 %s >'%s/%s.out' 2>&1 </dev/null", command,
                       t->dir, name, more, t->dir, name);
    if (!status) return;
    shell("tail -n 3 '%s/%s.out' >&2", t->dir, name);
    shell("rm -rf '%s'", t->dir);
    die("diff: --twice: status %d of: %s %s", status, command, more);
}

void twice_base(Twice *t, long updates)
{
    char more[200];
    if (updates < 1) return;
    snprintf(more, sizeof more, "--run.stop_at=%ld --run.save_every=1 --ckpt.keep=0", updates);
    train(t, t->b, "base", more);
    t->base = updates;
}

void twice_run(Twice *t, long update, char path_a[1000], char path_b[1000])
{
    check(update >= 1 && update - 1 <= t->base);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "b" : "a";
        char more[200];
        snprintf(i ? path_b : path_a, 1000, "%s/%s", t->dir, name);
        snprintf(more, sizeof more, "--run.stop_at=%ld --run.dump=%ld%s", update, update,
                 update > 1 ? " --ckpt.resume=true" : "");
        if (shell("cd '%s' && rm -rf %s", t->dir, name)) die("diff: --twice: %s: cannot empty %s", t->dir, name);
        if (update > 1 && shell("cd '%s' && mkdir -p %s/checkpoints && cp base/config.toml base/metrics.jsonl %s && "
                                "cp -R base/checkpoints/step_%08ld %s/checkpoints",
                                t->dir, name, name, update - 1, name))
            die("diff: --twice: %s: cannot copy the state after update %ld", t->dir, update - 1);
        train(t, i ? t->b : t->a, name, more);
    }
}

void twice_end(Twice *t, bool keep)
{
    if (keep) fprintf(stderr, "diff: the runs are in %s\n", t->dir);
    else shell("rm -rf '%s'", t->dir);
}
