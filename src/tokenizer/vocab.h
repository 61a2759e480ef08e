// vocab: the tables that define a tokenizer, and the files that hold them.
//
// Reads and writes tokenizer.json (Hugging Face, BPE), vocab.json + merges.txt (GPT-2), and tiktoken's rank files;
// reads SentencePiece's models (BPE).
#ifndef VOCAB_H
#define VOCAB_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/bpe.h"
#include "base/words.h"
#ifdef __cplusplus
extern "C" {
#endif

#define SPACE_SIGN "\xE2\x96\x81" // U+2581, a space in SentencePiece's files
// The space that SentencePiece puts before a text.
typedef enum { VOCAB_NO_PREFIX, VOCAB_PREFIX, VOCAB_PREFIX_UNLESS_SPACE } VocabPrefix;

// Merging starts from the bytes of a word, or (chars) from its characters. Every merge joins two tokens into a third of
// their bytes; none of the three is special or stands for a byte. What a Vocab of {0} leaves out is off.
typedef struct {
    Words token;     // the bytes of each token; number = id. A byte of byte_fallback: its name, <0x00> to <0xFF>
    bool *special;   // (token.n): never made from text
    uint8_t *added;  // (token.n) or NULL. Not 0: not special, and found in text before it is cut into words; 1: first,
                     // 2: in what is between those
    BpeMerge *merge; // (n_merges), by rank
    size_t n_merges;
    int32_t eot;     // what separates documents; -1: nothing
    int32_t bos, eos, unk;         // where has_...: what a text starts with, what ends the text of a model as eot does,
    bool has_bos, has_eos, has_unk; // what stands for a byte (a character) that has no token
    bool fuse_unk;      // one unk for several neighbours
    bool nfc;           // a text is first put into Unicode's form C (pretoken.h)
    bool ignore_merges; // a word that is a token as a whole is not merged (LLaMA-3)
    char *chat;         // the chat template (chat.h); NULL: none
    char *pattern;      // a name ("gpt2") or a regular expression: see pretoken.h; "": a text is one word
    // SentencePiece. A space is a space here, U+2581 in its files.
    bool chars;
    bool byte_fallback; // a character without a token becomes its bytes; all 256 have a token
    bool squeeze;       // spaces at the ends of a text are left out, and all but one of several
    bool prefix_once;   // the prefix is for the beginning of a text, not for what follows an added token
    VocabPrefix prefix;
} Vocab;

// A folder, a tokenizer.json or a SentencePiece model (*.model). See tokenizer_load and tokenizer_save for the errors.
Vocab vocab_load(const char *path);
void vocab_save(const Vocab *v, const char *dir);
// The other formats: vocab.json and merges.txt, which vocab_load reads and which hold no pattern (dies when it is not
// GPT-2's), and tiktoken's rank files (dies when the order of ids cannot express the merges).
void vocab_save_gpt2(const Vocab *v, const char *dir);
Vocab vocab_load_ranks(const char *path, const char *pattern);
void vocab_save_ranks(const Vocab *v, const char *path);
// GPT-2's 256 byte tokens in their order and no merges: the start of training.
Vocab vocab_new(const char *pattern);
void vocab_free(Vocab *v);
// GPT-2's id of a byte, 0..255: first the 188 that print in Latin-1, then the others.
int32_t vocab_byte_id(uint8_t byte);

// ---- for readers and writers of files; `path` is for messages

// A token as files spell it: GPT-2's alphabet (see vocab.c), or SentencePiece's U+2581. spelled has room for 3n + 1.
void vocab_spell(const Vocab *v, const char *bytes, size_t n, char *spelled);
// The inverse: writes at most n bytes, returns how many; -1 when a character is not in the alphabet.
long vocab_unspell(const Vocab *v, const char *spelled, size_t n, char *bytes);
// The token that merges make of these bytes, or the special token of that name; -1: none.
int64_t vocab_find(const Vocab *v, const char *bytes, size_t n);
int64_t vocab_find_special(const Vocab *v, const char *name);
// The byte that token id stands for under byte_fallback; -1: it stands for its own bytes.
int vocab_byte_of(const Vocab *v, int32_t id);
// Adds the merge of two spelled tokens; dies when they, or what they make, are no tokens. `where`: its number.
void vocab_add_merge(Vocab *v, size_t *cap, const char *left, size_t n_left, const char *right, size_t n_right,
                     const char *path, size_t where);
// A file that holds one JSON object; dies, naming what it is instead. flags: jansson's.
json_t *vocab_read_json(const char *path, size_t flags);
// Dies with a key and its value as they stand in the file.
void vocab_refuse(const char *path, const char *key, const json_t *value, const char *why) __attribute__((noreturn));
// The merges of tokens with scores (token.n): all pairs that join to a token, the highest score first.
void vocab_merge_by_score(Vocab *v, const float *score, const char *path);
// Whether byte_fallback can be had: all of <0x00>..<0xFF> are there; dies when only some are.
bool vocab_has_bytes(const Vocab *v, const char *path);
// Sets eot, if it is -1, to <|endoftext|>, <|end_of_text|>, or eos, the first that there is.
void vocab_find_eot(Vocab *v);

// SentencePiece's model file.
Vocab vocab_load_sentencepiece(const char *path);
// GPT-2's two files and tokenizer.json, by the folder; tokenizer_config.json and special_tokens_map.json beside them.
Vocab vocab_load_json(const char *path);
Vocab vocab_load_gpt2(const char *dir);
// kind: NULL, or how the name of its class must begin.
void vocab_read_config(Vocab *v, const char *dir, const char *kind);

#ifdef __cplusplus
}
#endif
#endif
