// fuzz: calls a parser with one input, and comes back whatever the parser does.
//
// Our parsers end the program on a bad input: die() prints one line and calls exit(1). A process for each input would
// make that a few hundred inputs a second. So the programs here are linked with -Wl,--wrap=exit, and exit() jumps
// back, out of the parser. Nothing in src/ knows of it. What the parser held at that moment is given back here:
//
//   memory    every allocation and release of the process passes by on_malloc and on_free while a parser runs: hooks of
//             the sanitizer's, or our own malloc in front of the C library's. What is live after the jump is freed.
//   files     -Wl,--wrap=fopen,--wrap=fclose keep a list of what is open; descriptors above the first free one are
//             closed.
//   mappings  -Wl,--wrap=mmap,--wrap=munmap, likewise. A process may have 65,530 of them; after so many refusals every
//             later input would be refused too, for that reason alone.
//
// The same books make the checks sharper than a crash alone would be. Invariants, for every input of n bytes:
//   - exit has status 1, and stderr holds "error: ...", with a newline at its end and nowhere else that die() wrote
//   - an input that is accepted leaks no memory, descriptor or mapping (tried again a few times: caches may grow)
//   - at no time more than 64 MiB + 100 n are allocated, nor asked for in one piece
//   - it takes less than a second of processor time, 5 under a sanitizer
//
// Rejected: a process for each input (see above), a die() that is told by a global variable where to jump (state that
// every program would carry for the tests), parsers that return errors all the way up (every caller wants to stop).
#define _GNU_SOURCE // close_range
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif

enum { ATTEMPTS = 4, SLOTS = 1 << 20, FILES = 64, MAPS = 1024, ALLOWED = 64 << 20, TEXT = 1 << 16 };
#ifdef SANITIZED
static const double seconds_allowed = 5;
#else
static const double seconds_allowed = 1;
#endif

// One guard a process: it stands for the process, and hooks have no argument to carry it in.
static struct {
    bool ready, active, must_take;
    jmp_buf back;
    int status;
    const void *slot[SLOTS]; // live allocations, open addressing; TOMB: was one
    uint32_t order[SLOTS];   // slots in use
    size_t n_order, live, bytes, limit;
    FILE *file[FILES];
    int n_files, first_fd, n_maps;
    struct {
        void *at;
        size_t n;
    } map[MAPS];
    FILE *sink;       // stands in for stderr
    char text[TEXT];  // what was written to it
    char dir[256];
    uint64_t taken, refused;
    double deadline;  // in processor time of the thread
} guard;

static const char TOMB[1];
static __thread bool parsing_thread; // what libraries allocate on threads of their own is not the parser's

void fuzz_fail(const char *what)
{
    guard.active = false;
    char line[TEXT + 256];
    int n = snprintf(line, sizeof line, "\nfuzz: broken: %s\n%.*s\n", what, (int)__fpending(guard.sink), guard.text);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) {}
    abort();
}

// ---- targets

__attribute__((noreturn)) void __real_exit(int status);
static FuzzTarget list[64], target;
static int n_listed;

void fuzz_target(FuzzTarget t)
{
    list[n_listed++] = t;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    const char *slash = strrchr(**argv, '/'), *name = slash ? slash + 1 : **argv;
    for (int i = 0; i < n_listed; i++)
        if (!strcmp(list[i].name, name)) target = list[i];
    if (target.name) return 0;
    fprintf(stderr, "error: no target %s (they are in dev/fuzz)\n", name);
    __real_exit(1);
}

// ---- memory

static size_t slot_of(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15u >> 44);
}

size_t malloc_usable_size(void *p);

static void on_malloc(const volatile void *given, size_t n)
{
    const void *p = (const void *)given;
    if (!guard.active || !parsing_thread || !p) return;
    guard.bytes += n;
    if (n > guard.limit || guard.bytes > guard.limit) fuzz_fail("more memory than 64 MiB and 100 times the input");
    if (guard.n_order == SLOTS / 2) fuzz_fail("half a million allocations for one input");
    size_t s = slot_of(p);
    while (guard.slot[s]) s = (s + 1) % SLOTS; // not into a tomb: order[] has it already
    guard.slot[s] = p;
    guard.order[guard.n_order++] = (uint32_t)s;
    guard.live++;
}

static void on_free(const volatile void *given)
{
    const void *p = (const void *)given;
    if (!guard.active || !parsing_thread || !p) return;
    size_t s = slot_of(p);
    while (guard.slot[s] && guard.slot[s] != p) s = (s + 1) % SLOTS;
    if (!guard.slot[s]) return; // from before
    guard.slot[s] = TOMB;
    guard.live--;
    size_t n = malloc_usable_size((void *)p);
    guard.bytes -= n < guard.bytes ? n : guard.bytes;
}

