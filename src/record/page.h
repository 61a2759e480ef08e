// page: report.html, a run on one page: from the files of its directory, for a browser, without a network.
//
// The page is report.html of this folder, style and script and all, with the run's own lines in it as JSON. It is made
// again as the run goes on, and can be made from any run's directory, old, running, killed or resumed.
#ifndef PAGE_H
#define PAGE_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

// Of a long run's train lines (and val lines) the page has PAGE_GROUPS groups of successive ones: see page.c.
enum { PAGE_GROUPS = 800 };

// Writes `path` (NULL: DIR/report.html) from DIR/metrics.jsonl, config.toml and trace.json, as far as they are there;
// in one step, so a browser never loads half a page. False, with errno: it cannot be written.
bool page_write(const char *dir, const char *path);

#ifdef __cplusplus
}
#endif
#endif
