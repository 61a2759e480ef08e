// stream: plain, gzip and zstd files through one read call.
//
// Invariant: what stream_read has given is a beginning of the content, whatever the sizes asked for, and it returns 0
// only after a complete last member or frame. So an interrupted download is an error and never a shorter corpus:
// silently losing the second half of the training data would be worse.
//
// gzip (RFC 1952) files may hold several members, zstd (RFC 8878) files several frames; tools that compress in
// parallel write such files, and their content is that of all members or frames, concatenated. Zero bytes after a
// gzip member are padding (tapes, tar); anything else there is damage. Checksums are verified by the libraries.
//
// Memory is the read buffer and the window of the format: 32 KB for gzip, at most 128 MB for zstd, whose library
// refuses larger windows (zstd --long=28 and up).
//
// The first bytes decide the format, not the name. A packed file under another name, a pipe and /dev/stdin are
// unpacked like any other; a .gz file that is not gzip is refused. What begins like bzip2, zip, Parquet (parquet.c
// reads it, from its end) and others is too, packed or not: as text it would be a corpus of ill-formed sequences.
//
// Rejected: gzread (it reads a file that is not gzip as plain text, and gives no offsets), a pipe to gzip and zstd
// (programs that may not be installed), and prefetching in a thread (a later step does that for whole files).
#define _GNU_SOURCE // memmem
#include "data/prep/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/check.h"
#include "base/words.h"

typedef enum { PLAIN, GZIP, ZSTD } Packing;

struct Stream {
    int fd;
    char *path;
    Packing packing;
    uint8_t *in; // (cap): packed bytes; [at, n) not yet used
    size_t cap, at, n;
    uint64_t n_read; // bytes of the file so far; the offset of in[at] is n_read - (n - at)
    bool open;       // inside a member or frame
    bool pending;    // zstd holds content that did not fit
    z_stream z;
    ZSTD_DStream *zstd;
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcasecmp(text + n - n_end, end) == 0;
}

static unsigned long long offset(const Stream *s)
{
    return s->n_read - (s->n - s->at);
}

// Appends to in[n] by a read; false at the end of the file.
static bool read_more(Stream *s, size_t room)
{
    for (;;) {
        ssize_t k = read(s->fd, s->in + s->n, room);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) die("%s: byte %llu: %s", s->path, (unsigned long long)s->n_read, strerror(errno));
        s->n += (size_t)k;
        s->n_read += (uint64_t)k;
        return k > 0;
    }
}

static bool refill(Stream *s)
{
    s->at = s->n = 0;
    return read_more(s, s->cap);
}

// Are these bytes at s->in[at]?
static bool stands(const Stream *s, size_t at, const char *bytes, size_t n)
{
    return s->n >= at + n && memcmp(s->in + at, bytes, n) == 0;
}

// How files begin that people have and that are no text, what they are, and what makes text of them.
#define PACKED(what, command) "a file of " what ", which is not read here (unpack it first: " command ")"
#define ARROW "a table of Arrow, which is not read here (in Python, datasets: to_json or to_parquet)"
static const struct {
    size_t at, n;
    const char *bytes, *what;
} foreign[] = {
    {4, 6, "1AY&SY", PACKED("bzip2", "bzip2 -dc")}, {0, 6, "\xFD" "7zXZ\0", PACKED("xz", "xz -dc")},
    {0, 4, "\x04\x22\x4D\x18", PACKED("LZ4", "lz4 -dc")}, {0, 4, "PK\3\4", PACKED("zip", "unzip -p")},
    {0, 6, "7z\xBC\xAF\x27\x1C", PACKED("7z", "7z x -so")}, {257, 5, "ustar", PACKED("tar", "tar -xf")},
    {0, 5, "PAR1\x15", "a Parquet file, read as text or JSONL (give it as a file, not a pipe, of format parquet)"},
    {0, 6, "\x93NUMPY", "an array of NumPy, which is not read here (give the text; token shards: doc/dataset.md)"},
    {0, 6, "ARROW1", ARROW}, {0, 4, "\xFF\xFF\xFF\xFF", ARROW}, {0, 5, "%PDF-", "a PDF (its text: pdftotext)"},
    {0, 23, "version https://git-lfs", "a pointer of Git LFS, not the file itself (git lfs pull)"}};

#define WIDE(bits) "UTF-" #bits ", where UTF-8 is read (convert it first: iconv -f UTF-" #bits " -t UTF-8)"
static const struct {
    size_t n;
    const char *mark, *what;
} marks[] = {{4, "\xFF\xFE\0\0", WIDE(32)}, {4, "\0\0\xFE\xFF", WIDE(32)}, {2, "\xFF\xFE", WIDE(16)},
             {2, "\xFE\xFF", WIDE(16)}};

// Text of 16 bits without a mark: every other byte is 0.
static const char *is_wide(const uint8_t *b, size_t n)
{
    size_t zeros[2] = {0, 0};
    for (size_t i = 0; i < n; i++) zeros[i % 2] += b[i] == 0;
    if (n < 16 || zeros[0] + zeros[1] < n / 2 || (zeros[0] && zeros[1])) return NULL;
    return zeros[1] ? WIDE(16LE) : WIDE(16BE);
}

