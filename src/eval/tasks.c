// tasks: benchmark tasks, from contexts and endings to accuracies. See tasks.h; tasks_read.c reads their files.
//
// The model says how likely an ending is after a context: the sum over the ending's tokens of ln p(token | all before).
// It never writes the answer itself, so a model that was only pretrained can be judged, with one forward a choice.
//
// The border between context and ending is where most implementations differ. Here, as in lm-evaluation-harness: the
// white space at the end of the context belongs to the ending (a token of GPT-2's begins with its space), both are
// encoded as one text, and the ending's tokens are those beyond the number of tokens of the context alone; where there
// are none, the ending is encoded alone. What is longer than the model's context loses its first tokens. Before the
// text stands what the tokenizer puts there by itself (LLaMA's BOS); where it puts nothing, end-of-text, as in training.
//
// The invariant: a choice's log-likelihood depends on the choice and the batch it is in, and batches depend on the
// choices alone: longest first. Ranks take batches in turn, and write into an array that is zero elsewhere; adding
// these arrays is exact. So the figures have the same bits on any number of copies of the model (eval.c). Padding
// stands on the right, where no causal model sees it.
//
// Rejected: the context's keys and values kept for all its endings (a cache that pipelines and sequence parallelism
// have to share; batches of whole rows are simple, and full).
#include "eval/tasks.h"

#include "base/check.h"
#include "base/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- tokens

static void encode(TasksChoice *c, Tokenizer *tokenizer, bool bare)
{
    int32_t eot = tokenizer_eot(tokenizer), bos = tokenizer_bos(tokenizer), first = bos >= 0 ? bos : eot;
    size_t n = strlen(c->context), border = n;
    const char *start = words_strip(c->context, &border);
    border += (size_t)(start - c->context);
    TokenIds before = {0}, ids = {0};
    char *text = malloc(n + strlen(c->ending) + 1);
    if (!text) die("tasks: no memory for a text of %zu bytes", n);
    strcpy(stpcpy(text, c->context), c->ending);
    if (!bare || !border || first != eot) token_ids_push(&before, first), token_ids_push(&ids, first);
    tokenizer_encode(tokenizer, text, border, &before);
    tokenizer_encode(tokenizer, text, strlen(text), &ids);
    if (ids.n <= before.n) { // no token of its own: its first letters were joined to the context's last
        token_ids_free(&ids);
        ids = before, before = (TokenIds){.n = before.n};
        tokenizer_encode(tokenizer, text + border, strlen(text + border), &ids);
    }
    c->token = ids.id, c->n = ids.n;
    c->scored = ids.n - before.n;
    token_ids_free(&before);
    free(text);
}

static bool cut(TasksChoice *c, size_t T)
{
    if (c->n <= T + 1) return false;
    memmove(c->token, c->token + (c->n - T - 1), (T + 1) * sizeof *c->token);
    c->n = T + 1;
    if (c->scored > T) c->scored = T;
    return true;
}

void tasks_encode(Tasks *t, Tokenizer *tokenizer, size_t vocab, size_t T, bool bare)
{
    t->cut = 0;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < (t->item[i].plain ? 2 : 1) * t->item[i].n; k++) {
            TasksItem *item = &t->item[i];
            TasksChoice *c = k < item->n ? &item->choice[k] : &item->plain[k - item->n];
            if (c->context && tokenizer_bos(tokenizer) < 0) tokenizer_need_eot(tokenizer, t->name);
            if (c->context) encode(c, tokenizer, bare);
            for (size_t j = 0; j < c->n; j++)
                if ((size_t)c->token[j] >= vocab)
                    die("%s:%d: token %d, and the model's vocabulary has %zu (another tokenizer's file?)", t->path,
                        item->line, c->token[j], vocab);
            if (!c->scored || c->scored >= c->n)
                die("%s:%d: choice %zu: its %s has no token of its own", t->path, item->line, k % item->n + 1,
                    c->scored ? "question" : "ending");
            t->cut += cut(c, T);
        }
}

// ---- log-likelihoods

typedef struct {
    TasksChoice *choice;
    size_t item; // its number in the order of the file
} Request;

// All that is run, and its rows.
typedef struct {
    Model *model;
    const EvalRanks *ranks;
    Request *list; // (n), longest first
    size_t n, T, most; // tokens of a row, rows of a batch, at most
    double *loglik;    // (n)
    int32_t *token, *target;
} Scoring;

static int by_length(const void *a, const void *b)
{
    const Request *x = a, *y = b;
    if (x->choice->n != y->choice->n) return x->choice->n < y->choice->n ? 1 : -1;
    return (x->item > y->item) - (x->item < y->item);
}

