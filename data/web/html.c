// html: the text of a page of HTML, without what stands around it on every page of a site.
//
// libxml2's parser reads the page, closes what the page leaves open, decodes entities, and calls start, end and
// characters here, in the order of the page (SAX). No tree is built: the memory is that of the text, and elements in
// elements need no stack. Three steps:
//
//   1. Elements that never hold text (script, style, ...), controls, and those that HTML itself calls navigation,
//      header, footer or aside are dropped with all that is in them, and so is what the page hides.
//   2. The rest becomes blocks: paragraphs, headings, items of lists, rows of tables, pre. A block knows its words and
//      how many of them are in links. White space is one space; in pre it stays.
//   3. Blocks are kept or not by the decision tree of Kohlschuetter, Fankhauser and Nejdl, Boilerplate Detection using
//      Shallow Text Features (WSDM 2010), Algorithm 2: a menu is many links, a paragraph is many words in a row. Three
//      rules are added, because the tree was learned on pages of news: pre and tables are judged by their links alone;
//      a block with few links between two kept ones stays; and a heading right before a kept block stays.
//
// Invariant: what is not dropped in step 1 is in a block, and blocks are given whole, in the order of the page.
//
// Scripts without spaces (Chinese, Japanese, Thai, ...): two characters count as one word.
//
// Rejected: lexbor (it reads pages as browsers do, but Debian 12 has no package of it); gumbo (a tree whose release is
// recursive: a page of a million open elements ends the program; no longer maintained); a parser of our own.
// libxml2's reads broken pages in its own way and not as the HTML standard says; for the text it matters little.
#include "data/web/html.h"

#include <libxml/HTMLparser.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/words.h"

// The parser looks through all open elements at some tags. Browsers stop at 512.
enum { DEPTH_MOST = 1000 };

typedef enum { PARAGRAPH, HEADING, ITEM, ROW, PRE } Kind;

typedef struct {
    size_t at, n; // in text
    uint32_t words, links, unspaced; // words; those in links; characters of scripts without spaces
    uint8_t kind;
    bool keep;
} Block;

typedef enum { NOTHING, SPACE, LINE, CELL, BREAK } Gap; // before the next character

struct Html {
    xmlSAXHandler sax;
    char *text, *out;
    size_t n_text, cap_text, cap_out;
    Block *block; // (n)
    size_t n, cap;
    xmlParserCtxtPtr parser; // of the page
    Gap gap;
    int depth, dropped, link, article; // open elements; the number of the one that is dropped, of the link, or 0;
    int pre, heading;                  // open ones
    size_t link_at;                    // where the link begins
    Block before_link;
    bool open, in_word, item, too_deep;          // the last block is open; in a word; the next block begins an item
    bool row, row_text, row_broken; // in a row; it has text; in more than one block
    bool begins;                    // a row, cell or definition has no text yet
};

// ---- elements

enum { DROP = 1, BLOCK = 2, IN_ARTICLE = 4, H = 8 }; // IN_ARTICLE: dropped outside of article and main alone
static const struct {
    const char *name;
    int what;
} elements[] = {
    {"address", BLOCK}, {"applet", DROP}, {"article", BLOCK}, {"aside", DROP}, {"audio", DROP}, {"blockquote", BLOCK},
    {"body", BLOCK}, {"button", DROP}, {"canvas", DROP}, {"caption", BLOCK}, {"center", BLOCK}, {"datalist", DROP},
    {"details", BLOCK}, {"dialog", DROP}, {"dir", BLOCK}, {"div", BLOCK}, {"dl", BLOCK}, {"dt", BLOCK},
    {"embed", DROP}, {"fieldset", BLOCK}, {"figcaption", BLOCK}, {"figure", BLOCK}, {"footer", DROP},
    {"form", BLOCK}, {"h1", BLOCK | H}, {"h2", BLOCK | H}, {"h3", BLOCK | H}, {"h4", BLOCK | H}, {"h5", BLOCK | H},
    {"h6", BLOCK | H}, {"header", DROP | BLOCK | IN_ARTICLE}, {"hr", BLOCK}, {"html", BLOCK}, {"iframe", DROP},
    {"input", DROP}, {"li", BLOCK}, {"main", BLOCK}, {"map", DROP}, {"menu", DROP}, {"nav", DROP},
    {"noframes", DROP}, {"noscript", DROP}, {"object", DROP}, {"ol", BLOCK}, {"option", DROP}, {"p", BLOCK},
    {"pre", BLOCK}, {"script", DROP}, {"section", BLOCK}, {"select", DROP}, {"style", DROP}, {"summary", BLOCK},
    {"svg", DROP}, {"table", BLOCK}, {"tbody", BLOCK}, {"template", DROP}, {"textarea", DROP}, {"tfoot", BLOCK},
    {"thead", BLOCK}, {"title", DROP}, {"tr", BLOCK}, {"ul", BLOCK}, {"video", DROP}};

