// parquet: one column of strings of a Parquet file, row by row.
#ifndef PARQUET_H
#define PARQUET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Parquet Parquet;

typedef struct {
    const char *text; // (n_bytes) as they are in the file, not 0-terminated, until the next call; NULL: a null
    size_t n_bytes;
    uint64_t offset; // of its page in the file
} ParquetRow;

// Opens a file and finds a column, by its name or, inside groups, by a path with dots: meta.text. A page of more than
// max_page bytes, packed or not, is an error, whose message says to raise `raise`. Dies on what is not a regular file,
// is damaged or has features that are not read here (see parquet.c), and when there is no such column of strings;
// then the message names those that are there.
Parquet *parquet_open(const char *path, const char *column, size_t max_page, const char *raise);
// The next row, in the order of the file; false after the last. Dies on damage, with the offset in the file.
bool parquet_next(Parquet *p, ParquetRow *row);
void parquet_close(Parquet *p);     // NULL is allowed
bool parquet_is(const char *path);  // a regular file that begins as Parquet does?

#ifdef __cplusplus
}
#endif
#endif
