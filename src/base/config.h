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

enum { CONFIG_TEXT = 256, CONFIG_WHERE = 96, CONFIG_MAX_KEYS = 256 };
#define CONFIG_LARGEST (1L << 53) // of an integer, and of a run's tokens in all: doubles hold it exactly

// ---- the keys with choices. Each enum is defined here once; the components that act on it include this header. The
// values stand in the order in which the key's row in config_table.c lists the names.

typedef enum { NORM_LAYERNORM, NORM_RMSNORM } NormKind;
// RMSNorm on queries and keys: none, of each head's, or of all heads' of a token together.
typedef enum { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE } QkNorm;
typedef enum { NORM_OF_INPUT, NORM_OF_OUTPUT } NormPlace; // of what a branch of a block reads, of what it gives
typedef enum { CONFIG_POSITION_LEARNED, CONFIG_POSITION_ROPE } ConfigPosition;
typedef enum { ACT_GELU, ACT_SWIGLU, ACT_RELU2 } ActKind; // SwiGLU alone has a gate; the others: ops/activation.h
// The scores of experts: softmax over all, or each one's sigmoid. What keeps their loads even: a loss on each sequence,
// or on the whole batch; or a bias on the choice, moved after each step. Which slots an expert drops that has too many.
typedef enum { MOE_SOFTMAX, MOE_SIGMOID } MoeScore;
typedef enum { MOE_BALANCE_NONE, MOE_BALANCE_SEQUENCE, MOE_BALANCE_BATCH, MOE_BALANCE_BIAS } MoeBalance;
typedef enum { MOE_DROP_LAST, MOE_DROP_LIGHTEST } MoeDrop;
typedef enum { ROPE_NONE, ROPE_LINEAR, ROPE_NTK, ROPE_YARN, ROPE_LLAMA3 } RopeKind;
typedef enum {
    OPTIM_ADAMW, OPTIM_ADAM, OPTIM_SGD, OPTIM_MOMENTUM, OPTIM_ADAFACTOR, OPTIM_LION, OPTIM_ADAMW8BIT, OPTIM_MUON,
    OPTIM_NORMUON, OPTIM_NAMES
} OptimName;
// The learning rate after the warm-up; then the shape of the decay of SCHEDULE_WSD.
typedef enum { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_INVSQRT, SCHEDULE_CONSTANT, SCHEDULE_WSD } ScheduleKind;
typedef enum {
    SCHEDULE_SHAPE_LINEAR, SCHEDULE_SHAPE_COSINE, SCHEDULE_SHAPE_EXPONENTIAL, SCHEDULE_SHAPE_SQRT
} ScheduleShape;
typedef enum { CONFIG_RAMP_LR_NONE, CONFIG_RAMP_LR_SQRT } ConfigRampLr;
// What adaptive clipping compares the norms of: rows of a matrix, which are its output units (Brock et al.), or whole
// tensors.
typedef enum { CLIP_ROW, CLIP_TENSOR } ClipUnit;
typedef enum { CONFIG_DTYPE_FP32, CONFIG_DTYPE_BF16, CONFIG_DTYPE_FP16, CONFIG_DTYPE_FP8, CONFIG_DTYPE_TF32 } ConfigDtype;
typedef enum { X_FP32, X_BF16, X_FP16 } XType; // storage of weights and activations, which follows from the dtype
typedef enum {
    FP8_CURRENT, // scale from the tensor itself: exact, but needs a pass over the tensor before the cast
    FP8_DELAYED  // scale from the largest element of the last `history` steps: known before the tensor is computed
} Fp8Scaling;
// Products of bf16 matrices on the CPU: by the processor's bf16 instruction, or as fp32 products of widened operands.
typedef enum { PRODUCTS_AUTO, PRODUCTS_HARDWARE, PRODUCTS_WIDENED } Bf16Products;
typedef enum {
    RECOMPUTE_NONE,      // all activations are kept
    RECOMPUTE_SELECTIVE, // outputs of norms and activation functions are recomputed: no matmul, no attention
    RECOMPUTE_ATTENTION, // those, and attention with the product that makes q, k and v
    RECOMPUTE_SQRT,      // segments of ceil(sqrt(layers)) blocks (Chen et al., arXiv 1604.06174)
    RECOMPUTE_EVERY,     // segments of `every` blocks: the residual stream is kept at their starts, the rest recomputed
    RECOMPUTE_FULL       // segments of one block
} RecomputeMode;
typedef enum { CONFIG_COMPRESS_NONE, CONFIG_COMPRESS_INT8 } ConfigCompress;
typedef enum { OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_DISK } OffloadMode;
typedef enum { CONFIG_REDUCE_FP32, CONFIG_REDUCE_STORAGE } ConfigReduce;
typedef enum { CONFIG_EMBED_STORAGE, CONFIG_EMBED_FP32 } ConfigEmbed;
typedef enum { CONFIG_PACKING_CUT, CONFIG_PACKING_BEST_FIT } ConfigPacking;
typedef enum { CONFIG_LOSS_ALL, CONFIG_LOSS_ASSISTANT } ConfigLoss;
// Rank r of N has chunks r and 2N - 1 - r (zig-zag), or 2r and 2r + 1 (contiguous, the naive twin).
typedef enum { CP_ZIGZAG, CP_CONTIGUOUS } CpAssign;
// Keys and values arrive block by block from the left neighbour (ring), or all at once (all-gather).
typedef enum { CP_RING, CP_GATHER } CpWay;
typedef enum {
    PIPELINE_GPIPE, PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZB_H1, PIPELINE_ZB_V, PIPELINE_V_HALF,
    PIPELINE_V_MIN,
    PIPELINE_USER, // read from a file
    PIPELINE_SCHEDULES
} PipelineSchedule;
// In order of severity: of several rules that apply, the most severe action wins. ACCEPT, WARN and COOL make the
// update; COOL then lowers the learning rate for a while. SKIP makes no update. ROLLBACK also undoes the updates since
// an earlier checkpoint.
typedef enum { MONITOR_ACCEPT, MONITOR_WARN, MONITOR_COOL, MONITOR_SKIP, MONITOR_ROLLBACK } MonitorAction;
typedef enum { CONFIG_NOT_FINITE_SKIP, CONFIG_NOT_FINITE_ROLLBACK } ConfigNotFinite;
// A new run; the run's newest checkpoint, which must be there; or that where there is one, else a new run.
typedef enum { CONFIG_RESUME_FALSE, CONFIG_RESUME_TRUE, CONFIG_RESUME_AUTO } ConfigResume;
typedef enum { CONFIG_BACKEND_AUTO, CONFIG_BACKEND_NCCL, CONFIG_BACKEND_STAGED } ConfigBackend;
// The algorithm of a collective (collectives.h). NATIVE: the backend's own (MPI's, NCCL's), or ours where it has none.
// DIRECT cannot be chosen by comm.all_reduce: it runs where the order of a sum is fixed.
typedef enum {
    COMM_NATIVE, COMM_RING, COMM_TREE, COMM_HALVING, COMM_HIERARCHICAL, COMM_DIRECT, COMM_ALGORITHMS
} CommAlgorithm;

