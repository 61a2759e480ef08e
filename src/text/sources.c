// sources: the manifest of a mixture, a small TOML file:
//
//     [source.books]
//     path = "books.jsonl.zst"        # relative to the folder of this file
//     weight = 2.5                    # its share is weight / sum of weights
//     format = jsonl                  # auto, text, jsonl, parquet, warc
//     field = "content"
//
// Invariant: a manifest is read completely or not at all: an unknown key, one that is set twice, or a value out of
// range dies with FILE:LINE. inih finds sections and keys. It gets each line only up to its '=', because it would take
// " ;" inside quotes for a comment and cut long lines; the value is read here.
//
// Rejected: one section per file name (names are what reports and mixtures speak of, and two sources may share a
// file), and weights in percent that must add up to 100.
#define _GNU_SOURCE // asprintf
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/words.h"
#include "text/sources.h"

enum { KEY_PATH, KEY_WEIGHT, KEY_FORMAT, KEY_SEPARATOR, KEY_LINE, KEY_FIELD, N_KEYS };
static const char *const key_names[N_KEYS] = {"path", "weight", "format", "separator", "line", "field"};

typedef struct {
    const char *path;
    FILE *file;
    char *line; // the current one
    size_t cap;
    int number;
    int seen[N_KEYS]; // the line that sets each key of the current source
    Sources list;
    SourcesSetting set; // NULL: sources alone
    void *arg;
    char section[64]; // the section when it is not a source; "": it is a source
} Manifest;

// A string that is `"basic"` with \" \\ \n \t, 'literal', or one bare word; the caller frees it.
static char *read_value(const Manifest *m, bool *quoted)
{
    const char *at = strchr(m->line, '=') + 1;
    at += strspn(at, " \t");
    char *out = malloc(strlen(at) + 1), quote = *at == '"' || *at == '\'' ? *at : 0;
    size_t n = 0;
    if (!out) die("%s: no memory for line %d", m->path, m->number);
    *quoted = quote != 0;
    if (!quote) {
        n = strcspn(at, " \t#");
        memcpy(out, at, n);
        at += n;
        if (!n) die("%s:%d: no value after = (write \"\" for an empty string)", m->path, m->number);
    } else {
        for (at++; *at != quote; at++) {
            if (!*at) die("%s:%d: the string has no closing %c", m->path, m->number, quote);
            if (quote == '"' && *at == '\\') {
                const char *names = "\"\\nt", *found = *++at ? strchr(names, *at) : NULL;
                if (!found) die("%s:%d: unknown escape (known: \\\" \\\\ \\n \\t)", m->path, m->number);
                out[n++] = "\"\\\n\t"[found - names];
            } else {
                out[n++] = *at;
            }
        }
        at++;
    }
    out[n] = 0;
    at += strspn(at, " \t");
    if (*at && *at != '#') die("%s:%d: text behind the value: %s (quote it)", m->path, m->number, at);
    return out;
}

static bool find_format(const char *name, SourceFormat *format)
{
    static const char *const names[] = {"auto", "text", "jsonl", "parquet", "warc"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            *format = (SourceFormat)i;
            return true;
        }
    return false;
}

static void finish_source(const Manifest *m)
{
    if (m->list.n && !m->seen[KEY_PATH])
        die("%s: [source.%s] has no path (path = \"FILE or FOLDER\")", m->path, m->list.source[m->list.n - 1].name);
}

static void begin_source(Manifest *m, char *at)
{
    size_t n = strcspn(at, "]");
    *m->section = 0;
    if (m->set && strncmp(at, "[source.", 8) != 0 && at[n] == ']' && n > 1 && n < sizeof m->section) {
        char *after = at + n + 1 + strspn(at + n + 1, " \t");
        if (*after && *after != '#') die("%s:%d: text after the section: %s", m->path, m->number, after);
        snprintf(m->section, sizeof m->section, "%.*s", (int)n - 1, at + 1);
        return;
    }
    if (strncmp(at, "[source.", 8) != 0 || at[n] != ']' || n <= 8)
        die("%s:%d: %s: not a section of a manifest ([source.NAME])", m->path, m->number, at);
    char *after = at + n + 1 + strspn(at + n + 1, " \t");
    if (*after && *after != '#') die("%s:%d: text after the section: %s", m->path, m->number, after);
    finish_source(m);
    char *name = strndup(at + 8, n - 8);
    if (!name) die("%s: no memory for line %d", m->path, m->number);
    for (size_t i = 0; i < m->list.n; i++)
        if (strcmp(m->list.source[i].name, name) == 0)
            die("%s:%d: the source '%s' is there twice (give it another name)", m->path, m->number, name);
    m->list.source = words_grow(m->list.source, &m->list.cap, m->list.n + 1, sizeof *m->list.source);
    m->list.source[m->list.n++] = (Source){.name = name, .weight = 1};
    memset(m->seen, 0, sizeof m->seen);
}

