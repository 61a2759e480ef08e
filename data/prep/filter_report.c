// filter_report: what the rules did, as a table for the terminal and as one page of HTML.
//
// Invariant: nothing from a document reaches a report unescaped. In the page & < > " ' become entities, and control
// characters are shown as their pictures (U+2400 and up), which also keeps a terminal's escape sequences out of both
// reports. The page loads nothing: no script, no font, no picture.
//
// Rejected: a plotting library, and whole documents as examples (a report is read, and may be passed on).
#include "data/prep/filter_rules.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/disk.h"
#include "base/words.h"

// In the terminal's report a rule has this many examples, each a line with so many bytes of the text.
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

// What a rule took away: its paper, and examples of one line, "PATH:LINE: value, threshold: text".
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

void filter_print(const Filter *f, FILE *out)
{
    char limit[64];
    FilterCounts all = filter_counts(f, NULL);
    fprintf(out, "%-30s %-16s %10s %10s %14s %10s %14s\n", "rule", "threshold", "seen", "removed", "bytes", "edited",
            "bytes");
    for (int i = 0; i < filter_n_rules; i++) {
        const FilterState *s = filter_state(f, i);
        if (!s->on) continue;
        thresholds(limit, &filter_rules[i], s->min, s->max);
        fprintf(out, "%-30s %-16s %10llu %10llu %14llu %10llu %14llu\n", filter_rules[i].name, limit,
                (unsigned long long)s->counts.seen, (unsigned long long)s->counts.removed,
                (unsigned long long)s->counts.bytes_removed, (unsigned long long)s->counts.edited,
                (unsigned long long)s->counts.bytes_edited);
    }
    for (int i = 0; i < filter_n_rules; i++) print_examples(out, &filter_rules[i], filter_state(f, i));
    fprintf(out, "%llu documents in, %llu removed, %llu kept, %llu of them edited\n", (unsigned long long)all.seen,
            (unsigned long long)all.removed, (unsigned long long)(all.seen - all.removed),
            (unsigned long long)all.edited);
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
    char limit[64];
    FilterCounts all = filter_counts(f, NULL);
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>filter</title>\n<style>"
          "body{font:15px sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1f2933}"
          "table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #e7eaee}"
          "td:first-child,th:first-child{text-align:left}"
          "pre{background:#f5f7f9;padding:8px;white-space:pre-wrap;overflow-wrap:anywhere}</style>\n"
          "<h1>filter</h1>\n", out);
    fprintf(out, "<p>%llu documents in, %llu removed, %llu kept, %llu of them edited</p>\n",
            (unsigned long long)all.seen, (unsigned long long)all.removed, (unsigned long long)(all.seen - all.removed),
            (unsigned long long)all.edited);
    fputs("<table><tr><th>rule<th>threshold<th>seen<th>removed<th>bytes<th>edited<th>bytes</tr>\n", out);
    for (int i = 0; i < filter_n_rules; i++) {
        const FilterState *s = filter_state(f, i);
        if (!s->on) continue;
        thresholds(limit, &filter_rules[i], s->min, s->max);
        fprintf(out, "<tr><td>%s<td>%s<td>%llu<td>%llu<td>%llu<td>%llu<td>%llu</tr>\n", filter_rules[i].name, limit,
                (unsigned long long)s->counts.seen, (unsigned long long)s->counts.removed,
                (unsigned long long)s->counts.bytes_removed, (unsigned long long)s->counts.edited,
                (unsigned long long)s->counts.bytes_edited);
    }
    fputs("</table>\n", out);
    for (int i = 0; i < filter_n_rules; i++) html_rule(out, &filter_rules[i], filter_state(f, i));
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
