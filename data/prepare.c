// prepare: from text to what the trainer reads: a tokenizer and token shards.
//
//   prepare tokens           text -> tokenizer.json, train_*.bin, val_*.bin, manifest.json
//   prepare train-tokenizer  text -> tokenizer.json
//   prepare encode           text -> token ids on one line
//   prepare decode           token ids -> text
//
// The order of `tokens`: read the documents, split off the validation part, train the tokenizer on the
// training part alone, encode both, write. Every document starts with <|endoftext|>, llm.c's convention: a
// model that is asked to begin with that token begins a document. The same input and options give the same
// files, byte for byte: nothing here is random (the order of training is drawn by the loader, see dataset.c).
//
// One table of options drives the parser and --help. Exit status: 0 done, 1 something is wrong with the files
// or values, 2 with the command line.
#define _GNU_SOURCE // memmem
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "check.h"
#include "corpus.h"
#include "dataset.h"
#include "disk.h"
#include "tokenizer.h"
#include "words.h"

enum { TOKENS = 1, TRAIN = 2, ENCODE = 4, DECODE = 8 }; // commands, as bits: which take an option

typedef struct {
    int command;
    const char **input; // (n_inputs)
    size_t n_inputs, cap_inputs;
    const char *train, *val_file, *out, *vocab, *pattern, *val, *tokenizer, *separator, *dtype, *shard_tokens,
        *special;
    const char *file; // encode, decode
} Options;

typedef struct {
    const char *name, *value; // --name VALUE; value NULL: a switch
    int commands;
    size_t at; // the field of Options, a const char *
    const char *preset, *help;
} OptionRow;

