// warc: the web archive format, WARC 1.0 and 1.1 (ISO 28500:2017) and the drafts 0.17 and 0.18 before them.
//
//     WARC/1.0                           the version
//     WARC-Type: response                named fields, as in HTTP; a line that begins with a space continues a field
//     Content-Length: 1234
//                                        an empty line
//     HTTP/1.1 200 OK ...                the block: 1234 bytes. Two empty lines; then the next record
//
// In a .warc.gz every record is a gzip member of its own. Who reads the file (stream.c) joins them, so nothing here
// knows of it. A record of the type `response` holds what the server sent: a status line, fields, and a body. The body
// may be sent in chunks and packed by gzip; Common Crawl stores it as it was before that and renames the fields
// (X-Crawl-Content-Encoding). Older crawls kept the names but not the packing: so a body that says gzip or chunked and
// does not begin like it is taken as it is. A record of the type `conversion` (WET) is text that somebody else took
// out of a page.
//
// Invariant: every byte of the file belongs to one record, and the records are those that the lengths say. A length is
// never guessed: where it is missing, or the bytes after a block are no record, the file is damaged and that ends the
// program. What is wrong inside a block concerns one page: it is left out, and the next record is as good as ever.
//
// Memory: the buffer holds the header (HEAD_MOST bytes at most) and block of one record, up to max_bytes, and one
// read; the unpacked body has a buffer of its own, bounded by the same. A longer block is read past.
//
// Rejected: looking for the next "WARC/1.0" after damage (a page may hold these bytes), and records of the types
// `resource` and `revisit` (crawls of the web have no page in them that is not in a response).
#define _GNU_SOURCE // memmem, strcasestr
#include "data/web/warc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

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
    char *body; // unpacked (cap_body)
    size_t cap_body;
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

// Cuts "text/html; charset=utf-8" after the media type, and gives its charset.
static void split_media_type(char value[VALUE], char charset[64])
{
    char *at = strcasestr(value, "charset=");
    *charset = 0;
    if (at) {
        at += strlen("charset=");
        at += strspn(at, "\"' ");
        snprintf(charset, 64, "%.*s", (int)strcspn(at, "\"'; ,"), at);
    }
    value[strcspn(value, "; ,")] = 0;
}

// ---- bodies

// A body in chunks: a length in hexadecimal, a line's end, so many bytes and a line's end; the last has length 0. Joins
// them in place. False: that is not what it is; *begun: its beginning is.
static bool join_chunks(char *body, size_t *n_body, bool *begun)
{
    size_t n = *n_body, at = 0, out = 0;
    for (*begun = false;; *begun = true) {
        uint64_t length = 0;
        size_t digits = 0;
        for (; at < n && digits < 16 && strchr("0123456789abcdefABCDEF", body[at]) && body[at]; at++, digits++)
            length = length << 4 | (uint64_t)((body[at] & 15) + (body[at] > '9' ? 9 : 0));
        const char *end = memchr(body + at, '\n', n - at);
        if (!digits || !end || (body[at] != '\r' && body[at] != ';' && body[at] != ' ')) break;
        at = (size_t)(end - body) + 1;
        if (!length) {
            *n_body = out;
            return true;
        }
        bool whole = length <= n - at;
        if (!whole) length = n - at;
        memmove(body + out, body + at, (size_t)length);
        out += (size_t)length, at += (size_t)length;
        if (!whole) break;
        at += at < n && body[at] == '\r';
        at += at < n && body[at] == '\n';
    }
    if (*begun || out) *n_body = out;
    *begun |= out > 0;
    return false;
}

// Unpacks the body into w->body: gzip and zlib by their own headers (window 15 + 32), and without any (-15). Z_OK: all
// of it; Z_BUF_ERROR: it ends too early; Z_MEM_ERROR: longer than max_bytes; Z_DATA_ERROR.
static int inflate_body(Warc *w, Span in, int window, size_t *n_out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in.at, .avail_in = (uInt)in.n};
    int status = Z_OK;
    *n_out = 0;
    if (in.n > UINT32_MAX) return Z_DATA_ERROR;
    if (inflateInit2(&z, window) != Z_OK) die("memory: no room to unpack gzip");
    while (*n_out <= w->max_bytes) {
        w->body = words_grow(w->body, &w->cap_body, *n_out + (1 << 16), 1);
        z.next_out = (Bytef *)w->body + *n_out;
        z.avail_out = 1 << 16;
        status = inflate(&z, Z_NO_FLUSH);
        *n_out += (1 << 16) - z.avail_out;
        bool member = status == Z_STREAM_END && z.avail_in > 2 && *z.next_in == 0x1F;
        if (member ? inflateReset(&z) != Z_OK : status != Z_OK) break;
    }
    inflateEnd(&z);
    if (*n_out > w->max_bytes) return Z_MEM_ERROR;
    return status == Z_STREAM_END ? Z_OK : status == Z_BUF_ERROR ? Z_BUF_ERROR : Z_DATA_ERROR;
}

