// config: from defaults, preset, file and command line to settings that fit together. See config.h.
//
// Each key remembers who set it (ConfigOrigin), and that decides everything here:
//     default < preset < file < command line    a later source overrides an earlier one, in any order
//     derived                                   computed by config_resolve or by the program, from other keys
// The invariant after config_resolve: every value is in its range, the sizes divide, and each key that a person set
// has an effect on this run. A setting that changes nothing is refused: a person who sets model.rope_theta with learned
// positions is mistaken about the run. The one exception: the command line may switch off what a file's key depends on
// (`tiny-llama --model.position=learned`).
//
// Rejected: rounding a batch that does not divide, or clamping a value to its range (a run with other settings than
// those asked for is worse than no run); a TOML library (the full language has dates, nested tables and arrays, which
// no key here takes).
#include "base/config.h"

#include <errno.h>
#include <glob.h>
#include <ini.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/words.h"

void config_defaults(Config *cfg)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    char why[512];
    memset(cfg, 0, sizeof *cfg);
    for (int i = 0; i < n_keys; i++)
        if (table[i].def) check(config_table_parse(&table[i], cfg, table[i].def, false, why, sizeof why));
}

// The row of a key that the code names. A missing row is a bug.
static int row_of(const char *section_key)
{
    int row = config_table_find(section_key);
    if (row < 0) die("config: no key '%s' in the table (a bug of the program)", section_key);
    return row;
}

static void set_origin(Config *cfg, int row, ConfigSource source, const char *where)
{
    ConfigOrigin *origin = &cfg->origin[row];
    size_t length = strlen(where), room = sizeof origin->where - 1;
    origin->source = source;
    if (length <= room) snprintf(origin->where, sizeof origin->where, "%s", where);
    else snprintf(origin->where, sizeof origin->where, "...%s", where + length - (room - 3)); // its end
    for (char *c = origin->where; *c; c++)
        if ((unsigned char)*c < 0x20) *c = '?'; // stands in a comment of config.toml: one line
}

// Parses text into the row's member, unless a stronger source has set it, and notes the origin. False with the reason
// in why when the value is not allowed.
static bool set_row(Config *cfg, int row, const char *text, bool quoted, ConfigSource source, const char *where,
                    char *why, size_t why_size)
{
    Config parsed = *cfg;
    if (!config_table_parse(&config_table(NULL)[row], &parsed, text, quoted, why, why_size)) return false;
    ConfigSource held = cfg->origin[row].source;
    bool weaker = held == CONFIG_DERIVED ? source == CONFIG_PRESET : source < held;
    if (weaker) return true; // a good value, and overridden
    *cfg = parsed;
    set_origin(cfg, row, source, where);
    return true;
}

void config_set(Config *cfg, const char *section_key, const char *value, const char *where)
{
    int row = config_table_find(section_key), near = row < 0 ? config_table_nearest(section_key) : -1;
    char why[1024];
    const ConfigGone *gone = config_table_gone(section_key);
    if (gone) die("%s: '%s' is gone (%s)", where, section_key, *gone->now ? gone->now : "monitor.rules");
    if (row < 0 && near >= 0)
        die("%s: unknown key '%s' (did you mean %s?)", where, section_key, config_table(NULL)[near].name);
    if (row < 0) die("%s: unknown key '%s' (--help lists the keys)", where, section_key);
    if (!set_row(cfg, row, value, false, CONFIG_COMMAND_LINE, where, why, sizeof why))
        die("%s: %s", where, why);
}

void config_set_derived(Config *cfg, const char *section_key, long value)
{
    int row = row_of(section_key);
    const ConfigKey *key = &config_table(NULL)[row];
    check(key->type == CONFIG_INTEGER);
    memcpy((char *)cfg + key->offset, &value, sizeof value);
    set_origin(cfg, row, CONFIG_DERIVED, "derived");
}

bool config_is_set(const Config *cfg, const char *section_key)
{
    ConfigSource source = cfg->origin[row_of(section_key)].source;
    return source != CONFIG_DEFAULT && source != CONFIG_DERIVED;
}

// ---- files
//
// A file is a small part of TOML 1.0, read completely or not at all:
//     # comment
//     [section]
//     key = 1_000          integers, numbers with exponents, true and false
//     key = "text\n"       basic strings with \" \\ \b \t \n \f \r \uXXXX, or 'literal' ones
//     key = rmsnorm        beyond TOML: quotes may be left out around one word
// The first thing wrong ends the program with
//     error: tiny.toml:7: unknown key 'optim.lrr' (did you mean optim.lr?)
//         lrr = 3e-4
//         ^~~
// The library inih finds sections and keys. It takes ' ;' for a comment even inside quotes, joins indented lines and
// cuts long ones, none of which TOML does. So the reader here hands it each line only up to the '=', and takes the
// value from the whole line. The reader also counts the lines, which Debian's inih does not.

