// prepare: from text to what the trainer reads: a tokenizer and token shards.
//
//   prepare tokens           text -> tokenizer.json, train_*.bin, val_*.bin, manifest.json
//   prepare train-tokenizer  text -> tokenizer.json
//   prepare encode, decode   text -> token ids on one line, and back: short for prepare tokenizer encode, decode
//   prepare show             a run and the number of a sample -> the text that the run trains on there
//   prepare filter, dedup    what quality rules and duplicates would take from a corpus, and why (data/commands)
//   prepare tokenizer        trains, tries, converts and times tokenizers (data/commands)
//   prepare RECIPE.toml      all of it and more, as the file says: filter, dedup, shuffle, several sources (recipe.h);
//                            on several ranks too, with mpiexec in front
//
// The order of `tokens`: read the documents, split off the validation part, train the tokenizer on the
// training part alone, encode both, write. Every document starts with <|endoftext|>, llm.c's convention: a
// model that is asked to begin with that token begins a document. The same input and options give the same
// files, byte for byte: nothing here is random (the order of training is drawn by the loader, see dataset.c).
//
// The files of `tokens` and `train-tokenizer` are written aside and replace those of an earlier run together
// (disk_folder.h). A tokenizer never replaces the one that shards beside it were made with.
//
// Input is whatever corpus_open reads, standard input and packed files too, and is read once: the documents wait in a
// file without a name in the output folder. Memory holds 8 bytes a document, a batch of them (16 MiB, or the longest
// document) and the words that the tokenizer counts.
//
// Exit status: 0 done, 1 something is wrong with the files or values, 2 with the command line, 3 a corpus without text,
// or done, but more than a tenth of its documents is lost.
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "data/commands/prepare.h"
#include "base/clock.h"
#include "data/prep/corpus.h"
#include "base/disk.h"
#include "tools/disk_folder.h"
#include "tools/options.h"
#include "comm/launch.h"
#include "data/prep/recipe.h"
#include "data/prep/recipe_stage.h"
#include "data/prep/shards.h"
#include "text/dataset.h"
#include "tokenizer/chat.h"
#include "tokenizer/pretoken.h"
#include "tokenizer/tokenizer.h"
#include "base/words.h"

enum { TOKENS = 1, TRAIN = 2, SHOW = 4, BATCH_BYTES = 16 << 20 };

// ---- the command line
typedef struct {
    int command; // TOKENS ...
    OptionList input;
    const char *train, *val_file, *out, *vocab, *pattern, *val, *tokenizer, *format, *field, *separator, *line, *dtype,
        *special, *chat;
    const char *shard_tokens, *threads, *file, *eot;
    size_t max_document, least, sample, samples; // MiB; times; number of the first sample, how many
    bool strict;
} Options;