// A page that was saved in place of a file whose name says something else.
static const char *is_page(const char *path, const char *text, size_t n)
{
    static const char *const own[] = {".html", ".htm", ".xhtml", ".xml"};
    for (int i = 0; i < 4; i++)
        if (ends_with(path, own[i]) || !strcmp(path, "-")) return NULL; // of a pipe it is meant
    while (n && strchr(" \t\r\n", *text) && *text) text++, n--;
    bool html = n >= 14 && (!strncasecmp(text, "<!doctype html", 14) || !strncasecmp(text, "<html", 5));
    bool error = n >= 5 && !memcmp(text, "<?xml", 5) && memmem(text, n, "<Error>", 7);
    return html ? "a page of HTML, where text is read (was it saved instead of the file? A page's name ends in .html)"
         : error ? "an error of a store of files, saved instead of the file (fetch it again, with your key)" : NULL;
}

void stream_refuse(const char *path, const void *begin, size_t n, bool text)
{
    const char *what = text ? is_page(path, begin, n) : NULL;
    if (text && !what) what = is_wide(begin, n);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign && !what; i++)
        if (n >= foreign[i].at + foreign[i].n &&
            !memcmp((const char *)begin + foreign[i].at, foreign[i].bytes, foreign[i].n)) what = foreign[i].what;
    for (size_t i = 0; i < 4 && text && !what; i++)
        if (n >= marks[i].n && !memcmp(begin, marks[i].mark, marks[i].n)) what = marks[i].what;
    size_t length, bad = text && ends_with(path, ".br") ? words_utf8_invalid(begin, n, 0, &length) : n;
    if (bad + 3 < n) what = PACKED("brotli", "brotli -dc"); // which has no mark
    if (what) die("%s: byte 0: %s", path, what);
}

// Reads the first bytes. gzip begins with 1F 8B 08, zstd with 28 B5 2F FD or a frame to skip: no text does.
static Packing look_at(Stream *s)
{
    while (s->n < STREAM_LOOK && read_more(s, STREAM_LOOK - s->n)) {}
    stream_refuse(s->path, s->in, s->n, false);
    bool skipped = s->n > 0 && s->in[0] >> 4 == 5 && stands(s, 1, "\x2A\x4D\x18", 3);
    if (stands(s, 0, "\x1F\x8B\x08", s->n == 2 ? 2 : 3)) return GZIP;
    if (stands(s, 0, "\x28\xB5\x2F\xFD", 4) || skipped) return ZSTD;
    const char *format = ends_with(s->path, ".gz") ? "gzip" : ends_with(s->path, ".zst") ? "zstd" : NULL;
    if (format && s->n) { // an empty one ends too early
        stream_refuse(s->path, s->in, s->n, true);
        die("%s: byte 0: not %s, as its name says (unpacked already? Take the ending off its name)", s->path, format);
    }
    return !format ? PLAIN : *format == 'g' ? GZIP : ZSTD;
}

// The dictionary that all frames of an archive use is its first one, to be skipped and perhaps packed itself (IIPC,
// "Zstandard compression format for WARC files").
static void read_dictionary(Stream *s)
{
    enum { MAGIC = 0x5D, MOST = 1 << 27 };
    if (s->n < 8 || s->in[0] != MAGIC || !stands(s, 1, "\x2A\x4D\x18", 3)) return;
    size_t n = s->in[4] | (size_t)s->in[5] << 8 | (size_t)s->in[6] << 16 | (size_t)s->in[7] << 24, at = s->n - 8;
    if (n > MOST) die("%s: byte 0: a zstd dictionary of %zu bytes (%d at most)", s->path, n, MOST);
    uint8_t *packed = malloc(n + 1), *plain = packed;
    if (!packed) die("%s: no memory for its zstd dictionary", s->path);
    memcpy(packed, s->in + 8, at < n ? at : n);
    size_t over = at < n ? 0 : at - n; // of the bytes that were looked at
    memmove(s->in, s->in + s->n - over, over);
    for (s->n = over; at < n; at++) {
        if (s->at == s->n && !refill(s)) die("%s: its zstd dictionary ends too early (fetch it again)", s->path);
        packed[at] = s->in[s->at++];
    }
    if (n > 4 && !memcmp(packed, "\x28\xB5\x2F\xFD", 4)) {
        unsigned long long size = ZSTD_getFrameContentSize(packed, n);
        if (size > MOST || !(plain = malloc(size + 1)) || ZSTD_isError(ZSTD_decompress(plain, size, packed, n)))
            die("%s: byte 8: its zstd dictionary cannot be unpacked (fetch it again)", s->path);
        free(packed);
        n = size;
    }
    if (ZSTD_isError(ZSTD_DCtx_loadDictionary(s->zstd, plain, n))) die("%s: no memory for a dictionary", s->path);
    free(plain);
}

