// filter_repeat: how much of a text is said more than once. Gopher's repetition rules (Rae et al., arXiv 2112.11446,
// table A1), and the removal of long repeated spans (Lee et al., arXiv 2107.06499, within one document).
//
// Invariant: every rule is O(words) or O(lines): n-grams are keys of 64 bits in a table of counts, XXH3 over the n
// hashes of their words. Two different n-grams share a key with probability 2^-64; nothing else is approximate.
//
//   lines, paragraphs    those that stood above already / all; or characters in those / characters in all
//   top n-gram           characters in words of the most frequent n-gram / characters in all words; the most
//                        characters where several are as frequent; 0 when none occurs twice
//   all n-grams          the same for all n-grams that occur more than once, the first occurrence too, as the paper
//                        has it ("contained within all duplicate n-grams")
//
// A character counts once, however many n-grams lie over it: words are marked, then added up. So x x x x is covered
// whole by its bigrams, not one and a half times.
//
// Rejected: strings of n words as keys (memory n times the text), and counting only the later copies of n-grams, as
// some implementations do: it halves the value of a text that is said twice.
#include "data/prep/filter_rules.h"

#include <string.h>
#include <xxhash.h>

#include "base/check.h"

static uint64_t gram(const FilterDoc *d, size_t i, size_t n)
{
    uint64_t hash[16], state = 0;
    for (size_t from = 0; from < n; from += 15) { // spans are longer than 15: chained
        size_t k = n - from < 15 ? n - from : 15;
        for (size_t j = 0; j < k; j++) hash[j] = d->word[i + from + j].hash;
        hash[k] = state;
        state = XXH3_64bits(hash, (k + 1) * sizeof *hash);
    }
    return state;
}

double filter_repeat_lines(FilterDoc *d, int chars)
{
    size_t repeated = 0, all = 0;
    filter_text_count_begin(d, d->n_lines);
    for (size_t i = 0; i < d->n_lines; i++) {
        size_t weight = chars ? d->line[i].chars : 1;
        all += weight;
        if (filter_text_count(d, d->line[i].hash, 1) > 1) repeated += weight;
    }
    return all ? (double)repeated / (double)all : 0;
}

double filter_repeat_paragraphs(FilterDoc *d, int chars)
{
    size_t repeated = 0, all = 0;
    filter_text_count_begin(d, d->n_lines);
    for (size_t i = 0, next; i < d->n_lines; i = next) {
        uint64_t state[2] = {0, 0}; // the hashes of its lines, chained
        size_t weight = 0;
        for (next = i; next < d->n_lines && d->line[next].paragraph == d->line[i].paragraph; next++) {
            state[1] = d->line[next].hash;
            state[0] = XXH3_64bits(state, sizeof state);
            weight += d->line[next].chars;
        }
        if (!chars) weight = 1;
        all += weight;
        if (filter_text_count(d, state[0], 1) > 1) repeated += weight;
    }
    return all ? (double)repeated / (double)all : 0;
}

// The share of characters of words in marked words.
static double marked_share(const FilterDoc *d)
{
    size_t marked = 0;
    for (size_t i = 0; i < d->n_words; i++)
        if (d->mark[i]) marked += d->word[i].chars;
    return d->word_chars ? (double)marked / (double)d->word_chars : 0;
}

static bool begin_grams(FilterDoc *d, size_t n)
{
    if (d->n_words < n) return false;
    d->mark = words_grow(d->mark, &d->cap_mark, d->n_words, 1);
    memset(d->mark, 0, d->n_words);
    filter_text_count_begin(d, d->n_words);
    return true;
}

double filter_repeat_top(FilterDoc *d, int n_gram)
{
    size_t n = (size_t)n_gram, chars, best_chars = 0;
    uint32_t best = 1;
    uint64_t best_key = 0;
    if (!begin_grams(d, n)) return 0;
    for (size_t i = 0; i + n <= d->n_words; i++) filter_text_count(d, gram(d, i, n), 1);
    for (size_t i = 0; i + n <= d->n_words; i++) {
        uint64_t key = gram(d, i, n);
        uint32_t count = filter_text_count(d, key, 0);
        if (count < best || count < 2) continue;
        chars = 0;
        for (size_t j = 0; j < n; j++) chars += d->word[i + j].chars;
        if (count > best || chars > best_chars) best = count, best_key = key, best_chars = chars;
    }
    if (best < 2) return 0;
    for (size_t i = 0; i + n <= d->n_words; i++)
        if (gram(d, i, n) == best_key) memset(d->mark + i, 1, n);
    return marked_share(d);
}

double filter_repeat_all(FilterDoc *d, int n_gram)
{
    size_t n = (size_t)n_gram;
    if (!begin_grams(d, n)) return 0;
    for (size_t i = 0; i + n <= d->n_words; i++) filter_text_count(d, gram(d, i, n), 1);
    for (size_t i = 0; i + n <= d->n_words; i++)
        if (filter_text_count(d, gram(d, i, n), 0) > 1) memset(d->mark + i, 1, n);
    return marked_share(d);
}

// From left to right: where the next n words have stood before, beginning at a word that was kept, they go, and the
// words behind them as long as the last n have stood before too. "a b" a thousand times becomes "a b". n is bounded,
// so that this stays linear.
size_t filter_repeat_spans(FilterDoc *d, double n_words, char *out, size_t *n_out, FilterWord *first)
{
    size_t n = n_words < 2 ? 2 : n_words > 1000 ? 1000 : (size_t)n_words, spans = 0, copied = 0, o = 0;
    if (!begin_grams(d, n)) return 0;
    for (size_t i = 0; i + n <= d->n_words;) {
        if (filter_text_count(d, gram(d, i, n), 0) == 0) {
            filter_text_count(d, gram(d, i, n), 1);
            i++;
            continue;
        }
        size_t end = i + n;
        while (end < d->n_words && filter_text_count(d, gram(d, end + 1 - n, n), 0)) end++;
        size_t from = d->word[i].at, to = end < d->n_words ? d->word[end].at : d->n;
        if (spans++ == 0) *first = (FilterWord){.at = (uint32_t)from, .n = (uint32_t)(to - from)};
        memcpy(out + o, d->text + copied, from - copied);
        o += from - copied;
        copied = to;
        i = end;
    }
    memcpy(out + o, d->text + copied, d->n - copied);
    *n_out = o + d->n - copied;
    return spans;
}
