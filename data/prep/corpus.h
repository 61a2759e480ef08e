// corpus: documents in files of several formats, one after another, kept on disk, and split.
//
// corpus_open and corpus_next read a corpus of any size in bounded memory, as valid UTF-8. Documents that are needed
// twice (for a split, for duplicates) go through a CorpusStore.
#ifndef CORPUS_H
#define CORPUS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "text/sources.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { CORPUS_MIB = 64, CORPUS_MOST_MIB = 4095 }; // of the longest document: unless the user says otherwise; at most

// ---- one document after another ---- Starts as {0}: 0 and NULL
// stand for the values in brackets.
typedef struct {
    SourceFormat format;
    const char *separator; // text: stands between documents, anywhere, e.g. "<|endoftext|>" [none]; or
    const char *line;      // text: a line that is this and nothing else does; "": an empty line [none]
    bool lines;            // JSONL: a line as it is is the document
    const char *field;     // JSONL; Parquet: a column, or a path to one ["text"]
    size_t max_bytes;      // of a document, of JSONL: of its line [CORPUS_MIB MiB]; of Parquet's pages 16 times that
    const char *raise;     // how the user gives a larger max_bytes, for messages ["max_bytes"]
    size_t read_bytes;     // asked for at a time [1 MiB]; never changes what comes out
    bool strict;           // die on a bad line of JSONL, and on a row or record that is too long, instead of leaving it
                           // out
    FILE *log;             // the first bad lines are reported here, as FILE:LINE: why [none]
} CorpusOptions;

typedef struct {
    const char *text; // (n_bytes) valid UTF-8 without NUL, not 0-terminated; until the next call
    size_t n_bytes;
    const char *json; // (n_json) JSONL: its whole line, valid UTF-8, not 0-terminated; text: NULL
    size_t n_json;
    const char *path; // the file; until corpus_close
    uint64_t index;   // of the document in its file, from 0, of those that are given
    uint64_t line;    // where it starts in the unpacked file, from 1; Parquet: its row; WARC: its record
    uint64_t offset;  // the same in bytes, from 0; Parquet: of its page
} CorpusRecord;

typedef struct {
    uint64_t files, documents;
    uint64_t bytes_in, bytes_out;  // unpacked; of the documents given
    uint64_t bad_utf8, nul, bom;   // replaced by U+FFFD; replaced by U+FFFD; byte order marks removed
    uint64_t damaged;              // documents with more than one of bad_utf8 in 100 bytes
    uint64_t bad_lines, empty;     // left out: lines that are no such object; documents of white space, nothing, null
    uint64_t too_long;             // lines of JSONL, rows and records left out
    uint64_t no_text;              // records of WARC left out that hold none
    uint64_t not_files;            // entries of folders left out: links to folders or to nothing, devices
} CorpusCounts;

typedef struct {
    const char *path;
    uint64_t n_bytes, hash[2]; // unpacked, Parquet: as it is; XXH3, the high half of its 128 bits first
} CorpusFile;

typedef struct CorpusReader CorpusReader;

