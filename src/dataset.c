// dataset: token shards, llm.c's .bin format, and the order of training.
//
// Invariant: a token that leaves this file is in [0, vocab), whatever has happened to the files: everything
// is checked when the dataset is opened, and again what a read returns, so that a file that is cut or
// overwritten during a run ends it with a message. Files are read with pread, not mapped: a page that has
// gone is then an error code with an offset, where a mapping would kill the program (SIGBUS). The page cache
// makes the two equally fast.
//
// The order of training. The N tokens are a ring. Epoch e cuts it into W = floor(N / T) windows of T targets,
// from an offset that is random per epoch, and visits them in a random order:
//
//   e = sample / W    w = permute_e(sample mod W)    start = (offset_e + w T) mod N
//   inputs = tokens[start .. start + T - 1],  targets = tokens[start + 1 .. start + T]      (indices mod N)
//
// So in an epoch each token is a target once, but for the N mod T after the last window, which differ from
// epoch to epoch, as do the borders of the windows. offset_e and permute_e come from the counter RNG under
// the name "data" with step e: any sample can be found without the ones before, on any rank, after any
// resume, and there is no state to save. A window that goes around the end meets the first document's
// end-of-text token, as at any other border between documents.
//
// Without shuffling, permute_e(w) = w and offset_0 = 0: the first epoch is the text from its first token to
// its last, for a text whose order matters. Later epochs begin at their random offsets.
//
// Rejected: a position per rank that moves on (overlapping or skipped samples as soon as the layout changes);
// a stored permutation (8 bytes a window, and gone after a crash); windows that stop at documents (padding).
#include "dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "disk.h"
#include "rng.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shards are little-endian and are read as they lie"
#endif

enum { HEADER = 256, HEADER_BYTES = 1024, CHUNK = 4096 }; // int32s, bytes, tokens read or written at a time

static const int32_t magic_u16 = 20240520, version_u16 = 1, magic_u32 = 20240801, version_u32 = 7;

typedef struct {
    char *path;
    int fd;
    int token_bytes;  // 2 or 4
    int64_t first, n; // its tokens are first .. first + n - 1 of the dataset
} Shard;

struct Dataset {
    Shard *shard;
    size_t n_shards;
    int64_t n_tokens;
    int vocab;
};

// ---- reading ----
// n bytes at an offset; dies when they are not there.
static void read_at(const Shard *s, void *out, size_t n, int64_t offset)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = pread(s->fd, (char *)out + got, n - got, (off_t)(offset + (int64_t)got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) die("%s: offset %lld: %s", s->path, (long long)offset, strerror(errno));
        if (k == 0)
            die("%s: ends at byte %lld, before what its header promises (was it changed during the run?)",
                s->path, (long long)(offset + (int64_t)got));
        got += (size_t)k;
    }
}

// Up to CHUNK tokens of a shard from its token `at` on, checked.
static void read_chunk(const Shard *s, int vocab, int64_t at, size_t n, int32_t *out)
{
    uint16_t narrow[CHUNK];
    uint32_t wide[CHUNK];
    int64_t offset = HEADER_BYTES + at * s->token_bytes;
    read_at(s, s->token_bytes == 2 ? (void *)narrow : wide, n * (size_t)s->token_bytes, offset);
    for (size_t i = 0; i < n; i++) {
        uint32_t token = s->token_bytes == 2 ? narrow[i] : wide[i];
        if (token >= (uint32_t)vocab)
            die("%s: offset %lld: token %u, but the vocabulary has %d (another tokenizer, or damaged?)",
                s->path, (long long)(offset + (int64_t)i * s->token_bytes), token, vocab);
        out[i] = (int32_t)token;
    }
}

