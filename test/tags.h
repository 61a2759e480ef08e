// tags: enough of XML and HTML for our files. Tests only.
#ifndef TEST_TAGS_H
#define TEST_TAGS_H
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

// Tags nest; attributes are quoted; < and & stand nowhere else. What is between <style> or <script> and its end is
// skipped: no "</" may be in it. Returns the number of elements.
static inline int check_tags(const char *s)
{
    char open[40][16];
    int depth = 0, elements = 0;
    for (; *s; s++) {
        if (*s == '&')
            assert_true(!strncmp(s, "&amp;", 5) || !strncmp(s, "&lt;", 4) || !strncmp(s, "&gt;", 4) ||
                        !strncmp(s, "&quot;", 6) || !strncmp(s, "&#39;", 5));
        assert_true((unsigned char)*s >= 0x20 || *s == '\n' || *s == '\t');
        if (*s != '<') continue;
        bool closing = s[1] == '/', quoted = false;
        char name[16] = "";
        s += 1 + closing;
        for (int n = 0; isalnum((unsigned char)*s) && n < 15; s++) name[n++] = *s;
        assert_true(name[0]);
        for (; *s && (quoted || *s != '>'); s++) {
            if (*s == '"') quoted = !quoted;
            assert_true(*s != '<');
        }
        assert_true(*s == '>');
        elements++;
        if (closing) {
            assert_true(depth > 0);
            assert_string_equal(open[--depth], name);
        } else if (s[-1] != '/' && strcmp(name, "meta") && strcmp(name, "input")) {
            assert_true(depth < 40);
            strcpy(open[depth++], name);
        }
        if (!closing && (!strcmp(name, "style") || !strcmp(name, "script"))) {
            s = strstr(s, "</") - 1;
            assert_true(!strncmp(s + 3, name, strlen(name)));
        }
    }
    assert_int_equal(depth, 0);
    return elements;
}
#endif
