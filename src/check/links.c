// links: ping-pong between two ranks. See links.h.
//
//     rank a   --- n bytes --->   rank b        a's clock runs from its send to the end of its receive: two messages,
//              <--- n bytes ---                 so one takes half of that
//
// A message of n bytes takes t(n) = alpha + n beta seconds. Two sizes give both:
//
//     alpha = median t(SMALL)                    1 / beta = (LARGE - SMALL) / (min t(LARGE) - min t(SMALL))
//
// alpha is what a waiting rank usually sees, so it is a median. For the bandwidth minima are taken: what else the
// machine does can only make a message slower. t(LARGE) also has the messages by which the library arranges a
// long transfer, so the bandwidth is that of LARGE bytes, not the cable's.
//
// A slow link must not hold up the start of a run: after BUDGET seconds no new round begins, but two are always played.
// Rank a decides; the first byte of each message says whether another one follows.
//
// Rejected: one-way times (two hosts' clocks differ by more than alpha); a line fitted to many sizes (protocols change
// with the size, and t is not straight there).
#include "src/check/links.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 8, LARGE = 4 << 20, ROUNDS = 50, FEW = 5 };
static const double BUDGET = 0.15; // seconds

static void pass(Comm *comm, void *buf, size_t n_bytes, int peer, bool sends)
{
    CommRequest q = sends ? comm_send(comm, buf, n_bytes, COMM_BYTE, peer, 0)
                          : comm_recv(comm, buf, n_bytes, COMM_BYTE, peer, 0);
    comm_wait(comm, &q);
}

// Plays at most `rounds` between ranks a and b. Rank a gets the seconds of one message, n of them in ascending order;
// the first round, which touches the memory and connects the two, is left out.
static int play(Comm *comm, int a, int b, char *buf, size_t n_bytes, int rounds, double *time)
{
    double end = clock_seconds() + BUDGET;
    int n = 0;
    for (bool more = true, first = true; more; first = false) {
        if (comm->rank == b) {
            pass(comm, buf, n_bytes, a, false);
            more = buf[0];
            pass(comm, buf, n_bytes, a, true);
            continue;
        }
        double begin = clock_seconds();
        buf[0] = more = first || (n + 1 < rounds && begin < end);
        pass(comm, buf, n_bytes, b, true);
        pass(comm, buf, n_bytes, b, false);
        double seconds = (clock_seconds() - begin) / 2;
        if (first) continue;
        int at = n++;
        for (; at > 0 && time[at - 1] > seconds; at--) time[at] = time[at - 1];
        time[at] = seconds;
    }
    return n;
}

static Link measure(Comm *comm, int a, int b)
{
    double small[ROUNDS], large[FEW];
    Link link = {0};
    if (comm->rank == a || comm->rank == b) {
        char *buf = calloc(LARGE, 1);
        if (!buf) die("comm.measure: no memory for a message of %d bytes", LARGE);
        int n = play(comm, a, b, buf, SMALL, ROUNDS, small);
        play(comm, a, b, buf, LARGE, FEW, large);
        if (comm->rank == a) {
            double more = large[0] - small[0];
            link = (Link){.alpha = small[n / 2], .bandwidth = (LARGE - SMALL) / (more > 0 ? more : large[0])};
        }
        free(buf);
    }
    CommRequest q = comm_broadcast(comm, &link, sizeof link, COMM_BYTE, a); // the others wait here
    comm_wait(comm, &q);
    return link;
}

void links_measure(Comm *world, Link *link)
{
    int N = world->size, host[N];
    comm_hosts(world, host);
    for (int kind = 0; kind < LINKS_KINDS; kind++) {
        link[kind] = (Link){0};
        for (int pair = 0; pair < N * N && !link[kind].alpha; pair++) // the first two such ranks
            if (pair / N < pair % N && (host[pair / N] == host[pair % N]) == (kind == LINKS_INSIDE))
                link[kind] = measure(world, pair / N, pair % N);
    }
}

void links_report(const Link *link, const char *dir)
{
    static const char *const where[] = {"inside a host", "between hosts"}, *const key[] = {"inside", "between"};
    char text[400] = "{", path[700];
    size_t n = 1;
    for (int kind = 0; kind < LINKS_KINDS; kind++) {
        const Link *l = &link[kind];
        if (!l->alpha) continue;
        printf("link %s: %.1f us a message, %.3g GB/s\n", where[kind], 1e6 * l->alpha, l->bandwidth / 1e9);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\n \"%s\": {\"alpha\": %.4g, \"bandwidth\": %.4g}",
                              n > 1 ? "," : "", key[kind], l->alpha, l->bandwidth);
    }
    if (n == 1) printf("comm.measure: one rank has no link to measure (try mpiexec -n 2)\n");
    n += (size_t)snprintf(text + n, sizeof text - n, "\n}\n");
    snprintf(path, sizeof path, "%s/links.json", dir);
    if (!disk_replace_file(path, text, n)) die("comm.measure: %s: %s", path, strerror(errno));
}