typedef struct {
    Config *cfg;
    FILE *file;
    const char *path;
    bool saved;                // a checkpoint's text: what it says was true when it was written
    ConfigSource source;
    const char *only_section;  // a preset gives its [model] alone; NULL: all sections
    char *line;                // the current line, without its end
    size_t line_size;
    int line_number;
    char section[64];
    int seen[CONFIG_MAX_KEYS]; // line on which the file sets each row; 0: not yet
} Reader;

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
    check_clean(message);
    check_clean(reader->line);
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
    char *at = reader->line, *end = at + strcspn(at, "\r\n");
    if (end[0] == '\r' && end[1] && end[1] != '\n')
        die_at(reader, at, (size_t)(end - at), "a carriage return inside of a line (save the file with lines that end in "
               "LF)");
    *end = 0;
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

// Whether the line sets what is no setting any more, to no effect; dies where it had one.
static bool passed_over(Reader *reader, const char *name)
{
    const ConfigGone *gone = config_table_gone(name);
    if (!gone || reader->saved || !gone->off) return gone;
    char *start = skip_space(strchr(reader->line, '=') + 1), *value = malloc(strlen(start) + 1);
    if (!value) die("%s: out of memory", reader->path);
    bool quoted;
    size_t n_value = read_value(reader, start, value, &quoted);
    if (strcmp(value, gone->off)) die_at(reader, start, n_value, "'%s' is gone (%s)", name, gone->now);
    free(value);
    return true;
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

    int row = config_table_find(full), near = row < 0 ? config_table_nearest(full) : -1;
    if (row < 0 && passed_over(reader, full)) return 1;
    if (row < 0 && near >= 0)
        die_at(reader, at, n_key, "unknown key '%s' (did you mean %s?)", full, config_table(NULL)[near].name);
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
    if (!set_row(reader->cfg, row, value, quoted, reader->source, where, why, sizeof why))
        die_at(reader, start, n_value, "%s", why);
    free(value);
    return 1;
}

// Reads and closes a file, which is called `path` in messages.
static void read_stream(Config *cfg, FILE *file, const char *path, ConfigSource source, const char *only_section,
                        bool saved)
{
    Reader reader = {.cfg = cfg, .path = path, .saved = saved, .file = file, .source = source,
                     .only_section = only_section};
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

void config_list_presets(char *out, size_t size)
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

// The preset of the list whose name is nearest to `given`; false where none is near.
static bool near_preset(const char *given, const char *list, char near[64])
{
    int least = (int)strlen(given) / 2 + 1;
    *near = 0;
    for (size_t n; *list; list += n, list += strspn(list, ", ")) {
        char name[64];
        n = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, list);
        int distance = words_distance(given, name, least);
        if (distance < least) least = distance, snprintf(near, 64, "%s", name);
    }
    return *near;
}

void config_load_text(Config *cfg, const char *text, const char *name)
{
    read_stream(cfg, fmemopen((char *)(uintptr_t)text, strlen(text), "r"), name, CONFIG_FILE, NULL, true);
}

void config_load_file(Config *cfg, const char *path)
{
    char preset[PATH_MAX], all[2048];
    if (is_file(path)) {
        read_stream(cfg, fopen(path, "r"), path, CONFIG_FILE, NULL, false);
    } else if (find_preset(path, preset, sizeof preset)) {
        read_stream(cfg, fopen(preset, "r"), preset, CONFIG_FILE, NULL, false);
    } else {
        config_list_presets(all, sizeof all);
        char near[64];
        if (near_preset(path, all, near))
            die("%s: no such file, and no preset of that name (did you mean %s?)", path, near);
        die("%s: no such file, and no preset of that name (presets: %s)", path, all);
    }
}

static void load_preset(Config *cfg, const char *name)
{
    char path[PATH_MAX], all[2048];
    const char *where = cfg->origin[config_table_find("model.preset")].where;
    config_list_presets(all, sizeof all);
    if (!find_preset(name, path, sizeof path))
        die("%s: model.preset: no preset '%s' (presets: %s)", where, name, all);
    read_stream(cfg, fopen(path, "r"), path, CONFIG_PRESET, "model.", false);
}

// ---- the command line

// "--section.key=value" without the dashes, split at the first '='.
static void set_from_argument(Config *cfg, const char *argument)
{
    char name[128];
    const char *equals = strchr(argument, '=');
    if (!equals) die_usage("%s: no value (write %s=VALUE)", argument, argument);
    snprintf(name, sizeof name, "%.*s", (int)(equals - argument - 2), argument + 2);
    config_set(cfg, name, equals + 1, "command line");
}

