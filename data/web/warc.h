// warc: the pages in a WARC file of a crawl, record by record.
#ifndef WARC_H
#define WARC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Warc Warc;

// Gives up to n (at least 1) bytes of the unpacked file; 0 only at its end.
typedef size_t (*WarcRead)(void *arg, void *out, size_t n);

typedef enum {
    WARC_HTML, // body is a page of HTML
    WARC_TEXT, // body is text: of type text/plain, or of a conversion record (WET)
    WARC_OTHER, // no page: another type of record, another media type, a status that is not 200
    WARC_LONG, // the record, or its body without its packing, is longer than max_bytes
    WARC_BAD   // the body cannot be had: `why` says why
} WarcKind;

typedef struct {
    WarcKind kind;
    const char *body; // (n_bytes) HTML and TEXT alone; not 0-terminated, until the next call
    size_t n_bytes;
    char charset[64]; // as the HTTP header has it, "" when it has none; conversion records: "utf-8"
    const char *why;
    uint64_t number, offset; // of the record, from 1; where it begins in the unpacked file, in bytes
} WarcRecord;

// Reads by read(arg, ...), read_bytes at a time. path is for messages and must outlive the reader.
Warc *warc_open(const char *path, WarcRead read, void *arg, size_t read_bytes, size_t max_bytes);
// The next record, in the order of the file; false after the last. Dies where no record begins, on a header without a
// length and on a file that ends inside a record, with the offset in the unpacked file.
bool warc_next(Warc *w, WarcRecord *record);
void warc_close(Warc *w); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
