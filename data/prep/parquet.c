// parquet: reads one column of strings of a Parquet file (https://parquet.apache.org/docs/file-format/).
//
//     PAR1 | pages of column 0, of column 1, ... of row group 0 | pages of row group 1 | ... | footer | n | PAR1
//
// A Parquet file stores a table by columns. Its rows are cut into row groups; in a row group each column is a chunk,
// and a chunk is a sequence of pages of about 1 MiB, each compressed by itself. The footer (n bytes, before the last
// eight) is a message of Thrift: the schema, and for each row group and column where its chunk begins, its codec and
// its number of values. A page begins with a Thrift message too, its header, and then holds
//
//     definition levels | values                               of a column inside lists: repetition levels before them
//
// Read: string and binary columns (BYTE_ARRAY), required or optional, in groups at any depth up to 64; the encodings
// above, PLAIN_DICTIONARY (the old name); pages of version 1 and 2; no codec, snappy, gzip, zstd; checksums of pages.
// All else is refused in a line that names it: columns in lists (which of its strings would be the document?), columns
// of other types, the codecs LZO, brotli and LZ4, encrypted files, BIT_PACKED levels, chunks in other files.
//
// Invariant: nothing of the file is believed. Every length is compared with what is left before it is used; chunks lie
// between the first magic and the footer; the values of a chunk's pages are as many as its row group has rows. Memory:
// the footer, one page packed and unpacked, and the dictionary of the chunk with 16 bytes for each entry. A page and a
// dictionary are at most max_page bytes, whatever the header says. Nothing recurses but thrift_skip, 32 deep.
// Time: that of the rows. Levels and indices take no memory, so a page may say in 10 bytes that it has 2^31 nulls.
//
// Rejected: Apache Arrow (its interface for C, GLib's, is not in Debian, and reads into tables), mapping the file (a
// disk that fails would kill the program), and standard input (the footer is at the end; a copy would be needed).
#define _GNU_SOURCE
#include "data/prep/parquet.h"

#include <errno.h>
#include <fcntl.h>
#include <snappy-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/check.h"
#include "data/prep/corpus.h"
#include "base/disk.h"
#include "base/words.h"

enum { BYTE_ARRAY = 6, N_TYPES = 8, OPTIONAL = 1, REPEATED = 2, DEPTH = 64 };
enum { PLAIN, PLAIN_DICTIONARY = 2, RLE, DELTA_LENGTH_BYTE_ARRAY = 6, DELTA_BYTE_ARRAY, RLE_DICTIONARY };
enum { CODEC_NONE, CODEC_SNAPPY, CODEC_GZIP, CODEC_ZSTD = 6 };
enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 };
enum { MAGIC = 4, TAIL = 8, HEADER_BYTES = 1 << 14, HEADER_MOST = 1 << 24, FOOTER_MOST = 1 << 30 };

static const char *const type_name[N_TYPES] = {"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY",
                                               "FIXED_LEN_BYTE_ARRAY"};
static const char *const codec_name[] = {"none", "snappy", "gzip", "LZO", "brotli", "LZ4", "zstd", "LZ4_RAW"};
static const char *const encoding_name[] = {"PLAIN", "1", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED",
                                            "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
                                            "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
#define NAME(table, i) \
    ((i) >= 0 && (i) < (int64_t)(sizeof(table) / sizeof *(table)) ? (table)[i] : "a later one than this program knows")

// ---- Thrift's compact protocol
//
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
// A struct is a sequence of fields and a 0. A field is a byte, the difference to the previous id in the upper four bits
// and the type in the lower four, and its value; a difference of 0 says that the id follows as a zigzag varint. A
// boolean's value is its type. Integers are zigzag varints, binaries a varint and so many bytes. A list is a byte, the
// number of elements above their type (15: the number follows as a varint), and the elements. Readers skip the fields
// that they do not know.
//
// Invariant: no byte outside [at, end) is read, `at` never moves back, and every element of a list and every field
// takes at least a byte. So reading ends after as many steps as there are bytes, whatever they are. Nothing is
// allocated.

enum { NESTED = 32 };

// A place in memory. The first thing that does not fit sets `bad` and moves to the end: everything read from there on
// is 0, every struct is over. So a reader checks once, after the last field.
typedef struct {
    const uint8_t *at, *end;
    bool bad;
} Thrift;

typedef enum {
    THRIFT_TRUE = 1, THRIFT_FALSE, THRIFT_BYTE, THRIFT_I16, THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE, THRIFT_BINARY,
    THRIFT_LIST, THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT
} ThriftType;

typedef struct {
    int64_t id;
    int type; // a ThriftType
} ThriftField; // starts as {0} in every struct

static uint64_t thrift_fail(Thrift *t)
{
    t->at = t->end;
    t->bad = true;
    return 0;
}

// NULL when there are fewer.
static const uint8_t *thrift_take(Thrift *t, uint64_t n_bytes)
{
    if (n_bytes > (uint64_t)(t->end - t->at)) {
        thrift_fail(t);
        return NULL;
    }
    t->at += n_bytes;
    return t->at - n_bytes;
}

// 7 bits a byte, the lowest first.
static uint64_t thrift_varint(Thrift *t)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && t->at < t->end; shift += 7) {
        uint8_t byte = *t->at++;
        if (shift == 63 && byte > 1) break; // more than 64 bits
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
    return thrift_fail(t);
}

