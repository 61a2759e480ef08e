// charset: the bytes of a page as UTF-8, as a browser would read them.
//
// The order is that of the HTML standard (13.2.3): a byte order mark, the HTTP header, a <meta> near the beginning. A
// page that says nothing is UTF-8 if its bytes are, for other text is that by chance only if it is ASCII; else it is
// windows-1252, the most common of the old charsets. A label stands for what browsers take it for (WHATWG, Encoding
// Standard, 4.2): iso-8859-1 is windows-1252, gb2312 is gb18030. One rule more: a page that claims to be
// windows-1252 or iso-8859-1 and is UTF-8 beyond ASCII is read as UTF-8; many servers send this header for every file.
//
// Invariant: the text depends on the bytes alone, not on the system: a charset of the table that iconv does not have is
// an error, and a label that is not in the table is never shown to iconv.
//
// Rejected: guessing among the old charsets by the frequency of letters (of pages without any label, few are neither
// UTF-8 nor windows-1252, and a wrong guess is worse than a counted loss).
#define _GNU_SOURCE // strcasestr
#include "data/web/charset.h"

#include <errno.h>
#include <iconv.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/words.h"

enum { LOOK = 1024 }; // bytes in which a <meta> must stand

// iconv's name, and the labels that mean it, between spaces.
static const char *const table[][2] = {
    {"UTF-8", " utf-8 utf8 unicode-1-1-utf-8 "},
    {"CP1252", " windows-1252 iso-8859-1 iso8859-1 iso_8859-1 latin1 l1 cp1252 us-ascii ascii x-cp1252 "},
    {"CP1250", " windows-1250 cp1250 x-cp1250 "}, {"CP1251", " windows-1251 cp1251 x-cp1251 "},
    {"CP1253", " windows-1253 cp1253 "}, {"CP1254", " windows-1254 cp1254 iso-8859-9 iso8859-9 latin5 "},
    {"CP1255", " windows-1255 cp1255 "}, {"CP1256", " windows-1256 cp1256 "}, {"CP1257", " windows-1257 cp1257 "},
    {"CP1258", " windows-1258 cp1258 "}, {"ISO-8859-2", " iso-8859-2 iso8859-2 latin2 "},
    {"ISO-8859-3", " iso-8859-3 latin3 "}, {"ISO-8859-4", " iso-8859-4 latin4 "},
    {"ISO-8859-5", " iso-8859-5 cyrillic "}, {"ISO-8859-6", " iso-8859-6 arabic "},
    {"ISO-8859-7", " iso-8859-7 greek "}, {"ISO-8859-8", " iso-8859-8 iso-8859-8-i hebrew "},
    {"ISO-8859-10", " iso-8859-10 "}, {"ISO-8859-13", " iso-8859-13 "}, {"ISO-8859-14", " iso-8859-14 "},
    {"ISO-8859-15", " iso-8859-15 latin9 "}, {"ISO-8859-16", " iso-8859-16 "}, {"KOI8-R", " koi8-r koi8 "},
    {"KOI8-U", " koi8-u "}, {"CP866", " ibm866 cp866 "}, {"CP874", " windows-874 tis-620 iso-8859-11 "},
    {"GB18030", " gb18030 gbk gb2312 gb_2312-80 x-gbk "}, {"BIG5-HKSCS", " big5 big5-hkscs x-x-big5 "},
    {"EUC-JP", " euc-jp x-euc-jp "}, {"CP932", " shift_jis shift-jis sjis x-sjis windows-31j "},
    {"ISO-2022-JP", " iso-2022-jp "}, {"CP949", " euc-kr ks_c_5601-1987 korean windows-949 "},
    {"UTF-16LE", " utf-16 utf-16le "}, {"UTF-16BE", " utf-16be "}};

static const char *by_label(const char *label, size_t n)
{
    char padded[66] = " ";
    if (!n || n > 63) return NULL;
    for (size_t i = 0; i < n; i++)
        if ((padded[i + 1] = label[i]) <= ' ') return NULL;
    padded[n + 1] = ' ';
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcasestr(table[i][1], padded)) return table[i][0];
    return NULL;
}

