// plan_evaluate: the value of a formula that is written as in a book. See plan.h.
//
//     sum     = product (("+" | "-") product)*
//     product = factor (["*"] factor)*                juxtaposed, 2 L (C + 1), or as it is written with numbers
//     factor  = number | letter | "(" sum ")"
//             | ceil(sum / sum) | floor(log2(sum)) | max(sum, sum) | min(sum, sum)
//
// A letter is a letter with the letters and digits right behind it: L, Pm, P8. While it reads, it writes the same
// formula with numbers in place of letters, and with signs where products have none.
//
// The invariant: a text is read to its end or the program ends; nothing is skipped. All arithmetic is in
// whole numbers; sizes of the largest presets stay far below 2^64.
//
// Rejected: a library for expressions. They compute in double, which is exact to 2^53, want a sign for every
// product, and know no way to print what they have put in.
#include "dev/plan/plan.h"

#include "base/check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const PlanLetters *letters;
    const char *text, *at;
    char *out; // NULL: not wanted
    size_t n_out, size;
} Reader;

static size_t sum(Reader *r);

static void write(Reader *r, const char *text)
{
    if (!r->out) return;
    int n = snprintf(r->out + r->n_out, r->size - r->n_out, "%s", text);
    if (n < 0 || r->n_out + (size_t)n >= r->size) die("plan: the numbers of '%s' are too long", r->text);
    r->n_out += (size_t)n;
}

static void write_number(Reader *r, size_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", value);
    write(r, text);
}

static void skip_spaces(Reader *r)
{
    while (*r->at == ' ') r->at++;
}

// Takes `word` if it comes next, and writes it as `shown`.
static bool takes(Reader *r, const char *word, const char *shown)
{
    skip_spaces(r);
    if (strncmp(r->at, word, strlen(word))) return false;
    r->at += strlen(word);
    write(r, shown);
    return true;
}

static void needs(Reader *r, const char *word, const char *shown)
{
    if (!takes(r, word, shown)) die("plan: '%s' is no formula at '%s', which should be '%s'", r->text, r->at, word);
}

static size_t letter(Reader *r)
{
    skip_spaces(r);
    size_t n = 0;
    while (isalnum((unsigned char)r->at[n])) n++;
    for (int i = 0; n && i < r->letters->n; i++) {
        const PlanLetter *l = &r->letters->letter[i];
        if (strlen(l->name) != n || strncmp(l->name, r->at, n)) continue;
        r->at += n;
        write_number(r, l->value);
        return l->value;
    }
    die("plan: '%s' is no formula at '%s'", r->text, r->at);
}

static size_t factor(Reader *r)
{
    size_t a, b;
    if (takes(r, "(", "(")) {
        a = sum(r);
        needs(r, ")", ")");
        return a;
    }
    if (takes(r, "ceil(", "ceil(")) {
        a = sum(r);
        needs(r, "/", " / ");
        b = sum(r);
        needs(r, ")", ")");
        if (!b) die("plan: '%s' divides by 0", r->text);
        return (a + b - 1) / b;
    }
    if (takes(r, "floor(log2(", "floor(log2(")) {
        a = sum(r);
        needs(r, ")", ")");
        needs(r, ")", ")");
        for (b = 0; a > 1; a /= 2) b++;
        return b;
    }
    bool max = takes(r, "max(", "max(");
    if (max || takes(r, "min(", "min(")) {
        a = sum(r);
        needs(r, ",", ", ");
        b = sum(r);
        needs(r, ")", ")");
        return max == (a > b) ? a : b;
    }
    if (!isdigit((unsigned char)*r->at)) return letter(r);
    char *end;
    a = strtoull(r->at, &end, 10);
    r->at = end;
    write_number(r, a);
    return a;
}

static size_t product(Reader *r)
{
    size_t value = factor(r);
    for (;;) {
        bool sign = takes(r, "*", " * ");
        if (!sign && *r->at != '(' && !isalnum((unsigned char)*r->at)) return value;
        if (!sign) write(r, " * ");
        value *= factor(r);
    }
}

static size_t sum(Reader *r)
{
    size_t value = product(r);
    for (;;) {
        if (takes(r, "+", " + ")) value += product(r);
        else if (takes(r, "-", " - ")) value -= product(r);
        else return value;
    }
}

size_t plan_evaluate(const PlanLetters *letters, const char *text, char *numbers, size_t size)
{
    Reader r = {.letters = letters, .text = text, .at = text, .out = numbers, .size = size};
    size_t value = sum(&r);
    skip_spaces(&r);
    if (*r.at) die("plan: '%s' is no formula at '%s'", text, r.at);
    return value;
}