// Where the value of a key comes from, weakest first: a later source overrides an earlier one. DERIVED: computed from
// other keys.
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
        char pace[CONFIG_TEXT];
        long stop_at, log_every, eval_every, save_every, sample_every, threads;
        bool account, supervisor;
        double hang_timeout, peak;
        char fault[CONFIG_TEXT], device[CONFIG_TEXT];
        long norms_every, noise_every, dump, trace;
    } run;
    struct {
        char train[CONFIG_TEXT], val[CONFIG_TEXT], tokenizer[CONFIG_TEXT], floor[CONFIG_TEXT];
        bool shuffle, document_mask;
        ConfigPacking packing;
        ConfigLoss loss;
        double max_repeat, max_broken;
    } data;
    struct {
        char preset[CONFIG_TEXT];
        long layers, channels, heads, kv_heads, head_size, ffn, vocab, context;
        NormKind norm;
        double norm_eps;
        ActKind activation;
        ConfigPosition position;
        double rope_theta;
        RopeKind rope_scaling;
        double rope_factor;
        long rope_original;
        double rope_slow, rope_fast;
        long window;
        char window_pattern[CONFIG_TEXT];
        bool bias, tie, zero_init;
        QkNorm qk_norm;
        NormPlace norm_place;
        double dropout, logit_cap;
        long experts, experts_active, experts_ffn, experts_shared, experts_dense, experts_every;
        long experts_groups, experts_groups_active;
        MoeScore experts_score;
        bool experts_renorm;
        double experts_scale;
    } model;
    struct {
        MoeBalance balance;
        double balance_coef, bias_rate, z_coef, capacity, room;
        MoeDrop drop;
    } moe;
    struct {
        long tokens, micro;
        long accum; // micro-batches per rank and optimizer step (of the full batch); always derived
        long ramp_from, ramp_by, ramp_tokens;
    } batch;
    struct {
        OptimName name;
        double lr, min_lr;
        long warmup, warmup_tokens;
        double warmup_part;
        ScheduleKind schedule;
        long decay_steps, decay_tokens, wsd_decay;
        double wsd_part;
        ScheduleShape wsd_shape;
        ConfigRampLr ramp_lr;
        double beta1, beta2, eps, momentum, momentum_start;
        long momentum_warmup;
        double row_beta2, matrix_lr;
        bool relative_step;
        double weight_decay;
        bool cautious_decay;
        double clip, agc;
        ClipUnit agc_unit;
        long mup_base, mup_base_head;
    } optim;
    struct {
        ConfigDtype dtype;
        bool deterministic, check;
        Bf16Products bf16_products;
        ConfigEmbed embed_dtype;
        long loss_scale, loss_growth;
        Fp8Scaling fp8_scaling;
        long amax_history;
        char fp8_keep[CONFIG_TEXT], override[CONFIG_TEXT];
    } numerics;
    struct {
        RecomputeMode recompute;
        long recompute_every;
        ConfigCompress compress;
        OffloadMode offload_acts;
        OffloadMode offload, offload_update;
    } memory;
    struct {
        long ranks; // of the job: set by the program (config_set_derived), 1 when it does not
        long dp;    // ranks that share each batch; always derived
        long tp;
        bool sp;
        long ep;
        long cp;
        CpAssign cp_assign;
        CpWay cp_way;
        long pp;
        PipelineSchedule schedule;
        long chunks;
        char table[CONFIG_TEXT], layers[CONFIG_TEXT];
        long zero, shard, prefetch, keep;
        bool reshard, overlap;
        ConfigReduce reduce_dtype;
    } parallel;
    struct {
        ConfigBackend backend;
        CommAlgorithm all_reduce; // one of the first five
        long bucket, node;
        bool checked, measure;
        double slow_alpha, slow_beta;
    } comm;
    struct {
        long tokens, stride;
        char sets[CONFIG_TEXT], tasks[CONFIG_TEXT];
        long tasks_every, tasks_limit;
    } eval;
    struct {
        char prompt[CONFIG_TEXT];
        long tokens, count;
        double temperature;
        long top_k;
        double top_p, min_p, repetition;
    } sample;
    struct {
        ConfigResume resume;
        bool async;
        char init[CONFIG_TEXT];
        bool init_state;
        long keep, keep_every;
    } ckpt;
    struct {
        double skip_z;
        long window, max_skips;
        MonitorAction on_spike;
        ConfigNotFinite on_not_finite;
        char rules[CONFIG_TEXT];
        long plateau_steps;
        double cool;
        long cool_steps, rollback_steps, rollback_skip, rollback_at;
        bool rollback_cool;
        long max_rollbacks, agree_every, experts_steps;
        double experts_entropy;
        bool locate;
    } monitor;
    ConfigOrigin origin[CONFIG_MAX_KEYS]; // by row of the table
} Config;