#ifdef SANITIZED
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *, size_t), void (*)(const volatile void *));
static void watch_memory(void)
{
    if (!__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free)) fuzz_fail("the sanitizer has no hook free");
}
#elif defined(__GLIBC__)
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);
static void watch_memory(void) {}

void *malloc(size_t n)
{
    if (guard.active && n > guard.limit) on_malloc(TOMB, n);
    void *p = __libc_malloc(n);
    on_malloc(p, p ? malloc_usable_size(p) : 0);
    return p;
}

void *calloc(size_t n, size_t size)
{
    size_t all;
    if (guard.active && !__builtin_mul_overflow(n, size, &all) && all > guard.limit) on_malloc(TOMB, all);
    void *p = __libc_calloc(n, size);
    on_malloc(p, p ? malloc_usable_size(p) : 0);
    return p;
}

void *realloc(void *old, size_t n)
{
    if (guard.active && n > guard.limit) on_malloc(TOMB, n);
    on_free(old);
    void *p = __libc_realloc(old, n);
    on_malloc(p, p ? malloc_usable_size(p) : 0);
    return p;
}

void free(void *p)
{
    on_free(p);
    __libc_free(p);
}
#else
static void watch_memory(void) {} // leaks and amounts are not seen
#endif

void __asan_describe_address(void *p) __attribute__((weak));

// Says where the first few live allocations were made, under a sanitizer.
static void describe_live(void)
{
    for (size_t i = 0, shown = 0; i < guard.n_order && shown < 3; i++) {
        const void *p = guard.slot[guard.order[i]];
        if (!p || p == TOMB) continue;
        if (__asan_describe_address) __asan_describe_address((void *)p);
        shown++;
    }
}

// Forgets the allocations; after a jump those that are live are freed. After an accepted input they belong to a
// cache that lives on, or else a later attempt finds them again.
static void sweep(bool taken)
{
    for (size_t i = 0; i < guard.n_order; i++) {
        const void *p = guard.slot[guard.order[i]];
        guard.slot[guard.order[i]] = NULL;
        if (!taken && p && p != TOMB) free((void *)p);
    }
    guard.n_order = guard.live = guard.bytes = 0;
}

// ---- files

FILE *__real_fopen(const char *path, const char *mode);
int __real_fclose(FILE *f);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    FILE *f = __real_fopen(path, mode);
    if (f && guard.active && guard.n_files < FILES) guard.file[guard.n_files++] = f;
    return f;
}

int __wrap_fclose(FILE *f)
{
    for (int i = 0; i < guard.n_files; i++)
        if (guard.file[i] == f) guard.file[i] = guard.file[--guard.n_files];
    return __real_fclose(f);
}

void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t n);

void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (guard.active && parsing_thread && guard.n_maps == MAPS) fuzz_fail("a thousand mappings for one input");
    void *map = __real_mmap(at, n, protection, flags, fd, offset);
    if (guard.active && parsing_thread && map != MAP_FAILED) {
        guard.map[guard.n_maps].at = map;
        guard.map[guard.n_maps++].n = n;
    }
    return map;
}

int __wrap_munmap(void *at, size_t n)
{
    for (int i = 0; i < guard.n_maps; i++)
        if (guard.map[i].at == at) guard.map[i] = guard.map[--guard.n_maps];
    return __real_munmap(at, n);
}

void __wrap_exit(int status)
{
    if (!guard.active) __real_exit(status);
    if (guard.must_take) fuzz_fail("refused what it has written itself");
    guard.status = status;
    guard.active = false;
    longjmp(guard.back, 1);
}

static void remove_dir(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", guard.dir);
    if (system(command) != 0) {}
}

const char *fuzz_dir(void)
{
    return guard.dir;
}

const char *fuzz_file(const char *name, const void *data, size_t n)
{
    enum { KEPT = 8 };
    static char path[KEPT][320];
    static int next;
    char *p = path[next++ % KEPT];
    snprintf(p, sizeof path[0], "%s/%s", guard.dir, name);
    int fd = open(p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd) != 0) fuzz_fail("cannot write the scratch file");
    return p;
}

size_t fuzz_cut(const uint8_t *data, size_t n, size_t *second)
{
    const uint8_t *at = n ? memmem(data, n, "\n----\n", 6) : NULL;
    *second = at ? (size_t)(at - data) + 6 : n;
    return at ? (size_t)(at - data) : n;
}

void fuzz_allow(size_t n_bytes)
{
    guard.limit += n_bytes;
}

void fuzz_must_take(void)
{
    guard.must_take = true;
}

// ---- one input

