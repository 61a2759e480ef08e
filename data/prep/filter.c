// filter: runs the table of rules over documents, and keeps the books.
//
// Invariant: for every rule that is on, seen = removed + passed on, and what one rule passes on the next one sees:
//
//     documents kept = documents in - sum of removed
//     bytes kept     = bytes in - sum of (bytes removed + bytes edited)
//
// A document is removed once, by the first rule that rejects it, with the size that it has then. An edit that leaves
// nothing but white space removes the document. An edited text is analysed again, so that later rules judge what
// will be written.
//
// Rejected: running all rules to count what each would remove alone (the counts would not add up; `--rules NAME`
// runs a rule alone), and scores added up over rules (no paper has thresholds for them).
//
// Reports. Nothing from a document gets into a report unescaped: in the page & < > " ' become entities, and control
// characters are shown as their pictures (U+2400 and up), which also keeps a terminal's escape sequences out of the
// table. The page loads nothing: no script, no font, no picture. Rejected: whole documents as examples (a report may be
// passed on to others).
#include "data/prep/filter.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/disk.h"
#include "base/words.h"

enum { EXCERPT = 240 };

struct Filter {
    FilterState *state; // (filter_n_rules)
    FilterCounts all;
    FilterDoc doc;
    uint8_t *letter;
    char *edited[2]; // what one edit reads and the next one writes
    size_t cap_edited[2];
    Words bad;
    int max_examples;
};

static int find_rule(const char *name, size_t n)
{
    for (int i = 0; i < filter_n_rules; i++)
        if (strlen(filter_rules[i].name) == n && memcmp(filter_rules[i].name, name, n) == 0) return i;
    return -1;
}

Filter *filter_new(const char *rules, int examples)
{
    Filter *f = calloc(1, sizeof *f);
    FilterState *state = calloc((size_t)filter_n_rules, sizeof *state);
    if (!f || !state) die("filter: no memory");
    f->state = state;
    f->max_examples = examples;
    f->letter = filter_rules_letters();
    f->doc.letter = f->letter;
    for (int i = 0; i < filter_n_rules; i++) {
        state[i].min = filter_rules[i].min, state[i].max = filter_rules[i].max;
        state[i].example = calloc((size_t)examples + 1, sizeof *state[i].example);
        if (!state[i].example) die("filter: no memory");
    }
    for (const char *at = rules; *at;) {
        size_t n = strcspn(at, ",");
        bool any = false;
        for (int i = 0; i < filter_n_rules; i++) {
            const char *name = filter_rules[i].name;
            if (n == 0 || strncmp(name, at, n) != 0) continue;
            if (name[n] == 0 || (name[n] == '.' && !memchr(at, '.', n))) state[i].on = any = true;
        }
        if (!any) die("filter: '%.*s': no such rule or set (guide, c4, gopher, repeat; --list shows all)", (int)n, at);
        at += n + (at[n] == ',');
    }
    return f;
}

void filter_free(Filter *f)
{
    if (!f) return;
    for (int i = 0; i < filter_n_rules; i++) {
        for (int k = 0; k < f->state[i].n_examples; k++) {
            free(f->state[i].example[k].text);
            free(f->state[i].example[k].path);
        }
        free(f->state[i].example);
    }
    free(f->state);
    free(f->letter);
    free(f->edited[0]);
    free(f->edited[1]);
    filter_rules_free(&f->doc);
    words_free(&f->bad);
    free(f);
}

