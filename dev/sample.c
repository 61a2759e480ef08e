// sample: text from a trained model, as it is written. It writes no file.
//
//   build/sample runs/stories --prompt "Once upon a time"
//   build/sample runs/stories                                       on a terminal: a prompt a line
//   echo "Once" | build/sample runs/stories --n 3 --json
//   build/sample runs/chat --chat                                   a conversation: a line is what the user says
//
// The samples are those of a run: with its settings sample i of seed s after step k is drawn with the random numbers of
// (s, "sample i", k), so the last ones in samples.txt come out again.
#include "base/check.h"
#include "base/clock.h"
#include "tools/options.h"
#include "base/words.h"
#include "models/trained.h"
#include "tokenizer/chat.h"
#include "eval/sample.h"
#include "ops/dev_cpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *prompt, *tokenizer_dir, *dtype = "fp32", *system_text;
static bool chatting;
static Chat *chat;
static TokenIds said; // the conversation so far
static OptionList stops;
static size_t count = 1, tokens, top_k, threads;
static double seed;
static SampleRule rule;
static bool logprobs, json;

static Option options[] = {
    OPTION(TEXT, "--prompt", "TEXT", "what the text begins with; \"\": nothing", &prompt),
    OPTION(SIZE, "--n", "N", "texts, up to 8 side by side [1]", &count, .least = 1, .most = 1e6),
    OPTION(SIZE, "--tokens", "N", "of one text, at most [of the run]", &tokens, .least = 1, .most = 1e9),
    OPTION(NUMBER, "--temperature", "T", "divides the logits; 0: always the likeliest token [of the run]",
           &rule.temperature),
    OPTION(SIZE, "--top-k", "K", "draw from the K likeliest tokens; 0: all [of the run]", &top_k, .most = 1e9),
    OPTION(NUMBER, "--top-p", "P", "draw from the fewest that hold this probability; 1: all [of the run]", &rule.top_p,
           .least = 1e-9, .most = 1),
    OPTION(NUMBER, "--min-p", "P", "draw from those with this part of the likeliest one's; 0: all [of the run]",
           &rule.min_p, .most = 1),
    OPTION(NUMBER, "--repetition", "R", "weakens tokens that the text has; 1: off [of the run]", &rule.repetition,
           .least = 1),
    OPTION(LIST, "--stop", "TEXT", "end before this text; more than one may be given", &stops),
    OPTION(NUMBER, "--seed", "N", "of the random numbers [of the run]", &seed, .most = 9007199254740992),
    OPTION(SWITCH, "--logprobs", NULL, "a line for each token: the natural logarithm of its probability, its text",
           &logprobs),
    OPTION(SWITCH, "--json", NULL, "a line of JSON for each text", &json),
    OPTION(SWITCH, "--chat", NULL, "a conversation by the tokenizer's chat template: a line is what the user says",
           &chatting),
    OPTION(TEXT, "--system", "TEXT", "of --chat: what the system says first [what the template says]", &system_text),
    OPTION(TEXT, "--tokenizer", "DIR", "the tokenizer's folder [of the run]", &tokenizer_dir),
    OPTION(TEXT, "--dtype", "TYPE", "of weights and activations: fp32 or bf16, which reads half the bytes [fp32]",
           &dtype),
    OPTION(SIZE, "--threads", "N", "0: one a core [0]", &threads, .most = 1024),
};
static OptionSet set = {.program = "sample", .row = options, .n = sizeof options / sizeof *options, .usage =
    "usage: sample MODEL [--option VALUE]...\n"
    "MODEL: a run, a checkpoint, a folder of Transformers, a GGUF file, or a model file of llm.c.\n"
    "Without --prompt a terminal is asked for one, again and again; other input is the prompt.\n\n"};

// ---- what is written

static volatile sig_atomic_t interrupted;
static size_t n_written;      // tokens of all texts
static double seconds, first; // from the prompt on, of all texts; until the first token of the first

// A text that is being written. Texts are drawn side by side and shown one after another: what one writes before its
// turn waits in memory.
typedef struct {
    Sampler sampler;
    KvCache cache;
    const char *words;         // the prompt
    size_t n_words, drawn;     // drawn: tokens
    char *text;                // so far, without the prompt
    size_t n, cap, shown;      // what may be the beginning of a --stop is not shown yet
    SampleText held;
    const char *end;           // why it has ended; NULL: it has not
    json_t *ids, *logs;        // --json
    FILE *to;                  // standard output, or `waiting`
    char *waiting;
    size_t n_waiting;
} Text;

