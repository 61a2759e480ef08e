// test_filter: for every rule of the filter a text just inside its threshold and one just outside, edits to the byte,
// counts, and a report about hostile text; and the shares of screening.
#define _GNU_SOURCE
#include "test/test.h"

#include "expect_die.h"
#include "data/prep/filter.h"
#include "base/rng.h"
#include "temp_dir.h"
#include "base/words.h"
#include "text/packing.h"

OWNER(Filter, filter_free)

// For filter_value.
static Filter *any(void)
{
    static Filter *filter;
    return filter ? filter : (filter = filter_new("", 0));
}

// Writes text: "3*{ab cd} x" is "ab cd ab cd ab cd x". Braces are not nested.
static const char *expand(const char *pattern)
{
    static char out[1 << 21];
    size_t o = 0;
    for (const char *p = pattern; *p;) {
        char *end;
        long times = *p >= '0' && *p <= '9' ? strtol(p, &end, 10) : 0;
        if (times && end[0] == '*' && end[1] == '{') {
            size_t n = strcspn(end + 2, "}");
            for (long i = 0; i < times; i++) memcpy(out + o, end + 2, n), o += n;
            p = end + 3 + n;
        } else {
            out[o++] = *p++;
        }
    }
    out[o] = 0;
    return out;
}

static bool keeps(const char *rule, const char *text)
{
    const char *kept;
    size_t n;
    OWN(Filter) *f = filter_new(rule, 1);
    bool keep = filter_document(f, text, strlen(text), "x", 0, &kept, &n);
    return keep;
}

// The value of both texts, and that the first is kept and the second is not.
static void border(const char *rule, const char *inside, double value_in, const char *outside, double value_out)
{
    const char *text[2] = {inside, outside};
    double want[2] = {value_in, value_out};
    for (int i = 0; i < 2; i++) {
        const char *t = expand(text[i]);
        double got = filter_value(any(), rule, t, strlen(t));
        if (!(fabs(got - want[i]) <= 1e-12))
            fail_msg("%s: '%.60s': value %g, expected %g", rule, text[i], got, want[i]);
        if (keeps(rule, t) != (i == 0))
            fail_msg("%s: '%.60s', value %g: %s", rule, text[i], got, i ? "kept" : "removed");
    }
}

// Values are quotients of small counts, correctly rounded by both sides: 1e-12 is room enough.
TEST(test_borders)
{
    const char *sets[] = {"guide", "gopher"};
    for (int i = 0; i < 2; i++) {
        char rule[40];
        sprintf(rule, "%s.words", sets[i]);
        border(rule, "50*{a }", 50, "49*{a }", 49);
        border(rule, "100000*{a }", 100000, "100001*{a }", 100001);
        sprintf(rule, "%s.word_length", sets[i]);
        border(rule, "aa aaaa", 3, "aa aaa", 2.5);
        border(rule, "\u00e4\u00e4\u00e4", 3, "\u00e4\u00e4", 2); // characters, not bytes
    }
    border("gopher.word_length", "aaaaaaaaaa", 10, "aaaaaaaaaaa", 11);
    border("gopher.hashes", "# 9*{a }", 1 / 10.0, "# 8*{a }", 1 / 9.0);
    border("gopher.hashes", "## 19*{a }", 2 / 20.0, "## 18*{a }", 2 / 19.0);
    border("gopher.ellipses", "a..... 9*{a }", 1 / 10.0, "a\u2026 8*{a }", 1 / 9.0);
    border("guide.letters", "aaaaaaa123", 7 / 10.0, "aaaaaaa1234", 7 / 11.0);
    border("guide.letters", "\u0939\u093f\u0928\u094d\u0926\u0940\u4e2d", 1, "\u0939 ", 0.5); // marks are letters too
    border("gopher.bullets", "a\n9*{- x\n}", 0.9, "a\n9*{* x\n}\u2022 x\n", 10 / 11.0);
    border("gopher.ellipsis_lines", "3*{x...\n}7*{a\n}", 0.3, "4*{x\u2026 \n}9*{a\n}", 4 / 13.0);
    border("gopher.letter_words", "a a a a 1", 0.8, "a a a 1", 0.75);
    border("gopher.stop_words", "The (and) and", 2, "and bee And", 1);
    border("c4.lorem_ipsum", "lorem  ipsum", 0, "a Lorem Ipsum b", 1);
    border("c4.curly", "(x)", 0, "x}", 1);
    border("c4.sentences", "One. Two?! \"Three.\"", 3, "One... 3.5 Two! three", 2);
}

