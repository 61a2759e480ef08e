// page: report.html, a run on one page: from the files of its directory, for a browser, without a network.
//
// The page is one file: its style, its script and its numbers are in it. It is made again as the run goes on, and can
// be made from any run's directory, old, running, killed or resumed.
#ifndef PAGE_H
#define PAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// Writes `path` (NULL: DIR/report.html) from DIR/metrics.jsonl, config.toml and trace.json, as far as they are there;
// in one step, so a browser never loads half a page. False, with errno: it cannot be written.
bool page_write(const char *dir, const char *path);

// ---- what is read (page_data.c)

enum { PAGE_KEY = 48, PAGE_BUCKETS = 1500, PAGE_COLUMNS = 48 };

// The numbers of one key, over steps. Of more than PAGE_BUCKETS of them, neighbours share a bucket, which keeps the
// lowest, the highest and the mean.
typedef struct {
    double step[2], value[2]; // in the order of their steps; NAN: nothing finite
    double from, to;          // its first and its last step
    double sum, count;        // of its finite numbers
} PageBucket;

typedef struct {
    char key[PAGE_KEY];
    bool val;             // of val, end, set and task lines; else of train lines
    bool experts;         // of experts lines: the worst of all layers at each step
    size_t n, stride, in_last; // buckets; numbers in a full one; in the last one
    PageBucket *bucket;
    double sum, count, bad; // of the finite ones; how many; and how many were null
    double by_time;         // sum of each times its line's dt_ms: what a rate was in the mean is by_time / sum of dt_ms
    double last, last_step, low, low_step, high, high_step; // NAN: none
} PageSeries;

// What the table of experts has of a layer's newest line, and the charts of the worst layer.
enum {
    PAGE_LOAD_MAX, PAGE_LOAD_MIN, PAGE_IDLE, PAGE_ENTROPY, PAGE_DROPPED, PAGE_GATE_MAX, PAGE_BALANCE_LOSS, PAGE_Z_LOSS,
    PAGE_BIAS_MIN, PAGE_BIAS_MAX, PAGE_FIGURES
};

// The loads of a layer's experts over steps. When all columns are full, pairs of neighbours are added and the stride
// doubles.
typedef struct {
    char name[PAGE_KEY];
    size_t experts, n, stride, in_last; // columns; lines in a full one; in the last one
    double *load;                       // (PAGE_COLUMNS, experts) slots
    double last[PAGE_FIGURES];          // NAN: not in the line
} PageLayer;

typedef struct {
    char event[16], *text;
    double step, t; // t: Unix time; 0: not known
} PageEvent;

typedef struct {
    char key[PAGE_KEY];
    double n_bytes;
} PageMemory;

typedef struct {
    char *name, *model;   // NULL: not known
    double params, steps, batch_tokens, floor, floor_bpb; // 0: not known
    bool floor_is_bound;
    PageMemory memory[16]; // of the last process
    int n_memory;
    PageSeries *series;
    size_t n_series, cap_series;
    PageLayer *layer;     // with experts
    size_t n_layers, cap_layers;
    double worst[PAGE_FIGURES], worst_step; // of the layers so far of that step
    PageEvent *event;     // all but train, val, experts and sample lines
    size_t n_events, cap_events;
    PageEvent *sample;
    size_t n_samples, cap_samples;
    double lines, bad_lines; // of the file; of them cut or no JSON
    double step, tokens, seconds; // the latest; seconds: of training, 0: not known
    double begin_t, last_t;  // of the first and the last line
    double process_step, process_t; // where the process that wrote the last lines began
    bool ended;
} PageRun;

PageRun page_read(const char *metrics_path);
void page_free(PageRun *run);
// NULL: no line has that key.
const PageSeries *page_find(const PageRun *run, const char *key);
extern const char *const page_figure[PAGE_FIGURES]; // their series: "experts.load_max"

// ---- parts of the page

// Text into HTML: & < > " ' escaped, ill-formed UTF-8 and control characters replaced.
void page_text(FILE *f, const char *text);
// The same as a string of JSON that may stand inside <script>.
void page_json(FILE *f, const char *text);
extern const char page_style[], page_script[]; // page_style.c

#ifdef __cplusplus
}
#endif
#endif
