// vocab_sentencepiece: SentencePiece's model files (tokenizer.model), those of type BPE.
//
// The file is one protobuf message: a row of fields, each a number that holds the field's number and how its value is
// stored (varint, 4 or 8 bytes, or a length and bytes), and the value. What is read:
//
//   1 pieces, repeated    1 piece (U+2581 for a space), 2 score (float), 3 type: 1 normal, 2 unknown, 3 control,
//                         4 user-defined, 5 unused, 6 byte (<0x00> to <0xFF>)
//   2 trainer_spec        3 model_type (1 Unigram, which is the default, 2 BPE, 3 word, 4 char), 24 spaces as suffix,
//                         35 byte_fallback, 46 and 47 the pieces that begin and end a text (<s>, </s>)
//   3 normalizer_spec     1 name, 2 charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces
//   5 denormalizer_spec   2 charsmap
//
// A field that is missing has its default; other fields are passed over. Refused by name: other types, a charsmap (what
// normalizes letters; "identity" has none), unused pieces. Control pieces are the special tokens.
//
// User-defined pieces are found in text before it is merged, as added tokens are (tokenizer.h). SentencePiece finds
// them after it has changed the spaces, and the prefix then stands before a piece that begins a text; so they are
// refused where spaces are added or left out, and where they hold one themselves.
#define _GNU_SOURCE // memmem
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/disk.h"
#include "tokenizer/vocab.h"

enum { MAX_MODEL_BYTES = 1 << 28, MAX_PIECE_BYTES = 1024, MAX_FIELD = (1 << 29) - 1, BPE = 2 };

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

// ---- protobuf

// The rest of a message, and the field that was read last.
typedef struct {
    const char *file, *start;  // for errors: the file's name, and its first byte
    const char *at, *end;
    size_t where;              // its first byte
    uint32_t field;
    int kind;                  // VARINT, ...
    uint64_t number;           // of a varint, or the bits of 4 bytes
    const char *bytes;         // (n) of a value with a length
    size_t n;
} Message;

enum { VARINT, EIGHT, BYTES, FOUR = 5 };

static uint64_t read_varint(Message *m)
{
    uint64_t value = 0;
    for (int i = 0; i < 10; i++) {
        if (m->at == m->end) die("%s: byte %zu: cut short (is it whole?)", m->file, (size_t)(m->at - m->start));
        uint8_t byte = (uint8_t)*m->at++;
        value |= (uint64_t)(byte & 0x7F) << 7 * i;
        if (byte < 0x80) return value;
    }
    die("%s: byte %zu: a number of more than 10 bytes (is it a SentencePiece model?)", m->file,
        (size_t)(m->at - m->start));
}

static bool next_field(Message *m)
{
    if (m->at == m->end) return false;
    m->where = (size_t)(m->at - m->start);
    uint64_t tag = read_varint(m), n;
    m->kind = (int)(tag & 7);
    m->n = 0;
    if (m->kind != VARINT && m->kind != EIGHT && m->kind != BYTES && m->kind != FOUR)
        die("%s: byte %zu: not a field of protobuf (is it a SentencePiece model?)", m->file, m->where);
    if (!(tag >> 3) || tag >> 3 > MAX_FIELD)
        die("%s: byte %zu: field %llu, which protobuf has not (is it a SentencePiece model?)", m->file, m->where,
            (unsigned long long)(tag >> 3));
    m->field = (uint32_t)(tag >> 3);
    if (m->kind == VARINT) return m->number = read_varint(m), true;
    n = m->kind == EIGHT ? 8 : m->kind == FOUR ? 4 : read_varint(m);
    if (n > (uint64_t)(m->end - m->at))
        die("%s: byte %zu: a field of %llu bytes, and %zu are left (is it whole?)", m->file, m->where,
            (unsigned long long)n, (size_t)(m->end - m->at));
    m->bytes = m->at;
    m->n = (size_t)n;
    m->at += n;
    m->number = 0;
    if (m->kind == FOUR) memcpy(&m->number, m->bytes, m->n); // little-endian, as this machine
    return true;
}

