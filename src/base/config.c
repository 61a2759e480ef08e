// config: from defaults, preset, file and command line to settings that fit together. See config.h.
//
// Each key remembers who set it (ConfigOrigin), and that decides everything here:
//     default < preset < file < command line    a later source overrides an earlier one, in any order
//     derived                                   computed by config_resolve or by the program, from other keys
// The invariant after config_resolve: every value is in its range, the sizes divide, and each key that a
// person set has an effect on this run. A setting that changes nothing is refused: who writes
// model.rope_theta beside learned positions believes something about the run that is not so. The one
// exception: the command line may switch off what a file's key depends on (`tiny-llama
// --model.position=learned`).
//
// Derived sizes, in the symbols of the glossary:
//     G = H      D = C / H      F = 4C (gelu) or 8C/3 rounded up to a multiple of 64 (swiglu)    unless set
//     accum = batch.tokens / (dp * micro * context)
// 8C/3 with swiglu's three matrices weighs as much as 4C with two (Shazeer, arXiv 2002.05202).
//
// Rejected: rounding a batch that does not divide, or clamping a value to its range. A run whose settings are
// not the ones that were asked for is worse than no run.
#include "base/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config_table.h"

void config_defaults(Config *cfg)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    char why[512];
    memset(cfg, 0, sizeof *cfg);
    for (int i = 0; i < n_keys; i++)
        if (table[i].def) check(config_table_parse(&table[i], cfg, table[i].def, false, why, sizeof why));
}

// The row of a key that the code names: it is there, or we have a bug.
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

bool config_table_set(Config *cfg, int row, const char *text, bool quoted, ConfigSource source,
                      const char *where, char *why, size_t why_size)
{
    int n_keys;
    const ConfigKey *key = &config_table(&n_keys)[row];
    Config parsed = *cfg;
    if (!config_table_parse(key, &parsed, text, quoted, why, why_size)) return false;
    ConfigSource held = cfg->origin[row].source;
    bool weaker = held == CONFIG_DERIVED ? source == CONFIG_PRESET : source < held;
    if (weaker) return true; // a good value, and overridden
    *cfg = parsed;
    set_origin(cfg, row, source, where);
    return true;
}

void config_set(Config *cfg, const char *section_key, const char *value, const char *where)
{
    int n_keys, row = config_table_find(section_key), near = config_table_nearest(section_key);
    const ConfigKey *table = config_table(&n_keys);
    char why[1024];
    if (row < 0 && near >= 0)
        die("%s: unknown key '%s' (did you mean %s?)", where, section_key, table[near].name);
    if (row < 0) die("%s: unknown key '%s' (--help lists the keys)", where, section_key);
    if (!config_table_set(cfg, row, value, false, CONFIG_COMMAND_LINE, where, why, sizeof why))
        die("%s: %s", where, why);
}

void config_set_derived(Config *cfg, const char *section_key, long value)
{
    int n_keys, row = row_of(section_key);
    const ConfigKey *key = &config_table(&n_keys)[row];
    check(key->type == CONFIG_INTEGER);
    memcpy((char *)cfg + key->offset, &value, sizeof value);
    set_origin(cfg, row, CONFIG_DERIVED, "derived");
}

bool config_is_set(const Config *cfg, const char *section_key)
{
    ConfigSource source = cfg->origin[row_of(section_key)].source;
    return source != CONFIG_DEFAULT && source != CONFIG_DERIVED;
}

// "--section.key=value" without the dashes, split at the first '='.
static void set_from_argument(Config *cfg, const char *argument)
{
    char name[128];
    const char *equals = strchr(argument, '=');
    if (!equals) die_usage("%s: no value (write %s=VALUE)", argument, argument);
    snprintf(name, sizeof name, "%.*s", (int)(equals - argument - 2), argument + 2);
    config_set(cfg, name, equals + 1, "command line");
}

void config_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
        if (help) config_print_help(stdout, argv[0]);
        else if (!strcmp(argv[i], "--help-markdown")) config_print_reference(stdout);
        else continue;
        exit(0);
    }
}

