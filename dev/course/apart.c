// apart: calls between two processes: that of the tests, which judges, and that of the answer, which computes. Compiled
// twice: with -DANSWER for the latter.
//
// The answer's process never has what marks it: no test, no expected value, no way to the judge. It gets the arguments
// of a call, and copies of the objects (arrays, structs, texts) that can be reached from them by pointers. Where an object
// begins and ends, AddressSanitizer knows; a word that points into one is sent as (object, offset). Both processes keep
// a copy of what the other one has last seen of an object, and send the words that differ. The process of the tests
// takes changes only of objects that it has lent, in a call that has not returned, by a pointer to what is not const.
//
// A call may call back, as link_send does, so a message is a call or the return of the last one. Threads call at the
// same time, each through a socket of its own; numbers keep their messages in one order.
#include "grade.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

const char *__asan_locate_address(void *at, char *name, size_t name_size, void **region, size_t *size);
int __asan_address_is_poisoned(void const volatile *at);
void *__asan_region_is_poisoned(void *at, size_t size);

#ifdef ANSWER
enum { ME = 1 };
#else
enum { ME = 0 };
#endif
enum { CHANNELS = 66, FIRST = 10, HIGH = 180, BLOCK = -1, MOST = 1 << 16 }; // BLOCK: in place of an object's number
typedef enum { OBJECT, BYTES, POINTER, FUNCTION, GONE } Kind;
typedef struct {
    int64_t kind, owner, object, offset, size, to_owner, to;
} Part; // of a message; BYTES: `size` of them follow. POINTER: to byte `size` of object `to`. FUNCTION: number `to`
typedef struct {
    uint64_t size, number;
    int64_t call; // -1: the return
} Head;
typedef struct Object {
    char *at, *seen; // seen: as the other process has it
    size_t size;
    int owner, number, lent, mark; // lent: to how many calls that may write it
    bool hidden;
    struct Object *chain; // of equal hash
} Object;
static Object *objects[2][MOST], *hash[4096];
static int n_objects[2], mark;
static Object *reached[MOST]; // by this message
static int n_reached;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static uint64_t n_sent, n_taken;
// What this thread is running for the other process: a call from there tells it what has changed until then.
static __thread char *outer;
static __thread int outer_call;
#ifndef ANSWER
static pid_t answer;

int grade_answer(void)
{
    return answer;
}
#endif

// The other process has ended, or does not keep to the form of a message.
static _Noreturn void ended(void)
{
#ifndef ANSWER
    int status;
    if (waitpid(answer, &status, 0) != answer) pause(); // another thread says it
    grade_ended(status);
#endif
    fflush(NULL);
    _exit(0);
}

// ---- objects

static struct { char *at; size_t size; } secret[256];
static int n_secret;
#ifndef ANSWER
void grade_hide(const void *at, size_t size)
{
    for (int i = 0; i < n_secret; i++)
        if (secret[i].at == at) return;
    if (n_secret == 256) fail("the grader hides too much");
    secret[n_secret].at = (char *)at, secret[n_secret++].size = size;
}
#endif

static Object *object_new(int owner, int number, char *at, size_t size)
{
    Object *o = calloc(1, sizeof *o), **bucket;
    if (!o || number != n_objects[owner] || number >= MOST) ended();
    *o = (Object){.at = at ? at : calloc(size ? size : 1, 1), .seen = calloc(size + 8, 1), .size = size};
    o->owner = owner, o->number = number;
    if (!o->at || !o->seen) ended();
    bucket = &hash[(uintptr_t)o->at / 16 % 4096];
    o->chain = *bucket, *bucket = o;
    for (int i = 0; i < n_secret; i++)
        if (o->at < secret[i].at + secret[i].size && secret[i].at < o->at + size) o->hidden = true;
    return objects[owner][n_objects[owner]++] = o;
}

static void object_gone(Object *o)
{
    Object **at = &hash[(uintptr_t)o->at / 16 % 4096];
    while (*at != o) at = &(*at)->chain;
    *at = o->chain;
    objects[o->owner][o->number] = NULL;
    if (o->owner != ME) free(o->at);
    free(o->seen), free(o);
}

// ---- writing a message, under the lock

