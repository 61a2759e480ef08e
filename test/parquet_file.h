// parquet_file: writes Parquet files for tests and for the fuzzer's seeds, in every encoding that parquet.c reads.
//
// A table of two columns: `id` (INT64, whose pages are never written: only the reader of the other column may look) and
// `text`, alone or in the optional group `meta`. Strings are cut into pages and row groups of a given number of rows.
// It is slow and simple, and shares no code with the reader.
#ifndef TEST_PARQUET_FILE_H
#define TEST_PARQUET_FILE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { FILE_PLAIN = 0, FILE_DELTA_LENGTH = 6, FILE_DELTA = 7, FILE_DICTIONARY = 8 };
enum { FILE_NONE = 0, FILE_SNAPPY = 1, FILE_GZIP = 2, FILE_ZSTD = 6 };

typedef struct {
    int codec, encoding; // as the format numbers them
    bool v2, required, grouped, crc, list;
    size_t page_rows, group_rows; // 0: all
    int type, level_encoding;     // 0: BYTE_ARRAY, RLE
    bool encrypted_footer, encrypted_column, elsewhere; // fields that say so; nothing is encrypted
    uint32_t skew; // added to the indices into a dictionary, and to the length of the first shared prefix of a page
    int more;      // values that the footer claims for each chunk, and rows, beside those that are there
} FileOptions;

typedef struct {
    uint8_t *bytes;
    size_t n, cap;
} Out;

static void out_bytes(Out *o, const void *bytes, size_t n)
{
    if (o->n + n > o->cap) o->bytes = realloc(o->bytes, o->cap = 2 * (o->n + n) + 64);
    if (n) memcpy(o->bytes + o->n, bytes, n);
    o->n += n;
}

static void out_byte(Out *o, unsigned byte) { out_bytes(o, &(uint8_t){(uint8_t)byte}, 1); }

static void out_four(Out *o, uint32_t value)
{
    for (int i = 0; i < 4; i++) out_byte(o, value >> 8 * i & 255);
}

static void out_varint(Out *o, uint64_t value)
{
    for (; value > 127; value >>= 7) out_byte(o, 128 | (value & 127));
    out_byte(o, (unsigned)value);
}

static void out_zigzag(Out *o, int64_t value)
{
    out_varint(o, value < 0 ? 2 * (uint64_t)(-(value + 1)) + 1 : 2 * (uint64_t)value);
}

// A field of a struct, after the field `last`; its value follows. Types: 1 true, 2 false, 5 and 6 integers, 8 a binary,
// 9 a list, 12 a struct.
static void out_field(Out *o, int *last, int id, int type)
{
    out_byte(o, (unsigned)((id - *last) << 4 | type));
    *last = id;
}

static void out_number(Out *o, int *last, int id, int64_t value)
{
    out_field(o, last, id, 5);
    out_zigzag(o, value);
}

// n fields, of the numbers `id` and after.
static void out_numbers(Out *o, int *last, int id, int n, const int64_t *value)
{
    for (int i = 0; i < n; i++) out_number(o, last, id + i, value[i]);
}

static void out_list(Out *o, int *last, int id, size_t n, int type)
{
    out_field(o, last, id, 9);
    if (n < 15) out_byte(o, (unsigned)(n << 4) | (unsigned)type);
    else out_byte(o, 15 << 4 | (unsigned)type), out_varint(o, n);
}

// ---- numbers

// The lowest bits of n numbers, and zeros to a whole byte.
static void out_bits(Out *o, const uint64_t *value, size_t n, unsigned width)
{
    uint64_t bits = 0;
    unsigned n_bits = 0;
    for (size_t i = 0; i < n; i++) {
        bits |= value[i] << n_bits;
        for (n_bits += width; n_bits >= 8; n_bits -= 8, bits >>= 8) out_byte(o, bits & 255);
    }
}

