// warc: the text in WET files of a crawl. They are web archives: WARC 1.0 and 1.1 (ISO 28500:2017), and the drafts 0.17
// and 0.18 before them.
//
//     WARC/1.0                           the version
//     WARC-Type: conversion              named fields, as in HTTP; a line that begins with a space continues a field
//     Content-Length: 1234
//                                        an empty line
//     text of a page ...                 the block: 1234 bytes. Two empty lines; then the next record
//
// In a .warc.gz every record is a gzip member of its own. Who reads the file (stream.c) joins them, so nothing here
// knows of it. A record of the type `conversion` is text that somebody took out of a page. One of the type `response`
// is what a server sent, mostly a page of HTML: what of it is text is a matter of taste and of months of work, and
// there are good programs for it. So it ends the program with a line that names them.
//
// Invariant: every byte of the file belongs to one record, and the records are those that the lengths say. A length is
// never guessed: where it is missing, or the bytes after a block are no record, the file is damaged and that ends the
// program. Memory: the buffer holds the header (HEAD_MOST bytes at most) and block of one record, up to max_bytes, and
// one read. A longer block is read past.
//
// Rejected: looking for the next "WARC/1.0" after damage (a page may hold these bytes).
#include "data/web/warc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/words.h"

enum { HEAD_MOST = 1 << 20, VALUE = 256 }; // bytes of a record's header; of a field that is looked at

struct Warc {
    const char *path;
    WarcRead read;
    void *arg;
    size_t read_bytes, max_bytes;
    char *buffer; // (cap); [at, n) is read and not yet used
    size_t cap, at, n;
    uint64_t offset, number; // of buffer[at] in the file; records so far
    bool ended;
};

typedef struct {
    const char *at;
    size_t n;
} Span;

Warc *warc_open(const char *path, WarcRead read, void *arg, size_t read_bytes, size_t max_bytes)
{
    Warc *w = calloc(1, sizeof *w);
    if (!w) die("memory: no room for a reader");
    *w = (Warc){.path = path, .read = read, .arg = arg, .read_bytes = read_bytes, .max_bytes = max_bytes};
    return w;
}

__attribute__((noreturn)) static void damaged(const Warc *w, const char *what)
{
    die("%s: byte %llu of the unpacked file: %s (fetch it again)", w->path, (unsigned long long)w->offset, what);
}

// ---- bytes of the file

// Reads once; false at the end of the file.
static bool more(Warc *w)
{
    if (w->ended) return false;
    if (w->at > w->cap / 2) {
        memmove(w->buffer, w->buffer + w->at, w->n - w->at);
        w->n -= w->at;
        w->at = 0;
    }
    w->buffer = words_grow(w->buffer, &w->cap, w->n + w->read_bytes, 1);
    size_t k = w->read(w->arg, w->buffer + w->n, w->read_bytes);
    w->n += k;
    w->ended = k == 0;
    return k > 0;
}

static void use(Warc *w, size_t n)
{
    w->at += n;
    w->offset += n;
}

// Moves past n bytes of a block, however many.
static void skip(Warc *w, uint64_t n)
{
    while (n) {
        size_t k = w->n - w->at < n ? w->n - w->at : (size_t)n;
        use(w, k);
        n -= k;
        if (n && !more(w)) damaged(w, "the file ends inside a record");
    }
}

// The bytes of the header at w->at with the empty line that ends it; 0: the file is over. Records are separated by
// empty lines.
static size_t find_head(Warc *w)
{
    while (w->at < w->n || more(w)) {
        char c = w->buffer[w->at];
        if (c != '\r' && c != '\n') break;
        use(w, 1);
    }
    if (w->at == w->n) return 0;
    while (w->n - w->at < 8 && more(w)) {}
    if (w->n - w->at < 8 || memcmp(w->buffer + w->at, "WARC/", 5) != 0)
        damaged(w, "no record begins here (\"WARC/1.0\")");
    for (size_t seen = 0;;) {
        const char *line = w->buffer + w->at + seen, *end = w->buffer + w->n, *found;
        while ((found = memchr(line, '\n', (size_t)(end - line)))) {
            if (found == line || (found == line + 1 && *line == '\r'))
                return (size_t)(found + 1 - (w->buffer + w->at));
            line = found + 1;
        }
        seen = (size_t)(line - (w->buffer + w->at));
        if (w->n - w->at > HEAD_MOST) damaged(w, "the header of a record is longer than 1 MiB");
        if (!more(w)) damaged(w, "the file ends inside the header of a record");
    }
}

