// recipe_encode: the tokenizer, and documents as tokens in the order in which they will be trained on.
//
// The order is a permutation of the documents of a source and a split, drawn from the seed. It is applied as an
// external merge sort by the place of a document:
//
//     runs     each part of the documents is encoded and sorted by place in memory
//     merge    the runs are read side by side, the smallest place first, and become shards
//
// Invariant: the place of document number r of n is permute(r), a bijection of [0, n) that is computed, not stored
// (rng.h). r counts the remaining documents of a source and split in the order of the input. So the shuffle is over
// the whole corpus, needs no memory per document, and writes every token twice and reads it once, always
// sequentially. A run depends only on its own part and on two numbers: how many documents came before, and n.
//
// The split is by hash: a document is for validation when the hash of its text, as a fraction, is below shards.val. So
// the same text is on the same side in every recipe, whatever other documents there are: no corpus trains on a text on
// which another validates.
//
// Rejected: shuffling within a buffer (documents stay near their neighbours in the crawl), drawing a bucket for each
// document and shuffling each (many files at a time, and their sizes vary), and reading documents from the disk in
// the order of training (a seek for each).
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "text/dataset.h"
#include "base/disk.h"
#include "data/prep/recipe_stage.h"
#include "base/rng.h"
#include "tokenizer/tokenizer.h"
#include "base/words.h"
#include "data/prep/shards.h"

enum { BATCH_BYTES = 16 << 20, ROWS = 512 /* of a run, read at a time */ };

// A document's place in the order of its source and split, and its tokens: a row of a run.
typedef struct {
    uint64_t position;
    uint64_t end;  // tokens of the run up to here, this document's included
    uint64_t hash; // XXH3 of the tokens' bytes
} RecipeRow;
enum { RECIPE_TRAIN, RECIPE_VAL };

const char *const recipe_encode_splits[2] = {"train", "val"};

// The split of the document whose text has that hash.
static int split_of(const Recipe *r, uint64_t hash)
{
    return (double)(hash >> 11) * 0x1p-53 < r->shards_val ? RECIPE_VAL : RECIPE_TRAIN;
}

// ---- documents in batches
typedef struct {
    char *bytes;
    TokenizerText *text; // (n)
    size_t *number, *end; // (n) of the document; for tokenizer_encode_texts
    size_t n, n_bytes, cap, cap_text, cap_number, cap_end;
} Batch; // starts as {0}

typedef bool (*Wanted)(const RecipeRun *run, size_t i);

// Documents from *next on and before `to`: one, and more up to BATCH_BYTES. False: there is none.
static bool read_batch(const RecipeRun *run, size_t *next, size_t to, Wanted wanted, Batch *b)
{
    b->n = b->n_bytes = 0;
    for (; *next < to; ++*next) {
        size_t n = documents_size(run->docs, *next);
        if (run->removed[*next] || !wanted(run, *next)) continue;
        if (b->n && b->n_bytes + n > BATCH_BYTES) break;
        b->bytes = words_grow(b->bytes, &b->cap, b->n_bytes + n, 1);
        b->text = words_grow(b->text, &b->cap_text, b->n + 1, sizeof *b->text);
        b->number = words_grow(b->number, &b->cap_number, b->n + 1, sizeof *b->number);
        b->end = words_grow(b->end, &b->cap_end, b->n + 1, sizeof *b->end);
        if (!documents_read(run->docs, *next, b->bytes + b->n_bytes))
            die("%s/documents: document %zu cannot be read: %s", run->dir, *next, strerror(errno));
        b->number[b->n] = *next;
        b->text[b->n++].n = n;
        b->n_bytes += n;
    }
    const char *at = b->bytes; // which may have moved
    for (size_t i = 0; i < b->n; at += b->text[i++].n) b->text[i].bytes = at;
    return b->n > 0;
}

static void free_batch(Batch *b)
{
    free(b->bytes);
    free(b->text);
    free(b->number);
    free(b->end);
}

// ---- the tokenizer
static bool trains_tokenizer(const RecipeRun *run, size_t i)
{
    if (!exchange_owns(run->world, i)) return false;
    uint64_t hash = documents_row(run->docs, i).hash;
    return split_of(run->recipe, hash) == RECIPE_TRAIN &&
           (double)(uint32_t)hash * 0x1p-32 < run->recipe->tokenizer_sample;
}

// ---- the words of all ranks, with how often each was seen, come together on rank 0
//
// Ranks. Documents are counted for the tokenizer in stripes, and the counts added in a tree; rank 0 learns the merges.
// A run is encoded by one rank. The shards of a source and split are written by all: rank q of N begins at place
// q n / N and writes the shards whose first token is at that place or after it, and before the place at which the next
// rank begins. It finds its place in each run by bisection, because a row says how many tokens of its run come before
// the next one; the sums over runs say which token of the sequence that is.