static void list_requests(Scoring *s, const Tasks *t)
{
    for (size_t i = 0; i < t->n; i++) s->n += (t->item[i].plain ? 2 : 1) * t->item[i].n;
    s->list = malloc(s->n * sizeof *s->list);
    s->loglik = calloc(s->n, sizeof *s->loglik);
    if (!s->list || !s->loglik) die("tasks: no memory for %zu choices", s->n);
    size_t k = 0;
    for (size_t i = 0; i < t->n; i++)
        for (int plain = 0; plain < (t->item[i].plain ? 2 : 1); plain++)
            for (size_t j = 0; j < t->item[i].n; j++, k++)
                s->list[k] = (Request){plain ? &t->item[i].plain[j] : &t->item[i].choice[j], k};
    qsort(s->list, s->n, sizeof *s->list, by_length);
}

// The first request after the batch that begins with `first`, and the tokens of its rows. All rows of a batch are as
// long as each would be alone, so the bits of a row (deterministic mode cuts it into blocks) depend on its request
// only, not on how many rows a batch of this layout holds.
static size_t batch_end(const Scoring *s, size_t first, size_t *T)
{
    *T = eval_row_tokens(s->model, first < s->n ? s->list[first].choice->n - 1 : 1, s->T);
    size_t rows = model_sharers(s->model) > 1 ? s->model->max_batch : s->most / *T, last = first;
    while (last < s->n && last < first + rows && eval_row_tokens(s->model, s->list[last].choice->n - 1, s->T) == *T)
        last++;
    return last;
}

// Requests [first, last) as one batch; without any a row of which no target counts.
static void run_batch(Scoring *s, size_t first, size_t last, size_t T)
{
    size_t B = last > first ? last - first : 1;
    for (size_t i = 0; i < B * T; i++) s->token[i] = 0, s->target[i] = -1;
    for (size_t k = first; k < last; k++) {
        const TasksChoice *c = s->list[k].choice;
        size_t row = (k - first) * T;
        memcpy(s->token + row, c->token, (c->n - 1) * sizeof *c->token);
        memcpy(s->target + row + c->n - 1 - c->scored, c->token + c->n - c->scored, c->scored * sizeof *c->token);
    }
    eval_losses(s->model, s->ranks ? &s->ranks->forward : NULL, &(EvalBatch){.token = s->token, .target = s->target,
                                                                             .B = B, .T = T});
    supervisor_progress(comm_heartbeat(s->ranks ? s->ranks->all : NULL));
    size_t own = s->model->batch.T;
    for (size_t k = first; k < last && (!s->ranks || s->ranks->counts); k++)
        s->loglik[k] = -model_sum_losses(s->model, (k - first) * own, own);
}

static void add_over_ranks(const EvalRanks *ranks, double *x, size_t n)
{
    if (!ranks) return;
    CommRequest request = comm_all_reduce(ranks->all, x, x, n, COMM_FP64, COMM_SUM);
    comm_wait(ranks->all, &request);
}

static bool score(const Tasks *t, Model *m, const EvalRanks *ranks)
{
    Scoring s = {.model = m, .ranks = ranks, .T = m->max_tokens, .most = m->max_batch * m->max_tokens};
    size_t replicas = ranks ? (size_t)ranks->replicas : 1, replica = ranks ? (size_t)ranks->replica : 0, T, first = 0;
    list_requests(&s, t);
    s.token = malloc(2 * s.most * sizeof *s.token);
    if (!s.token) die("tasks: no memory for %zu tokens", s.most);
    s.target = s.token + s.most;
    bool stopped = false;
    while (first < s.n && !(stopped = eval_must_stop(ranks)))
        for (size_t r = 0; r < replicas; r++) { // in each round every copy runs one batch
            size_t last = batch_end(&s, first, &T);
            if (r == replica) run_batch(&s, first, last, T);
            first = last;
        }
    add_over_ranks(ranks, s.loglik, s.n);
    for (size_t k = 0; k < s.n; k++) s.list[k].choice->loglik = s.loglik[k];
    free(s.list);
    free(s.loglik);
    free(s.token);
    return !stopped;
}

// ---- greedy decoding

// Whether each scored token is the likeliest one after those before it.
static bool is_greedy(const TasksChoice *c, Model *m, SampleForward forward, KvCache *cache, float *logits)
{
    bool same = true;
    cache->length = 0;
    for (size_t fed = 0, next = c->n - c->scored; next < c->n && same; fed = next++) {
        if (forward.next_logits) forward.next_logits(forward.self, cache, c->token + fed, next - fed, logits);
        else model_next_logits(m, cache, c->token + fed, next - fed, logits);
        for (size_t v = 0; v < m->shape.vocab; v++) same &= logits[v] <= logits[c->token[next]];
    }
    return same;
}