// Files, folders (every file inside, at any depth, in the order of the bytes of their names at each level; no names
// that start with a dot, no linked folders) and "-", standard input. A path that ends in .paths (or .paths.gz, .zst) is
// a list: on each line a file or folder to read, relative to the list's own folder. Dies when one cannot be read, and
// when a folder or list has no file. The strings must outlive the reader.
CorpusReader *corpus_open(const char *const *path, size_t n_paths, CorpusOptions options);
// False after the last document. Dies on a file that cannot be read, is damaged or of a foreign format (stream_open),
// on UTF-16 and UTF-32 with a byte order mark, and on a text document longer than max_bytes.
bool corpus_next(CorpusReader *r, CorpusRecord *out);
CorpusCounts corpus_counts(const CorpusReader *r); // so far
// The files that have been read to their ends, *n of them; so *n is also the number of the one being read.
const CorpusFile *corpus_files(const CorpusReader *r, size_t *n);
const CorpusFile *corpus_all_files(const CorpusReader *r, size_t *n); // those to come too, without their hashes
void corpus_close(CorpusReader *r);                // NULL is allowed
// How a file is read: as `given`, or for SOURCE_AUTO by its name, else as Parquet or WARC by its first bytes, or text.
SourceFormat corpus_format(const char *path, SourceFormat given);
// How many of the files have fields: JSONL and Parquet; *n_text (NULL is allowed): how many are text.
size_t corpus_count_fields(const char *const *path, size_t n_paths, CorpusOptions options, size_t *n_text);
// Says where more than a tenth of the documents are lost (bad_lines, too_long, damaged), and returns the exit status
// that then follows, else 0. Dies with it where there is no document.
enum { CORPUS_LOST = 3 };
int corpus_judge(const CorpusCounts *counts, const char *name);
void corpus_print(const CorpusCounts *counts, FILE *out); // a line, and one more if anything was amiss

// ---- documents kept, and their split ----
typedef struct CorpusStore CorpusStore;

// A file without a name in `folder` (NULL: $TMPDIR, else /tmp), as large as what is added; nothing is left of it when
// the program ends, however it ends. In memory: 8 bytes a document. Adding dies when the disk is full.
CorpusStore *corpus_store_open(const char *folder);
void corpus_store_add(CorpusStore *s, const void *bytes, size_t n_bytes);
// Ends the adding; everything below comes after it.
void corpus_store_finish(CorpusStore *s);
size_t corpus_store_count(const CorpusStore *s);
uint64_t corpus_store_bytes(const CorpusStore *s);          // of all documents
size_t corpus_store_size(const CorpusStore *s, size_t i);   // of document i
// Document i, in any order and from any number of threads. False, with errno, when the disk fails.
bool corpus_store_read(const CorpusStore *s, size_t i, void *out);
// Cuts off the last `fraction` (0 to 1) of the bytes and returns the number of the first document that lies after the
// cut. The cut moves to the nearest border between documents if that changes the last part by at most half of its size.
// Otherwise it divides a document into two, before the first byte of a UTF-8 character.
size_t corpus_store_split(CorpusStore *s, double fraction);
void corpus_store_close(CorpusStore *s); // NULL is allowed

// ---- the bytes of a file from its beginning to its end, unpacked on the way: gzip, zstd (stream.c) ----
typedef struct Stream Stream;

// Opens a file that is asked for read_bytes (at least 1) at a time; "-" is standard input. Its first bytes say how it
// is packed, whatever its name; a name that ends in .gz or .zst (in upper or lower case) says that it must be. Dies
// when the file cannot be opened, and when its first bytes are those of a format that is not unpacked here.
Stream *stream_open(const char *path, size_t read_bytes);
// Up to n (at least 1) bytes of content; 0 only at the end. Members and frames that follow each other are read as
// one content. Dies, with the file and the offset in the packed bytes, on damage and when the file ends too early.
size_t stream_read(Stream *s, void *out, size_t n);
// Dies where what begins so (n bytes, STREAM_LOOK of them tell it) is a known other format; text: unpacked, to be read
// as text or JSONL.
enum { STREAM_LOOK = 264 };
void stream_refuse(const char *path, const void *begin, size_t n, bool text);
void stream_close(Stream *s); // NULL is allowed

// ---- one file ----
// The unpacked content of a file ("-": standard input) as it is, with a 0 after it; free() it. Dies as stream_open, and
// when it is longer than options.max_bytes; nothing else in options matters.
char *corpus_read(const char *path, size_t *n_bytes, CorpusOptions options);
// A line of JSONL: text (n bytes of valid UTF-8), source (left out when it is not UTF-8), index. False: errno.
bool corpus_write_json(FILE *out, const char *text, size_t n, const char *source, uint64_t index);

#ifdef __cplusplus
}
#endif
#endif