enum { BLOCK_BYTES = 1 << 20, WORD_HEAD = 12 }; // before the bytes of a word: how many (4), how often (8)

static void send_block(const RecipeRun *run, int to, const char *block, uint64_t n)
{
    exchange_send(run->world, to, &n, sizeof n);
    exchange_send(run->world, to, block, n);
}

static void send_words(const RecipeRun *run, TokenizerTrainer *trainer, int to)
{
    char *block = NULL;
    size_t cap = 0, n = 0, n_words = tokenizer_trainer_words(trainer);
    for (size_t i = 0; i < n_words; i++) {
        int64_t times;
        TokenizerText word = tokenizer_trainer_word(trainer, i, &times);
        uint32_t n_bytes = (uint32_t)word.n;
        if (n && n + WORD_HEAD + word.n > BLOCK_BYTES) send_block(run, to, block, n), n = 0;
        block = words_grow(block, &cap, n + WORD_HEAD + word.n, 1);
        memcpy(block + n, &n_bytes, sizeof n_bytes);
        memcpy(block + n + sizeof n_bytes, &times, sizeof times);
        memcpy(block + n + WORD_HEAD, word.bytes, word.n);
        n += WORD_HEAD + word.n;
    }
    if (n) send_block(run, to, block, n);
    send_block(run, to, block, 0);
    free(block);
}

static void receive_words(const RecipeRun *run, TokenizerTrainer *trainer, int from)
{
    char *block = NULL;
    size_t cap = 0;
    for (uint64_t n = 1; n;) {
        exchange_receive(run->world, from, &n, sizeof n);
        block = words_grow(block, &cap, n, 1);
        exchange_receive(run->world, from, block, n);
        uint32_t n_bytes;
        int64_t times;
        for (size_t at = 0; at < n; at += WORD_HEAD + n_bytes) {
            memcpy(&n_bytes, block + at, sizeof n_bytes);
            memcpy(&times, block + at + sizeof n_bytes, sizeof times);
            tokenizer_trainer_add_word(trainer, (TokenizerText){block + at + WORD_HEAD, n_bytes}, times);
        }
    }
    free(block);
}

// In a binary tree: in step k rank r + 2^k sends its words to rank r, if r is a multiple of 2^(k+1).
static void join_words(const RecipeRun *run, TokenizerTrainer *trainer)
{
    for (int step = 1; step < run->ranks; step *= 2) {
        if (run->rank % (2 * step)) {
            send_words(run, trainer, run->rank - step);
            return;
        }
        if (run->rank + step < run->ranks) receive_words(run, trainer, run->rank + step);
    }
}

// The stage's record on rank 0, NULL on the others.
static json_t *train_tokenizer(RecipeRun *run, const char *dir)
{
    const Recipe *r = run->recipe;
    recipe_stage_documents(run);
    TokenizerTrainer *trainer = tokenizer_trainer_new(r->tokenizer_pattern);
    tokenizer_trainer_min_frequency(trainer, r->tokenizer_min_frequency);
    Batch b = {0};
    size_t next = 0, n_docs = documents_count(run->docs);
    uint64_t n[2] = {0}, all = 0; // n: documents and bytes
    for (size_t i = 0; i < n_docs; i++) all += run->removed[i] ? 0 : documents_size(run->docs, i);
    all = (uint64_t)((double)all * r->tokenizer_sample * (1 - r->shards_val)) / (uint64_t)run->ranks;
    RecipeProgress progress = recipe_stage_progress(run, "tokenizer", 0, all);
    while (read_batch(run, &next, n_docs, trains_tokenizer, &b)) {
        tokenizer_trainer_add_texts(trainer, b.text, b.n, run->threads);
        recipe_stage_advance(&progress, b.n_bytes);
        n[0] += b.n;
        n[1] += b.n_bytes;
    }
    free_batch(&b);
    exchange_sum(run->world, n, 2);
    if (!n[0])
        die("%s: no document is left to train the tokenizer on (of %zu; shards.val %g, tokenizer.sample %g)", run->dir,
            n_docs, r->shards_val, r->tokenizer_sample);
    join_words(run, trainer);
    if (run->rank > 0) {
        tokenizer_trainer_free(trainer);
        return NULL;
    }
    Tokenizer *t = tokenizer_trainer_finish(trainer, (int)r->tokenizer_vocab);
    tokenizer_save(t, dir);
    json_t *about = json_pack("{s:I, s:I, s:i, s:s}", "documents_used", (json_int_t)n[0], "bytes_used",
                              (json_int_t)n[1], "vocab_size", tokenizer_vocab_size(t), "pattern",
                              tokenizer_pattern(t));
    tokenizer_free(t);
    return about;
}