static void append(Text *o, const char *bytes, size_t n)
{
    o->text = words_grow(o->text, &o->cap, o->n + n + 1, 1);
    memcpy(o->text + o->n, bytes, n);
    o->n += n;
    o->text[o->n] = 0;
    for (size_t i = 0; i < stops.n; i++) { // the first place of any of them
        size_t length = strlen(stops.word[i]);
        for (size_t at = 0; at + length <= o->n; at++)
            if (memcmp(o->text + at, stops.word[i], length) == 0) o->n = at, o->end = "stop";
    }
}

static void show(Text *o)
{
    size_t end = o->n;
    for (size_t i = 0; i < stops.n && !o->end; i++)
        for (size_t part = strlen(stops.word[i]) - 1; part > 0; part--)
            if (part <= o->n && memcmp(o->text + o->n - part, stops.word[i], part) == 0 && o->n - part < end)
                end = o->n - part;
    if (end <= o->shown) return;
    if (!json && !logprobs) fwrite(o->text + o->shown, 1, end - o->shown, o->to);
    o->shown = end;
    fflush(o->to);
}

static json_t *text_json(const char *bytes, size_t n)
{
    char *out = malloc(3 * n + 12);
    if (!out) die("sample: no memory for %zu bytes", 3 * n);
    SampleText whole = {0};
    size_t k = sample_characters(&whole, bytes, n, out);
    k += sample_characters(&whole, NULL, 0, out + k);
    json_t *text = json_stringn(out, k);
    free(out);
    if (!text) die("sample: no memory for %zu bytes", k);
    return text;
}

static void write_json(FILE *to, json_t *value)
{
    char *line = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    if (!line) die("sample: no memory for a line of JSON");
    fprintf(to, "%s\n", line);
    free(line);
    json_decref(value);
}

static void text_begin(Text *o, Trained *t, const char *words, size_t n, size_t i)
{
    char name[40];
    snprintf(name, sizeof name, "sample %zu", i);
    *o = (Text){.words = words, .n_words = n, .ids = json ? json_array() : NULL, .logs = json ? json_array() : NULL};
    o->to = open_memstream(&o->waiting, &o->n_waiting);
    if (!o->to) die("sample: no memory for a text");
    Rng rng = rng_make((uint64_t)seed, name, (uint32_t)t->step);
    if (chat) {
        TokenIds ids = {0};
        for (size_t k = 0; k < said.n; k++) token_ids_push(&ids, said.id[k]);
        chat_ask(chat, &ids);
        o->sampler = sample_begin_ids(t->model, (SampleForward){0}, &o->cache, t->tokenizer, ids, rule, rng);
    } else o->sampler = sample_begin(t->model, (SampleForward){0}, &o->cache, t->tokenizer, words, n, rule, rng);
    o->cache = model_cache_for(t->model, o->sampler.ids.n + tokens);
    if (count > 1 && !json) fprintf(o->to, "%s== sample %zu\n", i ? "\n" : "", i);
    if (!json && !logprobs && !chat) fwrite(words, 1, n, o->to);
}

// Its turn to be shown.
static void text_turn(Text *o)
{
    fclose(o->to);
    fwrite(o->waiting, 1, o->n_waiting, stdout);
    o->to = stdout;
    fflush(o->to);
}

static void text_end(Text *o, const char *end)
{
    char rest[12];
    if (!o->end) append(o, rest, sample_characters(&o->held, NULL, 0, rest)); // may complete a --stop
    if (!o->end) o->end = end;
    show(o);
    if (json)
        write_json(o->to, json_pack("{s:o, s:o, s:s, s:o, s:o}", "prompt", text_json(o->words, o->n_words), "text",
                                    text_json(o->text, o->n), "end", o->end, "ids", o->ids, "logprobs", o->logs));
    else fprintf(o->to, "%s\n", logprobs ? o->end : "");
    fflush(o->to);
}

