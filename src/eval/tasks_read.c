// tasks_read: the files of benchmark tasks, from a dataset's own fields to contexts and endings.
//
// A dataset's file has one question a line, under its publisher's field names. A row of `formats` says by which fields
// it is known, and how it becomes n contexts and n endings; most tasks have one context for all endings, WinoGrande one
// ending for all contexts. The wording is that of lm-evaluation-harness, whose figures most papers quote. The ending
// follows its context after one space.
//
// OLMES' request files have one ending a line, worded already; consecutive lines of one doc_id are an item. Numbers
// from 1,000,000 on are the same items after "Answer:" alone. llm.c's file (magic number 20240522) has tokens.
//
// The invariant: what is accepted has at least two endings an item and an answer among them, or one ending in every
// item. No count in a file is believed before the bytes that it counts are there.
//
// Rejected: guessing the format from the file's name (the contents decide, and NAME= settles what they cannot: whether
// MMLU is asked for letters or for answers).
#define _GNU_SOURCE // asprintf
#include "eval/tasks.h"

#include "base/check.h"
#include "base/disk.h"
#include "base/words.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>

enum { MOST_LINE = 4 << 20, MOST_ENDINGS = 1000, PLAIN = 1000000 };

// Where the reader is, for messages.
typedef struct {
    const char *path;
    int line;
} Place;

// One question of a dataset.
typedef struct {
    char **context, **ending; // (n); an ending without the space before it
    size_t n, gold;
    char *topic, *subject;    // MMLU: how the context begins, and whose it is; NULL: with the question
} Question;

__attribute__((format(printf, 1, 2))) static char *print(const char *fmt, ...)
{
    va_list args;
    char *text;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) die("tasks: no memory for a text");
    va_end(args);
    return text;
}

// ---- the fields of a line

static const char *text_of(Place at, const json_t *object, const char *field)
{
    const char *text = json_string_value(json_object_get(object, field));
    if (!text) die("%s:%d: no text '%s' (a file of another task? try --task NAME=FILE)", at.path, at.line, field);
    return text;
}

static const json_t *list_of(Place at, const json_t *object, const char *field)
{
    const json_t *list = json_object_get(object, field);
    if (!json_is_array(list)) die("%s:%d: no list '%s'", at.path, at.line, field);
    return list;
}

static const char *text_at(Place at, const json_t *list, size_t i, const char *field)
{
    const char *text = json_string_value(json_array_get(list, i));
    if (!text) die("%s:%d: %s: number %zu is no text", at.path, at.line, field, i + 1);
    return text;
}

// The answer: a number from `first` on, as such, as text or as a letter from A on; where that is 0, false and true too.
static size_t answer_of(Place at, const json_t *object, const char *field, int first)
{
    const json_t *value = json_object_get(object, field);
    const char *text = json_string_value(value);
    char *shown, *end;
    json_int_t n = json_integer_value(value);
    if (json_is_boolean(value) && !first) return json_is_true(value);
    if (json_is_integer(value) && n >= first) return (size_t)(n - first);
    if (text && isdigit((unsigned char)*text)) {
        long number = strtol(text, &end, 10);
        if (!*end && number >= first && number < PLAIN) return (size_t)(number - first);
    }
    if (text && *text >= 'A' && *text <= 'Z' && !text[1]) return (size_t)(*text - 'A');
    if (!value) die("%s:%d: no '%s', which is the answer", at.path, at.line, field);
    if (!(shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT))) die("tasks: no memory");
    die("%s:%d: %s: %.40s is not the number of an answer (a test set without answers?)", at.path, at.line, field,
        shown);
}

// ---- a question

// context: fresh; the question has it from here on.
static void add(Place at, Question *q, char *context, const char *ending)
{
    if (q->n == MOST_ENDINGS) die("%s:%d: more than %d endings", at.path, at.line, MOST_ENDINGS);
    q->context = realloc(q->context, (q->n + 1) * sizeof *q->context);
    q->ending = realloc(q->ending, (q->n + 1) * sizeof *q->ending);
    if (!q->context || !q->ending) die("tasks: no memory for %zu endings", q->n + 1);
    q->context[q->n] = context;
    q->ending[q->n++] = print("%s", ending);
}

