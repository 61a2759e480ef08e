// grades: what the course's kit needs of C: how alike submissions are, and whether a results.json is Gradescope's.
//
//     build/grades similar [--base STUB] FILE...     all pairs, the most alike first
//     build/grades results results.json              checks it, and prints one line a test
//
// The measure. Comments and white space are dropped; every name that is no word of C becomes x, every number 0, every
// text "". What is left is a sequence of tokens, the same for two programs that differ in names and layout alone. A
// program is the set A of its sequences of 5 tokens, without those of the stub, which everybody has. Similarity is
// Jaccard's, |A and B| / |A or B| (data/prep/shingle.h). It is a reason to read two programs side by side, no proof: a
// short assignment has few ways to be right.
#include "base/check.h"
#include "tools/options.h"
#include "data/prep/shingle.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: grades similar [--base STUB] FILE...    how alike programs are, in tokens without names and comments\n"
    "       grades results results.json             checks the results of an autograder against Gradescope's format\n";

static const char c_words[] =
    " auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "return short signed sizeof static struct switch typedef union unsigned void volatile while bool size_t ";

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) die("grades: %s: cannot be read", path);
    char *text = NULL;
    size_t cap = 0;
    for (*n = 0;;) {
        if (*n + 1 >= cap && !(text = realloc(text, cap = 2 * cap + 4096))) die("grades: no memory");
        size_t got = fread(text + *n, 1, cap - *n - 1, f);
        if (!got) break;
        *n += got;
    }
    fclose(f);
    text[*n] = '\0';
    return text;
}

// The tokens of a program with blanks between; tokens has room for twice its length.
static size_t tokens_of(const char *s, char *tokens)
{
    char *to = tokens;
    while (*s) {
        const char *from = s;
        if (s[0] == '/' && s[1] == '/') s += strcspn(s, "\n");
        else if (s[0] == '/' && s[1] == '*') {
            const char *end = strstr(s + 2, "*/");
            s = end ? end + 2 : s + strlen(s);
        } else if (isspace((unsigned char)*s)) s++;
        else if (*s == '"' || *s == '\'') {
            for (s++; *s && *s != *from; s++)
                if (*s == '\\' && s[1]) s++;
            if (*s) s++;
            *to++ = '"', *to++ = ' ';
        } else if (isdigit((unsigned char)*s)) {
            while (isalnum((unsigned char)*s) || *s == '.') s++;
            *to++ = '0', *to++ = ' ';
        } else if (isalpha((unsigned char)*s) || *s == '_') {
            while (isalnum((unsigned char)*s) || *s == '_') s++;
            char word[32];
            snprintf(word, sizeof word, " %.*s ", (int)(s - from < 29 ? s - from : 29), from);
            if (strstr(c_words, word)) memcpy(to, from, (size_t)(s - from)), to += s - from;
            else *to++ = 'x';
            *to++ = ' ';
        } else *to++ = *s++, *to++ = ' ';
    }
    return (size_t)(to - tokens);
}

static Shingles shingles_of(const char *path)
{
    size_t n;
    char *text = read_file(path, &n), *tokens = malloc(2 * n + 1);
    if (!tokens) die("grades: no memory");
    Shingles s = {0};
    shingle_make(&s, tokens, tokens_of(text, tokens), 5);
    free(text), free(tokens);
    return s;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void take_out(Shingles *s, const Shingles *base)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_grams; i++)
        if (!bsearch(&s->gram[i], base->gram, base->n_grams, sizeof *base->gram, ascending)) s->gram[kept++] = s->gram[i];
    s->n_grams = kept;
}

typedef struct {
    double alike;
    size_t a, b;
} Pair;

static int most_alike_first(const void *a, const void *b)
{
    double x = ((const Pair *)a)->alike, y = ((const Pair *)b)->alike;
    return (x < y) - (x > y);
}

