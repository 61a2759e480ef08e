#include "../grade.h"

#include "shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 20, PIECES = 400 };
static struct {
    float *data[FILES];
    size_t size[FILES], read;
} files;
static char handle; // all that the answer is given of them
static Piece pieces[PIECES];
static Checkpoint ckpt = {pieces, 0, (struct Files *)&handle};
static const char *names[3] = {"wte", "wte.bias", "fc"}; // element i of tensor k is 1000 i + k

size_t shard_read(struct Files *f, int file, size_t at, float *out, size_t count)
{
    expect((char *)f == &handle, "shard_read got other files than those of the Checkpoint");
    if (count > 1000000) fail("shard_read of %zu elements: a negative number?", count);
    if (file < 0 || file >= FILES || at >= files.size[file]) return 0;
    if (count > files.size[file] - at) count = files.size[file] - at;
    if (count) memcpy(out, files.data[file] + at, count * sizeof *out);
    files.read += count;
    return count;
}

// Elements begin to end - 1 of tensor k go to the end of a file.
static void put(int k, size_t begin, size_t end, int file)
{
    size_t n = end - begin, *size = &files.size[file], at = *size + (size_t)(k + file) % 3; // a gap, sometimes
    files.data[file] = realloc(files.data[file], (at + n + 1) * sizeof(float));
    for (; *size < at; ++*size) files.data[file][*size] = -1;
    for (size_t i = begin; i < end; i++) files.data[file][(*size)++] = (float)(1000 * i + (size_t)k);
    char *name = malloc(strlen(names[k]) + 1);
    pieces[ckpt.n++] = (Piece){strcpy(name, names[k]), begin, n, file, at};
}

// All tensors of `total` elements, divided over M files; the manifest backwards and mixed.
static void save(int M, size_t total)
{
    for (int k = 0; k < 3; k++)
        for (int m = 0; m < M; m++)
            put(k, total * (size_t)m / (size_t)M, total * (size_t)(m + 1) / (size_t)M, (m * 7 + k) % M);
    for (int i = 0; i < ckpt.n / 2; i += 2) {
        Piece p = pieces[i];
        pieces[i] = pieces[ckpt.n - 1 - i], pieces[ckpt.n - 1 - i] = p;
    }
}

static void judge_values(const char *what, const float *got, int k, size_t rows, size_t cols, size_t stride,
                         size_t begin)
{
    for (size_t i = 0; i < rows * cols; i++) {
        size_t want = i / cols * stride + begin + i % cols;
        double was = got[i] < 0 ? -1 : got[i];
        if (was == (double)(1000 * want + (size_t)k)) continue;
        if (was < 0)
            fail("%s: element %zu of the tensor was expected at out[%zu]; there is %g, from a gap in the file or never "
                 "written", what, want, i, got[i]);
        fail("%s: element %zu of %s was expected at out[%zu]; there is element %d of %s", what, want, names[k], i,
             (int)(was / 1000), names[(int)was % 1000 % 3]);
    }
}

static void judge_slice(int k, size_t begin, size_t end)
{
    char why[200] = "", what[80];
    float *out = equal_floats(end - begin, -2);
    snprintf(what, sizeof what, "elements %zu to %zu of %s", begin, end, names[k]);
    files.read = 0;
    if (!load_slice(&ckpt, names[k], begin, end, out, why, sizeof why)) fail("%s: all are there; got: %s", what, why);
    judge_values(what, out, k, 1, end - begin, 0, begin);
    expect(files.read <= end - begin, "%s: %zu elements were read; the slice has %zu", what, files.read, end - begin);
    free(out);
}

static void judge_reshard(int M, int N, size_t total)
{
    memset(&files, 0, sizeof files), ckpt.n = 0;
    save(M, total);
    for (int k = 0; k < 3; k++)
        for (int r = 0; r < N; r++) judge_slice(k, total * (size_t)r / (size_t)N, total * (size_t)(r + 1) / (size_t)N);
}

static void judge_columns(int M, int N, size_t rows, size_t cols)
{
    memset(&files, 0, sizeof files), ckpt.n = 0;
    save(M, rows * cols);
    for (int r = 0; r < N; r++) {
        size_t begin = cols * (size_t)r / (size_t)N, end = cols * (size_t)(r + 1) / (size_t)N;
        char why[200] = "", what[80];
        float *out = equal_floats(rows * (end - begin), -2);
        files.read = 0;
        snprintf(what, sizeof what, "columns %zu to %zu of a matrix (%zu, %zu)", begin, end, rows, cols);
        if (!load_columns(&ckpt, "fc", rows, cols, begin, end, out, why, sizeof why))
            fail("%s: all are there; got: %s", what, why);
        judge_values(what, out, 2, rows, end - begin, cols, begin);
        expect(files.read <= rows * (end - begin), "%s: %zu elements were read; the columns have %zu", what, files.read,
               rows * (end - begin));
    }
}

