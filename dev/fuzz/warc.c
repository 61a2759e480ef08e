// Fuzzes the reader of WARC: the same texts whatever is read at a time, and in bounds.
//
// The first byte chooses the bound of a record and how much is read at a time, the rest is the file.
#include "fuzz.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "data/web/warc.h"

typedef struct {
    const uint8_t *bytes;
    size_t n, at, step;
} File;

static size_t read_file(void *arg, void *out, size_t n)
{
    File *f = arg;
    size_t k = f->n - f->at;
    if (k > n) k = n;
    if (k > f->step) k = f->step;
    memcpy(out, f->bytes + f->at, k);
    f->at += k;
    return k;
}


static void warc_seeds(void)
{
    static const char *const block[] = {"just text", "WARC/1.0\r\n\r\nin a text", "\xFF\r\n\r\n", "", "software: x"};
    static const char *const type[] = {"conversion", "warcinfo", "Conversion", "revisit", "response"};
    static char file[1 << 14];
    for (size_t i = 0; i < 20; i++) {
        size_t n = 1;
        file[0] = (char)i;
        for (size_t k = 0; k <= i % 3; k++) {
            const char *b = block[(i + k) % 5];
            const char *form = "WARC/1.%zu\r\nWARC-Type: %s\r\nX:\r\n folded\r\nContent-Length: %zu\r\n\r\n%s\r\n\r\n";
            n += (size_t)snprintf(file + n, sizeof file - n, form, k & 1, type[(i / 5 + k) % 5], strlen(b), b);
        }
        fuzz_seed((char[]){'w', (char)('a' + i), 0}, file, n);
    }
}

static uint64_t read_all(const uint8_t *data, size_t n, size_t step, size_t most)
{
    File f = {data, n, 0, step};
    Warc *w = warc_open("x", read_file, &f, step, most);
    WarcRecord record;
    uint64_t about = 0, number = 0, offset = 0;
    while (warc_next(w, &record)) {
        fuzz_check(record.number == ++number && record.offset >= offset && record.offset < n);
        fuzz_check(record.n_bytes <= most);
        offset = record.offset;
        about = about * 31 + (uint64_t)record.kind + (record.n_bytes ? XXH3_64bits(record.text, record.n_bytes) : 0);
    }
    warc_close(w);
    return about;
}

static void warc_one(const uint8_t *data, size_t n)
{
    if (!n) return;
    size_t most = data[0] & 1 ? 1 << 16 : 200;
    uint64_t once = read_all(data + 1, n - 1, 1 << 12, most);
    fuzz_must_take();
    fuzz_check(read_all(data + 1, n - 1, 1 + data[0] / 2 % 32, most) == once);
}

FUZZ(warc, NULL)
