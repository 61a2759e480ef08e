// pretoken: cuts text into the words that BPE works on, with the regular expression of GPT-2, GPT-4 or another.
#ifndef PRETOKEN_H
#define PRETOKEN_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Pretoken Pretoken;

// `pattern`: PRETOKEN_NAMES, or a regular expression as tokenizer.json holds it. Dies when it does not compile or has
// what pretoken.c does not translate.
#define PRETOKEN_NAMES "gpt2, smollm, cl100k, llama3 or qwen2"
Pretoken *pretoken_new(const char *pattern);
void pretoken_check(const char *pattern, const char *path); // dies, naming the file, where pretoken_new would
void pretoken_free(Pretoken *p); // NULL is allowed
// The regular expression of that name, in the form that goes into tokenizer.json; NULL when there is none.
const char *pretoken_regex(const char *name);
const char *pretoken_name(const char *regex); // the inverse

// Walks over text: begin, then next until it returns false. The pieces are not empty and cover the text
// without gaps, in order; they point into `text`, which must stay until the walk ends. One walk at a time.
void pretoken_begin(Pretoken *p, const char *text, size_t n_bytes);
bool pretoken_next(Pretoken *p, const char **piece, size_t *n_bytes);

// The first position at or after `at` (and not 0) where the text can be split in two without changing its pieces.
// n_bytes when there is none, and always for patterns other than the named ones.
size_t pretoken_cut(const Pretoken *p, const char *text, size_t n_bytes, size_t at);

#ifdef __cplusplus
}
#endif
#endif
