// check: die() and its kin. See check.h for the contract.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pthread_setattr_default_np
#endif
#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// A program that is started with a standard stream closed would open its first file under that descriptor, and its
// output would land in a checkpoint or a lock. So before main begins each closed one is opened on /dev/null.
__attribute__((constructor)) static void hold_standard_streams(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

// When memory runs out, the JSON library returns "no such value", as if the text did not have it, or leaves a part out
// of a value that it builds. Callers do not check each call, so the library's allocator dies instead.
static void *json_room(size_t n_bytes)
{
    void *ptr = malloc(n_bytes ? n_bytes : 1);
    if (!ptr) die("memory: no room for %zu bytes of a JSON text", n_bytes);
    return ptr;
}
#pragma weak json_set_alloc_funcs // tests of kernels are linked without jansson
__attribute__((constructor)) static void guard_json(void)
{
    if (json_set_alloc_funcs) json_set_alloc_funcs(json_room, free);
}

typedef struct {
    const char *rank, *size;
} Launcher;

// The rank in a job of several, from the environment of the launcher: Hydra, Open MPI, torchrun and SLURM are tried in
// that order. NULL for a single process.
static const char *launcher_rank(void)
{
    const Launcher known[] = {{"PMI_RANK", "PMI_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                              {"RANK", "WORLD_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *rank = getenv(known[i].rank), *size = getenv(known[i].size);
        if (rank && size) return atol(size) > 1 ? rank : NULL;
    }
    return NULL;
}

// A message may quote a file or command line that we did not write: control characters become '?', so that the message
// stays on one line and sends the terminal no command.
void check_clean(char *message)
{
    for (char *c = message; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7F) *c = '?';
}

// When several threads fail at once (as they do when memory runs out), one reports and ends the program; the others
// wait for the end. The reporting thread may come here again, from a handler of exit().
static atomic_bool taken;
static void take_the_word(void)
{
    static _Thread_local bool mine;
    while (!mine && atomic_exchange(&taken, true)) pause();
    mine = true;
}

// Shared by the ranks of a machine: 0 until one of them has an error, 1 while it prints it, 2 after that.
static int *voice;
void check_share_voice(int *shared)
{
    voice = shared;
}

// Whether this rank may print. One that may not returns when the other has printed, or is gone: it may end the job.
static bool may_speak(void)
{
    int nobody = 0;
    if (!voice || __atomic_compare_exchange_n(voice, &nobody, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return true;
    for (int i = 0; i < 1000 && __atomic_load_n(voice, __ATOMIC_SEQ_CST) != 2; i++) usleep(10000);
    return false;
}

// The whole line is one write, so that the lines of several ranks do not mix. An error that all ranks have is printed
// once: the other ranks wait 0.8 s, in which rank 0 prints it and ends the job (after 0.2 s, comm_mpi). Where rank 0
// comes later, the rank that comes first prints it.
static void complain(char *message)
{
    take_the_word();
    check_clean(message);
    const char *rank = launcher_rank();
    fflush(stdout);
    if (rank && strcmp(rank, "0")) usleep(800000);
    if (!may_speak()) return;
    if (rank) fprintf(stderr, "rank %s: error: %s\n", rank, message);
    else fprintf(stderr, "error: %s\n", message);
    if (voice) __atomic_store_n(voice, 2, __ATOMIC_SEQ_CST);
}

void check_die(const char *file, int line, const char *fmt, ...)
{
    char message[2048], whole[2200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    snprintf(whole, sizeof whole, "%s [%s:%d]", message, base, line);
    complain(whole);
    exit(1);
}

void check_die_status(int status, const char *fmt, ...)
{
    char message[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    complain(message);
    exit(status);
}

void check_warn(const char *fmt, ...)
{
    char message[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    check_clean(message);
    fprintf(stderr, "warning: %s\n", message);
}

void check_help(int argc, char **argv, const char *text)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(text, stdout);
            exit(0);
        }
}

// What a program prints is often its result, redirected to a file, so a failed write must not pass as success. This
// exit handler is registered before all others, so it runs last. After an error it ends the process at once: what the
// libraries do at the end may wait for ever where memory has run out (OpenBLAS joins its threads).
static void finish_output(int status, void *unused)
{
    (void)unused;
    const char *why = fflush(stdout) ? strerror(errno) : ferror(stdout) ? "could not be written" : NULL;
    bool reported = atomic_load(&taken);
    if (!why && !(status && reported)) return;
    if (!reported) fprintf(stderr, "error: standard output: %s (is the disk full?)\n", why);
    fflush(NULL);
    _exit(status ? status : 1);
}
#ifndef __GLIBC__
static void finish_anyhow(void)
{
    finish_output(0, NULL);
}
#define on_exit(function, unused) atexit(finish_anyhow)
#endif
__attribute__((constructor)) static void watch_output(void)
{
    if (on_exit(finish_output, NULL) != 0) die("memory: no room for what is done at the end");
}

// Past `ulimit -f` a write fails, and is reported, instead of ending the process by a signal.
__attribute__((constructor)) static void outlive_long_files(void)
{
    signal(SIGXFSZ, SIG_IGN);
}

// Stacks and threads that the environment sets. Our deepest calls (gemm.c in attention.c, with AVX-512) die with 540 KiB
// of stack and work with 600. The program's own stack grows up to `ulimit -s`, which may be raised until then; a
// thread's is as large as that was when the program began, or as OMP_STACKSIZE says, in KiB when it has no unit. OpenMP
// puts a list of its threads on the stack, which a million of them overflow.
#pragma weak omp_get_max_threads // tests of kernels are linked without OpenMP
#pragma weak omp_set_num_threads
__attribute__((constructor)) static void bound_stacks_and_threads(void)
{
    enum { LEAST = 1024, MOST = 1024 }; // KiB, threads
    char *unit = "", *size = getenv("OMP_STACKSIZE");
    long long n = size ? strtoll(size, &unit, 10) : 0;
    if (n > 0 && n < (strpbrk(unit, "bB") ? LEAST << 10 : LEAST) && !strpbrk(unit, "mMgG"))
        die("OMP_STACKSIZE = %s: a thread needs %d KiB (try OMP_STACKSIZE=2M)", size, LEAST);
    struct rlimit now;
    if (!getrlimit(RLIMIT_STACK, &now) && now.rlim_cur < LEAST << 10 &&
        setrlimit(RLIMIT_STACK, &(struct rlimit){LEAST << 10, now.rlim_max < LEAST << 10 ? LEAST << 10 : now.rlim_max}))
        die("ulimit -s %llu: the stack needs %d KiB (try ulimit -s 8192)", now.rlim_cur / 1024ull, LEAST);
#ifdef __GLIBC__
    pthread_attr_t of_thread;
    size_t room;
    if (!pthread_getattr_default_np(&of_thread)) {
        if (!pthread_attr_getstacksize(&of_thread, &room) && room < LEAST << 10 &&
            !pthread_attr_setstacksize(&of_thread, LEAST << 10)) pthread_setattr_default_np(&of_thread);
        pthread_attr_destroy(&of_thread);
    }
#endif
    if (!omp_get_max_threads || omp_get_max_threads() <= MOST) return;
    check_warn("OMP_NUM_THREADS = %s: %d threads are used", getenv("OMP_NUM_THREADS"), MOST);
    omp_set_num_threads(MOST), setenv("OMP_NUM_THREADS", "1024", 1); // the latter for a restart (dev_cpu.c)
}