static void similar(const char *base_path, char **path, size_t n)
{
    Shingles *all = calloc(n, sizeof *all), base = {0};
    Pair *pair = malloc((n * n / 2 + 1) * sizeof *pair);
    if (!all || !pair) die("grades: no memory");
    if (base_path) base = shingles_of(base_path);
    size_t pairs = 0;
    for (size_t i = 0; i < n; i++) {
        all[i] = shingles_of(path[i]);
        take_out(&all[i], &base);
        for (size_t j = 0; j < i; j++)
            pair[pairs++] = (Pair){shingle_jaccard(all[j].gram, all[j].n_grams, all[i].gram, all[i].n_grams), j, i};
    }
    qsort(pair, pairs, sizeof *pair, most_alike_first);
    for (size_t k = 0; k < pairs; k++) printf("%.2f  %s  %s\n", pair[k].alike, path[pair[k].a], path[pair[k].b]);
    for (size_t i = 0; i < n; i++) shingle_free(&all[i]);
    shingle_free(&base);
    free(all), free(pair);
}

// ---- results.json: https://gradescope-autograders.readthedocs.io/en/latest/specs/

static const char *text_of(json_t *object, const char *key) // NULL: it has none
{
    json_t *value = json_object_get(object, key);
    if (value && !json_is_string(value)) die("grades: results: \"%s\" is not a string", key);
    return json_string_value(value);
}

static void one_of(json_t *object, const char *key, const char *choices)
{
    const char *value = text_of(object, key);
    char word[64];
    snprintf(word, sizeof word, " %s ", value ? value : "");
    if (value && !strstr(choices, word)) die("grades: results: \"%s\" is \"%s\" (one of%s)", key, value, choices);
}

static void check_results(const char *path)
{
    static const char visibility[] = " hidden after_due_date after_published visible ";
    json_error_t error;
    json_t *all = json_load_file(path, JSON_REJECT_DUPLICATES, &error), *test, *row;
    if (!json_is_object(all)) die("grades: %s: line %d: %s", path, all ? 1 : error.line, all ? "not an object" : error.text);
    json_t *tests = json_object_get(all, "tests");
    double got = 0, of = 0;
    size_t i;
    one_of(all, "visibility", visibility), one_of(all, "stdout_visibility", visibility), text_of(all, "output");
    if (!json_is_array(tests) && !json_is_number(json_object_get(all, "score"))) die("grades: %s: neither tests nor a score", path);
    json_array_foreach(tests, i, test)
    {
        json_t *score = json_object_get(test, "score"), *most = json_object_get(test, "max_score");
        if (!json_is_number(score) || !json_is_number(most)) die("grades: %s: test %zu: no score and max_score", path, i);
        if (json_number_value(score) > json_number_value(most)) die("grades: %s: test %zu: more points than it has", path, i);
        one_of(test, "visibility", visibility), one_of(test, "status", " passed failed "), text_of(test, "output");
        const char *name = text_of(test, "name"), *seen = text_of(test, "visibility");
        printf("%g of %g  %s%s%s\n", json_number_value(score), json_number_value(most), name ? name : "", seen ? ", " : "",
               seen ? seen : "");
        got += json_number_value(score), of += json_number_value(most);
    }
    json_array_foreach(json_object_get(all, "leaderboard"), i, row)
    {
        const char *name = text_of(row, "name");
        if (!name || !json_object_get(row, "value")) die("grades: %s: a row of the leaderboard has no name and value", path);
        one_of(row, "order", " asc desc ");
        printf("leaderboard: %s = %g\n", name, json_number_value(json_object_get(row, "value")));
    }
    printf("valid: %g of %g\n", got, of);
    json_decref(all);
}

int main(int argc, char **argv)
{
    const char *base = NULL;
    Option row[] = {OPTION(TEXT, "--base", "STUB", "similar: leaves out what is in this file too", &base)};
    OptionSet options = {"grades", help, row, sizeof row / sizeof *row, .where = 0};
    size_t n = options_read(&options, argc, argv);
    if (n >= 2 && !strcmp(argv[1], "similar")) similar(base, argv + 2, n - 1);
    else if (n == 2 && !strcmp(argv[1], "results")) check_results(argv[2]);
    else die_usage("grades: similar FILE..., or results FILE (try --help)");
    return 0;
}