// inih's source of lines: each one up to its '='.
static char *next_line(char *out, int size, void *user)
{
    Manifest *m = user;
    ssize_t n = getline(&m->line, &m->cap, m->file);
    if (n < 0) {
        if (!feof(m->file)) die("%s: cannot read: %s", m->path, strerror(errno));
        return NULL;
    }
    m->number++;
    if (strlen(m->line) != (size_t)n) die("%s:%d: a NUL byte: this is not a text file", m->path, m->number);
    m->line[strcspn(m->line, "\r\n")] = 0;
    char *at = m->line + strspn(m->line, " \t");
    size_t n_key = strcspn(at, " \t=");
    if (!*at || *at == '#') {
        snprintf(out, (size_t)size, "\n");
    } else if (*at == '[') {
        begin_source(m, at);
        snprintf(out, (size_t)size, "[source]\n");
    } else {
        if (at[n_key + strspn(at + n_key, " \t")] != '=' || !n_key || n_key > 60)
            die("%s:%d: %s: neither [source.NAME], nor key = value, nor # comment", m->path, m->number, at);
        snprintf(out, (size_t)size, "%.*s =\n", (int)n_key, at);
    }
    return out;
}

char *sources_path(const char *manifest, const char *path)
{
    const char *slash = strrchr(manifest, '/');
    char *full = NULL;
    if (*path == '/' || !slash) {
        if (!(full = strdup(path))) die("%s: no memory", manifest);
        return full;
    }
    if (asprintf(&full, "%.*s/%s", (int)(slash - manifest), manifest, path) < 0) die("%s: no memory", manifest);
    return full;
}

// Some builds of inih pass the line number; Debian's does not.
#if INI_HANDLER_LINENO
#define LINE_NUMBER , __attribute__((unused)) int line_number
#else
#define LINE_NUMBER
#endif

static int read_key(void *user, const char *section, const char *name, const char *cut LINE_NUMBER)
{
    Manifest *m = user;
    (void)section, (void)cut; // the value is not here: see next_line
    if (!name) return 1;      // a build of inih may announce sections
    bool quoted;
    if (*m->section) {
        char *text = read_value(m, &quoted);
        m->set(m->arg, m->number, m->section, name, text, quoted);
        free(text);
        return 1;
    }
    int key = 0;
    while (key < N_KEYS && strcmp(key_names[key], name) != 0) key++;
    if (key == N_KEYS)
        die("%s:%d: unknown key '%s' (path, weight, format, separator, line, field)", m->path, m->number, name);
    if (!m->list.n) die("%s:%d: key '%s' before any [source.NAME]", m->path, m->number, name);
    if (m->seen[key]) die("%s:%d: %s is already set on line %d", m->path, m->number, name, m->seen[key]);
    m->seen[key] = m->number;
    Source *s = &m->list.source[m->list.n - 1];
    char *value = read_value(m, &quoted), *end;
    if (key == KEY_PATH) s->path = sources_path(m->path, value);
    else if (key == KEY_SEPARATOR) s->separator = value;
    else if (key == KEY_LINE) s->line = value;
    else if (key == KEY_FIELD) s->field = value;
    if (key == KEY_WEIGHT) {
        s->weight = strtod(value, &end);
        if (end == value || *end || !(s->weight > 0) || isinf(s->weight))
            die("%s:%d: weight: %s (a number above 0)", m->path, m->number, value);
    }
    if (key == KEY_FORMAT) {
        if (!find_format(value, &s->format))
            die("%s:%d: format: %s (auto, text, jsonl, parquet or warc)", m->path, m->number, value);
    }
    if (key == KEY_PATH || key == KEY_WEIGHT || key == KEY_FORMAT) free(value);
    return 1;
}

Sources sources_read_and(const char *path, SourcesSetting set, void *arg)
{
    Manifest m = {.path = path, .file = fopen(path, "r"), .set = set, .arg = arg};
    if (!m.file) die("%s: cannot read: %s", path, strerror(errno));
    check(ini_parse_stream(next_line, &m, read_key, &m) == 0);
    finish_source(&m);
    if (!m.list.n) die("%s: no source in it ([source.NAME], path = ...)", path);
    free(m.line);
    fclose(m.file);
    return m.list;
}

Sources sources_read(const char *path)
{
    return sources_read_and(path, NULL, NULL);
}

void sources_free(Sources *sources)
{
    for (size_t i = 0; i < sources->n; i++) {
        Source *s = &sources->source[i];
        free(s->name), free(s->path), free(s->separator), free(s->line), free(s->field);
    }
    free(sources->source);
    *sources = (Sources){0};
}

// ---- the format of a file by its name. Upper and lower case are the same.

SourceFormat sources_format(const char *name)
{
    SourceFormat format;
    if (!find_format(name, &format)) die("format: '%s': not known (auto, text, jsonl, parquet or warc)", name);
    return format;
}

static bool ends_with(const char *name, size_t n, const char *end)
{
    size_t k = strlen(end);
    return n > k && strncasecmp(name + n - k, end, k) == 0;
}

// The bytes of a name without .gz or .zst.
static size_t unpacked_name(const char *path)
{
    size_t n = strlen(path);
    return ends_with(path, n, ".gz") ? n - 3 : ends_with(path, n, ".zst") ? n - 4 : n;
}

bool sources_is_packed(const char *path)
{
    return path[unpacked_name(path)] != 0;
}

bool sources_named(const char *path, const char *endings)
{
    size_t n = unpacked_name(path);
    char end[12];
    for (int used; sscanf(endings, " %11s%n", end, &used) == 1; endings += used)
        if (ends_with(path, n, end)) return true;
    return false;
}