// ---- fields

// The next line of a header, without its end; false at the empty line or the end of the text.
static bool next_line(Span *rest, Span *line)
{
    const char *end = rest->n ? memchr(rest->at, '\n', rest->n) : NULL;
    size_t n = end ? (size_t)(end - rest->at) : rest->n, used = end ? n + 1 : n;
    *line = (Span){rest->at, n && rest->at[n - 1] == '\r' ? n - 1 : n};
    *rest = (Span){rest->at + used, rest->n - used};
    return line->n > 0;
}

// Appends text to value, white space around it taken off, as far as there is room.
static void append(char value[VALUE], Span text)
{
    size_t n = strlen(value);
    while (text.n && strchr(" \t", *text.at) && *text.at) text.at++, text.n--;
    while (text.n && strchr(" \t", text.at[text.n - 1]) && text.at[text.n - 1]) text.n--;
    snprintf(value + n, VALUE - n, "%s%.*s", n ? " " : "", (int)(text.n < VALUE ? text.n : VALUE), text.at);
}

// The first field of that name, whatever the case of its letters, its lines joined; "" and false when it is not there.
static bool field(Span head, const char *name, char value[VALUE])
{
    size_t n = strlen(name);
    bool found = false;
    Span line;
    *value = 0;
    next_line(&head, &line); // the version, or the status
    while (next_line(&head, &line)) {
        bool continued = *line.at == ' ' || *line.at == '\t';
        if (found && !continued) break;
        if (found) append(value, line);
        if (found || continued || line.n <= n || strncasecmp(line.at, name, n) != 0) continue;
        Span rest = {line.at + n, line.n - n};
        while (rest.n && (*rest.at == ' ' || *rest.at == '\t')) rest.at++, rest.n--;
        if (!rest.n || *rest.at != ':') continue;
        append(value, (Span){rest.at + 1, rest.n - 1});
        found = true;
    }
    return found;
}

bool warc_next(Warc *w, WarcRecord *record)
{
    char type[VALUE], value[VALUE];
    size_t n_head = find_head(w);
    if (!n_head) return false;
    *record = (WarcRecord){.kind = WARC_OTHER, .number = ++w->number, .offset = w->offset};
    Span head = {w->buffer + w->at, n_head};
    if (head.at[5] != '1' && strncmp(head.at + 5, "0.1", 3) != 0)
        damaged(w, "a record of a version of WARC that is not read here (0.17, 0.18, 1.0 and 1.1 are)");
    field(head, "WARC-Type", type);
    if (strcasecmp(type, "response") == 0)
        die("%s: byte %llu of the unpacked file: it holds pages (HTML), not their text (take the text out with "
            "trafilatura or resiliparse, and give it as JSONL; or read the crawl's WET files)", w->path,
            (unsigned long long)w->offset);
    if (!field(head, "Content-Length", value)) damaged(w, "a record without Content-Length");
    if (!*value || strspn(value, "0123456789") != strlen(value) || strlen(value) > 18)
        damaged(w, "a record whose Content-Length is not a number of bytes");
    uint64_t n = strtoull(value, NULL, 10);
    bool text = strcasecmp(type, "conversion") == 0;
    if (n > w->max_bytes || !text) {
        if (text) record->kind = WARC_LONG;
        use(w, n_head);
        skip(w, n);
        return true;
    }
    while (w->n - w->at < n_head + n)
        if (!more(w)) damaged(w, "the file ends inside a record");
    record->kind = WARC_TEXT;
    record->text = w->buffer + w->at + n_head;
    record->n_bytes = (size_t)n;
    use(w, n_head + (size_t)n);
    return true;
}

void warc_close(Warc *w)
{
    if (!w) return;
    free(w->buffer);
    free(w);
}
