// bpe: byte pair encoding (Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword
// units", ACL 2016), on bytes as in GPT-2.
//
// Training. Count every pair of neighbouring tokens over all words; the most frequent pair (among equals the
// one with the smaller left id, then the smaller right id: the order of Hugging Face's BpeTrainer) becomes a
// new token; replace it everywhere; repeat. Text repeats itself, so the work is done once per different word,
// weighted by its count. A merge changes only the pairs around the places it merges: every pair keeps the
// list of the words in which it was seen, and only those words are visited. A list may name words that have lost the
// pair since; nothing is found there. The heap may hold counts that have shrunk since: the top entry is compared with
// the true count, and pushed back corrected when it differs. The count of a pair never grows after the round that made
// the pair (a merge adds only pairs with the newest token). So a heap entry is never too small, and a top entry that
// equals its true count is the maximum.
//
// Applying. Of all neighbouring pairs with a merge, the one of the lowest rank is merged first (the leftmost among
// equals), until no pair has a merge. A heap of (rank, position) over a linked list does this in O(n log n), so a
// megabyte of spaces, which is a single word, takes no longer than other text. Words of up to SHORT ids, which are
// nearly all, are merged by a scan of all ranks before each merge: O(n^2), 16 ranks per vector instruction, but with no
// allocation and no stale heap entries. It pays for text with many different words, where a word cache does not help.
//
// BPE here merges listed pairs; tiktoken merges any two neighbours whose joined bytes are a token. Both give the same
// ids when the bytes of each token encode to that token, as they do after training here: a span of text that no merge
// has crossed has been merged as if it stood alone, and the merges inside a token's bytes always reach that token.
#include "tokenizer/bpe.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"

enum { SHORT = 256 }; // a place fits a byte
#define NO_KEY UINT32_MAX

// A binary heap, smallest (hi, lo) first.
typedef struct {
    uint64_t hi, lo;
} Item;

typedef struct {
    Item *item;
    size_t n, cap;
} Heap;

static void push(Heap *heap, uint64_t hi, uint64_t lo);
static Item pop(Heap *heap);

// ---- pairs as keys ----
static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t pair_hash(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15ull; // 2^64 / golden ratio: spreads neighbouring ids
    return key ^ key >> 29;
}

// ---- training ----
typedef struct {
    uint64_t key;
    int64_t count;
    uint32_t *word; // words in which it was seen
    size_t n_words, cap_words;
} Pair;

typedef struct {
    int32_t *symbols; // all words back to back, in tokens
    size_t *start;    // (words.n)
    uint32_t *length; // (words.n)
    const int64_t *count;
    Pair *pair;
    size_t n_pairs, cap_pairs;
    uint32_t *slot; // 0 empty, else 1 + index into pair
    size_t n_slots;
} Train;

static size_t find_pair_slot(const Train *t, uint64_t key)
{
    size_t s = pair_hash(key) & (t->n_slots - 1);
    while (t->slot[s] && t->pair[t->slot[s] - 1].key != key) s = (s + 1) & (t->n_slots - 1);
    return s;
}

static Pair *find_pair(Train *t, int32_t left, int32_t right)
{
    uint64_t key = pair_key(left, right);
    if (2 * (t->n_pairs + 1) > t->n_slots) {
        t->n_slots = t->n_slots ? 2 * t->n_slots : 1 << 16;
        free(t->slot);
        t->slot = calloc(t->n_slots, sizeof *t->slot);
        if (!t->slot) die("memory: no room for %zu pairs (train on less text)", t->n_slots);
        for (size_t i = 0; i < t->n_pairs; i++) t->slot[find_pair_slot(t, t->pair[i].key)] = (uint32_t)i + 1;
    }
    size_t s = find_pair_slot(t, key);
    if (!t->slot[s]) {
        t->pair = words_grow(t->pair, &t->cap_pairs, t->n_pairs + 1, sizeof *t->pair);
        t->pair[t->n_pairs] = (Pair){.key = key};
        t->slot[s] = (uint32_t)++t->n_pairs;
    }
    return &t->pair[t->slot[s] - 1];
}

