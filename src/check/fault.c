// fault: parses run.fault, and does the part of a fault that does not depend on a run. See fault.h.
//
// A supervisor, a monitor or a checkpoint is tested only when something fails, and real failures are rare. So every
// failure that this project claims to survive can be injected, for the tests and for exercises.
//
// One table says which keys a kind takes and their defaults; the parser walks it. A key that a kind does not read is
// an error, as everywhere in the configuration.
//
// The invariant: a fault is a function of (rank, update), or of the sample for `spike`, so a run with a fault is as
// repeatable as one without. A spike belongs to the data: every run that reads the same samples again has it, and a run
// that skips them has not. A fault of a process happens once: observers.c leaves it out in a resumed run, so that a run
// that is started again gets past the place where it was killed.
//
// enospc uses the kernel's own limit on the size of files, not a layer of ours: the code under test is the code that
// runs. The write fails with EFBIG, not ENOSPC; both are failed writes.
//
// Rejected: faults drawn at random (a failure must be repeatable to be understood); a library between the program and
// libc (another thing that can be wrong).
#include "src/check/fault.h"

#include "base/check.h"
#include "base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    RANK = 1, SIGNAL = 2, STATUS = 4, TENSOR = 8, INDEX = 16, BIT = 32, BYTES = 64, SECONDS = 128, STEPS = 256,
    OF = 512, STEP = 1024
};

static const struct {
    const char *name;
    int keys, needs; // `needs` of them have no default
} kinds[FAULT_KINDS] = {
    [FAULT_KILL] = {"kill", RANK | STEP | SIGNAL, STEP},
    [FAULT_EXIT] = {"exit", RANK | STEP | STATUS, STEP},
    [FAULT_HANG] = {"hang", RANK | STEP, STEP},
    [FAULT_NAN] = {"nan", RANK | STEP | TENSOR | INDEX | OF, STEP | TENSOR},
    [FAULT_FLIP] = {"flip", RANK | STEP | TENSOR | INDEX | BIT | OF, STEP | TENSOR},
    [FAULT_ENOSPC] = {"enospc", STEP | BYTES | STEPS, STEP},
    [FAULT_SLOWDISK] = {"slowdisk", STEP | SECONDS | STEPS, STEP},
    [FAULT_SPIKE] = {"spike", STEP | STEPS, STEP},
};

