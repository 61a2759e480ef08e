// corpus: documents of any number of files, one after another, in bounded memory and as valid UTF-8.
//
// Invariant: the sequence of records depends on the bytes of the files and the options alone, never on how many
// bytes a read returned. That is why text is cut at separators first, as raw bytes, and only whole documents are
// decoded: a separator is valid UTF-8, so no ill-formed sequence crosses its border, and there is no state to carry
// from one buffer to the next.
//
// Memory: the buffer holds the current document (or line) up to max_bytes and one read, and doubles as it grows; a
// document that needs decoding has a copy, and a line of JSON its parsed tree, of at most MAX_VALUES values. So a few
// KB that unpack to one line of gigabytes cost no more memory than an honest document of max_bytes.
//
// What is longer: a line of JSON is left out and counted, like any line that cannot be read, because the next one is
// as good as ever. A text is an error, because then most of the corpus is in it: its separator is missing or
// misspelled, or it is one long text, and the user should say so. Cutting it, or leaving it out, would lose it with one
// line of log.
//
// Parquet is no sequence of lines: parquet.c gives rows, which are decoded as the texts of JSONL are. The file is read
// once more from front to end for its hash, so that it is known by its bytes like every other. WARC is read by warc.c,
// through the stream and its hash as text is.
//
// Rejected: following links to folders (they can be circular), getline (no bound), parsing JSONL with jansson's own
// stream reader (it loses its place at the first error, and the next line is good), and skipping the rest of a file
// after a bad line.
#define _GNU_SOURCE // memmem
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/disk.h"
#include "data/prep/corpus.h"
#include "data/prep/parquet.h"
#include "data/web/warc.h"
#include "base/words.h"

enum { LOGGED = 10, DEPTH = 64 };
enum { PAGE_DOCUMENTS = 16, PAGE_BYTES = 1 << 20 }; // of Parquet: so many of the longest documents, and these bytes
enum { LIST_BYTES = 1 << 30 };
enum { MAX_VALUES = 1 << 20 }; // of a line of JSON: each takes up to 300 bytes when parsed, and 2 in the line

typedef struct {
    char *bytes;
    size_t cap;
} Decoded;

struct CorpusReader {
    CorpusOptions opt;
    CorpusCounts counts;
    CorpusFile *file; // (n_files), of which at_file are read
    size_t n_files, cap_files, at_file;
    XXH3_state_t *hash;
    // The open file. buffer[start, n) is read and not yet given; no separator begins in buffer[start, scanned).
    Stream *stream;
    Parquet *parquet; // then there is no stream, and the buffer is only for the hash
    Warc *warc;       // it reads the stream, by take()
    SourceFormat format;
    bool ended;
    char *buffer; // (cap)
    size_t cap, start, scanned, n;
    uint64_t offset; // of buffer[start] in the unpacked file
    uint64_t dropped; // bytes taken out of the current line because it is too long
    uint64_t line, index;
    Decoded line_decoded, text_decoded; // back the record when that is not the buffer's
    json_t *json;
};

// ---- the files
static void add_path(CorpusReader *r, const char *path)
{
    r->file = words_grow(r->file, &r->cap_files, r->n_files + 1, sizeof *r->file);
    r->file[r->n_files] = (CorpusFile){.path = strdup(path)};
    if (!r->file[r->n_files++].path) die("memory: no room for a file name");
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); // not alphasort, which follows the locale
}

static void add_folder(CorpusReader *r, const char *path, int depth)
{
    struct dirent **entry;
    if (depth > DEPTH) die("%s: folders more than %d deep (name the one that you mean)", path, DEPTH);
    int n = scandir(path, &entry, visible, by_bytes);
    if (n < 0) die("%s: cannot read the folder: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        struct stat st;
        char *inside;
        if (asprintf(&inside, "%s/%s", path, entry[i]->d_name) < 0) die("memory: no room for a file name");
        if (lstat(inside, &st) == 0 && S_ISDIR(st.st_mode)) add_folder(r, inside, depth + 1);
        else if (stat(inside, &st) == 0 && S_ISREG(st.st_mode)) add_path(r, inside);
        else r->counts.not_files++;
        free(inside);
        free(entry[i]);
    }
    free(entry);
}