static const struct {
    const char *name;
    int bit;
    const char *help;
} commands[] = {
    {"tokens", TOKENS, "text to a tokenizer and token shards"},
    {"train-tokenizer", TRAIN, "text to a tokenizer"},
    {"show", SHOW, "RUN: what a sample of its training is, as text; RUN is its folder or its config.toml"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };
static const struct { // with options of their own
    const char *name, *help;
    int (*run)(int argc, char **argv);
} tools[] = {
    {"filter", "what quality rules would remove from a corpus, and why", prepare_filter},
    {"dedup", "exact and near duplicates, and pieces of an evaluation set", prepare_dedup},
    {"encode", "text to ids, separated by spaces, on one line", prepare_tokenizer},
    {"decode", "ids to text", prepare_tokenizer},
    {"tokenizer", "trains, tries, converts and times tokenizers", prepare_tokenizer},
};
enum { TOOLS = sizeof tools / sizeof *tools };
#define NAMES "tokens, train-tokenizer, show, filter, dedup, encode, decode, tokenizer"

// An option that another one leaves without effect is a misunderstanding.
static void refuse_useless(const OptionSet *set)
{
    static const char *const useless[][2] = {{"--vocab", "--tokenizer"}, {"--pattern", "--tokenizer"},
                                             {"--min-frequency", "--tokenizer"}, {"--special-tokens", "--tokenizer"},
                                             {"--val", "--val-file"}, {"--separator", "--separator-line"}};
    for (int i = 0; i < 6; i++)
        if (options_given(set, useless[i][0]) && options_given(set, useless[i][1]))
            die_usage("%s: %s has no effect beside %s (leave one out)", set->program, useless[i][0], useless[i][1]);
}

static void print_help(OptionSet set)
{
    printf("usage: prepare COMMAND [--option VALUE]...\n");
    for (int c = 0; c < COMMANDS; c++) {
        printf("\nprepare %s: %s\n", commands[c].name, commands[c].help);
        set.where = commands[c].bit;
        options_print(&set);
    }
    for (int c = 0; c < TOOLS; c++) printf("\nprepare %s: %s (prepare %s --help)\n", tools[c].name, tools[c].help, tools[c].name);
    printf("\nprepare RECIPE.toml [--section.key=value]...: what the file says (--keys lists what it may say)\n");
    printf("\nexit status: 1 an error, 2 of the command line, 3 no text in a corpus, or done with more than a tenth\n"
           "of its documents lost (bad lines, too long, ill-formed UTF-8)\n");
    printf("\nexample: prepare tokens --input book.txt --out runs/book/data --vocab 1024\n");
}

// The command's bit; 0: there is none, but a recipe. Prints the help and ends, where that is asked for.
static int find_command(int argc, char **argv, OptionSet set)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(set);
            exit(0);
        }
    size_t n_name = argc > 1 ? strlen(argv[1]) : 0;
    if (n_name > 5 && strcmp(argv[1] + n_name - 5, ".toml") == 0) return 0;
    if (argc < 2) die_usage("prepare: no command (" NAMES "; --help says more)");
    for (int c = 0; c < COMMANDS; c++)
        if (strcmp(argv[1], commands[c].name) == 0) return commands[c].bit;
    die_usage("prepare: '%s': not a command (" NAMES ")", argv[1]);
}

