// Tests of html and charset: what is text in a page, what is dropped, how blocks are judged and laid out; pages nested
// deep and broken ones; which charset a page is in, and its bytes as UTF-8.
#define _GNU_SOURCE // memmem
#include <stdbool.h>

#include "test/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/web/charset.h"
#include "data/web/html.h"

#define LONG "a paragraph that is kept, for it has more words than a menu has and no links at all in it"
#define CHINESE "\xE4\xB8\xAD\xE6\x96\x87\xE6\xB2\xA1\xE6\x9C\x89\xE7\xA9\xBA\xE6\xA0\xBC" \
    "\xE4\xB8\xAD\xE6\x96\x87\xE6\xB2\xA1\xE6\x9C\x89\xE7\xA9\xBA\xE6\xA0\xBC\xE4\xB8\xAD\xE6\x96\x87\xE6\xB2\xA1"
#define ALSO "another one that is long enough to be kept by itself, whatever stands before it and after it here"

static const struct {
    const char *page, *text;
} pages[] = {
    {"", ""},
    {"<p>" LONG "<p>" ALSO, LONG "\n\n" ALSO},
    {"no tags, but " LONG, "no tags, but " LONG},
    // White space, entities, inline elements
    {"<p> \t" LONG "\n <b> bo</b>ld &amp; &eacute;&#x20AC;&nbsp;&#8212; x <i></i>\n</p>", LONG
     " bold & \xC3\xA9\xE2\x82\xAC \xE2\x80\x94 x"},
    {"<p>" LONG "<br>a line<br><br>" ALSO, LONG "\na line\n\n" ALSO},
    // What is dropped
    {"<title>no</title><style>no</style><p>" LONG
     "<script>if (a < b) document.write('<p>no</p>')</script><noscript>no</noscript>"
     "<template>no</template><button>no</button><select><option>no</select><textarea>no</textarea>"
     "<svg><text>no</text></svg>", LONG},
    {"<header><h1>no</h1></header><nav><p>" ALSO "</nav><p>" LONG "<aside>" ALSO "</aside><footer>" ALSO "</footer>",
     LONG},
    {"<article><header><h1>A title</h1></header><p>" LONG "</article>", "A title\n\n" LONG},
    {"<form><input value=no><label>A label and " LONG "</label></form>", "A label and " LONG},
    {"<p hidden>" ALSO "</p><p>" LONG "</p><p style='color: red; display:none'>" ALSO "</p><p aria-hidden=true>" ALSO,
     LONG},
    {"<div role=navigation>" ALSO "</div><div class='x sidebar'>" ALSO "</div><div id=footer>" ALSO
     "</div><p class=sidebars>" LONG, LONG},
    {"<body class=menu><p>" LONG, LONG},
    {"<nav><b>no</b>" ALSO "</nav><p>" LONG, LONG},
    {"<nav>no</nav>after it, " LONG, "after it, " LONG},
    // Links
    {"<p><a>one</a> <a>two</a> <a>three</a> and <a>four</a><p>" LONG ".", LONG "."},
    {"<p><a>one</a> <a>two</a><p>" LONG, ""}, // the tree asks for 40 words after links
    {"<p>" LONG " and <a href=x>one of its links</a>", LONG " and one of its links"},
    {"<h2>A head<a class=headerlink>\xC2\xB6</a></h2><p>" LONG, "A head\n\n" LONG},
    {"<p>" LONG " see <a>#</a><a>C#</a>.", LONG " see C#."},
    // Headings, and what stands between
    {"<h1>Title</h1><p>Short one.<h2>Part</h2><p>" LONG "<p>short<p>" ALSO "<h2>Last</h2>",
     "Part\n\n" LONG "\n\nshort\n\n" ALSO "\n\nLast"},
    {"<p><a>x</a><h2>A head</h2><p>Five words and it ends.", "A head\n\nFive words and it ends."},
    {"<p>one two<p>Five words and it ends.<p><a>three</a>", "Five words and it ends."},
    {"<p>one two<p>\xE0\xA4\x8F\xE0\xA4\x95 two three four five\xE0\xA5\xA4",
     "\xE0\xA4\x8F\xE0\xA4\x95 two three four five\xE0\xA5\xA4"},
    // Lists
    {"<p>" LONG "<ul><li>one<li><p>two</p><li><a>three</a> <a>links</a><ul><li>four</ul></ul>", LONG
     "\n\n- one\n- two"},
    {"<ul><li>" LONG "<li>short<li>x</ul><p>y", "- " LONG "\n- short\n- x"},
    {"<dl><dt>term<dd><p>what it is, and " LONG "</p><p>" ALSO "<dt><a>linked</a><dd>" LONG "</dl>",
     "term\nwhat it is, and " LONG "\n\n" ALSO "\n\nlinked\n" LONG},
    // Tables
    {"<table><tr><th>Name<th>Value<tr><td><p>a</p><td><b>1</b> x<tr><td></td><td>2</td></table>",
     "Name | Value\na | 1 x\n2"},
    {"<table><tr><td><p>" LONG "<p>" ALSO "<td>" LONG "</table>", LONG "\n\n" ALSO "\n\n" LONG},
    {"<table><tr><td><a>Home</a><td><a>Next</a></table><p>" LONG ".", LONG "."},
    // Pre
    {"<pre>\n\n  int x;\n\n\tif (a &lt; b)   return;\n</pre><p>" LONG, "  int x;\n\n\tif (a < b)   return;\n\n" LONG},
    {"<pre>a<br>b<span> c</span></pre>", "a\nb c"},
    // Scripts without spaces
    {"<p>" CHINESE CHINESE CHINESE, CHINESE CHINESE CHINESE},
    {"<p>" CHINESE, ""},
    // Broken pages
    {"<p>" LONG "<div", LONG},
    {"<p>" LONG "</div></table></p><b>x<p>" ALSO "</b>&unknown; &#xD800;&#0;", LONG "\n\nx\n\n" ALSO "&unknown;"},
    {"<!-- <p>no --><p>" LONG "<!-- no", LONG},
    {"<?xml version='1.0'?><!DOCTYPE html><html xmlns='x'><p>" LONG, LONG},
};

