// dataset_file: what lies where in a file of tokens, and that nothing else is taken for a token.
//
// Invariant: a token that leaves this file is in [0, vocab), whatever has happened to the file on the disk. Sizes are
// compared when it is opened, and size and time of the last change at every read, so a file that is cut or written
// over during a run ends it with a line that names file and offset, even where the new tokens are tokens. One that is
// replaced by rename or removed stays what it was for who has it open. It is read with pread, not mapped: a page that
// is gone is then an error code, where a mapping would kill the program (SIGBUS). The page cache makes the two equally
// fast.
//
// A file without header could be anything, so it is never guessed: the name must end in :uint16 or :uint32.
//
// Megatron's index holds, after MMIDIDX, version and the type of a token, the lengths of its sequences (int32), where
// they begin (int64, bytes) and which sequences begin a document. Training windows need none of these, only that the
// sequences lie back to back from the start to the end of the .bin. That is checked, and so the index is a checksum of
// the size. GPT-NeoX numbers two types of floats the other way round; they are no tokens.
//
// Rejected: writing these formats (shards of llm.c's say what they are), and int64 tokens (nobody's vocabulary needs
// them).
#include "text/dataset_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "text/dataset.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little-endian and are read as they lie"
#endif

enum { CHUNK = DATASET_FILE_CHUNK, MEGATRON_HEADER = 34 };

int dataset_file_suffix(const char *name, size_t *n_path)
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

// What was read behind `offset` is what was there when the file was opened.
static void check_unchanged(const DatasetFile *f, int64_t offset)
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
static void read_at(const DatasetFile *f, void *out, size_t n, int64_t offset)
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

void dataset_file_read(const DatasetFile *f, int vocab, int64_t at, size_t n, int32_t *out)
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

void dataset_file_ahead(const DatasetFile *f, int64_t at, int64_t n)
{
#ifdef POSIX_FADV_WILLNEED // advice: where it is not taken, reading waits as it would have
    off_t begin = (off_t)(f->offset + at * f->token_bytes);
    (void)posix_fadvise(f->fd, begin, (off_t)(n * f->token_bytes), POSIX_FADV_WILLNEED);
#else
    (void)f, (void)at, (void)n;
#endif
}

// *size: bytes of the file.
static DatasetFile open_file(const char *path, int64_t *size)
{
    DatasetFile f = {.path = strdup(path), .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct stat st;
    if (!f.path) die("memory: no room for a file name");
    if (f.fd < 0 || fstat(f.fd, &st) != 0) die("%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        die("%s: not a file (give a .bin shard or a pattern such as '%s/train_*.bin')", path, path);
    *size = f.size = st.st_size;
    f.changed = change_time(&st);
    return f;
}

void dataset_file_close(DatasetFile *f)
{
    close(f->fd);
    free(f->path);
}

static DatasetFile open_shard(const char *path)
{
    int64_t size;
    DatasetFile f = open_file(path, &size);
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

static DatasetFile open_raw(const char *path, int token_bytes)
{
    int64_t size;
    DatasetFile f = open_file(path, &size);
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
// Sequences must follow each other without a gap; returns the bytes of all.
static int64_t check_sequences(const DatasetFile *idx, int64_t n, int token_bytes)
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

static DatasetFile open_megatron(const char *path)
{
    int64_t size, size_bin;
    uint8_t head[MEGATRON_HEADER];
    uint64_t version, n, n_documents;
    DatasetFile idx = open_file(path, &size);
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
    // n is bounded by the file before it is used; a byte a sequence more where there are modes.
    uint64_t fixed = MEGATRON_HEADER + 8 * n_documents;
    bool fits = n <= (uint64_t)size / 12 && n_documents <= (uint64_t)size / 8 &&
                ((uint64_t)size == fixed + 12 * n || (uint64_t)size == fixed + 13 * n);
    if (!fits)
        die("%s: %lld bytes, but its header says %llu sequences and %llu documents (cut off or damaged?)", path,
            (long long)size, (unsigned long long)n, (unsigned long long)n_documents);
    int64_t bytes = check_sequences(&idx, (int64_t)n, token_bytes);
    char bin[PATH_MAX];
    snprintf(bin, sizeof bin, "%.*s.bin", (int)strlen(path) - 4, path);
    DatasetFile f = open_file(bin, &size_bin);
    if (size_bin != bytes)
        die("%s: %lld bytes, but %s says %lld (cut off or damaged?)", bin, (long long)size_bin, path, (long long)bytes);
    f.token_bytes = token_bytes;
    f.n = bytes / token_bytes;
    dataset_file_close(&idx);
    return f;
}

DatasetFile dataset_file_open(const char *path, int raw)
{
    size_t n = strlen(path);
    if (raw) return open_raw(path, raw);
    return n > 4 && strcmp(path + n - 4, ".idx") == 0 ? open_megatron(path) : open_shard(path);
}
