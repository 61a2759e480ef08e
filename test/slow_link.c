// slow_link: a slow network between the hosts of hosts.sh: a switch that delays, limits and loses packets.
//
//     slow_link DELAY RATE LOSS PORT...     seconds; bytes/s into each port, 0: no limit; 0 to 1; network devices
//
// A packet that comes in at port i leaves by the port that the last byte of its destination address names, counted from
// 1 (hosts.sh gives host k the address 02:00:00:00:00:0k), or, when the address stands for all, by every other port. It
// waits for those before it, takes n / RATE seconds for n bytes, and arrives DELAY seconds later. A queue of more than
// QUEUE bytes loses what comes, as a switch does.
//
// The devices are read and written as packet sockets, each packet with its virtio_net_hdr, which says whether the
// kernel still owes it a checksum. A device that is down loses its packets.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // ppoll
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MOST = 9, HEAD = sizeof(struct virtio_net_hdr), PACKET = HEAD + 65536 + 64, QUEUE = 4 << 20 };

typedef struct Packet {
    struct Packet *next;
    double due;
    size_t n;
    char data[]; // (n): virtio_net_hdr, then the frame
} Packet;

typedef struct {
    int socket;
    Packet *first, **last;
    size_t queued; // bytes
    double free_at; // when all that is queued has left
} Port;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "error: slow_link: %s: %s\n", what, why);
    exit(1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open_port(const char *name)
{
    int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), on = 1;
    unsigned device = if_nametoindex(name);
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)device};
    struct packet_mreq all = {.mr_ifindex = (int)device, .mr_type = PACKET_MR_PROMISC};
    if (fd < 0 || !device || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) || bind(fd, (void *)&at, sizeof at))
        fail(name, strerror(errno));
    return fd;
}

static void queue(Port *to, const char *data, size_t n, double delay, double rate)
{
    double now = seconds();
    if (to->queued + n > QUEUE) return;
    Packet *p = malloc(sizeof *p + n);
    if (!p) fail("a packet", "no memory");
    to->free_at = (to->free_at > now ? to->free_at : now) + (rate > 0 ? (double)(n - HEAD) / rate : 0);
    *p = (Packet){.due = to->free_at + delay, .n = n};
    memcpy(p->data, data, n);
    *to->last = p, to->last = &p->next;
    to->queued += n;
}

// Sends what is due; returns the seconds until something else is, at most a second.
static double send_due(Port *ports, int n)
{
    double now = seconds(), wait = 1;
    for (int i = 0; i < n; i++) {
        Port *port = &ports[i];
        for (Packet *p = port->first; p && p->due <= now; p = port->first) {
            send(port->socket, p->data, p->n, 0); // lost where the device is down
            port->first = p->next, port->queued -= p->n;
            if (!port->first) port->last = &port->first;
            free(p);
        }
        if (port->first && port->first->due - now < wait) wait = port->first->due - now;
    }
    return wait;
}

int main(int argc, char **argv)
{
    static Port ports[MOST];
    static char data[PACKET];
    struct pollfd ready[MOST];
    int n = argc - 4;
    if (n < 2 || n > MOST) fail("usage", "slow_link DELAY RATE LOSS PORT PORT...");
    double delay = atof(argv[1]), rate = atof(argv[2]), loss = atof(argv[3]);
    for (int i = 0; i < n; i++) {
        ports[i].socket = open_port(argv[4 + i]), ports[i].last = &ports[i].first;
        ready[i] = (struct pollfd){.fd = ports[i].socket, .events = POLLIN};
    }
    for (;;) {
        double wait = send_due(ports, n);
        struct timespec t = {.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)};
        if (ppoll(ready, (nfds_t)n, &t, NULL) <= 0) continue;
        for (int i = 0; i < n; i++) {
            ssize_t got = ready[i].revents ? recv(ready[i].fd, data, sizeof data, MSG_DONTWAIT) : 0;
            if (got <= HEAD + ETH_HLEN) continue; // or an error: the device went down
            unsigned char *to = (unsigned char *)data + HEAD;
            for (int k = 0; k < n; k++)
                if (k != i && (to[0] & 1 || to[5] == k + 1) && drand48() >= loss)
                    queue(&ports[k], data, (size_t)got, delay, rate);
        }
    }
}
