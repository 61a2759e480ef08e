// screen: training text that is judged while it is read. Documents of a sequence that repeat themselves, or are full of
// broken characters, count no loss.
//
// What is judged is the part of a document that lies in the sequence: from an end-of-text token, or the sequence's start,
// to before the next. It is rejected when
//     repeat:  4-grams that occurred earlier in the part / its 4-grams                > max_repeat
//     broken:  bytes of U+FFFD, which stands for text that was not UTF-8 / its bytes  > max_broken
// A part with fewer than 4 tokens repeats nothing; one without bytes of text is not broken.
#ifndef SCREEN_H
#define SCREEN_H
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Screen Screen;

// For sequences of at most T tokens. Bounds from 0 to 1; 1: that rule is off. t may be NULL where max_broken is 1: then
// a sequence is one part. t is used until screen_free.
Screen *screen_new(double max_repeat, double max_broken, size_t T, const Tokenizer *t);
void screen_free(Screen *s); // NULL is allowed
// Sets the targets (n) of the rejected parts of token (n) to -1. Returns how many of these were not -1 before. The result
// depends on the tokens alone.
size_t screen_sequence(Screen *s, const int32_t *token, size_t n, int32_t *target);
// The two shares of a part of n tokens.
double screen_repeat(Screen *s, const int32_t *token, size_t n);
double screen_broken(const Screen *s, const int32_t *token, size_t n);

#ifdef __cplusplus
}
#endif
#endif
