// ranks: the board where each process shows the others what it waits for, and the processes themselves.
//
// Deadlock is decided, not guessed from the time that passed. Before a rank waits it announces its call: it counts
// it, on the board, and raises one number, the epoch. While it waits it notes the ranks that lack their
// announcement (`missing`), and the epoch at which it looked (`stuck`). Then
//
//     S = the ranks with stuck == epoch
//     again and again: take out of S who misses nobody in S and nobody that has ended
//
// What is left waits for ever: each of them lacks the call of another one in S, which looked at the same epoch, so
// it has announced nothing since and cannot before somebody in S does. If the epoch is still the same, that is a
// report.
// The board is memory that the processes of one machine share (MPI_Win_allocate_shared): one machine, 64
// processes.
// Rejected: a time limit alone (too short on a busy machine, too long for a reader; EMU_TIMEOUT sets one
// besides); MPI's blocking calls (they spin, four ranks on two cores take turns at it, and they never report).
#include "ranks.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <sched.h>
#include <unistd.h>

namespace emu {
namespace ranks {

const char *const KINDS[] = {"ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter",
                             "ncclSend", "ncclRecv", "ncclCommSplit", "ncclCommInitRank"};
const TypeName TYPES[ncclNumTypes] = {
    {"ncclInt8", 1}, {"ncclUint8", 1}, {"ncclInt32", 4}, {"ncclUint32", 4}, {"ncclInt64", 8}, {"ncclUint64", 8},
    {"ncclFloat16", 2}, {"ncclFloat32", 4}, {"ncclFloat64", 8}, {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1},
    {"ncclFloat8e5m2", 1}};

namespace {
enum : int { RANKS = 64, COMMS = 64 };
const char *const OPS[ncclNumOps] = {"ncclSum", "ncclProd", "ncclMax", "ncclMin", "ncclAvg"};
struct Board { // what one rank shows to the others
    std::atomic<uint64_t> stuck;   // the epoch at which it found that it must wait; 0: it does not wait
    std::atomic<uint64_t> missing; // for these ranks
    std::atomic<bool> any;         // for one of them, not for all
    std::atomic<bool> ended;
    Call call;                     // what it waits in
    std::atomic<uint64_t> join, join_rank, join_n; // ncclCommInitRank
    std::atomic<unsigned> entered[COMMS], sent[COMMS][RANKS], received[COMMS][RANKS];
    std::atomic<uint64_t> epoch, told; // of the first rank's board alone
};
struct World {
    MPI_Comm mpi;
    MPI_Win window;
    Board *boards;
    int rank, size, next_comm;
    Board &own() { return boards[rank]; }
};
World world;
uint64_t bit(int rank) { return (uint64_t)1 << rank; }
} // namespace

int processes() { return world.size; }
bool running() { return world.boards; }

std::string describe(const Call &c)
{
    std::string s = format("%s(", KINDS[c.kind]);
    if (c.kind == JOIN) s += format("rank %d of %zu", c.root, c.count);
    else if (c.kind != SPLIT) s += format("count %zu, %s", c.count, TYPES[c.type].name);
    if (c.op >= 0) s += format(", %s", OPS[c.op]);
    if (c.kind == REDUCE || c.kind == BROADCAST) s += format(", root %d", c.root);
    if (c.kind == SEND || c.kind == RECV) s += format(", peer %d", c.root);
    s += c.kind == JOIN ? ")" : format("%scommunicator %d)", c.kind == SPLIT ? "" : ", ", c.comm);
    return s + format(" at %s:%d", c.file, c.line);
}

Call make_call(int kind, size_t count, int type, int op, int root, int comm, Site site)
{
    Call c;
    memset(&c, 0, sizeof c); // it is compared and sent as bytes
    c.kind = kind, c.count = count, c.type = type, c.op = op, c.root = root, c.comm = comm, c.line = site.line;
    size_t n = strlen(site.file);
    snprintf(c.file, sizeof c.file, "%s", site.file + (n < sizeof c.file ? 0 : n - sizeof c.file + 1));
    return c;
}

// ---- the others end with the process that reports: abort() makes the launcher kill them. Only one speaks.
static void last_words()
{
    if (!world.boards[0].told.exchange(1)) return;
    sleep(5);
    _exit(134);
}

[[noreturn]] void mismatch(const ncclComm *c, int a, const Call &x, int b, const Call &y)
{
    last_words();
    report("nccl-mismatch", {x.file, x.line},
           "two ranks of communicator %d make different calls\n    rank %d: %s\n    rank %d: %s", c->id, a,
           describe(x).c_str(), b, describe(y).c_str());
}

// ---- deadlock
// The ranks that have not announced what this call needs.
static uint64_t missing(const Item &i)
{
    uint64_t set = 0;
    const Board *boards = world.boards;
    int c = i.call.comm;
    if (i.call.kind == JOIN) {
        for (int r = 0; r < world.size; r++) set |= boards[r].join != world.own().join ? bit(r) : 0;
        return world.size - __builtin_popcountll(set) < (int)i.call.count ? set : 0;
    }
    if (i.call.kind == SEND || i.call.kind == RECV) {
        int peer = i.comm->world[(size_t)i.call.root];
        const auto &theirs = i.call.kind == SEND ? boards[peer].received : boards[peer].sent;
        return theirs[c][world.rank] < i.number ? bit(peer) : 0;
    }
    for (int r : i.comm->world) set |= boards[r].entered[c] < i.number ? bit(r) : 0;
    return set;
}

[[noreturn]] static void report_waiting(const char *kind, uint64_t set, Site site)
{
    last_words();
    std::string table;
    for (int r = 0; r < world.size; r++) {
        const Board &b = world.boards[r];
        if (b.ended) table += format("\n    rank %d has ended", r);
        else if (set & bit(r)) table += format("\n    rank %d waits in %s", r, describe(b.call).c_str());
        else table += format("\n    rank %d waits in no NCCL call", r);
    }
    report(kind, site, "NCCL calls wait for ranks that do not come%s", table.c_str());
}

static void look_for_deadlock(const std::vector<Item> &items)
{
    Board &own = world.own();
    uint64_t epoch = world.boards[0].epoch, mine = 0;
    const Item *first = nullptr;
    for (const Item &i : items) {
        uint64_t m = missing(i);
        if (m && !first) first = &i;
        mine |= m;
    }
    if (!mine) {
        own.stuck = 0;
        return;
    }
    if (own.stuck != epoch) {
        own.stuck = 0;
        own.call = first->call;
        own.missing = mine;
        own.any = first->call.kind == JOIN;
        own.stuck = epoch;
    }
    uint64_t set = 0, ended = 0;
    for (int r = 0; r < world.size; r++)
        if (world.boards[r].ended) ended |= bit(r);
        else if (world.boards[r].stuck == epoch) set |= bit(r);
    for (bool changed = true; changed;) {
        changed = false;
        for (int r = 0; r < world.size; r++) {
            const Board &b = world.boards[r];
            uint64_t hopeless = b.missing & (set | ended);
            if (!(set & bit(r)) || (b.any ? hopeless == b.missing : hopeless != 0)) continue;
            set &= ~bit(r);
            changed = true;
        }
    }
    if ((set & bit(world.rank)) && world.boards[0].epoch == epoch)
        report_waiting("deadlock", set, {first->call.file, first->call.line});
}

// Until `done`; sleeps instead of spinning, since ranks share the cores.
static void wait_until(const std::vector<Item> &items, std::function<bool()> done)
{
    unsigned limit = machine().set.timeout;
    double begin = MPI_Wtime();
    for (int turn = 0; !done(); turn++) {
        look_for_deadlock(items);
        if (limit && MPI_Wtime() - begin > limit) {
            uint64_t set = 0;
            for (int r = 0; r < world.size; r++) set |= world.boards[r].stuck ? bit(r) : 0;
            report_waiting("timeout", set, {items[0].call.file, items[0].call.line});
        }
        if (turn < 50) sched_yield();
        else usleep(200);
    }
    world.own().stuck = 0;
}

void wait_all(const std::vector<Item> &items, std::vector<MPI_Request> &requests)
{
    wait_until(items, [&] {
        int flag = 0;
        MPI_Testall((int)requests.size(), requests.data(), &flag, MPI_STATUSES_IGNORE);
        return flag != 0;
    });
    requests.clear();
}

void announce(std::vector<Item> &items)
{
    Board &own = world.own();
    for (Item &i : items) {
        ncclComm *c = i.comm;
        int id = i.call.comm, peer = i.call.root;
        if (i.call.kind == SEND) own.sent[id][c->world[(size_t)peer]] = i.number = ++c->sent[(size_t)peer];
        else if (i.call.kind == RECV) own.received[id][c->world[(size_t)peer]] = i.number = ++c->received[(size_t)peer];
        else own.entered[id] = i.number = ++c->collectives;
    }
    world.boards[0].epoch++;
}

// ---- processes
static int at_finalize(MPI_Comm, int, void *, void *) // called by MPI_Finalize, before anything else
{
    world.own().ended = true;
    MPI_Win_free(&world.window);
    MPI_Comm_free(&world.mpi);
    world.boards = nullptr;
    return MPI_SUCCESS;
}

static void finalize_at_exit()
{
    int done = 0;
    MPI_Finalized(&done);
    if (!done) MPI_Finalize();
}

void start(Site site)
{
    if (world.boards) return;
    int done = 0, given = 0;
    MPI_Finalized(&done);
    if (done) report("nccl", site, "MPI has been finalized");
    MPI_Initialized(&done);
    if (!done) {
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &given);
        atexit(finalize_at_exit);
    }
    MPI_Request request;
    int flag = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &world.mpi);
    MPI_Comm_rank(world.mpi, &world.rank);
    MPI_Comm_size(world.mpi, &world.size);
    MPI_Comm here;
    int neighbours;
    MPI_Comm_split_type(world.mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &neighbours);
    MPI_Comm_free(&here);
    if (neighbours != world.size || world.size > RANKS)
        report("nccl", site, "%d processes, %d of them on this machine: one machine and at most %d here", world.size,
               neighbours, RANKS);
    void *own, *first;
    MPI_Aint size;
    int unit;
    MPI_Win_allocate_shared((MPI_Aint)sizeof(Board), 1, MPI_INFO_NULL, world.mpi, &own, &world.window);
    MPI_Win_shared_query(world.window, 0, &size, &unit, &first);
    world.boards = (Board *)first;
    memset(own, 0, sizeof(Board));
    new (own) Board{};
    if (world.rank == 0) world.boards[0].epoch = 1;
    MPI_Ibarrier(world.mpi, &request);
    while (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag) usleep(200);
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, nullptr);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

