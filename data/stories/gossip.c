// gossip: facts whose frequencies follow Zipf's law. See gossip.h.
//
// The facts are a function of one seed, and the texts of another. Rank k is a pair of a first and a last name (a random
// bijection of ranks and pairs), and the object of person k and verb v is one word of a list, drawn once.
//
// The invariant: each word of a text identifies one choice. No list contains a word twice, so the pair of names is one
// rank, the third word one verb and the fourth one number; the fifth must then be the fact. So every text has one
// derivation, and
//
//     -log p(text) = log GOSSIP_VERBS + log GOSSIP_NUMBERS - log p(rank)
//
// A rank is drawn by bisection of the cumulative weights, with 53 random bits; the rounding error is below 1e-9 of the
// smallest probability.
//
// Rejected: rules of grammar.h with an alternative for each person (its reader tries every alternative, and a fact of a
// pair and a verb would need a rule for each pair).
#include "data/stories/gossip.h"

#include "base/check.h"
#include "base/rng.h"
#include "data/stories/stories.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 256, WORLD = 1, LONGEST = 128 }; // LONGEST: bytes of a text

typedef struct {
    const char *at;
    size_t n;
} Word;

typedef struct {
    Word word[MAX_WORDS];
    size_t n;
} Words;

struct Gossip {
    Words first, last, verb, number, thing;
    double upto[GOSSIP_PEOPLE]; // sum of the probabilities of ranks 0 to k
    uint16_t pair[GOSSIP_PEOPLE], *rank; // of a pair: GOSSIP_PEOPLE when nobody has it
    uint8_t fact[GOSSIP_PEOPLE][GOSSIP_VERBS];
};

static void add_words(Words *words, const char *list, size_t skip)
{
    for (const char *s = list;; s++) {
        const char *end = s + strcspn(s, "|");
        check(words->n < MAX_WORDS && (size_t)(end - s) > skip);
        words->word[words->n++] = (Word){s + skip, (size_t)(end - s) - skip};
        if (!*end) return;
        s = end;
    }
}

// The words of a list of the stories, each without its first `skip` bytes.
static void add_list(Words *words, const char *name, size_t skip)
{
    for (size_t r = 0; r < stories_n_words; r++) {
        if (strcmp(stories_words[r].name, name)) continue;
        add_words(words, stories_words[r].body, skip);
        return;
    }
    check(!"a list of words");
}

static size_t n_pairs(const Gossip *g)
{
    return g->first.n * g->last.n;
}

static void make_people(Gossip *g)
{
    double sum = 0;
    Rng people = rng_make(WORLD, "gossip people", 0);
    check(n_pairs(g) >= GOSSIP_PEOPLE && n_pairs(g) <= UINT16_MAX && g->thing.n <= UINT8_MAX);
    for (size_t i = 0; i < n_pairs(g); i++) g->rank[i] = GOSSIP_PEOPLE;
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) {
        sum += pow((double)(k + 1), -GOSSIP_ZIPF);
        g->upto[k] = sum;
        g->pair[k] = (uint16_t)rng_permute(people, k, n_pairs(g));
        g->rank[g->pair[k]] = (uint16_t)k;
        for (uint32_t v = 0; v < GOSSIP_VERBS; v++)
            g->fact[k][v] = (uint8_t)rng_below(rng_make(WORLD, "gossip facts", v), k, g->thing.n);
    }
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) g->upto[k] /= sum;
}

Gossip *gossip_load(void)
{
    Gossip *g = calloc(1, sizeof *g);
    if (!g) die("gossip: out of memory");
    add_list(&g->first, "girl", 0);
    add_list(&g->first, "boy", 0);
    add_list(&g->last, "lady", strlen("Mrs. "));
    add_list(&g->last, "gentleman", strlen("Mr. "));
    add_words(&g->verb, "sells|likes|grows|wants|paints|buys|draws|brings", 0);
    add_list(&g->number, "number", 0);
    add_list(&g->thing, "fruit", 0);
    add_list(&g->thing, "vegetable", 0);
    check(g->verb.n == GOSSIP_VERBS && g->number.n == GOSSIP_NUMBERS);
    g->rank = calloc(n_pairs(g), sizeof *g->rank);
    if (!g->rank) die("gossip: out of memory");
    make_people(g);
    return g;
}

