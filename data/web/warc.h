// warc: the text in a WET file of a crawl, record by record.
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
    WARC_TEXT,  // a conversion record
    WARC_OTHER, // another type of record: it holds no text
    WARC_LONG   // a conversion record that is longer than max_bytes
} WarcKind;

typedef struct {
    WarcKind kind;
    const char *text; // (n_bytes) TEXT alone; not 0-terminated, until the next call
    size_t n_bytes;
    uint64_t number, offset; // of the record, from 1; where it begins in the unpacked file, in bytes
} WarcRecord;

// Reads by read(arg, ...), read_bytes at a time. path is for messages and must outlive the reader.
Warc *warc_open(const char *path, WarcRead read, void *arg, size_t read_bytes, size_t max_bytes);
// The next record, in the order of the file; false after the last. Dies where no record begins, on a header without a
// length and on a file that ends inside a record, with the offset in the unpacked file; and on a record that holds what
// a server sent (HTML).
bool warc_next(Warc *w, WarcRecord *record);
void warc_close(Warc *w); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
