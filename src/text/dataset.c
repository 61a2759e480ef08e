// dataset: token files as one sequence, the order of training, and the writer of shards.
//
// Invariant: every token that these functions return is in [0, vocab), whatever happens to the files on the disk. All
// tokens are checked when the dataset is opened, and again at each read. The size of a file is checked when it is
// opened, and its size and modification time at every read. So a file that is truncated or overwritten during a run
// ends the run with a line that names file and offset, even if the new tokens are valid. A file that is removed, or
// replaced by a rename, stays readable through the open descriptor. Files are read with pread, not mapped: a missing
// page is then an error code, where a mapping would kill the program (SIGBUS). With the page cache both are equally
// fast.
//
// The order of training. The N tokens are a ring. Epoch e cuts it into W = floor(N / T) windows of T targets, from an
// offset that is random per epoch, and visits them in a random order:
//
//   e = sample / W    w = permute_e(sample mod W)    start = (offset_e + w T) mod N
//   inputs = tokens[start .. start + T - 1],  targets = tokens[start + 1 .. start + T]      (indices mod N)
//
// The hash covers everything that decides what sample s is, and nothing else: the tokens, and the names and shares of
// the sources; not the division into files, their names, or the width of a token in them.
//
// Rejected: a position per rank that advances (samples overlap or are skipped when the layout changes); a stored
// permutation (8 bytes a window, and lost after a crash); writing other formats (llm.c's shards have a header that
// identifies them); int64 tokens (no vocabulary needs them).
#include "text/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/disk.h"
#include "tools/disk_folder.h"
#include "base/rng.h"
#include "base/words.h"
#include "text/packing.h"
#include "text/sources.h"

enum { HEADER = DATASET_HEADER_BYTES / 4, CHUNK = 4096, MEGATRON_HEADER = 34 }; // int32s; tokens at a time; bytes
enum { PACK_DOCUMENTS = 1 << 17 };                                              // packed at a time

// ---- files

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little-endian and are read as they lie"
#endif


// A file that holds tokens.
typedef struct {
    char *path;
    int fd, token_bytes;      // 2 or 4
    int64_t offset, n, first; // where they begin, how many; first: their place among the tokens of all files
    int64_t size, changed;    // bytes, and the time of the last change in ns, when it was opened
    dev_t disk;               // which file it is
    ino_t node;
    uint64_t hash; // of its tokens, as prepare wrote it into the manifest
} TokenFile;

// The number type after the last ':' of a name, 2 or 4 bytes, and the length of what is before it; 0 when there is
// none.
static int file_suffix(const char *name, size_t *n_path)
{
    const char *colon = strrchr(name, ':');
    *n_path = colon ? (size_t)(colon - name) : strlen(name);
    if (colon && strcmp(colon, ":uint16") == 0) return 2;
    if (colon && strcmp(colon, ":uint32") == 0) return 4;
    *n_path = strlen(name);
    return 0;
}

static int64_t change_time(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

// Dies when the file has changed since it was opened; `offset`, where the read began, is for the message.
static void check_unchanged(const TokenFile *f, int64_t offset)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0) die("%s: offset %lld: %s", f->path, (long long)offset, strerror(errno));
    if (st.st_size != f->size)
        die("%s: offset %lld: the file has %lld bytes, it had %lld when the run began (put it back, and resume)",
            f->path, (long long)offset, (long long)st.st_size, (long long)f->size);
    if (change_time(&st) != f->changed)
        die("%s: offset %lld: somebody wrote to the file during the run (put it back, and resume)", f->path,
            (long long)offset);
}

// n bytes at an offset; dies when they are not there.
static void read_at(const TokenFile *f, void *out, size_t n, int64_t offset)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = pread(f->fd, (char *)out + got, n - got, (off_t)(offset + (int64_t)got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) die("%s: offset %lld: %s", f->path, (long long)offset, strerror(errno));
        if (k == 0) {
            check_unchanged(f, offset);
            die("%s: offset %lld: nothing can be read there (is the disk well?)", f->path, (long long)offset);
        }
        got += (size_t)k;
    }
}

