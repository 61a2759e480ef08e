// grammar_rules: a grammar in memory, as grammar_load.c makes it and grammar.c walks it.
#ifndef GRAMMAR_RULES_H
#define GRAMMAR_RULES_H
#include <stdbool.h>
#include <stddef.h>

#include "data/stories/grammar.h"
#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