static void check_finite(const Trained *t, const Text *o)
{
    float sum = 0;
    for (size_t v = 0; v < t->model->shape.vocab; v++) sum += o->sampler.logits[v] * 0;
    if (sum != 0) die("%s: its logits are not finite (are its weights?)", t->dir);
}

// One more token; id < 0: the text's end.
static void text_add(Text *o, Tokenizer *tokenizer, int32_t id, double log_probability)
{
    n_written++;
    if (id < 0) {
        text_end(o, "end of text");
        return;
    }
    size_t k;
    const char *bytes = (o->n_words || o->drawn ? tokenizer_decode : tokenizer_decode_first)(tokenizer, id, &k);
    char *whole = words_grow(NULL, &(size_t){0}, 3 * k + 12, 1);
    append(o, whole, sample_characters(&o->held, bytes, k, whole));
    free(whole);
    if (json) {
        json_array_append_new(o->ids, json_integer(id));
        json_array_append_new(o->logs, json_real(log_probability));
    } else if (logprobs) fprintf(o->to, "%9.4f  ", log_probability), write_json(o->to, text_json(bytes, k));
    if (o->end || ++o->drawn == tokens) text_end(o, "length");
    else show(o);
}

static void text_free(Text *o, Model *model)
{
    sample_end(&o->sampler);
    model_cache_free(model, &o->cache);
    free(o->text);
    free(o->waiting);
}

// Texts i .. i + n_texts - 1 after a prompt of n bytes, side by side.
static void write_batch(Trained *t, const char *words, size_t n, size_t i, size_t n_texts)
{
    Text text[FEW_ROWS];
    size_t turn = 0;
    double begin = clock_seconds();
    for (size_t k = 0; k < n_texts; k++) text_begin(&text[k], t, words, n, i + k);
    if (text[0].sampler.ids.n > t->model->shape.context)
        die("sample: the prompt has %zu tokens, and the model's context %zu (try a shorter one)",
            text[0].sampler.ids.n, t->model->shape.context);
    text_turn(&text[0]);
    while (!interrupted) {
        Text *at[FEW_ROWS];
        Sampler *sampler[FEW_ROWS];
        int32_t id[FEW_ROWS];
        double log_probability[FEW_ROWS] = {0};
        size_t live = 0;
        for (size_t k = 0; k < n_texts; k++)
            if (!text[k].end) at[live] = &text[k], sampler[live++] = &text[k].sampler;
        if (!live) break;
        sample_next_each(sampler, live, id, json || logprobs ? log_probability : NULL);
        if (!n_written) first = clock_seconds() - begin;
        for (size_t k = 0; k < live; k++) check_finite(t, at[k]);
        for (size_t k = 0; k < live; k++) text_add(at[k], t->tokenizer, id[k], log_probability[k]);
        while (text[turn].end && turn + 1 < n_texts) text_turn(&text[++turn]);
    }
    for (size_t k = 0; k < n_texts; k++) {
        if (k > turn) text_turn(&text[k]);
        if (!text[k].end) text_end(&text[k], "interrupted");
        if (chat && i + k + 1 == count) chat_turn(chat, CHAT_ASSISTANT, text[k].text, text[k].n, &said);
        text_free(&text[k], t->model);
    }
    seconds += clock_seconds() - begin;
}

static void write_texts(Trained *t, const char *words, size_t n)
{
    size_t most = sample_batch(t->model);
    n_written = 0, seconds = 0;
    if (chat) chat_turn(chat, CHAT_USER, words, n, &said);
    for (size_t i = 0; i < count && !interrupted; i += most)
        write_batch(t, words, n, i, count - i < most ? count - i : most);
    fprintf(stderr, "sample: %zu tokens in %.3f s, %.1f a second; the first after %.3f s\n", n_written, seconds,
            (double)n_written / seconds, first);
}

// ---- where prompts come from

static void begin_chat(Trained *t)
{
    chat = chat_open(t->tokenizer, NULL, t->dir);
    if (tokenizer_bos(t->tokenizer) >= 0) token_ids_push(&said, tokenizer_bos(t->tokenizer));
    if (system_text) chat_turn(chat, CHAT_SYSTEM, system_text, strlen(system_text), &said);
    else chat_begin(chat, &said);
}

