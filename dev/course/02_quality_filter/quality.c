#include "quality.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

typedef struct {
    const char *s;
    size_t n;
} Span;

// Cuts the next piece up to `separator` ('\n', or ' ' for any white space) off *rest, without white space around it;
// false when there is none. Empty pieces are left out.
static bool next_piece(Span *rest, Span *piece, char separator)
{
    while (rest->n && isspace((unsigned char)*rest->s)) rest->s++, rest->n--;
    *piece = (Span){rest->s, 0};
    while (rest->n && !(separator == ' ' ? isspace((unsigned char)*rest->s) : *rest->s == '\n')) {
        rest->s++, rest->n--;
        if (!isspace((unsigned char)rest->s[-1])) piece->n = (size_t)(rest->s - piece->s);
    }
    return piece->n > 0;
}

//[
//+ // Functions of your own can stand here.
// A bit for the stop word that this is, without signs around it and in any case; 0: none.
static unsigned stop_word(Span w)
{
    static const char *const stop[] = {"the", "be", "to", "of", "and", "that", "have", "with"};
    while (w.n && !isalnum((unsigned char)*w.s)) w.s++, w.n--;
    while (w.n && !isalnum((unsigned char)w.s[w.n - 1])) w.n--;
    for (int k = 0; k < 8; k++)
        if (strlen(stop[k]) == w.n && !strncasecmp(stop[k], w.s, w.n)) return 1u << k;
    return 0;
}

// Whether a line with the text of `line`, which lies in `text`, stands before it.
static bool stood_before(Span text, Span line)
{
    Span other;
    while (next_piece(&text, &other, '\n') && other.s < line.s)
        if (other.n == line.n && !memcmp(other.s, line.s, line.n)) return true;
    return false;
}
//]

Rule broken_rule(const char *text, size_t n)
{
    //[
    //+ (void)text, (void)n, (void)next_piece; // write this
    //+ return (Rule)-1;
    size_t words = 0, characters = 0, with_letter = 0, hashes = 0, ellipses = 0;
    size_t lines = 0, bullets = 0, ended = 0, repeated = 0;
    unsigned stop = 0;
    for (Span rest = {text, n}, w; next_piece(&rest, &w, ' '); words++) {
        bool letter = false;
        for (size_t i = 0; i < w.n; i++) letter |= isalpha((unsigned char)w.s[i]) != 0;
        with_letter += letter;
        characters += w.n;
        stop |= stop_word(w);
    }
    for (size_t i = 0, dots = 0; i < n; i++) {
        hashes += text[i] == '#';
        dots = text[i] == '.' ? dots + 1 : 0;
        ellipses += dots == 3;
    }
    for (Span rest = {text, n}, l; next_piece(&rest, &l, '\n'); lines++) {
        bullets += *l.s == '-' || *l.s == '*';
        ended += l.n >= 3 && !memcmp(l.s + l.n - 3, "...", 3);
        repeated += stood_before((Span){text, n}, l);
    }
    if (words < 50 || words > 100000) return WORDS;
    if (characters < 3 * words || characters > 10 * words) return WORD_LENGTH;
    if (10 * hashes > words) return HASHES;
    if (10 * ellipses > words) return ELLIPSES;
    if (10 * bullets > 9 * lines) return BULLETS;
    if (10 * ended > 3 * lines) return ELLIPSIS_LINES;
    if (10 * with_letter < 8 * words) return LETTER_WORDS;
    if (__builtin_popcount(stop) < 2) return STOP_WORDS;
    if (10 * repeated > 3 * lines) return REPEATED_LINES;
    return KEPT;
    //]
}
