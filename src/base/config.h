// config: every setting of a run.
//
// One table (config_table.c) holds each key's name, type, default, range or choices, unit, help and the condition under
// which it has any effect. The parser, --help, the start-up table, the written config.toml and the reference in
// doc/config.md all walk that table; code reads plain members: cfg.batch.tokens.
#ifndef CONFIG_H
#define CONFIG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { CONFIG_TEXT = 256, CONFIG_WHERE = 96, CONFIG_MAX_KEYS = 192 };

// Values of the keys with choices, in the order in which the table lists the choices.
enum { CONFIG_NORM_LAYERNORM, CONFIG_NORM_RMSNORM };
enum { CONFIG_ACTIVATION_GELU, CONFIG_ACTIVATION_SWIGLU };
enum { CONFIG_POSITION_LEARNED, CONFIG_POSITION_ROPE };
enum { CONFIG_ROPE_NONE, CONFIG_ROPE_LINEAR, CONFIG_ROPE_NTK, CONFIG_ROPE_YARN, CONFIG_ROPE_LLAMA3 };
enum {
    CONFIG_OPTIM_ADAMW, CONFIG_OPTIM_ADAM, CONFIG_OPTIM_SGD, CONFIG_OPTIM_MOMENTUM, CONFIG_OPTIM_ADAFACTOR,
    CONFIG_OPTIM_LION, CONFIG_OPTIM_ADAMW8BIT, CONFIG_OPTIM_MUON
};
enum {
    CONFIG_SCHEDULE_COSINE, CONFIG_SCHEDULE_LINEAR, CONFIG_SCHEDULE_INVSQRT, CONFIG_SCHEDULE_CONSTANT,
    CONFIG_SCHEDULE_WSD
};
enum { CONFIG_SHAPE_LINEAR, CONFIG_SHAPE_COSINE, CONFIG_SHAPE_EXPONENTIAL, CONFIG_SHAPE_SQRT };
enum { CONFIG_RAMP_LR_NONE, CONFIG_RAMP_LR_SQRT };
enum { CONFIG_AGC_ROW, CONFIG_AGC_TENSOR };
enum { CONFIG_DTYPE_FP32, CONFIG_DTYPE_BF16, CONFIG_DTYPE_FP16, CONFIG_DTYPE_FP8 };
enum { CONFIG_FP8_CURRENT, CONFIG_FP8_DELAYED };
enum {
    CONFIG_RECOMPUTE_NONE, CONFIG_RECOMPUTE_SELECTIVE, CONFIG_RECOMPUTE_SQRT, CONFIG_RECOMPUTE_EVERY,
    CONFIG_RECOMPUTE_FULL
};
enum { CONFIG_COMPRESS_NONE, CONFIG_COMPRESS_INT8 };
enum { CONFIG_OFFLOAD_NONE, CONFIG_OFFLOAD_CPU, CONFIG_OFFLOAD_DISK };
enum { CONFIG_REDUCE_FP32, CONFIG_REDUCE_STORAGE };
enum { CONFIG_PACKING_CUT, CONFIG_PACKING_BEST_FIT };
enum { CONFIG_CP_ZIGZAG, CONFIG_CP_CONTIGUOUS };
enum { CONFIG_CP_RING, CONFIG_CP_GATHER };
enum {
    CONFIG_PIPELINE_GPIPE, CONFIG_PIPELINE_1F1B, CONFIG_PIPELINE_INTERLEAVED, CONFIG_PIPELINE_ZB_H1,
    CONFIG_PIPELINE_ZB_V, CONFIG_PIPELINE_USER
};
enum { CONFIG_MONITOR_NONE, CONFIG_MONITOR_WARN, CONFIG_MONITOR_COOL, CONFIG_MONITOR_SKIP, CONFIG_MONITOR_ROLLBACK };
enum { CONFIG_BACKEND_AUTO, CONFIG_BACKEND_NCCL, CONFIG_BACKEND_STAGED };
enum { CONFIG_ALL_REDUCE_MPI, CONFIG_ALL_REDUCE_RING, CONFIG_ALL_REDUCE_TREE, CONFIG_ALL_REDUCE_HALVING };

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
        bool account, supervisor;
        double hang_timeout, peak;
        char fault[CONFIG_TEXT], device[CONFIG_TEXT];
        long norms_every, noise_every, dump, trace;
    } run;
    struct {
        char train[CONFIG_TEXT], val[CONFIG_TEXT], tokenizer[CONFIG_TEXT], floor[CONFIG_TEXT];
        bool shuffle, document_mask;
        int packing; // CONFIG_PACKING_*
    } data;
    struct {
        char preset[CONFIG_TEXT];
        long layers, channels, heads, kv_heads, head_size, ffn, vocab, context;
        int norm; // CONFIG_NORM_*
        double norm_eps;
        int activation, position; // CONFIG_ACTIVATION_*, CONFIG_POSITION_*
        double rope_theta;
        int rope_scaling; // CONFIG_ROPE_*
        double rope_factor;
        long rope_original;
        double rope_slow, rope_fast;
        bool bias, tie, qk_norm;
        double dropout;
    } model;
    struct {
        long tokens, micro;
        long accum; // micro-batches per rank and optimizer step (of the full batch); always derived
        long ramp_from, ramp_tokens;
    } batch;
    struct {
        int name; // CONFIG_OPTIM_*
        double lr, min_lr;
        long warmup;
        int schedule; // CONFIG_SCHEDULE_*
        long decay_steps, wsd_decay;
        int wsd_shape, ramp_lr; // CONFIG_SHAPE_*, CONFIG_RAMP_LR_*
        double beta1, beta2, eps, momentum, matrix_lr;
        bool relative_step;
        double weight_decay, clip, agc;
        int agc_unit; // CONFIG_AGC_*
        long mup_base, mup_base_head;
    } optim;
    struct {
        int dtype; // CONFIG_DTYPE_*
        bool deterministic, check;
        long loss_scale, loss_growth;
        int fp8_scaling; // CONFIG_FP8_*
        long amax_history;
        char fp8_keep[CONFIG_TEXT];
    } numerics;
    struct {
        int recompute; // CONFIG_RECOMPUTE_*
        long recompute_every;
        int compress, offload; // CONFIG_COMPRESS_*, CONFIG_OFFLOAD_*
    } memory;
    struct {
        long ranks; // of the job: set by the program (config_set_derived), 1 when it does not
        long dp;    // ranks that share each batch; always derived
        long tp;
        bool sp;
        long cp;
        int cp_assign, cp_way; // CONFIG_CP_*
        long pp;
        int schedule; // CONFIG_PIPELINE_*
        long chunks;
        char table[CONFIG_TEXT], layers[CONFIG_TEXT];
        long zero;
        bool reshard, overlap;
        int reduce_dtype; // CONFIG_REDUCE_*
    } parallel;
    struct {
        int backend, all_reduce; // CONFIG_BACKEND_*, CONFIG_ALL_REDUCE_*
        long bucket;
        bool checked;
        double slow_alpha, slow_beta;
    } comm;
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
        bool resume, async;
        char init[CONFIG_TEXT];
        long keep, keep_every;
    } ckpt;
    struct {
        double skip_z;
        long window, max_skips;
        int on_spike, on_not_finite;
        double ratio_low, ratio_mid, ratio_high, ratio_norm;
        int on_ratio_low, on_ratio_mid, on_ratio_high, on_ratio_norm;
        double plateau;
        long plateau_steps;
        int on_plateau;
        double cool;
        long cool_steps, rollback_steps, rollback_skip, rollback_at;
        bool rollback_cool;
        long max_rollbacks, agree_every;
        bool locate;
    } monitor;
    ConfigOrigin origin[CONFIG_MAX_KEYS]; // by row of the table
} Config;

