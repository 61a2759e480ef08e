// dedup: which documents of a corpus say the same, exactly or nearly.
//
// Two stages. Exact: documents with the same normalized text (shingle.h). Near: among what is left, pairs that share a
// band of their MinHash signatures (minhash.h) are candidates, candidates are compared by the exact Jaccard similarity
// of their sets of n-grams, and those at or above the threshold are joined. A cluster is a set of documents joined
// directly or through others; the one with the smallest number is kept.
#ifndef DEDUP_H
#define DEDUP_H
#include "comm/comm.h"
#include "data/prep/minhash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// ---- where documents come from

typedef struct {
    char *bytes;
    size_t n_bytes, cap;
} DedupText; // starts as {0}

// Documents 0 .. n_docs - 1, each of which is read several times, in any order and from several threads at once.
typedef struct {
    size_t n_docs; // below 2^32
    // Puts document i into text, dedup_text_room first. False when it cannot be read: then `fail`, which must end the
    // program and say what is wrong, is called for the first document for which that happened.
    bool (*read)(void *arg, size_t i, DedupText *text);
    void (*fail)(void *arg, size_t i);
    void *arg;
} DedupSource;

// Room for so many bytes; what was in it is lost. Dies when there is none.
void dedup_text_room(DedupText *text, size_t n_bytes);

// ---- finding duplicates

typedef struct {
    size_t ngram;        // words of an n-gram, 1 or more
    size_t n_perm;       // permutations, at most MINHASH_MAX
    double threshold;    // Jaccard similarity from which on documents are duplicates, in (0, 1]
    MinHashBands bands;  // {0, 0}: minhash_bands(n_perm, threshold)
    bool exact_only;     // leave the second stage out
    bool verify;         // false: every candidate counts as a duplicate
    uint64_t seed;       // of the permutations
    int threads;         // 0: as many as OpenMP would take
    size_t memory_bytes; // see dedup_run
    const char *folder;  // for temporary files; NULL: $TMPDIR, else /tmp
    Comm *world;         // ranks that share the work; NULL: this process alone
} DedupOptions;

// 13-grams, 128 permutations, threshold 0.8, verified, 256 MiB.
DedupOptions dedup_defaults(void);

enum { DEDUP_BINS = 20, DEDUP_EXAMPLES = 2, DEDUP_SIZES = 32 };

typedef struct {
    uint32_t a, b; // a < b
    double jaccard;
} DedupPair;

typedef struct {
    size_t n_docs;
    uint32_t *keep; // (n_docs) the smallest document of i's cluster; i itself where i is kept
    DedupOptions options; // with the bands that were used
    uint64_t n_bytes;     // of all documents
    size_t n_empty;       // documents without a word: all but the first are exact duplicates
    size_t n_unique;      // left by the exact stage
    size_t n_kept;        // left by both
    uint64_t n_buckets, largest_bucket; // of two or more documents with the same band; the documents in the largest
    uint64_t n_candidates;              // different pairs
    uint64_t n_left_out;                // pairs of large buckets that were not made candidates (dedup.c)
    uint64_t n_compared, n_similar;     // the rest was known to be joined already
    uint64_t bin[DEDUP_BINS + 1];       // compared pairs by Jaccard, [0, 0.05), ..., [0.95, 1), 1
    DedupPair example[DEDUP_BINS + 1][DEDUP_EXAMPLES]; // the first ones of each
    uint64_t cluster[DEDUP_SIZES];                     // clusters of 2^k to 2^(k+1) - 1 documents
    uint64_t spilled_bytes;                            // written to temporary files
    double exact_seconds, bands_seconds, verify_seconds;
} DedupResult;

// Apart from seconds and spilled_bytes, the result is a function of the documents, ngram, n_perm, threshold, bands,
// verify and seed, and not of memory_bytes, threads or ranks. memory_bytes bounds what a rank holds for the corpus
// (4 bytes a document, and the records being sorted); in addition each thread holds two documents and their n-grams. If
// memory_bytes is too small, it dies and names the least that is enough. With options.world it is collective, the
// source has the same documents on all ranks, and so has the result.
DedupResult dedup_run(const DedupSource *source, DedupOptions options);
void dedup_free(DedupResult *result);

// ---- reports

// Documents in and out of each stage, the S-curve, compared pairs by similarity, sizes of clusters.
void dedup_print(const DedupResult *result, FILE *file);
// Bands, rows, errors and the S-curve alone.
void dedup_print_curve(const DedupOptions *options, FILE *file);
// One JSON object a line and cluster, ascending: {"keep":3,"remove":[7,9]}. Needs options.memory_bytes again.
void dedup_write_clusters(const DedupResult *result, FILE *file);

#ifdef __cplusplus
}
#endif
#endif