// Runs of eight equal values and more as such, the others in groups of eight.
static void out_hybrid(Out *o, const uint32_t *value, size_t n, unsigned width)
{
    for (size_t i = 0; i < n;) {
        size_t same = 1;
        while (i + same < n && value[i + same] == value[i]) same++;
        if (same >= 8) {
            out_varint(o, same << 1);
            for (unsigned b = 0; b < width; b += 8) out_byte(o, value[i] >> b & 255);
            i += same;
            continue;
        }
        uint64_t group[8] = {0};
        for (size_t k = 0; k < 8 && i < n; k++) group[k] = value[i++];
        out_varint(o, 1 << 1 | 1);
        out_bits(o, group, 8, width);
    }
}

// Blocks of 128 in four miniblocks, each with as few bits as it needs.
static void out_delta(Out *o, const uint32_t *value, size_t n)
{
    enum { BLOCK = 128, MINI = 32 };
    out_varint(o, BLOCK);
    out_varint(o, BLOCK / MINI);
    out_varint(o, n);
    out_zigzag(o, n ? (int32_t)value[0] : 0);
    for (size_t at = 1; at < n; at += BLOCK) {
        int64_t least = INT64_MAX, d[BLOCK];
        uint64_t over[BLOCK] = {0}; // the least
        size_t k = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < k; i++) {
            d[i] = (int64_t)value[at + i] - value[at + i - 1];
            if (d[i] < least) least = d[i];
        }
        out_zigzag(o, least);
        unsigned width[BLOCK / MINI] = {0};
        for (size_t i = 0; i < k; i++)
            for (over[i] = (uint64_t)(d[i] - least); over[i] >> width[i / MINI];) width[i / MINI]++;
        for (int m = 0; m < BLOCK / MINI; m++) out_byte(o, width[m]);
        for (size_t m = 0; m * MINI < k; m++) out_bits(o, over + m * MINI, MINI, width[m]);
    }
}

// ---- pages

static void out_packed(Out *o, const Out *in, int codec)
{
    size_t room = 1000 + 2 * in->n;
    uint8_t *bytes = malloc(room);
    if (codec == FILE_SNAPPY) snappy_compress((char *)in->bytes, in->n, (char *)bytes, &room);
    else if (codec == FILE_ZSTD) room = ZSTD_compress(bytes, room, in->bytes, in->n, 3);
    else if (codec == FILE_GZIP) {
        z_stream z = {.next_in = in->bytes, .avail_in = (uInt)in->n, .next_out = bytes, .avail_out = (uInt)room};
        deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
        deflate(&z, Z_FINISH);
        room = z.total_out;
        deflateEnd(&z);
    } else if ((room = in->n)) memcpy(bytes, in->bytes, room);
    out_bytes(o, bytes, room);
    free(bytes);
}

// type 0: a page of version 1, 2: a dictionary, 3: version 2, with `levels` before the rest.
static void out_page(Out *o, int type, const Out *levels, const Out *values, size_t n, int encoding, FileOptions f)
{
    Out body = {0};
    int last = 0, in = 0;
    out_bytes(&body, levels->bytes, levels->n);
    if (type == 3) out_packed(&body, values, f.codec);
    else {
        Out whole = {0};
        out_bytes(&whole, levels->bytes, levels->n);
        out_bytes(&whole, values->bytes, values->n);
        body.n = 0;
        out_packed(&body, &whole, f.codec);
        free(whole.bytes);
    }
    out_numbers(o, &last, 1, 3, (int64_t[]){type, (int64_t)(levels->n + values->n), (int64_t)body.n});
    if (f.crc) out_number(o, &last, 4, (int32_t)crc32(0, body.bytes, (uInt)body.n));
    out_field(o, &last, type == 3 ? 8 : type == 2 ? 7 : 5, 12);
    const int64_t levels_n = (int64_t)levels->n, rows = (int64_t)n;
    if (type == 3) { // values, nulls, rows: the first alone is read
        out_numbers(o, &in, 1, 6, (int64_t[]){rows, 0, rows, encoding, levels_n, 0});
        out_field(o, &in, 7, f.codec ? 1 : 2);
    } else {
        const int64_t level_encoding = f.level_encoding ? f.level_encoding : 3;
        out_numbers(o, &in, 1, type == 0 ? 4 : 2, (int64_t[]){rows, encoding, level_encoding, 3});
    }
    out_byte(o, 0);
    out_byte(o, 0);
    out_bytes(o, body.bytes, body.n);
    free(body.bytes);
}

