// dedup: exact and near duplicates, in bounded memory. See dedup.h.
//
// Everything is done by sorting records, because sorting works on disk as well as in memory (extsort.h):
//
//     exact     (128-bit hash of the normalized text, document)      neighbours with one hash are one document
//     bands     (key of a band, document), b a document              neighbours with one key are a bucket
//     pairs     (document, document), from buckets                   equal pairs from several bands become neighbours
//     compare   the pairs in this order, each not yet joined         union-find
//
// The invariant: the clusters are the connected components of a graph that is a function of the corpus and the options.
// The order of sorting is total, buckets are read in order, and which pairs are left out depends on the bucket alone.
// Joining in another order, or skipping pairs that are already connected, changes no component. So neither memory nor
// threads affect the result. Batches of pairs have a fixed size, so that even the number of comparisons does not depend
// on threads.
//
// Rejected: a hash table from keys to documents (it grows with the corpus, and on disk it needs random access);
// comparing signatures instead of texts (at 128 permutations an estimate of 0.8 has a standard deviation of
// 0.035); comparing with kept documents only (then the result depends on the order of comparisons).
#include "data/prep/dedup.h"

#include "base/check.h"
#include "base/clock.h"
#include "data/prep/exchange.h"
#include "data/prep/extsort.h"
#include "data/prep/shingle.h"

#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { WINDOW = 32, CHUNK = 256, BATCH = 1024 };

typedef struct {
    DedupText text;
    Shingles one, two;
    uint32_t signature[MINHASH_MAX];
    size_t in_one; // the document whose set is in `one`; SIZE_MAX: none
} Worker;

typedef struct {
    const DedupSource *source;
    DedupResult *r;
    int n_threads;
    Worker *worker; // (n_threads)
    uint32_t *parent;
    size_t sort_bytes, exchange_bytes; // memory for sorting, and for records on their way to other ranks
    Comm *world;
} Dedup;

void dedup_text_room(DedupText *text, size_t n_bytes)
{
    if (text->bytes && n_bytes <= text->cap) return;
    text->cap = n_bytes + n_bytes / 4 + 256;
    free(text->bytes);
    text->bytes = malloc(text->cap);
    if (!text->bytes) die("dedup: no memory for a document of %zu bytes", n_bytes);
}

DedupOptions dedup_defaults(void)
{
    return (DedupOptions){.ngram = 13, .n_perm = 128, .threshold = 0.8, .verify = true, .memory_bytes = 256 << 20};
}

// ---- union-find
//
// Union-find makes the smaller root the parent, so a cluster's root is the document that is kept, without a second
// pass; path halving alone keeps the cost at O(log n) per operation.

static uint32_t find(uint32_t *parent, uint32_t i)
{
    for (; parent[i] != i; i = parent[i]) parent[i] = parent[parent[i]];
    return i;
}

static void join(uint32_t *parent, uint32_t i, uint32_t j)
{
    i = find(parent, i);
    j = find(parent, j);
    if (i < j) parent[j] = i;
    else parent[i] = j;
}

// ---- ranks
//
// Ranks (exchange.h). Documents are dealt in stripes: a rank reads its own, hashes them and makes their keys. A record
// goes to the rank that owns its key: hash modulo ranks for exact duplicates and bands, so that equal keys meet, and
// the range of the first document for pairs, so that the ranks' sorted pairs, one rank after another, are all pairs in
// order. The first stage and the last have `parent` on every rank: 4 bytes a document. Pairs are taken in batches in
// their order over all ranks: a batch goes from its owner to all, each compares its part, all join all. So the batches,
// and with them the pairs that need no comparison any more, are the same for any number of ranks.

// The next documents of this rank, CHUNK at most, into number; `unique`: those that are no exact duplicate of another.
static size_t own_chunk(const Dedup *d, size_t *next, bool unique, uint32_t number[CHUNK])
{
    size_t n = 0;
    for (; *next < d->source->n_docs && n < CHUNK; ++*next)
        if (exchange_owns(d->world, *next) && (!unique || d->parent[*next] == *next)) number[n++] = (uint32_t)*next;
    return n;
}