void config_parse(Config *cfg, int argc, char **argv)
{
    const char *program = argc > 0 ? argv[0] : "train", *file = NULL;
    config_help(argc, argv);
    for (int i = 1; i < argc; i++) {
        bool option = argv[i][0] == '-';
        if (option && strncmp(argv[i], "--", 2))
            die_usage("%s: unknown option (write --section.key=value; --help lists the keys)", argv[i]);
        bool after = !option && i > 1 && !strncmp(argv[i - 1], "--", 2) && !strchr(argv[i - 1], '=');
        if (after) die_usage("%s %s: a value is joined with = (write %s=%s)", argv[i - 1], argv[i], argv[i - 1], argv[i]);
        if (!option && strchr(argv[i], '=') && !is_file(argv[i])) {
            char name[64];
            int n = (int)strcspn(argv[i], "="), near;
            snprintf(name, sizeof name, "%.*s", n, argv[i]);
            near = config_table_find(name) >= 0 ? config_table_find(name) : config_table_nearest(name);
            die_usage("%s: no file; a setting begins with two dashes (write --%s%s)", argv[i],
                      near < 0 ? "SECTION.KEY" : config_table(NULL)[near].name, argv[i] + n);
        }
        if (!option && file)
            die_usage("%s: a second file after %s (one FILE.toml, then --section.key=value)", argv[i], file);
        if (!option) file = argv[i];
    }
    if (argc < 2) {
        fprintf(stderr, "usage: %s [FILE.toml or preset] [--section.key=value ...]   (%s --help: the keys)\n",
                program, program);
        exit(2);
    }
    if (file) config_load_file(cfg, file);
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--", 2)) set_from_argument(cfg, argv[i]);
}

// ---- resolve
//
// Derived sizes, in the symbols of the glossary:
//     G = H      D = C / H      F = 4C (gelu, relu2) or 8C/3 rounded up to a multiple of 64 (swiglu)    unless set
//     accum = batch.tokens / (dp * micro * context)
// With F = 8C/3 swiglu's three matrices have as many parameters as gelu's two with F = 4C (Shazeer, arXiv 2002.05202).

// Where a key was set, for messages: "tiny.toml:7". Of several ("batch.tokens batch.micro"), where the one was that the
// user set last: on the command line rather than in a file, there rather than in a preset.
static const char *where(const Config *cfg, const char *keys)
{
    const char *best = "";
    int best_source = -1;
    for (size_t n; *keys; keys += n + (keys[n] == ' ')) {
        char key[64];
        n = strcspn(keys, " ");
        snprintf(key, sizeof key, "%.*s", (int)n, keys);
        const ConfigOrigin *origin = &cfg->origin[row_of(key)];
        int source = origin->source == CONFIG_DERIVED ? CONFIG_DEFAULT : (int)origin->source;
        if (source > best_source) best = origin->where, best_source = source;
    }
    return *best ? best : "config";
}

// The unmet condition of key `row`, such as "numerics.dtype=fp8". It may be the condition of a key that `row` depends
// on.
static const char *unmet_need(int row, int needed)
{
    const ConfigKey *table = config_table(NULL);
    size_t n = strlen(table[needed].name);
    while (strncmp(table[row].needs, table[needed].name, n) || !strchr("=>", table[row].needs[n])) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(table[row].needs, "=>"), table[row].needs);
        row = row_of(name);
    }
    return table[row].needs;
}

static void refuse_keys_without_effect(const Config *cfg)
{
    int n_keys, needed = -1;
    const ConfigKey *table = config_table(&n_keys);
    for (int i = 0; i < n_keys; i++) {
        if (!config_is_set(cfg, table[i].name) || config_table_has_effect(&table[i], cfg, &needed)) continue;
        ConfigSource mine = cfg->origin[i].source, its = cfg->origin[needed].source;
        if (mine < its || mine == CONFIG_PRESET) continue;
        char value[CONFIG_TEXT];
        config_table_format(&table[needed], cfg, value, sizeof value);
        die("%s: %s has no effect when %s is %s (it needs %s)", cfg->origin[i].where, table[i].name,
            table[needed].name, value, unmet_need(i, needed));
    }
}

// Fills *member when it was not set (0), or when an earlier call of config_resolve derived it.
static void derive(Config *cfg, const char *section_key, long *member, long value)
{
    if (*member && cfg->origin[row_of(section_key)].source != CONFIG_DERIVED) return;
    config_set_derived(cfg, section_key, value);
    check(*member == value);
}

static void derive_number(Config *cfg, const char *section_key, double *member, double value)
{
    int row = row_of(section_key);
    if (*member != 0 && cfg->origin[row].source != CONFIG_DERIVED) return;
    *member = value;
    set_origin(cfg, row, CONFIG_DERIVED, "derived");
}

