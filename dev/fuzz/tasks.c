// Fuzzes the readers of benchmark tasks: datasets and requests as JSON lines, llm.c's file of tokens.
#include "tokenize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/tasks.h"

enum { CONTEXT = 16 };

static Tokenizer *tokenizer;

void fuzz_begin(void)
{
    tokenizer = small_tokenizer("gpt2");
}

#define REQUEST(ID, IDX, ENDING) "{'request_type': 'loglikelihood', 'doc_id': " ID ", 'idx': " IDX ", 'label': 1, " \
    "'request': {'context': 'Q', 'continuation': '" ENDING "'}}\n"

void fuzz_seeds(void)
{
    static const char *const text[] = {
        "{'activity_label': 'A', 'ctx_a': '[header] b [title] c', 'ctx_b': 'he', 'endings': ['d', '[e] f'], "
        "'label': '1'}\n",
        "{'goal': 'g', 'sol1': 'a', 'sol2': 'b', 'label': 0}\n{'goal': 'h', 'sol1': 'a', 'sol2': 'b', "
        "'label': '1'}\n",
        "{'sentence': 'a _ b', 'option1': 'x', 'option2': 'y', 'answer': '2'}",
        "{'question': 'q', 'choices': {'text': ['a', 'b'], 'label': ['A', 'B']}, 'answerKey': 'B'}\n\n",
        "{'question_stem': 'q', 'choices': {'text': ['a', 'b'], 'label': ['1', '2']}, 'answerKey': '2'}",
        "{'passage': 'p', 'question': 'q', 'answer': true}",
        "{'text': 'one two'}\n{'text': '\\u00e9'}",
        "{'question': 'q', 'subject': 's_t', 'choices': ['a', 'b', 'c'], 'answer': 2}",
        REQUEST("0", "0", " a") REQUEST("0", "1", " b") REQUEST("1000000", "0", " a") REQUEST("1000000", "1", " b")};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        char json[600];
        size_t n = (size_t)snprintf(json, sizeof json, "%s", text[i]);
        for (size_t k = 0; k < n; k++)
            if (json[k] == '\'') json[k] = '"';
        fuzz_seed((char[]){'t', (char)('0' + i), 0}, json, n);
    }
    const int32_t head[4] = {20240522, 1, 2, 26};
    const uint16_t token[] = {65535, 26, 0, 1, 2, 3, 10, 11, 12, 1, 13, 1, 14,
                              65535, 26, 1, 0, 2, 1, 20, 2, 21, 22, 2, 23, 24};
    char bytes[1024 + sizeof token] = {0};
    memcpy(bytes, head, sizeof head);
    memcpy(bytes + 1024, token, sizeof token);
    fuzz_seed("llmc", bytes, sizeof bytes);
}

void fuzz_one(const uint8_t *data, size_t n)
{
    char name[400];
    const char *path = fuzz_file("x.jsonl", data, n);
    snprintf(name, sizeof name, "%s%s", n % 3 == 0 ? "mmlu_full=" : "x=", path);
    Tasks *t = tasks_open(name, (TasksOptions){.shots = n % 4 == 0, .from = n % 4 ? NULL : path, .limit = n % 5});
    size_t vocab = (size_t)tokenizer_vocab_size(tokenizer);
    tasks_encode(t, tokenizer, vocab, CONTEXT, n % 2);
    fuzz_check(t->n > 0 && (n % 5 == 0 || t->n <= n % 5));
    for (size_t i = 0; i < t->n; i++) {
        TasksItem *item = &t->item[i];
        fuzz_check(item->n > 0 && (item->n == 1) == (t->item[0].n == 1) && (item->n == 1 || item->gold < item->n));
        for (size_t k = 0; k < item->n; k++) {
            TasksChoice *c = &item->choice[k];
            fuzz_check(c->n >= 2 && c->n <= CONTEXT + 1 && c->scored >= 1 && c->scored < c->n);
            for (size_t j = 0; j < c->n; j++) fuzz_check(c->token[j] >= 0 && (size_t)c->token[j] < vocab);
            c->loglik = -(double)c->scored;
            if (item->plain) item->plain[k].loglik = -1;
        }
    }
    TasksResult r = tasks_result(t);
    fuzz_check(r.acc[TASKS_SUM] >= 0 && r.acc[TASKS_SUM] <= 1);
    tasks_free(t);
}