TEST(test_pages)
{
    Html *h = html_new();
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        const char *text;
        size_t n;
        assert_null(html_text(h, pages[i].page, strlen(pages[i].page), &text, &n));
        if (n != strlen(pages[i].text) || (n && memcmp(text, pages[i].text, n) != 0))
            print_error("page %zu:\n%.*s\nexpected:\n%s\n", i, (int)n, text ? text : "", pages[i].text);
        assert_int_equal(n, strlen(pages[i].text));
        if (n) assert_memory_equal(text, pages[i].text, n);
    }
    html_free(h);
}

// The tree of the paper, at its thresholds: before, in between, after are paragraphs of so many words, or links.
static void paragraph(char *page, int words, bool links)
{
    strcat(page, "<p>");
    for (int i = 0; i < words; i++) strcat(page, links ? "<a>w</a> " : "w ");
}

TEST(test_thresholds)
{
    const struct {
        int before, words, after;
        bool links, kept; // before is links
    } row[] = {{0, 16, 0, 0, 0}, {0, 17, 0, 0, 1}, {4, 2, 15, 0, 0}, {4, 2, 16, 0, 1}, {5, 2, 0, 0, 1}, {4, 2, 0, 0, 0},
               {9, 40, 0, 1, 0}, {9, 41, 0, 1, 1}, {9, 2, 17, 1, 0}, {9, 2, 18, 1, 1}};
    Html *h = html_new();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char page[4000] = "";
        const char *text;
        size_t n;
        if (row[i].before) paragraph(page, row[i].before, row[i].links);
        strcat(page, "<p>THIS");
        for (int k = 1; k < row[i].words; k++) strcat(page, " w");
        if (row[i].after) paragraph(page, row[i].after, false);
        assert_null(html_text(h, page, strlen(page), &text, &n));
        bool kept = n && memmem(text, n, "THIS", 4);
        if (kept != row[i].kept) fail_msg("row %zu: kept %d", i, kept);
    }
    html_free(h);
}

TEST(test_deep)
{
    const int depth[] = {900, 1100, 200000};
    Html *h = html_new();
    for (int i = 0; i < 3; i++) {
        char *page = malloc((size_t)depth[i] * 5 + 200);
        const char *text;
        size_t n = 0, n_text;
        for (int k = 0; k < depth[i]; k++) n += (size_t)sprintf(page + n, "<div>");
        n += (size_t)sprintf(page + n, LONG);
        const char *why = html_text(h, page, n, &text, &n_text);
        free(page);
        if (i) assert_string_equal(why, "its elements are nested more than 1000 deep");
        else assert_true(!why && n_text == strlen(LONG));
    }
    html_free(h);
}

