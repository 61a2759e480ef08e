// texts: targets about what a corpus is made from, and what it is made into. See doc/fuzz.md.
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include "base/words.h"
#include "data/prep/corpus.h"
#include "data/prep/parquet.h"
#include "data/prep/recipe.h"
#include "test/parquet_file.h"
#include "text/dataset.h"
#include "text/sources.h"

// ---- corpus: the reader of documents, text and JSONL: valid UTF-8 comes out, and the same whatever a read returns.
//
// The first byte chooses the options, the rest is the file.
static void corpus_seeds(void)
{
    static const char *const text[] = {
        "\x01{\"text\": \"one\"}\n{\"text\": \"tw\\u00f6 \\ud83d\\ude00\", \"id\": 1e99}\n"
        "\n{\"text\": 3}\nnot JSON\r\n{\"text\":\"\\u0000\"}",
        "\x02one\n\ntwo\r\n\r\nthree\n\n\n", "\x03one\n***\ntwo\r\n***\r\n***\nthree***\n***",
        "\x04\xEF\xBB\xBFone<|endoftext|>tw\xFFo\xE2\x82<|endoftext|><|endoftext|> \n<|endoftext|>three",
        "\024a long text that is cut after so many bytes, in the middle of \xE2\x82\xAC or elsewhere\n\n\xE2\x82\xAC",
        "\x01{\"text\": \"half \\ud83d\", \"n\": [NaN, -Infinity, 1e999, \"\\\"NaN\"]}\n{\"n\":NaN,\"text\":\"\\\\udc00\"}",
        "\021{\"text\": \"a line that is too long to be read, of which nothing is kept at all\"}\n"
        "{\"text\": \"ok\"}\n"};
    fuzz_seed_texts(text, 7);
}

typedef struct {
    uint64_t hash;
    CorpusCounts counts;
} Result;

static Result read_all(const char *path, CorpusOptions options)
{
    CorpusReader *r = corpus_open(&path, 1, options);
    CorpusRecord doc;
    Result out = {0};
    uint64_t documents = 0;
    while (corpus_next(r, &doc)) {
        size_t length;
        fuzz_check(doc.n_bytes > 0 && doc.n_bytes <= options.max_bytes);
        fuzz_check(words_utf8_invalid(doc.text, doc.n_bytes, 0, &length) == doc.n_bytes);
        fuzz_check(!memchr(doc.text, 0, doc.n_bytes));
        fuzz_check(doc.index == documents++);
        const uint64_t about[] = {out.hash, XXH3_64bits(doc.text, doc.n_bytes), doc.n_bytes, doc.line, doc.offset,
                                  doc.json ? XXH3_64bits(doc.json, doc.n_json) : 0};
        out.hash = XXH3_64bits(about, sizeof about);
    }
    out.counts = corpus_counts(r);
    fuzz_check(out.counts.documents == documents);
    corpus_close(r);
    return out;
}

static void corpus_one(const uint8_t *data, size_t n)
{
    static const char *const separators[] = {"<|endoftext|>", "\n\n", "aa"};
    if (!n) return;
    int kind = data[0] & 7;
    CorpusOptions o = {.format = kind <= 1 ? SOURCE_JSONL : SOURCE_TEXT, .max_bytes = data[0] & 16 ? 40 : 1 << 20};
    if (kind == 2) o.line = "";
    if (kind == 3) o.line = "***";
    if (kind >= 4 && kind < 7) o.separator = separators[kind - 4];
    const char *path = fuzz_file("x", data + 1, n - 1);
    fuzz_allow(1 << 27); // a zstd window, if it says that it is such a file
    o.read_bytes = 1 << 16;
    Result whole = read_all(path, o);
    bool may_be_packed = n > 4 && (data[1] == 0x1F || data[1] == 0x28 || data[1] >> 4 == 5);
    fuzz_check(whole.counts.bytes_in == n - 1 || may_be_packed);
    o.read_bytes = 1 + (data[0] >> 5);
    Result pieces = read_all(path, o);
    fuzz_check(whole.hash == pieces.hash && !memcmp(&whole.counts, &pieces.counts, sizeof whole.counts));
}