// Loads and saves a given tokenizer. The stage's record on rank 0, NULL on the others.
static json_t *give_tokenizer(const RecipeRun *run, const char *dir)
{
    const Recipe *r = run->recipe;
    if (run->rank > 0) return NULL;
    Tokenizer *t = tokenizer_load(r->tokenizer_path);
    tokenizer_set_eot(t, *r->tokenizer_eot ? r->tokenizer_eot : NULL, r->tokenizer_path);
    tokenizer_save(t, dir);
    char *name = words_utf8_copy(r->tokenizer_path);
    json_t *about = json_pack("{s:i, s:s, s:s}", "vocab_size", tokenizer_vocab_size(t), "pattern",
                              tokenizer_pattern(t), "given", name);
    free(name);
    tokenizer_free(t);
    return about;
}

static void sync_tokenizer(const char *dir)
{
    const char *name[] = {"tokenizer.json", "tokenizer_config.json"};
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) { // written again and synced, which tokenizer_save does not promise
        size_t n;
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        char *text = disk_read_file(path, &n, (size_t)1 << 32);
        if (!text || !disk_replace_file(path, text, n)) die("%s: %s (is the disk full?)", path, strerror(errno));
        free(text);
    }
}

const char *const recipe_encode_given[RECIPE_ENCODE_GIVEN] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                                              "merges.txt", "tokenizer_config.json",
                                                              "special_tokens_map.json"};

// The files that tokenizer_load may read, as recipe_stage_files: other files in the folder (perhaps the recipe's own
// output) are not part of the key. dir: the folder, or one of the files.
static char *list_tokenizer(const char *dir, const char *eot)
{
    const char *const *name = recipe_encode_given;
    char path[PATH_MAX], *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f) die("memory: no room for file names");
    struct stat st;
    bool file = stat(dir, &st) == 0 && S_ISREG(st.st_mode);
    const char *slash = strrchr(dir, '/'); // an absolute path
    if (*eot) fprintf(f, "eot %s\n", eot);
    for (int i = file ? -1 : 0; i < RECIPE_ENCODE_GIVEN; i++) {
        int n = i < 0   ? snprintf(path, sizeof path, "%s", dir)
                : file ? snprintf(path, sizeof path, "%.*s/%s", (int)(slash - dir), dir, name[i])
                       : snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        if (n >= PATH_MAX) die("%s: the name is too long", dir);
        if (access(path, F_OK) != 0) continue;
        char *line = recipe_stage_files(path);
        fputs(line, f);
        free(line);
    }
    if (fclose(f) != 0 || !text) die("memory: no room for file names");
    return text;
}

void recipe_encode_tokenizer(RecipeRun *run)
{
    const Recipe *r = run->recipe;
    char settings[CONFIG_TEXT + 160], *all;
    char *files = *r->tokenizer_path ? list_tokenizer(r->tokenizer_path, r->tokenizer_eot) : NULL;
    int n = snprintf(settings, sizeof settings, "%s %ld %.17g %.17g", r->tokenizer_pattern, r->tokenizer_vocab,
                     r->tokenizer_sample, r->shards_val);
    if (r->tokenizer_min_frequency > 1)
        snprintf(settings + n, sizeof settings - (size_t)n, " %ld", r->tokenizer_min_frequency);
    all = files ? files : settings;
    RecipeStage stage = recipe_stage_begin(run, "tokenizer", all);
    free(files);
    if (stage.done) return;
    json_t *about = *r->tokenizer_path ? give_tokenizer(run, stage.dir) : train_tokenizer(run, stage.dir);
    if (run->rank == 0) sync_tokenizer(stage.dir);
    recipe_stage_end(run, &stage, about);
}

// ---- runs
typedef struct {
    uint64_t begin[2], all[2]; // documents of the source in each split: before the part; in the whole source
} Place;

static bool any(const RecipeRun *run, size_t i)
{
    (void)run, (void)i;
    return true;
}

static void count_splits(const RecipeRun *run, size_t part, uint64_t n[2])
{
    for (size_t i = documents_begin(run->docs, part); i < documents_begin(run->docs, part + 1); i++)
        if (!run->removed[i]) n[split_of(run->recipe, documents_row(run->docs, i).hash)]++;
}

typedef struct {
    RecipeRow row;
    size_t at, n_tokens; // in Run.ids
} Encoded;

typedef struct {
    TokenIds ids;
    Encoded *doc[2]; // (n) each, by split
    size_t n[2], cap[2];
    uint64_t n_bytes[2];
} Run;

