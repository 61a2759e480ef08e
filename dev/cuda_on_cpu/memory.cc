// memory: one reserved range of addresses: shared memory of the live blocks, then device memory.
//
//     | slot 0 | slot 1 | ...      | device allocations, one after the other ...            |
//     slot:   zone dynamic zone array zone array zone ...
//     device: zone allocation zone allocation zone ...
//
// The invariant: what nobody wrote is NaN bits (0xff), what was freed is 0xfe, and between any two arrays lies a red
// zone of 0xfd that is looked at when a block ends, after each launch and at every free. A wrong index thus
// gives a NaN or a report, never a plausible number. AddressSanitizer is told of the zones and stops at the access;
// the checker sees each access by itself.
// A shared array gets no more alignment than its type asks for, so that a float array read as float4 does not work
// by luck. Freed device memory is taken again only when all other room is used up.
// Rejected: a page without access around every array (shared arrays are too many and too small); `malloc` (no zones
// of ours, and "is this device memory?" needs a range).
#include "machine.h"

#include <algorithm>
#include <sys/mman.h>

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

namespace emu {

namespace {
enum : unsigned char { FRESH = 0xff, FREED = 0xfe, ZONE = 0xfd };
struct Allocation {
    size_t bytes;
    unsigned number;
    bool live;
};
struct Memory {
    char *base, *device, *next, *end;
    size_t used;
    unsigned count;
    std::map<char *, Allocation> allocations;
    std::map<char *, size_t> pinned;
    bool open;
};
} // namespace

static Memory &memory()
{
    static Memory *m; // never destroyed: other destructors may still free device memory
    if (m) return *m;
    m = new Memory{};
    const char *text = getenv("EMU_MEMORY");
    size_t mib = text ? strtoul(text, nullptr, 10) : 4096, shared = (size_t)SLOTS * SLOT;
    if (mib == 0 || mib > 1u << 20) report("settings", {"EMU_MEMORY", 0}, "EMU_MEMORY=%s: 1 to 1048576 MiB", text);
    size_t all = shared + (mib << 20);
    void *p = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) report("memory", {"memory", 0}, "no %zu bytes of address space (EMU_MEMORY, in MiB)", all);
    m->base = (char *)p;
    m->device = m->base + shared;
    m->end = m->base + all;
    m->next = m->device + DEVICE_ZONE;
    m->open = true;
    return *m;
}

char *memory_base()
{
    return memory().base;
}

size_t memory_bytes()
{
    return (size_t)(memory().end - memory().base);
}

static void fill_zone(char *p, size_t n)
{
    UNPOISON(p, n);
    memset(p, ZONE, n);
    POISON(p, n);
}

static __attribute__((no_sanitize("address"))) size_t zone_broken(const char *p, size_t n) // offset + 1, or 0
{
    const volatile char *bytes = p;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)bytes[i] != ZONE) return i + 1;
    return 0;
}

// ---- shared memory of a block
static char *slot_of(const Block *b)
{
    return memory().base + (size_t)b->slot * SLOT;
}

static SharedArray *add_shared(Block *b, const void *tag, size_t bytes, size_t align, const char *name)
{
    char *slot = slot_of(b);
    size_t at = (b->shared_used + SHARED_ZONE + 2 * align - 1) / align * align;
    if (align < 16 && at % 16 == 0) at += align; // no alignment by luck
    char *from = slot + b->shared_used;
    fill_zone(from, at - b->shared_used);
    UNPOISON(slot + at, bytes);
    memset(slot + at, FRESH, bytes);
    fill_zone(slot + at + bytes, SHARED_ZONE);
    if (machine().hooks.alloc) machine().hooks.alloc(slot + at, bytes, false);
    b->shared_used = at + bytes;
    b->shared_bytes += bytes;
    b->shared.push_back({tag, name, slot + at, bytes});
    return &b->shared.back();
}

void memory_block_begin(Block *b)
{
    b->shared_used = b->shared_bytes = 0;
    b->shared.clear();
    size_t dynamic = b->launch->dynamic;
    if (dynamic) add_shared(b, nullptr, dynamic, 16, "dynamic shared memory");
}

static void check_zone(const char *p, size_t n, Site site)
{
    size_t broken = zone_broken(p, n);
    if (broken) report("red-zone", site, "something wrote %s", memory_describe(p + broken - 1).c_str());
}

