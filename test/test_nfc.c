// Tests of nfc: rows of the Unicode Standard, bytes that are not UTF-8, random texts against utf8proc's own function,
// the whole against its parts, and the time that a megabyte of accents takes.

#include "test/test.h"

#include <time.h>
#include <utf8proc.h>

#include "base/rng.h"
#include "tokenizer/pretoken.h"

static void expect_form(const Nfc *nfc, NfcRoom *room, const char *text, const char *want)
{
    size_t n = strlen(text);
    const char *form = nfc_normalize(nfc, room, text, &n);
    if (n != strlen(want) || memcmp(form, want, n) != 0)
        fail_msg("'%s' becomes '%.*s', not '%s'", text, (int)n, form, want);
    if (!strcmp(text, want)) return;
    n = strlen(want); // form C stays
    assert_memory_equal(nfc_normalize(nfc, room, want, &n), want, n);
    assert_int_equal(n, strlen(want));
}

TEST(test_rows)
{
    static const char *const row[][2] = {
        {"", ""}, {"plain", "plain"}, {"e\u0301", "\u00E9"}, {"\u00E9", "\u00E9"}, {"xe\u0301y", "x\u00E9y"},
        {"\u0301", "\u0301"}, {" \u0301", " \u0301"}, {"e\u0301e\u0301 e\u0301", "\u00E9\u00E9 \u00E9"},
        {"\u212B", "\u00C5"}, {"\u2126x", "\u03A9x"},                      // one character for another
        {"\u0958", "\u0915\u093C"}, {"\u0344", "\u0308\u0301"}, {"\uFB1D", "\u05D9\u05B4"}, // excluded from composition
        {"\u1E0B\u0323", "\u1E0D\u0307"}, {"d\u0307\u0323", "\u1E0D\u0307"}, // by class
        {"a\u0315\u0300\u05AE\u0300b", "\u00E0\u05AE\u0300\u0315b"},
        {"a\u0301\u0301", "\u00E1\u0301"}, {"a\u0316\u0301", "\u00E1\u0316"}, {"a\u034F\u0301", "a\u034F\u0301"},
        {"\u1100\u1161\u11A8", "\uAC01"}, {"\uAC00\u11A8", "\uAC01"}, {"\u1100\u1161", "\uAC00"},
        {"\uAC01\u11A8", "\uAC01\u11A8"}, {"\uAC00\u11A7", "\uAC00\u11A7"}, {"\u1100x\u1161", "\u1100x\u1161"},
        {"\u09C7\u09BE", "\u09CB"}, {"\u0B47\u0B3E\u0B47\u0B57", "\u0B4B\u0B4C"},  // two letters
        {"\U00011099\U000110BA", "\U0001109A"}, {"\U0001D15E", "\U0001D157\U0001D165"},
        {"\uFB01\u2460\uFF21", "\uFB01\u2460\uFF21"},                      // form KC alone changes these
        {"e\xFF\u0301", "e\xFF\u0301"}, {"\xCC", "\xCC"}, {"e\xCC", "e\xCC"},
        {"\xED\xA0\x80\u0301", "\xED\xA0\x80\u0301"}, {"\xFF" "e\u0301\xC3", "\xFF\u00E9\xC3"}};
    Nfc *nfc = nfc_new();
    NfcRoom room = {0};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) expect_form(nfc, &room, row[i][0], row[i][1]);
    nfc_free_room(&room);
    nfc_free(nfc);
}

// Random texts of characters that change, beside some that do not.
TEST(test_random)
{
    static const int32_t from[] = {'a', 'e', ' ', 0xC5, 0x212B, 0x300, 0x301, 0x316, 0x323, 0x345, 0x5AE, 0x915, 0x93C,
                                   0x958, 0x9C7, 0x9BE, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01, 0x1E0B, 0x1EA4, 0x3042,
                                   0x3099, 0x4E00, 0xF900, 0x110BA, 0x11099, 0x1D15E, 0x2F800};
    const size_t n_from = sizeof from / sizeof *from;
    Nfc *nfc = nfc_new();
    NfcRoom room = {0};
    Rng rng = rng_make(5, "nfc", 0);
    uint64_t draw = 0;
    for (int i = 0; i < 20000; i++) {
        uint8_t text[100], *at = text;
        for (uint64_t k = rng_below(rng, draw++, 24); k; k--)
            at += utf8proc_encode_char(from[rng_below(rng, draw++, n_from)], at);
        *at = 0;
        char *want = (char *)utf8proc_NFC(text);
        assert_non_null(want);
        expect_form(nfc, &room, (char *)text, want);
        free(want);
    }
    nfc_free_room(&room);
    nfc_free(nfc);
}

// Every character alone, and after a letter.
TEST(test_every)
{
    Nfc *nfc = nfc_new();
    NfcRoom room = {0};
    for (int32_t c = 1; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        uint8_t text[8] = "a";
        text[1 + utf8proc_encode_char(c, text + 1)] = 0;
        for (int skip = 0; skip < 2; skip++) {
            char *want = (char *)utf8proc_NFC(text + skip);
            assert_non_null(want);
            expect_form(nfc, &room, (char *)text + skip, want);
            free(want);
        }
    }
    nfc_free_room(&room);
    nfc_free(nfc);
}

// Marks in the wrong order: sorting them by exchanges would take 10^11 steps.
TEST(test_many_marks)
{
    enum { N = 1 << 19 };
    char *text = zeroed(4 * (size_t)N + 1);
    for (size_t i = 0; i < N; i++) memcpy(text + 4 * i, "\u0301\u0316", 4);
    Nfc *nfc = nfc_new();
    NfcRoom room = {0};
    size_t n = 4 * (size_t)N;
    clock_t start = clock();
    const char *form = nfc_normalize(nfc, &room, text, &n);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 10); // 0.1 s
    assert_int_equal(n, 4 * (size_t)N);
    for (size_t i = 0; i < 2 * N; i++) assert_memory_equal(form + 2 * i, i < N ? "\u0316" : "\u0301", 2);
    nfc_free_room(&room);
    nfc_free(nfc);
    free(text);
}

TESTS(NULL, NULL)
