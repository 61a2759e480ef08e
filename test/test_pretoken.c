// test_pretoken: the expected pieces are derived by hand from the two regular expressions; and the normal form NFC.
#include "test/test.h"

#include "expect_die.h"
#include "tokenizer/pretoken.h"
#include "base/rng.h"

#include <time.h>
#include <utf8proc.h>

OWNER(Pretoken, pretoken_free)

// Fails unless cutting `text` gives the pieces of `want`, joined with |.
static void expect_pieces(const char *pattern, const char *text, const char *want)
{
    char got[200] = "";
    const char *piece;
    size_t n;
    OWN(Pretoken) *p = pretoken_new(pattern);
    pretoken_begin(p, text, strlen(text));
    while (pretoken_next(p, &piece, &n)) sprintf(got + strlen(got), "%s%.*s", *got ? "|" : "", (int)n, piece);
    if (strcmp(got, want)) fail_msg("%s: text '%s': %s, expected %s", pattern, text, got, want);
}

#define NEL "\xC2\x85" // U+0085, which C11 does not let one write as \u
#define G(...) expect_pieces("gpt2", __VA_ARGS__)
#define C(...) expect_pieces("cl100k", __VA_ARGS__)
#define S(...) expect_pieces("smollm", __VA_ARGS__)
#define L(...) expect_pieces("llama3", __VA_ARGS__)
#define Q(...) expect_pieces("qwen2", __VA_ARGS__)
static const char *const names[] = {"gpt2", "smollm", "cl100k", "llama3", "qwen2"};
enum { N_NAMES = sizeof names / sizeof *names };

TEST(test_words)
{
    G("Hello  world's 12 ok!!", "Hello| | world|'s| 12| ok|!!");
    C("Hello  world's 12 ok!!", "Hello| | world|'s| |12| ok|!!");
    G("I'm I'M he'll", "I|'m| I|'|M| he|'ll");
    C("I'm I'M he'll", "I|'m| I|'M| he|'ll");
    C("it'\u017F", "it|'\u017F"); // long s folds to s
    G("(a)", "(|a|)");
    C("(a)", "(a|)");
    G("a\n\n b \n", "a|\n\n| b| \n");
    C("a\n\n b \n", "a|\n\n| b| \n");
    C("a \n b", "a| \n| b");
    C("x;\n\n y", "x|;\n\n| y");
    G("x;\n\n y", "x|;|\n\n| y");
    G("tab\t\tx", "tab|\t|\t|x");
    C("tab\t\tx", "tab|\t|\tx");
    G("", "");
}

TEST(test_white_space)
{
    G("a \u180Eb", "a| \u180E|b"); // not White_Space
    G("a " NEL "b", "a| |" NEL "|b"); // White_Space
    G("a \uFEFFb", "a| \uFEFF|b"); // not White_Space
    C("a \u180Eb", "a| \u180E|b");
    C("a " NEL "b", "a| |" NEL "b"); // the sign before the letters may be any but \r and \n
    C("a" NEL NEL "!", "a|" NEL "|" NEL "|!");
    G("a\u00A0\u3000b", "a|\u00A0|\u3000|b");
    G("a\rb \r c", "a|\r|b| \r| c");
    C("a\rb!\r\rc", "a|\r|b|!\r\r|c");
    C("a \t", "a| \t");
    C("a \n \t", "a| \n \t"); // \s++$ goes first at the end
}

TEST(test_digits)
{
    G("x1234 \u0661\u0662\u0663\u0664 \u00B2\u2167", "x|1234| \u0661\u0662\u0663\u0664| \u00B2\u2167");
    C("x1234 \u0661\u0662\u0663\u0664", "x|123|4| |\u0661\u0662\u0663|\u0664");
}

// The pieces are those of tokenizers 0.23: smollm as Sequence[Digits(individual), ByteLevel], the others as Split.
TEST(test_family)
{
    S("a  12 b  c3", "a|  |1|2| b| | c|3"); // before a digit a run of spaces stays whole
    S("I'm \u0661\u00B2!7", "I|'m| |\u0661|\u00B2|!|7");
    S("x \n\t9 \n y", "x| \n\t|9| \n| y");
    S("a1  ", "a|1|  ");
    L("x1234 \u0661", "x|123|4| |\u0661");
    L("a\n  ", "a|\n|  "); // cl100k takes all three
    C("a\n  ", "a|\n  ");
    L("a \n\n \n b  ", "a| \n\n \n| b|  ");
    Q("I'M 12  345\n \n ", "I|'M| |1|2| | |3|4|5|\n \n| ");
}

