// report: the same results for a person and for a program. See plan_show.h.
//
// Code that prints and code that writes JSON drift apart unless they are the same. Here each result is handed over
// once, with a key, a value, a unit and the formula that gives it; text is printed as it comes, JSON is collected and
// printed at the end. So --json has everything that the text has, under the same names, and --explain only adds.
//
// The invariant: a key is printed once in a section (JSON objects cannot have two). Whole numbers up to 2^53 are
// integers in JSON, others have 17 digits.
//
// Rejected: printing tables from the JSON afterwards (units and formulas would have to be in it); a template language.
#include "dev/plan/plan_show.h"

#include "base/check.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 60, COLUMNS = 20 };

struct Report {
    FILE *out;
    bool json, explain, any;
    json_t *root, *section, *table;
    char columns[400]; // of the table, as one text, which column points into
    const char *column[COLUMNS];
    int n_columns;
};

static json_t *must(json_t *value)
{
    if (!value) die("report: no memory");
    return value;
}

// A whole number becomes a JSON integer.
static json_t *json_of(double value)
{
    if (!isfinite(value)) return json_null();
    return value == floor(value) && fabs(value) < 0x1p53 ? json_integer((json_int_t)value) : json_real(value);
}

static void set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new_nocheck(object, key, must(value))) die("report: no memory for '%s'", key);
}

Report *report_begin(FILE *out, bool json, bool explain)
{
    Report *r = calloc(1, sizeof *r);
    if (!r) die("report: no memory");
    *r = (Report){.out = out, .json = json, .explain = explain};
    r->root = r->section = must(json_object());
    return r;
}

void report_section(Report *r, const char *key)
{
    if (!r->json) fprintf(r->out, "%s%s\n", r->any ? "\n" : "", key);
    r->any = true;
    r->section = must(json_object());
    set(r->root, key, r->section);
}

// Whole numbers with all digits, others with five.
static void print_number(FILE *out, double value)
{
    if (value == floor(value) && fabs(value) < 1e15) fprintf(out, "%22.0f", value);
    else fprintf(out, "%22.5g", value);
}

void report_value(Report *r, const char *key, double value, const char *unit, const char *formula, ...)
{
    char text[600] = "";
    if (formula) {
        va_list args;
        va_start(args, formula);
        vsnprintf(text, sizeof text, formula, args);
        va_end(args);
    }
    check(!json_object_get(r->section, key));
    set(r->section, key, json_of(value));
    if (r->json && r->explain && *text) {
        char name[120];
        snprintf(name, sizeof name, "%s: formula", key);
        set(r->section, name, json_string(text));
    }
    if (r->json) return;
    fprintf(r->out, "  %-34s", key);
    print_number(r->out, value);
    fprintf(r->out, " %s\n", unit);
    if (r->explain && *text) fprintf(r->out, "      = %s\n", text);
}

void report_text(Report *r, const char *key, const char *format, ...)
{
    char text[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    check(!json_object_get(r->section, key));
    set(r->section, key, json_string(text));
    if (!r->json) fprintf(r->out, "  %-34s %s\n", key, text);
}

// ---- tables: markdown, which reads well enough in a terminal

void report_table(Report *r, const char *key, const char *columns, ...)
{
    va_list args;
    va_start(args, columns);
    vsnprintf(r->columns, sizeof r->columns, columns, args);
    va_end(args);
    check(!json_object_get(r->section, key));
    r->table = must(json_array()), r->n_columns = 0;
    set(r->section, key, r->table);
    for (char *rest = r->columns; rest && r->n_columns < COLUMNS;) r->column[r->n_columns++] = strsep(&rest, "|");
    if (r->json) return;
    fputs(r->any ? "\n|" : "|", r->out);
    for (int i = 0; i < r->n_columns; i++) fprintf(r->out, " %s |", r->column[i]);
    fputs("\n|", r->out);
    for (int i = 0; i < r->n_columns; i++) fputs("---|", r->out);
    fputc('\n', r->out);
    r->any = true;
}

void report_row(Report *r, const char *formats, ...)
{
    char list[300], *rest = list;
    int i = 0;
    json_t *row = must(json_object());
    va_list args;
    if (json_array_append_new(r->table, row)) die("report: no memory");
    snprintf(list, sizeof list, "%s", formats);
    va_start(args, formats);
    if (!r->json) fputc('|', r->out);
    for (; rest; i++) {
        const char *format = strsep(&rest, "|"), *word = strchr(format, 's') ? va_arg(args, const char *) : NULL;
        double value = word ? NAN : va_arg(args, double);
        char text[CELL];
        check(i < r->n_columns);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        if (!word) snprintf(text, sizeof text, format, value);
#pragma GCC diagnostic pop
        set(row, r->column[i], word ? json_string(word) : json_of(value));
        if (!r->json) fprintf(r->out, " %s |", word ? word : isfinite(value) ? text : "-");
    }
    va_end(args);
    check(i == r->n_columns);
    if (!r->json) fputc('\n', r->out);
}

void report_end(Report *r)
{
    if (r->json) {
        char *text = json_dumps(r->root, JSON_INDENT(2));
        if (!text) die("report: no memory for the JSON");
        fprintf(r->out, "%s\n", text);
        free(text);
    }
    json_decref(r->root);
    if (fflush(r->out) || ferror(r->out)) die("plan: cannot write the result");
    free(r);
}