// The files of a list, one a line. Folders are read in a list too, lists are not.
static void add_list(CorpusReader *r, const char *list)
{
    size_t n_bytes, number = 1;
    CorpusOptions options = {.max_bytes = LIST_BYTES, .raise = "nothing: make two lists of it"};
    char *text = corpus_read(list, &n_bytes, options), *rest = text;
    for (char *name; (name = strsep(&rest, "\n")); number++) {
        name[strcspn(name, "\r")] = 0;
        if (!*name) continue;
        struct stat st;
        char *path = sources_path(list, name);
        if (stat(path, &st) != 0) die("%s:%zu: %s: cannot read: %s", list, number, path, strerror(errno));
        if (S_ISDIR(st.st_mode)) add_folder(r, path, 0);
        else add_path(r, path);
        free(path);
    }
    free(text);
}

CorpusReader *corpus_open(const char *const *path, size_t n_paths, CorpusOptions options)
{
    CorpusReader *r = calloc(1, sizeof *r);
    if (!r || !(r->hash = XXH3_createState())) die("memory: no room for a reader");
    r->opt = options;
    if (!r->opt.field) r->opt.field = "text";
    if (!r->opt.max_bytes) r->opt.max_bytes = CORPUS_MIB << 20;
    if (!r->opt.raise) r->opt.raise = "max_bytes";
    if (!r->opt.read_bytes) r->opt.read_bytes = 1 << 20;
    const char *given[] = {options.separator, options.line};
    for (int i = 0; i < 2; i++) {
        size_t length, n = given[i] ? strlen(given[i]) : 0;
        if (n && words_utf8_invalid(given[i], n, 0, &length) < n) die("separator: '%s': not UTF-8", given[i]);
    }
    if (options.separator && !*options.separator) die("separator: an empty one (leave it out)");
    if (options.separator && options.line) die("separator: both a text and a line are given (choose one)");
    for (size_t i = 0; i < n_paths; i++) {
        struct stat st;
        size_t before = r->n_files;
        if (strcmp(path[i], "-") == 0) add_path(r, "-");
        else if (stat(path[i], &st) != 0) die("%s: cannot read: %s", path[i], strerror(errno));
        else if (S_ISDIR(st.st_mode)) add_folder(r, path[i], 0);
        else if (sources_is_list(path[i])) add_list(r, path[i]);
        else add_path(r, path[i]);
        if (r->n_files == before) die("%s: no file in it", path[i]);
    }
    return r;
}

// ---- raw documents
// Reads once from the stream.
static size_t take(void *reader, void *out, size_t n)
{
    CorpusReader *r = reader;
    size_t k = stream_read(r->stream, out, n);
    r->counts.bytes_in += k;
    r->file[r->at_file].n_bytes += k;
    XXH3_128bits_update(r->hash, out, k);
    return k;
}

// Reads once, to the end of buffer[0, n).
static void fill(CorpusReader *r)
{
    size_t want = r->opt.read_bytes;
    if (r->start > r->cap / 2) {
        memmove(r->buffer, r->buffer + r->start, r->n - r->start);
        r->n -= r->start;
        r->scanned -= r->start;
        r->start = 0;
    }
    r->buffer = words_grow(r->buffer, &r->cap, r->n + want, 1);
    size_t k = take(r, r->buffer + r->n, want);
    if (k == 0) r->ended = true;
    r->n += k;
}

// A regular file that begins as WARC does, packed or not?
static bool is_warc(const char *path)
{
    struct stat st;
    char begin[5];
    size_t n = 0, k;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    Stream *s = stream_open(path, 1 << 12);
    while (n < sizeof begin && (k = stream_read(s, begin + n, sizeof begin - n))) n += k;
    stream_close(s);
    return n == sizeof begin && memcmp(begin, "WARC/", n) == 0;
}

SourceFormat corpus_format(const char *path, SourceFormat given)
{
    if (given != SOURCE_AUTO) return given;
    if (sources_is_jsonl(path)) return SOURCE_JSONL;
    if (sources_is_parquet(path) || parquet_is(path)) return SOURCE_PARQUET;
    return sources_is_warc(path) || is_warc(path) ? SOURCE_WARC : SOURCE_TEXT;
}

