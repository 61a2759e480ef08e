// test_part: parts of tensors: where elements go, conversion to text and back, and texts that are not parts.
#include "test/test.h"

#include "src/check/dump.h"

// A tensor (2, 3, 4): its rows 1, 2 and 5, columns 1 and 3.
static Part example(void)
{
    const size_t shape[] = {2, 3, 4};
    Part part = dump_part_make(3, shape, 4);
    dump_part_rows(&part, 1, 1);
    dump_part_rows(&part, 2, 1); // joins the one before
    dump_part_rows(&part, 5, 1);
    dump_part_rows(&part, 4, 0); // nothing
    dump_part_columns(&part, 1, 1);
    dump_part_columns(&part, 3, 1);
    part.at = 12345678901;
    part.error = 1.0 / 3;
    part.stored = ST_BF16;
    return part;
}

TEST(test_elements_go_where_they_belong)
{
    Part part = example();
    const int16_t data[] = {1, 2, 3, 4, 5, 6}, other[] = {1, 2, 3, 4, 5, 7};
    int16_t whole[24] = {0}, expected[24] = {0};
    uint8_t seen[24] = {0};
    const size_t at[] = {5, 7, 9, 11, 21, 23};
    assert_int_equal(part.rows.n, 2);
    assert_int_equal(dump_part_elems(&part), 6);
    assert_int_equal(dump_part_whole_elems(&part), 24);
    assert_true(dump_part_place(&part, whole, seen, data, sizeof *data));
    for (int i = 0; i < 6; i++) expected[at[i]] = data[i];
    assert_memory_equal(whole, expected, sizeof whole);
    for (int i = 0; i < 24; i++) assert_int_equal(seen[i], expected[i] != 0);
    assert_true(dump_part_place(&part, whole, seen, data, sizeof *data)); // again, the same
    assert_int_equal(seen[23], 2);
    assert_false(dump_part_place(&part, whole, seen, other, sizeof *data));
    dump_part_free(&part);
}

TEST(test_text_and_back)
{
    Part part = example(), back;
    char *text = dump_part_text(&part);
    assert_true(dump_part_parse(&back, text));
    assert_int_equal(back.ndim, 3);
    assert_memory_equal(back.shape, part.shape, 3 * sizeof *part.shape);
    assert_int_equal(back.width, 4);
    assert_int_equal(back.rows.n, 2);
    assert_memory_equal(back.rows.range, part.rows.range, 2 * sizeof *part.rows.range);
    assert_memory_equal(back.columns.range, part.columns.range, 2 * sizeof *part.columns.range);
    assert_int_equal(back.at, part.at);
    assert_true(back.error == part.error);
    assert_int_equal(back.stored, ST_BF16);
    assert_int_equal(dump_part_elems(&back), 6);
    free(text);
    dump_part_free(&back);
    for (int type = 0; type < ST_DTYPES; type++) {
        part.stored = (SafeDtype)type;
        text = dump_part_text(&part);
        assert_true(dump_part_parse(&back, text) && back.stored == part.stored);
        free(text);
        dump_part_free(&back);
    }
    dump_part_free(&part);
}

TEST(test_what_is_no_part)
{
    const char *const rest = "\"at\":0,\"error\":0.0,\"stored\":\"F32\"}";
    const char *const wrong[] = {
        "", "[]", "{}", "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[0,4]]}",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,3]],\"columns\":[[0,4]],",          // a row too many
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[3,0]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[-1,1]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[1,4]],",          // a column too many
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[1,9223372036854775807]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2],[1,1]],\"columns\":[[0,4]],", // more than the whole
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[0,4],[0,4],[0,4]],",
        "{\"shape\":[2,4],\"width\":3,\"rows\":[[0,2]],\"columns\":[[0,3]],",          // no such matrix
        "{\"shape\":[2,4],\"width\":0,\"rows\":[[0,2]],\"columns\":[[0,3]],",
        "{\"shape\":[2,0],\"width\":4,\"rows\":[],\"columns\":[[0,4]],",
        "{\"shape\":[4294967296,4294967296,4294967296],\"width\":1,\"rows\":[],\"columns\":[],", // overflows
        "{\"shape\":[1,1,1,1,1],\"width\":1,\"rows\":[],\"columns\":[],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,\"2\"]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[0,4]],",
    };
    Part part;
    char text[400];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t n = strlen(wrong[i]);
        snprintf(text, sizeof text, "%s%s", wrong[i], n && wrong[i][n - 1] == ',' ? rest : "");
        if (dump_part_parse(&part, text)) fail_msg("taken for a part: %s", text);
    }
    assert_true(dump_part_parse(&part, "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[0,4]],\"at\":0,"
                                  "\"error\":0.0,\"stored\":\"F32\"}"));
    dump_part_free(&part);
}

TESTS(NULL, NULL)
