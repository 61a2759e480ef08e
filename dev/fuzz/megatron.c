// Fuzzes the reader of Megatron's indexed datasets: x.idx, a line of four dashes, x.bin.
#include "fuzz.h"

#include <string.h>

#include "text/dataset.h"

enum { VOCAB = 300, SEQUENCES = 3 };

void fuzz_seeds(void)
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

void fuzz_one(const uint8_t *data, size_t n)
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