FUZZ(corpus, NULL)

// ---- stream: unpacking, gzip and zstd: the same content whatever is asked for at a time, and bombs go off outside memory.
//
// The first byte chooses the format, the rest is the file.
// Bytes that are unpacked of one input; the largest window that zstd takes without being asked, which it allocates at
// once.
enum { MOST = 1 << 20, WINDOW = 1 << 27 };

static size_t gzip(void *out, size_t room, const char *text, size_t n)
{
    z_stream z = {0};
    if (deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
    z.next_in = (Bytef *)(uintptr_t)text, z.avail_in = (uInt)n;
    z.next_out = out, z.avail_out = (uInt)room;
    deflate(&z, Z_FINISH);
    deflateEnd(&z);
    return room - z.avail_out;
}

static void stream_seeds(void)
{
    static const char text[] = "a text that is packed, a text that is packed, a text that is packed";
    static char zeros[1 << 16], out[4096];
    for (int twice = 0; twice < 2; twice++) {
        size_t n = 1;
        out[0] = 0;
        for (int k = 0; k <= twice; k++) n += gzip(out + n, 512, text, sizeof text - 1);
        fuzz_seed(twice ? "gzip_2" : "gzip", out, n + (twice ? 3 : 0)); // zeros after it: padding
        n = out[0] = 1;
        for (int k = 0; k <= twice; k++) n += ZSTD_compress(out + n, 512, text, sizeof text - 1, 3);
        fuzz_seed(twice ? "zstd_2" : "zstd", out, n);
    }
    out[0] = 0;
    fuzz_seed("gzip_zeros", out, 1 + gzip(out + 1, 4000, zeros, sizeof zeros));
    out[0] = 1;
    fuzz_seed("zstd_zeros", out, 1 + ZSTD_compress(out + 1, 4000, zeros, sizeof zeros, 3));
    fuzz_seed("plain", "\x02plain", 6);
}

static uint64_t unpack(const char *path, size_t step, size_t *n_bytes)
{
    static char bytes[1 << 12];
    Stream *s = stream_open(path, step);
    XXH3_state_t *state = XXH3_createState();
    fuzz_check(state);
    XXH3_64bits_reset(state);
    size_t k = 0;
    *n_bytes = 0;
    while (*n_bytes < MOST && (k = stream_read(s, bytes, step))) {
        fuzz_check(k <= step);
        XXH3_64bits_update(state, bytes, k);
        *n_bytes += k;
    }
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    stream_close(s);
    return hash;
}

static void stream_one(const uint8_t *data, size_t n)
{
    if (!n) return;
    fuzz_allow(WINDOW);
    const char *name[] = {"x.gz", "x.zst", "x"};
    const char *path = fuzz_file(name[data[0] % 3], data + 1, n - 1);
    size_t n_whole, n_pieces;
    uint64_t whole = unpack(path, 1 << 12, &n_whole);
    if (n_whole >= MOST) return; // a bomb: where the two stop is another place
    fuzz_must_take();
    uint64_t pieces = unpack(path, 1 + data[0] / 3 % 16, &n_pieces);
    fuzz_check(whole == pieces && n_whole == n_pieces);
}

FUZZ(stream, NULL)

// ---- parquet: the reader of Parquet: what it gives lies in memory that it has, twice the same, and within its bounds.
//
// The first byte chooses the column and the largest page, the rest is the file.
// Rows and bytes that are read of one input: a page may say in 10 bytes that it has 2^31 rows. The largest page.
enum { MOST_ROWS = 1 << 16, MOST_BYTES = 1 << 24, PAGE = 1 << 20 };

static void parquet_seeds(void)
{
    static const char *const row[] = {"one", "two", NULL, "", "two", "three hundred", "three thousand", "three",
                                      "one", "one", "one", "one", "one", "one", "one", "one", NULL, "a longer one"};
    const int codec[] = {FILE_NONE, FILE_SNAPPY, FILE_GZIP, FILE_ZSTD};
    const int encoding[] = {FILE_PLAIN, FILE_DELTA_LENGTH, FILE_DELTA, FILE_DICTIONARY};
    for (unsigned i = 0; i < 32; i++) {
        FileOptions f = {.codec = codec[i & 3], .encoding = encoding[i >> 2 & 3], .v2 = i >> 4, .grouped = i % 5 == 0,
                         .required = i % 7 == 0, .page_rows = i % 3 * 5, .group_rows = i % 2 * 11};
        Out o = {0}, file;
        out_byte(&o, f.grouped);
        file = parquet_file(row, f.required ? 2 : sizeof row / sizeof *row, f);
        out_bytes(&o, file.bytes, file.n);
        fuzz_seed((char[]){'p', (char)('0' + i / 10), (char)('0' + i % 10), 0}, o.bytes, o.n);
        free(o.bytes);
        free(file.bytes);
    }
    static const char *many[300]; // several blocks of differences, and long runs
    for (int i = 0; i < 300; i++) many[i] = i < 200 ? row[i * i % 18] : row[i / 50];
    for (unsigned i = 0; i < 8; i++) {
        Out o = {0}, file = parquet_file(many, 300, (FileOptions){.encoding = encoding[i & 3], .v2 = i >> 2});
        out_byte(&o, 0);
        out_bytes(&o, file.bytes, file.n);
        fuzz_seed((char[]){'m', (char)('0' + i), 0}, o.bytes, o.n);
        free(o.bytes);
        free(file.bytes);
    }
}

static uint64_t read_rows(const char *path, size_t n_file, int options)
{
    const size_t max_page = options & 4 ? 200 : PAGE;
    const char *column[] = {"text", "meta.text", "id", "texts"};
    Parquet *p = parquet_open(path, column[options & 3], max_page, "max_page");
    ParquetRow row;
    uint64_t about[4] = {0};
    for (size_t n = 0, n_bytes = 0; n < MOST_ROWS && n_bytes < MOST_BYTES && parquet_next(p, &row); n++) {
        fuzz_check(row.offset >= 4 && row.offset < n_file);
        fuzz_check(row.text ? row.n_bytes <= max_page : row.n_bytes == 0);
        about[1] = row.text ? XXH3_64bits(row.text, row.n_bytes) : 1;
        about[2] = row.n_bytes;
        about[3] = row.offset;
        about[0] = XXH3_64bits(about, sizeof about);
        n_bytes += row.n_bytes;
    }
    parquet_close(p);
    return about[0];
}

static void parquet_one(const uint8_t *data, size_t n)
{
    if (!n) return;
    const char *path = fuzz_file("x", data + 1, n - 1);
    uint64_t once = read_rows(path, n - 1, data[0]);
    fuzz_must_take();
    fuzz_check(read_rows(path, n - 1, data[0]) == once);
}

FUZZ(parquet, NULL)

// ---- mixture: mixtures: the manifest of sources, and the order that its weights make.
static void mixture_seeds(void)
{
    static const char *const text[] = {
        "[source.a]\npath = \"a.bin\"\nweight = 3\n[source.b]\npath = 'b.bin'\n",
        "# three\n[source.web]  # x\npath = web\nweight = 0.625\nformat = jsonl\nfield = \"content\"\n\n"
        "[source.b]\npath = \"/b\\t\"\n"
        "weight=1e-1\nseparator = \"\\n\\n\"\n[source.c]\npath = c\nline = \"\"\nweight = 2.5\n",
        "[source.a]\npath = a\nweight = 4e307\n[source.b]\npath = b\nweight = 8e307\n"
        "[source.c]\npath = c\nweight = 6e307\n"};
    fuzz_seed_texts(text, 3);
}

static void mixture_one(const uint8_t *data, size_t n)
{
    enum { SAMPLES = 1000, MOST = 16 };
    Sources list = sources_read(fuzz_file("x.toml", data, n));
    double sum = 0, weight[MOST];
    int64_t count[MOST] = {0}, index;
    fuzz_check(list.n > 0);
    for (size_t i = 0; i < list.n; i++) fuzz_check(list.source[i].name && list.source[i].path);
    size_t k = list.n < MOST ? list.n : MOST;
    for (size_t i = 0; i < k; i++) sum += (weight[i] = list.source[i].weight) / MOST;
    Mixture m = mixture_make(weight, k);
    for (int64_t s = 0; s < SAMPLES; s++) {
        size_t i = mixture_source(&m, s, &index);
        fuzz_check(i < k && index == count[i]++);
    }
    // Shares are rounded by less than 2^-20, and the order is off by less than one sample.
    for (size_t i = 0; i < k; i++)
        fuzz_check(fabs((double)count[i] - SAMPLES * (weight[i] / MOST / sum)) <= 1 + SAMPLES * 0x1p-20);
    mixture_free(&m);
    sources_free(&list);
}

FUZZ(mixture, NULL)

// ---- recipe: the reader of recipes: sources, and the table of keys.
static void recipe_seeds(void)
{
    fuzz_seed_file("scripts/recipes/stories.toml");
    fuzz_seed_file("scripts/recipes/web.toml");
    static const char all[] =
        "[recipe]\nout = \"o\"\nseed = 3\nthreads = 2\nunit = 0.5\n[source.a]\npath = a\nweight = 2\n"
        "[filter]\nrules = \"gopher\"\n"
        "set = \"gopher.words.min=60\"\n[dedup]\nexact = true\nnear = true\nthreshold = 0.7\n"
        "[contamination]\nevaluation = e\n"
        "ngram = 8\n[tokenizer]\nvocab = 1_000\npattern = cl100k\n[shards]\nval = 0.1\ndtype = uint32\ntokens = 1000\n";
    fuzz_seed("all", all, sizeof all - 1);
}

static void recipe_one(const uint8_t *data, size_t n)
{
    char option[] = "--shards.val=0.25", *options[] = {option};
    Recipe *r = recipe_load(fuzz_file("x.toml", data, n), options, 1);
    fuzz_check(r->sources.n > 0 && *r->recipe_out && r->shards_val == 0.25);
    fuzz_check(r->shards_tokens >= 1 && r->tokenizer_vocab >= 257 && r->dedup_threshold > 0);
    for (size_t i = 0; i < r->sources.n; i++) { // names become folders
        const char *name = r->sources.source[i].name;
        fuzz_check(*name && !strchr(name, '/') && !strchr(name, '.'));
    }
    recipe_free(r);
}

FUZZ(recipe, NULL)

// ---- shards: the readers of token files: shards, and files without header. The first byte chooses.
enum { VOCAB = 300 };

static void shard(const char *name, int32_t magic, int32_t version, int token_bytes, int32_t n)
{
    static uint8_t bytes[2048];
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes + 1, &magic, 4);
    memcpy(bytes + 5, &version, 4);
    memcpy(bytes + 9, &n, 4);
    for (int32_t i = 0; i < n; i++) memcpy(bytes + 1025 + i * token_bytes, &i, (size_t)token_bytes);
    fuzz_seed(name, bytes, 1025 + (size_t)(n * token_bytes));
}

