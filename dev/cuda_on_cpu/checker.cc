// checker: sees every load and store of the kernels, and reports races, reads of what nobody wrote, and accesses
// outside arrays, misaligned or to the host's memory.
//
// Kernel files are compiled with -fsanitize=thread, which puts a call before each access; instead of the sanitizer's
// library, the functions below answer. Each 4 bytes of the arena have a cell: which bytes exist, which were
// written, who wrote last, and two who read since.
//
// Two accesses race when they touch a common byte, one writes, and neither happens before the other. "Before" is kept
// in clocks (Lamport, CACM 21(7), 1978), cheap ones because CUDA's order has a shape:
//   same launch or not      launches that run one after the other are ordered
//   barriers of the block   number them: an access of epoch e is before all of epoch e + 1
//   within an epoch         a clock per thread; a warp collective or named barrier joins the clocks of those that met
//   between blocks          a fence publishes what is before it, the thread's next atomic on an address hands that
//                           to every later atomic on the same address, and the barriers of that block spread it
// Atomics do not race with atomics, but with plain accesses they do.
//
// Not seen: a missing fence on the reader's side, races of two kernels in two streams, more than two readers of a cell
// (the random orders make up for that), locals and globals. Rejected: ThreadSanitizer itself (knows neither barriers
// nor warps, and shared memory would be a heap block like any other); full vector clocks over the grid.
#include "machine.h"

#include <dlfcn.h>
#include <sys/mman.h>

namespace emu {

namespace {
struct Stamp { // who accessed
    uint32_t launch, block, epoch, clock;
    uintptr_t pc; // or the line of a wrapper when file is set
    const char *file;
    uint16_t thread;
    uint8_t bytes; // mask of the cell's four
    bool atomic;
};
struct Cell {
    Stamp write, read[2];
    uint8_t exists, written; // masks
};
struct Released { // what atomics on an address hand on: entries as in Thread::known
    uint32_t launch;
    std::map<uint64_t, uint64_t> known;
};
struct Checker {
    Cell *cells;
    char *base;
    size_t bytes;
    std::map<const void *, Released> released;
};
Checker &checker = *new Checker();
} // namespace

// pc is a return address: the line is that of the call.
static Site line_of(uintptr_t pc, const char *file)
{
    return file ? Site{file, (int)pc} : line_of((const char *)pc - 1);
}

static const char *kind_of(bool write, bool atomic)
{
    return atomic ? "atomic" : write ? "write" : "read";
}

[[noreturn]] static void race(const Stamp &old, bool old_write, const Stamp &now, bool write, const char *address)
{
    const Launch *l = machine().launch;
    uint3 other = {old.thread % l->block.x, old.thread / l->block.x % l->block.y,
                   old.thread / l->block.x / l->block.y};
    uint3 block = {old.block % l->grid.x, old.block / l->grid.x % l->grid.y, old.block / l->grid.x / l->grid.y};
    Site here = line_of(now.pc, now.file), there = line_of(old.pc, old.file);
    report("race", here,
           "%s of %s, with nothing that orders it after the %s at %s:%d by block (%u,%u,%u) thread (%u,%u,%u)",
           kind_of(write, now.atomic), memory_describe(address).c_str(), kind_of(old_write, old.atomic), there.file,
           there.line, block.x, block.y, block.z, other.x, other.y, other.z);
}

// ---- what happens before what
static uint64_t key(uint32_t block, uint32_t thread)
{
    return (uint64_t)block << 16 | thread;
}
enum : uint32_t { WHOLE = 0xffff }; // in place of a thread: all threads of the block, epochs before the value

static bool before(const Stamp &s, const Thread *t)
{
    const Block *b = t->block;
    if (s.launch != b->launch->id) return true;
    if (s.block == b->linear) return s.thread == t->linear || s.epoch < b->epoch || s.clock <= t->clock[s.thread];
    for (auto *known : {&t->known, &b->known}) {
        auto whole = known->find(key(s.block, WHOLE)), one = known->find(key(s.block, s.thread));
        if (whole != known->end() && s.epoch < whole->second) return true;
        if (one != known->end() && ((uint64_t)s.epoch << 32 | s.clock) <= one->second) return true;
    }
    return false;
}

static void merge(std::map<uint64_t, uint64_t> &into, const std::map<uint64_t, uint64_t> &from)
{
    for (auto &k : from)
        if (into[k.first] < k.second) into[k.first] = k.second;
}

static void join(Block *b, Thread *const *t, size_t n, size_t first, size_t last)
{
    std::vector<uint32_t> most(last - first);
    std::map<uint64_t, uint64_t> known;
    for (size_t i = 0; i < n; i++) {
        for (size_t c = first; c < last; c++) most[c - first] = std::max(most[c - first], t[i]->clock[c]);
        merge(known, t[i]->known);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t c = first; c < last; c++) t[i]->clock[c] = most[c - first];
        t[i]->clock[t[i]->linear]++;
        t[i]->known = known;
    }
    (void)b;
}

