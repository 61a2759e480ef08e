// Fuzzes the readers of token files: shards, and files without header. The first byte chooses.
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "text/dataset.h"

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

void fuzz_seeds(void)
{
    shard("uint16", DATASET_MAGIC_U16, DATASET_VERSION_U16, 2, 40);
    shard("uint32", DATASET_MAGIC_U32, DATASET_VERSION_U32, 4, 40);
    fuzz_seed("raw16", "\x01\1\0\2\0\3\0\4\0\5\0\6\0\7\0", 15);
    fuzz_seed("raw32", "\x02\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0", 25);
}

void fuzz_one(const uint8_t *data, size_t n)
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
