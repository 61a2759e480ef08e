// corpus: small inputs become a list of documents in memory, for the split. corpus_reader.c reads large ones.
//
// Invariant: documents are the bytes of the files, in order, nothing added or changed; only separators and
// documents of nothing but white space are left out.
//
// The split. Training text must not help to predict the validation text, so the validation part is one
// stretch at the end, not documents drawn at random, and tokenizers are trained on the first part alone. With
// one document of n bytes the cut is at byte floor(n (1 - fraction)), moved back to the start of a character.
//
// Files are read whole. Rejected: mapping them (a file that shrinks meanwhile would kill the program) and
// streaming: the split needs the sizes of all documents before the first one is used.
#define _GNU_SOURCE // memmem
#include "corpus.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "words.h"

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n\f\v", text[i]) || !text[i]) return false;
    return true;
}

static void add_doc(Corpus *corpus, const char *text, size_t n)
{
    if (is_blank(text, n)) return;
    corpus->doc = words_grow(corpus->doc, &corpus->cap_docs, corpus->n_docs + 1, sizeof *corpus->doc);
    corpus->doc[corpus->n_docs++] = (CorpusDoc){text, n};
    corpus->n_bytes += n;
}

CorpusFile corpus_read(const char *path)
{
    CorpusFile file = {.path = strdup(path)};
    size_t cap = 0;
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!file.path) die("memory: no room for a file name");
    if (!f || fstat(fileno(f), &st) != 0) die("%s: %s", path, strerror(errno));
    file.buffer = words_grow(NULL, &cap, (size_t)st.st_size + 2, 1);
    for (size_t k; (k = fread(file.buffer + file.n_bytes, 1, cap - file.n_bytes, f)) > 0;) {
        file.n_bytes += k;
        file.buffer = words_grow(file.buffer, &cap, file.n_bytes + 2, 1); // a pipe, or a file that grows
    }
    if (ferror(f)) die("%s: %s", path, strerror(errno));
    fclose(f);
    return file;
}

static void add_file(Corpus *corpus, const char *path, const char *separator)
{
    CorpusFile file = corpus_read(path);
    corpus->file = words_grow(corpus->file, &corpus->cap_files, corpus->n_files + 1, sizeof *corpus->file);
    corpus->file[corpus->n_files++] = file;
    size_t n_separator = strlen(separator);
    const char *at = file.buffer, *end = file.buffer + file.n_bytes;
    for (const char *next; n_separator && (next = memmem(at, (size_t)(end - at), separator, n_separator));
         at = next + n_separator)
        add_doc(corpus, at, (size_t)(next - at));
    add_doc(corpus, at, (size_t)(end - at));
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); // not alphasort, which follows the locale
}

void corpus_add(Corpus *corpus, const char *path, const char *separator)
{
    size_t n_docs = corpus->n_docs, n_files = corpus->n_files;
    struct stat st;
    if (stat(path, &st) != 0)
        die("%s: %s (the input is a text file, or a folder of them)", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        add_file(corpus, path, separator);
    } else {
        struct dirent **entry;
        int n = scandir(path, &entry, visible, by_bytes);
        if (n < 0) die("%s: %s", path, strerror(errno));
        for (int i = 0; i < n; i++) {
            char *inside = malloc(strlen(path) + strlen(entry[i]->d_name) + 2);
            if (!inside) die("memory: no room for a file name");
            sprintf(inside, "%s/%s", path, entry[i]->d_name);
            if (stat(inside, &st) == 0 && S_ISREG(st.st_mode)) add_file(corpus, inside, separator);
            free(inside);
            free(entry[i]);
        }
        free(entry);
    }
    if (corpus->n_docs == n_docs)
        die("%s: no text in it (%zu files, all empty or white space)", path, corpus->n_files - n_files);
}

// Makes a border between documents inside document i, `at` bytes from its start; 0 < at < its size.
static void cut_doc(Corpus *corpus, size_t i, size_t at)
{
    corpus->doc = words_grow(corpus->doc, &corpus->cap_docs, corpus->n_docs + 1, sizeof *corpus->doc);
    memmove(corpus->doc + i + 1, corpus->doc + i, (corpus->n_docs - i) * sizeof *corpus->doc);
    corpus->n_docs++;
    corpus->doc[i].n_bytes = at;
    corpus->doc[i + 1].text += at;
    corpus->doc[i + 1].n_bytes -= at;
}

size_t corpus_split(Corpus *corpus, double fraction)
{
    if (!(fraction >= 0 && fraction < 1)) die("validation part: %g (a number from 0 to below 1)", fraction);
    if (fraction == 0) return corpus->n_docs;
    uint64_t cut = (uint64_t)((double)corpus->n_bytes * (1 - fraction)), start = 0,
             last = corpus->n_bytes - cut;
    size_t i = 0; // the document that holds byte `cut`
    while (i + 1 < corpus->n_docs && start + corpus->doc[i].n_bytes <= cut) start += corpus->doc[i++].n_bytes;
    uint64_t before = cut - start, after = start + corpus->doc[i].n_bytes - cut; // to the two borders
    if (i > 0 && before <= after && 2 * before <= last) return i;
    if (i + 1 < corpus->n_docs && after < before && 2 * after <= last) return i + 1;
    if (i > 0 && 2 * before <= last) return i;
    const char *text = corpus->doc[i].text;
    uint64_t at = before;
    for (int k = 0; k < 3 && at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80; k++) at--;
    if (at == 0 || at >= corpus->doc[i].n_bytes)
        die("validation part: %g of %llu bytes leaves nothing on one side (more text, or another part)",
            fraction, (unsigned long long)corpus->n_bytes);
    cut_doc(corpus, i, at);
    return i + 1;
}

void corpus_free(Corpus *corpus)
{
    for (size_t i = 0; i < corpus->n_files; i++) {
        free(corpus->file[i].path);
        free(corpus->file[i].buffer);
    }
    free(corpus->file);
    free(corpus->doc);
    *corpus = (Corpus){0};
}
