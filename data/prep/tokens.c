// tokens: documents go through the tokenizer in batches, each on all threads, and come out in their order.
//
// Invariant: what is written depends on the documents and the tokenizer alone, not on where a batch ends and not on the
// threads: the tokenizer promises that for a list of texts (tokenizer_encode_texts), and a list of lists is one.
//
// A batch is 16 MiB of text, or one document when that is larger: enough to keep the threads busy, and all that memory
// holds of the corpus.
//
// Rejected: a thread for each shard (shards would have to begin with documents) and reading the next batch while this
// one is encoded (the store was just written and lies in the page cache; encoding takes many times as long).
#include "data/prep/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/words.h"

enum { BATCH_BYTES = 16 << 20 };

// Documents of the store, one behind the other.
typedef struct {
    char *bytes;
    TokenizerText *text; // (n)
    size_t *end;         // (n), for tokenizer_encode_texts
    size_t n, cap, cap_text, cap_end;
    uint64_t n_bytes;
} Batch; // starts as {0}

// Documents from `from` on and before `to`: one, and more up to BATCH_BYTES. Returns the number behind the last.
static size_t read_batch(const CorpusStore *store, size_t from, size_t to, Batch *b)
{
    size_t next = from;
    for (b->n_bytes = 0; next < to; next++) {
        if (next > from && b->n_bytes + corpus_store_size(store, next) > BATCH_BYTES) break;
        b->n_bytes += corpus_store_size(store, next);
    }
    b->n = next - from;
    b->bytes = words_grow(b->bytes, &b->cap, b->n_bytes, 1);
    b->text = words_grow(b->text, &b->cap_text, b->n, sizeof *b->text);
    b->end = words_grow(b->end, &b->cap_end, b->n, sizeof *b->end);
    char *at = b->bytes;
    for (size_t i = 0; i < b->n; at += b->text[i++].n) {
        b->text[i] = (TokenizerText){at, corpus_store_size(store, from + i)};
        if (!corpus_store_read(store, from + i, at))
            die("tokens: cannot read document %zu back: %s", from + i, strerror(errno));
    }
    return next;
}

static void free_batch(Batch *b)
{
    free(b->bytes);
    free(b->text);
    free(b->end);
}

Tokenizer *tokens_train(const CorpusStore *store, size_t n_docs, const char *pattern, int vocab_size, int n_threads)
{
    TokenizerTrainer *trainer = tokenizer_trainer_new(pattern);
    Batch b = {0};
    for (size_t i = 0; i < n_docs;) {
        i = read_batch(store, i, n_docs, &b);
        tokenizer_trainer_add_texts(trainer, b.text, b.n, n_threads);
    }
    free_batch(&b);
    return tokenizer_trainer_finish(trainer, vocab_size);
}

uint64_t tokens_write(const CorpusStore *store, size_t from, size_t to, Tokenizer *t, int n_threads, Shards *out)
{
    uint64_t n_bytes = 0;
    int32_t eot = tokenizer_eot(t);
    TokenIds ids = {0};
    Batch b = {0};
    while (from < to) {
        from = read_batch(store, from, to, &b);
        ids.n = 0;
        tokenizer_encode_texts(t, b.text, b.n, n_threads, &ids, b.end);
        for (size_t i = 0, at = 0; i < b.n; at = b.end[i++]) {
            shards_add(out, &eot, 1);
            shards_add(out, ids.id + at, b.end[i] - at);
        }
        n_bytes += b.n_bytes;
    }
    token_ids_free(&ids);
    free_batch(&b);
    return n_bytes;
}
