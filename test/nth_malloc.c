// nth_malloc: memory that runs out, for LD_PRELOAD. Of the allocations that a program asks for, number NTH_MALLOC
// fails (from 1), or with NTH_MALLOC_ON=1 that one and all after it; 0: none. It counts the program's own calls and
// those made for it by the C library (strdup, fopen) and by the libraries that read and write its files, but not those
// of OpenMP, BLAS and MPI, which end in their own ways. With NTH_MALLOC_SITES=1 places in the
// code are counted, each at its first call: a program of 100,000 allocations has some hundred places.
// NTH_MALLOC_SAYS names a file that gets "N calls", "N failed at MODULE+OFFSET". (test/test_no_memory.sh)
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The C library's own, by the names that it gives them beside the usual ones.
void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n_bytes);
void *__libc_memalign(size_t align, size_t n_bytes);

enum { RANGES = 64, SITES = 8192 };

typedef struct {
    uintptr_t from, to, base;
    const char *name;
} Range; // of code that is counted

static Range range[RANGES];
static int n_ranges;
static long nth, calls;
static int on, by_site;
static const char *says;
static uintptr_t site[SITES]; // a hash table of return addresses
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void say(const char *fmt, long n, const char *module, unsigned long offset)
{
    char line[600];
    int length = snprintf(line, sizeof line, fmt, n, module, offset);
    int fd = says && length > 0 ? open(says, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    if (write(fd, line, (size_t)length) < 0) _exit(99);
    close(fd);
}

static int add_module(struct dl_phdr_info *module, size_t size, void *arg)
{
    static const char *const counted[] = {"libc.so", "libjansson", "libinih", "libpcre2", "libxxhash", "libz.",
                                          "libzstd"};
    int wanted = !module->dlpi_name[0]; // the program
    (void)size, (void)arg;
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        if (strstr(module->dlpi_name, counted[i])) wanted = 1;
    for (int i = 0; wanted && i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &module->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || n_ranges == RANGES) continue;
        uintptr_t from = module->dlpi_addr + part->p_vaddr;
        range[n_ranges++] = (Range){from, from + part->p_memsz, module->dlpi_addr, module->dlpi_name};
    }
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *program = getenv("NTH_MALLOC_IN"), *n = getenv("NTH_MALLOC"), *name = program_invocation_short_name;
    if (!n || (program && strcmp(program, name))) return;
    on = getenv("NTH_MALLOC_ON") != NULL, by_site = getenv("NTH_MALLOC_SITES") != NULL;
    says = getenv("NTH_MALLOC_SAYS");
    nth = atol(n);
    dl_iterate_phdr(add_module, NULL);
}

__attribute__((destructor)) static void end(void)
{
    if (n_ranges) say("%ld calls\n", calls, "", 0);
}

// Whether a place in the code is met for the first time.
static int is_new(uintptr_t place)
{
    size_t i = place * 0x9E3779B97F4A7C15u >> 51; // 13 bits
    while (site[i] && site[i] != place) i = (i + 1) % SITES;
    if (site[i]) return 0;
    site[i] = place;
    return 1;
}

static int fails(void *caller)
{
    uintptr_t place = (uintptr_t)caller;
    const Range *in = NULL;
    for (int i = 0; i < n_ranges && !in; i++)
        if (place >= range[i].from && place < range[i].to) in = &range[i];
    if (!in) return 0;
    while (atomic_flag_test_and_set(&busy)) {}
    if (!by_site || is_new(place)) calls++;
    else if (!(on && calls >= nth)) in = NULL; // a place that has been counted
    int now = in && nth && (on ? calls >= nth : calls == nth), first = now && calls == nth;
    atomic_flag_clear(&busy);
    if (first) say("%ld failed at %s+0x%lx\n", calls, in->name[0] ? in->name : "program", place - in->base);
    if (now) errno = ENOMEM;
    return now;
}

void *malloc(size_t n_bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t n_bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, n_bytes);
}

void *aligned_alloc(size_t align, size_t n_bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, n_bytes);
}

int posix_memalign(void **out, size_t align, size_t n_bytes)
{
    void *ptr = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, n_bytes);
    if (ptr) *out = ptr;
    return ptr ? 0 : ENOMEM;
}