static void forget(Question *q)
{
    for (size_t i = 0; i < q->n; i++) {
        free(q->context[i]);
        free(q->ending[i]);
    }
    free(q->context);
    free(q->ending);
    free(q->topic);
    free(q->subject);
    *q = (Question){0};
}

static char *replaced(char *text, const char *from, const char *to) // frees text
{
    size_t n = strlen(from), m = strlen(to), length = strlen(text);
    char *out = malloc(length * (m > n ? m : n) + 1), *end = out;
    if (!out) die("tasks: no memory for a text of %zu bytes", length);
    for (const char *c = text; *c;)
        if (!strncmp(c, from, n)) end = (char *)memcpy(end, to, m) + m, c += n;
        else *end++ = *c++;
    *end = 0;
    free(text);
    return out;
}

// WikiHow's texts in HellaSwag have headings: "[header] How to ... [title] Do ... [step] ..."
static char *without_headings(char *text) // frees text
{
    size_t n = strlen(text);
    const char *start = words_strip(text, &n);
    char *out = replaced(print("%.*s", (int)n, start), " [title]", ". "), *to = out;
    free(text);
    for (const char *c = out, *close; *c;) {
        if (*c == '[' && (close = strchr(c, ']')) && !memchr(c, '\n', (size_t)(close - c))) c = close + 1;
        else *to++ = *c++;
    }
    *to = 0;
    return replaced(out, "  ", " ");
}

// As Python's capitalize(): the first letter is a title's, the others are small.
static char *capitalized(const char *text)
{
    size_t n = strlen(text), k = 0;
    char *out = malloc(2 * n + 1); // a letter of 2 bytes may become one of 3
    if (!out) die("tasks: no memory for a text of %zu bytes", n);
    for (const char *c = text, *end = text + n; c < end;) {
        int32_t code;
        bool first = c == text;
        c += utf8proc_iterate((const uint8_t *)c, end - c, &code);
        k += (size_t)utf8proc_encode_char(first ? utf8proc_totitle(code) : utf8proc_tolower(code), (uint8_t *)out + k);
    }
    out[k] = 0;
    return out;
}

static void read_hellaswag(Place at, const json_t *doc, Question *q)
{
    const json_t *endings = list_of(at, doc, "endings");
    char *second = capitalized(text_of(at, doc, "ctx_b"));
    char *context = without_headings(print("%s: %s %s", text_of(at, doc, "activity_label"), text_of(at, doc, "ctx_a"),
                                           second));
    for (size_t i = 0; i < json_array_size(endings); i++) {
        char *ending = without_headings(print("%s", text_at(at, endings, i, "endings")));
        add(at, q, print("%s", context), ending);
        free(ending);
    }
    q->gold = answer_of(at, doc, "label", 0);
    free(context);
    free(second);
}

static void read_piqa(Place at, const json_t *doc, Question *q)
{
    for (int i = 0; i < 2; i++)
        add(at, q, print("Question: %s\nAnswer:", text_of(at, doc, "goal")), text_of(at, doc, i ? "sol2" : "sol1"));
    q->gold = answer_of(at, doc, "label", 0);
}

// choices: {"text": [...], "label": ["A", ...]}
static void read_choices(Place at, const json_t *doc, const char *before, const char *question, const char *after,
                         Question *q)
{
    const json_t *choices = json_object_get(doc, "choices"), *text = list_of(at, choices, "text");
    const json_t *label = list_of(at, choices, "label");
    const char *key = text_of(at, doc, "answerKey");
    size_t n = json_array_size(text);
    if (json_array_size(label) != n)
        die("%s:%d: choices: %zu texts and %zu labels", at.path, at.line, n, json_array_size(label));
    q->gold = n;
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(text_at(at, label, i, "label"), key) && q->gold == n) q->gold = i;
        add(at, q, print("%s%s%s", before, question, after), text_at(at, text, i, "text"));
    }
    if (q->gold == n) die("%s:%d: answerKey: '%.40s' is no label", at.path, at.line, key);
}

static void read_arc(Place at, const json_t *doc, Question *q)
{
    read_choices(at, doc, "Question: ", text_of(at, doc, "question"), "\nAnswer:", q);
}

static void read_openbookqa(Place at, const json_t *doc, Question *q)
{
    read_choices(at, doc, "", text_of(at, doc, "question_stem"), "", q);
}