// A communicator of the emulation for one of MPI; collective over `parent`, which all get the same number from.
ncclComm *new_comm(MPI_Comm mpi, MPI_Comm parent, Site site)
{
    int id = world.next_comm;
    MPI_Allreduce(MPI_IN_PLACE, &id, 1, MPI_INT, MPI_MAX, parent);
    world.next_comm = id + 1;
    if (id >= COMMS) report("nccl", site, "more than %d communicators", COMMS);
    if (mpi == MPI_COMM_NULL) return nullptr;
    ncclComm *c = new ncclComm{};
    c->id = id;
    c->mpi = mpi;
    c->blocking = true;
    MPI_Comm_rank(mpi, &c->rank);
    MPI_Comm_size(mpi, &c->size);
    c->world.resize((size_t)c->size);
    c->sent.resize((size_t)c->size);
    c->received.resize((size_t)c->size);
    MPI_Allgather(&world.rank, 1, MPI_INT, c->world.data(), 1, MPI_INT, mpi);
    return c;
}

ncclComm *join(uint64_t key, int rank, int of, Site site)
{
    Board &own = world.own();
    own.join_rank = (uint64_t)rank;
    own.join_n = (uint64_t)of;
    own.join = key;
    world.boards[0].epoch++;
    std::vector<Item> items(1);
    items[0].call = make_call(JOIN, (size_t)of, 0, -1, rank, 0, site);
    wait_until(items, [&] { return !missing(items[0]); });
    std::vector<int> ranks((size_t)of, -1);
    for (int r = 0; r < world.size; r++) {
        const Board &b = world.boards[r];
        if (b.join != key) continue;
        int at = (int)b.join_rank, n = (int)b.join_n;
        if (n == of && ranks[(size_t)at] < 0) {
            ranks[(size_t)at] = r;
            continue;
        }
        last_words();
        report("nccl-mismatch", site,
               "processes %d and %d of mpiexec join one communicator as rank %d of %d and as rank %d of %d", world.rank,
               r, rank, of, at, n);
    }
    MPI_Group all, chosen;
    MPI_Comm mpi;
    MPI_Comm_group(world.mpi, &all);
    MPI_Group_incl(all, of, ranks.data(), &chosen);
    MPI_Comm_create_group(world.mpi, chosen, 0, &mpi);
    MPI_Group_free(&all);
    MPI_Group_free(&chosen);
    ncclComm *comm = new_comm(mpi, mpi, site); // its exchange is also the barrier after which the board may change
    own.join = 0;
    return comm;
}

} // namespace ranks
} // namespace emu