// The error has the word, the tensor's name and the element.
static void judge_error(const char *what, size_t begin, size_t end, const char *word, size_t element)
{
    char why[100], number[32];
    memset(why, 0, sizeof why);
    float *out = equal_floats(end - begin, -2);
    snprintf(number, sizeof number, "%zu", element);
    bool ok = load_slice(&ckpt, "wte", begin, end, out, why, sizeof why), found = false;
    expect(!ok, "%s: load_slice says that elements %zu to %zu were read", what, begin, end);
    for (char *c = why; *c; c++)
        found = found || (!strncmp(c, number, strlen(number)) && (c[strlen(number)] < '0' || c[strlen(number)] > '9') &&
                          (c == why || c[-1] < '0' || c[-1] > '9'));
    expect(strstr(why, word), "%s: the error has the word \"%s\"; got \"%s\"", what, word, why);
    expect(strstr(why, "wte"), "%s: the error names the tensor, wte; got \"%s\"", what, why);
    expect(found, "%s: the error names the first element concerned, %zu; got \"%s\"", what, element, why);
    free(out);
}

static void begin_with(size_t a, size_t b, size_t c, size_t d) // wte in two pieces, files 0 and 1
{
    memset(&files, 0, sizeof files), ckpt.n = 0;
    put(2, 0, 30, 1), put(1, 0, 40, 0), put(0, c, d, 1), put(0, a, b, 0);
}

static void judge_errors(int which) // 0 missing, 1 overlap, 2 truncated; 3 all, at all edges
{
    if (which == 0) {
        begin_with(0, 10, 13, 20);
        judge_error("a checkpoint without elements 10 to 12", 5, 18, "missing", 10);
    }
    if (which == 1) {
        begin_with(0, 12, 10, 20);
        judge_error("elements 10 and 11 are in two pieces", 5, 18, "overlap", 10);
    }
    if (which == 2) {
        begin_with(0, 10, 10, 20), files.size[1] -= 4;
        judge_error("a file that ends after element 15", 5, 20, "truncated", 16);
    }
    if (which < 3) return;
    begin_with(0, 10, 13, 20);
    judge_error("elements from 20 on are missing", 15, 25, "missing", 20);
    judge_error("no piece has any of the elements", 10, 13, "missing", 10);
    judge_slice(0, 2, 10), judge_slice(0, 13, 17), judge_slice(0, 11, 11); // what others lack does not matter
    begin_with(0, 12, 10, 20);
    judge_error("a slice within the overlap", 11, 12, "overlap", 11);
    judge_slice(0, 0, 10), judge_slice(0, 12, 20);
    begin_with(0, 20, 5, 7);
    judge_error("a piece within another one", 0, 20, "overlap", 5);
    judge_slice(0, 7, 20);
    begin_with(0, 10, 10, 20), put(0, 12, 12, 2), put(0, 10, 10, 1);
    judge_slice(0, 5, 18); // pieces without elements
    files.size[1] -= 4;
    judge_slice(0, 5, 16);
    files.size[1] = 0;
    judge_error("a file that is not there", 0, 20, "truncated", 10);
}

TEST(one_file, 2, "a slice of one file, with other tensors in it") { judge_reshard(1, 1, 6); }
TEST(reshard, 3, "checkpoints of 4 ranks loaded by 3, and of 2 by 4")
{
    judge_reshard(4, 3, 24);
    judge_reshard(2, 4, 24);
}
TEST(columns, 3, "columns of a matrix that 3 ranks saved") { judge_columns(3, 2, 4, 6); }
TEST(missing, 1, "missing elements are an error") { judge_errors(0); }
TEST(overlap, 2, "elements in two pieces are an error") { judge_errors(1); }
TEST(truncated, 1, "a file that ends too early is an error") { judge_errors(2); }

#include "../hidden.h"

TEST(many, 3, "1 to 16 ranks loaded by 1 to 12, no more read than is needed")
{
    for (int M = 1; M <= 16; M++)
        for (int N = 1; N <= 12; N++) judge_reshard(M, N, 53);
    judge_reshard(9, 9, 5); // some have nothing
}

TEST(many_columns, 2, "columns that cross the pieces in every row")
{
    for (int M = 1; M <= 8; M++)
        for (int N = 1; N <= 5; N++) judge_columns(M, N, 7, 5);
}

TEST(edges, 3, "errors at the edges of slices, and none for what other ranks read") { judge_errors(3); }