// The signs that doc/filter.md names: what begins a bullet, and what is taken off a word before it is compared.
TEST(test_signs)
{
    const char *bullet[] = {"-", "*", "\u2022", "\u2023", "\u25E6", "\u25AA", "\u25CF"},
               *other[] = {"+", "\u2013", "\u00B7", "\u25A0", "1.", "#", "o "};
    char text[64];
    for (size_t i = 0; i < 14; i++) {
        snprintf(text, sizeof text, "one\n \t%sx\n\ntwo\n\u3000%s\n", i < 7 ? bullet[i] : other[i - 7],
                 i < 7 ? bullet[i] : other[i - 7]);
        double got = filter_value(any(), "gopher.bullets", text, strlen(text));
        if (got != (i < 7 ? 0.5 : 0)) fail_msg("'%s': %g of the lines begin with a bullet", text, got);
    }
    for (int c = 0x21; c < 0x7F; c++) { // THE, then 'be' with the sign on both sides
        bool sign = strchr("0123456789", c) == NULL && !((c | 32) >= 'a' && (c | 32) <= 'z');
        snprintf(text, sizeof text, "THE %c%cbe%c", c, c, c);
        double got = filter_value(any(), "gopher.stop_words", text, strlen(text));
        if (got != 1 + sign) fail_msg("'%s': %g stop words", text, got);
    }
    const char *stays[] = {"\u201Cthe\u201D of", "the\u2014of and", "t-he of", "the's of", "the\u2019 of"};
    for (size_t i = 0; i < 5; i++)
        if (filter_value(any(), "gopher.stop_words", stays[i], strlen(stays[i])) != 1) fail_msg("'%s'", stays[i]);
}

TEST(test_repetition)
{
    border("gopher.repeat_lines", "3*{x\n}x \na\nb\nc\nd\ne\nf\n", 0.3, "4*{x\n}a\nb\nc\nd\ne\n", 3 / 9.0);
    border("gopher.repeat_line_chars", "xx\nxx\nabcdef", 0.2, "xx\nxx\nabcde", 2 / 9.0);
    border("gopher.repeat_paragraphs", "4*{x\ny\n\n}a\n\nb\n\nc\n\nd\n\ne\n\nf", 0.3,
           "3*{x\ny\n\n}a\n\nb\n\nc\nd", 2 / 6.0);
    border("gopher.repeat_paragraph_chars", "x\ny\n\nx\ny\n\nabcdef", 0.2, "x\ny\n\n \nx\ny\n\nabcde", 2 / 9.0);
    // n letters as n-grams, twice: 2n of N characters. x x x x: its bigrams overlap, and cover 4 characters.
    border("gopher.top_2gram", "a b 16*{z} a b", 4 / 20.0, "a b 15*{z} a b", 4 / 19.0);
    border("gopher.top_2gram", "x x x 12*{z}", 3 / 15.0, "x x x x 12*{z}", 4 / 16.0);
    border("gopher.top_3gram", "a b c 28*{z} a b c", 6 / 34.0, "a b c 27*{z} a b c", 6 / 33.0);
    border("gopher.top_4gram", "a b c d 42*{z} a b c d", 8 / 50.0, "a b c d 41*{z} a b c d", 8 / 49.0);
    const double limit[] = {0.15, 0.14, 0.13, 0.12, 0.11, 0.10};
    for (int n = 5; n <= 10; n++) {
        char rule[40], gram[64] = "", in[600], out[600];
        for (int i = 0; i < n; i++) sprintf(gram + 2 * i, "%c ", 'a' + i);
        int fill = (int)ceil(2 * n / limit[n - 5] - 1e-9) - 2 * n; // the least that is allowed
        sprintf(rule, "gopher.repeat_%dgram", n);
        sprintf(in, "%s%d*{z} %s", gram, fill, gram);
        sprintf(out, "%s%d*{z} %s", gram, fill - 1, gram);
        border(rule, in, 2.0 * n / (2 * n + fill), out, 2.0 * n / (2 * n + fill - 1));
    }
    assert_true(filter_value(any(), "gopher.top_2gram", "a b c d", 7) == 0); // nothing is there twice
    // Of equally frequent ones the longer: "cc dd" of 8 + 4 + 1 characters.
    assert_true(filter_value(any(), "gopher.top_2gram", "a b cc dd x cc dd a b", 21) == 8 / 13.0);
}