// Undoes the content encoding. False: record->kind says why the body is left out.
static bool unpack_body(Warc *w, const char *encoding, bool truncated, Span *body, WarcRecord *record)
{
    size_t n = 0;
    int status = Z_OK;
    bool gzip = strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "x-gzip") == 0;
    if (!*encoding || strcasecmp(encoding, "identity") == 0 || strcasecmp(encoding, "none") == 0) return true;
    if (gzip) {
        if (body->n < 2 || memcmp(body->at, "\x1F\x8B", 2) != 0) return true; // unpacked by who wrote the file
        status = inflate_body(w, *body, 15 + 32, &n);
    } else if (strcasecmp(encoding, "deflate") == 0) {
        status = inflate_body(w, *body, 15 + 32, &n);
        if (status == Z_DATA_ERROR) status = inflate_body(w, *body, -15, &n);
        if (status == Z_DATA_ERROR) return true;
    } else {
        record->kind = WARC_BAD;
        record->why = "its content encoding is none of gzip and deflate";
        return false;
    }
    if (status == Z_MEM_ERROR) record->kind = WARC_LONG;
    else if (status == Z_DATA_ERROR || (status == Z_BUF_ERROR && !truncated)) {
        record->kind = WARC_BAD;
        record->why = status == Z_BUF_ERROR ? "its packed body ends too early" : "its packed body is damaged";
    } else *body = (Span){w->body, n};
    return status == Z_OK || (status == Z_BUF_ERROR && truncated);
}

// What a server sent: block (n bytes, which it may change), of a record with this header.
static void read_response(Warc *w, Span head, char *block, size_t n, WarcRecord *record)
{
    char value[VALUE], encoding[VALUE];
    Span rest = {block, n}, line, http = rest;
    next_line(&rest, &line);
    const char *status = line.n ? memchr(line.at, ' ', line.n) : NULL;
    size_t n_status = status ? (size_t)(line.at + line.n - status) : 0;
    if (line.n < 5 || memcmp(line.at, "HTTP/", 5) != 0 || n_status < 4 || memcmp(status, " 200", 4) != 0 ||
        (n_status > 4 && status[4] != ' '))
        return;
    while (next_line(&rest, &line)) {}
    http.n = n - rest.n;
    bool truncated = field(head, "WARC-Truncated", value);
    if (!field(http, "Content-Type", value)) field(head, "WARC-Identified-Payload-Type", value);
    split_media_type(value, record->charset);
    bool html = strcasecmp(value, "text/html") == 0 || strcasecmp(value, "application/xhtml+xml") == 0;
    if (!html && strcasecmp(value, "text/plain") != 0) return;
    char *body = block + http.n;
    size_t n_body = n - http.n;
    if (field(http, "Transfer-Encoding", value) && strcasestr(value, "chunked")) {
        bool begun;
        if (!join_chunks(body, &n_body, &begun) && begun && !truncated) {
            record->kind = WARC_BAD;
            record->why = "its body does not end with the last of its chunks";
            return;
        }
    }
    Span span = {body, n_body};
    field(http, "Content-Encoding", encoding);
    if (!unpack_body(w, encoding, truncated, &span, record)) return;
    record->kind = html ? WARC_HTML : WARC_TEXT;
    record->body = span.at;
    record->n_bytes = span.n;
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
    if (!field(head, "Content-Length", value)) damaged(w, "a record without Content-Length");
    if (!*value || strspn(value, "0123456789") != strlen(value) || strlen(value) > 18)
        damaged(w, "a record whose Content-Length is not a number of bytes");
    uint64_t n = strtoull(value, NULL, 10);
    bool response = strcasecmp(type, "response") == 0, conversion = strcasecmp(type, "conversion") == 0;
    if (n > w->max_bytes || (!response && !conversion)) {
        if (response || conversion) record->kind = WARC_LONG;
        use(w, n_head);
        skip(w, n);
        return true;
    }
    while (w->n - w->at < n_head + n)
        if (!more(w)) damaged(w, "the file ends inside a record");
    head.at = w->buffer + w->at;
    char *block = w->buffer + w->at + n_head;
    if (conversion) {
        record->kind = WARC_TEXT;
        record->body = block;
        record->n_bytes = (size_t)n;
        snprintf(record->charset, sizeof record->charset, "utf-8");
    } else read_response(w, head, block, (size_t)n, record);
    use(w, n_head + (size_t)n);
    return true;
}

void warc_close(Warc *w)
{
    if (!w) return;
    free(w->buffer);
    free(w->body);
    free(w);
}