TEST(test_names)
{
    for (int k = 0; k < N_NAMES; k++) assert_string_equal(pretoken_name(pretoken_regex(names[k])), names[k]);
    assert_null(pretoken_regex("custom"));
    assert_null(pretoken_name("\\p{N}"));
}

TEST(test_invalid_utf8)
{
    G("ab\xFF\xFE cd", "ab|\xFF\xFE| cd");
    G("ab \xE2\x82", "ab| \xE2\x82");                   // cut off
    G("a\xE2\x82z", "a|\xE2\x82|z");                 // cut off inside
    C("a\xE2\x82z", "a|\xE2\x82z");                     // one character before the letters
    C("a\xFF\xFFz", "a|\xFF\xFF|z");                 // two characters: not before the letters
    C("a\xF0\x9F\x98z", "a|\xF0\x9F\x98z");             // three bytes, one character
    C("a\xED\xA0\x80z", "a|\xED\xA0\x80|z");         // a surrogate: three invalid bytes
    C("a\xC0\xAFz", "a|\xC0\xAF|z");                 // overlong: two invalid bytes
    C("a\xF4\x90\x80\x80z", "a|\xF4\x90\x80\x80|z"); // above U+10FFFF
    G("caf\xC3\xA9 \xFF caf\xC3\xA9", "caf\xC3\xA9| \xFF| caf\xC3\xA9");
}

// What an expression leaves out between matches becomes a piece; $ is the end of a line.
TEST(test_custom)
{
    expect_pieces("[a-m]+", "xyabcz", "xy|abc|z");
    expect_pieces("[a-m]+", "abcabc", "abcabc");
    expect_pieces("a$|b", "ba\n", "b|a|\n");
    expect_pieces("a\\$|b", "a$b", "a$|b");
    expect_pieces("[$b]", "a$b", "a|$|b");
}

// Several in a row, as DeepSeek-V3's: each sees only a piece of the one before, so " 1" is no piece, and a space at the
// end of one is at the end of a text.
#define DEEPSEEK "\\p{N}{1,3}" PRETOKEN_THEN "[\u4E00-\u9FA5]+" PRETOKEN_THEN "[!,.][A-Za-z]+|[^\r\n\\p{L}\\p{P}]?" \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
TEST(test_in_a_row)
{
    expect_pieces(DEEPSEEK, "ab 1234\u4E2D\u6587x, !y\n", "ab| |123|4|\u4E2D\u6587|x|,| !|y|\n");
    expect_pieces(DEEPSEEK, "\xFF" "1\xE4\xB8", "\xFF|1|\xE4\xB8"); // not UTF-8
    expect_pieces("\\p{N}" PRETOKEN_THEN "gpt2", "a  12 b  c3", "a|  |1|2| b| | c|3"); // smollm
    expect_pieces("gpt2" PRETOKEN_THEN "b", "ab b", "a|b| |b");
    expect_pieces(DEEPSEEK, "", "");
    OWN(Pretoken) *p = pretoken_new("gpt2" PRETOKEN_THEN "b");
    assert_int_equal(pretoken_cut(p, "ab cd", 5, 0), 5);
    const char *piece, *text = "xb";
    size_t n;
    for (int i = 0; i < 2; i++) { // a walk that is left
        pretoken_begin(p, text, 2);
        assert_true(pretoken_next(p, &piece, &n) && piece == text && n == 1);
    }
}

// The bytes of a code of 0x80 or more; returns how many there are.
static size_t put_code(char *text, uint32_t code)
{
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t k = n - 1; k > 0; k--, code >>= 6) text[k] = (char)(0x80 | (code & 0x3F));
    return text[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | code), n;
}