void config_parse(Config *cfg, int argc, char **argv)
{
    const char *program = argc > 0 ? argv[0] : "train", *file = NULL;
    config_help(argc, argv);
    for (int i = 1; i < argc; i++) {
        bool option = argv[i][0] == '-';
        if (option && strncmp(argv[i], "--", 2))
            die_usage("%s: unknown option (write --section.key=value; --help lists the keys)", argv[i]);
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

// Where a key was set, for messages: "tiny.toml:7: ".
static const char *where(const Config *cfg, const char *section_key)
{
    const ConfigOrigin *origin = &cfg->origin[row_of(section_key)];
    return *origin->where ? origin->where : "config";
}

// What key `row` needs and has not got, which may be a need of the key that it needs: "numerics.dtype=fp8".
static const char *unmet_need(int row, int needed)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
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

// Fills *member when nobody set it (0), or when an earlier call of config_resolve derived it.
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
    if (cfg->model.position != CONFIG_POSITION_ROPE || kind == CONFIG_ROPE_NONE) return;
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
    if (kind != CONFIG_ROPE_YARN && kind != CONFIG_ROPE_LLAMA3) return;
    derive_number(cfg, "model.rope_fast", &cfg->model.rope_fast, kind == CONFIG_ROPE_YARN ? 32 : 4);
    if (!(cfg->model.rope_slow < cfg->model.rope_fast))
        die("%s: model.rope_slow %g is not less than model.rope_fast %g", where(cfg, "model.rope_slow"),
            cfg->model.rope_slow, cfg->model.rope_fast);
}

static void resolve_model(Config *cfg)
{
    derive(cfg, "model.kv_heads", &cfg->model.kv_heads, cfg->model.heads);
    long C = cfg->model.channels, H = cfg->model.heads, G = cfg->model.kv_heads;
    if (H % G)
        die("%s: model.heads %ld is not a multiple of model.kv_heads %ld", where(cfg, "model.kv_heads"),
            H, G);
    bool derived_size = !cfg->model.head_size || !config_is_set(cfg, "model.head_size");
    if (derived_size && C % H)
        die("%s: model.channels %ld is not a multiple of model.heads %ld (or set model.head_size)",
            where(cfg, config_is_set(cfg, "model.heads") ? "model.heads" : "model.channels"), C, H);
    derive(cfg, "model.head_size", &cfg->model.head_size, C / H);
    if (cfg->model.position == CONFIG_POSITION_ROPE && cfg->model.head_size % 2)
        die("%s: model.head_size %ld is odd, but model.position=rope turns pairs of elements (make it even)",
            where(cfg, "model.head_size"), cfg->model.head_size);
    resolve_rope(cfg);
    long F = 4 * C;
    if (cfg->model.activation == CONFIG_ACTIVATION_SWIGLU) F = ((8 * C + 2) / 3 + 63) / 64 * 64;
    derive(cfg, "model.ffn", &cfg->model.ffn, F);
}

// What is left of the ranks for data parallelism.
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
}

// A file's micro-batch may be larger than what a rank has of a batch; then its share is one micro-batch, or one for
// each stage of a pipeline. (It changes no result but by rounding. Whoever writes it on the command line means it.)
static void fit_micro(Config *cfg)
{
    long share = cfg->batch.tokens / cfg->model.context / cfg->parallel.dp, pp = cfg->parallel.pp;
    bool meant = cfg->origin[row_of("batch.micro")].source == CONFIG_COMMAND_LINE;
    if (share % pp == 0) share /= pp;
    if (cfg->parallel.ranks > 1 && !meant && share && cfg->batch.micro > share)
        config_set_derived(cfg, "batch.micro", share);
}