static void resolve_rope(Config *cfg)
{
    int kind = cfg->model.rope_scaling;
    if (cfg->model.position != CONFIG_POSITION_ROPE || kind == ROPE_NONE) return;
    int row = row_of("model.rope_original");
    bool derived = cfg->origin[row].source == CONFIG_DERIVED; // by an earlier call
    double factor = cfg->model.rope_factor, original = derived ? 0 : (double)cfg->model.rope_original;
    if (factor == 0 && original == 0)
        die("%s: model.rope_scaling needs model.rope_original, the context of training, or model.rope_factor (such as "
            "--model.rope_factor=4)", where(cfg, "model.rope_scaling"));
    if (factor != 0 && factor < 1)
        die("%s: model.rope_factor %g is below 1 (contexts are made longer, not shorter)",
            where(cfg, "model.rope_factor"), factor);
    if (factor == 0 && original > (double)cfg->model.context)
        die("%s: model.rope_original %ld is longer than model.context %ld (nothing is to be stretched; leave "
            "model.rope_scaling out)", where(cfg, "model.rope_original"), cfg->model.rope_original, cfg->model.context);
    double context = (double)cfg->model.context;
    if (original > 0) derive_number(cfg, "model.rope_factor", &cfg->model.rope_factor, context / original);
    else derive(cfg, "model.rope_original", &cfg->model.rope_original, lround(context / factor));
    if (cfg->model.rope_original == 0)
        die("%s: model.rope_factor %g leaves nothing of model.context %ld", where(cfg, "model.rope_factor"), factor,
            cfg->model.context);
    if (kind != ROPE_YARN && kind != ROPE_LLAMA3) return;
    derive_number(cfg, "model.rope_fast", &cfg->model.rope_fast, kind == ROPE_YARN ? 32 : 4);
    if (!(cfg->model.rope_slow < cfg->model.rope_fast))
        die("%s: model.rope_slow %g is not less than model.rope_fast %g", where(cfg, "model.rope_slow"),
            cfg->model.rope_slow, cfg->model.rope_fast);
}

static void check_windows(const Config *cfg)
{
    const char *pattern = cfg->model.window_pattern;
    if (!cfg->model.window) return;
    if (!*pattern || pattern[strspn(pattern, "sf")])
        die("%s: model.window_pattern '%s' is not made of the letters s (sliding) and f (full), such as ssf",
            where(cfg, "model.window_pattern"), pattern);
    if (!memchr(pattern, 's', strnlen(pattern, (size_t)cfg->model.layers)))
        die("%s: model.window_pattern '%s' gives none of the %ld layers a window (set model.window=0)",
            where(cfg, "model.window_pattern"), pattern, cfg->model.layers);
}

static void resolve_model(Config *cfg)
{
    derive(cfg, "model.kv_heads", &cfg->model.kv_heads, cfg->model.heads);
    long C = cfg->model.channels, H = cfg->model.heads, G = cfg->model.kv_heads;
    if (H % G)
        die("%s: model.heads %ld is not a multiple of model.kv_heads %ld", where(cfg, "model.kv_heads model.heads"),
            H, G);
    bool derived_size = !cfg->model.head_size || !config_is_set(cfg, "model.head_size");
    if (derived_size && C % H)
        die("%s: model.channels %ld is not a multiple of model.heads %ld (or set model.head_size)",
            where(cfg, "model.heads model.channels"), C, H);
    derive(cfg, "model.head_size", &cfg->model.head_size, C / H);
    if (cfg->model.position == CONFIG_POSITION_ROPE && cfg->model.head_size % 2)
        die("%s: model.head_size %ld is odd, but model.position=rope turns pairs of elements (make it even)",
            where(cfg, "model.head_size"), cfg->model.head_size);
    resolve_rope(cfg);
    check_windows(cfg);
    long F = 4 * C;
    if (cfg->model.activation == ACT_SWIGLU) F = ((8 * C + 2) / 3 + 63) / 64 * 64;
    derive(cfg, "model.ffn", &cfg->model.ffn, F);
}

