// Fuzzes the reader of safetensors files: what it accepts lies inside the file, to the last byte.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"

void fuzz_seeds(void)
{
    const float x[6] = {1, 2, 3, 4, 5, 6};
    const SafeTensor t[3] = {{.name = "w", .dtype = ST_F32, .ndim = 2, .shape = (size_t[]){2, 3}, .data = x},
                             {.name = "b", .dtype = ST_U8, .ndim = 1, .shape = (size_t[]){5}, .data = x},
                             {.name = "s", .dtype = ST_F64, .ndim = 0, .data = x}};
    const SafeMeta meta = {"step", "12"};
    char path[300];
    snprintf(path, sizeof path, "%s/good.safetensors", fuzz_dir());
    for (int n = 0; n <= 3; n++) {
        if (!safetensors_write(path, t, n, &meta, 1, NULL, NULL, NULL, 0)) continue;
        FILE *f = fopen(path, "rb");
        char bytes[2048], name[16];
        size_t n_bytes = f ? fread(bytes, 1, sizeof bytes, f) : 0;
        if (f) fclose(f);
        snprintf(name, sizeof name, "%d_tensors", n);
        fuzz_seed(name, bytes, n_bytes);
    }
}

void fuzz_one(const uint8_t *data, size_t n)
{
    char error[600] = "";
    const char *path = fuzz_file("x.safetensors", data, n);
    SafeTensors *st = safetensors_open(path, error, sizeof error);
    if (!st) {
        fuzz_check(strstr(error, path)); // every message names the file
        return;
    }
    size_t sum = 0;
    unsigned char all = 0;
    int *order = malloc(((size_t)st->n + 1) * sizeof *order);
    fuzz_check(order);
    safetensors_order(st, order);
    for (int i = 0; i < st->n; i++) {
        const SafeTensor *t = &st->tensor[i];
        for (size_t k = 0; k < t->n_bytes; k++) all ^= ((const unsigned char *)t->data)[k];
        sum += t->n_bytes;
        fuzz_check(safetensors_find(st, t->name) == t);
        fuzz_check(order[i] >= 0 && order[i] < st->n);
    }
    for (int i = 0; i < st->n_meta; i++) fuzz_check(safetensors_meta(st, st->meta[i].key) == st->meta[i].value);
    fuzz_check(sum <= n && (all || !all));
    free(order);
    safetensors_close(st);
}
