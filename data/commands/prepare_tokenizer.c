// prepare_tokenizer: trains, tries, converts and times tokenizers.
//
//     build/prepare tokenizer train --vocab 8192 --out runs/tok book.txt more.txt.gz
//     build/prepare tokenizer encode --tokenizer runs/tok book.txt > ids          decode turns them back
//     build/prepare tokenizer count --tokenizer runs/tok book.txt                 documents, bytes, tokens
//     build/prepare tokenizer convert --tokenizer runs/tok --to ranks --out tok.tiktoken
//     build/prepare tokenizer bench --vocab 8192 book.txt                         MB/s of training and encoding; --tokenizer: of
//                                                                        encoding only; --train-only: of training
//
// --tokenizer is a folder (tokenizer.json, tokenizer.model, or vocab.json and merges.txt), one of the first two files
// by its name (*.json, *.model), or a tiktoken rank file, whose pattern is --pattern. Inputs are files, plain, gzip or
// zstd; "-" is standard input. A text file is taken as it is, with bytes that are not UTF-8. JSONL, Parquet and folders
// are read as everywhere else (corpus.h), and each document is a text. Everything is held in memory. With --special the
// string of the tokenizer's end-of-text token is that token; training leaves <|endoftext|> out and starts a new text.
#define _GNU_SOURCE // memmem
#include "data/commands/prepare.h"
#include "base/check.h"
#include "base/clock.h"
#include "data/prep/corpus.h"
#include "tools/options.h"
#include "tokenizer/pretoken.h"
#include "tokenizer/tokenizer.h"
#include "base/words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct {
    const char *tokenizer, *pattern, *out, *to, *vocab, *threads, *format, *field, *eot;
    bool special, raw, train_only;
    const char *separator; // what --special looks for in the input
    size_t n_separator;
    const char *const *input; // (n_inputs)
    size_t n_inputs, max_document, least; // max_document: MiB
} Options;

static const char help[] =
    "usage: prepare tokenizer train|encode|decode|count|convert|bench [--option VALUE]... [FILE]...\n\n"
    "FILE: text, JSONL, WARC (gzip, zstd) or Parquet, a folder, or - (standard input)\n\n";

static Options parse(int argc, char **argv)
{
    Options o = {.separator = TOKENIZER_EOT, .n_separator = strlen(TOKENIZER_EOT), .pattern = "gpt2", .vocab = "8192",
                 .threads = "2", .format = "auto", .max_document = CORPUS_MIB, .least = 1};
    const char *command = argc > 1 ? argv[1] : "";
    enum { SOME = 1 }; // .where: the help text begins with the commands in which the option has an effect
    Option row[] = {
        OPTION(TEXT, "--tokenizer", "PATH",
               "encode decode count convert bench: a folder, tokenizer.json, SentencePiece's *.model, ranks",
               &o.tokenizer, .where = SOME),
        OPTION(TEXT, "--pattern", "NAME", "how text is cut into words: " PRETOKEN_NAMES " [gpt2]", &o.pattern),
        OPTION(TEXT, "--vocab", "N", "train bench: size of the vocabulary, 257 or more [8192]", &o.vocab,
               .where = SOME),
        OPTION(SIZE, "--min-frequency", "N", "train bench: the fewest times that a merged pair is seen [1]", &o.least,
               .least = 1, .most = 1e15, .where = SOME),
        OPTION(TEXT, "--out", "PATH", "train convert: the folder, or the rank file, to write", &o.out, .where = SOME),
        OPTION(TEXT, "--to", "FORMAT", "convert: json (tokenizer.json), gpt2 (vocab.json, merges.txt) or ranks", &o.to,
               .where = SOME),
        OPTION(TEXT, "--format", "NAME",
               "train encode count bench: auto, text (as is), jsonl, parquet or warc [auto]", &o.format, .where = SOME),
        OPTION(TEXT, "--field", "NAME", "train encode count bench: of JSONL or Parquet: the text [text]", &o.field,
               .where = SOME),
        OPTION(SIZE, "--max-document", "MIB",
               "train encode decode count bench: a longer line of JSONL is left out, a longer text is an error [64]",
               &o.max_document, .least = 1, .most = CORPUS_MOST_MIB, .where = SOME),
        OPTION(TEXT, "--eot", "TOKEN", "encode convert: the special token that separates documents [the tokenizer's]",
               &o.eot, .where = SOME),
        OPTION(TEXT, "--threads", "N", "never changes the result [2]", &o.threads),
        OPTION(SWITCH, "--special", NULL,
               "the string of the end-of-text token in the input is that token, and separates documents", &o.special),
        OPTION(SWITCH, "--raw", NULL, "encode decode: ids as int32, not as text", &o.raw, .where = SOME),
        OPTION(SWITCH, "--train-only", NULL, "bench: only training, and only with --threads", &o.train_only,
               .where = SOME)};
    OptionSet set = {"prepare tokenizer", help, row, sizeof row / sizeof *row, .quote = "'"};
    o.n_inputs = options_read(&set, argc, argv);
    if (o.n_inputs) o.input = (const char *const *)argv + 2, o.n_inputs--; // after the command
    for (size_t i = 0; i < set.n; i++) {
        int n = (int)strcspn(row[i].help, ":");
        const char *found = strstr(row[i].help, command);
        if (row[i].given && row[i].where && *command && !(found && found < row[i].help + n))
            die_usage("prepare tokenizer %s: '%s': does nothing here (%.*s)", command, row[i].name, n, row[i].help);
    }
    return o;
}

