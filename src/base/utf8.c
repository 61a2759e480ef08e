// utf8: where characters begin and end in bytes that nobody has checked.
//
// Invariant: the pieces that utf8_length cuts tile the bytes, and every piece is either one well-formed character
// or one maximal subpart, so that replacing each of the latter by U+FFFD gives what a browser or Python's
// bytes.decode("utf-8", "replace") gives.
//
// Well-formed (Unicode, table 3-7): the lead byte fixes the length and the range of the second byte,
//
//     00..7F | C2..DF T | E0 A0..BF T | E1..EC,EE,EF T T | ED 80..9F T | F0 90..BF T T | F1..F3 T T T | F4 80..8F T T
//
// with T = 80..BF. What is left out: overlong forms (C0, C1, E0 80.., F0 80..), surrogates (ED A0..), and what lies
// above U+10FFFF. A maximal subpart is the longest beginning of such a row that stands there, or else one byte.
//
// Rejected: mbrtowc (follows the locale, accepts different sets on different systems) and one U+FFFD per byte
// (three for a cut-off euro sign, where every decoder in use gives one).
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

size_t utf8_length(const char *s, size_t n, bool *valid)
{
    const uint8_t *u = (const uint8_t *)s;
    uint8_t lead = u[0], low = 0x80, high = 0xBF; // the range of the second byte
    size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    *valid = false;
    if (length == 0) return 1;
    if (lead == 0xE0) low = 0xA0;  // below: overlong
    if (lead == 0xED) high = 0x9F; // above: surrogates
    if (lead == 0xF0) low = 0x90;  // below: overlong
    if (lead == 0xF4) high = 0x8F; // above: beyond U+10FFFF
    for (size_t i = 1; i < length; i++) {
        if (i >= n || u[i] < low || u[i] > high) return i;
        low = 0x80, high = 0xBF;
    }
    *valid = true;
    return length;
}

size_t utf8_invalid(const char *s, size_t n, size_t at, size_t *length)
{
    while (at < n) {
        uint64_t eight;
        if (n - at >= 8) {
            memcpy(&eight, s + at, 8);
            if (!(eight & 0x8080808080808080ull)) { // eight characters of ASCII
                at += 8;
                continue;
            }
        }
        bool valid;
        *length = utf8_length(s + at, n - at, &valid);
        if (!valid) return at;
        at += *length;
    }
    return n;
}

uint32_t utf8_code(const char *s, size_t length)
{
    const uint8_t *u = (const uint8_t *)s;
    if (length == 1) return u[0];
    uint32_t code = u[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) code = code << 6 | (u[i] & 0x3F);
    return code;
}

size_t utf8_border(const char *s, size_t n, size_t at)
{
    while (at > 0 && at < n && ((uint8_t)s[at] & 0xC0) == 0x80) at--;
    return at;
}

char *utf8_copy(const char *text)
{
    size_t n = strlen(text), length = 0, o = 0;
    char *copy = malloc(3 * n + 1);
    if (!copy) die("memory: no room for a text of %zu bytes", n);
    for (size_t at = 0; at < n; at += length) {
        size_t bad = utf8_invalid(text, n, at, &length);
        memcpy(copy + o, text + at, bad - at);
        o += bad - at;
        if ((at = bad) == n) break;
        memcpy(copy + o, "\xEF\xBF\xBD", 3);
        o += 3;
    }
    copy[o] = 0;
    return copy;
}