// Appends a character of a random kind to text, which has room for 8 bytes more; returns how many it has.
static size_t put_random(Rng rng, uint64_t i, char *text)
{
    static const char *const often[] = {
        " ", " ", "  ", "\n", "\r", "\r\n", "\t", "a", "Zx", "'", "'s", "'LL", "'vE", "'r", "'\u017F", "7", "12", "!",
        "-", NEL, "\u00A0", "\u2028", "\u3000", "\u180E", "\uFEFF", "\u00E9", "\u4E00", "\u0661", "\u2167", "\u0301",
        "\u212A", "\xF0\x9F\x98\x80",
    };
    static const char bytes[] = "\xC2\xC5\xBF\xE0\xE2\xED\xA0\x80\xF0\x90\xF4\x8F\xFFs ";
    uint64_t r = rng_u64(rng, i);
    if (r % 8 < 5) {
        const char *s = often[(r >> 8) % (sizeof often / sizeof *often)];
        return (size_t)(stpcpy(text, s) - text);
    }
    if (r % 8 == 5) return text[0] = bytes[(r >> 8) % (sizeof bytes - 1)], 1;
    uint32_t code = (uint32_t)(r >> 8) % (r % 8 == 6 ? 0x3000 : 0x110000); // surrogates too: invalid bytes
    return code < 0x80 ? text[0] = (char)code, 1 : put_code(text, code);
}

// The built-in expressions written out as code, and under PCRE2, which knows them when they come as custom ones.
static void expect_twins(Pretoken *fast, Pretoken *slow, const char *text, size_t n_text)
{
    const char *a, *b, *at = text;
    size_t n_a, n_b;
    pretoken_begin(fast, text, n_text);
    pretoken_begin(slow, text, n_text);
    while (pretoken_next(slow, &b, &n_b)) {
        assert_true(pretoken_next(fast, &a, &n_a));
        assert_true(b == at && n_b > 0); // no gaps, and no empty pieces
        at += n_b;
        if (a != b || n_a != n_b)
            fail_msg("at byte %zu: %zu bytes, PCRE2 says %zu: '%.*s'", (size_t)(b - text), n_a, n_b, (int)n_b, b);
    }
    assert_ptr_equal(at, text + n_text);
    assert_false(pretoken_next(fast, &a, &n_a));
}

TEST(test_twins)
{
    enum { N = 1 << 20 };
    FREED char *text = zeroed(N + 8);
    for (int k = 0; k < N_NAMES; k++) {
        OWN(Pretoken) *fast = pretoken_new(names[k]), *slow = pretoken_new(pretoken_regex(names[k]));
        Rng rng = rng_make(11, "twins", (uint32_t)k);
        size_t n = 0;
        for (uint64_t i = 0; n < N; i++) n += put_random(rng, i, text + n);
        expect_twins(fast, slow, text, n);
        for (size_t at = 0, part; at < N / 2; at += part) { // many ends of texts
            part = 1 + rng_u64(rng, (uint64_t)N + at) % 24;
            FREED char *alone = zeroed(part); // so that a sanitizer sees a read behind the end
            memcpy(alone, text + at, part);
            expect_twins(fast, slow, alone, part);
        }
    }
}

// Every character there is, between two letters: its class is PCRE2's.
TEST(test_every_character)
{
    FREED char *text = zeroed(0x110000 * 6);
    size_t n = 0;
    for (uint32_t code = 0x80; code < 0x110000; code++) {
        n += put_code(text + n, code);
        text[n++] = code % 2 ? 'a' : '1';
    }
    for (int k = 0; k < N_NAMES; k++) {
        OWN(Pretoken) *fast = pretoken_new(names[k]), *slow = pretoken_new(pretoken_regex(names[k]));
        expect_twins(fast, slow, text, n);
    }
}

static size_t list_pieces(Pretoken *p, const char *text, size_t n_bytes, size_t first, size_t *ends)
{
    const char *piece;
    size_t n, n_pieces = 0;
    pretoken_begin(p, text, n_bytes);
    while (pretoken_next(p, &piece, &n)) ends[n_pieces++] = first + (size_t)(piece - text) + n;
    return n_pieces;
}

