// corpus: documents in files of several formats, one after another or as a list that is split. Layer 0.
//
// corpus_open and corpus_next read a corpus of any size in bounded memory, as valid UTF-8. corpus_add puts small
// inputs into memory as they are, for corpus_split.
#ifndef CORPUS_H
#define CORPUS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// ---- one document after another (corpus_reader.c) ----
typedef enum {
    CORPUS_AUTO, // by name, .gz and .zst aside: .jsonl, .ndjson and .json are JSONL, all else text
    CORPUS_TEXT, // a file is one document, or several with separators between them
    CORPUS_JSONL // every line an object; one of its fields is the document
} CorpusFormat;

// {0} is a good start: 0 and NULL stand for the values in brackets.
typedef struct {
    CorpusFormat format;
    const char *separator; // text: stands between documents, anywhere, e.g. "<|endoftext|>" [none]; or
    const char *line;      // text: a line that is this and nothing else does; "": an empty line [none]
    const char *field;     // JSONL ["text"]
    size_t max_bytes;      // of a document [64 MiB]
    size_t read_bytes;     // asked for at a time [1 MiB]; never changes what comes out
    bool strict;           // die on a bad line of JSONL, instead of leaving it out
    FILE *log;             // the first bad lines are reported here, as FILE:LINE: why [none]
} CorpusOptions;

typedef struct {
    const char *text; // (n_bytes) valid UTF-8 without NUL, not 0-terminated; until the next call
    size_t n_bytes;
    const char *path; // the file
    uint64_t index;   // of the document in its file, from 0, of those that are given
    uint64_t line;    // JSONL: from 1; text: 0
    uint64_t offset;  // where it starts in the unpacked file, in bytes
} CorpusRecord;

typedef struct {
    uint64_t files, documents;
    uint64_t bytes_in, bytes_out;  // unpacked; of the documents given
    uint64_t bad_utf8, nul, bom;   // replaced by U+FFFD; replaced by U+FFFD; byte order marks removed
    uint64_t bad_lines, empty;     // left out: lines that are no such object; documents of white space only
    uint64_t too_long;             // text: cut after max_bytes; JSONL: lines left out
} CorpusCounts;

typedef struct CorpusReader CorpusReader;

// Files, folders (every file inside, at any depth, in the order of the bytes of their names at each level; no names
// that start with a dot, no linked folders) and "-", standard input. Dies when one cannot be read. The strings must
// outlive the reader.
CorpusReader *corpus_open(const char *const *path, size_t n_paths, CorpusOptions options);
// False after the last document. Dies on a file that cannot be read or is damaged (see stream.h).
bool corpus_next(CorpusReader *r, CorpusRecord *out);
CorpusCounts corpus_counts(const CorpusReader *r); // so far
void corpus_close(CorpusReader *r);                // NULL is allowed
void corpus_print(const CorpusCounts *counts, FILE *out); // a line, and one more if anything was amiss
CorpusFormat corpus_format(const char *name); // "auto", "text", "jsonl"; dies on any other

// A source of a mixture: what to read, and its share.
typedef struct {
    char *name, *path; // path: as given, behind the folder of the manifest when it is relative
    double weight;     // > 0; shares are weight / sum of weights
    char *separator, *line, *field; // NULL: not set; they live as long as the CorpusSources
    CorpusFormat format;
} CorpusSource;

typedef struct {
    CorpusSource *source; // (n), in the order of the file
    size_t n, cap;
} CorpusSources;

// Reads a manifest (corpus_sources.c): sections [source.NAME] with path, and weight [1], format, separator, line,
// field. Dies with FILE:LINE on what it does not know, and on a manifest without a source.
CorpusSources corpus_sources(const char *path);
void corpus_sources_free(CorpusSources *sources);

// ---- a list in memory, and its split ----
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
