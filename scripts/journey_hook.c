// journey_hook: notes each function of a program once, when it is called for the first time.
//
// scripts/journey.sh compiles the tree with -finstrument-functions and links this file into the programs. Each call
// then enters __cyg_profile_func_enter. A first call appends one line to $JOURNEY_CALLS.RANK, "nanoseconds program
// address", where the address counts from the program's beginning, as nm prints it. Every line goes out by itself, so a
// process that forks, replaces itself by exec or is killed loses nothing. Nothing is allocated, and errno stays as it
// was. gcov writes its counts at exit() and before exec; here also at _exit(), which the linker sends to __wrap__exit.
//
// Invariant: one line a function and process; rank 0's file sorted by its first column is the order of first calls.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SILENT __attribute__((no_instrument_function))
#define GRAIN 16 // functions begin at multiples of this (-falign-functions)

extern char __executable_start, etext; // the linker's: where the program's code begins and ends
static unsigned char seen[(64 << 20) / GRAIN]; // 64 MB of code; pages that are never touched cost nothing

SILENT static char *put_text(char *out, const char *end, const char *text)
{
    while (*text && out < end) *out++ = *text++;
    return out;
}

SILENT static char *put_number(char *out, const char *end, uint64_t number, unsigned base)
{
    char digits[24], *first = digits + sizeof digits;
    *--first = 0;
    do *--first = "0123456789abcdef"[number % base];
    while (number /= base);
    return put_text(out, end, first);
}

// The rank, as the launchers tell it.
SILENT static const char *rank_of_process(void)
{
    static const char *const names[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank && *rank) return rank;
    }
    return "0";
}

SILENT static void note(uintptr_t offset)
{
    char program[PATH_MAX], path[PATH_MAX], line[PATH_MAX + 64], *out;
    const char *calls = getenv("JOURNEY_CALLS");
    if (!calls) return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); // the same clock for all processes of a command
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n < 0 ? 0 : n] = 0;
    const char *end = line + sizeof line - 1;
    out = put_number(line, end, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, 10);
    out = put_text(put_text(put_text(out, end, " "), end, program), end, " 0x");
    out = put_text(put_number(out, end, offset, 16), end, "\n");
    end = path + sizeof path - 1;
    *put_text(put_text(put_text(path, end, calls), end, "."), end, rank_of_process()) = 0;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return;
    ssize_t written = write(file, line, (size_t)(out - line));
    (void)written; // a full disk: scripts/journey.sh sees a file with counts and no call
    close(file);
}

void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
SILENT void __wrap__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}

SILENT void __cyg_profile_func_enter(void *function, void *caller);
SILENT void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    uintptr_t offset = (uintptr_t)function - (uintptr_t)&__executable_start;
    if (offset >= (uintptr_t)(&etext - &__executable_start) || offset / GRAIN >= sizeof seen) return;
    if (__atomic_load_n(&seen[offset / GRAIN], __ATOMIC_RELAXED)) return;
    if (__atomic_exchange_n(&seen[offset / GRAIN], 1, __ATOMIC_RELAXED)) return; // another thread was first
    int error = errno;
    note(offset);
    errno = error;
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
}
