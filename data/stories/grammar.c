// grammar: a probabilistic grammar with memory. See grammar.h for the notation.
//
// One function, walk(), goes through a derivation from left to right. To write, it takes one alternative drawn at
// random. To read, it tries every alternative in turn and stops as soon as the text differs. So the writer and the
// reader cannot disagree about the grammar: they are the same code.
//
// The invariant: a Point is a value. It holds the whole state of a derivation (the position in the rules, the
// remembered words, the position in the text, the probability), so backtracking means using the older copy.
//
// The formula: p(derivation) = product over its choices of weight / (sum of the weights allowed there), and p(text) =
// sum of p over the derivations that write it. When there is only one, -log p(text) is the sum of -log over the
// choices: the self-information of the text, exactly. Averaged over texts drawn from the grammar it is an unbiased
// estimate of the entropy, and no model has a lower expected loss (Gibbs' inequality).
//
// Rejected: a chart parser (Earley, CYK), because with remembered words the language is not context-free,
// and because a plain search from left to right rejects a wrong alternative within a word anyway; and a
// story generator in C code, because its sentences would be hidden among calls.
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "data/stories/grammar.h"
#include "base/rng.h"

enum { MAX_SLOTS = 32, MAX_FORMS = 64, MAX_NAME = 40 };

typedef enum { TEXT, RULE, SLOT, FORM, ARTICLE } ItemKind;

typedef struct {
    ItemKind kind;
    bool capital;
    const char *text; // TEXT: n_text bytes
    size_t n_text;
    int rule; // RULE: which
    int bind; // RULE and FORM: the slot that remembers the word chosen, or -1
    int slot; // SLOT: what to repeat; FORM: whose class decides
    int form; // FORM: row of the forms table
} Item;

// One alternative of a rule: what is written when it is chosen.
typedef struct {
    Item *item;
    size_t n_items;
    double weight;
    int rule; // the rule it belongs to: the class of a word
} Alt;

typedef struct {
    const char *name;
    Alt *alt;
    size_t n_alts;
    double n_words; // above 0: a word list of so many words
    int mark;       // while looking for cycles: 0 new, 1 open, 2 done
} Rule;

struct Grammar {
    Rule *rule;
    size_t n_rules;
    char slot[MAX_SLOTS][MAX_NAME], form[MAX_FORMS][MAX_NAME];
    int n_slots, n_forms;
    int *form_rule; // (n_forms, n_rules): the rule for form f of a word of class c, or -1
    char *arena;    // the literal text of all items
};

// ---- writing and reading

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

// ---- from a table of rules to a grammar in memory
//
// Four passes. Collect the names that remember words (they may be used before the rule that sets them). Cut
// every body into alternatives and every alternative into items. Find the rule for every form and class
// ("he" of "girl": he.girl). Then settle: refuse cycles, and find the word lists.
//
// The invariant: what grammar_load returns has no dangling name, no cycle and no word list with a word
// given twice. So walking it always ends, and a word of a list in a text identifies the choice that wrote it.
//
// Rejected: a grammar file read at run time (the programs would have to find it), and rules as C functions.

static int find_rule(const Grammar *g, const char *name)
{
    for (size_t i = 0; i < g->n_rules; i++)
        if (!strcmp(g->rule[i].name, name)) return (int)i;
    return -1;
}

static int find_name(char table[][MAX_NAME], int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(table[i], name)) return i;
    return -1;
}

static int add_name(char table[][MAX_NAME], int *n, int max, const char *name)
{
    int i = find_name(table, *n, name);
    if (i >= 0) return i;
    if (*n == max) die("grammar: %s: more than %d names of a kind", name, max);
    strcpy(table[*n], name);
    return (*n)++;
}

// What stands between [ and ]. Slots must be known by now: every "slot=" of the grammar was collected before.
static Item read_bracket(Grammar *g, const char *where, const char *s, size_t n)
{
    Item item = {.bind = -1};
    char name[2 * MAX_NAME];
    if (!n || n >= MAX_NAME)
        die("grammar: rule %s: [%.*s]: a name of 1 to %d letters", where, (int)n, s, MAX_NAME - 1);
    memcpy(name, s, n);
    name[n] = 0;
    item.capital = isupper((unsigned char)*name);
    *name = (char)tolower((unsigned char)*name);
    char *ref = strchr(name, '=');
    if (ref) {
        *ref++ = 0;
        item.bind = find_name(g->slot, g->n_slots, name);
    } else {
        ref = name;
    }
    item.rule = find_rule(g, ref);
    char *dot = strchr(ref, '.');
    if (dot) *dot = 0;
    item.slot = find_name(g->slot, g->n_slots, ref);
    if (item.rule >= 0) {
        item.kind = RULE;
    } else if (dot) {
        item.kind = FORM;
        if (item.slot < 0) die("grammar: rule %s: [%.*s]: nothing is remembered as %s", where, (int)n, s, ref);
        item.form = add_name(g->form, &g->n_forms, MAX_FORMS, dot + 1);
    } else if (item.slot >= 0) {
        item.kind = SLOT;
    } else if (!strcmp(ref, "a")) {
        item.kind = ARTICLE;
    } else {
        die("grammar: rule %s: [%.*s]: no rule %s", where, (int)n, s, ref);
    }
    return item;
}

