// dedup_report: what deduplication found, as tables and as lines of JSON. See dedup.h.
//
// Three questions, three tables. How much went, and at which stage? What can the bands find at all: the S-curve, with
// the two errors that the choice of bands made least? And where do the compared pairs lie: a heap just below the
// threshold says that the threshold cuts through something, and the examples say through what.
//
// The invariant: the texts printed here are a function of the result, and seconds are on lines of their own, so two
// reports may be compared by line.
//
// Rejected: a report of all pairs (as long as the square of a cluster); members of a cluster in memory (a cluster
// may be the whole corpus), which is why they are sorted by what is kept and written as they come.
#include "data/prep/dedup.h"

#include "base/check.h"
#include "data/prep/extsort.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static MinHashBands bands_of(const DedupOptions *o)
{
    return o->bands.bands ? o->bands : minhash_bands(o->n_perm, o->threshold);
}

void dedup_print_curve(const DedupOptions *o, FILE *file)
{
    MinHashBands b = bands_of(o);
    fprintf(file, "threshold %g: %zu bands of %zu rows, %zu of %zu permutations\n", o->threshold, b.bands, b.rows,
            b.bands * b.rows, o->n_perm);
    fprintf(file, "area of false candidates %.4f, of missed pairs %.4f\n\n",
            minhash_false_positive_area(b, o->threshold), minhash_false_negative_area(b, o->threshold));
    fputs("Jaccard    candidate with probability 1 - (1 - s^rows)^bands\n", file);
    for (int i = 10; i <= 20; i++) {
        double s = i / 20.0, p = minhash_curve(b, s);
        char bar[41] = "";
        memset(bar, '#', (size_t)(40 * p + 0.5));
        fprintf(file, "%7.2f    %8.4f %s\n", s, p, bar);
    }
}

static void print_stages(const DedupResult *r, FILE *file)
{
    size_t exact = r->n_docs - r->n_unique, near = r->n_unique - r->n_kept;
    fprintf(file, "%-12s %12s %12s %12s\n", "stage", "in", "duplicates", "out");
    fprintf(file, "%-12s %12zu %12zu %12zu\n", "exact", r->n_docs, exact, r->n_unique);
    if (!r->options.exact_only) fprintf(file, "%-12s %12zu %12zu %12zu\n", "near", r->n_unique, near, r->n_kept);
    fprintf(file, "%" PRIu64 " bytes in, %zu documents without a word\n", r->n_bytes, r->n_empty);
}

static void print_pairs(const DedupResult *r, FILE *file)
{
    fprintf(file,
            "\n%" PRIu64 " buckets of two or more documents, the largest of %" PRIu64 "; %" PRIu64
            " candidate pairs\n",
            r->n_buckets, r->largest_bucket, r->n_candidates);
    if (r->n_left_out)
        fprintf(file, "%" PRIu64 " pairs of large buckets are joined over their neighbours or not at all\n",
                r->n_left_out);
    if (!r->options.verify) {
        fputs("not verified: every candidate counts as a duplicate\n", file);
        return;
    }
    fprintf(file, "%" PRIu64 " compared (the others were joined already), %" PRIu64 " at %g or above\n", r->n_compared,
            r->n_similar, r->options.threshold);
    if (r->n_compared) fprintf(file, "\n%-14s %12s  %s\n", "Jaccard", "pairs", "for example");
    for (int i = 0; i <= DEDUP_BINS; i++) {
        if (!r->bin[i]) continue;
        char range[32];
        snprintf(range, sizeof range, i == DEDUP_BINS ? "%.2f" : "%.2f to %.2f", i / (double)DEDUP_BINS,
                 (i + 1) / (double)DEDUP_BINS);
        fprintf(file, "%-14s %12" PRIu64, range, r->bin[i]);
        for (size_t k = 0; k < DEDUP_EXAMPLES && k < r->bin[i]; k++)
            fprintf(file, "%s %" PRIu32 " and %" PRIu32 " (%.3f)", k ? "," : " ", r->example[i][k].a,
                    r->example[i][k].b, r->example[i][k].jaccard);
        fputc('\n', file);
    }
}

static void print_clusters(const DedupResult *r, FILE *file)
{
    fprintf(file, "\n%-22s %12s\n", "documents in a cluster", "clusters");
    for (int k = 0; k < DEDUP_SIZES; k++) {
        char range[48];
        if (!r->cluster[k]) continue;
        if (k) snprintf(range, sizeof range, "%" PRIu64 " to %" PRIu64, UINT64_C(1) << k, (UINT64_C(2) << k) - 1);
        else snprintf(range, sizeof range, "1");
        fprintf(file, "%-22s %12" PRIu64 "\n", range, r->cluster[k]);
    }
}

void dedup_print(const DedupResult *r, FILE *file)
{
    print_stages(r, file);
    if (!r->options.exact_only) {
        fputc('\n', file);
        dedup_print_curve(&r->options, file);
        print_pairs(r, file);
    }
    print_clusters(r, file);
}

void dedup_write_clusters(const DedupResult *r, FILE *file)
{
    Extsort *s = extsort_open(r->options.folder, 2, r->options.memory_bytes);
    for (size_t i = 0; i < r->n_docs; i++)
        if (r->keep[i] != i) extsort_add(s, (uint64_t[]){r->keep[i], i});
    extsort_finish(s);
    uint64_t now[2], last = UINT64_MAX;
    while (extsort_next(s, now)) {
        if (now[0] == last) fprintf(file, ",%" PRIu64, now[1]);
        else fprintf(file, "%s{\"keep\":%" PRIu64 ",\"remove\":[%" PRIu64, last == UINT64_MAX ? "" : "]}\n", now[0],
                     now[1]);
        last = now[0];
    }
    if (last != UINT64_MAX) fputs("]}\n", file);
    extsort_close(s);
    if (fflush(file) || ferror(file)) die("dedup: cannot write the clusters: %s (is the disk full?)", strerror(errno));
}
