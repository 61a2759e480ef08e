// sources: the manifest that lists the sources of a mixture, and the format of a file by its name; mixture: which source
// each sample comes from, so that every source has its share at any moment.
#ifndef SOURCES_H
#define SOURCES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    SOURCE_AUTO,   // by name, in any case, .gz and .zst aside: .jsonl, .ndjson, .json are JSONL, .parquet Parquet,
                   // .warc, .wet WARC, all else text (or Parquet or WARC, by the first bytes: corpus_format)
    SOURCE_TEXT,   // a file is one document, or several with separators between them
    SOURCE_JSONL,  // every line an object; one of its fields is the document
    SOURCE_PARQUET, // a table; one of its columns holds the documents
    SOURCE_WARC    // a web archive; its pages are the documents
} SourceFormat;

SourceFormat sources_format(const char *name); // "auto", "text", "jsonl", "parquet", "warc"; dies on any other
// By its name, as SOURCE_AUTO: whether it ends in one of these, in any case, .gz and .zst aside.
bool sources_named(const char *path, const char *endings);
#define sources_is_jsonl(path) sources_named(path, ".jsonl .ndjson .json")
#define sources_is_parquet(path) sources_named(path, ".parquet")
#define sources_is_warc(path) sources_named(path, ".warc .wet")
#define sources_is_table(path) sources_named(path, ".csv .tsv")
#define sources_is_list(path) sources_named(path, ".paths") // a list of files to read (corpus.h)
bool sources_is_packed(const char *path);      // by its name: .gz or .zst

// A source of a mixture: what to read, and its share.
typedef struct {
    char *name, *path; // path: as given; a relative one is prefixed with the manifest's folder
    double weight;     // > 0; shares are weight / sum of weights
    char *separator, *line, *field; // NULL: not set; they live as long as the Sources
    SourceFormat format;
} Source;

typedef struct {
    Source *source; // (n), in the order of the file
    size_t n, cap;
} Sources;

// Reads a manifest (sources.c): sections [source.NAME] with path, and weight [1], format, separator, line,
// field. Dies with FILE:LINE on what it does not know, and on a manifest without a source.
Sources sources_read(const char *path);
// A file that holds sources and other sections: called for each of their keys, in the order of the file, with the line.
typedef void (*SourcesSetting)(void *arg, int line, const char *section, const char *key, const char *value,
                              bool quoted);
Sources sources_read_and(const char *path, SourcesSetting set, void *arg);
// A path of a manifest; a relative one is prefixed with the manifest's folder. free() it.
char *sources_path(const char *manifest, const char *path);
void sources_free(Sources *sources);

// ---- mixture.c
typedef struct {
    size_t n_sources;
    int64_t period;  // D: sample s and s + D have the same source
    uint64_t *part;  // (n_sources) W: a source has W[i] of D samples; its share is W[i] / D
    uint32_t *slot;  // (period) the source of a sample
    uint32_t *rank;  // (period) how many samples of the same source stand before it in the period
} Mixture;

enum { MIXTURE_PERIOD = 1 << 20 }; // the longest

// Shares proportional to weight (n_sources, each above 0 and finite). Shares are exact when the weights are multiples
// of 10^-6 and their period is at most MIXTURE_PERIOD; other shares are rounded to multiples of 1 / MIXTURE_PERIOD.
// Dies when a share would round to 0.
Mixture mixture_make(const double *weight, size_t n_sources);
void mixture_free(Mixture *m);
// The source of sample 0, 1, 2, ... of the run; *index: how many samples of that source come before it. After any
// number n of samples a source has had more than n W / D - 1 and fewer than n W / D + 1 of them.
size_t mixture_source(const Mixture *m, int64_t sample, int64_t *index);

#ifdef __cplusplus
}
#endif
#endif
