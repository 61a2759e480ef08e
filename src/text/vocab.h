// vocab: the tables that define a tokenizer, and the files that hold them.
//
// Reads and writes tokenizer.json (Hugging Face, byte-level BPE), vocab.json + merges.txt (GPT-2), and tiktoken's rank
// files.
#ifndef VOCAB_H
#define VOCAB_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/bpe.h"
#include "base/words.h"
#ifdef __cplusplus
extern "C" {
#endif

// Every byte has a token, and every merge joins two tokens, neither of them special, into a third of their bytes.
typedef struct {
    Words token;     // the bytes of each token; number = id
    bool *special;   // (token.n): never made from text
    BpeMerge *merge; // (n_merges), by rank
    size_t n_merges;
    int32_t eot;        // <|endoftext|>, or <|end_of_text|> where that is missing; -1: neither
    bool ignore_merges; // a word that is a token as a whole is not merged (LLaMA-3)
    char *pattern;      // a name ("gpt2") or a regular expression: see pretoken.h
} Vocab;

// See tokenizer_load and tokenizer_save for the errors.
Vocab vocab_load(const char *dir);
void vocab_save(const Vocab *v, const char *dir);
// The content of tokenizer.json; `path` is for messages.
Vocab vocab_from_json(json_t *json, const char *path);
json_t *vocab_json(const Vocab *v); // NULL: no memory
// The other formats: vocab.json and merges.txt, which vocab_load reads, and tiktoken's rank files.
void vocab_save_gpt2(const Vocab *v, const char *dir);
Vocab vocab_load_ranks(const char *path, const char *pattern);
void vocab_save_ranks(const Vocab *v, const char *path);
// GPT-2's 256 byte tokens in their order and no merges: the start of training.
Vocab vocab_new(const char *pattern);
void vocab_free(Vocab *v);
// GPT-2's id of a byte, 0..255: first the 188 that print in Latin-1, then the others.
int32_t vocab_byte_id(uint8_t byte);

#ifdef __cplusplus
}
#endif
#endif
