// Fuzzes unpacking, gzip and zstd: the same content whatever is asked for at a time, and bombs go off outside memory.
//
// The first byte chooses the format, the rest is the file.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include "data/prep/stream.h"

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

void fuzz_seeds(void)
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

void fuzz_one(const uint8_t *data, size_t n)
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