static void new_block(Block *b)
{
    for (Thread &t : b->threads) {
        t.clock.assign(b->n, 0);
        t.clock[t.linear] = 1;
        t.fenced = false;
        t.known.clear();
    }
}

static void new_epoch(Block *b)
{
    b->epoch++;
    b->wide = false;
    for (Thread &t : b->threads) {
        merge(b->known, t.known);
        t.known.clear();
        t.clock.assign(b->n, 0);
        t.clock[t.linear] = 1;
    }
}

static void on_barrier(Block *b, Thread *const *t, size_t n, bool whole)
{
    if (whole) return new_epoch(b);
    b->wide = true;
    join(b, t, n, 0, b->n);
}

static void on_grid()
{
    Machine &m = machine();
    for (Block *b : m.live) new_epoch(b);
    for (Block *b : m.live)
        for (Block *other : m.live) b->known[key(other->linear, WHOLE)] = other->epoch;
}

static void on_collective(Block *b, unsigned warp, unsigned lanes)
{
    Thread *met[WARP];
    size_t n = 0, first = b->wide ? 0 : warp * WARP, last = b->wide ? b->n : std::min<size_t>(first + WARP, b->n);
    for (unsigned i = 0; i < WARP; i++)
        if (lanes >> i & 1) met[n++] = &b->threads[warp * WARP + i];
    join(b, met, n, first, last);
}

static void on_fence(Thread *t)
{
    t->fenced = true;
    t->fence_epoch = t->block->epoch;
    t->fence_clock = t->clock[t->linear]++;
}

// ---- one access
static void one_cell(Cell *c, const char *address, const Stamp &now, bool write, Thread *t)
{
    if (now.bytes & ~c->exists)
        report("out-of-bounds", line_of(now.pc, now.file), "%s of %s", kind_of(write, now.atomic),
               memory_describe(address).c_str());
    if ((!write || now.atomic) && now.bytes & ~c->written)
        report("uninitialised", line_of(now.pc, now.file), "%s of %s, which nobody has written",
               kind_of(write, now.atomic), memory_describe(address).c_str());
    if (c->write.bytes & now.bytes && !(c->write.atomic && now.atomic) && !before(c->write, t))
        race(c->write, true, now, write, address);
    if (!write) {
        Stamp *slot = &c->read[0];
        if (slot->bytes &&
            !(slot->launch == now.launch && slot->block == now.block && slot->thread == now.thread) &&
            !before(*slot, t))
            slot = &c->read[1];
        uint8_t bytes = slot->bytes;
        bool same = slot->launch == now.launch && slot->block == now.block && slot->thread == now.thread &&
                    slot->epoch == now.epoch;
        *slot = now;
        if (same) slot->bytes |= bytes;
        return;
    }
    for (Stamp &r : c->read)
        if (r.bytes & now.bytes && !before(r, t)) race(r, false, now, write, address);
    uint8_t others = c->write.bytes & (uint8_t)~now.bytes;
    bool same = c->write.launch == now.launch && c->write.block == now.block && c->write.thread == now.thread;
    c->write = now;
    if (same) c->write.bytes |= others;
    c->written |= now.bytes;
}

