// extsort: sorts more records than memory holds.
//
// A record is n_words 64-bit numbers; records are ordered by their first word, then the second, and so on, so
// the order is total and the result does not depend on how much memory there was.
#ifndef EXTSORT_H
#define EXTSORT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define EXTSORT_MAX_WORDS 4
#define EXTSORT_MIN_BYTES 4096

// Sorts n records in place.
void extsort_sort(uint64_t *record, size_t n, size_t n_words);

typedef struct Extsort Extsort;

// Holds memory_bytes (EXTSORT_MIN_BYTES at least) until it is closed; what does not fit goes to files in `folder`
// (NULL: $TMPDIR, else /tmp) that have no name, so a program that is killed leaves no file. Dies when
// a file cannot be made, written or read.
Extsort *extsort_open(const char *folder, size_t n_words, size_t memory_bytes);
void extsort_add(Extsort *s, const uint64_t *record); // one record; any number of calls, then:
void extsort_finish(Extsort *s);
// The next record in order, false after the last one.
bool extsort_next(Extsort *s, uint64_t *record);
uint64_t extsort_spilled_bytes(const Extsort *s); // written to files so far, every pass counted
void extsort_close(Extsort *s);                   // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