static bool open_next(CorpusReader *r)
{
    if (r->at_file == r->n_files) return false;
    const char *path = r->file[r->at_file].path;
    if (r->opt.format == SOURCE_AUTO && sources_is_table(path))
        die("%s: a table of CSV (make lines of JSON: mlr --c2l cat FILE; tabs: --t2l; --format text: as it is)", path);
    r->format = corpus_format(path, r->opt.format);
    if (r->format == SOURCE_PARQUET)
        r->parquet = parquet_open(path, r->opt.field, PAGE_DOCUMENTS * r->opt.max_bytes + PAGE_BYTES, r->opt.raise);
    else r->stream = stream_open(path, r->opt.read_bytes);
    r->start = r->scanned = r->n = 0;
    r->offset = r->index = 0;
    r->line = 1;
    XXH3_128bits_reset(r->hash);
    r->ended = false;
    r->counts.files++;
    if (r->format == SOURCE_WARC) r->warc = warc_open(path, take, r, r->opt.read_bytes, r->opt.max_bytes);
    if (r->parquet || r->warc) return true;
    while (r->n < STREAM_LOOK && !r->ended) fill(r);
    stream_refuse(path, r->buffer, r->n, true);
    if (r->n >= 3 && memcmp(r->buffer, "\xEF\xBB\xBF", 3) == 0) {
        r->start = r->scanned = 3;
        r->offset = 3;
        r->counts.bom++;
    }
    return true;
}

// Reads the whole file for its hash and size.
static void hash_file(CorpusReader *r)
{
    const char *path = r->file[r->at_file].path;
    FILE *f = fopen(path, "rb");
    size_t k;
    if (!f) die("%s: cannot read: %s", path, strerror(errno));
    r->buffer = words_grow(r->buffer, &r->cap, r->opt.read_bytes, 1);
    while ((k = fread(r->buffer, 1, r->opt.read_bytes, f))) {
        XXH3_128bits_update(r->hash, r->buffer, k);
        r->file[r->at_file].n_bytes += k;
        r->counts.bytes_in += k;
    }
    if (ferror(f)) die("%s: cannot read: %s", path, strerror(errno));
    fclose(f);
}

static void close_file(CorpusReader *r)
{
    if (r->parquet) hash_file(r);
    XXH128_hash_t h = XXH3_128bits_digest(r->hash);
    stream_close(r->stream);
    parquet_close(r->parquet);
    warc_close(r->warc);
    r->stream = NULL;
    r->parquet = NULL;
    r->warc = NULL;
    r->file[r->at_file].hash[0] = h.high64;
    r->file[r->at_file++].hash[1] = h.low64;
}

static uint64_t count_lines(const char *text, size_t n)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    return lines;
}

// A line that is `line`, at or after buffer[scanned]; *length with its end. Documents begin where lines do. While the
// file continues, only those are seen whose end is in the buffer.
static char *find_line(const CorpusReader *r, const char *line, size_t *length)
{
    const char *at = r->buffer + r->scanned, *end = r->buffer + r->n, *begin = r->buffer + r->start;
    size_t n = strlen(line);
    for (;; at++) {
        at = n ? memmem(at, (size_t)(end - at), line, n) : memchr(at, '\n', (size_t)(end - at));
        if (!n && at && at > begin && at[-1] == '\r') at--;
        if (!at || (!r->ended && at + n + 2 > end)) return NULL;
        const char *after = at + n;
        if (after < end && *after == '\r') after++;
        bool ends = after < end ? *after == '\n' : n > 0;
        if (ends && (at == begin || at[-1] == '\n')) {
            *length = (size_t)(after - at) + (after < end);
            return (char *)at;
        }
        if (!n && *at == '\r') at++;
    }
}

static void refuse_long(const CorpusReader *r)
{
    die("%s:%llu: document %llu is longer than %zu bytes (is the separator right? If it is, raise %s)",
        r->file[r->at_file].path, (unsigned long long)r->line, (unsigned long long)r->index + 1, r->opt.max_bytes,
        r->opt.raise);
}

// The next raw document or line: text and length, and *n_used, its bytes and those of its separator in the buffer;
// false at the end of the file.
static bool next_raw(CorpusReader *r, char **text, size_t *n_bytes, size_t *n_used)
{
    bool jsonl = r->format == SOURCE_JSONL;
    const char *separator = jsonl ? "\n" : r->opt.separator, *line = jsonl ? NULL : r->opt.line;
    size_t length = 0, keep = (separator ? strlen(separator) : line ? strlen(line) + 2 : 1) - 1;
    size_t max = r->opt.max_bytes;
    for (;;) {
        char *from = r->buffer + r->scanned, *found = NULL;
        if (separator && (found = memmem(from, r->n - r->scanned, separator, strlen(separator))))
            length = strlen(separator);
        else if (line) found = find_line(r, line, &length);
        if (found || r->ended) {
            if (!found) {
                if (r->start == r->n) return false;
                found = r->buffer + r->n, length = 0;
            }
            *text = r->buffer + r->start;
            *n_bytes = (size_t)(found - *text);
            *n_used = *n_bytes + length;
            r->start = r->scanned = (size_t)(found - r->buffer) + length;
            return true;
        }
        if (r->n - r->scanned > keep) r->scanned = r->n - keep; // no separator begins before that
        if (r->scanned > r->start + max) {
            if (!jsonl) refuse_long(r);
            r->dropped += r->scanned - (r->start + max); // keep is 0: all that was read belongs to this line
            r->n = r->scanned = r->start + max;
        }
        fill(r);
    }
}