// A million spaces before a letter: one piece, in linear time and without running out of stack.
TEST(test_spaces)
{
    enum { N = 1 << 20 };
    FREED char *text = zeroed(N + 1);
    memset(text, ' ', N);
    text[N] = 'a';
    for (int k = 0; k < N_NAMES; k++) {
        OWN(Pretoken) *p = pretoken_new(names[k]);
        size_t ends[3];
        assert_true(list_pieces(p, text, N + 1, 0, ends) == 2 && ends[0] == N - 1);
        assert_int_equal(list_pieces(p, text, N, 0, ends), 1);
    }
}

// Wherever a text may be cut, the halves have the pieces of the whole. The bytes are chosen so that cuts are allowed
// next to all that an expression treats in a way of its own; a cut at any other place would show (see the last lines).
TEST(test_cut)
{
    enum { N = 3000 };
    static size_t whole[N], halves[N];
    char text[N];
    for (int k = 0; k < N_NAMES; k++) {
        OWN(Pretoken) *p = pretoken_new(names[k]);
        Rng rng = rng_make(8, "cut", (uint32_t)k);
        for (size_t i = 0; i < N; i++) {
            uint64_t r = rng_u64(rng, i);
            text[i] = (r & 15) == 0 ? (char)(r >> 32) : "  \n\ra1's!\xC3\xA9\t"[(r >> 9) % 12];
        }
        size_t n_cuts = 0, n_whole = list_pieces(p, text, N, 0, whole);
        for (size_t at = 0, cut; (cut = pretoken_cut(p, text, N, at)) < N; at = cut + 1) {
            assert_true(cut >= at && cut > 0);
            size_t n = list_pieces(p, text, cut, 0, halves);
            n += list_pieces(p, text + cut, N - cut, cut, halves + n);
            same_bytes(halves, n * sizeof *whole, whole, n_whole * sizeof *whole);
            n_cuts++;
        }
        assert_true(n_cuts > 100);
        assert_int_equal(pretoken_cut(p, "ab cd", 5, 0), 2);
        assert_int_equal(pretoken_cut(p, "ab cd", 5, 3), 5);
        assert_int_equal(pretoken_cut(p, " a  b c", 7, 0), 2); // not before the first byte, not inside a run
        assert_int_equal(pretoken_cut(p, "!\n\n a", 5, 0), 5);
        assert_int_equal(pretoken_cut(p, "", 0, 0), 0);
    }
    OWN(Pretoken) *p = pretoken_new("[a-z ]+");
    assert_int_equal(pretoken_cut(p, "ab cd", 5, 0), 5);
}

