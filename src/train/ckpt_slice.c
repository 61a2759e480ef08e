// ckpt_slice: which elements of a tensor a piece of it holds. See ckpt_slice.h.
//
// A tensor (R, W), a part along axis 1, and of that part the elements [from, to):
//
//        0     first          W            Of the whole, row-major, a slice is a few runs of neighbours: one where the
//      +------+---------+------+           part is the tensor, or cut along axis 0; else one for each row of the part.
//      |      |    #####|      |
//      |      |#########|      |           What two slices share is found run by run: a run of the one wanted, against
//      |      |###      |      |           those of the other that can meet it. So a rank copies what it needs, and
//      +------+---------+------+           nothing is ever put together whole.
//
// The invariant: element j of a part is element whole_index(j) of the tensor, in the same order as
// params_whole_index has it. Slices of one tensor tile it when their parts stand one behind the other along the one
// axis that cuts them, and the ranges of each part do so too. That is stricter than it need be (a mixture of cuts
// could tile as well), and takes one pass.
//
// Rejected: offset and extent along every axis, as other formats have it. A range of a flat buffer, which is what
// sharding by elements gives, is no box; it would take up to three of them. The row and column ranges of part.h,
// which a dump's texts have: of a piece that is both cut by columns and sharded they would take a part for its first
// row, one for its last and one for those between, and tiling would have to be counted element by element.
#include "train/ckpt_slice.h"

#include <string.h>

static size_t elems(const size_t dim[PARAM_DIMS])
{
    return dim[0] * dim[1];
}

CkptSlice ckpt_slice_whole(const size_t shape[PARAM_DIMS])
{
    return (CkptSlice){.cut = -1, .dim = {shape[0], shape[1]}, .to = elems(shape)};
}

bool ckpt_slice_is_whole(const CkptSlice *s, const size_t shape[PARAM_DIMS])
{
    return s->from == 0 && s->to == elems(shape) && elems(s->dim) == elems(shape);
}

bool ckpt_slice_fits(const CkptSlice *s, const size_t shape[PARAM_DIMS], int ndim)
{
    if (s->cut < -1 || s->cut >= ndim || (s->cut < 0 && s->first)) return false;
    for (int d = 0; d < PARAM_DIMS; d++)
        if (d == s->cut ? s->first > shape[d] || s->dim[d] > shape[d] - s->first : s->dim[d] != shape[d])
            return false;
    return s->from <= s->to && s->to <= elems(s->dim);
}

bool ckpt_slice_tiles(const CkptSlice *s, int n, const size_t shape[PARAM_DIMS])
{
    if (elems(shape) == 0) return true;
    size_t next = 0, at = 0; // along the axis: where the next part begins; of this part: elements so far
    for (int i = 0; i < n; i++) {
        bool begins = i == 0 || (at == elems(s[i - 1].dim) && s[i].from == 0 && s[i].first == next);
        if (s[i].cut != s[0].cut) return false;
        if (begins) {
            if (s[i].first != next || s[i].from != 0) return false;
            next = s[i].cut < 0 ? 0 : next + s[i].dim[s[i].cut];
            if (s[i].cut < 0 && i > 0) return false;
        } else if (s[i].first != s[i - 1].first || s[i].from != at || memcmp(s[i].dim, s[i - 1].dim, sizeof s[i].dim))
            return false;
        at = s[i].to;
    }
    return n > 0 && at == elems(s[n - 1].dim) && (s[0].cut < 0 || next == shape[s[0].cut]);
}

bool ckpt_slice_meets(const CkptSlice *a, const CkptSlice *b)
{
    if (a->cut != b->cut) return true;
    if (a->first == b->first && !memcmp(a->dim, b->dim, sizeof a->dim)) return a->from < b->to && b->from < a->to;
    return a->cut < 0 || (a->first < b->first + b->dim[b->cut] && b->first < a->first + a->dim[a->cut]);
}

// A run of neighbours in the tensor: [begin, begin + n), and where its first element stands in the slice.
typedef struct {
    size_t begin, n, at;
} Run;

static size_t rows(const CkptSlice *s)
{
    return s->cut == 1 ? s->dim[0] : 1;
}

// The run of one row of a part that is cut along axis 1; else of all of it (row 0).
static Run run_of(const size_t shape[PARAM_DIMS], const CkptSlice *s, size_t row)
{
    if (s->cut < 1) return (Run){s->first * shape[1] + s->from, s->to - s->from, 0};
    size_t begin = row * s->dim[1], end = begin + s->dim[1];
    if (begin < s->from) begin = s->from;
    if (end > s->to) end = s->to;
    if (begin >= end) return (Run){0, 0, 0};
    return (Run){row * shape[1] + s->first + (begin - row * s->dim[1]), end - begin, begin - s->from};
}

static size_t copy_run(Run want, char *dst, Run have, const char *src, size_t bytes)
{
    size_t begin = want.begin > have.begin ? want.begin : have.begin;
    size_t end = want.begin + want.n < have.begin + have.n ? want.begin + want.n : have.begin + have.n;
    if (begin >= end) return 0;
    memcpy(dst + (want.at + begin - want.begin) * bytes, src + (have.at + begin - have.begin) * bytes,
           (end - begin) * bytes);
    return end - begin;
}

size_t ckpt_slice_copy(const size_t shape[PARAM_DIMS], const CkptSlice *want, void *dst, const CkptSlice *have,
                       const void *src, size_t bytes)
{
    size_t copied = 0;
    for (size_t r = 0; r < rows(want); r++) {
        Run run = run_of(shape, want, r);
        if (!run.n) continue;
        size_t low = 0, high = rows(have); // rows of `have` that this run can meet
        if (have->cut == 1) low = run.begin / shape[1], high = (run.begin + run.n - 1) / shape[1] + 1;
        for (size_t q = low; q < high && q < rows(have); q++)
            copied += copy_run(run, dst, run_of(shape, have, q), src, bytes);
    }
    return copied;
}
