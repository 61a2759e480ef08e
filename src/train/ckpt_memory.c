// ckpt_memory: checkpoints in the memory of hosts. See ckpt_memory.h.
//
// A checkpoint in files takes the bandwidth of the file system, so it is made once in a while, and a failure loses the
// steps since then. Memory is fast, and a host that fails leaves the memory of the others. So each part of a checkpoint
// is put into the memory of two hosts every few steps (Wang et al., "Gemini", SOSP 2023):
//
//     rank r writes its part on its own host, as it would to disk       (ckpt_save_part, CkptRun.apart)
//     rank r sends the files to rank (r + d) mod N, which writes them on its host
//
// d is the least number for which no rank's copy stays on its own host; where each host has p ranks it is p. After a
// failure of one host every part is still on another. Hosts h and h + 1 that fail together may lose a part: then the
// newest checkpoint in files is taken.
//
// Restoring. The first rank of each host lists what its folder holds, all ranks get all lists, and come to the same
// choice: the newest step all of whose parts are held by someone. Parts belong together when their manifests are the
// same, byte for byte: a host that comes back may hold the same step of an abandoned attempt. For each part the lowest
// rank that has it copies it to RUN/checkpoints/step_N.tmp, and rank 0 renames that. From there on it is a checkpoint
// like any other: it is verified by its hashes, loaded by any layout, and if it is damaged, the one before is taken.
//
// The invariant: a directory without the suffix .tmp holds all of a rank's part, because it is renamed last, and a step
// is forgotten on a host only after a later one is complete on all.
//
// Rejected: a memory of our own (shared memory segments need a format and a name; a file in /dev/shm has both);
// restoring from memory to memory (one more way to load, for a run that waits for its start anyway); parity in place of
// copies (less memory, but every part has to be read to make one again).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "train/ckpt_memory.h"

#include "train/ckpt_manifest.h"

#include "base/check.h"
#include "base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { FILES = 3, HOST = 600, KEEP = 2 }; // of a part: weights, optimizer, manifest; characters; steps
#define CHUNK ((size_t)16 << 20)          // bytes of one message

struct CkptMemory {
    Comm *world;
    int rank, ranks, shift; // shift: d; 0: no copies
    bool first;             // of its host
    char run_dir[600], dir[PATH_MAX];
    char (*host)[HOST];     // (ranks)
};

static void rank_dir(const CkptMemory *m, int rank, char path[PATH_MAX])
{
    ckpt_join(path, "%s/rank_%05d_of_%05d", m->dir, rank, m->ranks);
}