// Each parent that one rank has found becomes known to all. A document has its own number on the ranks that found none,
// so distances from it, of which at most one is not 0, can be added.
static void share_parents(Dedup *d)
{
    enum { PIECE = 4096 };
    uint64_t distance[PIECE];
    for (size_t at = 0; d->world && at < d->source->n_docs; at += PIECE) {
        size_t n = d->source->n_docs - at < PIECE ? d->source->n_docs - at : PIECE;
        for (size_t i = 0; i < n; i++) distance[i] = at + i - d->parent[at + i];
        exchange_sum(d->world, distance, n);
        for (size_t i = 0; i < n; i++) d->parent[at + i] = (uint32_t)(at + i - distance[i]);
    }
}

// ---- exact

typedef struct {
    XXH128_hash_t hash;
    size_t n_bytes, n_words;
    bool failed;
} ExactDoc;

static void exact_chunk(Dedup *d, const uint32_t *number, size_t n, ExactDoc *out)
{
#pragma omp parallel for schedule(dynamic, 8) num_threads(d->n_threads)
    for (size_t i = 0; i < n; i++) {
        Worker *w = &d->worker[omp_get_thread_num()];
        out[i].failed = !d->source->read(d->source->arg, number[i], &w->text);
        if (out[i].failed) continue;
        shingle_normalize(&w->one, w->text.bytes, w->text.n_bytes);
        out[i].hash = XXH3_128bits(w->one.text, w->one.n_text);
        out[i].n_bytes = w->text.n_bytes;
        out[i].n_words = w->one.n_words;
    }
}

static void find_exact(Dedup *d)
{
    uint64_t now[3], first[3] = {0}, sum[3] = {0}; // sum: bytes, empty ones, unique ones
    uint32_t number[CHUNK];
    Extsort *s = extsort_open(d->r->options.folder, 3, d->sort_bytes);
    Exchange *to = exchange_open(d->world, s, 3, d->exchange_bytes);
    ExactDoc *doc = exchange_room(CHUNK, sizeof *doc);
    for (size_t next = 0, n; (n = own_chunk(d, &next, false, number));) {
        exact_chunk(d, number, n, doc);
        for (size_t i = 0; i < n; i++) {
            if (doc[i].failed) d->source->fail(d->source->arg, number[i]);
            check(!doc[i].failed);
            sum[0] += doc[i].n_bytes;
            sum[1] += doc[i].n_words == 0;
            exchange_add(to, (int)(doc[i].hash.high64 % (uint64_t)exchange_size(d->world)),
                         (uint64_t[]){doc[i].hash.high64, doc[i].hash.low64, number[i]});
        }
    }
    free(doc);
    exchange_close(to);
    extsort_finish(s);
    for (bool any = false; extsort_next(s, now); any = true) {
        if (any && now[0] == first[0] && now[1] == first[1]) {
            d->parent[now[2]] = (uint32_t)first[2]; // sorted by document: the first one is the smallest
            continue;
        }
        memcpy(first, now, sizeof now);
        sum[2]++;
    }
    d->r->spilled_bytes += extsort_spilled_bytes(s);
    extsort_close(s);
    share_parents(d);
    exchange_sum(d->world, sum, 3);
    d->r->n_bytes = sum[0], d->r->n_empty = sum[1], d->r->n_unique = sum[2];
}

// ---- bands and buckets
//
// A bucket of m documents has m (m - 1) / 2 pairs, and a corpus may have one bucket with everything in it: boilerplate,
// or an attack. So a document is paired with the first document of its bucket and with the WINDOW documents before it.
// These are all pairs up to WINDOW + 2 documents, and linearly many beyond. Where a bucket is large because its
// documents are alike, the chain connects them all. Pairs left out are counted and reported.

// The keys of so many documents; has[i] is false where a document has none.
static void keys_chunk(Dedup *d, const MinHash *m, const uint32_t *doc, size_t n, uint64_t *key, bool *has)
{
    const DedupOptions *o = &d->r->options;
    bool failed[CHUNK] = {false};
#pragma omp parallel for schedule(dynamic, 8) num_threads(d->n_threads)
    for (size_t i = 0; i < n; i++) {
        Worker *w = &d->worker[omp_get_thread_num()];
        failed[i] = !d->source->read(d->source->arg, doc[i], &w->text);
        if (failed[i]) continue;
        shingle_normalize(&w->one, w->text.bytes, w->text.n_bytes);
        shingle_hash(&w->one, o->ngram);
        minhash_signature(m, w->one.gram, w->one.n_grams, w->signature);
        minhash_keys(o->bands, w->signature, key + i * o->bands.bands);
        has[i] = w->one.n_grams > 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (failed[i]) d->source->fail(d->source->arg, doc[i]);
        check(!failed[i]);
    }
}