static void shards_seeds(void)
{
    shard("uint16", DATASET_MAGIC_U16, DATASET_VERSION_U16, 2, 40);
    shard("uint32", DATASET_MAGIC_U32, DATASET_VERSION_U32, 4, 40);
    fuzz_seed("raw16", "\x01\1\0\2\0\3\0\4\0\5\0\6\0\7\0", 15);
    fuzz_seed("raw32", "\x02\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0", 25);
}

static void shards_one(const uint8_t *data, size_t n)
{
    if (!n) return;
    enum { T = 4 };
    const char *suffix[] = {"", ":uint16", ":uint32"};
    char name[400];
    int32_t in[T], out[T], all[64];
    snprintf(name, sizeof name, "%s%s", fuzz_file("x.bin", data + 1, n - 1), suffix[data[0] % 3]);
    Dataset *ds = dataset_open(name, VOCAB);
    int64_t tokens = dataset_tokens(ds);
    fuzz_check(tokens >= 0 && (size_t)tokens <= n / 2);
    for (int64_t at = 0; at < tokens; at += 64) {
        int64_t take = tokens - at < 64 ? tokens - at : 64;
        dataset_span(ds, at, take, all);
        for (int64_t i = 0; i < take; i++) fuzz_check(all[i] >= 0 && all[i] < VOCAB);
    }
    for (int64_t s = 0; s < 5 && tokens > T; s++) dataset_window(ds, s, T, 1, s % 2, in, out);
    if (tokens) dataset_pack(ds, T, all[0]);
    for (int64_t s = 0; tokens && s < dataset_windows(ds, T); s++) {
        int32_t pos[T], first[T];
        dataset_ahead(ds, s, T, 1, s % 2);
        dataset_row(ds, s, 1, s % 2, in, out, pos, first);
        for (int i = 0; i < T; i++) fuzz_check(in[i] >= 0 && in[i] < VOCAB && out[i] >= -1 && out[i] < VOCAB);
        for (int i = 0; i < T; i++) fuzz_check(first[i] >= 0 && first[i] <= i && pos[i] == i - first[i]);
    }
    dataset_close(ds);
}