static int by_position(const void *a, const void *b)
{
    const Encoded *x = a, *y = b;
    return x->row.position < y->row.position ? -1 : x->row.position > y->row.position;
}

// Tokens and rows of one split, in order.
static void write_split(const char *dir, size_t part, int split, const Run *run, int token_bytes, uint64_t *n_tokens)
{
    char path[PATH_MAX], *tokens = NULL, *rows = NULL;
    size_t n = 0, cap = 0, cap_rows = 0, n_docs = run->n[split];
    rows = words_grow(rows, &cap_rows, n_docs + 1, sizeof(RecipeRow));
    *n_tokens = 0;
    for (size_t d = 0; d < n_docs; d++) {
        Encoded *e = &run->doc[split][d];
        size_t begin = n;
        tokens = words_grow(tokens, &cap, n + e->n_tokens * (size_t)token_bytes, 1);
        for (size_t k = 0; k < e->n_tokens; k++, n += (size_t)token_bytes) // little-endian, as dataset.c
            memcpy(tokens + n, &run->ids.id[e->at + k], (size_t)token_bytes);
        e->row.hash = XXH3_64bits(tokens + begin, n - begin);
        *n_tokens += e->n_tokens;
        e->row.end = *n_tokens;
        memcpy(rows + d * sizeof(RecipeRow), &e->row, sizeof e->row);
    }
    snprintf(path, sizeof path, "%s/run_%06zu_%s.tokens", dir, part, recipe_encode_splits[split]);
    if (!disk_write_file(path, tokens, n)) die("%s: %s (is the disk full?)", path, strerror(errno));
    snprintf(path, sizeof path, "%s/run_%06zu_%s.rows", dir, part, recipe_encode_splits[split]);
    if (!disk_write_file(path, rows, n_docs * sizeof(RecipeRow)))
        die("%s: %s (is the disk full?)", path, strerror(errno));
    free(tokens);
    free(rows);
}

// Encodes what is left of a part, each document with <|endoftext|> before it.
static void encode_part(RecipeRun *run, size_t part, Tokenizer *t, const Place *place, Run *out, RecipeProgress *p)
{
    const Recipe *r = run->recipe;
    const char *source = run->source[documents_source(run->docs, part)].name;
    char name[128];
    Rng rng[2];
    uint64_t rank[2] = {place->begin[0], place->begin[1]};
    Batch b = {0};
    for (int s = 0; s < 2; s++) {
        snprintf(name, sizeof name, "shuffle %s %s", recipe_encode_splits[s], source);
        rng[s] = rng_make((uint64_t)r->recipe_seed, name, 0);
        out->n[s] = 0, out->n_bytes[s] = 0;
    }
    out->ids.n = 0;
    for (size_t next = documents_begin(run->docs, part); read_batch(run, &next, documents_begin(run->docs, part + 1),
                                                                    any, &b);) {
        size_t at = out->ids.n;
        tokenizer_encode_texts(t, b.text, b.n, run->threads, &out->ids, b.end);
        for (size_t i = 0; i < b.n; at = b.end[i++]) {
            int s = split_of(r, documents_row(run->docs, b.number[i]).hash);
            out->doc[s] = words_grow(out->doc[s], &out->cap[s], out->n[s] + 1, sizeof *out->doc[s]);
            uint64_t position = rng_permute(rng[s], rank[s]++, place->all[s]);
            out->doc[s][out->n[s]++] = (Encoded){{position, 0, 0}, at, b.end[i] - at};
            out->n_bytes[s] += b.text[i].n;
        }
        recipe_stage_advance(p, b.n_bytes);
    }
    free_batch(&b);
    for (int s = 0; s < 2; s++)
        if (out->n[s]) qsort(out->doc[s], out->n[s], sizeof *out->doc[s], by_position); // none: NULL
}

static void commit_run(const char *dir, size_t part, const Run *out, int token_bytes)
{
    char path[PATH_MAX];
    uint64_t n_tokens[2];
    json_t *about = json_object();
    for (int s = 0; s < 2; s++) {
        write_split(dir, part, s, out, token_bytes, &n_tokens[s]);
        json_object_set_new(about, recipe_encode_splits[s],
                            json_pack("{s:I, s:I, s:I}", "documents", (json_int_t)out->n[s], "bytes",
                                      (json_int_t)out->n_bytes[s], "tokens", (json_int_t)n_tokens[s]));
    }
    char *text = json_dumps(about, JSON_INDENT(1));
    snprintf(path, sizeof path, "%s/run_%06zu.json", dir, part);
    if (!text || !disk_replace_file(path, text, strlen(text))) die("%s: %s (is the disk full?)", path, strerror(errno));
    free(text);
    json_decref(about);
}

