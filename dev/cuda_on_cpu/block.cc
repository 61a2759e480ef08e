// block: runs the blocks and threads of a launch, their barriers and warp collectives.
//
// A thread is a plain call until it waits. The loop in fiber_main calls thread after thread on one stack; the
// first one that waits keeps that stack, and the loop goes on on another. A kernel that never waits is thus a
// loop of calls with no switch at all, and one that waits costs one switch a wait, in whatever control flow it
// stands.
//
// The invariant: exactly one CUDA thread runs at a time, and it changes only in wait() and when a thread returns.
// So device code needs no locks, and statics, gdb and deterministic replay all work.
//
// Who runs next (next_thread): in order, threads that have not started come first, in their order, then those that
// became ready first; reversed, the same from the other end; random, any of them by the seed.
//
// A collective is keyed by its mask: the last of the lanes that the mask names does the work for all, each lane's
// arguments lying on its own waiting stack. Lanes that have returned leave the masks and barriers that name them.
// Rejected: running warps in lock step (hides missing __syncwarp, and Volta's threads may diverge), loop
// fission at barriers by the compiler (needs one), a thread pool over blocks (slower on prototypes than one
// thread, and then statics, atomics and replay break; run tests side by side instead).
#include "machine.h"

#include <algorithm>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

Thread *thread_now()
{
    return machine_now ? machine_now->current : nullptr;
}

unsigned lane()
{
    return machine().current->linear % WARP;
}

static void make_current(Thread *t)
{
    machine().current = t;
    t->state = State::running;
    threadIdx = t->idx;
    blockIdx = t->block->idx;
}

static bool differ(const char *a, const char *b)
{
    return a != b && strcmp(a, b);
}

static void make_ready(Thread *t)
{
    t->state = State::ready;
    machine().ready.push_back(t);
}

// ---- blocks come and go
static void begin_block(Launch *l, unsigned slot)
{
    Machine &m = machine();
    Block *b = m.spare.empty() ? new Block{} : m.spare.back();
    if (!m.spare.empty()) m.spare.pop_back();
    unsigned i = l->order[l->next++];
    b->launch = l;
    b->linear = i;
    b->idx = {i % l->grid.x, i / l->grid.x % l->grid.y, i / l->grid.x / l->grid.y};
    b->slot = slot;
    b->n = l->block.x * l->block.y * l->block.z;
    b->done = b->started = b->epoch = 0;
    b->wide = false;
    b->known.clear();
    b->threads.resize(b->n);
    b->order.resize(b->n);
    for (unsigned t = 0; t < b->n; t++) {
        Thread &thread = b->threads[t];
        thread.idx = {t % l->block.x, t / l->block.x % l->block.y, t / l->block.x / l->block.y};
        thread.linear = t;
        thread.block = b;
        thread.fiber = nullptr;
        thread.state = State::fresh;
        thread.group = 0;
        thread.site = l->site;
        thread.copies.clear();
        b->order[t] = m.set.order == Order::reverse ? b->n - 1 - t : t;
    }
    if (m.set.order == Order::random) shuffle(b->order);
    b->warps.resize((b->n + WARP - 1) / WARP);
    for (size_t w = 0; w < b->warps.size(); w++) {
        unsigned lanes = std::min(b->n - (unsigned)w * WARP, (unsigned)WARP);
        b->warps[w].gone = lanes == WARP ? 0 : ~0u << lanes;
        b->warps[w].groups.clear();
    }
    for (Barrier &barrier : b->barrier) barrier.arrived = 0, barrier.waiting.clear();
    m.fresh += b->n;
    m.live.push_back(b);
    memory_block_begin(b);
    if (m.hooks.block) m.hooks.block(b);
}

static void end_block(Block *b)
{
    Machine &m = machine();
    memory_block_end(b);
    m.live.erase(std::find(m.live.begin(), m.live.end(), b));
    m.spare.push_back(b);
    Launch *l = b->launch;
    l->finished++;
    if (l->next < l->n) begin_block(l, b->slot);
}

// ---- who runs next; null: nobody can
static Thread *take_fresh(unsigned which)
{
    Machine &m = machine();
    for (Block *b : m.live) {
        unsigned left = b->n - b->started;
        if (which < left) {
            m.fresh--;
            return &b->threads[b->order[b->started++]];
        }
        which -= left;
    }
    return nullptr;
}