static Extsort *sort_bands(Dedup *d)
{
    const DedupOptions *o = &d->r->options;
    size_t bands = o->bands.bands;
    MinHash m = minhash_make(bands * o->bands.rows, o->seed);
    Extsort *s = extsort_open(o->folder, 2, d->sort_bytes / 2);
    Exchange *to = exchange_open(d->world, s, 2, d->exchange_bytes);
    uint64_t *key = exchange_room(CHUNK * bands, sizeof *key);
    uint32_t doc[CHUNK];
    bool has[CHUNK];
    for (size_t next = 0, n; (n = own_chunk(d, &next, true, doc));) {
        keys_chunk(d, &m, doc, n, key, has);
        for (size_t i = 0; i < n; i++)
            for (const uint64_t *of = key + i * bands; has[i] && of < key + (i + 1) * bands; of++)
                exchange_add(to, (int)(*of % (uint64_t)exchange_size(d->world)), (uint64_t[]){*of, doc[i]});
    }
    free(key);
    exchange_close(to);
    extsort_finish(s);
    return s;
}

static void count_bucket(DedupResult *r, uint64_t size)
{
    r->n_buckets += size > 1;
    if (size > 1 && size > r->largest_bucket) r->largest_bucket = size;
}

static void add_pair(const Dedup *d, Exchange *to, uint64_t a, uint64_t b)
{
    exchange_add(to, (int)(a * (uint64_t)exchange_size(d->world) / d->source->n_docs), (uint64_t[]){a, b});
}

// Pairs of documents that share a band: with the first of the bucket, and with the WINDOW before.
static Extsort *sort_pairs(Dedup *d, Extsort *bands)
{
    Extsort *pairs = extsort_open(d->r->options.folder, 2, d->sort_bytes / 2);
    Exchange *to = exchange_open(d->world, pairs, 2, d->exchange_bytes);
    uint64_t now[2], key = 0, size = 0, first = 0, recent[WINDOW];
    while (extsort_next(bands, now)) {
        if (!size || now[0] != key) {
            count_bucket(d->r, size);
            key = now[0], first = now[1], size = 0;
        }
        uint64_t n = size < WINDOW ? size : WINDOW;
        for (uint64_t i = size - n; i < size; i++) add_pair(d, to, recent[i % WINDOW], now[1]);
        if (size > WINDOW) {
            add_pair(d, to, first, now[1]);
            d->r->n_left_out += size - WINDOW - 1;
        }
        recent[size++ % WINDOW] = now[1];
    }
    count_bucket(d->r, size);
    d->r->spilled_bytes += extsort_spilled_bytes(bands);
    extsort_close(bands);
    exchange_close(to);
    extsort_finish(pairs);
    exchange_sum(d->world, &d->r->n_buckets, 1);
    exchange_max(d->world, &d->r->largest_bucket, 1);
    exchange_sum(d->world, &d->r->n_left_out, 1);
    return pairs;
}

// ---- comparing

static bool load(Dedup *d, size_t doc, DedupText *text, Shingles *s)
{
    if (!d->source->read(d->source->arg, doc, text)) return false;
    shingle_make(s, text->bytes, text->n_bytes, d->r->options.ngram);
    return true;
}

// Neighbours in a batch share their first document, which a thread therefore keeps.
static void compare_batch(Dedup *d, DedupPair *pair, size_t n)
{
#pragma omp parallel for schedule(dynamic, 4) num_threads(d->n_threads)
    for (size_t i = 0; i < n; i++) {
        Worker *w = &d->worker[omp_get_thread_num()];
        pair[i].jaccard = -1; // a cannot be read
        if (w->in_one != pair[i].a) {
            w->in_one = SIZE_MAX;
            if (!load(d, pair[i].a, &w->text, &w->one)) continue;
            w->in_one = pair[i].a;
        }
        pair[i].jaccard = -2; // b cannot be read
        if (!load(d, pair[i].b, &w->text, &w->two)) continue;
        pair[i].jaccard = shingle_jaccard(w->one.gram, w->one.n_grams, w->two.gram, w->two.n_grams);
    }
}

