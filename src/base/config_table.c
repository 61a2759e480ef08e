// config_table: what can be done with a single row of the table of keys (config_keys.c): read, print, describe it.
//
// The invariant: config_table_format() and config_table_parse() are inverse to each other for every row,
// so a written configuration is the configuration that ran.
//
// Rejected: a table of conversion functions by type. Five types in one switch are shorter to read.
#include "base/config_table.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int config_table_find(const char *name)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    for (int i = 0; i < n_keys; i++)
        if (!strcmp(table[i].name, name)) return i;
    return -1;
}

// Edits from a to b, or `limit` when it takes so many or more. A difference in length, and each character of one that
// the other does not have, takes an edit; most names are settled by that.
static int distance_below(const char *a, const char *b, int limit)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1], n_a = (int)strlen(a), n = (int)strlen(b);
    uint64_t in_a = 0, in_b = 0; // characters, modulo 64
    if (n_a > LONGEST || n > LONGEST || abs(n_a - n) >= limit) return limit;
    for (int i = 0; i < n_a; i++) in_a |= 1ull << (a[i] & 63);
    for (int j = 0; j < n; j++) in_b |= 1ull << (b[j] & 63);
    if (__builtin_popcountll(in_a & ~in_b) >= limit || __builtin_popcountll(in_b & ~in_a) >= limit) return limit;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; i <= n_a; i++) {
        int diagonal = row[0], least = i;
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int replace = diagonal + (a[i - 1] != b[j - 1]);
            int insert = row[j - 1] + 1, delete = row[j] + 1;
            diagonal = row[j];
            row[j] = replace;
            if (insert < row[j]) row[j] = insert;
            if (delete < row[j]) row[j] = delete;
            if (row[j] < least) least = row[j];
        }
        if (least >= limit) return limit; // no row below has less
    }
    return row[n] < limit ? row[n] : limit;
}

int config_table_distance(const char *a, const char *b)
{
    return distance_below(a, b, 1000);
}

const char *config_table_section(const char *name, int *n)
{
    const char *best = NULL;
    int n_keys, best_distance = 0;
    const ConfigKey *table = config_table(&n_keys);
    for (int i = 0; i < n_keys; i++) {
        char section[32];
        int length = (int)strcspn(table[i].name, ".");
        snprintf(section, sizeof section, "%.*s", length, table[i].name);
        int distance = config_table_distance(name, section);
        if (best && distance >= best_distance) continue;
        best = table[i].name;
        best_distance = distance;
        *n = length;
    }
    return best;
}

// The right key in the wrong section (optim.steps) counts as two edits.
int config_table_nearest(const char *name)
{
    const char *dot = strchr(name, '.');
    const char *short_name = dot ? dot + 1 : name;
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    int best = -1, best_distance = (int)strlen(short_name) / 2 + 2;
    for (int i = 0; i < n_keys; i++) {
        int whole = distance_below(name, table[i].name, best_distance);
        int key_only = 2 + distance_below(short_name, strchr(table[i].name, '.') + 1, whole - 2);
        int distance = whole < key_only ? whole : key_only;
        if (distance < best_distance) {
            best = i;
            best_distance = distance;
        }
    }
    return best;
}

// ---- values

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// Removes the underscores between digits (1_000); false when one stands elsewhere or text does not fit.
static bool plain_number(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; text[i]; i++) {
        if (text[i] == '_') {
            if (i == 0 || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) return false;
            continue;
        }
        if (!strchr("0123456789+-.eE", text[i]) || n + 1 >= size) return false;
        out[n++] = text[i];
    }
    out[n] = 0;
    return n > 0;
}

// Is x in the interval "[0, 1)"? An empty interval holds everything.
static bool in_interval(const char *interval, double x)
{
    if (!*interval) return true;
    char *end;
    double low = strtod(interval + 1, &end);
    double high = strtod(end + 1, &end);
    return (interval[0] == '(' ? x > low : x >= low) && (*end == ')' ? x < high : x <= high);
}

// The index of text in "a|b|c", or -1.
static int choice_index(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *at = choices; *at; index++) {
        size_t n = strcspn(at, "|");
        if (n == length && !memcmp(at, text, n)) return index;
        at += n + (at[n] == '|');
    }
    return -1;
}

void config_table_range(const ConfigKey *key, char *out, size_t size)
{
    const char *interval = key->type == CONFIG_CHOICE ? "" : key->allowed, *inf = strstr(interval, ", inf)");
    const char *above = *interval == '(' ? ">" : ">=";
    if (inf) snprintf(out, size, "%s %.*s", above, (int)(inf - interval) - 1, interval + 1);
    else snprintf(out, size, "%s%s", *interval ? "in " : "", interval);
}

