// extsort: a radix sort in memory, and a merge of sorted runs in files. See extsort.h.
//
// Records are collected in one buffer. When it is full it is sorted and written to a file: a run. At the end the
// runs are merged: each has a slice of the same buffer, refilled from the file when it is used up, and a heap says
// which run has the smallest record. If there are more runs than slices of READ_BYTES in the buffer, they are
// merged in several passes, from one file into the other, `fan` runs into one, until few enough are left:
//
//     passes over the data = 1 + ceil(log(runs) / log(fan))        runs = bytes / memory, fan = memory / READ_BYTES
//
// so 1 GB of memory sorts terabytes in two passes.
//
// The invariant: the buffer is the only memory whose size depends on memory_bytes, it is allocated once, and the
// sort in memory needs no second one. That is why the sort is "American flag sort" (McIlroy, Bostic, McIlroy,
// "Engineering radix sort", 1993): count the 256 values of the highest byte, swap each record into its part of the
// buffer, and sort each part by the next byte. Equal keys cost one pass a byte, never quadratic time.
//
// Rejected: qsort (a call for each comparison; glibc's copies the whole buffer where it can), a least-
// significant-byte radix sort (fast, but it needs twice the memory), and memory-mapped files (the kernel would
// decide what stays in memory, and a full disk would be a SIGBUS instead of an error).
#include "data/prep/extsort.h"

#include "base/check.h"
#include "base/disk.h"
#include "base/words.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 32, MAX_FAN = 512, READ_BYTES = 32768 };

// Records [at, at + n) of the file.
typedef struct {
    uint64_t at, n;
} Run;

// A run that is being merged: its slice of the buffer, and what of it is not read yet.
typedef struct {
    uint64_t *buffer;
    size_t next, n;
    Run rest;
} Lane;

struct Extsort {
    size_t n_words, cap; // cap: records in the buffer
    uint64_t *buffer;
    size_t next, n; // without files: the records in the buffer, and which is handed out next
    char folder[PATH_MAX];
    int fd[2], now; // fd[now] holds the runs; -1: not made
    uint64_t written[2], spilled;
    Run *run;
    size_t n_runs, cap_runs;
    Lane *lane; // (MAX_FAN)
    size_t *heap, n_heap; // (MAX_FAN) lanes, the one with the smallest record first
    bool finished;
};

// ---- in memory

static int compare(const uint64_t *a, const uint64_t *b, size_t n_words)
{
    for (size_t w = 0; w < n_words; w++)
        if (a[w] != b[w]) return a[w] < b[w] ? -1 : 1;
    return 0;
}

static void insertion_sort(uint64_t *record, size_t n, size_t n_words)
{
    size_t n_bytes = n_words * sizeof *record;
    uint64_t moving[EXTSORT_MAX_WORDS];
    for (size_t i = 1; i < n; i++) {
        size_t j = i;
        memcpy(moving, record + i * n_words, n_bytes);
        for (; j > 0 && compare(record + (j - 1) * n_words, moving, n_words) > 0; j--)
            memcpy(record + j * n_words, record + (j - 1) * n_words, n_bytes);
        memcpy(record + j * n_words, moving, n_bytes);
    }
}

static inline unsigned byte_of(const uint64_t *record, size_t byte)
{
    return (unsigned)(record[byte / 8] >> (56 - 8 * (byte % 8))) & 255;
}

