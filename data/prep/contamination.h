// contamination: which documents of a corpus hold pieces of an evaluation set.
//
// A piece is an n-gram of words (shingle.h). A document that shares one with an evaluation example contains a part of
// the question; a model trained on the corpus has seen an example many of whose n-grams are in it.
#ifndef CONTAMINATION_H
#define CONTAMINATION_H
#include "data/prep/dedup.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    size_t ngram;     // words of an n-gram
    size_t min_grams; // a document with so many n-grams of the evaluation set is reported
    int threads;      // 0: as many as OpenMP would take
    Comm *world;      // ranks that share the corpus; NULL: this process alone
} ContaminationOptions;

typedef struct {
    size_t doc;              // of the corpus
    size_t n_found, n_grams; // places where an n-gram of the evaluation set stands, of so many in the document
    size_t example;          // the first evaluation example that has the first of them
    size_t word;             // the word of the document where that begins
} ContaminationHit;

typedef struct {
    size_t n_docs, n_examples;
    size_t n_short;        // examples of fewer than ngram words: they are not looked for
    ContaminationHit *hit; // (n_hits), ascending
    size_t n_hits;
    // (n_examples) different n-grams of an example, and how many of them stand anywhere in the corpus
    uint32_t *example_grams, *example_found;
} Contamination;

// The evaluation set is held in memory on every rank, 16 to 32 bytes an n-gram; the corpus is read once, a document a
// thread. The result does not depend on the number of threads or ranks. With options.world it is collective, and all
// ranks have the same sources and the same result.
Contamination contamination_find(const DedupSource *corpus, const DedupSource *evaluation,
                                 ContaminationOptions options);
void contamination_print(const Contamination *c, ContaminationOptions options, FILE *file);
void contamination_free(Contamination *c);

#ifdef __cplusplus
}
#endif
#endif
