// pretoken: cuts text into the words that BPE works on, with the regular expression of GPT-2, GPT-4 or another; nfc:
// before that, Unicode's normalization form C: é as one character, whether it was written as one or as e and an accent.
#ifndef PRETOKEN_H
#define PRETOKEN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Pretoken Pretoken;

// `pattern`: PRETOKEN_NAMES, or a regular expression as tokenizer.json holds it; or several of them with PRETOKEN_THEN
// between them, each of which cuts the pieces of the one before. Dies when one does not compile or has what pretoken.c
// does not translate.
#define PRETOKEN_NAMES "gpt2, smollm, cl100k, llama3 or qwen2"
#define PRETOKEN_THEN "\x1F"
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

// ---- nfc.c
typedef struct Nfc Nfc; // what is known of every character; several threads may read it

// Where a text is written that changes; from {0}, one a thread.
typedef struct {
    char *bytes;
    int32_t *point; // the characters of a part that changes
    uint64_t *mark;
    size_t cap_bytes, cap_points, cap_marks;
} NfcRoom;

Nfc *nfc_new(void);
void nfc_free(Nfc *nfc); // NULL is allowed
// The text (*n bytes) in form C, and its bytes in *n: text itself, or in `room` until the next call. Bytes that are not
// UTF-8 stay.
const char *nfc_normalize(const Nfc *nfc, NfcRoom *room, const char *text, size_t *n);
void nfc_free_room(NfcRoom *room);

#ifdef __cplusplus
}
#endif
#endif
