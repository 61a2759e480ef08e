// recipe_merge: sorted runs become shards, the second half of the external merge sort (recipe_encode.c is the first).
//
// Invariant: places come out as 0, 1, 2, ..., n - 1, each once, because the places of all runs of a source and split
// are a permutation. This is checked for every document, and so is the hash of its tokens: a run that is damaged or
// missing ends the program.
//
// A shard is a unit of work. After a kill the full ones stay; the rows of the runs say how many tokens lie before any
// document, so the merge moves on to the first token that is missing without reading one before it.
//
// A heap holds the next place of every run; a document is one read from its run, which is read from front to end. At
// the end the runs go: they are what the shards are, in another order.
//
// Rejected: merging in several passes (a run is a part, 128 MiB of text: a terabyte is 8,000 runs, which the limit of
// open files allows), and keeping the runs so that another order needs no encoding (as much disk as the shards).
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/disk.h"
#include "data/prep/recipe_stage.h"
#include "data/prep/shards.h"
#include "base/words.h"

enum { ROWS = 512 }; // read at a time

// A run while it is read.
typedef struct {
    char path[PATH_MAX]; // without .tokens and .rows
    int tokens, rows;
    RecipeRow row[ROWS];
    size_t n, at;       // of row
    uint64_t row_bytes, token_bytes; // read, or passed over, of each file
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
    for (size_t got = 0; got < n;) {
        ssize_t k = pread(fd, (char *)out + got, n - got, (off_t)(at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            die("%s.%s: offset %llu: %s (delete its folder to begin again)", h->path, kind,
                (unsigned long long)(at + got), k < 0 ? strerror(errno) : "the file ends there");
        got += (size_t)k;
    }
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

static Merge open_runs(const RecipeRun *run, size_t source, int split, int token_bytes)
{
    size_t n_parts = documents_parts(run->docs);
    Merge m = {.heap = calloc(n_parts + 1, sizeof(Head *)), .token_bytes = token_bytes};
    if (!m.heap) die("memory: no room to merge %zu runs", n_parts);
    for (size_t p = 0; p < n_parts; p++) {
        if (documents_source(run->docs, p) != source) continue;
        Head *h = calloc(1, sizeof *h);
        if (!h) die("memory: no room to merge %zu runs", n_parts);
        snprintf(h->path, sizeof h->path, "%s/runs/run_%06zu_%s", run->dir, p, recipe_encode_splits[split]);
        h->tokens = open_half(h, "tokens");
        h->rows = open_half(h, "rows");
        if (fill(h)) m.heap[m.n++] = h;
        else close_head(h);
    }
    for (size_t i = m.n; i-- > 0;) sink(&m, i);
    return m;
}

// The tokens of the document on top, end-of-text first, from token `from` on.
static void add_document(Merge *m, int32_t eot, uint64_t from, Shards *out)
{
    const Head *h = m->heap[0];
    size_t n = h->row[h->at].n_tokens;
    m->bytes = words_grow(m->bytes, &m->cap_bytes, n * (size_t)m->token_bytes, 1);
    m->id = words_grow(m->id, &m->cap_ids, n + 1, sizeof *m->id);
    read_at(h, h->tokens, "tokens", m->bytes, n * (size_t)m->token_bytes, h->token_bytes);
    if (XXH3_64bits(m->bytes, n * (size_t)m->token_bytes) != h->row[h->at].hash)
        die("%s.tokens: offset %llu: changed since it was written (delete its folder to begin again)", h->path,
            (unsigned long long)h->token_bytes);
    m->id[0] = eot;
    for (size_t i = 0; i < n; i++)
        m->id[i + 1] = m->token_bytes == 2 ? ((uint16_t *)m->bytes)[i] : ((int32_t *)m->bytes)[i];
    shards_add(out, m->id + from, n + 1 - from);
}

static void next_document(Merge *m)
{
    Head *h = m->heap[0];
    h->token_bytes += h->row[h->at].n_tokens * (uint64_t)m->token_bytes;
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

static json_t *merge_split(RecipeRun *run, const char *dir, size_t source, int split, const json_t *runs,
                           RecipeProgress *progress)
{
    const char *name = recipe_encode_splits[split];
    int token_bytes = (int)json_integer_value(json_object_get(runs, "token_bytes"));
    int32_t eot = (int32_t)json_integer_value(json_object_get(runs, "eot"));
    Counts c = count_runs(run, source, split);
    Merge m = open_runs(run, source, split, token_bytes);
    Shards *out = shards_resume(dir, name, (int)json_integer_value(json_object_get(runs, "vocab_size")), token_bytes,
                                run->recipe->shards_tokens);
    uint64_t skip = (uint64_t)shards_tokens(out), place = 0;
    for (; m.n; place++) {
        uint64_t n = m.heap[0]->row[m.heap[0]->at].n_tokens + 1;
        if (place_of(m.heap[0]) != place)
            die("%s/runs: document %llu of [source.%s] is missing (delete the folder to begin again)", run->dir,
                (unsigned long long)place, run->source[source].name);
        if (skip < n) add_document(&m, eot, skip, out);
        skip -= skip < n ? skip : n;
        next_document(&m);
        recipe_stage_advance(progress, n * (uint64_t)token_bytes);
    }
    uint64_t n_tokens = (uint64_t)shards_tokens(out);
    if (place != c.documents || n_tokens != c.tokens)
        die("%s/runs: %llu documents and %llu tokens of [source.%s], not %llu and %llu (delete the folder to begin "
            "again)", run->dir, (unsigned long long)place, (unsigned long long)n_tokens, run->source[source].name,
            (unsigned long long)c.documents, (unsigned long long)c.tokens);
    int n_files = shards_close(out);
    free(m.heap);
    free(m.bytes);
    free(m.id);
    return json_pack("{s:I, s:I, s:I, s:i}", "documents", (json_int_t)c.documents, "bytes", (json_int_t)c.bytes,
                     "tokens", (json_int_t)n_tokens, "files", n_files);
}

static json_t *merge_all(RecipeRun *run, const RecipeStage *stage, const json_t *runs)
{
    json_t *sources = json_array();
    uint64_t all = 0;
    for (size_t s = 0; s < run->n_sources; s++)
        for (int k = 0; k < 2; k++) all += count_runs(run, s, k).tokens;
    RecipeProgress progress = recipe_stage_progress(
        "shuffle", 0, all * (uint64_t)json_integer_value(json_object_get(runs, "token_bytes")));
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

void recipe_merge_stage(RecipeRun *run)
{
    const Recipe *r = run->recipe;
    char settings[160], before[sizeof run->key];
    // The runs are made only when shards are: the key of the shards does not go over theirs.
    memcpy(before, run->key, sizeof before);
    snprintf(settings, sizeof settings, "%ld %.17g %d %ld", r->recipe_seed, r->shards_val, r->shards_dtype,
             r->shards_tokens);
    RecipeStage stage = recipe_stage_begin(run, "shards", settings);
    if (!stage.done) {
        char after[sizeof run->key];
        memcpy(after, run->key, sizeof after);
        memcpy(run->key, before, sizeof before);
        *strrchr(settings, ' ') = 0; // how many tokens a file has does not matter to runs
        recipe_encode_stage(run, settings);
        memcpy(run->key, after, sizeof after);
        json_t *runs = json_array_get(run->stages, json_array_size(run->stages) - 1);
        recipe_stage_documents(run);
        json_t *about = merge_all(run, &stage, runs);
        json_array_remove(run->stages, json_array_size(run->stages) - 1);
        recipe_stage_end(run, &stage, about);
    }
    recipe_stage_remove(run, "runs");
}
