// report: every message of the emulator, its settings, its random numbers, and signals.
//
// A bug that was found ends the process: one line that names the kind, the place in the source and what is wrong, then
// the kernel, block and thread, then abort(), so that a debugger stops right there. A program's own mistakes
// that CUDA reports by cudaError_t are not handled here.
#include "machine.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {

Machine *machine_now;

std::string format(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

std::string where(const Thread *t)
{
    uint3 b = t->block->idx;
    return format("block (%u,%u,%u) thread (%u,%u,%u)", b.x, b.y, b.z, t->idx.x, t->idx.y, t->idx.z);
}

static void print_context()
{
    const Thread *t = thread_now();
    const Launch *l = machine_now ? machine_now->launch : nullptr;
    if (l)
        fprintf(stderr, "    in %s<<<(%u,%u,%u), (%u,%u,%u), %zu>>> launched at %s:%d\n", l->name, l->grid.x,
                l->grid.y, l->grid.z, l->block.x, l->block.y, l->block.z, l->dynamic, l->site.file, l->site.line);
    if (t) fprintf(stderr, "    in %s\n", where(t).c_str());
    if (machine_now && (machine_now->set.order == Order::random || machine_now->set.streams == StreamMode::random))
        fprintf(stderr, "    with EMU_SEED=%llu\n", (unsigned long long)machine_now->set.seed);
}

void report(const char *kind, Site site, const char *format, ...)
{
    fflush(stdout);
    fprintf(stderr, "cuda_on_cpu: %s: %s", kind, site.file ? site.file : "?");
    if (site.line) fprintf(stderr, ":%d", site.line);
    fprintf(stderr, ": ");
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    print_context();
    signal(SIGABRT, SIG_DFL);
    abort();
}

Site line_of(const void *instruction)
{
    static char names[2][512];
    static int turn;
    char *name = names[turn++ % 2], program[32], command[640];
    Dl_info info;
    Site unknown = {"?", 0};
    snprintf(program, sizeof program, "/proc/%d/exe", (int)getpid());
    if (instruction >= &__executable_start && instruction < &end)
        info.dli_fname = program, info.dli_fbase = &__executable_start;
    else if (!dladdr(instruction, &info) || strchr(info.dli_fname, '\'')) // the shell's quote
        return unknown;
    snprintf(command, sizeof command, "addr2line -e '%.512s' %#zx 2>/dev/null", info.dli_fname,
             (size_t)((const char *)instruction - (const char *)info.dli_fbase));
    FILE *pipe = popen(command, "r");
    bool told = pipe && fgets(name, sizeof names[0], pipe);
    if (pipe) pclose(pipe);
    char *colon = told ? strrchr(name, ':') : nullptr;
    int line = colon ? atoi(colon + 1) : 0;
    if (!line) return unknown; // a library without debug information, for one
    *colon = 0;
    return {name, line};
}

// What `assert` calls, in a kernel and in the host's code.
extern "C" void __assert_fail(const char *what, const char *file, unsigned line, const char *function) noexcept
{
    if (thread_now()) report("assert", {file, (int)line}, "%s does not hold", what);
    fprintf(stderr, "%s:%u: %s: assertion %s failed\n", file, line, function, what);
    abort();
}

// ---- random numbers: splitmix64. Same seed, same run.
uint64_t random_next()
{
    uint64_t z = machine().random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void shuffle(std::vector<unsigned> &v)
{
    for (size_t i = v.size(); i > 1; i--) std::swap(v[i - 1], v[random_below((unsigned)i)]);
}

// ---- signals
static Site interrupted(void *context) // the line, or, in a library, the thread's last wait
{
    const Thread *t = thread_now();
#if defined(__x86_64__)
    Site site = line_of((void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
#else
    Site site = line_of((void *)((ucontext_t *)context)->uc_mcontext.pc);
#endif
    return site.line || !t || !t->site.file ? site : t->site;
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    const char *name = number == SIGSEGV ? "SIGSEGV" : number == SIGBUS ? "SIGBUS" : "SIGFPE";
    signal(number, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
    const Thread *t = thread_now();
    Site site = interrupted(context);
    void *p = number == SIGSEGV || number == SIGBUS ? info->si_addr : nullptr;
    if (p && fiber_overflowed(p))
        report("stack-overflow", site, "a thread used more than its %zu bytes of stack (EMU_STACK)",
               machine().set.stack);
    if (p && !t && memory_is_device(p))
        report("host-access", site, "the host follows a device pointer: %s", memory_describe(p).c_str());
    if (number == SIGABRT && !t) raise(number);
    else if (number == SIGABRT) report("assert", site, "the kernel gave up (assert or abort)");
    report("signal", site, "%s at address %p%s", name, p, t ? " in a kernel" : "");
}

// ---- the watchdog. The first alarm asks for a report where the emulator is in order (watch_look); a kernel that
// gets to no such place within a second more spins in its own code, and there the signal's handler may report.
static volatile sig_atomic_t overdue;

static void report_timeout(Site site)
{
    Machine &m = machine();
    Site waiting;
    std::string table = who_waits(&waiting);
    report("timeout", site, "kernel %s has run for more than EMU_TIMEOUT=%u s; a thread is here%s", m.launch->name,
           m.set.timeout, table.c_str());
}

static void on_alarm(int, siginfo_t *, void *context)
{
    if (overdue++ && thread_now()) report_timeout(interrupted(context));
    alarm(1);
}

void watch(bool on)
{
    if (!machine().set.timeout) return;
    overdue = 0;
    alarm(on ? machine().set.timeout : 0);
}

void watch_look()
{
    if (overdue) report_timeout(thread_now()->site);
}

#ifdef WITH_ASAN
// UBSan calls this before its own message; AddressSanitizer calls what is set below after its own.
extern "C" void __ubsan_on_report()
{
    print_context();
}
#endif

static void catch_signals()
{
    static char stack[64 * 1024];
    stack_t alternative = {};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
#ifdef WITH_ASAN
    bool own = false; // AddressSanitizer's own report is better
#else
    bool own = true;
#endif
    if (own && sigaltstack(&alternative, nullptr)) report("settings", {"signals", 0}, "sigaltstack failed");
    for (int s : signals)
        if ((own || s == SIGABRT) && sigaction(s, &action, nullptr))
            report("settings", {"signals", 0}, "sigaction failed");
    action.sa_sigaction = on_alarm;
    if (sigaction(SIGALRM, &action, nullptr)) report("settings", {"signals", 0}, "sigaction failed");
#ifdef WITH_ASAN
    __sanitizer_set_death_callback(print_context); // behind a sanitizer's report: the kernel and the thread
#endif
}

// ---- settings
static unsigned long setting(const char *name, unsigned long usual, unsigned long low, unsigned long high)
{
    const char *text = getenv(name);
    if (!text || !*text) return usual;
    char *end;
    unsigned long value = strtoul(text, &end, 0);
    if (*end || value < low || value > high) {
        fprintf(stderr, "error: %s=%s: a number from %lu to %lu\n", name, text, low, high);
        exit(1);
    }
    return value;
}

static int choice(const char *name, const char *const *words, int n)
{
    const char *text = getenv(name);
    if (!text || !*text) return 0;
    for (int i = 0; i < n; i++)
        if (!strcmp(text, words[i])) return i;
    fprintf(stderr, "error: %s=%s: one of", name, text);
    for (int i = 0; i < n; i++) fprintf(stderr, " %s", words[i]);
    fprintf(stderr, "\n");
    exit(1);
}

static void print_prof()
{
    fprintf(stderr, "%-40s %10s %12s %12s %12s\n", "kernel", "launches", "threads", "waits", "switches");
    for (auto &p : machine().prof)
        fprintf(stderr, "%-40s %10lu %12lu %12lu %12lu\n", p.first.c_str(), p.second.launches, p.second.threads,
                p.second.waits, p.second.switches);
}

static void at_exit()
{
    memory_released();
    if (machine().set.prof) print_prof();
}

Machine &machine_get()
{
    if (machine_now) return *machine_now;
    static const char *const orders[] = {"inorder", "reverse", "random"};
    static const char *const streams[] = {"now", "late", "random"};
    Machine *m = new Machine{};
    Settings &s = m->set;
    s.order = (Order)choice("EMU_ORDER", orders, 3);
    s.streams = (StreamMode)choice("EMU_STREAMS", streams, 3);
    s.seed = setting("EMU_SEED", 1, 0, ~0ul);
    s.strict = (int)setting("EMU_STRICT", 1, 0, 2);
    s.resident = (unsigned)setting("EMU_RESIDENT", s.order == Order::random ? 4 : 1, 1, SLOTS);
    s.stack = setting("EMU_STACK", 256 * 1024, 16 * 1024, 64ul << 20);
    s.guard = setting("EMU_GUARD", 0, 0, 1);
    s.prof = setting("EMU_PROF", 0, 0, 1);
    s.wide = setting("EMU_MMA64", 0, 0, 1);
    s.timeout = (unsigned)setting("EMU_TIMEOUT", 0, 0, 1000000);
    s.gpus = (int)setting("EMU_GPUS", 1, 0, 64);
    s.capability = (int)setting("EMU_CAPABILITY", 90, 10, 99);
    s.image = setting("EMU_IMAGE", 1, 0, 1);
    s.blas = setting("EMU_BLAS", 0, 0, ~0ul);
    s.first = (int)setting("EMU_FIRST_GPU", 0, 0, 63);
    m->random = s.seed;
    machine_now = m;
    catch_signals();
    checker_attach(m);
    atexit(at_exit);
    return *m;
}

// Without checker.cc there is nothing to attach.
__attribute__((weak)) void checker_attach(Machine *)
{
}

} // namespace emu
