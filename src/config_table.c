// config_table: one row for each key, and what can be done with a single row: read, print, describe it.
//
// A key exists because it stands in this table, and nowhere else: the parser, --help, the start-up table,
// the written config.toml and the reference in doc/config.md walk the rows. To add a key: add the member in
// config.h, add the row here, read the member where it matters (test_config fails while nobody reads it).
//
// The invariant: config_table_format() and config_table_parse() are inverse to each other for every row,
// so a written configuration is the configuration that ran.
//
// Rejected: a macro list that declares member and row at once (X-macros). It saves one line a key, and
// hides the struct that every other file reads from.
#include "config_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// (section, key, default, allowed values, unit, needs, help), as far as the type has them
#define ROW(s, k, type, def, allowed, unit, needs, help) \
    {#s "." #k, type, offsetof(Config, s.k), def, allowed, unit, needs, help}
#define INT(s, k, def, range, unit, needs, help) ROW(s, k, CONFIG_INTEGER, def, range, unit, needs, help)
#define NUM(s, k, def, range, unit, needs, help) ROW(s, k, CONFIG_NUMBER, def, range, unit, needs, help)
#define BOOL(s, k, def, help) ROW(s, k, CONFIG_BOOL, def, "", "", "", help)
#define TEXT(s, k, def, help) ROW(s, k, CONFIG_STRING, def, "", "", "", help)
#define ONE_OF(s, k, def, choices, help) ROW(s, k, CONFIG_CHOICE, def, choices, "", "", help)

static const ConfigKey TABLE[] = {
    TEXT(run, name, "run", "name of the run; its directory is run.dir/run.name"),
    TEXT(run, dir, "runs", "directory that holds the runs"),
    INT(run, seed, "1337", "[0, inf)", "", "", "seed of initial weights, data order and samples"),
    INT(run, steps, "0", "[0, inf)", "steps", "",
        "optimizer steps in all; 0: as many as run.minutes allows"),
    NUM(run, minutes, "0", "[0, inf)", "minutes", "run.steps=0",
        "training time; run.steps is derived from the measured speed"),
    INT(run, stop_at, "0", "[0, inf)", "steps", "",
        "end early at this step, with the schedule unchanged; 0: do not"),
    INT(run, log_every, "1", "[1, inf)", "steps", "", "steps from one logged step to the next"),
    INT(run, eval_every, "250", "[0, inf)", "steps", "",
        "steps from one evaluation to the next; 0: at the end only"),
    INT(run, save_every, "0", "[0, inf)", "steps", "",
        "steps from one checkpoint to the next; 0: at the end only"),
    INT(run, sample_every, "0", "[0, inf)", "steps", "",
        "steps from one sample to the next; 0: at the end only"),
    INT(run, threads, "0", "[0, 4096]", "threads", "", "CPU threads; 0: all cores"),
    BOOL(run, account, "false",
        "write account.json after the first step: the bytes held, by kind; compare build/plan memory"),
    INT(run, dump, "0", "[0, inf)", "steps", "",
        "write the weights, losses and gradients of this update (from 1) to dump/, for build/diff; 0: do not"),

    TEXT(data, train, "", "token shards to train on; a path or a pattern such as data/train_*.bin"),
    TEXT(data, val, "", "token shards to evaluate on; a path or a pattern"),
    TEXT(data, tokenizer, "", "folder of the tokenizer that made the shards"),
    TEXT(data, floor, "", "floor.json with the entropy of the validation text, where its source knows it"),
    BOOL(data, shuffle, "true",
        "windows of the training text in random order, anew each epoch; false: in the order of the files"),

    TEXT(model, preset, "", "preset of the model; its [model] section fills the model keys that are not set"),
    INT(model, layers, "4", "[1, 100000]", "", "", "transformer blocks"),
    INT(model, channels, "128", "[1, 1000000]", "", "", "width of the residual stream"),
    INT(model, heads, "4", "[1, 100000]", "", "", "query heads"),
    INT(model, kv_heads, "0", "[0, 100000]", "", "",
        "key/value heads; divides model.heads; 0: model.heads"),
    INT(model, head_size, "0", "[0, 100000]", "", "", "elements of one head; 0: channels / heads"),
    INT(model, ffn, "0", "[0, 10000000]", "", "",
        "width of the feed-forward layer; 0: 4 * channels for gelu; for swiglu 8/3 * channels, "
        "rounded up to a multiple of 64"),
    INT(model, vocab, "0", "[0, 2147483647]", "tokens", "", "vocabulary size; 0: the tokenizer's"),
    INT(model, context, "128", "[1, 100000000]", "tokens", "", "sequence length"),
    ONE_OF(model, norm, "layernorm", "layernorm|rmsnorm",
        "normalisation before attention, feed-forward and head"),
    NUM(model, norm_eps, "1e-5", "(0, 1]", "", "",
        "added to the variance (layernorm) or mean square (rmsnorm)"),
    ONE_OF(model, activation, "gelu", "gelu|swiglu",
        "feed-forward: gelu (tanh form), or swiglu with a gate matrix"),
    ONE_OF(model, position, "learned", "learned|rope",
        "learned position embedding, or rotary queries and keys"),
    NUM(model, rope_theta, "10000", "[1, inf)", "", "model.position=rope", "base of the rotary angles"),
    BOOL(model, bias, "true", "linear layers (and layernorm) have biases"),
    BOOL(model, tie, "true", "the head shares the token embedding's matrix"),
    BOOL(model, qk_norm, "false", "RMSNorm on each head's queries and keys"),

    INT(batch, tokens, "4096", "[1, inf)", "tokens", "",
        "tokens of one optimizer step, over all micro-batches"),
    INT(batch, micro, "8", "[1, 1000000]", "sequences", "",
        "sequences of one micro-batch: what is in memory at once"),
    INT(batch, accum, NULL, "[1, inf)", "micro-batches", "",
        "gradient accumulation: tokens / (micro * model.context)"),

    ONE_OF(optim, name, "adamw", "adamw", "optimizer"),
    NUM(optim, lr, "1e-3", "[0, inf)", "", "", "peak learning rate"),
    NUM(optim, min_lr, "-1", "[-1, inf)", "", "optim.schedule=cosine",
        "learning rate at the end; -1: lr / 10"),
    INT(optim, warmup, "50", "[0, inf)", "steps", "", "steps of linear growth from 0 to lr"),
    ONE_OF(optim, schedule, "cosine", "cosine|constant", "learning rate after the warm-up"),
    INT(optim, decay_steps, "0", "[0, inf)", "steps", "optim.schedule=cosine",
        "step from which on the learning rate is min_lr; 0: run.steps"),
    NUM(optim, beta1, "0.9", "[0, 1)", "", "", "decay of the mean of gradients"),
    NUM(optim, beta2, "0.95", "[0, 1)", "", "", "decay of the mean of squared gradients"),
    NUM(optim, eps, "1e-8", "(0, 1]", "", "", "added to the root of the second moment"),
    NUM(optim, weight_decay, "0.1", "[0, inf)", "", "",
        "decoupled decay of the matrices (never of vectors)"),
    NUM(optim, clip, "1.0", "[0, inf)", "", "", "largest global gradient norm; 0: off"),

    INT(eval, tokens, "0", "[0, inf)", "tokens", "",
        "tokens to evaluate on; 0: the whole validation set"),
    INT(eval, stride, "0", "[0, inf)", "tokens", "",
        "from one window to the next; 0: model.context, no overlap. Each token is scored once; the smaller "
        "the stride, the more context it has: at least context - stride tokens"),

    TEXT(sample, prompt, "", "text that the samples continue; empty: start of a document"),
    INT(sample, tokens, "200", "[1, inf)", "tokens", "", "length of one sample"),
    INT(sample, count, "1", "[0, 1000000]", "", "", "samples at a time; 0: none"),
    NUM(sample, temperature, "0.8", "[0, inf)", "", "",
        "divides the logits; 0: always the likeliest token"),
    INT(sample, top_k, "0", "[0, inf)", "tokens", "sample.temperature>0",
        "draw from the k likeliest tokens; 0: all"),
    NUM(sample, top_p, "1.0", "(0, 1]", "", "sample.temperature>0",
        "draw from the fewest tokens that hold this probability; 1: all"),

    BOOL(ckpt, resume, "false", "continue from the run's newest complete checkpoint"),
    INT(ckpt, keep, "2", "[0, inf)", "", "", "newest checkpoints to keep; 0: all"),
};
enum { N_KEYS = sizeof TABLE / sizeof *TABLE };
_Static_assert((int)N_KEYS <= (int)CONFIG_MAX_KEYS, "Config.origin has one entry for each row");

const ConfigKey *config_table(int *n_keys)
{
    *n_keys = N_KEYS;
    return TABLE;
}

int config_table_find(const char *name)
{
    for (int i = 0; i < N_KEYS; i++)
        if (!strcmp(TABLE[i].name, name)) return i;
    return -1;
}

int config_table_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1];
    int n = (int)strlen(b);
    if (strlen(a) > LONGEST || n > LONGEST) return 1000;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int replace = diagonal + (a[i - 1] != b[j - 1]);
            int insert = row[j - 1] + 1, delete = row[j] + 1;
            diagonal = row[j];
            row[j] = replace;
            if (insert < row[j]) row[j] = insert;
            if (delete < row[j]) row[j] = delete;
        }
    }
    return row[n];
}

