// chat: conversations as tokens. See chat.h.
//
// The invariant: a turn is written by the same calls when shards are made and when a model is asked (build/sample
// --chat), so that the model is asked with tokens that it was trained on; and the assistant's beginning is the same
// tokens in every conversation, so that chat_counts finds it in the tokens alone. A user cannot write one: text never
// becomes a special token (tokenizer_encode).
//
// Transformers encodes ROLE\nTEXT as one text. So is it here, as long as the result begins with the tokens of ROLE\n;
// where TEXT begins with a line break that would join the one before it, the two are encoded apart.
//
// Rejected: a mask beside the shards (a second file that can be lost or belong to others; the tokens say it all); an
// interpreter of Jinja (thousands of lines, for what is two forms in nearly all models).
#include "tokenizer/chat.h"

#include "base/check.h"
#include "base/words.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct {
    const char *name, *start, *middle, *end; // special tokens: before the role, behind it (or ""), behind the text
    const char *gap, *after;                 // text: before TEXT, behind the end
    bool trim;                               // TEXT without outer blanks
    const char *jinja;                       // the form as a template
} ChatForm;

#define JINJA(turn, ask) \
    "{% for m in messages %}" turn "{% endfor %}{% if add_generation_prompt %}" ask "{% endif %}"
static const ChatForm forms[] = {
    {"chatml", "<|im_start|>", "", "<|im_end|>", "\n", "\n", false,
     JINJA("<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n", "<|im_start|>assistant\n")},
    {"llama3", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "\n\n", "", true,
     JINJA("<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>",
           "<|start_header_id|>assistant<|end_header_id|>\n\n")},
};
enum { FORMS = sizeof forms / sizeof *forms };
static const char *const roles[] = {"system", "user", "assistant"};

struct Chat {
    const ChatForm *form;
    Tokenizer *t;
    int32_t start, middle, end, eot; // -1: none
    bool trim;
    char *system; // what the template says where the conversation has no system turn; NULL: nothing
    TokenIds ask; // the assistant's beginning
};

// ---- opening

static int32_t special(const Chat *c, const char *name, const char *path)
{
    if (!*name) return -1;
    int64_t id = vocab_find_special(tokenizer_vocab(c->t), name);
    if (id < 0)
        die("%s: turns of %s need the special token %s, which the tokenizer does not have (try prepare "
            "train-tokenizer --special-tokens '%s,%s')", path, c->form->name, name, c->form->start, c->form->end);
    return (int32_t)id;
}

// The system's turn that stands in a template as plain text: what is between its beginning and its end, where that is
// no expression.
static char *default_system(const ChatForm *form, const char *jinja)
{
    char begin[80];
    snprintf(begin, sizeof begin, "%ssystem%s", form->start, form->middle);
    for (const char *at = jinja; (at = strstr(at, begin)); at++) {
        const char *text = at + strlen(begin), *end = strstr(text, form->end);
        for (const char *gap = form->gap; *gap; gap++) // \n as such, or as it is written in a string of Jinja
            if (*text == '\n') text++;
            else if (!strncmp(text, "\\n", 2)) text += 2;
        if (end > text && strcspn(text, "'\"{}+\\") >= (size_t)(end - text)) return strndup(text, (size_t)(end - text));
    }
    return NULL;
}

static const ChatForm *form_of(const char *jinja, const char *name, const char *path)
{
    static const char *const adds[] = {"<think>", "Cutting Knowledge Date", "strftime"};
    for (size_t i = 0; name && i < FORMS; i++)
        if (!strcmp(forms[i].name, name)) return &forms[i];
    if (name) die("--chat: '%s' (" CHAT_NAMES ", or template: the tokenizer's)", name);
    if (!jinja)
        die("%s: tokenizer_config.json has no chat_template, which says how turns are written (name a form: prepare "
            "tokens --chat chatml)", path);
    for (size_t i = 0; i < sizeof adds / sizeof *adds; i++)
        if (strstr(jinja, adds[i]))
            die("%s: chat_template adds a text of its own, '%s' (name the form alone: prepare tokens --chat chatml or "
                "llama3)", path, adds[i]);
    for (size_t i = 0; i < FORMS; i++)
        if (strstr(jinja, forms[i].start)) return &forms[i];
    die("%s: chat_template is of no form that is known: chatml (<|im_start|>), llama3 (<|start_header_id|>); it begins "
        "%.60s", path, jinja);
}

Chat *chat_open(Tokenizer *t, const char *name, const char *path)
{
    Chat *c = calloc(1, sizeof *c);
    if (!c) die("memory: no room for a chat template");
    const char *jinja = tokenizer_vocab(t)->chat;
    c->t = t, c->form = form_of(jinja, name, path);
    if (tokenizer_vocab(t)->chars)
        die("%s: a tokenizer of SentencePiece's kind puts a space before a text, and before which pieces of a turn is not "
            "known here (conversations need one of bytes, as GPT-2, LLaMA-3 and Qwen have)", path);
    c->start = special(c, c->form->start, path);
    c->middle = special(c, c->form->middle, path);
    c->end = special(c, c->form->end, path);
    c->eot = tokenizer_need_eot(t, path);
    if (c->eot == c->end)
        die("%s: %s ends a turn and separates documents, which must be two tokens (name another: --eot)", path,
            c->form->end);
    c->trim = name ? c->form->trim : strstr(jinja, "trim") != NULL;
    if (!name) c->system = default_system(c->form, jinja);
    tokenizer_set_chat(t, name ? c->form->jinja : jinja, c->end);
    chat_ask(c, &c->ask);
    return c;
}

