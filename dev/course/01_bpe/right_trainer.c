// The trainer's own: a heap of pairs, and the words of each pair.
#include "merges.h"

#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

size_t learn_merges(Merge *merge, size_t n_merges, const char *const *word, const int64_t *count, size_t n_words)
{
    Words words = {0};
    int32_t byte_id[256];
    for (int i = 0; i < 256; i++) byte_id[i] = i;
    for (size_t w = 0; w < n_words; w++) words_add(&words, word[w], strlen(word[w]));
    BpeMerge *list = malloc((n_merges + 1) * sizeof *list);
    size_t n = bpe_train(&words, count, byte_id, 256, n_merges, 2, list);
    for (size_t i = 0; i < n; i++) merge[i] = (Merge){list[i].left, list[i].right};
    free(list);
    words_free(&words);
    return n;
}

size_t encode_word(int32_t *id, const char *word, const Merge *merge, size_t n_merges)
{
    BpeMerge *list = malloc((n_merges + 1) * sizeof *list);
    for (size_t i = 0; i < n_merges; i++) list[i] = (BpeMerge){merge[i].left, merge[i].right, (int32_t)(256 + i)};
    Bpe bpe = bpe_index(list, n_merges);
    for (size_t i = 0; word[i]; i++) id[i] = (uint8_t)word[i];
    size_t n = bpe_apply(&bpe, id, strlen(word));
    bpe_free(&bpe);
    free(list);
    return n;
}
