// config_file: files in and out. A configuration file is a small part of TOML 1.0:
//
//     # comment
//     [section]
//     key = 1_000          integers, numbers with exponents, true and false
//     key = "text\n"       basic strings with \" \\ \b \t \n \f \r \uXXXX, or 'literal' ones
//     key = rmsnorm        beyond TOML: quotes may be left out around one word
//
// inih finds sections and keys. It takes ' ;' for a comment even inside quotes, joins indented lines and cuts
// long ones, none of which TOML does: so our reader hands it each line only up to the '=', keeps the whole
// line, and the value is taken from there. The reader also counts the lines, which Debian's inih does not.
//
// The invariant: a file is read completely or not at all. The first thing wrong ends the program with
//     error: tiny.toml:7: unknown key 'optim.lrr' (did you mean optim.lr?)
//         lrr = 3e-4
//         ^~~
// Rejected: a TOML library. The full language has dates, nested tables and arrays, which no key here takes.
#include <errno.h>
#include <glob.h>
#include <ini.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config_table.h"

typedef struct {
    Config *cfg;
    FILE *file;
    const char *path;
    ConfigSource source;
    const char *only_section;  // a preset gives its [model] alone; NULL: all sections
    char *line;                // the current line, without its end
    size_t line_size;
    int line_number;
    char section[64];
    int seen[CONFIG_MAX_KEYS]; // line on which the file sets each row; 0: not yet
} Reader;

// Shown on a terminal, a file of someone else's must not command it.
static void make_plain(char *text)
{
    for (char *c = text; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7F) *c = '?';
}