// 0, -1, 1, -2, ... as varints 0, 1, 2, 3, ...
static int64_t thrift_zigzag(Thrift *t)
{
    uint64_t value = thrift_varint(t);
    return (int64_t)(value >> 1 ^ -(value & 1));
}

// Moves to the next field of a struct, whose value must be read or skipped before the next call. False: it is over.
static bool thrift_next(Thrift *t, ThriftField *field)
{
    const uint8_t *head = thrift_take(t, 1);
    if (!head || !*head) return false;
    field->type = *head & 15;
    if (*head >> 4) field->id += *head >> 4;
    else field->id = thrift_zigzag(t);
    if (field->type < THRIFT_TRUE || field->type > THRIFT_STRUCT || field->id < 0 || field->id > INT16_MAX)
        thrift_fail(t);
    return !t->bad;
}

// The value of the field; a field of another type is bad. An integer has 16, 32 or 64 bits.
static int64_t thrift_integer(Thrift *t, ThriftField field)
{
    if (field.type < THRIFT_I16 || field.type > THRIFT_I64) return (int64_t)thrift_fail(t);
    return thrift_zigzag(t);
}

static bool thrift_bool(Thrift *t, ThriftField field)
{
    if (field.type > THRIFT_FALSE) thrift_fail(t);
    return field.type == THRIFT_TRUE;
}

// The bytes are those of the message.
static const uint8_t *thrift_binary(Thrift *t, ThriftField field, size_t *n_bytes)
{
    *n_bytes = 0;
    if (field.type != THRIFT_BINARY) thrift_fail(t);
    uint64_t n = thrift_varint(t);
    const uint8_t *bytes = thrift_take(t, n);
    if (bytes) *n_bytes = (size_t)n;
    return bytes;
}

// Its fields come next.
static void thrift_struct(Thrift *t, ThriftField field)
{
    if (field.type != THRIFT_STRUCT) thrift_fail(t);
}

// The number of elements of a list, and their type.
static size_t list_head(Thrift *t, int *element)
{
    const uint8_t *head = thrift_take(t, 1);
    *element = head ? *head & 15 : 0;
    uint64_t n = !head ? 0 : *head >> 4 == 15 ? thrift_varint(t) : *head >> 4;
    return n > (uint64_t)(t->end - t->at) ? thrift_fail(t) : n;
}

// How many elements follow; more than bytes are left is bad. An element that is a struct begins with its fields.
static size_t thrift_list(Thrift *t, ThriftField field, ThriftType element)
{
    int found;
    if (field.type != THRIFT_LIST) return thrift_fail(t);
    size_t n = list_head(t, &found);
    return n && found != (int)element ? thrift_fail(t) : n;
}

static void thrift_skip_value(Thrift *t, int type, bool in_list, int depth)
{
    int element = 0, key = 0;
    size_t n = 0;
    ThriftField field = {0};
    if (depth == NESTED) thrift_fail(t);
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE: thrift_take(t, in_list); break; // of a list: a byte each
    case THRIFT_BYTE: thrift_take(t, 1); break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: thrift_varint(t); break;
    case THRIFT_DOUBLE: thrift_take(t, 8); break;
    case THRIFT_BINARY: thrift_take(t, thrift_varint(t)); break;
    case THRIFT_LIST:
    case THRIFT_SET:
        n = list_head(t, &element);
        for (size_t i = 0; i < n && !t->bad; i++) thrift_skip_value(t, element, true, depth + 1);
        break;
    case THRIFT_MAP:
        n = thrift_varint(t);
        const uint8_t *types = n ? thrift_take(t, 1) : NULL;
        if (types) key = *types >> 4, element = *types & 15;
        for (size_t i = 0; i < n && !t->bad; i++) {
            thrift_skip_value(t, key, true, depth + 1);
            thrift_skip_value(t, element, true, depth + 1);
        }
        break;
    case THRIFT_STRUCT:
        while (thrift_next(t, &field)) thrift_skip_value(t, field.type, false, depth + 1);
        break;
    default: thrift_fail(t);
    }
}

// A value of any type, nested up to 32 deep.
static void thrift_skip(Thrift *t, int type)
{
    thrift_skip_value(t, type, false, 0);
}

// ---- the file

typedef struct {
    uint8_t *bytes;
    size_t cap;
} Buffer;

typedef struct {
    uint64_t at, n_bytes; // of its pages, in the file
    uint64_t n_values;
    int64_t codec;
} Chunk;

typedef struct {
    Thrift in;      // the runs that are to come
    unsigned width; // bits of a value, up to 32
    uint64_t left;  // values of the current run
    bool packed;
    uint32_t value;      // of a run of one value
    const uint8_t *bits; // of a run of packed values: the next one begins at `bit`
    uint64_t bit;
} Hybrid;

typedef struct {
    Thrift in; // the blocks that are to come
    uint64_t left, n_mini, per_mini; // values; miniblocks of a block; values of a miniblock
    uint32_t value, least;           // the last value, and the smallest difference of the block
    bool begun;
    const uint8_t *width; // (n_mini) of the block
    uint64_t mini, in_mini; // miniblocks begun; values left in the last of them
    const uint8_t *bits;
    uint64_t bit;
} Delta;