static const OptionRow option_rows[] = {
    {"input", "PATH...", TOKENS | TRAIN, 0, NULL, "text files, or folders of them (each file a document)"},
    {"train", "FILE", TOKENS, offsetof(Options, train), NULL,
     "training text, when the split is given: with --val-file"},
    {"val-file", "FILE", TOKENS, offsetof(Options, val_file), NULL, "validation text"},
    {"out", "DIR", TOKENS | TRAIN, offsetof(Options, out), NULL,
     "the folder to write to, made if it is not there"},
    {"vocab", "N", TOKENS | TRAIN, offsetof(Options, vocab), "4096",
     "size of the vocabulary to train, 257 or more"},
    {"pattern", "NAME", TOKENS | TRAIN, offsetof(Options, pattern), "gpt2",
     "how text is cut into words: gpt2 or cl100k"},
    {"val", "PART", TOKENS, offsetof(Options, val), "0.1",
     "the last part of the input, for validation; 0: none"},
    {"tokenizer", "DIR", TOKENS | ENCODE | DECODE, offsetof(Options, tokenizer), NULL,
     "the folder of a tokenizer to use (tokens: instead of training one)"},
    {"separator", "TEXT", TOKENS | TRAIN, offsetof(Options, separator), TOKENIZER_EOT,
     "what stands between documents in a file"},
    {"dtype", "NAME", TOKENS, offsetof(Options, dtype), "auto",
     "of the shards: auto (by the vocabulary), uint16 or uint32"},
    {"shard-tokens", "N", TOKENS, offsetof(Options, shard_tokens), "100000000",
     "the most tokens in one shard"},
    {"special", NULL, ENCODE, offsetof(Options, special), NULL,
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

// ---- the command line ----
static void print_help(void)
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

static void add_input(Options *o, const char *path)
{
    o->input = words_grow(o->input, &o->cap_inputs, o->n_inputs + 1, sizeof *o->input);
    o->input[o->n_inputs++] = path;
}

static Options parse(int argc, char **argv)
{
    Options o = {0};
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
    return o;
}

static long long parse_count(const char *name, const char *text, long long low, long long high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        die("prepare: --%s: '%s' (a whole number from %lld to %lld)", name, text, low, high);
    return value;
}

// ---- the work ----
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Makes the folder, and those above it.
static void make_folder(const char *path)
{
    char *part = strdup(path);
    if (!part) die("memory: no room for a file name");
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(part, 0777); // what fails here fails again below
        *p = '/';
    }
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
        die("%s: %s (--out is the folder to write to)", path, strerror(errno));
    struct stat st;
    if (stat(part, &st) != 0 || !S_ISDIR(st.st_mode))
        die("%s: not a folder (--out is the folder to write to)", path);
    if (access(part, W_OK | X_OK) != 0) die("%s: %s (--out must be writable)", path, strerror(errno));
    free(part);
}

static Tokenizer *train_tokenizer(const Options *o, const CorpusDoc *doc, size_t n_docs)
{
    double start = seconds();
    int vocab = (int)parse_count("vocab", o->vocab, 257, 1 << 24);
    TokenizerTrainer *trainer = tokenizer_trainer_new(o->pattern);
    for (size_t i = 0; i < n_docs; i++) tokenizer_trainer_add(trainer, doc[i].text, doc[i].n_bytes);
    Tokenizer *t = tokenizer_trainer_finish(trainer, vocab);
    fprintf(stderr, "tokenizer: %d tokens trained in %.1f s%s\n", tokenizer_vocab_size(t), seconds() - start,
            tokenizer_vocab_size(t) < vocab ? " (fewer than asked: no pair is left to merge)" : "");
    return t;
}

// One part, train or val, of the output.
typedef struct {
    const char *name;
    const CorpusDoc *doc; // (n_docs)
    size_t n_docs;
} Part;

// Encodes and writes a part as out/NAME_000000.bin and up; returns its entry in the manifest.
static json_t *write_part(const Options *o, Tokenizer *t, Part part)
{
    double start = seconds();
    int64_t most = parse_count("shard-tokens", o->shard_tokens, 1, INT32_MAX), n_tokens = 0, n_bytes = 0,
            in_shard = 0;
    DatasetType type = strcmp(o->dtype, "uint16") == 0   ? DATASET_U16
                       : strcmp(o->dtype, "uint32") == 0 ? DATASET_U32
                                                         : DATASET_AUTO;
    json_t *files = json_array();
    char path[4096];
    int n_shards = 0;
    DatasetWriter *w = NULL;
    TokenIds ids = {0};
    for (size_t d = 0; d < part.n_docs; d++) {
        ids.n = 0;
        token_ids_push(&ids, tokenizer_eot(t));
        tokenizer_encode(t, part.doc[d].text, part.doc[d].n_bytes, &ids);
        n_bytes += (int64_t)part.doc[d].n_bytes;
        n_tokens += (int64_t)ids.n;
        for (size_t at = 0, take; at < ids.n; at += take) {
            if (w && in_shard == most) dataset_writer_finish(w), w = NULL;
            if (!w) {
                int n = snprintf(path, sizeof path, "%s/%s_%06d.bin", o->out, part.name, n_shards++);
                if (n >= (int)sizeof path) die("%s: the name is too long", o->out);
                json_array_append_new(files, json_string(strrchr(path, '/') + 1));
                w = dataset_writer_open(path, tokenizer_vocab_size(t), type);
                in_shard = 0;
            }
            take = ids.n - at < (size_t)(most - in_shard) ? ids.n - at : (size_t)(most - in_shard);
            dataset_writer_append(w, ids.id + at, take);
            in_shard += (int64_t)take;
        }
    }
    if (w) dataset_writer_finish(w);
    do snprintf(path, sizeof path, "%s/%s_%06d.bin", o->out, part.name, n_shards++);
    while (unlink(path) == 0); // shards that an earlier run left behind: a glob would find them
    token_ids_free(&ids);
    double per_token = n_tokens ? (double)n_bytes / (double)n_tokens : 0;
    fprintf(stderr, "%s: %zu documents, %lld bytes, %lld tokens, %.3f bytes/token, %.1f s\n", part.name,
            part.n_docs, (long long)n_bytes, (long long)n_tokens, per_token, seconds() - start);
    return json_pack("{s:o, s:I, s:I, s:I, s:f}", "files", files, "documents", (json_int_t)part.n_docs,
                     "bytes", (json_int_t)n_bytes, "tokens", (json_int_t)n_tokens, "bytes_per_token",
                     per_token);
}

static void add_sources(json_t *sources, const Corpus *corpus)
{
    for (size_t i = 0; i < corpus->n_files; i++) {
        const CorpusFile *f = &corpus->file[i];
        XXH128_hash_t h = XXH3_128bits(f->buffer, f->n_bytes);
        char hex[33];
        snprintf(hex, sizeof hex, "%016llx%016llx", (unsigned long long)h.high64,
                 (unsigned long long)h.low64);
        json_array_append_new(sources, json_pack("{s:s%, s:I, s:s}", "path", f->path, strlen(f->path),
                                                 "bytes", (json_int_t)f->n_bytes, "xxh3_128", hex));
    }
}

static void save_manifest(json_t *manifest, const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    char *text = manifest ? json_dumps(manifest, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    if (!text) die("%s: cannot be put together (are all file names UTF-8?)", path);
    if (!disk_replace_file(path, text, strlen(text)))
        die("%s: %s (is the disk full?)", path, strerror(errno));
    free(text);
    json_decref(manifest);
}

static int do_tokens(const Options *o)
{
    double start = seconds();
    bool given = o->train && o->val_file;
    if (!o->out || given == (o->n_inputs > 0) || !o->train != !o->val_file)
        die_usage(
            "prepare tokens: give --out and either --input or both --train and --val-file (see --help)");
    if (strcmp(o->dtype, "auto") != 0 && strcmp(o->dtype, "uint16") != 0 && strcmp(o->dtype, "uint32") != 0)
        die("prepare: --dtype: '%s' (auto, uint16 or uint32)", o->dtype);
    char *end;
    double fraction = strtod(o->val, &end);
    if (end == o->val || *end || !(fraction >= 0 && fraction < 1))
        die("prepare: --val: '%s' (a number from 0 to below 1)", o->val);
    make_folder(o->out);
    Corpus corpus = {0}, val = {0};
    if (given) {
        corpus_add(&corpus, o->train, o->separator);
        corpus_add(&val, o->val_file, o->separator);
    }
    for (size_t i = 0; i < o->n_inputs; i++) corpus_add(&corpus, o->input[i], o->separator);
    fprintf(stderr, "input: %zu files, %zu documents, %llu bytes\n", corpus.n_files + val.n_files,
            corpus.n_docs + val.n_docs, (unsigned long long)(corpus.n_bytes + val.n_bytes));
    size_t n_train = given ? corpus.n_docs : corpus_split(&corpus, fraction);
    Tokenizer *t = o->tokenizer ? tokenizer_load(o->tokenizer) : train_tokenizer(o, corpus.doc, n_train);
    if (tokenizer_eot(t) < 0)
        die("%s: its vocabulary has no " TOKENIZER_EOT " (needed between documents)", o->tokenizer);
    int vocab = tokenizer_vocab_size(t);
    if (strcmp(o->dtype, "uint16") == 0 && vocab > 65535)
        die("prepare: --dtype: a vocabulary of %d tokens does not fit in uint16: at most 65535 (use uint32)",
            vocab);
    tokenizer_save(t, o->out);
    Part parts[2] = {{"train", corpus.doc, n_train}, {"val", corpus.doc + n_train, corpus.n_docs - n_train}};
    if (given) parts[1] = (Part){"val", val.doc, val.n_docs};
    json_t *train_json = write_part(o, t, parts[0]), *val_json = write_part(o, t, parts[1]),
           *sources = json_array();
    add_sources(sources, &corpus);
    add_sources(sources, &val);
    save_manifest(json_pack("{s:i, s:i, s:i, s:s, s:s, s:o, s:o, s:o}", "version", 1, "vocab_size", vocab,
                            "eot", tokenizer_eot(t), "pattern", tokenizer_pattern(t), "dtype",
                            strcmp(o->dtype, "uint32") == 0 || vocab > 65535 ? "uint32" : "uint16", "train",
                            train_json, "val", val_json, "sources", sources),
                  o->out);
    fprintf(stderr, "done: %s, %.1f s in all\n", o->out, seconds() - start);
    tokenizer_free(t);
    corpus_free(&corpus);
    corpus_free(&val);
    return 0;
}

static int do_train_tokenizer(const Options *o)
{
    if (!o->out || !o->n_inputs) die_usage("prepare train-tokenizer: give --input and --out (see --help)");
    make_folder(o->out);
    Corpus corpus = {0};
    for (size_t i = 0; i < o->n_inputs; i++) corpus_add(&corpus, o->input[i], o->separator);
    fprintf(stderr, "input: %zu files, %zu documents, %llu bytes\n", corpus.n_files, corpus.n_docs,
            (unsigned long long)corpus.n_bytes);
    Tokenizer *t = train_tokenizer(o, corpus.doc, corpus.n_docs);
    tokenizer_save(t, o->out);
    tokenizer_free(t);
    corpus_free(&corpus);
    return 0;
}

static void encode_text(Tokenizer *t, const char *text, size_t n, bool special, TokenIds *ids)
{
    size_t n_eot = strlen(TOKENIZER_EOT);
    const char *next;
    while (special && tokenizer_eot(t) >= 0 && (next = memmem(text, n, TOKENIZER_EOT, n_eot))) {
        tokenizer_encode(t, text, (size_t)(next - text), ids);
        token_ids_push(ids, tokenizer_eot(t));
        n -= (size_t)(next - text) + n_eot;
        text = next + n_eot;
    }
    tokenizer_encode(t, text, n, ids);
}

static void decode_text(const Tokenizer *t, const CorpusFile *file)
{
    const char *at = file->buffer; // 0-terminated by the caller
    for (long long number = 1;; number++) {
        at += strspn(at, " \t\r\n");
        if (at == file->buffer + file->n_bytes) break;
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || errno || id < 0 || id >= tokenizer_vocab_size(t) || !strchr(" \t\r\n", *end))
            die("%s: number %lld, '%.*s': not a token id (0 to %d, separated by spaces)", file->path, number,
                (int)strcspn(at, " \t\r\n") % 40, at, tokenizer_vocab_size(t) - 1);
        at = end;
        size_t n;
        const char *bytes = tokenizer_decode(t, (int32_t)id, &n);
        fwrite(bytes, 1, n, stdout);
    }
}

static int do_encode_or_decode(const Options *o)
{
    bool encode = o->command == ENCODE;
    if (!o->tokenizer || !o->file)
        die_usage("prepare %s: give --tokenizer DIR and a file (see --help)", encode ? "encode" : "decode");
    CorpusFile file = corpus_read(strcmp(o->file, "-") == 0 ? "/dev/stdin" : o->file);
    Tokenizer *t = tokenizer_load(o->tokenizer);
    if (encode) {
        TokenIds ids = {0};
        encode_text(t, file.buffer, file.n_bytes, o->special, &ids);
        for (size_t i = 0; i < ids.n; i++) printf(i ? " %d" : "%d", ids.id[i]);
        putchar('\n');
        token_ids_free(&ids);
    } else {
        file.buffer[file.n_bytes] = 0; // corpus_read leaves room
        decode_text(t, &file);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) die("standard output: %s", strerror(errno));
    tokenizer_free(t);
    free(file.path);
    free(file.buffer);
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help();
            return 0;
        }
    Options o = parse(argc, argv);
    int status = o.command == TOKENS  ? do_tokens(&o)
                 : o.command == TRAIN ? do_train_tokenizer(&o)
                                      : do_encode_or_decode(&o);
    free(o.input);
    return status;
}
