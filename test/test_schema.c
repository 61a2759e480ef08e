// test_schema: is a run's metrics.jsonl what doc/metrics.md promises? Also a program of its own:
//
//   test_schema            tests of the checker: it takes good files and finds each kind of fault
//   test_schema FILE...    checks the files; exit status 1 and one line per fault when there are any
//
// It shares no code with src/record/metrics.c, so that it is an independent check. Per file: every line is one JSON
// object without duplicate keys; its event is known and has every key that its kind needs, of the right type; a number
// may be null only beside its NAME_nan flag; the first line is `start`; train lines have strictly rising steps, and
// tokens are step times batch_tokens; an `end` line is the last.
#include "test/test.h"

#include <jansson.h>

// i: a whole number >= 0, n: a number or null with its flag, s: a string
static const struct {
    const char *event, *keys;
} schema[] = {
    {"start", "step:i name:s text:s params:i steps:i batch_tokens:i t:i"},
    {"resume", "step:i name:s text:s params:i steps:i batch_tokens:i t:i"},
    {"train", "step:i tokens:i loss:n lr:n grad_norm:n dt_ms:n tok_s:n mfu:n ppl:n samples_s:n spikes:i "
              "skips:i t:i"},
    {"val", "step:i tokens:i val_loss:n val_bpb:n seconds:n val_ppl:n t:i"},
    {"end", "step:i tokens:i val_loss:n val_bpb:n seconds:n val_ppl:n t:i"},
    {"sample", "step:i text:s t:i"},
    {"save", "step:i text:s t:i"},
    {"skip", "step:i text:s t:i"},
    {"rollback", "step:i text:s t:i"},
    {"warn", "step:i text:s t:i"},
    {"set", "step:i tokens:i name:s val_loss:n val_bpb:n val_ppl:n t:i"},
    {"task", "step:i tokens:i name:s items:i acc:n acc_norm:n acc_token:n centred:n perplexity:n t:i"},
    {"experts", "step:i tokens:i name:s text:s load_max:n load_min:n entropy:n dropped:n t:i"},
};
enum { EVENTS = sizeof schema / sizeof *schema };

typedef struct {
    const char *path;
    int line, faults;
    bool quiet, ended;
    json_int_t last_train, batch_tokens;
} Check;

static void fault(Check *c, const char *what, const char *detail)
{
    c->faults++;
    if (!c->quiet) printf("%s:%d: %s %s\n", c->path, c->line, what, detail);
}

static void check_key(Check *c, const json_t *object, const char *key, char type)
{
    const json_t *value = json_object_get(object, key);
    char flag[64];
    snprintf(flag, sizeof flag, "%s_nan", key);
    bool flagged = json_is_true(json_object_get(object, flag));
    if (!value) fault(c, "no key", key);
    else if (type == 'i' && (!json_is_integer(value) || json_integer_value(value) < 0)) fault(c, "no count:", key);
    else if (type == 's' && !json_is_string(value)) fault(c, "no string:", key);
    else if (type == 'n' && !(flagged ? json_is_null(value) : json_is_number(value))) fault(c, "no number:", key);
}

static void check_order(Check *c, const json_t *object, const char *event)
{
    json_int_t step = json_integer_value(json_object_get(object, "step"));
    if (c->ended) fault(c, "a line after end:", event);
    if ((c->line == 1) != !strcmp(event, "start")) fault(c, "the first line is start, and no other:", event);
    if (c->line == 1) c->batch_tokens = json_integer_value(json_object_get(object, "batch_tokens"));
    if (!strcmp(event, "train")) {
        if (step <= c->last_train) fault(c, "step", "does not rise");
        c->last_train = step;
    } else if (step < c->last_train && strcmp(event, "save")) fault(c, "a step before the last train line:", event);
    const json_t *tokens = json_object_get(object, "tokens");
    if (tokens && json_integer_value(tokens) != step * c->batch_tokens) fault(c, "tokens", "are not step * batch");
    if (!strcmp(event, "end")) c->ended = true;
}

static void check_line(Check *c, const char *line)
{
    json_error_t error;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    const char *event = json_string_value(json_object_get(object, "event"));
    int row = 0;
    while (event && row < EVENTS && strcmp(schema[row].event, event) != 0) row++;
    if (!object) fault(c, "not JSON:", error.text);
    else if (!event || row == EVENTS) fault(c, "unknown event", event ? event : "(none)");
    else {
        char keys[256], key[32], type;
        snprintf(keys, sizeof keys, "%s", schema[row].keys);
        for (char *word = strtok(keys, " "); word; word = strtok(NULL, " "))
            if (sscanf(word, "%31[a-z_]:%c", key, &type) == 2) check_key(c, object, key, type);
        check_order(c, object, event);
    }
    json_decref(object);
}