// One alternative, s to end. Literal text goes to the arena, with the quotes and kept spaces translated.
static Alt read_alt(Grammar *g, int rule, const char *s, const char *end, char **arena)
{
    const char *where = g->rule[rule].name;
    while (s < end && *s == ' ') s++;
    while (end > s && end[-1] == ' ') end--;
    Alt alt = {.weight = 1, .rule = rule};
    char *after;
    long weight = s < end && isdigit((unsigned char)*s) ? strtol(s, &after, 10) : 0;
    if (weight > 0 && after < end && *after == '*') {
        alt.weight = (double)weight; // whole numbers: sums and differences of weights are exact
        for (s = after + 1; s < end && *s == ' ';) s++;
    }
    size_t cap = 1;
    for (const char *c = s; c < end; c++) cap += 2 * (*c == '[');
    alt.item = calloc(cap, sizeof *alt.item);
    if (!alt.item) die("grammar: out of memory");
    while (s < end) {
        if (*s == '[') {
            const char *close = memchr(s, ']', (size_t)(end - s));
            if (!close) die("grammar: rule %s: no ] after %.*s", where, (int)(end - s), s);
            alt.item[alt.n_items++] = read_bracket(g, where, s + 1, (size_t)(close - s - 1));
            s = close + 1;
            continue;
        }
        Item *item = &alt.item[alt.n_items++];
        *item = (Item){.kind = TEXT, .bind = -1, .text = *arena};
        while (s < end && *s != '[') {
            bool quote = end - s >= 3 && (!memcmp(s, "“", 3) || !memcmp(s, "”", 3));
            *(*arena)++ = quote ? '"' : *s == '_' ? ' ' : *s;
            s += quote ? 3 : 1;
        }
        item->n_text = (size_t)(*arena - item->text);
    }
    return alt;
}

static void read_rule(Grammar *g, int rule, const char *body, char **arena)
{
    Rule *r = &g->rule[rule];
    size_t n = 1;
    for (const char *c = body; *c; c++) n += *c == '|';
    r->alt = calloc(n, sizeof *r->alt);
    if (!r->alt) die("grammar: out of memory");
    for (const char *s = body;;) {
        const char *end = s + strcspn(s, "|");
        r->alt[r->n_alts++] = read_alt(g, rule, s, end, arena);
        if (!*end) break;
        s = end + 1;
    }
}

// Depth first over what a rule contains: refuses cycles, and finds out which rules are word lists.
static void settle(Grammar *g, int rule)
{
    Rule *r = &g->rule[rule];
    if (r->mark == 1) die("grammar: rule %s contains itself", r->name);
    if (r->mark == 2) return;
    r->mark = 1;
    bool words = true;
    double n_words = 0;
    for (size_t a = 0; a < r->n_alts; a++) {
        Alt *alt = &r->alt[a];
        for (size_t i = 0; i < alt->n_items; i++) {
            const Item *item = &alt->item[i];
            if (item->kind == RULE) settle(g, item->rule);
            for (size_t c = 0; item->kind == FORM && c < g->n_rules; c++)
                if (g->form_rule[(size_t)item->form * g->n_rules + c] >= 0)
                    settle(g, g->form_rule[(size_t)item->form * g->n_rules + c]);
        }
        const Item *only = alt->n_items == 1 ? alt->item : NULL;
        double inner = only && only->kind == RULE ? g->rule[only->rule].n_words : 0;
        if (only && only->kind == TEXT) n_words += 1;
        else if (inner > 0) n_words += inner;
        else words = false;
    }
    r->mark = 2;
    if (!words) return;
    r->n_words = n_words;
    for (size_t a = 0; a < r->n_alts; a++)
        if (r->alt[a].item->kind == RULE) r->alt[a].weight = g->rule[r->alt[a].item->rule].n_words;
}

// The rule for each form and class: "he.girl", else "he", else none.
static void fill_forms(Grammar *g)
{
    g->form_rule = calloc((size_t)g->n_forms * g->n_rules + 1, sizeof *g->form_rule);
    if (!g->form_rule) die("grammar: out of memory");
    for (size_t f = 0; f < (size_t)g->n_forms; f++) {
        int plain = find_rule(g, g->form[f]);
        size_t n_form = strlen(g->form[f]);
        for (size_t c = 0; c < g->n_rules; c++) g->form_rule[f * g->n_rules + c] = plain;
        for (size_t r = 0; r < g->n_rules; r++) {
            const char *name = g->rule[r].name;
            if (strncmp(name, g->form[f], n_form) || name[n_form] != '.') continue;
            int class = find_rule(g, name + n_form + 1);
            if (class < 0) die("grammar: rule %s: no rule %s", name, name + n_form + 1);
            g->form_rule[f * g->n_rules + (size_t)class] = (int)r;
        }
    }
}

