// tasks: benchmark tasks: questions with several endings, of which a model chooses one by log-likelihood.
//
// doc/eval.md has the formulas and the conventions.
#ifndef TASKS_H
#define TASKS_H
#include "eval/sample.h"
#include "tokenizer/tokenizer.h"
#include "eval/eval.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// An ending and what stands before it.
typedef struct {
    char *context, *ending; // text, the ending with the space before it; NULL: the file has tokens
    size_t chars, bytes;    // of the ending without that space; 0: the file has tokens
    int32_t *token;         // (n), of which the last `scored` are the ending's
    size_t n, scored;
    double loglik;          // the sum of their ln p
    bool greedy;            // each was the likeliest; known of tasks with one ending only
} TasksChoice;

typedef struct {
    TasksChoice *choice; // (n)
    TasksChoice *plain;  // (n) the same endings after a context without the question; NULL: the file has none
    size_t n, gold;
    int64_t id;          // in its file
    int line;            // of its file; of a file of tokens its number there
    char *subject;       // of MMLU's; NULL: none
} TasksItem;

typedef struct {
    char *name, *path;
    TasksItem *item; // (n)
    size_t n, cap;
    size_t cut;      // choices that were longer than the model's context, and lost their first tokens
    uint64_t hash;   // of the files' bytes
} Tasks;

typedef struct {
    size_t limit;      // the first so many items; 0: all
    size_t shots;      // solved items before each
    const char *from;  // their file
} TasksOptions;

// Reads a task's items: datasets as JSON lines, OLMES' requests, llm.c's file of tokens. `name` is NAME=FILE or FILE.
// The contents say which format it is, unless there is a NAME, and a format's name is its first word (doc/eval.md).
// Dies with FILE:LINE on what is cut, missing or wrong.
Tasks *tasks_open(const char *name, TasksOptions options);
// Text becomes tokens, after the token that the tokenizer puts before every text, or else end-of-text (`bare`: or else
// nothing); of more than T + 1 tokens the first are dropped. Dies when a token of a file of tokens is not below
// `vocab`.
void tasks_encode(Tasks *tasks, Tokenizer *tokenizer, size_t vocab, size_t T, bool bare);
// Sets loglik and greedy of all items: forwards of up to max_batch * max_tokens tokens, T of tasks_encode at most.
// ranks NULL: alone; else all of them call this and get the same, as in eval_run. forward, cache: as for sample_begin.
// False: a signal asks the program to end.
bool tasks_run(Tasks *tasks, Model *model, const EvalRanks *ranks, SampleForward forward, KvCache *cache);
void tasks_free(Tasks *tasks); // NULL is allowed

// ---- from log-likelihoods to figures

// What decides between endings: the sum of their tokens' log-likelihoods; that by characters, by bytes, by tokens; that
// less the one without the question.
typedef enum { TASKS_SUM, TASKS_CHARS, TASKS_BYTES, TASKS_TOKENS, TASKS_UNCONDITIONAL, TASKS_RULES } TasksRule;

typedef struct {
    size_t items, cut;
    bool cloze;              // one ending: acc[TASKS_SUM] counts those that greedy decoding would write
    double acc[TASKS_RULES]; // NAN: the file has not what it needs
    double chance;           // of a guess; 0 of cloze tasks
    double centred;          // (acc[TASKS_SUM] - chance) / (1 - chance)
    double perplexity;       // of cloze tasks: exp(- mean log-likelihood of an ending); else NAN
    double perplexity_error; // its standard error: perplexity times that of the mean; NAN of one item
} TasksResult;

TasksResult tasks_result(const Tasks *tasks);
double tasks_stderr(const TasksResult *result, TasksRule rule); // sqrt(p (1 - p) / (items - 1)); NAN of one item
const char *tasks_rule_name(TasksRule rule);                    // "acc", "acc_norm", "acc_bytes", ...

// The items of one subject.
typedef struct {
    const char *name;
    TasksResult result;
} TasksSubject;

// In the order in which subjects first appear; the caller frees *list. 0: an item has none.
size_t tasks_subjects(const Tasks *tasks, TasksSubject **list);
// The macro average: the mean of the subjects' accuracies, whatever their sizes. *error: its standard error.
double tasks_macro(const TasksSubject *list, size_t n, TasksRule rule, double *error);
// A line of JSON for each item: log-likelihoods, numbers of tokens, the answer.
void tasks_write_items(const Tasks *tasks, FILE *out);
// "acc 0.2859 +- 0.0045, acc_norm 0.2955, ... of 10042 items" for a log.
void tasks_describe(const TasksResult *result, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
