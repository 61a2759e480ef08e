// corpus: documents kept on disk, so that they can be seen twice; and their split. corpus_reader.c reads them.
//
// Invariant: what is read back are the bytes that were added, in their order; nothing depends on when or by which
// thread. Document i lies between end[i - 1] and end[i] of one file without a name.
//
// Why keep them at all: the split needs the sizes of all documents before the first one is used, a tokenizer is
// trained before anything is encoded, and duplicates are compared long after they were read. Standard input cannot be
// read again, and a packed file not from its middle. Rejected: memory (a corpus is larger), reading places of plain
// files and spooling only the others (two paths to test, and a file that changes meanwhile), and mapping the file
// (a disk that fails would kill the program).
//
// The split. Training text must not help to predict the validation text, so the validation part is one
// stretch at the end, not documents drawn at random, and tokenizers are trained on the first part alone. With
// one document of n bytes the cut is at byte floor(n (1 - fraction)), moved back to the start of a character.
#include "data/prep/corpus.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "data/prep/stream.h"
#include "base/words.h"

struct CorpusStore {
    FILE *f;
    uint64_t *end; // (n), bytes of the file
    size_t n, cap;
    char folder[PATH_MAX];
};

static uint64_t start_of(const CorpusStore *s, size_t i)
{
    return i ? s->end[i - 1] : 0;
}

CorpusStore *corpus_store_open(const char *folder)
{
    CorpusStore *s = calloc(1, sizeof *s);
    char path[PATH_MAX + 32];
    if (!s) die("memory: no room for a store of documents");
    if (!folder) folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    snprintf(path, sizeof path, "%s/corpus_XXXXXX", s->folder);
    int fd = mkstemp(path);
    if (fd < 0) die("%s: no temporary file: %s (name a folder that can be written to)", s->folder, strerror(errno));
    unlink(path);
    s->f = fdopen(fd, "r+b");
    if (!s->f || setvbuf(s->f, NULL, _IOFBF, 1 << 20) != 0) die("memory: no room for a store of documents");
    return s;
}

void corpus_store_add(CorpusStore *s, const void *bytes, size_t n_bytes)
{
    if (fwrite(bytes, 1, n_bytes, s->f) != n_bytes)
        die("%s: temporary file: %s (name a folder with more room)", s->folder, strerror(errno));
    s->end = words_grow(s->end, &s->cap, s->n + 1, sizeof *s->end);
    s->end[s->n] = start_of(s, s->n) + n_bytes;
    s->n++;
}

void corpus_store_finish(CorpusStore *s)
{
    if (fflush(s->f) != 0) die("%s: temporary file: %s (name a folder with more room)", s->folder, strerror(errno));
}

size_t corpus_store_count(const CorpusStore *s)
{
    return s->n;
}

uint64_t corpus_store_bytes(const CorpusStore *s)
{
    return start_of(s, s->n);
}

size_t corpus_store_size(const CorpusStore *s, size_t i)
{
    return (size_t)(s->end[i] - start_of(s, i));
}

static bool read_at(const CorpusStore *s, uint64_t at, char *out, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = pread(fileno(s->f), out + got, n - got, (off_t)(at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k == 0) errno = EIO; // shorter than what was written
        if (k <= 0) return false;
        got += (size_t)k;
    }
    return true;
}

bool corpus_store_read(const CorpusStore *s, size_t i, void *out)
{
    return read_at(s, start_of(s, i), out, corpus_store_size(s, i));
}

size_t corpus_store_split(CorpusStore *s, double fraction)
{
    if (!(fraction >= 0 && fraction < 1)) die("validation part: %g (a number from 0 to below 1)", fraction);
    if (fraction == 0) return s->n;
    uint64_t n_bytes = corpus_store_bytes(s), cut = (uint64_t)((double)n_bytes * (1 - fraction)), last = n_bytes - cut;
    size_t i = 0; // the document that holds byte `cut`
    while (i + 1 < s->n && s->end[i] <= cut) i++;
    uint64_t start = start_of(s, i), before = cut - start, after = s->n ? s->end[i] - cut : 0; // to the two borders
    if (i > 0 && before <= after && 2 * before <= last) return i;
    if (i + 1 < s->n && after < before && 2 * after <= last) return i + 1;
    if (i > 0 && 2 * before <= last) return i;
    char at_cut[4] = {0}; // the bytes up to `cut`, which is one of them
    uint64_t at = before, from = before < 3 ? 0 : before - 3;
    if (after > 0 && !read_at(s, start + from, at_cut, (size_t)(before - from + 1)))
        die("%s: temporary file: %s", s->folder, strerror(errno));
    for (int k = 0; k < 3 && at > 0 && ((uint8_t)at_cut[at - from] & 0xC0) == 0x80; k++) at--;
    if (at == 0 || after == 0)
        die("validation part: %g of %llu bytes leaves nothing on one side (more text, or another part)",
            fraction, (unsigned long long)n_bytes);
    s->end = words_grow(s->end, &s->cap, s->n + 1, sizeof *s->end);
    memmove(s->end + i + 1, s->end + i, (s->n - i) * sizeof *s->end);
    s->end[i] = start + at;
    s->n++;
    return i + 1;
}

void corpus_store_close(CorpusStore *s)
{
    if (!s) return;
    fclose(s->f); // only read since it was finished
    free(s->end);
    free(s);
}

char *corpus_read(const char *path, size_t *n_bytes)
{
    Stream *stream = stream_open(path, 1 << 20);
    char *text = NULL;
    size_t n = 0, cap = 0;
    for (;;) {
        text = words_grow(text, &cap, n + (1 << 16), 1);
        size_t k = stream_read(stream, text + n, cap - n - 1);
        if (k == 0) break;
        n += k;
    }
    stream_close(stream);
    text[n] = 0;
    *n_bytes = n;
    return text;
}

bool corpus_write_json(FILE *out, const char *text, size_t n, const char *source, uint64_t index)
{
    // A file name may be anything.
    json_t *line = json_pack("{s:s%, s:s, s:I}", "text", text, n, "source", source, "index", (json_int_t)index);
    if (!line) line = json_pack("{s:s%, s:I}", "text", text, n, "index", (json_int_t)index);
    if (!line) errno = ENOMEM;
    bool ok = line && json_dumpf(line, out, JSON_COMPACT) == 0 && fputc('\n', out) != EOF;
    json_decref(line);
    return ok;
}
