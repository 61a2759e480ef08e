// contamination: n-grams of an evaluation set, looked up for every place of a corpus. See contamination.h.
//
// All n-grams of the evaluation set go into a hash table; then each document's n-grams are looked up. A document with
// hits is a candidate for removal, and the table remembers which n-grams were found, so that for each example
//
//     share = different n-grams found / different n-grams of the example
//
// is known: comparing the evaluation on examples of share 0 with that on all examples shows the effect of
// contamination.
//
// n = 13 is GPT-3's choice (arXiv 2005.14165, appendix C): long enough that common phrases do not match. They took
// shorter n-grams for evaluation sets with short examples (8 at least). Here an example of fewer than n words is
// counted as one that cannot be looked for, so that nobody takes it for clean: run again with a smaller n.
//
// The invariant: nothing that is reported depends on the order in which documents are read. A gram belongs to the first
// example that has it, and a "found" flag is set and never cleared.
//
// Rejected: a Bloom filter (the evaluation set is small; a false hit would remove a document without reason), and
// removing only the passage with some words around it, as GPT-3 did (the rest is a text with a gap).
#include "data/prep/contamination.h"

#include "base/check.h"
#include "base/words.h"
#include "data/prep/exchange.h"
#include "data/prep/shingle.h"

#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>

enum { CHUNK = 256 };

typedef struct {
    uint64_t gram; // 0: free (a gram with the hash 0 is stored as 1)
    uint32_t example;
    uint32_t found;
} Slot;

typedef struct {
    Slot *slot;
    size_t n, cap; // cap: a power of two
} Table;

typedef struct {
    DedupText text;
    Shingles shingles;
} Worker;

// Where a gram is, or the free slot where it would be.
static Slot *lookup(const Table *table, uint64_t gram)
{
    gram += !gram;
    size_t at = gram & (table->cap - 1);
    while (table->slot[at].gram && table->slot[at].gram != gram) at = (at + 1) & (table->cap - 1);
    return &table->slot[at];
}

static void insert(Table *table, uint64_t gram, uint32_t example)
{
    if (2 * table->n >= table->cap) {
        Table larger = {.cap = 2 * table->cap, .n = table->n};
        larger.slot = exchange_room(larger.cap, sizeof *larger.slot);
        for (size_t i = 0; i < table->cap; i++)
            if (table->slot[i].gram) *lookup(&larger, table->slot[i].gram) = table->slot[i];
        free(table->slot);
        *table = larger;
    }
    Slot *slot = lookup(table, gram);
    if (slot->gram) return;
    *slot = (Slot){gram + !gram, example, 0};
    table->n++;
}

static void read_example(const DedupSource *source, size_t i, Worker *w, size_t ngram)
{
    if (!source->read(source->arg, i, &w->text)) source->fail(source->arg, i);
    shingle_make(&w->shingles, w->text.bytes, w->text.n_bytes, ngram);
}

static Table read_examples(Contamination *c, const DedupSource *source, size_t ngram, Worker *w)
{
    Table table = {.slot = exchange_room(1024, sizeof(Slot)), .cap = 1024};
    if (source->n_docs >= UINT32_MAX) die("contamination: %zu examples: more than 2^32 - 2", source->n_docs);
    c->example_grams = exchange_room(source->n_docs, sizeof *c->example_grams);
    c->example_found = exchange_room(source->n_docs, sizeof *c->example_found);
    for (size_t i = 0; i < source->n_docs; i++) {
        read_example(source, i, w, ngram);
        if (w->shingles.n_words < ngram) {
            c->n_short++;
            continue;
        }
        c->example_grams[i] = (uint32_t)w->shingles.n_grams;
        for (size_t k = 0; k < w->shingles.n_grams; k++) insert(&table, w->shingles.gram[k], (uint32_t)i);
    }
    return table;
}

static ContaminationHit search(const Table *table, const Shingles *s, size_t doc, size_t ngram)
{
    ContaminationHit hit = {.doc = doc, .n_grams = s->n_words < ngram ? 0 : s->n_grams};
    for (size_t k = 0; k < hit.n_grams; k++) {
        Slot *slot = lookup(table, s->gram[k]);
        if (!slot->gram) continue;
        if (!hit.n_found++) hit.example = slot->example, hit.word = k;
        __atomic_store_n(&slot->found, 1, __ATOMIC_RELAXED);
    }
    return hit;
}