static void out_string(Out *o, const char *text)
{
    out_four(o, (uint32_t)strlen(text));
    out_bytes(o, text, strlen(text));
}

static void out_values(Out *o, const char *const *text, size_t n, const uint32_t *index, size_t n_words, FileOptions f)
{
    uint32_t *prefix = calloc(n + 1, sizeof *prefix), *rest = calloc(n + 1, sizeof *rest);
    unsigned width = 0;
    int encoding = f.encoding;
    for (size_t i = 0; i < n; i++) {
        if (encoding == FILE_PLAIN) out_string(o, text[i]);
        if (encoding == FILE_DELTA && i)
            while (text[i][prefix[i]] && text[i][prefix[i]] == text[i - 1][prefix[i]]) prefix[i]++;
        rest[i] = (uint32_t)strlen(text[i]) - prefix[i];
    }
    if (encoding == FILE_DICTIONARY) {
        while (n_words > 1 && (n_words - 1) >> width) width++;
        out_byte(o, width);
        out_hybrid(o, index, n, width);
    }
    prefix[0] += f.skew;
    if (encoding == FILE_DELTA) out_delta(o, prefix, n);
    prefix[0] -= f.skew;
    if (encoding == FILE_DELTA || encoding == FILE_DELTA_LENGTH) {
        out_delta(o, rest, n);
        for (size_t i = 0; i < n; i++) out_bytes(o, text[i] + prefix[i], rest[i]);
    }
    free(prefix);
    free(rest);
}

// The rows [0, n) of a row group as a chunk. *dictionary_n: bytes of its dictionary.
static void out_chunk(Out *o, const char *const *row, size_t n, FileOptions f, size_t *dictionary_n)
{
    const char **text = calloc(n + 1, sizeof *text), **word = calloc(n + 1, sizeof *word);
    uint32_t *index = calloc(n + 1, sizeof *index), *level = calloc(n + 1, sizeof *level);
    size_t n_words = 0, start = o->n;
    const Out none = {0};
    Out words = {0};
    for (size_t i = 0; i < n && f.encoding == FILE_DICTIONARY; i++) {
        size_t k = 0;
        while (row[i] && k < n_words && strcmp(word[k], row[i])) k++;
        if (row[i] && k == n_words) out_string(&words, word[n_words++] = row[i]);
    }
    if (f.encoding == FILE_DICTIONARY) out_page(o, 2, &none, &words, n_words, FILE_PLAIN, f);
    *dictionary_n = o->n - start;
    size_t step = f.page_rows ? f.page_rows : n;
    for (size_t at = 0; at < n; at += step) {
        size_t k = n - at < step ? n - at : step, m = 0;
        Out levels = {0}, values = {0}, runs = {0};
        for (size_t i = 0; i < k; i++) { // of a column that may be null in a group: every third null is the group's
            level[i] = row[at + i] ? (uint32_t)f.grouped + !f.required : f.grouped && !f.required && i % 3;
            if (!row[at + i]) continue;
            for (index[m] = 0; index[m] < n_words && strcmp(word[index[m]], row[at + i]);) index[m]++;
            index[m] += f.skew;
            text[m++] = row[at + i];
        }
        if (f.grouped || !f.required) out_hybrid(&runs, level, k, f.grouped && !f.required ? 2 : 1);
        if ((f.grouped || !f.required) && !f.v2) out_four(&levels, (uint32_t)runs.n);
        out_bytes(&levels, runs.bytes, runs.n);
        out_values(&values, text, m, index, n_words, f);
        out_page(o, f.v2 ? 3 : 0, &levels, &values, k, f.encoding, f);
        free(levels.bytes), free(values.bytes), free(runs.bytes);
    }
    free(text), free(word), free(index), free(level), free(words.bytes);
}