static bool make_dir(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

// ---- open

// The run's own name, which a later run of the same name does not have.
static void read_id(const CkptMemory *m, bool fresh, char id[17])
{
    char path[PATH_MAX];
    size_t n = 0;
    uint64_t number;
    ckpt_join(path, "%s/memory.id", m->run_dir);
    char *text = fresh ? NULL : disk_read_file(path, &n, 64);
    if (text && n == 16 && strspn(text, "0123456789abcdef") == 16) {
        memcpy(id, text, 17);
    } else {
        if (getrandom(&number, sizeof number, 0) != sizeof number) die("ckpt.memory_every: no random number");
        snprintf(id, 17, "%016llx", (unsigned long long)number);
        if (!disk_write_file(path, id, 16)) die("%s: cannot write: %s", path, strerror(errno));
    }
    free(text);
}

static void all_gather(const CkptMemory *m, void *out, const void *in, size_t n_bytes)
{
    size_t counts[m->ranks];
    for (int r = 0; r < m->ranks; r++) counts[r] = n_bytes;
    if (m->ranks == 1) memcpy(out, in, n_bytes);
    if (m->ranks == 1) return;
    CommRequest request = comm_all_gather(m->world, out, in, counts, COMM_BYTE);
    comm_wait(m->world, &request);
}

static bool same_host(const CkptMemory *m, int a, int b)
{
    return !strcmp(m->host[a], m->host[b]);
}

static int shift_of(const CkptMemory *m)
{
    for (int d = 1; d < m->ranks; d++) {
        bool apart = true;
        for (int r = 0; r < m->ranks && apart; r++) apart = !same_host(m, r, (r + d) % m->ranks);
        if (apart) return d;
    }
    return 0;
}

CkptMemory *ckpt_memory_open(Comm *world, const char *run_dir, const char *memory_dir, bool fresh)
{
    CkptMemory *m = calloc(1, sizeof *m);
    char id[17] = "", mine[HOST] = "", name[64] = "";
    if (!m) die("ckpt.memory_every: no memory");
    *m = (CkptMemory){.world = world, .rank = world ? world->rank : 0, .ranks = world ? world->size : 1, .first = true};
    m->host = calloc((size_t)m->ranks, sizeof *m->host);
    if (!m->host) die("ckpt.memory_every: no memory for the names of %d hosts", m->ranks);
    snprintf(m->run_dir, sizeof m->run_dir, "%s", run_dir);
    if (m->rank == 0) read_id(m, fresh, id);
    ckpt_tell(world, id, sizeof id);
    gethostname(name, sizeof name - 1);
    snprintf(mine, sizeof mine, "%s:%s", name, memory_dir);
    all_gather(m, m->host, mine, sizeof mine);
    for (int r = 0; r < m->rank; r++) m->first = m->first && !same_host(m, r, m->rank);
    m->shift = shift_of(m);
    ckpt_join(m->dir, "%s/pretrain-%s", memory_dir, id);
    if (!make_dir(memory_dir) || !make_dir(m->dir))
        die("ckpt.memory_dir: %s: cannot be made: %s (a folder in this host's memory)", m->dir, strerror(errno));
    return m;
}

bool ckpt_memory_copies(const CkptMemory *m)
{
    return m->shift > 0;
}

// ---- save

typedef struct {
    char name[FILES][32];
    uint64_t n_bytes[FILES];
    char *data[FILES];
} Part;

static void free_part(Part *p)
{
    for (int i = 0; i < FILES; i++) free(p->data[i]);
}

static bool read_part(const char *dir, Part *p, CkptFailure f)
{
    char path[PATH_MAX];
    DIR *d = opendir(dir);
    int n = 0;
    bool ok = d || ckpt_fail(f, "%s: cannot read: %s", dir, strerror(errno));
    for (struct dirent *e; ok && (e = readdir(d));) {
        size_t size;
        if (e->d_name[0] == '.') continue;
        if (n == FILES || strlen(e->d_name) >= sizeof p->name[0]) {
            ok = ckpt_fail(f, "%s: %s is no file of a rank's part", dir, e->d_name);
            break;
        }
        ckpt_join(path, "%s/%s", dir, e->d_name);
        strcpy(p->name[n], e->d_name);
        p->data[n] = disk_read_file(path, &size, SIZE_MAX / 2);
        ok = p->data[n] || ckpt_fail(f, "%s: cannot read: %s", path, strerror(errno));
        p->n_bytes[n++] = size;
    }
    if (d) closedir(d);
    return ok;
}

// The bytes of `mine` to one rank, while those of `other` come from another.
static void exchange_bytes(CkptMemory *m, const char *mine, size_t n_mine, char *other, size_t n_other)
{
    int to = (m->rank + m->shift) % m->ranks, from = (m->rank - m->shift + m->ranks) % m->ranks;
    for (size_t at = 0; at < n_mine || at < n_other; at += CHUNK) {
        CommRequest send, recv;
        bool sends = at < n_mine, receives = at < n_other;
        size_t left = sends ? n_mine - at : 0, due = receives ? n_other - at : 0;
        if (receives) recv = comm_recv(m->world, other + at, due < CHUNK ? due : CHUNK, COMM_BYTE, from, 0);
        if (sends) send = comm_send(m->world, mine + at, left < CHUNK ? left : CHUNK, COMM_BYTE, to, 0);
        if (receives) comm_wait(m->world, &recv);
        if (sends) comm_wait(m->world, &send);
    }
}

static bool write_part(const CkptMemory *m, int rank, long step, const Part *p, CkptFailure f)
{
    char dir[PATH_MAX], tmp[PATH_MAX], path[PATH_MAX];
    rank_dir(m, rank, dir);
    ckpt_join(path, "%s/checkpoints", dir);
    bool ok = make_dir(dir) && make_dir(path);
    ckpt_join(dir, "%s/step_%08ld", path, step);
    ckpt_join(tmp, "%s.tmp", dir);
    ok = ok && disk_remove_dir(tmp) && mkdir(tmp, 0777) == 0;
    for (int i = 0; ok && i < FILES && *p->name[i]; i++) {
        ckpt_join(path, "%s/%s", tmp, p->name[i]);
        ok = disk_write_file(path, p->data[i], p->n_bytes[i]);
    }
    ok = ok && disk_remove_dir(dir) && rename(tmp, dir) == 0;
    return ok || ckpt_fail(f, "%s: cannot write: %s", dir, strerror(errno));
}

static bool copy_to_next(CkptMemory *m, long step, CkptFailure f)
{
    char dir[PATH_MAX];
    Part mine = {0}, other = {0};
    ckpt_join(dir, "%s/rank_%05d_of_%05d/checkpoints/step_%08ld", m->dir, m->rank, m->ranks, step);
    bool ok = ckpt_agree(m->world, read_part(dir, &mine, f), f);
    if (ok) {
        exchange_bytes(m, mine.name[0], sizeof mine.name, other.name[0], sizeof other.name);
        exchange_bytes(m, (char *)mine.n_bytes, sizeof mine.n_bytes, (char *)other.n_bytes, sizeof other.n_bytes);
    }
    for (int i = 0; ok && i < FILES; i++) {
        other.data[i] = malloc(other.n_bytes[i] + 1);
        if (!other.data[i]) die("ckpt.memory_every: no memory for %llu bytes", (unsigned long long)other.n_bytes[i]);
        exchange_bytes(m, mine.data[i], mine.n_bytes[i], other.data[i], other.n_bytes[i]);
    }
    ok = ok && write_part(m, (m->rank - m->shift + m->ranks) % m->ranks, step, &other, f);
    free_part(&mine), free_part(&other);
    return ckpt_agree(m->world, ok, f);
}

// Removes a rank's directory but for its newest `keep` steps up to `step`; later ones are of an abandoned attempt.
static void forget(const CkptMemory *m, const char *name, long step, int keep)
{
    char dir[PATH_MAX], path[PATH_MAX];
    long *steps;
    ckpt_join(dir, "%s/%s/checkpoints", m->dir, name);
    int n = ckpt_list_steps(dir, true, &steps), upto = n;
    while (upto > 0 && steps[upto - 1] > step) upto--;
    for (int i = 0; i < n; i++) {
        if (i >= upto - keep && i < upto) continue;
        ckpt_join(path, "%s/step_%08ld", dir, steps[i]);
        disk_remove_dir(path);
    }
    free(steps);
    if (keep) return;
    ckpt_join(path, "%s/latest", dir);
    unlink(path), rmdir(dir);
    ckpt_join(path, "%s/%s", m->dir, name);
    rmdir(path);
}

// The first rank of a host, after `step` is complete everywhere; step -1: all is forgotten.
static void clean(const CkptMemory *m, long step)
{
    DIR *d = m->first ? opendir(m->dir) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        int rank = -1, of = 0;
        if (sscanf(e->d_name, "rank_%d_of_%d", &rank, &of) != 2) continue;
        bool ours = step >= 0 && of == m->ranks && rank >= 0 && rank < of &&
                    (same_host(m, rank, m->rank) || (m->shift && same_host(m, (rank + m->shift) % of, m->rank)));
        forget(m, e->d_name, step, ours ? KEEP : 0);
    }
    if (d) closedir(d);
}

