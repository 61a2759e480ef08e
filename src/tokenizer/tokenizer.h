// tokenizer: BPE on bytes (GPT-2) or characters (SentencePiece), from text to token ids and back.
//
// Trains a vocabulary from text, encodes, decodes, and reads and writes the files that Hugging Face `tokenizers` uses.
// In a vocabulary that is trained here every byte has a token of its own, so any input at all encodes, and decoding the
// ids gives back the same bytes: decode(encode(x)) == x, valid UTF-8 or not. In one from elsewhere a byte may have
// none, SentencePiece's changes spaces, and Qwen's puts text into Unicode's form C (doc/tokenizer.md).
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/vocab.h"
#ifdef __cplusplus
extern "C" {
#endif

#define TOKENIZER_EOT "<|endoftext|>"

typedef struct Tokenizer Tokenizer;
typedef struct TokenizerTrainer TokenizerTrainer;

// A list of token ids that grows; start from {0}.
typedef struct {
    int32_t *id; // (n)
    size_t n, cap;
} TokenIds;

// Reads a folder with tokenizer.json, or else tokenizer.model (SentencePiece, BPE), or else vocab.json and merges.txt
// (GPT-2's layout and pattern); or one of the first two files, by its name (*.json, *.model). Dies when files are
// missing or damaged, when they use a feature that is not supported and would change the ids, and when an interrupted
// program left the folder half replaced (disk_folder.h).
Tokenizer *tokenizer_load(const char *dir);
// A tokenizer of tables from elsewhere, which it takes over. They must hold what vocab.h says.
Tokenizer *tokenizer_new(Vocab vocab);
const Vocab *tokenizer_vocab(const Tokenizer *t); // its tables; they live as long as t
// Reads a tiktoken rank file: one line a token, base64 of its bytes, a space, its id; ids from 0 without a hole. The
// file holds neither the pattern (pretoken.h) nor special tokens: <|endoftext|> gets the id after the last one.
// In cl100k_base (100,256 ranks of "cl100k") it gets 100257, as in tiktoken, and 100256 is a token that no text encodes
// to.
Tokenizer *tokenizer_load_ranks(const char *path, const char *pattern);
// Writes dir/tokenizer.json and dir/tokenizer_config.json; the folder must exist. Dies on a failed write.
void tokenizer_save(const Tokenizer *t, const char *dir);
void tokenizer_free(Tokenizer *t); // NULL is allowed

// A text among several; not 0-terminated.
typedef struct {
    const char *bytes; // (n)
    size_t n;
} TokenizerText;

// Training: feed documents, then ask for a vocabulary of vocab_size tokens (257 or more): the 256 bytes, the
// merges, and <|endoftext|> as the last id. Fewer come out when the text has no pair left to merge.
// `pattern`: a name of pretoken.h, how text is cut into words before merging; dies on any other name.
TokenizerTrainer *tokenizer_trainer_new(const char *pattern);
void tokenizer_trainer_min_frequency(TokenizerTrainer *trainer, int64_t least); // of a pair that is merged; 1
// More special tokens, of the vocab_size, after <|endoftext|>: "[UNK],[BOS],[EOS],[PAD]". The string must stay.
void tokenizer_trainer_special(TokenizerTrainer *trainer, const char *names);
void tokenizer_trainer_add(TokenizerTrainer *trainer, const char *text, size_t n_bytes);
// Adds several texts on n_threads (1 or more) threads. Texts and threads change the speed and the memory, never the
// merges. Memory: a table of the different words for each thread, and one more for all.
void tokenizer_trainer_add_texts(TokenizerTrainer *trainer, const TokenizerText *text, size_t n_texts, int n_threads);
// The different words so far, counted on all threads; number i of them, and how often it was seen. Those of another
// trainer, in another process, are added with tokenizer_trainer_add_word: then this one has seen the texts of both.
size_t tokenizer_trainer_words(TokenizerTrainer *trainer);
TokenizerText tokenizer_trainer_word(const TokenizerTrainer *trainer, size_t i, int64_t *times);
void tokenizer_trainer_add_word(TokenizerTrainer *trainer, TokenizerText word, int64_t times);
Tokenizer *tokenizer_trainer_finish(TokenizerTrainer *trainer, int vocab_size); // frees the trainer
void tokenizer_trainer_free(TokenizerTrainer *trainer); // without a vocabulary

// Appends the ids of text (n_bytes, any bytes) to `out`. Special tokens are never made from text: the string
// "<|endoftext|>" in a document encodes as ordinary text. Added tokens that are not special are. Dies on a byte without
// a token where there is no unknown token. Fills a word cache inside t: one thread at a time.
void tokenizer_encode(Tokenizer *t, const char *text, size_t n_bytes, TokenIds *out);
// Several texts on n_threads threads: appends the same ids as one call after another. end (n_texts; NULL is allowed):
// out->n after the ids of each.
void tokenizer_encode_texts(Tokenizer *t, const TokenizerText *text, size_t n_texts, int n_threads, TokenIds *out,
                            size_t *end);
// The bytes of one token, *n_bytes of them, not 0-terminated; they live as long as t. Write them out one id
// after another to stream text: a character may span several tokens. Dies when id is not in [0, vocab).
const char *tokenizer_decode(const Tokenizer *t, int32_t id, size_t *n_bytes);
// The same for the first token of a text: without the space that SentencePiece puts before a text.
const char *tokenizer_decode_first(const Tokenizer *t, int32_t id, size_t *n_bytes);
// How many bytes of text a token stands for: as tokenizer_decode, but 0 for special tokens. Summed over the
// targets of an evaluation it turns nats per token into bits per byte.
size_t tokenizer_text_bytes(const Tokenizer *t, int32_t id);
bool tokenizer_is_special(const Tokenizer *t, int32_t id);

int tokenizer_vocab_size(const Tokenizer *t);
// What separates documents: every document of the shards starts with it. It is <|endoftext|>, or <|end_of_text|>, or
// what tokenizer_config.json names as eos_token; -1: none.
int32_t tokenizer_eot(const Tokenizer *t);
int32_t tokenizer_need_eot(const Tokenizer *t, const char *path); // dies when there is none, naming path
// Shards are made with it: every document starts with `token`, a special one (NULL: the eot that there is), and so do
// the texts of a model that is trained on them: it is bos too. Dies when there is none, naming path.
void tokenizer_set_eot(Tokenizer *t, const char *token, const char *path);
// What a text starts with when a model reads it; -1: nothing. GPT-2, and every tokenizer trained here: eot.
int32_t tokenizer_bos(const Tokenizer *t);
bool tokenizer_ends(const Tokenizer *t, int32_t id); // whether a model that draws this token has ended its text
// Its chat template from now on, whose turns end with `end`: a model that draws it has ended its text.
void tokenizer_set_chat(Tokenizer *t, const char *jinja, int32_t end);
const char *tokenizer_pattern(const Tokenizer *t); // its name in pretoken.h, "custom" or "none"

void token_ids_push(TokenIds *ids, int32_t id);
void token_ids_free(TokenIds *ids); // and start from {0} again

#ifdef __cplusplus
}
#endif
#endif