static void record(DedupResult *r, DedupPair pair)
{
    int bin = (int)(pair.jaccard * DEDUP_BINS);
    if (r->bin[bin] < DEDUP_EXAMPLES) r->example[bin][r->bin[bin]] = pair;
    r->bin[bin]++;
    r->n_compared++;
}

// Each rank compares its part of the batch, and all learn of all.
static void share_batch(Dedup *d, DedupPair *pair, size_t n)
{
    size_t N = (size_t)exchange_size(d->world), r = (size_t)exchange_rank(d->world), n_all;
    size_t begin = n * r / N, end = n * (r + 1) / N;
    compare_batch(d, pair + begin, end - begin);
    for (size_t i = begin; i < end; i++) {
        if (pair[i].jaccard < 0) d->source->fail(d->source->arg, pair[i].jaccard == -1 ? pair[i].a : pair[i].b);
        check(pair[i].jaccard >= 0);
    }
    DedupPair *all = exchange_gather(d->world, pair + begin, end - begin, sizeof *pair, &n_all);
    check(n_all == n);
    memcpy(pair, all, n * sizeof *pair);
    free(all);
}

static void join_batch(Dedup *d, DedupPair *pair, size_t n)
{
    if (d->r->options.verify) share_batch(d, pair, n);
    for (size_t i = 0; i < n; i++) {
        if (d->r->options.verify) {
            record(d->r, pair[i]);
            if (!(pair[i].jaccard >= d->r->options.threshold)) continue;
        }
        d->r->n_similar++;
        join(d->parent, pair[i].a, pair[i].b);
    }
}

typedef struct {
    DedupPair pair[BATCH];
    size_t n;
    bool over; // its owner has no more
} Batch;

// Fills the batch with this rank's next pairs. last: the one before.
static void fill_batch(Dedup *d, Extsort *pairs, uint64_t last[2], Batch *batch)
{
    uint64_t now[2];
    while (batch->n < BATCH) {
        batch->over = !extsort_next(pairs, now);
        if (batch->over) return;
        if (now[0] == last[0] && now[1] == last[1]) continue; // the same pair, from another band
        memcpy(last, now, sizeof now);
        d->r->n_candidates++;
        uint32_t a = (uint32_t)now[0], b = (uint32_t)now[1];
        if (find(d->parent, a) != find(d->parent, b)) batch->pair[batch->n++] = (DedupPair){a, b, 0};
    }
}

static void join_pairs(Dedup *d, Extsort *pairs)
{
    int N = exchange_size(d->world), owner = 0;
    Batch *batch = exchange_room(1, sizeof *batch);
    uint64_t last[2] = {UINT64_MAX, UINT64_MAX};
    for (int t = 0; t < d->n_threads; t++) d->worker[t].in_one = SIZE_MAX;
    while (owner < N) {
        if (exchange_rank(d->world) == owner) fill_batch(d, pairs, last, batch);
        exchange_share(d->world, owner, batch, sizeof *batch);
        owner += batch->over;
        if (batch->n < BATCH && owner < N) continue; // the next owner fills the rest
        join_batch(d, batch->pair, batch->n);
        batch->n = 0;
    }
    free(batch);
    exchange_sum(d->world, &d->r->n_candidates, 1);
    d->r->spilled_bytes += extsort_spilled_bytes(pairs);
    extsort_close(pairs);
}

// ---- all of it

