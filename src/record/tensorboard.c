// tensorboard: event files. See tensorboard.h.
//
// A file is a list of records, all numbers little-endian:
//
//     8 bytes: n     4: mask(crc(those 8))     n bytes: an Event     4: mask(crc(those n))
//     crc: CRC-32C (polynomial 0x82F63B78, reflected)     mask(c) = (c rotated right by 15) + 0xA282EAD8
//
// An Event is a protocol buffer: fields in the order of their numbers, each a key (number * 8 + kind) and a value.
// Kinds here: 0 a varint (7 bits a byte, lowest first), 1 a double, 2 a length and so many bytes, 5 a float.
//
//     Event       1 wall_time (double)   2 step (varint)   3 file_version   5 summary   7 session_log
//     Summary     1 value (one for each scalar)            Value        1 tag   2 simple_value (float)
//     SessionLog  1 status: 1 is START. A reader then drops events of this step or a later one that other files have:
//                 those that a killed run made after the checkpoint from which the run went on, or rolled back.
//
// The invariant: an event reaches the kernel as one write, so a reader beside the run never sees half a record that
// stays half.
//
// Rejected: a library for protocol buffers (six kinds of field are 30 lines).
#include "record/tensorboard.h"

#include "base/check.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct TensorBoard {
    FILE *file;
    char *path;
    unsigned char *record; // room for `most` scalars
    int most;
};

// ---- checksums

uint32_t tensorboard_crc(const void *data, size_t n_bytes)
{
    const unsigned char *byte = data;
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= byte[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    }
    return ~crc;
}

uint32_t tensorboard_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

// ---- fields. Each function returns the place after what it wrote.

static unsigned char *put_fixed(unsigned char *at, uint64_t x, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) *at++ = (unsigned char)(x >> 8 * i);
    return at;
}

static unsigned char *put_varint(unsigned char *at, uint64_t x)
{
    for (; x >= 128; x >>= 7) *at++ = (unsigned char)(x | 128);
    *at++ = (unsigned char)x;
    return at;
}

static unsigned char *put_double(unsigned char *at, int field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return put_fixed(put_varint(at, (uint64_t)field << 3 | 1), bits, 8);
}

static unsigned char *put_bytes(unsigned char *at, int field, const void *data, size_t n_bytes)
{
    at = put_varint(put_varint(at, (uint64_t)field << 3 | 2), n_bytes);
    memcpy(at, data, n_bytes);
    return at + n_bytes;
}

static unsigned char *put_scalar(unsigned char *at, const TensorBoardScalar *s)
{
    unsigned char value[128], *end = put_bytes(value, 1, s->tag, strnlen(s->tag, sizeof s->tag));
    float x = (float)s->value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    end = put_fixed(put_varint(end, 2 << 3 | 5), bits, 4);
    return put_bytes(at, 1, value, (size_t)(end - value));
}

// ---- records

enum { HEAD = 12, EVENT = 64 }; // bytes before the event; of an event without scalars, at most

// Closes a record whose event has been written from out + HEAD to end.
static size_t seal(unsigned char *out, unsigned char *end)
{
    size_t n = (size_t)(end - out) - HEAD;
    put_fixed(out, n, 8);
    put_fixed(out + 8, tensorboard_mask(tensorboard_crc(out, 8)), 4);
    end = put_fixed(end, tensorboard_mask(tensorboard_crc(out + HEAD, n)), 4);
    return (size_t)(end - out);
}

size_t tensorboard_version(unsigned char *out, double wall)
{
    static const char version[] = "brain.Event:2";
    return seal(out, put_bytes(put_double(out + HEAD, 1, wall), 3, version, strlen(version)));
}

static unsigned char *put_step(unsigned char *out, double wall, int64_t step)
{
    unsigned char *at = put_double(out + HEAD, 1, wall);
    return put_varint(put_varint(at, 2 << 3), (uint64_t)step);
}

size_t tensorboard_restart(unsigned char *out, double wall, int64_t step)
{
    static const unsigned char start[] = {1 << 3, 1};
    return seal(out, put_bytes(put_step(out, wall, step), 7, start, sizeof start));
}

size_t tensorboard_event(unsigned char *out, double wall, int64_t step, const TensorBoardScalar *scalar, int n)
{
    unsigned char *summary = malloc((size_t)n * 128 + 1), *end = summary;
    if (!summary) die("tensorboard: no memory for %d numbers", n);
    for (int i = 0; i < n; i++) end = put_scalar(end, &scalar[i]);
    size_t n_bytes = seal(out, put_bytes(put_step(out, wall, step), 5, summary, (size_t)(end - summary)));
    free(summary);
    return n_bytes;
}

// ---- the file

static void write_record(TensorBoard *b, size_t n_bytes)
{
    if (fwrite(b->record, 1, n_bytes, b->file) != n_bytes || fflush(b->file))
        die("tensorboard: cannot write %s: %s (is the disk full?)", b->path, strerror(errno));
}

static void make_room(TensorBoard *b, int n)
{
    if (b->record && n <= b->most) return;
    b->record = realloc(b->record, EVENT + (size_t)n * 128);
    b->most = n;
    if (!b->record) die("tensorboard: no memory for %d numbers", n);
}

TensorBoard *tensorboard_open(const char *dir, int64_t resume_step)
{
    char host[100] = "host", path[1200];
    TensorBoard *b = calloc(1, sizeof *b);
    if (!b) die("tensorboard: no memory");
    gethostname(host, sizeof host - 1);
    time_t now = time(NULL);
    for (int n = 0; !b->file; n++) {
        int length = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%d.%d", dir, (long long)now, host,
                              (int)getpid(), n);
        if (length >= (int)sizeof path) die("tensorboard: path too long: %s", dir);
        b->file = fopen(path, "wbx"); // never one that is there
        if (!b->file && errno != EEXIST) die("tensorboard: cannot make %s: %s", path, strerror(errno));
    }
    b->path = strdup(path);
    if (!b->path) die("tensorboard: no memory");
    make_room(b, 16);
    write_record(b, tensorboard_version(b->record, (double)now));
    if (resume_step > 0) write_record(b, tensorboard_restart(b->record, (double)now, resume_step + 1));
    return b;
}

void tensorboard_write(TensorBoard *b, int64_t step, double wall, const TensorBoardScalar *scalar, int n)
{
    make_room(b, n);
    write_record(b, tensorboard_event(b->record, wall, step, scalar, n));
}

void tensorboard_close(TensorBoard *b)
{
    if (!b) return;
    if (fclose(b->file)) die("tensorboard: cannot write %s: %s (is the disk full?)", b->path, strerror(errno));
    free(b->path);
    free(b->record);
    free(b);
}