static Options read_options(int argc, char **argv)
{
    Options o = {.vocab = "4096", .pattern = "gpt2", .val = "0.1", .format = "auto", .field = "text", .dtype = "auto",
                 .max_document = CORPUS_MIB, .separator = TOKENIZER_EOT, .shard_tokens = "100000000", .threads = "0",
                 .least = 1, .samples = 1};
    char program[64];
    Option row[] = {
        OPTION(WORDS, "--input", "PATH...", "text, JSONL, Parquet, WET (WARC), .gz, .zst, folders, -", &o.input,
               .where = TOKENS | TRAIN),
        OPTION(TEXT, "--train", "FILE", "training text, when the split is given: with --val-file", &o.train,
               .where = TOKENS),
        OPTION(TEXT, "--val-file", "FILE", "validation text", &o.val_file, .where = TOKENS),
        OPTION(TEXT, "--out", "DIR", "the folder to write to, made if it is not there", &o.out,
               .where = TOKENS | TRAIN),
        OPTION(TEXT, "--vocab", "N", "size of the vocabulary to train, 257 or more [4096]", &o.vocab,
               .where = TOKENS | TRAIN),
        OPTION(TEXT, "--pattern", "NAME", "how text is cut into words: " PRETOKEN_NAMES " [gpt2]", &o.pattern,
               .where = TOKENS | TRAIN),
        OPTION(TEXT, "--val", "PART", "the last part of the input, for validation; 0: none [0.1]", &o.val,
               .where = TOKENS),
        OPTION(SIZE, "--min-frequency", "N", "the fewest times that a merged pair is seen [1]", &o.least, .least = 1,
               .most = 1e15, .where = TOKENS | TRAIN),
        OPTION(TEXT, "--special-tokens", "LIST", "more special tokens of that vocabulary: [UNK],[BOS],[EOS],[PAD]", &o.special,
               .where = TOKENS | TRAIN),
        OPTION(TEXT, "--tokenizer", "PATH", "a tokenizer to use instead of training one: its folder, "
               "tokenizer.json or SentencePiece *.model", &o.tokenizer, .where = TOKENS),
        OPTION(TEXT, "--eot", "TOKEN", "the special token of --tokenizer that documents start with ["
               TOKENIZER_EOT ", <|end_of_text|> or its eos_token]", &o.eot, .where = TOKENS),
        OPTION(TEXT, "--chat", "FORM", "the input is conversations, JSONL with \"messages\"; how their turns are written: "
               CHAT_NAMES ", or template: as the tokenizer's chat_template says", &o.chat, .where = TOKENS),
        OPTION(TEXT, "--format", "NAME", "auto (by the file's name), text, jsonl, parquet or warc [auto]", &o.format,
               .where = TOKENS | TRAIN),
        OPTION(TEXT, "--field", "NAME", "the field of JSONL, or column of Parquet, of the document [text]", &o.field,
               .where = TOKENS | TRAIN),
        OPTION(TEXT, "--separator", "TEXT", "what stands between documents in a text file; empty: nothing, a file is a "
               "document [" TOKENIZER_EOT "]", &o.separator, .where = TOKENS | TRAIN),
        OPTION(TEXT, "--separator-line", "TEXT", "instead: a line that is this alone", &o.line,
               .where = TOKENS | TRAIN),
        OPTION(SWITCH, "--strict", NULL, "a bad line of JSONL is an error, not left out", &o.strict,
               .where = TOKENS | TRAIN),
        OPTION(SIZE, "--max-document", "MIB", "a longer line of JSONL is left out, a longer text is an error [64]",
               &o.max_document, .least = 1, .most = CORPUS_MOST_MIB, .where = TOKENS | TRAIN),
        OPTION(TEXT, "--dtype", "NAME", "of the shards: auto (by the vocabulary), uint16 or uint32 [auto]", &o.dtype,
               .where = TOKENS),
        OPTION(TEXT, "--shard-tokens", "N", "the most tokens in one shard [100000000]", &o.shard_tokens,
               .where = TOKENS),
        OPTION(TEXT, "--threads", "N", "to count words and encode with; 0: all; changes no byte of what is written [0]",
               &o.threads, .where = TOKENS | TRAIN),
        OPTION(SIZE, "--sample", "N", "number of the first sample, as the run's messages have it [0]", &o.sample,
               .most = 1e15, .where = SHOW),
        OPTION(SIZE, "--count", "N", "how many [1]", &o.samples, .least = 1, .most = 1e9, .where = SHOW)};
    OptionSet set = {program, NULL, row, sizeof row / sizeof *row, .quote = "'"};
    o.command = find_command(argc, argv, set);
    if (!o.command) return o;
    set.where = o.command;
    snprintf(program, sizeof program, "prepare %s", argv[1]);
    size_t n_words = options_read(&set, argc - 1, argv + 1);
    if (o.command == SHOW && n_words) o.file = argv[2], n_words--;
    if (n_words)
        die_usage("%s: '%s': what is it? (options start with --, see --help)", program, argv[o.file ? 3 : 2]);
    refuse_useless(&set);
    return o;
}

static long long count(const char *name, const char *text, long long low, long long high)
{
    return options_count("prepare", name, text, low, high);
}

// ---- documents through the tokenizer, in batches, each on all threads
//
// What is written depends on the documents and the tokenizer alone, not on where a batch ends and not on the threads:
// the tokenizer promises that for a list of texts (tokenizer_encode_texts), and a list of lists is one.

// Documents of the store, one behind the other.
typedef struct {
    char *bytes;
    TokenizerText *text; // (n)
    size_t *end;         // (n), for tokenizer_encode_texts
    size_t n, cap, cap_text, cap_end;
    uint64_t n_bytes;
} Batch; // starts as {0}

