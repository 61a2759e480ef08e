// exchange: what the ranks of a preparation tell each other: sums, lists, whose work is whose, and records that go to
// the rank that sorts them.
//
// world is the group of all ranks; NULL is one process alone, which exchanges nothing. All functions but those said to
// be local are collective: every rank calls them, in the same order.
#ifndef EXCHANGE_H
#define EXCHANGE_H
#include "comm/comm.h"
#include "data/prep/extsort.h"

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

int exchange_rank(const Comm *world); // local; 0 alone
int exchange_size(const Comm *world); // local; 1 alone

// Returns when every rank has come here.
void exchange_wait(Comm *world);
// number (n) becomes the sum, or the largest, over ranks.
void exchange_sum(Comm *world, uint64_t *number, size_t n);
void exchange_max(Comm *world, uint64_t *number, size_t n);
// Rank `from`'s buf (n_bytes) on every rank.
void exchange_share(Comm *world, int from, void *buf, size_t n_bytes);
// Rank 0's 0-terminated text (NULL: it has none) on every rank, to free(). Takes `text`; other ranks give NULL.
char *exchange_text(Comm *world, char *text);
// The ranks' elements (n of n_bytes each), one rank after another, on every rank, to free(). *n_all: how many.
void *exchange_gather(Comm *world, const void *mine, size_t n, size_t n_bytes, size_t *n_all);

// A message of n_bytes to or from one other rank, which calls the other of the two; nobody else takes part.
void exchange_send(Comm *world, int to, const void *buf, size_t n_bytes);
void exchange_receive(Comm *world, int from, void *buf, size_t n_bytes);

// The owner of each of n units of work, to free(): the largest unit first, each to the rank that has the least so far.
// Only rank 0's weights count.
int *exchange_deal(Comm *world, const uint64_t *weight, size_t n);
// Local: whether document i is this rank's, where documents are dealt in stripes.
bool exchange_owns(const Comm *world, size_t i);

// Local: n zeroed elements of so many bytes, never NULL. Dies when there is no memory.
void *exchange_room(size_t n, size_t size);

// ---- records of 64-bit words, each to the rank that owns it
typedef struct Exchange Exchange;

// Records that come here go into `to`, whose records have n_words. memory_bytes bounds the buffers (a record for each
// rank at least); alone there are none.
Exchange *exchange_open(Comm *world, Extsort *to, size_t n_words, size_t memory_bytes);
// To rank `owner`. Not collective in itself: it waits for other ranks to add or to close when its buffer is full.
void exchange_add(Exchange *x, int owner, const uint64_t *record);
// Returns when all records of all ranks are where they belong.
void exchange_close(Exchange *x);

#ifdef __cplusplus
}
#endif
#endif
