// part: which elements of a whole tensor an array holds. See part.h.
//
// A dump has one file for each rank, and a rank has a piece of most tensors: some samples, some tokens, some heads, a
// range of a gradient. Whoever puts the whole together must not need to know which axes the run was cut along, how
// often, or in which order: a rule for each layout would be as many rules as there are layouts, and each would repeat
// what the layout's own file says. So the one who cuts writes down what came out, in numbers:
//
//     {"shape": [8,32,64], "width": 64, "rows": [[0,16],[48,16]], "columns": [[32,32]], ...}
//
// reads: of 8 x 32 rows of 64 columns, rows 0 to 15 and 48 to 63, of each columns 32 to 63.
//
// The invariant: element k of the array, k = i C + j for C columns held, is row i of the concatenated row ranges,
// column j of the concatenated column ranges. Parts of one tensor may overlap, as long as they agree.
//
// Rejected: a list of flat element ranges. It says everything too, but a quarter of the columns of 10^5 rows would be
// 10^5 ranges. [axis, first, count] per cut axis: the zig-zag of context parallelism is two stretches of a sequence,
// and sequence parallelism shares rows that are samples and tokens at once.
#include "train/part.h"

#include "base/check.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

Part part_make(int ndim, const size_t *shape, size_t width)
{
    check(ndim >= 0 && ndim <= PART_DIMS);
    Part part = {.ndim = ndim, .width = width, .stored = ST_F32};
    memcpy(part.shape, shape, (size_t)ndim * sizeof *shape);
    return part;
}

static void add(PartList *list, size_t first, size_t count)
{
    PartRange *last = list->n ? &list->range[list->n - 1] : NULL;
    list->held += count;
    if (!count) return;
    if (last && last->first + last->count == first) {
        last->count += count;
        return;
    }
    if ((list->n & (list->n - 1)) == 0) { // full: twice as many
        list->range = realloc(list->range, (list->n ? 2 * list->n : 1) * sizeof *list->range);
        if (!list->range) die("part: no memory for %zu ranges", list->n);
    }
    list->range[list->n++] = (PartRange){first, count};
}

void part_rows(Part *part, size_t first, size_t count)
{
    add(&part->rows, first, count);
}

void part_columns(Part *part, size_t first, size_t count)
{
    add(&part->columns, first, count);
}

size_t part_elems(const Part *part)
{
    return part->rows.held * part->columns.held;
}

size_t part_whole_elems(const Part *part)
{
    size_t n = 1;
    for (int d = 0; d < part->ndim; d++) n *= part->shape[d];
    return n;
}

void part_free(Part *part)
{
    free(part->rows.range);
    free(part->columns.range);
    *part = (Part){0};
}

// ---- text

static json_t *list_json(const PartList *list)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(array, json_pack("[II]", (json_int_t)list->range[i].first,
                                               (json_int_t)list->range[i].count));
    return array;
}

char *part_text(const Part *part)
{
    json_t *shape = json_array();
    for (int d = 0; d < part->ndim; d++) json_array_append_new(shape, json_integer((json_int_t)part->shape[d]));
    json_t *object = json_pack("{s:o, s:I, s:o, s:o, s:I, s:f, s:s}", "shape", shape, "width", (json_int_t)part->width,
                               "rows", list_json(&part->rows), "columns", list_json(&part->columns), "at",
                               (json_int_t)part->at, "error", part->error, "stored",
                               safetensors_dtype_name(part->stored));
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text) die("part: no memory for its text");
    return text;
}

// Ranges within [0, limit).
static bool parse_list(PartList *list, const json_t *array, size_t limit)
{
    size_t i;
    json_t *pair;
    if (!json_is_array(array)) return false;
    json_array_foreach(array, i, pair) {
        json_int_t first, count;
        if (json_array_size(pair) != 2 || !json_is_integer(json_array_get(pair, 0)) ||
            !json_is_integer(json_array_get(pair, 1)))
            return false;
        first = json_integer_value(json_array_get(pair, 0));
        count = json_integer_value(json_array_get(pair, 1));
        if (first < 0 || count < 0 || (size_t)first > limit || (size_t)count > limit - (size_t)first) return false;
        if ((size_t)count > limit - list->held) return false; // more than the whole: some twice
        add(list, (size_t)first, (size_t)count);
    }
    return true;
}

static bool parse_shape(Part *part, const json_t *array)
{
    size_t limit = SIZE_MAX / 16;
    if (!json_is_array(array) || json_array_size(array) > PART_DIMS) return false;
    part->ndim = (int)json_array_size(array);
    for (int d = 0; d < part->ndim; d++) {
        json_int_t n = json_integer_value(json_array_get(array, (size_t)d));
        if (!json_is_integer(json_array_get(array, (size_t)d)) || n < 1 || (size_t)n > limit) return false;
        part->shape[d] = (size_t)n;
        limit /= (size_t)n;
    }
    return true;
}

static bool parse_object(Part *part, const json_t *object)
{
    json_int_t width = json_integer_value(json_object_get(object, "width"));
    const char *stored = json_string_value(json_object_get(object, "stored"));
    if (!parse_shape(part, json_object_get(object, "shape")) || width < 1) return false;
    size_t n = part_whole_elems(part);
    part->width = (size_t)width;
    part->at = (long)json_integer_value(json_object_get(object, "at"));
    part->error = json_number_value(json_object_get(object, "error"));
    if (n % part->width || !(part->error >= 0) || !stored) return false;
    int dtype = 0;
    while (dtype < ST_DTYPES && strcmp(stored, safetensors_dtype_name((SafeDtype)dtype))) dtype++;
    part->stored = (SafeDtype)dtype;
    return dtype < ST_DTYPES && parse_list(&part->rows, json_object_get(object, "rows"), n / part->width) &&
           parse_list(&part->columns, json_object_get(object, "columns"), part->width);
}

bool part_parse(Part *part, const char *text)
{
    *part = (Part){0};
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    bool ok = json_is_object(object) && parse_object(part, object);
    json_decref(object);
    if (!ok) part_free(part);
    return ok;
}

// ---- elements

bool part_place(const Part *part, void *whole, uint8_t *seen, const void *data, size_t n_bytes)
{
    const char *from = data;
    bool agrees = true;
    for (size_t r = 0; r < part->rows.n; r++)
        for (size_t i = 0; i < part->rows.range[r].count; i++)
            for (size_t c = 0; c < part->columns.n; c++) {
                PartRange columns = part->columns.range[c];
                size_t first = (part->rows.range[r].first + i) * part->width + columns.first;
                char *to = (char *)whole + first * n_bytes;
                for (size_t k = 0; k < columns.count; k++) {
                    uint8_t *times = &seen[first + k];
                    agrees = agrees && (!*times || !memcmp(to + k * n_bytes, from + k * n_bytes, n_bytes));
                    *times = (uint8_t)(*times + (*times < UINT8_MAX));
                }
                memcpy(to, from, columns.count * n_bytes);
                from += columns.count * n_bytes;
            }
    return agrees;
}
