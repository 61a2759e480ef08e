// apart: calls between two processes: that of the tests, which judges, and that of the answer, which computes. It is
// compiled twice: with -DANSWER for the latter.
//
// The answer's process never has what marks it: no test, no expected value, no file, no way to the judge. It gets the
// arguments of a call, and copies of the objects (arrays, structs, texts) to which they point. Where an object begins
// and ends, AddressSanitizer knows. How far pointers are followed is a matter of the header's types (calls.awk): a
// float * leads to numbers, which an answer may have made to look like addresses. Both processes keep a copy of what
// the other one has last seen of an object, and send the bytes that differ. The process of the tests takes only changes
// of what it has lent in this call, and no addresses. An answer may call back, as link_send does: so a message is a
// call or the return of the last one. Each thread of the tests that calls has a process of the answer for itself.
#define _GNU_SOURCE // CLONE_THREAD
#include "grade.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

const char *__asan_locate_address(void *at, char *name, size_t name_size, void **region, size_t *size);
int __asan_address_is_poisoned(void const volatile *at);
void *__asan_region_is_poisoned(void *at, size_t size);
void __sanitizer_symbolize_pc(void *pc, const char *format, char *out, size_t size);

#ifdef ANSWER
enum { JUDGE = 0, ME = 1 };
#else
enum { JUDGE = 1, ME = 0 };
#endif
#ifdef __aarch64__
enum { ARCH = AUDIT_ARCH_AARCH64 };
#else
enum { ARCH = AUDIT_ARCH_X86_64 };
#endif
enum { MOST = 1 << 17, BLOCK = -1 }; // BLOCK: the arguments and the result of a call, in place of an object's number
enum { CALL, RETURN, OBJECT, GONE, BYTES, POINTER, END };
typedef struct {
    int64_t kind, object, offset, size, to; // CALL: of function `object`. POINTER: to byte `size` of object `to`
} Part; // of a message, from CALL or RETURN to END. After BYTES, `size` of them follow
typedef struct Object {
    char *at, *seen; // seen: as the other process has it
    size_t size;
    int number, hops; // odd numbers: the answer's. hops: so many pointers in a row lead on from it, in this message
    bool links;       // it has pointers
    enum { UNSEEN, HANDLE, CONSTANT, LENT } use; // in this call
    struct Object *chain;                        // of equal hash
} Object;
typedef struct Peer {
    FILE *in, *out;
    pid_t pid;
    bool busy;
    uint64_t taken; // bytes of its objects
    int n[2], hole; // all numbers of objects are below n; all of mine below hole are taken
    int n_reached;  // by this message
    Object *objects[MOST], *reached[MOST], *hash[4096];
    struct Peer *next;
} Peer;
static __thread Peer *peer; // the other process

// The other process has ended, or does not keep to the form of a message.
static _Noreturn void ended(void)
{
#ifndef ANSWER
    int status;
    if (!feof(peer->in) && !ferror(peer->in) && !ferror(peer->out)) fail("the answer wrote into what is not its own");
    waitpid(peer->pid, &status, 0);
    grade_ended(status);
#endif
    fflush(NULL);
    _exit(0);
}

static void put(const void *data, size_t n)
{
    if (n && fwrite(data, 1, n, peer->out) != n) ended();
}

static void put_part(int kind, int object, size_t offset, size_t size, int to)
{
    put(&(Part){kind, object, (int64_t)offset, (int64_t)size, to}, sizeof(Part));
}

static void get(void *data, size_t n)
{
    if (n && fread(data, 1, n, peer->in) != n) ended();
}

// ---- objects

static void object_new(int number, char *at, size_t size) // at: NULL for a copy of one of the other process
{
    if (number >= MOST || peer->objects[number] || (!at && JUDGE && (peer->taken += size) > 1 << 30)) ended();
    if (peer->n[number & 1] <= number) peer->n[number & 1] = number + 1;
    Object *o = peer->objects[number] = calloc(1, sizeof *o), **bucket;
    *o = (Object){.at = at ? at : calloc(size, 1), .seen = calloc(size, 1), .size = size, .number = number};
    if (!o->at || !o->seen) ended();
    bucket = &peer->hash[(uintptr_t)o->at / 16 % 4096];
    o->chain = *bucket, *bucket = o;
}