void filter_set(Filter *f, const char *assignment)
{
    size_t n = strcspn(assignment, "=");
    bool low = n > 4 && memcmp(assignment + n - 4, ".min", 4) == 0;
    bool high = n > 4 && memcmp(assignment + n - 4, ".max", 4) == 0;
    int rule = low || high ? find_rule(assignment, n - 4) : -1;
    if (rule < 0 || !isfinite(low ? filter_rules[rule].min : filter_rules[rule].max))
        die("filter: '%s': no such threshold (RULE.min=NUMBER or RULE.max=NUMBER; --list shows all)", assignment);
    if (!f->state[rule].on)
        die("filter: '%s': has no effect: %s is not among the rules", assignment, filter_rules[rule].name);
    char *end;
    double value = assignment[n] ? strtod(assignment + n + 1, &end) : NAN;
    if (!isfinite(value) || end == assignment + n + 1 || *end) die("filter: '%s': not a number after =", assignment);
    if (filter_rules[rule].edit == filter_rules_spans && !(value >= 2 && value <= 1000))
        die("filter: '%s': spans have 2 to 1000 words", assignment);
    if (low) f->state[rule].min = value;
    else f->state[rule].max = value;
}

void filter_bad_words(Filter *f, const char *path)
{
    size_t n;
    if (!f->state[find_rule("c4.bad_words", 12)].on)
        die("filter: %s: has no effect: c4.bad_words is not among the rules", path);
    char *text = disk_read_file(path, &n, 1 << 26);
    if (!text) die("%s: cannot read the list of words: %s", path, strerror(errno));
    for (char *at = text, *next; at < text + n; at = next) {
        size_t k = strcspn(at, "\n"), words = 0, o = 0;
        next = at + k + 1;
        for (size_t i = 0; i < k; i++) { // lower case, one space between words
            if (strchr(" \t\r", at[i])) continue;
            if (i == 0 || strchr(" \t\r", at[i - 1])) {
                if (words++) at[o++] = ' ';
            }
            at[o++] = at[i] >= 'A' && at[i] <= 'Z' ? (char)(at[i] | 32) : at[i];
        }
        if (!o) continue;
        if (o >= 256) die("%s: a phrase of %zu bytes: %.40s... (at most 255)", path, o, at);
        words_add(&f->bad, at, o);
        if (words > f->doc.bad_words) f->doc.bad_words = words;
    }
    free(text);
    f->doc.bad = &f->bad;
}

static void keep_example(Filter *f, int rule, const char *text, size_t n, double value, const char *path,
                         uint64_t line)
{
    FilterState *s = &f->state[rule];
    if (s->n_examples >= f->max_examples) return;
    size_t k = n <= EXCERPT ? n : words_utf8_border(text, n, EXCERPT);
    FilterExample *e = &s->example[s->n_examples++];
    *e = (FilterExample){.text = malloc(k + 1), .path = strdup(path), .n = k, .line = line, .value = value};
    if (!e->text || !e->path) die("filter: no memory for an example");
    memcpy(e->text, text, k);
    e->text[k] = 0;
}

// Runs an editing rule over f->doc into the free buffer; the pieces taken out.
static size_t edit(Filter *f, int rule, size_t *n_out, FilterWord *first, char **out)
{
    FilterDoc *d = &f->doc;
    int to = d->text == f->edited[0];
    f->edited[to] = words_grow(f->edited[to], &f->cap_edited[to], d->n + 1, 1);
    *out = f->edited[to];
    return filter_rules[rule].edit(d, f->state[rule].min, *out, n_out, first);
}

bool filter_document(Filter *f, const char *text, size_t n, const char *path, uint64_t line, const char **kept,
                     size_t *n_kept)
{
    FilterDoc *d = &f->doc;
    if (n > UINT32_MAX) die("filter: a document of %zu bytes (at most 4 GiB)", n);
    f->all.seen++;
    filter_rules_split(d, text, n);
    for (int i = 0; i < filter_n_rules; i++) {
        FilterState *s = &f->state[i];
        if (!s->on) continue;
        s->counts.seen++;
        double value = 0;
        bool keep;
        if (filter_rules[i].edit) {
            FilterWord first = {0};
            size_t n_out = 0;
            char *out;
            size_t pieces = edit(f, i, &n_out, &first, &out);
            if (!pieces) continue;
            value = (double)pieces;
            keep_example(f, i, d->text + first.at, first.n, value, path, line);
            s->counts.edited++;
            s->counts.bytes_edited += d->n - n_out;
            filter_rules_split(d, out, n_out);
            keep = d->n_words > 0;
        } else {
            value = filter_rules[i].value(d, filter_rules[i].arg);
            keep = value >= s->min && value <= s->max;
            if (!keep) keep_example(f, i, d->text, d->n, value, path, line);
        }
        if (keep) continue;
        s->counts.removed++;
        s->counts.bytes_removed += d->n;
        f->all.removed++;
        f->all.bytes_removed += n;
        return false;
    }
    *kept = d->text;
    *n_kept = d->n;
    if (d->text != text) f->all.edited++, f->all.bytes_edited += n - d->n;
    return true;
}