// Each line of the input is what the user says.
static void answer_lines(Trained *t)
{
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; !interrupted && (n = getline(&line, &cap, stdin)) > 0;)
        write_texts(t, line, (size_t)n - (line[n - 1] == '\n'));
    free(line);
}

static char *all_input(size_t *n)
{
    char *text = NULL;
    size_t cap = 0, got;
    *n = 0;
    do {
        text = words_grow(text, &cap, *n + (1 << 16), 1);
        *n += got = fread(text + *n, 1, 1 << 16, stdin);
    } while (got);
    if (ferror(stdin)) die("sample: standard input: %s", strerror(errno));
    if (*n && text[*n - 1] == '\n') --*n; // the line's, not the prompt's
    return text;
}

static void note_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

// readline or libedit, where one is installed: history and editing of the line.
typedef struct {
    char *(*read)(const char *prompt);
    void (*remember)(const char *line);
} Editor;

static Editor find_editor(void)
{
    static const char *const name[] = {"libreadline.so.8", "libedit.so.2", "libedit.so.0"};
    Editor e = {0};
    for (size_t i = 0; i < sizeof name / sizeof *name && !e.read; i++) {
        void *library = dlopen(name[i], RTLD_NOW);
        if (!library) continue;
        *(void **)&e.read = dlsym(library, "readline");
        *(void **)&e.remember = dlsym(library, "add_history");
    }
    return e;
}

// Ctrl-C ends a text while it is written, and the program while it asks. NULL: the end of the input.
static char *ask(const Editor *e)
{
    char *line = NULL;
    size_t cap = 0;
    signal(SIGINT, SIG_DFL);
    if (e->read) line = e->read("> ");
    else {
        fputs("> ", stdout), fflush(stdout);
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) free(line), line = NULL;
        else line[strcspn(line, "\n")] = 0;
    }
    if (line && *line && e->read && e->remember) e->remember(line);
    interrupted = 0;
    signal(SIGINT, note_interrupt);
    return line;
}

int main(int argc, char **argv)
{
    dev_cpu_choose_blas(argv);
    if (options_read(&set, argc, argv) != 1)
        die_usage("usage: sample MODEL [--option VALUE]... (try --help)");
    for (size_t i = 0; i < stops.n; i++)
        if (!*stops.word[i]) die("sample: --stop: an empty text");
    dev_cpu_blas_room((int)threads, false);
    if (strcmp(dtype, "fp32") && strcmp(dtype, "bf16")) die_usage("sample: --dtype '%s' (fp32 or bf16)", dtype);
    Trained *t = trained_open(argv[1], (TrainedOptions){tokenizer_dir, .B = 1, .T = 256, (int)threads,
                                                        strcmp(dtype, "bf16") ? CONFIG_DTYPE_FP32 : CONFIG_DTYPE_BF16});
    trained_tokenizer(t);
    const Config *cfg = &t->cfg;
    if (!options_given(&set, "--tokens")) tokens = (size_t)cfg->sample.tokens;
    if (!options_given(&set, "--temperature")) rule.temperature = cfg->sample.temperature;
    rule.top_k = options_given(&set, "--top-k") ? (long)top_k : cfg->sample.top_k;
    if (!options_given(&set, "--top-p")) rule.top_p = cfg->sample.top_p;
    if (!options_given(&set, "--min-p")) rule.min_p = cfg->sample.min_p;
    if (!options_given(&set, "--repetition")) rule.repetition = cfg->sample.repetition;
    if (!options_given(&set, "--seed")) seed = (double)cfg->run.seed;
    if (chatting) begin_chat(t);
    if (chat && !prompt && !isatty(STDIN_FILENO)) answer_lines(t);
    else if (prompt || !isatty(STDIN_FILENO)) {
        size_t n = prompt ? strlen(prompt) : 0;
        char *input = prompt ? NULL : all_input(&n);
        write_texts(t, prompt ? prompt : input, n);
        free(input);
    } else {
        Editor editor = find_editor();
        fprintf(stderr, "%s. Type %s; Ctrl-C stops it, Ctrl-D ends.\n", t->dir,
                chat ? "what the user says" : "how a text begins");
        for (char *line; (line = ask(&editor)); free(line)) write_texts(t, line, strlen(line));
        puts("");
    }
    chat_free(chat);
    token_ids_free(&said);
    trained_close(t);
    free(stops.word);
    return 0;
}