static void object_gone(Object *o)
{
    Object **at = &peer->hash[(uintptr_t)o->at / 16 % 4096];
    while (*at != o) at = &(*at)->chain;
    *at = o->chain, peer->objects[o->number] = NULL;
    if ((o->number & 1) != ME) free(o->at);
    free(o->seen), free(o);
}

static Object *object_of(int64_t number)
{
    if (number < 0 || number >= MOST || !peer->objects[number]) ended();
    return peer->objects[number];
}

// Most numbers are far from all addresses, and need not be looked up, which is slow.
static bool may_be_address(uintptr_t word)
{
    static void *small, *large;
    if (!small) small = malloc(8), large = malloc(1 << 24);
    const uintptr_t some[] = {(uintptr_t)small, (uintptr_t)large, (uintptr_t)&word, (uintptr_t)apart_call_table};
    for (int i = 0; i < 4; i++)
        if ((word > some[i] ? word - some[i] : some[i] - word) >> 42 == 0) return word < (uintptr_t)1 << 47;
    return false;
}

// The object into which this word points, or NULL; the other process is told of new ones.
static Object *reach(uintptr_t word, int hops, int use)
{
    char name[8], *at = (char *)word;
    void *start = NULL;
    size_t size = 0;
    if (!may_be_address(word)) return NULL;
    __asan_locate_address(at - (__asan_address_is_poisoned(at) != 0), name, sizeof name, &start, &size); // or at an end
    if (!start || !size || at < (char *)start || at > (char *)start + size) return NULL;
    if (__asan_region_is_poisoned(start, size)) return NULL;
    Object *o = peer->hash[(uintptr_t)start / 16 % 4096];
    while (o && (o->at != start || o->size != size)) o = o->chain;
    if (!o) {
        int number = peer->hole | ME;
        while (number < MOST && peer->objects[number]) number += 2;
        peer->hole = number;
        object_new(number, start, size), o = object_of(number);
        put_part(OBJECT, number, 0, size, 0);
    }
    if ((int)o->use < use) o->use = use;
    if (use == HANDLE || o->hops > hops || peer->n_reached == MOST) return o;
    o->hops = hops + 1, peer->reached[peer->n_reached++] = o;
    return o;
}

// ---- a message to the other process

static uint64_t word_at(const char *at, size_t n)
{
    uint64_t word = 0;
    memcpy(&word, at, n < 8 ? n : 8);
    return word;
}

// What differs from `seen`, and where the pointers in it lead.
static void put_changes(Object *o, int hops)
{
    if (hops > 0) o->links = true;
    for (size_t i = 0, from = 0; i < o->size + 8; i += 8) { // changed bytes that are not yet put begin at `from`
        size_t left = i < o->size ? o->size - i : 0, end = left ? i : o->size;
        uint64_t word = word_at(o->at + end, left);
        Object *to = hops > 0 && left >= 8 ? reach(word, hops - 1, o->use) : NULL;
        if (left && !to && word != word_at(o->seen + i, left)) continue;
        if (end > from) put_part(BYTES, o->number, from, end - from, 0), put(o->at + from, end - from);
        if (end > from) memcpy(o->seen + from, o->at + from, end - from);
        from = i + 8;
        if (to) put_part(POINTER, o->number, i, word - (uintptr_t)to->at, to->number), memcpy(o->seen + i, &word, 8);
    }
}