// ---- lines that are nearly JSON
//
// A line that is not JSON is tried again after mending. Python's json writes half a surrogate pair as \ud83d, and NaN,
// Infinity and -Infinity as such; 1e999 and integers of 400 digits are valid JSON that no double holds. So a document
// is not lost because of a number in a field that is not read. Mending keeps the length of the line and the places of
// its strings, so nothing moves; a line that is not JSON for any other reason is still left out.

// The place after the string that begins at the quote line[at].
static size_t skip_string(const char *line, size_t n, size_t at)
{
    for (at++; at < n && line[at] != '"'; at++)
        if (line[at] == '\\') at++;
    return at < n ? at + 1 : n;
}

// The number of an escape \uXXXX at line[at]; 0 when there is none.
static unsigned escape(const char *line, size_t n, size_t at)
{
    char digit[5] = "", *end;
    if (n - at < 6 || line[at] != '\\' || line[at + 1] != 'u') return 0;
    memcpy(digit, line + at + 2, 4);
    if (strspn(digit, "0123456789abcdefABCDEF") != 4) return 0;
    return (unsigned)strtoul(digit, &end, 16);
}

// Both change line (n bytes, with a 0 after them) in place and return how often; its length stays.
// Half a surrogate pair in a string: \ufffd.
static size_t mend_escapes(char *line, size_t n)
{
    size_t mended = 0;
    for (size_t at = 0; at < n; at++) { // a backslash outside of strings is never JSON
        if (line[at] != '\\') continue;
        unsigned code = escape(line, n, at);
        if (code >= 0xD800 && code < 0xDC00 && at + 6 < n && escape(line, n, at + 6) >> 10 == 0xDC00 >> 10) {
            at += 11;
        } else if (code >= 0xD800 && code < 0xE000) {
            memcpy(line + at + 2, "fffd", 4);
            mended++;
            at += 5;
        } else at++;
    }
    return mended;
}

// The length of a number at line[at] that the parser refuses; 0 when there is none.
static size_t foreign_number(const char *line, size_t n, size_t at)
{
    const char *word[] = {"NaN", "Infinity", "-Infinity"};
    if (at == 0 || !strchr(" \t\r:,[", line[at - 1])) return 0;
    for (int i = 0; i < 3; i++)
        if (n - at >= strlen(word[i]) && memcmp(line + at, word[i], strlen(word[i])) == 0) return strlen(word[i]);
    size_t length = strspn(line + at, "+-.0123456789eE");
    json_error_t error = {0};
    json_t *value = length ? json_loadb(line + at, length, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &error) : NULL;
    bool too_large = length && !value && json_error_code(&error) == json_error_numeric_overflow;
    json_decref(value);
    return too_large ? length : 0;
}

// NaN, Infinity and what no double holds, outside strings: 0.
static size_t mend_numbers(char *line, size_t n)
{
    size_t mended = 0;
    for (size_t at = 0; at < n;) {
        size_t length = 0;
        if (line[at] == '"') at = skip_string(line, n, at);
        else if (!(length = foreign_number(line, n, at))) at++;
        if (!length) continue;
        memset(line + at, ' ', length);
        line[at] = '0';
        at += length;
        mended++;
    }
    return mended;
}

// ---- decoded documents
//
// Decoding replaces every maximal ill-formed sequence, and every NUL, by U+FFFD, and counts them; none of this is
// fatal, because every crawl has some. NUL is well-formed, but it ends strings in too many programs, and the HTML
// standard replaces it too. A byte order mark is removed only at the start of a file: elsewhere it is a character.

// Ill-formed sequences and NUL become U+FFFD. Returns the text, *n its new length; copies only where it must.
static const char *decode(CorpusReader *r, Decoded *d, const char *text, size_t *n_bytes)
{
    size_t n = *n_bytes, length = 0, o = 0, at = 0, bad = words_utf8_invalid(text, n, 0, &length);
    if (bad == n && !memchr(text, 0, n)) return text;
    while (at < n) {
        const char *nul = memchr(text + at, 0, bad - at);
        size_t stop = nul ? (size_t)(nul - text) : bad;
        d->bytes = words_grow(d->bytes, &d->cap, o + (n - at) + 3, 1);
        memcpy(d->bytes + o, text + at, stop - at);
        o += stop - at;
        if ((at = stop) == n) break;
        memcpy(d->bytes + o, "\xEF\xBF\xBD", 3);
        o += 3;
        at += nul ? 1 : length;
        if (nul) r->counts.nul++;
        else r->counts.bad_utf8++, bad = words_utf8_invalid(text, n, at, &length);
    }
    *n_bytes = o;
    return d->bytes;
}

