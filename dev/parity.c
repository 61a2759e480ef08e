// parity: trains a small model on every layout and compares every gradient with one rank's.
//
// DIR holds gpt.toml and llama.toml (test/parity.sh makes them, with their data). Each layout is a run of build/train
// under mpiexec: three steps of SGD, the third one dumped. Compared with the run of one rank: the losses and gradient
// norms of all steps, and every element of the third gradient.
//
//   ==       equal to the last bit, losses and norms too
//   0.012    largest |g - g1| / bound of a tensor, in norms; at most 1
//
// The bound. Both runs add the same terms in another order, so a gradient is within lambda sqrt(n) u sum |term| of the
// exact sum, n the longest chain of additions, u = 2^-24, lambda = 6 (Higham and Mary, SIAM J. Sci. Comput. 41,
// 2019), and two are twice that apart. In norms sum |term| is at most the sum over tokens of |gradient of the token's
// loss|, which is computed here, token by token. Errors of the first two steps reach the third gradient through the
// weights: they grow by at most 1 + lr S a step, S the sensitivity |dg| / |dw|, measured on one rank between steps 1
// and 3 (other samples included, which makes it larger). In 16 bits the bound is four times what rounding moves one
// rank's gradient.
#include "base/check.h"
#include "base/clock.h"
#include "dev/check/parity.h"
#include "dev/check/parity_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 120, NAME = 160, PATH = 1200 };

typedef struct {
    const char *dir, *build, *launcher;
    bool quick, list;
    const char *only;
    int n_references;
    ParityReference *reference[64];
} Parity;

// The name of a run's directory: the layout's, without spaces.
static void run_name(const ParityLayout *layout, char *name, size_t n_name)
{
    parity_name(layout, name, n_name);
    for (char *p = name; *p; p++)
        if (*p == ' ' || *p == ':' || *p == '+') *p = '_';
}

// Runs build/train on so many ranks; false: it failed, and DIR/NAME.out says why.
static bool train(const Parity *p, const ParityLayout *layout, const char *name)
{
    char file[PATH], run[NAME + 12], out[PATH], program[PATH], ranks[16];
    const char *argv[PARITY_OPTIONS + 12], *option[PARITY_OPTIONS];
    int n = 0, n_options = parity_options(layout, option);
    snprintf(file, sizeof file, "%s/%s.toml", p->dir, layout->llama ? "llama" : "gpt");
    snprintf(run, sizeof run, "--run.name=%s", name);
    snprintf(out, sizeof out, "%s/%s.out", p->dir, name);
    snprintf(program, sizeof program, "%s/train", p->build);
    snprintf(ranks, sizeof ranks, "%d", parity_ranks(layout));
    if (parity_ranks(layout) > 1) argv[n++] = p->launcher, argv[n++] = "-n", argv[n++] = ranks;
    argv[n++] = program, argv[n++] = file, argv[n++] = run;
    for (int i = 0; i < n_options; i++) argv[n++] = option[i];
    argv[n] = NULL;
    pid_t pid = fork();
    if (pid < 0) die("parity: no process: %s", strerror(errno));
    if (pid == 0) {
        if (!freopen(out, "w", stdout) || dup2(fileno(stdout), 2) < 0) _exit(126);
        alarm(SECONDS); // a layout that hangs fails
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) die("parity: %s", strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void run_dir(const Parity *p, const char *name, char *dir, size_t n_dir)
{
    snprintf(dir, n_dir, "%s/runs/%s", p->dir, name);
}

// What a layout is compared with: run once.
static ParityReference *reference_of(Parity *p, const ParityLayout *layout)
{
    ParityLayout one = parity_reference(layout);
    char name[NAME], dir[PATH], file[PATH + 20];
    run_name(&one, name, sizeof name);
    for (int i = 0; i < p->n_references; i++)
        if (!strcmp(parity_check_name(p->reference[i]), name)) return p->reference[i];
    if (!train(p, &one, name)) die("parity: %s, on one rank, failed: see %s/%s.out", name, p->dir, name);
    check(p->n_references < 64);
    const ParityReference *exact = NULL; // of a 16-bit run: the same in fp32
    ParityLayout wide = one;
    wide.value[PARITY_DTYPE] = 0;
    if (one.value[PARITY_DTYPE]) exact = reference_of(p, &wide);
    run_dir(p, name, dir, sizeof dir);
    snprintf(file, sizeof file, "%s/config.toml", dir);
    p->reference[p->n_references] = parity_check_open(name, dir, file, exact);
    return p->reference[p->n_references++];
}

// One line of the table; false: the layout does not agree.
static bool compare(Parity *p, const ParityLayout *layout)
{
    char name[NAME], dir[PATH], title[NAME];
    ParityReference *one = reference_of(p, layout);
    run_name(layout, name, sizeof name);
    parity_name(layout, title, sizeof title);
    run_dir(p, name, dir, sizeof dir);
    double begin = clock_seconds();
    bool ran = train(p, layout, name);
    ParityVerdict v = {0};
    if (ran) v = parity_check(one, dir, parity_exact(layout));
    printf("%-6s %-52s %d  ", ran && v.agrees ? "ok" : "not ok", title, parity_ranks(layout));
    if (!ran) printf("the run failed: see %s/%s.out", p->dir, name);
    else if (v.equal) printf("%10s  %d tensors", "==", v.n_tensors);
    else printf("%10.2e  %s", v.worst, v.where);
    printf("  %.1f s\n", clock_seconds() - begin);
    if (ran && !v.agrees) printf("       %s\n", v.why);
    fflush(stdout);
    return ran && v.agrees;
}

static const char help[] =
    "usage: parity DIR [--quick] [--only WORD] [--list]\n"
    "  DIR          holds gpt.toml and llama.toml: test/parity.sh makes them, with their data\n"
    "  --quick      a few of each kind\n"
    "  --only WORD  those with the word in their names; --list: names alone\n"
    "  exit         0 all agree, 1 not, 2 usage\n";

int main(int argc, char **argv)
{
    check_help(argc, argv, help);
    Parity p = {.build = getenv("BUILD") ? getenv("BUILD") : "build",
                .launcher = getenv("MPIEXEC") ? getenv("MPIEXEC") : "mpiexec"};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) p.quick = true;
        else if (!strcmp(argv[i], "--list")) p.list = true;
        else if (!strcmp(argv[i], "--only") && i + 1 < argc) p.only = argv[++i];
        else if (argv[i][0] != '-' && !p.dir) p.dir = argv[i];
        else die_usage("parity: '%s' (try --help)", argv[i]);
    }
    if (!p.dir && !p.list) die_usage("parity: no DIR (try --help)");
    int n, n_bad = 0, n_equal = 0, n_run = 0;
    ParityLayout *layout = parity_layouts(p.quick, &n);
    for (int i = 0; i < n; i++) {
        char name[NAME];
        parity_name(&layout[i], name, sizeof name);
        if (p.only && !strstr(name, p.only)) continue;
        n_run++;
        n_equal += parity_exact(&layout[i]);
        if (p.list) printf("%d  %s\n", parity_ranks(&layout[i]), name);
        else n_bad += !compare(&p, &layout[i]);
    }
    printf("%d layouts, %d of them to the last bit; %d do not agree\n", n_run, n_equal, n_bad);
    for (int i = 0; i < p.n_references; i++) parity_check_close(p.reference[i]);
    free(layout);
    return n_bad > 0;
}