// Partial evaluation (Trinh and Le, arXiv 1806.02847): the contexts end in the two names, the ending is what follows.
static void read_winogrande(Place at, const json_t *doc, Question *q)
{
    const char *sentence = text_of(at, doc, "sentence"), *gap = strchr(sentence, '_');
    if (!gap) die("%s:%d: sentence: no _", at.path, at.line);
    size_t n = strlen(gap + 1);
    const char *rest = words_strip(gap + 1, &n);
    char *ending = print("%.*s", (int)n, rest);
    for (int i = 0; i < 2; i++)
        add(at, q, print("%.*s%s", (int)(gap - sentence), sentence, text_of(at, doc, i ? "option2" : "option1")),
            ending);
    q->gold = answer_of(at, doc, "answer", 1);
    free(ending);
}

static void read_boolq(Place at, const json_t *doc, Question *q)
{
    for (int i = 0; i < 2; i++)
        add(at, q, print("%s\nQuestion: %s?\nAnswer:", text_of(at, doc, "passage"), text_of(at, doc, "question")),
            i ? "yes" : "no");
    q->gold = answer_of(at, doc, json_object_get(doc, "label") ? "label" : "answer", 0);
}

static void read_lambada(Place at, const json_t *doc, Question *q)
{
    const char *text = text_of(at, doc, "text"), *space = strrchr(text, ' ');
    add(at, q, print("%.*s", (int)(space ? space - text : 0), text), space ? space + 1 : text);
}

static void read_mmlu(Place at, const json_t *doc, Question *q, bool letters)
{
    const json_t *choices = list_of(at, doc, "choices"), *subject = json_object_get(doc, "subject");
    size_t n = json_array_size(choices);
    size_t length = strlen(text_of(at, doc, "question"));
    const char *question = words_strip(text_of(at, doc, "question"), &length);
    if (n > 26) die("%s:%d: %zu choices, 26 letters", at.path, at.line, n);
    char *context = print("%s%.*s", letters ? "" : "Question: ", (int)length, question);
    for (size_t i = 0; letters && i < n; i++) {
        char *longer = print("%s\n%c. %s", context, (int)('A' + i), text_at(at, choices, i, "choices"));
        free(context);
        context = longer;
    }
    for (size_t i = 0; i < n; i++) {
        const char letter[] = {(char)('A' + i), 0};
        add(at, q, print("%s\nAnswer:", context), letters ? letter : text_at(at, choices, i, "choices"));
    }
    free(context);
    q->gold = answer_of(at, doc, "answer", 0);
    if (!json_is_string(subject)) return;
    q->subject = print("%s", json_string_value(subject));
    for (char *c = q->subject; *c; c++) *c = iscntrl((unsigned char)*c) ? '?' : *c; // it is printed
    q->topic = replaced(print("The following are %squestions (with answers) about %s.\n\n",
                              letters ? "multiple choice " : "", json_string_value(subject)), "_", " ");
}

static void read_mmlu_letters(Place at, const json_t *doc, Question *q)
{
    read_mmlu(at, doc, q, true);
}

static void read_mmlu_full(Place at, const json_t *doc, Question *q)
{
    read_mmlu(at, doc, q, false);
}

// In the order in which they are tried.
typedef struct {
    const char *name;
    const char *field[3]; // all of which a line has; none: only NAME= says it
    void (*read)(Place at, const json_t *doc, Question *q);
} Wording;
static const Wording formats[] = {
    {"hellaswag", {"ctx_a", "endings", "activity_label"}, read_hellaswag},
    {"piqa", {"goal", "sol1", "sol2"}, read_piqa},
    {"winogrande", {"sentence", "option1", "option2"}, read_winogrande},
    {"openbookqa", {"question_stem", "choices", "answerKey"}, read_openbookqa},
    {"boolq", {"passage", "question", NULL}, read_boolq},
    {"mmlu", {"question", "choices", "answer"}, read_mmlu_letters},
    {"mmlu_full", {NULL, NULL, NULL}, read_mmlu_full},
    {"arc", {"question", "choices", "answerKey"}, read_arc},
    {"lambada", {"text", NULL, NULL}, read_lambada}};
enum { FORMATS = sizeof formats / sizeof *formats };