// A call, or what it returns. The tests send what the arguments lead to; the answer, all changes.
static void send_message(int call, bool back, char *block)
{
    const ApartCall *c = &apart_call_table[call];
    peer->n_reached = 0;
    put_part(back ? RETURN : CALL, call, 0, 0, 0);
    for (int i = ME; i < peer->n[ME]; i += 2) {
        Object *o = peer->objects[i];
        if (!o || !__asan_region_is_poisoned(o->at, o->size)) continue;
        put_part(GONE, i, 0, 0, 0), object_gone(o), peer->hole = i < peer->hole ? i : peer->hole;
    }
    put_part(BYTES, BLOCK, 0, c->block, 0), put(block, c->block);
    for (const ApartArg *a = c->args; a->size; a++)
        for (size_t i = a->offset; i < a->offset + a->size; i += 8) {
            if (back && (ME || a->constant || !a->hops)) continue;
            uintptr_t word = word_at(block + i, 8);
            Object *o = reach(word, a->hops - 1, !a->hops ? HANDLE : a->constant ? CONSTANT : LENT);
            if (o && !back) put_part(POINTER, BLOCK, i, word - (uintptr_t)o->at, o->number);
        }
    for (int i = 0; i < peer->n_reached; i++) {
        Object *o = peer->reached[i];
        put_changes(o, back || ME ? 0 : o->hops - 1), o->hops = 0;
    }
    for (int i = 0; ME && i < peer->n[0]; i += 2)
        if (peer->objects[i]) put_changes(peer->objects[i], 0);
    put_part(END, 0, 0, 0, 0);
    if (fflush(peer->out)) ended();
}

// ---- a message from there

// The judge: no pointer comes as a number, nor does one to what was not lent. `to`: NULL when bytes came.
static void look_at_block(const ApartCall *c, char *block, size_t offset, const Object *to)
{
    for (const ApartArg *a = c->args; a->size; a++) {
        if (!to) memset(block + a->offset, 0, a->size);
        else if (offset != a->offset) continue;
        else if (to->number & 1 ? a->hops : to->use >= (!a->hops ? HANDLE : a->constant ? CONSTANT : LENT)) return;
    }
    if (to) fail("the answer calls back with a pointer that it was not lent");
}

static void take_part(const Part *p, const ApartCall *c, char *block)
{
    bool bytes = p->kind == BYTES;
    if ((p->kind == OBJECT || p->kind == GONE) && (p->object & 1) == ME) ended();
    if ((p->kind == OBJECT || p->kind == GONE) && (p->object < 0 || p->object >= MOST)) ended();
    if (p->kind == OBJECT) return object_new((int)p->object, NULL, (size_t)p->size);
    if (p->kind == GONE) return object_gone(object_of(p->object));
    Object *o = p->object == BLOCK ? NULL : object_of(p->object), *to = bytes ? NULL : object_of(p->to);
    size_t n = bytes ? (size_t)p->size : 8, size = o ? o->size : c->block, offset = (size_t)p->offset;
    if (offset > size || n > size - offset || (to && (size_t)p->size > to->size)) ended();
    if (JUDGE && o && !(o->number & 1) && o->use != LENT)
        fail("what the header calls const was written, or an array of another call");
    if (JUDGE && o && to) ended();
    char *at = (o ? o->at : block) + offset, *pointer = to ? to->at + p->size : NULL;
    if (bytes) get(at, n);
    else memcpy(at, &pointer, n);
    if (o) memcpy(o->seen + offset, at, n);
    else if (JUDGE) look_at_block(c, block, offset, to);
    for (size_t i = offset / 8 * 8; JUDGE && o && o->links && i + 8 <= size && i < offset + n; i += 8)
        if (may_be_address(word_at(o->at + i, 8))) fail("the answer wrote an address into a struct");
}

// Runs what the other process calls until it returns (block is filled in), or for ever.
static void serve(int waits_for, char *block)
{
    for (Part p;;) {
        get(&p, sizeof p);
        bool back = p.kind == RETURN;
        if (p.kind > RETURN || (back ? p.object != waits_for : p.object < 0 || p.object >= apart_calls)) ended();
        const ApartCall *c = &apart_call_table[p.object];
        if (!back && !c->run) ended();
        char *at = back ? block : calloc(1, c->block);
        int call = (int)p.object;
        for (get(&p, sizeof p); p.kind != END; get(&p, sizeof p)) take_part(&p, c, at);
        if (back) return;
        c->run(at);
        fflush(stdout);
        send_message(call, true, at);
        free(at);
    }
}