// Every document points at the one that is kept. Clusters are counted by sorting too: no array as long as the corpus.
static void finish(Dedup *d)
{
    size_t n_docs = d->source->n_docs;
    Extsort *s = extsort_open(d->r->options.folder, 1, d->sort_bytes);
    for (size_t i = 0; i < n_docs; i++) {
        d->parent[i] = d->parent[d->parent[i]]; // parents are smaller: done before i
        if (d->parent[i] == i) d->r->n_kept++;
        else extsort_add(s, (uint64_t[]){d->parent[i]});
    }
    extsort_finish(s);
    d->r->keep = d->parent;
    d->r->cluster[0] = d->r->n_kept; // then each cluster of several is moved to where it belongs
    uint64_t now = 0, last = 0, size = 1; // size: of the cluster that is being counted, its kept document included
    for (bool more = true; more; last = now, size++) {
        more = extsort_next(s, &now);
        if (more && (size == 1 || now == last)) continue;
        d->r->cluster[63 - __builtin_clzll(size)]++;
        d->r->cluster[0]--;
        size = 1;
    }
    extsort_close(s);
}

static void open_options(Dedup *d)
{
    DedupOptions *o = &d->r->options;
    if (d->source->n_docs >= UINT32_MAX) die("dedup: %zu documents: more than 2^32 - 2", d->source->n_docs);
    check(o->ngram > 0 && o->n_perm > 0 && o->n_perm <= MINHASH_MAX && o->threshold > 0 && o->threshold <= 1);
    if (!o->bands.bands) o->bands = minhash_bands(o->n_perm, o->threshold);
    if (!o->bands.rows || o->bands.bands * o->bands.rows > o->n_perm)
        die("dedup: %zu bands of %zu rows: they need more than the %zu permutations there are", o->bands.bands,
            o->bands.rows, o->n_perm);
    size_t fixed = d->source->n_docs * sizeof *d->parent + CHUNK * sizeof(ExactDoc) + BATCH * sizeof(DedupPair) +
                   CHUNK * o->bands.bands * sizeof(uint64_t);
    if (o->memory_bytes < fixed + 2 * EXTSORT_MIN_BYTES)
        die("dedup: memory of %zu bytes: %zu documents need at least %zu", o->memory_bytes, d->source->n_docs,
            fixed + 2 * EXTSORT_MIN_BYTES);
    d->sort_bytes = o->memory_bytes - fixed;
    d->exchange_bytes = exchange_size(o->world) > 1 ? (d->sort_bytes - 2 * EXTSORT_MIN_BYTES) / 8 : 0;
    d->sort_bytes -= d->exchange_bytes;
    d->world = o->world;
    d->n_threads = o->threads > 0 ? o->threads : omp_get_max_threads();
}

DedupResult dedup_run(const DedupSource *source, DedupOptions options)
{
    DedupResult r = {.n_docs = source->n_docs, .options = options};
    Dedup d = {.source = source, .r = &r};
    double start = clock_seconds();
    open_options(&d);
    d.worker = exchange_room((size_t)d.n_threads, sizeof *d.worker);
    d.parent = exchange_room(source->n_docs, sizeof *d.parent);
    for (size_t i = 0; i < source->n_docs; i++) d.parent[i] = (uint32_t)i;
    find_exact(&d);
    r.exact_seconds = clock_seconds() - start;
    if (!options.exact_only) {
        Extsort *pairs = sort_pairs(&d, sort_bands(&d));
        r.bands_seconds = clock_seconds() - start - r.exact_seconds;
        join_pairs(&d, pairs);
        r.verify_seconds = clock_seconds() - start - r.exact_seconds - r.bands_seconds;
    }
    finish(&d);
    for (int t = 0; t < d.n_threads; t++) {
        free(d.worker[t].text.bytes);
        shingle_free(&d.worker[t].one);
        shingle_free(&d.worker[t].two);
    }
    free(d.worker);
    return r;
}

void dedup_free(DedupResult *result)
{
    free(result->keep);
    result->keep = NULL;
}

// ---- reports
//
// The reports answer three questions with three tables. How much was removed, and at which stage? What can the bands
// find at all (the S-curve, with the two errors that the choice of bands minimises)? And which similarities do the
// compared pairs have? Many just below the threshold say that it divides a group, and the examples show which. Seconds
// are on lines of their own, so that two reports can be compared line by line. Members of a cluster are sorted by the
// document that is kept and written one by one, because a cluster may be the whole corpus.

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
    fprintf(file, "\n%" PRIu64 " buckets of two or more documents, the largest of %" PRIu64 "; %" PRIu64
            " candidate pairs\n", r->n_buckets, r->largest_bucket, r->n_candidates);
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
