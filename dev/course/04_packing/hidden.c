#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

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
