// options: reads a command line by a table and prints the table as help. See options.h.
//
// The invariant: what the help lists is what is read, with the same names; nothing that a row does not name is taken.
//
// Rejected: getopt_long (its table says neither the help nor the kinds of values, so a second one would beside it).
#include "tools/options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/words.h"

static void add_word(OptionList *list, const char *word)
{
    list->word = words_grow(list->word, &list->cap, list->n + 1, sizeof *list->word);
    list->word[list->n++] = word;
}

static Option *find(const OptionSet *set, const char *name, size_t n)
{
    for (size_t i = 0; i < set->n; i++) {
        Option *row = &set->row[i];
        if (row->kind == OPTION_NOTE || (set->where && row->where && !(row->where & set->where))) continue;
        if (strlen(row->name) == n && memcmp(row->name, name, n) == 0) return row;
    }
    return NULL;
}

// What was meant: an option that begins so, or the nearest one. Dies.
static _Noreturn void unknown(const OptionSet *set, const char *word)
{
    const char *near = NULL, *quote = set->quote ? set->quote : "";
    int least = (int)strlen(word) / 3 + 1;
    for (size_t i = 0; i < set->n; i++) {
        const Option *row = &set->row[i];
        if (row->kind == OPTION_NOTE || (set->where && row->where && !(row->where & set->where))) continue;
        bool begins = strlen(word) > 2 && !strncmp(row->name, word, strlen(word));
        int distance = begins ? 0 : words_distance(word, row->name, least);
        if (distance < least) near = row->name, least = distance;
    }
    if (near) die_usage("%s: %s%s%s: no such option (did you mean %s? try --help)", set->program, quote, word, quote, near);
    die_usage("%s: %s%s%s: no such option (try --help)", set->program, quote, word, quote);
}

bool options_given(const OptionSet *set, const char *name)
{
    const Option *row = find(set, name, strlen(name));
    return row && row->given;
}

void options_print(const OptionSet *set)
{
    int width = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < set->n; i++) {
            const Option *row = &set->row[i];
            char left[64];
            if (set->where && row->where && !(row->where & set->where)) continue;
            int n = snprintf(left, sizeof left, "%s%s%s", row->name, row->value ? " " : "",
                             row->value ? row->value : "");
            if (pass && !row->help) printf("%s\n", left);
            else if (pass) printf("  %-*s %s\n", width, left, row->help);
            else if (row->help && n > width && n < 28) width = n;
        }
}

static void set_number(const OptionSet *set, const Option *row, const char *text)
{
    char *end;
    double value, most = row->kind == OPTION_INT && !(row->most > 0) ? INT_MAX : row->most;
    bool whole = row->kind != OPTION_NUMBER;
    errno = 0;
    if (whole) {
        unsigned long long n = strtoull(text, &end, 10);
        value = *text < '0' || *text > '9' || errno ? NAN : (double)n;
        if (row->kind == OPTION_INT) *(int *)row->to = (int)n; // refused below where it is too large
        else *(size_t *)row->to = (size_t)n;
    } else *(double *)row->to = value = strtod(text, &end);
    bool good = end != text && !*end && value >= row->least && (most > 0 ? value <= most : isfinite(value));
    if (good) return;
    const char *what = whole ? "a whole number" : "a number";
    if (most > 0)
        die_usage("%s: %s: %s: not %s from %.16g to %.16g (try --help)", set->program, row->name, text, what,
                  row->least, most);
    die_usage("%s: %s: %s: not %s of %g or more (try --help)", set->program, row->name, text, what, row->least);
}

static void set_row(const OptionSet *set, Option *row, const char *value)
{
    row->given = true;
    if (row->kind == OPTION_SWITCH) *(bool *)row->to = true;
    else if (row->kind == OPTION_TEXT) *(const char **)row->to = value;
    else if (row->kind == OPTION_LIST || row->kind == OPTION_WORDS) add_word(row->to, value);
    else set_number(set, row, value);
}

size_t options_read(OptionSet *set, int argc, char **argv)
{
    size_t n = 0;
    OptionList *words = NULL; // of the option before
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(set->usage, stdout);
            options_print(set);
            exit(0);
        }
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *equals = strchr(word, '=');
        if (word[0] != '-' || !word[1]) {
            if (words) add_word(words, word);
            else argv[++n] = argv[i];
            continue;
        }
        Option *row = find(set, word, equals ? (size_t)(equals - word) : strlen(word));
        if (!row) unknown(set, word);
        bool takes = row->kind != OPTION_SWITCH;
        if (!takes && equals) die_usage("%s: '%s': takes no value", set->program, word);
        const char *value = !takes ? "" : equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value && set->missing) die_usage("%s: %s: %s (try --help)", set->program, word, set->missing);
        if (!value) die_usage("%s: '%s': takes %s (try --help)", set->program, word, row->value);
        set_row(set, row, value);
        words = row->kind == OPTION_WORDS ? row->to : NULL;
    }
    return n;
}

long long options_count(const char *program, const char *name, const char *text, long long low, long long high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        die("%s: --%s: '%s' (a whole number from %lld to %lld)", program, name, text, low, high);
    return value;
}
