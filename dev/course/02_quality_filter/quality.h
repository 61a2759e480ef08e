// quality: rules of the Gopher filter that a page must pass to be trained on.
#ifndef QUALITY_H
#define QUALITY_H
#include <stddef.h>

// In the order in which they are judged. What each one counts, and its limits: handout.md.
typedef enum {
    KEPT,           // all rules hold
    WORDS,          // 50 to 100,000 words
    WORD_LENGTH,    // mean length of a word 3 to 10
    HASHES,         // at most 0.1 '#' a word
    ELLIPSES,       // at most 0.1 ellipses a word
    BULLETS,        // at most 0.9 of the lines begin with a bullet
    ELLIPSIS_LINES, // at most 0.3 of the lines end with an ellipsis
    LETTER_WORDS,   // at least 0.8 of the words have a letter
    STOP_WORDS,     // at least 2 different ones of: the be to of and that have with
    REPEATED_LINES  // at most 0.3 of the lines are equal to an earlier one
} Rule;

// The first rule that text breaks, or KEPT. A value that equals its limit is allowed. text has n bytes and no 0 at its
// end: printable ASCII, ' ', '\t' and '\n'.
Rule broken_rule(const char *text, size_t n);
#endif