static void gain(Train *t, int32_t left, int32_t right, uint32_t word)
{
    Pair *pair = find_pair(t, left, right);
    pair->count += t->count[word];
    if (pair->n_words && pair->word[pair->n_words - 1] == word) return;
    pair->word = words_grow(pair->word, &pair->cap_words, pair->n_words + 1, sizeof *pair->word);
    pair->word[pair->n_words++] = word;
}

static void lose(Train *t, int32_t left, int32_t right, uint32_t word)
{
    find_pair(t, left, right)->count -= t->count[word];
}

// Replaces the pair in one word, left to right, and moves the counts of the pairs around it.
static void merge_word(Train *t, uint32_t word, BpeMerge m)
{
    int32_t *s = t->symbols + t->start[word];
    uint32_t n = t->length[word], n_left = 0;
    for (uint32_t i = 0; i < n;) {
        if (i + 1 >= n || s[i] != m.left || s[i + 1] != m.right) {
            s[n_left++] = s[i++];
            continue;
        }
        if (n_left > 0) {
            lose(t, s[n_left - 1], m.left, word);
            gain(t, s[n_left - 1], m.result, word);
        }
        if (i + 2 < n) {
            lose(t, m.right, s[i + 2], word);
            gain(t, m.result, s[i + 2], word);
        }
        s[n_left++] = m.result;
        i += 2;
    }
    t->length[word] = n_left;
}

static Train train_start(const Words *words, const int64_t *count, const int32_t *byte_id)
{
    Train t = {.count = count};
    size_t n = words->n ? words->n : 1;
    t.symbols = malloc((words->n_bytes + 1) * sizeof *t.symbols);
    t.start = malloc(n * sizeof *t.start);
    t.length = malloc(n * sizeof *t.length);
    if (!t.symbols || !t.start || !t.length)
        die("memory: no room to train on %zu bytes of different words (train on less text)", words->n_bytes);
    for (size_t i = 0; i < words->n_bytes; i++) t.symbols[i] = byte_id[(uint8_t)words->bytes[i]];
    for (uint32_t w = 0; w < words->n; w++) {
        t.start[w] = words->word[w].at;
        t.length[w] = words->word[w].n;
        const int32_t *s = t.symbols + t.start[w];
        for (uint32_t i = 0; i + 1 < t.length[w]; i++) gain(&t, s[i], s[i + 1], w);
    }
    return t;
}

static void train_free(Train *t)
{
    for (size_t i = 0; i < t->n_pairs; i++) free(t->pair[i].word);
    free(t->pair);
    free(t->slot);
    free(t->symbols);
    free(t->start);
    free(t->length);
}

// Pairs from number `from` on enter the heap: the highest count first, then the smallest key.
static void push_pairs(const Train *t, Heap *heap, size_t from)
{
    for (size_t i = from; i < t->n_pairs; i++)
        if (t->pair[i].count > 0) push(heap, ~(uint64_t)t->pair[i].count, t->pair[i].key);
}

size_t bpe_train(const Words *words, const int64_t *count, const int32_t *byte_id, int32_t first_id,
                 size_t n_merges, int64_t least, BpeMerge *merge)
{
    Train t = train_start(words, count, byte_id);
    Heap heap = {0};
    push_pairs(&t, &heap, 0);
    size_t n = 0;
    while (n < n_merges && heap.n) {
        Item top = pop(&heap);
        BpeMerge m = {(int32_t)(top.lo >> 32), (int32_t)(uint32_t)top.lo, first_id + (int32_t)n};
        Pair *pair = find_pair(&t, m.left, m.right);
        if (pair->count != (int64_t)~top.hi) { // the count fell after it was pushed
            if (pair->count > 0) push(&heap, ~(uint64_t)pair->count, pair->key);
            continue;
        }
        if (pair->count < least) break; // it is the most frequent one
        merge[n++] = m;
        uint32_t *seen = pair->word; // `pair` itself may move as new pairs come
        size_t n_seen = pair->n_words, old_pairs = t.n_pairs;
        pair->word = NULL;
        pair->n_words = pair->cap_words = 0;
        for (size_t i = 0; i < n_seen; i++) merge_word(&t, seen[i], m);
        free(seen);
        find_pair(&t, m.left, m.right)->count = 0;
        push_pairs(&t, &heap, old_pairs);
    }
    train_free(&t);
    free(heap.item);
    return n;
}

