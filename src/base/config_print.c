// config_print: the table as people read it: --help, the start-up settings, the reference in doc/config.md.
//
// All three walk the rows of config_table.c, so none of them can name a key that the parser does not know, or
// miss one that it does. The start-up table shows the values that the run uses, derived ones too, each with
// its origin: file and line, command line, derived or default. Keys that have no effect on this run are left
// out, except those that a file sets (the command line has switched off what they depend on).
//
// Rejected: a help text kept beside the parser; the two drift apart.
#include <stdio.h>
#include <string.h>

#include "base/config_table.h"

// Prints text from column `indent` on, broken between words so that no line is longer than 100.
static void print_wrapped(FILE *out, int column, int indent, const char *text)
{
    const int width = 100;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", word, text);
        column += word;
        text += word + (text[word] == ' ');
    }
    fputc('\n', out);
}

// True at the first row of each section.
static bool section_starts(const ConfigKey *table, int i, int *n)
{
    *n = (int)strcspn(table[i].name, ".");
    return i == 0 || strncmp(table[i].name, table[i - 1].name, (size_t)*n + 1);
}

// "integer >= 1, steps": type, range or choices, unit.
static void print_kind(const ConfigKey *key, char *out, size_t size)
{
    const char *names[] = {"integer", "number", "true or false", "text"};
    char choices[256], range[64];
    config_table_describe(key, choices, sizeof choices);
    config_table_range(key, range, sizeof range);
    if (key->type == CONFIG_CHOICE) snprintf(out, size, "%s", choices);
    else snprintf(out, size, "%s%s%s%s%s", names[key->type], *range ? " " : "", range, *key->unit ? ", " : "",
                  key->unit);
}

void config_print_help(FILE *out, const char *program)
{
    int n_keys, n;
    const ConfigKey *table = config_table(&n_keys);
    char presets[2048], left[128], kind[320], text[1024];
    config_table_list_presets(presets, sizeof presets);
    fprintf(out, "usage: %s [FILE.toml or preset] [--section.key=value ...]\n\n", program);
    print_wrapped(out, 0, 0, "The file has lines 'key = value' under '[section]'; what the command line says "
                             "wins. Each key is listed with its default.");
    fprintf(out, "presets: ");
    print_wrapped(out, 9, 9, presets);
    for (int i = 0; i < n_keys; i++) {
        const ConfigKey *key = &table[i];
        if (section_starts(table, i, &n)) fprintf(out, "\n[%.*s]\n", n, key->name);
        print_kind(key, kind, sizeof kind);
        snprintf(left, sizeof left, "--%s=%s", key->name, key->def ? key->def : "");
        snprintf(text, sizeof text, "%s (%s%s%s%s)", key->help, key->def ? "" : "always derived; ", kind,
                 *key->needs ? "; only with " : "", key->needs);
        int column = fprintf(out, "  %-31s ", key->def ? left : key->name);
        if (column > 34) column = fprintf(out, "\n%*s", 34, "") - 1;
        print_wrapped(out, column, 34, text);
    }
    fprintf(out, "\n  --help                          this page\n"
                 "  --help-markdown                 the same as a table: what stands in doc/config.md\n");
}

void config_print_reference(FILE *out)
{
    int n_keys, n;
    const ConfigKey *table = config_table(&n_keys);
    char kind[320];
    for (int i = 0; i < n_keys; i++) {
        const ConfigKey *key = &table[i];
        if (section_starts(table, i, &n))
            fprintf(out, "%s**[%.*s]**\n\n| key | default | takes | meaning |\n|---|---|---|---|\n",
                    i ? "\n" : "", n, key->name);
        print_kind(key, kind, sizeof kind);
        const char *def = !key->def ? "derived" : *key->def ? key->def : "\"\"";
        fprintf(out, "| `%s` | `%s` | %s | %s", key->name, def, kind, key->help);
        if (*key->needs) fprintf(out, " (only with `%s`)", key->needs);
        fprintf(out, " |\n");
    }
}

// The file's name and line without its directories: the table is narrow.
static const char *short_where(const ConfigOrigin *origin)
{
    const char *slash = strrchr(origin->where, '/');
    if (origin->source == CONFIG_DEFAULT) return "default";
    return slash ? slash + 1 : origin->where;
}

static bool is_shown(const Config *cfg, const ConfigKey *key, const ConfigOrigin *origin)
{
    int needed;
    return origin->source != CONFIG_DEFAULT || config_table_has_effect(key, cfg, &needed);
}

// The value as it stands in the start-up table: one line, numbers to six digits (config.toml has all).
static void shown_value(const ConfigKey *key, const Config *cfg, char *out, size_t size)
{
    config_table_format(key, cfg, out, size);
    if (!*out) snprintf(out, size, "\"\"");
    if (key->type == CONFIG_NUMBER && strlen(out) > 10)
        snprintf(out, size, "%.6g", *(const double *)((const char *)cfg + key->offset));
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20) *c = ' ';
}

void config_print(const Config *cfg, FILE *out)
{
    int n_keys, n, value_width = 8, where_width = 8;
    const int widest = 32; // a longer value moves its own row only
    const ConfigKey *table = config_table(&n_keys);
    char value[CONFIG_TEXT + 2];
    for (int i = 0; i < n_keys; i++) {
        if (!is_shown(cfg, &table[i], &cfg->origin[i])) continue;
        shown_value(&table[i], cfg, value, sizeof value);
        int value_length = (int)strlen(value), where_length = (int)strlen(short_where(&cfg->origin[i]));
        if (value_length > value_width && value_length <= widest) value_width = value_length;
        if (where_length > where_width && where_length <= widest) where_width = where_length;
    }
    for (int i = 0; i < n_keys; i++) {
        if (section_starts(table, i, &n) && i) fputc('\n', out);
        if (!is_shown(cfg, &table[i], &cfg->origin[i])) continue;
        shown_value(&table[i], cfg, value, sizeof value);
        fprintf(out, "%-19s %-*s  %-*s  %.*s\n", table[i].name, value_width, value, where_width,
                short_where(&cfg->origin[i]), (int)strcspn(table[i].help, ";"), table[i].help);
    }
}