// Reports `n` characters of the current line from `at` on, and ends the program.
__attribute__((noreturn, format(printf, 4, 5)))
static void die_at(const Reader *reader, const char *at, size_t n, const char *fmt, ...)
{
    char message[1024], marks[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    size_t m = 0;
    for (const char *c = reader->line; c < at + (n ? n : 1) && m + 1 < sizeof marks; c++) {
        if (((unsigned char)*c & 0xC0) == 0x80) continue; // inside a UTF-8 character: no column of its own
        if (c < at) marks[m++] = *c == '\t' ? '\t' : ' ';
        else marks[m++] = c == at ? '^' : '~';
    }
    marks[m] = 0;
    make_plain(message);
    make_plain(reader->line);
    fflush(stdout);
    fprintf(stderr, "error: %s:%d: %s\n    %s\n    %s\n", reader->path, reader->line_number, message,
            reader->line, marks);
    exit(1);
}

static char *skip_space(char *at)
{
    while (*at == ' ' || *at == '\t') at++;
    return at;
}

// The length of text at `at` without the spaces at its end.
static size_t trimmed(const char *at, size_t n)
{
    while (n && (at[n - 1] == ' ' || at[n - 1] == '\t')) n--;
    return n;
}

// "[section]" must be one that the table knows. Checked here, because inih calls us for keys only.
static void read_section(Reader *reader, char *at)
{
    char name[64], *end = strchr(at, ']');
    if (!end) die_at(reader, at, strlen(at), "a section without its closing ]");
    char *after = skip_space(end + 1);
    if (*after && *after != '#') die_at(reader, after, strlen(after), "text after [section]");
    at = skip_space(at + 1);
    size_t n = trimmed(at, (size_t)(end - at));
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    int near_length;
    const char *near = config_table_section(name, &near_length);
    if ((size_t)near_length == n && !strncmp(near, name, n)) {
        snprintf(reader->section, sizeof reader->section, "%s", name);
        return;
    }
    die_at(reader, at, n, "unknown section [%s] (did you mean [%.*s]?)", name, near_length, near);
}

// inih's source of lines: the next line, up to its '='. read_key takes the rest from reader->line.
static char *next_line(char *out, int size, void *user)
{
    Reader *reader = user;
    errno = 0;
    ssize_t n = getline(&reader->line, &reader->line_size, reader->file);
    if (n < 0) {
        if (!feof(reader->file)) die("%s: cannot read: %s", reader->path, strerror(errno));
        return NULL;
    }
    reader->line_number++;
    bool has_nul = strlen(reader->line) != (size_t)n;
    bool has_bom = reader->line_number == 1 && n >= 3 && !memcmp(reader->line, "\xEF\xBB\xBF", 3);
    if (has_bom) memmove(reader->line, reader->line + 3, (size_t)n - 2);
    reader->line[strcspn(reader->line, "\r\n")] = 0;
    char *at = reader->line;
    if (has_nul) die_at(reader, at, 1, "a NUL byte: this is not a text file");
    at = skip_space(at);
    size_t n_key = strcspn(at, "=");
    if (!*at || *at == '#') {
        snprintf(out, (size_t)size, "\n");
    } else if (*at == '[') {
        read_section(reader, at);
        snprintf(out, (size_t)size, "[%s]\n", reader->section);
    } else if (!at[n_key]) {
        die_at(reader, at, strlen(at), "neither [section], nor key = value, nor # comment");
    } else {
        n_key = trimmed(at, n_key);
        size_t n_good = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
        if (n_good != n_key || n_key == 0) die_at(reader, at, n_key, "'%.*s' is not a key", (int)n_key, at);
        if (n_key > 60) die_at(reader, at, n_key, "unknown key '%.*s'", (int)n_key, at);
        snprintf(out, (size_t)size, "%.*s =\n", (int)n_key, at);
    }
    return out;
}

// Decodes the escape at `at` (a backslash) to out; returns the length read, *n_out the length written.
static size_t read_escape(const Reader *reader, const char *at, char *out, size_t *n_out)
{
    const char *names = "\"\\btnfr", *codes = "\"\\\b\t\n\f\r", *found = at[1] ? strchr(names, at[1]) : NULL;
    unsigned code = 0;
    *n_out = 1;
    if (found) {
        out[0] = codes[found - names];
        return 2;
    }
    if (at[1] != 'u' || strspn(at + 2, "0123456789abcdefABCDEF") < 4 || sscanf(at + 2, "%4x", &code) != 1)
        die_at(reader, at, 2, "unknown escape (known: \\\" \\\\ \\b \\t \\n \\f \\r \\uXXXX)");
    if (code == 0 || (code >= 0xD800 && code < 0xE000))
        die_at(reader, at, 6, "\\u%04X cannot stand in a string", code);
    if (code < 0x80) {
        out[0] = (char)code;
    } else if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 63));
        *n_out = 2;
    } else {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 63));
        out[2] = (char)(0x80 | (code & 63));
        *n_out = 3;
    }
    return 6;
}

// Decodes the value that starts at `at` into out (as long as the line: enough); returns its length there.
static size_t read_value(const Reader *reader, const char *at, char *out, bool *quoted)
{
    size_t n = 0, used = 0, n_out;
    *quoted = *at == '"' || *at == '\'';
    if (*at == '[' || *at == '{') die_at(reader, at, strlen(at), "arrays and tables are no values here");
    if (!*quoted) {
        used = trimmed(at, strcspn(at, "#"));
        if (!used) die_at(reader, at, 1, "no value after = (write \"\" for an empty string)");
        if (strcspn(at, " \t\"'") < used)
            die_at(reader, at, used, "a string with spaces or quotes needs \"quotes\"");
        memcpy(out, at, used);
        out[used] = 0;
        return used;
    }
    for (used = 1; at[used] != *at;) {
        if (!at[used]) die_at(reader, at, used, "the string has no closing %c", *at);
        if (*at == '"' && at[used] == '\\') {
            used += read_escape(reader, at + used, out + n, &n_out);
            n += n_out;
        } else {
            out[n++] = at[used++];
        }
    }
    out[n] = 0;
    used++;
    const char *after = at + used + strspn(at + used, " \t");
    if (*after && *after != '#')
        die_at(reader, after, strlen(after), "text after the string (\\\" is a quote inside)");
    return used;
}