static void expect_edit(const char *rule, const char *text, const char *want)
{
    const char *kept = NULL;
    size_t n = 0;
    OWN(Filter) *f = filter_new(rule, 3);
    bool keep = filter_document(f, text, strlen(text), "x", 0, &kept, &n);
    if (keep != (want != NULL)) fail_msg("%s: '%s': %s", rule, text, keep ? "kept" : "removed");
    if (want && (strlen(want) != n || memcmp(kept, want, n) != 0))
        fail_msg("%s: '%s': '%.*s', expected '%s'", rule, text, (int)n, kept, want);
    FilterCounts c = filter_counts(f, NULL);
    assert_int_equal(c.bytes_removed + c.bytes_edited + (want ? n : 0), strlen(text));
}

TEST(test_edits)
{
    expect_edit("c4.line_end", "Menu\nA line.\n  no end \n\nIs \"it.\"\nYes!\r\nhm \u201cso\u201d\nlast",
                "A line.\n\nIs \"it.\"\nYes!\r\nhm \u201cso\u201d\n");
    expect_edit("c4.line_end", "Menu\nHome", NULL); // nothing is left
    expect_edit("c4.line_words", "one two three four\none two three four five\n", "one two three four five\n");
    expect_edit("c4.javascript", "a\nturn on JavaScript now\nb", "a\nb");
    expect_edit("c4.policy", "a\nOur Privacy  Policy\nThis site Uses Cookies.\nterms of use\nb\n",
                "a\nOur Privacy  Policy\nb\n");
    expect_edit("c4.citations", "a[1] b [citation needed][note 2], [x] [12345] [", "a b , [x] [12345] [");
    // Later rules judge what is left: two sentences stay.
    expect_edit("c4", "A b c d e f. Not here\nOne two three four five. Six seven!", NULL);
    expect_edit("c4", "Menu\nA b c d e f. One.\nOne two three four five!",
                "A b c d e f. One.\nOne two three four five!");
}

TEST(test_spans)
{
    const char *kept;
    size_t n;
    OWN(Filter) *f = filter_new("repeat", 1);
    filter_set(f, "repeat.spans.min=3");
    const struct { const char *text, *want; } row[] = {
        {"a b c x a b c y", "a b c x y"}, {"a b x a b y", "a b x a b y"}, {"a b a b a b a b", "a b "},
        {"a b c d x a b c d\nb c d e", "a b c d x e"}, {"a b c x a b c", "a b c x "}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_true(filter_document(f, row[i].text, strlen(row[i].text), "x", i, &kept, &n));
        if (n != strlen(row[i].want) || memcmp(kept, row[i].want, n) != 0)
            fail_msg("'%s': '%.*s', expected '%s'", row[i].text, (int)n, kept, row[i].want);
    }
    // By default 50 words: 49 may come again.
    char text[2000] = "", *o = text;
    for (int i = 0; i < 101; i++) o += sprintf(o, "w%d ", i < 51 ? i : i == 51 ? 999 : i - 52); // 51, other, 49
    expect_edit("repeat.spans", text, text);
    char longer[2100], want[2100];
    sprintf(longer, "%sw49 end", text);
    snprintf(want, (size_t)(strstr(text, "w999") - text) + 6, "%s", text);
    strcat(want, "end");
    expect_edit("repeat.spans", longer, want);
}