// Every key at its default.
void config_defaults(Config *cfg);

// Ends the program, having printed help (--help, -h) or the reference (--help-markdown), where argv asks for it.
void config_help(int argc, char **argv);
// Reads `PROGRAM [FILE.toml] [--section.key=value ...]` over what cfg holds; the command line wins over the
// file wherever it stands. FILE may be the name of a preset (tiny, presets/tiny.toml). config_help comes first; no
// arguments: usage, status 2. Call config_resolve next.
void config_parse(Config *cfg, int argc, char **argv);

// Reads one file (or preset name). An error ends in "error: FILE:LINE: ...", the line, and a caret; status 1.
void config_load_file(Config *cfg, const char *path);

// Sets "section.key" from text, as the command line does: strings are taken literally. `where` says
// where the text came from, for messages and the start-up table ("command line").
void config_set(Config *cfg, const char *section_key, const char *value, const char *where);

// The program's own value for an integer key that was left to it (model.vocab from the tokenizer, run.steps
// from run.minutes, parallel.ranks from the launcher); shown as derived. Call config_resolve again when other keys
// depend on it.
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
// The names of all presets as "tiny, stories, ..."; "none found" when their directory is not there.
void config_list_presets(char *out, size_t size);

// ---- the rows of the table (config_table.c), for whoever walks them

typedef enum { CONFIG_INTEGER, CONFIG_NUMBER, CONFIG_BOOL, CONFIG_STRING, CONFIG_CHOICE } ConfigType;

typedef struct {
    const char *name; // "section.key"
    ConfigType type;
    size_t offset;        // of the member in Config
    const char *def;      // default, as text; NULL: always derived, nobody sets it
    const char *allowed;  // an interval "[0, 1)", or choices "cosine|constant"
    const char *unit;     // "" when it has none
    const char *needs;    // "model.position=rope", "sample.temperature>0": otherwise no effect; "" always
    const char *help;
} ConfigKey;

// All rows, in the order in which they are printed; the rows of a section stand together. n_keys may be NULL.
const ConfigKey *config_table(int *n_keys);
// The row of that name, or -1; the row whose name is nearest by edit distance, or -1 when none is near.
int config_table_find(const char *name);
int config_table_nearest(const char *name);
// The known section nearest to that name (equal to it when it is one); *n its length: it is not terminated.
const char *config_table_section(const char *name, int *n);
// Levenshtein distance: the fewest insertions, deletions and replacements that turn a into b.
int config_table_distance(const char *a, const char *b);

// Reads text into the member and returns true; or returns false with the reason in why, and changes nothing.
// `quoted` says that a file had the value in quotes.
bool config_table_parse(const ConfigKey *key, Config *cfg, const char *text, bool quoted,
                        char *why, size_t why_size);
// The member as text that config_table_parse reads back to the same value, without quotes.
void config_table_format(const ConfigKey *key, const Config *cfg, char *out, size_t size);
// "integer", or "gelu, swiglu": what kind of value the row takes.
void config_table_describe(const ConfigKey *key, char *out, size_t size);

// ">= 0", "in [0, 1)": the numbers that the row takes; "" when it takes any.
void config_table_range(const ConfigKey *key, char *out, size_t size);

// True when the key has an effect on this configuration. If not, needed is the row it depends on.
bool config_table_has_effect(const ConfigKey *key, const Config *cfg, int *needed);

#ifdef __cplusplus
}
#endif
#endif
