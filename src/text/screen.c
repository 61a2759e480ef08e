// screen: judging documents as a step reads them. See packing.h for the rules.
//
// Invariant: what is masked in sample s is a function of its tokens. So ranks, layouts and resumed runs agree without a
// word, a checkpoint holds nothing of it, and sample s + 1 is the same sample whether s was rejected or not. The loss is
// the mean over targets that count, so a masked part leaves no trace in loss or gradient, except that it was computed in
// vain; with data.document_mask nobody attends to it either.
//
// 4-grams are compared token by token, in a table of positions with open addressing: expected time linear in n, and no
// two different 4-grams are taken for one.
//
// Rejected: taking another sample in place of a bad one (sample s would depend on how many before it were bad, so the
// run's position would no longer be one number); judging whole documents when a run begins (that is a new corpus: make
// it with build/prepare, whose rules see the text); a bound on the loss of a sequence (it depends on the weights, so a
// hard document and a broken one look alike; see monitor.h).
#include "text/packing.h"

#include <string.h>
#include <stdlib.h>

#include "base/check.h"

enum { GRAM = 4 };

struct Screen {
    double max_repeat, max_broken;
    const Tokenizer *t;
    int32_t eot;
    size_t T, slots; // slots: a power of two, at least 2 T
    int32_t *slot;   // (slots) 1 + where in the part a 4-gram occurred first; 0: free
};

Screen *screen_new(double max_repeat, double max_broken, size_t T, const Tokenizer *t)
{
    check(T > 0 && (t || max_broken >= 1));
    Screen *s = calloc(1, sizeof *s);
    if (!s) die("memory: no room for a screen");
    *s = (Screen){.max_repeat = max_repeat, .max_broken = max_broken, .t = t, .eot = t ? tokenizer_eot(t) : -1, .T = T,
                  .slots = 16};
    while (s->slots < 2 * T) s->slots *= 2;
    s->slot = malloc(s->slots * sizeof *s->slot);
    if (!s->slot) die("memory: no room for 4-grams of %zu tokens", T);
    return s;
}

void screen_free(Screen *s)
{
    if (!s) return;
    free(s->slot);
    free(s);
}

static size_t hash_of(const int32_t *gram)
{
    uint64_t h = 0;
    for (int i = 0; i < GRAM; i++) h = (h ^ (uint32_t)gram[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return (size_t)h;
}

double screen_repeat(Screen *s, const int32_t *token, size_t n)
{
    check(n <= s->T);
    if (n < GRAM) return 0;
    size_t grams = n - GRAM + 1, repeated = 0, slots = 16;
    while (slots < 2 * n) slots *= 2; // of a short part only so many are cleared
    memset(s->slot, 0, slots * sizeof *s->slot);
    for (size_t i = 0; i < grams; i++) {
        size_t at = hash_of(token + i) & (slots - 1);
        while (s->slot[at] && memcmp(token + s->slot[at] - 1, token + i, GRAM * sizeof *token) != 0)
            at = (at + 1) & (slots - 1);
        if (s->slot[at]) repeated++;
        else s->slot[at] = (int32_t)i + 1;
    }
    return (double)repeated / (double)grams;
}

// U+FFFD is EF BF BD, and may span tokens; no two occurrences overlap.
double screen_broken(const Screen *s, const int32_t *token, size_t n)
{
    static const unsigned char mark[] = {0xEF, 0xBF, 0xBD};
    size_t bytes = 0, broken = 0, matched = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k;
        if (tokenizer_is_special(s->t, token[i])) continue;
        const unsigned char *text = (const unsigned char *)tokenizer_decode(s->t, token[i], &k);
        bytes += k;
        for (size_t j = 0; j < k; j++) {
            matched = text[j] == mark[matched] ? matched + 1 : text[j] == mark[0];
            if (matched == sizeof mark) broken += sizeof mark, matched = 0;
        }
    }
    return bytes ? (double)broken / (double)bytes : 0;
}

size_t screen_sequence(Screen *s, const int32_t *token, size_t n, int32_t *target)
{
    size_t masked = 0;
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && token[end] != s->eot;) end++;
        bool bad = s->max_repeat < 1 && screen_repeat(s, token + begin, end - begin) > s->max_repeat;
        bad = bad || (s->max_broken < 1 && screen_broken(s, token + begin, end - begin) > s->max_broken);
        for (size_t i = begin; bad && i < end; i++) masked += target[i] >= 0, target[i] = -1;
    }
    return masked;
}
