// shards: a long sequence of tokens as files of at most so many tokens.
#ifndef SHARDS_H
#define SHARDS_H
#include "text/dataset.h"

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Shards Shards;

// Files dir/NAME_000000.bin and up (see dataset.h), each but the last of `most` (1 or more) tokens. `name` must outlive
// them.
Shards *shards_open(const char *dir, const char *name, int vocab, DatasetType type, int64_t most);
// Files `first` and up to before `end` of such a sequence, which other processes may write other files of at the same
// time, and after the full ones that an earlier run left: shards_tokens says how many tokens of the sequence come
// before those that the caller is to add. This is right only if all add tokens of the same sequence. token_bytes: 2
// or 4.
Shards *shards_resume(const char *dir, const char *name, int vocab, int token_bytes, int64_t most, int first, int end);
// Appends ids (n), each in [0, vocab). Dies when a file cannot be written.
void shards_add(Shards *s, const int32_t *id, size_t n);
int64_t shards_tokens(const Shards *s); // so far
// Ends the last file and, after shards_open, deletes later ones that an earlier run left. Returns how many files there
// are: none when no token was added.
int shards_close(Shards *s);

#ifdef __cplusplus
}
#endif
#endif