FUZZ(shards, NULL)

// ---- megatron: the reader of Megatron's indexed datasets: x.idx, a line of four dashes, x.bin.
enum { SEQUENCES = 3 };

static void megatron_seeds(void)
{
    uint8_t bytes[256] = "MMIDIDX\0\0";
    for (int wide = 0; wide < 2; wide++) {
        const uint64_t version = 1, n = SEQUENCES, documents = 2;
        const int32_t length[SEQUENCES] = {3, 1, 4};
        const int size = wide ? 4 : 2;
        int64_t begin = 0;
        size_t at = 34;
        memcpy(bytes + 9, &version, 8);
        bytes[17] = wide ? 4 : 8;
        memcpy(bytes + 18, &n, 8);
        memcpy(bytes + 26, &documents, 8);
        memcpy(bytes + at, length, sizeof length);
        at += sizeof length;
        for (int i = 0; i < SEQUENCES; begin += length[i++] * size, at += 8) memcpy(bytes + at, &begin, 8);
        memset(bytes + at, 0, 16);
        at += 16;
        memcpy(bytes + at, "\n----\n", 6);
        at += 6;
        for (int i = 0; i < 8; i++, at += (size_t)size) memcpy(bytes + at, &(int32_t){i}, (size_t)size);
        fuzz_seed(wide ? "int32" : "uint16", bytes, at);
    }
}

static void megatron_one(const uint8_t *data, size_t n)
{
    size_t second, first = fuzz_cut(data, n, &second);
    fuzz_file("x.bin", data + second, n - second);
    Dataset *ds = dataset_open(fuzz_file("x.idx", data, first), VOCAB);
    int64_t tokens = dataset_tokens(ds);
    int32_t token;
    fuzz_check(tokens >= 0 && (size_t)tokens <= n);
    for (int64_t i = 0; i < tokens; i++) {
        dataset_span(ds, i, 1, &token);
        fuzz_check(token >= 0 && token < VOCAB);
    }
    dataset_close(ds);
}

FUZZ(megatron, NULL)