// Whether the field is the one asked for; dies when its value is of another kind.
static bool is_field(const Message *m, uint32_t field, int kind)
{
    static const char *const name[] = {"a number", "8 bytes", "bytes", "", "", "4 bytes"};
    if (m->field == field && m->kind != kind)
        die("%s: byte %zu: field %u holds %s, not %s (is it a SentencePiece model?)", m->file, m->where, field,
            name[m->kind], name[kind]);
    return m->field == field;
}

static Message inner(const Message *m)
{
    return (Message){.file = m->file, .start = m->start, .at = m->bytes, .end = m->bytes + m->n};
}

// ---- the model

typedef struct {
    Vocab vocab;
    float *score; // (vocab.token.n)
    size_t cap_score, cap_special, cap_added, n_bytes;
    int64_t unknown, user_defined; // a piece of that kind; -1: none
    uint64_t type;
    bool byte_fallback;
    char bos[64], eos[64];
} Model;

static void add_piece(Model *s, Message m)
{
    const char *piece = "", *file = m.file;
    size_t n = 0, id = s->vocab.token.n, length;
    uint32_t bits = 0;
    uint64_t type = NORMAL;
    char text[MAX_PIECE_BYTES];
    while (next_field(&m)) {
        if (is_field(&m, 1, BYTES)) piece = m.bytes, n = m.n;
        if (is_field(&m, 2, FOUR)) bits = (uint32_t)m.number;
        if (is_field(&m, 3, VARINT)) type = m.number;
    }
    if (!n || n > sizeof text || words_utf8_invalid(piece, n, 0, &length) < n || memchr(piece, 0, n))
        die("%s: piece %zu is empty, longer than %zu bytes, or not text", file, id, sizeof text);
    if (type < NORMAL || type > BYTE || type == UNUSED)
        die("%s: piece %zu, '%.*s', is %s (not supported: ids would differ)", file, id, (int)n, piece,
            type == UNUSED ? "unused" : "of an unknown type");
    if (type == USER_DEFINED && (memchr(piece, ' ', n) || memmem(piece, n, SPACE_SIGN, 3)))
        die("%s: piece %zu, '%.*s', is user-defined and has a space (not supported: ids would differ)", file, id,
            (int)n, piece);
    if (type == UNKNOWN && s->unknown >= 0) die("%s: pieces %d and %zu are both unknown", file, (int)s->unknown, id);
    if (type == UNKNOWN) s->unknown = (int64_t)id;
    bool normal = type == NORMAL;
    if (normal) n = (size_t)vocab_unspell(&s->vocab, piece, n, text), piece = text;
    if (words_add(&s->vocab.token, piece, n) != id)
        die("%s: piece %zu, '%.*s', is there twice", file, id, (int)n, piece);
    s->score = words_grow(s->score, &s->cap_score, id + 1, sizeof *s->score);
    memcpy(&s->score[id], &bits, sizeof bits);
    s->vocab.special = words_grow(s->vocab.special, &s->cap_special, id + 1, sizeof *s->vocab.special);
    s->vocab.special[id] = type == UNKNOWN || type == CONTROL;
    s->vocab.added = words_grow(s->vocab.added, &s->cap_added, id + 1, sizeof *s->vocab.added);
    s->vocab.added[id] = type == USER_DEFINED;
    if (type == USER_DEFINED) s->user_defined = (int64_t)id;
    s->n_bytes += type == BYTE;
    bool named = vocab_byte_of(&s->vocab, (int32_t)id) >= 0;
    if (named != (type == BYTE))
        die("%s: piece %zu, '%.*s': %s", file, id, (int)n, piece,
            named ? "the name of a byte, and not a byte" : "a byte, and not its name");
}

static void copy_name(char to[64], const Message *m)
{
    if (m->n >= 64) die("%s: byte %zu: a name of %zu bytes", m->file, (size_t)(m->bytes - m->start), m->n);
    memcpy(to, m->bytes, m->n);
    to[m->n] = 0;
}

