// One pass over the characters, ratios in double, repeated lines by sorting.
#include "quality.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *s;
    size_t n;
} Line;

static int by_text(const void *a, const void *b)
{
    const Line *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int stop_number(const char *w, size_t n)
{
    const char *list = " the be to of and that have with ";
    char key[8] = " ";
    size_t from = 0, k = 1;
    while (from < n && !letter(w[from]) && (w[from] < '0' || w[from] > '9')) from++;
    while (n > from && !letter(w[n - 1]) && (w[n - 1] < '0' || w[n - 1] > '9')) n--;
    if (n == from || n - from > 4) return -1;
    for (; from < n; from++) key[k++] = letter(w[from]) ? (char)(w[from] | 32) : '?';
    key[k] = ' ';
    const char *at = strstr(list, key);
    return at ? (int)(at - list) : -1;
}

static Rule judge(const char *text, size_t n, Line *line)
{
    double words = 0, chars = 0, lettered = 0, hashes = 0, ellipses = 0, bullets = 0, ended = 0, repeated = 0;
    size_t lines = 0, word = 0, begin = 0, end = 0, dots = 0;
    unsigned long long seen = 0;
    bool has_letter = false, inside = false;
    for (size_t i = 0; i <= n; i++) {
        char c = i < n ? text[i] : '\n';
        bool white = c == ' ' || c == '\t' || c == '\n';
        if (!white && !inside) word = i, inside = true, has_letter = false;
        if (!white && end == begin) begin = i;
        if (!white) end = i + 1, chars++, has_letter |= letter(c);
        if (white && inside) {
            int k = stop_number(text + word, i - word);
            if (k >= 0) seen |= 1ull << k;
            words++, lettered += has_letter, inside = false;
        }
        hashes += c == '#';
        dots = c == '.' ? dots + 1 : 0;
        ellipses += dots == 3;
        if (c == '\n') {
            if (end > begin) line[lines++] = (Line){text + begin, end - begin};
            begin = end = i + 1;
        }
    }
    for (size_t i = 0; i < lines; i++) {
        bullets += strchr("-*", *line[i].s) != NULL;
        ended += line[i].n > 2 && !strncmp(line[i].s + line[i].n - 3, "...", 3);
    }
    qsort(line, lines, sizeof *line, by_text);
    for (size_t i = 1; i < lines; i++) repeated += !by_text(line + i, line + i - 1);
    if (words < 50 || words > 1e5) return WORDS;
    if (chars / words < 3 || chars / words > 10) return WORD_LENGTH;
    if (hashes / words > 0.1) return HASHES;
    if (ellipses / words > 0.1) return ELLIPSES;
    if (bullets / (double)lines > 0.9) return BULLETS;
    if (ended / (double)lines > 0.3) return ELLIPSIS_LINES;
    if (lettered / words < 0.8) return LETTER_WORDS;
    if ((seen & (seen - 1)) == 0) return STOP_WORDS;
    return repeated / (double)lines > 0.3 ? REPEATED_LINES : KEPT;
}

Rule broken_rule(const char *text, size_t n)
{
    Line *line = malloc((n + 1) * sizeof *line);
    Rule rule = judge(text, n, line);
    free(line);
    return rule;
}