// The places of all parts of all sources; dies when no document is for validation, or none for training.
static Place *find_places(RecipeRun *run)
{
    size_t n_parts = documents_parts(run->docs);
    Place *place = calloc(n_parts + 1, sizeof *place);
    uint64_t all[2] = {0}, (*in)[2] = calloc(n_parts + 1, sizeof *in); // in: each part's documents in each split
    if (!place || !in) die("memory: no room for %zu parts", n_parts);
    for (size_t p = (size_t)run->rank; p < n_parts; p += (size_t)run->ranks) count_splits(run, p, in[p]);
    exchange_sum(run->world, *in, 2 * n_parts);
    for (size_t s = 0; s < run->n_sources; s++) {
        uint64_t n[2] = {0};
        for (size_t p = 0; p < n_parts; p++) {
            if (documents_source(run->docs, p) != s) continue;
            memcpy(place[p].begin, n, sizeof n);
            for (int k = 0; k < 2; k++) n[k] += in[p][k];
        }
        for (size_t p = 0; p < n_parts; p++)
            if (documents_source(run->docs, p) == s) memcpy(place[p].all, n, sizeof n);
        if (!n[RECIPE_TRAIN]) die("[source.%s]: no document is left for training", run->source[s].name);
        all[0] += n[0], all[1] += n[1];
    }
    if (run->recipe->shards_val > 0 && !all[RECIPE_VAL])
        die("shards.val: %g of %llu documents: none fell to validation (give more, or set it to 0)",
            run->recipe->shards_val, (unsigned long long)all[RECIPE_TRAIN]);
    free(in);
    return place;
}

static bool has_run(const char *dir, size_t part)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/run_%06zu.json", dir, part);
    return access(path, F_OK) == 0;
}

// The rank of each part, by the bytes that are left to encode in it; *n_bytes: those of this rank.
static int *deal_parts(const RecipeRun *run, const char *dir, uint64_t *n_bytes)
{
    size_t n_parts = documents_parts(run->docs);
    uint64_t *left = calloc(n_parts + 1, sizeof *left);
    if (!left) die("memory: no room for %zu parts", n_parts);
    for (size_t p = 0; p < n_parts; p++) {
        if (run->rank == 0 && has_run(dir, p)) continue; // from before a kill
        for (size_t i = documents_begin(run->docs, p); i < documents_begin(run->docs, p + 1); i++)
            if (!run->removed[i]) left[p] += documents_size(run->docs, i);
    }
    int *owner = exchange_deal(run->world, left, n_parts);
    *n_bytes = 0;
    for (size_t p = 0; p < n_parts; p++)
        if (owner[p] == run->rank) *n_bytes += left[p];
    free(left);
    return owner;
}

static void encode_runs(RecipeRun *run, const char *settings)
{
    const Recipe *r = run->recipe;
    char dir[PATH_MAX + 16];
    RecipeStage stage = recipe_stage_begin(run, "runs", settings);
    if (stage.done) return;
    snprintf(dir, sizeof dir, "%s/tokenizer", run->dir);
    Tokenizer *t = tokenizer_load(dir);
    int vocab = tokenizer_vocab_size(t);
    bool narrow = r->shards_dtype == DATASET_U16 || (r->shards_dtype == DATASET_AUTO && vocab <= UINT16_MAX);
    int token_bytes = narrow ? 2 : 4;
    check(token_bytes == 4 || vocab <= UINT16_MAX); // recipe.c
    recipe_stage_documents(run);
    Place *place = find_places(run);
    size_t n_parts = documents_parts(run->docs);
    Run out = {0};
    uint64_t n_bytes;
    int *owner = deal_parts(run, stage.dir, &n_bytes);
    RecipeProgress progress = recipe_stage_progress(run, "encode", 0, n_bytes);
    for (size_t p = 0; p < n_parts; p++) {
        if (owner[p] != run->rank || has_run(stage.dir, p)) continue;
        encode_part(run, p, t, &place[p], &out, &progress);
        commit_run(stage.dir, p, &out, token_bytes);
    }
    token_ids_free(&out.ids);
    free(out.doc[0]);
    free(out.doc[1]);
    free(place);
    free(owner);
    recipe_stage_end(run, &stage, json_pack("{s:I, s:i, s:i, s:i}", "parts", (json_int_t)n_parts, "token_bytes",
                                            token_bytes, "vocab_size", vocab, "eot", tokenizer_eot(t)));
    tokenizer_free(t);
}

