// tokens: from documents to a trained tokenizer, and from documents to shards of its tokens.
#ifndef TOKENS_H
#define TOKENS_H
#include "data/prep/corpus.h"
#include "data/prep/shards.h"
#include "text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// The first n_docs documents of a finished store make a vocabulary of vocab_size tokens (see tokenizer_trainer_new).
// n_threads: 1 or more; changes no byte of any result here.
Tokenizer *tokens_train(const CorpusStore *store, size_t n_docs, const char *pattern, int vocab_size, int n_threads);
// Documents [from, to), each with <|endoftext|> before it, which t must have. Returns the bytes of their texts.
uint64_t tokens_write(const CorpusStore *store, size_t from, size_t to, Tokenizer *t, int n_threads, Shards *out);

#ifdef __cplusplus
}
#endif
#endif