static const struct {
    const char *name;
    int key;
    size_t offset;
    long least;
} numbers[] = {
    {"rank", RANK, offsetof(Fault, rank), 0}, {"step", STEP, offsetof(Fault, step), 1},
    {"steps", STEPS, offsetof(Fault, steps), 1}, {"signal", SIGNAL, offsetof(Fault, signal), 1},
    {"status", STATUS, offsetof(Fault, status), 0}, {"index", INDEX, offsetof(Fault, index), 0},
    {"bit", BIT, offsetof(Fault, bit), 0}, {"bytes", BYTES, offsetof(Fault, bytes), 1},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

// One "key=value"; returns the key's bit.
static int parse_pair(Fault *f, const char *pair, const char *kind, int keys)
{
    const char *value = strchr(pair, '=');
    size_t n = value ? (size_t)(value - pair) : strlen(pair);
    char *end = NULL;
    if (!value || !value[1]) die("run.fault: %s: %s is not key=value", kind, pair);
    value++;
    for (int i = 0; i < NUMBERS; i++) {
        if (strlen(numbers[i].name) != n || strncmp(pair, numbers[i].name, n) || !(keys & numbers[i].key)) continue;
        errno = 0;
        long number = strtol(value, &end, 10);
        if (*end || errno || number < numbers[i].least)
            die("run.fault: %s: %s (a whole number >= %ld)", kind, pair, numbers[i].least);
        *(long *)((char *)f + numbers[i].offset) = number;
        return numbers[i].key;
    }
    if (n == 7 && !strncmp(pair, "seconds", n) && keys & SECONDS) {
        f->seconds = strtod(value, &end);
        if (*end || !(f->seconds >= 0 && f->seconds < 1e6)) die("run.fault: %s: %s (seconds)", kind, pair);
        return SECONDS;
    }
    bool tensor = n == 6 && !strncmp(pair, "tensor", n) && keys & TENSOR;
    if (!tensor && !(n == 2 && !strncmp(pair, "of", n) && keys & OF))
        die("run.fault: %s does not take %.*s (see doc/fault.md)", kind, (int)n, pair);
    if (strlen(value) >= FAULT_NAME) die("run.fault: %s: %s is too long", kind, value);
    snprintf(tensor ? f->tensor : f->of, FAULT_NAME, "%s", value);
    return tensor ? TENSOR : OF;
}

static Fault parse_one(char *text)
{
    char *list = strchr(text, ':'), *rest = NULL;
    if (list) *list++ = '\0';
    int kind = 0, given = 0;
    while (kind < FAULT_KINDS && strcmp(text, kinds[kind].name)) kind++;
    if (kind == FAULT_KINDS)
        die("run.fault: no such fault: %s (kill, exit, hang, nan, flip, enospc, slowdisk, spike)", text);
    Fault f = {.kind = (FaultKind)kind, .steps = 1, .signal = SIGKILL, .bit = 20, .bytes = 65536, .seconds = 5,
               .of = "weight"};
    for (char *pair = list ? strtok_r(list, ",", &rest) : NULL; pair; pair = strtok_r(NULL, ",", &rest)) {
        int key = parse_pair(&f, pair, text, kinds[kind].keys);
        if (given & key) die("run.fault: %s: %s is there twice", text, pair);
        given |= key;
    }
    if (kinds[kind].needs & ~given)
        die("run.fault: %s needs %s", text, kinds[kind].needs & ~given & STEP ? "step=N" : "tensor=NAME");
    if (f.bit > 31 || f.signal > 64) die("run.fault: %s: bits go to 31, signals to 64", text);
    return f;
}

Faults fault_parse(const char *text)
{
    Faults all = {0};
    char *copy = strdup(text), *rest = NULL;
    if (!copy) die("run.fault: no memory");
    for (char *one = strtok_r(copy, ";", &rest); one; one = strtok_r(NULL, ";", &rest)) {
        while (*one == ' ') one++;
        if (all.n == FAULT_MAX) die("run.fault: more than %d faults", FAULT_MAX);
        all.fault[all.n++] = parse_one(one);
    }
    free(copy);
    return all;
}

const Fault *fault_at(const Faults *faults, FaultKind kind, long rank, long step)
{
    for (int i = 0; i < faults->n; i++) {
        const Fault *f = &faults->fault[i];
        if (f->kind == kind && f->rank == rank && step >= f->step && step - f->step < f->steps) return f;
    }
    return NULL;
}

void fault_end_process(const Fault *f)
{
    if (f->kind == FAULT_EXIT) exit((int)f->status);
    if (f->kind == FAULT_HANG)
        for (;;) pause();
    raise((int)f->signal);
}

void fault_flip(void *at, long index, long bit)
{
    uint32_t *word = (uint32_t *)at + index;
    *word ^= (uint32_t)1 << bit;
}

void fault_poison(int32_t *token, int32_t *target, size_t n, int64_t sample, int32_t n_vocab)
{
    Rng rng = rng_make((uint64_t)sample, "fault.spike", 0);
    for (size_t i = 0; i < n; i++) {
        token[i] = (int32_t)rng_below(rng, i, (uint64_t)n_vocab);
        target[i] = (int32_t)rng_below(rng, i + 1, (uint64_t)n_vocab);
    }
}

void fault_limit_files(long bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN); // the write fails instead of ending the process
    if (getrlimit(RLIMIT_FSIZE, &limit)) die("run.fault: enospc: %s", strerror(errno));
    limit.rlim_cur = bytes > 0 ? (rlim_t)bytes : limit.rlim_max;
    if (setrlimit(RLIMIT_FSIZE, &limit)) die("run.fault: enospc: %s", strerror(errno));
}
