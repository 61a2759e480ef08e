#include "../grade.h"

#include "rows.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t n, T, n_rows;
    int32_t **doc;
    size_t *length, *place; // place[i]: where document i begins
    Rows rows;
} Case;

static int32_t *filled(size_t n) // exact room for AddressSanitizer
{
    int32_t *x = malloc(n * sizeof *x + 1);
    for (size_t i = 0; i < n; i++) x[i] = 77777;
    return x;
}

// Token j of document i is 100 (i + 1) + j, so every token is known.
static Case packed(const size_t *length, size_t n, size_t T)
{
    Case c = {.n = n, .T = T, .rows = {filled(n * T), filled(n * T), filled(n * T), filled(n * T)}};
    c.doc = malloc(n * sizeof *c.doc + 1);
    c.length = malloc(n * sizeof *length + 1), c.place = malloc(n * sizeof *length + 1);
    for (size_t i = 0; i < n; i++) {
        c.length[i] = length[i];
        c.doc[i] = filled(length[i]);
        for (size_t j = 0; j < length[i]; j++) c.doc[i][j] = (int32_t)(100 * (i + 1) + j);
    }
    c.n_rows = pack_documents(c.rows, (const int32_t *const *)c.doc, c.length, n, T);
    expect(c.n_rows <= n, "%zu rows for %zu documents: a row has at least one document", c.n_rows, n);
    expect(c.n_rows || !n, "no rows for %zu documents", n);
    return c;
}

// Each document once, whole, in one row.
static void expect_documents(Case *c)
{
    size_t size = c->n_rows * c->T;
    for (size_t i = 0; i < c->n; i++) {
        size_t at = 0, l = c->length[i], n = 0;
        while (at < size && c->rows.document[at] != (int32_t)i) at++;
        expect(at < size, "document %zu of %zu tokens is in no row: `document` never has its number", i, l);
        for (size_t k = 0; k < size; k++) n += c->rows.document[k] == (int32_t)i;
        expect(n == l, "document %zu has %zu tokens, but %zu elements of `document` have its number", i, l, n);
        expect(at % c->T + l <= c->T, "document %zu begins at column %zu of row %zu and does not fit: it is cut", i,
               at % c->T, at / c->T);
        for (size_t j = 0; j < l; j++) {
            size_t k = at + j;
            expect(c->rows.document[k] == (int32_t)i, "document %zu is not in one piece", i);
            expect(c->rows.token[k] == c->doc[i][j], "row %zu, column %zu: expected token %d of document %zu, got %d",
                   k / c->T, k % c->T, c->doc[i][j], i, c->rows.token[k]);
        }
        c->place[i] = at;
    }
    for (size_t r = 0, t; r < c->n_rows; r++) {
        for (t = 0; t < c->T && c->rows.document[r * c->T + t] < 0;) t++;
        expect(t < c->T, "row %zu has no document", r);
    }
}

static void expect_targets(const Case *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t j = 0, k; j < c->length[i]; j++) {
            int32_t got = c->rows.target[k = c->place[i] + j], next = k % c->T + 1 < c->T ? c->rows.token[k + 1] : -1;
            if (j + 1 < c->length[i])
                expect(got == c->doc[i][j + 1],
                       "target of token %zu of document %zu: expected the next token, %d, got %d%s", j, i,
                       c->doc[i][j + 1], got, got == c->doc[i][j] ? ": that is the token itself" : "");
            else
                expect(got == -1, "target of the last token of document %zu: expected -1, got %d%s", i, got,
                       got == next ? ": it is trained to predict what follows in the row, not in its document" : "");
        }
}

static void expect_padding(const Case *c)
{
    for (size_t i = 0; i < c->n_rows * c->T; i++) {
        if (c->rows.document[i] >= 0 && c->rows.document[i] < (int32_t)c->n) continue;
        int32_t got[] = {c->rows.document[i], c->rows.token[i], c->rows.target[i], c->rows.position[i]};
        const char *name[] = {"document", "token", "target", "position"};
        for (int k = 0; k < 4; k++)
            expect(got[k] == (k % 2 ? 0 : -1), "padding in row %zu, column %zu, `%s`: expected %d, got %d%s", i / c->T,
                   i % c->T, name[k], k % 2 ? 0 : -1, got[k],
                   got[k] == 77777 ? ": it was not written" : k == 2 ? ": padding would count in the loss" : "");
    }
}

