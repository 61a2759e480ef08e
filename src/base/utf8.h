// utf8: characters of UTF-8, and what is not one.
#ifndef UTF8_H
#define UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// The bytes of the character at s (n > 0 bytes are there), or, with *valid false, of the maximal subpart of an
// ill-formed one: 1 to 3 bytes, as the Unicode Standard (section 3.9, U+FFFD substitution) and the W3C's decoders
// cut them.
size_t utf8_length(const char *s, size_t n, bool *valid);
// Where the first ill-formed sequence at or after `at` starts, and its *length; n when there is none.
size_t utf8_invalid(const char *s, size_t n, size_t at, size_t *length);
// The code point of the well-formed character of `length` bytes at s.
uint32_t utf8_code(const char *s, size_t length);
// The largest border between characters that is not above `at`; s (n) is well-formed, at <= n.
size_t utf8_border(const char *s, size_t n, size_t at);
// A copy of a 0-terminated text, a file's name for one, with U+FFFD for every ill-formed sequence; free() it.
char *utf8_copy(const char *text);

#ifdef __cplusplus
}
#endif
#endif