TEST(test_selection)
{
    expect_dies("'gofer': no such rule or set", filter_new("guide,gofer", 0));
    expect_dies("no such rule", filter_new("gopher.wor", 0));
    OWN(Filter) *few = filter_new("gopher.words,repeat.spans", 0);
    const char *bad[] = {"gopher.words", "gopher.hashes.min=1", "gopher.words.min=x", "gopher.words.min=nan", "x.min=1",
                         "repeat.spans.min=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_dies(bad[i], filter_set(few, bad[i]));
    expect_dies("'guide.words.min=3': has no effect: guide.words is not among the rules",
                filter_set(few, "guide.words.min=3"));
    expect_dies("list: has no effect: c4.bad_words is not among the rules", filter_bad_words(few, "list"));
    // The first rule that objects removes, and the later ones do not see the document: here words, of three.
    const char *kept;
    size_t n;
    OWN(Filter) *f = filter_new("gopher.stop_words,gopher.words,guide.letters", 1);
    filter_set(f, "gopher.words.min=2");
    assert_false(filter_document(f, "1", 1, "x", 0, &kept, &n));
    assert_false(filter_document(f, "1 2", 3, "x", 1, &kept, &n));
    assert_true(filter_document(f, "the and", 7, "x", 2, &kept, &n));
    assert_ptr_equal(kept, "the and");
    const struct { const char *rule; uint64_t seen, removed, bytes; } want[] = {
        {"gopher.words", 3, 1, 1}, {"gopher.stop_words", 2, 1, 3}, {"guide.letters", 1, 0, 0}, {NULL, 3, 2, 4}};
    for (int i = 0; i < 4; i++) {
        FilterCounts c = filter_counts(f, want[i].rule);
        assert_true(c.seen == want[i].seen && c.removed == want[i].removed && c.bytes_removed == want[i].bytes);
    }
}

TEST_IN_DIR(test_reports)
{
    put_text("list", "Foo  Bar\n\nbaz\n");
    OWN(Filter) *f = filter_new("c4.bad_words,guide.words", 2);
    filter_bad_words(f, in_dir("list"));
    assert_true(filter_value(f, "c4.bad_words", "a FOO bar, \"baz\" foo", 20) == 2);
    const char *kept, *text = "<script>alert('x')&amp;\"\x1B[31m\x7F\xC2\x9B</script>";
    size_t n_kept;
    for (uint64_t i = 0; i < 3; i++) assert_false(filter_document(f, text, strlen(text), "<b>.txt", i, &kept, &n_kept));
    assert_false(filter_document(f, "baz", 3, "y", 3, &kept, &n_kept));
    FREED char *page = PRINTED(html, filter_html(f, html)), *report = PRINTED(out, filter_print(f, out));
    assert_false(strstr(page, "<script") || strstr(page, "<b>.txt") || strchr(page, 0x1B));
    assert_non_null(strstr(page, "<pre>" // escaped, control characters as pictures
                                 "&#60;script&#62;alert(&#39;x&#39;)&#38;amp;&#34;"
                                 "\u241B[31m\u2421\uFFFD&#60;/script&#62;</pre>"));
    assert_non_null(strstr(page, "<tr><td>guide.words<td>50 to 100000<td>3<td>3<td>"));
    assert_non_null(strstr(page, "&#60;b&#62;.txt:1<"));
    assert_null(strstr(page, ".txt:2<")); // two examples
    assert_non_null(strstr(report, "4 documents in, 4 removed, 0 kept"));
    assert_non_null(strstr(report, "by c4.bad_words: words of the user's list (Raffel et al., 1910.10683)\n"
                                   "  y:3: 1, kept is at most 0: baz\n"));
    assert_non_null(strstr(report, "by guide.words: words (the guides' DocumentFilter)\n  <b>.txt:0: 1, kept is 50 to "
                                   "100000: <script>alert('x')&amp;\"\u241B[31m\u2421\uFFFD</script>\n"));
    assert_false(strstr(report, ".txt:2:") || strchr(report, 0x1B));
    // At most two lines a rule, cut between characters; an edit says how many pieces went.
    OWN(Filter) *g = filter_new("c4.curly,c4.line_end", 9);
    char curly[] = "{23456789 123456789 123456789 123456789 123456789 12345678\xE2\x82\xAC\xE2\x82\xAC", want[400];
    for (uint64_t i = 0; i < 3; i++) filter_document(g, curly, strlen(curly), "c", 10 + i, &kept, &n_kept);
    filter_document(g, "One.\nno end\nTwo.\nnone", 21, "e", 5, &kept, &n_kept);
    FREED char *other = PRINTED(out, filter_print(g, out));
    curly[58] = 0;
    sprintf(want, "by c4.curly: curly brackets (Raffel et al., 1910.10683)\n  c:10: 1, kept is at most 0: %s...\n"
                  "  c:11: 1, kept is at most 0: %s...\nby c4.line_end: ", curly, curly);
    assert_non_null(strstr(other, want));
    assert_non_null(strstr(other, "  e:5: 2 taken out, the first one: no end\n"));
}

// Any bytes: no crash, the books balance, and what is kept is well-formed when the text was.
TEST(test_random)
{
    const char *piece[] = {"the ", "and ", ". ", "\n", "\n\n", "...", "# ", "[1]", "{", "\u00e9", "\u3000",
                           "- ", "word! ", "javascript "};
    OWN(Filter) *f = filter_new("c4,repeat,gopher.words,guide", 1);
    const char *set[] = {"gopher.words.min=3", "guide.words.min=3", "guide.letters.min=0.2", "guide.word_length.min=1",
                         "c4.line_words.min=2", "repeat.spans.min=4"};
    for (int i = 0; i < 6; i++) filter_set(f, set[i]);
    uint64_t bytes_in = 0, bytes_kept = 0, kept_n = 0;
    for (uint64_t round = 0; round < 400; round++) {
        Rng rng = rng_make(round, "filter", 0);
        char text[800];
        size_t n = 0, length = rng_below(rng, 0, 700), n_kept, bad;
        bool raw = round % 4 == 0;
        for (uint64_t i = 1; n < length; i++) {
            if (raw) text[n++] = (char)rng_below(rng, i, 256);
            else n += strlen(strcpy(text + n, piece[rng_below(rng, i, round % 3 ? 14 : 4)]));
        }
        const char *kept;
        bytes_in += n;
        if (!filter_document(f, text, n, "x", round, &kept, &n_kept)) continue;
        bytes_kept += n_kept;
        kept_n++;
        if (!raw) assert_true(words_utf8_invalid(kept, n_kept, 0, &bad) == n_kept);
    }
    FilterCounts c = filter_counts(f, NULL);
    assert_true(kept_n > 0 && kept_n < 400);
    assert_int_equal(bytes_in, bytes_kept + c.bytes_removed + c.bytes_edited);
    assert_int_equal(c.seen, c.removed + kept_n);
}

// ---- screen: the two shares on parts whose counts are known, thresholds from both sides, and what is masked.

enum { EOT = 256, T = 64 }; // the tokenizer's bytes are tokens 0 to 255

// The bytes alone, and end-of-text: a text without a pair.
static Tokenizer *bytes_alone(void)
{
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    tokenizer_trainer_add(trainer, "a", 1);
    Tokenizer *t = tokenizer_trainer_finish(trainer, 257);
    assert_int_equal(tokenizer_eot(t), EOT);
    return t;
}

static int32_t byte_token(const Tokenizer *t, unsigned char byte)
{
    for (int32_t i = 0; i < 256; i++) {
        size_t n;
        if ((unsigned char)*tokenizer_decode(t, i, &n) == byte) return i;
    }
    fail_msg("no token for byte %d", byte);
    return -1;
}

// Every pair of equal 4-grams, by comparing all.
static double repeat_naive(const int32_t *token, size_t n)
{
    size_t repeated = 0;
    if (n < 4) return 0;
    for (size_t i = 0; i + 4 <= n; i++) {
        size_t j = 0;
        while (j < i && memcmp(token + j, token + i, 4 * sizeof *token) != 0) j++;
        repeated += j < i;
    }
    return (double)repeated / (double)(n - 3);
}

TEST(test_repeat)
{
    Screen *s = screen_new(0.5, 1, T, NULL);
    const int32_t once[] = {1, 2, 3, 4, 5, 6, 7, 8}, twice[] = {1, 2, 3, 4, 1, 2, 3, 4}, same[T] = {0};
    assert_true(screen_repeat(s, once, 8) == 0);
    assert_true(screen_repeat(s, once, 3) == 0);
    assert_true(screen_repeat(s, twice, 8) == 1.0 / 5); // 1234 2341 3412 4123 1234
    assert_true(screen_repeat(s, same, T) == (T - 4.0) / (T - 3.0));
    int32_t token[T];
    for (uint32_t i = 0; i < 300; i++) { // few different tokens, so 4-grams repeat, and slots collide
        Rng rng = rng_make(7, "screen", i);
        size_t n = 1 + rng_below(rng, 0, T);
        for (size_t k = 0; k < n; k++) token[k] = (int32_t)rng_below(rng, 1 + k, 3);
        assert_true(screen_repeat(s, token, n) == repeat_naive(token, n));
    }
    screen_free(s);
}

TEST(test_broken)
{
    Tokenizer *t = bytes_alone();
    Screen *s = screen_new(1, 0.5, T, t);
    int32_t a = byte_token(t, 'a'), ef = byte_token(t, 0xEF), bf = byte_token(t, 0xBF), bd = byte_token(t, 0xBD);
    const int32_t good[] = {EOT, a, a, a}, one[] = {EOT, a, ef, bf, bd, a}, again[] = {ef, ef, bf, bd, ef, bf, a, bd};
    assert_true(screen_broken(s, good, 4) == 0);
    assert_true(screen_broken(s, good, 1) == 0); // no text
    assert_true(screen_broken(s, one, 6) == 3.0 / 5);
    assert_true(screen_broken(s, again, 8) == 3.0 / 8); // the second begins anew; the last is cut
    screen_free(s);
    tokenizer_free(t);
}

// Three parts: the end of a document, one of whose three 4-grams one repeats, and one that does not repeat.
TEST(test_masks_parts)
{
    Tokenizer *t = bytes_alone();
    const int32_t token[] = {9, 8, 7, EOT, 1, 1, 1, 1, 1, EOT, 1, 2, 3, 4};
    enum { N = sizeof token / sizeof *token };
    for (int above = 0; above < 2; above++) {
        double share = 1.0 / 3; // E111 1111 1111
        Screen *s = screen_new(above ? share : share - 1e-9, 1, T, t);
        assert_true(screen_repeat(s, token + 3, 6) == share);
        int32_t target[N];
        for (int i = 0; i < N; i++) target[i] = 100 + i;
        target[5] = -1; // not counted twice
        assert_int_equal(screen_sequence(s, token, N, target), above ? 0 : 5);
        for (int i = 0; i < N; i++) {
            bool masked = i == 5 || (!above && i >= 3 && i < 9);
            assert_int_equal(target[i], masked ? -1 : 100 + i);
        }
        screen_free(s);
    }
    // Without a tokenizer there is one part: 11 4-grams, of which 1111 repeats.
    Screen *s = screen_new(0.05, 1, T, NULL);
    int32_t target[N] = {0};
    assert_true(screen_repeat(s, token, N) == 1.0 / 11);
    assert_int_equal(screen_sequence(s, token, N, target), N);
    screen_free(s);
    tokenizer_free(t);
}

TESTS(NULL, NULL)