// What <meta charset=...> or <meta http-equiv=... content="...; charset=..."> says.
static const char *by_meta(const char *bytes, size_t n)
{
    char begin[LOOK + 1];
    size_t n_begin = n < LOOK ? n : LOOK;
    memcpy(begin, bytes, n_begin);
    for (size_t i = 0; i < n_begin; i++) begin[i] = begin[i] ? begin[i] : ' ';
    begin[n_begin] = 0;
    for (char *meta = begin, *end; (meta = strcasestr(meta, "<meta")); meta = end) {
        end = meta + strcspn(meta, ">");
        char *at = strcasestr(meta, "charset");
        if (!at || at > end) continue;
        at += strlen("charset");
        at += strspn(at, " \t\r\n");
        if (*at++ != '=') continue;
        at += strspn(at, " \t\r\n\"'");
        const char *found = by_label(at, strcspn(at, " \t\r\n\"';>/"));
        if (found) return strncmp(found, "UTF-16", 6) == 0 ? "UTF-8" : found; // or the <meta> could not be read
    }
    return NULL;
}

const char *charset_find(const char *bytes, size_t n, const char *label, int html)
{
    size_t length;
    if (n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0) return "UTF-8";
    if (n >= 2 && memcmp(bytes, "\xFF\xFE", 2) == 0) return "UTF-16LE";
    if (n >= 2 && memcmp(bytes, "\xFE\xFF", 2) == 0) return "UTF-16BE";
    const char *said = by_label(label, strlen(label));
    if (!said && html) said = by_meta(bytes, n);
    if (said && strcmp(said, "CP1252") != 0) return said;
    return words_utf8_invalid(bytes, n, 0, &length) == n ? "UTF-8" : "CP1252";
}

static void put(CharsetText *out, const char *bytes, size_t n)
{
    if (!n) return;
    out->text = words_grow(out->text, &out->cap, out->n_bytes + n, 1);
    memcpy(out->text + out->n_bytes, bytes, n);
    out->n_bytes += n;
}

// U+FFFD for every maximal ill-formed sequence and every NUL, in UTF-8.
static void clean(const char *bytes, size_t n, CharsetText *out)
{
    size_t length = 0, at = 0, bad = words_utf8_invalid(bytes, n, 0, &length);
    while (at < n) {
        const char *nul = memchr(bytes + at, 0, bad - at);
        size_t stop = nul ? (size_t)(nul - bytes) : bad;
        put(out, bytes + at, stop - at);
        if ((at = stop) == n) break;
        put(out, "\xEF\xBF\xBD", 3);
        out->replaced++;
        at += nul ? 1 : length;
        if (!nul) bad = words_utf8_invalid(bytes, n, at, &length);
    }
}

void charset_decode(const char *bytes, size_t n, const char *charset, CharsetText *out)
{
    out->n_bytes = out->replaced = 0;
    if (strcmp(charset, "UTF-8") == 0) {
        size_t mark = n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        clean(bytes + mark, n - mark, out);
        return;
    }
    bool wide = strncmp(charset, "UTF-16", 6) == 0 && n >= 2;
    if (wide && (memcmp(bytes, "\xFF\xFE", 2) == 0 || memcmp(bytes, "\xFE\xFF", 2) == 0)) bytes += 2, n -= 2;
    iconv_t to_utf8 = iconv_open("UTF-8", charset);
    if (to_utf8 == (iconv_t)-1)
        die("charset: %s: this system's iconv does not have it (install all its charsets; Fedora: glibc-gconv-extra)",
            charset);
    char *in = (char *)(uintptr_t)bytes, buffer[1 << 13];
    bool over = false;
    while (!over) {
        char *to = buffer;
        size_t room = sizeof buffer;
        over = n == 0; // then: what the converter still holds
        size_t status = over ? iconv(to_utf8, NULL, NULL, &to, &room) : iconv(to_utf8, &in, &n, &to, &room);
        int why = errno;
        const char *nul, *from = buffer;
        for (; (nul = memchr(from, 0, (size_t)(to - from))); from = nul + 1) {
            put(out, from, (size_t)(nul - from));
            put(out, "\xEF\xBF\xBD", 3);
            out->replaced++;
        }
        put(out, from, (size_t)(to - from));
        if (over || status != (size_t)-1 || why == E2BIG) continue;
        put(out, "\xEF\xBF\xBD", 3);
        out->replaced++;
        in++, n--;
    }
    iconv_close(to_utf8);
}