static void access(const void *address, size_t bytes, bool write, bool atomic, uintptr_t pc, const char *file)
{
    Thread *t = thread_now();
    const char *p = (const char *)address;
    if (!t) {
        if (checker.base && memory_is_device(p))
            report("host-access", line_of(pc, file), "the host follows a device pointer: %s",
                   memory_describe(p).c_str());
        return;
    }
    if ((size_t)(p - checker.base) >= checker.bytes) {
        if (fiber_owns(p) || (p >= &__executable_start && p < &end)) return;
        Dl_info info;
        if (dladdr(p, &info)) return; // constants of a library
        if (p == (const char *)&threadIdx) return;
        report("foreign-pointer", line_of(pc, file), "%s of %zu bytes of the host's memory, at %p",
               kind_of(write, atomic), bytes, address);
    }
    if (!memory_is_device(p) && (unsigned)((size_t)(p - checker.base) / SLOT) != t->block->slot)
        report("foreign-pointer", line_of(pc, file), "%s of another block's shared memory: %s",
               kind_of(write, atomic), memory_describe(p).c_str());
    Block *b = t->block;
    Stamp now = {b->launch->id, b->linear, b->epoch, t->clock[t->linear], pc, file, (uint16_t)t->linear, 0, atomic};
    for (const char *last = p + bytes; p < last;) {
        size_t at = (size_t)(p - checker.base), in = at % 4, n = std::min<size_t>(4 - in, (size_t)(last - p));
        now.bytes = (uint8_t)(((1u << n) - 1) << in);
        one_cell(&checker.cells[at / 4], p, now, write, t);
        p += n;
    }
}

static void on_access(const void *p, size_t bytes, bool write, Site site)
{
    access(p, bytes, write, false, (uintptr_t)site.line, site.file);
}

static void on_forget(const void *p, size_t bytes)
{
    size_t at = (size_t)((const char *)p - checker.base);
    for (size_t i = 0; i < bytes; i++) checker.cells[(at + i) / 4].written &= (uint8_t) ~(1u << (at + i) % 4);
}

static void on_atomic(Thread *t, const void *p, size_t bytes, Site site)
{
    access(p, bytes, true, true, (uintptr_t)site.line, site.file);
    Released &r = checker.released[p];
    if (r.launch != t->block->launch->id) r.launch = t->block->launch->id, r.known.clear();
    merge(t->known, r.known);
    if (!t->fenced) return;
    uint32_t block = t->block->linear;
    std::map<uint64_t, uint64_t> mine = {{key(block, WHOLE), t->fence_epoch},
                                         {key(block, t->linear), (uint64_t)t->fence_epoch << 32 | t->fence_clock}};
    merge(r.known, mine);
    merge(r.known, t->known);
    merge(r.known, t->block->known);
}

// ---- allocations
static void mark(const void *p, size_t bytes, int exists, int written)
{
    size_t at = (size_t)((const char *)p - checker.base);
    for (size_t i = 0; i < bytes;) {
        size_t in = (at + i) % 4, n = std::min<size_t>(4 - in, bytes - i);
        uint8_t mask = (uint8_t)(((1u << n) - 1) << in);
        Cell *c = &checker.cells[(at + i) / 4];
        if (exists >= 0) c->exists = (uint8_t)(exists ? c->exists | mask : c->exists & ~mask);
        c->written = (uint8_t)(written ? c->written | mask : c->written & ~mask);
        c->write.bytes &= (uint8_t)~mask;
        c->read[0].bytes &= (uint8_t)~mask;
        c->read[1].bytes &= (uint8_t)~mask;
        i += n;
    }
}