static int status; // CORPUS_LOST where a corpus lost much

// ---- input
typedef struct {
    char **buffer; // (n_buffers)
    size_t n_buffers, cap_buffers;
    TokenizerText *text; // (n), in the buffers
    size_t n, cap, n_bytes;
} Input;

static void add_text(Input *in, const char *bytes, size_t n)
{
    in->text = words_grow(in->text, &in->cap, in->n + 1, sizeof *in->text);
    in->text[in->n++] = (TokenizerText){bytes, n};
    in->n_bytes += n;
}

// Adds a text, or the texts between special tokens; `at` is freed with the input.
static void add_buffer(Input *in, char *at, size_t n, const Options *o)
{
    in->buffer = words_grow(in->buffer, &in->cap_buffers, in->n_buffers + 1, sizeof *in->buffer);
    in->buffer[in->n_buffers++] = at;
    for (char *next; o->special && (next = memmem(at, n, o->separator, o->n_separator)); at = next + o->n_separator) {
        add_text(in, at, (size_t)(next - at));
        n -= (size_t)(next - at) + o->n_separator;
    }
    add_text(in, at, n);
}

static CorpusOptions corpus_options(const Options *o, SourceFormat format)
{
    return (CorpusOptions){.format = format, .field = o->field, .max_bytes = o->max_document << 20,
                           .raise = "--max-document", .log = stderr};
}

static void add_documents(Input *in, const char *path, const Options *o, SourceFormat format)
{
    CorpusReader *r = corpus_open(&path, 1, corpus_options(o, format));
    CorpusRecord doc;
    while (corpus_next(r, &doc)) {
        char *text = malloc(doc.n_bytes + 1);
        if (!text) die("prepare tokenizer: no memory for a text of %zu bytes", doc.n_bytes);
        memcpy(text, doc.text, doc.n_bytes);
        add_buffer(in, text, doc.n_bytes, o);
    }
    CorpusCounts c = corpus_counts(r);
    corpus_print(&c, stderr);
    status |= corpus_judge(&c, path);
    corpus_close(r);
}

// Every text file is a text, and every document of JSONL, Parquet, WARC and folders.
static Input read_input(const Options *o)
{
    Input in = {0};
    SourceFormat format = sources_format(o->format);
    if (!o->n_inputs) die_usage("prepare tokenizer: no input (give files, or - for standard input)");
    if (o->field && !corpus_count_fields(o->input, o->n_inputs, (CorpusOptions){.format = format}, NULL))
        die_usage("prepare tokenizer: --field: no input is JSONL or Parquet (by its name, or --format)");
    for (size_t i = 0; i < o->n_inputs; i++) {
        struct stat st;
        const char *path = o->input[i];
        bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        if (folder || corpus_format(path, format) != SOURCE_TEXT) {
            add_documents(&in, path, o, format);
            continue;
        }
        size_t n;
        char *text = corpus_read(path, &n, corpus_options(o, format));
        add_buffer(&in, text, n, o);
    }
    return in;
}

static void free_input(Input *in)
{
    for (size_t i = 0; i < in->n_buffers; i++) free(in->buffer[i]);
    free(in->buffer);
    free(in->text);
}

