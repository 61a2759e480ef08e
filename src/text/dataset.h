// dataset: token shards on disk: writer, reader, and the order in which training reads them.
//
// Files, by their names:
//
//     x.bin            llm.c's: 256 little-endian int32, of which [0] magic, [1] version, [2] number of tokens, then
//                      the tokens: uint16 (magic 20240520, version 1) or uint32 (20240801, version 7)
//     x.bin:uint16     no header, as nanoGPT writes; also x.npy:uint32, as OLMo-core does (not what np.save writes)
//     x.idx            Megatron's indexed dataset: the tokens lie in x.bin beside it
//
// Every document starts with the end-of-text token. A dataset is the tokens of all its shards in a row.
#ifndef DATASET_H
#define DATASET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/chat.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- reading ----
typedef struct Dataset Dataset;

// Opens a file or a glob of them (sorted by name) and checks everything, down to every token: dies with the file, and
// the offset or the sizes, on a wrong magic or version, a size other than 1024 + 2n (4n), or a token not in [0, vocab).
// A name that ends in .toml is a mixture: sections [source.NAME] with path, as above, and weight (see sources_read).
// Its tokens are those of its sources, one after another.
Dataset *dataset_open(const char *path_or_glob, int vocab);
void dataset_close(Dataset *ds); // NULL is allowed
int64_t dataset_tokens(const Dataset *ds);
// Hash of the tokens, and of a mixture's sources and weights. The same tokens in other files, or in another format,
// have the same hash.
uint64_t dataset_hash(const Dataset *ds);

// The hash of the tokens of a file (its number, from 0): XXH3 of each 4096 as int32, with the one before as seed.
uint64_t dataset_file_hash(const Dataset *ds, size_t file);
// The first file whose hash is another than manifest.json beside it has; NULL: none, or there are no hashes.
const char *dataset_altered(const Dataset *ds);

// The name of a file of `ds` that is also one of `other`'s, whatever it is called there; NULL: none.
const char *dataset_shared(const Dataset *ds, const Dataset *other);

// Training: sample number `sample` of the whole run (0, 1, 2, ...; a rank that owns sample s asks for s, so
// the data do not depend on the layout) is a window of context+1 tokens, inputs (context) and targets
// (context), the inputs shifted by one. shuffle: the windows of an epoch in a random order; otherwise in the order of
// the tokens, the first epoch from token 0 on. In a mixture, mixture_source decides which source each sample comes
// from, and each source has epochs of its own. Dies when there are fewer than context+1 tokens.
void dataset_window(const Dataset *ds, int64_t sample, int context, uint64_t seed, bool shuffle,
                    int32_t *inputs, int32_t *targets);
// Samples in an epoch: tokens / context, rounded down. Of a mixture: the sum over its sources, of which each has an
// epoch of its own length; 0 when one has less than a window of context + 1.
int64_t dataset_windows(const Dataset *ds, int context);

// Prefetches what dataset_window or dataset_row will read for that sample, without waiting.
void dataset_ahead(const Dataset *ds, int64_t sample, int context, uint64_t seed, bool shuffle);

// Rows of whole documents instead of windows: finds the documents (from an end-of-text token, eot, to before the next)
// and packs those of each source into rows of `context` tokens by best fit (packing.h). From then on samples, as above,
// are rows, read by dataset_row, and dataset_windows counts rows. Takes 16 bytes a document and 8 a row. Call it once.
void dataset_pack(Dataset *ds, int context, int32_t eot);
// A row of a packed dataset, `context` each: tokens, targets, positions in the document, and the index in the row at
// which the document (or the part of one longer than a row) begins. Padding: end-of-text, target -1, each for itself.
void dataset_row(const Dataset *ds, int64_t sample, uint64_t seed, bool shuffle, int32_t *inputs, int32_t *targets,
                 int32_t *pos, int32_t *first);

// From now on only what the assistant says is a target (chat.h); others are -1 in windows and rows. Reads all tokens,
// and takes a bit a token. A document's part counts as it does in the whole, wherever a window begins.
void dataset_turns(Dataset *ds, const Chat *chat);
// How many of the n tokens from `first` on count as targets, and as in windows those that do not as -1 (target NULL is
// allowed): target i is token first + i.
int64_t dataset_counted(const Dataset *ds, int64_t first, int64_t n, int32_t *target);

// Evaluation: n tokens from `first` on, in order. Dies when the span leaves [0, dataset_tokens).
void dataset_span(const Dataset *ds, int64_t first, int64_t n, int32_t *out);
// The bytes of text that those of the n tokens from `first` on that count stand for; token_bytes (vocab) holds the bytes
// of each token: tokenizer_text_bytes, 0 for end-of-text.
int64_t dataset_text_bytes(const Dataset *ds, int64_t first, int64_t n, const int32_t *token_bytes);

// ---- writing ----
typedef struct DatasetWriter DatasetWriter;
typedef enum { DATASET_AUTO, DATASET_U16, DATASET_U32 } DatasetType;
enum {
    DATASET_HEADER_BYTES = 1024,
    DATASET_MAGIC_U16 = 20240520,
    DATASET_VERSION_U16 = 1,
    DATASET_MAGIC_U32 = 20240801,
    DATASET_VERSION_U32 = 7
};

// A new shard. AUTO takes uint16 when ids below `vocab` fit in it (vocab <= 65535: id 65535 is a separator in
// llm.c's evaluation files) and uint32 otherwise; U16 with a larger vocab dies. Written to path.tmp, renamed
// by finish.
DatasetWriter *dataset_writer_open(const char *path, int vocab, DatasetType type);
void dataset_writer_append(DatasetWriter *w, const int32_t *ids, size_t n); // dies on an id not in [0, vocab)
int64_t dataset_writer_finish(DatasetWriter *w); // the number of tokens in the shard; frees w

#ifdef __cplusplus
}
#endif
#endif