typedef struct {
    int64_t type, n_unpacked, n_packed, crc;
    int64_t n_values, encoding, level_encoding, level_bytes, repetition_bytes;
    bool has_crc, is_packed;
} Header;

typedef struct {
    const uint8_t *bytes;
    size_t n;
} String;

struct Parquet {
    int fd;
    char *path;
    uint64_t n_bytes; // of the file
    size_t max_page;
    const char *raise;
    // The column. max_level: the definition level of a value that is there.
    int64_t leaf, n_leaves;
    uint32_t max_level;
    Chunk *chunk; // (n_chunks), of which at_chunk are begun
    size_t n_chunks, cap_chunks, at_chunk;
    // The current chunk: its next page, its end, and the values that are left in it and in the page.
    uint64_t at, end, left, page_left;
    uint64_t page_at;
    Buffer header, packed, page, dictionary_page, joined;
    String *dictionary; // (n_dictionary)
    size_t n_dictionary, cap_dictionary;
    bool has_dictionary;
    int64_t encoding;
    Thrift values;
    Hybrid levels, indices;
    Delta prefixes, lengths;
    size_t n_joined; // bytes of the last value of DELTA_BYTE_ARRAY
    ZSTD_DCtx *zstd;
};

static __attribute__((noreturn)) void damaged(const Parquet *p, uint64_t at, const char *what)
{
    die("%s: byte %llu: damaged Parquet: %s (fetch it again)", p->path, (unsigned long long)at, what);
}

static void need(Buffer *b, size_t n)
{
    b->bytes = words_grow(b->bytes, &b->cap, n + !n, 1);
}