static void on_alloc(const void *p, size_t bytes, bool initialised)
{
    if (!checker.cells) {
        checker.base = memory_base();
        checker.bytes = memory_bytes();
        void *cells = mmap(nullptr, checker.bytes / 4 * sizeof(Cell), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (cells == MAP_FAILED)
            report("memory", {"checker", 0}, "no address space for the shadow (lower EMU_MEMORY)");
        checker.cells = (Cell *)cells;
    }
    mark(p, bytes, 1, initialised);
}

static void on_release(const void *p, size_t bytes)
{
    mark(p, bytes, 0, 0);
}

static void on_host_write(const void *p, size_t bytes)
{
    mark(p, bytes, -1, 1);
}

static void on_launch(Launch *)
{
    checker.released.clear();
}

void checker_attach(Machine *m)
{
    m->hooks = {on_alloc, on_release, on_host_write, on_access,     on_forget, on_launch,
                new_block, on_barrier, on_grid, on_collective, on_fence, on_atomic};
}

static void seen(const void *p, size_t bytes, bool write, bool aligned, const void *caller)
{
    if (!machine_now || !bytes) return; // before main
    uintptr_t pc = (uintptr_t)caller;
    if (aligned && (uintptr_t)p % bytes && thread_now() && memory_in_arena(p))
        report("misaligned", line_of(pc, nullptr), "%s of %zu bytes at %p, %s", kind_of(write, false), bytes, p,
               memory_describe(p).c_str());
    access(p, bytes, write, false, pc, nullptr);
}

} // namespace emu

// ---- what -fsanitize=thread calls
#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))
#define ACCESS(n)                                                                                        \
    void __tsan_read##n(const void *p) { emu::seen(p, n, false, true, CALLER); }                         \
    void __tsan_write##n(void *p) { emu::seen(p, n, true, true, CALLER); }                               \
    void __tsan_read##n##_pc(const void *p, const void *) { emu::seen(p, n, false, true, CALLER); }      \
    void __tsan_write##n##_pc(void *p, const void *) { emu::seen(p, n, true, true, CALLER); }            \
    void __tsan_volatile_read##n(const void *p) { emu::seen(p, n, false, true, CALLER); }                \
    void __tsan_volatile_write##n(void *p) { emu::seen(p, n, true, true, CALLER); }                      \
    void __tsan_unaligned_read##n(const void *p) { emu::seen(p, n, false, false, CALLER); }              \
    void __tsan_unaligned_write##n(void *p) { emu::seen(p, n, true, false, CALLER); }
extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_read_range(const void *p, unsigned long n) { emu::seen(p, n, false, false, CALLER); }
void __tsan_write_range(void *p, unsigned long n) { emu::seen(p, n, true, false, CALLER); }
// build.sh sends the kernels' calls of the C library here.
void *emu_memcpy(void *d, const void *s, unsigned long n)
{
    emu::seen(s, n, false, false, CALLER);
    emu::seen(d, n, true, false, CALLER);
    return memcpy(d, s, n);
}
void *emu_memmove(void *d, const void *s, unsigned long n)
{
    emu::seen(s, n, false, false, CALLER);
    emu::seen(d, n, true, false, CALLER);
    return memmove(d, s, n);
}
void *emu_memset(void *d, int v, unsigned long n)
{
    emu::seen(d, n, true, false, CALLER);
    return memset(d, v, n);
}
// The C++ library's own atomics, in host code: std::string and the guards of statics.
int __tsan_atomic32_fetch_add(volatile int *p, int v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
int __tsan_atomic32_load(const volatile int *p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
char __tsan_atomic8_load(const volatile char *p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
void *__tsan_memcpy(void *, const void *, unsigned long) __attribute__((alias("emu_memcpy")));
void *__tsan_memmove(void *, const void *, unsigned long) __attribute__((alias("emu_memmove")));
void *__tsan_memset(void *, int, unsigned long) __attribute__((alias("emu_memset")));
}
