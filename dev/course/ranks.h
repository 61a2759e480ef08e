// ranks: N ranks as threads of the grader, each with a mailbox. For assignments in which ranks work together.
//
// A message is copied when it is sent, so link_send never waits, and its buffer may be used again at once. link_recv
// waits. Messages of one rank to another arrive in the order in which they were sent. When every rank waits, the test
// ends with a line that says who waits for whom; also when a message has another length than its receiver expects, or
// was never received.
//
// tests.c defines RANKS_BODY before it includes this, and has the code then.
#ifndef RANKS_H
#define RANKS_H
#include <stddef.h>

typedef struct Link Link; // the end of one rank

int link_rank(const Link *link);
int link_size(const Link *link); // how many ranks there are
void link_send(Link *link, int to, const void *data, size_t bytes);
void link_recv(Link *link, int from, void *data, size_t bytes);

// For the grader. What a rank has sent.
typedef struct {
    size_t bytes, messages;
} LinkCount;
// Runs body(link, arg) on n ranks at once, at most 64, until all have ended. count: (n), or NULL.
void ranks_run(int n, void (*body)(Link *link, void *arg), void *arg, LinkCount *count);
#endif

#ifdef RANKS_BODY
#undef RANKS_BODY
#include "grade.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Letter {
    size_t bytes;
    struct Letter *next;
    char data[];
} Letter;

enum { RANKS_MOST = 64, RANKS_RUNS = -1, RANKS_ENDED = -2 };

typedef struct {
    int n;
    pthread_mutex_t lock;
    pthread_cond_t news;
    Letter *box[RANKS_MOST][RANKS_MOST]; // [to][from]: the oldest first
    int waits_for[RANKS_MOST];           // a rank, RANKS_RUNS or RANKS_ENDED
    void (*body)(Link *link, void *arg);
    void *arg;
} Ranks;

struct Link {
    Ranks *ranks;
    int rank;
    LinkCount count;
};

static __thread const Link *ranks_mine; // of this thread

static Ranks *ranks_of(const Link *link)
{
    expect(link == ranks_mine, "a rank uses a Link that is not its own");
    return link->ranks;
}

int link_rank(const Link *link)
{
    ranks_of(link);
    return link->rank;
}

int link_size(const Link *link) { return ranks_of(link)->n; }

static void ranks_find_deadlock(const Ranks *r) // under the lock
{
    int waiting = 0;
    for (int i = 0; i < r->n; i++) {
        int from = r->waits_for[i];
        if (from == RANKS_RUNS || (from >= 0 && r->box[i][from])) return;
        waiting += from >= 0;
    }
    if (!waiting) return;
    char text[4096] = "";
    size_t used = 0;
    for (int i = 0; i < r->n && used < sizeof text - 128; i++) {
        int from = r->waits_for[i];
        if (from >= 0)
            used += (size_t)sprintf(text + used, "%srank %d waits for a message of rank %d%s", used ? ", " : "", i, from,
                                    r->waits_for[from] == RANKS_ENDED ? ", which has ended" : "");
    }
    fail("%s: %s", text, waiting == r->n ? "every rank waits" : "nobody else will send one");
}

void link_send(Link *link, int to, const void *data, size_t bytes)
{
    Ranks *r = ranks_of(link);
    pthread_mutex_lock(&r->lock);
    if (to < 0 || to >= r->n) fail("rank %d sends to rank %d; there are %d ranks", link->rank, to, r->n);
    if (bytes > (size_t)1 << 30) fail("rank %d sends a message of %zu bytes: a negative length?", link->rank, bytes);
    Letter *letter = malloc(sizeof *letter + bytes), **last = &r->box[to][link->rank];
    if (!letter) fail("the grader has no memory for a message of %zu bytes", bytes);
    letter->bytes = bytes, letter->next = NULL;
    if (bytes) memcpy(letter->data, data, bytes);
    while (*last) last = &(*last)->next;
    *last = letter;
    link->count.bytes += bytes, link->count.messages++;
    pthread_cond_broadcast(&r->news);
    pthread_mutex_unlock(&r->lock);
}

void link_recv(Link *link, int from, void *data, size_t bytes)
{
    Ranks *r = ranks_of(link);
    pthread_mutex_lock(&r->lock);
    if (from < 0 || from >= r->n) fail("rank %d waits for rank %d; there are %d ranks", link->rank, from, r->n);
    Letter **box = &r->box[link->rank][from], *letter;
    r->waits_for[link->rank] = from;
    ranks_find_deadlock(r);
    while (!*box) pthread_cond_wait(&r->news, &r->lock);
    r->waits_for[link->rank] = RANKS_RUNS;
    letter = *box, *box = letter->next;
    if (letter->bytes != bytes)
        fail("rank %d expects a message of %zu bytes of rank %d, and it has %zu bytes", link->rank, bytes, from,
             letter->bytes);
    if (bytes) memcpy(data, letter->data, bytes);
    free(letter);
    pthread_mutex_unlock(&r->lock);
}

static void *ranks_thread(void *arg)
{
    Link *link = arg;
    Ranks *r = link->ranks;
    ranks_mine = link;
    r->body(link, r->arg);
    pthread_mutex_lock(&r->lock);
    r->waits_for[link->rank] = RANKS_ENDED;
    ranks_find_deadlock(r);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

void ranks_run(int n, void (*body)(Link *link, void *arg), void *arg, LinkCount *count)
{
    static Ranks r;
    r = (Ranks){.n = n, .lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER, .body = body, .arg = arg};
    Link link[RANKS_MOST];
    pthread_t thread[RANKS_MOST];
    for (int i = 0; i < n; i++) r.waits_for[i] = RANKS_RUNS, link[i] = (Link){&r, i, {0, 0}};
    for (int i = 0; i < n; i++)
        if (pthread_create(&thread[i], NULL, ranks_thread, &link[i])) fail("the grader cannot start a thread");
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    for (int to = 0; to < n; to++)
        for (int from = 0; from < n; from++)
            if (r.box[to][from])
                fail("rank %d sent rank %d a message of %zu bytes that was never received", from, to, r.box[to][from]->bytes);
    for (int i = 0; i < n && count; i++) count[i] = link[i].count;
}
#endif
