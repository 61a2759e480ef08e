// json_has: JSON of a test, with ' in place of ". Include it after cmocka.
#ifndef TEST_JSON_HAS_H
#define TEST_JSON_HAS_H
#include <jansson.h>
#include <string.h>

OWNER(json_t, json_decref)

// The text in a buffer of its own, up to the next call but seven.
static inline char *json_quoted(const char *text)
{
    static char out[8][2000];
    static int turn;
    char *o = out[turn = (turn + 1) % 8];
    snprintf(o, sizeof *out, "%s", text);
    for (char *c = o; *c; c++)
        if (*c == '\'') *c = '"';
    return o;
}

// The object has every member of the one that is written; null is one that is null or not there.
static inline void json_has(const json_t *object, const char *members)
{
    json_error_t error;
    const char *key;
    json_t *want;
    OWN(json_t) *all = json_loads(json_quoted(members), 0, &error);
    if (!all) fail_msg("%s: %s", members, error.text);
    json_object_foreach(all, key, want) {
        const json_t *got = json_object_get(object, key);
        bool same = json_is_number(want) ? json_is_number(got) && json_number_value(got) == json_number_value(want)
                                         : json_equal(got, want) || (!got && json_is_null(want));
        if (!same) fail_msg("%s is %s", key, got ? json_dumps(got, JSON_ENCODE_ANY) : "not there");
    }
}

static inline json_t *json_file(const char *name)
{
    json_t *json = json_load_file(in_dir(name), JSON_REJECT_DUPLICATES, NULL);
    if (!json) fail_msg("%s: no JSON", name);
    return json;
}
#endif