static void resolve_experts(Config *cfg)
{
    long E = cfg->model.experts, k = cfg->model.experts_active, groups = cfg->model.experts_groups;
    if (!E) return;
    if (cfg->model.activation != ACT_SWIGLU)
        die("%s: model.experts: experts are SwiGLU networks without biases (try --model.activation=swiglu)",
            where(cfg, "model.experts"));
    if (k > E)
        die("%s: model.experts_active %ld of model.experts %ld", where(cfg, "model.experts_active model.experts"), k, E);
    if (cfg->model.experts_dense + cfg->model.experts_every > cfg->model.layers)
        die("%s: no layer has experts: the first would be number %ld, and model.layers is %ld",
            where(cfg, "model.experts"), cfg->model.experts_dense + cfg->model.experts_every, cfg->model.layers);
    if (groups && E % groups)
        die("%s: model.experts %ld is not a multiple of model.experts_groups %ld", where(cfg, "model.experts_groups"),
            E, groups);
    long best = cfg->model.experts_groups_active;
    if (groups && (best > groups || best * (E / groups) < k))
        die("%s: model.experts_groups_active %ld of %ld groups have %ld experts; a token uses %ld",
            where(cfg, "model.experts_groups_active"), best, groups, best * (E / groups), k);
    derive(cfg, "model.experts_ffn", &cfg->model.experts_ffn, cfg->model.ffn);
    if (cfg->optim.mup_base)
        die("%s: optim.mup_base: its table has no row for experts and their router (try 0)",
            where(cfg, "optim.mup_base"));
}

// Hybrid sharding. Experts are cut among shard / ep ranks.
static void check_shard(const Config *cfg, long replicas)
{
    long shard = cfg->parallel.shard, ep = cfg->parallel.ep;
    if (!shard) return;
    if (shard == 1 || replicas % shard)
        die("%s: parallel.shard = %ld%s parallel.dp * cp = %ld ranks (try %s)", where(cfg, "parallel.shard"), shard,
            shard == 1 ? " cuts nothing of" : " does not divide", replicas,
            shard == 1 ? "--parallel.zero=0, where each rank has everything" : "0, for all of them");
    if (shard % ep)
        die("%s: parallel.ep = %ld does not divide parallel.shard = %ld, the ranks that have everything once (try %ld)",
            where(cfg, "parallel.shard"), ep, shard, ep);
}

// Data-parallel ranks: dp = ranks / (tp * cp * pp).
static void resolve_mesh(Config *cfg)
{
    if (!cfg->parallel.ranks) config_set_derived(cfg, "parallel.ranks", 1);
    long tp = cfg->parallel.tp, cp = cfg->parallel.cp, pp = cfg->parallel.pp, copy = tp * cp * pp;
    if (cfg->parallel.ranks % copy) {
        const char *key = tp > 1 ? "parallel.tp" : cp > 1 ? "parallel.cp" : "parallel.pp";
        die("%s: parallel.tp %ld * cp %ld * pp %ld = %ld ranks hold one copy of the model, but the job has %ld (start "
            "a multiple: mpiexec -n %ld)", where(cfg, key), tp, cp, pp, copy, cfg->parallel.ranks,
            (cfg->parallel.ranks / copy + 1) * copy);
    }
    config_set_derived(cfg, "parallel.dp", cfg->parallel.ranks / copy);
    long ep = cfg->parallel.ep, replicas = cfg->parallel.ranks / copy * cp;
    if (cfg->model.experts % ep || (ep > 1 && !cfg->model.experts))
        die("%s: parallel.ep = %ld does not divide model.experts = %ld", where(cfg, "parallel.ep"), ep,
            cfg->model.experts);
    if (replicas % ep)
        die("%s: parallel.ep = %ld does not divide parallel.dp * cp = %ld ranks, which have other tokens each (start a "
            "multiple of %ld ranks)", where(cfg, "parallel.ep"), ep, replicas, ep * (copy / cp));
    check_shard(cfg, replicas);
}

long config_micro_grain(const Config *cfg)
{
    return cfg->parallel.pp > 1 && cfg->parallel.schedule == PIPELINE_INTERLEAVED ? cfg->parallel.pp : 1;
}

// Whether the sizes of a growing batch are whole micro-batches of all ranks.
static bool fits_ramp(const Config *cfg, long micro)
{
    long grain = micro * cfg->parallel.dp * cfg->model.context * config_micro_grain(cfg);
    return !cfg->batch.ramp_tokens || (cfg->batch.tokens % grain == 0 && cfg->batch.ramp_from % grain == 0 &&
                                       cfg->batch.ramp_by % grain == 0);
}

// batch.micro of a file may be larger than a rank's share of the batch. It is then lowered, so that the share is one
// micro-batch, or one for each stage of a pipeline; and to what divides the sizes of a growing batch. Results change by
// rounding only. A value from the command line is never changed.
static void fit_micro(Config *cfg)
{
    long share = cfg->batch.tokens / cfg->model.context / cfg->parallel.dp, pp = cfg->parallel.pp;
    long micro = cfg->batch.micro;
    bool meant = cfg->origin[row_of("batch.micro")].source == CONFIG_COMMAND_LINE;
    if (cfg->parallel.ranks == 1 || meant || !share) return;
    if (share % pp == 0) share /= pp;
    if (micro > share) micro = share;
    while (micro > 1 && !fits_ramp(cfg, micro)) micro--;
    if (fits_ramp(cfg, micro) && micro < cfg->batch.micro) config_set_derived(cfg, "batch.micro", micro);
}

