#include "merges.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t *id; // (n)
    size_t n;
} Tokens;

// The bytes of a word as tokens; free id. A char may be signed, a token is not.
static Tokens tokens_of(const char *word)
{
    Tokens t = {malloc(strlen(word) * sizeof *t.id + 1), strlen(word)};
    for (size_t i = 0; i < t.n; i++) t.id[i] = (unsigned char)word[i];
    return t;
}

// Replaces every left, right of id (n) by `token`, from left to right; returns the new length.
static size_t replace(int32_t *id, size_t n, int32_t left, int32_t right, int32_t token)
{
    //[
    //+ (void)id, (void)left, (void)right, (void)token; // write this
    //+ return n;
    size_t to = 0;
    for (size_t i = 0; i < n; to++) {
        if (i + 1 < n && id[i] == left && id[i + 1] == right) {
            id[to] = token;
            i += 2;
        } else {
            id[to] = id[i];
            i++;
        }
    }
    return to;
    //]
}

size_t learn_merges(Merge *merge, size_t n_merges, const char *const *word, const int64_t *count, size_t n_words)
{
    //[
    //+ (void)merge, (void)n_merges, (void)word, (void)count, (void)n_words, (void)tokens_of, (void)replace;
    //+ return 0; // write this
    size_t side = 256 + n_merges, n = 0;
    Tokens *text = malloc(n_words * sizeof *text + 1);
    int64_t *sum = malloc(side * side * sizeof *sum); // sum[left * side + right]
    for (size_t w = 0; w < n_words; w++) text[w] = tokens_of(word[w]);
    for (; n < n_merges; n++) {
        memset(sum, 0, side * side * sizeof *sum);
        for (size_t w = 0; w < n_words; w++)
            for (size_t i = 0; i + 1 < text[w].n; i++)
                sum[(size_t)text[w].id[i] * side + (size_t)text[w].id[i + 1]] += count[w];
        size_t best = 0;
        for (size_t p = 0; p < side * side; p++)
            if (sum[p] > sum[best]) best = p;
        if (sum[best] < 2) break;
        merge[n] = (Merge){(int32_t)(best / side), (int32_t)(best % side)};
        for (size_t w = 0; w < n_words; w++)
            text[w].n = replace(text[w].id, text[w].n, merge[n].left, merge[n].right, (int32_t)(256 + n));
    }
    for (size_t w = 0; w < n_words; w++) free(text[w].id);
    free(text);
    free(sum);
    return n;
    //]
}

size_t encode_word(int32_t *id, const char *word, const Merge *merge, size_t n_merges)
{
    //[
    //+ (void)id, (void)word, (void)merge, (void)n_merges; // and this
    //+ return 0;
    Tokens t = tokens_of(word);
    for (size_t m = 0; m < n_merges; m++)
        t.n = replace(t.id, t.n, merge[m].left, merge[m].right, (int32_t)(256 + m));
    memcpy(id, t.id, t.n * sizeof *id);
    free(t.id);
    return t.n;
    //]
}
