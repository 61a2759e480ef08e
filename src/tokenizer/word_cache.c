// word_cache: the ids of words that were encoded before. Text repeats itself, so most words are computed only once.
//
// Two levels. The front level is an array of 64-byte lines, each with one word of at most WORD_LINE_BYTES bytes and at
// most WORD_LINE_IDS ids. It is direct-mapped: a word may be in one line only. So a hit reads one line of the
// processor's cache and compares four numbers, and a new word replaces the old one. The front level has at least one
// line for each word of the table, up to 2^18 lines. It starts small, so that a text of few words stays in the
// first-level cache; when the words become too many, it is replaced by an empty one four times as large. The second
// level is a table of all words (words.h), up to CACHE_WORDS of them, none over CACHE_BYTES bytes. A full table is
// emptied, and the common words return soon. A word that lost its line is found in the table and gets its line back.
//
// Invariant: word_cache_get appends the ids that word_cache_put was given for the same bytes. A line holds the whole
// word and is compared as a whole, so two words with the same hash cost time but never give wrong ids.
//
// The key of a short word is three numbers of 8 bytes, padded with zeros; the stored length distinguishes a word that
// ends with zero bytes from a shorter one. When 24 bytes may be read, they are read at once and masked.
//
// The time of a hit is mostly memory latency. So the lines of several words are prefetched (word_cache_look) before the
// first of these words is looked up; for words that are not in their lines the place in the table is prefetched too
// (word_cache_look_again).
//
// Rejected: least-recently-used lists and sets of several lines, which cost more per hit than they save; the table
// alone, which hashes byte strings of any length and reads three places in memory for each hit.
#include "tokenizer/word_cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum { LEAST_LINES_LOG2 = 12, MOST_LINES_LOG2 = 18, CACHE_WORDS = 1 << 20, CACHE_BYTES = 64, HUGE_PAGE = 1 << 21 };
_Static_assert(sizeof(WordLine) == 64, "a word's line is a line of the processor's cache");

// Odd constants spread the parts; the top bits of a product depend on all bits below.
static inline size_t line_of(const WordCache *c, const uint64_t *key)
{
    uint64_t h = key[0] * 0x9E3779B97F4A7C15ull;
    h = (h ^ h >> 32 ^ key[1]) * 0xC2B2AE3D27D4EB4Full;
    h = (h ^ h >> 32 ^ key[2]) * 0x165667B19E3779F9ull;
    return h >> (64 - c->lines_log2);
}

static void make_front(WordCache *c, int lines_log2)
{
    size_t n_bytes = sizeof *c->line << lines_log2;
    free(c->line);
    c->lines_log2 = lines_log2;
    c->line = aligned_alloc(n_bytes < HUGE_PAGE ? sizeof *c->line : HUGE_PAGE, n_bytes);
    if (!c->line) die("memory: no room for a cache of words, %zu bytes", n_bytes);
#ifdef MADV_HUGEPAGE // random access: small pages would need more TLB entries than the processor has
    if (n_bytes >= HUGE_PAGE) madvise(c->line, n_bytes, MADV_HUGEPAGE); // if it is refused, small pages work too
#endif
    memset(c->line, 0, n_bytes);
}

void word_cache_look(WordCache *c, WordLook *look, const char *word, size_t n, size_t n_readable)
{
    static const uint8_t keep[2 * WORD_LINE_BYTES] = {[0 ... WORD_LINE_BYTES - 1] = 255};
    look->bytes = word;
    look->n = n;
    if (n > WORD_LINE_BYTES) return;
    if (!c->line) make_front(c, LEAST_LINES_LOG2);
    if (n_readable < WORD_LINE_BYTES) {
        memset(look->key, 0, sizeof look->key);
        memcpy(look->key, word, n);
    } else { // number by number: reading parts of a larger store would stall the processor
        for (int i = 0; i < WORD_LINE_BYTES / 8; i++) {
            uint64_t part, mask;
            memcpy(&part, word + 8 * i, 8);
            memcpy(&mask, keep + WORD_LINE_BYTES - n + 8 * i, 8);
            look->key[i] = part & mask;
        }
    }
    look->line = line_of(c, look->key);
    __builtin_prefetch(&c->line[look->line]);
}