bool ckpt_memory_save(CkptMemory *m, const CkptState *state, const CkptPart *part, char *error, size_t n_error)
{
    char dir[PATH_MAX];
    CkptFailure f = {error, n_error};
    CkptRun place = {.run_dir = dir, .world = m->world, .keep = KEEP, .apart = true};
    rank_dir(m, m->rank, dir);
    bool ok = ckpt_save_part(&place, state, part, error, n_error);
    if (ok && m->shift) ok = copy_to_next(m, state->step, f);
    if (ok) clean(m, state->step);
    return ok;
}

// ---- restore

typedef struct {
    long step;
    int shard, of;
    uint64_t manifest; // hash of its bytes
    int rank;          // who offers it; -1: the rest of a list is empty
} Offer;

// What this host holds: offer (n), from malloc.
static Offer *list_offers(const CkptMemory *m, int *n)
{
    Offer *offer = NULL;
    char dir[PATH_MAX], path[PATH_MAX], text[CKPT_ERROR];
    DIR *d = m->first ? opendir(m->dir) : NULL;
    *n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        long *steps;
        Offer o = {.rank = m->rank};
        if (sscanf(e->d_name, "rank_%d_of_%d", &o.shard, &o.of) != 2) continue;
        ckpt_join(dir, "%s/%s/checkpoints", m->dir, e->d_name);
        for (int i = ckpt_list_steps(dir, true, &steps); i-- > 0;) {
            size_t n_bytes;
            ckpt_join(path, "%s/step_%08ld", dir, steps[i]);
            char *manifest = ckpt_manifest_load(path, &n_bytes, (CkptFailure){text, sizeof text});
            if (!manifest) continue;
            o.step = steps[i], o.manifest = XXH3_64bits(manifest, n_bytes);
            free(manifest);
            offer = realloc(offer, (size_t)(*n + 1) * sizeof *offer);
            if (!offer) die("ckpt.memory_every: no memory");
            offer[(*n)++] = o;
        }
        free(steps);
    }
    if (d) closedir(d);
    return offer;
}