// ---- charsets
static const struct {
    const char *bytes, *label, *charset, *text;
    uint64_t replaced;
} sets[] = {
    {"abc", "", "UTF-8", "abc", 0},
    {"\xC3\xA9", "", "UTF-8", "\xC3\xA9", 0},
    {"caf\xE9 \x93x\x94", "", "CP1252", "caf\xC3\xA9 \xE2\x80\x9Cx\xE2\x80\x9D", 0},
    {"caf\xE9", "ISO-8859-1", "CP1252", "caf\xC3\xA9", 0},
    {"\xC3\xA9", "iso-8859-1", "UTF-8", "\xC3\xA9", 0}, // the server says so for every file
    {"\xC3\xA9", "ISO-8859-2", "ISO-8859-2", "\xC4\x82\xC5\xA0", 0},
    {"caf\xE9", "utf-8", "UTF-8", "caf\xEF\xBF\xBD", 1},
    {"\xEF\xBB\xBF\xC3\xA9", "koi8-r", "UTF-8", "\xC3\xA9", 0}, // the byte order mark goes first
    {"\xC1", "koi8-r", "KOI8-R", "\xD0\xB0", 0},
    {"\xC1", "no-such-charset", "CP1252", "\xC3\x81", 0},
    {"\xC1", "UTF-7", "CP1252", "\xC3\x81", 0},
    {"\xC1", "iso-8859-2//TRANSLIT", "CP1252", "\xC3\x81", 0},
    {"<META HTTP-EQUIV=x content=\"text/html; charset=Windows-1251\">\xE0", "", "CP1251",
     "<META HTTP-EQUIV=x content=\"text/html; charset=Windows-1251\">\xD0\xB0", 0},
    {"<meta charset='koi8-r'>\xC1", "", "KOI8-R", "<meta charset='koi8-r'>\xD0\xB0", 0},
    {"<meta charset='koi8-r'>\xE0", "windows-1251", "CP1251", "<meta charset='koi8-r'>\xD0\xB0", 0}, // the header first
    {"<meta name=x><meta charset=utf-16>\xC3\xA9", "", "UTF-8", "<meta name=x><meta charset=utf-16>\xC3\xA9", 0},
    {"<meta name=x>charset=koi8-r\xE9", "", "CP1252", "<meta name=x>charset=koi8-r\xC3\xA9", 0},
    {"\xC4\xE3\xBA\xC3", "gb2312", "GB18030", "\xE4\xBD\xA0\xE5\xA5\xBD", 0},
    {"\x93\xFA\x96\x7B", "Shift_JIS", "CP932", "\xE6\x97\xA5\xE6\x9C\xAC", 0},
    {"\xC6\xFC\xCB\xDC", "euc-jp", "EUC-JP", "\xE6\x97\xA5\xE6\x9C\xAC", 0},
    {"\x1B$BF|K\\\x1B(B", "iso-2022-jp", "ISO-2022-JP", "\xE6\x97\xA5\xE6\x9C\xAC", 0},
    {"\xC7\xD1", "euc-kr", "CP949", "\xED\x95\x9C", 0},
    {"\xA7\x41", "big5", "BIG5-HKSCS", "\xE4\xBD\xA0", 0},
    {"a\xC6", "euc-jp", "EUC-JP", "a\xEF\xBF\xBD", 1}, // ends inside a character
    {"\xFF\xFE" "a\1" "b", "", "UTF-16LE", "\xC5\xA1\xEF\xBF\xBD", 1},
    {"\xFE\xFF\1a", "x", "UTF-16BE", "\xC5\xA1", 0},
};

TEST(test_charsets)
{
    CharsetText t = {0};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        size_t n = strlen(sets[i].bytes);
        const char *charset = charset_find(sets[i].bytes, n, sets[i].label, 1);
        if (strcmp(charset, sets[i].charset) != 0) fail_msg("%zu: %s, expected %s", i, charset, sets[i].charset);
        charset_decode(sets[i].bytes, n, charset, &t);
        if (t.n_bytes != strlen(sets[i].text) || memcmp(t.text, sets[i].text, t.n_bytes) != 0)
            fail_msg("%zu: %.*s", i, (int)t.n_bytes, t.text);
        assert_int_equal(t.replaced, sets[i].replaced);
    }
    assert_string_equal(charset_find("<meta charset=koi8-r>\xC1", 22, "", 0), "CP1252"); // plain text has no <meta>
    charset_decode("a\0b", 3, "UTF-8", &t);
    assert_true(t.n_bytes == 5 && memcmp(t.text, "a\xEF\xBF\xBD" "b", 5) == 0 && t.replaced == 1);
    charset_decode("a\0b", 3, "CP1252", &t);
    assert_true(t.n_bytes == 5 && memcmp(t.text, "a\xEF\xBF\xBD" "b", 5) == 0 && t.replaced == 1);
    // Longer than any buffer.
    char *many = malloc(100000);
    memset(many, 0xE9, 100000);
    charset_decode(many, 100000, "CP1252", &t);
    assert_int_equal(t.n_bytes, 200000);
    for (size_t i = 0; i < t.n_bytes; i += 2) assert_memory_equal(t.text + i, "\xC3\xA9", 2);
    free(many);
    free(t.text);
}

TESTS(NULL, NULL)
