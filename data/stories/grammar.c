// grammar: a probabilistic grammar with memory. See grammar.h for the notation.
//
// One function, walk(), goes through a derivation from left to right. To write, it takes one alternative drawn at
// random. To read, it tries every alternative in turn and stops as soon as the text differs. So the writer and the
// reader cannot disagree about the grammar: they are the same code.
//
// The invariant: a Point is a value. It holds the whole state of a derivation (the position in the rules, the
// remembered words, the position in the text, the probability), so backtracking means using the older copy.
//
// The formula: p(derivation) = product over its choices of weight / (sum of the weights allowed there), and
// p(text) = sum of p over the derivations that write it. When there is only one, -log p(text) is the sum of
// -log over the choices: the self-information of the text, exactly. Averaged over texts drawn from the
// grammar it is an unbiased estimate of the entropy, and no model has a lower expected loss (Gibbs'
// inequality).
//
// Rejected: a chart parser (Earley, CYK), because with remembered words the language is not context-free,
// and because a plain search from left to right rejects a wrong alternative within a word anyway; and a
// story generator in C code, because its sentences would be hidden among calls.
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "data/stories/grammar_rules.h"
#include "base/rng.h"

enum { MAX_CHOICES = 4096 }; // of one text: the random numbers of text i are i * MAX_CHOICES + 0, 1, 2, ...

typedef struct Frame { // what is still to do after the current alternative
    const struct Frame *outer;
    const Item *item, *end;
} Frame;

typedef struct {
    const Frame *outer;
    const Item *item, *end;
    const Alt *slot[MAX_SLOTS]; // the remembered words
    int bind;                   // the slot that will remember the word being written, or -1
    char article;               // an article waits for the next word: 'a' or 'A', else 0
    bool capital;               // the next letter is a capital
    size_t pos;                 // bytes written or matched
    size_t n_choices;
    double nats;
} Point;

typedef struct {
    const Grammar *g;
    GrammarText *out; // writing when not NULL
    Rng rng;
    uint64_t index;
    const char *text; // reading
    size_t n_text;
    GrammarScore score;
} Walk;

// Writes n bytes at p->pos, or compares them with the text there. False: the text differs.
static bool put(Walk *w, Point *p, const char *s, size_t n)
{
    if (w->out) {
        GrammarText *out = w->out;
        if (p->pos + n > out->cap_bytes) {
            out->cap_bytes = 2 * (p->pos + n) + 1024;
            out->bytes = realloc(out->bytes, out->cap_bytes);
            if (!out->bytes) die("grammar: out of memory");
        }
        memcpy(out->bytes + p->pos, s, n);
    } else {
        size_t same = 0;
        while (same < n && p->pos + same < w->n_text && w->text[p->pos + same] == s[same]) same++;
        if (p->pos + same > w->score.reached) w->score.reached = p->pos + same;
        if (same < n) return false;
    }
    p->pos += n;
    return true;
}

static bool begins(const char *s, size_t n, const char *with)
{
    return n >= strlen(with) && !memcmp(s, with, strlen(with));
}

// By sound, not by spelling: an apple, an hour, a uniform.
static bool takes_an(const char *s, size_t n)
{
    if (begins(s, n, "hour") || begins(s, n, "honest")) return true;
    if (begins(s, n, "uni") || begins(s, n, "use") || begins(s, n, "one")) return false;
    return strchr("aeiouAEIOU", *s) != NULL;
}

static bool emit(Walk *w, Point *p, const char *s, size_t n)
{
    if (p->article && n && *s == ' ') s++, n--; // the article brings its own space
    if (!n) return true;
    if (p->article) {
        char article[3] = {p->article, 'n', ' '};
        bool an = takes_an(s, n);
        p->article = 0;
        if (!an) article[1] = ' ';
        if (!put(w, p, article, an ? 3 : 2)) return false;
    }
    if (p->capital) {
        char first = (char)toupper((unsigned char)*s++);
        p->capital = false;
        n--;
        if (!put(w, p, &first, 1)) return false;
    }
    return put(w, p, s, n);
}

static bool held(const Point *p, const Alt *alt)
{
    for (int s = 0; s < MAX_SLOTS; s++)
        if (p->slot[s] == alt) return true;
    return false;
}