static int by_name(const void *name, const void *element)
{
    return strcmp(name, *(const char *const *)element);
}

static int what_is(const char *name)
{
    const char *const *found = bsearch(name, elements, sizeof elements / sizeof *elements, sizeof *elements, by_name);
    return found ? elements[(size_t)((const char *)found - (const char *)elements) / sizeof *elements].what : 0;
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

// Is one of the words of value in the list? Both are separated by spaces.
static bool any_word(const char *value, const char *list)
{
    for (size_t n; *(value += strspn(value, " \t\n")); value += n) {
        n = strcspn(value, " \t\n");
        for (const char *at = list; *at; at += strcspn(at + 1, " ") + 1)
            if (strncmp(at + 1, value, n) == 0 && at[n + 1] == ' ') return true;
    }
    return false;
}

// Attributes that hide an element, or say that it is a menu and the like: by ARIA's landmarks, or by the names that
// most sites use.
static bool is_hidden(const xmlChar **attribute)
{
    static const char roles[] = " navigation banner contentinfo search complementary menu menubar dialog alert ";
    static const char names[] = " nav navbar navigation navheader navfooter menu sidebar footer "
                                "breadcrumb breadcrumbs ";
    for (; attribute && attribute[0]; attribute += 2) {
        const char *name = (const char *)attribute[0], *value = attribute[1] ? (const char *)attribute[1] : "";
        if (is(name, "hidden") && !is(value, "until-found")) return true;
        if (is(name, "aria-hidden") && is(value, "true")) return true;
        if (is(name, "style") && (strstr(value, "display:none") || strstr(value, "display: none"))) return true;
        if (is(name, "role") && any_word(value, roles)) return true;
        if ((is(name, "class") || is(name, "id")) && any_word(value, names)) return true;
    }
    return false;
}

// ---- blocks

static void put(Html *h, const char *bytes, size_t n)
{
    h->text = words_grow(h->text, &h->cap_text, h->n_text + n, 1);
    memcpy(h->text + h->n_text, bytes, n);
    h->n_text += n;
}

static void close_block(Html *h)
{
    if (!h->open) return;
    Block *b = &h->block[h->n - 1];
    while (h->n_text > b->at && strchr(" \t\n", h->text[h->n_text - 1])) h->n_text--;
    b->n = h->n_text - b->at;
    b->words += b->unspaced / 2;
    if (!b->words) h->n--, h->n_text = b->at; // a link of which nothing is left
    h->open = false;
}

// What stands before the next character.
static void bridge(Html *h)
{
    if (h->open && h->gap == BREAK) {
        close_block(h);
        if (h->row && h->row_text) h->row_broken = true;
    }
    if (!h->open) {
        Kind kind = h->pre ? PRE : h->heading ? HEADING : h->item ? ITEM : h->row && !h->row_broken ? ROW : PARAGRAPH;
        h->block = words_grow(h->block, &h->cap, h->n + 1, sizeof *h->block);
        h->block[h->n++] = (Block){.at = h->n_text, .kind = (uint8_t)kind};
        if (kind == ITEM) put(h, "- ", 2);
        h->item = false;
        h->open = true;
    } else if (h->gap == CELL) put(h, " | ", 3);
    else if (h->gap == LINE) put(h, "\n", 1);
    else if (h->gap == SPACE) put(h, " ", 1);
    if (h->gap) h->in_word = false;
    h->gap = NOTHING;
    h->row_text = h->row;
    h->begins = false;
}

static void widen(Html *h, Gap gap)
{
    if (gap > h->gap) h->gap = gap;
}

static bool is_unspaced(uint32_t c)
{
    return (c >= 0x0E00 && c < 0x0F00) || (c >= 0x1000 && c < 0x10A0) || (c >= 0x1780 && c < 0x1800) ||
           (c >= 0x2E80 && c < 0xA000) || (c >= 0xF900 && c < 0xFB00) || c >= 0x20000;
}

static void on_text(void *user, const xmlChar *bytes, int length)
{
    Html *h = user;
    const char *s = (const char *)bytes;
    if (h->dropped) return;
    for (size_t at = 0, n = (size_t)length, k; at < n; at += k) {
        bool valid, nbsp = n - at > 1 && memcmp(s + at, "\xC2\xA0", 2) == 0;
        k = words_utf8_length(s + at, n - at, &valid);
        if (s[at] == '\r') continue;
        if (nbsp || strchr(" \t\n\f", s[at])) {
            if (!h->pre) widen(h, SPACE);
            else if (s[at] == '\n' ? h->open && h->gap != BREAK : true) bridge(h), put(h, nbsp ? " " : s + at, 1);
            h->in_word = false;
            continue;
        }
        bridge(h);
        Block *b = &h->block[h->n - 1];
        if (valid && k > 1 && is_unspaced(words_utf8_code(s + at, k))) b->unspaced++;
        if (!h->in_word) b->words++, b->links += h->link > 0;
        h->in_word = true;
        put(h, s + at, k);
    }
}

// A sign that links a heading to itself is no text.
static void end_link(Html *h)
{
    static const char *const sign[] = {"\xC2\xB6", "#", "\xC2\xA7", "\xF0\x9F\x94\x97", "\xEF\x83\x81"};
    h->link = 0;
    if (!h->open || h->n_text <= h->link_at || h->n_text - h->link_at > 5) return;
    const char *at = h->text + h->link_at;
    size_t n = h->n_text - h->link_at;
    if (*at == ' ') at++, n--;
    for (size_t i = 0; i < sizeof sign / sizeof *sign; i++)
        if (n == strlen(sign[i]) && memcmp(at, sign[i], n) == 0 && h->before_link.at == h->block[h->n - 1].at) {
            h->n_text = h->link_at;
            h->block[h->n - 1] = h->before_link;
            widen(h, SPACE);
        }
}

static void on_start(void *user, const xmlChar *element, const xmlChar **attribute)
{
    Html *h = user;
    const char *name = (const char *)element;
    int what = what_is(name);
    if (++h->depth > DEPTH_MOST && !h->too_deep) {
        h->too_deep = true;
        xmlStopParser(h->parser);
    }
    if (h->dropped) return;
    bool page = is(name, "html") || is(name, "body");
    if ((what & DROP && !(what & IN_ARTICLE && h->article)) || (!page && is_hidden(attribute))) {
        if (!is(name, "input")) widen(h, what & BLOCK ? BREAK : SPACE);
        h->dropped = h->depth;
        return;
    }
    if (is(name, "tr")) {
        h->gap = BREAK;
        h->row = h->begins = true;
        h->row_text = h->row_broken = false;
    } else if (is(name, "td") || is(name, "th")) {
        h->gap = h->row && h->row_text && !h->row_broken ? CELL : BREAK;
        h->begins = true;
    } else if (is(name, "dd")) { // in one block with its term
        widen(h, LINE);
        h->begins = true;
    } else if (is(name, "br")) {
        if (h->pre) h->gap = NOTHING, on_text(h, BAD_CAST "\n", 1);
        else widen(h, h->gap == LINE ? BREAK : LINE);
    } else if (is(name, "a")) {
        h->link = h->depth;
        h->link_at = h->n_text;
        h->before_link = h->open ? h->block[h->n - 1] : (Block){.at = SIZE_MAX};
    } else if (what & BLOCK && !h->begins) widen(h, BREAK);
    h->article += is(name, "article") || is(name, "main");
    h->heading += (what & H) > 0;
    h->pre += is(name, "pre");
    if (is(name, "li")) h->item = true;
}

static void on_end(void *user, const xmlChar *element)
{
    Html *h = user;
    const char *name = (const char *)element;
    int what = what_is(name), depth = h->depth--;
    if (h->dropped) {
        if (h->dropped == depth) h->dropped = 0;
        return;
    }
    if (h->link == depth) end_link(h);
    if (is(name, "tr")) h->row = false;
    if (is(name, "li")) h->item = false;
    if (is(name, "td") || is(name, "th") || is(name, "dd")) h->begins = false;
    if (is(name, "dt")) widen(h, LINE);
    else if (is(name, "dd") || (what & BLOCK && !h->begins)) widen(h, BREAK);
    h->article -= is(name, "article") || is(name, "main");
    h->heading -= (what & H) > 0;
    h->pre -= is(name, "pre");
}

// ---- which blocks are kept

static double density(const Block *b)
{
    return b->words ? (double)b->links / b->words : 0;
}

// The decision tree of the paper's Algorithm 2.
static bool is_content(const Block *before, const Block *b, const Block *after)
{
    if (density(b) > 0.333333) return false;
    if (density(before) > 0.555556) return b->words > 40 || after->words > 17;
    return b->words > 16 || after->words > 15 || before->words > 4;
}

// A heading is kept with what comes after it, an item with the items beside it.
static void keep_beside(Block *b, const Block *kept)
{
    bool heading = b->kind == HEADING && kept > b, item = b->kind == ITEM && kept->kind == ITEM;
    if (kept->keep && (heading || (item && density(b) <= 0.333333))) b->keep = true;
}

// Five words or more that end like a sentence?
static bool is_sentence(const Html *h, const Block *b)
{
    static const char *const end[] = {".", "!", "?", "\xE3\x80\x82", "\xEF\xBC\x81", "\xEF\xBC\x9F",
                                      "\xE0\xA5\xA4", "\xDB\x94"};
    const char *after = h->text + b->at + b->n;
    size_t n = b->n;
    while (n > 1 && strchr("\"')", after[-1]) && after[-1]) after--, n--;
    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (n > strlen(end[i]) && memcmp(after - strlen(end[i]), end[i], strlen(end[i])) == 0) return b->words >= 5;
    return false;
}

static void judge(Html *h)
{
    const Block none = {0};
    for (size_t i = 0; i < h->n; i++) {
        Block *b = &h->block[i];
        b->keep = b->kind == PRE || b->kind == ROW
                      ? density(b) <= 0.333333
                      : is_content(i ? b - 1 : &none, b, i + 1 < h->n ? b + 1 : &none) ||
                            (density(b) <= 0.333333 && is_sentence(h, b));
    }
    for (size_t i = 1; i + 1 < h->n; i++) {
        Block *b = &h->block[i];
        if (!b->keep && b[-1].keep && b[1].keep && density(b) <= 0.555556) b->keep = true;
    }
    for (size_t i = h->n; i-- > 1;) keep_beside(&h->block[i - 1], &h->block[i]);
    for (size_t i = 1; i < h->n; i++) keep_beside(&h->block[i], &h->block[i - 1]);
}

static size_t write_kept(Html *h)
{
    size_t n = 0;
    const Block *last = NULL;
    for (size_t i = 0; i < h->n; i++) {
        const Block *b = &h->block[i];
        if (!b->keep) continue;
        bool close = last && last->kind == b->kind && (b->kind == ITEM || b->kind == ROW);
        size_t gap = !last ? 0 : close ? 1 : 2;
        h->out = words_grow(h->out, &h->cap_out, n + gap + b->n, 1);
        memcpy(h->out + n, "\n\n", gap);
        memcpy(h->out + n + gap, h->text + b->at, b->n);
        n += gap + b->n;
        last = b;
    }
    return n;
}

// ---- a page

Html *html_new(void)
{
    Html *h = calloc(1, sizeof *h);
    if (!h) die("memory: no room for a page");
    h->sax = (xmlSAXHandler){.startElement = on_start, .endElement = on_end, .characters = on_text,
                             .ignorableWhitespace = on_text};
    return h;
}

const char *html_text(Html *h, const char *page, size_t n, const char **text, size_t *n_text)
{
    *text = h->out;
    *n_text = 0;
    if (n > INT_MAX) return "the page is longer than 2 GiB";
    if (!n) return NULL;
    h->parser = htmlNewParserCtxt();
    if (!h->parser) die("memory: no room for a parser of HTML");
    *h->parser->sax = h->sax;
    h->parser->userData = h;
    h->n_text = h->n = 0;
    h->gap = NOTHING;
    h->depth = h->dropped = h->link = h->article = h->pre = h->heading = 0;
    h->open = h->in_word = h->item = h->too_deep = h->row = h->row_text = h->row_broken = h->begins = false;
    htmlCtxtReadMemory(h->parser, page, (int)n, NULL, "UTF-8",
                       HTML_PARSE_RECOVER | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING | HTML_PARSE_NONET |
                           HTML_PARSE_IGNORE_ENC); // RECOVER: a script ends at its own tag, not at any in its strings
    int error = h->parser->errNo;
    htmlFreeParserCtxt(h->parser);
    xmlResetLastError(); // libxml2 keeps a copy of its message
    if (error == XML_ERR_NO_MEMORY) die("memory: no room to parse a page of %zu bytes", n);
    if (h->too_deep) return "its elements are nested more than 1000 deep";
    close_block(h);
    judge(h);
    *n_text = write_kept(h);
    *text = h->out;
    return NULL;
}

void html_free(Html *h)
{
    if (!h) return;
    free(h->text);
    free(h->out);
    free(h->block);
    free(h);
}