// ---- the merge: sorted runs become shards
//
// The merge. Places come out as 0, 1, 2, ..., n - 1, each once, because the places of all runs of a source and split
// are a permutation. This is checked for every document, and so is the hash of its tokens: a run that is damaged or
// missing ends the program. A shard is a unit of work: after a kill the full ones stay. The rows of the runs say how
// many tokens come before any document, so the merge skips to the first missing token without reading those before it.
// At the end the runs are removed.
//
// Rejected: merging in several passes (a run is a part, 128 MiB of text: a terabyte is 8,000 runs, which the limit of
// open files allows), and keeping the runs (as much disk as the shards).

// A run while it is read.
typedef struct {
    char path[PATH_MAX]; // without .tokens and .rows
    int tokens, rows;
    RecipeRow row[ROWS];
    size_t n, at;                // of row
    uint64_t row_bytes, n_tokens; // read, or passed over, of each file
} Head;

typedef struct {
    Head **heap; // (n): the head with the smallest place first
    size_t n;
    int token_bytes;
    void *bytes;     // of one document
    int32_t *id;
    size_t cap_bytes, cap_ids;
} Merge;

static uint64_t place_of(const Head *h)
{
    return h->row[h->at].position;
}

static void read_at(const Head *h, int fd, const char *kind, void *out, size_t n, uint64_t at)
{
    if (!disk_read_at(fd, out, n, at))
        die("%s.%s: offset %llu: %s (delete its folder to begin again)", h->path, kind, (unsigned long long)at,
            errno == EIO ? "the file ends there, or the disk fails" : strerror(errno));
}

// False: the run is over.
static bool fill(Head *h)
{
    struct stat st;
    if (h->at < h->n) return true;
    if (fstat(h->rows, &st) != 0) die("%s.rows: %s", h->path, strerror(errno));
    uint64_t left = (uint64_t)st.st_size - h->row_bytes;
    if ((uint64_t)st.st_size < h->row_bytes || left % sizeof(RecipeRow))
        die("%s.rows: %lld bytes: damaged (delete its folder to begin again)", h->path, (long long)st.st_size);
    h->n = left / sizeof(RecipeRow) < ROWS ? left / sizeof(RecipeRow) : ROWS;
    h->at = 0;
    read_at(h, h->rows, "rows", h->row, h->n * sizeof(RecipeRow), h->row_bytes);
    h->row_bytes += h->n * sizeof(RecipeRow);
    return h->n > 0;
}

// Moves to the first row whose place is `place` or a later one.
static void seek(Head *h, uint64_t place)
{
    struct stat st;
    RecipeRow row;
    if (fstat(h->rows, &st) != 0) die("%s.rows: %s", h->path, strerror(errno));
    uint64_t low = 0, high = (uint64_t)st.st_size / sizeof row; // rows before low come before the place, high does not
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        read_at(h, h->rows, "rows", &row, sizeof row, middle * sizeof row);
        if (row.position < place) low = middle + 1;
        else high = middle;
    }
    h->row_bytes = low * sizeof row;
    if (low) read_at(h, h->rows, "rows", &row, sizeof row, h->row_bytes - sizeof row);
    h->n_tokens = low ? row.end : 0;
}

static void sink(Merge *m, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < m->n; i = child) {
        if (child + 1 < m->n && place_of(m->heap[child + 1]) < place_of(m->heap[child])) child++;
        if (place_of(m->heap[i]) <= place_of(m->heap[child])) return;
        Head *h = m->heap[i];
        m->heap[i] = m->heap[child];
        m->heap[child] = h;
    }
}

static int open_half(const Head *h, const char *kind)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s.%s", h->path, kind);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die("%s: %s (ulimit -n too small? else delete its folder to begin again)", path, strerror(errno));
    return fd;
}

static void close_head(Head *h)
{
    close(h->tokens);
    close(h->rows);
    free(h);
}

// The runs of a source and split, from `place` on; *before: tokens of all runs before that, without end-of-text.
static Merge open_runs(const RecipeRun *run, size_t source, int split, int token_bytes, uint64_t place,
                       uint64_t *before)
{
    size_t n_parts = documents_parts(run->docs);
    Merge m = {.heap = calloc(n_parts + 1, sizeof(Head *)), .token_bytes = token_bytes};
    if (!m.heap) die("memory: no room to merge %zu runs", n_parts);
    *before = 0;
    for (size_t p = 0; p < n_parts; p++) {
        if (documents_source(run->docs, p) != source) continue;
        Head *h = calloc(1, sizeof *h);
        if (!h) die("memory: no room to merge %zu runs", n_parts);
        snprintf(h->path, sizeof h->path, "%s/runs/run_%06zu_%s", run->dir, p, recipe_encode_splits[split]);
        h->tokens = open_half(h, "tokens");
        h->rows = open_half(h, "rows");
        seek(h, place);
        *before += h->n_tokens;
        if (fill(h)) m.heap[m.n++] = h;
        else close_head(h);
    }
    for (size_t i = m.n; i-- > 0;) sink(&m, i);
    return m;
}