typedef struct {
    char *data;
    size_t n, room;
} Message;

static void put(Message *m, const void *data, size_t n)
{
    if (m->n + n > m->room && !(m->data = realloc(m->data, m->room = 2 * (m->n + n)))) ended();
    memcpy(m->data + m->n, data, n), m->n += n;
}

// The object into which this word points, or NULL; new ones are announced.
static Object *reach(Message *m, uintptr_t word)
{
    static void *small, *large;
    char name[8], *at = (char *)word;
    void *start = NULL;
    size_t size = 0;
    if (!small) small = malloc(8), large = malloc(1 << 24);
    // Most numbers are far from all addresses, and need not be looked up, which is slow.
    const uintptr_t some[] = {(uintptr_t)small, (uintptr_t)large, (uintptr_t)name, (uintptr_t)apart_call_table};
    int i = 0;
    while (i < 4 && (word > some[i] ? word - some[i] : some[i] - word) >> 42) i++;
    if (i == 4 || word > (some[2] | (((uintptr_t)1 << 42) - 1))) return NULL; // above all stacks
    __asan_locate_address(at - (__asan_address_is_poisoned(at) != 0), name, sizeof name, &start, &size); // or at an end
    if (!start || !size || at < (char *)start || at > (char *)start + size) return NULL;
    if (__asan_region_is_poisoned(start, size)) return NULL;
    Object *o = hash[(uintptr_t)start / 16 % 4096];
    while (o && (o->at != start || o->size != size)) o = o->chain;
    if (!o) {
        o = object_new(ME, n_objects[ME], start, size);
        put(m, &(Part){.kind = OBJECT, .owner = ME, .object = o->number, .size = (int64_t)size}, sizeof(Part));
    }
    if (o->mark != mark && n_reached < MOST) o->mark = mark, reached[n_reached++] = o;
    return o;
}

// What differs from `seen` (NULL: all) in n bytes. Follows the pointers in them: of a block, those in `follow`.
static void put_changes(Message *m, Part to, const char *at, char *seen, size_t n, uint64_t follow, bool write)
{
    size_t from = 0, end = 0; // of changed bytes not yet put
    for (size_t i = 0; i <= n; i += 8) {
        uintptr_t word = 0, old = 0;
        size_t k = n - i < 8 ? n - i : 8;
        memcpy(&word, at + i, k);
        if (seen) memcpy(&old, seen + i, k);
        bool follows = k == 8 && (seen || (i < 512 && follow >> i / 8 & 1));
        Object *o = follows ? reach(m, word) : NULL;
        if (!write) continue;
        int call = 0;
        while (follows && call < apart_calls && (!word || (uintptr_t)apart_call_table[call].function != word)) call++;
        bool differs = k && (!seen || word != old), link = o || (follows && call < apart_calls);
        if (end > from && (!differs || link)) {
            to.kind = BYTES, to.offset = (int64_t)from, to.size = (int64_t)(end - from);
            put(m, &to, sizeof to), put(m, (seen ? seen : at) + from, end - from), from = end;
        }
        if (!differs) continue;
        if (seen) memcpy(seen + i, &word, k);
        if (link) {
            to.kind = o ? POINTER : FUNCTION, to.offset = (int64_t)i, to.size = o ? (char *)word - o->at : 0;
            to.to_owner = o ? o->owner : 0, to.to = o ? o->number : call, put(m, &to, sizeof to);
        } else from = end > from ? from : i, end = i + k;
    }
    if (end > from) {
        to.kind = BYTES, to.offset = (int64_t)from, to.size = (int64_t)(end - from);
        put(m, &to, sizeof to), put(m, (seen ? seen : at) + from, end - from);
    }
}

static void write_all(int to, const char *data, size_t n)
{
    for (ssize_t k; n; data += k, n -= (size_t)k)
        if ((k = send(to, data, n, MSG_NOSIGNAL)) <= 0) ended();
}

