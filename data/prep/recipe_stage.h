// recipe_stage: what the stages of a preparation share: the run, folders with keys, progress.
#ifndef RECIPE_STAGE_H
#define RECIPE_STAGE_H
#include "data/prep/exchange.h"
#include "data/prep/filter.h"
#include "data/prep/recipe.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// ---- documents: a corpus on disk in parts, each of which is there completely or not at all
//
// CorpusStore keeps documents for one run of a program. This keeps them for a preparation that takes days: its files
// have names, survive a kill, and record where each document came from.
typedef struct {
    uint32_t n_bytes, file; // of its text; number of the file in its source
    uint64_t line;          // of that file, from 1
    uint64_t hash;          // XXH3 of the text
} DocumentRow;

// A part is number `part` of a group: the texts of a few files of the input, whose parts one process makes. The parts
// of all groups, one group after another, are the corpus.

// ---- writing: DIR/part_GROUP_PART.text, .rows and, last, .json
typedef struct {
    char *text;       // (n_bytes) one document after another
    DocumentRow *row; // (n)
    size_t n_bytes, n, cap_text, cap_rows;
} DocumentPart; // starts as {0}

void documents_add(DocumentPart *part, const char *text, size_t n_bytes, uint32_t file, uint64_t line);
// Writes a part, of source `source`, and what `about` says beside "source", "documents" and "bytes" (takes its
// reference), then empties `docs`. When it returns, the part is on the disk; if the program is killed before,
// there is no such part.
void documents_commit(DocumentPart *docs, const char *dir, size_t group, size_t part, size_t source, json_t *about);
void documents_free(DocumentPart *part);
// What documents_commit was told about a part, or NULL when there is no such part. Dies when its files are damaged.
json_t *documents_about(const char *dir, size_t group, size_t part);

// ---- reading
typedef struct Documents Documents;

// All parts of a folder, numbered in their order from 0. In memory: 8 bytes a document. Dies when a file is damaged:
// see documents_about.
Documents *documents_open(const char *dir);
void documents_close(Documents *d); // NULL is allowed
size_t documents_count(const Documents *d); // below 2^32
size_t documents_parts(const Documents *d);
size_t documents_begin(const Documents *d, size_t part); // its first document; at documents_parts: the count
size_t documents_source(const Documents *d, size_t part);
size_t documents_part_of(const Documents *d, size_t i);
size_t documents_size(const Documents *d, size_t i); // bytes of the text of document i
// From any thread. documents_read: false, with errno, when the disk fails, and dies when the text is not the one that
// was written; documents_row dies when the disk fails.
bool documents_read(const Documents *d, size_t i, void *out);
DocumentRow documents_row(const Documents *d, size_t i);

// ---- the run and its folders
typedef struct {
    const Recipe *recipe;
    const Source *source; // (n_sources)
    size_t n_sources;
    char dir[PATH_MAX - 256];
    int threads;
    Comm *world;       // the ranks that share the work (exchange.h); NULL: this process alone
    int rank, ranks;
    int lock;          // a descriptor
    char key[33];      // of the last stage; the next stage's key is made from it
    json_t *stages;    // the record of each stage (its stage.json), in order
    Documents *docs;   // NULL until a stage needs it: recipe_stage_documents
    uint8_t *removed;  // (documents_count) 1: some stage has removed it
} RecipeRun;

// Rank 0 makes the folder, and all ranks lock it against a second run; loads nothing. This function and those that take
// a RecipeStage are collective (exchange.h).
RecipeRun *recipe_stage_open(const Recipe *r, Comm *world);
void recipe_stage_close(RecipeRun *run);

typedef struct {
    const char *name;
    char dir[PATH_MAX - 128];
    char key[33];
    bool done; // its record is in run->stages; there is nothing to do
    double cpu; // seconds of processors that this rank had taken when the stage began
} RecipeStage;

// The folder of a stage, ready to be filled: with the finished units of an earlier run that had the same settings and
// input, otherwise empty. settings: everything that the result depends on and that is not in an earlier stage's key.
// Dies on a rank whose settings are not rank 0's, or that does not see rank 0's folder.
RecipeStage recipe_stage_begin(RecipeRun *run, const char *name, const char *settings);
// When all ranks have come here, rank 0 writes stage.json with the list of the folder's files; then the stage is done.
// Takes the reference to rank 0's `about`; other ranks may give NULL.
void recipe_stage_end(RecipeRun *run, RecipeStage *stage, json_t *about);
// On several ranks, rank 0 prints what all stages took, and how much of it the busiest rank did.
void recipe_stage_say_work(const RecipeRun *run);
// Rank 0 prints a line for each folder of a stage that the recipe no longer asks for. The folder stays, and is used
// again if the recipe asks for it again.
void recipe_stage_say_left(const RecipeRun *run);
// Removes one of our folders below the run's, with its content; if it is a link to a folder, only the content. Not
// collective: for rank 0.
void recipe_stage_remove(const RecipeRun *run, const char *name);
// A line for each file below path: name, bytes, time of the last change. free() it.
char *recipe_stage_files(const char *path);
// Dies when a file is not as its line in such a list says. *listing moves past that line, because files are read in
// the order of their lines, and there may be many.
void recipe_stage_check_file(const char **listing, const char *path);

// The documents; removed[i] says which are gone. Loaded when first asked for.
void recipe_stage_documents(RecipeRun *run);
// Marks what removed.tsv of a stage lists, a document a line, its number first.
void recipe_stage_remove_listed(RecipeRun *run, const char *stage);
// {"documents": n, "bytes": n, "sources": [...]} of the documents that are left.
json_t *recipe_stage_counts(RecipeRun *run);

// ---- progress, on stderr: at most a line each five seconds, of rank 0's share of the work
typedef struct {
    const char *what;
    double begun, next;        // seconds
    uint64_t first, done, all; // bytes; first: done before this run
} RecipeProgress;

RecipeProgress recipe_stage_progress(const RecipeRun *run, const char *what, uint64_t first, uint64_t all);
void recipe_stage_advance(RecipeProgress *p, uint64_t n_bytes); // from one thread at a time

// ---- the stages, one after another
void recipe_read_stage(RecipeRun *run);                        // recipe_read.c
CorpusOptions recipe_read_options(const Recipe *r, const Source *source); // how a source is read
Filter *recipe_read_filter(const Recipe *r);                   // filter.rules is not empty; filter_free() it
void recipe_remove_exact(RecipeRun *run);                      // recipe_remove.c
void recipe_remove_near(RecipeRun *run);
void recipe_remove_contaminated(RecipeRun *run);
CorpusOptions recipe_remove_options(const Recipe *r);          // how the evaluation set is read
void recipe_encode_tokenizer(RecipeRun *run);                  // recipe_encode.c
enum { RECIPE_ENCODE_GIVEN = 6 };
extern const char *const recipe_encode_given[RECIPE_ENCODE_GIVEN]; // the files of a given tokenizer that may be read
void recipe_encode_shards(RecipeRun *run);
int recipe_report_write(RecipeRun *run, FILE *out);            // recipe_report.c; as corpus_judge

extern const char *const recipe_encode_splits[2]; // "train", "val"
#ifdef __cplusplus
}
#endif
#endif