// ---- the two processes

#ifdef ANSWER
void apart_call(int call, void *block)
{
    send_message(call, false, block);
    serve(call, block);
}

// From here on this process computes and talks to the judge. Whatever code an answer finds or makes, it opens no file,
// starts no process, and sends no signal but to itself.
static void shut_in(void)
{
    static const unsigned short may[] = {
        SYS_read, SYS_write, SYS_writev, SYS_lseek, SYS_fstat, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap,
        SYS_madvise, SYS_brk, SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity,
        SYS_exit, SYS_exit_group, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_getpid,
        SYS_gettid, SYS_getrusage, SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday,
        SYS_getrandom};
    enum { N = sizeof may / sizeof *may };
    struct sock_filter f[2 * N + 20];
    int n = 0;
#define LOAD(of) f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, of))
#define JUMP(test, value, yes, no) f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, yes, no)
#define ANSWERS(what) f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what)
    LOAD(arch);
    JUMP(BPF_JEQ, ARCH, 1, 0);
    ANSWERS(SECCOMP_RET_KILL_PROCESS);
    LOAD(nr);
    for (int i = 0; i < N; i++) {
        JUMP(BPF_JEQ, may[i], 0, 1);
        ANSWERS(SECCOMP_RET_ALLOW);
    }
    JUMP(BPF_JEQ, SYS_clone, 0, 3); // a thread. glibc takes this where it has no clone3, whose flags cannot be seen
    LOAD(args[0]);
    JUMP(BPF_JSET, CLONE_THREAD, 0, 5);
    ANSWERS(SECCOMP_RET_ALLOW);
    JUMP(BPF_JEQ, SYS_tgkill, 0, 3);
    LOAD(args[0]);
    JUMP(BPF_JEQ, (unsigned)getpid(), 0, 1);
    ANSWERS(SECCOMP_RET_ALLOW);
    ANSWERS(SECCOMP_RET_ERRNO | ENOSYS);
    struct sock_fprog program = {(unsigned short)n, f};
    // For all threads; a kernel may have none.
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) && errno != ENOSYS) _exit(2);
}

int main(void)
{
    static Peer judge;
    char name[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    __sanitizer_symbolize_pc((void *)main, "%f", name, sizeof name); // reads the files that it will need
    judge.in = fdopen(3, "r"), judge.out = fdopen(3, "w"), peer = &judge;
    may_be_address(0);
    shut_in();
    serve(-1, NULL);
}
#else
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Peer *peers;

pid_t grade_answer(void)
{
    return peers ? peers->pid : getpid();
}

static Peer *peer_new(void)
{
    int pair[2];
    Peer *p = calloc(1, sizeof *p);
    if (!p || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) fail("the grader has no sockets");
    if ((p->pid = grade_start(pair[1], 0)) < 0) fail("the grader could not start a process");
    close(pair[1]);
    p->in = fdopen(pair[0], "r"), p->out = fdopen(dup(pair[0]), "w"), p->next = peers;
    return peers = p;
}

void apart_call(int call, void *block)
{
    if (peer) fail("the grader calls the answer from where it was called back");
    pthread_mutex_lock(&lock);
    for (peer = peers; peer && peer->busy;) peer = peer->next;
    if (!peer) peer = peer_new();
    peer->busy = true;
    pthread_mutex_unlock(&lock);
    send_message(call, false, block);
    serve(call, block);
    for (int i = 0; i < peer->n[0]; i += 2)
        if (peer->objects[i]) peer->objects[i]->use = UNSEEN;
    peer->busy = false, peer = NULL;
}

void apart_end(void)
{
    for (Peer *p = peers; p; p = p->next) kill(p->pid, SIGKILL);
}
#endif