// A call, or what it returns. Of objects that only const leads to, a return says nothing.
static Object **send_message(int channel, int call, bool back, char *block, int *n_lent)
{
    const ApartCall *c = &apart_call_table[call];
    Message m = {0};
    pthread_mutex_lock(&lock);
    mark++, n_reached = 0;
    put(&m, &(Head){0, ++n_sent, back ? -1 : call}, sizeof(Head));
    for (int i = 0; i < n_objects[ME]; i++) {
        Object *o = objects[ME][i];
        if (!o || o->lent || !__asan_region_is_poisoned(o->at, o->size)) continue;
        put(&m, &(Part){.kind = GONE, .owner = ME, .object = i}, sizeof(Part)), object_gone(o);
    }
    Part to = {.object = BLOCK};
    int done = 0, lent = 0;
    for (int constant = 0; constant < 2 - back; constant++) {
        uint64_t follow = constant ? c->constants : c->pointers & ~c->constants;
        put_changes(&m, to, block, NULL, c->block, follow, false);
        const ApartCall *o = outer && !back && !constant ? &apart_call_table[outer_call] : NULL;
        if (o) put_changes(&m, to, outer, NULL, o->block, o->pointers & ~o->constants, false);
        for (; done < n_reached; done++) {
            Object *o = reached[done];
            Part p = {.owner = o->owner, .object = o->number};
            if (!o->hidden) put_changes(&m, p, o->at, o->seen, o->size, 0, true);
        }
        if (!constant) lent = done;
    }
    put_changes(&m, to, block, NULL, c->block, c->pointers, true);
    Object **list = NULL;
    if (n_lent) {
        list = malloc((size_t)(lent + 1) * sizeof *list);
        for (int i = *n_lent = 0; i < lent; i++)
            if (reached[i]->owner == ME && !reached[i]->hidden) reached[i]->lent++, list[(*n_lent)++] = reached[i];
    }
    ((Head *)(void *)m.data)->size = m.n - sizeof(Head);
    pthread_mutex_unlock(&lock);
    write_all(channel, m.data, m.n);
    free(m.data);
    return list;
}

// ---- reading one

static void read_all(int from, char *data, size_t n)
{
    for (ssize_t k; n; data += k, n -= (size_t)k)
        if ((k = read(from, data, n)) <= 0) ended();
}

static void take_part(const Part *p, const char *bytes, char *block, size_t block_size, uint64_t *linked)
{
    size_t n = p->kind == BYTES ? (size_t)p->size : sizeof(void *), size = block_size;
    char *at = block, *seen = NULL;
    if (p->object != BLOCK) {
        if (p->owner < 0 || p->owner > 1 || p->object < 0 || p->object >= MOST || p->size < 0) ended();
        if (p->kind == OBJECT && p->owner != ME) object_new((int)p->owner, (int)p->object, NULL, (size_t)p->size);
        Object *o = objects[p->owner][p->object];
        if (!o) ended();
        if (p->kind == GONE && p->owner != ME) object_gone(o);
        if (p->kind == OBJECT || p->kind == GONE) return;
#ifndef ANSWER
        if (o->owner == ME && !o->lent) fail("what the header calls const was written, or an array of another call");
#endif
        at = o->at, seen = o->seen, size = o->size;
    }
    if (p->offset < 0 || (size_t)p->offset > size || n > size - (size_t)p->offset) ended();
    void *pointer = NULL;
    if (p->kind == POINTER) {
        if (p->to_owner < 0 || p->to_owner > 1 || p->to < 0 || p->to >= MOST) ended();
        Object *to = objects[p->to_owner][p->to];
        if (!to || p->size < 0 || (size_t)p->size > to->size) ended();
        pointer = to->at + p->size;
    } else if (p->kind == FUNCTION) {
        if (p->to < 0 || p->to >= apart_calls) ended();
        pointer = apart_call_table[p->to].function;
    }
    if (p->kind != BYTES) bytes = (char *)&pointer;
    if (p->object == BLOCK && p->kind != BYTES && p->offset < 512) *linked |= (uint64_t)1 << p->offset / 8;
    memcpy(at + p->offset, bytes, n);
    if (seen) memcpy(seen + p->offset, bytes, n);
}