static void bad_line(CorpusReader *r, const char *why)
{
    const char *path = r->file[r->at_file].path;
    char clean[200];
    snprintf(clean, sizeof clean, "%s", why);
    for (char *c = clean; *c; c++)
        if ((uint8_t)*c < ' ' || *c == 0x7F) *c = '?';
    if (r->opt.strict)
        die("%s:%llu: %s (without strict reading it is left out)", path, (unsigned long long)r->line, clean);
    uint64_t n = r->counts.bad_lines + r->counts.too_long;
    if (!r->opt.log || n > LOGGED) return;
    fprintf(r->opt.log, "%s:%llu: left out: %s\n", path, (unsigned long long)r->line, clean);
    if (n == LOGGED)
        fprintf(r->opt.log, "(more lines like these are counted, and not shown)\n");
}

// Are there so many values in a line (n bytes) that its tree would take far more memory than the line? At most as many
// as there are brackets and commas outside its strings.
static bool is_bushy(const char *line, size_t n)
{
    size_t values = 0;
    if (n / 2 < MAX_VALUES) return false;
    for (size_t at = 0; at < n;)
        if (line[at] == '"') at = skip_string(line, n, at);
        else values += strchr("[{,", line[at++]) != NULL;
    return values > MAX_VALUES;
}

static json_t *load(const char *text, size_t n, json_error_t *error)
{
    return json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, error);
}

// Puts text (n) into d with a 0 after it, unless d holds it already.
static char *copy(Decoded *d, const char *text, size_t n)
{
    bool held = text == d->bytes;
    d->bytes = words_grow(d->bytes, &d->cap, n + 1, 1);
    if (!held) memcpy(d->bytes, text, n);
    d->bytes[n] = 0;
    return d->bytes;
}

// A line that was not JSON, mended; NULL when it still is not. The record keeps its numbers as they are.
static json_t *load_mended(CorpusReader *r, const char **text, size_t n, json_error_t *error)
{
    char *line = copy(&r->line_decoded, *text, n);
    size_t escapes = mend_escapes(line, n);
    char *numbers = copy(&r->text_decoded, line, n);
    r->counts.bad_utf8 += escapes;
    *text = line;
    return escapes + mend_numbers(numbers, n) ? load(numbers, n, error) : NULL;
}

// The field of a line of JSON; NULL when the line has none to give.
static const char *parse_line(CorpusReader *r, const char *text, size_t *n_bytes, CorpusRecord *out)
{
    char why[200];
    json_error_t error;
    text = decode(r, &r->line_decoded, text, n_bytes);
    json_decref(r->json);
    bool bushy = is_bushy(text, *n_bytes);
    r->json = bushy ? NULL : load(text, *n_bytes, &error);
    if (!r->json && !bushy) r->json = load_mended(r, &text, *n_bytes, &error);
    out->json = text;
    out->n_json = *n_bytes;
    json_t *field = json_object_get(r->json, r->opt.field);
    if (r->opt.lines && json_is_object(r->json)) return text;
    if (json_is_string(field)) {
        *n_bytes = json_string_length(field);
        return json_string_value(field);
    }
    if (bushy) snprintf(why, sizeof why, "more than %d values in the line", MAX_VALUES);
    else if (!r->json) snprintf(why, sizeof why, "not JSON: %s", error.text);
    else if (!json_is_object(r->json)) snprintf(why, sizeof why, "not an object of JSON");
    else snprintf(why, sizeof why, field ? "its '%s' is not a string" : "no field '%s'", r->opt.field);
    r->counts.bad_lines++;
    bad_line(r, why);
    return NULL;
}

static bool too_long(CorpusReader *r)
{
    char why[160];
    if (r->format == SOURCE_TEXT) refuse_long(r);
    r->counts.too_long++;
    snprintf(why, sizeof why, "the %s is longer than %zu bytes (raise %.60s)",
             r->parquet ? "row" : r->warc ? "record" : "line", r->opt.max_bytes, r->opt.raise);
    bad_line(r, why);
    return false;
}

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n\f\v", text[i]) || !text[i]) return false;
    return true;
}