// All ranks' offers, the same on all: (*n), from malloc, by rank.
static Offer *gather_offers(const CkptMemory *m, int *n)
{
    int own, most = 0, counts[m->ranks];
    Offer *mine = list_offers(m, &own);
    all_gather(m, counts, &own, sizeof own);
    for (int r = 0; r < m->ranks; r++) most = counts[r] > most ? counts[r] : most;
    *n = most * m->ranks;
    Offer *all = calloc((size_t)*n + 1, sizeof *all), *padded = calloc((size_t)most + 1, sizeof *padded);
    if (!all || !padded) die("ckpt.memory_every: no memory");
    for (int i = 0; i < most; i++) padded[i] = i < own ? mine[i] : (Offer){.rank = -1};
    if (most) all_gather(m, all, padded, (size_t)most * sizeof *padded);
    free(mine), free(padded);
    return all;
}

// The first offer of a part that belongs to the same checkpoint, or NULL.
static const Offer *find(const Offer *all, int n, const Offer *like, int shard)
{
    for (int i = 0; i < n; i++)
        if (all[i].rank >= 0 && all[i].step == like->step && all[i].of == like->of &&
            all[i].manifest == like->manifest && all[i].shard == shard) return &all[i];
    return NULL;
}

// The newest step, after `newest`, of which someone holds each part; NULL: none.
static const Offer *choose(const Offer *all, int n, long newest)
{
    const Offer *best = NULL;
    for (int i = 0; i < n; i++) {
        bool whole = all[i].rank >= 0 && all[i].step > newest && (!best || all[i].step > best->step);
        for (int shard = 0; whole && shard < all[i].of; shard++) whole = find(all, n, &all[i], shard);
        if (whole) best = &all[i];
    }
    return best;
}

// A part's files into the checkpoint; the manifest with part 0.
static bool put(const CkptMemory *m, const Offer *o, const char *tmp, CkptFailure f)
{
    char dir[PATH_MAX], path[PATH_MAX];
    Part p = {0};
    ckpt_join(dir, "%s/rank_%05d_of_%05d/checkpoints/step_%08ld", m->dir, o->shard, o->of, o->step);
    bool ok = read_part(dir, &p, f);
    for (int i = 0; ok && i < FILES && *p.name[i]; i++) {
        if (o->shard && !strcmp(p.name[i], "manifest.json")) continue;
        ckpt_join(path, "%s/%s", tmp, p.name[i]);
        ok = disk_write_file(path, p.data[i], p.n_bytes[i]) ||
             ckpt_fail(f, "%s: cannot write: %s", path, strerror(errno));
    }
    free_part(&p);
    return ok;
}

long ckpt_memory_restore(CkptMemory *m)
{
    char dir[PATH_MAX], final[PATH_MAX], tmp[PATH_MAX], error[CKPT_ERROR] = "";
    CkptFailure f = {error, sizeof error};
    int n;
    long newest = m->rank == 0 ? ckpt_newest_step(m->run_dir) : 0;
    ckpt_tell(m->world, &newest, sizeof newest);
    Offer *all = gather_offers(m, &n);
    const Offer *chosen = choose(all, n, newest);
    long step = chosen ? chosen->step : -1;
    ckpt_join(dir, "%s/checkpoints", m->run_dir);
    ckpt_join(final, "%s/step_%08ld", dir, step);
    ckpt_join(tmp, "%s.tmp", final);
    bool ok = !chosen || m->rank || (make_dir(dir) && disk_remove_dir(tmp) && mkdir(tmp, 0777) == 0) ||
              ckpt_fail(f, "%s: cannot be made: %s", tmp, strerror(errno));
    ok = ckpt_agree(m->world, ok, f);
    for (int shard = 0; ok && chosen && shard < chosen->of; shard++) {
        const Offer *o = find(all, n, chosen, shard);
        if (o->rank == m->rank) ok = put(m, o, tmp, f);
    }
    ok = ckpt_agree(m->world, ok, f);
    if (ok && chosen && m->rank == 0)
        ok = (disk_sync_dir(tmp) && rename(tmp, final) == 0 && disk_sync_dir(dir)) ||
             ckpt_fail(f, "%s: cannot be committed: %s", final, strerror(errno));
    ok = ckpt_agree(m->world, ok, f);
    free(all);
    if (ok) return step;
    if (m->rank == 0) fprintf(stderr, "warning: checkpoint of step %ld in memory: %s\n", step, error);
    return -1;
}

void ckpt_memory_forget(CkptMemory *m)
{
    clean(m, -1);
}

void ckpt_memory_close(CkptMemory *m)
{
    if (!m) return;
    if (m->first) rmdir(m->dir); // where it is empty
    free(m->host);
    free(m);
}