static size_t tokens_of(const Head *h)
{
    return (size_t)(h->row[h->at].end - h->n_tokens);
}

// Tokens [from, end) of the document on top, whose first token is end-of-text.
static void add_document(Merge *m, int32_t eot, uint64_t from, uint64_t end, Shards *out)
{
    const Head *h = m->heap[0];
    size_t n = tokens_of(h);
    uint64_t at = h->n_tokens * (uint64_t)m->token_bytes;
    m->bytes = words_grow(m->bytes, &m->cap_bytes, n * (size_t)m->token_bytes, 1);
    m->id = words_grow(m->id, &m->cap_ids, n + 1, sizeof *m->id);
    read_at(h, h->tokens, "tokens", m->bytes, n * (size_t)m->token_bytes, at);
    if (XXH3_64bits(m->bytes, n * (size_t)m->token_bytes) != h->row[h->at].hash)
        die("%s.tokens: offset %llu: changed since it was written (delete its folder to begin again)", h->path,
            (unsigned long long)at);
    m->id[0] = eot;
    for (size_t i = 0; i < n; i++)
        m->id[i + 1] = m->token_bytes == 2 ? ((uint16_t *)m->bytes)[i] : ((int32_t *)m->bytes)[i];
    shards_add(out, m->id + from, end - from);
}

static void next_document(Merge *m)
{
    Head *h = m->heap[0];
    h->n_tokens = h->row[h->at].end;
    h->at++;
    if (!fill(h)) {
        close_head(h);
        m->heap[0] = m->heap[--m->n];
    }
    if (m->n) sink(m, 0);
}

typedef struct {
    uint64_t documents, bytes, tokens; // of text; tokens with end-of-text
} Counts;

// What the runs of a source and split hold.
static Counts count_runs(const RecipeRun *run, size_t source, int split)
{
    Counts c = {0};
    for (size_t p = 0; p < documents_parts(run->docs); p++) {
        char path[PATH_MAX];
        json_error_t error;
        json_int_t documents, bytes, tokens;
        if (documents_source(run->docs, p) != source) continue;
        snprintf(path, sizeof path, "%s/runs/run_%06zu.json", run->dir, p);
        json_t *about = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
        if (!about || json_unpack(json_object_get(about, recipe_encode_splits[split]), "{s:I, s:I, s:I}", "documents",
                                  &documents, "bytes", &bytes, "tokens", &tokens) != 0)
            die("%s: damaged (delete its folder to begin again)", path);
        c.documents += (uint64_t)documents, c.bytes += (uint64_t)bytes, c.tokens += (uint64_t)(tokens + documents);
        json_decref(about);
    }
    return c;
}

// This rank's part of the shards of a source and split.
typedef struct {
    uint64_t place;      // of the first document that it reads
    uint64_t at;         // of that document's first token in the sequence
    uint64_t begin, end; // tokens that this rank writes: whole shards, or to the end of the sequence
} Share;

// The rank at which the places begin moves on from split to split, so that small ones are not all rank 0's.
static int turn_of(const RecipeRun *run, int turn, int rank)
{
    return (rank + turn) % run->ranks;
}

static Share find_share(const RecipeRun *run, Merge *m, size_t source, int split, int turn, const Counts *c)
{
    uint64_t N = (uint64_t)run->ranks, q = (uint64_t)turn_of(run, turn, run->rank), most, next = c->tokens;
    Share s = {.place = c->documents * q / N};
    size_t n;
    *m = open_runs(run, source, split, m->token_bytes, s.place, &s.at);
    s.at += s.place; // an end-of-text for each document
    uint64_t *at = exchange_gather(run->world, &s.at, 1, sizeof s.at, &n);
    for (int r = 0; r < run->ranks; r++)
        if ((uint64_t)turn_of(run, turn, r) == q + 1) next = at[r];
    free(at);
    most = (uint64_t)run->recipe->shards_tokens;
    s.begin = (s.at + most - 1) / most * most;
    s.end = q + 1 == N ? next : (next + most - 1) / most * most;
    if (s.end > c->tokens) s.end = c->tokens;
    return s;
}

__attribute__((noreturn)) static void die_missing(const RecipeRun *run, size_t source, uint64_t place)
{
    die("%s/runs: document %llu of [source.%s] is missing (delete the folder to begin again)", run->dir,
        (unsigned long long)place, run->source[source].name);
}