static Tokenizer *load(const Options *o)
{
    struct stat st;
    if (!o->tokenizer) die_usage("prepare tokenizer: which tokenizer? (--tokenizer, a folder or a file)");
    const char *dot = strrchr(o->tokenizer, '.');
    bool named = dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".model") == 0);
    bool ranks = stat(o->tokenizer, &st) == 0 && S_ISREG(st.st_mode) && !named;
    Tokenizer *t = ranks ? tokenizer_load_ranks(o->tokenizer, o->pattern) : tokenizer_load(o->tokenizer);
    if (o->eot) tokenizer_set_eot(t, o->eot, o->tokenizer);
    return t;
}

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        die("%s: %s (--out is the folder to write to)", path, strerror(errno));
}

// ---- commands
static Tokenizer *train(const Options *o, const Input *in, int threads)
{
    TokenizerTrainer *trainer = tokenizer_trainer_new(o->pattern);
    tokenizer_trainer_min_frequency(trainer, (int64_t)o->least);
    tokenizer_trainer_add_texts(trainer, in->text, in->n, threads);
    return tokenizer_trainer_finish(trainer, (int)options_count("prepare tokenizer", "vocab", o->vocab, 257, 1 << 24));
}

static void do_train(const Options *o, int threads)
{
    if (!o->out) die_usage("prepare tokenizer train: where to? (--out, a folder)");
    Input in = read_input(o);
    make_folder(o->out);
    Tokenizer *t = train(o, &in, threads);
    tokenizer_save(t, o->out);
    fprintf(stderr, "%s: %d tokens from %zu bytes\n", o->out, tokenizer_vocab_size(t), in.n_bytes);
    tokenizer_free(t);
    free_input(&in);
}

static void write_ids(const TokenIds *ids, bool raw)
{
    if (raw) fwrite(ids->id, sizeof *ids->id, ids->n, stdout);
    for (size_t i = 0; !raw && i < ids->n; i++) printf(i ? " %d" : "%d", ids->id[i]);
    if (!raw) putchar('\n');
}

static void do_encode(Options *o, int threads)
{
    Tokenizer *t = load(o);
    if (o->special) tokenizer_need_eot(t, o->tokenizer);
    int32_t eot = tokenizer_eot(t);
    if (o->special) o->separator = tokenizer_decode(t, eot, &o->n_separator);
    Input in = read_input(o);
    TokenIds ids = {0}, all = {0};
    size_t *end = malloc((in.n + 1) * sizeof *end);
    if (!end) die("prepare tokenizer: no memory for %zu texts", in.n);
    tokenizer_encode_texts(t, in.text, in.n, threads, &ids, end);
    for (size_t i = 0, k = 0; i < in.n; i++) {
        if (i && o->special) token_ids_push(&all, eot);
        while (k < end[i]) token_ids_push(&all, ids.id[k++]);
    }
    write_ids(&all, o->raw);
    free(end);
    token_ids_free(&all);
    token_ids_free(&ids);
    free_input(&in);
    tokenizer_free(t);
}

// *first: the token begins a text.
static void decode_one(const Tokenizer *t, long id, bool *first, const char *path, size_t number)
{
    size_t n;
    if (id < 0 || id >= tokenizer_vocab_size(t))
        die("%s: number %zu, %ld: not a token (0 to %d)", path, number, id, tokenizer_vocab_size(t) - 1);
    const char *bytes = (*first ? tokenizer_decode_first : tokenizer_decode)(t, (int32_t)id, &n);
    fwrite(bytes, 1, n, stdout);
    *first = tokenizer_is_special(t, (int32_t)id);
}