// Copies of the model that need nothing of each other, neither weights nor experts, take items in turn.
static bool decode(const Tasks *t, Model *m, const EvalRanks *ranks, SampleForward forward, KvCache *cache)
{
    bool alone = !m->shard.x_weights && m->local.experts.ranks <= 1;
    size_t turns = ranks && alone ? (size_t)ranks->replicas : 1;
    size_t turn = turns > 1 ? (size_t)ranks->replica : 0;
    double *greedy = calloc(t->n, sizeof *greedy);
    float *logits = malloc(m->shape.vocab * sizeof *logits);
    if (!greedy || !logits) die("tasks: no memory for %zu items", t->n);
    bool stopped = false;
    for (size_t i = turn; i - turn < t->n && !(stopped = eval_must_stop(ranks)); i += turns) {
        if (i < t->n) greedy[i] = is_greedy(&t->item[i].choice[0], m, forward, cache, logits);
        supervisor_progress(comm_heartbeat(ranks ? ranks->all : NULL));
    }
    add_over_ranks(ranks, greedy, t->n);
    for (size_t i = 0; i < t->n; i++) t->item[i].choice[0].greedy = greedy[i] > 0;
    free(greedy);
    free(logits);
    return !stopped;
}

bool tasks_run(Tasks *t, Model *model, const EvalRanks *ranks, SampleForward forward, KvCache *cache)
{
    return score(t, model, ranks) && (t->item[0].n > 1 || decode(t, model, ranks, forward, cache));
}

// ---- figures

static double score_of(const TasksItem *item, size_t i, TasksRule rule)
{
    const TasksChoice *c = &item->choice[i];
    switch (rule) {
    case TASKS_CHARS: return c->loglik / (double)c->chars; // of none: minus infinity
    case TASKS_BYTES: return c->loglik / (double)c->bytes;
    case TASKS_TOKENS: return c->loglik / (double)c->scored;
    case TASKS_UNCONDITIONAL: return c->loglik - item->plain[i].loglik;
    default: return c->loglik;
    }
}

// The first of the best is chosen; with a NaN among them none.
static bool is_right(const TasksItem *item, TasksRule rule)
{
    size_t best = 0;
    for (size_t i = 0; i < item->n; i++) {
        if (isnan(score_of(item, i, rule))) return false;
        if (score_of(item, i, rule) > score_of(item, best, rule)) best = i;
    }
    return best == item->gold;
}

static bool has(const Tasks *t, TasksRule rule)
{
    bool text = t->item[0].choice[0].context, plain = true;
    for (size_t i = 0; i < t->n; i++) plain &= t->item[i].plain != NULL;
    return rule == TASKS_CHARS || rule == TASKS_BYTES ? text : rule != TASKS_UNCONDITIONAL || plain;
}

TasksResult tasks_result(const Tasks *t)
{
    TasksResult r = {.items = t->n, .cut = t->cut, .cloze = t->item[0].n == 1, .perplexity = NAN,
                     .perplexity_error = NAN};
    double n = (double)t->n, sum = 0, squares = 0;
    for (int rule = 0; rule < TASKS_RULES; rule++) r.acc[rule] = NAN;
    for (int rule = 0; rule < TASKS_RULES && !r.cloze; rule++) {
        size_t right = 0;
        if (!has(t, (TasksRule)rule)) continue;
        for (size_t i = 0; i < t->n; i++) right += is_right(&t->item[i], (TasksRule)rule);
        r.acc[rule] = (double)right / n;
    }
    for (size_t i = 0; i < t->n; i++)
        if (r.cloze) sum += t->item[i].choice[0].loglik;
        else r.chance += 1 / (double)t->item[i].n;
    if (r.cloze) {
        size_t right = 0;
        for (size_t i = 0; i < t->n; i++) {
            double away = t->item[i].choice[0].loglik - sum / n;
            right += t->item[i].choice[0].greedy;
            squares += away * away;
        }
        r.acc[TASKS_SUM] = (double)right / n;
        r.perplexity = exp(-sum / n);
        if (t->n > 1) r.perplexity_error = r.perplexity * sqrt(squares / (n - 1) / n);
    }
    r.chance /= n;
    r.centred = (r.acc[TASKS_SUM] - r.chance) / (1 - r.chance);
    return r;
}

