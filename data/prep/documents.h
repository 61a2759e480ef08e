// documents: a corpus on disk in parts, each of which is there completely or not at all.
//
// CorpusStore keeps documents for one run of a program. This keeps them for a preparation that takes days: its files
// have names, survive a kill, and record where each document came from.
#ifndef DOCUMENTS_H
#define DOCUMENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t n_bytes, file; // of its text; number of the file in its source
    uint64_t line;          // of that file, from 1
    uint64_t hash;          // XXH3 of the text
} DocumentRow;

// A part is number `part` of a group: the texts of a few files of the input, whose parts one process makes. The parts
// of all groups, one group after another, are the corpus.

// ---- writing: DIR/part_GROUP_PART.text, .rows and, last, .json
typedef struct {
    char *text;       // (n_bytes) one document after another
    DocumentRow *row; // (n)
    size_t n_bytes, n, cap_text, cap_rows;
} DocumentPart; // starts as {0}

void documents_add(DocumentPart *part, const char *text, size_t n_bytes, uint32_t file, uint64_t line);
// Writes a part, of source `source`, and what `about` says beside "source", "documents" and "bytes" (takes its
// reference), then empties `docs`. When it returns, the part is on the disk; if the program is killed before,
// there is no such part.
void documents_commit(DocumentPart *docs, const char *dir, size_t group, size_t part, size_t source, json_t *about);
void documents_free(DocumentPart *part);
// What documents_commit was told about a part, or NULL when there is no such part. Dies when its files are damaged.
json_t *documents_about(const char *dir, size_t group, size_t part);

// ---- reading
typedef struct Documents Documents;

// All parts of a folder, numbered in their order from 0. In memory: 8 bytes a document. Dies when a file is damaged:
// see documents_about.
Documents *documents_open(const char *dir);
void documents_close(Documents *d); // NULL is allowed
size_t documents_count(const Documents *d); // below 2^32
size_t documents_parts(const Documents *d);
size_t documents_begin(const Documents *d, size_t part); // its first document; at documents_parts: the count
size_t documents_source(const Documents *d, size_t part);
size_t documents_part_of(const Documents *d, size_t i);
size_t documents_size(const Documents *d, size_t i); // bytes of the text of document i
// From any thread. documents_read: false, with errno, when the disk fails, and dies when the text is not the one that
// was written; documents_row dies when the disk fails.
bool documents_read(const Documents *d, size_t i, void *out);
DocumentRow documents_row(const Documents *d, size_t i);

#ifdef __cplusplus
}
#endif
#endif