// Documents from `from` on and before `to`: one, and more up to BATCH_BYTES. Returns the number behind the last.
static size_t read_batch(const CorpusStore *store, size_t from, size_t to, Batch *b)
{
    size_t next = from;
    for (b->n_bytes = 0; next < to; next++) {
        if (next > from && b->n_bytes + corpus_store_size(store, next) > BATCH_BYTES) break;
        b->n_bytes += corpus_store_size(store, next);
    }
    b->n = next - from;
    b->bytes = words_grow(b->bytes, &b->cap, b->n_bytes, 1);
    b->text = words_grow(b->text, &b->cap_text, b->n, sizeof *b->text);
    b->end = words_grow(b->end, &b->cap_end, b->n, sizeof *b->end);
    char *at = b->bytes;
    for (size_t i = 0; i < b->n; at += b->text[i++].n) {
        b->text[i] = (TokenizerText){at, corpus_store_size(store, from + i)};
        if (!corpus_store_read(store, from + i, at))
            die("tokens: cannot read document %zu back: %s", from + i, strerror(errno));
    }
    return next;
}

static void free_batch(Batch *b)
{
    free(b->bytes);
    free(b->text);
    free(b->end);
}

// The first n_docs documents of a finished store make a vocabulary of vocab_size tokens.
static Tokenizer *train_on(const CorpusStore *store, size_t n_docs, const Options *o, int vocab_size, int n_threads)
{
    TokenizerTrainer *trainer = tokenizer_trainer_new(o->pattern);
    tokenizer_trainer_min_frequency(trainer, (int64_t)o->least);
    if (o->special) tokenizer_trainer_special(trainer, o->special);
    Batch b = {0};
    for (size_t i = 0; i < n_docs;) {
        i = read_batch(store, i, n_docs, &b);
        tokenizer_trainer_add_texts(trainer, b.text, b.n, n_threads);
    }
    free_batch(&b);
    return tokenizer_trainer_finish(trainer, vocab_size);
}

// The conversations of a batch, which have been looked at when they were read.
static void encode_chats(Chat *chat, const Batch *b, TokenIds *ids)
{
    char why[200];
    for (size_t i = 0; i < b->n; b->end[i++] = ids->n)
        if (!chat_encode(chat, b->text[i].bytes, b->text[i].n, ids, why)) die("conversation %zu: %s", i, why);
}

// Documents [from, to), each with the end-of-text token before it, which t must have. Returns the bytes of their texts.
static uint64_t write_tokens(const CorpusStore *store, size_t from, size_t to, Tokenizer *t, Chat *chat, int n_threads,
                             Shards *out)
{
    uint64_t n_bytes = 0;
    int32_t eot = tokenizer_eot(t);
    TokenIds ids = {0};
    Batch b = {0};
    while (from < to) {
        from = read_batch(store, from, to, &b);
        ids.n = 0;
        if (chat) encode_chats(chat, &b, &ids);
        else tokenizer_encode_texts(t, b.text, b.n, n_threads, &ids, b.end);
        for (size_t i = 0, at = 0; i < b.n; at = b.end[i++]) {
            shards_add(out, &eot, 1);
            shards_add(out, ids.id + at, b.end[i] - at);
        }
        n_bytes += b.n_bytes;
    }
    token_ids_free(&ids);
    free_batch(&b);
    return n_bytes;
}

// ---- the work
// What `tokens` writes: all of it goes when a new one comes, for a pattern would find a shard that is left.
static bool is_result(const char *name)
{
    static const char *const pattern[] = {"train_[0-9][0-9][0-9][0-9][0-9][0-9].bin",
                                          "val_[0-9][0-9][0-9][0-9][0-9][0-9].bin", "tokenizer.json",
                                          "tokenizer_config.json", "manifest.json"};
    for (int i = 0; i < 5; i++)
        if (fnmatch(pattern[i], name, 0) == 0) return true;
    return false;
}