static uint32_t four_bytes(const uint8_t *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

// Reads all n bytes at `at`; they lie in the file.
static void read_at(const Parquet *p, uint64_t at, void *out, size_t n)
{
    struct stat st;
    if (disk_read_at(p->fd, out, n, at)) return;
    if (fstat(p->fd, &st) == 0 && (uint64_t)st.st_size < at + n) damaged(p, at, "the file has become shorter");
    die("%s: byte %llu: %s", p->path, (unsigned long long)at, strerror(errno));
}

// ---- the schema
//
// The schema is a tree of groups, given depth first. A column is a leaf; its name is the path to it: meta.text. The
// definition level of a row says how many of the optional nodes on that path are there. If it is the largest possible,
// the row has a value in the page; otherwise it is null. A column without an optional node has no levels.

typedef struct {
    int64_t type, repetition, n_children; // type: -1 for a group
    const char *name;
    size_t n_name;
} Element;

typedef struct {
    int64_t left;  // children to come
    size_t n_path; // of the path to it
    uint32_t level;
    bool in_list;
} Group;

// What is known of the wanted column when the schema has been read, and for the message when it is not there.
typedef struct {
    const char *wanted;
    int64_t type;
    bool in_list, above_list; // above_list: the wanted path leads to a list
    char strings[400];        // paths of columns of strings
    size_t n_strings;
} Choice;

static Element read_element(Thrift *t)
{
    Element e = {.type = -1};
    ThriftField f = {0};
    while (thrift_next(t, &f))
        if (f.id == 1) e.type = thrift_integer(t, f);
        else if (f.id == 3) e.repetition = thrift_integer(t, f);
        else if (f.id == 4) e.name = (const char *)thrift_binary(t, f, &e.n_name);
        else if (f.id == 5) e.n_children = thrift_integer(t, f);
        else thrift_skip(t, f.type);
    if (e.n_children < 0 || e.repetition < 0 || e.repetition > REPEATED) t->bad = true;
    return e;
}

static void judge_leaf(Parquet *p, Choice *c, const char *path, Group g, int64_t type)
{
    size_t n_wanted = strlen(c->wanted);
    if (strcmp(path, c->wanted) == 0 && p->leaf < 0) {
        p->leaf = p->n_leaves;
        p->max_level = g.level;
        c->type = type;
        c->in_list = g.in_list;
    }
    if (g.in_list && strncmp(path, c->wanted, n_wanted) == 0 && path[n_wanted] == '.') c->above_list = true;
    if (type == BYTE_ARRAY && !g.in_list && c->n_strings < sizeof c->strings - 1) {
        int n = snprintf(c->strings + c->n_strings, sizeof c->strings - c->n_strings, "%s%.100s",
                         c->n_strings ? ", " : "", path);
        c->n_strings += (size_t)n;
    }
    p->n_leaves++;
}

// The tree, depth first: each element is a child of the last group that still lacks children.
static void read_schema(Parquet *p, Thrift *t, ThriftField f, Choice *c)
{
    Group group[DEPTH];
    Buffer path = {0};
    int depth = 0;
    size_t n = thrift_list(t, f, THRIFT_STRUCT);
    group[0] = (Group){.left = n ? read_element(t).n_children : 0};
    for (size_t i = 1; i < n && !t->bad; i++) {
        Element e = read_element(t);
        while (depth && !group[depth].left) depth--;
        if (!group[depth].left-- || !e.name) t->bad = true;
        if (t->bad) break;
        Group g = {.left = e.n_children, .n_path = group[depth].n_path,
                   .level = group[depth].level + (e.repetition != 0),
                   .in_list = group[depth].in_list || e.repetition == REPEATED};
        need(&path, g.n_path + e.n_name + 2);
        if (g.n_path) path.bytes[g.n_path++] = '.';
        memcpy(path.bytes + g.n_path, e.name, e.n_name);
        path.bytes[g.n_path += e.n_name] = 0;
        if (e.type >= 0) judge_leaf(p, c, (const char *)path.bytes, g, e.type);
        else if (++depth == DEPTH) die("%s: groups more than %d deep, which are not read here", p->path, DEPTH);
        else group[depth] = g;
    }
    for (; depth >= 0; depth--) t->bad |= group[depth].left != 0;
    free(path.bytes);
}

static void check_choice(const Parquet *p, const Choice *c)
{
    const char *names = c->n_strings ? c->strings : "none";
    if (c->in_list || (p->leaf < 0 && c->above_list))
        die("%s: column '%.200s' is in a list, so a row has many texts (join them in a column; columns of strings: %s)",
            p->path, c->wanted, names);
    if (p->leaf < 0)
        die("%s: no column '%.200s' (columns of strings, to be chosen with 'field': %s)", p->path, c->wanted, names);
    if (c->type != BYTE_ARRAY)
        die("%s: column '%.200s' holds %s, not strings (columns of strings, to be chosen with 'field': %s)", p->path,
            c->wanted, NAME(type_name, c->type), names);
}

// ---- the footer

static void read_chunk_data(Thrift *t, ThriftField f, Chunk *c, int64_t *type, int64_t *dictionary_at)
{
    int64_t at = -1, n_bytes = -1, n_values = -1;
    thrift_struct(t, f);
    f = (ThriftField){0};
    while (thrift_next(t, &f))
        if (f.id == 1) *type = thrift_integer(t, f);
        else if (f.id == 4) c->codec = thrift_integer(t, f);
        else if (f.id == 5) n_values = thrift_integer(t, f);
        else if (f.id == 7) n_bytes = thrift_integer(t, f);
        else if (f.id == 9) at = thrift_integer(t, f);
        else if (f.id == 11) *dictionary_at = thrift_integer(t, f);
        else thrift_skip(t, f.type);
    if (*dictionary_at > 0 && *dictionary_at < at) at = *dictionary_at; // some writers say 0 for none
    if (n_values == 0) at = MAGIC, n_bytes = 0; // no pages to read, and some writers have no offset for them
    if (at < MAGIC || n_bytes < 0 || n_values < 0 || c->codec < 0) t->bad = true;
    c->at = (uint64_t)at, c->n_bytes = (uint64_t)n_bytes, c->n_values = (uint64_t)n_values;
}

static void read_chunk(const Parquet *p, Thrift *t, Chunk *c)
{
    ThriftField f = {0};
    int64_t type = -1, dictionary_at = 0;
    bool elsewhere = false, encrypted = false;
    c->codec = -1;
    while (thrift_next(t, &f))
        if (f.id == 3) read_chunk_data(t, f, c, &type, &dictionary_at);
        else {
            elsewhere |= f.id == 1;
            encrypted |= f.id == 8 || f.id == 9;
            thrift_skip(t, f.type);
        }
    if (t->bad) return;
    if (elsewhere) die("%s: its columns are in other files, which is not read here (give those files)", p->path);
    if (encrypted) die("%s: the column is encrypted, which is not read here (decrypt it first)", p->path);
    if (type != BYTE_ARRAY) t->bad = true;
    if (c->codec != CODEC_NONE && c->codec != CODEC_SNAPPY && c->codec != CODEC_GZIP && c->codec != CODEC_ZSTD)
        die("%s: compressed by %s, which is not read here (write it again with snappy, gzip or zstd)", p->path,
            NAME(codec_name, c->codec));
}

static int64_t read_row_group(Parquet *p, Thrift *t, uint64_t footer_at)
{
    ThriftField f = {0};
    int64_t n_rows = -1;
    Chunk c = {.codec = -1};
    while (thrift_next(t, &f)) {
        size_t n = f.id == 1 ? thrift_list(t, f, THRIFT_STRUCT) : 0;
        if (f.id == 1 && n != (size_t)p->n_leaves) t->bad = true;
        for (size_t i = 0; i < n && !t->bad; i++)
            if ((int64_t)i == p->leaf) read_chunk(p, t, &c);
            else thrift_skip(t, THRIFT_STRUCT);
        if (f.id == 3) n_rows = thrift_integer(t, f);
        else if (f.id != 1) thrift_skip(t, f.type);
    }
    if (t->bad || n_rows < 0 || c.codec < 0 || c.n_values != (uint64_t)n_rows || c.at > footer_at ||
        c.n_bytes > footer_at - c.at) {
        t->bad = true;
        return 0;
    }
    p->chunk = words_grow(p->chunk, &p->cap_chunks, p->n_chunks + 1, sizeof *p->chunk);
    p->chunk[p->n_chunks++] = c;
    return n_rows;
}

// Moves to the field `id` of a struct; false when it is not there.
static bool find_field(Thrift *t, int id, ThriftField *f)
{
    *f = (ThriftField){0};
    while (thrift_next(t, f)) {
        if (f->id == id) return true;
        thrift_skip(t, f->type);
    }
    return false;
}

static void read_footer(Parquet *p, const char *column, const uint8_t *bytes, size_t n, uint64_t footer_at)
{
    const Thrift whole = {bytes, bytes + n, false};
    Thrift t = whole;
    ThriftField f;
    Choice choice = {.wanted = column};
    p->leaf = -1;
    if (find_field(&t, 8, &f)) die("%s: encrypted, which is not read here (decrypt it first)", p->path);
    if (t.bad) damaged(p, footer_at, "the footer is no message of Thrift");
    t = whole;
    if (!find_field(&t, 2, &f)) damaged(p, footer_at, "the footer has no schema");
    read_schema(p, &t, f, &choice);
    if (t.bad) damaged(p, footer_at, "the schema in the footer is no tree");
    check_choice(p, &choice);
    t = whole;
    int64_t n_rows = find_field(&t, 3, &f) ? thrift_integer(&t, f) : -1, in_groups = 0;
    t = whole;
    if (!find_field(&t, 4, &f)) damaged(p, footer_at, "the footer has no list of row groups");
    size_t n_groups = thrift_list(&t, f, THRIFT_STRUCT);
    for (size_t i = 0; i < n_groups && !t.bad; i++) {
        int64_t rows = read_row_group(p, &t, footer_at);
        if (rows > INT64_MAX - in_groups) t.bad = true;
        else in_groups += rows;
    }
    if (t.bad) damaged(p, footer_at, "a row group in the footer does not fit the file or the schema");
    if (in_groups != n_rows) damaged(p, footer_at, "the row groups have not as many rows as the file");
}

bool parquet_is(const char *path)
{
    struct stat st;
    char head[5] = "";
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = pread(fd, head, sizeof head, 0);
    close(fd);
    return n == sizeof head && memcmp(head, "PAR1\x15", sizeof head) == 0; // \x15: the first field of a page or footer
}

Parquet *parquet_open(const char *path, const char *column, size_t max_page, const char *raise)
{
    struct stat st;
    uint8_t head[MAGIC], tail[TAIL];
    if (strcmp(path, "-") == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)))
        die("%s: Parquet is read from its end, so not from a pipe (save it as a file)", path);
    Parquet *p = calloc(1, sizeof *p);
    if (!p || !(p->path = strdup(path))) die("%s: no memory to read it", path);
    p->max_page = max_page;
    p->raise = raise;
    p->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (p->fd < 0 || fstat(p->fd, &st) != 0) die("%s: cannot read: %s", path, strerror(errno));
    p->n_bytes = (uint64_t)st.st_size;
    if (p->n_bytes < MAGIC + TAIL) damaged(p, p->n_bytes, "too short for its two magics and the footer");
    read_at(p, 0, head, MAGIC);
    read_at(p, p->n_bytes - TAIL, tail, TAIL);
    if (memcmp(head, "PARE", MAGIC) == 0) die("%s: encrypted, which is not read here (decrypt it first)", path);
    if (memcmp(head, "PAR1", MAGIC) != 0) {
        char begin[STREAM_LOOK];
        ssize_t n = pread(p->fd, begin, sizeof begin, 0);
        stream_refuse(path, begin, n > 0 ? (size_t)n : 0, true);
        die("%s: byte 0: not Parquet, it does not begin with PAR1 (if it is packed, unpack it first)", path);
    }
    if (memcmp(tail + 4, "PAR1", MAGIC) != 0) damaged(p, p->n_bytes - MAGIC, "it does not end with PAR1: cut short?");
    uint64_t n_footer = four_bytes(tail);
    if (n_footer > p->n_bytes - MAGIC - TAIL || n_footer > FOOTER_MOST)
        damaged(p, p->n_bytes - TAIL, "a footer of this length does not fit into the file");
    Buffer footer = {0};
    need(&footer, n_footer);
    read_at(p, p->n_bytes - TAIL - n_footer, footer.bytes, n_footer);
    read_footer(p, column, footer.bytes, n_footer, p->n_bytes - TAIL - n_footer);
    free(footer.bytes);
    return p;
}