void gossip_free(Gossip *g)
{
    if (g) free(g->rank);
    free(g);
}

static double probability(const Gossip *g, size_t k)
{
    return k ? g->upto[k] - g->upto[k - 1] : g->upto[0];
}

static double nats_of(const Gossip *g, size_t k)
{
    return log(GOSSIP_VERBS) + log(GOSSIP_NUMBERS) - log(probability(g, k));
}

double gossip_entropy(const Gossip *g)
{
    double sum = 0;
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) sum += probability(g, k) * nats_of(g, k);
    return sum;
}

// ---- writing

static size_t draw_rank(const Gossip *g, double u)
{
    size_t low = 0, high = GOSSIP_PEOPLE - 1;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (u < g->upto[mid]) high = mid;
        else low = mid + 1;
    }
    return low;
}

static void put(GrammarText *text, Word word, const char *after)
{
    memcpy(text->bytes + text->n_bytes, word.at, word.n);
    text->n_bytes += word.n;
    while (*after) text->bytes[text->n_bytes++] = *after++;
}

void gossip_write(const Gossip *g, uint64_t seed, uint64_t index, GrammarText *text)
{
    size_t k = draw_rank(g, rng_uniform(rng_make(seed, "gossip rank", 0), index));
    size_t v = rng_below(rng_make(seed, "gossip verb", 0), index, GOSSIP_VERBS);
    size_t n = rng_below(rng_make(seed, "gossip number", 0), index, GOSSIP_NUMBERS);
    if (text->cap_bytes < LONGEST) {
        text->cap_bytes = LONGEST;
        text->bytes = realloc(text->bytes, text->cap_bytes);
        if (!text->bytes) die("gossip: out of memory");
    }
    text->n_bytes = 0, text->n_choices = 3, text->nats = nats_of(g, k);
    put(text, g->first.word[g->pair[k] / g->last.n], " ");
    put(text, g->last.word[g->pair[k] % g->last.n], " ");
    put(text, g->verb.word[v], " ");
    put(text, g->number.word[n], " ");
    put(text, g->thing.word[g->fact[k][v]], ".");
}

// ---- reading

// The index of the list's word at *at, which a space must follow; moves *at after both. words->n: none.
static size_t take_word(const Words *words, const char *text, size_t n, size_t *at)
{
    size_t i = 0;
    for (; i < words->n; i++) {
        Word w = words->word[i];
        if (n - *at <= w.n || memcmp(text + *at, w.at, w.n) || text[*at + w.n] != ' ') continue;
        *at += w.n + 1;
        break;
    }
    return i;
}

// The rank of the text's person, its verb, and where the object must begin. GOSSIP_PEOPLE: no text begins like this.
static size_t take_person(const Gossip *g, const char *text, size_t n, size_t *at, size_t *verb)
{
    size_t first = take_word(&g->first, text, n, at);
    size_t last = first < g->first.n ? take_word(&g->last, text, n, at) : g->last.n;
    *verb = last < g->last.n ? take_word(&g->verb, text, n, at) : g->verb.n;
    size_t number = *verb < g->verb.n ? take_word(&g->number, text, n, at) : g->number.n;
    return number < g->number.n ? g->rank[first * g->last.n + last] : GOSSIP_PEOPLE;
}

GrammarScore gossip_score(const Gossip *g, const char *text, size_t n_bytes)
{
    size_t at = 0, verb, k = take_person(g, text, n_bytes, &at, &verb);
    GrammarScore none = {.nats = INFINITY, .reached = at};
    if (k == GOSSIP_PEOPLE) return none;
    Word thing = g->thing.word[g->fact[k][verb]];
    if (n_bytes - at != thing.n + 1 || memcmp(text + at, thing.at, thing.n) || text[n_bytes - 1] != '.') return none;
    return (GrammarScore){.derivations = 1, .nats = nats_of(g, k), .reached = n_bytes};
}