// Every key at its default.
void config_defaults(Config *cfg);

// When argv has --help or -h (--help-markdown, --print KEY,...): prints the help (the reference, the values that these
// keys have with the other arguments, a line each) and exits with status 0.
void config_help(int argc, char **argv);
// Reads `PROGRAM [FILE.toml] [--section.key=value ...]` over what cfg holds. Options override the file, in any order of
// the arguments. FILE may be the name of a preset (tiny, presets/tiny.toml). Calls config_help first. Without arguments
// it prints the usage and exits with status 2. Call config_resolve next.
void config_parse(Config *cfg, int argc, char **argv);

// Reads one file (or preset name). An error ends in "error: FILE:LINE: ...", the line, and a caret; status 1.
void config_load_file(Config *cfg, const char *path);
// The same of a text that config_write has made; it is called `name` in messages.
void config_load_text(Config *cfg, const char *text, const char *name);

// Sets "section.key" from text, as the command line does: strings are taken literally. `where` says
// where the text came from, for messages and the start-up table ("command line").
void config_set(Config *cfg, const char *section_key, const char *value, const char *where);

// Sets an integer key that the program computes (model.vocab from the tokenizer, run.steps from run.minutes,
// parallel.ranks from the launcher); it is shown as derived. Call config_resolve again when other keys depend on it.
void config_set_derived(Config *cfg, const char *section_key, long value);