static bool parse_number(const ConfigKey *key, const char *text, bool quoted, double *number, long *integer)
{
    char plain[64], *end = plain;
    if (quoted || !plain_number(text, plain, sizeof plain)) return false;
    errno = 0;
    if (key->type == CONFIG_INTEGER) {
        *integer = strtol(plain, &end, 10);
        *number = (double)*integer;
    } else {
        *number = strtod(plain, &end);
    }
    bool overflow = errno == ERANGE && (key->type == CONFIG_INTEGER || isinf(*number));
    return !*end && end != plain && !overflow;
}

bool config_table_parse(const ConfigKey *key, Config *cfg, const char *text, bool quoted,
                        char *why, size_t why_size)
{
    void *member = (char *)cfg + key->offset;
    char kind[256], range[64];
    double number = 0;
    long integer = 0;
    int choice = 0;
    config_table_describe(key, kind, sizeof kind);
    if (!key->def) {
        snprintf(why, why_size, "%s cannot be set, it is derived (%s)", key->name, key->help);
        return false;
    }
    switch (key->type) {
    case CONFIG_STRING:
        if (strlen(text) >= CONFIG_TEXT) {
            snprintf(why, why_size, "%s is %zu bytes long (at most %d)", key->name, strlen(text),
                     CONFIG_TEXT - 1);
            return false;
        }
        strcpy(member, text);
        return true;
    case CONFIG_BOOL:
        if (quoted || (strcmp(text, "true") && strcmp(text, "false"))) break;
        *(bool *)member = !strcmp(text, "true");
        return true;
    case CONFIG_CHOICE:
        choice = choice_index(key->allowed, text);
        if (choice < 0) break;
        *(int *)member = choice;
        return true;
    case CONFIG_INTEGER:
    case CONFIG_NUMBER:
        if (!parse_number(key, text, quoted, &number, &integer)) break;
        if (!in_interval(key->allowed, number)) {
            config_table_range(key, range, sizeof range);
            snprintf(why, why_size, "%s is %s, not %s (%s)", key->name, text, range, key->help);
            return false;
        }
        if (key->type == CONFIG_INTEGER) *(long *)member = integer;
        else *(double *)member = number;
        return true;
    }
    const char *quote = quoted ? "\"" : "'";
    snprintf(why, why_size, "%s must be %s, not %s%.200s%s", key->name, kind, quote, text, quote);
    return false;
}

void config_table_format(const ConfigKey *key, const Config *cfg, char *out, size_t size)
{
    const void *member = (const char *)cfg + key->offset;
    double number;
    switch (key->type) {
    case CONFIG_INTEGER: snprintf(out, size, "%ld", *(const long *)member); break;
    case CONFIG_BOOL: snprintf(out, size, "%s", *(const bool *)member ? "true" : "false"); break;
    case CONFIG_STRING: snprintf(out, size, "%s", (const char *)member); break;
    case CONFIG_NUMBER: // the shortest digits that read back to the same double
        number = *(const double *)member;
        if (fabs(number) < 1e9 && number == floor(number)) {
            snprintf(out, size, "%.0f", number);
            break;
        }
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(out, size, "%.*g", digits, number);
            if (strtod(out, NULL) == number) break;
        }
        break;
    case CONFIG_CHOICE: {
        const char *at = key->allowed;
        for (int i = 0; i < *(const int *)member && *at; i++) {
            at += strcspn(at, "|");
            at += *at == '|';
        }
        snprintf(out, size, "%.*s", (int)strcspn(at, "|"), at);
        break;
    }
    }
}

void config_table_describe(const ConfigKey *key, char *out, size_t size)
{
    const char *kinds[] = {"an integer", "a number", "true or false", "a string"};
    if (key->type != CONFIG_CHOICE) {
        snprintf(out, size, "%s", kinds[key->type]);
        return;
    }
    size_t n = 0;
    for (const char *at = key->allowed; *at && n + 8 < size; at++) {
        if (*at != '|') out[n++] = *at;
        else n += (size_t)snprintf(out + n, size - n, strchr(at + 1, '|') ? ", " : " or ");
    }
    out[n] = 0;
}

// `needs` is "section.key=value", "section.key=value|value" or "section.key>NUMBER". A key whose needs are met by one
// that has no effect itself has none either.
bool config_table_has_effect(const ConfigKey *key, const Config *cfg, int *needed)
{
    int n_keys;
    if (!*key->needs) return true;
    char name[64], value[CONFIG_TEXT];
    size_t n = strcspn(key->needs, "=>");
    snprintf(name, sizeof name, "%.*s", (int)n, key->needs);
    int row = config_table_find(name);
    const ConfigKey *other = &config_table(&n_keys)[row];
    if (!config_table_has_effect(other, cfg, needed)) return false;
    *needed = row;
    config_table_format(other, cfg, value, sizeof value);
    return key->needs[n] == '>' ? strtod(value, NULL) > strtod(key->needs + n + 1, NULL)
                               : choice_index(key->needs + n + 1, value) >= 0;
}