// Sorts records that agree in all bytes before `byte` (byte 0 is the highest one of the first word).
static void sort_from(uint64_t *record, size_t n, size_t n_words, size_t byte)
{
    size_t count[256], begin[257];
    for (;; byte++) { // a byte that all records share needs no pass of swaps and no recursion
        if (byte == 8 * n_words) return;
        if (n <= SMALL) {
            insertion_sort(record, n, n_words);
            return;
        }
        memset(count, 0, sizeof count);
        for (size_t i = 0; i < n; i++) count[byte_of(record + i * n_words, byte)]++;
        if (count[byte_of(record, byte)] < n) break;
    }
    begin[0] = 0;
    for (int v = 0; v < 256; v++) begin[v + 1] = begin[v] + count[v];
    for (int v = 0; v < 256; v++) {
        while (count[v]) { // count: records of a part that are not in place yet; they are its last
            size_t i = begin[v + 1] - count[v];
            unsigned home = byte_of(record + i * n_words, byte);
            size_t to = begin[home + 1] - count[home]--;
            if (to == i) continue;
            for (size_t w = 0; w < n_words; w++) {
                uint64_t swap = record[i * n_words + w];
                record[i * n_words + w] = record[to * n_words + w];
                record[to * n_words + w] = swap;
            }
        }
    }
    for (int v = 0; v < 256; v++)
        if (begin[v + 1] - begin[v] > 1)
            sort_from(record + begin[v] * n_words, begin[v + 1] - begin[v], n_words, byte + 1);
}

void extsort_sort(uint64_t *record, size_t n, size_t n_words)
{
    check(n_words > 0 && n_words <= EXTSORT_MAX_WORDS);
    sort_from(record, n, n_words, 0);
}

// ---- files

Extsort *extsort_open(const char *folder, size_t n_words, size_t memory_bytes)
{
    check(n_words > 0 && n_words <= EXTSORT_MAX_WORDS && memory_bytes >= EXTSORT_MIN_BYTES);
    Extsort *s = calloc(1, sizeof *s);
    if (!s) die("sort: no memory");
    if (!folder) folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    if ((size_t)snprintf(s->folder, sizeof s->folder, "%s", folder) >= sizeof s->folder)
        die("sort: path too long: %s", folder);
    s->n_words = n_words;
    s->cap = memory_bytes / (n_words * sizeof(uint64_t));
    s->buffer = malloc(s->cap * n_words * sizeof(uint64_t));
    s->fd[0] = s->fd[1] = -1;
    if (!s->buffer) die("sort: no memory for %zu bytes (ask for less, as with --memory)", memory_bytes);
    return s;
}

static int unnamed_file(const char *folder)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/extsort_XXXXXX", folder);
    int fd = mkstemp(path);
    if (fd < 0) die("sort: %s: %s (name a folder that can be written to)", folder, strerror(errno));
    unlink(path);
    return fd;
}

static void append(Extsort *s, int which, const uint64_t *record, size_t n)
{
    size_t n_bytes = n * s->n_words * sizeof *record;
    if (s->fd[which] < 0) s->fd[which] = unnamed_file(s->folder);
    if (!disk_write(s->fd[which], record, n_bytes))
        die("sort: %s: %s (name a folder with more room)", s->folder, strerror(errno));
    s->written[which] += n;
    s->spilled += n_bytes;
}

static void add_run(Extsort *s, Run run)
{
    s->run = words_grow(s->run, &s->cap_runs, s->n_runs + 1, sizeof *s->run);
    s->run[s->n_runs++] = run;
}

static void spill(Extsort *s)
{
    extsort_sort(s->buffer, s->n, s->n_words);
    add_run(s, (Run){s->written[s->now], s->n});
    append(s, s->now, s->buffer, s->n);
    s->n = 0;
}

void extsort_add(Extsort *s, const uint64_t *record)
{
    check(!s->finished);
    if (s->n == s->cap) spill(s);
    memcpy(s->buffer + s->n++ * s->n_words, record, s->n_words * sizeof *record);
}

// ---- merging

static bool refill(Extsort *s, Lane *lane, size_t cap)
{
    size_t size = s->n_words * sizeof(uint64_t), want = lane->rest.n < cap ? (size_t)lane->rest.n : cap;
    if (!disk_read_at(s->fd[s->now], lane->buffer, want * size, lane->rest.at * size))
        die("sort: %s: cannot read back: %s", s->folder, strerror(errno));
    lane->next = 0;
    lane->n = want;
    lane->rest.at += want;
    lane->rest.n -= want;
    return want > 0;
}

