// links: what a message costs inside a host and between hosts, measured by ping-pong.
#ifndef LINKS_H
#define LINKS_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum { LINKS_INSIDE, LINKS_BETWEEN, LINKS_KINDS } LinksKind; // a host; hosts

// A message of n bytes takes alpha + n / bandwidth seconds (doc/collectives.md).
typedef struct {
    double alpha, bandwidth; // seconds; bytes/s. Both 0: there are no two such ranks
} Link;

// Measures link[LINKS_KINDS] between two ranks that share a host and between two that do not, for host memory, while
// the other ranks wait. Every rank gets the result. Collective; without comm_set_slow, which knows no late partner.
void links_measure(Comm *world, Link *link);
// Prints one line for each kind that was measured, and writes DIR/links.json, which build/plan --links reads. For one
// rank. Dies when the file cannot be written.
void links_report(const Link *link, const char *dir);

#ifdef __cplusplus
}
#endif
#endif