static void resolve_batch(Config *cfg)
{
    char ranks[48] = "";
    if (cfg->batch.ramp_from) derive(cfg, "batch.ramp_by", &cfg->batch.ramp_by, cfg->batch.ramp_from);
    fit_micro(cfg);
    if (cfg->parallel.dp > 1) snprintf(ranks, sizeof ranks, "%ld ranks * ", cfg->parallel.dp);
    long micro_tokens = cfg->parallel.dp * cfg->batch.micro * cfg->model.context;
    if (cfg->batch.tokens % micro_tokens) {
        long below = cfg->batch.tokens / micro_tokens * micro_tokens, above = below + micro_tokens;
        die("%s: batch.tokens %ld is not a multiple of %sbatch.micro %ld * model.context %ld = %ld "
            "(nearest: %ld)", where(cfg, "batch.tokens batch.micro model.context"), cfg->batch.tokens, ranks,
            cfg->batch.micro, cfg->model.context, micro_tokens,
            below && cfg->batch.tokens - below < above - cfg->batch.tokens ? below : above);
    }
    derive(cfg, "batch.accum", &cfg->batch.accum, cfg->batch.tokens / micro_tokens);
    if (cfg->run.steps > CONFIG_LARGEST / cfg->batch.tokens)
        die("%s: run.steps %ld * batch.tokens %ld: more than 2^53 tokens", where(cfg, "run.steps"), cfg->run.steps,
            cfg->batch.tokens);
}

static bool updates_on_host(const Config *cfg)
{
    return cfg->memory.offload == OFFLOAD_CPU && cfg->memory.offload_update == OFFLOAD_CPU;
}

// Refuses settings that read weights which memory.offload keeps outside the device's memory.
static void refuse_offloaded(const Config *cfg)
{
    if (cfg->memory.offload == OFFLOAD_NONE || !cfg->run.norms_every) return;
    bool shards = cfg->parallel.zero == 3 && cfg->parallel.dp * cfg->parallel.cp > 1;
    if (shards || !config_stores_fp32(cfg) || updates_on_host(cfg))
        die("%s: run.norms_every: reads the fp32 weights, which memory.offload sends away in stage 3 of ZeRO, "
            "beside 16-bit ones and with memory.offload_update=cpu (try --memory.offload=none)",
            where(cfg, "run.norms_every"));
}

// On the host an update goes from element to element: a product of matrices would take the CPU longer than the step.
static void refuse_updates_on_host(const Config *cfg)
{
    OptimName name = cfg->optim.name;
    char text[CONFIG_TEXT];
    bool alone = name == OPTIM_ADAMW || name == OPTIM_ADAM || name == OPTIM_SGD || name == OPTIM_MOMENTUM ||
                 name == OPTIM_LION;
    if (!updates_on_host(cfg) || (alone && cfg->optim.agc <= 0)) return;
    config_table_format(&config_table(NULL)[row_of("optim.name")], cfg, text, sizeof text);
    die("%s: memory.offload_update=cpu updates each element by itself, as adamw, adam, sgd, momentum and lion do; %s "
        "needs others too (try --memory.offload_update=none)", where(cfg, "memory.offload_update"),
        alone ? "optim.agc" : text);
}

// Refuses an fp32 lookup where no bit could differ, or where the fp32 weights are elsewhere.
static void refuse_embedding(const Config *cfg)
{
    if (cfg->numerics.embed_dtype == CONFIG_EMBED_STORAGE || config_stores_fp32(cfg)) return;
    if (cfg->model.position == CONFIG_POSITION_ROPE)
        die("%s: numerics.embed_dtype=fp32: without learned positions a row is rounded once in either case, and every "
            "bit would stay the same (leave it out)", where(cfg, "numerics.embed_dtype"));
    if (cfg->memory.offload != OFFLOAD_NONE)
        die("%s: numerics.embed_dtype=fp32: reads the fp32 weights, which memory.offload sends away (try "
            "--memory.offload=none)", where(cfg, "numerics.embed_dtype"));
}

static void refuse_compressed_and_offloaded(const Config *cfg)
{
    if (cfg->memory.offload_acts != OFFLOAD_NONE && cfg->memory.compress != CONFIG_COMPRESS_NONE)
        die("%s: memory.offload_acts=cpu with memory.compress=int8: the copies that wait are in one place and one form (try "
            "--memory.compress=none)", where(cfg, "memory.offload_acts"));
}