static void get_ready(void)
{
    if (guard.ready) return;
    guard.ready = true;
    guard.sink = __real_fopen("/dev/null", "w");
    if (!guard.sink || setvbuf(guard.sink, guard.text, _IOFBF, TEXT) != 0) abort();
    const char *tmp = getenv("TMPDIR");
    bool shm = access("/dev/shm", W_OK) == 0;
    snprintf(guard.dir, sizeof guard.dir, "%s/fuzz_XXXXXX", tmp ? tmp : shm ? "/dev/shm" : "/tmp");
    if (!mkdtemp(guard.dir)) fuzz_fail("no scratch folder");
    atexit(remove_dir);
    watch_memory();
    // The threads of OpenMP are made by the first parallel loop, and are not an input's.
#pragma omp parallel
    {
    }
    if (target.begin) target.begin();
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double fuzz_seconds_left(void)
{
    return guard.deadline - processor_seconds();
}

static int free_fd(void)
{
    int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

// What die() wrote: one line, and for a configuration two more that show where.
static void check_message(void)
{
    size_t n = __fpending(guard.sink), lines = 0;
    for (size_t i = 0; i < n; i++) {
        lines += guard.text[i] == '\n';
        if (guard.text[i] != '\n' && guard.text[i] != '\t' && (uint8_t)guard.text[i] < ' ')
            fuzz_fail("a control character in the message");
    }
    fuzz_check(guard.status == 1);
    fuzz_check(n > 7 && n < TEXT && memcmp(guard.text, "error: ", 7) == 0 && guard.text[n - 1] == '\n');
    fuzz_check(lines == 1 || (lines == 3 && memmem(guard.text, n, ".toml:", 6)));
}

// True: taken. False: refused. *left: allocations that are live after it.
static bool attempt(const uint8_t *data, size_t n, size_t *left, bool last)
{
    FILE *const kept = stderr;
    volatile bool taken = false;
    guard.limit = ALLOWED + 100 * n;
    guard.first_fd = free_fd();
    stderr = guard.sink;
    if (setjmp(guard.back) == 0) {
        guard.must_take = false;
        guard.active = true;
        target.one(data, n);
        guard.active = false;
        taken = true;
    }
    stderr = kept;
    *left = guard.live;
    if (!taken) check_message();
    if (taken && (guard.n_files || free_fd() != guard.first_fd)) fuzz_fail("a file is left open");
    if (taken && guard.n_maps) fuzz_fail("a mapping is left");
    if (taken && last && guard.live) {
        describe_live();
        fuzz_fail("memory is left behind by an input that was taken");
    }
    __fpurge(guard.sink);
    guard.active = true; // fclose releases memory that is in the books
    while (guard.n_files) __real_fclose(guard.file[--guard.n_files]);
    guard.active = false;
    for (; guard.n_maps; guard.n_maps--) __real_munmap(guard.map[guard.n_maps - 1].at, guard.map[guard.n_maps - 1].n);
    if (!taken) close_range((unsigned)guard.first_fd, ~0u, 0);
    sweep(taken);
    return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t left;
    get_ready();
    parsing_thread = true;
    guard.deadline = processor_seconds() + seconds_allowed;
    bool taken = attempt(data, n, &left, false);
    for (int again = 1; taken && left && again < ATTEMPTS; again++)
        taken = attempt(data, n, &left, again == ATTEMPTS - 1);
    if (!(fuzz_seconds_left() > 0)) fuzz_fail("too long for one input");
    guard.taken += taken;
    guard.refused += !taken;
    return 0;
}

void fuzz_counts(uint64_t *taken, uint64_t *refused)
{
    *taken = guard.taken;
    *refused = guard.refused;
}

// ---- seeds

static struct {
    void (*add)(void *arg, const char *name, const void *data, size_t n);
    void *arg;
} seeding;

void fuzz_each_seed(void (*add)(void *arg, const char *name, const void *data, size_t n), void *arg)
{
    get_ready();
    seeding.add = add;
    seeding.arg = arg;
    target.seeds();
}

void fuzz_seed(const char *name, const void *data, size_t n)
{
    seeding.add(seeding.arg, name, data, n);
}

void fuzz_seed_texts(const char *const *text, int n)
{
    for (int i = 0; i < n; i++) fuzz_seed((char[]){'t', (char)('0' + i), 0}, text[i], strlen(text[i]));
}

void fuzz_seed_file(const char *path)
{
    static char bytes[1 << 18];
    FILE *f = __real_fopen(path, "rb");
    if (!f) return;
    size_t n = fread(bytes, 1, sizeof bytes, f);
    const char *slash = strrchr(path, '/');
    fuzz_seed(slash ? slash + 1 : path, bytes, n);
    __real_fclose(f);
}