// ---- applying ---- `may` is a set of bits that answers most look-ups of pairs without a merge. The bit of a pair:
// the upper bits of its hash, where the slot has the lower ones.
static inline size_t may_bit(const Bpe *bpe, size_t hash)
{
    return hash >> 20 & (8 * bpe->n_slots - 1);
}

Bpe bpe_empty(const BpeMerge *merge, size_t n_max)
{
    Bpe bpe = {.merge = merge, .n_slots = 16};
    while (bpe.n_slots <= 2 * n_max) bpe.n_slots *= 2;
    bpe.slot = malloc(bpe.n_slots * sizeof *bpe.slot);
    bpe.may = calloc(bpe.n_slots / 8, sizeof *bpe.may); // 8 bits a slot, 16 a merge or more
    bpe.low = malloc(sizeof *bpe.low * BPE_LOW * BPE_LOW);
    if (!bpe.slot || !bpe.may || !bpe.low) die("memory: no room for %zu merges", n_max);
    for (size_t i = 0; i < bpe.n_slots; i++) bpe.slot[i].rank = BPE_NO_RANK;
    for (size_t i = 0; i < BPE_LOW * BPE_LOW; i++) bpe.low[i] = BPE_NO_RANK;
    return bpe;
}

static inline bool are_low(int32_t left, int32_t right)
{
    return ((uint32_t)left | (uint32_t)right) < BPE_LOW;
}

void bpe_add(Bpe *bpe)
{
    check(2 * bpe->n < bpe->n_slots);
    uint64_t key = pair_key(bpe->merge[bpe->n].left, bpe->merge[bpe->n].right);
    size_t s = pair_hash(key) & (bpe->n_slots - 1);
    while (bpe->slot[s].rank != BPE_NO_RANK && bpe->slot[s].pair != key) s = (s + 1) & (bpe->n_slots - 1);
    if (bpe->slot[s].rank == BPE_NO_RANK) {
        bpe->slot[s] = (BpeSlot){key, (uint32_t)bpe->n};
        BpeMerge m = bpe->merge[bpe->n];
        if (are_low(m.left, m.right)) bpe->low[m.left * BPE_LOW + m.right] = (uint32_t)bpe->n;
    }
    size_t bit = may_bit(bpe, pair_hash(key));
    bpe->may[bit / 64] |= 1ull << bit % 64;
    bpe->n++; // a pair that is listed twice keeps its first rank
}

Bpe bpe_index(const BpeMerge *merge, size_t n)
{
    Bpe bpe = bpe_empty(merge, n);
    for (size_t i = 0; i < n; i++) bpe_add(&bpe);
    return bpe;
}

void bpe_free(Bpe *bpe)
{
    free(bpe->slot);
    free(bpe->may);
    free(bpe->low);
    *bpe = (Bpe){0};
}

// The rank of a pair, or BPE_NO_RANK.
static inline uint32_t find_rank(const Bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = pair_key(left, right);
    size_t hash = pair_hash(key), bit = may_bit(bpe, hash), s = hash & (bpe->n_slots - 1);
    if (!(bpe->may[bit / 64] >> bit % 64 & 1)) return BPE_NO_RANK;
    while (bpe->slot[s].rank != BPE_NO_RANK && bpe->slot[s].pair != key) s = (s + 1) & (bpe->n_slots - 1);
    return bpe->slot[s].rank;
}

static inline uint32_t find_key(const Bpe *bpe, const int32_t *ids, size_t at, size_t next)
{
    bool low = are_low(ids[at], ids[next]);
    uint32_t rank = low ? bpe->low[ids[at] * BPE_LOW + ids[next]] : find_rank(bpe, ids[at], ids[next]);
    return rank == BPE_NO_RANK ? NO_KEY : rank * SHORT + (uint32_t)at;
}