// Windows of up to 2 GiB, as zstd --long=31 makes them.
static void open_zstd(Stream *s)
{
    if (!(s->zstd = ZSTD_createDStream())) die("%s: no memory to unpack it", s->path);
    ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, sizeof(void *) == 8 ? 31 : 30);
    read_dictionary(s);
}

Stream *stream_open(const char *path, size_t read_bytes)
{
    bool standard = strcmp(path, "-") == 0;
    Stream *s = calloc(1, sizeof *s);
    if (!s) die("%s: no memory to read it", path);
    s->cap = read_bytes < STREAM_LOOK ? STREAM_LOOK : read_bytes;
    s->path = strdup(standard ? "standard input" : path);
    s->in = malloc(s->cap);
    if (!s->path || !s->in) die("%s: no memory for a buffer of %zu bytes", path, s->cap);
    s->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0) die("%s: cannot read: %s", path, strerror(errno));
    s->packing = look_at(s);
    s->cap = read_bytes;
    if (s->packing == GZIP && inflateInit2(&s->z, 15 + 16) != Z_OK) die("%s: no memory to unpack it", path);
    if (s->packing == ZSTD) open_zstd(s);
    return s;
}

static void check_end(const Stream *s, const char *format)
{
    if (s->n_read == 0) die("%s: byte 0: the file is empty, not %s (fetch it again)", s->path, format);
    if (s->open) die("%s: byte %llu: the %s data end too early (fetch it again)", s->path, offset(s), format);
}

static size_t read_gzip(Stream *s, void *out, size_t n)
{
    s->z.next_out = out;
    s->z.avail_out = (uInt)n;
    while (s->z.avail_out == n) {
        if (s->at == s->n && !refill(s)) {
            check_end(s, "gzip");
            return 0;
        }
        if (!s->open && s->n_read > s->n - s->at) { // after a member: padding, or the next one
            while (s->at < s->n && s->in[s->at] == 0) s->at++;
            if (s->at == s->n) continue;
            inflateReset(&s->z);
        }
        s->open = true;
        uInt room = (uInt)(s->n - s->at);
        s->z.next_in = s->in + s->at;
        s->z.avail_in = room;
        int status = inflate(&s->z, Z_NO_FLUSH);
        s->at += room - s->z.avail_in;
        if (status == Z_STREAM_END) s->open = false;
        else if (status != Z_OK && status != Z_BUF_ERROR)
            die("%s: byte %llu: damaged gzip data: %s (fetch it again)", s->path, offset(s),
                s->z.msg ? s->z.msg : "a dictionary is asked for");
    }
    return n - s->z.avail_out;
}

// Four bytes say which format a frame has. Some libraries also read the formats from before 2016, but recognise them
// only when the four bytes arrive at once, so the content would depend on how much is read at a time. So these formats
// are refused.
static void check_frame(Stream *s)
{
    if (s->n - s->at < 4) {
        memmove(s->in, s->in + s->at, s->n - s->at);
        s->n -= s->at;
        s->at = 0;
        while (s->n < 4 && read_more(s, 4 - s->n)) {}
    }
    if (s->n - s->at < 4) return; // the end, too early: check_end reports it
    const uint8_t *b = s->in + s->at;
    uint32_t magic = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    if (magic != ZSTD_MAGICNUMBER && (magic & ZSTD_MAGIC_SKIPPABLE_MASK) != ZSTD_MAGIC_SKIPPABLE_START)
        die("%s: byte %llu: damaged zstd data: no frame begins here (fetch it again)", s->path, offset(s));
}

static size_t read_zstd(Stream *s, void *out, size_t n)
{
    ZSTD_outBuffer to = {out, n, 0};
    while (to.pos == 0) {
        if (s->at == s->n && !s->pending && !refill(s)) {
            check_end(s, "zstd");
            return 0;
        }
        if (!s->open) check_frame(s);
        ZSTD_inBuffer from = {s->in, s->n, s->at};
        size_t status = ZSTD_decompressStream(s->zstd, &to, &from);
        if (ZSTD_isError(status))
            die("%s: byte %llu: damaged zstd data: %s (fetch it again)", s->path, offset(s),
                ZSTD_getErrorName(status));
        s->at = from.pos;
        s->open = status != 0;
        s->pending = s->open && to.pos == to.size;
    }
    return to.pos;
}

size_t stream_read(Stream *s, void *out, size_t n)
{
    if (n > 1u << 30) n = 1u << 30; // zlib counts in 32 bits
    if (s->packing == GZIP) return read_gzip(s, out, n);
    if (s->packing == ZSTD) return read_zstd(s, out, n);
    if (s->at == s->n && !refill(s)) return 0;
    size_t k = s->n - s->at < n ? s->n - s->at : n;
    memcpy(out, s->in + s->at, k);
    s->at += k;
    return k;
}

void stream_close(Stream *s)
{
    if (!s) return;
    if (s->packing == GZIP) inflateEnd(&s->z);
    ZSTD_freeDStream(s->zstd);
    if (s->fd != STDIN_FILENO) close(s->fd);
    free(s->in);
    free(s->path);
    free(s);
}
