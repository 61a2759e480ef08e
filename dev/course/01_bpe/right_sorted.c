// All places are sorted by pair in each round, words lie in one array with a mark between them, and encoding searches
// the pair of the lowest merge before each single replacement.
#include "merges.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Merge pair;
    int64_t count;
} Place;

static int by_pair(const void *a, const void *b)
{
    const Place *x = a, *y = b;
    if (x->pair.left != y->pair.left) return x->pair.left < y->pair.left ? -1 : 1;
    return (x->pair.right > y->pair.right) - (x->pair.right < y->pair.right);
}

size_t learn_merges(Merge *merge, size_t n_merges, const char *const *word, const int64_t *count, size_t n_words)
{
    size_t n = 0, made = 0;
    for (size_t w = 0; w < n_words; w++) n += strlen(word[w]) + 1;
    int32_t *id = malloc((n + 1) * sizeof *id);
    int64_t *times = malloc((n + 1) * sizeof *times);
    Place *place = malloc((n + 1) * sizeof *place);
    n = 0;
    for (size_t w = 0; w < n_words; w++)
        for (const char *c = word[w];; c++) {
            id[n] = *c ? (uint8_t)*c : -1, times[n++] = count[w];
            if (!*c) break;
        }
    for (; made < n_merges; made++) {
        size_t places = 0, to = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (id[i] >= 0 && id[i + 1] >= 0) place[places++] = (Place){{id[i], id[i + 1]}, times[i]};
        qsort(place, places, sizeof *place, by_pair);
        Place best = {{0, 0}, 1};
        for (size_t i = 0, j; i < places; i = j) {
            Place sum = {place[i].pair, 0};
            for (j = i; j < places && !by_pair(place + i, place + j); j++) sum.count += place[j].count;
            if (sum.count > best.count) best = sum;
        }
        if (best.count < 2) break;
        merge[made] = best.pair;
        for (size_t i = 0; i < n; i++, to++) {
            int hit = i + 1 < n && id[i] == best.pair.left && id[i + 1] == best.pair.right;
            times[to] = times[i];
            id[to] = hit ? (int32_t)(256 + made) : id[i];
            i += (size_t)hit;
        }
        n = to;
    }
    free(id), free(times), free(place);
    return made;
}

size_t encode_word(int32_t *id, const char *word, const Merge *merge, size_t n_merges)
{
    size_t n = 0;
    for (; word[n]; n++) id[n] = (uint8_t)word[n];
    for (;;) {
        size_t best = n_merges, at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t m = 0; m < best; m++)
                if (merge[m].left == id[i] && merge[m].right == id[i + 1]) best = m, at = i;
        if (best == n_merges) return n;
        id[at] = (int32_t)(256 + best);
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        n--;
    }
}
