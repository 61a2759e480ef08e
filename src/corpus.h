// corpus: text files as a list of documents, and their split into training and validation. Layer 0.
#ifndef CORPUS_H
#define CORPUS_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *text; // in a buffer of the corpus; not 0-terminated
    size_t n_bytes;
} CorpusDoc;

typedef struct {
    char *path, *buffer;
    size_t n_bytes;
} CorpusFile;

typedef struct {
    CorpusDoc *doc; // (n_docs), in the order of the input
    size_t n_docs, cap_docs;
    CorpusFile *file;
    size_t n_files, cap_files;
    uint64_t n_bytes; // of all documents
} Corpus;             // starts as {0}

// The whole of one file (or pipe); free path and buffer. Dies when it cannot be read.
CorpusFile corpus_read(const char *path);

// Adds a file, or every regular file of a folder in the order of their names (not those that start with a
// dot, and not the folders inside). A file is one document, or several with `separator` between them; the
// separator itself is dropped, and so are documents of nothing but white space. Dies when a path cannot be
// read or has no text.
void corpus_add(Corpus *corpus, const char *path, const char *separator);

// Cuts off the last `fraction` (0 to 1) of the bytes and returns the number of the first document that lies
// after the cut. The cut moves to the nearest border between documents when that changes the last part by at
// most a half of itself; else it goes through a document, which becomes two, before the first byte of a UTF-8
// character.
size_t corpus_split(Corpus *corpus, double fraction);

void corpus_free(Corpus *corpus);

#ifdef __cplusplus
}
#endif
#endif