void chat_free(Chat *c)
{
    if (!c) return;
    token_ids_free(&c->ask);
    free(c->system);
    free(c);
}

// ---- turns

static void text(Chat *c, const char *s, TokenIds *out)
{
    tokenizer_encode(c->t, s, strlen(s), out);
}

// A turn up to its text, but for the last piece, plain text, which is returned: "assistant\n".
static const char *turn_begin(Chat *c, ChatRole role, TokenIds *out, char lead[40])
{
    token_ids_push(out, c->start);
    if (c->middle >= 0) {
        text(c, roles[role], out);
        token_ids_push(out, c->middle);
    }
    snprintf(lead, 40, "%s%s", c->middle >= 0 ? "" : roles[role], c->form->gap);
    return lead;
}

void chat_ask(Chat *c, TokenIds *out)
{
    char lead[40];
    text(c, turn_begin(c, CHAT_ASSISTANT, out, lead), out);
}

void chat_turn(Chat *c, ChatRole role, const char *s, size_t n, TokenIds *out)
{
    char lead[40];
    if (c->trim) s = words_strip(s, &n);
    size_t n_lead = strlen(turn_begin(c, role, out, lead)), begin = out->n;
    text(c, lead, out);
    size_t behind = out->n;
    char *both = words_grow(NULL, &(size_t){0}, n_lead + n, 1);
    memcpy(both, lead, n_lead);
    memcpy(both + n_lead, s, n);
    tokenizer_encode(c->t, both, n_lead + n, out); // lead, then lead and text: one of the two goes
    size_t n_both = out->n - behind, n_begin = behind - begin;
    if (n_both >= n_begin && !memcmp(out->id + behind, out->id + begin, n_begin * sizeof *out->id)) {
        memmove(out->id + begin, out->id + behind, n_both * sizeof *out->id);
        out->n = begin + n_both;
    } else {
        out->n = behind;
        tokenizer_encode(c->t, s, n, out);
    }
    free(both);
    token_ids_push(out, c->end);
    text(c, c->form->after, out);
}

void chat_begin(Chat *c, TokenIds *out)
{
    if (c->system) chat_turn(c, CHAT_SYSTEM, c->system, strlen(c->system), out);
}

// ---- a conversation

// The role of a message, and its text; -1, and why: it is none.
static int read_message(json_t *m, char *why, const char **content, size_t *n)
{
    static const char *const other[] = {"tool_calls", "weight", "train"}; // they would change what is trained on
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *value = json_object_get(m, "content");
    if (!role) {
        role = json_string_value(json_object_get(m, "from"));
        value = json_object_get(m, "value");
        if (role && !strcmp(role, "human")) role = "user";
        if (role && !strcmp(role, "gpt")) role = "assistant";
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (json_object_get(m, other[i])) return snprintf(why, 160, "'%s' is not known here", other[i]), -1;
    if (!role) return snprintf(why, 160, "no role (system, user or assistant)"), -1;
    if (!json_is_string(value)) return snprintf(why, 160, "its content is not a string"), -1;
    *content = json_string_value(value);
    *n = json_string_length(value);
    for (int i = 0; i < 3; i++)
        if (!strcmp(role, roles[i])) return i;
    return snprintf(why, 160, "role '%.40s' (system, user or assistant)", role), -1;
}

static bool encode_messages(Chat *c, json_t *list, TokenIds *out, char *why)
{
    size_t answers = 0, n = 0;
    const char *content = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        char what[160] = "";
        int role = read_message(json_array_get(list, i), what, &content, &n);
        if (role == CHAT_SYSTEM && i) snprintf(what, sizeof what, "the system speaks first, or not at all");
        if (role == CHAT_ASSISTANT && !n) snprintf(what, sizeof what, "the assistant says nothing");
        if (*what) return snprintf(why, 200, "message %zu: %s", i + 1, what), false;
        answers += role == CHAT_ASSISTANT;
        if (out && !i && role != CHAT_SYSTEM) chat_begin(c, out);
        if (out) chat_turn(c, (ChatRole)role, content, n, out);
    }
    return answers || (snprintf(why, 200, "no message of the assistant"), false);
}

bool chat_encode(Chat *c, const char *json, size_t n, TokenIds *out, char *why)
{
    json_t *root = json_loadb(json, n, 0, NULL), *list = json_object_get(root, "messages");
    if (!list) list = json_object_get(root, "conversations");
    bool good = json_is_array(list) ? encode_messages(c, list, out, why)
                                    : (snprintf(why, 200, "no list of messages: {\"messages\": [{\"role\": \"user\", "
                                                          "\"content\": \"...\"}, ...]}"), false);
    json_decref(root);
    return good;
}

// ---- which tokens count

bool chat_counts(const Chat *c, ChatPlace *place, int32_t token)
{
    if (token == c->eot) *place = (ChatPlace){0}; // a document begins
    if (place->inside) {
        place->inside = token != c->end;
        return true;
    }
    place->at = token == c->ask.id[place->at] ? place->at + 1 : token == c->ask.id[0];
    if (place->at == c->ask.n) place->at = 0, place->inside = true;
    return false;
}

uint64_t chat_hash(const Chat *c)
{
    return XXH3_64bits(c->ask.id, c->ask.n * sizeof *c->ask.id) ^ (uint64_t)c->end;
}