static void search_corpus(Contamination *c, const DedupSource *corpus, const Table *table, ContaminationOptions o,
                          Worker *worker, int n_threads)
{
    size_t cap = 0, number[CHUNK];
    for (size_t next = 0, n; next < corpus->n_docs;) {
        for (n = 0; next < corpus->n_docs && n < CHUNK; next++)
            if (exchange_owns(o.world, next)) number[n++] = next;
        ContaminationHit hit[CHUNK];
        bool failed[CHUNK];
#pragma omp parallel for schedule(dynamic, 8) num_threads(n_threads)
        for (size_t i = 0; i < n; i++) {
            Worker *w = &worker[omp_get_thread_num()];
            failed[i] = !corpus->read(corpus->arg, number[i], &w->text);
            if (failed[i]) continue;
            shingle_normalize(&w->shingles, w->text.bytes, w->text.n_bytes);
            shingle_hash(&w->shingles, o.ngram);
            hit[i] = search(table, &w->shingles, number[i], o.ngram);
        }
        for (size_t i = 0; i < n; i++) {
            if (failed[i]) corpus->fail(corpus->arg, number[i]);
            check(!failed[i]);
            if (!hit[i].n_found || hit[i].n_found < o.min_grams) continue;
            c->hit = words_grow(c->hit, &cap, c->n_hits + 1, sizeof *c->hit);
            c->hit[c->n_hits++] = hit[i];
        }
    }
}

static int by_document(const void *a, const void *b)
{
    const ContaminationHit *x = a, *y = b;
    return x->doc < y->doc ? -1 : x->doc > y->doc;
}

// What each rank has found becomes known to all. The table has the same slots on all ranks, because all have read the
// same examples.
static void join_ranks(Contamination *c, Table *table, Comm *world)
{
    enum { PIECE = 4096 };
    uint64_t found[PIECE];
    ContaminationHit *all = exchange_gather(world, c->hit, c->n_hits, sizeof *all, &c->n_hits);
    qsort(all, c->n_hits, sizeof *all, by_document);
    free(c->hit);
    c->hit = all;
    for (size_t at = 0; at < table->cap; at += PIECE) {
        size_t n = table->cap - at < PIECE ? table->cap - at : PIECE;
        for (size_t i = 0; i < n; i++) found[i] = table->slot[at + i].found;
        exchange_max(world, found, n);
        for (size_t i = 0; i < n; i++) table->slot[at + i].found = (uint32_t)found[i];
    }
}

Contamination contamination_find(const DedupSource *corpus, const DedupSource *evaluation, ContaminationOptions o)
{
    check(o.ngram > 0);
    Contamination c = {.n_docs = corpus->n_docs, .n_examples = evaluation->n_docs};
    int n_threads = o.threads > 0 ? o.threads : omp_get_max_threads();
    Worker *worker = exchange_room((size_t)n_threads, sizeof *worker);
    Table table = read_examples(&c, evaluation, o.ngram, worker);
    if (table.n) search_corpus(&c, corpus, &table, o, worker, n_threads);
    if (exchange_size(o.world) > 1) join_ranks(&c, &table, o.world);
    for (size_t i = 0; i < evaluation->n_docs; i++) {
        if (!c.example_grams[i]) continue;
        read_example(evaluation, i, worker, o.ngram);
        for (size_t k = 0; k < worker->shingles.n_grams; k++)
            c.example_found[i] += lookup(&table, worker->shingles.gram[k])->found;
    }
    free(table.slot);
    for (int t = 0; t < n_threads; t++) {
        free(worker[t].text.bytes);
        shingle_free(&worker[t].shingles);
    }
    free(worker);
    return c;
}

void contamination_print(const Contamination *c, ContaminationOptions o, FILE *file)
{
    size_t some = 0, most = 0, all = 0;
    for (size_t i = 0; i < c->n_examples; i++) {
        some += c->example_found[i] > 0;
        most += c->example_found[i] > 0 && 2 * (uint64_t)c->example_found[i] >= c->example_grams[i];
        all += c->example_found[i] > 0 && c->example_found[i] == c->example_grams[i];
    }
    fprintf(file, "%zu of %zu documents hold %zu or more %zu-grams of the evaluation set\n", c->n_hits, c->n_docs,
            o.min_grams > 1 ? o.min_grams : (size_t)1, o.ngram);
    fprintf(file, "%zu of %zu examples: some of their %zu-grams stand in the corpus; of %zu half or more, of %zu all\n",
            some, c->n_examples, o.ngram, most, all);
    if (c->n_short)
        fprintf(file, "%zu examples have fewer than %zu words and were not looked for (try a smaller n-gram)\n",
                c->n_short, o.ngram);
    for (size_t i = 0; i < c->n_hits && i < 10; i++)
        fprintf(file, "%sdocument %zu: %zu of %zu %zu-grams, the first at word %zu, of example %zu\n",
                i ? "" : "for example:\n", c->hit[i].doc, c->hit[i].n_found, c->hit[i].n_grams, o.ngram,
                c->hit[i].word, c->hit[i].example);
}

void contamination_free(Contamination *c)
{
    free(c->hit);
    free(c->example_grams);
    free(c->example_found);
    *c = (Contamination){0};
}