double filter_value(Filter *f, const char *rule, const char *text, size_t n)
{
    int i = find_rule(rule, strlen(rule));
    if (i < 0) die("filter: '%s': no such rule (--list shows all)", rule);
    filter_rules_split(&f->doc, text, n);
    if (!filter_rules[i].edit) return filter_rules[i].value(&f->doc, filter_rules[i].arg);
    FilterWord first;
    size_t n_out;
    char *out;
    return (double)edit(f, i, &n_out, &first, &out);
}

FilterCounts filter_counts(const Filter *f, const char *rule)
{
    if (!rule) return f->all;
    int i = find_rule(rule, strlen(rule));
    if (i < 0) die("filter: '%s': no such rule (--list shows all)", rule);
    return f->state[i].counts;
}

const FilterState *filter_state(const Filter *f, int rule)
{
    return &f->state[rule];
}

// ---- reports

// The examples of a rule in the terminal's report, each a line, and the bytes of text in each.
enum { PRINTED = 2, SHORT = 60 };

static void escaped(FILE *out, const char *text, size_t n, bool html)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c == 0x7F) fprintf(out, "\xE2\x90%c", c == 0x7F ? 0xA1 : 0x80 + c);
        else if (c == 0xC2 && i + 1 < n && (unsigned char)text[i + 1] < 0xA0) fputs("\xEF\xBF\xBD", out), i++; // C1
        else if (html && strchr("&<>\"'", c)) fprintf(out, "&#%d;", c);
        else fputc(c, out);
    }
}

static void thresholds(char text[64], const FilterRule *r, double min, double max)
{
    bool low = isfinite(r->min), high = isfinite(r->max);
    if (low && high) snprintf(text, 64, "%g to %g", min, max);
    else if (low) snprintf(text, 64, r->edit ? "%g" : "at least %g", min);
    else if (high) snprintf(text, 64, "at most %g", max);
    else snprintf(text, 64, "-");
}

// What a rule removed: its paper, and examples of one line, "PATH:LINE: value, threshold: text".
static void print_examples(FILE *out, const FilterRule *r, const FilterState *s)
{
    char limit[64];
    if (!s->counts.removed && !s->counts.edited) return;
    thresholds(limit, r, s->min, s->max);
    fprintf(out, "by %s: %s (%s)\n", r->name, r->what, r->paper);
    for (int i = 0; i < s->n_examples && i < PRINTED; i++) {
        const FilterExample *e = &s->example[i];
        size_t n = e->n <= SHORT ? e->n : words_utf8_border(e->text, e->n, SHORT);
        fputs("  ", out);
        escaped(out, e->path, strlen(e->path), false);
        fprintf(out, ":%llu: %g", (unsigned long long)e->line, e->value);
        if (r->edit) fputs(" taken out, the first one: ", out);
        else fprintf(out, ", kept is %s: ", limit);
        escaped(out, e->text, n, false);
        fputs(n < e->n ? "...\n" : "\n", out);
    }
}

