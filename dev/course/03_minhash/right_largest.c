// The largest image in place of the smallest, by another mixing function, and all pairs compared from the last band on.
#include "near.h"

static uint32_t image(uint64_t x, uint64_t key)
{
    unsigned __int128 product = (unsigned __int128)(x ^ key) * (key * 0xda942042e4dd58b5 | 1);
    uint64_t y = (uint64_t)(product >> 64) ^ (uint64_t)product;
    y = (y ^ y >> 29) * 0x94d049bb133111eb;
    return (uint32_t)(y >> 31);
}

void sign_set(uint32_t *signature, size_t n, const uint64_t *gram, size_t n_grams, uint64_t seed)
{
    uint64_t key = seed + 0x632be59bd9b4e019;
    for (size_t k = 0; k < n; k++) {
        key ^= key << 13, key ^= key >> 7, key ^= key << 17; // xorshift (Marsaglia 2003)
        signature[k] = n_grams ? 0 : UINT32_MAX;
        for (size_t i = n_grams; i-- > 0;) {
            uint32_t x = image(gram[i], key);
            signature[k] = x > signature[k] ? x : signature[k];
        }
    }
}

double estimate_similarity(const uint32_t *a, const uint32_t *b, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += a[k] == b[k] ? 1.0 / (double)n : 0;
    return sum;
}

size_t find_candidates(size_t (*pair)[2], const uint32_t *signature, size_t n_docs, size_t bands, size_t rows)
{
    size_t n = 0, width = bands * rows;
    for (size_t b = n_docs; b-- > 0;)
        for (size_t a = b; a-- > 0;)
            for (size_t k = width, equal = 0; k-- > 0;) {
                equal = signature[a * width + k] == signature[b * width + k] ? equal + 1 : 0;
                if (k % rows) continue;
                if (equal >= rows) {
                    pair[n][0] = a, pair[n++][1] = b;
                    break;
                }
                equal = 0;
            }
    return n;
}