// The words of a word list and of the lists in it, from word[n] on. Returns the new n.
static size_t collect(const Grammar *g, int rule, const Item **word, size_t n)
{
    const Rule *r = &g->rule[rule];
    for (size_t a = 0; a < r->n_alts; a++) {
        if (r->alt[a].item->kind == TEXT) word[n++] = r->alt[a].item;
        else n = collect(g, r->alt[a].item->rule, word, n);
    }
    return n;
}

static int compare_words(const void *a, const void *b)
{
    const Item *x = *(const Item *const *)a, *y = *(const Item *const *)b;
    int order = memcmp(x->text, y->text, x->n_text < y->n_text ? x->n_text : y->n_text);
    return order ? order : (x->n_text > y->n_text) - (x->n_text < y->n_text);
}

// A word that a list holds twice could be chosen in two ways, and the text would not show which.
static void check_distinct(const Grammar *g, int rule)
{
    const Rule *r = &g->rule[rule];
    if (r->n_words < 2) return;
    const Item **word = calloc((size_t)r->n_words, sizeof *word);
    if (!word) die("grammar: out of memory");
    size_t n = collect(g, rule, word, 0);
    qsort(word, n, sizeof *word, compare_words);
    for (size_t i = 1; i < n; i++)
        if (!compare_words(&word[i - 1], &word[i]))
            die("grammar: rule %s: %.*s: given twice", r->name, (int)word[i]->n_text, word[i]->text);
    free(word);
}

// What is remembered must be a word: [x=rule] and [x=hero.form] need word lists, and [x=hero] would be a
// second name for one word.
static void check_binds(const Grammar *g, const Rule *r, const Item *item)
{
    bool words = item->kind == FORM || (item->kind == RULE && g->rule[item->rule].n_words > 0);
    const int *of_class = g->form_rule + (size_t)item->form * g->n_rules;
    for (size_t c = 0; item->kind == FORM && c < g->n_rules; c++)
        words = words && (of_class[c] < 0 || g->rule[of_class[c]].n_words > 0);
    if (!words) die("grammar: rule %s: %s= needs a word list", r->name, g->slot[item->bind]);
}

Grammar *grammar_load(const GrammarRule *rules, size_t n)
{
    Grammar *g = calloc(1, sizeof *g);
    if (!g || !(g->rule = calloc(n, sizeof *g->rule))) die("grammar: out of memory");
    size_t n_text = 1;
    for (size_t r = 0; r < n; r++) {
        if (find_rule(g, rules[r].name) >= 0) die("grammar: rule %s: given twice", rules[r].name);
        g->rule[g->n_rules++].name = rules[r].name;
        n_text += strlen(rules[r].body);
        for (const char *s = rules[r].body; (s = strchr(s, '[')); s++) { // collect the names on the left of =
            size_t len = strcspn(s + 1, "=]");
            if (s[1 + len] != '=') continue;
            char name[MAX_NAME] = {0};
            if (!len || len >= MAX_NAME) die("grammar: rule %s: bad name in %.30s", rules[r].name, s);
            memcpy(name, s + 1, len);
            *name = (char)tolower((unsigned char)*name);
            add_name(g->slot, &g->n_slots, MAX_SLOTS, name);
        }
    }
    for (int s = 0; s < g->n_slots; s++)
        if (find_rule(g, g->slot[s]) >= 0)
            die("grammar: %s is both a rule and a remembered word", g->slot[s]);
    char *arena = g->arena = malloc(n_text);
    if (!arena) die("grammar: out of memory");
    for (size_t r = 0; r < n; r++) read_rule(g, (int)r, rules[r].body, &arena);
    fill_forms(g);
    for (size_t r = 0; r < n; r++) settle(g, (int)r);
    for (size_t r = 0; r < n; r++) {
        check_distinct(g, (int)r);
        for (size_t a = 0; a < g->rule[r].n_alts; a++)
            for (size_t i = 0; i < g->rule[r].alt[a].n_items; i++)
                if (g->rule[r].alt[a].item[i].bind >= 0)
                    check_binds(g, &g->rule[r], &g->rule[r].alt[a].item[i]);
    }
    if (g->rule[0].n_alts != 1) die("grammar: rule %s: the first rule needs one alternative", g->rule[0].name);
    return g;
}

void grammar_free(Grammar *g)
{
    if (!g) return;
    for (size_t r = 0; r < g->n_rules; r++) {
        for (size_t a = 0; a < g->rule[r].n_alts; a++) free(g->rule[r].alt[a].item);
        free(g->rule[r].alt);
    }
    free(g->rule);
    free(g->form_rule);
    free(g->arena);
    free(g);
}