static void resolve_batch(Config *cfg)
{
    char ranks[48] = "";
    fit_micro(cfg);
    if (cfg->parallel.dp > 1) snprintf(ranks, sizeof ranks, "%ld ranks * ", cfg->parallel.dp);
    long micro_tokens = cfg->parallel.dp * cfg->batch.micro * cfg->model.context;
    if (cfg->batch.tokens % micro_tokens) {
        long below = cfg->batch.tokens / micro_tokens * micro_tokens, above = below + micro_tokens;
        die("%s: batch.tokens %ld is not a multiple of %sbatch.micro %ld * model.context %ld = %ld "
            "(nearest: %ld)", where(cfg, "batch.tokens"), cfg->batch.tokens, ranks, cfg->batch.micro,
            cfg->model.context, micro_tokens,
            below && cfg->batch.tokens - below < above - cfg->batch.tokens ? below : above);
    }
    derive(cfg, "batch.accum", &cfg->batch.accum, cfg->batch.tokens / micro_tokens);
}

// What looks at weights that memory.offload keeps elsewhere.
static void refuse_offloaded(const Config *cfg)
{
    if (cfg->memory.offload == CONFIG_OFFLOAD_NONE || !cfg->run.norms_every) return;
    if (cfg->numerics.dtype != CONFIG_DTYPE_FP32)
        die("%s: run.norms_every: reads the fp32 weights, which memory.offload sends away beside 16-bit ones (try "
            "--memory.offload=none)", where(cfg, "run.norms_every"));
}

// What several ranks cannot do. A rank's gradient is a whole part of the tree over a step's sequences only where it has
// a power of two of them (doc/deterministic.md).
static void refuse_on_ranks(const Config *cfg)
{
    long ranks = cfg->parallel.dp, share = cfg->batch.tokens / cfg->model.context / ranks, power = 1;
    if (cfg->parallel.ranks == 1) return;
    while (2 * power <= share) power *= 2;
    if (ranks > 1 && cfg->numerics.deterministic && share != power)
        die("%s: numerics.deterministic on %ld ranks: each has %ld sequences of a step, which is no power of two (try "
            "--batch.tokens=%ld)", where(cfg, "batch.tokens"), ranks, share, power * ranks * cfg->model.context);
    if (ranks > 1 && cfg->numerics.deterministic && cfg->batch.ramp_from)
        die("%s: batch.ramp_from with numerics.deterministic on %ld ranks: the batches in between are no powers of two "
            "(try one of the two, or one rank)", where(cfg, "batch.ramp_from"), ranks);
    if (cfg->numerics.deterministic && cfg->parallel.reduce_dtype == CONFIG_REDUCE_STORAGE)
        die("%s: parallel.reduce_dtype=storage rounds each rank's sum, so bits depend on how many there are; not with "
            "numerics.deterministic (try fp32)", where(cfg, "parallel.reduce_dtype"));
    if (cfg->run.noise_every)
        die("%s: run.noise_every: measured on one rank only, this job has %ld (try 0)", where(cfg, "run.noise_every"),
            cfg->parallel.ranks);
    if (cfg->run.norms_every && cfg->parallel.zero)
        die("%s: run.norms_every: needs whole gradients on rank 0, which parallel.zero=%ld has not (try "
            "--parallel.zero=0)", where(cfg, "run.norms_every"), cfg->parallel.zero);
}