// Writes this rank's shards of a source and split.
static void merge_share(RecipeRun *run, const char *dir, size_t source, int split, Merge *m, Share s,
                        const json_t *runs, RecipeProgress *progress)
{
    int64_t most = run->recipe->shards_tokens;
    int32_t eot = (int32_t)json_integer_value(json_object_get(runs, "eot"));
    Shards *out = shards_resume(dir, recipe_encode_splits[split],
                                (int)json_integer_value(json_object_get(runs, "vocab_size")), m->token_bytes, most,
                                (int)((int64_t)s.begin / most), (int)(((int64_t)s.end + most - 1) / most));
    uint64_t begin = (uint64_t)shards_tokens(out), at = s.at; // begin: after those that are there
    for (uint64_t place = s.place, n; begin < s.end && at < s.end; place++, at += n) {
        if (!m->n || place_of(m->heap[0]) != place) die_missing(run, source, place);
        n = tokens_of(m->heap[0]) + 1;
        if (at + n > begin)
            add_document(m, eot, at < begin ? begin - at : 0, at + n > s.end ? s.end - at : n, out);
        next_document(m);
        recipe_stage_advance(progress, n * (uint64_t)m->token_bytes);
    }
    shards_close(out);
}

static json_t *merge_split(RecipeRun *run, const char *dir, size_t source, int split, const json_t *runs,
                           RecipeProgress *progress)
{
    Merge m = {.token_bytes = (int)json_integer_value(json_object_get(runs, "token_bytes"))};
    Counts c = count_runs(run, source, split);
    Share s = find_share(run, &m, source, split, 2 * (int)source + split, &c);
    if (s.begin < s.end) merge_share(run, dir, source, split, &m, s, runs, progress);
    while (m.n) close_head(m.heap[--m.n]);
    free(m.heap);
    free(m.bytes);
    free(m.id);
    return json_pack("{s:I, s:I, s:I, s:I}", "documents", (json_int_t)c.documents, "bytes", (json_int_t)c.bytes,
                     "tokens", (json_int_t)c.tokens, "files",
                     (json_int_t)((c.tokens + (uint64_t)run->recipe->shards_tokens - 1) /
                                  (uint64_t)run->recipe->shards_tokens));
}

static json_t *merge_all(RecipeRun *run, const RecipeStage *stage, const json_t *runs)
{
    json_t *sources = json_array();
    uint64_t all = 0;
    for (size_t s = 0; s < run->n_sources; s++)
        for (int k = 0; k < 2; k++) all += count_runs(run, s, k).tokens;
    all = all / (uint64_t)run->ranks * (uint64_t)json_integer_value(json_object_get(runs, "token_bytes"));
    RecipeProgress progress = recipe_stage_progress(run, "shuffle", 0, all);
    for (size_t s = 0; s < run->n_sources; s++) {
        char dir[PATH_MAX];
        snprintf(dir, sizeof dir, "%s/%s", stage->dir, run->source[s].name);
        if (mkdir(dir, 0777) != 0 && errno != EEXIST) die("%s: %s", dir, strerror(errno));
        json_t *about = json_pack("{s:s}", "name", run->source[s].name);
        for (int k = 0; k < 2; k++)
            json_object_set_new(about, recipe_encode_splits[k], merge_split(run, dir, s, k, runs, &progress));
        json_array_append_new(sources, about);
    }
    return json_pack("{s:O, s:O, s:O, s:o}", "vocab_size", json_object_get(runs, "vocab_size"), "eot",
                     json_object_get(runs, "eot"), "token_bytes", json_object_get(runs, "token_bytes"), "sources",
                     sources);
}

void recipe_encode_shards(RecipeRun *run)
{
    const Recipe *r = run->recipe;
    char settings[160], before[sizeof run->key];
    // The runs are made only when shards are, so the key of the shards does not depend on the key of the runs.
    memcpy(before, run->key, sizeof before);
    snprintf(settings, sizeof settings, "%ld %.17g %d %ld", r->recipe_seed, r->shards_val, r->shards_dtype,
             r->shards_tokens);
    RecipeStage stage = recipe_stage_begin(run, "shards", settings);
    if (!stage.done) {
        char after[sizeof run->key];
        memcpy(after, run->key, sizeof after);
        memcpy(run->key, before, sizeof before);
        *strrchr(settings, ' ') = 0; // how many tokens a file has does not matter to runs
        encode_runs(run, settings);
        memcpy(run->key, after, sizeof after);
        json_t *runs = json_array_get(run->stages, json_array_size(run->stages) - 1);
        recipe_stage_documents(run);
        json_t *about = merge_all(run, &stage, runs);
        json_array_remove(run->stages, json_array_size(run->stages) - 1);
        recipe_stage_end(run, &stage, about);
    }
    if (run->rank == 0) recipe_stage_remove(run, "runs");
}