// ---- the encodings of numbers
//
// Levels and indices are a hybrid of runs: a value and how often it comes (RLE), or groups of eight values of `width`
// bits each. Lengths are blocks of differences (DELTA_BINARY_PACKED): the smallest difference of the block, then what
// each is larger, in miniblocks of a common number of bits.
//
//     encoding                   n values are stored as
//     PLAIN                      n times 4 bytes of length and the string
//     RLE_DICTIONARY             n indices into a dictionary, which is a page of its own, PLAIN, before the others
//     DELTA_LENGTH_BYTE_ARRAY    n lengths, then all strings without borders between them
//     DELTA_BYTE_ARRAY           n lengths of the prefix shared with the string before, then the rests as above

// The `width` (up to 32) bits at `bit`, the lowest first; touches no byte that has none of them.
static uint32_t bits_at(const uint8_t *bytes, uint64_t bit, unsigned width)
{
    uint64_t value = 0, first = bit / 8;
    for (uint64_t i = (bit + width + 7) / 8; i-- > first;) value = value << 8 | bytes[i];
    return (uint32_t)(value >> bit % 8 & ((UINT64_C(1) << width) - 1));
}

static Hybrid hybrid(const uint8_t *bytes, size_t n, unsigned width)
{
    return (Hybrid){.in = {bytes, bytes + n, false}, .width = width};
}

