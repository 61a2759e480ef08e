// Fuzzes the reading of UTF-8 against the table of well-formed sequences, written out (The Unicode Standard, table
// 3-7).
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/words.h"

void fuzz_seeds(void)
{
    fuzz_seed("good", "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 b", 13);
    fuzz_seed("bad", "\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80\xE2\x82 \xF0\x9F\x98", 16);
}

static bool between(uint8_t c, uint8_t low, uint8_t high)
{
    return c >= low && c <= high;
}

// The length of the well-formed character at s, or 0.
static size_t well_formed(const uint8_t *s, size_t n)
{
    uint8_t c = s[0];
    if (c < 0x80) return 1;
    uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    size_t length = between(c, 0xC2, 0xDF) ? 2 : between(c, 0xE0, 0xEF) ? 3 : between(c, 0xF0, 0xF4) ? 4 : 0;
    if (!length || n < length || !between(s[1], low, high)) return 0;
    for (size_t i = 2; i < length; i++)
        if (!between(s[i], 0x80, 0xBF)) return 0;
    return length;
}

void fuzz_one(const uint8_t *data, size_t n)
{
    const char *s = (const char *)data;
    size_t first_bad = n, length, at = 0;
    while (at < n) {
        bool valid;
        size_t k = words_utf8_length(s + at, n - at, &valid), expected = well_formed(data + at, n - at);
        fuzz_check(k >= 1 && k <= 4 && k <= n - at);
        fuzz_check(valid == (expected > 0) && (!valid || k == expected) && (valid || k <= 3));
        if (valid) fuzz_check(words_utf8_code(s + at, k) <= 0x10FFFF);
        if (!valid && first_bad == n) first_bad = at;
        at += k;
    }
    fuzz_check(words_utf8_invalid(s, n, 0, &length) == first_bad);
    for (size_t i = 0; i <= first_bad; i++) { // what is before the first fault is well-formed
        size_t border = words_utf8_border(s, first_bad, i);
        fuzz_check(border <= i && i - border <= 3);
        fuzz_check(words_utf8_invalid(s, border, 0, &length) == border);
    }
}