// For 2 to SHORT ids. Each position has the key rank * SHORT + position, with the rank of the pair that starts there.
// The smallest key gives both the next merge and its leftmost position, and the compiler turns a loop that only takes a
// minimum into a few vector instructions.
static size_t apply_short(const Bpe *bpe, int32_t *ids, size_t n)
{
    uint32_t key[SHORT];               // (n_wide); NO_KEY: no merge, or the token is gone
    uint8_t next[SHORT], prev[SHORT];  // places of the neighbours; the last place is its own next
    size_t n_wide = (n + 15) & ~(size_t)15;
    for (size_t i = 0; i < n; i++) {
        key[i] = i + 1 < n ? find_key(bpe, ids, i, i + 1) : NO_KEY;
        next[i] = (uint8_t)(i + 1 < n ? i + 1 : i);
        prev[i] = (uint8_t)(i - 1); // prev[0] is not read
    }
    for (size_t i = n; i < n_wide; i++) key[i] = NO_KEY;
    for (;;) {
        uint32_t least = NO_KEY;
        for (size_t i = 0; i < n_wide; i++) least = key[i] < least ? key[i] : least;
        if (least == NO_KEY) break;
        size_t at = least % SHORT, right = next[at], behind = next[right];
        ids[at] = bpe->merge[least / SHORT].result;
        ids[right] = -1;
        key[right] = NO_KEY;
        if (behind == right) { // `right` was the last one
            next[at] = (uint8_t)at;
            key[at] = NO_KEY;
        } else {
            next[at] = (uint8_t)behind;
            prev[behind] = (uint8_t)at;
            key[at] = find_key(bpe, ids, at, behind);
        }
        if (at > 0) key[prev[at]] = find_key(bpe, ids, prev[at], at);
    }
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0) ids[n_left++] = ids[i];
    return n_left;
}

static void push_pair(const Bpe *bpe, Heap *heap, const int32_t *ids, uint32_t at, uint32_t next)
{
    uint32_t rank = find_rank(bpe, ids[at], ids[next]);
    if (rank != BPE_NO_RANK) push(heap, rank, at);
}

size_t bpe_apply(const Bpe *bpe, int32_t *ids, size_t n)
{
    if (n < 2) return n;
    if (n <= SHORT && bpe->n < NO_KEY / SHORT) return apply_short(bpe, ids, n);
    if (n > INT32_MAX) die("tokenizer: one word of %zu bytes (split the text)", n);
    Heap heap = {0};
    uint32_t *next = malloc(2 * n * sizeof *next), *prev = next + n; // neighbours that are left; n: none
    if (!next) die("memory: no room to encode a word of %zu bytes", n);
    for (uint32_t i = 0; i < n; i++) {
        next[i] = i + 1;
        prev[i] = i - 1; // prev[0] is not read
        if (i + 1 < n) push_pair(bpe, &heap, ids, i, i + 1);
    }
    while (heap.n) {
        Item top = pop(&heap);
        uint32_t at = (uint32_t)top.lo, right = next[at];
        // A stale entry: the left token was merged away (-1), it is now the last one, or the pair has changed.
        if (ids[at] < 0 || right >= n || find_rank(bpe, ids[at], ids[right]) != top.hi) continue;
        ids[at] = bpe->merge[top.hi].result;
        ids[right] = -1;
        next[at] = next[right];
        if (next[at] < n) {
            prev[next[at]] = at;
            push_pair(bpe, &heap, ids, at, next[at]);
        }
        if (at > 0) push_pair(bpe, &heap, ids, prev[at], at);
    }
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0) ids[n_left++] = ids[i];
    free(next);
    free(heap.item);
    return n_left;
}

// ---- the heap ----
static bool before(Item a, Item b)
{
    return a.hi != b.hi ? a.hi < b.hi : a.lo < b.lo;
}

static void push(Heap *heap, uint64_t hi, uint64_t lo)
{
    heap->item = words_grow(heap->item, &heap->cap, heap->n + 1, sizeof *heap->item);
    Item new = {hi, lo};
    size_t i = heap->n++;
    for (; i > 0 && before(new, heap->item[(i - 1) / 2]); i = (i - 1) / 2)
        heap->item[i] = heap->item[(i - 1) / 2];
    heap->item[i] = new;
}

static Item pop(Heap *heap)
{
    Item top = heap->item[0], last = heap->item[--heap->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < heap->n; i = child) {
        if (child + 1 < heap->n && before(heap->item[child + 1], heap->item[child])) child++;
        if (!before(heap->item[child], last)) break;
        heap->item[i] = heap->item[child];
    }
    heap->item[i] = last;
    return top;
}