static Thread *take_ready(size_t which)
{
    Machine &m = machine();
    Thread *t;
    if (m.set.order == Order::inorder) {
        t = m.ready[m.ready_first++];
        if (m.ready_first == m.ready.size()) m.ready.clear(), m.ready_first = 0;
    } else {
        t = m.ready[which];
        m.ready[which] = m.ready.back();
        m.ready.pop_back();
    }
    return t;
}

static Thread *next_thread()
{
    Machine &m = machine();
    size_t ready = m.ready.size() - m.ready_first;
    if (m.set.order == Order::random && m.fresh + ready > 0) {
        unsigned which = random_below((unsigned)(m.fresh + ready));
        return which < m.fresh ? take_fresh(which) : take_ready(which - m.fresh);
    }
    if (m.fresh) return take_fresh(0);
    return ready ? take_ready(ready - 1) : nullptr;
}

// ---- deadlock: say who waits where
std::string who_waits(Site *one)
{
    std::string table;
    std::map<std::string, std::pair<unsigned, std::string>> places;
    for (Block *b : machine().live)
        for (Thread &t : b->threads) {
            if (t.state != State::waiting) continue;
            *one = t.site;
            std::string place = format("%s:%d: %s", t.site.file, t.site.line, t.why);
            if (t.mask) place += format(", mask %08x", t.mask);
            auto &entry = places[place];
            if (entry.first++ == 0) entry.second = where(&t);
        }
    for (auto &p : places)
        table += format("\n    %s: %u thread%s wait%s, the first is %s", p.first.c_str(), p.second.first,
                        p.second.first == 1 ? "" : "s", p.second.first == 1 ? "s" : "", p.second.second.c_str());
    return table;
}

static void deadlock()
{
    Machine &m = machine();
    Site site = {"?", 0};
    std::string table = who_waits(&site);
    m.current = nullptr;
    report("deadlock", site, "nobody can go on in kernel %s%s", m.launch->name, table.c_str());
}

// Gives up the processor until somebody makes this thread ready.
static void wait(const char *why, unsigned mask, Site site)
{
    Machine &m = machine();
    Thread *t = m.current;
    t->why = why;
    t->mask = mask;
    t->site = site;
    m.waits++;
    if (m.set.timeout) watch_look();
    Thread *next = next_thread();
    if (!next) {
        t->state = State::waiting;
        deadlock();
    }
    if (next == t) return make_current(t);
    Fiber *to = next->fiber ? next->fiber : fiber_get();
    make_current(next);
    fiber_switch(t->fiber, to);
}

void thread_yield()
{
    Machine &m = machine();
    if (m.set.order != Order::random || !m.current) return;
    Thread *t = m.current;
    make_ready(t);
    wait("yield", 0, t->site);
}

// ---- barriers
static void release_barrier(Block *b, Barrier *barrier, bool whole, Thread *last)
{
    Machine &m = machine();
    std::vector<Thread *> all;
    all.swap(barrier->waiting);
    if (m.hooks.barrier) {
        std::vector<Thread *> with = all;
        if (last) with.push_back(last);
        m.hooks.barrier(b, with.data(), with.size(), whole);
    }
    barrier->arrived = 0;
    for (Thread *t : all) {
        t->result = barrier->count;
        make_ready(t);
    }
    all.clear();
    barrier->waiting.swap(all); // keeps the memory
}