static void begin_run(Hybrid *h)
{
    uint64_t head = thrift_varint(&h->in), available = (uint64_t)(h->in.end - h->in.at);
    h->packed = head & 1;
    h->left = head >> 1;
    if (h->left > INT32_MAX) h->in.bad = true;
    if (h->in.bad) return;
    if (h->packed) { // groups of eight; some writers leave out bytes that no value needs
        uint64_t n = h->left * h->width;
        h->left *= 8;
        if (n > available) n = available, h->left = 8 * n / h->width;
        h->bits = thrift_take(&h->in, n);
        h->bit = 0;
        return;
    }
    const uint8_t *value = thrift_take(&h->in, (h->width + 7) / 8);
    if (value) h->value = bits_at(value, 0, h->width);
}

// False when there are no more.
static bool hybrid_next(Hybrid *h, uint32_t *value)
{
    while (!h->left) {
        if (h->in.at == h->in.end) return false;
        begin_run(h);
        if (h->in.bad) return false;
    }
    h->left--;
    if (!h->packed) *value = h->value;
    else *value = bits_at(h->bits, h->bit, h->width), h->bit += h->width;
    return true;
}

// The numbers that begin at t->at; moves t behind them. All their blocks are checked here.
static Delta delta(Thrift *t)
{
    uint64_t per_block = thrift_varint(t), n_mini = thrift_varint(t), n = thrift_varint(t);
    Delta d = {.left = n, .n_mini = n_mini, .value = (uint32_t)thrift_zigzag(t)};
    if (!n_mini || per_block > 1 << 24 || per_block % n_mini || !(d.per_mini = per_block / n_mini) || d.per_mini % 32 ||
        n > INT32_MAX)
        t->bad = true;
    d.in = *t;
    for (uint64_t left = n - (n > 0); left && !t->bad;) {
        thrift_zigzag(t);
        const uint8_t *width = thrift_take(t, n_mini);
        for (uint64_t i = 0; i < n_mini && left && !t->bad; i++) {
            if (width[i] > 32) t->bad = true;
            thrift_take(t, d.per_mini / 8 * width[i]);
            left -= left < d.per_mini ? left : d.per_mini;
        }
    }
    return d;
}

// False when there are no more. Additions are modulo 2^32, as writers do them.
static bool delta_next(Delta *d, uint32_t *value)
{
    if (!d->left) return false;
    d->left--;
    if (d->begun) {
        if (!d->in_mini) {
            if (d->mini == 0) {
                d->least = (uint32_t)thrift_zigzag(&d->in);
                d->width = thrift_take(&d->in, d->n_mini);
            }
            d->in_mini = d->per_mini;
            d->bits = thrift_take(&d->in, d->per_mini / 8 * d->width[d->mini]);
            d->bit = 0;
        }
        unsigned width = d->width[d->mini];
        d->value += d->least + bits_at(d->bits, d->bit, width);
        d->bit += width;
        if (!--d->in_mini && ++d->mini == d->n_mini) d->mini = 0;
    }
    d->begun = true;
    *value = d->value;
    return true;
}

// ---- pages

// The header of a data page (field 5 of the page's header), of a dictionary (7), or of a data page of version 2 (8).
static void read_values_header(Thrift *t, ThriftField f, Header *h)
{
    bool v1 = f.id == 5, v2 = f.id == 8;
    thrift_struct(t, f);
    f = (ThriftField){0};
    h->is_packed = true;
    while (thrift_next(t, &f))
        if (f.id == 1) h->n_values = thrift_integer(t, f);
        else if (f.id == (v2 ? 4 : 2)) h->encoding = thrift_integer(t, f);
        else if (v1 && f.id == 3) h->level_encoding = thrift_integer(t, f);
        else if (v2 && f.id == 5) h->level_bytes = thrift_integer(t, f);
        else if (v2 && f.id == 6) h->repetition_bytes = thrift_integer(t, f);
        else if (v2 && f.id == 7) h->is_packed = thrift_bool(t, f);
        else thrift_skip(t, f.type);
}

static Header parse_header(Thrift *t)
{
    Header h = {.type = -1, .n_unpacked = -1, .n_packed = -1, .n_values = -1, .encoding = -1, .level_encoding = RLE};
    ThriftField f = {0};
    while (thrift_next(t, &f))
        if (f.id == 1) h.type = thrift_integer(t, f);
        else if (f.id == 2) h.n_unpacked = thrift_integer(t, f);
        else if (f.id == 3) h.n_packed = thrift_integer(t, f);
        else if (f.id == 4) h.crc = thrift_integer(t, f), h.has_crc = true;
        else if (f.id == 5 || f.id == 7 || f.id == 8) read_values_header(t, f, &h);
        else thrift_skip(t, f.type);
    return h;
}

