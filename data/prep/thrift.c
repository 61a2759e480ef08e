// thrift: Thrift's compact protocol.
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
//
// A struct is a sequence of fields and a 0. A field is a byte, the difference to the previous id in the upper four bits
// and the type in the lower four, and its value; a difference of 0 says that the id follows as a zigzag varint. A
// boolean's value is its type. Integers are zigzag varints, binaries a varint and so many bytes. A list is a byte, the
// number of elements above their type (15: the number follows as a varint), and the elements. Readers skip the fields
// that they do not know.
//
// Invariant: no byte outside [at, end) is read, `at` never moves back, and every element of a list and every field
// takes at least a byte. So reading ends after as many steps as there are bytes, whatever they are. Nothing is
// allocated.
#include "data/prep/thrift.h"

enum { DEPTH = 32 };

static uint64_t fail(Thrift *t)
{
    t->at = t->end;
    t->bad = true;
    return 0;
}

const uint8_t *thrift_take(Thrift *t, uint64_t n_bytes)
{
    if (n_bytes > (uint64_t)(t->end - t->at)) {
        fail(t);
        return NULL;
    }
    t->at += n_bytes;
    return t->at - n_bytes;
}

uint64_t thrift_varint(Thrift *t)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && t->at < t->end; shift += 7) {
        uint8_t byte = *t->at++;
        if (shift == 63 && byte > 1) break; // more than 64 bits
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
    return fail(t);
}

int64_t thrift_zigzag(Thrift *t)
{
    uint64_t value = thrift_varint(t);
    return (int64_t)(value >> 1 ^ -(value & 1));
}

bool thrift_next(Thrift *t, ThriftField *field)
{
    const uint8_t *head = thrift_take(t, 1);
    if (!head || !*head) return false;
    field->type = *head & 15;
    if (*head >> 4) field->id += *head >> 4;
    else field->id = thrift_zigzag(t);
    if (field->type < THRIFT_TRUE || field->type > THRIFT_STRUCT || field->id < 0 || field->id > INT16_MAX) fail(t);
    return !t->bad;
}

int64_t thrift_integer(Thrift *t, ThriftField field)
{
    if (field.type < THRIFT_I16 || field.type > THRIFT_I64) return (int64_t)fail(t);
    return thrift_zigzag(t);
}

bool thrift_bool(Thrift *t, ThriftField field)
{
    if (field.type > THRIFT_FALSE) fail(t);
    return field.type == THRIFT_TRUE;
}

const uint8_t *thrift_binary(Thrift *t, ThriftField field, size_t *n_bytes)
{
    *n_bytes = 0;
    if (field.type != THRIFT_BINARY) fail(t);
    uint64_t n = thrift_varint(t);
    const uint8_t *bytes = thrift_take(t, n);
    if (bytes) *n_bytes = (size_t)n;
    return bytes;
}

void thrift_struct(Thrift *t, ThriftField field)
{
    if (field.type != THRIFT_STRUCT) fail(t);
}

// The number of elements of a list, and their type.
static size_t list_head(Thrift *t, int *element)
{
    const uint8_t *head = thrift_take(t, 1);
    *element = head ? *head & 15 : 0;
    uint64_t n = !head ? 0 : *head >> 4 == 15 ? thrift_varint(t) : *head >> 4;
    return n > (uint64_t)(t->end - t->at) ? fail(t) : n;
}

size_t thrift_list(Thrift *t, ThriftField field, ThriftType element)
{
    int found;
    if (field.type != THRIFT_LIST) return fail(t);
    size_t n = list_head(t, &found);
    return n && found != (int)element ? fail(t) : n;
}

static void skip(Thrift *t, int type, bool in_list, int depth)
{
    int element = 0, key = 0;
    size_t n = 0;
    ThriftField field = {0};
    if (depth == DEPTH) fail(t);
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
        for (size_t i = 0; i < n && !t->bad; i++) skip(t, element, true, depth + 1);
        break;
    case THRIFT_MAP:
        n = thrift_varint(t);
        const uint8_t *types = n ? thrift_take(t, 1) : NULL;
        if (types) key = *types >> 4, element = *types & 15;
        for (size_t i = 0; i < n && !t->bad; i++) {
            skip(t, key, true, depth + 1);
            skip(t, element, true, depth + 1);
        }
        break;
    case THRIFT_STRUCT:
        while (thrift_next(t, &field)) skip(t, field.type, false, depth + 1);
        break;
    default: fail(t);
    }
}

void thrift_skip(Thrift *t, int type)
{
    skip(t, type, false, 0);
}