void memory_block_end(Block *b)
{
    const char *at = slot_of(b);
    for (SharedArray &s : b->shared) {
        check_zone(at, (size_t)(s.at - at), b->launch->site);
        at = s.at + s.bytes;
    }
    if (!b->shared.empty()) check_zone(at, SHARED_ZONE, b->launch->site);
    for (SharedArray &s : b->shared)
        if (machine().hooks.release) machine().hooks.release(s.at, s.bytes);
}

void *shared(const void *tag, size_t bytes, size_t align, const char *name, Site site)
{
    Thread *t = thread_now();
    if (!t) report("host", site, "shared memory %s outside a kernel", name);
    Block *b = t->block;
    for (SharedArray &s : b->shared)
        if (s.tag == tag) return s.at;
    size_t fixed = b->shared_bytes - b->launch->dynamic + bytes;
    if (!b->launch->opted && b->launch->dynamic && b->shared_bytes + bytes > SHARED_STATIC)
        report("shared-size", site,
               "%s brings shared memory to %zu bytes fixed and %zu dynamic: above %u in all "
               "cudaFuncAttributeMaxDynamicSharedMemorySize must be set",
               name, fixed, b->launch->dynamic, SHARED_STATIC);
    if (fixed > SHARED_STATIC || b->shared_bytes + bytes > SHARED_MAX)
        report("shared-size", site,
               "%s brings shared memory to %zu bytes fixed and %zu dynamic (at most %u fixed, %u in all)", name,
               fixed, b->launch->dynamic, SHARED_STATIC, SHARED_MAX);
    return add_shared(b, tag, bytes, align, name)->at;
}

void *dynamic_shared(Site site)
{
    Thread *t = thread_now();
    if (!t) report("host", site, "dynamic shared memory outside a kernel");
    // Without any the pointer may be taken, but not followed: it points into the red zone.
    return t->block->launch->dynamic ? t->block->shared[0].at : slot_of(t->block) + 16;
}

// ---- device memory
bool memory_in_arena(const void *p)
{
    return (const char *)p >= memory().base && (const char *)p < memory().end;
}

bool memory_is_device(const void *p)
{
    return (const char *)p >= memory().device && (const char *)p < memory().end;
}

bool memory_is_pinned(const void *p)
{
    auto &pinned = memory().pinned;
    auto next = pinned.upper_bound((char *)p);
    if (next == pinned.begin()) return false;
    --next;
    return (char *)p < next->first + next->second;
}

void memory_open(bool open)
{
    Memory &m = memory();
    if (!machine().set.guard || open == m.open) return;
    m.open = open;
    size_t used = ((size_t)(m.next - m.device) + 4095) & ~(size_t)4095;
    if (mprotect(m.device, used, open ? PROT_READ | PROT_WRITE : PROT_NONE))
        report("memory", {"memory", 0}, "mprotect of %zu bytes failed", used);
}

static std::map<char *, Allocation>::iterator find(const void *p)
{
    auto &all = memory().allocations;
    auto next = all.upper_bound((char *)p);
    return next == all.begin() ? all.end() : --next;
}

void memory_need(const void *p, size_t bytes, const char *who, Site site)
{
    Memory &m = memory();
    Thread *t = thread_now();
    const char *at = (const char *)p;
    bool good = false;
    if (memory_is_device(p)) {
        auto a = find(p);
        good = a != m.allocations.end() && a->second.live && at + bytes <= a->first + a->second.bytes;
    } else if (t && memory_in_arena(p)) {
        for (SharedArray &s : t->block->shared) good |= at >= s.at && at + bytes <= s.at + s.bytes;
    } else {
        report("foreign-pointer", site, "%s: %p is neither device nor shared memory", who, p);
    }
    if (!good) report("out-of-bounds", site, "%s: %zu bytes at %s", who, bytes, memory_describe(p).c_str());
}

static std::string place(const char *p, const char *array, size_t bytes, const char *name)
{
    if (p < array) return format("%td bytes before the %zu bytes of %s", array - p, bytes, name);
    if (p < array + bytes) return format("byte %td of the %zu of %s", p - array, bytes, name);
    return format("%td bytes behind the %zu bytes of %s", p - array - (ptrdiff_t)bytes, bytes, name);
}