// name: NULL, or NAME, of which the first word may be a format's name.
static const Wording *format_of(Place at, const char *name, const json_t *doc)
{
    const Wording *found = NULL;
    for (const Wording *f = formats; name && f < formats + FORMATS; f++) {
        size_t n = strlen(f->name);
        if (!strncmp(name, f->name, n) && !isalnum((unsigned char)name[n]) && (!found || n > strlen(found->name)))
            found = f;
    }
    for (const Wording *f = formats; !found && f < formats + FORMATS; f++) {
        bool all = f->field[0];
        for (int i = 0; i < 3 && f->field[i]; i++) all &= json_object_get(doc, f->field[i]) != NULL;
        if (all) found = f;
    }
    if (!found) die("%s:%d: the fields are those of no known task (try --task NAME=FILE; doc/eval.md lists them)",
                    at.path, at.line);
    return found;
}

// ---- items

static TasksChoice choice_of(const char *before, const char *context, const char *ending)
{
    TasksChoice c = {.context = print("%s%s", before, context), .ending = print("%s", ending)};
    const char *text = ending + (*ending == ' ');
    c.bytes = strlen(text);
    for (const char *b = text; *b; b++) c.chars += (*b & 0xC0) != 0x80; // bytes that begin a character
    return c;
}

static TasksItem *new_item(Tasks *t, int line)
{
    t->item = words_grow(t->item, &t->cap, t->n + 1, sizeof *t->item);
    t->item[t->n] = (TasksItem){.id = (int64_t)t->n, .line = line};
    return &t->item[t->n++];
}

static TasksChoice *new_choice(TasksChoice **list, size_t n)
{
    *list = realloc(*list, (n + 1) * sizeof **list);
    if (!*list) die("tasks: no memory for %zu endings", n + 1);
    return *list + n;
}

// Of a request file.
static void check_item(const Tasks *t, Place at, const TasksItem *item)
{
    if (item->n > 1 && item->gold == SIZE_MAX)
        die("%s:%d: label: not the number of an answer", at.path, item->line);
    if (item->n > 1 && item->gold >= item->n)
        die("%s:%d: the answer is number %zu of %zu choices", at.path, item->line, item->gold + 1, item->n);
    if (item->n == 0 || (item->n == 1) != (t->item[0].n == 1))
        die("%s:%d: %zu choices (2 are the least, or 1 in every item)", at.path, at.line, item->n);
}

// ---- JSON lines

typedef struct {
    Place at;
    const char *next, *end;
} Lines;

// The object of the next line that is not empty; NULL at the end.
static json_t *next_line(Lines *l)
{
    for (; l->next < l->end; ) {
        const char *line = l->next, *stop = memchr(line, '\n', (size_t)(l->end - line));
        if (!stop) stop = l->end;
        l->next = stop + 1;
        l->at.line++;
        if (line + strspn(line, " \t\r") >= stop) continue;
        json_error_t error;
        if (stop - line > MOST_LINE) die("%s:%d: a line of %zd bytes (%d at most)", l->at.path, l->at.line,
                                         (ssize_t)(stop - line), MOST_LINE);
        json_t *object = json_loadb(line, (size_t)(stop - line), JSON_REJECT_DUPLICATES, &error);
        if (!object) die("%s:%d: not JSON: %s (is it cut, or CSV? mlr --c2l)", l->at.path, l->at.line, error.text);
        if (!json_is_object(object)) die("%s:%d: not a JSON object", l->at.path, l->at.line);
        return object;
    }
    return NULL;
}

static Lines lines_of(const char *path, const char *text, size_t n)
{
    size_t mark = n > 2 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0; // UTF-8's byte order mark
    return (Lines){.at.path = path, .next = text + mark, .end = text + n};
}