static void do_decode(const Options *o)
{
    Tokenizer *t = load(o);
    if (!o->n_inputs) die_usage("prepare tokenizer: no input (give files, or - for standard input)");
    for (size_t i = 0; i < o->n_inputs; i++) {
        size_t n;
        bool first = true;
        char *text = corpus_read(o->input[i], &n, corpus_options(o, SOURCE_TEXT)), *at = text, *end;
        if (o->raw && n % sizeof(int32_t)) die("%s: %zu bytes: not a list of int32", o->input[i], n);
        for (size_t k = 0; o->raw && k < n / sizeof(int32_t); k++) {
            int32_t id;
            memcpy(&id, text + k * sizeof id, sizeof id);
            decode_one(t, id, &first, o->input[i], k + 1);
        }
        for (size_t k = 1; !o->raw && *(at += strspn(at, " \t\r\n")); k++, at = end) {
            long id = strtol(at, &end, 10);
            if (end == at || !strchr(" \t\r\n", *end))
                die("%s: number %zu, '%.*s': not a token id (numbers with spaces between)", o->input[i], k,
                    (int)strcspn(at, " \t\r\n") % 40, at);
            decode_one(t, id, &first, o->input[i], k);
        }
        if (!o->raw && at != text + n)
            die("%s: byte %zu: a NUL (for ids as int32 use --raw)", o->input[i], (size_t)(at - text));
        free(text);
    }
    tokenizer_free(t);
}

static void do_count(const Options *o, int threads)
{
    Tokenizer *t = load(o);
    Input in = read_input(o);
    TokenIds ids = {0};
    tokenizer_encode_texts(t, in.text, in.n, threads, &ids, NULL);
    printf("%zu texts, %zu bytes, %zu tokens, %.3f bytes/token\n", in.n, in.n_bytes, ids.n,
           ids.n ? (double)in.n_bytes / (double)ids.n : 0);
    token_ids_free(&ids);
    free_input(&in);
    tokenizer_free(t);
}

static void do_convert(const Options *o)
{
    if (!o->out || !o->to) die_usage("prepare tokenizer convert: give --to json, gpt2 or ranks, and --out");
    bool json = strcmp(o->to, "json") == 0, gpt2 = strcmp(o->to, "gpt2") == 0;
    if (!json && !gpt2 && strcmp(o->to, "ranks") != 0) die("prepare tokenizer: --to: '%s' (json, gpt2 or ranks)", o->to);
    Tokenizer *t = load(o);
    if (json || gpt2) make_folder(o->out);
    (json ? vocab_save : gpt2 ? vocab_save_gpt2 : vocab_save_ranks)(tokenizer_vocab(t), o->out);
    tokenizer_free(t);
}

// MB per second of wall-clock time, and per second of all threads' processor time, which other processes affect less.
static void print_speed(double mb, double wall, clock_t work)
{
    printf(" %14.1f %14.1f", mb / (clock_seconds() - wall), mb * CLOCKS_PER_SEC / (double)(clock() - work + 1));
}

static void do_bench(const Options *o, int threads)
{
    Input in = read_input(o);
    double mb = 1e-6 * (double)in.n_bytes;
    printf("%.1f MB, vocabulary of %s\n", mb, o->tokenizer ? o->tokenizer : o->vocab);
    printf("%7s %14s %14s %14s %14s\n", "threads", "training MB/s", "MB/CPU s", "encoding MB/s", "MB/CPU s");
    for (int n = o->train_only ? threads : 1; n <= threads; n++) {
        printf("%7d", n);
        double wall = clock_seconds();
        clock_t work = clock();
        Tokenizer *t = o->tokenizer ? load(o) : train(o, &in, n);
        if (o->tokenizer) printf(" %14s %14s", "-", "-");
        else print_speed(mb, wall, work);
        TokenIds ids = {0};
        wall = clock_seconds(), work = clock();
        if (!o->train_only) tokenizer_encode_texts(t, in.text, in.n, n, &ids, NULL);
        if (o->train_only) printf(" %14s %14s", "-", "-");
        else print_speed(mb, wall, work);
        putchar('\n');
        fflush(stdout);
        token_ids_free(&ids);
        tokenizer_free(t);
    }
    free_input(&in);
}

int prepare_tokenizer(int argc, char **argv)
{
    char *command = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    Options o = parse(argc, argv);
    int threads = (int)options_count("prepare tokenizer", "threads", o.threads, 1, 1024);
    if (strcmp(command, "train") == 0) do_train(&o, threads);
    else if (strcmp(command, "encode") == 0) do_encode(&o, threads);
    else if (strcmp(command, "decode") == 0) do_decode(&o);
    else if (strcmp(command, "count") == 0) do_count(&o, threads);
    else if (strcmp(command, "convert") == 0) do_convert(&o);
    else if (strcmp(command, "bench") == 0) do_bench(&o, threads);
    else die_usage("prepare tokenizer: '%s': not a command (train, encode, decode, count, convert, bench; --help)", command);
    return status;
}