// Tokens at .. at + n - 1 of the file, n at most CHUNK. Dies on a token that is not in [0, vocab), and when the file
// has changed since it was opened.
static void file_read(const TokenFile *f, int vocab, int64_t at, size_t n, int32_t *out)
{
    uint16_t narrow[CHUNK];
    uint32_t wide[CHUNK];
    int64_t offset = f->offset + at * f->token_bytes;
    read_at(f, f->token_bytes == 2 ? (void *)narrow : wide, n * (size_t)f->token_bytes, offset);
    check_unchanged(f, offset);
    for (size_t i = 0; i < n; i++) {
        uint32_t token = f->token_bytes == 2 ? narrow[i] : wide[i];
        if (token >= (uint32_t)vocab)
            die("%s: offset %lld: token %u, but the vocabulary has %d (another tokenizer, or damaged?)", f->path,
                (long long)(offset + (int64_t)i * f->token_bytes), token, vocab);
        out[i] = (int32_t)token;
    }
}

// Says that n tokens from `at` on will be read soon: the system begins to fetch them and returns.
static void file_ahead(const TokenFile *f, int64_t at, int64_t n)
{
#ifdef POSIX_FADV_WILLNEED // advice: where it is ignored, the later read waits for the disk
    off_t begin = (off_t)(f->offset + at * f->token_bytes);
    (void)posix_fadvise(f->fd, begin, (off_t)(n * f->token_bytes), POSIX_FADV_WILLNEED);
#else
    (void)f, (void)at, (void)n;
#endif
}