// The header at p->at, and p->at behind it. How long it is shows only when it has been read: it may hold the smallest
// and the largest string of the page.
static Header read_header(Parquet *p)
{
    for (size_t room = HEADER_BYTES;; room *= 2) {
        size_t n = p->end - p->at < room ? (size_t)(p->end - p->at) : room;
        need(&p->header, n);
        read_at(p, p->at, p->header.bytes, n);
        Thrift t = {p->header.bytes, p->header.bytes + n, false};
        Header h = parse_header(&t);
        if (t.bad && n == room && room < HEADER_MOST) continue;
        if (t.bad || h.n_packed < 0 || h.n_unpacked < 0 || h.n_packed > INT32_MAX || h.n_unpacked > INT32_MAX ||
            h.n_values > INT32_MAX)
            damaged(p, p->at, "no header of a page begins here");
        p->at += (uint64_t)(t.at - p->header.bytes);
        if ((uint64_t)h.n_packed > p->end - p->at) damaged(p, p->at, "a page goes beyond the end of its chunk");
        if ((uint64_t)h.n_packed > p->max_page || (uint64_t)h.n_unpacked > p->max_page)
            die("%s: byte %llu: a page of %lld bytes, above %zu (raise %s)", p->path, (unsigned long long)p->at,
                (long long)(h.n_packed > h.n_unpacked ? h.n_packed : h.n_unpacked), p->max_page, p->raise);
        return h;
    }
}

static bool unpack_gzip(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)n_in, .next_out = out, .avail_out = (uInt)n_out};
    if (inflateInit2(&z, 15 + 32) != Z_OK) die("memory: no room to unpack gzip"); // 32: zlib's own header too
    int status = inflate(&z, Z_FINISH);
    while (status == Z_STREAM_END && z.avail_in && inflateReset(&z) == Z_OK) status = inflate(&z, Z_FINISH); // members
    inflateEnd(&z);
    return status == Z_STREAM_END && !z.avail_in && !z.avail_out;
}

static bool unpack(Parquet *p, int64_t codec, const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out)
{
    size_t n = n_out;
    if (codec == CODEC_GZIP) return unpack_gzip(in, n_in, out, n_out);
    if (codec == CODEC_SNAPPY)
        return snappy_uncompressed_length((const char *)in, n_in, &n) == SNAPPY_OK && n == n_out &&
               snappy_uncompress((const char *)in, n_in, (char *)out, &n) == SNAPPY_OK && n == n_out;
    if (!p->zstd && !(p->zstd = ZSTD_createDCtx())) die("memory: no room to unpack zstd");
    return ZSTD_decompressDCtx(p->zstd, out, n_out, in, n_in) == n_out;
}

// The bytes of the page at p->at, unpacked but for the first `levels`, which never are packed.
static void load(Parquet *p, const Header *h, size_t levels, Buffer *out)
{
    size_t n_packed = (size_t)h->n_packed, n = (size_t)h->n_unpacked;
    int64_t codec = h->is_packed ? p->chunk[p->at_chunk - 1].codec : CODEC_NONE;
    need(&p->packed, n_packed);
    read_at(p, p->at, p->packed.bytes, n_packed);
    if (h->has_crc && (uint32_t)crc32(0, p->packed.bytes, (uInt)n_packed) != (uint32_t)h->crc)
        damaged(p, p->at, "the checksum of a page is wrong");
    if (levels > n || levels > n_packed) damaged(p, p->at, "the levels of a page are longer than the page");
    if (codec == CODEC_NONE || n == levels) { // without values some writers pack nothing
        if (codec == CODEC_NONE && n != n_packed) damaged(p, p->at, "a page is not packed, but has two sizes");
        Buffer swap = *out;
        *out = p->packed;
        p->packed = swap;
        need(out, n);
    } else {
        need(out, n);
        memcpy(out->bytes, p->packed.bytes, levels);
        if (!unpack(p, codec, p->packed.bytes + levels, n_packed - levels, out->bytes + levels, n - levels))
            damaged(p, p->at, "a page cannot be unpacked to the size that its header says");
    }
    p->at += (uint64_t)h->n_packed;
}

// Four bytes of length, and so many bytes.
static String plain_string(Thrift *t)
{
    const uint8_t *length = thrift_take(t, 4);
    String s = {.n = length ? four_bytes(length) : 0};
    s.bytes = thrift_take(t, s.n);
    return s;
}

static void read_dictionary(Parquet *p, const Header *h)
{
    uint64_t at = p->at;
    if (h->encoding != PLAIN && h->encoding != PLAIN_DICTIONARY)
        die("%s: byte %llu: a dictionary in the encoding %s, which is not read here (write it again without)", p->path,
            (unsigned long long)at, NAME(encoding_name, h->encoding));
    if (p->has_dictionary) damaged(p, at, "a second dictionary in a chunk");
    load(p, h, 0, &p->dictionary_page);
    Thrift t = {p->dictionary_page.bytes, p->dictionary_page.bytes + h->n_unpacked, false};
    p->has_dictionary = true;
    p->n_dictionary = 0;
    for (int64_t i = 0; i < h->n_values && !t.bad; i++) {
        p->dictionary = words_grow(p->dictionary, &p->cap_dictionary, p->n_dictionary + 1, sizeof *p->dictionary);
        p->dictionary[p->n_dictionary++] = plain_string(&t);
    }
    if (h->n_values < 0 || t.bad) damaged(p, at, "a dictionary is shorter than its number of entries needs");
}