// Whether an array of objects begins here.
static bool is_array(const char *text, size_t n)
{
    size_t i = 0, open;
    while (i < n && is_blank(text + i, 1)) i++;
    open = i++;
    while (i < n && is_blank(text + i, 1)) i++;
    return open < n && text[open] == '[' && (i == n || text[i] == '{');
}

// Makes a record of raw bytes; false when they are left out.
static bool give(CorpusReader *r, const char *text, size_t n, CorpusRecord *out)
{
    if (n > r->opt.max_bytes || r->dropped) return too_long(r);
    uint64_t known = r->counts.bad_utf8;
    bool jsonl = r->format == SOURCE_JSONL;
    if (jsonl && is_blank(text, n)) return false; // empty lines are no records
    if (jsonl && !r->index && is_array(text, n))
        die("%s: a JSON array, not lines of JSON (make them: jq -c '.[]' FILE >FILE.jsonl)", r->file[r->at_file].path);
    if (jsonl && !(text = parse_line(r, text, &n, out))) return false;
    text = decode(r, &r->text_decoded, text, &n);
    if (n > r->opt.max_bytes) return too_long(r); // U+FFFD is longer than what it replaces
    if (is_blank(text, n)) {
        r->counts.empty += r->format != SOURCE_TEXT || n > 0; // two separators in a row are no document
        return false;
    }
    r->counts.documents++;
    r->counts.damaged += 100 * (r->counts.bad_utf8 - known) > n;
    r->counts.bytes_out += n;
    out->text = text;
    out->n_bytes = n;
    return true;
}

// Makes a record of the next row. False: it is left out, or there was none and the file is closed.
static bool next_row(CorpusReader *r, CorpusRecord *out)
{
    ParquetRow row;
    r->dropped = 0;
    if (!parquet_next(r->parquet, &row)) {
        close_file(r);
        return false;
    }
    *out = (CorpusRecord){.path = r->file[r->at_file].path, .index = r->index, .line = r->line, .offset = row.offset};
    bool given = give(r, row.text ? row.text : "", row.n_bytes, out);
    r->line++;
    r->index += given;
    return given;
}

// Makes a record of the next one of WARC, as next_row.
static bool next_warc(CorpusReader *r, CorpusRecord *out)
{
    WarcRecord w;
    r->dropped = 0;
    if (!warc_next(r->warc, &w)) {
        close_file(r);
        return false;
    }
    r->line = w.number;
    *out = (CorpusRecord){.path = r->file[r->at_file].path, .index = r->index, .line = w.number, .offset = w.offset};
    r->counts.no_text += w.kind == WARC_OTHER;
    if (w.kind == WARC_LONG) too_long(r);
    size_t bom = w.kind == WARC_TEXT && w.n_bytes >= 3 && !memcmp(w.text, "\xEF\xBB\xBF", 3) ? 3 : 0;
    r->counts.bom += bom > 0;
    bool given = w.kind == WARC_TEXT && give(r, w.text + bom, w.n_bytes - bom, out);
    r->index += given;
    return given;
}

bool corpus_next(CorpusReader *r, CorpusRecord *out)
{
    for (;;) {
        if (!r->stream && !r->parquet && !open_next(r)) return false;
        if (r->parquet || r->warc) {
            if (r->parquet ? next_row(r, out) : next_warc(r, out)) return true;
            continue;
        }
        char *text;
        size_t n, n_used;
        r->dropped = 0;
        if (!next_raw(r, &text, &n, &n_used)) {
            close_file(r);
            continue;
        }
        const char *path = r->file[r->at_file].path;
        *out = (CorpusRecord){.path = path, .index = r->index, .line = r->line, .offset = r->offset};
        r->offset += n_used + r->dropped;
        bool given = give(r, text, n, out);
        r->line += count_lines(text, n_used);
        if (!given) continue;
        r->index++;
        return true;
    }
}

const CorpusFile *corpus_all_files(const CorpusReader *r, size_t *n)
{
    *n = r->n_files;
    return r->file;
}

const CorpusFile *corpus_files(const CorpusReader *r, size_t *n)
{
    *n = r->at_file;
    return r->file;
}

CorpusCounts corpus_counts(const CorpusReader *r)
{
    return r->counts;
}

void corpus_close(CorpusReader *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n_files; i++) free((char *)r->file[i].path);
    free(r->file);
    XXH3_freeState(r->hash);
    stream_close(r->stream);
    parquet_close(r->parquet);
    warc_close(r->warc);
    json_decref(r->json);
    free(r->buffer);
    free(r->line_decoded.bytes);
    free(r->text_decoded.bytes);
    free(r);
}