std::string memory_describe(const void *address)
{
    Memory &m = memory();
    const char *p = (const char *)address;
    if (memory_is_device(p)) {
        auto a = find(p);
        if (a == m.allocations.end() && m.allocations.empty())
            return "device memory where nothing was ever allocated";
        if (a == m.allocations.end()) a = m.allocations.begin();
        auto next = std::next(a); // the nearer of the two neighbours
        if (next != m.allocations.end() && p >= a->first + a->second.bytes &&
            next->first - p < p - a->first - (ptrdiff_t)a->second.bytes)
            a = next;
        return place(p, a->first, a->second.bytes,
                     format("%sdevice allocation %u", a->second.live ? "" : "freed ", a->second.number).c_str());
    }
    if (memory_in_arena(p)) {
        unsigned slot = (unsigned)((size_t)(p - m.base) / SLOT);
        for (Block *b : machine().live) {
            if (b->slot != slot || b->shared.empty()) continue;
            SharedArray *best = &b->shared[0];
            for (SharedArray &s : b->shared)
                if (s.at <= p && p < s.at + s.bytes + SHARED_ZONE / 2) best = &s;
                else if (p < s.at && p >= s.at - SHARED_ZONE / 2) best = &s;
            return place(p, best->at, best->bytes, best->name);
        }
        return "shared memory that no live block has";
    }
    if (fiber_owns(p)) return "a thread's stack";
    return format("host address %p", address);
}

void memory_check_zones()
{
    Memory &m = memory();
    Site site = {"device memory", 0};
    if (machine().launch) site = machine().launch->site;
    for (auto &a : m.allocations)
        if (a.second.live) {
            check_zone(a.first - DEVICE_ZONE, DEVICE_ZONE, site);
            size_t tail = (256 - a.second.bytes % 256) % 256;
            check_zone(a.first + a.second.bytes, tail + DEVICE_ZONE, site);
        }
}

} // namespace emu

using namespace emu;

cudaError_t emu_malloc(void **p, size_t bytes)
{
    Memory &m = memory();
    *p = nullptr;
    if (bytes == 0) return cudaSuccess;
    memory_open(true);
    size_t room = (bytes + 255) / 256 * 256;
    char *at = nullptr;
    if (room > (size_t)(m.end - m.next) || room + DEVICE_ZONE > (size_t)(m.end - m.next)) {
        for (auto &a : m.allocations)
            if (!a.second.live && (a.second.bytes + 255) / 256 * 256 >= room) {
                at = a.first;
                break;
            }
        if (!at) return cudaErrorMemoryAllocation;
    } else {
        at = m.next;
        m.next += room + DEVICE_ZONE;
    }
    m.allocations[at] = {bytes, m.count++, true};
    m.used += bytes;
    fill_zone(at - DEVICE_ZONE, DEVICE_ZONE);
    UNPOISON(at, bytes);
    memset(at, FRESH, bytes);
    fill_zone(at + bytes, room - bytes + DEVICE_ZONE);
    if (machine().hooks.alloc) machine().hooks.alloc(at, bytes, false);
    *p = at;
    memory_open(false);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p, const char *file, int line)
{
    if (!p) return cudaSuccess;
    cudaDeviceSynchronize(file, line); // as CUDA's does
    Memory &m = memory();
    memory_open(true);
    auto a = m.allocations.find((char *)p);
    if (a == m.allocations.end())
        report("bad-free", {file, line}, "%p is not the start of an allocation: %s", p, memory_describe(p).c_str());
    if (!a->second.live)
        report("bad-free", {file, line}, "device allocation %u of %zu bytes is freed twice", a->second.number,
               a->second.bytes);
    memory_check_zones();
    a->second.live = false;
    m.used -= a->second.bytes;
    if (machine().hooks.release) machine().hooks.release(p, a->second.bytes);
    memset(p, FREED, a->second.bytes);
    POISON(p, a->second.bytes);
    memory_open(false);
    return cudaSuccess;
}

cudaError_t emu_malloc_host(void **p, size_t bytes)
{
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + 4096);
    if (!*p) return cudaErrorMemoryAllocation;
    memset(*p, FRESH, bytes);
    memory().pinned[(char *)*p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p, const char *file, int line)
{
    if (!p) return cudaSuccess;
    cudaDeviceSynchronize(file, line);
    if (!memory().pinned.erase((char *)p)) report("bad-free", {file, line}, "%p did not come from cudaMallocHost", p);
    free(p);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p)
{
    attributes->type = memory_is_device(p)   ? cudaMemoryTypeDevice
                       : memory_is_pinned(p) ? cudaMemoryTypeHost
                                             : cudaMemoryTypeUnregistered;
    attributes->device = 0;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = (size_t)(memory().end - memory().device);
    *free_bytes = *total_bytes - memory().used;
    return cudaSuccess;
}