// What `train-tokenizer` writes.
static bool is_tokenizer(const char *name)
{
    return strcmp(name, "tokenizer.json") == 0 || strcmp(name, "tokenizer_config.json") == 0;
}

static int status; // CORPUS_LOST where a corpus lost much

// Reads everything below `path` into the store, and adds its files to `sources`. chat: conversations.
static void read_input(const Options *o, const char *path, Chat *chat, CorpusStore *store, json_t *sources)
{
    CorpusOptions options = {.format = chat ? SOURCE_JSONL : sources_format(o->format), .lines = chat != NULL,
                             .field = o->field, .strict = o->strict, .log = stderr,
                             .max_bytes = o->max_document << 20, .raise = "--max-document"};
    options.line = o->line;
    if (!o->line && *o->separator) options.separator = o->separator;
    bool is_pipe = strcmp(path, "-") == 0;
    char *listing = is_pipe ? NULL : recipe_stage_files(path);
    const char *line = listing;
    CorpusReader *r = corpus_open(&path, 1, options);
    CorpusRecord doc;
    doing("reading the text");
    while (corpus_next(r, &doc)) {
        char why[200];
        if (chat && !chat_encode(chat, doc.text, doc.n_bytes, NULL, why))
            die("%s:%llu: %s", doc.path, (unsigned long long)doc.line, why);
        corpus_store_add(store, doc.text, doc.n_bytes);
    }
    doing(NULL);
    CorpusCounts counts = corpus_counts(r);
    fprintf(stderr, "%s: ", path);
    corpus_print(&counts, stderr);
    status |= corpus_judge(&counts, path);
    size_t n;
    const CorpusFile *file = corpus_files(r, &n);
    for (size_t i = 0; i < n; i++) {
        char hex[33];
        snprintf(hex, sizeof hex, "%016llx%016llx", (unsigned long long)file[i].hash[0],
                 (unsigned long long)file[i].hash[1]);
        if (!is_pipe) recipe_stage_check_file(&line, file[i].path);
        char *name = words_utf8_copy(file[i].path);
        json_t *about = json_pack("{s:s, s:I, s:s}", "path", name, "bytes", (json_int_t)file[i].n_bytes, "xxh3_128",
                                  hex);
        if (!about) die("memory: no room for what is known of %s", file[i].path);
        json_array_append_new(sources, about);
        free(name);
    }
    corpus_close(r);
    free(listing);
}

static int count_threads(const Options *o)
{
    int n = (int)count("threads", o->threads, 0, 1024);
    return n ? n : omp_get_max_threads();
}

// What can be known to be wrong before the first input is read, which may take hours.
static void check_values(const Options *o)
{
    if (!pretoken_regex(o->pattern)) die("prepare: --pattern: '%s' (" PRETOKEN_NAMES ")", o->pattern);
    count("vocab", o->vocab, 257, 1 << 24);
    count_threads(o);
    const char *more[] = {o->train, o->val_file};
    for (size_t i = 0; i < o->input.n + 2; i++) {
        const char *path = i < o->input.n ? o->input.word[i] : more[i - o->input.n];
        if (!path) continue;
        disk_folder_check_outside(path, o->out, "--out");
        corpus_close(corpus_open(&path, 1, (CorpusOptions){0})); // it is there
    }
}

// The tokenizer of `tokens`: NULL when it is to be trained.
static Tokenizer *given_tokenizer(const Options *o)
{
    long long vocab = count("vocab", o->vocab, 257, 1 << 24);
    Tokenizer *t = o->tokenizer ? tokenizer_load(o->tokenizer) : NULL;
    if (o->eot && !t) die_usage("prepare: --eot: a tokenizer that is trained has " TOKENIZER_EOT " (give --tokenizer)");
    if (t) tokenizer_set_eot(t, o->eot, o->tokenizer);
    if (t) vocab = tokenizer_vocab_size(t);
    if (strcmp(o->dtype, "uint16") == 0 && vocab > 65535)
        die("prepare: --dtype: a vocabulary of %lld tokens does not fit in uint16: at most 65535 (use uint32)", vocab);
    return t;
}

