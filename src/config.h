// config: every setting of a run. Layer 0.
//
// One table (config_table.c) holds each key's name, type, default, range or choices, unit, help and the
// condition under which it has any effect. The parser, --help, the start-up table, the written config.toml and
// the reference in doc/config.md all walk that table; code reads plain members: cfg.batch.tokens.
#ifndef CONFIG_H
#define CONFIG_H
#include <stdbool.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { CONFIG_TEXT = 256, CONFIG_WHERE = 96, CONFIG_MAX_KEYS = 96 };

// Values of the keys with choices, in the order in which the table lists the choices.
enum { CONFIG_NORM_LAYERNORM, CONFIG_NORM_RMSNORM };
enum { CONFIG_ACTIVATION_GELU, CONFIG_ACTIVATION_SWIGLU };
enum { CONFIG_POSITION_LEARNED, CONFIG_POSITION_ROPE };
enum { CONFIG_OPTIM_ADAMW };
enum { CONFIG_SCHEDULE_COSINE, CONFIG_SCHEDULE_CONSTANT };

// Who set a key, weakest first: a later one overrides an earlier one. DERIVED: computed from other keys.
typedef enum {
    CONFIG_DEFAULT, CONFIG_PRESET, CONFIG_FILE, CONFIG_COMMAND_LINE, CONFIG_DERIVED
} ConfigSource;

typedef struct {
    ConfigSource source;
    char where[CONFIG_WHERE]; // "tiny.toml:7", "command line", "" for a default
} ConfigOrigin;

// What each member means, its unit and its range: `build/train --help`, doc/config.md.
typedef struct {
    struct {
        char name[CONFIG_TEXT], dir[CONFIG_TEXT];
        long seed, steps;
        double minutes;
        long stop_at, log_every, eval_every, save_every, sample_every, threads;
        bool account;
        long dump;
    } run;
    struct {
        char train[CONFIG_TEXT], val[CONFIG_TEXT], tokenizer[CONFIG_TEXT], floor[CONFIG_TEXT];
        bool shuffle;
    } data;
    struct {
        char preset[CONFIG_TEXT];
        long layers, channels, heads, kv_heads, head_size, ffn, vocab, context;
        int norm; // CONFIG_NORM_*
        double norm_eps;
        int activation, position; // CONFIG_ACTIVATION_*, CONFIG_POSITION_*
        double rope_theta;
        bool bias, tie, qk_norm;
    } model;
    struct {
        long tokens, micro;
        long accum; // micro-batches per optimizer step; always derived
    } batch;
    struct {
        int name; // CONFIG_OPTIM_*
        double lr, min_lr;
        long warmup;
        int schedule; // CONFIG_SCHEDULE_*
        long decay_steps;
        double beta1, beta2, eps, weight_decay, clip;
    } optim;
    struct {
        long tokens, stride;
    } eval;
    struct {
        char prompt[CONFIG_TEXT];
        long tokens, count;
        double temperature;
        long top_k;
        double top_p;
    } sample;
    struct {
        bool resume;
        long keep;
    } ckpt;
    ConfigOrigin origin[CONFIG_MAX_KEYS]; // by row of the table
} Config;

// Every key at its default.
void config_defaults(Config *cfg);

// Reads `PROGRAM [FILE.toml] [--section.key=value ...]` over what cfg holds; the command line wins over the
// file wherever it stands. FILE may be the name of a preset (tiny, presets/tiny.toml). --help prints help and
// --help-markdown the reference, exit status 0; no arguments: usage, status 2. Call config_resolve next.
void config_parse(Config *cfg, int argc, char **argv);

// Reads one file (or preset name). An error ends in "error: FILE:LINE: ...", the line, and a caret; status 1.
void config_load_file(Config *cfg, const char *path);

// Sets "section.key" from text, as the command line does: strings are taken literally. `where` says
// where the text came from, for messages and the start-up table ("command line").
void config_set(Config *cfg, const char *section_key, const char *value, const char *where);

// The program's own value for an integer key that was left to it (model.vocab from the tokenizer, run.steps
// from run.minutes); shown as derived. Call config_resolve again when other keys depend on it.
void config_set_derived(Config *cfg, const char *section_key, long value);

// Reads the preset's [model] section if model.preset is set, checks that every key that was set has an
// effect, fills derived values (kv_heads, head_size, ffn, accum, min_lr, decay_steps, stride) and checks what
// involves several keys (divisibility, order). Dies at the first thing wrong. May be called again.
void config_resolve(Config *cfg);

// True when a preset, a file or the command line set the key.
bool config_is_set(const Config *cfg, const char *section_key);

// The start-up table: key, value, where it came from, what it means. Keys without effect are left out.
void config_print(const Config *cfg, FILE *out);
// The same settings as a TOML file that parses back to the same values.
void config_write(const Config *cfg, const char *path);
// The reference of all keys as a markdown table: what stands in doc/config.md.
void config_print_reference(FILE *out);
// What --help prints.
void config_print_help(FILE *out, const char *program);

#ifdef __cplusplus
}
#endif
#endif