static void walk(Walk *w, Point p);

// The only function that makes a choice. p is after the item that refers to the rule.
static void choose(Walk *w, const Point *p, int rule)
{
    const Rule *r = &w->g->rule[rule];
    Frame rest = {.outer = p->outer, .item = p->item, .end = p->end};
    double total = 0, left = 0;
    for (size_t a = 0; a < r->n_alts; a++)
        if (p->bind < 0 || !held(p, &r->alt[a])) total += r->alt[a].weight;
    if (!(total > 0)) die("grammar: rule %s: every word is in use", r->name);
    if (p->n_choices == MAX_CHOICES) die("grammar: a text of more than %d choices", MAX_CHOICES);
    if (w->out) left = total * rng_uniform(w->rng, w->index * MAX_CHOICES + p->n_choices);
    for (size_t a = 0; a < r->n_alts; a++) {
        const Alt *alt = &r->alt[a];
        if (p->bind >= 0 && held(p, alt)) continue;
        if (w->out && left >= alt->weight) {
            left -= alt->weight;
            continue;
        }
        Point q = *p;
        q.outer = &rest;
        q.item = alt->item;
        q.end = alt->item + alt->n_items;
        q.nats -= log(alt->weight / total);
        q.n_choices++;
        if (q.bind >= 0 && alt->n_items == 1 && alt->item->kind == TEXT) {
            q.slot[q.bind] = alt;
            q.bind = -1;
        }
        walk(w, q);
        if (w->out) return;
    }
    check(!w->out); // left < total, exactly: something was chosen
}

static void finish(Walk *w, const Point *p)
{
    if (w->out) {
        w->out->n_bytes = p->pos;
        w->out->n_choices = p->n_choices;
        w->out->nats = p->nats;
    } else if (p->pos == w->n_text) {
        double lo = fmin(w->score.nats, p->nats), hi = fmax(w->score.nats, p->nats);
        w->score.nats = lo - log1p(exp(lo - hi)); // -log(e^-lo + e^-hi)
        w->score.derivations++;
    }
}

static void walk(Walk *w, Point p)
{
    for (;;) {
        while (p.item == p.end) {
            if (!p.outer) {
                finish(w, &p);
                return;
            }
            p.item = p.outer->item;
            p.end = p.outer->end;
            p.outer = p.outer->outer;
        }
        const Item *item = p.item++;
        if (item->kind == ARTICLE) {
            p.article = item->capital ? 'A' : 'a';
            continue;
        }
        p.capital |= item->capital;
        if (item->bind >= 0) p.bind = item->bind;
        int rule = item->rule;
        const Alt *word = item->kind == SLOT || item->kind == FORM ? p.slot[item->slot] : NULL;
        switch (item->kind) {
        case TEXT:
            if (!emit(w, &p, item->text, item->n_text)) return;
            continue;
        case SLOT:
            if (!word) die("grammar: [%s] comes before it is chosen", w->g->slot[item->slot]);
            if (!emit(w, &p, word->item->text, word->item->n_text)) return;
            continue;
        case FORM:
            if (!word) die("grammar: [%s] comes before it is chosen", w->g->slot[item->slot]);
            rule = w->g->form_rule[(size_t)item->form * w->g->n_rules + (size_t)word->rule];
            if (rule < 0)
                die("grammar: no rule %s.%s", w->g->form[item->form], w->g->rule[word->rule].name);
            break;
        default: break;
        }
        choose(w, &p, rule);
        return;
    }
}

static Point start(const Grammar *g)
{
    const Alt *alt = g->rule[0].alt;
    return (Point){.item = alt->item, .end = alt->item + alt->n_items, .bind = -1};
}

void grammar_write(const Grammar *g, uint64_t seed, uint64_t index, GrammarText *text)
{
    Walk w = {.g = g, .out = text, .rng = rng_make(seed, "grammar", 0), .index = index};
    walk(&w, start(g));
}

GrammarScore grammar_score(const Grammar *g, const char *text, size_t n_bytes)
{
    Walk w = {.g = g, .text = text, .n_text = n_bytes, .score = {.nats = INFINITY}};
    walk(&w, start(g));
    return w.score;
}