// A line for each rule that is on: name, threshold, and five counts.
static void print_rules(const Filter *f, FILE *out, const char *format)
{
    char limit[64];
    for (int i = 0; i < filter_n_rules; i++) {
        const FilterState *s = &f->state[i];
        if (!s->on) continue;
        thresholds(limit, &filter_rules[i], s->min, s->max);
        fprintf(out, format, filter_rules[i].name, limit, (unsigned long long)s->counts.seen,
                (unsigned long long)s->counts.removed, (unsigned long long)s->counts.bytes_removed,
                (unsigned long long)s->counts.edited, (unsigned long long)s->counts.bytes_edited);
    }
}

static void print_sum(const Filter *f, FILE *out)
{
    FilterCounts all = f->all;
    fprintf(out, "%llu documents in, %llu removed, %llu kept, %llu of them edited", (unsigned long long)all.seen,
            (unsigned long long)all.removed, (unsigned long long)(all.seen - all.removed),
            (unsigned long long)all.edited);
}

void filter_print(const Filter *f, FILE *out)
{
    fprintf(out, "%-30s %-16s %10s %10s %14s %10s %14s\n", "rule", "threshold", "seen", "removed", "bytes", "edited",
            "bytes");
    print_rules(f, out, "%-30s %-16s %10llu %10llu %14llu %10llu %14llu\n");
    for (int i = 0; i < filter_n_rules; i++) print_examples(out, &filter_rules[i], &f->state[i]);
    print_sum(f, out);
    fputc('\n', out);
}

static void html_rule(FILE *out, const FilterRule *r, const FilterState *s)
{
    char limit[64];
    if (!s->n_examples) return;
    thresholds(limit, r, s->min, s->max);
    fprintf(out, "<h2 id=\"%s\">%s</h2>\n<p>", r->name, r->name);
    escaped(out, r->what, strlen(r->what), true);
    fprintf(out, "; threshold: %s (", limit);
    escaped(out, r->paper, strlen(r->paper), true);
    fputs(")</p>\n", out);
    for (int i = 0; i < s->n_examples; i++) {
        const FilterExample *e = &s->example[i];
        fprintf(out, "<p><b>%g%s</b> <small>", e->value, r->edit ? " taken out, the first one:" : "");
        escaped(out, e->path, strlen(e->path), true);
        fprintf(out, ":%llu</small></p>\n<pre>", (unsigned long long)e->line);
        escaped(out, e->text, e->n, true);
        fputs("</pre>\n", out);
    }
}

void filter_html(const Filter *f, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>filter</title>\n<style>"
          "body{font:15px sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1f2933}"
          "table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #e7eaee}"
          "td:first-child,th:first-child{text-align:left}"
          "pre{background:#f5f7f9;padding:8px;white-space:pre-wrap;overflow-wrap:anywhere}</style>\n"
          "<h1>filter</h1>\n", out);
    fputs("<p>", out);
    print_sum(f, out);
    fputs("</p>\n<table><tr><th>rule<th>threshold<th>seen<th>removed<th>bytes<th>edited<th>bytes</tr>\n", out);
    print_rules(f, out, "<tr><td>%s<td>%s<td>%llu<td>%llu<td>%llu<td>%llu<td>%llu</tr>\n");
    fputs("</table>\n", out);
    for (int i = 0; i < filter_n_rules; i++) html_rule(out, &filter_rules[i], &f->state[i]);
    fputs("</html>\n", out);
}

void filter_print_rules(FILE *out)
{
    char limit[64];
    fprintf(out, "| rule | what | threshold | key | from |\n|---|---|---|---|---|\n");
    for (int i = 0; i < filter_n_rules; i++) {
        const FilterRule *r = &filter_rules[i];
        bool low = isfinite(r->min), high = isfinite(r->max);
        const char *key = low && high ? ".min .max" : low ? ".min" : high ? ".max" : "";
        thresholds(limit, r, r->min, r->max);
        fprintf(out, "| %s | %s | %s | %s | %s |\n", r->name, r->what, limit, key, r->paper);
    }
}