static void put_in_front(WordCache *c, const WordLook *look, const int32_t *id, size_t n_ids)
{
    if (look->n > WORD_LINE_BYTES || n_ids > WORD_LINE_IDS) return;
    WordLine *line = &c->line[look->line];
    memcpy(line->key, look->key, sizeof line->key);
    memcpy(line->id, id, n_ids * sizeof *id);
    line->n = (uint16_t)look->n;
    line->n_ids = (uint16_t)n_ids;
}

// Looks in the second level.
static bool find_word(WordCache *c, const WordLook *look, uint64_t hash, TokenIds *out)
{
    if (look->n > CACHE_BYTES) return false;
    int64_t w = words_find_hashed(&c->words, look->bytes, look->n, hash);
    if (w < 0) return false;
    const int32_t *id = c->ids.id + c->at[w];
    size_t n_ids = c->at[w + 1] - c->at[w];
    out->id = words_grow(out->id, &out->cap, out->n + n_ids, sizeof *out->id);
    memcpy(out->id + out->n, id, n_ids * sizeof *id);
    out->n += n_ids;
    put_in_front(c, look, id, n_ids);
    return true;
}

static bool holds(const WordLine *line, const WordLook *look)
{
    uint64_t differs = look->n ^ line->n;
    for (int i = 0; i < WORD_LINE_BYTES / 8; i++) differs |= look->key[i] ^ line->key[i];
    return !differs;
}

void word_cache_look_again(WordCache *c, WordLook *look)
{
    look->in_front = look->n <= WORD_LINE_BYTES && holds(&c->line[look->line], look);
    if (!look->in_front && look->n <= CACHE_BYTES) look->hash = words_prefetch(&c->words, look->bytes, look->n);
}

bool word_cache_get(WordCache *c, const WordLook *look, TokenIds *out)
{
    if (!look->in_front) return find_word(c, look, look->hash, out);
    const WordLine *line = &c->line[look->line];
    if (!holds(line, look)) // another word has taken the line meanwhile
        return find_word(c, look, words_prefetch(&c->words, look->bytes, look->n), out);
    if (out->cap - out->n < WORD_LINE_IDS)
        out->id = words_grow(out->id, &out->cap, out->n + WORD_LINE_IDS, sizeof *out->id);
    memcpy(out->id + out->n, line->id, sizeof line->id); // all of them: a fixed number of bytes is one or two moves
    out->n += line->n_ids;
    return true;
}

void word_cache_put(WordCache *c, const WordLook *look, const int32_t *id, size_t n_ids)
{
    if (look->n > CACHE_BYTES) return;
    if (c->words.n >= CACHE_WORDS) { // the lines stay: they are right without the table
        words_clear(&c->words);
        c->ids.n = 0;
    }
    size_t known = c->words.n;
    check(words_add(&c->words, look->bytes, look->n) == known);
    c->at = words_grow(c->at, &c->cap_at, known + 2, sizeof *c->at);
    c->at[known] = c->ids.n;
    c->ids.id = words_grow(c->ids.id, &c->ids.cap, c->ids.n + n_ids, sizeof *id);
    memcpy(c->ids.id + c->ids.n, id, n_ids * sizeof *id);
    c->at[known + 1] = c->ids.n += n_ids;
    // Words that were looked at before this may then be put into a line that is not theirs, where no search finds them.
    if (c->line && c->words.n >> c->lines_log2 && c->lines_log2 < MOST_LINES_LOG2) make_front(c, c->lines_log2 + 2);
    put_in_front(c, look, id, n_ids);
}

void word_cache_free(WordCache *c)
{
    free(c->line);
    words_free(&c->words);
    free(c->at);
    token_ids_free(&c->ids);
    *c = (WordCache){0};
}