static Shard open_shard(const char *path, int64_t first)
{
    Shard s = {.path = strdup(path), .fd = open(path, O_RDONLY | O_CLOEXEC), .first = first};
    struct stat st;
    if (!s.path) die("memory: no room for a file name");
    if (s.fd < 0 || fstat(s.fd, &st) != 0) die("%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        die("%s: not a file (give a .bin shard or a pattern such as '%s/train_*.bin')", path, path);
    int32_t header[HEADER];
    if (st.st_size < HEADER_BYTES)
        die("%s: %lld bytes, shorter than a shard's header of %d (not a shard, or cut off)", path,
            (long long)st.st_size, HEADER_BYTES);
    read_at(&s, header, HEADER_BYTES, 0);
    if (header[0] != magic_u16 && header[0] != magic_u32)
        die("%s: first number %d, a shard has %d or %d (make shards with 'prepare tokens')", path, header[0],
            magic_u16, magic_u32);
    int32_t version = header[0] == magic_u16 ? version_u16 : version_u32;
    if (header[1] != version) die("%s: version %d, this program reads %d", path, header[1], version);
    s.token_bytes = header[0] == magic_u16 ? 2 : 4;
    s.n = header[2];
    int64_t expected = HEADER_BYTES + s.n * s.token_bytes;
    if (s.n < 0 || st.st_size != expected)
        die("%s: %lld bytes, but its header says %lld tokens = %lld bytes (cut off or damaged?)", path,
            (long long)st.st_size, (long long)s.n, (long long)expected);
    return s;
}

Dataset *dataset_open(const char *path_or_glob, int vocab)
{
    if (vocab <= 0) die("dataset: vocabulary of %d tokens (1 or more)", vocab);
    Dataset *ds = calloc(1, sizeof *ds);
    glob_t found = {0};
    struct stat st;
    bool is_path = stat(path_or_glob, &st) == 0; // taken as it is, even with * or [ in its name
    if (!is_path && glob(path_or_glob, 0, NULL, &found) != 0)
        die("%s: no such file (make shards with 'prepare tokens')", path_or_glob);
    size_t n = is_path ? 1 : found.gl_pathc;
    if (!ds || !(ds->shard = calloc(n, sizeof *ds->shard))) die("memory: no room for %zu shards", n);
    ds->vocab = vocab;
    for (; ds->n_shards < n; ds->n_shards++) {
        Shard *s = &ds->shard[ds->n_shards];
        *s = open_shard(is_path ? path_or_glob : found.gl_pathv[ds->n_shards], ds->n_tokens);
        ds->n_tokens += s->n;
        int32_t tokens[CHUNK];
        for (int64_t at = 0; at < s->n; at += CHUNK)
            read_chunk(s, vocab, at, (size_t)(s->n - at < CHUNK ? s->n - at : CHUNK), tokens);
    }
    globfree(&found);
    return ds;
}

void dataset_close(Dataset *ds)
{
    if (!ds) return;
    for (size_t i = 0; i < ds->n_shards; i++) {
        close(ds->shard[i].fd);
        free(ds->shard[i].path);
    }
    free(ds->shard);
    free(ds);
}

int64_t dataset_tokens(const Dataset *ds)
{
    return ds->n_tokens;
}

void dataset_span(const Dataset *ds, int64_t first, int64_t n, int32_t *out)
{
    if (first < 0 || n < 0 || first > ds->n_tokens - n)
        die("dataset: tokens %lld to %lld of %lld (ask for less)", (long long)first, (long long)(first + n),
            (long long)ds->n_tokens);
    for (size_t i = 0; i < ds->n_shards && n > 0; i++) {
        const Shard *s = &ds->shard[i];
        while (n > 0 && first < s->first + s->n) {
            int64_t at = first - s->first, take = s->n - at < CHUNK ? s->n - at : CHUNK;
            if (take > n) take = n;
            read_chunk(s, ds->vocab, at, (size_t)take, out);
            out += take, first += take, n -= take;
        }
    }
}

int64_t dataset_text_bytes(const Dataset *ds, int64_t first, int64_t n, const int32_t *token_bytes)
{
    int64_t bytes = 0;
    int32_t tokens[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t take = n - at < CHUNK ? n - at : CHUNK;
        dataset_span(ds, first + at, take, tokens);
        for (int64_t i = 0; i < take; i++) bytes += token_bytes[tokens[i]];
    }
    return bytes;
}

// ---- the order of training ----
int64_t dataset_windows(const Dataset *ds, int context)
{
    check(context > 0);
    return ds->n_tokens / context;
}

// n tokens of the ring from `first` on, first in [0, N), n <= N.
static void ring_span(const Dataset *ds, int64_t first, int64_t n, int32_t *out)
{
    int64_t before_end = ds->n_tokens - first < n ? ds->n_tokens - first : n;
    dataset_span(ds, first, before_end, out);
    dataset_span(ds, 0, n - before_end, out + before_end);
}

void dataset_window(const Dataset *ds, int64_t sample, int context, uint64_t seed, bool shuffle,
                    int32_t *inputs, int32_t *targets)
{
    if (context < 1 || ds->n_tokens <= context)
        die("dataset: %lld tokens, fewer than a window of %d + 1 (more text, or a shorter context)",
            (long long)ds->n_tokens, context);
    check(sample >= 0);
    int64_t n_windows = dataset_windows(ds, context), epoch = sample / n_windows;
    if (epoch > UINT32_MAX) die("dataset: sample %lld: more than 2^32 epochs (more text)", (long long)sample);
    Rng rng = rng_make(seed, "data", (uint32_t)epoch);
    // rng_permute uses the indices below 6 * 2^32, the offset the last one.
    int64_t offset = (int64_t)rng_below(rng, UINT64_MAX, (uint64_t)ds->n_tokens);
    int64_t window = sample % n_windows;
    if (shuffle) window = (int64_t)rng_permute(rng, (uint64_t)window, (uint64_t)n_windows);
    else if (epoch == 0) offset = 0;
    int64_t start = (offset + window * context) % ds->n_tokens;
    ring_span(ds, (start + 1) % ds->n_tokens, context, targets);
    ring_span(ds, start, 1, inputs);
    memcpy(inputs + 1, targets, (size_t)(context - 1) * sizeof *inputs);
}

// ---- writing ----
struct DatasetWriter {
    FILE *f;
    char *path, *aside;
    int vocab, token_bytes;
    int64_t n;
};

static void write_all(DatasetWriter *w, const void *data, size_t n_bytes)
{
    if (fwrite(data, 1, n_bytes, w->f) != n_bytes)
        die("%s: %s (is the disk full?)", w->aside, strerror(errno));
}

DatasetWriter *dataset_writer_open(const char *path, int vocab, DatasetType type)
{
    if (type == DATASET_U16 && vocab > UINT16_MAX)
        die("%s: a vocabulary of %d tokens does not fit in uint16, whose limit is %d (use uint32)", path,
            vocab, UINT16_MAX);
    DatasetWriter *w = calloc(1, sizeof *w);
    if (!w || !(w->path = strdup(path)) || !(w->aside = malloc(strlen(path) + 5)))
        die("memory: no room for a writer");
    sprintf(w->aside, "%s.tmp", path);
    w->vocab = vocab;
    w->token_bytes = type == DATASET_U16 || (type == DATASET_AUTO && vocab <= UINT16_MAX) ? 2 : 4;
    w->f = fopen(w->aside, "wb");
    if (!w->f) die("%s: %s (does the folder exist, may you write there?)", w->aside, strerror(errno));
    int32_t header[HEADER] = {0}; // no magic before the end: half a file is never taken for a shard
    write_all(w, header, sizeof header);
    return w;
}

void dataset_writer_append(DatasetWriter *w, const int32_t *ids, size_t n)
{
    uint16_t narrow[CHUNK];
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t take = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < take; i++) {
            if (ids[at + i] < 0 || ids[at + i] >= w->vocab)
                die("%s: token %d, but the vocabulary has %d (another tokenizer?)", w->path, ids[at + i],
                    w->vocab);
            narrow[i] = (uint16_t)ids[at + i];
        }
        write_all(w, w->token_bytes == 2 ? (const void *)narrow : ids + at, take * (size_t)w->token_bytes);
    }
    w->n += (int64_t)n;
    if (w->n > INT32_MAX) die("%s: more than %d tokens in one shard (write several)", w->path, INT32_MAX);
}

int64_t dataset_writer_finish(DatasetWriter *w)
{
    int32_t header[3] = {w->token_bytes == 2 ? magic_u16 : magic_u32,
                         w->token_bytes == 2 ? version_u16 : version_u32, (int32_t)w->n};
    if (fseek(w->f, 0, SEEK_SET) != 0) die("%s: %s", w->aside, strerror(errno));
    write_all(w, header, sizeof header);
    bool ok = fflush(w->f) == 0 && fsync(fileno(w->f)) == 0;
    if (fclose(w->f) != 0 || !ok || rename(w->aside, w->path) != 0 || !disk_sync_parent(w->path))
        die("%s: %s (is the disk full?)", w->path, strerror(errno));
    int64_t n = w->n;
    free(w->path);
    free(w->aside);
    free(w);
    return n;
}
