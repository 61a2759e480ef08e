#include "../grade.h"

#include "merges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 64, MOST = 64, WORDS = 200 }; // bytes of a word, merges, words
enum { RIGHT, UNWEIGHTED, WORDS_ONLY, LAST_TIE, NO_TIE_RIGHT, ACROSS, ONCE_TOO, MISTAKES };
static const char *const because[] = {
    NULL, "a word counts once, whatever its count", "a pair counts once in a word; it counts at each place",
    "of equal sums the larger pair was taken; the smaller left, then the smaller right token wins",
    "of equal sums and equal left tokens the larger right token was taken",
    "pairs across two words were counted", "a pair with a sum of 1 was merged"};

// Sums by comparing each place with all places.
static int64_t sum_of(int32_t (*id)[ROOM], const int64_t *count, size_t n_words, Merge pair, int mistake)
{
    int64_t sum = 0;
    for (size_t w = 0; w < n_words; w++) {
        int64_t places = 0;
        for (int i = 0; id[w][i] >= 0; i++) {
            int32_t right = id[w][i + 1];
            if (mistake == ACROSS && right < 0 && w + 1 < n_words) right = id[w + 1][0];
            places += id[w][i] == pair.left && right == pair.right;
        }
        if (mistake == WORDS_ONLY && places > 1) places = 1;
        sum += places * (mistake == UNWEIGHTED ? 1 : count[w]);
    }
    return sum;
}

static void join(int32_t *id, Merge pair, int32_t token) // id ends with -1
{
    for (int i = 0; id[i] >= 0 && id[i + 1] >= 0; i++) {
        if (id[i] != pair.left || id[i + 1] != pair.right) continue;
        id[i] = token;
        memmove(id + i + 1, id + i + 2, (size_t)(ROOM - i - 2) * sizeof *id);
    }
}

static bool wins(Merge a, Merge b, int mistake)
{
    bool smaller = a.left != b.left ? a.left < b.left : (a.right < b.right) != (mistake == NO_TIE_RIGHT);
    return smaller != (mistake == LAST_TIE);
}

static size_t learn(Merge *merge, size_t n_merges, const char *const *word, const int64_t *count, size_t n_words,
                           int mistake)
{
    static int32_t id[WORDS][ROOM];
    for (size_t w = 0; w < n_words; w++)
        for (size_t i = 0; i < ROOM; i++) id[w][i] = i < strlen(word[w]) ? (uint8_t)word[w][i] : -1;
    for (size_t n = 0; n < n_merges; n++) {
        int64_t most = mistake == ONCE_TOO ? 0 : 1;
        for (size_t w = 0; w < n_words; w++)
            for (int i = 0; id[w][i] >= 0 && id[w][i + 1] >= 0; i++) {
                Merge pair = {id[w][i], id[w][i + 1]};
                int64_t sum = sum_of(id, count, n_words, pair, mistake);
                if (sum > most || (sum == most && sum > 1 && wins(pair, merge[n], mistake)))
                    most = sum, merge[n] = pair;
            }
        if (most < (mistake == ONCE_TOO ? 1 : 2)) return n;
        for (size_t w = 0; w < n_words; w++) join(id[w], merge[n], (int32_t)(256 + n));
    }
    return n_merges;
}

static bool same(const Merge *a, size_t n_a, const Merge *b, size_t n_b)
{
    return n_a == n_b && !memcmp(a, b, n_a * sizeof *a);
}

static void expect_merges(const char *what, const char *const *word, const int64_t *count, size_t n_words,
                                 size_t n_merges)
{
    Merge *got = malloc(n_merges * sizeof *got), want[MOST], other[MOST]; // exact room for AddressSanitizer
    memset(got, 0xff, n_merges * sizeof *got);
    size_t n_want = learn(want, n_merges, word, count, n_words, RIGHT);
    size_t n = learn_merges(got, n_merges, word, count, n_words), first = 0;
    if (same(got, n, want, n_want)) return;
    const char *why = NULL;
    for (int m = 1; m < MISTAKES && !why && n && n <= n_merges; m++)
        if (same(got, n, other, learn(other, n_merges, word, count, n_words, m))) why = because[m];
    while (first < n && first < n_want && same(got + first, 1, want + first, 1)) first++;
    if (first == n || first == n_want)
        fail("%s: expected %zu merges, got %zu; the first %zu are right%s%s", what, n_want, n, first, why ? ": " : "",
             why ? why : "");
    fail("%s, merge %zu: expected (%d, %d), got (%d, %d)%s%s", what, first, want[first].left, want[first].right,
         got[first].left, got[first].right, why ? ": " : "", why ? why : "");
}

static void print_tokens(char *text, const int32_t *id, size_t n)
{
    *text = '\0';
    for (size_t i = 0; i < n; i++) text += sprintf(text, "%s%d", i ? " " : "", id[i]);
}

static void expect_tokens(const char *word, const Merge *merge, size_t n_merges)
{
    int32_t want[ROOM], *got = malloc(strlen(word) * sizeof *got + 1);
    size_t n_want = 0;
    for (size_t i = 0; i < ROOM; i++) want[i] = i < strlen(word) ? (uint8_t)word[i] : -1;
    for (size_t m = 0; m < n_merges; m++) join(want, merge[m], (int32_t)(256 + m));
    while (want[n_want] >= 0) n_want++;
    size_t n = encode_word(got, word, merge, n_merges);
    char of_want[12 * ROOM], of_got[12 * ROOM];
    expect(n <= strlen(word), "\"%s\": %zu tokens of %zu bytes", word, n, strlen(word));
    print_tokens(of_want, want, n_want), print_tokens(of_got, got, n);
    expect(!strcmp(of_want, of_got), "the tokens of \"%s\": expected %s, got %s", word, of_want, of_got);
}

TEST(most_frequent, 1, "the first merge is the pair with the largest sum of counts")
{
    expect_merges("ab 5, bc 3, bcd 3", (const char *[]){"ab", "bc", "bcd"}, (int64_t[]){5, 3, 3}, 3, 1);
    expect_merges("ab 1, cd 9", (const char *[]){"ab", "xab", "cd"}, (int64_t[]){1, 1, 9}, 3, 1);
}

TEST(several, 2, "merges of merged tokens: low 5, lower 2, newest 6, widest 3")
{
    expect_merges("low 5, lower 2, newest 6, widest 3", (const char *[]){"low", "lower", "newest", "widest"},
                  (int64_t[]){5, 2, 6, 3}, 4, 10);
}

TEST(ties, 1, "equal sums: the smaller left token, then the smaller right one")
{
    expect_merges("yz, ad, ab, ac, all 4 times", (const char *[]){"yz", "ad", "ab", "ac"}, (int64_t[]){4, 4, 4, 4},
                  4, 4);
}

TEST(encoding, 2, "encoding: the first merge of the list goes first")
{
    Merge list[3] = {{'b', 'c'}, {'a', 'b'}, {257, 256}};
    int32_t id[3] = {0};
    expect_tokens("ab", list, 3);
    size_t n = encode_word(id, "abc", list, 2);
    expect(n != 2 || id[0] != 257,
           "\"abc\" with the merges (b, c), (a, b): got \"ab\" \"c\"; (b, c) is first in the list");
    expect_tokens("abc", list, 2);
    expect_tokens("abbcxabc", list, 3);
    expect_tokens("x", list, 3);
}

#include "../hidden.h"

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
