// flash: causal attention of a few queries, whose keys and values come tile by tile.
#ifndef FLASH_H
#define FLASH_H
#include <stddef.h>

// The caller fills in everything, and owns the arrays. max, sum and out are the only memory between the calls: what
// stands in them is up to you, until flash_finish. Their contents before flash_start are undefined.
typedef struct {
    size_t R, D;        // queries, and the size of a head; both at least 1
    size_t first_query; // query r stands at position first_query + r of the text
    float scale;        // score of a query and a key = scale * their scalar product
    const float *q;     // (R, D)
    float *max, *sum;   // (R) each: room for two numbers a query
    float *out;         // (R, D)
} Flash;

// Before the first tile.
void flash_start(Flash *f);
// n keys k (n, D) with their values v (n, D), n at least 1; key j stands at position first_key + j. A query sees the
// keys at its own position and before. Tiles may have different n, come in any order, and hold keys that no query sees.
// k and v are freed after the call: nothing may be read from them later, and no memory may be kept that grows with the
// number of keys.
void flash_tile(Flash *f, const float *k, const float *v, size_t first_key, size_t n);
// After the last tile: out (R, D) = softmax(scores) v over all keys that the query sees, lse (R) = the logarithm of the
// sum of their exp(score). Every query has seen at least one key.
void flash_finish(Flash *f, float *lse);
#endif