static long power_below(long n)
{
    long power = 1;
    while (power <= n / 2) power *= 2;
    return power;
}

// In deterministic mode what a rank adds is one subtree of the sum over all sequences (doc/deterministic.md).
static void refuse_no_powers_of_two(const Config *cfg)
{
    const long dp = cfg->parallel.dp, T = cfg->model.context, full = cfg->batch.tokens / T / dp;
    const struct { const char *key; long n; } axes[] = {
        {"parallel.tp", cfg->parallel.tp}, {"parallel.cp", cfg->parallel.cp}, {"parallel.pp", cfg->parallel.pp},
        {"parallel.ep", cfg->parallel.ep}, {"parallel.shard", cfg->parallel.shard}, {"parallel.dp", dp}};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        long n = axes[i].n, best = power_below(n);
        char instead[60];
        snprintf(instead, sizeof instead, "--%s=%ld", axes[i].key, best);
        if (!strcmp(axes[i].key, "parallel.dp"))
            snprintf(instead, sizeof instead, "mpiexec -n %ld", cfg->parallel.ranks / dp * best);
        if (n & (n - 1))
            die("%s: numerics.deterministic with %s = %ld, which is no power of two (try %s)",
                where(cfg, axes[i].key), axes[i].key, n, instead);
    }
    if (cfg->parallel.tp > 1 && !config_stores_fp32(cfg))
        die("%s: numerics.deterministic with parallel.tp = %ld and a numerics.dtype of 16 bits: what its ranks send each "
            "other is rounded, so bits depend on how many there are (try --parallel.tp=1)", where(cfg, "parallel.tp"),
            cfg->parallel.tp);
    if (cfg->parallel.tp > cfg->model.kv_heads)
        die("%s: numerics.deterministic with parallel.tp = %ld and model.kv_heads = %ld: ranks that share a head add "
            "their own queries first, so bits depend on how many there are (try --parallel.tp=%ld)",
            where(cfg, "parallel.tp"), cfg->parallel.tp, cfg->model.kv_heads, power_below(cfg->model.kv_heads));
    if (dp == 1) return;
    if (full & (full - 1))
        die("%s: numerics.deterministic with batch.tokens = %ld, of which each of parallel.dp = %ld ranks has %ld "
            "sequences, no power of two (try --batch.tokens=%ld --batch.micro=%ld)", where(cfg, "batch.tokens"),
            cfg->batch.tokens, dp, full, power_below(full) * dp * T, power_below(cfg->batch.micro));
    long n = cfg->batch.ramp_tokens ? cfg->batch.ramp_from / T / dp : 0, by = cfg->batch.ramp_by / T / dp;
    for (; n && by && n < full; n += by)
        if (n & (n - 1))
            die("%s: numerics.deterministic with batch.ramp_from = %ld: the batch grows by batch.ramp_by = %ld, and each "
                "of parallel.dp = %ld ranks will have %ld sequences, no power of two (try --batch.ramp_from=%ld and no "
                "ramp_by)", where(cfg, "batch.ramp_from"), cfg->batch.ramp_from, cfg->batch.ramp_by, dp, n, cfg->batch.tokens / 2);
}

// What deterministic mode does not hold for.
static void refuse_deterministic(const Config *cfg)
{
    if (!cfg->numerics.deterministic) return;
    if (cfg->numerics.dtype == CONFIG_DTYPE_FP8)
        die("%s: numerics.deterministic with numerics.dtype=fp8: a scale is of the rows that are cast at once, so bits "
            "depend on batch.micro (try --numerics.dtype=bf16, or without numerics.deterministic)",
            where(cfg, "numerics.deterministic numerics.dtype"));
    if (cfg->parallel.ranks == 1) return;
    refuse_no_powers_of_two(cfg);
    if (cfg->parallel.reduce_dtype == CONFIG_REDUCE_STORAGE)
        die("%s: parallel.reduce_dtype=storage rounds each rank's sum, so bits depend on how many there are; not with "
            "numerics.deterministic (try fp32)", where(cfg, "parallel.reduce_dtype"));
}