size_t corpus_count_fields(const char *const *path, size_t n_paths, CorpusOptions options, size_t *n_text)
{
    CorpusReader *r = corpus_open(path, n_paths, options);
    size_t n = 0;
    if (n_text) *n_text = 0;
    for (size_t i = 0; i < r->n_files; i++) {
        SourceFormat format = corpus_format(r->file[i].path, options.format);
        n += format == SOURCE_JSONL || format == SOURCE_PARQUET;
        if (n_text) *n_text += format == SOURCE_TEXT;
    }
    corpus_close(r);
    return n;
}

int corpus_judge(const CorpusCounts *c, const char *name)
{
    typedef unsigned long long Number;
    Number lost = c->bad_lines + c->too_long + c->damaged, all = c->documents + c->bad_lines + c->too_long;
    if (!c->documents)
        check_die_status(CORPUS_LOST, "%s: no text in it: %llu file%s, %llu bad lines, %llu too long, %llu empty%s",
                         name, (Number)c->files, words_s(c->files), (Number)c->bad_lines, (Number)c->too_long,
                         (Number)c->empty, c->bad_lines ? " (another --field? Objects over several lines: jq -c)" : "");
    if (10 * lost <= all) return 0;
    check_warn("%s: %llu of %llu documents are lost: %llu bad lines, %llu too long, %llu with ill-formed UTF-8 (exit "
               "status %d)", name, lost, all, (Number)c->bad_lines, (Number)c->too_long, (Number)c->damaged,
               CORPUS_LOST);
    return CORPUS_LOST;
}

void corpus_print(const CorpusCounts *counts, FILE *out)
{
    const struct {
        uint64_t n;
        const char *what;
    } amiss[] = {{counts->no_text, "records without text"},
                 {counts->bad_lines, "bad lines left out"}, {counts->too_long, "lines too long"},
                 {counts->empty, "empty documents left out"}, {counts->bad_utf8, "ill-formed sequences replaced"},
                 {counts->nul, "NUL replaced"}, {counts->bom, "byte order marks removed"},
                 {counts->not_files, "links to folders or to nothing, or devices, left out"}};
    fprintf(out, "%llu file%s, %llu document%s, %llu bytes of text (%llu read)\n", (unsigned long long)counts->files,
            words_s(counts->files), (unsigned long long)counts->documents, words_s(counts->documents),
            (unsigned long long)counts->bytes_out, (unsigned long long)counts->bytes_in);
    const char *between = "";
    for (size_t i = 0; i < sizeof amiss / sizeof *amiss; i++) {
        if (!amiss[i].n) continue;
        fprintf(out, "%s%llu %s", between, (unsigned long long)amiss[i].n, amiss[i].what);
        between = ", ";
    }
    if (*between) fputc('\n', out);
}

// ---- documents kept on disk, and their split
//
// The store keeps documents on disk, so that they can be read twice: the split needs the sizes of all documents before
// the first is used, a tokenizer is trained before anything is encoded, and duplicates are compared long after they
// were read. Standard input cannot be read again, and a packed file cannot be read from its middle. What is read back
// are the bytes that were added, in their order: document i is between end[i - 1] and end[i] of one file without a
// name. Rejected: memory (a corpus is larger), reading plain files again and storing only the others (two paths to
// test, and a file may change meanwhile), and mapping the file (a disk that fails would kill the program).
//
// The split. Training text must not help to predict the validation text, so the validation part is one stretch at the
// end, not documents drawn at random, and tokenizers are trained on the first part alone. With one document of n bytes
// the cut is at byte floor(n (1 - fraction)), moved back to the start of a character.

struct CorpusStore {
    FILE *f;
    uint64_t *end; // (n), bytes of the file
    size_t n, cap;
    char folder[PATH_MAX];
};

static uint64_t start_of(const CorpusStore *s, size_t i)
{
    return i ? s->end[i - 1] : 0;
}

CorpusStore *corpus_store_open(const char *folder)
{
    CorpusStore *s = calloc(1, sizeof *s);
    char path[PATH_MAX + 32];
    if (!s) die("memory: no room for a store of documents");
    if (!folder) folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    snprintf(path, sizeof path, "%s/corpus_XXXXXX", s->folder);
    int fd = mkstemp(path);
    if (fd < 0) die("%s: no temporary file: %s (name a folder that can be written to)", s->folder, strerror(errno));
    unlink(path);
    s->f = fdopen(fd, "r+b");
    if (!s->f || setvbuf(s->f, NULL, _IOFBF, 1 << 20) != 0) die("memory: no room for a store of documents");
    return s;
}