// ---- the footer

static void out_element(Out *o, const char *name, int type, int repetition, int children)
{
    int last = 0;
    if (type >= 0) out_number(o, &last, 1, type);
    if (repetition >= 0) out_number(o, &last, 3, repetition);
    out_field(o, &last, 4, 8);
    out_varint(o, strlen(name));
    out_bytes(o, name, strlen(name));
    if (children) out_number(o, &last, 5, children);
    out_byte(o, 0);
}

static void out_column(Out *o, const char *name, int type, FileOptions f, size_t n, size_t at, size_t n_bytes,
                       size_t dictionary)
{
    int last = 0, in = 0;
    if (f.elsewhere) out_field(o, &last, 1, 8), out_byte(o, 1), out_byte(o, 'x');
    out_number(o, &last, 2, (int64_t)at);
    out_field(o, &last, 3, 12);
    out_number(o, &in, 1, type);
    out_list(o, &in, 3, 1, 8);
    out_varint(o, strlen(name));
    out_bytes(o, name, strlen(name));
    out_number(o, &in, 4, f.codec);
    out_number(o, &in, 5, (int64_t)n);
    out_number(o, &in, 7, (int64_t)n_bytes);
    out_number(o, &in, 9, (int64_t)(at + dictionary));
    if (dictionary) out_number(o, &in, 11, (int64_t)at);
    out_byte(o, 0);
    if (f.encrypted_column) out_field(o, &last, 8, 12), out_byte(o, 0);
    out_byte(o, 0);
}

// The file of n rows (NULL: a null); free(bytes).
static Out parquet_file(const char *const *row, size_t n, FileOptions f)
{
    Out o = {0}, footer = {0}, groups = {0};
    int last = 0, type = f.type ? f.type : 6;
    size_t n_groups = 0, step = f.group_rows ? f.group_rows : n;
    out_bytes(&o, "PAR1", 4);
    for (size_t at = 0; at < n; at += step, n_groups++) {
        size_t k = n - at < step ? n - at : step, start = o.n, dictionary;
        int in = 0;
        out_chunk(&o, row + at, k, f, &dictionary);
        out_list(&groups, &in, 1, 2, 12);
        out_column(&groups, "id", 2, (FileOptions){0}, k, 4, 0, 0);
        out_column(&groups, "text", type, f, k + (size_t)f.more, start, o.n - start, dictionary);
        out_number(&groups, &in, 3, (int64_t)k + f.more);
        out_byte(&groups, 0);
    }
    out_number(&footer, &last, 1, 2);
    out_list(&footer, &last, 2, 3 + f.grouped + f.list, 12);
    out_element(&footer, "schema", -1, -1, 2);
    out_element(&footer, "id", 2, 0, 0);
    if (f.grouped) out_element(&footer, "meta", -1, 1, 1);
    if (f.list) out_element(&footer, "texts", -1, 2, 1);
    out_element(&footer, "text", type, !f.required, 0);
    out_number(&footer, &last, 3, (int64_t)n + f.more * (int64_t)n_groups);
    out_list(&footer, &last, 4, n_groups, 12);
    out_bytes(&footer, groups.bytes, groups.n);
    if (f.encrypted_footer) out_field(&footer, &last, 8, 12), out_byte(&footer, 0);
    out_byte(&footer, 0);
    out_bytes(&o, footer.bytes, footer.n);
    out_four(&o, (uint32_t)footer.n);
    out_bytes(&o, "PAR1", 4);
    free(footer.bytes), free(groups.bytes);
    return o;
}
#endif