static const uint64_t *head(const Extsort *s, size_t at)
{
    const Lane *lane = &s->lane[s->heap[at]];
    return lane->buffer + lane->next * s->n_words;
}

static void sift_down(Extsort *s, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < s->n_heap; child++)
            if (compare(head(s, child), head(s, least), s->n_words) < 0) least = child;
        if (least == at) return;
        size_t swap = s->heap[at];
        s->heap[at] = s->heap[least];
        s->heap[least] = swap;
        at = least;
    }
}

// How many runs one pass merges: one more slice is for what it writes.
static size_t fan(const Extsort *s)
{
    size_t slices = s->cap * s->n_words * sizeof(uint64_t) / READ_BYTES;
    return slices < 3 ? 2 : slices - 1 < MAX_FAN ? slices - 1 : MAX_FAN;
}

static size_t slice(const Extsort *s)
{
    return s->cap / (fan(s) + 1);
}

static void start_merge(Extsort *s, const Run *run, size_t n)
{
    s->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        s->lane[i] = (Lane){.buffer = s->buffer + i * slice(s) * s->n_words, .rest = run[i]};
        if (refill(s, &s->lane[i], slice(s))) s->heap[s->n_heap++] = i;
    }
    for (size_t i = s->n_heap; i-- > 0;) sift_down(s, i);
}

static bool merge_next(Extsort *s, uint64_t *record)
{
    if (!s->n_heap) return false;
    Lane *lane = &s->lane[s->heap[0]];
    memcpy(record, head(s, 0), s->n_words * sizeof *record);
    if (++lane->next == lane->n && !refill(s, lane, slice(s))) s->heap[0] = s->heap[--s->n_heap];
    sift_down(s, 0);
    return true;
}

// Merges groups of runs into longer runs in the other file.
static void merge_pass(Extsort *s)
{
    Run *old = s->run;
    size_t n_old = s->n_runs, to = (size_t)!s->now, n = 0;
    uint64_t *out = s->buffer + fan(s) * slice(s) * s->n_words;
    s->run = NULL;
    s->n_runs = s->cap_runs = 0;
    for (size_t i = 0; i < n_old; i += fan(s)) {
        Run run = {s->written[to], 0};
        start_merge(s, old + i, n_old - i < fan(s) ? n_old - i : fan(s));
        while (merge_next(s, out + n * s->n_words)) {
            run.n++;
            if (++n == slice(s)) append(s, (int)to, out, n), n = 0;
        }
        append(s, (int)to, out, n);
        n = 0;
        add_run(s, run);
    }
    free(old);
    if (ftruncate(s->fd[s->now], 0) || lseek(s->fd[s->now], 0, SEEK_SET))
        die("sort: %s: %s", s->folder, strerror(errno));
    s->written[s->now] = 0;
    s->now = (int)to;
}

void extsort_finish(Extsort *s)
{
    check(!s->finished);
    s->finished = true;
    if (!s->n_runs) {
        extsort_sort(s->buffer, s->n, s->n_words);
        return;
    }
    if (s->n) spill(s);
    s->lane = malloc(MAX_FAN * sizeof *s->lane);
    s->heap = malloc(MAX_FAN * sizeof *s->heap);
    if (!s->lane || !s->heap) die("sort: no memory");
    while (s->n_runs > fan(s)) merge_pass(s);
    start_merge(s, s->run, s->n_runs);
}

bool extsort_next(Extsort *s, uint64_t *record)
{
    check(s->finished);
    if (s->n_runs) return merge_next(s, record);
    if (s->next == s->n) return false;
    memcpy(record, s->buffer + s->next++ * s->n_words, s->n_words * sizeof *record);
    return true;
}

uint64_t extsort_spilled_bytes(const Extsort *s)
{
    return s->spilled;
}

void extsort_close(Extsort *s)
{
    if (!s) return;
    for (int i = 0; i < 2; i++)
        if (s->fd[i] >= 0) close(s->fd[i]);
    free(s->buffer);
    free(s->run);
    free(s->lane);
    free(s->heap);
    free(s);
}