// What Oniguruma reads otherwise than PCRE2, or could: the pieces of Hugging Face's Split(Regex(pattern), "isolated"),
// tokenizers 0.23, joined with |.
TEST(test_oniguruma)
{
    const struct { const char *pattern, *text, *want; } row[] = {
        {"\\h+", "fgBz 09", "f|g|B|z |09"}, {"[\\h_]+", "x_a0", "x|_a0"}, {"\\H+", "az_", "a|z_"},
        {"\\w+", "a_\302\262\303\251\331\243-b", "a_\302\262\303\251\331\243|-|b"},
        {"[\\w-]+", "a\302\262-b", "a|\302\262|-b"}, {"\\W", "a-b", "a|-|b"},
        {"\\d+", "a1\331\243\302\262", "a|1\331\243|\302\262"}, {"\\D+", "a1b", "a|1|b"},
        {"\\s+", "a \302\205\341\240\216b", "a| \302\205|\341\240\216b"}, {"\\S+", "a b", "a| |b"},
        {"\\v+", "a\013\012", "a|\013|\012"},
        {"\\R", "a\015\012\012\342\200\250b", "a|\015\012|\012|\342\200\250|b"},
        {"\\N+", "a\015b\012c", "a\015b|\012|c"}, {"\\O+", "a\012b", "a\012b"},
        {".+", "a\015b\012c", "a\015b|\012|c"}, {"^a|b", "aba\012ab", "a|b|a\012|a|b"},
        {"a$", "a\012aa\012", "a|\012a|a|\012"}, {"a\\Z", "a\012a\012", "a\012|a|\012"},
        {"a\\z", "a\012a", "a\012|a"}, {"\\Aa", "aa", "a|a"}, {"a{,2}b", "aaab", "a|aab"},
        {"a{|b}", "a{b}", "a{|b}"}, {"a{1,2}?", "aaa", "a|a|a"}, {"a++b?", "aab", "aab"},
        {"\\p{^L}+", "a12b", "a|12|b"}, {"\\P{^L}+", "ab1", "ab|1"}, {"[\\P{L}]+", "a12b", "a|12|b"},
        {"\\p{Han}+", "\346\274\242\343\200\206\343\200\205a", "\346\274\242|\343\200\206|\343\200\205|a"},
        {"\\p{katakana}+", "\343\203\274\343\202\242a", "\343\203\274|\343\202\242|a"},
        {"\\x41|\\x{e9}|\\u0661", "aA\303\251\331\243\331\241", "a|A|\303\251|\331\243|\331\241"},
        {"(?i:k|'s)", "Kk'S'\305\277", "K|k|'S|'\305\277"}, {"[a\\]\\-]+", "a]-b", "a]-|b"},
        {"(?<=a)b|(?<!a)c", "abbac", "a|b|bac"}, {"(a|b)+", "abc", "ab|c"}, {"(?>a+)a|b", "aab", "aa|b"},
        {"\\_|\\/", "a_/", "a|_|/"}, {"[a-e&&[^cd]]+", "abcxe", "ab|cx|e"}, {"[a-e\\]&&[\\]c-z]]", "ac]z", "a|c|]|z"},
        {"[\\p{L}&&[^\\p{Han}]]*b|\\w", "ab\346\274\242b1", "ab|\346\274\242|b|1"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) expect_pieces(row[i].pattern, row[i].text, row[i].want);
}

// The expressions of known models load; what would be read otherwise, or not at all, is refused by name.
TEST(test_refused)
{
    const char *known[] = {
        "gpt2", "cl100k", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", // LLaMA-3; Qwen's has \p{N} for \p{N}{1,3}
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|"
        "\\s+", // o200k
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
        " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", // DeepSeek-V3
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) pretoken_check(known[i], "known");
    static const char *const refused[][2] = {
        {"a\\Kb", "'\\K' at byte 1"}, {"\\X", "'\\X' at byte 0"}, {"\\y", "'\\y'"}, {"\\Y", "'\\Y'"},
        {"[a[bc]]", "'[' at byte 2"}, {"[a&&b]", "'&&' at byte 2"}, {"[^a&&[b]]", "'&&' at byte 3"},
        {"[a&&[b]c]", "']' at byte 6"}, {"[&&[b]]", "'&&' at byte 1"}, {"[[:alpha:]]", "'[' at byte 1"},
        {"(?~ab)", "'(?~'"}, {"(?m:.)", "'(?m'"}, {"(?i)a", "'(?i'"}, {"(?x)a", "'(?x'"}, {"(?<n>a)", "'(?<'"},
        {"(a)\\1", "'\\1' at byte 3"}, {"(?(1)a)", "'(?('"}, {"\\g<n>", "'\\g'"}, {"\\k<n>", "'\\k'"},
        {"(*FAIL)", "'(*'"}, {"a{1,2}+", "'{1,2}+' at byte 1"}, {"a{2}?", "'{2}?'"}, {"\\bx", "'\\b'"},
        {"\\G", "'\\G'"}, {"\\xC3\\xA9", "'\\x'"}, {"\\q", "'\\q'"}, {"(?i:ss)", "'ss' at byte 4"},
        {"(?i:\u00DF)", "'\u00DF' at byte 4"}, {"[]a]", "'[]'"}, {"[^]a]", "'[^]'"}, {"\\pL", "'\\p'"},
        {"[\\W]", "'\\W' at byte 1"}, {"\\p{Alpha}", "unknown property"}, {"x*", "can match nothing"},
        {"a\\", "'\\' at byte 1"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_dies(refused[i][1], pretoken_check(refused[i][0], "tokenizer.json"));
    expect_dies("tokenizer.json: its regular expression has", pretoken_check("\\K", "tokenizer.json"));
    expect_dies("does not compile", pretoken_new("(a"));
}

// ---- nfc: rows of the Unicode Standard, bytes that are not UTF-8, random texts against utf8proc's own function, the
// whole against its parts, and the time that a megabyte of accents takes.

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