// Some builds of inih pass the line number; Debian's does not.
#if INI_HANDLER_LINENO
#define LINE_NUMBER , __attribute__((unused)) int line_number
#else
#define LINE_NUMBER
#endif

// inih's handler: one key of the file.
static int read_key(void *user, const char *section, const char *name, const char *cut LINE_NUMBER)
{
    Reader *reader = user;
    (void)cut;             // the value is not here: see next_line
    if (!name) return 1;   // a build of inih may announce sections
    char full[160], where[PATH_MAX + 16], why[1024];
    bool dotted = !*section && strchr(name, '.');
    snprintf(full, sizeof full, "%s%s%s", section, *section ? "." : "", name);
    const char *at = skip_space(reader->line);
    size_t n_key = strlen(name);
    if (!*section && !dotted) die_at(reader, at, n_key, "key '%s' before any [section]", name);
    if (reader->only_section && strncmp(full, reader->only_section, strlen(reader->only_section))) return 1;

    int n_keys, row = config_table_find(full), near = config_table_nearest(full);
    const ConfigKey *table = config_table(&n_keys);
    if (row < 0 && near >= 0)
        die_at(reader, at, n_key, "unknown key '%s' (did you mean %s?)", full, table[near].name);
    if (row < 0) die_at(reader, at, n_key, "unknown key '%s' (--help lists the keys)", full);
    if (reader->seen[row]) die_at(reader, at, n_key, "%s is already set on line %d", full, reader->seen[row]);
    if (reader->only_section && !strcmp(full, "model.preset"))
        die_at(reader, at, n_key, "a preset cannot build on another preset");
    reader->seen[row] = reader->line_number;

    char *start = skip_space(strchr(reader->line, '=') + 1), *value = malloc(strlen(start) + 1);
    if (!value) die("%s: out of memory", reader->path);
    bool quoted;
    size_t n_value = read_value(reader, start, value, &quoted);
    snprintf(where, sizeof where, "%s:%d", reader->path, reader->line_number);
    if (!config_table_set(reader->cfg, row, value, quoted, reader->source, where, why, sizeof why))
        die_at(reader, start, n_value, "%s", why);
    free(value);
    return 1;
}

static void read_file(Config *cfg, const char *path, ConfigSource source, const char *only_section)
{
    Reader reader = {.cfg = cfg, .path = path, .source = source, .only_section = only_section};
    reader.file = fopen(path, "r");
    if (!reader.file) die("%s: cannot read: %s", path, strerror(errno));
    check(ini_parse_stream(next_line, &reader, read_key, &reader) == 0);
    free(reader.line);
    fclose(reader.file);
}

// ---- presets

// The i-th directory that may hold presets: in the current directory, then above the program. False: no more.
static bool preset_dir(int i, char *dir, size_t size)
{
    const char *above[] = {"..", "../..", "../../.."}; // of build/train, build/test/..., build/asan/test/...
    char program[PATH_MAX];
    if (i == 0) return snprintf(dir, size, "scripts/presets") > 0;
    if (i > 3) return false;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0) return false; // not Linux: presets are found from the repository root only
    program[n] = 0;
    char *slash = strrchr(program, '/');
    *slash = 0;
    return snprintf(dir, size, "%s/%s/scripts/presets", program, above[i - 1]) < (int)size;
}

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

// The path of a preset given as "tiny", "tiny.toml" or "presets/tiny.toml"; false when there is none.
static bool find_preset(const char *given, char *path, size_t size)
{
    char name[PATH_MAX], dir[PATH_MAX];
    if (!strncmp(given, "presets/", 8)) given += 8;
    size_t n = strlen(given);
    if (n > 5 && !strcmp(given + n - 5, ".toml")) n -= 5;
    if (!n || memchr(given, '/', n) || n > 200) return false;
    snprintf(name, sizeof name, "%.*s.toml", (int)n, given);
    for (int i = 0; preset_dir(i, dir, sizeof dir); i++)
        if (snprintf(path, size, "%s/%s", dir, name) < (int)size && is_file(path)) return true;
    return false;
}

