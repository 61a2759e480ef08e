// report: one list of results, printed for people or as JSON, with the formulas on request.
#ifndef REPORT_H
#define REPORT_H
#include <stdbool.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Report Report;

// explain: every value is followed by its formula, in letters and in numbers.
Report *report_begin(FILE *out, bool json, bool explain);
// A heading; in JSON an object of that key, which holds all that follows until the next one.
void report_section(Report *r, const char *key);
// A number. formula (a printf format, NULL: none) is how it came to be, with the numbers put in.
void report_value(Report *r, const char *key, double value, const char *unit, const char *formula, ...)
    __attribute__((format(printf, 5, 6)));
void report_text(Report *r, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
// A table: its columns (NULL ends them), then for each row a cell for each column; in JSON an array of objects.
void report_table(Report *r, const char *key, const char *const *columns);
void report_cell(Report *r, double value, const char *format);
void report_word(Report *r, const char *text);
// Writes what is left (JSON all at once) and frees; dies when that fails.
void report_end(Report *r);

#ifdef __cplusplus
}
#endif
#endif