void corpus_store_add(CorpusStore *s, const void *bytes, size_t n_bytes)
{
    if (fwrite(bytes, 1, n_bytes, s->f) != n_bytes)
        die("%s: temporary file: %s (name a folder with more room)", s->folder, strerror(errno));
    s->end = words_grow(s->end, &s->cap, s->n + 1, sizeof *s->end);
    s->end[s->n] = start_of(s, s->n) + n_bytes;
    s->n++;
}

void corpus_store_finish(CorpusStore *s)
{
    if (fflush(s->f) != 0) die("%s: temporary file: %s (name a folder with more room)", s->folder, strerror(errno));
}

size_t corpus_store_count(const CorpusStore *s)
{
    return s->n;
}

uint64_t corpus_store_bytes(const CorpusStore *s)
{
    return start_of(s, s->n);
}

size_t corpus_store_size(const CorpusStore *s, size_t i)
{
    return (size_t)(s->end[i] - start_of(s, i));
}

bool corpus_store_read(const CorpusStore *s, size_t i, void *out)
{
    return disk_read_at(fileno(s->f), out, corpus_store_size(s, i), start_of(s, i));
}

size_t corpus_store_split(CorpusStore *s, double fraction)
{
    if (!(fraction >= 0 && fraction < 1)) die("validation part: %g (a number from 0 to below 1)", fraction);
    if (fraction == 0) return s->n;
    uint64_t n_bytes = corpus_store_bytes(s), cut = (uint64_t)((double)n_bytes * (1 - fraction)), last = n_bytes - cut;
    size_t i = 0; // the document that holds byte `cut`
    while (i + 1 < s->n && s->end[i] <= cut) i++;
    uint64_t start = start_of(s, i), before = cut - start, after = s->n ? s->end[i] - cut : 0; // to the two borders
    if (i > 0 && before <= after && 2 * before <= last) return i;
    if (i + 1 < s->n && after < before && 2 * after <= last) return i + 1;
    if (i > 0 && 2 * before <= last) return i;
    char at_cut[4] = {0}; // the bytes up to `cut`, which is one of them
    uint64_t at = before, from = before < 3 ? 0 : before - 3;
    if (after > 0 && !disk_read_at(fileno(s->f), at_cut, (size_t)(before - from + 1), start + from))
        die("%s: temporary file: %s", s->folder, strerror(errno));
    for (int k = 0; k < 3 && at > 0 && ((uint8_t)at_cut[at - from] & 0xC0) == 0x80; k++) at--;
    if (at == 0 || after == 0)
        die("validation part: %g of %llu bytes leaves nothing on one side (more text, or another part)",
            fraction, (unsigned long long)n_bytes);
    s->end = words_grow(s->end, &s->cap, s->n + 1, sizeof *s->end);
    memmove(s->end + i + 1, s->end + i, (s->n - i) * sizeof *s->end);
    s->end[i] = start + at;
    s->n++;
    return i + 1;
}

void corpus_store_close(CorpusStore *s)
{
    if (!s) return;
    fclose(s->f); // only read since it was finished
    free(s->end);
    free(s);
}

char *corpus_read(const char *path, size_t *n_bytes, CorpusOptions options)
{
    Stream *stream = stream_open(path, 1 << 20);
    char *text = NULL;
    size_t n = 0, cap = 0, max = options.max_bytes ? options.max_bytes : CORPUS_MIB << 20;
    for (;;) {
        text = words_grow(text, &cap, n + (1 << 16), 1);
        size_t k = stream_read(stream, text + n, cap - n - 1);
        if (k == 0) break;
        n += k;
        if (n > max)
            die("%s: longer than %zu bytes (raise %s)", path, max, options.raise ? options.raise : "max_bytes");
    }
    stream_close(stream);
    text[n] = 0;
    *n_bytes = n;
    return text;
}

bool corpus_write_json(FILE *out, const char *text, size_t n, const char *source, uint64_t index)
{
    // A file name may be anything.
    json_t *line = json_pack("{s:s%, s:s, s:I}", "text", text, n, "source", source, "index", (json_int_t)index);
    if (!line) line = json_pack("{s:s%, s:I}", "text", text, n, "index", (json_int_t)index);
    if (!line) errno = ENOMEM;
    bool ok = line && json_dumpf(line, out, JSON_COMPACT) == 0 && fputc('\n', out) != EOF;
    json_decref(line);
    return ok;
}