// The values of a page begin at p->values.
static void begin_values(Parquet *p)
{
    Thrift *t = &p->values;
    const uint8_t *width;
    switch (p->encoding) {
    case PLAIN: break;
    case PLAIN_DICTIONARY:
    case RLE_DICTIONARY:
        if (!p->has_dictionary) damaged(p, p->page_at, "a page of indices without a dictionary before it");
        p->indices = hybrid(t->at, 0, 0); // nulls alone may have no byte
        if (t->at == t->end) break;
        width = thrift_take(t, 1);
        if (*width > 32) t->bad = true;
        p->indices = hybrid(t->at, (size_t)(t->end - t->at), *width);
        break;
    case DELTA_LENGTH_BYTE_ARRAY: p->lengths = delta(t); break;
    case DELTA_BYTE_ARRAY:
        p->n_joined = 0;
        p->prefixes = delta(t);
        p->lengths = delta(t);
        break;
    default:
        die("%s: byte %llu: a page in the encoding %s, which is not read here for strings (write it again as PLAIN)",
            p->path, (unsigned long long)p->page_at, NAME(encoding_name, p->encoding));
    }
    if (t->bad) damaged(p, p->page_at, "the values of a page are not what their encoding says");
}

static void begin_page(Parquet *p, const Header *h)
{
    bool v2 = h->type == DATA_PAGE_V2;
    unsigned width = 0;
    while (p->max_level >> width) width++;
    if (h->n_values < 0 || (uint64_t)h->n_values > p->left)
        damaged(p, p->at, "the pages have more values than the chunk");
    if (h->level_bytes < 0 || h->repetition_bytes != 0) damaged(p, p->at, "a page of lists, where the schema has none");
    if (!v2 && p->max_level && h->level_encoding != RLE)
        die("%s: byte %llu: levels in the encoding %s, which is not read here (write it again)", p->path,
            (unsigned long long)p->at, NAME(encoding_name, h->level_encoding));
    load(p, h, v2 ? (size_t)h->level_bytes : 0, &p->page);
    p->page_left = (uint64_t)h->n_values;
    p->encoding = h->encoding;
    Thrift *t = &p->values;
    *t = (Thrift){p->page.bytes, p->page.bytes + h->n_unpacked, false};
    String levels = {t->at, 0};
    if (!p->page_left) return;
    if (v2) levels = (String){thrift_take(t, (uint64_t)h->level_bytes), (size_t)h->level_bytes};
    else if (p->max_level) levels = plain_string(t);
    if (t->bad) damaged(p, p->page_at, "the levels of a page are longer than the page");
    p->levels = hybrid(levels.bytes, levels.n, width);
    begin_values(p);
}

// Moves to the next page with values; false after the last.
static bool next_page(Parquet *p)
{
    while (!p->page_left) {
        while (!p->left) {
            if (p->at_chunk == p->n_chunks) return false;
            const Chunk *c = &p->chunk[p->at_chunk++];
            p->at = c->at;
            p->end = c->at + c->n_bytes;
            p->left = c->n_values;
            p->has_dictionary = false;
        }
        p->page_at = p->at;
        if (p->at == p->end) damaged(p, p->at, "the pages have fewer values than the chunk");
        Header h = read_header(p);
        if (h.type == DATA_PAGE || h.type == DATA_PAGE_V2) begin_page(p, &h);
        else if (h.type == DICTIONARY_PAGE) read_dictionary(p, &h);
        else p->at += (uint64_t)h.n_packed; // an index, or what a later version adds
    }
    return true;
}

static String next_value(Parquet *p)
{
    Thrift *t = &p->values;
    uint32_t number = 0, prefix = 0;
    String s = {0};
    if (p->encoding == PLAIN) return plain_string(t);
    if (p->encoding == PLAIN_DICTIONARY || p->encoding == RLE_DICTIONARY) {
        if (!hybrid_next(&p->indices, &number) || number >= p->n_dictionary) t->bad = true;
        return t->bad ? s : p->dictionary[number];
    }
    if (!delta_next(&p->lengths, &number)) t->bad = true;
    s = (String){thrift_take(t, number), number};
    if (p->encoding == DELTA_LENGTH_BYTE_ARRAY) return s;
    if (!delta_next(&p->prefixes, &prefix) || prefix > p->n_joined) t->bad = true;
    if (t->bad) return s;
    p->n_joined = (size_t)prefix + s.n;
    need(&p->joined, p->n_joined);
    memcpy(p->joined.bytes + prefix, s.bytes, s.n);
    return (String){p->joined.bytes, p->n_joined};
}

bool parquet_next(Parquet *p, ParquetRow *row)
{
    uint32_t level = p->max_level;
    if (!next_page(p)) return false;
    *row = (ParquetRow){.offset = p->page_at};
    if (p->max_level && (!hybrid_next(&p->levels, &level) || level > p->max_level))
        damaged(p, p->page_at, "the definition levels of a page are too few or too high");
    p->page_left--;
    p->left--;
    if (level < p->max_level) return true;
    String s = next_value(p);
    if (p->values.bad) damaged(p, p->page_at, "the values of a page are fewer or longer than the page");
    row->text = (const char *)s.bytes;
    row->n_bytes = s.n;
    return true;
}

void parquet_close(Parquet *p)
{
    if (!p) return;
    Buffer buffer[] = {p->header, p->packed, p->page, p->dictionary_page, p->joined};
    for (size_t i = 0; i < sizeof buffer / sizeof *buffer; i++) free(buffer[i].bytes);
    ZSTD_freeDCtx(p->zstd);
    close(p->fd);
    free(p->dictionary);
    free(p->chunk);
    free(p->path);
    free(p);
}
