// charset: the bytes of a page as UTF-8.
#ifndef CHARSET_H
#define CHARSET_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    char *text; // (n_bytes) valid UTF-8 without NUL, not 0-terminated
    size_t n_bytes, cap;
    uint64_t replaced; // sequences that the charset does not have, and NUL: U+FFFD
} CharsetText; // starts as {0}; free(text)

// Which charset n bytes are in: by a byte order mark; else `label` (of the HTTP header, "" when it has none); else what
// a <meta> in the first 1024 bytes says (html); else UTF-8 if the bytes are, else windows-1252. A label that no
// browser knows is passed over. Returns the name that iconv has for it: "UTF-8", "CP1252", ...
const char *charset_find(const char *bytes, size_t n, const char *label, int html);
// The bytes in UTF-8, a byte order mark left out. Dies when this system's iconv does not have a charset of the web.
void charset_decode(const char *bytes, size_t n, const char *charset, CharsetText *out);

#ifdef __cplusplus
}
#endif
#endif