static void read_trainer(Model *s, Message m)
{
    while (next_field(&m)) {
        if (is_field(&m, 3, VARINT)) s->type = m.number;
        if (is_field(&m, 24, VARINT) && m.number) die("%s: spaces are suffixes (treat_whitespace_as_suffix)", m.file);
        if (is_field(&m, 35, VARINT)) s->byte_fallback = m.number;
        if (is_field(&m, 46, BYTES)) copy_name(s->bos, &m);
        if (is_field(&m, 47, BYTES)) copy_name(s->eos, &m);
    }
}

static void read_normalizer(Model *s, Message m, bool decoder)
{
    char name[64] = "";
    while (next_field(&m)) {
        if (is_field(&m, 1, BYTES)) copy_name(name, &m);
        if (is_field(&m, 2, BYTES) && m.n)
            die("%s: %s '%s' with a table of characters (only identity is supported: ids would differ)", m.file,
                decoder ? "denormalizer" : "normalizer", name);
        if (decoder) continue;
        if (is_field(&m, 3, VARINT)) s->vocab.prefix = m.number ? VOCAB_PREFIX : VOCAB_NO_PREFIX;
        if (is_field(&m, 4, VARINT)) s->vocab.squeeze = m.number;
        if (is_field(&m, 5, VARINT) && !m.number)
            die("%s: spaces are not escaped (escape_whitespaces: not supported)", m.file);
    }
}

static void finish(Model *s, const char *path)
{
    static const char *const types[] = {"0", "Unigram", "BPE", "word", "char"};
    Vocab *v = &s->vocab;
    if (s->type != BPE)
        die("%s: a model of type %s (only BPE is supported)", path, s->type < 5 ? types[s->type] : "?");
    if (!v->token.n) die("%s: no pieces in it (is it a SentencePiece model?)", path);
    if (s->unknown < 0) die("%s: no piece is the unknown one", path);
    if (s->n_bytes && !s->byte_fallback) die("%s: pieces are bytes, and byte_fallback is off (not supported)", path);
    if (s->user_defined < 0) {
        free(v->added);
        v->added = NULL;
    } else if (v->prefix || v->squeeze)
        die("%s: piece %d is user-defined, with %s (not supported together: ids would differ)", path,
            (int)s->user_defined, v->prefix ? "add_dummy_prefix" : "remove_extra_whitespaces");
    v->byte_fallback = s->byte_fallback;
    if (v->byte_fallback && !vocab_has_bytes(v, path)) die("%s: byte_fallback, and no piece is a byte", path);
    v->has_unk = v->fuse_unk = true;
    v->unk = (int32_t)s->unknown;
    vocab_merge_by_score(v, s->score, path);
    int64_t bos = vocab_find_special(v, s->bos), eos = vocab_find_special(v, s->eos);
    v->has_bos = bos >= 0 && bos != v->unk;
    v->has_eos = eos >= 0 && eos != v->unk;
    v->bos = (int32_t)bos;
    v->eos = (int32_t)eos;
}

Vocab vocab_load_sentencepiece(const char *path)
{
    size_t n;
    char *bytes = disk_read_file(path, &n, MAX_MODEL_BYTES), dir[4096];
    if (!bytes) die("%s: %s (is it a SentencePiece model?)", path, strerror(errno));
    Model s = {.vocab = {.eot = -1, .chars = true, .prefix = VOCAB_PREFIX, .squeeze = true, .byte_fallback = true,
                         .pattern = strdup("")}, .unknown = -1, .user_defined = -1, .type = 1,
               .bos = "<s>", .eos = "</s>"};
    if (!s.vocab.pattern) die("%s: no memory to read it", path);
    Message m = {.file = path, .start = bytes, .at = bytes, .end = bytes + n};
    while (next_field(&m)) {
        if (is_field(&m, 1, BYTES)) add_piece(&s, inner(&m));
        if (is_field(&m, 2, BYTES)) read_trainer(&s, inner(&m));
        if (is_field(&m, 3, BYTES) || is_field(&m, 5, BYTES)) read_normalizer(&s, inner(&m), m.field == 5);
    }
    finish(&s, path);
    free(bytes);
    free(s.score);
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    vocab_read_config(&s.vocab, dir, NULL);
    return s.vocab;
}