// The number of faults in a file; an empty file and an unfinished last line are faults too.
static int check_file(const char *path, FILE *file, bool quiet)
{
    Check c = {.path = path, .quiet = quiet};
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; file && (n = getline(&line, &cap, file)) > 0;) {
        c.line++;
        if (line[n - 1] != '\n') fault(&c, "cut", "line");
        check_line(&c, line);
    }
    free(line);
    if (!c.line) fault(&c, "no lines", "");
    return c.faults;
}

// ---- tests of the checker

#define START "{\"event\":\"start\",\"step\":0,\"name\":\"a\",\"text\":\"m\",\"params\":9,\"steps\":2," \
    "\"batch_tokens\":8,\"t\":1}\n"
#define TRAIN(step, tokens, loss) "{\"event\":\"train\",\"step\":" step ",\"tokens\":" tokens ",\"loss\":" loss \
    ",\"lr\":0.1,\"grad_norm\":1,\"dt_ms\":1,\"tok_s\":1,\"mfu\":0.5,\"ppl\":2,\"samples_s\":1,\"spikes\":0," \
    "\"skips\":0,\"t\":1}\n"
#define END "{\"event\":\"end\",\"step\":2,\"tokens\":16,\"val_loss\":1,\"val_bpb\":1,\"seconds\":2,\"val_ppl\":2," \
    "\"t\":1}\n"
#define SKIP(step) "{\"event\":\"skip\",\"step\":" step ",\"text\":\"x\",\"t\":1}\n"
#define SAVE(step) "{\"event\":\"save\",\"step\":" step ",\"text\":\"x\",\"t\":1}\n"

static int faults_in(const char *text)
{
    FILE *file = fmemopen((void *)text, strlen(text), "r");
    assert_non_null(file);
    int faults = check_file("text", file, true);
    fclose(file);
    return faults;
}

TEST(test_good_files)
{
    const char *whole = START TRAIN("1", "8", "2.5") TRAIN("2", "16", "null,\"loss_nan\":true") SAVE("2") END;
    assert_int_equal(faults_in(whole), 0);
    assert_int_equal(faults_in(START), 0);
    assert_int_equal(faults_in(START TRAIN("2", "16", "1") SAVE("1")), 0); // committed while training went on
}

TEST(test_each_fault_is_found)
{
    static const char *const bad[] = {
        START "{\"event\":\"train\"\n",                           // cut
        START "{\"event\":\"save\",\"step\":1,\"step\":1,\"text\":\"x\",\"t\":1}\n", // duplicate key
        START "{\"event\":\"feast\",\"step\":1,\"t\":1}\n",       // unknown event
        START "{\"step\":1,\"t\":1}\n",                           // no event
        START "[1]\n",                                            // no object
        START "{\"event\":\"save\",\"step\":1,\"t\":1}\n",        // missing key
        START TRAIN("1", "8", "null"),                            // null without flag
        START TRAIN("1", "8", "NaN"),                             // not JSON
        START TRAIN("1", "8", "\"2.5\""),                         // a string for a number
        START TRAIN("1", "8", "2.5,\"loss_nan\":true"),           // a flag beside a number
        START SAVE("-1"),                                         // negative count
        START TRAIN("1", "8", "1") TRAIN("1", "8", "1"),          // a step twice
        START TRAIN("2", "16", "1") TRAIN("1", "8", "1"),         // backwards
        START TRAIN("2", "16", "1") SKIP("1"),                    // an event of the past
        START TRAIN("1", "9", "1"),                               // tokens
        START END TRAIN("3", "24", "1"),                          // after the end
        TRAIN("1", "0", "1"),                                     // no start
        START START,                                              // two starts
        "\n", "",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!*bad[i]) assert_true(check_file("none", NULL, true) > 0);
        else if (faults_in(bad[i]) == 0) fail_msg("no fault found in %s", bad[i]);
    char cut[] = START SAVE("1");
    cut[sizeof cut - 2] = 0; // without its newline
    assert_true(faults_in(cut) > 0);
}

int main(int argc, char **argv)
{
    int faults = 0;
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "r");
        faults += check_file(argv[i], file, false);
        if (file) fclose(file);
    }
    return argc > 1 ? faults > 0 : RUN_TESTS(NULL, NULL);
}
