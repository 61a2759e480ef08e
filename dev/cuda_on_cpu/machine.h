// machine: what the parts of the emulator share. Not for kernel files; they see cuda_on_cpu.h.
//
// One process holds one machine, and one OS thread runs it: like a GPU it is a thing, not a value, so its state is
// one global, `machine`. Who runs what:
//
//     stream.cc   operations in streams, and when the host must wait    -> run_launch
//     block.cc    blocks, threads, barriers, warp collectives           -> fiber.cc
//     memory.cc   the arena: shared memory of live blocks, then device memory
//     checker.cc  linked into the checker build alone; fills `machine.hooks`
//     report.cc   every message, the environment, signals
#ifndef CUDA_ON_CPU_MACHINE_H
#define CUDA_ON_CPU_MACHINE_H
// Built with -fsanitize=address, by g++ or clang++.
#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

#include "cuda_on_cpu.h"

#include <cstdarg>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace emu {

// ---- limits of the machine: those of compute capability 9.0, but for the four multiprocessors
enum : unsigned {
    MAX_THREADS = 1024, // of a block
    WARP = 32,
    BARRIERS = 16,
    SM_COUNT = 4,
    SM_THREADS = 2048,
    SM_BLOCKS = 32,
    SHARED_STATIC = 48 * 1024,
    SHARED_MAX = 227 * 1024,
    SLOT = 512 * 1024,            // address space of one live block's shared memory, red zones included
    SLOTS = SM_COUNT * SM_BLOCKS, // blocks that can be live
    SHARED_ZONE = 64,             // bytes of red zone around shared arrays
    DEVICE_ZONE = 256,            // and around device allocations
};

enum class Order { inorder, reverse, random };
enum class StreamMode { now, late, random };

struct Settings { // from the environment, see README.md
    Order order;
    StreamMode streams;
    uint64_t seed;
    int strict;
    unsigned resident; // blocks that are live at a time
    size_t stack;      // bytes
    bool guard, prof, wide; // wide: tensor cores add in double
    unsigned timeout;       // seconds that a launch may take; 0: any time
    int gpus, capability;   // that the machine says it has: one memory and one set of streams in any case; 90: 9.0
    bool image;             // the program holds kernels for them
    uint64_t blas;          // not 0: the seed of what cuBLASLt's heuristic does not have, and offers in vain
    int first;              // the number that device 0 of this process has among the machine's
};

// ---- fibers: a stack that one waiting thread keeps
struct Fiber {
    void *sp;          // saved stack pointer while it is not running
    char *low;         // lowest usable address; a page without access lies below
    size_t size;
    void *fake;        // AddressSanitizer's own
};
Fiber *fiber_get();        // one with an empty stack, or one that waits in the loop of fiber_main
void fiber_put(Fiber *);   // suspended in that loop
Fiber *fiber_here();       // the one that runs
void fiber_switch(Fiber *from, Fiber *to);
bool fiber_owns(const void *p);      // is p in a stack?
bool fiber_overflowed(const void *p); // is p in the page below a stack?
[[noreturn]] void fiber_main();      // in block.cc: runs machine.current, then what comes next

// ---- blocks
struct Block;
struct Copy { // an asynchronous copy that has not landed
    void *dst;
    const void *src;
    unsigned bytes, from_src; // bytes - from_src are zeros
    unsigned group;
    Site site;
};
enum class State : unsigned char { fresh, ready, running, waiting, done };
struct Thread {
    uint3 idx;
    unsigned linear;
    Block *block;
    Fiber *fiber;
    State state;
    const char *why; // what it waits for
    unsigned mask;
    Site site;
    int result;      // of a barrier that counts
    std::vector<Copy> copies;
    unsigned group;  // number of committed groups of copies
    // ---- the checker's clocks
    std::vector<uint32_t> clock; // by thread of the block: what this thread knows of it in this epoch
    uint32_t fence_epoch, fence_clock;
    bool fenced;
    std::map<uint64_t, uint64_t> known; // of other blocks, see checker.cc
};
struct Barrier {
    unsigned arrived, expected; // expected 0: all threads that are left
    int count;                  // threads whose predicate holds
    const char *op;
    Site site;
    std::vector<Thread *> waiting;
};
struct Group { // a collective that waits for lanes
    unsigned mask, arrived;
    const char *op;
    Site site;
    void *arg[WARP];
    void (*finish)(Lanes *);
};
struct Warp {
    unsigned gone; // lanes that have returned or never were
    std::vector<Group> groups;
};
struct SharedArray {
    const void *tag;
    const char *name;
    char *at;
    size_t bytes;
};
struct Launch;
struct Block {
    Launch *launch;
    uint3 idx;
    unsigned linear, slot, n, done; // n threads, done of them have returned
    std::vector<Thread> threads;
    std::vector<unsigned> order;    // in which threads start
    unsigned started;
    std::vector<Warp> warps;
    Barrier barrier[BARRIERS];
    std::vector<SharedArray> shared;
    size_t shared_used, shared_bytes; // with and without red zones
    uint32_t epoch;                   // block barriers so far
    bool wide;                        // a named barrier was used in this epoch
    std::map<uint64_t, uint64_t> known;
};
struct Launch {
    const char *name;
    Site site;
    dim3 grid, block;
    size_t dynamic;
    void (*invoke)(const void *kernel, void *args);
    const void *kernel;
    std::vector<char> args;
    bool cooperative, opted; // opted: cudaFuncAttributeMaxDynamicSharedMemorySize was set
    unsigned id, next, finished, n; // blocks begun, finished, in all
    std::vector<unsigned> order;
    std::vector<Thread *> grid_waiting;
    Site grid_site;
};
void run_launch(Launch *l); // to its end
std::string who_waits(Site *one); // a line for each place where threads of live blocks wait
Thread *thread_now();
void thread_yield(); // lets others run, in random order alone

