// html: the text of a page of HTML, without what stands around it on every page of a site.
#ifndef HTML_H
#define HTML_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Html Html;

Html *html_new(void);
// Takes the text out of a page, n bytes of valid UTF-8. *text has *n_text bytes of UTF-8 until the next call (0 when
// all of the page is menus and the like). Returns NULL, or why there is none.
const char *html_text(Html *h, const char *page, size_t n, const char **text, size_t *n_text);
void html_free(Html *h); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
