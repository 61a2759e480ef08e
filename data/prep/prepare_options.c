// prepare_options: the command line of build/prepare.
//
// One table of options drives the parser and --help.
#include "data/prep/prepare_options.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer.h"
#include "base/words.h"

enum { TOKENS = PREPARE_TOKENS, TRAIN = PREPARE_TRAIN, ENCODE = PREPARE_ENCODE, DECODE = PREPARE_DECODE };

typedef struct {
    const char *name, *value; // --name VALUE; value NULL: a switch
    int commands;
    size_t at; // the field of PrepareOptions, a const char *
    const char *preset, *help;
} OptionRow;

#define AT(field) offsetof(PrepareOptions, field)
static const OptionRow option_rows[] = {
    {"input", "PATH...", TOKENS | TRAIN, 0, NULL, "text, JSONL, .gz, .zst, folders of them, - (standard input)"},
    {"train", "FILE", TOKENS, AT(train), NULL,
     "training text, when the split is given: with --val-file"},
    {"val-file", "FILE", TOKENS, AT(val_file), NULL, "validation text"},
    {"out", "DIR", TOKENS | TRAIN, AT(out), NULL,
     "the folder to write to, made if it is not there"},
    {"vocab", "N", TOKENS | TRAIN, AT(vocab), "4096",
     "size of the vocabulary to train, 257 or more"},
    {"pattern", "NAME", TOKENS | TRAIN, AT(pattern), "gpt2",
     "how text is cut into words: gpt2 or cl100k"},
    {"val", "PART", TOKENS, AT(val), "0.1",
     "the last part of the input, for validation; 0: none"},
    {"tokenizer", "DIR", TOKENS | ENCODE | DECODE, AT(tokenizer), NULL,
     "the folder of a tokenizer to use (tokens: instead of training one)"},
    {"format", "NAME", TOKENS | TRAIN, AT(format), "auto", "auto (by the file's name), text or jsonl"},
    {"field", "NAME", TOKENS | TRAIN, AT(field), "text", "the field of JSONL that is the document"},
    {"separator", "TEXT", TOKENS | TRAIN, AT(separator), TOKENIZER_EOT,
     "what stands between documents in a text file; empty: nothing, a file is a document"},
    {"separator-line", "TEXT", TOKENS | TRAIN, AT(line), NULL, "instead: a line that is this alone"},
    {"strict", NULL, TOKENS | TRAIN, AT(strict), NULL, "a bad line of JSONL is an error, not left out"},
    {"dtype", "NAME", TOKENS, AT(dtype), "auto",
     "of the shards: auto (by the vocabulary), uint16 or uint32"},
    {"shard-tokens", "N", TOKENS, AT(shard_tokens), "100000000",
     "the most tokens in one shard"},
    {"threads", "N", TOKENS | TRAIN, AT(threads), "0",
     "to count words and encode with; 0: all; changes no byte of what is written"},
    {"special", NULL, ENCODE, AT(special), NULL,
     "encode " TOKENIZER_EOT " in the text as that token"},
};
enum { N_OPTIONS = sizeof option_rows / sizeof *option_rows };

static const struct {
    const char *name;
    int bit;
    const char *help;
} commands[] = {
    {"tokens", TOKENS, "text to a tokenizer and token shards"},
    {"train-tokenizer", TRAIN, "text to a tokenizer"},
    {"encode", ENCODE, "FILE: text to ids, separated by spaces, on one line (- reads standard input)"},
    {"decode", DECODE, "FILE: ids to text (- reads standard input)"},
};

void prepare_options_help(void)
{
    printf("usage: prepare COMMAND [--option VALUE]...\n");
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        printf("\nprepare %s: %s\n", commands[c].name, commands[c].help);
        for (int i = 0; i < N_OPTIONS; i++) {
            const OptionRow *row = &option_rows[i];
            char left[40];
            if (!(row->commands & commands[c].bit)) continue;
            snprintf(left, sizeof left, "--%s %s", row->name, row->value ? row->value : "");
            printf("  %-20s %s%s%s%s\n", left, row->help, row->preset ? " [" : "",
                   row->preset ? row->preset : "", row->preset ? "]" : "");
        }
    }
    printf("\nprepare RECIPE.toml [--section.key=value]...: what the file says (--keys lists what it may say)\n");
    printf("\nexample: prepare tokens --input book.txt --out runs/book/data --vocab 1024\n");
}

static const OptionRow *find_option(const char *name, size_t n, int command)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (strlen(option_rows[i].name) == n && memcmp(option_rows[i].name, name, n) == 0 &&
            (option_rows[i].commands & command))
            return &option_rows[i];
    return NULL;
}

static void add_input(PrepareOptions *o, const char *path)
{
    o->input = words_grow(o->input, &o->cap_inputs, o->n_inputs + 1, sizeof *o->input);
    o->input[o->n_inputs++] = path;
}

static bool is_given(const PrepareOptions *o, const char *name)
{
    const OptionRow *row = find_option(name, strlen(name), o->command);
    const char *value = row ? *(const char *const *)((const char *)o + row->at) : NULL;
    return value && value != row->preset;
}

// An option that another one leaves without effect is a misunderstanding.
static void refuse_useless(const PrepareOptions *o, const char *command)
{
    static const char *const useless[][2] = {{"vocab", "tokenizer"}, {"pattern", "tokenizer"}, {"val", "val-file"},
                                             {"separator", "separator-line"}};
    for (int i = 0; i < 4; i++)
        if (is_given(o, useless[i][0]) && is_given(o, useless[i][1]))
            die_usage("prepare %s: --%s has no effect beside --%s (leave one out)", command, useless[i][0],
                      useless[i][1]);
}

PrepareOptions prepare_options_read(int argc, char **argv)
{
    PrepareOptions o = {0};
    if (argc < 2)
        die_usage("prepare: no command (tokens, train-tokenizer, encode, decode; --help says more)");
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
        if (strcmp(argv[1], commands[c].name) == 0) o.command = commands[c].bit;
    if (!o.command)
        die_usage("prepare: '%s': not a command (tokens, train-tokenizer, encode, decode)", argv[1]);
    for (int i = 0; i < N_OPTIONS; i++)
        if (option_rows[i].preset) *(const char **)((char *)&o + option_rows[i].at) = option_rows[i].preset;
    bool in_inputs = false; // --input takes several paths
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            if (in_inputs) add_input(&o, argv[i]);
            else if ((o.command & (ENCODE | DECODE)) && !o.file) o.file = argv[i];
            else
                die_usage("prepare %s: '%s': what is it? (options start with --, see --help)", argv[1],
                          argv[i]);
            continue;
        }
        const char *name = argv[i] + 2, *equals = strchr(name, '=');
        const OptionRow *row = find_option(name, equals ? (size_t)(equals - name) : strlen(name), o.command);
        if (!row) die_usage("prepare %s: '%s': no such option (see --help)", argv[1], argv[i]);
        const char *value = row->value ? equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL : "yes";
        if (!value || (!row->value && equals))
            die_usage("prepare %s: '%s': takes %s", argv[1], argv[i], row->value ? row->value : "no value");
        in_inputs = row == &option_rows[0];
        if (in_inputs) add_input(&o, value);
        else *(const char **)((char *)&o + row->at) = value;
    }
    refuse_useless(&o, argv[1]);
    return o;
}

long long prepare_options_count(const char *name, const char *text, long long low, long long high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        die("prepare: --%s: '%s' (a whole number from %lld to %lld)", name, text, low, high);
    return value;
}