// Reads the preset's [model] section if model.preset is set, checks that every key that was set has an
// effect, fills derived values (kv_heads, head_size, ffn, accum, min_lr, decay_steps, stride) and checks what
// involves several keys (divisibility, order). Dies at the first error. May be called again.
void config_resolve(Config *cfg);
// Of what a step's number of micro-batches must be a multiple: an interleaved pipeline takes them in groups of pp.
long config_micro_grain(const Config *cfg);
// Whether weights and activations are stored in 4 bytes, so that there are no master weights beside them.
static inline bool config_stores_fp32(const Config *cfg)
{
    return cfg->numerics.dtype == CONFIG_DTYPE_FP32 || cfg->numerics.dtype == CONFIG_DTYPE_TF32;
}

// True when a preset, a file or the command line set the key.
bool config_is_set(const Config *cfg, const char *section_key);

// What is not a default: a section's keys and values, then those that were derived, in lines of at most `width`.
void config_print(const Config *cfg, FILE *out, int width);
// All settings as a TOML file that parses back to the same values.
void config_write(const Config *cfg, const char *path);
// The reference of all keys as a markdown table, as in doc/config.md.
void config_print_reference(FILE *out);
// The names of all presets as "tiny, stories, ..."; "none found" when their directory is not there.
void config_list_presets(char *out, size_t size);

// ---- the rows of the table (config_table.c), for callers that walk them

typedef enum { CONFIG_INTEGER, CONFIG_NUMBER, CONFIG_BOOL, CONFIG_STRING, CONFIG_CHOICE } ConfigType;

typedef struct {
    const char *name; // "section.key"
    ConfigType type;
    size_t offset;        // of the member in Config
    const char *def;      // default, as text; NULL: always derived, cannot be set
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
// A setting of earlier versions: files and checkpoints may still have it. NULL: there was none of this name.
typedef struct {
    const char *name, *off; // off: the value with which it is passed over; NULL: with any
    const char *now;        // what took its place
} ConfigGone;
const ConfigGone *config_table_gone(const char *name);
// The known section nearest to that name (equal to it when it is one); *n its length: it is not terminated.
const char *config_table_section(const char *name, int *n);

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
