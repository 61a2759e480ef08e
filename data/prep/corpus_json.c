// corpus_json: lines that are nearly JSON.
//
// Python's json writes half a surrogate pair as \ud83d, and NaN, Infinity and -Infinity as such; 1e999 and integers of
// 400 digits are good JSON that no double holds. The parser refuses all of them, and a document would be lost for a
// number in a field that nobody reads.
//
// Invariant: the length of the line and the places of its strings stay, so nothing moves and nothing needs room: an
// escape becomes another one of six characters, and a number becomes 0 with blanks behind it. What was not JSON for any
// other reason still is not: a word is a number only where a value may begin, and a number ends where its digits do.
//
// Rejected: mending every line before it is parsed (nearly all are good, and parsing says so), and a parser of our own.
#include "data/prep/corpus_json.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// Behind the string that begins at the quote line[at].
static size_t skip_string(const char *line, size_t n, size_t at)
{
    for (at++; at < n && line[at] != '"'; at++)
        if (line[at] == '\\') at++;
    return at < n ? at + 1 : n;
}

// The number of an escape \uXXXX at line[at]; 0 when none stands there.
static unsigned escape(const char *line, size_t n, size_t at)
{
    char digit[5] = "", *end;
    if (n - at < 6 || line[at] != '\\' || line[at + 1] != 'u') return 0;
    memcpy(digit, line + at + 2, 4);
    if (strspn(digit, "0123456789abcdefABCDEF") != 4) return 0;
    return (unsigned)strtoul(digit, &end, 16);
}

size_t corpus_json_mend_escapes(char *line, size_t n)
{
    size_t mended = 0;
    for (size_t at = 0; at < n; at++) { // a backslash outside of strings is no JSON in any case
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

// The length of JSON's number at the start of a text that ends in a 0; 0 when none stands there (RFC 8259, section 6).
static size_t json_number(const char *text)
{
    static const char digits[] = "0123456789";
    const char *p = text + (*text == '-');
    size_t n = strspn(p, digits);
    if (!n || (*p == '0' && n > 1)) return 0;
    p += n;
    if (*p == '.') {
        if (!(n = strspn(p + 1, digits))) return 0;
        p += 1 + n;
    }
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '+' || p[1] == '-');
        if (!(n = strspn(p, digits))) return 0;
        p += n;
    }
    return (size_t)(p - text);
}

// The length of a number at line[at] that the parser refuses; 0 when none stands there.
static size_t foreign_number(const char *line, size_t n, size_t at)
{
    const char *word[] = {"NaN", "Infinity", "-Infinity"};
    if (at == 0 || !strchr(" \t\r:,[", line[at - 1])) return 0;
    for (int i = 0; i < 3; i++)
        if (n - at >= strlen(word[i]) && memcmp(line + at, word[i], strlen(word[i])) == 0) return strlen(word[i]);
    size_t length = json_number(line + at);
    return length && strspn(line + at, "+-.0123456789eE") == length && isinf(strtod(line + at, NULL)) ? length : 0;
}

size_t corpus_json_mend_numbers(char *line, size_t n)
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
