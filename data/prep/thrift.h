// thrift: the fields of a message in Thrift's compact protocol, read one by one from bytes that may be damaged.
#ifndef THRIFT_H
#define THRIFT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

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

// Moves to the next field of a struct, whose value must be read or skipped before the next call. False: it is over.
bool thrift_next(Thrift *t, ThriftField *field);
// The value of the field; a field of another type is bad.
int64_t thrift_integer(Thrift *t, ThriftField field); // of 16, 32 or 64 bits
bool thrift_bool(Thrift *t, ThriftField field);
const uint8_t *thrift_binary(Thrift *t, ThriftField field, size_t *n_bytes); // in the message
void thrift_struct(Thrift *t, ThriftField field);                            // its fields come next
// How many elements follow; more than bytes are left is bad. An element that is a struct begins with its fields.
size_t thrift_list(Thrift *t, ThriftField field, ThriftType element);
void thrift_skip(Thrift *t, int type); // a value of any type, nested up to 32 deep

// ---- what messages are made of, and Parquet's encodings too
const uint8_t *thrift_take(Thrift *t, uint64_t n_bytes); // NULL when there are fewer
uint64_t thrift_varint(Thrift *t);                       // 7 bits a byte, the lowest first
int64_t thrift_zigzag(Thrift *t);                        // 0, -1, 1, -2, ... as varints 0, 1, 2, 3, ...

#ifdef __cplusplus
}
#endif
#endif
