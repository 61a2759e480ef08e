// test_replicas: one process alone, as a training step sees it: all sequences, sums and answers are its own; its units'
// ranges, and the pieces of its checkpoint, which are every element of the weights and of the optimizer's arrays once.
// (Several processes: test_layouts.)
#include "optim_case.h"

#include "train/replicas.h"

#include <stdlib.h>
#include <string.h>

TEST(test_alone)
{
    Replicas r = replicas_alone(NULL);
    int told = 7;
    bool takes_part = false;
    char layout[40];
    assert_true(r.rank == 0 && r.size == 1 && r.cores == 1);
    size_t first = 7;
    assert_true(replicas_share(&r, 24, &first) == 24 && first == 0);
    assert_int_equal(replicas_sum_targets(&r, -5), -5);
    assert_true(replicas_sum(&r, 2.5) == 2.5 && replicas_any(&r, true) && !replicas_any(&r, false));
    replicas_tell(&r, &told, sizeof told);
    assert_int_equal(told, 7);
    replicas_wait(&r), replicas_agree(&r, 3);
    replicas_phase(&r, 3, "step"), replicas_alive(&r); // to no supervisor
    assert_null(replicas_evaluation(&r));
    assert_null(replicas_sampling(&r, &takes_part).next_logits);
    assert_true(takes_part);
    replicas_describe(&r, layout, sizeof layout);
    assert_string_equal(layout, "dp 1");
}

TEST(test_ranges)
{
    Case c;
    case_open(&c, OPTIM_ADAMW, 1);
    Replicas r = replicas_alone(NULL);
    r.model = &c.model, r.optim = &c.optim;
    size_t next = 0;
    float *copy = zeroed(c.n * sizeof *copy);
    for (int unit = 0; unit < c.model.params.n_units; unit++) {
        OptimRange range;
        assert_true(replicas_range(&r, unit, &range));
        assert_int_equal(range.begin, next);
        assert_ptr_equal(range.weight, c.model.weights + range.begin);
        assert_ptr_equal(range.grad, c.model.grads + range.begin);
        next = range.end;
        replicas_read_weights(&r, unit, copy);
        assert_memory_equal(copy, range.weight, (range.end - range.begin) * sizeof *copy);
    }
    assert_int_equal(next, c.n);
    free(copy);
    case_close(&c);
}

// Each byte of the weights and of each array is that of one piece; pieces go out, and come back to where they were.
TEST(test_pieces)
{
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case c;
        case_open(&c, (OptimName)name, 1);
        Replicas r = replicas_alone(NULL);
        r.model = &c.model, r.optim = &c.optim;
        CkptPart part = replicas_checkpoint(&r, true);
        assert_int_equal(part.n_arrays, c.optim.kind->n_states);
        int k = 0;
        for (int a = -1; a < part.n_arrays; a++) {
            const CkptArray *array = a < 0 ? NULL : &c.optim.state[a];
            size_t n_elems = array ? optim_range_elems(array, &c.model.params, 0, c.n) : c.n, at = 0;
            size_t n_bytes = n_elems * (array ? safetensors_dtype_bytes(array->dtype) : 4);
            unsigned char *data = array ? array->data : c.model.weights;
            for (size_t i = 0; i < n_bytes; i++) data[i] = (unsigned char)(i % 251);
            for (int row = -1; k < part.n && part.piece[k].array == a; k++) {
                const CkptPiece *piece = &part.piece[k];
                size_t bytes = ckpt_piece_bytes(&part, piece);
                unsigned char *out = zeroed(bytes);
                assert_true(piece->row > row && piece->unit == c.model.params.row[piece->row].unit);
                row = piece->row;
                assert_true(piece->slice.cut == -1 && piece->slice.from == 0);
                if (!array) assert_true(ckpt_slice_is_whole(&piece->slice, c.model.params.row[row].dim));
                part.move(part.self, piece, out, true);
                for (size_t i = 0; i < bytes; i++) assert_int_equal(out[i], (at + i) % 251);
                memset(data + at, 255, bytes);
                part.move(part.self, piece, out, false);
                for (size_t i = 0; i < n_bytes; i++) assert_int_equal(data[i], i % 251);
                at += bytes;
                free(out);
            }
            assert_int_equal(at, n_bytes);
        }
        assert_int_equal(k, part.n);
        replicas_checkpoint_free(&r, &part);
        case_close(&c);
    }
}

TESTS(NULL, NULL)