// Refuses settings that do not work when tp, cp or pp divides the model or the sequence.
static void refuse_in_parts(const Config *cfg)
{
    long tp = cfg->parallel.tp, pp = cfg->parallel.pp, cp = cfg->parallel.cp;
    if (cfg->model.qk_norm == QK_NORM_WHOLE && tp > 1)
        die("%s: model.qk_norm = whole with parallel.tp = %ld: its mean of squares is over all heads, and a rank has "
            "some (try dp, ZeRO, cp or pp)", where(cfg, "parallel.tp"), tp);
    if (cfg->batch.accum % config_micro_grain(cfg))
        die("%s: parallel.schedule = interleaved: a step has %ld micro-batches, which go through a chunk in groups of "
            "parallel.pp = %ld (try another batch.tokens or batch.micro, or 1f1b)", where(cfg, "parallel.schedule"),
            cfg->batch.accum, pp);
    if (cfg->run.noise_every && cfg->batch.accum <= config_micro_grain(cfg))
        die("%s: run.noise_every: measures with %ld micro-batches and with all of a step, batch.accum is %ld (try a "
            "smaller batch.micro)", where(cfg, "run.noise_every"), config_micro_grain(cfg), cfg->batch.accum);
    if (pp > 1 && cfg->run.noise_every && cfg->parallel.schedule == PIPELINE_USER)
        die("%s: run.noise_every: parallel.table is a schedule for one number of micro-batches (try 0, or another "
            "parallel.schedule)", where(cfg, "run.noise_every"));
    if (pp > 1 && cfg->batch.ramp_from && cfg->parallel.schedule == PIPELINE_USER)
        die("%s: batch.ramp_from: parallel.table is a schedule for one number of micro-batches (try 0, or another "
            "parallel.schedule)", where(cfg, "batch.ramp_from"));
    if (cp > 1 && cfg->model.context % (2 * cp))
        die("%s: parallel.cp = %ld: a sequence is cut into 2 cp = %ld chunks, which does not divide "
            "model.context = %ld",
            where(cfg, "parallel.cp"), cp, 2 * cp, cfg->model.context);
}

static void resolve_optim(Config *cfg)
{
    if (cfg->optim.schedule == SCHEDULE_INVSQRT || cfg->optim.schedule == SCHEDULE_CONSTANT) return;
    int row = row_of("optim.min_lr");
    if (cfg->optim.min_lr == -1 || cfg->origin[row].source == CONFIG_DERIVED) {
        cfg->optim.min_lr = cfg->optim.lr / 10;
        set_origin(cfg, row, CONFIG_DERIVED, "derived");
    }
    if (!(cfg->optim.min_lr >= 0 && cfg->optim.min_lr <= cfg->optim.lr))
        die("%s: optim.min_lr %g is not between 0 and optim.lr %g (-1 gives lr / 10)",
            where(cfg, "optim.min_lr optim.lr"), cfg->optim.min_lr, cfg->optim.lr);
    if (cfg->run.steps && !cfg->optim.decay_tokens)
        derive(cfg, "optim.decay_steps", &cfg->optim.decay_steps, cfg->run.steps);
    // A run may be shorter than its warm-up (a quick try), but no decay ends before it begins.
    long decay = config_is_set(cfg, "optim.decay_steps") ? cfg->optim.decay_steps : 0;
    bool in_steps = !cfg->optim.warmup_tokens && cfg->optim.warmup_part == 0;
    if (decay && in_steps && decay <= cfg->optim.warmup && decay != cfg->run.steps)
        die("%s: optim.decay_steps %ld is not after the warm-up of %ld steps",
            where(cfg, "optim.decay_steps optim.warmup"), decay, cfg->optim.warmup);
}

void config_resolve(Config *cfg)
{
    if (*cfg->model.preset) load_preset(cfg, cfg->model.preset);
    refuse_keys_without_effect(cfg);
    const char *name = cfg->run.name;
    bool control = false;
    for (const char *c = name; *c; c++) control |= (unsigned char)*c < ' ' || *c == 0x7f;
    if (!*name || strchr(name, '/') || control || !strcmp(name, ".") || !strcmp(name, ".."))
        die("%s: run.name '%s' is not the name of a directory (run.dir says where it lies)",
            where(cfg, "run.name"), name);
    if (!*cfg->run.dir) die("%s: run.dir is empty (use . for the current directory)", where(cfg, "run.dir"));
    if (!cfg->run.steps && !(cfg->run.minutes > 0))
        die("%s: run.steps and run.minutes are both 0 (set --run.steps=N or --run.minutes=M)",
            where(cfg, "run.steps"));
    resolve_model(cfg);
    resolve_experts(cfg);
    resolve_mesh(cfg);
    resolve_batch(cfg);
    refuse_deterministic(cfg);
    refuse_in_parts(cfg);
    refuse_offloaded(cfg);
    refuse_updates_on_host(cfg);
    refuse_embedding(cfg);
    refuse_compressed_and_offloaded(cfg);
    resolve_optim(cfg);
    derive(cfg, "eval.stride", &cfg->eval.stride, cfg->model.context);
    if (cfg->eval.stride > cfg->model.context)
        die("%s: eval.stride %ld is larger than model.context %ld (it would leave tokens out)",
            where(cfg, "eval.stride model.context"), cfg->eval.stride, cfg->model.context);
}