static char *read_file(const char *path, size_t *n, uint64_t *hash)
{
    char *text = disk_read_file(path, n, (size_t)1 << 40);
    if (!text) die("%s: %s", path, errno == EINVAL ? "not a file of its own (a pipe?)" : strerror(errno));
    static const char *const other[][2] = {
        {"\x1f\x8b", "is compressed (try gunzip)"}, {"\x28\xB5\x2F\xFD", "is compressed (try unzstd)"},
        {"PK\3\4", "is a zip (try unzip)"}, {"PAR1", "is Parquet (duckdb -c \"COPY (FROM 'FILE') TO 'FILE.jsonl'\")"},
        {"version https://git-lfs", "is a pointer of Git LFS, not the file itself (git lfs pull)"},
        {"[", "is a JSON array (make lines of it: jq -c '.[]')"}, {"<", "is a page of a web site, not the file"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!strncmp(text, other[i][0], strlen(other[i][0]))) die("%s: %s", path, other[i][1]);
    *hash = XXH3_64bits_withSeed(text, *n, *hash);
    return text;
}

static void read_question(const Wording *wording, Place at, const json_t *doc, Question *q)
{
    bool one = wording->read == read_lambada;
    wording->read(at, doc, q);
    if (q->n < (one ? 1 : 2)) die("%s:%d: %zu choices (2 are the least)", at.path, at.line, q->n);
    if (!one && q->gold >= q->n)
        die("%s:%d: the answer is number %zu of %zu choices", at.path, at.line, q->gold + 1, q->n);
}

// Solved items, in the order of their file.
typedef struct {
    char **text, **topic; // (n)
    size_t n;
} Shots;

static Shots read_shots(const Wording *wording, const char *path, uint64_t *hash)
{
    size_t n;
    char *text = read_file(path, &n, hash);
    Lines lines = lines_of(path, text, n);
    Shots shots = {0};
    for (json_t *doc; (doc = next_line(&lines)); json_decref(doc)) {
        Question q = {0};
        read_question(wording, lines.at, doc, &q);
        shots.text = realloc(shots.text, (shots.n + 1) * sizeof *shots.text);
        shots.topic = realloc(shots.topic, (shots.n + 1) * sizeof *shots.topic);
        if (!shots.text || !shots.topic) die("%s: no memory", path);
        shots.text[shots.n] = print("%s %s\n\n", q.context[q.gold], q.ending[q.gold]);
        shots.topic[shots.n++] = print("%s", q.topic ? q.topic : "");
        forget(&q);
    }
    free(text);
    return shots;
}

// The topic's sentence, then the first `wanted` of the same topic that are not this question.
static char *before_question(Place at, const Shots *shots, size_t wanted, const Question *q)
{
    const char *topic = q->topic ? q->topic : "";
    char *text = print("%s", topic), *own = print("%s %s\n\n", q->context[q->gold], q->ending[q->gold]);
    for (size_t i = 0; i < shots->n && wanted; i++) {
        if (strcmp(shots->topic[i], topic) != 0 || !strcmp(shots->text[i], own)) continue;
        char *longer = print("%s%s", text, shots->text[i]);
        free(text);
        text = longer;
        wanted--;
    }
    if (wanted) die("%s:%d: --shots: %zu solved items too few on this topic (try fewer)", at.path, at.line, wanted);
    free(own);
    return text;
}

// name: as in format_of.
static void read_questions(Tasks *t, Lines *lines, json_t *doc, const char *name, TasksOptions options)
{
    Shots shots = {0};
    const Wording *wording = doc ? format_of(lines->at, name, doc) : NULL;
    if (doc && options.shots) shots = read_shots(wording, options.from, &t->hash);
    for (; doc; doc = next_line(lines)) {
        Question q = {0};
        read_question(wording, lines->at, doc, &q);
        json_decref(doc);
        char *before = before_question(lines->at, &shots, options.shots, &q);
        TasksItem *item = new_item(t, lines->at.line);
        for (; item->n < q.n; item->n++) {
            char *ending = print(" %s", q.ending[item->n]);
            *new_choice(&item->choice, item->n) = choice_of(before, q.context[item->n], ending);
            free(ending);
        }
        item->gold = q.gold;
        item->subject = q.subject, q.subject = NULL;
        forget(&q);
        free(before);
        if (t->n == options.limit) break;
    }
    for (size_t i = 0; i < shots.n; i++) {
        free(shots.text[i]);
        free(shots.topic[i]);
    }
    free(shots.text);
    free(shots.topic);
}

// ---- OLMES' requests

typedef struct {
    Tasks *tasks;
    size_t limit;
    size_t item, n; // of the last line without a question: its item, and the endings so far
} Requests;

// The item with that number; most often the one after the last.
static TasksItem *item_of(const Requests *r, int64_t id)
{
    const Tasks *t = r->tasks;
    for (size_t i = 0; i < t->n; i++)
        if (t->item[(r->item + i) % t->n].id == id) return &t->item[(r->item + i) % t->n];
    return NULL;
}

static void check_plain(const Requests *r, Place at)
{
    if (r->n && r->n != r->tasks->item[r->item].n)
        die("%s:%d: doc_id %lld ends after %zu of %zu choices", at.path, at.line,
            (long long)r->tasks->item[r->item].id + PLAIN, r->n, r->tasks->item[r->item].n);
}

// An ending after "Answer:" alone, of an item that has been read.
static void add_plain(Requests *r, Place at, int64_t id, json_int_t idx, const TasksChoice *choice)
{
    TasksItem *item = item_of(r, id - PLAIN);
    if (!item) die("%s:%d: doc_id %lld: there is no item %lld", at.path, at.line, (long long)id, (long long)id - PLAIN);
    if (!item->plain) {
        check_plain(r, at);
        r->item = (size_t)(item - r->tasks->item), r->n = 0;
    }
    if (item != r->tasks->item + r->item || idx != (json_int_t)r->n || r->n >= item->n ||
        strcmp(choice->ending, item->choice[r->n].ending) != 0)
        die("%s:%d: doc_id %lld, idx %lld: not the next ending of item %lld", at.path, at.line, (long long)id,
            (long long)idx, (long long)id - PLAIN);
    *new_choice(&item->plain, r->n++) = *choice;
}

static void read_request(Requests *r, Place at, const json_t *doc)
{
    Tasks *t = r->tasks;
    const json_t *request = json_object_get(doc, "request"), *label = json_object_get(doc, "label");
    const json_t *number = json_object_get(doc, "doc_id"), *index = json_object_get(doc, "idx");
    int64_t id = json_integer_value(number), idx = json_integer_value(index);
    if (!json_is_integer(number) || id < 0 || id >= 2 * PLAIN || !json_is_integer(index))
        die("%s:%d: doc_id and idx: not numbers in range", at.path, at.line);
    if (strcmp(text_of(at, doc, "request_type"), "loglikelihood") != 0)
        die("%s:%d: request_type: %.40s (loglikelihood is known)", at.path, at.line, text_of(at, doc, "request_type"));
    TasksItem *item = id < PLAIN && t->n && t->item[t->n - 1].id == id ? &t->item[t->n - 1] : NULL;
    if (!item && r->limit && (id < PLAIN ? t->n == r->limit : !item_of(r, id - PLAIN))) return;
    TasksChoice choice = choice_of("", text_of(at, request, "context"), text_of(at, request, "continuation"));
    if (id >= PLAIN) {
        add_plain(r, at, id, idx, &choice);
        return;
    }
    size_t gold = json_is_integer(label) ? answer_of(at, doc, "label", 0) : SIZE_MAX;
    if (!item) {
        if (t->n) check_item(t, at, &t->item[t->n - 1]);
        item = new_item(t, at.line);
        item->id = id;
        item->gold = gold;
    }
    if (gold != item->gold) die("%s:%d: doc_id %lld: another label than before", at.path, at.line, (long long)id);
    if (item->n == MOST_ENDINGS) die("%s:%d: more than %d endings", at.path, at.line, MOST_ENDINGS);
    if (idx != (json_int_t)item->n)
        die("%s:%d: doc_id %lld: idx %lld after %zu choices", at.path, at.line, (long long)id, (long long)idx, item->n);
    *new_choice(&item->choice, item->n++) = choice;
}

static void read_requests(Tasks *t, Lines *lines, json_t *doc, TasksOptions options)
{
    Requests r = {.tasks = t, .limit = options.limit};
    if (options.shots) die("%s: --shots: its contexts have their solved items already", lines->at.path);
    for (; doc; doc = next_line(lines)) {
        read_request(&r, lines->at, doc);
        json_decref(doc);
    }
    if (!t->n) return;
    check_item(t, lines->at, &t->item[t->n - 1]);
    check_plain(&r, lines->at);
}

// ---- llm.c's file of tokens

typedef struct {
    const char *path, *next, *end;
    size_t item;
} Stream;

static unsigned next_number(Stream *s)
{
    if (s->end - s->next < 2) die("%s: example %zu: the file is cut", s->path, s->item);
    unsigned low = (unsigned char)s->next[0], high = (unsigned char)s->next[1];
    s->next += 2;
    return high << 8 | low;
}

static void next_tokens(Stream *s, int32_t *token, size_t n)
{
    for (size_t i = 0; i < n; i++) token[i] = (int32_t)next_number(s);
}

// One example: 65535, its bytes, its number, the answer, the number of endings; then length and tokens of the context
// and of each ending.
static void read_example(Tasks *t, Stream *s)
{
    const char *start = s->next, *bad = NULL;
    Place at = {s->path, (int)s->item};
    unsigned mark = next_number(s), bytes = next_number(s), number = next_number(s), gold = next_number(s);
    unsigned n = next_number(s), length = next_number(s);
    if (mark != 65535 || number != (s->item & 65535)) bad = "does not begin with 65535 and its number";
    else if (n < 2 || n > MOST_ENDINGS || gold >= n)
        bad = "has fewer than 2 endings, more than 1000, or an answer that is none of them";
    else if ((size_t)(s->end - s->next) < 2 * (size_t)length) bad = "is cut";
    if (bad) die("%s: example %d %s", at.path, at.line, bad);
    const char *context = s->next;
    TasksItem *item = new_item(t, at.line);
    s->next += 2 * (size_t)length;
    for (item->gold = gold; item->n < n;) {
        size_t ending = next_number(s);
        if (!ending || (size_t)(s->end - s->next) < 2 * ending)
            die("%s: example %d: ending %zu is empty or cut", at.path, at.line, item->n);
        TasksChoice *c = new_choice(&item->choice, item->n++);
        *c = (TasksChoice){.n = length + ending, .scored = ending};
        c->token = malloc(c->n * sizeof *c->token);
        if (!c->token) die("%s: no memory for %zu tokens", at.path, c->n);
        Stream again = *s;
        again.next = context;
        next_tokens(&again, c->token, length);
        next_tokens(s, c->token + length, ending);
    }
    if (!length || ((unsigned)(s->next - start) & 65535) != bytes)
        die("%s: example %d has %td bytes and says %u, or has no context", at.path, at.line, s->next - start, bytes);
}

static void read_llmc(Tasks *t, const char *path, const char *bytes, size_t n_bytes, TasksOptions options)
{
    int32_t head[4];
    if (n_bytes < 1024) die("%s: the header is cut", path);
    Stream s = {.path = path, .next = bytes + 1024, .end = bytes + n_bytes};
    memcpy(head, bytes, sizeof head);
    if (head[1] != 1) die("%s: version %d of llm.c's evaluation files (1 is known)", path, head[1]);
    if (options.shots) die("%s: --shots: its items are tokens", path);
    size_t n = head[2] > 0 ? (size_t)head[2] : 0;
    for (; s.item < n && (!options.limit || s.item < options.limit); s.item++) read_example(t, &s);
    if (s.item == n && s.next != s.end) die("%s: %td bytes after its %zu examples", path, s.end - s.next, n);
}

// ---- a file

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// The name of FILE without its folder and what follows a dot, other characters as _; or NAME of NAME=FILE.
static char *name_of(const char *text, const char **path)
{
    size_t n = strspn(text, LETTERS);
    *path = text[n] == '=' && n ? text + n + 1 : text;
    if (*path != text) return print("%.*s", (int)n, text);
    const char *slash = strrchr(text, '/'), *base = slash ? slash + 1 : text;
    char *name = print("%.*s", (int)strcspn(base, "."), base);
    for (char *c = name; *(c += strspn(c, LETTERS)); *c = '_') {}
    return name;
}

Tasks *tasks_open(const char *name, TasksOptions options)
{
    static const char magic[4] = {(char)0x8A, (char)0xD8, 0x34, 0x01}; // 20240522
    Tasks *t = calloc(1, sizeof *t);
    const char *path;
    size_t n;
    if (!t) die("tasks: no memory");
    t->name = name_of(name, &path);
    t->path = print("%s", path);
    if (options.shots && !options.from) die("%s: --shots: from which file? (try --shots-from FILE)", path);
    if (options.from && !options.shots) die("%s: --shots-from: how many of its items? (try --shots 5)", path);
    char *text = read_file(path, &n, &t->hash);
    if (n >= 4 && !memcmp(text, magic, 4)) read_llmc(t, path, text, n, options);
    else {
        Lines lines = lines_of(path, text, n);
        json_t *doc = next_line(&lines);
        if (json_object_get(doc, "request_type")) read_requests(t, &lines, doc, options);
        else read_questions(t, &lines, doc, path == name ? NULL : t->name, options);
    }
    free(text);
    if (!t->n) die("%s: no items", path);
    return t;
}
