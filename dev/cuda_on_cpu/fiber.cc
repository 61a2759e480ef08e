// fiber: stacks, and the switch from one to another.
//
// A switch saves the registers that a call must preserve on the old stack, exchanges stack pointers, and
// restores from the new one: a dozen instructions. The floating-point control word is the same everywhere and is not
// saved.
// Stacks come from one reserved range of addresses, so that "is this a stack?" is one comparison, with a page without
// access below each. Tops are staggered by a few cache lines: page-aligned stacks would all compete for the
// same cache sets.
// Rejected: ucontext (a system call per switch for the signal mask: seven times slower), a thread of the operating
// system per CUDA thread (a thousand times slower, and gdb would show a thousand of them).
#include "machine.h"

#include <sys/mman.h>
#include <unistd.h>

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void emu_fiber_exchange(void **save, void *load);
extern "C" void emu_fiber_begin();
extern "C" __attribute__((used)) void emu_fiber_entry();

#if defined(__x86_64__)
__asm__(R"(
    .text
    .globl emu_fiber_exchange
    .type emu_fiber_exchange, @function
emu_fiber_exchange:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_fiber_exchange, .-emu_fiber_exchange
    .globl emu_fiber_begin
    .type emu_fiber_begin, @function
emu_fiber_begin:
    .cfi_startproc
    .cfi_undefined %rip
    call emu_fiber_entry
    ud2
    .cfi_endproc
    .size emu_fiber_begin, .-emu_fiber_begin
)");
enum { SAVED = 7, RETURN = 6 }; // words on a new stack; the slot of the return address
#elif defined(__aarch64__)
__asm__(R"(
    .text
    .globl emu_fiber_exchange
    .type emu_fiber_exchange, %function
emu_fiber_exchange:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size emu_fiber_exchange, .-emu_fiber_exchange
    .globl emu_fiber_begin
    .type emu_fiber_begin, %function
emu_fiber_begin:
    .cfi_startproc
    .cfi_undefined x30
    bl emu_fiber_entry
    brk #0
    .cfi_endproc
    .size emu_fiber_begin, .-emu_fiber_begin
)");
enum { SAVED = 20, RETURN = 11 };
#else
#error "cuda_on_cpu: write emu_fiber_exchange for this processor (x86-64 and aarch64 are there)"
#endif

namespace emu {

namespace {
struct Stacks {
    char *base;
    size_t each, count;
    std::vector<Fiber *> free;
};
Stacks &stacks = *new Stacks(); // never destroyed: fibers outlive main
Fiber *arriving, *leaving; // across a switch
} // namespace

static void reserve()
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    stacks.each = (machine().set.stack + page - 1) / page * page + page;
    size_t all = stacks.each * MAX_THREADS * (SM_COUNT * SM_THREADS / MAX_THREADS + 1);
    void *p = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) report("memory", {"fiber", 0}, "no room for %zu bytes of stacks (lower EMU_STACK)", all);
    madvise(p, all, MADV_NOHUGEPAGE); // huge pages would make thousands of small stacks large and slow
    stacks.base = (char *)p;
}

static Fiber *create()
{
    if (!stacks.base) reserve();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (stacks.count == (size_t)MAX_THREADS * (SM_COUNT * SM_THREADS / MAX_THREADS + 1))
        report("memory", {"fiber", 0}, "more than %zu threads wait", stacks.count);
    char *low = stacks.base + stacks.each * stacks.count;
    if (mprotect(low, page, PROT_NONE)) report("memory", {"fiber", 0}, "mprotect of a stack failed");
    Fiber *f = new Fiber{};
    f->low = low + page;
    f->size = stacks.each - page;
    size_t stagger = stacks.count++ % 16 * 128;
    uintptr_t top = ((uintptr_t)low + stacks.each - stagger) & ~(uintptr_t)15;
    void **sp = (void **)top - SAVED - 2;
    while (((uintptr_t)(sp + SAVED) & 15) != 0) sp--; // emu_fiber_begin calls: an aligned stack, as the ABI wants
    for (int i = 0; i < SAVED; i++) sp[i] = nullptr;
    sp[RETURN] = (void *)emu_fiber_begin;
    f->sp = sp;
    return f;
}

Fiber *fiber_get()
{
    if (stacks.free.empty()) return create();
    Fiber *f = stacks.free.back();
    stacks.free.pop_back();
    return f;
}

void fiber_put(Fiber *f)
{
    stacks.free.push_back(f);
}

static void arrived(Fiber *self)
{
    (void)self;
#ifdef WITH_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(self->fake, &bottom, &size);
    if (!leaving->low) { // the host's own stack, seen for the first time
        leaving->low = (char *)bottom;
        leaving->size = size;
    }
#endif
}

void fiber_switch(Fiber *from, Fiber *to)
{
    machine().switches++;
    arriving = to;
    leaving = from;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->low, to->size);
#endif
    emu_fiber_exchange(&from->sp, to->sp);
    arrived(from);
}

Fiber *fiber_here()
{
    return arriving;
}

bool fiber_owns(const void *p)
{
    return (const char *)p >= stacks.base && (const char *)p < stacks.base + stacks.each * stacks.count;
}

bool fiber_overflowed(const void *p)
{
    return fiber_owns(p) && (size_t)((const char *)p - stacks.base) % stacks.each < (size_t)sysconf(_SC_PAGESIZE);
}

static void entry()
{
    arrived(arriving);
    fiber_main();
}

} // namespace emu

void emu_fiber_entry()
{
    emu::entry();
}