// *size: bytes of the file.
static TokenFile open_file(const char *path, int64_t *size)
{
    TokenFile f = {.path = strdup(path), .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct stat st;
    if (!f.path) die("memory: no room for a file name");
    if (f.fd < 0 || fstat(f.fd, &st) != 0) die("%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        die("%s: not a file (give a .bin shard or a pattern such as '%s/train_*.bin')", path, path);
    *size = f.size = st.st_size;
    f.changed = change_time(&st);
    f.disk = st.st_dev, f.node = st.st_ino;
    return f;
}

static void file_close(TokenFile *f)
{
    close(f->fd);
    free(f->path);
}

static TokenFile open_shard(const char *path)
{
    int64_t size;
    TokenFile f = open_file(path, &size);
    int32_t header[DATASET_HEADER_BYTES / 4];
    if (size < DATASET_HEADER_BYTES)
        die("%s: %lld bytes, shorter than a shard's header of %d (not a shard, or cut off)", path, (long long)size,
            DATASET_HEADER_BYTES);
    read_at(&f, header, sizeof header, 0);
    if (header[0] != DATASET_MAGIC_U16 && header[0] != DATASET_MAGIC_U32)
        die("%s: first number %d, a shard has %d or %d (make shards with 'prepare tokens'; for a file of numbers "
            "alone, as nanoGPT writes, add :uint16 to its name)", path, header[0], DATASET_MAGIC_U16,
            DATASET_MAGIC_U32);
    int32_t version = header[0] == DATASET_MAGIC_U16 ? DATASET_VERSION_U16 : DATASET_VERSION_U32;
    if (header[1] != version) die("%s: version %d, this program reads %d", path, header[1], version);
    f.token_bytes = header[0] == DATASET_MAGIC_U16 ? 2 : 4;
    f.offset = DATASET_HEADER_BYTES;
    f.n = header[2];
    int64_t expected = DATASET_HEADER_BYTES + f.n * f.token_bytes;
    if (f.n < 0 || size != expected)
        die("%s: %lld bytes, but its header says %lld tokens = %lld bytes (cut off or damaged?)", path, (long long)size,
            (long long)f.n, (long long)expected);
    return f;
}

static TokenFile open_raw(const char *path, int token_bytes)
{
    int64_t size;
    TokenFile f = open_file(path, &size);
    f.token_bytes = token_bytes;
    f.n = size / token_bytes;
    if (size % token_bytes)
        die("%s: %lld bytes, not a multiple of %d (cut off, or tokens of another size?)", path, (long long)size,
            token_bytes);
    int32_t first[2];
    char magic[6];
    if (size >= (int64_t)sizeof magic) {
        read_at(&f, magic, sizeof magic, 0);
        if (memcmp(magic, "\x93NUMPY", sizeof magic) == 0)
            die("%s: has the header of np.save (write the array with array.tofile, or np.memmap)", path);
    }
    if (size >= DATASET_HEADER_BYTES) {
        read_at(&f, first, sizeof first, 0);
        if ((first[0] == DATASET_MAGIC_U16 && first[1] == DATASET_VERSION_U16) ||
            (first[0] == DATASET_MAGIC_U32 && first[1] == DATASET_VERSION_U32))
            die("%s: has the header of a shard (leave :uint%d off)", path, 8 * token_bytes);
    }
    return f;
}

// ---- Megatron
//
// The type of a file without header is never guessed: its name must end in :uint16 or :uint32. Megatron's
// index holds, after MMIDIDX, version and the type of a token, the lengths of its sequences (int32), where they begin
// (int64, bytes) and which sequences begin a document. Training windows need none of these, only that the sequences lie
// back to back from the start to the end of the .bin. That is checked, so the index also verifies the size of the .bin.
// (GPT-NeoX swaps the numbers of two float types, which are no token types.)

// Sequences must follow each other without a gap; returns the bytes of all.
static int64_t check_sequences(const TokenFile *idx, int64_t n, int token_bytes)
{
    int32_t length[CHUNK];
    int64_t begin[CHUNK], at = 0;
    for (int64_t s = 0; s < n; s += CHUNK) {
        size_t take = (size_t)(n - s < CHUNK ? n - s : CHUNK);
        read_at(idx, length, take * sizeof *length, MEGATRON_HEADER + 4 * s);
        read_at(idx, begin, take * sizeof *begin, MEGATRON_HEADER + 4 * n + 8 * s);
        for (size_t i = 0; i < take; at += (int64_t)length[i++] * token_bytes)
            if (length[i] < 0 || begin[i] != at)
                die("%s: offset %lld: sequence %lld begins at byte %lld, not %lld (damaged?)", idx->path,
                    (long long)(MEGATRON_HEADER + 4 * n + 8 * (s + (int64_t)i)), (long long)(s + (int64_t)i),
                    (long long)begin[i], (long long)at);
    }
    return at;
}

static TokenFile open_megatron(const char *path)
{
    int64_t size, size_bin;
    uint8_t head[MEGATRON_HEADER];
    uint64_t version, n, n_documents;
    TokenFile idx = open_file(path, &size);
    if (size < MEGATRON_HEADER)
        die("%s: %lld bytes, shorter than an index's header of %d (cut off?)", path, (long long)size, MEGATRON_HEADER);
    read_at(&idx, head, sizeof head, 0);
    if (memcmp(head, "MMIDIDX\0\0", 9) != 0) die("%s: offset 0: not an index of Megatron (MMIDIDX)", path);
    memcpy(&version, head + 9, 8);
    memcpy(&n, head + 18, 8);
    memcpy(&n_documents, head + 26, 8);
    if (version != 1) die("%s: offset 9: version %llu, this program reads 1", path, (unsigned long long)version);
    int token_bytes = head[17] == 8 ? 2 : head[17] == 4 ? 4 : 0;
    if (!token_bytes) die("%s: offset 17: type %d of a token (4: int32 and 8: uint16 can be read)", path, head[17]);
    // n is checked against the file's size before it is used. With modes there is one more byte per sequence.
    uint64_t fixed = MEGATRON_HEADER + 8 * n_documents;
    bool fits = n <= (uint64_t)size / 12 && n_documents <= (uint64_t)size / 8 &&
                ((uint64_t)size == fixed + 12 * n || (uint64_t)size == fixed + 13 * n);
    if (!fits)
        die("%s: %lld bytes, but its header says %llu sequences and %llu documents (cut off or damaged?)", path,
            (long long)size, (unsigned long long)n, (unsigned long long)n_documents);
    int64_t bytes = check_sequences(&idx, (int64_t)n, token_bytes);
    char bin[PATH_MAX];
    snprintf(bin, sizeof bin, "%.*s.bin", (int)strlen(path) - 4, path);
    TokenFile f = open_file(bin, &size_bin);
    if (size_bin != bytes)
        die("%s: %lld bytes, but %s says %lld (cut off or damaged?)", bin, (long long)size_bin, path, (long long)bytes);
    f.token_bytes = token_bytes;
    f.n = bytes / token_bytes;
    file_close(&idx);
    return f;
}

// raw: bytes of a token in a file without header; 0: the name and the first bytes decide the format. Dies with file,
// offset and sizes on any error.
static TokenFile file_open(const char *path, int raw)
{
    size_t n = strlen(path);
    if (raw) return open_raw(path, raw);
    return n > 4 && strcmp(path + n - 4, ".idx") == 0 ? open_megatron(path) : open_shard(path);
}

// ---- a dataset

// A document, or a part of one, in a row: tokens begin .. begin + length - 1 of the ring.
typedef struct {
    int64_t begin;
    int32_t length;
} Piece;

// Tokens that windows go around: those of one source, or all.
typedef struct {
    char name[80]; // of its random numbers
    int64_t first, n;
    Piece *piece;      // packed: (row_end[n_rows - 1]) by row
    size_t *row_end;   // (n_rows) index after the last piece of each row
    size_t n_rows, cap_rows, cap_pieces;
} Ring;

struct Dataset {
    TokenFile *shard; // (n_shards)
    size_t n_shards, cap_shards, n_rings;
    int64_t n_tokens;
    int vocab, packed; // packed: tokens in a row; 0: windows
    int32_t eot;       // of a packed one
    Ring *ring;        // (n_rings), one without a mixture
    Mixture mixture; // of the rings; {0} without
    uint8_t *counts; // (n_tokens / 8 + 1) a bit a token: whether it is a target; NULL: all are
    uint64_t hash;
};

// ---- reading

// The files of a pattern. A folder that is there is no pattern, whatever letters its name has.
static int expand(const char *path, glob_t *found)
{
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash ? (size_t)(slash - path) : 0), *pattern = malloc(2 * strlen(path) + 1);
    char *to = pattern;
    struct stat st;
    if (!folder || !pattern) die("memory: no room for a file name");
    bool literal = slash && stat(folder, &st) == 0;
    for (const char *c = path; *c; c++) {
        if (literal && c < slash && strchr("*?[\\", *c)) *to++ = '\\';
        *to++ = *c;
    }
    *to = 0;
    int status = glob(pattern, 0, NULL, found);
    free(folder), free(pattern);
    return status;
}

// Adds the files of a path or glob, and checks every token.
static void add_files(Dataset *ds, const char *name, XXH3_state_t *hash)
{
    size_t n_path;
    int raw = file_suffix(name, &n_path);
    char *path = strndup(name, n_path);
    glob_t found = {0};
    struct stat st;
    if (!path) die("memory: no room for a file name");
    bool is_path = stat(path, &st) == 0; // taken as it is, even with * or [ in its name
    errno = 0;
    int status = is_path ? 0 : expand(path, &found);
    if (status && (status == GLOB_NOSPACE || errno == ENOMEM)) die("memory: no room to look for %s", path);
    if (status)
        die("%s: no such file (make shards with 'prepare tokens')", path);
    size_t n = is_path ? 1 : found.gl_pathc;
    ds->shard = words_grow(ds->shard, &ds->cap_shards, ds->n_shards + n, sizeof *ds->shard);
    for (size_t i = 0; i < n; i++) {
        TokenFile *s = &ds->shard[ds->n_shards++];
        disk_folder_check_file(is_path ? path : found.gl_pathv[i]);
        *s = file_open(is_path ? path : found.gl_pathv[i], raw);
        s->first = ds->n_tokens;
        ds->n_tokens += s->n;
        int32_t tokens[CHUNK];
        for (int64_t at = 0; at < s->n; at += CHUNK) {
            size_t n_tokens = (size_t)(s->n - at < CHUNK ? s->n - at : CHUNK);
            file_read(s, ds->vocab, at, n_tokens, tokens);
            XXH3_64bits_update(hash, tokens, n_tokens * sizeof *tokens);
            s->hash = XXH3_64bits_withSeed(tokens, n_tokens * sizeof *tokens, s->hash);
        }
    }
    globfree(&found);
    free(path);
}

static void add_ring(Dataset *ds, const char *source, const char *path, XXH3_state_t *hash)
{
    Ring *ring = &ds->ring[ds->n_rings++];
    snprintf(ring->name, sizeof ring->name, source ? "data.%s" : "data", source);
    ring->first = ds->n_tokens;
    add_files(ds, path, hash);
    ring->n = ds->n_tokens - ring->first;
    XXH3_64bits_update(hash, ring->name, strlen(ring->name) + 1);
    XXH3_64bits_update(hash, &ring->n, sizeof ring->n);
}

static void add_mixture(Dataset *ds, const char *path, XXH3_state_t *hash)
{
    Sources list = sources_read(path);
    double *weight = calloc(list.n, sizeof *weight);
    ds->ring = calloc(list.n, sizeof *ds->ring);
    if (!weight || !ds->ring) die("memory: no room for %zu sources", list.n);
    for (size_t i = 0; i < list.n; i++) {
        const Source *s = &list.source[i];
        if (s->format != SOURCE_AUTO || s->separator || s->line || s->field)
            die("%s: [source.%s]: format, separator, line and field are for text; this is about tokens", path, s->name);
        if (strlen(s->name) > 64) die("%s: [source.%s]: the name is too long (64 at most)", path, s->name);
        weight[i] = s->weight;
        add_ring(ds, s->name, s->path, hash);
    }
    ds->mixture = mixture_make(weight, list.n);
    XXH3_64bits_update(hash, ds->mixture.part, list.n * sizeof *ds->mixture.part);
    sources_free(&list);
    free(weight);
}

Dataset *dataset_open(const char *path_or_glob, int vocab)
{
    if (vocab <= 0) die("dataset: vocabulary of %d tokens (1 or more)", vocab);
    Dataset *ds = calloc(1, sizeof *ds);
    XXH3_state_t *hash = XXH3_createState();
    if (!ds || !hash) die("memory: no room for a dataset");
    XXH3_64bits_reset(hash);
    ds->vocab = vocab;
    size_t n = strlen(path_or_glob);
    if (n > 5 && strcmp(path_or_glob + n - 5, ".toml") == 0) {
        add_mixture(ds, path_or_glob, hash);
    } else {
        if (!(ds->ring = calloc(1, sizeof *ds->ring))) die("memory: no room for a dataset");
        add_ring(ds, NULL, path_or_glob, hash);
    }
    ds->hash = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return ds;
}

void dataset_close(Dataset *ds)
{
    if (!ds) return;
    for (size_t i = 0; i < ds->n_shards; i++) file_close(&ds->shard[i]);
    for (size_t i = 0; i < ds->n_rings; i++) free(ds->ring[i].piece), free(ds->ring[i].row_end);
    free(ds->shard);
    free(ds->ring);
    free(ds->counts);
    mixture_free(&ds->mixture);
    free(ds);
}

int64_t dataset_tokens(const Dataset *ds)
{
    return ds->n_tokens;
}

const char *dataset_shared(const Dataset *ds, const Dataset *other)
{
    for (size_t i = 0; i < ds->n_shards; i++)
        for (size_t k = 0; k < other->n_shards; k++)
            if (ds->shard[i].disk == other->shard[k].disk && ds->shard[i].node == other->shard[k].node)
                return ds->shard[i].path;
    return NULL;
}

uint64_t dataset_hash(const Dataset *ds)
{
    return ds->hash;
}

uint64_t dataset_file_hash(const Dataset *ds, size_t file)
{
    return ds->shard[file].hash;
}

// Whether the manifest beside a shard has another hash of its tokens.
static bool altered(const TokenFile *f)
{
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path, *key;
    char path[PATH_MAX];
    json_t *part, *file;
    size_t i;
    bool other = false;
    snprintf(path, sizeof path, "%.*smanifest.json", (int)(name - f->path), f->path);
    json_t *manifest = json_load_file(path, 0, NULL);
    json_object_foreach(manifest, key, part)
        json_array_foreach(json_object_get(part, "files"), i, file) {
            const char *hash = json_string_value(json_array_get(json_object_get(part, "hashes"), i));
            if (hash && json_is_string(file) && !strcmp(json_string_value(file), name))
                other = strtoull(hash, NULL, 16) != f->hash;
        }
    json_decref(manifest);
    return other;
}

const char *dataset_altered(const Dataset *ds)
{
    for (size_t i = 0; i < ds->n_shards; i++)
        if (altered(&ds->shard[i])) return ds->shard[i].path;
    return NULL;
}

void dataset_span(const Dataset *ds, int64_t first, int64_t n, int32_t *out)
{
    if (first < 0 || n < 0 || first > ds->n_tokens - n)
        die("dataset: tokens %lld to %lld of %lld (ask for less)", (long long)first, (long long)(first + n),
            (long long)ds->n_tokens);
    for (size_t i = 0; i < ds->n_shards && n > 0; i++) {
        const TokenFile *s = &ds->shard[i];
        while (n > 0 && first < s->first + s->n) {
            int64_t at = first - s->first, take = s->n - at < CHUNK ? s->n - at : CHUNK;
            if (take > n) take = n;
            file_read(s, ds->vocab, at, (size_t)take, out);
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
        dataset_counted(ds, first + at, take, tokens);
        for (int64_t i = 0; i < take; i++) bytes += tokens[i] < 0 ? 0 : token_bytes[tokens[i]];
    }
    return bytes;
}

// ---- which tokens are targets
void dataset_turns(Dataset *ds, const Chat *chat)
{
    int32_t tokens[CHUNK];
    ChatPlace place = {0};
    check(!ds->counts);
    ds->counts = calloc((size_t)ds->n_tokens / 8 + 1, 1);
    if (!ds->counts) die("memory: no room for a bit a token, %lld", (long long)ds->n_tokens);
    for (int64_t at = 0; at < ds->n_tokens; at++) {
        int64_t left = ds->n_tokens - at;
        if (at % CHUNK == 0) dataset_span(ds, at, left < CHUNK ? left : CHUNK, tokens);
        if (chat_counts(chat, &place, tokens[at % CHUNK])) ds->counts[at / 8] |= (uint8_t)(1 << at % 8);
    }
    ds->hash ^= chat_hash(chat);
}

int64_t dataset_counted(const Dataset *ds, int64_t first, int64_t n, int32_t *target)
{
    int64_t counted = 0;
    if (!ds->counts) return n;
    for (int64_t i = first; i < first + n; i++) {
        bool counts = ds->counts[i / 8] >> i % 8 & 1;
        counted += counts;
        if (target && !counts) target[i - first] = -1;
    }
    return counted;
}

// ---- the order of training ----
//
// In an epoch each token is a target once, except the N mod T tokens after the last window; these and the borders of
// the windows differ from epoch to epoch. offset_e and permute_e come from the counter RNG with name "data" and step e.
// So any sample can be found without the earlier ones, on any rank, after any resume, and there is no state to save. A
// window that wraps around the end reaches the first document's end-of-text token, as at any border between documents.
// Without shuffling, permute_e(w) = w and offset_0 = 0: the first epoch is the text from its first token to its last,
// for a text whose order matters. Later epochs begin at their random offsets.
//
// A mixture has a ring for each source. mixture_source maps sample s to a source and to the number j of the sample
// within it. Then the formula at the head of this file holds with j for the sample, the source's N, and the name
// "data.SOURCE" for "data". So each source has epochs of its own, and the position of the run is still the one number
// s.

int64_t dataset_windows(const Dataset *ds, int context)
{
    check(context > 0);
    int64_t sum = 0;
    for (size_t i = 0; i < ds->n_rings; i++) {
        const Ring *ring = &ds->ring[i];
        int64_t n = ds->packed ? (int64_t)ring->n_rows : ring->n > context ? ring->n / context : 0;
        if (!n) return 0;
        sum += n;
    }
    return sum;
}

// n tokens of a ring from its token `first` on, first in [0, ring->n), n <= ring->n.
static void ring_span(const Dataset *ds, const Ring *ring, int64_t first, int64_t n, int32_t *out)
{
    int64_t before_end = ring->n - first < n ? ring->n - first : n;
    dataset_span(ds, ring->first + first, before_end, out);
    dataset_span(ds, ring->first, n - before_end, out + before_end);
}

// Targets that are n tokens of a ring from `first` on, in the same way.
static void ring_counted(const Dataset *ds, const Ring *ring, int64_t first, int64_t n, int32_t *target)
{
    int64_t before_end = ring->n - first < n ? ring->n - first : n;
    dataset_counted(ds, ring->first + first, before_end, target);
    dataset_counted(ds, ring->first, n - before_end, target + before_end);
}

// The source of a sample of the run, and in *sample its number there.
static const Ring *ring_of(const Dataset *ds, int64_t *sample)
{
    check(*sample >= 0);
    return ds->mixture.n_sources ? ds->ring + mixture_source(&ds->mixture, *sample, sample) : ds->ring;
}

// Which of the n windows or rows of its epoch a source's sample is; the epoch's random numbers.
static int64_t place_in_epoch(const Ring *ring, int64_t sample, int64_t n, uint64_t seed, bool shuffle, Rng *rng)
{
    int64_t epoch = sample / n, i = sample % n;
    if (epoch > UINT32_MAX) die("dataset: sample %lld: more than 2^32 epochs (more text)", (long long)sample);
    *rng = rng_make(seed, ring->name, (uint32_t)epoch);
    return shuffle ? (int64_t)rng_permute(*rng, (uint64_t)i, (uint64_t)n) : i;
}

// Where in its ring the window of a source's sample starts.
static int64_t window_start(const Ring *ring, int64_t sample, int context, uint64_t seed, bool shuffle)
{
    if (context < 1 || ring->n <= context)
        die("dataset: %lld tokens%s%s, fewer than a window of %d + 1 (more text, or a shorter context)",
            (long long)ring->n, ring->name[4] ? " in source " : "", ring->name[4] ? ring->name + 5 : "", context);
    Rng rng;
    int64_t n_windows = ring->n / context, window = place_in_epoch(ring, sample, n_windows, seed, shuffle, &rng);
    // rng_permute uses the indices below 6 * 2^32, the offset the last one.
    int64_t offset = (int64_t)rng_below(rng, UINT64_MAX, (uint64_t)ring->n);
    if (!shuffle && sample < n_windows) offset = 0;
    return (offset + window * context) % ring->n;
}

void dataset_window(const Dataset *ds, int64_t sample, int context, uint64_t seed, bool shuffle,
                    int32_t *inputs, int32_t *targets)
{
    const Ring *ring = ring_of(ds, &sample);
    int64_t start = window_start(ring, sample, context, seed, shuffle);
    // Each token is read once: a call of the system costs more than the copy to both places.
    int32_t token[CHUNK];
    for (int64_t at = 0, n; at <= context; at += n) {
        n = context + 1 - at < CHUNK ? context + 1 - at : CHUNK;
        ring_span(ds, ring, (start + at) % ring->n, n, token);
        bool first = at == 0, last = at + n > context;
        memcpy(inputs + at, token, (size_t)(n - last) * sizeof *inputs);
        memcpy(targets + at - !first, token + first, (size_t)(n - first) * sizeof *targets);
    }
    ring_counted(ds, ring, (start + 1) % ring->n, context, targets);
}

// ---- rows of whole documents ----
//
// With packing, a source has rows in place of windows (packing.h). They are found once when the run begins, 2^17
// documents at a time, so that the packer's memory does not grow with the corpus. Then w = permute_e(sample mod rows)
// is the row. There is no offset, because the borders are those of documents.

// Packs n documents that lie back to back from token `first` of the ring on.
static void add_rows(Ring *ring, const size_t *length, size_t n, int64_t first, int context)
{
    Packing p = packing_make(length, n, (size_t)context, 0);
    size_t n_pieces = ring->n_rows ? ring->row_end[ring->n_rows - 1] : 0, *start = malloc((n + 1) * sizeof *start);
    if (!start) die("memory: no room for %zu documents", n);
    start[0] = (size_t)first;
    for (size_t i = 0; i < n; i++) start[i + 1] = start[i] + length[i];
    ring->piece = words_grow(ring->piece, &ring->cap_pieces, n_pieces + p.n_pieces, sizeof *ring->piece);
    ring->row_end = words_grow(ring->row_end, &ring->cap_rows, ring->n_rows + p.n_rows, sizeof *ring->row_end);
    for (size_t i = 0; i < p.n_pieces; i++)
        ring->piece[n_pieces + i] = (Piece){(int64_t)(start[p.piece[i].document] + p.piece[i].begin),
                                            (int32_t)p.piece[i].length};
    for (size_t r = 0; r < p.n_rows; r++) ring->row_end[ring->n_rows++] = n_pieces + p.row_begin[r + 1];
    packing_free(&p);
    free(start);
}

static void pack_ring(const Dataset *ds, Ring *ring)
{
    int32_t tokens[CHUNK];
    size_t n = 0, *length = malloc(PACK_DOCUMENTS * sizeof *length);
    int64_t first = 0, begin = 0; // start of the documents not yet packed; start of the one being read
    if (!length) die("memory: no room for %d documents", PACK_DOCUMENTS);
    for (int64_t at = 0; at <= ring->n; at++) {
        if (at < ring->n && at % CHUNK == 0)
            dataset_span(ds, ring->first + at, ring->n - at < CHUNK ? ring->n - at : CHUNK, tokens);
        bool end = at == ring->n;
        if (at == begin || (!end && tokens[at % CHUNK] != ds->eot)) continue;
        length[n++] = (size_t)(at - begin);
        begin = at;
        if (n < PACK_DOCUMENTS && !end) continue;
        add_rows(ring, length, n, first, ds->packed);
        first = at, n = 0;
    }
    free(length);
}

void dataset_pack(Dataset *ds, int context, int32_t eot)
{
    check(context > 0 && !ds->packed);
    ds->packed = context;
    ds->eot = eot;
    for (size_t i = 0; i < ds->n_rings; i++) pack_ring(ds, &ds->ring[i]);
}

// The pieces of the row of a sample.
static const Piece *row_of(const Dataset *ds, int64_t sample, uint64_t seed, bool shuffle, const Ring **ring, size_t *n)
{
    Rng rng;
    check(ds->packed);
    *ring = ring_of(ds, &sample);
    if (!(*ring)->n_rows) die("dataset: no tokens in %s", (*ring)->name);
    size_t row = (size_t)place_in_epoch(*ring, sample, (int64_t)(*ring)->n_rows, seed, shuffle, &rng);
    size_t begin = row ? (*ring)->row_end[row - 1] : 0;
    *n = (*ring)->row_end[row] - begin;
    return (*ring)->piece + begin;
}

void dataset_row(const Dataset *ds, int64_t sample, uint64_t seed, bool shuffle, int32_t *inputs, int32_t *targets,
                 int32_t *pos, int32_t *first)
{
    const Ring *ring;
    size_t n_pieces;
    int t = 0;
    const Piece *piece = row_of(ds, sample, seed, shuffle, &ring, &n_pieces);
    for (size_t i = 0; i < n_pieces; i++) {
        int begin = t, n = piece[i].length;
        int64_t behind = piece[i].begin + n; // what follows a document is end-of-text, that of the next one
        dataset_span(ds, ring->first + piece[i].begin, n, inputs + begin);
        for (; t < begin + n; t++) pos[t] = t - begin, first[t] = begin;
        memcpy(targets + begin, inputs + begin + 1, (size_t)(n - 1) * sizeof *targets);
        targets[t - 1] = ds->eot;
        if (behind < ring->n) dataset_span(ds, ring->first + behind, 1, targets + t - 1);
        ring_counted(ds, ring, (piece[i].begin + 1) % ring->n, n, targets + begin);
        if (n == 1 && inputs[begin] == ds->eot && targets[begin] == ds->eot) targets[begin] = -1; // no document
    }
    for (; t < ds->packed; t++) inputs[t] = ds->eot, targets[t] = -1, pos[t] = 0, first[t] = t;
}

static void span_ahead(const Dataset *ds, int64_t first, int64_t n)
{
    for (size_t i = 0; i < ds->n_shards && n > 0; i++) {
        const TokenFile *s = &ds->shard[i];
        if (first >= s->first + s->n) continue;
        int64_t at = first - s->first, take = s->n - at < n ? s->n - at : n;
        file_ahead(s, at, take);
        first += take, n -= take;
    }
}

// The prefetch: it tells the kernel which pages the next samples lie on, and the kernel reads them
// during the step. So the program needs no thread, queue or lock for it, and a resume has no such state to restore.
void dataset_ahead(const Dataset *ds, int64_t sample, int context, uint64_t seed, bool shuffle)
{
    const Ring *ring;
    if (ds->packed) {
        size_t n;
        const Piece *piece = row_of(ds, sample, seed, shuffle, &ring, &n);
        for (size_t i = 0; i < n; i++) span_ahead(ds, ring->first + piece[i].begin, piece[i].length + 1);
        return;
    }
    ring = ring_of(ds, &sample);
    int64_t start = window_start(ring, sample, context, seed, shuffle), end = start + context + 1;
    span_ahead(ds, ring->first + start, end < ring->n ? end - start : ring->n - start);
    if (end > ring->n) span_ahead(ds, ring->first, end - ring->n);
}

// ---- writing ----
struct DatasetWriter {
    DiskOut *out;
    int vocab, token_bytes;
    int64_t n;
};

static void write_all(DatasetWriter *w, const void *data, size_t n_bytes)
{
    if (fwrite(data, 1, n_bytes, w->out->f) != n_bytes)
        die("%s: %s (is the disk full?)", w->out->path, strerror(errno));
}

DatasetWriter *dataset_writer_open(const char *path, int vocab, DatasetType type)
{
    if (type == DATASET_U16 && vocab > UINT16_MAX)
        die("%s: a vocabulary of %d tokens does not fit in uint16, whose limit is %d (use uint32)", path,
            vocab, UINT16_MAX);
    DatasetWriter *w = calloc(1, sizeof *w);
    if (!w) die("memory: no room for a writer");
    w->out = disk_out_open(path);
    w->vocab = vocab;
    w->token_bytes = type == DATASET_U16 || (type == DATASET_AUTO && vocab <= UINT16_MAX) ? 2 : 4;
    int32_t header[HEADER] = {0}; // the magic is written last: an incomplete file is never taken for a shard
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
                die("%s: token %d, but the vocabulary has %d (another tokenizer?)", w->out->path, ids[at + i],
                    w->vocab);
            narrow[i] = (uint16_t)ids[at + i];
        }
        write_all(w, w->token_bytes == 2 ? (const void *)narrow : ids + at, take * (size_t)w->token_bytes);
    }
    w->n += (int64_t)n;
    if (w->n > INT32_MAX) die("%s: more than %d tokens in one shard (write several)", w->out->path, INT32_MAX);
}

int64_t dataset_writer_finish(DatasetWriter *w)
{
    int32_t header[3] = {w->token_bytes == 2 ? DATASET_MAGIC_U16 : DATASET_MAGIC_U32,
                         w->token_bytes == 2 ? DATASET_VERSION_U16 : DATASET_VERSION_U32, (int32_t)w->n};
    if (fseek(w->out->f, 0, SEEK_SET) != 0) die("%s: %s", w->out->path, strerror(errno));
    write_all(w, header, sizeof header);
    disk_out_commit(w->out);
    int64_t n = w->n;
    free(w);
    return n;
}