double tasks_stderr(const TasksResult *r, TasksRule rule)
{
    return r->items > 1 ? sqrt(r->acc[rule] * (1 - r->acc[rule]) / (double)(r->items - 1)) : NAN;
}

const char *tasks_rule_name(TasksRule rule)
{
    static const char *const name[] = {"acc", "acc_norm", "acc_bytes", "acc_token", "acc_uncond"};
    return name[rule];
}

// The items are put in the order of their subjects; each subject's stretch is a task of its own.
size_t tasks_subjects(const Tasks *t, TasksSubject **list)
{
    Words names = {0};
    size_t *number = calloc(2 * t->n + 2, sizeof *number), *start = number + t->n, n = 0;
    TasksItem *item = malloc(t->n * sizeof *item);
    if (!number || !item) die("tasks: no memory for %zu items", t->n);
    while (n < t->n && t->item[n].subject) {
        number[n] = words_add(&names, t->item[n].subject, strlen(t->item[n].subject));
        start[number[n++] + 1]++;
    }
    size_t subjects = n == t->n ? names.n : 0;
    *list = calloc(subjects + 1, sizeof **list);
    if (!*list) die("tasks: no memory for %zu subjects", subjects);
    for (size_t s = 0; s < subjects; s++) start[s + 1] += start[s];
    for (size_t i = 0; i < t->n && subjects; i++) item[start[number[i]]++] = t->item[i];
    for (size_t s = 0, first = 0; s < subjects; first = start[s++]) {
        Tasks part = {.item = item + first, .n = start[s] - first};
        (*list)[s] = (TasksSubject){item[first].subject, tasks_result(&part)};
    }
    words_free(&names);
    free(number);
    free(item);
    return subjects;
}

double tasks_macro(const TasksSubject *list, size_t n, TasksRule rule, double *error)
{
    double sum = 0, variance = 0;
    for (size_t s = 0; s < n; s++) {
        double e = tasks_stderr(&list[s].result, rule);
        sum += list[s].result.acc[rule], variance += e * e;
    }
    *error = sqrt(variance) / (double)n;
    return sum / (double)n;
}

void tasks_describe(const TasksResult *r, char *out, size_t size)
{
    size_t n = 0;
    for (int rule = 0; rule < TASKS_RULES && n < size; rule++)
        if (!isnan(r->acc[rule])) {
            n += (size_t)snprintf(out + n, size - n, "%s%s %.4f", n ? ", " : "", tasks_rule_name((TasksRule)rule),
                                  r->acc[rule]);
            if (rule == TASKS_SUM && r->items > 1 && n < size)
                n += (size_t)snprintf(out + n, size - n, " +- %.4f", tasks_stderr(r, TASKS_SUM));
        }
    if (r->cloze && n < size) n += (size_t)snprintf(out + n, size - n, ", perplexity %.4g", r->perplexity);
    if (n < size) snprintf(out + n, size - n, " of %zu items", r->items);
}

static void write_numbers(FILE *out, const char *name, const TasksChoice *c, size_t n)
{
    fprintf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        if (isfinite(c[i].loglik)) fprintf(out, "%s%.9g", i ? "," : "", c[i].loglik);
        else fprintf(out, "%snull", i ? "," : "");
    fputc(']', out);
}

void tasks_write_items(const Tasks *t, FILE *out)
{
    for (size_t i = 0; i < t->n; i++) {
        const TasksItem *item = &t->item[i];
        fprintf(out, "{\"task\":\"%s\",\"item\":%lld", t->name, (long long)item->id);
        if (item->n > 1) fprintf(out, ",\"answer\":%zu", item->gold);
        else fprintf(out, ",\"greedy\":%s", item->choice[0].greedy ? "true" : "false");
        write_numbers(out, "loglik", item->choice, item->n);
        if (item->plain) write_numbers(out, "uncond", item->plain, item->n);
        fprintf(out, ",\"tokens\":[");
        for (size_t k = 0; k < item->n; k++) fprintf(out, "%s%zu", k ? "," : "", item->choice[k].scored);
        fprintf(out, "]}\n");
    }
}

static void free_choices(TasksChoice *c, size_t n)
{
    for (size_t i = 0; c && i < n; i++) {
        free(c[i].context);
        free(c[i].ending);
        free(c[i].token);
    }
    free(c);
}

void tasks_free(Tasks *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n; i++) {
        free_choices(t->item[i].choice, t->item[i].n);
        free_choices(t->item[i].plain, t->item[i].n);
        free(t->item[i].subject);
    }
    free(t->item);
    free(t->name);
    free(t->path);
    free(t);
}
