// pretoken_scan: the two built-in expressions of pretoken.h as plain code, several times as fast.
#ifndef PRETOKEN_SCAN_H
#define PRETOKEN_SCAN_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct PretokenScan PretokenScan;

// `pattern`: "gpt2" or "cl100k"; NULL for any other.
PretokenScan *pretoken_scan_new(const char *pattern);
void pretoken_scan_free(PretokenScan *scan); // NULL is allowed
// Where the piece that starts at `at` (< n) ends: the same place as the expression's match. Any bytes; pieces before
// `at` are not looked at. Fills a table of characters inside `scan`: one thread at a time.
size_t pretoken_scan_end(PretokenScan *scan, const char *text, size_t n, size_t at);

#ifdef __cplusplus
}
#endif
#endif
