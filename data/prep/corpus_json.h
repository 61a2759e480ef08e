// corpus_json: mends what other programs write into a line of JSON, and JSON does not have.
#ifndef CORPUS_JSON_H
#define CORPUS_JSON_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// Both change line (n bytes, with a 0 behind) in place and return how often; its length stays.
size_t corpus_json_mend_escapes(char *line, size_t n); // half a surrogate pair in a string: \ufffd
size_t corpus_json_mend_numbers(char *line, size_t n); // NaN, Infinity and what no double holds, outside strings: 0

#ifdef __cplusplus
}
#endif
#endif