static void expect_positions(const Case *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t j = 0, k; j < c->length[i]; j++) {
            int32_t got = c->rows.position[k = c->place[i] + j];
            expect(got == (int32_t)j, "position of token %zu of document %zu: expected %zu, got %d%s", j, i, j, got,
                   got == (int32_t)(k % c->T) ? ": positions count in the row, not in the document" : "");
        }
}

static void expect_few(const Case *c, size_t fewest)
{
    size_t *used = calloc(c->n_rows + 1, sizeof *used);
    for (size_t i = 0; i < c->n; i++) used[c->place[i] / c->T] += c->length[i];
    for (size_t a = 0; a < c->n_rows; a++)
        for (size_t b = 0; b < a; b++)
            expect(used[a] + used[b] > c->T,
                   "rows %zu and %zu have %zu and %zu tokens, which fit into one row of %zu: was a document put into a "
                   "new row though an older one had room?", b, a, used[b], used[a], c->T);
    expect(9 * c->n_rows <= 11 * fewest + 36,
           "%zu rows where %zu are possible; 11/9 of them plus 4 is %zu: are the longest documents packed first?",
           c->n_rows, fewest, (11 * fewest + 36) / 9);
}

static const size_t three[] = {5, 4, 3};

TEST(documents, 2, "each document is in one row, whole: lengths 5, 4 and 3, rows of 8")
{
    Case c = packed(three, 3, 8);
    expect_documents(&c);
}

TEST(targets, 2, "the target is the next token of the same document, or -1")
{
    Case c = packed(three, 3, 8);
    expect_documents(&c);
    expect_targets(&c);
}

TEST(positions, 1, "positions begin with 0 in each document, and padding is marked")
{
    Case c = packed(three, 3, 8);
    expect_documents(&c);
    expect_positions(&c);
    expect_padding(&c);
}

TEST(joined, 1, "no two rows could be joined")
{
    Case c = packed((size_t[]){6, 7, 2, 6, 1, 2}, 6, 8);
    expect_documents(&c);
    expect_few(&c, 3);
    c = packed((size_t[]){4, 4}, 2, 8);
    expect_documents(&c);
    expect_few(&c, 1);
}

#include "../hidden.h"

static void expect_all(Case *c, size_t fewest)
{
    expect_documents(c), expect_targets(c), expect_positions(c), expect_padding(c), expect_few(c, fewest);
}

TEST(short_ones_first, 2, "90 documents in ascending order: 30 rows are possible")
{
    size_t length[90];
    for (size_t i = 0; i < 90; i++) length[i] = i < 30 ? 143 : i < 60 ? 334 : 501; // 143 + 334 + 501 = 978
    Case c = packed(length, 90, 1000);
    expect_documents(&c);
    expect_few(&c, 30);
}

TEST(random_documents, 1, "documents that were made by cutting 40 full rows")
{
    uint64_t state = 3;
    size_t length[400], n = 0, T = 64;
    for (size_t r = 0; r < 40; r++)
        for (size_t left = T; left; left -= length[n++]) {
            size_t l = 1 + random_below(&state, 30);
            length[n] = l < left ? l : left;
        }
    for (size_t i = n; i-- > 1;) {
        size_t j = random_below(&state, i + 1), l = length[i];
        length[i] = length[j], length[j] = l;
    }
    Case c = packed(length, n, T);
    expect_all(&c, 40);
}

TEST(edges, 1, "documents of T tokens and of one, one document, none")
{
    Case c = packed((size_t[]){6, 1, 6, 1, 1, 5}, 6, 6);
    expect_all(&c, 4);
    expect(c.n_rows == 4, "lengths 6, 1, 6, 1, 1, 5 in rows of 6: expected 4 rows, got %zu", c.n_rows);
    c = packed((size_t[]){1}, 1, 1);
    expect_all(&c, 1);
    c = packed((size_t[]){3}, 1, 9);
    expect_all(&c, 1);
    c = packed(NULL, 0, 4);
    expect(c.n_rows == 0, "no documents: expected 0 rows, got %zu", c.n_rows);
}
