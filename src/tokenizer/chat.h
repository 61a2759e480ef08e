// chat: conversations as tokens: how a turn is written, and which tokens the assistant says.
//
// A conversation is a line of JSON, {"messages": [{"role": "user", "content": "Hello"}, ...]}, or with "conversations",
// "from" (human, gpt, system) and "value". How its turns are written is the model's chat template, a program in Jinja
// in tokenizer_config.json. No Jinja runs here: of the templates the common forms are known, by the special tokens
// that begin a turn, and what a template adds beyond its form is refused by name.
//
//     chatml   <|im_start|>ROLE\nTEXT<|im_end|>\n                                     Qwen, SmolLM, trained here
//     llama3   <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>             LLaMA-3; TEXT has no outer blanks
//
// Only the tokens of TEXT and the end after it, of the assistant's turns, count in the loss (data.loss=assistant): what
// a user says is given to the model, and it never has to say it.
#ifndef CHAT_H
#define CHAT_H
#include "tokenizer/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

#define CHAT_NAMES "chatml, llama3"

typedef struct Chat Chat;
typedef enum { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT } ChatRole;

// The form of t's chat template; `path`, where t came from, is for messages. name: this form, whatever the template
// says; t has that form's own template from then on. The end of a turn ends a text of t (tokenizer_ends). Dies where
// there is no template, where its form is not known or it adds a text of its own, and where t lacks the form's special
// tokens.
Chat *chat_open(Tokenizer *t, const char *name, const char *path);
void chat_free(Chat *c); // NULL is allowed

// Appends a turn's tokens.
void chat_turn(Chat *c, ChatRole role, const char *text, size_t n, TokenIds *out);
// Appends what a conversation begins with when its first turn is not the system's; often nothing.
void chat_begin(Chat *c, TokenIds *out);
// Appends what comes before the assistant's text: a model that goes on from there answers.
void chat_ask(Chat *c, TokenIds *out);
// Appends the tokens of a conversation (n bytes of JSON); out NULL: only looks whether it is one. False, and why (200
// bytes): it is none.
bool chat_encode(Chat *c, const char *json, size_t n, TokenIds *out, char *why);

// Which tokens count, one after another: starts as {0}. What separates documents begins anew.
typedef struct {
    size_t at;   // tokens of the assistant's beginning that have been read
    bool inside; // its text
} ChatPlace;
bool chat_counts(const Chat *c, ChatPlace *place, int32_t token);
uint64_t chat_hash(const Chat *c); // of what chat_counts depends on

#ifdef __cplusplus
}
#endif
#endif
