#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

static const char *random_word(uint64_t *state, int letters, size_t n)
{
    char *word = malloc(n + 1);
    for (size_t i = 0; i < n; i++) word[i] = (char)('a' + random_below(state, (uint64_t)letters));
    word[n] = '\0';
    return word;
}

TEST(overlaps, 1, "overlapping pairs: aaa, aaaa, aaaaa")
{
    expect_merges("aaa 2, aaaa 3, aaaaa 1, bab 9", (const char *[]){"aaa", "aaaa", "aaaaa", "bab"},
                  (int64_t[]){2, 3, 1, 9}, 4, 5);
    Merge list[2] = {{'a', 'a'}, {256, 'a'}};
    expect_tokens("aaa", list, 1);
    expect_tokens("aaaaaaa", list, 2);
}

TEST(high_bytes, 1, "bytes above 127")
{
    expect_merges("\xc3\xa9t\xc3\xa9 3, \xe2\x82\xac 2", (const char *[]){"\xc3\xa9t\xc3\xa9", "\xe2\x82\xac"},
                  (int64_t[]){3, 2}, 2, 4);
    expect_tokens("\xc3\xa9t\xc3\xa9", (Merge[]){{0xc3, 0xa9}}, 1);
}

TEST(random_text, 1, "150 random words of four letters")
{
    uint64_t state = 1;
    const char *word[150];
    int64_t count[150];
    for (size_t w = 0, old; w < 150; w++) {
        do {
            word[w] = random_word(&state, 4, 1 + random_below(&state, 7));
            for (old = 0; strcmp(word[old], word[w]);) old++;
        } while (old < w);
        count[w] = (int64_t)(1 + random_below(&state, 50));
    }
    expect_merges("150 random words", word, count, 150, 40);
    Merge list[40];
    size_t n = learn(list, 40, word, count, 150, RIGHT);
    for (int i = 0; i < 100; i++) expect_tokens(random_word(&state, 5, random_below(&state, 30)), list, n);
}

TEST(too_few, 1, "it ends early when no pair has a sum of 2")
{
    expect_merges("abc 1, d 7, abx 1", (const char *[]){"abc", "d", "abx"}, (int64_t[]){1, 7, 1}, 3, 5);
    expect_merges("ab 3, of which one merge can be made", (const char *[]){"ab"}, (int64_t[]){3}, 1, 5);
}
