// Fuzzes the reader of WARC, and the text of what it gives as pages: valid UTF-8 without NUL, the same whatever is read
// at a time, and in bounds.
//
// The first byte chooses the bound of a record and how much is read at a time, the rest is the file. An input that does
// not begin as WARC does is a page of HTML by itself.
#include "fuzz.h"

#include <iconv.h>
#include <libxml/parser.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

#include "base/words.h"
#include "data/web/charset.h"
#include "data/web/html.h"
#include "data/web/warc.h"

typedef struct {
    const uint8_t *bytes;
    size_t n, at, step;
} File;

static size_t read_file(void *arg, void *out, size_t n)
{
    File *f = arg;
    size_t k = f->n - f->at;
    if (k > n) k = n;
    if (k > f->step) k = f->step;
    memcpy(out, f->bytes + f->at, k);
    f->at += k;
    return k;
}

static void warc_begin(void)
{
    // What libraries load once outlives the inputs: libxml2's tables, and the modules of iconv, which libc takes out of
    // memory when nobody has them open.
    static const char *const label[] = {
        "windows-1252", "windows-1250", "windows-1251", "windows-1253", "windows-1254", "windows-1255", "windows-1256",
        "windows-1257", "windows-1258", "iso-8859-2", "iso-8859-3", "iso-8859-4", "iso-8859-5", "iso-8859-6",
        "iso-8859-7", "iso-8859-8", "iso-8859-10", "iso-8859-13", "iso-8859-14", "iso-8859-15", "iso-8859-16", "koi8-r",
        "koi8-u", "ibm866", "windows-874", "gbk", "big5", "euc-jp", "shift_jis", "iso-2022-jp", "euc-kr", "utf-16le",
        "utf-16be"};
    xmlInitParser();
    for (size_t i = 0; i < sizeof label / sizeof *label; i++)
        if (iconv_open("UTF-8", charset_find("\xFF", 1, label[i], 0)) == (iconv_t)-1) abort();
}

static void warc_seeds(void)
{
    static const char *const block[] = {
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<html><title>t</title><script>a < b</script>"
        "<body><nav><a href=x>home</a></nav><article><header><h1>A title<a>#</a></h1></header><p>One &amp; two words "
        "that make a paragraph.<br><br>Another <b>one</b> &#233;.<ul><li>x<li><p>y</ul><table><tr><td>a<td><p>b</table>"
        "<pre>\n x\n</pre><dl><dt>t<dd>d</dl><div hidden>no</div><p class='footer menu'>no",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n",
        "HTTP/1.0 200\nContent-Type: text/html\nX:\n folded\n\n<meta charset=shift_jis>\x93\xFA\x96\x7B<p>x",
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\nno", "just text"};
    static const char *const type[] = {"response", "conversion", "warcinfo", "revisit"};
    static char file[1 << 14];
    for (size_t i = 0; i < 20; i++) {
        size_t n = 1;
        file[0] = (char)i;
        for (size_t k = 0; k <= i % 3; k++) {
            const char *b = block[(i + k) % 5];
            const char *form = "WARC/1.%zu\r\nWARC-Type: %s\r\nWARC-Truncated:\r\n length\r\n"
                               "Content-Length: %zu\r\n\r\n%s\r\n\r\n";
            n += (size_t)snprintf(file + n, sizeof file - n, form, k & 1, type[(i / 5 + k) % 4], strlen(b), b);
        }
        fuzz_seed((char[]){'w', (char)('a' + i), 0}, file, n);
    }
    char packed[300];
    z_stream z = {.next_in = (Bytef *)(uintptr_t)block[0], .avail_in = 200, .next_out = (Bytef *)packed,
                  .avail_out = sizeof packed};
    if (deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    deflate(&z, Z_FINISH);
    size_t n = sizeof packed - z.avail_out;
    deflateEnd(&z);
    const char *head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/html\r\n\r\n";
    const char *form = "\1WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %zu\r\n\r\n%s";
    int k = snprintf(file, sizeof file, form, strlen(head) + n, head);
    memcpy(file + k, packed, n);
    fuzz_seed("gzip", file, (size_t)k + n);
    for (int i = 0; i < 3; i++) {
        file[0] = (char)i;
        strcpy(file + 1, strstr(block[i > 1 ? 2 : 0], "<"));
        fuzz_seed((char[]){'h', (char)('a' + i), 0}, file, strlen(file + 1) + 1);
    }
}

// The text of a page; *about takes it in.
static void read_page(const char *bytes, size_t n, const char *label, bool is_html, size_t most, uint64_t about[3])
{
    CharsetText t = {0};
    Html *h = html_new();
    const char *text = NULL, *why = NULL;
    size_t length, n_text = 0;
    charset_decode(bytes, n, charset_find(bytes, n, label, is_html), &t);
    fuzz_check(t.n_bytes <= 3 * n && t.replaced <= n && n <= most);
    fuzz_check(!t.n_bytes || words_utf8_invalid(t.text, t.n_bytes, 0, &length) == t.n_bytes);
    if (is_html) why = html_text(h, t.text, t.n_bytes, &text, &n_text);
    fuzz_check(!n_text || (words_utf8_invalid(text, n_text, 0, &length) == n_text && !memchr(text, 0, n_text)));
    about[1] = n_text ? XXH3_64bits(text, n_text) : why != NULL;
    about[2] = t.n_bytes ? XXH3_64bits(t.text, t.n_bytes) : 0;
    about[0] = XXH3_64bits(about, 3 * sizeof *about);
    html_free(h);
    free(t.text);
}

static uint64_t read_all(const uint8_t *data, size_t n, size_t step, size_t most)
{
    File f = {data, n, 0, step};
    Warc *w = warc_open("x", read_file, &f, step, most);
    WarcRecord record;
    uint64_t about[3] = {0}, number = 0, offset = 0;
    while (warc_next(w, &record)) {
        fuzz_check(record.number == ++number && record.offset >= offset && record.offset < n);
        offset = record.offset;
        if (record.kind == WARC_HTML || record.kind == WARC_TEXT)
            read_page(record.body, record.n_bytes, record.charset, record.kind == WARC_HTML, most, about);
        else about[0] = about[0] * 31 + (uint64_t)record.kind;
        fuzz_check(record.kind != WARC_BAD || record.why);
    }
    warc_close(w);
    return about[0];
}

static void warc_one(const uint8_t *data, size_t n)
{
    if (!n) return;
    size_t most = data[0] & 1 ? 1 << 16 : 200;
    if (n < 6 || memcmp(data + 1, "WARC/", 5) != 0) {
        uint64_t about[3] = {0};
        read_page((const char *)data + 1, n - 1, "", true, SIZE_MAX, about);
        return;
    }
    uint64_t once = read_all(data + 1, n - 1, 1 << 12, most);
    fuzz_must_take();
    fuzz_check(read_all(data + 1, n - 1, 1 + data[0] / 2 % 32, most) == once);
}

FUZZ(warc, warc_begin)