static Tokenizer *train_tokenizer(const Options *o, const CorpusStore *store, size_t n_docs)
{
    double start = clock_seconds();
    int vocab = (int)count("vocab", o->vocab, 257, 1 << 24);
    doing("training the tokenizer");
    Tokenizer *t = train_on(store, n_docs, o, vocab, count_threads(o));
    doing(NULL);
    fprintf(stderr, "tokenizer: %d tokens trained in %.1f s%s\n", tokenizer_vocab_size(t), clock_seconds() - start,
            tokenizer_vocab_size(t) < vocab ? " (fewer than asked: no pair is left to merge)" : "");
    return t;
}

// One part, train or val, of the output: documents [from, to) of the store.
typedef struct {
    const char *name;
    const CorpusStore *store;
    size_t from, to;
} Part;

// Encodes and writes a part as dir/NAME_000000.bin and up; returns its entry in the manifest.
static json_t *write_part(const Options *o, const char *dir, Tokenizer *t, Chat *chat, Part part)
{
    double start = clock_seconds();
    DatasetType type = strcmp(o->dtype, "uint16") == 0   ? DATASET_U16
                       : strcmp(o->dtype, "uint32") == 0 ? DATASET_U32
                                                         : DATASET_AUTO;
    Shards *shards = shards_open(dir, part.name, tokenizer_vocab_size(t), type,
                                 count("shard-tokens", o->shard_tokens, 1, INT32_MAX));
    doing("writing tokens");
    uint64_t n_bytes = write_tokens(part.store, part.from, part.to, t, chat, count_threads(o), shards);
    int64_t n_tokens = shards_tokens(shards);
    int n_shards = shards_close(shards);
    doing(NULL);
    json_t *files = json_array(), *hashes = json_array();
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s/%s_*.bin", dir, part.name);
    Dataset *back = n_shards ? dataset_open(pattern, tokenizer_vocab_size(t)) : NULL; // every token is read back
    for (int i = 0; i < n_shards; i++) {
        json_array_append_new(files, json_sprintf("%s_%06d.bin", part.name, i));
        json_array_append_new(hashes, json_sprintf("%016llx", (unsigned long long)dataset_file_hash(back, (size_t)i)));
    }
    dataset_close(back);
    double per_token = n_tokens ? (double)n_bytes / (double)n_tokens : 0;
    size_t n_docs = part.to - part.from;
    fprintf(stderr, "%s: %zu document%s, %lld bytes, %lld tokens, %.3f bytes/token, %.1f s\n", part.name, n_docs,
            words_s(n_docs), (long long)n_bytes, (long long)n_tokens, per_token, clock_seconds() - start);
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:f}", "files", files, "hashes", hashes, "documents",
                     (json_int_t)n_docs, "bytes", (json_int_t)n_bytes, "tokens", (json_int_t)n_tokens, "bytes_per_token", per_token);
}