int barrier(int id, int threads, int predicate, const char *op, Site site)
{
    Machine &m = machine();
    Thread *t = m.current;
    if (!t) report("host", site, "%s is called by the host", op);
    Block *b = t->block;
    if (id < 0 || id >= (int)BARRIERS) report("barrier-count", site, "named barrier %d (there are 16)", id);
    if (threads % (int)WARP != 0 || threads < 0 || (unsigned)threads > (b->n + WARP - 1) / WARP * WARP)
        report("barrier-count", site, "named barrier %d for %d threads (a multiple of 32, at most the block's %u)",
               id, threads, b->n);
    Barrier *barrier = &b->barrier[id];
    if (barrier->arrived == 0) {
        barrier->expected = (unsigned)threads;
        barrier->count = 0;
        barrier->op = op;
        barrier->site = site;
    } else if (barrier->expected != (unsigned)threads) {
        report("barrier-count", site, "named barrier %d for %d threads, but %s:%d waits there with %u", id, threads,
               barrier->site.file, barrier->site.line, barrier->expected);
    } else if (m.set.strict >= 1 && id == 0 &&
               (barrier->site.line != site.line || differ(barrier->site.file, site.file))) {
        report("divergent-barrier", site, "%s meets threads that wait in %s at %s:%d: the block has parted", op,
               barrier->op, barrier->site.file, barrier->site.line);
    }
    barrier->arrived++;
    barrier->count += predicate;
    unsigned want = threads ? std::min((unsigned)threads, b->n) : b->n - b->done;
    if (m.set.strict >= 2 && !threads && b->done)
        report("divergent-barrier", site, "%s, but %u threads of the block have returned", op, b->done);
    if (barrier->arrived == want) {
        release_barrier(b, barrier, threads == 0, t);
        return barrier->count;
    }
    barrier->waiting.push_back(t);
    t->state = State::waiting;
    wait(op, 0, site);
    return t->result;
}

static void release_grid(Launch *l)
{
    std::vector<Thread *> all;
    all.swap(l->grid_waiting);
    if (machine().hooks.grid) machine().hooks.grid();
    for (Thread *t : all) make_ready(t);
}

void grid_barrier(Site site)
{
    Machine &m = machine();
    Thread *t = m.current;
    if (!t || !t->block->launch->cooperative)
        report("grid-sync", site, "grid barrier in a kernel that LAUNCH_COOP did not launch");
    Launch *l = t->block->launch;
    l->grid_waiting.push_back(t);
    size_t left = 0;
    for (Block *b : m.live) left += b->n - b->done;
    t->state = State::waiting;
    if (l->grid_waiting.size() == left) release_grid(l);
    wait("grid barrier", 0, site);
}

// ---- warp collectives
static void finish_group(Block *b, unsigned warp, size_t g, Thread *last)
{
    Group group = b->warps[warp].groups[g];
    b->warps[warp].groups.erase(b->warps[warp].groups.begin() + (long)g);
    Lanes lanes = {group.arrived, {}, group.op, group.site};
    memcpy(lanes.arg, group.arg, sizeof lanes.arg);
    if (machine().hooks.collective) machine().hooks.collective(b, warp, group.arrived);
    group.finish(&lanes);
    for (unsigned i = 0; i < WARP; i++) {
        Thread *t = group.arrived >> i & 1 ? &b->threads[warp * WARP + i] : nullptr;
        if (t && t != last) make_ready(t);
    }
}

void collective(unsigned mask, const char *op, void *arg, void (*finish)(Lanes *), Site site)
{
    Machine &m = machine();
    Thread *t = m.current;
    if (!t) report("host", site, "%s is called by the host", op);
    Block *b = t->block;
    unsigned w = t->linear / WARP, bit = 1u << t->linear % WARP;
    Warp &warp = b->warps[w];
    if (!(mask & bit))
        report("wrong-mask", site, "%s with mask %08x, which does not name its own lane %u", op, mask, lane());
    if (m.set.strict >= 2 && mask & warp.gone)
        report("wrong-mask", site, "%s with mask %08x, of which lanes %08x have returned or never were", op, mask,
               mask & warp.gone);
    size_t g = 0;
    while (g < warp.groups.size() && warp.groups[g].mask != mask) g++;
    if (g == warp.groups.size()) warp.groups.push_back({mask, 0, op, site, {}, finish});
    Group &group = warp.groups[g];
    if (differ(group.op, op) || group.site.line != site.line || differ(group.site.file, site.file))
        report("mixed-collectives", site, "%s with mask %08x, but lanes %08x of it wait in %s at %s:%d", op, mask,
               group.arrived, group.op, group.site.file, group.site.line);
    group.arg[lane()] = arg;
    group.arrived |= bit;
    if (group.arrived == (mask & ~warp.gone)) return finish_group(b, w, g, t);
    t->state = State::waiting;
    wait(op, mask, site);
}