// ---- operations of libraries (nccl.cc, blas.cc), in streams like launches: after all that is in `streams`, before all
// that comes. in_order: also after the last one of this kind.
void stream_library_call(const std::vector<Stream *> &streams, const char *what, Site site, bool in_order,
                         std::function<void()> run);
void stream_stuck(bool on); // what is in order and not done yet: never is; off again: is as if it were empty
void stream_library_flush(); // runs those that are in order, and what they come after

// ---- memory
void memory_block_begin(Block *b);
void memory_block_end(Block *b); // red zones are whole, or it stops
void memory_check_zones();       // of device memory
void memory_open(bool open);     // EMU_GUARD: may the host's hand touch device memory?
bool memory_is_device(const void *p);
bool memory_in_arena(const void *p);
bool memory_is_pinned(const void *p);
// Stops unless [p, p + bytes) lies in one device allocation.
void memory_need(const void *p, size_t bytes, const char *who, Site site);
std::string memory_describe(const void *p); // "4 bytes behind the 128 bytes of tile"
void memory_released();                     // at the end of the process
char *memory_base();
size_t memory_bytes();

// ---- reports
struct Prof { unsigned long launches, threads, waits, switches; };
// Prints "cuda_on_cpu: KIND: FILE:LINE: message", the kernel, block and thread, and aborts.
[[noreturn]] void report(const char *kind, Site site, const char *format, ...) __attribute__((format(printf, 3, 4)));
std::string format(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string where(const Thread *t); // "block (0,0,0) thread (3,0,0)"
extern "C" char __executable_start, end; // of the program, from the linker
// The line of an instruction of the program or of a library, where addr2line can tell it; otherwise "?". Good for two
// calls.
Site line_of(const void *instruction);
void watch(bool on);   // EMU_TIMEOUT: a launch begins, or has ended
void watch_look();     // called where it is safe to report: has the launch run for too long?
uint64_t random_next();
inline unsigned random_below(unsigned n) { return (unsigned)(random_next() % n); }
void shuffle(std::vector<unsigned> &v);

// ---- the checker's entry points; null without it
struct Hooks {
    void (*alloc)(const void *p, size_t bytes, bool initialised); // now usable
    void (*release)(const void *p, size_t bytes);                 // no longer
    void (*host_write)(const void *p, size_t bytes);              // a copy or a library wrote
    void (*access)(const void *p, size_t bytes, bool write, Site site);
    void (*forget)(const void *p, size_t bytes); // holds nothing any more
    void (*launch)(Launch *l);
    void (*block)(Block *b);
    void (*barrier)(Block *b, Thread *const *t, size_t n, bool whole);
    void (*grid)();
    void (*collective)(Block *b, unsigned warp, unsigned lanes);
    void (*fence)(Thread *t);
    void (*atomic)(Thread *t, const void *p, size_t bytes, Site site);
};

struct Machine {
    Settings set;
    Hooks hooks;
    Thread *current; // running; null: the host
    Fiber host;
    Launch *launch;
    std::vector<Block *> live;
    std::vector<Block *> spare;
    std::vector<Thread *> ready; // in the order in which they became so
    size_t ready_first;
    unsigned fresh; // threads of live blocks that have not started
    unsigned launches;
    uint64_t random;
    unsigned long waits, switches;
    std::map<std::string, Prof> prof;
};
void checker_attach(Machine *m); // in checker.cc
Machine &machine_get(); // set up on first use
extern Machine *machine_now;
inline Machine &machine() { return machine_now ? *machine_now : machine_get(); }

} // namespace emu
#endif
