// dataset_file: one file of tokens, in any of the formats that can be read.
//
//     x.bin            llm.c: a header of 256 int32 (dataset.h), uint16 or uint32
//     x.bin:uint16     no header, as nanoGPT writes; also x.npy:uint32, as OLMo-core does (not what np.save writes)
//     x.idx            Megatron's indexed dataset: the tokens lie in x.bin beside it
#ifndef DATASET_FILE_H
#define DATASET_FILE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    char *path; // of the file that holds the tokens
    int fd, token_bytes;      // 2 or 4
    int64_t offset, n, first; // where they begin, how many; first: set by the caller
    int64_t size, changed;    // bytes, and the time of the last change in ns, when it was opened
} DatasetFile;

enum { DATASET_FILE_CHUNK = 4096 }; // tokens read at a time

// The number type behind the last ':' of a name, 2 or 4 bytes, and the length of what is before it; 0 when there is
// none.
int dataset_file_suffix(const char *name, size_t *n_path);
// raw: bytes of a token of a file without header; 0: the format is what the name and the first bytes say. Dies with
// file, offset and sizes on whatever is not right.
DatasetFile dataset_file_open(const char *path, int raw);
void dataset_file_close(DatasetFile *f);
// Tokens at .. at + n - 1 of the file, n at most DATASET_FILE_CHUNK. Dies on a token that is not in [0, vocab), and
// when somebody has written to the file since it was opened.
void dataset_file_read(const DatasetFile *f, int vocab, int64_t at, size_t n, int32_t *out);
// Says that n tokens from `at` on will be read soon: the system begins to fetch them and returns.
void dataset_file_ahead(const DatasetFile *f, int64_t at, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