// ---- the life of a thread
static void return_thread(Thread *t)
{
    Machine &m = machine();
    Block *b = t->block;
    t->state = State::done;
    if (!t->copies.empty())
        report("unwaited-copy", t->copies[0].site,
               "%zu asynchronous copies have not landed when the thread returns (cp_async_wait)", t->copies.size());
    b->done++;
    unsigned w = t->linear / WARP;
    Warp &warp = b->warps[w];
    warp.gone |= 1u << t->linear % WARP;
    for (size_t g = 0; g < warp.groups.size();)
        if (warp.groups[g].arrived == (warp.groups[g].mask & ~warp.gone)) finish_group(b, w, g, nullptr), g = 0;
        else g++;
    Barrier *whole = &b->barrier[0];
    if (whole->arrived && m.set.strict >= 2)
        report("divergent-barrier", whole->site, "a thread returns while %u others wait in %s", whole->arrived,
               whole->op);
    if (whole->arrived && !whole->expected && whole->arrived == b->n - b->done)
        release_barrier(b, whole, true, nullptr);
    if (b->launch->cooperative && !b->launch->grid_waiting.empty()) {
        size_t left = 0;
        for (Block *other : m.live) left += other->n - other->done;
        if (b->launch->grid_waiting.size() == left) release_grid(b->launch);
    }
    if (b->done == b->n) end_block(b);
}

// Calls the kernel on a copy of its arguments: a thread may change its parameters.
static __attribute__((noinline)) void call_kernel(Launch *l)
{
    alignas(16) char args[4096];
    memcpy(args, l->args.data(), l->args.size());
    l->invoke(l->kernel, args);
}

void fiber_main()
{
    Machine &m = machine();
    Fiber *self = fiber_here();
    for (;;) {
        m.current->fiber = self;
        call_kernel(m.current->block->launch);
        return_thread(m.current);
        Thread *next = next_thread();
        if (next && !next->fiber) {
            make_current(next);
            continue;
        }
        if (!next && !m.live.empty()) deadlock();
        fiber_put(self);
        if (next) {
            make_current(next);
            fiber_switch(self, next->fiber);
        } else {
            m.current = nullptr;
            fiber_switch(self, &m.host);
        }
    }
}

void run_launch(Launch *l)
{
    Machine &m = machine();
    l->id = ++m.launches;
    l->n = l->grid.x * l->grid.y * l->grid.z;
    l->next = l->finished = 0;
    l->order.resize(l->n);
    for (unsigned i = 0; i < l->n; i++) l->order[i] = m.set.order == Order::reverse ? l->n - 1 - i : i;
    if (m.set.order == Order::random) shuffle(l->order);
    m.launch = l;
    blockDim = l->block;
    gridDim = l->grid;
    unsigned long waits = m.waits, switches = m.switches;
    if (m.hooks.launch) m.hooks.launch(l);
    unsigned resident = l->cooperative ? l->n : std::min({l->n, m.set.resident, (unsigned)SLOTS});
    for (unsigned slot = 0; slot < resident; slot++) begin_block(l, slot);
    watch(true);
    make_current(next_thread());
    fiber_switch(&m.host, fiber_get());
    watch(false);
    memory_check_zones();
    m.launch = nullptr;
    if (m.set.prof) {
        Prof &p = m.prof[l->name];
        p.launches++;
        p.threads += (unsigned long)l->n * l->block.x * l->block.y * l->block.z;
        p.waits += m.waits - waits;
        p.switches += m.switches - switches;
    }
}

} // namespace emu

void emu::atomic_begin(const void *p, size_t bytes, Site site)
{
    Thread *t = thread_now();
    if (!t) report("host", site, "an atomic operation by the host");
    if (machine().set.timeout) t->site = site, watch_look();
    if ((uintptr_t)p % bytes) report("misaligned", site, "an atomic operation on %zu bytes at %p", bytes, p);
    if (machine().set.order == Order::random && random_below(8) == 0) thread_yield();
    if (machine().hooks.atomic) machine().hooks.atomic(t, p, bytes, site);
}

void emu::fence()
{
    if (machine().hooks.fence && thread_now()) machine().hooks.fence(thread_now());
}