const char *config_table_section(const char *name, int *n)
{
    const char *best = NULL;
    int best_distance = 0;
    for (int i = 0; i < N_KEYS; i++) {
        char section[32];
        int length = (int)strcspn(TABLE[i].name, ".");
        snprintf(section, sizeof section, "%.*s", length, TABLE[i].name);
        int distance = config_table_distance(name, section);
        if (best && distance >= best_distance) continue;
        best = TABLE[i].name;
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
    int best = -1, best_distance = (int)strlen(short_name) / 2 + 2;
    for (int i = 0; i < N_KEYS; i++) {
        int whole = config_table_distance(name, TABLE[i].name);
        int key_only = 2 + config_table_distance(short_name, strchr(TABLE[i].name, '.') + 1);
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

// `needs` is "section.key=value" or "section.key>0".
bool config_table_has_effect(const ConfigKey *key, const Config *cfg, int *needed)
{
    if (!*key->needs) return true;
    char name[64], value[CONFIG_TEXT];
    size_t n = strcspn(key->needs, "=>");
    snprintf(name, sizeof name, "%.*s", (int)n, key->needs);
    *needed = config_table_find(name);
    config_table_format(&TABLE[*needed], cfg, value, sizeof value);
    return key->needs[n] == '>' ? strtod(value, NULL) > 0 : !strcmp(value, key->needs + n + 1);
}