// Reads a message. A call: sets *block to a new one, and returns its number. A return: fills in *block; -1.
static int take_message(int channel, char **block, size_t size)
{
    Head h;
    read_all(channel, (char *)&h, sizeof h);
    if (h.call < -1 || h.call >= apart_calls || (h.call < 0 ? !*block : !apart_call_table[h.call].run)) ended();
    if (h.size > (size_t)1 << 32) ended();
    char *data = malloc(h.size + 1);
    if (!data) ended();
    read_all(channel, data, h.size);
    const ApartCall *c = h.call < 0 ? NULL : &apart_call_table[h.call];
    if (c) *block = calloc(size = c->block, 1);
    uint64_t linked = 0;
    pthread_mutex_lock(&lock);
    while (n_taken + 1 != h.number) pthread_cond_wait(&news, &lock);
    for (size_t i = 0; i + sizeof(Part) <= h.size;) {
        Part p;
        memcpy(&p, data + i, sizeof p), i += sizeof p;
        size_t n = p.kind == BYTES ? (size_t)p.size : 0;
        if (n > h.size - i) ended();
        take_part(&p, data + i, *block, size, &linked);
        i += n;
    }
#ifndef ANSWER
    for (size_t w = 0; c && w < 64 && 8 * w + 8 <= size; w++) // no pointer comes as a number
        if (c->pointers & ~linked & (uint64_t)1 << w) memset(*block + 8 * w, 0, 8);
#endif
    n_taken++;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
    free(data);
    return (int)h.call;
}

// Runs what the other process calls until it returns (block is filled in), or for ever.
static void serve(int channel, char *block, size_t size)
{
    for (;;) {
        char *at = block;
        int call = take_message(channel, &at, size);
        if (call < 0) return;
        char *before = outer;
        int before_call = outer_call;
        outer = at, outer_call = call;
        apart_call_table[call].run(at);
        outer = before, outer_call = before_call;
        fflush(stdout);
        send_message(channel, call, true, at, NULL);
        free(at);
    }
}

// ---- the two processes

#ifdef ANSWER
static __thread int channel = -1;

void apart_call(int call, void *block)
{
    send_message(channel, call, false, block, NULL);
    serve(channel, block, apart_call_table[call].block);
}

static void *thread(void *arg)
{
    channel = (int)(intptr_t)arg;
    serve(channel, NULL, 0);
    return NULL;
}

int main(void)
{
    struct pollfd p[CHANNELS];
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < CHANNELS; i++) p[i] = (struct pollfd){FIRST + i, POLLIN, 0};
    for (pthread_t t; poll(p, CHANNELS, -1) > 0;)
        for (int i = 0; i < CHANNELS; i++) {
            if (!p[i].revents) continue;
            p[i].fd = -1;
            if (pthread_create(&t, NULL, thread, (void *)(intptr_t)(FIRST + i))) _exit(2);
        }
    return 0;
}
#else
static int channels[CHANNELS];
static bool taken[CHANNELS];

void apart_call(int call, void *block)
{
    int i = 0, n_lent;
    pthread_mutex_lock(&lock);
    while (i < CHANNELS && taken[i]) i++;
    if (i == CHANNELS) fail("the grader has %d threads that call the answer", CHANNELS);
    taken[i] = true;
    pthread_mutex_unlock(&lock);
    Object **lent = send_message(channels[i], call, false, block, &n_lent);
    serve(channels[i], block, apart_call_table[call].block);
    pthread_mutex_lock(&lock);
    while (n_lent > 0) lent[--n_lent]->lent--;
    taken[i] = false;
    pthread_mutex_unlock(&lock);
    free(lent);
}

void apart_begin(void (*become)(void))
{
    int theirs[CHANNELS];
    for (int i = 0; i < CHANNELS; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) fail("the grader has no sockets");
        channels[i] = pair[0], theirs[i] = pair[1];
    }
    if ((answer = fork()) < 0) fail("the grader could not start a process");
    if (answer == 0) {
        for (int i = 0; i < CHANNELS; i++) dup2(theirs[i], HIGH + i);
        for (int i = 0; i < CHANNELS; i++) dup2(HIGH + i, FIRST + i), close(HIGH + i);
        for (int i = 3; i < 1024; i++)
            if (i < FIRST || i >= FIRST + CHANNELS) close(i);
        become();
    }
    for (int i = 0; i < CHANNELS; i++) close(theirs[i]);
}

void apart_end(void)
{
    if (answer > 0) kill(answer, SIGKILL);
}
#endif