void config_table_list_presets(char *out, size_t size)
{
    char pattern[PATH_MAX + 16], dir[PATH_MAX];
    size_t n = 0;
    *out = 0;
    for (int i = 0; !n && preset_dir(i, dir, sizeof dir); i++) {
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/*.toml", dir);
        if (glob(pattern, 0, NULL, &found)) continue;
        for (size_t k = 0; k < found.gl_pathc && n + 64 < size; k++) {
            const char *name = strrchr(found.gl_pathv[k], '/') + 1;
            n += (size_t)snprintf(out + n, size - n, "%s%.*s", k ? ", " : "", (int)strlen(name) - 5, name);
        }
        globfree(&found);
    }
    if (!n) snprintf(out, size, "none found");
}

void config_load_file(Config *cfg, const char *path)
{
    char preset[PATH_MAX], all[2048];
    if (is_file(path)) {
        read_file(cfg, path, CONFIG_FILE, NULL);
    } else if (find_preset(path, preset, sizeof preset)) {
        read_file(cfg, preset, CONFIG_FILE, NULL);
    } else {
        config_table_list_presets(all, sizeof all);
        die("%s: no such file, and no preset of that name (presets: %s)", path, all);
    }
}

void config_table_load_preset(Config *cfg, const char *name)
{
    char path[PATH_MAX], all[2048];
    const char *where = cfg->origin[config_table_find("model.preset")].where;
    config_table_list_presets(all, sizeof all);
    if (!find_preset(name, path, sizeof path))
        die("%s: model.preset: no preset '%s' (presets: %s)", where, name, all);
    read_file(cfg, path, CONFIG_PRESET, "model.");
}

// ---- writing

static void write_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\') fprintf(out, "\\%c", byte);
        else if (byte < 0x20 || byte == 0x7F) fprintf(out, "\\u%04X", byte);
        else fputc(byte, out);
    }
    fputc('"', out);
}

// One "key = value  # where it came from" line; a comment when the value has no effect or cannot be set.
static void write_key(FILE *out, const Config *cfg, const ConfigKey *key, const ConfigOrigin *origin)
{
    char value[CONFIG_TEXT];
    int needed;
    bool is_preset = !strcmp(key->name, "model.preset"); // its values follow: the file depends on no other
    bool effect = config_table_has_effect(key, cfg, &needed);
    config_table_format(key, cfg, value, sizeof value);
    fprintf(out, "%s%s = ", !effect || !key->def || is_preset ? "# " : "", strchr(key->name, '.') + 1);
    if (key->type == CONFIG_STRING || key->type == CONFIG_CHOICE) write_string(out, value);
    else fprintf(out, "%s", value);
    if (!effect) fprintf(out, "  # no effect: needs %s", key->needs);
    else if (*origin->where) fprintf(out, "  # %s", origin->where);
    fputc('\n', out);
}

void config_write(const Config *cfg, const char *path)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    FILE *out = fopen(path, "w");
    if (!out) die("%s: cannot write: %s", path, strerror(errno));
    fprintf(out, "# All settings of this run, resolved; behind a value, where it came from.\n");
    for (int i = 0; i < n_keys; i++) {
        int n = (int)strcspn(table[i].name, ".");
        if (i == 0 || strncmp(table[i].name, table[i - 1].name, (size_t)n + 1))
            fprintf(out, "\n[%.*s]\n", n, table[i].name);
        write_key(out, cfg, &table[i], &cfg->origin[i]);
    }
    bool failed = ferror(out);
    if (fclose(out) || failed) die("%s: cannot write: %s (is the disk full?)", path, strerror(errno));
}
