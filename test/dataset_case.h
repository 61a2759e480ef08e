// dataset_case: shards for tests. Include it after cmocka and temp_dir.h.
#ifndef TEST_DATASET_CASE_H
#define TEST_DATASET_CASE_H
#include "text/dataset.h"

OWNER(Dataset, dataset_close)

static inline void put_tokens(const char *name, int vocab, DatasetType type, const int32_t *token, size_t n)
{
    DatasetWriter *w = dataset_writer_open(in_dir(name), vocab, type);
    dataset_writer_append(w, token, n);
    assert_int_equal(dataset_writer_finish(w), n);
}

// n tokens: first, first + 1, ... modulo vocab.
static inline void put_count(const char *name, int vocab, DatasetType type, int32_t first, size_t n)
{
    FREED int32_t *token = (int32_t *)zeroed(n * sizeof *token);
    for (size_t i = 0; i < n; i++) token[i] = (int32_t)((first + (int64_t)i) % vocab);
    put_tokens(name, vocab, type, token, n);
}
#endif
