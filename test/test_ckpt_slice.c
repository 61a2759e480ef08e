// Slices of tensors: what two of them share, against a loop over every element; and which sets of them form a tensor.
#include "ckpt/ckpt.h"
#include "base/rng.h"

#include "test/test.h"

// Index in the tensor of element j of a slice.
static size_t index_of(const size_t shape[2], const CkptSlice *s, size_t j)
{
    Param row = {.cut = s->cut, .first = s->first, .dim = {s->dim[0], s->dim[1]}, .whole = {shape[0], shape[1]}};
    return params_whole_index(&row, s->from + j);
}

static size_t draw(uint32_t *at, size_t n)
{
    return (size_t)(rng_uniform(rng_make(1, "slices", 0), (*at)++) * (double)n);
}

static CkptSlice random_slice(const size_t shape[2], uint32_t *at)
{
    CkptSlice s = ckpt_slice_whole(shape);
    s.cut = (int)draw(at, 3) - 1;
    if (s.cut >= 0) {
        s.first = draw(at, shape[s.cut]);
        s.dim[s.cut] = 1 + draw(at, shape[s.cut] - s.first);
    }
    size_t n = s.dim[0] * s.dim[1];
    s.from = draw(at, n + 1);
    s.to = s.from + draw(at, n - s.from + 1);
    if (draw(at, 4) == 0) s.from = 0, s.to = n;
    return s;
}

TEST(test_copy)
{
    uint32_t at = 0;
    size_t met = 0, shared = 0;
    for (int round = 0; round < 20000; round++) {
        size_t shape[2] = {1 + draw(&at, 6), 1 + draw(&at, 6)};
        CkptSlice want = random_slice(shape, &at), have = random_slice(shape, &at);
        assert_true(ckpt_slice_fits(&want, shape, 2) && ckpt_slice_fits(&have, shape, 2));
        uint16_t src[36], dst[36], expected[36];
        bool there[36] = {false};
        memset(dst, 0xEE, sizeof dst);
        memset(expected, 0xEE, sizeof expected);
        for (size_t j = 0; j < have.to - have.from; j++) {
            src[j] = (uint16_t)(100 + index_of(shape, &have, j));
            there[index_of(shape, &have, j)] = true;
        }
        size_t n = 0;
        for (size_t j = 0; j < want.to - want.from; j++) {
            size_t i = index_of(shape, &want, j);
            if (there[i]) expected[j] = (uint16_t)(100 + i), n++;
        }
        assert_int_equal(ckpt_slice_copy(shape, &want, dst, &have, src, 2), n);
        assert_memory_equal(dst, expected, sizeof dst);
        if (n) assert_true(ckpt_slice_meets(&want, &have)); // no false alarm of the quick look
        met += ckpt_slice_meets(&want, &have), shared += n > 0;
    }
    assert_true(shared > 1000 && met < 20000);
}

TEST(test_fits)
{
    const size_t shape[2] = {4, 6}, vector[2] = {5, 1};
    static const struct {
        CkptSlice s;
        bool fits;
    } rows[] = {
        {{-1, 0, {4, 6}, 0, 24}, true},  {{-1, 0, {4, 6}, 7, 7}, true},  {{-1, 0, {4, 6}, 0, 25}, false},
        {{-1, 0, {4, 6}, 9, 8}, false},  {{-1, 1, {4, 6}, 0, 24}, false}, {{-1, 0, {3, 6}, 0, 18}, false},
        {{0, 1, {3, 6}, 0, 18}, true},   {{0, 2, {3, 6}, 0, 18}, false}, {{0, SIZE_MAX, {3, 6}, 0, 18}, false},
        {{1, 5, {4, 1}, 0, 4}, true},    {{1, 5, {4, 2}, 0, 4}, false},  {{1, 0, {3, 6}, 0, 4}, false},
        {{2, 0, {4, 6}, 0, 4}, false},   {{-2, 0, {4, 6}, 0, 4}, false}, {{0, 0, {5, 6}, 0, 4}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ckpt_slice_fits(&rows[i].s, shape, 2) != rows[i].fits) fail_msg("row %zu", i);
    const CkptSlice along = {1, 0, {5, 1}, 0, 5};
    assert_false(ckpt_slice_fits(&along, vector, 1)); // a vector has no axis 1
    assert_true(ckpt_slice_fits(&along, vector, 2));
}

// Cuts a tensor at random: into parts, and those into ranges; that tiles. Any slice left out, doubled, moved or
// stretched does not.
TEST(test_tiles)
{
    uint32_t at = 0;
    for (int round = 0; round < 3000; round++) {
        size_t shape[2] = {1 + draw(&at, 5), 1 + draw(&at, 5)};
        CkptSlice s[64];
        int n = 0, cut = (int)draw(&at, 3) - 1;
        size_t whole = cut < 0 ? 1 : shape[cut];
        for (size_t first = 0, size; first < whole; first += size) {
            size = cut < 0 ? 1 : 1 + draw(&at, whole - first);
            CkptSlice part = ckpt_slice_whole(shape);
            if (cut >= 0) part.cut = cut, part.first = first, part.dim[cut] = size;
            size_t elems = part.dim[0] * part.dim[1];
            for (size_t from = 0, to; from < elems; from = to) {
                to = from + 1 + draw(&at, elems - from);
                s[n] = part;
                s[n].from = from, s[n++].to = to;
            }
        }
        assert_true(ckpt_slice_tiles(s, n, shape));
        int i = (int)draw(&at, (size_t)n);
        CkptSlice bad[65];
        memcpy(bad, s, sizeof s);
        memmove(bad + i, bad + i + 1, (size_t)(n - i - 1) * sizeof *s);
        assert_false(ckpt_slice_tiles(bad, n - 1, shape)); // left out
        memcpy(bad, s, sizeof s);
        memmove(bad + i + 1, bad + i, (size_t)(n - i) * sizeof *s);
        assert_false(ckpt_slice_tiles(bad, n + 1, shape)); // twice
        memcpy(bad, s, sizeof s);
        bad[i].from++;
        assert_false(ckpt_slice_tiles(bad, n, shape));
        bad[i] = s[i];
        bad[i].to--;
        assert_false(ckpt_slice_tiles(bad, n, shape));
        bad[i] = s[i];
        if (cut >= 0) {
            bad[i].first++;
            assert_false(ckpt_slice_tiles(bad, n, shape));
        }
        if (n > 1) { // out of order
            memcpy(bad, s, sizeof s);
            int other = (i + 1) % n;
            bad[i] = s[other], bad[other] = s[i];
            assert_false(ckpt_slice_tiles(bad, n, shape));
        }
    }
    const size_t none[2] = {0, 3};
    assert_true(ckpt_slice_tiles(NULL, 0, none));
    const size_t some[2] = {1, 3};
    assert_false(ckpt_slice_tiles(NULL, 0, some));
}

TESTS(NULL, NULL)