static void save_manifest(json_t *manifest, const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    char *text = manifest ? json_dumps(manifest, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    if (!text) die("%s: cannot be put together (no memory)", path);
    if (!disk_replace_file(path, text, strlen(text)))
        die("%s: %s (is the disk full?)", path, strerror(errno));
    free(text);
    json_decref(manifest);
}

// The tokenizer of a folder with shards is the one that made them.
static void refuse_shards(const char *path)
{
    DIR *list = opendir(path);
    if (!list) die("%s: %s", path, strerror(errno));
    for (struct dirent *e; (e = readdir(list));)
        if (is_result(e->d_name) && !is_tokenizer(e->d_name))
            die("%s: holds %s, and the tokenizer there belongs to it (choose another --out)", path, e->d_name);
    closedir(list);
}

static void print_input(const CorpusStore *store, const json_t *sources)
{
    size_t n_files = json_array_size(sources), n_docs = corpus_store_count(store);
    fprintf(stderr, "input: %zu file%s, %zu document%s, %llu bytes\n", n_files, words_s(n_files), n_docs, words_s(n_docs),
            (unsigned long long)corpus_store_bytes(store));
}

static int do_tokens(const Options *o)
{
    double start = clock_seconds();
    bool given = o->train && o->val_file;
    if (!o->out || given == (o->input.n > 0) || !o->train != !o->val_file)
        die_usage("prepare tokens: give --out and either --input or both --train and --val-file (see --help)");
    if (strcmp(o->dtype, "auto") != 0 && strcmp(o->dtype, "uint16") != 0 && strcmp(o->dtype, "uint32") != 0)
        die("prepare: --dtype: '%s' (auto, uint16 or uint32)", o->dtype);
    char *end;
    double fraction = strtod(o->val, &end);
    if (end == o->val || *end || !(fraction >= 0 && fraction < 1))
        die("prepare: --val: '%s' (a number from 0 to below 1)", o->val);
    count("shard-tokens", o->shard_tokens, 1, INT32_MAX);
    Tokenizer *t = given_tokenizer(o);
    if (o->chat && !t) die_usage("prepare tokens: --chat needs --tokenizer, the one of the model that learns to answer");
    Chat *chat = o->chat ? chat_open(t, strcmp(o->chat, "template") ? o->chat : NULL, o->tokenizer) : NULL;
    disk_folder_make(o->out, "--out");
    int lock = disk_folder_lock(o->out);
    disk_folder_check_old(o->out, is_result);
    check_values(o);
    CorpusStore *store = corpus_store_open(o->out);
    json_t *sources = json_array();
    if (given) read_input(o, o->train, chat, store, sources);
    size_t n_train = corpus_store_count(store);
    if (given) read_input(o, o->val_file, chat, store, sources);
    for (size_t i = 0; i < o->input.n; i++) read_input(o, o->input.word[i], chat, store, sources);
    corpus_store_finish(store);
    print_input(store, sources);
    if (!given) n_train = corpus_store_split(store, fraction);
    if (!t) t = train_tokenizer(o, store, n_train);
    int vocab = tokenizer_vocab_size(t);
    char *dir = disk_folder_begin(o->out);
    tokenizer_save(t, dir);
    json_t *train_json = write_part(o, dir, t, chat, (Part){"train", store, 0, n_train}),
           *val_json = write_part(o, dir, t, chat, (Part){"val", store, n_train, corpus_store_count(store)});
    save_manifest(json_pack("{s:i, s:i, s:i, s:s, s:s, s:o, s:o, s:o}", "version", 1, "vocab_size", vocab,
                            "eot", tokenizer_eot(t), "pattern", tokenizer_pattern(t), "dtype",
                            strcmp(o->dtype, "uint32") == 0 || vocab > 65535 ? "uint32" : "uint16", "train",
                            train_json, "val", val_json, "sources", sources), dir);
    disk_folder_replace(o->out, is_result);
    free(dir);
    close(lock);
    fprintf(stderr, "done: %s, %.1f s in all\n", o->out, clock_seconds() - start);
    chat_free(chat);
    tokenizer_free(t);
    corpus_store_close(store);
    return 0;
}

static int do_train_tokenizer(const Options *o)
{
    if (!o->out || !o->input.n) die_usage("prepare train-tokenizer: give --input and --out (see --help)");
    disk_folder_make(o->out, "--out");
    int lock = disk_folder_lock(o->out);
    refuse_shards(o->out);
    disk_folder_check_old(o->out, is_tokenizer);
    check_values(o);
    CorpusStore *store = corpus_store_open(o->out);
    json_t *sources = json_array();
    for (size_t i = 0; i < o->input.n; i++) read_input(o, o->input.word[i], NULL, store, sources);
    corpus_store_finish(store);
    print_input(store, sources);
    Tokenizer *t = train_tokenizer(o, store, corpus_store_count(store));
    char *dir = disk_folder_begin(o->out);
    tokenizer_save(t, dir);
    disk_folder_replace(o->out, is_tokenizer);
    free(dir);
    tokenizer_free(t);
    json_decref(sources);
    corpus_store_close(store);
    close(lock);
    return 0;
}

// As train.c reads them: the order is a function of the configuration, and nothing of the run is needed but that.
static int do_show(const Options *o)
{
    if (!o->file) die_usage("prepare show: no run (try: prepare show runs/NAME --sample 0)");
    char path[2 * CONFIG_TEXT];
    struct stat info;
    bool folder = stat(o->file, &info) == 0 && S_ISDIR(info.st_mode);
    snprintf(path, sizeof path, "%s%s", o->file, folder ? "/config.toml" : "");
    Config *cfg = calloc(1, sizeof *cfg);
    if (!cfg) die("prepare show: no memory for a configuration");
    config_defaults(cfg);
    config_load_file(cfg, path);
    if (!cfg->data.train[0] || !cfg->data.tokenizer[0])
        die("%s: data.train or data.tokenizer is not there, so there is no text to show", path);
    Tokenizer *t = tokenizer_load(cfg->data.tokenizer);
    Dataset *data = dataset_open(cfg->data.train, tokenizer_vocab_size(t));
    size_t T = (size_t)cfg->model.context, n;
    bool rows = cfg->data.packing == CONFIG_PACKING_BEST_FIT;
    if (rows) dataset_pack(data, (int)T, tokenizer_eot(t));
    const char *other = dataset_altered(data);
    if (other) fprintf(stderr, "warn: %s: other tokens than prepare wrote there (manifest.json has their hash)\n", other);
    int32_t *token = calloc(4 * T, sizeof *token);
    if (!token) die("prepare show: no memory for %zu tokens", T);
    for (size_t s = o->sample; s < o->sample + o->samples; s++) {
        uint64_t seed = (uint64_t)cfg->run.seed;
        if (rows)
            dataset_row(data, (int64_t)s, seed, cfg->data.shuffle, token, token + T, token + 2 * T, token + 3 * T);
        else dataset_window(data, (int64_t)s, (int)T, seed, cfg->data.shuffle, token, token + T);
        printf("== sample %zu\n", s);
        for (size_t i = 0; i < T; i++) {
            const char *bytes = tokenizer_decode(t, token[i], &n);
            fwrite(bytes, 1, n, stdout);
        }
        putchar('\n');
    }
    free(token);
    dataset_close(data);
    tokenizer_free(t);
    free(cfg);
    return 0;
}

static int do_recipe(int argc, char **argv)
{
    Comm *world = launch_start(argv);
    comm_set_spins(world, 0); // ranks wait for long; what they took of the processors is then their work
    Recipe *r = recipe_load(argv[1], argv + 2, argc - 2);
    int lost = recipe_run(r, world, stdout);
    recipe_free(r);
    launch_stop(world);
    return lost;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--keys") == 0) {
        recipe_print_keys(stdout);
        return 0;
    }
    for (int c = 0; argc > 1 && c < TOOLS; c++)
        if (!strcmp(argv[1], tools[c].name)) {
            int whole = strstr("encode decode", argv[1]) != NULL; // prepare_tokenizer takes the word as its command
            return tools[c].run(argc - !whole, argv + !whole);
        }
    Options o = read_options(argc, argv);
    if (!o.command) return do_recipe(argc, argv);
    Comm *world = launch_start(argv);
    if (world->size > 1) die("prepare %s: runs in one process, not on %d ranks (a RECIPE.toml does)", argv[1], world->size);
    launch_stop(world);
    status |= o.command == TOKENS ? do_tokens(&o) : o.command == TRAIN ? do_train_tokenizer(&o) : do_show(&o);
    free(o.input.word);
    return status;
}