// What a model in parts cannot do.
static void refuse_in_parts(const Config *cfg)
{
    long tp = cfg->parallel.tp, pp = cfg->parallel.pp, cp = cfg->parallel.cp;
    int name = cfg->optim.name;
    bool whole = name == CONFIG_OPTIM_ADAFACTOR || name == CONFIG_OPTIM_ADAMW8BIT || name == CONFIG_OPTIM_MUON;
    if (tp > 1 && whole)
        die("%s: optim.name: this optimizer looks at whole matrices or blocks of them, which parallel.tp = %ld cuts "
            "(try adamw, lion or momentum, or parallel.tp=1)", where(cfg, "optim.name"), tp);
    if (tp > 1 && cfg->optim.agc > 0)
        die("%s: optim.agc: needs the norms of whole rows and tensors, which parallel.tp = %ld cuts (try optim.clip)",
            where(cfg, "optim.agc"), tp);
    if (tp * pp > 1 && cfg->run.norms_every)
        die("%s: run.norms_every: needs every tensor on rank 0, which parallel.tp = %ld, pp = %ld spread (try 0)",
            where(cfg, "run.norms_every"), tp, pp);
    if (pp > 1 && cfg->parallel.zero > 1)
        die("%s: parallel.zero = %ld with parallel.pp = %ld: weights and gradients would be sent for every micro-batch "
            "of every stage (try --parallel.zero=1)", where(cfg, "parallel.zero"), cfg->parallel.zero, pp);
    if (pp > 1 && cfg->batch.ramp_from)
        die("%s: batch.ramp_from: a pipeline's schedule is made for one number of micro-batches (try 0, or "
            "parallel.pp=1)", where(cfg, "batch.ramp_from"));
    if (cp > 1 && cfg->model.context % (2 * cp))
        die("%s: parallel.cp = %ld: a sequence is cut into 2 cp = %ld chunks, which does not divide "
            "model.context = %ld",
            where(cfg, "parallel.cp"), cp, 2 * cp, cfg->model.context);
}

static void resolve_optim(Config *cfg)
{
    if (cfg->optim.schedule == CONFIG_SCHEDULE_INVSQRT || cfg->optim.schedule == CONFIG_SCHEDULE_CONSTANT) return;
    int row = row_of("optim.min_lr");
    if (cfg->optim.min_lr == -1 || cfg->origin[row].source == CONFIG_DERIVED) {
        cfg->optim.min_lr = cfg->optim.lr / 10;
        set_origin(cfg, row, CONFIG_DERIVED, "derived");
    }
    if (!(cfg->optim.min_lr >= 0 && cfg->optim.min_lr <= cfg->optim.lr))
        die("%s: optim.min_lr %g is not between 0 and optim.lr %g (-1 gives lr / 10)",
            where(cfg, "optim.min_lr"), cfg->optim.min_lr, cfg->optim.lr);
    if (cfg->run.steps) derive(cfg, "optim.decay_steps", &cfg->optim.decay_steps, cfg->run.steps);
    if (cfg->optim.schedule == CONFIG_SCHEDULE_WSD && cfg->optim.decay_steps)
        derive(cfg, "optim.wsd_decay", &cfg->optim.wsd_decay, (cfg->optim.decay_steps + 9) / 10);
    // A run may be shorter than its warm-up (a quick try), but no decay ends before it begins.
    long decay = config_is_set(cfg, "optim.decay_steps") ? cfg->optim.decay_steps : 0;
    if (decay && decay <= cfg->optim.warmup && decay != cfg->run.steps)
        die("%s: optim.decay_steps %ld is not after the warm-up of %ld steps",
            where(cfg, "optim.decay_steps"), decay, cfg->optim.warmup);
}

void config_resolve(Config *cfg)
{
    if (*cfg->model.preset) config_table_load_preset(cfg, cfg->model.preset);
    refuse_keys_without_effect(cfg);
    const char *name = cfg->run.name;
    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        die("%s: run.name '%s' is not the name of a directory (run.dir says where it lies)",
            where(cfg, "run.name"), name);
    if (!*cfg->run.dir) die("%s: run.dir is empty (use . for the current directory)", where(cfg, "run.dir"));
    if (!cfg->run.steps && !(cfg->run.minutes > 0))
        die("%s: run.steps and run.minutes are both 0 (set --run.steps=N or --run.minutes=M)",
            where(cfg, "run.steps"));
    resolve_model(cfg);
    resolve_mesh(cfg);
    resolve_batch(cfg);
    refuse_on_ranks(cfg);
    refuse_in_parts(cfg);
    refuse_offloaded(cfg);
    resolve_optim(cfg);
    derive(cfg, "eval.stride", &cfg->eval.stride, cfg->model.context);
    if (cfg->eval.stride > cfg->model.context)
        die("%s: eval.stride %ld is larger than model.context %ld (it would leave tokens out)",
            where(cfg, "eval.stride"), cfg->eval.stride, cfg->model.context);
}
